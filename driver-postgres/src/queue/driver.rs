//! The delay queues of one client: each method is one statement.

use std::sync::Arc;

use async_trait::async_trait;
use tenure_core::driver::{
    Cancelled, DeadPage, DeadPlace, DeadSelection, Delay, DelayQueue, Exchanged, Exclusion, Extended, Extension,
    Fencing, ListPlace, Listed, LockTurn, MessageInfo, MessagePage, MessageState, NewMessage, Next, Parking, Payload,
    PurgePlace, PurgeStep, Purged, Pushed, QueueCapabilities, QueuePage, QueueStats, QueueWake, ReceiveRequest,
    Received, Redriven, Rescheduled, Rest, Settle, TurnGiven, Watch,
};
use tenure_core::queue::{MessageId, QueueLimits, QueueName};
use tenure_core::{Error, ErrorKind, Result};
use tokio_postgres::types::Type;

use super::read::{damaged, exchanged, get, info, letter, pushed, single, standing, stats};
use super::write::{Pushes, Settles, micros};
use crate::connection::{Connections, Parameter};

/// How many messages one request may carry. The number bounds how long a transaction keeps rows locked.
const BATCH: usize = 256;
/// How many bytes.
const REQUEST_BYTES: usize = 2 * 1024 * 1024;

const PUSH: &str = "SELECT * FROM tenure.queue_push($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)";
const TURN: &str = "SELECT * FROM tenure.queue_turn($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)";
const EXTEND: &str = "SELECT tenure.queue_extend($1, $2, $3, $4)";
const CANCEL: &str = "SELECT tenure.queue_cancel($1, $2, $3)";
const RESCHEDULE: &str = "SELECT tenure.queue_reschedule($1, $2, $3, $4)";
const GIVE_TURN: &str = "SELECT tenure.queue_give_turn($1, $2, $3, $4, $5, $6)";
const GET: &str = "SELECT * FROM tenure.queue_get($1, $2, $3)";
const LIST: &str = "SELECT * FROM tenure.queue_list($1, $2, $3, $4, $5)";
const LIMIT: &str = "SELECT tenure.queue_limit($1, $2, $3, $4, $5)";
const STATS: &str = "SELECT * FROM tenure.queue_stats($1)";
const PAUSE: &str = "SELECT tenure.queue_pause($1, $2)";
const PURGE: &str = "SELECT * FROM tenure.queue_purge($1, $2, $3)";
const NAMES: &str = "SELECT tenure.queue_names($1, $2)";
const DEAD: &str = "SELECT * FROM tenure.queue_dead($1, $2, $3, $4)";
const DEAD_MOVE: &str = "SELECT * FROM tenure.queue_dead_move($1, $2, $3, $4, $5)";
const WATCH: &str = "SELECT tenure.queue_watch($1, $2)";

/// The delay queues of a database, as one client sees them.
#[derive(Clone, Debug)]
pub(crate) struct PostgresQueue {
    connections: Arc<Connections>,
}

impl PostgresQueue {
    /// The queues behind these connections.
    pub(crate) fn new(connections: Arc<Connections>) -> Self {
        Self { connections }
    }

    async fn ask(
        &self,
        queue: &QueueName,
        statement: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<tokio_postgres::Row>> {
        let name = queue.as_bytes();
        let mut all: Vec<Parameter<'_>> = vec![(&name, Type::BYTEA)];
        all.extend(parameters.iter().map(|(value, kind)| (*value, kind.clone())));
        self.connections.ask(queue.as_bytes(), statement, &all).await
    }

    /// One request about one message.
    async fn about(
        &self,
        queue: &QueueName,
        statement: &str,
        id: &MessageId,
        more: &[Parameter<'_>],
    ) -> Result<Vec<tokio_postgres::Row>> {
        let (number, name) = (id.as_number().map(u64::cast_signed), id.as_name());
        let mut all: Vec<Parameter<'_>> = vec![(&number, Type::INT8), (&name, Type::BYTEA)];
        all.extend(more.iter().map(|(value, kind)| (*value, kind.clone())));
        self.ask(queue, statement, &all).await
    }

    async fn move_dead(&self, queue: &QueueName, which: &DeadSelection, delay: Option<Delay>) -> Result<(u64, Rest)> {
        let (numbers, names, oldest): (Vec<i64>, Vec<&[u8]>, Option<i32>) = match which {
            DeadSelection::Ids(ids) => (
                ids.iter().filter_map(|id| id.as_number().map(u64::cast_signed)).collect(),
                ids.iter().filter_map(MessageId::as_name).collect(),
                None,
            ),
            DeadSelection::Oldest(count) => (vec![], vec![], Some(i32::try_from(*count).unwrap_or(i32::MAX))),
        };
        let delay = delay.map(|delay| micros(delay.get()));
        let parameters: [Parameter<'_>; 4] =
            [(&numbers, Type::INT8_ARRAY), (&names, Type::BYTEA_ARRAY), (&oldest, Type::INT4), (&delay, Type::INT8)];
        let rows = self.ask(queue, DEAD_MOVE, &parameters).await?;
        let row = single(&rows)?;
        let moved: i64 = get(row, 0)?;
        let rest = if moved > 0 && get(row, 1)? { Rest::More } else { Rest::None };
        Ok((moved.cast_unsigned(), rest))
    }
}

#[async_trait]
impl DelayQueue for PostgresQueue {
    fn capabilities(&self) -> QueueCapabilities {
        QueueCapabilities::new(Exclusion::LossyFailover, Fencing::ClockSeeded, QueueWake::Notified)
            .with_parking(Parking::Attended)
            .with_payload(Payload::MAX_LEN)
            .with_batch(BATCH)
            .with_request_bytes(REQUEST_BYTES)
            .with_dead_letters(self.connections.config().caps.max_dead_letters)
    }

    async fn push(&self, queue: &QueueName, messages: &[NewMessage]) -> Result<Vec<Pushed>> {
        let bytes: usize = messages.iter().map(NewMessage::bytes).sum();
        if bytes > REQUEST_BYTES {
            let text = format!("{bytes} bytes in one push are more than {REQUEST_BYTES}: push fewer messages at once");
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        let columns = Pushes::new(messages);
        let rows = self.ask(queue, PUSH, &columns.parameters()).await?;
        if rows.len() != messages.len() {
            let text = format!("{} answers to {} messages", rows.len(), messages.len());
            return Err(Error::new(ErrorKind::Protocol, text));
        }
        rows.iter()
            .zip(messages)
            .map(|(row, message)| pushed(row, message.id.as_ref().map(|named| &named.id)))
            .collect()
    }

    async fn exchange(&self, settles: &[Settle], request: &ReceiveRequest) -> Result<Exchanged> {
        let ReceiveRequest { queue, max, lease, .. } = request;
        if settles.is_empty() && *max == 0 {
            return Ok(Exchanged::new(Vec::new(), Received::nothing(Next::Now)));
        }
        let settles = Settles::new(settles)?;
        let watched = *max > 0 && self.connections.ear.queues().is_watched(queue);
        if watched {
            // The session may have ended. Without one the next look comes by itself.
            let _ = self.connections.listen().await;
        }
        let client = watched.then(|| self.connections.ear.id()).filter(|id| *id != 0);
        let (max, lease) = (i32::try_from(*max).unwrap_or(i32::MAX), micros(lease.get()));
        let dead = i64::try_from(self.connections.config().caps.max_dead_letters).unwrap_or(i64::MAX);
        let floor = self.connections.config().fence_floor.get().cast_signed();
        let mut all: Vec<Parameter<'_>> = vec![(&client, Type::INT8)];
        all.extend(settles.parameters());
        let rest: [Parameter<'_>; 4] =
            [(&max, Type::INT4), (&lease, Type::INT8), (&dead, Type::INT8), (&floor, Type::INT8)];
        all.extend(rest);
        exchanged(&self.ask(queue, TURN, &all).await?)
    }

    async fn extend(&self, queue: &QueueName, extensions: &[Extension]) -> Result<Vec<Extended>> {
        let parts = |at: usize| -> Vec<i64> {
            extensions.iter().map(|extension| extension.receipt.parts()[at].cast_signed()).collect()
        };
        let (numbers, fences) = (parts(0), parts(1));
        let leases: Vec<_> = extensions.iter().map(|extension| micros(extension.lease.get())).collect();
        let parameters: [Parameter<'_>; 3] =
            [(&numbers, Type::INT8_ARRAY), (&fences, Type::INT8_ARRAY), (&leases, Type::INT8_ARRAY)];
        let rows = self.ask(queue, EXTEND, &parameters).await?;
        let answers: Vec<i16> = get(single(&rows)?, 0)?;
        let reported = |answer| if answer == 1 { Extended::Extended } else { Extended::Stale };
        Ok(answers.into_iter().map(reported).collect())
    }

    async fn cancel(&self, queue: &QueueName, id: &MessageId) -> Result<Cancelled> {
        let rows = self.about(queue, CANCEL, id, &[]).await?;
        Ok(match found(get(single(&rows)?, 0)?)? {
            None | Some(MessageState::Settled) => Cancelled::NotFound,
            Some(MessageState::InFlight) => Cancelled::InFlight,
            Some(MessageState::Dead) => Cancelled::Dead,
            Some(MessageState::Scheduled | MessageState::Ready) => Cancelled::Removed,
        })
    }

    async fn reschedule(&self, queue: &QueueName, id: &MessageId, delay: Delay) -> Result<Rescheduled> {
        let rows = self.about(queue, RESCHEDULE, id, &[(&micros(delay.get()), Type::INT8)]).await?;
        Ok(match found(get(single(&rows)?, 0)?)? {
            None | Some(MessageState::Settled) => Rescheduled::NotFound,
            Some(MessageState::InFlight) => Rescheduled::InFlight,
            Some(MessageState::Dead) => Rescheduled::Dead,
            Some(MessageState::Scheduled | MessageState::Ready) => Rescheduled::Moved,
        })
    }

    async fn give_turn(&self, queue: &QueueName, id: &MessageId, turn: &LockTurn) -> Result<TurnGiven> {
        let (lock, token) = (turn.lock.as_bytes(), turn.token.expose());
        let (token, fence) = (token.as_str(), turn.fence.get().cast_signed());
        let more: [Parameter<'_>; 3] = [(&lock, Type::BYTEA), (&token, Type::TEXT), (&fence, Type::INT8)];
        let rows = self.about(queue, GIVE_TURN, id, &more).await?;
        Ok(match get::<i32>(single(&rows)?, 0)? {
            1 => TurnGiven::Due,
            2 => TurnGiven::Paused,
            _ => TurnGiven::NotParked,
        })
    }

    async fn get(&self, queue: &QueueName, id: &MessageId) -> Result<Option<MessageInfo>> {
        let rows = self.about(queue, GET, id, &[]).await?;
        rows.first().map(info).transpose()
    }

    async fn list(&self, queue: &QueueName, which: Listed, from: Option<ListPlace>, max: usize) -> Result<MessagePage> {
        let [at, number, _] = from.map_or([i64::MIN, i64::MIN, 0], |place| place.parts().map(u64::cast_signed));
        let (in_flight, most) = (which == Listed::InFlight, i32::try_from(max).unwrap_or(i32::MAX));
        let parameters: [Parameter<'_>; 4] =
            [(&in_flight, Type::BOOL), (&at, Type::INT8), (&number, Type::INT8), (&most, Type::INT4)];
        let rows = self.ask(queue, LIST, &parameters).await?;
        let place = |row| -> Result<ListPlace> {
            Ok(ListPlace::new([get::<i64>(row, 13)?, get::<i64>(row, 0)?, 0].map(i64::cast_unsigned)))
        };
        let next = rows.last().filter(|_| rows.len() == max).map(place).transpose()?;
        // Damaged messages are left out.
        Ok(MessagePage::new(rows.iter().filter_map(|row| info(row).ok()).collect(), next))
    }

    async fn limit(&self, queue: &QueueName, limits: &QueueLimits) -> Result<()> {
        let in_flight = limits.max_in_flight().map_or(0, |most| i64::from(most.get()));
        let rate = limits.max_rate();
        let deliveries = rate.map_or(0, |rate| i64::from(rate.deliveries().get()));
        let (per, every) = rate.map_or((0, 0), |rate| (micros(rate.per()), micros(rate.interval())));
        let parameters: [Parameter<'_>; 4] =
            [(&in_flight, Type::INT8), (&deliveries, Type::INT8), (&per, Type::INT8), (&every, Type::INT8)];
        self.ask(queue, LIMIT, &parameters).await.map(drop)
    }

    async fn stats(&self, queue: &QueueName) -> Result<QueueStats> {
        let rows = self.ask(queue, STATS, &[]).await?;
        stats(single(&rows)?)
    }

    async fn pause(&self, queue: &QueueName) -> Result<()> {
        self.ask(queue, PAUSE, &[(&true, Type::BOOL)]).await.map(drop)
    }

    async fn resume(&self, queue: &QueueName) -> Result<()> {
        self.ask(queue, PAUSE, &[(&false, Type::BOOL)]).await.map(drop)
    }

    async fn purge(&self, queue: &QueueName, max: usize, from: Option<PurgePlace>) -> Result<PurgeStep> {
        let (most, newest) =
            (i32::try_from(max).unwrap_or(i32::MAX), from.map_or(0, |place| place.newest.cast_signed()));
        let rows = self.ask(queue, PURGE, &[(&most, Type::INT4), (&newest, Type::INT8)]).await?;
        let row = single(&rows)?;
        let (found, removed, newest): (i32, i32, i64) = (get(row, 0)?, get(row, 1)?, get(row, 2)?);
        let next = (found == most).then_some(PurgePlace { newest: newest.cast_unsigned(), at: 0 });
        Ok(PurgeStep::new(u64::from(removed.cast_unsigned()), next))
    }

    async fn list_queues(&self, after: Option<QueueName>, max: usize) -> Result<QueuePage> {
        let name = after.as_ref().map_or(&[][..], QueueName::as_bytes);
        let most = i32::try_from(max.saturating_add(1)).unwrap_or(i32::MAX);
        let parameters: [Parameter<'_>; 2] = [(&name, Type::BYTEA), (&most, Type::INT4)];
        let rows = self.connections.ask(&[], NAMES, &parameters).await?;
        let named = |row| QueueName::new(get::<&[u8]>(row, 0)?).map_err(|error| damaged(error.message()));
        let queues = rows.iter().take(max).map(named).collect::<Result<_>>()?;
        Ok(QueuePage::new(queues, if rows.len() > max { Rest::More } else { Rest::None }))
    }

    async fn dead_list(&self, queue: &QueueName, after: Option<DeadPlace>, max: usize) -> Result<DeadPage> {
        let (at, number) =
            after.map_or((i64::MIN, i64::MIN), |place| (place.stamp.cast_signed(), place.number.cast_signed()));
        let most = i32::try_from(max.saturating_add(1)).unwrap_or(i32::MAX);
        let parameters: [Parameter<'_>; 3] = [(&at, Type::INT8), (&number, Type::INT8), (&most, Type::INT4)];
        let rows = self.ask(queue, DEAD, &parameters).await?;
        let letters = rows.iter().take(max).map(letter).collect::<Result<_>>()?;
        Ok(DeadPage::new(letters, if rows.len() > max { Rest::More } else { Rest::None }))
    }

    async fn dead_redrive(&self, queue: &QueueName, which: &DeadSelection, delay: Delay) -> Result<Redriven> {
        self.move_dead(queue, which, Some(delay)).await.map(|(moved, rest)| Redriven::new(moved, rest))
    }

    async fn dead_purge(&self, queue: &QueueName, which: &DeadSelection) -> Result<Purged> {
        self.move_dead(queue, which, None).await.map(|(removed, rest)| Purged::new(removed, rest))
    }

    async fn watch(&self, queue: &QueueName) -> Result<Watch> {
        self.connections.listen().await?;
        let watch = self.connections.ear.queues().register(queue);
        self.ask(queue, WATCH, &[(&self.connections.ear.id(), Type::INT8)]).await?;
        Ok(watch)
    }
}

/// The state of a message; `None` for 0, which means that there is no such message.
fn found(number: i32) -> Result<Option<MessageState>> {
    if number == 0 { Ok(None) } else { standing(number).map(Some) }
}
