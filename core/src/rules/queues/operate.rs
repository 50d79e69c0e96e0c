//! The operators' requests.

use super::message::{Line, Message, Moment, Place};
use super::rows::{At, Head, Rows};
use super::rule::{ALWAYS, Rule};
use crate::driver::{
    Cancelled, Cause, DeadPage, DeadPlace, DeadSelection, Delay, Flow, ListPlace, Listed, LockTurn, MessageInfo,
    MessagePage, MessageState, PurgePlace, PurgeStep, Purged, QueueStats, Redriven, Rescheduled, Rest, TurnGiven,
};
use crate::value::queue::{MessageId, QueueLimits};

/// The errors of all methods are those of the rows.
impl<R: Rows> Rule<'_, R> {
    /// Removes a message that waits.
    pub fn cancel(&mut self, id: &MessageId) -> Result<Cancelled, R::Error> {
        let Some((number, place)) = self.rows.find(id)? else { return Ok(Cancelled::NotFound) };
        match place.state(self.clock.now()) {
            MessageState::InFlight => Ok(Cancelled::InFlight),
            MessageState::Dead => Ok(Cancelled::Dead),
            // With an ended lease it is ready again, and its receiver is too late.
            MessageState::Scheduled | MessageState::Ready | MessageState::Settled => {
                self.discard(number)?;
                Ok(Cancelled::Removed)
            }
        }
    }

    /// Moves a message that waits to another due time.
    pub fn reschedule(&mut self, id: &MessageId, delay: Delay) -> Result<Rescheduled, R::Error> {
        let Some((number, place)) = self.rows.find(id)? else { return Ok(Rescheduled::NotFound) };
        match place.state(self.clock.now()) {
            MessageState::InFlight => return Ok(Rescheduled::InFlight),
            MessageState::Dead => return Ok(Rescheduled::Dead),
            MessageState::Scheduled | MessageState::Ready | MessageState::Settled => {}
        }
        let Some(taken) = self.rows.take(number, |_| true)? else { return Ok(Rescheduled::NotFound) };
        let mut message = taken.map_err(|damage| self.rows.refuse(number, damage))?;
        if place.line == Line::Leased {
            message.life.cause = Cause::LeaseExpired;
        }
        self.relocate(message, Place::new(Line::Waiting, self.clock.after(delay.get())))?;
        Ok(Rescheduled::Moved)
    }

    /// Makes a parked message due, with a hold on its lock.
    pub fn give_turn(&mut self, id: &MessageId, turn: &LockTurn) -> Result<TurnGiven, R::Error> {
        if self.rows.head().flow == Flow::Paused {
            return Ok(TurnGiven::Paused);
        }
        let is_parked = |message: &Message| message.life.cause == Cause::Parked && message.place.line == Line::Waiting;
        let taken = match self.rows.find(id)? {
            Some((number, _)) => self.rows.take(number, is_parked)?,
            None => None,
        };
        let Some(Ok(mut message)) = taken else { return Ok(TurnGiven::NotParked) };
        message.turn = Some(turn.clone());
        let pushed = message.pushed;
        self.relocate(message, Place::new(Line::Waiting, pushed))?;
        Ok(TurnGiven::Due)
    }

    /// Returns a message.
    pub fn get(&self, id: &MessageId) -> Result<Option<MessageInfo>, R::Error> {
        let Some((number, _)) = self.rows.find(id)? else { return Ok(None) };
        let read = self.rows.read(number, |message| message.info(&self.clock))?;
        read.transpose().map_err(|damage| self.rows.refuse(number, damage))
    }

    /// Returns counts and times of the queue.
    pub fn stats(&self) -> Result<QueueStats, R::Error> {
        let Head { flow, limits, .. } = self.rows.head();
        let now = self.clock.now();
        let (due, later) = (0..=now, now + 1..=Moment::MAX);
        let mut oldest = None;
        for line in [Line::Waiting, Line::Held, Line::Leased] {
            let first = self.rows.first(line)?.map(|(at, _)| at);
            oldest = [oldest, first].into_iter().flatten().min();
        }
        let ready = self.rows.count(Line::Waiting, due.clone())?
            + self.rows.count(Line::Held, ALWAYS)?
            + self.rows.count(Line::Leased, due)?;
        Ok(QueueStats::default()
            .with_scheduled(self.rows.count(Line::Waiting, later.clone())?)
            .with_ready(ready)
            .with_in_flight(self.rows.count(Line::Leased, later)?)
            .with_dead(self.rows.count(Line::Dead, ALWAYS)?)
            .with_lag(self.clock.since(oldest.unwrap_or(now)))
            .with_next_due(self.rows.nth_after(Line::Waiting, now, 0)?.map(|at| self.clock.until(at)))
            .with_flow(flow)
            .with_limits(limits))
    }

    /// Lists messages.
    pub fn list(&self, which: Listed, from: Option<ListPlace>, max: usize) -> Result<MessagePage, R::Error> {
        let behind = from.map(|place| (place.parts()[0], place.parts()[1]));
        let positions: Vec<At> = match which {
            Listed::Waiting => {
                let mut waiting = self.waiting(behind, u64::MAX, max)?;
                waiting.sort_unstable_by_key(|(position, _)| *position);
                waiting.into_iter().take(max).map(|(position, _)| position).collect()
            }
            Listed::InFlight => {
                let lasts = self.clock.now() + 1..=Moment::MAX;
                self.rows.positions(Line::Leased, lasts, behind, u64::MAX, max)?
            }
        };
        let mut last = positions.last().filter(|_| positions.len() == max);
        let (mut messages, mut bytes) = (Vec::new(), 0);
        for position in &positions {
            let read = self.rows.read(position.1, |message| message.info(&self.clock))?;
            if let Some(Ok(info)) = read {
                bytes += info.payload.len();
                messages.push(info);
            }
            if bytes >= self.caps.answer_bytes && Some(position) != positions.last() {
                last = Some(position);
                break;
            }
        }
        let next = last.map(|(at, number)| ListPlace::new([*at, *number, 0]));
        Ok(MessagePage::new(messages, next))
    }

    /// The positions of messages that wait, up to `max` of each line. A message whose lease has ended waits.
    fn waiting(&self, behind: Option<At>, newest: u64, max: usize) -> Result<Vec<(At, Line)>, R::Error> {
        let mut positions = Vec::new();
        for (line, times) in [(Line::Waiting, ALWAYS), (Line::Held, ALWAYS), (Line::Leased, 0..=self.clock.now())] {
            let some = self.rows.positions(line, times, behind, newest, max)?;
            positions.extend(some.into_iter().map(|position| (position, line)));
        }
        Ok(positions)
    }

    /// Sets limits instead of those before, with a full bucket.
    pub fn limit(&mut self, limits: QueueLimits) -> Result<(), R::Error> {
        self.rows.set_head(Head { limits, full_at: 0, ..self.rows.head() })
    }

    /// Pauses or resumes deliveries.
    pub fn set_flow(&mut self, flow: Flow) -> Result<(), R::Error> {
        self.rows.set_head(Head { flow, ..self.rows.head() })
    }

    /// Removes waiting messages, up to the newest number of the time when the purge began.
    pub fn purge(&mut self, max: usize, from: Option<PurgePlace>) -> Result<PurgeStep, R::Error> {
        let newest = match from {
            Some(place) => place.newest,
            None => self.rows.newest()?,
        };
        let mut waiting = self.waiting(None, newest, max)?;
        // Of those that are due at the same time, the held ones are the last.
        waiting.sort_unstable_by_key(|((at, number), line)| (*at, *line == Line::Held, *number));
        waiting.truncate(max);
        for ((_, number), _) in &waiting {
            self.discard(*number)?;
        }
        let next = (waiting.len() == max).then_some(PurgePlace { newest, at: 0 });
        Ok(PurgeStep::new(waiting.len() as u64, next))
    }

    /// Lists dead letters.
    pub fn dead_list(&self, after: Option<DeadPlace>, max: usize) -> Result<DeadPage, R::Error> {
        let behind = after.map(|place| (place.stamp, place.number));
        let (positions, mut rest) = self.dead(behind, max)?;
        let (mut letters, mut bytes) = (Vec::new(), 0);
        for (stamp, number) in positions {
            if bytes >= self.caps.answer_bytes {
                rest = Rest::More;
                break;
            }
            let letter = self.rows.letter(DeadPlace { stamp, number })?;
            bytes += letter.payload.len();
            letters.push(letter.with_died(self.clock.since(stamp)));
        }
        Ok(DeadPage::new(letters, rest))
    }

    fn dead(&self, behind: Option<At>, max: usize) -> Result<(Vec<At>, Rest), R::Error> {
        let mut positions = self.rows.positions(Line::Dead, ALWAYS, behind, u64::MAX, max.saturating_add(1))?;
        let rest = if positions.len() > max { Rest::More } else { Rest::None };
        positions.truncate(max);
        Ok((positions, rest))
    }

    fn selected(&self, which: &DeadSelection) -> Result<(Vec<u64>, Rest), R::Error> {
        let ids = match which {
            DeadSelection::Oldest(count) => {
                let (positions, rest) = self.dead(None, *count)?;
                return Ok((positions.into_iter().map(|(_, number)| number).collect(), rest));
            }
            DeadSelection::Ids(ids) => ids,
        };
        let mut numbers = Vec::new();
        for id in ids {
            let dead = self.rows.find(id)?.filter(|(_, place)| place.line == Line::Dead);
            numbers.extend(dead.map(|(number, _)| number));
        }
        numbers.sort_unstable();
        numbers.dedup();
        Ok((numbers, Rest::None))
    }

    /// Makes dead letters due again. A damaged one stays, as it would only die again.
    pub fn dead_redrive(&mut self, which: &DeadSelection, delay: Delay) -> Result<Redriven, R::Error> {
        let (numbers, rest) = self.selected(which)?;
        let mut moved = 0;
        for number in numbers {
            let Some(Ok(mut message)) = self.rows.take(number, |_| true)? else { continue };
            message.life.redrive();
            self.relocate(message, Place::new(Line::Waiting, self.clock.after(delay.get())))?;
            moved += 1;
        }
        // Damaged ones stay the oldest: a caller that asked again for the rest would never end.
        Ok(Redriven::new(moved, if moved == 0 { Rest::None } else { rest }))
    }

    /// Removes dead letters.
    pub fn dead_purge(&mut self, which: &DeadSelection) -> Result<Purged, R::Error> {
        let (numbers, rest) = self.selected(which)?;
        for number in &numbers {
            self.discard(*number)?;
        }
        Ok(Purged::new(numbers.len() as u64, rest))
    }
}
