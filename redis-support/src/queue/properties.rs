//! Property tests of stored message data, with random and malformed values.

use std::time::Duration;

use proptest::prelude::*;
use tenure_core::driver::{Attempts, Delay, Due, LockTurn, NamedId, NewMessage, Payload};
use tenure_core::queue::{ConcurrencyKey, MessageId, Recurrence};
use tenure_core::{FencingToken, LockName, OwnerId, OwnerToken};
use tenure_testkit::inputs::{self, assert_sound, frugally};

use super::call;
use super::form::{Record, State, hex, read_or_guess, write_record, write_turn};
use crate::properties::{MEMORY, replies};
use crate::script::Reply;

/// A message with, or without, each of what one may have.
fn messages() -> impl Strategy<Value = NewMessage> {
    let name = || proptest::option::of(inputs::noise(1..128));
    let parts =
        (inputs::noise(0..60), name(), name(), name(), proptest::option::of("[ -~é\n]{1,40}"), any::<[u64; 3]>());
    parts.prop_map(|(payload, id, key, lock, recurrence, [attempts, window, due])| {
        let delay = |number: u64| Delay::new(Duration::from_millis(number % 1_000_000_000)).unwrap();
        NewMessage::new(Payload::new(payload).unwrap())
            .with_id(id.map(|id| NamedId::new(MessageId::named(id).unwrap(), delay(window))))
            .with_key(key.map(|key| ConcurrencyKey::new(key).unwrap()))
            .with_lock(lock.map(|lock| LockName::new(lock).unwrap()))
            .with_recurrence(recurrence.map(|text| Recurrence::new(text).unwrap()))
            .with_due(if due % 2 == 0 { Due::After(delay(due)) } else { Due::Parked { at_most: delay(due) } })
            .with_ttl((due % 3 == 0).then(|| delay(due)))
            .with_attempts(Attempts::new(1 + (attempts % 10_000) as u32).unwrap())
    })
}

fn written(message: &NewMessage) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_record(&mut bytes, message);
    bytes
}

proptest! {
    #![proptest_config(inputs::config())]

    #[test]
    fn a_record_comes_back(message in messages(), damage in inputs::damage()) {
        let bytes = written(&message);
        let record = Record::read(&bytes).unwrap();
        assert_eq!((record.payload, record.attempts, record.expires), (message.payload, message.attempts, 0));
        assert_eq!(record.name, message.id.map(|named| named.id));
        assert_eq!((record.key, record.lock, record.recurrence), (message.key, message.lock, message.recurrence));
        let damaged = inputs::damaged(bytes, &damage);
        let read = frugally(&MEMORY, || Record::read(&damaged));
        let _ = read.inspect_err(|error| assert_sound(error, &[]));
        let (guessed, _) = read_or_guess(&damaged, &[]);
        assert!(guessed.payload.len() <= damaged.len());
    }

    #[test]
    fn a_state_comes_back(
        attempt in any::<u16>(),
        fence in 1..1_u64 << 56,
        bits in any::<[u8; 16]>(),
        lock in inputs::noise(1..40),
        reason in "[ -~é]{0,40}",
        damage in inputs::damage(),
    ) {
        let token = OwnerToken::parse(&OwnerId::from_bytes(bits).to_string()).unwrap();
        let turn = LockTurn::new(LockName::new(lock).unwrap(), token, FencingToken::new(fence).unwrap());
        let mut bytes = format!("{attempt:04x}000aT-R{fence:014x}").into_bytes();
        write_turn(&mut bytes, &turn);
        bytes.extend_from_slice(format!("={reason}").as_bytes());
        let state = State::read(&bytes).unwrap();
        assert_eq!((state.attempt, state.fence, state.turn), (u32::from(attempt), fence, Some(turn)));
        assert_eq!(state.reason.unwrap().as_str(), reason);
        let damaged = inputs::damaged(bytes, &damage);
        let _ = frugally(&MEMORY, || State::read(&damaged)).inspect_err(|error| assert_sound(error, &[]));
    }

    /// Nothing but digits is a number.
    #[test]
    fn only_digits_are_a_number(bytes in inputs::bytes(&["0", "9", "a", "F", "+", "-", " ", "_"], 0..18)) {
        let digits = !bytes.is_empty() && bytes.iter().all(u8::is_ascii_hexdigit);
        let fits = bytes.iter().skip_while(|byte| **byte == b'0').count() <= 16;
        assert_eq!(hex(&bytes).is_ok(), digits && fits, "{}", bytes.escape_ascii());
    }

    #[test]
    fn any_reply_about_messages_is_read_or_refused(reply in replies(), record in inputs::noise(0..60), state in inputs::noise(0..40), place in any::<u8>()) {
        // Stored bytes of a message, where one may be in a reply.
        let reply = match reply {
            Reply::Array(mut items) => {
                let at = usize::from(place) % (items.len() + 1);
                items.splice(at..at, [Reply::Bytes(b"2a".to_vec()), Reply::Int(3), Reply::Bytes(record), Reply::Bytes(state)]);
                Reply::Array(items)
            }
            other => other,
        };
        let refused = |error: &tenure_core::Error| assert_sound(error, &[]);
        let message = NewMessage::new(Payload::new([]).unwrap());
        frugally(&MEMORY, || {
            let _ = call::pushed(&reply, &[message.clone(), message]).inspect_err(refused);
            let _ = call::settled(&reply, 2).inspect_err(refused);
            let _ = call::received(&reply).inspect_err(refused);
            let _ = call::received(&Reply::Array(vec![Reply::Nil, reply.clone()])).inspect_err(refused);
            let _ = call::extended(&reply, 2).inspect_err(refused);
            let _ = call::cancelled(&reply).inspect_err(refused);
            let _ = call::rescheduled(&reply).inspect_err(refused);
            let _ = call::turn_given(&reply).inspect_err(refused);
            let _ = call::info(&reply).inspect_err(refused);
            let _ = call::page(&reply).inspect_err(refused);
            let _ = call::stats(&reply).inspect_err(refused);
            let _ = call::purged(&reply).inspect_err(refused);
            let _ = call::dead_page(&reply).inspect_err(refused);
            let _ = call::moved(&reply).inspect_err(refused);
        });
    }
}

#[test]
fn the_greatest_number_is_read_without_a_panic() {
    let message = || NewMessage::new(Payload::new(*b"x").unwrap());
    let pushed = call::pushed(&Reply::Bytes(vec![b'f'; 16]), &[message(), message()]).unwrap().unwrap();
    assert_eq!(pushed.len(), 2);
}
