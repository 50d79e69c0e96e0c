//! What a client is built from: the traits that one backend implements.

use std::sync::Arc;

use super::{DelayQueue, DistributedLock, Doctor, ReentrantLock};

/// One backend, as the traits that its driver implements.
///
/// A driver crate usually implements `From<ItsDriver> for Backend`, so that users write `Client::new(driver)`.
#[derive(Clone, Debug)]
pub struct Backend {
    pub(crate) locks: Arc<dyn DistributedLock>,
    pub(crate) reentrant: Option<Arc<dyn ReentrantLock>>,
    pub(crate) queue: Option<Arc<dyn DelayQueue>>,
    pub(crate) doctor: Option<Arc<dyn Doctor>>,
}

impl Backend {
    /// A backend with plain locks.
    #[must_use]
    pub fn new(locks: Arc<dyn DistributedLock>) -> Self {
        Self { locks, reentrant: None, queue: None, doctor: None }
    }

    /// Adds re-entrant locks. They live in the same names: a name held one way is busy the other way.
    #[must_use]
    pub fn with_reentrant(mut self, reentrant: Arc<dyn ReentrantLock>) -> Self {
        self.reentrant = Some(reentrant);
        self
    }

    /// Adds delay queues.
    #[must_use]
    pub fn with_queue(mut self, queue: Arc<dyn DelayQueue>) -> Self {
        self.queue = Some(queue);
        self
    }

    /// Adds somebody who knows what the servers mean for locks.
    #[must_use]
    pub fn with_doctor(mut self, doctor: Arc<dyn Doctor>) -> Self {
        self.doctor = Some(doctor);
        self
    }

    /// The plain locks.
    #[must_use]
    pub fn locks(&self) -> &Arc<dyn DistributedLock> {
        &self.locks
    }

    /// The re-entrant locks, if the driver has them.
    #[must_use]
    pub fn reentrant(&self) -> Option<&Arc<dyn ReentrantLock>> {
        self.reentrant.as_ref()
    }

    /// The delay queues, if the driver has them.
    #[must_use]
    pub fn queue(&self) -> Option<&Arc<dyn DelayQueue>> {
        self.queue.as_ref()
    }

    /// Who knows the servers, if the driver has somebody.
    #[must_use]
    pub fn doctor(&self) -> Option<&Arc<dyn Doctor>> {
        self.doctor.as_ref()
    }
}
