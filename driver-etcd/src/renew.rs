//! Keeping leases alive.

use futures_util::future::join_all;
use tenure_core::driver::{ErrorExt as _, Renewed, Ttl};
use tenure_core::{Error, ErrorKind, FencingToken, OwnerId, OwnerToken, Result};

use crate::answer::{self, HoldSeen, Tried};
use crate::grants::{new_id, seconds};
use crate::inner::Inner;
use crate::keys::NameKeys;
use crate::record::Record;
use crate::txn::{self, On};

/// A lease to keep.
pub(crate) struct Renewable {
    pub(crate) keys: NameKeys,
    pub(crate) whose: Whose,
}

pub(crate) enum Whose {
    Token(OwnerToken),
    Owner(OwnerId, FencingToken),
}

/// A hold as it was read.
struct ReadHold {
    hold: Option<HoldSeen>,
    /// The raft term that it was read in.
    term: u64,
    /// The answer to a keep-alive before it was read.
    kept: Option<Kept>,
}

/// What a keep-alive of a lease was answered.
#[derive(Clone, Copy)]
struct Kept {
    lease: i64,
    /// `false` if there is no such lease.
    alive: bool,
}

/// What a renewal does next.
#[derive(Debug, PartialEq, Eq)]
enum Next<'a> {
    /// Nothing: the hold no longer belongs to the token.
    Lost,
    /// It keeps this lease alive, which the hold is on. That also proves that the lease has not expired: an expired
    /// lease may not be revoked yet.
    KeepAlive(i64),
    /// Nothing: etcd does not know a lease of an existing hold. If the lease had ended, the hold would have ended too.
    Unclear,
    /// It moves the hold to another lease.
    Move(&'a HoldSeen, &'a Record),
    /// Nothing: the hold is on a lease of this many seconds, which was kept alive.
    Done(i64),
}

impl Whose {
    fn is(&self, hold: &HoldSeen) -> bool {
        let Some(record) = &hold.record else { return false };
        match self {
            Self::Token(token) => record.has(None, token),
            Self::Owner(owner, fence) => record.owner == Some(*owner) && hold.fence() == Some(*fence),
        }
    }
}

impl ReadHold {
    /// `wanted` are the seconds that the lease should have at least.
    fn next(&self, whose: &Whose, wanted: i64) -> Next<'_> {
        let own = self.hold.as_ref().filter(|hold| whose.is(hold));
        let Some((seen, record)) = own.and_then(|seen| Some((seen, seen.record.as_ref()?))) else {
            return Next::Lost;
        };
        match self.kept.filter(|kept| kept.lease == seen.lease) {
            None => Next::KeepAlive(seen.lease),
            Some(Kept { alive: false, .. }) => Next::Unclear,
            Some(_) if record.lease_secs >= wanted && record.term == Some(self.term) => Next::Done(record.lease_secs),
            Some(_) => Next::Move(seen, record),
        }
    }
}

impl Inner {
    /// One request for each lease, at once; then one for all holds, to see that they still stand, on these leases.
    ///
    /// The read comes last because a keep-alive does not show which leader answered: a leader that was deposed, and
    /// does not know it yet, still revokes the leases that ended by its own count. It knows those that were granted in
    /// its term or before. So a hold belongs to the term of its lease, and one that is read in a later term moves to a
    /// fresh lease.
    pub(crate) async fn renew(&self, ttl: Ttl, all: Vec<Renewable>) -> Vec<Result<Renewed>> {
        let kept = join_all(all.iter().map(|renewable| self.keep_known(&renewable.whose))).await;
        let (term, holds) = match self.holds(all.iter().map(|renewable| &renewable.keys)).await {
            Ok(read) => read,
            Err(error) => return all.iter().map(|_| Err(error.again())).collect(),
        };
        join_all(all.iter().zip(kept).zip(holds).map(async |((renewable, kept), hold)| {
            let renewed = match kept {
                Ok(kept) => self.renew_one(renewable, ttl, ReadHold { hold, term, kept }).await,
                Err(error) => Err(error),
            };
            if let (Whose::Token(token), Ok(Renewed::Lost)) = (&renewable.whose, &renewed) {
                // Its hold was deleted, and its lease may stand.
                let _ = self.revoke_all(self.tickets.leases(token)).await;
                self.tickets.forget(token);
            }
            renewed
        }))
        .await
    }

    /// Keeps the lease alive that this client believes the hold to be on, if there is one.
    async fn keep_known(&self, whose: &Whose) -> Result<Option<Kept>> {
        let Whose::Token(token) = whose else { return Ok(None) };
        let Some(on) = self.tickets.hold(token) else { return Ok(None) };
        self.keep(on.lease).await.map(Some)
    }

    async fn keep(&self, lease: i64) -> Result<Kept> {
        Ok(Kept { lease, alive: self.leases.keep_alive(lease).await? })
    }

    /// The term, and these holds.
    async fn holds<'a>(&self, names: impl Iterator<Item = &'a NameKeys>) -> Result<(u64, Vec<Option<HoldSeen>>)> {
        let names: Vec<_> = names.collect();
        let answer = self.txn(txn::holds(names.iter().copied())).await?;
        let holds: Vec<_> = crate::link::reads(&answer).iter().map(answer::hold_in).collect();
        if holds.len() == names.len() {
            Ok((crate::link::term(&answer)?, holds))
        } else {
            Err(crate::link::odd("an answer of an unexpected form"))
        }
    }

    async fn renew_one(&self, renewable: &Renewable, ttl: Ttl, mut now: ReadHold) -> Result<Renewed> {
        let Renewable { keys, whose } = renewable;
        let wanted = i64::try_from(ttl.get().as_millis().div_ceil(1000)).unwrap_or(i64::MAX);
        loop {
            now = match now.next(whose, wanted) {
                Next::Lost => return Ok(Renewed::Lost),
                Next::Done(secs) => return Ok(extended(secs)),
                Next::Unclear => {
                    let text = "etcd did not find a lease that exists: its leader is changing";
                    return Err(Error::new(ErrorKind::Unavailable, text));
                }
                Next::KeepAlive(lease) => {
                    // In this order, as in `renew`: the read shows whether the lease was still the hold's after the
                    // keep-alive.
                    let kept = Some(self.keep(lease).await?);
                    let (term, mut holds) = self.holds(std::iter::once(keys)).await?;
                    ReadHold { hold: holds.pop().flatten(), term, kept }
                }
                Next::Move(seen, record) => {
                    match self.move_on(keys, seen, record, wanted.max(record.lease_secs)).await? {
                        Tried::Done(secs) => return Ok(extended(secs)),
                        Tried::Not(hold) => ReadHold { hold, ..now },
                    }
                }
            }
        }
    }

    /// Moves a hold to a new lease: neither the ttl of a lease changes nor the term that it belongs to. Three requests.
    async fn move_on(
        &self,
        keys: &NameKeys,
        seen: &HoldSeen,
        record: &Record,
        secs: i64,
    ) -> Result<Tried<Option<HoldSeen>>> {
        let Some(token) = record.entries.last() else { return Ok(Tried::Not(None)) };
        let id = new_id();
        // Noted before it is asked for, as every lease: a release or an abandonment from here on revokes it.
        self.tickets.begin(token, id, secs)?;
        let lease = self.grant(token, id, secs).await?;
        match self.change(txn::rewrite(keys, seen, &record.on(&lease), On::Lease(id))).await? {
            Tried::Done(_) => {
                self.tickets.set_hold(token, id, None);
                // It carries nothing any more; unrevoked it would end by itself.
                let _ = self.give_up(token, seen.lease).await;
                Ok(Tried::Done(lease.secs))
            }
            Tried::Not(now) => {
                self.give_up(token, id).await?;
                Ok(Tried::Not(now))
            }
        }
    }
}

fn extended(secs: i64) -> Renewed {
    Renewed::Extended { ttl: seconds(secs) }
}

#[cfg(test)]
mod tests {
    use tenure_core::LockName;
    use tenure_core::driver::{AcquireRequest, Acquisition};

    use super::*;
    use crate::test_support::served;

    const TERM: u64 = 4;

    fn hold(token: OwnerToken, lease: i64) -> HoldSeen {
        let record = Record {
            owner: None,
            entries: vec![token],
            lease_secs: 30,
            term: Some(TERM),
            base: 0,
            permit: None,
            label: None,
        };
        HoldSeen { record: Some(record), granted: 2, written: 3, lease }
    }

    #[test]
    fn a_hold_is_renewed_by_an_answer_that_its_lease_lives() {
        let token = OwnerToken::random();
        let next = |kept: Option<(i64, bool)>, term| {
            let kept = kept.map(|(lease, alive)| Kept { lease, alive });
            let read_hold = ReadHold { hold: Some(hold(token, 7)), term, kept };
            format!("{:?}", read_hold.next(&Whose::Token(token), 30)).chars().take(12).collect::<String>()
        };
        assert_eq!(next(Some((7, true)), TERM), "Done(30)");
        assert_eq!(next(Some((7, false)), TERM), "Unclear");
        assert_eq!(next(Some((8, true)), TERM), "KeepAlive(7)");
        assert_eq!(next(Some((8, false)), TERM), "KeepAlive(7)");
        assert_eq!(next(None, TERM), "KeepAlive(7)");
        assert_eq!(next(Some((7, true)), TERM + 1), "Move(HoldSee");
        assert_eq!(next(Some((7, false)), TERM + 1), "Unclear");
    }

    #[test]
    fn a_hold_moves_to_a_lease_that_is_long_enough() {
        let token = OwnerToken::random();
        let kept = Some(Kept { lease: 7, alive: true });
        let read_hold = ReadHold { hold: Some(hold(token, 7)), term: TERM, kept };
        let seen = read_hold.hold.as_ref().unwrap();
        let whose = Whose::Token(token);
        assert_eq!(read_hold.next(&whose, 29), Next::Done(30));
        assert_eq!(read_hold.next(&whose, 31), Next::Move(seen, seen.record.as_ref().unwrap()));
    }

    #[test]
    fn what_others_hold_is_lost_whatever_a_lease_does() {
        let (token, other) = (OwnerToken::random(), OwnerToken::random());
        let kept = Some(Kept { lease: 7, alive: true });
        let foreign = HoldSeen { record: None, ..hold(other, 7) };
        for hold in [None, Some(hold(other, 7)), Some(foreign)] {
            let read_hold = ReadHold { hold, term: TERM, kept };
            assert_eq!(read_hold.next(&Whose::Token(token), 30), Next::Lost);
        }
    }

    #[test]
    fn an_entry_renews_the_hold_that_it_was_granted_and_no_later_one_of_its_owner() {
        let (owner, token) = (OwnerId::new(), OwnerToken::random());
        let mut held = hold(token, 7);
        held.record.as_mut().unwrap().owner = Some(owner);
        let fence = held.fence().unwrap();
        let later = FencingToken::new(fence.get() + 1).unwrap();
        for (whose, own) in [
            (Whose::Owner(owner, fence), true),
            (Whose::Owner(owner, later), false),
            (Whose::Owner(OwnerId::new(), fence), false),
            (Whose::Token(token), false),
        ] {
            let read_hold = ReadHold { hold: Some(held.clone()), term: TERM, kept: None };
            let next = if own { Next::KeepAlive(7) } else { Next::Lost };
            assert_eq!(read_hold.next(&whose, 30), next);
        }
    }

    fn name() -> LockName {
        LockName::new("name").unwrap()
    }

    async fn held(inner: &Inner, owner: Option<OwnerId>) -> OwnerToken {
        let request = AcquireRequest::new(name(), OwnerToken::random(), Ttl::DEFAULT);
        let granted = inner.ask(owner, &request).await.unwrap();
        assert!(matches!(granted, Acquisition::Granted(_)), "{granted:?}");
        request.token
    }

    /// As where a new leader was elected since.
    #[tokio::test]
    async fn a_hold_of_an_earlier_term_moves_to_a_lease_that_is_no_shorter() {
        let (_cluster, driver) = served();
        let inner = &driver.inner;
        let (keys, owner) = (inner.keys(&name()), OwnerId::new());
        let [first, last] = [held(inner, Some(owner)).await, held(inner, Some(owner)).await];
        let seen = inner.hold(&keys).await.unwrap().unwrap();
        let earlier = Record { term: Some(0), ..seen.record.clone().unwrap() };
        inner.change(txn::rewrite(&keys, &seen, &earlier, On::SameLease)).await.unwrap();
        let renewable = Renewable { keys: keys.clone(), whose: Whose::Owner(owner, seen.fence().unwrap()) };
        let whole = Ttl::DEFAULT.get();
        let shorter = Ttl::new(whole - std::time::Duration::from_secs(1)).unwrap();
        let renewed = inner.renew(shorter, vec![renewable]).await.remove(0).unwrap();
        assert_eq!(renewed, Renewed::Extended { ttl: whole });
        let now = inner.hold(&keys).await.unwrap().unwrap();
        let record = now.record.clone().unwrap();
        assert!(now.lease != seen.lease && record.term == Some(inner.link.term()));
        assert_eq!(record.entries, [first, last]);
        assert_eq!(inner.tickets.hold(&last).map(|on| on.lease), Some(now.lease));
        assert_eq!(inner.tickets.leases(&last), [now.lease]);
        assert_ne!(inner.tickets.hold(&first).map(|on| on.lease), Some(now.lease));
        assert!(!inner.leases.keep_alive(seen.lease).await.unwrap(), "it carries nothing");
        let moved = inner.move_on(&keys, &seen, &record, 30).await.unwrap();
        assert!(matches!(moved, Tried::Not(Some(hold)) if hold == now), "it was written since");
        assert_eq!(inner.tickets.leases(&last), [now.lease], "that lease is given up");
    }

    #[tokio::test]
    async fn of_a_hold_that_was_lost_nothing_is_kept() {
        let (_cluster, driver) = served();
        let (inner, keys) = (&driver.inner, driver.inner.keys(&name()));
        let token = held(inner, None).await;
        let seen = inner.hold(&keys).await.unwrap().unwrap();
        inner.change(txn::delete(&keys, &seen)).await.unwrap();
        let renewable = Renewable { keys, whose: Whose::Token(token) };
        assert_eq!(inner.renew(Ttl::DEFAULT, vec![renewable]).await.remove(0).unwrap(), Renewed::Lost);
        assert!(!inner.tickets.know(&token) && !inner.leases.keep_alive(seen.lease).await.unwrap());
    }
}
