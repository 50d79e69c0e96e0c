//! What is measured of delay queues.

mod apalis;
mod beanstalk;
mod late;
mod ours;
mod peers;
mod throughput;

use std::future::Future;
use std::time::Duration;

use serde_json::Value;

use crate::Outcome;
use crate::job::Job;

/// What every message carries, in bytes.
pub(crate) const PAYLOAD: usize = 100;

/// A library, connected to one queue. Clones are the same.
trait Subject: Sized + Clone + Send + Sync + 'static {
    fn open(job: &Job) -> impl Future<Output = Outcome<Self>> + Send;

    /// Stores messages in one request, if the library can.
    fn push(&self, payloads: Vec<Vec<u8>>, delay: Duration) -> impl Future<Output = Outcome> + Send;

    /// Takes up to so many messages that are due and settles them. How many it were.
    fn drain(&self, most: usize) -> impl Future<Output = Outcome<usize>> + Send;

    /// Waits for one message, and settles it after the clock was read.
    fn receive(&self) -> impl Future<Output = Outcome<(u64, Vec<u8>)>> + Send;
}

macro_rules! with_subject {
    ($job:expr, $($call:ident)::+) => {
        match $job.subject.as_str() {
            "tenure-redis" | "tenure-fred" | "tenure-memory" | "tenure-etcd" => $($call)::+::<ours::Ours>($job).await,
            "beanstalkd" => $($call)::+::<beanstalk::Beanstalk>($job).await,
            "rsmq" => $($call)::+::<peers::Rsmq>($job).await,
            "poll-500ms" => $($call)::+::<peers::Poll>($job).await,
            other => Err(format!("there is no queue {other:?}").into()),
        }
    };
}

pub(super) async fn run(what: &str, job: &Job) -> Outcome<Value> {
    match (what, job.subject.as_str()) {
        ("throughput", "apalis") => apalis::throughput(job).await,
        ("throughput", _) => with_subject!(job, throughput::measure),
        ("preload", _) => with_subject!(job, throughput::preload),
        ("burst", _) => with_subject!(job, throughput::burst),
        ("late", _) => with_subject!(job, late::crowded),
        ("late-idle", _) => with_subject!(job, late::idle),
        ("idle", _) => with_subject!(job, late::nothing),
        _ => Err(format!("there is no job {what:?}").into()),
    }
}
