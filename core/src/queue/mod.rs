//! Delay queues: values, handles, deliveries and workers.
//!
//! | here | what |
//! |---|---|
//! | [`Queue`], [`Message`], [`Push`], [`PushMany`] | storing messages, and waiting for them |
//! | [`Delivery`] | one message in hand: settle it, extend it, learn of its loss |
//! | [`Worker`] | handles messages for you |
//! | [`Recurring`] | a message that comes again and again |
//! | [`DeadLetters`] | messages that are delivered no more |

mod attend;
mod claim;
mod codec;
mod dead;
mod delivery;
mod extending;
mod handle;
mod message;
mod operate;
mod parked;
mod pump;
mod push;
mod recurring;
mod registry;
mod run;
mod together;
mod wall;
mod worker;

pub use crate::value::limits::{Attempts, Delay, Lease, Payload};
pub use crate::value::limits::{QueueLimits, Rate};
pub use crate::value::queue_name::{ConcurrencyKey, MessageId, QueueName, Reason, Recurrence};
#[cfg(feature = "json")]
pub use codec::Json;
pub use codec::{Bytes, Codec, Text};
pub use dead::DeadLetters;
pub use delivery::Delivery;
pub use handle::Queue;
pub use message::Message;
pub use parked::OrPark;
pub use push::{Push, PushMany, PushManyError};
pub use recurring::{Ensured, Missed, OccurrenceEnd, Recurring};
pub use worker::{
    Ending, IntoOutcome, Jitter, Job, Outcome, RetryPolicy, Worker, WorkerBuilder, WorkerEvent, WorkerStats,
};

use crate::request::bounded;
pub(crate) use operate::list_queues;
pub(crate) use registry::Pumps;
