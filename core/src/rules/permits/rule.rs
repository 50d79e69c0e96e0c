//! The effect of every request on one name.

use std::time::Duration;

use super::state::{Growth, Hold, PermitState, Terms, Waiter, count};
use crate::driver::{
    AcquireRequest, Acquisition, Begun, Busy, ForceReleased, Grant, Handing, Queueing, Released, Share,
};
use crate::rules::locks::{CLAIM_WINDOW, Given, Heard};
use crate::value::error::{Error, ErrorKind};
use crate::value::token::{FencingToken, OwnerToken};

/// The longest presence that is kept; a longer one would overflow some clocks.
const LONGEST_PRESENCE: Duration = Duration::from_secs(365 * 86_400);

/// The bounds of a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caps {
    /// The most waiters of one name. A further one is refused.
    pub waiters: u32,
    /// The most holders of one name. A further one waits, as if it did not fit.
    pub holders: u32,
}

/// The reason why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The token was abandoned.
    Abandoned,
    /// The weight is zero, or more than the capacity.
    Impossible(Share),
    /// So many wait already.
    QueueFull(u32),
    /// The token has no hold to resize.
    NotHeld,
    /// A later change of the hold arrived before.
    Superseded,
    /// Another hold waits to weigh more. The two would wait for each other.
    AnotherGrows,
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        let (kind, text) = match refusal {
            Refusal::Abandoned => (ErrorKind::NotHeld, "this attempt was abandoned before its request arrived".into()),
            Refusal::Impossible(Share { weight, capacity }) => (
                ErrorKind::InvalidArgument,
                format!("a weight of {weight} is outside 1 to {capacity}, the capacity of the request"),
            ),
            Refusal::QueueFull(most) => {
                (ErrorKind::LimitReached, format!("the line of this name is full: it has {most} waiters"))
            }
            Refusal::NotHeld => (ErrorKind::NotHeld, "the hold ended before its request arrived".into()),
            Refusal::Superseded => (ErrorKind::NotHeld, "a later change of the hold arrived before its request".into()),
            Refusal::AnotherGrows => {
                (ErrorKind::LimitReached, "another hold of this name waits to weigh more, and only one may".into())
            }
        };
        Self::new(kind, text)
    }
}

/// What a rule takes from outside of the record of one name, and its effects there.
pub trait Outside {
    /// A failure of the store. [`Infallible`](std::convert::Infallible) if it has none.
    type Error;

    /// Returns a fence greater than all earlier ones of the name.
    fn fence(&mut self) -> Result<FencingToken, Self::Error>;

    /// Returns the number of the client that asks, if the store reaches waiters by their clients. The record keeps it
    /// with the waiter.
    fn client(&self) -> u64 {
        0
    }

    /// Notifies a waiter of a client that it should ask, or hands it a lease; at the latest when the changes of the
    /// request are stored.
    fn signal(&mut self, waiter: &OwnerToken, client: u64, given: Option<Given>) -> Result<Heard, Self::Error>;

    /// Remembers that the token was abandoned.
    fn bury(&mut self, token: &OwnerToken) -> Result<(), Self::Error>;

    /// Returns true if the token was abandoned a short while ago.
    fn is_buried(&self, token: &OwnerToken) -> Result<bool, Self::Error>;
}

/// The rule of one name, for one request.
///
/// After an error of the store the record is partly changed: the store discards it, and the request was not applied.
#[derive(Debug)]
pub struct Rule<'a, O> {
    state: &'a mut PermitState,
    outside: O,
    caps: Caps,
    now: Duration,
    changed: bool,
}

/// The state of a waiter whose turn came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// It left the line, with its hold or because it can receive no wake-ups.
    Left,
    /// It has the claim window to ask.
    Called,
    /// The same, but no client is known to listen.
    Unheard,
}

impl<'a, O: Outside> Rule<'a, O> {
    /// Makes the rule of a request at one instant. Ended holds and absent waiters are removed.
    pub fn new(state: &'a mut PermitState, now: Duration, caps: Caps, outside: O) -> Self {
        let changed = state.settle(now);
        Self { state, outside, caps, now, changed }
    }

    /// Returns true if the store has to write the record.
    pub const fn changed(&self) -> bool {
        self.changed
    }

    /// Takes a share if it fits behind the waiters before it, or returns that it does not.
    ///
    /// A token that holds gets its hold again, and one that waits keeps its place, both with the share of its first
    /// request. The number of fences that the request asks for is ignored: a grant has one.
    ///
    /// # Errors
    ///
    /// Those of the store, like all methods.
    pub fn acquire(
        &mut self,
        share: Share,
        request: &AcquireRequest,
    ) -> Result<Result<Acquisition, Refusal>, O::Error> {
        let token = &request.token;
        let is_buried = self.outside.is_buried(token)?;
        flaw!(AbandonedReturns => return self.ask(share, request));
        if is_buried {
            self.serve()?;
            return Ok(Err(Refusal::Abandoned));
        }
        self.ask(share, request)
    }

    fn ask(&mut self, share: Share, request: &AcquireRequest) -> Result<Result<Acquisition, Refusal>, O::Error> {
        let (token, ttl) = (&request.token, request.ttl.get());
        if let Some(place) = self.state.place(token) {
            // It asks now: it need not be notified, and its room is reserved if it fits.
            self.state.line[place].called = true;
        }
        // Waiters before it may fit since a lease ended.
        self.serve()?;
        if let Some(at) = self.state.find(token) {
            return Ok(Ok(self.grant_again(at, ttl)));
        }
        let place = self.state.place(token);
        let share = place.map_or(share, |place| self.state.line[place].share);
        if !share.is_possible() {
            return Ok(Err(Refusal::Impossible(share)));
        }
        if !self.fits(place.unwrap_or(self.state.line.len()), share) {
            return Ok(self.busy(place, share, request));
        }
        // Waiters before it fit too, and were notified. It does not wait for them to ask.
        if let Some(place) = place {
            self.state.line.remove(place);
        }
        let (fence, label) = (self.outside.fence()?, request.label.clone());
        let (since, until) = (self.now, self.now + ttl);
        self.state.add(Hold { token: *token, share, fence, since, until, ttl, label, handed: false, step: 0 });
        self.changed = true;
        // The capacity that it named no longer limits the waiters behind it.
        self.serve()?;
        Ok(Ok(granted(fence, ttl, Begun::Now)))
    }

    /// Returns the hold of a token that asks again. One that was handed over lasts as long as requested, from now on.
    fn grant_again(&mut self, at: usize, ttl: Duration) -> Acquisition {
        let hold = &mut self.state.holds[at];
        if !hold.handed {
            return granted(hold.fence, hold.ttl, Begun::Earlier);
        }
        hold.extend(self.now, ttl);
        (hold.handed, hold.ttl) = (false, ttl);
        self.changed = true;
        granted(hold.fence, ttl, Begun::Now)
    }

    /// Returns true if a share fits beside the holds and behind so many waiters, and they still fit afterwards.
    fn fits(&self, before: usize, share: Share) -> bool {
        flaw!(EntersDuringUpgrade => return self.has_room(before, share));
        self.state.growth.is_none() && self.has_room(before, share)
    }

    fn has_room(&self, before: usize, share: Share) -> bool {
        flaw!(RequestOvertakes => return self.state.used + u64::from(share.weight) <= u64::from(share.capacity));
        if !self.may_hold(self.state.holds.len() + before + 1) {
            return false;
        }
        let (mut used, mut least) = (self.state.used + u64::from(share.weight), share.capacity);
        for waiter in self.state.line.iter().take(before) {
            (used, least) = (used + u64::from(waiter.share.weight), least.min(waiter.share.capacity));
            flaw!(RequestIgnoresLimits => least = share.capacity);
            if used > u64::from(least) {
                return false;
            }
        }
        used <= u64::from(least)
    }

    const fn may_hold(&self, holders: usize) -> bool {
        holders <= self.caps.holders as usize
    }

    /// The share does not fit now.
    fn busy(
        &mut self,
        mut place: Option<usize>,
        share: Share,
        request: &AcquireRequest,
    ) -> Result<Acquisition, Refusal> {
        if let Queueing::Join { presence, accepts } = request.queue {
            let present = self.now + presence.min(LONGEST_PRESENCE);
            let line = &mut self.state.line;
            match place {
                Some(place) => line[place].present = present,
                None if line.len() >= self.caps.waiters as usize => return Err(Refusal::QueueFull(self.caps.waiters)),
                None => {
                    let terms = || Terms { ttl: request.ttl.get(), label: request.label.clone() };
                    let terms = (accepts == Handing::Direct).then(terms);
                    let client = self.outside.client();
                    line.push_back(Waiter { token: request.token, client, share, present, called: false, terms });
                    place = Some(line.len() - 1);
                }
            }
            self.changed = true;
        }
        if let Some(place) = place {
            self.state.line[place].called = false;
            self.changed = true;
        }
        let position = place.filter(|_| request.queue != Queueing::None).map(count);
        Ok(self.busy_until(position, self.recheck_at(place, share)))
    }

    fn busy_until(&self, position: Option<u32>, recheck_at: Option<Duration>) -> Acquisition {
        let recheck_after = recheck_at.map(|at| at.saturating_sub(self.now));
        let busy = Busy::default().with_position(position).with_recheck_after(recheck_after);
        Acquisition::Busy(busy.with_answered_at(Some(self.now)))
    }

    /// Returns the time at which a share could fit without a wake-up.
    fn recheck_at(&self, place: Option<usize>, share: Share) -> Option<Duration> {
        let is_first = place.is_none_or(|place| place == 0);
        if let Some(growth) = &self.state.growth {
            return is_first.then_some(growth.present);
        }
        let head = self.state.line.front().filter(|_| place != Some(0));
        match head {
            // It lapses, and the others look then.
            Some(head) if head.called => Some(head.present),
            Some(_) if !is_first => None, // those before will be served first
            Some(head) if self.has_room(0, share) => Some(head.present),
            _ => self.state.enough_ended_at(None, |back, ended| {
                let used = self.state.used - back + u64::from(share.weight);
                used <= u64::from(share.capacity) && self.may_hold(self.state.holds.len() - ended + 1)
            }),
        }
    }

    /// Gives the turn to the upgrade that waits, or to all waiters at the front that fit, one after the other.
    fn serve(&mut self) -> Result<(), O::Error> {
        if self.call_growth()? {
            return Ok(());
        }
        let (mut at, mut is_unheard) = (0, false);
        let (mut reserved, mut least) = (0, u32::MAX);
        while let Some(waiter) = self.state.line.get(at) {
            let (limit, weight) = (least.min(waiter.share.capacity), u64::from(waiter.share.weight));
            flaw!(WaiterOvertakes => {
                if self.state.used + reserved + weight > u64::from(limit) {
                    at += 1;
                    continue;
                }
            });
            let fits = self.state.used + reserved + weight <= u64::from(limit);
            if !fits || !self.may_hold(self.state.holds.len() + at + 1) {
                break;
            }
            let turn = if waiter.called { Turn::Called } else { self.give_turn(at)? };
            if turn != Turn::Left {
                // It keeps its room until it asks or lapses.
                (at, reserved, least) = (at + 1, reserved + weight, limit);
                flaw!(NothingReserved => reserved = 0);
                flaw!(WaiterIgnoresLimits => least = u32::MAX);
            }
            is_unheard |= turn == Turn::Unheard;
        }
        if is_unheard { self.wake_behind(at) } else { Ok(()) }
    }

    /// Notifies the upgrade that waits, once it fits. Returns true if it waits still.
    fn call_growth(&mut self) -> Result<bool, O::Error> {
        let Some(growth) = &self.state.growth else { return Ok(false) };
        if growth.called || !self.fits_grown(&growth.token, growth.to) {
            return Ok(true);
        }
        let heard = self.outside.signal(&growth.token, growth.client, None)?;
        self.changed = true;
        match (heard, &mut self.state.growth) {
            (Heard::Yes | Heard::Perhaps | Heard::ByNobody, Some(growth)) => {
                growth.called = true;
                Ok(true)
            }
            (_, growth) => {
                *growth = None; // it does not ask any more
                Ok(false)
            }
        }
    }

    /// Returns true if a hold with this share fits beside the others.
    fn fits_grown(&self, token: &OwnerToken, to: Share) -> bool {
        let own = self.state.find(token).map_or(0, |at| self.state.holds[at].share.weight);
        let others = self.state.used - u64::from(own);
        flaw!(UpgradeBesideHolder => return others <= u64::from(to.capacity));
        others + u64::from(to.weight) <= u64::from(to.capacity)
    }

    /// Gives the turn to a waiter that fits: the hold itself, if it takes it without asking and no room is reserved.
    fn give_turn(&mut self, at: usize) -> Result<Turn, O::Error> {
        let Waiter { token, client, share, terms, .. } = &self.state.line[at];
        let (token, client, share) = (*token, *client, *share);
        let Some(Terms { ttl, label }) = terms.clone().filter(|_| may_hand_over(at)) else {
            let heard = self.outside.signal(&token, client, None)?;
            return Ok(self.call(at, heard));
        };
        let (fence, ttl) = (self.next_fence()?, ttl.min(CLAIM_WINDOW));
        let heard = self.outside.signal(&token, client, Some(Given { fence, ttl, fences: 1 }))?;
        if !matches!(heard, Heard::Yes | Heard::Perhaps) {
            return Ok(self.call(at, heard));
        }
        self.state.line.remove(at);
        let (since, until) = (self.now, handed_until(self.now, ttl));
        let hold = Hold { token, share, fence, since, until, ttl, label, handed: true, step: 0 };
        self.state.add(hold);
        self.changed = true;
        Ok(Turn::Left)
    }

    fn next_fence(&mut self) -> Result<FencingToken, O::Error> {
        let fence = self.outside.fence()?;
        flaw!(HandedSharesFence => return Ok(self.state.holds.last().map_or(fence, |hold| hold.fence)));
        Ok(fence)
    }

    /// From now on a waiter has the claim window to ask. One that can receive no wake-ups leaves the line.
    fn call(&mut self, at: usize, heard: Heard) -> Turn {
        self.changed = true;
        if heard == Heard::Never {
            self.state.line.remove(at);
            return Turn::Left;
        }
        let waiter = &mut self.state.line[at];
        (waiter.called, waiter.present) = (true, waiter.present.min(self.now + CLAIM_WINDOW));
        if heard == Heard::ByNobody { Turn::Unheard } else { Turn::Called }
    }

    /// A notified waiter without a listener keeps its place until it lapses; but the next one behind that can hear is
    /// notified, so that it looks then.
    fn wake_behind(&mut self, from: usize) -> Result<(), O::Error> {
        for waiter in self.state.line.iter().skip(from) {
            if matches!(self.outside.signal(&waiter.token, waiter.client, None)?, Heard::Yes | Heard::Perhaps) {
                break;
            }
        }
        Ok(())
    }

    /// Changes what a hold weighs. The lease lasts as long as before, and the answer has its remaining time as the ttl.
    ///
    /// Less takes effect at once, and keeps the fence; it also ends the hold's own wait to weigh more. More is granted
    /// when it fits beside the other holds, with a new fence; until then the answer is busy, and no waiter and no other
    /// request is served for the time of the `presence` from now. Without a presence the request is one attempt and
    /// leaves nothing behind. A repeated request for the weight that the hold has changes nothing, and so does one whose
    /// `step` is less than that of an earlier one: it arrived late.
    pub fn resize(
        &mut self,
        token: &OwnerToken,
        to: Share,
        step: u32,
        presence: Option<Duration>,
    ) -> Result<Result<Acquisition, Refusal>, O::Error> {
        let answer = self.try_resize(token, to, step, presence)?;
        flaw!(ShrinkServesNone => return Ok(answer));
        self.serve()?;
        Ok(answer)
    }

    fn try_resize(
        &mut self,
        token: &OwnerToken,
        to: Share,
        step: u32,
        presence: Option<Duration>,
    ) -> Result<Result<Acquisition, Refusal>, O::Error> {
        if !to.is_possible() {
            return Ok(Err(Refusal::Impossible(to)));
        }
        let Some(at) = self.state.find(token) else { return Ok(Err(Refusal::NotHeld)) };
        let hold = &mut self.state.holds[at];
        if is_late(hold, step) {
            return Ok(Err(Refusal::Superseded));
        }
        self.changed |= step > hold.step;
        hold.step = step;
        let (fence, had, left) = (hold.fence, hold.share.weight, hold.left(self.now));
        if to.weight <= had {
            self.stop_growing(token);
            if to.weight == had {
                return Ok(Ok(granted(fence, left, Begun::Earlier)));
            }
            self.state.used -= u64::from(had - to.weight);
            self.state.holds[at].share = to;
            self.changed = true;
            return Ok(Ok(granted(fence, left, Begun::Now)));
        }
        if self.state.growth.as_ref().is_some_and(|growth| growth.token != *token) {
            flaw!(UpgradesReplace => return self.grow(at, to, presence));
            return Ok(Err(Refusal::AnotherGrows));
        }
        self.grow(at, to, presence)
    }

    /// Makes a hold weigh more if it fits, or lets it wait before the line.
    fn grow(
        &mut self,
        at: usize,
        to: Share,
        presence: Option<Duration>,
    ) -> Result<Result<Acquisition, Refusal>, O::Error> {
        let token = self.state.holds[at].token;
        self.stop_growing(&token);
        if self.fits_grown(&token, to) {
            let fence = self.outside.fence()?;
            let mut hold = self.state.remove(at);
            hold.share = to;
            hold.fence = fence;
            flaw!(UpgradeKeepsFence => hold.fence = FencingToken::new(1).expect("not zero"));
            let (fence, left) = (hold.fence, hold.left(self.now));
            self.state.add(hold);
            self.changed = true;
            return Ok(Ok(granted(fence, left, Begun::Now)));
        }
        if let Some(presence) = presence {
            let present = self.now + presence.min(LONGEST_PRESENCE);
            self.state.growth = Some(Growth { token, client: self.outside.client(), to, present, called: false });
            self.changed = true;
        }
        let others = self.state.used - u64::from(self.state.holds[at].share.weight);
        let fits = |back: u64, _| others - back + u64::from(to.weight) <= u64::from(to.capacity);
        let recheck_at = self.state.enough_ended_at(Some(&token), fits);
        Ok(Ok(self.busy_until(presence.map(|_| 0), recheck_at)))
    }

    fn stop_growing(&mut self, token: &OwnerToken) {
        if self.state.growth.as_ref().is_some_and(|growth| growth.token == *token) {
            self.state.growth = None;
            self.changed = true;
        }
    }

    /// Ends a lease, and serves the waiters that fit now.
    pub fn release(&mut self, token: &OwnerToken) -> Result<Released, O::Error> {
        let released = self.end(token);
        flaw!(ReleaseServesNone => return Ok(released));
        self.serve()?;
        Ok(released)
    }

    fn end(&mut self, token: &OwnerToken) -> Released {
        self.stop_growing(token);
        let found = self.state.find(token);
        flaw!(ReleasesAnother => {
            if found.is_some() {
                self.state.remove(0);
                self.changed = true;
                return Released::Released;
            }
        });
        let Some(at) = found else { return Released::NotHeld };
        self.state.remove(at);
        self.changed = true;
        Released::Released
    }

    /// Undoes every request of a token: its hold, its place in the line, and a request that arrives later.
    pub fn abandon(&mut self, token: &OwnerToken) -> Result<(), O::Error> {
        self.outside.bury(token)?;
        if let Some(place) = self.state.place(token) {
            flaw!(AbandonKeepsPlace => return Ok(()));
            self.state.line.remove(place);
            self.changed = true;
        }
        flaw!(AbandonKeepsHold => return Ok(()));
        self.release(token).map(drop)
    }

    /// Takes a hold from its holder, by its fence, and serves the waiters that fit now. If no hold has this fence, the
    /// answer is [`ForceReleased::NotHeld`], whatever others hold.
    pub fn evict(&mut self, fence: FencingToken) -> Result<ForceReleased, O::Error> {
        let held = self.state.holds.iter().find(|hold| hold.fence == fence).map(|hold| hold.token);
        let released = held.map_or(Released::NotHeld, |token| self.end(&token));
        self.serve()?;
        Ok(match released {
            Released::Released => ForceReleased::Released,
            Released::NotHeld => ForceReleased::NotHeld,
        })
    }
}

/// Returns true if a later change of the hold has arrived before the one with this number.
fn is_late(hold: &Hold, step: u32) -> bool {
    flaw!(LateChangeCounts => return false);
    step < hold.step
}

/// Returns true if a release may hand a hold to the waiter at this place. Behind others that were notified it asks, as
/// they do, so that its fence is not necessarily smaller than theirs.
fn may_hand_over(at: usize) -> bool {
    flaw!(NothingReserved => return true);
    at == 0
}

fn handed_until(now: Duration, ttl: Duration) -> Duration {
    flaw!(HandedNeverEnds => return now + Duration::from_secs(1_000_000_000));
    now + ttl
}

fn granted(fence: FencingToken, ttl: Duration, begun: Begun) -> Acquisition {
    Acquisition::Granted(Grant::new(fence, ttl).with_begun(begun))
}
