//! The blocking API, on memory and on a real server: renewals while the caller computes, losses, drops and panics.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use tenure::ForceReleased;
use tenure::blocking::{
    self, Client, Delivery, Lock, LockAll, LockAllGuard, LockGuard, Queue, Reentrant, ReentrantGuard,
};
use tenure::{ErrorKind, LostReason, OwnerId};
use tenure_testkit::{RedisOptions, RedisServer};

const TTL: Duration = Duration::from_millis(600);
const PATIENCE: Duration = Duration::from_secs(20);

/// Runs a test on a store of its own, through as many clients as there would be processes.
fn on_each_backend(test: impl Fn(&dyn Fn() -> Client)) {
    let url = format!("memory:{}", OwnerId::new());
    test(&|| blocking::connect(&url).unwrap());
    let server = RedisServer::start(RedisOptions::new()).unwrap();
    test(&|| blocking::connect(server.url()).unwrap());
}

/// Waits until the lock can be had.
fn becomes_free(lock: &Lock) {
    lock.acquire_within(PATIENCE).unwrap().release().unwrap();
}

#[test]
fn handles_and_guards_go_from_thread_to_thread() {
    fn shared<T: Send + Sync + 'static>() {}
    shared::<Client>();
    shared::<Lock>();
    shared::<LockGuard>();
    shared::<Reentrant>();
    shared::<ReentrantGuard>();
    shared::<LockAll>();
    shared::<LockAllGuard>();
    shared::<Queue<String>>();
    shared::<Delivery<String>>();
}

#[test]
fn work_that_takes_longer_than_the_ttl_keeps_the_lock() {
    on_each_backend(|connect| {
        let (one, other) = (connect(), connect());
        let guard = one.lock("a").ttl(TTL).acquire().unwrap();
        let since = Instant::now();
        while since.elapsed() < TTL * 3 {
            std::hint::black_box((0..10_000).sum::<u64>()); // this thread never sleeps
        }
        guard.check().unwrap();
        assert!(other.lock("a").try_acquire().unwrap().is_none());
        guard.release().unwrap();
        becomes_free(&other.lock("a"));
    });
}

#[test]
fn threads_take_turns() {
    on_each_backend(|connect| {
        let clients = [connect(), connect()];
        let (inside, turns) = (AtomicBool::new(false), AtomicU32::new(0));
        scope(|threads| {
            for number in 0..4 {
                let lock = clients[number % 2].lock("a");
                let (inside, turns) = (&inside, &turns);
                threads.spawn(move || {
                    for _ in 0..25 {
                        lock.with(|_| {
                            assert!(!inside.swap(true, Ordering::SeqCst), "two at once");
                            sleep(Duration::from_micros(200));
                            inside.store(false, Ordering::SeqCst);
                            turns.fetch_add(1, Ordering::SeqCst);
                        })
                        .unwrap();
                    }
                });
            }
        });
        assert_eq!(turns.into_inner(), 100);
    });
}

#[test]
fn patience_has_an_end_and_contention_is_a_value() {
    on_each_backend(|connect| {
        let (one, other) = (connect(), connect());
        let _held = one.lock("a").acquire().unwrap();
        let lock = other.lock("a");
        assert!(lock.try_acquire().unwrap().is_none());
        let error = lock.acquire_within(Duration::from_millis(50)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    });
}

#[test]
fn a_loss_is_seen_and_fails_the_work() {
    on_each_backend(|connect| {
        let client = connect();
        let lock = client.lock("a").fixed_ttl(TTL);
        let guard = lock.acquire().unwrap();
        assert_eq!(guard.lost_within(Duration::ZERO).unwrap(), None);
        assert!(guard.lost_within(PATIENCE).unwrap().is_some());
        assert_eq!(guard.check().unwrap_err().kind(), ErrorKind::Lost);

        let begun = AtomicBool::new(false);
        let error = lock.with(|guard| {
            begun.store(true, Ordering::SeqCst);
            while guard.is_held() {
                sleep(Duration::from_millis(5));
            }
        });
        assert!(begun.into_inner());
        assert_eq!(error.unwrap_err().kind(), ErrorKind::Lost);
    });
}

#[test]
fn a_hold_that_an_operator_took_fails_the_work() {
    on_each_backend(|connect| {
        let (one, other) = (connect(), connect());
        let lock = one.lock("a");
        let error = lock.with(|guard| {
            let name = guard.name().as_bytes();
            let theirs = other.lock(name);
            assert_eq!(theirs.force_release().unwrap(), ForceReleased::Released);
            assert!(guard.is_held(), "nothing was renewed meanwhile, so this client does not know yet");
        });
        assert_eq!(error.unwrap_err().kind(), ErrorKind::Lost);
    });
}

#[test]
fn an_operator_takes_a_lock_from_the_hold_that_was_looked_at_and_from_no_other() {
    on_each_backend(|connect| {
        let (one, other) = (connect(), connect());
        let (ours, theirs) = (one.lock("a"), other.lock("a"));
        let held = ours.acquire().unwrap();
        let stuck = theirs.inspect().unwrap().holder.expect("a holder").fence.expect("its fence");
        assert_eq!(stuck, held.fence());
        held.release().unwrap();
        let next = ours.acquire().unwrap();
        assert_eq!(theirs.force_release_if(stuck).unwrap(), ForceReleased::Changed);
        assert_eq!(theirs.force_release_if(next.fence()).unwrap(), ForceReleased::Released);
        assert_eq!(theirs.force_release_if(next.fence()).unwrap(), ForceReleased::NotHeld);
        assert_eq!(next.release().unwrap_err().kind(), ErrorKind::Lost);
    });
}

#[test]
fn a_fixed_lease_is_extended_and_its_loss_is_reported_to_other_threads() {
    on_each_backend(|connect| {
        let client = connect();
        let guard = client.lock("a").fixed_ttl(TTL).acquire().unwrap();
        guard.extend(PATIENCE).unwrap();
        assert!(guard.remaining() > PATIENCE / 2);
        let loss = guard.loss();
        guard.release().unwrap();
        assert!(!loss.is_lost(), "it was given back");

        let entry = client.reentrant("b", &OwnerId::new()).fixed_ttl(TTL).acquire().unwrap();
        entry.extend(TTL * 2).unwrap();
        let (loss, since) = (entry.loss(), Instant::now());
        assert!(!loss.is_lost());
        let watching = std::thread::spawn(move || blocking::block_on(async move { loss.lost().await }).unwrap());
        assert_eq!(watching.join().unwrap(), LostReason::Expired);
        assert!(since.elapsed() > TTL, "it was extended");
    });
}

#[test]
fn a_client_that_does_not_want_a_lock_waits_until_it_is_free() {
    on_each_backend(|connect| {
        let (one, other) = (connect(), connect());
        let guard = one.lock("a").acquire().unwrap();
        let released = AtomicBool::new(false);
        scope(|threads| {
            threads.spawn(|| {
                other.lock("a").until_free().unwrap();
                assert!(released.load(Ordering::SeqCst));
            });
            sleep(Duration::from_millis(100)); // so that it waits already, as a rule
            released.store(true, Ordering::SeqCst);
            guard.release().unwrap();
        });
        assert!(one.lock("a").inspect().unwrap().holder.is_none());
    });
}

#[test]
fn a_lock_given_back_soon_stays_taken_for_the_rest_of_its_span() {
    on_each_backend(|connect| {
        let (one, other) = (connect(), connect());
        let (since, span, lock) = (Instant::now(), TTL * 3, other.lock("a"));
        one.lock("a").at_least(span).with(|_| ()).unwrap();
        assert!(since.elapsed() < span, "giving it back waits for nobody");
        assert!(lock.try_acquire().unwrap().is_none());
        becomes_free(&lock);
        assert!(since.elapsed() >= span);
    });
}

#[test]
fn a_dropped_guard_and_a_panic_give_the_lock_back() {
    on_each_backend(|connect| {
        let (one, other) = (connect(), connect());
        let lock = one.lock("a");
        let guard = lock.acquire().unwrap();
        let before = Instant::now();
        drop(guard);
        assert!(before.elapsed() < Duration::from_secs(1), "dropping does not wait for anybody");
        becomes_free(&other.lock("a"));

        let panicked = catch_unwind(AssertUnwindSafe(|| lock.with(|_| panic!("on purpose")).unwrap()));
        assert!(panicked.is_err());
        becomes_free(&other.lock("a"));

        let guard = lock.acquire().unwrap();
        drop((lock, one)); // the client is gone before its guard
        drop(guard);
        becomes_free(&other.lock("a"));
    });
}

#[test]
fn an_owner_enters_again_from_any_thread() {
    on_each_backend(|connect| {
        let (one, other) = (connect(), connect());
        let me = OwnerId::new();
        let lock = one.reentrant("a", &me).ttl(TTL);
        let outer = lock.acquire().unwrap();
        let depth = scope(|threads| threads.spawn(|| lock.with(|inner| inner.depth())).join().unwrap()).unwrap();
        assert_eq!((outer.depth(), depth), (1, 2));
        assert!(other.reentrant("a", &OwnerId::new()).try_acquire().unwrap().is_none());
        outer.release().unwrap();
        becomes_free(&other.lock("a"));
    });
}

#[test]
fn several_locks_are_taken_all_or_none() {
    on_each_backend(|connect| {
        let (one, other) = (connect(), connect());
        let both = one.lock_all(["b", "a"]).ttl(TTL).label("both");
        let guards = both.acquire().unwrap();
        assert_eq!(guards.guards().iter().map(|guard| guard.name().as_bytes()).collect::<Vec<_>>(), [b"a", b"b"]);
        assert!(guards.is_held() && guards.remaining() <= TTL && guards.fence("b").is_some());
        assert_eq!(guards.lost_within(TTL * 2).unwrap(), None, "they are renewed");
        let theirs = LockAll::of(["a", "c"].map(|name| other.lock(name)));
        assert!(theirs.try_acquire().unwrap().is_none());
        assert_eq!(theirs.acquire_within(TTL / 10).unwrap_err().kind(), ErrorKind::TimedOut);
        guards.release().unwrap();
        assert_eq!(theirs.with(|guards| guards.guards().len()).unwrap(), 2);
        let taken = both.with(|_| other.lock("b").force_release().unwrap());
        assert_eq!(taken.unwrap_err().kind(), ErrorKind::Lost);
        drop(both.acquire().unwrap());
        becomes_free(&other.lock("a"));
    });
}

#[test]
fn a_hold_goes_to_another_process_or_to_async_code() {
    on_each_backend(|connect| {
        let (one, other) = (connect(), connect());
        let guard = one.lock("a").acquire().unwrap();
        let fence = guard.fence();
        let detached = guard.detach().unwrap();
        assert!(other.lock("a").try_acquire().unwrap().is_none());
        let adopted = other.adopt("a", detached.token, detached.fence).unwrap();
        assert_eq!(adopted.fence(), fence);
        let again = adopted.detach().unwrap();
        let adopted = one.lock("a").ttl(TTL).adopt(again.token, again.fence).unwrap().into_async();
        blocking::block_on(adopted.release()).unwrap().unwrap();
        becomes_free(&other.lock("a"));
    });
}

#[test]
fn a_health_check_needs_no_async_code() {
    on_each_backend(|connect| {
        let client = connect();
        client.ping().unwrap();
        assert!(!client.doctor().unwrap().findings().is_empty());
        let me = OwnerId::new();
        let lock = client.reentrant("a", &me);
        assert!(lock.held().unwrap().is_none());
        let held = lock.with(|_| lock.held().unwrap().expect("a hold")).unwrap();
        assert_eq!(held.owner, Some(me));
    });
}

#[test]
fn a_closed_client_says_so() {
    on_each_backend(|connect| {
        let client = connect();
        let guard = client.lock("a").acquire().unwrap();
        client.close(PATIENCE).unwrap();
        assert_eq!(guard.check().unwrap_err().kind(), ErrorKind::Lost);
        assert_eq!(client.lock("a").acquire().unwrap_err().kind(), ErrorKind::Closed);
    });
}

/// With more requests than one turn of a task has budget for.
#[test]
fn it_works_on_threads_of_another_runtime() {
    on_each_backend(|connect| {
        let client = connect();
        let many = |client: Client| async move {
            for _ in 0..300 {
                client.lock("a").acquire().unwrap().release().unwrap();
            }
        };
        let current = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        current.block_on(many(client.clone()));
        let held = client.lock("b").acquire().unwrap();
        let refused = current.block_on(async { client.lock("b").acquire_within(Duration::from_millis(20)) });
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::TimedOut, "a failure is reported too");
        held.release().unwrap();
        let several = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        several.block_on(several.spawn(many(client.clone()))).unwrap();
        // Also where one call is inside another one's future.
        blocking::block_on(many(client.clone())).unwrap();
        drop((current, several));
        client.lock("a").acquire().unwrap().release().unwrap();
    });
}

#[test]
fn on_the_background_thread_it_fails_instead_of_waiting_for_itself() {
    on_each_backend(|connect| {
        let client = connect();
        let error = blocking::block_on(async {
            tokio::spawn(async move { client.lock("a").acquire().unwrap_err() }).await.unwrap()
        });
        assert_eq!(error.unwrap().kind(), ErrorKind::InvalidArgument);
    });
}

mod queues;
