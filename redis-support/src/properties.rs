//! Property tests of external inputs (URLs, replies, announcements, wake-ups, refusals), with random and malformed
//! values.

use std::time::Duration;

use peak_alloc::PeakAlloc;
use proptest::collection::vec;
use proptest::prelude::*;
use tenure_core::driver::{Checkup, Handed};
use tenure_core::{ErrorKind, FencingToken, OwnerToken};
use tenure_testkit::inputs::{self, SECRET, assert_sound, frugally};

use crate::check::{Notes, Replicas};
use crate::cluster::{SlotMap, redirection};
use crate::config::{Address, RedisConfig};
use crate::damage::Met;
use crate::error::ExecError;
use crate::keyspace::{ClientId, Keyspace};
use crate::link::WakeLink;
use crate::script::{ArgList, Reply};
use crate::servers::Placement;
use crate::settings::{Eviction, FenceScope, Prefix, RedisSettings};
use crate::{call, check, damage, doctor, script, sentinel, voting};

#[global_allocator]
pub(crate) static MEMORY: PeakAlloc = PeakAlloc;

const URLS: &[&str] = &[
    "a",
    "b.c",
    ",",
    ":",
    "7000",
    "/",
    "3",
    "main",
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
    "db=",
    "user=",
    "pass=",
    "name=",
    "sentinel_user=",
    "sentinel_pass=",
    "max_waiters=",
    "max_backlog=",
    "max_dead_letters=",
    "fences=",
    "clock",
    "fence_floor=",
    "counter_life_ms=",
    "true",
    "allow_eviction=",
    "connect_timeout_ms=",
    "response_timeout_ms=",
    "ping_interval_ms=",
    "protocol=",
    "resp3",
    "ca=",
    "cert=",
    "key=",
    "18446744073709551615",
    "-1",
];

const SCHEMES: &[&str] = &[
    "redis",
    "rediss",
    "redis+unix",
    "unix",
    "redis+cluster",
    "rediss+cluster",
    "redis+sentinel",
    "rediss+sentinel",
    "redlock+redis",
    "http",
];

/// What servers say: of versions, roles, refusals, redirections, keys and records.
pub(crate) const WORDS: &[&str] = &[
    "0",
    "1",
    "2",
    "-1",
    "-8",
    "16383",
    "16384",
    "65536",
    "9223372036854775807",
    "18446744073709551615",
    ";",
    ":",
    " ",
    "|",
    "\r\n",
    ".",
    "'",
    " [",
    "]",
    "@user_script:",
    "redis_version:",
    "redis_mode:",
    "cluster",
    "sentinel",
    "role:",
    "slave",
    "master",
    "maxmemory_policy:",
    "noeviction",
    "run_id:",
    "maxmemory:",
    "aof_enabled:",
    "connected_slaves:",
    "ERR ",
    "NOPERM ",
    "MOVED ",
    "ASK ",
    "WRONGTYPE ",
    "DAMAGED ",
    "DENIED ",
    "to run the '",
    "channel",
    " key",
    "script",
    "127.0.0.1",
    "::1",
    "?",
    "string",
    "hash",
    "none",
    "H",
    "AAAAAAAAAAAAAAAAAAAAAA",
    "7",
    "6",
    "2",
];

pub(crate) fn replies() -> impl Strategy<Value = Reply> {
    let leaf = prop_oneof![
        Just(Reply::Nil),
        prop_oneof![-9..9_i64, any::<i64>(), 0..20_000_i64].prop_map(Reply::Int),
        inputs::bytes(WORDS, 0..4).prop_map(Reply::Bytes),
    ];
    leaf.prop_recursive(3, 24, 8, |inner| vec(inner, 0..8).prop_map(Reply::Array))
}

fn keys() -> Keyspace {
    Keyspace::new(Prefix::default(), FenceScope::Node, ClientId::random())
}

proptest! {
    #![proptest_config(inputs::config())]

    /// Also no part of a password in which nothing is encoded.
    #[test]
    fn any_url_is_read_or_refused_without_its_login(text in inputs::logins(SCHEMES, URLS)) {
        let read = frugally(&MEMORY, || (RedisConfig::from_url(&text), RedisConfig::nodes_from_url(&text)));
        let (one, nodes) = read;
        for error in [one.as_ref().err(), nodes.as_ref().err()].into_iter().flatten() {
            assert_sound(error, &[SECRET]);
            assert!(matches!(error.kind(), ErrorKind::InvalidArgument), "{error}");
        }
        assert!(!format!("{one:?} {nodes:?}").contains(SECRET));
    }

    #[test]
    fn any_reply_is_read_or_refused(reply in replies(), ms in 1..100_000_u64) {
        let settings = RedisSettings::default();
        let refused = |error: &tenure_core::Error| assert_sound(error, &[]);
        frugally(&MEMORY, || {
            let _ = call::acquisition(&reply, Duration::from_millis(ms), &settings).inspect_err(refused);
            let _ = call::renewals(&reply, 3).inspect_err(refused).inspect(|all| assert_eq!(all.len(), 3));
            let _ = call::inspection(&reply).inspect_err(refused);
            let _ = reply.int().and_then(call::exited).inspect_err(refused);
            let _ = reply.fence().inspect_err(refused);
            let _ = damage::another_type([&b"{tenure:a}:q"[..], b"tenure:a"].into_iter(), Some(&reply));
            let _ = voting::vote(&reply, Duration::from_millis(ms), &settings).inspect_err(refused);
            let _ = voting::raised(&reply, FencingToken::new(ms).unwrap()).inspect_err(refused);
            let _ = sentinel::place(&reply);
            let _ = doctor::time(&reply);
        });
    }

    /// Whatever a map says, the slots that it names are there: keys are looked for that lie in them.
    #[test]
    fn any_map_of_slots_is_one_that_can_be_asked(
        ranges in vec((0..20_000_i64, 0..20_000_i64, "[a-z?]{0,2}", 0..70_000_i64), 1..5),
        moved in any::<u16>(),
    ) {
        let range = |(from, to, host, port): &(i64, i64, String, i64)| {
            let node = Reply::Array(vec![Reply::Bytes(host.clone().into_bytes()), Reply::Int(*port)]);
            Reply::Array(vec![Reply::Int(*from), Reply::Int(*to), node])
        };
        let reply = Reply::Array(ranges.iter().map(range).collect());
        let Ok(mut map) = SlotMap::read(&reply, &Address::tcp("seed", 9)) else { return Ok(()) };
        for (_, slots) in map.homes() {
            assert!(slots.start() <= slots.end() && *slots.end() < 16_384, "{slots:?}");
            keys().push_probes(&mut ArgList::with_capacity(2), &slots);
        }
        map.moved(moved, Address::tcp("b", 3));
        assert!(map.nodes().len() <= ranges.len() + 1);
    }

    #[test]
    fn any_redirection_and_announcement_is_read_or_not(text in inputs::text(WORDS, 0..8)) {
        if let Some((slot, Address::Tcp { host, port })) = redirection(&text, &Address::tcp("h", 1)) {
            assert!(slot < 16_384 && port > 0 && !host.is_empty(), "{text}");
            assert!(!host.contains(char::is_control) && !host.contains(' '), "{host:?}");
        }
    }

    #[test]
    fn any_refusal_is_named(text in inputs::text(WORDS, 0..12)) {
        let error = ExecError::refused(&text);
        let _ = (error.is_no_script(), error.is_withheld(), Met::by(&error));
        assert_sound(&error.into_error(&keys(), Some(&script::RENEW)), &[]);
    }

    #[test]
    fn any_info_is_looked_at(text in inputs::text(WORDS, 0..24)) {
        let mut notes = Notes::default();
        let looked = check::look(&text, Placement::OneServer, Eviction::Allow, Replicas::Refused, &mut notes);
        let _ = looked.inspect_err(|error| assert_sound(error, &[]));
        for reported in notes.server_version().into_iter().chain(notes.remarks().iter().map(String::as_str)) {
            assert!(!reported.contains(char::is_control) && reported.len() < 1000, "{reported:?}");
        }
        let mut checkup = Checkup::default();
        doctor::look(&mut checkup, "a:1", &text, Placement::OneServer);
        for finding in checkup.findings() {
            assert!(!finding.seen.contains(char::is_control) && finding.seen.len() < 1000, "{finding:?}");
        }
    }

    #[test]
    fn any_wake_up_is_taken_in(payload in inputs::bytes(WORDS, 0..8), fence in 1..u64::MAX, at in any::<u64>(), ms in any::<u64>(), fences in any::<u32>()) {
        let wake = WakeLink::default();
        let token = OwnerToken::parse("AAAAAAAAAAAAAAAAAAAAAA").unwrap();
        let _watch = wake.router().register(token);
        frugally(&MEMORY, || wake.deliver(&payload));
        let news = format!("{fence};{at};{ms};{fences}");
        let handed = Handed::new(FencingToken::new(fence).unwrap(), Duration::from_millis(ms), Duration::from_micros(at)).with_fences(fences.max(1));
        assert_eq!(call::handed(&news), Some(handed));
    }
}
