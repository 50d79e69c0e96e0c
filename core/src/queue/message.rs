//! A message before it is stored: its value and its options.

use std::convert::Infallible;
use std::fmt;
use std::fmt::Debug;
use std::time::{Duration, SystemTime};

use super::{ConcurrencyKey, MessageId};
use crate::driver::{Due, IfKnown, KeyedConcurrency, NamedId, NewMessage, QueueCapabilities};
use crate::runtime::caught;
use crate::value::error::{Error, ErrorKind, LockName, Result};
use crate::value::queue::{Attempts, Delay, Payload};
use crate::value::time::until_wall_clock;

/// The default time that an id stays known after its message was acknowledged.
const DEFAULT_WINDOW: Duration = Duration::from_secs(3600);

/// A message to be stored, with its own options: for [`Queue::push_many`](crate::queue::Queue::push_many) and
/// [`Lock::or_park`](crate::Lock::or_park). [`Queue::push`](crate::queue::Queue::push) has the same options. They are
/// checked when the message is pushed.
///
/// ```
/// # use std::time::Duration;
/// # use tenure_core::queue::{Message, Queue};
/// # struct Mail { number: u64 }
/// # async fn example(queue: Queue<Mail>, outbox: Vec<Mail>) -> Result<(), tenure_core::Error> {
/// let messages = outbox.iter().map(|mail| {
///     Message::new(mail).id(format!("mail/{}", mail.number)).max_attempts(3)
/// });
/// queue.push_many(messages).await?;
/// # Ok(()) }
/// ```
#[must_use = "a message does nothing until it is pushed"]
pub struct Message<'v, T> {
    content: Content<'v, T>,
    options: Options,
}

/// A message whose value is already bytes.
pub(super) type Encoded = Message<'static, Infallible>;

enum Content<'v, T> {
    Value(&'v T),
    Bytes(Result<Vec<u8>>),
}

/// The options as they were given, unchecked.
#[derive(Clone, Debug, Default)]
struct Options {
    time: Option<Time>,
    parked: bool,
    at_most: Option<Duration>,
    ttl: Option<Duration>,
    id: Option<Vec<u8>>,
    if_known: IfKnown,
    window: Option<Duration>,
    key: Option<Vec<u8>>,
    lock: Option<Vec<u8>>,
    attempts: Option<u32>,
}

#[derive(Clone, Copy, Debug)]
enum Time {
    After(Duration),
    At(SystemTime),
}

impl<'v, T> Message<'v, T> {
    /// Makes a message with this value: due at once, without an id, key and lock.
    pub fn new(value: &'v T) -> Self {
        Self { content: Content::Value(value), options: Options::default() }
    }

    /// Makes a message of bytes, without the codec.
    pub fn bytes(bytes: impl Into<Vec<u8>>) -> Self {
        Self { content: Content::Bytes(Ok(bytes.into())), options: Options::default() }
    }

    /// Sets the delay until the message is due, counted by the backend from when it accepts the message. Up to
    /// [`Delay::MAX`]; default: due at once.
    pub fn delay(mut self, delay: Duration) -> Self {
        self.options.time = Some(Time::After(delay));
        self
    }

    /// Sets the time at which the message is due; at once if that is past. It replaces a [`delay`](Self::delay), and
    /// becomes one when the message is pushed, by the wall clock **of this machine**: a wrong clock makes the message
    /// early or late by as much. From then on the backend counts, independently of any wall clock.
    pub fn at(mut self, time: SystemTime) -> Self {
        self.options.time = Some(Time::At(time));
        self
    }

    /// Sets the time after it is due in which the message may be delivered. If it was not delivered by then, it is a
    /// dead letter ([`DeadCause::Expired`](crate::queue::DeadCause::Expired)); a delivery that began before continues,
    /// and a retry after it is too late. Default: no limit.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.options.ttl = Some(ttl);
        self
    }

    /// Sets the id of the message, 1 to [`MessageId::MAX_LEN`] bytes: pushing it again stores nothing and returns
    /// `Duplicate`, as long as the message is stored, and for the [`dedup_window`](Self::dedup_window) after it was
    /// acknowledged.
    pub fn id(mut self, id: impl AsRef<[u8]>) -> Self {
        self.options.id = Some(id.as_ref().to_vec());
        self
    }

    /// Replaces a waiting message of the same [`id`](Self::id), which will not be delivered
    /// ([`Pushed::Replaced`](crate::queue::Pushed::Replaced)). With a [`delay`](Self::delay) that is a debounce: the
    /// last of many pushes is delivered, once no other has followed for that long. A message that is in flight, dead or
    /// settled is not replaced, and the new one not stored ([`Pushed::Duplicate`](crate::queue::Pushed::Duplicate)).
    pub fn replace(mut self) -> Self {
        self.options.if_known = IfKnown::Replace;
        self
    }

    /// Sets the time that the id stays known after the message was acknowledged. Default: one hour; zero: not at all.
    pub fn dedup_window(mut self, window: Duration) -> Self {
        self.options.window = Some(window);
        self
    }

    /// Sets a concurrency key: at most one message of this key is in flight at a time, in this queue. 1 to
    /// [`ConcurrencyKey::MAX_LEN`] bytes.
    pub fn concurrency_key(mut self, key: impl AsRef<[u8]>) -> Self {
        self.options.key = Some(key.as_ref().to_vec());
        self
    }

    /// Sets the lock that a [`Worker`](crate::queue::Worker) holds while it handles the message.
    pub fn lock(mut self, name: impl AsRef<[u8]>) -> Self {
        self.options.lock = Some(name.as_ref().to_vec());
        self
    }

    /// Parks the message: it is due when its turn at the lock comes, as the driver declares by its
    /// [`Parking`](crate::driver::Parking), but no later than `at_most` from now. A worker holds the lock while it
    /// handles the message. Replaces a [`delay`](Self::delay) and a [`lock`](Self::lock).
    pub fn parked(mut self, lock: impl AsRef<[u8]>, at_most: Duration) -> Self {
        self.options.parked = true;
        self.lock(lock).parked_at_most(at_most)
    }

    /// Sets the longest wait of the message if it is parked by [`Lock::or_park`](crate::Lock::or_park), whose default
    /// is 5 s. If its lock is taken then, the worker parks it again, for
    /// [`lock_back_off`](crate::queue::WorkerBuilder::lock_back_off).
    pub fn parked_at_most(mut self, at_most: Duration) -> Self {
        self.options.at_most = Some(at_most);
        self
    }

    /// Sets the most deliveries of the message; after them it is dead: 1 to [`Attempts::MAX`]. Default: that of the
    /// queue's handle. With one attempt, a delivery whose reply is lost is the last: no receiver saw the message, and
    /// it is dead.
    pub fn max_attempts(mut self, most: u32) -> Self {
        self.options.attempts = Some(most);
        self
    }

    /// Returns the same message, with its value as bytes.
    pub(super) fn encoded(self, codec: &dyn Codec<T>) -> Encoded
    where
        T: 'static,
    {
        let bytes = match self.content {
            Content::Value(value) => codec.encode(value),
            Content::Bytes(bytes) => bytes,
        };
        Message { content: Content::Bytes(bytes), options: self.options }
    }

    /// Returns the same message, parked behind this lock, for so long unless the message sets its own time.
    pub(super) fn parked_behind(mut self, lock: &LockName, at_most: Duration) -> Result<Self> {
        if self.options.lock.as_deref().is_some_and(|own| own != lock.as_bytes()) {
            let text = "a message can only be parked behind the lock that it was pushed with";
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        let at_most = self.options.at_most.unwrap_or(at_most);
        self = self.parked(lock.as_bytes(), at_most);
        Ok(self)
    }
}

impl Encoded {
    /// Checks the message and converts it to the driver's form.
    pub(super) fn checked(self, caps: &QueueCapabilities, attempts: u32) -> Result<NewMessage> {
        let Self { content, options } = self;
        let bytes = match content {
            Content::Bytes(bytes) => bytes?,
            Content::Value(none) => match *none {},
        };
        caps.check_payload(bytes.len())?;
        let attempts = Attempts::new(options.attempts.unwrap_or(attempts))?;
        caps.check_attempts(attempts)?;
        let key = options.key.as_ref().map(ConcurrencyKey::new).transpose()?;
        if key.is_some() && caps.keys == KeyedConcurrency::None {
            return Err(Error::new(ErrorKind::Unsupported, "this driver's queues have no concurrency keys"));
        }
        let message = NewMessage {
            due: options.due(caps)?,
            ttl: options.ttl.map(|ttl| checked_ttl(ttl, caps)).transpose()?,
            id: options.named(caps)?,
            if_known: options.if_known,
            key,
            lock: options.lock.as_ref().map(LockName::new).transpose()?,
            attempts,
            ..NewMessage::new(Payload::new(bytes)?)
        };
        caps.check_request(message.bytes())?;
        Ok(message)
    }
}

impl Options {
    fn due(&self, caps: &QueueCapabilities) -> Result<Due> {
        let span = match (self.time, self.at_most) {
            (None, None) => Duration::ZERO,
            (Some(Time::After(delay)), None) => delay,
            (Some(Time::At(time)), None) => until_wall_clock(time),
            (None, Some(at_most)) if self.parked => at_most,
            (None, Some(_)) => return refused("a maximum parking time needs a parked message"),
            (Some(_), Some(_)) => return refused("a message is either due at a time or parked behind a lock"),
        };
        let delay = Delay::new(span)?;
        caps.check_delay(delay)?;
        Ok(if self.parked { Due::Parked { at_most: delay } } else { Due::After(delay) })
    }

    fn named(&self, caps: &QueueCapabilities) -> Result<Option<NamedId>> {
        match &self.id {
            Some(id) => Ok(Some(NamedId { id: MessageId::named(id)?, window: checked_window(self.window, caps)? })),
            None if self.window.is_some() => refused("a dedup_window needs an id"),
            None if self.if_known == IfKnown::Replace => refused("replacing a message needs an id"),
            None => Ok(None),
        }
    }
}

fn checked_window(span: Option<Duration>, caps: &QueueCapabilities) -> Result<Delay> {
    let span = span.unwrap_or(DEFAULT_WINDOW);
    Delay::new(span).and_then(|window| caps.check_delay(window).map(|()| window)).map_err(|_| {
        let text = format!("a dedup_window of {span:?} is longer than {:?}", caps.delay.min(Delay::MAX));
        Error::new(ErrorKind::InvalidArgument, text)
    })
}

fn checked_ttl(span: Duration, caps: &QueueCapabilities) -> Result<Delay> {
    let ttl = Delay::new(span).and_then(|ttl| caps.check_delay(ttl).map(|()| ttl)).ok();
    ttl.filter(|ttl| *ttl > Delay::ZERO).ok_or_else(|| {
        let text = format!("a ttl of {span:?} is zero or longer than {:?}", caps.delay.min(Delay::MAX));
        Error::new(ErrorKind::InvalidArgument, text)
    })
}

fn refused<R>(text: &'static str) -> Result<R> {
    Err(Error::new(ErrorKind::InvalidArgument, text))
}

impl<'v, T> From<&'v T> for Message<'v, T> {
    fn from(value: &'v T) -> Self {
        Self::new(value)
    }
}

impl<T> Debug for Message<'_, T> {
    /// Omits the value, which may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message").field("options", &self.options).finish_non_exhaustive()
    }
}

// How values become payloads.

/// A conversion of values to bytes and back. A queue has one; [`Client::queue`](crate::Client::queue) uses [`Json`].
///
/// Bytes outlive programs: later versions of a codec should accept all bytes that `decode` once accepted.
///
/// ```
/// # use tenure_core as tenure;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> tenure::Result<()> {
/// # let client = tenure::Client::new(tenure_memory::MemoryDriver::new());
/// use tenure::{Error, ErrorKind, Result, queue::Codec};
///
/// #[derive(Debug)]
/// struct Number;
///
/// impl Codec<u64> for Number {
///     fn encode(&self, value: &u64) -> Result<Vec<u8>> {
///         Ok(value.to_be_bytes().to_vec())
///     }
///
///     fn decode(&self, bytes: &[u8]) -> Result<u64> {
///         let refused = |_| Error::new(ErrorKind::Protocol, "not eight bytes");
///         bytes.try_into().map(u64::from_be_bytes).map_err(refused)
///     }
/// }
///
/// let numbers = client.queue_with("numbers", Number)?;
/// numbers.push(&7).await?;
/// assert_eq!(Number.decode(&Number.encode(&7)?)?, 7);
/// # Ok(())
/// # }
/// ```
pub trait Codec<T>: Debug + Send + Sync + 'static {
    /// Encodes a value.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] when the value cannot be encoded.
    fn encode(&self, value: &T) -> Result<Vec<u8>>;

    /// Decodes a value.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Protocol`] when the bytes are not those of a value. The message can still be settled. A panic
    /// counts as this error.
    fn decode(&self, bytes: &[u8]) -> Result<T>;
}

/// Decodes a value. A codec that panics has not decoded it.
pub(super) fn decode<T: 'static>(codec: &dyn Codec<T>, bytes: &[u8]) -> Result<T> {
    caught("the codec", || codec.decode(bytes))
}

/// The codec of values that are already bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bytes;

impl Codec<Vec<u8>> for Bytes {
    fn encode(&self, value: &Vec<u8>) -> Result<Vec<u8>> {
        Ok(value.clone())
    }

    fn decode(&self, bytes: &[u8]) -> Result<Vec<u8>> {
        Ok(bytes.to_vec())
    }
}

/// The codec of text, in UTF-8.
#[derive(Clone, Copy, Debug, Default)]
pub struct Text;

impl Codec<String> for Text {
    fn encode(&self, value: &String) -> Result<Vec<u8>> {
        Ok(value.clone().into_bytes())
    }

    fn decode(&self, bytes: &[u8]) -> Result<String> {
        String::from_utf8(bytes.to_vec())
            .map_err(|cause| Error::new(ErrorKind::Protocol, "the payload is not UTF-8").with_source(cause))
    }
}

/// The codec of any serde value, as JSON.
#[cfg(feature = "json")]
#[derive(Clone, Copy, Debug, Default)]
pub struct Json;

#[cfg(feature = "json")]
impl<T: serde::Serialize + serde::de::DeserializeOwned> Codec<T> for Json {
    fn encode(&self, value: &T) -> Result<Vec<u8>> {
        serde_json::to_vec(value)
            .map_err(|cause| Error::new(ErrorKind::InvalidArgument, "the value has no JSON form").with_source(cause))
    }

    fn decode(&self, bytes: &[u8]) -> Result<T> {
        serde_json::from_slice(bytes).map_err(|cause| {
            Error::new(ErrorKind::Protocol, format!("the payload is not the JSON of a message: {cause}"))
                .with_source(cause)
        })
    }
}
