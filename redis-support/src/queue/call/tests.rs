//! Each script of queues is called with the arguments that its header lists, in that order, and with no more than fits.

use std::time::Duration;

use tenure_core::driver::{Lease, NamedId, Payload, Receipt};
use tenure_core::queue::{Rate, Recurrence};
use tenure_core::{FenceFloor, FencingToken, OwnerToken};

use super::*;
use crate::call::tests::{calls, name, reported};
use crate::keyspace::tests::space;
use crate::settings::{FenceScope, RedisSettings};

const RECEIPT: Receipt = Receipt::new([0x2a, 7, 0]);
const NOTHING_RESERVED: &str = "2592000000";

fn queue() -> QueueName {
    QueueName::new("q").unwrap()
}

fn delay(ms: u64) -> Delay {
    Delay::new(Duration::from_millis(ms)).unwrap()
}

fn message(payload: impl Into<Vec<u8>>) -> NewMessage {
    NewMessage::new(Payload::new(payload.into()).unwrap())
}

fn named(text: &str) -> MessageId {
    MessageId::named(text).unwrap()
}

fn reason() -> Option<Reason> {
    Some(Reason::beginning_of("why"))
}

/// The arguments of a call, in words, if its keys are those of the queue.
fn args(call: &ScriptCall) -> String {
    let keys: Vec<String> = "tmrodishjncl".chars().map(|suffix| format!("{{tenure:dq:q}}:{suffix}")).collect();
    let reported = reported(call);
    let (head, args) = reported.split_once(" | ").unwrap();
    assert_eq!(head, format!("{} {} tenure:{{dq}}", call.script.name(), keys.join(" ")));
    args.to_owned()
}

/// Those behind the name of the queue, the channels and how long counters are kept.
fn own(call: &ScriptCall) -> String {
    let args = args(call) + " ";
    let rest = args.strip_prefix("q tenure:wake: 2592000000 ").unwrap_or_else(|| panic!("{args}"));
    rest.trim_end().to_owned()
}

#[test]
fn a_push_says_when_by_what_name_and_what() {
    let calls = calls(RedisSettings::default());
    let name = |text: &str| Some(NamedId::new(named(text), delay(9)));
    let messages = [
        message("x"),
        message("y").with_due(Due::After(delay(3))).with_id(name("one")),
        message("z").with_due(Due::Parked { at_most: delay(4) }).with_ttl(Some(delay(5))),
        message("").with_id(name("two")).with_if_known(IfKnown::Replace),
    ];
    let call = calls.queue_push(&queue(), &messages).unwrap();
    assert_eq!(call.script.name(), "queue_push");
    let rest = own(&call);
    let words: Vec<&str> = rest.split(' ').collect();
    let shown: Vec<&str> = words[1..].chunks(3).flat_map(|message| [message[0], message[1]]).collect();
    assert_eq!(words[0], "0", "as long as the server has room");
    assert_eq!(shown, ["0", "-", "3000", "kone", "4000;5000", "-", "0", "rtwo"]);
    let records: Vec<&[u8]> = call.args.iter().skip(6).step_by(3).collect();
    let written = |message: &NewMessage| {
        let mut record = Vec::new();
        write_record(&mut record, message);
        record
    };
    assert_eq!(records, messages.iter().map(written).collect::<Vec<_>>());

    let limited = self::calls(RedisSettings::default().max_backlog(12).unwrap());
    assert!(own(&limited.queue_push(&queue(), &messages).unwrap()).starts_with("12 "));
    let counting = self::calls(RedisSettings::default().fences(Fences::Counter));
    let reported = args(&counting.queue_push(&queue(), &messages).unwrap());
    assert!(reported.starts_with("q tenure:wake: 0 "), "a counter that is forgotten would start again: {reported}");
}

#[test]
fn a_turn_settles_in_one_word_each_and_asks_for_no_more_than_one_script_hands_out() {
    let usual = calls(RedisSettings::default());
    let settlement = |how| Settle::new(RECEIPT, how);
    let recurrence = Recurrence::new("daily").unwrap();
    let settles = [
        settlement(Settlement::Ack),
        settlement(Settlement::Retry { after: delay(1), reason: None }),
        settlement(Settlement::Retry { after: delay(1), reason: reason() }),
        settlement(Settlement::Return { after: delay(2) }),
        settlement(Settlement::Park { lock: name("l"), at_most: delay(3) }),
        settlement(Settlement::Recur { after: delay(4), recurrence: recurrence.clone(), reason: None }),
        settlement(Settlement::Recur { after: delay(4), recurrence, reason: reason() }),
        settlement(Settlement::Dead { reason: None }),
        settlement(Settlement::Dead { reason: reason() }),
    ];
    let words = [
        "a",
        "r000000000003e8",
        "r000000000003e8=why",
        "b000000000007d0",
        "p00000000000bb8",
        "c00000000000fa00005daily",
        "c00000000000fa00005daily=why",
        "d",
        "d=why",
    ]
    .map(|how| format!("0000000000002a00000000000007{how}"));
    let request = |max| ReceiveRequest::new(queue(), max, Lease::new(Duration::from_secs(2)).unwrap());
    let turn = |calls: &Calls, settles: &[Settle], request: Option<&ReceiveRequest>, listening| {
        let call = calls.queue_turn(&queue(), settles, request, listening).unwrap();
        assert_eq!(call.script.name(), "queue_turn");
        own(&call)
    };
    let reported = turn(&usual, &settles, None, Listening::No);
    assert_eq!(reported, format!("clock 100000 - 0 0 0 {}", words.join(" ")));
    assert_eq!(turn(&usual, &[], Some(&request(3)), Listening::Yes), "clock 100000 CLIENT 3 2000000 0");
    assert_eq!(turn(&usual, &[], Some(&request(BATCH)), Listening::No), "clock 100000 - 128 2000000 0");
    let other = calls(RedisSettings::default().max_dead_letters(9).fence_floor(FenceFloor::new(5).unwrap()));
    assert_eq!(
        turn(&other, &settles[..1], Some(&request(1)), Listening::No),
        format!("clock 9 - 1 2000000 5 {}", words[0])
    );
    let counting = calls(RedisSettings::default().fences(Fences::Counter));
    let reported = args(&counting.queue_turn(&queue(), &[], Some(&request(1)), Listening::No).unwrap());
    assert_eq!(reported, "q tenure:wake: 0 counter 100000 - 1 2000000 0");

    let damaged = Damaged { receipt: RECEIPT, reason: reason().unwrap() };
    let buried = own(&usual.queue_bury_damaged(&queue(), &[damaged]));
    assert_eq!(buried, "clock 100000 - 0 0 0 0000000000002a00000000000007x=why");
}

#[test]
fn what_is_asked_of_one_message_names_it_by_its_name_or_number() {
    let calls = calls(RedisSettings::default());
    let turn =
        LockTurn::new(name("l"), OwnerToken::parse("AAAAAAAAAAAAAAAAAAAAAA").unwrap(), FencingToken::new(7).unwrap());
    for (id, word) in [(named("one"), "none"), (MessageId::assigned(0x2a), "#0000000000002a")] {
        for (call, script, reported) in [
            (calls.queue_cancel(&queue(), &id), "queue_cancel", word.to_owned()),
            (calls.queue_reschedule(&queue(), &id, delay(3)), "queue_reschedule", format!("{word} 3000")),
            (
                calls.queue_give_turn(&queue(), &id, &turn),
                "queue_give_turn",
                format!("{word} @AAAAAAAAAAAAAAAAAAAAAA00000000000000070001l"),
            ),
        ] {
            assert_eq!((call.script.name(), own(&call)), (script, reported));
        }
        assert_eq!(args(&calls.queue_get(&queue(), &id)), word);
        let which = DeadSelection::Ids(vec![id.clone(), named("two")]);
        assert_eq!(own(&calls.queue_dead_purge(&queue(), &which).unwrap()), format!("ids {word} ntwo"));
        let redriven = own(&calls.queue_dead_redrive(&queue(), &which, delay(3)).unwrap());
        assert_eq!(redriven, format!("3000 ids {word} ntwo"));
    }
    let lease = Lease::new(Duration::from_secs(2)).unwrap();
    let extended = calls.queue_extend(&queue(), &[Extension::new(RECEIPT, lease); 2]).unwrap();
    let one = "0000000000002a00000000000007 2000000";
    assert_eq!(args(&extended), format!("{NOTHING_RESERVED} {one} {one}"));
}

#[test]
fn a_page_begins_where_the_last_one_ended_and_is_no_longer_than_a_batch() {
    let (calls, queue) = (calls(RedisSettings::default()), queue());
    let page = |which, from, max| args(&calls.queue_page(&queue, which, from, max));
    assert_eq!(page(Listed::Waiting, None, 3), "waiting T 0 00000000000000 3");
    assert_eq!(page(Listed::InFlight, Some(ListPlace::new([0, 5, 42])), 300), "flying T 5 0000000000002a 256");
    assert_eq!(page(Listed::Waiting, Some(ListPlace::new([1, 5, 42])), 256), "waiting H 5 0000000000002a 256");
    let purge = |max, from| own(&calls.queue_purge(&queue, max, from));
    assert_eq!(purge(3, None), "3 - 0");
    assert_eq!(purge(300, Some(PurgePlace { newest: 42, at: 5 })), "256 0000000000002a 5");
    let dead = |after, max| args(&calls.queue_dead_list(&queue, after, max));
    assert_eq!(dead(None, 3), "0 00000000000000 3");
    assert_eq!(dead(Some(DeadPlace { stamp: 5, number: 42 }), 300), "5 0000000000002a 256");
    let oldest = |count| own(&calls.queue_dead_purge(&queue, &DeadSelection::Oldest(count)).unwrap());
    assert_eq!([oldest(3), oldest(300)], ["oldest 3", "oldest 256"]);
}

#[test]
fn what_is_asked_of_a_whole_queue_is_said() {
    let (calls, queue) = (calls(RedisSettings::default()), queue());
    let rate = Rate::new(3, Duration::from_secs(2)).unwrap();
    let limits = QueueLimits::none().in_flight(4).unwrap().rate(rate);
    assert_eq!(own(&calls.queue_limit(&queue, &limits, 9)), "4 3 2000000 9");
    assert_eq!(own(&calls.queue_limit(&queue, &QueueLimits::none(), 0)), "0 0 0 0");
    assert_eq!(args(&calls.queue_stats(&queue)), "");
    assert_eq!([calls.queue_pause(&queue), calls.queue_resume(&queue)].map(|call| own(&call)), ["", ""]);
    assert_eq!(args(&calls.queue_listen(&queue)), "2592000000 CLIENT");
}

#[test]
fn queues_are_listed_by_their_groups() {
    let settings = RedisSettings::default().fence_per_name();
    let calls = Calls::new(space(FenceScope::Name).over_slots(), settings);
    assert_eq!(reported(&calls.queue_list(0xa7, None, 5)), "queue_list {tenure:dq%-a7} | - 5");
    assert_eq!(reported(&calls.queue_list(0, Some(b"q"), 257)), "queue_list {tenure:dq%-00} | (q 257");
    let one = queue();
    let tag = format!("{{tenure:dq%-{:02x}}}", space(FenceScope::Name).over_slots().group(&one));
    let signs: Vec<String> = "tdhn".chars().map(|suffix| format!("{tag}:q:{suffix}")).collect();
    let group = calls.keys.group(&one);
    let living = reported(&calls.queue_living(group, &[&one, &one]));
    assert_eq!(living, format!("queue_living {tag} {0} {0} | q q", signs.join(" ")));
}

#[test]
fn no_script_is_given_more_than_it_can_do_at_once() {
    let (calls, queue) = (calls(RedisSettings::default()), queue());
    let refused = |call: Result<ScriptCall>| {
        let error = call.err().map(|error| (error.kind(), error.message().contains("are more than")));
        error.inspect(|error| assert_eq!(*error, (ErrorKind::InvalidArgument, true))).is_some()
    };
    let lease = Lease::new(Duration::from_secs(2)).unwrap();
    for (count, too_many) in [(BATCH, false), (BATCH + 1, true)] {
        let settles = vec![Settle::new(RECEIPT, Settlement::Ack); count];
        let request = ReceiveRequest::new(queue.clone(), count, lease);
        let ids = DeadSelection::Ids(vec![named("one"); count]);
        for call in [
            calls.queue_push(&queue, &vec![message("x"); count]),
            calls.queue_turn(&queue, &settles, None, Listening::No),
            calls.queue_turn(&queue, &[], Some(&request), Listening::No),
            calls.queue_extend(&queue, &vec![Extension::new(RECEIPT, lease); count]),
            calls.queue_dead_purge(&queue, &ids),
            calls.queue_dead_redrive(&queue, &ids, delay(0)),
        ] {
            assert_eq!(refused(call), too_many, "{count}");
        }
    }
    let largest = Payload::MAX_LEN;
    let mut messages = vec![message(vec![0; largest]); PUSHED_BYTES / largest];
    assert_eq!(messages.iter().map(NewMessage::bytes).sum::<usize>(), PUSHED_BYTES);
    assert!(!refused(calls.queue_push(&queue, &messages)));
    messages.push(message("x"));
    assert!(refused(calls.queue_push(&queue, &messages)));
}
