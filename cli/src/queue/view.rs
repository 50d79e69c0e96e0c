//! Messages, dead letters and counts for people and programs.

use std::time::Duration;

use serde::Serialize;
use tenure::queue::{DeadCause, DeadLetter, Flow, MessageInfo, MessageState, Payload, QueueStats};

use super::id::{self, IdView};
use crate::duration::show;
use crate::name::{digits, hex, text};

/// What a message carries: text where it is, digits where it is not.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Content {
    Payload(String),
    PayloadHex(String),
}

impl Content {
    fn of(payload: &Payload) -> Self {
        match std::str::from_utf8(payload.as_bytes()) {
            Ok(text) => Self::Payload(text.to_owned()),
            Err(_) => Self::PayloadHex(hex(payload.as_bytes())),
        }
    }
}

/// The name of a queue.
#[derive(Debug, Serialize)]
pub(super) struct QueueView {
    queue: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    queue_hex: Option<String>,
}

impl QueueView {
    pub(super) fn of(name: &[u8]) -> Self {
        Self { queue: text(name), queue_hex: digits(name) }
    }
}

/// What became of a message that was to be removed.
#[derive(Debug, Serialize)]
pub(super) struct CancelView {
    #[serde(flatten)]
    pub(super) queue: QueueView,
    #[serde(flatten)]
    pub(super) id: IdView,
    pub(super) outcome: &'static str,
}

/// Whether a queue hands out messages.
#[derive(Debug, Serialize)]
pub(super) struct FlowView {
    #[serde(flatten)]
    pub(super) queue: QueueView,
    pub(super) paused: bool,
}

/// To how many messages something happened.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Count {
    Requeued(u64),
    Removed(u64),
}

impl Count {
    pub(super) fn number(self) -> u64 {
        match self {
            Self::Requeued(count) | Self::Removed(count) => count,
        }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct CountView {
    #[serde(flatten)]
    pub(super) queue: QueueView,
    #[serde(flatten)]
    pub(super) count: Count,
}

#[derive(Debug, Serialize)]
pub(super) struct MessageView {
    #[serde(flatten)]
    id: IdView,
    state: &'static str,
    attempt: u32,
    attempts: u32,
    due_in_ms: u128,
    age_ms: u128,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_hex: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lock: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lock_hex: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(flatten)]
    content: Content,
}

pub(super) fn state(state: MessageState) -> &'static str {
    match state {
        MessageState::Scheduled => "scheduled",
        MessageState::Ready => "ready",
        MessageState::InFlight => "in_flight",
        MessageState::Dead => "dead",
        MessageState::Settled => "settled",
    }
}

impl From<&MessageInfo> for MessageView {
    fn from(message: &MessageInfo) -> Self {
        Self {
            id: IdView::of(&message.id),
            state: state(message.state),
            attempt: message.attempt,
            attempts: message.attempts.get(),
            due_in_ms: message.due_in.as_millis(),
            age_ms: message.age.as_millis(),
            key: message.key.as_ref().map(|key| text(key.as_bytes())),
            key_hex: message.key.as_ref().and_then(|key| digits(key.as_bytes())),
            lock: message.lock.as_ref().map(|lock| text(lock.as_bytes())),
            lock_hex: message.lock.as_ref().and_then(|lock| digits(lock.as_bytes())),
            reason: message.reason.as_ref().map(|reason| reason.as_str().to_owned()),
            content: Content::of(&message.payload),
        }
    }
}

/// One line: the id of the message and its state.
pub(super) fn line(message: &MessageInfo) -> String {
    let when = match message.state {
        MessageState::Scheduled => format!("due in {}", show(message.due_in)),
        MessageState::InFlight => format!("in flight for another {}", show(message.due_in)),
        state => self::state(state).to_owned(),
    };
    let mut line = format!("{:<24} {when}", id::show(&message.id));
    if message.attempt > 0 {
        line.push_str(&format!(", attempt {} of {}", message.attempt, message.attempts.get()));
    }
    if let Some(reason) = &message.reason {
        line.push_str(&format!(": {}", reason.as_str().escape_debug()));
    }
    line
}

#[derive(Debug, Serialize)]
pub(super) struct DeadView {
    #[serde(flatten)]
    id: IdView,
    cause: &'static str,
    attempt: u32,
    died_ms: u128,
    reason: Option<String>,
    #[serde(flatten)]
    content: Content,
}

fn cause(cause: DeadCause) -> &'static str {
    match cause {
        DeadCause::Exhausted => "exhausted",
        DeadCause::Rejected => "rejected",
        DeadCause::Expired => "expired",
        _ => "damaged",
    }
}

impl From<&DeadLetter> for DeadView {
    fn from(letter: &DeadLetter) -> Self {
        Self {
            id: IdView::of(&letter.id),
            cause: cause(letter.cause),
            attempt: letter.attempt,
            died_ms: letter.died.as_millis(),
            reason: letter.reason.as_ref().map(|reason| reason.as_str().to_owned()),
            content: Content::of(&letter.payload),
        }
    }
}

pub(super) fn dead_line(letter: &DeadLetter) -> String {
    let reason = letter.reason.as_ref().map(|reason| format!(": {}", reason.as_str().escape_debug()));
    let (id, cause, died) = (id::show(&letter.id), cause(letter.cause), show(letter.died));
    format!("{id:<24} {cause} {died} ago, after {}{}", attempts(letter.attempt), reason.unwrap_or_default())
}

fn attempts(count: u32) -> String {
    if count == 1 { String::from("1 attempt") } else { format!("{count} attempts") }
}

#[derive(Debug, Serialize)]
pub(super) struct StatsView {
    #[serde(flatten)]
    queue: QueueView,
    scheduled: u64,
    ready: u64,
    in_flight: u64,
    dead: u64,
    lag_ms: u128,
    next_due_ms: Option<u128>,
    paused: bool,
}

impl StatsView {
    pub(super) fn of(queue: &[u8], stats: &QueueStats) -> Self {
        Self {
            queue: QueueView::of(queue),
            scheduled: stats.scheduled,
            ready: stats.ready,
            in_flight: stats.in_flight,
            dead: stats.dead,
            lag_ms: stats.lag.as_millis(),
            next_due_ms: stats.next_due.map(|span| span.as_millis()),
            paused: stats.flow == Flow::Paused,
        }
    }

    pub(super) const HEADER: &'static str = "QUEUE                       SCHEDULED    READY  IN FLIGHT     DEAD  LAG";

    pub(super) fn row(&self) -> String {
        let lag = show(Duration::from_millis(u64::try_from(self.lag_ms).unwrap_or(u64::MAX)));
        let paused = if self.paused { "  paused" } else { "" };
        let Self { queue: QueueView { queue, .. }, scheduled, ready, in_flight, dead, .. } = self;
        format!("{queue:<26} {scheduled:>10} {ready:>8} {in_flight:>10} {dead:>8}  {lag}{paused}")
    }
}
