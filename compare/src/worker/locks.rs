//! Taking a lock and giving it back, again and again: each task a lock of its own, or all the same one.

use std::future::Future;
use std::time::Duration;

use serde_json::{Value, json};

use crate::job::{Event, Job, Outcome, gate};
use crate::measure::{allocations, cpu, now, percentile};

/// What one task uses to take the lock of one name, on the connections of a library.
pub(super) trait Lane: Sized + Send + 'static {
    type Held: Send;

    /// Connects, and returns a lane for each name.
    fn open(job: &Job, names: &[String]) -> impl Future<Output = Outcome<Vec<Self>>> + Send;

    /// Waits for the lock. The number is its fencing token, 0 if there is none.
    fn take(&mut self) -> impl Future<Output = Outcome<(Self::Held, u64)>> + Send;

    fn give(&mut self, held: Self::Held) -> impl Future<Output = Outcome> + Send;
}

const WARM_UP: Duration = Duration::from_millis(50);

/// Every worker has a name of its own. With `batch`, that many pairs are timed as one.
pub(super) async fn pair<L: Lane>(job: &Job) -> Outcome<Value> {
    let batch = job.batch.max(1);
    let names: Vec<String> = (0..job.workers).map(|worker| format!("{}/{worker}", job.name)).collect();
    let lanes = L::open(job, &names).await?;
    let (_, lanes) = rounds(lanes, WARM_UP, batch).await?;
    gate()?;
    let (cpu_before, allocated, begun) = (cpu(), allocations(), now());
    let (mut times, lanes) = rounds(lanes, Duration::from_millis(job.millis), batch).await?;
    let (wall, used, allocated) = (now() - begun, cpu() - cpu_before, allocations() - allocated);
    drop(lanes);
    let count = (times.len() * batch) as f64;
    Ok(json!({
        "n": count,
        "per_s": count / (wall as f64 / 1e9),
        "p50_us": percentile(&mut times, 0.5) / 1e3,
        "p99_us": percentile(&mut times, 0.99) / 1e3,
        "allocations": allocated as f64 / count,
        "cpu_s": used as f64 / 1e9,
    }))
}

/// The time of each pair. A single lane runs on the task of `block_on`, as a program's main loop would.
async fn rounds<L: Lane>(mut lanes: Vec<L>, span: Duration, batch: usize) -> Outcome<(Vec<f64>, Vec<L>)> {
    let until = now() + u64::try_from(span.as_nanos())?;
    if lanes.len() == 1 {
        let mut times = Vec::with_capacity(100_000);
        let lane = one(lanes.remove(0), until, batch, &mut times).await?;
        return Ok((times, vec![lane]));
    }
    let tasks: Vec<_> = lanes
        .into_iter()
        .map(|lane| {
            tokio::spawn(async move {
                let mut times = Vec::with_capacity(10_000);
                one(lane, until, batch, &mut times).await.map(|lane| (times, lane))
            })
        })
        .collect();
    let (mut all, mut lanes) = (Vec::new(), Vec::new());
    for task in tasks {
        let (times, lane) = task.await??;
        all.extend(times);
        lanes.push(lane);
    }
    Ok((all, lanes))
}

async fn one<L: Lane>(mut lane: L, until: u64, batch: usize, times: &mut Vec<f64>) -> Outcome<L> {
    let mut begun = now();
    while begun < until {
        for _ in 0..batch {
            let (held, _) = lane.take().await?;
            lane.give(held).await?;
        }
        let ended = now();
        times.push((ended - begun) as f64 / batch as f64);
        begun = ended;
    }
    Ok(lane)
}

/// How long the waiters that are left at the end may take.
const DRAIN: Duration = Duration::from_secs(10);

/// All workers want the lock called `name`. At the end each waits for its last turn, so that every command that was sent
/// belongs to a hand-over that was counted.
pub(super) async fn contend<L: Lane>(job: &Job) -> Outcome<Value> {
    let mut names = vec![job.name.clone(); job.workers];
    names.push("compare-warm-up".into());
    let mut lanes = L::open(job, &names).await?;
    if let Some(lane) = lanes.pop() {
        warm_up(lane).await?;
    }
    gate()?;
    let (cpu_before, begun) = (cpu(), now());
    let until = begun + job.millis * 1_000_000;
    let tasks: Vec<_> =
        lanes.into_iter().enumerate().map(|(waiter, lane)| tokio::spawn(turns(lane, waiter, until))).collect();
    let mut events = Vec::new();
    for task in tasks {
        events.extend(task.await??);
    }
    let used = cpu() - cpu_before;
    Ok(json!({ "events": events, "begun": begun, "until": until, "cpu_s": used as f64 / 1e9 }))
}

/// Scripts are loaded and connections open before the clock runs.
async fn warm_up<L: Lane>(mut lane: L) -> Outcome {
    if let Ok(taken) = tokio::time::timeout(Duration::from_secs(2), lane.take()).await {
        lane.give(taken?.0).await?;
    }
    Ok(())
}

async fn turns<L: Lane>(mut lane: L, waiter: usize, until: u64) -> Outcome<Vec<Event>> {
    let mut events = Vec::new();
    loop {
        let asked = now();
        if asked >= until {
            return Ok(events);
        }
        let left = Duration::from_nanos(until - asked) + DRAIN;
        let Ok(taken) = tokio::time::timeout(left, lane.take()).await else { return Ok(events) };
        let (held, fence) = taken?;
        let got = now();
        let gave = now();
        lane.give(held).await?;
        events.push((waiter, asked, got, gave, fence));
    }
}
