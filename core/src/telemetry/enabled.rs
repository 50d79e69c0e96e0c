//! Spans and events through `tracing`.

use std::time::Duration;

use tracing::Instrument as _;

use crate::engine::outcome::LostReason;
use crate::error::Error;
use crate::name::LockName;
use crate::token::FencingToken;

pub(crate) fn in_acquire_span<F: Future>(
    driver: &'static str,
    name: &LockName,
    work: F,
) -> impl Future<Output = F::Output> + use<F> {
    work.instrument(tracing::debug_span!("tenure.acquire", driver, %name))
}

pub(crate) fn granted(name: &LockName, fence: FencingToken, waited: Duration) {
    tracing::debug!(name: "tenure.granted", %name, fence = fence.get(), waited_ms = waited.as_millis() as u64);
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

pub(crate) fn cleanup_retried(name: &LockName, error: &Error) {
    tracing::debug!(name: "tenure.cleanup_retried", %name, %error);
}

pub(crate) fn cleanup_given_up(name: &LockName, error: &Error) {
    tracing::warn!(name: "tenure.cleanup_given_up", %name, %error);
}
