//! Each hold has a lease and a fence of its own.

use std::collections::BTreeSet;

use tenure_core::driver::{Family, Released, Renewed};

use super::support::{LONG, Raw, clean, is_idle, must, semaphore, share};
use crate::case::{Case, CaseResult, Context, Need, case};
use crate::layer::Op;

pub(in crate::cases) const CASES: &[Case] = &[
    case!(
        "permits/held-beyond-the-ttl",
        "A permit that is renewed is held for many times its ttl, and counts all the while.",
        ["P6", "P66"],
        [Need::Permits],
        held_beyond_the_ttl
    ),
    case!(
        "permits/one-end-touches-no-other",
        "The end of one lease frees its permits alone: a longer lease beside it continues.",
        ["P66"],
        [Need::Permits],
        one_end_touches_no_other
    ),
    case!(
        "permits/renewal-of-one-touches-no-other",
        "A renewal names one hold: the hold beside it, which is not renewed, ends at its time.",
        ["P7", "P66"],
        [Need::Permits],
        renewal_of_one_touches_no_other
    ),
    case!(
        "permits/renewal-never-revives",
        "A renewal of a lease that has ended returns the loss and takes nothing.",
        ["P7"],
        [Need::Permits],
        renewal_never_revives
    ),
    case!(
        "permits/expired-holder-cannot-release",
        "A release of permits whose lease has ended returns the loss, and the next holder keeps its permits.",
        ["P9", "P66"],
        [Need::Permits],
        expired_holder_cannot_release
    ),
    case!(
        "permits/dead-holders-permits-come-back",
        "The permits of a dead holder are granted to a waiter within their ttl.",
        ["P17"],
        [Need::Permits],
        dead_holders_permits_come_back
    ),
    case!(
        "permits/fences-in-the-order-of-grants",
        "Each grant has a greater fence than the grants before it, held, released or expired.",
        ["P20", "P23"],
        [Need::Permits],
        fences_in_the_order_of_grants
    ),
    case!(
        "permits/no-two-share-a-fence",
        "Waiters that are served by one release have different fences, all greater than that of the released hold.",
        ["P19", "P66"],
        [Need::Permits],
        no_two_share_a_fence
    ),
    case!(
        "permits/nothing-is-renewed-after-the-end",
        "After the last release, and after a cancelled acquisition, no renewal of the permits is sent.",
        ["P8", "P30"],
        [Need::Permits],
        nothing_is_renewed_after_the_end
    ),
];

async fn held_beyond_the_ttl(context: &mut Context) -> CaseResult {
    let (client, probe) = (context.client().await?, context.client().await?);
    let (name, ttl) = (context.name("beyond"), context.ttl(600));
    let permit = must(semaphore(&client, &name, 2).ttl(ttl).weight(2).try_acquire().await?)?;
    for _ in 0..6 {
        context.pass(ttl).await;
        assert!(permit.is_held() && !is_idle(&probe, Family::Semaphore, &name).await?);
    }
    permit.release().await?;
    clean(context, &probe, Family::Semaphore, &name, &[&client]).await
}

async fn one_end_touches_no_other(context: &mut Context) -> CaseResult {
    let ttl = context.ttl(600);
    let (long, short) = (Raw::new(context, "ends", ttl * 100).await?, Raw::new(context, "ends", ttl).await?);
    let (first, _) = long.take(share(1, 3)).await?;
    short.take(share(1, 3)).await?;
    let (last, _) = long.take(share(1, 3)).await?;
    assert!(!long.fits(share(1, 3)).await?);
    let ended = async || long.fits(share(1, 3)).await;
    context.eventually(ttl + context.ms(2_000), "the short lease ends", ended).await?;
    context.pass(ttl * 2).await;
    assert!(!long.fits(share(2, 3)).await?, "the end of one lease ended another");
    for token in [first, last] {
        assert_eq!(long.release(token).await?, Released::Released);
    }
    Ok(())
}

async fn renewal_of_one_touches_no_other(context: &mut Context) -> CaseResult {
    let raw = Raw::new(context, "renewed", context.ttl(1_200)).await?;
    let (dead, _) = raw.take(share(1, 2)).await?;
    let (alive, _) = raw.take(share(1, 2)).await?;
    for _ in 0..6 {
        context.pass(context.ttl(1_200) / 3).await;
        let renewed = raw.renew(alive).await?;
        assert!(matches!(renewed, Renewed::Extended { .. }), "{renewed:?}");
    }
    assert_eq!(raw.renew(dead).await?, Renewed::Lost, "the renewal of another hold kept it");
    assert!(raw.fits(share(1, 2)).await? && !raw.fits(share(2, 2)).await?);
    assert_eq!(raw.release(alive).await?, Released::Released);
    Ok(())
}

async fn renewal_never_revives(context: &mut Context) -> CaseResult {
    let raw = Raw::new(context, "revive", context.ttl(600)).await?;
    let (token, _) = raw.take(share(2, 2)).await?;
    context.pass(context.ttl(600) + context.ms(1_500)).await;
    assert_eq!(raw.renew(token).await?, Renewed::Lost);
    assert!(raw.fits(share(2, 2)).await?, "the renewal took the permits again");
    assert_eq!(raw.release(token).await?, Released::NotHeld);
    Ok(())
}

async fn expired_holder_cannot_release(context: &mut Context) -> CaseResult {
    let (client, ttl) = (context.client().await?, context.ttl(600));
    let raw = Raw::new(context, "expired", ttl).await?;
    let (stale, grant) = raw.take(share(2, 2)).await?;
    context.pass(ttl).await;
    let next = semaphore(&client, &raw.name, 2).weight(2).ttl(LONG).acquire_within(context.soon()).await?;
    assert!(next.fence() > grant.fence);
    for _ in 0..2 {
        assert_eq!(raw.release(stale).await?, Released::NotHeld);
        assert!(next.is_held() && !raw.fits(share(1, 2)).await?, "a stale release freed the permits");
    }
    next.release().await?;
    clean(context, &client, Family::Semaphore, &raw.name, &[&client]).await
}

async fn dead_holders_permits_come_back(context: &mut Context) -> CaseResult {
    let (client, name, ttl) = (context.client().await?, context.name("dead"), context.ttl(1_000));
    let raw = Raw::new(context, "dead", ttl).await?;
    raw.take(share(2, 3)).await?;
    raw.take(share(1, 3)).await?;
    let waiter = semaphore(&client, &name, 3).weight(3);
    let permit = waiter.acquire_within(ttl + context.ms(3_000)).await?;
    permit.release().await?;
    clean(context, &client, Family::Semaphore, &name, &[&client]).await
}

async fn fences_in_the_order_of_grants(context: &mut Context) -> CaseResult {
    let clients = [context.client().await?, context.client().await?];
    let (name, mut fences, mut held) = (context.name("order"), Vec::new(), Vec::new());
    for turn in 0..8 {
        let permit = must(semaphore(&clients[turn % 2], &name, 3).ttl(LONG).try_acquire().await?)?;
        fences.push(permit.fence());
        held.push(permit);
        if held.len() == 3 {
            held.remove(turn % 3).release().await?;
        }
    }
    for permit in held {
        permit.release().await?;
    }
    let ttl = context.ttl(600);
    let raw = Raw::new(context, "order", ttl).await?;
    fences.push(raw.take(share(3, 3)).await?.1.fence);
    context.pass(ttl + context.ms(1_500)).await;
    let (token, grant) = raw.take(share(1, 3)).await?;
    fences.push(grant.fence);
    raw.release(token).await?;
    assert!(fences.is_sorted_by(|one, next| one < next), "{fences:?}");
    Ok(())
}

async fn no_two_share_a_fence(context: &mut Context) -> CaseResult {
    let (holder, name) = (context.client().await?, context.name("unique"));
    let held = must(semaphore(&holder, &name, 8).weight(8).ttl(LONG).try_acquire().await?)?;
    let (client, layer) = context.layered().await?;
    let mut tasks = Vec::new();
    for _ in 0..8 {
        let waiter = semaphore(&client, &name, 8).ttl(LONG);
        tasks.push(super::support::waiting(context, &layer, &name, async move { waiter.acquire().await }).await?);
    }
    let first = held.fence();
    held.release().await?;
    let mut permits = Vec::new();
    for task in tasks {
        permits.push(context.within(context.soon() * 2, "each waiter is served", task).await???);
    }
    let fences: BTreeSet<_> = permits.iter().map(tenure_core::Permit::fence).collect();
    assert!(fences.len() == 8 && fences.iter().all(|fence| *fence > first), "{first} and then {fences:?}");
    for permit in permits {
        permit.release().await?;
    }
    clean(context, &holder, Family::Semaphore, &name, &[&holder, &client]).await
}

async fn nothing_is_renewed_after_the_end(context: &mut Context) -> CaseResult {
    let (client, layer) = context.layered().await?;
    let (probe, name, ttl) = (context.client().await?, context.name("quiet"), context.ttl(900));
    for turn in 0..40 {
        let handle = semaphore(&client, &name, 3).ttl(ttl);
        if turn % 2 == 0 {
            handle.acquire_within(context.soon()).await?.release().await?;
        } else {
            drop(crate::poll::at_most(turn / 2, handle.acquire()).await);
        }
    }
    clean(context, &probe, Family::Semaphore, &name, &[&client]).await?;
    let before = layer.count();
    context.pass(ttl * 2).await;
    assert_eq!(layer.count(), before, "requests after the end");
    // While it is held, it is renewed: the silence before is no accident.
    let permit = must(semaphore(&client, &name, 3).ttl(ttl).try_acquire().await?)?;
    context.pass(ttl * 2).await;
    assert!(permit.is_held() && !layer.frames_of(Op::Renew, &name).is_empty());
    permit.release().await?;
    let renewals = layer.frames_of(Op::Renew, &name).len();
    context.pass(ttl * 2).await;
    assert_eq!(layer.frames_of(Op::Renew, &name).len(), renewals, "renewed after its release");
    Ok(())
}
