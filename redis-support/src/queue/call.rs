//! The calls of the queues' scripts and their answers. The scripts' headers give the same information.

#[cfg(test)]
mod tests;

use std::time::Duration;

use tenure_core::driver::{
    Cancelled, DeadLetter, DeadPage, DeadPlace, DeadSelection, Delay, Due, Extended, Extension, Flow, Healed, IfKnown,
    ListPlace, Listed, LockTurn, MessageInfo, MessagePage, MessageState, NewMessage, Next, PurgePlace, PurgeStep,
    Pushed, QueueStats, RawDelivery, Receipt, ReceiveRequest, Received, Rescheduled, Rest, Settle, Settled, Settlement,
    TurnGiven,
};
use tenure_core::queue::{MessageId, QueueLimits, QueueName, Rate, Reason};
use tenure_core::{Error, ErrorKind, FencingToken, Result};

use super::form::{Record, State, damaged_because, hex, read_or_guess, span, write_record, write_turn};
use crate::call::{Calls, floor_ahead, unexpected};
use crate::script::Reply;
use crate::script::{self, ArgList, Script, ScriptCall};
use crate::settings::Fences;

/// The most messages, settlements or extensions of one script.
pub(super) const BATCH: usize = 256;
/// The most messages that one script hands out, which is the longest of its work.
const HANDED_OUT: usize = 128;
/// The most bytes of payloads, names and texts that one push carries: some 4 ms of the server's time. Less than the batch of the largest ones,
/// since a push is all or none and cannot be split.
pub(super) const PUSHED_BYTES: usize = 1024 * 1024;
/// How long the counters of a queue outlive their last use, in ms: 30 days. Both begin at the clock again.
const KEEP_MS: u64 = 30 * 86_400_000;

/// Whether the client waits for what it did not get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Listening {
    Yes,
    No,
}

impl Calls {
    /// A call on all keys of `queue`; its first arguments are name, channel prefix and keep, as most scripts want.
    fn on_queue(&self, script: &'static Script, queue: &QueueName, more: usize) -> ScriptCall {
        let mut call = self.on_keys(script, queue, more + 3);
        call.args.push(queue.as_bytes());
        call.args.push(self.channel_prefix());
        call.args.push_number(self.keep());
        call
    }

    fn on_keys(&self, script: &'static Script, queue: &QueueName, args: usize) -> ScriptCall {
        let mut keys = ArgList::with_capacity(13);
        self.keys.push_dq(&mut keys, queue);
        ScriptCall { script, keys, args: ArgList::with_capacity(args) }
    }

    fn keep(&self) -> u64 {
        match self.settings.fences {
            Fences::ClockSeeded => KEEP_MS,
            Fences::Counter => 0, // a counter that is forgotten would start again
        }
    }

    pub(super) fn queue_push(&self, queue: &QueueName, messages: &[NewMessage]) -> Result<ScriptCall> {
        check_count(messages.len())?;
        check_bytes(messages.iter().map(NewMessage::bytes).sum())?;
        let mut call = self.on_queue(&script::QUEUE_PUSH, queue, 1 + 3 * messages.len());
        call.args.push_number(self.settings.max_backlog.unwrap_or(0));
        for message in messages {
            let (Due::After(delay) | Due::Parked { at_most: delay }) = message.due;
            match message.ttl {
                Some(ttl) => call.args.push_format(format_args!("{};{}", delay.as_micros(), ttl.as_micros())),
                None => call.args.push_number(delay.as_micros()),
            }
            call.args.push_with(|out| push_name(out, message));
            call.args.push_with(|out| write_record(out, message));
        }
        Ok(call)
    }

    /// Settlements, then a request, of which there is at least one.
    pub(super) fn queue_turn(
        &self,
        queue: &QueueName,
        settles: &[Settle],
        request: Option<&ReceiveRequest>,
        listening: Listening,
    ) -> Result<ScriptCall> {
        check_count(settles.len())?;
        check_count(request.map_or(0, |request| request.max))?;
        let mut call = self.turn_of(queue, request, listening, settles.len());
        for settle in settles {
            call.args.push(settlement(settle)?);
        }
        Ok(call)
    }

    /// A turn whose settlements are to follow.
    fn turn_of(
        &self,
        queue: &QueueName,
        request: Option<&ReceiveRequest>,
        listening: Listening,
        settles: usize,
    ) -> ScriptCall {
        let mut call = self.on_queue(&script::QUEUE_TURN, queue, 6 + settles);
        call.args.push(match self.settings.fences {
            Fences::ClockSeeded => "clock",
            Fences::Counter => "counter",
        });
        call.args.push_number(self.settings.max_dead_letters);
        call.args.push(if listening == Listening::Yes { self.keys.client() } else { "" });
        call.args.push_number(request.map_or(0, |request| request.max.min(HANDED_OUT) as u64));
        call.args.push_number(request.map_or(0, |request| request.lease.as_micros()));
        call.args.push_number(self.settings.fence_floor.get());
        call
    }

    pub(super) fn queue_bury_damaged(&self, queue: &QueueName, damaged: &[Damaged]) -> ScriptCall {
        let mut call = self.turn_of(queue, None, Listening::No, damaged.len());
        for Damaged { receipt, reason } in damaged {
            let [number, fence, _] = receipt.parts();
            call.args.push(format!("{number:014x}{fence:014x}x={}", reason.as_str()));
        }
        call
    }

    pub(super) fn queue_extend(&self, queue: &QueueName, extensions: &[Extension]) -> Result<ScriptCall> {
        check_count(extensions.len())?;
        let mut call = self.on_keys(&script::QUEUE_EXTEND, queue, 1 + 2 * extensions.len());
        call.args.push_number(self.keep());
        for extension in extensions {
            let [number, fence, _] = extension.receipt.parts();
            call.args.push(format!("{number:014x}{fence:014x}"));
            call.args.push_number(extension.lease.as_micros());
        }
        Ok(call)
    }

    pub(super) fn queue_cancel(&self, queue: &QueueName, id: &MessageId) -> ScriptCall {
        let mut call = self.on_queue(&script::QUEUE_CANCEL, queue, 1);
        push_id(&mut call.args, id);
        call
    }

    pub(super) fn queue_reschedule(&self, queue: &QueueName, id: &MessageId, delay: Delay) -> ScriptCall {
        let mut call = self.on_queue(&script::QUEUE_RESCHEDULE, queue, 2);
        push_id(&mut call.args, id);
        call.args.push_number(delay.as_micros());
        call
    }

    pub(super) fn queue_give_turn(&self, queue: &QueueName, id: &MessageId, turn: &LockTurn) -> ScriptCall {
        let mut call = self.on_queue(&script::QUEUE_GIVE_TURN, queue, 2);
        push_id(&mut call.args, id);
        call.args.push_with(|out| write_turn(out, turn));
        call
    }

    pub(super) fn queue_get(&self, queue: &QueueName, id: &MessageId) -> ScriptCall {
        let mut call = self.on_keys(&script::QUEUE_GET, queue, 1);
        push_id(&mut call.args, id);
        call
    }

    pub(super) fn queue_page(
        &self,
        queue: &QueueName,
        which: Listed,
        from: Option<ListPlace>,
        max: usize,
    ) -> ScriptCall {
        let mut call = self.on_keys(&script::QUEUE_PAGE, queue, 5);
        call.args.push(match which {
            Listed::Waiting => "waiting",
            Listed::InFlight => "flying",
        });
        let [held, score, number] = from.map_or([0; 3], |place| place.parts());
        call.args.push(if held == 0 { "T" } else { "H" });
        call.args.push_number(score);
        call.args.push(format!("{number:014x}"));
        call.args.push_number(max.min(BATCH) as u64);
        call
    }

    pub(super) fn queue_limit(&self, queue: &QueueName, limits: &QueueLimits, from: u64) -> ScriptCall {
        let (most, rate) = (limits.max_in_flight(), limits.max_rate());
        let mut call = self.on_queue(&script::QUEUE_LIMIT, queue, 4);
        call.args.push_number(most.map_or(0, |most| most.get().into()));
        call.args.push_number(rate.map_or(0, |rate| rate.deliveries().get().into()));
        call.args.push_number(rate.map_or(0, |rate| rate.per().as_micros() as u64)); // at most a day
        call.args.push_number(from);
        call
    }

    pub(super) fn queue_stats(&self, queue: &QueueName) -> ScriptCall {
        self.on_keys(&script::QUEUE_STATS, queue, 0)
    }

    pub(super) fn queue_pause(&self, queue: &QueueName) -> ScriptCall {
        self.on_queue(&script::QUEUE_PAUSE, queue, 0)
    }

    pub(super) fn queue_resume(&self, queue: &QueueName) -> ScriptCall {
        self.on_queue(&script::QUEUE_RESUME, queue, 0)
    }

    pub(super) fn queue_purge(&self, queue: &QueueName, max: usize, from: Option<PurgePlace>) -> ScriptCall {
        let mut call = self.on_queue(&script::QUEUE_PURGE, queue, 3);
        call.args.push_number(max.min(BATCH) as u64);
        call.args.push(from.map_or_else(String::new, |place| format!("{:014x}", place.newest)));
        call.args.push_number(from.map_or(0, |place| place.at));
        call
    }

    pub(super) fn queue_dead_list(&self, queue: &QueueName, after: Option<DeadPlace>, max: usize) -> ScriptCall {
        let mut call = self.on_keys(&script::QUEUE_DEAD_LIST, queue, 3);
        call.args.push_number(after.map_or(0, |place| place.stamp));
        call.args.push(format!("{:014x}", after.map_or(0, |place| place.number)));
        call.args.push_number(max.min(BATCH) as u64);
        call
    }

    pub(super) fn queue_dead_redrive(
        &self,
        queue: &QueueName,
        which: &DeadSelection,
        delay: Delay,
    ) -> Result<ScriptCall> {
        let mut call = self.on_queue(&script::QUEUE_DEAD_REDRIVE, queue, 3);
        call.args.push_number(delay.as_micros());
        push_selection(&mut call.args, which)?;
        Ok(call)
    }

    pub(super) fn queue_dead_purge(&self, queue: &QueueName, which: &DeadSelection) -> Result<ScriptCall> {
        let mut call = self.on_queue(&script::QUEUE_DEAD_PURGE, queue, 2);
        push_selection(&mut call.args, which)?;
        Ok(call)
    }

    pub(super) fn queue_listen(&self, queue: &QueueName) -> ScriptCall {
        let mut call = self.on_keys(&script::QUEUE_LISTEN, queue, 2);
        call.args.push_number(self.keep());
        call.args.push(self.keys.client());
        call
    }

    pub(super) fn queue_list(&self, group: u16, after: Option<&[u8]>, max: usize) -> ScriptCall {
        let mut keys = ArgList::with_capacity(1);
        self.keys.push_dq_index(&mut keys, group);
        let mut args = ArgList::with_capacity(2);
        args.push_with(|out| match after {
            Some(name) => [b"(", name].iter().for_each(|part| out.extend_from_slice(part)),
            None => out.push(b'-'),
        });
        args.push_number(max as u64);
        ScriptCall { script: &script::QUEUE_LIST, keys, args }
    }

    /// All of these queues are in this group.
    pub(super) fn queue_living(&self, group: u16, queues: &[&QueueName]) -> ScriptCall {
        let mut keys = ArgList::with_capacity(1 + 4 * queues.len());
        self.keys.push_dq_index(&mut keys, group);
        let mut args = ArgList::with_capacity(queues.len());
        for queue in queues {
            self.keys.push_dq_signs(&mut keys, queue);
            args.push(queue.as_bytes());
        }
        ScriptCall { script: &script::QUEUE_LIVING, keys, args }
    }
}

fn check_count(count: usize) -> Result<()> {
    if count > BATCH {
        let text = format!("{count} at once are more than {BATCH}, the batch size of this backend's queues");
        return Err(Error::new(ErrorKind::InvalidArgument, text));
    }
    Ok(())
}

fn check_bytes(bytes: usize) -> Result<()> {
    if bytes > PUSHED_BYTES {
        let text = format!("{bytes} bytes in one push are more than {PUSHED_BYTES}: push fewer messages at once");
        return Err(Error::new(ErrorKind::InvalidArgument, text));
    }
    Ok(())
}

/// One settlement, as the part of settling takes it.
fn settlement(settle: &Settle) -> Result<Vec<u8>> {
    let [number, fence, _] = settle.receipt.parts();
    let mut text = format!("{number:014x}{fence:014x}");
    let tell = |text: &mut String, reason: &Option<Reason>| {
        if let Some(reason) = reason {
            text.push('=');
            text.push_str(reason.as_str());
        }
    };
    match &settle.how {
        Settlement::Ack => text.push('a'),
        Settlement::Retry { after, reason } => {
            text.push_str(&format!("r{:014x}", after.as_micros()));
            tell(&mut text, reason);
        }
        Settlement::Return { after } => text.push_str(&format!("b{:014x}", after.as_micros())),
        Settlement::Park { at_most, .. } => text.push_str(&format!("p{:014x}", at_most.as_micros())),
        Settlement::Recur { after, recurrence, reason } => {
            let recurrence = recurrence.as_str();
            text.push_str(&format!("c{:014x}{:04x}{recurrence}", after.as_micros(), recurrence.len()));
            tell(&mut text, reason);
        }
        Settlement::Dead { reason } => {
            text.push('d');
            tell(&mut text, reason);
        }
        other => {
            let text = format!("this driver does not know the settlement {other:?}");
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
    }
    Ok(text.into_bytes())
}

/// The name of a message, behind the choice for a message that is known by it.
fn push_name(out: &mut Vec<u8>, message: &NewMessage) {
    if let Some(name) = message.id.as_ref().and_then(|named| named.id.as_name()) {
        out.push(match message.if_known {
            IfKnown::Keep => b'k',
            IfKnown::Replace => b'r',
        });
        out.extend_from_slice(name);
    }
}

fn push_id(args: &mut ArgList, id: &MessageId) {
    args.push_with(|out| match (id.as_name(), id.as_number()) {
        (Some(name), _) => [b"n", name].iter().for_each(|part| out.extend_from_slice(part)),
        (None, number) => out.extend_from_slice(format!("#{:014x}", number.unwrap_or(0)).as_bytes()),
    });
}

fn push_selection(args: &mut ArgList, which: &DeadSelection) -> Result<()> {
    match which {
        DeadSelection::Ids(ids) => {
            check_count(ids.len())?;
            args.push("ids");
            ids.iter().for_each(|id| push_id(args, id));
        }
        DeadSelection::Oldest(count) => {
            args.push("oldest");
            args.push_number(count.min(&BATCH).to_owned() as u64);
        }
    }
    Ok(())
}

// What the answers mean.

fn at(items: &[Reply], i: usize) -> Result<&Reply> {
    items.get(i).ok_or_else(|| unexpected("the answer is too short"))
}

/// A count, or the place to continue from.
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

/// How many were removed, and the place to continue from, if there are more.
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
