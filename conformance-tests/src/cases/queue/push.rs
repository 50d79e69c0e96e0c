//! Pushes as clients make them: many at once, each with its options; debounced.

use std::time::Duration;

use tenure_core::ErrorKind;
use tenure_core::driver::{MessageState, Pushed};
use tenure_core::queue::{Message, MessageId};
use tokio::time::Instant;

use super::support::{bench, lease, span, texts};
use crate::case::{Case, CaseResult, Context, Need, case};
use crate::layer::{Action, Op, Rule};

pub(in crate::cases) const CASES: &[Case] = &[
    case!(
        "queue/push-many-whole-messages",
        "Each message of a push of many has options of its own, and with ids it can be repeated without doubling anything.",
        ["P59"],
        [Need::Queue, Need::QueueAdmin],
        whole
    ),
    case!(
        "queue/push-many-is-split",
        "A push of more messages than a batch leaves in several requests, in order; when one fails, the earlier answers are returned.",
        ["P53", "P60"],
        [Need::Queue, Need::QueueAdmin],
        split
    ),
    case!(
        "queue/push-many-is-split-by-bytes",
        "A push of more bytes than a request takes leaves in several requests, and everything is stored.",
        ["P53", "P60"],
        [Need::Queue, Need::QueueAdmin, Need::ReachableRequest],
        split_by_bytes
    ),
    case!(
        "queue/debounce",
        "Of several pushes that replace each other, each with a delay, the last is delivered, once, its delay after it was pushed.",
        ["P54", "P59"],
        [Need::Queue, Need::QueueAdmin],
        debounce
    ),
];

const HOUR: Duration = Duration::from_secs(3_600);

async fn whole(context: &mut Context) -> CaseResult {
    let bench = bench(context).await?;
    let (plain, late, short) = (b"plain".to_vec(), b"late".to_vec(), b"short".to_vec());
    let batch = || {
        [
            Message::new(&plain).id("plain"),
            Message::new(&late).id("late").delay(HOUR).max_attempts(7).lock("account"),
            Message::new(&short).id("short").ttl(HOUR),
        ]
    };
    let pushed = bench.queue.push_many(batch()).await?;
    assert!(pushed.iter().all(|answer| matches!(answer, Pushed::Stored(_))), "{pushed:?}");
    let late = bench.queue.admin().get(&MessageId::named("late")?).await?.expect("it is stored");
    assert_eq!((late.state, late.attempts.get()), (MessageState::Scheduled, 7));
    assert!(late.due_in > HOUR / 2 && late.lock.is_some() && late.expires_in.is_none(), "{late:?}");
    let short = bench.queue.admin().get(&MessageId::named("short")?).await?.expect("it is stored");
    assert!(short.expires_in.is_some_and(|left| left > HOUR / 2) && short.lock.is_none(), "{short:?}");
    let pushed = bench.queue.push_many(batch()).await?;
    assert!(pushed.iter().all(|answer| matches!(answer, Pushed::Duplicate(_))), "{pushed:?}");
    assert_eq!(texts(&bench.raw.take(5, lease(context, 30_000)).await?), ["plain", "short"]);
    assert_eq!(bench.raw.counts().await?, (1, 0, 2, 0));
    Ok(())
}

async fn split(context: &mut Context) -> CaseResult {
    let (client, layer) = context.layered().await?;
    let (queue, bench) = (client.queue_of_bytes(context.name("jobs").as_bytes())?, bench(context).await?);
    let batch = queue.capabilities().batch;
    let values: Vec<_> = (0..batch + 3).map(|number| format!("{number:06}").into_bytes()).collect();
    layer.rule(Rule::on(Op::Push, Action::FailBeforeSend).after(1).once());
    let failed = queue.push_many(&values).await.expect_err("the second request fails");
    assert_eq!((failed.pushed().len(), failed.error().kind()), (batch, ErrorKind::Unavailable));
    assert_eq!(bench.raw.counts().await?, (0, batch as u64, 0, 0));
    assert_eq!(bench.queue.admin().purge().await?, batch as u64);
    assert_eq!(queue.push_many(&values).await?.len(), batch + 3);
    assert_eq!(layer.frames_of(Op::Push, &context.name("jobs")).len(), 4);
    let mut seen = Vec::new();
    while seen.len() < values.len() {
        let some = texts(&bench.raw.take(batch, lease(context, 60_000)).await?);
        assert!(!some.is_empty(), "{} came", seen.len());
        seen.extend(some);
    }
    assert!(seen.is_sorted(), "they come in the order of the push");
    assert_eq!(bench.raw.counts().await?, (0, 0, values.len() as u64, 0));
    Ok(())
}

async fn split_by_bytes(context: &mut Context) -> CaseResult {
    let (client, layer) = context.layered().await?;
    let queue = client.queue_of_bytes(context.name("jobs").as_bytes())?;
    let caps = queue.capabilities();
    let values = vec![vec![b'x'; caps.payload]; caps.request_bytes / caps.payload + 1];
    assert_eq!(queue.push_many(&values).await?.len(), values.len());
    assert_eq!(layer.frames_of(Op::Push, &context.name("jobs")).len(), 2);
    assert_eq!(queue.admin().stats().await?.ready, values.len() as u64);
    Ok(())
}

async fn debounce(context: &mut Context) -> CaseResult {
    let bench = bench(context).await?;
    let (wait, mut start) = (span(context, 300), Instant::now());
    for number in 0..4_u8 {
        start = Instant::now();
        let pushed = bench.queue.push(&vec![number]).id("x").replace().delay(wait).await?;
        assert_eq!(matches!(pushed, Pushed::Replaced(_)), number > 0, "{pushed:?}");
        context.pass(wait / 6).await;
    }
    let delivery = context.within(wait + context.soon(), "delivered", bench.queue.receive()).await??;
    assert!(start.elapsed() + bench.queue.capabilities().clock_error >= wait, "{:?}", start.elapsed());
    assert_eq!(delivery.payload().as_bytes(), [3]);
    let pushed = bench.queue.push(&vec![9]).id("x").replace().await?;
    assert_eq!(pushed, Pushed::Duplicate(MessageState::InFlight));
    delivery.ack().await?;
    assert_eq!(bench.raw.counts().await?, (0, 0, 0, 0));
    Ok(())
}
