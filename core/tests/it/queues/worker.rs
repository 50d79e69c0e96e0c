//! What a worker counts and tells, and when it stops by itself.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure_core::ErrorKind;
use tenure_core::queue::Undecodable;
use tenure_core::queue::{Ending, Job, Outcome, Queue, RetryPolicy, WorkerEvent};
use tenure_memory::Operation;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use crate::queues::stage::{Mishap, ms, plan, staged};

const LONG: Duration = Duration::from_secs(60);

async fn push(queue: &Queue<String>, texts: &[&str]) {
    for text in texts {
        queue.push(&(*text).to_owned()).await.unwrap();
    }
}

/// Waits, on the paused clock.
async fn until(what: &str, mut done: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !done().await {
            tokio::time::sleep(ms(10)).await;
        }
    };
    timeout(LONG, waiting).await.unwrap_or_else(|_| panic!("{what}"));
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_is_refused_lets_its_handlers_finish_and_stops_with_the_error() {
    let (stage, _, _, queue) = staged();
    push(&queue, &["x"]).await;
    let mut worker = queue.worker().start(async |_: Job<String>| tokio::time::sleep(ms(5_000)).await).unwrap();
    tokio::time::sleep(ms(1_000)).await;
    plan(&stage.receives, [Mishap::Fail(ErrorKind::Denied)]);
    let start = Instant::now();
    let error = timeout(LONG, worker.join()).await.expect("it stops").unwrap_err();
    assert!(start.elapsed() >= ms(4_000), "the handler finished");
    assert_eq!(error.kind(), ErrorKind::Denied);
    assert_eq!(worker.join().await.unwrap_err().kind(), ErrorKind::Denied, "it says so again");
    let stats = worker.shutdown(ms(1_000)).await;
    assert_eq!((stats.handled, stats.receive_failed), (1, 1));
    assert_eq!(stats.last_error.map(|error| error.kind()), Some(ErrorKind::Denied));
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_waited_out_and_counted() {
    let (stage, _, client, queue) = staged();
    plan(&stage.receives, [Mishap::Fail(ErrorKind::Unavailable), Mishap::Fail(ErrorKind::Indeterminate)]);
    push(&queue, &["x"]).await;
    let mut worker = queue.worker().start(async |_: Job<String>| ()).unwrap();
    until("it is handled", async || worker.stats().handled == 1).await;
    let stats = worker.stats();
    assert_eq!((stats.receive_failed, stats.failed, stats.unconfirmed), (2, 0, 0));
    client.close(LONG).await.unwrap();
    timeout(LONG, worker.join()).await.expect("it stops").expect("a client that is closed is no error");
}

#[tokio::test(start_paused = true)]
async fn a_worker_pauses_after_each_receive_that_fails() {
    let (stage, _, _, queue) = staged();
    plan(&stage.receives, [Mishap::Fail(ErrorKind::Unavailable); 10]);
    push(&queue, &["x"]).await;
    let start = Instant::now();
    let worker = queue.worker().start(async |_: Job<String>| ()).unwrap();
    until("it is handled", async || worker.stats().handled == 1).await;
    assert!(start.elapsed() >= ms(1_000), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn an_outage_of_the_lock_of_a_message_is_waited_out_like_a_holder() {
    let (_, memory, _, queue) = staged();
    memory.faults().fail_next(Operation::Acquire, ErrorKind::Unavailable);
    queue.push(&"x".to_owned()).lock("l").await.unwrap();
    let worker = queue.worker().start(async |_: Job<String>| ()).unwrap();
    until("it is handled", async || worker.stats().handled == 1).await;
    assert_eq!((worker.stats().parked, worker.stats().retried), (1, 0));
    memory.faults().fail_next(Operation::Acquire, ErrorKind::Denied);
    queue.push(&"y".to_owned()).lock("l").await.unwrap();
    until("it is handled", async || worker.stats().handled == 2).await;
    assert_eq!((worker.stats().parked, worker.stats().retried), (1, 1));
}

#[test]
fn a_worker_whose_runtime_ends_says_so() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (one, other) = (runtime(), runtime());
    let (_, _, _, queue) = staged();
    let mut worker = one.block_on(async { queue.worker().start(async |_: Job<String>| ()) }).unwrap();
    drop(one);
    let error = other.block_on(worker.join()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Indeterminate);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_returns_though_a_handler_blocks_its_thread_and_names_its_message() {
    let (_, _, _, queue) = staged();
    queue.push(&"x".to_owned()).id("blocks").await.unwrap();
    let (go_on, blocked) = std::sync::mpsc::channel::<()>();
    let blocked = Mutex::new(blocked);
    let worker = queue.worker().start(move |_: Job<String>| {
        let _ = blocked.lock().unwrap().recv_timeout(LONG);
        async {}
    });
    let worker = worker.unwrap();
    while worker.stats().running.is_empty() {
        std::thread::sleep(ms(5)); // the thread that looks after the runtime's timers may be the blocked one
    }
    let start = std::time::Instant::now();
    let stats = worker.shutdown(ms(100)).await;
    assert!(start.elapsed() < LONG / 2, "{:?}", start.elapsed());
    assert_eq!(stats.running.iter().map(ToString::to_string).collect::<Vec<_>>(), ["blocks"]);
    assert_eq!((stats.handled, stats.returned), (0, 0));
    go_on.send(()).unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_one_worker_cannot_decode_waits_for_one_that_can() {
    let (_, _, client, _) = staged();
    let bytes = client.queue_of_bytes("notes").unwrap();
    let texts = client.queue_with("notes", tenure_core::queue::Text).unwrap();
    bytes.push(&b"\xff".to_vec()).await.unwrap();
    let old = texts.worker().start(async |_: Job<String>| ()).unwrap();
    until("it was tried", async || old.stats().undecodable == 2).await;
    let stats = old.abort().await;
    assert_eq!((stats.retried, stats.dead, stats.handled), (2, 0, 0));
    let new = bytes.worker().start(async |job: Job<Vec<u8>>| {
        assert!(job.last_failure.unwrap().as_str().starts_with("undecodable"));
    });
    let new = new.unwrap();
    until("it is handled", async || new.stats().handled == 1).await;
    new.abort().await;

    // In the end, or at once, it is dead.
    bytes.push(&b"\xff".to_vec()).await.unwrap();
    let start = Instant::now();
    let old = texts.worker().start(async |_: Job<String>| ()).unwrap();
    while old.stats().dead == 0 {
        tokio::time::sleep(ms(1_000)).await;
    }
    assert_eq!(old.abort().await.retried, 9);
    assert!((LONG * 15..LONG * 32).contains(&start.elapsed()), "{:?}", start.elapsed());
    bytes.push(&b"\xff".to_vec()).await.unwrap();
    let strict = texts.worker().undecodable(Undecodable::Dead).start(async |_: Job<String>| ()).unwrap();
    until("it is dead", async || strict.stats().dead == 1).await;
    assert_eq!((strict.stats().retried, strict.stats().undecodable), (0, 1));
    strict.abort().await;
}

#[tokio::test(start_paused = true)]
async fn a_delay_that_the_backend_does_not_keep_is_a_failure_that_says_so() {
    for outcome in [Outcome::RetryAfter(Duration::MAX, None), Outcome::Later(Duration::MAX)] {
        let (_, _, _, queue) = staged();
        queue.push(&"x".to_owned()).id("x").await.unwrap();
        let worker = queue.worker().retry(RetryPolicy::fixed(LONG));
        let worker = worker.start(move |_: Job<String>| std::future::ready(outcome.clone())).unwrap();
        until("it has failed", async || worker.stats().retried == 1).await;
        let info = queue.get(&tenure_core::queue::MessageId::named("x").unwrap()).await.unwrap().unwrap();
        assert!(info.due_in <= LONG && info.reason.unwrap().as_str().contains("is longer than"), "{:?}", info.due_in);
        assert_eq!(worker.abort().await.put_off, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn every_message_counts_once_and_is_reported_whatever_the_hook_does() {
    let (_, _, client, queue) = staged();
    let held = client.lock("taken").acquire().await.unwrap();
    let reported = Arc::new(Mutex::new(Vec::new()));
    let (tell, texts) = (Arc::clone(&reported), ["done", "failed", "rejected", "panics", "slow"]);
    push(&queue, &texts).await;
    queue.push(&"locked".to_owned()).lock("taken").await.unwrap();
    let worker = queue
        .worker()
        .retry(RetryPolicy::fixed(LONG * 10))
        .lock_back_off(LONG * 10)
        .on_event(move |event| {
            tell.lock().unwrap().push(event.clone());
            std::panic::resume_unwind(Box::new("the hook")); // does no harm
        })
        .start(async |job: Job<String>| match job.value.as_str() {
            "failed" => Outcome::Retry(None),
            "rejected" => Outcome::Dead(None),
            "panics" => std::panic::resume_unwind(Box::new("oh no")),
            "slow" => std::future::pending().await,
            _ => Outcome::Done,
        })
        .unwrap();
    until("all but one are settled", async || reported.lock().unwrap().len() == 11).await;
    let stats = worker.shutdown(ms(100)).await;
    assert_eq!((stats.handled, stats.retried, stats.dead, stats.parked, stats.returned), (1, 2, 1, 1, 1));
    assert_eq!((stats.stale, stats.unconfirmed, stats.failed, stats.panicked, stats.lost), (0, 0, 0, 1, 0));
    assert!(stats.last_error.is_none() && stats.receive_failed == 0 && stats.undecodable == 0);
    let reported = reported.lock().unwrap().clone();
    let began = reported.iter().filter(|event| matches!(event, WorkerEvent::Began { attempt: 1, .. })).count();
    let endings = reported.iter().filter_map(|event| match event {
        WorkerEvent::Ended { ending, settled: Ok(_), .. } => Some(ending),
        _ => None,
    });
    let endings: Vec<&Ending> = endings.collect();
    assert_eq!((began, endings.len()), (6, 6));
    let panicked =
        endings.iter().any(|ending| matches!(ending, Ending::Panicked(reason) if reason.as_str().ends_with("oh no")));
    assert!(panicked && endings.contains(&&Ending::Stopped), "{endings:?}");
    assert!(matches!(reported.last(), Some(WorkerEvent::Stopped { error: None })), "{:?}", reported.last());
    held.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_continues_in_the_background_has_not_failed() {
    let (_, memory, client, queue) = staged();
    push(&queue, &["a", "b", "c"]).await;
    let worker = queue.worker().start(async |_: Job<String>| std::future::pending::<()>().await).unwrap();
    until("all are in flight", async || queue.stats().await.unwrap().in_flight == 3).await;
    memory.faults().outage();
    let stats = worker.abort().await;
    assert_eq!((stats.unconfirmed, stats.failed, stats.returned), (3, 0, 0));
    memory.faults().heal();
    until("nothing is left to undo", async || client.stats().cleanups == 0).await;
    let back = queue.try_receive_many(3).await.unwrap();
    assert_eq!(back.iter().map(tenure_core::queue::Delivery::attempt).collect::<Vec<_>>(), [1, 1, 1]);
}

#[tokio::test(start_paused = true)]
async fn a_settlement_that_is_refused_has_failed_and_a_lease_that_is_not_extended_is_lost() {
    let (stage, memory, _, queue) = staged();
    push(&queue, &["x"]).await;
    let worker = queue
        .clone()
        .lease(ms(1_000))
        .worker()
        .start(async |_: Job<String>| tokio::time::sleep(ms(500)).await)
        .unwrap();
    until("it is in flight", async || queue.stats().await.unwrap().in_flight == 1).await;
    plan(&stage.settles, [Mishap::Fail(ErrorKind::Denied)]);
    until("refused", async || worker.stats().failed == 1).await;
    assert_eq!(worker.stats().last_error.unwrap().kind(), ErrorKind::Denied);
    until("delivered again and done", async || worker.stats().handled == 1).await;
    worker.shutdown(ms(1_000)).await;

    let slow = queue.clone().lease(ms(1_000)).worker().start(async |_: Job<String>| std::future::pending::<()>().await);
    let slow = slow.unwrap();
    push(&queue, &["y"]).await;
    memory.faults().delay(Operation::Extend, LONG);
    until("lost", async || slow.stats().lost == 1).await;
    let stats = slow.abort().await;
    assert_eq!((stats.retried, stats.dead, stats.handled), (1, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn the_lock_of_a_message_is_held_for_two_thirds_of_its_lease_by_default() {
    for (reported, ttl) in [(None, 20_000), (Some(ms(7_000)), 7_000)] {
        let (_, _, client, queue) = staged();
        queue.push(&"x".to_owned()).lock("l").await.unwrap();
        let worker = queue.clone().lease(ms(30_000)).worker();
        let worker = if let Some(ttl) = reported { worker.lock_ttl(ttl) } else { worker };
        let worker = worker.start(async |_: Job<String>| std::future::pending::<()>().await).unwrap();
        until("it is in flight", async || queue.stats().await.unwrap().in_flight == 1).await;
        let left = client.lock("l").inspect().await.unwrap().holder.unwrap().remaining.unwrap();
        assert!(left <= ms(ttl) && left >= ms(ttl - 1_000), "{left:?}");
        worker.abort().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_extension_that_fails_is_repeated_at_a_twelfth_of_the_lease() {
    let (stage, _, _, queue) = staged();
    push(&queue, &["x"]).await;
    plan(&stage.extends, [Mishap::Fail(ErrorKind::Unavailable); 1_000]);
    let worker = queue.lease(ms(1_200)).worker().start(async |_: Job<String>| std::future::pending::<()>().await);
    let worker = worker.unwrap();
    until("lost", async || worker.stats().lost == 1).await;
    let tries = stage.extended.lock().unwrap().len();
    assert!((6..=11).contains(&tries), "{tries}");
    worker.abort().await;
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_takes_too_long_is_dropped_and_has_failed() {
    let (_, _, _, queue) = staged();
    queue.push(&"x".to_owned()).max_attempts(2).await.unwrap();
    let start = Instant::now();
    let worker = queue
        .clone()
        .lease(ms(900))
        .worker()
        .retry(RetryPolicy::fixed(ms(1_000)))
        .handler_timeout(ms(3_000))
        .start(async |_: Job<String>| std::future::pending::<()>().await)
        .unwrap();
    until("it is dead", async || worker.stats().dead == 1).await;
    assert!(start.elapsed() >= ms(7_000) && start.elapsed() < ms(7_100), "{:?}", start.elapsed());
    let stats = worker.shutdown(ms(0)).await;
    assert_eq!((stats.timed_out, stats.retried, stats.returned), (2, 1, 0));
    let letter = queue.dead_letters().list(None, 1).await.unwrap().letters.remove(0);
    assert_eq!(letter.reason.unwrap().as_str(), "the handler took longer than 3s");
    let refused = queue.worker().handler_timeout(Duration::ZERO).start(async |_: Job<String>| ());
    assert_eq!(refused.map(drop).unwrap_err().kind(), ErrorKind::InvalidArgument);
}

#[tokio::test(start_paused = true)]
async fn a_handler_is_notified_when_its_worker_stops_also_by_itself() {
    for by_itself in [false, true] {
        let (stage, _, _, queue) = staged();
        push(&queue, &["x"]).await;
        let mut worker = queue
            .worker()
            .start(async |job: Job<String>| {
                assert!(!job.is_shutting_down());
                job.shutting_down().await;
                if job.is_shutting_down() { Outcome::Done } else { Outcome::Dead(None) }
            })
            .unwrap();
        until("it is in flight", async || queue.stats().await.unwrap().in_flight == 1).await;
        if by_itself {
            plan(&stage.receives, [Mishap::Fail(ErrorKind::Denied)]);
            timeout(LONG, worker.join()).await.expect("it stops").unwrap_err();
        }
        let stats = timeout(LONG, worker.shutdown(LONG)).await.expect("the handler ends");
        assert_eq!((stats.handled, stats.returned), (1, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_is_woken_behind_the_end_of_its_lease_or_lock_does_not_continue() {
    for (lease, lock_ttl, ending) in [(ms(400), LONG, Ending::LeaseLost), (LONG, ms(400), Ending::LockLost)] {
        let (_, _, client, queue) = staged();
        queue.push(&"x".to_owned()).lock("l").await.unwrap();
        let (begun, go_on, went_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()), Arc::new(Mutex::new(false)));
        let (tell, wait, went) = (Arc::clone(&begun), Arc::clone(&go_on), Arc::clone(&went_on));
        let endings = Arc::new(Mutex::new(Vec::new()));
        let reported = Arc::clone(&endings);
        let worker = queue.lease(lease).worker().lock_ttl(lock_ttl).on_event(move |event| {
            if let WorkerEvent::Ended { ending, .. } = event {
                reported.lock().unwrap().push(ending.clone());
            }
        });
        let handler = move |job: Job<String>| {
            let (tell, wait, went) = (Arc::clone(&tell), Arc::clone(&wait), Arc::clone(&went));
            async move {
                tell.notify_one();
                wait.notified().await;
                *went.lock().unwrap() |= job.attempt == 1;
            }
        };
        let worker = worker.start(handler).unwrap();
        begun.notified().await;
        go_on.notify_one(); // it is woken, and then the process stands still: no timer was looked at since
        tokio::time::advance(ms(1_000)).await;
        until("it is over", async || !endings.lock().unwrap().is_empty()).await;
        assert!(!*went_on.lock().unwrap(), "it goes on though its time is over");
        assert_eq!(endings.lock().unwrap()[0], ending);
        worker.abort().await;
        client.close(LONG).await.unwrap();
    }
}
