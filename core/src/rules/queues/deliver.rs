//! Delivering due messages.

use super::message::{Line, Message, Place};
use super::rows::Rows;
use super::rule::{Burial, Rule};
use crate::driver::{Cause, Flow, Healed, Lease, Next, RawDelivery, ReceiveRequest, Received};
use crate::value::queue::Reason;

impl<R: Rows> Rule<'_, R> {
    /// Hands out due messages, and repairs what it meets on the way.
    ///
    /// # Errors
    ///
    /// Those of the rows.
    pub fn receive(&mut self, request: &ReceiveRequest) -> Result<Received, R::Error> {
        if request.max == 0 {
            return Ok(Received::nothing(Next::Now));
        }
        if self.rows.head().flow == Flow::Paused {
            return Ok(Received::nothing(Next::Paused));
        }
        let now = self.clock.now();
        let (mut deliveries, mut healed) = (Vec::new(), Healed::default());
        let (mut looks, mut bytes) = (self.caps.looks, 0);
        let most = request.max.min(self.room()?);
        while deliveries.len() < most && looks > 0 && bytes < self.caps.answer_bytes {
            let Some(((at, number), line)) = self.next()?.filter(|((at, _), _)| *at <= now) else { break };
            let Some(taken) = self.rows.take(number, |_| true)? else { break };
            let expired = line == Line::Leased;
            healed.expired += u32::from(expired);
            let mut message = match taken {
                Ok(message) => message,
                Err(damage) => {
                    looks -= 1;
                    count(&mut healed, self.bury_damaged(number, damage)?);
                    continue;
                }
            };
            if let Some(cause) = message.life.doom_at(now) {
                looks -= 1;
                if expired {
                    message.life.reason = Some(Reason::lease_ended());
                }
                count(&mut healed, self.bury(message, cause)?);
            } else if self.must_be_held(&message)? {
                looks -= 1;
                self.relocate(message, Place::new(Line::Held, at))?;
            } else {
                let cause = if expired { Cause::LeaseExpired } else { message.life.cause };
                bytes += message.payload.len();
                deliveries.push(self.hand_out(message, cause, request.lease)?);
            }
        }
        self.spend(deliveries.len())?;
        let next = match self.soonest()? {
            None => Next::Never,
            Some(at) if at <= now => Next::Now,
            Some(at) => Next::In(self.clock.until(at)),
        };
        Ok(Received::new(deliveries, next).with_healed(healed))
    }

    fn must_be_held(&self, message: &Message) -> Result<bool, R::Error> {
        message.key.as_ref().map_or(Ok(false), |key| self.rows.is_busy(key, message.number))
    }

    fn hand_out(&mut self, mut message: Box<Message>, cause: Cause, lease: Lease) -> Result<RawDelivery, R::Error> {
        let fence = self.rows.fence()?;
        message.fence = fence.get();
        message.life.attempt += 1;
        let turn = message.turn.take();
        let delivery = message.delivery(&self.clock, fence, message.place.at, cause, turn);
        self.relocate(message, Place::new(Line::Leased, self.clock.after(lease.get())))?;
        Ok(delivery)
    }

    /// Moves a message that cannot be read to the dead letters, if they have room.
    fn bury_damaged(&mut self, number: u64, damage: R::Damage) -> Result<Burial, R::Error> {
        let (burial, place) = self.grave()?;
        let key = self.rows.bury(number, damage, place)?;
        self.free(key)?;
        Ok(burial)
    }
}

fn count(healed: &mut Healed, burial: Burial) {
    match burial {
        Burial::Done => healed.dead += 1,
        Burial::Postponed => healed.postponed += 1,
    }
}
