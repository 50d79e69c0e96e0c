//! The trait of permits, semaphores and read-write locks; its requests and answers, and a driver's declared capabilities.

use std::fmt::{self, Debug};
use std::time::Duration;

use async_trait::async_trait;

use crate::driver::{
    AcquireRequest, Acquisition, Exclusion, Fencing, ForceReleased, Holder, Introspection, Released, Renewed,
    Revocation, TtlRange, Waiting, Watch,
};
use crate::value::error::{LockName, Result};
use crate::value::time::Ttl;
use crate::value::token::{FencingToken, OwnerToken};

/// Permits of one backend: holds that weigh, and one line in order of arrival for each name.
///
/// The semantics are those of the rule in [`rules::permits`](crate::rules::permits), which a driver may call or
/// reproduce. The rules that all methods share are in the [module's documentation](super).
#[cfg_attr(feature = "mock", mockall::automock)]
#[async_trait]
pub trait Permits: Debug + Send + Sync + 'static {
    /// Returns the capabilities of the permits. Constant; does no I/O.
    fn capabilities(&self) -> PermitCapabilities;

    /// Takes a share for the token if it fits, or returns that it does not, in one atomic step at the backend.
    ///
    /// * Granted if all holds, all waiters before it and the share fit in the capacity that the request names, and no
    ///   waiter before it names a smaller one that would not suffice. The lease lasts `ttl` by the backend's clock, and
    ///   has a fence greater than every earlier one of the name.
    /// * The token holds already: the same fence again, [`Begun::Earlier`](crate::driver::Begun::Earlier), nothing
    ///   changed. A lease that was handed over is extended to `ttl`, once: [`Begun::Now`](crate::driver::Begun::Now).
    /// * The token was abandoned: refuse with [`ErrorKind::NotHeld`](crate::ErrorKind::NotHeld).
    /// * Busy with [`Queueing::Join`](crate::driver::Queueing::Join): the token keeps or gets its place; asking again
    ///   renews its presence. A full line refuses with [`ErrorKind::LimitReached`](crate::ErrorKind::LimitReached).
    async fn acquire(&self, request: &PermitRequest) -> Result<Acquisition>;

    /// Changes the weight of a hold; its lease does not change.
    ///
    /// * Less: at once, with the same fence, and waiters that fit now are notified. It also ends the hold's own wait for
    ///   more.
    /// * More: when it fits beside the other holds, before all waiters, with a new fence. Until then
    ///   [`Acquisition::Busy`], and no other request is granted for the [`presence`](PermitChange::presence) from now.
    ///   While another hold waits for more, refuse with [`ErrorKind::LimitReached`](crate::ErrorKind::LimitReached).
    /// * The same: [`Begun::Earlier`](crate::driver::Begun::Earlier), with the fence of the hold.
    /// * No hold of the token: refuse with [`ErrorKind::NotHeld`](crate::ErrorKind::NotHeld). A change whose
    ///   [`step`](PermitChange::step) is less than the last one of the hold is refused in the same way: it arrived late.
    ///
    /// The ttl of the grant is the remaining time of the lease.
    async fn resize(&self, change: &PermitChange) -> Result<Acquisition>;

    /// Renews holds, as [`DistributedLock::renew`](crate::driver::DistributedLock::renew) does.
    async fn renew(&self, ttl: Ttl, holds: &[PermitHold]) -> Vec<Result<Renewed>>;

    /// Ends the lease if the token has one, and notifies the waiters that fit now. May be called again. Must work when
    /// the backend is out of memory.
    async fn release(&self, hold: &PermitHold) -> Result<Released>;

    /// Undoes every request of the token, as [`DistributedLock::abandon`](crate::driver::DistributedLock::abandon) does.
    async fn abandon(&self, hold: &PermitHold) -> Result<()>;

    /// Subscribes to wake-ups for this token, as [`DistributedLock::watch`](crate::driver::DistributedLock::watch) does.
    async fn watch(&self, hold: &PermitHold) -> Result<Watch>;

    /// Returns the holds and the number of waiters without changing them; at most `most` holders, in order of their
    /// fences.
    async fn inspect(&self, family: Family, name: &LockName, most: usize) -> Result<PermitInspection>;

    /// Takes the hold with this fence from its holder, and notifies the waiters that fit now. If no hold has this fence,
    /// the answer is [`ForceReleased::NotHeld`], and nothing is changed.
    async fn evict(&self, family: Family, name: &LockName, fence: FencingToken) -> Result<ForceReleased>;
}

/// The kind of a name: semaphores and read-write locks of one name are different things, as is the lock of that name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Family {
    /// Semaphores.
    Semaphore,
    /// Read-write locks.
    RwLock,
}

impl Family {
    /// Both, in the order of their codes.
    pub const ALL: [Self; 2] = [Self::Semaphore, Self::RwLock];

    /// Returns a letter for keys and rows: `s` or `r`.
    #[must_use]
    pub const fn code(self) -> char {
        match self {
            Self::Semaphore => 's',
            Self::RwLock => 'r',
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Semaphore => "semaphore",
            Self::RwLock => "read-write lock",
        })
    }
}

/// A part of a capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Share {
    /// The number of units that it takes: at least 1, at most the capacity.
    pub weight: u32,
    /// The number of units that all holds may take together, by the request that names it.
    pub capacity: u32,
}

impl Share {
    /// The units of a read-write lock: more than a driver has holders.
    const READ_WRITE: u32 = 1 << 20;
    /// A reader, beside other readers.
    pub const READER: Self = Self { weight: 1, capacity: Self::READ_WRITE };
    /// A reader that may become a writer: beside readers, but not beside another upgradable one.
    pub const UPGRADABLE: Self = Self { weight: Self::READ_WRITE / 2 + 1, capacity: Self::READ_WRITE };
    /// A writer: alone.
    pub const WRITER: Self = Self { weight: Self::READ_WRITE, capacity: Self::READ_WRITE };

    /// Returns true if a request for it can be granted at all: the weight is at least 1 and at most the capacity.
    #[must_use]
    pub const fn is_possible(self) -> bool {
        self.weight > 0 && self.weight <= self.capacity
    }
}

/// A request to take a share, or to ask for it again.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PermitRequest {
    /// The kind of the name.
    pub family: Family,
    /// The share.
    pub share: Share,
    /// The name, the token, the lease and the choice to wait. A grant of permits has one fence, whatever is asked for.
    pub lock: AcquireRequest,
}

impl PermitRequest {
    /// Makes a request.
    #[must_use]
    pub const fn new(family: Family, share: Share, lock: AcquireRequest) -> Self {
        Self { family, share, lock }
    }
}

setters!(PermitRequest {
    with_family => family: Family,
    with_share => share: Share,
    with_lock => lock: AcquireRequest,
});

/// A request to change the weight of a hold.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PermitChange {
    /// The hold.
    pub hold: PermitHold,
    /// The share that it should have.
    pub to: Share,
    /// The number of this change among those of the hold, from 1 on; the same when one change is asked for again. A
    /// change that arrives after a later one has no effect.
    pub step: u32,
    /// The time that a change to more, which does not fit yet, counts as alone in line without asking again. `None`: one
    /// attempt that leaves nothing behind.
    pub presence: Option<Duration>,
}

impl PermitChange {
    /// Makes a change that is one attempt.
    #[must_use]
    pub const fn new(hold: PermitHold, to: Share, step: u32) -> Self {
        Self { hold, to, step, presence: None }
    }
}

setters!(PermitChange {
    with_hold => hold: PermitHold,
    with_to => to: Share,
    with_step => step: u32,
    with_presence => presence: Option<Duration>,
});

/// A lease on permits, to be renewed, changed, released or abandoned.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PermitHold {
    /// The kind of the name.
    pub family: Family,
    /// The name.
    pub name: LockName,
    /// The token of the lease.
    pub token: OwnerToken,
}

impl PermitHold {
    /// Makes the hold of this token.
    #[must_use]
    pub const fn new(family: Family, name: LockName, token: OwnerToken) -> Self {
        Self { family, name, token }
    }
}

setters!(PermitHold {
    with_family => family: Family,
    with_name => name: LockName,
    with_token => token: OwnerToken,
});

/// An operator's view of a semaphore or a read-write lock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PermitInspection {
    /// The weight of all holds.
    pub used: u64,
    /// The first holders, in order of their fences.
    pub holders: Vec<PermitHolder>,
    /// The number of waiters. A hold that waits for more is not among them.
    pub waiters: u32,
}

setters!(PermitInspection {
    with_used => used: u64,
    with_holders => holders: Vec<PermitHolder>,
    with_waiters => waiters: u32,
});

/// One holder of permits.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PermitHolder {
    /// The share that it has, with the capacity that its request named.
    pub share: Share,
    /// The holder, as of a lock.
    pub holder: Holder,
}

impl PermitHolder {
    /// Makes a holder of this share.
    #[must_use]
    pub const fn new(share: Share, holder: Holder) -> Self {
        Self { share, holder }
    }
}

setters!(PermitHolder {
    with_share => share: Share,
    with_holder => holder: Holder,
});

/// The capabilities of a driver's permits. Constant for the life of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PermitCapabilities {
    /// The events that can break the capacity, in addition to clock differences beyond the drift bound.
    pub exclusion: Exclusion,
    /// The guarantee that fencing tokens grow.
    pub fencing: Fencing,
    /// The notification of waiters, and their order.
    pub waiting: Waiting,
    /// The ttls that the backend can keep.
    pub ttl: TtlRange,
    /// The support of read-write locks, beside semaphores.
    pub families: Families,
    /// The greatest capacity of a semaphore.
    pub max_capacity: u32,
    /// The greatest weight of one hold on a semaphore.
    pub max_weight: u32,
    /// The most holders of one name. A further one waits, as if it did not fit.
    pub max_holders: u32,
    /// The most waiters of one name; `None` if there is no line.
    pub max_waiters: Option<u32>,
    /// The most holds of one [`Permits::renew`]; at least 1.
    pub renew_batch: usize,
    /// The information that [`Permits::inspect`] returns.
    pub introspection: Introspection,
    /// The support of [`Permits::evict`].
    pub revocation: Revocation,
}

impl PermitCapabilities {
    /// Declares semaphores of any capacity and read-write locks that can be inspected and revoked, with up to 1,024
    /// holders a name, no limit of waiters, and renewals one by one.
    #[must_use]
    pub const fn new(exclusion: Exclusion, fencing: Fencing, waiting: Waiting, ttl: TtlRange) -> Self {
        Self {
            exclusion,
            fencing,
            waiting,
            ttl,
            families: Families::Both,
            max_capacity: u32::MAX,
            max_weight: u32::MAX,
            max_holders: 1_024,
            max_waiters: None,
            renew_batch: 1,
            introspection: Introspection::Full,
            revocation: Revocation::Forced,
        }
    }
}

setters!(const PermitCapabilities {
    with_exclusion => exclusion: Exclusion,
    with_fencing => fencing: Fencing,
    with_waiting => waiting: Waiting,
    with_ttl => ttl: TtlRange,
    with_families => families: Families,
    with_max_capacity => max_capacity: u32,
    with_max_weight => max_weight: u32,
    with_max_holders => max_holders: u32,
    with_max_waiters => max_waiters: Option<u32>,
    with_renew_batch => renew_batch: usize,
    with_introspection => introspection: Introspection,
    with_revocation => revocation: Revocation,
});

/// The kinds of names that a driver supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Families {
    /// Semaphores and read-write locks.
    Both,
    /// Semaphores alone; read-write locks are refused with [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported).
    Semaphores,
}
