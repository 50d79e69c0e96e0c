//! What waiting costs, and what it leaves behind.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::*;
use tenure_core::driver::{DistributedLock as _, Queueing};
use tenure_core::{Client, OwnerId, OwnerToken};
use tenure_testkit::{EtcdCluster, EtcdOptions, TcpProxy};

/// Requests that the server has begun to handle, by the beginning of their metric's line.
fn requests(cluster: &EtcdCluster, method: &str) -> f64 {
    cluster.metric(0, &format!("grpc_server_started_total{{grpc_method=\"{method}\"")).unwrap()
}

fn all_requests(cluster: &EtcdCluster) -> f64 {
    cluster.metric(0, "grpc_server_started_total{").unwrap()
}

#[tokio::test]
async fn a_pair_costs_three_requests() {
    const PAIRS: u32 = 20;
    let cluster = server();
    let client = client(&cluster);
    let lock = client.lock("pair").unwrap();
    lock.acquire().await.unwrap().release().await.unwrap();
    let before = all_requests(&cluster);
    for _ in 0..PAIRS {
        lock.try_acquire().await.unwrap().unwrap().release().await.unwrap();
    }
    assert_eq!(all_requests(&cluster) - before, f64::from(3 * PAIRS), "a lease, a transaction, a revocation");
    let before = all_requests(&cluster);
    for _ in 0..PAIRS {
        lock.acquire().await.unwrap().release().await.unwrap();
    }
    assert_eq!(all_requests(&cluster) - before, f64::from(3 * PAIRS), "also where it would have waited");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_waiters_are_woken_one_for_each_release() {
    const WAITERS: usize = 100;
    let cluster = server();
    let clients: Vec<Client> =
        (0..4).map(|_| Client::builder(driver(&cluster)).presence(Duration::from_secs(300)).build().unwrap()).collect();
    let held = clients[0].lock("hot").unwrap().acquire().await.unwrap();
    let released_at = Arc::new(std::sync::Mutex::new(Vec::new()));
    let waiters: Vec<_> = (0..WAITERS)
        .map(|number| {
            let lock = clients[number % clients.len()].lock("hot").unwrap();
            let released_at = Arc::clone(&released_at);
            tokio::spawn(async move {
                let guard = lock.acquire().await.unwrap();
                let granted = Instant::now();
                tokio::time::sleep(Duration::from_millis(2)).await;
                let gap = released_at.lock().unwrap().last().map(|at: &Instant| granted - *at);
                released_at.lock().unwrap().push(Instant::now());
                let fence = guard.fence();
                guard.release().await.unwrap();
                (gap.unwrap(), fence)
            })
        })
        .collect();
    let probe = clients[0].lock("hot").unwrap();
    until("all wait", async || probe.inspect().await.unwrap().waiters as usize == WAITERS).await;
    let (txns, leases) = (requests(&cluster, "Txn"), requests(&cluster, "LeaseGrant"));
    released_at.lock().unwrap().push(Instant::now());
    held.release().await.unwrap();
    let mut gaps = Vec::new();
    let mut fences = Vec::new();
    for waiter in waiters {
        let (gap, fence) = waiter.await.unwrap();
        gaps.push(gap);
        fences.push(fence);
    }
    let (txns, leases) = (requests(&cluster, "Txn") - txns, requests(&cluster, "LeaseGrant") - leases);
    gaps.sort_unstable();
    let (p50, p99) = (gaps[WAITERS / 2], gaps[WAITERS * 99 / 100]);
    eprintln!(
        "hand-over gap p50 {p50:?} p99 {p99:?}, {txns} transactions and {leases} leases for {WAITERS} hand-overs"
    );
    fences.sort_unstable();
    fences.dedup();
    assert_eq!(fences.len(), WAITERS);
    assert_eq!((txns, leases), (WAITERS as f64, WAITERS as f64), "each waiter that was woken took the lock");
    assert!(p50 < Duration::from_millis(50), "{p50:?}: the target is 5 ms on an idle machine");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_cancellations_leave_no_lease_and_no_key() {
    let cluster = server();
    let clients: Vec<Client> =
        (0..3).map(|_| Client::builder(driver(&cluster)).presence(Duration::from_secs(60)).build().unwrap()).collect();
    let me = OwnerId::new();
    let seed =
        Arc::new(AtomicU64::new(u64::from_be_bytes(OwnerToken::random().expose().as_ref()[..8].try_into().unwrap())));
    let random = move || {
        let mut x = seed.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x ^ x >> 27
    };
    let tasks = (0..20).map(|worker: usize| {
        let (client, random) = (clients[worker % 3].clone(), random.clone());
        tokio::spawn(async move {
            for round in 0..50 {
                let name = format!("lock{}", random() % 3);
                let patience = Duration::from_micros(random() % 12_000);
                // A long ttl: what is left behind would still be there at the end.
                let ttl = Duration::from_secs(600);
                if round % 5 == 4 {
                    let lock = client.reentrant(&name, &me).unwrap().ttl(ttl);
                    let _ = tokio::time::timeout(patience, lock.acquire()).await;
                } else {
                    let lock = client.lock(&name).unwrap().ttl(ttl);
                    let _ = tokio::time::timeout(patience, lock.acquire()).await;
                }
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    for client in &clients {
        client.close(PATIENCE).await.unwrap();
    }
    let mut etcd = raw(&cluster).await;
    assert_eq!((key_count(&mut etcd).await, lease_count(&mut etcd).await), (0, 0));
}

#[tokio::test]
async fn a_release_is_not_missed_over_a_cut_link_and_a_compaction() {
    let cluster = server();
    let proxy = TcpProxy::start(cluster.ports()[0]).unwrap();
    let through = tenure_etcd::EtcdDriver::new(EtcdCluster::url_of(&[proxy.port()]).parse().unwrap());
    // So seldom asked again that only a wake-up can be as fast as demanded below.
    let waiting = Client::builder(through).presence(Duration::from_secs(600)).build().unwrap();
    let other = client(&cluster);
    let mut etcd = raw(&cluster).await;
    for round in 0..4 {
        let held = other.lock("cut").unwrap().acquire().await.unwrap();
        let lock = waiting.lock("cut").unwrap();
        let waiter = tokio::spawn(async move { lock.acquire_within(PATIENCE * 2).await });
        until("it waits", async || other.lock("cut").unwrap().inspect().await.unwrap().waiters == 1).await;
        proxy.cut();
        if round % 2 == 1 {
            let now = etcd.put("revision", "", None).await.unwrap().header().unwrap().revision();
            etcd.compact(now, None).await.unwrap();
        }
        held.release().await.unwrap();
        let guard = tokio::time::timeout(PATIENCE, waiter).await.expect("woken").unwrap().unwrap();
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn waiting_is_quiet() {
    let cluster = server();
    let client = Client::builder(driver(&cluster)).presence(Duration::from_secs(60)).build().unwrap();
    let held = client.lock("quiet").unwrap().ttl(Duration::from_secs(60)).acquire().await.unwrap();
    let lock = client.lock("quiet").unwrap();
    let waiter = tokio::spawn(async move { lock.acquire().await.unwrap().fence() });
    until("it waits", async || client.lock("quiet").unwrap().inspect().await.unwrap().waiters == 1).await;
    let before = all_requests(&cluster);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(all_requests(&cluster), before);
    held.release().await.unwrap();
    tokio::time::timeout(PATIENCE, waiter).await.unwrap().unwrap();
}

#[tokio::test]
async fn an_expiry_wakes_the_next_in_line() {
    let cluster = server();
    let driver = driver(&cluster);
    let lock = name("expiry");
    granted(driver.acquire(&request(&lock, OwnerToken::random(), 2)).await);
    let token = OwnerToken::random();
    let mut watch = driver.watch(&lock, &token).await.unwrap();
    let asked = joining(&lock, token, 30, 60);
    assert!(matches!(asked.queue, Queueing::Join { .. }));
    assert_eq!(busy(driver.acquire(&asked).await).recheck_after, None, "etcd tells of an expiry");
    tokio::time::timeout(PATIENCE, watch.next()).await.expect("woken by the expiry");
    granted(driver.acquire(&asked).await);
}

/// What one worker saw of one hold.
struct Held {
    from: Instant,
    to: Instant,
    fence: u64,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_leader_lets_nobody_in_twice_and_everybody_goes_on() {
    let mut cluster = EtcdCluster::start(EtcdOptions::new(), 3).unwrap();
    let end = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let history = Arc::new(std::sync::Mutex::new(Vec::new()));
    let workers: Vec<_> = (0..6)
        .map(|_| {
            let client = Client::builder(driver(&cluster)).presence(Duration::from_secs(6)).build().unwrap();
            let (end, history) = (Arc::clone(&end), Arc::clone(&history));
            tokio::spawn(async move {
                let lock = client.lock("frozen").unwrap().ttl(Duration::from_secs(3));
                while !end.load(Ordering::Relaxed) {
                    let Ok(guard) = lock.acquire_within(Duration::from_secs(5)).await else { continue };
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
                    let _ = guard.release().await;
                }
                let _ = client.close(Duration::from_secs(10)).await;
            })
        })
        .collect();
    let count = || history.lock().unwrap().len();
    let grants_more = async |what: &str| {
        let before = count();
        until(what, async || count() >= before + 20).await;
    };
    grants_more("work").await;
    let leader = cluster.leader().unwrap();
    cluster.pause(leader).unwrap();
    grants_more("work with the leader frozen").await;
    cluster.resume(leader).unwrap();
    grants_more("work after it has come back").await;
    end.store(true, Ordering::Relaxed);
    for worker in workers {
        worker.await.unwrap();
    }
    let mut history = std::mem::take(&mut *history.lock().unwrap());
    history.sort_by_key(|held| held.fence);
    for pair in history.windows(2) {
        assert!(pair[0].fence < pair[1].fence, "a fence came twice");
        assert!(pair[0].to <= pair[1].from, "two held at once: {} and {}", pair[0].fence, pair[1].fence);
    }
    eprintln!("{} holds", history.len());
}
