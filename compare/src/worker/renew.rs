//! Holding very many locks at once: what their renewal costs, and their memory.

use std::time::Duration;

use serde_json::{Value, json};
use tenure_core::driver::Backend;
use tenure_core::{Client, LockGuard};

use super::gate::gate;
use super::ours;
use crate::failure::Outcome;
use crate::job::Job;
use crate::measure::{cpu, live_bytes, now};

/// How many are being acquired at once.
const AT_ONCE: usize = 64;

/// Holds `count` locks of 30 s, which are renewed every 10 s, among as many clients as there are `workers`; after the word is
/// given, looks on for `millis`.
pub(super) async fn measure(job: &Job) -> Outcome<Value> {
    let (mut clients, nothing) = (Vec::new(), live_bytes());
    for _ in 0..job.workers.max(1) {
        let client = Client::new(backend(job).await?);
        drop(client.lock("compare/warm-up").acquire().await?);
        clients.push(client);
    }
    let empty = live_bytes();
    let client_overhead = (empty - nothing) / clients.len() as f64;
    let guards = hold(&clients, job).await?;
    let bytes = (live_bytes() - empty) / job.count as f64;
    gate()?;
    let (used, begun) = (cpu(), now());
    tokio::time::sleep(Duration::from_millis(job.millis)).await;
    let (used, wall) = (cpu() - used, now() - begun);
    let lost = guards.iter().filter(|guard| !guard.is_held()).count();
    if lost > 0 {
        return Err(format!("{lost} of {} locks were lost", job.count).into());
    }
    std::mem::forget(guards); // this process ends next, and the server with it
    Ok(json!({
        "client_core": used as f64 / wall as f64,
        "client_bytes": bytes,
        "client_overhead": client_overhead,
        "wall_s": wall as f64 / 1e9,
    }))
}

async fn backend(job: &Job) -> Outcome<Backend> {
    match job.subject.as_str() {
        #[cfg(feature = "etcd")]
        "tenure-etcd" => super::etcd::ours(job).await,
        _ => ours::redis(job).await,
    }
}

async fn hold(clients: &[Client], job: &Job) -> Outcome<Vec<LockGuard>> {
    let mut tasks = Vec::new();
    for worker in 0..AT_ONCE {
        let (clients, name, count) = (clients.to_vec(), job.name.clone(), job.count);
        tasks.push(tokio::spawn(async move {
            let mut guards = Vec::new();
            for index in (worker..count).step_by(AT_ONCE) {
                let client = &clients[index % clients.len()];
                guards.push(client.lock(format!("{name}/{index}")).acquire().await?);
            }
            Ok::<_, tenure_core::Error>(guards)
        }));
    }
    let mut guards = Vec::with_capacity(job.count);
    for task in tasks {
        guards.append(&mut task.await??);
    }
    Ok(guards)
}
