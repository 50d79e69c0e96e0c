//! Databases: what they offer as a lock, and what programs write by hand.

use std::fs::File;
use std::time::Duration;

use fs4::{FileExt, TryLockError};
use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Statement as MysqlStatement};
use rusqlite::Connection;
use serde_json::Value;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio_postgres::{AsyncMessage, NoTls, Statement};

use super::bare::gaps;
use super::locks::Lane;
use crate::job::{Job, Outcome, gate};
use crate::measure::now;

/// What programs do while the row or the file is locked.
const PERIOD: Duration = Duration::from_millis(5);

/// The database; through a pooler in transaction mode where there is a second port, which is the server's.
pub(super) fn postgres(job: &Job) -> String {
    let through = format!("postgres://postgres@127.0.0.1:{}/postgres", job.ports[0]);
    match job.ports.get(1) {
        None => through,
        Some(server) => format!("{through}?prepare=false&listen=127.0.0.1:{server}"),
    }
}

pub(super) fn mysql(job: &Job) -> String {
    format!("mysql://root@127.0.0.1:{}/compare", job.ports[0])
}

pub(super) async fn connect(job: &Job) -> Outcome<tokio_postgres::Client> {
    let (client, connection) = tokio_postgres::connect(&postgres(job), NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// What a row is taken with.
fn token() -> String {
    format!("{:x}", fastrand::u128(..))
}

/// A row of a token and a time, as ShedLock and Quartz keep it: no fence, no order, and waiters ask again.
pub(super) struct PostgresRow {
    client: tokio_postgres::Client,
    take: Statement,
    give: Statement,
    name: String,
    token: String,
}

impl Lane for PostgresRow {
    type Held = ();

    async fn open(job: &Job, names: &[String]) -> Outcome<Vec<Self>> {
        let table = if job.subject.ends_with("logged") { "bare_logged" } else { "bare" };
        let insert = format!("INSERT INTO {table} (name) VALUES ($1) ON CONFLICT DO NOTHING");
        let take = format!(
            "UPDATE {table} SET token = $2, until = clock_timestamp() + '30 s' \
             WHERE name = $1 AND (token IS NULL OR until < clock_timestamp())"
        );
        let give = format!("UPDATE {table} SET token = NULL WHERE name = $1 AND token = $2");
        let mut lanes = Vec::new();
        for name in names {
            let client = connect(job).await?;
            client.execute(&insert, &[name]).await?;
            let (take, give) = (client.prepare(&take).await?, client.prepare(&give).await?);
            lanes.push(Self { client, take, give, name: name.clone(), token: token() });
        }
        Ok(lanes)
    }

    async fn take(&mut self) -> Outcome<((), u64)> {
        while self.client.execute(&self.take, &[&self.name, &self.token]).await? == 0 {
            tokio::time::sleep(PERIOD).await;
        }
        Ok(((), 0))
    }

    async fn give(&mut self, (): ()) -> Outcome {
        given(self.client.execute(&self.give, &[&self.name, &self.token]).await?)
    }
}

fn given(rows: u64) -> Outcome {
    if rows == 1 { Ok(()) } else { Err("not given back".into()) }
}

/// `pg_advisory_lock`, on a connection for each waiter: no lease and no fence.
pub(super) struct PostgresSession {
    client: tokio_postgres::Client,
    take: Statement,
    give: Statement,
    key: i64,
}

impl Lane for PostgresSession {
    type Held = ();

    async fn open(job: &Job, names: &[String]) -> Outcome<Vec<Self>> {
        let mut lanes = Vec::new();
        for name in names {
            let client = connect(job).await?;
            let key: i64 = client.query_one("SELECT hashtextextended($1, 0)", &[name]).await?.get(0);
            let take = client.prepare("SELECT pg_advisory_lock($1)").await?;
            let give = client.prepare("SELECT pg_advisory_unlock($1)").await?;
            lanes.push(Self { client, take, give, key });
        }
        Ok(lanes)
    }

    async fn take(&mut self) -> Outcome<((), u64)> {
        self.client.query_one(&self.take, &[&self.key]).await?;
        Ok(((), 0))
    }

    async fn give(&mut self, (): ()) -> Outcome {
        self.client.query_one(&self.give, &[&self.key]).await?;
        Ok(())
    }
}

/// From a NOTIFY that is sent to its listener: the least that a hand-over can take.
pub(super) async fn notify(job: &Job) -> Outcome<Value> {
    let sender = connect(job).await?;
    let mut heard = listen(job).await?;
    let statement = sender.prepare("SELECT pg_notify('floor', '0123456789abcdef 1')").await?;
    gate()?;
    let mut times = Vec::new();
    let until = now() + job.millis * 1_000_000;
    while now() < until {
        let sent = now();
        let sending = sender.query_one(&statement, &[]);
        let (sending, hearing) = tokio::join!(sending, async {
            heard.recv().await;
            now()
        });
        sending?;
        times.push((hearing - sent) as f64 / 1e3);
    }
    Ok(gaps(times))
}

async fn listen(job: &Job) -> Outcome<UnboundedReceiver<()>> {
    let (client, mut connection) = tokio_postgres::connect(&postgres(job), NoTls).await?;
    let (sender, heard) = unbounded_channel();
    tokio::spawn(async move {
        while let Some(Ok(message)) = std::future::poll_fn(|context| connection.poll_message(context)).await {
            if matches!(message, AsyncMessage::Notification(_)) && sender.send(()).is_err() {
                return;
            }
        }
    });
    client.batch_execute("LISTEN floor").await?;
    // Without a client its connection ends.
    std::mem::forget(client);
    Ok(heard)
}

/// The same row in MariaDB.
pub(super) struct MysqlRow {
    conn: Conn,
    take: MysqlStatement,
    give: MysqlStatement,
    name: String,
    token: String,
}

impl Lane for MysqlRow {
    type Held = ();

    async fn open(job: &Job, names: &[String]) -> Outcome<Vec<Self>> {
        let take = "UPDATE bare SET token = ?, until = SYSDATE(6) + INTERVAL 30 SECOND \
                    WHERE name = ? AND (token IS NULL OR until < SYSDATE(6))";
        let mut lanes = Vec::new();
        for name in names {
            let mut conn = Conn::from_url(mysql(job)).await?;
            conn.exec_drop("INSERT IGNORE INTO bare (name, until) VALUES (?, SYSDATE(6))", (name,)).await?;
            let take = conn.prep(take).await?;
            let give = conn.prep("UPDATE bare SET token = NULL WHERE name = ? AND token = ?").await?;
            lanes.push(Self { conn, take, give, name: name.clone(), token: token() });
        }
        Ok(lanes)
    }

    async fn take(&mut self) -> Outcome<((), u64)> {
        loop {
            self.conn.exec_drop(&self.take, (&self.token, &self.name)).await?;
            if self.conn.affected_rows() == 1 {
                return Ok(((), 0));
            }
            tokio::time::sleep(PERIOD).await;
        }
    }

    async fn give(&mut self, (): ()) -> Outcome {
        self.conn.exec_drop(&self.give, (&self.name, &self.token)).await?;
        given(self.conn.affected_rows())
    }
}

/// `GET_LOCK`, on a connection for each waiter: no lease and no fence.
pub(super) struct MysqlSession {
    conn: Conn,
    take: MysqlStatement,
    give: MysqlStatement,
    name: String,
}

impl MysqlSession {
    async fn call(&mut self, take: bool) -> Outcome {
        let statement = if take { &self.take } else { &self.give };
        match self.conn.exec_first::<i64, _, _>(statement, (&self.name,)).await? {
            Some(1) => Ok(()),
            other => Err(format!("the answer is {other:?}, not 1").into()),
        }
    }
}

impl Lane for MysqlSession {
    type Held = ();

    async fn open(job: &Job, names: &[String]) -> Outcome<Vec<Self>> {
        let mut lanes = Vec::new();
        for name in names {
            let mut conn = Conn::from_url(mysql(job)).await?;
            let take = conn.prep("SELECT GET_LOCK(?, 60)").await?;
            let give = conn.prep("SELECT RELEASE_LOCK(?)").await?;
            lanes.push(Self { conn, take, give, name: name.clone() });
        }
        Ok(lanes)
    }

    async fn take(&mut self) -> Outcome<((), u64)> {
        Ok((self.call(true).await?, 0))
    }

    async fn give(&mut self, (): ()) -> Outcome {
        self.call(false).await
    }
}

/// The same row in a file of SQLite, written by the thread that asks.
pub(super) struct SqliteRow {
    db: Connection,
    name: String,
    token: String,
}

impl SqliteRow {
    fn write(&self, statement: &str) -> Outcome<u64> {
        Ok(self.db.prepare_cached(statement)?.execute([&self.name, &self.token])? as u64)
    }
}

impl Lane for SqliteRow {
    type Held = ();

    async fn open(job: &Job, names: &[String]) -> Outcome<Vec<Self>> {
        let lane = |name: &String| {
            let db = Connection::open(format!("{}/bare.db", job.path))?;
            db.busy_timeout(Duration::from_secs(5))?;
            db.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))?;
            db.execute_batch(
                "PRAGMA synchronous = NORMAL;
                 CREATE TABLE IF NOT EXISTS bare (name TEXT PRIMARY KEY, token TEXT, until INTEGER) WITHOUT ROWID",
            )?;
            db.execute("INSERT OR IGNORE INTO bare (name, until) VALUES (?1, 0)", [name])?;
            Ok(Self { db, name: name.clone(), token: token() })
        };
        names.iter().map(lane).collect()
    }

    async fn take(&mut self) -> Outcome<((), u64)> {
        let take = "UPDATE bare SET token = ?2, until = unixepoch() + 30
                    WHERE name = ?1 AND (token IS NULL OR until < unixepoch())";
        while self.write(take)? == 0 {
            tokio::time::sleep(PERIOD).await;
        }
        Ok(((), 0))
    }

    async fn give(&mut self, (): ()) -> Outcome {
        given(self.write("UPDATE bare SET token = NULL WHERE name = ?1 AND token = ?2")?)
    }
}

/// `flock` by `fs4`: tried every 5 ms, since to wait in it would block the thread. No lease, no fence; ends with the process.
pub(super) struct FileLock(File);

impl Lane for FileLock {
    type Held = ();

    async fn open(job: &Job, names: &[String]) -> Outcome<Vec<Self>> {
        let lane = |name: &String| {
            let path = format!("{}/{}.lock", job.path, name.replace('/', "-"));
            Ok(Self(File::options().create(true).truncate(false).write(true).open(path)?))
        };
        names.iter().map(lane).collect()
    }

    async fn take(&mut self) -> Outcome<((), u64)> {
        loop {
            match FileExt::try_lock(&self.0) {
                Ok(()) => return Ok(((), 0)),
                Err(TryLockError::WouldBlock) => tokio::time::sleep(PERIOD).await,
                Err(TryLockError::Error(error)) => return Err(error.into()),
            }
        }
    }

    async fn give(&mut self, (): ()) -> Outcome {
        Ok(FileExt::unlock(&self.0)?)
    }
}
