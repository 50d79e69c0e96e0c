//! The driver: every method is one transaction.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tenure_core::driver::{
    AcquireRequest, Acquisition, Backend, Begun, Busy, DistributedLock,
    Exclusion, Fencing, ForceReleased, Grant, Hold, Inspection, Introspection,
    LockCapabilities, Released, Renewed, Revocation, Ttl, TtlRange, Waiting,
    Watch,
};
use tenure_core::{
    Error, ErrorKind, FencingToken, LockName, OwnerToken, Result,
};

use crate::Table;

/// How long the table remembers that a token was abandoned: longer than any request may be on its way.
const GRAVES_LAST: Duration = Duration::from_secs(60);

/// Locks in a [`Table`].
#[derive(Debug)]
pub struct TableDriver {
    table: Table,
    closed: AtomicBool,
}

impl TableDriver {
    /// What the driver promises; a constant, so that a test harness can declare it without a driver.
    pub const CAPABILITIES: LockCapabilities = LockCapabilities::new(
        Exclusion::Process,
        Fencing::Strict,
        Waiting::Poll,
        TtlRange {
            min: Ttl::MIN,
            max: Duration::from_secs(3600),
            granularity: Duration::from_millis(1),
        },
    )
    .with_introspection(Introspection::None)
    .with_revocation(Revocation::None);

    /// A driver over this table. Several drivers over one table are several clients.
    #[must_use]
    pub fn new(table: Table) -> Self {
        Self { table, closed: AtomicBool::new(false) }
    }

    fn ensure_open(&self) -> Result<()> {
        match self.closed.load(Ordering::Acquire) {
            true => Err(Error::new(ErrorKind::Closed, "the driver was closed")),
            false => Ok(()),
        }
    }

    fn unsupported<T>(&self, why: &'static str) -> Result<T> {
        self.ensure_open()?;
        Err(Error::new(ErrorKind::Unsupported, why))
    }

    async fn renew_one(&self, ttl: Ttl, hold: &Hold) -> Result<Renewed> {
        self.ensure_open()?;
        // UPDATE locks SET expires = greatest(expires, now() + $ttl)
        //  WHERE name = $name AND token = $token AND expires > now() RETURNING expires - now()
        let answer =
            self.table.update(&hold.name, |row, now| match &mut row.lease {
                Some((token, expires)) if *token == hold.token => {
                    *expires = (*expires).max(now + ttl.get());
                    Renewed::Extended { ttl: *expires - now }
                }
                _ => Renewed::Lost,
            });
        Ok(answer.await)
    }
}

#[async_trait]
impl DistributedLock for TableDriver {
    fn driver(&self) -> &'static str {
        "table"
    }

    fn capabilities(&self) -> LockCapabilities {
        Self::CAPABILITIES
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Acquisition> {
        self.ensure_open()?;
        let (token, ttl) = (request.token, request.ttl.get());
        // UPDATE locks SET fence = fence + 1, token = $token, expires = now() + $ttl
        //  WHERE name = $name AND expires <= now() AND NOT $token = ANY(graves) RETURNING fence
        let grant = |fence, begun| {
            let fence = FencingToken::new(fence)
                .expect("a granted fence is at least 1");
            Acquisition::Granted(Grant::new(fence, ttl).with_begun(begun))
        };
        let answer = self.table.update(&request.name, |row, now| {
            if row.graves.iter().any(|(dead, _)| *dead == token) {
                return Err(Error::new(
                    ErrorKind::NotHeld,
                    "this attempt was abandoned before its request arrived",
                ));
            }
            match row.lease {
                Some((holder, _)) if holder == token => {
                    Ok(grant(row.fence, Begun::Earlier))
                }
                Some((_, expires)) => Ok(Acquisition::Busy(
                    Busy::default().with_recheck_after(Some(expires - now)),
                )),
                None => {
                    row.fence += 1;
                    row.lease = Some((token, now + ttl));
                    Ok(grant(row.fence, Begun::Now))
                }
            }
        });
        answer.await
    }

    async fn renew(&self, ttl: Ttl, holds: &[Hold]) -> Vec<Result<Renewed>> {
        let mut answers = Vec::with_capacity(holds.len());
        for hold in holds {
            answers.push(self.renew_one(ttl, hold).await); // the declared batch is 1: one transaction
        }
        answers
    }

    async fn release(&self, hold: &Hold) -> Result<Released> {
        self.ensure_open()?;
        // UPDATE locks SET token = NULL WHERE name = $name AND token = $token AND expires > now()
        let answer = self.table.update(&hold.name, |row, _| {
            match row.lease.take_if(|(token, _)| *token == hold.token) {
                Some(_) => Released::Released,
                None => Released::NotHeld,
            }
        });
        Ok(answer.await)
    }

    async fn abandon(&self, hold: &Hold) -> Result<()> {
        self.ensure_open()?;
        // The same, and UPDATE locks SET graves = graves || $token: both in one transaction.
        let answer = self.table.update(&hold.name, |row, now| {
            row.lease.take_if(|(token, _)| *token == hold.token);
            row.graves.retain(|(token, _)| *token != hold.token);
            row.graves.push((hold.token, now + GRAVES_LAST));
        });
        answer.await;
        Ok(())
    }

    async fn watch(&self, _: &LockName, _: &OwnerToken) -> Result<Watch> {
        self.unsupported("this backend has no notifications; waiters poll")
    }

    async fn inspect(&self, _: &LockName) -> Result<Inspection> {
        self.unsupported("the table shows nothing")
    }

    async fn force_release(
        &self,
        _: &LockName,
        _: Option<FencingToken>,
    ) -> Result<ForceReleased> {
        self.unsupported("the table takes nothing away")
    }

    async fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }
}

impl From<TableDriver> for Backend {
    fn from(driver: TableDriver) -> Self {
        Self::new(std::sync::Arc::new(driver))
    }
}
