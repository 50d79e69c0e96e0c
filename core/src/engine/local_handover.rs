//! Local hand-over: the waiters of one client for one name share one place in the backend's queue, and hand a lease
//! over among themselves, in order of arrival, as long as its [`HandoverBudget`] allows.
//!
//! A local queue begins when a waiter of the client is answered with busy, or when a second one arrives before the
//! first is answered ([`Asking`]), and ends with its last waiter. A later task that wants the lock on the same
//! [`Terms`] gets a [`Place`] and sends nothing. One waiter *runs*, that is, waits at the backend: the waiter that
//! began the queue while it is alone, then a task for all, the [`RemoteWaiter`], which pauses while a lease is being
//! handed over. If a grant has one fence only, there is no hand-over: the task asks again for the next waiter.

use std::collections::{HashMap, VecDeque};
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fnv::FnvHasher;
use futures_util::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;

use crate::engine::ask::{Ask, CLAIM, HandoverBudget, Terms, WaitProgress};
use crate::engine::hold::{HeldEntry, PassOn};
use crate::engine::shared::{Reservation, Shared};
use crate::telemetry::Origin;
use crate::value::error::{Error, ErrorKind, LockName, Result};
use crate::value::time::LeaseInstant;
use crate::value::token::OwnerToken;

/// One local queue for each name that several tasks of the client want.
#[derive(Debug)]
pub(crate) struct LocalQueues {
    shared: Arc<Shared>,
    /// Waits at the backend for all waiters of a local queue.
    remote_waiter: RemoteWaiter,
    /// The number of local queues. Mostly none, and then the map is not locked.
    count: AtomicUsize,
    map: Mutex<HashMap<LockName, LocalQueue>>,
    numbers: AtomicU64,
    asking: Asking,
}

/// The queue that a waiter of the client joined.
pub(crate) enum Joined<'a> {
    /// The local queue, with others.
    Place(Place),
    /// The backend's queue; others may share it from now on.
    Alone(Option<FirstAsk<'a>>),
}

#[derive(Debug)]
struct LocalQueue {
    terms: Terms,
    /// True if the backend has answered a request for this lock since several tasks wanted it.
    heard: bool,
    /// The number of waiters ahead of the running task, at the backend; if known.
    ahead: Option<u32>,
    /// The runtime on which the running task is started.
    runtime: Handle,
    /// In order of arrival, and of their numbers.
    waiters: VecDeque<Waiter>,
    runs: Runs,
    /// The lease that is being handed over, by the token of its holder, and the time limit.
    passing: Option<(OwnerToken, LeaseInstant)>,
    /// Notified when no lease is being handed over any more.
    over: Arc<Notify>,
}

#[derive(Debug)]
struct Waiter {
    number: u64,
    offers: oneshot::Sender<Offer>,
    /// True if it also has a place at the backend, and learns from there the number of waiters ahead.
    asks: bool,
    progress: Option<WaitProgress>,
}

/// The waiter at the backend.
#[derive(Debug)]
enum Runs {
    Nobody,
    /// The waiter that began, in its own future, while it is alone.
    Waiter(u64),
    /// A task, identified by a number.
    Task {
        number: u64,
        asking: bool,
        stop: Arc<Notify>,
        task: Option<JoinHandle<()>>,
    },
}

/// Runs until it is not needed any more, or until stopped: for the lock, under this number.
pub(crate) type RemoteWaiter = fn(&Arc<LocalQueues>, &LockName, u64, Arc<Notify>) -> BoxFuture<'static, ()>;

impl LocalQueues {
    pub(crate) fn new(shared: Arc<Shared>, remote_waiter: RemoteWaiter) -> Self {
        let (count, map, numbers, asking) = Default::default();
        Self { shared, remote_waiter, count, map, numbers, asking }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    fn map(&self) -> MutexGuard<'_, HashMap<LockName, LocalQueue>> {
        self.map.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns a place with waiters on the same terms, if there are any.
    pub(crate) fn join<'a>(self: &'a Arc<Self>, ask: &Ask) -> Result<Joined<'a>> {
        let Some(terms) = Terms::of(ask) else { return Ok(Joined::Alone(None)) };
        if self.count.load(Ordering::Acquire) > 0
            && let Some(joined) = self.with(&ask.name, |queue| queue.join(self, ask, &terms))
        {
            return joined;
        }
        match self.asking.begin(&ask.name) {
            Asked::First(first) => Ok(Joined::Alone(Some(first))),
            Asked::Unknown => Ok(Joined::Alone(None)),
            Asked::ByAnother => {
                if let Ok(runtime) = Handle::try_current() {
                    let mut map = self.map();
                    let queue = || LocalQueue::new(terms.clone(), runtime, Runs::Nobody);
                    map.entry(ask.name.clone()).or_insert_with(queue);
                    self.count.store(map.len(), Ordering::Release);
                }
                let joined = self.with(&ask.name, |queue| queue.join(self, ask, &terms));
                joined.unwrap_or(Ok(Joined::Alone(None)))
            }
        }
    }

    /// Begins a local queue with a waiter that was answered with busy; `None` if there is one already. The waiter runs,
    /// until another one joins.
    pub(crate) fn begin(self: &Arc<Self>, ask: &Ask) -> Option<Place> {
        let (terms, runtime) = (Terms::of(ask)?, Handle::try_current().ok()?);
        let mut map = self.map();
        if map.contains_key(&ask.name) {
            return None;
        }
        let number = self.number();
        let mut queue = LocalQueue { heard: true, ..LocalQueue::new(terms, runtime, Runs::Waiter(number)) };
        let offers = queue.add(number, true, None);
        map.insert(ask.name.clone(), queue);
        self.count.store(map.len(), Ordering::Release);
        drop(map);
        Some(Place::new(self, ask, number, None, offers))
    }

    /// Removes a waiter. If it ran for the others and won, they may hope for that lease. Returns a stopped task.
    pub(super) fn leave(
        self: &Arc<Self>,
        name: &LockName,
        number: u64,
        won: Option<&HeldEntry>,
    ) -> Option<JoinHandle<()>> {
        let (stopped, ()) = self.change(name, |queue| {
            if let Ok(at) = queue.waiters.binary_search_by_key(&number, |waiter| waiter.number) {
                drop(queue.waiters.remove(at));
            }
            queue.runs_no_more(number); // then `starts` begins a task for those after it
            if let Some(held) = won.filter(|_| !queue.waiters.is_empty()) {
                queue.begins_passing(held.token(), held.budget());
            }
        })?;
        stopped
    }

    /// Gives a lease that was won for all to the first waiter. Without one, it is released.
    pub(super) fn give(self: &Arc<Self>, mut held: HeldEntry) {
        held.is_nobodys();
        let lease = Arc::clone(held.lease());
        let first = self.with(lease.name(), |queue| {
            queue.is_answered();
            (queue.heard, queue.ahead) = (true, None);
            let until = LeaseInstant::now().after(CLAIM); // the same token: it only has to be claimed by then
            if queue.waiters.is_empty() || !lease.pass(held.token(), *held.token(), Duration::ZERO, until) {
                return None;
            }
            queue.begins_passing(held.token(), held.budget());
            queue.next()
        });
        if let Some(waiter) = first.flatten() {
            held.shared().renewer.watch_over(&lease);
            // Outside the map's lock: for a waiter that left, the drop passes the lease on, which takes that lock.
            drop(waiter.offers.send(Offer::Held(held, Origin::here())));
        }
    }

    /// Records the number of waiters ahead of a local queue, by the latest answer of the backend.
    pub(super) fn is_placed(self: &Arc<Self>, name: &LockName, ahead: Option<u32>) {
        self.with(name, |queue| {
            queue.ahead = ahead;
            queue.tell_places();
        });
    }

    /// Ends the sharing after no answer from the backend: each waiter asks for itself, with its own patience.
    pub(super) fn scatter(self: &Arc<Self>, name: &LockName) {
        let waiters = self.with(name, |queue| {
            queue.is_answered();
            std::mem::take(&mut queue.waiters)
        });
        for waiter in waiters.unwrap_or_default() {
            drop(waiter.offers.send(Offer::Scattered));
        }
    }

    /// Fails all waiters with the error of waiting for them.
    pub(super) fn fail(self: &Arc<Self>, name: &LockName, error: &Error) {
        let waiters = self.with(name, |queue| {
            queue.is_answered();
            std::mem::take(&mut queue.waiters)
        });
        let waiters = waiters.unwrap_or_default();
        for waiter in waiters {
            drop(waiter.offers.send(Offer::Failed(error.clone())));
        }
    }

    /// Returns the next action of the task.
    pub(super) fn next(self: &Arc<Self>, name: &LockName, task: u64) -> Next {
        let next = self.with(name, |queue| {
            let ended = queue.passing.is_some_and(|(_, until)| until <= LeaseInstant::now());
            if ended {
                queue.passing = None;
            }
            let waits = !queue.waiters.is_empty();
            let Runs::Task { number, asking, .. } = &mut queue.runs else { return Next::End };
            if *number != task {
                return Next::End;
            }
            *asking = waits && queue.passing.is_none();
            match queue.passing {
                // Also when nobody waits: whoever has just released comes back soon, if at all.
                Some((_, until)) => Next::Pause(until, Arc::clone(&queue.over)),
                None if waits => Next::Ask(queue.terms.ask(name), queue.heard),
                None => {
                    queue.runs = Runs::Nobody;
                    Next::End
                }
            }
        });
        next.unwrap_or(Next::End)
    }

    /// Handles a task that ended early with its runtime. The waiters that it ran for start over.
    pub(super) fn lose_task(self: &Arc<Self>, name: &LockName, task: u64) {
        drop(self.with(name, |queue| {
            let lost = queue.runs_no_more(task);
            if lost { std::mem::take(&mut queue.waiters) } else { VecDeque::new() }
        }));
    }

    fn with<T>(self: &Arc<Self>, name: &LockName, change: impl FnOnce(&mut LocalQueue) -> T) -> Option<T> {
        self.change(name, change).map(|(_, answer)| answer)
    }

    /// Changes a local queue, then takes the actions that follow from the change. Returns a stopped task as well.
    fn change<T>(
        self: &Arc<Self>,
        name: &LockName,
        change: impl FnOnce(&mut LocalQueue) -> T,
    ) -> Option<(Option<JoinHandle<()>>, T)> {
        let mut map = self.map();
        let queue = map.get_mut(name)?;
        let answer = change(queue);
        let (start, stop) = (queue.starts(|| self.number()), queue.stops());
        if queue.is_idle() {
            map.remove(name);
            self.count.store(map.len(), Ordering::Release);
        }
        drop(map); // a task that is lost below locks it again
        if let Some((runtime, number, stop)) = start {
            // A runtime that has ended drops the task at once, which loses it.
            let handle = runtime.spawn((self.remote_waiter)(self, name, number, stop));
            if let Some(Runs::Task { number: runs, task, .. }) = self.map().get_mut(name).map(|queue| &mut queue.runs)
                && *runs == number
            {
                *task = Some(handle);
            }
        }
        Some((stop.flatten(), answer))
    }
}

impl PassOn for LocalQueues {
    fn pass_on(self: Arc<Self>, from: &HeldEntry, budget: HandoverBudget) -> bool {
        if self.count.load(Ordering::Acquire) == 0 {
            return false;
        }
        let lease = from.lease();
        let passed = self.with(lease.name(), |queue| {
            queue.ends_passing(from.token()); // in any case: if it is not handed over, the task asks again
            if budget.lasts_until().is_none() || !budget.is_for(&queue.terms) || queue.waiters.is_empty() {
                return None;
            }
            let (token, until) = (OwnerToken::random(), LeaseInstant::now().after(CLAIM));
            if !lease.pass(from.token(), token, queue.terms.least(), until) {
                return None;
            }
            let budget = budget.passed_on();
            queue.begins_passing(&token, Some(&budget));
            queue.next().map(|waiter| (waiter, token, budget))
        });
        let Some((waiter, token, budget)) = passed.flatten() else { return false };
        let next = from.passed_on(token, budget, Arc::clone(&self) as Arc<dyn PassOn>);
        from.shared().renewer.watch_over(lease);
        // One that left meanwhile drops it, that is, passes it on in turn.
        drop(waiter.offers.send(Offer::Held(next, Origin::here())));
        true
    }
}

impl LocalQueue {
    fn new(terms: Terms, runtime: Handle, runs: Runs) -> Self {
        let (waiters, over) = (VecDeque::new(), Arc::default());
        Self { terms, heard: false, ahead: None, runtime, waiters, runs, passing: None, over }
    }

    /// Returns a place in it, for a waiter on the same terms.
    fn join<'a>(&mut self, queues: &Arc<LocalQueues>, ask: &Ask, terms: &Terms) -> Result<Joined<'a>> {
        if self.terms != *terms {
            return Ok(Joined::Alone(None));
        }
        let (number, reservation) = (queues.number(), Some(queues.shared.reserve()?));
        self.is_joined();
        let offers = self.add(number, false, ask.progress.clone());
        self.tell_places();
        Ok(Joined::Place(Place::new(queues, ask, number, reservation, offers)))
    }

    fn add(&mut self, number: u64, asks: bool, progress: Option<WaitProgress>) -> oneshot::Receiver<Offer> {
        let (offers, place) = oneshot::channel();
        self.waiters.push_back(Waiter { number, offers, asks, progress });
        place
    }

    /// Updates the number of waiters ahead: those at the backend, and those of the client that send no requests.
    fn tell_places(&self) {
        let Some(mut ahead) = self.ahead else { return };
        for waiter in self.waiters.iter().filter(|waiter| !waiter.asks) {
            if let Some(progress) = &waiter.progress {
                progress.report(Some(ahead));
            }
            ahead = ahead.saturating_add(1);
        }
    }

    /// Makes a task run from now on, on the current runtime: the first waiter may not be polled any more, and those
    /// after it must not depend on that.
    fn is_joined(&mut self) {
        if let Ok(runtime) = Handle::try_current() {
            self.runtime = runtime;
        }
        if matches!(self.runs, Runs::Waiter(_)) {
            self.runs = Runs::Nobody;
        }
    }

    fn next(&mut self) -> Option<Waiter> {
        let next = self.waiters.pop_front()?;
        self.runs_no_more(next.number);
        Some(next)
    }

    fn runs_no_more(&mut self, one: u64) -> bool {
        let ran = matches!(self.runs, Runs::Waiter(number) | Runs::Task { number, .. } if number == one);
        if ran {
            self.runs = Runs::Nobody;
        }
        ran
    }

    /// Records the task's answer; it continues by itself.
    fn is_answered(&mut self) {
        if let Runs::Task { asking, .. } = &mut self.runs {
            *asking = false;
        }
    }

    fn begins_passing(&mut self, token: &OwnerToken, budget: Option<&HandoverBudget>) {
        self.passing = budget.and_then(HandoverBudget::lasts_until).map(|until| (*token, until));
        if self.passing.is_none() {
            self.over.notify_one();
        }
    }

    fn ends_passing(&mut self, token: &OwnerToken) {
        if self.passing.is_some_and(|(holder, _)| holder == *token) {
            self.passing = None;
            self.over.notify_one();
        }
    }

    /// Returns the task to start: there are waiters, and none runs.
    fn starts(&mut self, number: impl FnOnce() -> u64) -> Option<(Handle, u64, Arc<Notify>)> {
        let needed = matches!(self.runs, Runs::Nobody) && !self.waiters.is_empty();
        needed.then(|| {
            let (number, stop) = (number(), Arc::default());
            self.runs = Runs::Task { number, asking: false, stop: Arc::clone(&stop), task: None };
            (self.runtime.clone(), number, stop)
        })
    }

    /// Stops the task if it asks the backend and no waiter is left; it leaves the backend's queue before it ends.
    fn stops(&mut self) -> Option<Option<JoinHandle<()>>> {
        let idle = self.waiters.is_empty();
        match &mut self.runs {
            Runs::Task { asking: true, stop, task, .. } if idle => {
                stop.notify_one();
                let task = task.take();
                self.runs = Runs::Nobody;
                Some(task)
            }
            _ => None,
        }
    }

    fn is_idle(&self) -> bool {
        self.waiters.is_empty() && self.passing.is_none() && matches!(self.runs, Runs::Nobody)
    }
}

// A waiter's place in a local queue.

/// An offer to a waiter.
#[derive(Debug)]
enum Offer {
    /// The lease, to be claimed.
    Held(HeldEntry, Origin),
    /// The error of the wait.
    Failed(Error),
    /// The end of sharing: each waiter asks for itself.
    Scattered,
}

/// The result of a turn.
#[derive(Debug)]
pub(crate) enum Turn {
    /// The lease, claimed.
    Held(HeldEntry),
    /// It ended before it was taken, or the task ended that waited for all. The waiter has to start over.
    Over,
    /// The waiter has to continue by itself.
    Scattered,
}

/// A waiter's place. Dropped, the waiter leaves; an offer made in the same instant goes to the next.
#[derive(Debug)]
pub(crate) struct Place {
    queues: Arc<LocalQueues>,
    name: LockName,
    max_hold: Option<Duration>,
    number: u64,
    reservation: Option<Reservation>,
    offers: oneshot::Receiver<Offer>,
    left: bool,
}

impl Place {
    fn new(
        queues: &Arc<LocalQueues>,
        ask: &Ask,
        number: u64,
        reservation: Option<Reservation>,
        offers: oneshot::Receiver<Offer>,
    ) -> Self {
        let (queues, name, max_hold) = (Arc::clone(queues), ask.name.clone(), ask.max_hold);
        Self { queues, name, max_hold, number, reservation, offers, left: false }
    }

    /// Returns the lease, once it is this waiter's turn.
    ///
    /// Dropping the future loses nothing.
    pub(crate) async fn turn(&mut self) -> Result<Turn> {
        let offer = (&mut self.offers).await;
        self.left = true; // whoever offers something has taken this one out
        match offer {
            Ok(Offer::Held(mut held, origin)) => {
                origin.leads_here();
                let claimed = held.claim(self.reservation.take(), self.max_hold);
                Ok(if claimed { Turn::Held(held) } else { Turn::Over })
            }
            Ok(Offer::Scattered) => Ok(Turn::Scattered),
            Ok(Offer::Failed(error)) => Err(error),
            Err(_) => Ok(Turn::Over),
        }
    }

    /// Waits as [`turn`](Self::turn), until `deadline`, for a wait that began at `started`.
    pub(crate) async fn wait(mut self, started: LeaseInstant, deadline: Option<LeaseInstant>) -> Result<Turn> {
        let shared = Arc::clone(&self.queues.shared);
        let patience = async {
            match deadline {
                Some(at) => at.reached().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = shared.closed() => Err(Error::new(ErrorKind::Closed, "the client was closed while waiting")),
            turn = self.turn() => turn,
            () = patience => {
                let waited = LeaseInstant::now().since(started);
                self.leave().await;
                let text = format!("timed out after {waited:?}, queued behind other tasks of this client");
                Err(Error::new(ErrorKind::TimedOut, text))
            }
        }
    }

    /// Leaves. The last one waits, not for long, until the place at the backend is given up, as a single waiter does.
    pub(crate) async fn leave(mut self) {
        self.left = true;
        if let Some(runner) = self.queues.leave(&self.name, self.number, None) {
            let _ = tokio::time::timeout(self.queues.shared.config.leave_limit() * 2, runner).await;
        }
    }

    /// Leaves with a lease that the waiter won itself, and that those after it may hope for.
    pub(crate) fn leave_with(mut self, held: &HeldEntry) {
        self.left = true;
        self.queues.leave(&self.name, self.number, Some(held));
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.left {
            self.queues.leave(&self.name, self.number, None);
        }
    }
}

/// The next action of a remote waiter.
pub(crate) enum Next {
    /// Pause until then, or until notified: a lease is being handed over.
    Pause(LeaseInstant, Arc<Notify>),
    /// Wait for the lock; true if the backend has answered before.
    Ask(Ask, bool),
    /// End: it is not needed any more.
    End,
}

// Which locks a task of this client is asking for, without an answer yet. Whoever wants the same lock meanwhile waits
// along instead of asking as well.

/// The number of first requests known at once; a further one is not tracked.
const SLOTS: usize = 128;

/// A slot holds the hash of a name, or 0.
#[derive(Debug)]
struct Asking([AtomicU64; SLOTS]);

/// The state of first requests for a lock.
#[derive(Debug)]
enum Asked<'a> {
    /// No task has asked; now this task does.
    First(FirstAsk<'a>),
    /// Another task has asked, and has no answer yet.
    ByAnother,
    /// Unknown: there is no free slot.
    Unknown,
}

/// A first request on its way; dropped when it is answered or given up.
#[derive(Debug)]
pub(crate) struct FirstAsk<'a> {
    slot: &'a AtomicU64,
    hash: u64,
}

impl Default for Asking {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; SLOTS])
    }
}

impl Asking {
    fn begin(&self, name: &LockName) -> Asked<'_> {
        let mut hasher = FnvHasher::default();
        name.hash(&mut hasher);
        let hash = hasher.finish() | 1;
        let slot = &self.0[(hash >> 1) as usize % SLOTS];
        match slot.compare_exchange(0, hash, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Asked::First(FirstAsk { slot, hash }),
            Err(other) if other == hash => Asked::ByAnother,
            Err(_) => Asked::Unknown,
        }
    }
}

impl Drop for FirstAsk<'_> {
    fn drop(&mut self) {
        let _ = self.slot.compare_exchange(self.hash, 0, Ordering::AcqRel, Ordering::Acquire); // nobody else writes it
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;
    use crate::engine::lease::Upkeep;
    use crate::value::time::Ttl;

    fn terms() -> Terms {
        let ttl = Ttl::new(Duration::from_secs(30)).unwrap();
        Terms { ttl, upkeep: Upkeep::Renewed, max_hold: None, at_least: None, label: None }
    }

    fn queue(runs: Runs) -> LocalQueue {
        LocalQueue::new(terms(), Handle::current(), runs)
    }

    fn task(number: u64, asking: bool) -> Runs {
        Runs::Task { number, asking, stop: Arc::default(), task: None }
    }

    fn is_told(queue: &LocalQueue) -> bool {
        queue.over.notified().now_or_never().is_some()
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiter_that_gets_the_lease_waits_at_the_backend_for_nobody_any_more() {
        for (number, runs_on) in [(1, false), (2, true)] {
            let mut queue = queue(Runs::Waiter(number));
            drop(queue.add(1, false, None));
            assert_eq!(queue.next().map(|waiter| waiter.number), Some(1));
            assert_eq!(matches!(queue.runs, Runs::Waiter(_)), runs_on);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_is_stopped_while_it_asks_for_nobody_and_not_when_it_has_its_answer() {
        let mut queue = queue(task(7, true));
        let Runs::Task { stop, .. } = &queue.runs else { panic!("{queue:?}") };
        let stop = Arc::clone(stop);
        drop(queue.add(1, false, None));
        assert!(queue.stops().is_none() && !queue.is_idle(), "somebody waits");
        queue.waiters.clear();
        assert!(queue.stops().is_some() && stop.notified().now_or_never().is_some());
        assert!(matches!(queue.runs, Runs::Nobody) && queue.is_idle(), "{queue:?}");
        queue.runs = task(8, true);
        queue.is_answered();
        assert!(queue.stops().is_none() && !queue.is_idle());
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_is_passed_on_until_its_time_is_over_or_its_holder_has_done_with_it() {
        let mut queue = queue(Runs::Nobody);
        let (holder, other) = (OwnerToken::random(), OwnerToken::random());
        let budget = |fences| HandoverBudget::new(fences, LeaseInstant::now(), &terms());
        queue.begins_passing(&holder, Some(&budget(3)));
        assert!(queue.passing.is_some() && !queue.is_idle() && !is_told(&queue));
        queue.ends_passing(&other);
        assert!(queue.passing.is_some() && !is_told(&queue), "it is not that one's");
        queue.ends_passing(&holder);
        assert!(queue.passing.is_none() && queue.is_idle() && is_told(&queue));
        queue.ends_passing(&holder);
        assert!(!is_told(&queue), "once");
        queue.begins_passing(&holder, Some(&budget(2)));
        queue.begins_passing(&other, Some(&budget(1)));
        assert!(queue.passing.is_none() && is_told(&queue), "it serves nobody more");
    }

    #[test]
    fn a_client_that_joins_lets_the_task_run_where_it_is_polled_itself() {
        let runtime = || tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (one, other) = (runtime(), runtime());
        let mut queue = one.block_on(async { queue(Runs::Waiter(1)) });
        other.block_on(async { queue.is_joined() });
        assert_eq!(queue.runtime.id(), other.handle().id());
        assert!(matches!(queue.runs, Runs::Nobody), "{queue:?}");
        queue.is_joined();
        assert_eq!(queue.runtime.id(), other.handle().id(), "outside of any");
    }

    #[test]
    fn of_two_who_ask_for_one_lock_the_second_learns_of_the_first_and_of_other_locks_nobody() {
        let (asking, name) = (Asking::default(), |number: u32| LockName::new(number.to_string()).unwrap());
        let first = asking.begin(&name(0));
        assert!(matches!(first, Asked::First(_)) && matches!(asking.begin(&name(0)), Asked::ByAnother));
        let others: Vec<_> = (1..=1_000).map(|number| asking.begin(&name(number))).collect();
        let count = |wanted: fn(&Asked<'_>) -> bool| others.iter().filter(|asked| wanted(asked)).count();
        assert_eq!(count(|asked| matches!(asked, Asked::ByAnother)), 0, "each name has its own slot");
        assert_eq!(count(|asked| matches!(asked, Asked::First(_))), SLOTS - 1, "each slot serves one");
        drop(others);
        drop(first);
        assert!(matches!(asking.begin(&name(0)), Asked::First(_)));
    }
}
