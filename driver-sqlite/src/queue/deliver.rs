//! Handing out what is due.

use tenure_core::driver::{
    Cause, DeadCause, Flow, Healed, Lease, Next, POSTPONED, RawDelivery, ReceiveRequest, Received,
};
use tenure_core::queue::Reason;

use super::message::{Broken, Message, State, doom_number};
use super::state::QueueTurn;
use crate::error::Done;
use crate::span::{micros, of_micros};

/// How many messages one receive looks at beyond those that it hands out.
const LOOKS: usize = 500;

/// What became of a message that should be dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Burial {
    Done,
    Postponed,
}

impl QueueTurn<'_, '_> {
    pub(super) fn receive(&mut self, request: &ReceiveRequest) -> Done<Received> {
        if request.max == 0 {
            return Ok(Received::nothing(Next::Now));
        }
        if self.flow == Flow::Paused {
            return Ok(Received::nothing(Next::Paused));
        }
        let (mut deliveries, mut healed) = (Vec::new(), Healed::default());
        let now = self.turn.at;
        let mut looks = LOOKS;
        let most = request.max.min(self.room()?);
        while deliveries.len() < most && looks > 0 {
            let Some((at, number, expired)) = self.head()?.filter(|(at, ..)| *at <= now) else { break };
            let Some(read) = self.load_message(number)? else { break };
            healed.expired += u32::from(expired);
            let mut message = match read {
                Ok(message) => message,
                Err(broken) => {
                    looks -= 1;
                    match self.bury_broken(&broken)? {
                        Burial::Done => healed.dead += 1,
                        Burial::Postponed => healed.postponed += 1,
                    }
                    continue;
                }
            };
            if let Some(cause) = message.life.doom_at(now) {
                looks -= 1;
                if expired {
                    message.life.reason = Some(Reason::lease_ended());
                }
                match self.bury(&mut message, cause)? {
                    Burial::Done => healed.dead += 1,
                    Burial::Postponed => healed.postponed += 1,
                }
            } else if self.must_be_held(&message)? {
                looks -= 1;
                self.relocate(&mut message, State::Held, at)?;
            } else {
                let cause = if expired { Cause::LeaseExpired } else { message.life.cause };
                deliveries.push(self.hand_out(message, cause, request.lease)?);
            }
        }
        self.spend(deliveries.len())?;
        let next = match self.soonest()? {
            None => Next::Never,
            Some(at) if at <= now => Next::Now,
            Some(at) => Next::In(of_micros(at - now)),
        };
        Ok(Received::new(deliveries, next).with_healed(healed))
    }

    /// The message whose time is the soonest, and whether that is the end of a lease.
    fn head(&self) -> Done<Option<(i64, i64, bool)>> {
        let waiting = self.first(State::Waiting)?.map(|(at, number)| (at, number, false));
        let leased = self.first(State::Leased)?.map(|(at, number)| (at, number, true));
        Ok([waiting, leased].into_iter().flatten().min())
    }

    fn must_be_held(&self, message: &Message) -> Done<bool> {
        let Some(key) = &message.key else { return Ok(false) };
        let look = "SELECT 1 FROM message WHERE queue = ?1 AND key = ?2 AND state = 2 AND number <> ?3";
        let by = (self.queue.as_bytes(), key.as_bytes(), message.number);
        Ok(self.turn.db.prepare_cached(look)?.exists(by)?)
    }

    fn hand_out(&mut self, mut message: Message, cause: Cause, lease: Lease) -> Done<RawDelivery> {
        let (at, now) = (message.at, self.turn.at);
        let fence = self.turn.fences(1)?;
        let turn = message.turn.take();
        message.life.attempt += 1;
        message.fence = fence.get().cast_signed();
        self.relocate(&mut message, State::Leased, now + micros(lease.get()))?;
        let (id, receipt) = (message.id(), message.receipt());
        Ok(RawDelivery::new(id, message.payload, fence, receipt)
            .with_attempt(message.life.attempt)
            .with_attempts(message.life.attempts)
            .with_cause(cause)
            .with_late(of_micros(now - at))
            .with_age(of_micros(now - message.pushed))
            .with_turn(turn)
            .with_key(message.key)
            .with_lock(message.lock)
            .with_reason(message.life.reason)
            .with_recurrence(message.life.recurrence))
    }

    /// Moves a message to the dead letters, if they have a place.
    pub(super) fn bury(&self, message: &mut Message, cause: DeadCause) -> Done<Burial> {
        message.life.doomed = Some(cause);
        if self.graveyard_is_full()? {
            self.relocate(message, State::Waiting, self.turn.at + micros(POSTPONED))?;
            return Ok(Burial::Postponed);
        }
        self.relocate(message, State::Dead, self.turn.at)?;
        Ok(Burial::Done)
    }

    /// The same for one that cannot be read: only what is known to be wrong is written.
    fn bury_broken(&self, broken: &Broken) -> Done<Burial> {
        let (burial, state, at) = match self.graveyard_is_full()? {
            true => (Burial::Postponed, State::Waiting, self.turn.at + micros(POSTPONED)),
            false => (Burial::Done, State::Dead, self.turn.at),
        };
        let bury = "UPDATE message SET state = ?2, at = ?3, doomed = ?4, reason = ?5 WHERE number = ?1 RETURNING key";
        let reason = format!("damaged: {}", broken.what);
        let by = (broken.number, state as i64, at, doom_number(DeadCause::Damaged), reason);
        let key: Option<Vec<u8>> = self.turn.db.prepare_cached(bury)?.query_row(by, |row| row.get(0))?;
        self.free(key.as_deref())?;
        Ok(burial)
    }

    fn graveyard_is_full(&self) -> Done<bool> {
        let dead = u64::try_from(self.count("state = 3")?).unwrap_or(0);
        Ok(dead >= self.turn.caps.max_dead_letters)
    }
}
