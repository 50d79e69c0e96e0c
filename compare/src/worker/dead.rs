//! A process with many waiters is killed: how long until the next live waiter has the lock, from the release.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tenure_core::Client;

use super::gate::{gate, say};
use super::ours;
use crate::failure::{Failure, Outcome};
use crate::job::Job;
use crate::measure::now;

/// How long a condition is polled for.
const PATIENCE: Duration = Duration::from_secs(20);

/// The holder is here, `workers` waiters in another process, and behind them one more here. The other process is
/// killed, the holder releases `millis` later, and the clock runs until the last waiter has the lock.
pub(super) async fn measure(job: &Job) -> Outcome<Value> {
    let client = Client::new(ours::redis(job).await?);
    let behind = Client::new(ours::redis(job).await?);
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
    // Tasks of one client would share a place; here each is to have one of its own in the server's queue.
    let client = Client::builder(ours::redis(job).await?).holders_per_grant(0).build()?;
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
        let program = std::env::current_exe()?;
        let mut command = Command::new(program);
        let mut child = command.arg("worker").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let order = Job { what: "wait".into(), ..job.clone() };
        let stdin = child.stdin.as_mut().ok_or("no stdin")?;
        writeln!(stdin, "{}", serde_json::to_string(&order)?)?;
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().ok_or("no stdout")?).read_line(&mut line)?;
        if line.contains("ready") { Ok(Self(child)) } else { Err(Failure::from(format!("a waiter said {line:?}"))) }
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
