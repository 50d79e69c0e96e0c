//! One of the two queues.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::Result;
use tenure_core::driver::{
    DeadPlace, DeadSelection, DelayQueueExt as _, Exchanged, Extension, Healed, Listed, MessageInfo, Next, Pushed,
    QueueAdmin, RawDelivery, Receipt, ReceiveRequest, Received, Settle, Settlement,
};
use tenure_core::queue::{MessageId, QueueName};

use super::op::{Op, Target};
use crate::Grow;

/// A queue of one of the two backends, and its replies.
#[derive(Debug)]
pub struct Side {
    queues: Arc<dyn QueueAdmin>,
    /// What this backend calls the messages, in the order of their pushes.
    pub(super) ids: Vec<MessageId>,
    pub(super) receipts: Vec<Receipt>,
    letters: Vec<DeadPlace>,
    fence: u64,
}

impl Side {
    /// A queue that is empty.
    #[must_use]
    pub fn new(queues: Arc<dyn QueueAdmin>) -> Self {
        Self { queues, ids: vec![], receipts: vec![], letters: vec![], fence: 0 }
    }

    /// Everything was lost. Fences continue beyond the earlier ones only where they come from the clock.
    pub fn forget(&mut self, fences: Grow) {
        let fence = if fences == Grow::On { self.fence } else { 0 };
        *self = Self { fence, ..Self::new(Arc::clone(&self.queues)) };
    }

    fn index(&self, id: &MessageId) -> String {
        match id.as_name() {
            Some(name) => String::from_utf8_lossy(name).into_owned(),
            None => match self.ids.iter().position(|known| known == id) {
                Some(at) => format!("#{at}"),
                None => "a number that was never returned".into(),
            },
        }
    }

    fn receipt(&self, index: usize) -> Option<Receipt> {
        self.receipts.get(index % self.receipts.len().max(1)).copied()
    }

    fn deliveries(&mut self, received: &Received) -> String {
        let reported: Vec<String> = received.deliveries.iter().map(|delivery| self.delivery(delivery)).collect();
        format!("{reported:?} {} {:?}", next(received.next), received.healed)
    }

    /// What comes until nothing more does, in any order, and all that is healed on the way; and when to ask again.
    async fn all(&mut self, request: &ReceiveRequest, mut received: Received) -> Result<(String, Next)> {
        let (mut reported, mut healed) = (Vec::new(), Healed::default());
        loop {
            reported.extend(received.deliveries.iter().map(|delivery| (self.reported(delivery), delivery.receipt)));
            let Healed { expired, dead, postponed, orphans, .. } = received.healed;
            healed.expired += expired;
            healed.dead += dead;
            healed.postponed += postponed;
            healed.orphans += orphans;
            if received.deliveries.len() < request.max && received.next != Next::Now {
                reported.sort_by(|(one, _), (other, _)| one.cmp(other));
                let (reported, receipts): (Vec<String>, Vec<Receipt>) = reported.into_iter().unzip();
                self.receipts.extend(receipts);
                return Ok((format!("{reported:?} {healed:?}"), received.next));
            }
            received = self.queues.receive(request).await?;
        }
    }

    fn delivery(&mut self, delivery: &RawDelivery) -> String {
        self.receipts.push(delivery.receipt);
        self.reported(delivery)
    }

    fn reported(&mut self, delivery: &RawDelivery) -> String {
        let falls = if delivery.fence.get() > self.fence { "" } else { " with a fence that falls" };
        self.fence = delivery.fence.get();
        let RawDelivery { attempt, attempts, cause, key, lock, payload, reason, recurrence, .. } = delivery;
        let (late, age) = (round(delivery.late), age(delivery.age));
        let id = self.index(&delivery.id);
        format!(
            "{id}{falls} {attempt}/{attempts:?} {cause:?} {late} {age} {key:?} {lock:?} {reason:?} {recurrence:?} {:?}",
            payload.as_bytes()
        )
    }
}

impl Side {
    fn info(&self, info: &MessageInfo) -> String {
        let (id, due, age) = (self.index(&info.id), round(info.due_in), age(info.age));
        let (expires, payload) = (info.expires_in.map(round), info.payload.as_bytes());
        let rest = (info.state, info.attempt, info.attempts, &info.key, &info.lock, &info.reason, &info.recurrence);
        format!("{id} {due} {age} {expires:?} {rest:?} {payload:?}")
    }
}

fn round(span: Duration) -> u128 {
    span.as_micros()
}

/// In whole seconds: at the server, a message is as old as its number says, and those of a batch follow one another.
fn age(span: Duration) -> u128 {
    (span + Duration::from_millis(500)).as_secs().into()
}

fn next(next: Next) -> String {
    match next {
        Next::In(span) => format!("in {}", round(span)),
        other => format!("{other:?}"),
    }
}

fn settles(side: &Side, list: &[(usize, Settlement)]) -> Vec<Settle> {
    list.iter().filter_map(|(index, how)| Some(Settle::new(side.receipt(*index)?, how.clone()))).collect()
}

fn target(side: &Side, target: &Target) -> MessageId {
    match target {
        Target::Index(index) if !side.ids.is_empty() => side.ids[index % side.ids.len()].clone(),
        Target::Index(_) => MessageId::named("nobody").unwrap(),
        Target::Named(id) => id.clone(),
    }
}

/// How the two answers differ, if they do.
#[must_use]
pub fn difference(op: &Op, answer: &str, expected: &str) -> Option<String> {
    (answer != expected).then(|| format!("{op:?}\n  is answered {answer}\n  in memory   {expected}"))
}

/// What an operation came to, in words that are the same on both sides.
pub async fn apply(side: &mut Side, jobs: &QueueName, op: &Op) -> String {
    told_of(done(side, jobs, op).await)
}

/// The same, for a backend that sees to more or to less when it has handed out all that was asked for: it is asked until it
/// hands out no more, and the messages are listed in any order. Also when it is to be asked again.
pub async fn apply_fully(side: &mut Side, jobs: &QueueName, op: &Op) -> (String, Option<Next>) {
    let Op::Receive(list, max, lease) = op else { return (apply(side, jobs, op).await, None) };
    let (queues, request) = (Arc::clone(&side.queues), ReceiveRequest::new(jobs.clone(), *max, *lease));
    let settles = settles(side, list);
    let answer = async {
        let Exchanged { settled, received, .. } = queues.exchange(&settles, &request).await?;
        let (reported, next) = side.all(&request, received).await?;
        Ok((format!("{settled:?} {reported}"), next))
    };
    match answer.await {
        Ok((reported, next)) => (reported, Some(next)),
        Err(error) => (told_of(Err(error)), None),
    }
}

fn told_of(answer: Result<String>) -> String {
    answer.unwrap_or_else(|error| format!("refused: {:?}", error.kind()))
}

fn reported(answer: impl Debug) -> String {
    format!("{answer:?}")
}

async fn done(side: &mut Side, jobs: &QueueName, op: &Op) -> Result<String> {
    let queues = Arc::clone(&side.queues);
    let request = |max, lease| ReceiveRequest::new(jobs.clone(), max, lease);
    Ok(match op {
        Op::Push(messages) => {
            let pushed = queues.push(jobs, messages).await?;
            let tell = |answer: &Pushed| match answer {
                Pushed::Stored(id) => {
                    side.ids.push(id.clone());
                    side.index(id)
                }
                Pushed::Replaced(id) => {
                    side.ids.push(id.clone());
                    format!("{} anew", side.index(id))
                }
                known => reported(known),
            };
            reported(pushed.iter().map(tell).collect::<Vec<_>>())
        }
        Op::Receive(list, max, lease) if list.is_empty() => {
            let received = queues.receive(&request(*max, *lease)).await?;
            side.deliveries(&received)
        }
        Op::Receive(list, max, lease) => {
            let settles = settles(side, list);
            let Exchanged { settled, received, .. } = queues.exchange(&settles, &request(*max, *lease)).await?;
            format!("{settled:?} {}", side.deliveries(&received))
        }
        Op::Settle(list) => reported(queues.settle(jobs, &settles(side, list)).await?),
        Op::Extend(index, lease) => {
            let receipts = side.receipt(*index).into_iter();
            let extensions: Vec<_> = receipts.map(|receipt| Extension::new(receipt, *lease)).collect();
            reported(queues.extend(jobs, &extensions).await?)
        }
        Op::Cancel(which) => reported(queues.cancel(jobs, &target(side, which)).await?),
        Op::Reschedule(which, delay) => reported(queues.reschedule(jobs, &target(side, which), *delay).await?),
        Op::Get(which) => match queues.get(jobs, &target(side, which)).await? {
            None => "none".into(),
            Some(info) => side.info(&info),
        },
        Op::Messages(which, max) => {
            // Messages behind their keys may come after all others.
            let (mut all, mut from) = (Vec::new(), None);
            loop {
                let page = queues.list(jobs, *which, from, *max).await?;
                let sorted = *which == Listed::Waiting || page.messages.is_sorted_by_key(|info| info.due_in);
                if page.messages.len() > *max || !sorted {
                    return Ok(format!("a page that is too long, or not in order: {page:?}"));
                }
                all.extend(page.messages.iter().map(|info| side.info(info)));
                from = page.next;
                if from.is_none() {
                    break;
                }
            }
            all.sort();
            reported(all)
        }
        Op::Limit(limits) => {
            queues.limit(jobs, limits).await?;
            String::new()
        }
        Op::Stats => {
            let stats = queues.stats(jobs).await?;
            let (lag, due) = (round(stats.lag), stats.next_due.map(round));
            reported((stats.scheduled, stats.ready, stats.in_flight, stats.dead, lag, due, stats.flow, stats.limits))
        }
        Op::Pause => {
            queues.pause(jobs).await?;
            String::new()
        }
        Op::Resume => {
            queues.resume(jobs).await?;
            String::new()
        }
        Op::Purge(max) => {
            // One step. That nothing is left behind it need not be known yet, and a step more then removes nothing.
            let step = queues.purge(jobs, *max, None).await?;
            let idle = step.next.is_some() && *max > 0 && step.removed == 0;
            if idle { "a step that removes nothing is not the last".into() } else { reported(step.removed) }
        }
        Op::List => reported(queues.list_queues(None, 3).await?),
        Op::DeadList(after, max) => {
            let after = after.filter(|_| !side.letters.is_empty()).map(|i| side.letters[i % side.letters.len()]);
            let page = queues.dead_list(jobs, after, *max).await?;
            side.letters.extend(page.letters.iter().map(|letter| letter.place));
            let tell = |letter: &tenure_core::driver::DeadLetter| {
                let rest = (letter.attempt, letter.cause, &letter.reason, round(letter.died));
                format!("{} {rest:?} {:?}", side.index(&letter.id), letter.payload.as_bytes())
            };
            reported((page.letters.iter().map(tell).collect::<Vec<_>>(), page.rest))
        }
        Op::Redrive(which, delay) => {
            let mut ids: Vec<MessageId> = which.iter().map(|which| target(side, which)).collect();
            ids.sort();
            ids.dedup();
            reported(queues.dead_redrive(jobs, &DeadSelection::Ids(ids), *delay).await?)
        }
        Op::RedriveOldest(count, delay) => {
            reported(queues.dead_redrive(jobs, &DeadSelection::Oldest(*count), *delay).await?)
        }
        Op::DeadPurge(count) => reported(queues.dead_purge(jobs, &DeadSelection::Oldest(*count)).await?),
        Op::Flush | Op::Pass(_) => String::new(), // not a client's
    })
}
