//! Receives that are dropped, replies that are lost, clients that are closed.

use std::time::Duration;

use futures_util::{FutureExt as _, StreamExt as _};
use tenure_core::driver::{Cause, DeadCause, Settled};
use tenure_core::{Client, ErrorKind};
use tokio::time::Instant;

use super::support::{Bench, bench, lease, message, span};
use crate::case::{Case, CaseResult, Context, Failure, Need, case};
use crate::cases::support::must_fail;
use crate::layer::{Action, FaultLayer, Op, Rule};

pub(in crate::cases) const CASES: &[Case] = &[
    case!(
        "queue/dropped-receive-loses-nothing",
        "A receive that is dropped at any poll leaves its message to the next receiver, at once and without counting an attempt.",
        ["P53", "P58"],
        [Need::Queue],
        dropped_receive
    ),
    case!(
        "queue/dropped-with-the-reply-under-way",
        "A receive that is dropped while its reply is under way gives the message back when the reply arrives.",
        ["P53"],
        [Need::Queue],
        reply_under_way
    ),
    case!(
        "queue/dropped-delivery-fails",
        "A delivery that is dropped comes back as a failed attempt, after a pause that grows.",
        ["P53", "P58"],
        [Need::Queue],
        dropped_delivery
    ),
    case!(
        "queue/lost-reply-of-receive",
        "When the reply of a receive is lost, its message comes back after the lease.",
        ["P53"],
        [Need::Queue],
        lost_receive
    ),
    case!(
        "queue/late-reply-of-receive",
        "If a reply arrives after its receive was dropped, the client returns the messages, long before their leases end.",
        ["P53"],
        [Need::Queue],
        late_receive
    ),
    case!(
        "queue/failed-settlement-continues",
        "An acknowledgement that fails on its way is reported, and carried out in the background.",
        ["P57"],
        [Need::Queue],
        settlement_continues
    ),
    case!(
        "queue/lost-reply-of-settlement",
        "An acknowledgement whose reply is lost is reported as unknown; the message is not delivered again.",
        ["P57"],
        [Need::Queue],
        lost_settlement
    ),
    case!(
        "queue/outage-while-waiting",
        "A receive that waits outlives an outage; one that begins during it fails at once and says that nothing was applied.",
        ["P55"],
        [Need::Queue],
        outage
    ),
    case!(
        "queue/closed-client",
        "Closing a client ends its waiting receives, finishes pending clean-up, and refuses all later calls.",
        ["P53"],
        [Need::Queue],
        closed
    ),
    case!(
        "queue/undecodable",
        "A payload that cannot be decoded is a delivery that says so and can still be settled.",
        ["P61"],
        [Need::Queue],
        undecodable
    ),
    case!("queue/stream", "A stream yields message after message as they become due.", ["P55"], [Need::Queue], stream),
    case!(
        "queue/mixed-receivers",
        "Receivers of one client with different leases and batch sizes get every message once between them.",
        ["P53", "P56"],
        [Need::Queue],
        mixed
    ),
];

async fn layered(context: &mut Context) -> CaseResult<(Bench, FaultLayer, Bench)> {
    let (layer, other) = (context.layer().await?, bench(context).await?);
    let client = context.client_over(layer.backend()).build()?;
    let queue = client.queue_of_bytes(other.raw.name.as_bytes())?;
    Ok((Bench { client, queue, raw: other.raw.clone() }, layer, other))
}

async fn dropped_receive(context: &mut Context) -> CaseResult {
    let (bench, other) = (bench(context).await?, bench(context).await?);
    for polls in 0..12_usize {
        for push_after in [0, polls / 2, polls] {
            let mut receiving = Box::pin(bench.queue.receive());
            let mut early = None;
            for poll in 0..=polls {
                if poll == push_after {
                    other.raw.store(message("x")).await?;
                }
                if let Some(received) = receiving.as_mut().now_or_never() {
                    early = Some(received?);
                    break;
                }
                tokio::task::yield_now().await;
            }
            drop(receiving);
            let delivery = match early {
                Some(delivery) => delivery,
                None => context.within(context.soon(), "left to the next", other.queue.receive()).await??,
            };
            assert_eq!(delivery.attempt(), 1, "after {polls} polls");
            assert_eq!(delivery.ack().await?, Settled::Done);
        }
    }
    assert_eq!(other.raw.counts().await?, (0, 0, 0, 0));
    Ok(())
}

async fn reply_under_way(context: &mut Context) -> CaseResult {
    let (bench, layer, other) = layered(context).await?;
    other.raw.store(message("x")).await?;
    layer.rule(Rule::on(Op::Receive, Action::DelayReply(span(context, 600))).once());
    let applied = async || other.raw.counts().await.is_ok_and(|counts| counts == (0, 0, 1, 0));
    tokio::select! {
        early = bench.queue.receive() => return Err(Failure::new(format!("the reply is under way: {early:?}"))),
        applied = context.eventually(context.soon(), "it is applied", applied) => applied?,
    };
    let delivery = context.within(context.soon(), "given back", other.queue.receive()).await??;
    assert_eq!((delivery.attempt(), delivery.cause()), (1, Cause::Returned));
    delivery.ack().await?;
    Ok(())
}

async fn dropped_delivery(context: &mut Context) -> CaseResult {
    let (bench, other) = (bench(context).await?, bench(context).await?);
    other.raw.store(message("x")).await?;
    let mut dropped = bench.queue.receive().await?;
    for (attempt, pause) in [(2, Duration::from_millis(100)), (3, Duration::from_millis(200))] {
        let start = Instant::now();
        drop(dropped);
        let delivery = context.within(pause + context.soon(), "given back", other.queue.receive()).await??;
        assert!(start.elapsed() + bench.queue.capabilities().clock_error >= pause, "after {:?}", start.elapsed());
        assert_eq!((delivery.attempt(), delivery.cause()), (attempt, Cause::Retried));
        dropped = delivery;
    }
    dropped.ack().await?;
    Ok(())
}

async fn lost_receive(context: &mut Context) -> CaseResult {
    let (bench, layer, other) = layered(context).await?;
    other.raw.store(message("x")).await?;
    layer.rule(Rule::on(Op::Receive, Action::LoseReply).once());
    let (short, start) = (lease(context, 600), Instant::now());
    must_fail(bench.queue.clone().lease(short.get()).receive().await.map(drop), ErrorKind::Indeterminate)?;
    let error = bench.queue.capabilities().clock_error;
    let limit = short.get() + context.soon() + error;
    let delivery = context.within(limit, "delivered again", other.queue.receive()).await??;
    assert!(start.elapsed() + error >= short.get(), "{:?}", start.elapsed());
    assert_eq!(delivery.cause(), Cause::LeaseExpired);
    delivery.ack().await?;
    Ok(())
}

async fn late_receive(context: &mut Context) -> CaseResult {
    let (layer, other) = (context.layer().await?, bench(context).await?);
    let client = Client::builder(layer.backend()).op_timeout(span(context, 200)).build()?;
    let queue = client.queue_of_bytes(other.raw.name.as_bytes())?.lease(Duration::from_secs(300));
    other.raw.store(message("x")).await?;
    layer.rule(Rule::on(Op::Receive, Action::DelayReply(span(context, 1_000))).once());
    must_fail(queue.receive().await.map(drop), ErrorKind::Indeterminate)?;
    let delivery = context.within(span(context, 1_000) + context.soon(), "given back", other.queue.receive()).await??;
    assert_eq!((delivery.attempt(), delivery.cause()), (1, Cause::Returned));
    delivery.ack().await?;
    Ok(())
}

async fn settlement_continues(context: &mut Context) -> CaseResult {
    let (bench, layer, other) = layered(context).await?;
    other.raw.store(message("x")).await?;
    let delivery = bench.queue.receive().await?;
    layer.rule(Rule::on(Op::Settle, Action::FailBeforeSend).times(3));
    must_fail(delivery.ack().await, ErrorKind::Unavailable)?;
    let gone = async || other.raw.counts().await.map(|counts| counts == (0, 0, 0, 0));
    context.eventually(context.soon(), "acknowledged in the background", gone).await?;
    let idle = async || bench.client.stats().cleanups == 0;
    context.eventually(context.soon(), "nothing is left to do", idle).await?;
    Ok(())
}

async fn lost_settlement(context: &mut Context) -> CaseResult {
    let (bench, layer, other) = layered(context).await?;
    other.raw.store(message("x")).await?;
    let delivery = bench.queue.receive().await?;
    layer.rule(Rule::on(Op::Settle, Action::LoseReply).once());
    must_fail(delivery.ack().await, ErrorKind::Indeterminate)?;
    other.raw.nothing("it was acknowledged").await?;
    assert_eq!(other.raw.counts().await?, (0, 0, 0, 0));
    Ok(())
}

async fn outage(context: &mut Context) -> CaseResult {
    let (bench, layer, other) = layered(context).await?;
    let queue = bench.queue.clone();
    let waiting = tokio::spawn(async move { queue.receive().await });
    context.pass(span(context, 200)).await;
    layer.rule(Rule::on(Op::Receive, Action::FailBeforeSend));
    must_fail(bench.queue.try_receive().await.map(drop), ErrorKind::Unavailable)?;
    other.raw.store(message("x")).await?;
    context.pass(Duration::from_secs(3)).await;
    assert!(!waiting.is_finished(), "it did not wait the outage out");
    layer.heal();
    context.within(context.soon(), "delivered after the outage", waiting).await???.ack().await?;
    Ok(())
}

async fn closed(context: &mut Context) -> CaseResult {
    let (bench, other) = (bench(context).await?, bench(context).await?);
    other.raw.store(message("x")).await?;
    let delivery = bench.queue.receive().await?;
    let queue = bench.queue.clone();
    let waiting = tokio::spawn(async move { queue.receive().await.map(drop) });
    context.pass(span(context, 100)).await;
    drop(delivery);
    bench.client.close(context.soon()).await?;
    must_fail(context.within(context.soon(), "ended", waiting).await??, ErrorKind::Closed)?;
    let (scheduled, ready, in_flight, dead) = other.raw.counts().await?;
    assert_eq!((scheduled + ready, in_flight, dead), (1, 0, 0), "given back before the end");
    must_fail(bench.queue.try_receive().await.map(drop), ErrorKind::Closed)?;
    must_fail(bench.queue.push(&Vec::new()).await, ErrorKind::Closed)?;
    must_fail(bench.queue.stats().await, ErrorKind::Closed)?;
    Ok(())
}

async fn undecodable(context: &mut Context) -> CaseResult {
    let bench = bench(context).await?;
    let texts = bench.client.queue_with(bench.raw.name.as_bytes(), tenure_core::queue::Text)?;
    bench.queue.push(&b"\xff\xfe".to_vec()).await?;
    let delivery = texts.receive().await?;
    assert_eq!(delivery.value().map_err(tenure_core::Error::kind), Err(ErrorKind::Protocol));
    assert_eq!(delivery.payload().as_bytes(), b"\xff\xfe");
    assert_eq!(delivery.bury(None).await?, Settled::Dead);
    let page = texts.dead_letters().list(None, 1).await?;
    assert_eq!(page.letters.first().map(|letter| letter.cause), Some(DeadCause::Rejected));
    Ok(())
}

async fn stream(context: &mut Context) -> CaseResult {
    let bench = bench(context).await?;
    let unit = span(context, 100);
    // In one request, so that all delays begin at the same time.
    let message = |number: u8| super::support::after(message([number]), unit * u32::from(5 - number));
    bench.raw.push(&[0, 1, 2, 3, 4].map(message)).await?;
    let mut messages = Box::pin(bench.queue.stream());
    let mut seen = Vec::new();
    while seen.len() < 5 {
        let next = context.within(context.soon(), "the next message", messages.next()).await?;
        let delivery = next.expect("the stream continues")?;
        seen.push(delivery.payload().as_bytes()[0]);
        delivery.ack().await?;
    }
    assert_eq!(seen, [4, 3, 2, 1, 0]);
    Ok(())
}

async fn mixed(context: &mut Context) -> CaseResult {
    let bench = bench(context).await?;
    let mut tasks = Vec::new();
    for number in 0..6_u64 {
        let queue = bench.queue.clone().lease(Duration::from_secs(10 + number));
        tasks.push(tokio::spawn(async move {
            let mut seen = Vec::new();
            while seen.len() < 10 {
                let room = (number as usize % 3 + 1).min(10 - seen.len());
                for delivery in queue.receive_many(room).await? {
                    seen.push(delivery.payload().as_bytes().to_vec());
                    delivery.ack().await?;
                }
            }
            Ok::<_, tenure_core::Error>(seen)
        }));
    }
    for number in 0..60_u8 {
        bench.queue.push(&vec![number]).await?;
    }
    let mut all = Vec::new();
    for task in tasks {
        all.extend(context.within(context.soon() * 2, "each receiver got ten", task).await???);
    }
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 60);
    assert_eq!(bench.raw.counts().await?, (0, 0, 0, 0));
    Ok(())
}
