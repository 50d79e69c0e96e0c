//! The client's view of one grant. Decisions only: no I/O, no timers of its own but in [`Lease::lost`].

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::agenda::Place;
use super::entry::{Entries, Entry, LeaseKey};
use super::lease_state::State;
use super::loss::Over;
use super::undoing::Undoing;
use crate::driver::{ReentrantRenewal, Renewal};
use crate::value::clock::LeaseInstant;
use crate::value::hold_state::{HoldState, LostReason};
use crate::value::name::LockName;
use crate::value::token::{FencingToken, OwnerToken};
use crate::value::ttl::Ttl;

pub(crate) struct Lease {
    pub(crate) key: LeaseKey,
    /// The first of the grant; holders that it was passed on to have later ones.
    pub(crate) fence: FencingToken,
    state: Mutex<State>,
    pub(crate) place: Place,
}

/// What the keeper has to do about a lease.
#[derive(Debug)]
pub(crate) enum Due {
    /// Send a renewal, which is on its way until then.
    Renew(Ttl, LeaseInstant),
    /// Look again.
    Later,
    /// It ended just now; these entries are to be undone.
    Ended(LostReason, Vec<Entry>),
    /// Nothing, any more.
    Nothing,
}

impl Lease {
    /// A lease that was learned of at `now`, began no earlier than `base`, and is believed in until `deadline`.
    pub(crate) fn new(
        key: LeaseKey,
        fence: FencingToken,
        (base, deadline): (LeaseInstant, LeaseInstant),
        entry: Entry,
        now: LeaseInstant,
    ) -> Self {
        let mut state = State {
            phase: HoldState::Held,
            deadline,
            renew_at: deadline,
            entries: Entries::default(),
            renewing: None,
            possible_end: deadline,
            undoing: Undoing::default(),
            changed: None,
        };
        state.entries.push(entry);
        state.plan_renewal(base, now);
        Self { key, fence, state: Mutex::new(state), place: Place::default() }
    }

    pub(crate) fn name(&self) -> &LockName {
        match &self.key {
            LeaseKey::Plain(hold) => &hold.name,
            LeaseKey::Reentrant { name, .. } => name,
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state by the clock: an ended lease is marked as lost by whoever looks first.
    pub(crate) fn state(&self) -> HoldState {
        self.observe(&mut self.lock())
    }

    /// The state of one hold on it.
    pub(super) fn state_of(&self, over: &Over) -> HoldState {
        let mut state = self.lock();
        if over.is_set() { HoldState::Released } else { self.observe(&mut state) }
    }

    fn observe(&self, state: &mut State) -> HoldState {
        self.observe_at(state, LeaseInstant::now())
    }

    pub(super) fn observe_at(&self, state: &mut State, now: LeaseInstant) -> HoldState {
        if state.is_live()
            && let Some(reason) = state.overdue(now)
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

    pub(super) fn end(&self, state: &mut State, phase: HoldState) {
        state.phase = phase;
        state.tell();
    }

    /// What is told of changes from now on.
    pub(super) fn changes(&self) -> Arc<Notify> {
        Arc::clone(self.lock().changed.get_or_insert_default())
    }

    /// What is known of the clean-ups of its entries.
    pub(crate) fn undoing<T>(&self, look: impl FnOnce(&mut Undoing) -> T) -> T {
        look(&mut self.lock().undoing)
    }

    /// When the view ends, renewals to come left aside.
    pub(crate) fn remaining(&self) -> Duration {
        let mut state = self.lock();
        match self.observe(&mut state) {
            HoldState::Held | HoldState::Suspect => state.end_of_view().remaining(),
            HoldState::Lost(_) | HoldState::Released => Duration::ZERO,
        }
    }

    /// Until when the backend surely keeps it.
    pub(crate) fn deadline(&self) -> LeaseInstant {
        self.lock().deadline
    }

    /// Until when the backend may keep it: a renewal without an answer may have been applied.
    pub(crate) fn possible_end(&self) -> LeaseInstant {
        let state = self.lock();
        state.possible_end.max(state.deadline)
    }

    /// It lasts that long, as a request found that was not the keeper's.
    pub(crate) fn lengthen(&self, deadline: LeaseInstant) {
        let mut state = self.lock();
        state.deadline = state.deadline.max(deadline);
    }

    /// Resolves when the lease is lost; never when it is released.
    pub(crate) async fn lost(&self) -> LostReason {
        match self.ended(None).await {
            Some(reason) => reason,
            None => std::future::pending().await,
        }
    }

    /// Resolves when the lease is lost, or when it is released, or the one hold on it is over that is asked for.
    pub(super) async fn ended(&self, over: Option<&Over>) -> Option<LostReason> {
        loop {
            let changes = self.changes();
            let changed = changes.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let end_of_view = {
                let mut state = self.lock();
                if over.is_some_and(Over::is_set) {
                    return None;
                }
                match self.observe(&mut state) {
                    HoldState::Lost(reason) => return Some(reason),
                    HoldState::Released => return None,
                    HoldState::Held | HoldState::Suspect => state.end_of_view(),
                }
            };
            tokio::select! {
                () = changed => {}
                () = end_of_view.reached() => {}
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
        state.plan_renewal(base, LeaseInstant::now());
        true
    }

    /// Gives the one entry of a plain lease another token, if it is `from` that has it, no renewal is in doubt, and the
    /// lease lasts for `least` even without another one. Whoever has the old token can do nothing to the lease any
    /// more; whoever gets the new one has to [claim](Self::claim) it by `until`, or the lease ends.
    pub(super) fn pass(
        &self,
        (from, over): (&OwnerToken, Option<&Over>),
        to: OwnerToken,
        least: Duration,
        until: LeaseInstant,
    ) -> bool {
        let mut state = self.lock();
        let sound = self.observe(&mut state) == HoldState::Held && state.deadline.remaining() >= least;
        let entry = state.entries.iter_mut().find(|entry| sound && entry.token == *from);
        let passed = entry.map(|entry| (entry.token, entry.cap) = (to, Some(until))).is_some();
        if let (true, Some(over)) = (passed, over) {
            over.set();
            state.tell();
        }
        passed
    }

    /// Takes over what was passed: holding it must end at `cap`. `false` if it has ended meanwhile.
    pub(crate) fn claim(&self, token: &OwnerToken, cap: Option<LeaseInstant>) -> bool {
        self.change(token, |entry| entry.cap = cap)
    }

    /// From now on it is to be left standing until then.
    pub(super) fn stand(&self, token: &OwnerToken, until: LeaseInstant) {
        self.change(token, |entry| entry.least = Some(until)); // of one that has ended nothing stands
    }

    /// Changes the entry of this token; `false` if it has ended.
    fn change(&self, token: &OwnerToken, change: impl FnOnce(&mut Entry)) -> bool {
        let mut state = self.lock();
        let live = matches!(self.observe(&mut state), HoldState::Held | HoldState::Suspect);
        state.entries.iter_mut().find(|entry| live && entry.token == *token).map(change).is_some()
    }

    /// The token of who holds it, of several entries the first one's; `None` once its end was seen to.
    pub(super) fn holder(&self) -> Option<OwnerToken> {
        self.lock().entries.iter().next().map(|entry| entry.token)
    }

    /// Which token the backend knows an entry by: that of a plain lease stays when it is passed on.
    pub(crate) fn token_of(&self, entry: &Entry) -> OwnerToken {
        match &self.key {
            LeaseKey::Plain(hold) => hold.token,
            LeaseKey::Reentrant { .. } => entry.token,
        }
    }

    /// Takes one entry out, to be undone by the caller, and tells how the lease stood; `None` if somebody else took it.
    /// The last one ends the lease. If it was not lost, the hold is `over`.
    pub(crate) fn leave(&self, token: &OwnerToken, over: Option<&Over>) -> Option<(Entry, HoldState)> {
        let mut state = self.lock();
        if state.entries.is_empty() {
            return None; // no need of the clock
        }
        let phase = self.observe(&mut state);
        let entry = state.entries.remove(token)?;
        if matches!(phase, HoldState::Held | HoldState::Suspect) {
            if let Some(over) = over {
                over.set();
                state.tell();
            }
            if state.entries.is_empty() {
                self.end(&mut state, HoldState::Released);
            }
        }
        Some((entry, phase))
    }

    /// Takes all entries out of a lost lease, to be undone by the caller.
    pub(crate) fn take_entries(&self) -> Vec<Entry> {
        self.lock().entries.take()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lock().entries.is_empty()
    }

    /// What is due at `now`, or soon enough after it to be renewed along with others. A renewal to a ttl takes at most `limit` of it.
    pub(crate) fn due(&self, now: LeaseInstant, limit: impl Fn(Ttl) -> Duration) -> Due {
        let mut state = self.lock();
        match self.observe_at(&mut state, now) {
            HoldState::Lost(_) if state.entries.is_empty() => Due::Nothing,
            HoldState::Lost(reason) => Due::Ended(reason, state.entries.take()),
            HoldState::Released => Due::Nothing,
            HoldState::Held | HoldState::Suspect => match state.renewal_ttl() {
                Some(ttl) if state.on_its_way(now).is_none() && state.renew_at <= now.after(ttl.get() / 100) => {
                    let until = now.after(limit(ttl));
                    state.begin_renewal(until, ttl.get());
                    Due::Renew(ttl, until)
                }
                _ => Due::Later,
            },
        }
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

#[cfg(test)]
pub(super) mod tests {
    use super::super::entry::{Past, Upkeep};
    use super::*;
    use crate::driver::Hold;

    pub(in crate::engine) fn lease(ttl: Duration) -> Arc<Lease> {
        let (token, ttl) = (OwnerToken::random(), Ttl::new(ttl).unwrap());
        let entry = Entry { token, ttl, upkeep: Upkeep::Renewed, cap: None, least: None, past: Past::Answered };
        let key = LeaseKey::Plain(Hold { name: LockName::new("a").unwrap(), token });
        let now = LeaseInstant::now();
        Arc::new(Lease::new(key, FencingToken::new(1).unwrap(), (now, now.after(ttl.get())), entry, now))
    }

    #[test]
    fn a_lease_is_small() {
        assert!(size_of::<Lease>() <= 168, "{} bytes", size_of::<Lease>());
    }
}
