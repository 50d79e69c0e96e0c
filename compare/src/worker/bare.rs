//! The floors of Redis on bare sockets, without any library: the commands of a lock, a round trip, and a message from one
//! connection to another.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::locks::Lane;
use crate::job::{Job, Outcome, gate};
use crate::measure::{now, percentile};

/// Frees the lock if the token is still in it; what every library without fences sends.
pub(super) const COMPARE_AND_DELETE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end";

/// A lock without fences on its own socket.
pub(super) struct Bare {
    socket: Socket,
    take: Vec<u8>,
    give: Vec<u8>,
}

impl Lane for Bare {
    type Held = ();

    async fn open(job: &Job, names: &[String]) -> Outcome<Vec<Self>> {
        let mut lanes = Vec::new();
        for name in names {
            let mut socket = Socket::connect(job.ports[0]).await?;
            let loaded = socket.call(&["SCRIPT", "LOAD", COMPARE_AND_DELETE]).await?;
            let sha = loaded.lines().nth(1).unwrap_or_default().to_owned();
            let token = "0123456789abcdef0123456789abcdef";
            let take = frame(&["SET", name, token, "NX", "PX", "30000"]);
            let give = frame(&["EVALSHA", &sha, "1", name, token]);
            lanes.push(Self { socket, take, give });
        }
        Ok(lanes)
    }

    async fn take(&mut self) -> Outcome<((), u64)> {
        match self.socket.send(&self.take).await? {
            b"+OK\r\n" => Ok(((), 0)),
            other => Err(format!("not taken: {}", String::from_utf8_lossy(other)).into()),
        }
    }

    async fn give(&mut self, (): ()) -> Outcome {
        match self.socket.send(&self.give).await? {
            b":1\r\n" => Ok(()),
            other => Err(format!("not given back: {}", String::from_utf8_lossy(other)).into()),
        }
    }
}

/// Round trips of a PING.
pub(super) async fn ping(job: &Job) -> Outcome<Value> {
    let mut socket = Socket::connect(job.ports[0]).await?;
    let ping = frame(&["PING"]);
    socket.send(&ping).await?;
    gate()?;
    let mut times = Vec::new();
    for _ in 0..job.count {
        let sent = now();
        socket.send(&ping).await?;
        times.push((now() - sent) as f64 / 1e3);
    }
    Ok(json!({ "p50_us": percentile(&mut times, 0.5) }))
}

/// From a PUBLISH that is sent to its arrival at a subscriber: the least that a hand-over can take.
pub(super) async fn publish(job: &Job) -> Outcome<Value> {
    let mut publisher = Socket::connect(job.ports[0]).await?;
    let mut subscriber = Socket::connect(job.ports[0]).await?;
    subscriber.call(&["SUBSCRIBE", &job.name]).await?;
    let publish = frame(&["PUBLISH", &job.name, "0123456789abcdef 1"]);
    gate()?;
    let mut times = Vec::new();
    let until = now() + job.millis * 1_000_000;
    while now() < until {
        let sent = now();
        publisher.write(&publish).await?;
        subscriber.read().await?;
        times.push((now() - sent) as f64 / 1e3);
        publisher.read().await?;
    }
    Ok(gaps(times))
}

/// The figures of a floor, as those of hand-overs are called.
pub(super) fn gaps(mut times: Vec<f64>) -> Value {
    json!({ "gap_p50_us": percentile(&mut times, 0.5), "gap_p99_us": percentile(&mut times, 0.99) })
}

/// One connection; every reply fits into one read.
struct Socket {
    stream: TcpStream,
    buffer: [u8; 4096],
}

impl Socket {
    async fn connect(port: u16) -> Outcome<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: [0; 4096] })
    }

    async fn send(&mut self, frame: &[u8]) -> Outcome<&[u8]> {
        self.write(frame).await?;
        self.read().await
    }

    async fn write(&mut self, frame: &[u8]) -> Outcome {
        Ok(self.stream.write_all(frame).await?)
    }

    async fn read(&mut self) -> Outcome<&[u8]> {
        match self.stream.read(&mut self.buffer).await? {
            0 => Err("the server closed the connection".into()),
            length => Ok(&self.buffer[..length]),
        }
    }

    async fn call(&mut self, args: &[&str]) -> Outcome<String> {
        let reply = self.send(&frame(args)).await?;
        Ok(String::from_utf8_lossy(reply).into_owned())
    }
}

/// A command as the Redis protocol writes it.
fn frame(args: &[&str]) -> Vec<u8> {
    let mut frame = format!("*{}\r\n", args.len());
    for arg in args {
        frame.push_str(&format!("${}\r\n{arg}\r\n", arg.len()));
    }
    frame.into_bytes()
}
