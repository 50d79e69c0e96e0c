//! The adapter between `tenure-redis-support` and the client library.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use std::{fmt, io};

use futures_util::StreamExt;
use futures_util::future::{join_all, select_ok};
use redis::aio::{MultiplexedConnection, PubSub, PubSubSink};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, Pipeline, ProtocolVersion,
    PushInfo, PushKind, RedisConnectionInfo, RedisError, RedisResult, Value,
};
use tenure_redis_support::{
    Address, Dialer, Endpoint, ExecError, Heard, Listen, Protocol, RedisConfig, Reply, Request, Socket, Tls,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, lookup_host};
use tokio::runtime::Handle;
use tokio::sync::{Mutex, Notify, oneshot};
use tokio::task::JoinHandle;

use crate::driver::{RedisDialer, Source};

/// Longer than the link waits for anything, and it says what took too long.
const NO_LIMIT: Duration = Duration::from_secs(3600);

/// The task that carries what a connection sends and receives. It ends with the connection, also while answers are missing.
struct Driving(JoinHandle<()>);

impl Drop for Driving {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// One connection.
pub struct RedisSocket(Kind);

enum Kind {
    /// Carries commands, and messages as well with the newer protocol. Only then does the library report its end.
    Commands { connection: Combined, ended: Arc<Notify>, _driving: Option<Driving> },
    /// Carries messages only.
    Messages { sink: Mutex<PubSubSink>, ended: Arc<Notify>, reader: JoinHandle<()> },
}

impl fmt::Debug for RedisSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RedisSocket")
    }
}

impl Dialer for RedisDialer {
    type Socket = RedisSocket;

    const DRIVER: &'static str = "redis";
    const SCHEME: &'static str = "";

    fn agree(&self, config: RedisConfig) -> tenure_core::Result<RedisConfig> {
        self.0.agree(config)
    }

    async fn dial(&self, endpoint: &Endpoint, listen: Option<Listen>) -> Result<RedisSocket, ExecError> {
        let client = match (&self.0, &listen) {
            (Source::On(given), None) => return on_given(given.clone()).await,
            (Source::Through(client), _) => client.clone(),
            (Source::Own | Source::On(_), _) => client(endpoint)?,
        };
        provide_cryptography();
        let opened = async {
            let stream = match &self.0 {
                Source::Through(_) => None, // which may have its own settings for its sockets
                Source::Own | Source::On(_) => Bounded::open(client.get_connection_info()).await?,
            };
            match (listen, endpoint.protocol) {
                (Some(listen), Protocol::Resp2) => messages(&client, stream, listen).await,
                (listen, _) => commands(&client, stream, endpoint, listen).await,
            }
        };
        opened.await.map_err(|error| failure(error, not_sent))
    }
}

async fn commands(
    client: &Client,
    stream: Option<Bounded>,
    endpoint: &Endpoint,
    listen: Option<Listen>,
) -> Result<RedisSocket, RedisError> {
    let ended = Arc::new(Notify::new());
    // The link limits both, and says what took too long.
    let mut config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
    if endpoint.protocol != Protocol::Resp2 {
        let (signal, sink) = (Arc::clone(&ended), listen.as_ref().map(|listen| Arc::clone(&listen.sink)));
        config = config.set_push_sender(move |push: PushInfo| {
            match (push.kind, push.data.get(1), &sink) {
                (PushKind::Message, Some(Value::BulkString(payload)), Some(sink)) => sink(Heard::Message(payload)),
                (PushKind::Disconnection, ..) => signal.notify_one(),
                _ => {}
            }
            Ok::<(), Infallible>(())
        });
    }
    let (mut connection, driving) = multiplexed(client, stream, config).await?;
    if let Some(listen) = listen {
        connection.subscribe(&listen.channel).await?;
    }
    Ok(RedisSocket(Kind::Commands { connection: Combined::new(connection), ended, _driving: driving }))
}

/// Over the stream that bounds answers, or over one that the library opens, and then drives as well.
async fn multiplexed(
    client: &Client,
    stream: Option<Bounded>,
    config: AsyncConnectionConfig,
) -> Result<(MultiplexedConnection, Option<Driving>), RedisError> {
    let Some(stream) = stream else {
        return Ok((client.get_multiplexed_async_connection_with_config(&config).await?, None));
    };
    let login = client.get_connection_info().redis_settings();
    let (connection, driving) = MultiplexedConnection::new_with_config(login, stream, config).await?;
    Ok((connection, Some(Driving(tokio::spawn(driving)))))
}

/// The connection that was given, if it lives.
async fn on_given(mut connection: MultiplexedConnection) -> Result<RedisSocket, ExecError> {
    connection.set_response_timeout(NO_LIMIT); // of this clone
    match connection.send_packed_command(&redis::cmd("PING")).await {
        Err(error) if error.code().is_none() => {
            let message =
                format!("the connection that was given has ended, and the driver does not replace it: {error}");
            Err(ExecError::NotSent { message, source: Some(Arc::new(error)) })
        }
        _ => {
            let connection = Combined::new(connection);
            Ok(RedisSocket(Kind::Commands { connection, ended: Arc::default(), _driving: None }))
        }
    }
}

async fn messages(client: &Client, stream: Option<Bounded>, listen: Listen) -> Result<RedisSocket, RedisError> {
    let opened = match stream {
        Some(stream) => PubSub::new(client.get_connection_info().redis_settings(), stream).await?,
        None => client.get_async_pubsub().await?,
    };
    let (mut sink, mut stream) = opened.split();
    sink.subscribe(&listen.channel).await?;
    let ended = Arc::new(Notify::new());
    let signal = Arc::clone(&ended);
    let reader = tokio::spawn(async move {
        while let Some(message) = stream.next().await {
            (listen.sink)(Heard::Message(message.get_payload_bytes()));
        }
        signal.notify_one();
    });
    Ok(RedisSocket(Kind::Messages { sink: Mutex::new(sink), ended, reader }))
}

impl Socket for RedisSocket {
    async fn send(&self, request: &Request<'_>) -> Result<Reply, ExecError> {
        let answer = match &self.0 {
            Kind::Commands { connection, .. } => {
                let (words, bytes) = request.size();
                let mut command = Cmd::with_capacity(words, bytes);
                request.each(|word| {
                    command.arg(word);
                });
                connection.send(command).await
            }
            // Nothing but a ping is asked of it.
            Kind::Messages { sink, .. } => sink.lock().await.ping::<Value>().await.map(|_| Value::Okay),
        };
        answer.map_err(|error| failure(error, unknown)).and_then(reply)
    }

    async fn ended(&self) {
        match &self.0 {
            Kind::Commands { ended, .. } | Kind::Messages { ended, .. } => ended.notified().await,
        }
    }
}

impl Drop for Kind {
    fn drop(&mut self) {
        if let Self::Messages { reader, .. } = self {
            reader.abort();
        }
    }
}

/// The library panics without a provider; one that is there already stays.
fn provide_cryptography() {
    #[cfg(feature = "tls")]
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// The endpoint in the library's terms.
fn client(endpoint: &Endpoint) -> Result<Client, ExecError> {
    let mut login = RedisConnectionInfo::default().set_db(endpoint.database.into()).set_skip_set_lib_name();
    login = login.set_protocol(match endpoint.protocol {
        Protocol::Resp2 => ProtocolVersion::RESP2,
        _ => ProtocolVersion::RESP3,
    });
    if let Some(username) = &endpoint.login.username {
        login = login.set_username(username);
    }
    if let Some(password) = &endpoint.login.password {
        login = login.set_password(password);
    }
    let address = match (&endpoint.address, &endpoint.tls) {
        (Address::Tcp { host, port }, None) => ConnectionAddr::Tcp(host.clone(), *port),
        (Address::Tcp { host, port }, Some(_)) => {
            ConnectionAddr::TcpTls { host: host.clone(), port: *port, insecure: false, tls_params: None }
        }
        (Address::Unix(path), _) => ConnectionAddr::Unix(path.clone()),
    };
    let info = address.into_connection_info().map_err(not_sent)?;
    let tcp = info.tcp_settings().clone().set_nodelay(true); // small frames leave at once
    let info = info.set_tcp_settings(tcp).set_redis_settings(login);
    match &endpoint.tls {
        Some(tls) => encrypted(info, tls),
        None => Client::open(info).map_err(not_sent),
    }
}

#[cfg(feature = "tls")]
fn encrypted(info: ConnectionInfo, tls: &Tls) -> Result<Client, ExecError> {
    provide_cryptography();
    let identity = tls.identity.as_ref().map(|identity| redis::ClientTlsConfig {
        client_cert: identity.certificates.to_vec(),
        client_key: identity.key.to_vec(),
    });
    let root_cert = tls.authorities.as_ref().map(|pem| pem.to_vec());
    let certificates = redis::TlsCertificates { client_tls: identity, root_cert };
    Client::build_with_tls(info, certificates).map_err(not_sent)
}

#[cfg(not(feature = "tls"))]
fn encrypted(_: ConnectionInfo, _: &Tls) -> Result<Client, ExecError> {
    Err(ExecError::Unsupported {
        message: "TLS needs the feature \"tls\" of tenure (of tenure-redis, where that is used by itself)".into(),
    })
}

fn reply(value: Value) -> Result<Reply, ExecError> {
    Ok(match value {
        Value::Nil => Reply::Nil,
        Value::Int(number) => Reply::Int(number),
        Value::BulkString(bytes) => Reply::Bytes(bytes),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => Reply::Bytes(text.into_bytes()),
        Value::Okay => Reply::Bytes(b"OK".to_vec()),
        Value::Array(values) => Reply::Array(values.into_iter().map(reply).collect::<Result<_, _>>()?),
        Value::Map(pairs) => {
            let values = pairs.into_iter().flat_map(|(key, value)| [key, value]);
            Reply::Array(values.map(reply).collect::<Result<_, _>>()?)
        }
        Value::ServerError(error) => {
            return Err(ExecError::Server {
                code: error.code().to_owned(),
                message: error.details().unwrap_or_default().to_owned(),
            });
        }
        _ => return Err(ExecError::Protocol { message: "the server answered with an unexpected type".into() }),
    })
}

/// What the library's error says about the fate of the request. `on_the_way` says how it failed if not by refusal.
fn failure(error: RedisError, on_the_way: impl FnOnce(RedisError) -> ExecError) -> ExecError {
    if let redis::ErrorKind::AuthenticationFailed = error.kind() {
        return ExecError::Server { code: "WRONGPASS".into(), message: error.to_string() };
    }
    match error.code() {
        Some(code) => {
            ExecError::Server { code: code.to_owned(), message: error.detail().unwrap_or_default().to_owned() }
        }
        None if error.kind() == redis::ErrorKind::Parse => {
            ExecError::Protocol { message: "the server answered something that is not the Redis protocol".into() }
        }
        None => on_the_way(error),
    }
}

/// The request did not leave.
fn not_sent(error: RedisError) -> ExecError {
    ExecError::not_sent("the connection could not be established", Some(Arc::new(error)))
}

/// The request may have left.
fn unknown(error: RedisError) -> ExecError {
    ExecError::SentUnknown { message: "the link broke before the reply".into(), source: Some(Arc::new(error)) }
}

// Streams that end when a server sends an answer without end: what came of an answer is kept until it is whole.

/// The room in the library's buffer that no answer of ours leads to.
///
/// The library keeps what it has of an answer in one buffer, which doubles when it is full: a buffer with room for this much
/// has had more than half of it in one answer. The longest answer is of 64 MiB, a batch of 256 messages of 256 KiB; the
/// buffer doubles to 128 MiB for it. One without end fills 256 MiB before there is room for as much again.
const TOO_MUCH_ROOM: usize = 192 << 20;

/// What bytes come and go on.
trait Stream: AsyncRead + AsyncWrite + Send + Sync + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Sync + Unpin> Stream for S {}

/// A stream that fails when the buffer for one answer has grown beyond what answers need.
struct Bounded(Box<dyn Stream>);

impl Bounded {
    /// Connects, unless the library alone knows how: where the connection is encrypted.
    async fn open(info: &ConnectionInfo) -> io::Result<Option<Self>> {
        let stream: Box<dyn Stream> = match info.addr() {
            ConnectionAddr::Tcp(host, port) => {
                // All addresses of the name at once, as the library does: one that drops packets holds nothing up.
                let addresses = lookup_host((host.as_str(), *port)).await?;
                let attempts: Vec<_> = addresses.map(|address| Box::pin(TcpStream::connect(address))).collect();
                if attempts.is_empty() {
                    return Err(io::Error::new(io::ErrorKind::NotFound, "the name of the host has no address"));
                }
                let (stream, _) = select_ok(attempts).await?;
                stream.set_nodelay(info.tcp_settings().nodelay())?;
                Box::new(stream)
            }
            #[cfg(unix)]
            ConnectionAddr::Unix(path) => Box::new(tokio::net::UnixStream::connect(path).await?),
            _ => return Ok(None),
        };
        Ok(Some(Self(stream)))
    }
}

impl AsyncRead for Bounded {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if buf.remaining() > TOO_MUCH_ROOM {
            return Poll::Ready(Err(io::Error::other(
                "the server's answer is longer than any answer to these requests can be",
            )));
        }
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Bounded {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

// Commands that are sent at the same time leave together.
//
// The library's own task writes whatever it finds, and on a runtime of several threads it finds a command or two at a time:
// as many system calls as commands, at both ends. So as soon as a few commands are on their way, the next ones gather
// until every task that is ready now has been run, and leave as pipelines. No command waits for a reply to another one
// before it leaves, and a few commands alone go straight to the library. The replies to one pipeline are told together: if the
// connection ends among them, the outcome of all its commands is unknown.

/// How many commands may be on their way before others gather.
const FEW: usize = 8;

/// For how long commands gather at most.
const LONGEST_GATHERING: Duration = Duration::from_millis(1);

/// The most commands in one pipeline: the first of its replies waits for the last.
const TOGETHER: usize = 16;

/// A connection that many tasks send on.
pub(crate) struct Combined {
    connection: MultiplexedConnection,
    /// The one that the connection lives on, whichever its users run on.
    runtime: Handle,
    on_their_way: AtomicUsize,
    gathered: Arc<std::sync::Mutex<Vec<Gathered>>>,
}

struct Gathered {
    command: Cmd,
    reply: oneshot::Sender<RedisResult<Value>>,
}

/// One command on its way, until it is answered or given up.
struct OnItsWay<'a>(&'a AtomicUsize);

impl Drop for OnItsWay<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Combined {
    /// Needs the runtime that the connection was opened on.
    fn new(connection: MultiplexedConnection) -> Self {
        let runtime = Handle::current();
        Self { connection, runtime, on_their_way: AtomicUsize::new(0), gathered: Arc::default() }
    }

    /// Sends one command, at most once, and waits for its reply.
    async fn send(&self, command: Cmd) -> RedisResult<Value> {
        let others = self.on_their_way.fetch_add(1, Ordering::Relaxed);
        let _on_its_way = OnItsWay(&self.on_their_way);
        if others < FEW {
            return self.connection.clone().send_packed_command(&command).await;
        }
        let (reply, answer) = oneshot::channel();
        let first = {
            let mut gathered = self.gathered.lock().unwrap_or_else(PoisonError::into_inner);
            gathered.push(Gathered { command, reply });
            gathered.len() == 1
        };
        if first {
            self.runtime.spawn(leave(self.connection.clone(), Arc::clone(&self.gathered)));
        }
        answer.await.unwrap_or_else(|_| Err(broken("the runtime of the connection has ended")))
    }
}

/// Sends what has gathered by the time that all tasks which are ready have run.
async fn leave(connection: MultiplexedConnection, gathered: Arc<std::sync::Mutex<Vec<Gathered>>>) {
    // Whoever yields is woken by the thread that it yielded on. One that is kept waiting by the next task does not: hence the end.
    let _ = tokio::time::timeout(LONGEST_GATHERING, tokio::task::yield_now()).await;
    let mut all = std::mem::take(&mut *gathered.lock().unwrap_or_else(PoisonError::into_inner));
    all.retain(|one| !one.reply.is_closed());
    let mut all = all.into_iter();
    let pipelines = std::iter::from_fn(|| {
        let some: Vec<Gathered> = all.by_ref().take(TOGETHER).collect();
        (!some.is_empty()).then(|| pipeline(connection.clone(), some))
    });
    join_all(pipelines.collect::<Vec<_>>()).await;
}

async fn pipeline(mut connection: MultiplexedConnection, commands: Vec<Gathered>) {
    let mut pipeline = Pipeline::with_capacity(commands.len());
    let mut replies = Vec::with_capacity(commands.len());
    for Gathered { command, reply } in commands {
        pipeline.add_command(command);
        replies.push(reply);
    }
    let count = replies.len();
    let answer = tokio::select! {
        answer = connection.send_packed_commands(&pipeline, 0, count) => answer,
        // The connection may be replaced by now; this is not to keep it open.
        () = given_up(&mut replies) => return,
    };
    // Who has gone does not care.
    match answer {
        Ok(values) if values.len() == replies.len() => {
            replies.into_iter().zip(values).for_each(|(reply, value)| drop(reply.send(Ok(value))));
        }
        Ok(_) => replies.into_iter().for_each(|reply| drop(reply.send(Err(broken("replies are missing"))))),
        Err(error) => replies.into_iter().for_each(|reply| drop(reply.send(Err(error.clone())))),
    }
}

/// Returns when nobody waits for any of the replies.
async fn given_up(replies: &mut [oneshot::Sender<RedisResult<Value>>]) {
    for reply in replies {
        reply.closed().await;
    }
}

fn broken(what: &'static str) -> RedisError {
    (redis::ErrorKind::Io, what).into()
}

#[cfg(test)]
mod tests {
    use tenure_redis_support::RedisConfig;
    use tenure_testkit::{RedisOptions, RedisServer};

    use super::*;

    #[test]
    fn small_frames_leave_at_once() {
        let endpoint = RedisConfig::tcp("h", 1).endpoints().remove(0);
        assert!(client(&endpoint).unwrap().get_connection_info().tcp_settings().nodelay());
    }

    async fn connected(server: &RedisServer) -> Arc<Combined> {
        let client = Client::open(format!("redis://127.0.0.1:{}/", server.port())).unwrap();
        Arc::new(Combined::new(client.get_multiplexed_async_connection().await.unwrap()))
    }

    fn command(words: &[&str]) -> Cmd {
        let mut command = Cmd::new();
        for word in words {
            command.arg(word);
        }
        command
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn everybody_gets_the_reply_to_what_they_sent() {
        let server = RedisServer::start(RedisOptions::new()).unwrap();
        let connection = connected(&server).await;
        let ask = |i: usize| {
            let connection = Arc::clone(&connection);
            async move {
                let text = i.to_string();
                let words = if i.is_multiple_of(10) { vec!["no-such-command"] } else { vec!["ECHO", &text] };
                let sending = connection.send(command(&words));
                if i.is_multiple_of(7) {
                    // Given up after a moment, or at once: nobody else is to notice.
                    drop(tokio::time::timeout(Duration::from_micros(i as u64), sending).await);
                    return;
                }
                match sending.await {
                    Ok(Value::BulkString(answer)) => assert_eq!(answer, text.as_bytes()),
                    Ok(Value::ServerError(_)) | Err(_) => assert_eq!(i % 10, 0),
                    other => panic!("{i}: {other:?}"),
                }
            }
        };
        let tasks: Vec<_> = (1..500).map(|i| tokio::spawn(ask(i))).collect();
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(connection.on_their_way.load(Ordering::Relaxed), 0);
        assert!(connection.gathered.lock().unwrap().is_empty());
    }

    /// What gathers yields on a thread that the next task then blocks.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_task_that_blocks_its_thread_does_not_keep_what_has_gathered() {
        let server = RedisServer::start(RedisOptions::new()).unwrap();
        let connection = connected(&server).await;
        let (long, brief) = (Duration::from_secs(3), Duration::from_millis(50));
        let took = tokio::spawn(async move {
            // The other thread takes the first one; the last one spawned stays here.
            tokio::spawn(async move { std::thread::sleep(brief) });
            tokio::spawn(async {});
            std::thread::sleep(brief / 2);
            let began = std::time::Instant::now();
            let sends = (0..3 * FEW).map(|_| connection.send(command(&["PING"])));
            let blocks = async {
                tokio::spawn(async move { std::thread::sleep(long) }); // behind what gathers, on this thread
            };
            let ((), answers) = futures_util::future::join(blocks, join_all(sends)).await;
            assert!(answers.iter().all(Result::is_ok), "{answers:?}");
            began.elapsed()
        });
        let took = took.await.unwrap();
        assert!(took < long / 2, "{took:?}");
    }

    #[tokio::test]
    async fn a_server_that_is_silent_keeps_nothing_that_was_given_up() {
        let mut server = RedisServer::start(RedisOptions::new()).unwrap();
        let connection = connected(&server).await;
        server.pause().unwrap();
        let ask = |_| {
            let connection = Arc::clone(&connection);
            tokio::spawn(async move {
                let sending = connection.send(command(&["PING"]));
                tokio::time::timeout(Duration::from_millis(50), sending).await.unwrap_err();
            })
        };
        let tasks: Vec<_> = (0..100).map(ask).collect();
        for task in tasks {
            task.await.unwrap();
        }
        let on_their_way = || Arc::strong_count(&connection.gathered) - 1;
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert_eq!((on_their_way(), connection.on_their_way.load(Ordering::Relaxed)), (0, 0));
        server.resume().unwrap();
        assert_eq!(connection.send(command(&["ECHO", "1"])).await.unwrap(), Value::BulkString(b"1".into()));
    }

    #[tokio::test]
    async fn a_server_that_dies_fails_all_that_are_on_their_way() {
        let mut server = RedisServer::start(RedisOptions::new()).unwrap();
        let connection = connected(&server).await;
        let block = |i: usize| {
            let connection = Arc::clone(&connection);
            tokio::spawn(async move { connection.send(command(&["BLPOP", &format!("empty/{i}"), "0"])).await })
        };
        let tasks: Vec<_> = (0..100).map(block).collect();
        while !server.cli(&["INFO", "clients"]).unwrap().text().contains("blocked_clients:1") {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        server.kill().unwrap();
        for task in tasks {
            task.await.unwrap().unwrap_err();
        }
        assert_eq!(connection.on_their_way.load(Ordering::Relaxed), 0);
    }
}
