//! Workers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tenure_core::driver::{Cause, DeadCause};
use tenure_core::queue::{Codec, Job, Outcome, Reason, RetryPolicy, Undecodable};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::support::{attempts, bench, lease, message, span};
use crate::case::{Case, CaseResult, Context, Need, case};
use crate::layer::{Action, Op, Rule};

pub(in crate::cases) const CASES: &[Case] = &[
    case!(
        "queue/worker-extends",
        "A worker keeps a message whose handling takes many leases, and no other receiver gets it meanwhile.",
        ["P56"],
        [Need::Queue],
        extends
    ),
    case!(
        "queue/worker-drops-work-at-the-deadline",
        "When a lease cannot be extended, the handler is dropped before another receiver can get the message.",
        ["P56"],
        [Need::Queue],
        deadline
    ),
    case!(
        "queue/worker-retries",
        "Failures come back after the wait of the retry policy, and die with their reason when the attempts are used up.",
        ["P58"],
        [Need::Queue],
        retries
    ),
    case!(
        "queue/worker-survives-panics",
        "A handler that panics is a failed attempt; the worker continues.",
        ["P53", "P58"],
        [Need::Queue],
        panics
    ),
    case!(
        "queue/worker-concurrency",
        "A worker handles as many messages at once as its concurrency says, never more, and receives no more than that.",
        ["P56"],
        [Need::Queue],
        concurrency
    ),
    case!(
        "queue/worker-shuts-down",
        "A shutdown lets handlers finish; those that do not are dropped, and their messages are returned without counting the attempt.",
        ["P53", "P58"],
        [Need::Queue],
        shutdown
    ),
    case!(
        "queue/worker-buries-the-undecodable",
        "A worker that is set so buries a message that cannot be decoded, without handling it.",
        ["P58"],
        [Need::Queue],
        undecodable
    ),
    case!(
        "queue/worker-survives-its-codec",
        "A message on which the codec panics is one that cannot be decoded, with the panic's text; the worker continues.",
        ["P58"],
        [Need::Queue],
        codec_panics
    ),
    case!(
        "queue/worker-puts-off",
        "A handler that says later gets its message again after that span, as often as it says so, without an attempt.",
        ["P58"],
        [Need::Queue],
        puts_off
    ),
    case!(
        "queue/workers-share",
        "Several workers of several clients handle every message once.",
        ["P53", "P56"],
        [Need::Queue],
        share
    ),
];

async fn extends(context: &mut Context) -> CaseResult {
    let (bench, other) = (bench(context).await?, bench(context).await?);
    let short = lease(context, 600);
    other.raw.store(message("x")).await?;
    let (done, mut handled) = mpsc::unbounded_channel();
    let worker = bench.queue.clone().lease(short.get()).worker().start(move |job: Job<Vec<u8>>| {
        let done = done.clone();
        async move {
            let _sent = done.send(job.attempt);
            tokio::time::sleep(short.get() * 5).await;
            let _sent = done.send(job.attempt);
        }
    })?;
    assert_eq!(context.within(context.soon(), "received", handled.recv()).await?, Some(1));
    let start = Instant::now();
    while start.elapsed() < short.get() * 4 {
        context.pass(short.get() / 4).await;
        other.raw.nothing("the worker holds it").await?;
    }
    let attempt = context.within(short.get() * 5 + context.soon(), "handled", handled.recv()).await?;
    assert_eq!(attempt, Some(1));
    let gone = async || other.raw.counts().await.map(|counts| counts == (0, 0, 0, 0));
    context.eventually(context.soon(), "acknowledged", gone).await?;
    assert_eq!(worker.shutdown(context.soon()).await.handled, 1);
    Ok(())
}

/// Sends the length of its life when it is dropped.
struct Life(Instant, mpsc::UnboundedSender<Duration>);

impl Drop for Life {
    fn drop(&mut self) {
        let _sent = self.1.send(self.0.elapsed());
    }
}

async fn deadline(context: &mut Context) -> CaseResult {
    let (layer, other) = (context.layer().await?, bench(context).await?);
    let client = context.client_over(layer.backend()).build()?;
    let short = lease(context, 900);
    let queue = client.queue_of_bytes(other.raw.name.as_bytes())?.lease(short.get());
    layer.rule(Rule::on(Op::Extend, Action::FailBeforeSend));
    layer.rule(Rule::on(Op::Settle, Action::FailBeforeSend));
    let (dropped, mut lives) = mpsc::unbounded_channel();
    let worker = queue.worker().start(move |_| {
        let life = Life(Instant::now(), dropped.clone());
        async move {
            let _life = life;
            std::future::pending::<()>().await;
        }
    })?;
    other.raw.store(message("x")).await?;
    let life = context.within(short.get() + context.soon(), "the handler is dropped", lives.recv()).await?;
    let life = life.expect("the handler began");
    assert!(life < short.get() && life > short.get() / 2, "dropped after {life:?}");
    layer.heal();
    worker.abort().await;
    Ok(())
}

async fn retries(context: &mut Context) -> CaseResult {
    let (bench, other) = (bench(context).await?, bench(context).await?);
    let wait = span(context, 300);
    other.raw.store(attempts(message("x"), 3)).await?;
    let (tell, mut tries) = mpsc::unbounded_channel();
    let worker = bench.queue.worker().retry(RetryPolicy::fixed(wait)).start(move |job: Job<Vec<u8>>| {
        let _sent = tell.send((job.attempt, Instant::now()));
        async move { Err::<(), _>(format!("failed {}", job.attempt)) }
    })?;
    let mut last: Option<Instant> = None;
    for attempt in 1..=3 {
        let (seen, at) = context.within(wait + context.soon(), "tried", tries.recv()).await?.expect("it is tried");
        assert_eq!(seen, attempt);
        let error = bench.queue.capabilities().clock_error;
        assert!(last.is_none_or(|last| at - last + error >= wait), "tried again too early");
        last = Some(at);
    }
    let dead = async || other.raw.counts().await.map(|counts| counts == (0, 0, 0, 1));
    context.eventually(context.soon(), "dead after its attempts", dead).await?;
    let letter = other.queue.dead_letters().list(None, 1).await?.letters.remove(0);
    assert_eq!(letter.reason.as_ref().map(Reason::as_str), Some("failed 3"));
    worker.shutdown(context.soon()).await;
    Ok(())
}

async fn panics(context: &mut Context) -> CaseResult {
    let (bench, other) = (bench(context).await?, bench(context).await?);
    let (tell, mut tries) = mpsc::unbounded_channel();
    let policy = RetryPolicy::fixed(Duration::ZERO);
    let worker = bench.queue.worker().retry(policy).start(move |job: Job<Vec<u8>>| {
        let tell = tell.clone();
        async move {
            if job.attempt == 1 {
                std::panic::resume_unwind(Box::new("on purpose")); // without a message on the screen
            }
            let _sent = tell.send((job.attempt, job.cause));
        }
    })?;
    other.raw.push(&[message("a"), message("b")]).await?;
    for _ in 0..2 {
        let seen = context.within(context.soon(), "tried again", tries.recv()).await?;
        assert_eq!(seen, Some((2, Cause::Retried)));
    }
    worker.shutdown(context.soon()).await;
    assert_eq!(other.raw.counts().await?, (0, 0, 0, 0));
    Ok(())
}

async fn concurrency(context: &mut Context) -> CaseResult {
    let (bench, other) = (bench(context).await?, bench(context).await?);
    let batch: Vec<_> = (0..20).map(|number| message(number.to_string())).collect();
    other.raw.push(&batch).await?;
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (running, peak, takes) = (Arc::clone(&now), Arc::clone(&most), span(context, 200));
    let worker = bench.queue.worker().concurrency(4).start(move |_| {
        let (running, peak) = (Arc::clone(&running), Arc::clone(&peak));
        async move {
            peak.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::time::sleep(takes).await;
            running.fetch_sub(1, Ordering::SeqCst);
        }
    })?;
    let full = async || now.load(Ordering::SeqCst) == 4;
    context.eventually(context.soon(), "four at once", full).await?;
    assert_eq!(other.raw.counts().await?, (0, 16, 4, 0), "nothing waits in the worker's memory");
    let done = async || other.raw.counts().await.map(|counts| counts == (0, 0, 0, 0));
    context.eventually(takes * 10 + context.soon(), "all are handled", done).await?;
    assert_eq!(most.load(Ordering::SeqCst), 4);
    assert_eq!(worker.shutdown(context.soon()).await.handled, 20);
    Ok(())
}

async fn shutdown(context: &mut Context) -> CaseResult {
    let (bench, other) = (bench(context).await?, bench(context).await?);
    let (quick, began) = (span(context, 300), Arc::new(AtomicUsize::new(0)));
    let begun = Arc::clone(&began);
    let worker = bench.queue.worker().start(move |job: Job<Vec<u8>>| {
        begun.fetch_add(1, Ordering::SeqCst);
        async move {
            match job.value.as_slice() {
                b"quick" => tokio::time::sleep(quick).await,
                _ => std::future::pending().await,
            }
            Outcome::Done
        }
    })?;
    other.raw.push(&[message("quick"), message("stuck")]).await?;
    let both = async || began.load(Ordering::SeqCst) == 2;
    context.eventually(context.soon(), "both begin", both).await?;
    let stopping = tokio::spawn(worker.shutdown(quick * 3));
    context.pass(quick / 2).await;
    other.raw.store(message("after")).await?;
    let stats = context.within(context.soon(), "stopped", stopping).await??;
    assert_eq!((stats.handled, stats.returned), (1, 1));
    assert_eq!(began.load(Ordering::SeqCst), 2, "nothing is begun after the stop");
    let left = other.raw.take(5, lease(context, 30_000)).await?;
    let mut left: Vec<_> = left.iter().map(|d| (d.payload.as_bytes().to_vec(), d.attempt)).collect();
    left.sort();
    assert_eq!(left, [(b"after".to_vec(), 1), (b"stuck".to_vec(), 1)]);
    Ok(())
}

async fn undecodable(context: &mut Context) -> CaseResult {
    let bench = bench(context).await?;
    bench.raw.store(message(b"\xff")).await?;
    let handled = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&handled);
    let texts = bench.client.queue_with(bench.raw.name.as_bytes(), tenure_core::queue::Text)?;
    let worker = texts.worker().undecodable(Undecodable::Dead).start(move |_: Job<String>| {
        count.fetch_add(1, Ordering::SeqCst);
        async {}
    })?;
    let dead = async || bench.raw.counts().await.map(|counts| counts == (0, 0, 0, 1));
    context.eventually(context.soon(), "buried", dead).await?;
    let letter = bench.queue.dead_letters().list(None, 1).await?.letters.remove(0);
    assert_eq!((letter.cause, handled.load(Ordering::SeqCst)), (DeadCause::Rejected, 0));
    assert!(letter.reason.is_some_and(|reason| reason.as_str().starts_with("undecodable")));
    worker.shutdown(context.soon()).await;
    Ok(())
}

/// Panics over one message.
#[derive(Debug)]
struct Squeamish;

impl Codec<Vec<u8>> for Squeamish {
    fn encode(&self, value: &Vec<u8>) -> tenure_core::Result<Vec<u8>> {
        Ok(value.clone())
    }

    fn decode(&self, bytes: &[u8]) -> tenure_core::Result<Vec<u8>> {
        match bytes {
            b"snail" => std::panic::resume_unwind(Box::new("not that")), // without a message on the screen
            bytes => Ok(bytes.to_vec()),
        }
    }
}

async fn codec_panics(context: &mut Context) -> CaseResult {
    let bench = bench(context).await?;
    let (tell, mut seen) = mpsc::unbounded_channel();
    let meals = bench.client.queue_with(bench.raw.name.as_bytes(), Squeamish)?;
    bench.raw.push(&["soup", "snail", "cake"].map(message)).await?;
    let worker = meals.worker().concurrency(1).undecodable(Undecodable::Dead);
    let worker = worker.start(move |job: Job<Vec<u8>>| {
        let _sent = tell.send(job.value);
        async {}
    })?;
    for meal in ["soup", "cake"] {
        let next = context.within(context.soon(), "the worker continues", seen.recv()).await?;
        assert_eq!(next.as_deref(), Some(meal.as_bytes()));
    }
    worker.shutdown(context.soon()).await;
    assert_eq!(bench.raw.counts().await?, (0, 0, 0, 1));
    let letter = bench.queue.dead_letters().list(None, 1).await?.letters.remove(0);
    let reason = letter.reason.as_ref().map_or("", Reason::as_str);
    assert!(reason.ends_with("the codec panicked: not that"), "{reason}");
    Ok(())
}

async fn puts_off(context: &mut Context) -> CaseResult {
    let (bench, other) = (bench(context).await?, bench(context).await?);
    let (wait, times) = (span(context, 300), AtomicUsize::new(0));
    other.raw.store(attempts(message("x"), 1)).await?;
    let (tell, mut tries) = mpsc::unbounded_channel();
    let worker = bench.queue.worker().start(move |job: Job<Vec<u8>>| {
        let _sent = tell.send((job.attempt, Instant::now()));
        let said = if times.fetch_add(1, Ordering::SeqCst) < 2 { Outcome::Later(wait) } else { Outcome::Done };
        async move { said }
    })?;
    let (mut last, error): (Option<Instant>, _) = (None, bench.queue.capabilities().clock_error);
    for _ in 0..3 {
        let (attempt, at) = context.within(wait + context.soon(), "again", tries.recv()).await?.expect("it works");
        assert_eq!(attempt, 1);
        assert!(last.is_none_or(|last| at - last + error >= wait), "too early");
        last = Some(at);
    }
    let stats = worker.shutdown(context.soon()).await;
    assert_eq!((stats.put_off, stats.handled, stats.dead), (2, 1, 0));
    assert_eq!(other.raw.counts().await?, (0, 0, 0, 0));
    Ok(())
}

async fn share(context: &mut Context) -> CaseResult {
    let other = bench(context).await?;
    let (tell, mut seen) = mpsc::unbounded_channel();
    let mut workers = Vec::new();
    for _ in 0..3 {
        let (bench, tell) = (bench(context).await?, tell.clone());
        workers.push(bench.queue.worker().concurrency(5).start(move |job: Job<Vec<u8>>| {
            let _sent = tell.send(job.value);
            async {}
        })?);
    }
    for number in 0..300_u32 {
        other.queue.push(&number.to_be_bytes().to_vec()).await?;
    }
    let mut all = Vec::new();
    while all.len() < 300 {
        all.extend(context.within(context.soon(), "handled", seen.recv()).await?);
    }
    let done = async || other.raw.counts().await.map(|counts| counts == (0, 0, 0, 0));
    context.eventually(context.soon(), "all are acknowledged", done).await?;
    for worker in workers {
        worker.shutdown(context.soon()).await;
    }
    all.sort();
    all.dedup();
    assert!(all.len() == 300 && seen.try_recv().is_err(), "some were handled twice");
    Ok(())
}
