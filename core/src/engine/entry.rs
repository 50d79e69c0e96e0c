//! What a lease is made of: who it is for, and how it is kept.

use crate::driver::Hold;
use crate::value::clock::LeaseInstant;
use crate::value::name::LockName;
use crate::value::token::{OwnerId, OwnerToken};
use crate::value::ttl::Ttl;

/// Whether a lease is kept alive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Upkeep {
    /// Renewed at a third of its ttl.
    #[default]
    Renewed,
    /// Left to end.
    Fixed,
}

/// One entry of a hold: a plain lock has exactly one, a re-entrant lock one for each guard.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) token: OwnerToken,
    pub(crate) ttl: Ttl,
    pub(crate) upkeep: Upkeep,
    /// When holding must end, renewed or not.
    pub(crate) cap: Option<LeaseInstant>,
    /// Before that it is not given back: the lease is left standing.
    pub(crate) least: Option<LeaseInstant>,
    pub(crate) past: Past,
}

impl Entry {
    /// Until when the lease has to be left standing, if it ends now.
    pub(crate) fn stands_until(&self) -> Option<LeaseInstant> {
        self.least.filter(|least| !least.remaining().is_zero())
    }
}

/// The entries of one hold. The first one needs no memory of its own.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    first: Option<Entry>,
    #[expect(clippy::box_collection, reason = "nearly always none, and then it takes a third of the room")]
    more: Option<Box<Vec<Entry>>>,
}

impl Entries {
    pub(crate) fn push(&mut self, entry: Entry) {
        match self.first {
            None => self.first = Some(entry),
            Some(_) => self.more.get_or_insert_default().push(entry),
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.first.iter().chain(self.more.iter().flat_map(|more| more.iter()))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Entry> {
        self.first.iter_mut().chain(self.more.iter_mut().flat_map(|more| more.iter_mut()))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// Takes out the entry of this token.
    pub(crate) fn remove(&mut self, token: &OwnerToken) -> Option<Entry> {
        if let Some(entry) = self.first.take_if(|entry| entry.token == *token) {
            return Some(entry);
        }
        let more = self.more.as_mut()?;
        let index = more.iter().position(|entry| entry.token == *token)?;
        Some(more.swap_remove(index))
    }

    pub(crate) fn take(&mut self) -> Vec<Entry> {
        let all = self.iter().copied().collect();
        *self = Self::default();
        all
    }
}

/// Whether a request of the entry's token may still be on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Past {
    /// Every request was answered.
    Answered,
    /// One was not, and could take the lock again behind a release: the token has to be abandoned in the end.
    Unanswered,
}

impl Past {
    /// Of a token whose request since then is unanswered.
    pub(crate) fn of(unanswered_since: Option<LeaseInstant>) -> Self {
        if unanswered_since.is_some() { Self::Unanswered } else { Self::Answered }
    }
}

/// What a lease is to the backend.
#[derive(Clone, Debug)]
pub(crate) enum LeaseKey {
    Plain(Hold),
    Reentrant { name: LockName, owner: OwnerId },
}
