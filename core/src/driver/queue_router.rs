//! How a backend's wake-ups reach those who wait on a queue.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{WakeHandle, Watch};
use crate::value::queue_name::QueueName;

/// Routes wake-ups of one connection to the watchers of its queues.
///
/// ```
/// use tenure_core::{QueueName, driver::QueueRouter};
///
/// let router = QueueRouter::default();
/// let jobs = QueueName::new("jobs")?;
/// let watch = router.register(&jobs);
/// assert!(router.wake(&jobs));
/// drop(watch); // ends the registration
/// assert!(!router.wake(&jobs));
/// # Ok::<(), tenure_core::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct QueueRouter(Arc<Mutex<Routes>>);

#[derive(Debug, Default)]
struct Routes {
    last: u64,
    watchers: HashMap<QueueName, Vec<(u64, WakeHandle)>>,
}

impl QueueRouter {
    /// Starts to route wake-ups of `queue`, until the watch is dropped.
    #[must_use]
    pub fn register(&self, queue: &QueueName) -> Watch {
        let (handle, watch) = Watch::channel();
        let mut routes = self.routes();
        routes.last += 1;
        let number = routes.last;
        routes.watchers.entry(queue.clone()).or_default().push((number, handle));
        drop(routes);
        let (router, queue) = (self.clone(), queue.clone());
        watch.on_drop(move || router.forget(&queue, number))
    }

    fn forget(&self, queue: &QueueName, number: u64) {
        let mut routes = self.routes();
        let Some(watchers) = routes.watchers.get_mut(queue) else { return };
        watchers.retain(|(other, _)| *other != number);
        if watchers.is_empty() {
            routes.watchers.remove(queue);
        }
    }

    /// Wakes the watchers of `queue`; tells whether there are any.
    pub fn wake(&self, queue: &QueueName) -> bool {
        let routes = self.routes();
        let watchers = routes.watchers.get(queue);
        watchers.into_iter().flatten().for_each(|(_, watcher)| watcher.wake());
        watchers.is_some()
    }

    /// Wakes every watcher: after a gap in the link, in which wake-ups may have been lost.
    pub fn wake_all(&self) {
        self.routes().watchers.values().flatten().for_each(|(_, watcher)| watcher.wake());
    }

    /// Whether anybody watches `queue`.
    #[must_use]
    pub fn is_watched(&self, queue: &QueueName) -> bool {
        self.routes().watchers.contains_key(queue)
    }

    /// The queues that are watched.
    #[must_use]
    pub fn queues(&self) -> Vec<QueueName> {
        self.routes().watchers.keys().cloned().collect()
    }

    /// How many watchers are registered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.routes().watchers.values().map(Vec::len).sum()
    }

    /// Whether nobody is registered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn routes(&self) -> MutexGuard<'_, Routes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
