//! The decisions of permits: a semaphore, or a read-write lock, of one name.
//!
//! A hold has a [`Share`](crate::driver::Share): a weight of a capacity. The live holds of a name weigh at most its capacity together. One
//! rule serves several primitives:
//!
//! | primitive | capacity | weights |
//! |---|---|---|
//! | semaphore of n | n | 1 to n |
//! | read-write lock | 2²⁰ | [reader](crate::driver::Share::READER) 1, [upgradable](crate::driver::Share::UPGRADABLE) 2¹⁹ + 1, [writer](crate::driver::Share::WRITER) all |
//!
//! [`PermitState`] is the record of one name, and [`Rule`] decides one request over it. The store keeps the record as
//! a value, or as [bytes](PermitState::to_bytes).
//!
//! * **Leases.** Each hold is a lease. Its renewal, release and end change no other hold.
//! * **Capacity.** Each request names the capacity, and the record keeps none for the name. A request fits if the
//!   holds, the waiters before it and its own weight do not exceed the capacity that it names, nor one that a waiter
//!   before it names. With one number everywhere, the holds never exceed it. While clients use two numbers, the holds
//!   never exceed the greater one.
//! * **Order.** Waiters are served in order of arrival, whatever they weigh: a first waiter that does not fit delays
//!   all waiters behind it, so readers cannot starve a writer. A waiter that has not asked for the time of its
//!   presence is dropped.
//! * **Turns.** A request that frees room notifies all waiters at the front that now fit, in order. A notified waiter
//!   has [`CLAIM_WINDOW`](super::locks::CLAIM_WINDOW) to ask, and its room stays reserved; or it is handed the hold
//!   itself, as a lease of that length.
//! * **Fences.** Each grant and each upgrade has a fence, greater than all earlier ones of the name.
//! * **Resizing.** A hold may weigh less at once, with the same fence. It may weigh more when it fits: such an upgrade
//!   waits before the line, and meanwhile no waiter is served. It also takes room that is reserved for notified
//!   waiters. Only one hold may wait so, since two would wait for each other. The changes of a hold are numbered: one that
//!   arrives after a later one has no effect.
//!
//! The line in order of arrival over all weights is that of the semaphore of tokio (`batch_semaphore`). The window of
//! a notified waiter and the hand-over are those of [`locks`](super::locks). All times are on the store's clock, as
//! there.

mod bytes;
#[macro_use]
mod flaw;
mod rule;
mod state;

pub use rule::{Caps, Outside, Refusal, Rule};
pub use state::PermitState;

#[cfg(test)]
mod tests;
