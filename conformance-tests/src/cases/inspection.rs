//! The operators' view of locks, and their operations.

use std::time::Duration;

use tenure_core::driver::{ForceReleased, Inspection, Introspection, Released, Renewed};
use tenure_core::{ErrorKind, LostReason, OwnerToken};

use super::support::{
    busy, clean, free_within, granted, hold, is_free, is_free_raw, joining, keep, lock, must, must_fail, request, take,
    take_raw, ttl_of,
};
use crate::case::{Case, CaseResult, Context, Need, case};
use crate::layer::Op;

pub(super) const CASES: &[Case] = &[
    case!(
        "inspect/free-lock-has-no-holder",
        "A name that was never used, or whose lock was released or has expired, has neither holder nor waiters.",
        ["P30"],
        [Need::Introspection],
        free_lock_has_no_holder
    ),
    case!(
        "inspect/shows-the-holder",
        "A held lock shows its holder's label, its fence, depth 1, for how long it is held and what remains of its ttl.",
        ["P22", "R11"],
        [Need::Introspection],
        tells_the_holder
    ),
    case!(
        "inspect/counts-the-waiters",
        "The number of waiters rises when one joins and falls when one leaves.",
        ["P12", "P24"],
        [Need::Introspection, Need::Fifo],
        counts_the_waiters
    ),
    case!(
        "inspect/changes-nothing",
        "Looking neither lengthens, shortens nor passes on a lease.",
        ["P29"],
        [Need::Introspection],
        changes_nothing
    ),
    case!(
        "inspect/until-free",
        "`until_free` ends soon after a release and after a lease that ran out, not before; it looks seldom, and waits in no queue.",
        ["P29", "P30"],
        [Need::Introspection],
        until_free
    ),
    case!(
        "force/frees-and-ends-the-hold",
        "A forced release frees the lock; its holder learns at the next renewal that it is gone, and can release nothing.",
        ["P4", "P9"],
        [Need::Revocation],
        frees_and_tells_the_holder
    ),
    case!(
        "force/free-lock-says-not-held",
        "Forcing a free lock returns that it was not held, and changes nothing.",
        ["P10"],
        [Need::Revocation],
        free_lock_says_not_held
    ),
    case!(
        "force/wakes-the-first-waiter",
        "A forced release wakes the first waiter as a release does.",
        ["P18"],
        [Need::Revocation, Need::Wakeups],
        wakes_the_first_waiter
    ),
    case!(
        "force/spares-the-next-holder",
        "A forced release with a fence frees only the hold with that fence: it does not affect the next holder, and says so.",
        ["P9", "P10"],
        [Need::Revocation],
        spares_the_next_holder
    ),
    case!(
        "force/old-token-is-powerless",
        "After a forced release the old token can neither renew nor release what the next holder has.",
        ["P7", "P9"],
        [Need::Revocation],
        old_token_is_powerless
    ),
];

async fn free_lock_has_no_holder(context: &mut Context) -> CaseResult {
    let (client, backend) = (context.client().await?, context.backend().await?);
    let (name, ttl) = (context.name("free"), context.ttl(300));
    assert_eq!(lock(&client, &name).inspect().await?, Inspection::default(), "never used");
    keep(&client, &name, context.ttl(5_000)).await?.release().await?;
    assert_eq!(lock(&client, &name).inspect().await?, Inspection::default(), "released");
    take_raw(&**backend.locks(), &name, ttl).await?;
    assert!(lock(&client, &name).inspect().await?.holder.is_some());
    let handle = lock(&client, &name);
    let gone = async || handle.inspect().await.map(|seen| seen == Inspection::default());
    context.eventually(ttl + context.ms(1_500), "an expired lease is not shown", gone).await?;
    Ok(())
}

async fn tells_the_holder(context: &mut Context) -> CaseResult {
    let (client, other) = (context.client().await?, context.client().await?);
    let (name, ttl) = (context.name("reported"), context.ttl(20_000));
    for label in [Some("worker 7 {\u{1f512}} %s\n"), Some(""), None] {
        let mut handle = lock(&client, &name).fixed_ttl(ttl);
        if let Some(text) = label {
            handle = handle.label(text);
        }
        let guard = must(handle.try_acquire().await?, &name)?;
        context.pass(context.ms(100)).await;
        let seen = lock(&other, &name).inspect().await?;
        let holder = seen.holder.ok_or_else(|| crate::case::Failure::new("a held lock has no holder"))?;
        assert_eq!(holder.label.as_ref().map_or("", |text| text.as_str()), label.unwrap_or_default());
        assert_eq!((holder.fence, holder.depth), (Some(guard.fence()), 1));
        let left = holder.remaining.unwrap_or_default();
        assert!(left < ttl && left > ttl / 2, "{left:?} remain of {ttl:?}");
        let tells_age = context.declared().locks.introspection == Introspection::Full;
        assert_eq!(holder.held_for.is_some(), tells_age, "the time of the grant is given exactly if declared");
        let plausible = |held| held >= Duration::from_millis(50) && held < ttl / 2;
        assert!(holder.held_for.is_none_or(plausible), "held for {:?}", holder.held_for);
        assert_eq!(seen.waiters, 0);
        guard.release().await?;
    }
    Ok(())
}

async fn counts_the_waiters(context: &mut Context) -> CaseResult {
    let (client, backend) = (context.client().await?, context.backend().await?);
    let (locks, name, ttl) = (&**backend.locks(), context.name("waiters"), context.ttl(20_000));
    let handle = lock(&client, &name);
    let (token, _) = take_raw(locks, &name, ttl).await?;
    let tokens = [OwnerToken::random(), OwnerToken::random(), OwnerToken::random()];
    for (before, waiter) in tokens.into_iter().enumerate() {
        assert_eq!(handle.inspect().await?.waiters as usize, before);
        busy(locks.acquire(&joining(&name, waiter, ttl, Duration::from_secs(60))?).await?)?;
    }
    assert_eq!(handle.inspect().await?.waiters, 3);
    for (gone, waiter) in tokens.into_iter().enumerate() {
        locks.abandon(&hold(&name, waiter)).await?;
        assert_eq!(handle.inspect().await?.waiters as usize, 2 - gone);
    }
    locks.release(&hold(&name, token)).await?;
    clean(context, &client, &name, &[&client]).await
}

async fn changes_nothing(context: &mut Context) -> CaseResult {
    let (client, backend) = (context.client().await?, context.backend().await?);
    let (locks, name, ttl) = (&**backend.locks(), context.name("unchanged"), context.ttl(2_000));
    let (token, fence) = take_raw(locks, &name, ttl).await?;
    for _ in 0..5 {
        lock(&client, &name).inspect().await?;
    }
    let again = granted(locks.acquire(&request(&name, token, ttl)?).await?)?;
    assert_eq!(again.fence, fence, "looking took the lease away");
    let free = async || {
        let _seen = locks.inspect(&name).await;
        is_free_raw(locks, &name).await
    };
    let took = context.eventually(ttl + context.ms(1_500), "the lease ends when it would have", free).await?;
    assert!(took > ttl / 4, "free after {took:?}");
    Ok(())
}

async fn until_free(context: &mut Context) -> CaseResult {
    let (client, layer) = context.layered().await?;
    let (holder, backend, name) = (context.client().await?, context.backend().await?, context.name("until"));
    let handle = lock(&client, &name);
    context.within(context.ms(500), "a free lock needs no waiting", handle.until_free()).await??;
    let guard = keep(&holder, &name, context.ttl(20_000)).await?;
    let looks = || layer.frames().iter().filter(|frame| frame.op == Op::Inspect).count();
    let before = looks();
    let waiting = tokio::spawn(async move { handle.until_free().await });
    let long = context.ms(2_000);
    context.pass(long).await;
    assert!(!waiting.is_finished(), "the lock is held");
    let asked = looks() - before;
    let most = 7 + (long.as_millis() / 500) as usize; // six until the longest pause, half of which is left out at most
    assert!((2..=most).contains(&asked), "{asked} looks within {long:?}");
    assert!(layer.frames().iter().all(|frame| frame.op == Op::Inspect), "nothing but looks: {:?}", layer.frames());
    assert_eq!(lock(&holder, &name).inspect().await?.waiters, 0, "it waits in the queue");
    guard.release().await?;
    context.within(context.ms(2_000), "the release is noticed", waiting).await???;
    let ttl = context.ttl(300);
    take_raw(&**backend.locks(), &name, ttl).await?;
    let handle = lock(&client, &name);
    context.within(ttl + context.ms(3_000), "the end of the lease is noticed", handle.until_free()).await??;
    clean(context, &holder, &name, &[&client, &holder]).await
}

async fn frees_and_tells_the_holder(context: &mut Context) -> CaseResult {
    let (client, operator) = (context.client().await?, context.client().await?);
    let (name, ttl) = (context.name("forced"), context.ttl(1_500));
    let guard = keep(&client, &name, ttl).await?;
    assert_eq!(lock(&operator, &name).force_release().await?, ForceReleased::Released);
    let next = keep(&operator, &name, context.ttl(20_000)).await?;
    assert!(next.fence() > guard.fence());
    let reason = context.within(ttl, "the holder learns of it", guard.lost()).await?;
    assert_eq!(reason, LostReason::Gone);
    must_fail(guard.release().await, ErrorKind::Lost)?;
    assert!(!is_free(&client, &name).await?, "the old holder freed the next one's lock");
    next.release().await?;
    clean(context, &operator, &name, &[&client, &operator]).await
}

async fn free_lock_says_not_held(context: &mut Context) -> CaseResult {
    let (client, other) = (context.client().await?, context.client().await?);
    let name = context.name("free");
    assert_eq!(lock(&client, &name).force_release().await?, ForceReleased::NotHeld);
    let guard = take(&other, &name, context.ttl(20_000)).await?;
    assert_eq!(lock(&client, &context.name("another")).force_release().await?, ForceReleased::NotHeld);
    assert!(!is_free(&client, &name).await?, "forcing one name freed another");
    guard.release().await?;
    assert_eq!(lock(&client, &name).force_release().await?, ForceReleased::NotHeld);
    assert!(is_free(&client, &name).await?);
    Ok(())
}

async fn wakes_the_first_waiter(context: &mut Context) -> CaseResult {
    let (client, layer) = context.layered_with(|builder| builder.presence(Duration::from_secs(60))).await?;
    let (holder, name) = (context.client().await?, context.name("woken"));
    let guard = take(&holder, &name, context.ttl(600_000)).await?;
    let waiter = lock(&client, &name);
    let waiting = tokio::spawn(async move { waiter.acquire().await });
    let waits = async || layer.frames().iter().any(|frame| frame.answer == crate::layer::Answer::Busy);
    context.eventually(context.soon(), "the waiter waits", waits).await?;
    assert_eq!(lock(&holder, &name).force_release().await?, ForceReleased::Released);
    let next = context.within(context.ms(2_000), "the waiter is granted soon", waiting).await???;
    assert!(next.fence() > guard.fence());
    next.release().await?;
    free_within(context, &client, &name, context.soon()).await?;
    Ok(())
}

async fn spares_the_next_holder(context: &mut Context) -> CaseResult {
    let (client, operator) = (context.client().await?, context.client().await?);
    let (name, ttl) = (context.name("expected"), context.ttl(20_000));
    let before = take(&client, &name, ttl).await?;
    let stuck = before.fence();
    before.release().await?;
    assert_eq!(lock(&operator, &name).force_release_if(stuck).await?, ForceReleased::NotHeld);
    let next = take(&client, &name, ttl).await?;
    assert_eq!(lock(&operator, &name).force_release_if(stuck).await?, ForceReleased::Changed);
    assert!(!is_free(&operator, &name).await?, "the next holder's lock was freed");
    assert_eq!(lock(&operator, &name).force_release_if(next.fence()).await?, ForceReleased::Released);
    assert!(is_free(&operator, &name).await?);
    assert!(next.release().await.is_err_and(|error| error.is_lost()));
    clean(context, &operator, &name, &[&client, &operator]).await
}

async fn old_token_is_powerless(context: &mut Context) -> CaseResult {
    let backend = context.backend().await?;
    let (locks, name, ttl) = (&**backend.locks(), context.name("powerless"), context.ttl(5_000));
    let (old, _) = take_raw(locks, &name, ttl).await?;
    assert_eq!(locks.force_release(&name, None).await?, ForceReleased::Released);
    assert_eq!(locks.renew(ttl_of(ttl)?, &[hold(&name, old)]).await.remove(0)?, Renewed::Lost);
    let (next, _) = take_raw(locks, &name, ttl).await?;
    assert_eq!(locks.renew(ttl_of(ttl)?, &[hold(&name, old)]).await.remove(0)?, Renewed::Lost);
    assert_eq!(locks.release(&hold(&name, old)).await?, Released::NotHeld);
    assert!(!is_free_raw(locks, &name).await?, "the old token freed the lock");
    assert_eq!(locks.release(&hold(&name, next)).await?, Released::Released);
    Ok(())
}
