//! Who is told that a message is due sooner.
//!
//! Whoever makes a message due writes when that will be into the queue's signal. Every client that waits on a queue
//! watches all signals, and wakes its consumers only for a time before the one that they were told to sleep until.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use etcd_client::{Event, EventType};
use tenure_core::driver::{Next, QueueRouter, Watch};
use tenure_core::{QueueName, Result};

use super::clock::{Micros, after};
use super::keys::QueueSpace;
use crate::link::Link;
use crate::standing::{Audience, Standing};

#[derive(Debug)]
pub(crate) struct Signals(Arc<Standing<Sleepers>>);

/// The consumers of this client that wait.
struct Sleepers {
    space: QueueSpace,
    root: String,
    router: QueueRouter,
    /// Until when the consumers of a queue sleep, as they were last told.
    until: Mutex<HashMap<QueueName, Micros>>,
}

impl Signals {
    pub(crate) fn new(link: Arc<Link>, space: QueueSpace) -> Self {
        let root = space.signals();
        let sleepers = Sleepers { space, root, router: QueueRouter::default(), until: Mutex::default() };
        Self(Standing::new(link, sleepers))
    }

    pub(super) async fn listen(&self, queue: &QueueName) -> Result<Watch> {
        let watch = self.0.audience.router.register(queue);
        self.0.ensure_live().await?;
        Ok(watch)
    }

    /// A question leaves. Until it is answered, every signal wakes: the answer may be older than it.
    pub(super) fn asks(&self, queue: &QueueName) {
        let mut until = self.0.audience.until();
        if self.0.audience.router.is_watched(queue) {
            until.insert(queue.clone(), Micros::MAX);
        } else {
            until.remove(queue);
        }
    }

    /// The answer is there, and says for how long to sleep.
    pub(super) fn answered(&self, queue: &QueueName, next: Next, now: Micros) {
        if let Some(until) = self.0.audience.until().get_mut(queue).filter(|until| **until == Micros::MAX) {
            *until = match next {
                Next::Now => now,
                Next::In(span) => after(now, span),
                Next::Never | Next::Paused => Micros::MAX,
            };
        }
    }

    pub(crate) async fn close(&self) {
        self.0.close().await;
    }

    pub(crate) fn abort(&self) {
        self.0.abort();
    }
}

impl Sleepers {
    fn until(&self) -> MutexGuard<'_, HashMap<QueueName, Micros>> {
        self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether those who sleep on the queue are to be woken for something that is due by then.
    fn is_sooner(&self, queue: &QueueName, due: Micros) -> bool {
        match self.until().get_mut(queue) {
            Some(until) if due < *until => {
                *until = due;
                true
            }
            Some(_) => false,
            None => true,
        }
    }
}

impl Audience for Sleepers {
    fn root(&self) -> &[u8] {
        self.root.as_bytes()
    }

    fn take_in(&self, events: &[Event]) {
        for event in events.iter().filter(|event| event.event_type() == EventType::Put) {
            let Some(signal) = event.kv() else { continue };
            let due = std::str::from_utf8(signal.value()).ok().and_then(|due| due.parse().ok()).unwrap_or_default();
            if let Some(queue) = self.space.signalled(signal.key()).filter(|queue| self.is_sooner(queue, due)) {
                self.router.wake(&queue);
            }
        }
    }

    fn begin(&self) {}

    fn gap(&self) {
        self.until().clear();
        self.router.wake_all();
    }

    fn is_empty(&self) -> bool {
        self.router.is_empty()
    }
}
