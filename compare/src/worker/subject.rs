//! Whose locks are measured.

use std::future::Future;

use serde_json::Value;

use super::{bare, contend, memory, ours, pair, peers, raw};
use crate::Outcome;
use crate::job::Job;

/// A library, connected.
pub(super) trait Subject: Sized + Send + Sync + 'static {
    type Lane: Lane;

    fn open(job: &Job) -> impl Future<Output = Outcome<Self>> + Send;

    /// What one task uses to take the lock of this name again and again.
    fn lane(&self, name: &str) -> impl Future<Output = Outcome<Self::Lane>> + Send;
}

pub(super) trait Lane: Send + 'static {
    type Held: Send;

    /// Waits for the lock. The number is its fencing token, 0 if there is none.
    fn take(&mut self) -> impl Future<Output = Outcome<(Self::Held, u64)>> + Send;

    fn give(&mut self, held: Self::Held) -> impl Future<Output = Outcome> + Send;
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
            "tenure-fred" => $($call)::+::<ours::Fred>($job).await,
            "tenure-redlock" => $($call)::+::<ours::Redlock>($job).await,
            "tenure-memory" => $($call)::+::<ours::Memory>($job).await,
            "memory-driver" => $($call)::+::<memory::Driver>($job).await,
            "dashmap" => $($call)::+::<memory::Dashed>($job).await,
            #[cfg(feature = "etcd")]
            "tenure-etcd" => $($call)::+::<super::etcd::Ours>($job).await,
            #[cfg(feature = "etcd")]
            "etcd-put-del" => $($call)::+::<super::etcd::PutDel>($job).await,
            #[cfg(feature = "etcd")]
            "etcd-lock-api" => $($call)::+::<super::etcd::LockApi>($job).await,
            other => Err(format!("there is no subject {other:?}").into()),
        }
    };
}

pub(super) async fn pair(job: &Job) -> Outcome<Value> {
    with_subject!(job, pair::measure)
}

pub(super) async fn contend(job: &Job) -> Outcome<Value> {
    with_subject!(job, contend::measure)
}
