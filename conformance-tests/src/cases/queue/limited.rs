//! Queues that deliver no more than their limits allow.

use std::time::Duration;

use tenure_core::driver::{NewMessage, Next, Receipt, Settled};
use tenure_core::queue::{QueueLimits, QueueName, Rate};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::support::{Bench, Raw, after, bench, lease, message, raw, span};
use super::wake::at_once;
use crate::case::{Case, CaseResult, Context, Need, case};

pub(in crate::cases) const CASES: &[Case] = &[
    case!(
        "queue/limit-in-flight",
        "No more messages are in flight than the limit says, whichever clients receive; each settlement makes room for one.",
        ["P56"],
        [Need::Queue, Need::QueueAdmin],
        in_flight
    ),
    case!(
        "queue/limit-ignores-ended-leases",
        "A message whose lease has ended does not count for the limit, and a receive returns when the first lease ends.",
        ["P55", "P56"],
        [Need::Queue, Need::QueueAdmin],
        ended_leases
    ),
    case!(
        "queue/limit-wakes-when-there-is-room",
        "A receive that waits for room gets a message as soon as another client settles one, and one that is due later in time.",
        ["P55"],
        [Need::Queue, Need::QueueAdmin, Need::QueueWakeups],
        room_wakes
    ),
    case!(
        "queue/limit-rate",
        "All clients together receive no more messages than the bucket held and regained, and a receive returns when the next one is possible.",
        ["P55", "P56"],
        [Need::Queue, Need::QueueAdmin],
        rate
    ),
    case!(
        "queue/limit-rate-in-time",
        "A receive that waits gets the next message when the rate allows it, neither before nor much later.",
        ["P55"],
        [Need::Queue, Need::QueueAdmin],
        rate_in_time
    ),
    case!(
        "queue/limit-is-replaced",
        "A new limit replaces the one before it, and setting no limit removes it; the statistics show the current limit.",
        ["P56"],
        [Need::Queue, Need::QueueAdmin],
        replaced
    ),
    case!(
        "queue/limit-lifted-wakes",
        "A receive that waits for room is woken when the limit is lifted.",
        ["P55"],
        [Need::Queue, Need::QueueAdmin, Need::QueueWakeups],
        lifted_wakes
    ),
    case!(
        "queue/limit-is-kept",
        "A limit outlives its messages and the client that set it, and the queue is listed until it is lifted.",
        ["P53", "P56"],
        [Need::Queue, Need::QueueAdmin],
        kept
    ),
];

fn most(in_flight: u32) -> QueueLimits {
    QueueLimits::none().in_flight(in_flight).expect("cases allow at least one")
}

async fn limit(raw: &Raw, limits: QueueLimits) -> CaseResult {
    Ok(raw.admin().limit(&raw.name, &limits).await?)
}

async fn in_flight(context: &mut Context) -> CaseResult {
    let (one, two) = (raw(context).await?, raw(context).await?);
    let long = lease(context, 30_000);
    one.push(&vec![message("x"); 8]).await?;
    limit(&one, most(3)).await?;
    let mut held = one.take(2, long).await?;
    assert_eq!(held.len(), 2);
    held.extend(two.take(5, long).await?);
    assert_eq!(held.len(), 3);
    for raw in [&one, &two] {
        let received = raw.receive(5, long).await?;
        assert!(received.deliveries.is_empty(), "beyond the limit: {received:?}");
        assert!(matches!(received.next, Next::In(left) if left <= long.get()), "{:?}", received.next);
    }
    assert_eq!(one.counts().await?, (0, 5, 3, 0));
    assert_eq!(one.ack(held[0].receipt).await?, Settled::Done);
    assert_eq!(two.take(5, long).await?.len(), 1, "one place is free");
    assert_eq!(two.retry(held[1].receipt, Duration::ZERO).await?, Settled::Done);
    assert_eq!(two.ack(held[2].receipt).await?, Settled::Done);
    assert_eq!(one.take(1, long).await?.len(), 1);
    assert_eq!(two.take(5, long).await?.len(), 1);
    one.nothing("all places are taken").await?;
    assert_eq!(one.counts().await?, (0, 3, 3, 0));
    Ok(())
}

async fn ended_leases(context: &mut Context) -> CaseResult {
    let (one, two) = (raw(context).await?, raw(context).await?);
    let (short, long) = (lease(context, 300), lease(context, 30_000));
    one.push(&vec![message("x"); 3]).await?;
    limit(&one, most(1)).await?;
    one.one(short).await?;
    let received = two.receive(5, long).await?;
    assert!(received.deliveries.is_empty(), "beyond the limit: {received:?}");
    let Next::In(left) = received.next else { panic!("the time until there is room is missing: {:?}", received.next) };
    assert!(left <= short.get() + two.driver.capabilities().clock_error * 2, "{left:?} of {short:?}");
    context.pass(short.get() + short.get() / 3 + two.driver.capabilities().clock_error).await;
    assert_eq!(two.take(5, long).await?.len(), 1, "one place is free");
    one.nothing("all places are taken").await?;
    assert_eq!(one.counts().await?, (0, 2, 1, 0));
    Ok(())
}

/// A queue of one place, and a receive that waits.
struct Full {
    /// Who has the place, by this receipt.
    other: Bench,
    receipt: Receipt,
    /// When the next message was pushed.
    pushed: Instant,
    waiting: JoinHandle<CaseResult<Instant>>,
}

async fn full(context: &mut Context, next: NewMessage) -> CaseResult<Full> {
    let (bench, other) = (bench(context).await?, bench(context).await?);
    limit(&other.raw, most(1)).await?;
    other.raw.store(message("first")).await?;
    let first = other.raw.one(lease(context, 60_000)).await?;
    let pushed = Instant::now();
    other.raw.store(next).await?;
    let waiting = tokio::spawn(async move {
        let delivery = bench.queue.receive().await?;
        let came = Instant::now();
        delivery.ack().await?;
        Ok(came)
    });
    context.pass(span(context, 200)).await;
    assert!(!waiting.is_finished(), "beyond the limit");
    Ok(Full { other, receipt: first.receipt, pushed, waiting })
}

async fn room_wakes(context: &mut Context) -> CaseResult {
    let Full { other, receipt, waiting, .. } = full(context, message("next")).await?;
    let start = Instant::now();
    other.raw.ack(receipt).await?;
    let came = context.within(context.soon(), "delivered", waiting).await???;
    at_once(context, came.duration_since(start));
    let wait = span(context, 400);
    let Full { other, receipt, pushed, waiting } = full(context, after(message("later"), wait)).await?;
    other.raw.ack(receipt).await?;
    let came = context.within(context.soon(), "delivered", waiting).await???;
    assert!(came.duration_since(pushed) + other.raw.driver.capabilities().clock_error >= wait, "early");
    at_once(context, came.duration_since(pushed).saturating_sub(wait));
    Ok(())
}

async fn rate(context: &mut Context) -> CaseResult {
    let (one, two) = (raw(context).await?, raw(context).await?);
    let (long, interval) = (lease(context, 30_000), span(context, 300));
    let error = one.driver.capabilities().clock_error;
    one.push(&vec![message("x"); 9]).await?;
    limit(&one, QueueLimits::none().rate(Rate::new(2, interval * 2)?)).await?;
    let start = Instant::now();
    // The bucket is full; what came back to it since is counted on the client's clock.
    let allowed = |start: Instant| 2 + ((start.elapsed() + error).as_micros() / interval.as_micros()) as usize;
    let mut came = one.take(9, long).await?.len();
    assert!(came >= 2, "{came} of the two that are allowed at once");
    for raw in [&two, &one] {
        let received = raw.receive(9, long).await?;
        came += received.deliveries.len();
        assert!(came <= allowed(start), "{came} came, {} are allowed", allowed(start));
        let Next::In(left) = received.next else { panic!("the time until the next one is missing: {received:?}") };
        assert!(left <= interval + error * 2, "{left:?} of {interval:?}");
        context.pass(left + Duration::from_millis(1)).await;
    }
    came += two.take(9, long).await?.len();
    assert!(came >= 4 && came <= allowed(start), "{came} came, {} are allowed", allowed(start));
    Ok(())
}

async fn rate_in_time(context: &mut Context) -> CaseResult {
    let bench = bench(context).await?;
    let interval = span(context, 250);
    bench.raw.push(&vec![message("x"); 3]).await?;
    limit(&bench.raw, QueueLimits::none().rate(Rate::new(1, interval)?)).await?;
    let start = Instant::now();
    for number in 0..3 {
        let delivery = context.within(interval + context.soon(), "delivered", bench.queue.receive()).await??;
        let (took, due) = (start.elapsed(), interval * number);
        assert!(took + bench.raw.driver.capabilities().clock_error >= due, "{took:?}, {due:?} would be in time");
        at_once(context, took.saturating_sub(due));
        delivery.ack().await?;
    }
    Ok(())
}

async fn replaced(context: &mut Context) -> CaseResult {
    let raw = raw(context).await?;
    let long = lease(context, 30_000);
    assert_eq!(raw.stats().await?.limits, QueueLimits::none());
    raw.push(&vec![message("x"); 12]).await?;
    let slow = most(2).rate(Rate::new(5, Duration::from_secs(3_600))?);
    // A smaller limit takes nothing from those who have it already; a rate that is set begins with a full bucket.
    for (limits, more) in [(most(3), 3), (slow, 0), (most(4), 1), (most(7).rate(slow.max_rate().expect("set")), 3)] {
        limit(&raw, limits).await?;
        assert_eq!(raw.stats().await?.limits, limits);
        assert_eq!(raw.take(10, long).await?.len(), more, "under {limits:?}");
    }
    limit(&raw, QueueLimits::none()).await?;
    limit(&raw, QueueLimits::none()).await?;
    assert_eq!(raw.stats().await?.limits, QueueLimits::none());
    assert_eq!(raw.take(10, long).await?.len(), 5, "nothing is limited any more");
    assert_eq!(raw.counts().await?, (0, 0, 12, 0));
    Ok(())
}

async fn lifted_wakes(context: &mut Context) -> CaseResult {
    let Full { other, waiting, .. } = full(context, message("next")).await?;
    let start = Instant::now();
    other.queue.admin().limit(QueueLimits::none()).await?;
    let came = context.within(context.soon(), "delivered", waiting).await???;
    at_once(context, came.duration_since(start));
    Ok(())
}

async fn kept(context: &mut Context) -> CaseResult {
    let (first, second) = (bench(context).await?, bench(context).await?);
    let own = |names: Vec<QueueName>| names.into_iter().filter(|name| *name == second.raw.name).count();
    let hourly = Rate::new(10, Duration::from_secs(3_600))?;
    first.queue.admin().limit(most(1).rate(hourly)).await?;
    first.client.close(context.soon()).await?;
    drop(first);
    assert_eq!(own(second.client.list_queues().await?), 1, "it is limited");
    second.raw.push(&[message("a"), message("b")]).await?;
    for _ in 0..2 {
        let got = second.raw.take(5, lease(context, 30_000)).await?;
        assert_eq!(got.len(), 1);
        second.raw.ack(got[0].receipt).await?;
    }
    assert_eq!(second.raw.stats().await?.limits, most(1).rate(hourly), "it is empty again");
    assert_eq!(own(second.client.list_queues().await?), 1, "it is limited");
    second.queue.admin().limit(QueueLimits::none()).await?;
    assert_eq!(own(second.client.list_queues().await?), 0, "it is empty and unlimited");
    Ok(())
}
