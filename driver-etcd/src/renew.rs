//! Keeping leases alive.

use std::time::Duration;

use futures_util::future::join_all;
use tenure_core::driver::Renewed;
use tenure_core::{Error, FencingToken, OwnerId, OwnerToken, Result, Ttl};

use crate::driver::Inner;
use crate::grants::new_id;
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

impl Whose {
    fn is(&self, hold: &HoldSeen) -> bool {
        let Some(record) = &hold.record else { return false };
        match self {
            Self::Token(token) => record.has(None, token),
            Self::Owner(owner, fence) => {
                record.owner == Some(*owner) && u64::try_from(hold.fence).is_ok_and(|number| number == fence.get())
            }
        }
    }
}

impl Inner {
    /// One request for all holds, to see that they still stand and on which leases; then one for each lease, at once.
    pub(crate) async fn renew(&self, all: Vec<Renewable>) -> Vec<Result<Renewed>> {
        let holds = match self.holds(&all).await {
            Ok(holds) => holds,
            Err(error) => return all.iter().map(|_| Err(again(&error))).collect(),
        };
        join_all(all.iter().zip(holds).map(async |(renewable, hold)| {
            let renewed = self.renew_one(renewable, hold).await;
            if let (Whose::Token(token), Ok(Renewed::Lost)) = (&renewable.whose, &renewed) {
                // Its hold was deleted, and its lease may stand.
                let _ = self.revoke_all(self.tickets.leases(token)).await;
                self.tickets.forget(token);
            }
            renewed
        }))
        .await
    }

    async fn holds(&self, all: &[Renewable]) -> Result<Vec<Option<HoldSeen>>> {
        self.link.ensure_open()?;
        let answer = self.txn(txn::holds(all.iter().map(|renewable| &renewable.keys))).await?;
        let holds: Vec<_> = txn::reads(&answer).iter().map(txn::hold_in).collect();
        if holds.len() == all.len() { Ok(holds) } else { Err(txn::odd("an answer of another shape")) }
    }

    async fn renew_one(&self, renewable: &Renewable, mut hold: Option<HoldSeen>) -> Result<Renewed> {
        loop {
            let Some(seen) = hold.filter(|hold| renewable.whose.is(hold)) else { return Ok(Renewed::Lost) };
            let Some(record) = &seen.record else { return Ok(Renewed::Lost) };
            let wanted = i64::try_from(renewable.ttl.get().as_millis().div_ceil(1000)).unwrap_or(i64::MAX);
            // This is also the proof that the lease has not run out: one that has may not be revoked yet.
            if self.leases.keep_alive(seen.lease).await? {
                if record.lease_secs >= wanted {
                    return Ok(extended(record.lease_secs));
                }
                match self.lengthen(&renewable.keys, &seen, record, wanted).await? {
                    Tried::Done(secs) => return Ok(extended(secs)),
                    Tried::Not(now) => hold = now,
                }
                continue;
            }
            // Gone with its lease; or another entry of the owner has moved it to a new one.
            hold = self.hold(&renewable.keys).await?.filter(|now| now.lease != seen.lease);
        }
    }

    /// Moves a hold to a longer lease: the ttl of a lease does not change. Three requests.
    async fn lengthen(
        &self,
        keys: &NameKeys,
        seen: &HoldSeen,
        record: &Record,
        secs: i64,
    ) -> Result<Tried<Option<HoldSeen>>> {
        let Some(token) = record.entries.last() else { return Ok(Tried::Not(None)) };
        let id = new_id();
        self.tickets.begin(token, id)?;
        let lease = self.leases.grant(id, secs).await?;
        let longer = Record { lease_secs: lease.secs, ..record.clone() };
        match self.change(txn::rewrite(keys, seen, &longer, On::Lease(id))).await? {
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
    Renewed::Extended { ttl: Duration::from_secs(u64::try_from(secs).unwrap_or_default()) }
}

/// The same error once more.
fn again(error: &Error) -> Error {
    Error::new(error.kind(), error.message().to_owned())
}
