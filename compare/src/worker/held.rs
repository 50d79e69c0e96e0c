//! Locks that are held: what the renewal of very many costs, and how soon the next waiter gets one after others died.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tenure_core::{Client, LockGuard};

use super::ours;
use crate::job::{Job, Outcome, gate, say};
use crate::measure::{cpu, live_bytes, now};

/// How many are being acquired at once.
const AT_ONCE: usize = 64;

/// Holds `count` locks of 30 s, which are renewed every 10 s, among as many clients as there are `workers`; after the word is
/// given, looks on for `millis`.
pub(super) async fn renew(job: &Job) -> Outcome<Value> {
    let (mut clients, nothing) = (Vec::new(), live_bytes());
    for _ in 0..job.workers.max(1) {
        let client = ours::client(job).await?;
        drop(client.lock("compare-warm-up").acquire().await?);
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
        "n": job.count,
        "client_core": used as f64 / wall as f64,
        "client_bytes": bytes,
        "client_overhead": client_overhead,
    }))
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

/// How long a condition is polled for.
const PATIENCE: Duration = Duration::from_secs(20);

/// The holder is here, `workers` waiters in another process, and behind them one more here. The other process is
/// killed, the holder releases `millis` later, and the clock runs until the last waiter has the lock.
pub(super) async fn dead(job: &Job) -> Outcome<Value> {
    let (client, behind) = (ours::client(job).await?, ours::client(job).await?);
    let holder = client.lock(&job.name).acquire().await?;
    let mut doomed = Doomed::start(job)?;
    queued(&client, job, job.workers).await?;
    let lock = behind.lock(&job.name);
    let waiter = tokio::spawn(async move { lock.acquire().await.map(|guard| (guard, now())) });
    queued(&client, job, job.workers + 1).await?;
    gate()?;
    doomed.kill()?;
    tokio::time::sleep(Duration::from_millis(job.millis)).await;
    let released = now();
    holder.release().await?;
    let (guard, granted) = waiter.await??;
    guard.release().await?;
    Ok(json!({ "ms": (granted.saturating_sub(released)) as f64 / 1e6 }))
}

async fn queued(client: &Client, job: &Job, waiters: usize) -> Outcome {
    let (lock, until) = (client.lock(&job.name), tokio::time::Instant::now() + PATIENCE);
    loop {
        let seen = lock.inspect().await?.waiters as usize;
        if seen == waiters {
            return Ok(());
        }
        if tokio::time::Instant::now() > until {
            return Err(format!("{seen} waiters are queued, not {waiters}").into());
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// What the doomed process does: `workers` tasks wait, for ever.
pub(super) async fn wait(job: &Job) -> Outcome<Value> {
    let client = ours::client(job).await?;
    for _ in 0..job.workers {
        let lock = client.lock(&job.name);
        tokio::spawn(async move { lock.acquire().await });
    }
    say(&json!({ "ready": true }))?;
    std::future::pending().await
}

struct Doomed(Child);

impl Doomed {
    fn start(job: &Job) -> Outcome<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        let mut child = command.arg("worker").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        // Tasks of one client would share a place; here each is to have its own in the server's queue.
        let order = Job { what: "wait".into(), subject: format!("{}-each-asks", job.subject), ..job.clone() };
        writeln!(child.stdin.as_mut().ok_or("no stdin")?, "{}", serde_json::to_string(&order)?)?;
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().ok_or("no stdout")?).read_line(&mut line)?;
        if line.contains("ready") { Ok(Self(child)) } else { Err(format!("a waiter said {line:?}").into()) }
    }

    fn kill(&mut self) -> Outcome {
        self.0.kill()?;
        self.0.wait()?;
        Ok(())
    }
}

impl Drop for Doomed {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}
