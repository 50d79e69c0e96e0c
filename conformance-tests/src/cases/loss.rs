//! Loss: noticed in time, reported, final.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tenure_core::{ErrorKind, HoldState, LostReason};
use tokio::time::Instant;

use super::support::{clean, free_within, is_free, keep, lock, must_fail, take};
use crate::case::{Case, CaseResult, Context, Need, case};
use crate::harness::{Fault, FaultKind};
use crate::layer::{Action, Op, Rule};

pub(super) const CASES: &[Case] = &[
    case!(
        "loss/unrenewable-is-lost-before-the-next-grant",
        "A holder that cannot renew becomes suspect, then is notified of its loss, and only then is another client granted the lock.",
        ["P4", "P6"],
        [],
        unrenewable_is_lost_before_the_next_grant
    ),
    case!(
        "loss/short-outage-is-survived",
        "Failed renewals make a hold suspect, not lost: when the backend is back within the ttl, the hold continues.",
        ["P6", "P26"],
        [],
        short_outage_is_survived
    ),
    case!(
        "loss/unknown-renewal-does-not-lengthen",
        "Renewals whose replies are lost do not lengthen the holder's view, whatever they did at the backend.",
        ["P6"],
        [],
        unknown_renewal_does_not_lengthen
    ),
    case!(
        "loss/is-final",
        "A renewal that is confirmed after the holder's view has ended does not bring the hold back.",
        ["P5"],
        [],
        is_final
    ),
    case!(
        "loss/early-end-is-noticed",
        "A lease that ended at the backend before its time is noticed at the next renewal and reported as gone.",
        ["P4"],
        [Need::Fault(FaultKind::ExpireLease)],
        early_end_is_noticed
    ),
    case!(
        "loss/run-drops-the-work",
        "Work under `run` is dropped when the lease ends, and `run` returns the loss as an error.",
        ["P4"],
        [],
        run_drops_the_work
    ),
    case!(
        "loss/run-returns-the-output",
        "Work under `run` that ends within the lease returns its output, and the lock is still held.",
        ["P4"],
        [],
        run_returns_the_output
    ),
    case!(
        "loss/all-are-notified",
        "All tasks that wait for the loss of one guard are notified, with the same reason.",
        ["P4", "P5"],
        [],
        all_are_notified
    ),
];

async fn unrenewable_is_lost_before_the_next_grant(context: &mut Context) -> CaseResult {
    let (client, layer) = context.layered().await?;
    let (other, name, ttl) = (context.client().await?, context.name("unrenewable"), context.ttl(600));
    let guard = keep(&client, &name, ttl).await?;
    layer.rule(Rule::on(Op::Renew, Action::FailBeforeSend));
    context.eventually(ttl, "the hold is suspect", async || guard.state() == HoldState::Suspect).await?;
    assert!(guard.check().is_ok(), "suspect is not lost");
    let next = async {
        let next = lock(&other, &name).acquire().await?;
        assert!(guard.check().is_err(), "granted to another while {:?} of this hold remain", guard.remaining());
        CaseResult::Ok(next)
    };
    let reported = context.within(ttl, "the holder is notified", guard.lost());
    let (reason, next) = tokio::join!(reported, context.within(ttl + context.soon(), "the other is granted", next));
    assert_eq!(reason?, LostReason::Expired);
    next??.release().await?;
    Ok(())
}

async fn short_outage_is_survived(context: &mut Context) -> CaseResult {
    let (client, layer) = context.layered().await?;
    let (other, name, ttl) = (context.client().await?, context.name("outage"), context.ttl(1_200));
    let guard = keep(&client, &name, ttl).await?;
    layer.rule(Rule::always(Action::FailBeforeSend));
    context.eventually(ttl, "the hold is suspect", async || guard.state() == HoldState::Suspect).await?;
    layer.heal();
    context.eventually(ttl, "the hold is confirmed again", async || guard.state() == HoldState::Held).await?;
    context.pass(ttl).await;
    assert!(guard.is_held() && !is_free(&other, &name).await?);
    guard.release().await?;
    Ok(())
}

async fn unknown_renewal_does_not_lengthen(context: &mut Context) -> CaseResult {
    let (client, layer) = context.layered().await?;
    let (probe, name, ttl) = (context.client().await?, context.name("unknown"), context.ttl(600));
    layer.rule(Rule::on(Op::Renew, Action::LoseReply));
    let guard = keep(&client, &name, ttl).await?;
    let reason = context.within(ttl, "the view ends with the first ttl", guard.lost()).await?;
    assert_eq!(reason, LostReason::Expired);
    assert!(!layer.frames_of(Op::Renew, &name).is_empty(), "renewals were tried");
    drop(guard);
    layer.heal();
    // The renewals did arrive: the client has to undo the lease rather than wait for its end.
    clean(context, &probe, &name, &[&client]).await
}

async fn is_final(context: &mut Context) -> CaseResult {
    let (client, layer) =
        context.layered_with(|builder| builder.op_timeout(std::time::Duration::from_secs(20))).await?;
    let (probe, name, ttl) = (context.client().await?, context.name("final"), context.ttl(500));
    layer.rule(Rule::on(Op::Renew, Action::DelayReply(ttl * 2)));
    let guard = keep(&client, &name, ttl).await?;
    context.within(ttl, "the view ends with the first ttl", guard.lost()).await?;
    let until = Instant::now() + ttl * 3;
    while Instant::now() < until {
        assert_eq!(guard.state(), HoldState::Lost(LostReason::Expired), "a lost hold came back");
        assert!(guard.check().is_err() && guard.remaining().is_zero());
        context.pass(ttl / 10).await;
    }
    layer.heal();
    drop(guard);
    clean(context, &probe, &name, &[&client]).await
}

async fn early_end_is_noticed(context: &mut Context) -> CaseResult {
    let client = context.client().await?;
    let (name, ttl) = (context.name("early"), context.ttl(1_500));
    let guard = keep(&client, &name, ttl).await?;
    context.inject(Fault::ExpireLease(name.clone())).await?.heal().await?;
    let reason = context.within(ttl, "the next renewal reports it", guard.lost()).await?;
    assert_eq!(reason, LostReason::Gone);
    must_fail(guard.check(), ErrorKind::Lost)?;
    must_fail(guard.release().await, ErrorKind::Lost)?;
    assert!(is_free(&client, &name).await?);
    Ok(())
}

async fn run_drops_the_work(context: &mut Context) -> CaseResult {
    struct Flag(Arc<AtomicBool>);
    impl Drop for Flag {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    let (client, other) = (context.client().await?, context.client().await?);
    let (name, ttl) = (context.name("run"), context.ttl(400));
    let guard = take(&client, &name, ttl).await?;
    let dropped = Arc::new(AtomicBool::new(false));
    let flag = Flag(Arc::clone(&dropped));
    let work = guard.run(async move {
        let _flag = flag;
        std::future::pending::<()>().await;
    });
    must_fail(context.within(ttl, "the work ends with the lease", work).await?, ErrorKind::Lost)?;
    assert!(dropped.load(Ordering::SeqCst), "the work was not dropped");
    free_within(context, &other, &name, context.soon()).await?;
    Ok(())
}

async fn run_returns_the_output(context: &mut Context) -> CaseResult {
    let (client, other) = (context.client().await?, context.client().await?);
    let name = context.name("output");
    let guard = keep(&client, &name, context.ttl(600)).await?;
    let span = context.ttl(600) * 2;
    let output = guard
        .run(async {
            tokio::time::sleep(span).await;
            42
        })
        .await?;
    assert_eq!(output, 42);
    assert!(guard.is_held() && !is_free(&other, &name).await?, "the lock was renewed during the work");
    guard.release().await?;
    Ok(())
}

async fn all_are_notified(context: &mut Context) -> CaseResult {
    let (client, other) = (context.client().await?, context.client().await?);
    let (name, ttl) = (context.name("reported"), context.ttl(300));
    let guard = take(&client, &name, ttl).await?;
    let all = async { tokio::join!(guard.lost(), guard.lost(), guard.lost()) };
    let reported = context.within(ttl, "all are notified", all).await?;
    assert_eq!(reported, (LostReason::Expired, LostReason::Expired, LostReason::Expired));
    assert_eq!(guard.lost().await, LostReason::Expired, "a later caller is notified, too");
    free_within(context, &other, &name, context.soon()).await?;
    Ok(())
}
