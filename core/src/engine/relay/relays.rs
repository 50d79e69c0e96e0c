//! The relays of one client, and what happens to them.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;

use super::super::attempt::Ask;
use super::super::hold::HeldEntry;
use super::super::shared::Shared;
use super::asking::{Asked, Asking, FirstAsk};
use super::baton::{Baton, CLAIM, Terms};
use super::place::{Offer, Place};
use super::runner::{Next, Runner};
use crate::value::clock::LeaseInstant;
use crate::value::error::{Error, Result};
use crate::value::name::LockName;
use crate::value::token::OwnerToken;

/// One relay for each name that several tasks of the client want.
#[derive(Debug, Default)]
pub(crate) struct Relays {
    /// How many there are. Mostly none, and then nobody locks the map.
    count: AtomicUsize,
    map: Mutex<HashMap<LockName, Relay>>,
    numbers: AtomicU64,
    asking: Asking,
}

/// Where a waiter of the client waits.
pub(crate) enum Joined<'a> {
    /// With others.
    Place(Place),
    /// At the backend; others may wait along from now on.
    Alone(Option<FirstAsk<'a>>),
}

#[derive(Debug)]
struct Relay {
    terms: Terms,
    /// Whether the backend has answered a request for this lock since it was wanted by several.
    heard: bool,
    /// Where the runner's task is started.
    runtime: Handle,
    /// In order of arrival, and of their numbers.
    waiters: VecDeque<Waiter>,
    runs: Runs,
    /// The lease that is being passed on, by the token of its holder, and until when.
    passing: Option<(OwnerToken, LeaseInstant)>,
    /// Told when no lease is being passed on any more.
    over: Arc<Notify>,
}

#[derive(Debug)]
struct Waiter {
    number: u64,
    offers: oneshot::Sender<Offer>,
}

/// Who waits at the backend.
#[derive(Debug)]
enum Runs {
    Nobody,
    /// The waiter that began, in a future of its own, while it is alone.
    Waiter(u64),
    /// A task, known by a number.
    Task {
        number: u64,
        asking: bool,
        stop: Arc<Notify>,
        task: Option<JoinHandle<()>>,
    },
}

impl Relays {
    fn map(&self) -> MutexGuard<'_, HashMap<LockName, Relay>> {
        self.map.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// A place with those who want the same, if there are any.
    pub(crate) fn join<'a>(&'a self, shared: &Arc<Shared>, ask: &Ask) -> Result<Joined<'a>> {
        let Some(terms) = Terms::of(ask) else { return Ok(Joined::Alone(None)) };
        if self.count.load(Ordering::Acquire) > 0
            && let Some(joined) = self.with(shared, &ask.name, |relay| relay.join(shared, ask, &terms, self.number()))
        {
            return joined;
        }
        match self.asking.begin(&ask.name) {
            Asked::First(first) => Ok(Joined::Alone(Some(first))),
            Asked::Unknown => Ok(Joined::Alone(None)),
            Asked::ByAnother => {
                if let Ok(runtime) = Handle::try_current() {
                    let mut map = self.map();
                    let relay = || Relay::new(terms.clone(), runtime, Runs::Nobody);
                    map.entry(ask.name.clone()).or_insert_with(relay);
                    self.count.store(map.len(), Ordering::Release);
                }
                let joined = self.with(shared, &ask.name, |relay| relay.join(shared, ask, &terms, self.number()));
                joined.unwrap_or(Ok(Joined::Alone(None)))
            }
        }
    }

    /// Begins a relay with a waiter that was told that the lock is busy; `None` if there is one already. It runs, until
    /// somebody joins.
    pub(crate) fn begin(&self, shared: &Arc<Shared>, ask: &Ask) -> Option<Place> {
        let (terms, runtime) = (Terms::of(ask)?, Handle::try_current().ok()?);
        let mut map = self.map();
        if map.contains_key(&ask.name) {
            return None;
        }
        let number = self.number();
        let mut relay = Relay { heard: true, ..Relay::new(terms, runtime, Runs::Waiter(number)) };
        let offers = relay.add(number);
        map.insert(ask.name.clone(), relay);
        self.count.store(map.len(), Ordering::Release);
        drop(map);
        Some(Place::new(shared, ask, number, None, offers))
    }

    /// Takes a waiter out. If it ran for the others and won, they may hope for that lease. Returns the task that was
    /// stopped, since nobody else waits.
    pub(super) fn leave(
        &self,
        shared: &Arc<Shared>,
        name: &LockName,
        number: u64,
        won: Option<&HeldEntry>,
    ) -> Option<JoinHandle<()>> {
        let (stopped, ()) = self.change(shared, name, |relay| {
            if let Ok(at) = relay.waiters.binary_search_by_key(&number, |waiter| waiter.number) {
                drop(relay.waiters.remove(at));
            }
            relay.runs_no_more(number);
            if let Some(held) = won.filter(|_| !relay.waiters.is_empty()) {
                relay.begins_passing(held.token(), held.baton());
            }
        })?;
        stopped
    }

    /// Passes a lease on to the first waiter; `false` if it has to go back to the backend.
    pub(crate) fn pass_on(&self, from: &HeldEntry, baton: Baton) -> bool {
        if self.count.load(Ordering::Acquire) == 0 {
            return false;
        }
        let lease = from.lease();
        let passed = self.with(from.shared(), lease.name(), |relay| {
            relay.ends_passing(from.token());
            if baton.lasts_until().is_none() || !baton.is_for(&relay.terms) || !relay.has_waiter() {
                return None;
            }
            let (token, until) = (OwnerToken::random(), LeaseInstant::now().after(CLAIM));
            if !lease.pass((from.token(), from.over()), token, relay.terms.least(), until) {
                return None;
            }
            let baton = baton.passed_on();
            relay.begins_passing(&token, Some(&baton));
            relay.next().map(|waiter| (waiter, token, baton))
        });
        let Some((waiter, token, baton)) = passed.flatten() else { return false };
        let next = from.passed_on(token, baton);
        from.shared().keeper.watch_over(lease);
        // One that left meanwhile drops it, that is, passes it on in turn.
        drop(waiter.offers.send(Offer::Held(next)));
        true
    }

    /// Gives a lease that was won for all to the first waiter. Without one, it goes back.
    pub(super) fn give(&self, held: HeldEntry) {
        let lease = Arc::clone(held.lease());
        let first = self.with(held.shared(), lease.name(), |relay| {
            relay.is_answered();
            relay.heard = true;
            let until = LeaseInstant::now().after(CLAIM);
            if !relay.has_waiter() || !lease.pass((held.token(), None), *held.token(), Duration::ZERO, until) {
                return None;
            }
            relay.begins_passing(held.token(), held.baton());
            relay.next()
        });
        if let Some(waiter) = first.flatten() {
            held.shared().keeper.watch_over(&lease);
            drop(waiter.offers.send(Offer::Held(held)));
        }
    }

    /// Nobody has heard from the backend: each waiter asks for itself, and has patience of its own.
    pub(super) fn scatter(&self, shared: &Arc<Shared>, name: &LockName) {
        let waiters = self.with(shared, name, |relay| {
            relay.is_answered();
            std::mem::take(&mut relay.waiters)
        });
        for waiter in waiters.unwrap_or_default() {
            drop(waiter.offers.send(Offer::Scattered));
        }
    }

    /// Tells all waiters why waiting for them failed.
    pub(super) fn fail(&self, shared: &Arc<Shared>, name: &LockName, error: &Error) {
        let waiters = self.with(shared, name, |relay| {
            relay.is_answered();
            std::mem::take(&mut relay.waiters)
        });
        let waiters = waiters.unwrap_or_default();
        for waiter in waiters {
            drop(waiter.offers.send(Offer::Failed(error.clone())));
        }
    }

    /// What the task has to do next.
    pub(super) fn next(&self, shared: &Arc<Shared>, name: &LockName, task: u64) -> Next {
        let next = self.with(shared, name, |relay| {
            let ended = relay.passing.is_some_and(|(_, until)| until <= LeaseInstant::now());
            if ended {
                relay.passing = None;
            }
            let waits = relay.has_waiter();
            let Runs::Task { number, asking, .. } = &mut relay.runs else { return Next::End };
            if *number != task {
                return Next::End;
            }
            *asking = waits && relay.passing.is_none();
            match relay.passing {
                // Also when nobody waits: whoever has just released comes back soon, if at all.
                Some((_, until)) => Next::Pause(until, Arc::clone(&relay.over)),
                None if waits => Next::Ask(relay.terms.ask(name), relay.heard),
                None => {
                    relay.runs = Runs::Nobody;
                    Next::End
                }
            }
        });
        next.unwrap_or(Next::End)
    }

    /// The task ended before its time: its runtime did. Those whom it ran for start over.
    pub(super) fn lose_task(&self, shared: &Arc<Shared>, name: &LockName, task: u64) {
        let waiters = self.with(shared, name, |relay| {
            let lost = relay.runs_no_more(task);
            if lost { std::mem::take(&mut relay.waiters) } else { VecDeque::new() }
        });
        drop(waiters);
    }

    fn with<T>(&self, shared: &Arc<Shared>, name: &LockName, change: impl FnOnce(&mut Relay) -> T) -> Option<T> {
        self.change(shared, name, change).map(|(_, answer)| answer)
    }

    /// Changes a relay, and then does what the change calls for. Returns the task that was stopped, as well.
    fn change<T>(
        &self,
        shared: &Arc<Shared>,
        name: &LockName,
        change: impl FnOnce(&mut Relay) -> T,
    ) -> Option<(Option<JoinHandle<()>>, T)> {
        let mut map = self.map();
        let relay = map.get_mut(name)?;
        let answer = change(relay);
        let (start, stop) = (relay.starts(|| self.number()), relay.stops());
        if relay.is_idle() {
            map.remove(name);
            self.count.store(map.len(), Ordering::Release);
        }
        drop(map);
        if let Some((runtime, number, stop)) = start {
            // A runtime that has ended drops the task at once, which loses it.
            let handle = runtime.spawn(Runner::new(shared, name, number).run(stop));
            if let Some(Runs::Task { number: runs, task, .. }) = self.map().get_mut(name).map(|relay| &mut relay.runs)
                && *runs == number
            {
                *task = Some(handle);
            }
        }
        Some((stop.flatten(), answer))
    }
}

impl Relay {
    fn new(terms: Terms, runtime: Handle, runs: Runs) -> Self {
        let (waiters, over) = (VecDeque::new(), Arc::default());
        Self { terms, heard: false, runtime, waiters, runs, passing: None, over }
    }

    /// A place in it, for whoever wants the same.
    fn join<'a>(&mut self, shared: &Arc<Shared>, ask: &Ask, terms: &Terms, number: u64) -> Result<Joined<'a>> {
        if self.terms != *terms {
            return Ok(Joined::Alone(None));
        }
        let reservation = Some(shared.reserve()?);
        self.is_joined();
        Ok(Joined::Place(Place::new(shared, ask, number, reservation, self.add(number))))
    }

    fn add(&mut self, number: u64) -> oneshot::Receiver<Offer> {
        let (offers, place) = oneshot::channel();
        self.waiters.push_back(Waiter { number, offers });
        place
    }

    /// From now on a task runs, and where this one is polled: whoever began may not be polled any more, and those behind
    /// must not depend on that.
    fn is_joined(&mut self) {
        if let Ok(runtime) = Handle::try_current() {
            self.runtime = runtime;
        }
        if matches!(self.runs, Runs::Waiter(_)) {
            self.runs = Runs::Nobody;
        }
    }

    /// Whether somebody waits. Forgets those before who have left.
    fn has_waiter(&mut self) -> bool {
        while self.waiters.front().is_some_and(|waiter| waiter.offers.is_closed()) {
            self.next();
        }
        !self.waiters.is_empty()
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

    /// The task has an answer, and goes on by itself.
    fn is_answered(&mut self) {
        if let Runs::Task { asking, .. } = &mut self.runs {
            *asking = false;
        }
    }

    fn begins_passing(&mut self, token: &OwnerToken, baton: Option<&Baton>) {
        self.passing = baton.and_then(Baton::lasts_until).map(|until| (*token, until));
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

    /// The task to start: somebody waits, and nobody runs.
    fn starts(&mut self, number: impl FnOnce() -> u64) -> Option<(Handle, u64, Arc<Notify>)> {
        let needed = matches!(self.runs, Runs::Nobody) && !self.waiters.is_empty();
        needed.then(|| {
            let (number, stop) = (number(), Arc::default());
            self.runs = Runs::Task { number, asking: false, stop: Arc::clone(&stop), task: None };
            (self.runtime.clone(), number, stop)
        })
    }

    /// Stops the task if it asks the backend, and nobody waits any more; it leaves the backend's queue before it ends.
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
