//! Stopping in good order. `docs/stopping.md` shows this file.

use std::io;
use std::time::Duration;

use axum::{Router, serve};
use tenure::queue::Worker;
use tenure::{Client, Result};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
use tokio::time::timeout;

/// The time limits of the steps of a stop. Their sum must be less than the
/// time after which the orchestrator kills the process.
#[derive(Clone, Copy, Debug)]
pub struct Grace {
    /// For requests to be answered. Default: 10 s.
    pub requests: Duration,
    /// For handlers of messages to end. Default: 10 s.
    pub messages: Duration,
    /// For the backend to acknowledge all releases. Default: 5 s.
    pub releases: Duration,
}

impl Default for Grace {
    fn default() -> Self {
        let [requests, messages, releases] =
            [10, 10, 5].map(Duration::from_secs);
        Self { requests, messages, releases }
    }
}

/// Resolves when an orchestrator (SIGTERM) or a terminal (SIGINT) asks the
/// process to stop. From the call on, these signals do not end the process:
/// call it before the process takes its first lock.
pub fn asked_to_stop() -> io::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

/// Serves until `stop` resolves; then ends the requests, the messages and the
/// locks, in this order.
pub async fn run(
    listener: TcpListener,
    routes: Router,
    worker: Worker,
    client: Client,
    grace: Grace,
    stop: impl Future<Output = ()>,
) -> Result<()> {
    let (stopping, stopped) = oneshot::channel::<()>();
    let server = serve(listener, routes)
        .with_graceful_shutdown(async { drop(stopped.await) });
    let mut server = tokio::spawn(server.into_future());
    stop.await;

    // 1. Takes no new connection, and answers the requests that have arrived.
    drop(stopping);
    if timeout(grace.requests, &mut server).await.is_err() {
        eprintln!("some requests are not answered, and lose their locks now");
        server.abort();
    }
    // 2. Takes no new message. Handlers end, or their messages are returned.
    worker.shutdown(grace.messages).await;
    // 3. Releases all locks that are still held, and waits for that.
    client.close(grace.releases).await
}
