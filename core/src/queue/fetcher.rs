//! What goes between one client and one queue: what local callers wait for, what they settle, and what they have in hand.
//!
//! There is one for each client and queue. Receivers own no request: dropping one takes back its demand, and what arrives for
//! nobody is returned.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use crate::driver::{DelayQueue, Extended, Extension, Parking, RawDelivery, Settle, Settled, Settlement};
use crate::engine::hold::LooseHold;
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
    /// Where the locks of messages are waited for.
    pub(super) local_queues: Arc<LocalQueues>,
    pub(super) remote: Arc<RemoteQueue>,
    parked: Arc<dyn Attend>,
    work: Mutex<Work>,
    /// Its task.
    run: Run,
    pub(super) extensions: Arc<Extensions>,
    pub(super) pushes: Arc<Pushes>,
    /// How many messages this client has received and not settled.
    in_hand: AtomicUsize,
    /// Told when there is work, or less of it.
    pub(super) changed: Notify,
    /// Told when all settlements are answered.
    settled: Notify,
}

/// Carries out what local callers want, until there has been nothing for a while.
pub(crate) type Run = fn(Arc<Fetcher>) -> BoxFuture<'static, ()>;

/// Who stands in the lines of locks for the parked messages of one client.
pub(crate) trait Attend: fmt::Debug + Send + Sync {
    /// For this message of the fetcher's queue, which was parked at this time for at most so long.
    fn attend(&self, fetcher: &Arc<Fetcher>, lock: &LockName, id: MessageId, since: LeaseInstant, at_most: Delay);

    /// To be notified when somebody waits for messages, or is done with one.
    fn room(&self) -> &Notify;
}

/// What local callers want.
#[derive(Default)]
pub(super) struct Work {
    pub(super) demands: VecDeque<Demand>,
    pub(super) settles: VecDeque<Pending>,
    /// Demands are numbered, so that an answer is not given to whoever came after the question.
    last: u64,
    /// Settlements that are on their way, and the receive.
    pub(super) on_their_way: usize,
    /// Whether there is a task, on whichever runtime.
    running: bool,
}

/// One caller that wants messages.
pub(super) struct Demand {
    pub(super) number: u64,
    pub(super) max: usize,
    pub(super) lease: Lease,
    pub(super) patience: Patience,
    /// Whether the backend has answered since this demand came: from then on outages are waited out.
    pub(super) answered: Answered,
    pub(super) reply: oneshot::Sender<Result<Vec<InFlight>>>,
}

/// For how long a demand stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// For one question.
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
    /// When the lease ends; the settlement is worth repeating until then.
    pub(super) until: LeaseInstant,
    pub(super) reply: oneshot::Sender<Result<Settled>>,
}

/// Tells the fetcher when the caller goes away.
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
    /// From the first queue on.
    parked: OnceLock<Arc<dyn Attend>>,
}

impl Fetchers {
    /// The fetcher of this queue: the one that is there, or a new one.
    pub(super) fn get(&self, name: QueueName, make: impl FnOnce(QueueName) -> Result<Fetcher>) -> Result<Arc<Fetcher>> {
        let mut fetchers = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(fetcher) = fetchers.get(&name).and_then(Weak::upgrade) {
            return Ok(fetcher);
        }
        let fetcher = Arc::new(make(name.clone())?);
        fetchers.retain(|_, fetcher| fetcher.strong_count() > 0);
        fetchers.insert(name, Arc::downgrade(&fetcher));
        Ok(fetcher)
    }

    /// Who waits for the locks that messages are parked behind: one for all queues.
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
            self.ensure_running(&mut work)?;
        }
        self.changed.notify_one();
        self.room().notify_waiters();
        answer.await.unwrap_or_else(|_| Err(ended()))
    }

    /// Whether a message that becomes due now may find somebody to handle it: a receiver of this client waits; or the client
    /// has no message in hand, and leaves them to others.
    pub(super) fn has_room(&self) -> bool {
        self.in_hand.load(Ordering::Acquire) == 0 || self.work().demands.iter().any(|demand| !demand.reply.is_closed())
    }

    /// A message came into the hands of this client, or left them.
    pub(super) fn comes_in_hand(&self) {
        self.in_hand.fetch_add(1, Ordering::AcqRel);
    }

    pub(super) fn leaves_hand(&self) {
        self.in_hand.fetch_sub(1, Ordering::AcqRel);
        self.room().notify_waiters();
    }

    /// Stands in the line of a lock for a message that was parked behind it at this time, for at most so long.
    pub(super) fn attend(self: &Arc<Self>, lock: &LockName, id: MessageId, since: LeaseInstant, at_most: Delay) {
        if self.remote.caps.parking == Parking::Attended {
            self.parked.attend(self, lock, id, since, at_most);
        }
    }

    /// Told when somebody waits for messages of this client, or is done with one.
    pub(super) fn room(&self) -> &Notify {
        self.parked.room()
    }

    /// Carries out a settlement, also if the caller does not wait for it.
    pub(super) async fn settle(self: &Arc<Self>, settle: Settle, until: LeaseInstant) -> Result<Settled> {
        let answers = self.settle_all([(settle, until)])?;
        answers.await.pop().unwrap_or_else(|| Err(ended()))
    }

    /// Carries out settlements, which leave together as far as they fit; nobody has to wait for them.
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

    /// Makes sure that the task runs. When its runtime ends, it goes on on another one that uses the client, for as long as
    /// anybody has the queue in hand.
    fn ensure_running(self: &Arc<Self>, work: &mut Work) -> Result<()> {
        self.remote.shared.start()?;
        if !std::mem::replace(&mut work.running, true) {
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

    /// Lets the task end if there is no work; decided while none can come.
    pub(super) fn may_end(&self) -> bool {
        let mut work = self.work();
        let idle = work.demands.is_empty() && work.settles.is_empty();
        if idle {
            work.running = false;
        }
        idle
    }

    /// Forgets the demands whose callers have gone.
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

    /// Waits until no settlement and no receive is under way: what a receive brings has to be returned.
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

/// A delivery that is not settled. Dropped, it is settled in the background, as [`InFlight::if_dropped`] says.
#[derive(Debug)]
pub(crate) struct InFlight {
    pub(super) fetcher: Arc<Fetcher>,
    pub(super) raw: RawDelivery,
    standing: Mutex<Standing>,
    /// What it is an occurrence of, if the message recurs.
    occurrence: Option<Result<Occurrence>>,
    /// Told when the standing changes.
    changed: Notify,
    /// The hold on a lock that came along, if nobody has taken it up yet. Given back when the claim ends.
    turn: Mutex<Option<LooseHold>>,
    /// `None` once it is settled, or once its settlement is on its way.
    if_dropped: Option<Settlement>,
}

/// Whether the lease lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Until(LeaseInstant),
    /// The backend says that the receipt is not valid any more.
    Stale,
}

impl InFlight {
    /// A delivery that nobody has seen: dropped, it is returned.
    pub(super) fn new(fetcher: &Arc<Fetcher>, mut raw: RawDelivery, sent_at: LeaseInstant, lease: Lease) -> Self {
        let until = believable(fetcher, sent_at, lease);
        let standing = Mutex::new(Standing::Until(until));
        let (fetcher, if_dropped) = (Arc::clone(fetcher), Some(Settlement::Return { after: Delay::ZERO }));
        let turn = Mutex::new(raw.turn.take().map(|turn| LooseHold::new(&fetcher.remote.shared, turn)));
        let occurrence =
            raw.recurrence.as_ref().map(|recurrence| Occurrence::read(recurrence, fetcher.remote.caps.delay));
        fetcher.comes_in_hand();
        fetcher.remote.meters.received(raw.late);
        Self { fetcher, raw, standing, occurrence, changed: Notify::new(), turn, if_dropped }
    }

    /// The hold on this lock that came along. One on another lock is given back: it is not what is needed.
    pub(super) fn take_turn(&self, shared: &Arc<Shared>, lock: &LockName) -> Option<LooseHold> {
        let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner).take();
        turn.filter(|turn| turn.is_on(shared, lock))
    }

    /// Changes what is done if it is dropped.
    pub(super) fn if_dropped(&mut self, settlement: Settlement) {
        if self.if_dropped.is_some() {
            self.if_dropped = Some(settlement);
        }
    }

    /// The occurrence of a message that recurs.
    pub(super) fn occurrence(&self) -> Option<&Occurrence> {
        self.occurrence.as_ref().and_then(|occurrence| occurrence.as_ref().ok())
    }

    /// From now on the message recurs no more.
    pub(super) fn end_recurrence(&mut self) {
        self.occurrence = None;
    }

    /// Whether somebody may handle it: not if it is an occurrence that was missed or that has no attempts left. Dropped,
    /// the message goes on as such.
    pub(super) fn is_to_be_handled(&mut self) -> bool {
        let otherwise = match &self.occurrence {
            None => None,
            Some(Ok(occurrence)) => occurrence.passed_over(&self.raw),
            Some(Err(_)) => Some(left_to_others(self.fetcher.remote.caps.delay)),
        };
        if let Some(settlement) = &otherwise {
            telemetry::passed_over(&self.fetcher.remote.name, &self.raw.id, self.raw.attempt, settlement);
        }
        let handled = otherwise.is_none();
        self.if_dropped = otherwise.or(self.if_dropped.take());
        handled
    }

    /// How this settlement ends the occurrence of a message that recurs, if it does.
    pub(super) fn occurrence_end(&self, how: &Settlement) -> Option<OccurrenceEnd> {
        self.occurrence().and_then(|occurrence| occurrence.end(self.raw.attempt, how))
    }

    /// What the settlement is for a message that recurs; the same for all others.
    fn translated(&self, how: Settlement) -> Settlement {
        match self.occurrence() {
            Some(occurrence) => occurrence.translated(self.raw.attempt, how),
            None => how,
        }
    }

    fn standing(&self) -> MutexGuard<'_, Standing> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The backend says that the receipt is not valid any more.
    fn set_stale(&self) {
        *self.standing() = Standing::Stale;
        self.changed.notify_waiters();
    }

    /// When the lease ends, as far as is known.
    fn until(&self) -> LeaseInstant {
        match *self.standing() {
            Standing::Until(until) => until,
            Standing::Stale => LeaseInstant::now(),
        }
    }

    pub(super) fn is_lost(&self) -> bool {
        !self.lasts(LeaseInstant::now())
    }

    /// Whether the lease lasts at this instant, as far as is known.
    pub(super) fn lasts(&self, at: LeaseInstant) -> bool {
        match *self.standing() {
            Standing::Until(until) => until > at,
            Standing::Stale => false,
        }
    }

    pub(super) fn remaining(&self) -> Duration {
        match *self.standing() {
            Standing::Until(until) => until.remaining(),
            Standing::Stale => Duration::ZERO,
        }
    }

    /// Resolves when the lease has ended, no later than its deadline.
    pub(super) async fn lost(&self) {
        loop {
            let changed = self.changed.notified(); // before looking
            let until = match *self.standing() {
                Standing::Until(until) => until,
                Standing::Stale => return,
            };
            tokio::select! {
                () = until.reached() => if self.is_lost() { return },
                () = changed => {}
            }
        }
    }

    pub(super) async fn settle(mut self, how: Settlement) -> Result<Settled> {
        self.if_dropped = None;
        let (meant, how) = (meant(&how), self.translated(how));
        let parked = match &how {
            Settlement::Park { lock, at_most } => Some((lock.clone(), *at_most, LeaseInstant::now())),
            _ => None,
        };
        let settle = Settle { receipt: self.raw.receipt, how: how.clone() };
        let settled = self.fetcher.settle(settle, self.until()).await;
        let settled = self.settled(meant, &how, settled)?;
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
        let answers = answers.map_err(|error| fetcher.remote.told(error, "settle"))?.await;
        let told = answers.into_iter().zip(claims.iter().zip(&settles));
        told.map(|(settled, (claim, (settle, _)))| claim.settled(Delivered::Acked, &settle.how, settled)).collect()
    }

    /// What was answered to a settlement, which was meant so.
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
        let settled = answer.map_err(|error| self.fetcher.remote.told(error, "settle"))?;
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
        let Confirmed { sent_at, answer } = asked.await.map_err(|error| self.fetcher.remote.told(error, "extend"))?;
        match answer {
            Extended::Extended => {
                let until = believable(&self.fetcher, sent_at, lease);
                match &mut *self.standing() {
                    Standing::Until(old) if *old < until && *old > LeaseInstant::now() => {
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
        self.fetcher.remote.told(Error::new(ErrorKind::Lost, text), "delivery")
    }
}

/// What becomes of a delivery that is settled like this.
fn meant(how: &Settlement) -> Delivered {
    match how {
        Settlement::Ack => Delivered::Acked,
        Settlement::Retry { .. } => Delivered::Retried,
        Settlement::Return { .. } => Delivered::Returned,
        Settlement::Park { .. } => Delivered::Parked,
        Settlement::Dead { .. } => Delivered::Dead,
        Settlement::Recur { .. } => Delivered::PassedOver,
    }
}

fn believable(fetcher: &Fetcher, sent_at: LeaseInstant, lease: Lease) -> LeaseInstant {
    sent_at.after(fetcher.remote.shared.config.drift.believable(lease.get()).unwrap_or_default())
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.fetcher.leaves_hand();
        if let Some(how) = self.if_dropped.take() {
            self.fetcher.remote.meters.ended(if self.is_lost() { Delivered::LostLease } else { meant(&how) });
            let settle = Settle { receipt: self.raw.receipt, how: self.translated(how) };
            carry_on(&self.fetcher, settle, self.until());
        }
    }
}

/// Hands a settlement to the reaper, which repeats it until it is acknowledged or the lease has ended.
pub(super) fn carry_on(fetcher: &Fetcher, settle: Settle, until: LeaseInstant) {
    fetcher.remote.shared.reaper.push(Cleanup {
        name: fetcher.remote.name.for_errors().clone(),
        owner: None,
        token: OwnerToken::random(),
        undo: Undo::Delivery(Arc::clone(&fetcher.remote.driver), fetcher.remote.name.clone(), settle),
        until,
        done: None,
    });
}
