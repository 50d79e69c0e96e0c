//! Keeping leases alive.

use futures_util::future::join_all;
use tenure_core::driver::Renewed;
use tenure_core::{Error, ErrorKind, FencingToken, OwnerId, OwnerToken, Result, Ttl};

use crate::driver::Inner;
use crate::grants::{new_id, seconds};
use crate::keys::NameKeys;
use crate::record::Record;
use crate::txn::{self, HoldSeen, On, Tried};

/// A lease to keep.
pub(crate) struct Renewable {
    pub(crate) keys: NameKeys,
    pub(crate) whose: Whose,
    /// How long it should last.
    pub(crate) ttl: Ttl,
}

pub(crate) enum Whose {
    Token(OwnerToken),
    Owner(OwnerId, FencingToken),
}

/// A hold as it was read.
struct Standing {
    hold: Option<HoldSeen>,
    /// The raft term that it was read in.
    term: u64,
    /// The lease that was kept alive before it was read.
    kept: Option<i64>,
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

impl Inner {
    /// One request for each lease, at once; then one for all holds, to see that they still stand, on these leases.
    ///
    /// The read comes last because a keep-alive does not tell whose answer it is: a leader that was deposed, and does not
    /// know it yet, still revokes the leases that ended by its own count. It knows those that were granted in its term
    /// or before. So a hold belongs to the term of its lease, and one that is read in a later term moves to a fresh lease.
    pub(crate) async fn renew(&self, all: Vec<Renewable>) -> Vec<Result<Renewed>> {
        let kept = join_all(all.iter().map(|renewable| self.keep_known(&renewable.whose))).await;
        let (term, holds) = match self.holds(all.iter().map(|renewable| &renewable.keys)).await {
            Ok(read) => read,
            Err(error) => return all.iter().map(|_| Err(error.again())).collect(),
        };
        join_all(all.iter().zip(kept).zip(holds).map(async |((renewable, kept), hold)| {
            let renewed = match kept {
                Ok(kept) => self.renew_one(renewable, Standing { hold, term, kept }).await,
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

    /// Keeps the lease alive that this client believes the hold to be on; tells which, if there is one.
    async fn keep_known(&self, whose: &Whose) -> Result<Option<i64>> {
        let Whose::Token(token) = whose else { return Ok(None) };
        let Some(on) = self.tickets.hold(token) else { return Ok(None) };
        self.link.ensure_open()?;
        Ok(self.leases.keep_alive(on.lease).await?.then_some(on.lease))
    }

    /// The term, and these holds.
    async fn holds<'a>(&self, names: impl Iterator<Item = &'a NameKeys>) -> Result<(u64, Vec<Option<HoldSeen>>)> {
        self.link.ensure_open()?;
        let names: Vec<_> = names.collect();
        let answer = self.txn(txn::holds(names.iter().copied())).await?;
        let holds: Vec<_> = txn::reads(&answer).iter().map(txn::hold_in).collect();
        if holds.len() == names.len() {
            Ok((txn::term(&answer)?, holds))
        } else {
            Err(txn::odd("an answer of another shape"))
        }
    }

    async fn standing(&self, keys: &NameKeys, kept: Option<i64>) -> Result<Standing> {
        let (term, mut holds) = self.holds(std::iter::once(keys)).await?;
        Ok(Standing { hold: holds.pop().flatten(), term, kept })
    }

    async fn renew_one(&self, renewable: &Renewable, mut now: Standing) -> Result<Renewed> {
        let Renewable { keys, whose, ttl } = renewable;
        let wanted = i64::try_from(ttl.get().as_millis().div_ceil(1000)).unwrap_or(i64::MAX);
        loop {
            let Some(seen) = now.hold.filter(|hold| whose.is(hold)) else { return Ok(Renewed::Lost) };
            let Some(record) = &seen.record else { return Ok(Renewed::Lost) };
            if now.kept != Some(seen.lease) {
                // This is also the proof that the lease has not run out: one that has may not be revoked yet.
                let alive = self.leases.keep_alive(seen.lease).await?;
                now = self.standing(keys, alive.then_some(seen.lease)).await?;
                if !alive && now.hold.as_ref().is_some_and(|hold| hold.lease == seen.lease) {
                    // With a lease that is gone the hold would be gone.
                    return Err(Error::new(
                        ErrorKind::Unavailable,
                        "etcd did not know a lease that stands: its leader changes",
                    ));
                }
            } else if record.lease_secs >= wanted && record.term == Some(now.term) {
                return Ok(extended(record.lease_secs));
            } else {
                match self.move_on(keys, &seen, record, wanted.max(record.lease_secs)).await? {
                    Tried::Done(secs) => return Ok(extended(secs)),
                    Tried::Not(hold) => now = Standing { hold, ..now },
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
