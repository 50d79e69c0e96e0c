//! The decisions, with time and fences as plain arguments. No runtime, no clock.

mod reentry;

use std::time::Duration;

use super::{Caps, Claimant, Given, Heard, InRecord, Outside, Record, Refusal, Rule};
use crate::driver::{
    AcquireRequest, Acquisition, Begun, Busy, Exited, ForceReleased, Grant, Handing, Inspection, Queueing, Released,
    Renewed, Ttl,
};
use crate::{FencingToken, Label, LockName, OwnerId, OwnerToken};

const CAPS: Caps = Caps { waiters: 3, depth: 3 };
const TTL: Duration = Duration::from_secs(10);
const PRESENCE: Duration = Duration::from_secs(6);

/// One name, a clock to be moved by hand, and a fence counter.
struct Bench {
    state: Record,
    now: Duration,
    world: World,
}

/// All waiters have a listener.
#[derive(Default)]
struct World {
    fence: u64,
    /// The last notified waiter, and the hold that it was given.
    reported: Option<(OwnerToken, Option<Given>)>,
    deaf: Vec<OwnerToken>,
    /// Waiters without a listener at the moment.
    absent: Vec<OwnerToken>,
    buried: Vec<OwnerToken>,
}

impl Outside for &mut World {
    fn fences(&mut self, count: u32) -> FencingToken {
        self.fence += u64::from(count);
        FencingToken::new(self.fence).unwrap()
    }

    fn signal(&mut self, waiter: &OwnerToken, given: Option<Given>) -> Heard {
        if self.deaf.contains(waiter) {
            return Heard::Never;
        }
        if self.absent.contains(waiter) {
            return Heard::ByNobody;
        }
        self.reported = Some((*waiter, given));
        Heard::Yes
    }

    fn bury(&mut self, token: &OwnerToken) {
        self.buried.push(*token);
    }

    fn is_buried(&self, token: &OwnerToken) -> bool {
        self.buried.contains(token)
    }
}

impl Bench {
    fn new() -> Self {
        Self { state: Record::default(), now: Duration::ZERO, world: World::default() }
    }

    fn rule(&mut self) -> Rule<'_, InRecord<'_, &mut World>> {
        self.state.rule(self.now, &mut self.world)
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
    }

    fn ask(
        &mut self,
        who: Claimant,
        token: OwnerToken,
        ttl: Duration,
        queue: Queueing,
    ) -> Result<Acquisition, Refusal> {
        let (name, ttl) = (LockName::new("name").unwrap(), Ttl::new(ttl).unwrap());
        let request =
            AcquireRequest::new(name, token, ttl).with_queue(queue).with_label(Some(Label::new("me").unwrap()));
        let Ok(answer) = self.rule().acquire(who, &request, CAPS);
        answer
    }

    fn take(&mut self, who: Claimant, token: OwnerToken) -> Grant {
        granted(self.ask(who, token, TTL, Queueing::None))
    }

    fn wait(&mut self, token: OwnerToken) -> Busy {
        busy(self.ask(Claimant::Plain, token, TTL, Queueing::Join { presence: PRESENCE, accepts: Handing::Asked }))
    }

    fn claim(&mut self, token: OwnerToken) -> Grant {
        granted(self.ask(Claimant::Plain, token, TTL, Queueing::Join { presence: PRESENCE, accepts: Handing::Asked }))
    }

    fn release(&mut self, token: OwnerToken) -> Released {
        let Ok(answer) = self.rule().release(&token);
        answer
    }

    fn exit(&mut self, who: Claimant, token: OwnerToken) -> Exited {
        let Ok(answer) = self.rule().exit(who, &token);
        answer
    }

    fn abandon(&mut self, token: OwnerToken) {
        let Ok(()) = self.rule().abandon(Claimant::Plain, &token);
    }

    fn force(&mut self, expected: Option<FencingToken>) -> ForceReleased {
        let Ok(answer) = self.rule().force_release(expected);
        answer
    }

    fn inspect(&mut self) -> Inspection {
        let Ok(answer) = self.rule().inspect();
        answer
    }

    /// The waiter notified since the last look.
    fn woken(&mut self) -> Option<OwnerToken> {
        self.world.reported.take().map(|(token, _)| token)
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

fn tokens<const N: usize>() -> [OwnerToken; N] {
    std::array::from_fn(|_| OwnerToken::random())
}

#[test]
fn the_same_token_asks_twice_and_nothing_changes() {
    let mut bench = Bench::new();
    let [token] = tokens();
    let first = bench.take(Claimant::Plain, token);
    bench.pass(Duration::from_secs(4));
    let again = bench.take(Claimant::Plain, token);
    assert_eq!((first.begun, again.begun), (Begun::Now, Begun::Earlier));
    assert_eq!((again.fence, again.ttl, again.depth), (first.fence, TTL, 1));
    let left = bench.inspect().holder.unwrap().remaining.unwrap();
    assert_eq!(left, Duration::from_secs(6));
}

#[test]
fn a_lease_is_over_at_its_end() {
    let mut bench = Bench::new();
    let [a, b] = tokens();
    let first = bench.take(Claimant::Plain, a);
    bench.pass(TTL - Duration::from_nanos(1));
    assert_eq!(busy(bench.ask(Claimant::Plain, b, TTL, Queueing::None)).position, None);
    bench.pass(Duration::from_nanos(1));
    assert_eq!(bench.rule().renew(&a, TTL), Renewed::Lost);
    assert!(bench.take(Claimant::Plain, b).fence > first.fence);
    assert_eq!(bench.release(a), Released::NotHeld);
    assert_eq!(bench.release(b), Released::Released);
    assert_eq!(bench.release(b), Released::NotHeld);
    assert!(bench.state.is_idle(bench.now));
}

#[test]
fn a_renewal_never_shortens() {
    let mut bench = Bench::new();
    let [token] = tokens();
    bench.take(Claimant::Plain, token);
    bench.pass(Duration::from_secs(1));
    let kept = bench.rule().renew(&token, Duration::from_secs(2));
    assert_eq!(kept, Renewed::Extended { ttl: Duration::from_secs(9) });
    assert_eq!(bench.rule().renew(&token, TTL), Renewed::Extended { ttl: TTL });
}

#[test]
fn waiters_are_served_in_order_and_hints_go_to_the_head() {
    let mut bench = Bench::new();
    let [holder, first, second, passer_by] = tokens();
    bench.take(Claimant::Plain, holder);
    bench.pass(Duration::from_secs(1));
    let Busy { position, recheck_after, .. } = bench.wait(first);
    assert_eq!((position, recheck_after), (Some(0), Some(Duration::from_secs(9))));
    let Busy { position, recheck_after, .. } = bench.wait(second);
    assert_eq!((position, recheck_after), (Some(1), None));
    assert_eq!(bench.wait(first).position, Some(0), "asking again keeps the place");

    bench.release(holder);
    assert_eq!(bench.woken(), Some(first));
    let reserved = busy(bench.ask(Claimant::Plain, passer_by, TTL, Queueing::None));
    assert_eq!((reserved.position, reserved.recheck_after), (None, Some(Duration::from_secs(2))));
    assert_eq!(bench.wait(second).recheck_after, Some(Duration::from_secs(2)));
    bench.claim(first);
    bench.release(first);
    assert_eq!(bench.woken(), Some(second));
    bench.claim(second);
    bench.release(second);
    assert_eq!(bench.woken(), None);
    assert!(bench.state.is_idle(bench.now));
}

#[test]
fn a_waiter_that_stopped_asking_lapses() {
    let mut bench = Bench::new();
    let [holder, first, second, third] = tokens();
    bench.take(Claimant::Plain, holder);
    bench.wait(first);
    bench.wait(second);
    bench.pass(Duration::from_secs(4));
    bench.wait(second);
    bench.pass(Duration::from_secs(2)); // the first has been silent for its presence
    assert_eq!(bench.wait(third).position, Some(1));
    assert_eq!(bench.inspect().waiters, 2);
    bench.release(holder);
    assert_eq!(bench.woken(), Some(second));
}

#[test]
fn a_woken_head_has_two_seconds_to_claim() {
    let mut bench = Bench::new();
    let [holder, first, second] = tokens();
    bench.take(Claimant::Plain, holder);
    bench.wait(first);
    bench.wait(second);
    bench.release(holder);
    bench.pass(Duration::from_millis(1999));
    assert_eq!(bench.wait(second).recheck_after, Some(Duration::from_millis(1)));
    bench.pass(Duration::from_millis(1));
    bench.claim(second);
    assert_eq!(bench.wait(first).position, Some(0), "the one that was passed begins again");
}

#[test]
fn a_head_at_the_end_of_its_presence_has_less() {
    let mut bench = Bench::new();
    let [holder, first, second] = tokens();
    bench.take(Claimant::Plain, holder);
    bench.wait(first);
    bench.pass(PRESENCE - Duration::from_millis(300));
    bench.wait(second);
    bench.release(holder);
    assert_eq!(bench.wait(second).recheck_after, Some(Duration::from_millis(300)));
}

#[test]
fn an_abandoned_head_passes_its_wake_up_on() {
    let mut bench = Bench::new();
    let [holder, first, second, third] = tokens();
    bench.take(Claimant::Plain, holder);
    bench.wait(first);
    bench.wait(second);
    bench.release(holder);
    assert_eq!(bench.woken(), Some(first));
    bench.abandon(first);
    assert_eq!(bench.woken(), Some(second));
    bench.abandon(first);
    assert_eq!(bench.woken(), None);
    bench.claim(second);
    bench.wait(third);
    bench.abandon(second);
    assert_eq!(bench.woken(), Some(third));
    bench.claim(third);
    bench.wait(holder);
    bench.abandon(holder);
    assert_eq!(bench.woken(), None, "the lock is held");
}

#[test]
fn who_finds_the_lock_free_by_expiry_wakes_the_head() {
    let mut bench = Bench::new();
    let [holder, first, second] = tokens();
    bench.take(Claimant::Plain, holder);
    bench.pass(TTL - Duration::from_secs(1));
    bench.wait(first);
    bench.pass(Duration::from_secs(1));
    assert_eq!(bench.wait(second).recheck_after, Some(Duration::from_secs(2)));
    assert_eq!(bench.woken(), Some(first));
    bench.wait(second);
    assert_eq!(bench.woken(), None, "once is enough");
    bench.claim(first);
}

#[test]
fn a_full_queue_refuses_and_lapsed_waiters_make_room() {
    let mut bench = Bench::new();
    let [holder, a, b, c, d] = tokens();
    bench.take(Claimant::Plain, holder);
    for token in [a, b, c] {
        bench.wait(token);
    }
    let join = Queueing::Join { presence: PRESENCE, accepts: Handing::Asked };
    assert_eq!(bench.ask(Claimant::Plain, d, TTL, join).unwrap_err(), Refusal::QueueFull(3));
    assert_eq!(bench.wait(b).position, Some(1), "who is in may ask again");
    bench.pass(PRESENCE - Duration::from_secs(1));
    bench.wait(b);
    bench.pass(Duration::from_secs(1));
    assert_eq!(bench.wait(d).position, Some(1));
}

#[test]
fn force_takes_any_hold_and_wakes_the_head() {
    let mut bench = Bench::new();
    let [holder, waiter] = tokens();
    assert_eq!(bench.force(None), ForceReleased::NotHeld);
    bench.take(Claimant::Owner(OwnerId::new()), holder);
    bench.wait(waiter);
    assert_eq!(bench.force(None), ForceReleased::Released);
    assert_eq!(bench.woken(), Some(waiter));
    bench.claim(waiter);
}

#[test]
fn force_takes_the_expected_hold_alone() {
    let mut bench = Bench::new();
    let [first, second] = tokens();
    let before = bench.take(Claimant::Plain, first).fence;
    bench.release(first);
    assert_eq!(bench.force(Some(before)), ForceReleased::NotHeld);
    let now = bench.take(Claimant::Owner(OwnerId::new()), second).fence;
    assert_eq!(bench.force(Some(before)), ForceReleased::Changed);
    assert_eq!(bench.woken(), None);
    assert_eq!(bench.force(Some(now)), ForceReleased::Released);
}

#[test]
fn inspection_tells_who_since_when_and_how_deep() {
    let mut bench = Bench::new();
    let me = Claimant::Owner(OwnerId::new());
    let [outer, inner, waiter] = tokens();
    let grant = bench.take(me, outer);
    bench.pass(Duration::from_secs(3));
    bench.take(me, inner);
    bench.wait(waiter);
    let seen = bench.inspect();
    let holder = seen.holder.unwrap();
    assert_eq!((holder.fence, holder.depth, seen.waiters), (Some(grant.fence), 2, 1));
    assert_eq!((holder.held_for, holder.remaining), (Some(Duration::from_secs(3)), Some(TTL)));
    assert_eq!(holder.label.unwrap().as_str(), "me");
    bench.pass(TTL);
    assert_eq!(bench.inspect().holder, None);
}

#[test]
fn who_is_known_to_hear_nothing_leaves_the_queue_when_its_turn_comes() {
    let mut bench = Bench::new();
    let [holder, deaf, next, last] = tokens();
    bench.take(Claimant::Plain, holder);
    bench.world.deaf.push(deaf);
    bench.wait(deaf);
    bench.wait(next);
    bench.release(holder);
    assert_eq!(bench.woken(), Some(next));
    bench.claim(next);
    assert_eq!(bench.wait(deaf).position, Some(0), "it begins again");
    bench.pass(TTL - Duration::from_secs(1));
    bench.wait(deaf);
    bench.pass(Duration::from_secs(1));
    bench.claim(last); // the lease ran out, and whoever asks gets past the one that does not listen
    assert_eq!((bench.inspect().waiters, bench.woken()), (0, None));
}

#[test]
fn a_wake_up_that_nobody_hears_continues_past_those_that_are_known_to_hear_nothing() {
    let mut bench = Bench::new();
    let [holder, absent, deaf, next] = tokens();
    bench.take(Claimant::Plain, holder);
    bench.world.absent.push(absent);
    bench.world.deaf.push(deaf);
    for waiter in [absent, deaf, next] {
        bench.wait(waiter);
    }
    bench.release(holder);
    assert_eq!(bench.woken(), Some(next), "it looks, should the first one never ask");
}

#[test]
fn who_looks_at_a_lease_at_its_end_finds_none() {
    let ended = || {
        let mut bench = Bench::new();
        let [token] = tokens();
        let fence = bench.take(Claimant::Plain, token).fence;
        bench.pass(TTL);
        (bench, token, fence)
    };
    let (mut bench, token, _) = ended();
    assert_eq!(bench.release(token), Released::NotHeld);
    let (mut bench, _, fence) = ended();
    assert_eq!(bench.force(Some(fence)), ForceReleased::NotHeld);
}

#[test]
fn who_waits_is_counted_and_shown_for_as_long_as_it_is_present() {
    let mut bench = Bench::new();
    let [holder, waiter] = tokens();
    bench.take(Claimant::Plain, holder);
    bench.wait(waiter);
    assert_eq!(bench.inspect().waiters, 1);
    bench.pass(PRESENCE);
    assert_eq!(bench.inspect().waiters, 0);
}
