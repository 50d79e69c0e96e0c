//! What this client's waiters for one name know of their queue.

use std::collections::{HashMap, VecDeque};

use tenure_core::OwnerToken;
use tenure_core::driver::WakeHandle;
use tokio::time::Instant;

use crate::answer::Seen;
use crate::keys::Spot;

/// How many events of a name are remembered while answers are on their way.
pub(crate) const MOST_EVENTS: usize = 1024;

#[derive(Debug)]
pub(crate) struct Name {
    /// Waiters of this client that listen.
    pub(crate) local: HashMap<OwnerToken, Local>,
    pub(crate) held: bool,
    /// The revision that `held` is of.
    pub(crate) held_at: i64,
    /// When the lock was last taken or freed, or a place went.
    pub(crate) stirred: Instant,
    /// When a waiter of this client was last woken to see why nothing becomes of the name.
    pub(crate) nudged: Instant,
    /// Requests on their way.
    pub(crate) asking: usize,
    /// The places that came and went while answers are on their way.
    pub(crate) recent: VecDeque<Event>,
    /// What came and went up to this revision may be missing.
    pub(crate) forgotten: i64,
}

#[derive(Debug)]
pub(crate) struct Local {
    pub(crate) handle: WakeHandle,
    pub(crate) place: Option<Known>,
}

/// A place in a queue, and the number of places before it.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) spot: Spot,
    pub(crate) ahead: u32,
    /// The revision of the answer that reported it: earlier events are counted in it.
    pub(crate) read_at: i64,
}

/// A place came or went.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    pub(crate) revision: i64,
    pub(crate) spot: Spot,
    pub(crate) came: bool,
}

impl Default for Name {
    /// Nothing is known; a lock counts as held until it is read.
    fn default() -> Self {
        let now = Instant::now();
        Self {
            local: HashMap::new(),
            held: true,
            held_at: 0,
            stirred: now,
            nudged: now,
            asking: 0,
            recent: VecDeque::new(),
            forgotten: 0,
        }
    }
}

impl Local {
    pub(crate) fn is_first(&self) -> bool {
        self.place.as_ref().is_some_and(|place| place.ahead == 0)
    }
}

impl Known {
    /// Counts an event that the answer did not know of.
    fn count(&mut self, event: &Event) {
        if event.revision <= self.read_at || event.spot >= self.spot {
            return;
        }
        self.ahead = if event.came { self.ahead.saturating_add(1) } else { self.ahead.saturating_sub(1) };
    }
}

impl Name {
    pub(crate) fn set_held(&mut self, held: bool, revision: i64) {
        (self.held, self.held_at, self.stirred) = (held, revision, Instant::now());
    }

    /// Takes in the place of the asker, and the changes since its request was answered.
    pub(crate) fn learn(&mut self, asker: &OwnerToken, seen: &Seen) {
        let Some(local) = self.local.get_mut(asker) else { return };
        let Some(place) = &seen.place else { return local.place = None };
        let mut known = Known { spot: place.spot, ahead: seen.ahead, read_at: seen.revision };
        // The watch may have been faster than this answer: the events that it does not know of are counted now.
        self.recent.iter().for_each(|event| known.count(event));
        let gone = |event: &Event| !event.came && event.spot == known.spot && event.revision > seen.revision;
        if seen.revision < self.forgotten || self.recent.iter().any(gone) {
            local.handle.wake(); // to ask again
            return;
        }
        let first = known.ahead == 0 && !self.held;
        local.place = Some(known);
        // By the answer it was not next, so it is about to wait; by the events since, it is.
        if first && !seen.is_next(asker) {
            local.handle.wake();
        }
    }

    pub(crate) fn happened(&mut self, event: Event) {
        if self.asking > 0 {
            if self.recent.len() == MOST_EVENTS {
                self.forgotten = self.recent.pop_front().map_or(0, |oldest| oldest.revision);
            }
            self.recent.push_back(event);
        }
        if !event.came {
            self.stirred = Instant::now();
        }
        for local in self.local.values_mut() {
            let Some(place) = &mut local.place else { continue };
            if !event.came && event.spot == place.spot {
                local.place = None;
                local.handle.wake(); // it lapsed, if its token still waits
                continue;
            }
            let before = place.ahead;
            place.count(&event);
            if before > 0 && place.ahead == 0 && !self.held {
                local.handle.wake();
            }
        }
    }

    /// Wakes the first in line if the lock is free and it is ours.
    pub(crate) fn wake_next(&self) {
        if !self.held {
            self.local.values().filter(|local| local.is_first()).for_each(|local| local.handle.wake());
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use tenure_core::driver::Watch;

    use super::*;
    use crate::answer::Head;
    use crate::tickets::Place;

    /// A name in which some wait, each with a place of its own.
    struct World {
        name: Name,
        watches: Vec<(OwnerToken, Watch)>,
    }

    fn spot(number: u8) -> Spot {
        Spot { arrival: i64::from(number), token: token(number) }
    }

    fn token(number: u8) -> OwnerToken {
        OwnerToken::parse(&format!("{}AAAAAAAAAAAAAAAAAAAAA", char::from(b'A' + number))).unwrap()
    }

    impl World {
        fn new() -> Self {
            Self { name: Name::default(), watches: Vec::new() }
        }

        fn listen(&mut self, number: u8, place: Option<(u32, i64)>) {
            let (handle, watch) = Watch::channel();
            let place = place.map(|(ahead, read_at)| Known { spot: spot(number), ahead, read_at });
            self.name.local.insert(token(number), Local { handle, place });
            self.watches.push((token(number), watch));
        }

        /// Who was woken since the last look.
        fn woken(&mut self) -> Vec<u8> {
            let is_woken = |watch: &mut Watch| watch.next().now_or_never().is_some();
            let number = |of: &OwnerToken| (0..20).find(|number| token(*number) == *of).unwrap();
            self.watches.iter_mut().filter_map(|(of, watch)| is_woken(watch).then(|| number(of))).collect()
        }

        fn ahead(&self, number: u8) -> Option<u32> {
            self.name.local[&token(number)].place.as_ref().map(|place| place.ahead)
        }

        fn happened(&mut self, revision: i64, number: u8, came: bool) {
            self.name.happened(Event { revision, spot: spot(number), came });
        }

        fn learn(&mut self, number: u8, revision: i64, ahead: u32, placed: bool) {
            let place = placed.then(|| Place { spot: spot(number), revision: 1, lease: 1 });
            self.name.learn(&token(number), &Seen { revision, hold: None, head: None, place, ahead });
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_before_a_waiter_is_counted_from_its_answer_on() {
        let mut world = World::new();
        world.listen(9, Some((2, 10)));
        world.happened(10, 1, false);
        assert_eq!(world.ahead(9), Some(2), "the answer knew of it");
        world.happened(11, 1, false);
        world.happened(12, 12, false);
        assert_eq!(world.ahead(9), Some(1), "nobody behind it counts");
        world.happened(13, 3, true);
        assert_eq!(world.ahead(9), Some(2));
        (14..20).for_each(|revision| world.happened(revision, 3, false));
        assert_eq!(world.ahead(9), Some(0));
        assert!(world.woken().is_empty(), "the lock is held, as far as is known");
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_is_woken_when_the_last_before_it_goes_or_the_lock_is_free() {
        let mut world = World::new();
        world.name.set_held(false, 5);
        world.listen(8, Some((1, 10)));
        world.listen(9, Some((2, 10)));
        world.listen(10, None);
        world.name.wake_next();
        assert!(world.woken().is_empty(), "none of them is the first");
        world.happened(11, 1, false);
        assert_eq!(world.woken(), [8]);
        world.happened(12, 7, true);
        world.happened(13, 11, false);
        assert!(world.woken().is_empty());
        world.happened(14, 7, false);
        assert_eq!(world.woken(), [8]);
        world.happened(15, 11, false);
        world.happened(16, 12, true);
        assert!(world.woken().is_empty(), "it was woken already");
        world.name.wake_next();
        assert_eq!(world.woken(), [8]);
        world.name.set_held(true, 20);
        assert_eq!((world.name.held, world.name.held_at), (true, 20));
        world.name.wake_next();
        assert!(world.woken().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn who_lost_its_place_is_woken_and_asks_again() {
        let mut world = World::new();
        world.listen(8, Some((0, 10)));
        world.listen(9, Some((1, 10)));
        world.happened(11, 8, true);
        assert_eq!((world.ahead(8), world.woken()), (Some(0), Vec::new()));
        world.happened(12, 8, false);
        assert_eq!((world.ahead(8), world.ahead(9), world.woken()), (None, Some(1), vec![8]), "it came and went");
    }

    #[tokio::test(start_paused = true)]
    async fn a_place_that_goes_is_a_stir_and_one_that_comes_is_none() {
        let mut world = World::new();
        let start = world.name.stirred;
        let later = std::time::Duration::from_secs(1);
        tokio::time::advance(later).await;
        world.happened(1, 1, true);
        assert_eq!(world.name.stirred, start);
        world.happened(2, 1, false);
        assert_eq!(world.name.stirred, start + later);
        tokio::time::advance(later).await;
        world.name.set_held(true, 3);
        assert_eq!(world.name.stirred, start + later * 2);
    }

    #[tokio::test(start_paused = true)]
    async fn what_happened_while_an_answer_was_on_its_way_is_counted_too() {
        let mut world = World::new();
        world.listen(9, None);
        world.happened(4, 1, false);
        assert!(world.name.recent.is_empty(), "nobody asks");
        world.name.asking = 1;
        world.happened(5, 1, false);
        world.happened(6, 2, true);
        world.happened(7, 3, true);
        world.learn(9, 5, 4, true);
        assert_eq!((world.ahead(9), world.woken()), (Some(6), Vec::new()));
        world.learn(9, 8, 0, true);
        assert_eq!((world.ahead(9), world.woken()), (Some(0), Vec::new()), "it is held, as far as is known");
        world.name.set_held(false, 8);
        world.learn(9, 8, 0, true);
        assert_eq!((world.ahead(9), world.woken()), (Some(0), vec![9]), "the answer did not know that it is free");
        let place = Place { spot: spot(9), revision: 1, lease: 1 };
        let head = Head { key: Vec::new(), revision: 1, lease: 1, spot: Some(spot(9)) };
        let next = Seen { revision: 8, hold: None, head: Some(head), place: Some(place), ahead: 0 };
        world.name.learn(&token(9), &next);
        assert_eq!((world.ahead(9), world.woken()), (Some(0), Vec::new()), "it knows, and takes the lock");
        world.learn(9, 8, 1, true);
        assert_eq!((world.ahead(9), world.woken()), (Some(1), Vec::new()));
        world.learn(9, 8, 0, false);
        assert_eq!((world.ahead(9), world.woken()), (None, Vec::new()), "it has no place");
        world.learn(15, 8, 0, true);
        assert!(!world.name.local.contains_key(&token(15)), "it does not listen");
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_may_be_out_of_date_has_its_asker_ask_again() {
        let mut world = World::new();
        world.listen(9, None);
        world.name.asking = 1;
        world.happened(7, 9, false);
        world.learn(9, 6, 1, true);
        assert_eq!((world.ahead(9), world.woken()), (None, vec![9]), "its place is gone since");
        world.learn(9, 7, 1, true);
        assert_eq!((world.ahead(9), world.woken()), (Some(1), Vec::new()), "a place that it made since");
        world.happened(8, 9, true);
        world.learn(9, 7, 2, true);
        assert_eq!((world.ahead(9), world.woken()), (Some(2), Vec::new()), "the watch tells of the same place");
        world.name.forgotten = 8;
        world.learn(9, 7, 1, true);
        assert_eq!(world.woken(), [9], "what came between may be missing");
        world.learn(9, 8, 3, true);
        assert_eq!((world.ahead(9), world.woken()), (Some(3), Vec::new()));
    }

    #[tokio::test(start_paused = true)]
    async fn so_many_events_are_remembered_and_no_more() {
        let mut world = World::new();
        world.name.asking = 1;
        (1..=MOST_EVENTS as i64).for_each(|revision| world.happened(revision, 1, true));
        assert_eq!((world.name.recent.len(), world.name.forgotten), (MOST_EVENTS, 0));
        world.happened(2_000, 1, true);
        assert_eq!((world.name.recent.len(), world.name.forgotten), (MOST_EVENTS, 1), "the oldest is forgotten");
    }
}
