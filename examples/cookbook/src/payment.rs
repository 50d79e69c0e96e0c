//! A payment, with a fence in SQL.

use std::error::Error;
use std::sync::{Mutex, PoisonError};

use rusqlite::{Connection, OptionalExtension as _, params};
use tenure::{Client, FencingToken};

/// The table. On PostgreSQL: `fence bigint NOT NULL DEFAULT 0`.
pub const TABLE: &str = "CREATE TABLE account (id TEXT PRIMARY KEY, balance INTEGER, fence INTEGER NOT NULL DEFAULT 0)";

/// What became of a payment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paid {
    /// It is in the books.
    Yes,
    /// Somebody held the lock after us: nothing was written. Begin again.
    Overtaken,
}

/// The first statement claims the row for this holder of the lock, and reads it. From here on no earlier holder can write.
fn claim(db: &Connection, id: &str, fence: FencingToken) -> Result<Option<i64>, Box<dyn Error + Send + Sync>> {
    let sql = "UPDATE account SET fence = ?1 WHERE id = ?2 AND fence <= ?1 RETURNING balance";
    Ok(db.query_row(sql, params![i64::try_from(fence)?, id], |row| row.get(0)).optional()?)
}

/// The second writes, unless a later holder has claimed the row.
fn write(db: &Connection, id: &str, fence: FencingToken, to: i64) -> Result<Paid, Box<dyn Error + Send + Sync>> {
    let sql = "UPDATE account SET balance = ?3 WHERE id = ?2 AND fence = ?1";
    let rows = db.execute(sql, params![i64::try_from(fence)?, id, to])?;
    Ok(if rows == 1 { Paid::Yes } else { Paid::Overtaken })
}

/// Pays into an account what `amount` makes of its balance; that may take its time, at a bank for example.
pub async fn pay<F: Future<Output = i64>>(
    client: &Client,
    db: &Mutex<Connection>,
    id: &str,
    amount: impl FnOnce(i64) -> F,
) -> Result<Paid, Box<dyn Error + Send + Sync>> {
    let guard = client.lock(format!("account/{id}")).acquire().await?;
    let claimed = claim(&db.lock().unwrap_or_else(PoisonError::into_inner), id, guard.fence())?;
    let Some(balance) = claimed else { return Ok(Paid::Overtaken) };
    let amount = amount(balance).await; // a process that is paused here is overtaken, and finds out below
    write(&db.lock().unwrap_or_else(PoisonError::into_inner), id, guard.fence(), balance + amount)
} // the guard is dropped, which gives the lock back
