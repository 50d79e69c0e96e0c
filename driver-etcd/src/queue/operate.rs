//! The operators' operations on a queue.

use std::time::Duration;

use etcd_client::{Compare, CompareOp, GetOptions, GetResponse, Txn, TxnOp};
use tenure_core::Result;
use tenure_core::driver::{
    Cancelled, Cause, Delay, Flow, LockTurn, MessageInfo, MessageState, PurgePlace, PurgeStep, QueuePage, QueueStats,
    Rescheduled, Rest, TurnGiven,
};
use tenure_core::queue::{MessageId, QueueName};

use super::batch::by_transactions;
use super::clock::{after, span};
use super::entry::{BATCH, Entry, MOST_STARTS, cause_of, moving};
use super::keys::{Location, Set};
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

    /// Three requests, four for a message with a caller's id. Starts over when the message moves.
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
            let step = entry.step(turn.relocate(&entry, Location::Waiting(due), &record));
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
        // A look counts the messages as well.
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
            return Err(odd("an answer of an unexpected form"));
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
            let Some(page) = answers.first() else { return Err(odd("an answer of an unexpected form")) };
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
    /// Waiting messages, the soonest first, from `place` on; and the place to continue from, if there are more.
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use tenure_core::driver::{Lease, Listed, NewMessage, ReceiveRequest};

    use super::super::test_support::{SECOND, queue};
    use super::*;
    use crate::test_support::served;

    impl Turn<'_> {
        async fn puts(&self, keys: impl IntoIterator<Item = Vec<u8>>) {
            let puts: Vec<_> = keys.into_iter().map(|key| TxnOp::put(key, "", None)).collect();
            self.inner.txn(Txn::new().and_then(puts)).await.unwrap();
        }

        async fn stored(&self, place: Location, number: u64) {
            let message = NewMessage::new(tenure_core::driver::Payload::new([]).unwrap());
            let record = Record::of(&message, self.now, self.now).encode();
            let put = TxnOp::put(self.keys.place(place, number), record, None);
            let pointer = TxnOp::put(self.keys.pointer(number), place.spelled(), None);
            self.inner.txn(Txn::new().and_then([put, pointer])).await.unwrap();
        }
    }

    /// Two at a time, the soonest first, over waiting messages, held-back ones, and those that were in flight.
    #[tokio::test]
    async fn a_purge_takes_each_message_once_and_leaves_those_that_are_newer() {
        let (_cluster, driver) = served();
        let turn = Turn::new(&driver.inner, &queue());
        let (ended, lasts) = (turn.leases_ended(), turn.leases_ended() + 1);
        for (place, number) in [
            (Location::Waiting(1), 1),
            (Location::Waiting(1), 2),
            (Location::Waiting(1), 60),
            (Location::Waiting(1), 61),
            (Location::Held(1), 3),
            (Location::Held(2), 62),
            (Location::Held(2), 4),
            (Location::Waiting(3), 50),
            (Location::Leased(4), 5),
            (Location::Waiting(5), 63),
            (Location::Leased(5), 6),
            (Location::Leased(ended), 7),
            (Location::Leased(lasts), 8),
            (Location::Waiting(turn.now + 60 * SECOND), 9),
            (Location::Dead(1), 10),
        ] {
            turn.stored(place, number).await;
        }
        let (mut pages, mut place) = (Vec::new(), PurgePlace { newest: 50, at: 0 });
        loop {
            let (entries, next) = turn.purgeable(2, place).await.unwrap();
            pages.push(entries.iter().map(|entry| entry.number).collect::<Vec<_>>());
            let steps = entries.iter().map(|entry| entry.step(turn.remove(entry, Delay::ZERO))).collect();
            turn.apply(Vec::new(), steps, None).await.unwrap().unwrap();
            let Some(next) = next else { break };
            assert_eq!(next.newest, 50);
            assert!(next.at >= place.at && pages.len() < 20, "{pages:?}");
            place = next;
        }
        assert_eq!(
            pages,
            [vec![1, 2], vec![3], vec![4], vec![50, 5], vec![6], vec![7, 9]],
            "the others of a page are newer"
        );
        let left = turn.look(vec![TxnOp::get(turn.keys.pointers(), Some(GetOptions::new().with_prefix()))]).await;
        assert_eq!(left.unwrap()[0].count(), 6);
    }

    /// To the microsecond, by a stopped clock.
    #[tokio::test]
    async fn figures_lists_and_receives_agree_on_what_is_ready() {
        let (_cluster, driver) = served();
        let now = driver.inner.clock.now() + 3_600 * SECOND;
        driver.inner.clock.at_least(now);
        let turn = Turn::new(&driver.inner, &queue());
        for (place, number) in [
            (Location::Waiting(now), 1),
            (Location::Waiting(now + 1), 2),
            (Location::Waiting(now + 7), 3),
            (Location::Held(now - 3 * SECOND), 4),
            (Location::Leased(now - SECOND), 5),
            (Location::Leased(now - SECOND + 1), 6),
            (Location::Leased(now + 5), 7),
            (Location::Dead(now), 8),
        ] {
            turn.stored(place, number).await;
        }
        let stats = driver.inner.stats(&queue()).await.unwrap();
        assert_eq!((stats.scheduled, stats.ready, stats.in_flight, stats.dead), (2, 3, 2, 1));
        let micro = Duration::from_micros(1);
        assert_eq!((stats.lag, stats.next_due), (Duration::from_secs(3), Some(micro)));
        let listed = async |which| {
            let page = driver.inner.list_messages(&queue(), which, None, 9).await.unwrap();
            page.messages.iter().map(|message| message.id.as_number().unwrap()).collect::<Vec<_>>()
        };
        let puts = (1..9).map(|number| turn.keys.body(number)).collect::<Vec<_>>();
        turn.puts(puts).await;
        assert_eq!((listed(Listed::Waiting).await, listed(Listed::InFlight).await), (vec![4, 5, 1, 2, 3], vec![6, 7]));
        let lease = Lease::new(Duration::from_secs(30)).unwrap();
        let received = driver.inner.receive(&ReceiveRequest::new(queue(), 9, lease)).await.unwrap();
        let numbers: Vec<_> = received.deliveries.iter().map(|delivery| delivery.id.as_number().unwrap()).collect();
        assert_eq!(numbers, [5, 1]);
    }

    #[tokio::test]
    async fn no_more_is_purged_than_was_asked_for() {
        let (_cluster, driver) = served();
        let turn = Turn::new(&driver.inner, &queue());
        for number in [60, 1, 2, 3, 4] {
            turn.stored(Location::Waiting(turn.now - number), number).await;
        }
        let from = || Some(PurgePlace { newest: 50, at: 0 });
        let step = driver.inner.purge(&queue(), 2, from()).await.unwrap();
        assert_eq!(step.removed, 2, "behind one that stays");
        assert!(step.next.is_some());
        let step = driver.inner.purge(&queue(), 9, step.next).await.unwrap();
        assert_eq!((step.removed, step.next), (2, None));
        assert_eq!(driver.inner.stats(&queue()).await.unwrap().ready, 1);
        turn.stored(Location::Waiting(turn.now - 1), 5).await;
        let step = driver.inner.purge(&queue(), 2, None).await.unwrap();
        assert_eq!((step.removed, step.next), (2, None), "there are no more");
    }

    #[tokio::test]
    async fn a_turn_is_given_to_a_parked_message_alone_and_puts_it_where_it_was_pushed() {
        use tenure_core::driver::{DelayQueueExt as _, Due, Payload, Pushed, Settle, Settlement};
        let (_cluster, driver) = served();
        let (lock, token) = (tenure_core::LockName::new("lock").unwrap(), tenure_core::OwnerToken::random());
        let turn = LockTurn::new(lock, token, tenure_core::FencingToken::new(7).unwrap());
        let most = Delay::new(Duration::from_secs(60)).unwrap();
        let push = async |due| {
            let message = NewMessage::new(Payload::new([]).unwrap()).with_due(due);
            match driver.inner.push(&queue(), &[message]).await.unwrap().remove(0) {
                Pushed::Stored(id) => id,
                other => panic!("{other:?}"),
            }
        };
        let give = async |id| driver.inner.give_turn(&queue(), id, &turn).await.unwrap();
        let request = ReceiveRequest::new(queue(), 1, Lease::new(Duration::from_secs(30)).unwrap());
        let receive = async || driver.receive(&request).await.unwrap().deliveries.remove(0);
        let parked = push(Due::Parked { at_most: most }).await;
        let waits = push(Due::After(most)).await;
        let now = push(Due::After(Delay::ZERO)).await;
        assert_eq!(give(&waits).await, TurnGiven::NotParked);
        assert_eq!(give(&parked).await, TurnGiven::Due);
        let first = receive().await;
        assert_eq!((&first.id, first.turn.as_ref()), (&parked, Some(&turn)));
        assert_eq!(give(&parked).await, TurnGiven::NotParked, "it is in flight");
        assert_eq!(receive().await.id, now);
        let settle = Settle::new(first.receipt, Settlement::Dead { reason: None });
        driver.settle(&queue(), &[settle]).await.unwrap();
        assert_eq!(give(&parked).await, TurnGiven::NotParked, "it is dead");
    }

    #[tokio::test]
    async fn a_message_without_its_payload_says_so_and_a_damaged_one_is_not_listed() {
        let (_cluster, driver) = served();
        let turn = Turn::new(&driver.inner, &queue());
        for number in [1, 2, 3] {
            turn.stored(Location::Waiting(turn.now), number).await;
        }
        turn.puts([turn.keys.body(2), turn.keys.body(3)]).await;
        let [first, second] = [1, 2].map(MessageId::assigned);
        let seen = driver.inner.get(&queue(), &first).await.unwrap().unwrap();
        assert_eq!((seen.payload.len(), seen.reason.unwrap().as_str()), (0, "damaged: its payload is missing"));
        assert_eq!(driver.inner.get(&queue(), &second).await.unwrap().unwrap().reason, None);
        let entry = turn.find(&second).await.unwrap().unwrap();
        let odd = [&entry.record.encode()[..], b"key=%\n"].concat();
        turn.write([TxnOp::put(entry.key, odd, None)]).await;
        let listed = driver.inner.list_messages(&queue(), Listed::Waiting, None, 9).await.unwrap().messages;
        assert_eq!(listed.iter().map(|message| &message.id).collect::<Vec<_>>(), [&MessageId::assigned(3)]);
    }

    #[tokio::test]
    async fn what_is_put_off_after_its_lease_has_ended_says_so_when_it_comes() {
        use tenure_core::driver::{DelayQueueExt as _, Payload};
        let (_cluster, driver) = served();
        let message = NewMessage::new(Payload::new([]).unwrap());
        driver.inner.push(&queue(), &[message]).await.unwrap();
        let request = ReceiveRequest::new(queue(), 1, Lease::new(Duration::from_secs(30)).unwrap());
        let first = driver.receive(&request).await.unwrap().deliveries.remove(0);
        assert_eq!(driver.inner.reschedule(&queue(), &first.id, Delay::ZERO).await.unwrap(), Rescheduled::InFlight);
        driver.inner.clock.at_least(driver.inner.clock.now() + 60 * SECOND);
        assert_eq!(driver.inner.reschedule(&queue(), &first.id, Delay::ZERO).await.unwrap(), Rescheduled::Moved);
        let second = driver.receive(&request).await.unwrap().deliveries.remove(0);
        assert_eq!((second.id, second.attempt, second.cause), (first.id, 2, Cause::LeaseExpired));
    }

    #[tokio::test]
    async fn a_queue_is_listed_while_it_holds_a_message_is_paused_or_limited() {
        let (_cluster, driver) = served();
        let turn = Turn::new(&driver.inner, &queue());
        let listed = [turn.keys.registered.clone(), turn.keys.wake.clone()];
        for key in [turn.keys.pointer(7), turn.keys.paused(), turn.keys.limits()] {
            turn.puts([key.clone(), listed[0].clone(), listed[1].clone()]).await;
            assert!(turn.is_listed().await.unwrap());
            turn.write([TxnOp::delete(key, None)]).await;
            let there = async || {
                let gets = listed.iter().map(|key| TxnOp::get(key.as_slice(), None)).collect();
                turn.look(gets).await.unwrap().iter().map(GetResponse::count).sum::<i64>()
            };
            assert_eq!(there().await, 2);
            assert!(!turn.is_listed().await.unwrap());
            assert_eq!(there().await, 0, "it was struck off");
        }
    }

    /// More than etcd returns at once, and some of them empty by now.
    #[tokio::test]
    async fn queues_are_listed_over_pages_and_those_that_are_empty_left_out() {
        let (_cluster, driver) = served();
        let name = |at: usize| QueueName::new(format!("q{at:03}")).unwrap();
        for at in 0..230 {
            let turn = Turn::new(&driver.inner, &name(at));
            let paused = (at % 10 != 0).then(|| turn.keys.paused());
            turn.puts(paused.into_iter().chain([turn.keys.registered.clone()])).await;
        }
        let expected: BTreeSet<QueueName> = (0..230).filter(|at| at % 10 != 0).map(name).collect();
        for most in [300, 207, 206, 100, 7] {
            let (mut all, mut after, mut pages) = (Vec::new(), None, 0);
            loop {
                let page = driver.inner.list(after, most).await.unwrap();
                assert!(page.queues.len() <= most);
                pages += 1;
                all.extend(page.queues);
                after = all.last().cloned();
                if page.rest == Rest::None {
                    break;
                }
            }
            assert!(all.iter().eq(&expected), "{most}: {all:?}");
            assert_eq!(pages, 207_usize.div_ceil(most), "{most}");
        }
    }
}
