//! Each script is called with the keys and arguments that its header lists, in that order.

use std::time::Duration;

use tenure_core::Label;

use super::*;
use crate::keyspace::tests::space;

/// The calls of the client `CLIENT`.
pub(crate) fn calls(settings: RedisSettings) -> Calls {
    Calls::new(space(settings.fence_scope), settings)
}

/// A call in words: its script, its keys, and behind a bar its arguments; `-` for an empty one.
pub(crate) fn reported(call: &ScriptCall) -> String {
    let words = |list: &ArgList| {
        let word = |word: &[u8]| if word.is_empty() { "-".into() } else { word.escape_ascii().to_string() };
        list.iter().map(word).collect::<Vec<_>>().join(" ")
    };
    format!("{} {} | {}", call.script.name(), words(&call.keys), words(&call.args))
}

pub(crate) fn name(text: &str) -> LockName {
    LockName::new(text).unwrap()
}

fn token() -> OwnerToken {
    OwnerToken::parse("AAAAAAAAAAAAAAAAAAAAAA").unwrap()
}

/// `AAAAAAAAAAAAAAAAAAAAAQ`.
fn owner() -> OwnerId {
    OwnerId::from_bytes([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1])
}

fn fence(number: u64) -> FencingToken {
    FencingToken::new(number).unwrap()
}

fn request() -> AcquireRequest {
    AcquireRequest::new(name("a"), token(), Ttl::new(Duration::from_millis(1_500)).unwrap())
}

fn joining(presence: Duration, accepts: Handing) -> AcquireRequest {
    request().with_queue(Queueing::Join { presence, accepts })
}

fn labelled(request: AcquireRequest) -> AcquireRequest {
    request.with_label(Some(Label::new("lab").unwrap()))
}

fn counting() -> RedisSettings {
    RedisSettings::default().fences(Fences::Counter)
}

#[test]
fn what_takes_a_lock_says_of_fences_and_labels_only_what_is_unusual() {
    let usual = RedisSettings::default();
    let keys = "tenure:a tenure:{fence} {tenure:a}:x:AAAAAAAAAAAAAAAAAAAAAA {tenure:a}:q {tenure:a}:w {tenure:a}:a";
    let own = keys.replace("tenure:{fence}", "{tenure:a}:f");
    let wait = "0;10000;0;2000;CLIENT;tenure:wake:";
    let args = format!("AAAAAAAAAAAAAAAAAAAAAA 1500 {wait}");
    let by_name = usual.clone().fence_per_name();
    let floored = usual.clone().fence_floor(FenceFloor::new(9).unwrap());
    for (settings, request, keys, more) in [
        (usual.clone(), request(), keys, ""),
        (usual.clone(), labelled(request()), keys, " lab"),
        (counting(), request(), keys, " - counter 0 0"),
        (counting(), labelled(request()), keys, " lab counter 0 0"),
        (floored, request(), keys, " - clock 0 9"),
        (by_name, request(), own.as_str(), " - clock 86400000 0"),
        (counting().fence_per_name(), request(), own.as_str(), " - counter 0 0"),
    ] {
        let calls = calls(settings);
        assert_eq!(reported(&calls.acquire(&request)), format!("acquire {keys} | {args}{more}"));
        let entered = format!("enter {keys} | {args} AAAAAAAAAAAAAAAAAAAAAQ 65535{more}");
        assert_eq!(reported(&calls.enter(&owner(), &request)), entered);
    }
}

#[test]
fn a_request_tells_its_own_presence_whatever_came_before() {
    let calls = calls(RedisSettings::default().max_waiters(7).unwrap());
    let ms = Duration::from_millis;
    for (presence, accepts, reported) in [
        (ms(5_000), Handing::Asked, "5000;7;0"),
        (ms(7_000), Handing::Direct, "7000;7;1"),
        (ms(5_000), Handing::Direct, "5000;7;1"),
        (ms(5_000), Handing::Asked, "5000;7;0"),
        (Duration::ZERO, Handing::Asked, "1;7;0"),
        (ms(86_400_001), Handing::Asked, "86400000;7;0"),
        (Duration::MAX, Handing::Asked, "86400000;7;0"),
    ] {
        let reported = format!("{reported};2000;CLIENT;tenure:wake:");
        let request = joining(presence, accepts);
        assert_eq!(calls.acquire(&request).args.iter().nth(2), Some(reported.as_bytes()));
        let entered = reported.replace(";7;1;", ";7;0;");
        assert_eq!(calls.enter(&owner(), &request).args.iter().nth(2), Some(entered.as_bytes()), "none is handed one");
        assert!(calls.acquire(&self::request()).args.iter().nth(2).unwrap().starts_with(b"0;7;0;"));
    }
}

#[test]
fn in_a_cluster_no_lock_is_handed_over_unasked() {
    let settings = RedisSettings::default().fence_per_name();
    let calls = Calls::new(space(FenceScope::Name).over_slots(), settings);
    let request = joining(Duration::from_secs(5), Handing::Direct);
    assert!(calls.acquire(&request).args.iter().nth(2).unwrap().starts_with(b"5000;10000;0;"));
}

#[test]
fn what_frees_a_lock_says_what_the_next_waiter_is_given() {
    let calls = calls(RedisSettings::default().tombstone(Duration::from_secs(7)).unwrap());
    let (hold, entry) = (Hold::new(name("a"), token()), ReentrantEntry::new(name("a"), owner(), token()));
    let turn = "clock;0;0;2000;tenure:wake:";
    let (keys, queue) = ("tenure:a", "{tenure:a}:q {tenure:a}:w {tenure:a}:a tenure:{fence}");
    let undone = format!("{keys} {{tenure:a}}:x:AAAAAAAAAAAAAAAAAAAAAA {queue}");
    let member = "AAAAAAAAAAAAAAAAAAAAAA AAAAAAAAAAAAAAAAAAAAAA@CLIENT 7000";
    for (call, expected) in [
        (calls.release(&hold), format!("release {keys} {queue} | AAAAAAAAAAAAAAAAAAAAAA {turn}")),
        (calls.exit(&entry), format!("exit {keys} {queue} | AAAAAAAAAAAAAAAAAAAAAA AAAAAAAAAAAAAAAAAAAAAQ {turn}")),
        (calls.force_release(&hold.name, None), format!("force_release {keys} {queue} | {turn}")),
        (calls.force_release(&hold.name, Some(fence(9))), format!("force_release {keys} {queue} | {turn} 9")),
        (calls.pass(&hold.name), format!("pass {keys} {queue} | {turn}")),
        (calls.abandon(&hold), format!("abandon {undone} | {member} {turn}")),
        (calls.abandon_entry(&entry), format!("abandon_entry {undone} | {member} {turn} AAAAAAAAAAAAAAAAAAAAAQ")),
    ] {
        assert_eq!(reported(&call), expected);
    }
    let floored = counting().fence_floor(FenceFloor::new(9).unwrap());
    assert!(reported(&self::calls(floored).pass(&hold.name)).ends_with(" | counter;0;9;2000;tenure:wake:"));
}

#[test]
fn what_keeps_or_shows_locks_takes_several_at_once() {
    let calls = calls(RedisSettings::default());
    let ttl = Ttl::new(Duration::from_millis(1_500)).unwrap();
    let holds = ["a", "b"].map(|text| Hold::new(name(text), token()));
    let entered = [("a", 7), ("b", 8)].map(|(text, number)| ReentrantHold::new(name(text), owner(), fence(number)));
    let (one, two) = ("AAAAAAAAAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAAAQ");
    for (call, expected) in [
        (calls.renew(ttl, &holds.each_ref()), format!("renew tenure:a tenure:b | 1500 {one} {one}")),
        (calls.renew_hold(ttl, &entered.each_ref()), format!("renew_hold tenure:a tenure:b | 1500 {two} 7 {two} 8")),
        (calls.inspect(&holds[0].name), "inspect tenure:a {tenure:a}:w | ".into()),
        (
            calls.census(&[&holds[0].name, &holds[1].name]),
            "census tenure:a {tenure:a}:w tenure:b {tenure:b}:w | ".into(),
        ),
        (
            calls.rights(&crate::slot::ALL),
            "rights tenure:%rights-CLIENT0 {tenure:%rights-CLIENT0}:probe | tenure:wake:".into(),
        ),
    ] {
        assert_eq!(reported(&call), expected);
    }
}

#[test]
fn a_ballot_has_the_counter_of_its_name_whatever_plain_locks_have() {
    let calls = calls(counting().counter_life(Duration::from_secs(90)).unwrap());
    let electorate = Electorate::of(["a:1", "b:1", "c:1"]);
    let ballot = Ballot::new(joining(Duration::from_secs(5), Handing::Direct), electorate);
    let keys = "tenure:a {tenure:a}:f {tenure:a}:x:AAAAAAAAAAAAAAAAAAAAAA {tenure:a}:q {tenure:a}:w {tenure:a}:a tenure:{electorate}";
    let head = format!("vote {keys} | AAAAAAAAAAAAAAAAAAAAAA 1500 5000;10000;0;2000;CLIENT;tenure:wake:");
    assert_eq!(reported(&calls.vote(&ballot)), format!("{head} 0 90000 {electorate} 0"));
    let full = ballot.with_proposal(Some(fence(7))).with_seniority(Duration::from_secs(3));
    let full = full.clone().with_request(labelled(full.request));
    assert_eq!(reported(&calls.vote(&full)), format!("{head} 7 90000 {electorate} 3000 lab"));
    let raised = calls.raise(&Hold::new(name("a"), token()), fence(9));
    assert_eq!(reported(&raised), "raise tenure:a {tenure:a}:f | AAAAAAAAAAAAAAAAAAAAAA 9 90000");
    assert_eq!(reported(&calls.enroll(&electorate)), format!("enroll tenure:{{electorate}} | {electorate}"));
}

// What the answers mean.

#[test]
fn foreign_values_have_no_details() {
    assert!(plain_holder(b"6f1c2d0e9e0b11efb2a1", 1, None).is_none());
    assert!(plain_holder(b"\xff\xfe", 1, None).is_none());
    assert!(plain_holder(b"AAAAAAAAAAAAAAAAAAAAAA;-;x;1;", 1, None).is_none());
    for other in ["AAAAAAAAAAAAAAAAAAAAA;-;7;1;", "AAAAAAAAAAAAAAAAAAAAAA;--;7;1;", "AAAAAAAAAAAAAAAAAAAAAA;;7;1;"] {
        assert!(plain_holder(other.as_bytes(), 1, None).is_none(), "{other}");
    }
    let ours = plain_holder(b"AAAAAAAAAAAAAAAAAAAAAA;w;7;-10000;a;b", 25, None).unwrap();
    assert_eq!((ours.fence, ours.held_for), (FencingToken::new(7), Some(Duration::from_millis(15))));
    assert_eq!(ours.label.unwrap().as_str(), "a;b");
    let ours = plain_holder(b"AAAAAAAAAAAAAAAAAAAAAA;-;1795201718160814;;", 1_795_201_718_175, None).unwrap();
    assert_eq!((ours.fence, ours.held_for), (FencingToken::new(1_795_201_718_160_814), millis(15)));
    assert_eq!(ours.label, None);
    let ours = plain_holder(b"AAAAAAAAAAAAAAAAAAAAAA;-;1795201718160814;8;", 1_795_201_718_175, None).unwrap();
    assert_eq!(ours.held_for, millis(15));
}

/// Any answer gives an error or a value, and no panic.
#[test]
fn no_number_is_too_absurd() {
    let settings = RedisSettings::default();
    let texts = [&b""[..], b"none", b"string", b"hash", b"-9223372036854775808", b"18446744073709551615", b"\xff"];
    let numbers = [i64::MIN, -1, 0, 1, 2, 3, 4, i64::MAX].map(Reply::Int);
    let values = numbers.into_iter().chain(texts.map(|text| Reply::Bytes(text.to_vec())));
    let values: Vec<Reply> = values.chain([Reply::Nil, Reply::Array(vec![])]).collect();
    let sound = |kind: &[u8]| {
        let text = |text: &[u8]| Reply::Bytes(text.to_vec());
        let rest = [text(b"7"), text(b"1"), text(b""), Reply::Int(5), text(b"AAAAAAAAAAAAAAAAAAAAAA")];
        [vec![Reply::Int(1), text(b"2"), text(kind), Reply::Int(4)], rest.to_vec()].concat()
    };
    for kind in [&b"string"[..], b"hash", b"none"] {
        for at in 0..sound(kind).len() {
            for value in &values {
                let mut items = sound(kind);
                items[at] = value.clone();
                let lengths = (0..=items.len()).map(|length| Reply::Array(items[..length].to_vec()));
                for reply in lengths.chain([value.clone()]) {
                    drop((inspection(&reply), acquisition(&reply, Duration::ZERO, &settings), renewals(&reply, 1)));
                }
            }
        }
    }
    for reply in &values {
        if let Ok(answer) = reply.int() {
            drop(exited(answer));
        }
    }
}

#[test]
fn only_a_grant_that_nobody_waits_for_has_a_value_that_is_known() {
    let (settings, text) = (RedisSettings::default(), |text: &str| Reply::Bytes(text.as_bytes().to_vec()));
    let fence = |number| FencingToken::new(number).unwrap();
    let usual = Reply::Int(1_700_000_000_000_000);
    assert_eq!(free_grant(&usual), Some((fence(1_700_000_000_000_000), "")));
    let single = Reply::Array(vec![Reply::Int(3), Reply::Int(7), text("5")]);
    assert_eq!(free_grant(&single), Some((fence(7), "5")));
    let Ok(Acquisition::Granted(grant)) = acquisition(&single, Duration::from_secs(1), &settings) else { panic!() };
    assert_eq!((grant.fence, grant.fences, grant.begun, grant.depth), (fence(7), 1, Begun::Now, 1));
    let handed = vec![Reply::Int(1), Reply::Int(7), Reply::Int(1), Reply::Int(9), Reply::Int(8)];
    let before = vec![Reply::Int(2), text("7"), Reply::Int(1), Reply::Int(9), Reply::Int(8)];
    let busy = vec![Reply::Int(0), Reply::Int(0), Reply::Int(9), text("5")];
    for items in [handed, before, busy, vec![Reply::Int(3)], vec![Reply::Int(3), Reply::Int(0), text("")], vec![]] {
        assert_eq!(free_grant(&Reply::Array(items)), None);
    }
    assert_eq!((free_grant(&Reply::Nil), free_grant(&Reply::Int(-1))), (None, None));
}

#[test]
fn every_code_of_an_answer_has_its_meaning() {
    let settings = RedisSettings::default().max_waiters(9).unwrap();
    let (text, ttl) = (|text: &str| Reply::Bytes(text.as_bytes().to_vec()), Duration::from_secs(3));
    let read = |items: &[Reply]| acquisition(&Reply::Array(items.to_vec()), ttl, &settings);
    let same = |answer: Result<Acquisition>, other| assert_eq!(format!("{:?}", answer.unwrap()), format!("{other:?}"));
    let [one, two, seven, half] = [1, 2, 7, 500].map(Reply::Int);
    let fence = FencingToken::new(7).unwrap();
    let usual = Grant::new(fence, ttl);
    for (items, grant) in [
        (&[one.clone(), text("7")][..], usual),
        (&[two.clone(), seven.clone()], usual.with_begun(Begun::Earlier)),
        (&[one, seven.clone(), two.clone(), half.clone(), Reply::Int(8)], {
            usual.with_depth(2).with_fences(8).with_ttl(Duration::from_millis(500))
        }),
    ] {
        same(read(items), Acquisition::Granted(grant));
    }
    same(acquisition(&seven, ttl, &settings), Acquisition::Granted(usual.with_fences(FENCES)));
    let busy = Busy::default().with_position(Some(2)).with_recheck_after(millis(500));
    same(read(&[Reply::Int(0), two.clone(), half.clone()]), Acquisition::Busy(busy));
    let at = busy.with_answered_at(Some(Duration::from_micros(7)));
    same(read(&[Reply::Int(0), two, half, text("7")]), Acquisition::Busy(at));
    same(read(&[Reply::Int(0), Reply::Int(-1), Reply::Int(-1)]), Acquisition::Busy(Busy::default()));
    for (code, kind, word) in [
        (-1, ErrorKind::NotHeld, "abandoned"),
        (-2, ErrorKind::LimitReached, "9 waiters"),
        (-3, ErrorKind::LimitReached, "65535 times"),
        (-8, ErrorKind::Damaged, "force_release"),
        (-6, ErrorKind::Damaged, "Set it to the greatest"),
    ] {
        let error = read(&[Reply::Int(code), text("tenure:a"), text("x")]).unwrap_err();
        assert!(error.kind() == kind && error.message().contains(word), "{code}: {error}");
    }
    let floored = settings.clone().fence_floor(FenceFloor::new(5).unwrap());
    let error = acquisition(&Reply::Array(vec![Reply::Int(-6), text("k"), text("5")]), ttl, &floored).unwrap_err();
    assert!(error.kind() == ErrorKind::Misconfigured && error.message().contains("fence_floor of 5"), "{error}");
    assert_eq!([-1, 0, GO_ON].map(|code| exited(code).unwrap()), [Exited::NotHeld, Exited::Released, Exited::Released]);
    assert_eq!(exited(3).unwrap(), Exited::Inside { depth: 3 });
    assert_eq!(handed("7;5;9;0"), Some(Handed::new(fence, Duration::from_millis(9), Duration::from_micros(5))));
}

#[test]
fn a_hold_is_seen_as_it_is() {
    let text = |text: &str| Reply::Bytes(text.as_bytes().to_vec());
    let seen = |kind: &str, rest: &[Reply]| {
        let head = [Reply::Int(2), Reply::Int(25), text(kind), Reply::Int(500)];
        inspection(&Reply::Array([&head, rest].concat())).unwrap()
    };
    let free = seen("none", &[]);
    assert_eq!((free.holder, free.waiters), (None, 2));
    let owner = "AAAAAAAAAAAAAAAAAAAAAQ";
    let fields = [text("7"), text("10"), text("lab"), Reply::Int(6), text(owner)];
    let seen_so = |rest: &[Reply]| seen("hash", rest).holder.unwrap();
    let entered = seen_so(&fields);
    assert_eq!((entered.depth, entered.owner.map(|owner| owner.to_string()).as_deref()), (2, Some(owner)));
    assert_eq!((entered.fence, entered.held_for, entered.remaining), (FencingToken::new(7), millis(15), millis(500)));
    assert_eq!(entered.label.unwrap().as_str(), "lab");
    let foreign = seen_so(&[text("x"), Reply::Nil, Reply::Nil, Reply::Int(1), Reply::Nil]);
    assert_eq!((foreign.fence, foreign.owner, foreign.remaining), (None, None, millis(500)));
    let later = [text("7"), text("99"), text(""), Reply::Int(5), text(owner)];
    assert_eq!((seen_so(&later).held_for, seen_so(&later).label), (millis(0), None), "the clock stepped back");
    let plain = seen("string", &[text("AAAAAAAAAAAAAAAAAAAAAA;-;10000;;")]).holder.unwrap();
    assert_eq!((plain.held_for, plain.depth), (millis(15), 1));
    assert!(inspection(&Reply::Array(vec![Reply::Int(0), Reply::Int(0), text("list"), Reply::Int(0)])).is_err());
}

#[test]
fn answers_in_an_unknown_form_are_protocol_violations() {
    let settings = RedisSettings::default();
    for reply in [Reply::Nil, Reply::Array(vec![]), Reply::Array(vec![Reply::Int(9)])] {
        let error = acquisition(&reply, Duration::from_secs(1), &settings).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol);
    }
    assert_eq!(renewals(&Reply::Array(vec![]), 1).unwrap_err().kind(), ErrorKind::Protocol);
}
