//! Who holds one name.

use std::collections::HashMap;
use std::time::Duration;

use tenure_core::driver::Holder;
use tenure_core::{FencingToken, Label, OwnerId, OwnerToken};
use tokio::time::Instant;

/// One unbroken hold of a name: from its grant to its end, re-entries included.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) by: HeldBy,
    pub(crate) fence: FencingToken,
    pub(crate) since: Instant,
    pub(crate) until: Instant,
    pub(crate) label: Option<Label>,
    pub(crate) reached: Reached,
}

/// How a hold came to its holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reached {
    /// It was asked for, and lasts as long as was asked.
    Asked,
    /// It was handed over with so many fences, and lasts for a short while unless the holder says so.
    Handed { fences: u32 },
}

/// Who a hold belongs to, with the ttl that each entry was told.
#[derive(Debug)]
pub(crate) enum HeldBy {
    /// A plain lock: one token, which is all there is to know.
    Token(OwnerToken, Duration),
    /// A re-entrant lock: its owner, and a token for every entry, so that a repeated frame counts once.
    Owner(OwnerId, HashMap<OwnerToken, Duration>),
}

/// In whose name a request comes: for itself, or for a re-entrant owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claimant {
    Plain,
    Owner(OwnerId),
}

impl HeldBy {
    pub(crate) fn new(claimant: Claimant, token: OwnerToken, ttl: Duration) -> Self {
        match claimant {
            Claimant::Plain => Self::Token(token, ttl),
            Claimant::Owner(owner) => Self::Owner(owner, HashMap::from([(token, ttl)])),
        }
    }

    /// The ttl that this very entry was told, if it exists.
    pub(crate) fn entry(&self, claimant: Claimant, token: &OwnerToken) -> Option<Duration> {
        match (self, claimant) {
            (Self::Token(holder, ttl), Claimant::Plain) if holder == token => Some(*ttl),
            (Self::Owner(owner, entries), Claimant::Owner(asks)) if *owner == asks => entries.get(token).copied(),
            _ => None,
        }
    }

    pub(crate) fn owner(&self) -> Option<OwnerId> {
        match self {
            Self::Token(..) => None,
            Self::Owner(owner, _) => Some(*owner),
        }
    }

    pub(crate) fn depth(&self) -> u32 {
        match self {
            Self::Token(..) => 1,
            Self::Owner(_, entries) => u32::try_from(entries.len()).expect("the cap on depth is a u32"),
        }
    }
}

impl Held {
    pub(crate) fn left(&self, now: Instant) -> Duration {
        self.until.saturating_duration_since(now)
    }

    /// Makes the lease last at least `ttl` from now, never less than it did; tells how long it lasts.
    pub(crate) fn extend(&mut self, now: Instant, ttl: Duration) -> Duration {
        self.until = self.until.max(now + ttl);
        self.left(now)
    }

    pub(crate) fn seen_from_outside(&self, now: Instant) -> Holder {
        Holder::default()
            .with_label(self.label.clone())
            .with_fence(Some(self.fence))
            .with_held_for(Some(now.saturating_duration_since(self.since)))
            .with_remaining(Some(self.left(now)))
            .with_depth(self.by.depth())
            .with_owner(self.by.owner())
    }
}
