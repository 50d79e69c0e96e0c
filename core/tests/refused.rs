//! What is refused before anything is sent.

use std::time::Duration;

use tenure_core::driver::Backend;
use tenure_core::{Client, Error, ErrorKind, LockName, OwnerId};
use tenure_memory::{MemoryDriver, Operation};

/// Whatever could be asked of a driver with a name that is too bad for it.
const ASKS: [Operation; 4] = [Operation::Acquire, Operation::Renew, Operation::Release, Operation::Abandon];

fn refused<T>(result: Result<T, Error>) {
    let error = result.err().expect("it is refused");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert!(!error.message().is_empty());
}

fn nothing_was_sent(driver: &MemoryDriver) {
    assert_eq!(ASKS.map(|operation| driver.faults().calls(operation)), [0; 4]);
}

#[test]
fn a_name_that_is_empty_or_too_long() {
    let driver = MemoryDriver::new();
    let client = Client::new(driver.clone());
    let long = vec![b'x'; LockName::MAX_LEN + 1];
    for bad in [&b""[..], &long] {
        refused(client.lock(bad));
        refused(client.reentrant(bad, &OwnerId::new()));
        refused(client.lock_all([&b"fine"[..], bad]));
        refused(client.queue_of_bytes(bad));
    }
    refused(client.lock_all::<&[u8]>([]));
    assert!(client.lock(&long[1..]).is_ok(), "the longest name");
    nothing_was_sent(&driver);
}

#[tokio::test(start_paused = true)]
async fn settings_of_zero() {
    let driver = MemoryDriver::new();
    let builder = || Client::builder(Backend::from(driver.clone()));
    refused(builder().ttl(Duration::ZERO).build());
    refused(builder().op_timeout(Duration::ZERO).build());
    refused(builder().presence(Duration::ZERO).build());
    refused(builder().max_holds(0).build());
    let client = builder().build().unwrap();
    refused(client.lock("a").unwrap().max_hold(Duration::ZERO).try_acquire().await);
    refused(client.lock("a").unwrap().ttl(Duration::ZERO).try_acquire().await);
    refused(client.lock("a").unwrap().fixed_ttl(Duration::ZERO).acquire().await);
    nothing_was_sent(&driver);
}
