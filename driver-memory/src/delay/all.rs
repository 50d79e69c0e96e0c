//! All queues of one store, behind one mutex, and which messages are parked behind which lock.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tenure_core::driver::{QueuePage, Rest};
use tenure_core::{LockName, QueueName};
use tokio::time::Instant;

use super::slot::Nanos;
use super::state::{Counters, QueueCaps, QueueState, Turn};

/// Locked after the locks of the store, never before them.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    inner: Mutex<Inner>,
    start: OnceLock<Instant>,
    /// How many locks have a message parked behind them, for a look without the mutex.
    parked_locks: AtomicUsize,
}

#[derive(Debug, Default)]
struct Inner {
    states: BTreeMap<QueueName, QueueState>,
    counters: Counters,
    /// By lock: the messages, in the order in which they were pushed.
    parked: HashMap<LockName, BTreeSet<(u64, QueueName)>>,
}

impl Queues {
    /// Decides on one queue. Tells also whether a message of it is due sooner than before.
    pub(crate) fn decide<T>(
        &self,
        queue: &QueueName,
        caps: QueueCaps,
        lock_free_in: &mut dyn FnMut(&LockName) -> Duration,
        decision: impl FnOnce(&mut QueueState, &mut Turn<'_>) -> T,
    ) -> (T, bool) {
        let mut inner = self.locked();
        let now = self.now();
        let Inner { states, counters, parked } = &mut *inner;
        let state = match states.get_mut(queue) {
            Some(state) => state,
            None => states.entry(queue.clone()).or_default(),
        };
        let mut turn = Turn { now, caps, counters, lock_free_in, parked: Vec::new() };
        let before = state.soonest();
        let answer = decision(state, &mut turn);
        let sooner = state.soonest().is_some_and(|at| before.is_none_or(|before| at < before));
        let newly_parked = turn.parked;
        if state.is_idle() {
            states.remove(queue);
        }
        for (lock, number) in newly_parked {
            parked.entry(lock).or_default().insert((number, queue.clone()));
        }
        self.parked_locks.store(parked.len(), Ordering::Release);
        (answer, sooner)
    }

    /// The lock is free, and nobody waits for it: makes the first message parked behind it due. Tells whose watchers
    /// are to be woken.
    pub(crate) fn lock_is_free(&self, lock: &LockName) -> Option<QueueName> {
        if self.parked_locks.load(Ordering::Acquire) == 0 {
            return None;
        }
        let mut inner = self.locked();
        let now = self.now();
        let Inner { states, parked, .. } = &mut *inner;
        let waiting = parked.get_mut(lock)?;
        let mut woken = None;
        while let Some((number, queue)) = waiting.pop_first() {
            if states.get_mut(&queue).is_some_and(|state| state.unpark(now, number, lock)) {
                woken = Some(queue);
                break;
            }
        }
        if waiting.is_empty() {
            parked.remove(lock);
        }
        self.parked_locks.store(parked.len(), Ordering::Release);
        woken
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
