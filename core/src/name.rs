//! Names of locks and labels of holders: bytes within stated limits.

use std::fmt;
use std::sync::Arc;

use crate::error::{Error, ErrorKind, Result};

/// The name of a lock: 1 to [`LockName::MAX_LEN`] bytes, any bytes.
///
/// Names are compared byte by byte; there is no normalisation, and no byte has a meaning of its own. Drivers encode
/// what their backend would misread (`{`, `}`, `%`, control bytes), so two different names never meet.
///
/// ```
/// use tenure_core::LockName;
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

    /// The bytes of the name.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for LockName {
    /// Printable ASCII as it is, every other byte as `\xNN`, so that a name cannot break a log line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

impl fmt::Debug for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LockName(\"{self}\")")
    }
}

/// A note that a holder leaves for operators: who it is, why it holds. 0 to [`Label::MAX_LEN`] bytes of UTF-8.
///
/// A label is visible to everybody who can inspect the lock. Do not put secrets into it.
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

    /// The text of the label.
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
    fn names_are_checked_at_the_door() {
        assert_eq!(LockName::new("").unwrap_err().kind(), ErrorKind::InvalidArgument);
        assert!(LockName::new([b'x'; LockName::MAX_LEN]).is_ok());
        let long = LockName::new([b'x'; LockName::MAX_LEN + 1]).unwrap_err();
        assert!(long.to_string().contains("513 bytes"), "{long}");
        assert!(LockName::new("a\0b\n{}%\u{fe}").is_ok());
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
