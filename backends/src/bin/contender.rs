//! A process that contends: `contender <url> <name>`. Each line "join" on its input makes one more waiter, which prints
//! `granted <number> <fence>` when its turn comes, holds the lock for a moment and releases it. Ends with its input.

use std::io::BufRead as _;
use std::process::ExitCode;
use std::time::Duration;

use tenure_core::Client;
use tenure_redis::RedisDriver;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [url, name] = args.as_slice() else {
        eprintln!("usage: contender <url> <name>");
        return ExitCode::FAILURE;
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let outcome = runtime
        .map_err(|error| error.to_string())
        .and_then(|runtime| runtime.block_on(contend(url, name)).map_err(|error| error.to_string()));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("error: {why}");
            ExitCode::FAILURE
        }
    }
}

async fn contend(url: &str, name: &str) -> tenure_core::Result<()> {
    // Every waiter waits in the server's queue: its order, and its cost, are measured.
    let client = Client::builder(RedisDriver::connect(url).await?).holders_per_grant(0).build()?;
    let (orders, mut lines) = tokio::sync::mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            let _ = orders.send(line); // the receiver is gone when the process is about to end
        }
    });
    let mut waiters = tokio::task::JoinSet::new();
    let mut number = 0;
    while let Some(line) = lines.recv().await {
        let Some(own) = line.strip_prefix("join ").map(str::to_owned) else { break };
        let lock = client.lock(name).ttl(Duration::from_secs(30));
        number += 1;
        waiters.spawn(async move {
            let guard = lock.acquire().await?;
            println!("granted {own} {}", guard.fence());
            tokio::time::sleep(Duration::from_millis(5)).await;
            guard.release().await.map(drop)
        });
    }
    while let Some(ended) = waiters.join_next().await {
        ended.map_err(|_| tenure_core::Error::new(tenure_core::ErrorKind::Protocol, "a waiter panicked"))??;
    }
    eprintln!("{number} waiters served");
    client.close(Duration::from_secs(5)).await
}
