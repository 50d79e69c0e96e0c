//! Fence checks at the resource, and the floor that all fences of a driver exceed.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::driver::{BackendUrl, CredibleFences};
use crate::value::error::{Error, ErrorKind, Result};
use crate::value::token::FencingToken;

/// A number that every fence of a driver exceeds: `fence_floor` in its settings or its URL.
///
/// Resources that check fences remember the greatest one, and refuse smaller ones. So the fences of a new backend,
/// prefix or name have to continue from those of the old one. They do so by themselves where both count by the clock,
/// which all drivers of tenure do by default; otherwise the floor is the greatest fence that was ever stored: `SELECT
/// max(fence) FROM …`. The page `docs/changing-the-backend.md` of the repository explains when that is the case.
///
/// ```
/// # use tenure_core as tenure;
/// use tenure::{FenceFloor, FencingToken};
///
/// // The greatest in the table.
/// let seen = FencingToken::new(1_795_340_360_187_546).unwrap();
/// let floor = FenceFloor::new(seen.get())?;
/// assert!(floor.first() > seen);
/// // Too far ahead: clients would refuse the fences beyond it.
/// assert!(FenceFloor::new(1 << 62).is_err());
/// # Ok::<(), tenure_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct FenceFloor(u64);

impl FenceFloor {
    /// Zero: every fence exceeds it.
    pub const NONE: Self = Self(0);

    /// Makes the floor with this number.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] for a number that is more than [a day](crate::driver::CLOCKS_APART) ahead of the
    /// wall clock in microseconds since 1970, or not below 2^53: a counter that far ahead is considered damaged, and
    /// quorums reject it.
    pub fn new(number: u64) -> Result<Self> {
        let (floor, credible) = (Self(number), CredibleFences::now());
        if number < u64::MAX && credible.contain(floor.first()) {
            return Ok(floor);
        }
        let text = format!(
            "a fence_floor of {number} is too large: the maximum is {}, a day ahead of this machine's \
             clock in microseconds since 1970",
            credible.greatest()
        );
        Err(Error::new(ErrorKind::InvalidArgument, text))
    }

    /// Returns the wall clock, in microseconds since 1970; [`NONE`](Self::NONE) where it shows a time before 1970 or
    /// from the year 2255 on (2^53 µs).
    #[must_use]
    pub fn now() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).ok();
        let micros = since.and_then(|since| u64::try_from(since.as_micros()).ok());
        micros.filter(|micros| *micros < 1 << 53).map_or(Self::NONE, Self)
    }

    /// Removes the parameter `fence_floor` from a URL and returns it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] when it is not a number, and as [`new`](Self::new).
    pub fn read(url: &mut BackendUrl) -> Result<Option<Self>> {
        url.number("fence_floor")?.map(Self::new).transpose()
    }

    /// Returns the number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns the smallest fence that exceeds it.
    ///
    /// # Panics
    ///
    /// Never: a floor is far below the greatest number.
    #[must_use]
    pub fn first(self) -> FencingToken {
        FencingToken::new(self.0 + 1).expect("what was added to is not zero")
    }

    /// Returns true if the fence exceeds it.
    #[must_use]
    pub fn admits(self, fence: FencingToken) -> bool {
        fence.get() > self.0
    }
}

impl fmt::Display for FenceFloor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

// The resource's side of fencing.

/// Guards one resource: admits a fencing token unless a greater one was admitted before.
///
/// Check it **before you read** the data to be changed, and again before you write. A check of the write alone loses
/// updates: Anna reads and is paused past her lease, Bert reads, Anna writes (no greater token was seen: admitted), and
/// Bert writes a value that he computed from the one before hers.
///
/// ```
/// # use tenure_core as tenure;
/// use tenure::{FenceGate, FencingToken};
///
/// let (gate, mut balance) = (FenceGate::new(), 100);
/// let anna = FencingToken::new(7).unwrap();
/// let bert = FencingToken::new(8).unwrap();
/// gate.admit(anna)?;
/// // She reads, and is paused past her lease.
/// let _read_by_anna = balance;
/// gate.admit(bert)?;
/// let read_by_bert = balance;
/// // She cannot write any more.
/// assert_eq!(gate.admit(anna).unwrap_err().seen, bert);
/// gate.admit(bert)?;
/// balance = read_by_bert + 5;
/// # assert_eq!(balance, 105);
/// # Ok::<(), tenure_core::StaleFence>(())
/// ```
///
/// The resource's own guard, a mutex for example, must be held from the check to the end of the read or write.
///
/// This is the in-process form of a check that belongs in the data's store. In SQL, with a column `fence bigint NOT
/// NULL DEFAULT 0` (see [`FencingToken`] for its type), the first statement claims the row and reads it, and the second
/// writes; if a statement finds no row, a later holder has the lock:
///
/// ```sql
/// UPDATE account SET fence = $1 WHERE id = $2 AND fence <= $1 RETURNING balance;
/// UPDATE account SET balance = $3 WHERE id = $2 AND fence = $1;
/// ```
///
/// A blind write, which depends on nothing that was read, needs only one:
/// `UPDATE … SET …, fence = $1 WHERE id = $2 AND fence <= $1`.
///
/// Holders of a read-write lock that write while they share it (a reader that updates a counter, say) pass
/// [`admit_shared`](Self::admit_shared): readers do not refuse each other, and a reader is refused once a later writer
/// was admitted. A reader that changes nothing needs no check. In SQL, with a second column `alone`, of the greatest
/// fence that was admitted alone:
///
/// ```sql
/// -- alone: a writer, or a lock
/// UPDATE account SET alone = $1, fence = $1 WHERE id = $2 AND fence <= $1 RETURNING balance;
/// -- shared: a reader
/// UPDATE account SET fence = greatest(fence, $1) WHERE id = $2 AND alone <= $1 RETURNING balance;
/// ```
#[derive(Debug, Default)]
pub struct FenceGate(Mutex<Admitted>);

/// The greatest fences that a gate has admitted; zero for none.
#[derive(Clone, Copy, Debug, Default)]
struct Admitted {
    /// Of those that came alone.
    alone: u64,
    /// Of all.
    seen: u64,
}

impl FenceGate {
    /// Makes a gate that has seen no token.
    #[must_use]
    pub const fn new() -> Self {
        Self(Mutex::new(Admitted { alone: 0, seen: 0 }))
    }

    /// Admits `fence` alone and remembers it, or refuses it because a greater one was seen.
    ///
    /// # Errors
    ///
    /// [`StaleFence`], with the token that was seen.
    pub fn admit(&self, fence: FencingToken) -> Result<(), StaleFence> {
        let mut admitted = self.admitted();
        refuse_below(admitted.seen, fence)?;
        *admitted = Admitted { alone: fence.get(), seen: fence.get() };
        Ok(())
    }

    /// Admits `fence` beside others that share and remembers it, or refuses it because a greater one was admitted
    /// [alone](Self::admit).
    ///
    /// ```
    /// # use tenure_core as tenure;
    /// use tenure::{FenceGate, FencingToken};
    ///
    /// let gate = FenceGate::new();
    /// let [writer, one, other, next] = [1, 2, 3, 4].map(|number| FencingToken::new(number).unwrap());
    /// gate.admit(writer)?;
    /// gate.admit_shared(other)?;
    /// gate.admit_shared(one)?;
    /// // A paused writer is refused: readers came later.
    /// assert_eq!(gate.admit(writer).unwrap_err().seen, other);
    /// gate.admit(next)?;
    /// // And paused readers, because a later writer came.
    /// assert_eq!(gate.admit_shared(other).unwrap_err().seen, next);
    /// # Ok::<(), tenure_core::StaleFence>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`StaleFence`], with the token that was admitted alone.
    pub fn admit_shared(&self, fence: FencingToken) -> Result<(), StaleFence> {
        let mut admitted = self.admitted();
        refuse_below(admitted.alone, fence)?;
        admitted.seen = admitted.seen.max(fence.get());
        Ok(())
    }

    /// Returns the greatest token admitted so far.
    #[must_use]
    pub fn seen(&self) -> Option<FencingToken> {
        FencingToken::new(self.admitted().seen)
    }

    fn admitted(&self) -> MutexGuard<'_, Admitted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn refuse_below(least: u64, offered: FencingToken) -> Result<(), StaleFence> {
    match FencingToken::new(least) {
        Some(seen) if seen > offered => Err(StaleFence { offered, seen }),
        _ => Ok(()),
    }
}

/// The error of a fencing token smaller than one already seen: its holder has lost the lock to a later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StaleFence {
    /// The refused token.
    pub offered: FencingToken,
    /// The greatest token seen before it.
    pub seen: FencingToken,
}

impl fmt::Display for StaleFence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stale fencing token {}: {} was seen before", self.offered, self.seen)
    }
}

impl std::error::Error for StaleFence {}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3_600_000_000;

    #[test]
    fn a_floor_is_at_most_a_day_ahead_of_the_clock() {
        let now = FenceFloor::now().get();
        for taken in [0, 1, 54, now, now + 23 * HOUR] {
            let floor = FenceFloor::new(taken).unwrap();
            assert!(floor.admits(floor.first()) && !FencingToken::new(taken).is_some_and(|fence| floor.admits(fence)));
        }
        for refused in [now + 25 * HOUR, (1 << 53) - 1, 1 << 53, i64::MAX as u64, u64::MAX] {
            let error = FenceFloor::new(refused).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(error.message().contains(&refused.to_string()) && error.message().contains("a day"), "{error}");
        }
    }

    #[test]
    fn a_url_may_name_one() {
        let read = |url: &str| FenceFloor::read(&mut BackendUrl::parse(url).unwrap());
        assert_eq!(read("memory:").unwrap(), None);
        assert_eq!(read("memory:?fence_floor=54").unwrap(), Some(FenceFloor(54)));
        for bad in ["memory:?fence_floor=", "memory:?fence_floor=-1", "memory:?fence_floor=9223372036854775807"] {
            assert!(read(bad).unwrap_err().message().contains("fence_floor"), "{bad}");
        }
    }
}
