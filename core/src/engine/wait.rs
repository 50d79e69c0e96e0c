//! Requests for a lock until it is granted or time runs out.

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use crate::driver::{ErrorExt as _, Family, Handed, Handing, PermitHold, Queueing, Signal, Waiting, Watch};
use crate::engine::ask::{Ask, Terms, Wanted};
use crate::engine::attempt::{Answered, Attempt};
use crate::engine::hold::HeldEntry;
use crate::engine::lease::{Kind, Lease, Upkeep};
use crate::engine::local_handover::{FirstAsk, Joined, LocalQueues, Next, Place, Turn};
use crate::engine::shared::{Counted, Reservation, Shared};
use crate::meters::locks::{Acquired, Handover};
use crate::runtime::{waiting_within, yielding};
use crate::value::error::{Error, ErrorKind, LockName, Result};
use crate::value::time::{LeaseInstant, Ttl};
use crate::{runtime, telemetry};

/// The limit of a wait without a deadline at a silent backend, in timeouts of one request.
const FIRST_ANSWER: u32 = 5;

/// The limit of a wait for a busy lock.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Patience {
    /// Not at all: one attempt.
    None,
    /// Until this long after the call.
    Within(Duration),
    /// Without a limit.
    Unlimited,
}

/// Takes the lock; `None` when it is busy and there is no patience.
pub(crate) async fn acquire(queues: &Arc<LocalQueues>, ask: &Ask, patience: Patience) -> Result<Option<HeldEntry>> {
    let shared = queues.shared();
    let started = LeaseInstant::before_send();
    let acquiring = shared.meters.acquiring(&ask.name, started);
    // The handle may show the number of an earlier wait.
    ask.report(None);
    let work = async {
        shared.check(ask)?;
        match patience {
            Patience::None => once(shared, ask, started).await,
            Patience::Within(Duration::ZERO) => match once(shared, ask, started).await? {
                None => Err(Error::new(ErrorKind::TimedOut, "the lock is busy, and there was no time to wait")),
                won => Ok(won),
            },
            Patience::Within(most) => wait(queues, ask, started, Some(most)).await.map(Some),
            Patience::Unlimited => wait(queues, ask, started, None).await.map(Some),
        }
    };
    let outcome = |ended: &Result<Option<Won>>| how(ended).outcome();
    let mut ended = telemetry::in_acquire_span(shared.driver(), &ask.name, yielding(work), outcome).await;
    let how = how(&ended);
    let won = ended.as_mut().ok().and_then(Option::as_mut);
    acquiring.ends(how, won.map(|won| won.held.is_held()));
    let won = ended.map_err(|error| error.during(shared.driver(), "acquire", &ask.name))?;
    Ok(won.map(|won| won.held))
}

fn how(ended: &Result<Option<Won>>) -> Acquired {
    match ended {
        Ok(Some(won)) => won.how,
        Ok(None) => Acquired::Busy,
        Err(error) => Acquired::Failed(error.kind()),
    }
}

/// A lock that was granted, and its origin.
struct Won {
    held: HeldEntry,
    how: Acquired,
}

async fn once(shared: &Arc<Shared>, ask: &Ask, started: LeaseInstant) -> Result<Option<Won>> {
    let mut attempt = Attempt::new(shared.reserve()?, ask, Queueing::None, 1);
    match attempt.ask(call_limit(shared, ask), None, Some(started)).await? {
        Answered::Won(held) => Ok(Some(Won { held, how: Acquired::AtOnce })),
        Answered::Busy(_) | Answered::Spent => Ok(None),
        Answered::Late => {
            let text = "the lease had ended before its grant arrived; its release is scheduled";
            Err(Error::new(ErrorKind::Lost, text))
        }
    }
}

/// Waits in the client's local queue if it has one, or in the backend's.
async fn wait(queues: &Arc<LocalQueues>, ask: &Ask, started: LeaseInstant, most: Option<Duration>) -> Result<Won> {
    let shared = queues.shared();
    let _counted = Counted::new(&shared.waiters);
    let deadline = most.map(|most| started.after(most));
    let waiting = async || wait_in_turn(queues, ask, started, deadline).await;
    let won = watched(shared, &ask.name, ask.wanted.into(), ask.ttl, waiting).await?;
    telemetry::granted(&ask.name, won.held.fence(), started);
    Ok(won)
}

async fn wait_in_turn(
    queues: &Arc<LocalQueues>,
    ask: &Ask,
    started: LeaseInstant,
    deadline: Option<LeaseInstant>,
) -> Result<Won> {
    let shared = queues.shared();
    let (mut shares, mut now) = (shared.config.shares, Some(started));
    loop {
        let joined = if shares { queues.join(ask)? } else { Joined::Alone(None) };
        match joined {
            Joined::Alone(first) => {
                let wait = Wait::new(queues, ask, shared.reserve()?, started, deadline);
                return Wait { now, ..wait.asking(first) }.run().await;
            }
            Joined::Place(place) => match place.wait(started, deadline).await? {
                Turn::Held(held) => return Ok(Won { held, how: Acquired::Waited }),
                // The lease ended before it was taken, or the task's runtime did: the wait begins anew, with the same
                // deadline.
                Turn::Over => {}
                Turn::Scattered => shares = false,
            },
        }
        // The reading is old by now; a lease would count from it.
        now = None;
    }
}

/// Returns the permission for a hand-over. A lease with an exact length, or one that joins entries of its owner, begins
/// with a request.
fn accepts(ask: &Ask) -> Handing {
    match (ask.upkeep, ask.wanted) {
        (Upkeep::Renewed, Wanted::Lock | Wanted::Permits(..)) => Handing::Direct,
        (Upkeep::Fixed, _) | (_, Wanted::Entry(_)) => Handing::Asked,
    }
}

/// Returns the time limit of a request: an answer is of no use after the end of the lease that it could grant.
fn call_limit(shared: &Shared, ask: &Ask) -> Duration {
    shared.config.op_timeout.min(ask.ttl.get())
}

pub(crate) struct Wait<'a> {
    queues: &'a Arc<LocalQueues>,
    shared: &'a Arc<Shared>,
    ask: &'a Ask,
    queue: Queueing,
    /// True if the backend wakes waiters; otherwise they ask again by themselves.
    is_woken: bool,
    started: LeaseInstant,
    /// The time, while there was no wait since the clock was read.
    now: Option<LeaseInstant>,
    deadline: Option<LeaseInstant>,
    attempt: Attempt,
    watch: Option<Watch>,
    position: Option<u32>,
    /// True if the backend has answered this wait at least once; from then on it waits through outages.
    heard: bool,
    /// The start of the present silence: since then, the backend has answered no request of this client.
    silent_since: LeaseInstant,
    /// The number of answers of the backend to this client when that was noted.
    answers: u64,
    /// The sharing with other tasks of the client, once this one waits.
    sharing: Sharing,
    /// True if it waits on behalf of others, which receive the number of waiters ahead of it.
    for_others: bool,
    /// Announces this request to others, until it is answered.
    first: Option<FirstAsk<'a>>,
    last_error: Option<Error>,
    pause: Pause,
}

/// The sharing of a wait.
enum Sharing {
    /// No sharing.
    Alone,
    /// With later tasks, from the first busy answer on.
    Possible,
    /// With tasks that joined.
    Shared(Place),
}

impl<'a> Wait<'a> {
    fn new(
        queues: &'a Arc<LocalQueues>,
        ask: &'a Ask,
        place: Reservation,
        started: LeaseInstant,
        deadline: Option<LeaseInstant>,
    ) -> Self {
        let shared = queues.shared();
        let capabilities = shared.backend.locks().capabilities();
        let waiting = match (ask.wanted, shared.backend.permits()) {
            (Wanted::Permits(..), Some(permits)) => permits.capabilities().waiting,
            _ => capabilities.waiting,
        };
        let is_woken = waiting != Waiting::Poll;
        let presence = shared.config.presence;
        let queue = match (ask.wanted, is_woken) {
            (_, true) => Queueing::Join { presence, accepts: accepts(ask) },
            // Without a line, a heavy request is served because the backend knows that it waits.
            (Wanted::Permits(..), false) => Queueing::Join { presence, accepts: Handing::Asked },
            (Wanted::Lock | Wanted::Entry(_), false) => Queueing::None,
        };
        let fences = match queue {
            Queueing::Join { accepts: Handing::Direct, .. } if ask.may_be_passed_on() => {
                shared.config.holders_per_grant.min(capabilities.max_fences).max(1)
            }
            _ => 1,
        };
        let attempt = Attempt::new(place, ask, queue, fences);
        Self {
            queues,
            shared,
            ask,
            queue,
            is_woken,
            started,
            now: None,
            deadline,
            attempt,
            watch: None,
            position: None,
            heard: false,
            silent_since: started,
            answers: shared.answers.load(Ordering::Relaxed),
            sharing: if shared.config.shares && queue != Queueing::None { Sharing::Possible } else { Sharing::Alone },
            for_others: false,
            first: None,
            last_error: None,
            pause: Pause::default(),
        }
    }

    fn asking(mut self, first: Option<FirstAsk<'a>>) -> Self {
        self.first = first.filter(|_| matches!(self.sharing, Sharing::Possible));
        self
    }

    /// Waits on behalf of others, each with its own patience. `heard`: the backend has answered one of them before.
    fn for_others(queues: &'a Arc<LocalQueues>, ask: &'a Ask, heard: bool) -> Self {
        let wait = Self::new(queues, ask, queues.shared().reserve_for_others(), LeaseInstant::now(), None);
        Self { heard, sharing: Sharing::Alone, for_others: true, ..wait }
    }

    fn was_heard(&self) -> bool {
        self.heard
    }

    async fn run(mut self) -> Result<Won> {
        let ended = self.outcome().await;
        // A caller whose time has passed may ask again at once, and must not meet its own place. After other errors the
        // drop leaves the queue in the background.
        if ended.as_ref().is_err_and(Error::is_timed_out) {
            Box::pin(self.leave()).await; // seldom, and large
        }
        ended
    }

    /// Returns the lock, or the error.
    async fn outcome(&mut self) -> Result<Won> {
        let shared = self.shared;
        tokio::select! {
            biased;
            // First: one that is done at once listens for nothing. A close that comes before it has to wait is seen all the same.
            won = self.until_won() => won,
            () = shared.closed() => Err(Error::new(ErrorKind::Closed, "the client was closed while waiting")),
        }
    }

    /// Gives up the place in the queue, and waits until the backend has acknowledged that: the next request for the
    /// lock does not meet this waiter. Not for long, and not after an outage.
    async fn leave(self) {
        let answers = self.last_error.is_none();
        let undone = self.attempt.give_up();
        drop(self.watch);
        if let Sharing::Shared(place) = self.sharing {
            place.leave().await;
        }
        if let (true, Some(undone)) = (answers, undone) {
            let _ = tokio::time::timeout(self.shared.config.leave_limit(), undone).await;
        }
    }

    async fn until_won(&mut self) -> Result<Won> {
        let (mut how, mut handed_over) = (Acquired::AtOnce, false);
        loop {
            let pause = match self.listen_and_ask().await {
                Ok(Answered::Won(held)) => {
                    if handed_over {
                        self.shared.meters.handed_over(&self.ask.name, Handover::Remote);
                    }
                    return Ok(Won { held: self.won(held), how });
                }
                Ok(Answered::Busy(busy)) => {
                    // The backend was heard, and the wait has a place: from here on it outlasts outages, and others may
                    // share it.
                    handed_over = false;
                    self.heard = true;
                    self.is_placed(busy.position);
                    self.last_error = None;
                    self.share();
                    self.after_busy(busy.recheck_after)
                }
                Ok(Answered::Spent | Answered::Late) => {
                    // The subscription is for the old token, so it ends with it.
                    self.watch = None;
                    self.attempt.renew_token(self.ask, self.queue);
                    self.pause.polling()
                }
                Err(error) => self.after_error(error)?,
            };
            how = Acquired::Waited;
            match self.sleep(pause).await? {
                Woken::Passed(held) => return Ok(Won { held, how }),
                Woken::Signalled(Signal::Handed(handed)) => {
                    handed_over = true;
                    if let Some(held) = self.take_over(handed)? {
                        self.shared.meters.handed_over(&self.ask.name, Handover::Remote);
                        return Ok(Won { held: self.won(held), how });
                    }
                }
                Woken::Signalled(_) | Woken::InTime => {}
            }
        }
    }

    /// Takes over a lease that was handed to this waiter, or leaves its extension to the next request.
    fn take_over(&mut self, handed: Handed) -> Result<Option<HeldEntry>> {
        let short = handed.ttl < self.ask.ttl.get();
        if short && self.shared.config.confirmation.comes_first() {
            return Ok(None);
        }
        self.attempt.take_over(handed)
    }

    fn is_placed(&mut self, position: Option<u32>) {
        self.position = position;
        self.ask.report(position);
        if self.for_others {
            self.queues.is_placed(&self.ask.name, position);
        }
    }

    /// Lets other tasks of the client share the wait.
    fn share(&mut self) {
        // The queue begins before the announcement ends: a task that arrives in between joins instead of asking as
        // well.
        if matches!(self.sharing, Sharing::Possible) {
            self.sharing = self.queues.begin(self.ask).map_or(Sharing::Alone, Sharing::Shared);
        }
        self.first = None;
    }

    fn won(&mut self, held: HeldEntry) -> HeldEntry {
        let queues = Arc::clone(self.queues);
        let held = held.with_successors(|| Terms::of(self.ask), queues);
        if let Sharing::Shared(place) = std::mem::replace(&mut self.sharing, Sharing::Alone) {
            place.leave_with(&held);
        }
        held
    }

    async fn listen_and_ask(&mut self) -> Result<Answered> {
        // In this order: a release between a busy answer and a later subscription would send its wake-up to no one.
        self.listen().await?;
        self.attempt.ask(call_limit(self.shared, self.ask), self.deadline, self.now.take()).await
    }

    /// Subscribes to wake-ups, if the driver sends any.
    async fn listen(&mut self) -> Result<()> {
        if !self.is_woken || self.watch.is_some() {
            return Ok(());
        }
        let op_timeout = self.shared.config.op_timeout;
        let limit = op_timeout.min(self.left().unwrap_or(Duration::MAX));
        let (backend, name, token) = (&self.shared.backend, &self.ask.name, self.attempt.token());
        let watch = async {
            match self.ask.wanted {
                Wanted::Lock | Wanted::Entry(_) => backend.locks().watch(name, token).await,
                Wanted::Permits(family, _) => {
                    let hold = PermitHold::new(family, name.clone(), *token);
                    backend.required_permits()?.watch(&hold).await
                }
            }
        };
        let now = &mut self.now;
        self.watch = Some(match waiting_within(limit, || *now = None, watch).await {
            Some(watch) => watch?,
            None if limit < op_timeout => return Err(self.timed_out()), // the caller's patience was over first
            None => return Err(self.unheard(limit)),
        });
        Ok(())
    }

    fn after_busy(&mut self, recheck_after: Option<Duration>) -> Duration {
        let fallback = match self.queue {
            Queueing::Join { presence, .. } if self.is_woken => {
                self.pause.reset();
                presence / 3
            }
            _ => self.pause.polling(),
        };
        // A millisecond on top: expiry is noticed after it, not before.
        recheck_after.map_or(fallback, |after| fallback.min(after + Duration::from_millis(1)))
    }

    /// Returns the pause after a failed request, or the error when it must not be waited out: the caller's patience
    /// covers the first answer as well, and a caller without a limit gets the error of a silent backend soon. A backend
    /// that answers other requests of the client meanwhile is slow, and not silent.
    fn after_error(&mut self, error: Error) -> Result<Duration> {
        let passing = matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Indeterminate);
        if !passing {
            return Err(error);
        }
        telemetry::wait_disturbed(&self.ask.name, &error);
        self.last_error = Some(error);
        let before = std::mem::replace(&mut self.answers, self.shared.answers.load(Ordering::Relaxed));
        if self.answers != before {
            self.silent_since = LeaseInstant::now();
        }
        let silence = LeaseInstant::now().since(self.silent_since);
        let unheard = self.deadline.is_none() && !self.heard && silence >= self.shared.config.op_timeout * FIRST_ANSWER;
        if unheard { Err(self.timed_out()) } else { Ok(self.pause.outage()) }
    }

    /// Sleeps until there is a reason to continue, and returns the reason.
    async fn sleep(&mut self, pause: Duration) -> Result<Woken> {
        let left = self.left().unwrap_or(Duration::MAX);
        if left.is_zero() {
            return Err(self.timed_out());
        }
        let signal = async {
            match &mut self.watch {
                Some(watch) => watch.next().await,
                None => pending().await,
            }
        };
        let turn = async {
            match &mut self.sharing {
                Sharing::Shared(place) => place.turn().await,
                Sharing::Alone | Sharing::Possible => pending().await,
            }
        };
        let woken = tokio::select! {
            turn = turn => {
                self.sharing = Sharing::Alone;
                // What failed for the others did not fail for this one, which has a place of its own.
                if let Ok(Turn::Held(held)) = turn { Woken::Passed(held) } else { Woken::InTime }
            }
            signal = signal => Woken::Signalled(signal),
            () = rest(self.queue, pause.min(left)) => Woken::InTime,
        };
        // At the deadline there is no time for another request, but a lease that has arrived needs none.
        let late = self.left() == Some(Duration::ZERO) && !matches!(woken, Woken::Passed(_));
        if late { Err(self.timed_out()) } else { Ok(woken) }
    }

    fn left(&self) -> Option<Duration> {
        self.deadline.map(LeaseInstant::remaining)
    }

    fn unheard(&self, limit: Duration) -> Error {
        let text = format!("subscribing to wake-ups timed out after {limit:?}; no lock request was sent");
        Error::new(ErrorKind::Unavailable, text)
    }

    fn waited(&self) -> Duration {
        LeaseInstant::now().since(self.started)
    }

    /// Returns the error at the deadline. A backend that did not answer in enough time is an outage and not a busy
    /// lock.
    fn timed_out(&mut self) -> Error {
        let waited = self.waited();
        let had_time = waited >= self.shared.config.op_timeout;
        let outage = |error: &mut Error| had_time || error.kind() == ErrorKind::Unavailable;
        if !self.heard
            && let Some(error) = self.last_error.take_if(outage)
        {
            return error;
        }
        let place = self.position.map(|before| format!(", with {before} waiters ahead")).unwrap_or_default();
        let cause = if self.last_error.is_some() { ", and the last request failed" } else { "" };
        let error = Error::new(ErrorKind::TimedOut, format!("waited {waited:?}{place}{cause}"));
        match self.last_error.take() {
            Some(source) => error.with_source(source),
            None => error,
        }
    }
}

/// The reason why a sleep ended.
enum Woken {
    /// A signal of the backend.
    Signalled(Signal),
    /// A lease handed over by another task of the client.
    Passed(HeldEntry),
    /// The end of the pause.
    InTime,
}

// The task that waits at the backend for all waiters of a local queue.

/// Waits on behalf of all, until no waiter is left, or until `stop`.
pub(crate) fn in_place_of_all(
    queues: &Arc<LocalQueues>,
    name: &LockName,
    number: u64,
    stop: Arc<Notify>,
) -> BoxFuture<'static, ()> {
    let waiter = InPlaceOfAll { queues: Arc::clone(queues), name: name.clone(), number };
    Box::pin(waiter.run(stop))
}

/// A wait on behalf of all, whose early drop is noticed.
struct InPlaceOfAll {
    queues: Arc<LocalQueues>,
    name: LockName,
    number: u64,
}

impl InPlaceOfAll {
    async fn run(self, stop: Arc<Notify>) {
        let queues = &self.queues;
        loop {
            match queues.next(&self.name, self.number) {
                Next::End => return,
                Next::Pause(until, over) => tokio::select! {
                    () = until.reached() => {}
                    () = over.notified() => {}
                },
                Next::Ask(ask, heard) => {
                    let mut wait = Wait::for_others(queues, &ask, heard);
                    tokio::select! {
                        biased;
                        // First: the last waiter has left, and waits until the place at the backend is given up.
                        () = stop.notified() => return wait.leave().await,
                        ended = wait.outcome() => match ended {
                            Ok(Won { held, .. }) => queues.give(held),
                            // No answer ever came: each waiter has its own limit for that. After one answer the wait
                            // outlasts outages, so a failure concerns all.
                            Err(error) if error.is_transient() && !wait.was_heard() => {
                                queues.scatter(&self.name);
                            }
                            Err(error) => queues.fail(&self.name, &error),
                        },
                    }
                }
            }
        }
    }
}

impl Drop for InPlaceOfAll {
    fn drop(&mut self) {
        self.queues.lose_task(&self.name, self.number);
    }
}

// A warning when a wait is for a hold of the same client. That may be another task's, which is still at work; or the waiter's own,
// and then nobody can release it.

/// Waits, and warns once if one hold of the client blocks the lock for long.
pub(crate) async fn watched<T>(
    shared: &Shared,
    name: &LockName,
    kind: Kind,
    ttl: Ttl,
    wait: impl AsyncFnOnce() -> T,
) -> T {
    // One holder of several does not block a semaphore by itself.
    if !telemetry::REPORTS || kind == Kind::Permits(Family::Semaphore) {
        return wait().await;
    }
    tokio::select! {
        biased;
        ended = wait() => ended,
        never = warn(shared, name, kind, ttl) => match never {},
    }
}

/// Checks half a ttl after the wait began, so that short waits cost nothing, and again after a whole one: a lock that
/// moves from task to task has another holder by then.
async fn warn(shared: &Shared, name: &LockName, kind: Kind, ttl: Ttl) -> Infallible {
    let half = ttl.get() / 2;
    sleep(half).await;
    let is_permits = |kind| matches!(kind, Kind::Permits(_));
    let is_same = |lease: &Lease| {
        let other = lease.key.kind();
        lease.name() == name && if is_permits(kind) { other == kind } else { !is_permits(other) }
    };
    let held = |lease: &Lease| if is_same(lease) { lease.holder() } else { None };
    let found = shared.renewer.find(|lease| Some((held(lease)?, Arc::downgrade(lease))));
    if let Some((holder, lease)) = found {
        sleep(half).await;
        if lease.upgrade().is_some_and(|lease| lease.holder() == Some(holder)) {
            telemetry::waits_for_own_client(name, ttl.get());
        }
    }
    pending().await
}

// How long to wait before asking again.

/// Pauses that grow, with jitter, so that many clients do not retry at once.
#[derive(Debug, Default)]
pub(crate) struct Pause {
    step: u32,
}

impl Pause {
    pub(crate) fn reset(&mut self) {
        self.step = 0;
    }

    /// For drivers that cannot wake: 5 ms, doubling to 250 ms.
    pub(crate) fn polling(&mut self) -> Duration {
        self.next(Duration::from_millis(5), Duration::from_millis(250))
    }

    /// While the backend fails: 50 ms, doubling to 1 s.
    pub(crate) fn outage(&mut self) -> Duration {
        self.next(Duration::from_millis(50), Duration::from_secs(1))
    }

    /// While an observed lock is held: 50 ms, doubling to 1 s.
    pub(crate) fn looking(&mut self) -> Duration {
        self.next(Duration::from_millis(50), Duration::from_secs(1))
    }

    /// While there is no leader: 50 ms, doubling to `most`.
    pub(crate) fn up_to(&mut self, most: Duration) -> Duration {
        self.next(Duration::from_millis(50), most)
    }

    /// Returns a pause between half and all of `base × 2^step`, at most `cap`.
    fn next(&mut self, base: Duration, cap: Duration) -> Duration {
        let full = base.saturating_mul(1 << self.step.min(10)).min(cap);
        self.step += 1;
        full.mul_f64(0.5 + 0.5 * fastrand::f64())
    }
}

/// Waits before a waiter asks again. A waiter that keeps its place in the backend's queue by asking is not delayed by a
/// task that blocks the worker that drives the timers.
async fn rest(queue: Queueing, pause: Duration) {
    match queue {
        Queueing::None => sleep(pause).await,
        Queueing::Join { .. } => runtime::sleep_until(Instant::now() + pause).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_half_to_all_of_a_span_that_doubles_up_to_its_longest() {
        type Next = fn(&mut Pause) -> Duration;
        let polling: [u64; 8] = [5, 10, 20, 40, 80, 160, 250, 250];
        let failing: [u64; 8] = [50, 100, 200, 400, 800, 1_000, 1_000, 1_000];
        let kinds: [(Next, _); 4] = [
            (Pause::polling, polling),
            (Pause::outage, failing),
            (Pause::looking, failing),
            (|pause| pause.up_to(Duration::from_millis(1_000)), failing),
        ];
        for (next, spans) in kinds {
            let mut seen = Vec::new();
            for _ in 0..50 {
                let mut pause = Pause::default();
                let first = next(&mut pause);
                pause.reset();
                for span in spans.map(Duration::from_millis) {
                    let paused = next(&mut pause);
                    assert!(paused >= span / 2 && paused <= span, "{paused:?} of {span:?}");
                }
                (0..100).for_each(|_| assert!(next(&mut pause) * 2 >= Duration::from_millis(spans[7]), "for ever"));
                seen.push(first);
            }
            seen.dedup();
            assert!(seen.len() > 1, "clients do not come back as one");
        }
    }
}
