//! How a lease stands, and why it ended.

use std::fmt;

/// Why a lease ended before it was released.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LostReason {
    /// Its time ran out without a confirmed renewal: by plan (a fixed ttl), or because the backend did not answer.
    Expired,
    /// The backend proved that it is no more: expired there, taken away, or its data was lost.
    Gone,
    /// The cap on holding it was reached.
    MaxHold,
    /// The client was closed.
    Closed,
}

impl fmt::Display for LostReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "its time ran out without a confirmed renewal",
            Self::Gone => "the backend no longer knows it",
            Self::MaxHold => "the cap on holding it was reached",
            Self::Closed => "the client was closed",
        })
    }
}

/// What a guard knows about its lease at this moment, from the local clock alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HoldState {
    /// Held, and the last renewal (if one was due) was confirmed.
    Held,
    /// Held until the deadline, but the last renewal failed; it is being retried.
    Suspect,
    /// Ended. Final.
    Lost(LostReason),
    /// Given back.
    Released,
}
