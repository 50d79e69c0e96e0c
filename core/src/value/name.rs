//! Names of locks and labels of holders: bytes within stated limits.

use std::fmt;
use std::sync::Arc;

use crate::value::error::{Error, ErrorKind, Result};

/// The name of a lock: 1 to [`LockName::MAX_LEN`] bytes, any bytes. What may be longer is [hashed](LockName::hashed).
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

    /// The name that stands for one of any length: `prefix`, and the SHA-256 of `long` as 64 lowercase hexadecimal digits.
    ///
    /// For names made of what others write (URLs, paths, queries), which may be longer than [`LockName::MAX_LEN`]. The form
    /// does not depend on the length of `long` and will not change, so that other programs and languages can make the same
    /// name. In a shell: `printf 'page/%s' "$(printf %s "$url" | sha256sum | cut -c 1-64)"`.
    ///
    /// Two names that differ only in `long` are one lock if their hashes collide. No two inputs of SHA-256 are known that
    /// do, nor a way to find any, also for somebody who chooses both. If it happened, one holder would wait for the other without
    /// need; nothing would be held twice. Names with different prefixes never meet, since the hash always has the same
    /// length. A name from [`LockName::new`] that looks the same is the same: keep the prefix for hashed names.
    ///
    /// ```
    /// use tenure_core::LockName;
    ///
    /// let url = format!("https://example.com/?q={}", "x".repeat(2_000));
    /// let name = LockName::hashed("page/", url)?;
    /// assert_eq!(name.as_bytes().len(), "page/".len() + 64);
    /// # Ok::<(), tenure_core::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] when the prefix is longer than 448 bytes, so that the hash does not fit behind it.
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

    /// The bytes of the name.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// So that a name can be given where the bytes of one are asked for.
impl AsRef<[u8]> for LockName {
    fn as_ref(&self) -> &[u8] {
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
