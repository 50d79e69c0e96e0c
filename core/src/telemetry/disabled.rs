//! Nothing is reported.

use std::time::Duration;

use crate::driver::{Received, Settled, Settlement};
use crate::queue::WorkerStats;
use crate::value::clock::LeaseInstant;
use crate::value::error::Error;
use crate::value::hold_state::LostReason;
use crate::value::name::LockName;
use crate::value::queue_name::{MessageId, QueueName};
use crate::value::token::FencingToken;

/// Whether anything is.
pub(crate) const REPORTS: bool = false;

pub(crate) fn in_acquire_span<F: Future>(_driver: &'static str, _name: &LockName, work: F) -> F {
    work
}

pub(crate) fn granted(_name: &LockName, _fence: FencingToken, _started: LeaseInstant) {}

pub(crate) fn lost(_name: &LockName, _fence: FencingToken, _reason: LostReason) {}

pub(crate) fn renewal_failed(_name: &LockName, _error: &Error) {}

pub(crate) fn wait_disturbed(_name: &LockName, _error: &Error) {}

pub(crate) fn waits_for_own_client(_name: &LockName, _waited: Duration) {}

pub(crate) fn cleanup_retried(_name: &LockName, _error: &Error) {}

pub(crate) fn cleanup_given_up(_name: &LockName, _error: &Error) {}

pub(crate) fn in_push_span<F: Future>(_driver: &'static str, _queue: &QueueName, _count: usize, work: F) -> F {
    work
}

pub(crate) fn received(_queue: &QueueName, _received: &Received) {}

pub(crate) fn settled(_queue: &QueueName, _id: &MessageId, _attempt: u32, _how: &Settlement, _answer: Settled) {}

pub(crate) fn delivery_lost(_queue: &QueueName, _id: &MessageId, _attempt: u32) {}

pub(crate) fn passed_over(_queue: &QueueName, _id: &MessageId, _attempt: u32, _how: &Settlement) {}

pub(crate) fn queue_disturbed(_queue: &QueueName, _error: &Error) {}

pub(crate) fn queue_unwatched(_queue: &QueueName, _error: &Error) {}

pub(crate) fn worker_started(_queue: &QueueName, _concurrency: usize) {}

pub(crate) fn worker_stopped(_queue: &QueueName, _stats: &WorkerStats) {}

pub(crate) fn worker_refused(_queue: &QueueName, _error: &Error) {}
