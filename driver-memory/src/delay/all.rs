//! All queues of one store, behind one mutex.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use tenure_core::driver::{QueuePage, Rest};
use tenure_core::{FenceFloor, QueueName};
use tokio::time::Instant;

use super::slot::Nanos;
use super::state::{Counters, QueueCaps, QueueState, Turn};

/// Locked after the locks of the store, never before them.
#[derive(Debug)]
pub(crate) struct Queues {
    inner: Mutex<Inner>,
    start: OnceLock<Instant>,
}

#[derive(Debug)]
struct Inner {
    states: BTreeMap<QueueName, QueueState>,
    counters: Counters,
}

impl Queues {
    /// None yet; the fences of their deliveries are beyond this floor.
    pub(crate) fn beyond(floor: FenceFloor) -> Self {
        let counters = Counters { fence: floor.get(), ..Counters::default() };
        Self { inner: Mutex::new(Inner { states: BTreeMap::new(), counters }), start: OnceLock::new() }
    }

    /// Makes all fences from now on greater than the floor.
    pub(crate) fn raise_fences(&self, floor: FenceFloor) {
        let last = &mut self.locked().counters.fence;
        *last = floor.get().max(*last);
    }

    /// Forgets all queues; fences begin beyond this floor again.
    pub(crate) fn forget(&self, floor: FenceFloor) {
        let counters = Counters { fence: floor.get(), ..Counters::default() };
        *self.locked() = Inner { states: BTreeMap::new(), counters };
    }

    /// Decides on one queue. Tells also whether a message of it is due sooner than before.
    pub(crate) fn decide<T>(
        &self,
        queue: &QueueName,
        caps: QueueCaps,
        decision: impl FnOnce(&mut QueueState, &mut Turn<'_>) -> T,
    ) -> (T, bool) {
        let mut inner = self.locked();
        let now = self.now();
        let Inner { states, counters } = &mut *inner;
        let state = match states.get_mut(queue) {
            Some(state) => state,
            None => states.entry(queue.clone()).or_default(),
        };
        let mut turn = Turn { now, caps, counters };
        let before = state.soonest(now);
        let answer = decision(state, &mut turn);
        let sooner = state.soonest(now).is_some_and(|at| before.is_none_or(|before| at < before));
        if state.is_idle() {
            states.remove(queue);
        }
        (answer, sooner)
    }

    pub(crate) fn list(&self, after: Option<&QueueName>, max: usize) -> QueuePage {
        let inner = self.locked();
        let listed = |(name, state): (&QueueName, &QueueState)| state.is_listed().then(|| name.clone());
        let mut names = inner.states.iter().filter_map(listed).filter(|name| after.is_none_or(|after| name > after));
        let queues: Vec<_> = names.by_ref().take(max).collect();
        let rest = if names.next().is_some() { Rest::More } else { Rest::None };
        QueuePage { queues, rest }
    }

    fn now(&self) -> Nanos {
        let now = Instant::now();
        let passed = now.saturating_duration_since(*self.start.get_or_init(|| now));
        Nanos::try_from(passed.as_nanos()).expect("a process lives less than five centuries")
    }

    /// A panic inside a decision would be a bug of this crate; the other queues are still good.
    fn locked(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
