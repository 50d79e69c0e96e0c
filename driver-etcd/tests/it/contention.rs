//! What waiting costs, and what it leaves behind.

use std::time::Duration;

use crate::common::*;
use tenure_core::driver::{Census as _, DistributedLock as _, HeldPage, Queueing};
use tenure_core::{Client, OwnerId, OwnerToken};
use tenure_testkit::{EtcdCluster, TcpProxy};

/// Requests that the server has begun to handle, by the beginning of their metric's line.
fn requests(cluster: &EtcdCluster, method: &str) -> f64 {
    cluster.metric(0, &format!("grpc_server_started_total{{grpc_method=\"{method}\"")).unwrap()
}

fn all_requests(cluster: &EtcdCluster) -> f64 {
    cluster.metric(0, "grpc_server_started_total{").unwrap()
}

#[tokio::test]
async fn a_pair_costs_two_requests() {
    const PAIRS: u32 = 20;
    let cluster = server();
    // Short ones are soon too old to serve again.
    let client = Client::builder(driver(&cluster)).ttl(Duration::from_secs(600)).build().unwrap();
    let lock = client.lock("pair");
    let before = all_requests(&cluster);
    lock.try_acquire().await.unwrap().unwrap().release().await.unwrap();
    assert_eq!(all_requests(&cluster) - before, 5.0, "once for each client: the base of fences is read, and raised");
    for wait in [false, true] {
        let (mut cheap, mut dear) = (0, 0);
        for _ in 0..PAIRS {
            let before = all_requests(&cluster);
            let guard = match wait {
                false => lock.try_acquire().await.unwrap().unwrap(),
                true => lock.acquire().await.unwrap(),
            };
            guard.release().await.unwrap();
            match all_requests(&cluster) - before {
                2.0 => cheap += 1,      // a transaction each
                3.0 | 4.0 => dear += 1, // a lease more, at first and every second; and an old one revoked
                other => panic!("{other} requests"),
            }
        }
        assert!(cheap >= dear, "{cheap} {dear}");
    }
    assert_eq!(requests(&cluster, "Watch"), 0.0, "nobody had to wait");
}

/// And nothing is listed but the locks of the prefix, whatever else it has: sessions, the base of fences, places, keys of others.
#[tokio::test]
async fn a_page_of_held_locks_costs_two_requests_and_one_for_each_lock() {
    const HELD: usize = 30;
    let cluster = server();
    let (driver, mut etcd) = (driver(&cluster), raw(&cluster).await);
    let names: Vec<_> = (0..HELD).map(|number| name(&format!("held/{number:02}"))).collect();
    for name in &names {
        granted(driver.acquire(&request(name, OwnerToken::random(), 600)).await);
    }
    busy(driver.acquire(&joining(&names[0], OwnerToken::random(), 600, 600)).await);
    for foreign in ["tenure/%/hold", "tenure/a%2f/hold", "tenure/x/hold/y", "tenure0/x/hold"] {
        etcd.put(foreign, "", None).await.unwrap();
    }
    let asked = |method| requests(&cluster, method);
    let counted = || ["Range", "Txn", "LeaseTimeToLive"].map(asked);
    let before = counted();
    let page = driver.held(b"", None, 100).await.unwrap();
    let after = counted();
    let reported: Vec<_> = page.locks.iter().map(|lock| lock.name.clone()).collect();
    assert_eq!((reported, page.next), (names, None));
    assert_eq!(page.locks.iter().map(|lock| lock.waiters.unwrap()).collect::<Vec<_>>()[..2], [1, 0]);
    assert_eq!(std::array::from_fn(|at| after[at] - before[at]), [1.0, 1.0, HELD as f64]);
    assert_eq!(driver.held(b"hel.", None, 100).await.unwrap(), HeldPage::new(Vec::new(), None));
    assert_eq!(counted(), [after[0] + 1.0, after[1], after[2]], "nothing else is asked where nothing is held");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_waiters_are_woken_one_for_each_release() {
    const WAITERS: usize = 100;
    let cluster = server();
    let clients: Vec<Client> = (0..4)
        .map(|_| {
            let alone = Client::builder(driver(&cluster)).holders_per_grant(0);
            alone.presence(Duration::from_secs(300)).op_timeout(PATIENCE).build().unwrap()
        })
        .collect();
    let held = clients[0].lock("hot").acquire().await.unwrap();
    let waiters: Vec<_> = (0..WAITERS)
        .map(|number| {
            let lock = clients[number % clients.len()].lock("hot");
            tokio::spawn(async move {
                let guard = lock.acquire().await.unwrap();
                let fence = guard.fence();
                guard.release().await.unwrap();
                fence
            })
        })
        .collect();
    let probe = clients[0].lock("hot");
    until("all wait", async || probe.inspect().await.unwrap().waiters as usize == WAITERS).await;
    let (txns, leases) = (requests(&cluster, "Txn"), requests(&cluster, "LeaseGrant"));
    held.release().await.unwrap();
    let mut fences = Vec::new();
    for waiter in waiters {
        fences.push(waiter.await.unwrap());
    }
    let (txns, leases) = (requests(&cluster, "Txn") - txns, requests(&cluster, "LeaseGrant") - leases);
    fences.sort_unstable();
    fences.dedup();
    assert_eq!(fences.len(), WAITERS);
    // Each takes the lock with one transaction, and ends its hold with another or by revoking an old lease.
    assert!(txns <= (2 * WAITERS + 1) as f64 && leases <= WAITERS as f64, "woken in vain: {txns} {leases}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_cancellations_leave_no_lease_and_no_key() {
    let cluster = server();
    let clients: Vec<Client> =
        (0..3).map(|_| Client::builder(driver(&cluster)).presence(Duration::from_secs(60)).build().unwrap()).collect();
    let me = OwnerId::new();
    let tasks = (0..20).map(|worker: usize| {
        let client = clients[worker % 3].clone();
        tokio::spawn(async move {
            for round in 0..50 {
                let name = format!("lock{}", fastrand::u64(..3));
                let patience = Duration::from_micros(fastrand::u64(..12_000));
                // A long ttl: what is left behind would still be there at the end.
                let ttl = Duration::from_secs(600);
                if round % 5 == 4 {
                    let lock = client.reentrant(&name, &me).ttl(ttl);
                    let _ = tokio::time::timeout(patience, lock.acquire()).await;
                } else {
                    let lock = client.lock(&name).ttl(ttl);
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
        let held = other.lock("cut").acquire().await.unwrap();
        let lock = waiting.lock("cut");
        let waiter = tokio::spawn(async move { lock.acquire_within(PATIENCE * 2).await });
        until("it waits", async || other.lock("cut").inspect().await.unwrap().waiters == 1).await;
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
    let held = client.lock("quiet").ttl(Duration::from_secs(60)).acquire().await.unwrap();
    let lock = client.lock("quiet");
    let waiter = tokio::spawn(async move { lock.acquire().await.unwrap().fence() });
    until("it waits", async || client.lock("quiet").inspect().await.unwrap().waiters == 1).await;
    let mut etcd = raw(&cluster).await;
    left(&mut etcd, 3, 2).await; // the hold, the place and the session; and no lease is kept any more
    let alive = || requests(&cluster, "LeaseKeepAlive");
    let (before, kept) = (all_requests(&cluster), alive());
    tokio::time::sleep(Duration::from_secs(2)).await;
    let kept = alive() - kept;
    assert_eq!(all_requests(&cluster), before + kept);
    assert!((1.0..=5.0).contains(&kept), "one lease, however many wait: {kept}");
    held.release().await.unwrap();
    tokio::time::timeout(PATIENCE, waiter).await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_waiters_with_long_names_ask_at_the_same_cost() {
    const WAITERS: usize = 2_900;
    let cluster = server();
    let drivers = [driver(&cluster), driver(&cluster)];
    // Their keys are more than a message can carry.
    let lock = name(&"/".repeat(512));
    let holder = OwnerToken::random();
    granted(drivers[0].acquire(&request(&lock, holder, 600)).await);
    let tokens: Vec<_> = (0..WAITERS).map(|_| OwnerToken::random()).collect();
    let mut watches = Vec::new();
    for (round, some) in tokens.chunks(100).enumerate() {
        let driver = &drivers[round % 2];
        for token in some {
            watches.push(driver.watch(&lock, token).await.unwrap());
        }
        let joins = some.iter().map(|token| async { busy(driver.acquire(&joining(&lock, *token, 600, 600)).await) });
        futures_util::future::join_all(joins).await;
    }
    assert_eq!(drivers[0].inspect(&lock).await.unwrap().waiters as usize, WAITERS);
    // The least of three: on a busy machine a watch may break, and a client then reads the line again beside the attempts.
    let mut least = f64::MAX;
    for _ in 0..3 {
        let before = all_requests(&cluster);
        assert!(busy(drivers[1].acquire(&request(&lock, OwnerToken::random(), 600)).await).position.is_none());
        let last = busy(drivers[1].acquire(&joining(&lock, tokens[WAITERS - 1], 600, 600)).await).position.unwrap();
        assert!(last as usize >= WAITERS - 100, "{last}");
        least = least.min(all_requests(&cluster) - before);
    }
    assert!(least <= 6.0, "{least} requests for two attempts");
    let first = tokens.iter().zip(&mut watches).take(100);
    drivers[0].release(&hold(&lock, holder)).await.unwrap();
    let woken = futures_util::future::select_all(first.map(|(token, watch)| {
        Box::pin(async move {
            watch.next().await;
            *token
        })
    }));
    let (next, ..) = tokio::time::timeout(PATIENCE, woken).await.unwrap();
    granted(drivers[0].acquire(&joining(&lock, next, 600, 600)).await);
}

#[tokio::test]
async fn a_first_in_line_that_takes_nothing_is_passed_over() {
    let cluster = server();
    let (deaf, alive) = (driver(&cluster), driver(&cluster));
    let (lock, holder) = (name("deaf"), OwnerToken::random());
    granted(deaf.acquire(&request(&lock, holder, 60)).await);
    // A client that keeps its session, and whose waiters ask no more: as if its process stood still.
    let silent: Vec<_> = (0..3).map(|_| OwnerToken::random()).collect();
    for token in &silent {
        busy(deaf.acquire(&joining(&lock, *token, 60, 600)).await);
    }
    let waiter = OwnerToken::random();
    let mut watch = alive.watch(&lock, &waiter).await.unwrap();
    assert_eq!(busy(alive.acquire(&joining(&lock, waiter, 60, 600)).await).position, Some(3));
    deaf.release(&hold(&lock, holder)).await.unwrap();
    let asked = joining(&lock, waiter, 60, 600);
    let taken = async {
        loop {
            watch.next().await;
            if let tenure_core::driver::Acquisition::Granted(grant) = alive.acquire(&asked).await.unwrap() {
                return grant;
            }
        }
    };
    // Once for all of them, not once for each.
    let grant = tokio::time::timeout(2 * SECOND, taken).await.expect("the lock is not kept for them");
    // Whoever was passed over comes back at the end.
    assert_eq!(busy(deaf.acquire(&joining(&lock, silent[0], 60, 600)).await).position, Some(0));
    alive.release(&hold(&lock, waiter)).await.unwrap();
    assert!(granted(deaf.acquire(&joining(&lock, silent[0], 60, 600)).await).fence > grant.fence);
}

#[tokio::test]
async fn keys_of_others_are_no_waiters() {
    let cluster = server();
    let driver = driver(&cluster);
    let (lock, me) = (name("foreign"), OwnerId::new());
    let mut etcd = raw(&cluster).await;
    let base = driver.hold_key(&lock).strip_suffix(b"hold").unwrap().to_vec();
    // By hand: of no form, before all places, and a place on no lease.
    let spelled = format!("wait/0000000000000000-{}", OwnerToken::random().expose().as_str());
    for key in ["wait/foreign", "wait/", "wait/0", "wait/0000", &spelled] {
        etcd.put([&base, key.as_bytes()].concat(), "x", None).await.unwrap();
    }
    let token = OwnerToken::random();
    granted(driver.acquire(&request(&lock, token, 60)).await);
    // Nor for those who wait.
    let client = client(&cluster);
    let (waiting, entering) = (client.lock("foreign"), client.reentrant("foreign", &me));
    let waiting =
        tokio::spawn(async move { waiting.acquire_within(PATIENCE).await.unwrap().release().await.map(drop) });
    let entering =
        tokio::spawn(async move { entering.acquire_within(PATIENCE).await.unwrap().release().await.map(drop) });
    let queued = etcd_client::GetOptions::new().with_prefix().with_count_only();
    let wait = [&base, b"wait/".as_slice()].concat();
    let mut all = async || etcd.get(wait.clone(), Some(queued.clone())).await.unwrap().count();
    until("both wait", async || all().await == 7).await;
    driver.release(&hold(&lock, token)).await.unwrap();
    waiting.await.unwrap().unwrap();
    entering.await.unwrap().unwrap();
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
