//! How a waiter asks and listens, under a paused clock.

use std::time::Duration;

use tenure_core::ErrorKind;
use tokio::time::{Instant, sleep};

use crate::locks::stage::{Stage, Step, steps};

const SECOND: Duration = Duration::from_secs(1);
/// The client's, unless told otherwise.
const OP_TIMEOUT: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn without_notifications_each_waiter_asks_for_itself() {
    // The first answer is slow, and the second waiter does not wait for it.
    let acquire = steps([Step::Slow(SECOND), Step::Busy, Step::Busy]);
    let (stage, client) = Stage { polls: true, acquire, ..Stage::default() }.client();
    let began = Instant::now();
    let take = |client: &tenure_core::Client| {
        let lock = client.lock("a");
        tokio::spawn(async move { lock.acquire().await.map(std::mem::forget) })
    };
    let first = take(&client);
    sleep(SECOND / 10).await;
    let second = take(&client);
    second.await.unwrap().unwrap();
    assert!(began.elapsed() < SECOND / 2, "{:?}", began.elapsed());
    first.await.unwrap().unwrap();
    let mut tokens = stage.sent("acquire");
    assert_eq!(tokens.len(), 4);
    tokens.dedup();
    assert_eq!((tokens.len(), *stage.watches.lock().unwrap()), (2, 0), "and nobody listens");
}

#[tokio::test(start_paused = true)]
async fn after_a_grant_that_came_too_late_the_waiter_listens_for_its_new_token() {
    // Of a second, a holder believes in a little less.
    let acquire = steps([Step::Slow(SECOND * 995 / 1000), Step::Busy]);
    let (stage, client) = Stage { acquire, ..Stage::default() }.client_with(|builder| builder.op_timeout(2 * SECOND));
    let lock = client.lock("a").ttl(SECOND);
    let waiting = tokio::spawn(async move { lock.acquire().await });
    sleep(SECOND * 3 / 2).await;
    let tokens = stage.sent("acquire");
    assert!(tokens.len() == 2 && tokens[0] != tokens[1], "{tokens:?}");
    stage.wakes.wake(&tokens[1]);
    sleep(SECOND / 10).await;
    assert!(waiting.is_finished(), "it was woken");
}

#[tokio::test(start_paused = true)]
async fn a_subscription_without_an_answer_ends_the_wait_in_time() {
    let deaf = || Stage { deaf: true, ..Stage::default() }.client_with(|builder| builder.op_timeout(2 * SECOND));
    for (patience, kind) in [(SECOND, ErrorKind::TimedOut), (2 * SECOND, ErrorKind::Unavailable)] {
        let (stage, client) = deaf();
        let began = Instant::now();
        let error = client.lock("a").acquire_within(patience).await.unwrap_err();
        assert_eq!((error.kind(), began.elapsed(), stage.sent("acquire").len()), (kind, patience, 0), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_after_an_answer_begins_with_short_pauses_again() {
    let fails = [Step::Fail(ErrorKind::Unavailable); 8];
    let acquire = [&[Step::Busy][..], &fails, &[Step::Busy, fails[0]]].concat();
    let (stage, client) = Stage { acquire: steps(acquire), ..Stage::default() }.client();
    let lock = client.lock("a");
    let waiting = tokio::spawn(async move { lock.acquire().await.map(|_| Instant::now()) });
    while stage.sent("acquire").len() < 11 {
        sleep(Duration::from_millis(1)).await; // until the outage that comes after the second busy answer
    }
    let failed = Instant::now();
    let granted = waiting.await.unwrap().unwrap();
    assert!(granted - failed <= Duration::from_millis(51), "{:?}", granted - failed);
}

#[tokio::test(start_paused = true)]
async fn who_sets_no_limit_waits_for_a_first_answer_for_a_few_requests() {
    let outage = steps([Step::Fail(ErrorKind::Unavailable); 100]);
    let (_, client) =
        Stage { acquire: outage, ..Stage::default() }.client_with(|builder| builder.op_timeout(OP_TIMEOUT));
    let began = Instant::now();
    assert_eq!(client.lock("a").acquire().await.unwrap_err().kind(), ErrorKind::Unavailable);
    let waited = began.elapsed();
    assert!(waited >= 5 * OP_TIMEOUT && waited < 7 * OP_TIMEOUT, "{waited:?}");
}

/// A burst of a thousand locks at a slow server ends in waiting: while other requests of the client are answered, a
/// request without an answer is no sign of an outage.
#[tokio::test(start_paused = true)]
async fn acquire_without_a_limit_waits_while_others_are_answered() {
    let stage = Stage { unreached: Some("slow"), ..Stage::default() };
    let (_, client) = stage.client_with(|builder| builder.op_timeout(OP_TIMEOUT));
    let lock = client.lock("slow");
    let waiting = tokio::spawn(async move { lock.acquire().await });
    for _ in 0..20 {
        sleep(OP_TIMEOUT).await;
        client.lock("quick").try_acquire().await.unwrap().unwrap().release().await.unwrap();
    }
    assert!(!waiting.is_finished(), "it waits for {:?} by now", 20 * OP_TIMEOUT);
    let began = Instant::now();
    assert_eq!(waiting.await.unwrap().unwrap_err().kind(), ErrorKind::Unavailable);
    assert!(began.elapsed() >= 4 * OP_TIMEOUT && began.elapsed() < 7 * OP_TIMEOUT, "{:?}", began.elapsed());
}
