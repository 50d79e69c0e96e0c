//! Turns requests into JSON arrays, which the procedures parse. Bytes are written as hexadecimal digits; payloads are
//! separate.

use serde_json::{Value, json};
use tenure_core::driver::{DeadSelection, Due, Extension, IfKnown, NewMessage, Settle, Settlement};
use tenure_core::{Error, ErrorKind, Result};

use crate::row::hex;
use crate::span::micros;

fn digits(bytes: Option<&[u8]>) -> Value {
    bytes.map_or(Value::Null, |bytes| Value::String(hex(bytes)))
}

/// Messages to be stored: an array, the payloads one after the other, and whether any message has a name.
pub(super) fn pushes(messages: &[NewMessage]) -> (String, Vec<u8>, bool) {
    let mut payloads = Vec::with_capacity(messages.iter().map(|message| message.payload.as_bytes().len()).sum());
    let row = |message: &NewMessage| {
        let (place, bytes) = (payloads.len(), message.payload.as_bytes());
        payloads.extend_from_slice(bytes);
        let (delay, parked) = match message.due {
            Due::After(delay) => (delay, 0),
            Due::Parked { at_most } => (at_most, 1),
        };
        json!([
            place,
            bytes.len(),
            micros(delay.get()),
            message.attempts.get(),
            parked,
            digits(message.id.as_ref().and_then(|named| named.id.as_name())),
            message.id.as_ref().map(|named| micros(named.window.get())),
            i32::from(message.if_known == IfKnown::Replace),
            digits(message.key.as_ref().map(|key| key.as_bytes())),
            digits(message.lock.as_ref().map(|lock| lock.as_bytes())),
            message.ttl.map(|ttl| micros(ttl.get())),
            digits(message.recurrence.as_ref().map(|text| text.as_str().as_bytes())),
        ])
    };
    let rows: Value = messages.iter().map(row).collect();
    (rows.to_string(), payloads, messages.iter().any(|message| message.id.is_some()))
}

/// Settlements, in their order; none if there are none.
pub(super) fn settles(settles: &[Settle]) -> Result<Option<String>> {
    if settles.is_empty() {
        return Ok(None);
    }
    let row = |settle: &Settle| {
        let [number, delivery, _] = settle.receipt.parts();
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
        Ok(json!([
            number,
            delivery,
            how,
            delay.map_or(0, |delay| micros(delay.get())),
            digits(reason.map(|reason| reason.as_str().as_bytes())),
            digits(recurrence.map(|recurrence| recurrence.as_str().as_bytes())),
        ]))
    };
    let rows = settles.iter().map(row).collect::<Result<Value>>()?;
    Ok(Some(rows.to_string()))
}

pub(super) fn extensions(extensions: &[Extension]) -> String {
    let row = |extension: &Extension| {
        let [number, delivery, _] = extension.receipt.parts();
        json!([number, delivery, micros(extension.lease.get())])
    };
    extensions.iter().map(row).collect::<Value>().to_string()
}

/// A message's number, as the server counts. One that is out of its range is no message's, as is -1.
pub(super) fn number(id: u64) -> i64 {
    i64::try_from(id).unwrap_or(-1)
}

/// Ids of dead letters, or how many of the oldest.
pub(super) fn chosen(which: &DeadSelection) -> (Option<String>, i64) {
    match which {
        DeadSelection::Ids(ids) => {
            let rows: Value = ids.iter().map(|id| json!([id.as_number().map(number), digits(id.as_name())])).collect();
            (Some(rows.to_string()), 0)
        }
        DeadSelection::Oldest(count) => (None, i64::try_from(*count).unwrap_or(i64::MAX)),
    }
}
