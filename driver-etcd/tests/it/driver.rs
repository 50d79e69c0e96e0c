//! Plain locks on a server, past the engine.

use crate::common::*;
use tenure_core::driver::{Begun, Census as _, DistributedLock as _, ForceReleased, Released, Renewed, Ttl};
use tenure_core::{ErrorKind, OwnerToken};

#[tokio::test]
async fn a_free_lock_is_granted_and_a_held_one_is_busy() {
    let cluster = server();
    let (one, two) = (driver(&cluster), driver(&cluster));
    let (lock, first, second) = (name("plain/one"), OwnerToken::random(), OwnerToken::random());
    let grant = granted(one.acquire(&request(&lock, first, 60)).await);
    assert_eq!((grant.begun, grant.depth, grant.ttl), (Begun::Now, 1, 60 * SECOND));
    let repeated = granted(one.acquire(&request(&lock, first, 60)).await);
    assert_eq!((repeated.begun, repeated.fence), (Begun::Earlier, grant.fence));
    assert_eq!(busy(two.acquire(&request(&lock, second, 60)).await).position, None);
    let mut etcd = raw(&cluster).await;
    left(&mut etcd, 1, 1).await;
    assert_eq!(two.release(&hold(&lock, second)).await.unwrap(), Released::NotHeld);
    assert_eq!(one.release(&hold(&lock, first)).await.unwrap(), Released::Released);
    assert_eq!(one.release(&hold(&lock, first)).await.unwrap(), Released::NotHeld);
    let next = granted(two.acquire(&request(&lock, second, 60)).await);
    assert!(next.fence > grant.fence);
    assert_eq!(two.release(&hold(&lock, second)).await.unwrap(), Released::Released);
    left(&mut etcd, 0, 0).await;
}

#[tokio::test]
async fn waiters_are_served_in_order_and_their_places_are_on_leases_of_their_own() {
    let cluster = server();
    let driver = driver(&cluster);
    let lock = name("queue");
    let tokens: Vec<_> = (0..4).map(|_| OwnerToken::random()).collect();
    let first = granted(driver.acquire(&request(&lock, tokens[0], 60)).await);
    let mut watches = Vec::new();
    for (before, token) in tokens[1..].iter().enumerate() {
        watches.push(driver.watch(&lock, token).await.unwrap());
        let answer = busy(driver.acquire(&joining(&lock, *token, 60, 60)).await);
        assert_eq!(answer.position, u32::try_from(before).ok());
        let again = busy(driver.acquire(&joining(&lock, *token, 60, 60)).await);
        assert_eq!(again.position, u32::try_from(before).ok());
    }
    assert_eq!(driver.inspect(&lock).await.unwrap().waiters, 3);
    let mut last = first.fence;
    for pair in tokens.windows(2) {
        assert_eq!(driver.release(&hold(&lock, pair[0])).await.unwrap(), Released::Released);
        let barging = OwnerToken::random();
        assert!(busy(driver.acquire(&request(&lock, barging, 60)).await).position.is_none());
        tokio::time::timeout(PATIENCE, watches[0].next()).await.expect("the next in line is woken");
        watches.remove(0);
        let grant = granted(driver.acquire(&joining(&lock, pair[1], 60, 60)).await);
        assert!(grant.fence > last && grant.begun == Begun::Now);
        last = grant.fence;
    }
    driver.release(&hold(&lock, tokens[3])).await.unwrap();
    let mut etcd = raw(&cluster).await;
    left(&mut etcd, 0, 0).await;
}

#[tokio::test]
async fn what_was_abandoned_is_gone_and_stays_gone() {
    let cluster = server();
    let driver = driver(&cluster);
    let lock = name("abandon");
    let (held, waiting) = (OwnerToken::random(), OwnerToken::random());
    granted(driver.acquire(&request(&lock, held, 60)).await);
    busy(driver.acquire(&joining(&lock, waiting, 60, 60)).await);
    driver.abandon(&hold(&lock, waiting)).await.unwrap();
    driver.abandon(&hold(&lock, held)).await.unwrap();
    driver.abandon(&hold(&lock, held)).await.unwrap();
    let mut etcd = raw(&cluster).await;
    left(&mut etcd, 0, 0).await;
    for token in [held, waiting] {
        let error = driver.acquire(&joining(&lock, token, 60, 60)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotHeld);
    }
    // Also through a client that knows nothing of the token.
    let (other, token) = (crate::common::driver(&cluster), OwnerToken::random());
    granted(driver.acquire(&request(&lock, token, 60)).await);
    other.abandon(&hold(&lock, token)).await.unwrap();
    left(&mut etcd, 0, 0).await;
}

#[tokio::test]
async fn renewal_keeps_what_stands_and_revives_nothing() {
    let cluster = server();
    let driver = driver(&cluster);
    let lock = name("renew");
    let (token, never) = (OwnerToken::random(), OwnerToken::random());
    granted(driver.acquire(&request(&lock, token, 4)).await);
    let answers = driver.renew(ttl(4), &[hold(&lock, token), hold(&lock, never)]).await;
    assert_eq!(*answers[0].as_ref().unwrap(), Renewed::Extended { ttl: 4 * SECOND });
    assert_eq!(*answers[1].as_ref().unwrap(), Renewed::Lost);
    assert_eq!(driver.force_release(&lock, tenure_core::FencingToken::new(1)).await.unwrap(), ForceReleased::Changed);
    assert_eq!(driver.force_release(&lock, None).await.unwrap(), ForceReleased::Released);
    assert_eq!(driver.force_release(&lock, None).await.unwrap(), ForceReleased::NotHeld);
    assert_eq!(*driver.renew(ttl(4), &[hold(&lock, token)]).await[0].as_ref().unwrap(), Renewed::Lost);
    assert_eq!(driver.release(&hold(&lock, token)).await.unwrap(), Released::NotHeld);
}

#[tokio::test]
async fn operators_see_who_holds_and_how_many_wait() {
    let cluster = server();
    let driver = driver(&cluster);
    let lock = name("inspect");
    assert_eq!(driver.inspect(&lock).await.unwrap(), Default::default());
    let token = OwnerToken::random();
    let label = Some(tenure_core::Label::new("worker 7").unwrap());
    let asked = request(&lock, token, 20).with_label(label.clone());
    let grant = granted(driver.acquire(&asked).await);
    let holder = driver.inspect(&lock).await.unwrap().holder.unwrap();
    assert_eq!((holder.label, holder.fence, holder.depth, holder.held_for), (label, Some(grant.fence), 1, None));
    let remaining = holder.remaining.unwrap();
    assert!(remaining <= 20 * SECOND && remaining > 5 * SECOND, "{remaining:?}");
    driver.release(&hold(&lock, token)).await.unwrap();
}

#[tokio::test]
async fn a_queue_has_a_cap() {
    let cluster = server();
    let config: tenure_etcd::EtcdConfig = format!("{}/?max_waiters=2", cluster.url()).parse().unwrap();
    let driver = tenure_etcd::EtcdDriver::new(config);
    let lock = name("cap");
    let holder = OwnerToken::random();
    granted(driver.acquire(&request(&lock, holder, 60)).await);
    let waiters: Vec<_> = (0..3).map(|_| OwnerToken::random()).collect();
    for token in &waiters[..2] {
        busy(driver.acquire(&joining(&lock, *token, 60, 60)).await);
    }
    let error = driver.acquire(&joining(&lock, waiters[2], 60, 60)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LimitReached);
    assert_eq!(driver.inspect(&lock).await.unwrap().waiters, 2);
    for token in waiters.iter().chain([&holder]) {
        driver.abandon(&hold(&lock, *token)).await.unwrap();
    }
}

#[tokio::test]
async fn ttls_that_etcd_would_round_are_refused() {
    let cluster = server();
    let driver = driver(&cluster);
    for millis in [10, 999, 1000, 2500] {
        let ttl = Ttl::new(std::time::Duration::from_millis(millis)).unwrap();
        let asked = request(&name("round"), OwnerToken::random(), 5).with_ttl(ttl);
        assert_eq!(driver.acquire(&asked).await.unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
}

#[tokio::test]
async fn a_closed_driver_says_so() {
    let cluster = server();
    let driver = driver(&cluster);
    driver.ping().await.unwrap();
    let lock = name("closed");
    let (held, waiting, gone) = (OwnerToken::random(), OwnerToken::random(), OwnerToken::random());
    granted(driver.acquire(&request(&lock, held, 60)).await);
    busy(driver.acquire(&joining(&lock, waiting, 60, 60)).await);
    driver.abandon(&hold(&lock, gone)).await.unwrap();
    driver.close().await;
    let asked = [request(&lock, OwnerToken::random(), 5), joining(&lock, waiting, 60, 60)];
    let (mine, entered) = (hold(&lock, held), entry(&lock, tenure_core::OwnerId::new(), held));
    let answers = [
        driver.acquire(&asked[0]).await.err(),
        driver.acquire(&asked[1]).await.err(),
        driver.watch(&lock, &waiting).await.err(),
        driver.renew(ttl(60), std::slice::from_ref(&mine)).await.remove(0).err(),
        driver.renew(ttl(60), &[hold(&lock, gone)]).await.remove(0).err(),
        driver.release(&mine).await.err(),
        driver.release(&hold(&lock, gone)).await.err(),
        driver.abandon(&mine).await.err(),
        driver.abandon(&hold(&lock, gone)).await.err(),
        driver.inspect(&lock).await.err(),
        driver.force_release(&lock, None).await.err(),
        tenure_core::driver::ReentrantLock::exit(&driver, &entered).await.err(),
        tenure_core::driver::ReentrantLock::abandon(&driver, &entered).await.err(),
        driver.ping().await.err(),
        driver.held(b"", None, 10).await.err(),
    ];
    for (index, error) in answers.into_iter().enumerate() {
        assert_eq!(error.map(|error| error.kind()), Some(ErrorKind::Closed), "{index}");
    }
}

/// It need not be dropped for that.
#[tokio::test]
async fn a_driver_that_is_closed_has_left_nothing_and_watches_nothing() {
    let cluster = server();
    let (driver, mut etcd) = (driver(&cluster), raw(&cluster).await);
    let watches = || cluster.metric(0, "etcd_debugging_mvcc_watcher_total ").unwrap();
    let (lock, token) = (name("closed"), OwnerToken::random());
    let lock_watch = driver.watch(&lock, &token).await.unwrap();
    granted(driver.acquire(&request(&lock, OwnerToken::random(), 60)).await);
    busy(driver.acquire(&joining(&lock, token, 60, 60)).await);
    let queue_watch = tenure_core::driver::DelayQueue::watch(&driver, &queue()).await.unwrap();
    assert!(receive(&driver, 1, SECOND).await.deliveries.is_empty());
    assert_eq!(watches(), 2.0);
    driver.close().await;
    assert_eq!(
        (key_count(&mut etcd).await, lease_count(&mut etcd).await),
        (1, 1),
        "what it holds it has not given back"
    );
    until("nothing is watched", async || watches() == 0.0).await;
    drop((lock_watch, queue_watch));
}

/// A renewal that moved it would cost three requests more.
#[tokio::test]
async fn a_renewal_leaves_a_hold_on_its_lease_while_nobody_else_leads() {
    let cluster = server();
    let (driver, mut etcd) = (driver(&cluster), raw(&cluster).await);
    let (lock, token) = (name("renewed"), OwnerToken::random());
    granted(driver.acquire(&request(&lock, token, 60)).await);
    let mut lease = async || etcd.get(driver.hold_key(&lock), None).await.unwrap().kvs()[0].lease();
    let before = lease().await;
    for _ in 0..2 {
        let answers = driver.renew(ttl(60), &[hold(&lock, token)]).await;
        assert_eq!(*answers[0].as_ref().unwrap(), Renewed::Extended { ttl: 60 * SECOND });
        assert_eq!(lease().await, before);
    }
}

#[tokio::test]
async fn a_lease_that_is_gone_when_it_is_to_serve_again_is_replaced() {
    let cluster = server();
    let driver = driver(&cluster);
    let mut etcd = raw(&cluster).await;
    let lock = name("again");
    let mut last = 0;
    for revoked in [false, true, true] {
        let token = OwnerToken::random();
        let grant = granted(driver.acquire(&request(&lock, token, 60)).await);
        let longest = 60 * SECOND;
        assert!(grant.fence.get() > last && grant.ttl <= longest && grant.ttl > longest - 2 * SECOND, "{grant:?}");
        last = grant.fence.get();
        left(&mut etcd, 1, 1).await; // the lease from before, or a new one in its place
        assert_eq!(driver.release(&hold(&lock, token)).await.unwrap(), Released::Released);
        if revoked {
            for lease in etcd.leases().await.unwrap().leases() {
                etcd.lease_revoke(lease.id()).await.unwrap();
            }
        }
    }
    driver.close().await;
    assert_eq!((key_count(&mut etcd).await, lease_count(&mut etcd).await), (0, 0));
}

#[tokio::test]
async fn a_forced_release_leaves_the_lease_to_its_holder() {
    let cluster = server();
    let driver = driver(&cluster);
    let mut etcd = raw(&cluster).await;
    let (lock, token) = (name("forced"), OwnerToken::random());
    granted(driver.acquire(&request(&lock, token, 60)).await);
    assert_eq!(crate::common::driver(&cluster).force_release(&lock, None).await.unwrap(), ForceReleased::Released);
    assert_eq!((key_count(&mut etcd).await, lease_count(&mut etcd).await), (0, 1));
    assert_eq!(*driver.renew(ttl(60), &[hold(&lock, token)]).await[0].as_ref().unwrap(), Renewed::Lost);
    assert_eq!(lease_count(&mut etcd).await, 0, "whoever learns of the loss revokes it");
}

#[tokio::test]
async fn leases_that_are_kept_are_revoked_whoever_comes_next() {
    let cluster = server();
    let driver = driver(&cluster);
    let mut etcd = raw(&cluster).await;
    let (lock, me) = (name("kept"), tenure_core::OwnerId::new());
    let token = OwnerToken::random();
    granted(driver.acquire(&request(&lock, token, 600)).await);
    driver.release(&hold(&lock, token)).await.unwrap();
    // Neither a re-entrant lock nor a token that was abandoned uses the lease that is kept, and neither loses it.
    let (entered, given_up) = (OwnerToken::random(), OwnerToken::random());
    granted(tenure_core::driver::ReentrantLock::enter(&driver, &me, &request(&lock, entered, 600)).await);
    tenure_core::driver::ReentrantLock::exit(&driver, &entry(&lock, me, entered)).await.unwrap();
    driver.abandon(&hold(&lock, given_up)).await.unwrap();
    driver.acquire(&request(&lock, given_up, 600)).await.unwrap_err();
    left(&mut etcd, 0, 0).await;
}
