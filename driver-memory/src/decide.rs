//! What every request does to the state of one name: functions of state, time and request, and nothing else.
//!
//! Each decision first settles the state, that is, it drops the lease and the waiters whose time has come. A lease is
//! over *at* its end, not after it.

use std::time::Duration;

use tenure_core::driver::{
    AcquireRequest, Acquisition, Begun, Busy, Exited, ForceReleased, Grant, Handing, Inspection, Queueing, Raised,
    Released, Renewed,
};
use tenure_core::{FencingToken, OwnerToken};
use tokio::time::Instant;

use crate::delay::QueueCaps;
use crate::hold::{Claimant, Held, HeldBy, Reached};
use crate::queue::{CLAIM_WINDOW, Left, Queue, Terms};

/// The longest presence that is kept; a longer one would overflow the clock on some platforms.
const LONGEST_PRESENCE: Duration = Duration::from_secs(365 * 86_400);

/// Everything known of one name. An idle state is worth no memory, see [`NameState::is_idle`].
#[derive(Debug, Default)]
pub(crate) struct NameState {
    hold: Option<Held>,
    queue: Queue,
}

/// The caps of a store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caps {
    pub(crate) max_waiters: u32,
    pub(crate) max_depth: u32,
    pub(crate) queues: QueueCaps,
}

impl Caps {
    pub(crate) const DEEPEST: u32 = 65_535;
    pub(crate) const MOST_WAITERS: u32 = 1_000_000;
    pub(crate) const MOST_FENCES: u32 = 1024;
    pub(crate) const DEFAULT: Self = Self { max_waiters: 10_000, max_depth: Self::DEEPEST, queues: QueueCaps::DEFAULT };
}

/// What a decision takes from outside the name: fences, and the ear of those who wait.
pub(crate) trait Outside {
    /// The first of so many consecutive fences, greater than any before.
    fn fences(&mut self, count: u32) -> FencingToken;

    /// Tells a waiter that its turn has come, or that it was given the name; and what became of that.
    fn tell(&mut self, waiter: &OwnerToken, given: Option<Given>) -> Heard;
}

/// A lease that a waiter has without asking for it at that moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Given {
    pub(crate) fence: FencingToken,
    pub(crate) ttl: Duration,
    pub(crate) fences: u32,
}

/// What became of a wake-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    Yes,
    /// The link is deaf; who knows whether the waiter was on it.
    Perhaps,
    /// It listens on a link that is known to hear nothing.
    Never,
    ByNobody,
}

/// Why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    QueueFull,
    TooDeep,
}

impl NameState {
    /// Drops what is over.
    fn settle(&mut self, now: Instant) {
        if self.hold.as_ref().is_some_and(|held| held.until <= now) {
            self.hold = None;
        }
        self.queue.settle(now);
    }

    /// Whether nobody holds the name and nobody waits for it.
    pub(crate) fn is_idle(&mut self, now: Instant) -> bool {
        self.settle(now);
        self.hold.is_none() && self.queue.is_empty()
    }

    #[cfg(test)]
    pub(crate) fn leave_a_waiter(&mut self, present_until: Instant) {
        self.queue.join(OwnerToken::random(), present_until, None);
    }

    pub(crate) fn waiters(&self) -> u32 {
        self.queue.len()
    }

    /// Takes the name, enters it once more, or tells that it is busy.
    pub(crate) fn acquire(
        &mut self,
        now: Instant,
        claimant: Claimant,
        request: &AcquireRequest,
        caps: Caps,
        outside: &mut impl Outside,
    ) -> Result<Acquisition, Refusal> {
        self.settle(now);
        let (token, ttl) = (request.token, request.ttl.get());
        if let Some(held) = &mut self.hold {
            return match held.by.entry(claimant, &token) {
                Some(told) => Ok(match held.reached {
                    Reached::Handed { fences } => held.make_last(now, token, ttl, fences),
                    Reached::Asked => grant(held, told, Begun::Earlier),
                }),
                None if held.is_of(claimant) => {
                    let entered = held.enter(now, token, ttl, caps);
                    if entered.is_ok() {
                        self.queue.leave(&token);
                    }
                    entered
                }
                None => self.busy(now, claimant, request, caps),
            };
        }
        while self.queue.head().is_some_and(|head| head != token) {
            // If the lease before it ran out, nobody told the head.
            if self.queue.head_is_called(now) || self.give_turn(now, outside) {
                return self.busy(now, claimant, request, caps);
            }
        }
        self.queue.leave(&token);
        let by = HeldBy::new(claimant, token, ttl);
        let fences = range(claimant, request.fences);
        let (fence, label) = (outside.fences(fences), request.label.clone());
        let held = self.hold.insert(Held { by, fence, since: now, until: now + ttl, label, reached: Reached::Asked });
        Ok(grant_of(held, ttl, Begun::Now, fences))
    }

    /// Gives the turn at the free name to the first waiter that listens.
    fn pass_on(&mut self, now: Instant, outside: &mut impl Outside) {
        while !self.queue.is_empty() && !self.give_turn(now, outside) {}
    }

    /// Gives the turn to the first waiter: the name itself, if it takes it without asking. Nobody's turn it is when its client
    /// does not hear any more: it leaves the queue.
    fn give_turn(&mut self, now: Instant, outside: &mut impl Outside) -> bool {
        let Some((token, terms)) = self.queue.call_head(now) else { return false };
        let given = terms.as_ref().map(|Terms { ttl, fences, .. }| Given {
            fence: outside.fences(*fences),
            ttl: (*ttl).min(CLAIM_WINDOW),
            fences: *fences,
        });
        let heard = outside.tell(&token, given);
        match (heard, given) {
            (Heard::Never, _) => drop(self.queue.leave(&token)),
            (Heard::ByNobody, _) => self.tell_behind(token, outside),
            (_, None) => {}
            (_, Some(Given { fence, ttl, fences })) => {
                self.queue.leave(&token);
                let by = HeldBy::new(Claimant::Plain, token, ttl);
                let (until, label) = (now + ttl, terms.and_then(|terms| terms.label));
                self.hold = Some(Held { by, fence, since: now, until, label, reached: Reached::Handed { fences } });
            }
        }
        heard != Heard::Never
    }

    /// A waiter that nobody listens for may still ask, and keeps its place until it lapses; but the next one that can hear is
    /// told to look.
    fn tell_behind(&mut self, mut token: OwnerToken, outside: &mut impl Outside) {
        while let Some(next) = self.queue.behind(&token) {
            if matches!(outside.tell(&next, None), Heard::Yes | Heard::Perhaps) {
                break;
            }
            token = next;
        }
    }

    /// The name is held by another, or free and reserved for another.
    fn busy(
        &mut self,
        now: Instant,
        claimant: Claimant,
        request: &AcquireRequest,
        caps: Caps,
    ) -> Result<Acquisition, Refusal> {
        let mut position = None;
        if let Queueing::Join { presence, accepts } = request.queue {
            if self.queue.position(&request.token).is_none() && self.queue.len() >= caps.max_waiters {
                return Err(Refusal::QueueFull);
            }
            let fences = range(Claimant::Plain, request.fences);
            let terms = || Terms { ttl: request.ttl.get(), label: request.label.clone(), fences };
            let terms = (accepts == Handing::Direct && claimant == Claimant::Plain).then(terms);
            self.queue.join(request.token, now + presence.min(LONGEST_PRESENCE), terms);
            position = self.queue.position(&request.token);
        }
        let recheck_after = match &self.hold {
            Some(_) if position > Some(0) => None, // those before will be served first
            Some(held) => Some(held.left(now)),
            None => self.queue.head_lapses_in(now),
        };
        Ok(Acquisition::Busy(Busy::default().with_position(position).with_recheck_after(recheck_after)))
    }

    /// Renews a plain lease.
    pub(crate) fn renew(&mut self, now: Instant, token: &OwnerToken, ttl: Duration) -> Renewed {
        self.renew_if(now, ttl, |held| held.by.entry(Claimant::Plain, token).is_some())
    }

    /// Renews a re-entrant lease as a whole.
    pub(crate) fn renew_hold(
        &mut self,
        now: Instant,
        claimant: Claimant,
        fence: FencingToken,
        ttl: Duration,
    ) -> Renewed {
        self.renew_if(now, ttl, |held| held.is_of(claimant) && held.fence == fence)
    }

    fn renew_if(&mut self, now: Instant, ttl: Duration, same: impl FnOnce(&Held) -> bool) -> Renewed {
        self.settle(now);
        match &mut self.hold {
            Some(held) if same(held) => Renewed::Extended { ttl: held.extend(now, ttl) },
            _ => Renewed::Lost,
        }
    }

    /// Writes a fence back, if the token holds the name and `set` finds the counter not ahead of it.
    pub(crate) fn raise(
        &mut self,
        now: Instant,
        token: &OwnerToken,
        fence: FencingToken,
        set: impl FnOnce() -> Result<(), FencingToken>,
    ) -> Raised {
        self.settle(now);
        match &mut self.hold {
            Some(held) if held.by.entry(Claimant::Plain, token).is_some() => match set() {
                Ok(()) => {
                    held.fence = fence;
                    Raised::Acknowledged
                }
                Err(counter) => Raised::Beyond { counter },
            },
            _ => Raised::NotOwner,
        }
    }

    /// Ends a plain lease.
    pub(crate) fn release(&mut self, now: Instant, token: &OwnerToken, outside: &mut impl Outside) -> Released {
        match self.exit(now, Claimant::Plain, token, outside) {
            Exited::NotHeld => Released::NotHeld,
            Exited::Released | Exited::Inside { .. } => Released::Released,
        }
    }

    /// Undoes one entry; the last one ends the lease.
    pub(crate) fn exit(
        &mut self,
        now: Instant,
        claimant: Claimant,
        token: &OwnerToken,
        outside: &mut impl Outside,
    ) -> Exited {
        let exited = self.undo(now, claimant, token);
        if exited == Exited::Released {
            self.pass_on(now, outside);
        }
        exited
    }

    /// Undoes one entry, and gives the turn to nobody.
    fn undo(&mut self, now: Instant, claimant: Claimant, token: &OwnerToken) -> Exited {
        self.settle(now);
        let Some(held) = &mut self.hold else { return Exited::NotHeld };
        if held.by.entry(claimant, token).is_none() {
            return Exited::NotHeld;
        }
        if let HeldBy::Owner(_, entries) = &mut held.by {
            entries.remove(token);
            if !entries.is_empty() {
                return Exited::Inside { depth: held.by.depth() };
            }
        }
        self.hold = None;
        Exited::Released
    }

    /// Undoes an entry and a place in the queue.
    pub(crate) fn abandon(&mut self, now: Instant, claimant: Claimant, token: &OwnerToken, outside: &mut impl Outside) {
        let exited = self.undo(now, claimant, token);
        let left = self.queue.leave(token);
        if self.hold.is_none() && (exited == Exited::Released || left == Left::Head) {
            self.pass_on(now, outside);
        }
    }

    /// Takes the name from whoever holds it, or from the hold with the expected fence alone.
    pub(crate) fn force_release(
        &mut self,
        now: Instant,
        expected: Option<FencingToken>,
        outside: &mut impl Outside,
    ) -> ForceReleased {
        self.settle(now);
        let Some(held) = &self.hold else { return ForceReleased::NotHeld };
        if expected.is_some_and(|fence| fence != held.fence) {
            return ForceReleased::Changed;
        }
        self.hold = None;
        self.pass_on(now, outside);
        ForceReleased::Released
    }

    /// Ends the lease as if its time had come: nobody is told.
    pub(crate) fn expire(&mut self, now: Instant) -> ForceReleased {
        self.settle(now);
        match self.hold.take() {
            Some(_) => ForceReleased::Released,
            None => ForceReleased::NotHeld,
        }
    }

    /// Whether somebody holds the name.
    pub(crate) fn is_held(&self, now: Instant) -> bool {
        self.hold.as_ref().is_some_and(|held| held.until > now)
    }

    /// Who waits, in order, and for how long each still counts as present.
    pub(crate) fn line(&mut self, now: Instant) -> Vec<(OwnerToken, Duration)> {
        self.settle(now);
        self.queue.line(now)
    }

    /// What an operator sees.
    pub(crate) fn inspect(&mut self, now: Instant) -> Inspection {
        self.settle(now);
        let holder = self.hold.as_ref().map(|held| held.seen_from_outside(now));
        Inspection::default().with_holder(holder).with_waiters(self.queue.len())
    }
}

impl Held {
    /// Whether the hold is re-entrant and belongs to this owner.
    fn is_of(&self, claimant: Claimant) -> bool {
        matches!((&self.by, claimant), (HeldBy::Owner(owner, _), Claimant::Owner(asks)) if *owner == asks)
    }

    /// Makes a lease that was handed over last as long as was asked for.
    fn make_last(&mut self, now: Instant, token: OwnerToken, ttl: Duration, fences: u32) -> Acquisition {
        self.extend(now, ttl);
        self.by = HeldBy::new(Claimant::Plain, token, ttl);
        self.reached = Reached::Asked;
        grant_of(self, ttl, Begun::Now, fences)
    }

    /// Adds an entry. The lease grows to `ttl` if it is shorter, the fence stays.
    fn enter(&mut self, now: Instant, token: OwnerToken, ttl: Duration, caps: Caps) -> Result<Acquisition, Refusal> {
        if self.by.depth() >= caps.max_depth {
            return Err(Refusal::TooDeep);
        }
        let left = self.extend(now, ttl);
        if let HeldBy::Owner(_, entries) = &mut self.by {
            entries.insert(token, left);
        }
        Ok(grant(self, left, Begun::Now))
    }
}

/// A grant that says nothing of further fences: that of an entry, or of an earlier request.
fn grant(held: &Held, ttl: Duration, begun: Begun) -> Acquisition {
    grant_of(held, ttl, begun, 1)
}

fn grant_of(held: &Held, ttl: Duration, begun: Begun, fences: u32) -> Acquisition {
    Acquisition::Granted(Grant::new(held.fence, ttl).with_begun(begun).with_depth(held.by.depth()).with_fences(fences))
}

/// How many fences a grant carries. All entries of an owner share one.
fn range(claimant: Claimant, asked: u32) -> u32 {
    match claimant {
        Claimant::Plain => asked.clamp(1, Caps::MOST_FENCES),
        Claimant::Owner(_) => 1,
    }
}

#[cfg(test)]
mod tests;
