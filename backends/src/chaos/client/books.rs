//! Guarded transactions: read a number, add one, write it back, and insert a line. If two such transactions of one name overlap, an
//! update is lost, and the name has more lines than its number says.

use std::time::Duration;

use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Opts};
use tenure_conformance::BoxError;
use tokio::task::JoinHandle;
use tokio_postgres::NoTls;

/// Where the numbers are.
#[derive(Clone, Debug)]
pub(super) struct Books(String);

/// One transaction.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) fence: u64,
    /// How long it takes between reading and writing, and again before the commit.
    pub(super) pause: Duration,
    /// After this time it is dropped, wherever it is.
    pub(super) limit: Duration,
}

impl Books {
    pub(super) fn at(url: &str) -> Self {
        Self(url.to_owned())
    }

    /// Starts a transaction in a task of its own, which does not end with the hold. A transaction that fails has written nothing.
    pub(super) fn begin(&self, entry: Entry) -> JoinHandle<()> {
        let Self(url) = self.clone();
        tokio::spawn(async move {
            let limit = entry.limit;
            let work = async {
                match url.starts_with("mysql:") {
                    true => in_mysql(&url, &entry).await,
                    false => in_postgres(&url, &entry).await,
                }
            };
            let _refused_or_late = tokio::time::timeout(limit, work).await;
        })
    }
}

async fn in_postgres(url: &str, entry: &Entry) -> Result<(), BoxError> {
    let (session, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(async move { drop(connection.await) });
    let (name, fence) = (&entry.name, i64::try_from(entry.fence)?);
    session.batch_execute("BEGIN").await?;
    session.execute("SELECT tenure.guard($1::text, $2)", &[name, &fence]).await?;
    session.execute("INSERT INTO book VALUES ($1, 0) ON CONFLICT DO NOTHING", &[name]).await?;
    let read: i64 = session.query_one("SELECT value FROM book WHERE name = $1", &[name]).await?.get(0);
    tokio::time::sleep(entry.pause).await;
    session.execute("UPDATE book SET value = $2 WHERE name = $1", &[name, &(read + 1)]).await?;
    session.execute("INSERT INTO line VALUES ($1)", &[name]).await?;
    tokio::time::sleep(entry.pause).await;
    Ok(session.batch_execute("COMMIT").await?)
}

async fn in_mysql(url: &str, entry: &Entry) -> Result<(), BoxError> {
    let mut session = Conn::new(Opts::from_url(url)?).await?;
    let (name, fence) = (&entry.name, entry.fence);
    session.query_drop("BEGIN").await?;
    session.exec_drop("CALL tenure_guard(?, ?)", (name, fence)).await?;
    session.exec_drop("INSERT IGNORE INTO book VALUES (?, 0)", (name,)).await?;
    let read: Option<i64> = session.exec_first("SELECT value FROM book WHERE name = ?", (name,)).await?;
    tokio::time::sleep(entry.pause).await;
    session.exec_drop("UPDATE book SET value = ? WHERE name = ?", (read.unwrap_or_default() + 1, name)).await?;
    session.exec_drop("INSERT INTO line VALUES (?)", (name,)).await?;
    tokio::time::sleep(entry.pause).await;
    Ok(session.query_drop("COMMIT").await?)
}
