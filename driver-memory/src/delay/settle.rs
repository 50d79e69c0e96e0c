//! Ending deliveries, and making them last.

use tenure_core::driver::{Cause, DeadCause, Extended, Extension, Settle, Settled, Settlement};

use super::deliver::Burial;
use super::slot::{Nanos, Place, after};
use super::state::{QueueState, Turn};

impl QueueState {
    pub(crate) fn settle(&mut self, turn: &mut Turn<'_>, settles: &[Settle]) -> Vec<Settled> {
        self.forget_settled(turn.now);
        settles.iter().map(|settle| self.settle_one(turn, settle)).collect()
    }

    fn settle_one(&mut self, turn: &mut Turn<'_>, settle: &Settle) -> Settled {
        let number = settle.receipt.parts()[0];
        let Some(slot) = self.slots.get_mut(&number).filter(|slot| slot.is_delivered_as(settle.receipt)) else {
            return Settled::Stale;
        };
        let due = match &settle.how {
            Settlement::Ack => {
                let window = slot.named.as_ref().map(|named| named.window.get()).filter(|window| !window.is_zero());
                let known_until = window.map(|window| after(turn.now, window));
                self.remove(number, known_until);
                return Settled::Done;
            }
            Settlement::Dead { reason } => {
                slot.reason.clone_from(reason);
                return told(self.bury(turn, number, DeadCause::Rejected));
            }
            Settlement::Retry { after: delay, reason } => {
                slot.reason.clone_from(reason);
                slot.cause = Cause::Retried;
                if let Some(cause) = slot.doom() {
                    return told(self.bury(turn, number, cause));
                }
                after(turn.now, delay.get())
            }
            Settlement::Return { after: delay } => {
                slot.attempt -= 1;
                slot.cause = Cause::Returned;
                after(turn.now, delay.get())
            }
            Settlement::Park { at_most, .. } => {
                slot.attempt -= 1;
                slot.cause = Cause::Parked;
                after(turn.now, at_most.get())
            }
            Settlement::Recur { after: delay, recurrence, reason } => {
                slot.attempt = 0;
                slot.cause = Cause::First;
                slot.expires = None;
                slot.recurrence = Some(recurrence.clone());
                slot.reason.clone_from(reason);
                after(turn.now, delay.get())
            }
            other => unreachable!("a settlement that this driver does not know: {other:?}"),
        };
        self.relocate(number, Place::Waiting(due));
        Settled::Done
    }

    pub(crate) fn extend(&mut self, now: Nanos, extensions: &[Extension]) -> Vec<Extended> {
        let one = |Extension { receipt, lease }: &Extension| {
            let number = receipt.parts()[0];
            let slot = self.slots.get(&number).filter(|slot| slot.is_delivered_as(*receipt));
            match slot.map(|slot| slot.place) {
                Some(Place::Leased(until)) if until > now => {
                    self.relocate(number, Place::Leased(until.max(after(now, lease.get()))));
                    Extended::Extended
                }
                _ => Extended::Stale,
            }
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
