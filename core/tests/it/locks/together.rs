//! Tasks of one client that want the same lock at the same moment, and what they share.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::{Client, ErrorKind, Lock, LockGuard, Result};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::locks::stage::{Stage, Step, TTL, steps};

type Waiting = JoinHandle<Result<LockGuard>>;

fn client(acquire: impl IntoIterator<Item = Step>, range: u32) -> (Arc<Stage>, Client) {
    Stage { acquire: steps(acquire), range, ..Stage::default() }.client()
}

fn lock(client: &Client) -> Lock {
    client.lock("a").ttl(TTL)
}

/// Tasks that ask all at once.
fn together(lock: &Lock, count: usize) -> Vec<Waiting> {
    let ask = |_| {
        let lock = lock.clone();
        tokio::spawn(async move { lock.acquire().await })
    };
    (0..count).map(ask).collect()
}

#[tokio::test(start_paused = true)]
async fn who_asks_at_the_same_moment_shares_a_place() {
    for (fixed, range) in [(false, 8), (false, 1), (true, 8)] {
        let (stage, client) = client([Step::Busy, Step::Busy], range);
        let lock = if fixed { lock(&client).fixed_ttl(TTL) } else { lock(&client) };
        let waiting = together(&lock, 50);
        sleep(Duration::from_secs(1)).await;
        assert_eq!(stage.sent("acquire").len(), 2, "the first, and one for all others");
        waiting.iter().for_each(JoinHandle::abort);
        client.close(TTL).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_free_lock_serves_all_who_ask_at_once() {
    for range in [8, 1] {
        let (stage, client) = client([Step::Slow(Duration::from_millis(5)); 20], range);
        let mut fences = Vec::new();
        for waiting in together(&lock(&client), 20) {
            let guard = waiting.await.unwrap().unwrap();
            fences.push(guard.fence().get());
            guard.release().await.unwrap();
        }
        let asked = stage.sent("acquire").len();
        assert!(if range == 1 { asked >= 20 } else { asked <= 5 }, "{asked} requests for twenty holders");
        client.close(TTL).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_fixed_lease_is_passed_on_to_nobody() {
    let (stage, client) = client([], 8);
    let mut waiting = together(&lock(&client).fixed_ttl(TTL), 3).into_iter();
    for served in 1..=3 {
        let start = Instant::now();
        let guard = waiting.next().unwrap().await.unwrap().unwrap();
        assert!(guard.remaining() >= TTL.mul_f64(0.98) && start.elapsed() < TTL / 10, "{:?}", guard.remaining());
        assert!(stage.sent("acquire").len() >= served);
        guard.release().await.unwrap();
        assert_eq!(stage.sent("release").len(), served);
    }
}

#[tokio::test(start_paused = true)]
async fn who_wants_other_terms_asks_alone() {
    let (stage, client) = client([Step::Busy; 9], 8);
    let mut waiting = together(&lock(&client), 2);
    for terms in [lock(&client).label("x"), lock(&client).max_hold(TTL), lock(&client).fixed_ttl(TTL)] {
        waiting.extend(together(&terms, 1));
    }
    sleep(Duration::from_secs(1)).await;
    assert_eq!(stage.sent("acquire").len(), 5);
    waiting.iter().for_each(JoinHandle::abort);
}

#[tokio::test(start_paused = true)]
async fn an_outage_before_the_first_answer_is_reported_to_each_waiter() {
    let outage = [Step::Fail(ErrorKind::Unavailable); 1_000];
    let (_stage, client) = client(outage, 8);
    let start = Instant::now();
    for waiting in together(&lock(&client), 10) {
        assert_eq!(waiting.await.unwrap().unwrap_err().kind(), ErrorKind::Unavailable);
    }
    assert!(start.elapsed() < Duration::from_secs(8), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn patience_outlasts_an_outage_that_all_meet() {
    let outage = [Step::Fail(ErrorKind::Unavailable); 40];
    let (_stage, client) = client(outage, 8);
    let patient = |_| {
        let lock = lock(&client);
        tokio::spawn(async move { lock.acquire_within(Duration::from_secs(60)).await?.release().await })
    };
    let waiting: Vec<_> = (0..10).map(patient).collect();
    for one in waiting {
        one.await.unwrap().unwrap();
    }
}
