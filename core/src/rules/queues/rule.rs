//! The rule of one request: pushes and settlements, and the steps that all requests share.

use super::message::{Clock, Line, Message, Moment, Place};
use super::rows::{At, Rows};
use crate::driver::{
    DeadCause, Extended, Extension, Fate, Flow, IfKnown, MessageState, NamedId, NewMessage, POSTPONED, Pushed, Receipt,
    Settle, Settled, TokenBucket,
};
use crate::value::queue::{ConcurrencyKey, MessageId};

/// All instants.
pub(super) const ALWAYS: std::ops::RangeInclusive<Moment> = 0..=Moment::MAX;

/// The bounds of a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caps {
    /// The most dead letters of a queue.
    pub dead_letters: u64,
    /// The most messages that one receive checks and does not deliver.
    pub looks: usize,
    /// The number of bytes of payload after which an answer ends.
    pub answer_bytes: usize,
}

/// The rule of one queue, for one request.
#[derive(Debug)]
pub struct Rule<'a, R> {
    pub(super) rows: &'a mut R,
    pub(super) clock: Clock,
    pub(super) caps: Caps,
}

/// The fate of a message that should be dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Burial {
    Done,
    /// The dead letters are full.
    Postponed,
}

impl<'a, R: Rows> Rule<'a, R> {
    /// Makes the rule of a request at one instant.
    pub fn new(rows: &'a mut R, clock: Clock, caps: Caps) -> Self {
        Self { rows, clock, caps }
    }

    /// Returns the soonest instant at which a receive is worthwhile; `None` while there is none. A driver compares it
    /// before and after a request: if it became sooner, the driver wakes the queue's watchers.
    ///
    /// # Errors
    ///
    /// Those of the rows, like all methods.
    pub fn soonest(&self) -> Result<Option<Moment>, R::Error> {
        if self.rows.head().flow == Flow::Paused {
            return Ok(None);
        }
        let Some(((at, _), _)) = self.next()? else { return Ok(None) };
        Ok(Some(at.max(self.room_at()?)))
    }

    /// The message whose time is the soonest, and its line.
    pub(super) fn next(&self) -> Result<Option<(At, Line)>, R::Error> {
        let waiting = self.rows.first(Line::Waiting)?.map(|at| (at, Line::Waiting));
        let leased = self.rows.first(Line::Leased)?.map(|at| (at, Line::Leased));
        Ok([waiting, leased].into_iter().flatten().min())
    }

    /// When the limits allow a delivery, as far as is known now.
    fn room_at(&self) -> Result<Moment, R::Error> {
        let (head, now) = (self.rows.head(), self.clock.now());
        let token = self.bucket().map_or(0, |bucket| bucket.token_at(head.full_at, now));
        let Some(most) = head.limits.max_in_flight() else { return Ok(token) };
        let Some(surplus) = self.in_flight()?.checked_sub(most.get() as usize) else { return Ok(token) };
        let place = self.rows.nth_after(Line::Leased, now, surplus)?;
        Ok(place.unwrap_or(0).max(token))
    }

    /// How many deliveries the limits allow.
    pub(super) fn room(&self) -> Result<usize, R::Error> {
        let head = self.rows.head();
        let places = match head.limits.max_in_flight() {
            None => usize::MAX,
            Some(most) => (most.get() as usize).saturating_sub(self.in_flight()?),
        };
        let tokens = self.bucket().map_or(usize::MAX, |bucket| bucket.tokens(head.full_at, self.clock.now()) as usize);
        Ok(places.min(tokens))
    }

    /// Takes tokens for deliveries.
    pub(super) fn spend(&mut self, deliveries: usize) -> Result<(), R::Error> {
        let Some(bucket) = self.bucket().filter(|_| deliveries > 0) else { return Ok(()) };
        let mut head = self.rows.head();
        head.full_at = bucket.spent(head.full_at, self.clock.now(), deliveries);
        self.rows.set_head(head)
    }

    fn bucket(&self) -> Option<TokenBucket> {
        Some(TokenBucket::new(self.rows.head().limits.max_rate()?, self.clock.tick()))
    }

    fn in_flight(&self) -> Result<usize, R::Error> {
        let count = self.rows.count(Line::Leased, self.clock.now() + 1..=Moment::MAX)?;
        Ok(usize::try_from(count).unwrap_or(usize::MAX))
    }

    /// Returns true if a push leaves no more than `most` messages in the queue, dead letters not counted.
    pub fn fits(&self, messages: &[NewMessage], most: u64) -> Result<bool, R::Error> {
        let mut count = 0;
        for message in messages {
            count += u64::from(self.known(message)?.is_none());
        }
        for line in [Line::Waiting, Line::Held, Line::Leased] {
            count += self.rows.count(line, ALWAYS)?;
        }
        Ok(count <= most)
    }

    /// Stores messages.
    pub fn push(&mut self, messages: &[NewMessage]) -> Result<Vec<Pushed>, R::Error> {
        messages.iter().map(|message| self.push_one(message)).collect()
    }

    fn push_one(&mut self, message: &NewMessage) -> Result<Pushed, R::Error> {
        let mut replaced = false;
        match (self.known(message)?, message.if_known) {
            (None, _) => {}
            (Some((number, MessageState::Scheduled | MessageState::Ready)), IfKnown::Replace) => {
                self.discard(number)?;
                replaced = true;
            }
            (Some((_, state)), _) => return Ok(Pushed::Duplicate(state)),
        }
        let number = self.rows.insert(Box::new(Message::new(&self.clock, message)))?;
        let id = message.id.as_ref().map_or_else(|| MessageId::assigned(number), |named| named.id.clone());
        Ok(if replaced { Pushed::Replaced(id) } else { Pushed::Stored(id) })
    }

    /// The number and state of the message that has this one's name. If only the name is known, the number is zero.
    fn known(&self, message: &NewMessage) -> Result<Option<(u64, MessageState)>, R::Error> {
        let Some(named) = &message.id else { return Ok(None) };
        if let Some((number, place)) = self.rows.find(&named.id)? {
            return Ok(Some((number, place.state(self.clock.now()))));
        }
        let settled = self.rows.is_settled(&named.id, self.clock.now())?;
        Ok(settled.then_some((0, MessageState::Settled)))
    }

    /// Settles deliveries.
    pub fn settle(&mut self, settles: &[Settle]) -> Result<Vec<Settled>, R::Error> {
        settles.iter().map(|settle| self.settle_one(settle)).collect()
    }

    fn settle_one(&mut self, settle: &Settle) -> Result<Settled, R::Error> {
        let Some(mut message) = self.take_delivered(settle.receipt, |_| true)? else { return Ok(Settled::Stale) };
        match message.life.settle(&settle.how) {
            Fate::Removed => {
                let known_for = message.named.as_ref().and_then(NamedId::known_for);
                let key = message.key.clone();
                self.rows.finish(message, known_for.map(|window| self.clock.after(window)))?;
                self.free(key)?;
                Ok(Settled::Done)
            }
            Fate::Waits(delay) => {
                self.relocate(message, Place::new(Line::Waiting, self.clock.after(delay.get())))?;
                Ok(Settled::Done)
            }
            Fate::Dies(cause) => Ok(match self.bury(message, cause)? {
                Burial::Done => Settled::Dead,
                Burial::Postponed => Settled::Postponed,
            }),
        }
    }

    /// Extends the leases of deliveries.
    pub fn extend(&mut self, extensions: &[Extension]) -> Result<Vec<Extended>, R::Error> {
        extensions.iter().map(|extension| self.extend_one(extension)).collect()
    }

    fn extend_one(&mut self, extension: &Extension) -> Result<Extended, R::Error> {
        let now = self.clock.now();
        let lasts = |message: &Message| message.place.at > now;
        let Some(message) = self.take_delivered(extension.receipt, lasts)? else { return Ok(Extended::Stale) };
        let until = message.place.at.max(self.clock.after(extension.lease.get()));
        self.relocate(message, Place::new(Line::Leased, until))?;
        Ok(Extended::Extended)
    }

    /// Takes the message of a delivery that is not settled.
    fn take_delivered(
        &mut self,
        receipt: Receipt,
        wanted: impl FnOnce(&Message) -> bool,
    ) -> Result<Option<Box<Message>>, R::Error> {
        let [number, ..] = receipt.parts();
        let taken = self.rows.take(number, |message| message.is_delivered_as(receipt) && wanted(message))?;
        Ok(taken.and_then(Result::ok))
    }

    /// Moves a message that was taken out to another place. If it was in flight, or was the next one of its key, the
    /// next one of its key may go. A dead one let the next one go when it died.
    pub(super) fn relocate(&mut self, mut message: Box<Message>, to: Place) -> Result<(), R::Error> {
        let from = std::mem::replace(&mut message.place, to);
        let frees = from.line != Line::Dead && matches!(to.line, Line::Waiting | Line::Dead);
        let key = if frees { message.key.clone() } else { None };
        self.rows.put(message, from)?;
        self.free(key)
    }

    /// Removes a message. Its name is free again.
    pub(super) fn discard(&mut self, number: u64) -> Result<(), R::Error> {
        match self.rows.discard(number)? {
            Some(discarded) if discarded.line != Line::Dead => self.free(discarded.key),
            _ => Ok(()),
        }
    }

    pub(super) fn free(&mut self, key: Option<ConcurrencyKey>) -> Result<(), R::Error> {
        key.map_or(Ok(()), |key| self.rows.free(&key))
    }

    /// Moves a message to the dead letters, if they have room.
    pub(super) fn bury(&mut self, mut message: Box<Message>, cause: DeadCause) -> Result<Burial, R::Error> {
        message.life.doomed = Some(cause);
        let (burial, place) = self.grave()?;
        self.relocate(message, place)?;
        Ok(burial)
    }

    /// Where a message goes that should be dead.
    pub(super) fn grave(&self) -> Result<(Burial, Place), R::Error> {
        Ok(match self.rows.count(Line::Dead, ALWAYS)? >= self.caps.dead_letters {
            true => (Burial::Postponed, Place::new(Line::Waiting, self.clock.after(POSTPONED))),
            false => (Burial::Done, Place::new(Line::Dead, self.clock.now())),
        })
    }
}
