//! The interface that a client library implements, to open a connection and to send a command on it; and a link to one
//! server that outlives its connections, and the runtimes that they live on.
//!
//! The modules `sentinel` (the address of the primary) and `cluster` (the node of a key) are layers above it, once for
//! all libraries.

#[cfg(test)]
pub(crate) mod fake_server;
mod keep;
#[cfg(test)]
mod tests;

use std::fmt::{self, Debug};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tenure_core::OwnerToken;
use tenure_core::driver::{QueueRouter, WakeRouter};
use tenure_core::queue::QueueName;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};

use crate::call;
use crate::config::{Address, Endpoint, Patience, RedisConfig};
use crate::error::ExecError;
use crate::script::{Reply, Request};

/// An event on a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard<'a> {
    /// The payload of a message.
    Message(&'a [u8]),
    /// The connection is of no use any more: later messages may be from another server.
    Cut,
    /// Messages may have been lost.
    Gap,
}

/// A channel to listen on, and the receiver of its messages.
#[derive(Clone)]
pub struct Listen {
    /// The name of the channel.
    pub channel: String,
    /// Called with every event. It does not block.
    pub sink: Arc<dyn Fn(Heard<'_>) + Send + Sync>,
}

impl Debug for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listen").field("channel", &self.channel).finish_non_exhaustive()
    }
}

/// Opens connections through a client library.
pub trait Dialer: Debug + Send + Sync + 'static {
    /// An open connection. Dropping it closes it.
    type Socket: Socket;

    /// A short name of the driver: `"redis"`.
    const DRIVER: &'static str;

    /// The beginning of the scheme of the driver's URLs: nothing, or `fred+`.
    const SCHEME: &'static str;

    /// Checks the configuration against what the dialer was given by the caller, and adds the facts that this
    /// determines. A dialer that opens all connections by the configuration returns it unchanged.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`](tenure_core::ErrorKind::InvalidArgument) when the two do not fit.
    fn agree(&self, config: RedisConfig) -> tenure_core::Result<RedisConfig>;

    /// Opens one connection, logs in, and subscribes to the channel of `listen` if one is given. It has the
    /// subscription when this returns. With the older protocol such a connection carries no commands but `PING`.
    ///
    /// # Errors
    ///
    /// [`ExecError::Server`] for a refusal; otherwise [`ExecError::NotSent`]. The caller bounds the time.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connection.
    fn dial(
        &self,
        endpoint: &Endpoint,
        listen: Option<Listen>,
    ) -> impl Future<Output = Result<Self::Socket, ExecError>> + Send;
}

/// One open connection. Requests may be sent concurrently.
pub trait Socket: Send + Sync + 'static {
    /// Sends one command, at most once, and waits for its reply, however long it takes.
    ///
    /// # Errors
    ///
    /// [`ExecError::Server`] for a refusal, [`ExecError::SentUnknown`] when the connection ended before the reply.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the outcome unknown, and the connection usable.
    fn send(&self, request: &Request<'_>) -> impl Future<Output = Result<Reply, ExecError>> + Send;

    /// Returns when the library has seen the connection end. One caller at a time.
    fn ended(&self) -> impl Future<Output = ()> + Send;
}

/// A request given up this long after it left casts doubt on the link.
const DOUBT_AFTER: Duration = Duration::from_millis(200);

/// Where a link leads.
pub(crate) enum Route<D: Dialer> {
    /// Always to the same server.
    Fixed(Endpoint),
    /// To the server that the sentinels name.
    Named(Arc<dyn NamesPrimary<D::Socket>>),
}

/// Who knows which server is the primary.
#[async_trait]
pub(crate) trait NamesPrimary<S>: Send + Sync {
    /// Its description, in words.
    fn place(&self) -> String;

    /// Returns when there may be another primary. Dropping the future forgets no news.
    async fn moved(&self);

    /// The primary, as far as is known.
    async fn primary(&self) -> Result<Address, ExecError>;

    /// The primary, and how to log in there.
    async fn endpoint(&self) -> Result<Endpoint, ExecError>;

    /// Makes sure that a server is a primary.
    async fn confirm(&self, socket: &S) -> Result<(), ExecError>;
}

/// The times of a link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    response_timeout: Duration,
    ping_interval: Duration,
    link_patience: Patience,
}

impl Pace {
    pub(crate) fn of(config: &RedisConfig) -> Self {
        let RedisConfig { response_timeout, ping_interval, link_patience, .. } = *config;
        Self { response_timeout, ping_interval, link_patience }
    }
}

/// The connection as requests see it.
enum State<S> {
    Up(Arc<Live<S>>),
    Down { error: ExecError, since: Instant },
    Closed,
}

/// A connection that is subscribed and ready; with the older protocol it is two.
struct Live<S> {
    address: Address,
    commands: S,
    listener: Option<S>,
}

/// A link that replaces its connection whenever that ends or goes silent, until it is closed.
pub(crate) struct Link<D: Dialer> {
    shared: Arc<Shared<D>>,
    supervisor: Mutex<Option<JoinHandle<()>>>,
}

struct Shared<D: Dialer> {
    dialer: Arc<D>,
    route: Route<D>,
    listen: Listen,
    name: Option<String>,
    pace: Pace,
    state: watch::Sender<State<D::Socket>>,
    /// A request went unanswered: try the connection now.
    doubt: Notify,
    /// A request was refused because the server takes no writes: another one may by now.
    demoted: Notify,
    /// The link went down or came up.
    news: Option<Arc<Notify>>,
    started: Instant,
    /// When the last request left that was answered, in ms after `started`.
    last_reply: AtomicU64,
}

impl<D: Dialer> Link<D> {
    /// A link that is not connected yet. `news` is notified when it goes down or comes up.
    pub(crate) fn new(
        dialer: Arc<D>,
        route: Route<D>,
        listen: Listen,
        config: &RedisConfig,
        news: Option<Arc<Notify>>,
    ) -> Self {
        let down = ExecError::NotSent { message: "not connected yet".into(), source: None };
        let shared = Arc::new(Shared {
            dialer,
            route,
            listen,
            name: config.name.clone(),
            pace: Pace::of(config),
            state: watch::Sender::new(State::down(down)),
            doubt: Notify::new(),
            demoted: Notify::new(),
            news,
            started: Instant::now(),
            last_reply: AtomicU64::new(0),
        });
        Self { shared, supervisor: Mutex::new(None) }
    }

    /// Connects, and starts the task that keeps it so. A failure of this first attempt is final.
    pub(crate) async fn connect(self) -> Result<Self, ExecError> {
        let live = self.shared.open().await?;
        self.shared.state.send_replace(State::Up(Arc::clone(&live)));
        self.supervise(Some(live));
        Ok(self)
    }

    /// Connects, and starts the task that keeps it so, whether this first attempt succeeds or not; returns the result of the
    /// attempt.
    pub(crate) async fn join(self) -> (Self, Result<(), ExecError>) {
        let (state, live, outcome) = match self.shared.open().await {
            Ok(live) => (State::Up(Arc::clone(&live)), Some(live), Ok(())),
            Err(error) => (State::down(error.clone()), None, Err(error)),
        };
        self.shared.state.send_replace(state);
        self.supervise(live);
        (self, outcome)
    }

    /// Starts the task that connects and keeps it so.
    pub(crate) fn start(self) -> Self {
        self.supervise(None);
        self
    }

    fn supervise(&self, live: Option<Arc<Live<D::Socket>>>) {
        let task = tokio::spawn(Arc::clone(&self.shared).supervise(live));
        *self.supervisor.lock().unwrap_or_else(PoisonError::into_inner) = Some(task);
    }

    /// Starts the supervising task here if the runtime of the last one has ended.
    fn revive(&self) {
        let mut supervisor = self.supervisor.lock().unwrap_or_else(PoisonError::into_inner);
        if supervisor.as_ref().is_some_and(JoinHandle::is_finished) && self.shared.begin_anew() {
            *supervisor = Some(tokio::spawn(Arc::clone(&self.shared).supervise(None)));
        }
    }

    /// Where it leads, in words.
    pub(crate) fn place(&self) -> String {
        self.shared.place()
    }

    /// Whether there is an open connection.
    pub(crate) fn is_up(&self) -> bool {
        matches!(&*self.shared.state.borrow(), State::Up(_))
    }

    /// Waits until a connection is open, at most `limit`.
    pub(crate) async fn up(&self, limit: Duration) -> Result<(), ExecError> {
        if self.shared.up().is_none() {
            self.revive();
        }
        self.shared.connection(limit).await.map(drop)
    }

    /// Sends one command, once, and waits for its reply, at most the response timeout.
    pub(crate) async fn request(&self, request: &Request<'_>) -> Result<Reply, ExecError> {
        let shared = &*self.shared;
        let live = match shared.up() {
            Some(live) => live,
            None => {
                self.revive();
                shared.connection(shared.patience()).await?
            }
        };
        let sent = Instant::now();
        let mut doubt = Doubt { shared, sent, answered: false };
        let limit = shared.pace.response_timeout;
        match timeout_at(sent + limit, live.commands.send(request)).await {
            Ok(Ok(reply)) => {
                doubt.answered();
                Ok(reply)
            }
            Ok(Err(error)) => {
                match &error {
                    error if error.is_read_only() => shared.demoted.notify_one(),
                    ExecError::Server { .. } => doubt.answered(),
                    _ => shared.doubt.notify_one(),
                }
                Err(error)
            }
            Err(_) => Err(ExecError::SentUnknown { message: format!("no answer within {limit:?}"), source: None }),
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

impl<D: Dialer> Drop for Link<D> {
    fn drop(&mut self) {
        self.shared.state.send_replace(State::Closed);
    }
}

impl<D: Dialer> Debug for Link<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("to", &self.shared.place()).finish_non_exhaustive()
    }
}

/// A request that has left. Given up without an answer, it has the connection tried.
struct Doubt<'a, D: Dialer> {
    shared: &'a Shared<D>,
    sent: Instant,
    answered: bool,
}

impl<D: Dialer> Doubt<'_, D> {
    fn answered(&mut self) {
        self.answered = true;
        self.shared.heard(self.sent);
    }
}

impl<D: Dialer> Drop for Doubt<'_, D> {
    fn drop(&mut self) {
        if !self.answered && self.sent.elapsed() >= DOUBT_AFTER {
            self.shared.doubt.notify_one();
        }
    }
}

impl<D: Dialer> Shared<D> {
    fn place(&self) -> String {
        match &self.route {
            Route::Fixed(endpoint) => endpoint.address.to_string(),
            Route::Named(sentinels) => sentinels.place(),
        }
    }

    /// How long a request that leaves now waits for the link.
    fn patience(&self) -> Duration {
        match (self.pace.link_patience, &*self.state.borrow()) {
            (Patience::SinceBroken(limit), State::Down { since, .. }) => limit.saturating_sub(since.elapsed()),
            (Patience::SinceBroken(limit) | Patience::EachRequest(limit), _) => limit,
        }
    }

    /// The live connection, if there is one now.
    fn up(&self) -> Option<Arc<Live<D::Socket>>> {
        if let State::Up(live) = &*self.state.borrow() { Some(Arc::clone(live)) } else { None }
    }

    /// The live connection; waits a little for it if the link is down.
    async fn connection(&self, limit: Duration) -> Result<Arc<Live<D::Socket>>, ExecError> {
        let mut states = self.state.subscribe();
        // Settled or not, the state says the rest.
        let _ = timeout(limit, states.wait_for(|state| !matches!(state, State::Down { .. }))).await;
        match &*self.state.borrow() {
            State::Up(live) => Ok(Arc::clone(live)),
            State::Closed => Err(ExecError::Closed),
            State::Down { error, .. } => Err(error.so_not_sent(format!("the link to {} is down", self.place()))),
        }
    }

    /// Changes the state, unless the link was closed; returns whether it did.
    fn set(&self, state: State<D::Socket>) -> bool {
        let open = self.state.send_if_modified(|current| {
            let open = !matches!(current, State::Closed);
            if open {
                if let (State::Up(_), State::Down { .. }) = (&*current, &state) {
                    (self.listen.sink)(Heard::Cut);
                }
                // A link that was broken before has been so since then.
                let before = if let State::Down { since, .. } = current { Some(*since) } else { None };
                *current = match (state, before) {
                    (State::Down { error, .. }, Some(since)) => State::Down { error, since },
                    (state, _) => state,
                };
            }
            open
        });
        if let Some(news) = &self.news {
            news.notify_one();
        }
        open
    }

    /// Counts as broken only since now, unless it was closed; returns whether it did not.
    fn begin_anew(&self) -> bool {
        self.state.send_if_modified(|state| {
            let open = !matches!(state, State::Closed);
            if open {
                *state = State::down(ExecError::NotSent { message: "not connected yet".into(), source: None });
            }
            open
        })
    }

    async fn closed(&self) {
        let mut states = self.state.subscribe();
        let _ = states.wait_for(|state| matches!(state, State::Closed)).await; // the sender lives in `self`
    }

    /// A request was answered that had left at `sent`: the connection worked at least then.
    fn heard(&self, sent: Instant) {
        let at = u64::try_from(sent.saturating_duration_since(self.started).as_millis()).unwrap_or(u64::MAX);
        self.last_reply.fetch_max(at, Ordering::Relaxed);
    }

    fn idle(&self) -> Duration {
        self.started.elapsed().saturating_sub(Duration::from_millis(self.last_reply.load(Ordering::Relaxed)))
    }
}

impl<S> State<S> {
    /// Broken since now.
    fn down(error: ExecError) -> Self {
        Self::Down { error, since: Instant::now() }
    }
}

impl<S: Socket> Live<S> {
    /// The library saw one of the connections end.
    async fn ended(&self) {
        match &self.listener {
            None => self.commands.ended().await,
            Some(listener) => tokio::select! {
                () = self.commands.ended() => {}
                () = listener.ended() => {}
            },
        }
    }
}

// Wake-ups, from a client library's push messages to the waiters of this process.

/// The receiver of the messages on a client's channel, and of the state of its links. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct WakeLink {
    router: WakeRouter,
    queues: QueueRouter,
    /// How often a connection broke or was made anew.
    renewed: Arc<AtomicU64>,
}

impl WakeLink {
    /// The client's channel, whose messages this receives.
    pub(crate) fn listen(&self, channel: String) -> Listen {
        let wake = self.clone();
        let sink = move |heard: Heard<'_>| match heard {
            Heard::Message(payload) => wake.deliver(payload),
            Heard::Cut => wake.link_cut(),
            Heard::Gap => wake.link_up(),
        };
        Listen { channel, sink: Arc::new(sink) }
    }

    /// A message on the client's channel: the token of the waiter, alone or, after `;`, with the lease that it
    /// received; or `!` and the name of a delay queue (no token has that sign). Anything else is ignored. If a later
    /// version adds other text after the token, the waiter asks.
    pub(crate) fn deliver(&self, payload: &[u8]) {
        if let Some(name) = payload.strip_prefix(b"!") {
            if let Ok(queue) = QueueName::new(name) {
                self.queues.wake(&queue); // as below
            }
            return;
        }
        let Ok(text) = std::str::from_utf8(payload) else { return };
        let (token, news) = text.split_once(';').unwrap_or((text, ""));
        let Ok(token) = OwnerToken::parse(token) else { return };
        match call::handed(news) {
            Some(handed) => self.router.hand(&token, handed), // one that is gone has left its token to be abandoned
            None => self.router.wake(&token),                 // a waiter that is gone needs no wake-up
        };
    }

    /// The link broke: later messages to waiters may follow the clock of another server, until the waiters have asked
    /// it.
    pub(crate) fn link_cut(&self) {
        self.renewed.fetch_add(1, Ordering::AcqRel);
        self.router.cut();
    }

    /// The link and the subscription work again after a gap, in which messages may have been lost: all waiters ask.
    pub(crate) fn link_up(&self) {
        self.renewed.fetch_add(1, Ordering::AcqRel);
        self.router.wake_all();
        self.queues.wake_all();
    }

    /// How often a link broke or came up: each time the next to answer may be another server, or one that was set up anew. A
    /// request that asks after a break waits for the new connection, and so looks at the server before anything else does.
    pub(crate) fn renewed(&self) -> u64 {
        self.renewed.load(Ordering::Acquire)
    }

    pub(crate) fn queues(&self) -> &QueueRouter {
        &self.queues
    }

    pub(crate) fn router(&self) -> &WakeRouter {
        &self.router
    }
}
