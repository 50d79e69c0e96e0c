//! The servers of one configuration, reached through a client library, and the server that a request goes to.

use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::cluster::Cluster;
use crate::config::{Endpoint, RedisConfig, Topology};
use crate::error::ExecError;
use crate::link::{Dialer, Link, Listen, Route};
use crate::script::{Reply, Request, ScriptCall};
use crate::sentinel::Sentinels;
use crate::slot;

/// The distribution of keys over servers, and its effect on exclusion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placement {
    /// All on one server.
    OneServer,
    /// All on one server at a time; another may take its place without having seen the latest writes.
    OnePrimary,
    /// By slots over several servers, each as with [`Placement::OnePrimary`]. A script's keys share a slot.
    Slots,
}

/// The answers of all servers to one command, each with the address of the server.
pub(crate) type Answers = Vec<(String, Result<Reply, ExecError>)>;

/// The links to the servers. Each request is sent at most once and bounded in time: while a link is down, a request
/// fails with [`ExecError::NotSent`].
#[derive(Debug)]
pub(crate) enum Servers<D: Dialer> {
    Single(Link<D>),
    Primary(Link<D>, Arc<Sentinels<D>>),
    Cluster(Cluster<D>),
}

impl<D: Dialer> Servers<D> {
    /// Connects, subscribes, and keeps it so. The first failure is final.
    pub(crate) async fn connect(dialer: D, config: &RedisConfig, listen: Listen) -> Result<Self, ExecError> {
        let dialer = Arc::new(dialer);
        Ok(match &config.topology {
            Topology::Single(address) => {
                let route = Route::Fixed(config.endpoint(address.clone()));
                Self::Single(Link::new(dialer, route, listen, config, None).connect().await?)
            }
            Topology::Sentinel { sentinels, service } => {
                let sentinels = Sentinels::start(&dialer, config, sentinels, service);
                let route = Route::Named(Arc::clone(&sentinels) as Arc<_>);
                Self::Primary(Link::new(dialer, route, listen, config, None).connect().await?, sentinels)
            }
            Topology::Cluster(seeds) => Self::Cluster(Cluster::connect(dialer, config, seeds, listen).await?),
        })
    }

    /// Connects to one server and keeps it so, also when the first attempt fails; returns the result of that attempt.
    pub(crate) async fn join(
        dialer: D,
        server: Endpoint,
        config: &RedisConfig,
        listen: Listen,
    ) -> (Self, Result<(), ExecError>) {
        let link = Link::new(Arc::new(dialer), Route::Fixed(server), listen, config, None);
        let (link, first) = link.join().await;
        (Self::Single(link), first)
    }

    /// The distribution of keys. Constant.
    pub(crate) fn placement(&self) -> Placement {
        match self {
            Self::Single(_) => Placement::OneServer,
            Self::Primary(..) => Placement::OnePrimary,
            Self::Cluster(_) => Placement::Slots,
        }
    }

    /// The slot of a key in a cluster; elsewhere one slot for all keys.
    pub(crate) fn slot(&self, key: &[u8]) -> u16 {
        match self {
            Self::Single(_) | Self::Primary(..) => 0,
            Self::Cluster(_) => slot::of(key),
        }
    }

    /// For each server that keeps locks, its address and some of the slots that it serves.
    pub(crate) fn homes(&self) -> Vec<(String, RangeInclusive<u16>)> {
        match self {
            Self::Single(link) | Self::Primary(link, _) => vec![(link.place(), slot::ALL)],
            Self::Cluster(cluster) => cluster.homes(),
        }
    }

    /// Runs a script: by its digest, and by its source if the server does not know the digest.
    ///
    /// `NOSCRIPT` proves that nothing was executed: the second request is never a repetition.
    pub(crate) async fn run(&self, call: &ScriptCall) -> Result<Reply, ExecError> {
        let slot = call.keys.iter().next().map_or(0, |key| self.slot(key));
        match self.request(slot, &Request::by_digest(call)).await {
            Err(error) if error.is_no_script() => self.request(slot, &Request::by_source(call)).await,
            result => result,
        }
    }

    /// Sends one command, once, to the server of this slot.
    pub(crate) async fn request(&self, slot: u16, request: &Request<'_>) -> Result<Reply, ExecError> {
        match self {
            Self::Single(link) | Self::Primary(link, _) => link.request(request).await,
            Self::Cluster(cluster) => cluster.request(slot, request).await,
        }
    }

    /// Sends a command without side effects, such as `INFO`, to every server that keeps locks.
    pub(crate) async fn everywhere(&self, words: &[&str]) -> Answers {
        let request = Request::words(words);
        match self {
            Self::Single(link) | Self::Primary(link, _) => vec![(link.place(), link.request(&request).await)],
            Self::Cluster(cluster) => cluster.everywhere(&request).await,
        }
    }

    /// Ends the links and their tasks; later requests fail with [`ExecError::Closed`]. May be called again.
    pub(crate) async fn close(&self) {
        match self {
            Self::Single(link) => link.close().await,
            Self::Primary(link, sentinels) => {
                link.close().await;
                sentinels.close().await;
            }
            Self::Cluster(cluster) => cluster.close().await,
        }
    }
}
