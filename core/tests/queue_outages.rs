//! What goes on after an outage, and what does not come back at once.

mod queue_stage;

use futures_util::StreamExt as _;
use queue_stage::{Mishap, ms, plan, staged};
use tenure_core::queue::Text;
use tenure_core::{Client, ErrorKind};
use tenure_memory::Operation;
use tokio::time::{Instant, timeout};

#[tokio::test(start_paused = true)]
async fn a_stream_goes_on_after_outages_and_ends_with_what_does_not_pass() {
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
    tokio::time::sleep(ms(5)).await; // handed out, and not heard of
    receiving.abort();
    client.close(ms(1_000)).await.unwrap();
    let other = Client::new(driver.another_client()).queue_with("jobs", Text).unwrap();
    let stats = other.stats().await.unwrap();
    assert_eq!((stats.ready, stats.in_flight), (1, 0), "it comes at once, and not after a lease");
    assert_eq!(other.receive().await.unwrap().attempt(), 1, "its attempt is not used");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_is_being_closed_asks_for_no_message_any_more() {
    let (_, driver, client, queue) = staged();
    queue.push(&"x".to_owned()).max_attempts(1).await.unwrap();
    driver.faults().delay(Operation::Release, ms(50)); // for so long it is being closed
    drop(client.lock("held").acquire().await.unwrap());
    driver.faults().delay(Operation::Watch, ms(20));
    let receiving = tokio::spawn(async move { queue.receive().await.map(drop) });
    tokio::time::sleep(ms(5)).await; // it subscribes
    client.close(ms(1_000)).await.unwrap();
    assert_eq!(receiving.await.unwrap().unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(driver.faults().calls(Operation::Receive), 0);
}
