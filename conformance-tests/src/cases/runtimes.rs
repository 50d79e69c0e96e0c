//! The effect of runtimes on locks: threads that are blocked, and runtimes that end.

use std::pin::{Pin, pin};
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use tenure_core::{Client, LockGuard, LockName};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::time::Instant;

use super::support::{clean, free_within, keep, lock};
use crate::case::{Case, CaseResult, Context, Failure, Need, case};
use crate::harness::Time;

pub(super) const CASES: &[Case] = &[
    case!(
        "runtime/turn-outlasts-blocking-work",
        "A lock that was waited for outlasts work that blocks the only thread of its runtime right after the grant.",
        ["P1", "P6"],
        [],
        turn_outlasts_blocking_work
    ),
    case!(
        "runtime/turn-outlasts-blocking-work-on-threads",
        "A lock that was waited for outlasts work that blocks one of several threads right after the grant.",
        ["P1", "P6"],
        [Need::RealTime],
        turn_outlasts_blocking_work_on_threads
    ),
    case!(
        "runtime/client-outlives-its-first",
        "When the runtime ends on which a client was made and first used, its locks are renewed, waited for, taken and \
         released on others.",
        ["P6", "P13", "P17"],
        [],
        client_outlives_its_first
    ),
    case!(
        "runtime/wake-ups-survive-the-first-waiters-runtime",
        "When the runtime ends on which a client waited first, a release wakes the client's waiters on other runtimes at once, those \
         that waited already and those that come later.",
        ["P6", "P17", "P18"],
        [Need::Wakeups, Need::RealTime],
        wake_ups_survive
    ),
];

/// Longer than the short lease that a waiter may be handed, and far shorter than what it asks for.
const BLOCKED: u64 = 3_000;

/// The ttl that is asked for.
fn asked(context: &Context) -> Duration {
    context.ttl(30_000)
}

async fn turn_outlasts_blocking_work(context: &mut Context) -> CaseResult {
    let layer = context.layer().await?;
    let client = Client::builder(layer.backend()).op_timeout(context.ms(1_000)).build()?;
    let (other, name) = (context.client().await?, context.name("blocked"));
    let held = keep(&other, &name, context.ttl(60_000)).await?;
    let waiter = lock(&client, &name).ttl(asked(context));
    let waiting = tokio::spawn(async move { waiter.acquire().await });
    context.eventually(context.soon(), "the waiter waits", async || client.stats().waiters == 1).await?;
    context.pass(context.ms(200)).await;
    held.release().await?;
    let guard = context.within(context.soon(), "its turn comes", waiting).await???;
    context.block(context.ms(BLOCKED)).await;
    outlasted(&guard, &other, &name).await?;
    guard.release().await?;
    clean(context, &other, &name, &[&client, &other]).await
}

async fn outlasted(guard: &LockGuard, other: &Client, name: &LockName) -> CaseResult {
    guard.check().map_err(|error| Failure::new(format!("after work that blocked: {error}")))?;
    assert!(lock(other, name).try_acquire().await?.is_none(), "another got it meanwhile");
    Ok(guard.check()?)
}

async fn turn_outlasts_blocking_work_on_threads(context: &mut Context) -> CaseResult {
    let (other, name, blocked) = (context.client().await?, context.name("threads"), context.ms(BLOCKED));
    let runtime = runtime(Time::Real, 2)?;
    // Connected there as well, so that nothing depends on the thread of this case.
    let backend = On(&runtime, pin!(context.backend())).await?;
    let client = Client::builder(backend).op_timeout(context.ms(1_000)).build()?;
    let held = keep(&other, &name, context.ttl(60_000)).await?;
    let waiter = lock(&client, &name).ttl(asked(context));
    let waiting = runtime.spawn(async move {
        let guard = waiter.acquire().await?;
        std::thread::sleep(blocked);
        guard.check()?;
        Ok::<_, tenure_core::Error>(guard)
    });
    context.eventually(context.soon(), "the waiter waits", async || client.stats().waiters == 1).await?;
    context.pass(context.ms(200)).await;
    held.release().await?;
    let guard = context.within(context.soon() + blocked, "its turn comes", waiting).await???;
    outlasted(&guard, &other, &name).await?;
    guard.release().await?;
    clean(context, &other, &name, &[&client, &other]).await?;
    end(runtime).await
}

async fn client_outlives_its_first(context: &mut Context) -> CaseResult {
    let (probe, ttl, time) = (context.client().await?, context.ttl(900), context.declared().time);
    let names = ["there", "kept", "wanted", "next"].map(|name| context.name(name));
    let first = runtime(time, 1)?;
    let backend = match time {
        Time::Virtual => context.backend().await?, // its clock is that of this runtime
        Time::Real => On(&first, pin!(context.backend())).await?,
    };
    let client = context.client_over(backend).build()?;
    let first = used(first, client.clone(), names[0].clone(), ttl).await?;

    let kept = keep(&client, &names[1], ttl).await?;
    let held = keep(&probe, &names[2], context.ttl(60_000)).await?;
    let waiter = lock(&client, &names[2]).ttl(ttl);
    let waiting = tokio::spawn(async move { waiter.acquire().await });
    context.eventually(context.soon(), "the waiter waits", async || client.stats().waiters == 1).await?;
    context.pass(context.ms(200)).await;
    end(first).await?;

    context.pass(ttl * 3).await;
    kept.check().map_err(|error| Failure::new(format!("it was not renewed: {error}")))?;
    held.release().await?;
    let guard = context.within(context.ms(8_000), "the waiter is served", waiting).await???;
    guard.release().await?;
    if time == Time::Real {
        // A paused clock of its own would be behind the one of this runtime.
        end(used(runtime(time, 1)?, client.clone(), names[3].clone(), ttl).await?).await?;
    }
    drop(kept);
    free_within(context, &probe, &names[1], context.soon()).await?;
    clean(context, &probe, &names[2], &[&client]).await
}

async fn wake_ups_survive(context: &mut Context) -> CaseResult {
    let (other, client) = (context.client().await?, context.client().await?);
    let (name, first_name) = (context.name("deaf"), context.name("first"));
    let mut first = Some(runtime(Time::Real, 1)?);
    let also_held = keep(&other, &first_name, context.ttl(60_000)).await?;
    for round in 0..3 {
        let held = keep(&other, &name, context.ttl(60_000)).await?;
        if let Some(first) = &first {
            let waiter = lock(&client, &first_name).ttl(asked(context));
            first.spawn(async move { waiter.acquire().await });
            context.eventually(context.soon(), "the first waits", async || client.stats().waiters == 1).await?;
            context.pass(context.ms(200)).await;
        }
        let before = client.stats().waiters;
        let waiter = lock(&client, &name).ttl(asked(context));
        let waiting = tokio::spawn(async move { waiter.acquire().await });
        context.eventually(context.soon(), "it waits", async || client.stats().waiters == before + 1).await?;
        context.pass(context.ms(200)).await;
        if let Some(first) = first.take() {
            end(first).await?;
            context.pass(context.ms(500)).await; // the waiter asks again
        }
        let released = Instant::now();
        held.release().await?;
        let guard = context.within(context.ms(8_000), "the waiter is served", waiting).await???;
        let took = released.elapsed();
        assert!(took < context.ms(1_000), "waiter {round} was served {took:?} after the release: it was not woken");
        guard.release().await?;
    }
    also_held.release().await?;
    clean(context, &other, &name, &[&client, &other]).await
}

fn runtime(time: Time, threads: usize) -> CaseResult<Runtime> {
    let mut builder = match time {
        Time::Virtual => Builder::new_current_thread(),
        Time::Real => Builder::new_multi_thread(),
    };
    match time {
        Time::Virtual => builder.start_paused(true),
        Time::Real => builder.worker_threads(threads),
    };
    builder.enable_all().build().map_err(|error| Failure::new(format!("no runtime: {error}")))
}

/// Takes a lock on another runtime, and gives it back there.
async fn used(runtime: Runtime, client: Client, name: LockName, ttl: Duration) -> CaseResult<Runtime> {
    let there = tokio::task::spawn_blocking(move || {
        let taken = runtime.block_on(async {
            let guard = lock(&client, &name).ttl(ttl).acquire().await?;
            Ok::<_, Failure>(guard.release().await?)
        });
        (runtime, taken)
    });
    let (runtime, taken) = there.await?;
    taken?;
    Ok(runtime)
}

/// Ends a runtime, with all its tasks.
async fn end(runtime: Runtime) -> CaseResult {
    Ok(tokio::task::spawn_blocking(move || drop(runtime)).await?)
}

/// A future that is polled here, and whose connections and tasks live on another runtime.
struct On<'a, F>(&'a Runtime, Pin<&'a mut F>);

impl<F: Future> Future for On<'_, F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<F::Output> {
        let handle: &Handle = self.0.handle();
        let _there = handle.enter();
        self.1.as_mut().poll(cx)
    }
}
