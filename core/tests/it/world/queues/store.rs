//! The queue of the store, as one client's link reaches it; and, to see that the world notices, mistakes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tenure_core::driver::{
    Cancelled, Delay, DelayQueue, DelayQueueExt as _, Due, Exchanged, Extended, Extension, Lease, LockTurn, NewMessage,
    Next, Pushed, QueueAdmin as _, QueueCapabilities, ReceiveRequest, Received, Rescheduled, Settle, Settled,
    Settlement, TurnGiven,
};
use tenure_core::queue::{MessageId, QueueLimits, QueueName, Rate};
use tenure_core::{FencingToken, Result};
use tenure_memory::MemoryDriver;

use super::ledger::Ledger;
use super::plan::Limits;

/// A mistake of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    EndsLeasesATenthTooSoon,
    DeliversTooEarly,
    StoresInWordsOnly,
    ForgetsIds,
    ForgetsKeys,
    SettlesInWordsOnly,
    AcksByTryingAgain,
    SettlesForAnybody,
    ReturnsInWordsOnly,
    ExtendsInWordsOnly,
    GivesFencesTwice,
    CountsNoAttempts,
    TellsNobody,
    LosesWhatIsReturned,
    LosesWhatIsParked,
    DeliversWhatIsParked,
    LosesWhatRecurs,
    RecursAtOnce,
    ForgetsLimits,
    LimitsLoosely,
    LocksForEachClientApart,
}

impl Flaw {
    pub(crate) const ALL: [Self; 21] = [
        Self::EndsLeasesATenthTooSoon,
        Self::DeliversTooEarly,
        Self::StoresInWordsOnly,
        Self::ForgetsIds,
        Self::ForgetsKeys,
        Self::SettlesInWordsOnly,
        Self::AcksByTryingAgain,
        Self::SettlesForAnybody,
        Self::ReturnsInWordsOnly,
        Self::ExtendsInWordsOnly,
        Self::GivesFencesTwice,
        Self::CountsNoAttempts,
        Self::TellsNobody,
        Self::LosesWhatIsReturned,
        Self::LosesWhatIsParked,
        Self::DeliversWhatIsParked,
        Self::LosesWhatRecurs,
        Self::RecursAtOnce,
        Self::ForgetsLimits,
        Self::LimitsLoosely,
        Self::LocksForEachClientApart,
    ];
}

#[derive(Clone, Debug)]
pub(crate) struct QueueStore {
    driver: MemoryDriver,
    ledger: Arc<Ledger>,
    /// In thousandths.
    fast: i32,
    flaw: Option<Flaw>,
    /// Answers that were given in words only.
    words: Arc<AtomicU64>,
}

impl QueueStore {
    pub(crate) fn new(driver: MemoryDriver, ledger: &Arc<Ledger>, fast: i32, flaw: Option<Flaw>) -> Self {
        let fast = if flaw == Some(Flaw::EndsLeasesATenthTooSoon) { 100 } else { fast };
        Self { driver, ledger: Arc::clone(ledger), fast, flaw, words: Arc::default() }
    }

    /// The same store over another link.
    pub(crate) fn another_client(&self) -> Self {
        Self { driver: self.driver.another_client(), ..self.clone() }
    }

    pub(crate) fn memory(&self) -> &MemoryDriver {
        &self.driver
    }

    /// The locks that messages are parked behind, over a link that has no faults.
    pub(crate) fn locks(&self) -> MemoryDriver {
        if self.has(Flaw::LocksForEachClientApart) { MemoryDriver::new() } else { self.driver.another_client() }
    }

    pub(crate) fn capabilities(&self) -> QueueCapabilities {
        DelayQueue::capabilities(&self.driver)
    }

    pub(crate) fn has(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    /// What the store keeps of a lease, by the clients' clock.
    fn kept(&self, lease: Lease) -> Lease {
        let rate = u128::from(1000_u32.saturating_add_signed(self.fast));
        let millis = (lease.get().as_millis() * 1000).div_ceil(rate);
        Lease::new(Duration::from_millis(u64::try_from(millis).expect("short"))).unwrap_or(lease)
    }

    pub(crate) async fn push(&self, queue: &QueueName, asked: &[NewMessage]) -> Result<Vec<Pushed>> {
        if self.has(Flaw::StoresInWordsOnly) && self.words.fetch_add(1, Ordering::Relaxed) % 4 == 3 {
            return Ok(asked.iter().map(|_| Pushed::Stored(MessageId::assigned(1))).collect());
        }
        let mut messages = asked.to_vec();
        for message in &mut messages {
            if self.has(Flaw::ForgetsIds) {
                message.id = None;
            }
            if self.has(Flaw::ForgetsKeys) {
                message.key = None;
            }
            if let (Due::After(delay), true) = (message.due, self.has(Flaw::DeliversTooEarly)) {
                message.due = Due::After(Delay::new(delay.get() / 2)?);
            }
            if let (Due::Parked { .. }, true) = (message.due, self.has(Flaw::DeliversWhatIsParked)) {
                message.due = Due::After(Delay::ZERO);
            }
        }
        let answers = self.driver.push(queue, &messages).await?;
        self.ledger.pushed(asked, &answers);
        Ok(answers)
    }

    pub(crate) async fn exchange(&self, settles: &[Settle], request: &ReceiveRequest) -> Result<Exchanged> {
        let settled = self.settle(&request.queue, settles).await?;
        let received = match request.max {
            0 => Received::nothing(Next::Now),
            _ => self.receive(request).await?,
        };
        Ok(Exchanged::new(settled, received))
    }

    async fn receive(&self, asked: &ReceiveRequest) -> Result<Received> {
        let lease = self.kept(asked.lease);
        let received = self.driver.receive(&asked.clone().with_lease(lease)).await?;
        Ok(self.received(received, lease))
    }

    fn received(&self, mut received: Received, lease: Lease) -> Received {
        if self.has(Flaw::CountsNoAttempts) {
            received.deliveries.iter_mut().for_each(|delivery| delivery.attempt = 1);
        }
        if self.has(Flaw::TellsNobody) {
            received.next = Next::Never;
        }
        self.ledger.delivered(&received.deliveries, lease.get());
        if self.has(Flaw::GivesFencesTwice) {
            for delivery in &mut received.deliveries {
                let fence = FencingToken::new(delivery.fence.get() / 16 * 16);
                delivery.fence = fence.unwrap_or(delivery.fence);
            }
        }
        received
    }

    /// Sets the limits of the queue.
    pub(crate) async fn limit(&self, queue: &QueueName, limits: Limits) -> Result<()> {
        let loose = u32::from(self.has(Flaw::LimitsLoosely));
        let mut of_queue = QueueLimits::none();
        if let Some(most) = limits.in_flight {
            of_queue = of_queue.in_flight(most + loose)?;
        }
        if let Some((deliveries, per)) = limits.rate {
            of_queue = of_queue.rate(Rate::new(deliveries + loose, Duration::from_millis(per))?);
        }
        if self.has(Flaw::ForgetsLimits) {
            return Ok(());
        }
        self.driver.limit(queue, &of_queue).await
    }

    pub(crate) async fn give_turn(&self, queue: &QueueName, id: &MessageId, turn: &LockTurn) -> Result<TurnGiven> {
        self.driver.give_turn(queue, id, turn).await.inspect(|answer| self.ledger.turned(id, *answer))
    }

    async fn settle_one(&self, queue: &QueueName, asked: &Settle) -> Result<Settled> {
        let mut settle = asked.clone();
        let returns = matches!(asked.how, Settlement::Return { .. });
        if self.has(Flaw::SettlesInWordsOnly) || (self.has(Flaw::ReturnsInWordsOnly) && returns) {
            return Ok(Settled::Done);
        }
        if self.has(Flaw::AcksByTryingAgain) && asked.how == Settlement::Ack {
            settle.how = Settlement::Retry { after: Delay::ZERO, reason: None };
        }
        let loses = match asked.how {
            Settlement::Return { .. } => self.has(Flaw::LosesWhatIsReturned),
            Settlement::Park { .. } => self.has(Flaw::LosesWhatIsParked),
            Settlement::Recur { .. } => self.has(Flaw::LosesWhatRecurs),
            _ => false,
        };
        if loses {
            settle.how = Settlement::Ack;
        }
        let hastens = self.has(Flaw::RecursAtOnce);
        if let (Settlement::Recur { after, .. }, true) = (&mut settle.how, hastens) {
            *after = Delay::ZERO;
        }
        if self.has(Flaw::SettlesForAnybody) {
            settle.receipt = self.ledger.valid_instead(&asked.receipt).unwrap_or(asked.receipt);
        }
        let answer = self.driver.settle(queue, std::slice::from_ref(&settle)).await?.remove(0);
        // What the store was asked for is what has to be so.
        let did = if loses || hastens { asked } else { &settle };
        self.ledger.settled(did, answer);
        Ok(answer)
    }

    async fn settle(&self, queue: &QueueName, settles: &[Settle]) -> Result<Vec<Settled>> {
        let mut answers = Vec::new();
        for settle in settles {
            answers.push(self.settle_one(queue, settle).await?);
        }
        Ok(answers)
    }

    pub(crate) async fn extend(&self, queue: &QueueName, extensions: &[Extension]) -> Result<Vec<Extended>> {
        if self.has(Flaw::ExtendsInWordsOnly) {
            return Ok(extensions.iter().map(|_| Extended::Extended).collect());
        }
        let mut answers = Vec::new();
        for extension in extensions {
            let lease = self.kept(extension.lease);
            let answer = self.driver.extend(queue, &[(*extension).with_lease(lease)]).await?.remove(0);
            self.ledger.extended(*extension, lease.get(), answer);
            answers.push(answer);
        }
        Ok(answers)
    }

    pub(crate) async fn cancel(&self, queue: &QueueName, id: &MessageId) -> Result<Cancelled> {
        self.driver.cancel(queue, id).await.inspect(|answer| self.ledger.cancelled(id, *answer))
    }

    pub(crate) async fn reschedule(&self, queue: &QueueName, id: &MessageId, delay: Delay) -> Result<Rescheduled> {
        let answer = self.driver.reschedule(queue, id, delay).await?;
        self.ledger.rescheduled(id, delay.get(), answer);
        Ok(answer)
    }
}
