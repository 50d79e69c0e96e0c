//! The data of a store for quorums: counters for each name, the electorate, and how long its memory goes back.

use std::time::Duration;

use tenure_core::driver::{CLOCKS_APART, CredibleFences, Electorate};
use tenure_core::{FencingToken, LockName};
use tokio::time::Instant;

use crate::sweep::Sweep;

/// What a store keeps for quorums.
#[derive(Debug, Default)]
pub(crate) struct Voting {
    counters: Sweep<LockName, Counter>,
    pub(crate) electorate: Option<Electorate>,
    /// When the store last began with an empty memory although clients may have believed in its leases.
    empty_since: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
struct Counter {
    value: u64,
    until: Instant,
}

impl Voting {
    /// The state after a restart that loses everything.
    pub(crate) fn emptied(now: Instant) -> Self {
        Self { empty_since: Some(now), ..Self::default() }
    }

    pub(crate) fn step(&mut self, now: Instant) {
        self.counters.step(|counter| counter.until <= now);
    }

    fn counter(&self, name: &LockName) -> u64 {
        self.counters.get(name).map_or(0, |counter| counter.value)
    }

    fn set(&mut self, name: &LockName, value: u64, now: Instant) {
        self.counters.insert(name.clone(), Counter { value, until: now + CLOCKS_APART });
    }

    /// The next fence of the name: the proposal if it is credible, or one more than ever before.
    pub(crate) fn next(&mut self, name: &LockName, proposal: Option<FencingToken>, now: Instant) -> FencingToken {
        let proposal = proposal.filter(|proposal| CredibleFences::now().contain(*proposal));
        let value = (self.counter(name) + 1).max(proposal.map_or(0, FencingToken::get));
        self.set(name, value, now);
        FencingToken::new(value).expect("a counter that was added to is not zero")
    }

    /// Sets the counter to `fence`, unless it is ahead of it; then it answers what it is.
    pub(crate) fn raise(&mut self, name: &LockName, fence: FencingToken, now: Instant) -> Result<(), FencingToken> {
        match FencingToken::new(self.counter(name)) {
            Some(counter) if counter > fence => Err(counter),
            _ => {
                self.set(name, fence.get(), now);
                Ok(())
            }
        }
    }

    /// How long until the store has kept its memory for `seniority`.
    pub(crate) fn too_junior(&self, seniority: Duration, now: Instant) -> Option<Duration> {
        let kept = now.saturating_duration_since(self.empty_since?);
        seniority.checked_sub(kept).filter(|left| !left.is_zero())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn counters_follow_proposals_and_never_fall() {
        let (name, now) = (LockName::new("n").unwrap(), Instant::now());
        let token = |number| FencingToken::new(number).unwrap();
        let mut voting = Voting::default();
        assert_eq!(voting.next(&name, None, now).get(), 1);
        assert_eq!(voting.next(&name, FencingToken::new(40), now).get(), 40);
        assert_eq!(voting.next(&name, FencingToken::new(40), now).get(), 41);
        assert_eq!(voting.raise(&name, token(40), now), Err(token(41)));
        assert_eq!(voting.raise(&name, token(41), now), Ok(()));
        assert_eq!(voting.raise(&name, token(50), now), Ok(()));
        assert_eq!(voting.next(&LockName::new("m").unwrap(), None, now).get(), 1, "names have counters of their own");
        assert_eq!(voting.next(&name, None, now).get(), 51);
        let incredible = FencingToken::new(u64::MAX / 2);
        assert_eq!(voting.next(&name, incredible, now).get(), 52, "that would leave no room");
    }

    #[tokio::test(start_paused = true)]
    async fn a_counter_is_kept_while_clocks_may_be_apart() {
        let (name, now) = (LockName::new("n").unwrap(), Instant::now());
        let mut voting = Voting::default();
        voting.next(&name, None, now);
        voting.step(now + CLOCKS_APART - Duration::from_nanos(1));
        assert_eq!(voting.counter(&name), 1);
        voting.step(now + CLOCKS_APART);
        assert_eq!(voting.counter(&name), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_is_junior_only_after_it_forgot() {
        let second = Duration::from_secs(1);
        let now = Instant::now();
        assert_eq!(Voting::default().too_junior(second, now), None);
        let emptied = Voting::emptied(now);
        assert_eq!(emptied.too_junior(second, now + second / 4), Some(second * 3 / 4));
        assert_eq!(emptied.too_junior(second, now + second), None);
        assert_eq!(emptied.too_junior(Duration::ZERO, now), None);
    }
}
