//! The lock that reaches a waiter without being asked for.

use std::time::Duration;

use tenure_core::driver::{
    AcquireRequest, Acquisition, Begun, Busy, DistributedLock, Handed, Handing, Hold, Queueing, Released, Renewed,
    Signal, Ttl, Watch,
};
use tenure_core::{Label, LockName, OwnerToken};
use tenure_memory::{MemoryDriver, Wakeups};
use tokio::time::{advance, timeout};

const TTL: Duration = Duration::from_secs(10);
const PRESENCE: Duration = Duration::from_secs(6);
/// As long as a waiter that died may hold up others.
const SHORT: Duration = Duration::from_secs(2);

fn request(queue: Queueing) -> AcquireRequest {
    let (name, ttl, label) = (LockName::new("a").unwrap(), Ttl::new(TTL).unwrap(), Some(Label::new("me").unwrap()));
    AcquireRequest::new(name, OwnerToken::random(), ttl).with_queue(queue).with_label(label)
}

fn hold(request: &AcquireRequest) -> Hold {
    Hold::new(request.name.clone(), request.token)
}

async fn held(driver: &MemoryDriver) -> AcquireRequest {
    let holder = request(Queueing::None);
    assert!(matches!(driver.acquire(&holder).await.unwrap(), Acquisition::Granted(_)));
    holder
}

/// A waiter in the queue, listening, and when it was told to wait.
async fn waiting(driver: &MemoryDriver) -> (AcquireRequest, Watch, Duration) {
    let waiter = request(Queueing::Join { presence: PRESENCE, accepts: Handing::Direct });
    let watch = driver.watch(&waiter.name, &waiter.token).await.unwrap();
    match driver.acquire(&waiter).await.unwrap() {
        Acquisition::Busy(Busy { answered_at: Some(at), .. }) => (waiter, watch, at),
        other => panic!("{other:?}"),
    }
}

async fn handed(watch: &mut Watch) -> Option<Handed> {
    match timeout(Duration::ZERO, watch.next()).await {
        Ok(Signal::Handed(handed)) => Some(handed),
        _ => None,
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_gives_the_lock_to_the_first_waiter() {
    let driver = MemoryDriver::new();
    let holder = held(&driver).await;
    let (first, mut first_watch, told_at) = waiting(&driver).await;
    let (second, mut second_watch, _) = waiting(&driver).await;
    advance(Duration::from_secs(1)).await;
    driver.release(&hold(&holder)).await.unwrap();
    let news = handed(&mut first_watch).await.unwrap();
    assert_eq!((news.ttl, news.began_at - told_at), (SHORT, Duration::from_secs(1)));
    let seen = driver.inspect(&first.name).await.unwrap();
    let holder = seen.holder.unwrap();
    assert_eq!((holder.fence, holder.remaining, seen.waiters), (Some(news.fence), Some(SHORT), 1));
    assert_eq!(holder.label, first.label);
    assert_eq!(handed(&mut second_watch).await, None);
    assert_eq!(driver.release(&hold(&first)).await.unwrap(), Released::Released);
    assert!(handed(&mut second_watch).await.unwrap().fence > news.fence);
    assert_eq!(driver.release(&hold(&second)).await.unwrap(), Released::Released);
}

#[tokio::test(start_paused = true)]
async fn asking_or_renewing_makes_it_last() {
    let driver = MemoryDriver::new();
    for asks in [true, false] {
        let holder = held(&driver).await;
        let (waiter, mut watch, _) = waiting(&driver).await;
        driver.release(&hold(&holder)).await.unwrap();
        let fence = handed(&mut watch).await.unwrap().fence;
        if asks {
            for begun in [Begun::Now, Begun::Earlier] {
                let Acquisition::Granted(grant) = driver.acquire(&waiter).await.unwrap() else { panic!("not granted") };
                assert_eq!((grant.fence, grant.ttl, grant.begun), (fence, TTL, begun));
            }
        } else {
            let renewed = DistributedLock::renew(&driver, waiter.ttl, &[hold(&waiter)]).await.remove(0).unwrap();
            assert_eq!(renewed, Renewed::Extended { ttl: TTL });
        }
        advance(TTL - Duration::from_millis(1)).await;
        assert_eq!(driver.release(&hold(&waiter)).await.unwrap(), Released::Released);
    }
}

#[tokio::test(start_paused = true)]
async fn news_that_are_lost_cost_a_short_lease() {
    let driver = MemoryDriver::new();
    let holder = held(&driver).await;
    let (deaf, mut watch, _) = waiting(&driver).await;
    driver.faults().set_wakeups(Wakeups::Lost);
    driver.release(&hold(&holder)).await.unwrap();
    assert_eq!(handed(&mut watch).await, None);
    advance(SHORT - Duration::from_millis(1)).await;
    assert!(driver.inspect(&deaf.name).await.unwrap().holder.is_some());
    advance(Duration::from_millis(1)).await;
    assert!(driver.inspect(&deaf.name).await.unwrap().holder.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_nobody_listens_for_is_handed_nothing() {
    let driver = MemoryDriver::new();
    let holder = held(&driver).await;
    let (gone, watch, _) = waiting(&driver).await;
    drop(watch);
    driver.release(&hold(&holder)).await.unwrap();
    assert!(driver.inspect(&gone.name).await.unwrap().holder.is_none());
}
