//! Spans and events of the engine, with the feature `tracing`. Without it, nothing is compiled in.
//!
//! | name | kind | level | fields | when |
//! |---|---|---|---|---|
//! | `tenure.acquire` | span | debug | `driver`, `name`, `outcome` | around every acquisition; the outcome is `at_once`, `waited`, `busy` or the kind of the error, and empty when the future was dropped. It follows from the span in which another task of this client released the lock or got it for this one, if there was one |
//! | `tenure.granted` | event | debug | `name`, `fence`, `waited_ms` | a wait ended with the lock |
//! | `tenure.lost` | event | warn | `name`, `fence`, `reason` | a lease ended before its release |
//! | `tenure.renewal_failed` | event | warn | `name`, `error`, `count` | renewals were not confirmed, and are retried: the first one, and then at most one event a second, which names the latest; `count` is their number since the event before |
//! | `tenure.renewals_recovered` | event | info | `name`, `count` | a renewal was confirmed, and none had failed for a second; `count` failed since the event before |
//! | `tenure.wait_disturbed` | event | warn | `name`, `error` | the backend failed during a wait; the wait continues |
//! | `tenure.waits_for_own_client` | event | warn | `name`, `waited_ms` | a wait has outlasted its ttl, and for at least the second half of it a single hold of this client blocked the lock: perhaps the waiter's own, and then it waits forever. Once for each wait |
//! | `tenure.cleanup_retried` | event | debug | `name`, `error` | a clean-up was not acknowledged; it is retried |
//! | `tenure.cleanup_given_up` | event | warn | `name`, `error` | a clean-up cannot matter any more, and was not acknowledged |
//! | `tenure.node_unfit` | event | warn | `node`, `error` | redlock: a node refuses its votes for a reason that a person has to remove, and the other nodes form the quorum. Once, until it votes again |
//! | `tenure.push` | span | debug | `driver`, `queue`, `count` | around every push |
//! | `tenure.received` | event | debug | `queue`, `count` | a request brought messages |
//! | `tenure.healed` | event | warn | `queue`, `expired`, `dead`, `postponed`, `orphans` | a request found leases that had ended, or messages that are not delivered any more |
//! | `tenure.settled` | event | debug | `queue`, `id`, `attempt`, `how`, `answer` | a settlement was answered |
//! | `tenure.dead_letter` | event | warn | `queue`, `id`, `attempt`, `reason` | a settlement moved a message to the dead letters, or left it waiting for a place there |
//! | `tenure.occurrence_passed_over` | event | warn | `queue`, `id`, `attempt`, `how` | an occurrence of a recurring message is not handled: it was missed, has no attempts left, or is not understood |
//! | `tenure.change_failed` | event | warn | `queue`, `id`, `error` | a recurring message whose occurrence was in flight could not be replaced; tried again if the error passes by itself |
//! | `tenure.delivery_lost` | event | warn | `queue`, `id`, `attempt` | a lease ended before its message was settled |
//! | `tenure.queue_disturbed` | event | warn | `queue`, `error` | a request for messages or of settlements failed; receivers continue to wait |
//! | `tenure.queue_unwatched` | event | warn | `queue`, `error` | there are no wake-ups; the client polls the queue every two seconds until there are |
//! | `tenure.worker_started` | event | debug | `queue`, `concurrency` | a worker begins |
//! | `tenure.worker_refused` | event | error | `queue`, `error` | a worker stops, because the queue refuses it for good |
//! | `tenure.handler_unfinished` | event | warn | `queue`, `id` | the shutdown of a worker returned, and this message is still in hand: its handler blocks its thread, or the backend does not answer its settlement |
//! | `tenure.worker_stopped` | event | debug | `queue`, `handled`, `retried`, `dead`, `put_off`, `parked`, `returned`, `stale`, `unconfirmed`, `failed` | a worker has ended |
//!
//! No field holds an owner token, a credential or a payload.

#[cfg(not(feature = "tracing"))]
pub(crate) use disabled::*;
#[cfg(feature = "tracing")]
pub(crate) use enabled::*;

#[cfg(feature = "tracing")]
mod enabled {
    //! Spans and events through `tracing`.

    use std::time::Duration;

    use futures_util::FutureExt as _;
    use tracing::field::Empty;
    use tracing::{Instrument as _, Span};

    use crate::driver::{Healed, Received, Settled, Settlement};
    use crate::value::error::Error;
    use crate::value::error::LockName;
    use crate::value::queue::{MessageId, QueueName};
    use crate::value::time::{LeaseInstant, LostReason};
    use crate::value::token::FencingToken;

    /// True if anything is reported.
    pub(crate) const REPORTS: bool = true;

    pub(crate) fn in_acquire_span<F: Future, O>(
        driver: &'static str,
        name: &LockName,
        work: F,
        outcome: O,
    ) -> impl Future<Output = F::Output> + use<F, O>
    where
        O: FnOnce(&F::Output) -> &'static str,
    {
        let span = tracing::debug_span!("tenure.acquire", driver, %name, outcome = Empty);
        let this = span.clone();
        let reported = work.inspect(move |ended| {
            this.record("outcome", outcome(ended));
        });
        reported.instrument(span)
    }

    /// The origin of a lock that was handed over to a waiter.
    #[derive(Clone, Debug)]
    pub(crate) struct Origin(Span);

    impl Origin {
        /// Makes the origin here: the span of the task that releases the lock, or gets it for the others.
        pub(crate) fn here() -> Self {
            Self(Span::current())
        }

        /// The span of the waiter, which is the current one, follows from there.
        pub(crate) fn leads_here(&self) {
            Span::current().follows_from(&self.0);
        }
    }

    pub(crate) fn granted(name: &LockName, fence: FencingToken, started: LeaseInstant) {
        let waited = || LeaseInstant::now().since(started).as_millis() as u64;
        tracing::debug!(name: "tenure.granted", %name, fence = fence.get(), waited_ms = waited());
    }

    pub(crate) fn lost(name: &LockName, fence: FencingToken, reason: LostReason) {
        tracing::warn!(name: "tenure.lost", %name, fence = fence.get(), ?reason);
    }

    pub(crate) fn renewal_failed(name: &LockName, error: &Error, count: u64) {
        tracing::warn!(name: "tenure.renewal_failed", %name, %error, count);
    }

    pub(crate) fn renewals_recovered(name: &LockName, count: u64) {
        tracing::info!(name: "tenure.renewals_recovered", %name, count);
    }

    pub(crate) fn wait_disturbed(name: &LockName, error: &Error) {
        tracing::warn!(name: "tenure.wait_disturbed", %name, %error);
    }

    pub(crate) fn waits_for_own_client(name: &LockName, waited: Duration) {
        tracing::warn!(name: "tenure.waits_for_own_client", %name, waited_ms = waited.as_millis() as u64);
    }

    pub(crate) fn cleanup_retried(name: &LockName, error: &Error) {
        tracing::debug!(name: "tenure.cleanup_retried", %name, %error);
    }

    pub(crate) fn cleanup_given_up(name: &LockName, error: &Error) {
        tracing::warn!(name: "tenure.cleanup_given_up", %name, %error);
    }

    pub(crate) fn in_push_span<F: Future>(
        driver: &'static str,
        queue: &QueueName,
        count: usize,
        work: F,
    ) -> impl Future<Output = F::Output> + use<F> {
        work.instrument(tracing::debug_span!("tenure.push", driver, %queue, count))
    }

    pub(crate) fn received(queue: &QueueName, received: &Received) {
        let count = received.deliveries.len();
        if count > 0 {
            tracing::debug!(name: "tenure.received", %queue, count);
        }
        let Healed { expired, dead, postponed, orphans } = received.healed;
        if received.healed != Healed::default() {
            tracing::warn!(name: "tenure.healed", %queue, expired, dead, postponed, orphans);
        }
    }

    pub(crate) fn settled(queue: &QueueName, id: &MessageId, attempt: u32, how: &Settlement, answer: Settled) {
        let (how, reason) = match how {
            Settlement::Ack => ("ack", None),
            Settlement::Retry { reason, .. } => ("retry", reason.as_ref()),
            Settlement::Return { .. } => ("return", None),
            Settlement::Park { .. } => ("park", None),
            Settlement::Dead { reason } => ("dead", reason.as_ref()),
            Settlement::Recur { reason, .. } => ("recur", reason.as_ref()),
        };
        tracing::debug!(name: "tenure.settled", %queue, %id, attempt, how, ?answer);
        match answer {
            Settled::Dead | Settled::Postponed => {
                let reason = reason.map_or("", |reason| reason.as_str());
                tracing::warn!(name: "tenure.dead_letter", %queue, %id, attempt, reason);
            }
            Settled::Stale => delivery_lost(queue, id, attempt),
            Settled::Done => {}
        }
    }

    pub(crate) fn passed_over(queue: &QueueName, id: &MessageId, attempt: u32, how: &Settlement) {
        tracing::warn!(name: "tenure.occurrence_passed_over", %queue, %id, attempt, ?how);
    }

    pub(crate) fn change_failed(queue: &QueueName, id: &MessageId, error: &Error) {
        tracing::warn!(name: "tenure.change_failed", %queue, %id, %error);
    }

    pub(crate) fn delivery_lost(queue: &QueueName, id: &MessageId, attempt: u32) {
        tracing::warn!(name: "tenure.delivery_lost", %queue, %id, attempt);
    }

    pub(crate) fn queue_disturbed(queue: &QueueName, error: &Error) {
        tracing::warn!(name: "tenure.queue_disturbed", %queue, %error);
    }

    pub(crate) fn queue_unwatched(queue: &QueueName, error: &Error) {
        tracing::warn!(name: "tenure.queue_unwatched", %queue, %error);
    }

    pub(crate) fn worker_started(queue: &QueueName, concurrency: usize) {
        tracing::debug!(name: "tenure.worker_started", %queue, concurrency);
    }

    pub(crate) fn worker_refused(queue: &QueueName, error: &Error) {
        tracing::error!(name: "tenure.worker_refused", %queue, %error);
    }

    pub(crate) fn handler_unfinished(queue: &QueueName, id: &MessageId) {
        tracing::warn!(name: "tenure.handler_unfinished", %queue, %id);
    }

    pub(crate) fn worker_stopped(queue: &QueueName, counts: [u64; 9]) {
        let [handled, retried, dead, put_off, parked, returned, stale, unconfirmed, failed] = counts;
        tracing::debug!(name: "tenure.worker_stopped", %queue, handled, retried, dead, put_off, parked, returned, stale, unconfirmed, failed);
    }
}

#[cfg(not(feature = "tracing"))]
mod disabled {
    //! Nothing is reported.

    use std::time::Duration;

    use crate::driver::{Received, Settled, Settlement};
    use crate::value::error::Error;
    use crate::value::error::LockName;
    use crate::value::queue::{MessageId, QueueName};
    use crate::value::time::{LeaseInstant, LostReason};
    use crate::value::token::FencingToken;

    /// False: nothing is reported.
    pub(crate) const REPORTS: bool = false;

    pub(crate) fn in_acquire_span<F: Future>(
        _driver: &'static str,
        _name: &LockName,
        work: F,
        _outcome: impl FnOnce(&F::Output) -> &'static str,
    ) -> F {
        work
    }

    #[derive(Clone, Debug)]
    pub(crate) struct Origin;

    impl Origin {
        pub(crate) fn here() -> Self {
            Self
        }

        pub(crate) fn leads_here(&self) {}
    }

    pub(crate) fn granted(_name: &LockName, _fence: FencingToken, _started: LeaseInstant) {}

    pub(crate) fn lost(_name: &LockName, _fence: FencingToken, _reason: LostReason) {}

    pub(crate) fn renewal_failed(_name: &LockName, _error: &Error, _count: u64) {}

    pub(crate) fn renewals_recovered(_name: &LockName, _count: u64) {}

    pub(crate) fn wait_disturbed(_name: &LockName, _error: &Error) {}

    pub(crate) fn waits_for_own_client(_name: &LockName, _waited: Duration) {}

    pub(crate) fn cleanup_retried(_name: &LockName, _error: &Error) {}

    pub(crate) fn cleanup_given_up(_name: &LockName, _error: &Error) {}

    pub(crate) fn in_push_span<F: Future>(_driver: &'static str, _queue: &QueueName, _count: usize, work: F) -> F {
        work
    }

    pub(crate) fn received(_queue: &QueueName, _received: &Received) {}

    pub(crate) fn settled(_queue: &QueueName, _id: &MessageId, _attempt: u32, _how: &Settlement, _answer: Settled) {}

    pub(crate) fn change_failed(_queue: &QueueName, _id: &MessageId, _error: &Error) {}

    pub(crate) fn delivery_lost(_queue: &QueueName, _id: &MessageId, _attempt: u32) {}

    pub(crate) fn passed_over(_queue: &QueueName, _id: &MessageId, _attempt: u32, _how: &Settlement) {}

    pub(crate) fn queue_disturbed(_queue: &QueueName, _error: &Error) {}

    pub(crate) fn queue_unwatched(_queue: &QueueName, _error: &Error) {}

    pub(crate) fn worker_started(_queue: &QueueName, _concurrency: usize) {}

    pub(crate) fn handler_unfinished(_queue: &QueueName, _id: &MessageId) {}

    pub(crate) fn worker_stopped(_queue: &QueueName, _counts: [u64; 9]) {}

    pub(crate) fn worker_refused(_queue: &QueueName, _error: &Error) {}
}
