//! What the models of scripts share: random numbers, how many steps to take, and how a failing script is shortened.

/// SplitMix64.
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }

    pub(crate) fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }
}

/// How fences go on after everything was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Grow {
    /// Beyond those before: the clock tells where.
    On,
    /// The same may come again.
    Anew,
}

/// A number from the environment, for runs that take longer than CI has time for.
pub(crate) fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().map_or(default, |text| text.parse().expect("a number"))
}

/// The shortest part of `steps` that still fails and lacks no step that could go: halves are left out first, single steps
/// last.
pub(crate) fn shortened<T: Clone>(steps: &[T], mut fails: impl FnMut(&[T]) -> bool) -> Vec<T> {
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
