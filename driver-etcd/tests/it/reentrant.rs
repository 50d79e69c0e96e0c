//! Re-entrant locks on a server, past the engine.

use crate::common::*;
use tenure_core::driver::{Begun, DistributedLock as _, Exited, ReentrantHold, ReentrantLock as _, Renewed, Ttl};
use tenure_core::{ErrorKind, OwnerId, OwnerToken};

#[tokio::test]
async fn entries_are_counted_exactly_also_when_answers_are_lost() {
    let cluster = server();
    let driver = driver(&cluster);
    let (lock, me, other) = (name("re"), OwnerId::new(), OwnerId::new());
    let tokens: Vec<_> = (0..3).map(|_| OwnerToken::random()).collect();
    let first = granted(driver.enter(&me, &request(&lock, tokens[0], 100)).await);
    assert_eq!((first.depth, first.begun), (1, Begun::Now));
    for (depth, token) in (2..).zip(&tokens[1..]) {
        let grant = granted(driver.enter(&me, &request(&lock, *token, 50)).await);
        assert_eq!((grant.depth, grant.begun, grant.fence), (depth, Begun::Now, first.fence));
        assert_eq!(grant.ttl, 100 * SECOND, "never shortened");
        let repeated = granted(driver.enter(&me, &request(&lock, *token, 50)).await);
        assert_eq!((repeated.depth, repeated.begun, repeated.fence), (depth, Begun::Earlier, first.fence));
    }
    let mut etcd = raw(&cluster).await;
    left(&mut etcd, 1, 1).await;
    busy(driver.enter(&other, &request(&lock, OwnerToken::random(), 50)).await);
    busy(driver.acquire(&request(&lock, OwnerToken::random(), 50)).await);
    assert_eq!(driver.exit(&entry(&lock, other, tokens[0])).await.unwrap(), Exited::NotHeld);
    assert_eq!(driver.exit(&entry(&lock, me, tokens[1])).await.unwrap(), Exited::Inside { depth: 2 });
    assert_eq!(driver.exit(&entry(&lock, me, tokens[1])).await.unwrap(), Exited::NotHeld);
    assert_eq!(driver.exit(&entry(&lock, me, tokens[0])).await.unwrap(), Exited::Inside { depth: 1 });
    assert_eq!(driver.exit(&entry(&lock, me, tokens[2])).await.unwrap(), Exited::Released);
    assert_eq!(driver.exit(&entry(&lock, me, tokens[2])).await.unwrap(), Exited::NotHeld);
    left(&mut etcd, 0, 0).await;
    let next = granted(driver.enter(&me, &request(&lock, OwnerToken::random(), 50)).await);
    assert!(next.fence > first.fence && next.depth == 1);
}

#[tokio::test]
async fn an_abandoned_entry_takes_no_other_along() {
    let cluster = server();
    let driver = driver(&cluster);
    let (lock, me) = (name("re"), OwnerId::new());
    // The abandoned one carries the hold, is beneath it, and is in it alone; and also through another client.
    for (entered, abandoned) in [(2, 1), (2, 0), (3, 1), (1, 0)] {
        for through in [driver.clone(), crate::common::driver(&cluster)] {
            let tokens: Vec<_> = (0..entered).map(|_| OwnerToken::random()).collect();
            let mut fence = None;
            for token in &tokens {
                fence = Some(granted(driver.enter(&me, &request(&lock, *token, 10)).await).fence);
            }
            through.abandon_entry(&lock, me, tokens[abandoned]).await;
            through.abandon_entry(&lock, me, tokens[abandoned]).await;
            let depth = driver.inspect(&lock).await.unwrap().holder.map_or(0, |holder| holder.depth);
            assert_eq!(depth as usize, entered - 1, "{entered} {abandoned}");
            let hold = ReentrantHold::new(lock.clone(), me, fence.unwrap());
            let ttl = Ttl::new(10 * SECOND).unwrap();
            let renewed = tenure_core::driver::ReentrantLock::renew(&driver, ttl, &[hold]).await;
            let expected = if entered == 1 { Renewed::Lost } else { Renewed::Extended { ttl: 10 * SECOND } };
            assert_eq!(*renewed[0].as_ref().unwrap(), expected);
            for token in tokens.iter().enumerate().filter(|(at, _)| *at != abandoned).map(|(_, token)| token) {
                assert_ne!(driver.exit(&entry(&lock, me, *token)).await.unwrap(), Exited::NotHeld);
            }
            let error = through.enter(&me, &request(&lock, tokens[abandoned], 10)).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotHeld);
        }
    }
    let mut etcd = raw(&cluster).await;
    assert_eq!((key_count(&mut etcd).await, lease_count(&mut etcd).await), (0, 0));
}

trait Abandon {
    async fn abandon_entry(&self, lock: &tenure_core::LockName, me: OwnerId, token: OwnerToken);
}

impl Abandon for tenure_etcd::EtcdDriver {
    async fn abandon_entry(&self, lock: &tenure_core::LockName, me: OwnerId, token: OwnerToken) {
        tenure_core::driver::ReentrantLock::abandon(self, &entry(lock, me, token)).await.unwrap();
    }
}

#[tokio::test]
async fn many_entries_of_one_owner_at_once_are_all_counted() {
    let cluster = server();
    let (lock, me) = (name("re"), OwnerId::new());
    let drivers = [driver(&cluster), driver(&cluster)];
    let tokens: Vec<_> = (0..24).map(|_| OwnerToken::random()).collect();
    let enter = |at: usize| {
        let (driver, asked) = (drivers[at % 2].clone(), request(&lock, tokens[at], 20));
        async move { driver.enter(&me, &asked).await }
    };
    granted(enter(0).await);
    let grants = futures_util::future::join_all((1..tokens.len()).map(enter)).await;
    let mut depths: Vec<_> = grants.into_iter().map(|grant| granted(grant).depth).collect();
    depths.sort_unstable();
    assert_eq!(depths, (2..=24).collect::<Vec<_>>());
    let exits = tokens.iter().map(|token| {
        let (driver, left) = (drivers[0].clone(), entry(&lock, me, *token));
        async move { driver.exit(&left).await.unwrap() }
    });
    let exits = futures_util::future::join_all(exits).await;
    assert_eq!(exits.iter().filter(|exited| **exited == Exited::Released).count(), 1, "{exits:?}");
    let mut etcd = raw(&cluster).await;
    until("no lease is left", async || lease_count(&mut etcd).await == 0).await;
    assert_eq!(key_count(&mut etcd).await, 0);
}

#[tokio::test]
async fn depth_has_a_cap() {
    let cluster = server();
    let config: tenure_etcd::EtcdConfig = format!("{}/?max_depth=2", cluster.url()).parse().unwrap();
    let driver = tenure_etcd::EtcdDriver::new(config);
    let (lock, me) = (name("deep"), OwnerId::new());
    for _ in 0..2 {
        granted(driver.enter(&me, &request(&lock, OwnerToken::random(), 5)).await);
    }
    let error = driver.enter(&me, &request(&lock, OwnerToken::random(), 5)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LimitReached);
    let mut etcd = raw(&cluster).await;
    assert_eq!((key_count(&mut etcd).await, lease_count(&mut etcd).await), (1, 1));
}
