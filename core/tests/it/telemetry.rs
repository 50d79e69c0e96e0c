//! With the feature `tracing`, the engine reports under the names that `tenure_core::telemetry` documents.

#![cfg(feature = "tracing")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt as _;
use tenure_core::queue::{Job, Missed, Outcome, QueueName};
use tenure_core::{Client, ErrorKind};
use tenure_memory::{MemoryDriver, Operation};
use tenure_testkit::Recorder;
use tracing::span::{Id, Record};
use tracing::{Instrument as _, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;

#[tokio::test(start_paused = true)]
async fn everything_documented_is_reported_and_no_token_is() {
    let recorder = Recorder::of("tenure");
    let _reporting = tracing::subscriber::set_default(recorder.clone());
    let driver = MemoryDriver::new();
    let (faults, client) = (driver.faults(), Client::new(driver));
    let lock = client.lock("orders/42").ttl(Duration::from_secs(30));

    // A wait that is disturbed and then granted.
    let first = lock.acquire().await.unwrap();
    let mut tokens = vec![*first.token()];
    let waiting = tokio::spawn({
        let lock = lock.clone();
        async move { lock.acquire().await }
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    faults.fail_next(Operation::Acquire, ErrorKind::Unavailable); // its next heartbeat, after 5 s
    tokio::time::sleep(Duration::from_secs(6)).await;
    first.release().await.unwrap();
    let second = waiting.await.unwrap().unwrap();
    tokens.push(*second.token());

    // A release finds that the lease was taken away.
    let taken = client.lock("orders/42/taken").acquire().await.unwrap();
    faults.lose("orders/42/taken").unwrap();
    assert_eq!(taken.release().await.unwrap_err().kind(), ErrorKind::Lost);
    assert!(recorder.lines_of("tenure.lost")[0].contains("reason=Gone"));

    // Renewals fail until the lease is lost; its release is not acknowledged until it cannot matter any more.
    faults.outage();
    second.lost().await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    faults.heal();
    let _held = client.lock("orders/42/held").acquire().await.unwrap();
    client.close(Duration::from_secs(600)).await.unwrap();

    for name in [
        "tenure.acquire",
        "tenure.granted",
        "tenure.lost",
        "tenure.renewal_failed",
        "tenure.wait_disturbed",
        "tenure.cleanup_retried",
        "tenure.cleanup_given_up",
    ] {
        let lines = recorder.lines_of(name);
        assert!(!lines.is_empty(), "{name} was not reported");
        assert!(lines.iter().all(|line| line.contains("orders/42")), "{lines:?}");
    }
    let lost = recorder.lines_of("tenure.lost");
    assert!(lost.len() == 3 && lost[1].contains("reason=Expired") && lost[2].contains("reason=Closed"), "{lost:?}");
    let all = recorder.lines().join("\n");
    assert!(tokens.iter().all(|token| !all.contains(token.expose().as_str())));
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_reported_once_a_second_however_many_locks_are_held() {
    let recorder = Recorder::of("tenure");
    let _reporting = tracing::subscriber::set_default(recorder.clone());
    let driver = MemoryDriver::new();
    let (faults, client) = (driver.faults(), Client::new(driver));
    let mut held = Vec::new();
    for number in 0..200 {
        let lock = client.lock(format!("order/{number}")).ttl(Duration::from_secs(30));
        held.push(lock.acquire().await.unwrap());
    }
    tokio::time::sleep(Duration::from_secs(60)).await;
    faults.outage();
    tokio::time::sleep(Duration::from_secs(10)).await;
    faults.heal();
    tokio::time::sleep(Duration::from_secs(30)).await;
    let failed = recorder.lines_of("tenure.renewal_failed");
    assert!((1..=12).contains(&failed.len()), "{} lines", failed.len());
    let recovered = recorder.lines_of("tenure.renewals_recovered");
    assert_eq!(recovered.len(), 1, "{recovered:?}");
    let number = |line: &String| line.split("count=").nth(1)?.split(' ').next()?.parse::<usize>().ok();
    let counted: usize = failed.iter().chain(&recovered).map(|line| number(line).unwrap()).sum();
    assert!(counted >= 200, "{counted} failures in {failed:?}");
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_a_hold_of_its_own_client_is_warned_of_once() {
    const TTL: Duration = Duration::from_secs(30);
    let recorder = Recorder::of("tenure");
    let _reporting = tracing::subscriber::set_default(recorder.clone());
    let client = Client::new(MemoryDriver::new());
    let warnings = |name: &str| {
        let lines = recorder.lines_of("tenure.waits_for_own_client");
        lines.iter().filter(|line| line.contains(name)).count()
    };
    let lock = |name: &str| client.lock(name).ttl(TTL);

    // It holds the lock and asks for it again.
    let guard = lock("mine").acquire().await.unwrap();
    let again = lock("mine").acquire_within(TTL * 5).await;
    assert_eq!((again.unwrap_err().kind(), warnings("mine")), (ErrorKind::TimedOut, 1));

    // So do two, of which one waits along with the other; and one that wants another lease, and waits by itself.
    let (one, other, alone) = (lock("mine"), lock("mine"), lock("mine").label("another"));
    let _ = tokio::join!(one.acquire_within(TTL * 2), other.acquire_within(TTL * 2), alone.acquire_within(TTL * 2));
    assert_eq!(warnings("mine"), 4);
    let _ = lock("mine").acquire_within(TTL * 9 / 10).await.unwrap_err();
    assert_eq!(warnings("mine"), 4, "before the ttl is over it may be a matter of patience");
    assert!(tokio::time::timeout(TTL * 2, lock("mine").until_free()).await.is_err());
    assert_eq!(warnings("mine"), 5, "nobody else can free it");
    guard.release().await.unwrap();

    // A busy lock goes from task to task; the last one waits for two ttls.
    let holds = (0..6).map(|_| {
        let lock = lock("busy");
        tokio::spawn(async move {
            let guard = lock.acquire().await.unwrap();
            tokio::time::sleep(TTL * 2 / 5).await;
            guard.release().await.unwrap();
        })
    });
    for hold in holds.collect::<Vec<_>>() {
        hold.await.unwrap();
    }
    assert_eq!(warnings("busy"), 0);

    // Another client has the lock, or it is left standing.
    let driver = MemoryDriver::new();
    let (client, other) = (Client::new(driver.clone()), Client::new(driver));
    let guard = other.lock("theirs").acquire().await.unwrap();
    let ours = client.lock("ours").ttl(TTL).acquire().await.unwrap();
    let _ = client.lock("theirs").acquire_within(TTL * 3).await.unwrap_err();
    drop((guard, ours));
    client.lock("standing").at_least(TTL * 3).acquire().await.unwrap().release().await.unwrap();
    let _ = client.lock("standing").ttl(TTL).acquire().await.unwrap();
    assert_eq!((warnings("theirs"), warnings("standing")), (0, 0));
}

/// Waits, on the paused clock, until it was reported.
async fn reported(recorder: &Recorder, name: &str) {
    let seen = async {
        while recorder.lines_of(name).is_empty() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), seen).await.unwrap_or_else(|_| panic!("{name} was not reported"));
}

#[tokio::test(start_paused = true)]
async fn everything_documented_of_queues_is_reported_and_no_payload_is() {
    let recorder = Recorder::of("tenure");
    let _reporting = tracing::subscriber::set_default(recorder.clone());
    let driver = MemoryDriver::new();
    let (faults, client) = (driver.faults(), Client::new(driver.clone()));
    let queue = client.queue_of_bytes("jobs").unwrap().lease(Duration::from_secs(3));

    // A delivery whose lease ends; the message comes again and dies, as its handler says.
    queue.push(&b"a secret".to_vec()).max_attempts(2).await.unwrap();
    let late = queue.receive().await.unwrap();
    tokio::time::sleep(Duration::from_secs(4)).await;
    let again = queue.receive().await.unwrap();
    late.ack().await.unwrap();
    drop(again);
    reported(&recorder, "tenure.received").await;

    // Neither wake-ups nor messages are to be had at first; then a worker buries one message.
    let jobs = client.queue_of_bytes("more jobs").unwrap();
    faults.fail_next(Operation::Watch, ErrorKind::Unavailable);
    faults.fail_next(Operation::Receive, ErrorKind::Unavailable);
    let worker = jobs.worker().start(async |_: Job<Vec<u8>>| Outcome::Dead(None)).unwrap();
    reported(&recorder, "tenure.queue_disturbed").await;
    jobs.push(&b"a secret".to_vec()).await.unwrap();
    reported(&recorder, "tenure.dead_letter").await;
    worker.shutdown(Duration::from_secs(5)).await;

    // A worker that is refused for good.
    faults.fail_next(Operation::Receive, ErrorKind::Denied);
    let refused = client.queue_of_bytes("refused jobs").unwrap();
    let mut worker = refused.worker().start(async |_: Job<Vec<u8>>| ()).unwrap();
    assert_eq!(worker.join().await.unwrap_err().kind(), ErrorKind::Denied);

    // An occurrence that was missed, since nobody was there.
    let recurring = client.queue_of_bytes("recurring jobs").unwrap();
    let each_minute = recurring.recurring("report").every(Duration::from_secs(60)).missed(Missed::Skip);
    each_minute.ensure(&b"a secret".to_vec()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(150)).await;
    assert!(recurring.try_receive().await.unwrap().is_none());

    // A change that waits for an occurrence, and fails at first.
    let occurrence = recurring.receive().await.unwrap();
    recurring.recurring("report").every(Duration::from_secs(60)).ensure(&b"another secret".to_vec()).await.unwrap();
    faults.fail_next(Operation::Operate, ErrorKind::Unavailable);
    reported(&recorder, "tenure.change_failed").await;
    occurrence.ack().await.unwrap();

    // A worker whose last settlement is not answered before the end of its shutdown.
    let patient = Client::builder(driver).op_timeout(Duration::from_secs(20)).build().unwrap();
    let slow = patient.queue_of_bytes("slow jobs").unwrap();
    slow.push(&b"a secret".to_vec()).await.unwrap();
    for operation in [Operation::Receive, Operation::Settle] {
        faults.delay(operation, Duration::from_secs(10));
    }
    let worker = slow.worker().start(async |_: Job<Vec<u8>>| ()).unwrap();
    while worker.stats().running.is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    worker.abort().await;

    for (name, queue) in [
        ("tenure.change_failed", "recurring jobs"),
        ("tenure.handler_unfinished", "slow jobs"),
        ("tenure.push", "jobs"),
        ("tenure.occurrence_passed_over", "recurring jobs"),
        ("tenure.received", "jobs"),
        ("tenure.healed", "jobs"),
        ("tenure.settled", "more jobs"),
        ("tenure.dead_letter", "more jobs"),
        ("tenure.delivery_lost", "jobs"),
        ("tenure.queue_disturbed", "more jobs"),
        ("tenure.queue_unwatched", "more jobs"),
        ("tenure.worker_started", "more jobs"),
        ("tenure.worker_refused", "refused jobs"),
        ("tenure.worker_stopped", "more jobs"),
    ] {
        let lines = recorder.lines_of(name);
        let field = format!(" queue={}", QueueName::new(queue).unwrap());
        assert!(lines.iter().any(|line| line.contains(&field)), "{name} with{field}: {lines:?}");
    }
    let healed = recorder.lines_of("tenure.healed");
    assert!(healed.len() == 1 && healed[0].contains("expired=1"), "{healed:?}");
    assert!(recorder.lines_of("tenure.worker_stopped")[0].contains("dead=1"));
    let all = recorder.lines().join("\n");
    assert!(!all.contains("secret"), "{all}");
}

/// Keeps the outcome of each span of an acquisition, and from which spans it follows.
#[derive(Clone, Debug, Default)]
struct Outcomes(Arc<Mutex<Vec<String>>>);

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Outcomes {
    fn on_record(&self, span: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let name = context.span(span).unwrap().name();
        self.0.lock().unwrap().push(format!("{name} {values:?}"));
    }

    fn on_follows_from(&self, span: &Id, follows: &Id, context: Context<'_, S>) {
        let name = |id| context.span(id).unwrap().name();
        self.0.lock().unwrap().push(format!("{} follows {}", name(span), name(follows)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_span_tells_how_it_ended_and_follows_from_whoever_passed_the_lock_on() {
    let outcomes = Outcomes::default();
    let _reporting = tracing::subscriber::set_default(tracing_subscriber::registry().with(outcomes.clone()));
    let seen = || std::mem::take(&mut *outcomes.0.lock().unwrap()).join("\n");
    let driver = MemoryDriver::new();
    let (faults, client) = (driver.faults(), Client::new(driver));
    let lock = client.lock("orders/42");

    let first = lock.acquire().await.unwrap();
    assert!(seen().contains("at_once"));
    assert!(lock.try_acquire().await.unwrap().is_none());
    assert!(seen().contains("busy"));
    assert!(lock.acquire_within(Duration::from_millis(10)).await.is_err());
    assert!(seen().contains("timed_out"));
    faults.fail_next(Operation::Acquire, ErrorKind::Denied);
    assert!(client.lock("orders/43").acquire().await.is_err());
    assert!(seen().contains("denied"));
    assert!(client.lock("orders/42").acquire().now_or_never().is_none());
    assert_eq!(seen(), "", "one that was dropped has no outcome");

    // The first waiter gets it from the backend, the second from the first.
    let waiting = [(); 2].map(|()| {
        let lock = lock.clone();
        let request = async move { lock.acquire().await.unwrap().release().await.unwrap() };
        tokio::spawn(request.instrument(tracing::info_span!("request")))
    });
    tokio::time::sleep(Duration::from_millis(10)).await;
    first.release().await.unwrap();
    for one in waiting {
        one.await.unwrap();
    }
    let reported = seen();
    assert_eq!(reported.matches("waited").count(), 2, "{reported}");
    assert_eq!(reported.matches("tenure.acquire follows request\n").count(), 1, "{reported}");
}
