//! Turns requests into columns of parameters.

use tenure_core::driver::{Due, IfKnown, NewMessage, Settle, Settlement};
use tenure_core::{Error, ErrorKind, Result};
use tokio_postgres::types::Type;

use crate::connection::Parameter;

/// Microseconds; spans of the contract are far shorter than what fits.
pub(super) fn micros(span: std::time::Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX / 4)
}

/// Messages to be stored, a column for each part. One that no message has is sent as null.
#[derive(Debug)]
pub(super) struct Pushes<'a> {
    payloads: Vec<&'a [u8]>,
    delays: Vec<i64>,
    attempts: Vec<i32>,
    parked: Vec<bool>,
    names: Option<Vec<Option<&'a [u8]>>>,
    known_for: Option<Vec<Option<i64>>>,
    replace: Option<Vec<bool>>,
    keys: Option<Vec<Option<&'a [u8]>>>,
    locks: Option<Vec<Option<&'a [u8]>>>,
    ttls: Option<Vec<Option<i64>>>,
    recurrences: Option<Vec<Option<&'a [u8]>>>,
}

/// A column, if any message has a value for it.
fn column<'a, T>(messages: &'a [NewMessage], value: impl Fn(&'a NewMessage) -> Option<T>) -> Option<Vec<Option<T>>> {
    let all: Vec<_> = messages.iter().map(value).collect();
    all.iter().any(Option::is_some).then_some(all)
}

impl<'a> Pushes<'a> {
    pub(super) fn new(messages: &'a [NewMessage]) -> Self {
        let names = column(messages, |message| message.id.as_ref()?.id.as_name());
        let replaces = |message: &NewMessage| message.if_known == IfKnown::Replace;
        Self {
            payloads: messages.iter().map(|message| message.payload.as_bytes()).collect(),
            delays: messages
                .iter()
                .map(|message| match message.due {
                    Due::After(delay) | Due::Parked { at_most: delay } => micros(delay.get()),
                })
                .collect(),
            attempts: messages.iter().map(|message| message.attempts.get().cast_signed()).collect(),
            parked: messages.iter().map(|message| matches!(message.due, Due::Parked { .. })).collect(),
            known_for: names
                .as_ref()
                .and_then(|_| column(messages, |message| message.id.as_ref().map(|named| micros(named.window.get())))),
            replace: names.as_ref().map(|_| messages.iter().map(replaces).collect()),
            names,
            keys: column(messages, |message| message.key.as_ref().map(|key| key.as_bytes())),
            locks: column(messages, |message| message.lock.as_ref().map(|lock| lock.as_bytes())),
            ttls: column(messages, |message| message.ttl.map(|ttl| micros(ttl.get()))),
            recurrences: column(messages, |message| message.recurrence.as_ref().map(|text| text.as_str().as_bytes())),
        }
    }

    /// In the order of `tenure.queue_push`, behind the queue's name.
    pub(super) fn parameters(&self) -> Vec<Parameter<'_>> {
        vec![
            (&self.payloads, Type::BYTEA_ARRAY),
            (&self.delays, Type::INT8_ARRAY),
            (&self.attempts, Type::INT4_ARRAY),
            (&self.parked, Type::BOOL_ARRAY),
            (&self.names, Type::BYTEA_ARRAY),
            (&self.known_for, Type::INT8_ARRAY),
            (&self.replace, Type::BOOL_ARRAY),
            (&self.keys, Type::BYTEA_ARRAY),
            (&self.locks, Type::BYTEA_ARRAY),
            (&self.ttls, Type::INT8_ARRAY),
            (&self.recurrences, Type::BYTEA_ARRAY),
        ]
    }
}

/// Settlements, a column for each part; null when there are none.
#[derive(Debug, Default)]
pub(super) struct Settles<'a> {
    numbers: Option<Vec<i64>>,
    fences: Option<Vec<i64>>,
    hows: Option<Vec<i16>>,
    delays: Option<Vec<i64>>,
    reasons: Option<Vec<Option<&'a [u8]>>>,
    recurrences: Option<Vec<Option<&'a [u8]>>>,
}

impl<'a> Settles<'a> {
    pub(super) fn new(settles: &'a [Settle]) -> Result<Self> {
        if settles.is_empty() {
            return Ok(Self::default());
        }
        let mut columns = Self::default();
        let parts = |at: usize| settles.iter().map(|settle| settle.receipt.parts()[at].cast_signed()).collect();
        (columns.numbers, columns.fences) = (Some(parts(0)), Some(parts(1)));
        let (mut hows, mut delays, mut reasons, mut recurrences) = (vec![], vec![], vec![], vec![]);
        for settle in settles {
            let (how, delay, reason, recurrence) = match &settle.how {
                Settlement::Ack => (0, None, None, None),
                Settlement::Retry { after, reason } => (1, Some(after), reason.as_ref(), None),
                Settlement::Return { after } => (2, Some(after), None, None),
                Settlement::Park { at_most, .. } => (3, Some(at_most), None, None),
                Settlement::Dead { reason } => (4, None, reason.as_ref(), None),
                Settlement::Recur { after, recurrence, reason } => (5, Some(after), reason.as_ref(), Some(recurrence)),
                other => {
                    let text = format!("this driver does not know the settlement {other:?}");
                    return Err(Error::new(ErrorKind::Unsupported, text));
                }
            };
            hows.push(how);
            delays.push(delay.map_or(0, |delay| micros(delay.get())));
            reasons.push(reason.map(|reason| reason.as_str().as_bytes()));
            recurrences.push(recurrence.map(|recurrence| recurrence.as_str().as_bytes()));
        }
        columns.hows = Some(hows);
        columns.delays = Some(delays);
        columns.reasons = Some(reasons);
        columns.recurrences = Some(recurrences);
        Ok(columns)
    }

    /// In the order of `tenure.queue_turn`, behind the queue and the client.
    pub(super) fn parameters(&self) -> Vec<Parameter<'_>> {
        vec![
            (&self.numbers, Type::INT8_ARRAY),
            (&self.fences, Type::INT8_ARRAY),
            (&self.hows, Type::INT2_ARRAY),
            (&self.delays, Type::INT8_ARRAY),
            (&self.reasons, Type::BYTEA_ARRAY),
            (&self.recurrences, Type::BYTEA_ARRAY),
        ]
    }
}
