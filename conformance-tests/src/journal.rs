//! The last calls of a driver, for the report of a failed case: the request, the time, and the answer.

use std::collections::VecDeque;
use std::fmt::{self, Debug, Display};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tenure_core::driver::{
    AcquireRequest, Acquisition, Backend, Cancelled, DeadPage, DeadPlace, DeadSelection, Delay, DelayQueue,
    DistributedLock, Exchanged, Exited, Extended, Extension, Family, ForceReleased, Hold, Inspection, ListPlace,
    Listed, LockCapabilities, LockTurn, MessageInfo, MessagePage, NewMessage, PermitCapabilities, PermitChange,
    PermitHold, PermitInspection, PermitRequest, Permits, PurgePlace, PurgeStep, Purged, Pushed, QueueAdmin,
    QueueCapabilities, QueuePage, QueueStats, ReceiveRequest, Redriven, ReentrantCapabilities, ReentrantEntry,
    ReentrantHold, ReentrantLock, Released, Renewed, Rescheduled, Settle, Ttl, TurnGiven, Watch,
};
use tenure_core::queue::{MessageId, QueueLimits, QueueName};
use tenure_core::{FencingToken, LockName, OwnerId, OwnerToken, Result};
use tokio::time::Instant;

/// How many calls are kept.
const KEPT: usize = 10;

/// The most characters of a name and of an answer.
const LONGEST: usize = 160;

/// The last calls of all clients of one case.
#[derive(Clone, Debug, Default)]
pub(crate) struct Journal(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    clients: AtomicUsize,
    calls: Mutex<Calls>,
}

#[derive(Debug, Default)]
struct Calls {
    /// When the first call began.
    start: Option<Instant>,
    last: usize,
    kept: VecDeque<Call>,
}

#[derive(Debug)]
struct Call {
    number: usize,
    client: usize,
    method: &'static str,
    about: String,
    began: Duration,
    ended: Option<(Duration, String)>,
}

impl Journal {
    /// The backend of one more client, which writes its calls down. Lists of held locks and check-ups pass by it.
    pub(crate) fn over(&self, backend: &Backend) -> Backend {
        let writer = Writer { journal: self.clone(), client: self.0.clients.fetch_add(1, Ordering::Relaxed) + 1 };
        let with = |inner: &Arc<dyn DistributedLock>| Written { inner: Arc::clone(inner), writer: writer.clone() };
        let mut outer = Backend::new(Arc::new(with(backend.locks())));
        if let Some(inner) = backend.reentrant() {
            outer = outer.with_reentrant(Arc::new(Written { inner: Arc::clone(inner), writer: writer.clone() }));
        }
        if let Some(inner) = backend.permits() {
            outer = outer.with_permits(Arc::new(Written { inner: Arc::clone(inner), writer: writer.clone() }));
        }
        if let Some(inner) = backend.queue() {
            outer = outer.with_queue(Arc::new(Written { inner: Arc::clone(inner), writer: writer.clone() }));
        }
        if let Some(inner) = backend.queue_admin() {
            outer = outer.with_queue_admin(Arc::new(Written { inner: Arc::clone(inner), writer: writer.clone() }));
        }
        if let Some(inner) = backend.census() {
            outer = outer.with_census(Arc::clone(inner));
        }
        if let Some(inner) = backend.doctor() {
            outer = outer.with_doctor(Arc::clone(inner));
        }
        outer
    }

    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.0.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Display for Journal {
    /// A line for each call, oldest first; nothing if there was none.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let calls = self.calls();
        if !calls.kept.is_empty() {
            write!(f, "\n    the last {} of {} calls of the driver:", calls.kept.len(), calls.last)?;
        }
        for Call { client, method, about, began, ended, .. } in &calls.kept {
            write!(f, "\n    {:>10.3} s  client {client}: {method} {about}", began.as_secs_f64())?;
            match ended {
                Some((took, answer)) => write!(f, ": {answer}, after {:.1} ms", took.as_secs_f64() * 1_000.0)?,
                None => f.write_str(": no answer")?,
            }
        }
        Ok(())
    }
}

/// Writes down the calls of one client.
#[derive(Clone, Debug)]
struct Writer {
    journal: Journal,
    client: usize,
}

impl Writer {
    async fn noting<T: Debug>(&self, method: &'static str, about: String, call: impl Future<Output = T>) -> T {
        let began = Instant::now();
        let number = self.begin(method, about, began);
        let answer = call.await;
        let reported = short(format!("{answer:?}"));
        let mut calls = self.journal.calls();
        if let Some(call) = calls.kept.iter_mut().find(|call| call.number == number) {
            call.ended = Some((began.elapsed(), reported));
        }
        answer
    }

    fn begin(&self, method: &'static str, about: String, now: Instant) -> usize {
        let mut calls = self.journal.calls();
        calls.last += 1;
        if calls.kept.len() == KEPT {
            calls.kept.pop_front();
        }
        let (number, began) = (calls.last, now - *calls.start.get_or_insert(now));
        calls.kept.push_back(Call { number, client: self.client, method, about: short(about), began, ended: None });
        number
    }
}

fn short(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(LONGEST) {
        text.truncate(end);
        text.push('…');
    }
    text
}

/// A driver whose calls are written down.
#[derive(Debug)]
struct Written<T: ?Sized> {
    inner: Arc<T>,
    writer: Writer,
}

/// Calls a method of the driver and writes it down, with what follows its name.
macro_rules! note {
    ($self:ident.$method:ident($($arg:expr),*), $($about:tt)+) => {
        $self.writer.noting(stringify!($method), format!($($about)+), $self.inner.$method($($arg),*)).await
    };
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl DistributedLock for Written<dyn DistributedLock> {
    fn driver(&self) -> &'static str {
        self.inner.driver()
    }

    fn capabilities(&self) -> LockCapabilities {
        self.inner.capabilities()
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Acquisition> {
        let AcquireRequest { name, ttl, queue, .. } = request;
        note!(self.acquire(request), "{name} for {:?}, {queue:?}", ttl.get())
    }

    async fn renew(&self, ttl: Ttl, holds: &[Hold]) -> Vec<Result<Renewed>> {
        let names: Vec<_> = holds.iter().map(|hold| hold.name.to_string()).collect();
        note!(self.renew(ttl, holds), "{names:?} for {:?}", ttl.get())
    }

    async fn release(&self, hold: &Hold) -> Result<Released> {
        note!(self.release(hold), "{}", hold.name)
    }

    async fn abandon(&self, hold: &Hold) -> Result<()> {
        note!(self.abandon(hold), "{}", hold.name)
    }

    async fn watch(&self, name: &LockName, token: &OwnerToken) -> Result<Watch> {
        note!(self.watch(name, token), "{name}")
    }

    async fn inspect(&self, name: &LockName) -> Result<Inspection> {
        note!(self.inspect(name), "{name}")
    }

    async fn force_release(&self, name: &LockName, expected: Option<FencingToken>) -> Result<ForceReleased> {
        note!(self.force_release(name, expected), "{name} of {expected:?}")
    }

    async fn close(&self) {
        note!(self.close(), "")
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl ReentrantLock for Written<dyn ReentrantLock> {
    fn capabilities(&self) -> ReentrantCapabilities {
        self.inner.capabilities()
    }

    async fn enter(&self, owner: &OwnerId, request: &AcquireRequest) -> Result<Acquisition> {
        let AcquireRequest { name, ttl, queue, .. } = request;
        note!(self.enter(owner, request), "{name} for {:?}, {queue:?}", ttl.get())
    }

    async fn renew(&self, ttl: Ttl, holds: &[ReentrantHold]) -> Vec<Result<Renewed>> {
        let names: Vec<_> = holds.iter().map(|hold| hold.name.to_string()).collect();
        note!(self.renew(ttl, holds), "entries of {names:?} for {:?}", ttl.get())
    }

    async fn exit(&self, hold: &ReentrantEntry) -> Result<Exited> {
        note!(self.exit(hold), "{}", hold.name)
    }

    async fn abandon(&self, hold: &ReentrantEntry) -> Result<()> {
        note!(self.abandon(hold), "entry of {}", hold.name)
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl Permits for Written<dyn Permits> {
    fn capabilities(&self) -> PermitCapabilities {
        self.inner.capabilities()
    }

    async fn acquire(&self, request: &PermitRequest) -> Result<Acquisition> {
        let PermitRequest { family, share, lock: AcquireRequest { name, ttl, queue, .. }, .. } = request;
        note!(self.acquire(request), "{share:?} of the {family} {name} for {:?}, {queue:?}", ttl.get())
    }

    async fn resize(&self, change: &PermitChange) -> Result<Acquisition> {
        let PermitChange { hold: PermitHold { family, name, .. }, to, step, presence, .. } = change;
        note!(self.resize(change), "of the {family} {name} to {to:?}, step {step}, presence {presence:?}")
    }

    async fn renew(&self, ttl: Ttl, holds: &[PermitHold]) -> Vec<Result<Renewed>> {
        let names: Vec<_> = holds.iter().map(|hold| hold.name.to_string()).collect();
        note!(self.renew(ttl, holds), "permits of {names:?} for {:?}", ttl.get())
    }

    async fn release(&self, hold: &PermitHold) -> Result<Released> {
        note!(self.release(hold), "permits of {}", hold.name)
    }

    async fn abandon(&self, hold: &PermitHold) -> Result<()> {
        note!(self.abandon(hold), "permits of {}", hold.name)
    }

    async fn watch(&self, hold: &PermitHold) -> Result<Watch> {
        note!(self.watch(hold), "permits of {}", hold.name)
    }

    async fn inspect(&self, family: Family, name: &LockName, most: usize) -> Result<PermitInspection> {
        note!(self.inspect(family, name, most), "{most} holders of the {family} {name}")
    }

    async fn evict(&self, family: Family, name: &LockName, fence: FencingToken) -> Result<ForceReleased> {
        note!(self.evict(family, name, fence), "{fence} of the {family} {name}")
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl<Q: DelayQueue + ?Sized> DelayQueue for Written<Q> {
    fn capabilities(&self) -> QueueCapabilities {
        self.inner.capabilities()
    }

    async fn push(&self, queue: &QueueName, messages: &[NewMessage]) -> Result<Vec<Pushed>> {
        note!(self.push(queue, messages), "{} into {queue}", messages.len())
    }

    async fn exchange(&self, settles: &[Settle], request: &ReceiveRequest) -> Result<Exchanged> {
        let ReceiveRequest { queue, max, lease, .. } = request;
        let how: Vec<_> = settles.iter().map(|settle| &settle.how).collect();
        note!(self.exchange(settles, request), "at {queue}: up to {max} for {:?}, and {how:?}", lease.get())
    }

    async fn extend(&self, queue: &QueueName, extensions: &[Extension]) -> Result<Vec<Extended>> {
        note!(self.extend(queue, extensions), "{} of {queue}", extensions.len())
    }

    async fn give_turn(&self, queue: &QueueName, id: &MessageId, turn: &LockTurn) -> Result<TurnGiven> {
        note!(self.give_turn(queue, id, turn), "{id} of {queue}")
    }

    async fn watch(&self, queue: &QueueName) -> Result<Watch> {
        note!(self.watch(queue), "of {queue}")
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl QueueAdmin for Written<dyn QueueAdmin> {
    async fn cancel(&self, queue: &QueueName, id: &MessageId) -> Result<Cancelled> {
        note!(self.cancel(queue, id), "{id} of {queue}")
    }

    async fn reschedule(&self, queue: &QueueName, id: &MessageId, delay: Delay) -> Result<Rescheduled> {
        note!(self.reschedule(queue, id, delay), "{id} of {queue} in {:?}", delay.get())
    }

    async fn get(&self, queue: &QueueName, id: &MessageId) -> Result<Option<MessageInfo>> {
        note!(self.get(queue, id), "{id} of {queue}")
    }

    async fn list(&self, queue: &QueueName, which: Listed, from: Option<ListPlace>, max: usize) -> Result<MessagePage> {
        note!(self.list(queue, which, from, max), "{max} of {queue}, {which:?}")
    }

    async fn limit(&self, queue: &QueueName, limits: &QueueLimits) -> Result<()> {
        note!(self.limit(queue, limits), "{queue} to {limits:?}")
    }

    async fn stats(&self, queue: &QueueName) -> Result<QueueStats> {
        note!(self.stats(queue), "of {queue}")
    }

    async fn pause(&self, queue: &QueueName) -> Result<()> {
        note!(self.pause(queue), "{queue}")
    }

    async fn resume(&self, queue: &QueueName) -> Result<()> {
        note!(self.resume(queue), "{queue}")
    }

    async fn purge(&self, queue: &QueueName, max: usize, from: Option<PurgePlace>) -> Result<PurgeStep> {
        note!(self.purge(queue, max, from), "{max} of {queue}")
    }

    async fn list_queues(&self, after: Option<QueueName>, max: usize) -> Result<QueuePage> {
        note!(self.list_queues(after, max), "{max}")
    }

    async fn dead_list(&self, queue: &QueueName, after: Option<DeadPlace>, max: usize) -> Result<DeadPage> {
        note!(self.dead_list(queue, after, max), "{max} of {queue}")
    }

    async fn dead_redrive(&self, queue: &QueueName, which: &DeadSelection, delay: Delay) -> Result<Redriven> {
        note!(self.dead_redrive(queue, which, delay), "{which:?} of {queue}")
    }

    async fn dead_purge(&self, queue: &QueueName, which: &DeadSelection) -> Result<Purged> {
        note!(self.dead_purge(queue, which), "{which:?} of {queue}")
    }
}
