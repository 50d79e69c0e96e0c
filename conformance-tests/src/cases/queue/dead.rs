//! Dead letters.

use std::time::Duration;

use tenure_core::driver::{Cause, DeadCause, MessageState, Settled, Settlement};
use tenure_core::queue::{MessageId, Reason};

use super::support::{Raw, attempts, bench, lease, message, raw, span};
use crate::case::{Case, CaseResult, Context, Need, case};

pub(in crate::cases) const CASES: &[Case] = &[
    case!(
        "queue/dead-after-failures",
        "The failure of the last attempt moves the message to the dead letters at once, with its payload and the last reason.",
        ["P58"],
        [Need::Queue, Need::QueueAdmin],
        after_failures
    ),
    case!(
        "queue/dead-after-crashes",
        "A message whose last lease ended moves to the dead letters instead of being delivered once more, and says so.",
        ["P58"],
        [Need::Queue, Need::QueueAdmin],
        after_crashes
    ),
    case!(
        "queue/rejected",
        "A message that a consumer rejects is dead at once, whatever attempts are left, and says so.",
        ["P58"],
        [Need::Queue, Need::QueueAdmin],
        rejected
    ),
    case!(
        "queue/redrive-gives-all-attempts",
        "A redriven message is delivered again with all its attempts before it.",
        ["P58"],
        [Need::Queue, Need::QueueAdmin],
        redrive
    ),
    case!(
        "queue/redrive-some",
        "A redrive of ids moves those that are dead, counts only them, and leaves the others.",
        ["P58"],
        [Need::Queue, Need::QueueAdmin],
        redrive_some
    ),
    case!(
        "queue/purge-dead",
        "Purged dead letters are gone, and the other messages are not touched.",
        ["P53", "P58"],
        [Need::Queue, Need::QueueAdmin],
        purge
    ),
    case!(
        "queue/poison-does-not-block",
        "Messages that always fail do not keep others from being delivered.",
        ["P55", "P58"],
        [Need::Queue],
        poison
    ),
    case!(
        "queue/dead-letters-in-pages",
        "Dead letters are listed in the order of their deaths, page by page, each once.",
        ["P53"],
        [Need::Queue, Need::QueueAdmin],
        pages
    ),
    case!(
        "queue/full-dead-letters-lose-nothing",
        "When the dead letters are full, a message that should die waits, is not delivered, and dies when there is room.",
        ["P53", "P58"],
        [Need::Queue, Need::QueueAdmin, Need::ReachableDeadLetters],
        full
    ),
];

fn reason(text: &str) -> Option<Reason> {
    Some(Reason::new(text).expect("a short reason"))
}

async fn kill(raw: &Raw, context: &Context, text: &str) -> CaseResult<MessageId> {
    let id = raw.store(message(text)).await?;
    let delivery = raw.one(lease(context, 30_000)).await?;
    assert_eq!(raw.settle(delivery.receipt, Settlement::Dead { reason: None }).await?, Settled::Dead);
    Ok(id)
}

async fn after_failures(context: &mut Context) -> CaseResult {
    let raw = raw(context).await?;
    let id = raw.store(attempts(message("poison"), 3)).await?;
    for attempt in 1..=3 {
        let delivery = raw.one(lease(context, 30_000)).await?;
        assert_eq!(delivery.attempt, attempt);
        let how = Settlement::Retry { after: Default::default(), reason: reason(&format!("no {attempt}")) };
        let settled = raw.settle(delivery.receipt, how).await?;
        assert_eq!(settled, if attempt == 3 { Settled::Dead } else { Settled::Done });
    }
    raw.nothing("it is dead").await?;
    assert_eq!(raw.counts().await?, (0, 0, 0, 1));
    let letter = raw.admin().dead_list(&raw.name, None, 10).await?.letters.remove(0);
    assert_eq!((letter.id, letter.payload.as_bytes()), (id.clone(), &b"poison"[..]));
    assert_eq!((letter.attempt, letter.cause), (3, DeadCause::Exhausted));
    assert_eq!(letter.reason.as_ref().map(Reason::as_str), Some("no 3"));
    assert_eq!(raw.state(&id).await?, Some(MessageState::Dead));
    Ok(())
}

async fn after_crashes(context: &mut Context) -> CaseResult {
    let raw = raw(context).await?;
    raw.store(attempts(message("x"), 2)).await?;
    let short = lease(context, 50);
    for _ in 0..2 {
        raw.one(short).await?;
        context.pass(short.get() * 2 + raw.driver.capabilities().clock_error).await;
    }
    let received = raw.receive(1, short).await?;
    assert!(received.deliveries.is_empty() && received.healed.dead == 1, "{received:?}");
    let letter = raw.admin().dead_list(&raw.name, None, 10).await?.letters.remove(0);
    assert_eq!((letter.attempt, letter.cause), (2, DeadCause::Exhausted));
    assert_eq!(letter.reason, Some(Reason::lease_ended()));
    Ok(())
}

async fn rejected(context: &mut Context) -> CaseResult {
    let bench = bench(context).await?;
    bench.queue.push(&b"bad".to_vec()).await?;
    let settled = bench.queue.receive().await?.bury(reason("never")).await?;
    assert_eq!(settled, Settled::Dead);
    let page = bench.queue.admin().dead_letters().list(None, 10).await?;
    let letter = page.letters.first().expect("it is dead");
    assert_eq!((letter.cause, letter.attempt), (DeadCause::Rejected, 1));
    assert_eq!(letter.reason.as_ref().map(Reason::as_str), Some("never"));
    assert_eq!(bench.queue.admin().dead_letters().value(letter)?, b"bad");
    bench.raw.nothing("it is dead").await
}

async fn redrive(context: &mut Context) -> CaseResult {
    let bench = bench(context).await?;
    let raw = &bench.raw;
    raw.store(attempts(message("x"), 1)).await?;
    let delivery = raw.one(lease(context, 30_000)).await?;
    assert_eq!(raw.retry(delivery.receipt, Duration::ZERO).await?, Settled::Dead);
    let wait = span(context, 200);
    assert_eq!(bench.queue.admin().dead_letters().redrive_all(wait).await?, 1);
    assert_eq!(raw.counts().await?, (1, 0, 0, 0));
    let again = context.within(wait + context.soon(), "delivered again", bench.queue.receive()).await??;
    assert_eq!((again.attempt(), again.cause()), (1, Cause::Redriven));
    again.ack().await?;
    Ok(())
}

async fn redrive_some(context: &mut Context) -> CaseResult {
    let bench = bench(context).await?;
    let first = kill(&bench.raw, context, "a").await?;
    let second = kill(&bench.raw, context, "b").await?;
    let alive = bench.raw.store(super::support::after(message("c"), Duration::from_secs(300))).await?;
    let asked = [second.clone(), alive.clone(), MessageId::named("unknown")?];
    assert_eq!(bench.queue.admin().dead_letters().redrive(asked).await?, 1);
    assert_eq!(bench.raw.state(&first).await?, Some(MessageState::Dead));
    assert_eq!(bench.raw.state(&second).await?, Some(MessageState::Ready));
    assert_eq!(bench.raw.state(&alive).await?, Some(MessageState::Scheduled));
    Ok(())
}

async fn purge(context: &mut Context) -> CaseResult {
    let bench = bench(context).await?;
    let first = kill(&bench.raw, context, "a").await?;
    let (second, third) = (kill(&bench.raw, context, "b").await?, kill(&bench.raw, context, "c").await?);
    bench.raw.store(message("alive")).await?;
    assert_eq!(bench.queue.admin().dead_letters().purge([first.clone(), first.clone()]).await?, 1);
    assert_eq!(bench.raw.state(&first).await?, None);
    assert_eq!(bench.raw.state(&second).await?, Some(MessageState::Dead));
    assert_eq!(bench.queue.admin().dead_letters().purge_all().await?, 2);
    assert_eq!(bench.raw.state(&third).await?, None);
    assert_eq!(bench.raw.counts().await?, (0, 1, 0, 0));
    Ok(())
}

async fn poison(context: &mut Context) -> CaseResult {
    let raw = raw(context).await?;
    for _ in 0..20 {
        raw.store(attempts(message("bad"), 2)).await?;
    }
    raw.store(message("good")).await?;
    let mut rounds = 0;
    loop {
        rounds += 1;
        assert!(rounds < 100, "the good message never came");
        let delivery = raw.one(lease(context, 30_000)).await?;
        if delivery.payload.as_bytes() == b"good" {
            break;
        }
        raw.retry(delivery.receipt, Duration::ZERO).await?;
    }
    Ok(())
}

async fn pages(context: &mut Context) -> CaseResult {
    let raw = raw(context).await?;
    let mut expected = Vec::new();
    for number in 0..7 {
        expected.push(kill(&raw, context, &number.to_string()).await?);
        context.pass(Duration::from_millis(2)).await;
    }
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let page = raw.admin().dead_list(&raw.name, after, 3).await?;
        assert!(page.letters.len() <= 3 && !page.letters.is_empty());
        after = page.letters.last().map(|letter| letter.place);
        seen.extend(page.letters.into_iter().map(|letter| letter.id));
        if page.rest == tenure_core::driver::Rest::None {
            break;
        }
    }
    assert_eq!(seen, expected);
    Ok(())
}

async fn full(context: &mut Context) -> CaseResult {
    let bench = bench(context).await?;
    let raw = &bench.raw;
    let cap = raw.driver.capabilities().dead_letters;
    for number in 0..cap {
        kill(raw, context, &number.to_string()).await?;
    }
    let id = raw.store(message("one too many")).await?;
    let delivery = raw.one(lease(context, 30_000)).await?;
    assert_eq!(raw.settle(delivery.receipt, Settlement::Dead { reason: None }).await?, Settled::Postponed);
    assert_eq!(raw.counts().await?, (1, 0, 0, cap));
    raw.nothing("it must not be delivered again").await?;
    bench.queue.admin().dead_letters().purge_all().await?;
    bench.queue.reschedule(&id, Duration::ZERO).await?;
    raw.nothing("it must not be delivered again").await?;
    assert_eq!(raw.counts().await?, (0, 0, 0, 1));
    Ok(())
}
