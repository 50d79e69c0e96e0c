//! What a handler is given, what becomes of its message, and who sees and counts that.

use std::fmt;
use std::fmt::Display;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::sync::watch;

use crate::driver::{Cause, Settled};
use crate::queue::{Delivery, OccurrenceEnd};
use crate::value::error::{Error, LockName, Result};
use crate::value::queue::{MessageId, Payload, Reason};
use crate::value::token::FencingToken;

/// How far a worker is from its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    Working,
    /// Takes no more messages; handlers finish.
    Draining,
    /// Handlers are dropped; their messages are returned.
    Aborting,
}

/// One message for a handler. The worker settles it, extends its lease, and drops the handler's future when the lease
/// (or the lock) is lost.
pub struct Job<T> {
    /// What the message says.
    pub value: T,
    /// By what the message is known.
    pub id: MessageId,
    /// Which delivery this is: 1 for the first.
    pub attempt: u32,
    /// How many deliveries there may be.
    pub max_attempts: u32,
    /// Why it was delivered.
    pub cause: Cause,
    /// What the last failure of the message said about why, if one did. A crash says nothing; the `cause` tells of it.
    pub last_failure: Option<Reason>,
    /// The order of this delivery among all deliveries of the queue.
    pub fence: FencingToken,
    /// The fence of the lock that is held for this message, if one is.
    pub lock_fence: Option<FencingToken>,
    /// The time of this occurrence of a [recurring](crate::queue::Recurring) message, by its schedule; `None` for others.
    pub occurrence: Option<SystemTime>,
    /// How long after its due time the message was handed out.
    pub late: Duration,
    /// The bytes of the message.
    pub payload: Payload,
    stage: watch::Receiver<Stage>,
}

impl<T: 'static> Job<T> {
    pub(super) fn new(
        value: T,
        delivery: &Delivery<T>,
        lock_fence: Option<FencingToken>,
        stage: watch::Receiver<Stage>,
    ) -> Self {
        Self {
            value,
            id: delivery.id().clone(),
            attempt: delivery.attempt(),
            max_attempts: delivery.max_attempts(),
            cause: delivery.cause(),
            last_failure: delivery.last_failure().cloned(),
            fence: delivery.fence(),
            lock_fence,
            occurrence: delivery.occurrence(),
            late: delivery.late(),
            payload: delivery.payload().clone(),
            stage,
        }
    }
}

impl<T> Job<T> {
    /// Whether the worker takes no more messages, because it was told to stop or stops by itself. A handler that sees it
    /// should come to an end soon; one that has not when the grace of [`Worker::shutdown`](crate::queue::worker::Worker::shutdown) is over
    /// is dropped, and its message returned.
    #[must_use]
    pub fn is_shutting_down(&self) -> bool {
        *self.stage.borrow() != Stage::Working
    }

    /// Resolves when [`is_shutting_down`](Self::is_shutting_down) becomes true.
    ///
    /// # Cancel safety
    ///
    /// Safe.
    pub async fn shutting_down(&self) {
        // The sender lives for as long as the handlers of the worker do.
        let _ = self.stage.clone().wait_for(|stage| *stage != Stage::Working).await;
    }
}

impl<T> fmt::Debug for Job<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job")
            .field("id", &self.id)
            .field("attempt", &self.attempt)
            .field("fence", &self.fence)
            .finish_non_exhaustive()
    }
}

// How a handler says what became of its message.

/// What became of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The work is done: the message is removed.
    Done,
    /// The work failed: the message is tried again, when the worker's [`RetryPolicy`](crate::queue::worker::RetryPolicy) says.
    Retry(Option<Reason>),
    /// The work failed: the message is tried again after this span.
    RetryAfter(Duration, Option<Reason>),
    /// The work is not to be done now: the message is due again after this span, and the attempt is not counted. Nobody
    /// counts how often.
    Later(Duration),
    /// The work will never succeed: the message moves to the dead letters. Of a [recurring](crate::queue::Recurring) message this
    /// occurrence is over.
    Dead(Option<Reason>),
    /// The work is done, and the message [recurs](crate::queue::Recurring) no more: it is removed.
    End,
}

/// What a handler may return: an [`Outcome`], nothing (done), or a result, whose error is a reason to try again.
pub trait IntoOutcome {
    /// The outcome that this stands for.
    fn into_outcome(self) -> Outcome;
}

impl IntoOutcome for Outcome {
    fn into_outcome(self) -> Outcome {
        self
    }
}

impl IntoOutcome for () {
    fn into_outcome(self) -> Outcome {
        Outcome::Done
    }
}

impl<T: IntoOutcome, E: Display> IntoOutcome for Result<T, E> {
    /// The error's text, as much as fits, becomes the reason that is kept with the message.
    fn into_outcome(self) -> Outcome {
        match self {
            Ok(value) => value.into_outcome(),
            Err(error) => Outcome::Retry(Some(Reason::beginning_of(&error.to_string()))),
        }
    }
}

// What a worker tells while it works.

/// Something that happened in a worker, for metrics and alarms: see
/// [`WorkerBuilder::on_event`](crate::queue::worker::WorkerBuilder::on_event).
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
        /// How an occurrence of a [recurring](crate::queue::Recurring) message ended with it; `None` for other messages, and for an
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
    /// The handler took longer than [`handler_timeout`](crate::queue::worker::WorkerBuilder::handler_timeout), and was dropped: a failed
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

// What a worker counts, and who sees what happens in it.

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

impl WorkerStats {
    /// How many messages came to each end, in the order in which the event `tenure.worker_stopped` tells them.
    pub(super) fn by_outcome(&self) -> [u64; 9] {
        let Self { handled, retried, dead, put_off, parked, returned, stale, unconfirmed, failed, .. } = *self;
        [handled, retried, dead, put_off, parked, returned, stale, unconfirmed, failed]
    }

    pub(super) fn note(&mut self, event: &WorkerEvent) {
        match event {
            WorkerEvent::Began { .. } | WorkerEvent::Stopped { .. } => {}
            WorkerEvent::Ended { ending, settled, occurrence, .. } => {
                *self.message(ending, *occurrence, settled) += 1;
                self.handling(ending);
                if let Err(error) = settled {
                    self.last_error = Some(error.clone());
                }
            }
            WorkerEvent::ReceiveFailed { error } => {
                self.receive_failed += 1;
                self.last_error = Some(error.clone());
            }
        }
    }

    /// The number in which a message counts.
    fn message(&mut self, ending: &Ending, occurrence: Option<OccurrenceEnd>, settled: &Result<Settled>) -> &mut u64 {
        match (settled, ending) {
            (Err(error), _) if error.is_transient() => &mut self.unconfirmed,
            (Err(_), _) => &mut self.failed,
            (Ok(Settled::Stale), _) => &mut self.stale,
            (Ok(Settled::Dead | Settled::Postponed), _) => &mut self.dead,
            (Ok(Settled::Done), _) if occurrence == Some(OccurrenceEnd::Failed) => &mut self.occurrences_failed,
            (Ok(Settled::Done), Ending::Said(Outcome::Done | Outcome::End)) => &mut self.handled,
            (Ok(Settled::Done), Ending::Said(Outcome::Later(_))) => &mut self.put_off,
            (Ok(Settled::Done), Ending::LockTaken(_)) => &mut self.parked,
            (Ok(Settled::Done), Ending::Stopped) => &mut self.returned,
            (Ok(Settled::Done), _) => &mut self.retried,
        }
    }

    fn handling(&mut self, ending: &Ending) {
        match ending {
            Ending::Panicked(_) => self.panicked += 1,
            Ending::TimedOut => self.timed_out += 1,
            Ending::LeaseLost | Ending::LockLost => self.lost += 1,
            Ending::Undecodable(_) => self.undecodable += 1,
            Ending::Said(_) | Ending::LockTaken(_) | Ending::LockFailed(_) | Ending::Stopped => {}
        }
    }
}

/// What a user wants to be told.
pub(super) type Hook = Arc<dyn Fn(&WorkerEvent) + Send + Sync>;

#[derive(Default)]
pub(super) struct Observer {
    stats: Mutex<WorkerStats>,
    hook: Option<Hook>,
}

impl Observer {
    pub(super) fn new(hook: Option<Hook>) -> Self {
        Self { stats: Mutex::default(), hook }
    }

    /// Counts an event, and tells the user. A hook that panics is of no account: the panic was printed.
    pub(super) fn tell(&self, event: &WorkerEvent) {
        self.locked().note(event);
        if let Some(hook) = &self.hook {
            let _ = std::panic::catch_unwind(AssertUnwindSafe(|| hook(event)));
        }
    }

    pub(super) fn stats(&self) -> WorkerStats {
        self.locked().clone()
    }

    fn locked(&self) -> MutexGuard<'_, WorkerStats> {
        self.stats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer").field("stats", &self.stats()).finish_non_exhaustive()
    }
}
