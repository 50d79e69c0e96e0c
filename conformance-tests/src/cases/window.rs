//! The holder's view of its lease: counted from before the request left.

use std::time::Duration;

use tenure_core::{ErrorKind, LockName};
use tokio::time::Instant;

use super::support::{clean, keep, lock, must, must_fail};
use crate::case::{Case, CaseResult, Context, Failure, case};
use crate::layer::{Action, Answer, Op, Rule};

pub(super) const CASES: &[Case] = &[
    case!(
        "window/reply-after-its-end-is-no-grant",
        "A grant whose reply comes after the lease could have ended is an error, and the name becomes free.",
        ["P3", "P11"],
        [],
        reply_after_its_end_is_no_grant
    ),
    case!(
        "window/grant-learned-late-counts-from-its-request",
        "A waiter that learns of its grant by asking again believes in it from the request that brought it.",
        ["P2", "P29"],
        [],
        grant_learned_late_counts_from_its_request
    ),
    case!(
        "window/renewal-counts-from-its-request",
        "A renewal whose reply comes late lengthens the view from when it left.",
        ["P2", "P6"],
        [],
        renewal_counts_from_its_request
    ),
    case!(
        "window/backend-outlasts-it",
        "The backend keeps the lease at least until the holder's view ends.",
        ["P1", "P2"],
        [],
        backend_outlasts_it
    ),
    case!(
        "window/turn-ends-before-the-next-grant",
        "A waiter whose turn came, and whose renewals fail from then on, sees its lease end before another is granted \
         the lock.",
        ["P1", "P2"],
        [],
        turn_ends_before_the_next_grant
    ),
];

const PATIENT: Duration = Duration::from_secs(60);

async fn reply_after_its_end_is_no_grant(context: &mut Context) -> CaseResult {
    let (client, layer) = context.layered_with(|builder| builder.op_timeout(PATIENT)).await?;
    let (probe, name, ttl) = (context.client().await?, context.name("stillborn"), context.ttl(400));
    for percent in [100, 150] {
        layer.rule(Rule::on(Op::Acquire, Action::DelayReply(ttl * percent / 100)).once());
        match lock(&client, &name).fixed_ttl(ttl).try_acquire().await {
            Err(error) if error.is_lost() || error.is_transient() => {}
            other => return Err(Failure::new(format!("{other:?} for a lease that has ended"))),
        }
        clean(context, &probe, &name, &[&client]).await?;
    }
    Ok(())
}

async fn grant_learned_late_counts_from_its_request(context: &mut Context) -> CaseResult {
    // A request that was on its way already when the rules were made may bring the grant: then nothing was tried.
    for attempt in 0..3 {
        let name = context.name(format!("learned/{attempt}"));
        if learned_late(context, &name).await? {
            return Ok(());
        }
    }
    Err(Failure::new("no reply was lost: the case proves nothing"))
}

/// Whether the reply that brought the grant was lost.
async fn learned_late(context: &mut Context, name: &LockName) -> CaseResult<bool> {
    let (client, layer) = context.layered().await?;
    let (other, ttl) = (context.client().await?, context.ttl(4_000));
    let holder = keep(&other, name, context.ttl(60_000)).await?;
    let waiter = lock(&client, name).fixed_ttl(ttl);
    let waiting = tokio::spawn(async move { waiter.acquire().await });
    let asked = async || layer.frames_of(Op::Acquire, name).iter().any(|frame| frame.answer == Answer::Busy);
    context.eventually(context.soon(), "the waiter waits", asked).await?;
    // No request reaches the backend before the lock is free. Then the reply that brings the grant is lost, and so is the way to the
    // backend for a while.
    layer.rule(Rule::on(Op::Acquire, Action::FailBeforeSend));
    holder.release().await?;
    layer.heal();
    layer.rule(Rule::on(Op::Acquire, Action::LoseReply).once());
    layer.rule(Rule::on(Op::Acquire, Action::FailBeforeSend).times(4));
    let guard = context.within(ttl, "the waiter learns of its grant", waiting).await???;
    let frames = layer.frames_of(Op::Acquire, name);
    let brought = frames.iter().find(|frame| frame.answer == Answer::Failed(ErrorKind::Indeterminate));
    if let Some(brought) = brought {
        let since = brought.sent_at.elapsed();
        assert!(since > ttl / 20, "the grant was learned of after {since:?}: the case proves nothing");
        assert!(guard.remaining() <= ttl - since, "{:?} are believed, {since:?} after the grant", guard.remaining());
    }
    let lost = brought.is_some();
    guard.release().await?;
    Ok(lost)
}

async fn renewal_counts_from_its_request(context: &mut Context) -> CaseResult {
    let (client, layer) = context.layered_with(|builder| builder.op_timeout(PATIENT)).await?;
    let (name, ttl) = (context.name("renewal"), context.ttl(2_000));
    let delay = ttl / 6;
    layer.rule(Rule::on(Op::Renew, Action::DelayReply(delay)));
    let guard = keep(&client, &name, ttl).await?;
    let answered = async || layer.frames_of(Op::Renew, &name).iter().any(|frame| frame.answer == Answer::Done);
    context.eventually(ttl, "a renewal is confirmed", answered).await?;
    let frames = layer.frames_of(Op::Renew, &name);
    let sent_at = frames.iter().rfind(|frame| frame.answer == Answer::Done).map(|frame| frame.sent_at);
    let since = sent_at.map(|at| at.elapsed()).unwrap_or_default();
    let left = guard.remaining();
    assert!(since >= delay && left < ttl - since, "{left:?} are believed, {since:?} after the renewal left");
    assert!(left > ttl / 3, "the renewal did not lengthen the view: {left:?}");
    guard.release().await?;
    Ok(())
}

async fn backend_outlasts_it(context: &mut Context) -> CaseResult {
    let (client, other) = (context.client().await?, context.client().await?);
    let (name, ttl) = (context.name("outlasts"), context.ttl(500));
    let guard = must(lock(&client, &name).fixed_ttl(ttl).try_acquire().await?, &name)?;
    let mut asked = 0;
    while guard.is_held() {
        let granted = lock(&other, &name).fixed_ttl(ttl).try_acquire().await?;
        assert!(
            granted.is_none() || !guard.is_held(),
            "{:?} are believed of a lease that has ended",
            guard.remaining()
        );
        asked += 1;
        context.pass(ttl / 50).await;
    }
    assert!(asked > 3, "asked {asked} times only: the case proves nothing");
    Ok(())
}

async fn turn_ends_before_the_next_grant(context: &mut Context) -> CaseResult {
    let (client, layer) = context.layered().await?;
    let (other, name, ttl) = (context.client().await?, context.name("turn"), context.ttl(3_000));
    let holder = keep(&other, &name, context.ttl(60_000)).await?;
    let waiter = lock(&client, &name).ttl(ttl);
    let waiting = tokio::spawn(async move { waiter.acquire().await });
    let asked = async || layer.frames_of(Op::Acquire, &name).iter().any(|frame| frame.answer == Answer::Busy);
    context.eventually(context.soon(), "the waiter waits", asked).await?;
    layer.rule(Rule::on(Op::Renew, Action::FailBeforeSend));
    holder.release().await?;
    let guard = context.within(context.soon(), "its turn comes", waiting).await???;
    let next = lock(&other, &name).fixed_ttl(ttl);
    let deadline = Instant::now() + ttl + context.soon();
    let taken = loop {
        if let Some(taken) = next.try_acquire().await? {
            break taken;
        }
        assert!(Instant::now() < deadline, "the lease does not end by itself");
        context.pass(Duration::from_millis(5)).await;
    };
    assert!(!guard.is_held(), "{:?} are believed of a lease that another has", guard.remaining());
    assert!(taken.fence() > guard.fence(), "fence {} after {}", taken.fence(), guard.fence());
    must_fail(guard.release().await, ErrorKind::Lost)?;
    taken.release().await?;
    Ok(())
}
