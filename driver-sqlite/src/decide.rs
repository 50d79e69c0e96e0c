//! What every request does to one name, inside a transaction.
//!
//! A lease is over *at* its end, not after it, and so is a waiter's presence: rows whose time has come count as absent.

use std::time::Duration;

use tenure_core::driver::{
    AcquireRequest, Acquisition, Begun, Busy, Exited, ForceReleased, Grant, Handed, Handing, Inspection, Queueing,
    Renewed,
};
use tenure_core::{Error, ErrorKind, FencingToken, LockName, OwnerId, OwnerToken};

use crate::bell::{Ear, Letter};
use crate::error::Done;
use crate::hold::Held;
use crate::line::{CLAIM_WINDOW, Left};
use crate::span::{micros, of_micros};
use crate::store::Turn;

/// The most consecutive fences of one grant.
pub(crate) const MOST_FENCES: u32 = 1024;

/// In whose name a request comes: for itself, or for a re-entrant owner.
pub(crate) type Claimant = Option<OwnerId>;

impl Turn<'_> {
    /// Takes the name, enters it once more, or tells that it is busy.
    pub(crate) fn acquire(&mut self, claimant: Claimant, request: &AcquireRequest) -> Done<Acquisition> {
        let AcquireRequest { name, token, ttl, label, .. } = request;
        if self.is_buried(name, token)? {
            return Err(Error::new(ErrorKind::NotHeld, "this attempt was abandoned before it arrived").into());
        }
        let ttl = micros(ttl.get());
        if let Some(mut held) = self.held(name)? {
            return match held.entry(claimant, token) {
                Some(_) if held.handed > 0 => {
                    let fences = std::mem::take(&mut held.handed);
                    held.extend(self.at, ttl);
                    held.entries = vec![(*token, ttl)];
                    self.keep(name, &held)?;
                    Ok(granted(&held, ttl, Begun::Now, fences))
                }
                Some(told) => Ok(granted(&held, told, Begun::Earlier, 1)),
                None if claimant.is_some() && held.owner == claimant => self.enter(name, held, *token, ttl),
                None => self.busy(claimant, request, Some(&held)),
            };
        }
        while let Some(head) = self.head(name)?.filter(|head| head.token != *token) {
            // If the lease before it ran out, nobody told the head.
            if head.present <= self.at + CLAIM_WINDOW || self.give_turn(name)? {
                let held = self.held(name)?;
                return self.busy(claimant, request, held.as_ref());
            }
        }
        self.leave(name, token)?;
        let fences = range(claimant, request.fences);
        let held = Held {
            owner: claimant,
            entries: vec![(*token, ttl)],
            fence: self.fences(fences)?,
            since: self.at,
            until: self.at + ttl,
            label: label.clone(),
            handed: 0,
        };
        self.keep(name, &held)?;
        Ok(granted(&held, ttl, Begun::Now, fences))
    }

    /// Adds an entry. The lease grows to `ttl` if it is shorter, the fence stays.
    fn enter(&mut self, name: &LockName, mut held: Held, token: OwnerToken, ttl: i64) -> Done<Acquisition> {
        if held.depth() >= self.caps.max_depth {
            let text = format!("the owner has entered {} times already", self.caps.max_depth);
            return Err(Error::new(ErrorKind::LimitReached, text).into());
        }
        let left = held.extend(self.at, ttl);
        held.entries.push((token, left));
        self.keep(name, &held)?;
        self.leave(name, &token)?;
        Ok(granted(&held, left, Begun::Now, 1))
    }

    /// The name is held by another, or free and reserved for another.
    fn busy(&mut self, claimant: Claimant, request: &AcquireRequest, held: Option<&Held>) -> Done<Acquisition> {
        let AcquireRequest { name, token, .. } = request;
        let mut position = None;
        if let Queueing::Join { presence, accepts } = request.queue {
            if self.position(name, token)?.is_none() && self.waiters(name)? >= self.caps.max_waiters {
                let text = format!("the queue is full: {} wait already", self.caps.max_waiters);
                return Err(Error::new(ErrorKind::LimitReached, text).into());
            }
            // Who enters a re-entrant lock is woken, and asks.
            let handing = if claimant.is_none() { accepts } else { Handing::Asked };
            self.join(request, self.at + micros(presence), handing)?;
            position = self.position(name, token)?;
        }
        let recheck_after = match held {
            Some(_) if position > Some(0) => None, // those before will be served first
            Some(held) => Some(of_micros(held.until - self.at)),
            None => self.head(name)?.map(|head| of_micros(head.present - self.at)),
        };
        Ok(Acquisition::Busy(
            Busy::default()
                .with_position(position)
                .with_recheck_after(recheck_after)
                .with_answered_at(Some(of_micros(self.at))),
        ))
    }

    /// Gives the free name to the first waiter that listens. A name that nobody wants is forgotten.
    fn pass_on(&mut self, name: &LockName) -> Done<()> {
        self.free(name)?;
        while self.head(name)?.is_some() && !self.give_turn(name)? {}
        Ok(())
    }

    /// Gives the turn to the first waiter: the name itself, if it takes it without asking. Nobody's turn it is when its
    /// process is gone: all its waiters leave the line.
    fn give_turn(&mut self, name: &LockName) -> Done<bool> {
        let Some(head) = self.head(name)? else { return Ok(false) };
        match self.ear(head.client) {
            Ear::Gone => {
                self.leave_all(name, head.client)?;
                return Ok(false);
            }
            Ear::Unknown => {
                // It may still ask, and keeps its place; but the next one that can hear is told to look.
                self.call(&head)?;
                let mut place = head.place;
                while let Some(next) = self.behind(name, place)? {
                    if self.ear(next.client) == Ear::Open {
                        self.tell(next.client, Letter::Wake(next.token));
                        break;
                    }
                    place = next.place;
                }
            }
            Ear::Open if head.direct => {
                let fences = range(None, head.fences);
                let ttl = head.ttl.min(CLAIM_WINDOW);
                let fence = self.fences(fences)?;
                let (entries, until) = (vec![(head.token, ttl)], self.at + ttl);
                let (since, label) = (self.at, head.label);
                self.leave(name, &head.token)?;
                self.keep(name, &Held { owner: None, entries, fence, since, until, label, handed: fences })?;
                let handed = Handed::new(fence, of_micros(ttl), of_micros(self.at)).with_fences(fences);
                self.tell(head.client, Letter::Hand(head.token, handed));
            }
            Ear::Open => {
                self.call(&head)?;
                self.tell(head.client, Letter::Wake(head.token));
            }
        }
        Ok(true)
    }

    /// Renews the lease of a token.
    pub(crate) fn renew(&mut self, name: &LockName, token: &OwnerToken, ttl: Duration) -> Done<Renewed> {
        self.renew_if(name, ttl, |held| held.entry(None, token).is_some())
    }

    /// Renews a re-entrant lease as a whole.
    pub(crate) fn renew_hold(
        &mut self,
        name: &LockName,
        owner: OwnerId,
        fence: FencingToken,
        ttl: Duration,
    ) -> Done<Renewed> {
        self.renew_if(name, ttl, |held| held.owner == Some(owner) && held.fence == fence)
    }

    fn renew_if(&mut self, name: &LockName, ttl: Duration, same: impl FnOnce(&Held) -> bool) -> Done<Renewed> {
        let Some(mut held) = self.held(name)?.filter(same) else { return Ok(Renewed::Lost) };
        let left = held.extend(self.at, micros(ttl));
        self.db.prepare_cached("UPDATE hold SET until = ?2 WHERE name = ?1")?.execute((name.as_bytes(), held.until))?;
        Ok(Renewed::Extended { ttl: of_micros(left) })
    }

    /// Undoes one entry; the last one ends the lease.
    pub(crate) fn exit(&mut self, claimant: Claimant, name: &LockName, token: &OwnerToken) -> Done<Exited> {
        let exited = self.undo(claimant, name, token)?;
        if exited == Exited::Released {
            self.pass_on(name)?;
        }
        Ok(exited)
    }

    /// Undoes one entry, and gives the turn to nobody.
    fn undo(&mut self, claimant: Claimant, name: &LockName, token: &OwnerToken) -> Done<Exited> {
        let held = self.held(name)?.filter(|held| held.entry(claimant, token).is_some());
        let Some(mut held) = held else { return Ok(Exited::NotHeld) };
        held.entries.retain(|(entry, _)| entry != token);
        if held.entries.is_empty() {
            self.free(name)?;
            return Ok(Exited::Released);
        }
        self.keep(name, &held)?;
        Ok(Exited::Inside { depth: held.depth() })
    }

    /// Undoes an entry and a place in the line, and remembers that the token was abandoned.
    pub(crate) fn abandon(&mut self, claimant: Claimant, name: &LockName, token: &OwnerToken) -> Done<()> {
        self.bury(name, token)?;
        let exited = self.undo(claimant, name, token)?;
        let left = self.leave(name, token)?;
        if (exited == Exited::Released || left == Left::Head) && self.held(name)?.is_none() {
            self.pass_on(name)?;
        }
        Ok(())
    }

    /// Takes the name from whoever holds it, or from the hold with the expected fence alone.
    pub(crate) fn force_release(&mut self, name: &LockName, expected: Option<FencingToken>) -> Done<ForceReleased> {
        let Some(held) = self.held(name)? else { return Ok(ForceReleased::NotHeld) };
        if expected.is_some_and(|fence| fence != held.fence) {
            return Ok(ForceReleased::Changed);
        }
        self.pass_on(name)?;
        Ok(ForceReleased::Released)
    }

    /// What an operator sees.
    pub(crate) fn inspect(&mut self, name: &LockName) -> Done<Inspection> {
        let holder = self.held(name)?.map(|held| held.seen_from_outside(self.at));
        Ok(Inspection::default().with_holder(holder).with_waiters(self.waiters(name)?))
    }
}

fn granted(held: &Held, ttl: i64, begun: Begun, fences: u32) -> Acquisition {
    Acquisition::Granted(
        Grant::new(held.fence, of_micros(ttl)).with_begun(begun).with_depth(held.depth()).with_fences(fences),
    )
}

/// How many fences a grant carries. All entries of an owner share one.
fn range(claimant: Claimant, asked: u32) -> u32 {
    if claimant.is_some() { 1 } else { asked.clamp(1, MOST_FENCES) }
}
