//! The rows of one queue.

use std::collections::{BTreeSet, HashMap};
use std::convert::Infallible;
use std::ops::{Bound, RangeInclusive};

use tenure_core::FencingToken;
use tenure_core::driver::{DeadLetter, DeadPlace, Flow};
use tenure_core::queue::{ConcurrencyKey, MessageId};
use tenure_core::rules::queues::{At, Discarded, Head, Line, Message, Moment, Place, Rows};

use super::numbered::Numbered;

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

#[derive(Debug, Default)]
pub(crate) struct QueueState {
    head: Head,
    messages: Numbered<Box<Message>>,
    /// By the numbers of [`Line`].
    lines: [BTreeSet<At>; 4],
    keys: HashMap<ConcurrencyKey, Keyed>,
    names: HashMap<MessageId, Known>,
    /// Names of acknowledged messages, by the end of their window.
    settled: BTreeSet<(Moment, MessageId)>,
}

/// The messages of one key that matter to each other.
#[derive(Debug, Default)]
struct Keyed {
    in_flight: Option<u64>,
    held: BTreeSet<At>,
}

#[derive(Clone, Copy, Debug)]
enum Known {
    Stored(u64),
    Settled(Moment),
}

impl QueueState {
    /// Whether an operator should see it.
    pub(crate) fn is_listed(&self) -> bool {
        !self.messages.is_empty() || self.head.flow == Flow::Paused || !self.head.limits.is_none()
    }

    /// Whether it is worth memory.
    pub(crate) fn is_idle(&self) -> bool {
        !self.is_listed() && self.names.is_empty()
    }

    /// Drops a few names whose window has ended.
    pub(crate) fn forget_settled(&mut self, now: Moment) {
        for _ in 0..4 {
            if self.settled.first().is_none_or(|(until, _)| *until > now) {
                return;
            }
            let Some((until, id)) = self.settled.pop_first() else { return };
            if matches!(self.names.get(&id), Some(Known::Settled(end)) if *end == until) {
                self.names.remove(&id);
            }
        }
    }

    fn line(&self, line: Line) -> &BTreeSet<At> {
        &self.lines[line as usize]
    }

    fn enter(&mut self, number: u64, place: Place, key: Option<&ConcurrencyKey>) {
        self.lines[place.line as usize].insert((place.at, number));
        let Some(key) = key.filter(|_| matches!(place.line, Line::Held | Line::Leased)) else { return };
        let keyed = self.keys.entry(key.clone()).or_default();
        match place.line {
            Line::Held => drop(keyed.held.insert((place.at, number))),
            _ => keyed.in_flight = Some(number),
        }
    }

    fn leave(&mut self, number: u64, place: Place, key: Option<&ConcurrencyKey>) {
        self.lines[place.line as usize].remove(&(place.at, number));
        let Some(keyed) = key.and_then(|key| self.keys.get_mut(key)) else { return };
        if place.line == Line::Held {
            keyed.held.remove(&(place.at, number));
        }
        if keyed.in_flight == Some(number) {
            keyed.in_flight = None;
        }
    }

    /// Forgets a message that was taken out.
    fn forget(&mut self, message: Box<Message>, known_until: Option<Moment>) {
        self.leave(message.number, message.place, message.key.as_ref());
        match (message.named, known_until) {
            (None, _) => {}
            (Some(named), None) => drop(self.names.remove(&named.id)),
            (Some(named), Some(until)) => {
                self.settled.insert((until, named.id.clone()));
                self.names.insert(named.id, Known::Settled(until));
            }
        }
    }
}

/// One queue while the store is locked.
#[derive(Debug)]
pub(crate) struct MemoryRows<'a> {
    pub(crate) state: &'a mut QueueState,
    pub(crate) counters: &'a mut Counters,
}

impl Rows for MemoryRows<'_> {
    type Error = Infallible;
    type Damage = Infallible;

    fn head(&self) -> Head {
        self.state.head
    }

    fn set_head(&mut self, head: Head) -> Result<(), Infallible> {
        self.state.head = head;
        Ok(())
    }

    fn fence(&mut self) -> Result<FencingToken, Infallible> {
        self.counters.fence += 1;
        Ok(FencingToken::new(self.counters.fence).expect("the counter never returns to zero"))
    }

    fn newest(&self) -> Result<u64, Infallible> {
        Ok(self.counters.number)
    }

    fn find(&self, id: &MessageId) -> Result<Option<(u64, Place)>, Infallible> {
        let number = match (id.as_number(), self.state.names.get(id)) {
            (Some(number), _) => Some(number),
            (None, Some(Known::Stored(number))) => Some(*number),
            _ => None,
        };
        let message = number.and_then(|number| self.state.messages.get(&number));
        let found = message.filter(|message| message.named.is_some() == id.as_name().is_some());
        Ok(found.map(|message| (message.number, message.place)))
    }

    fn is_settled(&self, id: &MessageId, now: Moment) -> Result<bool, Infallible> {
        Ok(matches!(self.state.names.get(id), Some(Known::Settled(until)) if *until > now))
    }

    fn read<T>(
        &self,
        number: u64,
        look: impl FnOnce(&Message) -> T,
    ) -> Result<Option<Result<T, Infallible>>, Infallible> {
        Ok(self.state.messages.get(&number).map(|message| Ok(look(message))))
    }

    fn take(
        &mut self,
        number: u64,
        wanted: impl FnOnce(&Message) -> bool,
    ) -> Result<Option<Result<Box<Message>, Infallible>>, Infallible> {
        let found = self.state.messages.get(&number).is_some_and(|message| wanted(message));
        Ok(if found { self.state.messages.remove(&number).map(Ok) } else { None })
    }

    fn put(&mut self, message: Box<Message>, from: Place) -> Result<(), Infallible> {
        self.state.leave(message.number, from, message.key.as_ref());
        self.state.enter(message.number, message.place, message.key.as_ref());
        self.state.messages.insert(message.number, message);
        Ok(())
    }

    fn finish(&mut self, message: Box<Message>, known_until: Option<Moment>) -> Result<(), Infallible> {
        self.state.forget(message, known_until);
        Ok(())
    }

    fn insert(&mut self, mut message: Box<Message>) -> Result<u64, Infallible> {
        self.counters.number += 1;
        let number = self.counters.number;
        message.number = number;
        if let Some(named) = &message.named {
            self.state.names.insert(named.id.clone(), Known::Stored(number));
        }
        self.state.enter(number, message.place, message.key.as_ref());
        self.state.messages.insert(number, message);
        Ok(number)
    }

    fn discard(&mut self, number: u64) -> Result<Option<Discarded>, Infallible> {
        let Some(message) = self.state.messages.remove(&number) else { return Ok(None) };
        let discarded = Discarded { line: message.place.line, key: message.key.clone() };
        self.state.forget(message, None);
        Ok(Some(discarded))
    }

    fn bury(&mut self, _: u64, damage: Infallible, _: Place) -> Result<Option<ConcurrencyKey>, Infallible> {
        match damage {}
    }

    fn refuse(&self, _: u64, damage: Infallible) -> Infallible {
        match damage {}
    }

    fn letter(&self, place: DeadPlace) -> Result<DeadLetter, Infallible> {
        Ok(self.state.messages[&place.number].letter(place))
    }

    fn is_busy(&self, key: &ConcurrencyKey, except: u64) -> Result<bool, Infallible> {
        let in_flight = self.state.keys.get(key).and_then(|keyed| keyed.in_flight);
        Ok(in_flight.is_some_and(|number| number != except))
    }

    fn free(&mut self, key: &ConcurrencyKey) -> Result<(), Infallible> {
        let QueueState { messages, lines, keys, .. } = &mut *self.state;
        let Some(keyed) = keys.get_mut(key).filter(|keyed| keyed.in_flight.is_none()) else { return Ok(()) };
        if let Some((at, number)) = keyed.held.pop_first() {
            lines[Line::Held as usize].remove(&(at, number));
            lines[Line::Waiting as usize].insert((at, number));
            messages.get_mut(&number).expect("what is held is stored").place.line = Line::Waiting;
        }
        if keyed.held.is_empty() {
            keys.remove(key);
        }
        Ok(())
    }

    fn first(&self, line: Line) -> Result<Option<At>, Infallible> {
        Ok(self.state.line(line).first().copied())
    }

    fn nth_after(&self, line: Line, after: Moment, behind: usize) -> Result<Option<Moment>, Infallible> {
        Ok(self.state.line(line).range((after + 1, 0)..).nth(behind).map(|(at, _)| *at))
    }

    fn count(&self, line: Line, times: RangeInclusive<Moment>) -> Result<u64, Infallible> {
        let (line, (from, to)) = (self.state.line(line), times.into_inner());
        let count = match to {
            Moment::MAX => line.len() - line.range(..(from, 0)).count(),
            _ => line.range((from, 0)..=(to, u64::MAX)).count(),
        };
        Ok(count as u64)
    }

    fn positions(
        &self,
        line: Line,
        times: RangeInclusive<Moment>,
        behind: Option<At>,
        newest: u64,
        max: usize,
    ) -> Result<Vec<At>, Infallible> {
        let (from, to) = times.into_inner();
        let behind = behind.filter(|behind| *behind >= (from, 0));
        let from = behind.map_or(Bound::Included((from, 0)), Bound::Excluded);
        let positions = self.state.line(line).range((from, Bound::Unbounded));
        let wanted = positions.take_while(|(at, _)| *at <= to).filter(|(_, number)| *number <= newest);
        Ok(wanted.take(max).copied().collect())
    }
}
