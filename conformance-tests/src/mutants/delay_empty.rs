//! Queues where none are declared.

use std::sync::Arc;

use async_trait::async_trait;
use tenure_core::driver::{
    Cancelled, DeadPage, DeadPlace, DeadSelection, Delay, DelayQueue, Exchanged, Exclusion, Extended, Extension,
    Fencing, KeyedConcurrency, ListPlace, Listed, LockTurn, MessageInfo, MessagePage, NewMessage, Payload, PurgePlace,
    PurgeStep, Purged, Pushed, QueueCapabilities, QueuePage, QueueStats, QueueWake, ReceiveRequest, Redriven,
    Rescheduled, Settle, TurnGiven, Watch,
};
use tenure_core::queue::{MessageId, QueueLimits, QueueName};
use tenure_core::{Error, ErrorKind, Result};

use super::twist::Twist;

/// Offers queues that cannot do anything.
pub(super) struct Offered;

impl Twist for Offered {
    fn queue(&self, _honest: Option<Arc<dyn DelayQueue>>) -> Option<Arc<dyn DelayQueue>> {
        Some(Arc::new(Empty))
    }
}

#[derive(Debug)]
struct Empty;

fn nothing<T>() -> Result<T> {
    Err(Error::new(ErrorKind::Unsupported, "there is nothing behind this queue"))
}

#[async_trait]
impl DelayQueue for Empty {
    fn capabilities(&self) -> QueueCapabilities {
        QueueCapabilities::new(Exclusion::Process, Fencing::Strict, QueueWake::Poll)
            .with_keys(KeyedConcurrency::None)
            .with_request_bytes(Payload::DEFAULT_CAP)
            .with_dead_letters(0)
    }

    async fn push(&self, _queue: &QueueName, _messages: &[NewMessage]) -> Result<Vec<Pushed>> {
        nothing()
    }

    async fn exchange(&self, _settles: &[Settle], _request: &ReceiveRequest) -> Result<Exchanged> {
        nothing()
    }

    async fn extend(&self, _queue: &QueueName, _extensions: &[Extension]) -> Result<Vec<Extended>> {
        nothing()
    }

    async fn cancel(&self, _queue: &QueueName, _id: &MessageId) -> Result<Cancelled> {
        nothing()
    }

    async fn reschedule(&self, _queue: &QueueName, _id: &MessageId, _delay: Delay) -> Result<Rescheduled> {
        nothing()
    }

    async fn give_turn(&self, _queue: &QueueName, _id: &MessageId, _turn: &LockTurn) -> Result<TurnGiven> {
        nothing()
    }

    async fn get(&self, _queue: &QueueName, _id: &MessageId) -> Result<Option<MessageInfo>> {
        nothing()
    }

    async fn list(
        &self,
        _queue: &QueueName,
        _which: Listed,
        _from: Option<ListPlace>,
        _max: usize,
    ) -> Result<MessagePage> {
        nothing()
    }

    async fn limit(&self, _queue: &QueueName, _limits: &QueueLimits) -> Result<()> {
        nothing()
    }

    async fn stats(&self, _queue: &QueueName) -> Result<QueueStats> {
        nothing()
    }

    async fn pause(&self, _queue: &QueueName) -> Result<()> {
        nothing()
    }

    async fn resume(&self, _queue: &QueueName) -> Result<()> {
        nothing()
    }

    async fn purge(&self, _queue: &QueueName, _max: usize, _from: Option<PurgePlace>) -> Result<PurgeStep> {
        nothing()
    }

    async fn list_queues(&self, _after: Option<QueueName>, _max: usize) -> Result<QueuePage> {
        nothing()
    }

    async fn dead_list(&self, _queue: &QueueName, _after: Option<DeadPlace>, _max: usize) -> Result<DeadPage> {
        nothing()
    }

    async fn dead_redrive(&self, _queue: &QueueName, _which: &DeadSelection, _delay: Delay) -> Result<Redriven> {
        nothing()
    }

    async fn dead_purge(&self, _queue: &QueueName, _which: &DeadSelection) -> Result<Purged> {
        nothing()
    }

    async fn watch(&self, _queue: &QueueName) -> Result<Watch> {
        nothing()
    }
}
