//! A cluster that changes its leader under contention: nobody is let in twice, fences grow, and the clients go on by
//! themselves.

mod common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::*;
use tenure_core::Client;
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
    let lock = client.lock("contended").unwrap().ttl(3 * SECOND);
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
async fn a_frozen_leader_lets_nobody_in_twice_and_everybody_goes_on() {
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
async fn a_killed_leader_lets_nobody_in_twice_and_everybody_goes_on() {
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
