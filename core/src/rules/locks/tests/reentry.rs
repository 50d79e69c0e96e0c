//! Re-entrant holds.

use std::time::Duration;

use super::{Bench, Claimant, PRESENCE, Refusal, TTL, busy, granted, tokens};
use crate::OwnerId;
use crate::driver::{Begun, Exited, Handing, Queueing, Released, Renewed};

#[test]
fn re_entry_counts_entries_and_keeps_the_fence() {
    let mut bench = Bench::new();
    let me = Claimant::Owner(OwnerId::new());
    let [outer, inner, deepest, too_deep, waiter] = tokens();
    let first = bench.take(me, outer);
    bench.wait(waiter);
    let second = bench.take(me, inner);
    assert_eq!((second.fence, second.depth, second.begun), (first.fence, 2, Begun::Now));
    let replay = bench.take(me, inner);
    assert_eq!((replay.depth, replay.begun), (2, Begun::Earlier));
    bench.take(me, deepest);
    assert_eq!(bench.ask(me, too_deep, TTL, Queueing::None).unwrap_err(), Refusal::TooDeep(3));

    assert_eq!(bench.exit(me, inner), Exited::Inside { depth: 2 });
    assert_eq!(bench.exit(me, inner), Exited::NotHeld, "a replay undoes nothing");
    assert_eq!(bench.exit(me, outer), Exited::Inside { depth: 1 });
    assert_eq!(bench.woken(), None);
    assert_eq!(bench.exit(me, deepest), Exited::Released);
    assert_eq!(bench.woken(), Some(waiter));
}

#[test]
fn re_entry_lengthens_and_never_shortens_the_lease() {
    let mut bench = Bench::new();
    let me = Claimant::Owner(OwnerId::new());
    let [outer, short, long] = tokens();
    bench.take(me, outer);
    bench.pass(Duration::from_secs(1));
    let kept = granted(bench.ask(me, short, Duration::from_secs(2), Queueing::None));
    assert_eq!(kept.ttl, Duration::from_secs(9));
    let longer = granted(bench.ask(me, long, Duration::from_secs(20), Queueing::None));
    assert_eq!(longer.ttl, Duration::from_secs(20));
    let renewed = bench.rule().renew_hold(me, kept.fence, Duration::from_secs(1));
    assert_eq!(renewed, Renewed::Extended { ttl: Duration::from_secs(20) });
}

#[test]
fn plain_and_re_entrant_holds_exclude_each_other() {
    let mut bench = Bench::new();
    let (me, other) = (Claimant::Owner(OwnerId::new()), Claimant::Owner(OwnerId::new()));
    let [a, b] = tokens();
    bench.take(Claimant::Plain, a);
    busy(bench.ask(me, b, TTL, Queueing::None));
    assert_eq!(bench.exit(me, a), Exited::NotHeld);
    assert_eq!(bench.release(a), Released::Released);

    let grant = bench.take(me, b);
    busy(bench.ask(Claimant::Plain, a, TTL, Queueing::None));
    busy(bench.ask(other, a, TTL, Queueing::None));
    assert_eq!(bench.release(b), Released::NotHeld, "an entry is no plain lease");
    assert_eq!(bench.rule().renew(&b, TTL), Renewed::Lost);
    assert_eq!(bench.rule().renew_hold(other, grant.fence, TTL), Renewed::Lost);
    assert_eq!(bench.exit(other, b), Exited::NotHeld);
    assert_eq!(bench.exit(me, b), Exited::Released);
}

#[test]
fn a_later_hold_of_the_same_owner_is_another_one() {
    let mut bench = Bench::new();
    let me = Claimant::Owner(OwnerId::new());
    let [a, b] = tokens();
    let first = bench.take(me, a);
    bench.pass(TTL);
    let second = bench.take(me, b);
    assert_eq!((second.depth, second.begun), (1, Begun::Now));
    assert!(second.fence > first.fence);
    assert_eq!(bench.rule().renew_hold(me, first.fence, TTL), Renewed::Lost);
    assert_eq!(bench.exit(me, a), Exited::NotHeld);
}

#[test]
fn an_owner_that_waits_is_given_its_turn_and_not_a_plain_lease() {
    let mut bench = Bench::new();
    let me = Claimant::Owner(OwnerId::new());
    let [holder, entry] = tokens();
    bench.take(Claimant::Plain, holder);
    let join = Queueing::Join { presence: PRESENCE, accepts: Handing::Direct };
    busy(bench.ask(me, entry, TTL, join));
    bench.release(holder);
    let (reported, given) = bench.world.reported.take().unwrap();
    assert_eq!((reported, given.is_none()), (entry, true));
    bench.take(me, entry);
}
