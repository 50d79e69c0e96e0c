//! Storing messages.

use std::collections::HashMap;

use etcd_client::{Compare, CompareOp, Txn, TxnOp};
use tenure_core::Result;
use tenure_core::driver::{Due, IfKnown, MessageState, NewMessage, Pushed};
use tenure_core::queue::{MessageId, QueueName};

use super::clock::{Micros, after};
use super::entry::{Entry, MOST_STARTS, known_until, moving, naming, stored_as};
use super::keys::Location;
use super::record::Record;
use super::turn::Turn;
use crate::config::invalid;
use crate::inner::Inner;

/// The bytes that one push may carry. etcd takes requests of 1.5 MiB by default; the rest is for keys, of which each
/// message has four and names the queue in each, and for names, in which a byte may be spelled as three.
pub(super) const REQUEST_BYTES: usize = 384 * 1024;

/// The known state of a caller's id.
struct Known {
    /// The revision of its key, zero if there is none.
    written: i64,
    /// `None` if it is free.
    state: Option<MessageState>,
    /// The stored message.
    entry: Option<Entry>,
}

/// Messages that are to be stored, and the answers for all.
struct Plan {
    first: u64,
    conditions: Vec<Compare>,
    operations: Vec<TxnOp>,
    answers: Vec<Pushed>,
    due: Vec<Micros>,
    /// Stored messages that make way.
    replaced: Vec<Entry>,
}

/// A message that is to be stored there.
#[derive(Clone, Copy)]
struct Stored<'a> {
    number: u64,
    place: Location,
    message: &'a NewMessage,
}

/// A message of the same batch.
struct Fresh<'a> {
    /// Which operation stores it.
    at: usize,
    state: MessageState,
    /// In whose place.
    replaced: Option<&'a Entry>,
}

impl Plan {
    fn add(&mut self, operation: TxnOp, place: Location) {
        self.operations.push(operation);
        self.due.push(place.at());
    }

    fn change(&mut self, at: usize, operation: TxnOp, place: Location) {
        self.operations[at] = operation;
        self.due[at] = place.at();
    }
}

fn may_replace(message: &NewMessage, state: MessageState) -> bool {
    message.if_known == IfKnown::Replace && matches!(state, MessageState::Scheduled | MessageState::Ready)
}

impl Inner {
    /// One request; one before it where there are callers' ids, and two more to find the messages of those that are known.
    pub(super) async fn push(&self, queue: &QueueName, messages: &[NewMessage]) -> Result<Vec<Pushed>> {
        let bytes: usize = messages.iter().map(NewMessage::bytes).sum();
        if bytes > REQUEST_BYTES {
            let text = format!("{bytes} bytes in one push are more than {REQUEST_BYTES}: push fewer messages at once");
            return Err(invalid(text));
        }
        for _ in 0..MOST_STARTS {
            let turn = Turn::new(self, queue);
            let known = turn.known(messages).await?;
            let plan = turn.plan(messages, &known);
            if plan.due.is_empty() {
                return Ok(plan.answers);
            }
            let register = turn.register();
            let operations = [plan.operations, vec![register, turn.signal_listed(&plan.due)]].concat();
            let free = Compare::create_revision(turn.keys.pointer(plan.first), CompareOp::Equal, 0)
                .with_range(turn.keys.pointer(plan.first + messages.len() as u64));
            let conditions = [plan.conditions, vec![free]].concat();
            if self.txn(Txn::new().when(conditions).and_then(operations)).await?.succeeded() {
                turn.let_next_go(&plan.replaced).await;
                return Ok(plan.answers);
            }
        }
        Err(moving())
    }
}

impl Turn<'_> {
    /// The caller's ids, as far as they are known.
    async fn known(&self, messages: &[NewMessage]) -> Result<HashMap<MessageId, Known>> {
        let mut ids: Vec<&MessageId> = messages.iter().filter_map(|message| Some(&message.id.as_ref()?.id)).collect();
        ids.sort_unstable();
        ids.dedup();
        let mut known = HashMap::new();
        if ids.is_empty() {
            return Ok(known);
        }
        let gets = ids.iter().map(|id| Ok(TxnOp::get(self.keys.by_id(id)?, None))).collect::<Result<_>>()?;
        let mut stored = Vec::new();
        for (id, answer) in ids.into_iter().zip(self.look(gets).await?) {
            let (mut written, mut state) = (0, None);
            if let Some(found) = answer.kvs().first() {
                written = found.mod_revision();
                stored.extend(stored_as(found.value()).map(|number| (id.clone(), number)));
                state = known_until(found.value()).filter(|until| *until > self.now).map(|_| MessageState::Settled);
            }
            known.insert(id.clone(), Known { written, state, entry: None });
        }
        if stored.is_empty() {
            return Ok(known);
        }
        let wanted: Vec<_> = stored.iter().map(|(_, number)| (*number, None)).collect();
        let mut entries = self.entries(&wanted).await?;
        for (id, number) in stored {
            // The id of a message that is gone is free; if that was just now, the id has been written since.
            if let (Some(entry), Some(known)) = (entries.remove(&number), known.get_mut(&id)) {
                known.state = Some(self.state(entry.place));
                known.entry = Some(entry);
            }
        }
        Ok(known)
    }

    fn plan(&self, messages: &[NewMessage], known: &HashMap<MessageId, Known>) -> Plan {
        let first = self.inner.clock.numbers(messages.len());
        let mut plan = Plan {
            first,
            conditions: Vec::new(),
            operations: Vec::new(),
            answers: Vec::new(),
            due: Vec::new(),
            replaced: Vec::new(),
        };
        let mut fresh: HashMap<&MessageId, Fresh<'_>> = HashMap::new();
        for (number, message) in (first..).zip(messages) {
            let delay = match message.due {
                Due::After(delay) | Due::Parked { at_most: delay } => delay,
            };
            let place = Location::Waiting(after(self.now, delay.get()));
            let stored = Stored { number, place, message };
            let Some(id) = message.id.as_ref().map(|named| &named.id) else {
                plan.add(self.store(stored, None), place);
                plan.answers.push(Pushed::Stored(MessageId::assigned(number)));
                continue;
            };
            let known = known.get(id);
            let state = fresh.get(id).map(|fresh| fresh.state).or_else(|| known.and_then(|known| known.state));
            match state {
                Some(state) if !may_replace(message, state) => {
                    plan.answers.push(Pushed::Duplicate(state));
                    continue;
                }
                Some(_) => plan.answers.push(Pushed::Replaced(id.clone())),
                None => plan.answers.push(Pushed::Stored(id.clone())),
            }
            if let Some(earlier) = fresh.get_mut(id) {
                earlier.state = self.state(place);
                plan.change(earlier.at, self.store(stored, earlier.replaced), place);
                continue;
            }
            let replaced = known.and_then(|known| known.entry.as_ref()).filter(|_| state.is_some());
            // What moves or goes takes its id along.
            plan.conditions.push(match replaced {
                Some(entry) => entry.unmoved(),
                None => {
                    let name = self.keys.named(id.as_name().unwrap_or_default());
                    Compare::mod_revision(name, CompareOp::Equal, known.map_or(0, |known| known.written))
                }
            });
            fresh.insert(id, Fresh { at: plan.operations.len(), state: self.state(place), replaced });
            plan.replaced.extend(replaced.cloned());
            plan.add(self.store(stored, replaced), place);
        }
        plan
    }

    /// What takes the place of the message that is known, if there is one.
    fn store(&self, Stored { number, place, message }: Stored<'_>, replaced: Option<&Entry>) -> TxnOp {
        let record = Record::of(message, self.now, place.at());
        let mut operations = replaced.map_or_else(Vec::new, |entry| self.take_away(entry));
        operations.extend([
            TxnOp::put(self.keys.place(place, number), record.encode(), None),
            TxnOp::put(self.keys.pointer(number), place.spelled(), None),
            TxnOp::put(self.keys.body(number), message.payload.as_bytes(), None),
        ]);
        if let Some(name) = message.id.as_ref().and_then(|named| named.id.as_name()) {
            operations.push(TxnOp::put(self.keys.named(name), naming(number), None));
        }
        TxnOp::txn(Txn::new().and_then(operations))
    }

    /// Lists the queue, unless it is listed.
    pub(super) fn register(&self) -> TxnOp {
        let key = self.keys.registered.as_slice();
        let unlisted = Compare::create_revision(key, CompareOp::Equal, 0);
        TxnOp::txn(Txn::new().when([unlisted]).and_then([TxnOp::put(key, "", None)]))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tenure_core::driver::{
        Delay, DelayQueueExt as _, Lease, NamedId, Payload, ReceiveRequest, Settle, Settled, Settlement,
    };

    use super::super::test_support::queue;
    use super::*;
    use crate::EtcdDriver;
    use crate::test_support::served;

    const HOUR: Micros = 3_600_000_000;

    fn message() -> NewMessage {
        NewMessage::new(Payload::new([]).unwrap())
    }

    /// Their clocks show the same, or nearly the same, microsecond.
    #[tokio::test]
    async fn clients_whose_clocks_agree_take_no_number_twice() {
        for (earlier, first, second) in [(0, 2, 2), (1, 1, 2), (1, 2, 2), (3, 1, 5), (0, 2, 1)] {
            let (cluster, one) = served();
            let other = EtcdDriver::new(cluster.url().parse().unwrap());
            let now = one.inner.clock.now() + HOUR;
            one.inner.clock.at_least(now);
            other.inner.clock.at_least(now - earlier);
            one.inner.push(&queue(), &vec![message(); first]).await.unwrap();
            other.inner.push(&queue(), &vec![message(); second]).await.unwrap();
            let stats = one.inner.stats(&queue()).await.unwrap();
            assert_eq!(stats.ready, (first + second) as u64, "{earlier} µs batch");
        }
    }

    /// Of several of one id in one push the last one counts, and the signal is about it as well.
    #[tokio::test]
    async fn the_last_of_one_id_takes_the_place_of_the_others() {
        let (_cluster, driver) = served();
        let id = MessageId::named("a").unwrap();
        let named = |due: Due, if_known| {
            let id = NamedId::new(id.clone(), Delay::ZERO);
            message().with_id(Some(id)).with_due(due).with_if_known(if_known)
        };
        let later = Due::After(Delay::new(Duration::from_secs(60)).unwrap());
        let now = Due::After(Delay::ZERO);
        driver.inner.push(&queue(), &[message().with_due(later)]).await.unwrap();
        let turn = Turn::new(&driver.inner, &queue());
        let batch = [
            named(later, IfKnown::Replace),
            named(later, IfKnown::Keep),
            named(now, IfKnown::Replace),
            named(later, IfKnown::Keep),
        ];
        let answers = driver.inner.push(&queue(), &batch).await.unwrap();
        let (stored, replaced) = (Pushed::Stored(id.clone()), Pushed::Replaced(id.clone()));
        let duplicate = Pushed::Duplicate;
        assert_eq!(answers, [stored, duplicate(MessageState::Scheduled), replaced, duplicate(MessageState::Ready)]);
        let reported = turn.look(vec![TxnOp::get(turn.keys.wake.as_slice(), None)]).await.unwrap();
        let reported = String::from_utf8(reported[0].kvs()[0].value().to_vec()).unwrap();
        let due: Micros = reported.strip_suffix(" 1").unwrap().parse().unwrap();
        assert!((turn.now..turn.now + 30_000_000).contains(&due), "{reported}: when the last one is due");
    }

    #[tokio::test]
    async fn a_push_carries_so_many_bytes_and_not_one_more() {
        let (_cluster, driver) = served();
        let of = |len: usize| NewMessage::new(Payload::new(vec![7; len]).unwrap());
        let most = vec![of(REQUEST_BYTES / 6); 6];
        assert_eq!(driver.inner.push(&queue(), &most).await.unwrap().len(), 6);
        let error = driver.inner.push(&queue(), &[most, vec![of(1)]].concat()).await.unwrap_err();
        assert_eq!(error.kind(), tenure_core::ErrorKind::InvalidArgument);
    }

    #[tokio::test]
    async fn an_id_is_known_until_its_window_has_passed_though_nobody_has_forgotten_it() {
        let (_cluster, driver) = served();
        let window = Delay::new(Duration::from_secs(10)).unwrap();
        let id = MessageId::named("a").unwrap();
        let named = message().with_id(Some(NamedId::new(id.clone(), window)));
        let push = async || driver.inner.push(&queue(), std::slice::from_ref(&named)).await.unwrap().remove(0);
        assert_eq!(push().await, Pushed::Stored(id.clone()));
        let now = driver.inner.clock.now() + HOUR;
        driver.inner.clock.at_least(now);
        let request = ReceiveRequest::new(queue(), 1, Lease::new(Duration::from_secs(60)).unwrap());
        let received = driver.receive(&request).await.unwrap().deliveries;
        let ack = Settle::new(received[0].receipt, Settlement::Ack);
        assert_eq!(driver.settle(&queue(), &[ack]).await.unwrap(), [Settled::Done]);
        driver.inner.clock.at_least(now + 9_999_999);
        assert_eq!(push().await, Pushed::Duplicate(MessageState::Settled));
        driver.inner.clock.at_least(now + 10_000_000);
        assert_eq!(push().await, Pushed::Stored(id));
    }
}
