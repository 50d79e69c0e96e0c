//! The link to Redis: what is asked of it, and the one over any client library and any topology.

use std::fmt::Debug;
use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::cluster::Cluster;
use crate::config::{Endpoint, RedisConfig, Topology};
use crate::error::ExecError;
use crate::link::{Dialer, Heard, Listen};
use crate::link::{Link, Route, WakeLink};
use crate::script::ScriptCall;
use crate::script::{Reply, Request};
use crate::sentinel::Sentinels;
use crate::slot;

/// How keys are spread over servers, and what that does to exclusion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Placement {
    /// All on one server.
    OneServer,
    /// All on one server at a time; another may take its place without having seen the latest writes.
    OnePrimary,
    /// By slots over several servers, each as with [`Placement::OnePrimary`]. A script's keys share a slot.
    Slots,
}

/// A link to Redis, through a client library.
///
/// One method call is one request, sent at most once: no retry, no replay by the library. The link is the executor's
/// own affair: it re-establishes it for ever, subscribes to the client's channel before it counts as up, and tells the
/// [`WakeLink`](crate::WakeLink) of every message and every new start. A request while the link is down fails with
/// [`ExecError::NotSent`] within a bounded time, and every request is bounded in time.
///
/// # Cancel safety
///
/// Futures may be dropped half-way; the request may then be applied or not.
pub trait RedisExecutor: Debug + Send + Sync + 'static {
    /// A short constant name of the driver: `"redis"`.
    fn driver(&self) -> &'static str;

    /// How keys are spread. Constant.
    fn placement(&self) -> Placement;

    /// For each server that keeps locks, where it is and some of the slots that it serves.
    fn homes(&self) -> Vec<(String, RangeInclusive<u16>)>;

    /// `EVALSHA` of the script's digest. An unknown script is a [`ExecError::Server`] with code `NOSCRIPT`.
    fn evalsha(&self, call: &ScriptCall) -> impl Future<Output = Result<Reply, ExecError>> + Send;

    /// `EVAL` of the script's source.
    fn eval(&self, call: &ScriptCall) -> impl Future<Output = Result<Reply, ExecError>> + Send;

    /// A plain command without side effects, such as `INFO`, to every server that keeps locks: where each is, and what
    /// it answered.
    fn command(&self, args: &[&str]) -> impl Future<Output = Vec<(String, Result<Reply, ExecError>)>> + Send;

    /// A plain command to the server that serves `slot`, sent at most once.
    fn command_at(&self, slot: u16, args: &[&str]) -> impl Future<Output = Result<Reply, ExecError>> + Send;

    /// Whose data this is, the same for executors that were told to reach the same servers and database; `None` if it
    /// cannot be told. No I/O.
    fn identity(&self) -> Option<String>;

    /// Ends the link and the work behind it; later calls fail with [`ExecError::Closed`]. May be called again.
    fn close(&self) -> impl Future<Output = ()> + Send;
}

/// Runs a script: by its digest, and by its source where the server does not know that.
///
/// `NOSCRIPT` proves that nothing was executed: the second request is never a repetition.
pub(crate) async fn run<E: RedisExecutor>(executor: &E, call: &ScriptCall) -> Result<Reply, ExecError> {
    match executor.evalsha(call).await {
        Err(error) if error.is_no_script() => executor.eval(call).await,
        result => result,
    }
}

/// Servers reached through a client library, as [`RedisConfig`] says.
#[derive(Debug)]
pub struct Remote<D: Dialer> {
    driver: &'static str,
    /// The addresses and the database that the configuration names.
    identity: String,
    servers: Servers<D>,
}

#[derive(Debug)]
enum Servers<D: Dialer> {
    Single(Link<D>),
    Primary(Link<D>, Arc<Sentinels<D>>),
    Cluster(Cluster<D>),
}

impl<D: Dialer> Remote<D> {
    /// Connects, subscribes to `channel`, and keeps it so. The first failure is final.
    pub(crate) async fn connect(
        dialer: D,
        config: &RedisConfig,
        channel: String,
        wake: WakeLink,
    ) -> Result<Self, ExecError> {
        let listen = listen(channel, wake);
        let (driver, dialer) = (dialer.driver(), Arc::new(dialer));
        let servers = match &config.topology {
            Topology::Single(address) => {
                let route = Route::Fixed(config.endpoint(address.clone()));
                Servers::Single(Link::new(dialer, route, listen, config, None).connect().await?)
            }
            Topology::Sentinel { sentinels, service } => {
                let sentinels = Sentinels::start(&dialer, config, sentinels, service);
                let route = Route::Named(Arc::clone(&sentinels) as Arc<_>);
                Servers::Primary(Link::new(dialer, route, listen, config, None).connect().await?, sentinels)
            }
            Topology::Cluster(seeds) => Servers::Cluster(Cluster::connect(dialer, config, seeds, listen).await?),
        };
        Ok(Self { driver, identity: identity(config), servers })
    }

    /// Connects to one server and keeps it so, also when the first attempt fails; tells how that went.
    pub(crate) async fn join(
        dialer: D,
        server: Endpoint,
        config: &RedisConfig,
        channel: String,
        wake: WakeLink,
    ) -> (Self, Result<(), ExecError>) {
        let driver = dialer.driver();
        let link = Link::new(Arc::new(dialer), Route::Fixed(server), listen(channel, wake), config, None);
        let (link, first) = link.join().await;
        (Self { driver, identity: identity(config), servers: Servers::Single(link) }, first)
    }

    async fn run(&self, call: &ScriptCall, request: Request<'_>) -> Result<Reply, ExecError> {
        match &self.servers {
            Servers::Single(link) | Servers::Primary(link, _) => link.request(&request).await,
            Servers::Cluster(cluster) => {
                let slot = call.keys.iter().next().map_or(0, slot::of);
                cluster.request(slot, &request).await
            }
        }
    }
}

fn identity(config: &RedisConfig) -> String {
    format!("redis {:?} {}", config.topology, config.database)
}

/// The client's channel, and where its messages go.
fn listen(channel: String, wake: WakeLink) -> Listen {
    let sink = move |heard: Heard<'_>| match heard {
        Heard::Message(payload) => wake.deliver(payload),
        Heard::Cut => wake.link_cut(),
        Heard::Gap => wake.link_up(),
    };
    Listen { channel, sink: Arc::new(sink) }
}

impl<D: Dialer> RedisExecutor for Remote<D> {
    fn driver(&self) -> &'static str {
        self.driver
    }

    fn placement(&self) -> Placement {
        match self.servers {
            Servers::Single(_) => Placement::OneServer,
            Servers::Primary(..) => Placement::OnePrimary,
            Servers::Cluster(_) => Placement::Slots,
        }
    }

    fn homes(&self) -> Vec<(String, RangeInclusive<u16>)> {
        match &self.servers {
            Servers::Single(link) | Servers::Primary(link, _) => vec![(link.place(), slot::ALL)],
            Servers::Cluster(cluster) => cluster.homes(),
        }
    }

    async fn evalsha(&self, call: &ScriptCall) -> Result<Reply, ExecError> {
        self.run(call, Request::by_digest(call)).await
    }

    async fn eval(&self, call: &ScriptCall) -> Result<Reply, ExecError> {
        self.run(call, Request::by_source(call)).await
    }

    async fn command(&self, args: &[&str]) -> Vec<(String, Result<Reply, ExecError>)> {
        let request = Request::words(args);
        match &self.servers {
            Servers::Single(link) | Servers::Primary(link, _) => vec![(link.place(), link.request(&request).await)],
            Servers::Cluster(cluster) => cluster.everywhere(&request).await,
        }
    }

    async fn command_at(&self, slot: u16, args: &[&str]) -> Result<Reply, ExecError> {
        let request = Request::words(args);
        match &self.servers {
            Servers::Single(link) | Servers::Primary(link, _) => link.request(&request).await,
            Servers::Cluster(cluster) => cluster.request(slot, &request).await,
        }
    }

    fn identity(&self) -> Option<String> {
        Some(self.identity.clone())
    }

    async fn close(&self) {
        match &self.servers {
            Servers::Single(link) => link.close().await,
            Servers::Primary(link, sentinels) => {
                link.close().await;
                sentinels.close().await;
            }
            Servers::Cluster(cluster) => cluster.close().await,
        }
    }
}
