//! One message, and where it stands: a row of the table `message`.

use rusqlite::Row;
use tenure_core::driver::{
    Attempts, Cause, DeadCause, Delay, Due, Lifecycle, LockTurn, MessageInfo, MessageState, NamedId, NewMessage,
    Payload, Receipt,
};
use tenure_core::queue::{ConcurrencyKey, MessageId, Reason, Recurrence};
use tenure_core::{FencingToken, LockName, OwnerToken};

use crate::span::{micros, of_micros};

/// The columns, in the order in which [`Message::read`] takes them.
pub(super) const COLUMNS: &str = "number, state, at, name, window, payload, pushed, attempt, attempts, cause, fence, \
                                  key, lock, turn_lock, turn_token, turn_fence, reason, expires, recurrence, doomed";

/// Which line a message stands in; its place there is its time, then its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i64)]
pub(super) enum State {
    /// Until it is due.
    Waiting = 0,
    /// Due, but found with its key in flight.
    Held = 1,
    /// Until its lease ends.
    Leased = 2,
    /// Since it died.
    Dead = 3,
}

#[derive(Debug)]
pub(super) struct Message {
    /// Zero before it is stored.
    pub(super) number: i64,
    pub(super) state: State,
    pub(super) at: i64,
    pub(super) named: Option<NamedId>,
    pub(super) payload: Payload,
    pub(super) pushed: i64,
    pub(super) life: Lifecycle<i64>,
    /// Of the last delivery; zero before the first.
    pub(super) fence: i64,
    pub(super) key: Option<ConcurrencyKey>,
    pub(super) lock: Option<LockName>,
    /// The hold that it was given since it was parked.
    pub(super) turn: Option<LockTurn>,
}

/// A row that cannot be read.
#[derive(Debug)]
pub(super) struct Broken {
    pub(super) number: i64,
    /// Which column, or what is wrong.
    pub(super) what: &'static str,
}

/// Causes by their numbers in the table.
const CAUSES: [Cause; 6] =
    [Cause::First, Cause::Retried, Cause::Returned, Cause::Parked, Cause::LeaseExpired, Cause::Redriven];
/// Why a message is dead, by the numbers in the table.
const DOOMS: [DeadCause; 4] = [DeadCause::Exhausted, DeadCause::Rejected, DeadCause::Expired, DeadCause::Damaged];

impl Message {
    /// Of a message that is pushed now.
    pub(super) fn new(now: i64, message: &NewMessage) -> Self {
        let (Due::After(delay) | Due::Parked { at_most: delay }) = message.due;
        let at = now + micros(delay.get());
        let expires = message.ttl.map(|ttl| at + micros(ttl.get()));
        Self {
            number: 0,
            state: State::Waiting,
            at,
            named: message.id.clone(),
            payload: message.payload.clone(),
            pushed: now,
            life: Lifecycle::new(message, expires),
            fence: 0,
            key: message.key.clone(),
            lock: message.lock.clone(),
            turn: None,
        }
    }

    pub(super) fn id(&self) -> MessageId {
        let numbered = || MessageId::assigned(self.number.cast_unsigned());
        self.named.as_ref().map_or_else(numbered, |named| named.id.clone())
    }

    pub(super) fn state(&self, now: i64) -> MessageState {
        match self.state {
            State::Waiting if self.at > now => MessageState::Scheduled,
            State::Leased if self.at > now => MessageState::InFlight,
            State::Waiting | State::Held | State::Leased => MessageState::Ready,
            State::Dead => MessageState::Dead,
        }
    }

    pub(super) fn receipt(&self) -> Receipt {
        Receipt::new([self.number.cast_unsigned(), self.fence.cast_unsigned(), 0])
    }

    pub(super) fn info(&self, now: i64) -> MessageInfo {
        MessageInfo::new(self.id(), self.state(now), self.payload.clone())
            .with_attempt(self.life.attempt)
            .with_attempts(self.life.attempts)
            .with_due_in(if self.state == State::Dead { of_micros(0) } else { of_micros(self.at - now) })
            .with_age(of_micros(now - self.pushed))
            .with_key(self.key.clone())
            .with_lock(self.lock.clone())
            .with_reason(self.life.reason.clone())
            .with_expires_in(self.life.expires.map(|until| of_micros(until - now)))
            .with_recurrence(self.life.recurrence.clone())
    }

    pub(super) fn cause_number(&self) -> usize {
        CAUSES.iter().position(|cause| *cause == self.life.cause).unwrap_or(0)
    }

    /// Takes a row apart.
    pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<Result<Self, Broken>> {
        let number = row.get(0)?;
        Ok(Self::read_columns(row, number).map_err(|what| Broken { number, what }))
    }

    fn read_columns(row: &Row<'_>, number: i64) -> Result<Self, &'static str> {
        let columns = Columns(row);
        let state = [State::Waiting, State::Held, State::Leased, State::Dead];
        let name: Option<Vec<u8>> = columns.get(3, "name")?;
        let window: i64 = columns.get(4, "window")?;
        let window = u64::try_from(window).ok().and_then(|window| Delay::new(of_micros(window.cast_signed())).ok());
        let window = window.ok_or("the window of its name is no span")?;
        let turn: (Option<Vec<u8>>, Option<String>, Option<i64>) =
            (columns.get(13, "turn_lock")?, columns.get(14, "turn_token")?, columns.get(15, "turn_fence")?);
        Ok(Self {
            number,
            state: *columns.one_of(1, &state, "the state is not known")?,
            at: columns.get(2, "at")?,
            named: name
                .map(MessageId::named)
                .transpose()
                .map_err(|_| "the id is too long")?
                .map(|id| NamedId::new(id, window)),
            payload: Payload::new(columns.get::<Vec<u8>>(5, "payload")?).map_err(|_| "the payload is too long")?,
            pushed: columns.get(6, "pushed")?,
            fence: columns.get(10, "fence")?,
            key: columns.made(11, |key: Vec<u8>| ConcurrencyKey::new(key).ok(), "the concurrency key is too long")?,
            lock: columns.made(12, |lock: Vec<u8>| LockName::new(lock).ok(), "the lock is not a name")?,
            turn: read_turn(turn)?,
            life: Self::read_life(&columns)?,
        })
    }

    fn read_life(columns: &Columns<'_>) -> Result<Lifecycle<i64>, &'static str> {
        let known = |doom| usize::try_from(doom).ok().and_then(|doom| DOOMS.get(doom)).copied();
        let doomed: Option<i64> = columns.get(19, "doomed")?;
        Ok(Lifecycle {
            attempt: columns.get(7, "attempt")?,
            attempts: Attempts::new(columns.get(8, "attempts")?)
                .map_err(|_| "the number of attempts is out of range")?,
            cause: *columns.one_of(9, &CAUSES, "the cause is not known")?,
            reason: columns.made(16, |reason: String| Reason::new(reason).ok(), "the reason is too long")?,
            recurrence: columns.made(18, |text: String| Recurrence::new(text).ok(), "the recurrence is too long")?,
            expires: columns.get(17, "expires")?,
            doomed: doomed.map(|doom| known(doom).ok_or("the doom is not known")).transpose()?,
        })
    }
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

struct Columns<'a>(&'a Row<'a>);

impl Columns<'_> {
    /// A column that has its type, at least.
    fn get<T: rusqlite::types::FromSql>(&self, at: usize, name: &'static str) -> Result<T, &'static str> {
        self.0.get(at).map_err(|_| name)
    }

    fn one_of<'t, T>(&self, at: usize, all: &'t [T], what: &'static str) -> Result<&'t T, &'static str> {
        let number: i64 = self.get(at, what)?;
        usize::try_from(number).ok().and_then(|number| all.get(number)).ok_or(what)
    }

    fn made<S: rusqlite::types::FromSql, T>(
        &self,
        at: usize,
        make: impl FnOnce(S) -> Option<T>,
        what: &'static str,
    ) -> Result<Option<T>, &'static str> {
        self.get::<Option<S>>(at, what)?.map(|stored| make(stored).ok_or(what)).transpose()
    }
}

fn read_turn(
    (lock, token, fence): (Option<Vec<u8>>, Option<String>, Option<i64>),
) -> Result<Option<LockTurn>, &'static str> {
    let (Some(lock), Some(token), Some(fence)) = (lock, token, fence) else { return Ok(None) };
    let read = || {
        let (lock, token) = (LockName::new(lock).ok()?, OwnerToken::parse(&token).ok()?);
        Some(LockTurn::new(lock, token, FencingToken::new(u64::try_from(fence).ok()?)?))
    };
    read().map(Some).ok_or("the turn cannot be read")
}
