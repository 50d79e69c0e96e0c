//! Spans and events through `tracing`.

use std::time::Duration;

use tracing::Instrument as _;

use crate::driver::{Healed, Received, Settled, Settlement};
use crate::queue::WorkerStats;
use crate::value::clock::LeaseInstant;
use crate::value::error::Error;
use crate::value::hold_state::LostReason;
use crate::value::name::LockName;
use crate::value::queue_name::{MessageId, QueueName};
use crate::value::token::FencingToken;

/// Whether anything is reported.
pub(crate) const REPORTS: bool = true;

pub(crate) fn in_acquire_span<F: Future>(
    driver: &'static str,
    name: &LockName,
    work: F,
) -> impl Future<Output = F::Output> + use<F> {
    work.instrument(tracing::debug_span!("tenure.acquire", driver, %name))
}

pub(crate) fn granted(name: &LockName, fence: FencingToken, started: LeaseInstant) {
    let waited = || LeaseInstant::now().since(started).as_millis() as u64;
    tracing::debug!(name: "tenure.granted", %name, fence = fence.get(), waited_ms = waited());
}

pub(crate) fn lost(name: &LockName, fence: FencingToken, reason: LostReason) {
    tracing::warn!(name: "tenure.lost", %name, fence = fence.get(), ?reason);
}

pub(crate) fn renewal_failed(name: &LockName, error: &Error) {
    tracing::warn!(name: "tenure.renewal_failed", %name, %error);
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

pub(crate) fn worker_stopped(queue: &QueueName, stats: &WorkerStats) {
    let WorkerStats { handled, retried, dead, put_off, parked, returned, stale, unconfirmed, failed, .. } = stats;
    tracing::debug!(name: "tenure.worker_stopped", %queue, handled, retried, dead, put_off, parked, returned, stale, unconfirmed, failed);
}
