//! Jobs that mostly wait, several at a time.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::command::{Failure, Outcome};

/// A job of its own kind, which begins at once.
pub(crate) type Job<'a> = Box<dyn FnOnce() -> Outcome + Send + 'a>;

/// Does all of these at the same time, each to its end; fails with the reasons of all that failed.
pub(crate) fn all<const N: usize>(jobs: [Job<'_>; N]) -> Outcome {
    let ended = std::thread::scope(|scope| {
        let threads = jobs.map(|job| scope.spawn(job));
        threads.map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    let failed: Vec<String> = ended.into_iter().filter_map(Result::err).map(|Failure(why)| why).collect();
    if failed.is_empty() { Ok(()) } else { Err(Failure(failed.join("; "))) }
}

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

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use crate::command::Failure;

    #[test]
    fn all_are_done_and_each_reason_is_told() {
        let both = Barrier::new(2); // nobody passes it alone
        let failing = |why: &'static str| {
            let both = &both;
            move || {
                both.wait();
                Err(Failure(why.into()))
            }
        };
        let failed = super::all([Box::new(failing("one")), Box::new(|| Ok(())), Box::new(failing("two"))]);
        assert_eq!(failed.unwrap_err().0, "one; two");
        assert!(super::all([Box::new(|| Ok(()))]).is_ok());
    }

    #[test]
    fn each_is_done_once_beside_others_and_told_in_order() {
        let both = Barrier::new(2); // nobody passes it alone
        let done = super::each(2, &[1, 2, 3, 4], |number| {
            both.wait();
            number * 10
        });
        assert_eq!(done, [10, 20, 30, 40]);
        assert_eq!(super::each(3, &[7], |number| *number), [7]);
    }
}
