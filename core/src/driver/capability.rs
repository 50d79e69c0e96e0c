//! What a driver promises. Enums and ranges, no booleans: the *kind* of difference is what a user must know.

use std::time::Duration;

use crate::value::error::{Error, ErrorKind, Result};
use crate::value::ttl::Ttl;

/// What a driver's plain locks promise. Constant for the life of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockCapabilities {
    /// What can break exclusion, beyond clocks that run apart further than the drift bound.
    pub exclusion: Exclusion,
    /// How far fencing tokens can be trusted to grow.
    pub fencing: Fencing,
    /// How waiters learn that the lock is free, and in which order they are served.
    pub waiting: Waiting,
    /// Which ttls the backend can keep.
    pub ttl: TtlRange,
    /// What [`DistributedLock::inspect`](super::DistributedLock::inspect) can tell.
    pub introspection: Introspection,
    /// Whether a lease can be taken away.
    pub revocation: Revocation,
    /// The most waiters that one lock's queue holds; `None` where there is no queue.
    pub max_waiters: Option<u32>,
    /// How many holds one [`DistributedLock::renew`](super::DistributedLock::renew) may carry; at least 1.
    pub renew_batch: usize,
    /// The most consecutive fences that one grant can carry; 1 from a driver that cannot reserve any.
    pub max_fences: u32,
}

/// What re-entrant locks of a driver promise beyond those of its plain locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReentrantCapabilities {
    /// Where the same [`OwnerId`](crate::OwnerId) is the same owner.
    pub scope: OwnerScope,
    /// The deepest re-entry; one more is refused with [`ErrorKind::LimitReached`].
    pub max_depth: u32,
}

/// What, besides unbounded clock drift, could let two clients hold one name at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Exclusion {
    /// Nothing; but it spans one process only.
    Process,
    /// Loss of the one node's data (a restart without persistence, eviction, a flush).
    SingleNode,
    /// As [`Exclusion::SingleNode`], and a failover to a replica that had not seen the lock.
    LossyFailover,
    /// Loss of data on a majority of this many independent nodes.
    Quorum {
        /// How many nodes vote.
        nodes: u8,
    },
    /// Nothing short of a restore from an old backup: a consensus protocol decides.
    Consensus,
}

/// How far fencing tokens can be trusted to grow. Every driver has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fencing {
    /// Always strictly greater.
    Strict,
    /// Strictly greater as long as the backend's counter is not lost.
    StrictUnlessDataLoss,
    /// Strictly greater while the counter lives; after its loss still greater, as long as the server's clock does not
    /// step back behind the last grant.
    ClockSeeded,
}

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
    }
}
