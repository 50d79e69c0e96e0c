//! What these tests share.

use std::time::Duration;

use tenure_core::{Client, LockGuard};
use tenure_testkit::{RedisCluster, RedisOptions, RedisSentinels, RedisServer, eventually};

/// Longer than anything takes that does happen.
pub(crate) const LONG: Duration = Duration::from_secs(40);
/// How long a server is silent before its successor takes over.
const SILENCE: Duration = Duration::from_secs(2);
/// Longer than any fault lasts where no node is to take over.
pub(crate) const NEVER: Duration = Duration::from_secs(60);
/// Quick enough to see renewals, and longer than a failover.
pub(crate) const TTL: Duration = Duration::from_secs(10);

pub(crate) const LIBRARIES: [&str; 2] = ["", "fred+"];

pub(crate) async fn client(library: &str, url: &str) -> Client {
    let backend = tenure_backends::connect(&format!("{library}{url}")).await.unwrap();
    Client::builder(backend).ttl(TTL).build().unwrap()
}

pub(crate) async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LONG, future).await.unwrap_or_else(|_| panic!("{what}: not within {LONG:?}"))
}

/// Tries until an outage has ended.
pub(crate) async fn eventually_granted(client: &Client, name: &str) -> LockGuard {
    within("a grant", async {
        loop {
            match client.lock(name).acquire().await {
                Ok(guard) => return guard,
                Err(error) => assert!(error.is_transient(), "{error}"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
}

/// Starts a waiter, and returns when it is in the queue.
pub(crate) async fn waiter(client: &Client, name: &str) -> tokio::task::JoinHandle<LockGuard> {
    let lock = client.lock(name);
    let waiting = tokio::spawn({
        let lock = lock.clone();
        async move { lock.acquire().await.unwrap() }
    });
    within("a place in the queue", async {
        while lock.inspect().await.unwrap().waiters == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    waiting
}

/// The key of the lock that contenders want.
const NAME: &str = "tenure:contended";

/// The servers of a topology in which one of two takes over from the other.
pub(crate) enum Pair {
    Cluster(RedisCluster),
    Sentinels(RedisSentinels),
}

impl Pair {
    pub(crate) fn all() -> [fn() -> Self; 2] {
        [
            || Self::Cluster(RedisCluster::start(&RedisOptions::new(), SILENCE).unwrap()),
            || Self::Sentinels(RedisSentinels::start(&RedisOptions::new(), SILENCE).unwrap()),
        ]
    }

    pub(crate) fn url(&self) -> String {
        match self {
            Self::Cluster(cluster) => cluster.url(),
            Self::Sentinels(group) => group.url(),
        }
    }

    /// The primary of a key and its replica.
    pub(crate) fn places(&self, key: &str) -> (usize, usize) {
        match self {
            Self::Cluster(cluster) => {
                let at = cluster.owner(key.as_bytes()).unwrap();
                (at, (at + 3) % 6)
            }
            Self::Sentinels(group) => {
                let at = group.primary().unwrap();
                (at, 1 - at)
            }
        }
    }

    pub(crate) fn servers(&self) -> &[RedisServer] {
        match self {
            Self::Cluster(cluster) => cluster.nodes(),
            Self::Sentinels(group) => group.servers(),
        }
    }

    pub(crate) fn server(&mut self, at: usize) -> &mut RedisServer {
        match self {
            Self::Cluster(cluster) => &mut cluster.nodes_mut()[at],
            Self::Sentinels(group) => &mut group.servers_mut()[at],
        }
    }
    /// Kills the primary of [`NAME`], waits for its successor, and starts it again as a replica.
    pub(crate) fn fail_over(&mut self) {
        let (primary, _) = self.places(NAME);
        self.server(primary).kill().unwrap();
        eventually("a successor", || (self.places(NAME).0 != primary).then_some(())).unwrap();
        self.server(primary).restart().unwrap();
        match self {
            Self::Cluster(cluster) => cluster.settled().unwrap(),
            Self::Sentinels(group) => group.settled().unwrap(),
        }
    }
}
