//! Property tests of stored queue data, with random and malformed values.

use std::time::Duration;

use proptest::option;
use proptest::prelude::*;
use tenure_core::driver::{Attempts, Cause, DeadCause, Delay, Lifecycle, LockTurn, NamedId};
use tenure_core::queue::{ConcurrencyKey, MessageId, QueueLimits, QueueName, Rate, Reason, Recurrence};
use tenure_core::{FencingToken, LockName};
use tenure_testkit::inputs::{self, frugally};

use super::entry::{known_until, stored_as};
use super::keys::{Location, QueueSpace, Signalled};
use super::limits::{parse, spelled};
use super::line::News;
use super::record::Record;
use crate::properties::{KEYS, MEMORY, token};

/// What values are made of.
const VALUES: &[&str] = &[
    "number=",
    "until=",
    "in_flight=",
    "rate=",
    "/",
    "=",
    " ",
    "\n",
    "0",
    "7",
    "-1",
    "+7",
    "18446744073709551615",
    "18446744073709551616",
    "4294967295",
];

const CAUSES: [Cause; 6] =
    [Cause::First, Cause::Retried, Cause::Returned, Cause::Parked, Cause::LeaseExpired, Cause::Redriven];

const DOOMS: [Option<DeadCause>; 5] =
    [None, Some(DeadCause::Exhausted), Some(DeadCause::Rejected), Some(DeadCause::Expired), Some(DeadCause::Damaged)];

fn records() -> impl Strategy<Value = Record> {
    let name = || option::of(inputs::noise(1..60));
    let text = || option::of("[ -~é\n]{1,40}");
    let turn = option::of((any::<[u8; 16]>(), 1..u64::MAX, inputs::noise(1..40)));
    let parts = (any::<[u32; 5]>(), any::<[u64; 4]>(), name(), name(), name(), text(), text(), turn);
    parts.prop_map(
        |(
            [attempt, attempts, cause, doom, known],
            [pushed, size, serial, at],
            id,
            key,
            lock,
            reason,
            recurrence,
            turn,
        )| {
            let window = Delay::new(Duration::from_micros(at % 1_000_000_000_000)).unwrap();
            Record {
                pushed,
                size: size as usize,
                life: Lifecycle {
                    attempt,
                    attempts: Attempts::new(1 + attempts % 10_000).unwrap(),
                    cause: CAUSES[cause as usize % CAUSES.len()],
                    reason: reason.map(|reason| Reason::new(reason).unwrap()),
                    recurrence: recurrence.map(|text| Recurrence::new(text).unwrap()),
                    expires: (known % 2 == 0).then_some(at),
                    doomed: DOOMS[doom as usize % DOOMS.len()],
                },
                serial: serial.min(u64::MAX - 1),
                named: id.map(|id| NamedId::new(MessageId::named(id).unwrap(), window)),
                key: key.map(|key| ConcurrencyKey::new(key).unwrap()),
                lock: lock.map(|lock| LockName::new(lock).unwrap()),
                turn: turn.map(|(bits, fence, lock)| {
                    LockTurn::new(LockName::new(lock).unwrap(), token(bits), FencingToken::new(fence).unwrap())
                }),
            }
        },
    )
}

proptest! {
    #![proptest_config(inputs::config())]

    #[test]
    fn a_record_comes_back(record in records(), damage in inputs::damage()) {
        let bytes = record.encode();
        let back = Record::decode(&bytes);
        assert_eq!(format!("{back:?}"), format!("{record:?}"));
        assert_eq!(back.turn, record.turn, "the whole token");
        let damaged = inputs::damaged(bytes, &damage);
        let read = frugally(&MEMORY, || Record::decode(&damaged));
        // A record that was read is written so that it is read again in the same way.
        let again = Record::decode(&read.encode());
        assert_eq!(format!("{again:?}"), format!("{read:?}"));
        let _ = (read.life.doom_at(u64::MAX), read.id(7));
    }

    /// A key that parses is spelled by the parsed place: no two keys are taken for the same place.
    #[test]
    fn a_key_is_a_place_only_as_it_is_spelled(key in inputs::bytes(KEYS, 0..8), rest in inputs::bytes(KEYS, 1..6)) {
        let space = QueueSpace::new("ns");
        let name = QueueName::new("q").unwrap();
        let (keys, group) = (space.of(&name), ConcurrencyKey::new("q").unwrap());
        let within = [b"ns:queue/of/q/", rest.as_slice()].concat();
        for key in [&key, &within] {
            if let Some((place, number)) = keys.parse_place(key) {
                assert_eq!(keys.place(place, number), *key);
            }
            if let Some((at, number)) = keys.parse_held_by(&group, key) {
                assert_eq!(keys.held_by(&group, at, number), *key);
            }
            if let Some((until, id)) = keys.parse_forgotten(key) {
                assert_eq!(keys.forgotten(until, &id), *key);
            }
            if let Some(registered) = space.registered(key) {
                assert_eq!(space.of(&registered).registered, *key);
            }
            if let Some(place) = Location::parse(key) {
                assert_eq!(place.spelled().as_bytes(), key.as_slice());
            }
            if let Some((queue, Signalled::Soonest)) = space.signalled(key) {
                assert_eq!(space.of(&queue).wake, *key);
            }
            let _ = keys.parse_held(key);
        }
    }

    #[test]
    fn any_value_is_read_or_not(value in inputs::bytes(VALUES, 0..8), most in 1..1_000_u32, deliveries in 1..1_000_u32, ms in 1..100_000_u64) {
        frugally(&MEMORY, || {
            let _ = (stored_as(&value), known_until(&value), News::parse(&value));
            if let Some(limits) = parse(&String::from_utf8_lossy(&value)) {
                assert_eq!(parse(&spelled(&limits)), Some(limits));
            }
        });
        let rate = Rate::new(deliveries, Duration::from_millis(ms));
        let Ok(rate) = rate else { return Ok(()) };
        let limits = QueueLimits::none().in_flight(most).unwrap().rate(rate);
        assert_eq!(parse(&spelled(&limits)), Some(limits));
    }
}
