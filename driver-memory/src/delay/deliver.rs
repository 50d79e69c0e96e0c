//! Handing out what is due.

use tenure_core::FencingToken;
use tenure_core::driver::{
    Cause, DeadCause, Flow, Healed, Lease, Next, POSTPONED, RawDelivery, Receipt, ReceiveRequest, Received,
};
use tenure_core::queue::Reason;

use super::slot::{Nanos, Place, after, span};
use super::state::{QueueState, Turn};

/// How many messages one receive looks at beyond those that it hands out.
const LOOKS: usize = 1000;

impl QueueState {
    pub(crate) fn receive(&mut self, turn: &mut Turn<'_>, request: &ReceiveRequest) -> Received {
        if request.max == 0 {
            return Received::nothing(Next::Now);
        }
        if self.flow == Flow::Paused {
            return Received::nothing(Next::Paused);
        }
        let (mut deliveries, mut healed) = (Vec::new(), Healed::default());
        let now = turn.now;
        let mut looks = LOOKS;
        let room = self.room(now);
        while deliveries.len() < request.max.min(room) && looks > 0 {
            let Some((at, number, expired)) = self.head().filter(|(at, ..)| *at <= now) else { break };
            healed.expired += u32::from(expired);
            let slot = self.slots.get_mut(&number).expect("the head is stored");
            if let Some(cause) = slot.life.doom_at(now) {
                looks -= 1;
                if expired {
                    slot.life.reason = Some(Reason::lease_ended());
                }
                match self.bury(turn, number, cause) {
                    Burial::Done => healed.dead += 1,
                    Burial::Postponed => healed.postponed += 1,
                }
            } else if self.must_be_held(number) {
                looks -= 1;
                self.relocate(number, Place::Held(at));
            } else {
                let cause = expired.then_some(Cause::LeaseExpired);
                deliveries.push(self.hand_out(turn, number, (at, cause), request.lease));
            }
        }
        self.limiter.spend(now, deliveries.len());
        let next = match self.soonest(now) {
            None => Next::Never,
            Some(at) if at <= now => Next::Now,
            Some(at) => Next::In(span(now, at)),
        };
        Received::new(deliveries, next).with_healed(healed)
    }

    /// The message whose time is the soonest, and whether that is the end of a lease.
    fn head(&self) -> Option<(Nanos, u64, bool)> {
        let waiting = self.waiting.first().map(|(at, number)| (*at, *number, false));
        let leased = self.leased.first().map(|(at, number)| (*at, *number, true));
        [waiting, leased].into_iter().flatten().min()
    }

    fn must_be_held(&self, number: u64) -> bool {
        let busy =
            self.slots[&number].key.as_ref().and_then(|key| self.keys.get(key)).and_then(|keyed| keyed.in_flight);
        busy.is_some_and(|other| other != number)
    }

    fn hand_out(
        &mut self,
        turn: &mut Turn<'_>,
        number: u64,
        (at, cause): (Nanos, Option<Cause>),
        lease: Lease,
    ) -> RawDelivery {
        turn.counters.fence += 1;
        let fence = turn.counters.fence;
        self.relocate(number, Place::Leased(after(turn.now, lease.get())));
        let slot = self.slots.get_mut(&number).expect("the head is stored");
        slot.life.attempt += 1;
        slot.fence = fence;
        RawDelivery::new(
            slot.id(number),
            slot.payload.clone(),
            FencingToken::new(fence).expect("the counter never returns to zero"),
            Receipt::new([number, fence, 0]),
        )
        .with_attempt(slot.life.attempt)
        .with_attempts(slot.life.attempts)
        .with_cause(cause.unwrap_or(slot.life.cause))
        .with_late(span(at, turn.now))
        .with_age(span(slot.pushed, turn.now))
        .with_key(slot.key.clone())
        .with_lock(slot.lock.clone())
        .with_turn(slot.turn.take())
        .with_reason(slot.life.reason.clone())
        .with_recurrence(slot.life.recurrence.clone())
    }

    /// Moves a message to the dead letters, if they have a place.
    pub(super) fn bury(&mut self, turn: &Turn<'_>, number: u64, cause: DeadCause) -> Burial {
        let full = self.dead.len() as u64 >= turn.caps.dead_letters;
        if let Some(slot) = self.slots.get_mut(&number) {
            slot.life.doomed = Some(cause);
        }
        if full {
            self.relocate(number, Place::Waiting(after(turn.now, POSTPONED)));
            return Burial::Postponed;
        }
        self.relocate(number, Place::Dead(turn.now));
        Burial::Done
    }
}

/// What became of a message that should be dead.
pub(super) enum Burial {
    Done,
    Postponed,
}
