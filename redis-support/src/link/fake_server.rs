//! Servers in memory, for tests of the layers above connections.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::{Dialer, Heard, Listen, Socket};
use crate::config::{Address, Endpoint, RedisConfig};
use crate::error::ExecError;
use crate::script::{Reply, Request, SCRIPTS, Script};

/// How a server behaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mood {
    #[default]
    Well,
    /// It accepts no connections.
    Refusing,
    /// It accepts connections, and sends no answers.
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
    dialled: Vec<(Duration, Endpoint)>,
    sent: Vec<(Duration, Address, String)>,
    connections: Vec<Open>,
}

/// A connection, as its server has it.
struct Open {
    address: Address,
    listen: Option<Listen>,
    /// Notified when it is cut.
    cuts: watch::Sender<bool>,
}

/// A connection to one of the servers.
pub(crate) struct Connection {
    fake_server: Scene,
    address: Address,
    cut: watch::Receiver<bool>,
}

/// A server of this name.
pub(crate) fn server(name: &str) -> Address {
    Address::tcp(name, 1)
}

/// A listener, and the list of its news so far, in a word each.
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

/// A script that was called.
pub(crate) struct Called<'a> {
    pub(crate) script: &'static str,
    pub(crate) keys: Vec<&'a str>,
    pub(crate) args: Vec<&'a str>,
}

/// The script that a command as text calls.
pub(crate) fn called(command: &str) -> Option<Called<'_>> {
    let by =
        |script: &&Script, how: &str, by: &str| Some((script.name(), command.strip_prefix(how)?.strip_prefix(by)?));
    let one = |script| by(script, "EVALSHA ", script.sha1()).or_else(|| by(script, "EVAL ", script.source()));
    let (script, rest) = SCRIPTS.iter().find_map(one)?;
    let (count, words) = rest.trim_start().split_once(' ')?;
    let words: Vec<&str> = words.split(' ').collect();
    let (keys, args) = words.split_at(count.parse().ok()?);
    Some(Called { script, keys: keys.to_vec(), args: args.to_vec() })
}

/// The answer of a fit server to each request at the start; none to anything else.
pub(crate) fn fit(command: &str) -> Option<Reply> {
    match (command, called(command)) {
        (_, Some(Called { script: "rights", .. })) => Some(Reply::Array(Vec::new())),
        ("INFO", _) => Some(Reply::Bytes(b"redis_version:7.0.15\r\n".to_vec())),
        (name, _) if name.starts_with("CLIENT SETNAME ") => Some(Reply::Bytes(b"OK".to_vec())),
        ("PING", _) => Some(Reply::Bytes(b"PONG".to_vec())),
        _ => None,
    }
}

impl Scene {
    /// Servers that answer everything with `OK`, until set otherwise.
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
        let all: Vec<usize> =
            (0..state.connections.len()).filter(|at| state.connections[*at].address == *address).collect();
        for at in all.into_iter().rev().take(if latest { 1 } else { usize::MAX }) {
            let _ = state.connections.remove(at).cuts.send(true);
        }
    }

    /// How many connections to this server stand.
    pub(crate) fn connections(&self, address: &Address) -> usize {
        let mut state = self.state();
        state.connections.retain(|open| !open.cuts.is_closed());
        state.connections.iter().filter(|open| open.address == *address).count()
    }

    /// Sends a message to all who listen to this channel at this server; returns how many they are.
    pub(crate) fn publish(&self, address: &Address, channel: &str, payload: &str) -> usize {
        let mut state = self.state();
        state.connections.retain(|open| !open.cuts.is_closed());
        let here = state.connections.iter().filter(|open| open.address == *address);
        let listening = here.filter_map(|open| open.listen.clone()).filter(|listen| listen.channel == channel);
        let listening: Vec<Listen> = listening.collect();
        drop(state);
        listening.iter().for_each(|listen| (listen.sink)(Heard::Message(payload.as_bytes())));
        listening.len()
    }

    /// The times of all attempts to connect to this server.
    pub(crate) fn dialled(&self, address: &Address) -> Vec<Duration> {
        self.state().dialled.iter().filter(|(_, at)| at.address == *address).map(|(when, _)| *when).collect()
    }

    /// The endpoint of the last connection to this server.
    pub(crate) fn endpoint(&self, address: &Address) -> Option<Endpoint> {
        let state = self.state();
        state.dialled.iter().rev().find(|(_, at)| at.address == *address).map(|(_, at)| at.clone())
    }

    /// When this command came, to any server.
    pub(crate) fn sent(&self, command: &str) -> Vec<(Duration, Address)> {
        let state = self.state();
        let same = state.sent.iter().filter(|(_, _, text)| text == command);
        same.map(|(when, at, _)| (*when, at.clone())).collect()
    }

    /// How many commands came that begin so, to any server.
    pub(crate) fn sent_that_begin(&self, text: &str) -> usize {
        self.state().sent.iter().filter(|(_, _, sent)| sent.starts_with(text)).count()
    }

    /// The scripts of this name that were called, with their keys and arguments, and where.
    pub(crate) fn calls(&self, script: &str) -> Vec<(Address, String)> {
        let state = self.state();
        let one = |(_, at, text): &(_, Address, String)| {
            let call = called(text).filter(|call| call.script == script)?;
            Some((at.clone(), [call.keys.join(" "), call.args.join(" ")].join(" | ")))
        };
        state.sent.iter().filter_map(one).collect()
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

    const DRIVER: &'static str = "fake_server";
    const SCHEME: &'static str = "";

    fn agree(&self, config: RedisConfig) -> tenure_core::Result<RedisConfig> {
        Ok(config)
    }

    async fn dial(&self, endpoint: &Endpoint, listen: Option<Listen>) -> Result<Connection, ExecError> {
        let (time, address) = (self.time(), endpoint.address.clone());
        let mut state = self.state();
        state.dialled.push((time, endpoint.clone()));
        if state.moods.get(&address) == Some(&Mood::Refusing) {
            return Err(ExecError::not_sent("refused", None));
        }
        let (cuts, cut) = watch::channel(false);
        state.connections.push(Open { address: address.clone(), listen, cuts });
        Ok(Connection { fake_server: self.clone(), address, cut })
    }
}

impl Socket for Connection {
    async fn send(&self, request: &Request<'_>) -> Result<Reply, ExecError> {
        let mut words = Vec::new();
        request.each(|word| words.push(String::from_utf8_lossy(word).into_owned()));
        let (time, text) = (self.fake_server.time(), words.join(" "));
        let (mood, answer) = {
            let mut state = self.fake_server.state();
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
