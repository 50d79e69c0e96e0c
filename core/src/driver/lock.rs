//! The traits of locks, plain and re-entrant, their requests and answers, and a driver's declared capabilities.

use std::fmt::Debug;
use std::time::Duration;

use async_trait::async_trait;

use crate::driver::{Exclusion, Fencing, Watch};
use crate::value::error::{Error, ErrorKind, Label, LockName, Result};
use crate::value::time::Ttl;
use crate::value::token::{FencingToken, OwnerId, OwnerToken};

/// Plain locks of one backend. The rules that all methods share are in the [module's documentation](super).
#[cfg_attr(feature = "mock", mockall::automock)]
#[async_trait]
pub trait DistributedLock: Debug + Send + Sync + 'static {
    /// Returns a short constant name for errors and spans: `"redis"`, `"memory"`. No endpoint, no secret.
    fn driver(&self) -> &'static str;

    /// Returns the capabilities of the locks. Constant; does no I/O.
    fn capabilities(&self) -> LockCapabilities;

    /// Takes the lock for the token, or returns that it is busy, in one atomic step at the backend.
    ///
    /// * Granted: the lease lasts `ttl` by the backend's clock and has a fence greater than every earlier grant's.
    /// * The token holds it already: the same fence again, [`Begun::Earlier`](crate::driver::Begun::Earlier), nothing
    ///   changed.
    /// * The token was abandoned: refuse with [`ErrorKind::NotHeld`](crate::ErrorKind::NotHeld).
    /// * Busy with [`Queueing::Join`](crate::driver::Queueing::Join): the token keeps or gets its place; asking again
    ///   renews its presence. A full queue refuses with [`ErrorKind::LimitReached`](crate::ErrorKind::LimitReached).
    /// * A free lock with live waiters is busy for all tokens but the first waiter's.
    async fn acquire(&self, request: &AcquireRequest) -> Result<Acquisition>;

    /// Extends leases to `ttl` from now, up to [`renew_batch`](LockCapabilities::renew_batch) of them: one answer for
    /// each, in order.
    ///
    /// A renewal never shortens a lease, and never revives one that has ended.
    async fn renew(&self, ttl: Ttl, holds: &[Hold]) -> Vec<Result<Renewed>>;

    /// Ends the lease if the token holds it, and wakes the first live waiter. May be called again.
    async fn release(&self, hold: &Hold) -> Result<Released>;

    /// Undoes every request of the token: the lease, the place in the queue, and a request still on its way.
    ///
    /// The last distinguishes it from a release: the backend remembers for a while that the token was abandoned, and
    /// refuses an [`acquire`](Self::acquire) that arrives after it. `Ok` means that the token holds nothing and, within
    /// the time stated in the driver's guarantees, never will. May be called again.
    async fn abandon(&self, hold: &Hold) -> Result<()>;

    /// Subscribes to wake-ups for this token. Called before the first `acquire` that joins the queue.
    ///
    /// Returns once a wake-up cannot be missed any more. After every gap in the connection the driver wakes all
    /// watchers, so that they ask again. Dropping the [`Watch`] ends the subscription. Usually no round trip: one
    /// subscription serves the whole client. A driver that declares [`Waiting::Poll`](crate::driver::Waiting::Poll) is
    /// not called; it refuses with [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported).
    async fn watch(&self, name: &LockName, token: &OwnerToken) -> Result<Watch>;

    /// Returns the state of a lock without changing it.
    async fn inspect(&self, name: &LockName) -> Result<Inspection>;

    /// Takes the lock from its holder, plain or re-entrant, and wakes the first live waiter; only from the hold with
    /// the `expected` fence, if there is one, compared in the same atomic step. The fence of a hold is the one that
    /// [`inspect`](Self::inspect) returns. A foreign client's hold has none, so it is never the expected one.
    async fn force_release(&self, name: &LockName, expected: Option<FencingToken>) -> Result<ForceReleased>;

    /// Ends connections and background work. Later calls fail with [`ErrorKind::Closed`](crate::ErrorKind::Closed).
    async fn close(&self);
}

// The trait behind re-entrant locks.

/// Re-entrant locks of one backend.
///
/// They have the same names as the driver's [`DistributedLock`](crate::driver::DistributedLock), which also serves
/// their waiters ([`watch`](crate::driver::DistributedLock::watch)), operators and forced releases. The rules that all
/// methods share are in the [module's documentation](super).
#[cfg_attr(feature = "mock", mockall::automock)]
#[async_trait]
pub trait ReentrantLock: Debug + Send + Sync + 'static {
    /// Returns the capabilities of re-entry. Constant; does no I/O.
    fn capabilities(&self) -> ReentrantCapabilities;

    /// Enters the lock for `owner`; the request's token names this one entry.
    ///
    /// * Free: a new hold with a new fence and depth 1, as in `DistributedLock::acquire`.
    /// * Held by `owner`: one more entry, the same fence, and a lease of `max(remaining, ttl)`; it does not wait behind
    ///   waiters.
    /// * This entry exists already: the same answer, [`Begun::Earlier`](crate::driver::Begun::Earlier), nothing
    ///   changed.
    /// * Held by another, plain or re-entrant: busy, and the queue is the same.
    /// * Deeper than [`max_depth`](ReentrantCapabilities::max_depth): refuse with
    ///   [`ErrorKind::LimitReached`](crate::ErrorKind::LimitReached).
    async fn enter(&self, owner: &OwnerId, request: &AcquireRequest) -> Result<Acquisition>;

    /// Renews holds, as `DistributedLock::renew` does.
    async fn renew(&self, ttl: Ttl, holds: &[ReentrantHold]) -> Vec<Result<Renewed>>;

    /// Undoes one entry; the last one frees the lock and wakes the first live waiter. May be called again. Must work
    /// when the backend is out of memory.
    async fn exit(&self, hold: &ReentrantEntry) -> Result<Exited>;

    /// Undoes every request of this entry's token, as `DistributedLock::abandon` does.
    async fn abandon(&self, hold: &ReentrantEntry) -> Result<()>;
}

// What requests take, and what they answer.

/// A request to take a lock, or to ask for it again.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AcquireRequest {
    /// The name of the lock.
    pub name: LockName,
    /// The token of the acquisition: fresh for every acquisition, the same when one acquisition asks again.
    pub token: OwnerToken,
    /// The length of the lease, counted by the backend from the grant.
    pub ttl: Ttl,
    /// The choice to join the queue when the lock is busy.
    pub queue: Queueing,
    /// The holder's note for operators.
    pub label: Option<Label>,
    /// The number of consecutive fences for the grant, see [`Grant::fences`]; at least 1, and no more than the driver
    /// declares. The grant may have fewer now and then.
    pub fences: u32,
}

impl AcquireRequest {
    /// Makes a request for one attempt that leaves no trace when the lock is busy, for one fence, without a label.
    #[must_use]
    pub const fn new(name: LockName, token: OwnerToken, ttl: Ttl) -> Self {
        Self { name, token, ttl, queue: Queueing::None, label: None, fences: 1 }
    }
}

setters!(AcquireRequest {
    with_name => name: LockName,
    with_token => token: OwnerToken,
    with_ttl => ttl: Ttl,
    with_queue => queue: Queueing,
    with_label => label: Option<Label>,
    with_fences => fences: u32,
});

/// The choice to wait in the queue of a busy lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queueing {
    /// One attempt: leave no trace when the lock is busy.
    None,
    /// Wait in the queue. The place expires unless the waiter asks again within `presence`, counted by the backend.
    Join {
        /// The time that a silent waiter counts as alive. The engine asks again three times as often.
        presence: Duration,
        /// The permission for a release to give the lock to this waiter without a request, and to notify it by
        /// [`Signal::Handed`](super::Signal::Handed). Such a lease may be short: the engine extends it at once. A
        /// driver that cannot push grants ignores this and wakes the waiter.
        accepts: Handing,
    },
}

/// The way in which a lock reaches the next waiter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Handing {
    /// The waiter is woken, and asks. The lease then begins with its own request, and lasts the whole ttl.
    #[default]
    Asked,
    /// A release may give it the lock directly: one hop less, and a lease that is extended afterwards.
    Direct,
}

/// The answer to an [`AcquireRequest`].
#[derive(Clone, Debug)]
pub enum Acquisition {
    /// The token holds the lock.
    Granted(Grant),
    /// Another token holds it, or is ahead in the queue.
    Busy(Busy),
}

/// A lease that the backend granted.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Grant {
    /// The order of this grant among all grants of the name. Re-entry keeps the token of the first entry.
    pub fence: FencingToken,
    /// The ttl that the backend really keeps; never shorter than requested.
    pub ttl: Duration,
    /// The request with which the lease began.
    pub begun: Begun,
    /// The number of entries of the owner, this one included; 1 for a plain lock.
    pub depth: u32,
    /// The number of consecutive fences, from `fence` on, that belong to this grant: every later grant of the name is
    /// greater than all of them. 1 from a driver that cannot reserve fences, and for a re-entrant lock. May differ from
    /// the requested number.
    pub fences: u32,
}

impl Grant {
    /// Makes a lease that began now, of one fence and one entry.
    #[must_use]
    pub const fn new(fence: FencingToken, ttl: Duration) -> Self {
        Self { fence, ttl, begun: Begun::Now, depth: 1, fences: 1 }
    }
}

setters!(const Grant {
    with_fence => fence: FencingToken,
    with_ttl => ttl: Duration,
    with_begun => begun: Begun,
    with_depth => depth: u32,
    with_fences => fences: u32,
});

/// The request with which a lease began. The holder's deadline is counted from the send time of that request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begun {
    /// This request: the backend set the full ttl now.
    Now,
    /// An earlier request of the same token, whose answer was lost: the backend did not touch the ttl now.
    Earlier,
}

/// The state of a busy lock, and the time for the next request without a wake-up.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Busy {
    /// The number of waiters ahead of this one; `None` when it did not join a queue.
    pub position: Option<u32>,
    /// The soonest time at which the lock could become free by itself (the holder's lease, the head's presence). The
    /// engine asks again then, and otherwise only at its slow fallback rate. `None` when only a wake-up can help.
    pub recheck_after: Option<Duration>,
    /// The time of this answer, by the backend's own clock, counted from any origin. With it, a waiter can compute the
    /// beginning of a lease that it is [handed](super::Signal::Handed). `None` from a driver that does not hand over.
    pub answered_at: Option<Duration>,
}

setters!(const Busy {
    with_position => position: Option<u32>,
    with_recheck_after => recheck_after: Option<Duration>,
    with_answered_at => answered_at: Option<Duration>,
});

/// A plain lease, to be renewed, released or abandoned.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Hold {
    /// The name of the lock.
    pub name: LockName,
    /// The token of the lease.
    pub token: OwnerToken,
}

impl Hold {
    /// Makes the hold of this token.
    #[must_use]
    pub const fn new(name: LockName, token: OwnerToken) -> Self {
        Self { name, token }
    }
}

setters!(Hold {
    with_name => name: LockName,
    with_token => token: OwnerToken,
});

/// One entry of a re-entrant lock, to be exited or abandoned.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ReentrantEntry {
    /// The name of the lock.
    pub name: LockName,
    /// The owner of the lock.
    pub owner: OwnerId,
    /// The token of the entry: each entry has its own, so that a repeated request changes nothing.
    pub token: OwnerToken,
}

impl ReentrantEntry {
    /// Makes the entry of this owner with this token.
    #[must_use]
    pub const fn new(name: LockName, owner: OwnerId, token: OwnerToken) -> Self {
        Self { name, owner, token }
    }
}

setters!(ReentrantEntry {
    with_name => name: LockName,
    with_owner => owner: OwnerId,
    with_token => token: OwnerToken,
});

/// A re-entrant lease as a whole, to be renewed: owner and fence name one unbroken hold.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ReentrantHold {
    /// The name of the lock.
    pub name: LockName,
    /// The owner of the lock.
    pub owner: OwnerId,
    /// The fence of the hold: a later hold of the same owner is another one.
    pub fence: FencingToken,
}

impl ReentrantHold {
    /// Makes the hold of this owner with this fence.
    #[must_use]
    pub const fn new(name: LockName, owner: OwnerId, fence: FencingToken) -> Self {
        Self { name, owner, fence }
    }
}

setters!(ReentrantHold {
    with_name => name: LockName,
    with_owner => owner: OwnerId,
    with_fence => fence: FencingToken,
});

/// The answer to a renewal. A failure of the request is an error, never [`Renewed::Lost`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewed {
    /// The lease lasts at least `ttl` from now.
    Extended {
        /// The ttl that the backend really keeps.
        ttl: Duration,
    },
    /// Proof that the lease has ended: expired, taken by another, released or forced. Nothing was changed.
    Lost,
}

/// The answer to a release of a plain lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// It was held and is free now.
    Released,
    /// It was no longer held by this token. Nothing was changed.
    NotHeld,
}

/// The answer to an exit from a re-entrant lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exited {
    /// The entry is undone, others remain.
    Inside {
        /// The number of remaining entries.
        depth: u32,
    },
    /// The last entry is undone, the lock is free.
    Released,
    /// There is no such entry. Nothing was changed.
    NotHeld,
}

/// The answer to a forced release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForceReleased {
    /// It was held; it is free now, and the next waiter was woken.
    Released,
    /// It was not held.
    NotHeld,
    /// Another hold than the expected one has it now. Nothing was changed.
    Changed,
}

/// An operator's view of a lock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Inspection {
    /// The holder of the lock.
    pub holder: Option<Holder>,
    /// The number of places in its queue. Tasks of one client with the same options share one place, see
    /// [`holders_per_grant`](crate::ClientBuilder::holders_per_grant).
    pub waiters: u32,
}

setters!(Inspection {
    with_holder => holder: Option<Holder>,
    with_waiters => waiters: u32,
});

/// The holder of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// The holder's note; `None` if it left none, or if the holder is a foreign client without labels.
    pub label: Option<Label>,
    /// The fence of the hold; `None` for a foreign client's.
    pub fence: Option<FencingToken>,
    /// The time for which it has been held, by the backend's clock; `None` for a foreign client's hold, and where
    /// [`Introspection::Ageless`](super::Introspection::Ageless) is declared.
    pub held_for: Option<Duration>,
    /// The time that the lease lasts without renewal; `None` if it has no end (only a foreign client's has none).
    pub remaining: Option<Duration>,
    /// The number of entries: 1 for a plain lock.
    pub depth: u32,
    /// The owner of a re-entrant lock; `None` for a plain one, and for an owner of another process where
    /// [`OwnerScope::Process`](super::OwnerScope::Process) is declared.
    pub owner: Option<OwnerId>,
}

impl Default for Holder {
    /// Makes a holder of a plain lock without further information.
    fn default() -> Self {
        Self { label: None, fence: None, held_for: None, remaining: None, depth: 1, owner: None }
    }
}

setters!(Holder {
    with_label => label: Option<Label>,
    with_fence => fence: Option<FencingToken>,
    with_held_for => held_for: Option<Duration>,
    with_remaining => remaining: Option<Duration>,
    with_depth => depth: u32,
    with_owner => owner: Option<OwnerId>,
});

// What a driver promises of its locks. Enums and ranges, no booleans: the kind of difference is what a user must know.

/// The capabilities of a driver's plain locks. Constant for the life of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockCapabilities {
    /// The events that can break exclusion, in addition to clock differences beyond the drift bound.
    pub exclusion: Exclusion,
    /// The guarantee that fencing tokens grow.
    pub fencing: Fencing,
    /// The notification of waiters when the lock is free, and their order.
    pub waiting: Waiting,
    /// The ttls that the backend can keep.
    pub ttl: TtlRange,
    /// The information that [`DistributedLock::inspect`] returns.
    pub introspection: Introspection,
    /// The support of taking a lease away.
    pub revocation: Revocation,
    /// The most waiters that one lock's queue holds; `None` if there is no queue.
    pub max_waiters: Option<u32>,
    /// The most holds of one [`DistributedLock::renew`]; at least 1.
    pub renew_batch: usize,
    /// The most consecutive fences of one grant; 1 from a driver that cannot reserve any.
    pub max_fences: u32,
}

impl LockCapabilities {
    /// Declares locks that can be inspected and revoked, have no limit of waiters, and are renewed one by one, of one
    /// fence a grant.
    #[must_use]
    pub const fn new(exclusion: Exclusion, fencing: Fencing, waiting: Waiting, ttl: TtlRange) -> Self {
        Self {
            exclusion,
            fencing,
            waiting,
            ttl,
            introspection: Introspection::Full,
            revocation: Revocation::Forced,
            max_waiters: None,
            renew_batch: 1,
            max_fences: 1,
        }
    }
}

setters!(const LockCapabilities {
    with_exclusion => exclusion: Exclusion,
    with_fencing => fencing: Fencing,
    with_waiting => waiting: Waiting,
    with_ttl => ttl: TtlRange,
    with_introspection => introspection: Introspection,
    with_revocation => revocation: Revocation,
    with_max_waiters => max_waiters: Option<u32>,
    with_renew_batch => renew_batch: usize,
    with_max_fences => max_fences: u32,
});

/// The capabilities of a driver's re-entrant locks, in addition to those of its plain locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReentrantCapabilities {
    /// The scope in which the same [`OwnerId`](crate::OwnerId) is the same owner.
    pub scope: OwnerScope,
    /// The deepest re-entry; one more is refused with [`ErrorKind::LimitReached`].
    pub max_depth: u32,
}

impl ReentrantCapabilities {
    /// Declares re-entry of owners known in this scope, up to this depth.
    #[must_use]
    pub const fn new(scope: OwnerScope, max_depth: u32) -> Self {
        Self { scope, max_depth }
    }
}

setters!(const ReentrantCapabilities {
    with_scope => scope: OwnerScope,
    with_max_depth => max_depth: u32,
});

/// The notification and order of waiters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Waiting {
    /// Waiters poll, with back-off. No order.
    Poll,
    /// The backend wakes waiters. No order.
    Notified,
    /// Queued and woken in order of arrival, one at a time; the place of a waiter that stopped asking expires.
    Fifo,
}

/// The information that `inspect` returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Introspection {
    /// None: `inspect` is refused with [`ErrorKind::Unsupported`].
    None,
    /// As [`Introspection::Full`], but without the time since the grant: the backend keeps no times.
    Ageless,
    /// The holder: label, fence, time since the grant, remaining time, depth; and the number of waiters.
    Full,
}

/// The support of taking a lease away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Revocation {
    /// None: `force_release` is refused with [`ErrorKind::Unsupported`].
    None,
    /// Supported; the holder notices at its next renewal or check-back, fences keep growing.
    Forced,
}

/// The scope in which the same owner id means the same owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OwnerScope {
    /// Inside one process, through every client of it that reaches the same locks.
    Process,
    /// Every process that reaches the backend.
    Backend,
}

/// The ttls that a backend can keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TtlRange {
    /// The shortest lease.
    pub min: Duration,
    /// The longest lease.
    pub max: Duration,
    /// Leases are whole multiples of this.
    pub granularity: Duration,
}

impl TtlRange {
    /// Refuses a ttl that the backend would have to cut, stretch or round.
    pub(crate) fn check(&self, ttl: Ttl) -> Result<()> {
        let length = ttl.get();
        if length < self.min || length > self.max {
            let text = format!("this backend supports leases of {:?} to {:?}, not of {length:?}", self.min, self.max);
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        if !length.as_nanos().is_multiple_of(self.granularity.as_nanos().max(1)) {
            let text = format!("this backend supports leases in steps of {:?}, not of {length:?}", self.granularity);
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        Ok(())
    }

    /// Returns the longest ttl of the backend that is not above `wanted`; the shortest of all if there is none.
    pub(crate) fn at_most(&self, wanted: Duration) -> Duration {
        let step = self.granularity.max(Duration::from_millis(1)).as_nanos();
        let whole = wanted.min(self.max).as_nanos() / step * step;
        Duration::from_nanos(u64::try_from(whole).unwrap_or(u64::MAX)).max(self.min)
    }

    /// Returns the shortest ttl of the backend that is not below `wanted`; `None` if that is longer than any.
    pub(crate) fn at_least(&self, wanted: Duration) -> Option<Ttl> {
        let step = self.granularity.max(Duration::from_millis(1)).as_nanos();
        let whole = wanted.max(self.min).as_nanos().div_ceil(step) * step;
        let whole = Duration::from_nanos(u64::try_from(whole).ok()?);
        Ttl::new(whole).ok().filter(|_| whole <= self.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ttl_is_moved_to_what_the_backend_keeps() {
        let second = Duration::from_secs(1);
        let range = TtlRange { min: 2 * second, max: 60 * second, granularity: second };
        for (wanted, kept) in [(0, 2000), (2999, 2000), (3000, 3000), (60_500, 60_000), (90_000, 60_000)] {
            let kept = Duration::from_millis(kept);
            assert_eq!(range.at_most(Duration::from_millis(wanted)), kept);
            range.check(Ttl::new(kept).unwrap()).unwrap();
        }
        for (wanted, kept) in [(0, Some(2000)), (2001, Some(3000)), (60_000, Some(60_000)), (60_001, None)] {
            let ttl = range.at_least(Duration::from_millis(wanted));
            assert_eq!(ttl.map(Ttl::as_millis), kept);
        }
        for refused in [1_000, 2_500, 61_000] {
            let refused = range.check(Ttl::new(Duration::from_millis(refused)).unwrap()).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
        }
    }
}
