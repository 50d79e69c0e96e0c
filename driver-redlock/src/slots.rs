//! The acquisitions that the driver knows of, by token.

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
    /// How many there may be before those that nobody asks for any more are looked for.
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
            return Err(Error::new(ErrorKind::NotHeld, "the token was abandoned before its request arrived"));
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
            self.slots.retain(|_, slot| Arc::strong_count(slot) > 1 || slot.state().kept_until > now);
            self.lines.retain(|_, line| line.is_needed(1));
            self.sweep_at = self.slots.len().max(self.lines.len()) * 2;
        }
    }
}
