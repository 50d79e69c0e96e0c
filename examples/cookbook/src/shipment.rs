//! A shipment in the PostgreSQL database that has the lock, and the message about it, in one transaction.

use std::error::Error;

use tenure::Lock;
use tokio_postgres::Client;

/// The table.
pub const TABLE: &str = "CREATE TABLE shop_order (
    id bigint PRIMARY KEY,
    shipped boolean NOT NULL DEFAULT false
)";

/// The result of a shipment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shipped {
    /// It is on its way.
    Yes,
    /// It was shipped before.
    Already,
    /// Our lease had ended: nothing was written. Begin again.
    Overtaken,
}

/// Ships an order, once it is packed. The lock's name is `orders/{order}`, in
/// the same database.
pub async fn ship<F: Future<Output = ()>>(
    lock: &Lock,
    db: &mut Client,
    order: i64,
    pack: impl FnOnce() -> F,
) -> Result<Shipped, Box<dyn Error + Send + Sync>> {
    let held = lock.acquire().await?;
    // If this process is paused here, it is overtaken, and the guard fails.
    pack().await;
    let transaction = db.transaction().await?;
    let (name, fence) =
        (format!("orders/{order}"), i64::try_from(held.fence())?);
    let guard = "SELECT tenure.guard($1::text, $2)";
    if let Err(error) = transaction.execute(guard, &[&name, &fence]).await {
        let lost = error.code().is_some_and(|code| code.code() == "TN001");
        return if lost { Ok(Shipped::Overtaken) } else { Err(error.into()) };
    }
    // Until the commit no other client is granted the lock, however long this
    // process is paused.
    let mark = "UPDATE shop_order SET shipped = true
        WHERE id = $1 AND NOT shipped";
    if transaction.execute(mark, &[&order]).await? == 0 {
        return Ok(Shipped::Already);
    }
    let push = "SELECT tenure.push('labels', convert_to($1::text, 'UTF8'))";
    transaction.execute(push, &[&order.to_string()]).await?;
    transaction.commit().await?;
    held.release().await?;
    Ok(Shipped::Yes)
}
