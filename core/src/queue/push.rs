//! Storing messages.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::time::{Duration, SystemTime};

use crate::driver::{Due, NewMessage, Pushed, QueueCapabilities};
use crate::meters::queues::Sent;
use crate::queue::Message;
use crate::queue::handle::Queue;
use crate::queue::message::Encoded;
use crate::telemetry;
use crate::value::error::{Error, Result};
use crate::value::time::LeaseInstant;

/// A boxed future that borrows from its source.
type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A push of one message that has not been sent; made by [`Queue::push`]. Awaiting it stores the message. The options
/// are those of a [`Message`].
///
/// ```
/// # use tenure_core as tenure;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> tenure::Result<()> {
/// # let client = tenure::Client::new(tenure_memory::MemoryDriver::new());
/// # let reminders = client.queue_with("reminders", tenure::queue::Text)?;
/// use std::time::Duration;
/// use tenure::queue::Pushed;
///
/// let (text, hour) = ("pay the bill".to_owned(), Duration::from_secs(3600));
/// let first = reminders.push(&text).delay(hour).id("bill/7").await?;
/// assert!(matches!(first, Pushed::Stored(_)));
///
/// // The id makes it idempotent: after an error, push again.
/// let again = reminders.push(&text).delay(hour).id("bill/7").await?;
/// assert!(matches!(again, Pushed::Duplicate(_)));
/// # Ok(())
/// # }
/// ```
#[must_use = "a push does nothing until it is awaited"]
pub struct Push<'a, T> {
    queue: &'a Queue<T>,
    message: Encoded,
}

impl<'a, T: 'static> Push<'a, T> {
    pub(super) fn new(queue: &'a Queue<T>, message: Message<'_, T>) -> Self {
        Self { queue, message: message.encoded(&*queue.codec) }
    }

    /// Sets the delay until the message is due: [`Message::delay`].
    pub fn delay(self, delay: Duration) -> Self {
        Self { message: self.message.delay(delay), ..self }
    }

    /// Sets the time at which the message is due, by the wall clock of this machine: [`Message::at`].
    pub fn at(self, time: SystemTime) -> Self {
        Self { message: self.message.at(time), ..self }
    }

    /// Sets the time after it is due in which the message may be delivered: [`Message::ttl`].
    pub fn ttl(self, ttl: Duration) -> Self {
        Self { message: self.message.ttl(ttl), ..self }
    }

    /// Sets the id of the message, which is stored once: [`Message::id`].
    pub fn id(self, id: impl AsRef<[u8]>) -> Self {
        Self { message: self.message.id(id), ..self }
    }

    /// Replaces a waiting message of the same id: [`Message::replace`].
    pub fn replace(self) -> Self {
        Self { message: self.message.replace(), ..self }
    }

    /// Sets the time that the id stays known after the message was acknowledged: [`Message::dedup_window`].
    pub fn dedup_window(self, window: Duration) -> Self {
        Self { message: self.message.dedup_window(window), ..self }
    }

    /// Sets a concurrency key, of which at most one message is in flight at a time: [`Message::concurrency_key`].
    pub fn concurrency_key(self, key: impl AsRef<[u8]>) -> Self {
        Self { message: self.message.concurrency_key(key), ..self }
    }

    /// Sets the lock that a worker holds while it handles the message: [`Message::lock`].
    pub fn lock(self, name: impl AsRef<[u8]>) -> Self {
        Self { message: self.message.lock(name), ..self }
    }

    /// Parks the message until its turn at the lock comes: [`Message::parked`].
    pub fn parked(self, lock: impl AsRef<[u8]>, at_most: Duration) -> Self {
        Self { message: self.message.parked(lock, at_most), ..self }
    }

    /// Sets the most deliveries of the message; after them it is dead: [`Message::max_attempts`].
    pub fn max_attempts(self, most: u32) -> Self {
        Self { message: self.message.max_attempts(most), ..self }
    }

    async fn store(self) -> Result<Pushed> {
        let Self { queue, message } = self;
        let message =
            message.checked(&queue.fetcher.remote.caps, queue.attempts).map_err(|error| queue.during(error, "push"))?;
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
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) when the message is outside a limit, and
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported), before anything is sent;
    /// [`ErrorKind::LimitReached`](crate::ErrorKind::LimitReached) when the queue is full; otherwise the driver's
    /// error. After [`ErrorKind::Indeterminate`](crate::ErrorKind::Indeterminate) the message may or may not be stored:
    /// with an [`id`](Push::id), push again.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the message may or may not be stored.
    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.store())
    }
}

impl<T: 'static> fmt::Debug for Push<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Push").field("queue", self.queue.name()).field("message", &self.message).finish()
    }
}

/// A push of many messages that has not been sent; made by [`Queue::push_many`]. Awaiting it stores them.
#[must_use = "a push does nothing until it is awaited"]
pub struct PushMany<'a, T> {
    queue: &'a Queue<T>,
    messages: Vec<Encoded>,
}

/// The error of a push of many messages. The first [`pushed`](Self::pushed) of them were answered, in requests before
/// the one that failed.
///
/// The [kind](Error::kind) of the error applies to the failed request: after
/// [`ErrorKind::Indeterminate`](crate::ErrorKind::Indeterminate) its messages are stored, all or none; after any other
/// kind none is. Those of later requests were not sent. With [ids](Message::id) simply push all again.
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
        let checked = messages
            .into_iter()
            .map(|message| message.checked(&queue.fetcher.remote.caps, queue.attempts))
            .collect::<Result<Vec<_>>>();
        let requests = checked.map(|messages| requests(messages, &queue.fetcher.remote.caps));
        let requests = requests.map_err(|error| PushManyError::from(queue.during(error, "push")));
        for request in requests? {
            match queue.send(&request).await {
                Ok(answers) => pushed.extend(answers),
                Err(error) => return Err(PushManyError { pushed, error }),
            }
        }
        Ok(pushed)
    }
}

/// Splits messages into requests.
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
    /// As for a single [`Push`]. Messages outside a limit are refused before anything is sent.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the messages of some requests may be stored: the first ones.
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
    /// Returns the results of the messages of earlier requests, from the first on: as many as were answered.
    #[must_use]
    pub fn pushed(&self) -> &[Pushed] {
        &self.pushed
    }

    /// Returns the error of the next request.
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
    /// Makes the error of a push that failed before anything was pushed.
    fn from(error: Error) -> Self {
        Self { pushed: Vec::new(), error }
    }
}

impl From<PushManyError> for Error {
    /// Drops the results of the messages that were pushed before.
    fn from(failed: PushManyError) -> Self {
        failed.error
    }
}

impl<T: 'static> Queue<T> {
    /// Returns a request that stores a message once it is awaited.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # async fn example(queue: tenure_core::queue::Queue<String>, invoice: String) -> tenure_core::Result<()> {
    /// queue.push(&invoice).delay(Duration::from_secs(300)).id("invoice/42").await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn push(&self, value: &T) -> Push<'_, T> {
        Push::new(self, Message::new(value))
    }

    /// Returns a request that stores a message of bytes, without the codec.
    pub fn push_bytes(&self, bytes: impl Into<Vec<u8>>) -> Push<'_, T> {
        Push::new(self, Message::bytes(bytes))
    }

    /// Returns a request that stores messages once it is awaited: values, or [`Message`]s with their own options.
    ///
    /// They leave in order, one request after the other, each of [`batch`](QueueCapabilities::batch) messages and
    /// [`request_bytes`](QueueCapabilities::request_bytes) bytes at most, so that other requests are not delayed.
    /// **Each request is stored all or none**; when one fails, those before it are stored, and
    /// [`PushManyError`](crate::queue::PushManyError) has the number. So up to a batch of small messages is stored all
    /// or none.
    pub fn push_many<'v, M>(&self, messages: impl IntoIterator<Item = M>) -> PushMany<'_, T>
    where
        M: Into<Message<'v, T>>,
        T: 'v,
    {
        PushMany::new(self, messages.into_iter().map(Into::into))
    }

    /// Stores a message.
    pub(super) async fn store(&self, message: NewMessage) -> Result<Pushed> {
        self.send(&[message]).await.map(|mut answers| answers.swap_remove(0))
    }

    /// Stores messages, all or none, and waits for the locks of those that are parked.
    async fn send(&self, batch: &[NewMessage]) -> Result<Vec<Pushed>> {
        let since = LeaseInstant::now();
        let work = self.fetcher.pushes.push(batch);
        let answers =
            telemetry::in_push_span(self.fetcher.remote.shared.driver(), self.name(), batch.len(), work).await;
        let meters = &self.fetcher.remote.meters;
        let answers = answers.map_err(|error| {
            meters.unsent(error.kind(), batch.len());
            self.during(error, "push")
        })?;
        for answer in &answers {
            meters.sent(match answer {
                Pushed::Stored(_) => Sent::Stored,
                Pushed::Replaced(_) => Sent::Replaced,
                Pushed::Duplicate(_) => Sent::Duplicate,
            });
        }
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
