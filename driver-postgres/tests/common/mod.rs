//! A server with the queues' tables, and a plain link to it.
#![allow(dead_code, reason = "each test program uses a part")]

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use async_trait::async_trait;
use tenure_core::driver::{Backend, DelayQueue, QueueRouter};
use tenure_core::queue::QueueName;
use tenure_core::{Client as TenureClient, Error, ErrorKind, FenceFloor, Result};
use tenure_memory::MemoryDriver;
use tenure_postgres::{PostgresQueue, QueueLink};
use tenure_testkit::{PostgresOptions, PostgresServer};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, NoTls, Row};

pub(crate) const MAX_DEAD_LETTERS: u64 = 200;

pub(crate) fn start(options: PostgresOptions) -> std::io::Result<PostgresServer> {
    let server = PostgresServer::start(options)?;
    server.script("postgres", "CREATE SCHEMA tenure;")?;
    server.script("postgres", include_str!("../../sql/queue.sql"))?;
    Ok(server)
}

/// A connection for requests and one for notifications, opened anew when they end.
pub(crate) struct Link {
    url: String,
    client: i64,
    requests: tokio::sync::Mutex<Option<Arc<Client>>>,
    ear: tokio::sync::Mutex<Option<Client>>,
    hears: Arc<AtomicBool>,
    router: QueueRouter,
    floor: FenceFloor,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Link")
    }
}

fn unreached(error: tokio_postgres::Error) -> Error {
    Error::new(ErrorKind::Unavailable, "cannot connect").with_source(error)
}

fn failed(error: tokio_postgres::Error) -> Error {
    let kind = match error.code() {
        Some(_) => ErrorKind::Unavailable,
        None if error.is_closed() => ErrorKind::Unavailable,
        None => ErrorKind::Indeterminate,
    };
    let text = error.as_db_error().map_or_else(|| error.to_string(), |error| format!("{error}: {:?}", error.where_()));
    Error::new(kind, text).with_source(error)
}

#[async_trait]
impl QueueLink for Link {
    async fn ask(
        &self,
        _queue: Option<&QueueName>,
        statement: &str,
        parameters: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<Vec<Row>> {
        let client = {
            let mut kept = self.requests.lock().await;
            match kept.as_ref().filter(|client| !client.is_closed()) {
                Some(client) => Arc::clone(client),
                None => {
                    let (client, connection) = tokio_postgres::connect(&self.url, NoTls).await.map_err(unreached)?;
                    tokio::spawn(async move { drop(connection.await) });
                    Arc::clone(kept.insert(Arc::new(client)))
                }
            }
        };
        client.query_typed(statement, parameters).await.map_err(failed)
    }

    async fn listen(&self) -> Result<()> {
        let mut ear = self.ear.lock().await;
        if self.hears.load(Ordering::Acquire) {
            return Ok(());
        }
        let (client, mut connection) = tokio_postgres::connect(&self.url, NoTls).await.map_err(unreached)?;
        let (router, hears) = (self.router.clone(), Arc::clone(&self.hears));
        tokio::spawn(async move {
            while let Some(Ok(message)) = std::future::poll_fn(|context| connection.poll_message(context)).await {
                let AsyncMessage::Notification(note) = message else { continue };
                let Some(hex) = note.payload().strip_prefix("q ") else { continue };
                let bytes: Vec<u8> =
                    (0..hex.len() / 2).map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap()).collect();
                router.wake(&QueueName::new(bytes).unwrap());
            }
            hears.store(false, Ordering::Release);
            router.wake_all();
        });
        client.batch_execute(&format!("LISTEN tenure_{:x}", self.client)).await.map_err(failed)?;
        *ear = Some(client);
        self.hears.store(true, Ordering::Release);
        Ok(())
    }

    fn client(&self) -> i64 {
        self.client
    }

    fn router(&self) -> &QueueRouter {
        &self.router
    }

    fn max_dead_letters(&self) -> u64 {
        MAX_DEAD_LETTERS
    }

    fn fence_floor(&self) -> FenceFloor {
        self.floor
    }
}

pub(crate) fn link(url: String, floor: FenceFloor) -> Arc<Link> {
    static LAST: AtomicUsize = AtomicUsize::new(1);
    let client = i64::try_from(LAST.fetch_add(1, Ordering::Relaxed)).unwrap();
    Arc::new(Link {
        url,
        client,
        requests: Default::default(),
        ear: Default::default(),
        hears: Arc::default(),
        router: QueueRouter::default(),
        floor,
    })
}

/// The queues of another client of the server.
pub(crate) async fn queue(server: &PostgresServer) -> Arc<dyn DelayQueue> {
    Arc::new(PostgresQueue::new(link(server.url("postgres"), FenceFloor::NONE)))
}

/// Another client of the server, with locks in memory.
pub(crate) async fn client(server: &PostgresServer) -> TenureClient {
    TenureClient::new(Backend::new(Arc::new(MemoryDriver::new())).with_queue(queue(server).await))
}
