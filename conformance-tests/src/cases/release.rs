//! Releases: by their owner, once, and surely.

use tenure_core::driver::Released;
use tenure_core::{ErrorKind, HoldState, LostReason, OwnerToken};

use super::support::{clean, hold, is_free, is_free_raw, keep, lock, must, must_fail, take, take_raw};
use crate::case::{Case, CaseResult, Context, case};
use crate::layer::{Action, Op, Rule};

pub(super) const CASES: &[Case] = &[
    case!(
        "lock/expired-holder-cannot-release",
        "A holder whose lease has ended cannot release the next holder's lock, and its release says why the lease was lost.",
        ["P9", "P10"],
        [],
        expired_holder_cannot_release
    ),
    case!(
        "lock/release-says-that-it-was-lost",
        "The release of a hold that the backend no longer knows is an error that says so, although the holder had not noticed.",
        ["P9", "P10"],
        [],
        release_says_that_it_was_lost
    ),
    case!(
        "lock/stale-guard-of-the-same-handle",
        "Two acquisitions through one handle are two owners: the first, stale guard cannot free the second's lock.",
        ["R3", "P9", "P14"],
        [],
        stale_guard_of_the_same_handle
    ),
    case!(
        "driver/second-release-says-not-held",
        "Releasing again answers that nothing is held, and does not harm the holder that came after.",
        ["P10"],
        [],
        second_release_says_not_held
    ),
    case!(
        "driver/release-by-another-token-changes-nothing",
        "A release with a token that does not hold the lock answers not held and frees nothing.",
        ["P9"],
        [],
        release_by_another_token_changes_nothing
    ),
    case!(
        "lock/release-with-lost-reply-ends-free",
        "A release whose reply is lost reports that the outcome is unknown, and the name is free in the end.",
        ["P10", "P26"],
        [],
        release_with_lost_reply_ends_free
    ),
    case!(
        "lock/failed-release-is-carried-on",
        "A release that could not be sent is carried on by the client until it is acknowledged.",
        ["P10", "P13"],
        [],
        failed_release_is_carried_on
    ),
    case!(
        "lock/duplicated-release-is-harmless",
        "A release whose frame arrives twice frees only its own hold.",
        ["P9", "P29"],
        [],
        duplicated_release_is_harmless
    ),
    case!(
        "lock/late-release-is-harmless",
        "A release that arrives long after it was sent does not free the lock of a later holder.",
        ["P9", "P29"],
        [],
        late_release_is_harmless
    ),
    case!(
        "lock/no-renewal-after-release",
        "Once a release has left, no renewal of its token follows it.",
        ["P8"],
        [],
        no_renewal_after_release
    ),
];

async fn expired_holder_cannot_release(context: &mut Context) -> CaseResult {
    let (one, other) = (context.client().await?, context.client().await?);
    let (name, ttl) = (context.name("expired"), context.ttl(300));
    let stale = take(&one, &name, ttl).await?;
    context.within(ttl, "the first lease is lost", stale.lost()).await?;
    let next = lock(&other, &name).ttl(context.ttl(5_000)).acquire_within(context.soon()).await?;
    assert_eq!(stale.state(), HoldState::Lost(LostReason::Expired));
    let error = must_fail(stale.release().await, ErrorKind::Lost)?;
    assert_eq!(error.message(), LostReason::Expired.to_string());
    assert!(!is_free(&one, &name).await?, "the stale release freed the next holder's lock");
    next.release().await?;
    Ok(())
}

async fn release_says_that_it_was_lost(context: &mut Context) -> CaseResult {
    let (client, backend) = (context.client().await?, context.backend().await?);
    let (name, ttl) = (context.name("lost"), context.ttl(20_000));
    let guard = keep(&client, &name, ttl).await?;
    backend.locks().release(&hold(&name, *guard.token())).await?; // as good as any other loss
    assert!(guard.is_held(), "the holder cannot know yet");
    let error = must_fail(guard.release().await, ErrorKind::Lost)?;
    assert_eq!(error.message(), LostReason::Gone.to_string());
    clean(context, &client, &name, &[&client]).await
}

async fn stale_guard_of_the_same_handle(context: &mut Context) -> CaseResult {
    let (one, other) = (context.client().await?, context.client().await?);
    let (name, ttl) = (context.name("stale"), context.ttl(300));
    let handle = lock(&one, &name).fixed_ttl(ttl);
    let stale = must(handle.try_acquire().await?, &name)?;
    context.within(ttl, "the first lease is lost", stale.lost()).await?;
    let next = handle.clone().ttl(context.ttl(5_000)).acquire_within(context.soon()).await?;
    assert_ne!(stale.token(), next.token(), "two acquisitions share a token");
    must_fail(stale.release().await, ErrorKind::Lost)?;
    assert!(!is_free(&other, &name).await?, "the stale guard freed the second acquisition's lock");
    assert!(next.is_held());
    next.release().await?;
    Ok(())
}

async fn second_release_says_not_held(context: &mut Context) -> CaseResult {
    let backend = context.backend().await?;
    let locks = &**backend.locks();
    let (name, ttl) = (context.name("twice"), context.ttl(5_000));
    let (first, _) = take_raw(locks, &name, ttl).await?;
    assert_eq!(locks.release(&hold(&name, first)).await?, Released::Released);
    assert_eq!(locks.release(&hold(&name, first)).await?, Released::NotHeld);
    let (second, _) = take_raw(locks, &name, ttl).await?;
    assert_eq!(locks.release(&hold(&name, first)).await?, Released::NotHeld);
    assert!(!is_free_raw(locks, &name).await?, "the repeated release freed the next holder's lock");
    assert_eq!(locks.release(&hold(&name, second)).await?, Released::Released);
    Ok(())
}

async fn release_by_another_token_changes_nothing(context: &mut Context) -> CaseResult {
    let backend = context.backend().await?;
    let locks = &**backend.locks();
    let name = context.name("foreign");
    assert_eq!(locks.release(&hold(&name, OwnerToken::random())).await?, Released::NotHeld);
    let (token, _) = take_raw(locks, &name, context.ttl(5_000)).await?;
    assert_eq!(locks.release(&hold(&name, OwnerToken::random())).await?, Released::NotHeld);
    assert!(!is_free_raw(locks, &name).await?, "a stranger freed the lock");
    assert_eq!(locks.release(&hold(&name, token)).await?, Released::Released);
    Ok(())
}

async fn release_with_lost_reply_ends_free(context: &mut Context) -> CaseResult {
    let (client, layer) = context.layered().await?;
    let (probe, name) = (context.client().await?, context.name("lost-reply"));
    let guard = keep(&client, &name, context.ttl(60_000)).await?;
    layer.rule(Rule::on(Op::Release, Action::LoseReply).once());
    let error = must_fail(guard.release().await, ErrorKind::Indeterminate)?;
    assert_eq!(error.name(), Some(&name), "the error names the lock");
    clean(context, &probe, &name, &[&client]).await
}

async fn failed_release_is_carried_on(context: &mut Context) -> CaseResult {
    let (client, layer) = context.layered().await?;
    let (probe, name) = (context.client().await?, context.name("unsent"));
    let guard = keep(&client, &name, context.ttl(60_000)).await?;
    let token = *guard.token();
    layer.rule(Rule::on(Op::Release, Action::FailBeforeSend).times(3));
    assert!(guard.release().await.is_err(), "a release that was not sent must not claim success");
    clean(context, &probe, &name, &[&client]).await?;
    let frames = layer.frames_of(Op::Release, &name);
    assert!(frames.len() >= 4 && frames.iter().all(|frame| frame.token == Some(token)), "{frames:?}");
    Ok(())
}

async fn duplicated_release_is_harmless(context: &mut Context) -> CaseResult {
    let (client, layer) = context.layered().await?;
    let (other, name) = (context.client().await?, context.name("duplicated"));
    let guard = keep(&client, &name, context.ttl(5_000)).await?;
    layer.rule(Rule::on(Op::Release, Action::Duplicate));
    guard.release().await?;
    let next = keep(&other, &name, context.ttl(5_000)).await?;
    layer.heal();
    assert!(next.is_held() && !is_free(&client, &name).await?);
    next.release().await?;
    clean(context, &other, &name, &[&client, &other]).await
}

async fn late_release_is_harmless(context: &mut Context) -> CaseResult {
    let (client, layer) = context.layered().await?;
    let (other, name, ttl) = (context.client().await?, context.name("late"), context.ttl(400));
    let guard = take(&client, &name, ttl).await?;
    layer.rule(Rule::on(Op::Release, Action::Hang));
    assert!(guard.release().await.is_err(), "the release got no answer");
    let next = lock(&other, &name).ttl(context.ttl(20_000)).acquire_within(ttl + context.soon()).await?;
    layer.heal();
    context.pass(context.ms(200)).await;
    assert!(!is_free(&other, &name).await?, "the late release freed the next holder's lock");
    next.release().await?;
    clean(context, &other, &name, &[&client, &other]).await
}

async fn no_renewal_after_release(context: &mut Context) -> CaseResult {
    let (client, layer) = context.layered().await?;
    let (name, ttl) = (context.name("zombie"), context.ttl(300));
    for round in 0..8 {
        let guard = keep(&client, &name, ttl).await?;
        let token = *guard.token();
        // The release falls into, before or after the renewal at a third of the ttl.
        context.pass(ttl * (round + 4) / 21).await;
        guard.release().await?;
        context.pass(ttl / 2).await;
        let frames = layer.frames();
        let last = frames.iter().rposition(|frame| frame.op == Op::Release && frame.token == Some(token));
        let late = |frame: &crate::layer::Frame| frame.op == Op::Renew && frame.token == Some(token);
        assert!(last.is_some_and(|at| !frames[at..].iter().any(late)), "a renewal followed its release");
    }
    let renewed = layer.frames_of(Op::Renew, &name);
    assert!(!renewed.is_empty(), "no lease was held long enough to be renewed: the case proves nothing");
    Ok(())
}
