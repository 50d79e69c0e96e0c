//! The toy backend. In a real driver, a foreign server takes its place.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tenure_core::{LockName, OwnerToken};
use tokio::task::yield_now;
use tokio::time::Instant;

/// A table of locks: `CREATE TABLE locks (name PRIMARY KEY, fence, token, expires, graves)`.
#[derive(Clone, Debug, Default)]
pub struct Table(Arc<Mutex<HashMap<LockName, Row>>>);

/// One row. It stays when its lock is free, because its fence must never begin again.
#[derive(Debug, Default)]
pub struct Row {
    /// The fence of the last grant.
    pub fence: u64,
    /// Who was granted last, and when that ends.
    pub lease: Option<(OwnerToken, Instant)>,
    /// Tokens that were abandoned, and until when to remember that.
    pub graves: Vec<(OwnerToken, Instant)>,
}

impl Table {
    /// Runs one transaction on one row, at the table's time.
    ///
    /// # Cancel safety
    ///
    /// Dropped before the request arrived, nothing happens; dropped before the answer arrived, the transaction remains.
    pub async fn update<T>(
        &self,
        name: &LockName,
        statement: impl FnOnce(&mut Row, Instant) -> T,
    ) -> T {
        yield_now().await; // the request travels
        let answer = {
            let mut rows =
                self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let (row, now) =
                (rows.entry(name.clone()).or_default(), Instant::now());
            row.lease.take_if(|(_, expires)| *expires <= now);
            row.graves.retain(|(_, until)| *until > now);
            statement(row, now)
        };
        yield_now().await; // the answer travels
        answer
    }
}
