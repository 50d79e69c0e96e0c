//! Plain locks over any executor.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tenure_core::driver::{
    AcquireRequest, Acquisition, DistributedLock, Exclusion, Fencing, ForceReleased, Hold, Inspection, Introspection,
    LockCapabilities, Released, Renewal, Renewed, Revocation, TtlRange, Waiting, Watch,
};
use tenure_core::{Error, ErrorKind, LockName, OwnerToken, Result, Ttl};

use crate::call::Calls;
use crate::check::{self, Notes};
use crate::executor::{RedisExecutor, Reply, ScriptCall, run};
use crate::keyspace::Keyspace;
use crate::reply;
use crate::settings::{Fences, RedisSettings};
use crate::wake::WakeLink;

/// How many leases one renewal script carries.
const RENEW_BATCH: usize = 100;

/// The driver traits over an executor. Clones share it.
///
/// Every method but `close` is one round trip, and one more when the server has forgotten its scripts (a restart, a
/// failover, `SCRIPT FLUSH`): the script is then sent whole, once. `watch` needs none.
#[derive(Debug)]
pub struct RedisLocks<E>(Arc<Inner<E>>);

#[derive(Debug)]
struct Inner<E> {
    executor: E,
    calls: Calls,
    wake: WakeLink,
    notes: Notes,
}

impl<E> Clone for RedisLocks<E> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<E: RedisExecutor> RedisLocks<E> {
    /// Checks the server behind `executor`, and makes the driver.
    ///
    /// `keys` and `wake` are those that the executor subscribed with; `keys` must agree with `settings`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Misconfigured`] for a replica, a node of a cluster, a server older than 6.2, or one that may evict
    /// locks; [`ErrorKind::Denied`] naming the missing right; otherwise why the server did not answer.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves nothing behind at the server.
    pub async fn checked(executor: E, keys: Keyspace, settings: RedisSettings, wake: WakeLink) -> Result<Self> {
        let calls = Calls::new(keys, settings);
        let notes = check::server(&executor, &calls).await?;
        Ok(Self(Arc::new(Inner { executor, calls, wake, notes })))
    }

    /// What the check at the start could not look at, or was told to overlook.
    #[must_use]
    pub fn notes(&self) -> &Notes {
        &self.0.notes
    }

    /// The executor, for what is particular to its client library.
    #[must_use]
    pub fn executor(&self) -> &E {
        &self.0.executor
    }

    pub(crate) fn calls(&self) -> &Calls {
        &self.0.calls
    }

    pub(crate) fn wake(&self) -> &WakeLink {
        &self.0.wake
    }

    /// Runs a script for `operation` on `name`.
    pub(crate) async fn run(&self, operation: &'static str, name: &LockName, call: ScriptCall) -> Result<Reply> {
        let inner = &*self.0;
        let result = run(&inner.executor, &call).await;
        result.map_err(|error| {
            let error = error.into_error(&inner.calls.keys, Some(call.script));
            error.during(inner.executor.driver(), operation, name)
        })
    }

    /// Runs a script for a batch: its one failure is everybody's.
    pub(crate) async fn run_batch<'a>(
        &self,
        call: ScriptCall,
        names: impl ExactSizeIterator<Item = &'a LockName>,
    ) -> Vec<Result<Renewed>> {
        let inner = &*self.0;
        if names.len() == 0 {
            return Vec::new();
        }
        let answer = match run(&inner.executor, &call).await {
            Ok(reply) => reply::renewals(&reply, names.len()).map_err(|error| error.message().to_owned()).map_err(Err),
            Err(error) => Err(Ok(error)),
        };
        let failure = match answer {
            Ok(all) => return all.into_iter().map(Ok).collect(),
            Err(failure) => failure,
        };
        let one = |name| {
            let error = match &failure {
                Ok(error) => error.clone().into_error(&inner.calls.keys, Some(call.script)),
                Err(text) => Error::new(ErrorKind::Protocol, text.clone()),
            };
            Err(error.during(inner.executor.driver(), "renew", name))
        };
        names.map(one).collect()
    }
}

#[async_trait]
impl<E: RedisExecutor> DistributedLock for RedisLocks<E> {
    fn driver(&self) -> &'static str {
        self.0.executor.driver()
    }

    fn capabilities(&self) -> LockCapabilities {
        let settings = &self.0.calls.settings;
        LockCapabilities {
            exclusion: Exclusion::SingleNode,
            fencing: match settings.fences {
                Fences::ClockSeeded => Fencing::ClockSeeded,
                Fences::Counter => Fencing::StrictUnlessDataLoss,
            },
            waiting: Waiting::Fifo,
            ttl: TtlRange { min: Ttl::MIN, max: Ttl::MAX, granularity: Duration::from_millis(1) },
            introspection: Introspection::Full,
            revocation: Revocation::Forced,
            max_waiters: Some(settings.max_waiters),
            renew_batch: RENEW_BATCH,
        }
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Acquisition> {
        let reply = self.run("acquire", &request.name, self.calls().acquire(request)).await?;
        reply::acquisition(&reply, request.ttl.get(), &self.calls().settings)
            .map_err(|error| error.during(self.driver(), "acquire", &request.name))
    }

    async fn renew(&self, renewals: &[Renewal]) -> Vec<Result<Renewed>> {
        let names = renewals.iter().map(|renewal| &renewal.hold.name);
        self.run_batch(self.calls().renew(renewals), names).await
    }

    async fn release(&self, hold: &Hold) -> Result<Released> {
        let reply = self.run("release", &hold.name, self.calls().release(hold)).await?;
        Ok(if reply.int()? == 0 { Released::NotHeld } else { Released::Released })
    }

    async fn abandon(&self, hold: &Hold) -> Result<()> {
        self.run("abandon", &hold.name, self.calls().abandon(hold)).await.map(drop)
    }

    async fn watch(&self, _name: &LockName, token: &OwnerToken) -> Result<Watch> {
        Ok(self.0.wake.router().register(*token))
    }

    async fn inspect(&self, name: &LockName) -> Result<Inspection> {
        let reply = self.run("inspect", name, self.calls().inspect(name)).await?;
        reply::inspection(&reply).map_err(|error| error.during(self.driver(), "inspect", name))
    }

    async fn force_release(&self, name: &LockName) -> Result<ForceReleased> {
        let reply = self.run("force_release", name, self.calls().force_release(name)).await?;
        Ok(if reply.int()? == 0 { ForceReleased::NotHeld } else { ForceReleased::Released })
    }

    async fn close(&self) {
        self.0.executor.close().await;
        self.0.wake.link_up(); // waiters ask once more, and learn that the driver is closed
    }
}
