//! What each method costs: transactions that write, counted in the write-ahead log. `README.md` has the table.
//!
//! None waits for a flush: with `synchronous = NORMAL` only a checkpoint does, once in a thousand pages.

use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;
use tenure_core::driver::{
    AcquireRequest, Backend, Delay, DelayQueueExt as _, DistributedLock as _, Extension, Handing, Hold, Lease,
    NewMessage, Payload, Queueing, ReceiveRequest, Settle, Settlement, Ttl,
};
use tenure_core::queue::QueueName;
use tenure_core::{LockName, OwnerToken};
use tenure_sqlite::{SqliteConfig, SqliteDriver};

/// Commits so far: frames that tell the size of the database, among those of the log's present generation.
fn commits(file: &Path) -> usize {
    let log = std::fs::read(file.with_file_name("locks.db-wal")).unwrap();
    let number = |at: usize| u32::from_be_bytes(log[at..at + 4].try_into().unwrap());
    let (page, salt) = (number(8) as usize, &log[16..24]);
    let frames = log[32..].chunks_exact(24 + page);
    frames.take_while(|frame| frame[8..16] == *salt).filter(|frame| frame[4..8] != [0; 4]).count()
}

struct Counting<'a> {
    file: &'a Path,
    seen: Vec<(&'static str, usize)>,
}

impl Counting<'_> {
    async fn count<T>(&mut self, method: &'static str, call: impl Future<Output = T>) -> T {
        let before = commits(self.file);
        let answer = call.await;
        self.seen.push((method, commits(self.file) - before));
        answer
    }
}

#[tokio::test]
async fn every_method_is_one_transaction_and_a_look_writes_nothing() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("locks.db");
    let driver = SqliteDriver::connect_with(SqliteConfig::new(&file).unwrap()).await.unwrap();
    let mut counting = Counting { file: &file, seen: Vec::new() };
    let (name, ttl) = (LockName::new("a").unwrap(), Ttl::new(Duration::from_secs(60)).unwrap());
    let request = |token| AcquireRequest::new(name.clone(), token, ttl);
    let hold = |token| Hold::new(name.clone(), token);
    let join = Queueing::Join { presence: Duration::from_secs(15), accepts: Handing::Direct };
    let [one, two, three] = [(); 3].map(|()| OwnerToken::random());
    let _watch = driver.watch(&name, &two).await.unwrap();

    counting.count("acquire, free", driver.acquire(&request(one))).await.unwrap();
    counting.count("acquire, a try that finds it held", driver.acquire(&request(two))).await.unwrap();
    counting.count("acquire, join", driver.acquire(&request(two).with_queue(join))).await.unwrap();
    counting.count("acquire, ask again", driver.acquire(&request(two).with_queue(join))).await.unwrap();
    counting.count("renew", driver.renew(ttl, &[hold(one), hold(three)])).await;
    counting.count("inspect", driver.inspect(&name)).await.unwrap();
    counting.count("release, somebody waits", driver.release(&hold(one))).await.unwrap();
    counting.count("acquire, handed over", driver.acquire(&request(two).with_queue(join))).await.unwrap();
    counting.count("release", driver.release(&hold(two))).await.unwrap();
    counting.count("abandon", driver.abandon(&hold(three))).await.unwrap();
    driver.acquire(&request(one)).await.unwrap();
    counting.count("force_release", driver.force_release(&name, None)).await.unwrap();

    let backend = Backend::from(driver);
    let (queue, jobs) = (backend.queue_admin().unwrap(), QueueName::new("jobs").unwrap());
    let message = || NewMessage::new(Payload::new(&b"x"[..]).unwrap());
    let request = |max| ReceiveRequest::new(jobs.clone(), max, Lease::DEFAULT);
    let settle = |receipt| Settle::new(receipt, Settlement::Ack);
    queue.push(&jobs, &[message()]).await.unwrap();
    let first = queue.receive(&request(1)).await.unwrap().deliveries;
    counting.count("push, 100 messages", queue.push(&jobs, &vec![message(); 100])).await.unwrap();
    let done = vec![settle(first[0].receipt)];
    let got = counting.count("exchange, 1 settled, 99 received", queue.exchange(&done, &request(99))).await.unwrap();
    let held: Vec<_> = got.received.deliveries.iter().map(|one| one.receipt).collect();
    let extended: Vec<_> = held.iter().map(|receipt| Extension::new(*receipt, Lease::DEFAULT)).collect();
    counting.count("extend, 99", queue.extend(&jobs, &extended)).await.unwrap();
    let done: Vec<_> = held.iter().map(|receipt| settle(*receipt)).collect();
    counting.count("settle, 99", queue.settle(&jobs, &done)).await.unwrap();
    let id = queue.receive(&request(1)).await.unwrap().deliveries.remove(0).id;
    counting.count("receive, nothing due", queue.receive(&request(10))).await.unwrap();
    counting.count("get", queue.get(&jobs, &id)).await.unwrap();
    counting.count("stats", queue.stats(&jobs)).await.unwrap();
    counting.count("reschedule, of one in flight", queue.reschedule(&jobs, &id, Delay::ZERO)).await.unwrap();

    let expected = [
        ("acquire, free", 1),
        ("acquire, a try that finds it held", 0),
        ("acquire, join", 1),
        ("acquire, ask again", 1),
        ("renew", 1),
        ("inspect", 0),
        ("release, somebody waits", 1),
        ("acquire, handed over", 1),
        ("release", 1),
        ("abandon", 1),
        ("force_release", 1),
        ("push, 100 messages", 1),
        ("exchange, 1 settled, 99 received", 1),
        ("extend, 99", 1),
        ("settle, 99", 1),
        ("receive, nothing due", 0),
        ("get", 0),
        ("stats", 0),
        ("reschedule, of one in flight", 0),
    ];
    assert_eq!(counting.seen, expected, "method, transactions that wrote");
}
