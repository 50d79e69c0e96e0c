//! Workers that hold a lock for each message: transfers of one account never overlap, whichever worker makes them.
//! How the ledger checks the fence is a recipe of docs/cookbook.md: a worker that holds a lock.
//!
//! ```sh
//! cargo run --example worker_with_lock
//! cargo run --example worker_with_lock --features redis -- redis://127.0.0.1/
//! ```

#![allow(clippy::print_stdout, reason = "this is a program that tells a story")]

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenure::Result;
use tenure::queue::{Job, Queue, RetryPolicy};
use tokio::time::{Instant, sleep};

#[derive(Serialize, Deserialize)]
struct Transfer {
    account: String,
    amount: i64,
}

#[tokio::main]
async fn main() -> Result<()> {
    let url =
        std::env::args().nth(1).unwrap_or_else(|| String::from("memory:"));
    let client = tenure::connect(&url).await?;
    let queue: Queue<Transfer> = client.queue("example/transfers")?;
    let start = Instant::now();

    for (account, amount) in
        [("anna", 10), ("anna", 20), ("bert", 5), ("anna", 30), ("bert", -7)]
    {
        let transfer = Transfer { account: account.to_owned(), amount };
        queue
            .push(&transfer)
            .lock(format!("account/{account}"))
            .max_attempts(3)
            .await?;
    }

    let worker = queue
        .worker()
        .concurrency(4)
        .retry(RetryPolicy::exponential(
            Duration::from_millis(100),
            Duration::from_secs(1),
        ))
        .lock_back_off(Duration::from_millis(500))
        .start(move |job: Job<Transfer>| async move {
            let Transfer { account, amount } = &job.value;
            let fence = job
                .lock_fence
                .map_or_else(|| "none".to_owned(), |fence| fence.to_string());
            println!(
                "{:>5} ms  {account}: {amount:+} begins under fence {fence}",
                start.elapsed().as_millis()
            );
            sleep(Duration::from_millis(300)).await;
            if *amount < 0 {
                return Err(format!("{account} has no credit"));
            }
            println!(
                "{:>5} ms  {account}: {amount:+} done",
                start.elapsed().as_millis()
            );
            Ok(())
        })?;

    loop {
        let stats = queue.admin().stats().await?;
        if stats.scheduled + stats.ready + stats.in_flight == 0 {
            break;
        }
        sleep(Duration::from_millis(50)).await;
    }
    println!("the worker: {:?}", worker.shutdown(Duration::from_secs(1)).await);
    let dead = queue.admin().dead_letters();
    for letter in dead.list(None, 10).await?.letters {
        let Transfer { account, amount } = dead.value(&letter)?;
        println!(
            "dead after {} attempts: {account} {amount:+}, {:?}",
            letter.attempt, letter.reason
        );
    }
    dead.purge_all().await?;
    client.close(Duration::from_secs(5)).await
}
