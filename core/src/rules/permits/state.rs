//! The record of one name: holds, waiters, and the hold that waits to weigh more.

use std::collections::VecDeque;
use std::time::Duration;

use crate::driver::{Holder, PermitHolder, PermitInspection, Renewed, Share};
use crate::value::error::Label;
use crate::value::token::{FencingToken, OwnerToken};

/// The number of leases that a prediction looks at, so that the work of one request is bounded.
const PREDICTED: usize = 16;

/// One lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hold {
    pub(super) token: OwnerToken,
    pub(super) share: Share,
    pub(super) fence: FencingToken,
    /// The time of the grant.
    pub(super) since: Duration,
    /// The end of the lease.
    pub(super) until: Duration,
    /// The ttl that the grant returned.
    pub(super) ttl: Duration,
    pub(super) label: Option<Label>,
    /// True if it was handed over, and lasts for a short while until the holder asks for more.
    pub(super) handed: bool,
    /// The number of its last change of weight.
    pub(super) step: u32,
}

impl Hold {
    pub(super) const fn left(&self, now: Duration) -> Duration {
        self.until.saturating_sub(now)
    }

    /// Makes the lease last at least `ttl` from now, never less than it did; returns its remaining time.
    pub(super) fn extend(&mut self, now: Duration, ttl: Duration) -> Duration {
        self.until = self.until.max(now + ttl);
        flaw!(RenewalShortens => self.until = now + ttl);
        self.left(now)
    }

    fn seen(&self, now: Duration) -> Holder {
        Holder::default()
            .with_label(self.label.clone())
            .with_fence(Some(self.fence))
            .with_held_for(Some(now.saturating_sub(self.since)))
            .with_remaining(Some(self.left(now)))
    }
}

/// One place in the line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Waiter {
    pub(super) token: OwnerToken,
    /// The number of its client, as the store counts them.
    pub(super) client: u64,
    pub(super) share: Share,
    /// The end of its presence, unless it asks again.
    pub(super) present: Duration,
    /// True if it was notified that it fits, and has not asked since.
    pub(super) called: bool,
    /// The terms on which it takes a hold without asking; `None` if it is woken and asks.
    pub(super) terms: Option<Terms>,
}

/// The lease that a waiter gets without asking.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Terms {
    pub(super) ttl: Duration,
    pub(super) label: Option<Label>,
}

/// A hold that waits to weigh more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Growth {
    pub(super) token: OwnerToken,
    /// The number of its client, as the store counts them.
    pub(super) client: u64,
    pub(super) to: Share,
    /// The end of its presence, unless it asks again.
    pub(super) present: Duration,
    /// True if it was notified that it fits, and has not asked since.
    pub(super) called: bool,
}

/// Everything known of one name of semaphores or of read-write locks.
///
/// [`Rule`](super::Rule) decides requests over it. An idle record need not be kept: see [`PermitState::is_idle`].
/// Fences and abandoned tokens outlive it and belong to the store: see [`Outside`](super::Outside).
///
/// ```
/// use std::time::Duration;
///
/// use tenure_core::driver::Share;
/// use tenure_core::rules::permits::PermitState;
///
/// let state = PermitState::default();
/// let now = Duration::from_secs(1);
/// assert!(state.is_idle(now));
/// assert_eq!(state.inspect(now, 100).used, 0);
/// assert_eq!(PermitState::from_bytes(&state.to_bytes())?, state);
/// assert!(!Share { weight: 4, capacity: 3 }.is_possible());
/// # Ok::<(), tenure_core::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PermitState {
    /// In order of their fences.
    pub(super) holds: Vec<Hold>,
    /// In order of arrival.
    pub(super) line: VecDeque<Waiter>,
    pub(super) growth: Option<Growth>,
    /// The weight of all holds.
    pub(super) used: u64,
}

impl PermitState {
    /// Returns true if it has neither live holds nor present waiters.
    #[must_use]
    pub fn is_idle(&self, now: Duration) -> bool {
        self.idle_at() <= now
    }

    /// Returns the time at which it is idle if no request arrives before.
    #[must_use]
    pub fn idle_at(&self) -> Duration {
        let ends = self.holds.iter().map(|hold| hold.until);
        ends.chain(self.line.iter().map(|waiter| waiter.present)).max().unwrap_or_default()
    }

    /// Extends a lease to `ttl` from now, never shortens it and never revives it. Looks at this hold alone: no other
    /// lease ends and no waiter is served. Unless the answer is [`Renewed::Lost`], the store has to write the record.
    pub fn renew(&mut self, now: Duration, token: &OwnerToken, ttl: Duration) -> Renewed {
        let Some(at) = self.find(token) else { return Renewed::Lost };
        let hold = &mut self.holds[at];
        flaw!(RenewalRevives => return Renewed::Extended { ttl: hold.extend(now, ttl) });
        if hold.until <= now {
            return Renewed::Lost;
        }
        Renewed::Extended { ttl: hold.extend(now, ttl) }
    }

    /// Returns an operator's view, with at most `most` holders. Changes nothing.
    #[must_use]
    pub fn inspect(&self, now: Duration, most: usize) -> PermitInspection {
        let live = || self.holds.iter().filter(|hold| hold.until > now);
        let holders = live().take(most).map(|hold| PermitHolder::new(hold.share, hold.seen(now)));
        PermitInspection::default()
            .with_used(live().map(|hold| u64::from(hold.share.weight)).sum())
            .with_holders(holders.collect())
            .with_waiters(count(self.line.iter().filter(|waiter| waiter.present > now).count()))
    }

    /// Drops ended holds and absent waiters; returns true if there were any.
    pub(super) fn settle(&mut self, now: Duration) -> bool {
        let ended = |hold: &Hold| {
            flaw!(LeasesNeverEnd => return false);
            hold.until <= now
        };
        let lapsed = |waiter: &Waiter| {
            flaw!(WaitersNeverLapse => return false);
            waiter.present <= now
        };
        let mut changed = false;
        if self.holds.iter().any(ended) {
            self.holds.retain(|hold| !ended(hold));
            self.used = self.holds.iter().map(|hold| u64::from(hold.share.weight)).sum();
            changed = true;
        }
        if self.line.iter().any(lapsed) {
            self.line.retain(|waiter| !lapsed(waiter));
            changed = true;
        }
        if self.growth.as_ref().is_some_and(|growth| self.has_ended(growth, now)) {
            self.growth = None;
            changed = true;
        }
        changed
    }

    fn has_ended(&self, growth: &Growth, now: Duration) -> bool {
        flaw!(UpgradeNeverLapses => return self.find(&growth.token).is_none());
        growth.present <= now || self.find(&growth.token).is_none()
    }

    /// Returns the index of a token's hold.
    pub(super) fn find(&self, token: &OwnerToken) -> Option<usize> {
        self.holds.iter().position(|hold| hold.token == *token)
    }

    /// Returns the number of waiters before a token, if it waits.
    pub(super) fn place(&self, token: &OwnerToken) -> Option<usize> {
        self.line.iter().position(|waiter| waiter.token == *token)
    }

    /// Adds the hold with the greatest fence.
    pub(super) fn add(&mut self, hold: Hold) {
        self.used += u64::from(hold.share.weight);
        self.holds.push(hold);
    }

    /// Removes a hold.
    pub(super) fn remove(&mut self, at: usize) -> Hold {
        let hold = self.holds.remove(at);
        self.used -= u64::from(hold.share.weight);
        hold
    }

    /// Returns the time at which enough leases have ended, if no client gives anything back before: `fits` decides for
    /// the weight and the number of the ended ones. If more than 16 have to end, it is the end of the 16th.
    pub(super) fn enough_ended_at(
        &self,
        other_than: Option<&OwnerToken>,
        fits: impl Fn(u64, usize) -> bool,
    ) -> Option<Duration> {
        let mut first = [(Duration::MAX, 0); PREDICTED];
        for hold in self.holds.iter().filter(|hold| Some(&hold.token) != other_than) {
            let end = (hold.until, hold.share.weight);
            if end < first[PREDICTED - 1] {
                first[PREDICTED - 1] = end;
                let mut at = PREDICTED - 1;
                while at > 0 && first[at] < first[at - 1] {
                    first.swap(at, at - 1);
                    at -= 1;
                }
            }
        }
        let (mut weight, mut last) = (0, None);
        for (ended, (until, given_back)) in first.into_iter().enumerate().take_while(|(_, end)| end.1 > 0) {
            weight += u64::from(given_back);
            last = Some(until);
            if fits(weight, ended + 1) {
                break;
            }
        }
        last
    }
}

/// Returns a number of waiters as answers have it.
pub(super) fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
