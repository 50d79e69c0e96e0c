//! Notifications of waiting consumers that a message is due.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use super::support::{bench, delay, lease, message, span};
use crate::case::{Case, CaseResult, Context, Need, case};
use crate::harness::{Fault, FaultKind};
use crate::layer::Op;

/// What the engine states: how late a receiver that has just begun to wait is at most if every wake-up is lost.
const FALLBACK: Duration = Duration::from_secs(2);

pub(in crate::cases) const CASES: &[Case] = &[
    case!(
        "queue/wakes-at-due",
        "A waiting receive returns when the message is due, not at the next round of some poll.",
        ["P55"],
        [Need::Queue],
        at_due
    ),
    case!(
        "queue/sooner-arrival-wakes",
        "A receive that waits for a far message returns at once when another client pushes one that is due now.",
        ["P55"],
        [Need::Queue, Need::QueueWakeups],
        sooner_arrival
    ),
    case!(
        "queue/reschedule-wakes",
        "A receive that waits for a far message returns when another client makes it due now.",
        ["P55"],
        [Need::Queue, Need::QueueAdmin, Need::QueueWakeups],
        reschedule_wakes
    ),
    case!(
        "queue/retry-wakes",
        "A receive that waits is woken when another client gives a message back.",
        ["P55"],
        [Need::Queue, Need::QueueWakeups],
        retry_wakes
    ),
    case!(
        "queue/resume-wakes",
        "A receive that waits on a paused queue is woken when it is resumed.",
        ["P55"],
        [Need::Queue, Need::QueueAdmin, Need::QueueWakeups],
        resume_wakes
    ),
    case!(
        "queue/crash-wakes",
        "A receive that waits gets the message of a consumer that died, soon after its lease ended.",
        ["P53", "P55"],
        [Need::Queue],
        crash_wakes
    ),
    case!(
        "queue/lost-wake-ups-are-bounded",
        "If every wake-up is lost, a waiting receive is late by the stated bound at most.",
        ["P55"],
        [Need::Queue],
        lost_wakeups
    ),
    case!(
        "queue/cut-connections",
        "A receive that waits gets a message that is pushed after all connections were cut.",
        ["P55"],
        [Need::Queue, Need::Fault(FaultKind::CutConnections)],
        cut
    ),
    case!(
        "queue/idle-costs-nothing",
        "A client that waits on an empty queue sends no more than one request in two seconds.",
        ["P55"],
        [Need::Queue],
        idle
    ),
    case!(
        "queue/many-waiters-one-message",
        "Of many waiting receivers of several clients exactly one gets the message.",
        ["P56"],
        [Need::Queue, Need::QueueAdmin],
        many_waiters
    ),
    case!(
        "queue/waiting-is-bounded",
        "A receive with a limit ends when that has passed, neither before nor much later, and a limit of zero asks once.",
        ["P55"],
        [Need::Queue],
        bounded
    ),
    case!(
        "queue/cancelled-head",
        "When the message that a receive waits for is cancelled, the receive continues, and gets the next message.",
        ["P55"],
        [Need::Queue, Need::QueueAdmin],
        cancelled_head
    ),
];

async fn at_due(context: &mut Context) -> CaseResult {
    let bench = bench(context).await?;
    for millis in [40, 1_000] {
        let (wait, start) = (span(context, millis), Instant::now());
        bench.queue.push(&b"x".to_vec()).delay(wait).await?;
        context.within(wait + context.soon(), "delivered", bench.queue.receive()).await??.ack().await?;
        let late = start.elapsed().saturating_sub(wait);
        // Much sooner than a client that polls.
        assert!(late < span(context, 900) + bench.queue.capabilities().clock_error, "{late:?} late");
    }
    Ok(())
}

/// Waits on one client while `act` is done through another; returns how long after it the message arrived.
pub(super) async fn woken_by(
    context: &mut Context,
    act: impl AsyncFnOnce(&super::support::Bench) -> CaseResult,
) -> CaseResult<Duration> {
    let (bench, other) = (bench(context).await?, bench(context).await?);
    let queue = bench.queue.clone();
    let waiting = tokio::spawn(async move { queue.receive().await });
    context.pass(span(context, 300)).await;
    act(&other).await?;
    let start = Instant::now();
    let delivery = context.within(context.soon(), "delivered", waiting).await???;
    let took = start.elapsed();
    delivery.ack().await?;
    Ok(took)
}

/// Much sooner than a client that polls.
pub(super) fn at_once(context: &Context, took: Duration) {
    assert!(took < span(context, 1_200), "{took:?} after it was due");
}

async fn sooner_arrival(context: &mut Context) -> CaseResult {
    let took = woken_by(context, async |other| {
        other.queue.push(&b"far".to_vec()).delay(Duration::from_secs(300)).await?;
        other.queue.push(&b"now".to_vec()).await?;
        Ok(())
    });
    let took = took.await?;
    at_once(context, took);
    Ok(())
}

async fn reschedule_wakes(context: &mut Context) -> CaseResult {
    let took = woken_by(context, async |other| {
        let id = other.raw.store(super::support::after(message("far"), Duration::from_secs(300))).await?;
        other.queue.reschedule(&id, Duration::ZERO).await?;
        Ok(())
    });
    let took = took.await?;
    at_once(context, took);
    Ok(())
}

async fn retry_wakes(context: &mut Context) -> CaseResult {
    let first = bench(context).await?;
    first.raw.store(message("x")).await?;
    let delivery = first.raw.one(lease(context, 60_000)).await?;
    let took = woken_by(context, async |other| {
        other.raw.retry(delivery.receipt, Duration::ZERO).await?;
        Ok(())
    });
    let took = took.await?;
    at_once(context, took);
    Ok(())
}

async fn resume_wakes(context: &mut Context) -> CaseResult {
    let first = bench(context).await?;
    first.raw.store(message("x")).await?;
    first.queue.admin().pause().await?;
    let took = woken_by(context, async |other| Ok(other.queue.admin().resume().await?)).await?;
    at_once(context, took);
    Ok(())
}

async fn crash_wakes(context: &mut Context) -> CaseResult {
    let (bench, other) = (bench(context).await?, bench(context).await?);
    bench.raw.store(message("x")).await?;
    let (held, start) = (lease(context, 1_000), Instant::now());
    other.raw.one(held).await?;
    let delivery = context.within(held.get() + context.soon(), "delivered again", bench.queue.receive()).await??;
    let error = bench.queue.capabilities().clock_error;
    assert!(start.elapsed() + error >= held.get(), "during the lease, after {:?}", start.elapsed());
    assert!(start.elapsed() < held.get() + span(context, 900) + error * 2, "{:?}", start.elapsed());
    assert_eq!(delivery.attempt(), 2);
    delivery.ack().await?;
    Ok(())
}

async fn lost_wakeups(context: &mut Context) -> CaseResult {
    let (layer, other) = (context.layer().await?, bench(context).await?);
    layer.mute();
    let client = context.client_over(layer.backend()).build()?;
    let queue = client.queue_of_bytes(other.raw.name.as_bytes())?;
    let waiting = tokio::spawn(async move { queue.receive().await });
    context.pass(span(context, 300)).await;
    let start = Instant::now();
    other.raw.store(message("x")).await?;
    let limit = FALLBACK + context.soon();
    context.within(limit, "delivered without a wake-up", waiting).await???.ack().await?;
    assert!(start.elapsed() <= limit);
    Ok(())
}

async fn cut(context: &mut Context) -> CaseResult {
    let (bench, other) = (bench(context).await?, bench(context).await?);
    let queue = bench.queue.clone();
    let waiting = tokio::spawn(async move { queue.receive().await });
    context.pass(span(context, 300)).await;
    context.inject(Fault::CutConnections).await?.heal().await?;
    let pushed = async || other.raw.store(message("x")).await.is_ok();
    context.eventually(context.soon(), "a message can be pushed again", pushed).await?;
    context.within(FALLBACK + context.soon(), "delivered", waiting).await???.ack().await?;
    Ok(())
}

async fn idle(context: &mut Context) -> CaseResult {
    let (client, layer) = context.layered().await?;
    let queue = client.queue_of_bytes(context.name("jobs").as_bytes())?;
    let waiting: Vec<_> = (0..8)
        .map(|_| {
            let queue = queue.clone();
            tokio::spawn(async move { queue.receive().await.map(drop) })
        })
        .collect();
    context.pass(span(context, 1_000)).await;
    let before = layer.count();
    context.pass(Duration::from_secs(10)).await;
    let asked = layer.count() - before;
    assert!(asked <= 5, "{asked} requests in ten seconds");
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
    Ok(())
}

async fn many_waiters(context: &mut Context) -> CaseResult {
    let (one, two) = (bench(context).await?, bench(context).await?);
    let got = Arc::new(AtomicUsize::new(0));
    let waiters: Vec<_> = (0..200)
        .map(|number| {
            let queue = if number % 2 == 0 { one.queue.clone() } else { two.queue.clone() };
            let got = Arc::clone(&got);
            tokio::spawn(async move {
                if let Ok(delivery) = queue.receive().await {
                    got.fetch_add(1, Ordering::Relaxed);
                    let _settled = delivery.ack().await;
                }
            })
        })
        .collect();
    context.pass(span(context, 300)).await;
    one.raw.store(message("x")).await?;
    let taken = async || got.load(Ordering::Relaxed) > 0 && one.raw.counts().await.is_ok_and(|c| c == (0, 0, 0, 0));
    context.eventually(context.soon(), "the message is received and acknowledged", taken).await?;
    context.pass(span(context, 500)).await;
    assert_eq!(got.load(Ordering::Relaxed), 1);
    waiters.iter().for_each(tokio::task::JoinHandle::abort);
    Ok(())
}

async fn bounded(context: &mut Context) -> CaseResult {
    let (client, layer) = context.layered().await?;
    let queue = client.queue_of_bytes(context.name("jobs").as_bytes())?;
    assert!(queue.receive_within(Duration::ZERO).await?.is_none());
    let name = context.name("jobs");
    assert_eq!(layer.frames_of(Op::Receive, &name).len(), 1, "a limit of zero asks once");
    let (wait, start) = (span(context, 400), Instant::now());
    assert!(queue.receive_within(wait).await?.is_none());
    assert!(start.elapsed() >= wait && start.elapsed() < wait + span(context, 1_500), "{:?}", start.elapsed());
    Ok(())
}

async fn cancelled_head(context: &mut Context) -> CaseResult {
    let bench = bench(context).await?;
    let unit = span(context, 400);
    let head = bench.raw.store(super::support::after(message("head"), unit)).await?;
    let (queue, start) = (bench.queue.clone(), Instant::now());
    bench.raw.store(super::support::after(message("next"), unit * 2)).await?;
    let waiting = tokio::spawn(async move { queue.receive().await });
    context.pass(unit / 4).await;
    bench.queue.cancel(&head).await?;
    let delivery = context.within(unit * 2 + context.soon(), "the next is delivered", waiting).await???;
    assert_eq!(delivery.payload().as_bytes(), b"next");
    assert!(start.elapsed() + bench.queue.capabilities().clock_error >= unit * 2, "{:?}", start.elapsed());
    assert_eq!(delay(unit).get(), unit);
    delivery.ack().await?;
    Ok(())
}
