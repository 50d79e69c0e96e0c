//! Local hand-over: the waiters of one client for one name share one place in the backend's queue, and pass a lease on
//! among themselves, in order of arrival, as long as its [`Baton`] allows.
//!
//! A relay begins when a waiter of the client is answered with busy, and ends with the last that waits in it. Whoever
//! comes meanwhile and wants the lock on the same [`Terms`] gets a [`Place`] and sends nothing. Somebody *runs*, that is,
//! waits at the backend: the waiter that began it as long as it is alone, and then a task for all, which pauses while a
//! lease is being passed on.

mod baton;
mod place;
mod relays;
mod runner;

pub(crate) use baton::{Baton, Terms};
pub(crate) use place::Place;
pub(crate) use relays::Relays;
