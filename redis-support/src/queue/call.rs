//! Typed calls of the queues' scripts. The scripts' headers say the same.

#[cfg(test)]
mod tests;

use tenure_core::driver::{
    DeadPlace, DeadSelection, Delay, Due, Extension, IfKnown, ListPlace, Listed, LockTurn, NewMessage, PurgePlace,
    ReceiveRequest, Settle, Settlement,
};
use tenure_core::queue::{MessageId, QueueLimits, QueueName, Reason};
use tenure_core::{Error, ErrorKind, Result};

use super::form::{write_record, write_turn};
use super::reply::Damaged;
use crate::call::Calls;
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
        let text = format!("{count} at once are more than {BATCH}, the batch of these queues");
        return Err(Error::new(ErrorKind::InvalidArgument, text));
    }
    Ok(())
}

fn check_bytes(bytes: usize) -> Result<()> {
    if bytes > PUSHED_BYTES {
        let text = format!(
            "{bytes} bytes in one push are more than {PUSHED_BYTES}, the most that these queues take: push fewer at once"
        );
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

/// The name of a message, behind what is to become of a known one.
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
