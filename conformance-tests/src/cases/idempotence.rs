//! Requests that arrive twice, late, or after their undoing.

use tenure_core::driver::{Begun, Released};
use tenure_core::{ErrorKind, OwnerToken};

use super::support::{clean, granted, hold, is_free_raw, keep, lock, must_fail, request, take, take_raw};
use crate::case::{Case, CaseResult, Context, case};
use crate::layer::{Action, Op, Rule};

pub(super) const CASES: &[Case] = &[
    case!(
        "driver/asking-again-is-the-same-grant",
        "A token that holds the lock and asks again gets the same fence, with an earlier beginning; one release frees the lock.",
        ["P29"],
        [],
        asking_again_is_the_same_grant
    ),
    case!(
        "driver/asking-again-does-not-lengthen",
        "A repeated request does not move the end of the lease.",
        ["P29"],
        [],
        asking_again_does_not_lengthen
    ),
    case!(
        "driver/abandon-frees-the-lease",
        "Abandoning a token that holds the lock frees it.",
        ["P11"],
        [],
        abandon_frees_the_lease
    ),
    case!(
        "driver/abandoned-token-is-refused",
        "A request that arrives after its token was abandoned is refused and takes nothing, also a while later.",
        ["P11", "P29"],
        [],
        abandoned_token_is_refused
    ),
    case!(
        "driver/abandon-of-another-changes-nothing",
        "Abandoning a token that does not hold the lock does not affect the holder, however often it is repeated.",
        ["P9", "P11"],
        [],
        abandon_of_another_changes_nothing
    ),
    case!(
        "driver/grants-what-was-asked",
        "A grant has at least the requested ttl, depth 1, and begins now.",
        ["P28"],
        [],
        grants_what_was_asked
    ),
    case!(
        "lock/duplicated-requests-change-nothing",
        "A client whose every frame arrives twice takes, renews and releases like any other.",
        ["P29"],
        [],
        duplicated_requests_change_nothing
    ),
    case!(
        "lock/resent-requests-change-nothing",
        "A client library that sends every request again and believes the second answer still holds one lock once.",
        ["P29", "P14"],
        [],
        resent_requests_change_nothing
    ),
    case!(
        "lock/late-acquire-takes-nothing",
        "A request to take a lock that arrives after the client gave up and cleaned up takes nothing.",
        ["P11", "P29", "R12"],
        [],
        late_acquire_takes_nothing
    ),
    case!(
        "lock/lost-grant-is-undone",
        "A grant whose reply is lost is reported as unknown and undone without waiting for the ttl.",
        ["P11", "P26"],
        [],
        lost_grant_is_undone
    ),
];

async fn asking_again_is_the_same_grant(context: &mut Context) -> CaseResult {
    let backend = context.backend().await?;
    let locks = &**backend.locks();
    let (name, ttl) = (context.name("again"), context.ttl(5_000));
    let (token, fence) = take_raw(locks, &name, ttl).await?;
    for _ in 0..3 {
        let again = granted(locks.acquire(&request(&name, token, ttl)?).await?)?;
        assert_eq!((again.fence, again.begun, again.depth), (fence, Begun::Earlier, 1));
    }
    assert_eq!(locks.release(&hold(&name, token)).await?, Released::Released);
    assert!(is_free_raw(locks, &name).await?, "one release did not free it");
    let (_, next) = take_raw(locks, &name, ttl).await?;
    assert!(next > fence);
    Ok(())
}

async fn asking_again_does_not_lengthen(context: &mut Context) -> CaseResult {
    let backend = context.backend().await?;
    let locks = &**backend.locks();
    let (name, ttl) = (context.name("lengthen"), context.ttl(500));
    let (token, _) = take_raw(locks, &name, ttl).await?;
    context.pass(ttl / 2).await;
    granted(locks.acquire(&request(&name, token, ttl * 20)?).await?)?;
    let free = async || is_free_raw(locks, &name).await;
    context.eventually(ttl / 2 + context.ms(1_500), "the lease ends when it would have", free).await?;
    Ok(())
}

async fn abandon_frees_the_lease(context: &mut Context) -> CaseResult {
    let backend = context.backend().await?;
    let locks = &**backend.locks();
    let name = context.name("abandoned");
    let (token, _) = take_raw(locks, &name, context.ttl(20_000)).await?;
    locks.abandon(&hold(&name, token)).await?;
    assert!(is_free_raw(locks, &name).await?, "the abandoned lease is still held");
    Ok(())
}

async fn abandoned_token_is_refused(context: &mut Context) -> CaseResult {
    let backend = context.backend().await?;
    let locks = &**backend.locks();
    let (name, ttl) = (context.name("tombstone"), context.ttl(5_000));
    let never_granted = OwnerToken::random();
    locks.abandon(&hold(&name, never_granted)).await?;
    let (granted_once, _) = take_raw(locks, &name, ttl).await?;
    locks.abandon(&hold(&name, granted_once)).await?;
    for pause in [0, 100, 1_500] {
        context.pass(context.ms(pause)).await;
        for token in [never_granted, granted_once] {
            must_fail(locks.acquire(&request(&name, token, ttl)?).await, ErrorKind::NotHeld)?;
        }
        assert!(is_free_raw(locks, &name).await?, "the abandoned token took the lock");
    }
    Ok(())
}

async fn abandon_of_another_changes_nothing(context: &mut Context) -> CaseResult {
    let backend = context.backend().await?;
    let locks = &**backend.locks();
    let (name, ttl) = (context.name("stranger"), context.ttl(5_000));
    let (before, _) = take_raw(locks, &name, ttl).await?;
    locks.release(&hold(&name, before)).await?;
    let (token, fence) = take_raw(locks, &name, ttl).await?;
    for stranger in [before, OwnerToken::random(), before] {
        locks.abandon(&hold(&name, stranger)).await?;
        assert!(!is_free_raw(locks, &name).await?, "a stranger's undoing freed the lock");
    }
    let again = granted(locks.acquire(&request(&name, token, ttl)?).await?)?;
    assert_eq!(again.fence, fence);
    assert_eq!(locks.release(&hold(&name, token)).await?, Released::Released);
    Ok(())
}

async fn grants_what_was_asked(context: &mut Context) -> CaseResult {
    let backend = context.backend().await?;
    let locks = &**backend.locks();
    for length in [context.ttl(500), context.ttl(5_000), context.ttl(60_000)] {
        let (name, token) = (context.name(format!("{length:?}")), OwnerToken::random());
        let grant = granted(locks.acquire(&request(&name, token, length)?).await?)?;
        assert!(grant.ttl >= length, "{:?} granted instead of {length:?}", grant.ttl);
        assert_eq!((grant.begun, grant.depth), (Begun::Now, 1));
        locks.release(&hold(&name, token)).await?;
    }
    Ok(())
}

async fn duplicated_requests_change_nothing(context: &mut Context) -> CaseResult {
    let (client, layer) = context.layered().await?;
    let (probe, name, ttl) = (context.client().await?, context.name("duplicated"), context.ttl(600));
    layer.rule(Rule::always(Action::Duplicate));
    let mut last = None;
    for _ in 0..3 {
        let guard = keep(&client, &name, ttl).await?;
        assert!(last.is_none_or(|last| guard.fence() > last));
        last = Some(guard.fence());
        context.pass(ttl * 2).await;
        assert!(guard.is_held() && lock(&probe, &name).try_acquire().await?.is_none());
        guard.release().await?;
    }
    layer.heal();
    clean(context, &probe, &name, &[&client]).await
}

async fn resent_requests_change_nothing(context: &mut Context) -> CaseResult {
    let (client, layer) = context.layered().await?;
    let (probe, name, ttl) = (context.client().await?, context.name("resent"), context.ttl(1_000));
    for op in [Op::Acquire, Op::Renew, Op::Abandon] {
        layer.rule(Rule::on(op, Action::Retry));
    }
    for _ in 0..3 {
        let guard = take(&client, &name, ttl).await?;
        assert!(guard.remaining() < ttl && !guard.remaining().is_zero());
        assert!(lock(&probe, &name).try_acquire().await?.is_none());
        guard.release().await?;
    }
    layer.heal();
    clean(context, &probe, &name, &[&client]).await
}

async fn late_acquire_takes_nothing(context: &mut Context) -> CaseResult {
    let (client, layer) = context.layered().await?;
    let (probe, name) = (context.client().await?, context.name("late"));
    layer.rule(Rule::on(Op::Acquire, Action::Hang));
    let given_up = lock(&client, &name).ttl(context.ttl(60_000)).try_acquire().await;
    must_fail(given_up, ErrorKind::Indeterminate)?;
    let done = async || client.stats().cleanups == 0;
    context.eventually(context.soon(), "the clean-up is acknowledged", done).await?;
    // Now the request arrives that the clean-up has overtaken.
    layer.heal();
    context.pass(context.ms(100)).await;
    assert!(lock(&probe, &name).try_acquire().await?.is_some(), "the late request took the lock");
    clean(context, &probe, &name, &[&client]).await
}

async fn lost_grant_is_undone(context: &mut Context) -> CaseResult {
    let (client, layer) = context.layered().await?;
    let (probe, name) = (context.client().await?, context.name("lost-grant"));
    layer.rule(Rule::on(Op::Acquire, Action::LoseReply).once());
    let error = must_fail(lock(&client, &name).ttl(context.ttl(60_000)).try_acquire().await, ErrorKind::Indeterminate)?;
    assert!(error.is_transient() && error.name() == Some(&name));
    clean(context, &probe, &name, &[&client]).await
}
