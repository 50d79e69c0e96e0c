//! Faults of the server, with messages on it.

use std::time::Duration;

use tenure_core::driver::{Cause, Fencing, MessageState, Pushed, Settled, Settlement};
use tokio::time::Instant;

use super::support::{Raw, after, bench, bytes, lease, message, named, span};
use crate::case::{Case, CaseResult, Context, Failure, Need, case};
use crate::harness::{ClockStep, Data, Fault, FaultKind};

/// What the engine states: how late a receiver that has just begun to wait is at most if every wake-up is lost.
const FALLBACK: Duration = Duration::from_secs(2);

pub(in crate::cases) const CASES: &[Case] = &[
    case!(
        "queue/pause-of-the-server",
        "During a pause of the server a receive continues to wait, and an acknowledgement that was sent then is carried out once.",
        ["P53", "P55"],
        [Need::Queue, Need::Fault(FaultKind::PauseServer)],
        pause
    ),
    case!(
        "queue/restart-with-data-keeps-messages",
        "A restart that keeps the data keeps messages, receipts, dead letters, callers' ids and the order of fences.",
        ["P53", "P56", "P57"],
        [Need::Queue, Need::Fault(FaultKind::RestartKeepingData)],
        restart
    ),
    case!(
        "queue/restart-while-waiting",
        "A receive that waits over a restart of the server gets the message that is pushed after it.",
        ["P55"],
        [Need::Queue, Need::Fault(FaultKind::RestartKeepingData)],
        restart_while_waiting
    ),
    case!(
        "queue/restart-without-data-begins-anew",
        "After a restart that lost the data, old receipts are stale and have no effect, and new messages are delivered as before.",
        ["P56"],
        [Need::Queue, Need::Fault(FaultKind::RestartLosingData)],
        lost_data
    ),
    case!(
        "queue/clock-step-back",
        "When the server's clock steps back, messages are neither held up nor early, leases do not revive, and fences grow.",
        ["P54", "P56"],
        [Need::Queue, Need::Fault(FaultKind::JumpServerClock)],
        clock_step_back
    ),
    case!(
        "queue/clock-step-forward",
        "When the server's clock steps forward and back again, messages are not held up, and fences grow.",
        ["P54", "P56"],
        [Need::Queue, Need::Fault(FaultKind::JumpServerClock)],
        clock_step_forward
    ),
];

/// Waits until the server answers: connections may be on their way back.
async fn answers(context: &Context, raw: &Raw) -> CaseResult {
    let back = async || raw.counts().await.is_ok();
    context.eventually(context.soon(), "the server answers", back).await.map(drop)
}

async fn pause(context: &mut Context) -> CaseResult {
    let (bench, other) = (bench(context).await?, bench(context).await?);
    bench.raw.store(message("handled")).await?;
    let handled = context.within(context.soon(), "delivered", bench.queue.receive()).await??;
    let queue = other.queue.clone();
    let waiting = tokio::spawn(async move { queue.receive().await });
    context.pass(span(context, 300)).await;
    let healer = context.inject(Fault::PauseServer).await?;
    let acknowledged = tokio::spawn(handled.ack());
    context.pass(span(context, 1_500)).await;
    assert!(!waiting.is_finished(), "the pause ended the wait");
    healer.heal().await?;
    let reported = context.within(context.soon(), "the acknowledgement is answered", acknowledged).await??;
    assert!(!matches!(reported, Ok(Settled::Stale)), "it was the first settlement");
    answers(context, &bench.raw).await?;
    bench.raw.store(message("next")).await?;
    let next = context.within(FALLBACK + context.soon(), "delivered", waiting).await???;
    assert_eq!(next.payload().as_bytes(), b"next", "an acknowledged message came back");
    assert_eq!(next.ack().await?, Settled::Done);
    let empty = async || bench.raw.counts().await.map(|counts| counts == (0, 0, 0, 0));
    context.eventually(context.soon(), "nothing is left", empty).await?;
    Ok(())
}

async fn restart(context: &mut Context) -> CaseResult {
    let raw = bench(context).await?.raw;
    let window = span(context, 60_000);
    raw.store(message("dead")).await?;
    let dead = raw.one(lease(context, 60_000)).await?;
    raw.settle(dead.receipt, Settlement::Dead { reason: None }).await?;
    raw.store(message("in flight")).await?;
    let held = raw.one(lease(context, 60_000)).await?;
    let start = Instant::now();
    let wait = span(context, 3_000);
    let later = raw.store(after(named("later", "later", window), wait)).await?;
    context.inject(Fault::KillServer(Data::Kept)).await?.heal().await?;
    answers(context, &raw).await?;
    let state = raw.state(&later).await?;
    if start.elapsed() < wait {
        assert_eq!((state, raw.counts().await?), (Some(MessageState::Scheduled), (1, 0, 1, 1)));
    }
    let again = raw.push(&[named("later", "later", window)]).await?;
    assert!(matches!(again[..], [Pushed::Duplicate(_)]), "{again:?}");
    assert_eq!(raw.ack(held.receipt).await?, Settled::Done, "the receipt of before the restart");
    let mut got = None;
    let due = async || {
        got = raw.take(1, lease(context, 60_000)).await.ok().and_then(|mut deliveries| deliveries.pop());
        got.is_some()
    };
    context.eventually(wait + context.soon(), "the message is due", due).await?;
    let got = got.ok_or_else(|| Failure::new("it was there"))?;
    let error = raw.driver.capabilities().clock_error;
    assert!(start.elapsed() + error >= wait, "early: {:?}", start.elapsed());
    assert_eq!((bytes(&got), got.attempt), (&b"later"[..], 1));
    assert!(got.fence > held.fence, "fence {} after {}", got.fence, held.fence);
    assert_eq!(raw.ack(got.receipt).await?, Settled::Done);
    assert_eq!(raw.counts().await?, (0, 0, 0, 1));
    Ok(())
}

async fn restart_while_waiting(context: &mut Context) -> CaseResult {
    let (bench, other) = (bench(context).await?, bench(context).await?);
    let queue = bench.queue.clone();
    let waiting = tokio::spawn(async move { queue.receive().await });
    context.pass(span(context, 300)).await;
    let healer = context.inject(Fault::KillServer(Data::Kept)).await?;
    context.pass(span(context, 500)).await;
    assert!(!waiting.is_finished(), "the restart ended the wait");
    healer.heal().await?;
    answers(context, &other.raw).await?;
    other.raw.store(message("x")).await?;
    context.within(FALLBACK + context.soon(), "delivered", waiting).await???.ack().await?;
    Ok(())
}

async fn lost_data(context: &mut Context) -> CaseResult {
    let raw = bench(context).await?.raw;
    raw.store(message("lost")).await?;
    let lost = raw.one(lease(context, 60_000)).await?;
    context.inject(Fault::KillServer(Data::Lost)).await?.heal().await?;
    answers(context, &raw).await?;
    raw.store(message("new")).await?;
    let new = raw.one(lease(context, 60_000)).await?;
    assert_eq!(raw.ack(lost.receipt).await?, Settled::Stale, "the delivery is unknown");
    if raw.driver.capabilities().fencing == Fencing::ClockSeeded {
        assert!(new.fence > lost.fence, "fence {} after {}", new.fence, lost.fence);
    }
    assert_eq!((bytes(&new), raw.ack(new.receipt).await?), (&b"new"[..], Settled::Done));
    Ok(())
}

async fn clock_step_back(context: &mut Context) -> CaseResult {
    let bench = bench(context).await?;
    let raw = &bench.raw;
    raw.store(message("leased")).await?;
    let length = lease(context, 500);
    let first = raw.one(length).await?;
    context.pass(length.get() + raw.driver.capabilities().clock_error).await;
    let healer = context.inject(Fault::JumpServerClock(ClockStep::Back(Duration::from_secs(3_600)))).await?;
    let second = context.within(context.soon(), "its lease has ended", bench.queue.receive()).await??;
    assert_eq!((second.attempt(), second.cause()), (2, Cause::LeaseExpired));
    assert!(second.fence() > first.fence, "fence {} after {}", second.fence(), first.fence);
    let fence = second.fence();
    second.ack().await?;
    let (wait, start) = (span(context, 700), Instant::now());
    raw.store(after(message("after the step"), wait)).await?;
    let third = context.within(wait + FALLBACK + context.soon(), "not held up", bench.queue.receive()).await??;
    assert!(start.elapsed() >= wait, "early: {:?}", start.elapsed());
    assert!(third.fence() > fence, "fence {} after {fence}", third.fence());
    third.ack().await?;
    healer.heal().await?;
    Ok(())
}

async fn clock_step_forward(context: &mut Context) -> CaseResult {
    let bench = bench(context).await?;
    bench.raw.store(message("before")).await?;
    let first = bench.raw.one(lease(context, 60_000)).await?;
    bench.raw.ack(first.receipt).await?;
    let healer = context.inject(Fault::JumpServerClock(ClockStep::Forward(Duration::from_secs(3_600)))).await?;
    bench.raw.store(message("ahead")).await?;
    let ahead = context.within(context.soon(), "delivered", bench.queue.receive()).await??;
    let fence = ahead.fence();
    assert!(fence > first.fence, "fence {fence} after {}", first.fence);
    ahead.ack().await?;
    healer.heal().await?;
    let wait = span(context, 700);
    bench.raw.store(after(message("back"), wait)).await?;
    let back = context.within(wait + FALLBACK + context.soon(), "not held up", bench.queue.receive()).await??;
    assert!(back.fence() > fence, "fence {} after {fence}, the clock being set back", back.fence());
    back.ack().await?;
    Ok(())
}
