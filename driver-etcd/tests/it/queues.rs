//! Delay queues on a server, past the engine: costs, wake-ups, clocks that are apart, foreign hands.

use std::collections::HashSet;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::common::*;
use etcd_client::{AlarmAction, AlarmOptions, AlarmType};
use tenure_core::ErrorKind;
use tenure_core::driver::{
    Attempts, Cancelled, Delay, DelayQueue as _, DelayQueueExt as _, Due, Lease, MessageState, NewMessage, Next,
    Pushed, QueueAdmin as _, ReceiveRequest, Rescheduled, Settled,
};
use tenure_core::queue::{ConcurrencyKey, Job, MessageId};
use tenure_etcd::EtcdDriver;
use tenure_testkit::{ClockShim, EtcdCluster, TcpProxy, TempDir};

const URL: &str = "TENURE_TEST_ETCD_URL";

fn requests(cluster: &EtcdCluster) -> f64 {
    cluster.metric(0, "grpc_server_started_total{").unwrap()
}

#[tokio::test]
async fn a_hundred_messages_cost_five_requests_and_leave_nothing() {
    let cluster = server();
    let driver = driver(&cluster);
    // The first delivery of a client reads the base of fences, and raises it.
    driver.push(&queue(), &[message(b"first")]).await.unwrap();
    let first = receive(&driver, 1, 30 * SECOND).await.deliveries;
    ack(&driver, &first).await;
    let mut before = requests(&cluster);
    let mut cost = || {
        let now = requests(&cluster);
        now - std::mem::replace(&mut before, now)
    };
    let batch: Vec<_> = (0..100).map(|number: u8| message(&[number])).collect();
    driver.push(&queue(), &batch).await.unwrap();
    assert_eq!(cost(), 1.0);
    let received = receive(&driver, 100, 30 * SECOND).await;
    assert_eq!((cost(), received.deliveries.len()), (3.0, 100), "one of them since nothing else was due");
    assert_eq!(ack(&driver, &received.deliveries).await, [Settled::Done; 100]);
    assert_eq!(cost(), 1.0);
    assert!(driver.list_queues(None, 10).await.unwrap().queues.is_empty());
    assert_eq!(key_count(&mut raw(&cluster).await).await, 0);
}

/// It refuses all that writes, receives included, until there is room and its alarm is taken back.
#[tokio::test]
async fn a_full_database_is_an_outage_that_passes() {
    let cluster = server();
    let (client, mut etcd) = (client(&cluster), raw(&cluster).await);
    let jobs = client.queue_of_bytes("jobs").unwrap();
    let worker = jobs.worker().start(async |_: Job<Vec<u8>>| ()).unwrap();
    jobs.push(&b"a".to_vec()).delay(2 * SECOND).await.unwrap();
    let member = etcd.member_list().await.unwrap().members()[0].id();
    let options = || {
        Some(AlarmOptions::new()).map(|mut options| {
            options.with_member(member);
            options
        })
    };
    etcd.alarm(AlarmAction::Activate, AlarmType::Nospace, options()).await.unwrap();
    let errors = [
        jobs.push(&b"b".to_vec()).await.map(drop).unwrap_err(),
        client.lock("a").try_acquire().await.map(drop).unwrap_err(),
    ];
    for error in errors {
        assert!(error.kind() == ErrorKind::Unavailable && error.to_string().contains("etcd is full"), "{error}");
    }
    let refused = || cluster.metric(0, "grpc_server_handled_total{grpc_code=\"ResourceExhausted\"").unwrap_or_default();
    let before = refused();
    until("a receive is refused", async || refused() > before).await;
    etcd.alarm(AlarmAction::Deactivate, AlarmType::Nospace, options()).await.unwrap();
    until("it is handled", async || worker.stats().handled == 1).await;
    worker.shutdown(PATIENCE).await;
}

#[tokio::test]
async fn a_signal_is_not_missed_over_a_cut_link_and_a_compaction() {
    let cluster = server();
    let proxy = TcpProxy::start(cluster.ports()[0]).unwrap();
    let waiting = EtcdDriver::new(EtcdCluster::url_of(&[proxy.port()]).parse().unwrap());
    let other = driver(&cluster);
    let mut etcd = raw(&cluster).await;
    let mut watch = waiting.watch(&queue()).await.unwrap();
    for round in 0..4 {
        proxy.cut();
        if round % 2 == 1 {
            let now = etcd.put("revision", "", None).await.unwrap().header().unwrap().revision();
            etcd.compact(now, None).await.unwrap();
        }
        other.push(&queue(), &[message(b"x")]).await.unwrap();
        let got = async {
            loop {
                tokio::time::timeout(PATIENCE, watch.next()).await.expect("woken");
                // The link may not be there again; then another wake-up follows.
                let request = ReceiveRequest::new(queue(), 1, Lease::DEFAULT);
                match waiting.receive(&request).await {
                    Ok(received) if !received.deliveries.is_empty() => break received.deliveries,
                    _ => {}
                }
            }
        };
        let got = got.await;
        until("acknowledged", async || waiting.settle(&queue(), &[]).await.is_ok()).await;
        assert_eq!(ack(&waiting, &got).await, [Settled::Done]);
    }
}

#[tokio::test]
async fn only_what_is_sooner_wakes() {
    let cluster = server();
    let (waiting, other) = (driver(&cluster), driver(&cluster));
    let mut watch = waiting.watch(&queue()).await.unwrap();
    let after = |secs| message(b"x").with_due(Due::After(Delay::new(secs * SECOND).unwrap()));
    other.push(&queue(), &[after(100)]).await.unwrap();
    tokio::time::timeout(PATIENCE, watch.next()).await.expect("woken, since it has received nothing yet");
    assert!(matches!(receive(&waiting, 1, SECOND).await.next, Next::In(_)));
    other.push(&queue(), &[after(200)]).await.unwrap();
    other.push(&queue(), &[after(2)]).await.unwrap();
    let pushed = Instant::now();
    tokio::time::timeout(PATIENCE, watch.next()).await.expect("woken by the sooner one");
    assert!(pushed.elapsed() > SECOND, "when that was due");
    assert_eq!(receive(&waiting, 2, 50 * SECOND).await.deliveries.len(), 1);
    other.push(&queue(), &[after(60)]).await.unwrap();
    other.stats(&queue()).await.unwrap();
    assert!(tokio::time::timeout(SECOND / 2, watch.next()).await.is_err(), "it received a shorter time to sleep");
}

#[tokio::test]
async fn what_a_foreign_hand_left_behind_is_removed() {
    let cluster = server();
    let driver = driver(&cluster);
    let pushed = driver.push(&queue(), &[message(b"a"), message(b"b")]).await.unwrap();
    let Pushed::Stored(first) = &pushed[0] else { panic!("{pushed:?}") };
    let mut etcd = raw(&cluster).await;
    let body = format!("tenure:queue/of/jobs/b/{:016x}", first.as_number().unwrap());
    assert_eq!(etcd.delete(body, None).await.unwrap().deleted(), 1);
    etcd.put("tenure:queue/of/jobs/w/0000000000000000/0000000000000000", "not ours", None).await.unwrap();
    let received = receive(&driver, 10, 30 * SECOND).await;
    assert_eq!((received.deliveries.len(), received.healed.orphans), (1, 2));
    assert_eq!(received.deliveries[0].payload.as_bytes(), b"b");
    ack(&driver, &received.deliveries).await;
    assert!(driver.list_queues(None, 10).await.unwrap().queues.is_empty());
    assert_eq!(key_count(&mut etcd).await, 0);
}

fn keyed(payload: &[u8], key: &str) -> NewMessage {
    message(payload).with_key(Some(ConcurrencyKey::new(key).unwrap()))
}

#[tokio::test]
async fn messages_of_a_busy_key_are_passed_over_at_a_bounded_cost() {
    let cluster = server();
    let driver = driver(&cluster);
    driver.push(&queue(), &[keyed(b"first", "k")]).await.unwrap();
    let first = receive(&driver, 1, 30 * SECOND).await.deliveries;
    for _ in 0..5 {
        driver.push(&queue(), &vec![keyed(b"later", "k"); 100]).await.unwrap();
    }
    driver.push(&queue(), &[message(b"free")]).await.unwrap();
    let before = requests(&cluster);
    let got = receive(&driver, 1, 30 * SECOND).await.deliveries;
    assert_eq!((got.len(), got[0].payload.as_bytes()), (1, &b"free"[..]));
    let passing = requests(&cluster) - before;
    assert!(passing <= 20.0, "{passing} requests for 500 messages in the way");
    let before = requests(&cluster);
    assert!(receive(&driver, 1, 30 * SECOND).await.deliveries.is_empty());
    let again = requests(&cluster) - before;
    assert!(again <= 4.0, "{again} requests, though they are out of the way");
    let stats = driver.stats(&queue()).await.unwrap();
    assert_eq!((stats.ready, stats.in_flight), (500, 2));
    ack(&driver, &first).await;
    assert_eq!(receive(&driver, 10, 30 * SECOND).await.deliveries.len(), 1, "the next one of the key");
}

#[tokio::test]
async fn what_a_key_held_back_continues_when_its_client_ended_in_between() {
    let cluster = server();
    let driver = driver(&cluster);
    driver.push(&queue(), &[keyed(b"a", "k"), keyed(b"b", "k")]).await.unwrap();
    assert_eq!(receive(&driver, 1, 30 * SECOND).await.deliveries[0].payload.as_bytes(), b"a");
    assert!(receive(&driver, 1, 30 * SECOND).await.deliveries.is_empty());
    // As if the settlement had been carried out, and then the client had gone.
    let mut etcd = raw(&cluster).await;
    assert_eq!(etcd.delete("tenure:queue/of/jobs/f/k", None).await.unwrap().deleted(), 1);
    let healed = receive(&driver, 1, 30 * SECOND).await.deliveries;
    assert_eq!(healed[0].payload.as_bytes(), b"b");
    assert_eq!(healed[0].key, Some(ConcurrencyKey::new("k").unwrap()));
}

/// How many messages wait out of the way of all others, until their key is free.
async fn held_back(etcd: &mut etcd_client::Client) -> i64 {
    let all = etcd_client::GetOptions::new().with_prefix().with_count_only();
    etcd.get("tenure:queue/of/jobs/h/", Some(all)).await.unwrap().count()
}

/// Receives the first of two messages of a key, which holds the other one back, and waits until its lease has ended.
async fn left_behind(driver: &EtcdDriver, etcd: &mut etcd_client::Client) -> MessageId {
    driver
        .push(&queue(), &[keyed(b"a", "k").with_attempts(Attempts::new(1).unwrap()), keyed(b"b", "k")])
        .await
        .unwrap();
    let first = receive(driver, 2, SECOND).await.deliveries.remove(0).id;
    assert_eq!(held_back(etcd).await, 1);
    let state = async || driver.get(&queue(), &first).await.unwrap().unwrap().state;
    until("its lease ends", async || state().await == MessageState::Ready).await;
    first
}

/// A receive would find it too, but not at once where other messages are due.
#[tokio::test]
async fn what_a_key_holds_back_continues_when_an_operator_takes_its_message_away() {
    let cluster = server();
    let driver = EtcdDriver::connect(&format!("{}/?clock_error_ms=0", cluster.url())).await.unwrap();
    let mut etcd = raw(&cluster).await;
    for cancelled in [true, false] {
        let first = left_behind(&driver, &mut etcd).await;
        if cancelled {
            assert_eq!(driver.cancel(&queue(), &first).await.unwrap(), Cancelled::Removed);
        } else {
            let later = driver.reschedule(&queue(), &first, Delay::new(60 * SECOND).unwrap()).await.unwrap();
            assert_eq!(later, Rescheduled::Moved);
        }
        assert_eq!(held_back(&mut etcd).await, 0);
        let next = receive(&driver, 2, 30 * SECOND).await.deliveries;
        assert_eq!((next.len(), next[0].payload.as_bytes()), (1, &b"b"[..]));
        ack(&driver, &next).await;
    }
}

#[tokio::test]
async fn what_a_key_holds_back_is_handed_out_by_the_receive_that_buries_its_message() {
    let cluster = server();
    let driver = EtcdDriver::connect(&format!("{}/?clock_error_ms=0", cluster.url())).await.unwrap();
    let mut etcd = raw(&cluster).await;
    left_behind(&driver, &mut etcd).await;
    driver.push(&queue(), &vec![message(b"other"); 3]).await.unwrap();
    let received = receive(&driver, 1, 30 * SECOND).await;
    assert_eq!((received.healed.dead, received.deliveries.len()), (1, 1));
    assert_eq!(received.deliveries[0].payload.as_bytes(), b"b", "it was due before the others");
}

#[tokio::test]
async fn of_a_key_no_two_are_in_flight_whoever_receives() {
    let cluster = server();
    let (first, second) = (driver(&cluster), driver(&cluster));
    let batch: Vec<_> =
        (0..40u8).map(|number| keyed(&[number], if number % 2 == 0 { "even" } else { "odd" })).collect();
    first.push(&queue(), &batch).await.unwrap();
    let (busy, handled) = (Mutex::new(HashSet::new()), AtomicUsize::new(0));
    let consume = async |driver: &EtcdDriver| {
        while handled.load(Ordering::SeqCst) < 40 {
            let got = receive(driver, 3, 30 * SECOND).await.deliveries;
            let keys: Vec<_> = got.iter().map(|delivery| delivery.key.clone().unwrap()).collect();
            assert!(keys.iter().all(|key| busy.lock().unwrap().insert(key.clone())), "two of one key: {keys:?}");
            tokio::task::yield_now().await;
            keys.iter().for_each(|key| assert!(busy.lock().unwrap().remove(key)));
            handled.fetch_add(got.len(), Ordering::SeqCst);
            assert!(ack(driver, &got).await.iter().all(|settled| *settled == Settled::Done));
        }
    };
    tokio::time::timeout(6 * PATIENCE, async { tokio::join!(consume(&first), consume(&second)) }).await.unwrap();
    assert_eq!(key_count(&mut raw(&cluster).await).await, 2, "the queue's name and its signal");
}

#[tokio::test]
#[ignore = "a consumer with another clock, started by the test below"]
async fn consumer() {
    let url = std::env::var(URL).expect("the test that starts it names the server");
    let driver = EtcdDriver::connect(&url).await.unwrap();
    until("a delivery", async || !receive(&driver, 1, SECOND).await.deliveries.is_empty()).await;
    eprintln!("tenure got it");
}

/// After how long a consumer gets a message that somebody else has for `lease`, when its clock is ahead by `ahead`.
async fn taken_after(cluster: &EtcdCluster, error: Duration, ahead: Duration, lease: Duration) -> Duration {
    let url = format!("{}/?clock_error_ms={}", cluster.url(), error.as_millis());
    let holder = EtcdDriver::connect(&url).await.unwrap();
    holder.push(&queue(), &[message(b"x")]).await.unwrap();
    let folder = TempDir::new("clock").unwrap();
    let shim = ClockShim::new(folder.path()).unwrap();
    shim.set_offset(i64::try_from(ahead.as_micros()).unwrap()).unwrap();
    let begun = Instant::now();
    assert_eq!(receive(&holder, 1, lease).await.deliveries.len(), 1);
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "queues::consumer", "--ignored", "--nocapture"]).env(URL, url).stderr(Stdio::piped());
    shim.apply(&mut command);
    let mut child = command.stdout(Stdio::null()).spawn().unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    let heard = tokio::task::spawn_blocking(move || lines.filter(|line| line.contains("tenure got it")).count());
    assert_eq!(heard.await.unwrap(), 1);
    assert!(child.wait().unwrap().success());
    begun.elapsed()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clocks_that_are_apart_within_the_declared_error_end_no_lease_early() {
    let cluster = server();
    let (lease, ahead) = (12 * SECOND, 10 * SECOND);
    let early = taken_after(&cluster, Duration::ZERO, ahead, lease).await;
    assert!(early < lease, "the trap is there: {early:?}");
    let cluster = server();
    let taken = taken_after(&cluster, 11 * SECOND, ahead, lease / 4).await;
    assert!(taken >= lease / 4, "{taken:?}");
}
