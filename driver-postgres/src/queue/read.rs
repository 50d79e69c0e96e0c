//! Turns rows into answers.

use std::time::Duration;

use tenure_core::driver::{
    Attempts, Cause, DeadCause, DeadLetter, DeadPlace, Exchanged, Flow, Healed, LockTurn, MessageInfo, MessageState,
    Next, Payload, Pushed, QueueStats, RawDelivery, Receipt, Received, Settled,
};
use tenure_core::queue::{ConcurrencyKey, MessageId, QueueLimits, Rate, Reason, Recurrence};
use tenure_core::{Error, ErrorKind, FencingToken, LockName, OwnerToken, Result};
use tokio_postgres::Row;
use tokio_postgres::types::FromSql;

/// Causes by their numbers in the table.
const CAUSES: [Cause; 6] =
    [Cause::First, Cause::Retried, Cause::Returned, Cause::Parked, Cause::LeaseExpired, Cause::Redriven];
/// Why a message is dead, by the numbers in the table.
const DOOMS: [DeadCause; 4] = [DeadCause::Exhausted, DeadCause::Rejected, DeadCause::Expired, DeadCause::Damaged];

/// What a row has that this driver never writes.
pub(super) fn damaged(what: &str) -> Error {
    Error::new(ErrorKind::Damaged, format!("a row of a queue cannot be read: {what}"))
}

/// A column.
pub(super) fn get<'a, T: FromSql<'a>>(row: &'a Row, at: usize) -> Result<T> {
    row.try_get(at).map_err(|error| {
        Error::new(ErrorKind::Protocol, format!("column {at} of an answer is of another type")).with_source(error)
    })
}

/// The only row of an answer.
pub(super) fn single(rows: &[Row]) -> Result<&Row> {
    rows.first().ok_or_else(|| Error::new(ErrorKind::Protocol, "an answer without a row"))
}

/// A span from microseconds; a negative one has passed and becomes zero.
pub(super) fn span(micros: i64) -> Duration {
    Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

fn made<S, T>(stored: Option<S>, make: impl FnOnce(S) -> Result<T>) -> Result<Option<T>> {
    stored.map(make).transpose().map_err(|error| damaged(error.message()))
}

fn text<T>(bytes: Option<&[u8]>, make: impl FnOnce(&str) -> Result<T>) -> Result<Option<T>> {
    let text = bytes.map(std::str::from_utf8).transpose().map_err(|_| damaged("a text is not UTF-8"))?;
    made(text, make)
}

fn id(row: &Row, number: usize, name: usize) -> Result<MessageId> {
    match get::<Option<&[u8]>>(row, name)? {
        Some(name) => MessageId::named(name).map_err(|error| damaged(error.message())),
        None => Ok(MessageId::assigned(get::<i64>(row, number)?.cast_unsigned())),
    }
}

fn attempts(count: i32) -> Result<Attempts> {
    Attempts::new(count.cast_unsigned()).map_err(|error| damaged(error.message()))
}

fn payload(bytes: &[u8]) -> Result<Payload> {
    Payload::new(bytes).map_err(|error| damaged(error.message()))
}

/// The answer to a push.
pub(super) fn pushed(row: &Row, name: Option<&MessageId>) -> Result<Pushed> {
    let (answer, number): (i32, Option<i64>) = (get(row, 0)?, get(row, 1)?);
    let id = name.cloned().unwrap_or_else(|| MessageId::assigned(unsigned(number.unwrap_or(0))));
    Ok(match answer {
        0 => Pushed::Stored(id),
        1 => Pushed::Replaced(id),
        15 => Pushed::Duplicate(MessageState::Settled),
        other => Pushed::Duplicate(standing(other - 10)?),
    })
}

/// The state of a message, by its number in answers.
pub(super) fn standing(number: i32) -> Result<MessageState> {
    let all = [MessageState::Scheduled, MessageState::Ready, MessageState::InFlight, MessageState::Dead];
    let found = usize::try_from(number - 1).ok().and_then(|at| all.get(at).copied());
    found.ok_or_else(|| Error::new(ErrorKind::Protocol, format!("{number} is no state of a message")))
}

/// The rows of `tenure.queue_turn`: deliveries, and a last row with the other answers.
pub(super) fn exchanged(rows: &[Row]) -> Result<Exchanged> {
    let none = || Error::new(ErrorKind::Protocol, "an answer without its last row");
    let (last, rows) = rows.split_last().ok_or_else(none)?;
    let mut deliveries = rows.iter().map(delivery).collect::<Result<Vec<_>>>()?;
    deliveries.sort_unstable_by_key(|delivery| delivery.fence); // in the order in which they were taken
    let answers: Option<Vec<i16>> = get(last, 16)?;
    let next = match get::<i64>(last, 17)? {
        -2 => Next::Paused,
        0 => Next::Now,
        micros if micros < 0 => Next::Never,
        micros => Next::In(span(micros)),
    };
    let count = |at| get::<i32>(last, at).map(i32::cast_unsigned);
    let healed = Healed::default().with_expired(count(18)?).with_dead(count(19)?).with_postponed(count(20)?);
    let settled = answers.unwrap_or_default().into_iter().map(settled).collect::<Result<_>>()?;
    Ok(Exchanged::new(settled, Received::new(deliveries, next).with_healed(healed)))
}

fn settled(answer: i16) -> Result<Settled> {
    let all = [Settled::Stale, Settled::Done, Settled::Dead, Settled::Postponed];
    let found = usize::try_from(answer).ok().and_then(|at| all.get(at).copied());
    found.ok_or_else(|| Error::new(ErrorKind::Protocol, format!("{answer} is no answer to a settlement")))
}

fn delivery(row: &Row) -> Result<RawDelivery> {
    let cause = usize::try_from(get::<i16>(row, 5)?).ok().and_then(|at| CAUSES.get(at).copied());
    let (number, fence): (i64, i64) = (get(row, 0)?, get(row, 6)?);
    let (turn_lock, turn_token, turn_fence): (Option<&[u8]>, Option<&str>, Option<i64>) =
        (get(row, 11)?, get(row, 12)?, get(row, 13)?);
    let turn = match (turn_lock, turn_token, turn_fence) {
        (Some(lock), Some(token), Some(fence)) => Some(LockTurn::new(
            LockName::new(lock).map_err(|error| damaged(error.message()))?,
            OwnerToken::parse(token).map_err(|error| damaged(error.message()))?,
            FencingToken::new(unsigned(fence)).ok_or_else(|| damaged("the fence of a turn"))?,
        )),
        _ => None,
    };
    let fenced = FencingToken::new(unsigned(fence)).ok_or_else(|| damaged("the fence of a delivery"))?;
    let receipt = Receipt::new([number.cast_unsigned(), fence.cast_unsigned(), 0]);
    Ok(RawDelivery::new(id(row, 0, 1)?, payload(get(row, 2)?)?, fenced, receipt)
        .with_attempt(get::<i32>(row, 3)?.cast_unsigned())
        .with_attempts(attempts(get(row, 4)?)?)
        .with_cause(cause.ok_or_else(|| damaged("the cause is not known"))?)
        .with_late(span(get(row, 7)?))
        .with_age(span(get(row, 8)?))
        .with_key(made(get(row, 9)?, |key: &[u8]| ConcurrencyKey::new(key))?)
        .with_lock(made(get(row, 10)?, |lock: &[u8]| LockName::new(lock))?)
        .with_turn(turn)
        .with_reason(text(get(row, 14)?, |reason| Reason::new(reason))?)
        .with_recurrence(text(get(row, 15)?, |recurrence| Recurrence::new(recurrence))?))
}

/// A row of `tenure.queue_get` or `tenure.queue_list`.
pub(super) fn info(row: &Row) -> Result<MessageInfo> {
    Ok(MessageInfo::new(id(row, 0, 1)?, standing(get(row, 5)?)?, payload(get(row, 2)?)?)
        .with_attempt(get::<i32>(row, 3)?.cast_unsigned())
        .with_attempts(attempts(get(row, 4)?)?)
        .with_due_in(span(get(row, 6)?))
        .with_age(span(get(row, 7)?))
        .with_key(made(get(row, 8)?, |key: &[u8]| ConcurrencyKey::new(key))?)
        .with_lock(made(get(row, 9)?, |lock: &[u8]| LockName::new(lock))?)
        .with_reason(text(get(row, 10)?, |reason| Reason::new(reason))?)
        .with_recurrence(text(get(row, 11)?, |recurrence| Recurrence::new(recurrence))?)
        .with_expires_in(get::<Option<i64>>(row, 12)?.map(span)))
}

/// The row of `tenure.queue_stats`.
pub(super) fn stats(row: &Row) -> Result<QueueStats> {
    let count = |at| get::<i64>(row, at).map(unsigned);
    let limits = || -> Result<QueueLimits> {
        let in_flight = u32::try_from(get::<i64>(row, 7)?).unwrap_or(u32::MAX);
        let limits = if in_flight == 0 { QueueLimits::none() } else { QueueLimits::none().in_flight(in_flight)? };
        let deliveries = u32::try_from(get::<i64>(row, 8)?).unwrap_or(u32::MAX);
        if deliveries == 0 { Ok(limits) } else { Ok(limits.rate(Rate::new(deliveries, span(get(row, 9)?))?)) }
    };
    Ok(QueueStats::default()
        .with_scheduled(count(0)?)
        .with_ready(count(1)?)
        .with_in_flight(count(2)?)
        .with_dead(count(3)?)
        .with_lag(span(get(row, 4)?))
        .with_next_due(get::<Option<i64>>(row, 5)?.map(span))
        .with_flow(if get(row, 6)? { Flow::Paused } else { Flow::Running })
        .with_limits(limits().map_err(|error| damaged(error.message()))?))
}

/// A row of `tenure.queue_dead`.
pub(super) fn letter(row: &Row) -> Result<DeadLetter> {
    let doom = get::<Option<i16>>(row, 4)?.and_then(|doom| DOOMS.get(usize::try_from(doom).ok()?).copied());
    let place = DeadPlace { stamp: get::<i64>(row, 6)?.cast_unsigned(), number: get::<i64>(row, 0)?.cast_unsigned() };
    let cause = doom.unwrap_or(DeadCause::Exhausted);
    Ok(DeadLetter::new(id(row, 0, 1)?, place, payload(get(row, 2)?)?, cause)
        .with_attempt(get::<i32>(row, 3)?.cast_unsigned())
        .with_reason(text(get(row, 5)?, |reason| Reason::new(reason))?)
        .with_died(span(get(row, 7)?)))
}
