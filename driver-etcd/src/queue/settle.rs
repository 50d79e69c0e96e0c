//! Settles deliveries, and extends them.

use std::collections::{HashMap, HashSet};

use etcd_client::TxnOp;
use tenure_core::Result;
use tenure_core::driver::{DeadCause, Delay, Extended, Extension, Fate, Receipt, Settle, Settled, Settlement};
use tenure_core::queue::QueueName;

use super::batch::Batch;
use super::clock::{Micros, after};
use super::entry::{Burial, Entry, MOST_STARTS, moving};
use super::keys::Location;
use super::record::Record;
use super::turn::Turn;
use crate::inner::Inner;

/// What a settlement does to a message that is delivered as its receipt says.
struct Move {
    entry: Entry,
    step: TxnOp,
    settled: Settled,
    /// When it becomes due again.
    due: Option<Micros>,
}

impl Inner {
    /// One request. Two or three more where this client does not know where a message is, another one where some die.
    pub(super) async fn settle(&self, queue: &QueueName, settles: &[Settle]) -> Result<Vec<Settled>> {
        let mut answers: Vec<Option<Settled>> = vec![None; settles.len()];
        for _ in 0..MOST_STARTS {
            // Of several settlements of one message the first goes first.
            let mut numbers = HashSet::new();
            let open = (0..settles.len()).filter(|at| answers[*at].is_none());
            let open: Vec<_> = open.filter(|at| numbers.insert(settles[*at].receipt.parts()[0])).collect();
            if open.is_empty() {
                return Ok(answers.into_iter().flatten().collect());
            }
            let turn = Turn::new(self, queue);
            let found = turn.delivered(open.iter().map(|at| settles[*at].receipt)).await?;
            let dies =
                |(at, entry): (&usize, &Option<Entry>)| entry.as_ref().is_some_and(|e| e.dies(&settles[*at].how));
            let mut room = match open.iter().zip(&found).any(dies) {
                true => turn.room_for_dead().await?,
                false => 0,
            };
            let (mut moves, mut batch) = (Vec::new(), Batch::default());
            for (at, entry) in open.into_iter().zip(found) {
                match entry {
                    Some(entry) if !batch.takes(&entry) => {} // the next time
                    Some(entry) => moves.push((at, turn.settlement(entry, &settles[at].how, &mut room))),
                    None => answers[at] = Some(Settled::Stale),
                }
            }
            if moves.is_empty() {
                continue;
            }
            let due: Vec<Micros> = moves.iter().filter_map(|(_, one)| one.due).collect();
            let signal = turn.signal_settled(&due, moves.len());
            let steps = moves.iter().map(|(_, one)| one.step.clone()).collect();
            let Some(applied) = turn.apply(Vec::new(), steps, Some(signal)).await? else { continue };
            let settled = moves.iter().zip(&applied.steps).filter(|(_, answer)| answer.is_some());
            turn.let_next_go(settled.map(|((_, one), _)| &one.entry)).await;
            for ((at, one), answer) in moves.into_iter().zip(applied.steps) {
                answers[at] = answer.map(|_| one.settled);
                self.delivered.forget(&turn.delivered_as(settles[at].receipt));
            }
        }
        Err(moving())
    }

    /// One request, or more as for settlements.
    pub(super) async fn extend(&self, queue: &QueueName, extensions: &[Extension]) -> Result<Vec<Extended>> {
        let mut answers: Vec<Option<Extended>> = vec![None; extensions.len()];
        for _ in 0..MOST_STARTS {
            let mut numbers = HashSet::new();
            let open = (0..extensions.len()).filter(|at| answers[*at].is_none());
            let open: Vec<_> = open.filter(|at| numbers.insert(extensions[*at].receipt.parts()[0])).collect();
            if open.is_empty() {
                return Ok(answers.into_iter().flatten().collect());
            }
            let turn = Turn::new(self, queue);
            let found = turn.delivered(open.iter().map(|at| extensions[*at].receipt)).await?;
            let mut moves = Vec::new();
            for (at, entry) in open.into_iter().zip(found) {
                let until = after(turn.now, extensions[at].lease.get());
                match entry.filter(|entry| entry.place.at() > turn.leases_ended()) {
                    None => answers[at] = Some(Extended::Stale),
                    Some(entry) if entry.place.at() >= until => answers[at] = Some(Extended::Extended),
                    Some(entry) => {
                        let operations = turn.relocate(&entry, Location::Leased(until), &entry.record);
                        moves.push((at, until, entry.step(operations), entry));
                    }
                }
            }
            if moves.is_empty() {
                continue;
            }
            let steps = moves.iter().map(|(_, _, step, _)| step.clone()).collect();
            let Some(applied) = turn.apply(Vec::new(), steps, None).await? else { continue };
            for ((at, until, _, entry), answer) in moves.into_iter().zip(applied.steps) {
                let first = turn.delivered_as(extensions[at].receipt);
                if answer.is_some() {
                    let moved =
                        entry.moved(&turn.keys, Location::Leased(until), entry.record.clone(), applied.revision);
                    self.delivered.remember(first, moved, turn.now);
                    answers[at] = Some(Extended::Extended);
                } else {
                    self.delivered.forget(&first);
                }
            }
        }
        Err(moving())
    }
}

impl Entry {
    /// Whether this settlement moves it to the dead letters.
    fn dies(&self, how: &Settlement) -> bool {
        matches!(self.record.life.clone().settle(how), Fate::Dies(_))
    }
}

impl Turn<'_> {
    /// The messages that are delivered as these receipts say.
    async fn delivered(&self, receipts: impl Iterator<Item = Receipt>) -> Result<Vec<Option<Entry>>> {
        let receipts: Vec<Receipt> = receipts.collect();
        let mut found: HashMap<u64, Entry> = HashMap::new();
        let mut wanted = Vec::new();
        for receipt in &receipts {
            let [number, until, _] = receipt.parts();
            match self.inner.delivered.get(&self.delivered_as(*receipt)) {
                Some(entry) => drop(found.insert(number, entry)),
                None => wanted.push((number, Some(Location::Leased(until)))),
            }
        }
        found.extend(self.entries(&wanted).await?);
        let as_told = |receipt: &Receipt| {
            let [number, _, serial] = receipt.parts();
            let entry = found.remove(&number)?;
            (matches!(entry.place, Location::Leased(_)) && entry.record.serial == serial).then_some(entry)
        };
        Ok(receipts.iter().map(as_told).collect())
    }

    /// The key under which the delivery of a receipt was made.
    fn delivered_as(&self, receipt: Receipt) -> Vec<u8> {
        let [number, until, _] = receipt.parts();
        self.keys.place(Location::Leased(until), number)
    }

    fn settlement(&self, entry: Entry, how: &Settlement, room: &mut u64) -> Move {
        let mut record = entry.record.clone();
        match record.life.settle(how) {
            Fate::Removed => {
                let window = record.named.as_ref().map_or(Delay::ZERO, |named| named.window);
                let step = entry.step(self.remove(&entry, window));
                Move { entry, step, settled: Settled::Done, due: None }
            }
            Fate::Waits(delay) => {
                let step = entry.step(self.delayed(&entry, delay.get(), &record));
                Move { entry, step, settled: Settled::Done, due: Some(after(self.now, delay.get())) }
            }
            Fate::Dies(cause) => self.burial(entry, record, cause, room),
        }
    }

    fn burial(&self, entry: Entry, record: Record, cause: DeadCause, room: &mut u64) -> Move {
        let (burial, operations) = self.bury(&entry, record, cause, *room > 0);
        *room = room.saturating_sub(1);
        let settled = match burial {
            Burial::Dead => Settled::Dead,
            Burial::Postponed => Settled::Postponed,
        };
        Move { step: entry.step(operations), entry, settled, due: None }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tenure_core::driver::{DelayQueueExt as _, Lease, NamedId, NewMessage, Payload, ReceiveRequest};
    use tenure_core::queue::MessageId;

    use super::super::test_support::queue;
    use super::*;
    use crate::EtcdDriver;
    use crate::test_support::served;

    async fn push(driver: &EtcdDriver, names: &[&str]) {
        let named = |name: &&str| {
            let window = Delay::new(Duration::from_secs(60)).unwrap();
            let id = NamedId::new(MessageId::named(*name).unwrap(), window);
            NewMessage::new(Payload::new([]).unwrap()).with_id(Some(id))
        };
        driver.inner.push(&queue(), &names.iter().map(named).collect::<Vec<_>>()).await.unwrap();
    }

    async fn receive(driver: &EtcdDriver, max: usize) -> Vec<Receipt> {
        let request = ReceiveRequest::new(queue(), max, Lease::new(Duration::from_secs(30)).unwrap());
        driver.receive(&request).await.unwrap().deliveries.iter().map(|delivery| delivery.receipt).collect()
    }

    #[tokio::test]
    async fn of_those_that_die_at_once_as_many_are_kept_as_there_is_room_for() {
        let (cluster, _) = served();
        let driver = EtcdDriver::new(format!("{}?max_dead_letters=2", cluster.url()).parse().unwrap());
        push(&driver, &["a", "b", "c", "d"]).await;
        let received = receive(&driver, 4).await;
        let dead = |receipt: &Receipt| Settle::new(*receipt, Settlement::Dead { reason: None });
        let settles: Vec<_> = received.iter().map(dead).collect();
        let (dead, postponed) = (Settled::Dead, Settled::Postponed);
        let answers = driver.settle(&queue(), &settles).await.unwrap();
        assert_eq!(answers, [dead, dead, postponed, postponed]);
        let stats = driver.inner.stats(&queue()).await.unwrap();
        assert_eq!((stats.dead, stats.scheduled), (2, 2));
    }

    /// As no version of this crate writes it.
    #[tokio::test]
    async fn two_messages_of_one_name_are_settled_by_one_call() {
        let (_cluster, driver) = served();
        push(&driver, &["a", "b"]).await;
        let turn = Turn::new(&driver.inner, &queue());
        let find = async |name| turn.find(&MessageId::named(name).unwrap()).await.unwrap().unwrap();
        let (first, second) = (find("a").await, find("b").await);
        let put = TxnOp::put(second.key, first.record.encode(), None);
        turn.write([put]).await;
        let received = receive(&driver, 2).await;
        let acks: Vec<_> = received.iter().map(|receipt| Settle::new(*receipt, Settlement::Ack)).collect();
        assert_eq!(driver.settle(&queue(), &acks).await.unwrap(), [Settled::Done; 2]);
    }

    /// The message is the same, and the delivery another one.
    #[tokio::test]
    async fn an_earlier_delivery_settles_and_extends_nothing() {
        let (cluster, driver) = served();
        let other = EtcdDriver::new(cluster.url().parse().unwrap());
        push(&driver, &["a"]).await;
        let first = receive(&driver, 1).await;
        let later = driver.inner.clock.now() + 60_000_000;
        [&driver, &other].iter().for_each(|driver| driver.inner.clock.at_least(later));
        let second = receive(&driver, 1).await;
        let longer = Lease::new(Duration::from_secs(90)).unwrap();
        for driver in [&driver, &other] {
            let extension = Extension::new(first[0], longer);
            assert_eq!(driver.inner.extend(&queue(), &[extension]).await.unwrap(), [Extended::Stale]);
            let ack = Settle::new(first[0], Settlement::Ack);
            assert_eq!(driver.settle(&queue(), &[ack]).await.unwrap(), [Settled::Stale]);
        }
        let ack = Settle::new(second[0], Settlement::Ack);
        assert_eq!(other.settle(&queue(), &[ack]).await.unwrap(), [Settled::Done]);
    }
}
