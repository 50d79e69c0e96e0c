//! The nodes of a cluster, and the assignment of keys to them.
//!
//! There is a link to every primary, each subscribed to the client's wake-up channel *at that node*. Inside a cluster
//! `PUBLISH` counts only the listeners of the node that runs it. The waiter of a lock listens at the node that keeps
//! the lock's queue, so the count is right, and a wake-up takes no detour. The server passes every message on to the
//! other nodes as well, so this client receives a wake-up once for each of its links. That is harmless: a waiter that
//! was woken for nothing asks once more. The client also receives wake-ups that the script counted as unheard, having
//! found no listener at its own node. So a lock is never handed over by message here. Sharded channels (`SPUBLISH`)
//! would avoid that, but a script may use only channels in the slot of its keys: that requires a subscription for each
//! name with waiters, and one more round trip for each wait.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::config::{Address, RedisConfig};
use crate::error::ExecError;
use crate::link::{Dialer, Listen, Socket};
use crate::link::{Link, Route};
use crate::script::{Reply, Request};
use crate::slot;

/// How often a request is sent on. Each redirection proves that nothing was executed.
const REDIRECTIONS: u32 = 4;
/// How often the map is looked at when nothing seems wrong.
const REFRESH: Duration = Duration::from_secs(30);
/// How often it is looked at while something is wrong.
const REFRESH_SOON: Duration = Duration::from_millis(200);

/// Links to all primaries of a cluster.
pub(crate) struct Cluster<D: Dialer>(Arc<Shared<D>>);

struct Shared<D: Dialer> {
    dialer: Arc<D>,
    config: RedisConfig,
    seeds: Vec<Address>,
    listen: Listen,
    nodes: RwLock<Nodes<D>>,
    /// The map may be out of date, or a link went down.
    stale: Arc<Notify>,
    /// What keeps the map up to date.
    keeping: Mutex<Option<JoinHandle<()>>>,
}

struct Nodes<D: Dialer> {
    map: SlotMap,
    links: HashMap<Address, Arc<Link<D>>>,
    closed: bool,
}

impl<D: Dialer> Cluster<D> {
    /// Finds the primaries through any of `seeds`, and connects to all of them.
    pub(crate) async fn connect(
        dialer: Arc<D>,
        config: &RedisConfig,
        seeds: &[Address],
        listen: Listen,
    ) -> Result<Self, ExecError> {
        let shared = Arc::new(Shared {
            dialer,
            config: config.clone(),
            seeds: seeds.to_vec(),
            listen,
            nodes: RwLock::new(Nodes { map: SlotMap::default(), links: HashMap::new(), closed: false }),
            stale: Arc::new(Notify::new()),
            keeping: Mutex::default(),
        });
        shared.refresh().await?;
        let deadline = Instant::now() + config.connect_timeout;
        for link in shared.links() {
            link.up(deadline.saturating_duration_since(Instant::now())).await?;
        }
        shared.keep_going();
        Ok(Self(shared))
    }

    /// Sends one command to the node that serves `slot`, and follows redirections.
    pub(crate) async fn request(&self, slot: u16, request: &Request<'_>) -> Result<Reply, ExecError> {
        let shared = &self.0;
        let mut node = shared.node_of(slot)?;
        for _ in 0..REDIRECTIONS {
            let error = match shared.link_to(&node)?.request(request).await {
                Ok(reply) => return Ok(reply),
                Err(ExecError::Closed) => {
                    node = shared.node_of(slot)?; // the node left the cluster before it was asked
                    continue;
                }
                Err(error) => error,
            };
            let (code, message) = match &error {
                ExecError::Server { code, message } => (code.as_str(), message.as_str()),
                _ => ("", ""),
            };
            match (code, redirection(message, &node)) {
                ("MOVED", Some((slot, served_by))) => {
                    shared.keep_going();
                    shared.moved(slot, served_by.clone());
                    node = served_by;
                }
                ("ASK", Some((_, asked))) => return shared.ask(asked, request).await,
                ("" | "CLUSTERDOWN" | "READONLY" | "MASTERDOWN" | "LOADING", _) => {
                    shared.keep_going();
                    shared.stale.notify_one();
                    return Err(error);
                }
                _ => return Err(error),
            }
        }
        let message = format!("the nodes of the cluster disagree about who serves slot {slot}");
        Err(ExecError::NotSent { message, source: None })
    }

    /// Sends one command to every primary; one that leaves the cluster before it is asked has no answer.
    pub(crate) async fn everywhere(&self, request: &Request<'_>) -> Vec<(String, Result<Reply, ExecError>)> {
        let ask = async |link: Arc<Link<D>>| (link.place(), link.request(request).await);
        let mut answers = futures_util::future::join_all(self.0.links().into_iter().map(ask)).await;
        if !self.0.nodes().closed {
            answers.retain(|(_, answer)| !matches!(answer, Err(ExecError::Closed)));
        }
        answers
    }

    /// For every primary, where it is and some of the slots that it serves.
    pub(crate) fn homes(&self) -> Vec<(String, RangeInclusive<u16>)> {
        self.0.nodes().map.homes().into_iter().map(|(node, slots)| (node.to_string(), slots)).collect()
    }

    /// Ends all links.
    pub(crate) async fn close(&self) {
        let links = {
            let mut nodes = self.0.nodes.write().unwrap_or_else(PoisonError::into_inner);
            nodes.closed = true;
            nodes.links.values().cloned().collect::<Vec<_>>()
        };
        for link in links {
            link.close().await;
        }
        self.0.stale.notify_one();
    }
}

impl<D: Dialer> Shared<D> {
    /// Makes sure that the map is kept up to date, here if the runtime has ended that did it.
    fn keep_going(self: &Arc<Self>) {
        let mut keeping = self.keeping.lock().unwrap_or_else(PoisonError::into_inner);
        if keeping.as_ref().is_none_or(JoinHandle::is_finished) {
            *keeping = Some(tokio::spawn(keep(Arc::downgrade(self), Arc::clone(&self.stale))));
        }
    }

    fn nodes(&self) -> std::sync::RwLockReadGuard<'_, Nodes<D>> {
        self.nodes.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn links(&self) -> Vec<Arc<Link<D>>> {
        self.nodes().links.values().cloned().collect()
    }

    fn node_of(&self, slot: u16) -> Result<Address, ExecError> {
        let nodes = self.nodes();
        if nodes.closed {
            return Err(ExecError::Closed);
        }
        nodes.map.node(slot).cloned().ok_or_else(|| {
            self.stale.notify_one();
            ExecError::NotSent { message: format!("no node of the cluster serves slot {slot}"), source: None }
        })
    }

    fn link_to(&self, node: &Address) -> Result<Arc<Link<D>>, ExecError> {
        if let Some(link) = self.nodes().links.get(node) {
            return Ok(Arc::clone(link));
        }
        let mut nodes = self.nodes.write().unwrap_or_else(PoisonError::into_inner);
        if nodes.closed {
            return Err(ExecError::Closed);
        }
        Ok(Arc::clone(nodes.links.entry(node.clone()).or_insert_with(|| Arc::new(self.start(node)))))
    }

    fn start(&self, node: &Address) -> Link<D> {
        let route = Route::Fixed(self.config.endpoint(node.clone()));
        let news = Some(Arc::clone(&self.stale));
        Link::new(Arc::clone(&self.dialer), route, self.listen.clone(), &self.config, news).start()
    }

    fn moved(&self, slot: u16, node: Address) {
        self.nodes.write().unwrap_or_else(PoisonError::into_inner).map.moved(slot, node);
        self.stale.notify_one();
    }

    /// Asks a node that is taking over a slot, on its own connection: the permission to ask is good for the next command of the
    /// connection, from any sender. The link that hears wake-ups is started beside it.
    async fn ask(&self, node: Address, request: &Request<'_>) -> Result<Reply, ExecError> {
        self.link_to(&node)?;
        let limit = self.config.connect_timeout;
        let open = async {
            let socket = self.dialer.dial(&self.config.endpoint(node.clone()), None).await?;
            socket.send(&Request::words(&["ASKING"])).await?;
            Ok::<_, ExecError>(socket)
        };
        let not_sent = |message| ExecError::NotSent { message, source: None };
        let socket = match timeout(limit, open).await {
            Ok(Ok(socket)) => socket,
            Ok(Err(error)) => return Err(not_sent(format!("cannot ask {node}: {error}"))),
            Err(_) => return Err(not_sent(format!("cannot ask {node}: no connection within {limit:?}"))),
        };
        let limit = self.config.response_timeout;
        let silent = |_| ExecError::SentUnknown { message: format!("no answer within {limit:?}"), source: None };
        timeout(limit, socket.send(request)).await.map_err(silent)?
    }

    /// Looks at the map anew: through an open link, else through any node that answers.
    async fn refresh(&self) -> Result<(), ExecError> {
        const SLOTS: Request<'_> = Request::words(&["CLUSTER", "SLOTS"]);
        let known: Vec<(Address, Arc<Link<D>>)> =
            self.nodes().links.iter().map(|(node, link)| (node.clone(), Arc::clone(link))).collect();
        let mut last = ExecError::NotSent { message: "no node of the cluster is named".into(), source: None };
        for (node, link) in known.iter().filter(|(_, link)| link.is_up()) {
            match link.request(&SLOTS).await.and_then(|reply| SlotMap::read(&reply, node)) {
                Ok(map) => return self.adopt(map).await,
                Err(error) => last = error,
            }
        }
        for seed in &self.seeds {
            let deadline = Instant::now() + self.config.connect_timeout;
            let look = async {
                let socket = self.dialer.dial(&self.config.endpoint(seed.clone()), None).await?;
                SlotMap::read(&socket.send(&SLOTS).await?, seed)
            };
            match timeout_at(deadline, look).await {
                Ok(Ok(map)) => return self.adopt(map).await,
                Ok(Err(error)) => last = error,
                Err(_) => {
                    let message = format!("no answer from {seed} within {:?}", self.config.connect_timeout);
                    last = ExecError::NotSent { message, source: None };
                }
            }
        }
        Err(last)
    }

    /// Takes over a new map: links to new primaries are started, those to nodes that serve nothing any more end.
    async fn adopt(&self, map: SlotMap) -> Result<(), ExecError> {
        let primaries = map.nodes();
        let gone: Vec<Arc<Link<D>>> = {
            let mut nodes = self.nodes.write().unwrap_or_else(PoisonError::into_inner);
            if nodes.closed {
                return Err(ExecError::Closed);
            }
            nodes.map = map;
            for node in &primaries {
                nodes.links.entry(node.clone()).or_insert_with(|| Arc::new(self.start(node)));
            }
            let gone: Vec<Address> = nodes.links.keys().filter(|node| !primaries.contains(node)).cloned().collect();
            gone.iter().filter_map(|node| nodes.links.remove(node)).collect()
        };
        for link in gone {
            link.close().await;
        }
        Ok(())
    }
}

/// Keeps the map up to date until the cluster is closed or forgotten.
async fn keep<D: Dialer>(cluster: Weak<Shared<D>>, stale: Arc<Notify>) {
    let mut pause = REFRESH;
    loop {
        let _ = timeout(pause, stale.notified()).await; // signalled or not, it is time to look
        let Some(cluster) = cluster.upgrade() else { return };
        if cluster.nodes().closed {
            return;
        }
        let well = cluster.refresh().await.is_ok() && cluster.links().iter().all(|link| link.is_up());
        pause = if well { REFRESH } else { REFRESH_SOON };
        drop(cluster);
        sleep(REFRESH_SOON / 2).await; // news come in crowds
    }
}

impl<D: Dialer> Drop for Cluster<D> {
    fn drop(&mut self) {
        self.0.stale.notify_one();
    }
}

impl<D: Dialer> fmt::Debug for Cluster<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("seeds", &self.0.seeds).finish_non_exhaustive()
    }
}

/// Which node serves which slots.
#[derive(Clone, Debug, Default)]
pub(crate) struct SlotMap {
    ranges: Vec<(u16, u16, Address)>,
    /// Slots that a node said have moved since.
    moved: HashMap<u16, Address>,
}

impl SlotMap {
    /// Reads the answer to `CLUSTER SLOTS` of the node at `asked`.
    pub(crate) fn read(reply: &Reply, asked: &Address) -> Result<Self, ExecError> {
        let bad = || ExecError::Protocol { message: "the cluster's map of slots has an unexpected form".into() };
        let Reply::Array(items) = reply else { return Err(bad()) };
        let range = |item: &Reply| -> Option<(u16, u16, Address)> {
            let Reply::Array(parts) = item else { return None };
            let [Reply::Int(from), Reply::Int(to), Reply::Array(primary), ..] = parts.as_slice() else { return None };
            let [host, Reply::Int(port), ..] = primary.as_slice() else { return None };
            let host = match host {
                Reply::Bytes(bytes) => std::str::from_utf8(bytes).ok()?,
                _ => "", // unknown to the node itself
            };
            let node = node(host, u16::try_from(*port).ok()?, asked)?;
            let (from, to) = (u16::try_from(*from).ok()?, u16::try_from(*to).ok()?);
            (from <= to && to < slot::COUNT).then_some((from, to, node))
        };
        let ranges = items.iter().map(range).collect::<Option<Vec<_>>>().ok_or_else(bad)?;
        if ranges.is_empty() {
            return Err(ExecError::NotSent { message: "the cluster serves no slots".into(), source: None });
        }
        Ok(Self { ranges, moved: HashMap::new() })
    }

    /// Who serves `slot`.
    pub(crate) fn node(&self, slot: u16) -> Option<&Address> {
        let range = || self.ranges.iter().find(|(from, to, _)| (*from..=*to).contains(&slot));
        self.moved.get(&slot).or_else(|| range().map(|(_, _, node)| node))
    }

    /// Notes that `slot` is served by `node` now.
    pub(crate) fn moved(&mut self, slot: u16, node: Address) {
        self.moved.insert(slot, node);
    }

    /// For every node that serves slots, some of those.
    pub(crate) fn homes(&self) -> Vec<(&Address, RangeInclusive<u16>)> {
        let mut all: Vec<(&Address, RangeInclusive<u16>)> = Vec::new();
        for (from, to, node) in &self.ranges {
            if !all.iter().any(|(known, _)| *known == node) {
                all.push((node, *from..=*to));
            }
        }
        all
    }

    /// Every node that serves slots, once.
    pub(crate) fn nodes(&self) -> Vec<Address> {
        let mut all: Vec<Address> = Vec::new();
        for node in self.ranges.iter().map(|(_, _, node)| node).chain(self.moved.values()) {
            if !all.contains(node) {
                all.push(node.clone());
            }
        }
        all
    }
}

/// The slot and the node of a redirection, `<slot> <host>:<port>`, by the node at `asked`.
pub(crate) fn redirection(message: &str, asked: &Address) -> Option<(u16, Address)> {
    let (slot, place) = message.trim().split_once(' ')?;
    let (host, port) = place.rsplit_once(':')?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let slot = slot.parse().ok().filter(|slot| *slot < slot::COUNT)?;
    let port = port.parse().ok().filter(|port| *port > 0)?;
    Some((slot, node(host, port, asked)?))
}

/// A node that does not know its own name is where it was asked. `None` if the text is no name of a host.
fn node(host: &str, port: u16, asked: &Address) -> Option<Address> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:%".contains(&byte);
    match (asked, host) {
        (Address::Tcp { host: known, .. }, "" | "?") => Some(Address::tcp(known, port)),
        _ => (!host.is_empty() && host.bytes().all(fits)).then(|| Address::tcp(host, port)),
    }
}
