//! The driver, with the requests of plain locks, and the values of locks that a client knows: a release of one of them
//! may be one command.

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
    AcquireRequest, Acquisition, Backend, DistributedLock, ErrorExt as _, Exclusion, Fencing, ForceReleased, Hold,
    Inspection, LockCapabilities, QuorumNode, Released, Renewed, Ttl, TtlRange, Waiting, Watch,
};
use tenure_core::{Error, ErrorKind, FencingToken, Label, LockName, OwnerToken, Result};
use tokio::sync::{Mutex, OnceCell};

use crate::call::{self, Calls, FENCES, GO_ON};
use crate::check::{self, Notes, Replicas};
use crate::config::RedisConfig;
use crate::damage::{self, Met};
use crate::error::ExecError;
use crate::keyspace::Keyspace;
use crate::link::{Dialer, WakeLink};
use crate::script::{self, ArgList, Reply, Request, ScriptCall};
use crate::seats::Seat;
use crate::servers::{Placement, Servers};
use crate::settings::Fences;

/// How many leases one renewal script carries.
pub(crate) const RENEW_BATCH: usize = 100;

/// The ttls that a server can keep.
pub(crate) const TTLS: TtlRange = TtlRange { min: Ttl::MIN, max: Ttl::MAX, granularity: Duration::from_millis(1) };

/// A connected driver, over any client library. Clones share the connections.
///
/// It implements the driver traits of `tenure-core`. Every method but `close` is one round trip. There is one more in
/// each of these cases:
///
/// * a cluster redirects the request;
/// * a lock is freed: one for every 256 dead waiters in front of the others;
/// * permits: one for every 256 leases that have ended or waiters that are absent, and for every 8 waiters that fit now;
/// * a client began to wait for a lock that the driver tried to release by one command
///   ([`DELIFEQ`](https://valkey.io/commands/delifeq/), Valkey 9);
/// * the server does not know the script (a restart, a failover, `SCRIPT FLUSH`): the driver then sends the whole
///   script, once;
/// * a key has another type: one request finds its name;
/// * after a new connection, the next request to grant, push or receive: one request checks whether the server is still
///   fit for it.
///
/// `watch` needs none. A node of a quorum that was down at the start is checked before its first vote, in three more.
#[derive(Debug)]
pub struct Driver<D: Dialer>(pub(crate) Arc<Inner<D>>);

#[derive(Debug)]
pub(crate) struct Inner<D: Dialer> {
    servers: Servers<D>,
    calls: Calls,
    pub(crate) wake: WakeLink,
    /// The identity of the data: the addresses and the database that the configuration names.
    pub(crate) identity: String,
    /// The results of the checks of the servers.
    checks: Checks,
    /// Which releases may be one command, and of which value.
    values: KnownValues,
    /// The seat that the server takes as a node of a quorum, if it was connected to as one.
    seat: Option<Seat>,
}

impl<D: Dialer> Clone for Driver<D> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

/// All features: in a cluster and behind sentinels, a failover may lose messages whose push was acknowledged, as it may
/// lose locks.
impl<D: Dialer> From<Driver<D>> for Backend {
    fn from(driver: Driver<D>) -> Self {
        let all = Arc::new(driver);
        let backend = Self::new(Arc::clone(&all) as _).with_reentrant(Arc::clone(&all) as _);
        let backend = backend.with_permits(Arc::clone(&all) as _);
        let backend = backend.with_doctor(Arc::clone(&all) as _).with_census(Arc::clone(&all) as _);
        backend.with_queue(Arc::clone(&all) as _).with_queue_admin(all)
    }
}

impl<D: Dialer> Driver<D> {
    /// The driver over servers that are checked before the first request that grants.
    pub(crate) fn unchecked(
        servers: Servers<D>,
        keys: Keyspace,
        config: &RedisConfig,
        wake: WakeLink,
        seat: Option<Seat>,
    ) -> Self {
        let settings = config.settings.clone();
        let identity = format!("redis {:?} {}", config.topology, config.database);
        let values = KnownValues::new(settings.fences);
        let calls = Calls::new(keys, settings);
        Self(Arc::new(Inner { servers, calls, wake, identity, checks: Checks::default(), values, seat }))
    }

    /// The checks at the start that were not possible, or that the configuration skips.
    #[must_use]
    pub fn notes(&self) -> &Notes {
        static NONE: Notes = Notes::none();
        self.0.checks.first.get().unwrap_or(&NONE)
    }

    /// The server as a node of a quorum.
    #[must_use]
    pub fn node(&self) -> Arc<dyn QuorumNode> {
        Arc::new(self.clone())
    }

    pub(crate) fn servers(&self) -> &Servers<D> {
        &self.0.servers
    }

    pub(crate) fn calls(&self) -> &Calls {
        &self.0.calls
    }

    /// Checks whether the servers are fit to keep locks, unless that is known already: everything at first, and the
    /// answer to `INFO` after each new connection. An unfit server is checked again by the next request.
    pub(crate) async fn check(&self) -> Result<&Notes> {
        let Inner { checks, wake, .. } = &*self.0;
        let notes = checks.first.get_or_try_init(|| self.look()).await?;
        if checks.seen.load(Ordering::Acquire) != wake.renewed() {
            self.look_again().boxed().await?;
        }
        Ok(notes)
    }

    async fn look(&self) -> Result<Notes> {
        let Inner { servers, calls, wake, checks, .. } = &*self.0;
        let before = wake.renewed();
        let notes = check::server(servers, calls, check::infos(servers).await).await?;
        self.fits(&notes)?;
        checks.seen.store(before, Ordering::Release);
        Ok(notes)
    }

    async fn look_again(&self) -> Result<()> {
        let Inner { servers, calls, wake, checks, .. } = &*self.0;
        let asked = checks.looks.load(Ordering::Acquire);
        let mut last = checks.again.lock().await; // one at a time
        if let (true, Some(error)) = (checks.looks.load(Ordering::Acquire) != asked, &*last) {
            return Err(error.again()); // another request has just checked; each in turn would wait as long as all before it
        }
        let before = wake.renewed();
        if checks.seen.load(Ordering::Acquire) == before {
            return Ok(()); // by another request, in the meantime
        }
        let mut notes = Notes::default();
        let infos = check::infos(servers).await;
        let reported = check::reported(infos, servers.placement(), calls, Replicas::TellThemselves, &mut notes);
        let looked = match reported.and_then(|()| self.fits(&notes)) {
            // One server of many that is away says nothing of the others, and is checked when it is back.
            Err(error) if !(error.is_transient() && servers.placement() == Placement::Slots) => Err(error),
            _ => {
                checks.seen.store(before, Ordering::Release);
                Ok(())
            }
        };
        *last = looked.as_ref().err().map(Error::again);
        checks.looks.fetch_add(1, Ordering::Release);
        looked
    }

    /// Applies what a check found: whether a release may be one command, and which node of the quorum the server is.
    fn fits(&self, notes: &Notes) -> Result<()> {
        self.0.values.allow(notes.deletes_equal());
        match (&self.0.seat, notes.run_id()) {
            (Some(seat), Some(run)) => seat.take(run),
            _ => Ok(()),
        }
    }

    /// The exclusion and the fences that follow from the distribution of keys and from the settings.
    pub(crate) fn promises(&self) -> (Exclusion, Fencing) {
        let exclusion = match self.servers().placement() {
            Placement::OneServer => Exclusion::SingleNode,
            Placement::OnePrimary | Placement::Slots => Exclusion::LossyFailover,
        };
        let fencing = match self.calls().settings.fences {
            Fences::ClockSeeded => Fencing::ClockSeeded,
            Fences::Counter => Fencing::StrictUnlessDataLoss,
        };
        (exclusion, fencing)
    }

    /// Runs a script for `operation` on `name`.
    pub(crate) async fn run(&self, operation: &'static str, name: &LockName, call: ScriptCall) -> Result<Reply> {
        let inner = &*self.0;
        match inner.servers.run(&call).await {
            Ok(reply) => Ok(reply),
            Err(error) => {
                let error = match Met::by(&error) {
                    None => error.into_error(&inner.calls.keys, Some(call.script)),
                    Some(met) => self.damage(met, call).boxed().await,
                };
                Err(error.during(D::DRIVER, operation, name))
            }
        }
    }

    /// The error about damage that a script met: one request more where the server does not name the key.
    async fn damage(&self, met: Met, call: ScriptCall) -> Error {
        let inner = &*self.0;
        match met {
            Met::Unreadable { key, found } => damage::half_read(key.as_bytes(), found.as_bytes()),
            Met::AnotherType => {
                let asked = ScriptCall { script: &script::TYPES, args: ArgList::default(), ..call };
                let types = inner.servers.run(&asked).await;
                damage::another_type(asked.keys.iter(), types.as_ref().ok())
            }
        }
    }

    /// Runs a script that may free the lock, and returns its answer. Where there were more dead waiters in front than one script
    /// removes, further ones give the turn. An error of one of them is not returned: the lock is free, and waiters ask by
    /// themselves after a while.
    pub(crate) async fn free(&self, operation: &'static str, name: &LockName, call: ScriptCall) -> Result<i64> {
        let answer = self.run(operation, name, call).await?.int()?;
        let mut last = answer;
        while last == GO_ON {
            let passed = self.run(operation, name, self.calls().pass(name)).await;
            last = passed.and_then(|reply| reply.int()).unwrap_or_default();
        }
        Ok(answer)
    }

    /// Deletes the lock if it has this value; returns whether it had. A refusal proves that nothing was done, and the script of
    /// the release reports the error.
    async fn delete_equal(&self, name: &LockName, value: &str) -> Result<bool> {
        let inner = &*self.0;
        let Ok(key) = String::from_utf8(inner.calls.keys.lock_key(name)) else { return Ok(false) };
        let slot = inner.servers.slot(key.as_bytes());
        match inner.servers.request(slot, &Request::words(&["DELIFEQ", &key, value])).await {
            Ok(Reply::Int(1)) => return Ok(true),
            Ok(_) => inner.values.awaited(name),
            Err(error @ ExecError::Server { .. }) => {
                if error.is_withheld() {
                    inner.values.allow(false);
                }
            }
            Err(error) => {
                let error = error.into_error(&inner.calls.keys, None);
                return Err(error.during(D::DRIVER, "release", name));
            }
        }
        Ok(false)
    }

    /// Runs the script of a batch; in a cluster one for each slot that it touches, all at once.
    pub(crate) async fn run_batch<T: Sync>(
        &self,
        batch: &[T],
        name: fn(&T) -> &LockName,
        call: impl Fn(&[&T]) -> ScriptCall,
    ) -> Vec<Result<Renewed>> {
        let mut parts: Vec<(u16, Vec<usize>)> = Vec::new();
        for (at, one) in batch.iter().enumerate() {
            let slot = match self.servers().placement() {
                Placement::OneServer | Placement::OnePrimary => 0,
                Placement::Slots => self.servers().slot(&self.calls().keys.lock_key(name(one))),
            };
            match parts.iter_mut().find(|(known, _)| *known == slot) {
                Some((_, part)) => part.push(at),
                None => parts.push((slot, vec![at])),
            }
        }
        let runs = parts.iter().map(|(_, part)| {
            let members: Vec<&T> = part.iter().map(|&at| &batch[at]).collect();
            let names: Vec<&LockName> = members.iter().map(|one| name(one)).collect();
            self.run_part(call(&members), names)
        });
        let answers = join_all(runs).await.into_iter().flatten();
        let mut all: Vec<(usize, _)> = parts.into_iter().flat_map(|(_, part)| part).zip(answers).collect();
        all.sort_by_key(|(at, _)| *at);
        all.into_iter().map(|(_, answer)| answer).collect()
    }

    /// Runs a script for several: its one failure applies to all of them.
    async fn run_part(&self, call: ScriptCall, names: Vec<&LockName>) -> Vec<Result<Renewed>> {
        let inner = &*self.0;
        let answer = match inner.servers.run(&call).await {
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
            Err(error.during(D::DRIVER, "renew", name))
        };
        names.into_iter().map(one).collect()
    }
}

/// The results of the checks of the servers.
#[derive(Debug, Default)]
struct Checks {
    /// The result of the first check; empty before it.
    first: OnceCell<Notes>,
    /// How often the link had come up at the last check.
    seen: AtomicU64,
    /// Locked while a request checks again: the failure of the last such check.
    again: Mutex<Option<Error>>,
    /// The number of such checks.
    looks: AtomicU64,
}

#[async_trait]
impl<D: Dialer> DistributedLock for Driver<D> {
    fn driver(&self) -> &'static str {
        D::DRIVER
    }

    fn capabilities(&self) -> LockCapabilities {
        let settings = &self.0.calls.settings;
        let (exclusion, fencing) = self.promises();
        LockCapabilities::new(exclusion, fencing, Waiting::Fifo, TTLS)
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
        answer.map_err(|error| error.during(D::DRIVER, "acquire", &request.name))
    }

    async fn renew(&self, ttl: Ttl, holds: &[Hold]) -> Vec<Result<Renewed>> {
        self.run_batch(holds, |hold| &hold.name, |part| self.calls().renew(ttl, part)).await
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
        call::inspection(&reply).map_err(|error| error.during(D::DRIVER, "inspect", name))
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
        self.0.servers.close().await;
        self.0.wake.link_up(); // waiters ask once more, and learn that the driver is closed
    }
}

// The values of locks that their client knows, so that a release may be one command: `DELIFEQ`, where the server has it.
//
// A lock that was granted without waiters has a value that its client knows whole, and the flag in it changes as soon as there is
// a waiter (`scripts/part/join.lua`). So the command deletes the lock exactly where the script of `release` would delete it and
// do no more. Where the value is another one by now, the command does nothing, and the script is run. Everything kept here is a
// guess: a wrong one costs a request.

/// How many grants are remembered. When there are as many, all are forgotten: also those that will not be released.
const MOST_GRANTS: usize = 4096;

/// In how many parts names are counted; those of a part share a count.
const PARTS: usize = 1024;

/// For how many grants a name counts as contended after it had a waiter: those are not remembered.
const CONTENDED_GRANTS: u8 = 8;

/// The remembered grants whose value is known, and the names that had waiters.
#[derive(Debug)]
struct KnownValues {
    /// Whether values can be known at all: where fences only count, the server's clock is in them too.
    known: bool,
    /// Whether the server is thought to have the command, and to let this user run it.
    allowed: AtomicBool,
    grants: std::sync::Mutex<HashMap<OwnerToken, FreeGrant>>,
    /// For each part of the names, for how many grants still they count as contended.
    contended: Vec<AtomicU8>,
}

/// A grant of a lock without waiters: the parts of its value beside the token.
#[derive(Debug)]
struct FreeGrant {
    fence: FencingToken,
    ahead: String,
    label: Option<Label>,
}

impl KnownValues {
    fn new(fences: Fences) -> Self {
        let contended = std::iter::repeat_with(AtomicU8::default).take(PARTS).collect();
        Self {
            known: fences == Fences::ClockSeeded,
            allowed: AtomicBool::new(false),
            grants: std::sync::Mutex::default(),
            contended,
        }
    }

    /// Whether the server is thought to have the command, and to let this user run it.
    fn allow(&self, allowed: bool) {
        self.allowed.store(allowed && self.known, Ordering::Relaxed);
    }

    /// The lock was granted without waiters, with a fence that is so far ahead of the server's clock as its value says.
    fn granted(&self, request: &AcquireRequest, fence: FencingToken, ahead: &str) {
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

    /// This lock has a waiter.
    fn awaited(&self, name: &LockName) {
        if self.allowed.load(Ordering::Relaxed) {
            self.contended(name).store(CONTENDED_GRANTS, Ordering::Relaxed);
        }
    }

    /// The value of the lock if no client has begun to wait since it was granted; `None` if it is not known, or a waiter is
    /// assumed. Returned once.
    fn take(&self, hold: &Hold) -> Option<String> {
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
