//! All names of one store, behind one mutex; and what outlives a name: the fence counter and the tombstones.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tenure_core::driver::{CensusPlace, ForceReleased, Handed, HeldLock, HeldPage};
use tenure_core::queue::QueueName;
use tenure_core::{FenceFloor, FencingToken, LockName, OwnerToken};
use tokio::time::Instant;

use crate::ballots::Voting;
use crate::decide::{Caps, Given, Heard, NameState, Outside};
use crate::delay::{QueueState, Queues, Turn};
use crate::link::Link;
use crate::sweep::Sweep;

/// How long an abandoned token is remembered.
pub(crate) const TOMBSTONE_FOR: Duration = Duration::from_secs(60);

/// What several connections share.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) caps: Caps,
    state: Mutex<State>,
    queues: Queues,
    links: Mutex<Vec<Weak<Link>>>,
    started: Instant,
}

#[derive(Debug, Default)]
struct State {
    /// Where fences begin, also after everything was forgotten: the greatest that was asked for.
    floor: FenceFloor,
    names: Sweep<LockName, NameState>,
    beyond: Beyond,
}

impl State {
    /// Empty, with fences beyond this floor.
    fn beyond(floor: FenceFloor) -> Self {
        Self { floor, beyond: Beyond { last_fence: floor.get(), ..Beyond::default() }, ..Self::default() }
    }
}

/// What outlives the state of a name.
#[derive(Debug, Default)]
struct Beyond {
    tombstones: Sweep<(LockName, OwnerToken), Instant>,
    last_fence: u64,
    voting: Voting,
}

/// One name while the store is locked.
pub(crate) struct Entry<'a> {
    pub(crate) state: &'a mut NameState,
    pub(crate) now: Instant,
    name: &'a LockName,
    beyond: &'a mut Beyond,
    ears: Ears<'a>,
}

/// The stores that this process knows by a name.
static NAMED: Mutex<BTreeMap<String, Weak<Store>>> = Mutex::new(BTreeMap::new());

/// Those who listen to the store's decisions of one moment.
#[derive(Clone, Copy)]
pub(crate) struct Ears<'a> {
    store: &'a Store,
    now: Instant,
}

impl Ears<'_> {
    /// Tells a waiter that its turn has come, or what it was given; and what became of that.
    pub(crate) fn tell(self, waiter: &OwnerToken, given: Option<Given>) -> Heard {
        let Self { store, now } = self;
        let handed = given.map(|Given { fence, ttl, fences }| {
            let began_at = store.time(now);
            Handed::new(fence, ttl, began_at).with_fences(fences)
        });
        store.tell(|link| match handed {
            Some(handed) => link.hand(waiter, handed),
            None => link.wake(waiter),
        })
    }
}

/// The counter of the store, and those who listen to it.
struct Common<'a> {
    last_fence: &'a mut u64,
    ears: Ears<'a>,
}

impl Outside for Common<'_> {
    fn fences(&mut self, count: u32) -> FencingToken {
        let first = *self.last_fence + 1;
        *self.last_fence += u64::from(count);
        FencingToken::new(first).expect("the counter never returns to zero")
    }

    fn tell(&mut self, waiter: &OwnerToken, given: Option<Given>) -> Heard {
        self.ears.tell(waiter, given)
    }
}

impl Entry<'_> {
    /// The state, and what its decisions take from outside: fences greater than any before for any name.
    pub(crate) fn with_outside(&mut self) -> (&mut NameState, impl Outside + use<'_>) {
        (self.state, Common { last_fence: &mut self.beyond.last_fence, ears: self.ears })
    }

    /// The state, what the store keeps for quorums, and those who listen.
    pub(crate) fn with_voting(&mut self) -> (&mut NameState, &mut Voting, Ears<'_>) {
        (self.state, &mut self.beyond.voting, self.ears)
    }

    /// Remembers that the token was abandoned.
    pub(crate) fn bury(&mut self, token: OwnerToken) {
        self.beyond.tombstones.insert((self.name.clone(), token), self.now + TOMBSTONE_FOR);
    }

    /// Whether the token was abandoned a short while ago.
    pub(crate) fn is_buried(&self, token: &OwnerToken) -> bool {
        let until = self.beyond.tombstones.get(&(self.name.clone(), *token));
        until.is_some_and(|until| *until > self.now)
    }
}

/// What a store still remembers. See [`MemoryDriver::residue`](crate::MemoryDriver::residue).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Residue {
    /// Names that are held or waited for.
    pub names: usize,
    /// Waiters in the queues of these names.
    pub waiters: usize,
    /// Abandoned tokens that are still refused; each is forgotten after 60 s.
    pub tombstones: usize,
    /// Waiters of any connection that listen for a wake-up.
    pub watches: usize,
}

impl Store {
    pub(crate) fn new(caps: Caps, floor: Option<FenceFloor>) -> Arc<Self> {
        let floor = floor.unwrap_or_else(FenceFloor::now);
        Arc::new(Self {
            caps,
            state: Mutex::new(State::beyond(floor)),
            queues: Queues::beyond(floor),
            links: Mutex::default(),
            started: Instant::now(),
        })
    }

    /// The store that this process knows by this name, made if nobody uses it now. The fences of one that is there go on
    /// beyond the floor.
    pub(crate) fn named(name: &str, caps: Caps, floor: Option<FenceFloor>) -> Arc<Self> {
        let mut named = NAMED.lock().unwrap_or_else(PoisonError::into_inner);
        named.retain(|_, store| store.strong_count() > 0);
        if let Some(store) = named.get(name).and_then(Weak::upgrade) {
            store.raise_fences(floor.unwrap_or_default());
            return store;
        }
        let store = Self::new(caps, floor);
        named.insert(name.to_owned(), Arc::downgrade(&store));
        store
    }

    /// Makes all fences from now on greater than the floor.
    pub(crate) fn raise_fences(&self, floor: FenceFloor) {
        {
            let mut state = self.locked();
            state.floor = state.floor.max(floor);
            state.beyond.last_fence = state.beyond.last_fence.max(floor.get());
        }
        self.queues.raise_fences(floor);
    }

    /// Takes the lock from whoever holds it, or from the hold with the expected fence alone.
    pub(crate) fn force_release(&self, name: &LockName, expected: Option<FencingToken>) -> ForceReleased {
        self.with_entry(name, |entry| {
            let now = entry.now;
            let (state, mut outside) = entry.with_outside();
            state.force_release(now, expected, &mut outside)
        })
    }

    /// The first names under a prefix that are held, in the order of their bytes, behind one of them.
    pub(crate) fn held(&self, prefix: &[u8], after: Option<&[u8]>, max: usize) -> HeldPage {
        let mut state = self.locked();
        let now = Instant::now();
        let is_wanted = |name: &LockName| {
            let name = name.as_bytes();
            name.starts_with(prefix) && after.is_none_or(|after| name > after)
        };
        let held = state.names.iter().filter(|(name, state)| is_wanted(name) && state.is_held(now));
        let mut names: Vec<LockName> = held.map(|(name, _)| name.clone()).collect();
        let by_bytes = |one: &LockName, other: &LockName| one.as_bytes().cmp(other.as_bytes());
        let more = names.len() > max;
        if more {
            names.select_nth_unstable_by(max, by_bytes);
            names.truncate(max);
        }
        names.sort_unstable_by(by_bytes);
        let next = names.last().filter(|_| more).map(|name| CensusPlace::new(name.as_bytes().to_vec()));
        let look = |name: LockName| {
            let seen = state.names.get_mut(&name)?.inspect(now);
            Some(HeldLock::new(name, seen.holder?).with_waiters(Some(seen.waiters)))
        };
        HeldPage::new(names.into_iter().filter_map(look).collect(), next)
    }

    /// A new connection, which is woken like all others.
    pub(crate) fn connect(&self) -> Arc<Link> {
        let link = Arc::new(Link::default());
        let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        links.retain(|link| link.strong_count() > 0);
        links.push(Arc::downgrade(&link));
        link
    }

    /// Reads or changes one name, and tells waiters on the way that their turn has come. An idle name is not kept.
    pub(crate) fn with_entry<T>(&self, name: &LockName, decision: impl FnOnce(&mut Entry<'_>) -> T) -> T {
        let mut guard = self.locked();
        let now = Instant::now();
        let State { names, beyond, .. } = &mut *guard;
        beyond.tombstones.step(|until| *until <= now);
        beyond.voting.step(now);
        names.step(|state| state.is_idle(now));
        let ears = Ears { store: self, now };
        match names.get_mut(name) {
            Some(state) => {
                let answer = decision(&mut Entry { state, now, name, beyond, ears });
                if state.is_idle(now) {
                    names.remove(name);
                }
                answer
            }
            None => {
                let mut state = NameState::default();
                let answer = decision(&mut Entry { state: &mut state, now, name, beyond, ears });
                if !state.is_idle(now) {
                    names.insert(name.clone(), state);
                }
                answer
            }
        }
    }

    /// Decides on one queue, then wakes its watchers if a message is due sooner than before.
    pub(crate) fn decide_queue<T>(
        &self,
        queue: &QueueName,
        decision: impl FnOnce(&mut QueueState, &mut Turn<'_>) -> T,
    ) -> T {
        let (answer, sooner) = self.queues.decide(queue, self.caps.queues, decision);
        if sooner {
            self.wake_queue(queue);
        }
        answer
    }

    pub(crate) fn queues(&self) -> &Queues {
        &self.queues
    }

    fn wake_queue(&self, queue: &QueueName) {
        self.links().iter().for_each(|link| link.wake_queue(queue));
    }

    /// Reads or changes what is kept for quorums.
    pub(crate) fn with_voting<T>(&self, change: impl FnOnce(&mut Voting, Instant) -> T) -> T {
        change(&mut self.locked().beyond.voting, Instant::now())
    }

    /// Forgets everything, and wakes all watchers, as after a reconnect.
    pub(crate) fn forget_everything(&self) {
        let voting = Voting::emptied(Instant::now());
        let floor = {
            let mut state = self.locked();
            *state = State::beyond(state.floor);
            state.beyond.voting = voting;
            state.floor
        };
        self.queues.forget(floor);
        self.links().iter().for_each(|link| link.wake_all());
    }

    pub(crate) fn residue(&self) -> Residue {
        let mut state = self.locked();
        let now = Instant::now();
        state.beyond.tombstones.sweep_all(|until| *until <= now);
        state.names.sweep_all(|name| name.is_idle(now));
        Residue {
            names: state.names.len(),
            waiters: state.names.values().map(|name| name.waiters() as usize).sum(),
            tombstones: state.beyond.tombstones.len(),
            watches: self.links().iter().map(|link| link.watches()).sum(),
        }
    }

    /// The store's own clock.
    pub(crate) fn time(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.started)
    }

    fn tell(&self, signal: impl Fn(&Link) -> Heard) -> Heard {
        let mut heard = Heard::ByNobody;
        for link in self.links() {
            let signalled = signal(&link);
            match signalled {
                Heard::Yes | Heard::Never => return signalled,
                Heard::Perhaps => heard = Heard::Perhaps,
                Heard::ByNobody => {}
            }
        }
        heard
    }

    fn links(&self) -> Vec<Arc<Link>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner).iter().filter_map(Weak::upgrade).collect()
    }

    /// A panic inside a decision would be a bug of this crate; the other names are still good.
    fn locked(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A decision that leaves a waiter behind, as a client that died would.
    fn leave_something(store: &Store, name: &str) {
        let name = LockName::new(name).unwrap();
        store.with_entry(&name, |entry| {
            entry.bury(OwnerToken::random());
            entry.state.leave_a_waiter(entry.now + TOMBSTONE_FOR);
        });
    }

    fn kept(store: &Store) -> (usize, usize) {
        let state = store.locked();
        (state.names.len(), state.beyond.tombstones.len())
    }

    #[tokio::test(start_paused = true)]
    async fn what_nobody_ended_is_swept_by_later_calls_on_other_names() {
        let store = Store::new(Caps::DEFAULT, None);
        for number in 0..1000 {
            leave_something(&store, &number.to_string());
        }
        assert_eq!(kept(&store), (1000, 1000));
        tokio::time::advance(TOMBSTONE_FOR).await;
        let other = LockName::new("other").unwrap();
        for _ in 0..500 {
            store.with_entry(&other, |_| ());
        }
        assert_eq!(kept(&store), (0, 0));
    }

    #[test]
    fn the_name_of_a_store_that_nobody_uses_is_forgotten() {
        let is_known = |name| NAMED.lock().unwrap().contains_key(name);
        let one = Store::named("is used", Caps::DEFAULT, None);
        drop(Store::named("was used", Caps::DEFAULT, None));
        assert!(is_known("was used"));
        let _other = Store::named("comes next", Caps::DEFAULT, None);
        assert_eq!((is_known("is used"), is_known("was used")), (true, false));
        drop(one);
    }
}
