//! The decisions of a delay queue, over [`Rows`].
//!
//! A message is in one of four lines, in which it is ordered by its time, then by its number:
//!
//! | line | time | leaves it |
//! |---|---|---|
//! | [`Waiting`](Line::Waiting) | when it is due | by a delivery |
//! | [`Held`](Line::Held) | when it was due | when its key is free |
//! | [`Leased`](Line::Leased) | when its lease ends | by a settlement, or a further delivery |
//! | [`Dead`](Line::Dead) | when it died | by an operator |
//!
//! [`Rule`] moves messages between the lines. [`Rows`] stores them.

mod deliver;
mod message;
mod operate;
mod rows;
mod rule;

pub use message::{Clock, Line, Message, Moment, Place};
pub use rows::{At, Discarded, Head, Read, Rows};
pub use rule::{Caps, Rule};
