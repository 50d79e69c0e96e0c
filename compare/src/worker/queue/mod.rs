//! The measured work on delay queues.

mod apalis;
mod late;
mod ours;
mod peers;
#[cfg(feature = "sql")]
mod rows;
mod throughput;

use serde_json::Value;

use crate::job::{Job, Outcome};

macro_rules! with_subject {
    ($job:expr, $($call:ident)::+) => {
        match $job.subject.as_str() {
            #[cfg(feature = "sql")]
            "river-like" | "pgmq-like" => $($call)::+::<rows::Rows>($job).await,
            "beanstalkd" => $($call)::+::<peers::Beanstalk>($job).await,
            "rsmq" => $($call)::+::<peers::Rsmq>($job).await,
            "poll-500ms" => $($call)::+::<peers::Poll>($job).await,
            _ => $($call)::+::<ours::Ours>($job).await,
        }
    };
}

pub(super) async fn run(what: &str, job: &Job) -> Outcome<Value> {
    match (what, job.subject.as_str()) {
        ("throughput", "apalis") => apalis::throughput(job).await,
        #[cfg(feature = "sql")]
        ("throughput", "apalis-postgres") => apalis::of_postgres(job).await,
        #[cfg(feature = "sql")]
        ("throughput", "apalis-sqlite") => apalis::of_sqlite(job).await,
        ("throughput", _) => with_subject!(job, throughput::measure),
        ("preload", _) => with_subject!(job, throughput::preload),
        ("burst", _) => with_subject!(job, throughput::burst),
        ("late", _) => with_subject!(job, late::crowded),
        ("late-idle", _) => with_subject!(job, late::idle),
        ("idle", _) => with_subject!(job, late::nothing),
        _ => Err(format!("there is no job {what:?}").into()),
    }
}
