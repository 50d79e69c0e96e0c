//! The queue trait.

#[cfg(test)]
mod tests;

use async_trait::async_trait;
use tenure_core::driver::{
    Cancelled, DeadPage, DeadPlace, DeadSelection, Delay, DelayQueue, Exchanged, Extended, Extension, ListPlace,
    Listed, LockTurn, MessageInfo, MessagePage, NewMessage, Next, Parking, PurgePlace, PurgeStep, Purged, Pushed,
    QueueCapabilities, QueuePage, QueueStats, QueueWake, ReceiveRequest, Received, Redriven, Rescheduled, Rest, Settle,
    TurnGiven, Watch,
};
use tenure_core::queue::{MessageId, QueueLimits, QueueName};
use tenure_core::{Error, ErrorKind, LockName, Result};

use super::call::{self, BATCH, Damaged, Listening, PUSHED_BYTES};
use crate::link::Dialer;
use crate::lock::Driver;
use crate::script::{Reply, ScriptCall};

impl<D: Dialer> Driver<D> {
    /// Runs a script for `operation` on `queue`, and reads its answer.
    async fn on_queue<T>(
        &self,
        operation: &'static str,
        queue: &QueueName,
        call: Result<ScriptCall>,
        read: impl FnOnce(&Reply) -> Result<T> + Send,
    ) -> Result<T> {
        let name = LockName::new(queue.as_bytes())?;
        let reported = |error: Error| error.during(D::DRIVER, operation, &name);
        let reply = self.run(operation, &name, call.map_err(reported)?).await?;
        read(&reply).map_err(reported)
    }

    /// Moves deliveries that this client cannot read to the dead letters. One for which that fails comes again.
    async fn bury_damaged(&self, queue: &QueueName, damaged: Vec<Damaged>) {
        if !damaged.is_empty() {
            let call = self.calls().queue_bury_damaged(queue, &damaged);
            let _ = self.on_queue("receive", queue, Ok(call), |_| Ok(())).await;
        }
    }

    /// Settles handled messages also where nothing can be handed out. The next receive returns the reason.
    async fn only_settle(&self, queue: &QueueName, settles: &[Settle]) -> Result<Exchanged> {
        let received = Received::nothing(Next::Now);
        if settles.is_empty() {
            return Ok(Exchanged::new(Vec::new(), received));
        }
        let call = self.calls().queue_turn(queue, settles, None, Listening::No);
        let settled = self.on_queue("settle", queue, call, |answer| call::settled(answer, settles.len())).await?;
        Ok(Exchanged::new(settled, received))
    }

    fn listening(&self, queue: &QueueName) -> Listening {
        if self.0.wake.queues().is_watched(queue) { Listening::Yes } else { Listening::No }
    }
}

/// Every method is one round trip, with these exceptions: a receive that meets a message which only the client finds damaged
/// sends one more; `list_queues` needs two or more, since a script must stay short
/// and in one slot (in a cluster it asks each of the 256 groups of queues); nothing is sent for an empty list.
#[async_trait]
impl<D: Dialer> DelayQueue for Driver<D> {
    fn capabilities(&self) -> QueueCapabilities {
        let settings = &self.calls().settings;
        let (durability, fencing) = self.promises();
        QueueCapabilities::new(durability, fencing, QueueWake::Notified)
            .with_parking(Parking::Attended)
            .with_batch(BATCH)
            .with_request_bytes(PUSHED_BYTES)
            .with_backlog(settings.max_backlog)
            .with_dead_letters(settings.max_dead_letters)
    }

    async fn push(&self, queue: &QueueName, messages: &[NewMessage]) -> Result<Vec<Pushed>> {
        if messages.is_empty() {
            return Ok(Vec::new());
        }
        self.check().await?;
        self.on_queue("push", queue, self.calls().queue_push(queue, messages), |answer| {
            call::pushed(answer, messages)?.ok_or_else(|| {
                let most = self.calls().settings.max_backlog.unwrap_or_default();
                Error::new(ErrorKind::LimitReached, format!("the queue is full: it holds up to {most} messages"))
            })
        })
        .await
    }

    async fn exchange(&self, settles: &[Settle], request: &ReceiveRequest) -> Result<Exchanged> {
        let queue = &request.queue;
        if request.max == 0 {
            return self.only_settle(queue, settles).await;
        }
        match self.check().await {
            // Nothing left, and settlements would fare no better.
            Err(error) if error.is_transient() || settles.is_empty() => return Err(error),
            Err(_) => return self.only_settle(queue, settles).await,
            Ok(_) => {}
        }
        let call = self.calls().queue_turn(queue, settles, Some(request), self.listening(queue));
        let read = |answer: &Reply| Ok((call::settled(answer, settles.len())?, call::received(answer)?));
        let operation = if settles.is_empty() { "receive" } else { "exchange" };
        let (settled, (received, damaged)) = match self.on_queue(operation, queue, call, read).await {
            Err(error) if refuses_receives(&error) && !settles.is_empty() => {
                return self.only_settle(queue, settles).await;
            }
            answer => answer?,
        };
        self.bury_damaged(queue, damaged).await;
        Ok(Exchanged::new(settled, received))
    }

    async fn extend(&self, queue: &QueueName, extensions: &[Extension]) -> Result<Vec<Extended>> {
        if extensions.is_empty() {
            return Ok(Vec::new());
        }
        let call = self.calls().queue_extend(queue, extensions);
        self.on_queue("extend", queue, call, |answer| call::extended(answer, extensions.len())).await
    }

    async fn cancel(&self, queue: &QueueName, id: &MessageId) -> Result<Cancelled> {
        self.on_queue("cancel", queue, Ok(self.calls().queue_cancel(queue, id)), call::cancelled).await
    }

    async fn reschedule(&self, queue: &QueueName, id: &MessageId, delay: Delay) -> Result<Rescheduled> {
        let call = self.calls().queue_reschedule(queue, id, delay);
        self.on_queue("reschedule", queue, Ok(call), call::rescheduled).await
    }

    async fn give_turn(&self, queue: &QueueName, id: &MessageId, turn: &LockTurn) -> Result<TurnGiven> {
        self.on_queue("give_turn", queue, Ok(self.calls().queue_give_turn(queue, id, turn)), call::turn_given).await
    }

    async fn get(&self, queue: &QueueName, id: &MessageId) -> Result<Option<MessageInfo>> {
        self.on_queue("get", queue, Ok(self.calls().queue_get(queue, id)), call::info).await
    }

    async fn list(&self, queue: &QueueName, which: Listed, from: Option<ListPlace>, max: usize) -> Result<MessagePage> {
        self.on_queue("list", queue, Ok(self.calls().queue_page(queue, which, from, max)), call::page).await
    }

    async fn limit(&self, queue: &QueueName, limits: &QueueLimits) -> Result<()> {
        // A request, and another one for each 1,000 messages in flight when their number was not limited before.
        let mut from = 0;
        loop {
            let call = self.calls().queue_limit(queue, limits, from);
            from = self.on_queue("limit", queue, Ok(call), call::number).await?;
            if from == 0 {
                return Ok(());
            }
        }
    }

    async fn stats(&self, queue: &QueueName) -> Result<QueueStats> {
        self.on_queue("stats", queue, Ok(self.calls().queue_stats(queue)), call::stats).await
    }

    async fn pause(&self, queue: &QueueName) -> Result<()> {
        self.on_queue("pause", queue, Ok(self.calls().queue_pause(queue)), |_| Ok(())).await
    }

    async fn resume(&self, queue: &QueueName) -> Result<()> {
        self.on_queue("resume", queue, Ok(self.calls().queue_resume(queue)), |_| Ok(())).await
    }

    async fn purge(&self, queue: &QueueName, max: usize, from: Option<PurgePlace>) -> Result<PurgeStep> {
        self.on_queue("purge", queue, Ok(self.calls().queue_purge(queue, max, from)), call::purged).await
    }

    async fn list_queues(&self, after: Option<QueueName>, max: usize) -> Result<QueuePage> {
        let mut page = QueuePage::new(Vec::new(), Rest::None);
        let mut after = after.map(|name| name.as_bytes().to_vec());
        loop {
            // One more than is wanted shows whether there are more.
            let wanted = (max - page.queues.len()).saturating_add(1).min(BATCH);
            let listed = self.listed(after.as_deref(), wanted).await?;
            let seen = listed.len();
            // An entry that is no name is passed over: it hides no other.
            let names: Vec<QueueName> = listed.iter().filter_map(|name| QueueName::new(name).ok()).collect();
            let living = self.living(&names).await?;
            after = listed.into_iter().next_back();
            for name in names.into_iter().filter(|name| living.contains(name)) {
                if page.queues.len() == max {
                    page.rest = Rest::More;
                    return Ok(page);
                }
                page.queues.push(name);
            }
            if seen < wanted {
                return Ok(page);
            }
        }
    }

    async fn dead_list(&self, queue: &QueueName, after: Option<DeadPlace>, max: usize) -> Result<DeadPage> {
        let call = self.calls().queue_dead_list(queue, after, max);
        self.on_queue("dead_list", queue, Ok(call), call::dead_page).await
    }

    async fn dead_redrive(&self, queue: &QueueName, which: &DeadSelection, delay: Delay) -> Result<Redriven> {
        let call = self.calls().queue_dead_redrive(queue, which, delay);
        self.on_queue("dead_redrive", queue, call, call::moved).await.map(|(moved, rest)| Redriven::new(moved, rest))
    }

    async fn dead_purge(&self, queue: &QueueName, which: &DeadSelection) -> Result<Purged> {
        let call = self.calls().queue_dead_purge(queue, which);
        self.on_queue("dead_purge", queue, call, call::moved).await.map(|(removed, rest)| Purged::new(removed, rest))
    }

    /// One round trip: the server has to know who wants to be woken. Every receive refreshes it.
    async fn watch(&self, queue: &QueueName) -> Result<Watch> {
        let watch = self.0.wake.queues().register(queue);
        self.on_queue("watch", queue, Ok(self.calls().queue_listen(queue)), |_| Ok(())).await?;
        Ok(watch)
    }
}

/// Whether the server handed out nothing, and changed nothing, for a reason that only an operator ends.
fn refuses_receives(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Damaged | ErrorKind::Misconfigured) && error.was_not_applied()
}
