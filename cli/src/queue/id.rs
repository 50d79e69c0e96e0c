//! Ids of messages as they are shown, and read back.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use tenure::queue::MessageId;

use crate::exit::Failure;

/// `#7` is the number that a message without a name was given; anything else is a name.
pub(super) fn read(text: &OsStr) -> Result<MessageId, Failure> {
    let number = text.to_str().and_then(|text| text.strip_prefix('#')?.parse().ok());
    match number {
        Some(number) => Ok(MessageId::assigned(number)),
        None => Ok(MessageId::named(text.as_bytes())?),
    }
}

/// As [`read`] reads it, where it can be printed.
pub(super) fn show(id: &MessageId) -> String {
    id.as_name().map_or_else(|| id.to_string(), crate::name::text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_is_read_back() {
        for id in [MessageId::assigned(7), MessageId::named("bill/7").unwrap(), MessageId::named("#bill").unwrap()] {
            assert_eq!(read(OsStr::new(&show(&id))).unwrap(), id);
        }
        assert!(read(OsStr::new("")).is_err());
    }
}
