//! One message in the hands of a worker.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::sync::watch;

use super::Job;
use super::builder::Settings;
use super::locking::{Needed, lock_for};
use super::outcome::{IntoOutcome, Outcome};
use super::run::{Counters, Stage};
use crate::driver::{Settled, Settlement};
use crate::error::Result;
use crate::lock::LockGuard;
use crate::queue::{Delay, Delivery, Reason};
use crate::telemetry;

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

/// How the work on a message ended.
enum End {
    Said(Outcome),
    Panicked,
    LeaseLost,
    LockLost,
    Aborted,
}

/// Handles one message, from the delivery to its settlement.
pub(super) async fn handle<T: Send + Sync + 'static>(
    settings: Arc<Settings<T>>,
    handler: Handler<T>,
    mut delivery: Delivery<T>,
    mut stage: watch::Receiver<Stage>,
    counters: Arc<Counters>,
) {
    let value = match delivery.take_value() {
        Ok(value) => value,
        Err(error) => {
            let reason = Reason::beginning_of(&format!("undecodable: {error}"));
            return counters.note(delivery.bury(Some(reason)).await);
        }
    };
    let guard = match lock_for(&settings, &delivery, &value).await {
        Needed::None => None,
        Needed::Held(guard) => Some(guard),
        Needed::Busy(lock) => {
            counters.parked();
            return counters.note(delivery.park(&lock, settings.back_off).await);
        }
        Needed::Refused(reason) => {
            let said = Outcome::Retry(Some(reason));
            return counters.note(settle(&settings, delivery, End::Said(said)).await);
        }
    };
    let job = Job::new(value, &delivery, guard.as_ref().map(LockGuard::fence));
    let end = {
        let work = AssertUnwindSafe(async move { handler(job).await }).catch_unwind();
        tokio::select! {
            biased;
            () = aborted(&mut stage) => End::Aborted,
            () = keep(&settings, &delivery) => End::LeaseLost,
            () = lock_lost(guard.as_ref()) => End::LockLost,
            said = work => said.map_or(End::Panicked, End::Said),
        }
    };
    counters.note(settle(&settings, delivery, end).await);
    if let Some(guard) = guard {
        let _ = guard.release().await; // what fails here goes on in the background
    }
}

/// Extends the lease at a third of it, until it is lost.
async fn keep<T: 'static>(settings: &Settings<T>, delivery: &Delivery<T>) {
    let third = settings.lease.get() / 3;
    let extending = async {
        let mut pause = third;
        loop {
            tokio::time::sleep(pause).await;
            pause = match delivery.extend(settings.lease.get()).await {
                Ok(()) => third,
                Err(_) => (third / 4).max(Duration::from_millis(1)), // the deadline decides, not a failure
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

async fn aborted(stage: &mut watch::Receiver<Stage>) {
    if stage.wait_for(|stage| *stage == Stage::Aborting).await.is_err() {
        std::future::pending::<()>().await; // nobody is left to abort the work
    }
}

async fn settle<T: 'static>(settings: &Settings<T>, delivery: Delivery<T>, end: End) -> Result<Settled> {
    let wait = settings.retry.random_wait(delivery.attempt());
    let retry = |after: Duration, reason| Settlement::Retry {
        after: Delay::new(after.min(settings.queue.pump.caps.delay)).unwrap_or(Delay::ZERO),
        reason,
    };
    let because = |text| Some(Reason::beginning_of(text));
    let how = match end {
        End::Said(Outcome::Done) => Settlement::Ack,
        End::Said(Outcome::Retry(reason)) => retry(wait, reason),
        End::Said(Outcome::RetryAfter(after, reason)) => retry(after, reason),
        End::Said(Outcome::Dead(reason)) => Settlement::Dead { reason },
        End::Panicked => retry(wait, because("the handler panicked")),
        End::LockLost => retry(wait, because("the lock was lost")),
        End::LeaseLost => {
            telemetry::delivery_lost(settings.queue.name(), delivery.id(), delivery.attempt());
            retry(Duration::ZERO, because("the lease was lost"))
        }
        End::Aborted => Settlement::Return,
    };
    delivery.settle(how).await
}
