//! What operators do with a queue.

use rusqlite::{OptionalExtension as _, params};
use tenure_core::driver::{
    Cancelled, Cause, DeadLetter, DeadPage, DeadPlace, DeadSelection, Delay, Flow, ListPlace, Listed, LockTurn,
    MessageInfo, MessagePage, MessageState, Payload, PurgePlace, PurgeStep, Purged, QueuePage, QueueStats, Redriven,
    Rescheduled, Rest, TurnGiven,
};
use tenure_core::queue::{MessageId, QueueName, Reason};

use super::message::{Message, State, doom_of};
use super::state::{At, QueueTurn};
use crate::error::{Done, damaged};
use crate::span::{micros, of_micros};
use crate::store::Turn;

/// The least place of a line.
const BEGINNING: At = (i64::MIN, i64::MIN);

impl QueueTurn<'_, '_> {
    /// Where a message stands, by what its row tells even if the rest cannot be read.
    fn stands(&self, id: &MessageId) -> Done<Option<(i64, MessageState)>> {
        let Some(number) = self.find(id)? else { return Ok(None) };
        let now = self.turn.at;
        let look = "SELECT state, at FROM message WHERE number = ?1";
        let (state, at): (i64, i64) =
            self.turn.db.prepare_cached(look)?.query_row([number], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let state = match state {
            3 => MessageState::Dead,
            2 if at > now => MessageState::InFlight,
            0 if at > now => MessageState::Scheduled,
            _ => MessageState::Ready,
        };
        Ok(Some((number, state)))
    }

    pub(super) fn cancel(&mut self, id: &MessageId) -> Done<Cancelled> {
        match self.stands(id)? {
            None | Some((_, MessageState::Settled)) => Ok(Cancelled::NotFound),
            Some((_, MessageState::InFlight)) => Ok(Cancelled::InFlight),
            Some((_, MessageState::Dead)) => Ok(Cancelled::Dead),
            Some((number, MessageState::Scheduled | MessageState::Ready)) => {
                self.remove(number, None)?;
                Ok(Cancelled::Removed)
            }
        }
    }

    pub(super) fn reschedule(&mut self, id: &MessageId, delay: Delay) -> Done<Rescheduled> {
        let number = match self.stands(id)? {
            None | Some((_, MessageState::Settled)) => return Ok(Rescheduled::NotFound),
            Some((_, MessageState::InFlight)) => return Ok(Rescheduled::InFlight),
            Some((_, MessageState::Dead)) => return Ok(Rescheduled::Dead),
            Some((number, MessageState::Scheduled | MessageState::Ready)) => number,
        };
        let mut message = self.whole(number)?;
        if message.state == State::Leased {
            message.life.cause = Cause::LeaseExpired;
        }
        self.relocate(&mut message, State::Waiting, self.turn.at + micros(delay.get()))?;
        Ok(Rescheduled::Moved)
    }

    /// A message that is stored and can be read.
    fn whole(&self, number: i64) -> Done<Message> {
        let broken = |what| damaged(format!("message {number} of the queue \"{}\": {what}", self.queue));
        match self.load_message(number)? {
            Some(Ok(message)) => Ok(message),
            Some(Err(error)) => Err(broken(error.what).into()),
            None => Err(broken("it is not there").into()),
        }
    }

    pub(super) fn give_turn(&mut self, id: &MessageId, turn: &LockTurn) -> Done<TurnGiven> {
        if self.flow == Flow::Paused {
            return Ok(TurnGiven::Paused);
        }
        let message = match self.find(id)? {
            Some(number) => self.load_message(number)?.and_then(Result::ok),
            None => None,
        };
        match message {
            Some(mut message) if message.life.cause == Cause::Parked && message.state == State::Waiting => {
                message.turn = Some(turn.clone());
                let pushed = message.pushed;
                self.relocate(&mut message, State::Waiting, pushed)?;
                Ok(TurnGiven::Due)
            }
            _ => Ok(TurnGiven::NotParked),
        }
    }

    pub(super) fn get(&self, id: &MessageId) -> Done<Option<MessageInfo>> {
        match self.find(id)? {
            Some(number) => Ok(Some(self.whole(number)?.info(self.turn.at))),
            None => Ok(None),
        }
    }

    pub(super) fn stats(&self) -> Done<QueueStats> {
        let now = self.turn.at;
        let count = |condition| Ok::<_, crate::error::Failed>(u64::try_from(self.count(condition)?).unwrap_or(0));
        let mut oldest = None;
        for state in [State::Waiting, State::Held, State::Leased] {
            let first = self.first(state)?.map(|(at, _)| at);
            oldest = [oldest, first].into_iter().flatten().min();
        }
        let look = "SELECT min(at) FROM message WHERE queue = ?1 AND state = 0 AND at > ?2";
        let by = (self.queue.as_bytes(), now);
        let scheduled: Option<i64> = self.turn.db.prepare_cached(look)?.query_row(by, |row| row.get(0))?;
        Ok(QueueStats::default()
            .with_scheduled(count("state = 0 AND at > ?2")?)
            .with_ready(count("state = 0 AND at <= ?2")? + count("state = 1")? + count("state = 2 AND at <= ?2")?)
            .with_in_flight(count("state = 2 AND at > ?2")?)
            .with_dead(count("state = 3")?)
            .with_lag(of_micros(oldest.map_or(0, |at| now - at)))
            .with_next_due(scheduled.map(|at| of_micros(at - now)))
            .with_flow(self.flow)
            .with_limits(self.limits))
    }

    pub(super) fn set_flow(&mut self, flow: Flow) -> Done<()> {
        self.flow = flow;
        self.keep()
    }

    /// Places of a line behind one, up to a number, as far as the condition is true.
    fn places(&self, state: State, condition: &str, from: At, newest: i64, max: usize) -> Done<Vec<At>> {
        let look = format!(
            "SELECT at, number FROM message WHERE queue = ?1 AND state = ?2 AND (at, number) > (?3, ?4) AND number <= ?5 \
             {condition} ORDER BY at, number LIMIT ?6"
        );
        let max = i64::try_from(max).unwrap_or(i64::MAX);
        let mut look = self.turn.db.prepare_cached(&look)?;
        let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
        let by = params![self.queue.as_bytes(), state as i64, from.0, from.1, newest, max];
        Ok(look.query_map(by, read)?.collect::<rusqlite::Result<_>>()?)
    }

    /// The places of all that waits, the soonest first.
    fn waiting(&self, from: At, newest: i64, max: usize) -> Done<Vec<At>> {
        let ended = format!("AND at <= {}", self.turn.at);
        let mut places = self.places(State::Waiting, "", from, newest, max)?;
        places.extend(self.places(State::Held, "", from, newest, max)?);
        places.extend(self.places(State::Leased, &ended, from, newest, max)?);
        places.sort_unstable();
        places.truncate(max);
        Ok(places)
    }

    pub(super) fn list(&self, which: Listed, from: Option<ListPlace>, max: usize) -> Done<MessagePage> {
        let from = from.map_or(BEGINNING, |place| (from_place(place.parts()[0]), place.parts()[1].cast_signed()));
        let places = match which {
            Listed::Waiting => self.waiting(from, i64::MAX, max)?,
            Listed::InFlight => {
                let lasts = format!("AND at > {}", self.turn.at);
                self.places(State::Leased, &lasts, from, i64::MAX, max)?
            }
        };
        let next = places.last().filter(|_| places.len() == max);
        let next = next.map(|(at, number)| ListPlace::new([to_place(*at), number.cast_unsigned(), 0]));
        let mut messages = Vec::with_capacity(places.len());
        for (_, number) in places {
            messages.extend(self.load_message(number)?.and_then(Result::ok).map(|message| message.info(self.turn.at)));
        }
        Ok(MessagePage::new(messages, next))
    }

    /// Removes what waits, up to the newest number of the time when the purge began.
    pub(super) fn purge(&mut self, max: usize, from: Option<PurgePlace>) -> Done<PurgeStep> {
        let newest = match from {
            Some(place) => place.newest.cast_signed(),
            None => self.turn.db.query_row("SELECT ifnull(max(number), 0) FROM message", [], |row| row.get(0))?,
        };
        let places = self.waiting(BEGINNING, newest, max)?;
        for (_, number) in &places {
            self.remove(*number, None)?;
        }
        let next = (places.len() == max).then_some(PurgePlace { newest: newest.cast_unsigned(), at: 0 });
        Ok(PurgeStep::new(places.len() as u64, next))
    }

    pub(super) fn dead_list(&self, after: Option<DeadPlace>, max: usize) -> Done<DeadPage> {
        let from = after.map_or(BEGINNING, |place| (from_place(place.stamp), place.number.cast_signed()));
        let mut places = self.places(State::Dead, "", from, i64::MAX, max.saturating_add(1))?;
        let rest = if places.len() > max { Rest::More } else { Rest::None };
        places.truncate(max);
        let letters = places.into_iter().map(|place| self.letter(place)).collect::<Done<_>>()?;
        Ok(DeadPage::new(letters, rest))
    }

    /// What can be read of a dead letter; a damaged one may lack something.
    fn letter(&self, (stamp, number): At) -> Done<DeadLetter> {
        let look = "SELECT name, substr(payload, 1, ?2), attempt, doomed, reason FROM message WHERE number = ?1";
        let read = |row: &rusqlite::Row<'_>| {
            let (name, payload): (Option<Vec<u8>>, Vec<u8>) =
                (row.get(0).unwrap_or_default(), row.get(1).unwrap_or_default());
            let (attempt, doom, reason): (u32, Option<i64>, Option<String>) =
                (row.get(2).unwrap_or_default(), row.get(3).unwrap_or_default(), row.get(4).unwrap_or_default());
            Ok((name, payload, attempt, doom, reason))
        };
        let by = (number, i64::try_from(Payload::MAX_LEN).unwrap_or(i64::MAX));
        let (name, payload, attempt, doom, reason) = self.turn.db.prepare_cached(look)?.query_row(by, read)?;
        let id = name.and_then(|name| MessageId::named(name).ok());
        Ok(DeadLetter::new(
            id.unwrap_or_else(|| MessageId::assigned(number.cast_unsigned())),
            DeadPlace { stamp: to_place(stamp), number: number.cast_unsigned() },
            Payload::new(payload).map_err(crate::error::Failed::from)?,
            doom_of(doom),
        )
        .with_attempt(attempt)
        .with_reason(reason.as_deref().map(Reason::beginning_of))
        .with_died(of_micros(self.turn.at - stamp)))
    }

    fn dead_numbers(&self, which: &DeadSelection) -> Done<(Vec<i64>, Rest)> {
        match which {
            DeadSelection::Ids(ids) => {
                let mut numbers = Vec::new();
                for id in ids {
                    numbers.extend(
                        self.stands(id)?.filter(|(_, state)| *state == MessageState::Dead).map(|found| found.0),
                    );
                }
                numbers.sort_unstable();
                numbers.dedup();
                Ok((numbers, Rest::None))
            }
            DeadSelection::Oldest(count) => {
                let mut places = self.places(State::Dead, "", BEGINNING, i64::MAX, count.saturating_add(1))?;
                let rest = if places.len() > *count { Rest::More } else { Rest::None };
                places.truncate(*count);
                Ok((places.into_iter().map(|(_, number)| number).collect(), rest))
            }
        }
    }

    pub(super) fn dead_redrive(&mut self, which: &DeadSelection, delay: Delay) -> Done<Redriven> {
        let (numbers, rest) = self.dead_numbers(which)?;
        let mut moved = 0;
        for number in numbers {
            // One that cannot be read stays: it would only die again.
            let Some(Ok(mut message)) = self.load_message(number)? else { continue };
            message.life.redrive();
            self.relocate(&mut message, State::Waiting, self.turn.at + micros(delay.get()))?;
            moved += 1;
        }
        let rest = if moved == 0 { Rest::None } else { rest };
        Ok(Redriven::new(moved, rest))
    }

    pub(super) fn dead_purge(&mut self, which: &DeadSelection) -> Done<Purged> {
        let (numbers, rest) = self.dead_numbers(which)?;
        for number in &numbers {
            self.remove(*number, None)?;
        }
        Ok(Purged::new(numbers.len() as u64, rest))
    }
}

/// The queues that hold a message, or are paused or limited.
pub(super) fn list_queues(turn: &Turn<'_>, after: Option<&QueueName>, max: usize) -> Done<QueuePage> {
    let look = "SELECT min(name) FROM (SELECT min(queue) AS name FROM message WHERE queue > ?1 \
                UNION ALL SELECT min(name) FROM queue WHERE name > ?1)";
    let mut look = turn.db.prepare_cached(look)?;
    let mut last = after.map(|name| name.as_bytes().to_vec()).unwrap_or_default();
    let mut queues = Vec::new();
    loop {
        let next: Option<Option<Vec<u8>>> = look.query_row([&last], |row| row.get(0)).optional()?;
        let Some(next) = next.flatten() else { return Ok(QueuePage::new(queues, Rest::None)) };
        if queues.len() == max {
            return Ok(QueuePage::new(queues, Rest::More));
        }
        let named = QueueName::new(&next).map_err(|_| damaged("a queue has a name that is none"))?;
        queues.push(named);
        last = next;
    }
}

/// A time as a place: in the same order, and never negative.
fn to_place(at: i64) -> u64 {
    at.cast_unsigned() ^ (1 << 63)
}

fn from_place(place: u64) -> i64 {
    (place ^ (1 << 63)).cast_signed()
}
