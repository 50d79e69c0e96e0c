//! Turns rows into answers.

use std::time::Duration;

use mysql_async::Row;
use tenure_core::driver::{
    Attempts, Cause, DeadCause, DeadLetter, DeadPlace, Exchanged, Flow, Healed, MessageInfo, MessageState, Next,
    Payload, Pushed, QueueStats, RawDelivery, Receipt, Received, Settled,
};
use tenure_core::queue::{ConcurrencyKey, MessageId, QueueLimits, QueueName, Rate, Reason, Recurrence};
use tenure_core::{Error, ErrorKind, FencingToken, LockName, Result};

use crate::error::odd;
use crate::row::column;
use crate::span::of_micros;

/// Causes by their numbers in the table.
const CAUSES: [Cause; 6] =
    [Cause::First, Cause::Retried, Cause::Returned, Cause::Parked, Cause::LeaseExpired, Cause::Redriven];
/// Why a message is dead, by the numbers in the table.
const DOOMS: [DeadCause; 4] = [DeadCause::Exhausted, DeadCause::Rejected, DeadCause::Expired, DeadCause::Damaged];

/// What a row has that this driver never writes.
fn damaged(what: &str) -> Error {
    Error::new(ErrorKind::Damaged, format!("a row of a queue cannot be read: {what}"))
}

fn made<T>(row: &Row, at: usize, make: impl FnOnce(Vec<u8>) -> Result<T>) -> Result<Option<T>> {
    column::<Option<Vec<u8>>>(row, at)?.map(make).transpose().map_err(|error| damaged(error.message()))
}

fn text<T>(row: &Row, at: usize, make: impl FnOnce(String) -> Result<T>) -> Result<Option<T>> {
    made(row, at, |bytes| make(String::from_utf8(bytes).map_err(|_| damaged("a text is not UTF-8"))?))
}

fn id(row: &Row) -> Result<MessageId> {
    match made(row, 1, MessageId::named)? {
        Some(name) => Ok(name),
        None => column(row, 0).map(MessageId::assigned),
    }
}

fn attempts(row: &Row) -> Result<Attempts> {
    Attempts::new(column(row, 4)?).map_err(|error| damaged(error.message()))
}

fn payload(row: &Row) -> Result<Payload> {
    Payload::new(column::<Vec<u8>>(row, 2)?).map_err(|error| damaged(error.message()))
}

fn span(row: &Row, at: usize) -> Result<Duration> {
    column(row, at).map(of_micros)
}

/// The only row's only text.
pub(super) fn line(rows: &[Row]) -> Result<String> {
    column(rows.first().ok_or_else(odd)?, 0)
}

/// The answer to a push: two numbers with a colon between.
pub(super) fn pushed(word: &str, name: Option<&MessageId>) -> Result<Pushed> {
    let (answer, number) = word.split_once(':').ok_or_else(odd)?;
    let (answer, number): (usize, u64) = (answer.parse().map_err(|_| odd())?, number.parse().map_err(|_| odd())?);
    let id = name.cloned().unwrap_or_else(|| MessageId::assigned(number));
    Ok(match answer {
        0 => Pushed::Stored(id),
        1 => Pushed::Replaced(id),
        15 => Pushed::Duplicate(MessageState::Settled),
        other => Pushed::Duplicate(standing(other.checked_sub(10).ok_or_else(odd)?)?.ok_or_else(odd)?),
    })
}

/// The state of a message, by its number in answers; 0 for a missing message.
pub(super) fn standing(number: usize) -> Result<Option<MessageState>> {
    let all = [MessageState::Scheduled, MessageState::Ready, MessageState::InFlight, MessageState::Dead];
    match number {
        0 => Ok(None),
        number => all.get(number - 1).copied().map(Some).ok_or_else(odd),
    }
}

/// The rows of `tenure_queue_turn`: the state of all, and the deliveries.
pub(super) fn exchanged(rows: &[Row]) -> Result<Exchanged> {
    let (known, rows) = rows.split_first().ok_or_else(odd)?;
    let deliveries = rows.iter().map(delivery).collect::<Result<_>>()?;
    let answers: String = column(known, 0)?;
    let next = match column::<i64>(known, 1)? {
        -2 => Next::Paused,
        0 => Next::Now,
        micros if micros < 0 => Next::Never,
        micros => Next::In(of_micros(micros)),
    };
    let healed = Healed::default()
        .with_expired(column(known, 2)?)
        .with_dead(column(known, 3)?)
        .with_postponed(column(known, 4)?);
    let settled = answers.chars().map(settled).collect::<Result<_>>()?;
    Ok(Exchanged::new(settled, Received::new(deliveries, next).with_healed(healed)))
}

fn settled(answer: char) -> Result<Settled> {
    match answer {
        '0' => Ok(Settled::Stale),
        '1' => Ok(Settled::Done),
        '2' => Ok(Settled::Dead),
        '3' => Ok(Settled::Postponed),
        _ => Err(odd()),
    }
}

fn delivery(row: &Row) -> Result<RawDelivery> {
    let cause = CAUSES.get(column::<usize>(row, 5)?).copied().ok_or_else(|| damaged("the cause is not known"))?;
    let (number, fence): (u64, u64) = (column(row, 0)?, column(row, 6)?);
    let fenced = FencingToken::new(fence).ok_or_else(|| damaged("the fence of a delivery"))?;
    Ok(RawDelivery::new(id(row)?, payload(row)?, fenced, Receipt::new([number, fence, 0]))
        .with_attempt(column(row, 3)?)
        .with_attempts(attempts(row)?)
        .with_cause(cause)
        .with_late(span(row, 7)?)
        .with_age(span(row, 8)?)
        .with_key(made(row, 9, ConcurrencyKey::new)?)
        .with_lock(made(row, 10, LockName::new)?)
        .with_reason(text(row, 11, Reason::new)?)
        .with_recurrence(text(row, 12, Recurrence::new)?))
}

/// A row of `tenure_queue_get` or `tenure_queue_list`.
pub(super) fn info(row: &Row) -> Result<MessageInfo> {
    let state = standing(column(row, 5)?)?.ok_or_else(odd)?;
    Ok(MessageInfo::new(id(row)?, state, payload(row)?)
        .with_attempt(column(row, 3)?)
        .with_attempts(attempts(row)?)
        .with_due_in(span(row, 6)?)
        .with_age(span(row, 7)?)
        .with_key(made(row, 8, ConcurrencyKey::new)?)
        .with_lock(made(row, 9, LockName::new)?)
        .with_reason(text(row, 10, Reason::new)?)
        .with_recurrence(text(row, 11, Recurrence::new)?)
        .with_expires_in(column::<Option<i64>>(row, 12)?.map(of_micros)))
}

/// The row of `tenure_queue_stats`.
pub(super) fn stats(row: &Row) -> Result<QueueStats> {
    let limits = || -> Result<QueueLimits> {
        let in_flight = u32::try_from(column::<i64>(row, 7)?).unwrap_or(u32::MAX);
        let limits = if in_flight == 0 { QueueLimits::none() } else { QueueLimits::none().in_flight(in_flight)? };
        let deliveries = u32::try_from(column::<i64>(row, 8)?).unwrap_or(u32::MAX);
        if deliveries == 0 { Ok(limits) } else { Ok(limits.rate(Rate::new(deliveries, span(row, 9)?)?)) }
    };
    Ok(QueueStats::default()
        .with_scheduled(column(row, 0)?)
        .with_ready(column(row, 1)?)
        .with_in_flight(column(row, 2)?)
        .with_dead(column(row, 3)?)
        .with_lag(span(row, 4)?)
        .with_next_due(column::<Option<i64>>(row, 5)?.map(of_micros))
        .with_flow(if column(row, 6)? { Flow::Paused } else { Flow::Running })
        .with_limits(limits().map_err(|error| damaged(error.message()))?))
}

/// A row of `tenure_queue_dead`.
pub(super) fn letter(row: &Row) -> Result<DeadLetter> {
    let doom = column::<Option<usize>>(row, 4)?.and_then(|doom| DOOMS.get(doom).copied());
    let place = DeadPlace { stamp: column::<i64>(row, 6)?.cast_unsigned(), number: column(row, 0)? };
    Ok(DeadLetter::new(id(row)?, place, payload(row)?, doom.unwrap_or(DeadCause::Exhausted))
        .with_attempt(column(row, 3)?)
        .with_reason(text(row, 5, Reason::new)?)
        .with_died(span(row, 7)?))
}

/// A row of `tenure_queue_names`.
pub(super) fn name(row: &Row) -> Result<QueueName> {
    QueueName::new(column::<Vec<u8>>(row, 0)?).map_err(|error| damaged(error.message()))
}
