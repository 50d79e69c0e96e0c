//! Every fault hook does what its documentation says, and `heal` ends it.

use std::time::Duration;

use tenure_core::driver::{
    AcquireRequest, Acquisition, DistributedLock, ForceReleased, Handing, Hold, Queueing, Released, Renewed, Ttl,
};
use tenure_core::queue::QueueName;
use tenure_core::{ErrorKind, LockName, OwnerToken, Result};
use tenure_memory::{MemoryDriver, Operation, Wakeups};
use tokio::time::{Instant, advance, timeout};

const TTL: Duration = Duration::from_secs(10);
const SECOND: Duration = Duration::from_secs(1);

fn name() -> LockName {
    LockName::new("a").unwrap()
}

fn hold(token: OwnerToken) -> Hold {
    Hold::new(name(), token)
}

async fn ask(driver: &MemoryDriver, token: OwnerToken) -> Result<Acquisition> {
    let queue = Queueing::Join { presence: TTL, accepts: Handing::Asked };
    let request = AcquireRequest::new(name(), token, Ttl::new(TTL).unwrap()).with_queue(queue);
    driver.acquire(&request).await
}

async fn is_granted(driver: &MemoryDriver, token: OwnerToken) -> bool {
    matches!(ask(driver, token).await.unwrap(), Acquisition::Granted(_))
}

async fn renew(driver: &MemoryDriver, token: OwnerToken) -> Result<Renewed> {
    driver.renew(Ttl::new(TTL).unwrap(), &[hold(token)]).await.remove(0)
}

async fn is_held(driver: &MemoryDriver) -> bool {
    driver.another_client().inspect(&name()).await.unwrap().holder.is_some()
}

#[tokio::test(start_paused = true)]
async fn expire_ends_the_lease_and_tells_nobody() {
    let driver = MemoryDriver::new();
    let [holder, waiter] = std::array::from_fn(|_| OwnerToken::random());
    assert_eq!(driver.faults().expire("a").unwrap(), ForceReleased::NotHeld);
    assert!(is_granted(&driver, holder).await);
    let mut watch = driver.watch(&name(), &waiter).await.unwrap();
    assert!(!is_granted(&driver, waiter).await);
    assert_eq!(driver.faults().expire("a").unwrap(), ForceReleased::Released);
    timeout(SECOND, watch.next()).await.expect_err("no client is woken");
    assert_eq!(renew(&driver, holder).await.unwrap(), Renewed::Lost);
    assert!(is_granted(&driver, waiter).await);
    assert_eq!(driver.faults().expire("").unwrap_err().kind(), ErrorKind::InvalidArgument);
}

#[tokio::test(start_paused = true)]
async fn lose_takes_the_lock_away_and_wakes_the_next() {
    let driver = MemoryDriver::new();
    let [holder, waiter] = std::array::from_fn(|_| OwnerToken::random());
    assert!(is_granted(&driver, holder).await);
    let mut watch = driver.watch(&name(), &waiter).await.unwrap();
    assert!(!is_granted(&driver, waiter).await);
    assert_eq!(driver.faults().lose("a").unwrap(), ForceReleased::Released);
    timeout(SECOND, watch.next()).await.expect("the waiter is woken");
    assert_eq!(renew(&driver, holder).await.unwrap(), Renewed::Lost);
}

#[tokio::test(start_paused = true)]
async fn scripted_failures_queue_up_and_change_nothing() {
    let driver = MemoryDriver::new();
    let faults = driver.faults();
    faults.fail_next(Operation::Acquire, ErrorKind::Denied);
    faults.fail_next(Operation::Acquire, ErrorKind::Unavailable);
    let token = OwnerToken::random();
    assert_eq!(ask(&driver, token).await.unwrap_err().kind(), ErrorKind::Denied);
    assert_eq!(ask(&driver, token).await.unwrap_err().kind(), ErrorKind::Unavailable);
    assert!(!is_held(&driver).await);
    assert!(is_granted(&driver, token).await);
    assert_eq!(faults.calls(Operation::Acquire), 3);
    assert_eq!(faults.calls(Operation::Release), 0);
}

#[tokio::test(start_paused = true)]
async fn a_lost_reply_was_applied() {
    let driver = MemoryDriver::new();
    let token = OwnerToken::random();
    driver.faults().lose_reply_next(Operation::Acquire);
    assert_eq!(ask(&driver, token).await.unwrap_err().kind(), ErrorKind::Indeterminate);
    assert!(is_held(&driver).await);
    driver.faults().lose_reply_next(Operation::Renew);
    assert_eq!(renew(&driver, token).await.unwrap_err().kind(), ErrorKind::Indeterminate);
    driver.faults().lose_reply_next(Operation::Release);
    assert_eq!(driver.release(&hold(token)).await.unwrap_err().kind(), ErrorKind::Indeterminate);
    assert_eq!(driver.release(&hold(token)).await.unwrap(), Released::NotHeld);
}

#[tokio::test(start_paused = true)]
async fn a_hanging_call_is_done_when_healed_even_if_nobody_waits_for_it() {
    let driver = MemoryDriver::new();
    let token = OwnerToken::random();
    driver.faults().hang_next(Operation::Acquire);
    timeout(TTL, ask(&driver, token)).await.expect_err("it hangs");
    assert!(!is_held(&driver).await);
    driver.faults().heal();
    assert!(is_held(&driver).await, "the stray request arrived");
    driver.abandon(&hold(token)).await.unwrap();

    let other = OwnerToken::random();
    driver.faults().hang_next(Operation::Acquire);
    timeout(TTL, ask(&driver, other)).await.expect_err("it hangs");
    driver.abandon(&hold(other)).await.unwrap();
    driver.faults().heal();
    assert!(!is_held(&driver).await, "it arrived after it had been abandoned");
}

#[tokio::test(start_paused = true)]
async fn slow_requests_and_slow_replies_differ_in_what_a_dropped_call_did() {
    let driver = MemoryDriver::new();
    let token = OwnerToken::random();
    driver.faults().delay(Operation::Acquire, SECOND);
    timeout(SECOND / 2, ask(&driver, token)).await.expect_err("the request takes a second");
    assert!(!is_held(&driver).await);
    let start = Instant::now();
    assert!(is_granted(&driver, token).await);
    assert_eq!(start.elapsed(), SECOND);
    driver.release(&hold(token)).await.unwrap();

    driver.faults().delay(Operation::Acquire, Duration::ZERO);
    driver.faults().delay_reply(Operation::Acquire, SECOND);
    timeout(SECOND / 2, ask(&driver, token)).await.expect_err("the reply takes a second");
    assert!(is_held(&driver).await);
    driver.faults().heal();
    let start = Instant::now();
    assert!(is_granted(&driver, token).await);
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn an_outage_refuses_one_client_and_not_the_other() {
    let driver = MemoryDriver::new();
    let other = driver.another_client();
    let [holder, waiter] = std::array::from_fn(|_| OwnerToken::random());
    assert!(is_granted(&other, holder).await);
    let mut watch = driver.watch(&name(), &waiter).await.unwrap();
    assert!(!is_granted(&driver, waiter).await);
    driver.faults().outage();
    assert_eq!(ask(&driver, waiter).await.unwrap_err().kind(), ErrorKind::Unavailable);
    other.release(&hold(holder)).await.unwrap();
    timeout(SECOND, watch.next()).await.expect_err("the link is down");
    driver.faults().heal();
    timeout(SECOND, watch.next()).await.expect("all waiters are woken after a gap");
    assert!(is_granted(&driver, waiter).await);
}

#[tokio::test(start_paused = true)]
async fn a_deaf_client_does_not_swallow_the_wake_ups_of_others() {
    let deaf = MemoryDriver::new();
    let (driver, last) = (deaf.another_client(), deaf.another_client());
    last.faults().set_wakeups(Wakeups::Lost);
    deaf.faults().set_wakeups(Wakeups::Lost);
    let [holder, waiter] = std::array::from_fn(|_| OwnerToken::random());
    assert!(is_granted(&driver, holder).await);
    let mut watch = driver.watch(&name(), &waiter).await.unwrap();
    assert!(!is_granted(&driver, waiter).await);
    driver.release(&hold(holder)).await.unwrap();
    timeout(SECOND, watch.next()).await.expect("its own link is good");
}

#[tokio::test(start_paused = true)]
async fn a_reply_under_way_is_lost_in_an_outage() {
    let driver = MemoryDriver::new();
    let token = OwnerToken::random();
    driver.faults().delay_reply(Operation::Acquire, SECOND);
    let task = tokio::spawn({
        let driver = driver.clone();
        async move { ask(&driver, token).await }
    });
    advance(SECOND / 2).await;
    tokio::task::yield_now().await;
    driver.faults().outage();
    assert_eq!(task.await.unwrap().unwrap_err().kind(), ErrorKind::Indeterminate);
    assert!(is_held(&driver).await);
}

#[tokio::test(start_paused = true)]
async fn a_silent_link_does_everything_in_order_when_healed() {
    let driver = MemoryDriver::new();
    driver.faults().silence();
    let [given_up, token] = std::array::from_fn(|_| OwnerToken::random());
    timeout(TTL, ask(&driver, given_up)).await.expect_err("nothing answers");
    timeout(TTL, driver.abandon(&hold(given_up))).await.expect_err("nothing answers");
    assert!(!is_held(&driver).await);
    let healer = async {
        advance(SECOND).await;
        driver.faults().heal();
    };
    let (granted, ()) = tokio::join!(is_granted(&driver, token), healer);
    assert!(granted, "the attempt before it was given up again");
    assert_eq!(driver.residue().tombstones, 1);
}

#[tokio::test(start_paused = true)]
async fn lost_wakeups_leave_calls_alone() {
    let driver = MemoryDriver::new();
    let [holder, waiter] = std::array::from_fn(|_| OwnerToken::random());
    assert!(is_granted(&driver, holder).await);
    let mut watch = driver.watch(&name(), &waiter).await.unwrap();
    assert!(!is_granted(&driver, waiter).await);
    driver.faults().set_wakeups(Wakeups::Lost);
    driver.release(&hold(holder)).await.unwrap();
    timeout(SECOND, watch.next()).await.expect_err("the wake-up is lost");
    assert!(is_granted(&driver, waiter).await);
    driver.faults().set_wakeups(Wakeups::Delivered);
    timeout(SECOND, watch.next()).await.expect_err("and stays lost");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_forgets_wakes_those_who_wait_and_can_hear() {
    let driver = MemoryDriver::new();
    let deaf = driver.another_client();
    let token = OwnerToken::random();
    let mut heard = driver.watch(&name(), &token).await.unwrap();
    let mut unheard = deaf.watch(&name(), &token).await.unwrap();
    deaf.faults().set_wakeups(Wakeups::Lost);
    driver.faults().restart_empty();
    timeout(SECOND, heard.next()).await.expect("it is woken");
    timeout(SECOND, unheard.next()).await.expect_err("its wake-ups are lost");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_has_ended_cannot_expire_once_more() {
    let driver = MemoryDriver::new();
    assert!(is_granted(&driver, OwnerToken::random()).await);
    advance(TTL).await;
    assert_eq!(driver.faults().expire("a").unwrap(), ForceReleased::NotHeld);
}

#[tokio::test(start_paused = true)]
async fn healing_ends_deafness_and_looks_after_what_was_missed() {
    let driver = MemoryDriver::new();
    let [holder, waiter] = std::array::from_fn(|_| OwnerToken::random());
    assert!(is_granted(&driver, holder).await);
    driver.faults().set_wakeups(Wakeups::Lost);
    let mut watch = driver.watch(&name(), &waiter).await.unwrap();
    let queue = QueueName::new("jobs").unwrap();
    let mut messages = tenure_core::driver::DelayQueue::watch(&driver, &queue).await.unwrap();
    assert_eq!(driver.residue().watches, 2);
    assert!(!is_granted(&driver, waiter).await);
    driver.faults().heal();
    timeout(SECOND, watch.next()).await.expect("a waiter looks");
    timeout(SECOND, messages.next()).await.expect("a receiver looks");
    driver.release(&hold(holder)).await.unwrap();
    timeout(SECOND, watch.next()).await.expect("it hears again");
    drop((watch, messages));
    assert_eq!(driver.residue().watches, 0);
}

#[tokio::test(start_paused = true)]
async fn what_hangs_in_a_silence_continues_when_it_ends() {
    let driver = MemoryDriver::new();
    driver.faults().silence();
    let looking = tokio::spawn({
        let driver = driver.clone();
        async move { driver.inspect(&name()).await }
    });
    timeout(SECOND, driver.watch(&name(), &OwnerToken::random())).await.ok();
    driver.faults().heal();
    timeout(SECOND, looking).await.expect("it is answered").unwrap().unwrap();
}
