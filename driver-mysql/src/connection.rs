//! Connections: a few, each owned by a task.
//!
//! The client library's futures *are* its protocol: one that is dropped between a request and its answer leaves a
//! connection in the middle of an exchange. So only the task uses the connection, and a caller waits for its answer on
//! a channel.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Row, Value};
use tenure_core::driver::reconnected;
use tenure_core::{Error, ErrorKind, Result};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout};

use crate::config::MysqlConfig;
use crate::dial::Dialler;
use crate::error::failed;

/// How long an answer may take. The server waits 3 s at most for the locks of others, so a longer silence means a lost connection,
/// such as one that a proxy has forgotten. It is then closed.
const ANSWER: Duration = Duration::from_secs(5);
/// What errors and spans call the driver.
pub(crate) const DRIVER: &str = "mysql";

/// A connection that was idle for so long is tried before a request goes over it: servers and proxies close idle ones, and a request
/// that goes over a closed one has an unknown outcome.
const IDLE: Duration = Duration::from_millis(500);
/// How long that may take.
const TRIAL: Duration = Duration::from_secs(2);
/// For how long a client stays at a server that takes no writes before it connects anew: the user may be read-only.
const STAY: Duration = Duration::from_secs(1);
/// How many requests wait in front of one connection before callers wait with theirs.
const LINE: usize = 256;

/// A statement with its parameters, and where its answer goes.
#[derive(Debug)]
struct Request {
    statement: &'static str,
    parameters: Vec<Value>,
    answer: oneshot::Sender<Result<Vec<Row>, Failed>>,
}

/// Why a request has no rows.
#[derive(Debug)]
enum Failed {
    /// There was no connection to send it over.
    Unsent(Error, Vec<Value>),
    Sent(Error),
}

/// One connection: the way to the task that owns it, and how that task fares.
#[derive(Debug, Default)]
struct Slot {
    line: Mutex<Option<mpsc::Sender<Request>>>,
    state: Arc<Mutex<State>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    New,
    Dialling,
    Open,
    /// Refused since then.
    Refused(Instant),
}

/// For how long requests of a slot that was refused a connection go through another one before a connection is tried again.
const FULL: Duration = Duration::from_secs(1);

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The connections of one client. Requests of one name go through one of them, in order.
#[derive(Debug)]
pub(crate) struct Connections {
    dialler: Arc<Dialler>,
    slots: Vec<Slot>,
    closed: AtomicBool,
}

impl Connections {
    pub(crate) fn new(dialler: Dialler) -> Self {
        let slots = (0..dialler.config.connections).map(|_| Slot::default()).collect();
        Self { slots, closed: AtomicBool::new(false), dialler: Arc::new(dialler) }
    }

    pub(crate) fn config(&self) -> &MysqlConfig {
        &self.dialler.config
    }

    fn ensure_open(&self) -> Result<()> {
        match self.closed.load(Ordering::Acquire) {
            true => Err(Error::new(ErrorKind::Closed, "the driver was closed")),
            false => Ok(()),
        }
    }

    /// Runs one statement on the connection of `name`, and returns the rows of all its results.
    ///
    /// Dropping the future takes back a request that was not sent yet; one that was sent is carried out.
    pub(crate) async fn ask(&self, name: &[u8], statement: &'static str, parameters: Vec<Value>) -> Result<Vec<Row>> {
        let digest = name.iter().fold(0xcbf2_9ce4_8422_2325_u64, |digest, byte| {
            (digest ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3) // FNV
        });
        let own = usize::try_from(digest % self.slots.len() as u64).unwrap_or(0);
        let full = matches!(*locked(&self.slots[own].state), State::Refused(since) if since.elapsed() < FULL);
        let mut slot = if full { self.other(&[own]).unwrap_or(own) } else { own };
        let (mut parameters, mut tried) = (parameters, Vec::new());
        // The server may admit fewer connections than there are slots.
        loop {
            let error = match self.ask_on(slot, statement, parameters).await {
                Ok(rows) => return Ok(rows),
                Err(Failed::Sent(error)) => return Err(error),
                Err(Failed::Unsent(error, unsent)) => {
                    parameters = unsent;
                    error
                }
            };
            tried.push(slot);
            slot = self.other(&tried).ok_or(error)?;
        }
    }

    /// A slot with a connection, or at least one that is being made.
    fn other(&self, tried: &[usize]) -> Option<usize> {
        let of = |wanted| {
            (0..self.slots.len()).find(|slot| !tried.contains(slot) && *locked(&self.slots[*slot].state) == wanted)
        };
        of(State::Open).or_else(|| of(State::Dialling))
    }

    async fn ask_on(&self, slot: usize, statement: &'static str, parameters: Vec<Value>) -> Result<Vec<Row>, Failed> {
        let (answer, answered) = oneshot::channel();
        let ended = |_| Failed::Sent(Error::new(ErrorKind::Unavailable, "the connection's task has ended"));
        let line = self.line(slot).map_err(Failed::Sent)?;
        line.send(Request { statement, parameters, answer }).await.map_err(ended)?;
        let text = match answered.await {
            Ok(answer) => return answer,
            Err(_) if self.closed.load(Ordering::Acquire) => "the driver was closed before the answer",
            Err(_) => "the runtime of the connection ended before the answer",
        };
        Err(Failed::Sent(Error::new(ErrorKind::Indeterminate, text)))
    }

    /// The way to a connection's task. A task ends with the runtime that it runs on; then another one begins here.
    fn line(&self, slot: usize) -> Result<mpsc::Sender<Request>> {
        let mut line = locked(&self.slots[slot].line);
        self.ensure_open()?;
        if let Some(line) = line.as_ref().filter(|line| !line.is_closed()) {
            return Ok(line.clone());
        }
        let (sender, requests) = mpsc::channel(LINE);
        tokio::spawn(serve(Arc::clone(&self.dialler), Arc::clone(&self.slots[slot].state), requests));
        Ok(line.insert(sender).clone())
    }

    /// Lets the tasks end with the requests that they have.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        for slot in &self.slots {
            locked(&slot.line).take();
        }
    }
}

/// Carries requests one after the other, over a connection that is opened when it is needed.
async fn serve(dialler: Arc<Dialler>, state: Arc<Mutex<State>>, mut requests: mpsc::Receiver<Request>) {
    let mut connection: Option<(Conn, Instant)> = None;
    let mut dialled: Option<Instant> = None;
    while let Some(request) = requests.recv().await {
        if request.answer.is_closed() {
            continue; // nobody waits for it any more, and it was not sent
        }
        let mut conn = match open(&dialler, &state, connection.take(), &mut dialled).await {
            Ok(conn) => conn,
            Err(error) => {
                *locked(&state) = State::Refused(Instant::now());
                // Those who waited meanwhile learn the same, in place of a time-out each.
                let mut reported: VecDeque<_> = VecDeque::from([request]);
                while let Ok(next) = requests.try_recv() {
                    reported.push_back(next);
                }
                for Request { parameters, answer, .. } in reported {
                    let _ = answer.send(Err(Failed::Unsent(error.again(), parameters)));
                }
                continue;
            }
        };
        let Request { statement, parameters, answer } = request;
        let result = match timeout(ANSWER, all_rows(&mut conn, statement, parameters)).await {
            Ok(Ok(rows)) => Ok(rows),
            Ok(Err(error)) => Err(error),
            Err(_) => {
                let text = format!("no answer within {ANSWER:?}; the connection was given up");
                let error = Error::new(ErrorKind::Indeterminate, text).at(dialler.config.place());
                let _ = answer.send(Err(Failed::Sent(error)));
                continue;
            }
        };
        let may_leave = dialled.is_some_and(|dialled| dialled.elapsed() >= STAY);
        if result.as_ref().err().is_none_or(|error| goes_on(error) && !(may_leave && takes_no_writes(error))) {
            connection = Some((conn, Instant::now()));
        }
        let _ = answer.send(result.map_err(|error| Failed::Sent(failed(error))));
    }
    if let Some((conn, _)) = connection {
        let _ = timeout(Duration::from_secs(1), conn.disconnect()).await;
    }
}

/// After an error that the server reported, a connection is as good as before, unless the server announced its end.
fn goes_on(error: &mysql_async::Error) -> bool {
    matches!(error, mysql_async::Error::Server(server) if !matches!(server.code, 1053 | 1153 | 1156..=1161 | 1927 | 4031))
}

/// Whether the server said that it is read-only: another one may take writes by now.
fn takes_no_writes(error: &mysql_async::Error) -> bool {
    matches!(error, mysql_async::Error::Server(server) if matches!(server.code, 1290 | 1792 | 1836) || server.state == "TN003")
}

async fn all_rows(conn: &mut Conn, statement: &str, parameters: Vec<Value>) -> mysql_async::Result<Vec<Row>> {
    let mut results = conn.exec_iter(statement, parameters).await?;
    let mut rows = Vec::new();
    while !results.is_empty() {
        rows.append(&mut results.collect().await?);
    }
    Ok(rows)
}

/// The connection, if it is there and good, or another one.
async fn open(
    dialler: &Dialler,
    state: &Mutex<State>,
    connection: Option<(Conn, Instant)>,
    dialled: &mut Option<Instant>,
) -> Result<Conn> {
    if let Some((mut conn, used)) = connection
        && (used.elapsed() < IDLE || matches!(timeout(TRIAL, conn.ping()).await, Ok(Ok(()))))
    {
        return Ok(conn);
    }
    *locked(state) = State::Dialling;
    let conn = dialler.dial().await?;
    *locked(state) = State::Open;
    if dialled.replace(Instant::now()).is_some() {
        reconnected(DRIVER);
    }
    Ok(conn)
}
