//! A handle on one queue.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::Stream;
use futures_util::future::BoxFuture;

use super::QueueName;
use super::delivery::Delivery;
use super::message::Codec;
use crate::driver::{QueueAdmin, QueueCapabilities, Settled};
use crate::queue::fetcher::{Fetcher, InFlight, Patience};
use crate::queue::recurring::schedule::OccurrenceEnd;
use crate::queue::requests::admin;
use crate::runtime::bounded;
use crate::value::error::{Error, ErrorKind, Result};
use crate::value::queue::{Attempts, Lease};
use crate::value::time::LeaseInstant;

/// The pause of receivers that continue after a failed request for messages.
pub(super) const AFTER_FAILURE: Duration = Duration::from_secs(1);

/// A handle on one delay queue of messages `T`. Cheap to make and to clone; clones with other settings are the same
/// queue.
///
/// A due message is delivered to one receiver at a time, until it is settled: **at least once**. Make handlers
/// idempotent, or let the resource they change check [`Delivery::fence`].
///
/// All receivers of one client wait together, with the cost of one waiter: the client sleeps until the next message is
/// due, and is woken when a sooner one arrives.
#[derive(Debug)]
pub struct Queue<T> {
    pub(super) fetcher: Arc<Fetcher>,
    pub(super) codec: Arc<dyn Codec<T>>,
    pub(super) lease: Duration,
    pub(super) attempts: u32,
}

impl<T> Clone for Queue<T> {
    fn clone(&self) -> Self {
        let (fetcher, codec) = (Arc::clone(&self.fetcher), Arc::clone(&self.codec));
        Self { fetcher, codec, lease: self.lease, attempts: self.attempts }
    }
}

impl<T: 'static> Queue<T> {
    pub(super) fn new(fetcher: Arc<Fetcher>, codec: Arc<dyn Codec<T>>) -> Self {
        Self { fetcher, codec, lease: Lease::DEFAULT.get(), attempts: Attempts::DEFAULT.get() }
    }

    /// Sets the time that a received message is hidden from others: whole milliseconds, [`Lease::MIN`] to
    /// [`Lease::MAX`]. Default: 30 s. Checked when messages are requested.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Sets the most deliveries of a message that is pushed through this handle; after them it is dead: 1 to
    /// [`Attempts::MAX`]. Default: 10. Checked when messages are pushed.
    #[must_use]
    pub fn max_attempts(mut self, most: u32) -> Self {
        self.attempts = most;
        self
    }

    /// Returns the name of the queue.
    #[must_use]
    pub fn name(&self) -> &QueueName {
        &self.fetcher.remote.name
    }

    /// Returns the capabilities of the driver's queues.
    #[must_use]
    pub fn capabilities(&self) -> QueueCapabilities {
        self.fetcher.remote.caps
    }

    /// Waits for a message.
    ///
    /// An outage of the backend at the start fails the call. After the first answer of the backend, the call waits
    /// through outages of any length; an error that is not [transient](crate::Error::is_transient) ends the wait at any
    /// time, and so does a panic in the driver. The call waits while the queue is paused.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) and
    /// [`ErrorKind::Closed`](crate::ErrorKind::Closed); otherwise the driver's error, as described above;
    /// [`ErrorKind::Protocol`](crate::ErrorKind::Protocol) when the driver panicked.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing: a message that was received for it goes to another receiver of this client,
    /// or is returned to the queue at once, and its attempt is not counted. This holds for all ways to receive.
    pub async fn receive(&self) -> Result<Delivery<T>> {
        loop {
            let claims = self.claims(1, Patience::Unlimited, |_, _, _| ()).await?;
            if let Some(claim) = claims.into_iter().next() {
                return Ok(self.delivery(claim));
            }
        }
    }

    /// Returns a message, if one is due now. Never waits for one.
    ///
    /// # Errors
    ///
    /// As [`Queue::receive`].
    ///
    /// # Cancel safety
    ///
    /// As [`Queue::receive`].
    pub async fn try_receive(&self) -> Result<Option<Delivery<T>>> {
        Ok(self.receive_many(1, Duration::ZERO).await?.pop())
    }

    /// Waits for a message for at most `most`; returns `None` after that. Zero is one attempt.
    ///
    /// # Errors
    ///
    /// As [`Queue::receive`].
    ///
    /// # Cancel safety
    ///
    /// As [`Queue::receive`].
    pub async fn receive_within(&self, most: Duration) -> Result<Option<Delivery<T>>> {
        Ok(self.receive_many(1, most).await?.pop())
    }

    /// Waits for the first message for at most `most`; returns all that are due then, up to `max`, in the order of
    /// their due times. Returns none after that time. Zero is one attempt; [`Duration::MAX`] waits without an end.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # async fn example(queue: tenure_core::queue::Queue<String>) -> tenure_core::Result<()> {
    /// let batch = queue.receive_many(100, Duration::from_secs(20)).await?;
    /// queue.ack_many(batch).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Queue::receive`]; a `max` of zero is an [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument).
    ///
    /// # Cancel safety
    ///
    /// As [`Queue::receive`].
    pub async fn receive_many(&self, max: usize, most: Duration) -> Result<Vec<Delivery<T>>> {
        if most.is_zero() {
            let claims = self.claims(max, Patience::Once, |_, _, _| ()).await?;
            return Ok(claims.into_iter().map(|claim| self.delivery(claim)).collect());
        }
        let received = tokio::time::timeout(most, self.receive_noting(max, |_, _, _| ())).await;
        received.unwrap_or_else(|_| Ok(Vec::new()))
    }

    /// Waits for messages without an end: at least one, up to `max`. Calls `note` with each occurrence that is passed
    /// over, and its time.
    pub(super) async fn receive_noting(
        &self,
        max: usize,
        mut note: impl FnMut(&InFlight, SystemTime, OccurrenceEnd),
    ) -> Result<Vec<Delivery<T>>> {
        loop {
            let claims = self.claims(max, Patience::Unlimited, &mut note).await?;
            if !claims.is_empty() {
                return Ok(claims.into_iter().map(|claim| self.delivery(claim)).collect());
            }
        }
    }

    /// Acknowledges deliveries of this queue, in as few requests as they fit into: one answer for each, in order.
    ///
    /// # Errors
    ///
    /// As [`Delivery::ack`], the first failure of all; [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument),
    /// before anything is sent, when one is of another queue or client. The deliveries are then dropped.
    ///
    /// # Cancel safety
    ///
    /// As [`Delivery::ack`].
    pub async fn ack_many(&self, deliveries: impl IntoIterator<Item = Delivery<T>>) -> Result<Vec<Settled>> {
        let claims: Vec<InFlight> = deliveries.into_iter().map(Delivery::into_claim).collect();
        if claims.iter().any(|claim| !Arc::ptr_eq(&claim.fetcher, &self.fetcher)) {
            let error = Error::new(ErrorKind::InvalidArgument, "a delivery is of another queue or client");
            return Err(self.during(error, "settle"));
        }
        InFlight::ack_all(&self.fetcher, claims).await
    }

    /// Returns messages as they become due, one at a time; each poll requests the next.
    ///
    /// The stream waits through outages, also at the start, and retries once a second. An error that is not
    /// [transient](crate::Error::is_transient) is the last item.
    pub fn stream(&self) -> impl Stream<Item = Result<Delivery<T>>> + use<T>
    where
        T: 'static,
    {
        futures_util::stream::unfold(Some(self.clone()), |queue| async move {
            let queue = queue?;
            let received = queue.receive_in_the_end().await;
            let next = received.is_ok().then_some(queue);
            Some((received, next))
        })
    }

    /// Waits for a message, through outages.
    async fn receive_in_the_end(&self) -> Result<Delivery<T>> {
        loop {
            match self.receive().await {
                Err(error) if error.is_transient() => tokio::time::sleep(AFTER_FAILURE).await,
                received => return received,
            }
        }
    }

    async fn claims(
        &self,
        max: usize,
        patience: Patience,
        mut note: impl FnMut(&InFlight, SystemTime, OccurrenceEnd),
    ) -> Result<Vec<InFlight>> {
        let asked = async {
            let lease = Lease::new(self.lease)?;
            self.fetcher.remote.caps.check_lease(lease)?;
            self.fetcher.remote.caps.check_batch(max)?;
            loop {
                let mut claims = self.fetcher.demand(max, lease, patience).await?;
                let now = LeaseInstant::now();
                claims.retain(|claim| claim.lasts(now));
                let lasting = claims.len();
                claims.retain_mut(|claim| {
                    let handled = claim.is_to_be_handled(); // the others are settled in the background
                    if let Some((time, how)) = claim.passed_over() {
                        note(claim, time, how);
                    }
                    handled
                });
                // Behind occurrences that are passed over there may be something for the caller.
                if !claims.is_empty() || lasting == 0 {
                    return Ok(claims);
                }
            }
        };
        asked.await.map_err(|error| self.during(error, "receive"))
    }

    fn delivery(&self, claim: InFlight) -> Delivery<T> {
        Delivery::new(claim, &*self.codec)
    }

    /// Sends one request about stored messages, with a time limit, and adds the operation and name to its error.
    pub(super) async fn operate<'a, R>(
        &'a self,
        what: &'static str,
        call: impl FnOnce(&'a dyn QueueAdmin) -> BoxFuture<'a, Result<R>>,
    ) -> Result<R> {
        let shared = &self.fetcher.remote.shared;
        let asked = async {
            shared.ensure_open()?;
            bounded(shared.config.op_timeout, call(&**admin(shared)?)).await
        };
        asked.await.map_err(|error| self.during(error, what))
    }

    pub(super) fn during(&self, error: Error, operation: &'static str) -> Error {
        self.fetcher.remote.during(error, operation)
    }
}
