//! PostgreSQL: ours, session locks, and a row that is updated under a condition.

use std::time::Duration;

use serde_json::{Value, json};
use sqlx::Connection as _;
use sqlx::postgres::{PgAdvisoryLock, PgAdvisoryLockGuard, PgConnection};
use tenure_core::Client;
use tenure_core::driver::Backend;
use tenure_postgres::PostgresDriver;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio_postgres::{AsyncMessage, NoTls, Statement};

use super::super::gate::gate;
use super::super::ours::{OurLane, client_of};
use super::super::subject::{Lane, Subject};
use crate::failure::Outcome;
use crate::job::Job;
use crate::measure::{now, percentile};

/// What row libraries do while the lock is taken.
const PERIOD: Duration = Duration::from_millis(5);

/// The database; through a pooler in transaction mode where there is a second port, which is the server's.
pub(crate) fn url(job: &Job) -> String {
    let through = format!("postgres://postgres@127.0.0.1:{}/postgres", job.ports[0]);
    match job.ports.get(1) {
        None => through,
        Some(server) => format!("{through}?prepare=false&listen=127.0.0.1:{server}"),
    }
}

pub(crate) async fn postgres(job: &Job) -> Outcome<Backend> {
    Ok(PostgresDriver::connect(&url(job)).await?.into())
}

async fn connect(job: &Job) -> Outcome<tokio_postgres::Client> {
    let (client, connection) = tokio_postgres::connect(&url(job), NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

client_of!(
    /// The PostgreSQL driver.
    Postgres,
    postgres
);

/// The same, and every waiter asks for itself.
pub(crate) struct PostgresEachAsks(Client);

impl Subject for PostgresEachAsks {
    type Lane = OurLane;

    async fn open(job: &Job) -> Outcome<Self> {
        Ok(Self(Client::builder(postgres(job).await?).holders_per_grant(0).build()?))
    }

    async fn lane(&self, name: &str) -> Outcome<OurLane> {
        OurLane::new(&self.0, name)
    }
}

/// A row of a token and a time, as ShedLock and Quartz keep it: no fence, no order, and waiters ask again.
pub(crate) struct BareRow {
    job: Job,
}

impl Subject for BareRow {
    type Lane = BareRowLane;

    async fn open(job: &Job) -> Outcome<Self> {
        Ok(Self { job: job.clone() })
    }

    async fn lane(&self, name: &str) -> Outcome<BareRowLane> {
        let client = connect(&self.job).await?;
        let table = if self.job.subject.ends_with("logged") { "bare_logged" } else { "bare" };
        client.execute(&format!("INSERT INTO {table} (name) VALUES ($1) ON CONFLICT DO NOTHING"), &[&name]).await?;
        let take = format!(
            "UPDATE {table} SET token = $2, until = clock_timestamp() + '30 s' \
             WHERE name = $1 AND (token IS NULL OR until < clock_timestamp())"
        );
        let give = format!("UPDATE {table} SET token = NULL WHERE name = $1 AND token = $2");
        let (take, give) = (client.prepare(&take).await?, client.prepare(&give).await?);
        let token = format!("{:x}", fastrand::u128(..));
        Ok(BareRowLane { client, take, give, name: name.to_owned(), token })
    }
}

pub(crate) struct BareRowLane {
    client: tokio_postgres::Client,
    take: Statement,
    give: Statement,
    name: String,
    token: String,
}

impl Lane for BareRowLane {
    type Held = ();

    async fn take(&mut self) -> Outcome<((), u64)> {
        while self.client.execute(&self.take, &[&self.name, &self.token]).await? == 0 {
            tokio::time::sleep(PERIOD).await;
        }
        Ok(((), 0))
    }

    async fn give(&mut self, (): ()) -> Outcome {
        match self.client.execute(&self.give, &[&self.name, &self.token]).await? {
            1 => Ok(()),
            _ => Err("not given back".into()),
        }
    }
}

/// `pg_advisory_lock`, on a connection for each waiter: no lease and no fence.
pub(crate) struct SessionLock {
    job: Job,
}

impl Subject for SessionLock {
    type Lane = SessionLane;

    async fn open(job: &Job) -> Outcome<Self> {
        Ok(Self { job: job.clone() })
    }

    async fn lane(&self, name: &str) -> Outcome<SessionLane> {
        let client = connect(&self.job).await?;
        let key: i64 = client.query_one("SELECT hashtextextended($1, 0)", &[&name]).await?.get(0);
        let take = client.prepare("SELECT pg_advisory_lock($1)").await?;
        let give = client.prepare("SELECT pg_advisory_unlock($1)").await?;
        Ok(SessionLane { client, take, give, key })
    }
}

pub(crate) struct SessionLane {
    client: tokio_postgres::Client,
    take: Statement,
    give: Statement,
    key: i64,
}

impl Lane for SessionLane {
    type Held = ();

    async fn take(&mut self) -> Outcome<((), u64)> {
        self.client.query_one(&self.take, &[&self.key]).await?;
        Ok(((), 0))
    }

    async fn give(&mut self, (): ()) -> Outcome {
        self.client.query_one(&self.give, &[&self.key]).await?;
        Ok(())
    }
}

/// sqlx's guard around the same.
pub(crate) struct SqlxLock {
    url: String,
}

impl Subject for SqlxLock {
    type Lane = SqlxLane;

    async fn open(job: &Job) -> Outcome<Self> {
        Ok(Self { url: url(job) })
    }

    async fn lane(&self, name: &str) -> Outcome<SqlxLane> {
        let connection = PgConnection::connect(&self.url).await?;
        Ok(SqlxLane { connection: Some(connection), lock: PgAdvisoryLock::new(name) })
    }
}

pub(crate) struct SqlxLane {
    connection: Option<PgConnection>,
    lock: PgAdvisoryLock,
}

impl Lane for SqlxLane {
    type Held = PgAdvisoryLockGuard<PgConnection>;

    async fn take(&mut self) -> Outcome<(Self::Held, u64)> {
        let connection = self.connection.take().ok_or("the connection is in use")?;
        Ok((self.lock.acquire(connection).await?, 0))
    }

    async fn give(&mut self, held: Self::Held) -> Outcome {
        self.connection = Some(held.release_now().await?);
        Ok(())
    }
}

/// From a NOTIFY that is sent to its listener: the least that a hand-over can take.
pub(crate) async fn notify(job: &Job) -> Outcome<Value> {
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
    Ok(json!({ "p50_us": percentile(&mut times, 0.5), "p99_us": percentile(&mut times, 0.99) }))
}

async fn listen(job: &Job) -> Outcome<UnboundedReceiver<()>> {
    let (client, mut connection) = tokio_postgres::connect(&url(job), NoTls).await?;
    let (tell, heard) = unbounded_channel();
    tokio::spawn(async move {
        while let Some(Ok(message)) = std::future::poll_fn(|context| connection.poll_message(context)).await {
            if matches!(message, AsyncMessage::Notification(_)) && tell.send(()).is_err() {
                return;
            }
        }
    });
    client.batch_execute("LISTEN floor").await?;
    // Without a client its connection ends.
    std::mem::forget(client);
    Ok(heard)
}
