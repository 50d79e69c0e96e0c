//! The adapter between `tenure-redis-support` and the client library.

use std::fmt;
use std::sync::Arc;

use fred::bytes::BytesMut;
use fred::clients::{Client, WithOptions};
use fred::error::{Error, ErrorKind};
use fred::interfaces::{ClientLike, EventInterface, PubsubInterface, Resp3Frame};
use fred::types::config::Options;
use fred::types::{ClientState, ClusterHash, CustomCommand, Message, Value};
use tenure_redis_support::{Dialer, Endpoint, ExecError, Heard, Listen, RedisConfig, Reply, Request, Socket};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinHandle};

use crate::driver::FredDialer;
use crate::tuning::{Tuning, tuning};

/// One connection: a client that never reconnects, or one that was given.
pub struct FredSocket {
    client: WithOptions<Client>,
    /// Closed when the client ends; none of one that was given, which may come back.
    alive: Option<watch::Receiver<()>>,
    tasks: Vec<AbortOnDrop>,
}

/// A command leaves at most once, and does not wait for a connection; whatever the client was told.
fn once() -> Options {
    Options { max_attempts: Some(1), fail_fast: true, ..Options::default() }
}

struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl AbortOnDrop {
    fn of<T>(task: &JoinHandle<T>) -> Self {
        Self(task.abort_handle())
    }
}

impl fmt::Debug for FredSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FredSocket")
    }
}

impl Dialer for FredDialer {
    type Socket = FredSocket;

    const DRIVER: &'static str = "fred";
    const SCHEME: &'static str = "fred+";

    fn agree(&self, config: RedisConfig) -> tenure_core::Result<RedisConfig> {
        self.fit(config)
    }

    async fn dial(&self, endpoint: &Endpoint, listen: Option<Listen>) -> Result<FredSocket, ExecError> {
        if let (Some(given), None) = (&self.given, &listen) {
            let socket = FredSocket { client: given.with_options(&once()), alive: None, tasks: Vec::new() };
            return socket.connected().map(|()| socket);
        }
        let Tuning { config, performance, connection, reconnect } = tuning(endpoint)?;
        let client = Client::new(config, Some(performance), Some(connection), reconnect);
        let (mut up, messages) = (client.reconnect_rx(), client.message_rx());
        let mut router = client.connect();
        let (alive, observed) = watch::channel(());
        // As tuned. To fail fast besides would refuse what leaves between the news that it is up and its being so.
        let client = client.with_options(&Options::default());
        let mut socket = FredSocket { client, alive: Some(observed), tasks: vec![AbortOnDrop::of(&router)] };
        tokio::select! {
            Ok(_) = up.recv() => {}
            end = &mut router => {
                let error = match end {
                    Ok(Err(error)) => failure(error, not_sent),
                    _ => ExecError::NotSent { message: "the client ended".into(), source: None },
                };
                return Err(error);
            }
        }
        socket.tasks.push(AbortOnDrop::of(&tokio::spawn(async move {
            let _ = router.await; // however it ended, it has
            drop(alive);
        })));
        if let Some(Listen { channel, sink }) = listen {
            socket.tasks.push(AbortOnDrop::of(&tokio::spawn(pass_on(messages, sink))));
            socket.client.subscribe(channel).await.map_err(|error| failure(error, not_sent))?;
            // The library does not wait for the confirmation, and takes a refusal for the reply to the next command.
            socket.send(&PING).await?;
        }
        Ok(socket)
    }
}

const PING: Request<'static> = Request::words(&["PING"]);

async fn pass_on(mut messages: Receiver<Message>, sink: Arc<dyn Fn(Heard<'_>) + Send + Sync>) {
    loop {
        match messages.recv().await {
            Ok(Message { value: Value::Bytes(payload), .. }) => sink(Heard::Message(&payload)),
            Ok(Message { value: Value::String(payload), .. }) => sink(Heard::Message(payload.as_bytes())),
            Ok(_) => {}
            Err(RecvError::Lagged(_)) => sink(Heard::Gap),
            Err(RecvError::Closed) => return,
        }
    }
}

impl FredSocket {
    /// Whether a command could leave now.
    fn connected(&self) -> Result<(), ExecError> {
        match self.client.state() {
            ClientState::Connected => Ok(()),
            state => {
                let message = format!("the client is {state:?}, not connected").to_lowercase();
                Err(ExecError::NotSent { message, source: None })
            }
        }
    }
}

impl Socket for FredSocket {
    async fn send(&self, request: &Request<'_>) -> Result<Reply, ExecError> {
        if self.alive.is_none() {
            self.connected()?; // the library does not say so in words of its own
        }
        let (words, bytes) = request.size();
        let (mut name, mut all) = (None, BytesMut::with_capacity(bytes));
        let mut args = Vec::with_capacity(words);
        request.each(|word| match &name {
            None => name = Some(String::from_utf8_lossy(word).into_owned()),
            Some(_) => {
                all.extend_from_slice(word);
                args.push(Value::Bytes(all.split().freeze())); // all of them share one buffer
            }
        });
        let command = CustomCommand::new(name.unwrap_or_default(), ClusterHash::FirstKey, false);
        // The library keeps for ever what reaches a client that has ended, and does not answer.
        let answer = tokio::select! {
            biased;
            answer = self.client.custom_raw(command, args) => answer,
            () = self.ended() => Err(Error::new(ErrorKind::IO, "the client has ended")),
        };
        answer.map_err(|error| failure(error, unknown)).and_then(reply)
    }

    async fn ended(&self) {
        match self.alive.clone() {
            Some(mut alive) => drop(alive.changed().await), // nothing is ever sent: it returns when the sender is gone
            None => std::future::pending().await,
        }
    }
}

fn reply(frame: Resp3Frame) -> Result<Reply, ExecError> {
    let several = |frames: &mut dyn Iterator<Item = Resp3Frame>| frames.map(reply).collect::<Result<_, _>>();
    Ok(match frame {
        Resp3Frame::Null => Reply::Nil,
        Resp3Frame::Number { data, .. } => Reply::Int(data),
        Resp3Frame::BlobString { data, .. }
        | Resp3Frame::SimpleString { data, .. }
        | Resp3Frame::VerbatimString { data, .. } => Reply::Bytes(data.to_vec()),
        Resp3Frame::Array { data, .. } => Reply::Array(several(&mut data.into_iter())?),
        Resp3Frame::Map { data, .. } => {
            Reply::Array(several(&mut data.into_iter().flat_map(|(key, value)| [key, value]))?)
        }
        Resp3Frame::SimpleError { data, .. } => return Err(ExecError::refused(&data)),
        Resp3Frame::BlobError { data, .. } => return Err(ExecError::refused(&String::from_utf8_lossy(&data))),
        _ => return Err(ExecError::Protocol { message: "the server answered with an unexpected type".into() }),
    })
}

/// What the library's error says about the fate of the request. `on_the_way` says how it failed if not by refusal.
fn failure(error: Error, on_the_way: impl FnOnce(Error) -> ExecError) -> ExecError {
    let code = error.details().split(' ').next().unwrap_or_default();
    let refused = code.len() > 2 && code.bytes().all(|byte| byte.is_ascii_uppercase());
    match error.kind() {
        ErrorKind::Protocol | ErrorKind::Parse if !refused => {
            ExecError::Protocol { message: "the server answered something that is not the Redis protocol".into() }
        }
        _ if refused => ExecError::refused(error.details()),
        _ => on_the_way(error),
    }
}

/// The request did not leave.
fn not_sent(error: Error) -> ExecError {
    ExecError::not_sent("the connection could not be established", Some(Arc::new(error)))
}

/// The request may have left.
fn unknown(error: Error) -> ExecError {
    ExecError::SentUnknown { message: "the link broke before the reply".into(), source: Some(Arc::new(error)) }
}
