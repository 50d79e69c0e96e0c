//! One entry of a lease, as a guard owns it.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Poll, ready};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::time::timeout;

use crate::driver::{ErrorExt as _, Hold, LockTurn, Renewed};
use crate::engine::ask::{Ask, HandoverBudget, Terms};
use crate::engine::lease::{Entry, Kind, Lease, LeaseKey, Over, Past};
use crate::engine::reaper::{CHASE, Cleanup, Undo, prolong, quiet};
use crate::engine::renewer::{Renewing, in_time};
use crate::engine::shared::{Reservation, Shared};
use crate::meters::Since;
use crate::meters::locks::Handover;
use crate::runtime::yielding;
use crate::telemetry;
use crate::value::error::{Error, ErrorKind, LockName, Result};
use crate::value::time::{HoldState, LeaseInstant, LostReason, Ttl};
use crate::value::token::{FencingToken, OwnerToken};

/// One entry of a lease. Dropped, it hands its token to the reaper.
#[derive(Debug)]
pub(crate) struct HeldEntry {
    place: Reservation,
    lease: Arc<Lease>,
    token: OwnerToken,
    /// The number of earlier holders of the same lease, each with a fence of the grant.
    before: u32,
    depth: u32,
    after: After,
    /// The beginning of the hold, for metrics.
    since: Since,
}

/// The use of the lease after the end of a hold.
#[derive(Debug, Default)]
enum After {
    /// The backend releases it.
    #[default]
    GivenBack,
    /// It is kept until then, if work has begun under it.
    Stands(LeaseInstant),
    /// The number of fences in its grant, and the time when the grant was received.
    Fences(u32, LeaseInstant),
    /// It may be handed over.
    Passes(HandoverBudget, Arc<dyn PassOn>),
}

/// Hands a lease over to the client's next waiter.
pub(crate) trait PassOn: fmt::Debug + Send + Sync {
    /// Returns `false` if no waiter may have it, so that the lease must be released at the backend.
    fn pass_on(self: Arc<Self>, from: &HeldEntry, budget: HandoverBudget) -> bool;
}

impl HeldEntry {
    pub(super) fn new(place: Reservation, lease: Arc<Lease>, token: OwnerToken, depth: u32, since: Since) -> Self {
        place.shared().holds.fetch_add(1, Ordering::AcqRel);
        Self { place, lease, token, before: 0, depth, after: After::GivenBack, since }
    }

    /// Marks the entry as held by the caller: since the grant, or from now on if it was handed over.
    pub(super) fn is_held(&mut self) -> &Since {
        self.since.begin();
        &self.since
    }

    /// Marks the entry as granted without a holder; it counts as held once a task takes it.
    pub(super) fn is_nobodys(&mut self) {
        self.since = Since::never();
    }

    /// Marks the end of the hold, at `now` if the clock was read.
    fn is_done(&mut self, now: Option<LeaseInstant>) {
        let shared = self.place.shared();
        shared.meters.held(self.lease.name(), &mut self.since, now);
    }

    /// Takes the entry out of the lease, and counts the loss if it was not noticed before.
    fn leave(&self, now: LeaseInstant) -> Option<(Entry, HoldState)> {
        let (entry, state) = self.lease.leave(&self.token, now)?;
        if let HoldState::Lost(reason) = state
            && self.lease.is_empty()
        {
            self.shared().meters.lost(self.lease.name(), reason);
        }
        Some((entry, state))
    }

    /// Returns the same hold, which is kept until then if work has begun under it.
    pub(super) fn at_least(mut self, least: Option<LeaseInstant>) -> Self {
        if let Some(least) = least {
            self.after = After::Stands(least);
        }
        self
    }

    /// Marks the beginning of the work.
    pub(crate) fn begins(&self) {
        if let After::Stands(least) = self.after {
            self.lease.stand(&self.token, least);
        }
    }

    /// Returns the same hold, of a grant that was received at `now` and carries so many fences: one if the lease has to
    /// be kept for a span, since no more were requested.
    pub(super) fn with_fences(mut self, fences: u32, now: LeaseInstant) -> Self {
        if fences > 1 {
            self.after = After::Fences(fences, now);
        }
        self
    }

    /// Returns the same hold, which `to` may hand over to others with these terms if there are fences for them.
    pub(super) fn with_successors(mut self, terms: impl FnOnce() -> Option<Terms>, to: Arc<dyn PassOn>) -> Self {
        if let After::Fences(fences, learned) = self.after
            && let Some(terms) = terms()
        {
            let budget = HandoverBudget::new(fences, learned, &terms);
            self.after = After::Passes(budget, to);
        }
        self
    }

    /// Makes the next hold on the same lease, with its own token and fence.
    pub(super) fn passed_on(&self, token: OwnerToken, budget: HandoverBudget, to: Arc<dyn PassOn>) -> Self {
        let place = self.shared().reserve_for_others(); // until it is claimed by a waiter with a place of its own
        let mut next = Self::new(place, Arc::clone(&self.lease), token, self.depth, Since::never());
        (next.before, next.after) = (self.before + 1, After::Passes(budget, to));
        next
    }

    /// Hands the lease over to the client's next waiter instead of the backend, if a waiter may have it. This hold has
    /// no effect on the lease any more.
    pub(crate) fn pass_on(&mut self) -> bool {
        let After::Passes(budget, to) = std::mem::take(&mut self.after) else { return false };
        to.pass_on(self, budget)
    }

    /// Returns the part of the hold that can be watched without its guard.
    pub(crate) fn watched(&self) -> Watched {
        Watched { lease: Arc::clone(&self.lease), over: self.lease.watch(&self.token) }
    }

    /// Begins a hold that was handed over or won for this waiter; `false` if it has ended meanwhile.
    pub(super) fn claim(&mut self, place: Option<Reservation>, max_hold: Option<Duration>) -> bool {
        if let Some(place) = place {
            self.place = place;
        }
        let claimed = self.lease.claim(&self.token, max_hold.map(|most| LeaseInstant::now().after(most)));
        if claimed && max_hold.is_some() {
            self.shared().renewer.watch_over(&self.lease);
        }
        if claimed && self.before > 0 {
            self.shared().meters.handed_over(self.lease.name(), Handover::Local);
        }
        claimed
    }

    pub(super) fn budget(&self) -> Option<&HandoverBudget> {
        if let After::Passes(budget, _) = &self.after { Some(budget) } else { None }
    }

    /// Takes a plain hold from its guard: it is not renewed any more, and a holder of its token may adopt it. `None`
    /// when it is lost, or when a request of its token may still be on its way: then it is released.
    pub(crate) fn let_loose(mut self) -> Option<LooseHold> {
        self.after = After::GivenBack;
        let (entry, state) = self.leave(LeaseInstant::now())?;
        if entry.past == Past::Unanswered || matches!(state, HoldState::Lost(_)) {
            self.shared().reaper.push(Cleanup::of_lease(&self.lease, &entry));
            return None;
        }
        let (lock, token) = (self.lease.name().clone(), self.lease.token_of(&entry));
        Some(LooseHold::new(self.shared(), LockTurn { lock, token, fence: self.fence() }))
    }

    /// Extends the lease to `ttl` from now, by a separate renewal.
    pub(crate) async fn extend(&self, ttl: Duration) -> Result<()> {
        self.extended(ttl).await.map_err(|error| error.during(self.driver(), "extend", self.lease.name()))
    }

    async fn extended(&self, ttl: Duration) -> Result<()> {
        let (shared, ttl) = (self.shared(), Ttl::new(ttl)?);
        shared.check_ttl(self.lease.key.kind(), ttl)?;
        self.check()?;
        // The place comes before `Renewing`: the wait for it would otherwise hold up the renewer's renewals.
        let pass = shared.taking.enter(shared.config.op_timeout, None).await?;
        // Without an answer, the renewer has the time for a try of its own.
        let last = (self.lease.remaining() / 4).max(Duration::from_millis(10));
        let limit = shared.config.op_timeout.min(ttl.get()).min(last);
        let unanswered = || Error::new(ErrorKind::Indeterminate, format!("no answer within {limit:?}"));
        let renewal = yielding(async {
            let renewing = Renewing::begin(&self.lease, Some(ttl), limit).await;
            let answer =
                in_time(renewing.until(), prolong(&shared.backend, shared.config.drift, &self.lease, ttl)).await;
            if let Some((reason, entries)) = renewing.answered(answer.ok_or_else(unanswered)??) {
                telemetry::lost(self.lease.name(), self.fence(), reason);
                shared.meters.lost(self.lease.name(), reason);
                entries.iter().for_each(|entry| shared.reaper.push(Cleanup::of_lease(&self.lease, entry)));
            }
            Ok(())
        });
        let extended = pass.answer(limit, renewal).await.unwrap_or_else(|| Err(unanswered()));
        // After any answer the lease has another next check. The state decides last: the answer may prove a loss, or
        // come after the end of the view.
        shared.renewer.watch_over(&self.lease);
        extended.and_then(|()| self.check())
    }

    /// Detaches as [`let_loose`](Self::let_loose), with no renewal on its way, and for good; otherwise returns the
    /// reason.
    pub(crate) async fn detach(self) -> Result<LockTurn> {
        let (lease, driver) = (Arc::clone(&self.lease), self.driver());
        let text = "an earlier request of this hold got no answer and may still take the lock; the hold is released";
        let doubtful = || Error::new(ErrorKind::Indeterminate, text).during(driver, "detach", lease.name());
        let limit = self.shared().config.op_timeout;
        // Kept until the entry is taken out: a renewal that arrives later would renew the hold of another process.
        let quiet = timeout(limit, Renewing::begin(&lease, None, limit)).await; // so that none begins
        let _none_on_its_way = quiet.map_err(|_| doubtful())?;
        self.check().and_then(|()| self.let_loose().and_then(LooseHold::into_turn).ok_or_else(doubtful))
    }

    pub(crate) fn lease(&self) -> &Arc<Lease> {
        &self.lease
    }

    pub(crate) fn fence(&self) -> FencingToken {
        let first = self.lease.fence();
        FencingToken::new(first.get() + u64::from(self.before)).unwrap_or(first)
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        self.place.shared()
    }

    pub(crate) fn token(&self) -> &OwnerToken {
        &self.token
    }

    pub(crate) fn depth(&self) -> u32 {
        self.depth
    }

    pub(crate) fn driver(&self) -> &'static str {
        self.shared().driver()
    }

    /// Returns the error of a hold that was lost, by this state of its lease.
    pub(super) fn lost_during(&self, operation: &'static str, state: HoldState) -> Error {
        let reason = if let HoldState::Lost(reason) = state { reason } else { LostReason::Gone };
        Error::new(ErrorKind::Lost, reason.to_string()).during(self.driver(), operation, self.lease.name())
    }

    pub(crate) fn check(&self) -> Result<()> {
        match self.lease.state() {
            HoldState::Held | HoldState::Suspect => Ok(()),
            state => Err(self.lost_during("hold", state)),
        }
    }

    pub(crate) async fn run<F: Future>(&self, work: F) -> Result<F::Output> {
        let (mut lost, mut work) = (pin!(self.lease.lost()), pin!(work));
        poll_fn(|cx| {
            // For its wake-up alone. Timers are late after a suspend, or when something blocked the runtime; the clock is not.
            let _ = lost.as_mut().poll(cx);
            // Before the work, which must not take a step after the loss; and after it, since the step may have taken
            // long.
            self.check()?;
            let output = ready!(work.as_mut().poll(cx));
            Poll::Ready(self.check().map(|()| output))
        })
        .await
    }

    /// Releases the entry with `call`, once no renewal can follow it. `call` returns `None` when it was not held any
    /// more. If this is dropped or fails half-way, the reaper continues with the same token, and at the end releases a
    /// lease that was kept.
    pub(crate) async fn give_back<T, F>(
        mut self,
        call: impl FnOnce(Arc<Shared>, OwnerToken, Option<LeaseInstant>) -> F,
    ) -> Result<T>
    where
        F: Future<Output = Result<Option<T>>>,
    {
        let now = LeaseInstant::now();
        // Without its entry the lease is not due any more, so no further renewal leaves.
        self.is_done(Some(now));
        let Some((entry, state)) = self.leave(now) else {
            return Err(self.lost_during("release", self.lease.state())); // it is being cleaned up already
        };
        // Before the first await: dropped or failed from here on, the release becomes the reaper's.
        let mut unacknowledged = Unacknowledged::of(&self, entry);
        let least = self.lease.least();
        let stands_until = least.filter(|least| *least > now); // once: what was not released then is the reaper's
        let limit = self.shared().config.op_timeout;
        let outcome = match self.shared().giving.enter(limit, None).await {
            Ok(pass) => {
                let work = pass.answer(limit, async {
                    quiet(&self.lease).await;
                    call(Arc::clone(self.shared()), self.lease.token_of(&entry), stands_until).await
                });
                work.await.unwrap_or_else(|| {
                    let text = format!("no answer within {limit:?}; the release continues in the background");
                    Err(Error::new(ErrorKind::Indeterminate, text))
                })
            }
            Err(error) => Err(error),
        };
        // A lease that is kept remains the reaper's as well: it releases the lease at the end of the span.
        let stands = stands_until.is_some() && matches!(outcome, Ok(Some(_)));
        if outcome.is_ok() && entry.past == Past::Answered && !stands {
            unacknowledged.entry = None; // else the reaper has more to do for the token
        }
        // A loss that was known before comes first: that the backend has nothing to release is no news then.
        match (state, outcome) {
            (HoldState::Lost(_), _) => Err(self.lost_during("release", state)),
            (_, Ok(Some(value))) => Ok(value),
            (_, Ok(None)) => {
                telemetry::lost(self.lease.name(), self.fence(), LostReason::Gone);
                self.shared().meters.lost(self.lease.name(), LostReason::Gone);
                Err(self.lost_during("release", HoldState::Lost(LostReason::Gone)))
            }
            (_, Err(error)) => Err(error.during(self.driver(), "release", self.lease.name())),
        }
    }
}

impl Drop for HeldEntry {
    fn drop(&mut self) {
        self.pass_on(); // then nothing of it is left here
        let now = (!self.lease.is_empty()).then(LeaseInstant::now); // what was given back needs no reading of the clock
        self.is_done(now);
        if let Some((entry, _)) = now.and_then(|now| self.leave(now)) {
            self.shared().reaper.push(Cleanup::of_lease(&self.lease, &entry));
        }
        if self.lease.is_empty() {
            self.shared().renewer.forget(&self.lease);
            self.shared().owners.remove(&self.lease);
        }
        self.shared().holds.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A release without an acknowledgement yet; dropped, the reaper takes it over.
struct Unacknowledged<'a> {
    hold: &'a HeldEntry,
    entry: Option<Entry>,
}

impl<'a> Unacknowledged<'a> {
    fn of(hold: &'a HeldEntry, entry: Entry) -> Self {
        hold.shared().under_way.begins();
        Self { hold, entry: Some(entry) }
    }
}

impl Drop for Unacknowledged<'_> {
    fn drop(&mut self) {
        let shared = self.hold.shared();
        if let Some(entry) = self.entry.take() {
            shared.reaper.push(Cleanup::of_lease(&self.hold.lease, &entry));
        }
        // In this order: a client that closes waits for releases under way, and then for the reaper.
        shared.under_way.ends();
    }
}

// The loss of holds, as whoever has no guard of them can watch it.

/// A handle that reports the loss of a hold, or of several that count together, without the guard: for a task that
/// watches while another one works and releases. Made by [`LockGuard::loss`](crate::LockGuard::loss) and the like;
/// clones watch the same.
///
/// It keeps nothing alive: the hold ends with its guard.
#[derive(Clone, Debug)]
pub struct Loss(Arc<[Watched]>);

/// One hold on a lease.
#[derive(Clone, Debug)]
pub(crate) struct Watched {
    pub(super) lease: Arc<Lease>,
    pub(super) over: Arc<Over>,
}

impl Loss {
    pub(crate) fn of(holds: impl IntoIterator<Item = Watched>) -> Self {
        Self(holds.into_iter().collect())
    }

    /// Returns true if the hold is lost. Reads the clock; no I/O, no task needed.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.reason().is_some()
    }

    /// Returns the reason of the loss; `None` if the hold is not lost, or was released before. Reads the clock; no I/O,
    /// no task needed.
    #[must_use]
    pub fn reason(&self) -> Option<LostReason> {
        self.0.iter().find_map(|hold| match hold.lease.state_of(&hold.over) {
            HoldState::Lost(reason) => Some(reason),
            HoldState::Held | HoldState::Suspect | HoldState::Released => None,
        })
    }

    /// Resolves when the hold is lost, as [`LockGuard::lost`](crate::LockGuard::lost) does. Never resolves for a hold
    /// that is released: a task that should end then waits for [`ended`](Self::ended).
    ///
    /// # Cancel safety
    ///
    /// Safe.
    pub async fn lost(&self) -> LostReason {
        match self.ended().await {
            Some(reason) => reason,
            None => std::future::pending().await,
        }
    }

    /// Resolves when the hold ends: with the reason when it is lost, with `None` when its guard releases it or is
    /// dropped. It resolves at once, before the backend's acknowledgement: a loss that only the release finds is the
    /// error of the release, and not reported here.
    ///
    /// # Cancel safety
    ///
    /// Safe.
    pub async fn ended(&self) -> Option<LostReason> {
        let mut ends: FuturesUnordered<_> = self.0.iter().map(|hold| hold.lease.ended(Some(&hold.over))).collect();
        while let Some(end) = ends.next().await {
            if end.is_some() {
                return end;
            }
        }
        None
    }
}

// A hold in nobody's hands: known by its token alone, on its way from one client to another.

/// A held plain lock that is not renewed. Dropped, it is released in the background.
#[derive(Debug)]
pub(crate) struct LooseHold {
    shared: Arc<Shared>,
    /// The hold; `None` once it was passed to another owner.
    turn: Option<LockTurn>,
}

impl LooseHold {
    pub(crate) fn new(shared: &Arc<Shared>, turn: LockTurn) -> Self {
        Self { shared: Arc::clone(shared), turn: Some(turn) }
    }

    /// Returns true if it is a hold on this lock of this client.
    pub(crate) fn is_on(&self, shared: &Arc<Shared>, name: &LockName) -> bool {
        Arc::ptr_eq(&self.shared, shared) && self.turn.as_ref().is_some_and(|turn| turn.lock == *name)
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Returns the data needed to adopt it; the receiver also has to release it from now on.
    pub(crate) fn into_turn(mut self) -> Option<LockTurn> {
        self.turn.take()
    }

    /// Renews the hold, and manages it from now on. Returns `None` when it has ended.
    ///
    /// Dropped half-way, or failed, the hold is released.
    pub(crate) async fn adopt(mut self, ask: &Ask) -> Result<Option<HeldEntry>> {
        let Some(turn) = self.turn.clone() else { return Ok(None) };
        let adopted = adopt(&self.shared, turn, ask).await?;
        self.turn = None; // it is held, or there is nothing to give back
        Ok(match adopted {
            Adopted::Held(held) => Some(held),
            Adopted::Over | Adopted::Late => None,
        })
    }
}

/// The result of an adoption.
pub(crate) enum Adopted {
    Held(HeldEntry),
    /// The backend does not know it any more.
    Over,
    /// The answer took too long to be of use; the hold is being released.
    Late,
}

/// Renews a hold that is known by its token, and manages it from now on. Dropped half-way, or failed, it leaves the
/// hold as it was, except that its lease may be longer.
pub(crate) async fn adopt(shared: &Arc<Shared>, turn: LockTurn, ask: &Ask) -> Result<Adopted> {
    let _under_way = shared.under_way.attempt(); // whoever closes the client waits for what comes of it
    // Refusals come before the renewal, so that a refused hold is as it was.
    shared.check(ask)?;
    let place = shared.reserve()?;
    let LockTurn { lock: name, token, fence } = turn.clone();
    let hold = Hold { name, token };
    let limit = shared.config.op_timeout.min(ask.ttl.get());
    let pass = shared.taking.enter(shared.config.op_timeout, None).await?;
    let sent_at = LeaseInstant::before_send();
    let answers = pass.answer(limit, shared.backend.locks().renew(ask.ttl, std::slice::from_ref(&hold))).await;
    let unanswered = || Err(Error::new(ErrorKind::Indeterminate, format!("no answer within {limit:?}")));
    let kept = match answers.and_then(|mut answers| answers.pop()).unwrap_or_else(unanswered) {
        Ok(Renewed::Extended { ttl }) => ttl,
        Ok(Renewed::Lost) => return Ok(Adopted::Over),
        Err(error) if error.kind() == ErrorKind::NotHeld => return Ok(Adopted::Over),
        Err(error) => return Err(error),
    };
    // Counted from the send, like any renewal. After a late reply, or with a `max_hold` that has passed, nothing
    // remains to hold; the renewal was applied nevertheless, so the hold is released.
    let deadline = sent_at.after(shared.config.drift.believable(kept).unwrap_or_default());
    let cap = ask.max_hold.map(|most| sent_at.after(most));
    let now = LeaseInstant::now();
    if cap.map_or(deadline, |cap| cap.min(deadline)) <= now {
        drop(LooseHold::new(shared, turn));
        return Ok(Adopted::Late);
    }
    let least = ask.at_least.map(|least| now.after(least));
    let entry = Entry { token, ttl: ask.ttl, upkeep: ask.upkeep, cap, past: Past::Answered };
    let lease = Arc::new(Lease::new(LeaseKey::Plain(hold), fence, (sent_at, deadline), entry, now));
    shared.renewer.watch_over(&lease);
    Ok(Adopted::Held(HeldEntry::new(place, lease, token, 1, Since::at(now)).at_least(least)))
}

impl Drop for LooseHold {
    fn drop(&mut self) {
        let Some(LockTurn { lock, token, .. }) = self.turn.take() else { return };
        let until = LeaseInstant::now().after(CHASE);
        self.shared.reaper.push(Cleanup { name: lock, kind: Kind::Plain, token, undo: Undo::Loose, until, done: None });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Programs keep as many of them as they hold locks.
    #[test]
    fn a_hold_is_small() {
        let metrics = if cfg!(feature = "metrics") { 16 } else { 0 };
        assert!(size_of::<HeldEntry>() <= 80 + metrics, "{} bytes", size_of::<HeldEntry>());
    }
}
