//! Failures: the content of errors, and the behaviour of a closed client.

use std::time::Duration;

use tenure_core::driver::Introspection;
use tenure_core::{ErrorKind, HoldState, LostReason};
use tokio::time::Instant;

use super::support::{clean, free_within, is_free, keep, lock, must_fail, take_raw};
use crate::case::{Case, CaseResult, Context, case};
use crate::layer::{Action, Rule};

pub(super) const CASES: &[Case] = &[
    case!(
        "error/busy-is-not-an-outage",
        "A busy lock is a value for try_acquire, and a waiter's answer: no error, no retry.",
        ["P26"],
        [],
        busy_is_not_an_outage
    ),
    case!(
        "ping/shows-whether-it-answers",
        "A ping succeeds, changes nothing, and fails while the backend cannot be reached and on a closed client.",
        ["P26"],
        [],
        ping_tells_whether_it_answers
    ),
    case!(
        "close/gives-back-what-is-held",
        "Closing ends every hold, notifies its guard, and leaves the names free.",
        ["P13", "P30"],
        [],
        gives_back_what_is_held
    ),
    case!(
        "close/is-bounded",
        "Closing against a silent backend ends within its limit and says that clean-ups are left.",
        ["P13", "P16"],
        [],
        is_bounded
    ),
    case!(
        "close/leaves-other-clients-alone",
        "Closing one client takes nothing from another on the same backend.",
        ["P9"],
        [],
        leaves_other_clients_alone
    ),
    case!(
        "close/driver-refuses-afterwards",
        "A closed driver answers that it is closed.",
        ["P26"],
        [],
        driver_refuses_afterwards
    ),
];

const LONG: Duration = Duration::from_secs(30);

async fn busy_is_not_an_outage(context: &mut Context) -> CaseResult {
    let (client, layer) = context.layered().await?;
    let (other, name) = (context.client().await?, context.name("busy"));
    let holder = keep(&other, &name, LONG).await?;
    assert!(lock(&client, &name).try_acquire().await?.is_none());
    must_fail(lock(&client, &name).acquire_within(context.ms(100)).await, ErrorKind::TimedOut)?;
    let failed = layer.frames().into_iter().find(|frame| matches!(frame.answer, crate::layer::Answer::Failed(_)));
    assert!(failed.is_none(), "contention was answered with an error: {failed:?}");
    holder.release().await?;
    clean(context, &other, &name, &[&client, &other]).await
}

async fn ping_tells_whether_it_answers(context: &mut Context) -> CaseResult {
    let ((client, layer), probe) = (context.layered().await?, context.client().await?);
    let name = context.name("pinged");
    let guard = keep(&client, &name, LONG).await?;
    client.ping().await?;
    probe.ping().await?;
    assert!(guard.is_held() && !is_free(&probe, &name).await?, "a ping changes nothing");
    layer.rule(Rule::always(Action::FailBeforeSend));
    must_fail(client.ping().await, ErrorKind::Unavailable)?;
    layer.heal();
    client.ping().await?;
    assert!(!client.doctor().await?.findings().is_empty(), "a check-up without findings");
    guard.release().await?;
    client.close(context.soon()).await?;
    must_fail(client.ping().await, ErrorKind::Closed)?;
    must_fail(client.doctor().await, ErrorKind::Closed)?;
    clean(context, &probe, &name, &[&client]).await
}

async fn gives_back_what_is_held(context: &mut Context) -> CaseResult {
    let (client, probe) = (context.client().await?, context.client().await?);
    let names = [context.name("a"), context.name("b"), context.name("c")];
    let mut guards = Vec::new();
    for name in &names {
        guards.push(keep(&client, name, Duration::from_secs(600)).await?);
    }
    client.close(context.soon()).await?;
    for (guard, name) in guards.iter().zip(&names) {
        assert_eq!(guard.state(), HoldState::Lost(LostReason::Closed));
        assert_eq!(context.within(context.soon(), "the guard is notified", guard.lost()).await?, LostReason::Closed);
        free_within(context, &probe, name, context.soon()).await?;
    }
    drop(guards);
    clean(context, &probe, &names[0], &[&client]).await
}

async fn is_bounded(context: &mut Context) -> CaseResult {
    let (client, layer) = context.layered().await?;
    let (probe, name, ttl) = (context.client().await?, context.name("bounded"), context.ttl(2_000));
    let guard = keep(&client, &name, ttl).await?;
    layer.rule(Rule::always(Action::Swallow));
    let (began, limit) = (Instant::now(), context.ms(500));
    must_fail(client.close(limit).await, ErrorKind::TimedOut)?;
    assert!(began.elapsed() < limit + context.ms(900), "closing took {:?}", began.elapsed());
    assert!(guard.check().is_err());
    layer.heal();
    free_within(context, &probe, &name, ttl + context.soon()).await?;
    Ok(())
}

async fn leaves_other_clients_alone(context: &mut Context) -> CaseResult {
    let (client, other) = (context.client().await?, context.client().await?);
    let name = context.name("other");
    let guard = keep(&other, &name, context.ttl(600)).await?;
    client.close(context.soon()).await?;
    context.pass(context.ttl(600) * 2).await;
    assert!(guard.is_held() && !is_free(&other, &name).await?);
    guard.release().await?;
    Ok(())
}

async fn driver_refuses_afterwards(context: &mut Context) -> CaseResult {
    let backend = context.backend().await?;
    let (locks, name) = (&**backend.locks(), context.name("driver"));
    let (token, _) = take_raw(locks, &name, context.ttl(500)).await?;
    locks.close().await;
    must_fail(locks.acquire(&super::support::request(&name, token, LONG)?).await, ErrorKind::Closed)?;
    must_fail(locks.release(&super::support::hold(&name, token)).await, ErrorKind::Closed)?;
    let hold = super::support::hold(&name, token);
    must_fail(locks.renew(super::support::ttl_of(LONG)?, &[hold]).await.remove(0), ErrorKind::Closed)?;
    if context.declared().locks.introspection == Introspection::Full {
        must_fail(locks.inspect(&name).await, ErrorKind::Closed)?;
    }
    Ok(())
}
