//! Messages with options of their own, one by one and many at once.

use std::time::{Duration, SystemTime};

use futures_util::FutureExt as _;
use futures_util::future::join_all;
use tenure_core::ErrorKind;
use tenure_core::driver::{DeadCause, KeyedConcurrency, MessageState, Pushed};
use tenure_core::queue::{Job, Message, MessageId, OrPark, Queue};
use tenure_memory::Operation;
use tokio::time::sleep;

use crate::queues::stage::{Mishap, QueueStage, ms, plan, staged, staged_with};

const SECOND: Duration = Duration::from_secs(1);

fn texts(count: usize, length: usize) -> Vec<String> {
    (0..count).map(|number| format!("{number:0length$}")).collect()
}

fn pushed(stage: &QueueStage) -> Vec<usize> {
    std::mem::take(&mut *stage.pushed.lock().unwrap())
}

async fn due_in(queue: &Queue<String>, id: &str) -> Option<Duration> {
    queue.get(&MessageId::named(id).unwrap()).await.unwrap().map(|info| info.due_in)
}

async fn take(queue: &Queue<String>) -> Vec<String> {
    let mut taken = Vec::new();
    for delivery in queue.try_receive_many(queue.capabilities().batch).await.unwrap() {
        taken.push(delivery.value().unwrap().clone());
        delivery.ack().await.unwrap();
    }
    taken
}

#[tokio::test(start_paused = true)]
async fn many_messages_leave_in_requests_of_bounded_number_and_bytes() {
    let (stage, _, _, queue) = staged_with(|caps| (caps.batch, caps.request_bytes) = (100, 1_000));
    let small = texts(250, 3);
    assert_eq!(queue.push_many(&small).await.unwrap().len(), 250);
    assert_eq!(pushed(&stage), [100, 100, 50]);
    let taken = [take(&queue).await, take(&queue).await, take(&queue).await].concat();
    assert_eq!(taken, small, "in order");
    let large = texts(7, 400);
    queue.push_many(large.iter().map(|text| Message::new(text).lock("l").concurrency_key("key"))).await.unwrap();
    assert_eq!(pushed(&stage), [2, 2, 2, 1]);
    queue.push_many(large.iter().map(|text| Message::new(text).id([text.as_bytes()[399]; 101]))).await.unwrap();
    assert_eq!(pushed(&stage), [1; 7], "names count as well");
}

#[tokio::test(start_paused = true)]
async fn a_push_that_fails_half_way_tells_what_was_stored() {
    let (stage, _, _, queue) = staged_with(|caps| caps.batch = 10);
    plan(&stage.pushes, [Mishap::None, Mishap::None, Mishap::Fail(ErrorKind::Unavailable)]);
    let texts = texts(45, 2);
    let failed = queue.push_many(texts.iter().map(|text| Message::new(text).id(text))).await.unwrap_err();
    assert_eq!((failed.pushed().len(), failed.error().kind()), (20, ErrorKind::Unavailable));
    assert!(failed.to_string().contains("20 messages"), "{failed}");
    assert_eq!(queue.stats().await.unwrap().ready, 20, "nothing was sent behind it");
    let again = queue.push_many(texts.iter().map(|text| Message::new(text).id(text))).await.unwrap();
    let known = |pushed: &Pushed| *pushed == Pushed::Duplicate(MessageState::Ready);
    assert!(again[..20].iter().all(known) && !again[20..].iter().any(known));
    assert_eq!(queue.stats().await.unwrap().ready, 45);
}

#[tokio::test(start_paused = true)]
async fn each_message_of_many_has_its_own_options() {
    let (stage, _, client, queue) = staged();
    let texts = texts(5, 1);
    let holder = client.lock("account").acquire().await.unwrap();
    let messages = [
        Message::new(&texts[0]).id("a").delay(SECOND * 10),
        Message::new(&texts[1]).id("b").lock("door").max_attempts(1),
        Message::new(&texts[2]).id("c").concurrency_key("key").ttl(SECOND),
        Message::new(&texts[3]).id("d").parked("account", SECOND * 60),
        Message::bytes("4").id("a"),
    ];
    let answers = queue.push_many(messages).await.unwrap();
    assert_eq!((pushed(&stage), &answers[4]), (vec![5], &Pushed::Duplicate(MessageState::Scheduled)));
    assert_eq!(due_in(&queue, "a").await, Some(SECOND * 10));
    let receiving = tokio::spawn({
        let queue = queue.clone();
        async move { [queue.receive().await.unwrap(), queue.receive().await.unwrap(), queue.receive().await.unwrap()] }
    });
    sleep(ms(100)).await;
    holder.release().await.unwrap();
    let [b, c, d] = receiving.await.unwrap(); // the last one when its turn comes: the client stands in line for it
    assert_eq!((b.lock().unwrap().as_bytes(), b.max_attempts()), (&b"door"[..], 1));
    assert_eq!(c.concurrency_key().unwrap().as_bytes(), b"key");
    assert!(client.lock("account").try_acquire_for(&d).await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_time_of_day_is_a_delay_by_the_clock_of_the_client() {
    let (_, _, _, queue) = staged();
    let text = "x".to_owned();
    let soon = SystemTime::now() + SECOND * 10;
    queue.push(&text).id("soon").delay(SECOND * 99).at(soon).await.unwrap();
    let due = due_in(&queue, "soon").await.unwrap();
    assert!(due > SECOND * 9 && due < SECOND * 11, "{due:?}");
    queue.push(&text).id("past").at(SystemTime::UNIX_EPOCH).await.unwrap();
    assert_eq!(due_in(&queue, "past").await, Some(Duration::ZERO));
    let never = queue.push(&text).at(SystemTime::now() + SECOND * 86_400 * 4_000).await.unwrap_err();
    assert_eq!(never.kind(), ErrorKind::InvalidArgument);
}

#[tokio::test(start_paused = true)]
async fn a_replacing_push_is_a_debounce() {
    let (_, _, _, queue) = staged();
    for (number, text) in texts(5, 1).iter().enumerate() {
        let answer = queue.push(text).id("page").replace().delay(SECOND).await.unwrap();
        assert_eq!(matches!(answer, Pushed::Replaced(_)), number > 0, "{answer:?}");
        sleep(SECOND / 2).await;
    }
    assert_eq!(take(&queue).await, Vec::<String>::new());
    sleep(SECOND).await;
    let delivery = queue.try_receive().await.unwrap().unwrap();
    assert_eq!(delivery.value().unwrap(), "4");
    let while_handled = queue.push(&"5".to_owned()).id("page").replace().await.unwrap();
    assert_eq!(while_handled, Pushed::Duplicate(MessageState::InFlight));
    delivery.ack().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_message_that_nobody_has_within_its_ttl_is_dead() {
    let (_, _, _, queue) = staged();
    queue.push(&"x".to_owned()).delay(SECOND).ttl(SECOND).await.unwrap();
    sleep(SECOND * 3).await;
    assert_eq!(take(&queue).await, Vec::<String>::new());
    let letter = queue.dead_letters().list(None, 1).await.unwrap().letters.remove(0);
    assert_eq!(letter.cause, DeadCause::Expired);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_finds_its_lock_taken_is_parked_with_its_options() {
    let (_, _, client, queue) = staged();
    let (lock, text) = (client.lock("account"), "x".to_owned());
    let message = || Message::new(&text).id("request").max_attempts(3).parked_at_most(SECOND * 30);
    let OrPark::Acquired(guard) = lock.or_park(&queue, message()).await.unwrap() else { panic!("it is free") };
    assert!(matches!(lock.or_park(&queue, message()).await.unwrap(), OrPark::Parked(Pushed::Stored(_))));
    let again = lock.or_park(&queue, message().lock("account")).await.unwrap();
    assert!(matches!(again, OrPark::Parked(Pushed::Duplicate(MessageState::Scheduled))), "{again:?}");
    let info = queue.get(&MessageId::named("request").unwrap()).await.unwrap().unwrap();
    assert_eq!((info.due_in, info.attempts.get(), info.lock.unwrap().as_bytes()), (SECOND * 30, 3, &b"account"[..]));
    guard.release().await.unwrap();
    for refused in [message().delay(SECOND), message().lock("other"), message().max_attempts(0)] {
        let error = lock.or_park(&queue, refused).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "also while the lock is free");
    }
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_is_refused_before_anything_is_sent() {
    let (stage, _, _, queue) = staged_with(|caps| caps.request_bytes = 1_000);
    let text = "x".to_owned();
    let refused = [
        Message::bytes([0; 1_001]),
        Message::bytes([0; 1_000]).id("x"),
        Message::new(&text).ttl(Duration::ZERO),
        Message::new(&text).ttl(Duration::MAX),
        Message::new(&text).replace(),
        Message::new(&text).parked_at_most(SECOND),
        Message::new(&text).delay(SECOND).parked("lock", SECOND),
        Message::new(&text).dedup_window(SECOND),
    ];
    for message in refused {
        let failed = queue.push_many([Message::new(&text), message]).await.unwrap_err();
        assert_eq!((failed.error().kind(), failed.pushed().len()), (ErrorKind::InvalidArgument, 0));
    }
    assert!(queue.push_many(&Vec::new()).await.unwrap().is_empty());
    assert_eq!(pushed(&stage), [0; 0]);
}

/// A queue whose pushes take a moment, and the results of as many as asked for that began at once.
async fn at_once(queue: &Queue<String>, count: usize) -> Vec<tenure_core::Result<Pushed>> {
    let texts = texts(count, 2);
    join_all(texts.iter().map(|text| async move { queue.push(text).id(text).await })).await
}

#[tokio::test(start_paused = true)]
async fn pushes_that_leave_at_the_same_moment_share_a_request() {
    let (stage, memory, _, queue) = staged_with(|caps| caps.batch = 5);
    memory.faults().delay(Operation::Push, ms(10));
    let stored = at_once(&queue, 8).await;
    assert_eq!(pushed(&stage), [1, 5, 2], "the first one waits for nobody");
    let ids: Vec<_> = stored.into_iter().map(|one| one.unwrap()).collect();
    let own = (0..8).map(|number| Pushed::Stored(MessageId::named(format!("{number:02}")).unwrap()));
    assert_eq!(ids, own.collect::<Vec<_>>(), "each has its own answer");
    let batches: [Vec<String>; 4] = std::array::from_fn(|number| vec![format!("batch {number}"); 3]);
    join_all(batches.iter().map(async |batch| queue.push_many(batch).await.unwrap())).await;
    assert_eq!(pushed(&stage), [3, 3, 3, 3], "those of a caller are stored all or none, so they stay together");
    for text in texts(3, 1) {
        queue.push(&text).await.unwrap();
    }
    assert_eq!(pushed(&stage), [1, 1, 1], "one after the other");
}

#[tokio::test(start_paused = true)]
async fn pushes_share_a_request_as_far_as_its_bytes_go() {
    let (stage, memory, _, queue) = staged_with(|caps| caps.request_bytes = 1_000);
    memory.faults().delay(Operation::Push, ms(10));
    let large = texts(7, 400);
    let stored = join_all(large.iter().map(async |text| queue.push(text).await)).await;
    assert!(stored.iter().all(Result::is_ok));
    assert_eq!(pushed(&stage), [1, 2, 2, 2]);
}

#[tokio::test(start_paused = true)]
async fn what_is_wrong_with_one_push_harms_no_other_and_what_is_unknown_is_reported_to_all() {
    let (stage, memory, _, queue) = staged();
    memory.faults().delay(Operation::Push, ms(10));
    let kinds = |reported: Vec<tenure_core::Result<Pushed>>| {
        reported.into_iter().map(|one| one.err().map(|error| error.kind())).collect::<Vec<_>>()
    };
    let full = Mishap::Fail(ErrorKind::LimitReached);
    plan(&stage.pushes, [Mishap::None, full, Mishap::None, full]);
    assert_eq!(kinds(at_once(&queue, 4).await), [None, None, Some(ErrorKind::LimitReached), None]);
    assert_eq!(pushed(&stage), [1, 3, 1, 1, 1]);
    take(&queue).await;
    for (mishap, kind) in [
        (Mishap::Fail(ErrorKind::Indeterminate), ErrorKind::Indeterminate),
        (Mishap::Fail(ErrorKind::Unavailable), ErrorKind::Unavailable),
        (Mishap::Panic, ErrorKind::Protocol),
    ] {
        plan(&stage.pushes, [Mishap::None, mishap]);
        assert_eq!(kinds(at_once(&queue, 3).await), [None, Some(kind), Some(kind)]);
        assert_eq!(pushed(&stage), [1, 2], "nothing is repeated");
    }
}

#[tokio::test(start_paused = true)]
async fn a_push_that_is_dropped_before_it_left_is_not_sent() {
    let (stage, memory, _, queue) = staged();
    memory.faults().delay(Operation::Push, ms(10));
    let texts = texts(3, 1);
    let mut pushes: Vec<_> = texts.iter().map(|text| queue.push(text).into_future()).collect();
    for push in &mut pushes {
        assert!(push.now_or_never().is_none());
    }
    drop(pushes.pop());
    for push in pushes {
        push.await.unwrap();
    }
    assert_eq!((pushed(&stage), take(&queue).await.len()), (vec![1, 1], 2));
}

#[test]
fn a_push_does_not_wait_for_a_runtime_that_does_not_run() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let (there, here) = (runtime(), runtime());
    let (stage, memory, _, queue) = staged();
    memory.faults().delay(Operation::Push, ms(10));
    let mut kept = Box::pin(at_once(&queue, 2));
    there.block_on(async { assert!((&mut kept).now_or_never().is_none(), "the second one waits for a task") });
    let answers = here.block_on(async { tokio::time::timeout(SECOND, at_once(&queue, 3)).await });
    let answers = answers.expect("they leave from here");
    assert!(answers.iter().all(Result::is_ok) && pushed(&stage).contains(&3));
    assert!(there.block_on(kept).iter().all(Result::is_ok));
}

#[tokio::test(start_paused = true)]
async fn a_push_that_is_refused_for_its_own_messages_is_not_repeated() {
    let (stage, memory, _, queue) = staged();
    memory.faults().delay(Operation::Push, ms(10));
    plan(&stage.pushes, [Mishap::None, Mishap::Fail(ErrorKind::InvalidArgument)]);
    let stored = at_once(&queue, 2).await;
    assert!(stored[0].is_ok());
    assert_eq!(stored[1].as_ref().unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(pushed(&stage), [1, 1]);
}

#[tokio::test(start_paused = true)]
async fn messages_leave_together_that_fit_a_request_to_the_byte() {
    let together = async |room: usize| {
        let (stage, memory, _, queue) = staged_with(|caps| caps.request_bytes = room);
        memory.faults().delay(Operation::Push, ms(10));
        let texts = texts(3, 100);
        join_all(texts.iter().map(async |text| queue.push(text).await)).await;
        pushed(&stage) == [1, 2]
    };
    let mut least = None;
    for room in 100..2_000 {
        if together(room).await {
            least = Some(room);
            break;
        }
    }
    assert_eq!(least, Some(200));
}

#[tokio::test(start_paused = true)]
async fn what_the_backend_cannot_keep_is_refused_unsent() {
    let (stage, _, _, queue) = staged_with(|caps| {
        caps.attempts = 5;
        (caps.lease.min, caps.lease.max) = (SECOND, SECOND * 10);
    });
    let text = "x".to_owned();
    let refused = |error: tenure_core::Error| assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    let few = queue.clone().max_attempts(5);
    refused(queue.push(&text).await.unwrap_err());
    refused(few.push(&text).max_attempts(6).await.unwrap_err());
    assert_eq!(pushed(&stage), Vec::<usize>::new());
    few.push(&text).await.unwrap();
    few.push(&text).max_attempts(4).await.unwrap();
    for bad in [SECOND / 2, SECOND * 11] {
        let queue = few.clone().lease(bad);
        refused(queue.try_receive().await.unwrap_err());
        refused(queue.worker().start(async |_: Job<String>| ()).unwrap_err());
    }
    for (good, attempts) in [(SECOND, 5), (SECOND * 10, 4)] {
        let delivery = few.clone().lease(good).try_receive().await.unwrap().unwrap();
        assert_eq!(delivery.max_attempts(), attempts);
        refused(delivery.extend(SECOND * 11).await.unwrap_err());
        delivery.ack().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_small_backend_does_not_keep_of_a_message_is_refused_unsent() {
    let (stage, _, _, queue) = staged_with(|caps| {
        (caps.payload, caps.delay, caps.keys) = (4, SECOND * 10, KeyedConcurrency::None);
        caps.attempts = u32::MAX;
    });
    let refused = |error: tenure_core::Error, word: &str| {
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(error.message().contains(word), "{error}");
    };
    let (short, long) = ("1234".to_owned(), "12345".to_owned());
    refused(queue.push(&long).await.unwrap_err(), "5 bytes");
    refused(queue.push(&short).delay(SECOND * 11).await.unwrap_err(), "11s");
    let keyed = queue.push(&short).concurrency_key("k").await.unwrap_err();
    assert_eq!(keyed.kind(), ErrorKind::Unsupported, "{keyed}");
    refused(queue.recurring("r").every(SECOND).ensure(&long).await.unwrap_err(), "5 bytes");
    refused(queue.recurring("r").every(SECOND * 100).ensure(&short).await.unwrap_err(), "delay");
    refused(queue.push(&short).id("a").await.unwrap_err(), "dedup_window of 3600s");
    assert_eq!(pushed(&stage), Vec::<usize>::new());
    queue.push(&short).delay(SECOND * 10).await.unwrap();
    queue.push(&short).id("a").dedup_window(SECOND * 10).await.unwrap();
    queue.recurring("r").every(SECOND).ensure(&short).await.unwrap();
    let (stage, _, _, queue) = staged_with(|caps| caps.request_bytes = 10);
    refused(queue.recurring("r").every(SECOND).ensure(&short).await.unwrap_err(), "at most 10");
    assert_eq!(pushed(&stage), Vec::<usize>::new());
}

/// The hold that came with the message is that of another lock.
#[tokio::test(start_paused = true)]
async fn who_takes_another_lock_for_a_parked_message_asks_for_it() {
    let (_, memory, client, queue) = staged();
    let holder = client.lock("account").acquire().await.unwrap();
    queue.push_many([Message::new(&"x".to_owned()).parked("account", SECOND * 60)]).await.unwrap();
    let receiving = tokio::spawn(async move { queue.receive().await.unwrap() });
    sleep(ms(100)).await;
    holder.release().await.unwrap();
    let delivery = receiving.await.unwrap();
    let other = client.lock("other").try_acquire_for(&delivery).await.unwrap().unwrap();
    let held = async |name: &str| {
        let name = tenure_core::LockName::new(name).unwrap();
        tenure_core::driver::DistributedLock::inspect(&memory, &name).await.unwrap().holder.is_some()
    };
    assert!(held("other").await && other.is_held());
}

#[cfg(feature = "json")]
#[tokio::test(start_paused = true)]
async fn a_queue_of_json_hands_out_the_values_that_were_pushed() {
    let (_, _, client, _) = staged();
    let queue = client.queue::<Vec<u32>>("numbers").unwrap();
    queue.push(&vec![1, 2]).await.unwrap();
    let delivery = queue.receive().await.unwrap();
    assert_eq!((delivery.value().unwrap(), delivery.payload().as_bytes()), (&vec![1, 2], &b"[1,2]"[..]));
}
