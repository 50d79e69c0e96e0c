//! Streams that end when a server sends an answer without end: what came of an answer is kept until it is whole.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::future::select_ok;
use redis::{ConnectionAddr, ConnectionInfo};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, lookup_host};

/// The room in the library's buffer that no answer of ours leads to.
///
/// The library keeps what it has of an answer in one buffer, which doubles when it is full: a buffer with room for this much
/// has had more than half of it in one answer. The longest answer is of 64 MiB, a batch of 256 messages of 256 KiB; the
/// buffer doubles to 128 MiB for it. One without end fills 256 MiB before there is room for as much again.
const TOO_MUCH_ROOM: usize = 192 << 20;

/// What bytes come and go on.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Sync + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Sync + Unpin> Stream for S {}

/// A stream that fails when the buffer for one answer has grown beyond what answers need.
pub(crate) struct Bounded(Box<dyn Stream>);

impl Bounded {
    /// Connects, unless the library alone knows how: where the connection is encrypted.
    pub(crate) async fn open(info: &ConnectionInfo) -> io::Result<Option<Self>> {
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
