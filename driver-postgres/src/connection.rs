//! Connections: a few that carry requests, and one that listens.

use std::collections::HashMap;
use std::future::poll_fn;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tenure_core::driver::{ErrorExt as _, Handed, QueueRouter, WakeRouter, reconnected};
use tenure_core::queue::QueueName;
use tenure_core::{Error, ErrorKind, FencingToken, OwnerToken, Result};
use tokio::runtime::Handle;
use tokio::sync::OwnedMutexGuard;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Row, SimpleQueryMessage, Statement};

use crate::config::{Encryption, PostgresConfig};
use crate::error::{failed, misconfigured, takes_no_writes, unreached};
use crate::line::{Line, Turn};
use crate::span::of_micros;

/// What errors and spans call the driver.
pub(crate) const DRIVER: &str = "postgres";

/// A parameter of a statement, and its type.
pub(crate) type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

/// What a connection yields on its own account, until it ends.
type Messages = Box<dyn FnMut(&mut Context<'_>) -> Poll<Option<Result<AsyncMessage, tokio_postgres::Error>>> + Send>;

/// The connections of one client. Requests of one name go through one of them, in order, while those of other names do not hold them
/// up there.
#[derive(Debug)]
pub(crate) struct Connections {
    config: Arc<PostgresConfig>,
    /// One for each of the configured connections, and one for what these hold up.
    slots: Vec<Slot>,
    pub(crate) ear: Ear,
    closed: Arc<AtomicBool>,
}

/// A connection, made when it is needed; and another one, when it has ended.
///
/// The task that makes one has the lock, and is separate: the connection is made also if no caller waits for it any more. Else many
/// waiting callers, each with little time left, would give it up one after the other, and none would ever be made.
#[derive(Default)]
struct Slot(Arc<tokio::sync::Mutex<Place>>);

/// The contents of a slot.
#[derive(Default)]
struct Place {
    live: Option<Arc<Live>>,
    /// When the last attempt to make one failed.
    failed: Option<Instant>,
}

impl Place {
    fn open(&self) -> Option<&Arc<Live>> {
        self.live.as_ref().filter(|live| !live.client.is_closed())
    }
}

impl std::fmt::Debug for Slot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Slot")
    }
}

struct Live {
    client: Client,
    /// By their texts.
    prepared: Mutex<HashMap<String, Statement>>,
    carrier: Carrier,
    /// Of the same client.
    hearing: Arc<Hearing>,
}

/// The task that owns a socket. Aborting it closes the socket and fails all requests that wait for an answer.
struct Carrier {
    task: AbortHandle,
    since: Instant,
    /// Taken for each request that a pooler may divide among servers.
    turn: Arc<tokio::sync::Mutex<()>>,
    /// Whether an answer is overdue, and another question was sent after it.
    doubted: AtomicBool,
    line: Line,
}

/// How long a question that follows an overdue one may be without an answer. The server waits no longer than 3 s for another
/// transaction.
const SILENCE: Duration = Duration::from_secs(4);

/// For how long requests of a slot without a connection go through another one before a connection is tried again.
const FULL: Duration = Duration::from_secs(1);

/// For how long a client stays at a server that takes no writes before it connects anew: the user may be read-only.
const STAY: Duration = Duration::from_secs(1);

impl Carrier {
    fn new(task: AbortHandle) -> Self {
        let (since, turn) = (Instant::now(), Arc::default());
        Self { task, since, turn, doubted: AtomicBool::new(false), line: Line::default() }
    }

    /// Asks whether the server takes writes. Closes the connection if no answer comes, since a proxy may have forgotten it, and if the
    /// server has become a standby.
    async fn try_out(&self, client: &Client) {
        while !self.doubted.swap(true, Ordering::AcqRel) {
            let number = self.line.enter(NO_NAME);
            let answer = timeout(SILENCE, client.simple_query("SHOW transaction_read_only")).await;
            let writable = |message: &SimpleQueryMessage| matches!(message, SimpleQueryMessage::Row(row) if row.get(0) == Some("off"));
            if !matches!(answer, Ok(Ok(answer)) if answer.iter().any(writable)) {
                self.task.abort();
            }
            self.line.answered(number);
            self.doubted.store(false, Ordering::Release);
            if !self.line.has_given_up() {
                return;
            }
        }
    }

    /// Closes the connection to a server that takes no writes; returns whether it did.
    fn leave(&self) -> bool {
        let leaves = self.since.elapsed() >= STAY;
        if leaves {
            self.task.abort();
        }
        leaves
    }
}

/// The subject of requests that are about no name.
const NO_NAME: u64 = 0;

/// A request on its way. If it is dropped before its answer, the connection may have fallen silent, and is tried.
struct Unanswered<'a> {
    live: &'a Arc<Live>,
    number: u64,
    answered: bool,
    /// Kept until the server has answered.
    turn: Option<Turn>,
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        let line = &self.live.carrier.line;
        if self.answered {
            return line.answered(self.number);
        }
        let Ok(runtime) = Handle::try_current() else {
            return line.give_up(self.number, None); // no task can find out when the server has answered
        };
        line.give_up(self.number, self.turn.take());
        let live = Arc::clone(self.live);
        runtime.spawn(async move { live.carrier.try_out(&live.client).await });
    }
}

impl Connections {
    pub(crate) fn new(config: PostgresConfig) -> Self {
        let slots = (0..=config.connections).map(|_| Slot::default()).collect();
        Self { slots, ear: Ear::default(), closed: Arc::default(), config: Arc::new(config) }
    }

    pub(crate) fn config(&self) -> &PostgresConfig {
        &self.config
    }

    pub(crate) fn ensure_open(&self) -> Result<()> {
        ensure_open(&self.closed)
    }

    /// Runs one statement, as a transaction of its own, on the connection of `name`.
    pub(crate) async fn ask(&self, name: &[u8], statement: &str, parameters: &[Parameter<'_>]) -> Result<Vec<Row>> {
        let digest = name.iter().fold(0xcbf2_9ce4_8422_2325_u64, |digest, byte| {
            (digest ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3) // FNV
        });
        let live = self.connection_of(digest).await?;
        // A request that waits in the connection's own line when it ends is reported like one that was sent.
        live.ask(digest, self.config.prepare, statement, parameters).await
    }

    /// The connection of a name; the next one that is not held up, if this one is.
    async fn connection_of(&self, subject: u64) -> Result<Arc<Live>> {
        let home = usize::try_from(subject % self.config.connections as u64).unwrap_or(0);
        let live = self.live(home).await?;
        if !live.carrier.line.holds_up(subject, Instant::now()) {
            return Ok(live);
        }
        let others = (home + 1..self.config.connections).chain(0..home).chain([self.config.connections]);
        for other in others {
            if let Ok(other) = self.live(other).await
                && !other.carrier.line.holds_up(subject, Instant::now())
            {
                return Ok(other);
            }
        }
        Ok(live)
    }

    /// The connection of a slot. The server may admit fewer connections than there are slots: then it is another slot's.
    async fn live(&self, slot: usize) -> Result<Arc<Live>> {
        self.ensure_open()?;
        let place = Arc::clone(&self.slots[slot].0).lock_owned().await;
        if let Some(live) = place.open() {
            return Ok(Arc::clone(live));
        }
        if place.failed.is_none_or(|failed| failed.elapsed() >= FULL) {
            return match self.make(place).await {
                Err(error) => self.open_one(slot).await.ok_or(error),
                live => live,
            };
        }
        drop(place);
        match self.open_one(slot).await {
            Some(live) => Ok(live),
            None => self.make(Arc::clone(&self.slots[slot].0).lock_owned().await).await,
        }
    }

    /// A connection of another slot, if one is open, or is about to be.
    async fn open_one(&self, but: usize) -> Option<Arc<Live>> {
        for (_, slot) in self.slots.iter().enumerate().filter(|(number, _)| *number != but) {
            if let Some(live) = slot.0.lock().await.open() {
                return Some(Arc::clone(live));
            }
        }
        None
    }

    async fn make(&self, mut place: OwnedMutexGuard<Place>) -> Result<Arc<Live>> {
        if let Some(live) = place.open() {
            return Ok(Arc::clone(live)); // made in the meantime
        }
        let (config, closed, hearing) =
            (Arc::clone(&self.config), Arc::clone(&self.closed), Arc::clone(&self.ear.shared));
        let making = tokio::spawn(async move {
            let (client, mut messages) = match dial(&config, &config.server).await {
                Ok(dialled) => dialled,
                Err(error) => {
                    place.failed = Some(Instant::now());
                    return Err(error);
                }
            };
            let task = tokio::spawn(async move { while let Some(Ok(_)) = poll_fn(&mut messages).await {} });
            ensure_open(&closed)?;
            let carrier = Carrier::new(task.abort_handle());
            let live = Arc::new(Live { client, prepared: Mutex::default(), carrier, hearing });
            place.failed = None;
            if place.live.replace(Arc::clone(&live)).is_some() {
                reconnected(DRIVER);
            }
            Ok(live)
        });
        making.await.unwrap_or_else(|_| Err(ended()))
    }

    /// A connection for more than one statement: to make the schema, or to look at the server.
    pub(crate) async fn first(&self) -> Result<impl Deref<Target = Client> + use<>> {
        struct Lent(Arc<Live>);
        impl Deref for Lent {
            type Target = Client;
            fn deref(&self) -> &Client {
                &self.0.client
            }
        }
        Ok(Lent(self.live(0).await?))
    }

    /// Returns once notifications arrive. Wakes all waiters if some may have been missed.
    pub(crate) async fn listen(&self) -> Result<()> {
        let up = || self.ear.shared.up.load(Ordering::Acquire);
        if up() {
            self.ear.shared.try_out_at_times();
            return Ok(());
        }
        let session = Arc::clone(&self.ear.session).lock_owned().await;
        if up() {
            return Ok(());
        }
        let other = self.connection_of(NO_NAME).await?;
        // As a slot's connection: in a task of its own.
        let (config, closed) = (Arc::clone(&self.config), Arc::clone(&self.closed));
        let slots: Vec<_> = self.slots.iter().map(|slot| Arc::clone(&slot.0)).collect();
        let beginning = tokio::spawn(begin(config, closed, Arc::clone(&self.ear.shared), slots, other, session));
        beginning.await.unwrap_or_else(|_| Err(ended()))
    }

    pub(crate) async fn close(&self) {
        self.closed.store(true, Ordering::Release);
        // Who is making one sees that, and closes it.
        for slot in &self.slots {
            drop(timeout(PATIENCE, slot.0.lock()).await.map(|mut place| place.live.take()));
        }
        drop(timeout(PATIENCE, self.ear.session.lock()).await);
        self.ear.shared.session().take();
        self.ear.shared.wake_all();
    }
}

/// How long closing waits for the lock on a connection.
const PATIENCE: Duration = Duration::from_millis(100);

fn ensure_open(closed: &AtomicBool) -> Result<()> {
    match closed.load(Ordering::Acquire) {
        true => Err(Error::new(ErrorKind::Closed, "the driver was closed")),
        false => Ok(()),
    }
}

/// The task that made the connection ended with its runtime.
fn ended() -> Error {
    Error::new(ErrorKind::Unavailable, "the runtime ended while a connection was made")
}

async fn dial(config: &PostgresConfig, server: &tokio_postgres::Config) -> Result<(Client, Messages)> {
    let limit = config.connect_timeout;
    match timeout(limit, open(server, &config.encryption)).await {
        Ok(opened) => opened.map_err(|error| error.at(&config.place)),
        Err(_) => {
            let text = format!("no connection within {limit:?}");
            Err(Error::new(ErrorKind::Unavailable, text).at(&config.place))
        }
    }
}

/// Connects the listening session. Where the server admits no more connections, one that carries requests makes room, unless it is
/// the last.
async fn dial_listener(
    config: &PostgresConfig,
    server: &tokio_postgres::Config,
    slots: &[Arc<tokio::sync::Mutex<Place>>],
) -> Result<(Client, Messages)> {
    let error = match dial(config, server).await {
        Err(error) if config.listener.is_none() => error,
        dialled => return dialled,
    };
    let mut open = Vec::new();
    for slot in slots {
        let place = slot.lock().await;
        if place.open().is_some() {
            open.push(place);
        }
    }
    // In-flight requests keep a connection open.
    let Some(place) =
        open.iter_mut().skip(1).find(|place| place.live.as_ref().is_some_and(|live| Arc::strong_count(live) == 1))
    else {
        return Err(error);
    };
    if let Some(live) = place.live.take() {
        live.carrier.task.abort();
    }
    place.failed = Some(Instant::now());
    drop(open);
    tokio::time::sleep(ROOM).await;
    dial(config, server).await
}

/// How long a server takes at most, as a rule, to notice that a connection was closed.
const ROOM: Duration = Duration::from_millis(50);

/// Begins a listening session.
async fn begin(
    config: Arc<PostgresConfig>,
    closed: Arc<AtomicBool>,
    shared: Arc<Hearing>,
    slots: Vec<Arc<tokio::sync::Mutex<Place>>>,
    other: Arc<Live>,
    _beginning: OwnedMutexGuard<()>,
) -> Result<()> {
    let mut server = config.server.clone();
    if let Some((host, port)) = &config.listener {
        server = at(&server, host, *port);
    }
    let (client, mut messages) = dial_listener(&config, &server, &slots).await?;
    let bits = getrandom::u64().map_err(|error| Error::new(ErrorKind::Unavailable, error.to_string()))?;
    let id = (bits >> 1).cast_signed();
    shared.id.store(id, Ordering::Release);
    let hearing = Up { shared: Arc::clone(&shared), id };
    let task = tokio::spawn(async move {
        while let Some(Ok(message)) = poll_fn(&mut messages).await {
            if let AsyncMessage::Notification(note) = message {
                hearing.shared.hear(note.payload());
            }
        }
    });
    let named = config.listener.is_some();
    let begun = timeout(config.connect_timeout, hear_of_oneself(&client, &other.client, id, &shared, named));
    if let Err(error) =
        begun.await.unwrap_or_else(|_| Err(Error::new(ErrorKind::Unavailable, "the server does not answer")))
    {
        task.abort(); // a connection that waits for an answer does not end with its client
        return Err(error.at(&config.place));
    }
    ensure_open(&closed)?;
    let session = Session { client, carrier: Carrier::new(task.abort_handle()), tried: Mutex::new(Instant::now()) };
    if shared.session().replace(Arc::new(session)).is_some() {
        reconnected(DRIVER);
    }
    shared.up.store(true, Ordering::SeqCst);
    // It may have ended in this very moment; the task that hears of that clears the number first.
    if shared.id.load(Ordering::SeqCst) != id {
        shared.up.store(false, Ordering::SeqCst);
        return Err(Error::new(ErrorKind::Unavailable, "the listening session ended as it began"));
    }
    shared.wake_all();
    Ok(())
}

/// Begins to listen, and has another connection notify this one. Behind a pooler that gives each transaction another session,
/// notifications reach no listener. `named` says that the configuration names the server to listen at.
async fn hear_of_oneself(listens: &Client, notifies: &Client, id: i64, shared: &Hearing, named: bool) -> Result<()> {
    // The session, and the server that it is of.
    let session = |answer: Vec<SimpleQueryMessage>| {
        answer.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) if row.len() == 2 => Some((row.get(0)?.to_owned(), row.get(1)?.to_owned())),
            _ => None,
        })
    };
    let which = "SELECT pg_backend_pid(), pg_postmaster_start_time()";
    let ask =
        async |client: &Client, question: String| client.simple_query(&question).await.map(session).map_err(failed);
    let own = ask(listens, format!("LISTEN tenure_{id:x}; {which}")).await?;
    let others = ask(notifies, format!("NOTIFY tenure_{id:x}, 'p {id}'; {which}")).await?;
    // Another client that can take this lock knows that this one no longer listens. The server sends its notifications before it answers.
    ask(listens, format!("LISTEN tenure_{id:x}; SELECT pg_advisory_lock({id})")).await?;
    if own != others && shared.proved.load(Ordering::Acquire) == id {
        return Ok(());
    }
    drop(ask(listens, format!("UNLISTEN tenure_{id:x}; SELECT pg_advisory_unlock({id})")).await);
    let server = |session: Option<(String, String)>| session.map(|(_, server)| server);
    if !named && server(own) != server(others) {
        let text = "the session that listens for releases is on another server than the requests: one has taken over from the other";
        return Err(Error::new(ErrorKind::Unavailable, text));
    }
    Err(misconfigured(
        "notifications do not reach the session that listens for releases: a pooler in transaction mode is in between, or listen= names \
         another server. Set listen=host:port of the server itself",
    ))
}

/// The same server's configuration at another place.
fn at(server: &tokio_postgres::Config, host: &str, port: u16) -> tokio_postgres::Config {
    let mut there = tokio_postgres::Config::new();
    there.host(host).port(port).channel_binding(server.get_channel_binding());
    if let Some(name) = server.get_application_name() {
        there.application_name(name);
    }
    if let Some(options) = server.get_options() {
        there.options(options);
    }
    if let Some(user) = server.get_user() {
        there.user(user);
    }
    if let Some(password) = server.get_password() {
        there.password(password);
    }
    if let Some(database) = server.get_dbname() {
        there.dbname(database);
    }
    crate::config::keep_alive(&mut there);
    there
}

impl Live {
    async fn ask(
        self: &Arc<Self>,
        subject: u64,
        prepare: bool,
        statement: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<Row>> {
        // PgBouncer frees a server for other clients at its answer to a request, even if the first messages of the next request have
        // reached that server already (its issue 759): the rest then runs on another one, with the statement that was last parsed there.
        // Without prepared statements there may be such a pooler, and each request is sent after the answer to the one before it.
        let turn = if prepare { None } else { Some(Arc::clone(&self.carrier.turn).lock_owned().await) };
        let mut unanswered = Unanswered { live: self, number: self.carrier.line.enter(subject), answered: false, turn };
        let answer = self.answer(prepare, statement, parameters).await;
        unanswered.answered = true;
        if answer.as_ref().is_err_and(takes_no_writes) && self.carrier.leave() {
            self.hearing.try_out();
        }
        answer
    }

    async fn answer(&self, prepare: bool, statement: &str, parameters: &[Parameter<'_>]) -> Result<Vec<Row>> {
        if !prepare {
            return self.client.query_typed(statement, parameters).await.map_err(failed);
        }
        let prepared = self.prepared.lock().unwrap_or_else(PoisonError::into_inner).get(statement).cloned();
        let prepared = match prepared {
            Some(prepared) => prepared,
            None => {
                let types: Vec<Type> = parameters.iter().map(|(_, of)| of.clone()).collect();
                let made = self.client.prepare_typed(statement, &types).await.map_err(not_asked)?;
                let mut all = self.prepared.lock().unwrap_or_else(PoisonError::into_inner);
                all.insert(statement.to_owned(), made.clone());
                made
            }
        };
        let values: Vec<&(dyn ToSql + Sync)> = parameters.iter().map(|(value, _)| *value).collect();
        self.client.query(&prepared, &values).await.map_err(failed)
    }
}

/// A statement that could not be prepared was not carried out.
fn not_asked(error: tokio_postgres::Error) -> Error {
    let error = failed(error);
    match error.kind() {
        ErrorKind::Indeterminate => error.with_kind(ErrorKind::Unavailable),
        _ => error,
    }
}

#[cfg(not(feature = "tls"))]
async fn open(server: &tokio_postgres::Config, encryption: &Encryption) -> Result<(Client, Messages)> {
    match encryption {
        Encryption::Off => plain(server).await,
        _ => Err(misconfigured("sslmode and sslrootcert need the feature \"tls\" of tenure-postgres")),
    }
}

#[cfg(feature = "tls")]
async fn open(server: &tokio_postgres::Config, encryption: &Encryption) -> Result<(Client, Messages)> {
    let authorities = match encryption {
        Encryption::Off => return plain(server).await,
        Encryption::System => None,
        Encryption::Authorities(authorities) => Some(authorities.as_slice()),
    };
    let mut server = server.clone();
    server.ssl_mode(tokio_postgres::config::SslMode::Require);
    let (client, mut connection) = server.connect(crate::tls::trusting(authorities)?).await.map_err(unreached)?;
    Ok((client, Box::new(move |cx| connection.poll_message(cx))))
}

async fn plain(server: &tokio_postgres::Config) -> Result<(Client, Messages)> {
    let (client, mut connection) = server.connect(tokio_postgres::NoTls).await.map_err(unreached)?;
    Ok((client, Box::new(move |cx| connection.poll_message(cx))))
}

/// The listening session, and whom it wakes.
#[derive(Default)]
pub(crate) struct Ear {
    /// Of the task that begins a session.
    session: Arc<tokio::sync::Mutex<()>>,
    shared: Arc<Hearing>,
}

#[derive(Debug, Default)]
struct Hearing {
    locks: WakeRouter,
    queues: QueueRouter,
    up: AtomicBool,
    /// Of the session: a new one has another number, so that it does not wait for the end of the one before.
    id: AtomicI64,
    /// The last number whose session has heard what it notified itself of.
    proved: AtomicI64,
    session: Mutex<Option<Arc<Session>>>,
}

/// The session that listens.
struct Session {
    client: Client,
    carrier: Carrier,
    /// When it began, or was last tried.
    tried: Mutex<Instant>,
}

impl Session {
    fn tried(&self) -> MutexGuard<'_, Instant> {
        self.tried.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Session")
    }
}

/// Marks the session as listening until its task ends, or the runtime with the task in it. Then all waiters ask again, and the first
/// one begins another session.
struct Up {
    shared: Arc<Hearing>,
    id: i64,
}

impl Drop for Up {
    fn drop(&mut self) {
        // A later session may be up already.
        if self.shared.id.compare_exchange(self.id, 0, Ordering::SeqCst, Ordering::Relaxed).is_ok() {
            self.shared.up.store(false, Ordering::SeqCst);
            self.shared.wake_all();
        }
    }
}

impl std::fmt::Debug for Ear {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.shared.fmt(f)
    }
}

impl Ear {
    pub(crate) fn locks(&self) -> &WakeRouter {
        &self.shared.locks
    }

    pub(crate) fn queues(&self) -> &QueueRouter {
        &self.shared.queues
    }

    /// By which number notifications find this client; 0 while it does not listen.
    pub(crate) fn id(&self) -> i64 {
        self.shared.id.load(Ordering::Acquire)
    }
}

impl Hearing {
    fn session(&self) -> MutexGuard<'_, Option<Arc<Session>>> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks in the background whether the session still answers, and its server takes writes.
    fn try_out(&self) {
        if let Some(session) = self.session().clone() {
            *session.tried() = Instant::now();
            tokio::spawn(async move { session.carrier.try_out(&session.client).await });
        }
    }

    /// The same with the requests of waiters, at most every 4 s.
    fn try_out_at_times(&self) {
        if self.session().as_ref().is_some_and(|session| session.tried().elapsed() >= SILENCE) {
            self.try_out();
        }
    }

    fn wake_all(&self) {
        self.locks.wake_all();
        self.queues.wake_all();
    }

    /// `w TOKEN`, `h TOKEN FENCE TTL BEGAN FENCES`, `q QUEUE` in hexadecimal, or `p NUMBER` of the session itself. What makes no sense is
    /// not for us.
    fn hear(&self, payload: &str) {
        let mut words = payload.split(' ');
        let kind = words.next();
        let Some(subject) = words.next() else { return };
        let mut number = || words.next()?.parse::<u64>().ok();
        match kind {
            Some("w") => {
                if let Ok(token) = OwnerToken::parse(subject) {
                    self.locks.wake(&token);
                }
            }
            Some("h") => {
                let numbers = (number(), number(), number(), number());
                let (Ok(token), (Some(fence), Some(ttl), Some(began), Some(fences))) =
                    (OwnerToken::parse(subject), numbers)
                else {
                    return;
                };
                let Some(fence) = FencingToken::new(fence) else { return };
                let span = |micros: u64| of_micros(micros.cast_signed());
                let handed = Handed::new(fence, span(ttl), span(began)).with_fences(u32::try_from(fences).unwrap_or(1));
                self.locks.hand(&token, handed);
            }
            Some("q") => {
                let digits = subject
                    .as_bytes()
                    .chunks(2)
                    .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok());
                let name = digits.collect::<Option<Vec<u8>>>().and_then(|name| QueueName::new(name).ok());
                if let Some(name) = name {
                    self.queues.wake(&name);
                }
            }
            Some("p") => {
                if let Ok(id) = subject.parse() {
                    self.proved.store(id, Ordering::Release);
                }
            }
            _ => {}
        }
    }
}
