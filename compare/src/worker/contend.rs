//! Many who want the same lock, all the time.

use std::time::Duration;

use serde_json::{Value, json};

use super::gate::gate;
use super::subject::{Lane, Subject};
use crate::failure::Outcome;
use crate::job::{Event, Job};
use crate::measure::{cpu, now};

/// How long those that are still waiting at the end may take.
const DRAIN: Duration = Duration::from_secs(10);

/// All workers want the lock called `name`. At the end each waits for its last turn, so that every command that was sent
/// belongs to a hand-over that was counted.
pub(super) async fn measure<S: Subject>(job: &Job) -> Outcome<Value> {
    let subject = S::open(job).await?;
    let mut lanes = Vec::new();
    for _ in 0..job.workers {
        lanes.push(subject.lane(&job.name).await?);
    }
    warm_up(&subject).await?;
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
async fn warm_up<S: Subject>(subject: &S) -> Outcome {
    let mut lane = subject.lane("compare/warm-up").await?;
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
