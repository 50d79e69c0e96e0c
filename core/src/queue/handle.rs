//! A handle on one queue.

use std::sync::Arc;
use std::time::Duration;

use futures_util::Stream;

use super::QueueName;
use super::delivery::Delivery;
use super::message::Codec;
use crate::driver::{DelayQueue, QueueCapabilities, Settled};
use crate::queue::fetcher::{Fetcher, InFlight, Patience};
use crate::runtime::bounded;
use crate::value::error::{Error, ErrorKind, Result};
use crate::value::queue::{Attempts, Lease};
use crate::value::time::LeaseInstant;

/// The pause of those who go on after a failed request for messages.
pub(super) const AFTER_FAILURE: Duration = Duration::from_secs(1);

/// A handle on one delay queue of messages `T`. Cheap to make and to clone; clones with other settings are the same
/// queue.
///
/// A message is delivered once it is due, to one receiver at a time, until somebody settles it: **at least once**. Make
/// handlers idempotent, or let the resource they change check [`Delivery::fence`].
///
/// All receivers of one client share one connection's worth of waiting: it sleeps until the next message is due, and
/// is woken when a sooner one arrives.
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

    /// For how long a received message is hidden from others: whole milliseconds, [`Lease::MIN`] to [`Lease::MAX`].
    /// Default: 30 s. Checked when messages are asked for.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// How often a message that is pushed through this handle may be delivered before it is dead: 1 to
    /// [`Attempts::MAX`]. Default: 10. Checked when messages are pushed.
    #[must_use]
    pub fn max_attempts(mut self, most: u32) -> Self {
        self.attempts = most;
        self
    }

    /// The name of the queue.
    #[must_use]
    pub fn name(&self) -> &QueueName {
        &self.fetcher.remote.name
    }

    /// What the driver's queues promise.
    #[must_use]
    pub fn capabilities(&self) -> QueueCapabilities {
        self.fetcher.remote.caps
    }

    /// Waits for a message.
    ///
    /// An outage of the backend fails the call at its start. Once the backend has answered, outages of any length are
    /// waited out; an error that is not [transient](crate::Error::is_transient) ends the wait at any time, and so does a
    /// panic in the driver. A paused queue is waited for.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) and
    /// [`ErrorKind::Closed`](crate::ErrorKind::Closed); whatever the driver reports, as said above;
    /// [`ErrorKind::Protocol`](crate::ErrorKind::Protocol) when the driver panicked.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing: a message that was handed out for it goes to another receiver of this
    /// client, or is returned to the queue at once, and its attempt is not counted. This holds for all ways to receive.
    pub async fn receive(&self) -> Result<Delivery<T>> {
        loop {
            let claims = self.claims(1, Patience::Unlimited).await?;
            if let Some(claim) = claims.into_iter().next() {
                return Ok(self.delivery(claim));
            }
        }
    }

    /// A message, if one is due now. Never waits for one.
    ///
    /// # Errors
    ///
    /// As [`Queue::receive`].
    ///
    /// # Cancel safety
    ///
    /// As [`Queue::receive`].
    pub async fn try_receive(&self) -> Result<Option<Delivery<T>>> {
        Ok(self.try_receive_many(1).await?.pop())
    }

    /// Up to `max` messages, if any are due now, in the order of their due times. Never waits for one.
    ///
    /// # Errors
    ///
    /// As [`Queue::receive`]; zero is an [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument).
    ///
    /// # Cancel safety
    ///
    /// As [`Queue::receive`].
    pub async fn try_receive_many(&self, max: usize) -> Result<Vec<Delivery<T>>> {
        let claims = self.claims(max, Patience::Once).await?;
        Ok(claims.into_iter().map(|claim| self.delivery(claim)).collect())
    }

    /// Waits for a message for at most `most`; `None` when that has passed. Zero is one attempt.
    ///
    /// # Errors
    ///
    /// As [`Queue::receive`].
    ///
    /// # Cancel safety
    ///
    /// As [`Queue::receive`].
    pub async fn receive_within(&self, most: Duration) -> Result<Option<Delivery<T>>> {
        if most.is_zero() {
            return self.try_receive().await;
        }
        match tokio::time::timeout(most, self.receive()).await {
            Ok(received) => received.map(Some),
            Err(_) => Ok(None),
        }
    }

    /// Waits for messages: at least one, up to `max`, in the order of their due times.
    ///
    /// # Errors
    ///
    /// As [`Queue::try_receive_many`].
    ///
    /// # Cancel safety
    ///
    /// As [`Queue::receive`].
    pub async fn receive_many(&self, max: usize) -> Result<Vec<Delivery<T>>> {
        loop {
            let claims = self.claims(max, Patience::Unlimited).await?;
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
            return Err(self.told(error, "settle"));
        }
        InFlight::ack_all(&self.fetcher, claims).await
    }

    /// Messages as they become due, one at a time; the next is asked for when it is polled for.
    ///
    /// Outages are waited out, also at the start, and asked after once a second. An error that is not
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

    async fn claims(&self, max: usize, patience: Patience) -> Result<Vec<InFlight>> {
        let asked = async {
            let lease = Lease::new(self.lease)?;
            self.fetcher.remote.caps.check_lease(lease)?;
            self.fetcher.remote.caps.check_batch(max)?;
            loop {
                let mut claims = self.fetcher.demand(max, lease, patience).await?;
                let now = LeaseInstant::now();
                claims.retain(|claim| claim.lasts(now));
                let lasting = claims.len();
                claims.retain_mut(InFlight::is_to_be_handled); // the others are settled in the background
                // Behind occurrences that are passed over there may be something for the caller.
                if !claims.is_empty() || lasting == 0 {
                    return Ok(claims);
                }
            }
        };
        asked.await.map_err(|error| self.told(error, "receive"))
    }

    fn delivery(&self, claim: InFlight) -> Delivery<T> {
        Delivery::new(claim, &*self.codec)
    }

    pub(super) fn driver(&self) -> &dyn DelayQueue {
        &*self.fetcher.remote.driver
    }

    /// One request of this handle, bounded and with its circumstances in the error.
    pub(super) async fn call<R>(&self, what: &'static str, call: impl Future<Output = Result<R>>) -> Result<R> {
        self.fetcher.remote.shared.ensure_open().map_err(|error| self.told(error, what))?;
        bounded(self.fetcher.remote.shared.config.op_timeout, call).await.map_err(|error| self.told(error, what))
    }

    pub(super) fn told(&self, error: Error, operation: &'static str) -> Error {
        self.fetcher.remote.told(error, operation)
    }
}
