//! One message in the hands of a worker.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::time::Instant;

use super::Job;
use super::builder::Settings;
use super::event::{Ending, WorkerEvent};
use super::locking::{Needed, lock_for};
use super::outcome::{IntoOutcome, Outcome};
use super::run::{Crew, Stage};
use crate::alarm;
use crate::driver::Settlement;
use crate::lock::LockGuard;
use crate::panicked::text;
use crate::queue::Delivery;
use crate::telemetry;
use crate::value::limits::Delay;
use crate::value::queue_name::Reason;

/// A handler without its type.
pub(super) type Handler<T> = Arc<dyn Fn(Job<T>) -> Pin<Box<dyn Future<Output = Outcome> + Send>> + Send + Sync>;

pub(super) fn boxed<T, H, F>(handler: H) -> Handler<T>
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
pub(super) async fn handle<T: Send + Sync + 'static>(crew: Arc<Crew<T>>, mut delivery: Delivery<T>) {
    let (id, attempt, begun) = (delivery.id().clone(), delivery.attempt(), Instant::now());
    crew.observer.tell(&WorkerEvent::Began { id: id.clone(), attempt, late: delivery.late() });
    let mut guard = None;
    // Also what is dropped in there may panic.
    let handled = AssertUnwindSafe(attempted(&crew, &mut delivery, &mut guard)).catch_unwind().await;
    let panicked = |panic: &_| Ending::Panicked(because(&format!("the handler panicked: {}", text(panic))));
    let ending = handled.unwrap_or_else(|panic| panicked(&*panic));
    let took = begun.elapsed();
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
            alarm::sleep_until(since + soonest).await;
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
        None => std::future::pending().await,
    }
}

/// Resolves when the time of a handler is up, if it has a limit.
async fn passed(limit: Option<Duration>) {
    match limit {
        Some(limit) => tokio::time::sleep(limit).await,
        None => std::future::pending().await,
    }
}

/// How a delivery is settled whose handling ended like this.
fn settlement<T: 'static>(settings: &Settings<T>, delivery: &Delivery<T>, ending: &Ending) -> Settlement {
    let delay = |span: Duration| Delay::new(span.min(settings.queue.pump.caps.delay)).unwrap_or(Delay::ZERO);
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
