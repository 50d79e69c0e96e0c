//! The engine's bounds and its independence of its own tasks: what still holds when something hangs or has ended.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use async_trait::async_trait;
use tenure_core::driver::{Backend, Checkup, Concern, Doctor, Topic};
use tenure_core::{Client, ErrorKind, LostReason};
use tokio::time::{Instant, sleep};

use crate::locks::stage::{Stage, Step, TTL, steps};

const HANG: Step = Step::Slow(Duration::from_secs(3600));

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap()
}

/// How often work is polled that is still there when its lease has ended.
fn polled<R: Future>(run: impl FnOnce(Pin<Box<dyn Future<Output = ()> + Send>>) -> R, ttl: Duration) -> usize {
    let count = Arc::<AtomicUsize>::default();
    let counted = Arc::clone(&count);
    let mut run = pin!(run(Box::pin(poll_fn(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        Poll::<()>::Pending
    }))));
    let mut context = Context::from_waker(Waker::noop());
    assert!(run.as_mut().poll(&mut context).is_pending());
    std::thread::sleep(ttl);
    assert!(run.as_mut().poll(&mut context).is_ready());
    count.load(Ordering::Relaxed)
}

#[tokio::test]
async fn work_is_not_polled_after_the_lease_though_no_timer_could_run() {
    let (_, client) = Stage::default().client();
    let ttl = Duration::from_millis(80);
    let guard = client.lock("a").fixed_ttl(ttl).acquire().await.unwrap();
    assert_eq!(polled(|work| guard.run(work), ttl), 1);
    let both = client.lock_all(["b", "c"]).fixed_ttl(ttl).acquire().await.unwrap();
    assert_eq!(polled(|work| both.run(work), ttl), 1);
}

#[tokio::test]
async fn a_release_behind_the_lease_says_so_whatever_the_backend_says() {
    let (stage, client) = Stage::default().client();
    let ttl = Duration::from_millis(80);
    let guard = client.lock("a").fixed_ttl(ttl).acquire().await.unwrap();
    std::thread::sleep(ttl);
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(stage.sent("release").len(), 1, "it is given back all the same");
}

#[tokio::test(start_paused = true)]
async fn a_request_is_not_waited_for_longer_than_its_lease() {
    let (_, client) = Stage { acquire: steps([HANG]), ..Stage::default() }.client();
    let (ttl, start) = (Duration::from_millis(200), Instant::now());
    let error = client.lock("a").ttl(ttl).try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Indeterminate);
    assert!(start.elapsed() <= ttl + Duration::from_millis(5), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_hangs_leaves_time_for_another() {
    let (_, client) = Stage { renew: steps([HANG]), ..Stage::default() }.client();
    let ttl = Duration::from_millis(600);
    let guard = client.lock("a").ttl(ttl).acquire().await.unwrap();
    sleep(ttl * 3).await;
    assert!(guard.is_held());
}

#[tokio::test(start_paused = true)]
async fn a_renewal_refused_as_not_held_is_a_loss() {
    let (_, client) = Stage { renew: steps([Step::Fail(ErrorKind::NotHeld)]), ..Stage::default() }.client();
    let guard = client.lock("a").ttl(TTL).acquire().await.unwrap();
    assert_eq!(guard.lost().await, LostReason::Gone);
}

#[tokio::test(start_paused = true)]
async fn what_is_not_undone_counts_against_the_cap() {
    let stage = Arc::new(Stage { release: steps([HANG; 3]), ..Stage::default() });
    let client = Client::builder(Backend::new(stage)).max_holds(1).build().unwrap();
    let lock = client.lock("a").ttl(TTL);
    drop(lock.acquire().await.unwrap());
    assert_eq!(lock.try_acquire().await.unwrap_err().kind(), ErrorKind::LimitReached);
    sleep(Duration::from_secs(30)).await;
    assert!(lock.try_acquire().await.unwrap().is_some());
}

#[test]
fn a_loss_is_reported_though_the_tasks_of_the_client_have_ended() {
    let (_, client) = Stage::default().client();
    let guard = runtime().block_on(async { client.lock("a").fixed_ttl(TTL).acquire().await.unwrap() });
    assert_eq!(runtime().block_on(async { guard.lost().await }), LostReason::Expired);
}

#[test]
fn a_renewal_that_ended_with_its_runtime_holds_up_no_release() {
    let (stage, client) = Stage { renew: steps([HANG]), ..Stage::default() }.client();
    let guard = runtime().block_on(async {
        let guard = client.lock("a").ttl(TTL).acquire().await.unwrap();
        while stage.sent("renew").is_empty() {
            sleep(Duration::from_millis(10)).await;
        }
        guard
    });
    runtime().block_on(guard.release()).unwrap();
}

#[test]
fn a_lease_is_renewed_on_the_next_runtime() {
    let (stage, client) = Stage { renew: steps([HANG]), ..Stage::default() }.client();
    let lock = client.lock("a").ttl(TTL);
    let guard = runtime().block_on(async {
        let guard = lock.acquire().await.unwrap();
        while stage.sent("renew").is_empty() {
            sleep(Duration::from_millis(10)).await;
        }
        guard
    });
    runtime().block_on(async {
        let _another = lock.acquire().await.unwrap(); // starts the tasks again
        sleep(TTL * 2).await;
        assert!(guard.is_held());
    });
}

#[tokio::test(start_paused = true)]
async fn what_may_have_been_applied_is_abandoned_until_that_is_acknowledged() {
    let fail = |kind| steps([Step::Fail(kind); 3]);
    let (acquire, abandon) = (fail(ErrorKind::Indeterminate), fail(ErrorKind::Unavailable));
    let (stage, client) = Stage { acquire, abandon, ..Stage::default() }.client();
    assert!(client.lock("a").ttl(TTL).try_acquire().await.is_err());
    sleep(Duration::from_secs(5)).await;
    assert_eq!((stage.sent("abandon").len(), client.stats().cleanups), (4, 0));
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_knows_of_no_server_says_whether_it_answers() {
    let (stage, client) = Stage::default().client();
    let checkup = client.doctor().await.unwrap();
    assert_eq!((checkup.findings().len(), checkup.findings()[0].topic), (1, Topic::Reach), "{checkup}");
    assert_eq!((checkup.concern(), stage.sent("release").len()), (Concern::Fine, 1));
    client.close(Duration::from_secs(1)).await.unwrap();
    for refused in [client.doctor().await.map(drop), client.ping().await] {
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Closed);
    }
    assert_eq!(stage.sent("release").len(), 1, "nothing is sent for a closed client");
}

/// Never done.
#[derive(Debug)]
struct Slow;

#[async_trait]
impl Doctor for Slow {
    async fn examine(&self) -> tenure_core::Result<Checkup> {
        std::future::pending().await
    }
}

#[tokio::test(start_paused = true)]
async fn an_examination_that_does_not_end_is_given_up() {
    let backend = Backend::new(Arc::new(Stage::default())).with_doctor(Arc::new(Slow));
    let client = Client::builder(backend).op_timeout(TTL).build().unwrap();
    let began = Instant::now();
    let reported = tokio::time::timeout(5 * TTL + Duration::from_secs(1), client.doctor()).await.expect("in time");
    assert_eq!(reported.unwrap_err().kind(), ErrorKind::Unavailable);
    assert!(began.elapsed() >= 5 * TTL, "an examination takes several requests: {:?}", began.elapsed());
}

#[test]
fn a_guard_is_renewed_and_freed_though_the_runtime_of_the_first_acquisition_has_ended() {
    let (stage, client) = Stage::default().client();
    let (first, second) = (runtime(), runtime());
    let ttl = Duration::from_millis(200);
    let take = async |name: &str| client.lock(name).ttl(ttl).acquire().await.unwrap();
    drop(first.block_on(take("there")));
    let guard = second.block_on(take("here"));
    drop(first);
    second.block_on(async {
        sleep(ttl * 3).await;
        guard.check().unwrap();
        drop(guard);
        let freed = async {
            while stage.sent("release").len() < 2 {
                sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(ttl, freed).await.expect("both are given back");
    });
}

/// Whoever tries the lock next does not meet the waiter; but the caller wants an answer.
#[tokio::test(start_paused = true)]
async fn a_waiter_that_is_refused_learns_it_at_once_though_its_place_is_still_to_be_given_up() {
    let acquire = steps([Step::Busy, Step::Fail(ErrorKind::Denied)]);
    let (stage, client) = Stage { acquire, abandon: steps([HANG]), ..Stage::default() }.client();
    let lock = client.lock("a");
    let waiting = tokio::spawn(async move { lock.acquire().await.map(drop) });
    sleep(Duration::from_millis(1)).await;
    stage.wakes.wake_all();
    let start = Instant::now();
    assert_eq!(waiting.await.unwrap().unwrap_err().kind(), ErrorKind::Denied);
    assert!(start.elapsed() <= Duration::from_millis(10), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_waiter_whose_time_is_up_waits_for_its_place_to_be_given_up_and_not_for_long() {
    let second = Duration::from_secs(1);
    for (gives_up, takes) in [(second / 2, second / 2), (second * 3600, second)] {
        let busy = steps([Step::Busy; 100]);
        let stage = Stage { acquire: busy, abandon: steps([Step::Slow(gives_up)]), ..Stage::default() };
        let (stage, client) = stage.client_with(|builder| builder.op_timeout(second * 4));
        let start = Instant::now();
        let error = client.lock("a").acquire_within(second).await.unwrap_err();
        assert!(error.is_timed_out(), "{error}");
        let took = start.elapsed() - second;
        assert!(took >= takes && took < takes + second / 10, "{took:?}");
        assert_eq!(stage.sent("abandon").len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn renewals_that_are_due_together_leave_in_batches_as_large_as_the_driver_takes() {
    let (stage, client) = Stage::default().client();
    let locks: Vec<_> = (0..25).map(|number| client.lock(number.to_string()).ttl(TTL)).collect();
    let mut guards = Vec::new();
    for lock in &locks {
        guards.push(lock.acquire().await.unwrap());
    }
    tokio::time::advance(TTL / 2).await; // the renewer was kept from its work
    sleep(Duration::from_millis(1)).await;
    let mut batches = stage.batches.lock().unwrap().clone();
    batches.sort_unstable();
    assert_eq!(batches, [5, 10, 10]);
}

#[tokio::test(start_paused = true)]
async fn what_is_won_while_the_client_closes_is_given_back_before_it_is_closed() {
    let (stage, client) =
        Stage { acquire: steps([Step::Slow(Duration::from_millis(100))]), ..Stage::default() }.client();
    let lock = client.lock("a");
    let trying = tokio::spawn(async move { lock.try_acquire().await });
    sleep(Duration::from_millis(10)).await;
    client.close(Duration::from_secs(1)).await.unwrap();
    assert_eq!(stage.sent("release").len() + stage.sent("abandon").len(), 1);
    assert!(!trying.await.unwrap().is_ok_and(|guard| guard.is_some_and(|guard| guard.is_held())));
}

#[tokio::test(start_paused = true)]
async fn so_many_clean_ups_are_on_their_way_and_no_more() {
    let (second, moment) = (Duration::from_secs(1), Duration::from_millis(10));
    let (stage, client) = Stage { release: steps([Step::Slow(second); 100]), ..Stage::default() }.client();
    for number in 0..100 {
        drop(client.lock(number.to_string()).acquire().await.unwrap());
    }
    sleep(moment).await;
    assert_eq!((stage.sent("release").len(), client.stats().cleanups), (64, 100));
    sleep(second).await;
    assert_eq!((stage.sent("release").len(), client.stats().cleanups), (100, 36));
}

#[tokio::test(start_paused = true)]
async fn what_the_backend_no_longer_knows_needs_no_second_release() {
    let (stage, client) = Stage { release: steps([Step::Fail(ErrorKind::NotHeld)]), ..Stage::default() }.client();
    drop(client.lock("a").acquire().await.unwrap());
    sleep(Duration::from_secs(1)).await;
    assert_eq!((stage.sent("release").len(), client.stats().cleanups), (1, 0));
}
