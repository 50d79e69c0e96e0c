//! How a worker is set up.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::meters::Only;
use crate::queue::Queue;
use crate::queue::parking::PARKED_AT_MOST;
use crate::queue::worker::job::{Hook, WorkerEvent};
use crate::value::error::{Error, ErrorKind, LockName, Result};
use crate::value::queue::{Delay, Lease};
use crate::value::time::Ttl;

/// Settings of a [`Worker`](crate::queue::Worker); made by [`Queue::worker`].
#[must_use = "a builder does nothing until `start`"]
pub struct WorkerBuilder<T> {
    queue: Queue<T>,
    concurrency: usize,
    retry: RetryPolicy,
    back_off: Duration,
    lock_ttl: Option<Duration>,
    handler_timeout: Option<Duration>,
    lock_of: Option<LockOf<T>>,
    hook: Option<Hook>,
    depth_every: Only<Option<Duration>>,
}

/// Which lock a message needs that was pushed without one; `None` for none.
pub(super) type LockOf<T> = Arc<dyn Fn(&T) -> Option<Result<LockName>> + Send + Sync>;

/// The settings, checked.
pub(super) struct Settings<T> {
    pub(super) queue: Queue<T>,
    pub(super) lease: Lease,
    pub(super) concurrency: usize,
    pub(super) retry: RetryPolicy,
    pub(super) back_off: Duration,
    pub(super) lock_ttl: Duration,
    pub(super) handler_timeout: Option<Duration>,
    pub(super) lock_of: Option<LockOf<T>>,
    pub(super) hook: Option<Hook>,
    pub(super) depth_every: Only<Option<Duration>>,
}

impl<T: 'static> Queue<T> {
    /// A worker that handles the messages of this queue.
    pub fn worker(&self) -> WorkerBuilder<T> {
        WorkerBuilder::new(self.clone())
    }
}

impl<T: 'static> WorkerBuilder<T> {
    fn new(queue: Queue<T>) -> Self {
        let (retry, back_off) = (RetryPolicy::default(), PARKED_AT_MOST);
        let (lock_ttl, handler_timeout, lock_of, hook) = (None, None, None, None);
        let depth_every = Only::new(|| None);
        Self { queue, concurrency: 16, retry, back_off, lock_ttl, handler_timeout, lock_of, hook, depth_every }
    }

    /// How many messages are handled at once. Default: 16. The worker asks for as many as it has room for, and no
    /// more: nothing waits in its memory while its lease runs.
    pub fn concurrency(mut self, most: usize) -> Self {
        self.concurrency = most;
        self
    }

    /// When a failed message is tried again. Default: after 1 s, doubled each time, at most 10 minutes, with jitter.
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.retry = policy;
        self
    }

    /// The latest that a message comes back whose lock is taken, in case nobody tells that it is free. Default: 5 s.
    pub fn lock_back_off(mut self, wait: Duration) -> Self {
        self.back_off = wait;
        self
    }

    /// The ttl of the locks that are held for messages; they are renewed at a third of it. Whole milliseconds, in the range
    /// of the driver. Default: two thirds of the [`lease`](Queue::lease) of the messages, as far as the driver keeps such
    /// ttls. A worker that dies extends its messages and renews its locks at different moments, a third of the lease apart
    /// at most: so the lock of a message is free by the time when the message is back.
    pub fn lock_ttl(mut self, ttl: Duration) -> Self {
        self.lock_ttl = Some(ttl);
        self
    }

    /// For how long a handler may work on one message, its lock not included. Default: without a limit; the lease is
    /// extended for as long as the handler works.
    ///
    /// A handler that takes longer is dropped, and its attempt has failed. Zero is refused at the start.
    pub fn handler_timeout(mut self, most: Duration) -> Self {
        self.handler_timeout = Some(most);
        self
    }

    /// Which lock to hold while a message is handled, by what the message says; `None` for none. Default: none. A message
    /// that was pushed with a lock ([`Push::lock`](crate::queue::Push::lock), [`Lock::or_park`](crate::Lock::or_park)) is handled
    /// under that one, and the function is not asked.
    ///
    /// A message whose lock is taken is parked, and its attempt is not counted. A handler whose lock is lost is
    /// dropped, and its message is tried again. A panic of the function and a name that no lock can have count as failed
    /// attempts, with their texts as the reason.
    ///
    /// ```
    /// # struct Order { account: u64 }
    /// # fn example(queue: tenure_core::queue::Queue<Order>) {
    /// let worker = queue.worker().lock_by(|order| Some(format!("account/{}", order.account)));
    /// # }
    /// ```
    pub fn lock_by<N: AsRef<[u8]>>(mut self, lock_of: impl Fn(&T) -> Option<N> + Send + Sync + 'static) -> Self {
        self.lock_of = Some(Arc::new(move |value| lock_of(value).map(LockName::new)));
        self
    }

    /// Tells what happens in the worker, for metrics and alarms. Default: nobody is told; [`Worker::stats`](crate::queue::Worker::stats) counts always.
    ///
    /// The hook is called where it happens, in the order in which it happens to a message, and so must return at once;
    /// clone an event and send it elsewhere for anything that takes time. A hook that panics does no harm.
    pub fn on_event(mut self, hook: impl Fn(&WorkerEvent) + Send + Sync + 'static) -> Self {
        self.hook = Some(Arc::new(hook));
        self
    }

    /// How often the worker asks how full its queue is, for the metric `tenure.queue.depth`: one request each time. Default: never;
    /// the metric then says what the program learned from [`Queue::stats`](crate::queue::Queue::stats). Clients that
    /// ask for the same queue count its messages once each, so let one of them ask. At least 1 ms; less is refused at the start.
    #[cfg(feature = "metrics")]
    #[cfg_attr(docsrs, doc(cfg(feature = "metrics")))]
    pub fn measure_depth(mut self, every: Duration) -> Self {
        self.depth_every = Only::new(|| Some(every));
        self
    }

    /// The settings, if they are within their limits.
    pub(super) fn checked(self) -> Result<Settings<T>> {
        let queue = self.queue;
        let checked = || {
            let lease = Lease::new(queue.lease)?;
            queue.fetcher.remote.caps.check_lease(lease)?;
            Delay::new(self.back_off).and_then(|wait| queue.fetcher.remote.caps.check_delay(wait))?;
            if self.concurrency == 0 {
                return Err(Error::new(ErrorKind::InvalidArgument, "a worker with a concurrency of zero does nothing"));
            }
            if self.handler_timeout.is_some_and(|most| most.is_zero()) {
                return Err(Error::new(ErrorKind::InvalidArgument, "a handler needs more time than none"));
            }
            if let Some(Some(every)) = self.depth_every.get()
                && *every < Duration::from_millis(1)
            {
                let text = format!("a worker cannot ask for the depth of its queue every {every:?}: 1 ms or longer");
                return Err(Error::new(ErrorKind::InvalidArgument, text));
            }
            let range = queue.fetcher.remote.shared.backend.locks().capabilities().ttl;
            let lock_ttl = match self.lock_ttl {
                Some(ttl) => Ttl::new(ttl).and_then(|checked| range.check(checked)).map(|()| ttl)?,
                None => range.at_most(lease.get() * 2 / 3),
            };
            queue.fetcher.remote.shared.ensure_open()?;
            Ok((lease, lock_ttl))
        };
        let (lease, lock_ttl) = checked().map_err(|error| queue.told(error, "work"))?;
        let Self { concurrency, retry, back_off, handler_timeout, lock_of, hook, depth_every, .. } =
            Self { queue: queue.clone(), ..self };
        Ok(Settings {
            queue,
            lease,
            concurrency,
            retry,
            back_off,
            lock_ttl,
            handler_timeout,
            lock_of,
            hook,
            depth_every,
        })
    }
}

impl<T: 'static> fmt::Debug for WorkerBuilder<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerBuilder")
            .field("queue", &self.queue.name())
            .field("concurrency", &self.concurrency)
            .field("retry", &self.retry)
            .finish_non_exhaustive()
    }
}

// When a failed message is tried again.

/// How long a message waits after a failed attempt: `first × factor^(attempt − 1)`, at most `longest`, with jitter.
///
/// Default: 1 s, doubled each time, at most 10 minutes, half of it random.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RetryPolicy {
    first: Duration,
    factor: f64,
    longest: Duration,
    jitter: Jitter,
}

/// How much of a wait is left to chance, so that messages that failed together do not come back together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Jitter {
    /// Nothing.
    None,
    /// From half of the wait to all of it.
    Half,
    /// From nothing to all of it.
    Full,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        let (first, longest) = (Duration::from_secs(1), Duration::from_secs(600));
        Self { first, factor: 2.0, longest, jitter: Jitter::Half }
    }
}

impl RetryPolicy {
    /// Always the same wait.
    #[must_use]
    pub fn fixed(wait: Duration) -> Self {
        Self { first: wait, factor: 1.0, longest: wait, jitter: Jitter::None }
    }

    /// A wait that is doubled after each failure, from `first` to `longest`, half of it random.
    #[must_use]
    pub fn exponential(first: Duration, longest: Duration) -> Self {
        Self { first, factor: 2.0, longest, jitter: Jitter::Half }
    }

    /// How much is left to chance.
    #[must_use]
    pub fn jitter(mut self, jitter: Jitter) -> Self {
        self.jitter = jitter;
        self
    }

    /// The wait after the failure of this attempt, 1 for the first. `chance` is from 0 to 1.
    #[must_use]
    pub fn wait(&self, attempt: u32, chance: f64) -> Duration {
        let power = self.factor.powi(i32::try_from(attempt.saturating_sub(1)).unwrap_or(i32::MAX));
        let seconds = (self.first.as_secs_f64() * power).min(self.longest.as_secs_f64());
        let chance = chance.clamp(0.0, 1.0);
        let share = match self.jitter {
            Jitter::None => 1.0,
            Jitter::Half => 0.5 + chance / 2.0,
            Jitter::Full => chance,
        };
        Duration::try_from_secs_f64(seconds * share).unwrap_or(self.longest)
    }

    /// As [`wait`](Self::wait), by chance.
    pub(super) fn random_wait(&self, attempt: u32) -> Duration {
        self.wait(attempt, fastrand::f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_a_cap_and_stay_within_their_jitter() {
        let policy = RetryPolicy::exponential(Duration::from_secs(1), Duration::from_secs(60)).jitter(Jitter::None);
        let waits: Vec<_> = [1, 2, 3, 7, 10_000].map(|attempt| policy.wait(attempt, 0.3).as_secs()).into();
        assert_eq!(waits, [1, 2, 4, 60, 60]);
        assert_eq!(policy.jitter(Jitter::Half).wait(1, 0.0), Duration::from_millis(500));
        assert_eq!(policy.jitter(Jitter::Full).wait(1, 0.0), Duration::ZERO);
        assert_eq!(policy.jitter(Jitter::Full).wait(1, 1.0), Duration::from_secs(1));
        assert_eq!(RetryPolicy::fixed(Duration::ZERO).wait(3, 0.5), Duration::ZERO);
    }
}
