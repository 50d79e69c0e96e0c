//! Messages that are due later, and a worker that handles them.

use std::time::Duration;

use tenure::queue::{Job, Queue, RetryPolicy, Worker};
use tenure::{Client, Result};

/// Stores a reminder. Its id makes that idempotent: a request that is repeated
/// stores one message.
pub async fn remind(
    queue: &Queue<String>,
    bill: u64,
    text: &str,
) -> Result<()> {
    queue
        .push(&text.to_owned())
        .id(format!("bill/{bill}"))
        .delay(Duration::from_secs(3600))
        .await?;
    Ok(())
}

/// Every instance calls this. `send` fails when the text could not be sent, and
/// is called again later, five times at most.
pub fn serve<F>(
    client: &Client,
    send: impl Fn(String) -> F + Send + Sync + 'static,
) -> Result<Worker>
where
    F: Future<Output = std::result::Result<(), String>> + Send + 'static,
{
    let reminders: Queue<String> = client.queue("reminders")?.max_attempts(5);
    let (second, minute) = (Duration::from_secs(1), Duration::from_secs(60));
    reminders
        .worker()
        .concurrency(8)
        .retry(RetryPolicy::exponential(second, minute))
        .start(move |job: Job<String>| send(job.value))
}
