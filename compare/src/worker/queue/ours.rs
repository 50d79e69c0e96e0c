//! tenure's queues, as an application uses them.

use std::time::Duration;

use tenure_core::Client;
use tenure_core::driver::Backend;
use tenure_core::queue::{Message, Queue};

use super::super::ours::{fred, memory, redis};
use super::subject::Subject;
use crate::failure::Outcome;
use crate::job::Job;
use crate::measure::now;

#[derive(Clone)]
pub(super) struct Ours(Queue<Vec<u8>>);

impl Ours {
    async fn connect(job: &Job) -> Outcome<Self> {
        let backend: Backend = match job.subject.as_str() {
            "tenure-fred" => fred(job).await?,
            "tenure-memory" => memory(job).await?,
            #[cfg(feature = "etcd")]
            "tenure-etcd" => super::super::etcd::ours(job).await?,
            #[cfg(feature = "sql")]
            "tenure-postgres" => super::super::sql::postgres(job).await?,
            #[cfg(feature = "sql")]
            "tenure-sqlite" => super::super::sql::sqlite(job).await?,
            _ => redis(job).await?,
        };
        // The slow log reports a script that does not yield, not a reply that counts as lost.
        let client = Client::builder(backend).op_timeout(Duration::from_secs(20)).build()?;
        Ok(Self(client.queue_of_bytes(&job.name)?))
    }
}

impl Subject for Ours {
    async fn open(job: &Job) -> Outcome<Self> {
        Self::connect(job).await
    }

    async fn push(&self, payloads: Vec<Vec<u8>>, delay: Duration) -> Outcome {
        match &payloads[..] {
            [payload] => drop(self.0.push(payload).delay(delay).await?),
            several => {
                drop(self.0.push_many(several.iter().map(|payload| Message::new(payload).delay(delay))).await?);
            }
        }
        Ok(())
    }

    async fn drain(&self, most: usize) -> Outcome<usize> {
        let received = match most {
            1 => self.0.try_receive().await?.into_iter().collect(),
            most => self.0.receive_many(most, Duration::ZERO).await?,
        };
        Ok(self.0.ack_many(received).await?.len())
    }

    async fn receive(&self) -> Outcome<(u64, Vec<u8>)> {
        let delivery = self.0.receive().await?;
        let (at, payload) = (now(), delivery.payload().as_bytes().to_vec());
        delivery.ack().await?;
        Ok((at, payload))
    }
}

/// A client for each task.
#[derive(Clone)]
pub(super) struct Apart(Vec<Ours>);

impl Subject for Apart {
    async fn open(job: &Job) -> Outcome<Self> {
        let mut clients = Vec::new();
        for _ in 0..job.workers {
            clients.push(Ours::connect(job).await?);
        }
        Ok(Self(clients))
    }

    fn of(&self, task: usize) -> Self {
        Self(vec![self.0[task].clone()])
    }

    async fn push(&self, payloads: Vec<Vec<u8>>, delay: Duration) -> Outcome {
        self.0[0].push(payloads, delay).await
    }

    async fn drain(&self, most: usize) -> Outcome<usize> {
        self.0[0].drain(most).await
    }

    async fn receive(&self) -> Outcome<(u64, Vec<u8>)> {
        self.0[0].receive().await
    }
}
