//! What a worker tells while it works.

use std::time::Duration;

use super::outcome::Outcome;
use crate::driver::Settled;
use crate::queue::OccurrenceEnd;
use crate::value::error::{Error, Result};
use crate::value::name::LockName;
use crate::value::queue_name::{MessageId, Reason};

/// Something that happened in a worker, for metrics and alarms: see
/// [`WorkerBuilder::on_event`](super::WorkerBuilder::on_event).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum WorkerEvent {
    /// A message was received; its handling begins.
    Began {
        /// Which message.
        id: MessageId,
        /// Which delivery this is: 1 for the first.
        attempt: u32,
        /// How long after its due time it was handed out.
        late: Duration,
    },
    /// The handling of a message has ended, and its settlement was answered.
    Ended {
        /// Which message.
        id: MessageId,
        /// Which delivery this was.
        attempt: u32,
        /// How the handling ended.
        ending: Ending,
        /// How long it took, the lock of the message included, the settlement not.
        took: Duration,
        /// How an occurrence of a [recurring](crate::Recurring) message ended with it; `None` for other messages, and for an
        /// occurrence that goes on.
        occurrence: Option<OccurrenceEnd>,
        /// What the backend answered to the settlement.
        settled: Result<Settled>,
    },
    /// A request for messages failed. The worker asks again after a pause if the error is
    /// [transient](Error::is_transient), and stops otherwise.
    ReceiveFailed {
        /// Why.
        error: Error,
    },
    /// The worker has stopped, and no handler of it runs any more. The last event of a worker.
    Stopped {
        /// Why it stopped by itself; `None` when it was told to, or the client was closed.
        error: Option<Error>,
    },
}

/// How the handling of a message ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ending {
    /// The handler said this.
    Said(Outcome),
    /// The payload could not be decoded: the message moves to the dead letters, or the occurrence of a recurring one has failed.
    Undecodable(Reason),
    /// The handler panicked: a failed attempt. With the text of the panic.
    Panicked(Reason),
    /// The handler took longer than [`handler_timeout`](super::WorkerBuilder::handler_timeout), and was dropped: a failed
    /// attempt.
    TimedOut,
    /// The lease of the delivery was lost, and the handler dropped: a failed attempt.
    LeaseLost,
    /// The lock of the message was lost, and the handler dropped: a failed attempt.
    LockLost,
    /// The lock of the message is taken: it is parked, and the attempt is not counted.
    LockTaken(LockName),
    /// The lock of the message could not be asked for: a failed attempt.
    LockFailed(Reason),
    /// The worker stopped first, and the handler was dropped: the message is returned, and the attempt is not counted.
    Stopped,
}
