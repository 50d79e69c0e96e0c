//! Consumers in processes of their own, killed at random instants, on Redis and on etcd: nothing is lost, nothing is
//! settled twice, and every second delivery has a kill or an ended lease to explain it.

#![allow(clippy::print_stdout, reason = "figures")]

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use tenure_core::driver::{
    Delay, DelayQueue, Due, Exchanged, Lease, NewMessage, Next, Payload, ReceiveRequest, Settle, Settled, Settlement,
};
use tenure_core::queue::QueueName;
use tenure_testkit::{RedisOptions, RedisServer};

const BATCH: usize = 16;
const URL: &str = "TENURE_TEST_QUEUE_URL";
const QUEUE: &str = "killed";
/// Longer than a consumer needs for a batch, on a machine with other things to do.
const LEASE: Duration = Duration::from_secs(2);

/// What a batch takes: most kills meet a consumer at work.
const WORK: Duration = Duration::from_millis(5);

fn queue() -> QueueName {
    QueueName::new(QUEUE).unwrap()
}

fn message(payload: &str, after: Duration) -> NewMessage {
    NewMessage::new(Payload::new(payload.as_bytes()).unwrap()).with_due(Due::After(Delay::new(after).unwrap()))
}

async fn queues(url: &str) -> Arc<dyn DelayQueue> {
    let backend = tenure_backends::connect(url).await.expect("the server is there");
    backend.queue().cloned().expect("the backend has queues")
}

/// Prints a consumer's lines on its standard output before it continues: a kill loses no printed line.
fn say(lines: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(lines.as_bytes()).unwrap();
    out.flush().unwrap();
}

async fn consume(q: &dyn DelayQueue) -> tenure_core::Result<()> {
    let request = ReceiveRequest::new(queue(), BATCH, Lease::new(LEASE)?);
    let mut watch = q.watch(&request.queue).await?;
    let (mut settles, mut names) = (Vec::new(), Vec::new());
    loop {
        let Exchanged { settled, received, .. } = q.exchange(&settles, &request).await?;
        let reported = settled.iter().zip(&names).map(|(answer, name)| match answer {
            Settled::Done => format!("tenure done {name}\n"),
            _ => format!("tenure stale {name}\n"),
        });
        let reported: String = reported.collect();
        (settles, names) = (Vec::new(), Vec::new());
        let mut got = String::new();
        for delivery in received.deliveries {
            let name = String::from_utf8_lossy(delivery.payload.as_bytes()).into_owned();
            got.push_str(&format!("tenure got {name} {}\n", delivery.attempt));
            settles.push(Settle::new(delivery.receipt, Settlement::Ack));
            names.push(name);
        }
        say(&(reported + &got));
        tokio::time::sleep(WORK).await;
        if settles.is_empty() {
            let span = match received.next {
                Next::Now => Duration::ZERO,
                Next::In(span) => span.min(Duration::from_millis(500)),
                _ => Duration::from_millis(500),
            };
            let _ = tokio::time::timeout(span, watch.next()).await; // whatever came first
        }
    }
}

#[tokio::test]
#[ignore = "a consumer, started by the other tests of this file"]
async fn consumer() {
    let url = std::env::var(URL).expect("the test that starts consumers names the server");
    say("\n"); // with one processor the name of the test is on this line
    let error = consume(&*queues(&url).await).await.unwrap_err();
    panic!("{error}");
}

/// Starts a consumer whose words go to `words`.
fn start(url: &str, words: &Sender<String>) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "queue_kill::consumer", "--ignored", "--nocapture"]).env(URL, url);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let (out, words) = (BufReader::new(child.stdout.take().unwrap()), words.clone());
    std::thread::spawn(move || {
        for line in out.lines().map_while(Result::ok) {
            if let Some(line) = line.strip_prefix("tenure ") {
                let _ = words.send(line.to_owned()); // the test may have seen enough
            }
        }
    });
    child
}

/// What the consumers did to each message.
#[derive(Default)]
struct History {
    got: HashMap<String, Vec<u32>>,
    done: HashMap<String, u32>,
    stale: usize,
}

impl History {
    /// The lines printed until now.
    fn hear(&mut self, words: &Receiver<String>) {
        words.try_iter().for_each(|line| self.note(&line));
    }

    /// The remaining lines when all writers have ended.
    fn rest(&mut self, words: &Receiver<String>) {
        words.iter().for_each(|line| self.note(&line));
    }

    fn note(&mut self, line: &str) {
        let mut parts = line.split(' ');
        match (parts.next(), parts.next(), parts.next()) {
            (Some("got"), Some(name), Some(attempt)) => {
                self.got.entry(name.into()).or_default().push(attempt.parse().unwrap());
            }
            (Some("done"), Some(name), None) => *self.done.entry(name.into()).or_default() += 1,
            (Some("stale"), Some(_), None) => self.stale += 1,
            _ => panic!("{line}"),
        }
    }
}

async fn produce(url: String, producer: usize, count: usize) {
    let queues = queues(&url).await;
    for start in (0..count).step_by(50) {
        let batch: Vec<_> = (start..count.min(start + 50))
            .map(|i| message(&format!("{producer}-{i}"), Duration::from_millis(i as u64 % 40)))
            .collect();
        queues.push(&queue(), &batch).await.unwrap();
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn run(url: String, producers: usize, consumers: usize, count: usize, kill_every: Duration) {
    let (sender, words) = channel();
    let mut children: Vec<Child> = (0..consumers).map(|_| start(&url, &sender)).collect();
    let pushing: Vec<_> =
        (0..producers).map(|producer| tokio::spawn(produce(url.clone(), producer, count / producers))).collect();
    let queues = queues(&url).await;
    let patience = Duration::from_secs(60) + Duration::from_millis(count as u64 * 10);
    let (started, mut kills, mut history) = (Instant::now(), 0, History::default());
    loop {
        history.hear(&words);
        tokio::time::sleep(Duration::from_millis(10)).await;
        let stats = queues.stats(&queue()).await.unwrap();
        let rest = stats.scheduled + stats.ready + stats.in_flight + stats.dead;
        if pushing.iter().all(tokio::task::JoinHandle::is_finished) && rest == 0 {
            break;
        }
        assert!(started.elapsed() < patience, "{stats:?} after {kills} kills");
        if rest > 0 && started.elapsed() > kill_every * kills as u32 {
            let victim = (kills * 7 + 3) % children.len();
            children[victim].kill().unwrap();
            children[victim].wait().unwrap();
            children[victim] = start(&url, &sender);
            kills += 1;
        }
    }
    for mut child in children {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    drop(sender);
    history.rest(&words);
    for pushed in pushing {
        pushed.await.unwrap();
    }
    let total = count / producers * producers;
    assert!(kills > 2, "only {kills} kills");
    // A delivery is spoken of before it is settled, a settlement after it: a kill hides up to a batch of those.
    let unsaid = (kills + consumers) * BATCH;
    let done: u32 = history.done.values().sum();
    assert!(history.done.values().all(|times| *times == 1), "settled twice");
    assert!(done as usize <= total && done as usize + unsaid >= total, "{done} of {total} after {kills} kills");
    assert_eq!(history.got.len(), total, "after {kills} kills");
    let again: usize = history.got.values().map(|attempts| attempts.len() - 1).sum();
    assert!(again <= unsaid + history.stale, "{again} second deliveries after {kills} kills, {} stale", history.stale);
    for (name, attempts) in &history.got {
        let mut sorted = attempts.clone();
        sorted.dedup();
        assert_eq!(sorted.len(), attempts.len(), "{name}: an attempt counted twice: {attempts:?}");
    }
    println!(
        "{total} messages, {kills} kills, {again} second deliveries, {} stale, {:?}",
        history.stale,
        started.elapsed()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn consumers_killed_on_redis_lose_nothing() {
    let server = RedisServer::start(RedisOptions::new()).unwrap();
    run(server.unix_url(), 2, 3, 4_000, Duration::from_millis(50)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[ignore = "minutes long: 50,000 messages, 8 producers, 8 consumers"]
async fn consumers_killed_on_redis_lose_nothing_at_length() {
    let server = RedisServer::start(RedisOptions::new()).unwrap();
    run(server.unix_url(), 8, 8, 50_000, Duration::from_millis(200)).await;
}

#[cfg(feature = "etcd")]
mod etcd {
    use tenure_testkit::{EtcdCluster, EtcdOptions};

    use super::*;

    /// All processes are on one machine: their clocks are the same.
    fn url(cluster: &EtcdCluster) -> String {
        format!("{}/?clock_error_ms=100", cluster.url())
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn consumers_killed_on_etcd_lose_nothing() {
        let cluster = EtcdCluster::single(EtcdOptions::new()).unwrap();
        run(url(&cluster), 2, 3, 1_500, Duration::from_millis(100)).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    #[ignore = "minutes long: 10,000 messages, 8 producers, 8 consumers"]
    async fn consumers_killed_on_etcd_lose_nothing_at_length() {
        let cluster = EtcdCluster::single(EtcdOptions::new()).unwrap();
        run(url(&cluster), 8, 8, 10_000, Duration::from_millis(500)).await;
    }
}
