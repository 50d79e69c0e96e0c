//! Fencing tokens: unique, growing, constant.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tenure_core::driver::Begun;
use tenure_core::{Client, FenceFloor, FencingToken};

use super::support::{free_within, granted, hold, keep, lock, request, take, take_raw, ttl_of};
use crate::case::{Case, CaseResult, Context, Failure, Need, case};
use crate::harness::{Data, Fault, FaultKind};
use crate::witness::{FencedRegister, UnfencedRegister};

pub(super) const CASES: &[Case] = &[
    case!(
        "fence/grows-with-every-grant",
        "Each grant of a name has a greater fence than the one before, whichever client it went to.",
        ["P19", "P20"],
        [],
        grows_with_every_grant
    ),
    case!(
        "fence/grows-with-every-turn",
        "Waiters that are served one after the other have fences that grow in that order.",
        ["P21"],
        [],
        grows_with_every_turn
    ),
    case!(
        "fence/grows-after-expiry",
        "A grant that follows an expired lease has a greater fence.",
        ["P21", "P23"],
        [],
        grows_after_expiry
    ),
    case!(
        "fence/grows-after-force",
        "A grant that follows a forced release has a greater fence.",
        ["P23"],
        [Need::Revocation],
        grows_after_force
    ),
    case!(
        "fence/outlives-idleness",
        "The fences of a name that was not used for hours do not begin again.",
        ["P23"],
        [Need::VirtualTime],
        outlives_idleness
    ),
    case!(
        "fence/is-a-constant-of-the-guard",
        "A guard's fence stays what it was granted with, after renewals, after its loss, and after the next grant.",
        ["P22"],
        [],
        is_a_constant_of_the_guard
    ),
    case!(
        "fence/renewal-keeps-it",
        "Renewing a lease changes its fence neither at the backend nor for the next grant's order.",
        ["P20", "P29"],
        [],
        renewal_keeps_it
    ),
    case!(
        "fence/stale-writer-is-refused",
        "A holder that was paused past its lease corrupts a register without fencing, and is refused by one with it.",
        ["P19", "P20", "P21"],
        [],
        stale_writer_is_refused
    ),
    case!(
        "fence/beyond-a-floor",
        "A driver with a floor for fences is granted greater ones, and so is every other one of the same locks after it.",
        ["P19", "P20", "P23"],
        [Need::FenceFloors],
        beyond_a_floor
    ),
    case!(
        "fence/outlives-lost-data",
        "After the server lost all its data, the next grant still has a greater fence.",
        ["P23"],
        [Need::FencesOutliveData, Need::Fault(FaultKind::RestartLosingData)],
        outlives_lost_data
    ),
    case!(
        "fence/outlives-a-restart",
        "After a restart that kept the data, the next grant has a greater fence.",
        ["P23"],
        [Need::Fault(FaultKind::RestartKeepingData)],
        outlives_a_restart
    ),
];

async fn grows_with_every_grant(context: &mut Context) -> CaseResult {
    let clients = [context.client().await?, context.client().await?, context.client().await?];
    let name = context.name("grows");
    let mut last: Option<FencingToken> = None;
    for turn in 0..30 {
        let guard = keep(&clients[turn % 3], &name, context.ttl(5_000)).await?;
        let fence = guard.fence();
        assert!(last.is_none_or(|last| fence > last), "grant {turn} has fence {fence} after {last:?}");
        last = Some(fence);
        guard.release().await?;
    }
    Ok(())
}

async fn grows_with_every_turn(context: &mut Context) -> CaseResult {
    let (one, other) = (context.client().await?, context.client().await?);
    let name = context.name("turns");
    let holder = keep(&one, &name, context.ttl(20_000)).await?;
    let fences = Arc::new(Mutex::new(vec![holder.fence()]));
    let waiting: Vec<_> = (0..6)
        .map(|number| {
            let waiter = lock(if number % 2 == 0 { &one } else { &other }, &name).ttl(context.ttl(20_000));
            let fences = Arc::clone(&fences);
            Ok(tokio::spawn(async move {
                let guard = waiter.acquire().await?;
                fences.lock().unwrap_or_else(PoisonError::into_inner).push(guard.fence());
                guard.release().await
            }))
        })
        .collect::<Result<_, Failure>>()?;
    let queued = async || one.stats().waiters + other.stats().waiters == 6;
    context.eventually(context.soon(), "they wait", queued).await?;
    holder.release().await?;
    for one in waiting {
        context.within(context.soon(), "every turn comes", one).await???;
    }
    let fences = fences.lock().unwrap_or_else(PoisonError::into_inner);
    assert!(fences.is_sorted_by(|before, after| before < after), "{fences:?}");
    Ok(())
}

async fn grows_after_expiry(context: &mut Context) -> CaseResult {
    let (one, other) = (context.client().await?, context.client().await?);
    let (name, ttl) = (context.name("expired"), context.ttl(800));
    let mut last = take(&one, &name, ttl).await?.fence();
    for _ in 0..3 {
        let guard = lock(&other, &name).fixed_ttl(ttl).acquire_within(ttl + context.soon()).await?;
        assert!(guard.fence() > last, "fence {} after {last}", guard.fence());
        last = guard.fence();
        guard.lost().await;
        std::mem::forget(guard); // neither released nor dropped: the lease has to end by itself
    }
    Ok(())
}

async fn grows_after_force(context: &mut Context) -> CaseResult {
    let (one, other) = (context.client().await?, context.client().await?);
    let name = context.name("forced");
    let mut last: Option<FencingToken> = None;
    for _ in 0..5 {
        let guard = keep(&one, &name, context.ttl(20_000)).await?;
        assert!(last.is_none_or(|last| guard.fence() > last), "fence {} after {last:?}", guard.fence());
        last = Some(guard.fence());
        lock(&other, &name).force_release().await?;
    }
    Ok(())
}

async fn outlives_idleness(context: &mut Context) -> CaseResult {
    let client = context.client().await?;
    let name = context.name("idle");
    let guard = keep(&client, &name, context.ttl(5_000)).await?;
    let before = guard.fence();
    guard.release().await?;
    context.pass(Duration::from_secs(4 * 3_600)).await;
    let others = context.name("others");
    for _ in 0..3 {
        keep(&client, &others, context.ttl(5_000)).await?.release().await?;
    }
    let guard = keep(&client, &name, context.ttl(5_000)).await?;
    assert!(guard.fence() > before, "fence {} after {before}", guard.fence());
    Ok(())
}

async fn is_a_constant_of_the_guard(context: &mut Context) -> CaseResult {
    let (one, other) = (context.client().await?, context.client().await?);
    let (name, ttl) = (context.name("constant"), context.ttl(400));
    let kept = keep(&one, &name, ttl).await?;
    let fence = kept.fence();
    context.pass(ttl * 2).await;
    assert!(kept.is_held() && kept.fence() == fence, "a renewal changed the fence");
    kept.release().await?;
    let stale = take(&one, &name, ttl).await?;
    let fence = stale.fence();
    stale.lost().await;
    let next = lock(&other, &name).acquire_within(ttl + context.soon()).await?;
    assert_eq!(stale.fence(), fence, "a stale guard reports another fence");
    assert!(next.fence() > fence);
    Ok(())
}

async fn renewal_keeps_it(context: &mut Context) -> CaseResult {
    let backend = context.backend().await?;
    let locks = &**backend.locks();
    let (name, ttl) = (context.name("renewed"), context.ttl(5_000));
    let (token, fence) = take_raw(locks, &name, ttl).await?;
    for _ in 0..3 {
        locks.renew(ttl_of(ttl)?, &[hold(&name, token)]).await.remove(0)?;
        let again = granted(locks.acquire(&request(&name, token, ttl)?).await?)?;
        assert_eq!((again.fence, again.begun), (fence, Begun::Earlier), "after a renewal");
    }
    locks.release(&hold(&name, token)).await?;
    let (_, next) = take_raw(locks, &name, ttl).await?;
    assert!(next > fence);
    Ok(())
}

async fn stale_writer_is_refused(context: &mut Context) -> CaseResult {
    let (one, other) = (context.client().await?, context.client().await?);
    let (name, ttl) = (context.name("stale-writer"), context.ttl(300));
    let (fenced, unfenced) = (FencedRegister::default(), UnfencedRegister::default());
    let paused = take(&one, &name, ttl).await?;
    assert!(fenced.write(paused.fence()).is_ok());
    unfenced.write(paused.fence());
    // The holder does not look at its guard for longer than its lease, and another client gets the lock.
    context.block(ttl).await;
    let next = lock(&other, &name).acquire_within(context.soon()).await?;
    assert!(fenced.write(next.fence()).is_ok(), "the rightful holder was refused");
    unfenced.write(next.fence());
    let refused = fenced.write(paused.fence());
    unfenced.write(paused.fence());
    assert!(refused.is_err() && fenced.is_in_order(), "the stale write went through");
    assert!(unfenced.is_corrupt(), "the bad day was too kind: nothing was written out of order");
    Ok(())
}

async fn beyond_a_floor(context: &mut Context) -> CaseResult {
    let (one, name, ttl) = (context.client().await?, context.name("floor"), context.ttl(5_000));
    let grant = async |client: &Client| {
        let guard = keep(client, &name, ttl).await?;
        let fence = guard.fence();
        guard.release().await?;
        Ok::<_, Failure>(fence)
    };
    let mut last = grant(&one).await?;
    // Further than clocks and counters get while the case runs.
    let floor = FenceFloor::new(last.get() + 3_600_000_000)?;
    let floored = context.client_beyond(floor).await?;
    for client in [&floored, &one, &floored, &one] {
        let fence = grant(client).await?;
        assert!(floor.admits(fence) && fence > last, "fence {fence} after {last}, with a floor of {floor}");
        last = fence;
    }
    let fresh = context.client().await?;
    let fence = grant(&fresh).await?;
    assert!(fence > last, "fence {fence} after {last}, of a client that begins without the floor");
    Ok(())
}

async fn outlives_lost_data(context: &mut Context) -> CaseResult {
    across_restart(context, Data::Lost).await
}

async fn outlives_a_restart(context: &mut Context) -> CaseResult {
    across_restart(context, Data::Kept).await
}

async fn across_restart(context: &mut Context, data: Data) -> CaseResult {
    let client = context.client().await?;
    let name = context.name("restart");
    let guard = take(&client, &name, context.ttl(5_000)).await?;
    let before = guard.fence();
    guard.release().await?;
    context.inject(Fault::KillServer(data)).await?.heal().await?;
    let probe = context.client().await?;
    free_within(context, &probe, &name, context.ms(15_000)).await?;
    let after = keep(&probe, &name, context.ttl(5_000)).await?;
    assert!(after.fence() > before, "fence {} after {before}", after.fence());
    Ok(())
}
