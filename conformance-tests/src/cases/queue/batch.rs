//! Batches, sizes, bytes.

use std::time::Duration;

use tenure_core::ErrorKind;
use tenure_core::driver::{DelayQueueExt as _, Exchanged, NewMessage, Next, Settle, Settled, Settlement};

use super::support::{bench, bytes, lease, message, raw, texts};
use crate::case::{Case, CaseResult, Context, Need, case};
use crate::cases::support::must_fail;
use crate::layer::{Action, Op, Rule};

pub(in crate::cases) const CASES: &[Case] = &[
    case!(
        "queue/batch-is-all-or-none",
        "A batch whose request does not arrive stores nothing, and one whose reply is lost has stored everything.",
        ["P61"],
        [Need::Queue, Need::QueueAdmin],
        all_or_none
    ),
    case!(
        "queue/receive-at-most",
        "A receive returns at most the requested number of messages, reports that more are due, and leaves those.",
        ["P56"],
        [Need::Queue, Need::QueueAdmin],
        at_most
    ),
    case!(
        "queue/thousands-due-at-once",
        "Thousands of messages that are due at once come out in steps, each once, in order.",
        ["P53", "P60"],
        [Need::Queue],
        thousands
    ),
    case!(
        "queue/settlements-answer-in-order",
        "A batch of settlements answers each in order; a stale one does not disturb the others.",
        ["P57"],
        [Need::Queue, Need::QueueAdmin],
        settlements
    ),
    case!(
        "queue/acknowledged-together",
        "Deliveries that are acknowledged together are gone; a stale one among them is reported, and one of another queue is refused.",
        ["P57"],
        [Need::Queue, Need::QueueAdmin],
        together
    ),
    case!(
        "queue/settle-and-receive",
        "Settling and receiving in one request does both, the settlements first.",
        ["P57"],
        [Need::Queue],
        fused
    ),
    case!(
        "queue/bytes-exact",
        "Payloads come back byte for byte: none, every byte, and the declared cap.",
        ["P61"],
        [Need::Queue],
        exact
    ),
    case!(
        "queue/too-many-bytes-are-refused",
        "A push of more bytes than a driver declares is refused as a whole, with the bound in the message; one of as many is taken.",
        ["P26"],
        [Need::Queue, Need::QueueAdmin, Need::ReachableRequest],
        too_many_bytes
    ),
    case!(
        "queue/limits-are-refused",
        "A value outside a stated limit is refused before anything is sent, with the limit in the message.",
        ["P26"],
        [Need::Queue],
        limits
    ),
];

async fn all_or_none(context: &mut Context) -> CaseResult {
    let (client, layer) = context.layered().await?;
    let queue = client.queue_of_bytes(context.name("jobs").as_bytes())?;
    let batch: Vec<Vec<u8>> = (0..20_u8).map(|number| vec![number]).collect();
    layer.rule(Rule::on(Op::Push, Action::FailBeforeSend).once());
    must_fail(queue.push_many(&batch).await, ErrorKind::Unavailable)?;
    assert_eq!(queue.admin().stats().await?.ready, 0);
    layer.rule(Rule::on(Op::Push, Action::LoseReply).once());
    must_fail(queue.push_many(&batch).await, ErrorKind::Indeterminate)?;
    assert_eq!(queue.admin().stats().await?.ready, 20);
    assert_eq!(queue.push_many(&batch).await?.len(), 20);
    assert_eq!(queue.admin().stats().await?.ready, 40);
    Ok(())
}

async fn at_most(context: &mut Context) -> CaseResult {
    let raw = raw(context).await?;
    let batch: Vec<_> = (0..10).map(|number| message(number.to_string())).collect();
    raw.push(&batch).await?;
    let received = raw.receive(4, lease(context, 30_000)).await?;
    assert_eq!((received.deliveries.len(), received.next), (4, Next::Now));
    assert_eq!(raw.counts().await?, (0, 6, 4, 0));
    let received = raw.receive(10, lease(context, 30_000)).await?;
    assert_eq!(received.deliveries.len(), 6);
    assert!(matches!(received.next, Next::In(_)), "{:?}", received.next);
    Ok(())
}

async fn thousands(context: &mut Context) -> CaseResult {
    let raw = raw(context).await?;
    let batch = raw.driver.capabilities().batch.min(100);
    for from in (0..5_000).step_by(batch) {
        let some: Vec<_> = (from..from + batch).map(|number| message(format!("{number:05}"))).collect();
        raw.push(&some).await?;
    }
    let mut seen = Vec::new();
    loop {
        let some = raw.take(batch, lease(context, 60_000)).await?;
        if some.is_empty() {
            break;
        }
        seen.extend(texts(&some));
        assert!(seen.len() < 6_000, "they come again and again");
    }
    assert!(seen.len() >= 5_000 && seen.is_sorted(), "{} came", seen.len());
    seen.dedup();
    assert!(seen.len() >= 5_000, "one came twice");
    Ok(())
}

async fn settlements(context: &mut Context) -> CaseResult {
    let raw = raw(context).await?;
    let batch: Vec<_> = (0..4).map(|number| message(number.to_string())).collect();
    raw.push(&batch).await?;
    let got = raw.take(4, lease(context, 30_000)).await?;
    raw.ack(got[1].receipt).await?;
    let hows = [
        Settlement::Ack,
        Settlement::Ack,
        Settlement::Retry { after: Default::default(), reason: None },
        Settlement::Dead { reason: None },
    ];
    let settles: Vec<_> = got.iter().zip(hows).map(|(delivery, how)| Settle::new(delivery.receipt, how)).collect();
    let settled = raw.driver.settle(&raw.name, &settles).await?;
    assert_eq!(settled, [Settled::Done, Settled::Stale, Settled::Done, Settled::Dead]);
    assert_eq!(raw.counts().await?, (0, 1, 0, 1));
    Ok(())
}

async fn together(context: &mut Context) -> CaseResult {
    let (bench, other) = (bench(context).await?, bench(context).await?);
    let batch: Vec<Vec<u8>> = (0..5_u8).map(|number| vec![number]).collect();
    bench.queue.push_many(&batch).await?;
    let short = lease(context, 700).get();
    let got = bench.queue.clone().lease(short).receive_many(5, Duration::ZERO).await?;
    assert_eq!(got.len(), 5);
    context.pass(short * 2 + bench.raw.driver.capabilities().clock_error).await;
    let again = other.raw.one(lease(context, 30_000)).await?;
    assert_eq!(again.payload.as_bytes(), [0]);
    let settled = bench.queue.ack_many(got).await?;
    assert_eq!(settled, [Settled::Stale, Settled::Done, Settled::Done, Settled::Done, Settled::Done]);
    assert_eq!(other.raw.ack(again.receipt).await?, Settled::Done);
    assert_eq!(bench.raw.counts().await?, (0, 0, 0, 0));
    bench.queue.push(&vec![7]).await?;
    let got = other.queue.receive_many(5, Duration::ZERO).await?;
    must_fail(bench.queue.ack_many(got).await, ErrorKind::InvalidArgument)?;
    Ok(())
}

async fn fused(context: &mut Context) -> CaseResult {
    let raw = raw(context).await?;
    raw.store(message("x")).await?;
    let delivery = raw.one(lease(context, 30_000)).await?;
    let how = Settlement::Retry { after: Default::default(), reason: None };
    let request = tenure_core::driver::ReceiveRequest::new(raw.name.clone(), 5, lease(context, 30_000));
    let settles = [Settle::new(delivery.receipt, how)];
    let Exchanged { settled, received, .. } = raw.driver.exchange(&settles, &request).await?;
    assert_eq!(settled, [Settled::Done]);
    assert_eq!(received.deliveries.iter().map(|delivery| delivery.attempt).collect::<Vec<_>>(), [2]);
    Ok(())
}

async fn exact(context: &mut Context) -> CaseResult {
    let raw = raw(context).await?;
    let cap = raw.driver.capabilities().payload;
    let every: Vec<u8> = (0..=255).collect();
    let big: Vec<u8> = (0..cap).map(|number| (number % 251) as u8).collect();
    for payload in [Vec::new(), every, b"\0\xff\r\n\0".to_vec(), big] {
        raw.store(message(&payload)).await?;
        let delivery = raw.one(lease(context, 30_000)).await?;
        assert!(bytes(&delivery) == payload, "{} bytes came back as {}", payload.len(), delivery.payload.len());
        raw.ack(delivery.receipt).await?;
    }
    Ok(())
}

async fn too_many_bytes(context: &mut Context) -> CaseResult {
    let raw = raw(context).await?;
    let caps = raw.driver.capabilities();
    let size = caps.payload.min(caps.request_bytes / 2);
    let mut batch = vec![message(vec![b'x'; size]); caps.request_bytes / size];
    batch.push(message(vec![b'x'; caps.request_bytes % size]));
    let bytes = |batch: &[NewMessage]| batch.iter().map(NewMessage::bytes).sum::<usize>();
    assert!(bytes(&batch) == caps.request_bytes && batch.len() < caps.batch, "{caps:?}");
    batch.push(message("x"));
    let error = must_fail(raw.driver.push(&raw.name, &batch).await, ErrorKind::InvalidArgument)?;
    assert!(error.to_string().contains(&caps.request_bytes.to_string()), "{error} does not name the bound");
    assert_eq!(raw.counts().await?, (0, 0, 0, 0), "a part was stored");
    batch.pop();
    raw.push(&batch).await?;
    assert_eq!(raw.counts().await?, (0, batch.len() as u64, 0, 0));
    Ok(())
}

async fn limits(context: &mut Context) -> CaseResult {
    let (client, layer) = context.layered().await?;
    let queue = client.queue_of_bytes(context.name("jobs").as_bytes())?;
    let caps = queue.capabilities();
    let refused = |error: tenure_core::Error, number: &str| {
        assert!(error.to_string().contains(number), "{error} does not name {number}");
    };
    let error = must_fail(queue.push(&vec![0; caps.payload + 1]).await, ErrorKind::InvalidArgument)?;
    refused(error, &caps.payload.to_string());
    must_fail(queue.push_many(&[Vec::new(), vec![0; caps.payload + 1]]).await, ErrorKind::InvalidArgument)?;
    assert!(queue.push_many(&Vec::new()).await?.is_empty());
    let many = queue.receive_many(caps.batch.saturating_add(1), Duration::ZERO).await.map(drop);
    refused(must_fail(many, ErrorKind::InvalidArgument)?, &caps.batch.to_string());
    must_fail(queue.push(&Vec::new()).max_attempts(0).await, ErrorKind::InvalidArgument)?;
    must_fail(queue.push(&Vec::new()).id("").await, ErrorKind::InvalidArgument)?;
    must_fail(queue.push(&Vec::new()).id([b'x'; 129]).await, ErrorKind::InvalidArgument)?;
    let error =
        must_fail(queue.push(&Vec::new()).id("x").dedup_window(Duration::MAX).await, ErrorKind::InvalidArgument)?;
    refused(error, "dedup_window");
    let both = queue.push(&Vec::new()).delay(Duration::ZERO).parked("account", Duration::ZERO);
    must_fail(both.await, ErrorKind::InvalidArgument)?;
    must_fail(queue.receive_many(0, Duration::ZERO).await.map(drop), ErrorKind::InvalidArgument)?;
    for bad in [Duration::ZERO, caps.lease.max + Duration::from_millis(1), Duration::from_micros(20_500)] {
        let queue = queue.clone().lease(bad);
        must_fail(queue.try_receive().await.map(drop), ErrorKind::InvalidArgument)?;
    }
    for bad in [Vec::new(), vec![b'x'; 257]] {
        must_fail(client.queue_of_bytes(bad).map(drop), ErrorKind::InvalidArgument)?;
    }
    assert_eq!(layer.count(), 0, "something was sent");
    Ok(())
}
