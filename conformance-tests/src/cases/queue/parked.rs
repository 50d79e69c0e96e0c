//! Locks and queues together: messages that need a lock, requests that wait for one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tenure_core::driver::{Cause, NewMessage, Pushed, Settled};
use tenure_core::queue::{Job, OrPark, RetryPolicy};
use tenure_core::{Client, LockName};
use tokio::sync::mpsc;

use super::support::{Bench, attempts, bench, message, span};
use crate::case::{Case, CaseResult, Context, Need, case};
use crate::cases::support::{free_within, keep, must, take_raw};
use crate::layer::{Action, Op, Rule};

pub(in crate::cases) const CASES: &[Case] = &[
    case!(
        "queue/lock-per-message",
        "Handlers of messages that carry the same lock never run at the same time, whichever worker they run in, and hold it.",
        ["P1", "P56"],
        [Need::Queue],
        lock_per_message
    ),
    case!(
        "queue/parked-without-attempt",
        "A message whose lock is taken comes back after the back-off as often as it takes, and no attempt is counted.",
        ["P53", "P58"],
        [Need::Queue],
        without_attempt
    ),
    case!(
        "queue/parked-comes-when-its-lock-is-free",
        "What a client parks behind a lock comes soon after each release, one by one, long before its back-off, and no attempt is counted.",
        ["P53", "P55"],
        [Need::Queue, Need::FollowsLock],
        comes_when_free
    ),
    case!(
        "queue/parked-behind-a-dead-holder",
        "A message that is parked behind a lock whose holder died comes when the lease has ended.",
        ["P55"],
        [Need::Queue, Need::FollowsLock],
        dead_holder
    ),
    case!(
        "queue/parked-behind-a-free-lock",
        "A message that is parked behind a lock that is free by then comes at once.",
        ["P55"],
        [Need::Queue, Need::FollowsLock],
        free_already
    ),
    case!(
        "queue/or-park",
        "A request that finds its lock taken is parked and handled under the lock; one that finds it free gets it.",
        ["P1", "P53"],
        [Need::Queue],
        or_park
    ),
    case!(
        "queue/lost-lock-ends-the-handler",
        "A handler whose lock is lost is dropped, and its message is tried again.",
        ["P13", "P58"],
        [Need::Queue],
        lost_lock
    ),
];

fn with_lock(text: &str, lock: &LockName) -> NewMessage {
    message(text).with_lock(Some(lock.clone()))
}

async fn lock_per_message(context: &mut Context) -> CaseResult {
    let other = bench(context).await?;
    let name = context.name("account");
    let (inside, clashes, handled) =
        (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)), mpsc::unbounded_channel());
    let (tell, mut seen) = handled;
    let mut workers = Vec::new();
    for _ in 0..2 {
        let bench = bench(context).await?;
        let (inside, clashes, tell) = (Arc::clone(&inside), Arc::clone(&clashes), tell.clone());
        let (takes, back_off) = (span(context, 30), span(context, 60));
        workers.push(bench.queue.worker().lock_back_off(back_off).start(move |job: Job<Vec<u8>>| {
            let (inside, clashes, tell) = (Arc::clone(&inside), Arc::clone(&clashes), tell.clone());
            async move {
                clashes.fetch_add(inside.fetch_add(1, Ordering::SeqCst), Ordering::SeqCst);
                tokio::time::sleep(takes).await;
                inside.fetch_sub(1, Ordering::SeqCst);
                let _sent = tell.send((job.lock_fence, job.attempt));
            }
        })?);
    }
    for number in 0..12 {
        other.raw.store(with_lock(&number.to_string(), &name)).await?;
    }
    let mut fences = Vec::new();
    for _ in 0..12 {
        let (fence, attempt) = context.within(context.soon() * 3, "handled", seen.recv()).await?.expect("handled");
        assert_eq!(attempt, 1, "waiting for the lock was counted");
        fences.push(fence.expect("the lock is held"));
    }
    assert_eq!(clashes.load(Ordering::SeqCst), 0, "two handlers held one lock");
    fences.dedup();
    assert!(fences.len() == 12 && fences.is_sorted(), "{fences:?}");
    for worker in workers {
        worker.shutdown(context.soon()).await;
    }
    assert_eq!(other.raw.counts().await?, (0, 0, 0, 0));
    free_within(context, &other.client, &name, context.soon()).await?; // an attendant may look once more
    Ok(())
}

async fn without_attempt(context: &mut Context) -> CaseResult {
    let (bench, other) = (bench(context).await?, bench(context).await?);
    let (name, back_off) = (context.name("account"), span(context, 100));
    let guard = keep(&other.client, &name, context.ttl(20_000)).await?;
    other.raw.store(attempts(with_lock("x", &name), 1)).await?;
    let (tell, mut seen) = mpsc::unbounded_channel();
    let worker = bench.queue.worker().lock_back_off(back_off).start(move |job: Job<Vec<u8>>| {
        let _sent = tell.send((job.attempt, job.cause));
        async {}
    })?;
    let parked = async || worker.stats().parked >= 3;
    context.eventually(back_off * 6 + context.soon(), "parked again and again", parked).await?;
    assert!(seen.try_recv().is_err(), "handled without the lock");
    guard.release().await?;
    let handled = context.within(back_off + context.soon(), "handled", seen.recv()).await?;
    assert_eq!(handled, Some((1, Cause::Parked)));
    worker.shutdown(context.soon()).await;
    assert_eq!(other.raw.counts().await?, (0, 0, 0, 0));
    Ok(())
}

async fn comes_when_free(context: &mut Context) -> CaseResult {
    let (bench, other) = (bench(context).await?, bench(context).await?);
    let name = context.name("account");
    let hour = Duration::from_secs(3_600);
    let guard = keep(&other.client, &name, context.ttl(20_000)).await?;
    bench.queue.push(&b"settled".to_vec()).lock(name.as_bytes()).await?;
    let first = bench.queue.receive().await?;
    assert_eq!(first.park(&name, hour).await?, Settled::Done);
    bench.queue.push(&b"pushed".to_vec()).parked(name.as_bytes(), hour).await?;
    let (tell, mut seen) = mpsc::unbounded_channel();
    let worker = other.queue.worker().lock_back_off(hour).start(move |job: Job<Vec<u8>>| {
        let _sent = tell.send((job.value, job.attempt, job.cause, job.lock_fence.is_some()));
        async {}
    })?;
    context.pass(span(context, 300)).await;
    assert!(seen.try_recv().is_err(), "handled while the lock was taken");
    guard.release().await?;
    let mut handled = Vec::new();
    for _ in 0..2 {
        let (value, attempt, cause, locked) =
            context.within(context.soon(), "handled", seen.recv()).await?.expect("handled");
        assert_eq!((attempt, cause, locked), (1, Cause::Parked, true));
        handled.push(value);
    }
    handled.sort();
    assert_eq!(handled, [b"pushed".to_vec(), b"settled".to_vec()]);
    worker.shutdown(context.soon()).await;
    assert_eq!(other.raw.counts().await?, (0, 0, 0, 0));
    Ok(())
}

/// A message that is parked behind the lock for at most an hour comes, with the lock.
async fn comes_with_the_lock(context: &mut Context, bench: &Bench, name: &LockName, within: Duration) -> CaseResult {
    bench.queue.push(&b"x".to_vec()).parked(name.as_bytes(), Duration::from_secs(3_600)).await?;
    let delivery = context.within(within, "delivered", bench.queue.receive()).await??;
    assert_eq!((delivery.attempt(), delivery.cause()), (1, Cause::Parked));
    let guard = must(bench.client.lock(name.as_bytes()).try_acquire_for(&delivery).await?, name)?;
    delivery.ack().await?;
    guard.release().await?;
    Ok(())
}

async fn dead_holder(context: &mut Context) -> CaseResult {
    let bench = bench(context).await?;
    let (name, ttl) = (context.name("account"), context.ttl(800));
    let (_, _fence) = take_raw(&**context.backend().await?.locks(), &name, ttl).await?;
    comes_with_the_lock(context, &bench, &name, ttl + context.soon()).await
}

async fn free_already(context: &mut Context) -> CaseResult {
    let bench = bench(context).await?;
    let name = context.name("account");
    comes_with_the_lock(context, &bench, &name, context.soon()).await
}

async fn or_park(context: &mut Context) -> CaseResult {
    let (bench, other) = (bench(context).await?, bench(context).await?);
    let name = context.name("account");
    let lock = other.client.lock(name.as_bytes());
    let OrPark::Acquired(guard) = lock.or_park(&other.queue, &b"one".to_vec()).await? else {
        panic!("a free lock was not taken")
    };
    let parked = lock.or_park(&other.queue, &b"two".to_vec()).await?;
    assert!(matches!(parked, OrPark::Parked(Pushed::Stored(_))), "{parked:?}");
    let (tell, mut seen) = mpsc::unbounded_channel();
    let worker = bench.queue.worker().lock_back_off(span(context, 200)).start(move |job: Job<Vec<u8>>| {
        let _sent = tell.send((job.value, job.lock_fence));
        async {}
    })?;
    context.pass(span(context, 500)).await;
    assert!(seen.try_recv().is_err(), "handled while the lock was taken");
    let fence = guard.fence();
    guard.release().await?;
    let handled = context.within(Duration::from_secs(5) + context.soon(), "handled", seen.recv()).await?;
    let (value, held) = handled.expect("it is handled");
    assert!(value == b"two" && held.is_some_and(|held| held > fence), "{held:?} after {fence}");
    worker.shutdown(context.soon()).await;
    Ok(())
}

async fn lost_lock(context: &mut Context) -> CaseResult {
    let (layer, other) = (context.layer().await?, bench(context).await?);
    let ttl = context.ttl(600);
    let client = Client::builder(layer.backend()).build()?;
    let queue = client.queue_of_bytes(other.raw.name.as_bytes())?;
    let name = context.name("account");
    other.raw.store(with_lock("x", &name)).await?;
    layer.rule(Rule::on(Op::Renew, Action::FailBeforeSend));
    let (tell, mut seen) = mpsc::unbounded_channel();
    let policy = RetryPolicy::fixed(Duration::ZERO);
    let worker = queue.worker().retry(policy).lock_ttl(ttl).lock_back_off(span(context, 100)).start(
        move |job: Job<Vec<u8>>| {
            let _sent = tell.send(job.attempt);
            async move {
                if job.attempt == 1 {
                    std::future::pending::<()>().await;
                }
            }
        },
    )?;
    assert_eq!(context.within(context.soon(), "begun", seen.recv()).await?, Some(1));
    let again = context.within(ttl * 2 + context.soon(), "dropped and tried again", seen.recv()).await?;
    assert_eq!(again, Some(2));
    layer.heal();
    worker.shutdown(context.soon()).await;
    Ok(())
}
