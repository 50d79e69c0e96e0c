//! Delay queues: values, handles, deliveries and workers.
//!
//! | here | what |
//! |---|---|
//! | [`Queue`], [`Message`], [`Push`], [`PushMany`] | storing messages, and waiting for them |
//! | [`Delivery`] | one message in hand: settle it, extend it, learn of its loss |
//! | [`Worker`] | handles messages for you |
//! | [`Recurring`] | a message that comes again and again |
//! | [`DeadLetters`] | messages that are delivered no more |

mod admin;
mod delivery;
mod exchange;
mod fetcher;
mod handle;
mod message;
mod parking;
mod push;
mod recurring;
mod requests;
mod worker;

pub use crate::driver::{
    Cancelled, Cause, DeadCause, DeadLetter, DeadPage, DeadPlace, Flow, IfKnown, ListPlace, Listed, MessageInfo,
    MessagePage, MessageState, Pushed, QueueCapabilities, QueueStats, Rescheduled, Settled, Settlement,
};
pub use crate::value::queue::{ConcurrencyKey, MessageId, Payload, QueueLimits, QueueName, Rate, Reason, Recurrence};
pub use admin::DeadLetters;
#[cfg(feature = "json")]
pub use message::Json;

pub use delivery::Delivery;
pub use handle::Queue;
pub use message::{Bytes, Codec, Message, Text};
pub use parking::OrPark;
pub use push::{Push, PushMany, PushManyError};
pub use recurring::{Ensured, Missed, OccurrenceEnd, Recurring};
pub use worker::{
    Ending, IntoOutcome, Jitter, Job, Outcome, RetryPolicy, Worker, WorkerBuilder, WorkerEvent, WorkerStats,
};

pub(crate) use fetcher::Fetchers;

use std::sync::Arc;

use fetcher::Fetcher;
use parking::ParkedWatcher;

use crate::client::Client;
use crate::value::error::Result;

impl Client {
    /// A handle on the delay queue of this name, with messages in JSON. Cheap; does no I/O.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) when the name is empty or too long;
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) when the driver has no delay queues.
    #[cfg(feature = "json")]
    pub fn queue<T>(&self, name: impl AsRef<[u8]>) -> Result<Queue<T>>
    where
        T: serde::Serialize + serde::de::DeserializeOwned + 'static,
    {
        self.queue_with(name, Json)
    }

    /// A handle on the delay queue of this name, with messages of bytes. Cheap; does no I/O.
    ///
    /// # Errors
    ///
    /// As [`Client::queue_with`].
    pub fn queue_of_bytes(&self, name: impl AsRef<[u8]>) -> Result<Queue<Vec<u8>>> {
        self.queue_with(name, Bytes)
    }

    /// A handle on the delay queue of this name, with messages in a form of your own. Cheap; does no I/O.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) when the name is empty or too long;
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) when the driver has no delay queues.
    pub fn queue_with<T: 'static>(&self, name: impl AsRef<[u8]>, codec: impl Codec<T>) -> Result<Queue<T>> {
        let make = |name| {
            let driver = Arc::clone(requests::driver(self.shared())?);
            let parked = self.fetchers.parked(|| Arc::<ParkedWatcher>::default());
            Ok(Fetcher::new(parked, Arc::clone(&self.local_queues), driver, name, exchange::run))
        };
        let fetcher = self.fetchers.get(QueueName::new(name)?, make)?;
        Ok(Queue::new(fetcher, Arc::new(codec)))
    }
}
