//! Delay queues through the layer.

use std::sync::Arc;

use async_trait::async_trait;
use tenure_core::driver::{
    Cancelled, DeadPage, DeadPlace, DeadSelection, Delay, DelayQueue, Exchanged, Extended, Extension, ListPlace,
    Listed, LockTurn, MessageInfo, MessagePage, NewMessage, PurgePlace, PurgeStep, Purged, Pushed, QueueCapabilities,
    QueuePage, QueueStats, ReceiveRequest, Redriven, Rescheduled, Settle, TurnGiven, Watch,
};
use tenure_core::queue::{MessageId, QueueLimits, QueueName};
use tenure_core::{LockName, Result};

use super::locks::pump;
use super::{Answer, FaultLayer, Op};

#[derive(Debug)]
pub(super) struct LayeredQueue {
    inner: Arc<dyn DelayQueue>,
    layer: FaultLayer,
}

impl LayeredQueue {
    pub(super) fn new(inner: Arc<dyn DelayQueue>, layer: FaultLayer) -> Self {
        Self { inner, layer }
    }

    /// Logs a request, sends it, logs the answer.
    async fn send<T, F>(
        &self,
        op: Op,
        queue: &QueueName,
        call: impl Fn(Arc<dyn DelayQueue>) -> F + Send + 'static,
    ) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let name = LockName::new(queue.as_bytes())?;
        let frame = self.layer.begin(op, &name, None);
        let inner = Arc::clone(&self.inner);
        let answer = self.layer.send(op, move || call(Arc::clone(&inner))).await;
        let reported = |error: &tenure_core::Error| Answer::Failed(error.kind());
        self.layer.end(frame, answer.as_ref().map_or_else(reported, |_| Answer::Done));
        answer
    }
}

/// Sends one request with owned copies of its arguments.
macro_rules! send {
    ($self:ident, $op:expr, $queue:expr, |$inner:ident| $call:expr, $($arg:ident),*) => {{
        let target = QueueName::clone($queue);
        $(let $arg = $arg.to_owned();)*
        $self.send($op, &target, move |$inner| {
            $(let $arg = $arg.clone();)*
            async move { $call }
        }).await
    }};
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl DelayQueue for LayeredQueue {
    fn capabilities(&self) -> QueueCapabilities {
        self.inner.capabilities()
    }

    async fn push(&self, queue: &QueueName, messages: &[NewMessage]) -> Result<Vec<Pushed>> {
        send!(self, Op::Push, queue, |inner| inner.push(&queue, &messages).await, queue, messages)
    }

    async fn exchange(&self, settles: &[Settle], request: &ReceiveRequest) -> Result<Exchanged> {
        let op = if request.max == 0 { Op::Settle } else { Op::Receive };
        send!(self, op, &request.queue, |inner| inner.exchange(&settles, &request).await, settles, request)
    }

    async fn extend(&self, queue: &QueueName, extensions: &[Extension]) -> Result<Vec<Extended>> {
        send!(self, Op::Extend, queue, |inner| inner.extend(&queue, &extensions).await, queue, extensions)
    }

    async fn cancel(&self, queue: &QueueName, id: &MessageId) -> Result<Cancelled> {
        send!(self, Op::Operate, queue, |inner| inner.cancel(&queue, &id).await, queue, id)
    }

    async fn reschedule(&self, queue: &QueueName, id: &MessageId, delay: Delay) -> Result<Rescheduled> {
        send!(self, Op::Operate, queue, |inner| inner.reschedule(&queue, &id, delay).await, queue, id)
    }

    async fn give_turn(&self, queue: &QueueName, id: &MessageId, turn: &LockTurn) -> Result<TurnGiven> {
        send!(self, Op::GiveTurn, queue, |inner| inner.give_turn(&queue, &id, &turn).await, queue, id, turn)
    }

    async fn get(&self, queue: &QueueName, id: &MessageId) -> Result<Option<MessageInfo>> {
        send!(self, Op::Operate, queue, |inner| inner.get(&queue, &id).await, queue, id)
    }

    async fn list(&self, queue: &QueueName, which: Listed, from: Option<ListPlace>, max: usize) -> Result<MessagePage> {
        send!(self, Op::Operate, queue, |inner| inner.list(&queue, which, from, max).await, queue)
    }

    async fn limit(&self, queue: &QueueName, limits: &QueueLimits) -> Result<()> {
        send!(self, Op::Operate, queue, |inner| inner.limit(&queue, &limits).await, queue, limits)
    }

    async fn stats(&self, queue: &QueueName) -> Result<QueueStats> {
        send!(self, Op::Operate, queue, |inner| inner.stats(&queue).await, queue)
    }

    async fn pause(&self, queue: &QueueName) -> Result<()> {
        send!(self, Op::Operate, queue, |inner| inner.pause(&queue).await, queue)
    }

    async fn resume(&self, queue: &QueueName) -> Result<()> {
        send!(self, Op::Operate, queue, |inner| inner.resume(&queue).await, queue)
    }

    async fn purge(&self, queue: &QueueName, max: usize, from: Option<PurgePlace>) -> Result<PurgeStep> {
        send!(self, Op::Operate, queue, |inner| inner.purge(&queue, max, from).await, queue)
    }

    async fn list_queues(&self, after: Option<QueueName>, max: usize) -> Result<QueuePage> {
        self.inner.list_queues(after, max).await
    }

    async fn dead_list(&self, queue: &QueueName, after: Option<DeadPlace>, max: usize) -> Result<DeadPage> {
        send!(self, Op::Operate, queue, |inner| inner.dead_list(&queue, after, max).await, queue)
    }

    async fn dead_redrive(&self, queue: &QueueName, which: &DeadSelection, delay: Delay) -> Result<Redriven> {
        send!(self, Op::Operate, queue, |inner| inner.dead_redrive(&queue, &which, delay).await, queue, which)
    }

    async fn dead_purge(&self, queue: &QueueName, which: &DeadSelection) -> Result<Purged> {
        send!(self, Op::Operate, queue, |inner| inner.dead_purge(&queue, &which).await, queue, which)
    }

    async fn watch(&self, queue: &QueueName) -> Result<Watch> {
        let answer = send!(self, Op::WatchQueue, queue, |inner| inner.watch(&queue).await, queue);
        answer.map(|inner| pump(self.layer.clone(), inner))
    }
}
