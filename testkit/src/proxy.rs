//! A TCP proxy that can fail in the ways that networks do.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How often a blocked thread looks whether the mode has changed.
const TICK: Duration = Duration::from_millis(10);

/// What a proxied connection does with bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// Carries them both ways.
    Open,
    /// Carries requests and loses replies.
    LosesReplies,
    /// Loses everything, and closes nothing.
    Silent,
    /// Carries nothing and loses nothing: who sends has to wait in the end.
    Jammed,
    /// Answers with a line that never ends, in place of the server.
    EndlessLine,
    /// Answers with a string of the greatest length that can be announced, in place of the server.
    EndlessString,
    /// Answers with an array in an array, and so on without end, in place of the server.
    EndlessNesting,
}

impl Link {
    const ALL: [Self; 7] = [
        Self::Open,
        Self::LosesReplies,
        Self::Silent,
        Self::Jammed,
        Self::EndlessLine,
        Self::EndlessString,
        Self::EndlessNesting,
    ];

    /// The answer without end, if there is one: how it begins, and what it then repeats.
    fn flood(self) -> Option<(&'static [u8], &'static [u8])> {
        match self {
            Self::EndlessLine => Some((b"+", b"a")),
            Self::EndlessString => Some((b"$9223372036854775807\r\n", b"a")),
            Self::EndlessNesting => Some((b"", b"*1\r\n")),
            _ => None,
        }
    }
}

#[derive(Debug)]
struct Connection {
    link: AtomicU8,
    ends: [TcpStream; 2],
}

#[derive(Debug)]
struct Shared {
    target: AtomicU16,
    fresh: AtomicU8,
    /// How many microseconds new connections are long, each way.
    delay: AtomicU64,
    closed: AtomicBool,
    accepted: AtomicUsize,
    /// How many connections there may be at a time.
    admitted: AtomicUsize,
    connections: Mutex<Vec<Arc<Connection>>>,
}

/// A proxy on a free port of loopback before another port of loopback. Dropping it cuts everything.
#[derive(Debug)]
pub struct TcpProxy {
    port: u16,
    shared: Arc<Shared>,
}

impl TcpProxy {
    /// Starts a proxy before `target`.
    ///
    /// # Errors
    ///
    /// Those of listening.
    pub fn start(target: u16) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = listener.local_addr()?.port();
        let shared = Arc::new(Shared {
            target: target.into(),
            fresh: AtomicU8::new(Link::Open as u8),
            delay: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            accepted: AtomicUsize::new(0),
            admitted: AtomicUsize::new(usize::MAX),
            connections: Mutex::default(),
        });
        let serving = Arc::clone(&shared);
        thread::spawn(move || {
            for client in listener.incoming() {
                if serving.closed.load(Ordering::Acquire) {
                    return;
                }
                let _ = client.and_then(|client| serving.accept(client)); // a failed one is closed by its drop
            }
        });
        Ok(Self { port, shared })
    }

    /// The port that clients connect to.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// How many connections were accepted since the start.
    #[must_use]
    pub fn accepted(&self) -> usize {
        self.shared.accepted.load(Ordering::Acquire)
    }

    /// Changes what the present connections do; new ones keep doing what they did.
    pub fn set_present(&self, link: Link) {
        for connection in self.shared.connections().iter() {
            connection.link.store(link as u8, Ordering::Release);
        }
    }

    /// Changes what new connections do.
    pub fn set_new(&self, link: Link) {
        self.shared.fresh.store(link as u8, Ordering::Release);
    }

    /// Makes new connections carry everything so much later, each way, as a long way does.
    pub fn set_delay(&self, delay: Duration) {
        let micros = u64::try_from(delay.as_micros()).unwrap_or(u64::MAX);
        self.shared.delay.store(micros, Ordering::Release);
    }

    /// Admits this many connections at a time, and closes others at once.
    pub fn admit(&self, most: usize) {
        self.shared.admitted.store(most, Ordering::Release);
    }

    /// Leads new connections to this port; present ones stay where they are, as when a name resolves to another address.
    pub fn lead_to(&self, target: u16) {
        self.shared.target.store(target, Ordering::Release);
    }

    /// Closes all present connections.
    pub fn cut(&self) {
        for connection in self.shared.connections().drain(..) {
            connection.close();
        }
    }
}

impl Drop for TcpProxy {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::Release);
        self.cut();
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)); // wakes the listening thread
    }
}

impl Shared {
    fn accept(&self, client: TcpStream) -> io::Result<()> {
        let open = self.connections().iter().filter(|connection| Arc::strong_count(connection) > 1).count();
        if open >= self.admitted.load(Ordering::Acquire) {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let server = TcpStream::connect((Ipv4Addr::LOCALHOST, self.target.load(Ordering::Acquire)))?;
        for end in [&client, &server] {
            end.set_nodelay(true)?;
            end.set_read_timeout(Some(TICK))?;
        }
        let connection = Arc::new(Connection {
            link: AtomicU8::new(self.fresh.load(Ordering::Acquire)),
            ends: [client.try_clone()?, server.try_clone()?],
        });
        let mut connections = self.connections();
        connections.retain(|old| Arc::strong_count(old) > 1);
        connections.push(Arc::clone(&connection));
        self.accepted.fetch_add(1, Ordering::AcqRel);
        let (from_client, to_client) = (client.try_clone()?, client);
        let (from_server, to_server) = (server.try_clone()?, server);
        let requests = Arc::clone(&connection);
        let delay = Duration::from_micros(self.delay.load(Ordering::Acquire));
        let to_server = Later::new(to_server, delay);
        let replies = Later::new(to_client.try_clone()?, delay);
        thread::spawn(move || requests.carry(from_client, to_server, |link| link != Link::Silent));
        thread::spawn(move || connection.answer(from_server, to_client, replies));
        Ok(())
    }

    fn connections(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Connection>>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The writing side of a connection: bytes come out at the other end, with a delay if the connection has one.
enum Later {
    Now(TcpStream),
    After(Duration, Sender<(Instant, Vec<u8>)>),
}

impl Later {
    fn new(mut to: TcpStream, delay: Duration) -> Self {
        if delay.is_zero() {
            return Self::Now(to);
        }
        let (sender, receiver) = channel::<(Instant, Vec<u8>)>();
        thread::spawn(move || {
            for (due, bytes) in receiver {
                thread::sleep(due.saturating_duration_since(Instant::now()));
                if to.write_all(&bytes).is_err() {
                    return;
                }
            }
        });
        Self::After(delay, sender)
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Now(to) => to.write_all(bytes),
            Self::After(delay, sender) => {
                sender.send((Instant::now() + *delay, bytes.to_vec())).map_err(|_| io::ErrorKind::BrokenPipe.into())
            }
        }
    }
}

impl Connection {
    /// Carries replies until a flood is ordered.
    fn answer(&self, from: TcpStream, mut to: TcpStream, replies: Later) {
        let flood = self.carry_until(from, replies, |link| link == Link::Open, Link::flood);
        if let Some((head, repeated)) = flood {
            let (mut sent, many) = (to.write_all(head), repeated.repeat(64 * 1024 / repeated.len()));
            while sent.is_ok() {
                sent = to.write_all(&many);
            }
        }
        self.close();
    }

    fn carry(&self, from: TcpStream, to: Later, passes: impl Fn(Link) -> bool) {
        let _ = self.carry_until(from, to, passes, |_| None::<()>);
        self.close();
    }

    /// Carries until an end is closed, or the link is one that `stop` wants something else of.
    fn carry_until<T>(
        &self,
        mut from: TcpStream,
        mut to: Later,
        passes: impl Fn(Link) -> bool,
        stop: impl Fn(Link) -> Option<T>,
    ) -> Option<T> {
        let mut buffer = [0; 16 * 1024];
        loop {
            if let Some(other) = stop(self.link()) {
                return Some(other);
            }
            match from.read(&mut buffer) {
                Ok(0) => return None,
                Ok(count) => {
                    if passes(self.unjammed()) && to.write_all(&buffer[..count]).is_err() {
                        return None;
                    }
                }
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
                Err(_) => return None,
            }
        }
    }

    fn link(&self) -> Link {
        Link::ALL[usize::from(self.link.load(Ordering::Acquire))]
    }

    /// What the connection does, once it does anything.
    fn unjammed(&self) -> Link {
        loop {
            match self.link() {
                Link::Jammed => thread::sleep(TICK),
                link => return link,
            }
        }
    }

    fn close(&self) {
        self.link.store(Link::Open as u8, Ordering::Release);
        for end in &self.ends {
            let _ = end.shutdown(Shutdown::Both);
        }
    }
}
