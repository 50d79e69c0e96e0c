//! The client's view of one grant. Decisions only: no I/O, no timers of its own but in [`Lease::lost`].

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::keeper::LookKey;
use super::outcome::{HoldState, LostReason};
use super::undoing::Undoing;
use crate::clock::LeaseInstant;
use crate::driver::{Hold, ReentrantRenewal, Renewal};
use crate::name::LockName;
use crate::token::{FencingToken, OwnerId, OwnerToken};
use crate::ttl::Ttl;

/// Whether a lease is kept alive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Upkeep {
    /// Renewed at a third of its ttl.
    #[default]
    Renewed,
    /// Left to end.
    Fixed,
}

/// One entry of a hold: a plain lock has exactly one, a re-entrant lock one for each guard.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) token: OwnerToken,
    pub(crate) ttl: Ttl,
    pub(crate) upkeep: Upkeep,
    /// When holding must end, renewed or not.
    pub(crate) cap: Option<LeaseInstant>,
    pub(crate) past: Past,
}

/// Whether a request of the entry's token may still be on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Past {
    /// Every request was answered.
    Answered,
    /// One was not, and could take the lock again behind a release: the token has to be abandoned in the end.
    Unanswered,
}

/// What a lease is to the backend.
#[derive(Clone, Debug)]
pub(crate) enum LeaseKey {
    Plain(Hold),
    Reentrant { name: LockName, owner: OwnerId },
}

pub(crate) struct Lease {
    pub(crate) key: LeaseKey,
    pub(crate) fence: FencingToken,
    state: Mutex<State>,
    /// Told when the lease ends, one way or the other.
    ended: Notify,
    /// Told when a renewal is answered.
    answered: Notify,
    pub(crate) undoing: Arc<Undoing>,
}

struct State {
    phase: HoldState,
    deadline: LeaseInstant,
    renew_at: LeaseInstant,
    entries: Vec<Entry>,
    renewing: bool,
    failures: u32,
    /// The keeper's next look at this lease; looks of other keys are stale.
    armed: Option<LookKey>,
}

/// What the keeper has to do about a lease.
#[derive(Debug)]
pub(crate) enum Due {
    /// Send a renewal.
    Renew(Ttl),
    /// Look again.
    Later,
    /// It ended just now; these entries are to be undone.
    Ended(LostReason, Vec<Entry>),
    /// Nothing, any more.
    Nothing,
}

/// Whether a look that is planned changes the keeper's plan.
pub(crate) enum Arming {
    /// It looks sooner than planned.
    Sooner { instead_of: Option<LookKey> },
    /// It looks soon enough already.
    AsPlanned,
}

/// What an answered renewal means.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Verdict {
    /// Confirmed; the lease lasts this believable span from before the renewal was sent.
    Confirmed { sent_at: LeaseInstant, believable: Duration },
    /// Not known.
    Unknown,
    /// The backend proved the loss.
    Lost,
}

impl Lease {
    /// A lease that began no earlier than `base`, and is believed in until `deadline`.
    pub(crate) fn new(
        key: LeaseKey,
        fence: FencingToken,
        base: LeaseInstant,
        deadline: LeaseInstant,
        entry: Entry,
    ) -> Self {
        let mut state = State {
            phase: HoldState::Held,
            deadline,
            renew_at: deadline,
            entries: Vec::with_capacity(1),
            renewing: false,
            failures: 0,
            armed: None,
        };
        state.entries.push(entry);
        state.plan_renewal(base);
        let (ended, answered) = (Notify::new(), Notify::new());
        Self { key, fence, state: Mutex::new(state), ended, answered, undoing: Arc::default() }
    }

    pub(crate) fn name(&self) -> &LockName {
        match &self.key {
            LeaseKey::Plain(hold) => &hold.name,
            LeaseKey::Reentrant { name, .. } => name,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state by the clock: an ended lease is marked as lost by whoever looks first.
    pub(crate) fn state(&self) -> HoldState {
        self.observe(&mut self.lock())
    }

    fn observe(&self, state: &mut State) -> HoldState {
        if state.is_live()
            && let Some(reason) = state.overdue(LeaseInstant::now())
        {
            self.end(state, HoldState::Lost(reason));
        }
        state.phase
    }

    /// Ends the lease for a reason other than its clock; `false` if it had ended already.
    pub(crate) fn lose(&self, reason: LostReason) -> bool {
        let mut state = self.lock();
        let live = matches!(self.observe(&mut state), HoldState::Held | HoldState::Suspect);
        if live {
            self.end(&mut state, HoldState::Lost(reason));
        }
        live
    }

    fn end(&self, state: &mut State, phase: HoldState) {
        state.phase = phase;
        self.ended.notify_waiters();
    }

    /// When the view ends, renewals to come left aside.
    pub(crate) fn remaining(&self) -> Duration {
        let mut state = self.lock();
        match self.observe(&mut state) {
            HoldState::Held | HoldState::Suspect => state.end_of_view().remaining(),
            HoldState::Lost(_) | HoldState::Released => Duration::ZERO,
        }
    }

    /// Resolves when the lease is lost; never when it is released.
    pub(crate) async fn lost(&self) -> LostReason {
        loop {
            let ended = self.ended.notified();
            tokio::pin!(ended);
            ended.as_mut().enable();
            let end_of_view = {
                let mut state = self.lock();
                match self.observe(&mut state) {
                    HoldState::Lost(reason) => return reason,
                    HoldState::Released => None,
                    HoldState::Held | HoldState::Suspect => Some(state.end_of_view()),
                }
            };
            match end_of_view {
                None => std::future::pending().await,
                Some(end) => tokio::select! {
                    () = ended => {}
                    () = end.reached() => {}
                },
            }
        }
    }

    /// Adds an entry to a live hold and lengthens it; `false` if the hold has ended.
    pub(crate) fn join(&self, entry: Entry, base: LeaseInstant, deadline: LeaseInstant) -> bool {
        let mut state = self.lock();
        if !matches!(self.observe(&mut state), HoldState::Held | HoldState::Suspect) {
            return false;
        }
        state.entries.push(entry);
        state.deadline = state.deadline.max(deadline);
        state.plan_renewal(base);
        true
    }

    /// Takes one entry out, to be undone by the caller; `None` if somebody else did. The last one ends the lease.
    pub(crate) fn leave(&self, token: &OwnerToken) -> Option<Entry> {
        let mut state = self.lock();
        let phase = self.observe(&mut state);
        let index = state.entries.iter().position(|entry| entry.token == *token)?;
        let entry = state.entries.swap_remove(index);
        if state.entries.is_empty() && matches!(phase, HoldState::Held | HoldState::Suspect) {
            self.end(&mut state, HoldState::Released);
        }
        Some(entry)
    }

    /// Takes all entries out of a lost lease, to be undone by the caller.
    pub(crate) fn take_entries(&self) -> Vec<Entry> {
        std::mem::take(&mut self.lock().entries)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lock().entries.is_empty()
    }

    /// Waits until no renewal is on its way, so that none can arrive behind the release that follows.
    pub(crate) async fn quiet(&self) {
        loop {
            let answered = self.answered.notified();
            tokio::pin!(answered);
            answered.as_mut().enable();
            if !self.lock().renewing {
                return;
            }
            answered.await;
        }
    }

    /// What is due at `now`; `key` is the look that the keeper takes.
    pub(crate) fn due(&self, key: LookKey, now: LeaseInstant) -> Due {
        let mut state = self.lock();
        if state.armed != Some(key) {
            return Due::Nothing;
        }
        state.armed = None;
        match self.observe(&mut state) {
            HoldState::Lost(reason) => Due::Ended(reason, std::mem::take(&mut state.entries)),
            HoldState::Released => Due::Nothing,
            HoldState::Held | HoldState::Suspect => match state.renewal_ttl() {
                Some(ttl) if !state.renewing && state.renew_at <= now => {
                    state.renewing = true;
                    Due::Renew(ttl)
                }
                _ => Due::Later,
            },
        }
    }

    /// Plans the keeper's look `key`, unless it looks sooner anyway.
    pub(crate) fn arm(&self, key: LookKey) -> Arming {
        let mut state = self.lock();
        if state.armed.is_some_and(|armed| armed <= key) {
            return Arming::AsPlanned;
        }
        Arming::Sooner { instead_of: state.armed.replace(key) }
    }

    /// Takes the keeper's look off the plan.
    pub(crate) fn disarm(&self) -> Option<LookKey> {
        self.lock().armed.take()
    }

    /// When the keeper should look next; `None` when there is nothing to look after any more.
    pub(crate) fn next_look(&self) -> Option<LeaseInstant> {
        let state = self.lock();
        match state.phase {
            HoldState::Held | HoldState::Suspect => Some(state.next_look()),
            HoldState::Lost(_) => (!state.entries.is_empty()).then_some(state.end_of_view()),
            HoldState::Released => None,
        }
    }

    /// Takes in the answer to a renewal. Tells the loss that it proved, with the entries that a request may still be
    /// on its way for: those are to be undone all the same.
    pub(crate) fn answer(&self, verdict: Verdict) -> Option<(LostReason, Vec<Entry>)> {
        let mut state = self.lock();
        state.renewing = false;
        let phase = self.observe(&mut state);
        let mut lost = None;
        if matches!(phase, HoldState::Held | HoldState::Suspect) {
            match verdict {
                Verdict::Confirmed { sent_at, believable } => {
                    state.phase = HoldState::Held;
                    state.failures = 0;
                    state.deadline = state.deadline.max(sent_at.after(believable));
                    state.plan_renewal(sent_at);
                }
                Verdict::Unknown => {
                    state.phase = HoldState::Suspect;
                    state.failures = state.failures.saturating_add(1);
                    state.plan_retry(LeaseInstant::now());
                }
                Verdict::Lost => {
                    let mut entries = std::mem::take(&mut state.entries);
                    entries.retain(|entry| entry.past == Past::Unanswered);
                    self.end(&mut state, HoldState::Lost(LostReason::Gone));
                    lost = Some((LostReason::Gone, entries));
                }
            }
        }
        self.answered.notify_waiters();
        lost
    }

    /// The renewal to send for a plain lease.
    pub(crate) fn renewal(&self, ttl: Ttl) -> Result<Renewal, ReentrantRenewal> {
        match &self.key {
            LeaseKey::Plain(hold) => Ok(Renewal { hold: hold.clone(), ttl }),
            LeaseKey::Reentrant { name, owner } => {
                Err(ReentrantRenewal { name: name.clone(), owner: *owner, fence: self.fence, ttl })
            }
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("name", self.name())
            .field("fence", &self.fence)
            .field("state", &self.state())
            .finish()
    }
}

impl State {
    fn is_live(&self) -> bool {
        matches!(self.phase, HoldState::Held | HoldState::Suspect)
    }

    fn cap(&self) -> Option<LeaseInstant> {
        self.entries.iter().filter_map(|entry| entry.cap).min()
    }

    fn end_of_view(&self) -> LeaseInstant {
        self.cap().map_or(self.deadline, |cap| cap.min(self.deadline))
    }

    fn overdue(&self, now: LeaseInstant) -> Option<LostReason> {
        match self.cap() {
            Some(cap) if cap <= now => Some(LostReason::MaxHold),
            _ if self.deadline <= now => Some(LostReason::Expired),
            _ => None,
        }
    }

    /// The ttl to renew with: the longest that a renewed entry asked for.
    fn renewal_ttl(&self) -> Option<Ttl> {
        self.entries.iter().filter(|entry| entry.upkeep == Upkeep::Renewed).map(|entry| entry.ttl).max()
    }

    fn plan_renewal(&mut self, from: LeaseInstant) {
        if let Some(ttl) = self.renewal_ttl() {
            // Up to a tenth earlier, so that leases taken together are not renewed together for ever.
            let third = ttl.get() / 3;
            self.renew_at = from.after(third - third.mul_f64(0.1 * self.spread()));
        }
    }

    fn plan_retry(&mut self, now: LeaseInstant) {
        if let Some(ttl) = self.renewal_ttl() {
            let pause = (ttl.get() / 12).clamp(Duration::from_millis(5), Duration::from_secs(1));
            self.renew_at = now.after(pause.mul_f64(0.75 + 0.25 * self.spread()));
        }
    }

    /// A number in 0..1 that differs between leases.
    fn spread(&self) -> f64 {
        let Some(entry) = self.entries.first() else { return 0.0 };
        f64::from(entry.token.expose().as_ref()[0]) / 256.0
    }

    fn next_look(&self) -> LeaseInstant {
        let end = self.end_of_view();
        if self.renewing || self.renewal_ttl().is_none() { end } else { self.renew_at.min(end) }
    }
}
