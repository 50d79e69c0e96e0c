//! Identities: owner tokens, owner ids, and fencing tokens.

use std::fmt;
use std::num::{NonZeroU64, TryFromIntError};
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::value::error::{Error, ErrorKind, Result};

/// Length of the text form of a 128-bit identity: unpadded base64url.
const TEXT_LEN: usize = 22;

/// The secret of one acquisition: 128 random bits, fresh for every attempt to take a lock.
///
/// Release, renewal and abandonment compare it at the backend, so a stale handle can do nothing. Any client that has
/// the token can release the lock: `Debug` and `Display` therefore show only its first four characters.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct OwnerToken([u8; 16]);

impl OwnerToken {
    /// Makes a fresh token with the operating system's generator.
    ///
    /// # Panics
    ///
    /// When the operating system has no randomness; no lock would be safe then.
    #[must_use]
    pub fn random() -> Self {
        Self(random_bits())
    }

    /// Returns the whole token in its 22-character text form. This is the secret: keep it out of logs.
    #[must_use]
    pub fn expose(&self) -> TokenText {
        TokenText::of(self.0)
    }

    /// Makes the token with these bits.
    pub(crate) const fn from_bits(bits: [u8; 16]) -> Self {
        Self(bits)
    }

    /// Returns the bits of the token. This is the secret: keep it out of logs.
    pub(crate) const fn to_bits(self) -> [u8; 16] {
        self.0
    }

    /// Returns a number in 0..1 that differs between tokens.
    pub(crate) fn spread(&self) -> f64 {
        f64::from(self.0[0]) / 256.0
    }

    /// Parses the text form.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] when `text` is not an output of [`OwnerToken::expose`].
    pub fn parse(text: &str) -> Result<Self> {
        decode(text).map(Self).ok_or_else(|| Error::new(ErrorKind::InvalidArgument, "not the text of an owner token"))
    }
}

impl fmt::Debug for OwnerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OwnerToken({self})")
    }
}

impl fmt::Display for OwnerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\u{2026}", &self.expose().as_str()[..4])
    }
}

/// The owner of a [`Reentrant`](crate::Reentrant) lock: an explicit value, not a thread and not a task.
///
/// Clones are the same owner, in this process and in every other that has the same id.
///
/// An id is a name, not a secret like [`OwnerToken`]: it is printed whole, and every client that can inspect a lock
/// sees [its owner](crate::Holder::owner). A client that knows the id and may use the backend can enter the owner's
/// locks, but can undo only its own entries.
///
/// ```
/// # use tenure_core as tenure;
/// use tenure::OwnerId;
///
/// let me = OwnerId::new();
/// let also_me: OwnerId = me.to_string().parse()?;
/// assert_eq!(me, also_me);
/// # Ok::<(), tenure_core::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnerId([u8; 16]);

impl OwnerId {
    /// Makes a new owner: 128 random bits.
    ///
    /// # Panics
    ///
    /// When the operating system has no randomness.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "each call makes a different owner, which a default should not")]
    pub fn new() -> Self {
        Self(random_bits())
    }

    /// Makes the owner with these 128 bits, for identities from elsewhere (a session, a saga).
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }
}

impl fmt::Debug for OwnerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OwnerId({self})")
    }
}

impl fmt::Display for OwnerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(TokenText::of(self.0).as_str())
    }
}

impl FromStr for OwnerId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        decode(text).map(Self).ok_or_else(|| Error::new(ErrorKind::InvalidArgument, "not the text of an owner id"))
    }
}

/// The text form of an identity: 22 characters on the stack.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TokenText([u8; TEXT_LEN]);

impl TokenText {
    fn of(bits: [u8; 16]) -> Self {
        let mut text = [0; TEXT_LEN];
        URL_SAFE_NO_PAD.encode_slice(bits, &mut text).expect("16 bytes are 22 characters");
        Self(text)
    }

    /// Returns the characters.
    #[must_use]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("the alphabet is ASCII")
    }
}

impl AsRef<[u8]> for TokenText {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for TokenText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenText(\u{2026})")
    }
}

/// The order of a grant among all grants of the same name: strictly greater than every earlier one.
///
/// Pass it to the resource that the lock protects, before you read and when you write, and let the resource refuse
/// smaller tokens than it has seen ([`FenceGate`](crate::FenceGate) is the in-process form, and shows the SQL
/// statements). Then a holder that was paused past its lease does no harm. The idea and the name are Martin Kleppmann's
/// ("How to do distributed locking", 2016).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken(NonZeroU64);

impl FencingToken {
    /// Makes the token with this number; zero is not a token.
    #[must_use]
    pub const fn new(number: u64) -> Option<Self> {
        match NonZeroU64::new(number) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }

    /// Returns the number, to be stored next to the protected data.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0.get()
    }
}

/// Converts to an SQL column: `bigint`. All drivers' fences fit; they are below 2⁶³.
impl TryFrom<FencingToken> for i64 {
    type Error = TryFromIntError;

    fn try_from(fence: FencingToken) -> Result<Self, TryFromIntError> {
        Self::try_from(fence.get())
    }
}

/// Converts from an SQL column; fails for numbers that are not positive.
impl TryFrom<i64> for FencingToken {
    type Error = TryFromIntError;

    fn try_from(number: i64) -> Result<Self, TryFromIntError> {
        u64::try_from(number).and_then(NonZeroU64::try_from).map(Self)
    }
}

impl fmt::Debug for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FencingToken({self})")
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

fn random_bits() -> [u8; 16] {
    let mut bits = [0; 16];
    getrandom::fill(&mut bits).expect("the operating system gives random bytes");
    bits
}

/// Decodes the exact text of 16 bytes, and refuses all others, including extra bits after the last byte.
fn decode(text: &str) -> Option<[u8; 16]> {
    let mut bits = [0; 16];
    let read = URL_SAFE_NO_PAD.decode_slice(text, &mut bits).ok()?;
    (read == bits.len()).then_some(bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_form_round_trips_and_is_canonical() {
        for token in [OwnerToken([0; 16]), OwnerToken([0xff; 16]), OwnerToken::random()] {
            assert_eq!(OwnerToken::parse(token.expose().as_str()).unwrap(), token);
        }
        assert_eq!(OwnerToken([0; 16]).expose().as_str(), "AAAAAAAAAAAAAAAAAAAAAA");
        assert_eq!(OwnerToken([0xff; 16]).expose().as_str(), "_____________________w");
        assert!(OwnerToken::parse("_____________________x").is_err());
        assert!(OwnerToken::parse("short").is_err());
        for wrong in [
            "AAAAAAAAAAAAAAAAAAAAAAA",
            "AAAAAAAAAAAAAAAAAAAAAAAA",
            "AAAAAAAAAAAAAAAAAAAAA=",
            "AAAAAAAAAAAAAAAAAAAA==",
            "+AAAAAAAAAAAAAAAAAAAAA",
        ] {
            assert!(OwnerToken::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn tokens_are_not_printed_whole() {
        let token = OwnerToken::random();
        assert!(!format!("{token:?} {token}").contains(token.expose().as_str()));
    }

    #[test]
    fn fencing_tokens_are_ordered_and_not_zero() {
        assert!(FencingToken::new(0).is_none());
        assert!(FencingToken::new(2) > FencingToken::new(1));
    }

    #[test]
    fn a_fence_goes_into_a_bigint_and_comes_back() {
        for number in [1, 1 << 53, i64::MAX] {
            let fence = FencingToken::try_from(number).unwrap();
            assert_eq!((fence.get(), i64::try_from(fence)), (number as u64, Ok(number)));
        }
        assert!(FencingToken::try_from(0_i64).is_err() && FencingToken::try_from(-1_i64).is_err());
        assert!(i64::try_from(FencingToken::new(1 << 63).unwrap()).is_err());
    }
}
