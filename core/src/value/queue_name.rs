//! Names around a queue: its own, a message's, a concurrency key's, the reason of a failure, and the text of a schedule.

use std::fmt;
use std::sync::Arc;

use crate::value::error::{Error, ErrorKind, LockName, Result};

/// The name of a queue: 1 to [`QueueName::MAX_LEN`] bytes, any bytes. Compared byte by byte.
///
/// Queues and locks live apart: the same name can be both.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueName(LockName);

impl QueueName {
    /// The longest name, in bytes.
    pub const MAX_LEN: usize = 256;

    /// Checks `name` and takes a copy of it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] when the name is empty or longer than [`QueueName::MAX_LEN`] bytes.
    pub fn new(name: impl AsRef<[u8]>) -> Result<Self> {
        let bytes = checked("the name of a queue", name.as_ref(), Self::MAX_LEN)?;
        Ok(Self(LockName::new(bytes)?))
    }

    /// The bytes of the name.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// The name as errors carry it.
    pub(crate) fn for_errors(&self) -> &LockName {
        &self.0
    }
}

impl fmt::Display for QueueName {
    /// Printable ASCII as it is, every other byte as `\xNN`, so that a name cannot break a log line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for QueueName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "QueueName(\"{self}\")")
    }
}

/// By what a message is known within its queue: a number that the backend gave, or a name that the caller chose.
///
/// A name makes a push idempotent: pushing the same name again stores nothing and says so.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId(Id);

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Id {
    Assigned(u64),
    Named(Arc<[u8]>),
}

impl MessageId {
    /// The longest name of a message, in bytes.
    pub const MAX_LEN: usize = 128;

    /// A name chosen by the caller.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] when the name is empty or longer than [`MessageId::MAX_LEN`] bytes.
    pub fn named(name: impl AsRef<[u8]>) -> Result<Self> {
        Ok(Self(Id::Named(checked("the id of a message", name.as_ref(), Self::MAX_LEN)?.into())))
    }

    /// A number given by the backend.
    #[must_use]
    pub const fn assigned(number: u64) -> Self {
        Self(Id::Assigned(number))
    }

    /// The caller's name, if it is one.
    #[must_use]
    pub fn as_name(&self) -> Option<&[u8]> {
        match &self.0 {
            Id::Named(name) => Some(name),
            Id::Assigned(_) => None,
        }
    }

    /// The backend's number, if it is one.
    #[must_use]
    pub const fn as_number(&self) -> Option<u64> {
        match &self.0 {
            Id::Assigned(number) => Some(*number),
            Id::Named(_) => None,
        }
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Id::Assigned(number) => write!(f, "#{number}"),
            Id::Named(name) => write!(f, "{}", name.escape_ascii()),
        }
    }
}

impl fmt::Debug for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MessageId({self})")
    }
}

/// What messages have in common that must not be worked on at the same time: at most one message of a key is in
/// flight within its queue.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConcurrencyKey(Arc<[u8]>);

impl ConcurrencyKey {
    /// The longest key, in bytes.
    pub const MAX_LEN: usize = 128;

    /// Checks `key` and takes a copy of it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] when the key is empty or longer than [`ConcurrencyKey::MAX_LEN`] bytes.
    pub fn new(key: impl AsRef<[u8]>) -> Result<Self> {
        Ok(Self(checked("a concurrency key", key.as_ref(), Self::MAX_LEN)?.into()))
    }

    /// The bytes of the key.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for ConcurrencyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ConcurrencyKey(\"{}\")", self.0.escape_ascii())
    }
}

/// Why the handling of a message failed, in words, kept with the message. 0 to [`Reason::MAX_LEN`] bytes of UTF-8.
///
/// Visible to everybody who can look at the queue. Do not put secrets into it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Reason(Arc<str>);

impl Reason {
    /// The longest reason, in bytes.
    pub const MAX_LEN: usize = 256;

    /// Checks `text` and takes a copy of it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] when it is longer than [`Reason::MAX_LEN`] bytes.
    pub fn new(text: impl AsRef<str>) -> Result<Self> {
        let text = text.as_ref();
        if text.len() > Self::MAX_LEN {
            let told = format!("a reason has {} bytes, the most is {}", text.len(), Self::MAX_LEN);
            return Err(Error::new(ErrorKind::InvalidArgument, told));
        }
        Ok(Self(text.into()))
    }

    /// The beginning of `text`, as much as fits: for messages of errors, whose length nobody controls.
    #[must_use]
    pub fn beginning_of(text: &str) -> Self {
        let mut end = text.len().min(Self::MAX_LEN);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        Self(text[..end].into())
    }

    /// The reason of a message that is dead because the lease of its last delivery ended: its consumer crashed, hung, or
    /// lost the answer.
    #[must_use]
    pub fn lease_ended() -> Self {
        Self("the lease of its last delivery ended".into())
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_debug())
    }
}

impl fmt::Debug for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reason(\"{self}\")")
    }
}

/// On which schedule a message comes again, as the client writes it; drivers keep it as it is. 1 to
/// [`Recurrence::MAX_LEN`] bytes of UTF-8.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Recurrence(Arc<str>);

impl Recurrence {
    /// The longest text, in bytes.
    pub const MAX_LEN: usize = 256;

    /// Checks `text` and takes a copy of it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] when it is empty or longer than [`Recurrence::MAX_LEN`] bytes.
    pub fn new(text: impl AsRef<str>) -> Result<Self> {
        let text = text.as_ref();
        checked("a recurrence", text.as_bytes(), Self::MAX_LEN)?;
        Ok(Self(text.into()))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Recurrence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Recurrence(\"{}\")", self.0.escape_debug())
    }
}

fn checked<'a>(what: &str, bytes: &'a [u8], most: usize) -> Result<&'a [u8]> {
    if bytes.is_empty() {
        return Err(Error::new(ErrorKind::InvalidArgument, format!("{what} must not be empty")));
    }
    if bytes.len() > most {
        let text = format!("{what} has {} bytes, the most is {most}", bytes.len());
        return Err(Error::new(ErrorKind::InvalidArgument, text));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked_at_the_door() {
        for refused in [
            QueueName::new("").map(drop),
            QueueName::new([b'x'; QueueName::MAX_LEN + 1]).map(drop),
            MessageId::named("").map(drop),
            MessageId::named([0; MessageId::MAX_LEN + 1]).map(drop),
            ConcurrencyKey::new("").map(drop),
            Reason::new("x".repeat(Reason::MAX_LEN + 1)).map(drop),
            Recurrence::new("").map(drop),
            Recurrence::new("x".repeat(Recurrence::MAX_LEN + 1)).map(drop),
        ] {
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidArgument);
        }
        assert_eq!(QueueName::new("a\0{b}").unwrap().to_string(), "a\\x00{b}");
        assert_ne!(MessageId::named("7").unwrap(), MessageId::assigned(7));
    }

    #[test]
    fn a_reason_is_cut_between_characters() {
        let long = "é".repeat(Reason::MAX_LEN);
        assert_eq!(Reason::beginning_of(&long).as_str().len(), Reason::MAX_LEN);
        assert_eq!(Reason::beginning_of(&format!("x{long}")).as_str().len(), Reason::MAX_LEN - 1);
    }
}
