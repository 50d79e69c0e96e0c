//! A child process that measures: reads jobs from stdin, answers on stdout, one line of JSON each.
//!
//! A job has two halves: it connects and warms up, prints `{"ready":true}`, waits for the line `go`, and runs the measured
//! work. So several processes begin together, and the servers' counters can be read in between.

mod bare;
mod contend;
mod dead;
#[cfg(feature = "etcd")]
mod etcd;
mod floors;
mod gate;
mod memory;
mod ours;
mod pair;
mod peers;
mod queue;
mod raw;
mod renew;
mod spread;
#[cfg(feature = "sql")]
mod sql;
mod subject;

pub(crate) use queue::PAYLOAD;

use serde_json::{Value, json};

use crate::failure::Outcome;
use crate::job::Job;
use gate::{read_line, say};

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

/// Calls a function with the type behind the subject's name.
macro_rules! with_subject {
    ($job:expr, $($call:ident)::+) => {
        match $job.subject.as_str() {
            "bare" => $($call)::+::<bare::Bare>($job).await,
            "redis" => $($call)::+::<raw::Redis>($job).await,
            "fred" => $($call)::+::<raw::Fred>($job).await,
            "rslock" | "rslock-tuned" => $($call)::+::<peers::RsLock>($job).await,
            "distributed-lock" => $($call)::+::<peers::DistributedLock>($job).await,
            "tenure-redis" => $($call)::+::<ours::Redis>($job).await,
            "tenure-redis-each-asks" => $($call)::+::<ours::RedisEachAsks>($job).await,
            "tenure-redis-behind" => $($call)::+::<ours::RedisBehind>($job).await,
            "tenure-redis-apart" => $($call)::+::<ours::RedisApart>($job).await,
            "tenure-fred" => $($call)::+::<ours::Fred>($job).await,
            "tenure-redlock" => $($call)::+::<ours::Redlock>($job).await,
            "tenure-memory" => $($call)::+::<ours::Memory>($job).await,
            "memory-driver" => $($call)::+::<memory::Driver>($job).await,
            "dashmap" => $($call)::+::<memory::Dashed>($job).await,
            #[cfg(feature = "etcd")]
            "tenure-etcd" => $($call)::+::<etcd::Ours>($job).await,
            #[cfg(feature = "etcd")]
            "etcd-put-del" => $($call)::+::<etcd::PutDel>($job).await,
            #[cfg(feature = "etcd")]
            "etcd-lock-api" => $($call)::+::<etcd::LockApi>($job).await,
            #[cfg(feature = "sql")]
            "tenure-postgres" => $($call)::+::<sql::Postgres>($job).await,
            #[cfg(feature = "sql")]
            "tenure-postgres-each-asks" => $($call)::+::<sql::PostgresEachAsks>($job).await,
            #[cfg(feature = "sql")]
            "bare-row" | "bare-row-logged" => $($call)::+::<sql::BareRow>($job).await,
            #[cfg(feature = "sql")]
            "pg_advisory_lock" => $($call)::+::<sql::SessionLock>($job).await,
            #[cfg(feature = "sql")]
            "sqlx-advisory" => $($call)::+::<sql::SqlxLock>($job).await,
            #[cfg(feature = "sql")]
            "tenure-mysql" => $($call)::+::<sql::Mysql>($job).await,
            #[cfg(feature = "sql")]
            "bare-row-of-mysql" => $($call)::+::<sql::BareMysqlRow>($job).await,
            #[cfg(feature = "sql")]
            "get_lock" => $($call)::+::<sql::NamedLock>($job).await,
            #[cfg(feature = "sql")]
            "tenure-sqlite" => $($call)::+::<sql::Sqlite>($job).await,
            #[cfg(feature = "sql")]
            "tenure-sqlite-each-asks" => $($call)::+::<sql::SqliteEachAsks>($job).await,
            #[cfg(feature = "sql")]
            "bare-row-of-sqlite" => $($call)::+::<sql::BareFile>($job).await,
            #[cfg(feature = "sql")]
            "flock" => $($call)::+::<sql::FileLock>($job).await,
            other => Err(format!("there is no subject {other:?}").into()),
        }
    };
}

async fn run(job: &Job) -> Outcome<Value> {
    match job.what.as_str() {
        "pair" => pair(job).await,
        "contend" => contend(job).await,
        "ping" => floors::ping(job).await,
        "publish" => floors::publish(job).await,
        #[cfg(feature = "sql")]
        "notify" => sql::notify(job).await,
        "dead" => dead::measure(job).await,
        "wait" => dead::wait(job).await,
        "renew" => renew::measure(job).await,
        "spread" => spread::measure(job).await,
        what => queue::run(what, job).await,
    }
}

async fn pair(job: &Job) -> Outcome<Value> {
    with_subject!(job, pair::measure)
}

async fn contend(job: &Job) -> Outcome<Value> {
    with_subject!(job, contend::measure)
}
