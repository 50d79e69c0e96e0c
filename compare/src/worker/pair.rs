//! Taking a lock without contention, and giving it back, again and again.

use std::time::Duration;

use serde_json::{Value, json};

use super::gate::gate;
use super::subject::{Lane, Subject};
use crate::failure::Outcome;
use crate::job::Job;
use crate::measure::{allocations, cpu, now, percentile};

const WARM_UP: Duration = Duration::from_millis(50);

/// Every worker has a name of its own. With `batch`, that many pairs are timed as one.
pub(super) async fn measure<S: Subject>(job: &Job) -> Outcome<Value> {
    let subject = S::open(job).await?;
    let batch = job.batch.max(1);
    let mut lanes = Vec::new();
    for worker in 0..job.workers {
        lanes.push(subject.lane(&format!("{}/{worker}", job.name)).await?);
    }
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
        "client_us": used as f64 / 1e3 / count,
        "allocations": allocated as f64 / count,
        "cpu_s": used as f64 / 1e9,
        "wall_s": wall as f64 / 1e9,
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
