//! Other queues: `rsmq_async`, and the one that is the usual first attempt.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use rsmq_async::{RsmqConnection as _, RsmqOptions};

use super::super::raw;
use super::subject::Subject;
use crate::failure::Outcome;
use crate::job::Job;
use crate::measure::now;

/// `rsmq_async`: receiving is asking again and again; here every 10 ms.
#[derive(Clone)]
pub(super) struct Rsmq {
    client: rsmq_async::Rsmq,
    name: String,
}

const RSMQ_PERIOD: Duration = Duration::from_millis(10);

impl Subject for Rsmq {
    async fn open(job: &Job) -> Outcome<Self> {
        let options = RsmqOptions { port: job.ports[0], ..RsmqOptions::default() };
        let mut client = rsmq_async::Rsmq::new(options).await?;
        let name = job.name.replace('/', "-");
        client.create_queue(&name, Some(Duration::from_secs(30)), Some(Duration::ZERO), Some(-1)).await?;
        Ok(Self { client, name })
    }

    async fn push(&self, mut payloads: Vec<Vec<u8>>, delay: Duration) -> Outcome {
        let mut client = self.client.clone();
        match payloads.len() {
            1 => drop(client.send_message(&self.name, payloads.remove(0), Some(delay)).await?),
            _ => drop(client.send_message_batch(&self.name, payloads, Some(delay)).await?),
        }
        Ok(())
    }

    async fn drain(&self, most: usize) -> Outcome<usize> {
        let mut client = self.client.clone();
        let received = match most {
            1 => client.receive_message::<Vec<u8>>(&self.name, None).await?.into_iter().collect(),
            _ => client.receive_message_batch::<Vec<u8>>(&self.name, None, most as u32).await?,
        };
        let count = received.len();
        for message in received {
            client.delete_message(&self.name, &message.id).await?;
        }
        Ok(count)
    }

    async fn receive(&self) -> Outcome<(u64, Vec<u8>)> {
        let mut client = self.client.clone();
        loop {
            if let Some(message) = client.receive_message::<Vec<u8>>(&self.name, None).await? {
                let at = now();
                client.delete_message(&self.name, &message.id).await?;
                return Ok((at, message.message));
            }
            tokio::time::sleep(RSMQ_PERIOD).await;
        }
    }
}

/// A sorted set that is looked at every half second. No leases: a consumer that dies loses the message.
#[derive(Clone)]
pub(super) struct Poll {
    connection: MultiplexedConnection,
    key: String,
}

const POLL_PERIOD: Duration = Duration::from_millis(500);

impl Subject for Poll {
    async fn open(job: &Job) -> Outcome<Self> {
        Ok(Self { connection: raw::connect(job.ports[0]).await?, key: job.name.clone() })
    }

    async fn push(&self, payloads: Vec<Vec<u8>>, delay: Duration) -> Outcome {
        let mut connection = self.connection.clone();
        let due = now() / 1000 + u64::try_from(delay.as_micros())?;
        for payload in payloads {
            let mut add = redis::cmd("ZADD");
            add.arg(&self.key).arg(due).arg(payload);
            add.query_async::<i64>(&mut connection).await?;
        }
        Ok(())
    }

    async fn drain(&self, most: usize) -> Outcome<usize> {
        let mut connection = self.connection.clone();
        let mut look = redis::cmd("ZRANGEBYSCORE");
        look.arg(&self.key).arg("-inf").arg(now() / 1000).arg("LIMIT").arg(0).arg(most);
        let found: Vec<Vec<u8>> = look.query_async(&mut connection).await?;
        for payload in &found {
            let mut remove = redis::cmd("ZREM");
            remove.arg(&self.key).arg(payload);
            remove.query_async::<i64>(&mut connection).await?;
        }
        Ok(found.len())
    }

    async fn receive(&self) -> Outcome<(u64, Vec<u8>)> {
        let mut connection = self.connection.clone();
        loop {
            let mut look = redis::cmd("ZRANGEBYSCORE");
            look.arg(&self.key).arg("-inf").arg(now() / 1000).arg("LIMIT").arg(0).arg(1);
            let found: Vec<Vec<u8>> = look.query_async(&mut connection).await?;
            if let Some(payload) = found.into_iter().next() {
                let at = now();
                let mut remove = redis::cmd("ZREM");
                remove.arg(&self.key).arg(&payload);
                remove.query_async::<i64>(&mut connection).await?;
                return Ok((at, payload));
            }
            tokio::time::sleep(POLL_PERIOD).await;
        }
    }
}
