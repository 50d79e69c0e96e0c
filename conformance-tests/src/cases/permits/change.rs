//! Changes of a hold's weight.

use tenure_core::driver::{Acquisition, Begun, Family, Released};
use tenure_core::{ErrorKind, OwnerToken};

use super::support::{LONG, Raw, clean, is_idle, must, not_held, semaphore, share, waiting};
use crate::case::{Case, CaseResult, Context, Need, case};
use crate::cases::support::{busy, granted, must_fail};
use crate::layer::{Action, Op, Rule};

pub(in crate::cases) const CASES: &[Case] = &[
    case!(
        "permits/shrink-frees-at-once",
        "A part that is given back serves the waiter that fits now; the rest keeps its lease and its fence.",
        ["P22", "P67", "P69"],
        [Need::PermitWakeups],
        shrink_frees_at_once
    ),
    case!(
        "permits/shrink-to-nothing-is-refused",
        "A shrink to nothing or to more is refused as an argument, nothing is sent, and the permit is as it was.",
        ["P26", "P69"],
        [Need::Permits],
        shrink_to_nothing_is_refused
    ),
    case!(
        "permits/lost-answer-of-a-shrink",
        "A shrink whose request or answer is lost succeeds, and is repeated until the part is free.",
        ["P10", "P69"],
        [Need::Permits],
        lost_answer_of_a_shrink
    ),
    case!(
        "permits/late-change-has-no-effect",
        "A change that arrives after a later one is refused, and a repeated one changes nothing.",
        ["P29", "P69"],
        [Need::Permits],
        late_change_has_no_effect
    ),
    case!(
        "permits/change-keeps-the-lease",
        "A change of weight does not lengthen the lease, and a change of a lease that has ended is refused.",
        ["P69"],
        [Need::Permits],
        change_keeps_the_lease
    ),
    case!(
        "permits/growing-waits-before-the-line",
        "While a hold waits to weigh more no request is granted, another one may not wait for that, and both end with its presence.",
        ["P65", "P68", "P69"],
        [Need::PermitsFifo],
        growing_waits_before_the_line
    ),
];

async fn shrink_frees_at_once(context: &mut Context) -> CaseResult {
    let (holder, name) = (context.client().await?, context.name("shrink"));
    let (client, layer) = context.layered_with(|builder| builder.presence(LONG)).await?;
    let mut held = must(semaphore(&holder, &name, 3).weight(3).ttl(LONG).try_acquire().await?)?;
    let waiter = semaphore(&client, &name, 3).weight(2).ttl(LONG);
    let next = waiting(context, &layer, &name, async move { waiter.acquire().await }).await?;
    let fence = held.fence();
    held.shrink(2).await?;
    assert!(!next.is_finished(), "two beside two of three");
    held.shrink(1).await?;
    let permit = context.within(context.soon(), "the waiter fits beside the rest", next).await???;
    assert!(permit.fence() > fence);
    assert!(held.is_held() && (held.fence(), held.weight()) == (fence, 1), "the rest is held as before");
    assert!(semaphore(&holder, &name, 3).try_acquire().await?.is_none());
    held.release().await?;
    permit.release().await?;
    clean(context, &holder, Family::Semaphore, &name, &[&holder, &client]).await
}

async fn shrink_to_nothing_is_refused(context: &mut Context) -> CaseResult {
    let (client, layer) = context.layered().await?;
    let (probe, name) = (context.client().await?, context.name("nothing"));
    let mut permit = must(semaphore(&client, &name, 3).weight(2).ttl(LONG).try_acquire().await?)?;
    for weight in [0, 3, u32::MAX] {
        must_fail(permit.shrink(weight).await, ErrorKind::InvalidArgument)?;
    }
    permit.shrink(2).await?;
    assert!(layer.frames_of(Op::Resize, &name).is_empty(), "something was sent");
    assert!(permit.is_held() && permit.weight() == 2);
    let beside = semaphore(&probe, &name, 3);
    assert!(beside.clone().weight(2).try_acquire().await?.is_none());
    must(beside.try_acquire().await?)?.release().await?;
    permit.release().await?;
    clean(context, &probe, Family::Semaphore, &name, &[&client]).await
}

async fn lost_answer_of_a_shrink(context: &mut Context) -> CaseResult {
    let (client, layer) = context.layered().await?;
    let (probe, name) = (context.client().await?, context.name("lost-shrink"));
    for action in [Action::LoseReply, Action::FailBeforeSend, Action::Swallow] {
        let mut permit = must(semaphore(&client, &name, 3).weight(3).ttl(LONG).try_acquire().await?)?;
        layer.rule(Rule::on(Op::Resize, action).once());
        permit.shrink(1).await?;
        assert_eq!(permit.weight(), 1);
        let beside = async || -> CaseResult<bool> {
            match semaphore(&probe, &name, 3).weight(2).try_acquire().await? {
                Some(permit) => permit.release().await.map(|()| true).map_err(Into::into),
                None => Ok(false),
            }
        };
        context.eventually(context.soon(), "the part is free", beside).await?;
        let acknowledged = async || client.stats().cleanups == 0;
        context.eventually(context.soon(), "the shrink is acknowledged", acknowledged).await?;
        assert!(permit.is_held() && !is_idle(&probe, Family::Semaphore, &name).await?, "the rest was freed too");
        layer.heal();
        permit.release().await?;
        clean(context, &probe, Family::Semaphore, &name, &[&client]).await?;
    }
    Ok(())
}

async fn late_change_has_no_effect(context: &mut Context) -> CaseResult {
    let raw = Raw::new(context, "late-change", context.ttl(60_000)).await?;
    let (token, first) = raw.take(share(3, 4)).await?;
    let less = granted(raw.resize(token, share(1, 4), 2, None).await?)?;
    assert_eq!(less.fence, first.fence, "less keeps the fence");
    not_held(raw.resize(token, share(3, 4), 1, None).await)?;
    not_held(raw.resize(token, share(4, 4), 1, Some(LONG)).await)?;
    assert!(raw.fits(share(3, 4)).await?, "a late change has taken effect");
    let again = granted(raw.resize(token, share(1, 4), 2, None).await?)?;
    assert_eq!((again.fence, again.begun), (first.fence, Begun::Earlier));
    let more = granted(raw.resize(token, share(4, 4), 3, None).await?)?;
    assert!(more.fence > first.fence && more.begun == Begun::Now, "more has a new fence");
    let again = granted(raw.resize(token, share(4, 4), 3, None).await?)?;
    assert_eq!((again.fence, again.begun), (more.fence, Begun::Earlier));
    not_held(raw.resize(token, share(1, 4), 2, None).await)?;
    assert!(!raw.fits(share(1, 4)).await?, "a late change to less has taken effect");
    assert_eq!(raw.release(token).await?, Released::Released);
    not_held(raw.resize(token, share(1, 4), 4, None).await)?;
    not_held(raw.resize(OwnerToken::random(), share(1, 4), 1, None).await)?;
    assert!(raw.fits(share(4, 4)).await?);
    Ok(())
}

async fn change_keeps_the_lease(context: &mut Context) -> CaseResult {
    let ttl = context.ttl(900);
    let raw = Raw::new(context, "lease", ttl).await?;
    let (token, first) = raw.take(share(2, 3)).await?;
    context.pass(ttl / 2).await;
    let more = granted(raw.resize(token, share(3, 3), 1, None).await?)?;
    assert!(more.fence > first.fence && more.ttl < first.ttl, "{:?} remain of {ttl:?}", more.ttl);
    granted(raw.resize(token, share(2, 3), 2, None).await?)?;
    let ended = async || raw.fits(share(3, 3)).await;
    context.eventually(ttl / 2 + context.ms(1_500), "the lease ends when it would have", ended).await?;
    not_held(raw.resize(token, share(1, 3), 3, None).await)?;
    not_held(raw.resize(token, share(3, 3), 4, Some(LONG)).await)?;
    assert!(raw.fits(share(3, 3)).await?);
    Ok(())
}

async fn growing_waits_before_the_line(context: &mut Context) -> CaseResult {
    let (raw, presence) = (Raw::new(context, "grow", context.ttl(60_000)).await?, context.ttl(900));
    let (one, _) = raw.take(share(2, 5)).await?;
    let (other, _) = raw.take(share(1, 5)).await?;
    // One attempt leaves nothing behind.
    busy(raw.resize(one, share(5, 5), 1, None).await?)?;
    assert!(raw.fits(share(2, 5)).await?);
    busy(raw.resize(one, share(5, 5), 2, Some(LONG)).await?)?;
    assert!(!raw.fits(share(1, 5)).await?, "a request was granted before the hold that waits for more");
    let waiter = OwnerToken::random();
    busy(raw.join(waiter, share(1, 5), LONG).await?)?;
    must_fail(raw.resize(other, share(2, 5), 1, Some(LONG)).await, ErrorKind::LimitReached)?;
    assert_eq!(raw.release(other).await?, Released::Released);
    busy(raw.join(waiter, share(1, 5), LONG).await?)?;
    granted(raw.resize(one, share(5, 5), 2, Some(LONG)).await?)?;
    granted(raw.resize(one, share(2, 5), 3, None).await?)?;
    granted(raw.join(waiter, share(1, 5), LONG).await?)?;
    // One that stops asking lapses.
    busy(raw.resize(one, share(5, 5), 4, Some(presence)).await?)?;
    assert!(!raw.fits(share(1, 5)).await?);
    let lapsed = async || raw.fits(share(1, 5)).await;
    context.eventually(presence + context.ms(2_500), "the wait for more lapses", lapsed).await?;
    let held = raw.ask(one, share(2, 5)).await?;
    assert!(matches!(held, Acquisition::Granted(_)), "the hold that waited in vain is gone: {held:?}");
    for token in [one, waiter] {
        raw.release(token).await?;
    }
    Ok(())
}
