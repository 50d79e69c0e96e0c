//! Due times of messages, and the order of delivery.

use std::time::Duration;

use tenure_core::ErrorKind;
use tenure_core::driver::{Cause, Delay, Lease, Next};
use tokio::time::Instant;

use super::support::{after, bench, delay, lease, message, raw, span, texts};
use crate::case::{Case, CaseResult, Context, Need, case};
use crate::cases::support::must_fail;

pub(in crate::cases) const CASES: &[Case] = &[
    case!(
        "queue/not-early",
        "A delayed message is not delivered before its delay has passed, counted from before the push.",
        ["P54"],
        [Need::Queue],
        not_early
    ),
    case!(
        "queue/due-at-once",
        "A message without a delay can be received at once.",
        ["P54"],
        [Need::Queue],
        due_at_once
    ),
    case!(
        "queue/next-returns-the-span",
        "An empty receive returns the time until the next message is due, and a receive after that time finds it.",
        ["P55"],
        [Need::Queue],
        next_tells
    ),
    case!(
        "queue/due-order",
        "One receive returns due messages in the order of due times, not of pushes.",
        ["P60"],
        [Need::Queue],
        due_order
    ),
    case!(
        "queue/ties-in-push-order",
        "Messages of one batch and one due time come in the order in which they were pushed.",
        ["P60"],
        [Need::Queue],
        ties
    ),
    case!(
        "queue/retry-delay",
        "A failed message comes back after the delay that was asked for, and not before.",
        ["P54", "P57"],
        [Need::Queue],
        retry_delay
    ),
    case!(
        "queue/delay-longer-than-lease",
        "A message delayed for longer than the lease is delivered once: leases begin at the delivery, not at the push.",
        ["P56"],
        [Need::Queue],
        longer_than_lease
    ),
    case!(
        "queue/far-future",
        "The longest delay is kept and counts as scheduled; a longer one is refused before anything is sent.",
        ["P54"],
        [Need::Queue, Need::QueueAdmin],
        far_future
    ),
    case!(
        "queue/redelivery-takes-its-place",
        "A message whose lease ended goes before messages that became due after that.",
        ["P60"],
        [Need::Queue],
        redelivery_place
    ),
    case!(
        "queue/lateness-and-age",
        "A delivery says how late it is and how old its message is, by the backend's clock.",
        ["P54"],
        [Need::Queue],
        lateness
    ),
];

async fn not_early(context: &mut Context) -> CaseResult {
    let bench = bench(context).await?;
    let error = bench.queue.capabilities().clock_error;
    for millis in [1, 7, 120, 600] {
        let (wait, start) = (span(context, millis), Instant::now());
        bench.queue.push(&b"x".to_vec()).delay(wait).await?;
        let delivery = context.within(wait + context.soon(), "delivered", bench.queue.receive()).await??;
        assert!(start.elapsed() + error >= wait, "{:?} early", wait - start.elapsed());
        delivery.ack().await?;
    }
    Ok(())
}

async fn due_at_once(context: &mut Context) -> CaseResult {
    let raw = raw(context).await?;
    raw.store(message("now")).await?;
    let delivery = raw.one(Lease::DEFAULT).await?;
    assert_eq!((delivery.attempt, delivery.cause), (1, Cause::First));
    raw.ack(delivery.receipt).await?;
    raw.nothing("it was acknowledged").await
}

async fn next_tells(context: &mut Context) -> CaseResult {
    let raw = raw(context).await?;
    assert_eq!(raw.receive(1, Lease::DEFAULT).await?.next, Next::Never, "nothing is there");
    let (far, near) = (span(context, 60_000), span(context, 800));
    raw.push(&[after(message("far"), far), after(message("near"), near)]).await?;
    let Next::In(left) = raw.receive(1, Lease::DEFAULT).await?.next else { panic!("the span is missing") };
    assert!(left <= near && left > near / 4, "{left:?} of {near:?}");
    context.pass(left + Duration::from_millis(1)).await;
    let received = raw.receive(1, lease(context, 20_000)).await?;
    assert_eq!(texts(&received.deliveries), ["near"]);
    let Next::In(left) = received.next else { panic!("the span is missing: {:?}", received.next) };
    assert!(left <= span(context, 20_000) && left > span(context, 10_000), "the lease ends next: {left:?}");
    Ok(())
}

async fn due_order(context: &mut Context) -> CaseResult {
    let raw = raw(context).await?;
    let unit = span(context, 30);
    // In one request, so that all delays begin at the same time.
    raw.push(&[("d", 4), ("b", 2), ("a", 1), ("c", 3)].map(|(text, units)| after(message(text), unit * units))).await?;
    context.pass(unit * 10).await;
    assert_eq!(texts(&raw.take(10, Lease::DEFAULT).await?), ["a", "b", "c", "d"]);
    Ok(())
}

async fn ties(context: &mut Context) -> CaseResult {
    let raw = raw(context).await?;
    let batch: Vec<_> = (0..60).map(|number| message(format!("{number:03}"))).collect();
    raw.push(&batch).await?;
    let mut seen = Vec::new();
    while seen.len() < batch.len() {
        let some = texts(&raw.take(7, Lease::DEFAULT).await?);
        assert!(!some.is_empty(), "{} came", seen.len());
        seen.extend(some);
    }
    assert!(seen.is_sorted(), "{seen:?}");
    seen.dedup();
    assert_eq!(seen.len(), batch.len(), "one came twice");
    Ok(())
}

async fn retry_delay(context: &mut Context) -> CaseResult {
    let bench = bench(context).await?;
    bench.queue.push(&b"x".to_vec()).await?;
    let wait = span(context, 500);
    let first = bench.queue.receive().await?;
    let start = Instant::now();
    first.nack(wait).await?;
    let second = context.within(wait + context.soon(), "delivered again", bench.queue.receive()).await??;
    assert!(start.elapsed() + bench.queue.capabilities().clock_error >= wait, "{:?}", start.elapsed());
    assert_eq!((second.attempt(), second.cause()), (2, Cause::Retried));
    second.ack().await?;
    Ok(())
}

async fn longer_than_lease(context: &mut Context) -> CaseResult {
    let raw = raw(context).await?;
    let (short, long) = (lease(context, 200), span(context, 1_000));
    raw.store(after(message("once"), long)).await?;
    let start = Instant::now();
    while start.elapsed() < long - span(context, 100) {
        raw.nothing("it is not due").await?;
        context.pass(span(context, 50)).await;
    }
    context.pass(span(context, 150)).await;
    let delivery = raw.one(short).await?;
    assert_eq!((delivery.attempt, delivery.cause), (1, Cause::First));
    raw.nothing("it is leased").await?;
    raw.ack(delivery.receipt).await?;
    context.pass(short.get() * 2).await;
    raw.nothing("it was acknowledged").await
}

async fn far_future(context: &mut Context) -> CaseResult {
    let (client, layer) = context.layered().await?;
    let queue = client.queue_of_bytes(context.name("jobs").as_bytes())?;
    let longest = queue.capabilities().delay;
    queue.push(&b"x".to_vec()).delay(longest).await?;
    let stats = queue.admin().stats().await?;
    assert_eq!((stats.scheduled, stats.ready), (1, 0));
    assert!(stats.next_due.is_some_and(|left| left <= longest && left > longest - Duration::from_secs(3_600)));
    let sent = layer.count();
    for bad in [longest + Duration::from_millis(1), Delay::MAX + Duration::from_nanos(1), Duration::MAX] {
        must_fail(queue.push(&b"x".to_vec()).delay(bad).await, ErrorKind::InvalidArgument)?;
    }
    assert_eq!(layer.count(), sent, "something was sent");
    Ok(())
}

async fn redelivery_place(context: &mut Context) -> CaseResult {
    let raw = raw(context).await?;
    raw.store(message("old")).await?;
    let short = lease(context, 100);
    raw.one(short).await?;
    raw.store(after(message("young"), short.get() * 3)).await?;
    context.pass(short.get() * 5).await;
    assert_eq!(texts(&raw.take(2, Lease::DEFAULT).await?), ["old", "young"]);
    Ok(())
}

async fn lateness(context: &mut Context) -> CaseResult {
    let raw = raw(context).await?;
    let wait = span(context, 300);
    raw.store(after(message("x"), wait)).await?;
    context.pass(wait * 3).await;
    let delivery = raw.one(Lease::DEFAULT).await?;
    let slack = span(context, 200) + raw.driver.capabilities().clock_error;
    assert!(delivery.age + slack >= wait * 3 && delivery.age < wait * 3 + context.soon(), "{:?}", delivery.age);
    let due = delivery.age - delivery.late;
    assert!(due <= wait + slack && due + slack >= wait, "{:?} and {:?}", delivery.late, delivery.age);
    assert_eq!(delay(wait).get(), wait);
    Ok(())
}
