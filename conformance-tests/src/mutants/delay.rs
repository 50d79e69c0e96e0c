//! Mutants of delay queues: time, leases, receipts, wake-ups.

use std::time::Duration;

use tenure_core::FencingToken;
use tenure_core::driver::{Attempts, Cause, Delay, Due, Extended, Lease, Next, Settled, Settlement};

use super::delay_bend::Quirk;
use super::delay_bent::{bend, quirky};
use super::maker::{Mutant, mutant};

#[rustfmt::skip]
pub(super) const MUTANTS: &[Mutant] = &[
    mutant!("delay/early", "messages are due after nine tenths of their delay",
        bend!(push: |m| m.due = part(m.due, 0.9)), ["queue/cancelled-head", "queue/far-future", "queue/not-early"]),
    mutant!("delay/late", "messages are due after twice their delay",
        bend!(push: |m| m.due = part(m.due, 2.0)), ["queue/delay-longer-than-lease"]),
    mutant!("delay/ignored", "every message is due at once",
        bend!(push: |m| m.due = Due::After(Delay::ZERO)), ["queue/far-future"]),
    mutant!("delay/rounded-up", "every message waits a little, also one that is due at once",
        bend!(push: |m| m.due = later(m.due)), ["queue/batch-is-all-or-none"]),
    mutant!("delay/retry-early", "failed messages are due at once",
        bend!(settle: |s| if let Settlement::Retry { after, .. } = &mut s.how { *after = Delay::ZERO }),
        ["queue/dropped-delivery-fails", "queue/key-is-freed", "queue/retry-delay"]),
    mutant!("delay/wrong-order", "messages that are due come in the wrong order",
        bend!(received: |r| r.deliveries.reverse()), ["queue/due-order", "queue/redelivery-takes-its-place"]),
    mutant!("delay/next-is-twice-as-far", "the time until the next message is twice as long",
        bend!(received: |r| if let Next::In(span) = &mut r.next { *span *= 2 }),
        ["queue/crash-wakes", "queue/wakes-at-due"]),
    mutant!("delay/next-is-unknown", "the time until the next message is always missing",
        bend!(received: |r| r.next = Next::Never), ["queue/next-returns-the-span", "queue/receive-at-most"]),
    mutant!("delay/lateness-is-zero", "deliveries say that they are not late, and that their messages are new",
        bend!(delivery: |d| { d.late = Duration::ZERO; d.age = Duration::ZERO }),
        ["queue/lateness-and-age"]),
    mutant!("receive/slow", "receives are done at once and answered after 700 ms",
        quirky(Quirk::SlowReceives), ["queue/worker-drops-work-at-the-deadline"]),
    mutant!("receive/hangs-when-empty", "a receive that finds nothing is not answered",
        quirky(Quirk::EmptyReceivesHang),
        ["queue/cut-connections", "queue/lost-wake-ups-are-bounded", "queue/outage-while-waiting",
         "queue/pause-of-the-server", "queue/restart-while-waiting", "queue/waiting-is-bounded"]),
    mutant!("lease/none", "messages are not leased: they stay due while they are handled",
        quirky(Quirk::LeasesForget), ["queue/failed-settlement-continues"]),
    mutant!("lease/short-in-queue", "messages are leased for a third of the lease",
        bend!(ask: |r| r.lease = part_of(r.lease, 0.33)), ["queue/exclusive-during-lease", "queue/loss-is-reported"]),
    mutant!("lease/long-in-queue", "messages are leased for twenty times the lease",
        bend!(ask: |r| r.lease = part_of(r.lease, 20.0)), ["queue/lost-reply-of-receive"]),
    mutant!("lease/at-most-once", "messages are gone once they are delivered",
        quirky(Quirk::AtMostOnce), ["queue/closed-client", "queue/restart-with-data-keeps-messages"]),
    mutant!("lease/extends-nothing", "extensions are acknowledged and not done",
        quirky(Quirk::ExtendsNothing), ["queue/settled-receipt-is-stale"]),
    mutant!("lease/extension-says-stale", "extensions are done and called stale",
        bend!(extended: |_| Extended::Stale), ["queue/extension-keeps-the-lease", "queue/extension-never-shortens"]),
    mutant!("lease/extension-hides-loss", "extensions of lost leases are acknowledged",
        bend!(extended: |_| Extended::Extended), ["queue/extension-never-revives"]),
    mutant!("receipt/any-settles", "a stale receipt settles the delivery that came after it",
        quirky(Quirk::StaleSettlesTheNext), ["queue/extension-by-hand"]),
    mutant!("receipt/stale-is-done", "settlements with stale receipts are called done",
        bend!(settled: |all| for s in all { if *s == Settled::Stale { *s = Settled::Done } }),
        ["queue/acknowledged-together", "queue/two-queues-are-apart"]),
    mutant!("receipt/answers-reversed", "the answers of a batch of settlements come in the wrong order",
        bend!(settled: |all| all.reverse()), ["queue/settlements-answer-in-order"]),
    mutant!("receipt/ack-is-retry", "acknowledged messages come back",
        bend!(settle: |s| if s.how == Settlement::Ack { s.how = Settlement::Return { after: Delay::ZERO } }),
        ["queue/due-at-once", "queue/failed-settlement-continues", "queue/lost-reply-of-settlement",
         "queue/many-waiters-one-message"]),
    mutant!("receipt/fused-forgets-to-settle", "settlements that go along with a receive are not done",
        quirky(Quirk::FusedForgetsSettlements), ["queue/mixed-receivers", "queue/worker-extends"]),
    mutant!("receipt/fused-forgets-to-receive", "a receive that goes along with settlements brings nothing",
        quirky(Quirk::FusedForgetsToReceive), ["queue/settle-and-receive"]),
    mutant!("attempt/not-counted", "every delivery is called the first",
        bend!(delivery: |d| d.attempt = 1), ["queue/worker-survives-panics"]),
    mutant!("attempt/cause-hidden", "every delivery is said to be the first of its message",
        bend!(delivery: |d| d.cause = Cause::First),
        ["queue/dropped-delivery-fails"]),
    mutant!("attempt/returns-count", "returned deliveries count as attempts",
        bend!(settle: |s| if let Settlement::Return { after } = s.how { s.how = retry(after) }),
        ["queue/dropped-receive-loses-nothing", "queue/late-reply-of-receive", "queue/return-does-not-count",
         "queue/worker-shuts-down"]),
    mutant!("attempt/returned-at-once", "a message that is returned with a delay is due at once",
        bend!(settle: |s| if let Settlement::Return { after } = &mut s.how { *after = Delay::ZERO }),
        ["queue/returned-for-later", "queue/worker-puts-off"]),
    mutant!("attempt/reason-hidden", "deliveries lack the reason of the last failure",
        bend!(delivery: |d| d.reason = None),
        ["queue/reason-of-the-last-failure"]),
    mutant!("attempt/parking-counts", "parked deliveries count as attempts",
        bend!(settle: |s| if let Settlement::Park { at_most, .. } = s.how { s.how = retry(at_most) }),
        ["queue/parked-without-attempt"]),
    mutant!("attempt/one-too-many", "messages die one delivery too late",
        bend!(push: |m| m.attempts = Attempts::new(m.attempts.get() + 1).unwrap_or(m.attempts)),
        ["queue/worker-retries"]),
    mutant!("attempt/one-only", "messages die after their first failure",
        bend!(push: |m| m.attempts = Attempts::new(1).unwrap_or(m.attempts)), ["queue/closed-client"]),
    mutant!("fence/of-the-message", "fences count the deliveries of a message, not of the queue",
        bend!(delivery: |d| d.fence = FencingToken::new(d.attempt.into()).unwrap_or(d.fence)),
        ["queue/fences-grow"]),
    mutant!("fence/of-deliveries-without-floor",
        "fences of deliveries begin anew within each thousand seconds, whatever floor there is",
        bend!(delivery: |d| d.fence = FencingToken::new(d.fence.get() % 1_000_000_000 + 1).unwrap_or(d.fence)),
        ["queue/fences-beyond-a-floor"]),
    mutant!("wake/queue-never", "waiting receives are not woken",
        quirky(Quirk::NeverWakes),
        ["queue/limit-wakes-when-there-is-room", "queue/retry-wakes", "queue/sooner-arrival-wakes"]),
    mutant!("wake/queue-often", "waiting receives are woken every 20 ms",
        quirky(Quirk::WakesOften), ["queue/idle-costs-nothing"]),
    mutant!("park/by-the-clock", "parked messages come back by the clock alone",
        quirky(Quirk::GivesNoTurn),
        ["queue/parked-behind-a-dead-holder", "queue/parked-behind-a-free-lock",
         "queue/parked-comes-when-its-lock-is-free"]),
    mutant!("park/turns-are-lost", "a message that is given its turn is due without it",
        quirky(Quirk::LosesTurns),
        ["queue/parked-owns-its-turn", "queue/parked-owns-its-turn-by-push", "queue/turn-is-adopted",
         "queue/turn-only-for-the-parked"]),
    mutant!("park/turns-stick", "every delivery of a message brings the turn along that it was given once",
        quirky(Quirk::TurnsStick), ["queue/turn-is-not-adopted-twice"]),
    mutant!("park/turn-with-another-fence", "a turn arrives with another fence than it was given",
        bend!(turn: |t| t.clone().with_fence(FencingToken::new(t.fence.get() + 7).unwrap_or(t.fence))),
        ["queue/turn-is-adopted"]),
    mutant!("park/free-at-once", "parked messages are due at once",
        bend!(settle: |s| if let Settlement::Park { .. } = s.how { s.how = Settlement::Return { after: Delay::ZERO } }),
        ["queue/lock-per-message"]),
    mutant!("park/lock-forgotten", "messages forget which lock they need",
        bend!(delivery: |d| d.lock = None), ["queue/lost-lock-ends-the-handler"]),
];

fn retry(after: Delay) -> Settlement {
    Settlement::Retry { after, reason: None }
}

fn part(due: Due, part: f64) -> Due {
    match due {
        Due::After(delay) => Due::After(part_of_delay(delay, part)),
        parked @ Due::Parked { .. } => parked,
    }
}

fn later(due: Due) -> Due {
    match due {
        Due::After(delay) => Due::After(Delay::new(delay.get() + Duration::from_millis(50)).unwrap_or(delay)),
        parked @ Due::Parked { .. } => parked,
    }
}

/// A lease of this part of another.
fn part_of(lease: Lease, part: f64) -> Lease {
    let millis = (lease.get().as_millis() as f64 * part) as u64;
    Lease::new(Duration::from_millis(millis).clamp(Lease::MIN, Lease::MAX)).unwrap_or(lease)
}

/// A delay of this part of another.
fn part_of_delay(delay: Delay, part: f64) -> Delay {
    Delay::new(delay.get().mul_f64(part).min(Delay::MAX)).unwrap_or(delay)
}
