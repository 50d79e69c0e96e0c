//! What a worker counts.

use crate::value::error::Error;

/// What a worker has done so far.
///
/// Every message whose handling has ended counts once in one of the numbers from [`handled`](Self::handled) to
/// [`failed`](Self::failed), by what became of it. The others count besides.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct WorkerStats {
    /// Messages that were handled, and are gone, or recur.
    pub handled: u64,
    /// Messages whose handling failed, and that will be tried again.
    pub retried: u64,
    /// Messages that moved to the dead letters, or wait for a place there.
    pub dead: u64,
    /// Occurrences of [recurring](crate::queue::Recurring) messages that failed for good; the next ones are scheduled.
    pub occurrences_failed: u64,
    /// Messages that their handlers put off: [`Outcome::Later`](crate::queue::Outcome::Later).
    pub put_off: u64,
    /// Messages parked because their lock was taken.
    pub parked: u64,
    /// Messages that were returned because the worker stopped first.
    pub returned: u64,
    /// Messages that somebody else had received by the time of their settlement, which changed nothing.
    pub stale: u64,
    /// Messages whose settlement was not confirmed. It goes on in the background until it is, or the lease has ended.
    pub unconfirmed: u64,
    /// Messages whose settlement was refused. They are delivered again after their lease.
    pub failed: u64,
    /// Handlers that panicked.
    pub panicked: u64,
    /// Handlers that were dropped because they took too long.
    pub timed_out: u64,
    /// Handlers that were dropped because the lease or the lock of their message was lost.
    pub lost: u64,
    /// Messages that could not be decoded.
    pub undecodable: u64,
    /// Requests for messages that failed.
    pub receive_failed: u64,
    /// The last error of a request for messages or of a settlement.
    pub last_error: Option<Error>,
}
