//! The queues that this client waits in, as far as it knows them: who is next, and who of its own is to be woken.
//!
//! The knowledge comes from two sides, answers to requests and events of the watch, and in any order. Both carry
//! revisions, and the later revision is right.

use std::collections::{BTreeMap, HashMap};

use tenure_core::OwnerToken;
use tenure_core::driver::WakeHandle;

use crate::txn::{Extent, Seen};

#[derive(Debug, Default)]
pub(crate) struct View {
    names: HashMap<Vec<u8>, Name>,
    /// Counts the beginnings of the watch: what was read before one says nothing of the queue after it.
    epoch: u64,
}

#[derive(Debug, Default)]
struct Name {
    /// Waiters of this client that listen.
    local: HashMap<OwnerToken, WakeHandle>,
    held: bool,
    /// The revision that `held` is of.
    held_at: i64,
    queue: BTreeMap<i64, OwnerToken>,
    places: HashMap<OwnerToken, i64>,
    /// In which revision places went, as long as an answer that still shows them may come.
    gone: HashMap<OwnerToken, i64>,
    /// Requests on their way.
    asking: usize,
    /// Whether the queue is known since the last gap.
    synced: bool,
}

/// What the watch told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Held,
    Freed,
    Joined(OwnerToken, i64),
    Left(OwnerToken),
}

impl View {
    pub(crate) fn listen(&mut self, name: &[u8], token: OwnerToken, handle: WakeHandle) {
        self.names.entry(name.to_vec()).or_default().local.insert(token, handle);
    }

    pub(crate) fn unlisten(&mut self, name: &[u8], token: &OwnerToken) {
        if let Some(state) = self.names.get_mut(name) {
            state.local.remove(token);
        }
        self.tidy(name);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// A request for this name leaves; what it may read is of this epoch.
    pub(crate) fn asks(&mut self, name: &[u8]) -> u64 {
        if let Some(state) = self.names.get_mut(name) {
            state.asking += 1;
        }
        self.epoch
    }

    /// The request has come back, or never will.
    pub(crate) fn asked(&mut self, name: &[u8]) {
        if let Some(state) = self.names.get_mut(name) {
            state.asking = state.asking.saturating_sub(1);
            if state.asking == 0 {
                state.gone.clear();
            }
        }
        self.tidy(name);
    }

    fn tidy(&mut self, name: &[u8]) {
        if self.names.get(name).is_some_and(|state| state.local.is_empty() && state.asking == 0) {
            self.names.remove(name);
        }
    }

    /// Whether the token seems to be next and the lock free.
    pub(crate) fn seems_free_for(&self, name: &[u8], token: &OwnerToken) -> bool {
        self.names.get(name).is_some_and(|state| !state.held && state.head() == Some(token))
    }

    /// How many are before the token; `None` if that is not known.
    pub(crate) fn position(&self, name: &[u8], token: &OwnerToken) -> Option<u32> {
        let state = self.names.get(name).filter(|state| state.synced)?;
        let place = state.places.get(token)?;
        u32::try_from(state.queue.range(..place).count()).ok()
    }

    pub(crate) fn is_synced(&self, name: &[u8], token: &OwnerToken) -> bool {
        self.names.get(name).is_some_and(|state| state.synced && state.places.contains_key(token))
    }

    /// Takes in what a request of this client read.
    pub(crate) fn read(&mut self, name: &[u8], epoch: u64, asker: &OwnerToken, seen: &Seen) {
        let current = epoch == self.epoch;
        let Some(state) = self.names.get_mut(name) else { return };
        if seen.revision > state.held_at {
            (state.held, state.held_at) = (seen.hold.is_some(), seen.revision);
        }
        if !current {
            return;
        }
        if seen.extent == Extent::All {
            let alive: Vec<i64> = seen.queue.iter().map(|(place, _)| *place).collect();
            let ended: Vec<_> =
                state.queue.range(..=seen.revision).filter(|(place, _)| alive.binary_search(place).is_err()).collect();
            let ended: Vec<OwnerToken> = ended.into_iter().map(|(_, token)| *token).collect();
            ended.iter().for_each(|token| state.leave(token, seen.revision));
            state.synced = true;
        }
        for (place, token) in &seen.queue {
            state.join(*token, *place);
        }
        if !seen.is_next(asker) {
            state.wake_next();
        }
    }

    /// Takes in what the watch told of one name in one revision.
    pub(crate) fn change(&mut self, name: &[u8], revision: i64, change: Change) {
        let Some(state) = self.names.get_mut(name) else { return };
        match change {
            Change::Held if revision > state.held_at => (state.held, state.held_at) = (true, revision),
            Change::Freed if revision > state.held_at => {
                (state.held, state.held_at) = (false, revision);
                state.wake_next();
            }
            Change::Held | Change::Freed => {}
            Change::Joined(token, place) => state.join(token, place),
            Change::Left(token) => {
                let was_head = state.head() == Some(&token);
                state.leave(&token, revision);
                if was_head {
                    state.wake_next();
                }
                if let Some(handle) = state.local.get(&token) {
                    handle.wake(); // its place lapsed, if it still waits
                }
            }
        }
    }

    /// The watch begins: what was read before says nothing.
    pub(crate) fn begin(&mut self) {
        self.epoch += 1;
        for state in self.names.values_mut() {
            let local = std::mem::take(&mut state.local);
            *state = Name { local, asking: state.asking, held: true, ..Name::default() };
        }
    }

    /// The watch was interrupted and goes on now: nothing is known, and everybody asks again.
    pub(crate) fn gap(&mut self) {
        self.begin();
        self.names.values().flat_map(|state| state.local.values()).for_each(WakeHandle::wake);
    }

    /// What is read from now on is of this epoch.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }
}

impl Name {
    fn head(&self) -> Option<&OwnerToken> {
        self.queue.first_key_value().map(|(_, token)| token)
    }

    fn join(&mut self, token: OwnerToken, place: i64) {
        if self.gone.get(&token).is_some_and(|left| *left > place) {
            return;
        }
        if let Some(old) = self.places.insert(token, place).filter(|old| *old != place) {
            self.queue.remove(&old);
        }
        self.queue.insert(place, token);
    }

    fn leave(&mut self, token: &OwnerToken, revision: i64) {
        if self.places.get(token).is_some_and(|place| *place < revision) {
            let place = self.places.remove(token);
            place.map(|place| self.queue.remove(&place));
        }
        if self.asking > 0 {
            self.gone.insert(*token, revision);
        }
    }

    /// Wakes the first in line if the lock is free and it is ours; everybody if it is not known who is first.
    fn wake_next(&self) {
        if self.held {
            return;
        }
        match self.head().filter(|_| self.synced) {
            Some(head) => {
                if let Some(handle) = self.local.get(head) {
                    handle.wake();
                }
            }
            None => self.local.values().for_each(WakeHandle::wake),
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use tenure_core::driver::Watch;

    use super::*;
    use crate::txn::HoldSeen;

    const NAME: &[u8] = b"n";

    struct Waiter(OwnerToken, Watch);

    impl Waiter {
        fn new(view: &mut View) -> Self {
            let (handle, watch) = Watch::channel();
            let token = OwnerToken::random();
            view.listen(NAME, token, handle);
            Self(token, watch)
        }

        fn woken(&mut self) -> bool {
            self.1.next().now_or_never().is_some()
        }
    }

    fn seen(revision: i64, held: bool, queue: &[(i64, OwnerToken)]) -> Seen {
        let hold = held.then_some(HoldSeen { record: None, fence: 1, written: 1, lease: 1 });
        Seen { revision, hold, place: None, queue: queue.to_vec(), extent: Extent::All }
    }

    #[test]
    fn a_release_wakes_the_next_in_line_alone() {
        let mut view = View::default();
        let mut waiters: Vec<Waiter> = (0..5).map(|_| Waiter::new(&mut view)).collect();
        let queue: Vec<_> = waiters.iter().zip(11..).map(|(waiter, place)| (place, waiter.0)).collect();
        let epoch = view.asks(NAME);
        view.read(NAME, epoch, &queue[4].1, &seen(20, true, &queue));
        view.asked(NAME);
        assert_eq!(view.position(NAME, &queue[3].1), Some(3));
        for next in 0..5 {
            let revision = 30 + next as i64 * 2;
            view.change(NAME, revision, Change::Freed);
            let woken: Vec<bool> = waiters.iter_mut().map(Waiter::woken).collect();
            assert_eq!(woken.iter().filter(|woken| **woken).count(), 1, "{woken:?}");
            assert!(woken[next] && view.seems_free_for(NAME, &queue[next].1));
            view.change(NAME, revision + 1, Change::Held);
            view.change(NAME, revision + 1, Change::Left(queue[next].1));
            assert!(waiters[next].woken(), "told that its place is gone");
            assert!(!waiters.iter_mut().any(Waiter::woken), "a place that goes while the lock is held wakes nobody");
        }
    }

    #[test]
    fn a_first_in_line_that_goes_passes_the_free_lock_on() {
        let mut view = View::default();
        let (mut first, mut second) = (Waiter::new(&mut view), Waiter::new(&mut view));
        let epoch = view.asks(NAME);
        view.read(NAME, epoch, &second.0, &seen(20, true, &[(11, first.0), (12, second.0)]));
        view.change(NAME, 21, Change::Freed);
        assert!(first.woken() && !second.woken());
        view.change(NAME, 22, Change::Left(first.0));
        assert!(second.woken());
    }

    #[test]
    fn an_answer_that_was_overtaken_by_events_brings_nothing_back() {
        let mut view = View::default();
        let (mut late, gone) = (Waiter::new(&mut view), OwnerToken::random());
        let epoch = view.asks(NAME);
        view.change(NAME, 21, Change::Freed);
        assert!(late.woken(), "nothing is known yet: everybody asks");
        view.change(NAME, 22, Change::Left(gone));
        view.read(NAME, epoch, &late.0, &seen(20, true, &[(11, gone), (12, late.0)]));
        assert!(late.woken() && view.seems_free_for(NAME, &late.0), "{view:?}");
        view.asked(NAME);
        assert!(view.names[NAME].gone.is_empty());
    }

    #[test]
    fn after_a_gap_everybody_asks_and_old_answers_do_not_count() {
        let mut view = View::default();
        let (mut one, mut two) = (Waiter::new(&mut view), Waiter::new(&mut view));
        let epoch = view.asks(NAME);
        view.gap();
        assert!(one.woken() && two.woken());
        view.read(NAME, epoch, &one.0, &seen(20, true, &[(5, OwnerToken::random()), (11, one.0)]));
        assert!(!view.is_synced(NAME, &one.0));
        let epoch = view.asks(NAME);
        view.read(NAME, epoch, &one.0, &seen(30, true, &[(11, one.0), (12, two.0)]));
        view.change(NAME, 31, Change::Freed);
        assert!(one.woken() && !two.woken());
    }

    #[test]
    fn nothing_is_kept_of_names_that_nobody_waits_for() {
        let mut view = View::default();
        let waiter = Waiter::new(&mut view);
        view.asks(NAME);
        view.unlisten(NAME, &waiter.0);
        assert!(!view.is_empty());
        view.asked(NAME);
        assert!(view.is_empty());
    }
}
