//! What goes between one client and one queue: a task that asks on behalf of all local receivers, and takes their
//! settlements along.
//!
//! There is one for each client and queue. It has one request on its way at a time; whatever comes up meanwhile
//! leaves together in the next. Receivers own no request: dropping one takes back its demand, and what arrives for
//! nobody is returned.

use crate::call::bounded;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, timeout};

use crate::call::caught_in;
use crate::driver::{
    DelayQueue, DelayQueueExt as _, Exchanged, Next, QueueCapabilities, QueueWake, RawDelivery, ReceiveRequest,
    Received, Settle, Settled, Watch,
};
use crate::engine::local_handover::LocalQueues;
use crate::engine::shared::Shared;
use crate::queue::QueueName;
use crate::queue::delivery::{InFlight, carry_on};
use crate::queue::extending::Extensions;
use crate::queue::parking::ParkedWatcher;
use crate::queue::push::Pushes;
use crate::value::clock::LeaseInstant;
use crate::value::error::{Error, ErrorKind, Result};
use crate::value::limits::Lease;
use crate::{alarm, telemetry};

/// Who panicked, in errors.
pub(super) const DRIVER: &str = "the driver";

pub(crate) struct Fetcher {
    /// Where the locks of messages are waited for.
    pub(super) local_queues: Arc<LocalQueues>,
    pub(crate) shared: Arc<Shared>,
    /// Those of the same client.
    pub(super) all: Arc<Fetchers>,
    pub(crate) driver: Arc<dyn DelayQueue>,
    pub(crate) name: QueueName,
    pub(crate) caps: QueueCapabilities,
    work: Mutex<Work>,
    pub(super) extensions: Extensions,
    pub(super) pushes: Pushes,
    /// How many messages this client has received and not settled.
    in_hand: AtomicUsize,
    /// Told when there is work, or less of it.
    pub(super) changed: Notify,
    /// Told when all settlements are answered.
    settled: Notify,
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

impl Fetcher {
    fn new(all: Arc<Fetchers>, local_queues: Arc<LocalQueues>, driver: Arc<dyn DelayQueue>, name: QueueName) -> Self {
        let caps = driver.capabilities();
        let (work, extensions, pushes) = (Mutex::default(), Extensions::default(), Pushes::default());
        let in_hand = AtomicUsize::new(0);
        let (changed, settled) = (Notify::new(), Notify::new());
        let shared = Arc::clone(local_queues.shared());
        Self { local_queues, shared, all, driver, name, caps, work, extensions, pushes, in_hand, changed, settled }
    }

    pub(super) fn work(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds what is known of the circumstances to an error.
    pub(super) fn told(&self, error: Error, operation: &'static str) -> Error {
        error.during(self.shared.driver(), operation, self.name.for_errors())
    }

    /// Waits for up to `max` messages.
    pub(super) async fn demand(
        self: &Arc<Self>,
        max: usize,
        lease: Lease,
        patience: Patience,
    ) -> Result<Vec<InFlight>> {
        self.shared.ensure_open()?;
        let _leaving = Leaving(self);
        let (reply, answer) = oneshot::channel();
        {
            let mut work = self.work();
            work.last += 1;
            let number = work.last;
            let max = max.min(self.caps.batch);
            let answered = Answered::NotYet;
            work.demands.push_back(Demand { number, max, lease, patience, answered, reply });
            self.ensure_running(&mut work)?;
        }
        self.changed.notify_one();
        self.all.attended.room.notify_waiters();
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
        self.all.attended.room.notify_waiters();
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
        self.shared.start()?;
        if !std::mem::replace(&mut work.running, true) {
            let fetcher = Arc::downgrade(self);
            self.shared.background.run(move || {
                let fetcher = fetcher.upgrade();
                async move {
                    if let Some(fetcher) = fetcher {
                        fetcher.work().on_their_way = 0; // a runtime that ended took them along
                        fetcher.run().await;
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
            let settled = self.settled.notified();
            tokio::pin!(settled);
            settled.as_mut().enable();
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

pub(super) fn ended() -> Error {
    Error::new(ErrorKind::Indeterminate, "the runtime that carried the request has ended")
}

impl fmt::Debug for Fetcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fetcher").field("name", &self.name).finish_non_exhaustive()
    }
}

// The task of a [`Fetcher`]: asks, sleeps until the span that the backend computed has passed, hands out.

/// How long a waiting receiver sleeps at most where nothing wakes it, or it is not known yet whether the watch can be trusted:
/// the bound on its lateness when every wake-up is lost.
pub(crate) const FIRST_IDLE: Duration = Duration::from_secs(2);

/// How long it sleeps at most behind a watch: reached in steps, each twice as long as the last, as long as nothing fails.
/// A backend may wake one client for each message, and counts on the others to ask within this span.
pub(crate) const MAX_IDLE: Duration = Duration::from_secs(20);

/// How long the task stays after its last work, listening, in case more comes.
const LINGER: Duration = Duration::from_secs(10);

/// The pause after the first failed request; doubled after each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// What the task knows between two requests.
struct Turn {
    watch: Option<Watch>,
    /// When to ask again for those who wait.
    ask_at: Instant,
    /// How long to sleep at most before that.
    idle: Duration,
    pause: Duration,
    /// Until when it stays without work.
    lingers_until: Option<Instant>,
}

/// What one request carries.
struct Load {
    settles: Vec<Pending>,
    ask: Option<Ask>,
}

#[derive(Clone, Copy)]
struct Ask {
    max: usize,
    lease: Lease,
    /// The last demand that this question is asked for.
    up_to: u64,
}

impl Fetcher {
    pub(super) async fn run(self: Arc<Self>) {
        let mut turn =
            Turn { watch: None, ask_at: Instant::now(), idle: FIRST_IDLE, pause: FIRST_PAUSE, lingers_until: None };
        loop {
            if self.shared.ensure_open().is_err() {
                self.refuse_demands();
            }
            self.listen(&mut turn).await;
            let load = self.load(&turn);
            if !load.settles.is_empty() || load.ask.is_some() {
                turn.lingers_until = None;
                self.exchange(&mut turn, load).await;
                continue;
            }
            if self.sleep(&mut turn).await && self.may_end() {
                return;
            }
        }
    }

    /// Waits for something to do; tells whether there was nothing for long.
    async fn sleep(&self, turn: &mut Turn) -> bool {
        let waiting = !self.work().demands.is_empty();
        let until = match waiting {
            true => turn.ask_at,
            false => *turn.lingers_until.get_or_insert_with(|| Instant::now() + LINGER),
        };
        let woken = async {
            match &mut turn.watch {
                Some(watch) => watch.next().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = woken => turn.ask_at = Instant::now(),
            () = self.changed.notified() => {}
            () = self.shared.closed(), if waiting => {}
            () = alarm::sleep_until(until) => return !waiting,
        }
        false
    }

    /// Subscribes before the first question of somebody who waits.
    async fn listen(&self, turn: &mut Turn) {
        let waits = |demand: &Demand| demand.patience == Patience::Unlimited;
        if turn.watch.is_some() || self.caps.wake == QueueWake::Poll || !self.work().demands.iter().any(waits) {
            return;
        }
        let watching = bounded(self.shared.config.op_timeout, self.driver.watch(&self.name));
        match caught_in(DRIVER, watching).await {
            Ok(watch) => {
                turn.watch = Some(watch);
                turn.ask_at = Instant::now();
                turn.idle = FIRST_IDLE;
            }
            Err(error) => telemetry::queue_unwatched(&self.name, &error),
        }
    }

    /// What the next request should carry.
    fn load(&self, turn: &Turn) -> Load {
        let mut work = self.work();
        Self::prune(&mut work);
        let count = work.settles.len().min(self.caps.batch);
        let settles: Vec<_> = work.settles.drain(..count).collect();
        let due = turn.ask_at <= Instant::now();
        let fresh = |demand: &Demand| demand.answered == Answered::NotYet;
        let ask = match work.demands.front() {
            // Looked at under the lock: who closes the client looks here, afterwards, whether a receive is on its way.
            Some(front) if (due || work.demands.iter().any(fresh)) && self.shared.ensure_open().is_ok() => {
                let lease = front.lease;
                let same = work.demands.iter().filter(|demand| demand.lease == lease);
                let max = same.map(|demand| demand.max).sum::<usize>().min(self.caps.batch);
                Some(Ask { max, lease, up_to: Self::last_number(&work) })
            }
            _ => None,
        };
        work.on_their_way += settles.len() + usize::from(ask.is_some());
        Load { settles, ask }
    }

    /// One request and its answer.
    async fn exchange(self: &Arc<Self>, turn: &mut Turn, load: Load) {
        let settles: Vec<Settle> = load.settles.iter().map(|pending| pending.settle.clone()).collect();
        let sent_at = LeaseInstant::before_send();
        match caught_in(DRIVER, self.call(settles, load.ask, sent_at)).await {
            Ok(Exchanged { settled, received }) => {
                turn.pause = FIRST_PAUSE;
                self.answer_settlements(load.settles, settled);
                if let Some(ask) = load.ask {
                    telemetry::received(&self.name, &received);
                    turn.ask_at = Instant::now() + wait_for(received.next, turn.idle);
                    if turn.watch.is_some() && received.deliveries.is_empty() {
                        turn.idle = (turn.idle * 2).min(MAX_IDLE);
                    }
                    let full = received.deliveries.len() >= ask.max;
                    self.hand_out(ask, received, sent_at);
                    if full && !self.work().demands.is_empty() {
                        turn.ask_at = Instant::now(); // others wait, with another lease, and the backend does not know
                    }
                }
            }
            Err(error) => {
                telemetry::queue_disturbed(&self.name, &error);
                self.fail(&load, &error);
                for Pending { settle, until, reply } in load.settles {
                    if error.is_transient() {
                        carry_on(self, settle, until);
                    }
                    let _ = reply.send(Err(error.clone()));
                }
                turn.idle = FIRST_IDLE;
                turn.ask_at = Instant::now() + turn.pause;
                turn.pause = (turn.pause * 2).min(LONGEST_PAUSE);
            }
        }
        self.all_answered();
    }

    /// The request itself. When its answer does not come in time, somebody stays behind to return what it may bring.
    async fn call(
        self: &Arc<Self>,
        settles: Vec<Settle>,
        ask: Option<Ask>,
        sent_at: LeaseInstant,
    ) -> Result<Exchanged> {
        let (fetcher, limit) = (Arc::clone(self), self.shared.config.op_timeout);
        let Some(Ask { max, lease, .. }) = ask else {
            let call = self.driver.settle(&self.name, &settles);
            return bounded(limit, call)
                .await
                .map(|settled| Exchanged { settled, received: Received::nothing(Next::Now) });
        };
        let mut call = Box::pin(async move {
            let request = ReceiveRequest { queue: fetcher.name.clone(), max, lease };
            fetcher.driver.exchange(&settles, &request).await
        });
        match timeout(limit, &mut call).await {
            Ok(answer) => answer,
            Err(_) => {
                let fetcher = Arc::clone(self);
                tokio::spawn(async move {
                    if let Ok(Ok(Exchanged { received, .. })) = timeout(lease.get(), call).await {
                        let claims =
                            received.deliveries.into_iter().map(|raw| InFlight::new(&fetcher, raw, sent_at, lease));
                        claims.for_each(drop); // each returns its message
                    }
                });
                Err(Error::new(ErrorKind::Indeterminate, format!("no answer within {limit:?}")))
            }
        }
    }

    fn answer_settlements(&self, pending: Vec<Pending>, mut settled: Vec<Settled>) {
        let complete = settled.len() == pending.len();
        for Pending { reply, .. } in pending.into_iter().rev() {
            let answer = settled.pop().filter(|_| complete);
            let answer = answer.ok_or_else(|| Error::new(ErrorKind::Protocol, "a settlement was not answered"));
            let _ = reply.send(answer);
        }
    }

    /// Gives the messages to those who asked, first come, first served. What nobody wants is returned.
    fn hand_out(self: &Arc<Self>, ask: Ask, received: Received, sent_at: LeaseInstant) {
        let claim = |raw: RawDelivery| InFlight::new(self, raw, sent_at, ask.lease);
        let mut claims: Vec<InFlight> = received.deliveries.into_iter().map(claim).collect();
        let nothing_left = received.next != Next::Now;
        let mut replies = Vec::new();
        let mut work = self.work();
        let mut kept = VecDeque::new();
        while let Some(mut demand) = work.demands.pop_front() {
            let was_asked = demand.number <= ask.up_to;
            if was_asked && demand.lease == ask.lease && !claims.is_empty() && !demand.reply.is_closed() {
                let rest = claims.split_off(claims.len().min(demand.max));
                replies.push((demand.reply, std::mem::replace(&mut claims, rest)));
            } else if was_asked && nothing_left && demand.patience == Patience::Once {
                replies.push((demand.reply, Vec::new()));
            } else {
                if was_asked {
                    demand.answered = Answered::Yes;
                }
                kept.push_back(demand);
            }
        }
        work.demands = kept;
        drop(work);
        for (reply, claims) in replies {
            let _ = reply.send(Ok(claims));
        }
    }

    /// Tells a failure to those who have not heard from the backend yet; one that does not pass by itself, to all.
    fn fail(&self, load: &Load, error: &Error) {
        let Some(ask) = load.ask else { return };
        let mut work = self.work();
        let told = |demand: &Demand| demand.answered == Answered::NotYet || !error.is_transient();
        let concerned = |demand: &Demand| demand.number <= ask.up_to && told(demand);
        let (failed, kept) = std::mem::take(&mut work.demands).into_iter().partition::<Vec<_>, _>(concerned);
        work.demands = kept.into();
        drop(work);
        for demand in failed {
            let _ = demand.reply.send(Err(error.clone()));
        }
    }

    fn refuse_demands(&self) {
        let demands = std::mem::take(&mut self.work().demands);
        for demand in demands {
            let _ = demand.reply.send(Err(Error::new(ErrorKind::Closed, "the client was closed")));
        }
    }
}

fn wait_for(next: Next, idle: Duration) -> Duration {
    match next {
        Next::Now => Duration::ZERO,
        Next::In(span) => span.min(idle),
        Next::Never | Next::Paused => idle,
    }
}

// The fetchers of one client: one for each queue that it uses.

/// The queues of the backend.
pub(crate) fn driver(shared: &Shared) -> Result<&Arc<dyn DelayQueue>> {
    shared.backend.queue().ok_or_else(|| {
        let text = format!("the driver \"{}\" has no delay queues", shared.driver());
        Error::new(ErrorKind::Unsupported, text)
    })
}

#[derive(Debug, Default)]
pub(crate) struct Fetchers {
    of: Mutex<HashMap<QueueName, Weak<Fetcher>>>,
    pub(super) attended: ParkedWatcher,
}

impl Fetchers {
    /// The fetcher of this queue.
    pub(crate) fn get(self: &Arc<Self>, local_queues: &Arc<LocalQueues>, name: QueueName) -> Result<Arc<Fetcher>> {
        let driver = driver(local_queues.shared())?;
        let mut fetchers = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(fetcher) = fetchers.get(&name).and_then(Weak::upgrade) {
            return Ok(fetcher);
        }
        fetchers.retain(|_, fetcher| fetcher.strong_count() > 0);
        let (all, local_queues) = (Arc::clone(self), Arc::clone(local_queues));
        let fetcher = Arc::new(Fetcher::new(all, local_queues, Arc::clone(driver), name.clone()));
        fetchers.insert(name, Arc::downgrade(&fetcher));
        Ok(fetcher)
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
