//! Models of backends: operations that are drawn at random, done at a backend and in memory, and how the answers differ.
//!
//! Only the script moves the clocks, so that a failing seed fails again and can be shown shortened. How the clocks of a
//! backend are moved is the caller's.

pub mod queue;
mod random;

pub use random::{Grow, Rng, number, shortened};
