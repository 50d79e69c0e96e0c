//! Workers: ask for as many messages as they have room for, handle them, extend their leases, settle them, and stop in good order.

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
use crate::queue::Delivery;
use crate::queue::handle::AFTER_FAILURE;
use crate::runtime::text;
use crate::value::error::{Error, ErrorKind, LockName, Result};
use crate::value::queue::{Delay, Reason};
use crate::{runtime, telemetry};

pub use builder::{Jitter, RetryPolicy, WorkerBuilder};
pub use job::{Ending, IntoOutcome, Job, Outcome, WorkerEvent, WorkerStats};

use builder::Settings;
use job::{Observer, Stage};

impl<T: 'static> WorkerBuilder<T> {
    /// Checks the settings and starts to work, on the runtime that is current here.
    ///
    /// The handler gets a [`Job`] and returns what became of it. It runs as a task of its own; a panic in it counts as
    /// a failed attempt. A message that cannot be decoded moves to the dead letters
    /// without being handled; of a [recurring](crate::queue::Recurring) message the occurrence has failed.
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

/// A worker at work. Dropping it is like an [`abort`](Worker::abort): handlers are dropped, and their messages are
/// returned to the queue in the background.
///
/// It waits outages out, and stops by itself when its client is closed, or when the backend refuses it for good: see
/// [`join`](Worker::join).
#[derive(Debug)]
#[must_use = "dropping the worker stops it"]
pub struct Worker {
    stage: watch::Sender<Stage>,
    observer: Arc<Observer>,
    task: Option<JoinHandle<Result<()>>>,
    /// How it ended, once that is known.
    over: Result<()>,
}

/// What all tasks of one worker have in common.
struct Crew<T> {
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
    let crew = Arc::new(Crew { settings, handler, observer: Arc::clone(&observer), stage: stage.clone() });
    let task = runtime.spawn(async move {
        telemetry::worker_started(crew.settings.queue.name(), crew.settings.concurrency);
        let over = tokio::select! {
            biased;
            over = work(&crew) => over,
            never = look(&crew.settings) => match never {},
        };
        telemetry::worker_stopped(crew.settings.queue.name(), crew.observer.stats().by_outcome());
        crew.observer.tell(&WorkerEvent::Stopped { error: over.as_ref().err().cloned() });
        over
    });
    Ok(Worker { stage, observer, task: Some(task), over: Ok(()) })
}

/// Asks how full the queue is, for metrics, as often as the worker was told to.
async fn look<T: 'static>(settings: &Settings<T>) -> Infallible {
    let Some(every) = settings.depth_every.get().copied().flatten() else { return pending().await };
    loop {
        tokio::time::sleep(every).await;
        let _ = settings.queue.stats().await; // the gauge keeps what it was told last
    }
}

impl<T> Crew<T> {
    /// Resolves when the worker is at this stage, or beyond.
    async fn reaches(&self, stage: Stage) {
        // The sender lives in `self`, so waiting cannot fail.
        let _ = self.stage.subscribe().wait_for(|now| *now >= stage).await;
    }
}

/// Works until it is stopped or refused, and then until the last handler has ended.
async fn work<T: Send + Sync + 'static>(crew: &Arc<Crew<T>>) -> Result<()> {
    let mut running = JoinSet::new();
    let over = tokio::select! {
        biased;
        () = crew.reaches(Stage::Draining) => Ok(()),
        over = take(crew, &mut running) => over,
    };
    // Also when it stops by itself: handlers want to know.
    crew.stage.send_if_modified(|stage| {
        let before = std::mem::replace(stage, Stage::Draining.max(*stage));
        before != *stage
    });
    while running.join_next().await.is_some() {}
    over
}

/// Takes as many messages as there is room for, again and again, until the queue refuses.
async fn take<T: Send + Sync + 'static>(crew: &Arc<Crew<T>>, running: &mut JoinSet<()>) -> Result<()> {
    let Settings { queue, concurrency, .. } = &crew.settings;
    loop {
        while running.len() >= *concurrency {
            running.join_next().await;
        }
        match queue.receive_many((concurrency - running.len()).min(queue.fetcher.remote.caps.batch)).await {
            Ok(deliveries) => deliveries.into_iter().for_each(|delivery| {
                running.spawn(handle(Arc::clone(crew), delivery));
            }),
            Err(error) if error.kind() == ErrorKind::Closed => return Ok(()),
            Err(error) => {
                crew.observer.tell(&WorkerEvent::ReceiveFailed { error: error.clone() });
                if !error.is_transient() {
                    telemetry::worker_refused(queue.name(), &error);
                    return Err(error);
                }
                tokio::time::sleep(AFTER_FAILURE).await;
            }
        }
        while running.try_join_next().is_some() {}
    }
}

impl Worker {
    /// What it has done so far.
    #[must_use]
    pub fn stats(&self) -> WorkerStats {
        self.observer.stats()
    }

    /// Stops in good order: takes no more messages, lets handlers finish for at most `grace`, then drops those that
    /// have not and returns their messages without counting the attempt. Tells what was done in all.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the worker: the handlers are dropped, and their messages returned.
    pub async fn shutdown(mut self, grace: Duration) -> WorkerStats {
        self.stage.send_replace(Stage::Draining);
        if let Some(mut task) = self.task.take()
            && tokio::time::timeout(grace, &mut task).await.is_err()
        {
            self.stage.send_replace(Stage::Aborting);
            let _ = task.await;
        }
        self.stats()
    }

    /// Stops now: handlers are dropped, and their messages returned without counting the attempt.
    ///
    /// # Cancel safety
    ///
    /// The stop goes on; dropping the future only ends the waiting.
    pub async fn abort(self) -> WorkerStats {
        self.shutdown(Duration::ZERO).await
    }

    /// Waits until the worker stops by itself, and its handlers have ended. May be called again.
    ///
    /// # Errors
    ///
    /// The error of the request for messages that made it stop, one that is not [transient](Error::is_transient): no
    /// message can be had until a person has changed something. [`ErrorKind::Indeterminate`] when the runtime that it
    /// was started on has ended. It is no error that the client was closed.
    ///
    /// # Cancel safety
    ///
    /// Safe: the worker goes on.
    pub async fn join(&mut self) -> Result<()> {
        if let Some(task) = &mut self.task {
            self.over = task.await.unwrap_or_else(|failed| Err(fallen(failed)));
            self.task = None;
        }
        self.over.clone()
    }
}

/// Why the task of a worker did not end by itself.
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
async fn handle<T: Send + Sync + 'static>(crew: Arc<Crew<T>>, mut delivery: Delivery<T>) {
    let (id, attempt, begun) = (delivery.id().clone(), delivery.attempt(), Instant::now());
    crew.observer.tell(&WorkerEvent::Began { id: id.clone(), attempt, late: delivery.late() });
    let mut guard = None;
    // Also what is dropped in there may panic.
    let handled = AssertUnwindSafe(attempted(&crew, &mut delivery, &mut guard)).catch_unwind().await;
    let panicked = |panic: &_| Ending::Panicked(because(&format!("the handler panicked: {}", text(panic))));
    let ending = handled.unwrap_or_else(|panic| panicked(&*panic));
    let took = begun.elapsed();
    crew.settings.queue.fetcher.remote.meters.processed(took);
    if ending == Ending::Said(Outcome::End) {
        delivery.claim_mut().end_recurrence();
    }
    let how = settlement(&crew.settings, &delivery, &ending);
    let occurrence = delivery.claim().occurrence_end(&how);
    let settled = delivery.settle(how).await;
    crew.observer.tell(&WorkerEvent::Ended { id, attempt, ending, took, occurrence, settled });
    if let Some(guard) = guard {
        let _ = guard.release().await; // what fails here goes on in the background
    }
}

/// Decodes the message, takes its lock and lets the handler work, as long as lease, lock and worker last.
async fn attempted<T: Send + Sync + 'static>(
    crew: &Crew<T>,
    delivery: &mut Delivery<T>,
    guard: &mut Option<LockGuard>,
) -> Ending {
    let value = match delivery.take_value() {
        Ok(value) => value,
        Err(error) => return Ending::Undecodable(because(&format!("undecodable: {error}"))),
    };
    match lock_for(&crew.settings, delivery, &value).await {
        Needed::None => {}
        Needed::Held(held) => *guard = Some(held),
        Needed::Busy(lock) => return Ending::LockTaken(lock),
        Needed::Refused(reason) => return Ending::LockFailed(reason),
    }
    let job = Job::new(value, delivery, guard.as_ref().map(LockGuard::fence), crew.stage.subscribe());
    let work = async { (crew.handler)(job).await };
    tokio::select! {
        biased;
        () = crew.reaches(Stage::Aborting) => Ending::Stopped,
        () = keep(&crew.settings, delivery) => Ending::LeaseLost,
        () = lock_lost(guard.as_ref()) => Ending::LockLost,
        // Timers are late after a suspend, or when something blocked the runtime. The clock is not.
        () = at_each_poll(|| delivery.is_lost()) => Ending::LeaseLost,
        () = at_each_poll(|| guard.as_ref().is_some_and(|guard| !guard.is_held())) => Ending::LockLost,
        said = work => Ending::Said(said),
        () = passed(crew.settings.handler_timeout) => Ending::TimedOut,
    }
}

/// Extends the lease at a third of it, or before that along with others, until it is lost.
async fn keep<T: 'static>(settings: &Settings<T>, delivery: &Delivery<T>) {
    let third = settings.lease.get() / 3;
    let extending = async {
        let (mut soonest, mut latest) = (third / 2, third);
        loop {
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

/// Looks whenever it is polled, and wakes nobody.
async fn at_each_poll(ended: impl Fn() -> bool) {
    poll_fn(|_| if ended() { Poll::Ready(()) } else { Poll::Pending }).await;
}

/// Resolves when the time of a handler is up, if it has a limit.
async fn passed(limit: Option<Duration>) {
    match limit {
        Some(limit) => tokio::time::sleep(limit).await,
        None => pending().await,
    }
}

/// How a delivery is settled whose handling ended like this.
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
        Ending::Undecodable(reason) => Settlement::Dead { reason: Some(reason.clone()) },
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

/// The lock of a message that is to be handled.
enum Needed {
    /// It needs none.
    None,
    Held(LockGuard),
    /// Somebody else holds it, or the backend does not answer.
    Busy(LockName),
    /// It cannot be had, and why. That is a failed attempt.
    Refused(Reason),
}

/// Takes the lock of a message, if it needs one. Does not wait for it.
async fn lock_for<T: 'static>(settings: &Settings<T>, delivery: &Delivery<T>, value: &T) -> Needed {
    let name = match name_for(settings, delivery, value) {
        Ok(Some(name)) => name,
        Ok(None) => return Needed::None,
        Err(reason) => return Needed::Refused(reason),
    };
    let lock = Lock::new(Arc::clone(&settings.queue.fetcher.local_queues), Ok(name.clone())).ttl(settings.lock_ttl);
    match lock.try_acquire_for(delivery).await {
        Ok(Some(guard)) => Needed::Held(guard),
        Ok(None) => Needed::Busy(name),
        Err(error) if error.is_transient() => Needed::Busy(name), // an outage is waited out like a holder
        Err(error) => Needed::Refused(Reason::beginning_of(&error.to_string())),
    }
}

/// The lock that the message was pushed with, or else the one that the worker was told to hold for its value.
fn name_for<T: 'static>(
    settings: &Settings<T>,
    delivery: &Delivery<T>,
    value: &T,
) -> std::result::Result<Option<LockName>, Reason> {
    if let Some(own) = delivery.lock() {
        return Ok(Some(own.clone()));
    }
    let Some(lock_of) = &settings.lock_of else { return Ok(None) };
    let asked = std::panic::catch_unwind(AssertUnwindSafe(|| lock_of(value)));
    let named = asked.map_err(|panic| Reason::beginning_of(&format!("lock_by panicked: {}", text(&*panic))))?;
    named.transpose().map_err(|error| Reason::beginning_of(&format!("lock_by: {error}")))
}
