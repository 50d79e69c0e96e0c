//! Abilities that are not declared are refused, before anything is sent.

use tenure_core::ErrorKind;
use tenure_core::queue::MessageId;

use crate::case::{Case, CaseResult, Context, Need, case};
use crate::cases::support::must_fail;

pub(in crate::cases) const CASES: &[Case] = &[
    case!(
        "refusal/queue",
        "Without declared delay queues a queue is refused as unsupported, and nothing is sent.",
        ["P26"],
        [Need::NoQueue],
        no_queue
    ),
    case!(
        "refusal/queue-admin",
        "Without declared operations on stored messages each is refused as unsupported, and nothing is sent.",
        ["P26"],
        [Need::Queue, Need::NoQueueAdmin],
        no_admin
    ),
    case!(
        "refusal/queue-key",
        "Without declared concurrency keys a message with one is refused as unsupported, and nothing is sent.",
        ["P26"],
        [Need::Queue, Need::NoQueueKeys],
        no_keys
    ),
];

async fn no_queue(context: &mut Context) -> CaseResult {
    let (client, layer) = context.layered().await?;
    let error = must_fail(client.queue_of_bytes(context.name("jobs").as_bytes()).map(drop), ErrorKind::Unsupported)?;
    assert!(error.to_string().contains(client.driver()), "{error} does not name the driver");
    must_fail(client.list_queues().await, ErrorKind::Unsupported)?;
    assert!(client.queue_capabilities().is_none());
    assert_eq!(layer.count(), 0, "something was sent");
    Ok(())
}

async fn no_admin(context: &mut Context) -> CaseResult {
    let (client, layer) = context.layered().await?;
    let queue = client.queue_of_bytes(context.name("jobs").as_bytes())?;
    let error = must_fail(queue.admin().stats().await, ErrorKind::Unsupported)?;
    assert!(error.to_string().contains(client.driver()), "{error} does not name the driver");
    must_fail(queue.cancel(&MessageId::assigned(1)).await, ErrorKind::Unsupported)?;
    must_fail(queue.admin().pause().await, ErrorKind::Unsupported)?;
    must_fail(queue.admin().dead_letters().purge_all().await, ErrorKind::Unsupported)?;
    must_fail(client.list_queues().await, ErrorKind::Unsupported)?;
    assert_eq!(layer.count(), 0, "something was sent");
    Ok(())
}

async fn no_keys(context: &mut Context) -> CaseResult {
    let (client, layer) = context.layered().await?;
    let queue = client.queue_of_bytes(context.name("jobs").as_bytes())?;
    must_fail(queue.push(&Vec::new()).concurrency_key("k").await, ErrorKind::Unsupported)?;
    assert_eq!(layer.count(), 0, "something was sent");
    Ok(())
}
