//! The worker itself: asks for as many messages as it has room for, and stops in good order.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{JoinError, JoinHandle, JoinSet};

use super::builder::Settings;
use super::event::WorkerEvent;
use super::handling::{Handler, handle};
use super::observer::Observer;
use super::stats::WorkerStats;
use crate::panicked::text;
use crate::queue::handle::AFTER_FAILURE;
use crate::telemetry;
use crate::value::error::{Error, ErrorKind, Result};

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

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    Working,
    /// Takes no more messages; handlers finish.
    Draining,
    /// Handlers are dropped; their messages are returned.
    Aborting,
}

/// What all tasks of one worker have in common.
pub(super) struct Crew<T> {
    pub(super) settings: Settings<T>,
    pub(super) handler: Handler<T>,
    pub(super) observer: Arc<Observer>,
    pub(super) stage: watch::Sender<Stage>,
}

pub(super) fn start<T: Send + Sync + 'static>(settings: Settings<T>, handler: Handler<T>) -> Result<Worker> {
    let Ok(runtime) = tokio::runtime::Handle::try_current() else {
        return Err(Error::new(ErrorKind::InvalidArgument, "a worker must be started inside a tokio runtime"));
    };
    let (stage, observer) = (watch::Sender::new(Stage::Working), Arc::new(Observer::new(settings.hook.clone())));
    let crew = Arc::new(Crew { settings, handler, observer: Arc::clone(&observer), stage: stage.clone() });
    let task = runtime.spawn(async move {
        telemetry::worker_started(crew.settings.queue.name(), crew.settings.concurrency);
        let over = work(&crew).await;
        telemetry::worker_stopped(crew.settings.queue.name(), &crew.observer.stats());
        crew.observer.tell(&WorkerEvent::Stopped { error: over.as_ref().err().cloned() });
        over
    });
    Ok(Worker { stage, observer, task: Some(task), over: Ok(()) })
}

impl<T> Crew<T> {
    /// Resolves when the worker is at this stage, or beyond.
    pub(super) async fn reaches(&self, stage: Stage) {
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
        match queue.receive_many((concurrency - running.len()).min(queue.pump.caps.batch)).await {
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
