//! What goes between one client and one queue: a task that asks on behalf of all local receivers, and takes their
//! settlements along.
//!
//! There is one for each client and queue. It has one request on its way at a time; whatever comes up meanwhile
//! leaves together in the next. Receivers own no request: dropping one takes back its demand, and what arrives for
//! nobody is returned.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, oneshot};

use super::claim::Claim;
use super::extending::Extensions;
use super::together::Pushes;
use super::{Lease, QueueName};
use crate::driver::{DelayQueue, QueueCapabilities, Settle, Settled};
use crate::engine::shared::Shared;
use crate::value::clock::LeaseInstant;
use crate::value::error::{Error, ErrorKind, Result};

/// Who panicked, in errors.
pub(super) const DRIVER: &str = "the driver";

pub(crate) struct Pump {
    pub(crate) shared: Arc<Shared>,
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
    /// Settlements that are on their way.
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
    pub(super) reply: oneshot::Sender<Result<Vec<Claim>>>,
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

/// Tells the pump when the caller goes away.
struct Leaving<'a>(&'a Pump);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.0.changed.notify_one();
    }
}

impl Pump {
    pub(super) fn new(shared: Arc<Shared>, driver: Arc<dyn DelayQueue>, name: QueueName) -> Self {
        let caps = driver.capabilities();
        let (work, extensions, pushes) = (Mutex::default(), Extensions::default(), Pushes::default());
        let in_hand = AtomicUsize::new(0);
        let (changed, settled) = (Notify::new(), Notify::new());
        Self { shared, driver, name, caps, work, extensions, pushes, in_hand, changed, settled }
    }

    pub(super) fn work(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds what is known of the circumstances to an error.
    pub(super) fn told(&self, error: Error, operation: &'static str) -> Error {
        error.during(self.shared.driver(), operation, self.name.for_errors())
    }

    /// Waits for up to `max` messages.
    pub(super) async fn demand(self: &Arc<Self>, max: usize, lease: Lease, patience: Patience) -> Result<Vec<Claim>> {
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
        self.shared.pumps.attended.room.notify_waiters();
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
        self.shared.pumps.attended.room.notify_waiters();
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
            let pump = Arc::downgrade(self);
            self.shared.background.run(move || {
                let pump = pump.upgrade();
                async move {
                    if let Some(pump) = pump {
                        pump.work().on_their_way = 0; // a runtime that ended took them along
                        pump.run().await;
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

    pub(super) fn settlements_answered(&self) {
        self.work().on_their_way = 0;
        self.settled.notify_waiters();
    }

    /// Waits until no settlement is under way.
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

impl fmt::Debug for Pump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pump").field("name", &self.name).finish_non_exhaustive()
    }
}
