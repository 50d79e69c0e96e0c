//! Delay queues through the layer.

use std::sync::Arc;

use async_trait::async_trait;
use tenure_core::driver::{
    DelayQueue, Exchanged, Extended, Extension, LockTurn, NewMessage, Pushed, QueueCapabilities, ReceiveRequest,
    Settle, TurnGiven, Watch,
};
use tenure_core::queue::{MessageId, QueueName};
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

    async fn give_turn(&self, queue: &QueueName, id: &MessageId, turn: &LockTurn) -> Result<TurnGiven> {
        send!(self, Op::GiveTurn, queue, |inner| inner.give_turn(&queue, &id, &turn).await, queue, id, turn)
    }

    async fn watch(&self, queue: &QueueName) -> Result<Watch> {
        let answer = send!(self, Op::WatchQueue, queue, |inner| inner.watch(&queue).await, queue);
        answer.map(|inner| pump(self.layer.clone(), inner))
    }
}
