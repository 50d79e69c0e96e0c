//! What operators and producers do with messages that are stored.

use std::time::Duration;

use futures_util::{Stream, TryStreamExt as _};

use super::handle::Queue;
use super::{Delay, MessageId, QueueLimits, QueueName};
use crate::driver::{Cancelled, ListPlace, Listed, MessageInfo, MessagePage, PurgeStep, QueueStats, Rescheduled, Rest};
use crate::engine::shared::Shared;
use crate::value::error::{Error, Result};

/// How many messages one step of a purge removes: short enough for a backend to do other work in between.
const STEP: usize = 1000;

/// How many queues one step of a listing asks for.
const PAGE: usize = 1000;

/// How many messages one step of a listing asks for: with their payloads, which may be large.
const LISTED: usize = 100;

impl<T: 'static> Queue<T> {
    /// Removes a message that waits; it will not be delivered. Its id is free again.
    ///
    /// # Errors
    ///
    /// Whatever the driver reports.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may leave the message removed or not. This holds for all methods that change something.
    pub async fn cancel(&self, id: &MessageId) -> Result<Cancelled> {
        self.call("cancel", self.driver().cancel(self.name(), id)).await
    }

    /// Makes a message that waits due `delay` from now, sooner or later than before.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) when the delay is too long; whatever the
    /// driver reports.
    pub async fn reschedule(&self, id: &MessageId, delay: Duration) -> Result<Rescheduled> {
        let delay = self.checked_delay(delay, "reschedule")?;
        self.call("reschedule", self.driver().reschedule(self.name(), id, delay)).await
    }

    /// Looks at a message without changing it; `None` when it is not stored (any more).
    ///
    /// # Errors
    ///
    /// Whatever the driver reports.
    pub async fn get(&self, id: &MessageId) -> Result<Option<MessageInfo>> {
        self.call("get", self.driver().get(self.name(), id)).await
    }

    /// Messages that wait or are in flight, in the order of their due times or the ends of their leases, without changing
    /// them; those whose key is in flight may come last. Asked for page by page, as the stream is polled: what comes or goes
    /// meanwhile may be missing or be listed twice. A failure is the last item.
    pub fn list(&self, which: Listed) -> impl Stream<Item = Result<MessageInfo>> + use<T> {
        let pages = futures_util::stream::try_unfold(Some((self.clone(), None)), move |place| async move {
            let Some((queue, from)) = place else { return Ok::<_, Error>(None) };
            let MessagePage { messages, next } = queue.list_page(which, from, LISTED).await?;
            let rest = next.map(|next| (queue, Some(next)));
            Ok(Some((futures_util::stream::iter(messages.into_iter().map(Ok)), rest)))
        });
        pages.try_flatten()
    }

    /// One page of [`list`](Queue::list): up to `max` messages, and no more than the driver's
    /// [`batch`](crate::driver::QueueCapabilities::batch), from the place that the page before named.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) when `max` is zero; whatever the driver reports.
    pub async fn list_page(&self, which: Listed, from: Option<ListPlace>, max: usize) -> Result<MessagePage> {
        let max = max.min(self.pump.caps.batch);
        self.pump.caps.check_batch(max).map_err(|error| self.told(error, "list"))?;
        self.call("list", self.driver().list(self.name(), which, from, max)).await
    }

    /// The message that is the first in line, due or not, without changing it.
    ///
    /// # Errors
    ///
    /// Whatever the driver reports.
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

    /// Sets how much the queue hands out, to all clients together, until it is set again; [`QueueLimits::none`] ends it.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tenure_core::{Queue, QueueLimits, Rate};
    /// # async fn example(queue: Queue<String>) -> tenure_core::Result<()> {
    /// queue.limit(QueueLimits::none().in_flight(10)?.rate(Rate::new(100, Duration::from_secs(1))?)).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Whatever the driver reports.
    pub async fn limit(&self, limits: QueueLimits) -> Result<()> {
        self.call("limit", self.driver().limit(self.name(), &limits)).await
    }

    /// Counts, lag and the next due time.
    ///
    /// # Errors
    ///
    /// Whatever the driver reports.
    pub async fn stats(&self) -> Result<QueueStats> {
        self.call("stats", self.driver().stats(self.name())).await
    }

    /// Stops deliveries, for all clients, until [`resume`](Queue::resume). Settlements and pushes go on.
    ///
    /// # Errors
    ///
    /// Whatever the driver reports.
    pub async fn pause(&self) -> Result<()> {
        self.call("pause", self.driver().pause(self.name())).await
    }

    /// Ends a pause.
    ///
    /// # Errors
    ///
    /// Whatever the driver reports.
    pub async fn resume(&self) -> Result<()> {
        self.call("resume", self.driver().resume(self.name())).await
    }

    /// Removes all messages that wait when it begins; tells how many. Those in flight and the dead letters stay. Done in
    /// steps, so that messages that are pushed or rescheduled meanwhile may stay or go; it ends however many these are.
    ///
    /// # Errors
    ///
    /// Whatever the driver reports.
    pub async fn purge(&self) -> Result<u64> {
        let (mut removed, mut from) = (0, None);
        loop {
            let PurgeStep { removed: more, next } =
                self.call("purge", self.driver().purge(self.name(), STEP, from)).await?;
            removed += more;
            if next.is_none() {
                return Ok(removed);
            }
            from = next;
        }
    }

    pub(super) fn checked_delay(&self, delay: Duration, what: &'static str) -> Result<Delay> {
        let checked = Delay::new(delay).and_then(|delay| self.pump.caps.check_delay(delay).map(|()| delay));
        checked.map_err(|error| self.told(error, what))
    }
}

/// All queues of the backend that hold a message, or are paused or limited.
pub(crate) async fn list_queues(shared: &Shared) -> Result<Vec<QueueName>> {
    shared.ensure_open()?;
    let driver = super::registry::driver(shared)?;
    let mut all: Vec<QueueName> = Vec::new();
    loop {
        let after = all.last().cloned();
        let page = super::bounded(shared.config.op_timeout, driver.list_queues(after, PAGE)).await?;
        let none = page.queues.is_empty();
        all.extend(page.queues);
        if page.rest == Rest::None || none {
            return Ok(all);
        }
    }
}
