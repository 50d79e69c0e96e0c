//! What goes on after an outage, and what does not come back at once.

mod queue_stage;

use futures_util::StreamExt as _;
use queue_stage::{Mishap, ms, plan, staged};
use tenure_core::ErrorKind;
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
