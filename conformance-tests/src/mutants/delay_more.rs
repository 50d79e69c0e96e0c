//! Mutants of delay queues: ids, batches, dead letters, keys, operators.

use std::time::Duration;

use tenure_core::driver::{
    Cancelled, Cause, DeadCause, Delay, Flow, MessageState, Parking, Payload, Pushed, QueueWake, Rescheduled, Rest,
    Settled, Settlement,
};
use tenure_core::queue::QueueName;

use super::delay_bend::Quirk;
use super::delay_bent::{bend, quirky};
use super::maker::{Mutant, mutant};
use super::reduced::Abilities;

#[rustfmt::skip]
pub(super) const MUTANTS: &[Mutant] = &[
    mutant!("id/ignored", "ids of callers are ignored",
        bend!(push: |m| m.id = None), ["queue/duplicate-in-a-batch", "queue/push-many-whole-messages"]),
    mutant!("id/no-window", "ids are forgotten with the acknowledgement",
        bend!(push: |m| m.id.iter_mut().for_each(|id| id.window = Delay::ZERO)), ["queue/id-outlives-the-ack"]),
    mutant!("id/window-for-ever", "ids are known for a day after the acknowledgement",
        bend!(push: |m| m.id.iter_mut().for_each(|id| id.window = day())), ["queue/id-without-window"]),
    mutant!("id/state-hidden", "duplicates are said to be scheduled, wherever they stand",
        bend!(pushed: |all| for pushed in all {
            if let Pushed::Duplicate(state) = pushed { *state = MessageState::Scheduled }
        }),
        ["queue/duplicate-returns-the-state"]),
    mutant!("id/half-of-a-batch", "half of a batch is stored",
        quirky(Quirk::HalfOfABatch),
        ["queue/batch-is-all-or-none", "queue/push-many-is-split", "queue/push-many-is-split-by-bytes"]),
    mutant!("id/batch-not-checked", "duplicates within a batch are called stored",
        bend!(pushed: |all| for at in 1..all.len() {
            if matches!(all[at], Pushed::Duplicate(_)) { all[at] = all[0].clone() }
        }),
        ["queue/duplicate-in-a-batch"]),
    mutant!("cancel/nothing", "cancelled messages are delivered all the same",
        quirky(Quirk::CancelsNothing), ["queue/cancelled-head"]),
    mutant!("cancel/in-flight", "messages in flight are cancelled as well",
        quirky(Quirk::StealsLeases), ["queue/cancel-or-deliver"]),
    mutant!("cancel/lies", "every cancellation is called a success",
        bend!(cancelled: |_| Cancelled::Removed), ["queue/cancel-returns-the-state"]),
    mutant!("cancel/denies", "a cancellation that worked says that there was nothing",
        bend!(cancelled: |c| if c == Cancelled::Removed { Cancelled::NotFound } else { c }),
        ["queue/cancelled-id-is-free"]),
    mutant!("reschedule/nothing", "rescheduled messages keep their time",
        quirky(Quirk::ReschedulesNothing), ["queue/reschedule-wakes"]),
    mutant!("reschedule/late", "rescheduled messages are put off, whatever was asked for",
        bend!(reschedule: |_| day()), ["queue/reschedule-wakes"]),
    mutant!("reschedule/lies", "every rescheduling is called a success",
        bend!(rescheduled: |_| Rescheduled::Moved), ["queue/reschedule-returns-the-state"]),
    mutant!("look/wrong-state", "messages are said to be ready, wherever they stand",
        bend!(info: |info| info.state = MessageState::Ready), ["queue/stale-receipt-changes-nothing"]),
    mutant!("look/no-due-time", "the due time of a message is missing",
        bend!(info: |info| info.due_in = Duration::ZERO), ["queue/get-returns-everything"]),
    mutant!("batch/too-many", "a receive hands out one more than was asked for",
        bend!(ask: |r| r.max += 1), ["queue/poison-does-not-block", "queue/ties-in-push-order"]),
    mutant!("batch/loses-the-last", "the last message of a large receive is lost on the way",
        bend!(received: |r| if r.deliveries.len() > 3 { r.deliveries.pop(); }),
        ["queue/thousands-due-at-once", "queue/worker-concurrency"]),
    mutant!("batch/twice", "the first message of a large receive is delivered twice",
        bend!(received: |r| if r.deliveries.len() > 3 { let first = r.deliveries[0].clone(); r.deliveries[1] = first }),
        ["queue/ties-in-push-order"]),
    mutant!("bytes/as-text", "payloads are taken for text",
        bend!(push: |m| m.payload = as_text(&m.payload)), ["queue/undecodable", "queue/workers-share"]),
    mutant!("bytes/cut-at-nul", "payloads end at the first NUL",
        bend!(push: |m| m.payload = until_nul(&m.payload)), ["queue/bytes-exact", "queue/stream"]),
    mutant!("dead/dropped", "dead letters are thrown away",
        quirky(Quirk::DropsTheDead), ["queue/dead-letters-in-pages", "queue/restart-with-data-keeps-messages"]),
    mutant!("dead/acknowledged", "rejected messages are removed",
        bend!(settle: |s| if let Settlement::Dead { .. } = s.how { s.how = Settlement::Ack },
            settled: |all| for s in all { if *s == Settled::Done { *s = Settled::Dead } }),
        ["queue/late-ack-counts"]),
    mutant!("dead/rejection-is-a-failure", "rejected messages are tried again",
        bend!(settle: |s| if let Settlement::Dead { reason } = &s.how {
            s.how = Settlement::Retry { after: Delay::ZERO, reason: reason.clone() }
        }),
        ["queue/dead-letters-in-pages"]),
    mutant!("dead/no-reason", "reasons are not kept",
        bend!(letters: |page| page.letters.iter_mut().for_each(|l| l.reason = None)),
        ["queue/dead-after-crashes", "queue/dead-after-failures", "queue/lock-by-value-fails",
         "queue/worker-survives-its-codec"]),
    mutant!("dead/no-cause", "all dead letters are said to be exhausted",
        bend!(letters: |page| page.letters.iter_mut().for_each(|l| l.cause = DeadCause::Exhausted)),
        ["queue/rejected", "queue/worker-buries-the-undecodable"]),
    mutant!("dead/wrong-order", "dead letters are listed in the wrong order",
        bend!(letters: |page| page.letters.reverse()), ["queue/dead-letters-in-pages"]),
    mutant!("dead/redrives-all", "a redrive of some moves all",
        quirky(Quirk::RedrivesAll), ["queue/redrive-some"]),
    mutant!("dead/redrives-nothing", "a redrive moves nothing",
        quirky(Quirk::RedrivesNothing), ["queue/redrive-gives-all-attempts"]),
    mutant!("dead/redrive-keeps-attempts", "redriven messages keep their attempts",
        bend!(delivery: |d| if d.cause == Cause::Redriven { d.attempt += 1 }),
        ["queue/random-steps"]),
    mutant!("dead/purges-nothing", "purged dead letters stay",
        quirky(Quirk::PurgesNoLetter), ["queue/purge-dead"]),
    mutant!("dead/full-means-gone", "a message that finds the dead letters full is called dead",
        bend!(settled: |all| for s in all { if *s == Settled::Postponed { *s = Settled::Dead } }),
        ["queue/full-dead-letters-lose-nothing"]),
    mutant!("dead/exhausted-hidden", "dead letters of a receive are not reported",
        bend!(received: |r| r.healed = Default::default()),
        ["queue/crash-counts-an-attempt", "queue/dead-after-crashes"]),
    mutant!("key/ignored", "concurrency keys are ignored",
        bend!(push: |m| m.key = None), ["queue/key-wakes", "queue/one-in-flight-per-key"]),
    mutant!("operate/pause-ignored", "a pause is acknowledged and not done",
        quirky(Quirk::PausesNothing), ["queue/list", "queue/turn-needs-a-receiver"]),
    mutant!("operate/pause-stops-settlements", "a paused queue takes no settlements",
        quirky(Quirk::PauseStopsSettlements), ["queue/two-queues-are-apart"]),
    mutant!("operate/resume-ignored", "a resume is acknowledged and not done",
        quirky(Quirk::ForgetsToResume), ["queue/resume-wakes"]),
    mutant!("operate/purge-takes-the-dead", "a purge removes the dead letters",
        quirky(Quirk::PurgesTheDead), ["queue/purge"]),
    mutant!("operate/purge-stops-early", "a purge removes one message and says that it is done",
        quirky(Quirk::PurgesOneOnly), ["queue/key-holds-nothing-back"]),
    mutant!("operate/purge-loses-its-place",
        "a purge passes over messages behind others that are settled meanwhile",
        quirky(Quirk::PurgesPastTheSettled), ["queue/purge-while-settling"]),
    mutant!("operate/purge-never-ends", "a purge takes whatever was pushed since it began",
        quirky(Quirk::PurgesForEver), ["queue/purge-ends"]),
    mutant!("operate/counts-mixed", "messages in flight are counted as ready",
        bend!(stats: |s| { s.ready += s.in_flight; s.in_flight = 0 }),
        ["queue/dropped-with-the-reply-under-way", "queue/stats"]),
    mutant!("operate/no-lag", "the lag is always zero",
        bend!(stats: |s| s.lag = Duration::ZERO), ["queue/lag"]),
    mutant!("operate/always-running", "a paused queue says that it runs",
        bend!(stats: |s| s.flow = Flow::Running), ["queue/pause"]),
    mutant!("operate/list-misses-the-last", "the last queue is not listed",
        bend!(queues: |page| { page.queues.pop(); page.rest = Rest::None }), ["queue/list"]),
    mutant!("name/queues-meet", "names of queues are cut at a digit",
        bend!(queue: until_digit), ["queue/two-queues-are-apart"]),
    mutant!("name/queue-braces", "braces in names of queues are dropped",
        bend!(queue: without_braces), ["queue/odd-names"]),
    mutant!(Undeclared "declared/queue-offered", "queues are offered that are not declared",
        Abilities { parking: Some(Parking::Attended), ..Abilities::LEAST }, ["refusal/queue"]),
    mutant!(AdminUndeclared "declared/queue-admin-offered",
        "operations on stored messages are offered that are not declared",
        bend!(capabilities: |_| ()), ["refusal/queue-admin"]),
    mutant!("declared/queue-without-limits", "no batch is declared to be too large",
        bend!(capabilities: |c| c.batch = usize::MAX), ["queue/limits-are-refused"]),
    mutant!("declared/queue-polls", "wake-ups are declared not to exist",
        bend!(capabilities: |c| c.wake = QueueWake::Poll), ["meta/declared-matches-driver"]),
    mutant!("park/locks-dropped", "messages are stored without the lock that they need",
        bend!(push: |m| m.lock = None), ["queue/or-park"]),
];

fn day() -> Delay {
    Delay::new(Duration::from_secs(86_400)).unwrap_or_default()
}

fn as_text(payload: &Payload) -> Payload {
    let text = String::from_utf8_lossy(payload.as_bytes()).into_owned();
    Payload::new(text.into_bytes()).unwrap_or_else(|_| payload.clone())
}

fn until_nul(payload: &Payload) -> Payload {
    let bytes = payload.as_bytes().split(|byte| *byte == 0).next().unwrap_or_default();
    Payload::new(bytes).unwrap_or_else(|_| payload.clone())
}

/// The name without a digit at its end.
fn until_digit(name: &QueueName) -> QueueName {
    let bytes = name.as_bytes();
    let end = bytes.iter().rposition(|byte| !byte.is_ascii_digit()).map_or(bytes.len(), |at| at + 1);
    QueueName::new(&bytes[..end]).unwrap_or_else(|_| name.clone())
}

fn without_braces(name: &QueueName) -> QueueName {
    let bytes: Vec<u8> = name.as_bytes().iter().copied().filter(|byte| !b"{}".contains(byte)).collect();
    QueueName::new(bytes).unwrap_or_else(|_| name.clone())
}
