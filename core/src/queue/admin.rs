//! Operations on stored messages: by their producers, and by operators.

use std::time::Duration;

use futures_util::{Stream, TryStreamExt as _};

use crate::client::Client;
use crate::driver::{
    Cancelled, DeadLetter, DeadPage, DeadPlace, DeadSelection, ListPlace, Listed, MessageInfo, MessagePage, PurgeStep,
    Purged, QueueStats, Redriven, Rescheduled, Rest,
};
use crate::queue::handle::Queue;
use crate::queue::message::decode;
use crate::queue::{MessageId, QueueLimits, QueueName};
use crate::runtime::bounded;
use crate::value::error::{Error, Result};
use crate::value::queue::Delay;

/// The number of messages that one step of a purge removes: few enough for the backend to do other work in between.
const PURGE_STEP: usize = 1000;

/// The number of queues that one step of a listing requests.
const PAGE: usize = 1000;

/// The number of messages that one step of a listing requests: with their payloads, which may be large.
const LISTED: usize = 100;

impl<T: 'static> Queue<T> {
    /// Removes a waiting message; it will not be delivered. Its id is free again.
    ///
    /// # Errors
    ///
    /// The driver's error.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the message may or may not be removed. The same holds for all methods that change
    /// something.
    pub async fn cancel(&self, id: &MessageId) -> Result<Cancelled> {
        self.operate("cancel", |driver| driver.cancel(self.name(), id)).await
    }

    /// Changes the due time of a waiting message to `delay` from now, sooner or later than before.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) when the delay is too long; otherwise the
    /// driver's error.
    pub async fn reschedule(&self, id: &MessageId, delay: Duration) -> Result<Rescheduled> {
        let delay = self.checked_delay(delay, "reschedule")?;
        self.operate("reschedule", |driver| driver.reschedule(self.name(), id, delay)).await
    }

    /// Returns the operators' handle on the queue: to look at stored messages and dead letters, and to pause, limit and
    /// purge the queue.
    ///
    /// ```
    /// # async fn example(queue: tenure_core::queue::Queue<String>) -> tenure_core::Result<()> {
    /// let stats = queue.admin().stats().await?;
    /// println!("{} ready, the oldest for {:?}", stats.ready, stats.lag);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn admin(&self) -> Admin<T> {
        Admin { queue: self.clone() }
    }

    pub(super) fn checked_delay(&self, delay: Duration, what: &'static str) -> Result<Delay> {
        let checked = Delay::new(delay).and_then(|delay| self.fetcher.remote.caps.check_delay(delay).map(|()| delay));
        checked.map_err(|error| self.during(error, what))
    }
}

/// The operators' handle on a queue: looks at stored messages, pauses, limits and purges the queue, and has its
/// [dead letters](Admin::dead_letters). Made by [`Queue::admin`].
///
/// Where the driver has no operations on stored messages, every call fails with
/// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported).
#[derive(Debug)]
pub struct Admin<T> {
    queue: Queue<T>,
}

impl<T> Clone for Admin<T> {
    fn clone(&self) -> Self {
        Self { queue: self.queue.clone() }
    }
}

impl<T: 'static> Admin<T> {
    /// Returns a message without changing it; `None` when it is not stored (any more).
    ///
    /// # Errors
    ///
    /// The driver's error.
    pub async fn get(&self, id: &MessageId) -> Result<Option<MessageInfo>> {
        self.queue.operate("get", |driver| driver.get(self.queue.name(), id)).await
    }

    /// Lists messages that wait or are in flight, in the order of their due times or the ends of their leases, without
    /// changing them; those whose key is in flight may come last. The stream requests page by page, as it is polled:
    /// messages that are added or removed meanwhile may be missing or be listed twice. A failure is the last item.
    pub fn list(&self, which: Listed) -> impl Stream<Item = Result<MessageInfo>> + use<T> {
        let pages = futures_util::stream::try_unfold(Some((self.clone(), None)), move |place| async move {
            let Some((admin, from)) = place else { return Ok::<_, Error>(None) };
            let MessagePage { messages, next } = admin.list_page(which, from, LISTED).await?;
            let rest = next.map(|next| (admin, Some(next)));
            Ok(Some((futures_util::stream::iter(messages.into_iter().map(Ok)), rest)))
        });
        pages.try_flatten()
    }

    /// Returns one page of [`list`](Admin::list): up to `max` messages, and no more than the driver's
    /// [`batch`](crate::driver::QueueCapabilities::batch), from the place that the page before named.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) when `max` is zero; otherwise the driver's
    /// error.
    pub async fn list_page(&self, which: Listed, from: Option<ListPlace>, max: usize) -> Result<MessagePage> {
        let max = max.min(self.queue.fetcher.remote.caps.batch);
        self.queue.fetcher.remote.caps.check_batch(max).map_err(|error| self.queue.during(error, "list"))?;
        self.queue.operate("list", |driver| driver.list(self.queue.name(), which, from, max)).await
    }

    /// Returns the first message in line, due or not, without changing it.
    ///
    /// # Errors
    ///
    /// The driver's error.
    pub async fn peek(&self) -> Result<Option<MessageInfo>> {
        let mut from = None;
        loop {
            let page = self.list_page(Listed::Waiting, from, 1).await?;
            match page.messages.into_iter().next() {
                None if page.next.is_some() => from = page.next, // what is damaged is left out
                first => return Ok(first),
            }
        }
    }

    /// Limits the deliveries of the queue, for all clients together, until it is set again; [`QueueLimits::none`]
    /// removes the limits.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tenure_core::queue::{Queue, QueueLimits, Rate};
    /// # async fn example(queue: Queue<String>) -> tenure_core::Result<()> {
    /// let per_second = Rate::new(100, Duration::from_secs(1))?;
    /// let limits = QueueLimits::none().in_flight(10)?.rate(per_second);
    /// queue.admin().limit(limits).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// The driver's error.
    pub async fn limit(&self, limits: QueueLimits) -> Result<()> {
        self.queue.operate("limit", |driver| driver.limit(self.queue.name(), &limits)).await
    }

    /// Returns the queue's counts, its lag and the next due time.
    ///
    /// # Errors
    ///
    /// The driver's error.
    pub async fn stats(&self) -> Result<QueueStats> {
        let stats = self.queue.operate("stats", |driver| driver.stats(self.queue.name())).await?;
        let QueueStats { scheduled, ready, in_flight, dead, .. } = stats;
        self.queue.fetcher.remote.meters.depth([scheduled, ready, in_flight, dead]);
        Ok(stats)
    }

    /// Stops deliveries, for all clients, until [`resume`](Admin::resume). Settlements and pushes continue.
    ///
    /// # Errors
    ///
    /// The driver's error.
    pub async fn pause(&self) -> Result<()> {
        self.queue.operate("pause", |driver| driver.pause(self.queue.name())).await
    }

    /// Ends a pause.
    ///
    /// # Errors
    ///
    /// The driver's error.
    pub async fn resume(&self) -> Result<()> {
        self.queue.operate("resume", |driver| driver.resume(self.queue.name())).await
    }

    /// Removes all messages that wait when the call begins; returns their number. Those in flight and the dead letters
    /// stay. The purge runs in steps, so messages that are pushed or rescheduled meanwhile may or may not be removed;
    /// it ends however many these are.
    ///
    /// # Errors
    ///
    /// The driver's error.
    pub async fn purge(&self) -> Result<u64> {
        let (mut removed, mut from) = (0, None);
        loop {
            let PurgeStep { removed: more, next } =
                self.queue.operate("purge", |driver| driver.purge(self.queue.name(), PURGE_STEP, from)).await?;
            removed += more;
            if next.is_none() {
                return Ok(removed);
            }
            from = next;
        }
    }

    /// Returns the queue's dead letters: messages that are not delivered any more.
    #[must_use]
    pub fn dead_letters(&self) -> DeadLetters<T> {
        DeadLetters { queue: self.queue.clone() }
    }
}

impl Client {
    /// Lists all delay queues that hold a message, dead ones included, or are paused or limited; in the order of their
    /// bytes.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) when the driver has no delay queues, or no operations
    /// on stored messages; otherwise the driver's error.
    ///
    /// # Cancel safety
    ///
    /// Safe: nothing is changed.
    pub async fn list_queues(&self) -> Result<Vec<QueueName>> {
        let shared = self.shared();
        shared.ensure_open()?;
        let driver = crate::queue::requests::admin(shared)?;
        let mut all: Vec<QueueName> = Vec::new();
        loop {
            let after = all.last().cloned();
            let page = bounded(shared.config.op_timeout, driver.list_queues(after, PAGE)).await?;
            let none = page.queues.is_empty();
            all.extend(page.queues);
            if page.rest == Rest::None || none {
                return Ok(all);
            }
        }
    }
}

// Messages that are delivered no more.

/// The number of letters that one step moves or removes.
const STEP: usize = 500;

/// The dead letters of a queue: messages whose attempts are used up, or that a handler rejected. Made by
/// [`Admin::dead_letters`]. They stay until they are redriven or purged.
#[derive(Debug)]
pub struct DeadLetters<T> {
    queue: Queue<T>,
}

impl<T> Clone for DeadLetters<T> {
    fn clone(&self) -> Self {
        Self { queue: self.queue.clone() }
    }
}

impl<T: 'static> DeadLetters<T> {
    /// Lists up to `max` letters after the given place, those that died first in front. A page may have fewer letters
    /// and not be the last, where a backend bounds the bytes of an answer: [`rest`](DeadPage::rest) shows if there are
    /// more.
    ///
    /// ```
    /// # use tenure_core::queue::{Queue, Rest};
    /// # async fn example(queue: Queue<String>) -> tenure_core::Result<()> {
    /// let (dead, mut after) = (queue.admin().dead_letters(), None);
    /// loop {
    ///     let page = dead.list(after, 100).await?;
    ///     for letter in &page.letters {
    ///         println!("{}: {:?}", letter.id, letter.cause);
    ///     }
    ///     after = page.letters.last().map(|letter| letter.place);
    ///     if page.rest == Rest::None {
    ///         break;
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) when `max` is zero or more than the driver's
    /// batch; otherwise the driver's error.
    pub async fn list(&self, after: Option<DeadPlace>, max: usize) -> Result<DeadPage> {
        let queue = &self.queue;
        queue.fetcher.remote.caps.check_batch(max).map_err(|error| queue.during(error, "dead_list"))?;
        queue.operate("dead_list", |driver| driver.dead_list(queue.name(), after, max)).await
    }

    /// Decodes the value of a letter.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Protocol`](crate::ErrorKind::Protocol) when its payload cannot be decoded, or the codec panicked.
    pub fn value(&self, letter: &DeadLetter) -> Result<T, Error> {
        decode(&*self.queue.codec, letter.payload.as_bytes())
    }

    /// Makes these letters due at once, with all attempts again; returns the number of those found.
    ///
    /// # Errors
    ///
    /// As [`DeadLetters::list`].
    pub async fn redrive(&self, ids: impl IntoIterator<Item = MessageId>) -> Result<u64> {
        let which = self.ids(ids, "dead_redrive")?;
        Ok(self.redrive_step(&which, Delay::ZERO).await?.moved)
    }

    /// Makes all letters due `delay` from now, with all attempts again; returns their number. Runs in steps: a failure
    /// may leave some moved.
    ///
    /// # Errors
    ///
    /// The driver's error.
    pub async fn redrive_all(&self, delay: Duration) -> Result<u64> {
        let delay = self.queue.checked_delay(delay, "dead_redrive")?;
        let most = self.queue.admin().stats().await?.dead; // letters that die again meanwhile wait for the next time
        let mut moved = 0;
        while moved < most {
            let count = STEP.min(self.queue.fetcher.remote.caps.batch).min((most - moved) as usize);
            let step = self.redrive_step(&DeadSelection::Oldest(count), delay).await?;
            moved += step.moved;
            if step.rest == Rest::None || step.moved == 0 {
                break;
            }
        }
        Ok(moved)
    }

    /// Makes the letters for which `which` returns true due `delay` from now, with all attempts again; returns their
    /// number. `which` is called once for each letter present at the beginning, those that died first in front.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tenure_core::driver::{DeadCause, DeadLetter};
    /// # async fn example(queue: tenure_core::queue::Queue<String>) -> tenure_core::Result<()> {
    /// let hour = Duration::from_secs(3600);
    /// let of_the_outage = |letter: &DeadLetter| {
    ///     letter.died < hour && letter.cause == DeadCause::Exhausted
    /// };
    /// let letters = queue.admin().dead_letters();
    /// letters.redrive_where(Duration::ZERO, of_the_outage).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// This client reads every letter, and moves them in steps: a failure may leave some moved.
    ///
    /// # Errors
    ///
    /// The driver's error.
    pub async fn redrive_where(&self, delay: Duration, which: impl FnMut(&DeadLetter) -> bool) -> Result<u64> {
        let delay = self.queue.checked_delay(delay, "dead_redrive")?;
        let step = async |chosen: &DeadSelection| Ok(self.redrive_step(chosen, delay).await?.moved);
        self.each_page(which, step).await
    }

    /// Removes these letters; returns the number of those found.
    ///
    /// # Errors
    ///
    /// As [`DeadLetters::list`].
    pub async fn purge(&self, ids: impl IntoIterator<Item = MessageId>) -> Result<u64> {
        let which = self.ids(ids, "dead_purge")?;
        Ok(self.purge_step(&which).await?.removed)
    }

    /// Removes all letters; returns their number. Runs in steps: a failure may leave some removed.
    ///
    /// # Errors
    ///
    /// The driver's error.
    pub async fn purge_all(&self) -> Result<u64> {
        let mut removed = 0;
        loop {
            let step = self.purge_step(&DeadSelection::Oldest(STEP.min(self.queue.fetcher.remote.caps.batch))).await?;
            removed += step.removed;
            if step.rest == Rest::None || step.removed == 0 {
                return Ok(removed);
            }
        }
    }

    /// Removes the letters for which `which` returns true; returns their number. As [`DeadLetters::redrive_where`].
    ///
    /// # Errors
    ///
    /// The driver's error.
    pub async fn purge_where(&self, which: impl FnMut(&DeadLetter) -> bool) -> Result<u64> {
        let step = async |chosen: &DeadSelection| Ok(self.purge_step(chosen).await?.removed);
        self.each_page(which, step).await
    }

    /// Applies an operation to the chosen letters among those present now; returns their number.
    async fn each_page(
        &self,
        mut which: impl FnMut(&DeadLetter) -> bool,
        step: impl AsyncFn(&DeadSelection) -> Result<u64>,
    ) -> Result<u64> {
        let mut left = self.queue.admin().stats().await?.dead; // a letter that dies again is behind all these
        let (mut after, mut done) = (None, 0);
        while left > 0 {
            let count = STEP.min(self.queue.fetcher.remote.caps.batch).min(usize::try_from(left).unwrap_or(usize::MAX));
            let page = self.list(after, count).await?;
            let Some(last) = page.letters.last() else { break };
            after = Some(last.place);
            left = left.saturating_sub(page.letters.len() as u64);
            let chosen: Vec<_> = page.letters.iter().filter(|letter| which(letter)).map(|l| l.id.clone()).collect();
            if !chosen.is_empty() {
                done += step(&DeadSelection::Ids(chosen)).await?;
            }
            if page.rest == Rest::None {
                break;
            }
        }
        Ok(done)
    }

    fn ids(&self, ids: impl IntoIterator<Item = MessageId>, what: &'static str) -> Result<DeadSelection> {
        let ids: Vec<_> = ids.into_iter().collect();
        self.queue.fetcher.remote.caps.check_batch(ids.len()).map_err(|error| self.queue.during(error, what))?;
        Ok(DeadSelection::Ids(ids))
    }

    async fn redrive_step(&self, which: &DeadSelection, delay: Delay) -> Result<Redriven> {
        let queue = &self.queue;
        queue.operate("dead_redrive", |driver| driver.dead_redrive(queue.name(), which, delay)).await
    }

    async fn purge_step(&self, which: &DeadSelection) -> Result<Purged> {
        let queue = &self.queue;
        queue.operate("dead_purge", |driver| driver.dead_purge(queue.name(), which)).await
    }
}
