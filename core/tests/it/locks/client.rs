//! What a client does by itself, whichever driver it has: no backend can break this, so the suite has no cases of it.

use std::time::Duration;

use tenure_core::{Error, ErrorKind, Result};
use tokio::time::{Instant, sleep};

use crate::locks::stage::{Stage, Step, TTL, steps};

fn kind<T>(answer: Result<T>) -> Option<ErrorKind> {
    answer.err().as_ref().map(Error::kind)
}

#[tokio::test(start_paused = true)]
async fn a_closed_client_refuses_every_use_and_closing_again_is_harmless() {
    let (stage, client) = Stage::default().client();
    let lock = client.lock("a");
    lock.acquire().await.unwrap().release().await.unwrap();
    client.close(TTL).await.unwrap();
    let sent = stage.frames.lock().unwrap().len();
    assert_eq!(kind(lock.try_acquire().await), Some(ErrorKind::Closed));
    assert_eq!(kind(lock.acquire().await), Some(ErrorKind::Closed));
    assert_eq!(kind(lock.acquire_within(TTL).await), Some(ErrorKind::Closed));
    assert_eq!(kind(client.lock_all(["a", "b"]).acquire().await), Some(ErrorKind::Closed));
    assert_eq!(kind(lock.inspect().await), Some(ErrorKind::Closed));
    assert_eq!(kind(client.ping().await), Some(ErrorKind::Closed));
    assert_eq!(stage.frames.lock().unwrap().len(), sent, "nothing is sent any more");
    client.close(TTL).await.unwrap();
}

/// Programs move these about: into a task, into a timeout, into each future around it. An `async fn` around another one that is
/// handed a future twice its size had made an acquire 9.9 kB large, half of whose instructions were copies of it.
#[tokio::test(start_paused = true)]
async fn the_futures_of_a_lock_are_small() {
    let (_stage, client) = Stage::default().client();
    let lock = client.lock("a");
    let guard = lock.acquire().await.unwrap();
    let sizes = [
        ("try_acquire", size_of_val(&lock.try_acquire())),
        ("acquire", size_of_val(&lock.acquire())),
        ("acquire_within", size_of_val(&lock.acquire_within(TTL))),
        ("release", size_of_val(&guard.release())),
    ];
    assert!(sizes.iter().all(|(_, bytes)| *bytes <= 3_072), "bytes: {sizes:?}");
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_an_error_and_never_a_busy_lock() {
    let down = || Stage { acquire: steps([Step::Fail(ErrorKind::Unavailable); 1000]), ..Stage::default() }.client();
    let (_stage, client) = down();
    let lock = client.lock("a");
    let error = lock.try_acquire().await.unwrap_err();
    assert!(error.kind() == ErrorKind::Unavailable && error.is_transient() && !error.is_lost());
    let began = Instant::now();
    assert_eq!(kind(lock.acquire_within(Duration::from_millis(1_500)).await), Some(ErrorKind::Unavailable));
    assert!(began.elapsed() <= Duration::from_secs(2), "{:?}", began.elapsed());
    assert_eq!(kind(lock.acquire().await), Some(ErrorKind::Unavailable));
    assert_eq!(kind(client.lock_all(["a", "b"]).try_acquire().await), Some(ErrorKind::Unavailable));
    let stats = client.stats();
    assert_eq!((stats.holds, stats.waiters, stats.cleanups), (0, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn holds_and_waiters_are_counted_and_count_down_to_zero() {
    let answers = [Step::Grant, Step::Grant, Step::Busy, Step::Grant];
    let (stage, client) = Stage { acquire: steps(answers), ..Stage::default() }.client();
    let counts = || (client.stats().holds, client.stats().waiters);
    let first = client.lock("a").acquire().await.unwrap();
    let second = client.lock("b").acquire().await.unwrap();
    assert_eq!(counts(), (2, 0));
    let lock = client.lock("c");
    let waiting = tokio::spawn(async move { lock.acquire().await });
    sleep(Duration::from_millis(1)).await;
    assert_eq!(counts(), (2, 1));
    stage.wakes.wake_all();
    let third = waiting.await.unwrap().unwrap();
    assert_eq!(counts(), (3, 0));
    first.release().await.unwrap();
    drop(second);
    third.release().await.unwrap();
    sleep(Duration::from_millis(1)).await;
    assert_eq!(counts(), (0, 0));
    assert_eq!(client.stats().cleanups, 0);
}

#[tokio::test(start_paused = true)]
async fn a_client_at_its_cap_refuses_one_more_without_a_request() {
    let (stage, client) = Stage::default().client_with(|builder| builder.max_holds(2));
    let first = client.lock("a").acquire().await.unwrap();
    let _second = client.lock("b").acquire().await.unwrap();
    let third = client.lock("c");
    assert_eq!(kind(third.try_acquire().await), Some(ErrorKind::LimitReached));
    assert_eq!(kind(third.acquire().await), Some(ErrorKind::LimitReached));
    assert_eq!(stage.sent("acquire").len(), 2);
    first.release().await.unwrap();
    third.acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_error_names_the_operation_the_lock_and_the_driver_and_no_token() {
    let release = steps([Step::Fail(ErrorKind::Denied)]);
    let (_stage, client) = Stage { release, ..Stage::default() }.client();
    let guard = client.lock("sec\nret").acquire().await.unwrap();
    let secret = guard.token().expose();
    assert!(!format!("{guard:?} {client:?}").contains(secret.as_str()), "a token is printed whole");
    let error = guard.release().await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains("release") && text.contains("stage"), "{text}");
    assert!(text.contains("sec\\nret") && !text.contains('\n'), "{text}");
    assert!(!format!("{text} {error:?}").contains(secret.as_str()), "an error holds a token");
}

#[tokio::test(start_paused = true)]
async fn a_try_that_finds_the_lock_busy_leaves_nothing_to_undo() {
    let (stage, client) = Stage { acquire: steps([Step::Busy]), ..Stage::default() }.client();
    assert!(client.lock("a").try_acquire().await.unwrap().is_none());
    sleep(TTL).await;
    assert_eq!(stage.frames.lock().unwrap().iter().map(|frame| frame.0).collect::<Vec<_>>(), ["acquire"]);
    let one = Stage { acquire: steps([Step::Fail(ErrorKind::Indeterminate), Step::Busy]), ..Stage::default() };
    let (stage, client) = one.client();
    assert_eq!(kind(client.lock("a").try_acquire().await), Some(ErrorKind::Indeterminate));
    sleep(TTL).await;
    assert_eq!(stage.sent("abandon"), stage.sent("acquire"), "it may have been applied");
}

#[tokio::test(start_paused = true)]
async fn an_outage_that_a_short_patience_met_is_reported_and_no_silence_of_that_time() {
    let down = [Step::Fail(ErrorKind::Unavailable); 1000];
    let (_stage, client) = Stage { acquire: steps(down), ..Stage::default() }.client();
    let patience = Duration::from_millis(100); // less than any answer may take
    assert_eq!(kind(client.lock("a").acquire_within(patience).await), Some(ErrorKind::Unavailable));
    let slow = [Step::Fail(ErrorKind::Indeterminate); 1000];
    let (_stage, client) = Stage { acquire: steps(slow), ..Stage::default() }.client();
    assert_eq!(kind(client.lock("a").acquire_within(patience).await), Some(ErrorKind::TimedOut));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_is_gone_leaves_no_task() {
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let (_stage, client) = Stage::default().client();
    client.lock("a").acquire().await.unwrap().release().await.unwrap();
    assert!(tasks() > 1, "it has tasks of its own, and one that notices when the runtime ends");
    client.close(TTL).await.unwrap();
    sleep(TTL).await;
    assert_eq!(tasks(), 1, "of a closed one, those have ended");
    drop(client);
    sleep(TTL).await;
    assert_eq!(tasks(), 0);
    let (_stage, client) = Stage::default().client();
    client.lock("a").acquire().await.unwrap().release().await.unwrap();
    drop(client);
    sleep(TTL).await;
    assert_eq!(tasks(), 0, "also of one that nobody closed");
}
