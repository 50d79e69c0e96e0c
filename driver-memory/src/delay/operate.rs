//! What operators do with a queue.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::time::Duration;

use tenure_core::driver::{
    Cancelled, Cause, DeadCause, DeadLetter, DeadPage, DeadPlace, DeadSelection, Delay, Flow, ListPlace, Listed,
    LockTurn, MessageInfo, MessagePage, MessageState, PurgePlace, PurgeStep, Purged, QueueStats, Redriven, Rescheduled,
    Rest, TurnGiven,
};
use tenure_core::queue::{MessageId, QueueLimits};

use super::limiter::Limiter;
use super::slot::{At, Nanos, Place, after, span};
use super::state::QueueState;

impl QueueState {
    pub(crate) fn cancel(&mut self, now: Nanos, id: &MessageId) -> Cancelled {
        let Some(number) = self.find(id) else { return Cancelled::NotFound };
        match self.slots[&number].place {
            Place::Waiting(_) | Place::Held(_) => {}
            Place::Leased(until) if until <= now => {} // ready again: whoever had it is too late now
            Place::Leased(_) => return Cancelled::InFlight,
            Place::Dead(_) => return Cancelled::Dead,
        }
        self.remove(number, None);
        Cancelled::Removed
    }

    pub(crate) fn reschedule(&mut self, now: Nanos, id: &MessageId, delay: Delay) -> Rescheduled {
        let Some(number) = self.find(id) else { return Rescheduled::NotFound };
        let slot = self.slots.get_mut(&number).expect("it was found");
        match slot.place {
            Place::Waiting(_) | Place::Held(_) => {}
            Place::Leased(until) if until <= now => slot.life.cause = Cause::LeaseExpired,
            Place::Leased(_) => return Rescheduled::InFlight,
            Place::Dead(_) => return Rescheduled::Dead,
        }
        self.relocate(number, Place::Waiting(after(now, delay.get())));
        Rescheduled::Moved
    }

    pub(crate) fn give_turn(&mut self, id: &MessageId, turn: &LockTurn) -> TurnGiven {
        if self.flow == Flow::Paused {
            return TurnGiven::Paused;
        }
        let slot = self.find(id).and_then(|number| Some((number, self.slots.get_mut(&number)?)));
        match slot {
            Some((number, slot)) if slot.life.cause == Cause::Parked && matches!(slot.place, Place::Waiting(_)) => {
                slot.turn = Some(turn.clone());
                let pushed = slot.pushed;
                self.relocate(number, Place::Waiting(pushed));
                TurnGiven::Due
            }
            _ => TurnGiven::NotParked,
        }
    }

    pub(crate) fn get(&self, now: Nanos, id: &MessageId) -> Option<MessageInfo> {
        self.find(id).map(|number| self.slots[&number].info(number, now))
    }

    pub(crate) fn stats(&self, now: Nanos) -> QueueStats {
        let due = |set: &BTreeSet<At>| set.range(..=(now, u64::MAX)).count() as u64;
        let held: u64 = self.keys.values().map(|keyed| keyed.held.len() as u64).sum();
        let (waiting_due, expired) = (due(&self.waiting), due(&self.leased));
        let heads = [self.waiting.first(), self.leased.first()];
        let held_heads = self.keys.values().filter_map(|keyed| keyed.held.first());
        let oldest = heads.into_iter().flatten().chain(held_heads).map(|(at, _)| *at).min();
        let scheduled = self.waiting.range((now, u64::MAX)..).map(|(at, _)| *at).find(|at| *at > now);
        QueueStats::default()
            .with_scheduled(self.waiting.len() as u64 - waiting_due)
            .with_ready(waiting_due + expired + held)
            .with_in_flight(self.leased.len() as u64 - expired)
            .with_dead(self.dead.len() as u64)
            .with_lag(oldest.map_or(Duration::ZERO, |at| span(at, now)))
            .with_next_due(scheduled.map(|at| span(now, at)))
            .with_flow(self.flow)
            .with_limits(*self.limiter.limits())
    }

    pub(crate) fn list(&self, now: Nanos, which: Listed, from: Option<ListPlace>, max: usize) -> MessagePage {
        let from = from.map_or(Bound::Unbounded, |place| Bound::Excluded((place.parts()[0], place.parts()[1])));
        let behind = |set: &BTreeSet<At>, wanted: fn(Nanos, Nanos) -> bool| {
            let places = set.range((from, Bound::Unbounded)).filter(|(at, _)| wanted(*at, now));
            places.take(max).copied().collect::<Vec<_>>()
        };
        let mut places = match which {
            Listed::InFlight => behind(&self.leased, |until, now| until > now),
            Listed::Waiting => {
                let held = self.keys.values().flat_map(|keyed| behind(&keyed.held, |_, _| true));
                let ended = behind(&self.leased, |until, now| until <= now);
                behind(&self.waiting, |_, _| true).into_iter().chain(ended).chain(held).collect()
            }
        };
        places.sort_unstable();
        places.truncate(max);
        let next = places.last().filter(|_| places.len() == max).map(|(at, number)| ListPlace::new([*at, *number, 0]));
        let messages = places.iter().map(|(_, number)| self.slots[number].info(*number, now)).collect();
        MessagePage::new(messages, next)
    }

    pub(crate) fn limit(&mut self, limits: &QueueLimits) {
        self.limiter = Limiter::new(*limits);
    }

    pub(crate) fn set_flow(&mut self, flow: Flow) {
        self.flow = flow;
    }

    /// Removes what waits, up to the number `newest`. A message whose lease has ended waits, as for a cancellation.
    pub(crate) fn purge(&mut self, now: Nanos, max: usize, newest: u64) -> PurgeStep {
        let old = |(_, number): &&(Nanos, u64)| *number <= newest;
        let waiting = self.waiting.iter().filter(old).take(max);
        let held = self.keys.values().flat_map(|keyed| keyed.held.iter().filter(old).take(max));
        let ended = self.leased.range(..=(now, u64::MAX)).filter(old).take(max);
        let free = waiting.chain(ended).map(|(due, number)| (*due, false, *number));
        // Of those that are due at the same moment, the held ones are the last, as in Redis.
        let mut soonest: Vec<_> = free.chain(held.map(|(due, number)| (*due, true, *number))).collect();
        soonest.sort_unstable();
        soonest.truncate(max);
        soonest.iter().for_each(|(_, _, number)| self.remove(*number, None));
        let next = (soonest.len() == max).then_some(PurgePlace { newest, at: 0 });
        PurgeStep::new(soonest.len() as u64, next)
    }

    pub(crate) fn dead_list(&self, now: Nanos, after: Option<DeadPlace>, max: usize) -> DeadPage {
        let from = after.map_or(Bound::Unbounded, |place| Bound::Excluded((place.stamp, place.number)));
        let mut places = self.dead.range((from, Bound::Unbounded));
        let letters = places.by_ref().take(max).map(|(stamp, number)| self.letter(now, *stamp, *number)).collect();
        let rest = if places.next().is_some() { Rest::More } else { Rest::None };
        DeadPage::new(letters, rest)
    }

    fn letter(&self, now: Nanos, stamp: Nanos, number: u64) -> DeadLetter {
        let slot = &self.slots[&number];
        DeadLetter::new(
            slot.id(number),
            DeadPlace { stamp, number },
            slot.payload.clone(),
            slot.life.doomed.unwrap_or(DeadCause::Exhausted),
        )
        .with_attempt(slot.life.attempt)
        .with_reason(slot.life.reason.clone())
        .with_died(span(stamp, now))
    }

    fn dead_numbers(&self, now: Nanos, which: &DeadSelection) -> (Vec<u64>, Rest) {
        match which {
            DeadSelection::Ids(ids) => {
                let mut numbers: Vec<_> = ids.iter().filter_map(|id| self.find(id)).collect();
                numbers.retain(|number| self.slots[number].state(now) == MessageState::Dead);
                numbers.sort_unstable();
                numbers.dedup();
                (numbers, Rest::None)
            }
            DeadSelection::Oldest(count) => {
                let numbers = self.dead.iter().take(*count).map(|(_, number)| *number).collect();
                (numbers, if self.dead.len() > *count { Rest::More } else { Rest::None })
            }
        }
    }

    pub(crate) fn dead_redrive(&mut self, now: Nanos, which: &DeadSelection, delay: Delay) -> Redriven {
        let (numbers, rest) = self.dead_numbers(now, which);
        for number in &numbers {
            let slot = self.slots.get_mut(number).expect("dead letters are stored");
            slot.life.redrive();
            self.relocate(*number, Place::Waiting(after(now, delay.get())));
        }
        Redriven::new(numbers.len() as u64, rest)
    }

    pub(crate) fn dead_purge(&mut self, now: Nanos, which: &DeadSelection) -> Purged {
        let (numbers, rest) = self.dead_numbers(now, which);
        numbers.iter().for_each(|number| self.remove(*number, None));
        Purged::new(numbers.len() as u64, rest)
    }
}
