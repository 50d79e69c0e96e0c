//! Delay queues: requests to decisions, decisions to answers.

use std::convert::Infallible;

use async_trait::async_trait;
use tenure_core::driver::{
    Cancelled, DeadPage, DeadPlace, DeadSelection, Delay, DelayQueue, Exchanged, Exclusion, Extended, Extension,
    Fencing, Flow, ListPlace, Listed, LockTurn, MessageInfo, MessagePage, NewMessage, Parking, Payload, PurgePlace,
    PurgeStep, Purged, Pushed, QueueAdmin, QueueCapabilities, QueuePage, QueueStats, QueueWake, ReceiveRequest,
    Redriven, Rescheduled, Settle, TurnGiven, Watch,
};
use tenure_core::queue::{MessageId, QueueLimits, QueueName};
use tenure_core::{Error, ErrorKind, Result};

use super::all::QueueRule;
use super::state::QueueCaps;
use crate::driver::MemoryDriver;
use crate::link::Failure;
use crate::link::Operation;

/// How many messages one request may carry. There is no frame to fill; the number bounds how long the store is busy.
const BATCH: usize = 1000;

#[async_trait]
impl DelayQueue for MemoryDriver {
    fn capabilities(&self) -> QueueCapabilities {
        QueueCapabilities::new(Exclusion::Process, Fencing::Strict, QueueWake::Notified)
            .with_parking(Parking::Attended)
            .with_payload(Payload::MAX_LEN.min(self.caps().queues.request_bytes / 2))
            .with_batch(BATCH)
            .with_request_bytes(self.caps().queues.request_bytes)
            .with_backlog(Some(self.caps().queues.backlog))
            .with_dead_letters(self.caps().queues.dead_letters)
    }

    async fn push(&self, queue: &QueueName, messages: &[NewMessage]) -> Result<Vec<Pushed>> {
        let QueueCaps { backlog: most, request_bytes, .. } = self.caps().queues;
        let bytes: usize = messages.iter().map(NewMessage::bytes).sum();
        if bytes > request_bytes {
            let text = format!("{bytes} bytes in one push are more than {request_bytes}: push fewer messages at once");
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        let messages = messages.to_vec();
        let push = move |rule: &mut QueueRule<'_, '_>| {
            if rule.fits(&messages, most)? { rule.push(&messages).map(Some) } else { Ok(None) }
        };
        let pushed = self.turn(Operation::Push, queue, push).await?;
        let full = || format!("the queue is full: it holds up to {most} messages");
        pushed.ok_or_else(|| Error::new(ErrorKind::LimitReached, full()))
    }

    async fn exchange(&self, settles: &[Settle], request: &ReceiveRequest) -> Result<Exchanged> {
        let (settles, asked) = (settles.to_vec(), request.clone());
        let operation = if asked.max == 0 { Operation::Settle } else { Operation::Receive };
        let exchange = move |rule: &mut QueueRule<'_, '_>| {
            let settled = rule.settle(&settles)?;
            Ok(Exchanged::new(settled, rule.receive(&asked)?))
        };
        self.turn(operation, &request.queue, exchange).await
    }

    async fn extend(&self, queue: &QueueName, extensions: &[Extension]) -> Result<Vec<Extended>> {
        let asked = extensions.to_vec();
        self.turn(Operation::Extend, queue, move |rule| rule.extend(&asked)).await
    }

    async fn give_turn(&self, queue: &QueueName, id: &MessageId, turn: &LockTurn) -> Result<TurnGiven> {
        let (id, given) = (id.clone(), turn.clone());
        self.operate(queue, move |rule| rule.give_turn(&id, &given)).await
    }

    async fn watch(&self, queue: &QueueName) -> Result<Watch> {
        let (link, queue) = (self.link(), queue.clone());
        self.carry(Operation::Watch, move |_| link.watch_queue(&queue)).await.map_err(Failure::error)
    }
}

#[async_trait]
impl QueueAdmin for MemoryDriver {
    async fn cancel(&self, queue: &QueueName, id: &MessageId) -> Result<Cancelled> {
        let id = id.clone();
        self.operate(queue, move |rule| rule.cancel(&id)).await
    }

    async fn reschedule(&self, queue: &QueueName, id: &MessageId, delay: Delay) -> Result<Rescheduled> {
        let id = id.clone();
        self.operate(queue, move |rule| rule.reschedule(&id, delay)).await
    }

    async fn get(&self, queue: &QueueName, id: &MessageId) -> Result<Option<MessageInfo>> {
        let id = id.clone();
        self.operate(queue, move |rule| rule.get(&id)).await
    }

    async fn list(&self, queue: &QueueName, which: Listed, from: Option<ListPlace>, max: usize) -> Result<MessagePage> {
        self.operate(queue, move |rule| rule.list(which, from, max)).await
    }

    async fn limit(&self, queue: &QueueName, limits: &QueueLimits) -> Result<()> {
        let limits = *limits;
        self.operate(queue, move |rule| rule.limit(limits)).await
    }

    async fn stats(&self, queue: &QueueName) -> Result<QueueStats> {
        self.operate(queue, |rule| rule.stats()).await
    }

    async fn pause(&self, queue: &QueueName) -> Result<()> {
        self.operate(queue, |rule| rule.set_flow(Flow::Paused)).await
    }

    async fn resume(&self, queue: &QueueName) -> Result<()> {
        self.operate(queue, |rule| rule.set_flow(Flow::Running)).await
    }

    async fn purge(&self, queue: &QueueName, max: usize, from: Option<PurgePlace>) -> Result<PurgeStep> {
        self.operate(queue, move |rule| rule.purge(max, from)).await
    }

    async fn list_queues(&self, after: Option<QueueName>, max: usize) -> Result<QueuePage> {
        self.carry(Operation::Operate, move |store| store.queues().list(after.as_ref(), max))
            .await
            .map_err(Failure::error)
    }

    async fn dead_list(&self, queue: &QueueName, after: Option<DeadPlace>, max: usize) -> Result<DeadPage> {
        self.operate(queue, move |rule| rule.dead_list(after, max)).await
    }

    async fn dead_redrive(&self, queue: &QueueName, which: &DeadSelection, delay: Delay) -> Result<Redriven> {
        let which = which.clone();
        self.operate(queue, move |rule| rule.dead_redrive(&which, delay)).await
    }

    async fn dead_purge(&self, queue: &QueueName, which: &DeadSelection) -> Result<Purged> {
        let which = which.clone();
        self.operate(queue, move |rule| rule.dead_purge(&which)).await
    }
}

impl MemoryDriver {
    async fn operate<T: Send + 'static>(
        &self,
        queue: &QueueName,
        decision: impl FnOnce(&mut QueueRule<'_, '_>) -> Result<T, Infallible> + Send + 'static,
    ) -> Result<T> {
        self.turn(Operation::Operate, queue, decision).await
    }

    /// Carries one decision over the link.
    async fn turn<T: Send + 'static>(
        &self,
        operation: Operation,
        queue: &QueueName,
        decision: impl FnOnce(&mut QueueRule<'_, '_>) -> Result<T, Infallible> + Send + 'static,
    ) -> Result<T> {
        let queue = queue.clone();
        let apply = move |store: &crate::store::Store| store.decide_queue(&queue, decision);
        self.carry(operation, apply).await.map_err(Failure::error)
    }
}
