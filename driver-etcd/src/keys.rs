//! The spelling of keys. No other module formats one.

use std::cmp::Ordering;

use tenure_core::driver::Family;
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
    /// The holder among those of permits.
    holder: Option<OwnerToken>,
}

/// The permits of one prefix. Their keys are beside those of locks, so that the waiters for one of them do not receive
/// the events of the other.
#[derive(Clone, Debug)]
pub(crate) struct PermitSpace {
    root: Vec<u8>,
}

/// The keys of one name of semaphores or of read-write locks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PermitKeys {
    base: Vec<u8>,
}

/// What a key of permits is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ParsedPermit {
    /// The hold of a token.
    Hold(OwnerToken),
    /// A hold waits to weigh more.
    Grow,
    /// A place in the line.
    Wait(Spot),
}

/// Where a token waits. Places are in the order of their keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spot {
    /// The revision in which the token found the lock busy: a later request finds a later one.
    pub(crate) arrival: i64,
    pub(crate) token: OwnerToken,
}

/// What a key under the prefix is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Parsed<'a> {
    /// The hold of the name with this encoding.
    Hold(&'a [u8]),
    /// A place in the queue of the name with this encoding.
    Wait(&'a [u8], Spot),
    /// A key of another program.
    Foreign,
}

const HOLD: &[u8] = b"/hold";
const WAIT: &[u8] = b"/wait/";
const HOLDS: &[u8] = b"/hold/";
const GROW: &[u8] = b"/grow";

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
        NameKeys { base, holder: None }
    }

    /// The encoded name of these keys.
    pub(crate) fn encoded<'a>(&self, keys: &'a NameKeys) -> &'a [u8] {
        &keys.base[self.root.len()..]
    }

    /// The range of the keys of all names that begin so. The keys of no name are in it as well, if the prefix is empty.
    pub(crate) fn under(&self, prefix: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let mut from = self.root.clone();
        encode(prefix, &mut from);
        // Keys have bytes below 0x7f only, and end with one that can be counted up.
        let mut end = from.clone();
        if let Some(last) = end.last_mut() {
            *last += 1;
        }
        (from, end)
    }

    pub(crate) fn parse<'a>(&self, key: &'a [u8]) -> Parsed<'a> {
        let Some(rest) = key.strip_prefix(self.root.as_slice()) else { return Parsed::Foreign };
        let Some(slash) = rest.iter().position(|byte| *byte == b'/') else { return Parsed::Foreign };
        let (name, tail) = rest.split_at(slash);
        if tail == HOLD {
            return Parsed::Hold(name);
        }
        match tail.strip_prefix(WAIT).and_then(Spot::parse) {
            Some(spot) => Parsed::Wait(name, spot),
            None => Parsed::Foreign,
        }
    }

    /// The key of the numbers that turn revisions into fences.
    pub(crate) fn fences(&self) -> Vec<u8> {
        [&self.root, b"%/fences".as_slice()].concat()
    }

    /// The key of a client's session, by its lease. No name is spelled with a percent sign alone.
    pub(crate) fn session(&self, lease: i64) -> Vec<u8> {
        [&self.root, format!("%/{lease:016x}").as_bytes()].concat()
    }
}

impl Spot {
    fn spell(&self) -> Vec<u8> {
        format!("{:016x}-{}", self.arrival, self.token.expose().as_str()).into_bytes()
    }

    fn parse(text: &[u8]) -> Option<Self> {
        let (arrival, token) = std::str::from_utf8(text).ok()?.split_once('-')?;
        let known = arrival.len() == 16 && arrival.bytes().all(|digit| b"0123456789abcdef".contains(&digit));
        let arrival = i64::from_str_radix(arrival, 16).ok().filter(|_| known)?;
        Some(Self { arrival, token: OwnerToken::parse(token).ok()? })
    }
}

impl Ord for Spot {
    fn cmp(&self, other: &Self) -> Ordering {
        let text = |spot: &Self| (spot.arrival, spot.token.expose());
        let ((arrival, token), (others, other)) = (text(self), text(other));
        arrival.cmp(&others).then_with(|| token.as_str().cmp(other.as_str()))
    }
}

impl PartialOrd for Spot {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl NameKeys {
    pub(crate) fn hold(&self) -> Vec<u8> {
        match &self.holder {
            None => [&self.base, HOLD].concat(),
            Some(holder) => [&self.base, HOLDS, holder.expose().as_str().as_bytes()].concat(),
        }
    }

    /// All places are from this key on. A revision has fewer than sixteen digits for as long as etcd can count.
    pub(crate) fn queue(&self) -> Vec<u8> {
        [&self.base, WAIT, b"0"].concat()
    }

    /// All places are before this key.
    pub(crate) fn queue_end(&self) -> Vec<u8> {
        [&self.base, WAIT, b"1"].concat()
    }

    pub(crate) fn place(&self, spot: &Spot) -> Vec<u8> {
        [self.base.as_slice(), WAIT, &spot.spell()].concat()
    }

    /// Whose place the key is.
    pub(crate) fn whose(&self, place: &[u8]) -> Option<Spot> {
        place.strip_prefix(self.base.as_slice())?.strip_prefix(WAIT).and_then(Spot::parse)
    }
}

impl PermitSpace {
    pub(crate) fn new(prefix: &str) -> Self {
        Self { root: format!("{}:permit/", own(prefix)).into_bytes() }
    }

    pub(crate) fn root(&self) -> &[u8] {
        &self.root
    }

    pub(crate) fn of(&self, family: Family, name: &LockName) -> PermitKeys {
        let mut base = self.root.clone();
        base.extend_from_slice(&[family.code() as u8, b'/']);
        encode(name.as_bytes(), &mut base);
        PermitKeys { base }
    }

    /// The part before the kind of a key, which is that of one name, and the kind.
    pub(crate) fn parse<'a>(&self, key: &'a [u8]) -> Option<(&'a [u8], ParsedPermit)> {
        let name = key.get(self.root.len() + 2..)?.iter().position(|byte| *byte == b'/')?;
        let (base, tail) = key.split_at(self.root.len() + 2 + name);
        if tail == GROW {
            return Some((base, ParsedPermit::Grow));
        }
        if let Some(token) = tail.strip_prefix(HOLDS) {
            let token = OwnerToken::parse(std::str::from_utf8(token).ok()?).ok()?;
            return Some((base, ParsedPermit::Hold(token)));
        }
        Some((base, ParsedPermit::Wait(tail.strip_prefix(WAIT).and_then(Spot::parse)?)))
    }
}

impl PermitKeys {
    /// What all keys of the name begin with, and no other.
    pub(crate) fn base(&self) -> &[u8] {
        &self.base
    }

    /// The keys of the name as one token uses them.
    pub(crate) fn of(&self, token: &OwnerToken) -> NameKeys {
        NameKeys { base: self.base.clone(), holder: Some(*token) }
    }

    /// The key of the hold that waits to weigh more.
    pub(crate) fn grow(&self) -> Vec<u8> {
        [&self.base, GROW].concat()
    }

    /// From [`grow`](Self::grow) to this key, there are that key and the holds.
    pub(crate) fn holds_end(&self) -> Vec<u8> {
        [&self.base, b"/hold0".as_slice()].concat()
    }
}

/// A prefix in the form in which keys begin with it. Its slashes are encoded like those of names, so that a prefix that
/// extends another one has no key in common with the names under that one.
pub(crate) fn own(prefix: &str) -> String {
    prefix.replace('/', "%2F")
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

/// Undoes [`encode`]; `None` for what that does not write.
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
    let mut again = Vec::with_capacity(text.len());
    encode(&bytes, &mut again);
    (again == text).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(name: &str) -> NameKeys {
        Keyspace::new("ns").of(&LockName::new(name).unwrap())
    }

    fn spot(arrival: i64) -> Spot {
        Spot { arrival, token: OwnerToken::random() }
    }

    #[test]
    fn no_range_holds_the_keys_of_another_name() {
        let names = ["a", "ab", "a/", "a/hold", "a/wait/x", "a%2F", "%", "a\0", "\u{fc}"];
        for one in names {
            for other in names.iter().filter(|other| **other != one) {
                let queue = keys(one).queue()..keys(one).queue_end();
                assert!(!queue.contains(&keys(other).place(&spot(7))), "{one} {other}");
                assert!(!queue.contains(&keys(other).hold()), "{one} {other}");
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
    fn the_range_of_a_prefix_has_the_names_that_begin_so() {
        let space = Keyspace::new("ns");
        let names = [&b"a"[..], b"ab", b"a/b", b"b", b"a%", b"a\0", b"a\xff", b"\xff", b"\xff\xff", b"@", b"`"];
        for prefix in names.into_iter().chain([&b""[..], b"a\xff\xff"]) {
            let (from, end) = space.under(prefix);
            for name in names {
                let keys = space.of(&LockName::new(name).unwrap());
                let within = (&from..&end).contains(&&keys.hold());
                assert_eq!(within, name.starts_with(prefix), "{} {}", prefix.escape_ascii(), name.escape_ascii());
            }
        }
    }

    #[test]
    fn keys_are_read_back() {
        let space = Keyspace::new("ns");
        let name = LockName::new("orders/42").unwrap();
        let (keys, spot) = (space.of(&name), spot(0x2a));
        assert_eq!(keys.hold(), b"ns/orders%2F42/hold");
        assert_eq!(space.parse(&keys.hold()), Parsed::Hold(b"orders%2F42"));
        assert!(keys.place(&spot).starts_with(b"ns/orders%2F42/wait/000000000000002a-"));
        assert_eq!(space.parse(&keys.place(&spot)), Parsed::Wait(b"orders%2F42", spot));
        assert_eq!(keys.whose(&keys.place(&spot)), Some(spot));
        assert_eq!(space.encoded(&keys), b"orders%2F42");
        let unspelled = format!("ns/x/wait/+00000000000002a-{}", spot.token.expose().as_str());
        for foreign in ["ns/x", "ns/x/wait/short", "other/x/hold", "ns/x/hold/y", "ns/x/wait/0-0", &unspelled] {
            assert_eq!(space.parse(foreign.as_bytes()), Parsed::Foreign, "{foreign}");
        }
        assert_eq!(space.parse(&space.session(7)), Parsed::Foreign);
        assert_eq!((space.parse(&space.fences()), space.fences()), (Parsed::Foreign, b"ns/%/fences".to_vec()));
    }

    #[test]
    fn places_are_in_the_order_of_their_keys() {
        let mut spots: Vec<_> = [1, 0xff, 0x100, i64::from(u32::MAX), 9, 9, 9].map(spot).to_vec();
        spots.sort();
        let all = keys("a");
        let places: Vec<_> = spots.iter().map(|spot| all.place(spot)).collect();
        assert!(places.is_sorted() && places.iter().all(|key| (all.queue()..all.queue_end()).contains(key)));
    }

    #[test]
    fn a_place_is_spelled_in_sixteen_digits() {
        let (keys, spot) = (keys("a"), spot(0x1f));
        let spelled = |arrival: &str| {
            let token = spot.token.expose();
            keys.whose(&[&keys.base, WAIT, format!("{arrival}-{}", token.as_str()).as_bytes()].concat())
        };
        assert_eq!(spelled("000000000000001f"), Some(spot));
        for other in ["1f", "00000000000000001f", "000000000000001F", "+00000000000001f", "00000000000000 1"] {
            assert_eq!(spelled(other), None, "{other}");
        }
    }
}
