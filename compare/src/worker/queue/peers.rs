//! Other queues: `rsmq_async`, a sorted set that is polled, which is the usual first attempt, and beanstalkd.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use rsmq_async::{RsmqConnection as _, RsmqOptions};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufStream};
use tokio::net::TcpStream;
use tokio::sync::Mutex;

use super::super::redis as by_hand;
use super::throughput::Subject;
use crate::job::{Job, Outcome};
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
        Ok(Self { connection: by_hand::connect(job.ports[0]).await?, key: job.name.clone() })
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

/// beanstalkd, by its text protocol: one connection to one tube. The commands of a batch are sent at once, and their answers
/// read afterwards.
#[derive(Clone)]
pub(super) struct Beanstalk(Arc<Mutex<BufStream<TcpStream>>>);

impl Subject for Beanstalk {
    async fn open(job: &Job) -> Outcome<Self> {
        let stream = TcpStream::connect(("127.0.0.1", job.ports[0])).await?;
        stream.set_nodelay(true)?;
        let mut stream = BufStream::with_capacity(1 << 16, 1 << 16, stream);
        for command in [format!("use {}", job.name), format!("watch {}", job.name), "ignore default".into()] {
            stream.write_all(format!("{command}\r\n").as_bytes()).await?;
            stream.flush().await?;
            line(&mut stream).await?;
        }
        Ok(Self(Arc::new(Mutex::new(stream))))
    }

    async fn push(&self, payloads: Vec<Vec<u8>>, delay: Duration) -> Outcome {
        let mut stream = self.0.lock().await;
        for payload in &payloads {
            let head = format!("put 0 {} 30 {}\r\n", delay.as_secs(), payload.len());
            stream.write_all(&[head.as_bytes(), payload, b"\r\n"].concat()).await?;
        }
        stream.flush().await?;
        for _ in payloads {
            expect(&line(&mut stream).await?, "INSERTED")?;
        }
        Ok(())
    }

    async fn drain(&self, most: usize) -> Outcome<usize> {
        let mut stream = self.0.lock().await;
        stream.write_all("reserve-with-timeout 0\r\n".repeat(most).as_bytes()).await?;
        stream.flush().await?;
        let mut ids = Vec::with_capacity(most);
        for _ in 0..most {
            ids.extend(reserved(&mut stream).await?);
        }
        let deletes: String = ids.iter().map(|id| format!("delete {id}\r\n")).collect();
        stream.write_all(deletes.as_bytes()).await?;
        stream.flush().await?;
        for _ in &ids {
            expect(&line(&mut stream).await?, "DELETED")?;
        }
        Ok(ids.len())
    }
}

async fn line(stream: &mut BufStream<TcpStream>) -> Outcome<String> {
    let mut line = String::new();
    stream.read_line(&mut line).await?;
    Ok(line.trim_end().to_owned())
}

/// The id in the answer to a reservation; `None` if nothing was ready.
async fn reserved(stream: &mut BufStream<TcpStream>) -> Outcome<Option<u64>> {
    let answer = line(stream).await?;
    if answer == "TIMED_OUT" {
        return Ok(None);
    }
    let words: Vec<&str> = answer.split(' ').collect();
    let ["RESERVED", id, length] = words[..] else { return Err(format!("beanstalkd said {answer:?}").into()) };
    let mut payload = vec![0; length.parse::<usize>()? + 2];
    stream.read_exact(&mut payload).await?;
    Ok(Some(id.parse()?))
}

fn expect(answer: &str, word: &str) -> Outcome {
    if answer.starts_with(word) { Ok(()) } else { Err(format!("beanstalkd said {answer:?}, not {word}").into()) }
}
