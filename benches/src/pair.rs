//! Locks that nobody else wants, and re-entry.

use std::time::{Duration, Instant};

use criterion::Criterion;
use tenure_core::{Client, OwnerId, Result};

use crate::driver::Driver;

/// Tasks on names of their own.
const TASKS: u32 = 64;

pub(crate) fn bench(criterion: &mut Criterion, driver: &Driver) {
    let mut group = driver.group(criterion);
    group.bench_function("pair", |bencher| {
        bencher.iter_custom(|count| driver.block_on(pairs(driver.client.clone(), 0, count)).expect("a pair"));
    });
    group.bench_function("pair-64-names", |bencher| {
        bencher.iter_custom(|count| driver.block_on(many(&driver.client, count)).expect("a pair"));
    });
    if driver.backend.reentrant().is_some() {
        group.bench_function("re-entry", |bencher| {
            bencher.iter_custom(|count| driver.block_on(entries(&driver.client, count)).expect("an entry"));
        });
    }
    group.finish();
}

async fn pairs(client: Client, task: u32, count: u64) -> Result<Duration> {
    let lock = client.lock(format!("bench/pair/{task}"));
    let begun = Instant::now();
    for _ in 0..count {
        lock.acquire().await?.release().await?;
    }
    Ok(begun.elapsed())
}

/// The time that `count` pairs take when all tasks share them.
async fn many(client: &Client, count: u64) -> Result<Duration> {
    let each = count.div_ceil(u64::from(TASKS));
    let begun = Instant::now();
    let tasks: Vec<_> = (0..TASKS).map(|task| tokio::spawn(pairs(client.clone(), task, each))).collect();
    for task in tasks {
        task.await.expect("a task")?;
    }
    Ok(scaled(begun.elapsed(), count, each * u64::from(TASKS)))
}

/// `time` for `done` things, brought to `count` of them.
pub(crate) fn scaled(time: Duration, count: u64, done: u64) -> Duration {
    time.mul_f64(count as f64 / done as f64)
}

/// One more entry of a lock that is held, and its end.
async fn entries(client: &Client, count: u64) -> Result<Duration> {
    let lock = client.reentrant("bench/entries", &OwnerId::new());
    let outer = lock.acquire().await?;
    let begun = Instant::now();
    for _ in 0..count {
        lock.acquire().await?.release().await?;
    }
    let time = begun.elapsed();
    outer.release().await?;
    Ok(time)
}
