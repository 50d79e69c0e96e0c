//! What operators do with a queue.

use std::time::Duration;

use etcd_client::{Compare, CompareOp, GetOptions, GetResponse, Txn, TxnOp};
use tenure_core::Result;
use tenure_core::driver::{
    Cancelled, Cause, Delay, Flow, LockTurn, MessageInfo, MessageState, PurgePlace, PurgeStep, QueuePage, QueueStats,
    Rescheduled, Rest, TurnGiven,
};
use tenure_core::queue::{MessageId, QueueName};

use super::apart::by_transactions;
use super::clock::{after, span};
use super::entry::{BATCH, Entry, MOST_STARTS, cause_of, moving};
use super::keys::{Place, Set};
use super::record::Record;
use super::turn::Turn;
use crate::inner::Inner;
use crate::link::odd;

impl Inner {
    pub(super) async fn cancel(&self, queue: &QueueName, id: &MessageId) -> Result<Cancelled> {
        for _ in 0..MOST_STARTS {
            let turn = Turn::new(self, queue);
            let Some(entry) = turn.find(id).await? else { return Ok(Cancelled::NotFound) };
            match turn.state(entry.place) {
                MessageState::InFlight => return Ok(Cancelled::InFlight),
                MessageState::Dead => return Ok(Cancelled::Dead),
                _ => {}
            }
            if turn.apply_one(entry.step(turn.remove(&entry, Delay::ZERO)), None).await? {
                turn.let_next_go([&entry]).await;
                return Ok(Cancelled::Removed);
            }
        }
        Err(moving())
    }

    pub(super) async fn reschedule(&self, queue: &QueueName, id: &MessageId, delay: Delay) -> Result<Rescheduled> {
        for _ in 0..MOST_STARTS {
            let turn = Turn::new(self, queue);
            let Some(entry) = turn.find(id).await? else { return Ok(Rescheduled::NotFound) };
            match turn.state(entry.place) {
                MessageState::InFlight => return Ok(Rescheduled::InFlight),
                MessageState::Dead => return Ok(Rescheduled::Dead),
                _ => {}
            }
            let mut record = entry.record.clone();
            record.life.cause = cause_of(&entry);
            let step = entry.step(turn.delayed(&entry, delay.get(), &record));
            if turn.apply_one(step, Some(turn.signal(after(turn.now, delay.get())))).await? {
                turn.let_next_go([&entry]).await;
                return Ok(Rescheduled::Moved);
            }
        }
        Err(moving())
    }

    /// Two requests, three for a message with a caller's id; one more if the queue is paused. Starts over when the message
    /// moves.
    pub(super) async fn give_turn(&self, queue: &QueueName, id: &MessageId, given: &LockTurn) -> Result<TurnGiven> {
        for _ in 0..MOST_STARTS {
            let turn = Turn::new(self, queue);
            let Some(entry) = turn.find(id).await? else { return Ok(TurnGiven::NotParked) };
            if entry.place.set() != Set::Waiting || entry.record.life.cause != Cause::Parked {
                return Ok(TurnGiven::NotParked);
            }
            let record = Record { turn: Some(given.clone()), ..entry.record.clone() };
            let due = record.pushed.min(turn.now);
            let running = Compare::create_revision(turn.keys.paused(), CompareOp::Equal, 0);
            let step = entry.step(turn.relocate(&entry, Place::Waiting(due), &record));
            match turn.apply(vec![running], vec![step], Some(turn.signal(due))).await? {
                None => return Ok(TurnGiven::Paused),
                Some(applied) if applied.steps.iter().all(Option::is_some) => return Ok(TurnGiven::Due),
                Some(_) => {}
            }
        }
        Err(moving())
    }

    pub(super) async fn get(&self, queue: &QueueName, id: &MessageId) -> Result<Option<MessageInfo>> {
        let turn = Turn::new(self, queue);
        let Some(entry) = turn.find(id).await? else { return Ok(None) };
        let payload = turn.payloads(std::slice::from_ref(&entry)).await?.pop().flatten();
        let (entry, payload) = entry.with(payload)?;
        Ok(Some(turn.info(entry, payload)))
    }

    /// One request: counts, and the first of each kind, at one moment.
    pub(super) async fn stats(&self, queue: &QueueName) -> Result<QueueStats> {
        let turn = Turn::new(self, queue);
        let (now, ended) = (turn.now + 1, turn.leases_ended() + 1);
        // A look tells how many there are as well.
        let first = |set, from, to| {
            let (from, to) = turn.keys.range(set, from, to);
            TxnOp::get(from, Some(GetOptions::new().with_range(to).with_limit(1).with_keys_only()))
        };
        let answers = turn.look(vec![
            TxnOp::get(turn.keys.paused(), None),
            first(Set::Waiting, 0, Some(now)),
            first(Set::Waiting, now, None),
            first(Set::Held, 0, None),
            first(Set::Leased, 0, Some(ended)),
            first(Set::Leased, ended, None),
            first(Set::Dead, 0, None),
            TxnOp::get(turn.keys.limits(), None),
        ]);
        let answers = answers.await?;
        let [paused, waiting, scheduled, held, over, in_flight, dead, limits] = answers.as_slice() else {
            return Err(odd("an answer of another shape"));
        };
        let count = |answer: &GetResponse| u64::try_from(answer.count()).unwrap_or_default();
        let at = |answer: &GetResponse| Some(turn.keys.parse_place(answer.kvs().first()?.key())?.0.at());
        let oldest = [at(waiting), at(held), at(over)].into_iter().flatten().min();
        Ok(QueueStats::default()
            .with_scheduled(count(scheduled))
            .with_ready(count(waiting) + count(held) + count(over))
            .with_in_flight(count(in_flight))
            .with_dead(count(dead))
            .with_lag(oldest.map_or(Duration::ZERO, |at| span(at, turn.now)))
            .with_next_due(at(scheduled).map(|at| span(turn.now, at)))
            .with_flow(if paused.kvs().is_empty() { Flow::Running } else { Flow::Paused })
            .with_limits(super::limits::limits(limits)?))
    }

    pub(super) async fn pause(&self, queue: &QueueName) -> Result<()> {
        let turn = Turn::new(self, queue);
        let operations = [TxnOp::put(turn.keys.paused(), "", None), turn.register()];
        self.txn(Txn::new().and_then(operations)).await.map(drop)
    }

    pub(super) async fn resume(&self, queue: &QueueName) -> Result<()> {
        let turn = Turn::new(self, queue);
        let operations = [TxnOp::delete(turn.keys.paused(), None), turn.signal(0)];
        self.txn(Txn::new().and_then(operations)).await.map(drop)
    }

    /// Two requests for each hundred.
    pub(super) async fn purge(&self, queue: &QueueName, max: usize, from: Option<PurgePlace>) -> Result<PurgeStep> {
        let (mut removed, mut next) = (0, from);
        for _ in 0..max.div_ceil(BATCH) + MOST_STARTS {
            let turn = Turn::new(self, queue);
            // Numbers are near the clock of the client that gave them.
            let begun = || PurgePlace { newest: self.clock.numbers(0) + 2 * turn.error(), at: 0 };
            let place = next.unwrap_or_else(begun);
            let (entries, behind) = turn.purgeable((max - removed).min(BATCH), place).await?;
            next = behind;
            for entries in by_transactions(entries) {
                let steps = entries.iter().map(|entry| entry.step(turn.remove(entry, Delay::ZERO))).collect();
                let applied = turn.apply(Vec::new(), steps, None).await?;
                removed += applied.map_or(0, |applied| applied.steps.iter().flatten().count());
            }
            if next.is_none() || removed == max {
                break;
            }
        }
        Ok(PurgeStep::new(removed as u64, next))
    }

    /// One request for a page of names, one for a look at each queue of it, and one to forget those that are empty.
    pub(super) async fn list(&self, after: Option<QueueName>, max: usize) -> Result<QueuePage> {
        let mut from = match &after {
            Some(queue) => [self.queues.of(queue).registered, vec![0]].concat(),
            None => self.queues.names().into_bytes(),
        };
        let end = [&self.queues.names().as_bytes()[..self.queues.names().len() - 1], b"0"].concat();
        let mut queues = Vec::new();
        loop {
            let page = GetOptions::new().with_range(end.clone()).with_limit(BATCH as i64).with_keys_only();
            let turn = Txn::new().and_then([TxnOp::get(from.clone(), Some(page))]);
            let answers = crate::link::reads(&self.txn(turn).await?);
            let Some(page) = answers.first() else { return Err(odd("an answer of another shape")) };
            for found in page.kvs() {
                let Some(queue) = self.queues.registered(found.key()) else { continue };
                if !Turn::new(self, &queue).is_listed().await? {
                    continue;
                }
                if queues.len() == max {
                    return Ok(QueuePage::new(queues, Rest::More));
                }
                queues.push(queue);
            }
            match page.kvs().last().filter(|_| page.more()) {
                Some(last) => from = [last.key(), &[0]].concat(),
                None => return Ok(QueuePage::new(queues, Rest::None)),
            }
        }
    }
}

impl Turn<'_> {
    /// Messages that wait, the soonest first, from `place` on; and where to go on, if there are more.
    async fn purgeable(&self, limit: usize, place: PurgePlace) -> Result<(Vec<Entry>, Option<PurgePlace>)> {
        let most = i64::try_from(limit).unwrap_or(i64::MAX);
        let ended_by = self.leases_ended() + 1;
        let range = |set, to| {
            let (from, to) = self.keys.range(set, place.at, to);
            TxnOp::get(from, Some(GetOptions::new().with_range(to).with_limit(most)))
        };
        let ended = range(Set::Leased, Some(ended_by.max(place.at)));
        let gets = vec![range(Set::Waiting, None), range(Set::Held, None), ended];
        let answers = self.look(gets).await?;
        // Behind the last of a page that was cut, messages of that range are not known.
        let cut = |answer: &GetResponse| self.keys.parse_place(answer.kvs().last().filter(|_| answer.more())?.key());
        let horizon = answers.iter().filter_map(cut).map(|(place, _)| place.at()).min();
        let found = answers.iter().flat_map(GetResponse::kvs).filter_map(|found| Entry::read(&self.keys, found));
        let mut entries: Vec<_> = found.filter(|entry| horizon.is_none_or(|at| entry.place.at() <= at)).collect();
        entries.sort_unstable_by_key(|entry| (entry.place.at(), entry.number));
        let more = horizon.is_some() || entries.len() > limit;
        entries.truncate(limit);
        // At one time the numbers grow: behind one that is too new, the others of its time are too new as well.
        let behind = |last: &Entry| last.place.at().checked_add(u64::from(last.number > place.newest));
        let at = match (entries.last(), horizon) {
            (Some(last), _) => behind(last),
            (None, Some(at)) => at.checked_add(1),
            (None, None) => Some(place.at),
        };
        entries.retain(|entry| entry.number <= place.newest);
        Ok((entries, at.filter(|_| more).map(|at| PurgePlace { at, ..place })))
    }

    /// Whether the queue holds a message, is paused, or limited. If not, it is taken off the list, and its signal is removed.
    async fn is_listed(&self) -> Result<bool> {
        let empty = [
            Compare::create_revision(self.keys.pointers(), CompareOp::Equal, 0).with_prefix(),
            Compare::create_revision(self.keys.paused(), CompareOp::Equal, 0),
            Compare::create_revision(self.keys.limits(), CompareOp::Equal, 0),
        ];
        let first = GetOptions::new().with_prefix().with_limit(1).with_keys_only();
        let set = [self.keys.paused(), self.keys.limits()].map(|key| TxnOp::get(key, None));
        let gets = [vec![TxnOp::get(self.keys.pointers(), Some(first))], set.to_vec()].concat();
        if self.look(gets).await?.iter().any(|answer| !answer.kvs().is_empty()) {
            return Ok(true);
        }
        let strike = [self.keys.registered.as_slice(), self.keys.wake.as_slice()].map(|key| TxnOp::delete(key, None));
        let strike = Txn::new().when(empty).and_then(strike);
        Ok(!self.inner.txn(strike).await?.succeeded())
    }
}
