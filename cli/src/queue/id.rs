//! Ids of messages as they are shown, and read back.

use std::ffi::OsStr;

use serde::Serialize;
use tenure::queue::MessageId;

use crate::exit::Failure;
use crate::name::{self, Spelling};

/// `#7` is the number of a message that was stored without a name, `##7` the name `#7`; anything else is a name. In digits, an id
/// is always a name.
pub(super) fn read(text: &OsStr, spelling: Spelling) -> Result<MessageId, Failure> {
    let bytes = spelling.read(text)?;
    let name = match bytes.strip_prefix(b"#").filter(|_| spelling == Spelling::Bytes) {
        None => bytes.as_slice(),
        Some(name) if name.starts_with(b"#") => name,
        Some(digits) => {
            let number = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok());
            let number = number.ok_or_else(|| {
                Failure::usage("an id that begins with # is a number, #7; a name that begins with # has two, ##bill")
            })?;
            return Ok(MessageId::assigned(number));
        }
    };
    Ok(MessageId::named(name)?)
}

/// As [`read`] reads it, where it can be printed.
pub(super) fn show(id: &MessageId) -> String {
    match id.as_name() {
        None => id.to_string(),
        Some(name) if name.starts_with(b"#") => format!("#{}", name::text(name)),
        Some(name) => name::text(name),
    }
}

/// An id, for programs; in digits as well where [`read`] does not read back the shown form.
#[derive(Debug, Serialize)]
pub(super) struct IdView {
    id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    id_hex: Option<String>,
}

impl IdView {
    pub(super) fn of(id: &MessageId) -> Self {
        Self { id: show(id), id_hex: id.as_name().and_then(name::digits) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_is_read_back() {
        for (name, shown) in [("bill/7", "bill/7"), ("#7", "##7"), ("#bill", "##bill"), ("##7", "###7"), ("#", "##")] {
            let id = MessageId::named(name).unwrap();
            assert_eq!(show(&id), shown);
            assert_eq!(read(OsStr::new(shown), Spelling::Bytes).unwrap(), id);
        }
        assert_eq!(read(OsStr::new("#7"), Spelling::Bytes).unwrap(), MessageId::assigned(7));
        assert_eq!(read(OsStr::new("2337"), Spelling::Hex).unwrap(), MessageId::named("#7").unwrap());
        for wrong in ["", "#", "#bill", "#-7"] {
            assert!(read(OsStr::new(wrong), Spelling::Bytes).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_id_that_cannot_be_printed_has_digits() {
        let view = |name: &[u8]| serde_json::to_string(&IdView::of(&MessageId::named(name).unwrap())).unwrap();
        assert_eq!(view(b"#\xff"), r###"{"id":"##\\xff","id_hex":"23ff"}"###);
        assert_eq!(view(b"#7"), r###"{"id":"##7"}"###);
    }
}
