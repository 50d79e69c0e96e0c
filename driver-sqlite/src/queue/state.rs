//! One queue inside a transaction: how its messages move from place to place.

use rusqlite::types::ToSql;
use rusqlite::{OptionalExtension as _, params};
use tenure_core::driver::{Flow, IfKnown, MessageState, NamedId, NewMessage, Pushed, TokenBucket};
use tenure_core::queue::{ConcurrencyKey, MessageId, QueueLimits, QueueName, Rate};

use super::message::{Broken, COLUMNS, Message, State, doom_number};
use crate::bell::{Ear, Letter};
use crate::error::{Done, damaged};
use crate::span::{micros, of_micros};
use crate::store::Turn;

/// For how long a client that watches a queue is remembered after it last received: it receives every 20 s at the latest.
const WATCHES: i64 = 60_000_000;

/// A place in a line: when, then in which order of arrival.
pub(super) type At = (i64, i64);

/// One queue during one request.
pub(super) struct QueueTurn<'a, 'b> {
    pub(super) turn: &'a mut Turn<'b>,
    pub(super) queue: QueueName,
    pub(super) flow: Flow,
    pub(super) limits: QueueLimits,
    /// When the bucket of the rate is full again.
    full_at: u64,
}

impl<'a, 'b> QueueTurn<'a, 'b> {
    /// Decides on one queue, and tells those who watch it when a message is due sooner than before.
    pub(super) fn decide<T>(
        turn: &'a mut Turn<'b>,
        queue: QueueName,
        decision: impl FnOnce(&mut Self) -> Done<T>,
    ) -> Done<T> {
        let mut state = Self::load(turn, queue)?;
        let watchers = state.watchers()?;
        if watchers.is_empty() {
            return decision(&mut state);
        }
        let before = state.soonest()?;
        let answer = decision(&mut state)?;
        if state.soonest()?.is_some_and(|at| before.is_none_or(|before| at < before)) {
            for client in watchers {
                match state.turn.ear(client) {
                    Ear::Gone => state.forget_watcher(client)?,
                    Ear::Open | Ear::Unknown => state.turn.tell(client, Letter::Queue(state.queue.clone())),
                }
            }
        }
        Ok(answer)
    }

    fn load(turn: &'a mut Turn<'b>, queue: QueueName) -> Done<Self> {
        let look = "SELECT paused, in_flight, deliveries, per, full_at FROM queue WHERE name = ?1";
        type Row = (bool, u32, u32, i64, i64);
        let row = |row: &rusqlite::Row<'_>| -> rusqlite::Result<Row> {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?))
        };
        let row = turn.db.prepare_cached(look)?.query_row([queue.as_bytes()], row).optional()?;
        let (paused, in_flight, deliveries, per, full_at) = row.unwrap_or_default();
        let read = || {
            let limits = if in_flight == 0 { QueueLimits::none() } else { QueueLimits::none().in_flight(in_flight)? };
            if deliveries == 0 { Ok(limits) } else { Ok(limits.rate(Rate::new(deliveries, of_micros(per))?)) }
        };
        let unreadable = |_: tenure_core::Error| damaged(format!("the limits of the queue \"{queue}\" cannot be read"));
        let limits = read().map_err(unreadable)?;
        let flow = if paused { Flow::Paused } else { Flow::Running };
        Ok(Self { turn, queue, flow, limits, full_at: u64::try_from(full_at).unwrap_or(0) })
    }

    /// Keeps flow and limits; a queue without any has no row.
    pub(super) fn keep(&self) -> Done<()> {
        let db = self.turn.db;
        if self.flow == Flow::Running && self.limits.is_none() {
            db.prepare_cached("DELETE FROM queue WHERE name = ?1")?.execute([self.queue.as_bytes()])?;
            return Ok(());
        }
        let in_flight = self.limits.max_in_flight().map_or(0, std::num::NonZeroU32::get);
        let (deliveries, per) =
            self.limits.max_rate().map_or((0, 0), |rate| (rate.deliveries().get(), micros(rate.per())));
        let full_at = i64::try_from(self.full_at).unwrap_or(i64::MAX);
        let keep = "INSERT OR REPLACE INTO queue VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
        let paused = self.flow == Flow::Paused;
        db.prepare_cached(keep)?.execute((self.queue.as_bytes(), paused, in_flight, deliveries, per, full_at))?;
        Ok(())
    }

    /// Sets limits in place of those before, with a full bucket.
    pub(super) fn limit(&mut self, limits: QueueLimits) -> Done<()> {
        (self.limits, self.full_at) = (limits, 0);
        self.keep()
    }

    /// Remembers for a while that this client watches the queue.
    pub(super) fn watch(&self) -> Done<()> {
        let watch = "INSERT OR REPLACE INTO watcher VALUES (?1, ?2, ?3)";
        let until = self.turn.at + WATCHES;
        self.turn.db.prepare_cached(watch)?.execute((self.queue.as_bytes(), self.turn.client, until))?;
        Ok(())
    }

    fn watchers(&self) -> Done<Vec<i64>> {
        let look = "SELECT client FROM watcher WHERE queue = ?1 AND until > ?2";
        let mut look = self.turn.db.prepare_cached(look)?;
        let rows = look.query_map((self.queue.as_bytes(), self.turn.at), |row| row.get(0))?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    fn forget_watcher(&self, client: i64) -> Done<()> {
        let forget = "DELETE FROM watcher WHERE queue = ?1 AND client = ?2";
        self.turn.db.prepare_cached(forget)?.execute((self.queue.as_bytes(), client))?;
        Ok(())
    }

    /// The soonest instant at which asking is worthwhile; `None` while paused.
    pub(super) fn soonest(&self) -> Done<Option<i64>> {
        if self.flow == Flow::Paused {
            return Ok(None);
        }
        let heads = [self.first(State::Waiting)?, self.first(State::Leased)?];
        let Some(due) = heads.into_iter().flatten().map(|(at, _)| at).min() else { return Ok(None) };
        Ok(Some(due.max(self.room_at()?)))
    }

    /// How many deliveries the limits allow.
    pub(super) fn room(&self) -> Done<usize> {
        let places = match self.limits.max_in_flight() {
            None => usize::MAX,
            Some(most) => (most.get() as usize).saturating_sub(self.in_flight()?),
        };
        let tokens = self.bucket().map_or(usize::MAX, |bucket| bucket.tokens(self.full_at, self.now()) as usize);
        Ok(places.min(tokens))
    }

    /// When the limits allow a delivery, as far as is known now.
    fn room_at(&self) -> Done<i64> {
        let token = self.bucket().map_or(0, |bucket| bucket.token_at(self.full_at, self.now()));
        let token = i64::try_from(token).unwrap_or(i64::MAX);
        let Some(most) = self.limits.max_in_flight() else { return Ok(token) };
        let Some(surplus) = self.in_flight()?.checked_sub(most.get() as usize) else { return Ok(token) };
        let look = "SELECT at FROM message WHERE queue = ?1 AND state = 2 AND at > ?2 ORDER BY at LIMIT 1 OFFSET ?3";
        let surplus = i64::try_from(surplus).unwrap_or(i64::MAX);
        let by = (self.queue.as_bytes(), self.turn.at, surplus);
        let place: Option<i64> = self.turn.db.prepare_cached(look)?.query_row(by, |row| row.get(0)).optional()?;
        Ok(place.unwrap_or(0).max(token))
    }

    fn bucket(&self) -> Option<TokenBucket> {
        Some(TokenBucket::new(self.limits.max_rate()?, of_micros(1)))
    }

    fn now(&self) -> u64 {
        u64::try_from(self.turn.at).unwrap_or(0)
    }

    /// Takes tokens for deliveries.
    pub(super) fn spend(&mut self, deliveries: usize) -> Done<()> {
        let Some(bucket) = self.bucket().filter(|_| deliveries > 0) else { return Ok(()) };
        self.full_at = bucket.spent(self.full_at, self.now(), deliveries);
        self.keep()
    }

    fn in_flight(&self) -> Done<usize> {
        let count: i64 = self.count("state = 2 AND at > ?2")?;
        Ok(usize::try_from(count).unwrap_or(usize::MAX))
    }

    /// How many messages a condition is true of; `?2` is now.
    pub(super) fn count(&self, condition: &str) -> Done<i64> {
        let count = format!("SELECT count(*) FROM message WHERE queue = ?1 AND {condition}");
        let by: &[&dyn ToSql] = &[&self.queue.as_bytes(), &self.turn.at];
        let needs = if condition.contains("?2") { 2 } else { 1 };
        Ok(self.turn.db.prepare_cached(&count)?.query_row(&by[..needs], |row| row.get(0))?)
    }

    /// The first place of a line.
    pub(super) fn first(&self, state: State) -> Done<Option<At>> {
        let look = "SELECT at, number FROM message WHERE queue = ?1 AND state = ?2 ORDER BY at, number LIMIT 1";
        let by = (self.queue.as_bytes(), state as i64);
        Ok(self.turn.db.prepare_cached(look)?.query_row(by, |row| Ok((row.get(0)?, row.get(1)?))).optional()?)
    }

    /// A message of this queue.
    pub(super) fn load_message(&self, number: i64) -> Done<Option<Result<Message, Broken>>> {
        let look = format!("SELECT {COLUMNS} FROM message WHERE queue = ?1 AND number = ?2");
        let by = (self.queue.as_bytes(), number);
        Ok(self.turn.db.prepare_cached(&look)?.query_row(by, Message::read).optional()?)
    }

    /// The number of a stored message.
    pub(super) fn find(&self, id: &MessageId) -> Done<Option<i64>> {
        let found = match (id.as_number(), id.as_name()) {
            (Some(number), _) => {
                let look = "SELECT number FROM message WHERE queue = ?1 AND number = ?2 AND name IS NULL";
                let by = (self.queue.as_bytes(), number.cast_signed());
                self.turn.db.prepare_cached(look)?.query_row(by, |row| row.get(0)).optional()?
            }
            (None, Some(name)) => {
                let look = "SELECT number FROM message WHERE queue = ?1 AND name = ?2";
                let by = (self.queue.as_bytes(), name);
                self.turn.db.prepare_cached(look)?.query_row(by, |row| row.get(0)).optional()?
            }
            (None, None) => None,
        };
        Ok(found)
    }

    /// Stores messages, all or none.
    pub(super) fn push(&mut self, messages: &[NewMessage]) -> Done<Vec<Pushed>> {
        messages.iter().map(|message| self.push_one(message)).collect()
    }

    fn push_one(&mut self, message: &NewMessage) -> Done<Pushed> {
        let mut replaced = false;
        if let Some(named) = &message.id {
            match (self.known(&named.id)?, message.if_known) {
                (None, _) => {}
                (Some((number, MessageState::Scheduled | MessageState::Ready)), IfKnown::Replace) => {
                    self.remove(number, None)?;
                    replaced = true;
                }
                (Some((_, state)), _) => return Ok(Pushed::Duplicate(state)),
            }
        }
        let mut stored = Message::new(self.turn.at, message);
        self.insert(&mut stored)?;
        Ok(if replaced { Pushed::Replaced(stored.id()) } else { Pushed::Stored(stored.id()) })
    }

    /// The number of a message with this name, and where it stands. One whose name is still known has the number zero.
    fn known(&self, id: &MessageId) -> Done<Option<(i64, MessageState)>> {
        if let Some(number) = self.find(id)? {
            let look = "SELECT state, at FROM message WHERE number = ?1";
            let (state, due) = self
                .turn
                .db
                .prepare_cached(look)?
                .query_row([number], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)? <= self.turn.at)))?;
            let state = match (state, due) {
                (0, false) => MessageState::Scheduled,
                (2, false) => MessageState::InFlight,
                (3, _) => MessageState::Dead,
                _ => MessageState::Ready,
            };
            return Ok(Some((number, state)));
        }
        let look = "SELECT 1 FROM settled WHERE queue = ?1 AND name = ?2 AND until > ?3";
        let by = (self.queue.as_bytes(), id.as_name().unwrap_or_default(), self.turn.at);
        let settled = self.turn.db.prepare_cached(look)?.exists(by)?;
        Ok(settled.then_some((0, MessageState::Settled)))
    }

    fn insert(&self, message: &mut Message) -> Done<()> {
        let insert = "INSERT INTO message (queue, state, at, name, window, payload, pushed, attempt, attempts, cause, \
                      fence, key, lock, expires, recurrence) \
                      VALUES (?1, 0, ?2, ?3, ?4, ?5, ?6, 0, ?7, ?8, 0, ?9, ?10, ?11, ?12)";
        self.turn.db.prepare_cached(insert)?.execute(params![
            self.queue.as_bytes(),
            message.at,
            message.named.as_ref().and_then(|named| named.id.as_name()),
            message.named.as_ref().and_then(NamedId::known_for).map_or(0, micros),
            message.payload.as_bytes(),
            message.pushed,
            message.life.attempts.get(),
            message.cause_number(),
            message.key.as_ref().map(ConcurrencyKey::as_bytes),
            message.lock.as_ref().map(tenure_core::LockName::as_bytes),
            message.life.expires,
            message.life.recurrence.as_ref().map(tenure_core::queue::Recurrence::as_str),
        ])?;
        message.number = self.turn.db.last_insert_rowid();
        Ok(())
    }

    /// Moves a message to another place, with what changed of it. If it was in flight, or was the one of its key to go next,
    /// the next of its key may go. One that is dead let the next one go when it died.
    pub(super) fn relocate(&self, message: &mut Message, state: State, at: i64) -> Done<()> {
        let from = std::mem::replace(&mut message.state, state);
        message.at = at;
        let save = "UPDATE message SET state = ?2, at = ?3, attempt = ?4, cause = ?5, fence = ?6, turn_lock = ?7, \
                    turn_token = ?8, turn_fence = ?9, reason = ?10, expires = ?11, recurrence = ?12, doomed = ?13 \
                    WHERE number = ?1";
        self.turn.db.prepare_cached(save)?.execute(params![
            message.number,
            state as i64,
            at,
            message.life.attempt,
            message.cause_number(),
            message.fence,
            message.turn.as_ref().map(|turn| turn.lock.as_bytes()),
            message.turn.as_ref().map(|turn| turn.token.expose().as_str().to_owned()),
            message.turn.as_ref().map(|turn| turn.fence.get().cast_signed()),
            message.life.reason.as_ref().map(tenure_core::queue::Reason::as_str),
            message.life.expires,
            message.life.recurrence.as_ref().map(tenure_core::queue::Recurrence::as_str),
            message.life.doomed.map(doom_number),
        ])?;
        if from != State::Dead && matches!(state, State::Waiting | State::Dead) {
            let key = message.key.as_ref().map(ConcurrencyKey::as_bytes);
            self.free(key)?;
        }
        Ok(())
    }

    /// Removes a message for good. Its name is free again, unless it stays known for a window.
    pub(super) fn remove(&self, number: i64, known_until: Option<i64>) -> Done<()> {
        let db = self.turn.db;
        let remove = "DELETE FROM message WHERE number = ?1 RETURNING state, name, key";
        type Gone = (i64, Option<Vec<u8>>, Option<Vec<u8>>);
        let row = |row: &rusqlite::Row<'_>| -> rusqlite::Result<Gone> { Ok((row.get(0)?, row.get(1)?, row.get(2)?)) };
        let Some((state, name, key)) = db.prepare_cached(remove)?.query_row([number], row).optional()? else {
            return Ok(());
        };
        if let (Some(until), Some(name)) = (known_until, name) {
            let know = "INSERT OR REPLACE INTO settled VALUES (?1, ?2, ?3)";
            db.prepare_cached(know)?.execute((self.queue.as_bytes(), name, until))?;
        }
        if state == State::Dead as i64 { Ok(()) } else { self.free(key.as_deref()) }
    }

    /// Lets the first message that was held back by this key go on, if nothing of the key is in flight.
    pub(super) fn free(&self, key: Option<&[u8]>) -> Done<()> {
        let Some(key) = key else { return Ok(()) };
        let free = "UPDATE message SET state = 0 WHERE number = (SELECT number FROM message WHERE queue = ?1 AND key = ?2 \
                    AND state = 1 ORDER BY at, number LIMIT 1) \
                    AND NOT EXISTS (SELECT 1 FROM message WHERE queue = ?1 AND key = ?2 AND state = 2)";
        self.turn.db.prepare_cached(free)?.execute((self.queue.as_bytes(), key))?;
        Ok(())
    }
}
