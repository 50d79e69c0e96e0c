//! Inputs for parsers of what comes from outside: mostly made of the words that a parser knows, so that they get far.
//!
//! `TENURE_INPUTS` says how many a property is tried with; 100000 if it says nothing.

use std::fmt::{Debug, Display};
use std::ops::Range;

use peak_alloc::PeakAlloc;
use proptest::collection::vec;
use proptest::prelude::*;

/// The most bytes that reading one input may take for a while, whatever numbers the input has in it.
const MOST_BYTES: usize = 8 * 1024 * 1024;

/// The longest error, in bytes.
const LONGEST_ERROR: usize = 4 * 1024;

/// A part of the password of each of the [`logins`], which no error may contain.
pub const SECRET: &str = "s3cr3t";

/// How a property is tried.
///
/// # Panics
///
/// When `TENURE_INPUTS` is not a number.
#[must_use]
pub fn config() -> ProptestConfig {
    let cases = std::env::var("TENURE_INPUTS").map_or(100_000, |text| text.parse().expect("TENURE_INPUTS is a number"));
    // A failure is printed with the smallest input that shows it, which becomes a test of its own.
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

/// So many pieces, each a word or, as often as three of them, any character.
pub fn text(words: &'static [&'static str], pieces: Range<usize>) -> impl Strategy<Value = String> {
    let any_character = words.len() + 3;
    let piece = (0..any_character, any::<char>());
    vec(piece, pieces).prop_map(move |pieces| {
        pieces.into_iter().fold(String::new(), |mut text, (at, other)| {
            match words.get(at) {
                Some(word) => text.push_str(word),
                None => text.push(other),
            }
            text
        })
    })
}

/// URLs with a user and a password that contains [`SECRET`]. Nothing in them is encoded, so the login may end early.
pub fn logins(schemes: &'static [&'static str], words: &'static [&'static str]) -> impl Strategy<Value = String> {
    let parts = (0..schemes.len(), text(words, 0..5), text(words, 0..5), text(words, 0..12));
    parts.prop_map(|(scheme, before, after, rest)| format!("{}://app:{before}{SECRET}{after}@{rest}", schemes[scheme]))
}

/// So many pieces, each a word or, as often as three of them, any byte.
pub fn bytes(words: &'static [&'static str], pieces: Range<usize>) -> impl Strategy<Value = Vec<u8>> {
    let any_byte = words.len() + 3;
    vec((0..any_byte, any::<u8>()), pieces).prop_map(move |pieces| {
        pieces.into_iter().fold(Vec::new(), |mut bytes, (at, other)| {
            match words.get(at) {
                Some(word) => bytes.extend_from_slice(word.as_bytes()),
                None => bytes.push(other),
            }
            bytes
        })
    })
}

/// Bytes without any order, of such a length.
pub fn noise(length: Range<usize>) -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), length)
}

/// Changes of a few bytes: written over, put in, taken out, or all cut off from there on.
pub fn damage() -> impl Strategy<Value = Vec<(u8, u16, u8)>> {
    vec((0..4_u8, any::<u16>(), any::<u8>()), 1..4)
}

/// The bytes after these changes.
#[must_use]
pub fn damaged(mut bytes: Vec<u8>, damage: &[(u8, u16, u8)]) -> Vec<u8> {
    for (kind, at, byte) in damage {
        let at = usize::from(*at) % (bytes.len() + 1);
        match kind {
            0 => bytes.insert(at, *byte),
            1 => bytes.truncate(at),
            _ if at == bytes.len() => {}
            2 => bytes[at] = *byte,
            _ => drop(bytes.remove(at)),
        }
    }
    bytes
}

/// Reads something. The program's allocator is given, which counts.
///
/// # Panics
///
/// When that takes many times the memory that any input here has, as when a length in it was believed.
pub fn frugally<T>(allocator: &PeakAlloc, read: impl FnOnce() -> T) -> T {
    allocator.reset_peak_usage();
    let before = allocator.current_usage();
    let result = read();
    let taken = allocator.peak_usage().saturating_sub(before);
    assert!(taken < MOST_BYTES, "{taken} bytes were taken");
    result
}

/// Looks at an error: it says something, on one line, at no great length, and none of these words.
///
/// # Panics
///
/// When it does not.
pub fn assert_sound(error: &(impl Display + Debug), secrets: &[&str]) {
    let reported = error.to_string();
    assert!(!reported.is_empty() && reported.len() <= LONGEST_ERROR, "an error of {} bytes", reported.len());
    assert!(!reported.contains(char::is_control), "{reported:?}");
    let all = format!("{reported} {error:?}");
    for secret in secrets {
        assert!(!all.contains(secret), "{secret}: {all}");
    }
}
