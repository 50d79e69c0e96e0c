//! The resource that a lock protects, with and without fencing.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tenure_core::{FenceGate, FencingToken, StaleFence};

/// A register that refuses writes with a smaller fence than it has seen. Its history stays in order, whatever happens
/// to the lock.
#[derive(Debug, Default)]
pub struct FencedRegister {
    gate: FenceGate,
    writes: Mutex<Vec<FencingToken>>,
}

impl FencedRegister {
    /// Writes under this fence.
    ///
    /// # Errors
    ///
    /// The fence is stale.
    pub fn write(&self, fence: FencingToken) -> Result<(), StaleFence> {
        let mut writes = lock(&self.writes);
        self.gate.admit(fence)?;
        writes.push(fence);
        Ok(())
    }

    /// Whether the accepted writes arrived in the order of their fences.
    #[must_use]
    pub fn is_in_order(&self) -> bool {
        lock(&self.writes).is_sorted()
    }
}

/// A register that accepts every writer. It records whether a writer wrote after the writer of a later grant: if the
/// suite's faults never break it, they are too mild.
#[derive(Debug, Default)]
pub struct UnfencedRegister {
    writes: Mutex<Vec<FencingToken>>,
}

impl UnfencedRegister {
    /// Writes; the register only records the fence.
    pub fn write(&self, fence: FencingToken) {
        lock(&self.writes).push(fence);
    }

    /// Whether a stale write was accepted.
    #[must_use]
    pub fn is_corrupt(&self) -> bool {
        !lock(&self.writes).is_sorted()
    }
}

/// A counter whose increments are read, wait, write: two at once lose one.
#[derive(Debug, Default)]
pub struct Counter {
    value: Mutex<u64>,
}

impl Counter {
    /// Adds one, in two steps with a pause between them.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may leave the increment out.
    pub async fn increment(&self) {
        let read = *lock(&self.value);
        tokio::task::yield_now().await;
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        *lock(&self.value) = read + 1;
    }

    /// The value.
    #[must_use]
    pub fn value(&self) -> u64 {
        *lock(&self.value)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
