//! Property tests of external inputs (URLs, keys, holds), with random and malformed values.

use peak_alloc::PeakAlloc;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use tenure_core::driver::Share;
use tenure_core::{ErrorKind, Label, LockName, OwnerId, OwnerToken};
use tenure_testkit::inputs::{self, SECRET, assert_sound, frugally};

use crate::config::EtcdConfig;
use crate::keys::{Keyspace, Parsed, Spot, decode, encode};
use crate::record::{Part, Record};

#[global_allocator]
pub(crate) static MEMORY: PeakAlloc = PeakAlloc;

const URLS: &[&str] = &[
    "a",
    "b.c",
    ",",
    ":",
    "2379",
    "/",
    "?",
    "&",
    "=",
    "@",
    "%",
    "%41",
    "%zz",
    "#",
    "[::1]",
    "prefix=",
    "max_waiters=",
    "max_depth=",
    "fence_floor=",
    "clock_error_ms=",
    "max_dead_letters=",
    "connect_timeout_ms=",
    "ca=",
    "cert=",
    "key=",
    "domain=",
    "18446744073709551615",
    "-1",
    "7",
];

/// What keys under a prefix are made of.
pub(crate) const KEYS: &[&str] = &[
    "ns/",
    "ns:queue/",
    "of/",
    "name/",
    "wake/",
    "q",
    "/",
    "hold",
    "wait/",
    "%",
    "%2F",
    "%2f",
    "-",
    "+",
    "AAAAAAAAAAAAAAAAAAAAAA",
    "0000000000000001",
    "000000000000000F",
    "ffffffffffffffff",
    "+00000000000000a",
    "w/",
    "h/",
    "l/",
    "d/",
    "k/",
    "s/",
    "61",
    "+6",
];

pub(crate) fn token(bits: [u8; 16]) -> OwnerToken {
    OwnerToken::parse(&OwnerId::from_bytes(bits).to_string()).unwrap()
}

fn records() -> impl Strategy<Value = Record> {
    let parts = (
        option::of(any::<[u8; 16]>()),
        vec(any::<[u8; 16]>(), 1..4),
        1..=24 * 86_400_i64,
        option::of(any::<u64>()),
        0..1_u64 << 53,
        option::of((1..=u32::MAX, any::<u32>(), option::of(0..=i64::MAX))),
        option::of("[ -~é\n]{0,40}"),
    );
    let part = |(capacity, step, grown)| Part { share: Share { weight: capacity / 2 + 1, capacity }, step, grown };
    parts.prop_map(move |(owner, entries, lease_secs, term, base, permit, label)| Record {
        permit: permit.map(part),
        owner: owner.map(OwnerId::from_bytes),
        entries: entries.into_iter().map(token).collect(),
        lease_secs,
        term,
        base,
        label: label.map(|label| Label::new(label).unwrap()),
    })
}

proptest! {
    #![proptest_config(inputs::config())]

    /// Also no part of a password in which nothing is encoded.
    #[test]
    fn any_url_is_read_or_refused_without_its_login(text in inputs::logins(&["etcd", "etcds"], URLS)) {
        let read = frugally(&MEMORY, || text.parse::<EtcdConfig>());
        if let Err(error) = &read {
            assert_sound(error, &[SECRET]);
            assert!(matches!(error.kind(), ErrorKind::InvalidArgument | ErrorKind::Unsupported), "{error}");
        }
        assert!(!format!("{read:?}").contains(SECRET));
    }

    #[test]
    fn a_hold_comes_back(record in records(), damage in inputs::damage()) {
        let bytes = record.encode();
        assert_eq!(Record::decode(&bytes), Some(record));
        let damaged = inputs::damaged(bytes, &damage);
        if let Some(read) = frugally(&MEMORY, || Record::decode(&damaged)) {
            assert!(read.entries.len() <= damaged.len() / 22);
        }
    }

    /// A key that parses is spelled by the parsed place: no two keys are taken for the same place.
    #[test]
    fn a_key_is_a_place_only_as_it_is_spelled(key in inputs::bytes(KEYS, 0..8)) {
        let space = Keyspace::new("ns");
        let spelled = match space.parse(&key) {
            Parsed::Hold(name) => [b"ns/", name, b"/hold"].concat(),
            Parsed::Wait(name, Spot { arrival, token }) => {
                [b"ns/", name, b"/wait/", format!("{arrival:016x}-{}", token.expose().as_str()).as_bytes()].concat()
            }
            Parsed::Foreign => return Ok(()),
        };
        assert_eq!(spelled, key);
    }

    #[test]
    fn names_come_back(name in inputs::noise(1..40), other in inputs::noise(1..40)) {
        let spelled = |name: &[u8]| {
            let mut text = Vec::new();
            encode(name, &mut text);
            text
        };
        assert_eq!(decode(&spelled(&name)), Some(name.clone()));
        assert_eq!(spelled(&name) == spelled(&other), name == other);
        let space = Keyspace::new("ns");
        let keys = space.of(&LockName::new(&name).unwrap());
        assert_eq!(space.parse(&keys.hold()), Parsed::Hold(space.encoded(&keys)));
    }
}
