//! The one connection of a driver, and the task that keeps it alive.

use std::convert::Infallible;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, PushInfo, PushKind, Value};
use tenure_core::Result;
use tenure_redis_support::{ExecError, WakeLink};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::config::RedisConfig;
use crate::executor::{failure, not_sent, unknown};

/// How long a request waits for a broken link to come back before it fails as not sent.
const LINK_PATIENCE: Duration = Duration::from_millis(500);
/// A request given up this long after it left casts doubt on the link.
const DOUBT_AFTER: Duration = Duration::from_millis(200);
/// The first pause between attempts to connect; each further one doubles up to the last.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LAST_PAUSE: Duration = Duration::from_secs(1);

/// The connection as requests see it.
#[derive(Clone)]
enum State {
    Up(MultiplexedConnection),
    Down(ExecError),
    Closed,
}

/// A link that replaces its connection whenever that ends or goes silent, until it is closed.
pub(crate) struct Link {
    shared: Arc<Shared>,
    supervisor: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    client: redis::Client,
    config: RedisConfig,
    channel: String,
    wake: WakeLink,
    state: watch::Sender<State>,
    /// A request went unanswered: try the connection now.
    doubt: Notify,
    started: Instant,
    /// When the last reply came, in ms after `started`.
    last_reply: AtomicU64,
}

/// A connection that is subscribed and ready.
struct Live {
    connection: MultiplexedConnection,
    /// The library saw the connection end.
    ended: Arc<Notify>,
}

impl Link {
    /// Connects, subscribes to `channel`, and starts the task that keeps it so. The first failure is final.
    pub(crate) async fn connect(config: RedisConfig, channel: String, wake: WakeLink) -> Result<Self, ConnectError> {
        let info = config.connection_info().map_err(ConnectError::Config)?;
        let client = redis::Client::open(info).map_err(|error| ConnectError::Exec(failure(error, not_sent)))?;
        let down = ExecError::NotSent { message: "not connected yet".into(), source: None };
        let shared = Arc::new(Shared {
            client,
            config,
            channel,
            wake,
            state: watch::Sender::new(State::Down(down)),
            doubt: Notify::new(),
            started: Instant::now(),
            last_reply: AtomicU64::new(0),
        });
        let live = shared.open().await.map_err(ConnectError::Exec)?;
        shared.state.send_replace(State::Up(live.connection.clone()));
        let supervisor = tokio::spawn(Arc::clone(&shared).supervise(live));
        Ok(Self { shared, supervisor: Mutex::new(Some(supervisor)) })
    }

    /// Sends one command, once, and waits for its reply, at most the response timeout.
    pub(crate) async fn request(&self, command: &Cmd) -> Result<Value, ExecError> {
        let shared = &*self.shared;
        let mut connection = shared.connection().await?;
        let mut doubt = Doubt { shared, sent: Instant::now(), answered: false };
        let limit = shared.config.response_timeout;
        match timeout(limit, connection.send_packed_command(command)).await {
            Ok(Ok(value)) => {
                doubt.answered();
                Ok(value)
            }
            Ok(Err(error)) => {
                let error = failure(error, unknown);
                if let ExecError::Server { .. } = error {
                    doubt.answered();
                } else {
                    shared.doubt.notify_one();
                }
                Err(error)
            }
            Err(_) => Err(ExecError::SentUnknown { message: format!("no reply within {limit:?}"), source: None }),
        }
    }

    /// Ends the connection and the task behind it.
    pub(crate) async fn close(&self) {
        self.shared.state.send_replace(State::Closed);
        let supervisor = self.supervisor.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(supervisor) = supervisor {
            let _ = supervisor.await; // it ends at once; a panic in it would have nothing to add here
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.shared.state.send_replace(State::Closed);
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("server", &self.shared.config.place()).finish_non_exhaustive()
    }
}

/// Why the first connection failed.
pub(crate) enum ConnectError {
    Config(tenure_core::Error),
    Exec(ExecError),
}

/// A request that has left. Given up without an answer, it has the connection tried.
struct Doubt<'a> {
    shared: &'a Shared,
    sent: Instant,
    answered: bool,
}

impl Doubt<'_> {
    fn answered(&mut self) {
        self.answered = true;
        self.shared.heard();
    }
}

impl Drop for Doubt<'_> {
    fn drop(&mut self) {
        if !self.answered && self.sent.elapsed() >= DOUBT_AFTER {
            self.shared.doubt.notify_one();
        }
    }
}

impl Shared {
    /// The live connection; waits a little for it if the link is down.
    async fn connection(&self) -> Result<MultiplexedConnection, ExecError> {
        if let State::Up(connection) = &*self.state.borrow() {
            return Ok(connection.clone());
        }
        let mut states = self.state.subscribe();
        let settled = timeout(LINK_PATIENCE, states.wait_for(|state| !matches!(state, State::Down(_)))).await;
        let state = match settled {
            Ok(Ok(state)) => state.clone(),
            _ => self.state.borrow().clone(),
        };
        match state {
            State::Up(connection) => Ok(connection),
            State::Closed => Err(ExecError::Closed),
            State::Down(error) => {
                let message = format!("the link to {} is down: {error}", self.config.place());
                Err(ExecError::NotSent { message, source: Some(Arc::new(error)) })
            }
        }
    }

    /// Keeps a connection until the link is closed.
    async fn supervise(self: Arc<Self>, mut live: Live) {
        let _last = LastWord(Arc::clone(&self));
        loop {
            let reason = tokio::select! {
                reason = self.guard(&live) => reason,
                () = self.closed() => return,
            };
            if !self.set(State::Down(reason)) {
                return;
            }
            live = tokio::select! {
                live = self.reopen() => live,
                () = self.closed() => return,
            };
            if !self.set(State::Up(live.connection.clone())) {
                return;
            }
            self.wake.link_up();
        }
    }

    /// Watches a connection; returns why it is of no use any more.
    async fn guard(&self, live: &Live) -> ExecError {
        let patience = (self.config.response_timeout / 2).max(Duration::from_millis(10));
        loop {
            let idle = self.idle();
            tokio::select! {
                () = live.ended.notified() => {
                    return ExecError::NotSent { message: "the server closed the connection".into(), source: None };
                }
                () = self.doubt.notified() => {}
                () = sleep(self.config.ping_interval.saturating_sub(idle)) => {
                    if self.idle() < self.config.ping_interval {
                        continue; // other requests were answered in the meantime
                    }
                }
            }
            let mut connection = live.connection.clone();
            match timeout(patience, connection.send_packed_command(&redis::cmd("PING"))).await {
                Ok(Ok(_)) => self.heard(),
                Ok(Err(error)) => match failure(error, not_sent) {
                    ExecError::Server { .. } => self.heard(), // a refusal is an answer
                    error => return error,
                },
                Err(_) => {
                    let message = format!("the connection went silent: no answer to a ping within {patience:?}");
                    return ExecError::NotSent { message, source: None };
                }
            }
        }
    }

    /// Connects again, however long it takes.
    async fn reopen(&self) -> Live {
        let mut pause = FIRST_PAUSE;
        loop {
            match self.open().await {
                Ok(live) => return live,
                Err(error) => self.set(State::Down(error)),
            };
            sleep(jittered(pause)).await;
            pause = (pause * 2).min(LAST_PAUSE);
        }
    }

    /// One attempt to connect, log in and subscribe.
    async fn open(&self) -> Result<Live, ExecError> {
        let ended = Arc::new(Notify::new());
        let (wake, signal) = (self.wake.clone(), Arc::clone(&ended));
        let on_push = move |push: PushInfo| {
            match (push.kind, push.data.get(1)) {
                (PushKind::Message, Some(Value::BulkString(payload))) => wake.deliver(payload),
                (PushKind::Disconnection, _) => signal.notify_one(),
                _ => {}
            }
            Ok::<(), Infallible>(())
        };
        let limit = self.config.connect_timeout;
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(limit))
            .set_response_timeout(None) // every request has a limit of its own
            .set_push_sender(on_push);
        let opening = async {
            let mut connection = self.client.get_multiplexed_async_connection_with_config(&config).await?;
            connection.subscribe(&self.channel).await?;
            Ok(connection)
        };
        let late = || {
            let message = format!("no connection to {} within {limit:?}", self.config.place());
            ExecError::NotSent { message, source: None }
        };
        let connection = timeout(limit, opening).await.map_err(|_| late())?.map_err(|error: redis::RedisError| {
            if error.is_timeout() { late() } else { failure(error, |text, error| self.not_connected(&text, error)) }
        })?;
        self.heard();
        Ok(Live { connection, ended })
    }

    fn not_connected(&self, text: &str, error: redis::RedisError) -> ExecError {
        not_sent(format!("cannot connect to {}: {text}", self.config.place()), error)
    }

    /// Changes the state, unless the link was closed; tells whether it did.
    fn set(&self, state: State) -> bool {
        self.state.send_if_modified(|current| {
            let open = !matches!(current, State::Closed);
            if open {
                *current = state;
            }
            open
        })
    }

    async fn closed(&self) {
        let mut states = self.state.subscribe();
        let _ = states.wait_for(|state| matches!(state, State::Closed)).await; // the sender lives in `self`
    }

    fn heard(&self) {
        let now = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_reply.fetch_max(now, Ordering::Relaxed);
    }

    fn idle(&self) -> Duration {
        self.started.elapsed().saturating_sub(Duration::from_millis(self.last_reply.load(Ordering::Relaxed)))
    }
}

/// Says so when the supervising task ends because its runtime does.
struct LastWord(Arc<Shared>);

impl Drop for LastWord {
    fn drop(&mut self) {
        let message = "the runtime that the driver was connected on has ended".into();
        self.0.set(State::Down(ExecError::NotSent { message, source: None }));
    }
}

/// Between half of `pause` and all of it, so that the clients of a restarted server do not come all at once.
fn jittered(pause: Duration) -> Duration {
    let mut byte = [0];
    let _ = getrandom::fill(&mut byte); // without randomness the pause is merely the same for all
    pause / 2 + pause / 2 * u32::from(byte[0]) / 255
}
