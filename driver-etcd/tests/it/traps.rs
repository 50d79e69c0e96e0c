//! The nine traps of locks on etcd, each as a case of its own.

use std::time::Duration;

use crate::common::*;
use etcd_client::{Compare, GetOptions, LeaseGrantOptions, PutOptions, SortOrder, SortTarget, Txn, TxnOp};
use tenure_core::driver::{Begun, DistributedLock as _, Released, Renewed};
use tenure_core::{HoldState, LostReason, OwnerToken};
use tenure_testkit::{EtcdCluster, EtcdOptions, Link, TcpProxy};

/// A lease shorter than one and a half election timeouts becomes longer, and nobody is told but in the answer.
#[tokio::test]
async fn trap_1_the_ttl_is_the_one_that_etcd_answers() {
    let slow = EtcdOptions::new().flag("heartbeat-interval", "300").flag("election-timeout", "3000");
    let cluster = EtcdCluster::single(slow).unwrap();
    let driver = driver(&cluster);
    let (lock, token) = (name("ttl"), OwnerToken::random());
    let grant = granted(driver.acquire(&request(&lock, token, 2)).await);
    assert_eq!(grant.ttl, 5 * SECOND, "4.5 s, rounded up");
    let renewed = driver.renew(ttl(2), &[hold(&lock, token)]).await;
    assert_eq!(*renewed[0].as_ref().unwrap(), Renewed::Extended { ttl: 5 * SECOND });
    let repeated = granted(driver.acquire(&request(&lock, token, 2)).await);
    // A tenth of a lease may have passed when it serves again.
    assert_eq!((repeated.begun, repeated.ttl), (Begun::Earlier, 5 * SECOND - SECOND / 2));
}

/// Two locks of one process on one lease are one owner to etcd's own recipe, and die together.
#[tokio::test]
async fn trap_2_holds_do_not_share_a_lease() {
    let cluster = server();
    let client = client(&cluster);
    let one = client.lock("one").try_acquire().await.unwrap().unwrap();
    let two = client.lock("two").try_acquire().await.unwrap().unwrap();
    assert!(client.lock("one").try_acquire().await.unwrap().is_none(), "not re-entered in silence");
    let mut etcd = raw(&cluster).await;
    let key = driver(&cluster).hold_key(one.name());
    let lease = etcd.get(key, None).await.unwrap().kvs()[0].lease();
    etcd.lease_revoke(lease).await.unwrap();
    assert!(client.lock("one").try_acquire().await.unwrap().is_some());
    two.release().await.unwrap();
}

/// A range read with a limit and without an order is cut before it is sorted, and with one etcd reads all of it. The keys
/// of places begin with their arrival, so the first key is the first in line, whatever the tokens' alphabet says.
#[tokio::test]
async fn trap_3_the_first_in_line_is_the_first_that_came() {
    let cluster = server();
    let driver = driver(&cluster);
    let (lock, holder) = (name("order"), OwnerToken::random());
    granted(driver.acquire(&request(&lock, holder, 30)).await);
    // Place after place whose token sorts before all earlier ones.
    let mut tokens: Vec<_> = (0..6).map(|_| OwnerToken::random()).collect();
    tokens.sort_by_key(|token| std::cmp::Reverse(token.expose().as_str().to_owned()));
    for token in &tokens {
        busy(driver.acquire(&joining(&lock, *token, 30, 20)).await);
    }
    let mut etcd = raw(&cluster).await;
    let queue = driver.hold_key(&lock).strip_suffix(b"hold").unwrap().to_vec();
    let unordered = GetOptions::new().with_prefix().with_limit(1).with_sort(SortTarget::Create, SortOrder::None);
    let queue = [queue, b"wait/".to_vec()].concat();
    let first = etcd.get(queue, Some(unordered)).await.unwrap();
    assert!(first.kvs()[0].key().ends_with(tokens[0].expose().as_ref()));
    driver.release(&hold(&lock, holder)).await.unwrap();
    for (before, token) in tokens.iter().enumerate().rev() {
        assert_eq!(busy_unless_first(&driver, &lock, *token, before).await, u32::try_from(before).unwrap());
    }
    granted(driver.acquire(&joining(&lock, tokens[0], 30, 20)).await);
}

async fn busy_unless_first(
    driver: &tenure_etcd::EtcdDriver,
    lock: &tenure_core::LockName,
    token: OwnerToken,
    before: usize,
) -> u32 {
    if before == 0 {
        return 0;
    }
    busy(driver.acquire(&joining(lock, token, 30, 20)).await).position.unwrap()
}

/// Ranges by prefix hold the keys of every name that begins alike, unless the prefix ends with a separator that no
/// name can hold.
#[tokio::test]
async fn trap_4_names_that_begin_alike_are_strangers() {
    let cluster = server();
    let driver = driver(&cluster);
    let names = ["a", "ab", "a/", "a/hold", "a/wait/", "a%2F", "%"];
    let tokens: Vec<_> = names.iter().map(|_| OwnerToken::random()).collect();
    for (text, token) in names.iter().zip(&tokens) {
        granted(driver.acquire(&request(&name(text), *token, 30)).await);
        busy(driver.acquire(&joining(&name(text), OwnerToken::random(), 30, 20)).await);
    }
    let other = format!("{}/?prefix=tenure/a", cluster.url()).parse().unwrap();
    let other = tenure_etcd::EtcdDriver::new(other);
    granted(other.acquire(&request(&name("hold"), OwnerToken::random(), 30)).await);
    for (text, token) in names.iter().zip(&tokens) {
        assert_eq!(driver.inspect(&name(text)).await.unwrap().waiters, 1, "{text}");
        assert_eq!(driver.release(&hold(&name(text), *token)).await.unwrap(), Released::Released, "{text}");
    }
}

/// A lock is not granted by the end of the wait, but by a transaction after it: a waiter whose place has ended
/// meanwhile owns nothing, and one that has it gets a lease that began with the last request.
#[tokio::test]
async fn trap_5_a_waiter_whose_lease_has_ended_is_not_granted() {
    let cluster = server();
    let driver = driver(&cluster);
    let (lock, holder) = (name("dead"), OwnerToken::random());
    let (silent, alive) = (OwnerToken::random(), OwnerToken::random());
    granted(driver.acquire(&request(&lock, holder, 60)).await);
    busy(driver.acquire(&joining(&lock, silent, 60, 2)).await);
    busy(driver.acquire(&joining(&lock, alive, 60, 60)).await);
    until("the silent waiter has lapsed", async || driver.inspect(&lock).await.unwrap().waiters == 1).await;
    driver.release(&hold(&lock, holder)).await.unwrap();
    // It comes back behind the other, and is told so.
    assert_eq!(busy(driver.acquire(&joining(&lock, silent, 60, 60)).await).position, Some(1));
    let grant = granted(driver.acquire(&joining(&lock, alive, 60, 60)).await);
    assert_eq!(grant.begun, Begun::Now);
    driver.release(&hold(&lock, alive)).await.unwrap();
    assert!(granted(driver.acquire(&joining(&lock, silent, 60, 60)).await).fence > grant.fence);
}

/// A keep-alive that finds no lease is not an error on the stream, and a stream that stalls does not say so.
#[tokio::test]
async fn trap_6_the_end_of_a_lease_is_noticed_without_an_answer() {
    let cluster = server();
    let proxy = TcpProxy::start(cluster.ports()[0]).unwrap();
    let through = tenure_etcd::EtcdDriver::new(EtcdCluster::url_of(&[proxy.port()]).parse().unwrap());
    let client = tenure_core::Client::new(through);
    let gone = client.lock("gone").ttl(3 * SECOND).try_acquire().await.unwrap().unwrap();
    driver(&cluster).force_release(gone.name(), None).await.unwrap();
    assert_eq!(tokio::time::timeout(PATIENCE, gone.lost()).await.unwrap(), LostReason::Gone);
    let stalled = client.lock("stalled").ttl(3 * SECOND).try_acquire().await.unwrap().unwrap();
    let kept = std::time::Instant::now();
    while kept.elapsed() < 5 * SECOND {
        assert!(stalled.is_held(), "renewed while the link carries");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    proxy.set_present(Link::Silent);
    proxy.set_new(Link::Silent);
    let silent = std::time::Instant::now();
    assert_eq!(stalled.lost().await, LostReason::Expired);
    assert!(silent.elapsed() <= 3 * SECOND, "no later than its ttl");
    assert!(matches!(stalled.state(), HoldState::Lost(_)));
    proxy.set_present(Link::Open);
    proxy.set_new(Link::Open);
    until("a stalled link is replaced", async || client.lock("after").try_acquire().await.is_ok()).await;
}

/// What arrives after its lease was revoked is refused by etcd, also inside a transaction.
#[tokio::test]
async fn trap_7_a_late_request_finds_its_lease_revoked() {
    let cluster = server();
    let mut etcd = raw(&cluster).await;
    let options = LeaseGrantOptions::new().with_id(4711);
    etcd.lease_grant(30, Some(options)).await.unwrap();
    etcd.lease_revoke(4711).await.unwrap();
    let late = TxnOp::put("late", "x", Some(PutOptions::new().with_lease(4711)));
    let error = etcd.txn(Txn::new().and_then([late])).await.unwrap_err();
    assert!(error.to_string().contains("lease not found"), "{error}");
    // And the driver's own: every attempt that is cut short is undone, at whatever point that was.
    let proxy = TcpProxy::start(cluster.ports()[0]).unwrap();
    let through = tenure_etcd::EtcdDriver::new(EtcdCluster::url_of(&[proxy.port()]).parse().unwrap());
    let client = tenure_core::Client::builder(through).op_timeout(Duration::from_millis(200)).build().unwrap();
    client.lock("warm").try_acquire().await.unwrap().unwrap().release().await.unwrap();
    proxy.set_present(Link::LosesReplies);
    let error = client.lock("lost").try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), tenure_core::ErrorKind::Indeterminate);
    proxy.set_present(Link::Open);
    proxy.cut();
    until("all is undone", async || client.stats().cleanups == 0).await;
    assert_eq!(key_count(&mut etcd).await, 0);
}

/// After a change of leader every lease begins anew: a hold that nobody renews lasts longer than its ttl, never
/// shorter, and what the holder believes does not grow.
#[tokio::test]
async fn trap_8_a_new_leader_prolongs_leases_but_not_beliefs() {
    let mut cluster = EtcdCluster::start(EtcdOptions::new(), 3).unwrap();
    // Past the engine: a client's own clean-up would give the lock back when its belief ends.
    let (driver, lock) = (driver(&cluster), name("leader"));
    let since = std::time::Instant::now();
    let first = granted(driver.acquire(&request(&lock, OwnerToken::random(), 6)).await);
    let old = cluster.leader().unwrap();
    cluster.kill(old).unwrap();
    let rival = client(&cluster).lock("leader").ttl(6 * SECOND);
    let taken = loop {
        assert!(since.elapsed() < PATIENCE);
        if let Ok(taken) = rival.acquire_within(PATIENCE).await {
            break taken;
        }
    };
    let waited = since.elapsed();
    let believed = tenure_core::DriftBound::DEFAULT.believable(first.ttl).unwrap();
    assert!(waited > first.ttl && first.ttl > believed, "{waited:?}: granted before the ttl had passed");
    assert!(taken.fence() > first.fence);
}

/// No lock protects what lies outside etcd without fences; what lies inside is protected by a comparison in the same
/// transaction.
#[tokio::test]
async fn trap_9_a_guarded_write_of_a_former_holder_does_nothing() {
    let cluster = server();
    let driver = driver(&cluster);
    let client = tenure_core::Client::new(driver.clone());
    let mut etcd = raw(&cluster).await;
    let first = client.lock("guarded").try_acquire().await.unwrap().unwrap();
    let held_by = async |guard: &tenure_core::LockGuard| driver.txn_guard(guard.name(), guard.fence()).await;
    let write = |held: &Compare, value: &'static str| {
        Txn::new().when([held.clone()]).and_then([TxnOp::put("data", value, None)])
    };
    let by_first = held_by(&first).await.unwrap();
    assert!(etcd.txn(write(&by_first, "first")).await.unwrap().succeeded());
    client.lock("guarded").force_release().await.unwrap();
    assert!(!etcd.txn(write(&by_first, "nobody")).await.unwrap().succeeded());
    let second = client.lock("guarded").try_acquire().await.unwrap().unwrap();
    assert!(!etcd.txn(write(&by_first, "stale")).await.unwrap().succeeded());
    assert_eq!(held_by(&first).await.unwrap_err().kind(), tenure_core::ErrorKind::NotHeld);
    assert!(etcd.txn(write(&held_by(&second).await.unwrap(), "second")).await.unwrap().succeeded());
    assert_eq!(etcd.get("data", None).await.unwrap().kvs()[0].value(), b"second");
}

/// A client that lags too far behind is cut off from the past by a compaction, and is told so by nothing but the end of
/// its watch: the connection stands. What it missed, it asks for.
#[tokio::test]
async fn a_watch_that_only_a_compaction_cancels_is_opened_again() {
    let cluster = server();
    let proxy = TcpProxy::start(cluster.ports()[0]).unwrap();
    let through = tenure_etcd::EtcdDriver::new(EtcdCluster::url_of(&[proxy.port()]).parse().unwrap());
    // So seldom asked again that only the watch can tell of the release in time.
    let waiting = tenure_core::Client::builder(through).presence(Duration::from_secs(600)).build().unwrap();
    let held = client(&cluster).lock("lag").ttl(60 * SECOND).acquire().await.unwrap();
    let lock = waiting.lock("lag");
    let waiter = tokio::spawn(async move { lock.acquire_within(PATIENCE * 2).await });
    let look = client(&cluster).lock("lag");
    until("it waits", async || look.inspect().await.unwrap().waiters == 1).await;
    let mut etcd = raw(&cluster).await;
    proxy.set_present(Link::Jammed);
    // More than the windows of the connection and the watch's own buffer of 1024 answers hold.
    let big = vec![0; 500_000];
    for _ in 0..40 {
        etcd.put("tenure/x", big.clone(), None).await.unwrap();
    }
    futures_util::future::join_all((0..8).map(|_| {
        let mut etcd = etcd.clone();
        async move {
            for _ in 0..200 {
                etcd.put("tenure/x", "", None).await.unwrap();
            }
        }
    }))
    .await;
    let slow = || cluster.metric(0, "etcd_debugging_mvcc_slow_watcher_total").unwrap();
    until("the watch lags", async || slow() >= 1.0).await;
    held.release().await.unwrap();
    let now = etcd.put("revision", "", None).await.unwrap().header().unwrap().revision();
    etcd.compact(now, None).await.unwrap();
    let accepted = proxy.accepted();
    proxy.set_present(Link::Open);
    let guard = tokio::time::timeout(PATIENCE, waiter).await.expect("woken").unwrap().unwrap();
    assert_eq!(proxy.accepted(), accepted, "on the same connection");
    guard.release().await.unwrap();
}
