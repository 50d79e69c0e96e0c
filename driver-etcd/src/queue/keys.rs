//! The spelling of the keys of queues.

use tenure_core::Result;
use tenure_core::queue::{ConcurrencyKey, MessageId, QueueName};

use super::clock::Micros;
use crate::keys::{decode, encode, own};
use crate::link::odd;

/// The queues of one prefix. In a key, no prefix holds a colon or a slash, so that no lock's key is among theirs.
#[derive(Clone, Debug)]
pub(crate) struct QueueSpace {
    root: String,
}

/// The keys of one queue.
#[derive(Clone, Debug)]
pub(crate) struct QueueKeys {
    base: Vec<u8>,
    pub(super) registered: Vec<u8>,
    pub(super) wake: Vec<u8>,
}

/// A key that the clients that wait watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signalled {
    /// The signal.
    Soonest,
    /// A place in the line of waiting clients.
    Place,
}

/// A place in the line that this client has, or may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Spot {
    pub(super) key: Vec<u8>,
    /// Whether it was seen in etcd. If not, it may be there all the same, or come to be there.
    pub(super) seen: bool,
}

/// Where a message is, and since or until when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Location {
    /// Waiting until it is due.
    Waiting(Micros),
    /// Held back since it was due, when its concurrency key was in flight.
    Held(Micros),
    /// Leased until its lease ends.
    Leased(Micros),
    /// Dead since then.
    Dead(Micros),
}

/// One of the four ordered sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Set {
    Waiting,
    Held,
    Leased,
    Dead,
}

impl QueueSpace {
    pub(crate) fn new(prefix: &str) -> Self {
        Self { root: format!("{}:queue/", own(prefix)) }
    }

    pub(crate) fn of(&self, queue: &QueueName) -> QueueKeys {
        let named = |part: &str| {
            let mut key = format!("{}{part}/", self.root).into_bytes();
            encode(queue.as_bytes(), &mut key);
            key
        };
        let hex: String = queue.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        let registered = format!("{}{hex}", self.names()).into_bytes();
        QueueKeys { base: [named("of"), b"/".to_vec()].concat(), registered, wake: named("wake") }
    }

    /// What the names of all queues begin with. They are hexadecimal, so that their order is that of the bytes.
    pub(super) fn names(&self) -> String {
        format!("{}name/", self.root)
    }

    /// What all signals and lines begin with.
    pub(super) fn signals(&self) -> String {
        format!("{}wake/", self.root)
    }

    /// Of which queue a key is that begins as all signals do, and what it is.
    pub(super) fn signalled(&self, key: &[u8]) -> Option<(QueueName, Signalled)> {
        let rest = key.strip_prefix(self.signals().as_bytes())?;
        let end = rest.iter().position(|byte| *byte == b'/');
        let what = end.map_or(Signalled::Soonest, |_| Signalled::Place);
        Some((QueueName::new(decode(&rest[..end.unwrap_or(rest.len())])?).ok()?, what))
    }

    /// Which queue is registered by this key.
    pub(super) fn registered(&self, key: &[u8]) -> Option<QueueName> {
        let (pairs, []) = key.strip_prefix(self.names().as_bytes())?.as_chunks::<2>() else { return None };
        let byte = |pair: &[u8; 2]| u8::try_from(hexadecimal(pair)?).ok();
        QueueName::new(pairs.iter().map(byte).collect::<Option<Vec<u8>>>()?).ok()
    }
}

impl QueueKeys {
    fn key(&self, rest: &str) -> Vec<u8> {
        [self.base.as_slice(), rest.as_bytes()].concat()
    }

    pub(super) fn place(&self, place: Location, number: u64) -> Vec<u8> {
        self.key(&format!("{}/{number:016x}", place.spelled()))
    }

    pub(super) fn pointer(&self, number: u64) -> Vec<u8> {
        self.key(&format!("p/{number:016x}"))
    }

    /// What the pointers of all messages begin with.
    pub(super) fn pointers(&self) -> Vec<u8> {
        self.key("p/")
    }

    pub(super) fn body(&self, number: u64) -> Vec<u8> {
        self.key(&format!("b/{number:016x}"))
    }

    /// A place in the line of those who wait, behind those that were taken before. No two are the same.
    pub(super) fn place_in_line(&self, now: Micros, random: u64) -> Vec<u8> {
        [self.line().0, format!("{now:016x}{random:016x}").into_bytes()].concat()
    }

    /// The ends of the range of all places in the line.
    pub(super) fn line(&self) -> (Vec<u8>, Vec<u8>) {
        ([self.wake.as_slice(), b"/"].concat(), [self.wake.as_slice(), b"0"].concat())
    }

    pub(super) fn limits(&self) -> Vec<u8> {
        self.key("limits")
    }

    pub(super) fn bucket(&self) -> Vec<u8> {
        self.key("bucket")
    }

    pub(super) fn paused(&self) -> Vec<u8> {
        self.key("paused")
    }

    /// The key of a caller's id.
    pub(super) fn named(&self, id: &[u8]) -> Vec<u8> {
        let mut key = self.key("n/");
        encode(id, &mut key);
        key
    }

    /// Exists while a message of the concurrency key is in flight.
    pub(super) fn in_flight(&self, key: &ConcurrencyKey) -> Vec<u8> {
        let mut of = self.key("f/");
        encode(key.as_bytes(), &mut of);
        of
    }

    /// Under which a message is found that its concurrency key holds back since `at`.
    pub(super) fn held_by(&self, key: &ConcurrencyKey, at: Micros, number: u64) -> Vec<u8> {
        [self.all_held_by(key), format!("{at:016x}/{number:016x}").into_bytes()].concat()
    }

    /// The ends of the range of all such keys.
    pub(super) fn all_held(&self) -> (Vec<u8>, Vec<u8>) {
        (self.key("k/"), self.key("k0"))
    }

    /// Of which concurrency key such a key is.
    pub(super) fn parse_held(&self, found: &[u8]) -> Option<ConcurrencyKey> {
        let mut rest = found.strip_prefix(self.base.as_slice())?.strip_prefix(b"k/")?.split(|byte| *byte == b'/');
        ConcurrencyKey::new(decode(rest.next()?)?).ok()
    }

    /// What follows all such keys of a concurrency key.
    pub(super) fn behind_held_by(&self, key: &ConcurrencyKey) -> Vec<u8> {
        let mut behind = self.all_held_by(key);
        behind.pop();
        behind.push(b'0'); // what follows the slash
        behind
    }

    /// What such keys of one concurrency key begin with.
    pub(super) fn all_held_by(&self, key: &ConcurrencyKey) -> Vec<u8> {
        let mut held = self.key("k/");
        encode(key.as_bytes(), &mut held);
        held.push(b'/');
        held
    }

    /// Since when which message is held back by the concurrency key.
    pub(super) fn parse_held_by(&self, key: &ConcurrencyKey, found: &[u8]) -> Option<(Micros, u64)> {
        let (at, number) = split_at_slash(found.strip_prefix(self.all_held_by(key).as_slice())?, 16)?;
        Some((digits(at)?, digits(number)?))
    }

    pub(super) fn forgotten(&self, until: Micros, id: &[u8]) -> Vec<u8> {
        let mut key = self.key(&format!("s/{until:016x}/"));
        encode(id, &mut key);
        key
    }

    /// Ids that are to be forgotten up to now: the range's ends.
    pub(super) fn forgotten_until(&self, now: Micros) -> (Vec<u8>, Vec<u8>) {
        (self.key("s/"), self.key(&format!("s/{:016x}/", now.saturating_add(1))))
    }

    /// When which id was to be forgotten.
    pub(super) fn parse_forgotten(&self, key: &[u8]) -> Option<(Micros, Vec<u8>)> {
        let (until, id) = split_at_slash(key.strip_prefix(self.base.as_slice())?.strip_prefix(b"s/")?, 16)?;
        Some((digits(until)?, decode(id)?))
    }

    /// All of a set whose time is `from` or later and before `to`; without `to`, all of it from there on.
    pub(super) fn range(&self, set: Set, from: Micros, to: Option<Micros>) -> (Vec<u8>, Vec<u8>) {
        let letter = set.letter();
        let end = match to {
            Some(to) => format!("{letter}/{to:016x}/"),
            None => format!("{letter}0"), // what follows the slash
        };
        (self.key(&format!("{letter}/{from:016x}/")), self.key(&end))
    }

    /// Where which message is, by the key of its place.
    pub(super) fn parse_place(&self, key: &[u8]) -> Option<(Location, u64)> {
        let (place, number) = split_at_slash(key.strip_prefix(self.base.as_slice())?, 18)?;
        Some((Location::parse(place)?, digits(number)?))
    }

    /// The key of a message's id: the caller's or the number's.
    pub(super) fn by_id(&self, id: &MessageId) -> Result<Vec<u8>> {
        match (id.as_name(), id.as_number()) {
            (Some(name), _) => Ok(self.named(name)),
            (None, Some(number)) => Ok(self.pointer(number)),
            (None, None) => Err(odd("an id that is neither a name nor a number")),
        }
    }
}

impl Set {
    const fn letter(self) -> char {
        match self {
            Self::Waiting => 'w',
            Self::Held => 'h',
            Self::Leased => 'l',
            Self::Dead => 'd',
        }
    }
}

impl Location {
    pub(super) const fn at(self) -> Micros {
        let (Self::Waiting(at) | Self::Held(at) | Self::Leased(at) | Self::Dead(at)) = self;
        at
    }

    pub(super) const fn set(self) -> Set {
        match self {
            Self::Waiting(_) => Set::Waiting,
            Self::Held(_) => Set::Held,
            Self::Leased(_) => Set::Leased,
            Self::Dead(_) => Set::Dead,
        }
    }

    /// Its form in keys and pointers.
    pub(super) fn spelled(self) -> String {
        format!("{}/{:016x}", self.set().letter(), self.at())
    }

    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        let at = digits(text.get(2..)?)?;
        match text.get(..2)? {
            b"w/" => Some(Self::Waiting(at)),
            b"h/" => Some(Self::Held(at)),
            b"l/" => Some(Self::Leased(at)),
            b"d/" => Some(Self::Dead(at)),
            _ => None,
        }
    }
}

/// The parts before and behind the slash at this place.
fn split_at_slash(text: &[u8], at: usize) -> Option<(&[u8], &[u8])> {
    let (before, behind) = text.split_at_checked(at)?;
    Some((before, behind.strip_prefix(b"/")?))
}

/// Sixteen hexadecimal digits.
pub(super) fn digits(text: &[u8]) -> Option<u64> {
    hexadecimal(text).filter(|_| text.len() == 16)
}

/// A number in small hexadecimal digits, as it is written, and in nothing else: no two keys are the same place.
fn hexadecimal(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    let known = text.bytes().all(|digit| b"0123456789abcdef".contains(&digit));
    u64::from_str_radix(text, 16).ok().filter(|_| known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_back() {
        let space = QueueSpace::new("shop");
        let name = QueueName::new(b"a/b\0%").unwrap();
        let keys = space.of(&name);
        assert_eq!(
            keys.place(Location::Waiting(1), 2),
            b"shop:queue/of/a%2Fb%00%25/w/0000000000000001/0000000000000002"
        );
        for place in [Location::Waiting(7), Location::Held(8), Location::Leased(u64::MAX), Location::Dead(0)] {
            assert_eq!(keys.parse_place(&keys.place(place, 9)), Some((place, 9)));
            assert_eq!(Location::parse(place.spelled().as_bytes()), Some(place));
        }
        let key = ConcurrencyKey::new("a/b").unwrap();
        assert_eq!(keys.parse_held_by(&key, &keys.held_by(&key, 5, 6)), Some((5, 6)));
        assert_eq!(keys.parse_held_by(&ConcurrencyKey::new("a").unwrap(), &keys.held_by(&key, 5, 6)), None);
        assert_eq!(keys.parse_held(&keys.held_by(&key, 5, 6)), Some(key.clone()));
        assert!(keys.held_by(&key, u64::MAX, u64::MAX) < keys.behind_held_by(&key));
        assert_eq!(keys.parse_forgotten(&keys.forgotten(5, b"x/y")), Some((5, b"x/y".to_vec())));
        assert_eq!(space.registered(&keys.registered), Some(name.clone()));
        assert_eq!(space.signalled(&keys.wake), Some((name.clone(), Signalled::Soonest)));
        assert_eq!(space.signalled(&keys.place_in_line(1, 2)), Some((name, Signalled::Place)));
        assert_eq!(keys.parse_place(b"shop:queue/of/a%2Fb%00%25/x"), None);
        // What only looks like a place is none: a sign, a capital, another separator.
        for (from, to) in [("/00000000000000ab/", "/+0000000000000ab/"), ("ab/", "AB/"), ("ab/", "ab-")] {
            let place = String::from_utf8(keys.place(Location::Waiting(0xab), 9)).unwrap().replace(from, to);
            assert_eq!(keys.parse_place(place.as_bytes()), None, "{place}");
        }
    }

    #[test]
    fn a_time_or_number_has_sixteen_small_digits() {
        assert_eq!(digits(b"00000000000000ff"), Some(255));
        for other in ["ff", "000000000000000ff", "00000000000000FF", "+0000000000000ff", ""] {
            assert_eq!(digits(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn ranges_hold_their_times_and_nothing_else() {
        let keys = QueueSpace::new("shop").of(&QueueName::new("q").unwrap());
        let within = |place: Location, (from, to): (Vec<u8>, Vec<u8>)| {
            let key = keys.place(place, 3);
            from <= key && key < to
        };
        assert!(within(Location::Waiting(5), keys.range(Set::Waiting, 0, Some(6))));
        assert!(!within(Location::Waiting(6), keys.range(Set::Waiting, 0, Some(6))));
        assert!(within(Location::Waiting(6), keys.range(Set::Waiting, 6, None)));
        assert!(!within(Location::Leased(6), keys.range(Set::Waiting, 0, None)));
        let (from, to) = keys.forgotten_until(6);
        assert!((from..to).contains(&keys.forgotten(6, b"x")));
    }
}
