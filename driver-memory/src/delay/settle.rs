//! Ending deliveries, and making them last.

use tenure_core::driver::{Extended, Extension, Fate, NamedId, Settle, Settled};

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
        match slot.life.settle(&settle.how) {
            Fate::Removed => {
                let known_for = slot.named.as_ref().and_then(NamedId::known_for);
                self.remove(number, known_for.map(|window| after(turn.now, window)));
                Settled::Done
            }
            Fate::Waits(delay) => {
                self.relocate(number, Place::Waiting(after(turn.now, delay.get())));
                Settled::Done
            }
            Fate::Dies(cause) => match self.bury(turn, number, cause) {
                Burial::Done => Settled::Dead,
                Burial::Postponed => Settled::Postponed,
            },
        }
    }

    pub(crate) fn extend(&mut self, now: Nanos, extensions: &[Extension]) -> Vec<Extended> {
        let one = |Extension { receipt, lease, .. }: &Extension| {
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
