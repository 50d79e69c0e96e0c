//! Delay queues: turns requests into decisions, and decisions into answers.

use async_trait::async_trait;
use tenure_core::driver::{
    Cancelled, DeadPage, DeadPlace, DeadSelection, Delay, DelayQueue, Exchanged, Exclusion, Extended, Extension,
    Fencing, Flow, ListPlace, Listed, LockTurn, MessageInfo, MessagePage, NewMessage, Parking, Payload, PurgePlace,
    PurgeStep, Purged, Pushed, QueueAdmin, QueueCapabilities, QueuePage, QueueStats, QueueWake, ReceiveRequest,
    Redriven, Rescheduled, Settle, TurnGiven, Watch,
};
use tenure_core::queue::{MessageId, QueueLimits, QueueName};
use tenure_core::{Error, ErrorKind, Result};

use super::turn::{QueueRule, decide, list_queues, watch};
use crate::driver::SqliteDriver;
use crate::error::Done;

/// How many messages one request may carry. The number bounds how long a transaction keeps others waiting.
const BATCH: usize = 256;
/// How many bytes.
const REQUEST_BYTES: usize = 2 * 1024 * 1024;

#[async_trait]
impl DelayQueue for SqliteDriver {
    fn capabilities(&self) -> QueueCapabilities {
        QueueCapabilities::new(Exclusion::SingleNode, Fencing::ClockSeeded, QueueWake::Notified)
            .with_parking(Parking::Attended)
            .with_payload(Payload::MAX_LEN)
            .with_batch(BATCH)
            .with_request_bytes(REQUEST_BYTES)
            .with_dead_letters(self.caps().max_dead_letters)
    }

    async fn push(&self, queue: &QueueName, messages: &[NewMessage]) -> Result<Vec<Pushed>> {
        let bytes: usize = messages.iter().map(NewMessage::bytes).sum();
        if bytes > REQUEST_BYTES {
            let text = format!("{bytes} bytes in one push are more than {REQUEST_BYTES}: push fewer messages at once");
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        let messages = messages.to_vec();
        self.decide(queue, move |rule| rule.push(&messages)).await
    }

    async fn exchange(&self, settles: &[Settle], request: &ReceiveRequest) -> Result<Exchanged> {
        let (settles, asked) = (settles.to_vec(), request.clone());
        let watches = request.max > 0 && self.worker().bell()?.queues.is_watched(&request.queue);
        self.worker()
            .ask(move |turn| {
                let exchange = |rule: &mut QueueRule<'_, '_>| {
                    let settled = rule.settle(&settles)?;
                    Ok(Exchanged::new(settled, rule.receive(&asked)?))
                };
                let exchanged = decide(turn, &asked.queue, exchange)?;
                if watches {
                    watch(turn, &asked.queue)?;
                }
                Ok(exchanged)
            })
            .await
    }

    async fn extend(&self, queue: &QueueName, extensions: &[Extension]) -> Result<Vec<Extended>> {
        let asked = extensions.to_vec();
        self.decide(queue, move |rule| rule.extend(&asked)).await
    }

    async fn give_turn(&self, queue: &QueueName, id: &MessageId, turn: &LockTurn) -> Result<TurnGiven> {
        let (id, given) = (id.clone(), turn.clone());
        self.decide(queue, move |rule| rule.give_turn(&id, &given)).await
    }

    async fn watch(&self, queue: &QueueName) -> Result<Watch> {
        let watching = self.worker().bell()?.queues.register(queue);
        let queue = queue.clone();
        self.worker().ask(move |turn| watch(turn, &queue)).await?;
        Ok(watching)
    }
}

#[async_trait]
impl QueueAdmin for SqliteDriver {
    async fn cancel(&self, queue: &QueueName, id: &MessageId) -> Result<Cancelled> {
        let id = id.clone();
        self.decide(queue, move |rule| rule.cancel(&id)).await
    }

    async fn reschedule(&self, queue: &QueueName, id: &MessageId, delay: Delay) -> Result<Rescheduled> {
        let id = id.clone();
        self.decide(queue, move |rule| rule.reschedule(&id, delay)).await
    }

    async fn get(&self, queue: &QueueName, id: &MessageId) -> Result<Option<MessageInfo>> {
        let id = id.clone();
        self.decide(queue, move |rule| rule.get(&id)).await
    }

    async fn list(&self, queue: &QueueName, which: Listed, from: Option<ListPlace>, max: usize) -> Result<MessagePage> {
        self.decide(queue, move |rule| rule.list(which, from, max)).await
    }

    async fn limit(&self, queue: &QueueName, limits: &QueueLimits) -> Result<()> {
        let limits = *limits;
        self.decide(queue, move |rule| rule.limit(limits)).await
    }

    async fn stats(&self, queue: &QueueName) -> Result<QueueStats> {
        self.decide(queue, |rule| rule.stats()).await
    }

    async fn pause(&self, queue: &QueueName) -> Result<()> {
        self.decide(queue, |rule| rule.set_flow(Flow::Paused)).await
    }

    async fn resume(&self, queue: &QueueName) -> Result<()> {
        self.decide(queue, |rule| rule.set_flow(Flow::Running)).await
    }

    async fn purge(&self, queue: &QueueName, max: usize, from: Option<PurgePlace>) -> Result<PurgeStep> {
        self.decide(queue, move |rule| rule.purge(max, from)).await
    }

    async fn list_queues(&self, after: Option<QueueName>, max: usize) -> Result<QueuePage> {
        self.worker().ask(move |turn| list_queues(turn, after.as_ref(), max)).await
    }

    async fn dead_list(&self, queue: &QueueName, after: Option<DeadPlace>, max: usize) -> Result<DeadPage> {
        self.decide(queue, move |rule| rule.dead_list(after, max)).await
    }

    async fn dead_redrive(&self, queue: &QueueName, which: &DeadSelection, delay: Delay) -> Result<Redriven> {
        let which = which.clone();
        self.decide(queue, move |rule| rule.dead_redrive(&which, delay)).await
    }

    async fn dead_purge(&self, queue: &QueueName, which: &DeadSelection) -> Result<Purged> {
        let which = which.clone();
        self.decide(queue, move |rule| rule.dead_purge(&which)).await
    }
}

impl SqliteDriver {
    /// Does one request about a queue in a transaction.
    async fn decide<T: Send + 'static>(
        &self,
        queue: &QueueName,
        decision: impl FnOnce(&mut QueueRule<'_, '_>) -> Done<T> + Send + 'static,
    ) -> Result<T> {
        let queue = queue.clone();
        self.worker().ask(move |turn| decide(turn, &queue, decision)).await
    }
}
