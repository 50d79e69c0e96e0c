//! Permits: semaphores and read-write locks.
//!
//! A name has these keys, with prefix `shop` and a semaphore `orders`:
//!
//! | key | what | on the lease of |
//! |---|---|---|
//! | `shop:permit/s/orders/hold/<token>` | a hold, with its share | the hold |
//! | `shop:permit/s/orders/wait/<arrival>-<token>` | a place in the line, with its share | the client's session |
//! | `shop:permit/s/orders/grow` | the hold that waits to weigh more | the client's session |
//!
//! A request reads the name in one transaction and decides ([`seen`]). The transaction that grants is conditional on no
//! key having been written since ([`txn`]). Deleted keys do not refuse it: they only make room. So no key of the name
//! is without a lease. A place reserves its room, since a request counts all waiters before it.
//!
//! Each client with waiters keeps a copy of the names that they wait for, up to date by a watch ([`crowd`]), and wakes
//! exactly those that fit. A waiter that fits and does not take its share is removed by the one behind it.

mod ask;
mod change;
mod crowd;
mod driver;
mod seen;
#[cfg(test)]
mod tests;
mod txn;

pub(crate) use crowd::Crowds;
