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

pub(crate) use admin::list_queues;
pub(crate) use exchange::run as run_fetcher;
pub(crate) use fetcher::Fetcher;
pub(crate) use parking::ParkedWatcher;
pub(crate) use requests::driver as queue_driver;
