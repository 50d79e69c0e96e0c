//! The intended end of a message, from its payload.

use std::time::Duration;

use std::fmt;
use std::str::FromStr;

use tenure_conformance::{BoxError, Rng};

/// How long a delivery is a consumer's.
pub(super) const LEASE: Duration = Duration::from_secs(2);

/// How often a message may be delivered that has to be acknowledged in the end, whatever happens to its consumers.
const PLENTY: u32 = 1_000;
/// The same for a message that no consumer acknowledges.
const FEW: u32 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// Acknowledged after so many failures.
    Done { failures: u32 },
    /// Rejected at once.
    Buried,
    /// Fails until it is dead.
    Exhausted,
    /// Given back now and then, and acknowledged in the end.
    Returned,
    /// Dropped by its consumer now and then, and acknowledged in the end.
    Dropped,
}

impl Plan {
    pub(crate) fn random(rng: &mut Rng) -> Self {
        match rng.below(100) {
            0..=54 => Self::Done { failures: 0 },
            55..=74 => Self::Done { failures: 1 + rng.below(3) as u32 },
            75..=79 => Self::Buried,
            80..=84 => Self::Exhausted,
            85..=92 => Self::Returned,
            _ => Self::Dropped,
        }
    }

    pub(crate) fn attempts(self) -> u32 {
        if self == Self::Exhausted { FEW } else { PLENTY }
    }

    pub(crate) fn ends_dead(self) -> bool {
        matches!(self, Self::Buried | Self::Exhausted)
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done { failures } => write!(f, "done-{failures}"),
            Self::Buried => f.write_str("buried"),
            Self::Exhausted => f.write_str("exhausted"),
            Self::Returned => f.write_str("returned"),
            Self::Dropped => f.write_str("dropped"),
        }
    }
}

impl FromStr for Plan {
    type Err = BoxError;

    fn from_str(word: &str) -> Result<Self, BoxError> {
        Ok(match word {
            "buried" => Self::Buried,
            "exhausted" => Self::Exhausted,
            "returned" => Self::Returned,
            "dropped" => Self::Dropped,
            _ => Self::Done { failures: word.strip_prefix("done-").ok_or("there is no such plan")?.parse()? },
        })
    }
}

/// The payload of a message: its name, which no other has, and its plan.
pub(crate) fn payload(message: &str, plan: Plan) -> Vec<u8> {
    format!("{message} {plan}").into_bytes()
}

pub(crate) fn read(payload: &[u8]) -> Result<(String, Plan), BoxError> {
    let (message, plan) = std::str::from_utf8(payload)?.split_once(' ').ok_or("not a payload of this program")?;
    Ok((message.into(), plan.parse()?))
}
