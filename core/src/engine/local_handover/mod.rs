//! Local hand-over: the waiters of one client for one name share one place in the backend's queue, and pass a lease on
//! among themselves, in order of arrival, as long as its [`HandoverBudget`] allows.
//!
//! A local queue begins when a waiter of the client is answered with busy, or when a second one comes before the first is answered
//! ([`asking`]), and ends with the last that waits in it. Whoever comes meanwhile and wants the lock on the same [`Terms`] gets a
//! [`Place`] and sends nothing. Somebody *runs*, that is, waits at the backend: the waiter that began it as long as it is
//! alone, and then a task for all, which pauses while a lease is being passed on. Where a grant carries one fence only,
//! nothing is passed on: the task asks again for the next of them.

mod queues;
mod waiters;

pub(crate) use queues::{FirstAsk, Joined, LocalQueues};
pub(crate) use waiters::{HandoverBudget, Place, Terms, Turn};
