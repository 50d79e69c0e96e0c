//! What the tests of delay queues share.

use std::time::{Duration, Instant};

use tenure_core::driver::{
    Delay, DelayQueueExt as _, Due, Lease, NamedId, NewMessage, Payload, Pushed, QueueAdmin, RawDelivery, Receipt,
    ReceiveRequest, Received, Settle, Settled, Settlement,
};
use tenure_core::queue::{ConcurrencyKey, MessageId, QueueName, Reason};

use super::LONG;

pub(crate) fn queue(name: impl AsRef<[u8]>) -> QueueName {
    QueueName::new(name).unwrap()
}

pub(crate) fn delay(millis: u64) -> Delay {
    Delay::new(Duration::from_millis(millis)).unwrap()
}

pub(crate) fn lease(millis: u64) -> Lease {
    Lease::new(Duration::from_millis(millis)).unwrap()
}

pub(crate) fn named(name: impl AsRef<[u8]>) -> MessageId {
    MessageId::named(name).unwrap()
}

pub(crate) fn key(name: &str) -> Option<ConcurrencyKey> {
    Some(ConcurrencyKey::new(name).unwrap())
}

pub(crate) fn because(text: &str) -> Option<Reason> {
    Some(Reason::new(text).unwrap())
}

/// A message that is due after so many ms.
pub(crate) fn message(payload: &str, after: u64) -> NewMessage {
    NewMessage::new(Payload::new(payload.as_bytes()).unwrap()).with_due(Due::After(delay(after)))
}

/// One with a name that stays known for so many ms.
pub(crate) fn known_as(name: &str, window: u64, message: NewMessage) -> NewMessage {
    message.with_id(Some(NamedId::new(named(name), delay(window))))
}

/// A request with a lease of 30 s.
pub(crate) fn up_to(queue: &QueueName, max: usize) -> ReceiveRequest {
    ReceiveRequest::new(queue.clone(), max, Lease::DEFAULT)
}

pub(crate) async fn push(queues: &dyn QueueAdmin, queue: &QueueName, message: NewMessage) -> MessageId {
    match queues.push(queue, &[message]).await.unwrap().remove(0) {
        Pushed::Stored(id) => id,
        other => panic!("not stored: {other:?}"),
    }
}

pub(crate) async fn receive(queues: &dyn QueueAdmin, queue: &QueueName, max: usize) -> Received {
    queues.receive(&up_to(queue, max)).await.unwrap()
}

/// The one message that is due now.
pub(crate) async fn one(queues: &dyn QueueAdmin, queue: &QueueName) -> RawDelivery {
    let mut received = receive(queues, queue, 1).await;
    assert_eq!(received.deliveries.len(), 1, "{received:?}");
    received.deliveries.remove(0)
}

/// The next message, as soon as it is due.
pub(crate) async fn soon(queues: &dyn QueueAdmin, request: &ReceiveRequest) -> RawDelivery {
    let started = Instant::now();
    loop {
        let mut received = queues.receive(request).await.unwrap();
        if !received.deliveries.is_empty() {
            return received.deliveries.remove(0);
        }
        assert!(started.elapsed() < LONG, "{received:?}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

pub(crate) async fn settle(queues: &dyn QueueAdmin, queue: &QueueName, receipt: Receipt, how: Settlement) -> Settled {
    queues.settle(queue, &[Settle::new(receipt, how)]).await.unwrap().remove(0)
}

pub(crate) async fn ack(queues: &dyn QueueAdmin, queue: &QueueName, delivery: &RawDelivery) -> Settled {
    settle(queues, queue, delivery.receipt, Settlement::Ack).await
}

/// What the messages carry, in order.
pub(crate) fn payloads(deliveries: &[RawDelivery]) -> Vec<String> {
    deliveries.iter().map(|delivery| String::from_utf8_lossy(delivery.payload.as_bytes()).into_owned()).collect()
}
