//! The one timer of a client: renews leases in batches, and ends those whose time is up.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::runtime::Handle;
use tokio::sync::Notify;

use super::agenda::Agenda;
use super::attempt::CHASE;
use super::confirmation::has_one_worker;
use super::entry::{Entry, LeaseKey, Past};
use super::lease::{Due, Lease};
use super::lease_state::Verdict;
use super::reaper::{Cleanup, Reaper, Undo};
use super::renewing::{Renewing, in_time};
use super::undoing::UndoMark;
use crate::alarm::Alarm;
use crate::driver::{Backend, Renewed};
use crate::telemetry;
use crate::value::clock::LeaseInstant;
use crate::value::error::{Error, ErrorKind, Result};
use crate::value::hold_state::LostReason;
use crate::value::ttl::{DriftBound, Ttl};

/// Renewals due within this span of each other leave together.
const BATCH_WINDOW: Duration = Duration::from_millis(10);
/// The longest sleep while there are leases. Timers stand still in suspend and leases do not: this is how late after a
/// resume the leases that ended in it are noticed. A program that blocks some workers may also leave the others asleep, with
/// nobody to read answers and to look at the timers of drivers: for at most as long.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(crate) struct Keeper {
    plan: Mutex<Plan>,
    /// Wakes the task.
    bell: Arc<Notify>,
    stopped: AtomicBool,
}

#[derive(Debug, Default)]
struct Plan {
    agenda: Agenda,
    /// When the task wakes by itself.
    wakes_at: Option<LeaseInstant>,
    /// What wakes it then, if its runtime has several workers. A sooner look only sets the alarm: whoever has just got a lease
    /// may block its worker next, and a task that it woke would wait for that worker.
    alarm: Option<Alarm>,
    by_alarm: bool,
}

impl Plan {
    /// When the task looks next; from now on a sooner look changes that.
    fn sleep(&mut self, bell: &Arc<Notify>) -> Option<LeaseInstant> {
        let longest = LeaseInstant::now().after(LONGEST_SLEEP);
        self.wakes_at = self.agenda.first().map(|first| first.min(longest));
        let left = self.wakes_at.filter(|_| self.by_alarm).map(LeaseInstant::remaining);
        self.alarm = left.and_then(|left| Alarm::set(Instant::now() + left, bell));
        self.wakes_at
    }
}

impl Keeper {
    /// Looks after `lease` from now on, or sooner than planned; no more if it has ended.
    pub(crate) fn watch_over(&self, lease: &Arc<Lease>) {
        let Some(at) = lease.next_look() else { return self.forget(lease) };
        let mut plan = self.plan();
        if plan.agenda.plan(lease, at, LeaseInstant::now()) && plan.wakes_at.is_none_or(|wakes_at| at < wakes_at) {
            plan.sleep(&self.bell);
            if plan.alarm.is_none() {
                drop(plan);
                self.bell.notify_one();
            }
        }
    }

    /// Looks no more after a lease that has ended.
    pub(crate) fn forget(&self, lease: &Lease) {
        self.plan().agenda.remove(lease);
    }

    /// Every lease that is looked after.
    pub(crate) fn leases(&self) -> Vec<Arc<Lease>> {
        self.plan().agenda.leases()
    }

    /// What the first lease that is looked after has to say, of those that say something.
    pub(crate) fn find<T>(&self, look: impl FnMut(&Arc<Lease>) -> Option<T>) -> Option<T> {
        self.plan().agenda.find(look)
    }

    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.bell.notify_one();
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The keeper's task: the timer, and the renewals on their way.
pub(crate) struct Round {
    pub(crate) keeper: Arc<Keeper>,
    pub(crate) reaper: Arc<Reaper>,
    pub(crate) backend: Backend,
    pub(crate) drift: DriftBound,
    pub(crate) op_timeout: Duration,
}

type Answer = Pin<Box<dyn Future<Output = Vec<(Renewing, Verdict)>> + Send>>;

impl Round {
    /// Runs until the client is gone.
    pub(crate) async fn run(self) {
        self.keeper.plan().by_alarm = !has_one_worker(&Handle::current());
        let mut on_their_way: FuturesUnordered<Answer> = FuturesUnordered::new();
        while !self.keeper.stopped.load(Ordering::Acquire) {
            let due = self.look();
            self.send(due, &mut on_their_way);
            let next = self.keeper.plan().sleep(&self.keeper.bell);
            tokio::select! {
                Some(answers) = on_their_way.next() => self.take_in(answers),
                () = sleep_until(next) => {}
                () = self.keeper.bell.notified() => {}
            }
        }
    }

    /// Looks at every lease that is due; returns those to renew. Their answers, which come or are given up before long,
    /// bring the next look.
    fn look(&self) -> Vec<(Renewing, Ttl)> {
        let now = LeaseInstant::now();
        let due = self.keeper.plan().agenda.take(now, now.after(BATCH_WINDOW));
        let mut renewals = Vec::new();
        for lease in due {
            match lease.due(now, |ttl| self.limit(ttl)) {
                Due::Renew(ttl, until) => renewals.push((Renewing::due(lease, until), ttl)),
                Due::Later => self.keeper.watch_over(&lease),
                Due::Ended(reason, entries) => self.ended(&lease, reason, entries),
                Due::Nothing => self.keeper.forget(&lease),
            }
        }
        renewals
    }

    fn ended(&self, lease: &Arc<Lease>, reason: LostReason, entries: Vec<Entry>) {
        telemetry::lost(lease.name(), lease.fence, reason);
        for entry in entries {
            self.reaper.push(Cleanup::of_lease(lease, &entry));
        }
    }

    fn take_in(&self, answers: Vec<(Renewing, Verdict)>) {
        for (renewing, verdict) in answers {
            let lease = Arc::clone(renewing.lease());
            if let Some((reason, entries)) = renewing.answered(verdict) {
                self.ended(&lease, reason, entries);
            }
            self.keeper.watch_over(&lease);
        }
    }

    /// Sends renewals in batches, each on its own, so that a slow answer holds up nobody else's.
    fn send(&self, due: Vec<(Renewing, Ttl)>, on_their_way: &mut FuturesUnordered<Answer>) {
        let (mut plain, mut reentrant) = (Vec::new(), Vec::new());
        for (renewing, ttl) in due {
            match renewing.lease().renewal(ttl) {
                Ok(renewal) => plain.push((ttl, renewing, renewal)),
                Err(renewal) => reentrant.push((ttl, renewing, renewal)),
            }
        }
        let most = self.backend.locks().capabilities().renew_batch.max(1);
        for Batch { ttl, sent, renewals } in batches(plain, most) {
            let driver = Arc::clone(self.backend.locks());
            on_their_way.push(self.answered(sent, self.limit(ttl), async move { driver.renew(&renewals).await }));
        }
        let Some(driver) = self.backend.reentrant() else { return };
        for Batch { ttl, sent, renewals } in batches(reentrant, most) {
            let driver = Arc::clone(driver);
            on_their_way.push(self.answered(sent, self.limit(ttl), async move { driver.renew(&renewals).await }));
        }
    }

    /// How long a renewal may take: a hung one must leave time for another try.
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
        let drift = self.drift;
        Box::pin(async move {
            let Some(until) = sent.iter().map(Renewing::until).min() else { return Vec::new() };
            let sent_at = LeaseInstant::before_send();
            let mut results = in_time(until, call).await.unwrap_or_default().into_iter();
            let verdict = |renewing: Renewing| {
                let answer = results.next().unwrap_or_else(|| {
                    Err(Error::new(ErrorKind::Indeterminate, format!("no answer to a renewal within {limit:?}")))
                });
                let verdict = judge(renewing.lease(), sent_at, answer, drift);
                (renewing, verdict)
            };
            sent.into_iter().map(verdict).collect()
        })
    }
}

fn judge(lease: &Lease, sent_at: LeaseInstant, answer: Result<Renewed>, drift: DriftBound) -> Verdict {
    match answer {
        Ok(Renewed::Extended { ttl }) => match drift.believable(ttl) {
            Some(believable) => Verdict::Confirmed { sent_at, believable },
            None => Verdict::Unknown,
        },
        Ok(Renewed::Lost) => Verdict::Lost,
        Err(error) if error.kind() == ErrorKind::NotHeld => Verdict::Lost,
        Err(error) => {
            telemetry::renewal_failed(lease.name(), &error);
            Verdict::Unknown
        }
    }
}

/// Renewals that leave together. They are of one ttl, so that none is given up before its time for another's sake.
struct Batch<S, R> {
    ttl: Ttl,
    sent: Vec<S>,
    renewals: Vec<R>,
}

fn batches<S, R>(mut all: Vec<(Ttl, S, R)>, most: usize) -> Vec<Batch<S, R>> {
    all.sort_by_key(|(ttl, ..)| *ttl);
    let mut batches: Vec<Batch<S, R>> = Vec::new();
    for (ttl, one, renewal) in all {
        match batches.last_mut() {
            Some(batch) if batch.ttl == ttl && batch.sent.len() < most => {
                batch.sent.push(one);
                batch.renewals.push(renewal);
            }
            _ => batches.push(Batch { ttl, sent: vec![one], renewals: vec![renewal] }),
        }
    }
    batches
}

pub(super) async fn sleep_until(at: Option<LeaseInstant>) {
    match at {
        Some(at) => tokio::time::sleep(at.remaining()).await,
        None => std::future::pending().await,
    }
}

impl Cleanup {
    /// The undoing of one entry of a lease. It matters until the lease has surely ended at the backend.
    pub(crate) fn of_lease(lease: &Arc<Lease>, entry: &Entry) -> Self {
        let owner = match &lease.key {
            LeaseKey::Plain(_) => None,
            LeaseKey::Reentrant { owner, .. } => Some(*owner),
        };
        let chase = match entry.past {
            Past::Answered => Duration::from_secs(5),
            Past::Unanswered => CHASE,
        };
        let now = LeaseInstant::now();
        let from = entry.least.map_or(now, |least| least.max(now));
        let until = from.after(entry.ttl.get() * 2).max(lease.possible_end()).after(chase);
        let undo = Undo::Lease { mark: UndoMark::of(lease), past: entry.past, least: entry.least };
        Self { name: lease.name().clone(), owner, token: lease.token_of(entry), undo, until, done: None }
    }
}

#[cfg(test)]
mod tests {
    use super::super::lease::tests::lease;
    use super::*;
    use crate::value::hold_state::HoldState;

    #[tokio::test(start_paused = true)]
    async fn a_lease_in_hand_is_still_looked_after() {
        let (keeper, lease) = (Keeper::default(), lease(Duration::from_secs(30)));
        keeper.watch_over(&lease);
        tokio::time::advance(Duration::from_secs(20)).await;
        let now = LeaseInstant::now();
        assert_eq!(keeper.plan().agenda.take(now, now).len(), 1);
        assert_eq!(keeper.leases().len(), 1, "whoever ends all leases must not miss one");
        assert_eq!(keeper.plan().sleep(&keeper.bell), None);
        keeper.forget(&lease);
        assert!(keeper.leases().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_behind_the_deadline_revives_nothing() {
        let ttl = Duration::from_secs(30);
        let (keeper, lease) = (Keeper::default(), lease(ttl));
        let sent_at = LeaseInstant::before_send();
        keeper.watch_over(&lease);
        tokio::time::advance(ttl).await;
        let late = Renewing::due(Arc::clone(&lease), sent_at.after(ttl));
        assert!(late.answered(Verdict::Confirmed { sent_at, believable: ttl * 2 }).is_none());
        assert_eq!(lease.state(), HoldState::Lost(LostReason::Expired), "although nobody had looked before");
    }

    #[tokio::test(start_paused = true)]
    async fn a_batch_is_of_one_ttl() {
        let ttl = |seconds| Ttl::new(Duration::from_secs(seconds)).unwrap();
        let all = [3, 1, 3, 3, 1, 3, 2].map(|seconds| (ttl(seconds), (), seconds)).to_vec();
        let batches: Vec<_> = batches(all, 3).into_iter().map(|batch| (batch.ttl, batch.renewals)).collect();
        let expected = [(ttl(1), vec![1; 2]), (ttl(2), vec![2]), (ttl(3), vec![3; 3]), (ttl(3), vec![3])];
        assert_eq!(batches, expected);
    }

    #[tokio::test(start_paused = true)]
    async fn the_clock_is_looked_at_every_second() {
        let (keeper, lease) = (Keeper::default(), lease(Duration::from_secs(30)));
        keeper.watch_over(&lease);
        assert_eq!(keeper.plan().sleep(&keeper.bell), Some(LeaseInstant::now().after(LONGEST_SLEEP)));
    }
}
