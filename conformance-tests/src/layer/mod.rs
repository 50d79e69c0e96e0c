//! Faults on the client's side, free for every driver: between the engine and the driver.

mod action;
mod frames;
mod locks;
mod plan;
mod queues;

pub use action::{Action, Chaos, Op, Rule};
pub use frames::{Answer, Frame};
pub use plan::FaultLayer;
