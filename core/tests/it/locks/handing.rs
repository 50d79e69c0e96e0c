//! Locks that reach a waiter without being asked for: when they count from, how they are made to last.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::driver::Handed;
use tenure_core::{Client, Confirmation, ErrorKind, FencingToken, LockGuard, OwnerId, OwnerToken, Result};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::locks::stage::{Stage, Step, TTL, steps};

const SHORT: Duration = Duration::from_secs(2);

/// A client with a waiter whose first request was answered with busy.
async fn waiting() -> (Arc<Stage>, Client, JoinHandle<Result<LockGuard>>, OwnerToken) {
    waiting_with(Confirmation::Behind).await
}

async fn waiting_with(when: Confirmation) -> (Arc<Stage>, Client, JoinHandle<Result<LockGuard>>, OwnerToken) {
    let stage = Stage { acquire: steps([Step::Busy]), range: 8, ..Stage::default() };
    let (stage, client) = stage.client_with(|builder| builder.confirmation(when));
    let lock = client.lock("a").ttl(TTL);
    let waiter = tokio::spawn(async move { lock.acquire().await });
    while stage.sent("acquire").is_empty() {
        sleep(Duration::from_millis(1)).await;
    }
    let token = stage.sent("acquire")[0];
    (stage, client, waiter, token)
}

/// News of a lease that begins now.
fn news(stage: &Stage) -> Handed {
    Handed::new(FencingToken::new(9).unwrap(), SHORT, stage.time())
}

async fn taken(waiter: JoinHandle<Result<LockGuard>>) -> LockGuard {
    waiter.await.unwrap().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_handed_lock_is_taken_without_a_request_and_made_to_last() {
    let (stage, _client, waiter, token) = waiting().await;
    assert!(stage.wakes.hand(&token, news(&stage)));
    let guard = taken(waiter).await;
    assert_eq!((guard.fence().get(), guard.token()), (9, &token));
    assert_eq!(stage.sent("acquire").len(), 1);
    assert!(guard.remaining() <= SHORT && guard.remaining() > SHORT / 2, "{:?}", guard.remaining());
    sleep(Duration::from_millis(5)).await;
    assert_eq!(stage.sent("renew"), [token]);
    assert!(guard.remaining() > TTL / 2);
}

#[tokio::test(start_paused = true)]
async fn with_one_thread_a_handed_lease_lasts_before_its_guard_is_returned() {
    for when in [Confirmation::ByRuntime, Confirmation::First] {
        let (stage, _client, waiter, token) = waiting_with(when).await;
        stage.wakes.hand(&token, news(&stage));
        let guard = taken(waiter).await;
        assert!(guard.remaining() > TTL / 2, "{:?}", guard.remaining());
        assert_eq!(stage.sent("acquire"), [token, token], "the second request makes it last");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_handed_for_its_whole_ttl_needs_no_confirmation() {
    let (stage, _client, waiter, token) = waiting_with(Confirmation::First).await;
    stage.wakes.hand(&token, news(&stage).with_ttl(TTL));
    assert_eq!(taken(waiter).await.fence().get(), 9);
    assert_eq!(stage.sent("acquire").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_was_long_waited_for_is_passed_on_as_any_other() {
    let (stage, client, waiter, token) = waiting().await;
    let lock = client.lock("a").ttl(TTL);
    stage.acquire.lock().unwrap().push_back(Step::Busy);
    let next = tokio::spawn(async move { lock.acquire().await });
    sleep(Duration::from_secs(4)).await;
    stage.wakes.hand(&token, news(&stage).with_fences(8));
    taken(waiter).await.release().await.unwrap();
    assert_eq!((taken(next).await.fence().get(), stage.sent("release").len()), (10, 0));
}

#[tokio::test(start_paused = true)]
async fn work_that_ends_at_once_costs_no_renewal() {
    let (stage, _client, waiter, token) = waiting().await;
    sleep(Duration::from_secs(4)).await; // what clocks may drift apart in this time is more than the work takes
    stage.wakes.hand(&token, news(&stage));
    let guard = taken(waiter).await;
    sleep(Duration::from_millis(1)).await;
    guard.release().await.unwrap();
    sleep(TTL).await;
    assert!(stage.sent("renew").is_empty());
    assert!(stage.sent("abandon").is_empty(), "every request was answered");
}

#[tokio::test(start_paused = true)]
async fn a_handed_lease_survives_one_renewal_that_fails() {
    let (stage, _client, waiter, token) = waiting().await;
    stage.renew.lock().unwrap().push_back(Step::Slow(Duration::from_secs(3600)));
    stage.wakes.hand(&token, news(&stage));
    let guard = taken(waiter).await;
    sleep(SHORT * 2).await;
    assert!(guard.is_held());
}

#[tokio::test(start_paused = true)]
async fn a_handed_lease_counts_from_when_it_began() {
    let (stage, _client, waiter, token) = waiting().await;
    let late = news(&stage);
    stage.renew.lock().unwrap().push_back(Step::Slow(TTL)); // nothing lengthens it yet
    sleep(SHORT * 3 / 4).await;
    stage.wakes.hand(&token, late);
    let guard = taken(waiter).await;
    assert!(guard.remaining() <= SHORT / 4, "{:?}", guard.remaining());
}

#[tokio::test(start_paused = true)]
async fn news_of_a_lease_that_has_ended_makes_the_waiter_ask() {
    let (stage, _client, waiter, token) = waiting().await;
    let stale = news(&stage);
    sleep(SHORT).await;
    stage.wakes.hand(&token, stale);
    assert_eq!(taken(waiter).await.fence().get(), 7);
    assert_eq!(stage.sent("acquire"), [token, token]);
}

#[tokio::test(start_paused = true)]
async fn news_from_before_the_last_answer_makes_the_waiter_ask() {
    let (stage, _client, waiter, token) = waiting().await;
    let older = news(&stage).with_began_at(stage.time() - Duration::from_secs(1));
    stage.wakes.hand(&token, older);
    assert_eq!(taken(waiter).await.fence().get(), 7);
    assert_eq!(stage.sent("acquire").len(), 2);
}

/// Another server may answer behind a gap in the link, and its clock is another one.
#[tokio::test(start_paused = true)]
async fn news_from_behind_a_gap_make_the_waiter_ask() {
    let (stage, _client, waiter, token) = waiting().await;
    sleep(SHORT * 3 / 4).await;
    stage.wakes.cut();
    stage.wakes.hand(&token, news(&stage).with_began_at(stage.time() + SHORT));
    assert_eq!(taken(waiter).await.fence().get(), 7);
    assert_eq!(stage.sent("acquire"), [token, token]);
}

#[tokio::test(start_paused = true)]
async fn news_behind_a_request_without_an_answer_make_the_waiter_ask() {
    let (stage, _client, waiter, token) = waiting().await;
    stage.acquire.lock().unwrap().push_back(Step::Fail(ErrorKind::Unavailable));
    stage.wakes.cut();
    stage.wakes.wake_all();
    sleep(Duration::from_millis(1)).await;
    assert_eq!(stage.sent("acquire").len(), 2);
    stage.wakes.hand(&token, news(&stage).with_began_at(stage.time() + SHORT));
    assert_eq!(taken(waiter).await.fence().get(), 7);
    assert_eq!(stage.sent("acquire").len(), 3);
}

#[tokio::test(start_paused = true)]
async fn news_after_the_gap_are_as_good_as_before_it() {
    let (stage, _client, waiter, token) = waiting().await;
    stage.acquire.lock().unwrap().push_back(Step::Busy);
    stage.wakes.cut();
    stage.wakes.wake_all();
    sleep(Duration::from_millis(1)).await;
    stage.wakes.hand(&token, news(&stage));
    assert_eq!(taken(waiter).await.fence().get(), 9);
    assert_eq!(stage.sent("acquire").len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_backend_clock_that_was_set_forward_lengthens_nothing() {
    let (stage, _client, waiter, token) = waiting().await;
    let ahead = news(&stage).with_began_at(stage.time() + Duration::from_secs(3600));
    stage.wakes.hand(&token, ahead);
    let guard = taken(waiter).await;
    assert!(guard.remaining() <= SHORT, "{:?}", guard.remaining());
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_gives_up_abandons_what_it_was_handed() {
    let (stage, client, waiter, token) = waiting().await;
    stage.wakes.hand(&token, news(&stage));
    waiter.abort();
    assert!(waiter.await.unwrap_err().is_cancelled());
    client.close(TTL).await.unwrap();
    assert_eq!(stage.sent("abandon"), [token]);
}

#[tokio::test(start_paused = true)]
async fn only_renewed_plain_leases_are_accepted_unasked() {
    let (stage, client) = Stage::default().client();
    let lock = client.lock("a");
    drop(lock.clone().ttl(TTL).acquire().await.unwrap());
    assert_eq!(stage.direct.lock().unwrap().len(), 1);
    drop(lock.clone().fixed_ttl(TTL).acquire().await.unwrap());
    drop(lock.ttl(TTL).try_acquire().await.unwrap());
    drop(client.reentrant("b", &OwnerId::new()).ttl(TTL).acquire().await.unwrap());
    assert_eq!(stage.direct.lock().unwrap().len(), 1);
}
