//! Settings of a worker.

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
    undecodable: Undecodable,
    back_off: Duration,
    lock_ttl: Option<Duration>,
    handler_timeout: Option<Duration>,
    lock_of: Option<LockOf<T>>,
    hook: Option<Hook>,
    depth_every: Only<Option<Duration>>,
}

/// A function from a message without a lock to the lock that it needs; `None` for none.
pub(super) type LockOf<T> = Arc<dyn Fn(&T) -> Option<Result<LockName>> + Send + Sync>;

/// The settings, checked.
pub(super) struct Settings<T> {
    pub(super) queue: Queue<T>,
    pub(super) lease: Lease,
    pub(super) concurrency: usize,
    pub(super) retry: RetryPolicy,
    pub(super) undecodable: Undecodable,
    pub(super) back_off: Duration,
    pub(super) lock_ttl: Duration,
    pub(super) handler_timeout: Option<Duration>,
    pub(super) lock_of: Option<LockOf<T>>,
    pub(super) hook: Option<Hook>,
    pub(super) depth_every: Only<Option<Duration>>,
}

impl<T: 'static> Queue<T> {
    /// Returns a builder for a worker that handles the messages of this queue.
    pub fn worker(&self) -> WorkerBuilder<T> {
        WorkerBuilder::new(self.clone())
    }
}

impl<T: 'static> WorkerBuilder<T> {
    fn new(queue: Queue<T>) -> Self {
        let (retry, undecodable, back_off) = (RetryPolicy::default(), Undecodable::default(), PARKED_AT_MOST);
        let (lock_ttl, handler_timeout, lock_of, hook) = (None, None, None, None);
        let depth_every = Only::new(|| None);
        let concurrency = 16;
        Self { queue, concurrency, retry, undecodable, back_off, lock_ttl, handler_timeout, lock_of, hook, depth_every }
    }

    /// Sets the number of messages that are handled at once. Default: 16. The worker requests as many as it has room
    /// for, and no more: nothing waits in its memory while its lease runs.
    pub fn concurrency(mut self, most: usize) -> Self {
        self.concurrency = most;
        self
    }

    /// Sets the retry policy for failed messages. Default: after 1 s, doubled each time, at most 10 minutes, with
    /// jitter. A wait that is longer than the driver's longest [delay](crate::queue::QueueCapabilities::delay) is cut
    /// to that.
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.retry = policy;
        self
    }

    /// Sets the handling of a message that cannot be decoded. Default: it is tried again, after 5 s, doubled each time,
    /// at most 10 minutes, with jitter, until its attempts are used up; then it is a dead letter. If it is a
    /// [recurring](crate::queue::Recurring) message, the occurrence has failed then.
    ///
    /// While two versions of a program run at the same time, as in a rolling deployment, the older one may receive
    /// messages of the newer one: with the default of ten attempts they wait for the newer one for at least a quarter
    /// of an hour in all. The reason begins with "undecodable", and
    /// [`WorkerStats::undecodable`](crate::queue::WorkerStats::undecodable) counts each attempt.
    pub fn undecodable(mut self, how: Undecodable) -> Self {
        self.undecodable = how;
        self
    }

    /// Sets the maximum time before a message with a busy lock is redelivered if no wake-up arrives. Default: 5 s.
    pub fn lock_back_off(mut self, wait: Duration) -> Self {
        self.back_off = wait;
        self
    }

    /// Sets the ttl of the locks that are held for messages; they are renewed at a third of it. Whole milliseconds, in
    /// the range of the driver. Default: two thirds of the [`lease`](Queue::lease) of the messages, within the driver's
    /// range. A worker extends its messages and renews its locks at different moments, a third of the lease apart at
    /// most: so when it dies, the lock of a message is free by the time when the message is redelivered.
    pub fn lock_ttl(mut self, ttl: Duration) -> Self {
        self.lock_ttl = Some(ttl);
        self
    }

    /// Sets the time limit of a handler for one message, its lock not included. Default: no limit; the lease is
    /// extended for as long as the handler works.
    ///
    /// A handler that takes longer is dropped, and its attempt has failed. Zero is refused at the start.
    pub fn handler_timeout(mut self, most: Duration) -> Self {
        self.handler_timeout = Some(most);
        self
    }

    /// Sets a function that returns the lock to hold while a message is handled, from its value; `None` for none.
    /// Default: none. A message that was pushed with a lock ([`Push::lock`](crate::queue::Push::lock),
    /// [`Lock::or_park`](crate::Lock::or_park)) is handled under that one, and the function is not called.
    ///
    /// A message whose lock is taken is parked, and its attempt is not counted. A handler whose lock is lost is
    /// dropped, and its message is tried again. A panic of the function and an invalid lock name count as failed
    /// attempts, with their texts as the reason.
    ///
    /// ```
    /// # struct Order { account: u64 }
    /// # fn example(queue: tenure_core::queue::Queue<Order>) {
    /// let lock = |order: &Order| Some(format!("account/{}", order.account));
    /// let worker = queue.worker().lock_by(lock);
    /// # }
    /// ```
    pub fn lock_by<N: AsRef<[u8]>>(mut self, lock_of: impl Fn(&T) -> Option<N> + Send + Sync + 'static) -> Self {
        self.lock_of = Some(Arc::new(move |value| lock_of(value).map(LockName::new)));
        self
    }

    /// Sets a hook for the worker's events, for metrics and alarms. Default: none;
    /// [`Worker::stats`](crate::queue::Worker::stats) always counts.
    ///
    /// The hook is called inline, in the order of the events of a message, and so must return at once; clone an event
    /// and send it elsewhere for slow work. A panicking hook does no harm.
    pub fn on_event(mut self, hook: impl Fn(&WorkerEvent) + Send + Sync + 'static) -> Self {
        self.hook = Some(Arc::new(hook));
        self
    }

    /// Sets the interval at which the worker requests the queue's depth, for the metric `tenure.queue.depth`: one
    /// request each time. Default: never; the metric then has the values of the program's calls of
    /// [`Admin::stats`](crate::queue::Admin::stats). Each client that measures the same queue counts its messages once,
    /// so let one of them measure. At least 1 ms; less is refused at the start.
    #[cfg(feature = "metrics")]
    #[cfg_attr(docsrs, doc(cfg(feature = "metrics")))]
    pub fn measure_depth(mut self, every: Duration) -> Self {
        self.depth_every = Only::new(|| Some(every));
        self
    }

    /// Returns the settings, if they are within their limits.
    pub(super) fn checked(self) -> Result<Settings<T>> {
        let queue = self.queue;
        let checked = || {
            let lease = Lease::new(queue.lease)?;
            queue.fetcher.remote.caps.check_lease(lease)?;
            Delay::new(self.back_off).and_then(|wait| queue.fetcher.remote.caps.check_delay(wait))?;
            if self.concurrency == 0 {
                return Err(Error::new(ErrorKind::InvalidArgument, "concurrency must not be zero"));
            }
            if self.handler_timeout.is_some_and(|most| most.is_zero()) {
                return Err(Error::new(ErrorKind::InvalidArgument, "handler_timeout must not be zero"));
            }
            if let Some(Some(every)) = self.depth_every.get()
                && *every < Duration::from_millis(1)
            {
                let text = format!("a worker cannot request the depth of its queue every {every:?}: at least 1 ms");
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
        let (lease, lock_ttl) = checked().map_err(|error| queue.during(error, "work"))?;
        let Self { concurrency, retry, undecodable, back_off, handler_timeout, lock_of, hook, depth_every, .. } =
            Self { queue: queue.clone(), ..self };
        Ok(Settings {
            queue,
            lease,
            concurrency,
            retry,
            undecodable,
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

/// The handling of a message that a worker cannot decode: see [`WorkerBuilder::undecodable`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Undecodable {
    /// A failed attempt: it is tried again as the policy sets, and the last attempt moves it to the dead letters.
    /// Another worker may be able to decode it.
    Retry(RetryPolicy),
    /// It moves to the dead letters at once.
    Dead,
}

impl Default for Undecodable {
    fn default() -> Self {
        Self::Retry(RetryPolicy::exponential(Duration::from_secs(5), Duration::from_secs(600)))
    }
}

/// The wait after a failed attempt: `first × factor^(attempt − 1)`, at most `longest`, with jitter.
///
/// Default: 1 s, doubled each time, at most 10 minutes, half of it random.
///
/// ```
/// # use tenure_core as tenure;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> tenure::Result<()> {
/// # let client = tenure::Client::new(tenure_memory::MemoryDriver::new());
/// # let mails = client.queue_with("mails", tenure::queue::Text)?;
/// use std::time::Duration;
/// use tenure::queue::{Jitter, RetryPolicy};
///
/// let (second, minute) = (Duration::from_secs(1), Duration::from_secs(60));
/// let policy = RetryPolicy::exponential(second, minute);
/// let builder = mails.worker().retry(policy);
///
/// let exact = policy.jitter(Jitter::None);
/// let waits = [1, 2, 3, 10].map(|attempt| exact.wait(attempt, 0.5).as_secs());
/// assert_eq!(waits, [1, 2, 4, 60]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RetryPolicy {
    first: Duration,
    factor: f64,
    longest: Duration,
    jitter: Jitter,
}

/// The random part of a wait, so that messages that failed together are not redelivered together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Jitter {
    /// No random part.
    None,
    /// From half of the wait to all of it.
    Half,
    /// From zero to all of it.
    Full,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        let (first, longest) = (Duration::from_secs(1), Duration::from_secs(600));
        Self { first, factor: 2.0, longest, jitter: Jitter::Half }
    }
}

impl RetryPolicy {
    /// Returns a policy with a constant wait.
    #[must_use]
    pub fn fixed(wait: Duration) -> Self {
        Self { first: wait, factor: 1.0, longest: wait, jitter: Jitter::None }
    }

    /// Returns a policy whose wait is doubled after each failure, from `first` to `longest`, half of it random.
    #[must_use]
    pub fn exponential(first: Duration, longest: Duration) -> Self {
        Self { first, factor: 2.0, longest, jitter: Jitter::Half }
    }

    /// Sets the random part of a wait.
    #[must_use]
    pub fn jitter(mut self, jitter: Jitter) -> Self {
        self.jitter = jitter;
        self
    }

    /// Returns the wait after the failure of this attempt, 1 for the first. `chance` is from 0 to 1.
    #[must_use]
    pub fn wait(&self, attempt: u32, chance: f64) -> Duration {
        let power = self.factor.powi(i32::try_from(attempt.saturating_sub(1)).unwrap_or(i32::MAX));
        // Zero times infinity is no number, and `min` would make it the longest wait.
        let power = power.min(f64::MAX);
        let seconds = (self.first.as_secs_f64() * power).min(self.longest.as_secs_f64());
        let chance = chance.clamp(0.0, 1.0);
        let share = match self.jitter {
            Jitter::None => 1.0,
            Jitter::Half => 0.5 + chance / 2.0,
            Jitter::Full => chance,
        };
        Duration::try_from_secs_f64(seconds * share).unwrap_or(self.longest)
    }

    /// Returns [`wait`](Self::wait) with a random chance.
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
        let at_once = RetryPolicy::exponential(Duration::ZERO, Duration::from_secs(60));
        assert_eq!(at_once.wait(10_000, 0.3), Duration::ZERO);
        assert_eq!(policy.jitter(Jitter::Half).wait(1, 0.0), Duration::from_millis(500));
        assert_eq!(policy.jitter(Jitter::Full).wait(1, 0.0), Duration::ZERO);
        assert_eq!(policy.jitter(Jitter::Full).wait(1, 1.0), Duration::from_secs(1));
        assert_eq!(RetryPolicy::fixed(Duration::ZERO).wait(3, 0.5), Duration::ZERO);
    }
}
