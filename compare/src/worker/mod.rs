//! A child process that measures: reads jobs from stdin, answers on stdout, one line of JSON each.
//!
//! A job has two halves: it connects and warms up, says `{"ready":true}`, waits for the line `go`, and does what is
//! measured. So several processes begin together, and the servers' counters can be read in between.

mod bare;
mod contend;
mod dead;
#[cfg(feature = "etcd")]
mod etcd;
mod floors;
mod memory;
mod ours;
mod pair;
mod peers;
mod queue;
mod raw;
mod renew;
mod subject;

pub(crate) use queue::PAYLOAD;

use std::io::{BufRead, Write};

use serde_json::{Value, json};

use crate::job::Job;
use crate::{Failure, Outcome};

/// Serves until stdin ends.
pub(crate) fn serve() -> Outcome {
    while let Some(line) = read_line()? {
        let job: Job = serde_json::from_str(&line)?;
        let mut builder = match job.threads {
            0 => tokio::runtime::Builder::new_current_thread(),
            _ => tokio::runtime::Builder::new_multi_thread(),
        };
        let runtime = builder.worker_threads(job.threads.max(1)).enable_all().build()?;
        let answer = runtime.block_on(run(&job)).unwrap_or_else(|error| json!({ "error": error.to_string() }));
        runtime.shutdown_background();
        say(&answer)?;
    }
    Ok(())
}

async fn run(job: &Job) -> Outcome<Value> {
    match job.what.as_str() {
        "pair" => subject::pair(job).await,
        "contend" => subject::contend(job).await,
        "ping" => floors::ping(job).await,
        "publish" => floors::publish(job).await,
        "dead" => dead::measure(job).await,
        "wait" => dead::wait(job).await,
        "renew" => renew::measure(job).await,
        what => queue::run(what, job).await,
    }
}

/// Says that the job is prepared, and waits for the word.
fn gate() -> Outcome {
    say(&json!({ "ready": true }))?;
    match read_line()?.as_deref() {
        Some("go") => Ok(()),
        other => Err(Failure::from(format!("expected go, got {other:?}"))),
    }
}

fn read_line() -> Outcome<Option<String>> {
    let mut line = String::new();
    let length = std::io::stdin().lock().read_line(&mut line)?;
    Ok((length > 0).then(|| line.trim().to_owned()))
}

fn say(value: &Value) -> Outcome {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{value}")?;
    Ok(out.flush()?)
}
