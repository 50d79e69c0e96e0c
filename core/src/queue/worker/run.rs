//! The worker itself: asks for as many messages as it has room for, and stops in good order.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use super::builder::Settings;
use super::handling::{Handler, handle};
use crate::driver::Settled;
use crate::error::{Error, ErrorKind, Result};
use crate::telemetry;

/// The pause after a failed request for messages.
const PAUSE: Duration = Duration::from_secs(1);

/// A worker at work. Dropping it is like an [`abort`](Worker::abort): handlers are dropped, and their messages are
/// returned to the queue in the background.
#[derive(Debug)]
#[must_use = "dropping the worker stops it"]
pub struct Worker {
    stage: watch::Sender<Stage>,
    counters: Arc<Counters>,
    task: Option<JoinHandle<()>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    Working,
    /// Takes no more messages; handlers finish.
    Draining,
    /// Handlers are dropped; their messages are returned.
    Aborting,
}

/// What a worker has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerStats {
    /// Messages settled as their handler asked.
    pub settled: u64,
    /// Messages that went to the dead letters.
    pub dead: u64,
    /// Messages parked because their lock was taken.
    pub parked: u64,
    /// Settlements that came too late: the message had been delivered again.
    pub stale: u64,
    /// Settlements that failed on their way; those that still can go on in the background.
    pub failed: u64,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    settled: AtomicU64,
    dead: AtomicU64,
    parked: AtomicU64,
    stale: AtomicU64,
    failed: AtomicU64,
}

impl Counters {
    pub(super) fn note(&self, settled: Result<Settled>) {
        let counter = match settled {
            Ok(Settled::Done | Settled::Postponed) => &self.settled,
            Ok(Settled::Dead) => &self.dead,
            Ok(Settled::Stale) => &self.stale,
            Err(_) => &self.failed,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    fn stats(&self) -> WorkerStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        WorkerStats {
            settled: read(&self.settled),
            dead: read(&self.dead),
            parked: read(&self.parked),
            stale: read(&self.stale),
            failed: read(&self.failed),
        }
    }

    pub(super) fn parked(&self) {
        self.parked.fetch_add(1, Ordering::Relaxed);
    }
}

pub(super) fn start<T: Send + Sync + 'static>(settings: Settings<T>, handler: Handler<T>) -> Result<Worker> {
    let Ok(runtime) = tokio::runtime::Handle::try_current() else {
        return Err(Error::new(ErrorKind::InvalidArgument, "a worker must be started inside a tokio runtime"));
    };
    let (stage, stages) = watch::channel(Stage::Working);
    let counters = Arc::<Counters>::default();
    let counted = Arc::clone(&counters);
    let task = runtime.spawn(async move {
        let name = settings.queue.name().clone();
        telemetry::worker_started(&name, settings.concurrency);
        work(Arc::new(settings), handler, stages, Arc::clone(&counted)).await;
        telemetry::worker_stopped(&name, counted.stats());
    });
    Ok(Worker { stage, counters, task: Some(task) })
}

async fn work<T: Send + Sync + 'static>(
    settings: Arc<Settings<T>>,
    handler: Handler<T>,
    mut stages: watch::Receiver<Stage>,
    counters: Arc<Counters>,
) {
    let mut running = JoinSet::new();
    let stopping = stages.clone();
    let stopped = async move {
        let mut stopping = stopping;
        // An error means that the worker was dropped, which stops it as well.
        let _ = stopping.wait_for(|stage| *stage != Stage::Working).await;
    };
    tokio::pin!(stopped);
    loop {
        while running.len() >= settings.concurrency {
            tokio::select! {
                _ = running.join_next() => {}
                () = &mut stopped => return drain(running).await,
            }
        }
        let room = (settings.concurrency - running.len()).min(settings.queue.pump.caps.batch);
        let received = tokio::select! {
            biased;
            () = &mut stopped => return drain(running).await,
            received = settings.queue.receive_many(room) => received,
        };
        match received {
            Ok(deliveries) => {
                for delivery in deliveries {
                    let stage = stages.clone();
                    let handling = handle(Arc::clone(&settings), handler.clone(), delivery, stage, counters.clone());
                    running.spawn(handling);
                }
            }
            Err(error) if error.kind() == ErrorKind::Closed => return drain(running).await,
            Err(_) => {
                // `stages` stays subscribed, so a stop is noticed at once.
                let _ = tokio::time::timeout(PAUSE, stages.wait_for(|stage| *stage != Stage::Working)).await;
            }
        }
        while running.try_join_next().is_some() {}
    }
}

async fn drain(mut running: JoinSet<()>) {
    while running.join_next().await.is_some() {}
}

impl Worker {
    /// What it has done so far.
    #[must_use]
    pub fn stats(&self) -> WorkerStats {
        self.counters.stats()
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

    /// Waits until the worker ends by itself, which it does when its client is closed.
    ///
    /// # Cancel safety
    ///
    /// Safe.
    pub async fn ended(&mut self) {
        if let Some(task) = &mut self.task {
            let _ = task.await;
            self.task = None;
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stage.send_replace(Stage::Aborting);
    }
}
