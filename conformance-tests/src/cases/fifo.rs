//! Queues: in order of arrival, one woken at a time, the dead passed over.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure_core::driver::{Acquisition, Released};
use tenure_core::{Client, ClientBuilder, ErrorKind, Lock, LockGuard, LockName, OwnerToken};
use tokio::task::JoinHandle;

use super::support::{busy, clean, granted, hold, is_free_raw, joining, keep, lock, must_fail, request, take_raw};
use crate::case::{Case, CaseResult, Context, Need, case};
use crate::layer::{Answer, FaultLayer, Op};

pub(super) const CASES: &[Case] = &[
    case!(
        "fifo/sixteen-in-order",
        "Sixteen waiters of four clients that pass nothing on are granted in the order in which they joined.",
        ["P24"],
        [Need::Fifo],
        sixteen_in_order
    ),
    case!(
        "fifo/one-is-woken-per-release",
        "A release makes the next waiter ask, not all of them: at most three requests for each hand-over.",
        ["P24"],
        [Need::Fifo],
        one_is_woken_per_release
    ),
    case!(
        "fifo/no-barging",
        "A free lock with a live waiter is busy for all other clients.",
        ["P24"],
        [Need::Fifo],
        no_barging
    ),
    case!(
        "fifo/position-is-reported",
        "A busy answer says how many waiters are ahead.",
        ["P24"],
        [Need::Fifo],
        position_is_reported
    ),
    case!(
        "fifo/asking-again-keeps-the-place",
        "A waiter that asks again, often and later than others, keeps its place.",
        ["P24", "P29"],
        [Need::Fifo],
        asking_again_keeps_the_place
    ),
    case!(
        "fifo/dead-waiter-lapses",
        "A waiter that died delays those behind it by its presence at most.",
        ["P17", "P24"],
        [Need::Fifo],
        dead_waiter_lapses
    ),
    case!(
        "fifo/long-wait-keeps-the-place",
        "A waiter that waits for many times its presence is still served first.",
        ["P24", "P25"],
        [Need::Fifo],
        long_wait_keeps_the_place
    ),
    case!(
        "fifo/full-queue-refuses",
        "A full queue refuses the next waiter with a limit that was reached, and takes it when a place is free.",
        ["P26"],
        [Need::Fifo, Need::ReachableQueueCap],
        full_queue_refuses
    ),
    case!(
        "fifo/cancelled-head-passes-its-turn",
        "When the woken waiter is cancelled in the same instant, the next one is granted without waiting for a timeout.",
        ["P12", "P24"],
        [Need::Fifo],
        cancelled_head_passes_its_turn
    ),
    case!(
        "fifo/timed-out-waiter-leaves",
        "A waiter that timed out leaves the queue: the one behind it is granted at the release.",
        ["P16", "P24"],
        [Need::Fifo],
        timed_out_waiter_leaves
    ),
    case!(
        "fifo/abandoned-place-is-free",
        "Abandoning a waiter's token takes its place away and lets the next one have the lock.",
        ["P11", "P24"],
        [Need::Fifo],
        abandoned_place_is_free
    ),
    case!(
        "fifo/served-through-expiries",
        "Waiters are served in order also when every holder dies and each lease has to end by itself.",
        ["P17", "P24"],
        [Need::Fifo],
        served_through_expiries
    ),
];

const LONG: Duration = Duration::from_secs(60);

type Waiting = JoinHandle<tenure_core::Result<LockGuard>>;

/// Starts an acquire and returns once it has its place in the queue.
async fn join(context: &Context, client: &Client, layer: &FaultLayer, name: &LockName) -> CaseResult<Waiting> {
    join_with(context, layer, lock(client, name).ttl(LONG)).await
}

async fn join_with(context: &Context, layer: &FaultLayer, waiter: Lock) -> CaseResult<Waiting> {
    let name = waiter.name()?.clone();
    let busy = |layer: &FaultLayer| {
        let frames = layer.frames_of(Op::Acquire, &name);
        frames.iter().filter(|f| f.answer == Answer::Busy).map(|f| f.token).collect::<HashSet<_>>().len()
    };
    let before = busy(layer);
    let waiting = tokio::spawn(async move { waiter.acquire().await });
    context.eventually(context.soon(), "the waiter has its place", async || busy(layer) > before).await?;
    Ok(waiting)
}

async fn sixteen_in_order(context: &mut Context) -> CaseResult {
    let (holder, name) = (context.client().await?, context.name("sixteen"));
    let mut clients = Vec::new();
    for _ in 0..4 {
        clients.push(context.layered_with(|builder| builder.holders_per_grant(0)).await?);
    }
    let held = keep(&holder, &name, LONG).await?;
    let served: Arc<Mutex<Vec<usize>>> = Arc::default();
    let mut tasks = Vec::new();
    for number in 0..16 {
        let (client, layer) = &clients[number % 4];
        let waiting = join(context, client, layer, &name).await?;
        let served = Arc::clone(&served);
        tasks.push(tokio::spawn(async move {
            let guard = waiting.await??;
            served.lock().expect("no panic under it").push(number);
            tokio::time::sleep(Duration::from_millis(2)).await;
            guard.release().await?;
            CaseResult::Ok(())
        }));
    }
    held.release().await?;
    for task in tasks {
        context.within(context.soon() * 2, "every waiter is served", task).await???;
    }
    let served = served.lock().expect("no panic under it").clone();
    assert_eq!(served, (0..16).collect::<Vec<_>>(), "served in this order");
    clean(context, &holder, &name, &[&holder, &clients[0].0, &clients[3].0]).await
}

async fn one_is_woken_per_release(context: &mut Context) -> CaseResult {
    let (holder, name) = (context.client().await?, context.name("herd"));
    let each_asks = |builder: ClientBuilder| builder.presence(LONG).holders_per_grant(0);
    let (client, layer) = context.layered_with(each_asks).await?;
    let held = keep(&holder, &name, LONG).await?;
    let mut waiting = Vec::new();
    for _ in 0..10 {
        waiting.push(join(context, &client, &layer, &name).await?);
    }
    context.pass(context.ms(100)).await;
    let before = layer.frames_of(Op::Acquire, &name).len();
    held.release().await?;
    for task in waiting {
        let guard = context.within(context.soon(), "every waiter is served", task).await???;
        context.pass(Duration::from_millis(5)).await;
        guard.release().await?;
    }
    let asked = layer.frames_of(Op::Acquire, &name).len() - before;
    assert!(asked <= 30, "{asked} requests for ten hand-overs: every release wakes a herd");
    Ok(())
}

async fn no_barging(context: &mut Context) -> CaseResult {
    let (backend, client) = (context.backend().await?, context.client().await?);
    let locks = &**backend.locks();
    let (name, ttl) = (context.name("barge"), context.ttl(20_000));
    let (token, _) = take_raw(locks, &name, ttl).await?;
    let waiter = OwnerToken::random();
    let _watch = locks.watch(&name, &waiter).await?;
    busy(locks.acquire(&joining(&name, waiter, ttl, LONG)?).await?)?;
    locks.release(&hold(&name, token)).await?;
    for _ in 0..3 {
        assert!(lock(&client, &name).try_acquire().await?.is_none(), "another client got past the first waiter");
    }
    granted(locks.acquire(&joining(&name, waiter, ttl, LONG)?).await?)?;
    assert_eq!(locks.release(&hold(&name, waiter)).await?, Released::Released);
    Ok(())
}

async fn position_is_reported(context: &mut Context) -> CaseResult {
    let backend = context.backend().await?;
    let locks = &**backend.locks();
    let (name, ttl) = (context.name("position"), context.ttl(20_000));
    let (token, _) = take_raw(locks, &name, ttl).await?;
    let alone = busy(locks.acquire(&request(&name, OwnerToken::random(), ttl)?).await?)?;
    assert_eq!(alone.position, None, "who did not join has no position");
    let mut waiters = Vec::new();
    for before in 0..4 {
        let waiter = OwnerToken::random();
        let answer = busy(locks.acquire(&joining(&name, waiter, ttl, LONG)?).await?)?;
        assert_eq!(answer.position, Some(before));
        waiters.push(waiter);
    }
    locks.abandon(&hold(&name, waiters[1])).await?;
    let moved = busy(locks.acquire(&joining(&name, waiters[3], ttl, LONG)?).await?)?;
    assert_eq!(moved.position, Some(2), "after one before it left");
    locks.release(&hold(&name, token)).await?;
    for waiter in waiters {
        locks.abandon(&hold(&name, waiter)).await?;
    }
    assert!(is_free_raw(locks, &name).await?);
    Ok(())
}

async fn asking_again_keeps_the_place(context: &mut Context) -> CaseResult {
    let backend = context.backend().await?;
    let locks = &**backend.locks();
    let (name, ttl) = (context.name("place"), context.ttl(20_000));
    let (token, _) = take_raw(locks, &name, ttl).await?;
    let waiters = [OwnerToken::random(), OwnerToken::random(), OwnerToken::random()];
    let mut watches = Vec::new();
    for waiter in &waiters {
        watches.push(locks.watch(&name, waiter).await?); // who does not listen may be passed
    }
    for turn in [0, 1, 2, 0, 0, 1, 0, 2, 1, 0] {
        busy(locks.acquire(&joining(&name, waiters[turn], ttl, LONG)?).await?)?;
    }
    locks.release(&hold(&name, token)).await?;
    for (place, waiter) in waiters.into_iter().enumerate() {
        for later in &waiters[place + 1..] {
            busy(locks.acquire(&joining(&name, *later, ttl, LONG)?).await?)?;
        }
        granted(locks.acquire(&joining(&name, waiter, ttl, LONG)?).await?)?;
        assert_eq!(locks.release(&hold(&name, waiter)).await?, Released::Released);
    }
    Ok(())
}

async fn dead_waiter_lapses(context: &mut Context) -> CaseResult {
    // Presence is counted as ttls are, and may end as late as leases do.
    let (backend, presence) = (context.backend().await?, context.ttl(900));
    let late = context.declared().locks.ttl.granularity;
    let locks = &**backend.locks();
    let (client, layer) = context.layered_with(|builder| builder.presence(presence)).await?;
    // The dead waiter lapses after the release, and before it: then no other waiter should notice that it was there.
    for (early, limit) in [(false, presence + presence / 3 + late + context.ms(900)), (true, late + context.ms(900))] {
        let (name, ttl) = (context.name(format!("dead/{early}")), context.ttl(60_000));
        let (token, _) = take_raw(locks, &name, ttl).await?;
        busy(locks.acquire(&joining(&name, OwnerToken::random(), ttl, presence)?).await?)?;
        let waiting = join(context, &client, &layer, &name).await?;
        if early {
            context.pass(presence * 2).await;
        }
        locks.release(&hold(&name, token)).await?;
        let guard = context.within(limit, "the dead waiter's turn lapses", waiting).await???;
        guard.release().await?;
        clean(context, &client, &name, &[&client]).await?;
    }
    Ok(())
}

async fn long_wait_keeps_the_place(context: &mut Context) -> CaseResult {
    let (holder, name, presence) = (context.client().await?, context.name("long"), context.ms(900));
    let (client, layer) = context.layered_with(|builder| builder.presence(presence)).await?;
    let (other, other_layer) = context.layered().await?;
    let held = keep(&holder, &name, LONG).await?;
    let first = join(context, &client, &layer, &name).await?;
    context.pass(presence * 3).await;
    let second = join(context, &other, &other_layer, &name).await?;
    context.pass(presence).await;
    held.release().await?;
    let guard = context.within(context.soon(), "the first is granted", first).await???;
    assert!(!second.is_finished(), "the later waiter was granted first");
    guard.release().await?;
    let guard = context.within(context.soon(), "the second is granted", second).await???;
    guard.release().await?;
    Ok(())
}

async fn full_queue_refuses(context: &mut Context) -> CaseResult {
    let (backend, client) = (context.backend().await?, context.client().await?);
    let locks = &**backend.locks();
    let (name, ttl) = (context.name("full"), context.ttl(120_000)); // it takes time to fill the queue
    let cap = context.declared().locks.max_waiters.unwrap_or_default();
    let (token, _) = take_raw(locks, &name, ttl).await?;
    let mut waiters = Vec::new();
    for place in 0..cap {
        let waiter = OwnerToken::random();
        match locks.acquire(&joining(&name, waiter, ttl, LONG)?).await {
            Ok(Acquisition::Busy(_)) => waiters.push(waiter),
            other => panic!("waiter {place} of {cap} was answered {other:?}"),
        }
    }
    let more = joining(&name, OwnerToken::random(), ttl, LONG)?;
    must_fail(locks.acquire(&more).await, ErrorKind::LimitReached)?;
    must_fail(lock(&client, &name).acquire().await, ErrorKind::LimitReached)?;
    busy(locks.acquire(&joining(&name, waiters[0], ttl, LONG)?).await?)?;
    locks.abandon(&hold(&name, waiters[1])).await?;
    busy(locks.acquire(&more).await?)?;
    locks.release(&hold(&name, token)).await?;
    for waiter in waiters.into_iter().chain([more.token]) {
        locks.abandon(&hold(&name, waiter)).await?;
    }
    clean(context, &client, &name, &[&client]).await
}

async fn cancelled_head_passes_its_turn(context: &mut Context) -> CaseResult {
    let (holder, name) = (context.client().await?, context.name("cancelled"));
    let (client, layer) = context.layered_with(|builder| builder.presence(LONG)).await?;
    let (other, other_layer) = context.layered_with(|builder| builder.presence(LONG)).await?;
    for turn in 0..12 {
        let held = keep(&holder, &name, LONG).await?;
        // A renewed lease may be handed to the head, a fixed one is for it to ask for.
        let waiter = lock(&client, &name);
        let (waiter, turn) = if turn < 6 { (waiter.ttl(LONG), turn) } else { (waiter.fixed_ttl(LONG), turn - 6) };
        let head = join_with(context, &layer, waiter).await?;
        let next = join(context, &other, &other_layer, &name).await?;
        // The cancellation meets the wake-up before, while or after it is delivered.
        if turn < 2 {
            head.abort();
        }
        held.release().await?;
        for _ in 2..turn {
            tokio::task::yield_now().await;
        }
        head.abort();
        drop(head.await);
        let guard = context.within(context.soon(), "the next waiter is granted", next).await???;
        guard.release().await?;
    }
    clean(context, &holder, &name, &[&holder, &client, &other]).await
}

async fn timed_out_waiter_leaves(context: &mut Context) -> CaseResult {
    let (holder, name) = (context.client().await?, context.name("timed-out"));
    let (client, layer) = context.layered_with(|builder| builder.presence(LONG)).await?;
    let (other, other_layer) = context.layered_with(|builder| builder.presence(LONG)).await?;
    let held = keep(&holder, &name, LONG).await?;
    let (waiter, limit) = (lock(&client, &name), context.ms(400));
    let impatient = tokio::spawn(async move { waiter.acquire_within(limit).await });
    let waits = async || layer.frames_of(Op::Acquire, &name).iter().any(|frame| frame.answer == Answer::Busy);
    context.eventually(context.soon(), "the impatient waiter has its place", waits).await?;
    let next = join(context, &other, &other_layer, &name).await?;
    must_fail(impatient.await?, ErrorKind::TimedOut)?;
    held.release().await?;
    let guard = context.within(context.soon(), "the next waiter is granted", next).await???;
    guard.release().await?;
    clean(context, &holder, &name, &[&holder, &client, &other]).await
}

async fn abandoned_place_is_free(context: &mut Context) -> CaseResult {
    let backend = context.backend().await?;
    let locks = &**backend.locks();
    let (name, ttl) = (context.name("abandoned"), context.ttl(20_000));
    let (token, _) = take_raw(locks, &name, ttl).await?;
    let waiters = [OwnerToken::random(), OwnerToken::random()];
    for waiter in waiters {
        busy(locks.acquire(&joining(&name, waiter, ttl, LONG)?).await?)?;
    }
    locks.abandon(&hold(&name, waiters[0])).await?;
    locks.release(&hold(&name, token)).await?;
    granted(locks.acquire(&joining(&name, waiters[1], ttl, LONG)?).await?)?;
    must_fail(locks.acquire(&joining(&name, waiters[0], ttl, LONG)?).await, ErrorKind::NotHeld)?;
    assert_eq!(locks.release(&hold(&name, waiters[1])).await?, Released::Released);
    assert!(is_free_raw(locks, &name).await?);
    Ok(())
}

async fn served_through_expiries(context: &mut Context) -> CaseResult {
    let (backend, name, ttl) = (context.backend().await?, context.name("expiries"), context.ttl(1_000));
    let (client, layer) = context.layered_with(|builder| builder.holders_per_grant(0)).await?;
    take_raw(&**backend.locks(), &name, ttl).await?;
    let mut waiting = Vec::new();
    for place in 0..4 {
        let waiter = lock(&client, &name).fixed_ttl(ttl);
        waiting.push(tokio::spawn(async move { waiter.acquire().await }));
        let queued = async || {
            let answered = layer.frames_of(Op::Acquire, &name).into_iter().filter(|frame| frame.answered_at.is_some());
            answered.filter_map(|frame| frame.token).collect::<HashSet<_>>().len() > place
        };
        context.eventually(context.soon(), "the waiter has its place", queued).await?;
    }
    let mut last = None;
    for task in waiting {
        let guard = context.within(ttl + context.ms(2_500), "the next is granted after the ttl", task).await???;
        assert!(last.is_none_or(|last| guard.fence() > last), "served out of order");
        last = Some(guard.fence());
        std::mem::forget(guard); // the holder dies without a word
    }
    Ok(())
}
