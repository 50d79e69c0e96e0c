//! What is wrong with a delay queue, said in what goes in and what comes out.

use tenure_core::driver::{
    Cancelled, DeadPage, Delay, Extended, Extension, Listed, LockTurn, MessageInfo, MessagePage, NewMessage, Pushed,
    QueueCapabilities, QueuePage, QueueStats, ReceiveRequest, Received, Rescheduled, Settle, Settled,
};
use tenure_core::queue::{QueueLimits, QueueName};

pub(super) use super::delay_quirk::Quirk;

/// A delay queue with one thing wrong: requests and answers pass through these.
#[derive(Clone, Copy)]
pub(super) struct Bend {
    pub(super) queue: fn(&QueueName) -> QueueName,
    pub(super) push: fn(&mut NewMessage),
    pub(super) pushed: fn(&mut Vec<Pushed>),
    pub(super) ask: fn(&mut ReceiveRequest),
    pub(super) received: fn(&mut Received),
    pub(super) settle: fn(&mut Settle),
    pub(super) settled: fn(&mut Vec<Settled>),
    pub(super) extend: fn(&mut Extension),
    pub(super) extended: fn(Extended) -> Extended,
    pub(super) cancelled: fn(Cancelled) -> Cancelled,
    pub(super) reschedule: fn(Delay) -> Delay,
    pub(super) turn: fn(&LockTurn) -> LockTurn,
    pub(super) rescheduled: fn(Rescheduled) -> Rescheduled,
    pub(super) info: fn(&mut MessageInfo),
    pub(super) list: fn(Listed) -> Listed,
    pub(super) page: fn(&mut MessagePage),
    pub(super) limit: fn(&QueueLimits) -> QueueLimits,
    pub(super) stats: fn(&mut QueueStats),
    pub(super) queues: fn(&mut QueuePage),
    pub(super) letters: fn(&mut DeadPage),
    pub(super) capabilities: fn(&mut QueueCapabilities),
    pub(super) quirk: Quirk,
}

pub(super) const STRAIGHT: Bend = Bend {
    queue: QueueName::clone,
    push: |_| {},
    pushed: |_| {},
    ask: |_| {},
    received: |_| {},
    settle: |_| {},
    settled: |_| {},
    extend: |_| {},
    extended: |answer| answer,
    cancelled: |answer| answer,
    reschedule: |delay| delay,
    turn: LockTurn::clone,
    rescheduled: |answer| answer,
    info: |_| {},
    list: |which| which,
    page: |_| {},
    limit: QueueLimits::clone,
    stats: |_| {},
    queues: |_| {},
    letters: |_| {},
    capabilities: |_| {},
    quirk: Quirk::None,
};
