//! The address of the primary, requested from sentinels and announced by them.

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};

use crate::config::{Address, Endpoint, RedisConfig};
use crate::error::ExecError;
use crate::link::{Dialer, Heard, Listen, Socket};
use crate::link::{Link, NamesPrimary, Route};
use crate::script::{Reply, Request};

/// Where sentinels announce a new primary: `<service> <old host> <old port> <new host> <new port>`.
const ANNOUNCEMENTS: &str = "+switch-master";
/// The least time from one look for another primary to the next, however many are announced.
const PACE: Duration = Duration::from_millis(100);

/// The sentinels of one service, and a link to each that listens for announcements.
pub(crate) struct Sentinels<D: Dialer> {
    dialer: Arc<D>,
    config: RedisConfig,
    addresses: Vec<Address>,
    service: String,
    moved: Arc<Notify>,
    /// When [`Sentinels::moved`] returned last.
    reported: Mutex<Option<Instant>>,
    /// Which sentinel answered last.
    answering: AtomicUsize,
    links: Vec<Link<D>>,
}

impl<D: Dialer> Sentinels<D> {
    /// Starts to listen for announcements.
    pub(crate) fn start(dialer: &Arc<D>, config: &RedisConfig, addresses: &[Address], service: &str) -> Arc<Self> {
        let moved = Arc::new(Notify::new());
        let quiet = RedisConfig { name: None, ..config.clone() };
        let links = addresses.iter().map(|address| {
            let (signal, ours) = (Arc::clone(&moved), format!("{service} ").into_bytes());
            let sink = move |heard: Heard<'_>| match heard {
                Heard::Message(payload) if !payload.starts_with(&ours) => {}
                Heard::Cut => {}
                Heard::Message(_) | Heard::Gap => signal.notify_one(),
            };
            let listen = Listen { channel: ANNOUNCEMENTS.into(), sink: Arc::new(sink) };
            let route = Route::Fixed(config.sentinel(address.clone()));
            Link::new(Arc::clone(dialer), route, listen, &quiet, None).start()
        });
        Arc::new(Self {
            dialer: Arc::clone(dialer),
            config: config.clone(),
            addresses: addresses.to_vec(),
            service: service.to_owned(),
            answering: AtomicUsize::new(0),
            links: links.collect(),
            moved,
            reported: Mutex::default(),
        })
    }

    async fn ask(&self, sentinel: &Address) -> Result<Address, ExecError> {
        let socket = self.dialer.dial(&self.config.sentinel(sentinel.clone()), None).await?;
        let request = ["SENTINEL", "get-master-addr-by-name", &self.service];
        let reply = match socket.send(&Request::words(&request)).await {
            Err(ExecError::SentUnknown { message, source }) => return Err(ExecError::NotSent { message, source }),
            reply => reply?,
        };
        if reply == Reply::Nil {
            let message = format!("the sentinel {sentinel} knows no primary called {}", self.service);
            return Err(ExecError::NotSent { message, source: None });
        }
        place(&reply).ok_or_else(|| ExecError::Protocol { message: "a sentinel answered in an unexpected form".into() })
    }

    /// Stops listening.
    pub(crate) async fn close(&self) {
        for link in &self.links {
            link.close().await;
        }
    }
}

#[async_trait]
impl<D: Dialer> NamesPrimary<D::Socket> for Sentinels<D> {
    /// What the sentinels stand for, in words.
    fn place(&self) -> String {
        format!("the primary of {}", self.service)
    }

    /// Returns when there may be another primary: at once for the first announcement after a while. Those that follow at its
    /// heels count as one, reported a moment later. Dropping the future forgets none.
    async fn moved(&self) {
        let reported = || self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        let last = *reported();
        if let Some(last) = last {
            sleep_until(last + PACE).await;
        }
        self.moved.notified().await;
        *reported() = Some(Instant::now());
    }

    /// The primary, as the first sentinel that answers knows it.
    async fn primary(&self) -> Result<Address, ExecError> {
        let (count, first) = (self.addresses.len(), self.answering.load(Ordering::Relaxed));
        let mut last = ExecError::NotSent { message: "no sentinel is named".into(), source: None };
        for at in (0..count).map(|i| (first + i) % count) {
            let limit = self.config.connect_timeout;
            match timeout(limit, self.ask(&self.addresses[at])).await {
                Ok(Ok(address)) => {
                    self.answering.store(at, Ordering::Relaxed);
                    return Ok(address);
                }
                Ok(Err(error)) => last = error,
                Err(_) => {
                    let message = format!("the sentinel {} did not answer within {limit:?}", self.addresses[at]);
                    last = ExecError::NotSent { message, source: None };
                }
            }
        }
        Err(last)
    }

    /// The primary, and how to log in there.
    async fn endpoint(&self) -> Result<Endpoint, ExecError> {
        Ok(self.config.endpoint(self.primary().await?))
    }

    /// Makes sure that a server is a primary: sentinels learn late, and a restarted one may be a replica by now.
    async fn confirm(&self, socket: &D::Socket) -> Result<(), ExecError> {
        match socket.send(&Request::words(&["ROLE"])).await {
            Ok(Reply::Array(parts)) if parts.first() == Some(&Reply::Bytes(b"master".to_vec())) => Ok(()),
            Ok(_) => {
                let message = "the server that the sentinels name is not (yet) a primary".into();
                Err(ExecError::NotSent { message, source: None })
            }
            Err(error) if error.is_denied() => Ok(()), // writing to a replica is refused anyway
            Err(error) => Err(error),
        }
    }
}

/// The primary that a sentinel names.
pub(crate) fn place(reply: &Reply) -> Option<Address> {
    let Reply::Array(parts) = reply else { return None };
    let [Reply::Bytes(host), Reply::Bytes(port)] = parts.as_slice() else { return None };
    Some(Address::tcp(std::str::from_utf8(host).ok()?, std::str::from_utf8(port).ok()?.parse().ok()?))
}

impl<D: Dialer> fmt::Debug for Sentinels<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sentinels").field("service", &self.service).field("addresses", &self.addresses).finish()
    }
}
