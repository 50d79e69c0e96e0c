//! Locks that are held: their renewal.

use std::time::{Duration, Instant};

use criterion::Criterion;
use tenure_core::driver::{AcquireRequest, Acquisition, Hold, Queueing, Renewed, Ttl};
use tenure_core::{Error, ErrorKind, LockName, OwnerToken, Result};

use crate::driver::Driver;

const HOLDS: usize = 10_000;

/// One renewal of all of them, in the batches that the driver declares: what the engine asks for once in a third of a
/// ttl.
pub(crate) fn bench(criterion: &mut Criterion, driver: &Driver) {
    let ttl = Ttl::new(Duration::from_secs(3600)).expect("an hour is a ttl");
    let mut held = None;
    let mut group = driver.group(criterion);
    group.sample_size(10);
    group.bench_function("renewal-of-10k", |bencher| {
        bencher.iter_custom(|count| {
            let work = async {
                let holds = match &mut held {
                    Some(holds) => holds,
                    none => none.insert(hold(driver, ttl).await?),
                };
                renew(driver, ttl, holds, count).await
            };
            driver.block_on(work).expect("renewals")
        });
    });
    group.finish();
}

/// Takes the locks, for an hour.
async fn hold(driver: &Driver, ttl: Ttl) -> Result<Vec<Hold>> {
    let mut holds = Vec::with_capacity(HOLDS);
    for index in 0..HOLDS {
        let (name, token) = (LockName::new(format!("bench/held/{index}"))?, OwnerToken::random());
        let queue = Queueing::None;
        let request = AcquireRequest::new(name.clone(), token, ttl).with_queue(queue);
        match driver.backend.locks().acquire(&request).await? {
            Acquisition::Granted(_) => holds.push(Hold::new(name, token)),
            Acquisition::Busy(_) => return Err(Error::new(ErrorKind::NotHeld, "a fresh name is busy")),
        }
    }
    Ok(holds)
}

async fn renew(driver: &Driver, ttl: Ttl, holds: &[Hold], count: u64) -> Result<Duration> {
    let locks = driver.backend.locks();
    let begun = Instant::now();
    for _ in 0..count {
        for batch in holds.chunks(locks.capabilities().renew_batch) {
            for renewed in locks.renew(ttl, batch).await {
                if renewed? == Renewed::Lost {
                    return Err(Error::new(ErrorKind::NotHeld, "a lease was lost while it was renewed"));
                }
            }
        }
    }
    Ok(begun.elapsed())
}
