//! One message as a row of the table `message`.

use rusqlite::Row;
use rusqlite::types::FromSql;
use tenure_core::driver::{Attempts, Cause, DeadCause, Delay, Lifecycle, LockTurn, NamedId, Payload};
use tenure_core::queue::{ConcurrencyKey, MessageId, Reason, Recurrence};
use tenure_core::rules::queues::{Line, Message, Moment, Place};
use tenure_core::{FencingToken, LockName, OwnerToken};

use crate::span::of_micros;

/// The columns, in the order in which [`read`] takes them.
pub(super) const COLUMNS: &str = "number, state, at, name, window, payload, pushed, attempt, attempts, cause, fence, \
                                  key, lock, turn_lock, turn_token, turn_fence, reason, expires, recurrence, doomed";

/// Why a row cannot be read: a column, or the error.
pub(crate) type Damage = &'static str;

/// Causes by their numbers in the table.
const CAUSES: [Cause; 6] =
    [Cause::First, Cause::Retried, Cause::Returned, Cause::Parked, Cause::LeaseExpired, Cause::Redriven];
/// Why a message is dead, by the numbers in the table.
const DOOMS: [DeadCause; 4] = [DeadCause::Exhausted, DeadCause::Rejected, DeadCause::Expired, DeadCause::Damaged];

/// The instant of a time in the table: in the same order, and never negative. Times before the machine's start are.
pub(super) fn moment(at: i64) -> Moment {
    at.cast_unsigned() ^ (1 << 63)
}

/// The time of an instant, as the table has it.
pub(super) fn stored(at: Moment) -> i64 {
    (at ^ (1 << 63)).cast_signed()
}

/// The place by the columns `state` and `at`. A state that no release wrote counts as one that waits.
pub(super) fn place(state: i64, at: i64) -> Place {
    let line = usize::try_from(state).ok().and_then(|state| Line::ALL.get(state));
    Place::new(*line.unwrap_or(&Line::Held), moment(at))
}

/// The number of the cause of its next delivery in the table.
pub(super) fn cause_number(life: &Lifecycle<Moment>) -> usize {
    CAUSES.iter().position(|cause| *cause == life.cause).unwrap_or(0)
}

/// The number of a cause of death in the table.
pub(super) fn doom_number(doom: DeadCause) -> usize {
    DOOMS.iter().position(|known| *known == doom).unwrap_or(0)
}

/// The cause of death with this number.
pub(super) fn doom_of(number: Option<i64>) -> DeadCause {
    let known = number.and_then(|number| DOOMS.get(usize::try_from(number).ok()?).copied());
    known.unwrap_or(DeadCause::Exhausted)
}

/// Takes a row apart.
pub(super) fn read(row: &Row<'_>) -> Result<Message, Damage> {
    let columns = Columns(row);
    let (number, at): (i64, i64) = (columns.get(0, "number")?, columns.get(2, "at")?);
    let line = columns.one_of(1, &Line::ALL, "the state is not known")?;
    let name: Option<Vec<u8>> = columns.get(3, "name")?;
    let window: i64 = columns.get(4, "window")?;
    let window = u64::try_from(window).ok().and_then(|window| Delay::new(of_micros(window.cast_signed())).ok());
    let window = window.ok_or("the window of its name is not a duration")?;
    let turn: (Option<Vec<u8>>, Option<String>, Option<i64>) =
        (columns.get(13, "turn_lock")?, columns.get(14, "turn_token")?, columns.get(15, "turn_fence")?);
    Ok(Message {
        number: number.cast_unsigned(),
        place: Place::new(*line, moment(at)),
        named: name
            .map(MessageId::named)
            .transpose()
            .map_err(|_| "the id is too long")?
            .map(|id| NamedId::new(id, window)),
        payload: Payload::new(columns.get::<Vec<u8>>(5, "payload")?).map_err(|_| "the payload is too long")?,
        pushed: moment(columns.get(6, "pushed")?),
        fence: columns.get::<i64>(10, "fence")?.cast_unsigned(),
        key: columns.made(11, |key: Vec<u8>| ConcurrencyKey::new(key).ok(), "the concurrency key is too long")?,
        lock: columns.made(12, |lock: Vec<u8>| LockName::new(lock).ok(), "the lock is not a name")?,
        turn: read_turn(turn)?,
        life: read_life(&columns)?,
    })
}

fn read_life(columns: &Columns<'_>) -> Result<Lifecycle<Moment>, Damage> {
    let known = |doom| usize::try_from(doom).ok().and_then(|doom| DOOMS.get(doom)).copied();
    let doomed: Option<i64> = columns.get(19, "doomed")?;
    Ok(Lifecycle {
        attempt: columns.get(7, "attempt")?,
        attempts: Attempts::new(columns.get(8, "attempts")?).map_err(|_| "the number of attempts is out of range")?,
        cause: *columns.one_of(9, &CAUSES, "the cause is not known")?,
        reason: columns.made(16, |reason: String| Reason::new(reason).ok(), "the reason is too long")?,
        recurrence: columns.made(18, |text: String| Recurrence::new(text).ok(), "the recurrence is too long")?,
        expires: columns.get::<Option<i64>>(17, "expires")?.map(moment),
        doomed: doomed.map(|doom| known(doom).ok_or("the doom is not known")).transpose()?,
    })
}

struct Columns<'a>(&'a Row<'a>);

impl Columns<'_> {
    /// A column that has its type, at least.
    fn get<T: FromSql>(&self, at: usize, name: Damage) -> Result<T, Damage> {
        self.0.get(at).map_err(|_| name)
    }

    fn one_of<'t, T>(&self, at: usize, all: &'t [T], what: Damage) -> Result<&'t T, Damage> {
        let number: i64 = self.get(at, what)?;
        usize::try_from(number).ok().and_then(|number| all.get(number)).ok_or(what)
    }

    fn made<S: FromSql, T>(
        &self,
        at: usize,
        make: impl FnOnce(S) -> Option<T>,
        what: Damage,
    ) -> Result<Option<T>, Damage> {
        self.get::<Option<S>>(at, what)?.map(|stored| make(stored).ok_or(what)).transpose()
    }
}

fn read_turn((lock, token, fence): (Option<Vec<u8>>, Option<String>, Option<i64>)) -> Result<Option<LockTurn>, Damage> {
    let (Some(lock), Some(token), Some(fence)) = (lock, token, fence) else { return Ok(None) };
    let read = || {
        let (lock, token) = (LockName::new(lock).ok()?, OwnerToken::parse(&token).ok()?);
        Some(LockTurn::new(lock, token, FencingToken::new(u64::try_from(fence).ok()?)?))
    };
    read().map(Some).ok_or("the turn cannot be read")
}
