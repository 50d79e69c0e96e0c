//! Leases that a client passes on among its own waiters, and the fences that the backend reserves for that.

use std::sync::{Arc, Mutex};

use tenure_core::driver::{Begun, DistributedLock, Grant, Handing, Queueing, Signal};
use tenure_core::{Client, LockGuard, LockName, OwnerToken, Result};
use tokio::task::JoinHandle;

use super::support::{busy, clean, granted, hold, keep, lock, request};
use crate::case::{Case, CaseResult, Context, Need, case};
use crate::layer::{FaultLayer, Op};

pub(super) const CASES: &[Case] = &[
    case!(
        "relay/reserved-fences-are-exclusive",
        "Grants carry as many fences as were asked for, most of the time, and every later grant is greater than all of them.",
        ["P19", "P20"],
        [],
        reserved_fences_are_exclusive
    ),
    case!(
        "relay/turn-reserves-them-too",
        "Also a lease that reaches a waiter without being asked for carries fences that no later grant repeats.",
        ["P19", "P21"],
        [Need::Fifo],
        turn_reserves_them_too
    ),
    case!(
        "relay/costs-no-request",
        "The waiters of one client pass a lease on in order of arrival, without a request to the backend.",
        ["P21", "P24"],
        [Need::Passing],
        costs_no_request
    ),
    case!(
        "relay/fences-grow",
        "Of holders that were passed a lease, and those of another client between them, each has a greater fence than the \
         one before, and no two hold at once.",
        ["P19", "P20", "P21"],
        [Need::Passing],
        fences_grow
    ),
    case!(
        "relay/others-get-their-turn",
        "Who waits behind the first waiter of a client with many is served after eight of that client's at the latest.",
        ["P24"],
        [Need::Passing, Need::Fifo],
        others_get_their_turn
    ),
];

const ASKED: u32 = 5;

async fn take_range(
    locks: &dyn DistributedLock,
    name: &LockName,
    token: OwnerToken,
    context: &Context,
) -> CaseResult<Grant> {
    let asked = request(name, token, context.ttl(20_000))?.with_fences(ASKED);
    let grant = granted(locks.acquire(&asked).await?)?;
    assert!(grant.fences >= 1, "not even one fence");
    Ok(grant)
}

async fn reserved_fences_are_exclusive(context: &mut Context) -> CaseResult {
    let (one, other) = (context.backend().await?, context.backend().await?);
    let (name, most) = (context.name("range"), context.declared().locks.max_fences);
    let (mut last, mut whole) = (0, 0);
    for turn in 0..6 {
        let (locks, token) = (&**[&one, &other][turn % 2].locks(), OwnerToken::random());
        let grant = take_range(locks, &name, token, context).await?;
        whole += u32::from(grant.fences >= ASKED.min(most));
        assert!(grant.fence.get() > last, "grant {turn} has fence {} after {last}", grant.fence);
        last = grant.fence.get() + u64::from(grant.fences) - 1;
        let again = take_range(locks, &name, token, context).await?;
        assert_eq!((again.fence, again.begun), (grant.fence, Begun::Earlier));
        assert!(again.fences <= grant.fences, "more than was reserved");
        locks.release(&hold(&name, token)).await?;
    }
    assert!(whole >= 3, "{whole} of six grants carried the {ASKED} fences that were asked for");
    Ok(())
}

async fn turn_reserves_them_too(context: &mut Context) -> CaseResult {
    let (backend, name, ttl) = (context.backend().await?, context.name("turn"), context.ttl(20_000));
    let locks = &**backend.locks();
    let (first, waiter) = (OwnerToken::random(), OwnerToken::random());
    take_range(locks, &name, first, context).await?;
    let mut watch = locks.watch(&name, &waiter).await?;
    let queue = Queueing::Join { presence: context.ttl(60_000), accepts: Handing::Direct };
    let asked = request(&name, waiter, ttl)?.with_fences(ASKED).with_queue(queue);
    busy(locks.acquire(&asked).await?)?;
    locks.release(&hold(&name, first)).await?;
    let (fence, fences) = match context.within(context.soon(), "the waiter is notified", watch.next()).await? {
        Signal::Handed(handed) => (handed.fence, handed.fences),
        _ => {
            let grant = granted(locks.acquire(&asked).await?)?;
            (grant.fence, grant.fences)
        }
    };
    let again = granted(locks.acquire(&asked).await?)?;
    assert!(again.fence == fence && again.fences <= fences, "{again:?} after {fence} and {fences}");
    locks.release(&hold(&name, waiter)).await?;
    let next = take_range(locks, &name, OwnerToken::random(), context).await?;
    let last = fence.get() + u64::from(fences) - 1;
    assert!(next.fence.get() > last, "{} was reserved: {fence} and {fences} in all", next.fence);
    Ok(())
}

/// Starts a waiter once those before it have their places.
async fn join(context: &Context, client: &Client, name: &LockName) -> CaseResult<JoinHandle<Result<LockGuard>>> {
    let (waiter, before) = (lock(client, name).ttl(context.ttl(60_000)), client.stats().waiters);
    let waiting = tokio::spawn(async move { waiter.acquire().await });
    context.eventually(context.soon(), "it waits", async || client.stats().waiters > before).await?;
    Ok(waiting)
}

/// As [`join`], for the first: it also has its place at the backend.
async fn lead(
    context: &Context,
    client: &Client,
    layer: &FaultLayer,
    name: &LockName,
) -> CaseResult<JoinHandle<Result<LockGuard>>> {
    let asked = layer.frames_of(Op::Acquire, name).len();
    let waiting = join(context, client, name).await?;
    let answered = async || {
        let frames = layer.frames_of(Op::Acquire, name);
        frames.len() > asked && frames.last().is_some_and(|frame| frame.answered_at.is_some())
    };
    context.eventually(context.soon(), "it has its place", answered).await?;
    Ok(waiting)
}

async fn costs_no_request(context: &mut Context) -> CaseResult {
    let (holder, (client, layer)) = (context.client().await?, context.layered().await?);
    let mut fewest = usize::MAX;
    // A lease is passed on for some milliseconds only. On a machine that is busy with other things, that takes a few tries.
    for turn in 0..40 {
        let name = context.name(format!("free/{turn}"));
        let held = keep(&holder, &name, context.ttl(60_000)).await?;
        let mut waiting = vec![lead(context, &client, &layer, &name).await?];
        for _ in 0..4 {
            waiting.push(join(context, &client, &name).await?);
        }
        held.release().await?;
        let mut last = None;
        for next in waiting {
            let guard = context.within(context.soon(), "the next is served", next).await???;
            assert!(last.is_none_or(|last| guard.fence() > last), "served out of order");
            last = Some(guard.fence());
            guard.release().await?;
        }
        clean(context, &holder, &name, &[&holder, &client]).await?;
        fewest = fewest.min(layer.frames_of(Op::Release, &name).len());
        if fewest <= 1 {
            return Ok(());
        }
    }
    panic!("five holders cost {fewest} releases at least");
}

async fn fences_grow(context: &mut Context) -> CaseResult {
    let clients = [context.client().await?, context.client().await?];
    let name = context.name("grow");
    let seen: Arc<Mutex<(Vec<u64>, u32)>> = Arc::default();
    let mut tasks = Vec::new();
    for number in 0..8 {
        let (waiter, seen) = (lock(&clients[number % 2], &name).ttl(context.ttl(60_000)), Arc::clone(&seen));
        tasks.push(tokio::spawn(async move {
            for _ in 0..12 {
                let guard = waiter.acquire().await?;
                {
                    let mut seen = seen.lock().expect("no panic under it");
                    seen.0.push(guard.fence().get());
                    seen.1 += 1;
                    assert_eq!(seen.1, 1, "two hold at once");
                }
                tokio::task::yield_now().await;
                guard.check()?;
                seen.lock().expect("no panic under it").1 -= 1;
                guard.release().await?;
            }
            CaseResult::Ok(())
        }));
    }
    for task in tasks {
        context.within(context.ms(30_000), "each waiter had its turns", task).await???;
    }
    let fences = seen.lock().expect("no panic under it").0.clone();
    assert_eq!(fences.len(), 96);
    let fell = fences.windows(2).find(|pair| pair[0] >= pair[1]);
    assert!(fell.is_none(), "a fence that is not greater than the one before: {fell:?}");
    clean(context, &clients[0], &name, &[&clients[0], &clients[1]]).await
}

async fn others_get_their_turn(context: &mut Context) -> CaseResult {
    let (holder, name) = (context.client().await?, context.name("others"));
    let (many, layer) = context.layered().await?;
    let (single, other_layer) = context.layered().await?;
    let held = keep(&holder, &name, context.ttl(60_000)).await?;
    let mut waiting = vec![lead(context, &many, &layer, &name).await?];
    let other = lead(context, &single, &other_layer, &name).await?;
    for _ in 0..11 {
        waiting.push(join(context, &many, &name).await?);
    }
    let served: Arc<Mutex<Vec<&str>>> = Arc::default();
    let every = waiting.into_iter().map(|waiting| ("many", waiting)).chain([("single", other)]);
    let tasks: Vec<_> = every
        .map(|(who, waiting)| {
            let served = Arc::clone(&served);
            tokio::spawn(async move {
                let guard = waiting.await??;
                served.lock().expect("no panic under it").push(who);
                guard.release().await?;
                CaseResult::Ok(())
            })
        })
        .collect();
    held.release().await?;
    for task in tasks {
        context.within(context.soon() * 2, "each waiter is served", task).await???;
    }
    let served = served.lock().expect("no panic under it").clone();
    let place = served.iter().position(|who| *who == "single");
    assert!(place.is_some_and(|place| place <= 8), "{place:?} were served before");
    clean(context, &holder, &name, &[&holder, &many, &single]).await
}
