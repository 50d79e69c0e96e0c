//! A task that receives and settles, by hand.

use std::time::Duration;

use tenure::queue::{Delivery, Nack, Queue, Reason};
use tenure_conformance::{BoxError, Rng, poll, worker::monotonic};
use tenure_core::driver::Settled;
use tokio::sync::watch;

use super::entries::Entry;
use super::plan::LEASE;
use super::plan::{Plan, read};
use crate::chaos::client::{Recorder, failed};
use crate::chaos::event::What;

/// How often a liar lies.
const OFTEN: u64 = 20;

/// The faulty consumers that try the judge.
pub(in crate::chaos) const LIES: &[&str] = &["consumer/loses-its-work", "consumer/settles-twice"];

pub(crate) struct Consumer {
    pub(crate) queue: Queue<Vec<u8>>,
    pub(crate) recorder: Recorder,
    pub(crate) calm: watch::Receiver<bool>,
    pub(crate) rng: Rng,
    pub(crate) number: u32,
    pub(crate) op: u64,
    /// One of [`LIES`].
    pub(crate) lie: Option<&'static str>,
}

/// In how many of its deliveries a message may be dropped: the pause behind each is twice as long as the one before.
const DROPS: u32 = 3;

type Deliveries = Vec<Delivery<Vec<u8>>>;

fn millis(span: u64) -> Duration {
    Duration::from_millis(span)
}

impl Consumer {
    /// Handles messages until the faults have ended and the queue is empty.
    pub(crate) async fn run(mut self) -> Result<(), BoxError> {
        let mut found_empty = 0;
        while found_empty < 2 {
            self.op += 1;
            let asked = monotonic();
            match self.receive().await {
                Ok(deliveries) => {
                    let got = deliveries.len();
                    self.handle(asked, deliveries).await?;
                    if got > 0 || !*self.calm.borrow() {
                        continue;
                    }
                }
                Err(error) => {
                    self.recorder.note(monotonic(), self.recorder.of(self.number, self.op), "-", failed(&error))?;
                    tokio::time::sleep(millis(20 + self.rng.below(80))).await; // no storm of attempts
                    continue;
                }
            }
            found_empty = if self.is_empty().await { found_empty + 1 } else { 0 };
            tokio::time::sleep(millis(200)).await;
        }
        self.recorder.note(monotonic(), self.recorder.of(self.number, 0), "-", What::Finished)
    }

    async fn is_empty(&self) -> bool {
        self.queue.admin().stats().await.is_ok_and(|stats| stats.scheduled + stats.ready + stats.in_flight == 0)
    }

    async fn receive(&mut self) -> tenure::Result<Deliveries> {
        let most = 1 + self.rng.below(8) as usize;
        match self.rng.below(10) {
            0..=4 => Ok(Vec::from_iter(self.queue.receive_within(millis(1 + self.rng.below(800))).await?)),
            5..=6 => self.queue.receive_many(most, Duration::ZERO).await,
            either => {
                // Given up at some poll, or after some time.
                let polls = if either == 7 { 1 + self.rng.below(6) as usize } else { usize::MAX };
                let receive = poll::at_most(polls, self.queue.receive_many(most, Duration::MAX));
                let received = tokio::time::timeout(millis(1 + self.rng.below(800)), receive).await;
                received.ok().flatten().unwrap_or_else(|| Ok(Vec::new()))
            }
        }
    }

    fn note(&self, message: &str, entry: Entry) -> Result<(), BoxError> {
        self.recorder.note(monotonic(), self.recorder.of(self.number, self.op), message, What::Job(entry))
    }

    async fn handle(&mut self, asked: Duration, deliveries: Deliveries) -> Result<(), BoxError> {
        let mut read_all = Vec::with_capacity(deliveries.len());
        for delivery in deliveries {
            let (message, plan) = read(delivery.payload().as_bytes())?;
            let (fence, attempt) = (delivery.fence().get(), delivery.attempt());
            let cause = format!("{:?}", delivery.cause());
            self.note(&message, Entry::Got { asked, fence, attempt, cause })?;
            read_all.push((message, plan, delivery));
        }
        let mut together = Vec::new();
        for (message, plan, delivery) in read_all {
            self.work(&delivery).await;
            if plan == (Plan::Done { failures: 0 }) && self.rng.below(3) == 0 {
                together.push((message, delivery));
            } else {
                self.settle(message, plan, delivery).await?;
            }
        }
        self.acknowledge(together).await
    }

    /// Mostly a moment; now and then for longer than the lease, half of that time with an extension.
    async fn work(&mut self, delivery: &Delivery<Vec<u8>>) {
        match self.rng.below(200) {
            0..=189 => tokio::time::sleep(millis(self.rng.below(8))).await,
            190..=197 => tokio::time::sleep(millis(100 + self.rng.below(400))).await,
            _ => {
                if self.rng.below(2) == 0 {
                    let _ = delivery.extend(LEASE * 2).await; // the settlement tells whether it is lost
                }
                tokio::time::sleep(LEASE + millis(self.rng.below(500))).await;
            }
        }
    }

    async fn acknowledge(&mut self, together: Vec<(String, Delivery<Vec<u8>>)>) -> Result<(), BoxError> {
        if together.is_empty() {
            return Ok(());
        }
        let (messages, deliveries): (Vec<String>, Deliveries) = together.into_iter().unzip();
        let fences: Vec<u64> = deliveries.iter().map(|delivery| delivery.fence().get()).collect();
        for (message, fence) in messages.iter().zip(&fences) {
            let (how, after) = ("ack".into(), Duration::ZERO);
            self.note(message, Entry::Settling { fence: *fence, how, after })?;
        }
        let answers = self.queue.ack_many(deliveries).await;
        for (index, (message, fence)) in messages.iter().zip(&fences).enumerate() {
            let answer = match &answers {
                Ok(answers) => answers.get(index).map_or_else(|| "Unanswered".into(), |settled| format!("{settled:?}")),
                Err(error) => format!("{:?}", error.kind()),
            };
            self.note(message, Entry::Settled { fence: *fence, answer })?;
        }
        Ok(())
    }

    async fn settle(&mut self, message: String, plan: Plan, delivery: Delivery<Vec<u8>>) -> Result<(), BoxError> {
        let fence = delivery.fence().get();
        let after = millis(if self.rng.below(2) == 0 { 0 } else { self.rng.below(200) });
        let often = self.rng.below(2) == 0;
        let how = match plan {
            Plan::Done { failures } if delivery.attempt() <= failures => "nack",
            Plan::Done { .. } => "ack",
            Plan::Buried => "bury",
            Plan::Exhausted => "nack",
            Plan::Returned if often => "return",
            Plan::Dropped if often && delivery.attempt() <= DROPS => "drop",
            Plan::Returned | Plan::Dropped => "ack",
        };
        let span = if how == "nack" { after } else { Duration::ZERO };
        let lies = self.rng.below(OFTEN) == 0 && how == "ack";
        if !(lies && self.lie == Some(LIES[0])) {
            self.note(&message, Entry::Settling { fence, how: how.into(), after: span })?;
        }
        let reason = |text| Some(Reason::beginning_of(text));
        let answer = match how {
            "ack" => delivery.ack().await,
            "nack" => delivery.nack(Nack::after(after).because(reason("as planned"))).await,
            "bury" => delivery.bury(reason("as planned")).await,
            "return" => delivery.give_back(Duration::ZERO).await,
            _ => {
                drop(delivery); // settled in the background, with an answer that nobody sees
                return Ok(());
            }
        };
        if lies && self.lie == Some(LIES[0]) {
            return Ok(());
        }
        let answer = answer.map_or_else(|error| format!("{:?}", error.kind()), |settled| format!("{settled:?}"));
        let twice = lies && self.lie == Some(LIES[1]) && answer == format!("{:?}", Settled::Done);
        for _ in 0..=u32::from(twice) {
            self.note(&message, Entry::Settled { fence, answer: answer.clone() })?;
        }
        Ok(())
    }
}
