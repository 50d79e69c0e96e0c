//! All names of one store, behind one mutex; and the data that outlives a name: the fence counter and the tombstones.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tenure_core::driver::{
    CensusPlace, Family, ForceReleased, Handed, HeldLock, HeldPage, PermitHold, PermitInspection, Renewed,
};
use tenure_core::queue::QueueName;
use tenure_core::rules::locks::{self, Given, Heard, InRecord, Outside, Record, Rule};
use tenure_core::rules::permits::{self, PermitState};
use tenure_core::{FenceFloor, FencingToken, LockName, OwnerToken};
use tokio::time::Instant;

use crate::ballots::Voting;
use crate::delay::{QueueCaps, QueueRule, Queues};
use crate::link::Link;
use crate::sweep::Sweep;

/// How long an abandoned token is remembered.
pub(crate) const TOMBSTONE_FOR: Duration = Duration::from_secs(60);

/// The age of a store by its own clock when it is made. Runtimes can share a store, and where tests pause their time, that of one may be
/// behind the time at which another made the store.
const AGE: Duration = Duration::from_secs(30 * 86_400);

/// The caps of a store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caps {
    pub(crate) locks: locks::Caps,
    pub(crate) permits: permits::Caps,
    pub(crate) queues: QueueCaps,
}

impl Caps {
    pub(crate) const DEEPEST: u32 = 65_535;
    pub(crate) const MOST_WAITERS: u32 = 1_000_000;
    pub(crate) const DEFAULT: Self = Self {
        locks: locks::Caps { waiters: 10_000, depth: Self::DEEPEST },
        permits: permits::Caps { waiters: 10_000, holders: 1_024 },
        queues: QueueCaps::DEFAULT,
    };
}

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
    names: Sweep<LockName, Record>,
    permits: Sweep<(Family, LockName), PermitState>,
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
    pub(crate) record: &'a mut Record,
    pub(crate) now: Instant,
    /// The same by the store's clock.
    pub(crate) time: Duration,
    name: &'a LockName,
    beyond: &'a mut Beyond,
    store: &'a Store,
}

/// The stores that this process knows by a name.
static NAMED: Mutex<BTreeMap<String, Weak<Store>>> = Mutex::new(BTreeMap::new());

/// What decisions about a name take from the store: fences, abandoned tokens, and those who listen.
pub(crate) struct Common<'a> {
    name: &'a LockName,
    now: Instant,
    beyond: &'a mut Beyond,
    store: &'a Store,
}

impl Common<'_> {
    /// The next fence for a quorum.
    pub(crate) fn vote(&mut self, proposal: Option<FencingToken>) -> FencingToken {
        self.beyond.voting.next(self.name, proposal, self.now)
    }
}

impl Outside for Common<'_> {
    /// Greater than any before for any name.
    fn fences(&mut self, count: u32) -> FencingToken {
        let first = self.beyond.last_fence + 1;
        self.beyond.last_fence += u64::from(count);
        FencingToken::new(first).expect("the counter never returns to zero")
    }

    fn signal(&mut self, waiter: &OwnerToken, given: Option<Given>) -> Heard {
        let began_at = self.store.time(self.now);
        let handed = given.map(|Given { fence, ttl, fences }| Handed::new(fence, ttl, began_at).with_fences(fences));
        self.store.signal(|link| match handed {
            Some(handed) => link.hand(waiter, handed),
            None => link.wake(waiter),
        })
    }

    fn bury(&mut self, token: &OwnerToken) {
        self.beyond.tombstones.insert((self.name.clone(), *token), self.now + TOMBSTONE_FOR);
    }

    fn is_buried(&self, token: &OwnerToken) -> bool {
        let until = self.beyond.tombstones.get(&(self.name.clone(), *token));
        until.is_some_and(|until| *until > self.now)
    }
}

impl permits::Outside for Common<'_> {
    type Error = Infallible;

    fn fence(&mut self) -> Result<FencingToken, Infallible> {
        Ok(self.fences(1))
    }

    fn signal(&mut self, waiter: &OwnerToken, _client: u64, given: Option<Given>) -> Result<Heard, Infallible> {
        Ok(Outside::signal(self, waiter, given))
    }

    fn bury(&mut self, token: &OwnerToken) -> Result<(), Infallible> {
        Outside::bury(self, token);
        Ok(())
    }

    fn is_buried(&self, token: &OwnerToken) -> Result<bool, Infallible> {
        Ok(Outside::is_buried(self, token))
    }
}

impl Entry<'_> {
    /// The hold, if its lease has not ended.
    pub(crate) fn hold(&mut self) -> &mut Option<locks::Hold> {
        self.record.settle(self.time);
        &mut self.record.hold
    }

    /// The record, and what its decisions take from outside.
    pub(crate) fn parts(&mut self) -> (&mut Record, Common<'_>) {
        let common = Common { name: self.name, now: self.now, beyond: self.beyond, store: self.store };
        (self.record, common)
    }

    pub(crate) fn rule(&mut self) -> Rule<'_, InRecord<'_, Common<'_>>> {
        let time = self.time;
        let (record, common) = self.parts();
        record.rule(time, common)
    }

    /// What the store keeps for quorums.
    pub(crate) fn voting(&mut self) -> &mut Voting {
        &mut self.beyond.voting
    }
}

/// Counts of a store's remaining data. See [`MemoryDriver::residue`](crate::MemoryDriver::residue).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Residue {
    /// Names with a holder or waiters.
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
            started: Instant::now().checked_sub(AGE).unwrap_or_else(Instant::now),
        })
    }

    /// The store that this process knows by this name, made if it is not in use now. The fences of an existing store
    /// continue beyond the floor.
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

    /// Takes the lock from any holder, or from the hold with the expected fence alone.
    pub(crate) fn force_release(&self, name: &LockName, expected: Option<FencingToken>) -> ForceReleased {
        let Ok(released) = self.with_entry(name, |entry| entry.rule().force_release(expected));
        released
    }

    /// The first names under a prefix that are held, in the order of their bytes, behind one of them.
    pub(crate) fn held(&self, prefix: &[u8], after: Option<&[u8]>, max: usize) -> HeldPage {
        let mut state = self.locked();
        let now = self.time(Instant::now());
        let is_wanted = |name: &LockName| {
            let name = name.as_bytes();
            name.starts_with(prefix) && after.is_none_or(|after| name > after)
        };
        let held = state
            .names
            .iter()
            .filter(|(name, record)| is_wanted(name) && record.hold.as_ref().is_some_and(|hold| hold.until > now));
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
            let record = state.names.get_mut(&name)?;
            record.settle(now);
            let waiters = u32::try_from(record.line.len()).ok();
            Some(HeldLock::new(name, record.hold.as_ref()?.seen(now)).with_waiters(waiters))
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

    /// Reads or changes one name, and notifies waiters on the way that their turn has come. An idle name is not kept.
    pub(crate) fn with_entry<T>(&self, name: &LockName, decision: impl FnOnce(&mut Entry<'_>) -> T) -> T {
        let mut guard = self.locked();
        let now = Instant::now();
        let State { names, beyond, .. } = &mut *guard;
        beyond.tombstones.step(|until| *until <= now);
        beyond.voting.step(now);
        let time = self.time(now);
        names.step(|record| record.is_idle(time));
        match names.get_mut(name) {
            Some(record) => {
                let answer = decision(&mut Entry { record, now, time, name, beyond, store: self });
                if record.is_idle(time) {
                    names.remove(name);
                }
                answer
            }
            None => {
                let mut record = Record::default();
                let answer = decision(&mut Entry { record: &mut record, now, time, name, beyond, store: self });
                if !record.is_idle(time) {
                    names.insert(name.clone(), record);
                }
                answer
            }
        }
    }

    /// Reads or changes one semaphore or read-write lock, and notifies waiters on the way. An idle one is not kept.
    pub(crate) fn with_permits<T>(
        &self,
        family: Family,
        name: &LockName,
        decision: impl FnOnce(&mut permits::Rule<'_, Common<'_>>) -> T,
    ) -> T {
        let mut guard = self.locked();
        let now = Instant::now();
        let State { permits, beyond, .. } = &mut *guard;
        beyond.tombstones.step(|until| *until <= now);
        let time = self.time(now);
        permits.step(|state| state.is_idle(time));
        let key = (family, name.clone());
        let mut new = PermitState::default();
        let (state, is_kept) = match permits.get_mut(&key) {
            Some(state) => (state, true),
            None => (&mut new, false),
        };
        let common = Common { name, now, beyond, store: self };
        let answer = decision(&mut permits::Rule::new(state, time, self.caps.permits, common));
        match (is_kept, state.is_idle(time)) {
            (true, true) => permits.remove(&key),
            (false, false) => permits.insert(key, new),
            _ => {}
        }
        answer
    }

    /// Renews a hold of permits. Looks at that hold alone.
    pub(crate) fn renew_permits(&self, hold: &PermitHold, ttl: Duration) -> Renewed {
        let time = self.time(Instant::now());
        let mut state = self.locked();
        let permits = state.permits.get_mut(&(hold.family, hold.name.clone()));
        permits.map_or(Renewed::Lost, |permits| permits.renew(time, &hold.token, ttl))
    }

    pub(crate) fn inspect_permits(&self, family: Family, name: &LockName, most: usize) -> PermitInspection {
        let time = self.time(Instant::now());
        let state = self.locked();
        state.permits.get(&(family, name.clone())).map(|permits| permits.inspect(time, most)).unwrap_or_default()
    }

    /// Decides on one queue, then wakes its watchers if a message is due sooner than before.
    pub(crate) fn decide_queue<T>(
        &self,
        queue: &QueueName,
        decision: impl FnOnce(&mut QueueRule<'_, '_>) -> Result<T, Infallible>,
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

    /// Reads or changes the state kept for quorums.
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
        let time = self.time(now);
        state.names.sweep_all(|record| record.is_idle(time));
        state.permits.sweep_all(|permits| permits.is_idle(time));
        let waiters = state.permits.values().map(|permits| permits.inspect(time, 0).waiters as usize);
        Residue {
            names: state.names.len() + state.permits.len(),
            waiters: state.names.values().map(|record| record.line.len()).chain(waiters).sum(),
            tombstones: state.beyond.tombstones.len(),
            watches: self.links().iter().map(|link| link.watches()).sum(),
        }
    }

    /// The store's own clock.
    pub(crate) fn time(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.started)
    }

    fn signal(&self, signal: impl Fn(&Link) -> Heard) -> Heard {
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
            let present = entry.time + TOMBSTONE_FOR;
            let (record, mut common) = entry.parts();
            common.bury(&OwnerToken::random());
            let token = OwnerToken::random();
            record.line.push_back(locks::Waiter { place: (), token, present, terms: None });
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
