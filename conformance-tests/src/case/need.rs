//! The needs of a case, judged by the declaration of the backend.

use tenure_core::driver::{
    Families, Fencing, Introspection, KeyedConcurrency, OwnerScope, Parking, PermitCapabilities, QueueWake, Revocation,
    WaitersCounted, Waiting,
};

use crate::harness::{Administration, Declared, FaultKind, Floors, Leftovers, Passing, Processes, Time};

/// A condition without which a case makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Need {
    /// The driver has re-entrant locks.
    Reentrant,
    /// The same owner id is the same owner in every process.
    BackendWideOwners,
    /// The deepest re-entry can be reached in reasonable time.
    ReachableDepth,
    /// The driver has semaphores.
    Permits,
    /// The driver has read-write locks.
    ReadWrite,
    /// Waiters for permits are served in order of arrival.
    PermitsFifo,
    /// Waiters for permits are woken by the backend.
    PermitWakeups,
    /// The line of a semaphore has a cap that can be reached in reasonable time.
    ReachablePermitLine,
    /// Permits can be inspected.
    PermitIntrospection,
    /// Permits can be taken from their holders.
    PermitRevocation,
    /// Waiters are woken by the backend.
    Wakeups,
    /// Waiters are served in order of arrival.
    Fifo,
    /// The driver can reserve fences and wakes its waiters, and the clients pass leases on: one wait at the backend
    /// serves all waiters of a client only if the backend wakes it.
    Passing,
    /// The queue has a cap that can be reached in reasonable time.
    ReachableQueueCap,
    /// `inspect` works.
    Introspection,
    /// `force_release` works.
    Revocation,
    /// The driver lists held locks.
    Census,
    /// Its list counts waiters.
    CensusOfWaiters,
    /// Fences grow even if the backend forgot them.
    FencesOutliveData,
    /// The harness can inject this fault into its server.
    Fault(FaultKind),
    /// Other processes can reach the backend.
    Processes,
    /// A lock passes over waiters of a killed process before their presence has passed.
    PastKilledWaiters,
    /// The harness can look at the raw store.
    Leftovers,
    /// The harness can open a backend with a floor for fences.
    FenceFloors,
    /// The case lets hours pass.
    VirtualTime,
    /// The case blocks threads and measures the machine's clock.
    RealTime,
    /// The driver has delay queues.
    Queue,
    /// Its queues have operations on stored messages.
    QueueAdmin,
    /// Consumers of its queues are woken by the backend.
    QueueWakeups,
    /// Its queues keep concurrency keys.
    QueueKeys,
    /// A parked message gets its turn at the lock, if the client that parked it lives.
    FollowsLock,
    /// The dead letters can be filled in reasonable time.
    ReachableDeadLetters,
    /// A push of more bytes than its queues accept can be made in reasonable time.
    ReachableRequest,
    /// The driver has **no** delay queues.
    NoQueue,
    /// Its queues have **no** operations on stored messages.
    NoQueueAdmin,
    /// Its queues keep **no** concurrency keys.
    NoQueueKeys,
    /// The driver has **no** re-entrant locks.
    NoReentrant,
    /// The driver has **no** semaphores and read-write locks.
    NoPermits,
    /// `inspect` does **not** work.
    NoIntrospection,
    /// `force_release` does **not** work.
    NoRevocation,
    /// The driver does **not** list held locks.
    NoCensus,
    /// Waiters are **not** woken.
    NoWakeups,
    /// The driver keeps a narrower range of ttls than the values allow.
    NarrowTtl,
}

/// The result for a need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is.
    Met,
    /// It is not met, for this reason.
    Unmet(&'static str),
    /// The case is not for this backend and not listed: it checks a refusal, and the backend does not refuse.
    Elsewhere,
}

/// How far caps are filled.
const REACHABLE: u32 = 20_000;

/// How large a request is made.
const REACHABLE_BYTES: usize = 8 * 1024 * 1024;

impl Need {
    /// Whether cases with this need check a refusal.
    #[must_use]
    pub const fn is_refusal(self) -> bool {
        matches!(
            self,
            Self::NoReentrant
                | Self::NoPermits
                | Self::NoQueue
                | Self::NoQueueAdmin
                | Self::NoQueueKeys
                | Self::NoIntrospection
                | Self::NoRevocation
                | Self::NoCensus
                | Self::NoWakeups
                | Self::NarrowTtl
        )
    }

    /// Whether a backend that declares this meets the need.
    #[must_use]
    pub fn judge(self, declared: &Declared) -> Verdict {
        let locks = &declared.locks;
        let unless = |met: bool, why: &'static str| if met { Verdict::Met } else { Verdict::Unmet(why) };
        let permits = |met: fn(PermitCapabilities) -> bool, why| unless(declared.permits.is_some_and(met), why);
        let only = |met: bool| if met { Verdict::Met } else { Verdict::Elsewhere };
        match self {
            Self::Reentrant => unless(declared.reentrant.is_some(), "re-entrant locks are not declared"),
            Self::BackendWideOwners => {
                let wide = declared.reentrant.is_some_and(|r| r.scope == OwnerScope::Backend);
                unless(wide, "owners are not declared to be the same in every process")
            }
            Self::ReachableDepth => {
                let reachable = declared.reentrant.is_some_and(|r| r.max_depth <= REACHABLE);
                unless(reachable, "the declared depth is too deep to be reached")
            }
            Self::Permits => permits(|_| true, "semaphores are not declared"),
            Self::ReadWrite => permits(|p| p.families == Families::Both, "read-write locks are not declared"),
            Self::PermitsFifo => permits(|p| p.waiting == Waiting::Fifo, "FIFO waiting for permits is not declared"),
            Self::PermitWakeups => permits(|p| p.waiting != Waiting::Poll, "wake-ups for permits are not declared"),
            Self::ReachablePermitLine => permits(
                |p| p.max_waiters.is_some_and(|cap| cap <= REACHABLE),
                "no cap of waiters for permits within reach is declared",
            ),
            Self::PermitIntrospection => {
                permits(|p| p.introspection != Introspection::None, "introspection of permits is not declared")
            }
            Self::PermitRevocation => {
                permits(|p| p.revocation == Revocation::Forced, "eviction of holders of permits is not declared")
            }
            Self::Wakeups => unless(locks.waiting != Waiting::Poll, "wake-ups are not declared"),
            Self::Fifo => unless(locks.waiting == Waiting::Fifo, "FIFO waiting is not declared"),
            Self::Passing => {
                let wakes = locks.waiting != Waiting::Poll;
                let passing = wakes && locks.max_fences > 1 && declared.passing == Passing::On;
                unless(passing, "passing leases on within a client is not declared")
            }
            Self::ReachableQueueCap => unless(
                locks.max_waiters.is_some_and(|cap| cap <= REACHABLE),
                "no cap of waiters within reach is declared",
            ),
            Self::Introspection => unless(locks.introspection != Introspection::None, "introspection is not declared"),
            Self::Revocation => unless(locks.revocation == Revocation::Forced, "forced release is not declared"),
            Self::Census => unless(declared.census.is_some(), "a list of held locks is not declared"),
            Self::CensusOfWaiters => {
                let counted = declared.census.is_some_and(|census| census.waiters == WaitersCounted::Yes);
                unless(counted, "a list of held locks that counts those who wait is not declared")
            }
            Self::FencesOutliveData => {
                unless(locks.fencing == Fencing::ClockSeeded, "fences are not declared to outlive a loss of data")
            }
            Self::Fault(kind) => unless(declared.faults.contains(&kind), kind.why_missing()),
            Self::Processes => unless(declared.processes == Processes::Several, "one process only is declared"),
            Self::PastKilledWaiters => {
                let bounded = declared.past_killed_waiters.is_some();
                unless(bounded, "no bound for waiters whose process was killed is declared")
            }
            Self::Leftovers => unless(declared.leftovers == Leftovers::Visible, "the harness has no inspector"),
            Self::FenceFloors => unless(declared.floors == Floors::Settable, "the harness sets no floor for fences"),
            Self::VirtualTime => unless(declared.time == Time::Virtual, "passes hours; needs virtual time"),
            Self::RealTime => unless(declared.time == Time::Real, "blocks threads; needs the machine's clock"),
            Self::Queue => unless(declared.queue.is_some(), "delay queues are not declared"),
            Self::QueueAdmin => {
                let full = declared.administration == Administration::Full;
                unless(full, "operations on stored messages are not declared")
            }
            Self::QueueWakeups => {
                let woken = declared.queue.is_some_and(|queue| queue.wake == QueueWake::Notified);
                unless(woken, "wake-ups of queues are not declared")
            }
            Self::QueueKeys => {
                let kept = declared.queue.is_some_and(|queue| queue.keys == KeyedConcurrency::OneInFlight);
                unless(kept, "concurrency keys are not declared")
            }
            Self::FollowsLock => {
                let follows = declared.queue.is_some_and(|queue| queue.parking != Parking::BackOff);
                unless(follows, "parked messages are not declared to be given their turns")
            }
            Self::ReachableDeadLetters => {
                let reachable = declared.queue.is_some_and(|queue| queue.dead_letters <= 200);
                unless(reachable, "no cap of dead letters within reach is declared")
            }
            Self::ReachableRequest => {
                let reachable = declared.queue.is_some_and(|queue| queue.request_bytes <= REACHABLE_BYTES);
                unless(reachable, "no bound of bytes of a push within reach is declared")
            }
            Self::NoQueue => only(declared.queue.is_none()),
            Self::NoQueueAdmin => only(declared.administration == Administration::None),
            Self::NoQueueKeys => only(declared.queue.is_some_and(|queue| queue.keys == KeyedConcurrency::None)),
            Self::NoReentrant => only(declared.reentrant.is_none()),
            Self::NoPermits => only(declared.permits.is_none()),
            Self::NoIntrospection => only(locks.introspection == Introspection::None),
            Self::NoRevocation => only(locks.revocation == Revocation::None),
            Self::NoCensus => only(declared.census.is_none()),
            Self::NoWakeups => only(locks.waiting == Waiting::Poll),
            Self::NarrowTtl => only(
                locks.ttl.min > tenure_core::driver::Ttl::MIN
                    || locks.ttl.max < tenure_core::driver::Ttl::MAX
                    || locks.ttl.granularity > std::time::Duration::from_millis(1),
            ),
        }
    }
}

impl FaultKind {
    const fn why_missing(self) -> &'static str {
        match self {
            Self::ExpireLease => "the harness cannot expire a lease",
            Self::CutConnections => "the harness cannot cut connections",
            Self::SilenceConnections => "the harness cannot silence connections",
            Self::FewConnections => "the harness cannot limit connections",
            Self::DemoteServer => "the harness has no other server to lead connections to",
            Self::OpenPush => "the store has no transactions of applications, or the harness cannot push in one",
            Self::PassDays => "the harness cannot let days pass",
            Self::CutNotifications => "the harness cannot cut notifications",
            Self::MuteNotifications => "the harness cannot mute notifications",
            Self::PauseServer => "the harness cannot pause the server",
            Self::RestartKeepingData => "the harness cannot restart the server with its data",
            Self::RestartLosingData => "the harness cannot restart the server without its data",
            Self::ForgetScripts => "the harness cannot make the server forget scripts",
            Self::JumpServerClock => "the harness cannot move the server's clock",
        }
    }
}
