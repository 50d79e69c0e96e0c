//! The common state of all handles and guards of one client.

use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError, Weak};
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::sync::{Notify, Semaphore, SemaphorePermit, watch};
use tokio::time::timeout;

use crate::driver::{Backend, ReentrantHold};
use crate::engine::ask::Ask;
use crate::engine::lease::{Entry, Kind, Lease, LeaseKey};
use crate::engine::reaper::{Calls, Cleanup, Reaper, reaches_zero};
use crate::engine::renewer::{Confirmation, FailureLog, Renewer, Round};
use crate::meters::locks::LockMeters;
use crate::meters::queues::AllQueues;
use crate::meters::{Level, Only};
use crate::runtime::{Background, waiting_within};
use crate::telemetry;
use crate::value::error::{Error, ErrorKind, LockName, Result};
use crate::value::time::{DriftBound, HoldState, LeaseInstant, LostReason, Ttl};
use crate::value::token::{FencingToken, OwnerId};

/// The settings of a client.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) ttl: Ttl,
    pub(crate) drift: DriftBound,
    pub(crate) op_timeout: Duration,
    pub(crate) presence: Duration,
    /// The time that a lock is reserved for a parked message.
    pub(crate) parked_turn: Duration,
    pub(crate) max_holds: usize,
    pub(crate) holders_per_grant: u32,
    /// True if tasks on the same terms share a place in the backend's queue.
    pub(crate) shares: bool,
    pub(crate) confirmation: Confirmation,
    /// The number of lock names, and of queue names, in metrics.
    pub(crate) metric_names: Only<usize>,
}

impl Config {
    /// Returns the time that a waiter past its deadline waits until the backend removes it from the queue.
    pub(crate) fn leave_limit(&self) -> Duration {
        self.op_timeout / 4
    }
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) backend: Backend,
    pub(crate) config: Config,
    pub(crate) meters: LockMeters,
    pub(crate) queue_meters: AllQueues,
    pub(crate) renewer: Arc<Renewer>,
    pub(crate) reaper: Arc<Reaper>,
    pub(crate) under_way: UnderWay,
    pub(crate) owners: ReentrantLeases,
    /// The gates of requests that take locks and of those that release them: releases do not wait for acquisitions.
    pub(crate) taking: Gate,
    pub(crate) giving: Gate,
    /// Attempts, holds and clean-ups under way, against `max_holds`.
    busy: Arc<AtomicUsize>,
    pub(crate) holds: AtomicUsize,
    pub(crate) waiters: AtomicUsize,
    /// How many requests for locks the backend has answered.
    pub(crate) answers: AtomicU64,
    closing: watch::Sender<bool>,
    pub(crate) background: Background,
    begun: Once,
}

impl Shared {
    pub(crate) fn new(backend: Backend, config: Config) -> Self {
        let meters = LockMeters::new(backend.locks().driver(), &config.metric_names);
        let queue_meters = AllQueues::new(backend.locks().driver(), &config.metric_names);
        let busy = Arc::default();
        Self {
            renewer: Arc::default(),
            reaper: Arc::new(Reaper::new(meters.cleanups(), Arc::clone(&busy))),
            under_way: UnderWay::default(),
            owners: ReentrantLeases::default(),
            taking: Gate::new(meters.taking()),
            giving: Gate::new(meters.giving_back()),
            backend,
            config,
            meters,
            queue_meters,
            busy,
            holds: AtomicUsize::new(0),
            waiters: AtomicUsize::new(0),
            answers: AtomicU64::new(0),
            closing: watch::Sender::new(false),
            background: Background::default(),
            begun: Once::new(),
        }
    }

    /// Starts the renewer and the reaper unless they run, on a runtime that uses the client as this one does.
    pub(crate) fn start(&self) -> Result<()> {
        self.background.visit()?;
        self.begun.call_once(|| {
            let (renewer, reaper, backend) =
                (Arc::clone(&self.renewer), Arc::clone(&self.reaper), self.backend.clone());
            let (drift, op_timeout, meters) = (self.config.drift, self.config.op_timeout, self.meters.clone());
            self.background.run(move || {
                // What a task looked after whose runtime ended is still here.
                renewer.leases().iter().for_each(|lease| renewer.watch_over(lease));
                let (renewer, reaper, backend) = (Arc::clone(&renewer), Arc::clone(&reaper), backend.clone());
                Round {
                    renewer,
                    reaper,
                    backend,
                    drift,
                    op_timeout,
                    meters: meters.clone(),
                    failures: FailureLog::default(),
                }
                .run()
            });
            let (reaper, backend) = (Arc::clone(&self.reaper), self.backend.clone());
            self.background.run(move || Arc::clone(&reaper).run(Calls { backend: backend.clone(), drift, op_timeout }));
        });
        Ok(())
    }

    pub(crate) fn driver(&self) -> &'static str {
        self.backend.locks().driver()
    }

    pub(crate) fn ensure_open(&self) -> Result<()> {
        if *self.closing.borrow() {
            return Err(Error::new(ErrorKind::Closed, "the client was closed"));
        }
        Ok(())
    }

    /// Refuses a ttl that the backend does not keep, and one of which the drift bound leaves nothing.
    pub(crate) fn check_ttl(&self, kind: Kind, ttl: Ttl) -> Result<()> {
        let range = match kind {
            Kind::Plain | Kind::Reentrant(_) => self.backend.locks().capabilities().ttl,
            Kind::Permits(_) => self.backend.required_permits()?.capabilities().ttl,
        };
        range.check(ttl)?;
        if self.config.drift.believable(ttl.get()).is_none() {
            let text = format!("a ttl of {:?} is shorter than the drift bound", ttl.get());
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        Ok(())
    }

    /// Refuses requests that the backend cannot keep, and all requests of a closed client.
    pub(crate) fn check(&self, ask: &Ask) -> Result<()> {
        self.ensure_open()?;
        self.check_ttl(ask.wanted.into(), ask.ttl)?;
        if let Some(least) = ask.at_least {
            self.check_least(least)?;
        }
        self.start()
    }

    /// Checks that one renewal can keep the lease for as long as `least`.
    fn check_least(&self, least: Duration) -> Result<()> {
        let range = self.backend.locks().capabilities().ttl;
        let wanted = if least > Ttl::MAX { least } else { self.config.drift.covering(least) };
        if range.at_least(wanted).is_none() {
            let text = format!(
                "at_least of {least:?} needs a lease of {wanted:?}, and this backend supports none above {:?}",
                range.max
            );
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        Ok(())
    }

    /// Resolves when the client is closed.
    pub(crate) async fn closed(&self) {
        let mut closing = self.closing.subscribe();
        // The sender lives in `self`, so waiting cannot fail.
        let _ = closing.wait_for(|closed| *closed).await;
    }

    /// Ends all holds, waits until everything is undone and `settled`, or `limit` has passed, and closes the driver.
    pub(crate) async fn close(&self, limit: Duration, settled: impl Future<Output = ()>) -> Result<()> {
        // First, so that no new attempt begins while those under way are waited for.
        self.closing.send_replace(true);
        self.end_holds();
        // Clean-ups need the background tasks, whose runtime may have ended, or which never ran.
        self.start()?;
        let all_undone = async {
            self.under_way.settled().await;
            self.end_holds(); // those that attempts under way still won
            settled.await;
            self.reaper.drained().await;
        };
        let drained = timeout(limit, all_undone).await;
        // After the wait, so that clean-ups are still retried meanwhile.
        self.renewer.stop();
        self.reaper.finish();
        // Bounded as well: what the driver needs for it may be gone. A clean-up that comes later finds it closed.
        let _ = timeout(self.config.op_timeout, self.backend.locks().close()).await;
        drained.map_err(|_| {
            let text = format!("closed with {} clean-ups not acknowledged within {limit:?}", self.reaper.pending());
            Error::new(ErrorKind::TimedOut, text)
        })
    }

    fn end_holds(&self) {
        for lease in self.renewer.leases() {
            if lease.lose(LostReason::Closed) {
                telemetry::lost(lease.name(), lease.fence(), LostReason::Closed);
                self.meters.lost(lease.name(), LostReason::Closed);
            }
            for entry in lease.take_entries() {
                self.reaper.push(Cleanup::of_lease(&lease, &entry));
            }
        }
    }

    /// Counts one more attempt or hold, unless the maximum is reached.
    pub(crate) fn reserve(self: &Arc<Self>) -> Result<Reservation> {
        let most = self.config.max_holds;
        let counted =
            self.busy.fetch_update(Ordering::AcqRel, Ordering::Acquire, |count| (count < most).then_some(count + 1));
        match counted {
            Ok(_) => Ok(Reservation(Arc::clone(self))),
            Err(_) => Err(Error::new(
                ErrorKind::LimitReached,
                format!("this client has {most} holds, attempts and clean-ups, its limit (max_holds)"),
            )),
        }
    }

    /// Counts one more attempt, regardless of the maximum: it is made for tasks that were counted.
    pub(crate) fn reserve_for_others(self: &Arc<Self>) -> Reservation {
        self.busy.fetch_add(1, Ordering::AcqRel);
        Reservation(Arc::clone(self))
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.renewer.stop();
        self.reaper.finish();
    }
}

/// One of the client's places for attempts and holds; freed when dropped.
#[derive(Debug)]
pub(crate) struct Reservation(Arc<Shared>);

impl Reservation {
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.0
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Attempts and releases under way, each of which may still hand something over to the reaper.
#[derive(Debug, Default)]
pub(crate) struct UnderWay {
    count: AtomicUsize,
    /// Notified whenever there is none any more.
    none: Notify,
}

impl UnderWay {
    /// Counts an attempt or a release that begins.
    pub(crate) fn begins(&self) {
        self.count.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn ends(&self) {
        if self.count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.none.notify_waiters();
        }
    }

    /// Counts an attempt for as long as its work takes.
    pub(crate) fn attempt(&self) -> impl Drop + use<'_> {
        self.begins();
        Ends(self)
    }

    /// Waits until none is under way.
    async fn settled(&self) {
        reaches_zero(&self.count, &self.none).await;
    }
}

struct Ends<'a>(&'a UnderWay);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.ends();
    }
}

/// Counts a waiter for as long as it waits.
pub(crate) struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    pub(crate) fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::AcqRel);
        Self(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

// How many requests are on their way at once.

/// The most requests of a kind on their way at once.
pub(crate) const IN_FLIGHT: usize = 128;

#[derive(Debug)]
pub(crate) struct Gate {
    places: Semaphore,
    /// The number of answered requests.
    answered: AtomicU64,
    in_flight: Level,
}

/// A place for one request; freed when dropped.
#[derive(Debug)]
pub(crate) struct Pass<'a> {
    gate: &'a Gate,
    _place: SemaphorePermit<'a>,
}

impl Default for Gate {
    fn default() -> Self {
        Self::new(Level::default())
    }
}

impl Gate {
    fn new(in_flight: Level) -> Self {
        Self { places: Semaphore::new(IN_FLIGHT), answered: AtomicU64::new(0), in_flight }
    }

    /// Returns a place, if one is free.
    pub(crate) fn enter_now(&self) -> Option<Pass<'_>> {
        self.places.try_acquire().ok().map(|place| Pass { gate: self, _place: place })
    }

    /// Waits for a place, until `deadline`, or until a whole `limit` has passed in which no request was answered.
    ///
    /// Dropping the future leaves the line.
    pub(crate) async fn enter(&self, limit: Duration, deadline: Option<LeaseInstant>) -> Result<Pass<'_>> {
        if let Some(pass) = self.enter_now() {
            return Ok(pass);
        }
        // One future for all rounds: a second call would begin at the end of the line.
        let place = self.places.acquire();
        tokio::pin!(place);
        let mut seen = self.answered.load(Ordering::Acquire);
        loop {
            let left = deadline.map_or(Duration::MAX, LeaseInstant::remaining);
            match timeout(limit.min(left), &mut place).await {
                Ok(Ok(place)) => return Ok(Pass { gate: self, _place: place }),
                Ok(Err(_closed)) => return Err(Error::new(ErrorKind::Closed, "the client was closed")),
                Err(_) => {}
            }
            // While others are answered, the backend is slow and not silent, and a place becomes free.
            let before = std::mem::replace(&mut seen, self.answered.load(Ordering::Acquire));
            if seen == before || deadline.is_some_and(|deadline| deadline.remaining().is_zero()) {
                let text = format!("{IN_FLIGHT} requests of this client wait for answers; this one was not sent");
                return Err(Error::new(ErrorKind::Unavailable, text));
            }
        }
    }
}

impl Pass<'_> {
    /// Waits at most `limit` for the answer to a request that leaves now; `None` when it does not arrive.
    pub(crate) fn answer<T>(
        self,
        limit: Duration,
        request: impl Future<Output = T>,
    ) -> impl Future<Output = Option<T>> {
        let in_flight = &self.gate.in_flight;
        waiting_within(limit, || in_flight.one_more(), request).map(move |answer| {
            let Self { gate, _place } = self; // all of it: the place is kept until then
            if answer.is_some() {
                gate.answered.fetch_add(1, Ordering::AcqRel);
            }
            answer
        })
    }
}

// Which re-entrant holds this client has, so that nested guards share one lease and are lost together.

type Key = (LockName, OwnerId);

/// A map of this size is swept of leases that are gone before it grows.
const SWEEP_AT: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct ReentrantLeases(Mutex<Map>);

#[derive(Debug, Default)]
struct Map {
    /// The client's leases of this owner on this name, live or lost; rarely more than one.
    leases: HashMap<Key, Vec<Weak<Lease>>>,
    sweep_at: usize,
}

impl ReentrantLeases {
    /// Joins the client's lease of this hold, or begins one; `None` if this client has lost the hold and had not undone
    /// it when the request left. (Afterwards it can only exist because the owner entered it through another client.)
    /// One step, so that entries that are granted at the same time share a lease.
    pub(crate) fn enter(
        &self,
        name: &LockName,
        owner: OwnerId,
        fence: FencingToken,
        (base, deadline): (LeaseInstant, LeaseInstant),
        entry: Entry,
    ) -> Option<Arc<Lease>> {
        let mut map = self.map();
        map.sweep();
        let leases = map.leases.entry((name.clone(), owner)).or_default();
        // The fence distinguishes a hold of this owner from an earlier one that has ended at the backend.
        for lease in leases.iter().filter_map(Weak::upgrade).filter(|lease| lease.fence() == fence) {
            if lease.join(entry, base, deadline) {
                return Some(lease);
            }
            // The backend granted a re-entry into a hold that was lost here and not yet undone there. Its guards know
            // that it is lost, so it must not come back.
            if matches!(lease.state(), HoldState::Lost(_)) && !was_undone_at(&lease, base) {
                return None;
            }
        }
        let key = LeaseKey::Reentrant(Box::new(ReentrantHold::new(name.clone(), owner, fence)));
        let lease = Arc::new(Lease::new(key, fence, (base, deadline), entry, LeaseInstant::now()));
        leases.push(Arc::downgrade(&lease));
        Some(lease)
    }

    /// Removes a lease that has ended, unless it was lost: then it is kept for as long as its clean-ups live.
    pub(crate) fn remove(&self, lease: &Arc<Lease>) {
        let LeaseKey::Reentrant(hold) = &lease.key else { return };
        let lost = matches!(lease.state(), HoldState::Lost(_));
        let key = (hold.name.clone(), hold.owner);
        let mut map = self.map();
        if let Some(leases) = map.leases.get_mut(&key) {
            leases.retain(|weak| weak.strong_count() > 0 && (lost || weak.as_ptr() != Arc::as_ptr(lease)));
            if leases.is_empty() {
                map.leases.remove(&key);
            }
        }
    }

    fn map(&self) -> MutexGuard<'_, Map> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn was_undone_at(lost: &Lease, sent: LeaseInstant) -> bool {
    lost.is_empty() && lost.undoing(|progress| progress.was_over_at(sent))
}

impl Map {
    /// Removes leases that are gone, each time the map has doubled.
    fn sweep(&mut self) {
        if self.leases.len() >= self.sweep_at.max(SWEEP_AT) {
            self.leases.retain(|_, leases| leases.iter().any(|lease| lease.strong_count() > 0));
            self.sweep_at = 2 * self.leases.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::Arc;
    use std::time::Duration;

    use tokio::time::{Instant, sleep};

    use super::*;
    use crate::engine::lease::{Past, Upkeep};
    use crate::value::time::Ttl;
    use crate::value::token::OwnerToken;

    const LIMIT: Duration = Duration::from_secs(1);

    async fn request(gate: Arc<Gate>, takes: Duration) -> Result<Option<()>> {
        let pass = gate.enter(LIMIT, None).await?;
        Ok(pass.answer(LIMIT, sleep(takes)).await)
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_takes_as_long_as_it_takes() {
        let (gate, start) = (Arc::<Gate>::default(), Instant::now());
        let takes = Duration::from_millis(300);
        let all: Vec<_> = (0..10 * IN_FLIGHT).map(|_| tokio::spawn(request(Arc::clone(&gate), takes))).collect();
        for one in all {
            assert_eq!(one.await.unwrap().unwrap(), Some(()));
        }
        assert_eq!(start.elapsed().as_millis() / 300, 10);
    }

    #[tokio::test(start_paused = true)]
    async fn behind_a_silent_backend_nobody_waits_longer_than_for_an_answer() {
        let gate = Arc::<Gate>::default();
        let mut silent = Vec::new();
        for _ in 0..IN_FLIGHT {
            silent.push(gate.enter(LIMIT, None).await.unwrap());
        }
        let start = Instant::now();
        let error = gate.enter(LIMIT, None).await.unwrap_err();
        assert_eq!((error.kind(), start.elapsed().as_secs()), (ErrorKind::Unavailable, 1));
        let deadline = LeaseInstant::now().after(LIMIT / 10);
        let error = gate.enter(LIMIT, Some(deadline)).await.unwrap_err();
        assert_eq!((error.kind(), start.elapsed().as_millis() / 100), (ErrorKind::Unavailable, 11));
    }

    #[tokio::test(start_paused = true)]
    async fn requests_that_were_given_up_are_no_answers() {
        let (gate, start) = (Arc::<Gate>::default(), Instant::now());
        let burst = || (0..IN_FLIGHT).for_each(|_| drop(tokio::spawn(request(Arc::clone(&gate), LIMIT * 10))));
        burst();
        sleep(LIMIT / 2).await;
        burst(); // these leave when the others are given up
        sleep(LIMIT / 10).await;
        let error = gate.enter(LIMIT, None).await.unwrap_err();
        assert_eq!((error.kind(), start.elapsed().as_millis() / 100), (ErrorKind::Unavailable, 16));
    }

    #[tokio::test(start_paused = true)]
    async fn places_of_requests_that_were_given_up_are_free() {
        let gate = Gate::default();
        for _ in 0..3 * IN_FLIGHT {
            let pass = gate.enter(LIMIT, None).await.unwrap();
            assert!(timeout(Duration::from_millis(1), pass.answer(LIMIT, pending::<()>())).await.is_err());
        }
        let given_up = gate.enter(LIMIT, None);
        drop(given_up);
        assert_eq!(gate.places.available_permits(), IN_FLIGHT);
    }

    fn enter(owners: &ReentrantLeases, owner: OwnerId, fence: u64) -> Arc<Lease> {
        let (token, now) = (OwnerToken::random(), LeaseInstant::now());
        let entry = Entry { token, ttl: Ttl::DEFAULT, upkeep: Upkeep::Renewed, cap: None, past: Past::Answered };
        let window = (now, now.after(Duration::from_secs(30)));
        let name = LockName::new("a").unwrap();
        owners.enter(&name, owner, FencingToken::new(fence).unwrap(), window, entry).unwrap()
    }

    #[test]
    fn a_lease_that_ended_is_forgotten() {
        let (owners, owner) = (ReentrantLeases::default(), OwnerId::new());
        let lease = enter(&owners, owner, 1);
        assert!(Arc::ptr_eq(&lease, &enter(&owners, owner, 1)), "entries of one hold share a lease");
        owners.remove(&lease);
        assert!(owners.map().leases.is_empty());
    }

    #[test]
    fn leases_that_nobody_removed_do_not_pile_up() {
        let owners = ReentrantLeases::default();
        let alive: Vec<_> = (0..100).map(|_| enter(&owners, OwnerId::new(), 1)).collect();
        for _ in 0..10_000 {
            enter(&owners, OwnerId::new(), 1);
        }
        let kept = owners.map().leases.len();
        assert!(kept >= alive.len() && kept <= 3 * alive.len(), "{kept}");
    }

    #[test]
    fn a_hold_is_known_by_its_fence_and_forgotten_by_itself() {
        let (owners, owner) = (ReentrantLeases::default(), OwnerId::new());
        let [one, other, gone] = [1, 2, 3].map(|fence| enter(&owners, owner, fence));
        assert!(!Arc::ptr_eq(&one, &other), "the first was taken away, and nobody has heard of it");
        drop(gone);
        owners.remove(&one);
        assert!(Arc::ptr_eq(&other, &enter(&owners, owner, 2)));
        owners.remove(&other);
        assert!(owners.map().leases.is_empty(), "nor is one kept that nobody has any more");
    }
}
