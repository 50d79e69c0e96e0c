//! The line: in order of arrival over all weights, the dead passed over.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure_core::driver::Family;
use tenure_core::{ErrorKind, OwnerToken};
use tokio::task::JoinSet;

use super::support::{LONG, Raw, clean, must, semaphore, share, waiting};
use crate::case::{Case, CaseResult, Context, Need, case};
use crate::cases::support::{busy, must_fail};

pub(in crate::cases) const CASES: &[Case] = &[
    case!(
        "permits/fifo-over-weights",
        "Waiters of several clients are granted in the order in which they joined, whatever they weigh.",
        ["P24", "P65"],
        [Need::PermitsFifo],
        fifo_over_weights
    ),
    case!(
        "permits/heavy-head-is-not-overtaken",
        "While the first waiter does not fit, no lighter request is granted, of any client, whether it waits or not.",
        ["P65"],
        [Need::PermitsFifo],
        heavy_head_is_not_overtaken
    ),
    case!(
        "permits/dead-waiter-lapses",
        "A waiter that died delays those behind it by its presence at most.",
        ["P17", "P24"],
        [Need::PermitsFifo],
        dead_waiter_lapses
    ),
    case!(
        "permits/full-line-refuses",
        "A full line refuses the next waiter with a limit that was reached, and takes it when a place is free.",
        ["P26"],
        [Need::PermitsFifo, Need::ReachablePermitLine],
        full_line_refuses
    ),
    case!(
        "permits/thousand-waiters",
        "A thousand tasks that begin to wait for a few permits at once, of several weights, wait without an error and are served.",
        ["P16", "P17", "P30"],
        [Need::Permits],
        thousand_waiters
    ),
    case!(
        "permits/timed-out-waiter-leaves",
        "A waiter that timed out leaves the line: the one behind it is granted without waiting for a presence.",
        ["P16", "P65"],
        [Need::PermitsFifo],
        timed_out_waiter_leaves
    ),
];

async fn fifo_over_weights(context: &mut Context) -> CaseResult {
    // No two neighbours fit together, and most lighter waiters would fit beside a heavier holder.
    const WEIGHTS: [u32; 8] = [3, 2, 4, 2, 3, 4, 2, 3];
    let (holder, name) = (context.client().await?, context.name("fifo"));
    let clients = [context.layered().await?, context.layered().await?, context.layered().await?];
    let held = must(semaphore(&holder, &name, 4).weight(4).ttl(LONG).try_acquire().await?)?;
    let (served, mut tasks) = (Arc::<Mutex<Vec<usize>>>::default(), Vec::new());
    for (number, weight) in WEIGHTS.into_iter().enumerate() {
        let (client, layer) = &clients[number % clients.len()];
        let (waiter, served) = (semaphore(client, &name, 4).weight(weight), Arc::clone(&served));
        let turn = async move {
            let permit = waiter.ttl(LONG).acquire().await?;
            served.lock().expect("no panic under it").push(number);
            tokio::time::sleep(Duration::from_millis(2)).await;
            permit.release().await
        };
        tasks.push(waiting(context, layer, &name, turn).await?);
    }
    held.release().await?;
    for task in tasks {
        context.within(context.soon() * 2, "every waiter is served", task).await???;
    }
    let served = served.lock().expect("no panic under it").clone();
    assert_eq!(served, (0..WEIGHTS.len()).collect::<Vec<_>>(), "served in this order");
    let clients: Vec<_> = clients.iter().map(|(client, _)| client).collect();
    clean(context, &holder, Family::Semaphore, &name, &clients).await
}

async fn heavy_head_is_not_overtaken(context: &mut Context) -> CaseResult {
    let (holder, name) = (context.client().await?, context.name("heavy"));
    let (client, layer) = context.layered_with(|builder| builder.presence(LONG)).await?;
    let held = must(semaphore(&holder, &name, 3).weight(2).ttl(LONG).try_acquire().await?)?;
    let (head, light) = (semaphore(&client, &name, 3).weight(3).ttl(LONG), semaphore(&client, &name, 3).ttl(LONG));
    let head = waiting(context, &layer, &name, async move { head.acquire().await }).await?;
    let behind = waiting(context, &layer, &name, async move { light.acquire().await }).await?;
    for client in [&holder, &client] {
        assert!(semaphore(client, &name, 3).try_acquire().await?.is_none(), "a request got past the first waiter");
    }
    let impatient = semaphore(&holder, &name, 3).acquire_within(context.ms(200)).await;
    must_fail(impatient, ErrorKind::TimedOut)?;
    assert!(!behind.is_finished() && !head.is_finished());
    held.release().await?;
    let permit = context.within(context.soon(), "the first waiter is granted", head).await???;
    assert!(!behind.is_finished(), "the lighter waiter was granted beside it");
    permit.release().await?;
    context.within(context.soon(), "the second waiter is granted", behind).await???.release().await?;
    clean(context, &holder, Family::Semaphore, &name, &[&holder, &client]).await
}

async fn dead_waiter_lapses(context: &mut Context) -> CaseResult {
    let (presence, late) = (context.ttl(900), context.declared().locks.ttl.granularity);
    let (client, layer) = context.layered_with(|builder| builder.presence(presence)).await?;
    // The dead waiter lapses after the release, and before it: then no other waiter should notice that it was there.
    for (early, limit) in [(false, presence + presence / 3 + late + context.ms(900)), (true, late + context.ms(900))] {
        let raw = Raw::new(context, &format!("dead/{early}"), context.ttl(60_000)).await?;
        let (token, _) = raw.take(share(3, 3)).await?;
        busy(raw.join(OwnerToken::random(), share(2, 3), presence).await?)?;
        let waiter = semaphore(&client, &raw.name, 3).weight(2).ttl(LONG);
        let next = waiting(context, &layer, &raw.name, async move { waiter.acquire().await }).await?;
        if early {
            context.pass(presence * 2).await;
        }
        raw.release(token).await?;
        context.within(limit, "the dead waiter's turn lapses", next).await???.release().await?;
        clean(context, &client, Family::Semaphore, &raw.name, &[&client]).await?;
    }
    Ok(())
}

async fn full_line_refuses(context: &mut Context) -> CaseResult {
    let (client, cap) = (context.client().await?, context.declared().permits.and_then(|permits| permits.max_waiters));
    let raw = Raw::new(context, "full", context.ttl(120_000)).await?; // it takes time to fill the line
    let (token, _) = raw.take(share(2, 2)).await?;
    let mut waiters = Vec::new();
    for _ in 0..cap.unwrap_or_default() {
        let waiter = OwnerToken::random();
        busy(raw.join(waiter, share(1, 2), LONG).await?)?;
        waiters.push(waiter);
    }
    let more = OwnerToken::random();
    must_fail(raw.join(more, share(1, 2), LONG).await, ErrorKind::LimitReached)?;
    must_fail(semaphore(&client, &raw.name, 2).acquire().await, ErrorKind::LimitReached)?;
    busy(raw.join(waiters[0], share(1, 2), LONG).await?)?;
    raw.abandon(waiters[1]).await?;
    busy(raw.join(more, share(1, 2), LONG).await?)?;
    raw.release(token).await?;
    for waiter in waiters.into_iter().chain([more]) {
        raw.abandon(waiter).await?;
    }
    clean(context, &client, Family::Semaphore, &raw.name, &[&client]).await
}

async fn thousand_waiters(context: &mut Context) -> CaseResult {
    let (holder, backend, name) = (context.client().await?, context.backend().await?, context.name("crowd"));
    let client = context.client_over(backend).op_timeout(context.ms(3_000)).build()?;
    let held = must(semaphore(&holder, &name, 10).weight(10).ttl(LONG).try_acquire().await?)?;
    let most = context.declared().permits.and_then(|permits| permits.max_waiters);
    let waiters = most.map_or(1_000, |most| most.min(1_000));
    let mut tasks = JoinSet::new();
    for number in 0..waiters {
        let waiter = semaphore(&client, &name, 10).weight(1 + number % 4);
        let waiter = if number % 3 == 0 { waiter.fixed_ttl(LONG) } else { waiter.ttl(LONG) };
        tasks.spawn(async move { waiter.acquire().await?.release().await });
    }
    context.pass(context.ms(3_000)).await;
    assert!(tasks.try_join_next().is_none(), "a waiter failed, or was served beside the holder");
    assert_eq!(client.stats().waiters, waiters as usize);
    held.release().await?;
    for _ in 0..waiters.min(50) {
        let ended = context.within(context.ms(10_000), "the next is served", tasks.join_next()).await?;
        ended.ok_or("all have ended")???;
    }
    tasks.shutdown().await;
    clean(context, &holder, Family::Semaphore, &name, &[&holder, &client]).await
}

async fn timed_out_waiter_leaves(context: &mut Context) -> CaseResult {
    let (holder, name, limit) = (context.client().await?, context.name("timed-out"), context.ms(400));
    let (client, layer) = context.layered_with(|builder| builder.presence(LONG)).await?;
    let held = must(semaphore(&holder, &name, 3).weight(2).ttl(LONG).try_acquire().await?)?;
    let (head, light) = (semaphore(&client, &name, 3).weight(3), semaphore(&client, &name, 3).ttl(LONG));
    let head = waiting(context, &layer, &name, async move { head.acquire_within(limit).await }).await?;
    let next = waiting(context, &layer, &name, async move { light.acquire().await }).await?;
    must_fail(head.await?, ErrorKind::TimedOut)?;
    let permit = context.within(context.soon(), "the next waiter fits beside the holder", next).await???;
    assert!(held.is_held());
    held.release().await?;
    permit.release().await?;
    clean(context, &holder, Family::Semaphore, &name, &[&holder, &client]).await
}
