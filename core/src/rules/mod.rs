//! The decisions of a backend that cannot decide by itself: what each request changes, once for all such drivers.
//!
//! A server with scripts or procedures decides there. A store that only keeps rows (a map, a database file, one record
//! for each name) leaves the decisions to its driver. Such a driver implements a small trait of rows and calls a rule:
//!
//! | rule | rows | decides |
//! |---|---|---|
//! | [`locks::Rule`] | [`locks::Rows`], or [`locks::Record`] | grants, entries, renewals, releases, and the line of one name |
//! | [`permits::Rule`] | none: a [`permits::PermitState`] | the same for one semaphore or read-write lock |
//! | [`queues::Rule`] | [`queues::Rows`] | pushes, deliveries, settlements, and the operators' requests of one queue |
//!
//! A rule is a value. It has no clock, no I/O and no wake-ups: the time is an argument, and the rows are borrowed for one
//! request. The driver calls it while no other request can change the same rows: under a mutex, or inside a transaction.
//! It applies the changes before it answers, and notifies waiting clients itself.

pub mod locks;
pub mod permits;
pub mod queues;
