//! The driver as a client sees it, under a paused clock.

use std::time::Duration;

use tenure_core::driver::{
    AcquireRequest, Acquisition, Backend, Begun, Busy, DistributedLock, Exclusion, Fencing, ForceReleased, Grant,
    Handing, Hold, Queueing, ReentrantEntry, ReentrantLock, Released, Renewed, Ttl, Waiting,
};
use tenure_core::{ErrorKind, LockName, OwnerId, OwnerToken};
use tenure_memory::{MemoryDriver, Residue, Wakeups};
use tokio::time::{Instant, advance, timeout};

const TTL: Duration = Duration::from_secs(10);
const PRESENCE: Duration = Duration::from_secs(6);

fn name(text: &str) -> LockName {
    LockName::new(text).unwrap()
}

fn request(lock: &str, token: OwnerToken, queue: Queueing) -> AcquireRequest {
    AcquireRequest::new(name(lock), token, Ttl::new(TTL).unwrap()).with_queue(queue)
}

fn hold(lock: &str, token: OwnerToken) -> Hold {
    Hold::new(name(lock), token)
}

async fn ask(driver: &MemoryDriver, lock: &str, token: OwnerToken, queue: Queueing) -> Acquisition {
    driver.acquire(&request(lock, token, queue)).await.unwrap()
}

async fn take(driver: &MemoryDriver, lock: &str, token: OwnerToken) -> Grant {
    match ask(driver, lock, token, Queueing::None).await {
        Acquisition::Granted(grant) => grant,
        Acquisition::Busy(busy) => panic!("busy: {busy:?}"),
    }
}

async fn wait_in_line(driver: &MemoryDriver, lock: &str, token: OwnerToken) -> Busy {
    match ask(driver, lock, token, Queueing::Join { presence: PRESENCE, accepts: Handing::Asked }).await {
        Acquisition::Busy(busy) => busy,
        Acquisition::Granted(grant) => panic!("granted: {grant:?}"),
    }
}

#[test]
fn declares_what_it_keeps_and_needs_no_runtime_to_be_made() {
    let driver = MemoryDriver::builder().max_waiters(7).max_depth(2).build().unwrap();
    let locks = DistributedLock::capabilities(&driver);
    assert_eq!((locks.exclusion, locks.fencing), (Exclusion::Process, Fencing::Strict));
    assert_eq!((locks.waiting, locks.max_waiters), (Waiting::Fifo, Some(7)));
    assert_eq!((locks.ttl.min, locks.ttl.max), (Ttl::MIN, Ttl::MAX));
    assert_eq!(ReentrantLock::capabilities(&driver).max_depth, 2);
    let backend = Backend::from(driver);
    assert_eq!(backend.locks().driver(), "memory");
    assert!(backend.reentrant().is_some());
    for bad in [MemoryDriver::builder().max_waiters(0), MemoryDriver::builder().max_depth(65_536)] {
        assert_eq!(bad.build().unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
}

#[tokio::test(start_paused = true)]
async fn fences_grow_across_names_that_were_forgotten() {
    let driver = MemoryDriver::new();
    let mut last = None;
    for round in 0..100 {
        let (lock, token) = (format!("name-{}", round % 3), OwnerToken::random());
        let grant = take(&driver, &lock, token).await;
        assert!(Some(grant.fence) > last);
        last = Some(grant.fence);
        assert_eq!(driver.release(&hold(&lock, token)).await.unwrap(), Released::Released);
        assert_eq!(driver.residue(), Residue::default());
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_wakes_the_first_waiter_alone() {
    let driver = MemoryDriver::new();
    let other = driver.another_client();
    let [holder, first, second] = std::array::from_fn(|_| OwnerToken::random());
    take(&driver, "a", holder).await;
    let mut first_watch = other.watch(&name("a"), &first).await.unwrap();
    let mut second_watch = driver.watch(&name("a"), &second).await.unwrap();
    assert_eq!(wait_in_line(&other, "a", first).await.position, Some(0));
    assert_eq!(wait_in_line(&driver, "a", second).await.position, Some(1));
    driver.release(&hold("a", holder)).await.unwrap();
    timeout(Duration::from_secs(1), first_watch.next()).await.expect("the head is woken, on its own connection");
    timeout(Duration::from_secs(1), second_watch.next()).await.expect_err("the second is not");
    take(&other, "a", first).await;
    DistributedLock::abandon(&other, &hold("a", first)).await.unwrap();
    timeout(Duration::from_secs(1), second_watch.next()).await.expect("an abandoned hold is passed on");
    drop((first_watch, second_watch));
    assert_eq!(driver.residue().watches, 0);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_behind_one_that_does_not_listen_is_woken() {
    let driver = MemoryDriver::new();
    let [holder, dead, alive, last] = std::array::from_fn(|_| OwnerToken::random());
    take(&driver, "a", holder).await;
    wait_in_line(&driver, "a", dead).await;
    let mut watch = driver.watch(&name("a"), &alive).await.unwrap();
    let mut last_watch = driver.watch(&name("a"), &last).await.unwrap();
    wait_in_line(&driver, "a", alive).await;
    wait_in_line(&driver, "a", last).await;
    driver.release(&hold("a", holder)).await.unwrap();
    timeout(Duration::from_secs(1), watch.next()).await.expect("it is reported");
    timeout(Duration::from_secs(1), last_watch.next()).await.expect_err("one is enough");
    let turn = wait_in_line(&driver, "a", alive).await;
    assert_eq!((turn.position, turn.recheck_after), (Some(1), Some(Duration::from_secs(1))), "of the two seconds");
    advance(Duration::from_secs(1)).await;
    take(&driver, "a", alive).await;
}

#[tokio::test(start_paused = true)]
async fn a_waiter_whose_client_is_known_to_hear_nothing_is_passed() {
    let driver = MemoryDriver::new();
    let [holder, dead, alive, last] = std::array::from_fn(|_| OwnerToken::random());
    take(&driver, "a", holder).await;
    let deaf = driver.another_client();
    deaf.faults().set_wakeups(Wakeups::Unheard);
    let _unheard = deaf.watch(&name("a"), &dead).await.unwrap();
    wait_in_line(&deaf, "a", dead).await;
    let mut watch = driver.watch(&name("a"), &alive).await.unwrap();
    let mut last_watch = driver.watch(&name("a"), &last).await.unwrap();
    wait_in_line(&driver, "a", alive).await;
    wait_in_line(&driver, "a", last).await;
    driver.release(&hold("a", holder)).await.unwrap();
    timeout(Duration::from_secs(1), watch.next()).await.expect("it is reported");
    timeout(Duration::from_secs(1), last_watch.next()).await.expect_err("one is enough");
    take(&driver, "a", alive).await;
    assert_eq!(wait_in_line(&driver, "a", dead).await.position, Some(1), "it begins again");
}

#[tokio::test(start_paused = true)]
async fn what_is_abandoned_cannot_arrive_later() {
    let driver = MemoryDriver::new();
    let token = OwnerToken::random();
    DistributedLock::abandon(&driver, &hold("a", token)).await.unwrap();
    DistributedLock::abandon(&driver, &hold("a", token)).await.unwrap();
    let join = Queueing::Join { presence: PRESENCE, accepts: Handing::Asked };
    let late = driver.acquire(&request("a", token, join)).await.unwrap_err();
    assert_eq!(late.kind(), ErrorKind::NotHeld);
    assert!(late.to_string().contains("acquire of \"a\" through memory"), "{late}");
    assert_eq!(driver.residue(), residue(0, 0, 1));
    take(&driver, "b", token).await; // the attempt on another name is another one

    advance(Duration::from_secs(59)).await;
    assert!(driver.acquire(&request("a", token, join)).await.is_err());
    advance(Duration::from_secs(1)).await;
    assert_eq!(driver.residue(), Residue::default());
}

#[tokio::test(start_paused = true)]
async fn an_abandoned_entry_leaves_the_others() {
    let driver = MemoryDriver::new();
    let owner = OwnerId::new();
    let [outer, inner] = std::array::from_fn(|_| OwnerToken::random());
    driver.enter(&owner, &request("a", outer, Queueing::None)).await.unwrap();
    driver.enter(&owner, &request("a", inner, Queueing::None)).await.unwrap();
    let entry = |token| ReentrantEntry::new(name("a"), owner, token);
    ReentrantLock::abandon(&driver, &entry(inner)).await.unwrap();
    let late = driver.enter(&owner, &request("a", inner, Queueing::None)).await.unwrap_err();
    assert_eq!(late.kind(), ErrorKind::NotHeld);
    assert_eq!(driver.inspect(&name("a")).await.unwrap().holder.unwrap().depth, 1);
    ReentrantLock::abandon(&driver, &entry(outer)).await.unwrap();
    assert_eq!(driver.residue(), residue(0, 0, 2));
}

#[tokio::test(start_paused = true)]
async fn caps_refuse_with_their_number() {
    let driver = MemoryDriver::builder().max_waiters(1).max_depth(1).build().unwrap();
    let owner = OwnerId::new();
    driver.enter(&owner, &request("a", OwnerToken::random(), Queueing::None)).await.unwrap();
    let deep = driver.enter(&owner, &request("a", OwnerToken::random(), Queueing::None)).await.unwrap_err();
    assert_eq!(deep.kind(), ErrorKind::LimitReached);
    assert!(deep.message().contains("1 times"), "{deep}");
    wait_in_line(&driver, "a", OwnerToken::random()).await;
    let join = Queueing::Join { presence: PRESENCE, accepts: Handing::Asked };
    let full = driver.acquire(&request("a", OwnerToken::random(), join)).await.unwrap_err();
    assert_eq!(full.kind(), ErrorKind::LimitReached);
    assert!(full.message().contains("1 wait"), "{full}");
    for builder in [MemoryDriver::builder().max_waiters(0), MemoryDriver::builder().max_depth(65_536)] {
        assert_eq!(builder.build().unwrap_err().kind(), ErrorKind::InvalidArgument);
        assert_eq!(builder.named("never made").unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
}

#[tokio::test(start_paused = true)]
async fn a_batch_of_renewals_answers_each_in_order() {
    let driver = MemoryDriver::new();
    let tokens: Vec<_> = (0..1000).map(|_| OwnerToken::random()).collect();
    let mut holds = Vec::new();
    for (number, token) in tokens.iter().enumerate() {
        if number % 2 == 0 {
            take(&driver, &number.to_string(), *token).await;
        }
        holds.push(hold(&number.to_string(), *token));
    }
    let answers = DistributedLock::renew(&driver, Ttl::new(TTL).unwrap(), &holds).await;
    assert_eq!(answers.len(), 1000);
    for (number, answer) in answers.into_iter().enumerate() {
        let expected = if number % 2 == 0 { Renewed::Extended { ttl: TTL } } else { Renewed::Lost };
        assert_eq!(answer.unwrap(), expected, "{number}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_closed_connection_refuses_and_its_clone_does_not() {
    let driver = MemoryDriver::new();
    let clone = driver.clone();
    driver.close().await;
    let error = driver.acquire(&request("a", OwnerToken::random(), Queueing::None)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed);
    let held = hold("a", OwnerToken::random());
    let renewed = DistributedLock::renew(&driver, Ttl::new(TTL).unwrap(), &[held]).await;
    assert_eq!(renewed[0].as_ref().unwrap_err().kind(), ErrorKind::Closed);
    take(&clone, "a", OwnerToken::random()).await;
}

#[tokio::test(start_paused = true)]
async fn a_named_store_is_one_for_the_process_as_long_as_somebody_uses_it() {
    let (one, other, elsewhere) =
        (MemoryDriver::named("meeting"), MemoryDriver::named("meeting"), MemoryDriver::named("elsewhere"));
    take(&one, "a", OwnerToken::random()).await;
    assert!(matches!(ask(&other, "a", OwnerToken::random(), Queueing::None).await, Acquisition::Busy(_)));
    take(&elsewhere, "a", OwnerToken::random()).await;
    other.faults().outage();
    assert!(one.inspect(&name("a")).await.is_ok(), "each has a link of its own");
    drop((one, other));
    take(&MemoryDriver::named("meeting"), "a", OwnerToken::random()).await;
}

#[tokio::test(start_paused = true)]
async fn force_release_keeps_fences_growing() {
    let driver = MemoryDriver::new();
    let [holder, next] = std::array::from_fn(|_| OwnerToken::random());
    let first = take(&driver, "a", holder).await;
    assert_eq!(driver.force_release(&name("a"), None).await.unwrap(), ForceReleased::Released);
    assert_eq!(driver.force_release(&name("a"), None).await.unwrap(), ForceReleased::NotHeld);
    assert!(take(&driver, "a", next).await.fence > first.fence);
    assert_eq!(driver.release(&hold("a", holder)).await.unwrap(), Released::NotHeld);
}

#[tokio::test]
async fn many_threads_never_hold_one_name_at_once() {
    let driver = MemoryDriver::new();
    let inside = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
    let start = Instant::now();
    let workers: Vec<_> = (0..4)
        .map(|_| {
            let (driver, inside) = (driver.clone(), inside.clone());
            std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
                runtime.block_on(contend(&driver, &inside))
            })
        })
        .collect();
    let grants: Vec<_> = workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect();
    assert_eq!(grants.len(), 4 * 500);
    let mut unique = grants.clone();
    unique.sort_unstable();
    unique.dedup();
    assert_eq!(unique.len(), grants.len(), "every grant has a fence of its own");
    assert!(start.elapsed() < TTL, "no lease ended by itself meanwhile");
    assert_eq!(driver.residue(), Residue::default());
}

async fn contend(driver: &MemoryDriver, inside: &std::sync::atomic::AtomicU32) -> Vec<u64> {
    use std::sync::atomic::Ordering::SeqCst;
    let mut fences = Vec::new();
    while fences.len() < 500 {
        let token = OwnerToken::random();
        if let Acquisition::Granted(grant) = ask(driver, "a", token, Queueing::None).await {
            assert_eq!(grant.begun, Begun::Now);
            assert_eq!(inside.fetch_add(1, SeqCst), 0, "two inside");
            fences.push(grant.fence.get());
            assert_eq!(inside.fetch_sub(1, SeqCst), 1);
            driver.release(&hold("a", token)).await.unwrap();
        }
        tokio::task::yield_now().await;
    }
    fences
}

fn residue(names: usize, waiters: usize, tombstones: usize) -> Residue {
    let mut residue = Residue::default();
    (residue.names, residue.waiters, residue.tombstones) = (names, waiters, tombstones);
    residue
}
