//! The traits behind locks, plain and re-entrant, what their requests take and answer, and what a driver promises of them.

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
    /// A short constant name for errors and spans: `"redis"`, `"memory"`. No endpoint, no secret.
    fn driver(&self) -> &'static str;

    /// What the locks promise. Constant; does no I/O.
    fn capabilities(&self) -> LockCapabilities;

    /// Takes the lock for the token, or tells that it is busy, in one atomic step at the backend.
    ///
    /// * Granted: the lease lasts `ttl` by the backend's clock and has a fence greater than every earlier grant's.
    /// * The token holds it already: the same fence again, [`Begun::Earlier`](crate::driver::Begun::Earlier), nothing changed.
    /// * The token was abandoned: refuse with [`ErrorKind::NotHeld`](crate::ErrorKind::NotHeld).
    /// * Busy with [`Queueing::Join`](crate::driver::Queueing::Join): the token keeps or gets its place; asking again renews
    ///   its presence. A full queue refuses with [`ErrorKind::LimitReached`](crate::ErrorKind::LimitReached).
    /// * A free lock with live waiters is busy for everybody but the first of them.
    async fn acquire(&self, request: &AcquireRequest) -> Result<Acquisition>;

    /// Makes leases last for `ttl` from now, up to [`renew_batch`](LockCapabilities::renew_batch) of them: one answer for
    /// each, in order.
    ///
    /// A renewal never shortens a lease, and never revives one that has ended.
    async fn renew(&self, ttl: Ttl, holds: &[Hold]) -> Vec<Result<Renewed>>;

    /// Ends the lease if the token holds it, and wakes the first live waiter. May be called again.
    async fn release(&self, hold: &Hold) -> Result<Released>;

    /// Undoes whatever the token asked for: the lease, the place in the queue, and a request still on its way.
    ///
    /// The last is what makes it differ from a release: the backend remembers for a while that the token was abandoned,
    /// and refuses an [`acquire`](Self::acquire) that arrives after it. `Ok` means that the token holds nothing and,
    /// within the time stated in the driver's guarantees, never will. May be called again.
    async fn abandon(&self, hold: &Hold) -> Result<()>;

    /// Listens for wake-ups meant for this token. Called before the first `acquire` that joins the queue.
    ///
    /// Returns once a wake-up cannot be missed any more. After every gap in the link the driver wakes all watchers, so
    /// that they ask again. Dropping the [`Watch`] ends the listening. Usually no round trip: one subscription serves
    /// the whole client. A driver that declares [`Waiting::Poll`](crate::driver::Waiting::Poll) is not asked; it refuses with
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported).
    async fn watch(&self, name: &LockName, token: &OwnerToken) -> Result<Watch>;

    /// Looks at a lock without changing it.
    async fn inspect(&self, name: &LockName) -> Result<Inspection>;

    /// Takes the lock from whoever holds it, plain or re-entrant, and wakes the first live waiter; only from the hold with
    /// the `expected` fence, if there is one, compared in the same atomic step. The fence of a hold is the one that
    /// [`inspect`](Self::inspect) tells. A foreign client's has none: it is not the expected one.
    async fn force_release(&self, name: &LockName, expected: Option<FencingToken>) -> Result<ForceReleased>;

    /// Ends connections and background work. Later calls fail with [`ErrorKind::Closed`](crate::ErrorKind::Closed).
    async fn close(&self);
}

// The trait behind re-entrant locks.

/// Re-entrant locks of one backend.
///
/// They live in the same names as the driver's [`DistributedLock`](crate::driver::DistributedLock), which also serves their
/// waiters ([`watch`](crate::driver::DistributedLock::watch)), operators and forced releases. The rules that all methods share
/// are in the [module's documentation](super).
#[cfg_attr(feature = "mock", mockall::automock)]
#[async_trait]
pub trait ReentrantLock: Debug + Send + Sync + 'static {
    /// What re-entry promises. Constant; does no I/O.
    fn capabilities(&self) -> ReentrantCapabilities;

    /// Enters the lock for `owner`; the request's token names this one entry.
    ///
    /// * Free: a new hold with a new fence and depth 1, as in `DistributedLock::acquire`.
    /// * Held by `owner`: one entry more, the same fence, and a lease of `max(what is left, ttl)`; waiters are passed.
    /// * This entry exists already: the same answer, [`Begun::Earlier`](crate::driver::Begun::Earlier), nothing changed.
    /// * Held by another, plain or re-entrant: busy, and the queue is the same.
    /// * Deeper than [`max_depth`](ReentrantCapabilities::max_depth): refuse with
    ///   [`ErrorKind::LimitReached`](crate::ErrorKind::LimitReached).
    async fn enter(&self, owner: &OwnerId, request: &AcquireRequest) -> Result<Acquisition>;

    /// Renews holds, as `DistributedLock::renew` does.
    async fn renew(&self, ttl: Ttl, holds: &[ReentrantHold]) -> Vec<Result<Renewed>>;

    /// Undoes one entry; the last one frees the lock and wakes the first live waiter. May be called again. Must work
    /// when the backend is out of memory.
    async fn exit(&self, hold: &ReentrantEntry) -> Result<Exited>;

    /// Undoes whatever this entry's token asked for, as `DistributedLock::abandon` does.
    async fn abandon(&self, hold: &ReentrantEntry) -> Result<()>;
}

// What requests take, and what they answer.

/// A request to take a lock, or to ask again for it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AcquireRequest {
    /// Which lock.
    pub name: LockName,
    /// Who asks: fresh for every acquisition, the same when one acquisition asks again.
    pub token: OwnerToken,
    /// How long the lease lasts, counted by the backend from the grant.
    pub ttl: Ttl,
    /// Whether to join the queue when the lock is busy.
    pub queue: Queueing,
    /// The holder's note for operators.
    pub label: Option<Label>,
    /// How many consecutive fences the grant should carry, see [`Grant::fences`]; at least 1, and no more than the driver
    /// declares. It may carry fewer now and then.
    pub fences: u32,
}

impl AcquireRequest {
    /// One attempt that leaves no trace when the lock is busy, for one fence, without a label.
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

/// Whether a busy lock is worth a place in its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queueing {
    /// One attempt: leave no trace when the lock is busy.
    None,
    /// Wait in the queue. The place lapses unless the waiter asks again within `presence`, counted by the backend.
    Join {
        /// How long a silent waiter counts as alive. The engine asks again three times as often.
        presence: Duration,
        /// Whether a release may give the lock to this waiter without being asked, and tell it by
        /// [`Signal::Handed`](super::Signal::Handed). Such a lease may be short: the engine makes it last at once. A
        /// driver that cannot push grants leaves it aside and wakes.
        accepts: Handing,
    },
}

/// How a lock may reach a waiter whose turn it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Handing {
    /// The waiter is woken, and asks. The lease then begins with a request of its own, and lasts the whole ttl.
    #[default]
    Asked,
    /// A release may give it the lock directly: a hop less, and a lease that is made to last afterwards.
    Direct,
}

/// The answer to an [`AcquireRequest`].
#[derive(Clone, Debug)]
pub enum Acquisition {
    /// The lock is the token's.
    Granted(Grant),
    /// Somebody else has it, or is before us in the queue.
    Busy(Busy),
}

/// A lease, as the backend granted it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Grant {
    /// The order of this grant among all grants of the name. Re-entry keeps the token of the first entry.
    pub fence: FencingToken,
    /// The ttl that the backend really keeps; never shorter than what was asked.
    pub ttl: Duration,
    /// Which request the lease began with.
    pub begun: Begun,
    /// How many entries the owner has, this one included; 1 for a plain lock.
    pub depth: u32,
    /// How many consecutive fences, from `fence` on, belong to this grant: every later grant of the name is greater
    /// than all of them. 1 from a driver that cannot tell, and for a re-entrant lock. May differ from what was asked for.
    pub fences: u32,
}

impl Grant {
    /// A lease that began now, of one fence and one entry.
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

/// Which request a lease began with. Decides which send time the holder's deadline is counted from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begun {
    /// With the request that this is the answer to: the backend set the full ttl now.
    Now,
    /// With an earlier request of the same token, whose answer was lost: the backend did not touch the ttl now.
    Earlier,
}

/// Why the lock was not granted, and when it is worth asking again without being woken.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Busy {
    /// How many waiters are before this one; `None` when it did not join a queue.
    pub position: Option<u32>,
    /// The soonest the lock could become free by itself (the holder's lease, the head's presence). The engine asks
    /// again then, and otherwise only at its slow fallback rate. `None` when only a wake-up can help.
    pub recheck_after: Option<Duration>,
    /// When this was answered, by the backend's own clock, counted from wherever it likes. With it, a waiter can tell
    /// when a lease that it is [handed](super::Signal::Handed) began. `None` from a driver that hands none.
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
    /// Which lock.
    pub name: LockName,
    /// Whose lease.
    pub token: OwnerToken,
}

impl Hold {
    /// The lease that this token has.
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
    /// Which lock.
    pub name: LockName,
    /// Whose lock.
    pub owner: OwnerId,
    /// Which entry: each has a token of its own, so that a repeated frame changes nothing.
    pub token: OwnerToken,
}

impl ReentrantEntry {
    /// The entry of this owner that has this token.
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
    /// Which lock.
    pub name: LockName,
    /// Whose lock.
    pub owner: OwnerId,
    /// The fence of the hold: a later hold of the same owner is another one.
    pub fence: FencingToken,
}

impl ReentrantHold {
    /// The hold of this owner that has this fence.
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

/// The answer to a renewal. A failure on the way is an error, never [`Renewed::Lost`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewed {
    /// The lease lasts at least `ttl` from now.
    Extended {
        /// The ttl that the backend really keeps.
        ttl: Duration,
    },
    /// Proof that the lease is no more: expired, taken by another, released or forced. Nothing was changed.
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
        /// How many remain.
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
    /// Somebody held it; it is free now, and the next waiter was woken.
    Released,
    /// Nobody held it.
    NotHeld,
    /// Another hold than the expected one has it now. Nothing was changed.
    Changed,
}

/// What an operator can see of a lock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Inspection {
    /// Who holds it.
    pub holder: Option<Holder>,
    /// How many places in its queue are taken. The tasks of one client that want the same share one, see
    /// [`holders_per_grant`](crate::ClientBuilder::holders_per_grant).
    pub waiters: u32,
}

setters!(Inspection {
    with_holder => holder: Option<Holder>,
    with_waiters => waiters: u32,
});

/// Who holds a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// The holder's note; `None` if it left none, or if the holder is a foreign client that has no such thing.
    pub label: Option<Label>,
    /// The fence of the hold; `None` for a foreign client's.
    pub fence: Option<FencingToken>,
    /// For how long it has been held, by the backend's clock; `None` for a foreign client's, and where
    /// [`Introspection::Ageless`](super::Introspection::Ageless) is declared.
    pub held_for: Option<Duration>,
    /// How long the lease lasts without renewal; `None` if it has no end (only a foreign client's has none).
    pub remaining: Option<Duration>,
    /// How many entries: 1 for a plain lock.
    pub depth: u32,
    /// Whose re-entrant lock it is; `None` for a plain one, and for an owner of another process where
    /// [`OwnerScope::Process`](super::OwnerScope::Process) is declared.
    pub owner: Option<OwnerId>,
}

impl Default for Holder {
    /// A holder of a plain lock, of whom nothing else is known.
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

/// What a driver's plain locks promise. Constant for the life of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockCapabilities {
    /// What can break exclusion, beyond clocks that run apart further than the drift bound.
    pub exclusion: Exclusion,
    /// How far fencing tokens can be trusted to grow.
    pub fencing: Fencing,
    /// How waiters learn that the lock is free, and in which order they are served.
    pub waiting: Waiting,
    /// Which ttls the backend can keep.
    pub ttl: TtlRange,
    /// What [`DistributedLock::inspect`] can tell.
    pub introspection: Introspection,
    /// Whether a lease can be taken away.
    pub revocation: Revocation,
    /// The most waiters that one lock's queue holds; `None` where there is no queue.
    pub max_waiters: Option<u32>,
    /// How many holds one [`DistributedLock::renew`] may carry; at least 1.
    pub renew_batch: usize,
    /// The most consecutive fences that one grant can carry; 1 from a driver that cannot reserve any.
    pub max_fences: u32,
}

impl LockCapabilities {
    /// Locks that can be inspected and revoked, have no limit of waiters, and are renewed one by one, of one fence a grant.
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

/// What re-entrant locks of a driver promise beyond those of its plain locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReentrantCapabilities {
    /// Where the same [`OwnerId`](crate::OwnerId) is the same owner.
    pub scope: OwnerScope,
    /// The deepest re-entry; one more is refused with [`ErrorKind::LimitReached`].
    pub max_depth: u32,
}

impl ReentrantCapabilities {
    /// Re-entry of owners known in this scope, up to this depth.
    #[must_use]
    pub const fn new(scope: OwnerScope, max_depth: u32) -> Self {
        Self { scope, max_depth }
    }
}

setters!(const ReentrantCapabilities {
    with_scope => scope: OwnerScope,
    with_max_depth => max_depth: u32,
});

/// How waiters are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Waiting {
    /// By asking again, with back-off. No order.
    Poll,
    /// Woken by the backend. No order.
    Notified,
    /// Queued and woken in order of arrival, one at a time; a waiter that stopped asking lapses.
    Fifo,
}

/// What can be seen of a lock from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Introspection {
    /// Nothing: `inspect` is refused with [`ErrorKind::Unsupported`].
    None,
    /// As [`Introspection::Full`], but not since when: the backend keeps no times.
    Ageless,
    /// The holder: label, fence, since when, for how long, depth; and how many wait.
    Full,
}

/// Whether an operator can take a lease away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Revocation {
    /// No: `force_release` is refused with [`ErrorKind::Unsupported`].
    None,
    /// Yes; the holder learns of it at its next renewal or check-back, fences keep growing.
    Forced,
}

/// Where the same owner id means the same owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OwnerScope {
    /// Inside one process, through every client of it that reaches the same locks.
    Process,
    /// Everywhere the backend is reached from.
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
            let text = format!("this backend keeps leases of {:?} to {:?}, not of {length:?}", self.min, self.max);
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        if !length.as_nanos().is_multiple_of(self.granularity.as_nanos().max(1)) {
            let text = format!("this backend keeps leases in steps of {:?}, not of {length:?}", self.granularity);
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        Ok(())
    }

    /// The longest ttl of the backend that is not above `wanted`; the shortest of all if there is none.
    pub(crate) fn at_most(&self, wanted: Duration) -> Duration {
        let step = self.granularity.max(Duration::from_millis(1)).as_nanos();
        let whole = wanted.min(self.max).as_nanos() / step * step;
        Duration::from_nanos(u64::try_from(whole).unwrap_or(u64::MAX)).max(self.min)
    }

    /// The shortest ttl of the backend that is not below `wanted`; `None` if that is longer than any.
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
