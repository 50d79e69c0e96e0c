//! What is refused before anything is sent.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::driver::Backend;
use tenure_core::{Client, DriftBound, Error, ErrorKind, FencingToken, LockName, OwnerId, OwnerToken};
use tenure_memory::{MemoryDriver, Operation};

use crate::locks::stage::{Stage, TTL};

/// Whatever could be asked of a driver with a name that is too bad for it.
const ASKS: [Operation; 7] = [
    Operation::Acquire,
    Operation::Renew,
    Operation::Release,
    Operation::Abandon,
    Operation::Watch,
    Operation::Inspect,
    Operation::ForceRelease,
];

const PATIENCE: Duration = Duration::from_secs(1);

fn refused<T>(result: Result<T, Error>) {
    let error = result.err().expect("it is refused");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert!(!error.message().is_empty());
}

fn nothing_was_sent(driver: &MemoryDriver) {
    assert_eq!(ASKS.map(|operation| driver.faults().calls(operation)), [0; 7]);
}

#[tokio::test(start_paused = true)]
async fn a_name_that_is_empty_or_too_long() {
    let driver = MemoryDriver::new();
    let client = Client::new(driver.clone());
    let long = vec![b'x'; LockName::MAX_LEN + 1];
    for bad in [&b""[..], &long] {
        let lock = client.lock(bad);
        refused(lock.name());
        refused(lock.try_acquire().await);
        refused(lock.acquire().await);
        refused(lock.acquire_within(PATIENCE).await);
        refused(lock.with(async |_| ()).await);
        refused(lock.adopt(OwnerToken::random(), FencingToken::new(1).unwrap()).await);
        refused(lock.inspect().await);
        refused(lock.force_release().await);
        refused(lock.force_release_if(FencingToken::new(1).unwrap()).await);
        refused(lock.until_free().await);
        let lock = client.reentrant(bad, &OwnerId::new());
        refused(lock.name());
        refused(lock.try_acquire().await);
        refused(lock.acquire().await);
        refused(lock.acquire_within(PATIENCE).await);
        refused(lock.with(async |_| ()).await);
        refused(lock.held().await);
        let locks = client.lock_all([&b"fine"[..], bad]);
        refused(locks.try_acquire().await);
        refused(locks.acquire().await);
        refused(locks.acquire_within(PATIENCE).await);
        refused(locks.with(async |_| ()).await);
        refused(client.queue_of_bytes(bad));
    }
    refused(client.lock_all::<&[u8]>([]).acquire().await);
    nothing_was_sent(&driver);
    assert!(client.lock(&long[1..]).acquire().await.is_ok(), "the longest name");
}

#[tokio::test(start_paused = true)]
async fn settings_of_zero() {
    let driver = MemoryDriver::new();
    let builder = || Client::builder(Backend::from(driver.clone()));
    refused(builder().ttl(Duration::ZERO).build());
    refused(builder().op_timeout(Duration::ZERO).build());
    refused(builder().presence(Duration::ZERO).build());
    refused(builder().max_holds(0).build());
    let drift = DriftBound::new(0.0, PATIENCE).unwrap();
    refused(builder().ttl(PATIENCE).drift(drift).build()); // it leaves nothing of the ttl
    assert!(builder().ttl(2 * PATIENCE).drift(drift).build().is_ok());
    let client = builder().build().unwrap();
    assert!(client.census_capabilities().is_some() && client.queue_capabilities().is_some());
    assert!(client.reentrant_capabilities().is_some());
    let client = builder().build().unwrap();
    refused(client.lock("a").max_hold(Duration::ZERO).try_acquire().await);
    refused(client.lock("a").ttl(Duration::ZERO).try_acquire().await);
    refused(client.lock("a").fixed_ttl(Duration::ZERO).acquire().await);
    nothing_was_sent(&driver);
}

/// The driver is not asked for what it says that it cannot do.
#[tokio::test(start_paused = true)]
async fn what_a_driver_cannot_do() {
    let (_, client) = Stage::default().client();
    let error = client.lock("a").force_release().await.unwrap_err();
    assert!(error.kind() == ErrorKind::Unsupported && error.message().contains("`force_release`"), "{error}");
    let plain = Client::new(Backend::new(Arc::new(MemoryDriver::new())));
    let error = plain.reentrant("a", &OwnerId::new()).acquire().await.unwrap_err();
    assert!(error.kind() == ErrorKind::Unsupported && error.message().contains("\"memory\""), "{error}");
    let (stage, client) =
        Stage::default().client_with(|builder| builder.drift(DriftBound::new(0.0, PATIENCE).unwrap()));
    refused(client.lock("a").ttl(3 * TTL).acquire().await);
    refused(client.lock("a").ttl(PATIENCE).acquire().await); // nobody could believe in it
    assert!(stage.sent("acquire").is_empty());
}
