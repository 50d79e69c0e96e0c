//! Random numbers from a seed.

use std::time::Duration;

/// What the world draws with.
#[derive(Clone, Debug)]
pub(crate) struct Rng(fastrand::Rng);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    /// A generator of its own for a part of the world.
    pub(crate) fn fork(&mut self) -> Self {
        Self(self.0.fork())
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0.u64(..end.max(1))
    }

    /// The same, as an index.
    pub(crate) fn index(&mut self, len: usize) -> usize {
        self.0.usize(..len.max(1))
    }

    /// One of these.
    pub(crate) fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.index(choices.len())]
    }

    /// Whole milliseconds below `end`.
    pub(crate) fn millis(&mut self, end: u64) -> Duration {
        Duration::from_millis(self.below(end))
    }

    /// True in so many of a thousand cases.
    pub(crate) fn in_thousand(&mut self, cases: u64) -> bool {
        self.below(1000) < cases
    }
}
