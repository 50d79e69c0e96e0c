//! A release that nobody waits for, as one command: what it may rest on, and what happens where it is not to be had.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::common::wire::{Delifeq, Wire};
use crate::common::{attempt, busy, granted, hold, keys, server, server_with, waiter};
use tenure_core::driver::{AcquireRequest, Acquisition, Concern, DistributedLock, Doctor, Released, Topic};
use tenure_core::{ErrorKind, OwnerToken};
use tenure_redis::{Fences, RedisSettings};
use tenure_redis_support::Driver;
use tenure_testkit::{RedisOptions, RedisServer};

/// How many grants of a name are released by script after somebody has waited for it.
const CONTENDED_GRANTS: u64 = 8;

/// A driver, and the connection that it sends its commands on.
struct Client {
    driver: Driver<Wire>,
    wire: Wire,
}

impl std::ops::Deref for Client {
    type Target = Driver<Wire>;

    fn deref(&self) -> &Driver<Wire> {
        &self.driver
    }
}

async fn client(server: &RedisServer, delifeq: Delifeq) -> Client {
    client_with(server, delifeq, RedisSettings::default()).await
}

async fn client_with(server: &RedisServer, delifeq: Delifeq, settings: RedisSettings) -> Client {
    let wire = Wire::with_delifeq(server, None, delifeq);
    Client { driver: wire.driver(settings).await, wire }
}

/// How many releases were commands, and how many scripts, up to now.
fn releases(client: &Client) -> (u64, u64) {
    (client.wire.by_value(), client.wire.scripts())
}

async fn pair(client: &Client, request: &AcquireRequest) {
    granted(client.acquire(request).await.unwrap());
    assert_eq!(client.release(&hold(request)).await.unwrap(), Released::Released);
}

fn locks(server: &RedisServer) -> Vec<String> {
    keys(server).into_iter().filter(|key| !key.contains('{')).collect()
}

#[tokio::test]
async fn what_nobody_waits_for_is_released_by_one_command() {
    let server = server();
    let c = client(&server, Delifeq::Emulated).await;
    let labelled = attempt("a");
    let plain = labelled.clone().with_label(None).with_token(OwnerToken::random());
    for request in [&labelled, &plain] {
        pair(&c, request).await;
        assert!(locks(&server).is_empty());
    }
    assert_eq!(releases(&c), (2, 0));
    assert_eq!(c.release(&hold(&plain)).await.unwrap(), Released::NotHeld);
    assert_eq!(releases(&c), (2, 1), "what is released again is asked for by the script");
}

/// Grants that follow one another closely have fences ahead of the clock, by a little or by much.
#[tokio::test]
async fn the_value_is_known_however_far_its_fence_is_ahead() {
    let server = server_with(RedisOptions::new().movable_clock());
    let c = client(&server, Delifeq::Emulated).await;
    let mut now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros() as i64;
    let steps = (0..=12).chain([0; 20]);
    let mut pairs = 0;
    for step in steps {
        now += step;
        server.stop_clock_at(now).unwrap();
        pair(&c, &attempt("a")).await;
        pairs += 1;
    }
    assert_eq!(releases(&c), (pairs, 0));
}

#[tokio::test]
async fn a_waiter_that_came_meanwhile_gets_its_turn_and_the_next_releases_are_scripts() {
    let server = server();
    let (c, other) = (client(&server, Delifeq::Emulated).await, client(&server, Delifeq::Emulated).await);
    let (first, second) = (attempt("a"), waiter("a"));
    granted(c.acquire(&first).await.unwrap());
    busy(other.acquire(&second).await.unwrap());
    assert_eq!(c.release(&hold(&first)).await.unwrap(), Released::Released);
    assert_eq!(releases(&c), (1, 1));
    other.abandon(&hold(&second)).await.unwrap(); // no client is subscribed here, so nothing was published
    for _ in 0..CONTENDED_GRANTS {
        pair(&c, &attempt("a")).await;
    }
    assert_eq!(releases(&c), (1, 1 + CONTENDED_GRANTS), "the name was awaited a short while ago");
    pair(&c, &attempt("a")).await;
    assert_eq!(releases(&c), (2, 1 + CONTENDED_GRANTS));
    pair(&c, &attempt("b")).await;
    assert_eq!(releases(&c), (3, 1 + CONTENDED_GRANTS));
}

#[tokio::test]
async fn a_lock_that_this_client_waits_for_too_is_released_by_script() {
    let server = server();
    let c = client(&server, Delifeq::Emulated).await;
    let (first, second) = (attempt("a"), waiter("a"));
    granted(c.acquire(&first).await.unwrap());
    busy(c.acquire(&second).await.unwrap());
    assert_eq!(c.release(&hold(&first)).await.unwrap(), Released::Released);
    assert_eq!(releases(&c), (0, 1));
}

#[tokio::test]
async fn where_fences_only_count_releases_are_scripts() {
    let server = server();
    let c = client_with(&server, Delifeq::Emulated, RedisSettings::default().fences(Fences::Counter)).await;
    pair(&c, &attempt("a")).await;
    assert_eq!(releases(&c), (0, 1));
}

/// A server may claim a version that has the command and lack it, as behind a failover; or keep it from the user.
#[tokio::test]
async fn a_command_that_is_not_to_be_had_is_tried_once() {
    let server = server();
    for refusal in [
        "ERR unknown command 'DELIFEQ', with args beginning with: 'tenure:a'",
        "NOPERM User u has no permissions to run the 'delifeq' command",
    ] {
        let c = client(&server, Delifeq::Refused(refusal)).await;
        for _ in 0..3 {
            pair(&c, &attempt("a")).await;
            assert!(locks(&server).is_empty(), "{refusal}");
        }
        assert_eq!(releases(&c), (1, 3), "{refusal}");
    }
}

#[tokio::test]
async fn a_right_that_is_missing_from_the_start_is_noted_and_nothing_is_tried() {
    let server = server();
    let c = client(&server, Delifeq::Withheld("NOPERM User u has no permissions to run the 'delifeq' command")).await;
    assert!(c.notes().remarks().iter().any(|remark| remark.contains("delifeq is denied")), "{:?}", c.notes());
    pair(&c, &attempt("a")).await;
    assert_eq!(releases(&c), (0, 1));
    let checkup = c.examine().await.unwrap();
    let rights = checkup.findings().iter().find(|finding| finding.topic == Topic::Rights).unwrap();
    assert_eq!(rights.concern, Concern::Note);
    assert!(checkup.to_string().contains("+delifeq"), "{checkup}");
}

#[tokio::test]
async fn after_any_other_refusal_the_script_says_how_it_is() {
    let server = server();
    for refusal in ["READONLY You can't write against a read only replica.", "LOADING Redis is loading the dataset"] {
        let c = client(&server, Delifeq::Refused(refusal)).await;
        let (kept, gone) = (attempt("a"), attempt("b"));
        granted(c.acquire(&kept).await.unwrap());
        granted(c.acquire(&gone).await.unwrap());
        server.cli(&["DEL", "tenure:b"]).unwrap();
        assert_eq!(c.release(&hold(&kept)).await.unwrap(), Released::Released);
        assert_eq!(c.release(&hold(&gone)).await.unwrap(), Released::NotHeld);
        assert_eq!(releases(&c), (2, 2), "{refusal}");
    }
}

#[tokio::test]
async fn a_lost_reply_leaves_the_outcome_unknown_and_the_release_can_be_repeated() {
    let server = server();
    for executed in [true, false] {
        let c = client(&server, Delifeq::Unanswered { executed }).await;
        let request = attempt("a");
        granted(c.acquire(&request).await.unwrap());
        let error = c.release(&hold(&request)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Indeterminate);
        assert!(!error.was_not_applied() && error.to_string().contains("release"), "{error}");
        let again = c.release(&hold(&request)).await.unwrap();
        assert_eq!(again, if executed { Released::NotHeld } else { Released::Released });
        assert_eq!(releases(&c), (1, 1));
    }
}

/// What is known of a grant says nothing of a later holder.
#[tokio::test]
async fn a_lease_that_ended_is_not_released_from_its_successor() {
    let server = server();
    let c = client(&server, Delifeq::Emulated).await;
    let (first, second) = (attempt("a"), attempt("a"));
    granted(c.acquire(&first).await.unwrap());
    server.cli(&["DEL", "tenure:a"]).unwrap();
    granted(c.acquire(&second).await.unwrap());
    assert_eq!(c.release(&hold(&first)).await.unwrap(), Released::NotHeld);
    assert!(matches!(c.acquire(&attempt("a")).await.unwrap(), Acquisition::Busy(_)));
}
