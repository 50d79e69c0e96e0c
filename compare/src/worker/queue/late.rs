//! How long after its time a message arrives, and what waiting costs.

use std::time::Duration;

use serde_json::{Value, json};

use super::throughput::Subject;
use crate::job::{Job, Outcome, PAYLOAD, gate};
use crate::measure::{now, percentile};

/// After the last message was due.
const PATIENCE: Duration = Duration::from_secs(10);

/// `count` messages, one every 5 ms, each due in 100 to 1000 ms: most of them sooner than the one that the receiver waits for.
pub(super) async fn crowded<S: Subject>(job: &Job) -> Outcome<Value> {
    let queue = S::open(job).await?;
    warm_up(&queue).await?;
    gate()?;
    let (producer, count) = (queue.clone(), job.count);
    let pushing = tokio::spawn(async move {
        let mut ticks = tokio::time::interval(Duration::from_millis(5));
        for index in 0..count {
            ticks.tick().await;
            let delay = Duration::from_micros(100_000 + scatter(index) % 900_000);
            producer.push(vec![stamp(delay)], delay).await?;
        }
        Ok::<_, crate::job::Failure>(())
    });
    let mut late = Vec::with_capacity(count);
    for _ in 0..count {
        late.push(next(&queue).await?);
    }
    pushing.await??;
    Ok(figures(late))
}

/// `count` messages, each pushed when the one before has arrived: the queue is empty but for it.
pub(super) async fn idle<S: Subject>(job: &Job) -> Outcome<Value> {
    let queue = S::open(job).await?;
    warm_up(&queue).await?;
    gate()?;
    let mut late = Vec::with_capacity(job.count);
    for index in 0..job.count {
        let consumer = queue.clone();
        let waiting = tokio::spawn(async move { next(&consumer).await });
        tokio::task::yield_now().await;
        let delay = Duration::from_micros(10_000 + scatter(index) % 30_000);
        queue.push(vec![stamp(delay)], delay).await?;
        late.push(waiting.await??);
    }
    Ok(figures(late))
}

/// One receiver waits at an empty queue for `millis`; the server's counters show the cost.
pub(super) async fn nothing<S: Subject>(job: &Job) -> Outcome<Value> {
    let queue = S::open(job).await?;
    warm_up(&queue).await?;
    let waiting = tokio::spawn(async move { queue.receive().await });
    tokio::time::sleep(Duration::from_secs(1)).await; // until it waits
    gate()?;
    tokio::time::sleep(Duration::from_millis(job.millis)).await;
    waiting.abort();
    Ok(json!({ "wall_s": job.millis as f64 / 1e3 }))
}

async fn warm_up<S: Subject>(queue: &S) -> Outcome {
    queue.push(vec![stamp(Duration::ZERO)], Duration::ZERO).await?;
    next(queue).await.map(drop)
}

/// The next message: by how many milliseconds it is late, less than 0 if it is early.
async fn next<S: Subject>(queue: &S) -> Outcome<f64> {
    let (at, payload) = tokio::time::timeout(PATIENCE, queue.receive()).await??;
    let due: u64 = std::str::from_utf8(&payload)?.trim().parse()?;
    Ok((at as f64 - due as f64) / 1e6)
}

/// A payload with the time at which the message is due: counted from before it was sent, so its way counts as lateness.
fn stamp(delay: Duration) -> Vec<u8> {
    let due = now() + u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX);
    format!("{due:>PAYLOAD$}").into_bytes()
}

fn figures(mut late: Vec<f64>) -> Value {
    let early = late.iter().filter(|late| **late < 0.0).count();
    json!({
        "n": late.len(),
        "early": early,
        "p50_ms": percentile(&mut late, 0.5),
        "p99_ms": percentile(&mut late, 0.99),
        "most_ms": percentile(&mut late, 1.0),
    })
}

/// Numbers all over the place, the same in every run.
fn scatter(index: usize) -> u64 {
    (index as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20
}
