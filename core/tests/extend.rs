//! Leases that are lengthened by hand, under a paused clock.

mod stage;

use std::time::Duration;

use stage::{Stage, Step, TTL, steps};
use tenure_core::{Client, ErrorKind, LostReason, OwnerId};
use tenure_memory::MemoryDriver;
use tokio::time::{sleep, timeout};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_fixed_lease_lasts_for_as_long_as_it_is_extended() {
    let client = Client::new(MemoryDriver::new());
    let guard = client.lock("a").unwrap().fixed_ttl(2 * SECOND).acquire().await.unwrap();
    for _ in 0..3 {
        sleep(SECOND).await;
        guard.extend(2 * SECOND).await.unwrap();
        assert!(guard.remaining() > SECOND);
    }
    guard.extend(SECOND / 2).await.unwrap();
    assert!(guard.remaining() > SECOND, "it is not shortened");
    assert_eq!(guard.lost().await, LostReason::Expired);
    assert_eq!(guard.extend(SECOND).await.unwrap_err().kind(), ErrorKind::Lost);
}

#[tokio::test(start_paused = true)]
async fn entries_are_extended_together_and_renewed_leases_as_well() {
    let client = Client::new(MemoryDriver::new());
    let entries = client.reentrant("a", &OwnerId::new()).unwrap().fixed_ttl(2 * SECOND);
    let (outer, inner) = (entries.acquire().await.unwrap(), entries.acquire().await.unwrap());
    inner.extend(10 * SECOND).await.unwrap();
    assert!(outer.remaining() > 9 * SECOND);
    let guard = client.lock("b").unwrap().ttl(3 * SECOND).acquire().await.unwrap();
    guard.extend(10 * SECOND).await.unwrap();
    assert!(guard.remaining() > 9 * SECOND);
    sleep(TTL).await;
    assert!(guard.is_held() && !outer.is_held());
}

#[tokio::test(start_paused = true)]
async fn an_extension_that_fails_or_is_dropped_changes_nothing() {
    let renew = steps([Step::Fail(ErrorKind::Unavailable), Step::Slow(TTL), Step::Lost]);
    let (_, client) = Stage { renew, ..Stage::default() }.client();
    let guard = client.lock("a").unwrap().fixed_ttl(TTL).acquire().await.unwrap();
    let left = guard.remaining();
    assert_eq!(guard.extend(TTL).await.unwrap_err().kind(), ErrorKind::Unavailable);
    assert!(timeout(SECOND / 2, guard.extend(TTL)).await.is_err());
    assert!(guard.is_held() && guard.remaining() <= left);
    let error = guard.extend(TTL).await.unwrap_err();
    assert_eq!((error.kind(), guard.lost().await), (ErrorKind::Lost, LostReason::Gone));
}

#[tokio::test(start_paused = true)]
async fn an_extension_out_of_range_is_refused() {
    let (stage, client) = Stage::default().client();
    let guard = client.lock("a").unwrap().acquire().await.unwrap();
    for bad in [Duration::ZERO, 3 * TTL, Duration::from_micros(10_500)] {
        assert_eq!(guard.extend(bad).await.unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
    assert!(stage.sent("renew").is_empty());
}
