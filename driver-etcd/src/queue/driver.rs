//! The queue trait: turns requests into transactions.

use async_trait::async_trait;
use tenure_core::driver::{
    Cancelled, DeadPage, DeadPlace, DeadSelection, Delay, DelayQueue, Exchanged, Exclusion, Extended, Extension,
    Fencing, ListPlace, Listed, LockTurn, MessageInfo, MessagePage, NewMessage, Next, Parking, PurgePlace, PurgeStep,
    Purged, Pushed, QueueCapabilities, QueuePage, QueueStats, QueueWake, ReceiveRequest, Received, Redriven,
    Rescheduled, Settle, TurnGiven, Watch,
};
use tenure_core::queue::{MessageId, QueueLimits, QueueName};
use tenure_core::{Error, ErrorKind, Result};

use super::entry::BATCH;
use crate::driver::EtcdDriver;

/// The largest payload: what etcd stores, it keeps in memory as well.
const PAYLOAD: usize = 64 * 1024;

#[async_trait]
impl DelayQueue for EtcdDriver {
    fn capabilities(&self) -> QueueCapabilities {
        QueueCapabilities::new(Exclusion::Consensus, Fencing::Strict, QueueWake::Notified)
            .with_clock_error(self.inner.config.clock_error)
            .with_parking(Parking::Attended)
            .with_payload(PAYLOAD)
            .with_batch(BATCH)
            .with_request_bytes(super::push::REQUEST_BYTES)
            .with_dead_letters(self.inner.config.max_dead_letters)
    }

    async fn push(&self, queue: &QueueName, messages: &[NewMessage]) -> Result<Vec<Pushed>> {
        self.inner.push(queue, messages).await
    }

    /// One after the other: etcd has no way to decide on what it has just changed.
    async fn exchange(&self, settles: &[Settle], request: &ReceiveRequest) -> Result<Exchanged> {
        let settled = self.inner.settle(&request.queue, settles).await?;
        if request.max == 0 {
            return Ok(Exchanged::new(settled, Received::nothing(Next::Now)));
        }
        let received = self.inner.receive(request).await;
        // Once settlements are done, nothing about the pair can be promised any more.
        let reported =
            |error: Error| if settles.is_empty() { error } else { error.with_kind(ErrorKind::Indeterminate) };
        Ok(Exchanged::new(settled, received.map_err(reported)?))
    }

    async fn extend(&self, queue: &QueueName, extensions: &[Extension]) -> Result<Vec<Extended>> {
        self.inner.extend(queue, extensions).await
    }

    async fn cancel(&self, queue: &QueueName, id: &MessageId) -> Result<Cancelled> {
        self.inner.cancel(queue, id).await
    }

    async fn reschedule(&self, queue: &QueueName, id: &MessageId, delay: Delay) -> Result<Rescheduled> {
        self.inner.reschedule(queue, id, delay).await
    }

    async fn give_turn(&self, queue: &QueueName, id: &MessageId, turn: &LockTurn) -> Result<TurnGiven> {
        self.inner.give_turn(queue, id, turn).await
    }

    async fn get(&self, queue: &QueueName, id: &MessageId) -> Result<Option<MessageInfo>> {
        self.inner.get(queue, id).await
    }

    async fn list(&self, queue: &QueueName, which: Listed, from: Option<ListPlace>, max: usize) -> Result<MessagePage> {
        self.inner.list_messages(queue, which, from, max).await
    }

    async fn limit(&self, queue: &QueueName, limits: &QueueLimits) -> Result<()> {
        self.inner.limit(queue, limits).await
    }

    async fn stats(&self, queue: &QueueName) -> Result<QueueStats> {
        self.inner.stats(queue).await
    }

    async fn pause(&self, queue: &QueueName) -> Result<()> {
        self.inner.pause(queue).await
    }

    async fn resume(&self, queue: &QueueName) -> Result<()> {
        self.inner.resume(queue).await
    }

    async fn purge(&self, queue: &QueueName, max: usize, from: Option<PurgePlace>) -> Result<PurgeStep> {
        self.inner.purge(queue, max, from).await
    }

    async fn list_queues(&self, after: Option<QueueName>, max: usize) -> Result<QueuePage> {
        self.inner.list(after, max).await
    }

    async fn dead_list(&self, queue: &QueueName, after: Option<DeadPlace>, max: usize) -> Result<DeadPage> {
        self.inner.dead_list(queue, after, max).await
    }

    async fn dead_redrive(&self, queue: &QueueName, which: &DeadSelection, delay: Delay) -> Result<Redriven> {
        self.inner.dead_redrive(queue, which, delay).await
    }

    async fn dead_purge(&self, queue: &QueueName, which: &DeadSelection) -> Result<Purged> {
        self.inner.dead_purge(queue, which).await
    }

    async fn watch(&self, queue: &QueueName) -> Result<Watch> {
        self.inner.signals.listen(queue).await
    }
}
