//! The spelling of keys and channels. No other module formats one.
//!
//! With prefix `tenure` and the name `orders/42`:
//!
//! | key | what |
//! |---|---|
//! | `tenure:orders/42` | the lock: a string when held plainly, a hash when held re-entrantly |
//! | `{tenure:orders/42}:q`, `:w` | its waiters by order, and by the end of their presence |
//! | `{tenure:orders/42}:a` | their terms, if they take the lock without asking |
//! | `{tenure:orders/42}:x:<token>` | an abandoned token |
//! | `{tenure:orders/42}:f` | its fence counter ([`FenceScope::Name`], and votes in a quorum) |
//! | `{tenure:orders/42}:s:` and `r h g q w a` | the semaphore of that name; the scripts of permits describe each |
//! | `{tenure:orders/42}:s:x:<token>`, `:s:f` | an abandoned token of it, and its fence counter |
//! | `{tenure:orders/42}:r:` and the same | the read-write lock of that name |
//! | `tenure:{electorate}` | which quorum the server votes in |
//! | `tenure:{fence}` | the fence counter of all names ([`FenceScope::Node`]) |
//! | `tenure:wake:<client>` | a channel, not a key: wake-ups for the waiters of one client |
//! | `{tenure:dq:orders}:` and `t m r o d i s h j n z c` | the delay queue `orders`; the scripts of queues describe each |
//! | `tenure:{dq}` | the names of all delay queues |
//! | `{tenure:dq%-a7}:orders:` and the same letters | in a cluster, the queue `orders`, if that is in group `a7` of 256 |
//! | `{tenure:dq%-a7}` | there, the names of the queues of that group |
//!
//! In a name, the bytes `{`, `}`, `%`, below 0x21 and above 0x7e are written as `%XX`. So different names have
//! different keys. A lock's key holds no brace, hashes as a whole and shares its slot with its side keys; and only keys
//! that are not locks hold a brace. A queue and a lock named `dq:` and its name share a slot, but no key: their
//! suffixes differ.
//!
//! In a cluster all queues cannot share a slot with one list of their names. So each belongs to a group by its name,
//! and a group shares a slot with its own list of names: the script that stores the message also adds the queue to the
//! list.

mod permits;
mod queues;

use std::ops::RangeInclusive;

use tenure_core::{LockName, OwnerToken, TokenText};

use crate::script::ArgList;
use crate::settings::{FenceScope, Prefix, RedisSettings};
use crate::slot;

/// The id of a client's wake-up channel: 16 random characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClientId(String);

impl ClientId {
    /// A fresh one.
    pub(crate) fn random() -> Self {
        Self(OwnerToken::random().expose().as_str()[..16].to_owned())
    }
}

/// The keys and channels of one prefix, as one client sees them.
#[derive(Clone, Debug)]
pub(crate) struct Keyspace {
    prefix: String,
    scope: FenceScope,
    client: ClientId,
    over_slots: bool,
}

impl Keyspace {
    /// The keyspace of `prefix`, for the client `client`.
    pub(crate) fn new(prefix: Prefix, scope: FenceScope, client: ClientId) -> Self {
        Self { prefix: prefix.into_string(), scope, client, over_slots: false }
    }

    /// The same for a cluster, where the keys of a script must share a slot.
    pub(crate) fn over_slots(mut self) -> Self {
        self.over_slots = true;
        self
    }

    /// The keyspace for `settings`.
    pub(crate) fn of(settings: &RedisSettings, client: ClientId) -> Self {
        Self::new(settings.prefix.clone(), settings.fence_scope, client)
    }

    pub(crate) fn is_over_slots(&self) -> bool {
        self.over_slots
    }

    /// The key of the lock itself.
    pub(crate) fn lock_key(&self, name: &LockName) -> Vec<u8> {
        let mut key = Vec::new();
        self.lock(&mut key, name);
        key
    }

    /// The pattern of `SCAN` that the keys of locks whose names begin so match. Others match it as well.
    pub(crate) fn lock_pattern(&self, prefix: &[u8]) -> String {
        let (mut key, mut pattern) = (Vec::new(), String::new());
        key.extend_from_slice(self.prefix.as_bytes());
        key.push(b':');
        encode(&mut key, prefix);
        for byte in key {
            if matches!(byte, b'*' | b'?' | b'[' | b']' | b'^' | b'\\') {
                pattern.push('\\');
            }
            pattern.push(char::from(byte)); // printable ASCII, all of it
        }
        pattern.push('*');
        pattern
    }

    /// The lock that this key is of; `None` for a key that is no lock's.
    pub(crate) fn lock_of(&self, key: &[u8]) -> Option<LockName> {
        let spelled = key.strip_prefix(self.prefix.as_bytes())?.strip_prefix(b":")?;
        let name = LockName::new(decode(spelled)?).ok()?;
        (self.lock_key(&name) == key).then_some(name)
    }

    /// The channel that this client listens on.
    pub(crate) fn wake_channel(&self) -> String {
        format!("{}{}", self.wake_channel_prefix(), self.client.0)
    }

    /// What every client's wake-up channel begins with.
    pub(crate) fn wake_channel_prefix(&self) -> String {
        format!("{}:wake:", self.prefix)
    }

    /// A waiter's member in the queue: its token, and where it listens.
    pub(crate) fn push_member(&self, args: &mut ArgList, token: &TokenText) {
        args.push_with(|out| {
            out.extend_from_slice(token.as_ref());
            out.push(b'@');
            out.extend_from_slice(self.client.0.as_bytes());
        });
    }

    /// The lock itself.
    pub(crate) fn push_lock(&self, keys: &mut ArgList, name: &LockName) {
        keys.push_with(|out| self.lock(out, name));
    }

    /// The waiters by order of arrival, by the end of their presence, and their terms.
    pub(crate) fn push_queue(&self, keys: &mut ArgList, name: &LockName) {
        self.push_side(keys, name, b":q");
        self.push_presence(keys, name);
        self.push_side(keys, name, b":a");
    }

    /// The waiters by the end of their presence.
    pub(crate) fn push_presence(&self, keys: &mut ArgList, name: &LockName) {
        self.push_side(keys, name, b":w");
    }

    /// The memory that `token` was abandoned.
    pub(crate) fn push_tombstone(&self, keys: &mut ArgList, name: &LockName, token: &TokenText) {
        keys.push_with(|out| {
            self.side(out, name, b":x:");
            out.extend_from_slice(token.as_ref());
        });
    }

    /// The counter that fences of `name` come from.
    pub(crate) fn push_fence(&self, keys: &mut ArgList, name: &LockName) {
        match self.scope {
            FenceScope::Node => keys.push_with(|out| {
                out.extend_from_slice(self.prefix.as_bytes());
                out.extend_from_slice(b":{fence}");
            }),
            FenceScope::Name => self.push_own_fence(keys, name),
        }
    }

    /// Whether all names have one counter.
    pub(crate) fn has_one_counter(&self) -> bool {
        self.scope == FenceScope::Node
    }

    /// The counter of this name alone.
    pub(crate) fn push_own_fence(&self, keys: &mut ArgList, name: &LockName) {
        self.push_side(keys, name, b":f");
    }

    /// Which quorum the server votes in.
    pub(crate) fn push_electorate(&self, keys: &mut ArgList) {
        keys.push_with(|out| {
            out.extend_from_slice(self.prefix.as_bytes());
            out.extend_from_slice(b":{electorate}");
        });
    }

    /// What wakers of queues call this client.
    pub(crate) fn client(&self) -> &str {
        &self.client.0
    }

    /// Two keys for trying rights on: one spelled like a lock's, one like a side key's, both in the same of these slots.
    /// Neither is any name's: names have no % but before two digits.
    pub(crate) fn push_probes(&self, keys: &mut ArgList, slots: &RangeInclusive<u16>) {
        let (prefix, tag) = (&self.prefix, self.client.0.as_str());
        let spelled = |number: u64| format!("{prefix}:%rights-{tag}{number}");
        let probe = (0..).map(spelled).find(|key| slots.contains(&slot::of(key.as_bytes()))).unwrap_or_default();
        let side = format!("{{{probe}}}:probe");
        keys.push(probe);
        keys.push(side);
    }

    /// The rights that an access control list has to give, as its rules are written.
    pub(crate) fn rules(&self) -> String {
        let prefix = &self.prefix;
        format!("~{prefix}:* ~{{{prefix}:* &{prefix}:*")
    }

    fn push_side(&self, keys: &mut ArgList, name: &LockName, suffix: &[u8]) {
        keys.push_with(|out| self.side(out, name, suffix));
    }

    fn side(&self, out: &mut Vec<u8>, name: &LockName, suffix: &[u8]) {
        out.push(b'{');
        self.lock(out, name);
        out.push(b'}');
        out.extend_from_slice(suffix);
    }

    fn lock(&self, out: &mut Vec<u8>, name: &LockName) {
        out.extend_from_slice(self.prefix.as_bytes());
        out.push(b':');
        encode(out, name.as_bytes());
    }
}

impl RedisSettings {
    /// The key of a lock, for tools that read the server without the driver.
    #[must_use]
    pub fn lock_key(&self, name: &LockName) -> Vec<u8> {
        Keyspace::of(self, ClientId::random()).lock_key(name)
    }
}

/// Which bytes stand for themselves. A table, as each name is looked at for every key of every request.
const PLAIN: [bool; 256] = {
    let mut plain = [false; 256];
    let mut byte = 0x21;
    while byte < 0x7f {
        plain[byte] = !matches!(byte as u8, b'{' | b'}' | b'%');
        byte += 1;
    }
    plain
};

/// Writes a name so that it holds no brace and no byte that is hard to read.
fn encode(out: &mut Vec<u8>, name: &[u8]) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let is_plain = |byte: &u8| PLAIN[usize::from(*byte)];
    if name.iter().all(is_plain) {
        return out.extend_from_slice(name);
    }
    for byte in name {
        if is_plain(byte) {
            out.push(*byte);
        } else {
            out.extend_from_slice(&[b'%', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
        }
    }
}

/// The bytes that were written so.
fn decode(mut spelled: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let mut name = Vec::with_capacity(spelled.len());
    while let [first, rest @ ..] = spelled {
        spelled = rest;
        name.push(match (first, rest) {
            (b'%', [high, low, rest @ ..]) => {
                spelled = rest;
                u8::try_from(digit(*high)? * 16 + digit(*low)?).ok()?
            }
            (b'%', _) => return None,
            (plain, _) => *plain,
        });
    }
    Some(name)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Of the client `CLIENT`.
    pub(crate) fn space(scope: FenceScope) -> Keyspace {
        Keyspace::new(Prefix::default(), scope, ClientId("CLIENT".into()))
    }

    pub(super) fn spelled(build: impl FnOnce(&mut ArgList)) -> Vec<String> {
        let mut keys = ArgList::default();
        build(&mut keys);
        keys.iter().map(|key| String::from_utf8(key.to_vec()).unwrap()).collect()
    }

    #[test]
    fn what_is_spelled_is_read_back_and_what_is_cut_off_is_not() {
        for name in [&b"plain"[..], b"{50%} \x00\xff", b"%41"] {
            let mut spelled = Vec::new();
            encode(&mut spelled, name);
            assert_eq!(decode(&spelled).as_deref(), Some(name));
        }
        assert_eq!(decode(b"a%41b").as_deref(), Some(&b"aAb"[..]));
        for bad in [&b"%"[..], b"a%4", b"%4x", b"%x4"] {
            assert_eq!(decode(bad), None, "{}", bad.escape_ascii());
        }
    }

    #[test]
    fn keys_are_spelled_as_documented() {
        let space = space(FenceScope::Node);
        let name = LockName::new("orders/42").unwrap();
        let token = OwnerToken::parse("AAAAAAAAAAAAAAAAAAAAAA").unwrap();
        let keys = spelled(|keys| {
            space.push_lock(keys, &name);
            space.push_fence(keys, &name);
            space.push_tombstone(keys, &name, &token.expose());
            space.push_queue(keys, &name);
            space.push_member(keys, &token.expose());
        });
        let golden = [
            "tenure:orders/42",
            "tenure:{fence}",
            "{tenure:orders/42}:x:AAAAAAAAAAAAAAAAAAAAAA",
            "{tenure:orders/42}:q",
            "{tenure:orders/42}:w",
            "{tenure:orders/42}:a",
            "AAAAAAAAAAAAAAAAAAAAAA@CLIENT",
        ];
        assert_eq!(keys, golden);
        assert_eq!(space.wake_channel(), "tenure:wake:CLIENT");
        assert_eq!(space.rules(), "~tenure:* ~{tenure:* &tenure:*");
    }

    #[test]
    fn a_fence_of_its_own_shares_the_slot_of_the_name() {
        let name = LockName::new("n").unwrap();
        assert_eq!(spelled(|keys| space(FenceScope::Name).push_fence(keys, &name)), ["{tenure:n}:f"]);
        assert_eq!(spelled(|keys| space(FenceScope::Node).push_own_fence(keys, &name)), ["{tenure:n}:f"]);
        assert_eq!(spelled(|keys| space(FenceScope::Node).push_electorate(keys)), ["tenure:{electorate}"]);
    }

    #[test]
    fn names_cannot_meet_each_other_or_a_side_key() {
        let space = space(FenceScope::Node);
        let key = |name: &[u8]| spelled(|keys| space.push_lock(keys, &LockName::new(name).unwrap())).remove(0);
        assert_eq!(key(b"{fence}"), "tenure:%7Bfence%7D");
        assert_eq!(key(b"%7Bfence%7D"), "tenure:%257Bfence%257D");
        assert_eq!(key(b"a b\0\n\x7f\xff~!"), "tenure:a%20b%00%0A%7F%FF~!");
        assert_eq!(key("\u{e9}".as_bytes()), "tenure:%C3%A9");
        assert_eq!(key(b"wake:x"), "tenure:wake:x"); // channels are no keys
    }

    #[test]
    fn the_key_of_a_lock_and_no_other_tells_its_name() {
        let space = space(FenceScope::Node);
        for name in [&b"orders/42"[..], b"{fence}", b"%7B", b"a b\0\xff*", b"wake:x"] {
            let name = LockName::new(name).unwrap();
            assert_eq!(space.lock_of(&space.lock_key(&name)), Some(name));
        }
        for other in [
            "tenure:{fence}",
            "tenure:",
            "other:a",
            "{tenure:a}:q",
            "tenure:a%7b",
            "tenure:a%",
            "tenure:%rights-x1",
            "tenure:a b",
            "tenure:%41",
        ] {
            assert_eq!(space.lock_of(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn a_pattern_has_no_wildcard_but_its_last() {
        let space = space(FenceScope::Node);
        assert_eq!(space.lock_pattern(b""), "tenure:*");
        assert_eq!(space.lock_pattern(b"a*?[^]\\{ "), "tenure:a\\*\\?\\[\\^\\]\\\\%7B%20*");
    }

    #[test]
    fn a_prefix_is_checked() {
        for bad in ["", "a:b", "{a}", "a b", "\u{e9}", &"x".repeat(65)] {
            assert_eq!(Prefix::new(bad).unwrap_err().kind(), tenure_core::ErrorKind::InvalidArgument, "{bad}");
        }
        assert!(Prefix::new("My_app-2.locks").is_ok());
    }
}
