//! The floor: the commands of a lock on a bare socket, without any library.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::subject::{Lane, Subject};
use crate::failure::Outcome;
use crate::job::Job;

/// Frees the lock if it is still one's own; what every library without fences sends.
pub(super) const COMPARE_AND_DELETE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end";

pub(super) struct Bare {
    port: u16,
}

impl Subject for Bare {
    type Lane = BareLane;

    async fn open(job: &Job) -> Outcome<Self> {
        Ok(Self { port: job.ports[0] })
    }

    async fn lane(&self, name: &str) -> Outcome<BareLane> {
        let mut socket = Socket::connect(self.port).await?;
        let loaded = socket.call(&["SCRIPT", "LOAD", COMPARE_AND_DELETE]).await?;
        let sha = loaded.lines().nth(1).unwrap_or_default().to_owned();
        let token = "0123456789abcdef0123456789abcdef";
        let take = frame(&["SET", name, token, "NX", "PX", "30000"]);
        let give = frame(&["EVALSHA", &sha, "1", name, token]);
        Ok(BareLane { socket, take, give })
    }
}

pub(super) struct BareLane {
    socket: Socket,
    take: Vec<u8>,
    give: Vec<u8>,
}

impl Lane for BareLane {
    type Held = ();

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

/// One connection; every reply fits into one read.
pub(super) struct Socket {
    stream: TcpStream,
    buffer: [u8; 4096],
}

impl Socket {
    pub(super) async fn connect(port: u16) -> Outcome<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: [0; 4096] })
    }

    pub(super) async fn send(&mut self, frame: &[u8]) -> Outcome<&[u8]> {
        self.write(frame).await?;
        self.read().await
    }

    pub(super) async fn write(&mut self, frame: &[u8]) -> Outcome {
        Ok(self.stream.write_all(frame).await?)
    }

    pub(super) async fn read(&mut self) -> Outcome<&[u8]> {
        match self.stream.read(&mut self.buffer).await? {
            0 => Err("the server closed the connection".into()),
            length => Ok(&self.buffer[..length]),
        }
    }

    pub(super) async fn call(&mut self, args: &[&str]) -> Outcome<String> {
        let reply = self.send(&frame(args)).await?;
        Ok(String::from_utf8_lossy(reply).into_owned())
    }
}

/// A command as the Redis protocol writes it.
pub(super) fn frame(args: &[&str]) -> Vec<u8> {
    let mut frame = format!("*{}\r\n", args.len());
    for arg in args {
        frame.push_str(&format!("${}\r\n{arg}\r\n", arg.len()));
    }
    frame.into_bytes()
}
