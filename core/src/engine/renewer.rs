//! The one timer of a client: renews leases in batches, and ends those past their deadlines.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Poll;
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::driver::{Backend, Renewed};
use crate::engine::lease::{Due, Entry, Lease, LeaseKey, NOT_QUEUED, Past, Verdict};
use crate::engine::reaper::{Cleanup, Reaper, quiet, sleep_until};
use crate::meters::locks::{LockMeters, Renewal};
use crate::runtime::Alarm;
use crate::value::error::{Error, ErrorKind, LockName, Result};
use crate::value::time::{DriftBound, HoldState, LeaseInstant, LostReason, Ttl};
use crate::{runtime, telemetry};

/// Renewals due within this span of each other leave together.
const BATCH_WINDOW: Duration = Duration::from_millis(10);
/// The longest sleep while there are leases. Timers pause in suspend and leases do not: this bounds the delay after a
/// resume until the leases that ended in it are noticed. A program that blocks some workers may also leave the others
/// asleep, so that no worker reads answers and checks the timers of drivers: for at most as long.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(crate) struct Renewer {
    plan: Mutex<Plan>,
    /// Wakes the task.
    bell: Arc<Notify>,
    stopped: AtomicBool,
}

#[derive(Debug, Default)]
struct Plan {
    timers: TimerQueue,
    /// The time of the task's next own wake-up.
    wakes_at: Option<LeaseInstant>,
    /// The alarm for that time, if its runtime has several workers. A sooner check only sets the alarm: the task that
    /// has just got a lease may block its worker next, and a task that it woke would wait for that worker.
    alarm: Option<Alarm>,
    by_alarm: bool,
}

impl Plan {
    /// Returns the time of the next check; from now on a sooner check changes that.
    fn sleep(&mut self, bell: &Arc<Notify>) -> Option<LeaseInstant> {
        let longest = LeaseInstant::now().after(LONGEST_SLEEP);
        self.wakes_at = self.timers.first().map(|first| first.min(longest));
        let left = self.wakes_at.filter(|_| self.by_alarm).map(LeaseInstant::remaining);
        self.alarm = left.and_then(|left| Alarm::set(Instant::now() + left, bell));
        self.wakes_at
    }
}

impl Renewer {
    /// Manages `lease` from now on, or sooner than planned; no more if it has ended.
    pub(crate) fn watch_over(&self, lease: &Arc<Lease>) {
        self.watch_over_at(lease, LeaseInstant::now());
    }

    /// Manages as [`watch_over`](Self::watch_over), for a caller that has just read the clock.
    pub(crate) fn watch_over_at(&self, lease: &Arc<Lease>, now: LeaseInstant) {
        let Some(at) = lease.next_look() else { return self.forget(lease) };
        let mut plan = self.plan();
        if plan.timers.plan(lease, at, now) && plan.wakes_at.is_none_or(|wakes_at| at < wakes_at) {
            // The alarm, if there is one, rings at the new time by itself; otherwise the task has to compute its sleep
            // anew.
            plan.sleep(&self.bell);
            if plan.alarm.is_none() {
                drop(plan);
                self.bell.notify_one();
            }
        }
    }

    /// Stops managing a lease that has ended.
    pub(crate) fn forget(&self, lease: &Lease) {
        self.plan().timers.remove(lease);
    }

    /// Returns every managed lease.
    pub(crate) fn leases(&self) -> Vec<Arc<Lease>> {
        self.plan().timers.leases()
    }

    /// Returns the first result of `look` among the managed leases.
    pub(crate) fn find<T>(&self, look: impl FnMut(&Arc<Lease>) -> Option<T>) -> Option<T> {
        self.plan().timers.find(look)
    }

    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.bell.notify_one();
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The renewer's task: the timer, and the renewals on their way.
pub(crate) struct Round {
    pub(crate) renewer: Arc<Renewer>,
    pub(crate) reaper: Arc<Reaper>,
    pub(crate) backend: Backend,
    pub(crate) drift: DriftBound,
    pub(crate) op_timeout: Duration,
    pub(crate) meters: LockMeters,
    pub(crate) failures: FailureLog,
}

/// The shortest time between two reports of failed renewals.
const REPORT_EACH: Duration = Duration::from_secs(1);

/// The report of failed renewals. In an outage all leases fail at once: one line when they begin to fail, one a second
/// with their number while they do, and one when renewals have been confirmed without a failure for a second.
#[derive(Clone, Debug, Default)]
pub(crate) struct FailureLog(Arc<Mutex<Failures>>);

#[derive(Debug, Default)]
struct Failures {
    /// The number of failures not reported yet.
    count: u64,
    reported: Option<LeaseInstant>,
    last: Option<LeaseInstant>,
}

impl FailureLog {
    fn failed(&self, name: &LockName, error: &Error) {
        let (mut failures, now) = (self.failures(), LeaseInstant::now());
        failures.count += 1;
        failures.last = Some(now);
        if failures.reported.is_none_or(|at| now.since(at) >= REPORT_EACH) {
            failures.reported = Some(now);
            telemetry::renewal_failed(name, error, std::mem::take(&mut failures.count));
        }
    }

    fn confirmed(&self, name: &LockName) {
        let mut failures = self.failures();
        if failures.last.is_some_and(|at| LeaseInstant::now().since(at) >= REPORT_EACH) {
            telemetry::renewals_recovered(name, failures.count);
            *failures = Failures::default();
        }
    }

    fn failures(&self) -> MutexGuard<'_, Failures> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

type Answer = Pin<Box<dyn Future<Output = Vec<(Renewing, Verdict)>> + Send>>;

impl Round {
    /// Runs until the client is gone.
    pub(crate) async fn run(self) {
        self.renewer.plan().by_alarm = !has_one_worker(&Handle::current());
        let mut on_their_way: FuturesUnordered<Answer> = FuturesUnordered::new();
        while !self.renewer.stopped.load(Ordering::Acquire) {
            let due = self.look();
            self.send(due, &mut on_their_way);
            // After `look`, which plans the next checks. A bell that rings from here on leaves a permit, so no check is
            // missed before the `select!`.
            let next = self.renewer.plan().sleep(&self.renewer.bell);
            tokio::select! {
                Some(answers) = on_their_way.next() => self.take_in(answers),
                () = sleep_until(next) => {}
                () = self.renewer.bell.notified() => {}
            }
        }
    }

    /// Checks every lease that is due; returns those to renew. Their answers, which arrive or are given up soon, bring
    /// the next check.
    fn look(&self) -> Vec<(Renewing, Ttl)> {
        let now = LeaseInstant::now();
        let due = self.renewer.plan().timers.take(now, now.after(BATCH_WINDOW));
        let mut renewals = Vec::new();
        for lease in due {
            match lease.due(now, |ttl| self.limit(ttl)) {
                Due::Renew { ttl, until, late } => {
                    self.meters.renewal_left(lease.name(), late);
                    renewals.push((Renewing::due(lease, until), ttl));
                }
                Due::Later => self.renewer.watch_over_at(&lease, now),
                Due::Ended(reason, entries) => self.ended(&lease, reason, entries),
                Due::Nothing => self.renewer.forget(&lease),
            }
        }
        renewals
    }

    fn ended(&self, lease: &Arc<Lease>, reason: LostReason, entries: Vec<Entry>) {
        telemetry::lost(lease.name(), lease.fence(), reason);
        self.meters.lost(lease.name(), reason);
        for entry in entries {
            self.reaper.push(Cleanup::of_lease(lease, &entry));
        }
    }

    fn take_in(&self, answers: Vec<(Renewing, Verdict)>) {
        let now = LeaseInstant::now(); // once for all of them
        for (renewing, verdict) in answers {
            let lease = Arc::clone(renewing.lease());
            if let Some((reason, entries)) = renewing.answered_at(verdict, now) {
                self.ended(&lease, reason, entries);
            }
            self.renewer.watch_over_at(&lease, now);
        }
    }

    /// Sends renewals in batches, each separately, so that a slow answer delays no other.
    fn send(&self, due: Vec<(Renewing, Ttl)>, on_their_way: &mut FuturesUnordered<Answer>) {
        let (mut plain, mut reentrant, mut permits) = (Vec::new(), Vec::new(), Vec::new());
        for (renewing, ttl) in due {
            match renewing.lease().key.clone() {
                LeaseKey::Plain(hold) => plain.push((ttl, renewing, hold)),
                LeaseKey::Reentrant(hold) => reentrant.push((ttl, renewing, *hold)),
                LeaseKey::Permits(hold) => permits.push((ttl, renewing, *hold)),
            }
        }
        let most = self.backend.locks().capabilities().renew_batch.max(1);
        for Batch { ttl, sent, holds } in batches(plain, most) {
            let driver = Arc::clone(self.backend.locks());
            on_their_way.push(self.answered(sent, self.limit(ttl), async move { driver.renew(ttl, &holds).await }));
        }
        if let Some(driver) = self.backend.reentrant() {
            for Batch { ttl, sent, holds } in batches(reentrant, most) {
                let driver = Arc::clone(driver);
                on_their_way.push(self.answered(sent, self.limit(ttl), async move { driver.renew(ttl, &holds).await }));
            }
        }
        if let Some(driver) = self.backend.permits() {
            for Batch { ttl, sent, holds } in batches(permits, driver.capabilities().renew_batch.max(1)) {
                let driver = Arc::clone(driver);
                on_their_way.push(self.answered(sent, self.limit(ttl), async move { driver.renew(ttl, &holds).await }));
            }
        }
    }

    /// Returns the time limit of a renewal: a hung one must leave time for another try.
    fn limit(&self, ttl: Ttl) -> Duration {
        self.op_timeout.min((ttl.get() / 4).max(Duration::from_millis(10)))
    }

    /// Waits for the answers. When the task ends with its runtime, they will never be known.
    fn answered(
        &self,
        sent: Vec<Renewing>,
        limit: Duration,
        call: impl Future<Output = Vec<Result<Renewed>>> + Send + 'static,
    ) -> Answer {
        let (drift, meters, failures) = (self.drift, self.meters.clone(), self.failures.clone());
        Box::pin(async move {
            let Some(until) = sent.iter().map(Renewing::until).min() else { return Vec::new() };
            // Read when this future is first polled, before `call` is: the request cannot have left earlier.
            let sent_at = LeaseInstant::before_send();
            let in_flight = meters.renewing();
            in_flight.up();
            // A missing answer, of one lease or of all, is an unknown outcome, never a loss.
            let mut results = in_time(until, call).await.unwrap_or_default().into_iter();
            in_flight.down();
            let verdict = |renewing: Renewing| {
                let answer = results.next().unwrap_or_else(|| {
                    Err(Error::new(ErrorKind::Indeterminate, format!("no answer to a renewal within {limit:?}")))
                });
                let (verdict, reported) = judge(renewing.lease(), sent_at, answer, drift, &failures);
                meters.renewed(renewing.lease().name(), reported);
                (renewing, verdict)
            };
            sent.into_iter().map(verdict).collect()
        })
    }
}

fn judge(
    lease: &Lease,
    sent_at: LeaseInstant,
    answer: Result<Renewed>,
    drift: DriftBound,
    failures: &FailureLog,
) -> (Verdict, Renewal) {
    match answer {
        // If the drift bound leaves nothing of the ttl, the answer is worth as much as none.
        Ok(Renewed::Extended { ttl }) => match drift.believable(ttl) {
            Some(believable) => {
                failures.confirmed(lease.name());
                (Verdict::Confirmed { sent_at, believable }, Renewal::Confirmed)
            }
            None => (Verdict::Unknown, Renewal::Failed(ErrorKind::Indeterminate)),
        },
        Ok(Renewed::Lost) => (Verdict::Lost, Renewal::Lost),
        Err(error) if error.kind() == ErrorKind::NotHeld => (Verdict::Lost, Renewal::Lost),
        Err(error) => {
            failures.failed(lease.name(), &error);
            (Verdict::Unknown, Renewal::Failed(error.kind()))
        }
    }
}

/// Renewals that leave together. They have one ttl, so that none is given up early because of another.
struct Batch<S, H> {
    ttl: Ttl,
    sent: Vec<S>,
    holds: Vec<H>,
}

fn batches<S, H>(mut all: Vec<(Ttl, S, H)>, most: usize) -> Vec<Batch<S, H>> {
    // Neighbours of one ttl fill one batch, so that many leases need few requests.
    all.sort_by_key(|(ttl, ..)| *ttl);
    let mut batches: Vec<Batch<S, H>> = Vec::new();
    for (ttl, one, hold) in all {
        match batches.last_mut() {
            Some(batch) if batch.ttl == ttl && batch.sent.len() < most => {
                batch.sent.push(one);
                batch.holds.push(hold);
            }
            _ => batches.push(Batch { ttl, sent: vec![one], holds: vec![hold] }),
        }
    }
    batches
}

// A renewal on its way: before it is answered nothing else leaves for its lease, so that it cannot arrive behind a release. Its
// time is bounded by the clock, since whoever sent it may not be polled any more.

/// A renewal on its way. Dropped, its outcome is unknown.
#[derive(Debug)]
pub(super) struct Renewing {
    lease: Arc<Lease>,
    until: LeaseInstant,
}

impl Renewing {
    /// Makes a renewal that the lease [found to be due](Lease::due).
    pub(super) fn due(lease: Arc<Lease>, until: LeaseInstant) -> Self {
        Self { lease, until }
    }

    /// Makes a renewal that takes at most `limit`, once no other is on its way, and may extend the lease to `ttl`;
    /// without a ttl it only keeps others from leaving.
    pub(super) async fn begin(lease: &Arc<Lease>, ttl: Option<Ttl>, limit: Duration) -> Self {
        loop {
            {
                // Looked at and marked under one lock, so that no second one begins; the lock is free before the wait.
                let (mut state, now) = (lease.lock(), LeaseInstant::now());
                if state.on_its_way(now).is_none() {
                    let until = now.after(limit);
                    state.begin_renewal(until, ttl);
                    return Self { lease: Arc::clone(lease), until };
                }
            }
            quiet(lease).await;
        }
    }

    pub(super) fn lease(&self) -> &Arc<Lease> {
        &self.lease
    }

    pub(super) fn until(&self) -> LeaseInstant {
        self.until
    }

    /// Applies the answer. Returns a proven loss, with the entries for which a request may still be on its way: those
    /// must be undone nevertheless.
    pub(super) fn answered(self, verdict: Verdict) -> Option<(LostReason, Vec<Entry>)> {
        self.answered_at(verdict, LeaseInstant::now())
    }

    /// Applies an answer as [`answered`](Self::answered), if it was there by `now`.
    fn answered_at(self, verdict: Verdict, now: LeaseInstant) -> Option<(LostReason, Vec<Entry>)> {
        let mut state = self.lease.lock();
        // Ended whatever the answer says: releases that wait for it continue.
        let in_time = state.end_renewal(self.until);
        if !matches!(self.lease.observe_at(&mut state, now), HoldState::Held | HoldState::Suspect) {
            return None;
        }
        match verdict {
            Verdict::Confirmed { sent_at, believable } => {
                // A late answer proves the longer lease as well; the next renewal is planned by the one that replaced
                // it.
                state.deadline = state.deadline.max(sent_at.after(believable));
                if in_time {
                    state.phase = HoldState::Held;
                    state.plan_renewal(sent_at, now);
                }
            }
            Verdict::Unknown if in_time => {
                state.phase = HoldState::Suspect;
                state.plan_retry(now);
            }
            Verdict::Unknown => {} // the next one is on its way, or was answered
            Verdict::Lost => {
                // The backend has nothing of these entries, but a request without an answer could take the lock again.
                let mut entries = state.entries.take();
                entries.retain(|entry| entry.past == Past::Unanswered);
                self.lease.end(&mut state, HoldState::Lost(LostReason::Gone));
                return Some((LostReason::Gone, entries));
            }
        }
        None
    }
}

impl Drop for Renewing {
    fn drop(&mut self) {
        self.lease.lock().end_renewal(self.until);
    }
}

/// Waits for the answer to a renewal until its time limit, and does not poll it afterwards: it could leave after a
/// release.
pub(super) async fn in_time<T>(until: LeaseInstant, call: impl Future<Output = T>) -> Option<T> {
    let mut call = pin!(call);
    let polled = poll_fn(|cx| {
        if until.remaining().is_zero() {
            return Poll::Ready(None);
        }
        call.as_mut().poll(cx).map(Some)
    });
    runtime::timeout(until.remaining(), polled).await.flatten()
}

// When a handed-over lease is extended.

/// The time at which a waiter confirms a lease that was handed over.
///
/// A release may hand the lock over to the first waiter without a request, as a lease of at most 2 s. A renewal then
/// extends it to the requested ttl. Work that blocks the only thread of its runtime would keep that renewal from
/// leaving.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Confirmation {
    /// [`First`](Self::First) on a runtime with one worker thread, [`Behind`](Self::Behind) on one with several.
    #[default]
    ByRuntime,
    /// Before `acquire` returns: one more round trip for each lock that was waited for.
    First,
    /// 2 ms after `acquire` has returned, in the background. Work that blocks every worker of the runtime just then
    /// loses the lock after 2 s.
    Behind,
}

impl Confirmation {
    /// Returns true if `acquire` confirms before it returns, on the current runtime.
    pub(crate) fn comes_first(self) -> bool {
        match self {
            Self::First => true,
            Self::Behind => false,
            Self::ByRuntime => Handle::try_current().is_ok_and(|runtime| has_one_worker(&runtime)),
        }
    }
}

/// Returns true if no other worker drives the runtime when a task blocks its worker.
pub(super) fn has_one_worker(runtime: &Handle) -> bool {
    runtime.metrics().num_workers() == 1
}

// What the renewer has to look at, by time.

/// One entry for each managed lease, with or without a planned check. The checks of a moment are a list: of a
/// millisecond if it is near, of more if it is far. Far checks may be early, by one part in 256.
#[derive(Debug, Default)]
pub(crate) struct TimerQueue {
    entries: Vec<Slot>,
    /// The first free entry; the next one is its `next`.
    free: Option<u32>,
    /// The first entry of each moment, by its millisecond.
    looks: BTreeMap<u64, u32>,
}

#[derive(Debug)]
struct Slot {
    lease: Weak<Lease>,
    /// The millisecond of the check; 0 when none is planned.
    at: u64,
    before: u32,
    next: u32,
}

impl TimerQueue {
    /// Plans a check of `lease`, unless a sooner one is planned; returns true if it did.
    pub(crate) fn plan(&mut self, lease: &Arc<Lease>, at: LeaseInstant, now: LeaseInstant) -> bool {
        let at = moment(at.millis() + 1, now.millis()); // a near one not before its time
        let mut index = lease.place.get();
        if index == NOT_QUEUED {
            index = self.enter(lease);
        } else if (1..=at).contains(&self.entry(index).at) {
            return false;
        }
        self.unlink(index);
        let next = self.looks.insert(at, index).unwrap_or(NOT_QUEUED);
        if next != NOT_QUEUED {
            self.entry(next).before = index;
        }
        let entry = self.entry(index);
        (entry.at, entry.before, entry.next) = (at, NOT_QUEUED, next);
        true
    }

    /// Removes a lease.
    pub(crate) fn remove(&mut self, lease: &Lease) {
        let index = lease.place.get();
        if index != NOT_QUEUED {
            lease.place.set(NOT_QUEUED);
            self.leave(index);
        }
    }

    /// Returns the time of the next check.
    pub(crate) fn first(&self) -> Option<LeaseInstant> {
        self.looks.first_key_value().map(|(at, _)| LeaseInstant::at_millis(*at))
    }

    /// Returns the leases to check by `horizon`, if there are any by `now`. No check of them is planned afterwards.
    pub(crate) fn take(&mut self, now: LeaseInstant, horizon: LeaseInstant) -> Vec<Arc<Lease>> {
        let mut taken = Vec::new();
        if self.first().is_none_or(|first| first > now) {
            return taken;
        }
        while let Some(first) = self.looks.first_entry().filter(|first| *first.key() <= horizon.millis()) {
            let mut index = first.remove();
            while index != NOT_QUEUED {
                let entry = self.entry(index);
                let next = std::mem::replace(&mut entry.next, NOT_QUEUED);
                (entry.at, entry.before) = (0, NOT_QUEUED);
                match entry.lease.upgrade() {
                    Some(lease) => taken.push(lease),
                    None => self.leave(index),
                }
                index = next;
            }
        }
        taken
    }

    /// Returns every managed lease.
    pub(crate) fn leases(&self) -> Vec<Arc<Lease>> {
        self.entries.iter().filter_map(|entry| entry.lease.upgrade()).collect()
    }

    /// Returns the first result of `look` among these leases.
    pub(crate) fn find<T>(&self, mut look: impl FnMut(&Arc<Lease>) -> Option<T>) -> Option<T> {
        self.entries.iter().find_map(|entry| look(&entry.lease.upgrade()?))
    }

    fn entry(&mut self, index: u32) -> &mut Slot {
        &mut self.entries[index as usize]
    }

    fn enter(&mut self, lease: &Arc<Lease>) -> u32 {
        let entry = Slot { lease: Arc::downgrade(lease), at: 0, before: NOT_QUEUED, next: NOT_QUEUED };
        let index = match self.free {
            Some(index) => {
                let freed = std::mem::replace(self.entry(index), entry);
                self.free = (freed.next != NOT_QUEUED).then_some(freed.next);
                index
            }
            None => {
                if self.entries.len() == self.entries.capacity() {
                    self.entries.reserve_exact(self.entries.len() / 4 + 4); // doubling would waste more
                }
                self.entries.push(entry);
                (self.entries.len() - 1) as u32 // four thousand million leases do not fit in memory
            }
        };
        lease.place.set(index);
        index
    }

    fn leave(&mut self, index: u32) {
        self.unlink(index);
        let next = self.free.unwrap_or(NOT_QUEUED);
        *self.entry(index) = Slot { lease: Weak::new(), at: 0, before: NOT_QUEUED, next };
        self.free = Some(index);
    }

    fn unlink(&mut self, index: u32) {
        let entry = self.entry(index);
        let (at, before, next) = (entry.at, entry.before, entry.next);
        if at == 0 {
            return;
        }
        (entry.at, entry.before, entry.next) = (0, NOT_QUEUED, NOT_QUEUED);
        if next != NOT_QUEUED {
            self.entry(next).before = before;
        }
        if before != NOT_QUEUED {
            self.entry(before).next = next;
        } else if next != NOT_QUEUED {
            self.looks.insert(at, next);
        } else {
            self.looks.remove(&at);
        }
    }
}

/// Returns the moment whose list a check belongs to: near checks have a millisecond each, far ones share.
fn moment(at: u64, now: u64) -> u64 {
    let width = 1 << (at.saturating_sub(now) / 256).max(1).ilog2();
    at - at % width
}

#[cfg(test)]
mod tests;
