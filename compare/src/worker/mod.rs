//! A child process that measures: reads jobs from stdin, answers on stdout, one line of JSON each.
//!
//! A job has two halves: it connects and warms up, prints `{"ready":true}`, waits for the line `go`, and runs the measured
//! work. So several processes begin together, and the servers' counters can be read in between.

mod bare;
#[cfg(feature = "etcd")]
mod etcd;
mod held;
mod local;
mod locks;
mod ours;
mod queue;
mod redis;
#[cfg(feature = "sql")]
mod sql;

use serde_json::{Value, json};

use crate::job::{Job, Outcome, read_line, say};

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

/// Calls a function with the lanes of the job's subject.
macro_rules! with_lane {
    ($job:expr, $($call:ident)::+) => {
        match $job.subject.as_str() {
            "bare" => $($call)::+::<bare::Bare>($job).await,
            "redis" => $($call)::+::<redis::RedisRs>($job).await,
            "fred" => $($call)::+::<redis::Fred>($job).await,
            "rslock" | "rslock-tuned" => $($call)::+::<redis::RsLock>($job).await,
            "distributed-lock" => $($call)::+::<redis::Distributed>($job).await,
            "memory-driver" => $($call)::+::<local::Driver>($job).await,
            "dashmap" => $($call)::+::<local::Dashed>($job).await,
            #[cfg(feature = "etcd")]
            "etcd-put-del" => $($call)::+::<etcd::PutDel>($job).await,
            #[cfg(feature = "etcd")]
            "etcd-lock-api" => $($call)::+::<etcd::LockApi>($job).await,
            #[cfg(feature = "sql")]
            "bare-row" | "bare-row-logged" => $($call)::+::<sql::PostgresRow>($job).await,
            #[cfg(feature = "sql")]
            "pg_advisory_lock" => $($call)::+::<sql::PostgresSession>($job).await,
            #[cfg(feature = "sql")]
            "bare-row-of-mysql" => $($call)::+::<sql::MysqlRow>($job).await,
            #[cfg(feature = "sql")]
            "get_lock" => $($call)::+::<sql::MysqlSession>($job).await,
            #[cfg(feature = "sql")]
            "bare-row-of-sqlite" => $($call)::+::<sql::SqliteRow>($job).await,
            #[cfg(feature = "sql")]
            "flock" => $($call)::+::<sql::FileLock>($job).await,
            "tenure-redis-any" => $($call)::+::<ours::AnyName>($job).await,
            subject if subject.starts_with("tenure-") => $($call)::+::<ours::Ours>($job).await,
            other => Err(format!("there is no subject {other:?}").into()),
        }
    };
}

async fn run(job: &Job) -> Outcome<Value> {
    match job.what.as_str() {
        "pair" => pair(job).await,
        "contend" => contend(job).await,
        "ping" => bare::ping(job).await,
        "publish" => bare::publish(job).await,
        #[cfg(feature = "sql")]
        "notify" => sql::notify(job).await,
        "dead" => held::dead(job).await,
        "wait" => held::wait(job).await,
        "renew" => held::renew(job).await,
        what => queue::run(what, job).await,
    }
}

async fn pair(job: &Job) -> Outcome<Value> {
    with_lane!(job, locks::pair)
}

async fn contend(job: &Job) -> Outcome<Value> {
    with_lane!(job, locks::contend)
}
