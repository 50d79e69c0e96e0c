//! What the drivers promise with their default settings.
//!
//! Written down a second time on purpose: `tests/it/defaults.rs` compares it with live drivers, and the suite, whose backends
//! differ from it only in the caps that cases have to reach, with theirs.

use std::time::Duration;

use tenure_core::driver::{
    CensusCapabilities, CensusOrder, Exclusion, Fencing, Introspection, LeaseRange, LockCapabilities, OwnerScope,
    Parking, PermitCapabilities, QueueCapabilities, QueueWake, ReentrantCapabilities, TtlRange, WaitersCounted,
    Waiting,
};
use tenure_memory::MemoryDriver;

/// What the drivers of one kind of backend promise with their default settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Defaults {
    /// Of plain locks.
    pub locks: LockCapabilities,
    /// Of re-entrant locks.
    pub reentrant: ReentrantCapabilities,
    /// Of semaphores and read-write locks, where there are any.
    pub permits: Option<PermitCapabilities>,
    /// Of delay queues, where there are any.
    pub queue: Option<QueueCapabilities>,
    /// Of the list of held locks, where there is one.
    pub census: Option<CensusCapabilities>,
}

/// Each kind of backend, by the name that the documentation has for it.
#[must_use]
pub fn defaults() -> Vec<(&'static str, Defaults)> {
    vec![
        ("memory", memory()),
        ("sqlite", sqlite()),
        ("postgres, unlogged", postgres(false)),
        ("postgres, logged", postgres(true)),
        ("mysql", mysql()),
        ("redis and fred, one server", redis(Exclusion::SingleNode)),
        ("redis and fred, cluster or sentinels", redis(Exclusion::LossyFailover)),
        ("redlock, 3 Redis servers", redlock(3)),
        ("etcd", etcd()),
    ]
}

/// The memory driver needs no server: it says so itself.
fn memory() -> Defaults {
    let driver = MemoryDriver::new();
    Defaults {
        locks: tenure_core::driver::DistributedLock::capabilities(&driver),
        reentrant: tenure_core::driver::ReentrantLock::capabilities(&driver),
        permits: Some(tenure_core::driver::Permits::capabilities(&driver)),
        queue: Some(tenure_core::driver::DelayQueue::capabilities(&driver)),
        census: Some(tenure_core::driver::Census::capabilities(&driver)),
    }
}

/// A file of this machine.
pub(crate) fn sqlite() -> Defaults {
    let locks = LockCapabilities::new(
        Exclusion::SingleNode,
        Fencing::ClockSeeded,
        Waiting::Fifo,
        millis_up_to(Duration::from_secs(24 * 86_400)),
    )
    .with_max_waiters(Some(10_000))
    .with_renew_batch(500)
    .with_max_fences(1024);
    let queue = QueueCapabilities::new(Exclusion::SingleNode, Fencing::ClockSeeded, QueueWake::Notified)
        .with_parking(Parking::Attended)
        .with_payload(1024 * 1024)
        .with_batch(256)
        .with_request_bytes(2 * 1024 * 1024)
        .with_delay(Duration::from_secs(3_650 * 86_400))
        .with_lease(LeaseRange { min: Duration::from_millis(10), max: Duration::from_secs(86_400) })
        .with_attempts(10_000)
        .with_dead_letters(100_000);
    let reentrant = ReentrantCapabilities::new(OwnerScope::Backend, 1_000);
    let census = Some(CensusCapabilities::new(CensusOrder::Sorted));
    Defaults {
        locks,
        reentrant,
        permits: Some(permits(&locks).with_max_waiters(Some(1_000))),
        queue: Some(queue),
        census,
    }
}

/// A database whose tables of locks are logged, or not.
pub(crate) fn postgres(logged: bool) -> Defaults {
    let exclusion = if logged { Exclusion::LossyFailover } else { Exclusion::OnePrimary };
    let ttl = millis_up_to(Duration::from_secs(60));
    let locks = LockCapabilities::new(exclusion, Fencing::ClockSeeded, Waiting::Fifo, ttl)
        .with_max_waiters(Some(10_000))
        .with_renew_batch(200)
        .with_max_fences(1024);
    let queue = QueueCapabilities::new(Exclusion::LossyFailover, Fencing::ClockSeeded, QueueWake::Notified)
        .with_parking(Parking::Attended)
        .with_payload(1024 * 1024)
        .with_batch(256)
        .with_request_bytes(2 * 1024 * 1024)
        .with_delay(Duration::from_secs(3_650 * 86_400))
        .with_lease(LeaseRange { min: Duration::from_millis(10), max: Duration::from_secs(86_400) })
        .with_attempts(10_000)
        .with_dead_letters(100_000);
    let reentrant = ReentrantCapabilities::new(OwnerScope::Backend, 100);
    let census = Some(CensusCapabilities::new(CensusOrder::Sorted));
    Defaults { locks, reentrant, permits: Some(permits(&locks)), queue: Some(queue), census }
}

/// A MySQL or MariaDB database.
pub(crate) fn mysql() -> Defaults {
    let ttl = millis_up_to(Duration::from_secs(24 * 86_400));
    let locks = LockCapabilities::new(Exclusion::LossyFailover, Fencing::ClockSeeded, Waiting::Poll, ttl)
        .with_renew_batch(200)
        .with_max_fences(1024);
    let queue = QueueCapabilities::new(Exclusion::LossyFailover, Fencing::ClockSeeded, QueueWake::Poll)
        .with_parking(Parking::BackOff)
        .with_payload(1024 * 1024)
        .with_batch(256)
        .with_request_bytes(2 * 1024 * 1024)
        .with_delay(Duration::from_secs(3_650 * 86_400))
        .with_lease(LeaseRange { min: Duration::from_millis(10), max: Duration::from_secs(86_400) })
        .with_attempts(10_000)
        .with_dead_letters(100_000);
    let reentrant = ReentrantCapabilities::new(OwnerScope::Backend, 100);
    let census = Some(CensusCapabilities::new(CensusOrder::Sorted).with_waiters(WaitersCounted::No));
    Defaults { locks, reentrant, permits: Some(permits(&locks)), queue: Some(queue), census }
}

/// Either driver of Redis, where this can break exclusion.
pub(crate) fn redis(exclusion: Exclusion) -> Defaults {
    let locks = LockCapabilities::new(
        exclusion,
        Fencing::ClockSeeded,
        Waiting::Fifo,
        millis_up_to(Duration::from_secs(24 * 86_400)),
    )
    .with_max_waiters(Some(10_000))
    .with_renew_batch(100)
    .with_max_fences(8);
    let queue = QueueCapabilities::new(exclusion, Fencing::ClockSeeded, QueueWake::Notified)
        .with_parking(Parking::Attended)
        .with_payload(256 * 1024)
        .with_batch(256)
        .with_request_bytes(1024 * 1024)
        .with_delay(Duration::from_secs(3_650 * 86_400))
        .with_lease(LeaseRange { min: Duration::from_millis(10), max: Duration::from_secs(86_400) })
        .with_attempts(10_000)
        .with_dead_letters(100_000);
    let reentrant = ReentrantCapabilities::new(OwnerScope::Backend, 65_535);
    let census = Some(CensusCapabilities::new(CensusOrder::None));
    Defaults { locks, reentrant, permits: Some(permits(&locks)), queue: Some(queue), census }
}

/// A quorum of Redis servers.
pub(crate) fn redlock(nodes: u8) -> Defaults {
    let locks = redis(Exclusion::SingleNode)
        .locks
        .with_exclusion(Exclusion::Quorum { nodes })
        .with_waiting(Waiting::Notified)
        .with_ttl(millis_up_to(Duration::from_secs(60)))
        .with_max_fences(1);
    let reentrant = ReentrantCapabilities::new(OwnerScope::Process, 65_535);
    Defaults { locks, reentrant, permits: None, queue: None, census: None }
}

/// The etcd driver. It is here without the feature as well: the page does not depend on how it was made.
pub(crate) fn etcd() -> Defaults {
    let locks = LockCapabilities::new(
        Exclusion::Consensus,
        Fencing::Strict,
        Waiting::Fifo,
        TtlRange {
            min: Duration::from_secs(2),
            max: Duration::from_secs(24 * 86_400),
            granularity: Duration::from_secs(1),
        },
    )
    .with_introspection(Introspection::Ageless)
    .with_max_waiters(Some(10_000))
    .with_renew_batch(100)
    .with_max_fences(8);
    let permits = PermitCapabilities::new(locks.exclusion, locks.fencing, locks.waiting, locks.ttl)
        .with_introspection(Introspection::Ageless)
        .with_max_holders(128)
        .with_max_waiters(Some(10_000))
        .with_renew_batch(100);
    let queue = QueueCapabilities::new(Exclusion::Consensus, Fencing::Strict, QueueWake::Notified)
        .with_clock_error(Duration::from_secs(1))
        .with_parking(Parking::Attended)
        .with_payload(64 * 1024)
        .with_batch(100)
        .with_request_bytes(384 * 1024)
        .with_delay(Duration::from_secs(3_650 * 86_400))
        .with_lease(LeaseRange { min: Duration::from_millis(10), max: Duration::from_secs(86_400) })
        .with_attempts(10_000)
        .with_dead_letters(100_000);
    let reentrant = ReentrantCapabilities::new(OwnerScope::Backend, 1_000);
    let census = Some(CensusCapabilities::new(CensusOrder::None).with_max_page(100));
    Defaults { locks, reentrant, permits: Some(permits), queue: Some(queue), census }
}

/// Those of a driver whose permits promise what its locks promise.
fn permits(locks: &LockCapabilities) -> PermitCapabilities {
    PermitCapabilities::new(locks.exclusion, locks.fencing, locks.waiting, locks.ttl)
        .with_max_waiters(locks.max_waiters)
        .with_renew_batch(locks.renew_batch)
}

fn millis_up_to(max: Duration) -> TtlRange {
    TtlRange { min: Duration::from_millis(10), max, granularity: Duration::from_millis(1) }
}
