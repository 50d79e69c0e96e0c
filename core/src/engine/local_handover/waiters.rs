//! A waiter's place in a local queue.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, oneshot};

use crate::engine::ask::Ask;
use crate::engine::hold::HeldEntry;
use crate::engine::lease::Upkeep;
use crate::engine::shared::{Reservation, Shared};
use crate::engine::wait::Wait;
use crate::value::clock::LeaseInstant;
use crate::value::error::{Error, ErrorKind, Result};
use crate::value::name::{Label, LockName};
use crate::value::ttl::Ttl;

/// What a waiter is given.
#[derive(Debug)]
pub(super) enum Offer {
    /// The lease, to be claimed.
    Held(HeldEntry),
    /// Why waiting failed.
    Failed(Error),
    /// Nobody waits for the others any more: each for itself.
    Scattered,
}

/// How a turn came out.
#[derive(Debug)]
pub(crate) enum Turn {
    /// The lease, claimed.
    Held(HeldEntry),
    /// It ended before it was taken, or the task ended that waited for all. The waiter has to start over.
    Over,
    /// The waiter has to go on by itself.
    Scattered,
}

/// Dropped, it is left; and what was offered in the same instant goes to the next.
#[derive(Debug)]
pub(crate) struct Place {
    shared: Arc<Shared>,
    name: LockName,
    max_hold: Option<Duration>,
    number: u64,
    reservation: Option<Reservation>,
    offers: oneshot::Receiver<Offer>,
    left: bool,
}

impl Place {
    pub(super) fn new(
        shared: &Arc<Shared>,
        ask: &Ask,
        number: u64,
        reservation: Option<Reservation>,
        offers: oneshot::Receiver<Offer>,
    ) -> Self {
        let (shared, name, max_hold) = (Arc::clone(shared), ask.name.clone(), ask.max_hold);
        Self { shared, name, max_hold, number, reservation, offers, left: false }
    }

    /// The lease, once it is this waiter's turn.
    ///
    /// Dropping the future loses nothing.
    pub(crate) async fn turn(&mut self) -> Result<Turn> {
        let offer = (&mut self.offers).await;
        self.left = true; // whoever offers something has taken this one out
        match offer {
            Ok(Offer::Held(mut held)) => {
                let claimed = held.claim(self.reservation.take(), self.max_hold);
                Ok(if claimed { Turn::Held(held) } else { Turn::Over })
            }
            Ok(Offer::Scattered) => Ok(Turn::Scattered),
            Ok(Offer::Failed(error)) => Err(error),
            Err(_) => Ok(Turn::Over),
        }
    }

    /// As [`turn`](Self::turn), until `deadline`, of a wait that began at `started`.
    pub(crate) async fn wait(mut self, started: LeaseInstant, deadline: Option<LeaseInstant>) -> Result<Turn> {
        let shared = Arc::clone(&self.shared);
        let patience = async {
            match deadline {
                Some(at) => at.reached().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = shared.closed() => Err(Error::new(ErrorKind::Closed, "the client was closed while waiting")),
            turn = self.turn() => turn,
            () = patience => {
                let waited = LeaseInstant::now().since(started);
                self.leave().await;
                Err(Error::new(ErrorKind::TimedOut, format!("waited {waited:?} among others of this client")))
            }
        }
    }

    /// Leaves. The last one waits until nobody waits at the backend for it any more, as a waiter with a place of its own
    /// does; not for long.
    pub(crate) async fn leave(mut self) {
        self.left = true;
        if let Some(runner) = self.shared.local_queues.leave(&self.shared, &self.name, self.number, None) {
            let _ = tokio::time::timeout(self.shared.config.leave_limit() * 2, runner).await;
        }
    }

    /// Leaves with a lease that the waiter won itself, and that those behind it may hope for.
    pub(crate) fn leave_with(mut self, held: &HeldEntry) {
        self.left = true;
        self.shared.local_queues.leave(&self.shared, &self.name, self.number, Some(held));
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.left {
            self.shared.local_queues.leave(&self.shared, &self.name, self.number, None);
        }
    }
}

// What lets a lease be passed on, and how often and how long.

/// How long after its grant a lease is passed on: other clients wait as long.
const PASSING: Duration = Duration::from_millis(10);
/// How long whoever is given a lease has to take it, before the lease ends: as long as a waiter that the backend gave it.
pub(super) const CLAIM: Duration = Duration::from_secs(2);

/// What a lock is wanted for. A lease is passed on among those only who want the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Terms {
    pub(crate) ttl: Ttl,
    pub(crate) upkeep: Upkeep,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) at_least: Option<Duration>,
    pub(crate) label: Option<Label>,
}

impl Terms {
    /// What is asked for, if others may want the same: a lease that joins others of its owner may not.
    pub(super) fn of(ask: &Ask) -> Option<Self> {
        let Ask { ttl, upkeep, max_hold, at_least, .. } = *ask;
        ask.owner.is_none().then(|| Self { ttl, upkeep, max_hold, at_least, label: ask.label.clone() })
    }

    pub(super) fn ask(&self, name: &LockName) -> Ask {
        let Self { ttl, upkeep, max_hold, at_least, label } = self.clone();
        Ask { name: name.clone(), owner: None, ttl, upkeep, max_hold, at_least, label }
    }

    /// Their hash: a budget is carried by every hold, and the terms are many times as large.
    pub(super) fn mark(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }

    /// How long a lease still has to last without renewal to be passed on.
    pub(super) fn least(&self) -> Duration {
        self.ttl.get().min(CLAIM) / 2
    }
}

/// Goes with a lease that may be passed on: the fences that are left of its grant, and until when.
#[derive(Debug)]
pub(crate) struct HandoverBudget {
    until: LeaseInstant,
    terms: u64,
    left: u32,
}

impl HandoverBudget {
    /// Of a grant that was learned of at `now` and carries `fences` fences, the first holder's included.
    pub(crate) fn new(fences: u32, now: LeaseInstant, terms: &Terms) -> Self {
        let until = now.after(PASSING.min(terms.ttl.get() / 4));
        Self { until, terms: terms.mark(), left: fences.saturating_sub(1) }
    }

    /// Until when the lease may be passed on; `None` if it may not, any more.
    pub(super) fn lasts_until(&self) -> Option<LeaseInstant> {
        (self.left > 0 && LeaseInstant::now() < self.until).then_some(self.until)
    }

    /// Whether the lease may be passed on among those with these terms.
    pub(super) fn is_for(&self, terms: &Terms) -> bool {
        self.terms == terms.mark()
    }

    /// What the next holder gets.
    pub(super) fn passed_on(self) -> Self {
        Self { left: self.left - 1, ..self }
    }
}

// The task that waits at the backend for all waiters of a local queue.

/// What it does next.
pub(super) enum Next {
    /// Nothing until then, or until told: a lease is being passed on.
    Pause(LeaseInstant, Arc<Notify>),
    /// Waits for the lock; whether the backend has answered before.
    Ask(Ask, bool),
    /// Nobody needs it any more.
    End,
}

/// Dropped before its end, it is noticed.
pub(super) struct RemoteWaiter {
    shared: Arc<Shared>,
    name: LockName,
    number: u64,
}

impl RemoteWaiter {
    pub(super) fn new(shared: &Arc<Shared>, name: &LockName, number: u64) -> Self {
        Self { shared: Arc::clone(shared), name: name.clone(), number }
    }

    /// Runs until nobody needs it any more, or until told to `stop`.
    pub(super) async fn run(self, stop: Arc<Notify>) {
        let local_queues = &self.shared.local_queues;
        loop {
            match local_queues.next(&self.shared, &self.name, self.number) {
                Next::End => return,
                Next::Pause(until, over) => tokio::select! {
                    () = until.reached() => {}
                    () = over.notified() => {}
                },
                Next::Ask(ask, heard) => {
                    let mut wait = Wait::for_others(&self.shared, &ask, heard);
                    tokio::select! {
                        biased;
                        () = stop.notified() => return wait.leave().await,
                        ended = wait.outcome() => match ended {
                            Ok(held) => local_queues.give(held),
                            Err(error) if error.is_transient() && !wait.was_heard() => {
                                local_queues.scatter(&self.shared, &self.name);
                            }
                            Err(error) => local_queues.fail(&self.shared, &self.name, &error),
                        },
                    }
                }
            }
        }
    }
}

impl Drop for RemoteWaiter {
    fn drop(&mut self) {
        self.shared.local_queues.lose_task(&self.shared, &self.name, self.number);
    }
}
