//! A nightly job on exactly one of N instances: each makes sure at its start that the job is scheduled, and has a worker.
//! No instance is special, and none has to be there at night. Here a night lasts two seconds.
//!
//! ```sh
//! cargo run --example nightly_job --features cron
//! cargo run --example nightly_job --features cron,redis -- redis://127.0.0.1/
//! ```

#![allow(clippy::print_stdout, reason = "this is a program that tells a story")]

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenure::memory::MemoryDriver;
use tenure::queue::{Job, Missed, Worker};
use tenure::{Client, Result};
use tokio::time::sleep;

#[derive(Serialize, Deserialize)]
struct Invoices {
    of: String,
}

/// What each instance does when it starts.
async fn instance(
    client: &Client,
    number: usize,
    schedule: &str,
) -> Result<Worker> {
    let queue = client.queue::<Invoices>("example/nightly")?;
    let ensured = queue
        .recurring("invoices")
        .cron(schedule, "Europe/Berlin") // in an application: "0 3 * * *"
        .missed(Missed::RunOnce) // if nobody was there at three, the first one that starts does it
        .max_attempts(3)
        .ensure(&Invoices { of: String::from("yesterday") })
        .await?;
    println!("instance {number} starts: the schedule is {ensured:?}");
    queue.worker().start(move |job: Job<Invoices>| async move {
        let since = job.occurrence.and_then(|time| time.elapsed().ok()).unwrap_or_default();
        println!("instance {number} writes the invoices of {}, {since:?} after their time", job.value.of);
    })
}

#[tokio::main]
async fn main() -> Result<()> {
    let (url, memory) = (std::env::args().nth(1), MemoryDriver::new());
    let mut instances = Vec::new();
    for number in 1..=3 {
        let client = match &url {
            Some(url) => tenure::connect(url).await?,
            None => Client::new(memory.clone()),
        };
        let worker = instance(&client, number, "*/2 * * * * *").await?;
        instances.push((client, worker));
    }
    sleep(Duration::from_secs(7)).await;
    for (number, (client, worker)) in instances.into_iter().enumerate() {
        let stats = worker.shutdown(Duration::from_secs(1)).await;
        println!(
            "instance {} stops: it was its turn {} times",
            number + 1,
            stats.handled
        );
        if number == 2 {
            let queue = client.queue::<Invoices>("example/nightly")?;
            queue.cancel(&tenure::queue::MessageId::named("invoices")?).await?; // the end of the schedule
        }
        client.close(Duration::from_secs(5)).await?;
    }
    Ok(())
}
