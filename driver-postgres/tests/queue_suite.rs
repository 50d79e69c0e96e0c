//! The cases of queues against a server of the test's own; locks are those of a store in memory.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use tenure_conformance::{
    BoxError, CaseContext, Declared, Fault, FaultKind, Harness, HarnessMaker, Healer, Isolation, Options,
    Progress, run_all,
};
use tenure_conformance::harness::{ClockStep, Data};
use tenure_core::driver::{Backend, DelayQueue as _, DistributedLock, QueueRouter};
use tenure_core::queue::QueueName;
use tenure_core::{Error, ErrorKind, FenceFloor, Result};
use tenure_memory::MemoryDriver;
use tenure_postgres::{PostgresQueue, QueueLink};
use tenure_testkit::{PostgresOptions, PostgresServer};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, NoTls, Row};

const MAX_DEAD_LETTERS: u64 = 200;

fn start(options: PostgresOptions) -> std::io::Result<PostgresServer> {
    let server = PostgresServer::start(options)?;
    server.script("postgres", "CREATE SCHEMA tenure;")?;
    server.script("postgres", include_str!("../sql/queue.sql"))?;
    Ok(server)
}

/// A connection for requests and one for notifications, opened anew when they end.
struct Link {
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

struct Maker(Server);

type Server = Arc<Mutex<PostgresServer>>;

fn link(url: String, floor: FenceFloor) -> Arc<Link> {
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

#[async_trait]
impl HarnessMaker for Maker {
    fn id(&self) -> &str {
        "postgres/queue"
    }

    fn declared(&self) -> Declared {
        let queue = PostgresQueue::new(link(String::new(), FenceFloor::NONE));
        Declared::new(DistributedLock::capabilities(&MemoryDriver::new()))
            .queue(queue.capabilities())
            .fence_floors()
            .faults([FaultKind::PauseServer, FaultKind::RestartKeepingData])
    }

    async fn make(&self, context: CaseContext) -> std::result::Result<Box<dyn Harness>, BoxError> {
        let server = match context.isolation {
            Isolation::Exclusive => Arc::new(Mutex::new(start(PostgresOptions::new().movable_clock())?)),
            _ => Arc::clone(&self.0),
        };
        Ok(Box::new(World { server, locks: MemoryDriver::new() }))
    }
}

struct World {
    server: Server,
    locks: MemoryDriver,
}

#[async_trait]
impl Harness for World {
    async fn backend(&mut self) -> std::result::Result<Backend, BoxError> {
        self.backend_beyond(FenceFloor::NONE).await
    }

    async fn backend_beyond(&mut self, floor: FenceFloor) -> std::result::Result<Backend, BoxError> {
        let url = self.server.lock().unwrap().url("postgres");
        let queue = PostgresQueue::new(link(url, floor));
        self.locks.raise_fences(floor);
        Ok(Backend::new(Arc::new(self.locks.another_client())).with_queue(Arc::new(queue)))
    }

    async fn inject(&mut self, fault: Fault) -> std::result::Result<Healer, BoxError> {
        let server = Arc::clone(&self.server);
        match fault {
            Fault::PauseServer => {
                server.lock().unwrap().pause()?;
                Ok(Healer::new(async move { Ok(server.lock().unwrap().resume()?) }))
            }
            Fault::KillServer(Data::Kept) => {
                server.lock().unwrap().kill()?;
                Ok(Healer::new(async move { Ok(server.lock().unwrap().restart()?) }))
            }
            Fault::JumpServerClock(step) => {
                let micros = match step {
                    ClockStep::Back(by) => -i64::try_from(by.as_micros())?,
                    ClockStep::Forward(by) => i64::try_from(by.as_micros())?,
                };
                server.lock().unwrap().set_clock_offset(micros)?;
                Ok(Healer::new(async move { Ok(server.lock().unwrap().set_clock_offset(0)?) }))
            }
            other => Err(format!("{other:?} is not declared").into()),
        }
    }
}

fn main() -> ExitCode {
    let named: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let server = match start(PostgresOptions::new()) {
        Ok(server) => Arc::new(Mutex::new(server)),
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::FAILURE;
        }
    };
    let maker: Arc<dyn HarnessMaker> = Arc::new(Maker(server));
    let only = if named.is_empty() { vec![String::from("queue")] } else { named };
    let progress = Progress::new(|case, report| eprintln!("  {:?} {} ({} ms)", report.outcome, case.id, report.ms));
    let report = run_all(&maker, &Options { only, progress: Some(progress), ..Options::default() });
    println!("{report}");
    if report.is_green() && report.passed > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
