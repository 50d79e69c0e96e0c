//! Messages that may be delivered until some time.

use std::time::Duration;

use tenure_core::driver::{
    Cause, DeadCause, DeadSelection, Extended, Lease, Listed, MessageState, NewMessage, Rescheduled, Settled,
    Settlement,
};

use super::support::{after, bench, delay, lease, message, named, raw, span, texts};
use crate::case::{Case, CaseResult, Context, Need, case};

pub(in crate::cases) const CASES: &[Case] = &[
    case!(
        "queue/ttl-expired-is-dead",
        "A message that is not delivered in time is dead and says so, whether no receiver asked, or its lease, its retry, its return or its new due time ended later.",
        ["P54", "P58"],
        [Need::Queue],
        expired
    ),
    case!(
        "queue/ttl-delivered-in-time",
        "A message that was delivered in time can be extended and acknowledged after the end of its time.",
        ["P53", "P58"],
        [Need::Queue],
        in_time
    ),
    case!(
        "queue/ttl-redriven",
        "A message that expired and is redriven can be delivered at any time after.",
        ["P58"],
        [Need::Queue],
        redriven
    ),
    case!(
        "queue/ttl-counts-from-the-due-time",
        "The ttl of a message counts from the due time of its push, and a look shows the rest of it; a new due time does not move its end.",
        ["P54"],
        [Need::Queue],
        from_the_due_time
    ),
];

const HOUR: Duration = Duration::from_secs(3_600);

fn ttl(message: NewMessage, length: Duration) -> NewMessage {
    message.with_ttl(Some(delay(length)))
}

async fn expired(context: &mut Context) -> CaseResult {
    let raw = raw(context).await?;
    let (short, long) = (span(context, 600), lease(context, 30_000));
    let of_short = |text: &str| ttl(named(text, text, HOUR), short);
    raw.push(&["retried", "returned", "crashed", "never", "put off"].map(of_short)).await?;
    raw.store(ttl(message("longer"), HOUR)).await?;
    let got = raw.take(2, long).await?;
    assert_eq!(texts(&got), ["retried", "returned"]);
    raw.one(Lease::new(short)?).await?;
    assert_eq!(raw.retry(got[0].receipt, short).await?, Settled::Done);
    assert_eq!(raw.settle(got[1].receipt, Settlement::Return { after: delay(short) }).await?, Settled::Done);
    let put_off = tenure_core::queue::MessageId::named("put off")?;
    assert_eq!(raw.driver.reschedule(&raw.name, &put_off, delay(short)).await?, Rescheduled::Moved);
    context.pass(short + short / 4 + raw.driver.capabilities().clock_error).await;
    let (mut came, mut dead) = (Vec::new(), 0);
    for _ in 0..10 {
        let received = raw.receive(10, long).await?;
        came.extend(texts(&received.deliveries));
        dead += received.healed.dead;
    }
    assert_eq!((came, dead), (vec!["longer".to_owned()], 5));
    let letters = raw.driver.dead_list(&raw.name, None, 10).await?.letters;
    let mut reported: Vec<_> = letters.iter().map(|l| (l.payload.as_bytes(), l.cause, l.attempt)).collect();
    reported.sort_by_key(|(text, ..)| *text);
    let letter = |text: &'static str, attempt| (text.as_bytes(), DeadCause::Expired, attempt);
    let expected = [letter("crashed", 1), letter("never", 0), letter("put off", 0), letter("retried", 1)];
    assert_eq!(reported, [&expected[..], &[letter("returned", 0)]].concat());
    assert_eq!(raw.counts().await?, (0, 0, 1, 5));
    Ok(())
}

async fn in_time(context: &mut Context) -> CaseResult {
    let raw = raw(context).await?;
    let (short, long) = (span(context, 400), lease(context, 30_000));
    let id = raw.store(ttl(message("x"), short)).await?;
    let delivery = raw.one(long).await?;
    context.pass(short + short / 4 + raw.driver.capabilities().clock_error).await;
    raw.nothing("it is in flight").await?;
    assert_eq!(raw.state(&id).await?, Some(MessageState::InFlight));
    assert_eq!(raw.extend(delivery.receipt, long).await?, Extended::Extended);
    assert_eq!(raw.ack(delivery.receipt).await?, Settled::Done);
    assert_eq!(raw.counts().await?, (0, 0, 0, 0));
    Ok(())
}

async fn redriven(context: &mut Context) -> CaseResult {
    let raw = raw(context).await?;
    let short = span(context, 50);
    let id = raw.store(ttl(message("x"), short)).await?;
    let pass = short * 2 + raw.driver.capabilities().clock_error;
    context.pass(pass).await;
    raw.nothing("it came too late").await?;
    assert_eq!(raw.counts().await?, (0, 0, 0, 1));
    let all = DeadSelection::Oldest(10);
    assert_eq!(raw.driver.dead_redrive(&raw.name, &all, Default::default()).await?.moved, 1);
    context.pass(pass).await;
    let info = raw.driver.get(&raw.name, &id).await?.expect("it waits");
    assert_eq!((info.state, info.expires_in), (MessageState::Ready, None));
    let delivery = raw.one(lease(context, 30_000)).await?;
    assert_eq!((delivery.attempt, delivery.cause), (1, Cause::Redriven));
    Ok(())
}

async fn from_the_due_time(context: &mut Context) -> CaseResult {
    let bench = bench(context).await?;
    let (queue, raw) = (&bench.queue, &bench.raw);
    let length = Duration::from_secs(60);
    let endless = raw.store(message("endless")).await?;
    let id = raw.store(ttl(after(message("x"), HOUR), length)).await?;
    let between = |left: Option<Duration>, most: Duration| {
        assert!(left.is_some_and(|left| left <= most && left > most - length), "{left:?} of {most:?}");
    };
    between(queue.get(&id).await?.expect("it is stored").expires_in, HOUR + length);
    queue.reschedule(&id, HOUR * 2).await?;
    between(queue.get(&id).await?.expect("it is stored").expires_in, HOUR + length);
    let page = raw.driver.list(&raw.name, Listed::Waiting, None, 10).await?;
    let listed: Vec<_> = page.messages.iter().map(|info| (&info.id, info.expires_in.is_some())).collect();
    assert_eq!(listed, [(&endless, false), (&id, true)]);
    queue.reschedule(&id, Duration::ZERO).await?;
    assert_eq!(texts(&raw.take(2, lease(context, 30_000)).await?), ["endless", "x"], "it is well in time");
    between(queue.get(&id).await?.expect("it is in flight").expires_in, HOUR + length);
    Ok(())
}
