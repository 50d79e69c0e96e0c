//! The implementation of a broken delay queue: changed requests, changed answers, and a few defects that need more.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tenure_core::Result;
use tenure_core::driver::{
    Cancelled, DeadPage, DeadPlace, DeadSelection, Delay, DelayQueue, DelayQueueExt as _, Exchanged, Extended,
    Extension, IfKnown, Lease, ListPlace, Listed, LockTurn, MessageInfo, MessagePage, NewMessage, Next, PurgePlace,
    PurgeStep, Purged, Pushed, QueueAdmin, QueueCapabilities, QueuePage, QueueStats, Receipt, ReceiveRequest, Received,
    Redriven, Rescheduled, Settle, Settled, Settlement, TurnGiven, Watch,
};
use tenure_core::queue::{MessageId, QueueLimits, QueueName};

use super::delay_bend::{Bend, Quirk};
use super::twist::{Shared, Twist, restless, silent};
use crate::harness::Fault;

/// The twist of a bend: `bend!(push: |message| message.id = None)`.
macro_rules! bend {
    ($($part:ident: $change:expr),+) => {
        $crate::mutants::delay_bent::Bender::new($crate::mutants::delay_bend::Bend {
            $($part: $change,)+
            ..$crate::mutants::delay_bend::STRAIGHT
        })
    };
}
pub(super) use bend;

pub(super) fn quirky(quirk: Quirk) -> Bender {
    bend!(quirk: quirk)
}

/// The twist of a bend.
pub(super) struct Bender {
    bend: Bend,
    seen: Arc<Shared<Seen>>,
}

impl Bender {
    pub(super) fn new(bend: Bend) -> Self {
        Self { bend, seen: Arc::default() }
    }
}

/// What the clients of a case did so far.
#[derive(Default)]
struct Seen {
    last: HashMap<(QueueName, MessageId), Receipt>,
    of: HashMap<Receipt, MessageId>,
    paused: bool,
    /// Whether anything was settled since the last step of a purge.
    settled: bool,
    turns: HashMap<(QueueName, MessageId), LockTurn>,
    /// The queue that a transaction of an application has pushed to.
    open: Option<QueueName>,
}

impl Twist for Bender {
    fn injected(&self, fault: &Fault) {
        if let Fault::OpenPush(push) = fault {
            self.seen.lock().open = Some(push.queue.clone());
        }
    }

    fn queue(&self, honest: Option<Arc<dyn QueueAdmin>>) -> Option<Arc<dyn QueueAdmin>> {
        honest.map(|honest| Arc::new(BentQueue { honest, bend: self.bend, seen: Arc::clone(&self.seen) }) as _)
    }
}

struct BentQueue {
    honest: Arc<dyn QueueAdmin>,
    bend: Bend,
    seen: Arc<Shared<Seen>>,
}

impl fmt::Debug for BentQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BentQueue")
    }
}

impl BentQueue {
    fn has(&self, quirk: Quirk) -> bool {
        self.bend.quirk == quirk
    }

    fn remember(&self, queue: &QueueName, received: &Received) {
        let mut seen = self.seen.lock();
        for delivery in &received.deliveries {
            seen.last.insert((queue.clone(), delivery.id.clone()), delivery.receipt);
            seen.of.insert(delivery.receipt, delivery.id.clone());
        }
    }

    /// The receipt of the message's last delivery.
    fn newest(&self, queue: &QueueName, receipt: Receipt) -> Receipt {
        let seen = self.seen.lock();
        let id = seen.of.get(&receipt);
        id.and_then(|id| seen.last.get(&(queue.clone(), id.clone()))).copied().unwrap_or(receipt)
    }

    /// What a replacing push does besides.
    async fn before_push(&self, queue: &QueueName, message: &mut NewMessage) -> Result<()> {
        let Some(id) = message.id.as_ref().map(|named| &named.id) else { return Ok(()) };
        if message.if_known == IfKnown::Keep {
            return Ok(());
        }
        let receipt = self.seen.lock().last.get(&(queue.clone(), id.clone())).copied();
        if let (true, Some(receipt)) = (self.has(Quirk::ReplacesInFlight), receipt) {
            let how = Settlement::Return { after: Default::default() };
            self.honest.settle(queue, &[Settle::new(receipt, how)]).await?;
        }
        if self.has(Quirk::ReplacementsKeepTheKey)
            && let Some(known) = self.honest.get(queue, id).await?
        {
            message.key = known.key;
        }
        Ok(())
    }

    /// Whether the delivery's message may be delivered no more.
    async fn is_expired(&self, queue: &QueueName, receipt: Receipt) -> Result<bool> {
        let Some(id) = self.seen.lock().of.get(&receipt).cloned() else { return Ok(false) };
        let info = self.honest.get(queue, &id).await?;
        Ok(info.and_then(|info| info.expires_in).is_some_and(|left| left.is_zero()))
    }

    async fn settles(&self, queue: &QueueName, settles: &[Settle]) -> Result<Vec<Settle>> {
        let mut settles = settles.to_vec();
        for settle in &mut settles {
            if self.has(Quirk::ExpiresInFlight) && self.is_expired(queue, settle.receipt).await? {
                settle.how = Settlement::Dead { reason: None };
            }
            (self.bend.settle)(settle);
            if self.has(Quirk::StaleSettlesTheNext) {
                settle.receipt = self.newest(queue, settle.receipt);
            }
        }
        Ok(settles)
    }

    async fn received(&self, queue: &QueueName, mut received: Received) -> Result<Received> {
        self.remember(queue, &received);
        match self.bend.quirk {
            Quirk::SlowReceives => tokio::time::sleep(Duration::from_millis(700)).await,
            Quirk::EmptyReceivesHang if received.deliveries.is_empty() => std::future::pending().await,
            _ => {}
        }
        if self.has(Quirk::AtMostOnce) {
            let ack = |receipt| Settle::new(receipt, Settlement::Ack);
            let all: Vec<_> = received.deliveries.iter().map(|delivery| ack(delivery.receipt)).collect();
            self.honest.settle(queue, &all).await?;
        }
        if self.has(Quirk::LeasesForget) {
            let back = |receipt| Settle::new(receipt, Settlement::Return { after: Default::default() });
            let all: Vec<_> = received.deliveries.iter().map(|delivery| back(delivery.receipt)).collect();
            self.honest.settle(queue, &all).await?;
        }
        if self.has(Quirk::TurnsStick) {
            let seen = self.seen.lock();
            for delivery in &mut received.deliveries {
                delivery.turn = seen.turns.get(&(queue.clone(), delivery.id.clone())).cloned();
            }
        }
        received.deliveries.iter_mut().for_each(self.bend.delivery);
        (self.bend.received)(&mut received);
        Ok(received)
    }
}

#[deny(clippy::missing_trait_methods)]
impl BentQueue {
    async fn begin(&self, request: &ReceiveRequest) -> Result<Received> {
        let mut request = request.clone();
        request.queue = (self.bend.queue)(&request.queue);
        (self.bend.ask)(&mut request);
        let received = self.honest.receive(&request).await?;
        self.received(&request.queue, received).await
    }

    async fn end(&self, queue: &QueueName, settles: &[Settle]) -> Result<Vec<Settled>> {
        let queue = (self.bend.queue)(queue);
        if self.has(Quirk::PauseStopsSettlements) && self.seen.lock().paused {
            return Ok(vec![Settled::Stale; settles.len()]);
        }
        self.seen.lock().settled = true;
        if self.has(Quirk::RecursNothing) && settles.iter().any(|s| matches!(s.how, Settlement::Recur { .. })) {
            return Ok(vec![Settled::Done; settles.len()]);
        }
        let mut settled = self.honest.settle(&queue, &self.settles(&queue, settles).await?).await?;
        if self.has(Quirk::DropsTheDead) {
            self.honest.dead_purge(&queue, &DeadSelection::Oldest(1_000)).await?;
        }
        (self.bend.settled)(&mut settled);
        Ok(settled)
    }
}

#[async_trait]
impl DelayQueue for BentQueue {
    fn capabilities(&self) -> QueueCapabilities {
        let mut capabilities = self.honest.capabilities();
        (self.bend.capabilities)(&mut capabilities);
        capabilities
    }

    async fn push(&self, queue: &QueueName, messages: &[NewMessage]) -> Result<Vec<Pushed>> {
        let blocked = match (self.bend.quirk, &self.seen.lock().open) {
            (Quirk::OpenPushesBlock, Some(open)) => open == queue,
            (Quirk::OpenPushesBlockNewQueues, Some(open)) => open != queue,
            _ => false,
        };
        if blocked {
            std::future::pending::<()>().await;
        }
        let mut messages = messages.to_vec();
        messages.iter_mut().for_each(self.bend.push);
        let queue = (self.bend.queue)(queue);
        for message in &mut messages {
            self.before_push(&queue, message).await?;
        }
        let mut pushed = match self.bend.quirk {
            Quirk::HalfOfABatch if messages.len() > 1 => {
                let half = self.honest.push(&queue, &messages[..messages.len() / 2]).await?;
                half.iter().cycle().take(messages.len()).cloned().collect()
            }
            Quirk::PushesOneByOne => {
                let mut pushed = Vec::new();
                for message in messages.chunks(1) {
                    pushed.extend(self.honest.push(&queue, message).await?);
                }
                pushed
            }
            _ => self.honest.push(&queue, &messages).await?,
        };
        (self.bend.pushed)(&mut pushed);
        Ok(pushed)
    }

    async fn exchange(&self, settles: &[Settle], request: &ReceiveRequest) -> Result<Exchanged> {
        let both = !settles.is_empty() && request.max > 0;
        let settled = match settles {
            [] => Vec::new(),
            _ if both && self.has(Quirk::FusedForgetsSettlements) => vec![Settled::Done; settles.len()],
            _ => self.end(&request.queue, settles).await?,
        };
        let received = match request.max {
            0 => Received::nothing(Next::Now),
            _ if both && self.has(Quirk::FusedForgetsToReceive) => Received::nothing(Next::Never),
            _ => self.begin(request).await?,
        };
        Ok(Exchanged::new(settled, received))
    }

    async fn extend(&self, queue: &QueueName, extensions: &[Extension]) -> Result<Vec<Extended>> {
        let queue = (self.bend.queue)(queue);
        if self.has(Quirk::ExtendsNothing) {
            return Ok(vec![Extended::Extended; extensions.len()]);
        }
        let mut extensions = extensions.to_vec();
        for extension in &mut extensions {
            (self.bend.extend)(extension);
            if self.has(Quirk::StaleSettlesTheNext) {
                extension.receipt = self.newest(&queue, extension.receipt);
            }
        }
        let extended = self.honest.extend(&queue, &extensions).await?;
        Ok(extended.into_iter().map(self.bend.extended).collect())
    }

    async fn give_turn(&self, queue: &QueueName, id: &MessageId, turn: &LockTurn) -> Result<TurnGiven> {
        let queue = (self.bend.queue)(queue);
        match self.bend.quirk {
            Quirk::GivesNoTurn => Ok(TurnGiven::NotParked),
            Quirk::LosesTurns => {
                let moved = self.honest.reschedule(&queue, id, Delay::ZERO).await?;
                Ok(if moved == Rescheduled::Moved { TurnGiven::Due } else { TurnGiven::NotParked })
            }
            Quirk::TurnsStick => {
                self.seen.lock().turns.insert((queue.clone(), id.clone()), turn.clone());
                self.honest.give_turn(&queue, id, turn).await
            }
            _ => self.honest.give_turn(&queue, id, &(self.bend.turn)(turn)).await,
        }
    }

    async fn watch(&self, queue: &QueueName) -> Result<Watch> {
        let real = self.honest.watch(&(self.bend.queue)(queue)).await?;
        match self.bend.quirk {
            Quirk::NeverWakes => Ok(silent(real)),
            Quirk::WakesOften => Ok(restless(real)),
            _ => Ok(real),
        }
    }
}

#[async_trait]
impl QueueAdmin for BentQueue {
    async fn cancel(&self, queue: &QueueName, id: &MessageId) -> Result<Cancelled> {
        if self.has(Quirk::CancelsNothing) {
            return Ok(Cancelled::Removed);
        }
        let queue = (self.bend.queue)(queue);
        let receipt = self.seen.lock().last.get(&(queue.clone(), id.clone())).copied();
        if let (true, Some(receipt)) = (self.has(Quirk::StealsLeases), receipt) {
            self.honest
                .settle(&queue, &[Settle::new(receipt, Settlement::Return { after: Default::default() })])
                .await?;
        }
        Ok((self.bend.cancelled)(self.honest.cancel(&queue, id).await?))
    }

    async fn reschedule(&self, queue: &QueueName, id: &MessageId, delay: Delay) -> Result<Rescheduled> {
        if self.has(Quirk::ReschedulesNothing) {
            return Ok(Rescheduled::Moved);
        }
        let moved = self.honest.reschedule(&(self.bend.queue)(queue), id, (self.bend.reschedule)(delay)).await?;
        Ok((self.bend.rescheduled)(moved))
    }

    async fn get(&self, queue: &QueueName, id: &MessageId) -> Result<Option<MessageInfo>> {
        let mut info = self.honest.get(&(self.bend.queue)(queue), id).await?;
        info.iter_mut().for_each(self.bend.info);
        Ok(info)
    }

    async fn list(&self, queue: &QueueName, which: Listed, from: Option<ListPlace>, max: usize) -> Result<MessagePage> {
        let queue = (self.bend.queue)(queue);
        if self.has(Quirk::ListingReceives) {
            let request = ReceiveRequest::new(queue.clone(), max, Lease::DEFAULT);
            self.honest.receive(&request).await?;
        }
        let mut page = self.honest.list(&queue, (self.bend.list)(which), from, max).await?;
        (self.bend.page)(&mut page);
        Ok(page)
    }

    async fn limit(&self, queue: &QueueName, limits: &QueueLimits) -> Result<()> {
        if self.has(Quirk::LimitsNothing) || self.has(Quirk::LimitsStay) && limits.is_none() {
            return Ok(());
        }
        self.honest.limit(&(self.bend.queue)(queue), &(self.bend.limit)(limits)).await
    }

    async fn stats(&self, queue: &QueueName) -> Result<QueueStats> {
        let mut stats = self.honest.stats(&(self.bend.queue)(queue)).await?;
        (self.bend.stats)(&mut stats);
        Ok(stats)
    }

    async fn pause(&self, queue: &QueueName) -> Result<()> {
        self.seen.lock().paused = true;
        match self.has(Quirk::PausesNothing) {
            true => Ok(()),
            false => self.honest.pause(&(self.bend.queue)(queue)).await,
        }
    }

    async fn resume(&self, queue: &QueueName) -> Result<()> {
        self.seen.lock().paused = false;
        match self.has(Quirk::ForgetsToResume) {
            true => Ok(()),
            false => self.honest.resume(&(self.bend.queue)(queue)).await,
        }
    }

    async fn purge(&self, queue: &QueueName, max: usize, from: Option<PurgePlace>) -> Result<PurgeStep> {
        let queue = (self.bend.queue)(queue);
        let settled = std::mem::take(&mut self.seen.lock().settled);
        if self.has(Quirk::PurgesPastTheSettled) && from.is_some() && settled {
            return Ok(PurgeStep::new(0, None));
        }
        if self.has(Quirk::PurgesTheDead) {
            self.honest.dead_purge(&queue, &DeadSelection::Oldest(1_000)).await?;
        }
        let max = if self.has(Quirk::PurgesOneOnly) { 1 } else { max };
        let from = from.filter(|_| !self.has(Quirk::PurgesForEver));
        let step = self.honest.purge(&queue, max, from).await?;
        match self.has(Quirk::PurgesOneOnly) {
            true => Ok(step.with_next(None)),
            false => Ok(step),
        }
    }

    async fn list_queues(&self, after: Option<QueueName>, max: usize) -> Result<QueuePage> {
        let mut page = self.honest.list_queues(after, max).await?;
        (self.bend.queues)(&mut page);
        Ok(page)
    }

    async fn dead_list(&self, queue: &QueueName, after: Option<DeadPlace>, max: usize) -> Result<DeadPage> {
        let mut page = self.honest.dead_list(&(self.bend.queue)(queue), after, max).await?;
        (self.bend.letters)(&mut page);
        Ok(page)
    }

    async fn dead_redrive(&self, queue: &QueueName, which: &DeadSelection, delay: Delay) -> Result<Redriven> {
        let all = DeadSelection::Oldest(1_000);
        let which = if self.has(Quirk::RedrivesAll) { &all } else { which };
        if self.has(Quirk::RedrivesNothing) {
            return Ok(Redriven::new(1, tenure_core::driver::Rest::None));
        }
        self.honest.dead_redrive(&(self.bend.queue)(queue), which, delay).await
    }

    async fn dead_purge(&self, queue: &QueueName, which: &DeadSelection) -> Result<Purged> {
        if self.has(Quirk::PurgesNoLetter) {
            return Ok(Purged::new(1, tenure_core::driver::Rest::None));
        }
        self.honest.dead_purge(&(self.bend.queue)(queue), which).await
    }
}
