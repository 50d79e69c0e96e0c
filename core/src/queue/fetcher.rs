//! The traffic between one client and one queue: demands of local callers, their settlements, and their messages in
//! hand.
//!
//! There is one fetcher for each client and queue. Receivers own no request: dropping one takes back its demand, and
//! messages that arrive without a receiver are returned.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, SystemTime};

use futures_util::future::BoxFuture;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use crate::driver::{DelayQueue, Extended, Extension, Parking, RawDelivery, Settle, Settled, Settlement};
use crate::engine::hold::LooseHold;
use crate::engine::lease::Kind;
use crate::engine::local_handover::LocalQueues;
use crate::engine::reaper::{Cleanup, Undo};
use crate::engine::shared::Shared;
use crate::meters::queues::Delivered;
use crate::queue::recurring::schedule::{Occurrence, OccurrenceEnd, left_to_others};
use crate::queue::requests::{Confirmed, Extensions, Pushes, RemoteQueue, ended};
use crate::queue::{MessageId, QueueName};
use crate::telemetry;
use crate::value::error::{Error, ErrorKind, LockName, Result};
use crate::value::queue::{Delay, Lease};
use crate::value::time::LeaseInstant;
use crate::value::token::OwnerToken;

pub(crate) struct Fetcher {
    /// The local queues for the locks of messages.
    pub(super) local_queues: Arc<LocalQueues>,
    pub(super) remote: Arc<RemoteQueue>,
    parked: Arc<dyn Attend>,
    work: Mutex<Work>,
    /// Its task.
    run: Run,
    pub(super) extensions: Arc<Extensions>,
    pub(super) pushes: Arc<Pushes>,
    /// The number of messages that this client has received and not settled.
    in_hand: AtomicUsize,
    /// Notified when the amount of work changes.
    pub(super) changed: Notify,
    /// Notified when all settlements are answered.
    settled: Notify,
}

/// Carries out the work of local callers, until there has been none for a while.
pub(crate) type Run = fn(Arc<Fetcher>) -> BoxFuture<'static, ()>;

/// Waits for locks on behalf of the parked messages of one client.
pub(crate) trait Attend: fmt::Debug + Send + Sync {
    /// Waits for this message of the fetcher's queue, which was parked at this time for at most so long.
    fn attend(&self, fetcher: &Arc<Fetcher>, lock: &LockName, id: MessageId, since: LeaseInstant, at_most: Delay);

    /// Notified when a receiver begins to wait for messages, or settles one.
    fn room(&self) -> &Notify;
}

/// The work that local callers requested.
#[derive(Default)]
pub(super) struct Work {
    pub(super) demands: VecDeque<Demand>,
    pub(super) settles: VecDeque<Pending>,
    /// The last number of a demand or a change. An answer belongs to the demands up to the number that its request had.
    last: u64,
    /// Settlements that are on their way, and the receive.
    pub(super) on_their_way: usize,
    /// True if there is a task, on any runtime.
    running: bool,
    /// The latest change of each recurring message that is being made.
    changes: HashMap<MessageId, u64>,
}

/// A change of a recurring message that is being made. A newer one of the same message replaces it.
#[derive(Debug)]
pub(super) struct Change {
    fetcher: Arc<Fetcher>,
    id: MessageId,
    number: u64,
}

impl Change {
    pub(super) fn begin(fetcher: &Arc<Fetcher>, id: &MessageId) -> Self {
        let mut work = fetcher.work();
        work.last += 1;
        let number = work.last;
        work.changes.insert(id.clone(), number);
        drop(work);
        Self { fetcher: Arc::clone(fetcher), id: id.clone(), number }
    }

    /// Returns true if no newer change has replaced it.
    pub(super) fn is_current(&self) -> bool {
        self.fetcher.work().changes.get(&self.id) == Some(&self.number)
    }
}

impl Drop for Change {
    fn drop(&mut self) {
        let mut work = self.fetcher.work();
        if work.changes.get(&self.id) == Some(&self.number) {
            work.changes.remove(&self.id);
        }
    }
}

/// One caller that waits for messages.
pub(super) struct Demand {
    pub(super) number: u64,
    pub(super) max: usize,
    pub(super) lease: Lease,
    pub(super) patience: Patience,
    /// True if the backend has answered since this demand was made: from then on, the demand waits through outages.
    pub(super) answered: Answered,
    pub(super) reply: oneshot::Sender<Result<Vec<InFlight>>>,
}

/// The lifetime of a demand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// One request.
    Once,
    /// Until there is a message.
    Unlimited,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answered {
    NotYet,
    Yes,
}

/// One caller's settlement.
pub(super) struct Pending {
    pub(super) settle: Settle,
    /// The end of the lease; the settlement is repeated until then.
    pub(super) until: LeaseInstant,
    pub(super) reply: oneshot::Sender<Result<Settled>>,
}

/// Notifies the fetcher when the caller drops its future.
struct Leaving<'a>(&'a Fetcher);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.0.changed.notify_one();
    }
}

/// The fetchers of a client: one for each queue that it uses.
#[derive(Debug, Default)]
pub(crate) struct Fetchers {
    of: Mutex<HashMap<QueueName, Weak<Fetcher>>>,
    /// Set from the first queue on.
    parked: OnceLock<Arc<dyn Attend>>,
}

impl Fetchers {
    /// Returns the fetcher of this queue: the existing one, or a new one.
    pub(super) fn get(&self, name: QueueName, make: impl FnOnce(QueueName) -> Result<Fetcher>) -> Result<Arc<Fetcher>> {
        let mut fetchers = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(fetcher) = fetchers.get(&name).and_then(Weak::upgrade) {
            return Ok(fetcher);
        }
        let fetcher = Arc::new(make(name.clone())?);
        // The map grows only here, so that this is enough to keep it small.
        fetchers.retain(|_, fetcher| fetcher.strong_count() > 0);
        fetchers.insert(name, Arc::downgrade(&fetcher));
        Ok(fetcher)
    }

    /// Returns the waiter for the locks of parked messages: one for all queues.
    pub(super) fn parked(&self, make: impl FnOnce() -> Arc<dyn Attend>) -> Arc<dyn Attend> {
        Arc::clone(self.parked.get_or_init(make))
    }

    /// Waits until all settlements are answered.
    pub(crate) async fn drained(&self) {
        let fetchers: Vec<_> = {
            let fetchers = self.of.lock().unwrap_or_else(PoisonError::into_inner);
            fetchers.values().filter_map(Weak::upgrade).collect()
        };
        for fetcher in fetchers {
            fetcher.drained().await;
        }
    }
}

impl Fetcher {
    pub(super) fn new(
        parked: Arc<dyn Attend>,
        local_queues: Arc<LocalQueues>,
        driver: Arc<dyn DelayQueue>,
        name: QueueName,
        run: Run,
    ) -> Self {
        let (shared, caps) = (Arc::clone(local_queues.shared()), driver.capabilities());
        let meters = shared.queue_meters.of(&name);
        let remote = Arc::new(RemoteQueue { shared, driver, name, caps, meters });
        let extensions = Arc::new(Extensions::new(Arc::clone(&remote)));
        let pushes = Arc::new(Pushes::new(Arc::clone(&remote)));
        let (work, in_hand) = (Mutex::default(), AtomicUsize::new(0));
        let (changed, settled) = (Notify::new(), Notify::new());
        Self { local_queues, remote, parked, work, run, extensions, pushes, in_hand, changed, settled }
    }

    pub(super) fn work(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for up to `max` messages, which are no more than a batch.
    pub(super) async fn demand(
        self: &Arc<Self>,
        max: usize,
        lease: Lease,
        patience: Patience,
    ) -> Result<Vec<InFlight>> {
        self.remote.shared.ensure_open()?;
        let _leaving = Leaving(self);
        let (reply, answer) = oneshot::channel();
        {
            let mut work = self.work();
            work.last += 1;
            let number = work.last;
            let answered = Answered::NotYet;
            work.demands.push_back(Demand { number, max, lease, patience, answered, reply });
            // Under the lock of `may_end`: a task that is about to end sees this demand, or has ended and starts again.
            self.ensure_running(&mut work)?;
        }
        self.changed.notify_one();
        self.room().notify_waiters();
        answer.await.unwrap_or_else(|_| Err(ended()))
    }

    /// Returns true if a message that becomes due now may find a handler: a receiver of this client waits; or the
    /// client has no message in hand, and leaves them to other clients.
    pub(super) fn has_room(&self) -> bool {
        // The number first: it needs no lock.
        self.in_hand.load(Ordering::Acquire) == 0 || self.work().demands.iter().any(|demand| !demand.reply.is_closed())
    }

    /// Counts a message that is received by this client, or settled.
    pub(super) fn comes_in_hand(&self) {
        self.in_hand.fetch_add(1, Ordering::AcqRel);
    }

    pub(super) fn leaves_hand(&self) {
        self.in_hand.fetch_sub(1, Ordering::AcqRel);
        self.room().notify_waiters();
    }

    /// Waits in the line of a lock for a message that was parked behind it at this time, for at most so long.
    pub(super) fn attend(self: &Arc<Self>, lock: &LockName, id: MessageId, since: LeaseInstant, at_most: Delay) {
        if self.remote.caps.parking == Parking::Attended {
            self.parked.attend(self, lock, id, since, at_most);
        }
    }

    /// Notified when a receiver begins to wait for messages of this client, or settles one.
    pub(super) fn room(&self) -> &Notify {
        self.parked.room()
    }

    /// Carries out a settlement, also if the caller does not wait for it.
    pub(super) async fn settle(self: &Arc<Self>, settle: Settle, until: LeaseInstant) -> Result<Settled> {
        let answers = self.settle_all([(settle, until)])?;
        answers.await.pop().unwrap_or_else(|| Err(ended()))
    }

    /// Carries out settlements, which leave together as far as they fit; callers need not wait for them.
    pub(super) fn settle_all<S: IntoIterator<Item = (Settle, LeaseInstant)>>(
        self: &Arc<Self>,
        settles: S,
    ) -> Result<impl Future<Output = Vec<Result<Settled>>> + use<S>> {
        let mut answers = Vec::new();
        {
            let mut work = self.work();
            for (settle, until) in settles {
                let (reply, answer) = oneshot::channel();
                work.settles.push_back(Pending { settle, until, reply });
                answers.push(answer);
            }
            self.ensure_running(&mut work)?;
        }
        self.changed.notify_one();
        Ok(async move {
            let mut settled = Vec::with_capacity(answers.len());
            for answer in answers {
                settled.push(answer.await.unwrap_or_else(|_| Err(ended())));
            }
            settled
        })
    }

    /// Starts the task unless it runs. When its runtime ends, it continues on another one that uses the client, for as
    /// long as the queue is in use.
    fn ensure_running(self: &Arc<Self>, work: &mut Work) -> Result<()> {
        self.remote.shared.start()?;
        if !std::mem::replace(&mut work.running, true) {
            // Weak: the background task outlives the runtimes, and must not keep the fetcher of a queue without
            // handles.
            let fetcher = Arc::downgrade(self);
            self.remote.shared.background.run(move || {
                let fetcher = fetcher.upgrade();
                async move {
                    if let Some(fetcher) = fetcher {
                        fetcher.all_answered(); // a runtime that ended took along what was on its way
                        (fetcher.run)(Arc::clone(&fetcher)).await;
                    }
                }
            });
        }
        Ok(())
    }

    /// Lets the task end if there is no work; decided while none can arrive.
    pub(super) fn may_end(&self) -> bool {
        let mut work = self.work();
        let idle = work.demands.is_empty() && work.settles.is_empty();
        if idle {
            work.running = false;
        }
        idle
    }

    /// Removes the demands whose callers have gone.
    pub(super) fn prune(work: &mut Work) {
        work.demands.retain(|demand| !demand.reply.is_closed());
    }

    pub(super) fn last_number(work: &Work) -> u64 {
        work.last
    }

    pub(super) fn all_answered(&self) {
        self.work().on_their_way = 0;
        self.settled.notify_waiters();
    }

    /// Waits until no settlement and no receive is under way: messages of a late answer have to be returned.
    pub(crate) async fn drained(&self) {
        loop {
            let settled = self.settled.notified(); // before looking
            {
                let work = self.work();
                if !work.running || (work.settles.is_empty() && work.on_their_way == 0) {
                    return;
                }
            }
            settled.await;
        }
    }
}

impl fmt::Debug for Fetcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fetcher").field("name", &self.remote.name).finish_non_exhaustive()
    }
}

// One delivery, as the client owns it before and while somebody handles it.

/// A delivery that is not settled. Dropped, it is settled in the background, as set by [`InFlight::if_dropped`].
#[derive(Debug)]
pub(crate) struct InFlight {
    pub(super) fetcher: Arc<Fetcher>,
    pub(super) raw: RawDelivery,
    lease_state: Mutex<LeaseState>,
    /// The occurrence, if the message recurs.
    occurrence: Option<Result<Occurrence>>,
    /// The end of an occurrence that must not be handled.
    passed_over: Option<OccurrenceEnd>,
    /// Notified when the state of the lease changes.
    changed: Notify,
    /// The hold on a lock that came with the message, until it is taken up. Released when the claim ends.
    turn: Mutex<Option<LooseHold>>,
    /// `None` once it is settled, or once its settlement is on its way.
    if_dropped: Option<Settlement>,
}

/// The state of the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LeaseState {
    Until(LeaseInstant),
    /// The backend reported that the receipt is no longer valid.
    Stale,
}

impl InFlight {
    /// Makes a delivery that no receiver has seen: dropped, it is returned.
    pub(super) fn new(fetcher: &Arc<Fetcher>, mut raw: RawDelivery, sent_at: LeaseInstant, lease: Lease) -> Self {
        let until = believable(fetcher, sent_at, lease);
        let lease_state = Mutex::new(LeaseState::Until(until));
        let (fetcher, if_dropped) = (Arc::clone(fetcher), Some(Settlement::Return { after: Delay::ZERO }));
        let turn = Mutex::new(raw.turn.take().map(|turn| LooseHold::new(&fetcher.remote.shared, turn)));
        let occurrence =
            raw.recurrence.as_ref().map(|recurrence| Occurrence::read(recurrence, fetcher.remote.caps.delay));
        fetcher.comes_in_hand();
        fetcher.remote.meters.received(raw.late);
        let (passed_over, changed) = (None, Notify::new());
        Self { fetcher, raw, lease_state, occurrence, passed_over, changed, turn, if_dropped }
    }

    /// Takes the hold on this lock that came with the message. A hold on another lock is released: it is not the one
    /// needed.
    pub(super) fn take_turn(&self, shared: &Arc<Shared>, lock: &LockName) -> Option<LooseHold> {
        let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner).take();
        turn.filter(|turn| turn.is_on(shared, lock))
    }

    /// Sets the settlement for a drop.
    pub(super) fn if_dropped(&mut self, settlement: Settlement) {
        if self.if_dropped.is_some() {
            self.if_dropped = Some(settlement);
        }
    }

    /// Returns the occurrence of a message that recurs.
    pub(super) fn occurrence(&self) -> Option<&Occurrence> {
        self.occurrence.as_ref().and_then(|occurrence| occurrence.as_ref().ok())
    }

    /// Ends the recurrence of the message.
    pub(super) fn end_recurrence(&mut self) {
        self.occurrence = None;
    }

    /// Returns true if the message may be handled: not if it is an occurrence that was missed or that has no attempts
    /// left. Dropped, the message continues as such.
    pub(super) fn is_to_be_handled(&mut self) -> bool {
        let (otherwise, ended) = match &self.occurrence {
            None => (None, None),
            Some(Ok(occurrence)) => occurrence.passed_over(&self.raw).unzip(),
            Some(Err(_)) => (Some(left_to_others(self.fetcher.remote.caps.delay)), None),
        };
        self.passed_over = ended;
        if let Some(settlement) = &otherwise {
            telemetry::passed_over(&self.fetcher.remote.name, &self.raw.id, self.raw.attempt, settlement);
        }
        let handled = otherwise.is_none();
        self.if_dropped = otherwise.or(self.if_dropped.take());
        handled
    }

    /// Returns the time of an occurrence that must not be handled, and its end.
    pub(super) fn passed_over(&self) -> Option<(SystemTime, OccurrenceEnd)> {
        self.occurrence().map(Occurrence::time).zip(self.passed_over)
    }

    /// Returns the end of the occurrence of a recurring message by this settlement, if it ends.
    pub(super) fn occurrence_end(&self, how: &Settlement) -> Option<OccurrenceEnd> {
        self.occurrence().and_then(|occurrence| occurrence.end(self.raw.attempt, how))
    }

    /// Returns the result of a delivery that is settled like this.
    fn meant(&self, how: &Settlement) -> Delivered {
        match (self.passed_over.or_else(|| self.occurrence_end(how)), how) {
            (Some(OccurrenceEnd::Missed), _) => Delivered::Missed,
            (Some(OccurrenceEnd::Failed), _) => Delivered::OccurrenceFailed,
            (_, Settlement::Ack | Settlement::Recur { .. }) => Delivered::Acked,
            (_, Settlement::Retry { .. }) => Delivered::Retried,
            (_, Settlement::Return { .. }) => Delivered::Returned,
            (_, Settlement::Park { .. }) => Delivered::Parked,
            (_, Settlement::Dead { .. }) => Delivered::Dead,
        }
    }

    /// Translates the settlement for a message that recurs; the same for all others.
    fn translated(&self, how: Settlement) -> Settlement {
        match self.occurrence() {
            Some(occurrence) => occurrence.translated(self.raw.attempt, how),
            None => how,
        }
    }

    fn lease_state(&self) -> MutexGuard<'_, LeaseState> {
        self.lease_state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks the receipt as no longer valid.
    fn set_stale(&self) {
        *self.lease_state() = LeaseState::Stale;
        self.changed.notify_waiters();
    }

    /// Returns the known end of the lease.
    fn until(&self) -> LeaseInstant {
        match *self.lease_state() {
            LeaseState::Until(until) => until,
            LeaseState::Stale => LeaseInstant::now(),
        }
    }

    pub(super) fn is_lost(&self) -> bool {
        !self.lasts(LeaseInstant::now())
    }

    /// Returns true if the lease is known to last at this instant.
    pub(super) fn lasts(&self, at: LeaseInstant) -> bool {
        match *self.lease_state() {
            LeaseState::Until(until) => until > at,
            LeaseState::Stale => false,
        }
    }

    pub(super) fn remaining(&self) -> Duration {
        match *self.lease_state() {
            LeaseState::Until(until) => until.remaining(),
            LeaseState::Stale => Duration::ZERO,
        }
    }

    /// Resolves when the lease has ended, no later than its deadline.
    pub(super) async fn lost(&self) {
        loop {
            let changed = self.changed.notified(); // before looking
            let until = match *self.lease_state() {
                LeaseState::Until(until) => until,
                LeaseState::Stale => return,
            };
            tokio::select! {
                // An extension may have moved the end while the timer fired, so the state decides.
                () = until.reached() => if self.is_lost() { return },
                () = changed => {}
            }
        }
    }

    pub(super) async fn settle(mut self, how: Settlement) -> Result<Settled> {
        // No await comes between this and the hand-over to the fetcher, so that a drop settles it never twice and never
        // not at all.
        self.if_dropped = None;
        let (meant, how) = (self.meant(&how), self.translated(how));
        let parked = match &how {
            // Read before the request leaves: the local wait ends no later than the time that the backend keeps.
            Settlement::Park { lock, at_most } => Some((lock.clone(), *at_most, LeaseInstant::now())),
            _ => None,
        };
        let settle = Settle { receipt: self.raw.receipt, how: how.clone() };
        let settled = self.fetcher.settle(settle, self.until()).await;
        let settled = self.settled(meant, &how, settled)?;
        // Only now: before the answer there may be no parked message that a hold could be given to.
        if let Some((lock, at_most, since)) = parked.filter(|_| settled == Settled::Done) {
            self.fetcher.attend(&lock, self.raw.id.clone(), since, at_most);
        }
        Ok(settled)
    }

    /// Acknowledges deliveries of one queue.
    pub(super) async fn ack_all(fetcher: &Arc<Fetcher>, mut claims: Vec<Self>) -> Result<Vec<Settled>> {
        let ack = |claim: &mut Self| {
            claim.if_dropped = None;
            (Settle { receipt: claim.raw.receipt, how: claim.translated(Settlement::Ack) }, claim.until())
        };
        let settles: Vec<_> = claims.iter_mut().map(ack).collect();
        let answers = fetcher.settle_all(settles.clone());
        let answers = answers.map_err(|error| fetcher.remote.during(error, "settle"))?.await;
        let reported = answers.into_iter().zip(claims.iter().zip(&settles));
        reported.map(|(settled, (claim, (settle, _)))| claim.settled(Delivered::Acked, &settle.how, settled)).collect()
    }

    /// Converts the answer to a settlement with this intended result.
    fn settled(&self, meant: Delivered, how: &Settlement, answer: Result<Settled>) -> Result<Settled> {
        let meters = &self.fetcher.remote.meters;
        meters.ended(match &answer {
            Err(error) => Delivered::Failed(error.kind()),
            Ok(Settled::Done) => meant,
            Ok(Settled::Dead) => Delivered::Dead,
            Ok(Settled::Postponed) => Delivered::Postponed,
            Ok(Settled::Stale) if self.is_lost() => Delivered::LostLease,
            Ok(Settled::Stale) => Delivered::Stale,
        });
        let settled = answer.map_err(|error| self.fetcher.remote.during(error, "settle"))?;
        if settled == Settled::Dead {
            meters.buried();
        }
        telemetry::settled(&self.fetcher.remote.name, &self.raw.id, self.raw.attempt, how, settled);
        Ok(settled)
    }

    /// Extends the lease, in a request that leaves at any time from now on and at `latest`.
    pub(super) async fn extend(&self, lease: Lease, latest: Instant) -> Result<()> {
        let asked = async {
            self.fetcher.remote.caps.check_lease(lease)?;
            self.fetcher.extensions.extend(Extension { receipt: self.raw.receipt, lease }, latest).await
        };
        let Confirmed { sent_at, answer } = asked.await.map_err(|error| self.fetcher.remote.during(error, "extend"))?;
        match answer {
            Extended::Extended => {
                let until = believable(&self.fetcher, sent_at, lease);
                match &mut *self.lease_state() {
                    // An answer after the end revives nothing: the holder may have acted on the loss already.
                    LeaseState::Until(old) if *old < until && *old > LeaseInstant::now() => {
                        *old = until;
                        self.changed.notify_waiters();
                    }
                    _ => {}
                }
                if self.is_lost() { Err(self.lost_error()) } else { Ok(()) }
            }
            Extended::Stale => {
                self.set_stale();
                telemetry::delivery_lost(&self.fetcher.remote.name, &self.raw.id, self.raw.attempt);
                Err(self.lost_error())
            }
        }
    }

    pub(super) fn lost_error(&self) -> Error {
        let text = format!("the lease of message {} has ended", self.raw.id);
        self.fetcher.remote.during(Error::new(ErrorKind::Lost, text), "delivery")
    }
}

fn believable(fetcher: &Fetcher, sent_at: LeaseInstant, lease: Lease) -> LeaseInstant {
    sent_at.after(fetcher.remote.shared.config.drift.believable(lease.get()).unwrap_or_default())
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.fetcher.leaves_hand();
        if let Some(how) = self.if_dropped.take() {
            self.fetcher.remote.meters.ended(if self.is_lost() { Delivered::LostLease } else { self.meant(&how) });
            let settle = Settle { receipt: self.raw.receipt, how: self.translated(how) };
            carry_on(&self.fetcher, settle, self.until());
        }
    }
}

/// Hands a settlement to the reaper, which repeats it until it is acknowledged or the lease has ended.
pub(super) fn carry_on(fetcher: &Fetcher, settle: Settle, until: LeaseInstant) {
    fetcher.remote.shared.reaper.push(Cleanup {
        name: fetcher.remote.name.for_errors().clone(),
        kind: Kind::Plain,
        token: OwnerToken::random(),
        undo: Undo::Delivery(Arc::clone(&fetcher.remote.driver), fetcher.remote.name.clone(), settle),
        until,
        done: None,
    });
}
