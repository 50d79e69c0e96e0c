//! Clean-ups: attempts that were dropped, guards that were dropped, releases that failed.
//!
//! A token is handed over without blocking and without a runtime; a task of the client then calls the driver until the
//! backend has acknowledged, or until the token cannot matter any more. Work in progress when the task's runtime ends
//! is put back, and continues on the next runtime that uses the client.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{Notify, oneshot};

use crate::driver::{
    Backend, DelayQueue, DelayQueueExt as _, Hold, PermitChange, PermitHold, ReentrantEntry, Renewed, Settle, Share,
};
use crate::engine::lease::{Entry, Kind, Lease, LeaseKey, Past, UndoMark, Verdict};
use crate::meters::Level;
use crate::telemetry;
use crate::value::error::{Error, ErrorKind, LockName, Result};
use crate::value::queue::QueueName;
use crate::value::time::{DriftBound, HoldState, LeaseInstant, Ttl};
use crate::value::token::OwnerToken;

/// The number of clean-ups on their way at once.
const IN_FLIGHT: usize = 64;
/// The longest pause between tries: 20 ms, doubling up to this. A clean-up at this pause makes room for others, if any
/// wait.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// A clean-up, and the time until which it matters.
#[derive(Debug)]
pub(crate) struct Cleanup {
    pub(crate) name: LockName,
    pub(crate) kind: Kind,
    pub(crate) token: OwnerToken,
    pub(crate) undo: Undo,
    pub(crate) until: LeaseInstant,
    /// Closed when it is undone, or given up.
    pub(crate) done: Option<oneshot::Sender<()>>,
}

pub(crate) enum Undo {
    /// A lease that was granted, and for which a renewal may be on its way. It is kept until `least`.
    Lease { mark: UndoMark, past: Past, least: Option<LeaseInstant> },
    /// An attempt whose requests may still be on their way.
    Attempt,
    /// A hold without a guard: no request that could take the lock is on its way.
    Loose,
    /// A part of a hold that is given back, with the number of this change. It matters for as long as the lease lasts.
    Part { lease: Arc<Lease>, to: Share, step: u32 },
    /// A delivery whose settlement has no waiting caller.
    Delivery(Arc<dyn DelayQueue>, QueueName, Settle),
}

impl fmt::Debug for Undo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lease { .. } => "Lease",
            Self::Attempt => "Attempt",
            Self::Loose => "Loose",
            Self::Part { .. } => "Part",
            Self::Delivery(..) => "Delivery",
        })
    }
}

/// The clean-ups of one client.
#[derive(Debug, Default)]
pub(crate) struct Reaper {
    queue: Mutex<VecDeque<Cleanup>>,
    /// Clean-ups handed over and not yet acknowledged or expired.
    pending: AtomicUsize,
    /// The count against `max_holds`, clean-ups included: one number for the client.
    busy: Arc<AtomicUsize>,
    /// Later clean-ups: leases that are kept for a span. No caller waits for them.
    standing: Mutex<BTreeMap<LeaseInstant, Vec<Cleanup>>>,
    stand: AtomicUsize,
    more: Notify,
    /// Notified whenever `pending` falls to zero.
    drained: Notify,
    closing: std::sync::atomic::AtomicBool,
    /// `pending`, for metrics.
    backlog: Level,
}

impl Reaper {
    pub(crate) fn new(backlog: Level, busy: Arc<AtomicUsize>) -> Self {
        Self { backlog, busy, ..Self::default() }
    }

    /// Takes over a clean-up. Never blocks; works outside a runtime.
    pub(crate) fn push(&self, cleanup: Cleanup) {
        // Counted before the task can take it up: it would otherwise count below zero, and `close` could miss it.
        self.pending.fetch_add(1, Ordering::AcqRel);
        self.busy.fetch_add(1, Ordering::AcqRel);
        self.backlog.up();
        self.enqueue(cleanup);
    }

    /// Takes over a clean-up as [`push`](Self::push); the future resolves when it is undone, or given up.
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

    /// Returns the number of leases that are kept for a span.
    pub(crate) fn standing(&self) -> usize {
        self.stand.load(Ordering::Acquire)
    }

    /// Postpones a clean-up until then.
    fn put_off(&self, cleanup: Cleanup, until: LeaseInstant) {
        self.stand.fetch_add(1, Ordering::AcqRel);
        self.busy.fetch_add(1, Ordering::AcqRel); // it counts as before
        self.standing.lock().unwrap_or_else(PoisonError::into_inner).entry(until).or_default().push(cleanup);
        self.one_less();
    }

    /// Starts the clean-ups that were postponed until now. Returns the time of the next ones.
    fn take_up(&self) -> Option<LeaseInstant> {
        let mut standing = self.standing.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(first) = standing.first_entry() {
            if !first.key().remaining().is_zero() {
                return Some(*first.key());
            }
            for cleanup in first.remove() {
                // Counted as pending first, so that it is never in neither number.
                self.push(cleanup);
                self.stand.fetch_sub(1, Ordering::AcqRel);
                self.busy.fetch_sub(1, Ordering::AcqRel);
            }
        }
        None
    }

    /// Lets the task end once everything is undone.
    pub(crate) fn finish(&self) {
        self.closing.store(true, Ordering::Release);
        self.more.notify_one();
    }

    /// Waits until nothing is pending.
    pub(crate) async fn drained(&self) {
        reaches_zero(&self.pending, &self.drained).await;
    }

    fn one_less(&self) {
        self.backlog.down();
        self.busy.fetch_sub(1, Ordering::AcqRel);
        if self.pending.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.drained.notify_waiters();
        }
    }

    /// The task. Ends when the client is gone and nothing is left to undo.
    pub(crate) async fn run(self: Arc<Self>, calls: Calls) {
        let mut running = FuturesUnordered::new();
        loop {
            let next = self.take_up();
            while running.len() < IN_FLIGHT {
                let Some(cleanup) = self.pop() else { break };
                let job = Job { reaper: Arc::clone(&self), cleanup: Some(cleanup) };
                running.push(job.carry_out(&calls));
            }
            // The number, and not the queue: a clean-up that was pushed just now is counted before it is in the queue.
            if running.is_empty() && self.closing.load(Ordering::Acquire) && self.pending() == 0 {
                return;
            }
            tokio::select! {
                Some(()) = running.next() => {}
                () = self.more.notified() => {}
                () = sleep_until(next) => {}
            }
        }
    }
}

/// Waits until the count is zero; `fallen` notifies of that.
pub(super) async fn reaches_zero(count: &AtomicUsize, fallen: &Notify) {
    loop {
        let notified = fallen.notified(); // before looking
        if count.load(Ordering::Acquire) == 0 {
            return;
        }
        notified.await;
    }
}

/// The context of calls to the backend.
pub(crate) struct Calls {
    pub(crate) backend: Backend,
    pub(crate) drift: DriftBound,
    pub(crate) op_timeout: Duration,
}

/// A clean-up in progress; put back if the task ends before it does.
struct Job {
    reaper: Arc<Reaper>,
    cleanup: Option<Cleanup>,
}

impl Job {
    async fn carry_out(mut self, calls: &Calls) {
        let Some(cleanup) = &self.cleanup else { return };
        match undo(cleanup, calls, &self.reaper).await {
            Undone::NotYet => return, // dropped, it goes to the end of the queue
            Undone::Settled => self.reaper.one_less(),
            Undone::Stands(until) => {
                self.cleanup.take().into_iter().for_each(|cleanup| self.reaper.put_off(cleanup, until));
            }
        }
        self.cleanup = None;
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        if let Some(cleanup) = self.cleanup.take() {
            self.reaper.enqueue(cleanup);
        }
    }
}

/// The result of a clean-up in progress.
#[derive(PartialEq, Eq)]
enum Undone {
    /// Acknowledged, or given up.
    Settled,
    /// It fails again and again, and others wait for their turn.
    NotYet,
    /// The lease is kept until then.
    Stands(LeaseInstant),
}

async fn undo(cleanup: &Cleanup, calls: &Calls, reaper: &Reaper) -> Undone {
    if let Undo::Lease { mark, .. } = &cleanup.undo {
        quiet(mark.lease()).await;
    }
    let mut pause = Duration::from_millis(20);
    loop {
        let error = match call(cleanup, calls).await {
            Ok(undone) => return undone,
            // Nothing is left to undo, or a closed driver sends nothing any more: then the lease ends by itself.
            Err(error) if matches!(error.kind(), ErrorKind::NotHeld | ErrorKind::Closed) => return Undone::Settled,
            Err(error) => error,
        };
        // After the call, so that each clean-up is tried at least once, however late it begins.
        if !cleanup.matters() {
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

async fn call(cleanup: &Cleanup, calls: &Calls) -> Result<Undone> {
    let (name, token) = (cleanup.name.clone(), cleanup.token);
    let Calls { backend, drift, op_timeout } = calls;
    let work = async {
        // Before any release: a lease that must be kept is renewed at most once, to the rest of its span. One that
        // turns out to be lost is cleaned up below like any other.
        if let Undo::Lease { mark, least: Some(least), .. } = &cleanup.undo
            && !least.remaining().is_zero()
            && (mark.lease().deadline() >= *least || outlast(backend, *drift, mark.lease(), *least).await?)
        {
            return Ok(Undone::Stands(*least));
        }
        if let Undo::Delivery(driver, queue, settle) = &cleanup.undo {
            return driver.settle(queue, std::slice::from_ref(settle)).await.map(|_| Undone::Settled);
        }
        // A request that is still on its way could take the lock after a release. Abandoning makes the backend refuse
        // the token when that request arrives.
        let all_answered = matches!(cleanup.undo, Undo::Lease { past: Past::Answered, .. } | Undo::Loose);
        match cleanup.kind {
            Kind::Plain => {
                let (locks, hold) = (backend.locks(), Hold { name, token });
                if all_answered {
                    locks.release(&hold).await?;
                } else {
                    locks.abandon(&hold).await?;
                }
            }
            Kind::Reentrant(owner) => {
                let (locks, entry) = (backend.required_reentrant()?, ReentrantEntry { name, owner, token });
                if all_answered {
                    locks.exit(&entry).await?;
                } else {
                    locks.abandon(&entry).await?;
                }
            }
            Kind::Permits(family) => {
                let (permits, hold) = (backend.required_permits()?, PermitHold::new(family, name, token));
                if let Undo::Part { to, step, .. } = cleanup.undo {
                    permits.resize(&PermitChange::new(hold, to, step)).await?;
                } else if all_answered {
                    permits.release(&hold).await?;
                } else {
                    permits.abandon(&hold).await?;
                }
            }
        }
        Ok(Undone::Settled)
    };
    match tokio::time::timeout(*op_timeout, work).await {
        Ok(result) => result,
        Err(_) => Err(Error::new(ErrorKind::Indeterminate, format!("no answer within {op_timeout:?}"))),
    }
}

/// The time after the possible end of its lease for which an abandoned token is retried.
pub(crate) const CHASE: Duration = Duration::from_secs(60);

impl Cleanup {
    /// Makes the clean-up of one entry of a lease. It matters until the lease has surely ended at the backend.
    pub(crate) fn of_lease(lease: &Arc<Lease>, entry: &Entry) -> Self {
        let chase = match entry.past {
            Past::Answered => Duration::from_secs(5),
            Past::Unanswered => CHASE,
        };
        let now = LeaseInstant::now();
        let least = lease.least();
        let from = least.map_or(now, |least| least.max(now));
        let until = from.after(entry.ttl.get() * 2).max(lease.possible_end(now)).after(chase);
        let undo = Undo::Lease { mark: UndoMark::of(lease), past: entry.past, least };
        let (name, kind) = (lease.name().clone(), lease.key.kind());
        Self { name, kind, token: lease.token_of(entry), undo, until, done: None }
    }

    /// Makes the clean-up of a part that is given back.
    pub(crate) fn of_part(lease: &Arc<Lease>, token: OwnerToken, to: Share, step: u32) -> Self {
        let (name, kind) = (lease.name().clone(), lease.key.kind());
        let undo = Undo::Part { lease: Arc::clone(lease), to, step };
        Self { name, kind, token, undo, until: LeaseInstant::now(), done: None }
    }

    fn matters(&self) -> bool {
        match &self.undo {
            Undo::Part { lease, .. } => matches!(lease.state(), HoldState::Held | HoldState::Suspect),
            _ => LeaseInstant::now() < self.until,
        }
    }
}

pub(super) async fn sleep_until(at: Option<LeaseInstant>) {
    match at {
        Some(at) => tokio::time::sleep(at.remaining()).await,
        None => std::future::pending().await,
    }
}

// One renewal by itself, for a lease that is about to end or to be left standing; and the wait for one that is on its way.

/// Waits until no renewal is on its way, so that none can arrive after the release that follows.
pub(super) async fn quiet(lease: &Lease) {
    if lease.lock().renewing.is_none() {
        return; // nearly always
    }
    loop {
        let changes = lease.changes();
        let changed = changes.notified(); // before looking
        let Some(until) = lease.lock().on_its_way(LeaseInstant::now()) else { return };
        tokio::select! {
            () = changed => {}
            () = until.reached() => return,
        }
    }
}

// A lease that outlasts its guard: the holder is done, and nobody else may have the lock before the rest of a span is over.
//
// The lease is renewed once, to that rest. Whoever is still there when the rest is over gives it back; if nobody is, it ends by
// itself.

/// Makes the lease last until then without further renewals; `false` when it has ended. One that already lasts as long
/// is renewed as well: only a renewal shows if it was taken away.
pub(crate) async fn outlast(backend: &Backend, drift: DriftBound, lease: &Lease, until: LeaseInstant) -> Result<bool> {
    let sent_at = LeaseInstant::before_send();
    let wanted = drift.covering(until.since(sent_at));
    // Rounded up to a ttl that the backend keeps: too short, the lock would be free before the span has ended.
    let Some(ttl) = backend.locks().capabilities().ttl.at_least(wanted) else {
        let text = format!("this backend supports no lease of {wanted:?}");
        return Err(Error::new(ErrorKind::InvalidArgument, text));
    };
    match renew(backend, lease, ttl).await? {
        Renewed::Extended { ttl } => {
            lease.lengthen(sent_at.after(drift.believable(ttl).unwrap_or_default()));
            Ok(true)
        }
        Renewed::Lost => Ok(false),
    }
}

/// Renews the lease to this ttl and returns the verdict. No other renewal may be on its way.
pub(super) async fn prolong(backend: &Backend, drift: DriftBound, lease: &Lease, ttl: Ttl) -> Result<Verdict> {
    let sent_at = LeaseInstant::before_send();
    Ok(match renew(backend, lease, ttl).await? {
        Renewed::Extended { ttl } => {
            Verdict::Confirmed { sent_at, believable: drift.believable(ttl).unwrap_or_default() }
        }
        Renewed::Lost => Verdict::Lost,
    })
}

/// Sends one separate renewal. No other may be on its way.
async fn renew(backend: &Backend, lease: &Lease, ttl: Ttl) -> Result<Renewed> {
    let answers = match &lease.key {
        LeaseKey::Plain(hold) => backend.locks().renew(ttl, std::slice::from_ref(hold)).await,
        LeaseKey::Reentrant(hold) => backend.required_reentrant()?.renew(ttl, std::slice::from_ref(&**hold)).await,
        LeaseKey::Permits(hold) => backend.required_permits()?.renew(ttl, std::slice::from_ref(&**hold)).await,
    };
    match answers.into_iter().next() {
        Some(Err(error)) if error.kind() == ErrorKind::NotHeld => Ok(Renewed::Lost),
        Some(answer) => answer,
        None => Err(Error::new(ErrorKind::Protocol, "the driver did not answer a renewal")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::lease::tests::lease;

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_stands_is_given_back_for_as_long_after_that_as_any_other() {
        let ttl = Duration::from_secs(30);
        let lease = lease(ttl);
        let entry = lease.lock().entries.iter().copied().next().unwrap();
        let usual = Cleanup::of_lease(&lease, &entry).until;
        let span = Duration::from_secs(600);
        lease.stand(&entry.token, LeaseInstant::now().after(span));
        assert_eq!(Cleanup::of_lease(&lease, &entry).until.since(usual), span);
        tokio::time::advance(span * 2).await;
        let late = Cleanup::of_lease(&lease, &entry).until;
        assert!(late > LeaseInstant::now().after(ttl * 2), "the span is over");
    }
}
