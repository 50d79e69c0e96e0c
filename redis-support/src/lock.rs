//! Plain locks over any executor, and the values of theirs that a client knows, so that a release may be one command.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt as _;
use futures_util::future::join_all;
use tenure_core::driver::{
    AcquireRequest, Acquisition, Backend, DistributedLock, Exclusion, Fencing, ForceReleased, Hold, Inspection,
    LockCapabilities, ReentrantHold, Released, Renewed, Ttl, TtlRange, Waiting, Watch,
};
use tenure_core::{Error, ErrorKind, FencingToken, Label, LockName, OwnerToken, Result};
use tokio::sync::{Mutex, OnceCell};

use crate::call::{self, Calls, FENCES, GO_ON};
use crate::check::{self, Notes, Replicas};
use crate::config::{RedisConfig, Topology};
use crate::damage::{self, Met};
use crate::error::ExecError;
use crate::keyspace::{ClientId, Keyspace};
use crate::link::Dialer;
use crate::link::WakeLink;
use crate::remote::{self, Placement, RedisExecutor, Remote};
use crate::script::Reply;
use crate::script::{ArgList, ScriptCall};
use crate::seats::Seat;
use crate::settings::{FenceScope, Fences, RedisSettings};
use crate::{script, slot};

/// How many leases one renewal script carries.
const RENEW_BATCH: usize = 100;

/// The driver traits over an executor. Clones share it.
///
/// Every method but `close` is one round trip; one more when a cluster redirects the request; one more for every 256 waiters
/// that died in front of the others when a lock is freed; one more when somebody began to wait for a lock that was thought to be
/// released by one command ([`DELIFEQ`](https://valkey.io/commands/delifeq/), Valkey 9); and one more when the server
/// does not know the script (a restart, a failover, `SCRIPT FLUSH`), which is then sent whole, once. One more names a key of
/// another type. `watch` needs none. After a new connection the next
/// request to grant, push or receive is one more, which looks whether the server is still fit for it. A node of a quorum that was down at the start is checked before its first vote, in three more.
#[derive(Debug)]
pub struct RedisLocks<E>(Arc<Inner<E>>);

#[derive(Debug)]
struct Inner<E> {
    executor: E,
    calls: Calls,
    wake: WakeLink,
    /// What is known of the servers.
    checks: Checks,
    /// Which releases may be one command, and of which value.
    values: KnownValues,
    /// The seat that the server takes as a node of a quorum, if it was connected to as one.
    seat: Option<Seat>,
}

/// Everything there is: in a cluster and behind sentinels, a failover may lose messages whose push was acknowledged, as
/// it may lose locks.
impl<E: RedisExecutor> From<RedisLocks<E>> for Backend {
    fn from(locks: RedisLocks<E>) -> Self {
        let locks = Arc::new(locks);
        let backend = Self::new(Arc::clone(&locks) as _).with_reentrant(Arc::clone(&locks) as _);
        let backend = backend.with_doctor(Arc::clone(&locks) as _).with_census(Arc::clone(&locks) as _);
        backend.with_queue(locks)
    }
}

impl<E> Clone for RedisLocks<E> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<D: Dialer> RedisLocks<Remote<D>> {
    /// Connects through a client library, and checks the servers. Needs a tokio runtime, which the connections and the
    /// tasks that keep them alive stay on.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`] when a server cannot be reached or does not answer in time; otherwise those of
    /// [`RedisLocks::checked`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes what was opened.
    pub async fn connect(dialer: D, config: &RedisConfig) -> Result<Self> {
        let mut settings = config.settings.clone();
        let in_cluster = matches!(config.topology, Topology::Cluster(_));
        if in_cluster {
            settings = settings.fence_scope(FenceScope::Name);
        }
        let keys = Keyspace::of(&settings, ClientId::random());
        let keys = if in_cluster { keys.over_slots() } else { keys };
        let wake = WakeLink::default();
        // Boxed: what connecting consists of is deep, and would count against the limits of whoever awaits it.
        match Remote::connect(dialer, config, keys.wake_channel(), wake.clone()).boxed().await {
            Ok(remote) => Self::checked(remote, keys, settings, wake).boxed().await,
            Err(error) => Err(keys.explain(error)),
        }
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
        let locks = Self::unchecked(executor, keys, settings, wake, None);
        locks.check().await?;
        Ok(locks)
    }

    /// The driver over servers that are looked at when they are first asked to grant something.
    pub(crate) fn unchecked(
        executor: E,
        keys: Keyspace,
        settings: RedisSettings,
        wake: WakeLink,
        seat: Option<Seat>,
    ) -> Self {
        let values = KnownValues::new(settings.fences);
        let calls = Calls::new(keys, settings);
        Self(Arc::new(Inner { executor, calls, wake, checks: Checks::default(), values, seat }))
    }

    /// Looks whether the servers are fit to keep locks, unless that is known already: anew after each new connection.
    pub(crate) async fn check(&self) -> Result<&Notes> {
        let inner = &*self.0;
        let fits = |notes: &Notes| {
            inner.values.allow(notes.deletes_equal());
            match (&inner.seat, notes.run_id()) {
                (Some(seat), Some(run)) => seat.take(run),
                _ => Ok(()),
            }
        };
        inner.checks.ensure(&inner.executor, &inner.calls, || inner.wake.renewed(), fits).await
    }

    /// What the check at the start could not look at, or was told to overlook.
    #[must_use]
    pub fn notes(&self) -> &Notes {
        static NONE: Notes = Notes::none();
        self.0.checks.first().unwrap_or(&NONE)
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
        match remote::run(&inner.executor, &call).await {
            Ok(reply) => Ok(reply),
            Err(error) => {
                let error = match Met::by(&error) {
                    None => error.into_error(&inner.calls.keys, Some(call.script)),
                    Some(met) => self.damage(met, call).boxed().await,
                };
                Err(error.during(inner.executor.driver(), operation, name))
            }
        }
    }

    /// The error about what a script met: one request more where the server does not tell the key.
    async fn damage(&self, met: Met, call: ScriptCall) -> Error {
        let inner = &*self.0;
        match met {
            Met::Unreadable { key, found } => {
                let what = "which are not the counters of a queue, or the second of them, a fence, is more than a day ahead of the \
                            server's clock; put them back, or delete the key and set limits and pause anew";
                damage::unreadable(key.as_bytes(), found.as_bytes(), what)
            }
            Met::AnotherType => {
                let asked = ScriptCall { script: &script::TYPES, args: ArgList::default(), ..call };
                let types = remote::run(&inner.executor, &asked).await;
                damage::another_type(asked.keys.iter(), types.as_ref().ok())
            }
        }
    }

    /// Runs a script that may free the lock, and returns its answer. Where more dead waiters stood in front than one script
    /// removes, further ones give the turn. If one of them fails, nobody has to hear of it: the lock is free, and those who
    /// wait ask by themselves after a while.
    pub(crate) async fn free(&self, operation: &'static str, name: &LockName, call: ScriptCall) -> Result<i64> {
        let answer = self.run(operation, name, call).await?.int()?;
        let mut last = answer;
        while last == GO_ON {
            let passed = self.run(operation, name, self.calls().pass(name)).await;
            last = passed.and_then(|reply| reply.int()).unwrap_or_default();
        }
        Ok(answer)
    }

    /// Deletes the lock if it has this value; tells whether it had. A refusal proves that nothing was done, and the script of the
    /// release says what is to be said of it.
    async fn delete_equal(&self, name: &LockName, value: &str) -> Result<bool> {
        let inner = &*self.0;
        let Ok(key) = String::from_utf8(inner.calls.keys.lock_key(name)) else { return Ok(false) };
        let slot = match inner.executor.placement() {
            Placement::OneServer | Placement::OnePrimary => 0,
            Placement::Slots => slot::of(key.as_bytes()),
        };
        match inner.executor.command_at(slot, &["DELIFEQ", &key, value]).await {
            Ok(Reply::Int(1)) => return Ok(true),
            Ok(_) => inner.values.awaited(name),
            Err(error @ ExecError::Server { .. }) => {
                if error.is_withheld() {
                    inner.values.allow(false);
                }
            }
            Err(error) => {
                let error = error.into_error(&inner.calls.keys, None);
                return Err(error.during(inner.executor.driver(), "release", name));
            }
        }
        Ok(false)
    }

    /// Runs the script of a batch; in a cluster one for each slot that it touches, all at once.
    pub(crate) async fn run_batch<T: Named>(
        &self,
        batch: &[T],
        call: impl Fn(&[&T]) -> ScriptCall,
    ) -> Vec<Result<Renewed>> {
        let mut parts: Vec<(u16, Vec<usize>)> = Vec::new();
        for (at, one) in batch.iter().enumerate() {
            let slot = match self.0.executor.placement() {
                Placement::OneServer | Placement::OnePrimary => 0,
                Placement::Slots => slot::of(&self.0.calls.keys.lock_key(one.name())),
            };
            match parts.iter_mut().find(|(known, _)| *known == slot) {
                Some((_, part)) => part.push(at),
                None => parts.push((slot, vec![at])),
            }
        }
        let runs = parts.iter().map(|(_, part)| {
            let members: Vec<&T> = part.iter().map(|&at| &batch[at]).collect();
            let names: Vec<&LockName> = members.iter().map(|one| one.name()).collect();
            self.run_part(call(&members), names)
        });
        let answers = join_all(runs).await.into_iter().flatten();
        let mut all: Vec<(usize, _)> = parts.into_iter().flat_map(|(_, part)| part).zip(answers).collect();
        all.sort_by_key(|(at, _)| *at);
        all.into_iter().map(|(_, answer)| answer).collect()
    }

    /// Runs a script for several: its one failure is everybody's.
    async fn run_part(&self, call: ScriptCall, names: Vec<&LockName>) -> Vec<Result<Renewed>> {
        let inner = &*self.0;
        let answer = match remote::run(&inner.executor, &call).await {
            Ok(reply) => call::renewals(&reply, names.len()).map_err(|error| error.message().to_owned()).map_err(Err),
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
        names.into_iter().map(one).collect()
    }
}

// When the servers are looked at.

/// What is known of the servers.
#[derive(Debug, Default)]
struct Checks {
    /// What the first check found; none before it.
    first: OnceCell<Notes>,
    /// How often the link had come up when the servers were looked at last.
    seen: AtomicU64,
    /// Held by whoever looks again: how often that was done, and how it failed the last time.
    again: Mutex<Option<Error>>,
    looks: AtomicU64,
}

impl Checks {
    fn first(&self) -> Option<&Notes> {
        self.first.get()
    }

    /// Looks whether the servers are fit to keep locks, unless that is known already: at everything at first, and at what
    /// `INFO` tells after each new connection. `renewed` tells how often there was one. What was found unfit is looked at
    /// again by the next request.
    async fn ensure<E: RedisExecutor + ?Sized>(
        &self,
        executor: &E,
        calls: &Calls,
        renewed: impl Fn() -> u64 + Send,
        fits: impl Fn(&Notes) -> Result<()> + Send,
    ) -> Result<&Notes> {
        let look = async || {
            let before = renewed();
            let notes = check::server(executor, calls, check::infos(executor).await).await?;
            fits(&notes)?;
            self.seen.store(before, Ordering::Release);
            Ok::<_, Error>(notes)
        };
        let notes = self.first.get_or_try_init(look).await?;
        if self.seen.load(Ordering::Acquire) != renewed() {
            self.look_again(executor, calls, renewed, fits).boxed().await?;
        }
        Ok(notes)
    }

    async fn look_again<E: RedisExecutor + ?Sized>(
        &self,
        executor: &E,
        calls: &Calls,
        renewed: impl Fn() -> u64 + Send,
        fits: impl Fn(&Notes) -> Result<()> + Send,
    ) -> Result<()> {
        let asked = self.looks.load(Ordering::Acquire);
        let mut last = self.again.lock().await; // one at a time
        if let (true, Some(error)) = (self.looks.load(Ordering::Acquire) != asked, &*last) {
            return Err(error.again()); // somebody looked in the meantime; each in turn would wait as long as all before it
        }
        let before = renewed();
        if self.seen.load(Ordering::Acquire) == before {
            return Ok(()); // by somebody else, in the meantime
        }
        let mut notes = Notes::default();
        let told = check::told(
            check::infos(executor).await,
            executor.placement(),
            calls,
            Replicas::TellThemselves,
            &mut notes,
        );
        let looked = told.and_then(|()| fits(&notes));
        let looked = match looked {
            // One server of many that is away says nothing of the others, and is looked at when it is back.
            Err(error) if !(error.is_transient() && executor.placement() == Placement::Slots) => Err(error),
            _ => {
                self.seen.store(before, Ordering::Release);
                Ok(())
            }
        };
        *last = looked.as_ref().err().map(Error::again);
        self.looks.fetch_add(1, Ordering::Release);
        looked
    }
}

/// A lease to be renewed, plain or re-entrant.
pub(crate) trait Named: Sync {
    fn name(&self) -> &LockName;
}

impl Named for Hold {
    fn name(&self) -> &LockName {
        &self.name
    }
}

impl Named for ReentrantHold {
    fn name(&self) -> &LockName {
        &self.name
    }
}

#[async_trait]
impl<E: RedisExecutor> DistributedLock for RedisLocks<E> {
    fn driver(&self) -> &'static str {
        self.0.executor.driver()
    }

    fn capabilities(&self) -> LockCapabilities {
        let settings = &self.0.calls.settings;
        LockCapabilities::new(
            match self.0.executor.placement() {
                Placement::OneServer => Exclusion::SingleNode,
                Placement::OnePrimary | Placement::Slots => Exclusion::LossyFailover,
            },
            match settings.fences {
                Fences::ClockSeeded => Fencing::ClockSeeded,
                Fences::Counter => Fencing::StrictUnlessDataLoss,
            },
            Waiting::Fifo,
            TtlRange { min: Ttl::MIN, max: Ttl::MAX, granularity: Duration::from_millis(1) },
        )
        .with_max_waiters(Some(settings.max_waiters))
        .with_renew_batch(RENEW_BATCH)
        .with_max_fences(FENCES)
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Acquisition> {
        self.check().await?;
        let reply = self.run("acquire", &request.name, self.calls().acquire(request)).await?;
        if let Some((fence, ahead)) = call::free_grant(&reply) {
            self.0.values.granted(request, fence, ahead);
        }
        let answer = call::acquisition(&reply, request.ttl.get(), &self.calls().settings);
        if let Ok(Acquisition::Busy(_)) = answer {
            self.0.values.awaited(&request.name);
        }
        answer.map_err(|error| error.during(self.driver(), "acquire", &request.name))
    }

    async fn renew(&self, ttl: Ttl, holds: &[Hold]) -> Vec<Result<Renewed>> {
        self.run_batch(holds, |part| self.calls().renew(ttl, part)).await
    }

    async fn release(&self, hold: &Hold) -> Result<Released> {
        if let Some(value) = self.0.values.take(hold)
            && self.delete_equal(&hold.name, &value).await?
        {
            return Ok(Released::Released);
        }
        let answer = self.free("release", &hold.name, self.calls().release(hold)).await?;
        Ok(if answer == 0 { Released::NotHeld } else { Released::Released })
    }

    async fn abandon(&self, hold: &Hold) -> Result<()> {
        self.free("abandon", &hold.name, self.calls().abandon(hold)).await.map(drop)
    }

    async fn watch(&self, _name: &LockName, token: &OwnerToken) -> Result<Watch> {
        Ok(self.0.wake.router().register(*token))
    }

    async fn inspect(&self, name: &LockName) -> Result<Inspection> {
        let reply = self.run("inspect", name, self.calls().inspect(name)).await?;
        call::inspection(&reply).map_err(|error| error.during(self.driver(), "inspect", name))
    }

    async fn force_release(&self, name: &LockName, expected: Option<FencingToken>) -> Result<ForceReleased> {
        let answer = self.free("force_release", name, self.calls().force_release(name, expected)).await?;
        Ok(match answer {
            0 => ForceReleased::NotHeld,
            -1 => ForceReleased::Changed,
            _ => ForceReleased::Released,
        })
    }

    async fn close(&self) {
        self.0.executor.close().await;
        self.0.wake.link_up(); // waiters ask once more, and learn that the driver is closed
    }
}

// The values of locks that their client knows, so that a release may be one command: `DELIFEQ`, where the server has it.
//
// A lock that was granted while nobody waited has a value that its client knows whole, and the flag in it changes as soon as
// somebody waits (`scripts/part/join.lua`). So the command deletes the lock exactly where the script of `release` would delete
// it and do no more. Where the value is another one by now, the command does nothing, and the script is run. Everything kept
// here is a guess: a wrong one costs a request.

/// How many grants are remembered. When there are as many, all are forgotten: also those that nobody will release.
const MOST_GRANTS: usize = 4096;

/// In how many parts names are counted; those of a part share a count.
const PARTS: usize = 1024;

/// For how many grants a name counts as contended after somebody has waited for it: those are not remembered.
const CONTENDED_GRANTS: u8 = 8;

/// What is remembered of grants whose value is known, and of names that somebody waited for.
#[derive(Debug)]
pub(crate) struct KnownValues {
    /// Whether values can be known at all: where fences only count, the server's clock is in them too.
    known: bool,
    /// Whether the server is thought to have the command, and to let this user run it.
    allowed: AtomicBool,
    grants: std::sync::Mutex<HashMap<OwnerToken, FreeGrant>>,
    /// For each part of the names, for how many grants still they count as contended.
    contended: Vec<AtomicU8>,
}

/// A grant of a lock that nobody waited for: what its value consists of beside the token.
#[derive(Debug)]
struct FreeGrant {
    fence: FencingToken,
    ahead: String,
    label: Option<Label>,
}

impl KnownValues {
    pub(crate) fn new(fences: Fences) -> Self {
        let contended = std::iter::repeat_with(AtomicU8::default).take(PARTS).collect();
        Self {
            known: fences == Fences::ClockSeeded,
            allowed: AtomicBool::new(false),
            grants: std::sync::Mutex::default(),
            contended,
        }
    }

    /// Whether the server is thought to have the command, and to let this user run it.
    pub(crate) fn allow(&self, allowed: bool) {
        self.allowed.store(allowed && self.known, Ordering::Relaxed);
    }

    /// The lock was granted while nobody waited, with a fence that is so far ahead of the server's clock as its value says.
    pub(crate) fn granted(&self, request: &AcquireRequest, fence: FencingToken, ahead: &str) {
        if !self.allowed.load(Ordering::Relaxed) {
            return;
        }
        let contended = self.contended(&request.name);
        let left = contended.load(Ordering::Relaxed);
        if left > 0 {
            return contended.store(left - 1, Ordering::Relaxed); // a count that another thread changed is as good
        }
        let grant = FreeGrant { fence, ahead: ahead.to_owned(), label: request.label.clone() };
        let mut grants = self.grants.lock().unwrap_or_else(PoisonError::into_inner);
        if grants.len() >= MOST_GRANTS {
            grants.clear();
        }
        grants.insert(request.token, grant);
    }

    /// Somebody waits for this lock.
    pub(crate) fn awaited(&self, name: &LockName) {
        if self.allowed.load(Ordering::Relaxed) {
            self.contended(name).store(CONTENDED_GRANTS, Ordering::Relaxed);
        }
    }

    /// The value of the lock if nobody has begun to wait since it was granted; `None` if it is not known, or somebody is thought
    /// to wait. Told once.
    pub(crate) fn take(&self, hold: &Hold) -> Option<String> {
        if !self.allowed.load(Ordering::Relaxed) {
            return None;
        }
        let grant = self.grants.lock().unwrap_or_else(PoisonError::into_inner).remove(&hold.token)?;
        let FreeGrant { fence, ahead, label } = grant;
        let label = label.as_ref().map_or("", Label::as_str);
        let nobody_waits = self.contended(&hold.name).load(Ordering::Relaxed) == 0;
        nobody_waits.then(|| format!("{};-;{fence};{ahead};{label}", hold.token.expose().as_str()))
    }

    fn contended(&self, name: &LockName) -> &AtomicU8 {
        let mut hasher = DefaultHasher::new();
        name.as_bytes().hash(&mut hasher);
        &self.contended[hasher.finish() as usize % PARTS]
    }
}
