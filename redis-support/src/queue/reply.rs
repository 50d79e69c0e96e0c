//! What the answers of the queues' scripts mean.

use std::time::Duration;

use tenure_core::driver::{
    Cancelled, DeadLetter, DeadPage, DeadPlace, Extended, Flow, Healed, ListPlace, MessageInfo, MessagePage,
    MessageState, NewMessage, Next, PurgePlace, PurgeStep, Pushed, QueueStats, RawDelivery, Receipt, Received,
    Rescheduled, Rest, Settled, TurnGiven,
};
use tenure_core::queue::{MessageId, QueueLimits, Rate, Reason};
use tenure_core::{Error, FencingToken, Result};

use super::form::{Record, State, damaged_because, hex, read_or_guess, span};
use crate::dial::Reply;
use crate::reply::{floor_ahead, unexpected};

fn at(items: &[Reply], i: usize) -> Result<&Reply> {
    items.get(i).ok_or_else(|| unexpected("the answer is too short"))
}

/// A count, or where to go on.
pub(super) fn number(reply: &Reply) -> Result<u64> {
    u64::try_from(reply.int()?).map_err(|_| unexpected("a number is negative"))
}

fn small(reply: &Reply) -> Result<u32> {
    u32::try_from(reply.int()?).map_err(|_| unexpected("a number is out of range"))
}

fn rest(reply: &Reply) -> Result<Rest> {
    Ok(if reply.int()? > 0 { Rest::More } else { Rest::None })
}

fn state(code: i64) -> Result<MessageState> {
    Ok(match code {
        1 => MessageState::Scheduled,
        2 => MessageState::Ready,
        3 => MessageState::InFlight,
        4 => MessageState::Dead,
        5 => MessageState::Settled,
        _ => return Err(unexpected("an unknown state")),
    })
}

/// One answer for each of `count`.
fn each<T>(reply: &Reply, count: usize, one: impl Fn(&Reply) -> Result<T>) -> Result<Vec<T>> {
    let items = reply.items()?;
    if items.len() != count {
        return Err(unexpected("the number of answers differs from that of the requests"));
    }
    items.iter().map(one).collect()
}

/// The answer of a push; `None` when the queue is full.
pub(super) fn pushed(reply: &Reply, messages: &[NewMessage]) -> Result<Option<Vec<Pushed>>> {
    match reply {
        Reply::Int(-1) => return Ok(None),
        Reply::Array(_) => {}
        last => {
            let (last, count) = (hex(last.bytes()?)?, messages.len() as u64);
            let before = last.checked_sub(count).ok_or_else(|| unexpected("a number is too small"))?;
            return Ok(Some((before + 1..=last).map(|number| Pushed::Stored(MessageId::assigned(number))).collect()));
        }
    }
    let mut messages_left = messages.iter();
    let answers = each(reply, messages.len(), |answer| Ok(answer.clone()))?;
    let read = |answer: Reply| {
        let named = messages_left.next().and_then(|message| message.id.as_ref());
        Ok(match answer {
            Reply::Int(code) => Pushed::Duplicate(state(code)?),
            stored => {
                let bytes = stored.bytes()?;
                let id = |number| named.map_or_else(|| MessageId::assigned(number), |named| named.id.clone());
                match bytes.strip_prefix(b"r") {
                    Some(number) => Pushed::Replaced(id(hex(number)?)),
                    None => Pushed::Stored(id(hex(bytes)?)),
                }
            }
        })
    };
    answers.into_iter().map(read).collect::<Result<_>>().map(Some)
}

/// The two parts of the answer of a turn; or the floor that kept it from being one.
fn of_turn(reply: &Reply) -> Result<&[Reply]> {
    match reply {
        Reply::Int(floor) => Err(floor_ahead(floor.unsigned_abs())),
        parts => parts.items(),
    }
}

/// The answers of settlements.
pub(super) fn settled(reply: &Reply, count: usize) -> Result<Vec<Settled>> {
    each(at(of_turn(reply)?, 0)?, count, |answer| {
        Ok(match answer.int()? {
            0 => Settled::Stale,
            1 => Settled::Done,
            2 => Settled::Dead,
            3 => Settled::Postponed,
            _ => return Err(unexpected("an unknown settlement")),
        })
    })
}

/// A delivery that cannot be read.
#[derive(Debug)]
pub(super) struct Damaged {
    pub(super) receipt: Receipt,
    pub(super) reason: Reason,
}

/// What a receive handed out, and what of it cannot be read.
pub(super) fn received(reply: &Reply) -> Result<(Received, Vec<Damaged>)> {
    let items = at(of_turn(reply)?, 1)?.items()?;
    let now = number(at(items, 0)?)?;
    let next = match at(items, 1)?.int()? {
        -2 => Next::Paused,
        -1 => Next::Never,
        0 => Next::Now,
        _ => Next::In(Duration::from_micros(number(&items[1])?)),
    };
    let healed = Healed::default()
        .with_expired(small(at(items, 2)?)?)
        .with_dead(small(at(items, 3)?)?)
        .with_postponed(small(at(items, 4)?)?)
        .with_orphans(small(at(items, 5)?)?);
    let (mut deliveries, mut damaged) = (Vec::new(), Vec::new());
    for items in items[6..].chunks(4) {
        match one_delivery(items, now) {
            Ok(delivery) => deliveries.push(delivery),
            Err(error) => damaged.extend(damage(items, &error)),
        }
    }
    Ok((Received::new(deliveries, next).with_healed(healed), damaged))
}

/// A delivery that cannot even be named is left to the end of its lease.
fn damage(items: &[Reply], error: &Error) -> Option<Damaged> {
    let [id, _, state, _] = items else { return None };
    let fence = hex(state.bytes().ok()?.get(11..25)?).ok()?;
    let receipt = Receipt::new([hex(id.bytes().ok()?).ok()?, fence, 0]);
    Some(Damaged { receipt, reason: damaged_because(error) })
}

fn one_delivery(items: &[Reply], now: u64) -> Result<RawDelivery> {
    let [id, late, before, record] = items else { return Err(unexpected("a delivery is cut")) };
    let number_ = hex(id.bytes()?)?;
    let record = Record::read(record.bytes()?)?;
    let state = State::read(before.bytes()?)?;
    let fence = FencingToken::new(state.fence).ok_or_else(|| unexpected("a fence is not positive"))?;
    Ok(RawDelivery::new(record.id(number_), record.payload, fence, Receipt::new([number_, state.fence, 0]))
        .with_attempt(state.attempt)
        .with_attempts(record.attempts)
        .with_cause(state.cause)
        .with_late(number(late).map_or(Duration::ZERO, Duration::from_micros))
        .with_age(span(number_, now))
        .with_key(record.key)
        .with_lock(record.lock)
        .with_turn(state.turn)
        .with_reason(state.reason)
        .with_recurrence(record.recurrence))
}

/// The answers of extensions.
pub(super) fn extended(reply: &Reply, count: usize) -> Result<Vec<Extended>> {
    each(reply, count, |answer| Ok(if answer.int()? == 1 { Extended::Extended } else { Extended::Stale }))
}

/// The answer of a cancellation.
pub(super) fn cancelled(reply: &Reply) -> Result<Cancelled> {
    Ok(match reply.int()? {
        0 => Cancelled::NotFound,
        1 => Cancelled::Removed,
        3 => Cancelled::InFlight,
        4 => Cancelled::Dead,
        _ => return Err(unexpected("an unknown cancellation")),
    })
}

/// The answer of a change of the due time.
pub(super) fn rescheduled(reply: &Reply) -> Result<Rescheduled> {
    Ok(match reply.int()? {
        0 => Rescheduled::NotFound,
        1 => Rescheduled::Moved,
        3 => Rescheduled::InFlight,
        4 => Rescheduled::Dead,
        _ => return Err(unexpected("an unknown change of the due time")),
    })
}

/// The answer to a turn that is given to a message.
pub(super) fn turn_given(reply: &Reply) -> Result<TurnGiven> {
    Ok(match reply.int()? {
        0 => TurnGiven::NotParked,
        1 => TurnGiven::Due,
        2 => TurnGiven::Paused,
        _ => return Err(unexpected("an unknown answer to a turn")),
    })
}

/// What can be seen of a message.
pub(super) fn info(reply: &Reply) -> Result<Option<MessageInfo>> {
    let items = reply.items()?;
    let [now, id, standing, time, record, stored] = items else {
        return if items.is_empty() { Ok(None) } else { Err(unexpected("a message is cut")) };
    };
    let read = read_or_guess(record.bytes()?, stored.bytes()?);
    one_message(number(now)?, [id, standing, time], read).map(Some)
}

fn one_message(now: u64, [id, standing, time]: [&Reply; 3], (record, stored): (Record, State)) -> Result<MessageInfo> {
    let number_ = hex(id.bytes()?)?;
    Ok(MessageInfo::new(record.id(number_), state(standing.int()?)?, record.payload)
        .with_attempt(stored.attempt)
        .with_attempts(record.attempts)
        .with_due_in(span(now, number(time)?))
        .with_age(span(number_, now))
        .with_key(record.key)
        .with_lock(record.lock)
        .with_reason(stored.reason)
        .with_expires_in((record.expires > 0).then(|| span(now, record.expires)))
        .with_recurrence(record.recurrence))
}

/// A page of messages, without those that are damaged.
pub(super) fn page(reply: &Reply) -> Result<MessagePage> {
    let items = reply.items()?;
    let (now, set) = (number(at(items, 0)?)?, at(items, 1)?.bytes()?);
    let place = [u64::from(set == b"H"), number(at(items, 2)?)?, hex(at(items, 3)?.bytes()?)?];
    let next = (!set.is_empty()).then(|| ListPlace::new(place));
    let mut messages = Vec::new();
    for items in items[4..].chunks(5) {
        let [id, standing, time, record, stored] = items else { return Err(unexpected("a message is cut")) };
        if let (Ok(record), Ok(stored)) = (Record::read(record.bytes()?), State::read(stored.bytes()?)) {
            messages.push(one_message(now, [id, standing, time], (record, stored))?);
        }
    }
    Ok(MessagePage::new(messages, next))
}

/// What can be seen of a queue.
pub(super) fn stats(reply: &Reply) -> Result<QueueStats> {
    let items = reply.items()?;
    let count = |i: usize| at(items, i).and_then(number);
    let next_due = at(items, 5)?.int()?;
    Ok(QueueStats::default()
        .with_scheduled(count(0)?)
        .with_ready(count(1)?)
        .with_in_flight(count(2)?)
        .with_dead(count(3)?)
        .with_lag(Duration::from_micros(count(4)?))
        .with_next_due(u64::try_from(next_due).ok().map(Duration::from_micros))
        .with_flow(if count(6)? == 1 { Flow::Paused } else { Flow::Running })
        .with_limits(limits(&items[7..])?))
}

fn limits(items: &[Reply]) -> Result<QueueLimits> {
    let mut limits = QueueLimits::none();
    let (most, deliveries) = (small(at(items, 0)?)?, small(at(items, 1)?)?);
    if most > 0 {
        limits = limits.in_flight(most)?;
    }
    if deliveries > 0 {
        limits = limits.rate(Rate::new(deliveries, Duration::from_micros(number(at(items, 2)?)?))?);
    }
    Ok(limits)
}

/// How many were removed, and where to go on, if there are more.
pub(super) fn purged(reply: &Reply) -> Result<PurgeStep> {
    let items = reply.items()?;
    let next = match items {
        [_, newest, at] => Some(PurgePlace { newest: hex(newest.bytes()?)?, at: number(at)? }),
        _ => None,
    };
    Ok(PurgeStep::new(number(at(items, 0)?)?, next))
}

/// A page of dead letters.
pub(super) fn dead_page(reply: &Reply) -> Result<DeadPage> {
    let items = reply.items()?;
    let (now, rest) = (number(at(items, 0)?)?, rest(at(items, 1)?)?);
    let one = |items: &[Reply]| {
        let [id, stamp, record, stored] = items else { return Err(unexpected("a dead letter is cut")) };
        let place = DeadPlace { stamp: number(stamp)?, number: hex(id.bytes()?)? };
        let (record, stored) = read_or_guess(record.bytes()?, stored.bytes()?);
        Ok(DeadLetter::new(record.id(place.number), place, record.payload, stored.dead)
            .with_attempt(stored.attempt)
            .with_reason(stored.reason)
            .with_died(span(place.stamp, now)))
    };
    Ok(DeadPage::new(items[2..].chunks(4).map(one).collect::<Result<_>>()?, rest))
}

/// How many, and whether there are more.
pub(super) fn moved(reply: &Reply) -> Result<(u64, Rest)> {
    let items = reply.items()?;
    Ok((number(at(items, 0)?)?, rest(at(items, 1)?)?))
}
