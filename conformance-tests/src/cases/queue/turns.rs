//! Parked messages own their turns: the hold on the lock travels with the message.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tenure_core::driver::{Cause, Delay, Due, LockTurn, NewMessage, Settlement, TurnGiven};
use tenure_core::queue::{Job, MessageId, OrPark};
use tenure_core::{Client, LockName, Result};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::support::{Bench, after, bench, bytes, delay, lease, message, span};
use crate::case::{Case, CaseResult, Context, Need, case};
use crate::cases::support::{free_within, is_free, keep, take_raw};

pub(in crate::cases) const CASES: &[Case] = &[
    case!(
        "queue/parked-owns-its-turn",
        "Requests that are parked behind a lock which three clients take in turns are all handled within 3 s, under the lock.",
        ["P1", "P53", "P55"],
        [Need::Queue, Need::FollowsLock, Need::Fifo],
        owns_its_turn
    ),
    case!(
        "queue/parked-owns-its-turn-by-push",
        "Messages that were pushed with a lock which three clients take in turns are all handled within 3 s, under the lock.",
        ["P1", "P53", "P55"],
        [Need::Queue, Need::FollowsLock, Need::Fifo],
        owns_its_turn_by_push
    ),
    case!(
        "queue/turn-is-adopted",
        "A worker that receives a message with its turn adopts that hold: with the same fence, renewed, and no other client has the lock.",
        ["P1", "P19", "P55"],
        [Need::Queue, Need::FollowsLock],
        is_adopted
    ),
    case!(
        "queue/turn-is-not-adopted-twice",
        "A turn belongs to one delivery: the next delivery of the message, after its lease or its return, has none; a turn that is not taken up is released.",
        ["P1", "P55"],
        [Need::Queue, Need::FollowsLock],
        not_adopted_twice
    ),
    case!(
        "queue/turn-not-taken-up",
        "A turn that no receiver takes up ends after 2 s, and the next waiter has the lock; the message is handled later.",
        ["P1", "P53", "P55"],
        [Need::Queue, Need::FollowsLock],
        nobody_takes_up
    ),
    case!(
        "queue/turn-only-for-the-parked",
        "Only a parked message can be given a turn, and only while the queue runs; it is due then, before messages that \
         were pushed later.",
        ["P53", "P55"],
        [Need::Queue, Need::FollowsLock],
        only_for_the_parked
    ),
    case!(
        "queue/turn-needs-a-receiver",
        "A client whose workers are all busy, or whose queue is paused, keeps no lock for the messages that it parked.",
        ["P53"],
        [Need::Queue, Need::FollowsLock],
        needs_a_receiver
    ),
];

const HOUR: Duration = Duration::from_secs(3_600);

/// Counts who is inside, and whether it ever was more than one.
#[derive(Clone, Default)]
struct Inside {
    now: Arc<AtomicUsize>,
    clashes: Arc<AtomicUsize>,
}

impl Inside {
    async fn stay(&self, length: Duration) {
        self.clashes.fetch_add(self.now.fetch_add(1, Ordering::SeqCst), Ordering::SeqCst);
        tokio::time::sleep(length).await;
        self.now.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A client that takes the lock again and again, until it is stopped.
fn contender(
    client: &Client,
    name: &LockName,
    inside: Inside,
    stop: Arc<AtomicBool>,
    length: Duration,
) -> JoinHandle<Result<u32>> {
    let (client, name) = (client.clone(), name.clone());
    tokio::spawn(async move {
        let (lock, mut turns) = (client.lock(name.as_bytes()), 0);
        while !stop.load(Ordering::SeqCst) {
            let guard = lock.acquire().await?;
            inside.stay(length).await;
            guard.release().await?;
            turns += 1;
        }
        Ok(turns)
    })
}

async fn owns_its_turn(context: &mut Context) -> CaseResult {
    contended(context, async |other: &Bench, name: &LockName, text: &[u8]| {
        let lock = other.client.lock(name.as_bytes());
        while let OrPark::Acquired(guard) = lock.or_park(&other.queue, &text.to_vec()).await? {
            guard.release().await?;
        }
        Ok(())
    })
    .await
}

async fn owns_its_turn_by_push(context: &mut Context) -> CaseResult {
    contended(context, async |other: &Bench, name: &LockName, text: &[u8]| {
        other.queue.push(&text.to_vec()).lock(name.as_bytes()).await?;
        Ok(())
    })
    .await
}

/// Three clients take the lock in turns of 30 ms; five requests need it as well.
async fn contended(context: &mut Context, request: impl AsyncFn(&Bench, &LockName, &[u8]) -> CaseResult) -> CaseResult {
    let (bench, other) = (bench(context).await?, bench(context).await?);
    let (name, length) = (context.name("account"), span(context, 30));
    let (inside, stop) = (Inside::default(), Arc::<AtomicBool>::default());
    let mut contenders = Vec::new();
    for _ in 0..3 {
        let client = context.client().await?;
        contenders.push(contender(&client, &name, inside.clone(), Arc::clone(&stop), length));
    }
    let taken = async || inside.now.load(Ordering::SeqCst) > 0;
    context.eventually(context.soon(), "the lock is taken", taken).await?;
    let (tell, mut seen) = mpsc::unbounded_channel();
    let within = inside.clone();
    let worker = bench.queue.worker().start(move |job: Job<Vec<u8>>| {
        let (within, tell) = (within.clone(), tell.clone());
        async move {
            within.stay(Duration::from_millis(1)).await;
            let _sent = tell.send((job.value, job.attempt, job.lock_fence.is_some()));
        }
    })?;
    let start = Instant::now();
    for number in 0..5 {
        request(&other, &name, &[number]).await?;
    }
    let mut handled = Vec::new();
    for _ in 0..5 {
        let left = context.ms(3_000).saturating_sub(start.elapsed());
        let (value, attempt, locked) = context.within(left, "handled", seen.recv()).await?.expect("handled");
        assert_eq!((attempt, locked), (1, true));
        handled.extend(value);
    }
    handled.sort_unstable();
    assert_eq!(handled, [0, 1, 2, 3, 4]);
    stop.store(true, Ordering::SeqCst);
    for contender in contenders {
        let turns = context.within(context.soon(), "the last turn", contender).await???;
        assert!(turns > 0, "the others have their turns as well");
    }
    assert_eq!(inside.clashes.load(Ordering::SeqCst), 0, "two held one lock");
    worker.shutdown(context.soon()).await;
    assert_eq!(other.raw.counts().await?, (0, 0, 0, 0));
    free_within(context, &other.client, &name, context.soon()).await.map(drop)
}

fn parked(text: &str, lock: &LockName) -> NewMessage {
    message(text).with_lock(Some(lock.clone())).with_due(Due::Parked { at_most: delay(HOUR) })
}

/// Parks a message and gives it a hold for about so many milliseconds.
async fn given(
    context: &mut Context,
    bench: &Bench,
    name: &LockName,
    millis: u64,
) -> CaseResult<(MessageId, LockTurn)> {
    let (token, fence) = take_raw(&**context.backend().await?.locks(), name, context.ttl(millis)).await?;
    let turn = LockTurn::new(name.clone(), token, fence);
    let id = bench.raw.store(parked("x", name)).await?;
    bench.raw.nothing("it is parked").await?;
    assert_eq!(bench.raw.driver.give_turn(&bench.raw.name, &id, &turn).await?, TurnGiven::Due);
    Ok((id, turn))
}

async fn is_adopted(context: &mut Context) -> CaseResult {
    let (bench, other) = (bench(context).await?, bench(context).await?);
    let (name, ttl) = (context.name("account"), context.ttl(1_000));
    let (_, turn) = given(context, &other, &name, 1_000).await?;
    let (tell, mut begun) = mpsc::unbounded_channel();
    let worker = bench.queue.worker().start(move |job: Job<Vec<u8>>| {
        let _sent = tell.send((job.lock_fence, job.cause, job.attempt));
        tokio::time::sleep(ttl * 2)
    })?;
    let first = context.within(context.soon(), "begun", begun.recv()).await?;
    assert_eq!(first, Some((Some(turn.fence), Cause::Parked, 1)));
    let start = Instant::now();
    while start.elapsed() < ttl * 3 / 2 {
        assert!(!is_free(&other.client, &name).await?, "free after {:?}", start.elapsed());
        context.pass(ttl / 8).await;
    }
    free_within(context, &other.client, &name, ttl + context.soon()).await?;
    assert_eq!(worker.shutdown(context.soon()).await.handled, 1);
    assert_eq!(other.raw.counts().await?, (0, 0, 0, 0));
    Ok(())
}

async fn not_adopted_twice(context: &mut Context) -> CaseResult {
    let (bench, other) = (bench(context).await?, bench(context).await?);
    let name = context.name("crashed");
    let (_, turn) = given(context, &other, &name, 20_000).await?;
    let short = lease(context, 300);
    let first = other.raw.one(short).await?;
    assert_eq!(first.turn, Some(turn));
    context.pass(short.get() + other.raw.driver.capabilities().clock_error * 2).await;
    let again = other.raw.one(lease(context, 30_000)).await?;
    assert_eq!((again.attempt, again.turn), (2, None), "after its lease");
    other.raw.settle(again.receipt, Settlement::Return { after: Delay::ZERO }).await?;
    let returned = other.raw.one(lease(context, 30_000)).await?;
    assert_eq!(returned.turn, None, "after its return");
    other.raw.ack(returned.receipt).await?;

    let name = context.name("by-hand");
    let (_, turn) = given(context, &other, &name, 20_000).await?;
    let delivery = context.within(context.soon(), "delivered", bench.queue.receive()).await??;
    let lock = bench.client.lock(name.as_bytes());
    let guard = lock.try_acquire_for(&delivery).await?.expect("it came along");
    assert_eq!((guard.fence(), guard.is_held()), (turn.fence, true));
    assert!(lock.try_acquire_for(&delivery).await?.is_none(), "it is taken up already");
    guard.release().await?;
    delivery.ack().await?;

    let name = context.name("untaken");
    given(context, &other, &name, 20_000).await?;
    let delivery = context.within(context.soon(), "delivered", bench.queue.receive()).await??;
    assert!(!is_free(&other.client, &name).await?, "it is kept for the message");
    delivery.ack().await?;
    free_within(context, &other.client, &name, context.soon()).await.map(drop)
}

async fn nobody_takes_up(context: &mut Context) -> CaseResult {
    let (bench, other) = (bench(context).await?, bench(context).await?);
    let name = context.name("account");
    let guard = keep(&bench.client, &name, context.ttl(20_000)).await?;
    let lock = other.client.lock(name.as_bytes());
    let stored = lock.or_park(&other.queue, &b"x".to_vec()).await?;
    assert!(matches!(stored, OrPark::Parked(_)), "{stored:?}");
    context.pass(span(context, 300)).await; // so that it stands in the line
    let fence = guard.fence();
    guard.release().await?;
    let due = async || other.raw.counts().await.map(|counts| counts == (0, 1, 0, 0));
    context.eventually(context.soon(), "its turn has come", due).await?;
    let start = Instant::now();
    let next = bench.client.lock(name.as_bytes()).acquire_within(Duration::from_secs(2) + context.soon()).await?;
    assert!(start.elapsed() < Duration::from_secs(3) + context.ms(500), "kept for {:?}", start.elapsed());
    next.release().await?;
    let (tell, mut seen) = mpsc::unbounded_channel();
    let worker = bench.queue.worker().start(move |job: Job<Vec<u8>>| {
        let _sent = tell.send((job.attempt, job.lock_fence));
        async {}
    })?;
    let (attempt, held) = context.within(context.soon(), "handled", seen.recv()).await?.expect("handled");
    assert!(attempt == 1 && held.is_some_and(|held| held > fence), "{attempt}, {held:?} after {fence}");
    worker.shutdown(context.soon()).await;
    Ok(())
}

async fn only_for_the_parked(context: &mut Context) -> CaseResult {
    let other = bench(context).await?;
    let (name, raw) = (context.name("account"), &other.raw);
    let (token, fence) = take_raw(&**context.backend().await?.locks(), &name, context.ttl(20_000)).await?;
    let turn = LockTurn::new(name.clone(), token, fence);
    let give = async |id: &MessageId| raw.driver.give_turn(&raw.name, id, &turn).await;
    let known = raw.store(message("gone")).await?;
    let gone = raw.one(lease(context, 30_000)).await?;
    assert_eq!(give(&known).await?, TurnGiven::NotParked, "in flight");
    raw.ack(gone.receipt).await?;
    assert_eq!(give(&known).await?, TurnGiven::NotParked, "gone");
    let scheduled = raw.store(after(message("scheduled"), HOUR)).await?;
    assert_eq!(give(&scheduled).await?, TurnGiven::NotParked, "not parked");
    raw.nothing("none is due").await?;

    let id = raw.store(parked("first", &name)).await?;
    raw.store(message("second")).await?;
    raw.driver.pause(&raw.name).await?;
    assert_eq!(give(&id).await?, TurnGiven::Paused);
    raw.driver.resume(&raw.name).await?;
    assert_eq!(give(&id).await?, TurnGiven::Due);
    let both = raw.take(5, lease(context, 30_000)).await?;
    let seen: Vec<_> = both.iter().map(|delivery| (bytes(delivery), delivery.turn.as_ref())).collect();
    assert_eq!(seen, [(b"first".as_slice(), Some(&turn)), (b"second".as_slice(), None)]);
    Ok(())
}

async fn needs_a_receiver(context: &mut Context) -> CaseResult {
    let (bench, other) = (bench(context).await?, bench(context).await?);
    let (begun, mut busy) = mpsc::unbounded_channel();
    let worker = bench.queue.worker().concurrency(1).start(move |_: Job<Vec<u8>>| {
        let _sent = begun.send(());
        std::future::pending::<()>()
    })?;
    bench.queue.push(&b"long".to_vec()).await?;
    context.within(context.soon(), "begun", busy.recv()).await?;
    stays_free(context, &bench, &other.client, "busy").await?;
    worker.abort().await;

    let producer = super::support::bench(context).await?;
    producer.queue.pause().await?;
    stays_free(context, &producer, &other.client, "paused").await?;
    producer.queue.resume().await?;
    Ok(())
}

/// Parks a request behind a lock, which is free for others soon after its release, and stays so.
async fn stays_free(context: &mut Context, bench: &Bench, other: &Client, name: &str) -> CaseResult {
    let name = context.name(name);
    let guard = keep(other, &name, context.ttl(20_000)).await?;
    let stored = bench.client.lock(name.as_bytes()).or_park(&bench.queue, &b"x".to_vec()).await?;
    assert!(matches!(stored, OrPark::Parked(_)), "{stored:?}");
    context.pass(span(context, 300)).await;
    guard.release().await?;
    free_within(context, other, &name, context.ms(500)).await?;
    let start = Instant::now();
    while start.elapsed() < context.ms(1_000) {
        assert!(is_free(other, &name).await?, "kept without a receiver");
        context.pass(context.ms(50)).await;
    }
    Ok(())
}
