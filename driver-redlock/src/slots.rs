//! The acquisitions that the driver knows, by token.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tenure_core::driver::{LeaseInstant, Tombstones};
use tenure_core::{Error, ErrorKind, LockName, OwnerToken, Result};

use crate::slot::{Line, Slot};

#[derive(Debug, Default)]
pub(crate) struct Slots(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    slots: HashMap<OwnerToken, Arc<Slot>>,
    /// Of the names that are taken or waited for, or were contended a short while ago.
    lines: HashMap<LockName, Arc<Line>>,
    /// How many there may be before a sweep looks for those that are no longer requested.
    sweep_at: usize,
    /// The nodes remember them, too.
    abandoned: Tombstones,
}

impl Slots {
    /// The slot of a token that is asked for, a new one if need be.
    pub(crate) fn open(&self, name: &LockName, token: OwnerToken, nodes: usize) -> Result<Arc<Slot>> {
        let mut inner = self.inner();
        inner.sweep();
        if inner.abandoned.hold(&token) {
            return Err(Error::new(ErrorKind::NotHeld, "this attempt was abandoned before its request arrived"));
        }
        if let Some(slot) = inner.slots.get(&token) {
            return Ok(Arc::clone(slot));
        }
        let slot = Arc::new(Slot::new(name.clone(), token, nodes, inner.line(name)));
        inner.slots.insert(token, Arc::clone(&slot));
        Ok(slot)
    }

    /// The slot of a token; one that goes by its own token everywhere if the driver does not know it.
    pub(crate) fn find(&self, name: &LockName, token: OwnerToken, nodes: usize) -> Arc<Slot> {
        let known = self.inner().slots.get(&token).filter(|slot| slot.name == *name).map(Arc::clone);
        known.unwrap_or_else(|| Arc::new(Slot::new(name.clone(), token, nodes, Arc::default())))
    }

    pub(crate) fn get(&self, token: &OwnerToken) -> Option<Arc<Slot>> {
        self.inner().slots.get(token).map(Arc::clone)
    }

    /// Remembers an acquisition of another process that is held here from now on.
    pub(crate) fn adopt(&self, slot: &Arc<Slot>) {
        let mut inner = self.inner();
        inner.sweep();
        inner.slots.entry(slot.token).or_insert_with(|| Arc::clone(slot));
    }

    pub(crate) fn remove(&self, token: &OwnerToken) {
        let mut inner = self.inner();
        // Two references to a line are not waiters: that of the map, and that of the slot just removed.
        if let Some(slot) = inner.slots.remove(token)
            && inner.lines.get(&slot.name).is_some_and(|line| !line.is_needed(2))
        {
            inner.lines.remove(&slot.name);
        }
    }

    /// Refuses the token from now on, for a while.
    pub(crate) fn bury(&self, token: OwnerToken) {
        self.inner().abandoned.bury(token);
    }

    pub(crate) fn len(&self) -> usize {
        self.inner().slots.len()
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn line(&mut self, name: &LockName) -> Arc<Line> {
        Arc::clone(self.lines.entry(name.clone()).or_default())
    }

    fn sweep(&mut self) {
        let now = LeaseInstant::now();
        if self.slots.len().max(self.lines.len()) >= self.sweep_at.max(1024) {
            // Slots first: each of them refers to its line.
            self.slots.retain(|_, slot| Arc::strong_count(slot) > 1 || slot.state().kept_until > now);
            self.lines.retain(|_, line| line.is_needed(1));
            self.sweep_at = self.slots.len().max(self.lines.len()) * 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn name(number: usize) -> LockName {
        LockName::new(number.to_string()).unwrap()
    }

    fn lines(slots: &Slots) -> usize {
        slots.inner().lines.len()
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_has_one_slot_until_it_is_removed_and_none_once_it_is_abandoned() {
        let (slots, token) = (Slots::default(), OwnerToken::random());
        let slot = slots.open(&name(1), token, 3).unwrap();
        assert!(Arc::ptr_eq(&slot, &slots.open(&name(1), token, 3).unwrap()));
        assert!(Arc::ptr_eq(&slot, &slots.find(&name(1), token, 3)));
        assert!(!Arc::ptr_eq(&slot, &slots.find(&name(2), token, 3)), "of another name");
        assert_eq!((slots.len(), lines(&slots)), (1, 1));
        drop(slot);
        slots.remove(&token);
        assert_eq!((slots.len(), lines(&slots)), (0, 0));
        slots.bury(token);
        assert_eq!(slots.open(&name(1), token, 3).unwrap_err().kind(), ErrorKind::NotHeld);
    }

    #[tokio::test(start_paused = true)]
    async fn what_another_process_took_is_known_once_it_is_adopted() {
        let (slots, token) = (Slots::default(), OwnerToken::random());
        let slot = slots.find(&name(1), token, 3);
        assert!(slots.get(&token).is_none());
        slots.adopt(&slot);
        assert!(Arc::ptr_eq(&slot, &slots.get(&token).unwrap()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_line_outlives_its_slots_while_they_wait_or_did_lately() {
        let (slots, [one, other]) = (Slots::default(), [OwnerToken::random(), OwnerToken::random()]);
        let (first, second) = (slots.open(&name(1), one, 3).unwrap(), slots.open(&name(1), other, 3).unwrap());
        assert!(Arc::ptr_eq(first.line(), second.line()));
        drop(first);
        slots.remove(&one);
        assert_eq!(lines(&slots), 1, "another one waits");
        second.line().is_contended_now();
        drop(second);
        slots.remove(&other);
        assert_eq!(lines(&slots), 1, "somebody waited a moment ago");
    }

    #[tokio::test(start_paused = true)]
    async fn what_nobody_asks_for_any_more_is_forgotten_in_time() {
        let slots = Slots::default();
        let open = |number| slots.open(&name(number), OwnerToken::random(), 3).unwrap();
        let kept = open(0);
        (1..1000).for_each(|number| drop(open(number)));
        tokio::time::advance(Duration::from_secs(61)).await;
        assert_eq!((slots.len(), lines(&slots)), (1000, 1000));
        (1000..1100).for_each(|number| drop(open(number)));
        assert_eq!((slots.len(), lines(&slots)), (101, 101), "each is worth remembering for a minute");
        drop(kept);
        // Lines alone, of names that were contended.
        for number in 2000..2900 {
            let slot = open(number);
            slot.line().is_contended_now();
            let token = slot.token;
            drop(slot);
            slots.remove(&token);
        }
        assert_eq!((slots.len(), lines(&slots)), (101, 1001));
        tokio::time::advance(Duration::from_secs(3)).await;
        (3000..3100).for_each(|number| drop(open(number)));
        assert_eq!((slots.len(), lines(&slots)), (200, 200), "without the one that was kept");
    }
}
