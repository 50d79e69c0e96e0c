//! The operations, and what they are about.

use std::time::Duration;

use tenure_core::LockName;
use tenure_core::driver::{Delay, Lease, Listed, NewMessage, Payload, Settlement};
use tenure_core::queue::{ConcurrencyKey, MessageId, QueueLimits};

/// Of what times are multiples, but for a few microseconds.
pub const UNIT: Duration = Duration::from_secs(1_000);
/// Keeps the ends of leases away from due times: at the same microsecond, Redis puts waiting messages before leased ones.
const LEASES_APART: Duration = Duration::from_secs(250);

/// So many of them.
///
/// # Panics
/// Where that is longer than a delay can be.
#[must_use]
pub fn delay(units: u32) -> Delay {
    Delay::new(UNIT * units).unwrap()
}

/// A lease of a little more than so many of them.
///
/// # Panics
/// Where that is longer than a lease can be.
#[must_use]
pub fn lease(units: u32) -> Lease {
    Lease::new(UNIT * units + LEASES_APART).unwrap()
}

/// A message of one key, due at once.
///
/// # Panics
/// Never.
#[must_use]
pub fn keyed(ttl: Option<Delay>) -> NewMessage {
    let key = ConcurrencyKey::new("a").unwrap();
    NewMessage::new(Payload::new(*b"message").unwrap()).with_key(Some(key)).with_ttl(ttl)
}

/// The lock that messages are parked behind.
///
/// # Panics
/// Never.
#[must_use]
pub fn lock() -> LockName {
    LockName::new("lock").unwrap()
}

/// One operation, by numbers that mean the same for both sides.
#[derive(Clone, Debug)]
#[allow(
    missing_docs,
    reason = "each is a method of the trait, with its parameters; a number says which receipt is meant"
)]
pub enum Op {
    Push(Vec<NewMessage>),
    Receive(Vec<(usize, Settlement)>, usize, Lease),
    Settle(Vec<(usize, Settlement)>),
    Extend(usize, Lease),
    Cancel(Target),
    Reschedule(Target, Delay),
    Get(Target),
    Stats,
    Pause,
    Resume,
    Purge(usize),
    List,
    Messages(Listed, usize),
    Limit(QueueLimits),
    DeadList(Option<usize>, usize),
    Redrive(Vec<Target>, Delay),
    RedriveOldest(usize, Delay),
    DeadPurge(usize),
    /// The backend forgets everything.
    Flush,
    /// So much time passes, beside what passes before every operation.
    Pass(Duration),
}

/// Which message is meant.
#[derive(Clone, Debug)]
pub enum Target {
    /// By when it was pushed.
    Index(usize),
    /// By its caller's id.
    Named(MessageId),
}

/// An operation, and how much time passes before. The span is never zero: a message is put at a time later than the
/// messages that an earlier operation put there, so that the orders agree.
#[derive(Clone, Debug)]
pub struct Move {
    /// How much time.
    pub after: Duration,
    /// The operation after that time.
    pub op: Op,
}

/// What went wrong, and the operations until then.
#[derive(Debug)]
pub struct Wrong {
    /// The last one is the one that did.
    pub moves: Vec<Move>,
    /// For people.
    pub what: String,
}
