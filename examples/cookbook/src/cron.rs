//! A job of every night, on one of N instances.

use std::time::SystemTime;

use tenure::queue::{Job, Missed, Worker};
use tenure::{Client, Result};

/// Every instance calls this when it starts. `write` does the work of one
/// occurrence. It may be called again for the same one, so use the occurrence
/// as the key of the rows: `INSERT … ON CONFLICT DO NOTHING`.
pub async fn nightly<F>(
    client: &Client,
    write: impl Fn(SystemTime) -> F + Send + Sync + 'static,
) -> Result<Worker>
where
    F: Future<Output = ()> + Send + 'static,
{
    let queue = client.queue::<String>("invoices")?;
    queue
        .recurring("nightly")
        .cron("0 3 * * *", "Europe/Berlin")
        // If no instance ran at three, the first one that starts does it.
        .missed(Missed::RunOnce)
        .max_attempts(5)
        .ensure(&String::from("of yesterday"))
        .await?;
    queue.worker().start(move |job: Job<String>| {
        write(job.occurrence.expect("the message recurs"))
    })
}
