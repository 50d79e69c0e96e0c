//! Leases that are passed on among the waiters of one client: what that saves, what bounds it, and who may have one.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tenure_core::{Client, ErrorKind, Lock, LockGuard, OwnerToken, Result};
use tokio::task::JoinHandle;
use tokio::time::{advance, sleep};

use crate::locks::stage::{Stage, Step, TTL, steps};

const RANGE: u32 = 1000;

fn relaying(acquire: impl IntoIterator<Item = Step>) -> (Arc<Stage>, Client) {
    Stage { acquire: steps(acquire), range: RANGE, ..Stage::default() }.client()
}

fn lock(client: &Client) -> Lock {
    client.lock("a").ttl(TTL)
}

/// Lets all tasks go on as far as they can, without letting time pass.
async fn settled() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

type Waiting = JoinHandle<Result<LockGuard>>;

/// A waiter that has its place, wherever that is.
async fn waiter(lock: Lock) -> Waiting {
    let waiting = tokio::spawn(async move { lock.acquire().await });
    settled().await;
    waiting
}

async fn waiters<const N: usize>(client: &Client) -> [Waiting; N] {
    let mut all = Vec::new();
    for _ in 0..N {
        all.push(waiter(lock(client)).await);
    }
    all.try_into().unwrap()
}

async fn guard(waiting: Waiting) -> LockGuard {
    settled().await;
    assert!(waiting.is_finished(), "it still waits");
    waiting.await.unwrap().unwrap()
}

/// Polls once.
async fn is_pending<F: Future + Unpin>(future: &mut F) -> bool {
    poll_fn(|cx| Poll::Ready(Pin::new(&mut *future).poll(cx).is_pending())).await
}

#[tokio::test(start_paused = true)]
async fn waiters_are_served_in_order_without_a_request() {
    let (stage, client) = relaying([Step::Grant, Step::Busy, Step::Busy]);
    let first = lock(&client).acquire().await.unwrap();
    let token = *first.token();
    let waiting: [Waiting; 4] = waiters(&client).await;
    assert_eq!((stage.sent("acquire").len(), client.stats().waiters), (3, 4), "the first, and one for all");
    let mut seen = vec![(first.fence().get(), token)];
    let mut last = first;
    for next in waiting {
        assert!(!next.is_finished());
        last.release().await.unwrap();
        last = guard(next).await;
        last.check().unwrap();
        seen.push((last.fence().get(), *last.token()));
    }
    assert_eq!(stage.sent("release"), []);
    last.release().await.unwrap();
    assert_eq!(stage.sent("release"), [token], "the backend knows one hold");
    assert_eq!(seen.iter().map(|(fence, _)| *fence).collect::<Vec<_>>(), [7, 8, 9, 10, 11]);
    assert!(seen.iter().skip(1).all(|(_, other)| *other != token), "each holder has a token of its own");
    settled().await;
    let asked = stage.sent("acquire");
    assert_eq!((asked.len(), stage.sent("abandon")), (3, asked[1..].to_vec()), "no place in the queue is left");
    assert_eq!((client.stats().holds, client.stats().waiters, client.stats().cleanups), (0, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_grant_serves_so_many_and_no_more() {
    let stage = Stage { acquire: steps([Step::Grant, Step::Busy, Step::Busy]), range: RANGE, ..Stage::default() };
    let (stage, client) = stage.client_with(|builder| builder.holders_per_grant(3));
    let first = lock(&client).acquire().await.unwrap();
    let [second, third, fourth, fifth] = waiters(&client).await;
    first.release().await.unwrap();
    let second = guard(second).await;
    second.release().await.unwrap();
    let third = guard(third).await;
    assert_eq!((third.fence().get(), stage.sent("release").len()), (9, 0));
    third.release().await.unwrap();
    assert_eq!(stage.sent("release").len(), 1);
    settled().await;
    assert!(!fourth.is_finished());
    let for_all = stage.sent("acquire")[2];
    stage.wakes.wake(&for_all);
    let fourth = guard(fourth).await;
    assert_eq!(fourth.token(), &for_all);
    drop(fourth);
    assert_eq!(guard(fifth).await.fence().get(), 8, "a drop passes on as well");
}

/// Fences that nobody asked for may be given to others by the backend.
#[tokio::test(start_paused = true)]
async fn a_grant_serves_no_more_than_it_was_asked_for() {
    let stage =
        Stage { acquire: steps([Step::Grant, Step::Busy, Step::Busy]), range: RANGE, unasked: 6, ..Stage::default() };
    let (stage, client) = stage.client_with(|builder| builder.holders_per_grant(2));
    let first = lock(&client).acquire().await.unwrap();
    let [second, third] = waiters(&client).await;
    first.release().await.unwrap();
    guard(second).await.release().await.unwrap();
    settled().await;
    assert_eq!((stage.sent("release").len(), third.is_finished()), (1, false));
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_passed_on_for_a_short_while_only() {
    let (stage, client) = relaying([Step::Grant, Step::Busy, Step::Busy, Step::Grant, Step::Busy]);
    let first = lock(&client).acquire().await.unwrap();
    let [second, third] = waiters(&client).await;
    sleep(Duration::from_millis(11)).await;
    first.release().await.unwrap();
    assert_eq!(stage.sent("release").len(), 1, "it is too late");
    stage.wakes.wake(&stage.sent("acquire")[2]);
    let second = guard(second).await;
    let fourth = waiter(lock(&client)).await;
    sleep(Duration::from_millis(9)).await;
    second.release().await.unwrap();
    let third = guard(third).await;
    assert_eq!((third.fence().get(), stage.sent("acquire").len()), (8, 4), "nobody asks meanwhile");
    sleep(Duration::from_millis(2)).await;
    settled().await;
    assert_eq!(stage.sent("acquire").len(), 5, "the time is over: the rest wait at the backend");
    third.release().await.unwrap();
    assert_eq!(stage.sent("release").len(), 2);
    stage.wakes.wake(&stage.sent("acquire")[4]);
    assert_eq!(guard(fourth).await.fence().get(), 7);
}

#[tokio::test(start_paused = true)]
async fn who_comes_when_nobody_holds_it_any_more_asks_at_once() {
    let (stage, client) = relaying([Step::Grant, Step::Busy]);
    let first = lock(&client).acquire().await.unwrap();
    let second = waiter(lock(&client)).await;
    first.release().await.unwrap();
    guard(second).await.release().await.unwrap();
    let third = guard(waiter(lock(&client)).await).await;
    let asked = stage.sent("acquire");
    assert_eq!((asked.len(), asked.last()), (3, Some(third.token())));
}

#[tokio::test(start_paused = true)]
async fn only_those_who_want_the_same_are_served() {
    let (stage, client) = relaying([Step::Grant, Step::Busy, Step::Busy, Step::Busy, Step::Busy, Step::Busy]);
    let first = lock(&client).acquire().await.unwrap();
    let same = waiter(lock(&client)).await;
    let others = [lock(&client).ttl(TTL / 2), lock(&client).label("x"), lock(&client).max_hold(TTL)];
    let mut waiting = Vec::new();
    for other in others.into_iter().chain([lock(&client).fixed_ttl(TTL)]) {
        waiting.push(waiter(other).await);
    }
    assert_eq!(stage.sent("acquire").len(), 6, "they ask for themselves");
    first.release().await.unwrap();
    guard(same).await.release().await.unwrap();
    settled().await;
    assert!(waiting.iter().all(|waiting| !waiting.is_finished()));
    assert_eq!(stage.sent("release").len(), 1);
    waiting.iter().for_each(JoinHandle::abort);
}

#[tokio::test(start_paused = true)]
async fn a_lease_goes_back_if_those_who_wait_want_it_otherwise() {
    let (stage, client) = relaying([Step::Grant, Step::Busy, Step::Busy]);
    let first = lock(&client).acquire().await.unwrap();
    let other = || lock(&client).ttl(TTL / 2);
    let (one, two) = (waiter(other()).await, waiter(other()).await);
    first.release().await.unwrap();
    settled().await;
    assert_eq!(stage.sent("release").len(), 1);
    assert!(!one.is_finished() && !two.is_finished(), "their lease would have another length");
    one.abort();
    two.abort();
}

#[tokio::test(start_paused = true)]
async fn switched_off_every_waiter_asks() {
    let acquire = steps([Step::Grant, Step::Busy, Step::Busy, Step::Busy, Step::Busy]);
    let stage = Stage { acquire, range: RANGE, ..Stage::default() };
    let (stage, client) = stage.client_with(|builder| builder.holders_per_grant(0));
    let first = lock(&client).acquire().await.unwrap();
    let waiting: [Waiting; 4] = waiters(&client).await;
    first.release().await.unwrap();
    assert_eq!((stage.sent("acquire").len(), stage.sent("release").len()), (5, 1));
    waiting.iter().for_each(JoinHandle::abort);
    let slow = Stage { acquire: steps([Step::Slow(Duration::from_secs(1)); 3]), range: RANGE, ..Stage::default() };
    let (stage, client) = slow.client_with(|builder| builder.holders_per_grant(0));
    let waiting: [Waiting; 3] = waiters(&client).await;
    assert_eq!(stage.sent("acquire").len(), 3, "also while the first has no answer");
    waiting.iter().for_each(JoinHandle::abort);
    let (_, client) = Stage::default().client();
    let too_many = tenure_core::ClientBuilder::MAX_HOLDERS_PER_GRANT + 1;
    drop(client);
    let (stage, _) = Stage::default().client();
    let backend = tenure_core::driver::Backend::new(stage);
    let error = Client::builder(backend).holders_per_grant(too_many).build().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    let (stage, _) = Stage::default().client();
    let backend = tenure_core::driver::Backend::new(stage);
    Client::builder(backend).holders_per_grant(too_many - 1).build().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_left_is_passed_over() {
    let (stage, client) = relaying([Step::Grant, Step::Busy, Step::Busy]);
    let first = lock(&client).acquire().await.unwrap();
    let [leader, second, third, fourth] = waiters(&client).await;
    // The one that asked for all, one in the middle, and one in the instant in which it is given the lease.
    leader.abort();
    third.abort();
    settled().await;
    first.release().await.unwrap();
    second.abort();
    assert!(second.await.is_err(), "it was aborted before it could look");
    let fourth = guard(fourth).await;
    assert_eq!((fourth.fence().get(), stage.sent("release").len()), (9, 0));
    fourth.release().await.unwrap();
    settled().await;
    assert_eq!((stage.sent("release").len(), client.stats().holds), (1, 0));
    let asked = stage.sent("acquire");
    assert_eq!(stage.sent("abandon"), asked[1..], "nobody is left in the queue");
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_is_cancelled_at_any_moment_loses_nothing() {
    for turn in 0..10 {
        let (stage, client) = relaying([Step::Grant, Step::Busy, Step::Busy]);
        let held = lock(&client).acquire().await.unwrap();
        let token = *held.token();
        let [first, second, third] = waiters(&client).await;
        held.release().await.unwrap();
        let first = guard(first).await;
        // It is cancelled before, while or after it is passed the lease.
        if turn < 2 {
            second.abort();
        }
        drop(first);
        for _ in 2..turn {
            tokio::task::yield_now().await;
        }
        second.abort();
        drop(second.await);
        if turn % 2 == 0 {
            third.abort();
            drop(third.await);
        } else {
            guard(third).await.release().await.unwrap();
        }
        settled().await;
        assert_eq!(stage.sent("release"), [token], "turn {turn}");
        let stats = client.stats();
        assert_eq!((stats.holds, stats.waiters, stats.cleanups), (0, 0, 0), "turn {turn}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_last_that_left_gives_it_back() {
    let (stage, client) = relaying([Step::Grant, Step::Busy, Step::Busy]);
    let first = lock(&client).acquire().await.unwrap();
    let token = *first.token();
    let [only] = waiters(&client).await;
    first.release().await.unwrap();
    only.abort();
    settled().await;
    assert_eq!(stage.sent("release"), [token]);
    assert_eq!((client.stats().holds, client.stats().cleanups), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn what_nobody_takes_ends_after_two_seconds() {
    let (stage, client) = relaying([Step::Grant, Step::Busy, Step::Busy]);
    let (stalled_lock, first) = (lock(&client), lock(&client).acquire().await.unwrap());
    let token = *first.token();
    // Polled once, and then not any more, but not dropped either.
    let mut stalled = Box::pin(stalled_lock.acquire());
    assert!(is_pending(&mut stalled).await);
    let second = waiter(lock(&client)).await;
    first.release().await.unwrap();
    sleep(Duration::from_millis(1_900)).await;
    assert_eq!(stage.sent("release"), []);
    sleep(Duration::from_millis(200)).await;
    assert_eq!(stage.sent("release"), [token], "it goes back to the backend");
    assert!(!second.is_finished(), "the stage said that the lock is busy");
    let asked = *stage.sent("acquire").last().unwrap();
    stage.wakes.wake(&asked);
    assert_eq!(guard(second).await.token(), &asked);
    assert_eq!(stalled.await.unwrap().fence().get(), 7, "it lost its turn, and asked again");
}

#[tokio::test(start_paused = true)]
async fn nobody_depends_on_a_waiter_that_is_not_polled() {
    let (stage, client) = relaying([Step::Grant, Step::Busy, Step::Busy, Step::Grant, Step::Busy]);
    let (stalled_lock, first) = (lock(&client), lock(&client).acquire().await.unwrap());
    let mut stalled = Box::pin(stalled_lock.acquire());
    assert!(is_pending(&mut stalled).await);
    let second = waiter(lock(&client)).await;
    sleep(Duration::from_millis(20)).await;
    first.release().await.unwrap();
    // The turn of the one that is not polled comes first, and lapses.
    stage.wakes.wake(&stage.sent("acquire")[2]);
    sleep(Duration::from_millis(1_900)).await;
    assert_eq!(stage.sent("release").len(), 1);
    sleep(Duration::from_millis(200)).await;
    assert_eq!(stage.sent("release").len(), 2);
    stage.wakes.wake(stage.sent("acquire").last().unwrap());
    guard(second).await.check().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_lost_lease_is_not_passed_on() {
    let (stage, client) = relaying([Step::Grant, Step::Busy, Step::Busy]);
    let first = lock(&client).max_hold(Duration::from_millis(5)).acquire().await.unwrap();
    let waiting = waiter(lock(&client).max_hold(Duration::from_millis(5))).await;
    advance(Duration::from_millis(6)).await;
    assert_eq!(first.release().await.unwrap_err().kind(), ErrorKind::Lost);
    settled().await;
    assert!(!waiting.is_finished());
    assert_eq!((stage.sent("acquire").len(), stage.sent("release").len()), (2, 1));
    waiting.abort();
}

#[tokio::test(start_paused = true)]
async fn max_hold_counts_for_each_holder() {
    let (_stage, client) = relaying([Step::Grant, Step::Busy, Step::Busy]);
    let lock = lock(&client).max_hold(Duration::from_millis(8));
    let first = lock.acquire().await.unwrap();
    let waiting = waiter(lock.clone()).await;
    advance(Duration::from_millis(6)).await;
    first.release().await.unwrap();
    let second = guard(waiting).await;
    assert!(second.remaining() > Duration::from_millis(7), "{:?}", second.remaining());
    sleep(Duration::from_millis(10)).await;
    assert!(second.check().unwrap_err().is_lost());
}

#[tokio::test(start_paused = true)]
async fn what_was_passed_on_is_given_back_at_its_max_hold_though_its_holder_does_nothing() {
    let (stage, client) = relaying([Step::Grant, Step::Busy, Step::Busy]);
    let lock = lock(&client).max_hold(Duration::from_millis(500));
    let first = lock.acquire().await.unwrap();
    let waiting = waiter(lock.clone()).await;
    first.release().await.unwrap();
    let second = guard(waiting).await;
    sleep(Duration::from_millis(600)).await;
    assert_eq!(stage.sent("release").len() + stage.sent("abandon").len(), 2, "the hold, and the place in the queue");
    drop(second);
}

#[tokio::test(start_paused = true)]
async fn what_is_passed_on_is_renewed_with_the_token_that_the_backend_knows() {
    let (stage, client) = relaying([Step::Grant, Step::Busy, Step::Busy]);
    let first = lock(&client).acquire().await.unwrap();
    let token = *first.token();
    let [second] = waiters(&client).await;
    first.release().await.unwrap();
    let second = guard(second).await;
    sleep(TTL * 3).await;
    second.check().unwrap();
    let renewed = stage.sent("renew");
    assert!(renewed.len() >= 6 && renewed.iter().all(|one| *one == token), "{renewed:?}");
    drop(second);
    settled().await;
    assert_eq!(stage.sent("release"), [token]);
}

#[tokio::test(start_paused = true)]
async fn patience_is_each_waiters_own() {
    let (stage, client) = relaying([Step::Grant, Step::Busy, Step::Busy]);
    let first = lock(&client).acquire().await.unwrap();
    let [leader] = waiters(&client).await;
    let impatient = lock(&client);
    let impatient = tokio::spawn(async move { impatient.acquire_within(Duration::from_millis(50)).await });
    let started = tokio::time::Instant::now();
    assert!(impatient.await.unwrap().unwrap_err().is_timed_out());
    assert!(started.elapsed() < Duration::from_millis(60));
    assert!(!leader.is_finished());
    first.release().await.unwrap();
    stage.wakes.wake(&stage.sent("acquire")[1]);
    guard(leader).await.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_last_whose_time_is_up_is_out_of_the_queue() {
    let (stage, client) = relaying([Step::Grant, Step::Busy, Step::Busy]);
    let _first = lock(&client).acquire().await.unwrap();
    let impatient = || {
        let lock = lock(&client);
        tokio::spawn(async move { lock.acquire_within(Duration::from_millis(50)).await })
    };
    let (one, other) = (impatient(), {
        sleep(Duration::from_millis(1)).await;
        impatient()
    });
    assert!(one.await.unwrap().unwrap_err().is_timed_out());
    stage.abandon.lock().unwrap().push_back(Step::Slow(Duration::from_millis(200)));
    assert!(other.await.unwrap().unwrap_err().is_timed_out());
    assert_eq!(stage.sent("abandon"), stage.sent("acquire")[1..]);
    assert_eq!(client.stats().cleanups, 0, "it is acknowledged already");
}

#[tokio::test(start_paused = true)]
async fn what_ends_the_waiting_for_all_is_reported_to_all() {
    let refused = Step::Fail(ErrorKind::Denied);
    let (stage, client) = relaying([Step::Grant, Step::Busy, Step::Busy, refused, Step::Busy]);
    let _first = lock(&client).acquire().await.unwrap();
    let [leader, second, third] = waiters(&client).await;
    stage.wakes.wake(&stage.sent("acquire")[2]);
    settled().await;
    for waiting in [second, third] {
        assert!(waiting.is_finished());
        assert_eq!(waiting.await.unwrap().unwrap_err().kind(), ErrorKind::Denied);
    }
    assert!(!leader.is_finished(), "it has a place of its own");
    leader.abort();
}

#[tokio::test(start_paused = true)]
async fn who_waits_along_learns_of_an_outage_as_soon_as_who_asks() {
    let (_stage, client) = relaying(vec![Step::Fail(ErrorKind::Unavailable); 1_000]);
    let start = tokio::time::Instant::now();
    let waiting: [Waiting; 4] = waiters(&client).await;
    for one in waiting {
        assert_eq!(one.await.unwrap().unwrap_err().kind(), ErrorKind::Unavailable);
    }
    assert!(start.elapsed() <= Duration::from_secs(8), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_waited_out_for_all() {
    let fails = [ErrorKind::Unavailable, ErrorKind::Indeterminate].map(Step::Fail);
    let (stage, client) = relaying([Step::Grant, Step::Busy, fails[0], fails[1], Step::Grant]);
    let _first = lock(&client).acquire().await.unwrap();
    let [leader, second] = waiters(&client).await;
    leader.abort();
    sleep(Duration::from_secs(3)).await;
    let second = guard(second).await;
    let asked: Vec<OwnerToken> = stage.sent("acquire")[2..].to_vec();
    assert!(asked.len() == 3 && asked.iter().all(|token| token == second.token()), "one asks, again and again");
}

#[tokio::test(start_paused = true)]
async fn closing_ends_all_waits_and_gives_back_what_was_passed_on() {
    let (stage, client) = relaying([Step::Grant, Step::Busy, Step::Busy]);
    let first = lock(&client).acquire().await.unwrap();
    let token = *first.token();
    let [second, third] = waiters(&client).await;
    first.release().await.unwrap();
    let second = guard(second).await;
    client.close(Duration::from_secs(5)).await.unwrap();
    assert_eq!(third.await.unwrap().unwrap_err().kind(), ErrorKind::Closed);
    assert!(second.check().unwrap_err().is_lost());
    assert_eq!(stage.sent("release"), [token]);
    drop(second);
}

#[test]
fn waiters_continue_when_the_runtime_ends_that_asked_for_them() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (stage, client) = relaying([Step::Grant, Step::Busy, Step::Busy]);
    let (one, other) = (runtime(), runtime());
    let first = one.block_on(lock(&client).acquire()).unwrap();
    let _there = one.block_on(async { [waiter(lock(&client)).await, waiter(lock(&client)).await] });
    let here = other.block_on(waiter(lock(&client)));
    assert_eq!(stage.sent("acquire").len(), 3, "a task of the first runtime asks for all");
    std::mem::forget(first);
    drop(one);
    let granted = other.block_on(async { tokio::time::timeout(TTL / 2, here).await });
    assert_eq!(granted.unwrap().unwrap().unwrap().fence().get(), 7);
}

#[tokio::test(start_paused = true)]
async fn who_won_alone_is_lined_up_behind_by_nobody() {
    let (stage, client) = relaying([Step::Busy, Step::Busy, Step::Grant]);
    let alone = waiter(lock(&client)).await;
    stage.wakes.wake(&stage.sent("acquire")[0]);
    settled().await;
    stage.wakes.wake(&stage.sent("acquire")[0]);
    let alone = guard(alone).await;
    let asked = stage.sent("acquire").len();
    let _next = waiter(lock(&client)).await;
    assert_eq!(stage.sent("acquire").len(), asked + 1, "whoever comes next asks at once");
    drop(alone);
}

/// The task that won for all asks for nothing while that lease goes from one to the next, and again as soon as it serves nobody more.
#[tokio::test(start_paused = true)]
async fn who_waits_for_all_asks_when_the_last_has_the_lease_that_it_may_serve() {
    let stage = Stage {
        acquire: steps([Step::Grant, Step::Busy, Step::Busy, Step::Grant, Step::Busy]),
        range: RANGE,
        ..Stage::default()
    };
    let (stage, client) = stage.client_with(|builder| builder.holders_per_grant(3));
    let first = lock(&client).acquire().await.unwrap();
    let [second, third, fourth, _fifth] = waiters(&client).await;
    sleep(Duration::from_millis(11)).await;
    first.release().await.unwrap();
    stage.wakes.wake(&stage.sent("acquire")[2]);
    guard(second).await.release().await.unwrap();
    let third = guard(third).await;
    assert_eq!(stage.sent("acquire").len(), 4, "another one may have it next");
    third.release().await.unwrap();
    let _fourth = guard(fourth).await;
    assert_eq!(stage.sent("acquire").len(), 5, "it is the last one");
}

#[tokio::test(start_paused = true)]
async fn who_comes_after_the_last_of_a_lease_that_was_won_for_all_asks_at_once() {
    let (stage, client) = relaying([Step::Grant, Step::Busy, Step::Busy, Step::Grant]);
    let first = lock(&client).acquire().await.unwrap();
    let [second, third] = waiters(&client).await;
    sleep(Duration::from_millis(11)).await;
    first.release().await.unwrap();
    stage.wakes.wake(&stage.sent("acquire")[2]);
    guard(second).await.release().await.unwrap();
    guard(third).await.release().await.unwrap();
    let fourth = guard(waiter(lock(&client)).await).await;
    assert_eq!(stage.sent("acquire").last(), Some(fourth.token()));
}

/// A waiter that had nobody behind it wins by itself just when somebody joins.
#[tokio::test(start_paused = true)]
async fn who_joins_one_that_wins_just_then_waits_for_its_lease_and_asks_for_none() {
    let (stage, client) = relaying([Step::Grant, Step::Busy, Step::Grant, Step::Busy]);
    let first = lock(&client).acquire().await.unwrap();
    let second = waiter(lock(&client)).await;
    sleep(Duration::from_millis(11)).await;
    first.release().await.unwrap();
    let joins = lock(&client);
    let third = tokio::spawn(async move { joins.acquire().await });
    stage.wakes.wake(&stage.sent("acquire")[1]);
    let second = guard(second).await;
    assert_eq!(stage.sent("acquire").len(), 3);
    second.release().await.unwrap();
    let third = guard(third).await;
    assert_eq!((third.fence().get(), stage.sent("acquire").len()), (8, 3), "without a request");
}

/// Two locks that are asked for at the same moment have nothing to do with each other.
#[tokio::test(start_paused = true)]
async fn who_asks_for_another_lock_asks_for_itself() {
    let slow = Step::Slow(Duration::from_millis(5));
    let (stage, client) = relaying([slow, slow]);
    let asking = ["a", "b"].map(|name| {
        let lock = client.lock(name).ttl(TTL);
        tokio::spawn(async move { lock.acquire().await })
    });
    settled().await;
    let asked = stage.sent("acquire");
    for (asking, token) in asking.into_iter().zip(asked) {
        assert_eq!(*asking.await.unwrap().unwrap().token(), token);
    }
}

/// Also of one that was won for all, and belonged to nobody until then.
#[tokio::test(start_paused = true)]
async fn what_was_won_for_all_is_given_back_at_the_max_hold_of_who_got_it() {
    let (stage, client) = relaying([Step::Grant, Step::Busy, Step::Busy, Step::Grant]);
    let lock = lock(&client).max_hold(Duration::from_millis(500));
    let first = lock.acquire().await.unwrap();
    let [second, _third] = [waiter(lock.clone()).await, waiter(lock.clone()).await];
    sleep(Duration::from_millis(11)).await;
    first.release().await.unwrap();
    stage.wakes.wake(&stage.sent("acquire")[2]);
    let second = guard(second).await;
    sleep(Duration::from_millis(510)).await;
    assert_eq!(stage.sent("release").len(), 2, "though its holder does nothing");
    drop(second);
}

#[tokio::test(start_paused = true)]
async fn a_hold_that_was_passed_on_counts_as_one() {
    let stage = Stage { acquire: steps([Step::Grant, Step::Busy, Step::Busy]), range: RANGE, ..Stage::default() };
    let (_stage, client) = stage.client_with(|builder| builder.max_holds(3));
    let first = lock(&client).acquire().await.unwrap();
    let [second, third] = waiters(&client).await;
    first.release().await.unwrap();
    guard(second).await.release().await.unwrap();
    let _third = guard(third).await;
    let _others = [client.lock("b").acquire().await.unwrap(), client.lock("c").acquire().await.unwrap()];
    let error = client.lock("d").acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LimitReached, "{error}");
}

/// No time at all is no time to stand for.
#[tokio::test(start_paused = true)]
async fn a_hold_that_is_to_last_for_at_least_no_time_is_passed_on_as_any_other() {
    let (stage, client) = relaying([Step::Grant, Step::Busy, Step::Busy]);
    let lock = lock(&client).at_least(Duration::ZERO);
    let first = lock.acquire().await.unwrap();
    let second = waiter(lock.clone()).await;
    first.release().await.unwrap();
    assert_eq!((guard(second).await.fence().get(), stage.sent("release").len()), (8, 0));
}
