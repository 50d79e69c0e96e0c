//! A lock that everybody wants, and those who give up.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use criterion::Criterion;
use tenure_core::{Client, Result};

use crate::driver::Driver;

/// How many wait; the second is cut down to what the harness allows.
const WAITERS: [u32; 2] = [16, 128];

pub(crate) fn bench(criterion: &mut Criterion, driver: &Driver) {
    let mut group = driver.group(criterion);
    let most = driver.backend.locks().capabilities().max_waiters.unwrap_or(u32::MAX);
    for waiters in WAITERS.map(|waiters| waiters.min(most)) {
        group.bench_function(format!("hand-over-{waiters}"), |bencher| {
            bencher.iter_custom(|count| driver.block_on(hand_overs(&driver.client, waiters, count)).expect("a turn"));
        });
    }
    group.bench_function("cancel", |bencher| {
        bencher.iter_custom(|count| driver.block_on(cancellations(&driver.client, count)).expect("a cancellation"));
    });
    group.finish();
}

/// Everybody takes turns until there were `count` of them, and a last one each.
async fn hand_overs(client: &Client, waiters: u32, count: u64) -> Result<Duration> {
    let turns = Arc::new(AtomicU64::new(0));
    let begun = Instant::now();
    let tasks = (0..waiters).map(|_| {
        let (lock, turns) = (client.lock("bench/hot"), Arc::clone(&turns));
        tokio::spawn(async move {
            loop {
                lock.acquire().await?.release().await?;
                if turns.fetch_add(1, Ordering::Relaxed) + 1 >= count {
                    return Ok::<_, tenure_core::Error>(());
                }
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.expect("a task")?;
    }
    Ok(crate::pair::scaled(begun.elapsed(), count, turns.load(Ordering::Relaxed)))
}

/// A wait that is dropped after it was sent, until the backend has acknowledged its end.
async fn cancellations(client: &Client, count: u64) -> Result<Duration> {
    let holder = client.lock("bench/cancel").acquire().await?;
    let lock = client.lock("bench/cancel");
    let begun = Instant::now();
    for _ in 0..count {
        let waiting = lock.acquire();
        tokio::select! {
            biased;
            taken = waiting => drop(taken?),
            () = tokio::task::yield_now() => {}
        }
        while client.stats().cleanups > 0 {
            tokio::task::yield_now().await;
        }
    }
    let time = begun.elapsed();
    holder.release().await?;
    Ok(time)
}
