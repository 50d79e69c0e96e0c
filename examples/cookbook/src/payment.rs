//! A payment: a bank is asked, and the books are written, once each, although the holder of the lock may be paused in between.

use std::error::Error;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rusqlite::{Connection, OptionalExtension as _, params};
use tenure::{Client, FencingToken};

/// The tables. On PostgreSQL: `bigint` instead of `INTEGER`.
pub const TABLES: &str = "
    CREATE TABLE account (
        id TEXT PRIMARY KEY,
        balance INTEGER NOT NULL,
        fence INTEGER NOT NULL DEFAULT 0
    );
    CREATE TABLE payment (
        id TEXT PRIMARY KEY,
        account TEXT NOT NULL,
        amount INTEGER NOT NULL
    );";

/// The most attempts of one payment. An account that does not exist looks like
/// one that was overtaken in each attempt.
pub const ATTEMPTS: u32 = 5;

/// Why a payment failed.
pub type Failed = Box<dyn Error + Send + Sync>;

/// A payment, as it was stored before the first attempt.
#[derive(Clone, Debug)]
pub struct Payment {
    /// The idempotency key, for the bank and for the books: the same in each
    /// attempt, also after a restart. A fence is no such key, since each
    /// attempt has another one.
    pub id: String,
    /// The account that receives the amount.
    pub account: String,
    /// The amount.
    pub amount: i64,
}

/// The result of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paid {
    /// The payment is in the books.
    Yes,
    /// A later holder of the lock claimed the account: nothing was written.
    Overtaken,
}

/// Pays once, however often it is called for this payment. `charge` sends the
/// request to the bank, with the payment's id as the key.
pub async fn pay(
    client: &Client,
    db: &Mutex<Connection>,
    payment: &Payment,
    charge: impl AsyncFn(&Payment) -> Result<(), Failed>,
) -> Result<(), Failed> {
    for _ in 0..ATTEMPTS {
        let guard = client
            .lock(format!("account/{}", payment.account))
            .acquire()
            .await?;
        if attempt(guard.fence(), db, payment, &charge).await? == Paid::Yes {
            // The guard is dropped, which releases the lock.
            return Ok(());
        }
    }
    let Payment { id, account, .. } = payment;
    let why = format!("missing, or overtaken {ATTEMPTS} times");
    Err(format!("payment {id}: account {account}: {why}").into())
}

async fn attempt(
    fence: FencingToken,
    db: &Mutex<Connection>,
    payment: &Payment,
    charge: impl AsyncFn(&Payment) -> Result<(), Failed>,
) -> Result<Paid, Failed> {
    let Some(balance) = claim(&open(db), payment, fence)? else {
        return Ok(Paid::Overtaken);
    };
    if is_booked(&open(db), payment)? {
        return Ok(Paid::Yes);
    }
    // If this process is paused here, it is overtaken, and `book` reports it.
    charge(payment).await?;
    book(&mut open(db), payment, fence, balance + payment.amount)
}

/// The first statement claims the row for this holder of the lock, and reads
/// it. From here on no earlier holder can write.
fn claim(
    db: &Connection,
    payment: &Payment,
    fence: FencingToken,
) -> Result<Option<i64>, Failed> {
    let sql = "UPDATE account SET fence = ?1 WHERE id = ?2 AND fence <= ?1
        RETURNING balance";
    let values = params![i64::try_from(fence)?, payment.account];
    Ok(db.query_row(sql, values, |row| row.get(0)).optional()?)
}

/// Returns true if an earlier attempt booked the payment.
fn is_booked(db: &Connection, payment: &Payment) -> Result<bool, Failed> {
    let sql = "SELECT EXISTS (SELECT 1 FROM payment WHERE id = ?1)";
    Ok(db.query_row(sql, params![payment.id], |row| row.get(0))?)
}

/// The last transaction writes, unless a later holder has claimed the row.
fn book(
    db: &mut Connection,
    payment: &Payment,
    fence: FencingToken,
    balance: i64,
) -> Result<Paid, Failed> {
    let Payment { id, account, amount } = payment;
    // A transaction that is dropped is rolled back.
    let transaction = db.transaction()?;
    let sql = "UPDATE account SET balance = ?3 WHERE id = ?2 AND fence = ?1";
    let values = params![i64::try_from(fence)?, account, balance];
    if transaction.execute(sql, values)? == 0 {
        return Ok(Paid::Overtaken);
    }
    let sql = "INSERT INTO payment (id, account, amount) VALUES (?1, ?2, ?3)";
    transaction.execute(sql, params![id, account, amount])?;
    transaction.commit()?;
    Ok(Paid::Yes)
}

fn open(db: &Mutex<Connection>) -> MutexGuard<'_, Connection> {
    db.lock().unwrap_or_else(PoisonError::into_inner)
}
