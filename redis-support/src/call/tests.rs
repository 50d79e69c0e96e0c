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
pub(crate) fn told(call: &ScriptCall) -> String {
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
    let by_name = usual.clone().fence_scope(FenceScope::Name);
    let floored = usual.clone().fence_floor(FenceFloor::new(9).unwrap());
    for (settings, request, keys, more) in [
        (usual.clone(), request(), keys, ""),
        (usual.clone(), labelled(request()), keys, " lab"),
        (counting(), request(), keys, " - counter 0 0"),
        (counting(), labelled(request()), keys, " lab counter 0 0"),
        (floored, request(), keys, " - clock 0 9"),
        (by_name, request(), own.as_str(), " - clock 86400000 0"),
        (counting().fence_scope(FenceScope::Name), request(), own.as_str(), " - counter 0 0"),
    ] {
        let calls = calls(settings);
        assert_eq!(told(&calls.acquire(&request)), format!("acquire {keys} | {args}{more}"));
        let entered = format!("enter {keys} | {args} AAAAAAAAAAAAAAAAAAAAAQ 65535{more}");
        assert_eq!(told(&calls.enter(&owner(), &request)), entered);
    }
}

#[test]
fn a_request_tells_its_own_presence_whatever_came_before() {
    let calls = calls(RedisSettings::default().max_waiters(7).unwrap());
    let ms = Duration::from_millis;
    for (presence, accepts, told) in [
        (ms(5_000), Handing::Asked, "5000;7;0"),
        (ms(7_000), Handing::Direct, "7000;7;1"),
        (ms(5_000), Handing::Direct, "5000;7;1"),
        (ms(5_000), Handing::Asked, "5000;7;0"),
        (Duration::ZERO, Handing::Asked, "1;7;0"),
        (ms(86_400_001), Handing::Asked, "86400000;7;0"),
        (Duration::MAX, Handing::Asked, "86400000;7;0"),
    ] {
        let told = format!("{told};2000;CLIENT;tenure:wake:");
        let request = joining(presence, accepts);
        assert_eq!(calls.acquire(&request).args.iter().nth(2), Some(told.as_bytes()));
        let entered = told.replace(";7;1;", ";7;0;");
        assert_eq!(calls.enter(&owner(), &request).args.iter().nth(2), Some(entered.as_bytes()), "none is handed one");
        assert!(calls.acquire(&self::request()).args.iter().nth(2).unwrap().starts_with(b"0;7;0;"));
    }
}

#[test]
fn in_a_cluster_no_lock_is_handed_over_unasked() {
    let settings = RedisSettings::default().fence_scope(FenceScope::Name);
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
        assert_eq!(told(&call), expected);
    }
    let floored = counting().fence_floor(FenceFloor::new(9).unwrap());
    assert!(told(&self::calls(floored).pass(&hold.name)).ends_with(" | counter;0;9;2000;tenure:wake:"));
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
        assert_eq!(told(&call), expected);
    }
}

#[test]
fn a_ballot_has_the_counter_of_its_name_whatever_plain_locks_have() {
    let calls = calls(counting().counter_life(Duration::from_secs(90)).unwrap());
    let electorate = Electorate::of(["a:1", "b:1", "c:1"]);
    let ballot = Ballot::new(joining(Duration::from_secs(5), Handing::Direct), electorate);
    let keys = "tenure:a {tenure:a}:f {tenure:a}:x:AAAAAAAAAAAAAAAAAAAAAA {tenure:a}:q {tenure:a}:w {tenure:a}:a tenure:{electorate}";
    let head = format!("vote {keys} | AAAAAAAAAAAAAAAAAAAAAA 1500 5000;10000;0;2000;CLIENT;tenure:wake:");
    assert_eq!(told(&calls.vote(&ballot)), format!("{head} 0 90000 {electorate} 0"));
    let full = ballot.with_proposal(Some(fence(7))).with_seniority(Duration::from_secs(3));
    let full = full.clone().with_request(labelled(full.request));
    assert_eq!(told(&calls.vote(&full)), format!("{head} 7 90000 {electorate} 3000 lab"));
    let raised = calls.raise(&Hold::new(name("a"), token()), fence(9));
    assert_eq!(told(&raised), "raise tenure:a {tenure:a}:f | AAAAAAAAAAAAAAAAAAAAAA 9 90000");
    assert_eq!(told(&calls.enroll(&electorate)), format!("enroll tenure:{{electorate}} | {electorate}"));
}
