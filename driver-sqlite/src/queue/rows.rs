//! The rows of one queue: statements inside a transaction.

use std::ops::RangeInclusive;

use rusqlite::{Connection, OptionalExtension as _, Row, params};
use tenure_core::FencingToken;
use tenure_core::driver::{DeadCause, DeadLetter, DeadPlace, Flow, NamedId};
use tenure_core::queue::{ConcurrencyKey, MessageId, Payload, QueueName, Reason, Recurrence};
use tenure_core::rules::queues::{At, Discarded, Head, Line, Message, Moment, Place, Rows};

use super::message::{COLUMNS, Damage, cause_number, doom_number, doom_of, moment, place, read, stored};
use crate::error::{Done, Failed, damaged};
use crate::span::micros;
use crate::store::fences;

/// One queue during one request.
#[derive(Debug)]
pub(crate) struct SqliteRows<'a> {
    pub(super) db: &'a Connection,
    pub(super) queue: &'a QueueName,
    pub(super) head: Head,
}

impl SqliteRows<'_> {
    fn load(&self, number: u64) -> Done<Option<Result<Message, Damage>>> {
        let look = format!("SELECT {COLUMNS} FROM message WHERE queue = ?1 AND number = ?2");
        let by = (self.queue.as_bytes(), number.cast_signed());
        Ok(self.db.prepare_cached(&look)?.query_row(by, |row| Ok(read(row))).optional()?)
    }
}

impl Rows for SqliteRows<'_> {
    type Error = Failed;
    type Damage = Damage;

    fn head(&self) -> Head {
        self.head
    }

    /// A queue without settings has no row.
    fn set_head(&mut self, head: Head) -> Done<()> {
        self.head = head;
        let Head { flow, limits, full_at } = head;
        if flow == Flow::Running && limits.is_none() {
            self.db.prepare_cached("DELETE FROM queue WHERE name = ?1")?.execute([self.queue.as_bytes()])?;
            return Ok(());
        }
        let in_flight = limits.max_in_flight().map_or(0, std::num::NonZeroU32::get);
        let (deliveries, per) = limits.max_rate().map_or((0, 0), |rate| (rate.deliveries().get(), micros(rate.per())));
        let keep = "INSERT OR REPLACE INTO queue VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
        let paused = flow == Flow::Paused;
        let by = (self.queue.as_bytes(), paused, in_flight, deliveries, per, stored(full_at).max(0));
        self.db.prepare_cached(keep)?.execute(by)?;
        Ok(())
    }

    fn fence(&mut self) -> Done<FencingToken> {
        fences(self.db, 1)
    }

    fn newest(&self) -> Done<u64> {
        let newest = "SELECT ifnull(max(number), 0) FROM message";
        Ok(self.db.query_row(newest, [], |row| row.get::<_, i64>(0))?.cast_unsigned())
    }

    fn find(&self, id: &MessageId) -> Done<Option<(u64, Place)>> {
        let found = |row: &Row<'_>| Ok((row.get::<_, i64>(0)?.cast_unsigned(), place(row.get(1)?, row.get(2)?)));
        Ok(match id.as_number() {
            Some(number) => {
                let look = "SELECT number, state, at FROM message WHERE queue = ?1 AND number = ?2 AND name IS NULL";
                self.db
                    .prepare_cached(look)?
                    .query_row((self.queue.as_bytes(), number.cast_signed()), found)
                    .optional()?
            }
            None => {
                let look = "SELECT number, state, at FROM message WHERE queue = ?1 AND name = ?2";
                self.db.prepare_cached(look)?.query_row((self.queue.as_bytes(), id.as_name()), found).optional()?
            }
        })
    }

    fn is_settled(&self, id: &MessageId, now: Moment) -> Done<bool> {
        let look = "SELECT 1 FROM settled WHERE queue = ?1 AND name = ?2 AND until > ?3";
        Ok(self.db.prepare_cached(look)?.exists((self.queue.as_bytes(), id.as_name(), stored(now)))?)
    }

    fn read<T>(&self, number: u64, look: impl FnOnce(&Message) -> T) -> Done<Option<Result<T, Damage>>> {
        Ok(self.load(number)?.map(|read| read.map(|message| look(&message))))
    }

    fn take(
        &mut self,
        number: u64,
        wanted: impl FnOnce(&Message) -> bool,
    ) -> Done<Option<Result<Box<Message>, Damage>>> {
        Ok(match self.load(number)? {
            Some(Ok(message)) => wanted(&message).then(|| Ok(Box::new(message))),
            Some(Err(damage)) => Some(Err(damage)),
            None => None,
        })
    }

    fn put(&mut self, message: Box<Message>, _: Place) -> Done<()> {
        let save = "UPDATE message SET state = ?2, at = ?3, attempt = ?4, cause = ?5, fence = ?6, turn_lock = ?7, \
                    turn_token = ?8, turn_fence = ?9, reason = ?10, expires = ?11, recurrence = ?12, doomed = ?13 \
                    WHERE number = ?1";
        let Message { number, place, life, fence, turn, .. } = &*message;
        self.db.prepare_cached(save)?.execute(params![
            number.cast_signed(),
            place.line as i64,
            stored(place.at),
            life.attempt,
            cause_number(life),
            fence.cast_signed(),
            turn.as_ref().map(|turn| turn.lock.as_bytes()),
            turn.as_ref().map(|turn| turn.token.expose().as_str().to_owned()),
            turn.as_ref().map(|turn| turn.fence.get().cast_signed()),
            life.reason.as_ref().map(Reason::as_str),
            life.expires.map(stored),
            life.recurrence.as_ref().map(Recurrence::as_str),
            life.doomed.map(doom_number),
        ])?;
        Ok(())
    }

    fn finish(&mut self, message: Box<Message>, known_until: Option<Moment>) -> Done<()> {
        self.db.prepare_cached("DELETE FROM message WHERE number = ?1")?.execute([message.number.cast_signed()])?;
        if let (Some(until), Some(named)) = (known_until, &message.named) {
            let know = "INSERT OR REPLACE INTO settled VALUES (?1, ?2, ?3)";
            self.db.prepare_cached(know)?.execute((self.queue.as_bytes(), named.id.as_name(), stored(until)))?;
        }
        Ok(())
    }

    fn insert(&mut self, message: Box<Message>) -> Done<u64> {
        let insert = "INSERT INTO message (queue, state, at, name, window, payload, pushed, attempt, attempts, cause, \
                      fence, key, lock, expires, recurrence) \
                      VALUES (?1, 0, ?2, ?3, ?4, ?5, ?6, 0, ?7, ?8, 0, ?9, ?10, ?11, ?12)";
        let Message { place, named, life, .. } = &*message;
        self.db.prepare_cached(insert)?.execute(params![
            self.queue.as_bytes(),
            stored(place.at),
            named.as_ref().and_then(|named| named.id.as_name()),
            named.as_ref().and_then(NamedId::known_for).map_or(0, micros),
            message.payload.as_bytes(),
            stored(message.pushed),
            life.attempts.get(),
            cause_number(life),
            message.key.as_ref().map(ConcurrencyKey::as_bytes),
            message.lock.as_ref().map(tenure_core::LockName::as_bytes),
            life.expires.map(stored),
            life.recurrence.as_ref().map(Recurrence::as_str),
        ])?;
        Ok(self.db.last_insert_rowid().cast_unsigned())
    }

    fn discard(&mut self, number: u64) -> Done<Option<Discarded>> {
        let discard = "DELETE FROM message WHERE number = ?1 RETURNING state, key";
        let discarded = |row: &Row<'_>| Ok(Discarded { line: place(row.get(0)?, 0).line, key: key(row.get(1)?) });
        Ok(self.db.prepare_cached(discard)?.query_row([number.cast_signed()], discarded).optional()?)
    }

    /// Writes nothing but the known damage.
    fn bury(&mut self, number: u64, damage: Damage, place: Place) -> Done<Option<ConcurrencyKey>> {
        let bury = "UPDATE message SET state = ?2, at = ?3, doomed = ?4, reason = ?5 WHERE number = ?1 RETURNING key";
        let doom = doom_number(DeadCause::Damaged);
        let by = (number.cast_signed(), place.line as i64, stored(place.at), doom, format!("damaged: {damage}"));
        Ok(key(self.db.prepare_cached(bury)?.query_row(by, |row| row.get(0))?))
    }

    fn refuse(&self, number: u64, damage: Damage) -> Failed {
        damaged(format!("message {number} of the queue \"{}\": {damage}", self.queue)).into()
    }

    /// A damaged one may lack something.
    fn letter(&self, place: DeadPlace) -> Done<DeadLetter> {
        let look = "SELECT name, substr(payload, 1, ?2), attempt, doomed, reason FROM message WHERE number = ?1";
        let read = |row: &Row<'_>| {
            let (name, payload): (Option<Vec<u8>>, Vec<u8>) =
                (row.get(0).unwrap_or_default(), row.get(1).unwrap_or_default());
            let (attempt, doom, reason): (u32, Option<i64>, Option<String>) =
                (row.get(2).unwrap_or_default(), row.get(3).unwrap_or_default(), row.get(4).unwrap_or_default());
            Ok((name, payload, attempt, doom, reason))
        };
        let by = (place.number.cast_signed(), i64::try_from(Payload::MAX_LEN).unwrap_or(i64::MAX));
        let (name, payload, attempt, doom, reason) = self.db.prepare_cached(look)?.query_row(by, read)?;
        let id = name.and_then(|name| MessageId::named(name).ok());
        let id = id.unwrap_or_else(|| MessageId::assigned(place.number));
        Ok(DeadLetter::new(id, place, Payload::new(payload).map_err(Failed::from)?, doom_of(doom))
            .with_attempt(attempt)
            .with_reason(reason.as_deref().map(Reason::beginning_of)))
    }

    fn is_busy(&self, key: &ConcurrencyKey, except: u64) -> Done<bool> {
        let look = "SELECT 1 FROM message WHERE queue = ?1 AND key = ?2 AND state = 2 AND number <> ?3";
        Ok(self.db.prepare_cached(look)?.exists((self.queue.as_bytes(), key.as_bytes(), except.cast_signed()))?)
    }

    fn free(&mut self, key: &ConcurrencyKey) -> Done<()> {
        let free = "UPDATE message SET state = 0 WHERE number = (SELECT number FROM message WHERE queue = ?1 AND key = ?2 \
                    AND state = 1 ORDER BY at, number LIMIT 1) \
                    AND NOT EXISTS (SELECT 1 FROM message WHERE queue = ?1 AND key = ?2 AND state = 2)";
        self.db.prepare_cached(free)?.execute((self.queue.as_bytes(), key.as_bytes()))?;
        Ok(())
    }

    fn first(&self, line: Line) -> Done<Option<At>> {
        let look = "SELECT at, number FROM message WHERE queue = ?1 AND state = ?2 ORDER BY at, number LIMIT 1";
        Ok(self.db.prepare_cached(look)?.query_row((self.queue.as_bytes(), line as i64), position).optional()?)
    }

    fn nth_after(&self, line: Line, after: Moment, behind: usize) -> Done<Option<Moment>> {
        let look = "SELECT at FROM message WHERE queue = ?1 AND state = ?2 AND at > ?3 ORDER BY at LIMIT 1 OFFSET ?4";
        let by = (self.queue.as_bytes(), line as i64, stored(after), i64::try_from(behind).unwrap_or(i64::MAX));
        let at: Option<i64> = self.db.prepare_cached(look)?.query_row(by, |row| row.get(0)).optional()?;
        Ok(at.map(moment))
    }

    fn count(&self, line: Line, times: RangeInclusive<Moment>) -> Done<u64> {
        let count = "SELECT count(*) FROM message WHERE queue = ?1 AND state = ?2 AND at BETWEEN ?3 AND ?4";
        let by = (self.queue.as_bytes(), line as i64, stored(*times.start()), stored(*times.end()));
        let count: i64 = self.db.prepare_cached(count)?.query_row(by, |row| row.get(0))?;
        Ok(u64::try_from(count).unwrap_or(0))
    }

    fn positions(
        &self,
        line: Line,
        times: RangeInclusive<Moment>,
        behind: Option<At>,
        newest: u64,
        max: usize,
    ) -> Done<Vec<At>> {
        let look = "SELECT at, number FROM message WHERE queue = ?1 AND state = ?2 AND at BETWEEN ?3 AND ?4 \
                    AND (at, number) > (?5, ?6) AND number <= ?7 ORDER BY at, number LIMIT ?8";
        let (at, number) = behind.map_or((i64::MIN, i64::MIN), |(at, number)| (stored(at), signed(number)));
        let times = (stored(*times.start()), stored(*times.end()));
        let max = i64::try_from(max).unwrap_or(i64::MAX);
        let mut look = self.db.prepare_cached(look)?;
        let by = params![self.queue.as_bytes(), line as i64, times.0, times.1, at, number, signed(newest), max];
        Ok(look.query_map(by, position)?.collect::<rusqlite::Result<_>>()?)
    }
}

fn position(row: &Row<'_>) -> rusqlite::Result<At> {
    Ok((moment(row.get(0)?), row.get::<_, i64>(1)?.cast_unsigned()))
}

/// A bound of numbers.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn key(stored: Option<Vec<u8>>) -> Option<ConcurrencyKey> {
    ConcurrencyKey::new(stored?).ok()
}
