//! Messages by their ids: idempotent pushes, cancellation, rescheduling.

use std::time::Duration;

use tenure_core::driver::{Cancelled, MessageState, Pushed, Rescheduled, Settled, Settlement};
use tenure_core::queue::MessageId;

use super::support::{after, bench, delay, lease, message, named, raw, span};
use crate::case::{Case, CaseResult, Context, Need, case};

const HOUR: Duration = Duration::from_secs(3_600);

pub(in crate::cases) const CASES: &[Case] = &[
    case!(
        "queue/duplicate-returns-the-state",
        "A push with a known id stores nothing, changes nothing, and returns the state of the known message, in every state.",
        ["P59"],
        [Need::Queue, Need::QueueAdmin],
        duplicate
    ),
    case!(
        "queue/duplicate-in-a-batch",
        "An id that occurs twice in one batch is stored once, and the answers say which.",
        ["P59"],
        [Need::Queue, Need::QueueAdmin],
        in_a_batch
    ),
    case!(
        "queue/id-outlives-the-ack",
        "An id stays known for its window after the acknowledgement, and is free when that has passed.",
        ["P59"],
        [Need::Queue],
        window
    ),
    case!(
        "queue/id-without-window",
        "An id with a window of zero is free as soon as its message is acknowledged.",
        ["P59"],
        [Need::Queue],
        no_window
    ),
    case!(
        "queue/cancelled-id-is-free",
        "The id of a cancelled message can be pushed again at once, whatever its window.",
        ["P59"],
        [Need::Queue, Need::QueueAdmin],
        cancelled_free
    ),
    case!(
        "queue/cancel-returns-the-state",
        "Cancelling removes a waiting message and says so; a message in flight, dead or unknown is reported and not changed.",
        ["P53"],
        [Need::Queue, Need::QueueAdmin],
        cancel
    ),
    case!(
        "queue/reschedule-returns-the-state",
        "Rescheduling moves a waiting message, sooner or later; a message in flight, dead or unknown is reported and not changed.",
        ["P54"],
        [Need::Queue, Need::QueueAdmin],
        reschedule
    ),
    case!(
        "queue/cancel-or-deliver",
        "Of a cancellation and a receive at the same time exactly one gets the message.",
        ["P53", "P56"],
        [Need::Queue, Need::QueueAdmin],
        race
    ),
    case!(
        "queue/get-returns-everything",
        "A look at a message returns its state, attempts, due time and payload, and changes nothing.",
        ["P53"],
        [Need::Queue, Need::QueueAdmin],
        get
    ),
];

async fn again(raw: &super::support::Raw, id: &str) -> CaseResult<Pushed> {
    Ok(raw.push(&[named("other", id, HOUR)]).await?.remove(0))
}

async fn duplicate(context: &mut Context) -> CaseResult {
    let raw = raw(context).await?;
    let wait = span(context, 200);
    raw.store(after(named("x", "id", HOUR), wait)).await?;
    assert_eq!(again(&raw, "id").await?, Pushed::Duplicate(MessageState::Scheduled));
    context.pass(wait * 2).await;
    assert_eq!(again(&raw, "id").await?, Pushed::Duplicate(MessageState::Ready));
    let delivery = raw.one(lease(context, 30_000)).await?;
    assert_eq!((delivery.payload.as_bytes(), delivery.id), (&b"x"[..], MessageId::named("id")?));
    assert_eq!(again(&raw, "id").await?, Pushed::Duplicate(MessageState::InFlight));
    raw.settle(delivery.receipt, Settlement::Dead { reason: None }).await?;
    assert_eq!(again(&raw, "id").await?, Pushed::Duplicate(MessageState::Dead));
    assert_eq!(raw.counts().await?, (0, 0, 0, 1));
    Ok(())
}

async fn in_a_batch(context: &mut Context) -> CaseResult {
    let raw = raw(context).await?;
    let batch = [named("a", "one", HOUR), message("b"), named("c", "one", HOUR)];
    let pushed = raw.push(&batch).await?;
    assert_eq!(pushed[0], Pushed::Stored(MessageId::named("one")?));
    assert!(matches!(pushed[1], Pushed::Stored(_)));
    assert!(matches!(pushed[2], Pushed::Duplicate(_)), "{pushed:?}");
    assert_eq!(raw.counts().await?, (0, 2, 0, 0));
    Ok(())
}

async fn window(context: &mut Context) -> CaseResult {
    let raw = raw(context).await?;
    let window = span(context, 900);
    raw.store(named("x", "id", window)).await?;
    let delivery = raw.one(lease(context, 30_000)).await?;
    context.pass(window + window / 4).await; // the window begins with the acknowledgement
    raw.ack(delivery.receipt).await?;
    assert_eq!(again(&raw, "id").await?, Pushed::Duplicate(MessageState::Settled));
    raw.nothing("it was a duplicate").await?;
    context.pass(window + window / 4).await;
    assert!(matches!(again(&raw, "id").await?, Pushed::Stored(_)), "the window has passed");
    Ok(())
}

async fn no_window(context: &mut Context) -> CaseResult {
    let raw = raw(context).await?;
    for _ in 0..3 {
        raw.store(named("x", "id", Duration::ZERO)).await?;
        let delivery = raw.one(lease(context, 30_000)).await?;
        raw.ack(delivery.receipt).await?;
    }
    Ok(())
}

async fn cancelled_free(context: &mut Context) -> CaseResult {
    let bench = bench(context).await?;
    let id = bench.raw.store(after(named("x", "id", HOUR), HOUR)).await?;
    assert_eq!(bench.queue.cancel(&id).await?, Cancelled::Removed);
    bench.raw.store(named("y", "id", HOUR)).await?;
    assert_eq!(bench.raw.one(lease(context, 30_000)).await?.payload.as_bytes(), b"y");
    Ok(())
}

async fn cancel(context: &mut Context) -> CaseResult {
    let bench = bench(context).await?;
    let (queue, raw) = (&bench.queue, &bench.raw);
    let scheduled = raw.store(after(message("a"), HOUR)).await?;
    let ready = raw.store(named("b", "b", HOUR)).await?;
    for id in [&scheduled, &ready] {
        assert_eq!(queue.cancel(id).await?, Cancelled::Removed);
        assert_eq!(queue.cancel(id).await?, Cancelled::NotFound);
    }
    raw.nothing("it was cancelled").await?;
    let id = raw.store(message("c")).await?;
    let delivery = raw.one(lease(context, 30_000)).await?;
    assert_eq!(queue.cancel(&id).await?, Cancelled::InFlight);
    assert_eq!(raw.settle(delivery.receipt, Settlement::Dead { reason: None }).await?, Settled::Dead);
    assert_eq!(queue.cancel(&id).await?, Cancelled::Dead);
    assert_eq!(queue.cancel(&MessageId::named("unknown")?).await?, Cancelled::NotFound);
    assert_eq!(raw.counts().await?, (0, 0, 0, 1));
    Ok(())
}

async fn reschedule(context: &mut Context) -> CaseResult {
    let bench = bench(context).await?;
    let (queue, raw) = (&bench.queue, &bench.raw);
    let id = raw.store(after(message("a"), HOUR)).await?;
    assert_eq!(queue.reschedule(&id, Duration::ZERO).await?, Rescheduled::Moved);
    assert_eq!(raw.state(&id).await?, Some(MessageState::Ready));
    assert_eq!(queue.reschedule(&id, HOUR).await?, Rescheduled::Moved);
    raw.nothing("it was put off").await?;
    assert_eq!(queue.reschedule(&id, Duration::ZERO).await?, Rescheduled::Moved);
    let delivery = raw.one(lease(context, 30_000)).await?;
    assert_eq!(queue.reschedule(&id, HOUR).await?, Rescheduled::InFlight);
    assert_eq!(raw.settle(delivery.receipt, Settlement::Dead { reason: None }).await?, Settled::Dead);
    assert_eq!(queue.reschedule(&id, HOUR).await?, Rescheduled::Dead);
    assert_eq!(queue.reschedule(&MessageId::named("unknown")?, HOUR).await?, Rescheduled::NotFound);
    Ok(())
}

async fn race(context: &mut Context) -> CaseResult {
    let (one, other) = (raw(context).await?, raw(context).await?);
    let mut cancelled = 0;
    for round in 0..300 {
        let id = one.store(message(round.to_string())).await?;
        let cancel = async || one.admin().cancel(&one.name, &id).await;
        let receive = async || other.take(1, lease(context, 30_000)).await;
        let (verdict, got) = match round % 2 {
            0 => tokio::join!(cancel(), receive()),
            _ => {
                let (got, verdict) = tokio::join!(receive(), cancel());
                (verdict, got)
            }
        };
        let (verdict, got) = (verdict?, got?);
        cancelled += u32::from(verdict == Cancelled::Removed);
        assert_eq!(verdict == Cancelled::Removed, got.is_empty(), "round {round}: {verdict:?} and {got:?}");
        for delivery in got {
            other.ack(delivery.receipt).await?;
        }
    }
    assert!(cancelled > 0, "no cancellation came first");
    Ok(())
}

async fn get(context: &mut Context) -> CaseResult {
    let bench = bench(context).await?;
    let wait = Duration::from_secs(300);
    let id = bench.raw.store(after(named("x", "id", HOUR), wait)).await?;
    let info = bench.queue.admin().get(&id).await?.expect("it is stored");
    assert_eq!((info.id, info.state, info.attempt), (id.clone(), MessageState::Scheduled, 0));
    assert!(info.due_in <= wait && info.due_in > wait / 2 && info.payload.as_bytes() == b"x");
    bench.queue.reschedule(&id, Duration::ZERO).await?;
    bench.raw.one(lease(context, 30_000)).await?;
    let info = bench.queue.admin().get(&id).await?.expect("it is stored");
    assert_eq!((info.state, info.attempt), (MessageState::InFlight, 1));
    assert!(info.due_in <= span(context, 30_000), "the rest of the lease: {:?}", info.due_in);
    assert!(bench.queue.admin().get(&MessageId::named("unknown")?).await?.is_none());
    assert_eq!(delay(wait).get(), wait);
    Ok(())
}
