//! `apalis` on Redis and in databases: messages are taken by a worker that the library runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use apalis_core::backend::TaskSink;
use apalis_core::error::BoxDynError;
use apalis_core::task::data::Data;
use apalis_core::worker::builder::WorkerBuilder;
use apalis_core::worker::context::WorkerContext;
use apalis_core::worker::ext::parallelize::ParallelizeExt;
use apalis_redis::{Config, RedisStorage};
use serde_json::Value;

use super::throughput;
use crate::job::{Job, Outcome, PAYLOAD, gate};
use crate::measure::{cpu, now};

const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Clone)]
struct Progress {
    done: Arc<AtomicUsize>,
    all: usize,
}

async fn handle(_payload: String, progress: Data<Progress>, worker: WorkerContext) -> Result<(), BoxDynError> {
    if progress.done.fetch_add(1, Ordering::Relaxed) + 1 == progress.all {
        worker.stop()?;
    }
    Ok(())
}

/// Stores `count` messages, `batch` in a request, then runs a worker until it has handled them.
macro_rules! through {
    ($job:expr, $storage:expr) => {{
        let (job, mut storage) = ($job, $storage);
        let progress = Progress { done: Arc::default(), all: job.count };
        let payload = "x".repeat(PAYLOAD);
        gate()?;
        let (cpu_before, begun) = (cpu(), now());
        for _ in 0..job.count / job.batch {
            match job.batch {
                1 => storage.push(payload.clone()).await.map_err(|error| format!("apalis: {error:?}"))?,
                batch => {
                    let messages = vec![payload.clone(); batch];
                    storage.push_bulk(messages).await.map_err(|error| format!("apalis: {error:?}"))?;
                }
            }
        }
        let pushed = now();
        let worker = WorkerBuilder::new("worker").backend(storage).data(progress.clone()).parallelize(tokio::spawn);
        let ended = tokio::time::timeout(PATIENCE, worker.build(handle).run()).await;
        let (drained, used, done) = (now(), cpu() - cpu_before, progress.done.load(Ordering::Relaxed));
        match ended {
            Ok(_) if done == job.count => Ok(throughput::outcome(job, pushed - begun, drained - pushed, used)),
            _ => Err(format!("{done} of {} messages in {PATIENCE:?}", job.count).into()),
        }
    }};
}

pub(super) async fn throughput(job: &Job) -> Outcome<Value> {
    let connection = apalis_redis::connect(format!("redis://127.0.0.1:{}/", job.ports[0])).await?;
    let config = Config::default().queue(&job.name).batch_size(job.batch);
    let storage: RedisStorage<String> = RedisStorage::new(connection).with_config(config);
    through!(job, storage)
}

#[cfg(feature = "sql")]
pub(super) async fn of_postgres(job: &Job) -> Outcome<Value> {
    use apalis_postgres::{Config, PostgresStorage};

    let pool = sqlx::PgPool::connect(&super::super::sql::postgres(job)).await?;
    PostgresStorage::setup(&pool).await?;
    let config = Config::default().queue(&job.name).batch_size(job.batch.max(10));
    let storage: PostgresStorage<String> = PostgresStorage::new(&pool).with_config(config);
    through!(job, storage)
}

#[cfg(feature = "sql")]
pub(super) async fn of_sqlite(job: &Job) -> Outcome<Value> {
    use apalis_sqlite::{Config, SqliteStorage};
    use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};

    let file = SqliteConnectOptions::new().filename(format!("{}/apalis.db", job.path)).create_if_missing(true);
    let file = file.journal_mode(SqliteJournalMode::Wal).synchronous(SqliteSynchronous::Normal);
    let pool = sqlx::SqlitePool::connect_with(file).await?;
    SqliteStorage::setup(&pool).await?;
    let config = Config::default().queue(&job.name).batch_size(job.batch.max(10));
    let storage: SqliteStorage<String> = SqliteStorage::new(&pool).with_config(config);
    through!(job, storage)
}
