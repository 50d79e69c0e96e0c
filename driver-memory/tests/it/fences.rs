//! Where fences begin.

use tenure_core::driver::{
    AcquireRequest, Acquisition, DelayQueue as _, DelayQueueExt as _, DistributedLock as _, Grant, Lease, NewMessage,
    Payload, ReceiveRequest, Ttl,
};
use tenure_core::queue::QueueName;
use tenure_core::{FenceFloor, LockName, OwnerToken};
use tenure_memory::MemoryDriver;

/// The fence of a lock that nobody has.
async fn of_lock(driver: &MemoryDriver) -> u64 {
    let (name, token) = (LockName::new(OwnerToken::random().expose()).unwrap(), OwnerToken::random());
    let ttl = Ttl::new(std::time::Duration::from_secs(10)).unwrap();
    let request = AcquireRequest::new(name, token, ttl);
    match driver.acquire(&request).await.unwrap() {
        Acquisition::Granted(Grant { fence, .. }) => fence.get(),
        Acquisition::Busy(busy) => panic!("{busy:?}"),
    }
}

async fn of_delivery(driver: &MemoryDriver) -> u64 {
    let queue = QueueName::new("jobs").unwrap();
    driver.push(&queue, &[NewMessage::new(Payload::new(&b"x"[..]).unwrap())]).await.unwrap();
    let request = ReceiveRequest::new(queue, 1, Lease::DEFAULT);
    driver.receive(&request).await.unwrap().deliveries.remove(0).fence.get()
}

#[tokio::test(start_paused = true)]
async fn fences_begin_at_the_clock_so_that_they_continue_from_any_other_backends() {
    let before = FenceFloor::now().get();
    let driver = MemoryDriver::new();
    let after = FenceFloor::now().get();
    for fence in [of_lock(&driver).await, of_delivery(&driver).await] {
        assert!((before + 1..=after + 1).contains(&fence), "{before} {fence} {after}");
    }
    assert!(of_lock(&MemoryDriver::new()).await >= after, "a later store goes on");
}

#[tokio::test(start_paused = true)]
async fn with_a_floor_they_are_the_same_each_time() {
    for floor in [0, 41] {
        let floor = FenceFloor::new(floor).unwrap();
        let driver = MemoryDriver::builder().fence_floor(floor).build().unwrap();
        let begin = floor.get();
        assert_eq!([of_lock(&driver).await, of_lock(&driver).await], [begin + 1, begin + 2]);
        assert_eq!([of_delivery(&driver).await, of_delivery(&driver).await], [begin + 1, begin + 2]);
        driver.faults().restart_empty();
        assert_eq!(of_lock(&driver).await, begin + 1, "all is forgotten, but the floor");
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_in_use_continues_beyond_the_floor_and_never_falls() {
    let name = "a_store_that_is_in_use";
    let with = |floor| MemoryDriver::builder().fence_floor(FenceFloor::new(floor).unwrap()).named(name).unwrap();
    let first = with(10);
    assert_eq!((of_lock(&first).await, of_delivery(&first).await), (11, 11));
    let second = with(100);
    assert_eq!((of_lock(&first).await, of_delivery(&second).await), (101, 101));
    let third = with(50);
    assert_eq!((of_lock(&third).await, of_delivery(&first).await), (102, 102));
    first.faults().restart_empty();
    assert_eq!(
        (of_lock(&first).await, of_delivery(&first).await),
        (101, 101),
        "all is forgotten, but the greatest floor"
    );
}
