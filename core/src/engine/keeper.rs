//! The one timer of a client: renews leases in batches, and ends those whose time is up.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::sync::Notify;

use super::attempt::CHASE;
use super::lease::{Arming, Due, Entry, Lease, LeaseKey, Past, Verdict};
use super::outcome::LostReason;
use super::reaper::{Cleanup, Reaper, Undo};
use crate::clock::LeaseInstant;
use crate::driver::{Backend, Renewed};
use crate::error::{Error, ErrorKind, Result};
use crate::telemetry;
use crate::ttl::{DriftBound, Ttl};

/// Renewals due within this span of each other leave together.
const BATCH_WINDOW: Duration = Duration::from_millis(5);
/// The longest sleep while there are leases. Timers stand still in suspend and leases do not: this is how late after a
/// resume the leases that ended in it are noticed.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(crate) struct Keeper {
    looks: Mutex<Looks>,
    order: AtomicU64,
    sooner: Notify,
    stopped: AtomicBool,
}

/// Which look at a lease: when, and a number that makes it unique.
pub(crate) type LookKey = (LeaseInstant, u64);

#[derive(Debug, Default)]
struct Looks {
    /// One for each live lease.
    due: BTreeMap<LookKey, Weak<Lease>>,
    /// Leases that the task looks at now, and has not planned to look at again.
    in_hand: Vec<Weak<Lease>>,
    /// When the task wakes by itself.
    sleeping_until: Option<LeaseInstant>,
}

impl Keeper {
    /// Looks after `lease` from now on, or sooner than planned.
    pub(crate) fn watch_over(&self, lease: &Arc<Lease>) {
        let Some(at) = lease.next_look() else { return };
        let key = (at, self.order.fetch_add(1, Ordering::Relaxed));
        let Arming::Sooner { instead_of } = lease.arm(key) else { return };
        let mut looks = self.looks();
        if let Some(old) = instead_of {
            looks.due.remove(&old);
        }
        looks.due.insert(key, Arc::downgrade(lease));
        if looks.sleeping_until.is_none_or(|until| at < until) {
            drop(looks);
            self.sooner.notify_one();
        }
    }

    /// Looks no more after a lease that has ended.
    pub(crate) fn forget(&self, lease: &Lease) {
        if let Some(key) = lease.disarm() {
            self.looks().due.remove(&key);
        }
    }

    /// Every lease that is looked after.
    pub(crate) fn leases(&self) -> Vec<Arc<Lease>> {
        let looks = self.looks();
        looks.due.values().chain(&looks.in_hand).filter_map(Weak::upgrade).collect()
    }

    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.sooner.notify_one();
    }

    fn looks(&self) -> MutexGuard<'_, Looks> {
        self.looks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes out what is due by `horizon`, if anything is due by `now`.
    fn take_due(&self, now: LeaseInstant, horizon: LeaseInstant) -> Vec<(LookKey, Weak<Lease>)> {
        let mut looks = self.looks();
        let mut taken = Vec::new();
        if looks.due.first_key_value().is_some_and(|((at, _), _)| *at <= now) {
            while let Some(first) = looks.due.first_entry().filter(|first| first.key().0 <= horizon) {
                taken.push(first.remove_entry());
            }
        }
        looks.in_hand.extend(taken.iter().map(|(_, lease)| Weak::clone(lease)));
        taken
    }

    /// When the next look is due; from now on a sooner one wakes the task.
    fn sleep_plan(&self) -> Option<LeaseInstant> {
        let mut looks = self.looks();
        looks.in_hand.clear();
        looks.sleeping_until = looks.due.first_key_value().map(|((at, _), _)| *at);
        looks.sleeping_until
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

type Answer = Pin<Box<dyn Future<Output = Vec<(Arc<Lease>, Verdict)>> + Send>>;

impl Round {
    /// Runs until the client is gone.
    pub(crate) async fn run(self) {
        let mut on_their_way: FuturesUnordered<Answer> = FuturesUnordered::new();
        while !self.keeper.stopped.load(Ordering::Acquire) {
            let due = self.look();
            self.send(due, &mut on_their_way);
            let next = self.keeper.sleep_plan();
            tokio::select! {
                Some(answers) = on_their_way.next() => answers.into_iter().for_each(|(lease, verdict)| {
                    self.take_in(&lease, verdict);
                }),
                () = sleep_towards(next) => {}
                () = self.keeper.sooner.notified() => {}
            }
        }
    }

    /// Looks at every lease that is due; returns those to renew.
    fn look(&self) -> Vec<(Arc<Lease>, Ttl)> {
        let now = LeaseInstant::now();
        let horizon = now.after(BATCH_WINDOW);
        let mut renewals = Vec::new();
        for (key, lease) in self.keeper.take_due(now, horizon) {
            let Some(lease) = lease.upgrade() else { continue };
            match lease.due(key, horizon) {
                Due::Renew(ttl) => {
                    self.keeper.watch_over(&lease);
                    renewals.push((lease, ttl));
                }
                Due::Later => self.keeper.watch_over(&lease),
                Due::Ended(reason, entries) => self.ended(&lease, reason, entries),
                Due::Nothing => {}
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

    fn take_in(&self, lease: &Arc<Lease>, verdict: Verdict) {
        if let Some((reason, entries)) = lease.answer(verdict) {
            self.ended(lease, reason, entries);
        }
        self.keeper.watch_over(lease);
    }

    /// Sends renewals in batches, each on its own, so that a slow answer holds up nobody else's.
    fn send(&self, due: Vec<(Arc<Lease>, Ttl)>, on_their_way: &mut FuturesUnordered<Answer>) {
        let (mut plain, mut reentrant) = (Vec::new(), Vec::new());
        for (lease, ttl) in due {
            match lease.renewal(ttl) {
                Ok(renewal) => plain.push((lease, renewal)),
                Err(renewal) => reentrant.push((lease, renewal)),
            }
        }
        let most = self.backend.locks().capabilities().renew_batch.max(1);
        for batch in batches(plain, most) {
            let (driver, limit) = (Arc::clone(self.backend.locks()), self.limit(batch.1.iter().map(|r| r.ttl)));
            on_their_way.push(self.answered(batch.0, limit, async move { driver.renew(&batch.1).await }));
        }
        let Some(driver) = self.backend.reentrant() else { return };
        for batch in batches(reentrant, most) {
            let (driver, limit) = (Arc::clone(driver), self.limit(batch.1.iter().map(|r| r.ttl)));
            on_their_way.push(self.answered(batch.0, limit, async move { driver.renew(&batch.1).await }));
        }
    }

    /// How long a renewal may take: a hung one must leave time for another try.
    fn limit(&self, ttls: impl Iterator<Item = Ttl>) -> Duration {
        let shortest = ttls.map(Ttl::get).min().unwrap_or(self.op_timeout);
        self.op_timeout.min((shortest / 4).max(Duration::from_millis(10)))
    }

    fn answered(
        &self,
        leases: Vec<Arc<Lease>>,
        limit: Duration,
        call: impl Future<Output = Vec<Result<Renewed>>> + Send + 'static,
    ) -> Answer {
        let drift = self.drift;
        let mut unanswered = Unanswered(leases);
        Box::pin(async move {
            let sent_at = LeaseInstant::before_send();
            let results = tokio::time::timeout(limit, call).await.unwrap_or_default();
            let mut results = results.into_iter();
            let leases = std::mem::take(&mut unanswered.0);
            let verdict = |lease: Arc<Lease>| {
                let answer = results.next().unwrap_or_else(|| {
                    Err(Error::new(ErrorKind::Indeterminate, format!("no answer to a renewal within {limit:?}")))
                });
                let verdict = judge(&lease, sent_at, answer, drift);
                (lease, verdict)
            };
            leases.into_iter().map(verdict).collect()
        })
    }
}

/// Renewals on their way. When the task ends with its runtime, their answers will never be known.
struct Unanswered(Vec<Arc<Lease>>);

impl Drop for Unanswered {
    fn drop(&mut self) {
        for lease in &self.0 {
            lease.answer(Verdict::Unknown);
        }
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

fn batches<R>(all: Vec<(Arc<Lease>, R)>, most: usize) -> impl Iterator<Item = (Vec<Arc<Lease>>, Vec<R>)> {
    let mut all = all.into_iter();
    std::iter::from_fn(move || {
        let batch: (Vec<_>, Vec<_>) = all.by_ref().take(most).unzip();
        (!batch.0.is_empty()).then_some(batch)
    })
}

async fn sleep_towards(at: Option<LeaseInstant>) {
    match at {
        Some(at) => tokio::time::sleep(at.remaining().min(LONGEST_SLEEP)).await,
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
        let until = LeaseInstant::now().after(entry.ttl.get() * 2 + chase);
        let undo = Undo::Lease { lease: Arc::clone(lease), past: entry.past, _mark: lease.undoing.begin() };
        Self { name: lease.name().clone(), owner, token: entry.token, undo, until }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::super::lease::Upkeep;
    use super::super::outcome::HoldState;
    use super::*;
    use crate::driver::Hold;
    use crate::name::LockName;
    use crate::token::{FencingToken, OwnerToken};

    fn lease(ttl: Duration) -> Arc<Lease> {
        let (token, ttl) = (OwnerToken::random(), Ttl::new(ttl).unwrap());
        let entry = Entry { token, ttl, upkeep: Upkeep::Renewed, cap: None, past: Past::Answered };
        let key = LeaseKey::Plain(Hold { name: LockName::new("a").unwrap(), token });
        let now = LeaseInstant::now();
        Arc::new(Lease::new(key, FencingToken::new(1).unwrap(), now, now.after(ttl.get()), entry))
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_in_hand_is_still_looked_after() {
        let (keeper, lease) = (Keeper::default(), lease(Duration::from_secs(30)));
        keeper.watch_over(&lease);
        tokio::time::advance(Duration::from_secs(20)).await;
        let now = LeaseInstant::now();
        assert_eq!(keeper.take_due(now, now).len(), 1);
        assert_eq!(keeper.leases().len(), 1, "whoever ends all leases must not miss one");
        keeper.sleep_plan();
        assert!(keeper.leases().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_behind_the_deadline_revives_nothing() {
        let ttl = Duration::from_secs(30);
        let (keeper, lease) = (Keeper::default(), lease(ttl));
        let sent_at = LeaseInstant::before_send();
        keeper.watch_over(&lease);
        tokio::time::advance(ttl).await;
        assert!(lease.answer(Verdict::Confirmed { sent_at, believable: ttl * 2 }).is_none());
        assert_eq!(lease.state(), HoldState::Lost(LostReason::Expired), "although nobody had looked before");
    }

    #[tokio::test(start_paused = true)]
    async fn the_clock_is_looked_at_every_second() {
        let start = Instant::now();
        sleep_towards(Some(LeaseInstant::now().after(Duration::from_secs(3600)))).await;
        assert!(start.elapsed() <= LONGEST_SLEEP + Duration::from_millis(2), "{:?}", start.elapsed());
    }
}
