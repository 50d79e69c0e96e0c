//! What receivers ask for, what they are told of their deliveries, and what ends with a client.

use std::sync::Arc;

use tenure_core::driver::{Backend, Cause, DelayQueue, Parking, Settled};
use tenure_core::queue::{Queue, Text};
use tenure_core::{Client, ErrorKind, LockName};
use tenure_memory::{MemoryDriver, Operation};
use tokio::time::{Instant, sleep, timeout};

use crate::queues::stage::{ms, staged, staged_with};

async fn push(queue: &Queue<String>, texts: &[&str]) {
    let texts: Vec<String> = texts.iter().map(|&text| text.to_owned()).collect();
    queue.push_many(&texts).await.unwrap();
}

/// The driver itself would go on.
#[tokio::test(start_paused = true)]
async fn a_closed_client_refuses_every_call_of_a_queue() {
    let (stage, ..) = staged();
    let locks = Backend::from(MemoryDriver::new()).locks().clone();
    let client = Client::new(Backend::new(locks).with_queue(Arc::clone(&stage) as Arc<dyn DelayQueue>));
    let queue = client.queue_with("jobs", Text).unwrap();
    push(&queue, &["a"]).await;
    client.close(ms(1_000)).await.unwrap();
    let text = "c".to_owned();
    let errors = [
        queue.push(&text).await.map(drop),
        queue.try_receive().await.map(drop),
        queue.receive().await.map(drop),
        queue.stats().await.map(drop),
        queue.pause().await,
        client.list_queues().await.map(drop),
        client.doctor().await.map(drop),
    ]
    .map(|answer| answer.err().map(|error| error.kind()));
    assert_eq!(errors, [Some(ErrorKind::Closed); 7]);
}

#[tokio::test(start_paused = true)]
async fn handles_of_one_queue_are_one_also_beside_those_of_others() {
    let (_, _, client, queue) = staged();
    let _others = ["x", "y"].map(|name| client.queue_with(name, Text).unwrap());
    let again = client.queue_with("jobs", Text).unwrap();
    push(&queue, &["a", "b"]).await;
    let deliveries = queue.try_receive_many(2).await.unwrap();
    assert_eq!(again.ack_many(deliveries).await.unwrap(), [Settled::Done; 2]);
}

#[tokio::test(start_paused = true)]
async fn what_is_not_of_this_queue_is_not_acknowledged_with_what_is() {
    let (_, _, client, queue) = staged();
    let other = client.queue_with("other", Text).unwrap();
    push(&queue, &["a"]).await;
    push(&other, &["b"]).await;
    let both = [queue.receive().await.unwrap(), other.receive().await.unwrap()];
    assert_eq!(queue.ack_many(both).await.unwrap_err().kind(), ErrorKind::InvalidArgument);
    sleep(ms(10)).await;
    for queue in [queue, other] {
        assert_eq!(queue.stats().await.unwrap().in_flight, 0, "it is given back");
        assert!(timeout(ms(1_000), queue.receive()).await.is_ok(), "and comes again");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_acknowledged_with_others_is_not_settled_once_more() {
    let (_, memory, _, queue) = staged();
    push(&queue, &["a", "b"]).await;
    let deliveries = queue.try_receive_many(2).await.unwrap();
    queue.ack_many(deliveries).await.unwrap();
    sleep(ms(1_000)).await;
    assert_eq!(memory.faults().calls(Operation::Settle), 1);
}

#[tokio::test(start_paused = true)]
async fn deliveries_whose_leases_ended_on_their_way_are_given_to_nobody() {
    let (_, memory, _, queue) = staged();
    let short = queue.clone().lease(ms(100));
    push(&queue, &["a"]).await;
    memory.faults().delay_reply(Operation::Receive, ms(150));
    assert!(short.try_receive().await.unwrap().is_none());
    memory.faults().heal();
    let many = short.receive_many(1).await.unwrap();
    assert_eq!((many.len(), many[0].attempt(), many[0].cause()), (1, 2, Cause::LeaseExpired));
}

#[tokio::test(start_paused = true)]
async fn a_delivery_tells_how_late_it_is_and_what_is_left() {
    let (_, _, _, queue) = staged();
    push(&queue, &["a"]).await;
    sleep(ms(300)).await;
    let delivery = queue.clone().lease(ms(10_000)).receive().await.unwrap();
    assert!(delivery.late() >= ms(300) && delivery.late() < ms(400), "{:?}", delivery.late());
    assert!(delivery.age() >= ms(300) && delivery.age() < ms(400), "{:?}", delivery.age());
    assert!(delivery.remaining() > ms(9_000) && delivery.remaining() <= ms(10_000), "{:?}", delivery.remaining());
    delivery.extend(ms(1_000)).await.unwrap();
    assert!(delivery.remaining() > ms(9_000), "no extension takes time away: {:?}", delivery.remaining());
}

#[tokio::test(start_paused = true)]
async fn a_client_that_waits_for_the_end_of_a_lease_learns_of_it_at_once() {
    let (_, memory, _, queue) = staged();
    push(&queue, &["a"]).await;
    let delivery = queue.receive().await.unwrap();
    memory.faults().restart_empty();
    let start = Instant::now();
    let extended = async {
        sleep(ms(10)).await;
        delivery.extend(ms(9_000)).await.unwrap_err().kind()
    };
    let ((), extended) = tokio::join!(delivery.lost(), extended);
    assert_eq!(extended, ErrorKind::Lost);
    assert!(start.elapsed() < ms(100), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn nobody_stands_in_line_for_a_message_whose_parking_came_too_late() {
    let (_, memory, _, queue) = staged();
    push(&queue, &["a"]).await;
    let delivery = queue.receive().await.unwrap();
    memory.faults().restart_empty();
    assert_eq!(delivery.park(&LockName::new("lock").unwrap(), ms(5_000)).await.unwrap(), Settled::Stale);
    sleep(ms(1_000)).await;
    assert_eq!(memory.faults().calls(Operation::Acquire), 0);
}

#[tokio::test(start_paused = true)]
async fn who_asks_once_subscribes_to_nothing() {
    let (_, memory, _, queue) = staged();
    assert!(queue.try_receive().await.unwrap().is_none());
    assert_eq!(memory.faults().calls(Operation::Watch), 0);
    assert!(timeout(ms(10), queue.receive()).await.is_err());
    assert_eq!(memory.faults().calls(Operation::Watch), 1);
}

#[tokio::test(start_paused = true)]
async fn without_notifications_no_waiter_subscribes() {
    let (_, memory, _, queue) = staged_with(|caps| caps.wake = tenure_core::driver::QueueWake::Poll);
    assert!(timeout(ms(10), queue.receive()).await.is_err());
    assert_eq!(memory.faults().calls(Operation::Watch), 0);
}

#[tokio::test(start_paused = true)]
async fn who_asks_once_is_answered_at_once_beside_others_that_wait() {
    let (_, _, _, queue) = staged();
    let waiting = tokio::spawn({
        let queue = queue.clone();
        async move { queue.receive().await.map(drop) }
    });
    sleep(ms(500)).await;
    let start = Instant::now();
    assert!(queue.try_receive().await.unwrap().is_none());
    assert!(start.elapsed() < ms(10) && !waiting.is_finished(), "{:?}", start.elapsed());
}

/// The backend may have forgotten a client that got all it asked for.
#[tokio::test(start_paused = true)]
async fn after_an_answer_that_was_full_whoever_wants_another_lease_asks_at_once() {
    let (_, memory, _, queue) = staged();
    let receiving: Vec<_> = (1..=2)
        .map(|seconds| {
            let queue = queue.clone().lease(ms(seconds * 1_000));
            tokio::spawn(async move { queue.receive().await })
        })
        .collect();
    sleep(ms(100)).await;
    let asked = || memory.faults().calls(Operation::Receive);
    let before = asked();
    push(&queue, &["a"]).await;
    sleep(ms(10)).await;
    assert_eq!((asked() - before, receiving.iter().filter(|one| one.is_finished()).count()), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn nobody_asks_for_more_than_those_want_who_want_the_same_lease() {
    let (_, _, _, queue) = staged();
    let receiving: Vec<_> = [9_000, 5_000]
        .map(|lease| {
            let queue = queue.clone().lease(ms(lease));
            tokio::spawn(async move { queue.receive().await.unwrap().cause() })
        })
        .into();
    sleep(ms(100)).await;
    push(&queue, &["a", "b"]).await;
    for one in receiving {
        assert_eq!(one.await.unwrap(), Cause::First, "it was not handed out before");
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_waits_for_many_gets_one_at_least() {
    let (_, memory, _, queue) = staged();
    let short = queue.clone().lease(ms(100));
    push(&queue, &["a"]).await;
    memory.faults().delay_reply(Operation::Receive, ms(150));
    let waiting = tokio::spawn(async move { short.receive_many(3).await.map(|all| all.len()) });
    sleep(ms(120)).await;
    memory.faults().heal(); // what is on its way is late all the same
    assert_eq!(waiting.await.unwrap().unwrap(), 1);
}

/// A driver that cannot give a message its turn lets it come back by the clock alone.
#[tokio::test(start_paused = true)]
async fn nobody_stands_in_line_where_parked_messages_come_back_by_the_clock() {
    for (parking, stands) in [(Parking::BackOff, 0), (Parking::Attended, 1)] {
        let (_, memory, _, queue) = staged_with(|caps| caps.parking = parking);
        push(&queue, &["a"]).await;
        let delivery = queue.receive().await.unwrap();
        assert_eq!(delivery.park(&LockName::new("lock").unwrap(), ms(5_000)).await.unwrap(), Settled::Done);
        sleep(ms(1_000)).await;
        assert_eq!(memory.faults().calls(Operation::Acquire), stands, "{parking:?}");
    }
}
