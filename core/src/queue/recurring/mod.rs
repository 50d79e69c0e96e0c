//! Messages that come again: one message of a constant id, scheduled anew by the settlement of each delivery.
//!
//! * [`ensure`] stores it, on every start of every instance;
//! * [`schedule`] says when it comes;
//! * [`plan`] is what is stored of that with the message, as text;
//! * [`occurrence`] is one coming of it, which turns settlements into the next one.

#[cfg(feature = "cron")]
mod cron;
mod ensure;
mod occurrence;
mod plan;
#[cfg(test)]
mod properties;
mod schedule;

pub use ensure::{Ensured, Recurring};
pub use occurrence::OccurrenceEnd;
pub(super) use occurrence::{Occurrence, left_to_others};
pub use plan::Missed;
