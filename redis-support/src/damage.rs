//! Damaged data, which no script has written: its key, and how to repair it.

use tenure_core::driver::ErrorExt as _;
use tenure_core::{Error, ErrorKind};

use crate::error::ExecError;
use crate::script::Reply;

/// What a script met, by the server's words.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Met {
    /// A key of another type; the server does not report which key.
    AnotherType,
    /// A value that the script cannot use. Nothing was changed.
    Unreadable { key: String, found: String },
}

impl Met {
    /// The damage that a refusal reports; `None` when it is about something else.
    pub(crate) fn by(error: &ExecError) -> Option<Self> {
        let ExecError::Server { code, message } = error else { return None };
        if code == "WRONGTYPE" || message.contains("WRONGTYPE ") {
            return Some(Self::AnotherType);
        }
        let mut parts = message.split_once("DAMAGED ")?.1.split('|').map(str::to_owned);
        Some(Self::Unreadable { key: parts.next()?, found: parts.next()? })
    }
}

/// The error about a key whose value cannot be read: `what` says why, and what to do about it.
pub(crate) fn unreadable(key: &[u8], found: &[u8], what: &str) -> Error {
    let (key, found) = (key.escape_ascii(), found.escape_ascii());
    let text = format!("the key \"{key}\" holds \"{found}\", {what}");
    Error::new(ErrorKind::Damaged, text)
}

/// The error about a key that ended a script: the counters of a queue, or a hash of permits.
pub(crate) fn half_read(key: &[u8], found: &[u8]) -> Error {
    if types_of(key) == ["hash"] {
        let what =
            "which is no record of permits; put it back, or delete the key, which ends all holds or waits of the name";
        return unreadable(key, found, what).half_way();
    }
    let what = "which are not the counters of a queue, or the second of them, a fence, is more than a day ahead of the \
                server's clock; put them back, or delete the key and set limits and pause anew";
    unreadable(key, found, what)
}

/// The error about a key of another type, from the answer of the script that asks for the types of `keys`. The earlier writes of
/// the script that met it stay in effect.
pub(crate) fn another_type<'a>(keys: impl Iterator<Item = &'a [u8]>, types: Option<&Reply>) -> Error {
    let types = types.and_then(|types| types.items().ok()).unwrap_or_default();
    let odd = keys.zip(types).find_map(|(key, found)| {
        let (found, written) = (found.bytes().ok()?, types_of(key));
        let fits = found == b"none" || written.iter().any(|name| name.as_bytes() == found);
        (!fits).then(|| {
            let (key, found, written) = (key.escape_ascii(), found.escape_ascii(), written.join(" or "));
            format!("the key \"{key}\" is a {found}, not a {written}; restore its value, or delete it")
        })
    });
    let text = odd.unwrap_or_else(|| "a key has another type than this library writes".to_owned());
    Error::new(ErrorKind::Damaged, text).half_way()
}

/// The types that a key may have, by its spelling.
fn types_of(key: &[u8]) -> &'static [&'static str] {
    let Some(end) = key.iter().rposition(|byte| *byte == b'}') else { return &["string", "hash"] };
    match &key[end + 1..] {
        [] if key.ends_with(b":{fence}") || key.ends_with(b":{electorate}") => &["string"],
        [.., b':', b'f' | b'n'] => &["string"],
        [b':', b'x', b':', ..] | [b':', _, b':', b'x', b':', ..] => &["string"],
        [.., b':', b'a' | b'm' | b'r' | b'o' | b'i'] => &["hash"],
        _ => &["zset"],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_differs_from_other_refusals() {
        for text in [
            "WRONGTYPE Operation against a key holding the wrong kind of value script: f, on @user_script:9.",
            "ERR Error running script (call to f_1): @user_script:9: WRONGTYPE Operation against a key",
        ] {
            assert_eq!(Met::by(&ExecError::refused(text)), Some(Met::AnotherType));
        }
        let unreadable = Met::Unreadable { key: "{tenure:dq:a}:n".into(), found: "x y".into() };
        let text = "ERR DAMAGED {tenure:dq:a}:n|x y| script: f, on @user_script:9.";
        assert_eq!(Met::by(&ExecError::refused(text)), Some(unreadable));
        assert_eq!(Met::by(&ExecError::refused("ERR something new")), None);
    }

    #[test]
    fn the_key_of_another_type_is_named_and_those_that_are_not_there_are_not() {
        let keys = ["tenure:a", "{tenure:a}:q", "{tenure:a}:w", "{tenure:a}:a"].map(str::as_bytes);
        let reported = |types: &[&str]| {
            let types = Reply::Array(types.iter().map(|name| Reply::Bytes(name.as_bytes().to_vec())).collect());
            let error = another_type(keys.into_iter(), Some(&types));
            assert!(error.kind() == ErrorKind::Damaged && !error.was_not_applied());
            error.message().to_owned()
        };
        let unknown = "a key has another type than this library writes";
        assert_eq!(
            reported(&["hash", "none", "list", "string"]),
            "the key \"{tenure:a}:w\" is a list, not a zset; restore its value, or delete it"
        );
        assert!(
            reported(&["set", "zset", "zset", "hash"])
                .starts_with("the key \"tenure:a\" is a set, not a string or hash")
        );
        for fine in [&["string", "zset", "zset", "hash"][..], &["none"], &[]] {
            assert_eq!(reported(fine), unknown, "{fine:?}");
        }
        assert_eq!(another_type(keys.into_iter(), None).message(), unknown);
    }

    #[test]
    fn every_key_has_its_type() {
        for (key, written) in [
            ("tenure:a", "string or hash"),
            ("{tenure:a}:q", "zset"),
            ("{tenure:a}:a", "hash"),
            ("{tenure:a}:f", "string"),
            ("{tenure:a}:x:AAAAAAAAAAAAAAAAAAAAAA", "string"),
            ("{tenure:a}:s:x:AAAAAAAAAAAAAAAAAAAAAA", "string"),
            ("{tenure:a}:s:f", "string"),
            ("{tenure:a}:s:r", "hash"),
            ("{tenure:a}:r:a", "hash"),
            ("{tenure:a}:r:h", "zset"),
            ("{tenure:a}:r:g", "zset"),
            ("tenure:{fence}", "string"),
            ("tenure:{electorate}", "string"),
            ("tenure:{dq}", "zset"),
            ("{tenure:dq%-a7}", "zset"),
            ("{tenure:dq%-a7}:orders:m", "hash"),
            ("{tenure:dq:orders}:n", "string"),
            ("{tenure:dq:orders}:l", "zset"),
        ] {
            assert_eq!(types_of(key.as_bytes()).join(" or "), written, "{key}");
        }
    }
}
