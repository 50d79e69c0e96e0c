//! Mutants of delay queues: time, leases, receipts, wake-ups.

use std::time::Duration;

use tenure_core::FencingToken;
use tenure_core::driver::{Attempts, Cause, Delay, Due, Extended, Lease, Next, Settled, Settlement};

use super::delay_bend::{Bend, Quirk, STRAIGHT};
use super::delay_bent::{bent, quirky};
use super::maker::{Mutant, mutant};

pub(super) const MUTANTS: &[Mutant] = &[
    mutant!(
        "delay/early",
        "messages are due after nine tenths of their delay",
        || bent(Bend { push: |m| m.due = part(m.due, 0.9), ..STRAIGHT }),
        ["queue/cancelled-head", "queue/far-future", "queue/not-early"]
    ),
    mutant!(
        "delay/late",
        "messages are due after twice their delay",
        || bent(Bend { push: |m| m.due = part(m.due, 2.0), ..STRAIGHT }),
        ["queue/delay-longer-than-lease"]
    ),
    mutant!(
        "delay/ignored",
        "every message is due at once",
        || bent(Bend { push: |m| m.due = Due::After(Delay::ZERO), ..STRAIGHT }),
        ["queue/far-future"]
    ),
    mutant!(
        "delay/rounded-up",
        "every message waits a little, also one that is due at once",
        || bent(Bend { push: |m| m.due = later(m.due), ..STRAIGHT }),
        ["queue/batch-is-all-or-none"]
    ),
    mutant!(
        "delay/retry-early",
        "failed messages are due at once",
        || bent(Bend {
            settle: |s| if let Settlement::Retry { after, .. } = &mut s.how {
                *after = Delay::ZERO
            },
            ..STRAIGHT
        }),
        ["queue/dropped-delivery-fails", "queue/key-is-freed", "queue/retry-delay"]
    ),
    mutant!(
        "delay/wrong-order",
        "messages that are due come in the wrong order",
        || bent(Bend { received: |r| r.deliveries.reverse(), ..STRAIGHT }),
        ["queue/due-order", "queue/redelivery-takes-its-place"]
    ),
    mutant!(
        "delay/next-is-twice-as-far",
        "the span until the next message is told twice as long",
        || bent(Bend {
            received: |r| if let Next::In(span) = &mut r.next {
                *span *= 2
            },
            ..STRAIGHT
        }),
        ["queue/crash-wakes", "queue/wakes-at-due"]
    ),
    mutant!(
        "delay/next-is-unknown",
        "it is never told when the next message is due",
        || bent(Bend { received: |r| r.next = Next::Never, ..STRAIGHT }),
        ["queue/next-tells-the-span", "queue/receive-at-most"]
    ),
    mutant!(
        "delay/lateness-is-zero",
        "deliveries say that they are not late, and that their messages are new",
        || bent(Bend {
            received: |r| r.deliveries.iter_mut().for_each(|d| {
                d.late = Duration::ZERO;
                d.age = Duration::ZERO
            }),
            ..STRAIGHT
        }),
        ["queue/lateness-and-age"]
    ),
    mutant!(
        "receive/slow",
        "receives are done at once and answered after 700 ms",
        || quirky(Quirk::SlowReceives),
        ["queue/worker-drops-work-at-the-deadline"]
    ),
    mutant!(
        "receive/hangs-when-empty",
        "a receive that finds nothing is not answered",
        || quirky(Quirk::EmptyReceivesHang),
        [
            "queue/cut-connections",
            "queue/lost-wake-ups-are-bounded",
            "queue/outage-while-waiting",
            "queue/pause-of-the-server",
            "queue/restart-while-waiting",
            "queue/waiting-is-bounded"
        ]
    ),
    mutant!(
        "lease/none",
        "messages are not leased: they stay due while they are handled",
        || quirky(Quirk::LeasesForget),
        ["queue/failed-settlement-goes-on"]
    ),
    mutant!(
        "lease/short-in-queue",
        "messages are leased for a third of the lease",
        || bent(Bend { ask: |r| r.lease = part_of(r.lease, 0.33), ..STRAIGHT }),
        ["queue/exclusive-during-lease", "queue/loss-is-told"]
    ),
    mutant!(
        "lease/long-in-queue",
        "messages are leased for twenty times the lease",
        || bent(Bend { ask: |r| r.lease = part_of(r.lease, 20.0), ..STRAIGHT }),
        ["queue/lost-reply-of-receive"]
    ),
    mutant!(
        "lease/at-most-once",
        "messages are gone once they are delivered",
        || quirky(Quirk::AtMostOnce),
        ["queue/closed-client", "queue/restart-with-data-keeps-messages"]
    ),
    mutant!(
        "lease/extends-nothing",
        "extensions are acknowledged and not done",
        || quirky(Quirk::ExtendsNothing),
        ["queue/settled-receipt-is-stale"]
    ),
    mutant!(
        "lease/extension-says-stale",
        "extensions are done and called stale",
        || bent(Bend { extended: |_| Extended::Stale, ..STRAIGHT }),
        ["queue/extension-keeps-the-lease", "queue/extension-never-shortens"]
    ),
    mutant!(
        "lease/extension-hides-loss",
        "extensions of lost leases are acknowledged",
        || bent(Bend { extended: |_| Extended::Extended, ..STRAIGHT }),
        ["queue/extension-never-revives"]
    ),
    mutant!(
        "receipt/any-settles",
        "a stale receipt settles the delivery that came after it",
        || quirky(Quirk::StaleSettlesTheNext),
        ["queue/extension-by-hand"]
    ),
    mutant!(
        "receipt/stale-is-done",
        "settlements with stale receipts are called done",
        || bent(Bend {
            settled: |all| all.iter_mut().for_each(|s| if *s == Settled::Stale {
                *s = Settled::Done
            }),
            ..STRAIGHT
        }),
        ["queue/acknowledged-together", "queue/two-queues-are-apart"]
    ),
    mutant!(
        "receipt/answers-reversed",
        "the answers of a batch of settlements come in the wrong order",
        || bent(Bend { settled: |all| all.reverse(), ..STRAIGHT }),
        ["queue/settlements-answer-in-order"]
    ),
    mutant!(
        "receipt/ack-is-retry",
        "acknowledged messages come back",
        || bent(Bend {
            settle: |s| if s.how == Settlement::Ack {
                s.how = Settlement::Return { after: Delay::ZERO }
            },
            ..STRAIGHT
        }),
        [
            "queue/due-at-once",
            "queue/failed-settlement-goes-on",
            "queue/lost-reply-of-settlement",
            "queue/many-waiters-one-message"
        ]
    ),
    mutant!(
        "receipt/fused-forgets-to-settle",
        "settlements that go along with a receive are not done",
        || quirky(Quirk::FusedForgetsSettlements),
        ["queue/mixed-receivers", "queue/worker-extends"]
    ),
    mutant!(
        "receipt/fused-forgets-to-receive",
        "a receive that goes along with settlements brings nothing",
        || quirky(Quirk::FusedForgetsToReceive),
        ["queue/settle-and-receive"]
    ),
    mutant!(
        "attempt/not-counted",
        "every delivery is called the first",
        || bent(Bend { received: |r| r.deliveries.iter_mut().for_each(|d| d.attempt = 1), ..STRAIGHT }),
        ["queue/worker-survives-panics"]
    ),
    mutant!(
        "attempt/cause-hidden",
        "every delivery is said to be the first of its message",
        || bent(Bend { received: |r| r.deliveries.iter_mut().for_each(|d| d.cause = Cause::First), ..STRAIGHT }),
        ["queue/dropped-delivery-fails"]
    ),
    mutant!(
        "attempt/returns-count",
        "returned deliveries count as attempts",
        || bent(Bend {
            settle: |s| if let Settlement::Return { after } = s.how {
                s.how = retry(after)
            },
            ..STRAIGHT
        }),
        [
            "queue/dropped-receive-loses-nothing",
            "queue/late-reply-of-receive",
            "queue/return-does-not-count",
            "queue/worker-shuts-down"
        ]
    ),
    mutant!(
        "attempt/returned-at-once",
        "what is returned for later is due at once",
        || bent(Bend {
            settle: |s| if let Settlement::Return { after } = &mut s.how {
                *after = Delay::ZERO
            },
            ..STRAIGHT
        }),
        ["queue/returned-for-later", "queue/worker-puts-off"]
    ),
    mutant!(
        "attempt/reason-hidden",
        "deliveries do not tell why the last one failed",
        || bent(Bend { received: |r| r.deliveries.iter_mut().for_each(|d| d.reason = None), ..STRAIGHT }),
        ["queue/reason-of-the-last-failure"]
    ),
    mutant!(
        "attempt/parking-counts",
        "parked deliveries count as attempts",
        || bent(Bend {
            settle: |s| if let Settlement::Park { at_most, .. } = s.how {
                s.how = retry(at_most)
            },
            ..STRAIGHT
        }),
        ["queue/parked-without-attempt"]
    ),
    mutant!(
        "attempt/one-too-many",
        "messages die one delivery too late",
        || bent(Bend { push: |m| m.attempts = Attempts::new(m.attempts.get() + 1).unwrap_or(m.attempts), ..STRAIGHT }),
        ["queue/worker-retries"]
    ),
    mutant!(
        "attempt/one-only",
        "messages die after their first failure",
        || bent(Bend { push: |m| m.attempts = Attempts::new(1).unwrap_or(m.attempts), ..STRAIGHT }),
        ["queue/closed-client"]
    ),
    mutant!(
        "fence/of-the-message",
        "fences count the deliveries of a message, not of the queue",
        || bent(Bend {
            received: |r| r
                .deliveries
                .iter_mut()
                .for_each(|d| d.fence = FencingToken::new(d.attempt.into()).unwrap_or(d.fence)),
            ..STRAIGHT
        }),
        ["queue/fences-grow"]
    ),
    mutant!(
        "fence/of-deliveries-without-floor",
        "fences of deliveries begin anew within each thousand seconds, whatever floor there is",
        || bent(Bend {
            received: |r| r
                .deliveries
                .iter_mut()
                .for_each(|d| { d.fence = FencingToken::new(d.fence.get() % 1_000_000_000 + 1).unwrap_or(d.fence) }),
            ..STRAIGHT
        }),
        ["queue/fences-beyond-a-floor"]
    ),
    mutant!(
        "wake/queue-never",
        "nobody who waits on a queue is woken",
        || quirky(Quirk::NeverWakes),
        ["queue/limit-wakes-when-there-is-room", "queue/retry-wakes", "queue/sooner-arrival-wakes"]
    ),
    mutant!(
        "wake/queue-often",
        "those who wait on a queue are woken every 20 ms",
        || quirky(Quirk::WakesOften),
        ["queue/idle-costs-nothing"]
    ),
    mutant!(
        "park/by-the-clock",
        "parked messages come back by the clock alone",
        || quirky(Quirk::GivesNoTurn),
        [
            "queue/parked-behind-a-dead-holder",
            "queue/parked-behind-a-free-lock",
            "queue/parked-comes-when-its-lock-is-free"
        ]
    ),
    mutant!(
        "park/turns-are-lost",
        "a message that is given its turn is due without it",
        || quirky(Quirk::LosesTurns),
        [
            "queue/parked-owns-its-turn",
            "queue/parked-owns-its-turn-by-push",
            "queue/turn-is-adopted",
            "queue/turn-only-for-the-parked"
        ]
    ),
    mutant!(
        "park/turns-stick",
        "every delivery of a message brings the turn along that it was given once",
        || quirky(Quirk::TurnsStick),
        ["queue/turn-is-not-adopted-twice"]
    ),
    mutant!(
        "park/turn-with-another-fence",
        "a turn arrives with another fence than it was given",
        || bent(Bend {
            turn: |t| t.clone().with_fence(FencingToken::new(t.fence.get() + 7).unwrap_or(t.fence)),
            ..STRAIGHT
        }),
        ["queue/turn-is-adopted"]
    ),
    mutant!(
        "park/free-at-once",
        "parked messages are due at once",
        || bent(Bend {
            settle: |s| if let Settlement::Park { .. } = s.how {
                s.how = Settlement::Return { after: Delay::ZERO }
            },
            ..STRAIGHT
        }),
        ["queue/lock-per-message"]
    ),
    mutant!(
        "park/lock-forgotten",
        "messages forget which lock they need",
        || bent(Bend { received: |r| r.deliveries.iter_mut().for_each(|d| d.lock = None), ..STRAIGHT }),
        ["queue/lost-lock-ends-the-handler"]
    ),
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
