//! Locks of the engine over drivers in memory and scripted ones: one program, so that what they share is compiled once.

mod adopt;
mod at_least;
mod blocking;
mod bounds;
mod client;
mod counted;
mod edges;
mod election;
mod engine;
mod extend;
mod handing;
mod held;
mod local_handover;
mod lock_all;
mod loss;
mod permits;
mod progress;
mod refused;
mod releases;
pub(crate) mod stage;
mod together;
mod values;
mod waits;
