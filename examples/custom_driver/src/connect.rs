//! From a URL to the driver.

use tenure_core::driver::{Backend, BackendUrl};
use tenure_core::{Error, ErrorKind, Result};

use crate::{Table, TableDriver};

/// `tenure::Connectors` calls this for URLs of the scheme `table`. The only one
/// is `table:`, a new table.
///
/// A driver of a server reads hosts, user, password and its parameters from the
/// URL, and connects. The settings of the client were removed before.
///
/// # Errors
///
/// `InvalidArgument` for another form, and for an unknown parameter. The error
/// does not repeat the URL, since other URLs contain passwords.
pub async fn connect(url: BackendUrl) -> Result<Backend> {
    if url.has_slashes() || !url.path().is_empty() {
        let text = "the URL of a table is `table:`";
        return Err(Error::new(ErrorKind::InvalidArgument, text));
    }
    // Fails on a parameter that is left over, and lists the known ones.
    url.finish()?;
    Ok(TableDriver::new(Table::default()).into())
}
