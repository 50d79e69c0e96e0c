//! Messages that come again: one message of a constant id, scheduled anew by the settlement of each delivery.
//!
//! * [`handle`] stores it, on every start of every instance, and turns the settlement of one occurrence into the next;
//! * [`schedule`] says when it comes, and how that is stored with the message, as text.

#[cfg(feature = "cron")]
mod cron;
mod handle;
#[cfg(test)]
mod properties;
mod schedule;

pub use handle::{Ensured, OccurrenceEnd, Recurring};
pub(super) use handle::{Occurrence, left_to_others};
pub use schedule::Missed;
