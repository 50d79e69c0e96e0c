//! Tasks that each want a lock by chance, of so many names: with few names they wait for each other, with many they do not.

use serde_json::{Value, json};
use tenure_core::Client;

use super::gate::gate;
use super::ours;
use crate::failure::Outcome;
use crate::job::Job;
use crate::measure::{cpu, now, percentile};

/// Each of the `workers` takes a lock of one of `count` names and releases it, again and again, for `millis`.
pub(super) async fn measure(job: &Job) -> Outcome<Value> {
    let client = Client::new(ours::redis(job).await?);
    drop(client.lock("compare/warm-up").acquire().await?);
    gate()?;
    let (cpu_before, begun) = (cpu(), now());
    let until = begun + job.millis * 1_000_000;
    let tasks: Vec<_> = (0..job.workers).map(|_| tokio::spawn(turns(client.clone(), job.clone(), until))).collect();
    let mut times = Vec::new();
    for task in tasks {
        times.extend(task.await??);
    }
    let (wall, used) = (now() - begun, cpu() - cpu_before);
    let count = times.len() as f64;
    Ok(json!({
        "n": count,
        "per_s": count / (wall as f64 / 1e9),
        "p50_us": percentile(&mut times, 0.5) / 1e3,
        "p99_us": percentile(&mut times, 0.99) / 1e3,
        "client_us": used as f64 / 1e3 / count,
        "cpu_s": used as f64 / 1e9,
    }))
}

/// The nanoseconds of each turn.
async fn turns(client: Client, job: Job, until: u64) -> Outcome<Vec<f64>> {
    let mut times = Vec::new();
    let mut begun = now();
    while begun < until {
        let name = format!("{}/{}", job.name, fastrand::usize(..job.count));
        client.lock(name).acquire().await?.release().await?;
        let ended = now();
        times.push((ended - begun) as f64);
        begun = ended;
    }
    Ok(times)
}
