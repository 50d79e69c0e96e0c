//! Ending deliveries, and making them last.

use tenure_core::driver::{Extended, Extension, Fate, NamedId, Receipt, Settle, Settled};

use super::deliver::Burial;
use super::message::{Message, State};
use super::state::QueueTurn;
use crate::error::Done;
use crate::span::micros;

impl QueueTurn<'_, '_> {
    pub(super) fn settle(&mut self, settles: &[Settle]) -> Done<Vec<Settled>> {
        settles.iter().map(|settle| self.settle_one(settle)).collect()
    }

    /// The message of a delivery that is not settled.
    fn delivered(&self, receipt: Receipt) -> Done<Option<Message>> {
        let read = self.load_message(receipt.parts()[0].cast_signed())?;
        let message = read.and_then(Result::ok);
        Ok(message.filter(|message| message.state == State::Leased && message.receipt() == receipt))
    }

    fn settle_one(&mut self, settle: &Settle) -> Done<Settled> {
        let Some(mut message) = self.delivered(settle.receipt)? else { return Ok(Settled::Stale) };
        let now = self.turn.at;
        match message.life.settle(&settle.how) {
            Fate::Removed => {
                let known_for = message.named.as_ref().and_then(NamedId::known_for);
                self.remove(message.number, known_for.map(|window| now + micros(window)))?;
                Ok(Settled::Done)
            }
            Fate::Waits(delay) => {
                self.relocate(&mut message, State::Waiting, now + micros(delay.get()))?;
                Ok(Settled::Done)
            }
            Fate::Dies(cause) => Ok(match self.bury(&mut message, cause)? {
                Burial::Done => Settled::Dead,
                Burial::Postponed => Settled::Postponed,
            }),
        }
    }

    pub(super) fn extend(&mut self, extensions: &[Extension]) -> Done<Vec<Extended>> {
        let one = |Extension { receipt, lease, .. }: &Extension| -> Done<Extended> {
            let now = self.turn.at;
            let Some(message) = self.delivered(*receipt)?.filter(|message| message.at > now) else {
                return Ok(Extended::Stale);
            };
            let until = message.at.max(now + micros(lease.get()));
            let extend = "UPDATE message SET at = ?2 WHERE number = ?1";
            self.turn.db.prepare_cached(extend)?.execute((message.number, until))?;
            Ok(Extended::Extended)
        };
        extensions.iter().map(one).collect()
    }
}
