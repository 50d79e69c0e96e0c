//! One queue inside a transaction: its settings, and its watchers.

use std::time::Duration;

use rusqlite::OptionalExtension as _;
use tenure_core::driver::{Flow, QueuePage, Rest};
use tenure_core::queue::{QueueLimits, QueueName, Rate};
use tenure_core::rules::queues::{Caps, Clock, Head, Rule};

use super::message::moment;
use super::rows::SqliteRows;
use crate::bell::{Ear, Letter};
use crate::error::{Done, damaged};
use crate::span::of_micros;
use crate::store::Turn;

/// For how long a client that watches a queue is remembered after it last received: it receives every 20 s at the latest.
const WATCHES: i64 = 60_000_000;
/// How many messages one receive looks at beyond those that it hands out.
const LOOKS: usize = 500;
/// After so many bytes of payloads an answer has no further message, so that it needs little memory however large they are. Those of
/// tenure-redis stop there, too.
const ANSWER_BYTES: usize = 4 * 1024 * 1024;

/// The rule of one request.
pub(super) type QueueRule<'a, 'b> = Rule<'a, SqliteRows<'b>>;

/// Decides on one queue, and notifies its watchers when a message is due sooner than before.
pub(super) fn decide<T>(
    turn: &mut Turn<'_>,
    queue: &QueueName,
    decision: impl FnOnce(&mut QueueRule<'_, '_>) -> Done<T>,
) -> Done<T> {
    let mut rows = SqliteRows { db: turn.db, queue, head: read_head(turn, queue)? };
    let caps = Caps { dead_letters: turn.caps.max_dead_letters, looks: LOOKS, answer_bytes: ANSWER_BYTES };
    let clock = Clock::new(moment(turn.at), Duration::from_micros(1));
    let mut rule = Rule::new(&mut rows, clock, caps);
    let watchers = watchers(turn, queue)?;
    if watchers.is_empty() {
        return decision(&mut rule);
    }
    let before = rule.soonest()?;
    let answer = decision(&mut rule)?;
    if rule.soonest()?.is_some_and(|at| before.is_none_or(|before| at < before)) {
        for client in watchers {
            match turn.ear(client) {
                Ear::Gone => forget_watcher(turn, queue, client)?,
                Ear::Open | Ear::Unknown => turn.signal(client, Letter::Queue(queue.clone())),
            }
        }
    }
    Ok(answer)
}

fn read_head(turn: &Turn<'_>, queue: &QueueName) -> Done<Head> {
    let look = "SELECT paused, in_flight, deliveries, per, full_at FROM queue WHERE name = ?1";
    type Row = (bool, u32, u32, i64, i64);
    let row = |row: &rusqlite::Row<'_>| -> rusqlite::Result<Row> {
        Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?))
    };
    let row = turn.db.prepare_cached(look)?.query_row([queue.as_bytes()], row).optional()?;
    let Some((paused, in_flight, deliveries, per, full_at)) = row else { return Ok(Head::default()) };
    let read = || {
        let limits = if in_flight == 0 { QueueLimits::none() } else { QueueLimits::none().in_flight(in_flight)? };
        if deliveries == 0 { Ok(limits) } else { Ok(limits.rate(Rate::new(deliveries, of_micros(per))?)) }
    };
    let unreadable = |_: tenure_core::Error| damaged(format!("the limits of the queue \"{queue}\" cannot be read"));
    let flow = if paused { Flow::Paused } else { Flow::Running };
    Ok(Head { flow, limits: read().map_err(unreadable)?, full_at: moment(full_at) })
}

/// Remembers for a while that this client watches the queue.
pub(super) fn watch(turn: &Turn<'_>, queue: &QueueName) -> Done<()> {
    let watch = "INSERT OR REPLACE INTO watcher VALUES (?1, ?2, ?3)";
    turn.db.prepare_cached(watch)?.execute((queue.as_bytes(), turn.client, turn.at + WATCHES))?;
    Ok(())
}

fn watchers(turn: &Turn<'_>, queue: &QueueName) -> Done<Vec<i64>> {
    let mut look = turn.db.prepare_cached("SELECT client FROM watcher WHERE queue = ?1 AND until > ?2")?;
    let rows = look.query_map((queue.as_bytes(), turn.at), |row| row.get(0))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

fn forget_watcher(turn: &Turn<'_>, queue: &QueueName, client: i64) -> Done<()> {
    let forget = "DELETE FROM watcher WHERE queue = ?1 AND client = ?2";
    turn.db.prepare_cached(forget)?.execute((queue.as_bytes(), client))?;
    Ok(())
}

/// The queues that hold a message, or are paused or limited.
pub(super) fn list_queues(turn: &Turn<'_>, after: Option<&QueueName>, max: usize) -> Done<QueuePage> {
    let look = "SELECT min(name) FROM (SELECT min(queue) AS name FROM message WHERE queue > ?1 \
                UNION ALL SELECT min(name) FROM queue WHERE name > ?1)";
    let mut look = turn.db.prepare_cached(look)?;
    let mut last = after.map(|name| name.as_bytes().to_vec()).unwrap_or_default();
    let mut queues = Vec::new();
    loop {
        let next: Option<Option<Vec<u8>>> = look.query_row([&last], |row| row.get(0)).optional()?;
        let Some(next) = next.flatten() else { return Ok(QueuePage::new(queues, Rest::None)) };
        if queues.len() == max {
            return Ok(QueuePage::new(queues, Rest::More));
        }
        let named = QueueName::new(&next).map_err(|_| damaged("a queue has an invalid name"))?;
        queues.push(named);
        last = next;
    }
}
