//! Random numbers, how many steps to take, and how a failing script is shortened.

/// What the models draw with.
#[derive(Debug)]
pub struct Rng(fastrand::Rng);

impl Rng {
    /// The numbers of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    /// A number below `end`, which is not zero.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0.u64(..end)
    }

    /// One of these.
    pub fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.0.usize(..all.len())]
    }
}

/// How fences continue after everything was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grow {
    /// Beyond those before: they follow the clock.
    On,
    /// The same may come again.
    Anew,
}

/// A number from the environment, for runs that take longer than CI has time for.
#[must_use]
pub fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().map_or(default, |text| text.parse().expect("a number"))
}

/// The shortest part of `steps` that still fails and lacks no step that could go: halves are left out first, single steps
/// last.
pub fn shortened<T: Clone>(steps: &[T], mut fails: impl FnMut(&[T]) -> bool) -> Vec<T> {
    let mut kept = steps.to_vec();
    let mut chunk = kept.len().div_ceil(2).max(1);
    loop {
        let (before, mut at) = (kept.len(), 0);
        while at < kept.len() {
            let mut fewer = kept[..at].to_vec();
            fewer.extend_from_slice(&kept[(at + chunk).min(kept.len())..]);
            if fails(&fewer) {
                kept = fewer;
            } else {
                at += chunk;
            }
        }
        if chunk == 1 && kept.len() == before {
            return kept;
        }
        chunk = (chunk / 2).max(1);
    }
}
