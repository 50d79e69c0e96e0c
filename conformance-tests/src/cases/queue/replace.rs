//! Pushes that replace a known message with the same id.

use std::time::Duration;

use tenure_core::driver::{Cause, IfKnown, Lease, MessageState, NewMessage, Pushed, Settled, Settlement};
use tenure_core::queue::{MessageId, Reason};

use super::support::{after, attempts, delay, keyed, lease, message, named, raw, texts};
use super::wake::{at_once, woken_by};
use crate::case::{Case, CaseResult, Context, Need, case};

pub(in crate::cases) const CASES: &[Case] = &[
    case!(
        "queue/replace-what-waits",
        "A replacing push takes the place of a message that waits, due or not: payload, due time and attempts are the new ones.",
        ["P59"],
        [Need::Queue, Need::QueueAdmin],
        what_waits
    ),
    case!(
        "queue/replace-not-in-flight",
        "A message in flight, dead or settled is not replaced, and the push returns its state; one whose lease has ended is replaced.",
        ["P56", "P59"],
        [Need::Queue, Need::QueueAdmin],
        not_in_flight
    ),
    case!(
        "queue/replace-in-a-batch",
        "Of several messages of one id in a batch each that replaces takes the place of the one before it.",
        ["P59"],
        [Need::Queue, Need::QueueAdmin],
        in_a_batch
    ),
    case!(
        "queue/replace-frees-the-key",
        "A message that replaces one of a busy key is bound by its own key alone, and the others of the old key are delivered.",
        ["P56", "P59"],
        [Need::Queue, Need::QueueKeys],
        frees_the_key
    ),
    case!(
        "queue/replace-wakes",
        "A receive that waits for a far message is woken when it is replaced by one that is due now.",
        ["P55", "P59"],
        [Need::Queue, Need::QueueWakeups],
        wakes
    ),
];

const HOUR: Duration = Duration::from_secs(3_600);

fn replacing(message: NewMessage) -> NewMessage {
    message.with_if_known(IfKnown::Replace)
}

/// A message of the id `id` that replaces.
fn new(text: &str) -> NewMessage {
    replacing(named(text, "id", HOUR))
}

fn of_id(pushed: &Pushed) -> bool {
    matches!(pushed, Pushed::Replaced(id) if id.as_name() == Some(b"id"))
}

async fn what_waits(context: &mut Context) -> CaseResult {
    let raw = raw(context).await?;
    let id = raw.store(after(new("first"), HOUR)).await?;
    assert!(of_id(&raw.push(&[after(attempts(new("second"), 5), HOUR * 2)]).await?[0]));
    let info = raw.admin().get(&raw.name, &id).await?.expect("it is stored");
    assert_eq!((info.payload.as_bytes(), info.attempts.get()), (&b"second"[..], 5));
    assert!(info.due_in > HOUR && info.due_in <= HOUR * 2, "{:?}", info.due_in);
    assert!(of_id(&raw.push(&[new("third")]).await?[0]));
    assert_eq!(raw.counts().await?, (0, 1, 0, 0));
    assert!(of_id(&raw.push(&[attempts(new("fourth"), 3)]).await?[0]), "a ready one is replaced as well");
    let delivery = raw.one(lease(context, 30_000)).await?;
    assert_eq!((delivery.payload.as_bytes(), &delivery.id), (&b"fourth"[..], &id));
    // What the earlier deliveries did is not the new one's.
    let how = Settlement::Retry { after: delay(HOUR), reason: Some(Reason::new("not yet")?) };
    raw.settle(delivery.receipt, how).await?;
    assert!(of_id(&raw.push(&[attempts(new("fifth"), 3)]).await?[0]));
    let delivery = raw.one(lease(context, 30_000)).await?;
    assert_eq!((delivery.payload.as_bytes(), delivery.attempts.get()), (&b"fifth"[..], 3));
    assert_eq!((delivery.attempt, delivery.cause, delivery.reason), (1, Cause::First, None));
    assert_eq!(raw.ack(delivery.receipt).await?, Settled::Done);
    assert_eq!(raw.counts().await?, (0, 0, 0, 0), "the replaced message is gone");
    Ok(())
}

async fn not_in_flight(context: &mut Context) -> CaseResult {
    let raw = raw(context).await?;
    let (short, long) = (lease(context, 100), lease(context, 30_000));
    let again = async |text| Ok::<_, crate::case::Failure>(raw.push(&[new(text)]).await?.remove(0));
    raw.store(new("first")).await?;
    let ended = raw.one(short).await?;
    context.pass(short.get() * 2 + raw.driver.capabilities().clock_error).await;
    assert!(of_id(&again("second").await?), "its lease has ended");
    assert_eq!(raw.ack(ended.receipt).await?, Settled::Stale);
    let delivery = raw.one(long).await?;
    assert_eq!((delivery.payload.as_bytes(), delivery.attempt), (&b"second"[..], 1));
    assert_eq!(again("third").await?, Pushed::Duplicate(MessageState::InFlight));
    assert_eq!(raw.settle(delivery.receipt, Settlement::Dead { reason: None }).await?, Settled::Dead);
    assert_eq!(again("third").await?, Pushed::Duplicate(MessageState::Dead));
    let letters = raw.admin().dead_list(&raw.name, None, 10).await?.letters;
    assert_eq!(letters.iter().map(|letter| letter.payload.as_bytes()).collect::<Vec<_>>(), [b"second"]);
    raw.store(replacing(named("other", "other", HOUR))).await?;
    let delivery = raw.one(long).await?;
    raw.ack(delivery.receipt).await?;
    let pushed = raw.push(&[replacing(named("again", "other", HOUR))]).await?;
    assert_eq!(pushed, [Pushed::Duplicate(MessageState::Settled)]);
    assert_eq!(raw.counts().await?, (0, 0, 0, 1));
    Ok(())
}

async fn in_a_batch(context: &mut Context) -> CaseResult {
    let raw = raw(context).await?;
    let kept = named("kept", "id", HOUR);
    let batch = [new("a"), message("plain"), after(new("b"), HOUR), kept.clone(), new("c"), kept];
    let pushed = raw.push(&batch).await?;
    assert_eq!(pushed[0], Pushed::Stored(MessageId::named("id")?));
    assert!(matches!(pushed[1], Pushed::Stored(_)), "{pushed:?}");
    assert!(of_id(&pushed[2]) && of_id(&pushed[4]), "{pushed:?}");
    assert_eq!(pushed[3], Pushed::Duplicate(MessageState::Scheduled));
    assert!(matches!(pushed[5], Pushed::Duplicate(_)), "{pushed:?}");
    assert_eq!(raw.counts().await?, (0, 2, 0, 0));
    assert_eq!(texts(&raw.take(10, Lease::DEFAULT).await?), ["plain", "c"], "the new one comes in its own turn");
    assert_eq!(raw.counts().await?, (0, 0, 2, 0));
    Ok(())
}

async fn frees_the_key(context: &mut Context) -> CaseResult {
    let raw = raw(context).await?;
    let long = lease(context, 30_000);
    let of_key = |message: NewMessage, key: &str| message.with_key(keyed("", key).key);
    raw.store(keyed("flying", "k")).await?;
    let flying = raw.one(long).await?;
    raw.push(&[of_key(new("held"), "k"), keyed("next", "k")]).await?;
    raw.nothing("the key is busy").await?;
    assert!(of_id(&raw.push(&[new("free")]).await?[0]));
    let free = raw.one(long).await?;
    assert_eq!((free.payload.as_bytes(), free.key), (&b"free"[..], None));
    raw.nothing("the key is busy").await?;
    raw.ack(flying.receipt).await?;
    let next = raw.one(long).await?;
    assert_eq!(next.payload.as_bytes(), b"next");
    let other = |text: &str| replacing(named(text, "other", HOUR));
    raw.push(&[other("no key"), of_key(other("of the key"), "k")]).await?;
    raw.nothing("the new one is of the busy key").await?;
    raw.ack(next.receipt).await?;
    assert_eq!(texts(&raw.take(5, long).await?), ["of the key"]);
    Ok(())
}

async fn wakes(context: &mut Context) -> CaseResult {
    let took = woken_by(context, async |other| {
        other.raw.store(after(new("far"), HOUR)).await?;
        assert!(of_id(&other.raw.push(&[new("now")]).await?[0]));
        Ok(())
    });
    let took = took.await?;
    at_once(context, took);
    Ok(())
}
