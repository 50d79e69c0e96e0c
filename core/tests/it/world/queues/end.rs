//! The link, as the engine is given it for queues.

use std::future::Future;
use std::sync::Arc;

use async_trait::async_trait;
use tenure_core::Result;
use tenure_core::driver::{
    Cancelled, DeadPage, DeadPlace, DeadSelection, Delay, DelayQueue, Exchanged, Extended, Extension, ListPlace,
    Listed, LockTurn, MessageInfo, MessagePage, NewMessage, PurgePlace, PurgeStep, Purged, Pushed, QueueAdmin,
    QueueCapabilities, QueuePage, QueueStats, ReceiveRequest, Redriven, Rescheduled, Settle, TurnGiven, WakeHandle,
    Watch,
};
use tenure_core::queue::{MessageId, QueueLimits, QueueName};

use super::store::{Flaw, QueueStore};
use crate::world::link::{Link, pass};

#[derive(Debug)]
pub(crate) struct QueueEnd {
    link: Arc<Link>,
    store: QueueStore,
}

impl QueueEnd {
    pub(crate) fn new(link: &Arc<Link>, store: QueueStore) -> Self {
        Self { link: Arc::clone(link), store }
    }

    async fn carry<T: Send + 'static, F>(
        &self,
        what: &'static str,
        call: impl Fn(QueueStore) -> F + Send + Sync + 'static,
    ) -> Result<T>
    where
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let store = self.store.clone();
        self.link.carry(what, move || call(store.clone())).await
    }
}

#[async_trait]
impl DelayQueue for QueueEnd {
    fn capabilities(&self) -> QueueCapabilities {
        self.store.capabilities()
    }

    async fn push(&self, queue: &QueueName, messages: &[NewMessage]) -> Result<Vec<Pushed>> {
        let asked = Arc::new((queue.clone(), messages.to_vec()));
        self.carry("push", move |store| {
            let asked = Arc::clone(&asked);
            async move { store.push(&asked.0, &asked.1).await }
        })
        .await
    }

    async fn exchange(&self, settles: &[Settle], request: &ReceiveRequest) -> Result<Exchanged> {
        let asked = Arc::new((settles.to_vec(), request.clone()));
        let what = match (settles, request.max) {
            ([], _) => "receive",
            (_, 0) => "settle",
            _ => "settle and receive",
        };
        self.carry(what, move |store| {
            let asked = Arc::clone(&asked);
            async move { store.exchange(&asked.0, &asked.1).await }
        })
        .await
    }

    async fn extend(&self, queue: &QueueName, extensions: &[Extension]) -> Result<Vec<Extended>> {
        let asked = Arc::new((queue.clone(), extensions.to_vec()));
        self.carry("extend", move |store| {
            let asked = Arc::clone(&asked);
            async move { store.extend(&asked.0, &asked.1).await }
        })
        .await
    }

    async fn watch(&self, queue: &QueueName) -> Result<Watch> {
        let queue = queue.clone();
        let watch = self.carry("watch", move |store| {
            let queue = queue.clone();
            async move { store.memory().watch(&queue).await }
        });
        let (there, (ear, here)) = (watch.await?, Watch::channel());
        let number = self.link.hears(ear.clone());
        let link = Arc::clone(&self.link);
        let leading = tokio::spawn(lead(Arc::clone(&link), self.store.clone(), there, ear));
        Ok(here.on_drop(move || {
            leading.abort();
            link.hears_no_more(number);
        }))
    }

    async fn give_turn(&self, queue: &QueueName, id: &MessageId, turn: &LockTurn) -> Result<TurnGiven> {
        let asked = Arc::new((queue.clone(), id.clone(), turn.clone()));
        let store = self.store.clone();
        self.link
            .carry_once("give a turn", move || {
                let (asked, store) = (Arc::clone(&asked), store.clone());
                async move { store.give_turn(&asked.0, &asked.1, &asked.2).await }
            })
            .await
    }
}

#[async_trait]
impl QueueAdmin for QueueEnd {
    async fn cancel(&self, queue: &QueueName, id: &MessageId) -> Result<Cancelled> {
        let asked = Arc::new((queue.clone(), id.clone()));
        self.carry("cancel", move |store| {
            let asked = Arc::clone(&asked);
            async move { store.cancel(&asked.0, &asked.1).await }
        })
        .await
    }

    async fn reschedule(&self, queue: &QueueName, id: &MessageId, delay: Delay) -> Result<Rescheduled> {
        let asked = Arc::new((queue.clone(), id.clone()));
        self.carry("reschedule", move |store| {
            let asked = Arc::clone(&asked);
            async move { store.reschedule(&asked.0, &asked.1, delay).await }
        })
        .await
    }

    // What operators do with a whole queue is not part of the schedules.

    async fn get(&self, queue: &QueueName, id: &MessageId) -> Result<Option<MessageInfo>> {
        self.store.memory().get(queue, id).await
    }

    async fn list(&self, queue: &QueueName, which: Listed, from: Option<ListPlace>, max: usize) -> Result<MessagePage> {
        self.store.memory().list(queue, which, from, max).await
    }

    async fn limit(&self, queue: &QueueName, limits: &QueueLimits) -> Result<()> {
        self.store.memory().limit(queue, limits).await
    }

    async fn stats(&self, queue: &QueueName) -> Result<QueueStats> {
        self.store.memory().stats(queue).await
    }

    async fn pause(&self, queue: &QueueName) -> Result<()> {
        self.store.memory().pause(queue).await
    }

    async fn resume(&self, queue: &QueueName) -> Result<()> {
        self.store.memory().resume(queue).await
    }

    async fn purge(&self, queue: &QueueName, max: usize, from: Option<PurgePlace>) -> Result<PurgeStep> {
        self.store.memory().purge(queue, max, from).await
    }

    async fn list_queues(&self, after: Option<QueueName>, max: usize) -> Result<QueuePage> {
        self.store.memory().list_queues(after, max).await
    }

    async fn dead_list(&self, queue: &QueueName, after: Option<DeadPlace>, max: usize) -> Result<DeadPage> {
        self.store.memory().dead_list(queue, after, max).await
    }

    async fn dead_redrive(&self, queue: &QueueName, which: &DeadSelection, delay: Delay) -> Result<Redriven> {
        self.store.memory().dead_redrive(queue, which, delay).await
    }

    async fn dead_purge(&self, queue: &QueueName, which: &DeadSelection) -> Result<Purged> {
        self.store.memory().dead_purge(queue, which).await
    }
}

/// Leads wake-ups from the store to the client, until that one drops its end.
async fn lead(link: Arc<Link>, store: QueueStore, mut watch: Watch, ear: WakeHandle) {
    loop {
        watch.next().await;
        if store.has(Flaw::TellsNobody) {
            continue;
        }
        let Some(late) = link.signal() else { continue };
        pass(late).await;
        link.scheduled().await;
        ear.wake();
    }
}
