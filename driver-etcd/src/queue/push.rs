//! Storing messages.

use std::collections::HashMap;

use etcd_client::{Compare, CompareOp, Txn, TxnOp};
use tenure_core::driver::{Cause, Due, IfKnown, MessageState, NewMessage, Pushed};
use tenure_core::{MessageId, QueueName, Result};

use super::clock::{Micros, after};
use super::entry::{MOST_STARTS, Turn, known_until, moving, stored_as};
use super::keys::Place;
use super::record::Record;
use crate::config::invalid;
use crate::driver::Inner;

/// What one request may carry; etcd takes 1.5 MiB, unless it is told otherwise.
pub(super) const MOST_BYTES: usize = 1024 * 1024;

/// What is known of a caller's id.
struct Known {
    /// The revision of its key, zero if there is none.
    written: i64,
    /// `None` if it is free.
    state: Option<MessageState>,
}

/// Messages that are to be stored, and the answers for all.
struct Plan {
    first: u64,
    conditions: Vec<Compare>,
    operations: Vec<TxnOp>,
    answers: Vec<Pushed>,
    due: Vec<Micros>,
}

impl Inner {
    /// One request; three if a message has a caller's id that is known.
    pub(super) async fn push(&self, queue: &QueueName, messages: &[NewMessage]) -> Result<Vec<Pushed>> {
        let bytes: usize = messages.iter().map(NewMessage::bytes).sum();
        if bytes > MOST_BYTES {
            return Err(invalid(format!(
                "{bytes} bytes at once are more than {MOST_BYTES}, which etcd takes in a request"
            )));
        }
        let new = |message: &NewMessage| {
            message.ttl.is_some() || message.recurrence.is_some() || message.if_known != IfKnown::Keep
        };
        if messages.iter().any(new) {
            return Err(tenure_core::Error::new(tenure_core::ErrorKind::Unsupported, "not on this driver yet"));
        }
        for _ in 0..MOST_STARTS {
            let turn = Turn::new(self, queue);
            let known = turn.known(messages).await?;
            let plan = turn.plan(messages, &known);
            if plan.due.is_empty() {
                return Ok(plan.answers);
            }
            let register = turn.register();
            let operations = [plan.operations, vec![register, turn.signal_all(&plan.due)]].concat();
            let free = Compare::create_revision(turn.keys.pointer(plan.first), CompareOp::Equal, 0)
                .with_range(turn.keys.pointer(plan.first + messages.len() as u64));
            let conditions = [plan.conditions, vec![free]].concat();
            if self.txn(Txn::new().when(conditions).and_then(operations)).await?.succeeded() {
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
            known.insert(id.clone(), Known { written, state });
        }
        if stored.is_empty() {
            return Ok(known);
        }
        let wanted: Vec<_> = stored.iter().map(|(_, number)| (*number, None)).collect();
        let entries = self.entries(&wanted).await?;
        for (id, number) in stored {
            // The id of a message that is gone is free; if that was just now, the id has been written since.
            let state = entries.get(&number).map(|entry| self.state(entry.place));
            known.entry(id).and_modify(|known| known.state = state);
        }
        Ok(known)
    }

    fn plan(&self, messages: &[NewMessage], known: &HashMap<MessageId, Known>) -> Plan {
        let first = self.inner.clock.numbers(messages.len());
        let mut plan =
            Plan { first, conditions: Vec::new(), operations: Vec::new(), answers: Vec::new(), due: Vec::new() };
        let mut fresh: HashMap<&MessageId, MessageState> = HashMap::new();
        for (number, message) in (first..).zip(messages) {
            let delay = match message.due {
                Due::After(delay) | Due::Parked { at_most: delay } => delay,
            };
            let place = Place::Waiting(after(self.now, delay.get()));
            if let Some(named) = &message.id {
                let state = known.get(&named.id).and_then(|known| known.state);
                if let Some(state) = state.or_else(|| fresh.get(&named.id).copied()) {
                    plan.answers.push(Pushed::Duplicate(state));
                    continue;
                }
                fresh.insert(&named.id, self.state(place));
                let written = known.get(&named.id).map_or(0, |known| known.written);
                let name = self.keys.named(named.id.as_name().unwrap_or_default());
                plan.conditions.push(Compare::mod_revision(name, CompareOp::Equal, written));
            }
            plan.operations.push(self.store(number, place, message));
            let record = message.id.as_ref().map_or_else(|| MessageId::assigned(number), |named| named.id.clone());
            plan.answers.push(Pushed::Stored(record));
            plan.due.push(place.at());
        }
        plan
    }

    fn store(&self, number: u64, place: Place, message: &NewMessage) -> TxnOp {
        let record = Record {
            pushed: self.now,
            size: message.payload.len(),
            attempt: 0,
            attempts: message.attempts,
            serial: 0,
            cause: match message.due {
                Due::After(_) => Cause::First,
                Due::Parked { .. } => Cause::Parked,
            },
            named: message.id.clone(),
            key: message.key.clone(),
            lock: message.lock.clone(),
            turn: None,
            reason: None,
            doomed: None,
        };
        let mut operations = vec![
            TxnOp::put(self.keys.place(place, number), record.encode(), None),
            TxnOp::put(self.keys.pointer(number), place.spelled(), None),
            TxnOp::put(self.keys.body(number), message.payload.as_bytes(), None),
        ];
        if let Some(name) = message.id.as_ref().and_then(|named| named.id.as_name()) {
            operations.push(TxnOp::put(self.keys.named(name), format!("number={number}"), None));
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
