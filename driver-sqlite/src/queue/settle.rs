//! Ending deliveries, and making them last.

use tenure_core::driver::{Cause, DeadCause, Extended, Extension, Receipt, Settle, Settled, Settlement};
use tenure_core::{Error, ErrorKind};

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
        let delay = match &settle.how {
            Settlement::Ack => {
                let window = message.window();
                self.remove(message.number, (window > 0).then_some(now + window))?;
                return Ok(Settled::Done);
            }
            Settlement::Dead { reason } => {
                message.reason.clone_from(reason);
                return Ok(told(self.bury(&mut message, DeadCause::Rejected)?));
            }
            Settlement::Retry { after, reason } => {
                message.reason.clone_from(reason);
                message.cause = Cause::Retried;
                if let Some(cause) = message.doom() {
                    return Ok(told(self.bury(&mut message, cause)?));
                }
                *after
            }
            Settlement::Return { after } => {
                message.attempt = message.attempt.saturating_sub(1);
                message.cause = Cause::Returned;
                *after
            }
            Settlement::Park { at_most, .. } => {
                message.attempt = message.attempt.saturating_sub(1);
                message.cause = Cause::Parked;
                *at_most
            }
            Settlement::Recur { after, recurrence, reason } => {
                message.attempt = 0;
                message.cause = Cause::First;
                message.expires = None;
                message.recurrence = Some(recurrence.clone());
                message.reason.clone_from(reason);
                *after
            }
            other => {
                let text = format!("a settlement that this driver does not know: {other:?}");
                return Err(Error::new(ErrorKind::Unsupported, text).into());
            }
        };
        self.relocate(&mut message, State::Waiting, now + micros(delay.get()))?;
        Ok(Settled::Done)
    }

    pub(super) fn extend(&mut self, extensions: &[Extension]) -> Done<Vec<Extended>> {
        let one = |Extension { receipt, lease }: &Extension| -> Done<Extended> {
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

fn told(burial: Burial) -> Settled {
    match burial {
        Burial::Done => Settled::Dead,
        Burial::Postponed => Settled::Postponed,
    }
}
