//! A cluster that changes its leader under contention: nobody is let in twice, fences grow, and the clients go on by
//! themselves.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::common::*;
use tenure_core::{Client, Lock, LockGuard};
use tenure_testkit::{EtcdCluster, EtcdOptions};
use tokio::task::JoinHandle;

const WORKERS: usize = 6;
/// Holds that are to follow each event.
const MORE: usize = 20;

/// What one worker saw of one hold: from the grant to the last look at which it still believed in it.
struct Held {
    from: Instant,
    to: Instant,
    fence: u64,
}

/// Workers, each with a client of its own, that contend for one lock.
struct Contenders {
    workers: Vec<JoinHandle<()>>,
    end: Arc<AtomicBool>,
    history: Arc<Mutex<Vec<Held>>>,
}

impl Contenders {
    fn start(cluster: &EtcdCluster) -> Self {
        let (end, history) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let worker = |_| {
            let client = Client::builder(driver(cluster)).presence(Duration::from_secs(6)).build().unwrap();
            tokio::spawn(contend(client, Arc::clone(&end), Arc::clone(&history)))
        };
        Self { workers: (0..WORKERS).map(worker).collect(), end, history }
    }

    fn count(&self) -> usize {
        self.history.lock().unwrap().len()
    }

    async fn hold_more(&self, what: &str) {
        let before = self.count();
        until(what, async || self.count() >= before + MORE).await;
    }

    async fn end(self) -> Vec<Held> {
        self.end.store(true, Ordering::Relaxed);
        for worker in self.workers {
            worker.await.unwrap();
        }
        let mut history = std::mem::take(&mut *self.history.lock().unwrap());
        history.sort_by_key(|held| held.fence);
        history
    }
}

async fn contend(client: Client, end: Arc<AtomicBool>, history: Arc<Mutex<Vec<Held>>>) {
    let lock = client.lock("contended").ttl(3 * SECOND);
    while !end.load(Ordering::Relaxed) {
        let Ok(guard) = lock.acquire_within(5 * SECOND).await else { continue };
        let (from, fence) = (Instant::now(), guard.fence().get());
        let mut to = from;
        for _ in 0..5 {
            tokio::time::sleep(Duration::from_millis(3)).await;
            let now = Instant::now();
            if guard.is_held() {
                to = now;
            }
        }
        history.lock().unwrap().push(Held { from, to, fence });
        let _ = guard.release().await; // where the cluster is away, the clean-up goes on
    }
    let _ = client.close(10 * SECOND).await;
}

fn assert_clean(history: &[Held]) {
    assert!(history.len() >= 3 * MORE);
    for pair in history.windows(2) {
        assert!(pair[0].fence < pair[1].fence, "a fence came twice");
        assert!(pair[0].to <= pair[1].from, "two held at once: {} and {}", pair[0].fence, pair[1].fence);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_leader_lets_nobody_in_twice_and_all_continue() {
    let mut cluster = EtcdCluster::start(EtcdOptions::new(), 3).unwrap();
    let contenders = Contenders::start(&cluster);
    contenders.hold_more("work").await;
    let leader = cluster.leader().unwrap();
    cluster.pause(leader).unwrap();
    contenders.hold_more("work with the leader frozen").await;
    cluster.resume(leader).unwrap();
    contenders.hold_more("work after it has come back").await;
    assert_clean(&contenders.end().await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_leader_lets_nobody_in_twice_and_all_continue() {
    let mut cluster = EtcdCluster::start(EtcdOptions::new(), 3).unwrap();
    let contenders = Contenders::start(&cluster);
    contenders.hold_more("work").await;
    let leader = cluster.leader().unwrap();
    cluster.kill(leader).unwrap();
    contenders.hold_more("work without the leader").await;
    cluster.restart(leader).unwrap();
    contenders.hold_more("work after it has come back").await;
    assert_clean(&contenders.end().await);
}

/// Locks that one client holds, each with a rival of another client that waits for it.
struct Rivalry {
    held: Vec<Mutex<Option<LockGuard>>>,
    /// Grants to a rival while the other still believed in its hold.
    twice: AtomicUsize,
    /// Holds that ended otherwise than by the end of the test.
    lost: AtomicUsize,
    end: AtomicBool,
}

impl Rivalry {
    fn believed(&self, number: usize) -> bool {
        self.held[number].lock().unwrap().as_ref().is_some_and(LockGuard::is_held)
    }

    fn all_held(&self) -> bool {
        (0..self.held.len()).all(|number| self.believed(number))
    }

    fn ended(&self) -> bool {
        self.end.load(Ordering::Relaxed)
    }

    async fn hold(&self, lock: Lock, number: usize) {
        while !self.ended() {
            let Ok(guard) = lock.acquire_within(5 * SECOND).await else { continue };
            *self.held[number].lock().unwrap() = Some(guard);
            while self.believed(number) && !self.ended() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            if !self.ended() {
                self.lost.fetch_add(1, Ordering::Relaxed);
            }
            self.held[number].lock().unwrap().take();
        }
    }

    async fn wait_for(&self, lock: Lock, number: usize) {
        while !self.ended() {
            let Ok(guard) = lock.acquire_within(2 * SECOND).await else { continue };
            if self.believed(number) {
                self.twice.fetch_add(1, Ordering::Relaxed);
            }
            let _ = guard.release().await;
        }
    }
}

/// Stops the leader for longer than the ttl, again and again. A leader that wakes up deposed still proposes to revoke
/// the leases that ended by its own count, and its successor obeys.
async fn stopped_leaders_end_no_hold_that_is_renewed(stops: usize) {
    const LOCKS: usize = 60;
    const TTL: Duration = Duration::from_secs(4);
    let mut cluster = EtcdCluster::start(EtcdOptions::new(), 3).unwrap();
    let rivalry = Arc::new(Rivalry {
        held: (0..LOCKS).map(|_| Mutex::default()).collect(),
        twice: AtomicUsize::new(0),
        lost: AtomicUsize::new(0),
        end: AtomicBool::new(false),
    });
    let (holder, rival) = (client(&cluster), client(&cluster));
    let of = |client: &Client, number: usize| client.lock(format!("held{number}")).ttl(TTL);
    let mut tasks = Vec::new();
    for number in 0..LOCKS {
        let (rivalry, lock) = (Arc::clone(&rivalry), of(&holder, number));
        tasks.push(tokio::spawn(async move { rivalry.hold(lock, number).await }));
    }
    until("all are held", async || rivalry.all_held()).await;
    for number in 0..LOCKS {
        let (rivalry, lock) = (Arc::clone(&rivalry), of(&rival, number));
        tasks.push(tokio::spawn(async move { rivalry.wait_for(lock, number).await }));
    }
    for _ in 0..stops {
        until("all are held", async || rivalry.all_held()).await;
        let leader = cluster.leader().unwrap();
        cluster.pause(leader).unwrap();
        tokio::time::sleep(TTL + 3 * SECOND / 2).await;
        cluster.resume(leader).unwrap();
        // By then it has proposed what it believes to have ended, and learned that it leads no more.
        tokio::time::sleep(SECOND).await;
    }
    rivalry.end.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.unwrap();
    }
    let (twice, lost) = (rivalry.twice.load(Ordering::Relaxed), rivalry.lost.load(Ordering::Relaxed));
    eprintln!("{LOCKS} locks, {stops} stops: {twice} held twice, {lost} lost");
    assert_eq!(twice, 0, "held twice, of {LOCKS} locks over {stops} stops ({lost} lost)");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_stalled_ends_no_hold_that_is_renewed() {
    let stops = std::env::var("TENURE_ETCD_STOPS").ok().and_then(|stops| stops.parse().ok());
    stopped_leaders_end_no_hold_that_is_renewed(stops.unwrap_or(5)).await;
}
