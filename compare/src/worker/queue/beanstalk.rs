//! beanstalkd, by its text protocol: commands of a batch are sent at once, and their answers read afterwards.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufStream};
use tokio::net::TcpStream;
use tokio::sync::Mutex;

use super::subject::Subject;
use crate::failure::Outcome;
use crate::job::Job;
use crate::measure::now;

/// One connection to one tube.
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
            if let Some((id, _)) = reserved(&mut stream).await? {
                ids.push(id);
            }
        }
        let deletes: String = ids.iter().map(|id| format!("delete {id}\r\n")).collect();
        stream.write_all(deletes.as_bytes()).await?;
        stream.flush().await?;
        for _ in &ids {
            expect(&line(&mut stream).await?, "DELETED")?;
        }
        Ok(ids.len())
    }

    async fn receive(&self) -> Outcome<(u64, Vec<u8>)> {
        let mut stream = self.0.lock().await;
        stream.write_all(b"reserve\r\n").await?;
        stream.flush().await?;
        let (id, payload) = reserved(&mut stream).await?.ok_or("a reservation timed out")?;
        let at = now();
        stream.write_all(format!("delete {id}\r\n").as_bytes()).await?;
        stream.flush().await?;
        expect(&line(&mut stream).await?, "DELETED")?;
        Ok((at, payload))
    }
}

async fn line(stream: &mut BufStream<TcpStream>) -> Outcome<String> {
    let mut line = String::new();
    stream.read_line(&mut line).await?;
    Ok(line.trim_end().to_owned())
}

/// The answer to a reservation; `None` when nothing was ready.
async fn reserved(stream: &mut BufStream<TcpStream>) -> Outcome<Option<(u64, Vec<u8>)>> {
    let answer = line(stream).await?;
    if answer == "TIMED_OUT" {
        return Ok(None);
    }
    let words: Vec<&str> = answer.split(' ').collect();
    let ["RESERVED", id, length] = words[..] else { return Err(format!("beanstalkd said {answer:?}").into()) };
    let mut payload = vec![0; length.parse::<usize>()? + 2];
    stream.read_exact(&mut payload).await?;
    payload.truncate(payload.len() - 2);
    Ok(Some((id.parse()?, payload)))
}

fn expect(answer: &str, word: &str) -> Outcome {
    if answer.starts_with(word) { Ok(()) } else { Err(format!("beanstalkd said {answer:?}, not {word}").into()) }
}
