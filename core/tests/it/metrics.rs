//! With the feature `metrics`, `docs/metrics.md` lists what is reported, all of it, and nothing else.

#![cfg(feature = "metrics")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use metrics_util::{CompositeKey, MetricKind};
use tenure_core::driver::Settled;
use tenure_core::queue::{Job, MessageId};
use tenure_core::{Client, Confirmation, ErrorKind, LockGuard};
use tenure_memory::{MemoryDriver, Operation};

const TTL: Duration = Duration::from_secs(30);

/// A metric as the page describes it, and as it was reported.
#[derive(Debug, PartialEq, Eq)]
struct Described {
    kind: String,
    /// The values of each label; none if they are not listed.
    labels: BTreeMap<String, BTreeSet<String>>,
    meaning: String,
}

/// What stands in backticks.
fn quoted(text: &str) -> Vec<String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

fn documented() -> BTreeMap<String, Described> {
    let page = include_str!("../../../docs/metrics.md");
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    let row = |line: &str| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [name, kind, labels, meaning] = cells[..] else { panic!("{line}") };
        let label = |text: &str| {
            let mut words = quoted(text).into_iter();
            (words.next().expect("a label"), words.collect())
        };
        let labels = labels.split(';').map(label).collect();
        (quoted(name).remove(0), Described { kind: kind.to_owned(), labels, meaning: meaning.to_owned() })
    };
    rows.map(row).collect()
}

/// What was reported, with the values of those labels only that the page lists.
fn reported(seen: &Seen, listed: &BTreeMap<String, Described>) -> BTreeMap<String, Described> {
    let mut reported: BTreeMap<String, Described> = BTreeMap::new();
    for (key, (unit, text, _)) in &seen.0 {
        let kind = match (key.kind(), unit) {
            (MetricKind::Counter, Some(metrics::Unit::Count)) => "counter",
            (MetricKind::Gauge, Some(metrics::Unit::Count)) => "gauge",
            (MetricKind::Histogram, Some(metrics::Unit::Seconds)) => "histogram, seconds",
            other => panic!("{key:?}: {other:?}"),
        };
        let name = key.key().name();
        let meaning = text.as_ref().expect("a description").to_string();
        let new = || Described { kind: kind.to_owned(), labels: BTreeMap::new(), meaning };
        let described = reported.entry(name.to_owned()).or_insert_with(new);
        for label in key.key().labels() {
            let values = described.labels.entry(label.key().to_owned()).or_default();
            if listed.get(name).and_then(|row| row.labels.get(label.key())).is_some_and(|values| !values.is_empty()) {
                values.insert(label.value().to_owned());
            }
        }
    }
    reported
}

type Series = (CompositeKey, (Option<metrics::Unit>, Option<metrics::SharedString>, DebugValue));

/// What has come to a recorder since the last look.
struct Seen(Vec<Series>);

impl Seen {
    fn of(snapshotter: &Snapshotter) -> Self {
        let all = snapshotter.snapshot().into_vec();
        Self(all.into_iter().map(|(key, unit, text, value)| (key, (unit, text, value))).collect())
    }

    /// The sum of the series that have these labels; of a histogram, how often something was recorded.
    fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let has = |key: &CompositeKey, (label, value): &(&str, &str)| {
            key.key().labels().any(|own| own.key() == *label && own.value() == *value)
        };
        let series = self.0.iter().filter(|(key, _)| key.key().name() == name);
        let series = series.filter(|(key, _)| labels.iter().all(|label| has(key, label)));
        let mut found = false;
        let sum = series.map(|(_, (_, _, value))| {
            found = true;
            match value {
                DebugValue::Counter(count) => *count as f64,
                DebugValue::Gauge(level) => level.0,
                DebugValue::Histogram(records) => records.len() as f64,
            }
        });
        let sum = sum.sum();
        assert!(found, "{name} with {labels:?} was not reported");
        sum
    }

    /// All that a histogram was told, in seconds.
    fn records(&self, name: &str) -> Vec<f64> {
        let of = |(key, (_, _, value)): &Series| match value {
            DebugValue::Histogram(records) if key.key().name() == name => records.iter().map(|one| one.0).collect(),
            _ => Vec::new(),
        };
        self.0.iter().flat_map(of).collect()
    }
}

async fn seconds(count: u64) {
    tokio::time::sleep(Duration::from_secs(count)).await;
}

/// Takes the lock, once others wait for it, holds it for as long and gives it back.
async fn hold(client: Client, name: &'static str, span: Duration) -> tenure_core::FencingToken {
    let guard = client.lock(name).ttl(TTL).acquire().await.unwrap();
    tokio::time::sleep(span).await;
    let fence = guard.fence();
    guard.release().await.unwrap();
    fence
}

#[tokio::test(start_paused = true)]
async fn every_metric_of_the_page_is_reported_and_no_other() {
    let recorder = DebuggingRecorder::new();
    let _recording = metrics::set_default_local_recorder(&recorder);
    locks().await;
    queues().await;
    tenure_core::driver::reconnected("memory");

    let (seen, page) = (Seen::of(&recorder.snapshotter()), documented());
    let reported = reported(&seen, &page);
    for (name, row) in &page {
        assert_eq!(reported.get(name), Some(row), "{name}, as it was reported, and as the page has it");
    }
    assert_eq!(reported.keys().collect::<Vec<_>>(), page.keys().collect::<Vec<_>>());
    for (key, (_, _, value)) in &seen.0 {
        let happened = match value {
            DebugValue::Counter(count) => *count > 0,
            DebugValue::Histogram(records) => !records.is_empty(),
            DebugValue::Gauge(_) => true,
        };
        assert!(happened, "{key:?} has nothing to tell");
    }
    for level in ["tenure.lock.requests.in_flight", "tenure.lock.cleanups"] {
        assert_eq!(seen.sum(level, &[]), 0.0, "{level}, when all clients are gone");
    }
}

/// Lets all of it happen to locks.
async fn locks() {
    let driver = MemoryDriver::new();
    let (faults, client, other) = (driver.faults(), Client::new(driver.clone()), Client::new(driver));
    let lock = |name: &'static str| client.lock(name).ttl(TTL);

    // Granted at once, busy, timed out, cancelled, failed; then a remote and a local hand-over.
    let guard = lock("a").acquire().await.unwrap();
    assert!(other.lock("a").try_acquire().await.unwrap().is_none());
    let late = other.lock("a").acquire_within(Duration::from_secs(1)).await;
    assert_eq!(late.unwrap_err().kind(), ErrorKind::TimedOut);
    assert!(tokio::time::timeout(Duration::from_secs(1), other.lock("a").acquire()).await.is_err());
    faults.fail_next(Operation::Acquire, ErrorKind::Denied);
    assert_eq!(other.lock("b").acquire().await.unwrap_err().kind(), ErrorKind::Denied);
    let waiting: Vec<_> = (0..2).map(|_| tokio::spawn(hold(other.clone(), "a", Duration::from_millis(1)))).collect();
    seconds(1).await;
    guard.release().await.unwrap();
    for one in waiting {
        one.await.unwrap();
    }

    // A lease that nobody renews, one that is taken away, one that may be held for a second.
    let fixed = client.lock("fixed").fixed_ttl(Duration::from_secs(1)).acquire().await.unwrap();
    let taken = lock("taken").acquire().await.unwrap();
    let capped = lock("capped").max_hold(Duration::from_secs(1)).acquire().await.unwrap();
    faults.lose("taken").unwrap();
    for guard in [fixed, taken, capped] {
        guard.lost().await;
    }

    // Renewals that fail, and one that does not; a client that is closed.
    let kept = lock("kept").acquire().await.unwrap();
    faults.fail_next(Operation::Renew, ErrorKind::Unavailable);
    seconds(60).await;
    assert!(kept.is_held());
    client.close(TTL).await.unwrap();
    other.close(TTL).await.unwrap();
}

/// Lets all of it happen to queues.
async fn queues() {
    let driver = MemoryDriver::builder().max_dead_letters(3).build().unwrap();
    let (faults, client) = (driver.faults(), Client::new(driver));
    let queue = client.queue_of_bytes("jobs").unwrap().lease(Duration::from_secs(3));
    let push = async |name: &str| queue.push(&b"a".to_vec()).id(name).await.unwrap();
    let receive = async || tokio::time::timeout(TTL * 10, queue.receive()).await.expect("a message").unwrap();

    // Pushed, pushed again, replaced, and not stored.
    push("a").await;
    push("a").await;
    queue.push(&b"b".to_vec()).id("a").replace().await.unwrap();
    faults.fail_next(Operation::Push, ErrorKind::Unavailable);
    queue.push(&b"c".to_vec()).await.unwrap_err();

    // Every end of a delivery but for those of leases and of dead letters.
    receive().await.give_back().await.unwrap();
    receive().await.nack(Duration::ZERO).await.unwrap();
    let lock = tenure_core::LockName::new("taken").unwrap();
    receive().await.park(&lock, Duration::from_secs(1)).await.unwrap();
    faults.fail_next(Operation::Settle, ErrorKind::Denied);
    receive().await.ack().await.unwrap_err();
    receive().await.ack().await.unwrap();

    // An occurrence that nobody handled in its time.
    queue.recurring("b").every(Duration::from_secs(60)).ensure(&b"b".to_vec()).await.unwrap();
    seconds(200).await;
    assert!(queue.try_receive().await.unwrap().is_none());
    seconds(5).await;
    queue.recurring("b").every(Duration::from_secs(60)).max_attempts(1).ensure(&b"b".to_vec()).await.unwrap();
    receive().await.nack(Duration::ZERO).await.unwrap();
    queue.cancel(&MessageId::named("b").unwrap()).await.unwrap();

    // A lease that ends before its settlement, and one that the backend forgets; one that is delivered once only.
    push("c").await;
    let late = receive().await;
    seconds(4).await;
    let again = receive().await;
    assert_eq!((late.ack().await.unwrap(), again.ack().await.unwrap()), (Settled::Stale, Settled::Done));
    queue.push(&b"d".to_vec()).max_attempts(1).await.unwrap();
    std::mem::forget(receive().await);
    seconds(4).await;
    assert!(queue.try_receive().await.unwrap().is_none());
    push("e").await;
    let known = receive().await;
    faults.restart_empty();
    assert_eq!(known.ack().await.unwrap(), Settled::Stale);

    // Dead, until there is no place for more of them.
    for name in ["f", "g", "h", "i"] {
        push(name).await;
        receive().await.bury(None).await.unwrap();
    }
    let least = queue.worker().measure_depth(Duration::from_millis(1)).start(async |_: Job<Vec<u8>>| ());
    least.unwrap().shutdown(Duration::from_secs(1)).await;
    let mut worker = queue.worker().measure_depth(Duration::from_secs(1)).start(async |_: Job<Vec<u8>>| ()).unwrap();
    push("j").await;
    seconds(3).await;
    client.close(TTL).await.unwrap();
    worker.join().await.unwrap();
}

/// A client that tells two names apart.
fn naming(driver: MemoryDriver) -> Client {
    Client::builder(driver).metric_names(2).build().unwrap()
}

#[tokio::test(start_paused = true)]
async fn waits_and_holds_are_measured_and_outcomes_add_up() {
    let recorder = DebuggingRecorder::new();
    let _recording = metrics::set_default_local_recorder(&recorder);
    let driver = MemoryDriver::new();
    let (faults, client) = (driver.faults(), naming(driver));
    let look = || Seen::of(&recorder.snapshotter());

    let guard = client.lock("a").ttl(TTL).acquire().await.unwrap();
    let waiting = tokio::spawn(hold(client.clone(), "a", Duration::from_secs(5)));
    seconds(2).await;
    drop(guard);
    waiting.await.unwrap();
    let seen = look();
    let near = |records: Vec<f64>, expected: [f64; 2]| {
        let mut records = records;
        records.sort_by(f64::total_cmp);
        assert_eq!(records.len(), 2, "{records:?}");
        assert!(records.iter().zip(expected).all(|(one, other)| (one - other).abs() < 0.1), "{records:?}");
    };
    near(seen.records("tenure.lock.acquire.wait"), [0.0, 2.0]);
    near(seen.records("tenure.lock.hold"), [2.0, 5.0]);
    let acquires = |seen: &Seen, outcome| seen.sum("tenure.lock.acquires", &[("outcome", outcome), ("name", "a")]);
    assert_eq!(["at_once", "waited", "busy"].map(|outcome| acquires(&seen, outcome)), [1.0, 1.0, 0.0]);
    assert_eq!(seen.sum("tenure.lock.losses", &[]), 0.0);

    // An outage: the gauge of clean-ups tells what could not be given back. A loss counts once, whoever notices it.
    let lost: Vec<LockGuard> = vec![client.lock("b").ttl(TTL).acquire().await.unwrap()];
    faults.outage();
    seconds(60).await;
    assert!(lost.iter().all(|guard| !guard.is_held()));
    drop(lost);
    let seen = look();
    assert_eq!(seen.sum("tenure.lock.losses", &[("reason", "expired"), ("name", "b")]), 1.0);
    assert!(seen.sum("tenure.lock.renewals", &[("outcome", "failed")]) > 1.0);
    assert_eq!((seen.sum("tenure.lock.cleanups", &[]), client.stats().cleanups), (1.0, 1));
    faults.heal();
    let taken = client.lock("b").ttl(TTL).acquire().await.unwrap();
    faults.lose("b").unwrap();
    assert_eq!(taken.release().await.unwrap_err().kind(), ErrorKind::Lost);
    seconds(1).await;
    let seen = look();
    assert_eq!(seen.sum("tenure.lock.losses", &[("reason", "gone"), ("name", "b")]), 1.0, "found out by the release");
    let lately = seen.sum("tenure.lock.cleanups", &[]);
    client.close(TTL).await.unwrap();
    assert_eq!(lately + look().sum("tenure.lock.cleanups", &[]), -1.0, "one less than before");
}

#[tokio::test(start_paused = true)]
async fn a_request_is_in_flight_for_as_long_as_its_answer_is_waited_for() {
    let recorder = DebuggingRecorder::new();
    let _recording = metrics::set_default_local_recorder(&recorder);
    let driver = MemoryDriver::new();
    let (faults, client) = (driver.faults(), Client::new(driver));
    let mut held = Vec::new();
    let mut more_in_flight = || {
        let seen = Seen::of(&recorder.snapshotter());
        held.extend(seen.records("tenure.lock.hold"));
        ["take", "renew", "give_back"]
            .map(|operation| seen.sum("tenure.lock.requests.in_flight", &[("operation", operation)]))
    };
    let half = Duration::from_millis(300);
    faults.delay(Operation::Acquire, half * 2);
    faults.delay(Operation::Release, half * 2);
    let work = tokio::spawn(hold(client.clone(), "a", half * 2));
    let mut seen = Vec::new();
    for _ in 0..4 {
        tokio::time::sleep(half).await;
        seen.push(more_in_flight());
        tokio::time::sleep(half).await;
    }
    assert_eq!(seen, [[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, -1.0]]);
    work.await.unwrap();
    faults.heal();
    faults.delay(Operation::Renew, half * 2);
    let renewed = client.lock("b").ttl(half * 20).acquire().await.unwrap();
    more_in_flight();
    let mut seen = Vec::new();
    for _ in 0..9 {
        tokio::time::sleep(half).await;
        seen.extend(Some(more_in_flight()[1]).filter(|more| *more != 0.0));
    }
    assert_eq!(seen, [1.0, -1.0], "one renewal at a third of the ttl");
    drop(renewed);
    assert!(held.len() == 1 && (held[0] - 0.6).abs() < 0.1, "the release is no part of the hold: {held:?}");
}

#[tokio::test(start_paused = true)]
async fn who_is_handed_the_lock_is_counted_by_where_it_came_from() {
    for confirmation in [Confirmation::First, Confirmation::Behind] {
        let recorder = DebuggingRecorder::new();
        let _recording = metrics::set_default_local_recorder(&recorder);
        let driver = MemoryDriver::new();
        let client = Client::builder(driver.clone()).metric_names(2).confirmation(confirmation).build().unwrap();
        let other = Client::new(driver);
        let guard = other.lock("a").ttl(TTL).acquire().await.unwrap();
        let waiting: Vec<_> =
            (0..4).map(|_| tokio::spawn(hold(client.clone(), "a", Duration::from_millis(1)))).collect();
        seconds(1).await;
        guard.release().await.unwrap();
        for one in waiting {
            one.await.unwrap();
        }
        let seen = Seen::of(&recorder.snapshotter());
        let handovers = |kind| seen.sum("tenure.lock.handovers", &[("kind", kind)]);
        assert_eq!([handovers("remote"), handovers("local")], [1.0, 3.0]);
        assert_eq!(seen.sum("tenure.lock.acquires", &[("outcome", "waited")]), 4.0);
        assert_eq!(seen.records("tenure.lock.hold").len(), 5, "each holds it, however it came");
    }
}

/// Whoever is given the lock may be slow to take it.
#[tokio::test(start_paused = true)]
async fn a_hold_is_measured_from_when_it_is_taken_to_when_it_is_given_up() {
    let recorder = DebuggingRecorder::new();
    let _recording = metrics::set_default_local_recorder(&recorder);
    let driver = MemoryDriver::new();
    let (client, other) = (naming(driver.clone()), Client::new(driver));
    let guard = other.lock("a").ttl(TTL).acquire().await.unwrap();
    let first = tokio::spawn(hold(client.clone(), "a", TTL));
    let moment = Duration::from_millis(10);
    tokio::time::sleep(moment).await;
    let lock = client.lock("a").ttl(TTL);
    let mut slow = Box::pin(lock.acquire());
    assert!(tokio::time::timeout(moment, &mut slow).await.is_err(), "it waits along with the first");
    first.abort();
    seconds(1).await;
    guard.release().await.unwrap();
    seconds(1).await; // it is its turn
    let slow = slow.await.unwrap();
    seconds(3).await;
    slow.release().await.unwrap();
    let seen = Seen::of(&recorder.snapshotter());
    assert_eq!(seen.sum("tenure.lock.handovers", &[("kind", "local")]), 0.0, "it came from the backend");
    let mut held = seen.records("tenure.lock.hold");
    held.sort_by(f64::total_cmp);
    assert_eq!(held.iter().map(|span| span.round()).collect::<Vec<_>>(), [1.0, 3.0], "{held:?}");
}

#[tokio::test(start_paused = true)]
async fn a_leader_differs_from_a_candidate_until_its_term_ends() {
    let recorder = DebuggingRecorder::new();
    let _recording = metrics::set_default_local_recorder(&recorder);
    let driver = MemoryDriver::new();
    let (faults, client) = (driver.faults(), naming(driver));
    let candidate = client.election("a").ttl(TTL).candidate("one");
    let more = || Seen::of(&recorder.snapshotter()).sum("tenure.election.leading", &[("name", "a")]);
    let first = candidate.campaign().await.unwrap();
    assert!(candidate.try_campaign().await.unwrap().is_none());
    assert_eq!(more(), 1.0);
    first.resign().await.unwrap();
    assert_eq!(more(), -1.0);
    let second = candidate.campaign().await.unwrap();
    assert_eq!(more(), 1.0);
    drop(second);
    assert_eq!(more(), -1.0);
    let third = candidate.campaign().await.unwrap();
    faults.outage();
    third.lost().await;
    seconds(1).await;
    assert_eq!(more(), 0.0, "and nobody has looked at the leadership since");
    faults.heal();
    drop(third);
    seconds(1).await;
    assert_eq!(more(), 0.0);
}

#[tokio::test(start_paused = true)]
async fn names_are_distinguished_up_to_the_most() {
    let recorder = DebuggingRecorder::new();
    let _recording = metrics::set_default_local_recorder(&recorder);
    let client = naming(MemoryDriver::new());
    for name in ["a", "b", "c", "d", "a"] {
        hold(client.clone(), name, Duration::ZERO).await;
    }
    let seen = Seen::of(&recorder.snapshotter());
    let of = |name| seen.sum("tenure.lock.acquires", &[("outcome", "at_once"), ("name", name)]);
    assert_eq!([of("a"), of("b"), of("_other")], [2.0, 1.0, 2.0]);
    let names: BTreeSet<_> =
        seen.0.iter().flat_map(|(key, _)| key.key().labels()).filter(|l| l.key() == "name").collect();
    assert_eq!(names.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_queue_is_measured_from_the_push_to_the_settlement() {
    let recorder = DebuggingRecorder::new();
    let _recording = metrics::set_default_local_recorder(&recorder);
    let client = naming(MemoryDriver::new());
    let queue = client.queue_of_bytes("jobs").unwrap();
    let look = || Seen::of(&recorder.snapshotter());
    let depth = |seen: &Seen| ["scheduled", "ready"].map(|s| seen.sum("tenure.queue.depth", &[("state", s)]));

    for delay in [0, 0, 100] {
        queue.push(&b"a".to_vec()).delay(Duration::from_secs(delay)).await.unwrap();
    }
    let seen = look();
    assert_eq!(seen.sum("messaging.client.sent.messages", &[("messaging.destination.name", "jobs")]), 3.0);
    assert_eq!(depth(&seen), [0.0, 0.0], "nobody has asked");
    queue.stats().await.unwrap();
    assert_eq!(depth(&look()), [1.0, 2.0]);

    seconds(7).await;
    let work = async |_: Job<Vec<u8>>| seconds(2).await;
    let worker = queue.worker().measure_depth(Duration::from_secs(10)).start(work).unwrap();
    seconds(15).await;
    let seen = look();
    assert_eq!(depth(&seen), [0.0, -2.0], "two less are ready, as the worker learned");
    assert_eq!(seen.sum("tenure.queue.deliveries", &[("outcome", "ack"), ("name", "jobs")]), 2.0);
    assert_eq!(seen.sum("messaging.client.consumed.messages", &[]), 2.0);
    assert_eq!(seen.sum("tenure.queue.dead_letters", &[]), 0.0);
    let about = |name, span: f64| {
        let records = seen.records(name);
        assert!(records.len() == 2 && records.iter().all(|one| (one - span).abs() < 0.1), "{name}: {records:?}");
    };
    about("tenure.queue.lag", 7.0);
    about("messaging.process.duration", 2.0);
    worker.abort().await;
    let lost = |seen: &Seen| seen.sum("tenure.queue.deliveries", &[("outcome", "lost_lease")]);
    let late = queue.receive().await.unwrap();
    seconds(60).await;
    drop(late);
    assert_eq!((lost(&seen), lost(&look())), (0.0, 1.0), "it was dropped behind the end of its lease");
    let refused = queue.worker().measure_depth(Duration::ZERO).start(async |_: Job<Vec<u8>>| ());
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidArgument);
    drop((queue, client));
    seconds(60).await;
    assert_eq!(depth(&look()), [-1.0, 0.0], "what was said of a queue is taken back");
}
