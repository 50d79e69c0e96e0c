//! The list of held locks: rows of the table of locks, in the order of their names.

use async_trait::async_trait;
use tenure_core::driver::{Census, CensusCapabilities, CensusOrder, CensusPlace, HeldLock, HeldPage};
use tenure_core::{Error, ErrorKind, LockName, Result};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::connection::Parameter;
use crate::driver::PostgresDriver;
use crate::error::lacks_a_function;
use crate::locks::{column, inspection_of};

const HELD: &str = "SELECT * FROM tenure.held($1, $2)";

/// What to do where the function is missing.
const ADD: &str = "the schema \"tenure\" of this database was made without the list of held locks: let its owner run the statements \
                   of tenure_postgres::census_sql(), or connect once with migrate=true, and GRANT EXECUTE ON FUNCTION tenure.held TO \
                   the_user";

/// A page looks at as many rows as it may have locks. A free name keeps its row for a while, so that a page may have fewer.
#[async_trait]
impl Census for PostgresDriver {
    fn capabilities(&self) -> CensusCapabilities {
        CensusCapabilities::new(CensusOrder::Sorted)
    }

    async fn held(&self, prefix: &[u8], from: Option<&CensusPlace>, max: usize) -> Result<HeldPage> {
        let from = from.map_or(prefix, CensusPlace::as_bytes);
        let most = i32::try_from(max).unwrap_or(i32::MAX);
        let parameters: [Parameter<'_>; 2] = [(&from, Type::BYTEA), (&most, Type::INT4)];
        let rows = self.connections.ask(&[], HELD, &parameters).await.map_err(reported)?;
        let mut locks = Vec::new();
        for row in &rows {
            let name: &[u8] = column(row, 7)?;
            if !name.starts_with(prefix) {
                return Ok(HeldPage::new(locks, None));
            }
            let seen = inspection_of(row)?;
            if let Some(holder) = seen.holder {
                let name =
                    LockName::new(name).map_err(|error| Error::new(ErrorKind::Damaged, error.message().to_owned()))?;
                locks.push(HeldLock::new(name, holder).with_waiters(Some(seen.waiters)));
            }
        }
        let last = rows.last().filter(|_| rows.len() >= max).map(behind).transpose()?;
        Ok(HeldPage::new(locks, last))
    }
}

/// The first name that comes after this row's.
fn behind(row: &Row) -> Result<CensusPlace> {
    Ok(CensusPlace::new([column::<&[u8]>(row, 7)?, b"\0"].concat()))
}

fn reported(error: Error) -> Error {
    if lacks_a_function(&error) { Error::new(ErrorKind::Misconfigured, ADD).with_source(error) } else { error }
}
