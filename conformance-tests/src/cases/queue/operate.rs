//! The operators' view of queues, and their operations.

use std::time::Duration;

use tenure_core::driver::{Extended, Flow, Next, Settled, Settlement};

use super::support::{after, bench, lease, message, named, raw, span};
use crate::case::{Case, CaseResult, Context, Need, case};

pub(in crate::cases) const CASES: &[Case] = &[
    case!(
        "queue/pause",
        "A paused queue delivers nothing and says so; earlier deliveries can be extended and settled, and pushes are stored.",
        ["P53"],
        [Need::Queue, Need::QueueAdmin],
        pause
    ),
    case!(
        "queue/purge",
        "A purge removes waiting messages, due or not, and leaves those in flight and dead ones.",
        ["P53"],
        [Need::Queue, Need::QueueAdmin],
        purge
    ),
    case!(
        "queue/purge-while-settling",
        "A purge removes all that waited when it began, also behind messages that are settled between two of its steps.",
        ["P53"],
        [Need::Queue, Need::QueueAdmin],
        purge_while_settling
    ),
    case!(
        "queue/purge-ends",
        "A purge removes all messages that waited when it began, also those due last, and ends though \
         messages are pushed all the time.",
        ["P53"],
        [Need::Queue, Need::QueueAdmin],
        purge_ends
    ),
    case!(
        "queue/stats",
        "The counts of scheduled, ready, in flight and dead are exact at every step of a message's life.",
        ["P53"],
        [Need::Queue, Need::QueueAdmin],
        stats
    ),
    case!(
        "queue/lag",
        "The lag is how long the oldest ready message has been due, and zero when none is.",
        ["P55"],
        [Need::Queue, Need::QueueAdmin],
        lag
    ),
    case!(
        "queue/list",
        "Every queue that holds a message, a dead one too, or is paused, is listed, in order; one that is empty again is not.",
        ["P53"],
        [Need::Queue, Need::QueueAdmin],
        list
    ),
    case!(
        "queue/two-queues-are-apart",
        "Messages, ids and pauses of one queue do not show in another.",
        ["P53"],
        [Need::Queue, Need::QueueAdmin],
        apart
    ),
    case!(
        "queue/odd-names",
        "Names of queues are bytes: braces, percent signs, colons, NUL and newlines neither collide nor break anything.",
        ["P26"],
        [Need::Queue, Need::QueueAdmin],
        odd_names
    ),
];

async fn pause(context: &mut Context) -> CaseResult {
    let bench = bench(context).await?;
    let raw = &bench.raw;
    raw.push(&[message("a"), message("b")]).await?;
    let delivery = raw.one(lease(context, 5_000)).await?;
    bench.queue.admin().pause().await?;
    bench.queue.admin().pause().await?;
    let received = raw.receive(5, lease(context, 5_000)).await?;
    assert!(received.deliveries.is_empty() && received.next == Next::Paused, "{received:?}");
    assert_eq!(raw.stats().await?.flow, Flow::Paused);
    assert_eq!(raw.extend(delivery.receipt, lease(context, 6_000)).await?, Extended::Extended);
    assert_eq!(raw.ack(delivery.receipt).await?, Settled::Done);
    raw.store(message("c")).await?;
    bench.queue.admin().resume().await?;
    assert_eq!(super::support::texts(&raw.take(5, lease(context, 5_000)).await?), ["b", "c"]);
    assert_eq!(raw.stats().await?.flow, Flow::Running);
    Ok(())
}

async fn purge(context: &mut Context) -> CaseResult {
    let bench = bench(context).await?;
    let raw = &bench.raw;
    raw.push(&[message("dead"), message("held")]).await?;
    let got = raw.take(2, lease(context, 30_000)).await?;
    raw.settle(got[0].receipt, Settlement::Dead { reason: None }).await?;
    let far = Duration::from_secs(300);
    raw.push(&[message("a"), after(message("b"), far), named("c", "c", far)]).await?;
    let step = raw.admin().purge(&raw.name, 1, None).await?;
    assert!(step.removed == 1 && step.next.is_some(), "{step:?}");
    assert_eq!(bench.queue.admin().purge().await?, 2);
    assert_eq!(raw.counts().await?, (0, 0, 1, 1));
    raw.store(named("c again", "c", far)).await?;
    assert_eq!(raw.ack(got[1].receipt).await?, Settled::Done);
    Ok(())
}

async fn purge_while_settling(context: &mut Context) -> CaseResult {
    let raw = raw(context).await?;
    let (soon, far) = (lease(context, 30_000), Duration::from_secs(3_600));
    for _ in 0..4 {
        raw.push(&vec![message("in flight"); 8]).await?;
    }
    let mut flying = raw.take(32, soon).await?;
    assert_eq!(flying.len(), 32);
    raw.push(&vec![after(message("waits"), far); 24]).await?;
    let (mut removed, mut from) = (0, None);
    loop {
        let step = raw.admin().purge(&raw.name, 5, from).await?;
        removed += step.removed;
        from = step.next;
        if from.is_none() {
            break;
        }
        for delivery in flying.drain(..flying.len().min(4)) {
            assert_eq!(raw.ack(delivery.receipt).await?, Settled::Done);
        }
    }
    assert_eq!((removed, raw.counts().await?), (24, (0, 0, flying.len() as u64, 0)));
    Ok(())
}

async fn purge_ends(context: &mut Context) -> CaseResult {
    let raw = raw(context).await?;
    let far = Duration::from_secs(3_600);
    raw.push(&vec![after(message("old"), far); 6]).await?;
    let (mut removed, mut from) = (0, None);
    for steps in 0.. {
        let step = raw.admin().purge(&raw.name, 3, from).await?;
        removed += step.removed;
        from = step.next;
        if from.is_none() {
            break;
        }
        assert!(steps < 50, "a purge does not end");
        raw.push(&vec![message("new"); 4]).await?;
    }
    assert_eq!((removed >= 6, raw.counts().await?.0), (true, 0), "what waited is gone");
    Ok(())
}

async fn stats(context: &mut Context) -> CaseResult {
    let raw = raw(context).await?;
    assert_eq!(raw.counts().await?, (0, 0, 0, 0));
    assert_eq!(raw.stats().await?.next_due, None);
    let (wait, short) = (span(context, 400), lease(context, 300));
    raw.push(&[after(message("b"), wait), message("a")]).await?;
    assert_eq!(raw.counts().await?, (1, 1, 0, 0));
    let due = raw.stats().await?.next_due;
    assert!(due.is_some_and(|left| left <= wait && !left.is_zero()), "{due:?}");
    let first = raw.one(short).await?;
    assert_eq!(raw.counts().await?, (1, 0, 1, 0));
    context.pass(wait + short.get()).await;
    assert_eq!(raw.counts().await?, (0, 2, 0, 0), "the lease has ended, and the other is due");
    raw.ack(first.receipt).await?;
    let second = raw.one(short).await?;
    raw.settle(second.receipt, Settlement::Dead { reason: None }).await?;
    assert_eq!(raw.counts().await?, (0, 0, 0, 1));
    Ok(())
}

async fn lag(context: &mut Context) -> CaseResult {
    let raw = raw(context).await?;
    let wait = span(context, 300);
    raw.store(after(message("x"), wait)).await?;
    assert_eq!(raw.stats().await?.lag, Duration::ZERO);
    context.pass(wait * 4).await;
    let lag = raw.stats().await?.lag;
    let slack = span(context, 250) + raw.driver.capabilities().clock_error;
    assert!(lag + slack >= wait * 3 && lag <= wait * 3 + context.soon(), "{lag:?}");
    let delivery = raw.one(lease(context, 30_000)).await?;
    assert_eq!(raw.stats().await?.lag, Duration::ZERO);
    raw.ack(delivery.receipt).await?;
    Ok(())
}

async fn list(context: &mut Context) -> CaseResult {
    let backend = context.backend().await?;
    let client = context.client_over(backend).build()?;
    let mut expected = Vec::new();
    for suffix in ["b", "a", "empty", "c", "dead", "paused"] {
        let queue = client.queue_of_bytes(context.name(suffix).as_bytes())?;
        match suffix {
            "paused" => queue.admin().pause().await?,
            "dead" => {
                queue.push(&Vec::new()).await?;
                queue.receive().await?.bury(None).await?;
            }
            _ => drop(queue.push(&Vec::new()).await?),
        }
        if suffix == "empty" {
            queue.receive().await?.ack().await?;
            continue;
        }
        expected.push(queue.name().clone());
    }
    expected.sort();
    let own = context.name("");
    let mut seen = client.list_queues().await?;
    assert!(seen.is_sorted(), "{seen:?}");
    seen.retain(|name| name.as_bytes().starts_with(own.as_bytes()));
    assert_eq!(seen, expected);
    let backend = context.backend().await?;
    let admin = backend.queue_admin().expect("operations on stored messages are declared");
    let page = admin.list_queues(Some(expected[1].clone()), 1).await?;
    assert!(page.queues.len() == 1 && page.queues[0] > expected[1], "{page:?}");
    Ok(())
}

async fn apart(context: &mut Context) -> CaseResult {
    let one = raw(context).await?;
    let name = tenure_core::queue::QueueName::new(context.name("jobs2").as_bytes())?;
    let other = one.another(name);
    one.store(named("one", "id", Duration::from_secs(60))).await?;
    other.store(named("other", "id", Duration::from_secs(60))).await?;
    one.admin().pause(&one.name).await?;
    let delivery = other.one(lease(context, 30_000)).await?;
    assert_eq!(delivery.payload.as_bytes(), b"other");
    assert_eq!(one.counts().await?, (0, 1, 0, 0));
    assert_eq!(one.ack(delivery.receipt).await?, Settled::Stale, "a receipt of another queue");
    assert_eq!(other.ack(delivery.receipt).await?, Settled::Done);
    Ok(())
}

async fn odd_names(context: &mut Context) -> CaseResult {
    let raw = raw(context).await?;
    let odd: [&[u8]; 9] = [b"{", b"}", b"{}", b"{a}b", b"%7b", b"a:b", b"a\0b", b"a\nb", b"\xff\xfe"];
    for (number, suffix) in odd.iter().enumerate() {
        let name = tenure_core::queue::QueueName::new(context.name(suffix).as_bytes())?;
        let queue = raw.another(name);
        assert_eq!(queue.counts().await?, (0, 0, 0, 0), "{} collides", queue.name);
        queue.store(message(number.to_string())).await?;
    }
    for (number, suffix) in odd.iter().enumerate() {
        let name = tenure_core::queue::QueueName::new(context.name(suffix).as_bytes())?;
        let queue = raw.another(name);
        let delivery = queue.one(lease(context, 30_000)).await?;
        assert_eq!(delivery.payload.as_bytes(), number.to_string().as_bytes());
        queue.ack(delivery.receipt).await?;
    }
    Ok(())
}
