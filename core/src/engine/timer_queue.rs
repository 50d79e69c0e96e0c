//! Which leases are to be looked at, and when, in a few bytes for each.

use crate::engine::lease::NO_PLACE;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use crate::engine::lease::Lease;
use crate::value::clock::LeaseInstant;

/// One entry for each lease that is looked after, whether a look at it is planned or not. The looks of a moment are a
/// list: of a millisecond if it is near, of more if it is far. So far looks may come early, by one part in 256.
#[derive(Debug, Default)]
pub(crate) struct TimerQueue {
    entries: Vec<Entry>,
    /// The first free entry; the next one is its `next`.
    free: Option<u32>,
    /// The first entry of each moment, by its millisecond.
    looks: BTreeMap<u64, u32>,
}

#[derive(Debug)]
struct Entry {
    lease: Weak<Lease>,
    /// The millisecond of the look; 0 when none is planned.
    at: u64,
    before: u32,
    next: u32,
}

impl TimerQueue {
    /// Plans a look at `lease`, unless a sooner one is planned; tells whether it did.
    pub(crate) fn plan(&mut self, lease: &Arc<Lease>, at: LeaseInstant, now: LeaseInstant) -> bool {
        let at = moment(at.millis() + 1, now.millis()); // a near one not before its time
        let mut index = lease.place.get();
        if index == NO_PLACE {
            index = self.enter(lease);
        } else if (1..=at).contains(&self.entry(index).at) {
            return false;
        }
        self.unlink(index);
        let next = self.looks.insert(at, index).unwrap_or(NO_PLACE);
        if next != NO_PLACE {
            self.entry(next).before = index;
        }
        let entry = self.entry(index);
        (entry.at, entry.before, entry.next) = (at, NO_PLACE, next);
        true
    }

    /// Forgets a lease.
    pub(crate) fn remove(&mut self, lease: &Lease) {
        let index = lease.place.get();
        if index != NO_PLACE {
            lease.place.set(NO_PLACE);
            self.leave(index);
        }
    }

    /// The next look.
    pub(crate) fn first(&self) -> Option<LeaseInstant> {
        self.looks.first_key_value().map(|(at, _)| LeaseInstant::at_millis(*at))
    }

    /// The leases to be looked at by `horizon`, if there are any by `now`. No look at them is planned afterwards.
    pub(crate) fn take(&mut self, now: LeaseInstant, horizon: LeaseInstant) -> Vec<Arc<Lease>> {
        let mut taken = Vec::new();
        if self.first().is_none_or(|first| first > now) {
            return taken;
        }
        while let Some(first) = self.looks.first_entry().filter(|first| *first.key() <= horizon.millis()) {
            let mut index = first.remove();
            while index != NO_PLACE {
                let entry = self.entry(index);
                let next = std::mem::replace(&mut entry.next, NO_PLACE);
                (entry.at, entry.before) = (0, NO_PLACE);
                match entry.lease.upgrade() {
                    Some(lease) => taken.push(lease),
                    None => self.leave(index),
                }
                index = next;
            }
        }
        taken
    }

    /// Every lease that is looked after.
    pub(crate) fn leases(&self) -> Vec<Arc<Lease>> {
        self.entries.iter().filter_map(|entry| entry.lease.upgrade()).collect()
    }

    /// What the first of these leases has to say, of those that say something.
    pub(crate) fn find<T>(&self, mut look: impl FnMut(&Arc<Lease>) -> Option<T>) -> Option<T> {
        self.entries.iter().find_map(|entry| look(&entry.lease.upgrade()?))
    }

    fn entry(&mut self, index: u32) -> &mut Entry {
        &mut self.entries[index as usize]
    }

    fn enter(&mut self, lease: &Arc<Lease>) -> u32 {
        let entry = Entry { lease: Arc::downgrade(lease), at: 0, before: NO_PLACE, next: NO_PLACE };
        let index = match self.free {
            Some(index) => {
                let freed = std::mem::replace(self.entry(index), entry);
                self.free = (freed.next != NO_PLACE).then_some(freed.next);
                index
            }
            None => {
                if self.entries.len() == self.entries.capacity() {
                    self.entries.reserve_exact(self.entries.len() / 4 + 4); // doubling would waste more
                }
                self.entries.push(entry);
                (self.entries.len() - 1) as u32 // four thousand million leases do not fit in memory
            }
        };
        lease.place.set(index);
        index
    }

    fn leave(&mut self, index: u32) {
        self.unlink(index);
        let next = self.free.unwrap_or(NO_PLACE);
        *self.entry(index) = Entry { lease: Weak::new(), at: 0, before: NO_PLACE, next };
        self.free = Some(index);
    }

    fn unlink(&mut self, index: u32) {
        let entry = self.entry(index);
        let (at, before, next) = (entry.at, entry.before, entry.next);
        if at == 0 {
            return;
        }
        (entry.at, entry.before, entry.next) = (0, NO_PLACE, NO_PLACE);
        if next != NO_PLACE {
            self.entry(next).before = before;
        }
        if before != NO_PLACE {
            self.entry(before).next = next;
        } else if next != NO_PLACE {
            self.looks.insert(at, next);
        } else {
            self.looks.remove(&at);
        }
    }
}

/// The moment whose list a look belongs to: near looks have a millisecond each, far ones share.
fn moment(at: u64, now: u64) -> u64 {
    let width = 1 << (at.saturating_sub(now) / 256).max(1).ilog2();
    at - at % width
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::engine::lease::tests::lease;

    fn after(base: LeaseInstant, ms: u64) -> LeaseInstant {
        base.after(Duration::from_millis(ms))
    }

    fn due(timers: &mut TimerQueue, at: LeaseInstant) -> usize {
        timers.take(at, at).len()
    }

    #[tokio::test(start_paused = true)]
    async fn leases_are_taken_when_they_are_due_and_not_before() {
        let (mut timers, base) = (TimerQueue::default(), LeaseInstant::now());
        let leases: Vec<_> = (0..100).map(|_| lease(Duration::from_secs(30))).collect();
        for (i, lease) in leases.iter().enumerate() {
            assert!(timers.plan(lease, after(base, 10 * (i as u64 / 10)), base));
        }
        assert_eq!(timers.first(), Some(LeaseInstant::at_millis(base.millis() + 1)));
        assert_eq!(due(&mut timers, base), 0);
        assert_eq!(due(&mut timers, after(base, 11)), 20);
        assert_eq!(timers.leases().len(), 100, "those in hand are still looked after");
        for lease in &leases[20..25] {
            timers.remove(lease);
        }
        assert_eq!(due(&mut timers, after(base, 21)), 5);
        assert_eq!(timers.leases().len(), 95);
        assert_eq!(due(&mut timers, after(base, 1000)), 70);
        assert!(timers.looks.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_sooner_look_changes_the_plan() {
        let (mut timers, base) = (TimerQueue::default(), LeaseInstant::now());
        let (one, other) = (lease(Duration::from_secs(30)), lease(Duration::from_secs(30)));
        assert!(timers.plan(&other, after(base, 5), base));
        assert!(timers.plan(&one, after(base, 5), base));
        assert!(!timers.plan(&one, after(base, 6), base));
        assert!(timers.plan(&one, after(base, 2), base));
        assert_eq!(due(&mut timers, after(base, 4)), 1);
        assert!(timers.plan(&one, after(base, 6), base), "nothing is planned for one in hand");
        assert_eq!(due(&mut timers, after(base, 10)), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn far_looks_come_together_and_at_most_a_little_early() {
        let (mut timers, base) = (TimerQueue::default(), LeaseInstant::now());
        let leases: Vec<_> = (0..100).map(|_| lease(Duration::from_secs(30))).collect();
        for (i, lease) in leases.iter().enumerate() {
            timers.plan(lease, after(base, 10_000 + i as u64), base);
        }
        assert!(timers.looks.len() <= 5, "{}", timers.looks.len());
        assert_eq!(due(&mut timers, after(base, 10_000 - 40)), 0);
        assert_eq!(due(&mut timers, after(base, 10_100)), 100);
    }

    #[tokio::test(start_paused = true)]
    async fn a_near_look_is_not_early_however_long_nobody_looked() {
        let (mut timers, base) = (TimerQueue::default(), LeaseInstant::now());
        assert_eq!(due(&mut timers, base), 0);
        let later = after(base, 60_000);
        timers.plan(&lease(Duration::from_secs(30)), after(later, 2), later);
        assert!(timers.first() >= Some(after(later, 2)));
    }

    #[tokio::test(start_paused = true)]
    async fn entries_are_used_again() {
        let (mut timers, base) = (TimerQueue::default(), LeaseInstant::now());
        for round in 0..1000 {
            let (kept, gone) = (lease(Duration::from_secs(30)), lease(Duration::from_secs(30)));
            timers.plan(&kept, after(base, round), base);
            timers.plan(&gone, after(base, round), base);
            timers.remove(&kept);
            drop(gone); // forgotten by nobody
            assert_eq!(due(&mut timers, after(base, round + 1)), 0);
        }
        assert!(timers.entries.len() <= 2, "{}", timers.entries.len());
    }
}
