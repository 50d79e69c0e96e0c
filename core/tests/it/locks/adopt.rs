//! Holds that go from one client to another, under a paused clock.

use std::time::Duration;

use tenure_core::{Client, ErrorKind, HoldState, LostReason, OwnerToken};
use tenure_memory::MemoryDriver;
use tokio::time::sleep;

use crate::locks::stage::{Stage, Step, TTL, steps};

const SECOND: Duration = Duration::from_secs(1);

fn clients() -> (Client, Client) {
    let driver = MemoryDriver::new();
    (Client::new(driver.clone()), Client::new(driver))
}

#[tokio::test(start_paused = true)]
async fn a_hold_goes_from_one_client_to_another() {
    let (one, other) = clients();
    let guard = one.lock("a").acquire().await.unwrap();
    let (fence, loss) = (guard.fence(), guard.loss());
    let detached = guard.detach().await.unwrap();
    assert!(detached.remaining > TTL / 2 && detached.name.as_bytes() == b"a" && detached.fence == fence);
    assert_eq!((loss.ended().await, one.stats().holds), (None, 0), "it is over here, and not lost");
    sleep(TTL / 2).await;
    let token = OwnerToken::parse(detached.token.expose().as_str()).unwrap(); // it travelled
    let adopted = other.adopt("a", token, detached.fence).await.unwrap();
    sleep(3 * TTL).await;
    assert_eq!((adopted.state(), adopted.fence()), (HoldState::Held, fence));
    assert!(one.lock("a").try_acquire().await.unwrap().is_none());
    adopted.release().await.unwrap();
    assert!(one.lock("a").try_acquire().await.unwrap().unwrap().fence() > fence);
}

#[tokio::test(start_paused = true)]
async fn an_adopted_hold_is_left_standing_for_as_long_as_the_lock_says() {
    let (one, other) = clients();
    let detached = one.lock("a").acquire().await.unwrap().detach().await.unwrap();
    let lock = other.lock("a").at_least(5 * SECOND);
    lock.adopt(detached.token, detached.fence).await.unwrap().release().await.unwrap();
    sleep(4 * SECOND).await;
    assert!(one.lock("a").try_acquire().await.unwrap().is_none());
    sleep(2 * SECOND).await;
    assert!(one.lock("a").try_acquire().await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_hold_that_ended_is_not_adopted() {
    let (one, other) = clients();
    let detached = one.lock("a").acquire().await.unwrap().detach().await.unwrap();
    sleep(2 * TTL).await;
    let next = one.lock("a").try_acquire().await.unwrap().unwrap();
    let error = other.adopt("a", detached.token, detached.fence).await.unwrap_err();
    assert_eq!((error.kind(), error.message()), (ErrorKind::Lost, &*LostReason::Gone.to_string()));
    assert!(next.is_held() && other.lock("a").try_acquire().await.unwrap().is_none());
    let lost = one.lock("b").fixed_ttl(SECOND).acquire().await.unwrap();
    tokio::time::advance(2 * SECOND).await; // nobody has noticed
    assert_eq!(lost.detach().await.unwrap_err().kind(), ErrorKind::Lost);
    sleep(SECOND).await;
    assert_eq!(one.stats().cleanups, 0);
}

#[tokio::test(start_paused = true)]
async fn a_hold_with_a_request_in_doubt_is_given_back() {
    let acquire = steps([Step::Busy, Step::Fail(ErrorKind::Indeterminate), Step::Grant]);
    let (stage, client) = Stage { acquire, ..Stage::default() }.client();
    let guard = client.lock("a").acquire().await.unwrap();
    assert_eq!(guard.detach().await.unwrap_err().kind(), ErrorKind::Indeterminate);
    client.close(TTL).await.unwrap();
    assert_eq!(stage.sent("abandon").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_adoption_that_fails_can_be_repeated() {
    let renew = steps([Step::Fail(ErrorKind::Unavailable)]);
    let (stage, client) = Stage { renew, ..Stage::default() }.client();
    let detached = client.lock("a").acquire().await.unwrap().detach().await.unwrap();
    let error = client.adopt("a", detached.token, detached.fence).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let guard = client.adopt("a", detached.token, detached.fence).await.unwrap();
    assert!(stage.sent("release").is_empty() && guard.is_held());
}

#[tokio::test(start_paused = true)]
async fn what_is_adopted_while_the_client_closes_is_given_back() {
    let (stage, client) = Stage { renew: steps([Step::Slow(SECOND)]), ..Stage::default() }.client();
    let detached = client.lock("a").acquire().await.unwrap().detach().await.unwrap();
    let adopter = client.clone();
    let adopting = tokio::spawn(async move { adopter.adopt("a", detached.token, detached.fence).await });
    sleep(SECOND / 2).await;
    client.close(TTL).await.unwrap();
    assert_eq!((stage.sent("renewed").len(), stage.sent("release").len()), (1, 1));
    assert_eq!(adopting.await.unwrap().unwrap().state(), HoldState::Lost(LostReason::Closed));
}

#[tokio::test(start_paused = true)]
async fn a_hold_that_is_adopted_too_late_is_given_back() {
    let (stage, client) = Stage { renew: steps([Step::Slow(SECOND)]), ..Stage::default() }.client();
    let detached = client.lock("a").acquire().await.unwrap().detach().await.unwrap();
    let lock = client.lock("a").max_hold(SECOND / 2);
    assert_eq!(lock.adopt(detached.token, detached.fence).await.unwrap_err().kind(), ErrorKind::Lost);
    sleep(SECOND).await;
    assert_eq!((stage.sent("release"), client.stats().cleanups), (vec![detached.token], 0));
}

#[tokio::test(start_paused = true)]
async fn an_adoption_waits_no_longer_than_the_lease_that_it_asks_for() {
    let renew = steps([Step::Fail(ErrorKind::NotHeld), Step::Slow(3600 * SECOND)]);
    let (_, client) = Stage { renew, ..Stage::default() }.client_with(|builder| builder.op_timeout(TTL));
    let detached = client.lock("a").acquire().await.unwrap().detach().await.unwrap();
    let lock = client.lock("a").ttl(2 * SECOND);
    let over = lock.adopt(detached.token, detached.fence).await.unwrap_err();
    assert_eq!(over.kind(), ErrorKind::Lost, "whatever words a driver has for it");
    let start = tokio::time::Instant::now();
    let error = lock.adopt(detached.token, detached.fence).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Indeterminate, "{error}");
    assert!(start.elapsed() <= 3 * SECOND, "{:?}", start.elapsed());
}
