//! What is counted and measured, with the feature `metrics`: through the crate of that name, to whichever recorder the program has
//! installed. Without the feature, nothing is compiled in. `docs/metrics.md` lists it all.
//!
//! * [`instrument`] is the one place that knows the feature;
//! * [`locks`] is what the engine tells;
//! * [`queues`] is what queues and workers tell.
//!
//! Handles are registered once, when a client is built: a call on the way of a lock looks nothing up.

pub(crate) mod instrument;
pub(crate) mod locks;
pub(crate) mod queues;
