//! The delay queues of one client: each method is one statement.

use std::sync::Arc;

use async_trait::async_trait;
use mysql_async::{Row, Value};
use tenure_core::driver::{
    Cancelled, DeadPage, DeadPlace, DeadSelection, Delay, DelayQueue, Exchanged, Exclusion, Extended, Extension,
    Fencing, ListPlace, Listed, LockTurn, MessageInfo, MessagePage, MessageState, NewMessage, Next, Parking, Payload,
    PurgePlace, PurgeStep, Purged, Pushed, QueueCapabilities, QueuePage, QueueStats, QueueWake, ReceiveRequest,
    Received, Redriven, Rescheduled, Rest, Settle, Settled, TurnGiven, Watch,
};
use tenure_core::queue::{MessageId, QueueLimits, QueueName};
use tenure_core::{Error, ErrorKind, Result};

use super::read::{exchanged, info, letter, line, name, pushed, standing, stats};
use super::write::{chosen, extensions, number, pushes, settles};
use crate::connection::Connections;
use crate::error::odd;
use crate::row::{bytes, column, single};
use crate::span::micros;

/// How many messages one request may carry. The number bounds how long a transaction keeps a queue locked.
const BATCH: usize = 256;
/// How many bytes.
const REQUEST_BYTES: usize = 2 * 1024 * 1024;

const PUSH: &str = "CALL tenure_queue_push(?, ?, ?, ?)";
const TURN: &str = "CALL tenure_queue_turn(?, ?, ?, ?, ?, ?)";
const EXTEND: &str = "CALL tenure_queue_extend(?, ?)";
const CANCEL: &str = "CALL tenure_queue_cancel(?, ?, ?)";
const RESCHEDULE: &str = "CALL tenure_queue_reschedule(?, ?, ?, ?)";
const GET: &str = "CALL tenure_queue_get(?, ?, ?)";
const LIST: &str = "CALL tenure_queue_list(?, ?, ?, ?, ?)";
const LIMIT: &str = "CALL tenure_queue_limit(?, ?, ?, ?, ?)";
const STATS: &str = "CALL tenure_queue_stats(?)";
const PAUSE: &str = "CALL tenure_queue_pause(?, ?)";
const PURGE: &str = "CALL tenure_queue_purge(?, ?, ?)";
const NAMES: &str = "CALL tenure_queue_names(?, ?)";
const DEAD: &str = "CALL tenure_queue_dead(?, ?, ?, ?)";
const DEAD_MOVE: &str = "CALL tenure_queue_dead_move(?, ?, ?, ?)";

/// The delay queues of a database, as one client sees them.
#[derive(Clone, Debug)]
pub(crate) struct MysqlQueue {
    connections: Arc<Connections>,
}

impl MysqlQueue {
    /// The queues behind these connections.
    pub(crate) fn new(connections: Arc<Connections>) -> Self {
        Self { connections }
    }

    async fn ask(&self, queue: &QueueName, statement: &'static str, parameters: Vec<Value>) -> Result<Vec<Row>> {
        let mut all = vec![Value::from(queue.as_bytes())];
        all.extend(parameters);
        self.connections.ask(queue.as_bytes(), statement, all).await
    }

    /// One request about one message.
    async fn about(
        &self,
        queue: &QueueName,
        statement: &'static str,
        id: &MessageId,
        more: Vec<Value>,
    ) -> Result<Vec<Row>> {
        let mut all = vec![Value::from(id.as_number().map(number)), bytes(id.as_name())];
        all.extend(more);
        self.ask(queue, statement, all).await
    }

    /// The same, answered with the state of the message.
    async fn stood(
        &self,
        queue: &QueueName,
        statement: &'static str,
        id: &MessageId,
        more: Vec<Value>,
    ) -> Result<Option<MessageState>> {
        let rows = self.about(queue, statement, id, more).await?;
        standing(column(single(&rows)?, 0)?)
    }

    async fn move_dead(&self, queue: &QueueName, which: &DeadSelection, delay: Option<Delay>) -> Result<(u64, Rest)> {
        let (ids, oldest) = chosen(which);
        let delay = delay.map(|delay| micros(delay.get()));
        let parameters = vec![Value::from(ids), Value::from(oldest), Value::from(delay)];
        let rows = self.ask(queue, DEAD_MOVE, parameters).await?;
        let row = single(&rows)?;
        let moved = column(row, 0)?;
        Ok((moved, if moved > 0 && column(row, 1)? { Rest::More } else { Rest::None }))
    }
}

#[async_trait]
impl DelayQueue for MysqlQueue {
    fn capabilities(&self) -> QueueCapabilities {
        QueueCapabilities::new(Exclusion::LossyFailover, Fencing::ClockSeeded, QueueWake::Poll)
            .with_parking(Parking::BackOff)
            .with_payload(Payload::MAX_LEN)
            .with_batch(BATCH)
            .with_request_bytes(REQUEST_BYTES)
            .with_dead_letters(self.connections.config().caps.max_dead_letters)
    }

    async fn push(&self, queue: &QueueName, messages: &[NewMessage]) -> Result<Vec<Pushed>> {
        let size: usize = messages.iter().map(NewMessage::bytes).sum();
        if size > REQUEST_BYTES {
            let text = format!("{size} bytes in one push are more than {REQUEST_BYTES}: push fewer messages at once");
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        let (rows, payloads, named) = pushes(messages);
        let parameters = vec![Value::from(rows), Value::Bytes(payloads), Value::from(named)];
        let answer = line(&self.ask(queue, PUSH, parameters).await?)?;
        let words: Vec<&str> = answer.split_terminator(',').collect();
        if words.len() != messages.len() {
            return Err(odd());
        }
        let reported = |(word, message): (&&str, &NewMessage)| pushed(word, message.id.as_ref().map(|named| &named.id));
        words.iter().zip(messages).map(reported).collect()
    }

    async fn exchange(&self, settlements: &[Settle], request: &ReceiveRequest) -> Result<Exchanged> {
        let ReceiveRequest { queue, max, lease, .. } = request;
        if settlements.is_empty() && *max == 0 {
            return Ok(Exchanged::new(Vec::new(), Received::nothing(Next::Now)));
        }
        let config = self.connections.config();
        let parameters = vec![
            Value::from(settles(settlements)?),
            Value::from(i32::try_from(*max).unwrap_or(i32::MAX)),
            Value::from(micros(lease.get())),
            Value::from(i64::try_from(config.caps.max_dead_letters).unwrap_or(i64::MAX)),
            Value::from(config.fence_floor.get().cast_signed()),
        ];
        let mut answer = exchanged(&self.ask(queue, TURN, parameters).await?)?;
        // Of a queue that is not there nothing can be settled.
        answer.settled.resize(settlements.len(), Settled::Stale);
        Ok(answer)
    }

    async fn extend(&self, queue: &QueueName, wanted: &[Extension]) -> Result<Vec<Extended>> {
        let answers = line(&self.ask(queue, EXTEND, vec![Value::from(extensions(wanted))]).await?)?;
        if answers.len() != wanted.len() {
            return Err(odd());
        }
        let reported = |answer| if answer == '1' { Extended::Extended } else { Extended::Stale };
        Ok(answers.chars().map(reported).collect())
    }

    async fn cancel(&self, queue: &QueueName, id: &MessageId) -> Result<Cancelled> {
        Ok(match self.stood(queue, CANCEL, id, Vec::new()).await? {
            None | Some(MessageState::Settled) => Cancelled::NotFound,
            Some(MessageState::InFlight) => Cancelled::InFlight,
            Some(MessageState::Dead) => Cancelled::Dead,
            Some(MessageState::Scheduled | MessageState::Ready) => Cancelled::Removed,
        })
    }

    async fn reschedule(&self, queue: &QueueName, id: &MessageId, delay: Delay) -> Result<Rescheduled> {
        Ok(match self.stood(queue, RESCHEDULE, id, vec![Value::from(micros(delay.get()))]).await? {
            None | Some(MessageState::Settled) => Rescheduled::NotFound,
            Some(MessageState::InFlight) => Rescheduled::InFlight,
            Some(MessageState::Dead) => Rescheduled::Dead,
            Some(MessageState::Scheduled | MessageState::Ready) => Rescheduled::Moved,
        })
    }

    async fn give_turn(&self, _: &QueueName, _: &MessageId, _: &LockTurn) -> Result<TurnGiven> {
        Err(Error::new(ErrorKind::Unsupported, "this driver delivers parked messages after their back-off only"))
    }

    async fn get(&self, queue: &QueueName, id: &MessageId) -> Result<Option<MessageInfo>> {
        let rows = self.about(queue, GET, id, Vec::new()).await?;
        rows.first().map(info).transpose()
    }

    async fn list(&self, queue: &QueueName, which: Listed, from: Option<ListPlace>, max: usize) -> Result<MessagePage> {
        let [at, number, _] = from.map_or([i64::MIN, i64::MIN, 0], |place| place.parts().map(u64::cast_signed));
        let parameters = vec![
            Value::from(which == Listed::InFlight),
            Value::from(at),
            Value::from(number),
            Value::from(i32::try_from(max).unwrap_or(i32::MAX)),
        ];
        let rows = self.ask(queue, LIST, parameters).await?;
        let place = |row: &Row| -> Result<ListPlace> {
            Ok(ListPlace::new([column::<i64>(row, 13)?, column::<i64>(row, 0)?, 0].map(i64::cast_unsigned)))
        };
        let next = rows.last().filter(|_| rows.len() == max).map(place).transpose()?;
        // Damaged messages are left out.
        Ok(MessagePage::new(rows.iter().filter_map(|row| info(row).ok()).collect(), next))
    }

    async fn limit(&self, queue: &QueueName, limits: &QueueLimits) -> Result<()> {
        let rate = limits.max_rate();
        let parameters = vec![
            Value::from(limits.max_in_flight().map_or(0, |most| most.get())),
            Value::from(rate.map_or(0, |rate| rate.deliveries().get())),
            Value::from(rate.map_or(0, |rate| micros(rate.per()))),
            Value::from(rate.map_or(0, |rate| micros(rate.interval()))),
        ];
        self.ask(queue, LIMIT, parameters).await.map(drop)
    }

    async fn stats(&self, queue: &QueueName) -> Result<QueueStats> {
        let rows = self.ask(queue, STATS, Vec::new()).await?;
        stats(single(&rows)?)
    }

    async fn pause(&self, queue: &QueueName) -> Result<()> {
        self.ask(queue, PAUSE, vec![Value::from(true)]).await.map(drop)
    }

    async fn resume(&self, queue: &QueueName) -> Result<()> {
        self.ask(queue, PAUSE, vec![Value::from(false)]).await.map(drop)
    }

    async fn purge(&self, queue: &QueueName, max: usize, from: Option<PurgePlace>) -> Result<PurgeStep> {
        let most = i32::try_from(max).unwrap_or(i32::MAX);
        let parameters = vec![Value::from(most), Value::from(from.map_or(0, |place| place.newest))];
        let rows = self.ask(queue, PURGE, parameters).await?;
        let row = single(&rows)?;
        let (removed, newest): (i32, u64) = (column(row, 0)?, column(row, 1)?);
        let next = (removed == most).then_some(PurgePlace { newest, at: 0 });
        Ok(PurgeStep::new(u64::from(removed.cast_unsigned()), next))
    }

    async fn list_queues(&self, after: Option<QueueName>, max: usize) -> Result<QueuePage> {
        let after = after.as_ref().map_or(&[][..], QueueName::as_bytes);
        let most = i32::try_from(max.saturating_add(1)).unwrap_or(i32::MAX);
        let rows = self.connections.ask(&[], NAMES, vec![Value::from(after), Value::from(most)]).await?;
        let queues = rows.iter().take(max).map(name).collect::<Result<_>>()?;
        Ok(QueuePage::new(queues, if rows.len() > max { Rest::More } else { Rest::None }))
    }

    async fn dead_list(&self, queue: &QueueName, after: Option<DeadPlace>, max: usize) -> Result<DeadPage> {
        let (at, number) =
            after.map_or((i64::MIN, i64::MIN), |place| (place.stamp.cast_signed(), place.number.cast_signed()));
        let most = i32::try_from(max.saturating_add(1)).unwrap_or(i32::MAX);
        let parameters = vec![Value::from(at), Value::from(number), Value::from(most)];
        let rows = self.ask(queue, DEAD, parameters).await?;
        let letters = rows.iter().take(max).map(letter).collect::<Result<_>>()?;
        Ok(DeadPage::new(letters, if rows.len() > max { Rest::More } else { Rest::None }))
    }

    async fn dead_redrive(&self, queue: &QueueName, which: &DeadSelection, delay: Delay) -> Result<Redriven> {
        self.move_dead(queue, which, Some(delay)).await.map(|(moved, rest)| Redriven::new(moved, rest))
    }

    async fn dead_purge(&self, queue: &QueueName, which: &DeadSelection) -> Result<Purged> {
        self.move_dead(queue, which, None).await.map(|(removed, rest)| Purged::new(removed, rest))
    }

    async fn watch(&self, _: &QueueName) -> Result<Watch> {
        Err(Error::new(ErrorKind::Unsupported, "this backend has no notifications; waiters poll"))
    }
}
