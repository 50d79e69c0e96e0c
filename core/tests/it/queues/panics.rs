//! Panics of others: of codecs, of what users plug in, of drivers. Nobody is left waiting for them.

use std::time::Duration;

use tenure_core::driver::{Cause, DeadCause, Settled};
use tenure_core::queue::{Codec, Job, RetryPolicy, Undecodable};
use tenure_core::{ErrorKind, Result};
use tokio::time::{Instant, timeout};

use crate::queues::stage::{Mishap, ms, plan, staged};

/// Panics over one text.
#[derive(Debug)]
struct Squeamish;

impl Codec<String> for Squeamish {
    fn encode(&self, value: &String) -> Result<Vec<u8>> {
        Ok(value.clone().into_bytes())
    }

    fn decode(&self, bytes: &[u8]) -> Result<String> {
        let text = String::from_utf8_lossy(bytes).into_owned();
        if text == "snail" {
            std::panic::resume_unwind(Box::new(format!("no {text}")));
        }
        Ok(text)
    }
}

#[tokio::test(start_paused = true)]
async fn a_codec_that_panics_buries_the_message_and_the_worker_continues() {
    let (_, _, client, _) = staged();
    let queue = client.queue_with("meals", Squeamish).unwrap();
    for meal in ["soup", "snail", "cake"] {
        queue.push(&meal.to_owned()).await.unwrap();
    }
    let (eaten, mut meals) = tokio::sync::mpsc::unbounded_channel();
    let worker = queue.worker().undecodable(Undecodable::Dead).start(move |job: Job<String>| {
        eaten.send(job.value).unwrap();
        async {}
    });
    for meal in ["soup", "cake"] {
        assert_eq!(timeout(ms(10_000), meals.recv()).await.unwrap().as_deref(), Some(meal));
    }
    worker.unwrap().shutdown(ms(1_000)).await;
    let letter = queue.dead_letters().list(None, 1).await.unwrap().letters.remove(0);
    let reason = letter.reason.clone().unwrap();
    assert_eq!(letter.cause, DeadCause::Rejected);
    assert!(reason.as_str().ends_with("the codec panicked: no snail"), "{reason}");
    let error = queue.dead_letters().value(&letter).unwrap_err();
    assert!(error.kind() == ErrorKind::Protocol && error.to_string().contains("no snail"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_codec_that_panics_leaves_a_delivery_by_hand_that_says_so() {
    let (_, _, client, _) = staged();
    let queue = client.queue_with("meals", Squeamish).unwrap();
    queue.push(&"snail".to_owned()).await.unwrap();
    let delivery = queue.receive().await.unwrap();
    assert_eq!(delivery.value().unwrap_err().kind(), ErrorKind::Protocol);
    assert_eq!(delivery.ack().await.unwrap(), Settled::Done);
}

#[tokio::test(start_paused = true)]
async fn a_lock_by_that_panics_is_a_failed_attempt_with_its_back_off() {
    let (_, _, _, queue) = staged();
    queue.push(&"x".to_owned()).max_attempts(3).await.unwrap();
    let start = Instant::now();
    let worker = queue
        .worker()
        .retry(RetryPolicy::fixed(ms(1_000)))
        .lock_by(|_| -> Option<String> { std::panic::resume_unwind(Box::new("no name")) })
        .start(async |_: Job<String>| ())
        .unwrap();
    while queue.stats().await.unwrap().dead == 0 {
        tokio::time::sleep(ms(100)).await;
    }
    assert!(start.elapsed() >= ms(2_000) && start.elapsed() < ms(3_000), "{:?}", start.elapsed());
    worker.shutdown(ms(1_000)).await;
    let letter = queue.dead_letters().list(None, 1).await.unwrap().letters.remove(0);
    let reason = letter.reason.unwrap();
    assert!(reason.as_str().ends_with("lock_by panicked: no name"), "{reason}");
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_panics_fails_those_who_wait_and_serves_the_next() {
    let (stage, _, _, queue) = staged();
    let waiting = tokio::spawn({
        let queue = queue.clone();
        async move { queue.receive().await.map(drop) }
    });
    tokio::time::sleep(ms(100)).await; // it was answered: there is nothing
    plan(&stage.receives, [Mishap::Panic]);
    let soon = Duration::from_secs(30);
    let asking = timeout(soon, queue.try_receive()).await.expect("it is answered");
    assert_eq!(asking.map(drop).unwrap_err().kind(), ErrorKind::Protocol);
    let error = timeout(soon, waiting).await.expect("it is answered").unwrap().unwrap_err();
    assert!(error.kind() == ErrorKind::Protocol && error.to_string().contains("on purpose"), "{error}");
    queue.push(&"x".to_owned()).await.unwrap();
    let delivery = timeout(soon, queue.receive()).await.unwrap().unwrap();
    plan(&stage.settles, [Mishap::Panic]);
    let error = timeout(soon, delivery.ack()).await.unwrap().unwrap_err();
    assert!(error.to_string().contains("the driver panicked: on purpose"), "{error}");
    let again = timeout(Duration::from_secs(60), queue.receive()).await.unwrap().unwrap();
    assert_eq!(again.cause(), Cause::LeaseExpired);
    again.ack().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_panics_over_wake_ups_is_asked_all_the_same() {
    let (stage, _, _, queue) = staged();
    plan(&stage.watches, [Mishap::Panic; 1_000]);
    let waiting = tokio::spawn({
        let queue = queue.clone();
        async move { queue.receive().await.unwrap().ack().await }
    });
    tokio::time::sleep(ms(10)).await;
    queue.push(&"x".to_owned()).await.unwrap();
    assert_eq!(timeout(ms(10_000), waiting).await.unwrap().unwrap().unwrap(), Settled::Done);
}

#[tokio::test(start_paused = true)]
async fn an_error_that_does_not_pass_ends_a_wait_also_after_the_first_answer() {
    let (stage, _, _, queue) = staged();
    let waiting = tokio::spawn({
        let queue = queue.clone();
        async move { queue.receive().await.map(drop) }
    });
    tokio::time::sleep(ms(100)).await;
    plan(&stage.receives, [Mishap::Fail(ErrorKind::Unavailable), Mishap::Fail(ErrorKind::Denied)]);
    let error = timeout(ms(60_000), waiting).await.expect("it is answered").unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied);
}
