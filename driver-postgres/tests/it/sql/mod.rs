//! A server with the whole schema, and sessions that call its functions as a driver does.
#![allow(dead_code, reason = "each test program uses a part")]

use std::time::Duration;

use tenure_postgres::{Install, install_sql};
use tenure_testkit::{PostgresOptions, PostgresServer};
use tokio_postgres::error::SqlState;
use tokio_postgres::{AsyncMessage, Client, NoTls};

/// The longest lease, and so how long a server that forgot its leases grants nothing.
pub(crate) const LONGEST: Duration = Duration::from_secs(2);
/// What the user of an application is given, and nothing else.
pub(crate) const GRANTS: &str =
    "GRANT USAGE ON SCHEMA tenure TO app; GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA tenure TO app;";

/// What becomes of the tables of locks in a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tables {
    Unlogged,
    Logged,
}

/// A server with the schema in the database `postgres`, and the user `app` with the documented grants.
pub(crate) fn installed(tables: Tables) -> PostgresServer {
    installed_with(PostgresOptions::new(), tables)
}

pub(crate) fn installed_with(options: PostgresOptions, tables: Tables) -> PostgresServer {
    let server = PostgresServer::start(options).unwrap();
    install(&server, "postgres", tables);
    server.create_user("app", "secret").unwrap();
    server.sql("postgres", GRANTS).unwrap();
    server
}

/// Makes the schema in a database.
pub(crate) fn install(server: &PostgresServer, database: &str, tables: Tables) {
    let install = Install { logged: tables == Tables::Logged, longest_ttl: LONGEST };
    server.script(database, &install_sql(install)).unwrap();
}

/// A session of `app`.
pub(crate) async fn session(server: &PostgresServer) -> Client {
    session_at(&server.url_for("app", None, "postgres")).await
}

pub(crate) async fn session_at(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(async move { drop(connection.await) });
    client
}

/// The session of a client that listens, as its waiters need it.
pub(crate) struct Listener {
    pub(crate) number: i64,
    pub(crate) session: Client,
    heard: tokio::sync::mpsc::UnboundedReceiver<String>,
}

impl Listener {
    pub(crate) async fn new(server: &PostgresServer, number: i64) -> Self {
        let url = server.url_for("app", None, "postgres");
        let (session, mut connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
        let (sender, heard) = tokio::sync::mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Some(Ok(message)) = std::future::poll_fn(|context| connection.poll_message(context)).await {
                if let AsyncMessage::Notification(note) = message {
                    drop(sender.send(note.payload().to_owned()));
                }
            }
        });
        let begin = format!("LISTEN tenure_{number:x}; SELECT pg_advisory_lock({number})");
        session.batch_execute(&begin).await.unwrap();
        Self { number, session, heard }
    }

    /// The next notification, if one comes within a second.
    pub(crate) async fn heard(&mut self) -> Option<String> {
        tokio::time::timeout(Duration::from_secs(1), self.heard.recv()).await.ok().flatten()
    }
}

/// The answer to an acquire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Granted {
        fence: i64,
    },
    Busy {
        ahead: i32,
    },
    Abandoned,
    /// Leases were forgotten; ask again after this many microseconds.
    Forgotten(i64),
}

/// A request for a lock.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) name: Vec<u8>,
    pub(crate) token: String,
    pub(crate) ttl: Duration,
    pub(crate) label: Option<Vec<u8>>,
    pub(crate) floor: i64,
    /// The client whose waiter it is, and whether it takes the lock unasked.
    pub(crate) waiter: Option<(i64, bool)>,
}

impl Request {
    pub(crate) fn new(name: impl AsRef<[u8]>, token: &str) -> Self {
        let ttl = Duration::from_secs(60);
        Self { name: name.as_ref().to_vec(), token: token.to_owned(), ttl, label: None, floor: 0, waiter: None }
    }

    pub(crate) fn ttl(self, ttl: Duration) -> Self {
        Self { ttl, ..self }
    }

    pub(crate) fn label(self, label: &str) -> Self {
        Self { label: Some(label.as_bytes().to_vec()), ..self }
    }

    pub(crate) fn waiting(self, client: i64, accepts: bool) -> Self {
        Self { waiter: Some((client, accepts)), ..self }
    }

    pub(crate) async fn ask(&self, session: &Client) -> Result<Answer, tokio_postgres::Error> {
        let (presence, client, accepts) = match self.waiter {
            Some((client, accepts)) => (Some(micros(Duration::from_secs(20))), client, accepts),
            None => (None, 0, false),
        };
        let row = session
            .query_one(
                "SELECT * FROM tenure.acquire($1, NULL, $2, $3, 8, $4, $5, $6, $7, 10000, 100, $8)",
                &[&self.name, &self.token, &micros(self.ttl), &self.label, &presence, &accepts, &client, &self.floor],
            )
            .await?;
        Ok(match row.get::<_, i32>("code") {
            1 | 2 => Answer::Granted { fence: row.get("fence") },
            3 => Answer::Busy { ahead: row.get("n") },
            -1 => Answer::Abandoned,
            -3 => Answer::Forgotten(row.get("recheck")),
            code => panic!("unexpected code {code}"),
        })
    }

    /// The fence of a grant.
    pub(crate) async fn granted(&self, session: &Client) -> i64 {
        match self.ask(session).await.unwrap() {
            Answer::Granted { fence } => fence,
            other => panic!("not granted: {other:?}"),
        }
    }

    /// What is left of the lease after it was renewed for its ttl; `None` when it is lost.
    pub(crate) async fn renew(&self, session: &Client) -> Option<i64> {
        let statement = "SELECT * FROM tenure.renew(ARRAY[$1::bytea], ARRAY[$2], $3, true)";
        session.query_one(statement, &[&self.name, &self.token, &micros(self.ttl)]).await.unwrap().get(0)
    }

    /// Whether it was held.
    pub(crate) async fn release(&self, session: &Client) -> bool {
        let statement = "SELECT tenure.release($1, NULL, $2, 0)";
        session.query_one(statement, &[&self.name, &self.token]).await.unwrap().get::<_, i32>(0) == 0
    }

    pub(crate) async fn abandon(&self, session: &Client) {
        let statement = "SELECT tenure.abandon($1, NULL, $2, 60000000, 0)";
        session.execute(statement, &[&self.name, &self.token]).await.unwrap();
    }
}

/// The fence of the holder and the number of waiters.
pub(crate) async fn inspect(session: &Client, name: &[u8]) -> (Option<i64>, i64) {
    let row = session.query_one("SELECT * FROM tenure.inspect($1)", &[&name]).await.unwrap();
    (row.get("fence"), row.get("waiters"))
}

/// Checks a fence in the session's own transaction.
pub(crate) async fn guard(session: &Client, name: &[u8], fence: i64) -> Result<(), tokio_postgres::Error> {
    session.execute("SELECT tenure.guard($1::bytea, $2)", &[&name, &fence]).await.map(drop)
}

/// Cuts a session off; returns when it is.
pub(crate) async fn terminate(server: &PostgresServer, session: &Client) {
    let pid: i32 = session.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0);
    assert_eq!(server.sql("postgres", &format!("SELECT pg_terminate_backend({pid}, 5000)")).unwrap(), "t");
}

pub(crate) fn micros(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap()
}

/// The code of a refusal by the server.
pub(crate) fn code(error: &tokio_postgres::Error) -> &SqlState {
    error.code().unwrap_or_else(|| panic!("not refused by the server: {error}"))
}
