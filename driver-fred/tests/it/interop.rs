//! Locks of this driver and of tenure-redis are the same locks.

use std::time::Duration;

use crate::common::server;
use tenure_core::driver::{
    AcquireRequest, Acquisition, Backend, Family, ForceReleased, Handing, PermitHold, PermitRequest, Queueing,
    Released, Share, Signal, Ttl,
};
use tenure_core::{Client, ErrorKind, LockName, OwnerId, OwnerToken};
use tenure_fred::FredDriver;
use tenure_redis::RedisDriver;
use tenure_testkit::RedisServer;

/// Longer than any test waits for something that does happen.
const LONG: Duration = Duration::from_secs(20);

async fn both(server: &RedisServer) -> [Client; 2] {
    let fred = FredDriver::connect(&format!("fred+{}", server.url())).await.unwrap();
    let redis = RedisDriver::connect(&server.url()).await.unwrap();
    [Client::new(Backend::from(fred)), Client::new(Backend::from(redis))]
}

#[tokio::test]
async fn what_one_holds_the_other_finds_busy_and_can_inspect_and_free() {
    let server = server();
    let clients = both(&server).await;
    for (at, holder) in clients.iter().enumerate() {
        let other = &clients[1 - at];
        let guard = holder.lock("orders").label("billing").acquire().await.unwrap();
        let lock = other.lock("orders");
        assert!(lock.try_acquire().await.unwrap().is_none());
        assert!(other.reentrant("orders", &OwnerId::new()).try_acquire().await.unwrap().is_none());
        let seen = lock.inspect().await.unwrap().holder.unwrap();
        assert_eq!((seen.label.unwrap().as_str(), seen.fence), ("billing", Some(guard.fence())));
        assert_eq!(lock.force_release().await.unwrap(), ForceReleased::Released);
        let fence = guard.fence();
        assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
        let next = lock.acquire().await.unwrap();
        assert!(next.fence() > fence, "the fences of both come from one counter");
        next.release().await.unwrap();
    }
}

/// A semaphore of two units, held through one library each; a release through one hands the hold to a waiter of the other.
#[tokio::test]
async fn permits_of_both_are_the_same_permits() {
    let server = server();
    let fred = Backend::from(FredDriver::connect(&format!("fred+{}", server.url())).await.unwrap());
    let redis = Backend::from(RedisDriver::connect(&server.url()).await.unwrap());
    let [fred, redis] = [&fred, &redis].map(|backend| backend.permits().unwrap());
    let name = LockName::new("seats").unwrap();
    let (share, ttl) = (Share { weight: 1, capacity: 2 }, Ttl::new(LONG).unwrap());
    let request = |queue| {
        let lock = AcquireRequest::new(name.clone(), OwnerToken::random(), ttl).with_queue(queue);
        let request = PermitRequest::new(Family::Semaphore, share, lock);
        (PermitHold::new(Family::Semaphore, name.clone(), request.lock.token), request)
    };
    let ((first, one), (_, two)) = (request(Queueing::None), request(Queueing::None));
    let (waits, next) = request(Queueing::Join { presence: LONG, accepts: Handing::Direct });
    assert!(matches!(fred.acquire(&one).await.unwrap(), Acquisition::Granted(_)));
    assert!(matches!(redis.acquire(&two).await.unwrap(), Acquisition::Granted(_)));
    let mut watch = fred.watch(&waits).await.unwrap();
    assert!(matches!(fred.acquire(&next).await.unwrap(), Acquisition::Busy(_)));
    assert_eq!(redis.release(&first).await.unwrap(), Released::Released, "whichever the library");
    let signal = tokio::time::timeout(LONG, watch.next()).await.expect("it is notified");
    assert!(matches!(signal, Signal::Handed(_)), "{signal:?}");
    assert_eq!(fred.inspect(Family::Semaphore, &name, 9).await.unwrap().holders.len(), 2);
}

#[tokio::test]
async fn an_owner_may_enter_through_either() {
    let server = server();
    let [fred, redis] = both(&server).await;
    let me = OwnerId::new();
    let outer = fred.reentrant("ledger", &me).acquire().await.unwrap();
    let inner = redis.reentrant("ledger", &me).acquire().await.unwrap();
    assert_eq!((inner.depth(), inner.fence()), (2, outer.fence()));
}

#[tokio::test]
async fn waiters_of_both_stand_in_one_queue() {
    let server = server();
    let fred = FredDriver::connect(&format!("fred+{}", server.url())).await.unwrap();
    let redis = RedisDriver::connect(&server.url()).await.unwrap();
    // None waits along with another one of its client.
    let clients = [Backend::from(fred), Backend::from(redis)]
        .map(|backend| Client::builder(backend).holders_per_grant(0).build().unwrap());
    let holder = clients[0].lock("orders").acquire().await.unwrap();
    let (served, mut order) = tokio::sync::mpsc::unbounded_channel();
    for number in 0..8_usize {
        let (lock, served) = (clients[number % 2].lock("orders"), served.clone());
        tokio::spawn(async move {
            let guard = lock.acquire_within(LONG).await.unwrap();
            served.send((number, guard.fence())).unwrap();
            guard.release().await.unwrap();
        });
        let lock = clients[1].lock("orders");
        let queued = async {
            while lock.inspect().await.unwrap().waiters <= number as u32 {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(LONG, queued).await.expect("it joins the queue");
    }
    let mut last = holder.fence();
    holder.release().await.unwrap();
    for expected in 0..8 {
        let (number, fence) = tokio::time::timeout(LONG, order.recv()).await.unwrap().unwrap();
        assert_eq!(number, expected, "first come, first served, whichever the library");
        assert!(fence > last);
        last = fence;
    }
}
