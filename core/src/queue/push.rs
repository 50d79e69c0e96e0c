//! Storing messages.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::time::Duration;

use super::handle::Queue;
use super::{Attempts, ConcurrencyKey, Delay, MessageId, Payload};
use crate::clock::LeaseInstant;
use crate::driver::{Due, KeyedConcurrency, NamedId, NewMessage, Pushed, QueueCapabilities};
use crate::error::{Error, ErrorKind, Result};
use crate::name::LockName;

/// For how long an id stays known after its message was acknowledged, unless told otherwise.
const DEFAULT_WINDOW: Duration = Duration::from_secs(3600);

/// A future that lasts as long as what it was made from.
type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A message on its way into a queue; made by [`Queue::push`]. Awaiting it stores the message.
#[must_use = "a push does nothing until it is awaited"]
pub struct Push<'a, T> {
    queue: &'a Queue<T>,
    bytes: Result<Vec<u8>>,
    options: Options,
}

/// As it was given; checked when the message is pushed.
#[derive(Clone, Debug, Default)]
struct Options {
    delay: Option<Duration>,
    /// The latest, for a message that is due when its lock is free.
    parked: Option<Duration>,
    id: Option<Vec<u8>>,
    window: Option<Duration>,
    key: Option<Vec<u8>>,
    lock: Option<Vec<u8>>,
    attempts: Option<u32>,
}

impl<'a, T: 'static> Push<'a, T> {
    pub(super) fn new(queue: &'a Queue<T>, bytes: Result<Vec<u8>>) -> Self {
        Self { queue, bytes, options: Options::default() }
    }

    /// How long until the message is due, counted by the backend from when it accepts the message. Up to
    /// [`Delay::MAX`]; default: due at once.
    pub fn delay(mut self, delay: Duration) -> Self {
        self.options.delay = Some(delay);
        self
    }

    /// A name for the message, 1 to [`MessageId::MAX_LEN`] bytes: pushing it again stores nothing and says so, as long
    /// as the message is stored, and for the [`dedup_window`](Push::dedup_window) after it was acknowledged.
    pub fn id(mut self, id: impl AsRef<[u8]>) -> Self {
        self.options.id = Some(id.as_ref().to_vec());
        self
    }

    /// For how long the id stays known after the message was acknowledged. Default: one hour; zero: not at all.
    pub fn dedup_window(mut self, window: Duration) -> Self {
        self.options.window = Some(window);
        self
    }

    /// At most one message of this key is in flight at a time, in this queue. 1 to [`ConcurrencyKey::MAX_LEN`] bytes.
    pub fn concurrency_key(mut self, key: impl AsRef<[u8]>) -> Self {
        self.options.key = Some(key.as_ref().to_vec());
        self
    }

    /// The lock that a [`Worker`](crate::Worker) holds while it handles the message.
    pub fn lock(mut self, name: impl AsRef<[u8]>) -> Self {
        self.options.lock = Some(name.as_ref().to_vec());
        self
    }

    /// The message is due when its turn at the lock comes, but no later than `at_most` from now; how, the driver declares as its
    /// [`Parking`](crate::driver::Parking). A worker holds the lock while it handles the message. In place of a
    /// [`delay`](Push::delay), and of [`lock`](Push::lock).
    pub fn parked(mut self, lock: impl AsRef<[u8]>, at_most: Duration) -> Self {
        self.options.lock = Some(lock.as_ref().to_vec());
        self.options.parked = Some(at_most);
        self
    }

    /// How often the message may be delivered before it is dead. Default: that of the queue's handle.
    pub fn attempts(mut self, most: u32) -> Self {
        self.options.attempts = Some(most);
        self
    }

    async fn store(self) -> Result<Pushed> {
        let Self { queue, bytes, options } = self;
        let message = message(queue, bytes, &options).map_err(|error| queue.told(error, "push"))?;
        let (batch, since) = ([message], LeaseInstant::now());
        let mut answers = queue.send(&batch).await?;
        let unanswered = || queue.told(Error::new(ErrorKind::Protocol, "a push was not answered"), "push");
        let answer = answers.pop().ok_or_else(unanswered)?;
        let [NewMessage { due, lock, .. }] = &batch;
        if let (Due::Parked { at_most }, Some(lock), Pushed::Stored(id)) = (due, lock, &answer) {
            queue.pump.attend(lock, id.clone(), since, *at_most);
        }
        Ok(answer)
    }
}

fn message<T: 'static>(queue: &Queue<T>, bytes: Result<Vec<u8>>, options: &Options) -> Result<NewMessage> {
    let caps: QueueCapabilities = queue.pump.caps;
    let bytes = bytes?;
    caps.check_payload(bytes.len())?;
    let payload = Payload::new(bytes)?;
    if options.delay.is_some() && options.parked.is_some() {
        let text = "a message is either due after a delay or parked behind a lock";
        return Err(Error::new(ErrorKind::InvalidArgument, text));
    }
    let delay = Delay::new(options.parked.or(options.delay).unwrap_or_default())?;
    caps.check_delay(delay)?;
    let attempts = Attempts::new(options.attempts.unwrap_or(queue.attempts))?;
    caps.check_attempts(attempts)?;
    let key = options.key.as_ref().map(ConcurrencyKey::new).transpose()?;
    if key.is_some() && caps.keys == KeyedConcurrency::None {
        return Err(Error::new(ErrorKind::Unsupported, "this driver's queues have no concurrency keys"));
    }
    let span = options.window.unwrap_or(DEFAULT_WINDOW);
    let window = Delay::new(span).and_then(|window| caps.check_delay(window).map(|()| window)).map_err(|_| {
        let text = format!("a dedup_window of {span:?} is longer than {:?}", caps.delay.min(Delay::MAX));
        Error::new(ErrorKind::InvalidArgument, text)
    })?;
    if options.window.is_some() && options.id.is_none() {
        return Err(Error::new(ErrorKind::InvalidArgument, "a dedup_window needs an id"));
    }
    let named = |id: &Vec<u8>| MessageId::named(id).map(|id| NamedId { id, window });
    let due = options.parked.map_or(Due::After(delay), |_| Due::Parked { at_most: delay });
    Ok(NewMessage {
        due,
        id: options.id.as_ref().map(named).transpose()?,
        key,
        lock: options.lock.as_ref().map(LockName::new).transpose()?,
        attempts,
        ..NewMessage::new(payload)
    })
}

impl<'a, T: 'static> IntoFuture for Push<'a, T> {
    type Output = Result<Pushed>;
    type IntoFuture = Boxed<'a, Result<Pushed>>;

    /// Stores the message.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] when the message is outside a limit, and [`ErrorKind::Unsupported`], before
    /// anything is sent; [`ErrorKind::LimitReached`] when the queue is full; whatever the driver reports. After
    /// [`ErrorKind::Indeterminate`] the message may be stored or not: with an [`id`](Push::id), push again.
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
        f.debug_struct("Push").field("queue", self.queue.name()).field("options", &self.options).finish_non_exhaustive()
    }
}

/// Messages on their way into a queue, all or none; made by [`Queue::push_many`].
#[must_use = "a push does nothing until it is awaited"]
pub struct PushMany<'a, T> {
    queue: &'a Queue<T>,
    values: Vec<Result<Vec<u8>>>,
    options: Options,
}

impl<'a, T: 'static> PushMany<'a, T> {
    pub(super) fn new(queue: &'a Queue<T>, values: Vec<Result<Vec<u8>>>) -> Self {
        Self { queue, values, options: Options::default() }
    }

    /// How long until the messages are due, counted by the backend from when it accepts them. Default: at once.
    pub fn delay(mut self, delay: Duration) -> Self {
        self.options.delay = Some(delay);
        self
    }

    /// At most one message of this key is in flight at a time, in this queue.
    pub fn concurrency_key(mut self, key: impl AsRef<[u8]>) -> Self {
        self.options.key = Some(key.as_ref().to_vec());
        self
    }

    /// How often each message may be delivered before it is dead. Default: that of the queue's handle.
    pub fn attempts(mut self, most: u32) -> Self {
        self.options.attempts = Some(most);
        self
    }

    async fn store(self) -> Result<Vec<Pushed>> {
        let Self { queue, values, options } = self;
        let batch = || {
            queue.pump.caps.check_batch(values.len())?;
            values.into_iter().map(|bytes| message(queue, bytes, &options)).collect::<Result<Vec<_>>>()
        };
        let batch = batch().map_err(|error| queue.told(error, "push"))?;
        queue.send(&batch).await
    }
}

impl<'a, T: 'static> IntoFuture for PushMany<'a, T> {
    type Output = Result<Vec<Pushed>>;
    type IntoFuture = Boxed<'a, Result<Vec<Pushed>>>;

    /// Stores the messages, all or none; one answer for each, in order.
    ///
    /// # Errors
    ///
    /// As for a single [`Push`]; [`ErrorKind::InvalidArgument`] also when there are none or too many.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may leave all messages stored, or none.
    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.store())
    }
}

impl<T: 'static> fmt::Debug for PushMany<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PushMany").field("queue", self.queue.name()).field("count", &self.values.len()).finish()
    }
}
