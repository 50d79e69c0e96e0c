//! Fences, computed from revisions.
//!
//! Revisions order the grants of a cluster, but they are small numbers, while every other backend counts microseconds
//! since 1970. So each prefix has a base, which is added to the revisions. The base is stored in one key:
//!
//! ```text
//! tenure/1
//! locks=1795340360187114
//! deliveries=1795340360179842
//! ```
//!
//! The fence of a lock is the base plus eight times its revision (a grant may carry that many). The fence of a delivery
//! is the base plus 128 times its revision, plus its place in the transaction.
//!
//! The base never falls, and every grant is conditional on the key being unchanged since it was read. So fences grow
//! with revisions, whichever client grants. That costs a comparison and no request. Before its first grant, a client
//! raises the base if it lags behind the client's clock or floor. So fences exceed both, even if the program used
//! another backend in the meantime and returns to this prefix. Clients that begin together find the base raised: it is
//! written ten times a second at most, and does not make the grants of all others restart.

use std::sync::{Arc, Mutex, PoisonError};

use etcd_client::{Compare, CompareOp, GetOptions, GetResponse, KeyValue, Txn, TxnOp};
use tenure_core::{Error, ErrorKind, FenceFloor, FencingToken, Result};

use crate::error::of_a_read;
use crate::link::Link;
use crate::link::{reads, revision};

/// How many fences a revision has for locks.
pub(crate) const OF_A_GRANT: u32 = 8;
/// How many it has for deliveries: etcd takes no more operations in a transaction.
const DELIVERIES: u64 = 128;

/// How often other clients may write the base before it is given up to read it.
const MOST_STARTS: usize = 16;

/// How far, in microseconds, the base may lag behind the clock of a client that begins. A change of the backend takes longer:
/// no lease of this one is shorter than two seconds.
const LAG: u64 = 100_000;

const HEADER: &str = "tenure/1";

/// The numbers added to revisions, with the revision in which they were written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Base {
    /// For locks.
    pub(crate) locks: u64,
    deliveries: u64,
    /// The revision in which it was written.
    written: i64,
}

/// The base of one prefix, as one client knows it.
pub(crate) struct Fences {
    link: Arc<Link>,
    key: Vec<u8>,
    floor: FenceFloor,
    known: Mutex<Known>,
    reading: tokio::sync::Mutex<()>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Known {
    last: Option<Base>,
    /// Whether the key was written since.
    outdated: bool,
}

/// The fence of a lock that was granted in this revision, under this base.
pub(crate) fn of_lock(base: u64, revision: i64) -> Result<FencingToken> {
    beyond(base, revision, u64::from(OF_A_GRANT), 0)
}

impl Base {
    /// The fence of a delivery: that of its transaction's revision, and which one of that it was.
    pub(crate) fn of_delivery(&self, revision: i64, index: usize) -> Result<FencingToken> {
        beyond(self.deliveries, revision, DELIVERIES, index as u64)
    }

    /// The smallest under which all fences from this revision on are greater than the floor.
    fn least(floor: u64, revision: i64) -> Self {
        let revision = u64::try_from(revision).unwrap_or_default();
        let under = |each: u64| floor.saturating_sub(revision.saturating_mul(each));
        Self { locks: under(OF_A_GRANT.into()), deliveries: under(DELIVERIES), written: 0 }
    }

    /// The smallest that does not fall behind any of the two.
    fn or(self, other: Self) -> Self {
        Self {
            locks: self.locks.max(other.locks),
            deliveries: self.deliveries.max(other.deliveries),
            written: self.written.max(other.written),
        }
    }

    /// Whether it is not behind the other one.
    fn reaches(self, other: Self) -> bool {
        self.locks >= other.locks && self.deliveries >= other.deliveries
    }

    fn encode(self) -> String {
        format!("{HEADER}\nlocks={}\ndeliveries={}\n", self.locks, self.deliveries)
    }

    fn decode(found: &KeyValue) -> Option<Self> {
        let text = std::str::from_utf8(found.value()).ok()?.strip_prefix(HEADER)?.strip_prefix("\nlocks=")?;
        let (locks, deliveries) = text.strip_suffix('\n')?.split_once("\ndeliveries=")?;
        let number = |text: &str| text.parse().ok().filter(|number| *number < 1 << 53);
        Some(Self { locks: number(locks)?, deliveries: number(deliveries)?, written: found.mod_revision() })
    }
}

/// The revision in which the key was written; 0 if it is not there.
fn written(look: &GetResponse) -> i64 {
    look.kvs().first().map_or(0, KeyValue::mod_revision)
}

fn beyond(base: u64, revision: i64, each: u64, index: u64) -> Result<FencingToken> {
    let fence = u64::try_from(revision).ok().and_then(|revision| revision.checked_mul(each)?.checked_add(base));
    let fence = fence.and_then(|fence| fence.checked_add(index)).filter(|fence| i64::try_from(*fence).is_ok());
    let text = || format!("the revision {revision} makes no fence beyond {base}");
    fence.and_then(FencingToken::new).ok_or_else(|| Error::new(ErrorKind::Damaged, text()))
}

impl Fences {
    pub(crate) fn new(link: Arc<Link>, key: Vec<u8>, floor: FenceFloor) -> Self {
        Self { link, key, floor, known: Mutex::default(), reading: tokio::sync::Mutex::default() }
    }

    /// The base to grant under. Sends a request only the first time, and after another client wrote the base.
    pub(crate) async fn base(&self) -> Result<Base> {
        if let Some(base) = self.current() {
            return Ok(base);
        }
        let _one = self.reading.lock().await;
        if let Some(base) = self.current() {
            return Ok(base);
        }
        let base = self.read().await?;
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = Known { last: Some(base), outdated: false };
        Ok(base)
    }

    /// What makes a grant depend on the base.
    pub(crate) fn unwritten(&self, base: &Base) -> Compare {
        Compare::mod_revision(self.key.as_slice(), CompareOp::Equal, base.written)
    }

    /// What a transaction reads where that did not hold.
    pub(crate) fn look(&self) -> TxnOp {
        TxnOp::get(self.key.as_slice(), Some(GetOptions::new().with_keys_only()))
    }

    /// Takes in what it read; returns whether the base was written since `base`.
    pub(crate) fn has_moved(&self, base: &Base, look: &GetResponse) -> bool {
        self.look_again(Some(look));
        written(look) != base.written
    }

    /// Reads the base again before the next grant, unless it is the one that is known. (Where that is the newer one, of a
    /// read that overtook this look, it is read once too often.)
    pub(crate) fn look_again(&self, look: Option<&GetResponse>) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.outdated |= look.is_some_and(|look| known.last.is_some_and(|last| last.written != written(look)));
    }

    fn current(&self) -> Option<Base> {
        let known = *self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.last.filter(|_| !known.outdated)
    }

    /// Reads the base, and raises it where it has to be.
    async fn read(&self) -> Result<Base> {
        let (last, clock) = (self.known.lock().unwrap_or_else(PoisonError::into_inner).last, FenceFloor::now().get());
        for _ in 0..MOST_STARTS {
            let answer = self.link.txn(Txn::new().and_then([TxnOp::get(self.key.as_slice(), None)])).await;
            let answer = answer.map_err(of_a_read)?;
            let found = reads(&answer).first().and_then(|found| found.kvs().first().cloned());
            let found = found.map(|found| Base::decode(&found).ok_or_else(|| self.damaged())).transpose()?;
            // Who has followed the clock once does not do it again: two clients would raise each other's base for ever.
            let (clock, read_in) = (if last.is_some() && found.is_some() { 0 } else { clock }, revision(&answer)?);
            let beyond = |clock: u64| {
                let least = Base::least(clock.max(self.floor.get()), read_in);
                last.map_or(least, |last| last.or(least))
            };
            match found {
                Some(found) if found.reaches(beyond(clock.saturating_sub(LAG))) => return Ok(found),
                _ => {}
            }
            let wanted = found.map_or(beyond(clock), |found| found.or(beyond(clock)));
            // Only over the value that was read: another client may have raised the base further, and it must never
            // fall.
            let same =
                Compare::mod_revision(self.key.as_slice(), CompareOp::Equal, found.map_or(0, |found| found.written));
            let put = TxnOp::put(self.key.as_slice(), wanted.encode(), None);
            let answer = self.link.txn(Txn::new().when([same]).and_then([put])).await?;
            if answer.succeeded() {
                return Ok(Base { written: revision(&answer)?, ..wanted });
            }
        }
        Err(Error::new(
            ErrorKind::Unavailable,
            "other clients kept raising the base of the fences; nothing was granted",
        ))
    }

    fn damaged(&self) -> Error {
        let text = format!("{} holds no base of fences; no fence was given", self.key.escape_ascii());
        Error::new(ErrorKind::Damaged, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fences_are_beyond_the_floor_from_the_next_revision_on_and_grow() {
        for (floor, revision) in [(0, 1), (5, 40), (1_795_340_360_187_546, 1), (1_795_340_360_187_546, 1 << 40)] {
            let base = Base::least(floor, revision);
            let lock = |revision| of_lock(base.locks, revision).unwrap().get();
            let delivery = |revision, index| base.of_delivery(revision, index).unwrap().get();
            assert!(lock(revision + 1) > floor && delivery(revision + 1, 0) > floor, "{base:?}");
            let before = revision as u64;
            let least = [before * u64::from(OF_A_GRANT), before * DELIVERIES].map(|fence| fence.max(floor));
            assert_eq!([lock(revision), delivery(revision, 0)], least, "and no further");
            assert_eq!(lock(revision + 2), lock(revision + 1) + u64::from(OF_A_GRANT));
            assert!(delivery(revision + 2, 0) > delivery(revision + 1, 127));
        }
    }

    #[test]
    fn what_is_no_fence_is_an_error() {
        for (base, revision) in [(0, 0), (7, -1), (0, i64::MAX), (u64::MAX, 1), (1 << 63, 1)] {
            assert_eq!(of_lock(base, revision).unwrap_err().kind(), ErrorKind::Damaged, "{base} {revision}");
        }
    }

    #[test]
    fn of_two_bases_the_greater_of_each_part_counts() {
        let base = |locks, deliveries, written| Base { locks, deliveries, written };
        assert_eq!(base(1, 9, 3).or(base(4, 5, 2)), base(4, 9, 3));
        assert_eq!(base(4, 5, 2).or(base(1, 9, 3)), base(4, 9, 3));
        let known = base(4, 5, 0);
        for (other, reaches) in
            [(base(4, 5, 9), true), (base(5, 5, 0), false), (base(4, 6, 0), false), (base(0, 0, 0), true)]
        {
            assert_eq!(known.reaches(other), reaches, "{other:?}");
        }
    }

    #[test]
    fn the_greatest_fence_is_the_greatest_signed_number() {
        let most = i64::MAX as u64;
        assert_eq!(of_lock(most - 8, 1).unwrap().get(), most);
        assert!(of_lock(most - 7, 1).is_err());
        let base = Base { locks: 0, deliveries: 1_000, written: 0 };
        assert_eq!(base.of_delivery(2, 5).unwrap().get(), 1_000 + 2 * DELIVERIES + 5);
    }

    /// Else two of them would raise each other's base for ever.
    #[tokio::test]
    async fn a_client_follows_the_clock_at_its_beginning_and_not_again() {
        let (cluster, driver) = crate::test_support::served();
        let fences = &driver.inner.fences;
        let first = fences.base().await.unwrap();
        tokio::time::sleep(std::time::Duration::from_micros(2 * LAG)).await;
        let put = TxnOp::put(fences.key.as_slice(), first.encode(), None);
        let written = revision(&fences.link.txn(Txn::new().and_then([put, fences.look()])).await.unwrap()).unwrap();
        let answer = fences.link.txn(Txn::new().and_then([fences.look()])).await.unwrap();
        assert!(fences.has_moved(&first, &reads(&answer)[0]));
        assert_eq!(fences.base().await.unwrap(), Base { written, ..first }, "it is taken as it is");
        let other = crate::EtcdDriver::new(cluster.url().parse().unwrap());
        let raised = other.inner.fences.base().await.unwrap();
        assert!(raised.locks > first.locks && raised.deliveries > first.deliveries && raised.written > written);
    }
}
