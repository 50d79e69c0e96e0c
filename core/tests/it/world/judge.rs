//! Who looks at everything from outside, with the one true clock: what the store has, and what the holders of guards
//! believe.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use futures_util::FutureExt as _;
use tenure_core::driver::{DistributedLock, Holder};
use tenure_core::{LockName, OwnerToken};
use tokio::sync::Notify;
use tokio::task::unconstrained;
use tokio::time::Instant;

use crate::world::guard::Guard;
use crate::world::link::Observer;
use crate::world::plan::{NAMES, Plan, STORM, Weather};
use crate::world::store::Store;

/// A lease has at most so many fences.
const FENCES: u64 = 4;

#[derive(Debug)]
pub(crate) struct Judge {
    store: Store,
    names: [LockName; NAMES.len()],
    started: Instant,
    storm_until: Instant,
    /// The longest that a lock may be free while somebody waits for it.
    idle: Duration,
    /// The longest that a lock may be held at the store though nobody has a guard.
    ownerless: Option<Duration>,
    /// How often a waiter asks of its own accord.
    heartbeat: Duration,
    /// The longest lease that anybody asks for.
    longest: Duration,
    traces: bool,
    state: Mutex<State>,
    wronged: Notify,
}

#[derive(Debug, Default)]
struct State {
    guards: Vec<(usize, Weak<Guard>)>,
    of: [OfName; NAMES.len()],
    /// Who takes several locks, and may have one of them.
    gathering: usize,
    wrong: Option<String>,
    trace: Vec<String>,
    tally: Tally,
}

/// What is known of one name.
#[derive(Debug, Default)]
struct OfName {
    /// Fences of guards, and the greatest.
    fences: HashSet<u64>,
    greatest: u64,
    /// Holds that ended at the store before their time, by their fences, and when.
    revoked: Vec<(Range<u64>, Instant)>,
    /// Who had the lock.
    taken: HashSet<OwnerToken>,
    /// A late or repeated request was granted after a hold had been taken away: that may be back.
    repeated: bool,
    waiting: usize,
    free_since: Option<Instant>,
    /// When the last lease that was seen would end by itself. Whoever waits then is told by nobody, and asks at its heartbeat.
    ends: Option<Instant>,
    ownerless_since: Option<Instant>,
}

/// What happened in schedules.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) schedules: u64,
    pub(crate) grants: u64,
    pub(crate) waits: u64,
    pub(crate) failed: u64,
    pub(crate) dropped: u64,
    pub(crate) lost: u64,
    pub(crate) blows: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, other: &Self) {
        self.schedules += other.schedules;
        self.grants += other.grants;
        self.waits += other.waits;
        self.failed += other.failed;
        self.dropped += other.dropped;
        self.lost += other.lost;
        self.blows += other.blows;
    }
}

/// What somebody waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum For {
    One(usize),
    /// All locks: it may have some of them already.
    All,
    Nothing,
}

/// Somebody asks for locks, until this is dropped.
pub(crate) struct Asking {
    judge: Arc<Judge>,
    waits_for: For,
    /// The greatest fence of each name when it was begun.
    floors: [u64; NAMES.len()],
}

impl Judge {
    pub(crate) fn new(plan: &Plan, store: &Store, traces: bool) -> Arc<Self> {
        let started = Instant::now();
        let (idle, ownerless) = match plan.weather {
            Weather::Calm => (100, Some(100)),
            Weather::Breeze => (3_000, Some(1_000)),
            Weather::Storm => (plan.presence * 4 / 3 + 2_000, None),
        };
        Arc::new(Self {
            store: store.clone(),
            names: NAMES.map(|name| LockName::new(name).unwrap()),
            started,
            storm_until: started + Duration::from_millis(if plan.is_calm() { 0 } else { STORM }),
            idle: Duration::from_millis(idle),
            ownerless: ownerless.map(Duration::from_millis),
            heartbeat: Duration::from_millis(plan.presence / 3),
            longest: Duration::from_millis(plan.ttl * 2),
            traces,
            state: Mutex::default(),
            wronged: Notify::new(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub(crate) fn storm_until(&self) -> Instant {
        self.storm_until
    }

    pub(crate) fn note(&self, what: impl FnOnce() -> String) {
        if self.traces {
            let line = format!("{:>6} ms  {}", self.started.elapsed().as_millis(), what());
            self.state().trace.push(line);
        }
    }

    pub(crate) fn wrong(&self, what: String) {
        self.note(|| format!("WRONG: {what}"));
        self.state().wrong.get_or_insert(what);
        self.wronged.notify_one();
    }

    /// Resolves when something is wrong.
    pub(crate) async fn wronged(&self) {
        self.wronged.notified().await;
    }

    pub(crate) fn outcome(&self) -> (Tally, Option<String>, Vec<String>) {
        let mut state = self.state();
        (state.tally, state.wrong.take(), std::mem::take(&mut state.trace))
    }

    pub(crate) fn count(&self, count: impl FnOnce(&mut Tally)) {
        count(&mut self.state().tally);
    }

    pub(crate) fn names(&self) -> &[LockName] {
        &self.names
    }

    fn index(&self, name: &LockName) -> usize {
        self.names.iter().position(|known| known == name).expect("one of the names")
    }

    /// Who holds the lock at the store, at this moment.
    fn holder(&self, name: usize) -> Option<Holder> {
        let looked = unconstrained(self.store.memory().inspect(&self.names[name])).now_or_never();
        looked.expect("nothing delays the store itself").expect("it answers").holder
    }

    /// The hold is about to end at the store before its time.
    pub(crate) fn revokes(&self, name: &LockName) {
        let name = self.index(name);
        if let Some(fence) = self.holder(name).and_then(|holder| holder.fence) {
            let first = self.store.fence(fence).get();
            self.state().of[name].revoked.push((first..first + FENCES, Instant::now()));
        }
    }

    /// The store gave the lock to this token.
    pub(crate) fn taken(&self, name: &LockName, token: OwnerToken) {
        let of = &mut self.state().of[self.index(name)];
        of.repeated |= !of.taken.insert(token) && !of.revoked.is_empty();
    }

    pub(crate) fn asks(self: &Arc<Self>, waits_for: For) -> Asking {
        let mut state = self.state();
        state.tally.waits += 1;
        match waits_for {
            For::One(name) => state.of[name].waiting += 1,
            For::All => state.gathering += 1,
            For::Nothing => state.tally.waits -= 1,
        }
        let floors = [state.of[0].greatest, state.of[1].greatest];
        Asking { judge: Arc::clone(self), waits_for, floors }
    }

    /// A guard was returned to somebody who began to ask for it at `floors`.
    pub(crate) fn granted(&self, client: usize, guard: &Arc<Guard>, floors: &[u64; NAMES.len()]) {
        let held = guard.is_held();
        let mut wrong = Vec::new();
        if !held && !matches!(**guard, Guard::All(_)) {
            wrong.push(format!("client {client} was given what had ended"));
        }
        {
            let mut state = self.state();
            state.tally.grants += 1;
            for belief in guard.beliefs() {
                let (index, fence, name) = (self.index(belief.name), belief.fence.get(), belief.name);
                let of = &mut state.of[index];
                if !of.fences.insert(fence) && belief.owner.is_none() {
                    wrong.push(format!("the fence {fence} of {name} was granted twice"));
                }
                // A client may pass on what was taken away from it until it hears of that.
                let taken_away = of.revoked.iter().any(|(fences, _)| fences.contains(&fence));
                if fence <= floors[index] && belief.owner.is_none() && !taken_away {
                    wrong.push(format!("{name} was asked for after {} was granted, and got {fence}", floors[index]));
                }
                if held && fence < of.greatest && !taken_away {
                    wrong.push(format!("{fence} of {name} was granted after {}", of.greatest));
                }
                of.greatest = of.greatest.max(fence);
            }
        }
        wrong.into_iter().for_each(|wrong| self.wrong(wrong));
        self.follow(client, guard);
    }

    /// An owner entered what it had.
    pub(crate) fn same_hold(&self, outer: &Guard, inner: &Guard) {
        let (outer, inner) = (&outer.beliefs()[0], &inner.beliefs()[0]);
        let taken_away = self.revoked(self.index(outer.name), outer.fence.get()).is_some();
        if outer.fence != inner.fence && !outer.remaining.is_zero() && !taken_away {
            self.wrong(format!("an entry has the fence {}, and the one before it {}", inner.fence, outer.fence));
        }
    }

    /// Looks at what this guard believes from now on.
    pub(crate) fn follow(&self, client: usize, guard: &Arc<Guard>) {
        let fences = || guard.beliefs().iter().map(|belief| belief.fence.get() % 10_000).collect::<Vec<_>>();
        self.note(|| format!("{client}: has a guard with fence …{:?}, held: {}", fences(), guard.is_held()));
        {
            let mut state = self.state();
            state.guards.retain(|(_, guard)| guard.strong_count() > 0);
            state.guards.push((client, Arc::downgrade(guard)));
        }
        self.look();
    }

    /// Compares what is believed with what is.
    pub(crate) fn look(&self) {
        let guards: Vec<_> =
            self.state().guards.iter().filter_map(|(client, guard)| Some((*client, guard.upgrade()?))).collect();
        let holders: [_; NAMES.len()] = std::array::from_fn(|name| self.holder(name));
        let firsts = holders.each_ref().map(|holder| holder.as_ref().and_then(|holder| holder.fence));
        let firsts = firsts.map(|first| first.map_or(0, |first| self.store.fence(first).get()));
        self.learn(firsts);
        let mut believers: [Vec<_>; NAMES.len()] = Default::default();
        let mut wrong = None;
        let now = Instant::now();
        for (client, guard) in &guards {
            for belief in guard.beliefs() {
                if belief.remaining.is_zero() {
                    continue;
                }
                let (name, fence) = (self.index(belief.name), belief.fence.get());
                match self.revoked(name, fence) {
                    Some((at, _)) if now <= at + self.longest => continue, // it learns of it in time
                    Some((_, true)) => continue,
                    Some(_) => {
                        let text = "believes in a hold that was taken away, longer than any lease";
                        wrong.get_or_insert(format!("client {client} {text}"));
                    }
                    None => {}
                }
                believers[name].push((*client, belief.owner));
                let (holder, first) = (holders[name].as_ref(), firsts[name]);
                if !(first..first + FENCES).contains(&fence) {
                    let has = if first == 0 { "is free".into() } else { format!("is held with {first}") };
                    wrong.get_or_insert(format!("client {client} believes to hold with {fence} what {has}"));
                } else if let Some(left) =
                    holder.and_then(|holder| holder.remaining).filter(|left| *left < belief.remaining)
                {
                    let remaining = belief.remaining;
                    wrong.get_or_insert(format!(
                        "client {client} believes in {remaining:?} of a lease that lasts for {left:?}"
                    ));
                }
            }
        }
        for (name, believers) in believers.iter().enumerate() {
            let together = |(_, owner): &(usize, Option<_>)| owner.is_some() && *owner == believers[0].1;
            if believers.len() > 1 && !believers.iter().all(together) {
                wrong.get_or_insert(format!("{} is held by clients {believers:?}", NAMES[name]));
            }
            if let Some(idle) = self.idle(name, holders[name].as_ref(), now) {
                wrong.get_or_insert(idle);
            }
            let stands = holders[name].as_ref().is_none_or(|holder| holder.label.is_some());
            if let Some(ownerless) = self.ownerless(name, stands || !believers.is_empty(), now) {
                wrong.get_or_insert(ownerless);
            }
        }
        if let Some(wrong) = wrong {
            self.wrong(wrong);
        }
    }

    /// The fences of a hold that was taken away end where those of the next one begin.
    fn learn(&self, firsts: [u64; NAMES.len()]) {
        for (of, first) in std::iter::zip(&mut self.state().of, firsts) {
            if let Some((fences, _)) = of.revoked.last_mut().filter(|(fences, _)| fences.start < first) {
                fences.end = fences.end.min(first);
            }
        }
    }

    /// When the hold with this fence was taken away, and whether a repeated request may have brought it back.
    fn revoked(&self, name: usize, fence: u64) -> Option<(Instant, bool)> {
        let state = self.state();
        let of = &state.of[name];
        let found = of.revoked.iter().rfind(|(fences, _)| fences.contains(&fence));
        found.map(|(_, at)| (*at, of.repeated))
    }

    /// Whether the lock is left free for too long though somebody waits.
    fn idle(&self, name: usize, holder: Option<&Holder>, now: Instant) -> Option<String> {
        let mut state = self.state();
        let of = &mut state.of[name];
        if let Some(holder) = holder {
            of.ends = holder.remaining.map(|left| now + left);
        }
        if holder.is_some() || of.waiting == 0 {
            of.free_since = None;
            return None;
        }
        let since = (*of.free_since.get_or_insert(now)).max(self.storm_until);
        let ended_by_itself = of.ends.is_some_and(|ends| ends <= since);
        let most = if ended_by_itself { self.idle + self.heartbeat } else { self.idle };
        let idle = now.saturating_duration_since(since);
        (idle > most).then(|| format!("{} was free for {idle:?}, and {} waited", NAMES[name], of.waiting))
    }
}

impl Judge {
    /// Whether the lock is left taken for too long though nobody has it.
    fn ownerless(&self, name: usize, right: bool, now: Instant) -> Option<String> {
        let mut state = self.state();
        let gathering = state.gathering > 0;
        let of = &mut state.of[name];
        if right || gathering {
            of.ownerless_since = None;
            return None;
        }
        let since = now.saturating_duration_since(*of.ownerless_since.get_or_insert(now));
        (since > self.ownerless?).then(|| format!("{} was held for {since:?}, and nobody had it", NAMES[name]))
    }
}

impl Observer for Judge {
    fn note(&self, what: &dyn Fn() -> String) {
        Self::note(self, what);
    }

    fn look(&self) {
        Self::look(self);
    }
}

impl Asking {
    pub(crate) fn floors(&self) -> &[u64; NAMES.len()] {
        &self.floors
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        match self.waits_for {
            For::One(name) => self.judge.state().of[name].waiting -= 1,
            For::All => self.judge.state().gathering -= 1,
            For::Nothing => {}
        }
    }
}
