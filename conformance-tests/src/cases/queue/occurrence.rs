//! Recurring messages, as clients use them. No case waits for a schedule: occurrences are made due by hand.

use std::time::Duration;

use tenure_core::ErrorKind;
use tenure_core::driver::{Cancelled, MessageInfo, MessageState, Settled};
use tenure_core::queue::{Delivery, Ensured, MessageId, Missed, Queue, Reason};

use super::support::{Bench, bench, lease};
use crate::case::{Case, CaseResult, Context, Need, case};
use crate::cases::support::must_fail;
use crate::layer::{Action, Op, Rule};

pub(in crate::cases) const CASES: &[Case] = &[
    case!(
        "queue/recurring-after-an-ack",
        "Many instances have one schedule; the acknowledgement of an occurrence schedules the next one, an interval after it, and no other.",
        ["P53", "P57"],
        [Need::Queue, Need::QueueAdmin],
        after_ack
    ),
    case!(
        "queue/recurring-after-the-last-failure",
        "An occurrence that used up its attempts is no dead letter: the next one is scheduled, with the reason and all attempts.",
        ["P58"],
        [Need::Queue, Need::QueueAdmin],
        after_failures
    ),
    case!(
        "queue/recurring-after-a-crash",
        "An occurrence whose consumer died is delivered again; when all its attempts ended so, the next one is scheduled.",
        ["P53", "P58"],
        [Need::Queue, Need::QueueAdmin],
        after_crash
    ),
    case!(
        "queue/recurring-with-a-lost-reply",
        "When the reply to the acknowledgement of an occurrence is lost, the next one is scheduled once.",
        ["P57"],
        [Need::Queue, Need::QueueAdmin],
        lost_reply
    ),
    case!(
        "queue/recurring-ends",
        "A schedule ends when its message is cancelled, or when a handler says so, and can be begun again at once.",
        ["P53", "P59"],
        [Need::Queue, Need::QueueAdmin],
        ends
    ),
    case!(
        "queue/recurring-is-changed",
        "Another interval or payload replaces the message that waits; the same one changes nothing.",
        ["P59"],
        [Need::Queue, Need::QueueAdmin],
        changed
    ),
];

const HOUR: Duration = Duration::from_secs(3_600);

fn id() -> MessageId {
    MessageId::named("report").expect("a short id")
}

async fn ensure(queue: &Queue<Vec<u8>>, payload: &[u8], interval: Duration) -> CaseResult<Ensured> {
    // However slow the machine is, an occurrence that is made due is handled.
    let report = queue.recurring("report").every(interval).missed(Missed::RunOnce).max_attempts(2);
    Ok(report.ensure(&payload.to_vec()).await?)
}

async fn look(bench: &Bench) -> CaseResult<MessageInfo> {
    Ok(bench.queue.admin().get(&id()).await?.expect("the schedule continues"))
}

/// The next occurrence, now.
async fn now(context: &mut Context, bench: &Bench) -> CaseResult<Delivery<Vec<u8>>> {
    bench.queue.reschedule(&id(), Duration::ZERO).await?;
    Ok(context.within(context.soon(), "delivered", bench.queue.receive()).await??)
}

/// Whether the message waits for an occurrence that is about so many hours away.
fn waits(info: &MessageInfo, hours: u32) {
    let (due, slack) = (HOUR * hours, HOUR / 2);
    assert_eq!((info.state, info.attempt), (MessageState::Scheduled, 0));
    assert!(info.due_in <= due + slack && info.due_in + slack > due, "{:?}, not about {due:?}", info.due_in);
}

async fn after_ack(context: &mut Context) -> CaseResult {
    let (one, two) = (bench(context).await?, bench(context).await?);
    assert_eq!(ensure(&one.queue, b"all", HOUR).await?, Ensured::Created);
    assert_eq!(ensure(&two.queue, b"all", HOUR).await?, Ensured::Unchanged);
    waits(&look(&two).await?, 1);
    let first = now(context, &two).await?;
    assert_eq!((first.attempt(), first.max_attempts(), first.payload().as_bytes()), (1, 2, &b"all"[..]));
    let time = first.occurrence().expect("it recurs");
    assert_eq!(one.raw.counts().await?, (0, 0, 1, 0));
    assert_eq!(first.ack().await?, Settled::Done);
    waits(&look(&one).await?, 2);
    assert_eq!(one.raw.counts().await?, (1, 0, 0, 0), "there is one message");
    one.raw.nothing("it is not due").await?;
    let second = now(context, &one).await?;
    assert_eq!((second.attempt(), second.occurrence()), (1, Some(time + HOUR)));
    assert_eq!(ensure(&two.queue, b"all", HOUR).await?, Ensured::Unchanged, "it is in flight");
    assert_eq!(second.ack().await?, Settled::Done);
    assert_eq!(one.raw.counts().await?, (1, 0, 0, 0), "there is one message");
    Ok(())
}

async fn after_failures(context: &mut Context) -> CaseResult {
    let bench = bench(context).await?;
    ensure(&bench.queue, b"all", HOUR).await?;
    let first = now(context, &bench).await?;
    let time = first.occurrence().expect("it recurs");
    first.nack(Duration::ZERO).await?;
    let again = context.within(context.soon(), "tried again", bench.queue.receive()).await??;
    assert_eq!((again.attempt(), again.occurrence()), (2, Some(time)));
    again.nack(Duration::ZERO).await?;
    waits(&look(&bench).await?, 2);
    let second = now(context, &bench).await?;
    assert_eq!((second.attempt(), second.occurrence()), (1, Some(time + HOUR)));
    second.bury(Some(Reason::new("no paper")?)).await?;
    assert_eq!(look(&bench).await?.reason, Some(Reason::new("no paper")?));
    assert_eq!(bench.raw.counts().await?, (1, 0, 0, 0), "there are no dead letters");
    Ok(())
}

async fn after_crash(context: &mut Context) -> CaseResult {
    let (bench, dies) = (bench(context).await?, bench(context).await?);
    ensure(&bench.queue, b"all", HOUR).await?;
    bench.queue.reschedule(&id(), Duration::ZERO).await?;
    let short = lease(context, 100);
    let gone = short.get() * 2 + bench.raw.driver.capabilities().clock_error;
    assert_eq!(dies.raw.one(short).await?.attempt, 1);
    context.pass(gone).await;
    let second = context.within(context.soon(), "delivered again", bench.queue.receive()).await??;
    assert_eq!((second.attempt(), second.payload().as_bytes()), (2, &b"all"[..]));
    let time = second.occurrence().expect("it recurs");
    assert_eq!(second.ack().await?, Settled::Done);
    bench.queue.reschedule(&id(), Duration::ZERO).await?;
    for attempt in [1, 2] {
        assert_eq!(dies.raw.one(short).await?.attempt, attempt);
        context.pass(gone).await;
    }
    assert!(bench.queue.try_receive().await?.is_none(), "it has no attempts left");
    let scheduled = async || bench.raw.counts().await.map(|counts| counts == (1, 0, 0, 0));
    context.eventually(context.soon(), "the next occurrence is scheduled", scheduled).await?;
    let info = look(&bench).await?;
    assert_eq!((info.attempt, info.reason), (0, Some(Reason::lease_ended())));
    let third = now(context, &bench).await?;
    assert_eq!((third.attempt(), third.occurrence()), (1, Some(time + HOUR * 2)));
    third.ack().await?;
    Ok(())
}

async fn lost_reply(context: &mut Context) -> CaseResult {
    let (layer, other) = (context.layer().await?, bench(context).await?);
    let client = context.client_over(layer.backend()).build()?;
    let queue = client.queue_of_bytes(other.raw.name.as_bytes())?;
    let bench = Bench { client, queue, raw: other.raw.clone() };
    ensure(&bench.queue, b"all", HOUR).await?;
    let first = now(context, &bench).await?;
    let time = first.occurrence().expect("it recurs");
    layer.rule(Rule::on(Op::Settle, Action::LoseReply).once());
    must_fail(first.ack().await, ErrorKind::Indeterminate)?;
    let idle = async || bench.client.stats().cleanups == 0;
    context.eventually(context.soon(), "nothing is left to do", idle).await?;
    waits(&look(&other).await?, 2);
    assert_eq!(other.raw.counts().await?, (1, 0, 0, 0), "there is one message");
    let second = now(context, &other).await?;
    assert_eq!((second.attempt(), second.occurrence()), (1, Some(time + HOUR)));
    second.ack().await?;
    Ok(())
}

async fn ends(context: &mut Context) -> CaseResult {
    let bench = bench(context).await?;
    assert_eq!(ensure(&bench.queue, b"all", HOUR).await?, Ensured::Created);
    now(context, &bench).await?.ack().await?;
    assert_eq!(bench.queue.cancel(&id()).await?, Cancelled::Removed);
    assert_eq!(bench.raw.counts().await?, (0, 0, 0, 0));
    assert_eq!(ensure(&bench.queue, b"all", HOUR).await?, Ensured::Created, "its name is free");
    let last = now(context, &bench).await?;
    assert_eq!(bench.queue.cancel(&id()).await?, Cancelled::InFlight);
    last.end_recurrence().await?;
    assert_eq!(bench.raw.counts().await?, (0, 0, 0, 0));
    assert_eq!(ensure(&bench.queue, b"all", HOUR).await?, Ensured::Created, "its name is free");
    Ok(())
}

async fn changed(context: &mut Context) -> CaseResult {
    let bench = bench(context).await?;
    assert_eq!(ensure(&bench.queue, b"all", HOUR).await?, Ensured::Created);
    assert_eq!(ensure(&bench.queue, b"some", HOUR).await?, Ensured::Replaced);
    assert_eq!(ensure(&bench.queue, b"some", HOUR * 5).await?, Ensured::Replaced);
    assert_eq!(ensure(&bench.queue, b"some", HOUR * 5).await?, Ensured::Unchanged);
    waits(&look(&bench).await?, 5);
    let first = now(context, &bench).await?;
    assert_eq!(first.payload().as_bytes(), b"some");
    first.ack().await?;
    waits(&look(&bench).await?, 10);
    assert_eq!(bench.raw.counts().await?, (1, 0, 0, 0), "there is one message");
    Ok(())
}
