//! Delay queues in memory with something wrong on their way: a call that panics, or fails in a way of its own.

#![allow(dead_code, reason = "each test program uses some of it")]

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use tenure_core::driver::{
    Backend, Cancelled, DeadPage, DeadPlace, DeadSelection, Delay, DelayQueue, Exchanged, Extended, Extension,
    ListPlace, Listed, LockTurn, MessageInfo, MessagePage, NewMessage, PurgePlace, PurgeStep, Purged, Pushed,
    QueueAdmin, QueueCapabilities, QueuePage, QueueStats, ReceiveRequest, Redriven, Rescheduled, Settle, TurnGiven,
    Watch,
};
use tenure_core::queue::{MessageId, Queue, QueueLimits, QueueName, Text};
use tenure_core::{Client, Error, ErrorKind, Result};
use tenure_memory::MemoryDriver;

/// What befalls a call of the driver.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mishap {
    None,
    Fail(ErrorKind),
    Panic,
    /// It answers for one less than it was asked for.
    Short,
}

/// The memory driver's queues; mishaps befall calls of a kind in turn.
#[derive(Debug)]
pub(crate) struct QueueStage {
    honest: MemoryDriver,
    caps: QueueCapabilities,
    pub(crate) pushes: Mutex<VecDeque<Mishap>>,
    pub(crate) receives: Mutex<VecDeque<Mishap>>,
    pub(crate) settles: Mutex<VecDeque<Mishap>>,
    pub(crate) watches: Mutex<VecDeque<Mishap>>,
    pub(crate) extends: Mutex<VecDeque<Mishap>>,
    /// How many leases each request extended.
    pub(crate) extended: Mutex<Vec<usize>>,
    /// How many messages each request pushed.
    pub(crate) pushed: Mutex<Vec<usize>>,
    /// How many dead letters each request asked to see, or to make due.
    pub(crate) dead: Mutex<Vec<usize>>,
    /// Pages that lists begin with.
    pub(crate) pages: Mutex<VecDeque<MessagePage>>,
    /// Where each step of a purge, or of a list of queues, was asked to go on.
    pub(crate) places: Mutex<Vec<String>>,
    /// Answers to steps that go on until there is no more, before the honest ones.
    pub(crate) purges: Mutex<VecDeque<PurgeStep>>,
    pub(crate) queues: Mutex<VecDeque<QueuePage>>,
    pub(crate) redrives: Mutex<VecDeque<Redriven>>,
    pub(crate) dead_purges: Mutex<VecDeque<Purged>>,
}

pub(crate) const fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// A stage, and a queue of texts on it.
pub(crate) fn staged() -> (Arc<QueueStage>, MemoryDriver, Client, Queue<String>) {
    staged_with(|_| ())
}

/// A stage of other capabilities.
pub(crate) fn staged_with(
    change: impl FnOnce(&mut QueueCapabilities),
) -> (Arc<QueueStage>, MemoryDriver, Client, Queue<String>) {
    let honest = MemoryDriver::new();
    let mut caps = honest.capabilities();
    change(&mut caps);
    let stage = Arc::new(QueueStage {
        honest: honest.clone(),
        caps,
        pushes: Mutex::default(),
        receives: Mutex::default(),
        settles: Mutex::default(),
        watches: Mutex::default(),
        extends: Mutex::default(),
        extended: Mutex::default(),
        pushed: Mutex::default(),
        dead: Mutex::default(),
        pages: Mutex::default(),
        places: Mutex::default(),
        purges: Mutex::default(),
        queues: Mutex::default(),
        redrives: Mutex::default(),
        dead_purges: Mutex::default(),
    });
    let locks = Backend::from(honest.clone()).locks().clone();
    let client = Client::new(Backend::new(locks).with_queue(stage.clone()).with_queue_admin(stage.clone()));
    let queue = client.queue_with("jobs", Text).unwrap();
    (stage, honest, client, queue)
}

/// Adds to what befalls calls of a kind, or to their answers.
pub(crate) fn plan<T>(answers: &Mutex<VecDeque<T>>, next: impl IntoIterator<Item = T>) {
    answers.lock().unwrap().extend(next);
}

/// The planned answer, or else the honest one.
async fn planned<T>(answers: &Mutex<VecDeque<T>>, honest: impl Future<Output = Result<T>>) -> Result<T> {
    let answer = answers.lock().unwrap().pop_front();
    if let Some(answer) = answer { Ok(answer) } else { honest.await }
}

/// How many answers are kept back.
fn befall(mishaps: &Mutex<VecDeque<Mishap>>) -> Result<usize> {
    let mishap = mishaps.lock().unwrap().pop_front(); // unlocked again before it panics
    match mishap.unwrap_or(Mishap::None) {
        Mishap::None => Ok(0),
        Mishap::Fail(kind) => Err(Error::new(kind, "on purpose")),
        Mishap::Panic => std::panic::resume_unwind(Box::new("on purpose")), // without a message on the screen
        Mishap::Short => Ok(1),
    }
}

fn short<T>(mut answers: Vec<T>, kept_back: usize) -> Vec<T> {
    answers.truncate(answers.len() - kept_back);
    answers
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl DelayQueue for QueueStage {
    fn capabilities(&self) -> QueueCapabilities {
        self.caps
    }

    async fn push(&self, queue: &QueueName, messages: &[NewMessage]) -> Result<Vec<Pushed>> {
        self.pushed.lock().unwrap().push(messages.len());
        let kept_back = befall(&self.pushes)?;
        self.honest.push(queue, messages).await.map(|answers| short(answers, kept_back))
    }

    async fn exchange(&self, settles: &[Settle], request: &ReceiveRequest) -> Result<Exchanged> {
        let kept_back = if settles.is_empty() { 0 } else { befall(&self.settles)? };
        if request.max > 0 {
            befall(&self.receives)?;
        }
        let Exchanged { settled, received, .. } = self.honest.exchange(settles, request).await?;
        Ok(Exchanged::new(short(settled, kept_back), received))
    }

    async fn extend(&self, queue: &QueueName, extensions: &[Extension]) -> Result<Vec<Extended>> {
        self.extended.lock().unwrap().push(extensions.len());
        let kept_back = befall(&self.extends)?;
        self.honest.extend(queue, extensions).await.map(|answers| short(answers, kept_back))
    }

    async fn give_turn(&self, queue: &QueueName, id: &MessageId, turn: &LockTurn) -> Result<TurnGiven> {
        self.honest.give_turn(queue, id, turn).await
    }

    async fn watch(&self, queue: &QueueName) -> Result<Watch> {
        befall(&self.watches)?;
        self.honest.watch(queue).await
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl QueueAdmin for QueueStage {
    async fn cancel(&self, queue: &QueueName, id: &MessageId) -> Result<Cancelled> {
        self.honest.cancel(queue, id).await
    }

    async fn reschedule(&self, queue: &QueueName, id: &MessageId, delay: Delay) -> Result<Rescheduled> {
        self.honest.reschedule(queue, id, delay).await
    }

    async fn get(&self, queue: &QueueName, id: &MessageId) -> Result<Option<MessageInfo>> {
        self.honest.get(queue, id).await
    }

    async fn list(&self, queue: &QueueName, which: Listed, from: Option<ListPlace>, max: usize) -> Result<MessagePage> {
        planned(&self.pages, self.honest.list(queue, which, from, max)).await
    }

    async fn limit(&self, queue: &QueueName, limits: &QueueLimits) -> Result<()> {
        self.honest.limit(queue, limits).await
    }

    async fn stats(&self, queue: &QueueName) -> Result<QueueStats> {
        self.honest.stats(queue).await
    }

    async fn pause(&self, queue: &QueueName) -> Result<()> {
        self.honest.pause(queue).await
    }

    async fn resume(&self, queue: &QueueName) -> Result<()> {
        self.honest.resume(queue).await
    }

    async fn purge(&self, queue: &QueueName, max: usize, from: Option<PurgePlace>) -> Result<PurgeStep> {
        self.places.lock().unwrap().push(format!("{from:?}"));
        planned(&self.purges, self.honest.purge(queue, max, from)).await
    }

    async fn list_queues(&self, after: Option<QueueName>, max: usize) -> Result<QueuePage> {
        self.places.lock().unwrap().push(format!("{after:?}"));
        planned(&self.queues, self.honest.list_queues(after, max)).await
    }

    async fn dead_list(&self, queue: &QueueName, after: Option<DeadPlace>, max: usize) -> Result<DeadPage> {
        self.dead.lock().unwrap().push(max);
        self.honest.dead_list(queue, after, max).await
    }

    async fn dead_redrive(&self, queue: &QueueName, which: &DeadSelection, delay: Delay) -> Result<Redriven> {
        self.dead.lock().unwrap().push(match which {
            DeadSelection::Ids(ids) => ids.len(),
            DeadSelection::Oldest(count) => *count,
        });
        planned(&self.redrives, self.honest.dead_redrive(queue, which, delay)).await
    }

    async fn dead_purge(&self, queue: &QueueName, which: &DeadSelection) -> Result<Purged> {
        planned(&self.dead_purges, self.honest.dead_purge(queue, which)).await
    }
}
