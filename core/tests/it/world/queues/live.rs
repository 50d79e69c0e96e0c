//! What the tasks of a client do with a queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tenure_core::driver::{Pushed, Settled};
use tenure_core::queue::{Delivery, Job, Message, MessageId, OrPark, Outcome, Queue};
use tenure_core::{Client, Error, ErrorKind, LockName, Result};
use tokio::time::sleep;

use super::ledger::{Ended, Ledger};
use super::plan::{How, New, Patience, Step, Stop, What};
use crate::world::link::Link;
use crate::world::live::{millis, until};
use crate::world::plan::Until;

/// The name of the queue.
pub(crate) const QUEUE: &str = "q";
/// The lock that messages are parked behind.
const LOCK: &str = "l";
/// For how long a name stays known after its message was acknowledged.
const WINDOW: Duration = Duration::from_millis(400);

type Bytes = Vec<u8>;

/// A task's view of the world.
pub(crate) struct Life {
    pub(crate) number: usize,
    pub(crate) calm: bool,
    pub(crate) lease: u64,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) client: Client,
    pub(crate) link: Arc<Link>,
    /// The next message of any client.
    pub(crate) serials: Arc<AtomicU64>,
}

impl Life {
    /// Goes through the steps from the next one on, when the client is scheduled.
    pub(crate) async fn live(self, steps: Vec<Step>, next: Arc<AtomicUsize>) {
        let queue = self.client.queue_of_bytes(QUEUE).unwrap().lease(millis(self.lease));
        let work = async {
            while let Some(step) = steps.get(next.fetch_add(1, Ordering::Relaxed)) {
                sleep(millis(step.pause)).await;
                self.step(&queue, step).await;
                self.ledger.look();
            }
        };
        self.link.while_scheduled(work).await;
    }

    async fn step(&self, queue: &Queue<Bytes>, Step { what, until: limit, .. }: &Step) {
        self.ledger.note(|| format!("{}: {what:?}, until {limit:?}", self.number));
        match what {
            What::Push(messages) => self.push(queue, messages, *limit).await,
            What::Receive { patience, max, work, extends, how, settling } => {
                for delivery in self.receive(queue, *patience, *max, *limit).await {
                    self.handle(delivery, (*work, *extends), (*how, *settling)).await;
                    self.ledger.look();
                }
            }
            What::Worker { concurrency, span, work, how, stop } => {
                self.employ(queue, (*concurrency, *span), (*work, *how), *stop).await;
            }
            What::Park { work, at_most } => self.park(queue, *work, *at_most, *limit).await,
            What::Recur(id, seconds) => {
                let recurring = queue.recurring([b'r', *id]).every(Duration::from_secs(*seconds)).max_attempts(2);
                let value = (u64::MAX - u64::from(*id)).to_be_bytes().to_vec();
                match until(*limit, recurring.ensure(&value)).await {
                    None => self.ledger.count(|tally| tally.dropped += 1),
                    Some(ensured) => self.noted("ensuring", ensured.map(|answer| format!("{answer:?}"))),
                }
            }
            What::Cancel(id) => {
                let cancelled = queue.cancel(&name(*id)).await.map(|answer| format!("{answer:?}"));
                self.noted("cancelling", cancelled);
            }
            What::Reschedule(id, delay) => {
                let moved = queue.reschedule(&name(*id), millis(*delay)).await.map(|answer| format!("{answer:?}"));
                self.noted("rescheduling", moved);
            }
        }
    }

    async fn push(&self, queue: &Queue<Bytes>, messages: &[New], limit: Until) {
        let first = self.serials.fetch_add(messages.len() as u64, Ordering::Relaxed);
        let serials = first..first + messages.len() as u64;
        let pushing = queue.push_many(serials.clone().zip(messages).map(|(serial, new)| message(serial, new)));
        match until(limit, pushing.into_future()).await {
            None => self.ledger.count(|tally| tally.dropped += 1),
            Some(Ok(answers)) => {
                self.ledger.note(|| format!("{}: pushed: {answers:?}", self.number));
                let stored = serials.zip(answers).filter(|(_, answer)| matches!(answer, Pushed::Stored(_)));
                stored.for_each(|(serial, _)| self.ledger.told_stored(serial));
            }
            Some(Err(error)) => self.failed("pushing", &error.into()),
        }
    }

    async fn receive(
        &self,
        queue: &Queue<Bytes>,
        patience: Patience,
        max: usize,
        limit: Until,
    ) -> Vec<Arc<Delivery<Bytes>>> {
        let receiving = async {
            match patience {
                Patience::Try => queue.receive_many(max, Duration::ZERO).await,
                Patience::Within(most) => {
                    let _waits = self.ledger.receives();
                    let within = tokio::time::timeout(millis(most), queue.receive_many(max, Duration::MAX));
                    within.await.unwrap_or(Ok(Vec::new()))
                }
            }
        };
        let received = until(limit, receiving).await;
        match received {
            None => self.ledger.count(|tally| tally.dropped += 1),
            Some(Ok(deliveries)) => {
                let deliveries: Vec<_> = deliveries.into_iter().map(Arc::new).collect();
                deliveries.iter().for_each(|delivery| self.ledger.received(self.number, delivery));
                return deliveries;
            }
            Some(Err(error)) => self.failed("receiving", &error),
        }
        Vec::new()
    }

    /// Handles a delivery: under the lock, if it was parked behind it, and if that is free.
    async fn handle(
        &self,
        delivery: Arc<Delivery<Bytes>>,
        (work, extends): (u64, bool),
        (how, settling): (How, Until),
    ) {
        let Some(name) = delivery.lock().cloned() else {
            self.work(&delivery, work, extends).await;
            return self.settle(delivery, how, settling).await;
        };
        match self.client.lock(name.as_bytes()).try_acquire_for(&delivery).await {
            Ok(Some(guard)) => {
                let guard = Arc::new(guard);
                self.ledger.holds(&guard);
                self.work(&delivery, work, extends).await;
                self.settle(delivery, how, settling).await;
            }
            Ok(None) => self.settle(delivery, How::Park(100), settling).await,
            Err(error) => self.failed("taking the lock of a message", &error),
        }
    }

    async fn park(&self, queue: &Queue<Bytes>, work: u64, at_most: u64, limit: Until) {
        let serial = self.serials.fetch_add(1, Ordering::Relaxed);
        let message = Message::bytes(serial.to_be_bytes()).parked_at_most(millis(at_most));
        let lock = self.client.lock(LOCK);
        match until(limit, lock.or_park(queue, message)).await {
            None => self.ledger.count(|tally| tally.dropped += 1),
            Some(Ok(OrPark::Acquired(guard))) => {
                let guard = Arc::new(guard);
                self.ledger.holds(&guard);
                sleep(millis(work)).await;
            }
            Some(Ok(OrPark::Parked(_))) => self.ledger.told_stored(serial),
            Some(Err(error)) => self.failed("parking", &error),
        }
    }

    async fn work(&self, delivery: &Delivery<Bytes>, work: u64, extends: bool) {
        let work = async {
            sleep(millis(work / 2)).await;
            if extends {
                let extended = delivery.extend(millis(self.lease)).await;
                self.ledger.note(|| format!("{}: extended {}: {extended:?}", self.number, delivery.id()));
                self.ledger.look();
            }
            sleep(millis(work / 2)).await;
        };
        tokio::select! {
            biased;
            () = delivery.lost() => {
                self.ledger.note(|| format!("{}: lost {}", self.number, delivery.id()));
                self.ledger.count(|tally| tally.lost += 1);
                if self.calm {
                    self.ledger.wrong(format!("client {} lost {} in calm weather", self.number, delivery.id()));
                }
            }
            () = work => {}
        }
    }

    async fn settle(&self, delivery: Arc<Delivery<Bytes>>, how: How, limit: Until) {
        let (id, fence, lost) = (delivery.id().clone(), delivery.fence().get(), delivery.is_lost());
        let delivery = Arc::into_inner(delivery).expect("the ledger looks, and does not keep");
        let settling = async {
            match how {
                How::Ack => delivery.ack().await,
                How::Nack(after) => delivery.nack(millis(after)).await,
                How::Bury => delivery.bury(None).await,
                How::GiveBack => delivery.give_back(Duration::ZERO).await,
                How::PutOff(after) => delivery.give_back(millis(after)).await,
                How::Park(most) => delivery.park(&LockName::new(LOCK).unwrap(), millis(most)).await,
                How::Drop => {
                    drop(delivery);
                    std::future::pending().await
                }
            }
        };
        let limit = if how == How::Drop { Until::Polls(1) } else { limit };
        let settled = until(limit, settling).await;
        self.ledger.note(|| format!("{}: {how:?} of {id}, lost: {lost}: {settled:?}", self.number));
        match settled {
            None => {}
            Some(Ok(Settled::Done)) => self.ledger.told_ended(fence, how.done()),
            Some(Ok(Settled::Dead)) => self.ledger.told_ended(fence, Ended::Dead),
            Some(Ok(answer)) if self.calm => self.ledger.wrong(format!("{how:?} of {id} was answered with {answer:?}")),
            Some(Ok(_)) => {}
            Some(Err(error)) => self.failed("settling", &error),
        }
    }

    async fn employ(&self, queue: &Queue<Bytes>, (most, span): (usize, u64), (work, how): (u64, How), stop: Stop) {
        let ledger = Arc::clone(&self.ledger);
        let handler = move |job: Job<Bytes>| {
            let ledger = Arc::clone(&ledger);
            async move {
                let handling = ledger.handles(&job.id, job.fence.get());
                for _ in 0..work / 4 {
                    sleep(millis(4)).await;
                    handling.goes_on();
                }
                how.outcome()
            }
        };
        let worker = match queue.worker().concurrency(most).start(handler) {
            Ok(worker) => worker,
            Err(error) => return self.failed("starting a worker", &error),
        };
        sleep(millis(span)).await;
        match stop {
            Stop::Shutdown(grace) => drop(worker.shutdown(millis(grace)).await),
            Stop::Abort => drop(worker.abort().await),
            Stop::Drop => drop(worker),
        }
        self.ledger.note(|| format!("{}: the worker is gone", self.number));
    }

    fn noted(&self, what: &str, result: Result<String>) {
        match result {
            Ok(answer) => self.ledger.note(|| format!("{}: {what}: {answer}", self.number)),
            Err(error) => self.failed(what, &error),
        }
    }

    fn failed(&self, what: &str, error: &Error) {
        self.ledger.note(|| format!("{}: {what} failed: {error}", self.number));
        self.ledger.count(|tally| tally.failed += 1);
        let passing = matches!(
            error.kind(),
            ErrorKind::Unavailable
                | ErrorKind::Indeterminate
                | ErrorKind::TimedOut
                | ErrorKind::Lost
                | ErrorKind::Closed
        );
        if self.calm || !passing {
            self.ledger.wrong(format!("client {}, {what}: {error}", self.number));
        }
    }
}

impl How {
    fn done(self) -> Ended {
        match self {
            Self::Ack => Ended::Acked,
            Self::Bury => Ended::Dead,
            _ => Ended::Again,
        }
    }

    fn outcome(self) -> Outcome {
        match self {
            Self::Ack | Self::Drop => Outcome::Done,
            Self::Nack(after) => Outcome::RetryAfter(millis(after), None),
            Self::Bury => Outcome::Dead(None),
            Self::GiveBack => Outcome::Later(Duration::ZERO),
            Self::PutOff(after) | Self::Park(after) => Outcome::Later(millis(after)),
        }
    }
}

fn name(id: u8) -> MessageId {
    MessageId::named([b'n', id]).unwrap()
}

fn message(serial: u64, new: &New) -> Message<'static, Bytes> {
    let mut message = Message::bytes(serial.to_be_bytes()).delay(millis(new.delay)).max_attempts(new.attempts);
    if let Some(id) = new.id {
        message = message.id([b'n', id]).dedup_window(WINDOW);
    }
    if let Some(key) = new.key {
        message = message.concurrency_key([key]);
    }
    match new.ttl {
        Some(ttl) => message.ttl(millis(ttl)),
        None => message,
    }
}
