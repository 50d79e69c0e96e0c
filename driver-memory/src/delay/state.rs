//! The state of one queue, and how a message moves between its sets.

use std::collections::{BTreeSet, HashMap};

use tenure_core::driver::{Flow, IfKnown, MessageState, NewMessage, Pushed};
use tenure_core::queue::{ConcurrencyKey, MessageId};

use super::limiter::Limiter;
use super::numbered::Numbered;
use super::slot::{At, Nanos, Place, Slot};

/// The caps of the queues of a store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueCaps {
    pub(crate) backlog: u64,
    pub(crate) dead_letters: u64,
    pub(crate) request_bytes: usize,
}

impl QueueCaps {
    pub(crate) const DEFAULT: Self = Self { backlog: 100_000_000, dead_letters: 100_000, request_bytes: usize::MAX };
}

/// Numbers that grow over all queues of a store, so that a forgotten queue does not begin again.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) number: u64,
    pub(crate) fence: u64,
}

/// What one request may use of its store.
pub(crate) struct Turn<'a> {
    pub(crate) now: Nanos,
    pub(crate) caps: QueueCaps,
    pub(crate) counters: &'a mut Counters,
}

#[derive(Debug)]
pub(crate) struct QueueState {
    pub(super) slots: Numbered<Slot>,
    pub(super) waiting: BTreeSet<At>,
    pub(super) leased: BTreeSet<At>,
    pub(super) dead: BTreeSet<At>,
    pub(super) keys: HashMap<ConcurrencyKey, Keyed>,
    names: HashMap<MessageId, Known>,
    /// Names of acknowledged messages, by the end of their window.
    settled: BTreeSet<(Nanos, MessageId)>,
    pub(super) flow: Flow,
    pub(super) limiter: Limiter,
}

/// The messages of one key that matter to each other.
#[derive(Debug, Default)]
pub(super) struct Keyed {
    pub(super) in_flight: Option<u64>,
    pub(super) held: BTreeSet<At>,
}

#[derive(Clone, Copy, Debug)]
enum Known {
    Stored(u64),
    Settled(Nanos),
}

impl Default for QueueState {
    fn default() -> Self {
        Self {
            slots: Numbered::default(),
            waiting: BTreeSet::new(),
            leased: BTreeSet::new(),
            dead: BTreeSet::new(),
            keys: HashMap::new(),
            names: HashMap::new(),
            settled: BTreeSet::new(),
            flow: Flow::Running,
            limiter: Limiter::default(),
        }
    }
}

impl QueueState {
    /// Whether an operator should see it.
    pub(crate) fn is_listed(&self) -> bool {
        !self.slots.is_empty() || self.flow == Flow::Paused || !self.limiter.limits().is_none()
    }

    /// Whether it is worth memory.
    pub(crate) fn is_idle(&self) -> bool {
        !self.is_listed() && self.names.is_empty()
    }

    /// The soonest instant at which asking is worthwhile; `None` while paused.
    pub(crate) fn soonest(&self, now: Nanos) -> Option<Nanos> {
        if self.flow == Flow::Paused {
            return None;
        }
        let heads = [self.waiting.first(), self.leased.first()];
        let due = heads.into_iter().flatten().map(|(at, _)| *at).min()?;
        Some(due.max(self.room_at(now)))
    }

    /// How many deliveries the limits allow.
    pub(super) fn room(&self, now: Nanos) -> usize {
        self.free_places(now).min(self.limiter.tokens(now))
    }

    /// When the limits allow a delivery, as far as is known now.
    fn room_at(&self, now: Nanos) -> Nanos {
        let surplus = self.max_in_flight().and_then(|most| self.live(now).count().checked_sub(most));
        let place = surplus.and_then(|surplus| self.live(now).nth(surplus));
        place.map_or(0, |(at, _)| *at).max(self.limiter.next_token(now))
    }

    fn free_places(&self, now: Nanos) -> usize {
        self.max_in_flight().map_or(usize::MAX, |most| most.saturating_sub(self.live(now).count()))
    }

    fn max_in_flight(&self) -> Option<usize> {
        self.limiter.limits().max_in_flight().map(|most| most.get() as usize)
    }

    /// The leases that last, the soonest end first.
    pub(super) fn live(&self, now: Nanos) -> impl Iterator<Item = &At> {
        self.leased.range((now + 1, 0)..)
    }

    pub(super) fn alive(&self) -> u64 {
        (self.slots.len() - self.dead.len()) as u64
    }

    /// Stores messages, all or none; `None` when they are too many.
    pub(crate) fn push(&mut self, turn: &mut Turn<'_>, messages: &[NewMessage]) -> Option<Vec<Pushed>> {
        self.forget_settled(turn.now);
        let fresh = messages.iter().filter(|message| self.known(turn.now, message).is_none()).count() as u64;
        if self.alive() + fresh > turn.caps.backlog {
            return None;
        }
        Some(messages.iter().map(|message| self.push_one(turn, message)).collect())
    }

    fn push_one(&mut self, turn: &mut Turn<'_>, message: &NewMessage) -> Pushed {
        let replaced = match (self.known(turn.now, message), message.if_known) {
            (None, _) => None,
            (Some(MessageState::Scheduled | MessageState::Ready), IfKnown::Replace) => {
                message.id.as_ref().and_then(|named| self.find(&named.id))
            }
            (Some(state), _) => return Pushed::Duplicate(state),
        };
        if let Some(number) = replaced {
            self.remove(number, None);
        }
        turn.counters.number += 1;
        let number = turn.counters.number;
        let slot = Slot::new(turn.now, message);
        let id = slot.id(number);
        if message.id.is_some() {
            self.names.insert(id.clone(), Known::Stored(number));
        }
        self.waiting.insert((slot.place.at(), number));
        self.slots.insert(number, slot);
        if replaced.is_some() { Pushed::Replaced(id) } else { Pushed::Stored(id) }
    }

    fn known(&self, now: Nanos, message: &NewMessage) -> Option<MessageState> {
        match self.names.get(&message.id.as_ref()?.id)? {
            Known::Stored(number) => self.slots.get(number).map(|slot| slot.state(now)),
            Known::Settled(until) if *until > now => Some(MessageState::Settled),
            Known::Settled(_) => None,
        }
    }

    /// Drops a few names whose window has ended.
    pub(super) fn forget_settled(&mut self, now: Nanos) {
        for _ in 0..4 {
            match self.settled.first() {
                Some((until, _)) if *until <= now => {
                    let (until, id) = self.settled.pop_first().expect("it was there");
                    if matches!(self.names.get(&id), Some(Known::Settled(end)) if *end == until) {
                        self.names.remove(&id);
                    }
                }
                _ => return,
            }
        }
    }

    /// The number of a stored message.
    pub(super) fn find(&self, id: &MessageId) -> Option<u64> {
        match (id.as_number(), self.names.get(id)) {
            (Some(number), _) => self.slots.get(&number).filter(|slot| slot.named.is_none()).map(|_| number),
            (None, Some(Known::Stored(number))) => Some(*number),
            _ => None,
        }
    }

    /// Moves a message to another place. If it was in flight, or was the one of its key to go next, the next of its
    /// key may go. One that is dead let the next one go when it died.
    pub(super) fn relocate(&mut self, number: u64, to: Place) {
        let Some(slot) = self.slots.get_mut(&number) else { return };
        let from = std::mem::replace(&mut slot.place, to);
        let key = slot.key.clone();
        self.take_out(number, from, key.as_ref());
        match to {
            Place::Waiting(at) => self.waiting.insert((at, number)),
            Place::Leased(at) => self.leased.insert((at, number)),
            Place::Dead(at) => self.dead.insert((at, number)),
            Place::Held(at) => match key.as_ref() {
                Some(key) => self.keys.entry(key.clone()).or_default().held.insert((at, number)),
                None => self.waiting.insert((at, number)),
            },
        };
        let Some(key) = key else { return };
        match to {
            Place::Leased(_) => self.keys.entry(key).or_default().in_flight = Some(number),
            Place::Waiting(_) | Place::Dead(_) if !from.is_dead() => self.free(&key),
            Place::Waiting(_) | Place::Dead(_) | Place::Held(_) => {}
        }
    }

    /// Removes a message for good. Its name is free again, unless it stays known for a window.
    pub(super) fn remove(&mut self, number: u64, known_until: Option<Nanos>) {
        let Some(slot) = self.slots.remove(&number) else { return };
        self.take_out(number, slot.place, slot.key.as_ref());
        if let Some(named) = slot.named {
            match known_until {
                Some(until) => {
                    self.settled.insert((until, named.id.clone()));
                    self.names.insert(named.id, Known::Settled(until));
                }
                None => {
                    self.names.remove(&named.id);
                }
            }
        }
        if let Some(key) = slot.key.filter(|_| !slot.place.is_dead()) {
            self.free(&key);
        }
    }

    fn take_out(&mut self, number: u64, from: Place, key: Option<&ConcurrencyKey>) {
        match from {
            Place::Waiting(at) => self.waiting.remove(&(at, number)),
            Place::Leased(at) => self.leased.remove(&(at, number)),
            Place::Dead(at) => self.dead.remove(&(at, number)),
            Place::Held(_) => false,
        };
        let Some(keyed) = key.and_then(|key| self.keys.get_mut(key)) else { return };
        if let Place::Held(at) = from {
            keyed.held.remove(&(at, number));
        }
        if keyed.in_flight == Some(number) {
            keyed.in_flight = None;
        }
    }

    /// Lets the first message that was held back by this key go on, if nothing of the key is in flight.
    fn free(&mut self, key: &ConcurrencyKey) {
        let Some(keyed) = self.keys.get_mut(key) else { return };
        if keyed.in_flight.is_some() {
            return;
        }
        if let Some((at, number)) = keyed.held.pop_first() {
            self.waiting.insert((at, number));
            self.slots.get_mut(&number).expect("what is held is stored").place = Place::Waiting(at);
        }
        if keyed.held.is_empty() {
            self.keys.remove(key);
        }
    }
}
