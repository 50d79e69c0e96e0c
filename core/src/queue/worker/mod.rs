//! Workers: they request as many messages as they have room for, handle them, extend their leases, settle them, and
//! shut down gracefully.

mod builder;
mod job;

use std::convert::Infallible;
use std::future::{Future, pending, poll_fn};
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinHandle, JoinSet};
use tokio::time::Instant;

use crate::driver::Settlement;
use crate::lock::{Lock, LockGuard};
use crate::queue::fetcher::InFlight;
use crate::queue::handle::AFTER_FAILURE;
use crate::queue::{Delivery, QueueName};
use crate::runtime::text;
use crate::value::error::{Error, ErrorKind, LockName, Result};
use crate::value::queue::{Delay, Reason};
use crate::{runtime, telemetry};

pub use builder::{Jitter, RetryPolicy, Undecodable, WorkerBuilder};
pub use job::{Ending, IntoOutcome, Job, Outcome, WorkerEvent, WorkerStats};

use builder::Settings;
use job::{Observer, Stage};

impl<T: 'static> WorkerBuilder<T> {
    /// Checks the settings and starts the worker, on the current runtime.
    ///
    /// The handler receives a [`Job`] and returns the outcome of its message. It runs as its own task; a panic in it
    /// counts as a failed attempt. So does a message that cannot be decoded, which is not handled: see
    /// [`undecodable`](WorkerBuilder::undecodable).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] when a setting is outside its limits or there is no runtime;
    /// [`ErrorKind::Closed`] when the client was closed.
    pub fn start<H, F>(self, handler: H) -> Result<Worker>
    where
        T: Send + Sync + 'static,
        H: Fn(Job<T>) -> F + Send + Sync + 'static,
        F: Future<Output: IntoOutcome> + Send + 'static,
    {
        start(self.checked()?, boxed(handler))
    }
}

/// The time limit for the end of dropped handlers and their settlements.
const TO_STOP: Duration = Duration::from_secs(1);

/// A running worker. Dropping it is like an [`abort`](Worker::abort): handlers are dropped, and their messages are
/// returned to the queue in the background.
///
/// It waits through outages, and stops by itself when its client is closed, or when the backend refuses it for good:
/// see [`join`](Worker::join).
///
/// ```
/// # use tenure_core as tenure;
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> tenure::Result<()> {
/// # let client = tenure::Client::new(tenure_memory::MemoryDriver::new());
/// # let mails = client.queue_with("mails", tenure::queue::Text)?;
/// # mails.push(&"welcome".to_owned()).await?;
/// use std::time::Duration;
/// use tenure::queue::Job;
///
/// let worker = mails.worker().concurrency(8).start(async |job: Job<String>| {
///     println!("{}, attempt {}", job.value, job.attempt);
/// })?;
/// # tokio::time::sleep(Duration::from_millis(100)).await;
///
/// // When the program is asked to stop: lets handlers finish.
/// let stats = worker.shutdown(Duration::from_secs(10)).await;
/// assert_eq!((stats.handled, stats.returned), (1, 0));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "dropping the worker stops it"]
pub struct Worker {
    queue: QueueName,
    stage: watch::Sender<Stage>,
    observer: Arc<Observer>,
    task: Option<JoinHandle<Result<()>>>,
    /// Its result, once it has ended.
    over: Result<()>,
}

/// The shared state of all tasks of one worker.
struct WorkerContext<T> {
    settings: Settings<T>,
    handler: Handler<T>,
    observer: Arc<Observer>,
    stage: watch::Sender<Stage>,
}

fn start<T: Send + Sync + 'static>(settings: Settings<T>, handler: Handler<T>) -> Result<Worker> {
    let Ok(runtime) = tokio::runtime::Handle::try_current() else {
        return Err(Error::new(ErrorKind::InvalidArgument, "a worker must be started inside a tokio runtime"));
    };
    let (stage, observer) = (watch::Sender::new(Stage::Working), Arc::new(Observer::new(settings.hook.clone())));
    let queue = settings.queue.name().clone();
    let context = Arc::new(WorkerContext { settings, handler, observer: Arc::clone(&observer), stage: stage.clone() });
    let task = runtime.spawn(async move {
        telemetry::worker_started(context.settings.queue.name(), context.settings.concurrency);
        let over = tokio::select! {
            biased;
            over = work(&context) => over,
            never = look(&context.settings) => match never {},
        };
        telemetry::worker_stopped(context.settings.queue.name(), context.observer.stats().by_outcome());
        // After `work`, which returns when no handler runs any more: no event follows this one.
        context.observer.emit(&WorkerEvent::Stopped { error: over.as_ref().err().cloned() });
        over
    });
    Ok(Worker { queue, stage, observer, task: Some(task), over: Ok(()) })
}

/// Requests the queue's depth, for metrics, at the configured interval.
async fn look<T: 'static>(settings: &Settings<T>) -> Infallible {
    let Some(every) = settings.depth_every.get().copied().flatten() else { return pending().await };
    loop {
        tokio::time::sleep(every).await;
        let _ = settings.queue.admin().stats().await; // on an error, the gauge keeps its value
    }
}

impl<T> WorkerContext<T> {
    /// Resolves when the worker is at this stage, or a later one.
    async fn reaches(&self, stage: Stage) {
        // The sender lives in `self`, so waiting cannot fail.
        let _ = self.stage.subscribe().wait_for(|now| *now >= stage).await;
    }
}

/// Works until it is stopped or refused, and then until the last handler has ended.
async fn work<T: Send + Sync + 'static>(context: &Arc<WorkerContext<T>>) -> Result<()> {
    let mut running = JoinSet::new();
    let over = tokio::select! {
        biased;
        () = context.reaches(Stage::Draining) => Ok(()),
        over = take(context, &mut running) => over,
    };
    // Also when it stops by itself: handlers want to know.
    context.stage.send_if_modified(|stage| {
        let before = std::mem::replace(stage, Stage::Draining.max(*stage));
        before != *stage
    });
    // No receive follows; messages that the last one still brings are returned. Handlers end by themselves, or at
    // `Aborting`.
    while running.join_next().await.is_some() {}
    over
}

/// Takes as many messages as there is room for, again and again, until the queue refuses.
async fn take<T: Send + Sync + 'static>(context: &Arc<WorkerContext<T>>, running: &mut JoinSet<()>) -> Result<()> {
    let Settings { queue, concurrency, .. } = &context.settings;
    loop {
        // Before the request: a message without a free handler would use up its lease waiting for one.
        while running.len() >= *concurrency {
            running.join_next().await;
        }
        let room = (concurrency - running.len()).min(queue.fetcher.remote.caps.batch);
        let passed_over = |claim: &InFlight, time, how| {
            context.observer.emit(&WorkerEvent::PassedOver { id: claim.raw.id.clone(), time, how });
        };
        match queue.receive_noting(room, passed_over).await {
            Ok(deliveries) => deliveries.into_iter().for_each(|delivery| {
                running.spawn(handle(Arc::clone(context), delivery));
            }),
            Err(error) if error.kind() == ErrorKind::Closed => return Ok(()),
            Err(error) => {
                context.observer.emit(&WorkerEvent::ReceiveFailed { error: error.clone() });
                if !error.is_transient() {
                    telemetry::worker_refused(queue.name(), &error);
                    return Err(error);
                }
                tokio::time::sleep(AFTER_FAILURE).await;
            }
        }
        // Handlers that ended during the receive leave room for more messages in the next one.
        while running.try_join_next().is_some() {}
    }
}

impl Worker {
    /// Returns the worker's counts and its messages in hand.
    #[must_use]
    pub fn stats(&self) -> WorkerStats {
        self.observer.stats()
    }

    /// Shuts down gracefully: takes no more messages, lets handlers finish for at most `grace`, then drops those that
    /// have not and returns their messages without counting the attempt. Returns the counts since the start.
    ///
    /// It returns a second after `grace` at the latest. A handler that blocks its thread is dropped when it yields, and
    /// not before: its message is in [`WorkerStats::running`] then, and its lease, which is not extended meanwhile, may
    /// end. A message whose settlement has no answer yet is there too; the settlement continues in the background, and
    /// [`Client::close`](crate::Client::close) waits for it. A call on a runtime of one thread cannot return while a
    /// handler blocks that thread.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the worker: the handlers are dropped, and their messages returned.
    pub async fn shutdown(mut self, grace: Duration) -> WorkerStats {
        self.stage.send_replace(Stage::Draining);
        if let Some(mut task) = self.task.take()
            && runtime::timeout(grace, &mut task).await.is_none()
        {
            self.stage.send_replace(Stage::Aborting);
            // Bounded: a handler that blocks its thread cannot be dropped, and a settlement may wait for a silent
            // backend.
            let _ = runtime::timeout(TO_STOP, &mut task).await;
        }
        let stats = self.stats();
        for id in &stats.running {
            telemetry::handler_unfinished(&self.queue, id);
        }
        stats
    }

    /// Stops now: handlers are dropped, and their messages returned without counting the attempt. Returns within a
    /// second, as [`shutdown`](Self::shutdown) without grace.
    ///
    /// # Cancel safety
    ///
    /// The stop continues; dropping the future only ends the waiting.
    pub async fn abort(self) -> WorkerStats {
        self.shutdown(Duration::ZERO).await
    }

    /// Waits until the worker stops by itself, and its handlers have ended. May be called again.
    ///
    /// # Errors
    ///
    /// The error of the request for messages that made it stop, one that is not [transient](Error::is_transient): no
    /// message can be received until a person has changed something. [`ErrorKind::Indeterminate`] when the runtime that
    /// it was started on has ended. A closed client is no error.
    ///
    /// # Cancel safety
    ///
    /// Safe: the worker continues.
    pub async fn join(&mut self) -> Result<()> {
        if let Some(task) = &mut self.task {
            self.over = task.await.unwrap_or_else(|failed| Err(fallen(failed)));
            self.task = None;
        }
        self.over.clone()
    }
}

/// Returns the reason why the task of a worker did not end by itself.
fn fallen(failed: JoinError) -> Error {
    match failed.try_into_panic() {
        Ok(panic) => Error::new(ErrorKind::Protocol, format!("the worker panicked: {}", text(&*panic))),
        Err(_) => Error::new(ErrorKind::Indeterminate, "the runtime that carried the worker has ended"),
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stage.send_replace(Stage::Aborting);
    }
}

// One message in the hands of a worker.

/// A handler without its type.
type Handler<T> = Arc<dyn Fn(Job<T>) -> Pin<Box<dyn Future<Output = Outcome> + Send>> + Send + Sync>;

fn boxed<T, H, F>(handler: H) -> Handler<T>
where
    H: Fn(Job<T>) -> F + Send + Sync + 'static,
    F: Future<Output: IntoOutcome> + Send + 'static,
{
    Arc::new(move |job| {
        let work = handler(job);
        Box::pin(async move { work.await.into_outcome() })
    })
}

/// Handles one message, from the delivery to its settlement.
async fn handle<T: Send + Sync + 'static>(context: Arc<WorkerContext<T>>, mut delivery: Delivery<T>) {
    let (id, attempt, begun) = (delivery.id().clone(), delivery.attempt(), Instant::now());
    context.observer.emit(&WorkerEvent::Began { id: id.clone(), attempt, late: delivery.late() });
    let mut guard = None;
    // Also what is dropped in there may panic.
    let handled = AssertUnwindSafe(attempted(&context, &mut delivery, &mut guard)).catch_unwind().await;
    let panicked = |panic: &_| Ending::Panicked(because(&format!("the handler panicked: {}", text(panic))));
    // Checked before the settlement, which the backend would refuse: the message would then wait for its lease.
    let ending = possible(&context.settings, handled.unwrap_or_else(|panic| panicked(&*panic)));
    let took = begun.elapsed();
    context.settings.queue.fetcher.remote.meters.processed(took);
    if ending == Ending::Said(Outcome::End) {
        delivery.claim_mut().end_recurrence();
    }
    let how = settlement(&context.settings, &delivery, &ending);
    let occurrence = delivery.claim().occurrence_end(&how);
    // Before the lock is released: the next message of the lock must not begin while this one could be delivered again.
    let settled = delivery.settle(how).await;
    context.observer.emit(&WorkerEvent::Ended { id, attempt, ending, took, occurrence, settled });
    if let Some(guard) = guard {
        let _ = guard.release().await; // what fails here goes on in the background
    }
}

/// Decodes the message, takes its lock and lets the handler work, as long as lease, lock and worker last.
async fn attempted<T: Send + Sync + 'static>(
    context: &WorkerContext<T>,
    delivery: &mut Delivery<T>,
    guard: &mut Option<LockGuard>,
) -> Ending {
    let value = match delivery.take_value() {
        Ok(value) => value,
        Err(error) => return Ending::Undecodable(because(&format!("undecodable: {error}"))),
    };
    match lock_for(&context.settings, delivery, &value).await {
        Needed::None => {}
        Needed::Held(held) => *guard = Some(held),
        Needed::Busy(lock) => return Ending::LockTaken(lock),
        Needed::Refused(reason) => return Ending::LockFailed(reason),
    }
    let job = Job::new(value, delivery, guard.as_ref().map(LockGuard::fence), context.stage.subscribe());
    let work = async { (context.handler)(job).await };
    // The order matters: every reason to stop comes before `work`, which must not take a step after a loss. The time
    // limit comes after it, so that work which is done in time counts as done.
    tokio::select! {
        biased;
        () = context.reaches(Stage::Aborting) => Ending::Stopped,
        () = keep(&context.settings, delivery) => Ending::LeaseLost,
        () = lock_lost(guard.as_ref()) => Ending::LockLost,
        // Timers are late after a suspend, or when something blocked the runtime. The clock is not.
        () = at_each_poll(|| delivery.is_lost()) => Ending::LeaseLost,
        () = at_each_poll(|| guard.as_ref().is_some_and(|guard| !guard.is_held())) => Ending::LockLost,
        said = work => Ending::Said(said),
        () = passed(context.settings.handler_timeout) => Ending::TimedOut,
    }
}

/// Extends the lease at a third of it, or before that along with others, until it is lost.
async fn keep<T: 'static>(settings: &Settings<T>, delivery: &Delivery<T>) {
    let third = settings.lease.get() / 3;
    let extending = async {
        let (mut soonest, mut latest) = (third / 2, third);
        loop {
            // A span and not a point in time: extensions of many messages that fall into it leave in one request.
            let since = Instant::now();
            runtime::sleep_until(since + soonest).await;
            (soonest, latest) = match delivery.claim().extend(settings.lease, since + latest).await {
                Ok(()) => (third / 2, third),
                Err(_) => {
                    let pause = (third / 4).max(Duration::from_millis(1)); // the deadline decides, not a failure
                    (pause, pause)
                }
            };
        }
    };
    tokio::select! {
        biased;
        () = delivery.lost() => {}
        () = extending => {}
    }
}

async fn lock_lost(guard: Option<&LockGuard>) {
    match guard {
        Some(guard) => {
            guard.lost().await;
        }
        None => pending().await,
    }
}

/// Checks whenever it is polled, and wakes no task.
async fn at_each_poll(ended: impl Fn() -> bool) {
    poll_fn(|_| if ended() { Poll::Ready(()) } else { Poll::Pending }).await;
}

/// Resolves at the time limit of a handler, if it has one.
async fn passed(limit: Option<Duration>) {
    match limit {
        Some(limit) => tokio::time::sleep(limit).await,
        None => pending().await,
    }
}

/// Returns the ending, or a failure if the handler requested a delay that the backend does not keep.
fn possible<T: 'static>(settings: &Settings<T>, ending: Ending) -> Ending {
    let Ending::Said(Outcome::RetryAfter(span, _) | Outcome::Later(span)) = &ending else { return ending };
    let kept = Delay::new(*span).and_then(|delay| settings.queue.fetcher.remote.caps.check_delay(delay));
    match kept {
        Ok(()) => ending,
        Err(error) => {
            Ending::Said(Outcome::Retry(Some(because(&format!("the delay of the handler's outcome: {error}")))))
        }
    }
}

/// Returns the settlement of a delivery whose handling ended like this.
fn settlement<T: 'static>(settings: &Settings<T>, delivery: &Delivery<T>, ending: &Ending) -> Settlement {
    let delay = |span: Duration| Delay::new(span.min(settings.queue.fetcher.remote.caps.delay)).unwrap_or(Delay::ZERO);
    let retry = |after, reason| Settlement::Retry { after: delay(after), reason };
    let failed = |reason| retry(settings.retry.random_wait(delivery.attempt()), reason);
    match ending {
        Ending::Said(Outcome::Done | Outcome::End) => Settlement::Ack,
        Ending::Said(Outcome::Retry(reason)) => failed(reason.clone()),
        Ending::Said(Outcome::RetryAfter(after, reason)) => retry(*after, reason.clone()),
        Ending::Said(Outcome::Later(after)) => Settlement::Return { after: delay(*after) },
        Ending::Said(Outcome::Dead(reason)) => Settlement::Dead { reason: reason.clone() },
        Ending::Undecodable(reason) => match settings.undecodable {
            Undecodable::Retry(policy) => retry(policy.random_wait(delivery.attempt()), Some(reason.clone())),
            Undecodable::Dead => Settlement::Dead { reason: Some(reason.clone()) },
        },
        Ending::Panicked(reason) | Ending::LockFailed(reason) => failed(Some(reason.clone())),
        Ending::TimedOut => {
            let limit = settings.handler_timeout.unwrap_or_default();
            failed(Some(because(&format!("the handler took longer than {limit:?}"))))
        }
        Ending::LockLost => failed(Some(because("the lock was lost"))),
        Ending::LeaseLost => {
            telemetry::delivery_lost(settings.queue.name(), delivery.id(), delivery.attempt());
            retry(Duration::ZERO, Some(because("the lease was lost")))
        }
        Ending::LockTaken(lock) => Settlement::Park { lock: lock.clone(), at_most: delay(settings.back_off) },
        Ending::Stopped => Settlement::Return { after: Delay::ZERO },
    }
}

fn because(text: &str) -> Reason {
    Reason::beginning_of(text)
}

// The lock of a message, as a worker takes it.

/// The lock of a message to be handled.
enum Needed {
    /// It needs none.
    None,
    Held(LockGuard),
    /// Another client holds it, or the backend does not answer.
    Busy(LockName),
    /// It cannot be taken, with the reason. A failed attempt.
    Refused(Reason),
}

/// Takes the lock of a message, if it needs one. Does not wait for it.
async fn lock_for<T: 'static>(settings: &Settings<T>, delivery: &Delivery<T>, value: &T) -> Needed {
    let name = match name_for(settings, delivery, value) {
        Ok(Some(name)) => name,
        Ok(None) => return Needed::None,
        Err(reason) => return Needed::Refused(reason),
    };
    // A try, since waiting would keep a place of the worker and the lease of the message; a busy one is parked instead.
    let lock = Lock::new(Arc::clone(&settings.queue.fetcher.local_queues), Ok(name.clone())).ttl(settings.lock_ttl);
    match lock.try_acquire_for(delivery).await {
        Ok(Some(guard)) => Needed::Held(guard),
        Ok(None) => Needed::Busy(name),
        Err(error) if error.is_transient() => Needed::Busy(name), // an outage is waited out like a holder
        Err(error) => Needed::Refused(Reason::beginning_of(&error.to_string())),
    }
}

/// Returns the lock that the message was pushed with, or else the one that the worker's function returns for its value.
fn name_for<T: 'static>(
    settings: &Settings<T>,
    delivery: &Delivery<T>,
    value: &T,
) -> std::result::Result<Option<LockName>, Reason> {
    if let Some(own) = delivery.lock() {
        return Ok(Some(own.clone()));
    }
    let Some(lock_of) = &settings.lock_of else { return Ok(None) };
    // The function is the user's: its panic fails this attempt and not the worker.
    let asked = std::panic::catch_unwind(AssertUnwindSafe(|| lock_of(value)));
    let named = asked.map_err(|panic| Reason::beginning_of(&format!("lock_by panicked: {}", text(&*panic))))?;
    named.transpose().map_err(|error| Reason::beginning_of(&format!("lock_by: {error}")))
}
