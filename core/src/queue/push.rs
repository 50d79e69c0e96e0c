//! Storing messages.

use crate::call::bounded;
use std::collections::HashMap;
use std::fmt;
use std::future::{Future, IntoFuture, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::{Duration, SystemTime};

use futures_util::future::join_all;
use tokio::runtime::{Handle, Id};
use tokio::sync::oneshot;

use crate::call::caught_in;
use crate::driver::{Due, NewMessage, Pushed, QueueCapabilities};
use crate::queue::Message;
use crate::queue::fetcher::{DRIVER, Fetcher, ended};
use crate::queue::handle::Queue;
use crate::queue::message::Encoded;
use crate::telemetry;
use crate::value::clock::LeaseInstant;
use crate::value::error::{Error, ErrorKind, Result};

/// A future that lasts as long as what it was made from.
type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A message on its way into a queue; made by [`Queue::push`]. Awaiting it stores the message. The options are those of a
/// [`Message`].
#[must_use = "a push does nothing until it is awaited"]
pub struct Push<'a, T> {
    queue: &'a Queue<T>,
    message: Encoded,
}

impl<'a, T: 'static> Push<'a, T> {
    pub(super) fn new(queue: &'a Queue<T>, message: Message<'_, T>) -> Self {
        Self { queue, message: message.encoded(&*queue.codec) }
    }

    /// How long until the message is due: [`Message::delay`].
    pub fn delay(self, delay: Duration) -> Self {
        Self { message: self.message.delay(delay), ..self }
    }

    /// When the message is due, by the wall clock of this machine: [`Message::at`].
    pub fn at(self, time: SystemTime) -> Self {
        Self { message: self.message.at(time), ..self }
    }

    /// For how long after it is due the message may be delivered: [`Message::ttl`].
    pub fn ttl(self, ttl: Duration) -> Self {
        Self { message: self.message.ttl(ttl), ..self }
    }

    /// A name for the message, which is stored once: [`Message::id`].
    pub fn id(self, id: impl AsRef<[u8]>) -> Self {
        Self { message: self.message.id(id), ..self }
    }

    /// Takes the place of a message of the same id that waits: [`Message::replace`].
    pub fn replace(self) -> Self {
        Self { message: self.message.replace(), ..self }
    }

    /// For how long the id stays known after the message was acknowledged: [`Message::dedup_window`].
    pub fn dedup_window(self, window: Duration) -> Self {
        Self { message: self.message.dedup_window(window), ..self }
    }

    /// At most one message of this key is in flight at a time: [`Message::concurrency_key`].
    pub fn concurrency_key(self, key: impl AsRef<[u8]>) -> Self {
        Self { message: self.message.concurrency_key(key), ..self }
    }

    /// The lock that a worker holds while it handles the message: [`Message::lock`].
    pub fn lock(self, name: impl AsRef<[u8]>) -> Self {
        Self { message: self.message.lock(name), ..self }
    }

    /// The message is due when its turn at the lock comes: [`Message::parked`].
    pub fn parked(self, lock: impl AsRef<[u8]>, at_most: Duration) -> Self {
        Self { message: self.message.parked(lock, at_most), ..self }
    }

    /// How often the message may be delivered before it is dead: [`Message::max_attempts`].
    pub fn max_attempts(self, most: u32) -> Self {
        Self { message: self.message.max_attempts(most), ..self }
    }

    async fn store(self) -> Result<Pushed> {
        let Self { queue, message } = self;
        let message = message.checked(queue).map_err(|error| queue.told(error, "push"))?;
        queue.store(message).await
    }
}

impl<'a, T: 'static> IntoFuture for Push<'a, T> {
    type Output = Result<Pushed>;
    type IntoFuture = Boxed<'a, Result<Pushed>>;

    /// Stores the message.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) when the message is outside a limit, and [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported), before
    /// anything is sent; [`ErrorKind::LimitReached`](crate::ErrorKind::LimitReached) when the queue is full; whatever the driver reports. After
    /// [`ErrorKind::Indeterminate`](crate::ErrorKind::Indeterminate) the message may be stored or not: with an [`id`](Push::id), push again.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may leave the message stored or not.
    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.store())
    }
}

impl<T: 'static> fmt::Debug for Push<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Push").field("queue", self.queue.name()).field("message", &self.message).finish()
    }
}

/// Messages on their way into a queue; made by [`Queue::push_many`]. Awaiting it stores them.
#[must_use = "a push does nothing until it is awaited"]
pub struct PushMany<'a, T> {
    queue: &'a Queue<T>,
    messages: Vec<Encoded>,
}

/// A push of many messages that failed. The first [`pushed`](Self::pushed) of them were answered, in requests before the one
/// that failed.
///
/// Of that one the [kind](Error::kind) of the error tells: after [`ErrorKind::Indeterminate`](crate::ErrorKind::Indeterminate) its messages are stored, all or
/// none; after any other none is. Those of later requests were not sent. With [ids](Message::id) simply push all again.
#[derive(Clone, Debug)]
pub struct PushManyError {
    pushed: Vec<Pushed>,
    error: Error,
}

impl<'a, T: 'static> PushMany<'a, T> {
    pub(super) fn new<'v>(queue: &'a Queue<T>, messages: impl Iterator<Item = Message<'v, T>>) -> Self
    where
        T: 'v,
    {
        Self { queue, messages: messages.map(|message| message.encoded(&*queue.codec)).collect() }
    }

    async fn store(self) -> Result<Vec<Pushed>, PushManyError> {
        let Self { queue, messages } = self;
        let mut pushed = Vec::with_capacity(messages.len());
        let checked = messages.into_iter().map(|message| message.checked(queue)).collect::<Result<Vec<_>>>();
        let requests = checked.map(|messages| requests(messages, &queue.fetcher.caps));
        let requests = requests.map_err(|error| PushManyError::from(queue.told(error, "push")));
        for request in requests? {
            match queue.send(&request).await {
                Ok(answers) => pushed.extend(answers),
                Err(error) => return Err(PushManyError { pushed, error }),
            }
        }
        Ok(pushed)
    }
}

/// Splits messages into what one request takes.
fn requests(messages: Vec<NewMessage>, caps: &QueueCapabilities) -> Vec<Vec<NewMessage>> {
    let mut requests: Vec<Vec<NewMessage>> = Vec::new();
    let mut bytes = 0_usize;
    for message in messages {
        let more = bytes.saturating_add(message.bytes());
        match requests.last_mut() {
            Some(request) if request.len() < caps.batch && more <= caps.request_bytes => {
                bytes = more;
                request.push(message);
            }
            _ => {
                bytes = message.bytes();
                requests.push(vec![message]);
            }
        }
    }
    requests
}

impl<'a, T: 'static> IntoFuture for PushMany<'a, T> {
    type Output = Result<Vec<Pushed>, PushManyError>;
    type IntoFuture = Boxed<'a, Self::Output>;

    /// Stores the messages, in order; one answer for each.
    ///
    /// # Errors
    ///
    /// As for a single [`Push`]. What is outside a limit is refused before anything is sent.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may leave the messages of some requests stored: the first ones.
    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.store())
    }
}

impl<T: 'static> fmt::Debug for PushMany<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PushMany").field("queue", self.queue.name()).field("count", &self.messages.len()).finish()
    }
}

impl PushManyError {
    /// What became of the messages of the requests before, the first of all: as many as were answered.
    #[must_use]
    pub fn pushed(&self) -> &[Pushed] {
        &self.pushed
    }

    /// Why the next request failed.
    #[must_use]
    pub fn error(&self) -> &Error {
        &self.error
    }
}

impl fmt::Display for PushManyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pushed.len() {
            0 => fmt::Display::fmt(&self.error, f),
            count => write!(f, "{} (the first {count} messages were stored, or known already)", self.error),
        }
    }
}

impl std::error::Error for PushManyError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        std::error::Error::source(&self.error)
    }
}

impl From<Error> for PushManyError {
    /// Before anything was pushed.
    fn from(error: Error) -> Self {
        Self { pushed: Vec::new(), error }
    }
}

impl From<PushManyError> for Error {
    /// Forgets what was pushed before.
    fn from(failed: PushManyError) -> Self {
        failed.error
    }
}

impl<T: 'static> Queue<T> {
    /// Stores a message.
    pub(super) async fn store(&self, message: NewMessage) -> Result<Pushed> {
        self.send(&[message]).await.map(|mut answers| answers.swap_remove(0))
    }

    /// Stores messages, all or none, and stands in line for those that are parked.
    async fn send(&self, batch: &[NewMessage]) -> Result<Vec<Pushed>> {
        let since = LeaseInstant::now();
        let work = self.fetcher.push(batch);
        let answers = telemetry::in_push_span(self.fetcher.shared.driver(), self.name(), batch.len(), work).await;
        let answers = answers.map_err(|error| self.told(error, "push"))?;
        for (NewMessage { due, lock, .. }, answer) in batch.iter().zip(&answers) {
            if let (Due::Parked { at_most }, Some(lock)) = (due, lock)
                && let Pushed::Stored(id) | Pushed::Replaced(id) = answer
            {
                self.fetcher.attend(lock, id.clone(), since, *at_most);
            }
        }
        Ok(answers)
    }
}

// Pushes that leave at the same moment share a request.
//
// A push alone goes straight to the driver. While one of a queue is on its way, the next ones gather until every task that is
// ready has run, and leave together: a request costs the backend much more than a message in it does. Nothing waits for an
// answer to something else before it leaves, and nothing for another runtime, which may not run any more.

/// The pushes of one queue.
#[derive(Default)]
pub(super) struct Pushes {
    on_their_way: AtomicUsize,
    /// By the runtime of the callers. As long as there is an entry, there is a task that sends what it holds.
    gathered: Mutex<HashMap<Id, Vec<Waiting>>>,
}

/// The messages of one caller, stored all or none.
struct Waiting {
    messages: Vec<NewMessage>,
    reply: oneshot::Sender<Result<Vec<Pushed>>>,
}

/// What leaves together.
#[derive(Default)]
struct Request {
    messages: Vec<NewMessage>,
    bytes: usize,
    /// How many of the messages are whose, in order.
    callers: Vec<(usize, oneshot::Sender<Result<Vec<Pushed>>>)>,
}

/// A caller whose push is on its way, until it is answered or dropped.
struct OnItsWay<'a>(&'a AtomicUsize);

impl Drop for OnItsWay<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Fetcher {
    /// Stores messages, all or none: as many answers as messages.
    pub(super) async fn push(self: &Arc<Self>, messages: &[NewMessage]) -> Result<Vec<Pushed>> {
        self.shared.ensure_open()?;
        let others = self.pushes.on_their_way.fetch_add(1, Ordering::Relaxed);
        let _on_its_way = OnItsWay(&self.pushes.on_their_way);
        if others == 0 {
            return self.push_now(messages).await;
        }
        self.shared.start()?;
        let (reply, answer) = oneshot::channel();
        let runtime = Handle::current().id();
        if self.pushes.gather(runtime, Waiting { messages: messages.to_vec(), reply }) {
            let fetcher = Arc::downgrade(self);
            self.shared.background.run(move || {
                let fetcher = fetcher.upgrade();
                async move {
                    if let Some(fetcher) = fetcher {
                        fetcher.push_gathered(runtime).await;
                    }
                }
            });
        }
        answer.await.unwrap_or_else(|_| Err(ended()))
    }

    /// One request.
    async fn push_now(&self, messages: &[NewMessage]) -> Result<Vec<Pushed>> {
        let answers = bounded(self.shared.config.op_timeout, self.driver.push(&self.name, messages)).await?;
        if answers.len() == messages.len() {
            return Ok(answers);
        }
        let text = format!("a push of {} messages was answered with {}", messages.len(), answers.len());
        Err(Error::new(ErrorKind::Protocol, text))
    }

    async fn push_gathered(&self, runtime: Id) {
        ready_tasks_have_run().await;
        let requests = packed(self.pushes.take(runtime), &self.caps);
        join_all(requests.into_iter().map(|request| self.push_together(request))).await;
    }

    async fn push_together(&self, request: Request) {
        let Request { messages, callers, .. } = request;
        let together = caught_in(DRIVER, self.push_now(&messages)).await;
        // What is wrong with the messages of one is not wrong with those of the others.
        let apart = callers.len() > 1 && together.as_ref().is_err_and(|error| is_of_the_messages(error.kind()));
        let mut from = 0;
        for (count, reply) in callers {
            let own = from..from + count;
            from = own.end;
            let answer = match &together {
                Ok(answers) => Ok(answers[own].to_vec()),
                Err(_) if apart => caught_in(DRIVER, self.push_now(&messages[own])).await,
                Err(error) => Err(error.clone()),
            };
            let _ = reply.send(answer); // who has gone does not care
        }
    }
}

impl Pushes {
    fn gathered(&self) -> MutexGuard<'_, HashMap<Id, Vec<Waiting>>> {
        self.gathered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a push; tells whether a task has to begin.
    fn gather(&self, runtime: Id, waiting: Waiting) -> bool {
        let mut gathered = self.gathered();
        let known = gathered.contains_key(&runtime);
        gathered.entry(runtime).or_default().push(waiting);
        !known
    }

    /// What has gathered and is still wanted. Whoever comes now begins a task again.
    fn take(&self, runtime: Id) -> Vec<Waiting> {
        let mut waiting = self.gathered().remove(&runtime).unwrap_or_default();
        waiting.retain(|one| !one.reply.is_closed());
        waiting
    }
}

fn is_of_the_messages(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::LimitReached | ErrorKind::InvalidArgument)
}

/// In as few requests as they fit into, those of a caller together.
fn packed(all: Vec<Waiting>, caps: &QueueCapabilities) -> Vec<Request> {
    let mut requests: Vec<Request> = Vec::new();
    for Waiting { messages, reply } in all {
        let (count, bytes) = (messages.len(), messages.iter().map(NewMessage::bytes).sum::<usize>());
        let fits = |request: &Request| {
            request.messages.len() + count <= caps.batch && request.bytes.saturating_add(bytes) <= caps.request_bytes
        };
        if !requests.last().is_some_and(fits) {
            requests.push(Request::default());
        }
        if let Some(request) = requests.last_mut() {
            request.messages.extend(messages);
            request.bytes += bytes;
            request.callers.push((count, reply));
        }
    }
    requests
}

/// Returns when the tasks of this worker that were ready have been run. Unlike a yield to the scheduler it waits in the queue
/// of ready tasks, where another worker finds it if this one goes on to something long.
async fn ready_tasks_have_run() {
    let mut was_here = false;
    poll_fn(|context| {
        if std::mem::replace(&mut was_here, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
