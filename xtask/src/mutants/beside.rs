//! Jobs that mostly wait, several at a time.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Does the job for each item, in their order and so many at a time; what came of each, in the same order.
pub(crate) fn each<T: Sync, R: Send>(at_once: usize, items: &[T], job: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let begun = AtomicUsize::new(0);
    let next = || {
        let index = begun.fetch_add(1, Ordering::Relaxed);
        Some((index, items.get(index)?))
    };
    let some = || std::iter::from_fn(next).map(|(index, item)| (index, job(item))).collect::<Vec<_>>();
    let mut ended: Vec<(usize, R)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..at_once).map(|_| scope.spawn(some)).collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        joined.flat_map(|ended| ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    });
    ended.sort_by_key(|(index, _)| *index);
    ended.into_iter().map(|(_, result)| result).collect()
}
