//! Permits: semaphores and read-write locks.

mod rw_lock;
mod semaphore;

use std::sync::Arc;

use crate::driver::{
    ErrorExt as _, Families, Family, ForceReleased, Introspection, PermitHold, PermitInspection, Permits, Released,
    Revocation, Share,
};
use crate::engine::ask::{Options, Wanted};
use crate::engine::hold::HeldEntry;
use crate::engine::lease::LeaseKey;
use crate::engine::local_handover::LocalQueues;
use crate::engine::shared::Shared;
use crate::engine::wait::{Patience, acquire};
use crate::runtime::bounded;
use crate::value::error::{Error, ErrorKind, LockName, Result};
use crate::value::token::FencingToken;

pub use rw_lock::{NotUpgraded, ReadGuard, RwLock, UpgradableGuard, WriteGuard};
pub use semaphore::{Permit, Semaphore};

/// The number of holders that an inspection returns.
const INSPECTED: usize = 100;

/// What handles request permits of.
#[derive(Clone, Debug)]
struct Target {
    local_queues: Arc<LocalQueues>,
    family: Family,
    /// The name, or the error of every call if the name is invalid.
    name: Result<LockName>,
}

impl Target {
    fn name(&self) -> Result<&LockName> {
        self.name.as_ref().map_err(Error::clone)
    }

    fn shared(&self) -> &Shared {
        self.local_queues.shared()
    }

    fn during(&self, error: Error, operation: &'static str) -> Error {
        match &self.name {
            Ok(name) => error.during(self.shared().driver(), operation, name),
            Err(_) => error,
        }
    }

    /// Returns the driver, if it has permits of this kind.
    fn permits(&self) -> Result<&dyn Permits> {
        let permits = self.shared().backend.required_permits()?;
        match (self.family, permits.capabilities().families) {
            (Family::Semaphore, _) | (_, Families::Both) => Ok(&**permits),
            (Family::RwLock, Families::Semaphores) => {
                let text = format!("the driver \"{}\" has no read-write locks", self.shared().driver());
                Err(Error::new(ErrorKind::Unsupported, text))
            }
        }
    }

    /// Refuses a share that cannot be granted, before anything is sent.
    fn check(&self, share: Share) -> Result<()> {
        let capabilities = self.permits()?.capabilities();
        let Share { weight, capacity } = share;
        let refused = |text| Err(Error::new(ErrorKind::InvalidArgument, text));
        if !share.is_possible() {
            return refused(format!("a weight of {weight} is outside 1 to {capacity}, the capacity"));
        }
        if self.family == Family::Semaphore && capacity > capabilities.max_capacity {
            let most = capabilities.max_capacity;
            return refused(format!("a capacity of {capacity} is above {most}, the most that this backend supports"));
        }
        if self.family == Family::Semaphore && weight > capabilities.max_weight {
            let most = capabilities.max_weight;
            return refused(format!("a weight of {weight} is above {most}, the most that this backend supports"));
        }
        Ok(())
    }

    async fn take(&self, options: &Options, share: Share, patience: Patience) -> Result<Option<HeldEntry>> {
        let name = self.name()?;
        let ask = self.check(share).and_then(|()| {
            let wanted = Wanted::Permits(self.family, share);
            options.ask(name, wanted, self.shared().config.ttl)
        });
        acquire(&self.local_queues, &ask.map_err(|error| self.during(error, "acquire"))?, patience).await
    }

    async fn inspect(&self) -> Result<PermitInspection> {
        let name = self.name()?;
        let call = async {
            let permits = self.permits()?;
            if permits.capabilities().introspection == Introspection::None {
                return Err(Error::new(ErrorKind::Unsupported, "this driver does not support `inspect`"));
            }
            permits.inspect(self.family, name, INSPECTED).await
        };
        self.bounded("inspect", call).await
    }

    async fn evict(&self, fence: FencingToken) -> Result<ForceReleased> {
        let name = self.name()?;
        let call = async {
            let permits = self.permits()?;
            if permits.capabilities().revocation == Revocation::None {
                return Err(Error::new(ErrorKind::Unsupported, "this driver does not support `evict`"));
            }
            permits.evict(self.family, name, fence).await
        };
        self.bounded("evict", call).await
    }

    async fn bounded<T>(&self, operation: &'static str, call: impl Future<Output = Result<T>>) -> Result<T> {
        let answered = async {
            self.shared().ensure_open()?;
            bounded(self.shared().config.op_timeout, call).await
        };
        answered.await.map_err(|error| self.during(error, operation))
    }
}

/// Waiting that always ends in a hold or an error.
fn certain(held: Option<HeldEntry>) -> HeldEntry {
    held.expect("waiting ends with a hold or an error")
}

/// Releases a hold and waits for the acknowledgement.
async fn release(held: HeldEntry) -> Result<()> {
    let LeaseKey::Permits(hold) = held.lease().key.clone() else {
        return Err(Error::new(ErrorKind::Protocol, "not a hold of permits"));
    };
    let call = |shared: Arc<Shared>, token, _| async move {
        let hold = PermitHold { token, ..*hold };
        let released = shared.backend.required_permits()?.release(&hold).await?;
        Ok((released == Released::Released).then_some(()))
    };
    held.give_back(call).await
}
