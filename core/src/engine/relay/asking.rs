//! Which locks a task of this client is asking for, without an answer yet. Whoever wants the same lock meanwhile waits
//! along instead of asking as well.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::value::name::LockName;

/// How many first requests are known at once; a further one is nobody's business.
const SLOTS: usize = 128;

/// A slot holds the hash of a name, or 0.
#[derive(Debug)]
pub(super) struct Asking([AtomicU64; SLOTS]);

/// What a task that wants a lock learns.
#[derive(Debug)]
pub(super) enum Asked<'a> {
    /// Nobody has asked; now this task does.
    First(FirstAsk<'a>),
    /// Another task has asked, and has no answer yet.
    ByAnother,
    /// There is no slot to tell by.
    Unknown,
}

/// A first request on its way; dropped when it is answered or given up.
#[derive(Debug)]
pub(crate) struct FirstAsk<'a> {
    slot: &'a AtomicU64,
    hash: u64,
}

impl Default for Asking {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; SLOTS])
    }
}

impl Asking {
    pub(super) fn begin(&self, name: &LockName) -> Asked<'_> {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        let hash = hasher.finish() | 1;
        let slot = &self.0[(hash >> 1) as usize % SLOTS];
        match slot.compare_exchange(0, hash, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Asked::First(FirstAsk { slot, hash }),
            Err(other) if other == hash => Asked::ByAnother,
            Err(_) => Asked::Unknown,
        }
    }
}

impl Drop for FirstAsk<'_> {
    fn drop(&mut self) {
        let _ = self.slot.compare_exchange(self.hash, 0, Ordering::AcqRel, Ordering::Acquire); // nobody else writes it
    }
}
