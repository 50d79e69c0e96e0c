//! The queue types of core over the memory driver, on a paused clock: to the millisecond.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tenure_core::driver::{
    Attempts, Cancelled, Cause, DeadPlace, DelayQueue as _, DelayQueueExt as _, Extended, Extension, Healed, Lease,
    Listed, MessageState, NewMessage, Next, Payload, Pushed, ReceiveRequest, Rescheduled, Rest, Settled,
};
use tenure_core::queue::{Job, Message, OrPark, Outcome, Queue, QueueName, RetryPolicy};
use tenure_core::{Client, ErrorKind};
use tenure_memory::{MemoryDriver, Wakeups};
use tokio::time::Instant;

fn queue() -> (MemoryDriver, Client, Queue<String>) {
    let driver = MemoryDriver::new();
    let client = Client::new(driver.clone());
    let queue = client.queue_with("jobs", tenure_core::queue::Text).unwrap();
    (driver, client, queue)
}

const fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

#[tokio::test(start_paused = true)]
async fn a_message_comes_when_it_is_due_and_a_sooner_one_comes_first() {
    let (_, _, queue) = queue();
    let start = Instant::now();
    queue.push(&"late".into()).delay(ms(5000)).await.unwrap();
    let waiting = tokio::spawn({
        let queue = queue.clone();
        async move {
            let delivery = queue.receive().await.unwrap();
            let said = delivery.value().unwrap().clone();
            delivery.ack().await.unwrap();
            said
        }
    });
    tokio::time::sleep(ms(100)).await;
    queue.push(&"soon".into()).delay(ms(200)).await.unwrap();
    assert_eq!(waiting.await.unwrap(), "soon");
    assert!((300..310).contains(&start.elapsed().as_millis()), "{:?}", start.elapsed());
    let late = queue.receive().await.unwrap();
    assert!((5000..5010).contains(&start.elapsed().as_millis()), "{:?}", start.elapsed());
    assert_eq!(late.ack().await.unwrap(), Settled::Done);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_restarts_empty_forgets_its_queues() {
    let (driver, client, queue) = queue();
    queue.push(&"gone".into()).await.unwrap();
    driver.faults().restart_empty();
    assert!(queue.try_receive().await.unwrap().is_none());
    drop(client);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_receive_leaves_the_message_to_others() {
    let (_, _, queue) = queue();
    for polls in 0..6 {
        let mut receiving = Box::pin(queue.receive());
        for _ in 0..polls {
            tokio::select! { biased; _ = &mut receiving => break, () = tokio::task::yield_now() => {} }
        }
        queue.push(&"once".into()).await.unwrap();
        for _ in 0..polls {
            tokio::select! { biased; received = &mut receiving => { drop(received.unwrap().give_back().await); break }, () = tokio::task::yield_now() => {} }
        }
        drop(receiving);
        let delivery = queue.receive_within(ms(100)).await.unwrap().expect("nothing is lost");
        assert_eq!(delivery.attempt(), 1);
        delivery.ack().await.unwrap();
        let stats = queue.stats().await.unwrap();
        assert_eq!((stats.ready, stats.in_flight), (0, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn lost_wake_ups_delay_for_two_seconds_at_most() {
    let (driver, _, queue) = queue();
    driver.faults().set_wakeups(Wakeups::Lost);
    let waiting = tokio::spawn({
        let queue = queue.clone();
        async move { queue.receive().await.unwrap().ack().await.unwrap() }
    });
    tokio::time::sleep(ms(100)).await;
    let start = Instant::now();
    queue.push(&"x".into()).await.unwrap();
    waiting.await.unwrap();
    assert!(start.elapsed() <= ms(2000) && start.elapsed() > ms(1000), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_worker_retries_extends_and_shuts_down() {
    let (_, _, queue) = queue();
    queue.push(&"x".into()).await.unwrap();
    let tries = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&tries);
    let worker = queue
        .clone()
        .lease(ms(900))
        .worker()
        .retry(RetryPolicy::fixed(ms(50)))
        .start(move |job: Job<String>| {
            let counted = Arc::clone(&counted);
            async move {
                tokio::time::sleep(ms(5000)).await; // longer than the lease
                counted.fetch_add(1, Ordering::Relaxed);
                if job.attempt < 3 { Err("not yet") } else { Ok(()) }
            }
        })
        .unwrap();
    tokio::time::sleep(ms(15_500)).await;
    assert_eq!(tries.load(Ordering::Relaxed), 3);
    queue.push(&"y".into()).await.unwrap();
    tokio::time::sleep(ms(100)).await;
    let stats = worker.shutdown(ms(1000)).await;
    assert_eq!((stats.handled, stats.retried, stats.returned, stats.stale), (1, 2, 1, 0));
    let back = queue.try_receive().await.unwrap().expect("what was not finished is returned");
    assert_eq!((back.attempt(), back.cause()), (1, Cause::Returned));
}

#[tokio::test(start_paused = true)]
async fn a_parked_request_is_handled_when_its_lock_is_free() {
    let (_, client, queue) = queue();
    let lock = client.lock("account/7");
    let guard = lock.acquire().await.unwrap();
    let OrPark::Parked(Pushed::Stored(_)) = lock.or_park(&queue, &"transfer".into()).await.unwrap() else {
        panic!("the lock is taken")
    };
    let (done, mut handled) = tokio::sync::mpsc::unbounded_channel();
    let worker = queue
        .worker()
        .start(move |job: Job<String>| {
            done.send((job.attempt, job.lock_fence.is_some(), Instant::now())).unwrap();
            async { Outcome::Done }
        })
        .unwrap();
    tokio::time::sleep(ms(7000)).await;
    assert!(handled.try_recv().is_err(), "the lock is still taken");
    let freed = Instant::now();
    guard.release().await.unwrap();
    let (attempt, locked, at) = handled.recv().await.unwrap();
    assert!(attempt == 1 && locked && at - freed < ms(10), "{attempt} {locked} {:?}", at - freed);
    assert!(worker.shutdown(ms(100)).await.parked >= 1);
}

#[tokio::test(start_paused = true)]
async fn closing_waits_for_settlements_and_ends_receives() {
    let (_, client, queue) = queue();
    queue.push(&"x".into()).await.unwrap();
    let delivery = queue.receive().await.unwrap();
    let waiting = tokio::spawn({
        let queue = queue.clone();
        async move { queue.receive().await.unwrap_err().kind() }
    });
    tokio::task::yield_now().await;
    drop(delivery);
    client.close(ms(1000)).await.unwrap();
    assert_eq!(waiting.await.unwrap(), ErrorKind::Closed);
}

#[test]
fn a_receiver_continues_when_the_runtime_ends_that_asked_for_it() {
    let runtime = || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (_, _client, queue) = queue();
    let (first, second) = (runtime(), runtime());
    first.block_on(queue.try_receive()).unwrap(); // the task of the queue runs there now
    let waiting = queue.clone();
    let here = second.spawn(async move { waiting.receive().await });
    std::thread::sleep(ms(50));
    drop(first);
    let delivery = second.block_on(async {
        queue.push(&"for the second".into()).await.unwrap();
        tokio::time::timeout(Duration::from_secs(5), here).await.expect("somebody asks for it").unwrap().unwrap()
    });
    assert_eq!(delivery.value().unwrap(), "for the second");
}

#[tokio::test(start_paused = true)]
async fn a_listing_of_dead_letters_continues_behind_any_place() {
    let (_, _, queue) = queue();
    queue.push(&"dead".into()).await.unwrap();
    queue.receive().await.unwrap().bury(None).await.unwrap();
    let behind = |stamp, number| Some(DeadPlace { stamp, number });
    let dead = queue.dead_letters();
    assert_eq!(dead.list(behind(0, u64::MAX), 10).await.unwrap().letters.len(), 0, "it died at the clock's beginning");
    assert_eq!(dead.list(behind(u64::MAX, u64::MAX), 10).await.unwrap().letters.len(), 0);
    assert_eq!(dead.list(behind(0, 0), 10).await.unwrap().letters.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_lock_is_kept_for_a_parked_message_as_long_as_was_asked() {
    let driver = MemoryDriver::new();
    let parking = Client::builder(driver.clone()).parked_turn(Duration::from_secs(3)).build().unwrap();
    let queue: Queue<String> = parking.queue_with("jobs", tenure_core::queue::Text).unwrap();
    let lock = Client::new(driver).lock("account");
    let held = lock.acquire().await.unwrap();
    let parked = parking.lock("account").or_park(&queue, &"x".to_owned()).await.unwrap();
    assert!(matches!(parked, OrPark::Parked(Pushed::Stored(_))));
    tokio::time::sleep(Duration::from_secs(1)).await;
    held.release().await.unwrap();
    let start = Instant::now();
    lock.acquire().await.unwrap().release().await.unwrap();
    let kept = start.elapsed();
    assert!(kept >= Duration::from_secs(3) && kept < Duration::from_millis(3_200), "{kept:?}");
    assert!(Client::builder(MemoryDriver::new()).parked_turn(Duration::ZERO).build().is_err());
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_is_full_refuses_and_full_dead_letters_postpone() {
    let driver = MemoryDriver::builder().max_messages(1).max_dead_letters(1).build().unwrap();
    let (name, payload) = (QueueName::new("jobs").unwrap(), Payload::new(*b"").unwrap());
    let doomed = NewMessage::new(payload).with_attempts(Attempts::new(1).unwrap());
    let lease = Lease::new(ms(10)).unwrap();
    let receive = async || driver.receive(&ReceiveRequest::new(name.clone(), 1, lease)).await.unwrap();
    for healed in [Healed::default().with_expired(1).with_dead(1), Healed::default().with_expired(1).with_postponed(1)]
    {
        driver.push(&name, std::slice::from_ref(&doomed)).await.unwrap();
        let full = driver.push(&name, std::slice::from_ref(&doomed)).await.unwrap_err();
        assert_eq!(full.kind(), ErrorKind::LimitReached);
        assert_eq!(receive().await.deliveries.len(), 1);
        tokio::time::advance(ms(10)).await;
        assert_eq!(receive().await.healed, healed);
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_holds_as_many_bytes_as_it_was_given_and_a_message_half_of_them() {
    let driver = MemoryDriver::builder().max_request_bytes(4096).build().unwrap();
    let capabilities = tenure_core::driver::DelayQueue::capabilities(&driver);
    assert_eq!((capabilities.request_bytes, capabilities.payload), (4096, 2048));
    let all = MemoryDriver::builder().max_request_bytes(64 << 20).build().unwrap();
    assert_eq!(tenure_core::driver::DelayQueue::capabilities(&all).payload, Payload::MAX_LEN);
}

#[tokio::test(start_paused = true)]
async fn a_list_of_queues_says_whether_there_is_more_and_leaves_empty_ones_out() {
    let (driver, client, queue) = queue();
    assert!(driver.list_queues(None, 10).await.unwrap().queues.is_empty());
    for name in ["a", "b"] {
        client.queue_with(name, tenure_core::queue::Text).unwrap().push(&"x".to_owned()).await.unwrap();
    }
    queue.push(&"gone".into()).id("once").dedup_window(ms(60_000)).await.unwrap();
    queue.receive().await.unwrap().ack().await.unwrap(); // its id is remembered, and it holds nothing
    let names = |page: &tenure_core::driver::QueuePage| page.queues.iter().map(ToString::to_string).collect::<Vec<_>>();
    let whole = driver.list_queues(None, 2).await.unwrap();
    assert_eq!((names(&whole), whole.rest), (vec!["a".to_owned(), "b".to_owned()], Rest::None));
    let first = driver.list_queues(None, 1).await.unwrap();
    assert_eq!((names(&first), first.rest), (vec!["a".to_owned()], Rest::More));
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_over_at_its_very_end_to_whoever_looks() {
    let (driver, _client, queue) = queue();
    let (lease, name) = (ms(10_000), QueueName::new("jobs").unwrap());
    let late = async || {
        let id = match queue.push(&"late".into()).await.unwrap() {
            Pushed::Stored(id) => id,
            other => panic!("{other:?}"),
        };
        let request = ReceiveRequest::new(name.clone(), 1, Lease::new(lease).unwrap());
        let receipt = driver.receive(&request).await.unwrap().deliveries[0].receipt;
        tokio::time::advance(lease).await;
        (id, receipt)
    };
    let (id, receipt) = late().await;
    let extension = Extension::new(receipt, Lease::new(lease).unwrap());
    assert_eq!(driver.extend(&name, &[extension]).await.unwrap(), [Extended::Stale]);
    assert_eq!(queue.get(&id).await.unwrap().unwrap().state, MessageState::Ready);
    let listed = async |which| queue.list_page(which, None, 10).await.unwrap();
    let (waiting, in_flight) = (listed(Listed::Waiting).await, listed(Listed::InFlight).await);
    assert_eq!((waiting.messages.len(), waiting.next, in_flight.messages.len()), (1, None, 0));
    assert_eq!(queue.cancel(&id).await.unwrap(), Cancelled::Removed);
    let (id, _) = late().await;
    assert_eq!(queue.reschedule(&id, ms(5_000)).await.unwrap(), Rescheduled::Moved);
}

#[tokio::test(start_paused = true)]
async fn one_receive_passes_over_a_thousand_messages_and_no_more() {
    let (driver, _client, queue) = queue();
    let request = ReceiveRequest::new(QueueName::new("jobs").unwrap(), 1, Lease::DEFAULT);
    let none = String::new();
    queue.push_many((0..1_500).map(|_| Message::new(&none).ttl(ms(1)))).await.unwrap();
    tokio::time::advance(ms(10)).await;
    let received = driver.receive(&request).await.unwrap();
    assert_eq!((received.healed.dead, received.next), (1_000, Next::Now));
    assert_eq!(driver.receive(&request).await.unwrap().healed.dead, 500);

    queue.push_many((0..1_500).map(|_| Message::new(&none).concurrency_key("one"))).await.unwrap();
    queue.push(&"behind them".into()).await.unwrap();
    let all = ReceiveRequest::new(QueueName::new("jobs").unwrap(), 10, Lease::DEFAULT);
    let received = driver.receive(&all).await.unwrap();
    assert_eq!((received.deliveries.len(), received.next), (1, Next::Now), "the first of its key");
    assert_eq!(driver.receive(&all).await.unwrap().deliveries.len(), 1, "the one behind them");
}

#[tokio::test(start_paused = true)]
async fn what_is_known_needs_no_room_and_what_is_named_twice_is_purged_once() {
    let driver = MemoryDriver::builder().max_messages(1).build().unwrap();
    let queue = Client::new(driver).queue_with("jobs", tenure_core::queue::Text).unwrap();
    assert!(matches!(queue.push(&"a".to_owned()).id("a").await.unwrap(), Pushed::Stored(_)));
    assert!(matches!(queue.push(&"a".to_owned()).id("a").await.unwrap(), Pushed::Duplicate(_)));
    let error = queue.push(&"b".to_owned()).id("b").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LimitReached);

    let (_, _client, queue) = self::queue();
    let mut ids = Vec::new();
    for text in ["a", "b"] {
        queue.push(&text.to_owned()).await.unwrap();
        let delivery = queue.receive().await.unwrap();
        ids.push(delivery.id().clone());
        delivery.bury(None).await.unwrap();
    }
    let named = [ids[1].clone(), ids[0].clone(), ids[1].clone()];
    assert_eq!(queue.dead_letters().purge(named).await.unwrap(), 2);
}
