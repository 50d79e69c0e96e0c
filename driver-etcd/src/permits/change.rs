//! Changes of a hold's weight.

use std::time::Duration;

use tenure_core::driver::{Acquisition, Begun, Busy, ErrorExt as _, Grant, PermitChange, Share};
use tenure_core::rules::permits::Refusal;
use tenure_core::{Error, ErrorKind, OwnerToken, Result};

use super::ask::{MOST_STARTS, crowded, remaining};
use super::seen::{Growing, Held, Seen, grow_value, seen};
use super::txn::Of;
use crate::error::says_lease_gone;
use crate::fences;
use crate::inner::Inner;
use crate::link::{reads, revision};
use crate::record::{Part, Record};

struct Change<'a> {
    inner: &'a Inner,
    of: Of<'a>,
    token: &'a OwnerToken,
    to: Share,
    step: u32,
    presence: Option<Duration>,
}

impl Inner {
    pub(super) async fn resize(&self, change: &PermitChange) -> Result<Acquisition> {
        self.link.ensure_open()?;
        let PermitChange { hold, to, step, presence, .. } = change;
        if !to.is_possible() {
            return Err(Refusal::Impossible(*to).into());
        }
        self.tickets.ensure_alive(&hold.token)?;
        let keys = self.permits.of(hold.family, &hold.name);
        let own = keys.of(&hold.token);
        let of = Of { keys: &keys, own: &own };
        let (to, step, presence) = (*to, *step, *presence);
        let change = Change { inner: self, of, token: &hold.token, to, step, presence };
        change.answer().await
    }

    /// Ends the wait of a hold to weigh more, as far as this client knows of it.
    pub(super) async fn stop_growing(&self, token: &OwnerToken) -> Result<()> {
        match self.tickets.waiting(token) {
            Some(_) => Ok(()), // what it waits for is its place
            None => self.session.withdraw(token).await,
        }
    }
}

impl Change<'_> {
    async fn answer(&self) -> Result<Acquisition> {
        let mut seen = None;
        for _ in 0..MOST_STARTS {
            let now = match seen.take() {
                Some(now) => now,
                None => self.inner.look(self.of, self.token, None).await?,
            };
            let Some(held) = now.hold_of(self.token) else { return Err(Refusal::NotHeld.into()) };
            if self.step < held.part.step {
                return Err(Refusal::Superseded.into());
            }
            let growing = now.growth.as_ref().filter(|growth| growth.token == *self.token);
            let had = held.part.share.weight;
            let tried = if self.to.weight <= had {
                self.lessen(held, growing).await?
            } else if now.growth.is_some() && growing.is_none() {
                return Err(Refusal::AnotherGrows.into());
            } else if now.fits_grown(held, self.to) {
                self.grow(&now, held, growing).await?
            } else {
                self.wait(&now, held, growing).await?
            };
            match tried {
                Tried::Done(answer) => return Ok(answer),
                Tried::Not(now) => seen = now,
            }
        }
        Err(crowded())
    }

    /// The record of the hold after this change, with another share if it has one.
    fn record(&self, held: &Held, part: Part) -> Result<Record> {
        let record =
            held.seen.record.clone().ok_or_else(|| Error::new(ErrorKind::Damaged, "the hold has no record"))?;
        Ok(Record { permit: Some(Part { step: self.step, ..part }), ..record })
    }

    async fn lessen(&self, held: &Held, growing: Option<&Growing>) -> Result<Tried> {
        let same = self.to.weight == held.part.share.weight;
        if same && self.step == held.part.step && growing.is_none() {
            return self.granted(held, Begun::Earlier).await.map(Tried::Done);
        }
        let share = if same { held.part.share } else { self.to };
        let record = self.record(held, Part { share, ..held.part })?;
        let answer = self.inner.txn(self.of.rewrite(held, &record, growing)).await?;
        if !answer.succeeded() {
            return seen(&answer, self.of.own, self.token, 0).map(Some).map(Tried::Not);
        }
        if growing.is_some() {
            self.inner.session.gone(self.token);
        }
        let begun = if same { Begun::Earlier } else { Begun::Now };
        self.granted(held, begun).await.map(Tried::Done)
    }

    async fn grow(&self, now: &Seen, held: &Held, growing: Option<&Growing>) -> Result<Tried> {
        let base = self.inner.fences.base().await?;
        let part = Part { share: self.to, step: self.step, grown: Some(0) };
        let record = Record { base: base.locks, ..self.record(held, part)? };
        let txn = self.of.grow(now, held, &record, growing, (&self.inner.fences, &base));
        let answer = self.inner.txn(txn).await?;
        if !answer.succeeded() {
            self.inner.fences.look_again(reads(&answer).first());
            return seen(&answer, self.of.own, self.token, 1).map(Some).map(Tried::Not);
        }
        if growing.is_some() {
            self.inner.session.gone(self.token);
        }
        let grown = fences::of_lock(base.locks, revision(&answer)?)?;
        Ok(Tried::Done(Acquisition::Granted(Grant::new(grown, self.rest(held).await?))))
    }

    /// Waits before the line; without a presence, leaves nothing but the number of the step.
    async fn wait(&self, now: &Seen, held: &Held, growing: Option<&Growing>) -> Result<Tried> {
        let (inner, session) = (self.inner, &self.inner.session);
        let record = self.record(held, held.part)?;
        let Some(presence) = self.presence else {
            if self.step > held.part.step || growing.is_some() {
                let answer = inner.txn(self.of.rewrite(held, &record, growing)).await?;
                if !answer.succeeded() {
                    return seen(&answer, self.of.own, self.token, 0).map(Some).map(Tried::Not);
                }
            }
            if growing.is_some() {
                session.gone(self.token);
            }
            return Ok(Tried::Done(Acquisition::Busy(Busy::default())));
        };
        let epoch = inner.crowds.ensure_live().await?;
        let live = session.ensure().await?;
        if let Some(growing) = growing.filter(|growing| growing.to == self.to && self.step == held.part.step) {
            session.present_with(self.token, self.of.keys.grow(), grow_value(growing.to, self.token), presence);
            inner.crowds.take_in(self.of.keys.base(), epoch, self.token, now);
            return Ok(Tried::Done(Acquisition::Busy(Busy::default().with_position(Some(0)))));
        }
        let key = session.key(&live);
        session.present_with(self.token, self.of.keys.grow(), grow_value(self.to, self.token), presence);
        let txn = self.of.wait_to_grow(self.token, held, &record, self.to, now.grow_written, &key);
        let answer = match inner.txn(txn).await {
            Ok(answer) => answer,
            Err(error) if says_lease_gone(&error) => {
                session.corrected(live.lease, None);
                return Ok(Tried::Not(None));
            }
            Err(error) => return Err(error),
        };
        if !answer.succeeded() {
            let first = reads(&answer).into_iter().next();
            session.corrected(live.lease, first.and_then(|key| Some(key.kvs().first()?.mod_revision())));
            return seen(&answer, self.of.own, self.token, 1).map(Some).map(Tried::Not);
        }
        let now = seen(&answer, self.of.own, self.token, 0)?;
        inner.crowds.take_in(self.of.keys.base(), epoch, self.token, &now);
        // It was not there before, and nothing else has changed: it does not fit.
        Ok(Tried::Done(Acquisition::Busy(Busy::default().with_position(Some(0)))))
    }

    /// The hold as before, with the remaining time of its lease.
    async fn granted(&self, held: &Held, begun: Begun) -> Result<Acquisition> {
        let fence = held.seen.fence().ok_or_else(|| Error::new(ErrorKind::Damaged, "the hold has no fence"))?;
        Ok(Acquisition::Granted(Grant::new(fence, self.rest(held).await?).with_begun(begun)))
    }

    /// The remaining time of the lease. The change is made already if this fails.
    async fn rest(&self, held: &Held) -> Result<Duration> {
        let rest = remaining(self.inner, self.token, held).await.map_err(Error::half_way)?;
        rest.ok_or_else(|| Refusal::NotHeld.into())
    }
}

/// An attempt that was made.
enum Tried {
    Done(Acquisition),
    Not(Option<Seen>),
}
