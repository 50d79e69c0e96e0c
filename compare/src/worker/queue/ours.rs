//! tenure's queues, as an application uses them.

use std::time::Duration;

use tenure_core::queue::{Message, Queue};

use super::super::ours;
use super::throughput::Subject;
use crate::job::{Job, Outcome};
use crate::measure::now;

/// The queue of one client; of a client for each task, if the subject's name ends with `-apart`.
#[derive(Clone)]
pub(super) struct Ours(Vec<Queue<Vec<u8>>>);

impl Subject for Ours {
    async fn open(job: &Job) -> Outcome<Self> {
        let mut queues = Vec::new();
        for _ in 0..if job.subject.ends_with("-apart") { job.workers } else { 1 } {
            // The slow log reports a script that does not yield, not a reply that counts as lost.
            let client = ours::builder(job).await?.op_timeout(Duration::from_secs(20)).build()?;
            queues.push(client.queue_of_bytes(&job.name)?);
        }
        Ok(Self(queues))
    }

    fn of(&self, task: usize) -> Self {
        Self(vec![self.0[task % self.0.len()].clone()])
    }

    async fn push(&self, payloads: Vec<Vec<u8>>, delay: Duration) -> Outcome {
        match &payloads[..] {
            [payload] => drop(self.0[0].push(payload).delay(delay).await?),
            several => {
                drop(self.0[0].push_many(several.iter().map(|payload| Message::new(payload).delay(delay))).await?);
            }
        }
        Ok(())
    }

    async fn drain(&self, most: usize) -> Outcome<usize> {
        let received = match most {
            1 => self.0[0].try_receive().await?.into_iter().collect(),
            most => self.0[0].receive_many(most, std::time::Duration::ZERO).await?,
        };
        Ok(self.0[0].ack_many(received).await?.len())
    }

    async fn receive(&self) -> Outcome<(u64, Vec<u8>)> {
        let delivery = self.0[0].receive().await?;
        let (at, payload) = (now(), delivery.payload().as_bytes().to_vec());
        delivery.ack().await?;
        Ok((at, payload))
    }
}
