//! Leases and receipts: one valid receipt for a message at any time.

use std::time::Duration;

use tenure_core::driver::{Cause, Extended, MessageState, Settled, Settlement};
use tenure_core::queue::{Delivery, Nack, Reason};
use tenure_core::{ErrorKind, FenceFloor};
use tokio::time::Instant;

use super::support::{attempts, bench, lease, message, raw, span};
use crate::case::{Case, CaseResult, Context, Need, case};
use crate::cases::support::must_fail;

pub(in crate::cases) const CASES: &[Case] = &[
    case!(
        "queue/exclusive-during-lease",
        "While a delivery's lease lasts, no other receiver gets the message; after its end the next receiver does.",
        ["P56"],
        [Need::Queue],
        exclusive
    ),
    case!(
        "queue/stale-receipt-changes-nothing",
        "After a redelivery every settlement and extension with the older receipt answers stale and changes nothing.",
        ["P57"],
        [Need::Queue, Need::QueueAdmin],
        stale
    ),
    case!(
        "queue/settled-receipt-is-stale",
        "A receipt that was settled is stale for every further settlement, whichever it is.",
        ["P57"],
        [Need::Queue],
        settled_is_stale
    ),
    case!(
        "queue/extension-keeps-the-lease",
        "An extended lease keeps the message beyond its first end, and the same receipt still settles it.",
        ["P56", "P57"],
        [Need::Queue],
        extension
    ),
    case!(
        "queue/extension-never-shortens",
        "An extension by less than the rest of the lease leaves the lease as it is.",
        ["P56"],
        [Need::Queue],
        never_shortens
    ),
    case!(
        "queue/extension-never-revives",
        "A lease that has ended cannot be extended, even if no other receiver has got the message yet.",
        ["P56", "P57"],
        [Need::Queue],
        never_revives
    ),
    case!(
        "queue/late-ack-counts",
        "An acknowledgement after the lease's end counts if no other receiver got the message meanwhile: it is not delivered again.",
        ["P57"],
        [Need::Queue, Need::QueueAdmin],
        late_ack
    ),
    case!(
        "queue/crash-counts-an-attempt",
        "A message that is not settled is delivered again after its lease, with one attempt more and the cause.",
        ["P53", "P58"],
        [Need::Queue],
        crash
    ),
    case!(
        "queue/fences-grow",
        "Every delivery of a queue, also a redelivery, has a greater fence than all before it.",
        ["P57"],
        [Need::Queue],
        fences
    ),
    case!(
        "queue/fences-beyond-a-floor",
        "A driver with a floor for fences delivers with greater ones, and so does every other one of the same queue after it.",
        ["P20", "P57"],
        [Need::Queue, Need::FenceFloors],
        beyond_a_floor
    ),
    case!(
        "queue/return-does-not-count",
        "A delivery that is returned is due at once, and its attempt is not counted.",
        ["P58"],
        [Need::Queue],
        returned
    ),
    case!(
        "queue/returned-for-later",
        "A delivery that is returned with a delay is due after it, and its attempt is not counted.",
        ["P58"],
        [Need::Queue, Need::QueueAdmin],
        returned_for_later
    ),
    case!(
        "queue/reason-of-the-last-failure",
        "A delivery says why the last one failed, also after returns, until another failure replaces the reason.",
        ["P58"],
        [Need::Queue],
        last_failure
    ),
    case!(
        "queue/loss-is-reported",
        "A receiver whose backend is silent is notified of the lost lease before another one can get the message.",
        ["P56"],
        [Need::Queue],
        loss_is_reported
    ),
    case!(
        "queue/extension-by-hand",
        "A delivery that is extended by hand outlives its first lease; one that was delivered again says that it is lost.",
        ["P56", "P57"],
        [Need::Queue],
        by_hand
    ),
];

async fn exclusive(context: &mut Context) -> CaseResult {
    let (one, other) = (raw(context).await?, raw(context).await?);
    one.store(message("x")).await?;
    let (held, start) = (lease(context, 600), Instant::now());
    one.one(held).await?;
    while start.elapsed() + span(context, 60) < held.get() {
        other.nothing("it is leased").await?;
        context.pass(span(context, 50)).await;
    }
    let again = async || other.receive(1, held).await.map(|received| received.deliveries.len() == 1);
    context.eventually(context.soon() + other.driver.capabilities().clock_error, "delivered again", again).await?;
    assert!(start.elapsed() + other.driver.capabilities().clock_error >= held.get(), "{:?}", start.elapsed());
    Ok(())
}

async fn stale(context: &mut Context) -> CaseResult {
    let raw = raw(context).await?;
    let (short, long) = (lease(context, 80), lease(context, 30_000));
    let id = raw.store(message("x")).await?;
    let old = raw.one(short).await?.receipt;
    context.pass(short.get() * 2 + raw.driver.capabilities().clock_error).await;
    let new = raw.one(long).await?;
    for how in [
        Settlement::Ack,
        Settlement::Return { after: Default::default() },
        Settlement::Dead { reason: None },
        Settlement::Retry { after: Default::default(), reason: None },
    ] {
        assert_eq!(raw.settle(old, how.clone()).await?, Settled::Stale, "{how:?}");
        assert_eq!(raw.state(&id).await?, Some(MessageState::InFlight), "after {how:?}");
    }
    assert_eq!(raw.extend(old, long).await?, Extended::Stale);
    assert_eq!(raw.ack(new.receipt).await?, Settled::Done);
    assert_eq!(raw.counts().await?, (0, 0, 0, 0));
    Ok(())
}

async fn settled_is_stale(context: &mut Context) -> CaseResult {
    let raw = raw(context).await?;
    let long = lease(context, 30_000);
    raw.store(message("x")).await?;
    let first = raw.one(long).await?.receipt;
    raw.retry(first, Duration::ZERO).await?;
    assert_eq!(raw.ack(first).await?, Settled::Stale, "after a retry");
    assert_eq!(raw.extend(first, long).await?, Extended::Stale, "after a retry");
    let second = raw.one(long).await?.receipt;
    assert_ne!(first, second);
    assert_eq!(raw.ack(second).await?, Settled::Done);
    for receipt in [first, second] {
        assert_eq!(raw.ack(receipt).await?, Settled::Stale);
        assert_eq!(raw.retry(receipt, Duration::ZERO).await?, Settled::Stale);
    }
    raw.nothing("it was acknowledged").await
}

async fn extension(context: &mut Context) -> CaseResult {
    let raw = raw(context).await?;
    let (short, long) = (lease(context, 300), lease(context, 3_000));
    raw.store(message("x")).await?;
    let receipt = raw.one(short).await?.receipt;
    assert_eq!(raw.extend(receipt, long).await?, Extended::Extended);
    assert_eq!(raw.extend(receipt, long).await?, Extended::Extended, "it may be asked for again");
    context.pass(short.get() * 3 + raw.driver.capabilities().clock_error).await;
    raw.nothing("the lease was extended").await?;
    assert_eq!(raw.ack(receipt).await?, Settled::Done);
    Ok(())
}

async fn never_shortens(context: &mut Context) -> CaseResult {
    let raw = raw(context).await?;
    raw.store(message("x")).await?;
    let receipt = raw.one(lease(context, 4_000)).await?.receipt;
    let short = lease(context, 50);
    assert_eq!(raw.extend(receipt, short).await?, Extended::Extended);
    context.pass(short.get() * 4).await;
    raw.nothing("the longer lease lasts").await?;
    assert_eq!(raw.ack(receipt).await?, Settled::Done);
    Ok(())
}

async fn never_revives(context: &mut Context) -> CaseResult {
    let raw = raw(context).await?;
    raw.store(message("x")).await?;
    let short = lease(context, 60);
    let receipt = raw.one(short).await?.receipt;
    context.pass(short.get() * 2 + raw.driver.capabilities().clock_error * 2).await;
    assert_eq!(raw.extend(receipt, lease(context, 5_000)).await?, Extended::Stale);
    assert_eq!(raw.one(short).await?.attempt, 2);
    Ok(())
}

async fn late_ack(context: &mut Context) -> CaseResult {
    let raw = raw(context).await?;
    raw.store(message("x")).await?;
    let short = lease(context, 60);
    let receipt = raw.one(short).await?.receipt;
    context.pass(short.get() * 2).await;
    assert_eq!(raw.ack(receipt).await?, Settled::Done);
    raw.nothing("it was acknowledged").await?;
    assert_eq!(raw.counts().await?, (0, 0, 0, 0));
    Ok(())
}

async fn crash(context: &mut Context) -> CaseResult {
    let raw = raw(context).await?;
    raw.store(attempts(message("x"), 5)).await?;
    let short = lease(context, 60);
    for attempt in 1..=4 {
        let received = raw.receive(1, short).await?;
        let delivery = received.deliveries.first().expect("it is due");
        assert_eq!((delivery.attempt, delivery.attempts.get()), (attempt, 5));
        let (cause, expired) = if attempt == 1 { (Cause::First, 0) } else { (Cause::LeaseExpired, 1) };
        assert_eq!((delivery.cause, received.healed.expired), (cause, expired));
        context.pass(short.get() * 2 + raw.driver.capabilities().clock_error).await;
    }
    Ok(())
}

async fn beyond_a_floor(context: &mut Context) -> CaseResult {
    let (bench, long) = (bench(context).await?, lease(context, 30_000));
    bench.raw.push(&[message("a"), message("b"), message("c"), message("d"), message("e")]).await?;
    let mut last = bench.raw.one(long).await?.fence;
    // Further than clocks and counters get while the case runs.
    let floor = FenceFloor::new(last.get() + 3_600_000_000)?;
    let floored = context.client_beyond(floor).await?.queue_of_bytes(bench.raw.name.as_bytes())?.lease(long.get());
    for queue in [&floored, &bench.queue, &floored, &bench.queue] {
        let delivery = queue.receive().await?;
        let fence = delivery.fence();
        assert!(floor.admits(fence) && fence > last, "fence {fence} after {last}, with a floor of {floor}");
        last = fence;
        delivery.ack().await?;
    }
    Ok(())
}

async fn fences(context: &mut Context) -> CaseResult {
    let (one, other) = (raw(context).await?, raw(context).await?);
    let (short, mut last) = (lease(context, 40), 0);
    one.push(&[message("a"), message("b"), message("c")]).await?;
    for round in 0..12 {
        let raw = if round % 2 == 0 { &one } else { &other };
        for delivery in raw.take(3, short).await? {
            assert!(delivery.fence.get() > last, "{} after {last}", delivery.fence);
            last = delivery.fence.get();
            if round % 3 == 0 {
                raw.retry(delivery.receipt, Duration::ZERO).await?;
            }
        }
        context.pass(short.get() * 2).await;
    }
    assert!(last > 0, "nothing was delivered");
    Ok(())
}

async fn returned(context: &mut Context) -> CaseResult {
    let raw = raw(context).await?;
    raw.store(attempts(message("x"), 2)).await?;
    for _ in 0..5 {
        let delivery = raw.one(lease(context, 30_000)).await?;
        assert_eq!(delivery.attempt, 1);
        assert_eq!(
            raw.settle(delivery.receipt, Settlement::Return { after: Default::default() }).await?,
            Settled::Done
        );
    }
    let delivery = raw.one(lease(context, 30_000)).await?;
    assert_eq!(delivery.cause, Cause::Returned);
    Ok(())
}

async fn returned_for_later(context: &mut Context) -> CaseResult {
    let bench = bench(context).await?;
    let wait = span(context, 300);
    bench.raw.store(attempts(message("x"), 1)).await?;
    for _ in 0..3 {
        let delivery = context.within(wait + context.soon(), "due again", bench.queue.receive()).await??;
        assert_eq!(delivery.attempt(), 1);
        let start = Instant::now();
        assert_eq!(delivery.give_back(wait).await?, Settled::Done);
        assert_eq!(bench.raw.counts().await?, (1, 0, 0, 0));
        let again = context.within(wait + context.soon(), "due again", bench.queue.receive()).await??;
        let error = bench.queue.capabilities().clock_error;
        assert!(start.elapsed() + error >= wait, "after {:?}", start.elapsed());
        assert_eq!((again.attempt(), again.cause()), (1, Cause::Returned));
        again.give_back(Duration::ZERO).await?;
    }
    Ok(())
}

async fn last_failure(context: &mut Context) -> CaseResult {
    let bench = bench(context).await?;
    bench.queue.push(&b"x".to_vec()).await?;
    let reported = |delivery: &Delivery<Vec<u8>>| delivery.last_failure().map(|reason| reason.as_str().to_owned());
    let first = bench.queue.receive().await?;
    assert_eq!(reported(&first), None);
    first.nack(Nack::after(Duration::ZERO).because(Reason::new("no 1")?)).await?;
    let second = bench.queue.receive().await?;
    assert_eq!(reported(&second).as_deref(), Some("no 1"));
    second.give_back(Duration::ZERO).await?;
    let third = bench.queue.receive().await?;
    assert_eq!(reported(&third).as_deref(), Some("no 1"), "a return says nothing");
    third.nack(Duration::ZERO).await?;
    let fourth = bench.queue.receive().await?;
    assert_eq!(reported(&fourth), None, "it failed without a reason");
    fourth.ack().await?;
    Ok(())
}

async fn loss_is_reported(context: &mut Context) -> CaseResult {
    let (layer, other) = (context.layer().await?, bench(context).await?);
    let client = context.client_over(layer.backend()).build()?;
    let held = lease(context, 800);
    let queue = client.queue_of_bytes(other.raw.name.as_bytes())?.lease(held.get());
    other.raw.store(message("x")).await?;
    let start = Instant::now();
    let delivery = queue.receive().await?;
    layer.rule(crate::layer::Rule::always(crate::layer::Action::Swallow));
    assert!(!delivery.is_lost() && delivery.remaining() <= held.get());
    context.within(held.get(), "reported by the clock alone", delivery.lost()).await?;
    assert!(start.elapsed() >= held.get() / 2, "reported after {:?}", start.elapsed());
    assert!(delivery.is_lost() && delivery.remaining().is_zero());
    let again = other.raw.take(1, held).await?;
    let over = start.elapsed() + other.raw.driver.capabilities().clock_error >= held.get();
    assert!(again.is_empty() || over, "the lease lasts at the backend: {again:?}");
    layer.heal();
    Ok(())
}

async fn by_hand(context: &mut Context) -> CaseResult {
    let (bench, other) = (bench(context).await?, bench(context).await?);
    let short = lease(context, 500);
    bench.raw.store(message("x")).await?;
    let delivery = bench.queue.clone().lease(short.get()).receive().await?;
    for _ in 0..6 {
        context.pass(short.get() / 4).await;
        delivery.extend(short.get()).await?;
        other.raw.nothing("the lease was extended").await?;
    }
    context.pass(short.get() * 2 + bench.queue.capabilities().clock_error * 2).await;
    let second = other.raw.one(lease(context, 30_000)).await?;
    assert!(delivery.is_lost());
    must_fail(delivery.extend(short.get()).await, ErrorKind::Lost)?;
    assert_eq!(delivery.ack().await?, Settled::Stale);
    assert_eq!(other.raw.ack(second.receipt).await?, Settled::Done);
    Ok(())
}
