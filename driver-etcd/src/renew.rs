//! Keeping leases alive.

use std::time::Duration;

use futures_util::future::join_all;
use tenure_core::driver::Renewed;
use tenure_core::{Error, FencingToken, OwnerId, OwnerToken, Result};

use crate::driver::Inner;
use crate::keys::NameKeys;
use crate::txn::{self, HoldSeen};

/// A lease to keep.
pub(crate) struct Renewable {
    pub(crate) keys: NameKeys,
    pub(crate) whose: Whose,
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
        join_all(all.iter().zip(holds).map(|(renewable, hold)| self.renew_one(renewable, hold))).await
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
            if self.leases.keep_alive(seen.lease).await? {
                let secs = seen.record.map_or(0, |record| record.lease_secs);
                let ttl = Duration::from_secs(u64::try_from(secs).unwrap_or_default());
                return Ok(Renewed::Extended { ttl });
            }
            // Gone with its lease; or another entry of the owner has moved it to a new one.
            hold = self.hold(&renewable.keys).await?.filter(|now| now.lease != seen.lease);
        }
    }
}

/// The same error once more.
fn again(error: &Error) -> Error {
    Error::new(error.kind(), error.message().to_owned())
}
