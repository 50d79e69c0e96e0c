//! A job of every night, on one of N instances.

use std::time::SystemTime;

use tenure::queue::{Job, Missed, Worker};
use tenure::{Client, Result};

/// What every instance calls when it starts. `write` does the work of the occurrence that it is told; it may be called
/// again for the same one, so what it writes has the occurrence as its key: `INSERT … ON CONFLICT DO NOTHING`.
pub async fn nightly<F>(client: &Client, write: impl Fn(SystemTime) -> F + Send + Sync + 'static) -> Result<Worker>
where
    F: Future<Output = ()> + Send + 'static,
{
    let queue = client.queue::<String>("invoices")?;
    queue
        .recurring("nightly")
        .cron("0 3 * * *", "Europe/Berlin")
        .missed(Missed::RunOnce) // nobody was there at three: the first who comes does it
        .max_attempts(5)
        .ensure(&String::from("of yesterday"))
        .await?;
    queue.worker().start(move |job: Job<String>| write(job.occurrence.expect("the message recurs")))
}
