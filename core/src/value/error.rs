//! Errors: their kinds, their texts, and the names of the locks in them.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

/// Shorthand for results of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The kind of a failure. Contention is not among them: it is a value.
///
/// ```
/// # use tenure_core as tenure;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> tenure::Result<()> {
/// # let driver = tenure_memory::MemoryDriver::new();
/// # let client = tenure::Client::new(driver.clone());
/// use tenure::ErrorKind;
///
/// fn status(kind: ErrorKind) -> u16 {
///     match kind {
///         ErrorKind::TimedOut | ErrorKind::Lost => 409,
///         // An outage is no conflict: the lock may be free.
///         ErrorKind::Unavailable | ErrorKind::Indeterminate => 503,
///         _ => 500,
///     }
/// }
/// # driver.faults().outage();
/// let error = client.lock("orders/42").try_acquire().await.unwrap_err();
/// assert_eq!(status(error.kind()), 503);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The time limit for waiting passed. The lock was not taken; the place in the queue is given up.
    TimedOut,
    /// The lease ended before it was released: it expired, was taken away, or could not be renewed in time.
    Lost,
    /// The lease named in the request is not held by its token. Nothing was changed.
    NotHeld,
    /// The backend could not be reached or refused to work now; the request was **not** applied.
    Unavailable,
    /// The request may or may not have been applied. If it could have taken a lock, the client will undo it.
    Indeterminate,
    /// The driver does not declare this capability. Nothing was sent.
    Unsupported,
    /// An argument is outside its stated limits. Nothing was sent.
    InvalidArgument,
    /// A cap was reached: waiters in a queue, holds of a client, depth of a re-entrant lock. Nothing was changed.
    LimitReached,
    /// The backend's configuration breaks the contract (it may evict locks, it is a replica, …).
    Misconfigured,
    /// The credentials were refused, or a permission is missing; the message names it.
    Denied,
    /// The client was closed.
    Closed,
    /// The backend's answer violates its protocol.
    Protocol,
    /// The stored data is not in this library's format: a counter that is not a number, a record that cannot be read, a
    /// key of another type. The message names the key and the problem; waiting does not help. Nothing was changed.
    Damaged,
}

impl ErrorKind {
    /// Returns the kind in words, with which `Display` of an [`Error`] begins.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TimedOut => "timed out",
            Self::Lost => "lease lost",
            Self::NotHeld => "not held",
            Self::Unavailable => "backend unavailable",
            Self::Indeterminate => "outcome unknown",
            Self::Unsupported => "unsupported",
            Self::InvalidArgument => "invalid argument",
            Self::LimitReached => "limit reached",
            Self::Misconfigured => "backend misconfigured",
            Self::Denied => "denied",
            Self::Closed => "client closed",
            Self::Protocol => "protocol violation",
            Self::Damaged => "stored data damaged",
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A failed operation: its kind, the known facts, and the cause.
///
/// Programs act on [`Error::kind`] or the predicates; people read `Display`: `{}` is one sentence about this error, to
/// which a printer of chains adds the causes, and `{:#}` includes the causes, each of them once. `Debug` is the same as
/// `{:#}`, so that `main() -> Result<(), tenure::Error>` prints a sentence; `{:#?}` shows the parts.
///
/// The cause is kept as [`source`](StdError::source) and can be downcast to the error of the client library underneath,
/// if there is one. Clones share it. Control characters in server texts are escaped, and very long texts are cut.
///
/// ```
/// # use tenure_core as tenure;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> tenure::Result<()> {
/// # let client = tenure::Client::new(tenure_memory::MemoryDriver::new());
/// use std::time::Duration;
///
/// let lock = client.lock("orders/42");
/// let guard = lock.acquire().await?;
///
/// let patience = Duration::from_millis(10);
/// let error = lock.acquire_within(patience).await.unwrap_err();
/// assert!(error.is_timed_out() && error.is_transient());
/// assert_eq!(error.name(), Some(guard.name()));
/// assert!(error.to_string().starts_with("timed out: "));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Error(Box<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    message: Cow<'static, str>,
    half_way: bool,
    operation: Option<&'static str>,
    name: Option<LockName>,
    driver: Option<&'static str>,
    source: Option<Arc<dyn StdError + Send + Sync>>,
    /// True if the message includes the text of the source.
    reported: bool,
}

impl Error {
    /// Makes an error of this kind. The message is a lowercase fragment without secrets and without a full stop.
    #[must_use]
    pub fn new(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        Self(Box::new(Inner {
            kind,
            message: one_line(message.into(), LONGEST_MESSAGE),
            half_way: false,
            operation: None,
            name: None,
            driver: None,
            source: None,
            reported: false,
        }))
    }

    /// Adds the cause.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.0.source = Some(source.into().into());
        self
    }

    /// Adds a cause that is already shared.
    #[must_use]
    pub fn with_shared_source(mut self, source: Arc<dyn StdError + Send + Sync>) -> Self {
        self.0.source = Some(source);
        self
    }

    /// Adds a cause that the message already describes, in better words: `{:#}` and `Debug` leave its own text out.
    #[must_use]
    pub fn with_told_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.0.reported = true;
        self.with_source(source)
    }

    /// Returns the same failure with another kind, when more is known about its meaning.
    #[must_use]
    pub fn with_kind(mut self, kind: ErrorKind) -> Self {
        self.0.kind = kind;
        self
    }

    /// Returns the same failure, with the place where it happened before its message.
    #[must_use]
    pub fn at(mut self, place: impl fmt::Display) -> Self {
        self.0.message = one_line(format!("{place}: {}", self.0.message).into(), LONGEST_MESSAGE);
        self
    }

    /// Returns a copy without operation and name, for use with [`during`](Self::during).
    #[must_use]
    pub fn again(&self) -> Self {
        let mut again = self.clone();
        (again.0.driver, again.0.operation, again.0.name) = (None, None, None);
        again
    }

    /// Adds the driver, the operation and the lock; context that is already set stays.
    #[must_use]
    pub fn during(mut self, driver: &'static str, operation: &'static str, name: &LockName) -> Self {
        self.0.driver.get_or_insert(driver);
        self.0.operation.get_or_insert(operation);
        self.0.name.get_or_insert_with(|| name.clone());
        self
    }

    /// Adds that the failure came after the backend had begun to apply the request: part of it may be applied,
    /// regardless of the other promises of this kind.
    #[must_use]
    pub fn half_way(mut self) -> Self {
        self.0.half_way = true;
        self
    }

    /// Returns true if the kind promises that the request was not applied and never will be, so that there is nothing
    /// to undo.
    #[must_use]
    pub fn was_not_applied(&self) -> bool {
        use ErrorKind as Kind;
        match self.kind() {
            Kind::Unavailable | Kind::Unsupported | Kind::InvalidArgument | Kind::LimitReached => !self.0.half_way,
            Kind::Misconfigured | Kind::Denied | Kind::Closed | Kind::NotHeld | Kind::Damaged => !self.0.half_way,
            Kind::TimedOut | Kind::Lost | Kind::Indeterminate | Kind::Protocol => false,
        }
    }

    /// Returns the kind of the failure.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Returns the problem, in words, without the context that `Display` adds and without the cause.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Returns the problem and its reason: the message and the texts of its causes, each once, on one line.
    #[must_use]
    pub fn reason(&self) -> String {
        reason(self.message(), self.source().filter(|_| !self.0.reported))
    }

    /// Returns the lock of the operation.
    #[must_use]
    pub fn name(&self) -> Option<&LockName> {
        self.0.name.as_ref()
    }

    /// Returns true if the lease is gone: [`ErrorKind::Lost`] or [`ErrorKind::NotHeld`].
    #[must_use]
    pub fn is_lost(&self) -> bool {
        matches!(self.kind(), ErrorKind::Lost | ErrorKind::NotHeld)
    }

    /// Returns true if the time limit for waiting passed.
    #[must_use]
    pub fn is_timed_out(&self) -> bool {
        self.kind() == ErrorKind::TimedOut
    }

    /// Returns true if the same call may succeed later without any change by a person.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self.kind(), ErrorKind::Unavailable | ErrorKind::Indeterminate | ErrorKind::TimedOut)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = &*self.0;
        match f.alternate() {
            true => write!(f, "{}: {}", inner.kind, self.reason())?,
            false => write!(f, "{}: {}", inner.kind, inner.message)?,
        }
        if let (Some(operation), Some(name)) = (inner.operation, &inner.name) {
            write!(f, " ({operation} of \"{name}\"")?;
            if let Some(driver) = inner.driver {
                write!(f, " through {driver}")?;
            }
            f.write_str(")")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !f.alternate() {
            return write!(f, "{self:#}");
        }
        let inner = &*self.0;
        let causes: Vec<_> =
            causes(self.source()).map(|cause| one_line(cause.to_string().into(), LONGEST_CAUSE)).collect();
        f.debug_struct("Error")
            .field("kind", &inner.kind)
            .field("message", &inner.message)
            .field("half_way", &inner.half_way)
            .field("operation", &inner.operation)
            .field("name", &inner.name)
            .field("driver", &inner.driver)
            .field("causes", &causes)
            .finish()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}

/// The most bytes of a message; one names each node of a quorum.
const LONGEST_MESSAGE: usize = 4_000;
/// The most bytes of a cause, whose text comes from elsewhere.
const LONGEST_CAUSE: usize = 500;

/// Returns the texts of an error and of its causes on one line, without repetitions.
#[must_use]
pub fn reason(message: &str, source: Option<&(dyn StdError + 'static)>) -> String {
    let mut text = message.to_owned();
    for cause in causes(source) {
        let words = one_line(cause.to_string().into(), LONGEST_CAUSE);
        if !text.contains(&*words) {
            let between = if text.is_empty() { "" } else { ": " };
            text.push_str(between);
            text.push_str(&words);
        }
    }
    text
}

fn causes<'a>(first: Option<&'a (dyn StdError + 'static)>) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(first, |error: &&'a (dyn StdError + 'static)| (*error).source())
}

/// Escapes characters that would end a line or control a terminal, and cuts the text to `most` bytes.
#[must_use]
pub fn one_line(text: Cow<'static, str>, most: usize) -> Cow<'static, str> {
    if text.len() <= most && !text.contains(char::is_control) {
        return text;
    }
    let mut line = String::new();
    for letter in text.chars() {
        if line.len() >= most {
            line.push('\u{2026}');
            break;
        }
        match letter.is_control() {
            true => line.extend(letter.escape_debug()),
            false => line.push(letter),
        }
    }
    line.into()
}

// Names of locks, which errors tell.

/// The name of a lock: 1 to [`LockName::MAX_LEN`] bytes, any bytes. Use [`hashed`](LockName::hashed) for longer names.
///
/// Names are compared byte by byte; there is no normalisation, and no byte has a special meaning. Drivers encode bytes
/// that their backend would misread (`{`, `}`, `%`, control bytes), so two different names never collide.
///
/// ```
/// # use tenure_core as tenure;
/// use tenure::LockName;
///
/// let name = LockName::new("orders/{42}")?;
/// assert_eq!(name.as_bytes(), b"orders/{42}");
/// assert!(LockName::new("").is_err());
/// # Ok::<(), tenure_core::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockName(Arc<[u8]>);

impl LockName {
    /// The longest name, in bytes.
    pub const MAX_LEN: usize = 512;

    /// Checks `name` and takes a copy of it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] when the name is empty or longer than [`LockName::MAX_LEN`] bytes.
    pub fn new(name: impl AsRef<[u8]>) -> Result<Self> {
        let bytes = name.as_ref();
        if bytes.is_empty() {
            return Err(Error::new(ErrorKind::InvalidArgument, "the name of a lock must not be empty"));
        }
        if bytes.len() > Self::MAX_LEN {
            let text = format!("the name of a lock has {} bytes, the most is {}", bytes.len(), Self::MAX_LEN);
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        Ok(Self(bytes.into()))
    }

    /// Makes a name from input of any length: `prefix`, and the SHA-256 of `long` as 64 lowercase hexadecimal digits.
    ///
    /// For names made of external input (URLs, paths, queries), which may be longer than [`LockName::MAX_LEN`]. The
    /// form does not depend on the length of `long` and will not change, so that other programs and languages can make
    /// the same name. In a shell: `printf 'page/%s' "$(printf %s "$url" | sha256sum | cut -c 1-64)"`.
    ///
    /// Two names that differ only in `long` are one lock if their hashes collide. No collision of SHA-256 is known, nor
    /// a way to find one, even if an attacker chooses both inputs. If it happened, one holder would wait for the
    /// other without need; nothing would be held twice. Names with different prefixes never collide, since the hash
    /// always has the same length. A name from [`LockName::new`] with the same bytes is the same name: keep the prefix
    /// for hashed names.
    ///
    /// ```
    /// # use tenure_core as tenure;
    /// use tenure::LockName;
    ///
    /// let url = format!("https://example.com/?q={}", "x".repeat(2_000));
    /// let name = LockName::hashed("page/", url)?;
    /// assert_eq!(name.as_bytes().len(), "page/".len() + 64);
    /// # Ok::<(), tenure_core::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] when the prefix is longer than 448 bytes, so that the hash does not fit after it.
    pub fn hashed(prefix: impl AsRef<[u8]>, long: impl AsRef<[u8]>) -> Result<Self> {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut name = prefix.as_ref().to_vec();
        let most = Self::MAX_LEN - 64;
        if name.len() > most {
            let text = format!("the prefix of a hashed name has {} bytes, the most is {most}", name.len());
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        for byte in hmac_sha256::Hash::hash(long.as_ref()) {
            name.extend([byte >> 4, byte & 15].map(|digit| DIGITS[usize::from(digit)]));
        }
        Self::new(name)
    }

    /// Returns the bytes of the name.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Lets a name be passed where bytes of a name are accepted.
impl AsRef<[u8]> for LockName {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for LockName {
    /// Prints printable ASCII as it is, every other byte as `\xNN`, so that a name cannot break a log line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

impl fmt::Debug for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LockName(\"{self}\")")
    }
}

/// A holder's note for operators, such as its identity and purpose. 0 to [`Label::MAX_LEN`] bytes of UTF-8.
///
/// A label is visible to every client that can inspect the lock. Do not put secrets into it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Label(Arc<str>);

impl Label {
    /// The longest label, in bytes.
    pub const MAX_LEN: usize = 128;

    /// Checks `label` and takes a copy of it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] when the label is longer than [`Label::MAX_LEN`] bytes.
    pub fn new(label: impl AsRef<str>) -> Result<Self> {
        let text = label.as_ref();
        if text.len() > Self::MAX_LEN {
            let reason = format!("a label has {} bytes, the most is {}", text.len(), Self::MAX_LEN);
            return Err(Error::new(ErrorKind::InvalidArgument, reason));
        }
        Ok(Self(text.into()))
    }

    /// Returns the text of the label.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_debug())
    }
}

impl fmt::Debug for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Label(\"{self}\")")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_timeout_is_a_timeout() {
        assert!(Error::new(ErrorKind::TimedOut, "late").is_timed_out());
        assert!(!Error::new(ErrorKind::Unavailable, "gone").is_timed_out());
    }

    #[test]
    fn an_error_says_what_where_and_keeps_its_cause() {
        let name = LockName::new("orders/42").unwrap();
        let error = Error::new(ErrorKind::Unavailable, "connection refused")
            .with_source(std::io::Error::from(std::io::ErrorKind::ConnectionRefused))
            .during("redis", "acquire", &name);
        assert_eq!(
            error.to_string(),
            "backend unavailable: connection refused (acquire of \"orders/42\" through redis)"
        );
        assert!(error.source().unwrap().downcast_ref::<std::io::Error>().is_some());
        assert!(error.is_transient() && !error.is_lost());
    }

    /// Collects the texts as printers of error reports do.
    fn chain(error: &dyn StdError) -> Vec<String> {
        std::iter::once(error.to_string()).chain(causes(error.source()).map(ToString::to_string)).collect()
    }

    #[test]
    fn a_chain_says_each_cause_once_and_so_does_one_line() {
        let name = LockName::new("orders/42").unwrap();
        let cause = || std::io::Error::other("connection refused");
        let error = Error::new(ErrorKind::Unavailable, "cannot connect to h:1").with_source(cause());
        let error = error.at("node 2").during("redis", "acquire", &name);
        let sentence = "backend unavailable: node 2: cannot connect to h:1 (acquire of \"orders/42\" through redis)";
        assert_eq!(chain(&error), [sentence, "connection refused"]);
        let whole = "backend unavailable: node 2: cannot connect to h:1: connection refused (acquire of \"orders/42\" \
                     through redis)";
        assert_eq!((format!("{error:#}"), format!("{error:?}")), (whole.to_owned(), whole.to_owned()));
        assert!(format!("{error:#?}").contains("causes: ["), "{error:#?}");
        let again = error.again();
        assert_eq!(again.reason(), error.reason());
        assert!(again.name().is_none() && again.source().unwrap().is::<std::io::Error>());
    }

    #[test]
    fn a_cause_that_the_message_tells_is_kept_and_not_reported_again() {
        let error = Error::new(ErrorKind::Protocol, "no answer").with_told_source(std::io::Error::other("eof"));
        assert_eq!(error.reason(), Error::new(ErrorKind::Protocol, "no answer").reason());
        assert!(error.source().unwrap().is::<std::io::Error>());
    }

    #[test]
    fn what_a_message_says_already_is_not_said_again() {
        let cause = std::io::Error::other("eof");
        let whole = |message| reason(message, Some(&cause));
        assert_eq!(["no answer", "no answer (eof)", ""].map(whole), ["no answer: eof", "no answer (eof)", "eof"]);
    }

    #[test]
    fn what_a_server_said_stays_on_one_line_and_is_not_endless() {
        assert_eq!(one_line("a\nb".into(), 100), "a\\nb");
        let said = format!("a\nb\u{1b}[31mc\0 \"quoted\" caf\u{e9}{}", "x".repeat(1_000_000));
        let error = Error::new(ErrorKind::Protocol, said.clone()).with_source(std::io::Error::other(said));
        for text in [error.to_string(), format!("{error:#}"), format!("{error:?}")] {
            assert!(text.contains("a\\nb\\u{1b}[31mc\\0 \"quoted\" caf\u{e9}x"), "{text}");
            assert!(!text.contains(char::is_control) && text.len() < 5_000, "{} bytes", text.len());
        }
    }

    #[test]
    fn what_stopped_half_way_may_have_been_applied() {
        let denied = || Error::new(ErrorKind::Denied, "a right is missing");
        assert!(denied().was_not_applied());
        assert!(!denied().half_way().was_not_applied());
        assert!(!Error::new(ErrorKind::Indeterminate, "no answer").was_not_applied());
    }

    #[test]
    fn names_are_checked_at_the_door() {
        assert_eq!(LockName::new("").unwrap_err().kind(), ErrorKind::InvalidArgument);
        assert!(LockName::new([b'x'; LockName::MAX_LEN]).is_ok());
        let long = LockName::new([b'x'; LockName::MAX_LEN + 1]).unwrap_err();
        assert!(long.to_string().contains("513 bytes"), "{long}");
        assert!(LockName::new("a\0b\n{}%\u{fe}").is_ok());
    }

    #[test]
    fn a_hashed_name_is_what_sha256sum_prints() {
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"; // FIPS 180-4
        assert_eq!(LockName::hashed("page/", "abc").unwrap().to_string(), format!("page/{abc}"));
        assert_eq!(LockName::hashed("", "abc").unwrap().to_string(), abc);
        let long = LockName::hashed([b'p'; 448], [b'x'; 100_000]).unwrap();
        assert_eq!(long.as_bytes().len(), LockName::MAX_LEN);
        assert_ne!(long, LockName::hashed([b'p'; 448], [b'x'; 100_001]).unwrap());
        assert_eq!(LockName::hashed([b'p'; 449], "abc").unwrap_err().kind(), ErrorKind::InvalidArgument);
    }

    #[test]
    fn a_name_cannot_break_a_log_line() {
        assert_eq!(LockName::new(b"a\nb\xff").unwrap().to_string(), "a\\nb\\xff");
    }

    #[test]
    fn labels_have_a_cap() {
        assert!(Label::new("x".repeat(Label::MAX_LEN)).is_ok());
        assert_eq!(Label::new("x".repeat(Label::MAX_LEN + 1)).unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
}
