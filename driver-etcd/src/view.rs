//! What this client's waiters know of their queues: the number of places before each, and whether its lock is held.
//!
//! A waiter's count arrives with the answer to its request, and the watch reports each new or removed place. The two
//! arrive in any order. Both carry revisions: an event applies to every count that was read before it.

use std::collections::HashMap;
use std::time::Duration;

use tenure_core::OwnerToken;
use tenure_core::driver::WakeHandle;
use tokio::time::Instant;

use crate::answer::Seen;
use crate::keys::Spot;
use crate::waiters::{Event, Local, Name};

#[derive(Debug, Default)]
pub(crate) struct View {
    names: HashMap<Vec<u8>, Name>,
    /// Counts the beginnings of the watch: an answer read before one says nothing of the queue after it.
    epoch: u64,
}

/// A change that the watch reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Held,
    Freed,
    Joined(Spot),
    Left(Spot),
}

impl View {
    pub(crate) fn listen(&mut self, name: &[u8], token: OwnerToken, handle: WakeHandle) {
        self.names.entry(name.to_vec()).or_default().local.insert(token, Local { handle, place: None });
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
                state.recent.clear();
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
        self.names.get(name).is_some_and(|state| !state.held && state.local.get(token).is_some_and(Local::is_first))
    }

    /// For how long nothing has become of the name, as far as is known.
    pub(crate) fn quiet_for(&self, name: &[u8]) -> Duration {
        self.names.get(name).map_or(Duration::ZERO, |state| state.stirred.elapsed())
    }

    /// Takes in what a request of this client read.
    pub(crate) fn read(&mut self, name: &[u8], epoch: u64, asker: &OwnerToken, seen: &Seen) {
        let current = epoch == self.epoch;
        let Some(state) = self.names.get_mut(name) else { return };
        if seen.revision > state.held_at {
            state.set_held(seen.hold.is_some(), seen.revision);
        }
        // It was read before the watch began: places may have come and gone since that no event reported.
        if !current {
            return;
        }
        state.learn(asker, seen);
        if !seen.is_next(asker) {
            state.wake_next();
        }
    }

    /// Takes in a change that the watch reported of one name in one revision.
    pub(crate) fn change(&mut self, name: &[u8], revision: i64, change: Change) {
        let Some(state) = self.names.get_mut(name) else { return };
        match change {
            // An answer was faster than the watch.
            Change::Held | Change::Freed if revision <= state.held_at => {}
            Change::Held => state.set_held(true, revision),
            Change::Freed => {
                state.set_held(false, revision);
                state.wake_next();
            }
            Change::Joined(spot) => state.happened(Event { revision, spot, came: true }),
            Change::Left(spot) => state.happened(Event { revision, spot, came: false }),
        }
    }

    /// The watch begins: earlier answers say nothing.
    pub(crate) fn begin(&mut self) {
        self.epoch += 1;
        for state in self.names.values_mut() {
            let mut local = std::mem::take(&mut state.local);
            local.values_mut().for_each(|local| local.place = None);
            // Requests on their way stay counted: each of them still ends in `asked`.
            *state = Name { local, asking: state.asking, ..Name::default() };
        }
    }

    /// The watch was interrupted and continues now: nothing is known, and all waiters ask again.
    pub(crate) fn gap(&mut self) {
        self.begin();
        self.wake_all();
    }

    pub(crate) fn wake_all(&self) {
        self.names.values().flat_map(|state| state.local.values()).for_each(|local| local.handle.wake());
    }

    /// Wakes the foremost waiter of each name whose lock has been free for so long, since the first in line does not
    /// take it. The further back the waiter is, the longer it leaves that to others, and each waits as long again
    /// before it looks once more: a slow server does not receive requests of all waiters, all the time.
    pub(crate) fn wake_behind_the_deaf(&mut self, patience: Duration, each: Duration) {
        for state in self.names.values_mut().filter(|state| !state.held) {
            let places = state.local.values().filter_map(|local| Some((local.place.as_ref()?.ahead, local)));
            let Some((ahead, foremost)) = places.min_by_key(|(ahead, _)| *ahead) else { continue };
            if state.stirred.max(state.nudged).elapsed() >= patience + each * ahead.saturating_sub(1) {
                foremost.handle.wake();
                state.nudged = Instant::now();
            }
        }
    }

    /// Answers read from now on are of this epoch.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use tenure_core::driver::Watch;

    use super::*;
    use crate::answer::{Head, HoldSeen};
    use crate::tickets::Place;
    use crate::waiters::MOST_EVENTS;

    const NAME: &[u8] = b"n";

    struct Waiter(Spot, Watch);

    impl Waiter {
        fn new(view: &mut View, arrival: i64) -> Self {
            let (handle, watch) = Watch::channel();
            let spot = Spot { arrival, token: OwnerToken::random() };
            view.listen(NAME, spot.token, handle);
            Self(spot, watch)
        }

        fn woken(&mut self) -> bool {
            self.1.next().now_or_never().is_some()
        }

        fn reads(&self, view: &mut View, epoch: u64, revision: i64, ahead: u32) {
            view.read(NAME, epoch, &self.0.token, &self.seen(revision, ahead));
        }

        fn seen(&self, revision: i64, ahead: u32) -> Seen {
            let hold = Some(HoldSeen { record: None, granted: 1, written: 1, lease: 1 });
            let place = Some(Place { spot: self.0, revision: self.0.arrival + 1, lease: 1 });
            Seen { revision, hold, head: None, place, ahead }
        }
    }

    fn ahead(view: &View, waiter: &Waiter) -> Option<u32> {
        view.names[NAME].local[&waiter.0.token].place.as_ref().map(|place| place.ahead)
    }

    #[test]
    fn a_release_wakes_the_next_in_line_alone() {
        let mut view = View::default();
        let mut waiters: Vec<Waiter> = (0..5).map(|number| Waiter::new(&mut view, 11 + number)).collect();
        for (number, waiter) in (0..).zip(&waiters) {
            let epoch = view.asks(NAME);
            waiter.reads(&mut view, epoch, 20, number);
            view.asked(NAME);
        }
        for next in 0..5 {
            let revision = 30 + next as i64 * 2;
            view.change(NAME, revision, Change::Freed);
            let woken: Vec<bool> = waiters.iter_mut().map(Waiter::woken).collect();
            assert_eq!(woken.iter().filter(|woken| **woken).count(), 1, "{woken:?}");
            assert!(woken[next] && view.seems_free_for(NAME, &waiters[next].0.token));
            view.change(NAME, revision + 1, Change::Held);
            view.change(NAME, revision + 1, Change::Left(waiters[next].0));
            assert!(waiters[next].woken(), "woken, since its place is gone");
            assert!(!waiters.iter_mut().any(Waiter::woken), "a place that goes while the lock is held wakes no waiter");
        }
    }

    #[test]
    fn a_first_in_line_that_goes_passes_the_free_lock_on() {
        let mut view = View::default();
        let (mut first, mut second) = (Waiter::new(&mut view, 11), Waiter::new(&mut view, 12));
        let epoch = view.asks(NAME);
        first.reads(&mut view, epoch, 20, 0);
        second.reads(&mut view, epoch, 20, 1);
        view.change(NAME, 21, Change::Freed);
        assert!(first.woken() && !second.woken());
        view.change(NAME, 22, Change::Left(first.0));
        assert!(second.woken());
    }

    #[test]
    fn a_place_that_comes_before_another_one_late_counts() {
        let mut view = View::default();
        let (mut early, mut late) = (Waiter::new(&mut view, 11), Waiter::new(&mut view, 12));
        let epoch = view.asks(NAME);
        late.reads(&mut view, epoch, 20, 0);
        view.change(NAME, 21, Change::Joined(early.0));
        early.reads(&mut view, epoch, 21, 0);
        assert_eq!((ahead(&view, &early), ahead(&view, &late)), (Some(0), Some(1)));
        view.change(NAME, 22, Change::Freed);
        assert!(early.woken() && !late.woken());
    }

    #[test]
    fn an_answer_that_was_overtaken_by_events_is_brought_up_to_date() {
        let mut view = View::default();
        let (gone, mut late) = (Spot { arrival: 11, token: OwnerToken::random() }, Waiter::new(&mut view, 12));
        let epoch = view.asks(NAME);
        view.change(NAME, 19, Change::Left(gone)); // known to the answer
        view.change(NAME, 21, Change::Freed);
        view.change(NAME, 22, Change::Left(gone));
        late.reads(&mut view, epoch, 20, 1);
        assert!(late.woken() && view.seems_free_for(NAME, &late.0.token), "{view:?}");
        view.asked(NAME);
        assert!(view.names[NAME].recent.is_empty());
        // And one whose own place was deleted on the way.
        let epoch = view.asks(NAME);
        view.change(NAME, 31, Change::Left(late.0));
        late.reads(&mut view, epoch, 30, 3);
        assert!(late.woken() && ahead(&view, &late).is_none());
    }

    #[test]
    fn an_answer_from_before_what_is_remembered_is_asked_for_again() {
        let mut view = View::default();
        let mut late = Waiter::new(&mut view, 5000);
        let epoch = view.asks(NAME);
        for revision in 0..=MOST_EVENTS as i64 {
            let spot = Spot { arrival: revision, token: OwnerToken::random() };
            view.change(NAME, 100 + revision, Change::Left(spot));
        }
        late.reads(&mut view, epoch, 99, 2000);
        assert!(late.woken() && ahead(&view, &late).is_none());
        late.reads(&mut view, epoch, 100, 2000);
        assert_eq!(ahead(&view, &late), Some(2000 - MOST_EVENTS as u32));
    }

    #[test]
    fn after_a_gap_all_ask_and_old_answers_do_not_count() {
        let mut view = View::default();
        let (mut one, mut two) = (Waiter::new(&mut view, 11), Waiter::new(&mut view, 12));
        let epoch = view.asks(NAME);
        two.reads(&mut view, epoch, 19, 1);
        view.gap();
        assert!(one.woken() && two.woken() && ahead(&view, &two).is_none());
        one.reads(&mut view, epoch, 20, 1);
        assert_eq!(ahead(&view, &one), None);
        let epoch = view.asks(NAME);
        one.reads(&mut view, epoch, 30, 0);
        view.change(NAME, 31, Change::Freed);
        assert!(one.woken() && !two.woken());
    }

    #[tokio::test(start_paused = true)]
    async fn behind_a_first_in_line_that_does_not_take_a_free_lock_one_waiter_is_woken() {
        const PATIENCE: Duration = Duration::from_millis(500);
        let mut view = View::default();
        let (mut one, mut two) = (Waiter::new(&mut view, 12), Waiter::new(&mut view, 13));
        let epoch = view.asks(NAME);
        one.reads(&mut view, epoch, 20, 1);
        two.reads(&mut view, epoch, 20, 2);
        let look = |view: &mut View| view.wake_behind_the_deaf(PATIENCE, PATIENCE);
        tokio::time::advance(PATIENCE).await;
        look(&mut view);
        assert!(!one.woken(), "the lock is held");
        view.change(NAME, 21, Change::Freed);
        look(&mut view);
        assert!(!one.woken(), "not yet");
        tokio::time::advance(PATIENCE).await;
        look(&mut view);
        assert!(one.woken() && !two.woken() && view.quiet_for(NAME) >= PATIENCE);
        tokio::time::advance(PATIENCE / 2).await;
        look(&mut view);
        assert!(!one.woken(), "it has just looked");
        tokio::time::advance(PATIENCE / 2).await;
        look(&mut view);
        assert!(one.woken());
        // One that is far behind leaves it to the others for longer, however many they are.
        view.unlisten(NAME, &one.0.token);
        two.reads(&mut view, epoch, 22, 40);
        view.change(NAME, 23, Change::Freed);
        tokio::time::advance(PATIENCE * 39).await;
        look(&mut view);
        assert!(!two.woken(), "39 are before it who wait as well");
        tokio::time::advance(PATIENCE).await;
        look(&mut view);
        assert!(two.woken());
    }

    #[test]
    fn nothing_is_kept_of_names_that_nobody_waits_for() {
        let mut view = View::default();
        let waiter = Waiter::new(&mut view, 11);
        view.asks(NAME);
        view.unlisten(NAME, &waiter.0.token);
        assert!(!view.is_empty());
        view.asked(NAME);
        assert!(view.is_empty());
    }

    /// The last answer decides, and the lock is free for the first in line only.
    #[test]
    fn a_lock_seems_free_to_the_first_in_line_when_it_was_read_so() {
        let mut view = View::default();
        let (one, two) = (Waiter::new(&mut view, 11), Waiter::new(&mut view, 12));
        let epoch = view.asks(NAME);
        let seems_free = |view: &View, waiter: &Waiter| view.seems_free_for(NAME, &waiter.0.token);
        let reads = |view: &mut View, waiter: &Waiter, revision, ahead, held| {
            let mut seen = waiter.seen(revision, ahead);
            seen.hold = seen.hold.filter(|_| held);
            view.read(NAME, epoch, &waiter.0.token, &seen);
        };
        reads(&mut view, &one, 20, 0, true);
        assert!(!seems_free(&view, &one), "it is held");
        reads(&mut view, &two, 21, 1, false);
        assert!(seems_free(&view, &one) && !seems_free(&view, &two));
        view.change(NAME, 22, Change::Held);
        reads(&mut view, &one, 22, 0, false);
        assert!(!seems_free(&view, &one), "what the watch reported of the same revision is kept");
        view.change(NAME, 22, Change::Freed);
        assert!(!seems_free(&view, &one), "that is known already");
        view.change(NAME, 23, Change::Freed);
        assert!(seems_free(&view, &one));
        view.read(NAME, epoch + 1, &one.0.token, &one.seen(24, 0));
        assert!(!seems_free(&view, &one), "whoever read it: it is held");
        view.change(NAME, 30, Change::Freed);
        assert!(seems_free(&view, &one) && !view.seems_free_for(NAME, &OwnerToken::random()));
        assert!(!view.seems_free_for(b"other", &one.0.token) && view.quiet_for(b"other").is_zero());
    }

    #[test]
    fn what_one_asker_found_free_is_for_the_first_in_line() {
        let mut view = View::default();
        let (mut first, mut second) = (Waiter::new(&mut view, 11), Waiter::new(&mut view, 12));
        let epoch = view.asks(NAME);
        first.reads(&mut view, epoch, 20, 0);
        let mut seen = second.seen(21, 1);
        seen.hold = None;
        view.read(NAME, epoch, &second.0.token, &seen);
        assert!(first.woken() && !second.woken());
        let mut seen = first.seen(22, 0);
        seen.hold = None;
        seen.head = Some(Head { key: Vec::new(), revision: 1, lease: 1, spot: Some(first.0) });
        view.read(NAME, epoch, &first.0.token, &seen);
        assert!(!first.woken() && !second.woken(), "it knows by its answer");
    }

    #[test]
    fn what_happened_is_remembered_until_the_last_answer_has_come() {
        let mut view = View::default();
        let (gone, late) = (Spot { arrival: 11, token: OwnerToken::random() }, Waiter::new(&mut view, 12));
        let epoch = view.asks(NAME);
        view.asks(NAME);
        view.change(NAME, 22, Change::Left(gone));
        view.asked(NAME);
        late.reads(&mut view, epoch, 20, 1);
        assert_eq!(ahead(&view, &late), Some(0));
        view.asked(NAME);
        late.reads(&mut view, epoch, 20, 1);
        assert_eq!(ahead(&view, &late), Some(1));
    }
}
