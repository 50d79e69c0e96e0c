//! Undoing what was given up: attempts that were dropped, guards that were dropped, releases that failed.
//!
//! A token is handed over without blocking and without a runtime; a task of the client then calls the driver until
//! the backend has acknowledged, or until the token cannot matter any more. What a task had in hand when its runtime
//! ended is put back, and the next runtime that uses the client carries on.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{Notify, oneshot};

use super::entry::Past;
use super::undoing::UndoMark;
use crate::clock::LeaseInstant;
use crate::driver::{Backend, DelayQueue, Hold, ReentrantHold, Settle};
use crate::error::{Error, ErrorKind, Result};
use crate::name::LockName;
use crate::queue::QueueName;
use crate::telemetry;
use crate::token::{OwnerId, OwnerToken};

/// How many clean-ups are on their way at once.
const IN_FLIGHT: usize = 64;
/// Between tries: 20 ms, doubling up to this. Who has come so far makes room for others, if any wait.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// What is to be undone, and until when that matters.
#[derive(Debug)]
pub(crate) struct Cleanup {
    pub(crate) name: LockName,
    pub(crate) owner: Option<OwnerId>,
    pub(crate) token: OwnerToken,
    pub(crate) undo: Undo,
    pub(crate) until: LeaseInstant,
    /// Closed when it is undone, or given up.
    pub(crate) done: Option<oneshot::Sender<()>>,
}

pub(crate) enum Undo {
    /// A lease that was granted, and that a renewal may be on its way for.
    Lease { mark: UndoMark, past: Past },
    /// An attempt whose requests may still be on their way.
    Attempt,
    /// A hold that was in nobody's hands: no request that could take the lock is on its way.
    Loose,
    /// A delivery whose settlement nobody waits for.
    Delivery(Arc<dyn DelayQueue>, QueueName, Settle),
}

impl fmt::Debug for Undo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lease { .. } => "Lease",
            Self::Attempt => "Attempt",
            Self::Loose => "Loose",
            Self::Delivery(..) => "Delivery",
        })
    }
}

/// The clean-ups of one client.
#[derive(Debug, Default)]
pub(crate) struct Reaper {
    queue: Mutex<VecDeque<Cleanup>>,
    /// Handed over and not yet acknowledged or expired.
    pending: AtomicUsize,
    /// Attempts under way, each of which may still hand something over.
    attempts: AtomicUsize,
    more: Notify,
    /// Told whenever `pending` or `attempts` falls to zero.
    drained: Notify,
    closing: std::sync::atomic::AtomicBool,
}

impl Reaper {
    /// Takes over a clean-up. Never blocks; works outside a runtime.
    pub(crate) fn push(&self, cleanup: Cleanup) {
        self.pending.fetch_add(1, Ordering::AcqRel);
        self.enqueue(cleanup);
    }

    /// As [`push`](Self::push); the future resolves when it is undone, or given up.
    pub(crate) fn push_and_wait(&self, mut cleanup: Cleanup) -> impl Future<Output = ()> + use<> {
        let (done, undone) = oneshot::channel();
        cleanup.done = Some(done);
        self.push(cleanup);
        async move { drop(undone.await) }
    }

    fn enqueue(&self, cleanup: Cleanup) {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).push_back(cleanup);
        self.more.notify_one();
    }

    fn pop(&self) -> Option<Cleanup> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }

    fn others_wait(&self) -> bool {
        !self.queue.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    pub(crate) fn pending(&self) -> usize {
        self.pending.load(Ordering::Acquire)
    }

    /// Lets the task end once everything is undone.
    pub(crate) fn finish(&self) {
        self.closing.store(true, Ordering::Release);
        self.more.notify_one();
    }

    pub(crate) fn attempt_begins(&self) {
        self.attempts.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn attempt_ends(&self) {
        self.one_less(&self.attempts);
    }

    /// Waits until no attempt is under way.
    pub(crate) async fn settled(&self) {
        self.reaches_zero(&self.attempts).await;
    }

    /// Waits until nothing is pending.
    pub(crate) async fn drained(&self) {
        self.reaches_zero(&self.pending).await;
    }

    async fn reaches_zero(&self, count: &AtomicUsize) {
        loop {
            let fallen = self.drained.notified();
            tokio::pin!(fallen);
            fallen.as_mut().enable();
            if count.load(Ordering::Acquire) == 0 {
                return;
            }
            fallen.await;
        }
    }

    fn one_less(&self, count: &AtomicUsize) {
        if count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.drained.notify_waiters();
        }
    }

    /// The task. Ends when the client is gone and nothing is left to undo.
    pub(crate) async fn run(self: Arc<Self>, backend: Backend, op_timeout: Duration) {
        let mut running = FuturesUnordered::new();
        loop {
            while running.len() < IN_FLIGHT {
                let Some(cleanup) = self.pop() else { break };
                let job = Job { reaper: Arc::clone(&self), cleanup: Some(cleanup) };
                running.push(job.carry_out(&backend, op_timeout));
            }
            if running.is_empty() && self.closing.load(Ordering::Acquire) && self.pending() == 0 {
                return;
            }
            tokio::select! {
                Some(()) = running.next() => {}
                () = self.more.notified() => {}
            }
        }
    }
}

/// A clean-up in hand; put back if the task ends before it does.
struct Job {
    reaper: Arc<Reaper>,
    cleanup: Option<Cleanup>,
}

impl Job {
    async fn carry_out(mut self, backend: &Backend, op_timeout: Duration) {
        if let Some(cleanup) = &self.cleanup
            && undo(cleanup, backend, op_timeout, &self.reaper).await == Undone::NotYet
        {
            return; // dropped, it goes to the end of the queue
        }
        self.cleanup = None;
        self.reaper.one_less(&self.reaper.pending);
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        if let Some(cleanup) = self.cleanup.take() {
            self.reaper.enqueue(cleanup);
        }
    }
}

/// What became of a clean-up in hand.
#[derive(PartialEq, Eq)]
enum Undone {
    /// Acknowledged, or given up.
    Settled,
    /// It fails again and again, and others wait for their turn.
    NotYet,
}

async fn undo(cleanup: &Cleanup, backend: &Backend, op_timeout: Duration, reaper: &Reaper) -> Undone {
    if let Undo::Lease { mark, .. } = &cleanup.undo {
        mark.lease().quiet().await;
    }
    let mut pause = Duration::from_millis(20);
    loop {
        let error = match call(cleanup, backend, op_timeout).await {
            Ok(()) => return Undone::Settled,
            Err(error) if matches!(error.kind(), ErrorKind::NotHeld | ErrorKind::Closed) => return Undone::Settled,
            Err(error) => error,
        };
        if LeaseInstant::now() >= cleanup.until {
            telemetry::cleanup_given_up(&cleanup.name, &error);
            return Undone::Settled;
        }
        telemetry::cleanup_retried(&cleanup.name, &error);
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
        if pause == LONGEST_PAUSE && reaper.others_wait() {
            return Undone::NotYet;
        }
    }
}

async fn call(cleanup: &Cleanup, backend: &Backend, op_timeout: Duration) -> Result<()> {
    let (name, token) = (cleanup.name.clone(), cleanup.token);
    let work = async {
        if let Undo::Delivery(driver, queue, settle) = &cleanup.undo {
            return driver.settle(queue, std::slice::from_ref(settle)).await.map(drop);
        }
        let all_answered = matches!(cleanup.undo, Undo::Lease { past: Past::Answered, .. } | Undo::Loose);
        match (all_answered, cleanup.owner, backend.reentrant()) {
            (true, Some(owner), Some(driver)) => driver.exit(&ReentrantHold { name, owner, token }).await.map(drop),
            (false, Some(owner), Some(driver)) => driver.abandon(&ReentrantHold { name, owner, token }).await,
            (true, ..) => backend.locks().release(&Hold { name, token }).await.map(drop),
            (false, ..) => backend.locks().abandon(&Hold { name, token }).await,
        }
    };
    match tokio::time::timeout(op_timeout, work).await {
        Ok(result) => result,
        Err(_) => Err(Error::new(ErrorKind::Indeterminate, format!("no answer within {op_timeout:?}"))),
    }
}
