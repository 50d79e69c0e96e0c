//! Recurring messages on a schedule, as the driver sees them.

use std::time::Duration;

use tenure_core::driver::{Cause, DeadCause, MessageState, NewMessage, Pushed, Settled, Settlement};
use tenure_core::queue::{MessageId, Missed, Reason, Recurrence};

use super::support::{attempts, bench, delay, keyed, lease, message, named, raw, span};
use super::wake::{at_once, woken_by};
use crate::case::{Case, CaseResult, Context, Need, case};

pub(in crate::cases) const CASES: &[Case] = &[
    case!(
        "queue/recur",
        "A message that recurs is due again after the span, as if for the first time, with the new recurrence and the reason; its id stays known.",
        ["P54", "P57", "P59"],
        [Need::Queue, Need::QueueAdmin],
        recur
    ),
    case!(
        "queue/recur-begins-anew",
        "Each occurrence has its full number of attempts, and no end of its time from the one before.",
        ["P58"],
        [Need::Queue, Need::QueueAdmin],
        begins_anew
    ),
    case!(
        "queue/recur-needs-the-receipt",
        "A stale receipt lets nothing recur, and a message that recurred cannot be settled by its old one.",
        ["P57"],
        [Need::Queue, Need::QueueAdmin],
        needs_the_receipt
    ),
    case!(
        "queue/recur-frees-the-key",
        "A message that recurs later leaves its concurrency key to the next.",
        ["P56"],
        [Need::Queue, Need::QueueAdmin, Need::QueueKeys],
        frees_the_key
    ),
    case!(
        "queue/recur-wakes",
        "A receive that waits is woken when another client lets a message recur.",
        ["P55"],
        [Need::Queue, Need::QueueAdmin, Need::QueueWakeups],
        wakes
    ),
];

const HOUR: Duration = Duration::from_secs(3_600);

fn recurrence(text: &str) -> Recurrence {
    Recurrence::new(text).expect("cases use short recurrences")
}

fn recurring(message: NewMessage) -> NewMessage {
    message.with_recurrence(Some(recurrence("the first")))
}

fn again(after: Duration) -> Settlement {
    Settlement::Recur { after: delay(after), recurrence: recurrence("the next"), reason: None }
}

async fn recur(context: &mut Context) -> CaseResult {
    let raw = raw(context).await?;
    let (wait, long) = (span(context, 400), lease(context, 30_000));
    let id = raw.store(recurring(named("x", "id", HOUR))).await?;
    let info = raw.admin().get(&raw.name, &id).await?.expect("it is stored");
    assert_eq!(info.recurrence, Some(recurrence("the first")));
    let delivery = raw.one(long).await?;
    assert_eq!(delivery.recurrence, Some(recurrence("the first")));
    let reason = Some(Reason::new("it failed")?);
    let how = Settlement::Recur { after: delay(wait), recurrence: recurrence("a new one"), reason: reason.clone() };
    assert_eq!(raw.settle(delivery.receipt, how).await?, Settled::Done);
    let info = raw.admin().get(&raw.name, &id).await?.expect("it waits");
    assert_eq!((info.attempt, &info.recurrence, &info.reason), (0, &Some(recurrence("a new one")), &reason));
    assert!(info.due_in <= wait, "{:?}", info.due_in);
    assert!(matches!(raw.push(&[named("other", "id", HOUR)]).await?[0], Pushed::Duplicate(_)));
    raw.nothing("it is not due").await?;
    context.pass(wait + raw.driver.capabilities().clock_error).await;
    let delivery = raw.one(long).await?;
    assert_eq!((&delivery.id, delivery.payload.as_bytes()), (&id, &b"x"[..]));
    assert_eq!((delivery.attempt, delivery.cause), (1, Cause::First));
    assert_eq!((delivery.recurrence, delivery.reason), (Some(recurrence("a new one")), reason));
    assert_eq!(raw.ack(delivery.receipt).await?, Settled::Done);
    assert_eq!(raw.counts().await?, (0, 0, 0, 0), "the last occurrence has ended");
    let pushed = raw.push(&[named("other", "id", HOUR)]).await?;
    assert_eq!(pushed, [Pushed::Duplicate(MessageState::Settled)]);
    Ok(())
}

async fn begins_anew(context: &mut Context) -> CaseResult {
    let raw = raw(context).await?;
    let long = lease(context, 30_000);
    let id = raw.store(recurring(attempts(message("x"), 2)).with_ttl(Some(delay(HOUR)))).await?;
    for _occurrence in 0..2 {
        let first = raw.one(long).await?;
        assert_eq!((first.attempt, first.cause), (1, Cause::First));
        assert_eq!(raw.retry(first.receipt, Duration::ZERO).await?, Settled::Done);
        let second = raw.one(long).await?;
        assert_eq!((second.attempt, second.cause), (2, Cause::Retried));
        assert_eq!(raw.settle(second.receipt, again(Duration::ZERO)).await?, Settled::Done);
        let info = raw.admin().get(&raw.name, &id).await?.expect("it waits");
        assert_eq!((info.attempt, info.expires_in), (0, None));
    }
    for settled in [Settled::Done, Settled::Dead] {
        let delivery = raw.one(long).await?;
        assert_eq!(raw.retry(delivery.receipt, Duration::ZERO).await?, settled);
    }
    let letters = raw.admin().dead_list(&raw.name, None, 10).await?.letters;
    assert_eq!(letters.iter().map(|l| (l.attempt, l.cause)).collect::<Vec<_>>(), [(2, DeadCause::Exhausted)]);
    Ok(())
}

async fn needs_the_receipt(context: &mut Context) -> CaseResult {
    let raw = raw(context).await?;
    let long = lease(context, 30_000);
    let id = raw.store(recurring(message("x"))).await?;
    let first = raw.one(long).await?;
    assert_eq!(raw.settle(first.receipt, again(Duration::ZERO)).await?, Settled::Done);
    for how in [again(HOUR), Settlement::Ack] {
        assert_eq!(raw.settle(first.receipt, how).await?, Settled::Stale);
    }
    let second = raw.one(long).await?;
    assert_eq!(raw.settle(first.receipt, again(HOUR)).await?, Settled::Stale);
    assert_eq!(raw.state(&id).await?, Some(MessageState::InFlight));
    assert_eq!(raw.ack(second.receipt).await?, Settled::Done);
    assert_eq!(raw.settle(second.receipt, again(Duration::ZERO)).await?, Settled::Stale);
    assert_eq!(raw.counts().await?, (0, 0, 0, 0));
    Ok(())
}

async fn frees_the_key(context: &mut Context) -> CaseResult {
    let raw = raw(context).await?;
    let long = lease(context, 30_000);
    raw.push(&[recurring(keyed("recurs", "k")), keyed("next", "k")]).await?;
    let first = raw.one(long).await?;
    raw.nothing("the key is busy").await?;
    assert_eq!(raw.settle(first.receipt, again(HOUR)).await?, Settled::Done);
    assert_eq!(raw.one(long).await?.payload.as_bytes(), b"next");
    assert_eq!(raw.counts().await?, (1, 0, 1, 0));
    Ok(())
}

async fn wakes(context: &mut Context) -> CaseResult {
    let first = bench(context).await?;
    first.queue.recurring("id").every(HOUR).missed(Missed::RunOnce).ensure(&Vec::new()).await?;
    first.queue.reschedule(&MessageId::named("id")?, Duration::ZERO).await?;
    let delivery = first.raw.one(lease(context, 60_000)).await?;
    // One that clients understand: they leave others alone.
    let recurrence = delivery.recurrence.expect("it recurs");
    let how = Settlement::Recur { after: Default::default(), recurrence, reason: None };
    let took = woken_by(context, async |other| {
        assert_eq!(other.raw.settle(delivery.receipt, how).await?, Settled::Done);
        Ok(())
    });
    let took = took.await?;
    at_once(context, took);
    Ok(())
}
