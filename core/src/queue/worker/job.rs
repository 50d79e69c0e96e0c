//! A handler's input and outcome, and the events and counts of a worker.

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

/// The stage of a worker's shutdown.
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
///
/// ```
/// # use tenure_core as tenure;
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> tenure::Result<()> {
/// # let client = tenure::Client::new(tenure_memory::MemoryDriver::new());
/// # let mails = client.queue_with("mails", tenure::queue::Text)?;
/// # use tenure::queue::MessageId;
/// # async fn send(_: &str, _: &MessageId) -> Result<(), String> { Ok(()) }
/// use std::time::Duration;
/// use tenure::queue::Job;
///
/// mails.push(&"welcome".to_owned()).await?;
/// let worker = mails.worker().start(async |job: Job<String>| {
///     if let Some(reason) = &job.last_failure {
///         println!("attempt {}, after: {reason}", job.attempt);
///     }
///     // The id is the same in each attempt: an idempotency key.
///     send(&job.value, &job.id).await
/// })?;
/// # tokio::time::sleep(Duration::from_millis(100)).await;
/// assert_eq!(worker.shutdown(Duration::from_secs(10)).await.handled, 1);
/// # Ok(())
/// # }
/// ```
pub struct Job<T> {
    /// The message's value.
    pub value: T,
    /// The message's id.
    pub id: MessageId,
    /// The number of this delivery: 1 for the first.
    pub attempt: u32,
    /// The most deliveries of the message.
    pub max_attempts: u32,
    /// The cause of the delivery.
    pub cause: Cause,
    /// The reason of the last failed attempt, if it gave one. After a crash there is none; see `cause`.
    pub last_failure: Option<Reason>,
    /// The order of this delivery among all deliveries of the queue.
    pub fence: FencingToken,
    /// The fence of the lock that is held for this message, if any.
    pub lock_fence: Option<FencingToken>,
    /// The time of this occurrence of a [recurring](crate::queue::Recurring) message, by its schedule; `None` for others.
    pub occurrence: Option<SystemTime>,
    /// The time from its due time to its delivery.
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
    /// Returns true if the worker takes no more messages, because it was stopped or stops by itself. A handler that
    /// sees it should finish soon; one that has not at the end of the grace of
    /// [`Worker::shutdown`](crate::queue::worker::Worker::shutdown) is dropped, and its message returned.
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

/// The outcome of a message's handling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The work is done: the message is removed.
    Done,
    /// The work failed: the message is tried again, as the worker's [`RetryPolicy`](crate::queue::worker::RetryPolicy)
    /// sets.
    Retry(Option<Reason>),
    /// The work failed: the message is tried again after this span. One that is longer than the driver's longest
    /// [delay](crate::queue::QueueCapabilities::delay) is refused: the message is tried again as after
    /// [`Retry`](Self::Retry), with a reason that names the refusal.
    RetryAfter(Duration, Option<Reason>),
    /// The work is postponed: the message is due again after this span, and the attempt is not counted. Postponements
    /// are not counted either. A span that is too long is refused as in [`RetryAfter`](Self::RetryAfter).
    Later(Duration),
    /// The work will never succeed: the message moves to the dead letters. For a [recurring](crate::queue::Recurring)
    /// message this occurrence ends.
    Dead(Option<Reason>),
    /// The work is done, and the message [recurs](crate::queue::Recurring) no more: it is removed.
    End,
}

/// The return types of a handler: an [`Outcome`], nothing (done), or a result, whose error is a reason to try again.
///
/// ```
/// # use tenure_core as tenure;
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> tenure::Result<()> {
/// # let client = tenure::Client::new(tenure_memory::MemoryDriver::new());
/// # let mails = client.queue_with("mails", tenure::queue::Text)?;
/// # use std::time::Duration;
/// # mails.push(&"welcome".to_owned()).await?;
/// # mails.push(&String::new()).await?;
/// # async fn deliver(_: String) -> Result<(), std::io::Error> { Err(std::io::Error::other("no answer")) }
/// use std::io;
/// use tenure::queue::{Job, Outcome};
///
/// async fn send(job: Job<String>) -> Result<Outcome, io::Error> {
///     if job.value.is_empty() {
///         // No attempt can succeed: a dead letter.
///         return Ok(Outcome::Dead(None));
///     }
///     // An error is an `Outcome::Retry`, with its text as the reason.
///     deliver(job.value).await.map(|()| Outcome::Done)
/// }
/// let worker = mails.worker().start(send)?;
/// # tokio::time::sleep(Duration::from_millis(100)).await;
/// let stats = worker.abort().await;
/// assert_eq!((stats.dead, stats.retried), (1, 1));
/// # Ok(())
/// # }
/// ```
pub trait IntoOutcome {
    /// Converts it to an outcome.
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

/// An event of a worker, for metrics and alarms: see
/// [`WorkerBuilder::on_event`](crate::queue::worker::WorkerBuilder::on_event).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum WorkerEvent {
    /// A message was received; its handling begins.
    Began {
        /// The message's id.
        id: MessageId,
        /// The number of this delivery: 1 for the first.
        attempt: u32,
        /// The time from its due time to its delivery.
        late: Duration,
    },
    /// The handling of a message has ended, and its settlement was answered.
    Ended {
        /// The message's id.
        id: MessageId,
        /// The number of this delivery.
        attempt: u32,
        /// The end of the handling.
        ending: Ending,
        /// The duration of the handling, the lock of the message included, the settlement not.
        took: Duration,
        /// The end of an occurrence of a [recurring](crate::queue::Recurring) message; `None` for other messages, and
        /// for an occurrence that continues.
        occurrence: Option<OccurrenceEnd>,
        /// The backend's answer to the settlement.
        settled: Result<Settled>,
    },
    /// An occurrence of a [recurring](crate::queue::Recurring) message was received and is not handled; the next one is scheduled.
    PassedOver {
        /// The message's id.
        id: MessageId,
        /// The time of the occurrence, by its schedule.
        time: SystemTime,
        /// [`Missed`](OccurrenceEnd::Missed); or [`Failed`](OccurrenceEnd::Failed), when crashes had used up its attempts.
        how: OccurrenceEnd,
    },
    /// A request for messages failed. The worker asks again after a pause if the error is
    /// [transient](Error::is_transient), and stops otherwise.
    ReceiveFailed {
        /// The error of the request.
        error: Error,
    },
    /// The worker has stopped, and no handler of it runs any more. The last event of a worker.
    Stopped {
        /// The error that stopped it; `None` when it was stopped by a call, or the client was closed.
        error: Option<Error>,
    },
}

/// The end of the handling of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ending {
    /// The handler returned this.
    Said(Outcome),
    /// The payload could not be decoded; [`undecodable`](crate::queue::worker::WorkerBuilder::undecodable) sets the
    /// consequence.
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
    /// The request for the lock of the message failed: a failed attempt.
    LockFailed(Reason),
    /// The worker stopped first, and the handler was dropped: the message is returned, and the attempt is not counted.
    Stopped,
}

// What a worker counts, and who sees what happens in it.

/// The counts of a worker since its start.
///
/// Every message whose handling has ended counts once in one of the numbers from [`handled`](Self::handled) to
/// [`failed`](Self::failed), by its result. The others count in addition.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct WorkerStats {
    /// Messages that were handled, and are removed, or recur.
    pub handled: u64,
    /// Messages whose handling failed, and that will be tried again.
    pub retried: u64,
    /// Messages that moved to the dead letters, or wait for a place there.
    pub dead: u64,
    /// Occurrences of [recurring](crate::queue::Recurring) messages that failed for good; the next ones are scheduled. Also those
    /// that only crashed, and were received once more with no attempts left.
    pub occurrences_failed: u64,
    /// Occurrences that were not handled because they were received too late, by
    /// [`Missed::Skip`](crate::queue::Missed::Skip). One for any number in a row.
    pub occurrences_missed: u64,
    /// Messages that their handlers postponed: [`Outcome::Later`](crate::queue::Outcome::Later).
    pub put_off: u64,
    /// Messages parked because their lock was taken.
    pub parked: u64,
    /// Messages that were returned because the worker stopped first.
    pub returned: u64,
    /// Messages that another receiver had received by the time of their settlement, which changed nothing.
    pub stale: u64,
    /// Messages whose settlement was not confirmed. It continues in the background until it is, or the lease has ended.
    pub unconfirmed: u64,
    /// Messages whose settlement was refused. They are delivered again after their lease.
    pub failed: u64,
    /// Handlers that panicked.
    pub panicked: u64,
    /// Handlers that were dropped because they took too long.
    pub timed_out: u64,
    /// Handlers that were dropped because the lease or the lock of their message was lost.
    pub lost: u64,
    /// Attempts at messages that could not be decoded.
    pub undecodable: u64,
    /// Requests for messages that failed.
    pub receive_failed: u64,
    /// The last error of a request for messages or of a settlement.
    pub last_error: Option<Error>,
    /// The messages in hand now: their handlers run, or their settlements have no answer yet. Those that are left when
    /// a [`shutdown`](crate::queue::Worker::shutdown) returns have handlers that block their threads, or a backend that
    /// does not answer.
    pub running: Vec<MessageId>,
}

impl WorkerStats {
    /// Returns the number of messages of each result, in the order of the event `tenure.worker_stopped`.
    pub(super) fn by_outcome(&self) -> [u64; 9] {
        let Self { handled, retried, dead, put_off, parked, returned, stale, unconfirmed, failed, .. } = *self;
        [handled, retried, dead, put_off, parked, returned, stale, unconfirmed, failed]
    }

    pub(super) fn note(&mut self, event: &WorkerEvent) {
        match event {
            WorkerEvent::Stopped { .. } => {}
            WorkerEvent::Began { id, .. } => self.running.push(id.clone()),
            WorkerEvent::PassedOver { how: OccurrenceEnd::Missed, .. } => self.occurrences_missed += 1,
            WorkerEvent::PassedOver { .. } => self.occurrences_failed += 1,
            WorkerEvent::Ended { id, ending, settled, occurrence, .. } => {
                if let Some(place) = self.running.iter().position(|running| running == id) {
                    self.running.swap_remove(place);
                }
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

    /// Returns the number in which a message counts.
    fn message(&mut self, ending: &Ending, occurrence: Option<OccurrenceEnd>, settled: &Result<Settled>) -> &mut u64 {
        // The answer first: the ending counts only if the settlement that belongs to it was applied.
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

/// The user's hook for events.
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

    /// Counts an event, and calls the user's hook. A panic of the hook is ignored: it was printed.
    pub(super) fn emit(&self, event: &WorkerEvent) {
        // Counted before the hook, which may read the counts; the lock is free by then.
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
