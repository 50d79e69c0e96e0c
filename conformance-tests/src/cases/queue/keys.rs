//! Concurrency keys.

use std::time::Duration;

use tenure_core::driver::{Cancelled, Settled, Settlement};
use tenure_core::queue::ConcurrencyKey;

use super::support::{bench, keyed, lease, message, raw, texts};
use crate::case::{Case, CaseResult, Context, Need, case};

pub(in crate::cases) const CASES: &[Case] = &[
    case!(
        "queue/one-in-flight-per-key",
        "Of the messages of one key at most one is in flight; messages of other keys and of none pass.",
        ["P56"],
        [Need::Queue, Need::QueueKeys],
        one_in_flight
    ),
    case!(
        "queue/key-is-freed",
        "A key is free after an acknowledgement, a failure, a death and the end of a lease, and the next message of it comes.",
        ["P53", "P56"],
        [Need::Queue, Need::QueueKeys],
        freed
    ),
    case!(
        "queue/key-holds-nothing-back",
        "Messages that are held back by their key count as ready, can be cancelled, and come out when it is free.",
        ["P53"],
        [Need::Queue, Need::QueueAdmin, Need::QueueKeys],
        held
    ),
    case!(
        "queue/key-wakes",
        "A receive that waits is woken when the key of a held message becomes free.",
        ["P55"],
        [Need::Queue, Need::QueueKeys, Need::QueueWakeups],
        wakes
    ),
];

async fn one_in_flight(context: &mut Context) -> CaseResult {
    let raw = raw(context).await?;
    raw.push(&[keyed("a1", "a"), keyed("a2", "a"), keyed("b1", "b"), message("x"), keyed("a3", "a")]).await?;
    let got = raw.take(10, lease(context, 30_000)).await?;
    assert_eq!(texts(&got), ["a1", "b1", "x"]);
    assert_eq!(got[0].key, Some(ConcurrencyKey::new("a")?));
    raw.nothing("the key is busy").await?;
    raw.ack(got[0].receipt).await?;
    let got = raw.take(10, lease(context, 30_000)).await?;
    assert_eq!(texts(&got), ["a2"]);
    raw.ack(got[0].receipt).await?;
    assert_eq!(texts(&raw.take(10, lease(context, 30_000)).await?), ["a3"]);
    Ok(())
}

async fn freed(context: &mut Context) -> CaseResult {
    let raw = raw(context).await?;
    let long = lease(context, 30_000);
    raw.push(&[keyed("1", "k"), keyed("2", "k"), keyed("3", "k"), keyed("4", "k")]).await?;
    let first = raw.one(long).await?;
    raw.settle(first.receipt, Settlement::Dead { reason: None }).await?;
    let second = raw.one(long).await?;
    assert_eq!(second.payload.as_bytes(), b"2");
    raw.retry(second.receipt, Duration::from_secs(300)).await?;
    let short = lease(context, 700);
    let third = raw.one(short).await?;
    assert_eq!(third.payload.as_bytes(), b"3");
    raw.nothing("the key is busy").await?;
    context.pass(short.get() * 2 + raw.driver.capabilities().clock_error).await;
    let again = raw.one(long).await?;
    assert_eq!((again.payload.as_bytes(), again.attempt), (&b"3"[..], 2));
    raw.nothing("the key is busy").await?;
    assert_eq!(raw.ack(again.receipt).await?, Settled::Done);
    assert_eq!(raw.one(long).await?.payload.as_bytes(), b"4");
    Ok(())
}

async fn held(context: &mut Context) -> CaseResult {
    let raw = raw(context).await?;
    let long = lease(context, 30_000);
    raw.store(keyed("1", "k")).await?;
    let first = raw.one(long).await?;
    let second = raw.store(keyed("2", "k")).await?;
    raw.store(keyed("3", "k")).await?;
    raw.nothing("the key is busy").await?;
    assert_eq!(raw.counts().await?, (0, 2, 1, 0));
    assert_eq!(raw.admin().cancel(&raw.name, &second).await?, Cancelled::Removed);
    raw.ack(first.receipt).await?;
    let third = raw.one(long).await?;
    assert_eq!(third.payload.as_bytes(), b"3");
    raw.push(&[keyed("4", "k"), keyed("5", "k")]).await?;
    raw.nothing("the key is busy").await?;
    assert_eq!(raw.admin().purge(&raw.name, 100, None).await?.removed, 2);
    raw.ack(third.receipt).await?;
    assert_eq!(raw.counts().await?, (0, 0, 0, 0));
    Ok(())
}

async fn wakes(context: &mut Context) -> CaseResult {
    let (bench, other) = (bench(context).await?, bench(context).await?);
    bench.queue.push(&b"1".to_vec()).concurrency_key("k").await?;
    let first = other.queue.receive().await?;
    bench.queue.push(&b"2".to_vec()).concurrency_key("k").await?;
    let queue = bench.queue.clone();
    let waiting = tokio::spawn(async move { queue.receive().await });
    context.pass(context.ms(300)).await;
    assert!(!waiting.is_finished(), "the key is busy");
    first.ack().await?;
    let second = context.within(context.ms(500), "woken", waiting).await???;
    assert_eq!(second.payload().as_bytes(), b"2");
    second.ack().await?;
    Ok(())
}
