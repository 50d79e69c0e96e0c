//! Mutants of delay queues: lists, messages that replace, end or recur, limits.

use std::time::Duration;

use tenure_core::driver::{Delay, Due, IfKnown, Listed, MessageState, Pushed, Settle, Settlement};
use tenure_core::queue::{QueueLimits, Rate};

use super::delay_bend::Quirk;
use super::delay_bent::{bend, quirky};
use super::maker::{Mutant, mutant};

#[rustfmt::skip]
pub(super) const MUTANTS: &[Mutant] = &[
    mutant!("list/first-page-only", "the first page of a list is called the last",
        bend!(page: |page| page.next = None), ["queue/list-held", "queue/list-in-flight", "queue/list-waiting"]),
    mutant!("list/kinds-mixed", "waiting messages are listed instead of those in flight",
        bend!(list: |_| Listed::Waiting), ["queue/list-in-flight"]),
    mutant!("list/wrong-order", "pages are listed in the wrong order",
        bend!(page: |page| page.messages.reverse()), ["queue/list-in-flight", "queue/list-waiting"]),
    mutant!("list/without-keys", "messages with a concurrency key are not listed",
        bend!(page: |page| page.messages.retain(|info| info.key.is_none())), ["queue/list-held"]),
    mutant!("list/without-ended-leases", "messages whose lease has ended are not listed",
        bend!(page: |page| page.messages.retain(|info| info.state != MessageState::Ready || info.attempt == 0)),
        ["queue/list-waiting"]),
    mutant!("list/receives", "listed messages are removed",
        quirky(Quirk::ListingReceives), ["queue/list-in-flight", "queue/list-waiting"]),
    mutant!("replace/ignored", "a known message stays, though the push replaces it",
        bend!(push: |m| m.if_known = IfKnown::Keep),
        ["queue/debounce", "queue/replace-in-a-batch", "queue/replace-wakes", "queue/replace-what-waits"]),
    mutant!("replace/hidden", "a replaced message is reported as unknown",
        bend!(pushed: |all| for pushed in all {
            if let Pushed::Replaced(id) = pushed { *pushed = Pushed::Stored(id.clone()) }
        }),
        ["queue/replace-what-waits"]),
    mutant!("replace/always", "every push with a known id replaces",
        bend!(push: |m| m.if_known = IfKnown::Replace),
        ["queue/duplicate-in-a-batch", "queue/duplicate-returns-the-state", "queue/replace-in-a-batch"]),
    mutant!("replace/in-flight", "messages in flight are replaced as well",
        quirky(Quirk::ReplacesInFlight), ["queue/replace-not-in-flight"]),
    mutant!("replace/keeps-the-key", "a message that replaces gets the key of the one before it",
        quirky(Quirk::ReplacementsKeepTheKey), ["queue/replace-frees-the-key"]),
    mutant!("ttl/ignored", "messages may be delivered for ever",
        bend!(push: |m| m.ttl = None),
        ["queue/ttl-counts-from-the-due-time", "queue/ttl-expired-is-dead", "queue/ttl-redriven"]),
    mutant!("ttl/from-the-push", "the time of a message counts from its push",
        bend!(push: |m| m.ttl = m.ttl.map(|ttl| without_delay(ttl, m.due))), ["queue/ttl-counts-from-the-due-time"]),
    mutant!("ttl/in-flight", "a message dies at the end of its time though it is handled",
        quirky(Quirk::ExpiresInFlight), ["queue/ttl-delivered-in-time"]),
    mutant!("ttl/outlives-a-redrive", "a redriven message is reported at the end of its time",
        bend!(info: |info| info.expires_in = info.expires_in.or(Some(Duration::ZERO))),
        ["queue/recur-begins-anew", "queue/ttl-redriven"]),
    mutant!("recur/ends", "a message that should recur is acknowledged",
        bend!(settle: |s| recurs(s, |_| Settlement::Ack)),
        ["queue/recur", "queue/recur-wakes", "queue/recurring-on-many-instances", "queue/recurring-after-an-ack",
         "queue/recurring-is-changed"]),
    mutant!("recur/retries", "a message that recurs keeps its attempts",
        bend!(settle: |s| recurs(s, |after| Settlement::Retry { after, reason: None })),
        ["queue/recur", "queue/recur-begins-anew", "queue/recurring-after-the-last-failure"]),
    mutant!("recur/at-once", "a message that recurs is due at once",
        bend!(settle: |s| if let Settlement::Recur { after, .. } = &mut s.how { *after = Delay::ZERO }),
        ["queue/recur", "queue/recur-frees-the-key", "queue/recurring-with-a-lost-reply"]),
    mutant!("recur/forgets-the-reason", "a message that recurs lacks the reason of the last failure",
        bend!(settle: |s| if let Settlement::Recur { reason, .. } = &mut s.how { *reason = None }),
        ["queue/recur", "queue/recurring-outlives-failures", "queue/recurring-after-a-crash"]),
    mutant!("recur/forgets-the-schedule", "deliveries lack their schedule",
        bend!(delivery: |d| d.recurrence = None), ["queue/recur"]),
    mutant!("recur/nothing", "what should recur is acknowledged and stays in flight",
        quirky(Quirk::RecursNothing),
        ["queue/recur-frees-the-key", "queue/recur-needs-the-receipt", "queue/recurring-ends"]),
    mutant!("batch/any-number-of-bytes", "a push of too many bytes is stored in several requests",
        quirky(Quirk::PushesOneByOne), ["queue/too-many-bytes-are-refused"]),
    mutant!("limit/ignored", "a limit is reported and not kept",
        quirky(Quirk::LimitsNothing),
        ["queue/limit-ignores-ended-leases", "queue/limit-in-flight", "queue/limit-is-kept", "queue/limit-is-replaced",
         "queue/limit-rate", "queue/limit-rate-in-time"]),
    mutant!("limit/one-too-many", "one more message is in flight than allowed",
        bend!(limit: |limits| with_more(limits, 1)),
        ["queue/limit-ignores-ended-leases", "queue/limit-in-flight", "queue/limit-is-kept"]),
    mutant!("limit/without-rate", "rates are not kept",
        bend!(limit: |limits| with_rate(limits, None)),
        ["queue/limit-is-kept", "queue/limit-rate", "queue/limit-rate-in-time"]),
    mutant!("limit/rate-too-slow", "a rate allows a tenth of what it says",
        bend!(limit: |limits| with_rate(limits, limits.max_rate().and_then(slower))), ["queue/limit-rate-in-time"]),
    mutant!("limit/stays", "a limit is not lifted",
        quirky(Quirk::LimitsStay), ["queue/limit-is-kept", "queue/limit-is-replaced", "queue/limit-lifted-wakes"]),
    mutant!("limit/not-listed", "the statistics lack the limits",
        bend!(stats: |s| s.limits = QueueLimits::none()), ["queue/limit-is-kept", "queue/limit-is-replaced"]),
];

fn without_delay(ttl: Delay, due: Due) -> Delay {
    let Due::After(delay) = due else { return ttl };
    Delay::new(ttl.get().saturating_sub(delay.get())).unwrap_or_default()
}

/// Puts another settlement in place of a recurrence.
fn recurs(settle: &mut Settle, other: fn(Delay) -> Settlement) {
    if let Settlement::Recur { after, .. } = settle.how {
        settle.how = other(after);
    }
}

fn with_more(limits: &QueueLimits, more: u32) -> QueueLimits {
    let most = limits.max_in_flight().map(|most| most.get() + more);
    most.and_then(|most| limits.in_flight(most).ok()).unwrap_or(*limits)
}

fn with_rate(limits: &QueueLimits, rate: Option<Rate>) -> QueueLimits {
    let none = QueueLimits::none();
    let limited = limits.max_in_flight().and_then(|most| none.in_flight(most.get()).ok()).unwrap_or(none);
    rate.map_or(limited, |rate| limited.rate(rate))
}

fn slower(rate: Rate) -> Option<Rate> {
    Rate::new(rate.deliveries().get(), rate.per() * 10).ok()
}
