//! One entry of a lease, as a guard owns it.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::task::{Poll, ready};
use std::time::Duration;

use tokio::time::timeout;

use super::entry::{Entry, Past};
use super::lease::Lease;
use super::loose::LooseHold;
use super::loss::{Over, Watched};
use super::reaper::Cleanup;
use super::relay::Baton;
use super::renewing::{Renewing, in_time, quiet};
use super::shared::{Reservation, Shared};
use super::standing::prolong;
use crate::driver::LockTurn;
use crate::request::yielding;
use crate::telemetry;
use crate::value::clock::LeaseInstant;
use crate::value::error::{Error, ErrorKind, Result};
use crate::value::hold_state::{HoldState, LostReason};
use crate::value::token::{FencingToken, OwnerToken};
use crate::value::ttl::Ttl;

/// Dropped, it hands its token to the reaper.
#[derive(Debug)]
pub(crate) struct HeldEntry {
    place: Reservation,
    lease: Arc<Lease>,
    token: OwnerToken,
    /// How many had the same lease before, each with a fence of the grant.
    before: u32,
    depth: u32,
    /// Until when it is to be left standing, once somebody works under it.
    least: Option<LeaseInstant>,
    /// With it, the lease may be passed on.
    baton: Option<Baton>,
    /// Made by the first who watches the hold without the guard.
    over: OnceLock<Arc<Over>>,
}

impl HeldEntry {
    pub(crate) fn new(place: Reservation, lease: Arc<Lease>, token: OwnerToken, depth: u32) -> Self {
        place.shared().holds.fetch_add(1, Ordering::AcqRel);
        Self { place, lease, token, before: 0, depth, least: None, baton: None, over: OnceLock::new() }
    }

    /// The same hold, which nobody else gets before then if it was worked under.
    pub(super) fn at_least(mut self, least: Option<LeaseInstant>) -> Self {
        self.least = least;
        self
    }

    /// Somebody works under it from now on.
    pub(crate) fn begins(&self) {
        if let Some(least) = self.least {
            self.lease.stand(&self.token, least);
        }
    }

    /// The same hold, which may be passed on.
    pub(crate) fn with_baton(mut self, baton: Option<Baton>) -> Self {
        self.baton = baton;
        self
    }

    /// The next hold on the same lease, with a token and a fence of its own.
    pub(super) fn passed_on(&self, token: OwnerToken, baton: Baton) -> Self {
        let place = self.shared().reserve_for_others(); // until it is claimed by a waiter with a place of its own
        let mut next = Self::new(place, Arc::clone(&self.lease), token, self.depth);
        (next.before, next.baton) = (self.before + 1, Some(baton));
        next
    }

    /// Gives the lease to the client's next waiter in place of the backend, if there is one that may have it. What is
    /// left of this hold has no say in the lease any more.
    pub(crate) fn pass_on(&mut self) -> bool {
        let Some(baton) = self.baton.take() else { return false };
        self.shared().relays.pass_on(self, baton)
    }

    pub(super) fn over(&self) -> Option<&Over> {
        self.over.get().map(|over| &**over)
    }

    /// What can be watched of the hold without its guard.
    pub(crate) fn watched(&self) -> Watched {
        Watched { lease: Arc::clone(&self.lease), over: Arc::clone(self.over.get_or_init(Arc::default)) }
    }

    /// Begins a hold that was passed on or won for this waiter; `false` if it has ended meanwhile.
    pub(super) fn claim(&mut self, place: Option<Reservation>, max_hold: Option<Duration>) -> bool {
        if let Some(place) = place {
            self.place = place;
        }
        let claimed = self.lease.claim(&self.token, max_hold.map(|most| LeaseInstant::now().after(most)));
        if claimed && max_hold.is_some() {
            self.shared().keeper.watch_over(&self.lease);
        }
        claimed
    }

    pub(super) fn baton(&self) -> Option<&Baton> {
        self.baton.as_ref()
    }

    /// Takes a plain hold out of the hands of its guard: nobody renews it any more, and whoever is told its token may adopt
    /// it. `None` when it is lost, or when a request of its token may still be on its way: then it is given back.
    pub(crate) fn let_loose(mut self) -> Option<LooseHold> {
        self.baton = None;
        let (entry, state) = self.lease.leave(&self.token, self.over())?;
        if entry.past == Past::Unanswered || matches!(state, HoldState::Lost(_)) {
            self.shared().reaper.push(Cleanup::of_lease(&self.lease, &entry));
            return None;
        }
        let (lock, token) = (self.lease.name().clone(), self.lease.token_of(&entry));
        Some(LooseHold::new(self.shared(), LockTurn { lock, token, fence: self.fence() }))
    }

    /// Makes the lease last for `ttl` from now, by a renewal of its own.
    pub(crate) async fn extend(&self, ttl: Duration) -> Result<()> {
        self.extended(ttl).await.map_err(|error| error.during(self.driver(), "extend", self.lease.name()))
    }

    async fn extended(&self, ttl: Duration) -> Result<()> {
        let (shared, ttl) = (self.shared(), Ttl::new(ttl)?);
        shared.check_ttl(ttl)?;
        self.check()?;
        let pass = shared.taking.enter(shared.config.op_timeout, None).await?;
        // Without an answer, the keeper has the time for a try of its own.
        let last = (self.lease.remaining() / 4).max(Duration::from_millis(10));
        let limit = shared.config.op_timeout.min(ttl.get()).min(last);
        let unanswered = || Error::new(ErrorKind::Indeterminate, format!("no answer within {limit:?}"));
        let renewal = yielding(async {
            let renewing = Renewing::begin(&self.lease, ttl.get(), limit).await;
            let answer =
                in_time(renewing.until(), prolong(&shared.backend, shared.config.drift, &self.lease, ttl)).await;
            if let Some((reason, entries)) = renewing.answered(answer.ok_or_else(unanswered)??) {
                telemetry::lost(self.lease.name(), self.fence(), reason);
                entries.iter().for_each(|entry| shared.reaper.push(Cleanup::of_lease(&self.lease, entry)));
            }
            Ok(())
        });
        let extended = pass.answer(limit, renewal).await.unwrap_or_else(|| Err(unanswered()));
        shared.keeper.watch_over(&self.lease);
        extended.and_then(|()| self.check())
    }

    /// As [`let_loose`](Self::let_loose), with no renewal on its way, and for good; or tells why not.
    pub(crate) async fn detach(self) -> Result<LockTurn> {
        let (lease, driver) = (Arc::clone(&self.lease), self.driver());
        let text = "an earlier request of this hold has no answer, and could take the lock again; it is given back";
        let doubtful = || Error::new(ErrorKind::Indeterminate, text).during(driver, "detach", lease.name());
        let limit = self.shared().config.op_timeout;
        let quiet = timeout(limit, Renewing::begin(&lease, Duration::ZERO, limit)).await; // so that none begins
        let _none_on_its_way = quiet.map_err(|_| doubtful())?;
        self.check().and_then(|()| self.let_loose().and_then(LooseHold::into_turn).ok_or_else(doubtful))
    }

    pub(crate) fn lease(&self) -> &Arc<Lease> {
        &self.lease
    }

    pub(crate) fn fence(&self) -> FencingToken {
        let first = self.lease.fence;
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

    /// That the hold was lost, as this state of its lease says.
    fn lost_during(&self, operation: &'static str, state: HoldState) -> Error {
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
            if let Poll::Ready(reason) = lost.as_mut().poll(cx) {
                return Poll::Ready(Err(self.lost_during("hold", HoldState::Lost(reason))));
            }
            // Timers are late after a suspend, or when something blocked the runtime. The clock is not.
            self.check()?;
            let output = ready!(work.as_mut().poll(cx));
            Poll::Ready(self.check().map(|()| output))
        })
        .await
    }

    /// Gives the entry back with `call`, once no renewal can come behind it. `call` tells `None` when it was not held any more.
    /// Dropped or failed half-way, the reaper carries on with the same token, and it gives back in the end what is left standing.
    pub(crate) async fn give_back<T, F>(
        self,
        call: impl FnOnce(Arc<Shared>, OwnerToken, Option<LeaseInstant>) -> F,
    ) -> Result<T>
    where
        F: Future<Output = Result<Option<T>>>,
    {
        let Some((entry, state)) = self.lease.leave(&self.token, self.over()) else {
            return Err(self.lost_during("release", self.lease.state())); // it is being cleaned up already
        };
        let mut unacknowledged = Unacknowledged::of(&self, entry);
        let stands_until = entry.stands_until(); // once: what was not released then is the reaper's
        let limit = self.shared().config.op_timeout;
        let work = async {
            quiet(&self.lease).await;
            call(Arc::clone(self.shared()), self.lease.token_of(&entry), stands_until).await
        };
        let outcome = match self.shared().giving.enter(limit, None).await {
            Ok(pass) => pass.answer(limit, work).await.unwrap_or_else(|| {
                Err(Error::new(ErrorKind::Indeterminate, format!("no answer within {limit:?}, the release goes on")))
            }),
            Err(error) => Err(error),
        };
        let stands = stands_until.is_some() && matches!(outcome, Ok(Some(_)));
        if outcome.is_ok() && entry.past == Past::Answered && !stands {
            unacknowledged.entry = None; // else the reaper has more to do for the token
        }
        match (state, outcome) {
            (HoldState::Lost(_), _) => Err(self.lost_during("release", state)),
            (_, Ok(Some(value))) => Ok(value),
            (_, Ok(None)) => {
                telemetry::lost(self.lease.name(), self.fence(), LostReason::Gone);
                Err(self.lost_during("release", HoldState::Lost(LostReason::Gone)))
            }
            (_, Err(error)) => Err(error.during(self.driver(), "release", self.lease.name())),
        }
    }
}

impl Drop for HeldEntry {
    fn drop(&mut self) {
        self.pass_on(); // then nothing of it is left here
        if let Some((entry, _)) = self.lease.leave(&self.token, self.over()) {
            self.shared().reaper.push(Cleanup::of_lease(&self.lease, &entry));
        }
        if self.lease.is_empty() {
            self.shared().keeper.forget(&self.lease);
            self.shared().owners.remove(&self.lease);
        }
        self.shared().holds.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A release whose acknowledgement is not in; dropped, the reaper takes it over.
struct Unacknowledged<'a> {
    hold: &'a HeldEntry,
    entry: Option<Entry>,
}

impl<'a> Unacknowledged<'a> {
    fn of(hold: &'a HeldEntry, entry: Entry) -> Self {
        hold.shared().reaper.begins();
        Self { hold, entry: Some(entry) }
    }
}

impl Drop for Unacknowledged<'_> {
    fn drop(&mut self) {
        let reaper = &self.hold.shared().reaper;
        if let Some(entry) = self.entry.take() {
            reaper.push(Cleanup::of_lease(&self.hold.lease, &entry));
        }
        reaper.ends();
    }
}
