//! From a URL to the driver.

use tenure_core::driver::{Backend, BackendUrl};
use tenure_core::{Error, ErrorKind, Result};

use crate::{Table, TableDriver};

/// What `tenure::Connectors` calls for URLs of the scheme `table`, which may be `table:` and nothing else: a new table.
///
/// A driver of a server takes hosts, user, password and its parameters out of the URL, and connects. The settings of the
/// client have been taken out before.
///
/// # Errors
///
/// `InvalidArgument` for another form, and for a parameter that nobody knows. The URL is not repeated: others hold passwords.
pub async fn connect(url: BackendUrl) -> Result<Backend> {
    if url.has_slashes() || !url.path().is_empty() {
        return Err(Error::new(ErrorKind::InvalidArgument, "the URL of a table is `table:`"));
    }
    url.finish()?; // names the parameter that is left, and all that somebody has asked for
    Ok(TableDriver::new(Table::default()).into())
}
