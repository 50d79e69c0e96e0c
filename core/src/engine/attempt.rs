//! One acquisition's token, from before it is first sent until it is a lease or is undone.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::driver::{
    AcquireRequest, Acquisition, Begun, Busy, Grant, Handed, Hold, PermitHold, PermitRequest, Queueing,
};
use crate::engine::ask::{Ask, Wanted};
use crate::engine::hold::HeldEntry;
use crate::engine::lease::{Entry, Lease, LeaseKey, Past, Upkeep};
use crate::engine::reaper::{CHASE, Cleanup, Undo};
use crate::engine::shared::{Reservation, Shared};
use crate::meters::Since;
use crate::value::error::{Error, ErrorKind, Result};
use crate::value::time::LeaseInstant;
use crate::value::token::OwnerToken;

/// A token that has not become a lease. Dropped, it hands the token to the reaper, unless the backend cannot know the
/// token.
pub(crate) struct Attempt {
    /// `None` once a lease has taken it over.
    reservation: Option<Reservation>,
    wanted: Wanted,
    request: AcquireRequest,
    upkeep: Upkeep,
    max_hold: Option<Duration>,
    at_least: Option<Duration>,
    /// True if the backend may have something of this token: a lease, a place, a request on its way.
    traces: bool,
    /// The send time of the first request whose answer is not known.
    unanswered_since: Option<LeaseInstant>,
    first_sent: Option<LeaseInstant>,
    /// The send time of the last request that was answered with busy, and the time of the answer, on the backend's
    /// clock.
    answered: Option<(LeaseInstant, Duration)>,
}

/// The result of an answer.
pub(crate) enum Answered {
    Won(HeldEntry),
    Busy(Busy),
    /// The token is of no use any more; only a fresh one may continue. Either the grant is an old one that has ended:
    /// its answer was lost. Or the owner's earlier hold was lost here, and the backend does not know that yet: an owner
    /// that lost a hold must not re-enter it, and until it is cleared the lock is busy.
    Spent,
    /// The lease had ended before its grant arrived. Only a fresh token may continue.
    Late,
}

impl Attempt {
    /// Makes an attempt that may be granted up to `fences` consecutive fences.
    pub(crate) fn new(reservation: Reservation, ask: &Ask, queue: Queueing, fences: u32) -> Self {
        reservation.shared().under_way.begins();
        let token = OwnerToken::random();
        let (name, label) = (ask.name.clone(), ask.label.clone());
        Self {
            reservation: Some(reservation),
            wanted: ask.wanted,
            request: AcquireRequest { name, token, ttl: ask.ttl, queue, label, fences },
            upkeep: ask.upkeep,
            max_hold: ask.max_hold,
            at_least: ask.at_least,
            traces: false,
            unanswered_since: None,
            first_sent: None,
            answered: None,
        }
    }

    pub(crate) fn token(&self) -> &OwnerToken {
        &self.request.token
    }

    /// Hands the token to the reaper as dropping does, and begins again with a fresh one, in the same place.
    pub(crate) fn renew_token(&mut self, ask: &Ask, queue: Queueing) {
        let Some(reservation) = self.reservation.take() else { return };
        let shared = Arc::clone(reservation.shared());
        self.hand_over(&shared);
        // The reservation was taken out, so dropping the old value does not hand its token over a second time.
        *self = Self::new(reservation, ask, queue, self.request.fences);
        shared.under_way.ends(); // the old one; never none in between
    }

    fn hand_over(&self, shared: &Shared) {
        if self.traces {
            shared.reaper.push(self.undoing());
        }
    }

    fn undoing(&self) -> Cleanup {
        let until = LeaseInstant::now().after(self.request.ttl.get() + CHASE);
        let AcquireRequest { name, token, .. } = &self.request;
        Cleanup { name: name.clone(), kind: self.wanted.into(), token: *token, undo: Undo::Attempt, until, done: None }
    }

    /// Hands the token to the reaper as dropping does. Returns a future that resolves when it is undone; `None` if
    /// there is nothing to undo.
    pub(crate) fn give_up(mut self) -> Option<impl Future<Output = ()> + use<>> {
        // Taken out, so that dropping `self` pushes no second clean-up. The drop comes after the push: a client that
        // closes waits for this attempt until the reaper has its token.
        if !std::mem::take(&mut self.traces) {
            return None;
        }
        let shared = self.shared().ok()?;
        Some(shared.reaper.push_and_wait(self.undoing()))
    }

    fn shared(&self) -> Result<Arc<Shared>> {
        self.reservation.as_ref().map(|place| Arc::clone(place.shared())).ok_or_else(gone)
    }

    /// Sends one request: `limit` is the time for the answer, counted from when the request leaves, which it does by
    /// `deadline`. The clock is read before that, unless it was read just `now`.
    pub(crate) async fn ask(
        &mut self,
        limit: Duration,
        deadline: Option<LeaseInstant>,
        now: Option<LeaseInstant>,
    ) -> Result<Answered> {
        let shared = self.shared()?;
        // After a wait for a place the clock is read again: the lease counts from the send, and would lose that wait.
        let (pass, now) = match shared.taking.enter_now() {
            Some(pass) => (pass, now),
            None => (shared.taking.enter(shared.config.op_timeout, deadline).await?, None),
        };
        // Computed after that wait, which has used up some of the caller's time.
        let limit = limit.min(deadline.map_or(Duration::MAX, LeaseInstant::remaining));
        self.answered = None; // this request may reach another server than the last one, with another clock
        let (had_traces, had_unanswered) = (self.traces, self.unanswered_since);
        let sent_at = now.unwrap_or_else(LeaseInstant::before_send);
        // From here on the future may be dropped at any moment: assume the worst first.
        self.traces = true;
        self.unanswered_since = had_unanswered.or(Some(sent_at));
        let first_sent = *self.first_sent.get_or_insert(sent_at);
        let answer = match pass.answer(limit, self.call(&shared)).await {
            Some(answer) => answer,
            None => Err(Error::new(ErrorKind::Indeterminate, format!("no answer within {limit:?}"))),
        };
        if answer.is_ok() {
            shared.answers.fetch_add(1, Ordering::Relaxed);
        }
        match answer {
            Ok(Acquisition::Granted(grant)) => {
                // An earlier grant was made for an earlier request: at the soonest for the first one without an answer.
                // If all were answered, the backend granted it to the waiter at some time after the first request.
                let base = match grant.begun {
                    Begun::Now => sent_at,
                    Begun::Earlier => had_unanswered.unwrap_or(first_sent),
                };
                self.conclude(&shared, base, Past::of(had_unanswered), &grant)
            }
            Ok(Acquisition::Busy(busy)) => {
                // Busy answers this request only: an earlier one without an answer may still arrive and take the lock.
                // A waiter has a place to give up; a request that did not queue has left nothing.
                self.unanswered_since = had_unanswered;
                self.traces = had_traces || self.request.queue != Queueing::None;
                self.answered = busy.answered_at.map(|at| (sent_at, at));
                Ok(Answered::Busy(busy))
            }
            Err(error) => {
                // Otherwise the request may be applied later, and the assumption from before the send remains.
                if error.was_not_applied() {
                    self.unanswered_since = had_unanswered;
                    self.traces = had_traces;
                }
                Err(error)
            }
        }
    }

    /// Takes over a lease that was handed over without a request; `None` when only a request can show that it still
    /// lasts.
    ///
    /// It began as long after the last busy answer as the backend's clock shows, and that answer was made after its
    /// request left: a deadline counted from that time, less the drift bound, is too early, never too late. If the
    /// backend's clock was set forward in between, the lease at least began before the notification arrived.
    pub(crate) fn take_over(&mut self, handed: Handed) -> Result<Option<HeldEntry>> {
        let shared = self.shared()?;
        let Some((sent_at, answered_at)) = self.answered else { return Ok(None) };
        // A backend clock that was set back gives no span: then a request has to ask.
        let Some(later) = handed.began_at.checked_sub(answered_at) else { return Ok(None) };
        let later = shared.config.drift.believable(later).unwrap_or_default();
        let base = sent_at.after(later).min(LeaseInstant::now());
        let grant =
            Grant { fence: handed.fence, ttl: handed.ttl, begun: Begun::Earlier, depth: 1, fences: handed.fences };
        Ok(match self.conclude(&shared, base, Past::of(self.unanswered_since), &grant)? {
            Answered::Won(held) => Some(held),
            Answered::Busy(_) | Answered::Spent | Answered::Late => None,
        })
    }

    async fn call(&self, shared: &Shared) -> Result<Acquisition> {
        match self.wanted {
            Wanted::Lock => shared.backend.locks().acquire(&self.request).await,
            Wanted::Entry(owner) => shared.backend.required_reentrant()?.enter(&owner, &self.request).await,
            Wanted::Permits(family, share) => {
                let request = PermitRequest::new(family, share, self.request.clone());
                shared.backend.required_permits()?.acquire(&request).await
            }
        }
    }

    /// Turns a grant into a lease, if some of it remains.
    fn conclude(&mut self, shared: &Arc<Shared>, base: LeaseInstant, past: Past, grant: &Grant) -> Result<Answered> {
        let believable = shared.config.drift.believable(grant.ttl).unwrap_or_default();
        let deadline = base.after(believable);
        let cap = self.max_hold.map(|most| base.after(most));
        let now = LeaseInstant::now();
        // The answer may have taken longer than the lease. No hold begins then, and the token is undone as if it had no
        // answer.
        if cap.map_or(deadline, |cap| cap.min(deadline)) <= now {
            return Ok(match grant.begun {
                Begun::Now => Answered::Late,
                Begun::Earlier => Answered::Spent,
            });
        }
        let AcquireRequest { name, token, ttl, .. } = &self.request;
        let least = self.at_least.map(|least| now.after(least)); // the grant may have been made just now
        let entry = Entry { token: *token, ttl: *ttl, upkeep: self.upkeep, cap, past };
        let lease = |key| Some(Arc::new(Lease::new(key, grant.fence, (base, deadline), entry, now)));
        let lease = match self.wanted {
            Wanted::Lock => lease(LeaseKey::Plain(Hold { name: name.clone(), token: *token })),
            Wanted::Entry(owner) => shared.owners.enter(name, owner, grant.fence, (base, deadline), entry),
            Wanted::Permits(family, _) => {
                lease(LeaseKey::Permits(Box::new(PermitHold::new(family, name.clone(), *token))))
            }
        };
        let Some(lease) = lease else { return Ok(Answered::Spent) };
        // From here on the hold undoes the token; dropping `self` does nothing more.
        let place = self.reservation.take().ok_or_else(gone)?;
        // In this order: `Shared::close` waits until no attempt is under way and then ends all managed leases. The
        // other way round, it could miss this one.
        shared.renewer.watch_over_at(&lease, now);
        shared.under_way.ends();
        let held = HeldEntry::new(place, lease, *token, grant.depth, Since::at(now)).at_least(least);
        Ok(Answered::Won(held.with_fences(grant.fences.min(self.request.fences), now)))
    }
}

fn gone() -> Error {
    Error::new(ErrorKind::Protocol, "an attempt was used after its grant")
}

impl Drop for Attempt {
    fn drop(&mut self) {
        let Some(reservation) = &self.reservation else { return };
        let shared = reservation.shared();
        self.hand_over(shared);
        shared.under_way.ends();
    }
}
