//! A small blocking client of the Redis protocol, independent of the client crates under test.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// How long a reply may take.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);

/// A reply, as the server sent it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Nothing there.
    Nil,
    /// A number.
    Int(i64),
    /// A status such as `OK`.
    Status(String),
    /// Bytes.
    Bulk(Vec<u8>),
    /// Several replies.
    Array(Vec<Reply>),
    /// A refusal, as text: its first word is the code.
    Error(String),
}

impl Reply {
    /// The text of a status, a bulk or an error; numbers in decimal; empty for anything else.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::Status(text) | Self::Error(text) => text.clone(),
            Self::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Self::Int(number) => number.to_string(),
            Self::Nil | Self::Array(_) => String::new(),
        }
    }

    /// The number of an integer reply, or of a text that is one.
    #[must_use]
    pub fn int(&self) -> Option<i64> {
        match self {
            Self::Int(number) => Some(*number),
            _ => self.text().parse().ok(),
        }
    }

    /// The elements of an array; none for anything else.
    #[must_use]
    pub fn items(&self) -> &[Reply] {
        match self {
            Self::Array(items) => items,
            _ => &[],
        }
    }
}

trait Socket: Read + Write + Send {}
impl<T: Read + Write + Send> Socket for T {}

/// One connection.
pub struct RespClient(BufReader<Box<dyn Socket>>);

impl std::fmt::Debug for RespClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RespClient")
    }
}

impl RespClient {
    /// Connects to a port of loopback.
    ///
    /// # Errors
    ///
    /// Those of the socket.
    pub fn tcp(port: u16) -> io::Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(REPLY_TIMEOUT))?;
        Ok(Self(BufReader::new(Box::new(stream))))
    }

    /// Connects to a unix socket.
    ///
    /// # Errors
    ///
    /// Those of the socket.
    pub fn unix(path: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(REPLY_TIMEOUT))?;
        Ok(Self(BufReader::new(Box::new(stream))))
    }

    /// Sends a command and reads its reply. A refusal is a [`Reply::Error`], not an error.
    ///
    /// # Errors
    ///
    /// Those of the socket; a reply that takes too long is one.
    pub fn call<A: AsRef<[u8]>>(&mut self, args: &[A]) -> io::Result<Reply> {
        self.send(args)?;
        self.read()
    }

    /// Sends a command without reading its reply.
    ///
    /// # Errors
    ///
    /// Those of the socket.
    pub fn send<A: AsRef<[u8]>>(&mut self, args: &[A]) -> io::Result<()> {
        let mut frame = format!("*{}\r\n", args.len()).into_bytes();
        for arg in args {
            frame.extend_from_slice(format!("${}\r\n", arg.as_ref().len()).as_bytes());
            frame.extend_from_slice(arg.as_ref());
            frame.extend_from_slice(b"\r\n");
        }
        self.0.get_mut().write_all(&frame)
    }

    /// Reads the next reply.
    ///
    /// # Errors
    ///
    /// Those of the socket; [`io::ErrorKind::InvalidData`] for bytes that are no reply.
    pub fn read(&mut self) -> io::Result<Reply> {
        let mut line = String::new();
        if self.0.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let bad = || io::Error::new(io::ErrorKind::InvalidData, "not a reply of the Redis protocol");
        let line = line.trim_end();
        let (kind, rest) = line.split_at_checked(1).ok_or_else(bad)?;
        let number = || rest.parse::<i64>().map_err(|_| bad());
        Ok(match kind {
            "+" => Reply::Status(rest.to_owned()),
            "-" => Reply::Error(rest.to_owned()),
            ":" => Reply::Int(number()?),
            "$" => match usize::try_from(number()?) {
                Err(_) => Reply::Nil,
                Ok(length) => {
                    let mut bytes = vec![0; length + 2];
                    self.0.read_exact(&mut bytes)?;
                    bytes.truncate(length);
                    Reply::Bulk(bytes)
                }
            },
            "*" => match usize::try_from(number()?) {
                Err(_) => Reply::Nil,
                Ok(length) => Reply::Array((0..length).map(|_| self.read()).collect::<io::Result<_>>()?),
            },
            _ => return Err(bad()),
        })
    }
}
