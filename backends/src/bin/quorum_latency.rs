//! Measures what a quorum costs beside one server, and what a dead node costs the quorum: `quorum_latency [rounds]`.
//!
//! All arrangements take turns in one run, so that what else the machine does meets all of them. It prints medians and
//! their ratios; build it with `--release`.

#![allow(clippy::print_stdout, reason = "it is a report")]

use std::time::{Duration, Instant};

use tenure::redis::{RedisConfig, RedisDriver};
use tenure::redlock::{Redlock, Restarts};
use tenure::{Client, Lock};
use tenure_conformance::BoxError;
use tenure_testkit::{RedisOptions, RedisServer};

/// One way to keep a lock, and how long it took.
struct Arrangement {
    what: &'static str,
    lock: Lock,
    quorum: Option<Redlock>,
    acquires: Vec<Duration>,
    releases: Vec<Duration>,
    _client: Client,
    _servers: Vec<RedisServer>,
}

impl Arrangement {
    async fn single() -> Result<Self, BoxError> {
        let server = RedisServer::start(RedisOptions::new())?;
        let client = Client::new(RedisDriver::connect(&server.url()).await?);
        Self::new("one server", client, None, vec![server])
    }

    /// `harm` is done to the first node once the client is connected.
    async fn quorum(
        what: &'static str,
        nodes: usize,
        harm: fn(&mut RedisServer) -> std::io::Result<()>,
    ) -> Result<Self, BoxError> {
        let mut servers = Vec::new();
        for _ in 0..nodes {
            servers.push(RedisServer::start(RedisOptions::new())?);
        }
        let hosts: Vec<_> = servers.iter().map(|server| format!("127.0.0.1:{}", server.port())).collect();
        let configs = RedisConfig::nodes_from_url(&format!("redis://{}", hosts.join(",")))?;
        let nodes = RedisDriver::connect_nodes(&configs).await?;
        let driver = Redlock::builder().nodes(nodes).restarts(Restarts::Durable).build()?;
        harm(&mut servers[0])?;
        Self::new(what, Client::new(driver.clone()), Some(driver), servers)
    }

    fn new(
        what: &'static str,
        client: Client,
        quorum: Option<Redlock>,
        servers: Vec<RedisServer>,
    ) -> Result<Self, BoxError> {
        let lock = client.lock("a");
        Ok(Self { what, lock, quorum, acquires: Vec::new(), releases: Vec::new(), _client: client, _servers: servers })
    }

    async fn turn(&mut self) -> Result<(), BoxError> {
        let asked = Instant::now();
        let guard = self.lock.try_acquire().await?.ok_or("nobody else wants it")?;
        let granted = Instant::now();
        guard.release().await?;
        self.releases.push(granted.elapsed());
        self.acquires.push(granted - asked);
        // Background work after the answers must not disturb the next arrangement.
        let settled = Instant::now();
        while self.quorum.as_ref().is_some_and(|quorum| quorum.background_work() > 0)
            && settled.elapsed() < Duration::from_millis(5)
        {
            tokio::time::sleep(Duration::from_micros(200)).await;
        }
        Ok(())
    }
}

/// The value below which this part of all is.
fn quantile(values: &mut [Duration], part: f64) -> Duration {
    values.sort_unstable();
    values[((values.len() - 1) as f64 * part) as usize]
}

fn micros(span: Duration) -> f64 {
    span.as_nanos() as f64 / 1000.0
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), BoxError> {
    let rounds: usize = std::env::args().nth(1).map_or(Ok(2000), |text| text.parse())?;
    let mut all = [
        Arrangement::single().await?,
        Arrangement::quorum("three servers", 3, |_| Ok(())).await?,
        Arrangement::quorum("three servers, one dead", 3, RedisServer::kill).await?,
        Arrangement::quorum("three servers, one stopped", 3, RedisServer::pause).await?,
        Arrangement::quorum("five servers", 5, |_| Ok(())).await?,
    ];
    for round in 0..rounds + rounds / 10 {
        for arrangement in &mut all {
            arrangement.turn().await?;
            if round < rounds / 10 {
                arrangement.acquires.clear();
                arrangement.releases.clear();
            }
        }
    }
    println!("{:<28} {:>10} {:>10} {:>10}  (µs)", "", "acquire", "p95", "release");
    let mut medians = Vec::new();
    for arrangement in &mut all {
        let [median, p95] = [0.5, 0.95].map(|part| micros(quantile(&mut arrangement.acquires, part)));
        let release = micros(quantile(&mut arrangement.releases, 0.5));
        println!("{:<28} {median:>10.0} {p95:>10.0} {release:>10.0}", arrangement.what);
        medians.push(median);
    }
    println!("three servers to one server: {:.2}", medians[1] / medians[0]);
    println!("one dead of three to all alive: {:.2}", medians[2] / medians[1]);
    println!("one stopped of three to all alive: {:.2}", medians[3] / medians[1]);
    println!("five servers to one server: {:.2}", medians[4] / medians[0]);
    Ok(())
}
