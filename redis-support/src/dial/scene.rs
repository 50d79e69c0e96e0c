//! Servers in memory, for tests of what stands above connections.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::{Dialer, Heard, Listen, Reply, Request, Socket};
use crate::config::{Address, Endpoint};
use crate::error::ExecError;

/// How a server behaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mood {
    #[default]
    Well,
    /// It takes no connections.
    Refusing,
    /// It takes connections, and answers nothing.
    Silent,
}

type Answer = Arc<dyn Fn(&Address, &str) -> Result<Reply, ExecError> + Send + Sync>;

/// Servers, and what came to them. Clones are the same.
#[derive(Clone)]
pub(crate) struct Scene(Arc<Mutex<State>>);

struct State {
    began: Instant,
    answer: Answer,
    moods: HashMap<Address, Mood>,
    dialled: Vec<(Duration, Address)>,
    sent: Vec<(Duration, Address, String)>,
    /// Told when it is cut.
    connections: Vec<(Address, watch::Sender<bool>)>,
}

/// A connection to one of the servers.
pub(crate) struct Connection {
    scene: Scene,
    address: Address,
    cut: watch::Receiver<bool>,
}

/// A server of this name.
pub(crate) fn server(name: &str) -> Address {
    Address::tcp(name, 1)
}

/// Somebody who listens, and what was heard so far, in a word each.
pub(crate) fn listener() -> (Listen, Arc<Mutex<Vec<&'static str>>>) {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let notes = Arc::clone(&heard);
    let sink = move |heard: Heard<'_>| {
        notes.lock().unwrap().push(match heard {
            Heard::Message(_) => "message",
            Heard::Cut => "cut",
            Heard::Gap => "gap",
        });
    };
    (Listen { channel: "channel".into(), sink: Arc::new(sink) }, heard)
}

/// The map of a cluster in which each of these serves so many slots, one after the other.
pub(crate) fn slot_map(shares: &[(&Address, u16)]) -> Reply {
    let mut from = 0;
    let range = |(node, count): &(&Address, u16)| {
        let Address::Tcp { host, port } = node else { panic!("{node}") };
        let to = from + count - 1;
        let node = Reply::Array(vec![Reply::Bytes(host.clone().into()), Reply::Int((*port).into())]);
        let range = Reply::Array(vec![Reply::Int(from.into()), Reply::Int(to.into()), node]);
        from += count;
        range
    };
    Reply::Array(shares.iter().map(range).collect())
}

impl Scene {
    /// Servers that answer everything with `OK`, until told otherwise.
    pub(crate) fn new() -> Self {
        let (moods, dialled, sent, connections) = Default::default();
        let answer: Answer = Arc::new(|_, _| Ok(Reply::Bytes(b"OK".to_vec())));
        Self(Arc::new(Mutex::new(State { began: Instant::now(), answer, moods, dialled, sent, connections })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// What servers answer from now on, to a command as text.
    pub(crate) fn answers(&self, answer: impl Fn(&Address, &str) -> Result<Reply, ExecError> + Send + Sync + 'static) {
        self.state().answer = Arc::new(answer);
    }

    pub(crate) fn is(&self, address: &Address, mood: Mood) {
        self.state().moods.insert(address.clone(), mood);
    }

    /// Ends the connections to this server that stand, or the latest of them only.
    pub(crate) fn cut(&self, address: &Address, latest: bool) {
        let mut state = self.state();
        let all: Vec<usize> = (0..state.connections.len()).filter(|at| state.connections[*at].0 == *address).collect();
        for at in all.into_iter().rev().take(if latest { 1 } else { usize::MAX }) {
            let _ = state.connections.remove(at).1.send(true);
        }
    }

    /// How many connections to this server stand.
    pub(crate) fn connections(&self, address: &Address) -> usize {
        let mut state = self.state();
        state.connections.retain(|(_, cut)| !cut.is_closed());
        state.connections.iter().filter(|(at, _)| at == address).count()
    }

    /// When somebody tried to connect to this server.
    pub(crate) fn dialled(&self, address: &Address) -> Vec<Duration> {
        self.state().dialled.iter().filter(|(_, at)| at == address).map(|(when, _)| *when).collect()
    }

    /// When this command came, to any server.
    pub(crate) fn sent(&self, command: &str) -> Vec<(Duration, Address)> {
        let state = self.state();
        let same = state.sent.iter().filter(|(_, _, text)| text == command);
        same.map(|(when, at, _)| (*when, at.clone())).collect()
    }

    /// The server that was asked for keys last.
    pub(crate) fn last_scan(&self) -> Option<String> {
        let state = self.state();
        state.sent.iter().rev().find(|(_, _, text)| text.starts_with("SCAN ")).map(|(_, at, _)| at.to_string())
    }

    /// Since it began.
    pub(crate) fn time(&self) -> Duration {
        self.state().began.elapsed()
    }
}

impl std::fmt::Debug for Scene {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Scene")
    }
}

impl Dialer for Scene {
    type Socket = Connection;

    fn driver(&self) -> &'static str {
        "scene"
    }

    async fn dial(&self, endpoint: &Endpoint, _: Option<Listen>) -> Result<Connection, ExecError> {
        let (time, address) = (self.time(), endpoint.address.clone());
        let mut state = self.state();
        state.dialled.push((time, address.clone()));
        if state.moods.get(&address) == Some(&Mood::Refusing) {
            return Err(ExecError::not_sent("refused", None));
        }
        let (cuts, cut) = watch::channel(false);
        state.connections.push((address.clone(), cuts));
        Ok(Connection { scene: self.clone(), address, cut })
    }
}

impl Socket for Connection {
    async fn send(&self, request: &Request<'_>) -> Result<Reply, ExecError> {
        let mut words = Vec::new();
        request.each(|word| words.push(String::from_utf8_lossy(word).into_owned()));
        let (time, text) = (self.scene.time(), words.join(" "));
        let (mood, answer) = {
            let mut state = self.scene.state();
            state.sent.push((time, self.address.clone(), text.clone()));
            (state.moods.get(&self.address).copied().unwrap_or_default(), Arc::clone(&state.answer))
        };
        tokio::task::yield_now().await;
        if mood == Mood::Silent || *self.cut.borrow() {
            self.ended().await;
            return Err(ExecError::SentUnknown { message: "cut".into(), source: None });
        }
        answer(&self.address, &text)
    }

    async fn ended(&self) {
        let mut cut = self.cut.clone();
        let _ = cut.wait_for(|cut| *cut).await;
    }
}
