//! The list of held locks: rows of the table of locks, in the order of their names.

use async_trait::async_trait;
use mysql_async::{Row, Value};
use tenure_core::driver::{Census, CensusCapabilities, CensusOrder, CensusPlace, HeldLock, HeldPage, WaitersCounted};
use tenure_core::{Error, ErrorKind, LockName, Result};

use crate::driver::MysqlDriver;
use crate::locks::holder_of;
use crate::row::column;

const HELD: &str = "CALL tenure_held(?, ?)";

/// A page looks at as many rows as it may have locks. A lease that ended by itself leaves its row, so that a page may have fewer.
/// The server does not know who waits.
#[async_trait]
impl Census for MysqlDriver {
    fn capabilities(&self) -> CensusCapabilities {
        CensusCapabilities::new(CensusOrder::Sorted).with_waiters(WaitersCounted::No)
    }

    async fn held(&self, prefix: &[u8], from: Option<&CensusPlace>, max: usize) -> Result<HeldPage> {
        let from = from.map_or(prefix, CensusPlace::as_bytes);
        let most = i32::try_from(max).unwrap_or(i32::MAX);
        let rows = self.connections.ask(&[], HELD, vec![Value::from(from), Value::from(most)]).await?;
        let mut locks = Vec::new();
        for row in &rows {
            let name: Vec<u8> = column(row, NAME)?;
            if !name.starts_with(prefix) {
                return Ok(HeldPage::new(locks, None));
            }
            if column::<Option<i64>>(row, FENCE)?.is_some() {
                let name =
                    LockName::new(&name).map_err(|error| Error::new(ErrorKind::Damaged, error.message().to_owned()))?;
                locks.push(HeldLock::new(name, holder_of(row)?));
            }
        }
        let next = rows.last().filter(|_| rows.len() >= max).map(behind).transpose()?;
        Ok(HeldPage::new(locks, next))
    }
}

const FENCE: usize = 2;
const NAME: usize = 6;

/// The first name that comes after this row's.
fn behind(row: &Row) -> Result<CensusPlace> {
    let mut name: Vec<u8> = column(row, NAME)?;
    name.push(0);
    Ok(CensusPlace::new(name))
}
