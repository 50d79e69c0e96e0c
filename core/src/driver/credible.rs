//! Which fences are believed in, where the clock seeds them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::value::token::FencingToken;

/// How far the wall clocks of clients and nodes of a quorum, or of servers that follow one another, may be apart: a day.
///
/// A proposal that is further ahead counts as none, a fence that is further ahead is not believed, and the fence counter
/// of a name that nobody has used for so long may be forgotten: whatever clock seeds the next one is past it.
pub const CLOCKS_APART: Duration = Duration::from_secs(86_400);

/// From here on scripts of Redis, whose numbers are doubles, cannot count by one.
const UNCOUNTABLE: u64 = 1 << 53;

/// The fences that are credible at one moment: those below 2^53 that are at most [`CLOCKS_APART`] ahead of the clock, in
/// microseconds since 1970.
///
/// A counter beyond them is damaged, or its node lies. Whoever took it over would have no number left to count to, or
/// would give out fences that the clock does not reach for long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CredibleFences {
    most: u64,
}

impl CredibleFences {
    /// Those by this machine's wall clock. A clock that stands before 1970 tells nothing, and then only 2^53 is a limit.
    #[must_use]
    pub fn now() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).ok();
        since.map_or(Self { most: UNCOUNTABLE - 1 }, |since| {
            Self::at(u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
        })
    }

    /// Those by a clock that shows this many microseconds since 1970.
    #[must_use]
    pub fn at(micros: u64) -> Self {
        let ahead = u64::try_from(CLOCKS_APART.as_micros()).unwrap_or(u64::MAX);
        Self { most: micros.saturating_add(ahead).min(UNCOUNTABLE - 1) }
    }

    /// Those and the ones by another clock.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self { most: self.most.max(other.most) }
    }

    /// The greatest of them.
    #[must_use]
    pub fn greatest(self) -> u64 {
        self.most
    }

    /// Whether the fence is one of them.
    #[must_use]
    pub fn contain(self, fence: FencingToken) -> bool {
        fence.get() <= self.most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_ahead_is_credible_and_no_more_and_nothing_from_2_to_the_53_on() {
        let fence = |number| FencingToken::new(number).unwrap();
        let (now, day) = (1_700_000_000_000_000, 86_400_000_000);
        let credible = CredibleFences::at(now);
        for (number, believed) in [(1, true), (now, true), (now + day, true), (now + day + 1, false)] {
            assert_eq!(credible.contain(fence(number)), believed, "{number}");
        }
        for clock in [u64::MAX, 1 << 60, (1 << 53) - 1] {
            let credible = CredibleFences::at(clock);
            assert!(credible.contain(fence((1 << 53) - 1)) && !credible.contain(fence(1 << 53)), "{clock}");
        }
        let both = CredibleFences::at(now).or(CredibleFences::at(5));
        assert_eq!(both, credible);
        assert!(CredibleFences::now().contain(fence(now)) && !CredibleFences::now().contain(fence(u64::MAX)));
    }
}
