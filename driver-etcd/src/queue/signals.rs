//! How the clients that wait on a queue share its messages out: as many ask as there are messages.
//!
//! Whoever makes a message due writes when that will be into the queue's signal, and whoever takes one writes what is left.
//! Every client that waits has a place in the queue's [line](super::line), on a lease, and watches the signals and lines of
//! all queues.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use etcd_client::{Event, EventType, Txn, TxnOp};
use tenure_core::Result;
use tenure_core::driver::{LeaseInstant, Next, QueueRouter, Watch};
use tenure_core::queue::QueueName;
use tokio::sync::Notify;

use super::clock::{Clock, Micros, span};
use super::keys::{QueueSpace, Signalled, Spot};
use super::line::{News, Sleeper, Stands};
use crate::grants::{Lease, Leases, new_id, seconds};
use crate::link::Link;
use crate::standing::{Audience, Standing};

/// The lease of a client's places, in seconds. A waiting client asks within 20 s, and keeps it alive then.
const SECS: i64 = 60;

/// When a client asks that is not in front, at the latest: what a watcher has promised.
const LATEST: Duration = Duration::from_secs(20);

pub(crate) struct Signals {
    standing: Arc<Standing<Sleepers>>,
    leases: Arc<Leases>,
    /// The lease that this client's places are on.
    lease: tokio::sync::Mutex<Option<Lease>>,
}

/// The consumers of this client that wait.
struct Sleepers {
    link: Arc<Link>,
    space: QueueSpace,
    root: String,
    clock: Arc<Clock>,
    router: QueueRouter,
    queues: Mutex<HashMap<QueueName, Sleeper>>,
    /// Told when an alarm may be another one.
    changed: Notify,
}

/// A receive on its way, and the part that it has in the line.
pub(super) struct Asking<'a> {
    signals: &'a Signals,
    queue: &'a QueueName,
    /// `None` for a receive of a client that does not wait, or that has another one on its way.
    pub(super) part: Option<Part>,
}

/// What a receive does about the client's place.
#[derive(Debug, Default)]
pub(super) struct Part {
    /// The place that the client has, or may have, until it leaves it.
    pub(super) spot: Option<Spot>,
    /// Whether it asks since those before it did not, in time.
    pub(super) instead: bool,
    /// How things stand when it is answered, if the client waits on.
    pub(super) stands: Option<Stands>,
}

impl Signals {
    pub(crate) fn new(link: Arc<Link>, leases: Arc<Leases>, space: QueueSpace, clock: Arc<Clock>) -> Self {
        let root = space.signals();
        let sleepers = Sleepers {
            link: Arc::clone(&link),
            space,
            root,
            clock,
            router: QueueRouter::default(),
            queues: Mutex::default(),
            changed: Notify::new(),
        };
        Self { standing: Standing::new(link, sleepers), leases, lease: tokio::sync::Mutex::default() }
    }

    pub(super) async fn listen(&self, queue: &QueueName) -> Result<Watch> {
        let sleepers = &self.standing.audience;
        let watch = sleepers.router.register(queue);
        sleepers.queues().entry(queue.clone()).or_default();
        self.standing.ensure_live().await?;
        Ok(watch)
    }

    /// A receive leaves.
    pub(super) fn asks<'a>(&'a self, queue: &'a QueueName, now: Micros) -> Asking<'a> {
        let sleepers = &self.standing.audience;
        let mut queues = sleepers.queues();
        let sleeper = queues.get_mut(queue).filter(|_| sleepers.router.is_watched(queue));
        let asked = sleeper.and_then(|sleeper| sleeper.asks(now));
        let part = asked.map(|(spot, instead)| Part { spot, instead, stands: None });
        Asking { signals: self, queue, part }
    }

    /// The lease for the client's places, alive for a while.
    pub(super) async fn lease(&self) -> Result<i64> {
        let mut lease = self.lease.lock().await;
        if let Some(known) = lease.as_mut() {
            let now = LeaseInstant::before_send();
            if known.left_at(now) > seconds(SECS) / 2 {
                return Ok(known.id);
            }
            if self.leases.keep_alive(known.id).await? {
                known.since = now;
                return Ok(known.id);
            }
        }
        let granted = self.leases.grant_loosely(new_id(), SECS).await?;
        Ok(lease.insert(granted).id)
    }

    /// The lease has ended before its time.
    pub(super) async fn lease_is_gone(&self, id: i64) {
        self.lease.lock().await.take_if(|lease| lease.id == id);
    }

    pub(crate) async fn close(&self) {
        self.standing.close().await;
    }

    /// Ends all places: what cannot be revoked ends by itself.
    pub(crate) async fn leave(&self) {
        if let Some(lease) = self.lease.lock().await.take() {
            let _ = self.leases.revoke(lease.id).await;
        }
    }

    pub(crate) fn abort(&self) {
        self.standing.abort();
    }
}

impl Part {
    /// The place to take: the one that the client may have already, so that it never has two, and this one if it has none.
    pub(super) fn takes(&mut self, fresh: Vec<u8>) -> Vec<u8> {
        let fresh = Spot { key: fresh, seen: false };
        let spot = self.spot.take().filter(|spot| !spot.seen).unwrap_or(fresh);
        self.spot.insert(spot).key.clone()
    }

    /// The client has its place.
    pub(super) fn waits(&mut self, stands: Stands) {
        self.spot = Some(Spot { key: stands.place.key.clone(), seen: true });
        self.stands = Some(stands);
    }
}

impl Asking<'_> {
    /// The receive is answered; tells when it is worth asking again, now that others may do so.
    pub(super) fn answered(mut self, next: Next) -> Next {
        let is_in_front = self.ends();
        match next {
            Next::In(span) if !is_in_front => Next::In(span.max(LATEST)),
            next => next,
        }
    }

    fn ends(&mut self) -> bool {
        let Some(part) = self.part.take() else { return true };
        let sleepers = &self.signals.standing.audience;
        let mut queues = sleepers.queues();
        let Some(sleeper) = queues.get_mut(self.queue) else { return true };
        sleeper.answered(part.spot, part.stands, sleepers.clock.now());
        sleepers.changed.notify_one();
        sleeper.is_in_front()
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.ends();
    }
}

impl Sleepers {
    fn queues(&self) -> MutexGuard<'_, HashMap<QueueName, Sleeper>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes those whose time has come, and has those leave whom nobody would notice; tells for how long the others sleep.
    fn wake_due(&self) -> Option<Duration> {
        let now = self.clock.now();
        let (mut next, mut left) = (None, Vec::new());
        self.queues().retain(|queue, sleeper| {
            if !sleeper.is_asking() && !self.router.is_watched(queue) {
                left.extend(sleeper.leaves());
                return false;
            }
            match sleeper.alarm() {
                Some(at) if at <= now => {
                    sleeper.woken();
                    self.router.wake(queue);
                }
                Some(at) => next = Some(next.map_or(at, |next: Micros| next.min(at))),
                None => {}
            }
            true
        });
        if !left.is_empty() {
            let link = Arc::clone(&self.link);
            let leave =
                Txn::new().and_then(left.into_iter().map(|place| TxnOp::delete(place, None)).collect::<Vec<_>>());
            tokio::spawn(async move { link.txn(leave).await });
        }
        next.map(|next| span(now, next))
    }
}

impl Audience for Sleepers {
    fn root(&self) -> &[u8] {
        self.root.as_bytes()
    }

    fn take_in(&self, events: &[Event]) {
        let now = self.clock.now();
        let mut queues = self.queues();
        for event in events {
            let Some(found) = event.kv() else { continue };
            let Some((queue, what)) = self.space.signalled(found.key()) else { continue };
            let Some(sleeper) = queues.get_mut(&queue) else { continue };
            let news = match (what, event.event_type()) {
                (Signalled::Soonest, EventType::Put) => News::parse(found.value()),
                (Signalled::Soonest, EventType::Delete) => continue,
                (Signalled::Place, EventType::Put) => News::Came(found.key().to_vec()),
                (Signalled::Place, EventType::Delete) => News::Went(found.key().to_vec()),
            };
            sleeper.take_in(found.mod_revision(), news, now);
        }
        drop(queues);
        self.changed.notify_one();
    }

    fn begin(&self) {
        self.queues().values_mut().for_each(Sleeper::gap);
    }

    fn gap(&self) {
        self.begin();
        self.router.wake_all();
    }

    fn is_empty(&self) -> bool {
        self.router.is_empty()
    }

    async fn attend(&self) {
        loop {
            match self.wake_due() {
                Some(left) => drop(tokio::time::timeout(left, self.changed.notified()).await),
                None => self.changed.notified().await,
            }
        }
    }
}

impl std::fmt::Debug for Signals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Signals").finish_non_exhaustive()
    }
}
