//! The client's view of one grant. Decisions only: no I/O, and no timers except in [`Lease::lost`].

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::driver::{Family, Hold, PermitHold, ReentrantHold};
use crate::value::error::LockName;
use crate::value::time::{HoldState, LeaseInstant, LostReason, Ttl, part};
use crate::value::token::{FencingToken, OwnerId, OwnerToken};

pub(crate) struct Lease {
    pub(crate) key: LeaseKey,
    /// The first of the grant; holders after a hand-over have later ones. An upgrade raises it.
    fence: AtomicU64,
    state: Mutex<State>,
    pub(crate) place: TimerIndex,
}

/// The renewer's next action for a lease.
#[derive(Debug)]
pub(crate) enum Due {
    /// Send a renewal, which is on its way until then, and leaves so late.
    Renew { ttl: Ttl, until: LeaseInstant, late: Duration },
    /// Look again.
    Later,
    /// It has just ended; these entries must be undone.
    Ended(LostReason, Vec<Entry>),
    /// Nothing any more.
    Nothing,
}

impl Lease {
    /// Makes a lease that was received at `now`, began no earlier than `base`, and is relied on until `deadline`.
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
            longest: entry.ttl,
            seldom: None,
        };
        state.entries.push(entry);
        state.plan_renewal(base, now);
        Self { key, fence: AtomicU64::new(fence.get()), state: Mutex::new(state), place: TimerIndex::default() }
    }

    pub(crate) fn name(&self) -> &LockName {
        match &self.key {
            LeaseKey::Plain(hold) => &hold.name,
            LeaseKey::Reentrant(hold) => &hold.name,
            LeaseKey::Permits(hold) => &hold.name,
        }
    }

    pub(crate) fn fence(&self) -> FencingToken {
        FencingToken::new(self.fence.load(Ordering::Relaxed)).expect("made from a fence")
    }

    /// Sets the fence of an upgrade.
    pub(super) fn raise_fence(&self, fence: FencingToken) {
        self.fence.fetch_max(fence.get(), Ordering::Relaxed);
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the state by the clock: the first check of an ended lease marks it as lost.
    pub(crate) fn state(&self) -> HoldState {
        self.observe(&mut self.lock())
    }

    /// Returns the state of one hold on it.
    pub(super) fn state_of(&self, over: &Over) -> HoldState {
        let mut state = self.lock();
        // The hold's own end first: after it, the lease may be lost by a later holder.
        if over.is_set() { HoldState::Released } else { self.observe(&mut state) }
    }

    /// Returns a flag that is set when the hold with this token ends.
    pub(super) fn watch(&self, token: &OwnerToken) -> Arc<Over> {
        let mut state = self.lock();
        let watched = &mut state.seldom().watched;
        if let Some((_, over)) = watched.iter().find(|(watched, _)| watched == token) {
            return Arc::clone(over);
        }
        let over = Arc::default();
        watched.push((*token, Arc::clone(&over)));
        over
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
        state.notify();
    }

    /// Returns the notification of changes from now on.
    pub(super) fn changes(&self) -> Arc<Notify> {
        Arc::clone(&self.lock().seldom().changed)
    }

    /// Accesses the state of the clean-ups of its entries.
    pub(crate) fn undoing<T>(&self, look: impl FnOnce(&mut PendingUndo) -> T) -> T {
        look(&mut self.lock().seldom().undoing)
    }

    /// Returns the time until the view ends, without future renewals.
    pub(crate) fn remaining(&self) -> Duration {
        let mut state = self.lock();
        match self.observe(&mut state) {
            HoldState::Held | HoldState::Suspect => state.end_of_view().remaining(),
            HoldState::Lost(_) | HoldState::Released => Duration::ZERO,
        }
    }

    /// Returns the time until which the backend surely keeps it.
    pub(crate) fn deadline(&self) -> LeaseInstant {
        self.lock().deadline
    }

    /// Returns the time until which the backend may keep it: a renewal without an answer may have been applied, and was
    /// given up before the end of its ttl.
    pub(crate) fn possible_end(&self, now: LeaseInstant) -> LeaseInstant {
        let state = self.lock();
        now.after(state.longest.get() * 2).max(state.deadline)
    }

    /// Returns the time before which it is not released but kept.
    pub(crate) fn least(&self) -> Option<LeaseInstant> {
        self.lock().seldom.as_ref().and_then(|seldom| seldom.least)
    }

    /// Extends the deadline, by the answer of a request that was not the renewer's.
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

    /// Resolves when the lease is lost, or when it is released, or when the given hold on it ends.
    pub(super) async fn ended(&self, over: Option<&Over>) -> Option<LostReason> {
        loop {
            let changes = self.changes();
            let changed = changes.notified(); // before looking
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

    /// Gives the one entry of a plain lease another token, if `from` has it, no renewal is in doubt, and the lease
    /// lasts for `least` even without another one. The old token has no effect on the lease any more; the holder of the
    /// new one has to [claim](Self::claim) it by `until`, or the lease ends.
    pub(super) fn pass(&self, from: &OwnerToken, to: OwnerToken, least: Duration, until: LeaseInstant) -> bool {
        let mut state = self.lock();
        let sound = self.observe(&mut state) == HoldState::Held && state.deadline.remaining() >= least;
        let entry = state.entries.iter_mut().find(|entry| sound && entry.token == *from);
        let passed = entry.map(|entry| (entry.token, entry.cap) = (to, Some(until))).is_some();
        if passed {
            state.is_over(from);
        }
        passed
    }

    /// Takes over a lease that was handed over: the hold must end at `cap`. Returns `false` if it has ended meanwhile.
    pub(crate) fn claim(&self, token: &OwnerToken, cap: Option<LeaseInstant>) -> bool {
        self.change(token, |entry| entry.cap = cap)
    }

    /// Marks the lease to be kept until then.
    pub(super) fn stand(&self, token: &OwnerToken, until: LeaseInstant) {
        if let Some(mut state) = self.live(token) {
            state.seldom().least = Some(until); // of one that has ended nothing stands
        }
    }

    /// Changes the entry of this token; `false` if it has ended.
    fn change(&self, token: &OwnerToken, change: impl FnOnce(&mut Entry)) -> bool {
        let mut state = self.live(token);
        let entry = state.as_mut().and_then(|state| state.entries.iter_mut().find(|entry| entry.token == *token));
        entry.map(change).is_some()
    }

    /// Returns the lease's state, unless the entry of this token has ended.
    fn live(&self, token: &OwnerToken) -> Option<MutexGuard<'_, State>> {
        let mut state = self.lock();
        let live = matches!(self.observe(&mut state), HoldState::Held | HoldState::Suspect);
        (live && state.entries.iter().any(|entry| entry.token == *token)).then_some(state)
    }

    /// Returns the token of the holder, with several entries the first one's; `None` once its end was handled.
    pub(super) fn holder(&self) -> Option<OwnerToken> {
        self.lock().entries.iter().next().map(|entry| entry.token)
    }

    /// Returns the token by which the backend knows an entry: that of a plain lease stays when it is handed over.
    pub(crate) fn token_of(&self, entry: &Entry) -> OwnerToken {
        match &self.key {
            LeaseKey::Plain(hold) => hold.token,
            LeaseKey::Reentrant(_) | LeaseKey::Permits(_) => entry.token,
        }
    }

    /// Takes one entry out, to be undone by the caller, and returns the state of the lease; `None` if another call took
    /// it. The last one ends the lease. If it was not lost, the hold ends.
    pub(super) fn leave(&self, token: &OwnerToken, now: LeaseInstant) -> Option<(Entry, HoldState)> {
        let mut state = self.lock();
        if state.entries.is_empty() {
            return None; // nobody is to notice its end now
        }
        // The clock first: leaving a lease that has ended is a loss and not a release, though no timer has fired yet.
        let phase = self.observe_at(&mut state, now);
        let entry = state.entries.remove(token)?;
        if matches!(phase, HoldState::Held | HoldState::Suspect) {
            state.is_over(token);
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

    /// Returns the action due at `now`, or soon enough after it to be renewed along with others. A renewal to a ttl
    /// takes at most `limit` of it.
    pub(crate) fn due(&self, now: LeaseInstant, limit: impl Fn(Ttl) -> Duration) -> Due {
        let mut state = self.lock();
        match self.observe_at(&mut state, now) {
            // Entries are taken out once, here or by their holders: each is undone by one clean-up.
            HoldState::Lost(_) if state.entries.is_empty() => Due::Nothing,
            HoldState::Lost(reason) => Due::Ended(reason, state.entries.take()),
            HoldState::Released => Due::Nothing,
            HoldState::Held | HoldState::Suspect => match state.renewal_ttl() {
                Some(ttl) if state.on_its_way(now).is_none() && state.renew_at <= now.after(ttl.get() / 100) => {
                    // Marked under this lock: a release that begins now waits for the renewal (`quiet`).
                    let (until, late) = (now.after(limit(ttl)), now.since(state.renew_at));
                    state.begin_renewal(until, Some(ttl));
                    Due::Renew { ttl, until, late }
                }
                _ => Due::Later,
            },
        }
    }

    /// Returns the time of the renewer's next check; `None` when there is nothing to manage any more.
    pub(crate) fn next_look(&self) -> Option<LeaseInstant> {
        let state = self.lock();
        match state.phase {
            HoldState::Held | HoldState::Suspect => Some(state.next_look()),
            HoldState::Lost(_) => (!state.entries.is_empty()).then_some(state.end_of_view()),
            HoldState::Released => None,
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("name", self.name())
            .field("fence", &self.fence())
            .field("state", &self.state())
            .finish()
    }
}

/// The upkeep of a lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
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
    /// The time at which the hold must end, renewed or not.
    pub(crate) cap: Option<LeaseInstant>,
    pub(crate) past: Past,
}

/// The entries of one hold. The first one needs no separate memory.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    first: Option<Entry>,
    #[expect(clippy::box_collection, reason = "nearly always none, and then it takes a third of the room")]
    more: Option<Box<Vec<Entry>>>,
}

impl Entries {
    pub(crate) fn push(&mut self, entry: Entry) {
        match self.first {
            None => self.first = Some(entry),
            Some(_) => self.more.get_or_insert_default().push(entry),
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.first.iter().chain(self.more.iter().flat_map(|more| more.iter()))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Entry> {
        self.first.iter_mut().chain(self.more.iter_mut().flat_map(|more| more.iter_mut()))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// Takes out the entry of this token.
    pub(crate) fn remove(&mut self, token: &OwnerToken) -> Option<Entry> {
        if let Some(entry) = self.first.take_if(|entry| entry.token == *token) {
            return Some(entry);
        }
        let more = self.more.as_mut()?;
        let index = more.iter().position(|entry| entry.token == *token)?;
        Some(more.swap_remove(index))
    }

    pub(crate) fn take(&mut self) -> Vec<Entry> {
        let all = self.iter().copied().collect();
        *self = Self::default();
        all
    }
}

/// The state of requests of the entry's token before the grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Past {
    /// Every request was answered.
    Answered,
    /// One was not, and could take the lock again after a release: the token has to be abandoned in the end.
    Unanswered,
}

impl Past {
    /// Returns the state of a token whose requests since then are unanswered.
    pub(crate) fn of(unanswered_since: Option<LeaseInstant>) -> Self {
        if unanswered_since.is_some() { Self::Unanswered } else { Self::Answered }
    }
}

/// The identity of a lease at the backend.
#[derive(Clone, Debug)]
pub(crate) enum LeaseKey {
    Plain(Hold),
    Reentrant(Box<ReentrantHold>),
    Permits(Box<PermitHold>),
}

/// The kind of a hold, as far as its requests differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Plain,
    Reentrant(OwnerId),
    Permits(Family),
}

impl LeaseKey {
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::Plain(_) => Kind::Plain,
            Self::Reentrant(hold) => Kind::Reentrant(hold.owner),
            Self::Permits(hold) => Kind::Permits(hold.family),
        }
    }
}

// What a lease knows of itself, and when something is due. Reads no clock.

/// The meaning of a renewal's answer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Verdict {
    /// Confirmed; the lease lasts this reliable span from before the renewal was sent.
    Confirmed { sent_at: LeaseInstant, believable: Duration },
    /// Not known.
    Unknown,
    /// The backend proved the loss.
    Lost,
}

/// The delay before a short lease that was handed over is extended. Work that is done by then costs no renewal, and its
/// release waits for none. Counted from when the grant is received: in doubt, the lease is assumed to have begun
/// before.
const HANDED: Duration = Duration::from_millis(2);

pub(super) struct State {
    pub(super) phase: HoldState,
    pub(super) deadline: LeaseInstant,
    pub(super) renew_at: LeaseInstant,
    pub(super) entries: Entries,
    /// The time until which a renewal is on its way, or was.
    pub(super) renewing: Option<LeaseInstant>,
    /// The longest ttl that it was requested with or renewed to.
    pub(super) longest: Ttl,
    pub(super) seldom: Option<Box<Seldom>>,
}

/// Rarely used parts: for leases that are watched or waited for, those that are kept for a span, and re-entrant ones
/// that are being undone.
#[derive(Debug, Default)]
pub(super) struct Seldom {
    /// Notified when the lease ends, for any reason, and when a renewal is answered.
    changed: Arc<Notify>,
    /// The time before which it is not released.
    least: Option<LeaseInstant>,
    /// The holds that are watched without their guards.
    watched: Vec<(OwnerToken, Arc<Over>)>,
    undoing: PendingUndo,
}

impl State {
    /// Wakes the tasks that wait for a change.
    pub(super) fn notify(&self) {
        if let Some(seldom) = &self.seldom {
            seldom.changed.notify_waiters();
        }
    }

    fn seldom(&mut self) -> &mut Seldom {
        self.seldom.get_or_insert_default()
    }

    /// Marks the hold with this token as released or handed over before the lease ended.
    fn is_over(&mut self, token: &OwnerToken) {
        let Some(seldom) = &mut self.seldom else { return };
        if let Some(index) = seldom.watched.iter().position(|(watched, _)| watched == token) {
            seldom.watched.swap_remove(index).1.set();
            self.notify();
        }
    }

    pub(super) fn is_live(&self) -> bool {
        matches!(self.phase, HoldState::Held | HoldState::Suspect)
    }

    pub(super) fn cap(&self) -> Option<LeaseInstant> {
        self.entries.iter().filter_map(|entry| entry.cap).min()
    }

    pub(super) fn end_of_view(&self) -> LeaseInstant {
        self.cap().map_or(self.deadline, |cap| cap.min(self.deadline))
    }

    pub(super) fn overdue(&self, now: LeaseInstant) -> Option<LostReason> {
        match self.cap() {
            Some(cap) if cap <= now => Some(LostReason::MaxHold),
            _ if self.deadline <= now => Some(LostReason::Expired),
            _ => None,
        }
    }

    /// Returns the ttl of the next renewal: the longest that a renewed entry requested.
    pub(super) fn renewal_ttl(&self) -> Option<Ttl> {
        self.entries.iter().filter(|entry| entry.upkeep == Upkeep::Renewed).map(|entry| entry.ttl).max()
    }

    pub(super) fn plan_renewal(&mut self, from: LeaseInstant, now: LeaseInstant) {
        if let Some(ttl) = self.renewal_ttl() {
            let third = ttl.get() / 3;
            // Up to a tenth earlier, so that leases taken together are not renewed together for ever.
            let usual = from.after(third - part(third, 0.1 * self.spread()));
            // One that lasts for less than was asked for was handed over, and is made to last soon.
            let handed = self.deadline < from.after(2 * third);
            self.renew_at = if handed { usual.min(now.after(HANDED)) } else { usual };
        }
    }

    pub(super) fn plan_retry(&mut self, now: LeaseInstant) {
        if let Some(ttl) = self.renewal_ttl() {
            // Sooner as the end comes nearer.
            let pause = (ttl.get() / 12).min(self.end_of_view().since(now) / 4);
            let pause = pause.clamp(Duration::from_millis(5), Duration::from_secs(1));
            self.renew_at = now.after(pause.mul_f64(0.75 + 0.25 * self.spread()));
        }
    }

    /// Returns a number in 0..1 that differs between leases.
    pub(super) fn spread(&self) -> f64 {
        self.entries.iter().next().map_or(0.0, |entry| entry.token.spread())
    }

    /// Returns the time until which a renewal is on its way. One that is not answered by then is given up, from any
    /// sender.
    pub(super) fn on_its_way(&self, now: LeaseInstant) -> Option<LeaseInstant> {
        self.renewing.filter(|until| *until > now)
    }

    /// Counts a renewal to `ttl` as on its way until then; one to none sends nothing.
    pub(super) fn begin_renewal(&mut self, until: LeaseInstant, ttl: Option<Ttl>) {
        self.renewing = Some(until);
        self.longest = ttl.map_or(self.longest, |ttl| ttl.max(self.longest));
    }

    /// Ends the renewal that was on its way until then; `false` if it was given up, and another one replaced it.
    pub(super) fn end_renewal(&mut self, until: LeaseInstant) -> bool {
        let ended = self.renewing.take_if(|own| *own == until).is_some();
        if ended {
            self.notify();
        }
        ended
    }

    pub(super) fn next_look(&self) -> LeaseInstant {
        let end = self.end_of_view();
        // Nothing leaves while a renewal is on its way. The end of the view must be noticed in time all the same.
        match self.renewal_ttl() {
            Some(_) => self.renewing.map_or(self.renew_at, |until| until.max(self.renew_at)).min(end),
            None => end,
        }
    }
}

// How far the entries of a lost hold are undone.

/// The state of the clean-ups of a lease's entries.
#[derive(Debug, Default)]
pub(crate) struct PendingUndo {
    pending: u32,
    last: Option<LeaseInstant>,
}

/// One clean-up under way; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct UndoMark(Arc<Lease>);

impl UndoMark {
    pub(crate) fn of(lease: &Arc<Lease>) -> Self {
        let mark = Self(Arc::clone(lease));
        mark.note(|progress| progress.pending += 1);
        mark
    }

    /// Records a change; not needed for a plain lease.
    fn note(&self, note: impl FnOnce(&mut PendingUndo)) {
        if let LeaseKey::Reentrant(_) = self.0.key {
            self.0.undoing(note);
        }
    }

    pub(crate) fn lease(&self) -> &Lease {
        &self.0
    }
}

impl PendingUndo {
    /// Returns true if nothing was left to undo when a request left at `sent`. One that left earlier may have found
    /// entries that were not undone yet.
    pub(crate) fn was_over_at(&self, sent: LeaseInstant) -> bool {
        self.pending == 0 && self.last.is_none_or(|last| last < sent)
    }
}

impl Drop for UndoMark {
    fn drop(&mut self) {
        self.note(|progress| {
            progress.pending -= 1;
            progress.last = Some(LeaseInstant::now());
        });
    }
}

#[cfg(test)]
pub(super) mod tests;

/// A flag: one hold on a lease was released or handed over before the lease ended. Read and written under the lock of
/// the lease.
#[derive(Debug, Default)]
pub(crate) struct Over(AtomicBool);

impl Over {
    pub(super) fn set(&self) {
        self.0.store(true, Ordering::Release);
    }

    pub(super) fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// No place.
pub(super) const NOT_QUEUED: u32 = u32::MAX;

/// The position of a lease in the timer queue of its client. Read and written by the timer queue alone.
#[derive(Debug)]
pub(crate) struct TimerIndex(AtomicU32);

impl Default for TimerIndex {
    fn default() -> Self {
        Self(AtomicU32::new(NOT_QUEUED))
    }
}

impl TimerIndex {
    pub(super) fn get(&self) -> u32 {
        self.0.load(Ordering::Relaxed) // the timer queue is behind a lock
    }

    pub(super) fn set(&self, index: u32) {
        self.0.store(index, Ordering::Relaxed);
    }
}
