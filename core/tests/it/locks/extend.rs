//! Leases that are lengthened by hand, under a paused clock.

use std::time::Duration;

use tenure_core::{Client, DriftBound, ErrorKind, LostReason, OwnerId};
use tenure_memory::MemoryDriver;
use tokio::time::{sleep, timeout};

use crate::locks::stage::{Stage, Step, TTL, steps};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_fixed_lease_lasts_for_as_long_as_it_is_extended() {
    let client = Client::new(MemoryDriver::new());
    let guard = client.lock("a").fixed_ttl(2 * SECOND).acquire().await.unwrap();
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
    let entries = client.reentrant("a", &OwnerId::new()).fixed_ttl(2 * SECOND);
    let (outer, inner) = (entries.acquire().await.unwrap(), entries.acquire().await.unwrap());
    inner.extend(10 * SECOND).await.unwrap();
    assert!(outer.remaining() > 9 * SECOND);
    let guard = client.lock("b").ttl(3 * SECOND).acquire().await.unwrap();
    guard.extend(10 * SECOND).await.unwrap();
    assert!(guard.remaining() > 9 * SECOND);
    sleep(TTL).await;
    assert!(guard.is_held() && !outer.is_held());
}

#[tokio::test(start_paused = true)]
async fn an_extension_that_fails_or_is_dropped_changes_nothing() {
    let renew = steps([Step::Fail(ErrorKind::Unavailable), Step::Slow(TTL), Step::Lost]);
    let (_, client) = Stage { renew, ..Stage::default() }.client();
    let guard = client.lock("a").fixed_ttl(TTL).acquire().await.unwrap();
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
    let guard = client.lock("a").acquire().await.unwrap();
    for bad in [Duration::ZERO, 3 * TTL, Duration::from_micros(10_500)] {
        assert_eq!(guard.extend(bad).await.unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
    assert!(stage.sent("renew").is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_extension_that_is_not_polled_keeps_no_renewal_from_leaving() {
    let (stage, client) = Stage { renew: steps([Step::Slow(SECOND)]), ..Stage::default() }.client();
    let guard = client.lock("a").ttl(TTL).acquire().await.unwrap();
    let mut extension = Box::pin(guard.extend(TTL));
    assert!(timeout(Duration::ZERO, &mut extension).await.is_err());
    sleep(3 * TTL).await;
    guard.check().unwrap();
    let error = extension.await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Indeterminate);
    let (sent, answered) = (stage.sent("renew").len(), stage.sent("renewed").len());
    assert_eq!(sent, answered + 1, "what was not polled in time is not sent on");
    guard.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_extension_that_is_not_polled_holds_up_no_clean_up() {
    let (stage, client) = Stage { renew: steps([Step::Slow(SECOND)]), ..Stage::default() }.client();
    let guard = client.lock("a").fixed_ttl(TTL).acquire().await.unwrap();
    let mut extension = Box::pin(guard.extend(TTL));
    assert!(timeout(Duration::ZERO, &mut extension).await.is_err());
    sleep(2 * TTL).await;
    assert_eq!((guard.is_held(), stage.sent("release").len(), client.stats().cleanups), (false, 1, 0));
    client.close(SECOND).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_an_extension_without_an_answer_made_last_is_undone_for_as_long_as_it_could_last() {
    let renew = steps([Step::Fail(ErrorKind::Indeterminate)]);
    let release = steps([Step::Fail(ErrorKind::Unavailable); 30]); // one a second before long
    let (stage, client) = Stage { renew, release, ..Stage::default() }.client();
    let guard = client.lock("a").fixed_ttl(SECOND).acquire().await.unwrap();
    assert_eq!(guard.extend(2 * TTL).await.unwrap_err().kind(), ErrorKind::Indeterminate);
    drop(guard);
    sleep(TTL).await;
    assert_eq!((stage.sent("release").len(), client.stats().cleanups), (31, 0));
}

#[tokio::test(start_paused = true)]
async fn an_extension_that_the_drift_bound_eats_is_refused() {
    let drift = DriftBound::new(0.1, SECOND).unwrap();
    let (stage, client) = Stage::default().client_with(|builder| builder.drift(drift));
    let guard = client.lock("a").acquire().await.unwrap();
    assert_eq!(guard.extend(SECOND).await.unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert!(stage.sent("renew").is_empty());
}

/// The renewer has the time for a try of its own.
#[tokio::test(start_paused = true)]
async fn an_extension_waits_for_an_answer_for_a_quarter_of_what_is_left_of_the_lease() {
    let (_, client) =
        Stage { renew: steps([Step::Slow(3600 * SECOND)]), ..Stage::default() }.client_with(|b| b.op_timeout(TTL));
    let guard = client.lock("a").fixed_ttl(8 * SECOND).acquire().await.unwrap();
    let start = tokio::time::Instant::now();
    assert_eq!(guard.extend(TTL).await.unwrap_err().kind(), ErrorKind::Indeterminate);
    let took = start.elapsed();
    assert!(took > SECOND * 19 / 10 && took <= 2 * SECOND, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn an_extension_leaves_when_the_renewal_on_its_way_is_answered() {
    let (moment, renew) = (Duration::from_millis(10), steps([Step::Slow(Duration::from_millis(500))]));
    let (stage, client) = Stage { renew, ..Stage::default() }.client();
    let guard = client.lock("a").ttl(TTL).acquire().await.unwrap();
    while stage.sent("renew").is_empty() {
        sleep(moment).await;
    }
    guard.extend(TTL).await.unwrap();
    let order: Vec<_> = stage.frames.lock().unwrap().iter().map(|frame| frame.0).collect();
    assert_eq!(order, ["acquire", "renew", "renewed", "renew", "renewed"]);
}

#[tokio::test(start_paused = true)]
async fn an_extension_waits_no_longer_than_any_request() {
    let renew = steps([Step::Slow(3600 * SECOND)]);
    let (_, client) = Stage { renew, ..Stage::default() }.client_with(|builder| builder.op_timeout(SECOND));
    let guard = client.lock("a").fixed_ttl(60 * SECOND).acquire().await.unwrap();
    let start = tokio::time::Instant::now();
    assert_eq!(guard.extend(TTL).await.unwrap_err().kind(), ErrorKind::Indeterminate);
    assert!(start.elapsed() < 2 * SECOND, "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn what_is_lost_is_not_extended() {
    let (stage, client) = Stage::default().client();
    let guard = client.lock("a").fixed_ttl(2 * SECOND).acquire().await.unwrap();
    tokio::time::advance(3 * SECOND).await;
    assert_eq!(guard.extend(TTL).await.unwrap_err().kind(), ErrorKind::Lost);
    assert!(stage.sent("renew").is_empty());
}
