//! Common helpers of the cases of queues.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::Client;
use tenure_core::driver::{
    Attempts, Delay, DelayQueue, DelayQueueExt as _, Due, Extended, Extension, Lease, MessageState, NamedId,
    NewMessage, Payload, Pushed, QueueAdmin, QueueStats, RawDelivery, Receipt, ReceiveRequest, Received, Settle,
    Settled, Settlement,
};
use tenure_core::queue::{ConcurrencyKey, MessageId, Queue, QueueName};

use crate::case::{CaseResult, Context, Failure};

/// A queue of the case's own, seen from both sides.
#[derive(Clone)]
pub(super) struct Bench {
    pub(super) client: Client,
    pub(super) queue: Queue<Vec<u8>>,
    pub(super) raw: Raw,
}

/// A queue past the engine.
#[derive(Clone)]
pub(super) struct Raw {
    pub(super) driver: Arc<dyn DelayQueue>,
    admin: Option<Arc<dyn QueueAdmin>>,
    pub(super) name: QueueName,
}

pub(super) async fn bench(context: &mut Context) -> CaseResult<Bench> {
    let backend = context.backend().await?;
    let name = queue_name(context)?;
    let driver = backend.queue().cloned().ok_or_else(|| Failure::new("queues are declared and not there"))?;
    let admin = backend.queue_admin().cloned();
    let client = context.client_over(backend).build()?;
    let queue = client.queue_of_bytes(name.as_bytes())?;
    Ok(Bench { client, queue, raw: Raw { driver, admin, name } })
}

pub(super) async fn raw(context: &mut Context) -> CaseResult<Raw> {
    Ok(bench(context).await?.raw)
}

pub(super) fn queue_name(context: &Context) -> CaseResult<QueueName> {
    Ok(QueueName::new(context.name("jobs").as_bytes())?)
}

/// A lease of about so many milliseconds.
pub(super) fn lease(context: &Context, millis: u64) -> Lease {
    Lease::new(span(context, millis)).expect("cases ask for sensible leases")
}

/// So many milliseconds, stretched, and whole.
pub(super) fn span(context: &Context, millis: u64) -> Duration {
    Duration::from_millis(context.ms(millis).as_millis() as u64)
}

pub(super) fn delay(length: Duration) -> Delay {
    Delay::new(length).expect("cases ask for sensible delays")
}

/// A message of bytes, due at once.
pub(super) fn message(bytes: impl AsRef<[u8]>) -> NewMessage {
    NewMessage::new(Payload::new(bytes.as_ref()).expect("cases send small payloads"))
}

pub(super) fn named(bytes: impl AsRef<[u8]>, id: &str, window: Duration) -> NewMessage {
    let id = MessageId::named(id).expect("cases use short ids");
    message(bytes).with_id(Some(NamedId::new(id, delay(window))))
}

pub(super) fn attempts(message: NewMessage, count: u32) -> NewMessage {
    message.with_attempts(Attempts::new(count).expect("cases use few attempts"))
}

pub(super) fn after(message: NewMessage, length: Duration) -> NewMessage {
    message.with_due(Due::After(delay(length)))
}

pub(super) fn keyed(bytes: impl AsRef<[u8]>, key: &str) -> NewMessage {
    message(bytes).with_key(Some(ConcurrencyKey::new(key).expect("cases use short keys")))
}

impl Raw {
    /// Another queue of the same driver.
    pub(super) fn another(&self, name: QueueName) -> Self {
        Self { name, ..self.clone() }
    }

    /// The operations on stored messages, which the case needs.
    pub(super) fn admin(&self) -> &dyn QueueAdmin {
        self.admin.as_deref().expect("the case needs operations on stored messages")
    }

    pub(super) async fn push(&self, messages: &[NewMessage]) -> CaseResult<Vec<Pushed>> {
        let pushed = self.driver.push(&self.name, messages).await?;
        assert_eq!(pushed.len(), messages.len(), "each push has an answer");
        Ok(pushed)
    }

    /// Pushes one message that is new.
    pub(super) async fn store(&self, message: NewMessage) -> CaseResult<MessageId> {
        match self.push(&[message]).await?.pop() {
            Some(Pushed::Stored(id)) => Ok(id),
            other => Err(Failure::new(format!("{other:?} instead of a stored message"))),
        }
    }

    pub(super) async fn receive(&self, max: usize, lease: Lease) -> CaseResult<Received> {
        let received = self.driver.receive(&ReceiveRequest::new(self.name.clone(), max, lease)).await?;
        assert!(received.deliveries.len() <= max, "more than were asked for");
        Ok(received)
    }

    /// All messages that can be had now, in order.
    pub(super) async fn take(&self, max: usize, lease: Lease) -> CaseResult<Vec<RawDelivery>> {
        Ok(self.receive(max, lease).await?.deliveries)
    }

    /// The message that must be due.
    pub(super) async fn one(&self, lease: Lease) -> CaseResult<RawDelivery> {
        let mut deliveries = self.take(1, lease).await?;
        deliveries.pop().ok_or_else(|| Failure::new("no message is due, and one should be"))
    }

    /// Fails if a message can be had now.
    pub(super) async fn nothing(&self, why: &str) -> CaseResult {
        let received = self.receive(1, Lease::DEFAULT).await?;
        assert!(received.deliveries.is_empty(), "{why}: {:?}", received.deliveries);
        Ok(())
    }

    pub(super) async fn settle(&self, receipt: Receipt, how: Settlement) -> CaseResult<Settled> {
        let mut settled = self.driver.settle(&self.name, &[Settle::new(receipt, how)]).await?;
        settled.pop().ok_or_else(|| Failure::new("a settlement was not answered"))
    }

    pub(super) async fn ack(&self, receipt: Receipt) -> CaseResult<Settled> {
        self.settle(receipt, Settlement::Ack).await
    }

    pub(super) async fn retry(&self, receipt: Receipt, length: Duration) -> CaseResult<Settled> {
        self.settle(receipt, Settlement::Retry { after: delay(length), reason: None }).await
    }

    pub(super) async fn extend(&self, receipt: Receipt, lease: Lease) -> CaseResult<Extended> {
        let mut extended = self.driver.extend(&self.name, &[Extension::new(receipt, lease)]).await?;
        extended.pop().ok_or_else(|| Failure::new("an extension was not answered"))
    }

    pub(super) async fn stats(&self) -> CaseResult<QueueStats> {
        Ok(self.admin().stats(&self.name).await?)
    }

    /// Scheduled, ready, in flight, dead.
    pub(super) async fn counts(&self) -> CaseResult<(u64, u64, u64, u64)> {
        let QueueStats { scheduled, ready, in_flight, dead, .. } = self.stats().await?;
        Ok((scheduled, ready, in_flight, dead))
    }

    pub(super) async fn state(&self, id: &MessageId) -> CaseResult<Option<MessageState>> {
        Ok(self.admin().get(&self.name, id).await?.map(|info| info.state))
    }
}

pub(super) fn bytes(delivery: &RawDelivery) -> &[u8] {
    delivery.payload.as_bytes()
}

pub(super) fn texts(deliveries: &[RawDelivery]) -> Vec<String> {
    deliveries.iter().map(|delivery| String::from_utf8_lossy(bytes(delivery)).into_owned()).collect()
}
