//! The store of one name's waiters, as the rule uses it.

use std::time::Duration;

use crate::value::error::Label;
use crate::value::token::{FencingToken, OwnerToken};

/// The time in which a waiter that was woken for a free lock keeps others from passing it.
pub const CLAIM_WINDOW: Duration = Duration::from_secs(2);

/// A waiter.
#[derive(Clone, Debug)]
pub struct Waiter<P> {
    /// Its place, as the store counts.
    pub place: P,
    /// Its token.
    pub token: OwnerToken,
    /// The end of its presence, unless it asks again.
    pub present: Duration,
    /// The terms on which it takes the lock without asking; `None` if it is woken and asks.
    pub terms: Option<Terms>,
}

/// The hold that a waiter gets without asking.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    /// The requested length of the lease.
    pub ttl: Duration,
    /// The label of the request.
    pub label: Option<Label>,
    /// The requested number of fences.
    pub fences: u32,
}

/// A lease that a waiter gets without asking for it at that moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Given {
    /// Its first fence.
    pub fence: FencingToken,
    /// Its length from now.
    pub ttl: Duration,
    /// The number of its fences.
    pub fences: u32,
}

/// The fate of a wake-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// The waiter receives it.
    Yes,
    /// The way to it loses wake-ups; the waiter may have been there.
    Perhaps,
    /// The waiter can receive no wake-ups, and does not ask any more.
    Never,
    /// No client is known to listen for it. It may still ask.
    ByNobody,
}

/// The place of a waiter that left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// It did not wait.
    Absent,
    /// It was the first.
    Head,
    /// It was behind others.
    Middle,
}

/// The waiters of one name and the effects of a decision, for the length of one request. All methods see the waiters that
/// are present now.
pub trait Rows {
    /// A failure of the store. [`Infallible`](std::convert::Infallible) if it has none.
    type Error;
    /// A place, as the store counts.
    type Place;

    /// Returns the first of so many consecutive fences, greater than all earlier ones.
    fn fences(&mut self, count: u32) -> Result<FencingToken, Self::Error>;

    /// Wakes a waiter, or hands it a lease; at the latest when the changes of the request are stored.
    fn signal(&mut self, waiter: &Waiter<Self::Place>, given: Option<Given>) -> Result<Heard, Self::Error>;

    /// Remembers that the token was abandoned.
    fn bury(&mut self, token: &OwnerToken) -> Result<(), Self::Error>;

    /// Returns true if the token was abandoned a short while ago.
    fn is_buried(&self, token: &OwnerToken) -> Result<bool, Self::Error>;

    /// Returns the first waiter.
    fn head(&self) -> Result<Option<Waiter<Self::Place>>, Self::Error>;

    /// Returns the waiter behind another one.
    fn behind(&self, waiter: &Waiter<Self::Place>) -> Result<Option<Waiter<Self::Place>>, Self::Error>;

    /// Returns the number of waiters before this one, if it waits.
    fn position(&self, token: &OwnerToken) -> Result<Option<u32>, Self::Error>;

    /// Returns the number of waiters.
    fn count(&self) -> Result<u32, Self::Error>;

    /// Adds a waiter at the end, or sets the end of its presence if it waits already.
    fn join(&mut self, token: &OwnerToken, present: Duration, terms: Option<Terms>) -> Result<(), Self::Error>;

    /// Sets the end of the presence of the first waiter.
    fn call(&mut self, head: &Waiter<Self::Place>, present: Duration) -> Result<(), Self::Error>;

    /// Removes a waiter.
    fn leave(&mut self, token: &OwnerToken) -> Result<Left, Self::Error>;

    /// Removes a waiter that can receive no wake-ups, or all waiters of its client.
    fn drop_deaf(&mut self, waiter: &Waiter<Self::Place>) -> Result<(), Self::Error>;
}
