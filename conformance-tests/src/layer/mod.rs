//! Faults on the client's side, free for every driver: between the engine and the driver.

mod action;
mod frames;
mod locks;
mod permits;
mod plan;
mod queues;

pub use action::{Action, Chaos, Op, Rule};
pub use frames::{Answer, Frame};
pub use plan::FaultLayer;

use std::sync::Arc;

use tenure_core::driver::Backend;

use locks::{LayeredLocks, LayeredReentrant};
use permits::LayeredPermits;
use queues::LayeredQueue;

impl FaultLayer {
    /// The backend through the layer. The list of held locks and the operations on stored messages bypass it.
    #[must_use]
    pub fn backend(&self) -> Backend {
        let locks = Arc::new(LayeredLocks::new(Arc::clone(self.inner().locks()), self.clone()));
        let outer = Backend::new(locks);
        let outer = match self.inner().reentrant() {
            Some(inner) => outer.with_reentrant(Arc::new(LayeredReentrant::new(Arc::clone(inner), self.clone()))),
            None => outer,
        };
        let outer = match self.inner().permits() {
            Some(inner) => outer.with_permits(Arc::new(LayeredPermits::new(Arc::clone(inner), self.clone()))),
            None => outer,
        };
        let outer = match self.inner().census() {
            Some(inner) => outer.with_census(Arc::clone(inner)),
            None => outer,
        };
        let outer = match self.inner().queue_admin() {
            Some(inner) => outer.with_queue_admin(Arc::clone(inner)),
            None => outer,
        };
        match self.inner().queue() {
            Some(inner) => outer.with_queue(Arc::new(LayeredQueue::new(Arc::clone(inner), self.clone()))),
            None => outer,
        }
    }
}
