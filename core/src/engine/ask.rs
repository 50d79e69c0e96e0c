//! What a lock is asked for, and what lets a lease be passed on among those who ask for the same.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use crate::engine::lease::Upkeep;
use crate::value::clock::LeaseInstant;
use crate::value::error::{Label, LockName};
use crate::value::token::OwnerId;
use crate::value::ttl::Ttl;

/// What is wanted: checked, and not yet asked for.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) name: LockName,
    pub(crate) owner: Option<OwnerId>,
    pub(crate) ttl: Ttl,
    pub(crate) upkeep: Upkeep,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) at_least: Option<Duration>,
    pub(crate) label: Option<Label>,
    pub(crate) line: Line,
}

impl Ask {
    /// Whether the grant may serve others of the client as well.
    pub(crate) fn may_be_passed_on(&self) -> bool {
        // A lease that is left standing is passed on to nobody.
        self.line == Line::OfTheClient && self.at_least.is_none()
    }
}

/// Where a waiter waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Line {
    /// Along with others of the client that want the same.
    #[default]
    OfTheClient,
    /// In a place of its own at the backend, for a grant of its own.
    OfItsOwn,
}

/// How long after its grant a lease is passed on: other clients wait as long.
const PASSING: Duration = Duration::from_millis(10);
/// How long whoever is given a lease has to take it, before the lease ends: as long as a waiter that the backend gave it.
pub(crate) const CLAIM: Duration = Duration::from_secs(2);

/// What a lock is wanted for. A lease is passed on among those only who want the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Terms {
    pub(crate) ttl: Ttl,
    pub(crate) upkeep: Upkeep,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) at_least: Option<Duration>,
    pub(crate) label: Option<Label>,
}

impl Terms {
    /// What is asked for, if others may want the same: a lease that joins others of its owner may not.
    pub(crate) fn of(ask: &Ask) -> Option<Self> {
        let Ask { ttl, upkeep, max_hold, at_least, line, .. } = *ask;
        (ask.owner.is_none() && line == Line::OfTheClient).then(|| Self {
            ttl,
            upkeep,
            max_hold,
            at_least,
            label: ask.label.clone(),
        })
    }

    pub(crate) fn ask(&self, name: &LockName) -> Ask {
        let Self { ttl, upkeep, max_hold, at_least, label } = self.clone();
        Ask { name: name.clone(), owner: None, ttl, upkeep, max_hold, at_least, label, line: Line::OfTheClient }
    }

    /// Their hash: a budget is carried by every hold, and the terms are many times as large.
    pub(crate) fn mark(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }

    /// How long a lease still has to last without renewal to be passed on.
    pub(crate) fn least(&self) -> Duration {
        self.ttl.get().min(CLAIM) / 2
    }
}

/// Goes with a lease that may be passed on: the fences that are left of its grant, and until when.
#[derive(Debug)]
pub(crate) struct HandoverBudget {
    until: LeaseInstant,
    terms: u64,
    left: u32,
}

impl HandoverBudget {
    /// Of a grant that was learned of at `now` and carries `fences` fences, the first holder's included.
    pub(crate) fn new(fences: u32, now: LeaseInstant, terms: &Terms) -> Self {
        let until = now.after(PASSING.min(terms.ttl.get() / 4));
        Self { until, terms: terms.mark(), left: fences.saturating_sub(1) }
    }

    /// Until when the lease may be passed on; `None` if it may not, any more.
    pub(crate) fn lasts_until(&self) -> Option<LeaseInstant> {
        (self.left > 0 && LeaseInstant::now() < self.until).then_some(self.until)
    }

    /// Whether the lease may be passed on among those with these terms.
    pub(crate) fn is_for(&self, terms: &Terms) -> bool {
        self.terms == terms.mark()
    }

    /// What the next holder gets.
    pub(crate) fn passed_on(self) -> Self {
        Self { left: self.left - 1, ..self }
    }
}
