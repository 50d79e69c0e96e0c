//! A decision each, with its answer and its wake-ups.

use std::time::Duration;

use super::super::{Caps, PermitState, Refusal, Rule};
use super::{World, join, label, request, share, token};
use crate::driver::{
    Acquisition, Begun, Busy, ForceReleased, Grant, Handing, PermitHolder, Queueing, Released, Renewed, Share,
};
use crate::rules::locks::CLAIM_WINDOW;
use crate::{Error, ErrorKind, FencingToken, LockName, OwnerToken};

const CAPS: Caps = Caps { waiters: 4, holders: 5 };
const TTL: Duration = Duration::from_secs(10);
const PRESENCE: Duration = Duration::from_secs(6);
const SECOND: Duration = Duration::from_secs(1);

/// One name, and a clock to be moved by hand.
struct Bench {
    state: PermitState,
    now: Duration,
    world: World,
    /// The number of the last change of weight.
    step: u32,
}

impl Bench {
    fn new() -> Self {
        Self { state: PermitState::default(), now: Duration::ZERO, world: World::default(), step: 0 }
    }

    fn rule(&mut self) -> Rule<'_, &mut World> {
        Rule::new(&mut self.state, self.now, CAPS, &mut self.world)
    }

    fn ask(&mut self, who: u64, share: Share, queue: Queueing) -> Result<Acquisition, Refusal> {
        let name = LockName::new("name").unwrap();
        let request = request(&name, token(who), TTL, queue).with_label(label("me"));
        let Ok(answer) = self.rule().acquire(share, &request);
        answer
    }

    fn take(&mut self, who: u64, share: Share) -> Grant {
        granted(self.ask(who, share, Queueing::None))
    }

    /// Asks and waits; a wake-up makes it ask.
    fn wait(&mut self, who: u64, share: Share) -> Busy {
        busy(self.ask(who, share, join(PRESENCE, Handing::Asked)))
    }

    /// The same, but it may be handed the hold.
    fn wait_direct(&mut self, who: u64, share: Share) -> Busy {
        busy(self.ask(who, share, join(PRESENCE, Handing::Direct)))
    }

    fn release(&mut self, who: u64) -> Released {
        let Ok(answer) = self.rule().release(&token(who));
        answer
    }

    fn abandon(&mut self, who: u64) {
        let Ok(()) = self.rule().abandon(&token(who));
    }

    fn resize(&mut self, who: u64, to: Share) -> Result<Acquisition, Refusal> {
        self.step += 1;
        self.resize_at(who, to, self.step)
    }

    /// Asks for the change with this number.
    fn resize_at(&mut self, who: u64, to: Share, step: u32) -> Result<Acquisition, Refusal> {
        let Ok(answer) = self.rule().resize(&token(who), to, step, Some(PRESENCE));
        answer
    }

    fn try_resize(&mut self, who: u64, to: Share) -> Result<Acquisition, Refusal> {
        self.step += 1;
        let step = self.step;
        let Ok(answer) = self.rule().resize(&token(who), to, step, None);
        answer
    }

    fn evict(&mut self, fence: FencingToken) -> ForceReleased {
        let Ok(answer) = self.rule().evict(fence);
        answer
    }

    fn renew(&mut self, who: u64, ttl: Duration) -> Renewed {
        self.state.renew(self.now, &token(who), ttl)
    }

    fn used(&self) -> u64 {
        self.state.inspect(self.now, 0).used
    }

    /// The tokens that were notified since the last look.
    fn woken(&mut self) -> Vec<OwnerToken> {
        self.world.signalled.drain(..).map(|(token, _)| token).collect()
    }
}

fn granted(answer: Result<Acquisition, Refusal>) -> Grant {
    match answer {
        Ok(Acquisition::Granted(grant)) => grant,
        other => panic!("not granted: {other:?}"),
    }
}

fn busy(answer: Result<Acquisition, Refusal>) -> Busy {
    match answer {
        Ok(Acquisition::Busy(busy)) => busy,
        other => panic!("not busy: {other:?}"),
    }
}

fn tokens<const N: usize>(numbers: [u64; N]) -> Vec<OwnerToken> {
    numbers.map(token).to_vec()
}

#[test]
fn shares_fit_beside_each_other() {
    let [read, grow, write] = [Share::READER, Share::UPGRADABLE, Share::WRITER];
    for (held, asked, fits) in [
        (share(1, 1), share(1, 1), false),
        (share(2, 5), share(3, 5), true),
        (share(3, 5), share(3, 5), false),
        // A lower capacity than that of the holder, and a higher one.
        (share(3, 5), share(1, 3), false),
        (share(3, 3), share(1, 5), true),
        (read, read, true),
        (read, grow, true),
        (grow, read, true),
        (grow, grow, false),
        (read, write, false),
        (grow, write, false),
        (write, read, false),
        (write, write, false),
    ] {
        let mut bench = Bench::new();
        bench.take(1, held);
        let is_granted = matches!(bench.ask(2, asked, Queueing::None), Ok(Acquisition::Granted(_)));
        assert_eq!(is_granted, fits, "{asked:?} beside {held:?}");
        assert_eq!(bench.used(), u64::from(held.weight) + if fits { u64::from(asked.weight) } else { 0 });
    }
}

#[test]
fn impossible_shares_are_refused() {
    let mut bench = Bench::new();
    for wrong in [share(0, 3), share(4, 3), share(0, 0)] {
        assert_eq!(bench.ask(1, wrong, Queueing::None).unwrap_err(), Refusal::Impossible(wrong));
        bench.take(2, share(1, 3));
        assert_eq!(bench.try_resize(2, wrong).unwrap_err(), Refusal::Impossible(wrong));
        assert_eq!(bench.used(), 1);
    }
    assert_eq!(bench.try_resize(1, share(1, 3)).unwrap_err(), Refusal::NotHeld);
}

#[test]
fn refusals_have_kinds() {
    for (refusal, kind) in [
        (Refusal::Abandoned, ErrorKind::NotHeld),
        (Refusal::Impossible(share(4, 3)), ErrorKind::InvalidArgument),
        (Refusal::QueueFull(4), ErrorKind::LimitReached),
        (Refusal::NotHeld, ErrorKind::NotHeld),
        (Refusal::AnotherGrows, ErrorKind::LimitReached),
    ] {
        let error = Error::from(refusal);
        assert_eq!(error.kind(), kind, "{refusal:?}");
        assert!(error.was_not_applied());
    }
}

#[test]
fn the_same_token_asks_twice_and_nothing_changes() {
    let mut bench = Bench::new();
    let first = bench.take(1, share(2, 3));
    bench.now += SECOND;
    let again = bench.take(1, share(2, 3));
    assert_eq!((first.begun, again.begun), (Begun::Now, Begun::Earlier));
    assert_eq!((again.fence, again.ttl, bench.used()), (first.fence, TTL, 2));
    assert_eq!(bench.state.inspect(bench.now, 1).holders[0].holder.remaining, Some(TTL - SECOND));
    assert_eq!(bench.wait(2, share(2, 3)).position, Some(0));
    bench.wait(3, share(1, 3));
    assert_eq!(bench.wait(2, share(2, 3)).position, Some(0), "asking again keeps the place");
    assert_eq!(bench.state.inspect(bench.now, 0).waiters, 2);
}

#[test]
fn a_lease_ends_at_its_end_and_touches_no_other() {
    let mut bench = Bench::new();
    bench.take(1, share(1, 2));
    bench.now += SECOND;
    bench.take(2, share(1, 2));
    bench.now += TTL - SECOND - Duration::from_nanos(1);
    assert_eq!(bench.used(), 2);
    bench.now += Duration::from_nanos(1);
    assert_eq!((bench.used(), bench.renew(1, TTL), bench.release(1)), (1, Renewed::Lost, Released::NotHeld));
    assert_eq!(bench.renew(2, SECOND / 2), Renewed::Extended { ttl: SECOND }, "a renewal never shortens");
    assert_eq!(bench.renew(2, TTL), Renewed::Extended { ttl: TTL });
    assert_eq!((bench.release(2), bench.release(2)), (Released::Released, Released::NotHeld));
    assert!(bench.state.is_idle(bench.now));
}

#[test]
fn one_release_serves_all_that_fit_in_order() {
    let mut bench = Bench::new();
    bench.take(1, share(3, 3));
    for (who, weight) in [(2, 1), (3, 2), (4, 1)] {
        bench.wait(who, share(weight, 3));
    }
    bench.release(1);
    assert_eq!(bench.woken(), tokens([2, 3]));
    assert_eq!(bench.wait(4, share(1, 3)).recheck_after, Some(CLAIM_WINDOW), "their room is reserved");
    let busy = busy(bench.ask(5, share(1, 3), Queueing::None));
    assert_eq!((busy.position, busy.recheck_after), (None, Some(CLAIM_WINDOW)));
    // The second does not wait for the first.
    let fences = [3, 2].map(|who| bench.take(who, share(1, 3)).fence);
    assert!(fences[0] < fences[1]);
    assert_eq!((bench.used(), bench.woken()), (3, vec![]));
    bench.release(2);
    assert_eq!(bench.woken(), tokens([4]));
}

#[test]
fn a_heavy_head_is_not_overtaken_and_its_recheck_counts_leases() {
    let mut bench = Bench::new();
    for who in [1, 2, 3] {
        bench.take(who, share(1, 4));
        bench.now += SECOND;
    }
    let first = bench.wait(4, share(3, 4));
    assert_eq!((first.position, first.recheck_after), (Some(0), Some(Duration::from_secs(8))), "two have to end");
    let light = bench.wait(5, share(1, 4));
    assert_eq!((light.position, light.recheck_after), (Some(1), None));
    bench.release(3);
    assert_eq!(bench.woken(), vec![], "it does not fit yet");
    bench.release(2);
    assert_eq!(bench.woken(), tokens([4]));
    bench.abandon(4);
    assert_eq!(bench.woken(), tokens([5]));
}

#[test]
fn a_prediction_looks_at_sixteen_leases() {
    let mut bench = Bench::new();
    let caps = Caps { waiters: 1, holders: 100 };
    let name = LockName::new("name").unwrap();
    for who in 0..20 {
        bench.now += SECOND / 10;
        let request = request(&name, token(who), TTL, Queueing::None);
        let mut rule = Rule::new(&mut bench.state, bench.now, caps, &mut bench.world);
        assert!(matches!(rule.acquire(Share::READER, &request), Ok(Ok(Acquisition::Granted(_)))));
    }
    let writer = bench.wait(20, Share::WRITER);
    assert_eq!(writer.recheck_after, Some(TTL - SECOND / 10 * 4));
}

#[test]
fn readers_arriving_behind_a_writer_wait() {
    let mut bench = Bench::new();
    bench.take(1, Share::READER);
    bench.wait(2, Share::WRITER);
    assert_eq!(bench.wait(3, Share::READER).position, Some(1));
    bench.wait(4, Share::READER);
    bench.release(1);
    assert_eq!(bench.woken(), tokens([2]));
    bench.take(2, Share::WRITER);
    bench.release(2);
    assert_eq!(bench.woken(), tokens([3, 4]), "readers share");
}

#[test]
fn a_silent_waiter_is_passed_over() {
    let mut bench = Bench::new();
    bench.take(1, Share::READER);
    bench.wait(2, Share::WRITER);
    bench.now += PRESENCE / 2;
    bench.wait(3, Share::READER);
    bench.now += PRESENCE / 2;
    let fence = granted(bench.ask(3, Share::READER, join(PRESENCE, Handing::Asked))).fence;
    assert_eq!((fence.get(), bench.used()), (2, 2));
    assert_eq!(bench.wait(2, Share::WRITER).position, Some(0), "it begins again");
}

#[test]
fn a_notified_waiter_has_the_claim_window() {
    let mut bench = Bench::new();
    bench.take(1, share(1, 1));
    bench.wait(2, share(1, 1));
    bench.wait(3, share(1, 1));
    bench.release(1);
    assert_eq!(bench.woken(), tokens([2]));
    bench.now += CLAIM_WINDOW - Duration::from_millis(1);
    assert_eq!(bench.wait(3, share(1, 1)).recheck_after, Some(Duration::from_millis(1)));
    assert_eq!(bench.woken(), vec![], "once is enough");
    bench.now += Duration::from_millis(1);
    granted(bench.ask(3, share(1, 1), Queueing::None));
}

#[test]
fn a_waiter_that_is_short_of_its_presence_is_notified_as_well() {
    let mut bench = Bench::new();
    bench.take(1, share(1, 1));
    bench.wait(2, share(1, 1));
    bench.now += PRESENCE - SECOND;
    bench.wait(3, share(1, 1));
    bench.release(1);
    assert_eq!(bench.woken(), tokens([2]));
    assert_eq!(bench.wait(3, share(1, 1)).recheck_after, Some(SECOND));
}

#[test]
fn a_direct_waiter_is_handed_a_short_lease() {
    let mut bench = Bench::new();
    let first = bench.take(1, share(2, 2));
    bench.wait_direct(2, share(1, 2));
    bench.wait_direct(3, share(1, 2));
    bench.wait_direct(4, share(1, 2));
    bench.release(1);
    let given: Vec<_> = bench.world.signalled.drain(..).map(|(token, given)| (token, given.unwrap())).collect();
    assert_eq!(given.iter().map(|(token, _)| *token).collect::<Vec<_>>(), tokens([2, 3]));
    assert!(given.iter().all(|(_, given)| given.ttl == CLAIM_WINDOW && given.fences == 1));
    assert!(first.fence < given[0].1.fence && given[0].1.fence < given[1].1.fence);
    bench.now += SECOND;
    // The signal was lost: the request makes the lease last.
    let grant = bench.take(2, share(1, 2));
    assert_eq!((grant.fence, grant.begun, grant.ttl), (given[0].1.fence, Begun::Now, TTL));
    bench.now += CLAIM_WINDOW;
    assert_eq!(bench.used(), 1, "the other one was not claimed");
    assert_eq!(bench.take(4, share(1, 2)).begun, Begun::Now);
    assert_eq!(bench.take(2, share(1, 2)).begun, Begun::Earlier);
}

#[test]
fn behind_a_notified_waiter_a_direct_one_is_woken() {
    let mut bench = Bench::new();
    bench.take(1, share(2, 2));
    bench.wait(2, share(1, 2));
    bench.wait_direct(3, share(1, 2));
    bench.release(1);
    assert!(bench.world.signalled.iter().all(|(_, given)| given.is_none()));
    assert_eq!((bench.woken(), bench.used()), (tokens([2, 3]), 0));
}

#[test]
fn waiters_without_a_listener_are_passed_over_or_reported() {
    let mut bench = Bench::new();
    bench.take(1, share(1, 1));
    for who in [2, 3, 4] {
        bench.wait_direct(who, share(1, 1));
    }
    bench.world.deaf.insert(token(2));
    bench.world.absent.insert(token(3));
    bench.release(1);
    assert_eq!(bench.woken(), tokens([4]), "it looks, should the one before it never ask");
    assert_eq!((bench.used(), bench.wait(4, share(1, 1)).position), (0, Some(1)));
    assert_eq!(bench.take(3, share(1, 1)).begun, Begun::Now);
}

#[test]
fn a_lease_that_ended_serves_with_the_next_request() {
    let mut bench = Bench::new();
    bench.take(1, share(1, 1));
    bench.now += TTL - SECOND;
    bench.wait(2, share(1, 1));
    bench.now += SECOND;
    assert_eq!(bench.wait(3, share(1, 1)).recheck_after, Some(CLAIM_WINDOW));
    assert_eq!(bench.woken(), tokens([2]));
}

#[test]
fn a_full_line_refuses_and_more_holders_wait() {
    let mut bench = Bench::new();
    for who in 0..5 {
        bench.take(who, Share::READER);
        bench.now += SECOND;
    }
    let sixth = bench.wait(5, Share::READER);
    assert_eq!((sixth.position, sixth.recheck_after), (Some(0), Some(TTL - SECOND * 5)));
    for who in [6, 7, 8] {
        bench.wait(who, Share::READER);
    }
    let full = bench.ask(9, Share::READER, join(PRESENCE, Handing::Asked));
    assert_eq!(full.unwrap_err(), Refusal::QueueFull(4));
    assert_eq!(bench.wait(8, Share::READER).position, Some(3), "a waiter may ask again");
    bench.release(0);
    assert_eq!(bench.woken(), tokens([5]));
}

#[test]
fn the_least_capacity_before_a_request_limits_it() {
    let mut bench = Bench::new();
    bench.take(1, share(3, 6));
    bench.wait(2, share(1, 3));
    let behind = bench.wait(3, share(1, 6));
    assert_eq!(behind.position, Some(1), "it would take the room of the one before it");
    bench.abandon(2);
    assert_eq!(bench.woken(), tokens([3]));
    granted(bench.ask(3, share(1, 6), Queueing::None));
    // A raised capacity serves at once.
    granted(bench.ask(4, share(2, 8), Queueing::None));
}

#[test]
fn a_grant_serves_the_waiters_that_it_no_longer_limits() {
    let mut bench = Bench::new();
    bench.take(1, share(3, 3));
    bench.wait(2, share(1, 3));
    bench.wait(3, share(2, 6));
    bench.release(1);
    assert_eq!(bench.woken(), tokens([2, 3]));
    let mut bench = Bench::new();
    bench.take(1, share(2, 3));
    bench.take(4, share(1, 3));
    bench.wait(2, share(1, 3));
    bench.wait(3, share(2, 6));
    bench.release(4);
    assert_eq!(bench.woken(), tokens([2]), "the second would take room under the limit of the first");
    granted(bench.ask(2, share(1, 3), Queueing::None));
    assert_eq!(bench.woken(), tokens([3]));
}

#[test]
fn an_abandoned_token_gets_nothing_any_more() {
    let mut bench = Bench::new();
    bench.take(1, share(1, 1));
    bench.wait(2, share(1, 1));
    bench.abandon(1);
    assert_eq!(bench.woken(), tokens([2]), "its hold is free");
    bench.abandon(2);
    bench.abandon(3); // its request arrives later
    for who in [1, 2, 3] {
        let late = bench.ask(who, share(1, 1), join(PRESENCE, Handing::Direct));
        assert_eq!(late.unwrap_err(), Refusal::Abandoned);
        assert_eq!(bench.try_resize(who, share(1, 1)).unwrap_err(), Refusal::NotHeld);
    }
    assert_eq!(bench.state, PermitState::default());
}

#[test]
fn less_is_at_once_and_keeps_the_fence() {
    let mut bench = Bench::new();
    let writer = bench.take(1, Share::WRITER);
    bench.wait(2, Share::READER);
    bench.now += SECOND;
    let reader = granted(bench.resize(1, Share::READER));
    assert_eq!((reader.fence, reader.begun, reader.ttl), (writer.fence, Begun::Now, TTL - SECOND));
    assert_eq!((bench.woken(), bench.used()), (tokens([2]), 1));
    let again = granted(bench.resize(1, Share::READER));
    assert_eq!((again.fence, again.begun), (writer.fence, Begun::Earlier));
}

#[test]
fn an_upgrade_waits_before_the_line_and_has_a_new_fence() {
    let mut bench = Bench::new();
    let grow = bench.take(1, Share::UPGRADABLE);
    bench.now += SECOND;
    bench.take(2, Share::READER);
    bench.wait(3, Share::WRITER);
    let waits = busy(bench.resize(1, Share::WRITER));
    assert_eq!((waits.position, waits.recheck_after), (Some(0), Some(TTL)));
    let late = busy(bench.ask(4, Share::READER, Queueing::None));
    assert_eq!(late.recheck_after, Some(PRESENCE), "no reader is let in");
    bench.release(2);
    assert_eq!(bench.woken(), tokens([1]));
    bench.ask(4, Share::READER, Queueing::None).unwrap();
    assert_eq!(bench.woken(), vec![], "once is enough");
    let write = granted(bench.resize(1, Share::WRITER));
    assert!(write.fence > grow.fence);
    assert_eq!((write.begun, write.ttl), (Begun::Now, TTL - SECOND));
    let again = granted(bench.resize(1, Share::WRITER));
    assert_eq!((again.fence, again.begun), (write.fence, Begun::Earlier), "the answer was lost");
    assert_eq!(bench.used(), u64::from(Share::WRITER.weight));
}

#[test]
fn an_upgrade_ends_by_its_presence_or_its_holder_and_keeps_the_hold() {
    let ends: [fn(&mut Bench); 4] = [
        |bench| bench.now += PRESENCE,
        |bench| drop(bench.resize(1, Share::UPGRADABLE)),
        |bench| drop(bench.try_resize(1, Share::WRITER)),
        |bench| assert_eq!(bench.release(1), Released::Released),
    ];
    for end in ends {
        let mut bench = Bench::new();
        bench.take(1, Share::UPGRADABLE);
        bench.take(2, Share::READER);
        busy(bench.resize(1, Share::WRITER));
        busy(bench.ask(3, Share::READER, Queueing::None));
        end(&mut bench);
        granted(bench.ask(3, Share::READER, Queueing::None));
    }
}

#[test]
fn a_change_that_arrives_after_a_later_one_has_no_effect() {
    let mut bench = Bench::new();
    bench.take(1, Share::WRITER);
    granted(bench.resize_at(1, Share::UPGRADABLE, 1));
    let write = granted(bench.resize_at(1, Share::WRITER, 2));
    assert_eq!(bench.resize_at(1, Share::UPGRADABLE, 1).unwrap_err(), Refusal::Superseded);
    let again = granted(bench.resize_at(1, Share::WRITER, 2));
    assert_eq!((again.fence, again.begun), (write.fence, Begun::Earlier));
    granted(bench.resize_at(1, Share::UPGRADABLE, 3));
    assert_eq!(bench.resize_at(1, Share::WRITER, 2).unwrap_err(), Refusal::Superseded, "it was withdrawn");
    granted(bench.ask(2, Share::READER, Queueing::None));
}

#[test]
fn one_hold_may_wait_to_grow() {
    let mut bench = Bench::new();
    bench.take(1, share(1, 3));
    bench.take(2, share(1, 3));
    bench.take(3, share(1, 3));
    busy(bench.resize(1, share(2, 3)));
    assert_eq!(bench.resize(2, share(2, 3)).unwrap_err(), Refusal::AnotherGrows);
    bench.world.deaf.insert(token(1));
    bench.wait(4, share(1, 3));
    bench.release(3);
    assert_eq!(bench.woken(), tokens([4]), "the upgrade does not ask any more");
}

#[test]
fn an_eviction_takes_one_hold_and_spares_the_others() {
    let mut bench = Bench::new();
    let [first, second] = [1, 2].map(|who| bench.take(who, share(1, 2)).fence);
    bench.wait(3, share(1, 2));
    assert_eq!(bench.evict(first), ForceReleased::Released);
    assert_eq!((bench.woken(), bench.used()), (tokens([3]), 1));
    assert_eq!(bench.evict(first), ForceReleased::NotHeld);
    assert_eq!(bench.renew(2, TTL), Renewed::Extended { ttl: TTL });
    assert_eq!(bench.evict(second), ForceReleased::Released);
}

#[test]
fn inspection_has_the_first_holders_and_all_of_the_weight() {
    let mut bench = Bench::new();
    let fence = bench.take(1, share(2, 4)).fence;
    bench.now += SECOND;
    bench.take(2, share(1, 4));
    bench.wait(3, share(2, 4));
    let before = bench.state.clone();
    let seen = bench.state.inspect(bench.now, 1);
    assert_eq!((seen.used, seen.waiters, seen.holders.len()), (3, 1, 1));
    let PermitHolder { share: held, holder, .. } = &seen.holders[0];
    assert_eq!((*held, holder.fence, holder.label.clone()), (share(2, 4), Some(fence), label("me")));
    assert_eq!((holder.held_for, holder.remaining), (Some(SECOND), Some(TTL - SECOND)));
    assert_eq!(bench.state, before);
    let later = bench.state.inspect(bench.now + TTL, 5);
    assert_eq!((later.used, later.waiters, later.holders), (0, 0, vec![]));
}

#[test]
fn only_changes_are_reported() {
    let mut bench = Bench::new();
    let name = LockName::new("name").unwrap();
    bench.take(1, share(1, 1));
    let request = request(&name, token(2), TTL, Queueing::None);
    let mut rule = bench.rule();
    let Ok(_) = rule.acquire(share(1, 1), &request);
    assert!(!rule.changed());
    let Ok(released) = rule.release(&token(1));
    assert_eq!((released, rule.changed()), (Released::Released, true));
    bench.now += TTL;
    assert!(!bench.rule().changed());
    bench.take(3, share(1, 1));
    bench.now += TTL;
    assert!(bench.rule().changed(), "a lease ended");
}
