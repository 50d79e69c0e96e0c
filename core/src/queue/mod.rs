//! Delay queues: values, handles, deliveries and workers.
//!
//! | here | what |
//! |---|---|
//! | [`Queue`], [`Message`], [`Push`], [`PushMany`] | storing messages, and waiting for them |
//! | [`Delivery`] | one received message: settle it, extend it, watch for its loss |
//! | [`Worker`] | handles messages for you |
//! | [`Recurring`] | a message that is delivered on a schedule |
//! | [`Admin`] | operators' work: looking at messages, pausing, limiting and purging the queue |
//! | [`DeadLetters`] | messages that are not delivered any more |
//!
//! ```
//! # use tenure_core as tenure;
//! # #[cfg(not(feature = "json"))]
//! # fn main() {}
//! # #[cfg(feature = "json")]
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> tenure::Result<()> {
//! # let client = tenure::Client::new(tenure_memory::MemoryDriver::new());
//! use std::time::Duration;
//! use tenure::queue::Queue;
//!
//! let hour = Duration::from_secs(3600);
//! let reminders: Queue<String> = client.queue("reminders")?;
//! reminders.push(&"pay the bill".into()).delay(hour).id("bill/7").await?;
//! assert!(reminders.try_receive().await?.is_none());
//!
//! // In any process: waits until the message is due.
//! let delivery = reminders.receive().await?;
//! assert_eq!(delivery.value().unwrap(), "pay the bill");
//! delivery.ack().await?;
//! # Ok(())
//! # }
//! ```

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
    MessagePage, MessageState, Pushed, QueueCapabilities, QueueStats, Rescheduled, Rest, Settled, Settlement,
};
pub use crate::value::queue::{ConcurrencyKey, MessageId, Payload, QueueLimits, QueueName, Rate, Reason, Recurrence};
pub use admin::{Admin, DeadLetters};
#[cfg(feature = "json")]
pub use message::Json;

pub use delivery::{Delivery, Nack};
pub use handle::Queue;
pub use message::{Bytes, Codec, Message, Text};
pub use parking::OrPark;
pub use push::{Push, PushMany, PushManyError};
pub use recurring::{Ensured, Missed, OccurrenceEnd, Recurring};
pub use worker::{
    Ending, IntoOutcome, Jitter, Job, Outcome, RetryPolicy, Undecodable, Worker, WorkerBuilder, WorkerEvent,
    WorkerStats,
};

pub(crate) use fetcher::Fetchers;

use std::sync::Arc;

use fetcher::Fetcher;
use parking::ParkedWatcher;

use crate::client::Client;
use crate::value::error::Result;

impl Client {
    /// Returns a handle on the delay queue of this name, with messages in JSON. Cheap; does no I/O.
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

    /// Returns a handle on the delay queue of this name, with messages of bytes. Cheap; does no I/O.
    ///
    /// # Errors
    ///
    /// As [`Client::queue_with`].
    pub fn queue_of_bytes(&self, name: impl AsRef<[u8]>) -> Result<Queue<Vec<u8>>> {
        self.queue_with(name, Bytes)
    }

    /// Returns a handle on the delay queue of this name, with messages in your own format. Cheap; does no I/O.
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
