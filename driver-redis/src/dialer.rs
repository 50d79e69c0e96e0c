//! The adapter between the Redis brain and the client library.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::select_ok;
use redis::aio::{MultiplexedConnection, PubSub, PubSubSink};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion, PushInfo,
    PushKind, RedisConnectionInfo, RedisError, Value,
};
use tenure_core::Error;
use tenure_redis_support::{
    Address, Dialer, Endpoint, ExecError, Heard, Listen, Protocol, RedisConfig, Reply, Request, Socket, Tls,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, lookup_host};
use tokio::sync::{Mutex, Notify};
use tokio::task::JoinHandle;

use crate::combine::Combined;

/// Longer than the link waits for anything, and it says what took too long.
const NO_LIMIT: Duration = Duration::from_secs(3600);

/// Opens connections of the `redis` crate.
#[derive(Clone, Debug, Default)]
pub(crate) enum RedisDialer {
    /// As the endpoint says.
    #[default]
    Own,
    /// Commands are sent on this one; what listens is opened as the endpoint says.
    On(MultiplexedConnection),
    /// All are opened by this client, which says where to and as whom.
    Through(Client),
}

/// The task that carries what a connection sends and receives. It ends with the connection, also while answers are missing.
pub(crate) struct Driving(JoinHandle<()>);

impl Drop for Driving {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// One connection.
pub(crate) enum RedisSocket {
    /// Carries commands, and messages as well with the newer protocol. The library tells of its end only then.
    Commands { connection: Combined, ended: Arc<Notify>, _driving: Option<Driving> },
    /// Carries messages only.
    Messages { sink: Mutex<PubSubSink>, ended: Arc<Notify>, reader: JoinHandle<()> },
}

impl Dialer for RedisDialer {
    type Socket = RedisSocket;

    fn driver(&self) -> &'static str {
        "redis"
    }

    async fn dial(&self, endpoint: &Endpoint, listen: Option<Listen>) -> Result<RedisSocket, ExecError> {
        let client = match (self, &listen) {
            (Self::On(given), None) => return on_given(given.clone()).await,
            (Self::Through(client), _) => client.clone(),
            (Self::Own | Self::On(_), _) => client(endpoint)?,
        };
        provide_cryptography();
        let opened = async {
            let stream = match self {
                Self::Through(_) => None, // which may have settings of its own for its sockets
                Self::Own | Self::On(_) => Bounded::open(client.get_connection_info()).await?,
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
    Ok(RedisSocket::Commands { connection: Combined::new(connection), ended, _driving: driving })
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
        _ => Ok(RedisSocket::Commands { connection: Combined::new(connection), ended: Arc::default(), _driving: None }),
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
    Ok(RedisSocket::Messages { sink: Mutex::new(sink), ended, reader })
}

impl Socket for RedisSocket {
    async fn send(&self, request: &Request<'_>) -> Result<Reply, ExecError> {
        let answer = match self {
            Self::Commands { connection, .. } => {
                let (words, bytes) = request.size();
                let mut command = Cmd::with_capacity(words, bytes);
                request.each(|word| {
                    command.arg(word);
                });
                connection.send(command).await
            }
            // Nothing but a ping is asked of it.
            Self::Messages { sink, .. } => sink.lock().await.ping::<Value>().await.map(|_| Value::Okay),
        };
        answer.map_err(|error| failure(error, unknown)).and_then(reply)
    }

    async fn ended(&self) {
        match self {
            Self::Commands { ended, .. } | Self::Messages { ended, .. } => ended.notified().await,
        }
    }
}

impl Drop for RedisSocket {
    fn drop(&mut self) {
        if let Self::Messages { reader, .. } = self {
            reader.abort();
        }
    }
}

/// A configuration of the server that a client leads to, and of the database and protocol that it says.
pub(crate) fn as_said(client: &Client, config: RedisConfig) -> Result<RedisConfig, Error> {
    let info = client.get_connection_info();
    let invalid = |text: &'static str| Error::new(tenure_core::ErrorKind::InvalidArgument, text);
    let address = match info.addr() {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
            Address::Tcp { host: host.clone(), port: *port }
        }
        ConnectionAddr::Unix(path) => Address::Unix(path.clone()),
        _ => return Err(invalid("the given client leads to an address of an unknown kind")),
    };
    let database = u32::try_from(info.redis_settings().db());
    let database = database.map_err(|_| invalid("the number of the given client's database is no such number"))?;
    let protocol = match info.redis_settings().protocol() {
        ProtocolVersion::RESP2 => Protocol::Resp2,
        _ => Protocol::Resp3,
    };
    config.at(address).map(|config| config.database(database).protocol(protocol))
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
    ExecError::not_sent("the connection did not come about", Some(Arc::new(error)))
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

#[cfg(test)]
mod tests {
    use tenure_redis_support::RedisConfig;

    use super::*;

    #[test]
    fn small_frames_leave_at_once() {
        let endpoint = RedisConfig::tcp("h", 1).endpoints().remove(0);
        assert!(client(&endpoint).unwrap().get_connection_info().tcp_settings().nodelay());
    }
}
