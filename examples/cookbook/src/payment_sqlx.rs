//! The payment of `payment.rs` on PostgreSQL, with sqlx.

use sqlx::PgPool;
use tenure::{Client, FencingToken};

use crate::payment::{ATTEMPTS, Failed, Paid, Payment};

/// Pays once, however often it is called for this payment. `charge` sends the
/// request to the bank, with the payment's id as the key.
pub async fn pay(
    client: &Client,
    db: &PgPool,
    payment: &Payment,
    charge: impl AsyncFn(&Payment) -> Result<(), Failed>,
) -> Result<(), Failed> {
    for _ in 0..ATTEMPTS {
        let guard = client
            .lock(format!("account/{}", payment.account))
            .acquire()
            .await?;
        if attempt(guard.fence(), db, payment, &charge).await? == Paid::Yes {
            return Ok(());
        }
    }
    let Payment { id, account, .. } = payment;
    let why = format!("missing, or overtaken {ATTEMPTS} times");
    Err(format!("payment {id}: account {account}: {why}").into())
}

async fn attempt(
    fence: FencingToken,
    db: &PgPool,
    payment: &Payment,
    charge: impl AsyncFn(&Payment) -> Result<(), Failed>,
) -> Result<Paid, Failed> {
    let fence = i64::try_from(fence)?;
    let claim = "UPDATE account SET fence = $1 WHERE id = $2 AND fence <= $1
        RETURNING balance";
    let claimed = sqlx::query_scalar(claim)
        .bind(fence)
        .bind(&payment.account)
        .fetch_optional(db)
        .await?;
    let Some(balance): Option<i64> = claimed else {
        return Ok(Paid::Overtaken);
    };
    let booked = "SELECT EXISTS (SELECT 1 FROM payment WHERE id = $1)";
    if sqlx::query_scalar(booked).bind(&payment.id).fetch_one(db).await? {
        return Ok(Paid::Yes);
    }
    // While the bank works, no transaction is open and no connection in use.
    charge(payment).await?;
    // A transaction that is dropped is rolled back.
    let mut transaction = db.begin().await?;
    let write = "UPDATE account SET balance = $3 WHERE id = $2 AND fence = $1";
    let write = sqlx::query(write)
        .bind(fence)
        .bind(&payment.account)
        .bind(balance + payment.amount);
    if write.execute(&mut *transaction).await?.rows_affected() == 0 {
        return Ok(Paid::Overtaken);
    }
    let book = "INSERT INTO payment (id, account, amount) VALUES ($1, $2, $3)";
    let book = sqlx::query(book)
        .bind(&payment.id)
        .bind(&payment.account)
        .bind(payment.amount);
    book.execute(&mut *transaction).await?;
    transaction.commit().await?;
    Ok(Paid::Yes)
}
