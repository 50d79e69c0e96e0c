//! Names of locks and queues as arguments: bytes, or their digits where a shell cannot say them.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use serde::Serialize;

use crate::exit::Failure;

/// How names are written on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spelling {
    /// As they are.
    Bytes,
    /// Two hexadecimal digits a byte.
    Hex,
}

impl Spelling {
    pub(crate) fn of(name_hex: bool) -> Self {
        if name_hex { Self::Hex } else { Self::Bytes }
    }

    pub(crate) fn read(self, name: &OsStr) -> Result<Vec<u8>, Failure> {
        match self {
            Self::Bytes => Ok(name.as_bytes().to_vec()),
            Self::Hex => from_hex(name.as_bytes())
                .ok_or_else(|| Failure::usage("with --name-hex a name is two hexadecimal digits for each byte")),
        }
    }
}

fn from_hex(digits: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let pairs = digits.chunks(2).map(|pair| match *pair {
        [high, low] => u8::try_from(digit(high)? * 16 + digit(low)?).ok(),
        _ => None,
    });
    pairs.collect()
}

/// Two hexadecimal digits a byte.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// For messages: printable, and on one line.
pub(crate) fn show(name: &[u8]) -> String {
    name.escape_ascii().to_string().replace("\\'", "'")
}

/// For text of people, where UTF-8 is printable.
pub(crate) fn text(name: &[u8]) -> String {
    match std::str::from_utf8(name) {
        Ok(text) if !text.chars().any(char::is_control) => text.to_owned(),
        _ => show(name),
    }
}

/// The digits of a name that is not the same as its text: only they can be given back.
pub(crate) fn digits(name: &[u8]) -> Option<String> {
    (text(name).as_bytes() != name).then(|| hex(name))
}

/// The name of a lock, for programs.
#[derive(Debug, Serialize)]
pub(crate) struct NameView {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    name_hex: Option<String>,
}

impl NameView {
    pub(crate) fn of(name: &[u8]) -> Self {
        Self { name: text(name), name_hex: digits(name) }
    }
}

/// As a variable holds it; what one cannot hold, in digits.
pub(crate) fn os(name: &[u8]) -> OsString {
    if name.contains(&0) { hex(name).into() } else { OsString::from_vec(name.to_vec()) }
}

/// The variable that gives a program the name, and its value: a name with a zero byte is written in digits.
pub(crate) fn variable(name: &[u8]) -> (&'static str, OsString) {
    (if name.contains(&0) { "TENURE_LOCK_HEX" } else { "TENURE_LOCK" }, os(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_bytes() {
        assert_eq!(Spelling::Hex.read(OsStr::new("00fF41")).unwrap(), [0, 255, 65]);
        assert_eq!(Spelling::Bytes.read(OsStr::new("00")).unwrap(), b"00");
        for bad in ["0", "0g", "é"] {
            assert!(Spelling::Hex.read(OsStr::new(bad)).is_err(), "{bad}");
        }
        assert_eq!(hex(&[0, 255, 65]), "00ff41");
    }

    #[test]
    fn a_name_that_a_variable_cannot_hold_is_reported_in_digits() {
        assert_eq!(variable(b"a\0"), ("TENURE_LOCK_HEX", "6100".into()));
        assert_eq!(variable(b"orders/42"), ("TENURE_LOCK", "orders/42".into()));
    }

    #[test]
    fn names_stay_on_one_line() {
        assert_eq!(text("über".as_bytes()), "über");
        assert_eq!(text(b"a\nb\xff"), "a\\nb\\xff");
    }

    #[test]
    fn names_that_are_not_printed_as_they_are_have_digits() {
        assert_eq!(digits(b"a\n\xff"), Some(String::from("610aff")));
        assert_eq!((digits("über".as_bytes()), digits(b"a\\n\\xff")), (None, None));
    }
}
