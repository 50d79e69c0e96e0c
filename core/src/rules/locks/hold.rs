//! The holder of one name.

use std::collections::HashMap;
use std::time::Duration;

use crate::driver::Holder;
use crate::value::error::Label;
use crate::value::token::{FencingToken, OwnerId, OwnerToken};

/// One unbroken hold of a name: from its grant to its end, re-entries included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The holder.
    pub by: HoldBy,
    /// Its fence; of several consecutive ones, the first.
    pub fence: FencingToken,
    /// The time of the grant.
    pub since: Duration,
    /// The end of the lease.
    pub until: Duration,
    /// The label of the request.
    pub label: Option<Label>,
    /// The number of fences that came with it, if it was handed over and lasts for a short while until the holder asks
    /// for more; else zero.
    pub handed: u32,
}

/// The holder, with the ttl that the grant of each entry returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HoldBy {
    /// Of a plain lock: one token.
    Token(OwnerToken, Duration),
    /// Of a re-entrant lock: its owner, and a token for every entry, so that a repeated request counts once.
    Owner(OwnerId, HashMap<OwnerToken, Duration>),
}

/// The author of a request: the token itself, or a re-entrant owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claimant {
    /// A plain lock.
    Plain,
    /// A re-entrant lock of this owner.
    Owner(OwnerId),
}

impl HoldBy {
    /// Makes the holder with one entry.
    pub(super) fn new(claimant: Claimant, token: OwnerToken, ttl: Duration) -> Self {
        match claimant {
            Claimant::Plain => Self::Token(token, ttl),
            Claimant::Owner(owner) => Self::Owner(owner, HashMap::from([(token, ttl)])),
        }
    }

    /// Returns the owner of a re-entrant lock.
    #[must_use]
    pub const fn owner(&self) -> Option<OwnerId> {
        match self {
            Self::Token(..) => None,
            Self::Owner(owner, _) => Some(*owner),
        }
    }

    /// Returns the number of entries.
    #[must_use]
    pub fn depth(&self) -> u32 {
        match self {
            Self::Token(..) => 1,
            Self::Owner(_, entries) => u32::try_from(entries.len()).unwrap_or(u32::MAX),
        }
    }
}

impl Hold {
    /// Returns the ttl that the grant of this very entry returned, if the entry exists.
    #[must_use]
    pub fn entry(&self, claimant: Claimant, token: &OwnerToken) -> Option<Duration> {
        match (&self.by, claimant) {
            (HoldBy::Token(holder, ttl), Claimant::Plain) if holder == token => Some(*ttl),
            (HoldBy::Owner(owner, entries), Claimant::Owner(asks)) if *owner == asks => entries.get(token).copied(),
            _ => None,
        }
    }

    /// Returns true if it is re-entrant and belongs to this owner.
    pub(super) fn is_of(&self, claimant: Claimant) -> bool {
        matches!((&self.by, claimant), (HoldBy::Owner(owner, _), Claimant::Owner(asks)) if *owner == asks)
    }

    /// Returns the remaining time of the lease.
    pub(super) const fn left(&self, now: Duration) -> Duration {
        self.until.saturating_sub(now)
    }

    /// Makes the lease last at least `ttl` from now, never less than it did; returns its remaining time.
    pub(super) fn extend(&mut self, now: Duration, ttl: Duration) -> Duration {
        self.until = self.until.max(now + ttl);
        self.left(now)
    }

    /// Returns an operator's view of it.
    #[must_use]
    pub fn seen(&self, now: Duration) -> Holder {
        Holder::default()
            .with_label(self.label.clone())
            .with_fence(Some(self.fence))
            .with_held_for(Some(now.saturating_sub(self.since)))
            .with_remaining(Some(self.left(now)))
            .with_depth(self.by.depth())
            .with_owner(self.by.owner())
    }
}
