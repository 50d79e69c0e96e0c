//! The loss of a hold, watched by those who have not the guard; and work under a lock in one call.

use std::time::Duration;

use tenure_core::{Client, ErrorKind, Loss, LostReason, OwnerId};
use tenure_memory::MemoryDriver;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::locks::stage::{Stage, Step, TTL, steps};

const SECOND: Duration = Duration::from_secs(1);

fn client() -> Client {
    Client::new(MemoryDriver::new())
}

/// A task that waits for the end of the hold.
fn watch(loss: &Loss) -> JoinHandle<Option<LostReason>> {
    let loss = loss.clone();
    tokio::spawn(async move { loss.ended().await })
}

#[tokio::test(start_paused = true)]
async fn a_task_watches_while_another_one_releases() {
    let client = client();
    let guard = client.lock("a").acquire().await.unwrap();
    let loss = guard.loss();
    let watching = watch(&loss);
    sleep(2 * TTL).await;
    assert!(!watching.is_finished() && !loss.is_lost());
    guard.release().await.unwrap();
    assert_eq!(watching.await.unwrap(), None);
    assert_eq!((loss.is_lost(), loss.reason()), (false, None));
    assert!(timeout(2 * TTL, loss.lost()).await.is_err(), "a released lock is not lost");
}

#[tokio::test(start_paused = true)]
async fn it_tells_the_loss_and_outlives_the_guard() {
    let client = client();
    let guard = client.lock("a").fixed_ttl(SECOND).acquire().await.unwrap();
    let loss = guard.loss();
    let watching = watch(&loss);
    sleep(2 * SECOND).await;
    drop(guard);
    assert_eq!(watching.await.unwrap(), Some(LostReason::Expired));
    assert_eq!((loss.lost().await, loss.reason()), (LostReason::Expired, Some(LostReason::Expired)));
}

#[tokio::test(start_paused = true)]
async fn what_was_given_back_is_not_lost_with_the_lease_that_others_still_have() {
    let client = client();
    let entries = client.reentrant("a", &OwnerId::new()).fixed_ttl(5 * SECOND);
    let (outer, inner) = (entries.acquire().await.unwrap(), entries.acquire().await.unwrap());
    let (of_outer, of_inner) = (outer.loss(), inner.loss());
    let (outside, inside) = (watch(&of_outer), watch(&of_inner));
    inner.release().await.unwrap();
    assert_eq!(inside.await.unwrap(), None);
    sleep(6 * SECOND).await;
    assert_eq!(outside.await.unwrap(), Some(LostReason::Expired));
    assert_eq!((of_outer.is_lost(), of_inner.is_lost()), (true, false));
}

#[tokio::test(start_paused = true)]
async fn what_was_passed_on_is_not_lost_with_the_next_holder() {
    let client = client();
    let lock = client.lock("a").ttl(5 * SECOND);
    let before = lock.acquire().await.unwrap();
    let waiters: Vec<_> = (0..2)
        .map(|_| {
            let lock = lock.clone();
            tokio::spawn(async move { lock.acquire().await.unwrap() })
        })
        .collect();
    sleep(SECOND).await;
    before.release().await.unwrap(); // a fresh grant, which may be passed on
    let mut waiters = waiters.into_iter();
    let first = waiters.next().unwrap().await.unwrap();
    let (loss, fence) = (first.loss(), first.fence());
    let watching = watch(&loss);
    first.release().await.unwrap();
    let second = waiters.next().unwrap().await.unwrap();
    assert_eq!(second.fence().get(), fence.get() + 1, "it was passed on");
    assert_eq!(watching.await.unwrap(), None);
    client.close(SECOND).await.unwrap();
    assert!(!second.is_held());
    assert_eq!((second.loss().reason(), loss.reason()), (Some(LostReason::Closed), None));
}

#[tokio::test(start_paused = true)]
async fn of_several_locks_the_first_loss_is_reported() {
    let client = client();
    let locks = client.lock_all(["a", "b"]);
    let guards = locks.clone().acquire().await.unwrap();
    let (loss, released) = (guards.loss(), watch(&guards.loss()));
    guards.release().await.unwrap();
    assert_eq!((released.await.unwrap(), loss.is_lost()), (None, false));
    let guards = locks.max_hold(SECOND).acquire().await.unwrap();
    let loss = guards.loss();
    assert_eq!((loss.lost().await, loss.is_lost()), (LostReason::MaxHold, true));
}

#[tokio::test(start_paused = true)]
async fn with_takes_the_lock_for_the_work_and_gives_it_back() {
    let (stage, client) = Stage::default().client();
    let lock = client.lock("a");
    let kept = [1, 2, 3];
    let task = tokio::spawn(async move {
        let sum = lock.with(async |guard| kept.iter().sum::<u64>() + guard.fence().get()).await;
        (sum, lock)
    });
    let (sum, lock) = task.await.unwrap();
    assert_eq!(sum.unwrap(), 13);
    assert_eq!(stage.sent("release").len(), 1);
    let nothing: Result<(), std::fmt::Error> = lock.with(async |_| Err(std::fmt::Error)).await.unwrap();
    assert!(nothing.is_err(), "what fails in the work is the caller's");
}

#[tokio::test(start_paused = true)]
async fn with_drops_the_work_at_the_loss() {
    let client = client();
    let lock = client.lock("a").fixed_ttl(SECOND);
    let error = lock.with(async |_| sleep(TTL).await).await.unwrap_err();
    assert_eq!((error.kind(), error.message()), (ErrorKind::Lost, &*LostReason::Expired.to_string()));
    lock.with(async |_| ()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn with_tells_a_loss_that_the_release_found_and_no_other_failure() {
    let release = steps([Step::Lost, Step::Fail(ErrorKind::Unavailable)]);
    let (stage, client) = Stage { release, ..Stage::default() }.client();
    let lock = client.lock("a");
    assert_eq!(lock.with(async |_| ()).await.unwrap_err().kind(), ErrorKind::Lost);
    lock.with(async |_| ()).await.unwrap();
    client.close(TTL).await.unwrap();
    assert_eq!(stage.sent("release").len(), 3, "the failed release is carried on");
}

#[tokio::test(start_paused = true)]
async fn with_works_on_entries_and_on_several_locks() {
    let client = client();
    let lock = client.reentrant("a", &OwnerId::new()).fixed_ttl(SECOND);
    let depth = lock.with(async |outer| (outer.depth(), lock.with(async |inner| inner.depth()).await.unwrap())).await;
    assert_eq!(depth.unwrap(), (1, 2));
    assert!(lock.held().await.unwrap().is_none(), "both entries are left");
    assert!(lock.with(async |_| sleep(TTL).await).await.unwrap_err().is_lost());

    let locks = client.lock_all(["a", "b"]).fixed_ttl(SECOND);
    assert_eq!(locks.with(async |guards| guards.guards().len()).await.unwrap(), 2);
    assert!(locks.with(async |_| sleep(TTL).await).await.unwrap_err().is_lost());
    drop(timeout(SECOND, locks.acquire()).await.expect("all are given back").unwrap());
}

#[tokio::test(start_paused = true)]
async fn with_can_be_dropped_while_it_waits_and_while_it_works() {
    let client = client();
    let lock = client.lock("a");
    assert!(timeout(SECOND, lock.with(async |_| sleep(TTL).await)).await.is_err());
    let guard = timeout(SECOND, lock.acquire()).await.unwrap().unwrap();
    assert!(timeout(SECOND, lock.with(async |_| ())).await.is_err());
    guard.release().await.unwrap();
    sleep(SECOND).await;
    let stats = client.stats();
    assert_eq!((stats.holds, stats.waiters, stats.cleanups), (0, 0, 0));
    assert!(lock.try_acquire().await.unwrap().is_some());
}

#[tokio::test]
async fn the_first_check_after_a_blocked_runtime_says_lost() {
    let (client, ttl) = (client(), Duration::from_millis(200));
    let guard = client.lock("a").ttl(ttl).acquire().await.unwrap();
    std::thread::sleep(ttl); // no task runs meanwhile, not even the one that renews
    let error = guard.check().unwrap_err();
    assert_eq!((error.kind(), error.name()), (ErrorKind::Lost, Some(guard.name())));
    assert!(!guard.is_held() && guard.remaining().is_zero());
}

#[tokio::test(start_paused = true)]
async fn closing_ends_what_is_held_at_once_whatever_is_under_way() {
    let (_, client) = Stage { renew: steps([Step::Slow(5 * SECOND)]), ..Stage::default() }.client();
    let detached = client.lock("a").acquire().await.unwrap().detach().await.unwrap();
    let held = client.lock("b").fixed_ttl(TTL).acquire().await.unwrap();
    let adopter = client.clone();
    let asking = tokio::spawn(async move { adopter.adopt("a", detached.token, detached.fence).await.map(drop) });
    sleep(SECOND / 10).await;
    let closing = client.clone();
    let closing = tokio::spawn(async move { closing.close(TTL).await });
    sleep(SECOND / 10).await;
    assert!(!closing.is_finished(), "a request is under way");
    assert_eq!(held.state(), tenure_core::HoldState::Lost(LostReason::Closed));
    closing.await.unwrap().unwrap();
    drop(asking);
}
