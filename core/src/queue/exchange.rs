//! The task of a [`Fetcher`]: asks, sleeps until the span that the backend computed has passed, hands out.
//!
//! It has one request on its way at a time; whatever comes up meanwhile leaves together in the next.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::{Instant, timeout};

use crate::driver::{
    DelayQueueExt as _, Exchanged, Next, QueueWake, RawDelivery, ReceiveRequest, Received, Settle, Settled, Watch,
};
use crate::queue::fetcher::{Answered, Demand, Fetcher, InFlight, Patience, Pending, carry_on};
use crate::queue::requests::DRIVER;
use crate::runtime::{bounded, caught_in};
use crate::value::error::{Error, ErrorKind, Result};
use crate::value::queue::Lease;
use crate::value::time::LeaseInstant;
use crate::{runtime, telemetry};

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

/// Runs until there has been nothing to do for a while.
pub(crate) fn run(fetcher: Arc<Fetcher>) -> BoxFuture<'static, ()> {
    Box::pin(fetcher.run())
}

impl Fetcher {
    async fn run(self: Arc<Self>) {
        let mut turn =
            Turn { watch: None, ask_at: Instant::now(), idle: FIRST_IDLE, pause: FIRST_PAUSE, lingers_until: None };
        loop {
            if self.remote.shared.ensure_open().is_err() {
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
            () = self.remote.shared.closed(), if waiting => {}
            () = runtime::sleep_until(until) => return !waiting,
        }
        false
    }

    /// Subscribes before the first question of somebody who waits.
    async fn listen(&self, turn: &mut Turn) {
        let waits = |demand: &Demand| demand.patience == Patience::Unlimited;
        if turn.watch.is_some() || self.remote.caps.wake == QueueWake::Poll || !self.work().demands.iter().any(waits) {
            return;
        }
        let watching = bounded(self.remote.shared.config.op_timeout, self.remote.driver.watch(&self.remote.name));
        match caught_in(DRIVER, watching).await {
            Ok(watch) => {
                turn.watch = Some(watch);
                turn.ask_at = Instant::now();
            }
            Err(error) => telemetry::queue_unwatched(&self.remote.name, &error),
        }
    }

    /// What the next request should carry.
    fn load(&self, turn: &Turn) -> Load {
        let mut work = self.work();
        Self::prune(&mut work);
        let count = work.settles.len().min(self.remote.caps.batch);
        let settles: Vec<_> = work.settles.drain(..count).collect();
        // A settlement can make a message due. Where the backend sends no wake-ups, the request that settles also receives.
        let polls = self.remote.caps.wake == QueueWake::Poll;
        let due = turn.ask_at <= Instant::now() || (polls && !settles.is_empty());
        let fresh = |demand: &Demand| demand.answered == Answered::NotYet;
        let ask = match work.demands.front() {
            // Looked at under the lock: who closes the client looks here, afterwards, whether a receive is on its way.
            Some(front) if (due || work.demands.iter().any(fresh)) && self.remote.shared.ensure_open().is_ok() => {
                let lease = front.lease;
                let same = work.demands.iter().filter(|demand| demand.lease == lease);
                let max = same.map(|demand| demand.max).sum::<usize>().min(self.remote.caps.batch);
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
                    telemetry::received(&self.remote.name, &received);
                    if received.healed.dead > 0 {
                        self.remote.meters.found_dead(received.healed.dead.into());
                    }
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
                telemetry::queue_disturbed(&self.remote.name, &error);
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
        let (fetcher, limit) = (Arc::clone(self), self.remote.shared.config.op_timeout);
        let Some(Ask { max, lease, .. }) = ask else {
            let call = self.remote.driver.settle(&self.remote.name, &settles);
            return bounded(limit, call)
                .await
                .map(|settled| Exchanged { settled, received: Received::nothing(Next::Now) });
        };
        let mut call = Box::pin(async move {
            let request = ReceiveRequest { queue: fetcher.remote.name.clone(), max, lease };
            fetcher.remote.driver.exchange(&settles, &request).await
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
