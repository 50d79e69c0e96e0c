//! What goes on after an outage, and what does not come back at once.

use futures_util::StreamExt as _;
use tenure_core::queue::{Cause, Text};
use tenure_core::{Client, ErrorKind};
use tenure_memory::Operation;
use tokio::time::{Instant, sleep, timeout};

use crate::queues::stage::{Mishap, ms, plan, staged};

#[tokio::test(start_paused = true)]
async fn a_stream_continues_after_outages_and_ends_with_what_does_not_pass() {
    let (stage, _, _, queue) = staged();
    plan(&stage.receives, [Mishap::Fail(ErrorKind::Unavailable), Mishap::Fail(ErrorKind::Indeterminate)]);
    queue.push(&"x".to_owned()).await.unwrap();
    let mut messages = Box::pin(queue.stream());
    let start = Instant::now();
    let delivery = timeout(ms(60_000), messages.next()).await.expect("it goes on").unwrap().unwrap();
    assert!(start.elapsed() >= ms(1_000), "it pauses: {:?}", start.elapsed());
    assert_eq!(delivery.value().unwrap(), "x");
    delivery.ack().await.unwrap();
    plan(&stage.receives, [Mishap::Fail(ErrorKind::Denied)]);
    let error = timeout(ms(60_000), messages.next()).await.expect("it tells").unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied);
    assert!(messages.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_delivery_that_is_dropped_again_and_again_lives_for_half_a_minute() {
    let (_, _, _, queue) = staged();
    queue.push(&"x".to_owned()).await.unwrap(); // ten attempts, as ever
    let start = Instant::now();
    for _ in 0..10 {
        drop(timeout(ms(60_000), queue.receive()).await.unwrap().unwrap());
    }
    assert!(start.elapsed() >= ms(30_000) && start.elapsed() < ms(40_000), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn closing_waits_for_a_receive_on_its_way_and_returns_what_it_brings() {
    let (_, driver, client, queue) = staged();
    queue.push(&"x".to_owned()).max_attempts(1).await.unwrap();
    driver.faults().delay_reply(Operation::Receive, ms(20));
    let receiving = tokio::spawn(async move { queue.receive().await.map(drop) });
    sleep(ms(5)).await; // handed out, and not heard of
    receiving.abort();
    client.close(ms(1_000)).await.unwrap();
    let other = Client::new(driver.another_client()).queue_with("jobs", Text).unwrap();
    let stats = other.stats().await.unwrap();
    assert_eq!((stats.ready, stats.in_flight), (1, 0), "it comes at once, and not after a lease");
    assert_eq!(other.receive().await.unwrap().attempt(), 1, "its attempt is not used");
}

#[tokio::test(start_paused = true)]
async fn a_message_goes_to_who_waits_behind_a_receiver_that_is_gone() {
    let (_, driver, _client, queue) = staged();
    queue.push(&"x".to_owned()).await.unwrap();
    driver.faults().delay_reply(Operation::Receive, ms(20));
    let receiving = || {
        let queue = queue.clone();
        tokio::spawn(async move { queue.receive().await.unwrap().cause() })
    };
    let (gone, behind) = (receiving(), receiving());
    sleep(ms(5)).await; // handed out, and not heard of
    gone.abort();
    assert_eq!(behind.await.unwrap(), Cause::First, "and does not go back to the backend first");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_is_being_closed_asks_for_no_message_any_more() {
    let (_, driver, client, queue) = staged();
    queue.push(&"x".to_owned()).max_attempts(1).await.unwrap();
    driver.faults().delay(Operation::Release, ms(50)); // for so long it is being closed
    drop(client.lock("held").acquire().await.unwrap());
    driver.faults().delay(Operation::Watch, ms(20));
    let receiving = tokio::spawn(async move { queue.receive().await.map(drop) });
    sleep(ms(5)).await; // it subscribes
    client.close(ms(1_000)).await.unwrap();
    assert_eq!(receiving.await.unwrap().unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(driver.faults().calls(Operation::Receive), 0);
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_reported_to_the_callers_it_hit_and_not_to_later_ones() {
    let (_, memory, _, queue) = staged();
    let receive = || {
        let queue = queue.clone();
        tokio::spawn(async move { queue.receive().await.map(|delivery| delivery.value().unwrap().clone()) })
    };
    memory.faults().delay(Operation::Receive, ms(50));
    let first = receive();
    sleep(ms(20)).await;
    let second = receive();
    sleep(ms(10)).await;
    memory.faults().outage();
    sleep(ms(30)).await;
    memory.faults().heal();
    assert_eq!(first.await.unwrap().unwrap_err().kind(), ErrorKind::Unavailable);
    sleep(ms(500)).await;
    assert!(!second.is_finished(), "it waits on");
    queue.push(&"x".to_owned()).await.unwrap();
    assert_eq!(second.await.unwrap().unwrap(), "x");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_waits_asks_more_often_again_after_a_failure() {
    let (_, memory, _, queue) = staged();
    let receiving = tokio::spawn(async move { queue.receive().await.map(drop) });
    let asked = || memory.faults().calls(Operation::Receive);
    let during = async |span| {
        let before = asked();
        sleep(ms(span)).await;
        asked() - before
    };
    sleep(ms(120_000)).await;
    assert_eq!(during(60_000).await, 3, "behind a watch that nothing disturbs, every 20 s");
    memory.faults().fail_next(Operation::Receive, ErrorKind::Unavailable);
    let before = asked();
    while asked() == before {
        sleep(ms(10)).await;
    }
    assert!(during(15_000).await >= 3, "at once, after 2 s, and after 4 s more");
    assert!(!receiving.is_finished(), "an outage is waited out");
    receiving.abort();
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_asked_after_less_and_less_often_and_the_next_one_soon_again() {
    let (_, memory, _, queue) = staged();
    let receiving = tokio::spawn(async move { queue.receive().await.map(drop) });
    let asked = || memory.faults().calls(Operation::Receive);
    sleep(ms(100)).await;
    memory.faults().outage();
    let before = asked();
    sleep(ms(30_000)).await;
    let during = asked() - before;
    assert!((20..=40).contains(&during), "once a second, in the end: {during}");
    memory.faults().heal();
    sleep(ms(2_000)).await;
    memory.faults().fail_next(Operation::Receive, ErrorKind::Unavailable);
    let before = asked();
    while asked() == before {
        sleep(ms(10)).await;
    }
    sleep(ms(60)).await;
    assert!(asked() >= before + 2, "it is asked again after 50 ms");
    receiving.abort();
}

#[tokio::test(start_paused = true)]
async fn receivers_that_want_other_leases_are_served_one_right_after_the_other() {
    let (_, _, _, queue) = staged();
    let receiving: Vec<_> = (1..=3)
        .map(|seconds| {
            let queue = queue.clone().lease(ms(seconds * 1_000));
            tokio::spawn(async move { queue.receive().await.map(drop) })
        })
        .collect();
    sleep(ms(100)).await;
    let start = Instant::now();
    queue.push_many(&["a", "b", "c"].map(str::to_owned)).await.unwrap();
    for one in receiving {
        one.await.unwrap().unwrap();
    }
    assert!(start.elapsed() < ms(10), "{:?}", start.elapsed());
}
