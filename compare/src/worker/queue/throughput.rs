//! What a queue can do, and how many messages pass through it.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use crate::job::{Job, Outcome, PAYLOAD, gate};
use crate::measure::{cpu, now};

/// A library, connected to one queue. Clones are the same.
pub(super) trait Subject: Sized + Clone + Send + Sync + 'static {
    fn open(job: &Job) -> impl Future<Output = Outcome<Self>> + Send;

    /// What the task of this number uses.
    fn of(&self, _task: usize) -> Self {
        self.clone()
    }

    /// Stores messages in one request, if the library can.
    fn push(&self, payloads: Vec<Vec<u8>>, delay: Duration) -> impl Future<Output = Outcome> + Send;

    /// Takes up to so many messages that are due and settles them, and returns how many it were. For `throughput` and `burst`.
    fn drain(&self, _most: usize) -> impl Future<Output = Outcome<usize>> + Send {
        async { Err("its throughput is not measured".into()) }
    }

    /// Waits for one message, and settles it after the clock was read. For `late` and `idle`.
    fn receive(&self) -> impl Future<Output = Outcome<(u64, Vec<u8>)>> + Send {
        async { Err("its lateness is not measured".into()) }
    }
}

/// Due long after every measurement.
const FAR: Duration = Duration::from_secs(86_400);

/// Stores `count` messages that are due at once, `batch` in a request; then takes and settles them all.
pub(super) async fn measure<S: Subject>(job: &Job) -> Outcome<Value> {
    let queue = S::open(job).await?;
    queue.push(vec![vec![0; PAYLOAD]], Duration::ZERO).await?;
    while queue.drain(1).await? > 0 {}
    gate()?;
    let (cpu_before, begun) = (cpu(), now());
    push_all(&queue, job, |_| Duration::ZERO).await?;
    let pushed = now();
    let drained = drain_all(&queue, job).await?;
    let (ended, used) = (now(), cpu() - cpu_before);
    if drained != job.count {
        return Err(format!("{drained} of {} messages came back", job.count).into());
    }
    Ok(outcome(job, pushed - begun, ended - pushed, used))
}

/// The figures of a life cycle, from the nanoseconds of its halves.
pub(super) fn outcome(job: &Job, pushing: u64, draining: u64, used: u64) -> Value {
    let per_s = |nanos: u64| job.count as f64 / (nanos as f64 / 1e9);
    let total = per_s(pushing + draining);
    json!({
        "n": job.count,
        "push_per_s": per_s(pushing),
        "drain_per_s": per_s(draining),
        "total_per_s": total,
        "mb_per_s": total * job.payload() as f64 / 1e6,
        "cpu_s": used as f64 / 1e9,
    })
}

/// Stores `count` messages that are due tomorrow.
pub(super) async fn preload<S: Subject>(job: &Job) -> Outcome<Value> {
    let queue = S::open(job).await?;
    gate()?;
    push_all(&queue, job, |_| FAR).await?;
    Ok(json!({ "n": job.count }))
}

/// Stores `count` messages that are all due at the same time, and takes them when they are.
pub(super) async fn burst<S: Subject>(job: &Job) -> Outcome<Value> {
    let queue = S::open(job).await?;
    gate()?;
    let due = now() + job.millis * 1_000_000;
    push_all(&queue, job, move |at| Duration::from_nanos(due.saturating_sub(at))).await?;
    if now() > due {
        return Err(format!("{} messages take longer to store than {} ms", job.count, job.millis).into());
    }
    tokio::time::sleep(Duration::from_nanos(due - now()) + Duration::from_millis(5)).await;
    let begun = now();
    let drained = drain_all(&queue, job).await?;
    let seconds = (now() - begun) as f64 / 1e9;
    if drained != job.count {
        return Err(format!("{drained} of {} messages came back", job.count).into());
    }
    Ok(json!({ "drain_per_s": drained as f64 / seconds }))
}

async fn push_all<S: Subject>(
    queue: &S,
    job: &Job,
    delay: impl Fn(u64) -> Duration + Copy + Send + 'static,
) -> Outcome {
    let left = Arc::new(AtomicUsize::new(job.count / job.batch));
    let bytes = job.payload();
    let tasks = (0..job.workers).map(|task| {
        let (queue, left, batch) = (queue.of(task), Arc::clone(&left), job.batch);
        tokio::spawn(async move {
            while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok() {
                queue.push(vec![vec![b'x'; bytes]; batch], delay(now())).await?;
            }
            Ok::<_, crate::job::Failure>(())
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await??;
    }
    Ok(())
}

async fn drain_all<S: Subject>(queue: &S, job: &Job) -> Outcome<usize> {
    let tasks = (0..job.workers).map(|task| {
        let (queue, batch) = (queue.of(task), job.batch);
        tokio::spawn(async move {
            let mut drained = 0;
            loop {
                match queue.drain(batch).await? {
                    0 => return Ok::<_, crate::job::Failure>(drained),
                    count => drained += count,
                }
            }
        })
    });
    let mut drained = 0;
    for task in tasks.collect::<Vec<_>>() {
        drained += task.await??;
    }
    Ok(drained)
}
