//! The effect of every request on one name.

use std::time::Duration;

use super::hold::{Claimant, Hold, HoldBy};
use super::rows::{CLAIM_WINDOW, Given, Heard, Left, Rows, Terms, Waiter};
use crate::driver::{
    AcquireRequest, Acquisition, Begun, Busy, Exited, ForceReleased, Grant, Handing, Inspection, Queueing, Released,
    Renewed,
};
use crate::value::error::{Error, ErrorKind};
use crate::value::token::{FencingToken, OwnerToken};

/// The most consecutive fences of one grant.
pub const MOST_FENCES: u32 = 1024;
/// The longest presence that is kept; a longer one would overflow some clocks.
const LONGEST_PRESENCE: Duration = Duration::from_secs(365 * 86_400);

/// The bounds of a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caps {
    /// The most waiters of one name.
    pub waiters: u32,
    /// The most entries of one owner.
    pub depth: u32,
}

/// The reason why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The token was abandoned.
    Abandoned,
    /// So many wait already.
    QueueFull(u32),
    /// The owner has so many entries already.
    TooDeep(u32),
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        let (kind, text) = match refusal {
            Refusal::Abandoned => (ErrorKind::NotHeld, "this attempt was abandoned before its request arrived".into()),
            Refusal::QueueFull(most) => {
                (ErrorKind::LimitReached, format!("the queue of this lock is full: it has {most} waiters"))
            }
            Refusal::TooDeep(most) => {
                (ErrorKind::LimitReached, format!("the owner has entered {most} times already, the maximum depth"))
            }
        };
        Self::new(kind, text)
    }
}

/// What a store has to write of the hold after a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// Nothing.
    None,
    /// Its end.
    End,
    /// All of it, or that there is none.
    Whole,
}

/// The rule of one name, for one request.
#[derive(Debug)]
pub struct Rule<'a, R> {
    hold: &'a mut Option<Hold>,
    rows: R,
    now: Duration,
    change: Change,
}

impl<'a, R: Rows> Rule<'a, R> {
    /// Makes the rule of a request at one instant. An ended hold counts as none, and is removed.
    pub fn new(hold: &'a mut Option<Hold>, rows: R, now: Duration) -> Self {
        if hold.as_ref().is_some_and(|hold| hold.until <= now) {
            *hold = None;
        }
        Self { hold, rows, now, change: Change::None }
    }

    /// Returns what was changed of the hold.
    pub const fn change(&self) -> Change {
        self.change
    }

    fn changed(&mut self, change: Change) {
        self.change = self.change.max(change);
    }

    /// Takes the name, enters it once more, or returns that it is busy.
    ///
    /// # Errors
    ///
    /// Those of the rows, like all methods.
    pub fn acquire(
        &mut self,
        claimant: Claimant,
        request: &AcquireRequest,
        caps: Caps,
    ) -> Result<Result<Acquisition, Refusal>, R::Error> {
        let (token, ttl) = (request.token, request.ttl.get());
        if self.rows.is_buried(&token)? {
            return Ok(Err(Refusal::Abandoned));
        }
        if let Some(hold) = &mut *self.hold {
            return match hold.entry(claimant, &token) {
                Some(_) if hold.handed > 0 => Ok(Ok(self.make_last(token, ttl))),
                Some(granted) => Ok(Ok(grant(hold, granted, Begun::Earlier, 1))),
                None if hold.is_of(claimant) => self.enter(token, ttl, caps),
                None => self.busy(claimant, request, caps),
            };
        }
        while let Some(head) = self.rows.head()?.filter(|head| head.token != token) {
            // If the lease before it ran out, the head was not notified.
            if head.present <= self.now + CLAIM_WINDOW || self.give_turn(head)? {
                return self.busy(claimant, request, caps);
            }
        }
        self.rows.leave(&token)?;
        let by = HoldBy::new(claimant, token, ttl);
        let fences = range(claimant, request.fences);
        let (fence, label) = (self.rows.fences(fences)?, request.label.clone());
        let (since, until) = (self.now, self.now + ttl);
        let hold = self.hold.insert(Hold { by, fence, since, until, label, handed: 0 });
        let granted = grant(hold, ttl, Begun::Now, fences);
        self.changed(Change::Whole);
        Ok(Ok(granted))
    }

    /// Makes a lease that was handed over last as long as was requested.
    fn make_last(&mut self, token: OwnerToken, ttl: Duration) -> Acquisition {
        self.changed(Change::Whole);
        let hold = self.hold.as_mut().expect("it was handed over");
        hold.extend(self.now, ttl);
        hold.by = HoldBy::new(Claimant::Plain, token, ttl);
        let fences = std::mem::take(&mut hold.handed);
        grant(hold, ttl, Begun::Now, fences)
    }

    /// Adds an entry. The lease grows to `ttl` if it is shorter, the fence stays.
    fn enter(
        &mut self,
        token: OwnerToken,
        ttl: Duration,
        caps: Caps,
    ) -> Result<Result<Acquisition, Refusal>, R::Error> {
        let hold = self.hold.as_mut().expect("it is the owner's");
        if hold.by.depth() >= caps.depth {
            return Ok(Err(Refusal::TooDeep(caps.depth)));
        }
        let left = hold.extend(self.now, ttl);
        if let HoldBy::Owner(_, entries) = &mut hold.by {
            entries.insert(token, left);
        }
        let granted = grant(hold, left, Begun::Now, 1);
        self.changed(Change::Whole);
        self.rows.leave(&token)?;
        Ok(Ok(granted))
    }

    /// The name is held by another, or free and reserved for another.
    fn busy(
        &mut self,
        claimant: Claimant,
        request: &AcquireRequest,
        caps: Caps,
    ) -> Result<Result<Acquisition, Refusal>, R::Error> {
        let mut position = None;
        if let Queueing::Join { presence, accepts } = request.queue {
            let token = &request.token;
            if self.rows.position(token)?.is_none() && self.rows.count()? >= caps.waiters {
                return Ok(Err(Refusal::QueueFull(caps.waiters)));
            }
            // A waiter for a re-entrant lock is woken, and asks.
            let fences = range(Claimant::Plain, request.fences);
            let terms = || Terms { ttl: request.ttl.get(), label: request.label.clone(), fences };
            let terms = (accepts == Handing::Direct && claimant == Claimant::Plain).then(terms);
            self.rows.join(token, self.now + presence.min(LONGEST_PRESENCE), terms)?;
            position = self.rows.position(token)?;
        }
        let recheck_after = match &*self.hold {
            Some(_) if position > Some(0) => None, // those before will be served first
            Some(hold) => Some(hold.left(self.now)),
            None => self.rows.head()?.map(|head| head.present.saturating_sub(self.now)),
        };
        let busy = Busy::default().with_position(position).with_recheck_after(recheck_after);
        Ok(Ok(Acquisition::Busy(busy.with_answered_at(Some(self.now)))))
    }

    /// Gives the turn at the free name to the first waiter that listens.
    fn pass_on(&mut self) -> Result<(), R::Error> {
        while let Some(head) = self.rows.head()? {
            if self.give_turn(head)? {
                break;
            }
        }
        Ok(())
    }

    /// Gives the turn to the first waiter: the name itself, if the waiter takes it without asking. One that cannot hear
    /// leaves the line without the turn; then the answer is false.
    fn give_turn(&mut self, head: Waiter<R::Place>) -> Result<bool, R::Error> {
        let given = match &head.terms {
            Some(Terms { ttl, fences, .. }) => {
                let (fences, ttl) = (range(Claimant::Plain, *fences), (*ttl).min(CLAIM_WINDOW));
                Some(Given { fence: self.rows.fences(fences)?, ttl, fences })
            }
            None => None,
        };
        match (self.rows.signal(&head, given)?, given) {
            (Heard::Never, _) => {
                self.rows.drop_deaf(&head)?;
                return Ok(false);
            }
            (Heard::ByNobody, _) => {
                self.call(&head)?;
                self.tell_behind(head)?;
            }
            (Heard::Yes | Heard::Perhaps, None) => self.call(&head)?,
            (Heard::Yes | Heard::Perhaps, Some(Given { fence, ttl, fences })) => {
                self.rows.leave(&head.token)?;
                let by = HoldBy::new(Claimant::Plain, head.token, ttl);
                let (since, until, label) = (self.now, self.now + ttl, head.terms.and_then(|terms| terms.label));
                *self.hold = Some(Hold { by, fence, since, until, label, handed: fences });
                self.changed(Change::Whole);
            }
        }
        Ok(true)
    }

    /// From now on the first waiter has the claim window to ask.
    fn call(&mut self, head: &Waiter<R::Place>) -> Result<(), R::Error> {
        self.rows.call(head, head.present.min(self.now + CLAIM_WINDOW))
    }

    /// A waiter without a listener may still ask, and keeps its place until it lapses; but the next one that can hear is
    /// notified.
    fn tell_behind(&mut self, mut waiter: Waiter<R::Place>) -> Result<(), R::Error> {
        while let Some(next) = self.rows.behind(&waiter)? {
            if matches!(self.rows.signal(&next, None)?, Heard::Yes | Heard::Perhaps) {
                break;
            }
            waiter = next;
        }
        Ok(())
    }

    /// Renews a plain lease.
    pub fn renew(&mut self, token: &OwnerToken, ttl: Duration) -> Renewed {
        self.renew_if(ttl, |hold| hold.entry(Claimant::Plain, token).is_some())
    }

    /// Renews a re-entrant lease as a whole.
    pub fn renew_hold(&mut self, claimant: Claimant, fence: FencingToken, ttl: Duration) -> Renewed {
        self.renew_if(ttl, |hold| hold.is_of(claimant) && hold.fence == fence)
    }

    fn renew_if(&mut self, ttl: Duration, same: impl FnOnce(&Hold) -> bool) -> Renewed {
        match &mut *self.hold {
            Some(hold) if same(hold) => {
                let ttl = hold.extend(self.now, ttl);
                self.changed(Change::End);
                Renewed::Extended { ttl }
            }
            _ => Renewed::Lost,
        }
    }

    /// Ends a plain lease.
    pub fn release(&mut self, token: &OwnerToken) -> Result<Released, R::Error> {
        Ok(match self.exit(Claimant::Plain, token)? {
            Exited::NotHeld => Released::NotHeld,
            Exited::Released | Exited::Inside { .. } => Released::Released,
        })
    }

    /// Undoes one entry; the last one ends the lease.
    pub fn exit(&mut self, claimant: Claimant, token: &OwnerToken) -> Result<Exited, R::Error> {
        let exited = self.undo(claimant, token);
        if exited == Exited::Released {
            self.pass_on()?;
        }
        Ok(exited)
    }

    /// Undoes one entry, without giving the turn to a waiter.
    fn undo(&mut self, claimant: Claimant, token: &OwnerToken) -> Exited {
        let held = self.hold.as_mut().filter(|hold| hold.entry(claimant, token).is_some());
        let Some(hold) = held else { return Exited::NotHeld };
        let mut exited = Exited::Released;
        if let HoldBy::Owner(_, entries) = &mut hold.by {
            entries.remove(token);
            if !entries.is_empty() {
                exited = Exited::Inside { depth: hold.by.depth() };
            }
        }
        if exited == Exited::Released {
            *self.hold = None;
        }
        self.changed(Change::Whole);
        exited
    }

    /// Undoes an entry and a place in the line, and remembers that the token was abandoned.
    pub fn abandon(&mut self, claimant: Claimant, token: &OwnerToken) -> Result<(), R::Error> {
        self.rows.bury(token)?;
        let exited = self.undo(claimant, token);
        let left = self.rows.leave(token)?;
        if self.hold.is_none() && (exited == Exited::Released || left == Left::Head) {
            self.pass_on()?;
        }
        Ok(())
    }

    /// Takes the name from its holder, or from the hold with the expected fence alone.
    pub fn force_release(&mut self, expected: Option<FencingToken>) -> Result<ForceReleased, R::Error> {
        let Some(hold) = &*self.hold else { return Ok(ForceReleased::NotHeld) };
        if expected.is_some_and(|fence| fence != hold.fence) {
            return Ok(ForceReleased::Changed);
        }
        *self.hold = None;
        self.changed(Change::Whole);
        self.pass_on()?;
        Ok(ForceReleased::Released)
    }

    /// Returns an operator's view.
    pub fn inspect(&self) -> Result<Inspection, R::Error> {
        let holder = self.hold.as_ref().map(|hold| hold.seen(self.now));
        Ok(Inspection::default().with_holder(holder).with_waiters(self.rows.count()?))
    }
}

fn grant(hold: &Hold, ttl: Duration, begun: Begun, fences: u32) -> Acquisition {
    Acquisition::Granted(Grant::new(hold.fence, ttl).with_begun(begun).with_depth(hold.by.depth()).with_fences(fences))
}

/// The number of fences of a grant. All entries of an owner share one.
fn range(claimant: Claimant, asked: u32) -> u32 {
    match claimant {
        Claimant::Plain => asked.clamp(1, MOST_FENCES),
        Claimant::Owner(_) => 1,
    }
}
