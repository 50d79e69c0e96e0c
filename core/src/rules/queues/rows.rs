//! The store of one queue, as the rule uses it.

use std::ops::RangeInclusive;

use super::message::{Line, Message, Moment, Place};
use crate::driver::{DeadLetter, DeadPlace, Flow};
use crate::value::queue::{ConcurrencyKey, MessageId, QueueLimits};
use crate::value::token::FencingToken;

/// A position in a line: the time, then the number.
pub type At = (Moment, u64);

/// The settings of a queue. One that was never changed is the default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Running or paused.
    pub flow: Flow,
    /// The limits of its deliveries.
    pub limits: QueueLimits,
    /// The time at which the bucket of the rate is full again.
    pub full_at: Moment,
}

impl Default for Head {
    fn default() -> Self {
        Self { flow: Flow::Running, limits: QueueLimits::none(), full_at: 0 }
    }
}

/// A message that was removed by its number.
#[derive(Clone, Debug)]
pub struct Discarded {
    /// The line that it was in.
    pub line: Line,
    /// Its concurrency key.
    pub key: Option<ConcurrencyKey>,
}

/// A message, or the reason why it cannot be read.
pub type Read<D> = Result<Box<Message>, D>;

/// The rows of one queue, for the length of one request.
///
/// A method does one small step, and decides nothing. The comments name the number of rows that a step may look at: a
/// store needs an order of the messages by line, time and number; an order of those of a key; and a message by its name.
/// A failure ends the request, and the store then undoes the whole request.
pub trait Rows {
    /// A failure of the store. [`Infallible`](std::convert::Infallible) if it has none.
    type Error;
    /// The reason why a stored message cannot be read. [`Infallible`](std::convert::Infallible) if that cannot happen.
    type Damage;

    /// Returns the settings of the queue.
    fn head(&self) -> Head;

    /// Stores the settings of the queue.
    fn set_head(&mut self, head: Head) -> Result<(), Self::Error>;

    /// Returns a fence greater than all earlier ones.
    fn fence(&mut self) -> Result<FencingToken, Self::Error>;

    /// Returns a number that no message pushed so far exceeds.
    fn newest(&self) -> Result<u64, Self::Error>;

    // One message.

    /// Returns the number and the place of a stored message, also of a damaged one. A message with a name is not found
    /// by its number.
    fn find(&self, id: &MessageId) -> Result<Option<(u64, Place)>, Self::Error>;

    /// Returns true if no message of this name is stored, but the name is known until later than `now`.
    fn is_settled(&self, id: &MessageId, now: Moment) -> Result<bool, Self::Error>;

    /// Reads a message; `None` if it is not stored.
    fn read<T>(
        &self,
        number: u64,
        look: impl FnOnce(&Message) -> T,
    ) -> Result<Option<Result<T, Self::Damage>>, Self::Error>;

    /// Takes a message out in order to change it; `None` if it is not stored, or is not `wanted`. The rule then calls
    /// [`put`](Self::put) or [`finish`](Self::finish) with it.
    fn take(
        &mut self,
        number: u64,
        wanted: impl FnOnce(&Message) -> bool,
    ) -> Result<Option<Read<Self::Damage>>, Self::Error>;

    /// Stores a message that was taken out at the place `from`, and is now at its [`place`](Message::place).
    fn put(&mut self, message: Box<Message>, from: Place) -> Result<(), Self::Error>;

    /// Removes a message that was taken out. Its name stays known until the given instant, or is free.
    fn finish(&mut self, message: Box<Message>, known_until: Option<Moment>) -> Result<(), Self::Error>;

    /// Stores a new message, and returns the number that it got: greater than those of all earlier messages.
    fn insert(&mut self, message: Box<Message>) -> Result<u64, Self::Error>;

    /// Removes a message by its number, also a damaged one. Its name is free.
    fn discard(&mut self, number: u64) -> Result<Option<Discarded>, Self::Error>;

    /// Moves a damaged message to a place, with [`DeadCause::Damaged`](crate::driver::DeadCause::Damaged) and the
    /// damage as its reason. Returns its key, if it can be read.
    fn bury(&mut self, number: u64, damage: Self::Damage, place: Place) -> Result<Option<ConcurrencyKey>, Self::Error>;

    /// Returns the failure of a request that needs a damaged message.
    fn refuse(&self, number: u64, damage: Self::Damage) -> Self::Error;

    /// Returns the readable parts of a dead letter.
    fn letter(&self, place: DeadPlace) -> Result<DeadLetter, Self::Error>;

    // The messages of a key.

    /// Returns true if a message of the key is leased, other than this one. One row.
    fn is_busy(&self, key: &ConcurrencyKey, except: u64) -> Result<bool, Self::Error>;

    /// Moves the first message of the key from [`Line::Held`] to [`Line::Waiting`] at its time, if none of the key is
    /// leased. One row.
    fn free(&mut self, key: &ConcurrencyKey) -> Result<(), Self::Error>;

    // Lines.

    /// Returns the first position of a line. One row.
    fn first(&self, line: Line) -> Result<Option<At>, Self::Error>;

    /// Returns the time of the message that is so many behind the first one later than an instant.
    fn nth_after(&self, line: Line, after: Moment, behind: usize) -> Result<Option<Moment>, Self::Error>;

    /// Counts the messages of a line with these times.
    fn count(&self, line: Line, times: RangeInclusive<Moment>) -> Result<u64, Self::Error>;

    /// Returns up to `max` positions of a line, in order: with these times, behind a position, of messages up to the
    /// number `newest`.
    fn positions(
        &self,
        line: Line,
        times: RangeInclusive<Moment>,
        behind: Option<At>,
        newest: u64,
        max: usize,
    ) -> Result<Vec<At>, Self::Error>;
}
