//! The task that keeps a link's connection alive.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::driver::reconnected;
use tokio::time::{Instant, sleep, timeout};

use super::{Live, Route, Shared, State};
use crate::config::Protocol;
use crate::error::ExecError;
use crate::link::{Dialer, Heard, Socket};
use crate::script::Request;

/// The first pause between attempts to connect; each further one doubles up to the last. A connection that lasted longer than
/// that is replaced at once.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LAST_PAUSE: Duration = Duration::from_secs(1);

impl<D: Dialer> Shared<D> {
    /// Keeps a connection until the link is closed. The last word is said also if the runtime ends before the task has begun.
    pub(super) fn supervise(self: Arc<Self>, first: Option<Arc<Live<D::Socket>>>) -> impl Future<Output = ()> + Send {
        let last = LastWord(self);
        async move { last.0.keep(first).await }
    }

    async fn keep(&self, first: Option<Arc<Live<D::Socket>>>) {
        let (mut live, mut pause, mut again) = (first, Duration::ZERO, false);
        loop {
            if let Some(live) = live.take() {
                again = true;
                let opened = Instant::now();
                let reason = tokio::select! {
                    reason = self.guard(&live) => reason,
                    () = self.closed() => return,
                };
                if !self.set(State::down(reason)) {
                    return;
                }
                // A server may accept, and cut at once.
                pause = if opened.elapsed() < LAST_PAUSE { longer(pause) } else { Duration::ZERO };
            }
            let fresh = tokio::select! {
                fresh = self.reopen(&mut pause) => fresh,
                () = self.closed() => return,
            };
            (self.listen.sink)(Heard::Gap); // first: who finds the link up knows that it is another connection
            if !self.set(State::Up(Arc::clone(&fresh))) {
                return;
            }
            if again {
                reconnected(D::DRIVER);
            }
            live = Some(fresh);
        }
    }

    /// Watches a connection; returns why it is of no use any more.
    async fn guard(&self, live: &Live<D::Socket>) -> ExecError {
        let opened = Instant::now();
        loop {
            let idle = self.idle();
            let moved = match &self.route {
                Route::Named(sentinels) => tokio::select! {
                    () = live.ended() => return ended(),
                    () = sentinels.moved() => true,
                    () = self.doubt.notified() => true,
                    () = self.demoted.notified() => true,
                    () = sleep(self.pace.ping_interval.saturating_sub(idle)) => false,
                },
                Route::Fixed(_) => tokio::select! {
                    () = live.ended() => return ended(),
                    // The name of the server may lead elsewhere by now. If it does not, once in a while is enough.
                    () = self.demoted.notified() => match opened.elapsed() < LAST_PAUSE {
                        true => continue,
                        false => return demoted(),
                    },
                    () = self.doubt.notified() => true,
                    () = sleep(self.pace.ping_interval.saturating_sub(idle)) => false,
                },
            };
            if !moved && self.idle() < self.pace.ping_interval {
                continue; // other requests were answered in the meantime
            }
            // Before the sentinels are asked, which may take long: a connection that broke is replaced, wherever it led.
            if let Some(error) = self.try_out(live).await {
                return error;
            }
            if let (true, Route::Named(sentinels)) = (moved, &self.route) {
                let primary = tokio::select! {
                    () = live.ended() => return ended(),
                    primary = sentinels.primary() => primary,
                };
                if let Ok(address) = primary
                    && address != live.address
                {
                    let message = format!("the primary has moved from {} to {address}", live.address);
                    return ExecError::NotSent { message, source: None };
                }
            }
        }
    }

    /// Tries a connection with a ping; returns its fault.
    async fn try_out(&self, live: &Live<D::Socket>) -> Option<ExecError> {
        let patience = (self.pace.response_timeout / 2).max(Duration::from_millis(10));
        for socket in std::iter::once(&live.commands).chain(&live.listener) {
            let sent = Instant::now();
            match timeout(patience, socket.send(&Request::words(&["PING"]))).await {
                Ok(Ok(_) | Err(ExecError::Server { .. })) => self.heard(sent), // a refusal is an answer
                Ok(Err(error)) => {
                    return Some(error.so_not_sent("the connection broke".into()));
                }
                Err(_) => {
                    let message = format!("the connection went silent: no answer to a ping within {patience:?}");
                    return Some(ExecError::NotSent { message, source: None });
                }
            }
        }
        None
    }

    /// Connects again, however long it takes, each time after a pause that grows.
    async fn reopen(&self, pause: &mut Duration) -> Arc<Live<D::Socket>> {
        loop {
            if !pause.is_zero() {
                self.rest(*pause).await;
            }
            match self.open().await {
                Ok(live) => return live,
                Err(error) => self.set(State::down(error)),
            };
            *pause = longer(*pause);
        }
    }

    /// A pause, which the news of another primary ends.
    async fn rest(&self, pause: Duration) {
        match &self.route {
            Route::Named(sentinels) => tokio::select! {
                () = sleep(jittered(pause)) => {}
                () = sentinels.moved() => {}
            },
            Route::Fixed(_) => sleep(jittered(pause)).await,
        }
    }

    /// One attempt to find the server, connect, log in and subscribe.
    pub(super) async fn open(&self) -> Result<Arc<Live<D::Socket>>, ExecError> {
        let endpoint = match &self.route {
            Route::Fixed(endpoint) => endpoint.clone(),
            Route::Named(sentinels) => sentinels.endpoint().await?,
        };
        let limit = endpoint.timeout;
        let opening = async {
            let listen = Some(self.listen.clone());
            let (commands, listener) = match endpoint.protocol {
                Protocol::Resp3 => (self.dialer.dial(&endpoint, listen).await?, None),
                Protocol::Resp2 => {
                    let commands = self.dialer.dial(&endpoint, None).await?;
                    (commands, Some(self.dialer.dial(&endpoint, listen).await?))
                }
            };
            if let Route::Named(sentinels) = &self.route {
                sentinels.confirm(&commands).await?;
            }
            if let Some(name) = &self.name {
                match commands.send(&Request::words(&["CLIENT", "SETNAME", name])).await {
                    Ok(_) | Err(ExecError::Server { .. }) => {} // a comfort: a refusal is no reason to stay away
                    Err(error) => return Err(error),
                }
            }
            Ok(Arc::new(Live { address: endpoint.address.clone(), commands, listener }))
        };
        let live = timeout(limit, opening).await.map_err(|_| {
            let message = format!("no connection to {} within {limit:?}", endpoint.address);
            ExecError::NotSent { message, source: None }
        })?;
        self.heard(Instant::now());
        live.map_err(|error| match error {
            ExecError::NotSent { .. } | ExecError::SentUnknown { .. } => {
                error.so_not_sent(format!("cannot connect to {}", endpoint.address))
            }
            error => error,
        })
    }
}

/// The pause after this one.
fn longer(pause: Duration) -> Duration {
    (pause * 2).clamp(FIRST_PAUSE, LAST_PAUSE)
}

fn ended() -> ExecError {
    ExecError::NotSent { message: "the server closed the connection".into(), source: None }
}

fn demoted() -> ExecError {
    ExecError::NotSent { message: "the server takes no writes any more".into(), source: None }
}

/// Reports it when the supervising task ends because its runtime does. The next request revives the link on its own runtime:
/// clients that wait for wake-ups ask now.
struct LastWord<D: Dialer>(Arc<Shared<D>>);

impl<D: Dialer> Drop for LastWord<D> {
    fn drop(&mut self) {
        let message = "the runtime that the driver was connected on has ended".into();
        if self.0.set(State::down(ExecError::NotSent { message, source: None })) {
            (self.0.listen.sink)(Heard::Gap);
        }
    }
}

/// Between half of `pause` and all of it, so that the clients of a restarted server do not come all at once.
fn jittered(pause: Duration) -> Duration {
    pause.mul_f64(0.5 + 0.5 * fastrand::f64())
}
