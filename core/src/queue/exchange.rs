//! The task of a [`Fetcher`]: asks, sleeps for the span that the backend computed, hands out messages.
//!
//! It has one request on its way at a time; later work leaves together in the next.

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

/// The longest sleep of a waiting receiver without a watch, or before the watch is known to work: the bound on its
/// lateness when every wake-up is lost.
pub(crate) const FIRST_IDLE: Duration = Duration::from_secs(2);

/// The longest sleep with a watch: reached in steps, each twice as long as the last, as long as nothing fails. A
/// backend may wake one client for each message, and relies on the others to ask within this span.
pub(crate) const MAX_IDLE: Duration = Duration::from_secs(20);

/// The time that the task continues to listen after its last work, in case more arrives.
const LINGER: Duration = Duration::from_secs(10);

/// The pause after the first failed request; doubled after each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The state of the task between two requests.
struct Turn {
    watch: Option<Watch>,
    /// The time of the next request for waiting receivers.
    ask_at: Instant,
    /// The longest sleep before that.
    idle: Duration,
    pause: Duration,
    /// The time until which it continues without work.
    lingers_until: Option<Instant>,
}

/// The contents of one request.
struct Load {
    settles: Vec<Pending>,
    ask: Option<Ask>,
}

#[derive(Clone, Copy)]
struct Ask {
    max: usize,
    lease: Lease,
    /// The last demand that this request answers.
    up_to: u64,
}

/// Runs until there has been no work for a while.
pub(crate) fn run(fetcher: Arc<Fetcher>) -> BoxFuture<'static, ()> {
    Box::pin(fetcher.run())
}

impl Fetcher {
    async fn run(self: Arc<Self>) {
        let mut turn =
            Turn { watch: None, ask_at: Instant::now(), idle: FIRST_IDLE, pause: FIRST_PAUSE, lingers_until: None };
        loop {
            // Demands end when the client closes; settlements are still sent, and `close` waits for them.
            if self.remote.shared.ensure_open().is_err() {
                self.refuse_demands();
            }
            // Before the request: a message that is pushed between an empty answer and a later subscription would wait
            // for the whole sleep.
            self.listen(&mut turn).await;
            let load = self.load(&turn);
            if !load.settles.is_empty() || load.ask.is_some() {
                turn.lingers_until = None;
                self.exchange(&mut turn, load).await;
                continue;
            }
            // `may_end` looks under the lock, so that work which arrived after the sleep is not left behind.
            if self.sleep(&mut turn).await && self.may_end() {
                return;
            }
        }
    }

    /// Waits for work; returns true if there was none for long.
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
            // Without a receiver there is nothing to refuse, and a closed client would never let this sleep.
            () = self.remote.shared.closed(), if waiting => {}
            () = runtime::sleep_until(until) => return !waiting,
        }
        false
    }

    /// Subscribes before the first request for a waiting receiver.
    async fn listen(&self, turn: &mut Turn) {
        let waits = |demand: &Demand| demand.patience == Patience::Unlimited;
        if turn.watch.is_some() || self.remote.caps.wake == QueueWake::Poll || !self.work().demands.iter().any(waits) {
            return;
        }
        let watching = bounded(self.remote.shared.config.op_timeout, self.remote.driver.watch(&self.remote.name));
        match caught_in(DRIVER, watching).await {
            Ok(watch) => {
                turn.watch = Some(watch);
                // What became due before the subscription sent no wake-up.
                turn.ask_at = Instant::now();
            }
            Err(error) => telemetry::queue_unwatched(&self.remote.name, &error),
        }
    }

    /// Returns the contents of the next request.
    fn load(&self, turn: &Turn) -> Load {
        let mut work = self.work();
        // First: messages for a caller that has left would have to be returned, and be late for the next one.
        Self::prune(&mut work);
        let count = work.settles.len().min(self.remote.caps.batch);
        let settles: Vec<_> = work.settles.drain(..count).collect();
        // A settlement can make a message due. Where the backend sends no wake-ups, the request that settles also receives.
        let polls = self.remote.caps.wake == QueueWake::Poll;
        let due = turn.ask_at <= Instant::now() || (polls && !settles.is_empty());
        // A new demand asks at once: the planned time belongs to an answer from before it.
        let fresh = |demand: &Demand| demand.answered == Answered::NotYet;
        let ask = match work.demands.front() {
            // Looked at under the lock: who closes the client looks here, afterwards, whether a receive is on its way.
            Some(front) if (due || work.demands.iter().any(fresh)) && self.remote.shared.ensure_open().is_ok() => {
                // A request has one lease. Demands with another one wait for the next request.
                let lease = front.lease;
                let same = work.demands.iter().filter(|demand| demand.lease == lease);
                let max = same.map(|demand| demand.max).sum::<usize>().min(self.remote.caps.batch);
                Some(Ask { max, lease, up_to: Self::last_number(&work) })
            }
            _ => None,
        };
        // Under the lock that `drained` looks under, so that it sees each of them as work or as on its way.
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
                    // Longer sleeps are safe only while a watch brings wake-ups.
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
                    // The outcome is unknown, and the receipt makes a repetition harmless. The caller receives the
                    // error now; it need not wait for the repetitions.
                    if error.is_transient() {
                        carry_on(self, settle, until);
                    }
                    let _ = reply.send(Err(error.clone()));
                }
                // The failure may have cost the watch a wake-up.
                turn.idle = FIRST_IDLE;
                turn.ask_at = Instant::now() + turn.pause;
                turn.pause = (turn.pause * 2).min(LONGEST_PAUSE);
            }
        }
        // Last: a client that closes continues here, and every message must have an owner by then.
        self.all_answered();
    }

    /// Sends the request. If its answer does not arrive in time, a task remains to return the messages that it may
    /// bring.
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
        // Boxed, to outlive this call: dropped at the limit, it would leave its messages leased to no receiver.
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

    /// Gives the messages to the receivers, first come, first served. Messages without a receiver are returned.
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
                // A demand that was made after the request left has no answer yet, nor has one of another lease while
                // more is due: both remain.
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
            // The messages of a receiver that has just left come back in the error and return themselves when dropped.
            let _ = reply.send(Ok(claims));
        }
    }

    /// Reports a failure to the receivers without an answer from the backend yet; one that does not pass by itself, to
    /// all.
    fn fail(&self, load: &Load, error: &Error) {
        let Some(ask) = load.ask else { return };
        let mut work = self.work();
        // A receiver that was answered before waits through the outage.
        let reported = |demand: &Demand| demand.answered == Answered::NotYet || !error.is_transient();
        let concerned = |demand: &Demand| demand.number <= ask.up_to && reported(demand);
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
