//! The results of the driver's elections.

use std::sync::atomic::{AtomicU64, Ordering};

/// The results of the attempts to take a lock since the driver was built, for all its clones together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Elections {
    /// Grants.
    pub won: u64,
    /// Grants for which every node was asked once: the nodes agreed about the fence.
    pub won_in_one_round: u64,
    /// Attempts at all nodes that won nothing: the lock was busy, or no majority answered.
    pub lost: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    won: AtomicU64,
    won_in_one_round: AtomicU64,
    lost: AtomicU64,
}

impl Counters {
    pub(crate) fn won(&self, rounds: u32) {
        self.won.fetch_add(1, Ordering::Relaxed);
        self.won_in_one_round.fetch_add(u64::from(rounds == 1), Ordering::Relaxed);
    }

    pub(crate) fn lost(&self) {
        self.lost.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> Elections {
        Elections {
            won: self.won.load(Ordering::Relaxed),
            won_in_one_round: self.won_in_one_round.load(Ordering::Relaxed),
            lost: self.lost.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_end_of_an_election_is_counted_once() {
        let counters = Counters::default();
        (1..=3).for_each(|rounds| counters.won(rounds));
        (0..2).for_each(|_| counters.lost());
        assert_eq!(counters.read(), Elections { won: 3, won_in_one_round: 1, lost: 2 });
    }
}
