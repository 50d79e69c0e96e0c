//! How keys are spelled. No other place formats one.

use tenure_core::{LockName, OwnerToken};

/// The keys of one prefix.
#[derive(Clone, Debug)]
pub(crate) struct Keyspace {
    root: Vec<u8>,
}

/// The keys of one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NameKeys {
    base: Vec<u8>,
}

/// What a key under the prefix is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Parsed<'a> {
    /// The hold of the name with this encoding.
    Hold(&'a [u8]),
    /// A place in the queue of the name with this encoding.
    Wait(&'a [u8], OwnerToken),
    /// Somebody else's.
    Foreign,
}

const HOLD: &[u8] = b"/hold";
const WAIT: &[u8] = b"/wait/";

impl Keyspace {
    pub(crate) fn new(prefix: &str) -> Self {
        Self { root: format!("{}/", own(prefix)).into_bytes() }
    }

    /// What every key begins with.
    pub(crate) fn root(&self) -> &[u8] {
        &self.root
    }

    pub(crate) fn of(&self, name: &LockName) -> NameKeys {
        let mut base = self.root.clone();
        encode(name.as_bytes(), &mut base);
        NameKeys { base }
    }

    /// The encoded name of these keys.
    pub(crate) fn encoded<'a>(&self, keys: &'a NameKeys) -> &'a [u8] {
        &keys.base[self.root.len()..]
    }

    pub(crate) fn parse<'a>(&self, key: &'a [u8]) -> Parsed<'a> {
        let Some(rest) = key.strip_prefix(self.root.as_slice()) else { return Parsed::Foreign };
        let Some(slash) = rest.iter().position(|byte| *byte == b'/') else { return Parsed::Foreign };
        let (name, tail) = rest.split_at(slash);
        if tail == HOLD {
            return Parsed::Hold(name);
        }
        match tail.strip_prefix(WAIT).and_then(token) {
            Some(token) => Parsed::Wait(name, token),
            None => Parsed::Foreign,
        }
    }
}

impl NameKeys {
    pub(crate) fn hold(&self) -> Vec<u8> {
        [&self.base, HOLD].concat()
    }

    /// What all places in the queue begin with. It ends in a slash, so that no other name shares the range.
    pub(crate) fn queue(&self) -> Vec<u8> {
        [&self.base, WAIT].concat()
    }

    pub(crate) fn place(&self, token: &OwnerToken) -> Vec<u8> {
        [&self.base, WAIT, token.expose().as_ref()].concat()
    }

    /// Whose place the key is.
    pub(crate) fn whose(&self, place: &[u8]) -> Option<OwnerToken> {
        place.strip_prefix(self.base.as_slice())?.strip_prefix(WAIT).and_then(token)
    }
}

/// A prefix as keys begin with it. Its slashes are encoded as those of names are, so that a prefix that goes on where
/// another one ends has no key in common with the names under that one.
pub(crate) fn own(prefix: &str) -> String {
    prefix.replace('/', "%2F")
}

fn token(text: &[u8]) -> Option<OwnerToken> {
    OwnerToken::parse(std::str::from_utf8(text).ok()?).ok()
}

/// Letters, digits and `_ . - : @` as they are, every other byte as `%XX`; a slash too, so that names do not nest.
pub(crate) fn encode(name: &[u8], out: &mut Vec<u8>) {
    for &byte in name {
        if byte.is_ascii_alphanumeric() || b"_.-:@".contains(&byte) {
            out.push(byte);
        } else {
            out.extend_from_slice(format!("%{byte:02X}").as_bytes());
        }
    }
}

/// Undoes [`encode`]; `None` for a percent sign without two hexadecimal digits.
pub(crate) fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.iter();
    while let Some(&byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|digit| char::from(*digit).to_digit(16));
        bytes.push(u8::try_from(digit()? * 16 + digit()?).ok()?);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(name: &str) -> NameKeys {
        Keyspace::new("ns").of(&LockName::new(name).unwrap())
    }

    #[test]
    fn no_range_holds_the_keys_of_another_name() {
        let names = ["a", "ab", "a/", "a/hold", "a/wait/x", "a%2F", "%", "a\0", "\u{fc}"];
        for one in names {
            for other in names.iter().filter(|other| **other != one) {
                let token = OwnerToken::random();
                assert!(!keys(other).place(&token).starts_with(&keys(one).queue()), "{one} {other}");
                assert!(!keys(other).hold().starts_with(&keys(one).queue()), "{one} {other}");
                assert_ne!(keys(other).hold(), keys(one).hold());
            }
        }
    }

    #[test]
    fn no_prefix_reaches_into_the_names_of_another() {
        let roots = ["a", "a/b", "a/b/hold", "a/b/wait", "a/b/wait/c", "ab"].map(|prefix| Keyspace::new(prefix).root);
        for (one, root) in roots.iter().enumerate() {
            assert!(roots.iter().enumerate().all(|(other, begins)| one == other || !begins.starts_with(root)));
        }
    }

    #[test]
    fn keys_are_read_back() {
        let space = Keyspace::new("ns");
        let name = LockName::new("orders/42").unwrap();
        let (keys, token) = (space.of(&name), OwnerToken::random());
        assert_eq!(keys.hold(), b"ns/orders%2F42/hold");
        assert_eq!(space.parse(&keys.hold()), Parsed::Hold(b"orders%2F42"));
        assert_eq!(space.parse(&keys.place(&token)), Parsed::Wait(b"orders%2F42", token));
        assert_eq!(keys.whose(&keys.place(&token)), Some(token));
        assert_eq!(space.encoded(&keys), b"orders%2F42");
        for foreign in ["ns/x", "ns/x/wait/short", "other/x/hold", "ns/x/hold/y"] {
            assert_eq!(space.parse(foreign.as_bytes()), Parsed::Foreign, "{foreign}");
        }
    }
}
