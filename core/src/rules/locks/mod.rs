//! The decisions of a lock, plain or re-entrant, over [`Rows`].
//!
//! A name has at most one [`Hold`] and a line of waiters. [`Rule`] changes the hold in place and moves waiters; the driver
//! reads the hold before, and writes it after. A store with rows for waiters implements [`Rows`]. A store with one record
//! for each name keeps a [`Record`], and implements the smaller [`Outside`].
//!
//! All times are on the store's clock, counted from an instant that no holder and no waiter is older than. A lease has
//! ended *at* its end, not after it, and so has the presence of a waiter: the rule sees neither ended holds nor absent
//! waiters.

mod hold;
mod record;
mod rows;
mod rule;

pub use hold::{Claimant, Hold, HoldBy};
pub use record::{InRecord, Outside, Record};
pub use rows::{CLAIM_WINDOW, Given, Heard, Left, Rows, Terms, Waiter};
pub use rule::{Caps, Change, MOST_FENCES, Refusal, Rule};

#[cfg(test)]
mod tests;
