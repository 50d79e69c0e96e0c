//! Rows that were fenced under one backend, and are written under another one.
#![cfg(feature = "etcd")]

use std::collections::BTreeMap;

use tenure_core::driver::Backend;
use tenure_core::{Client, FenceFloor, FencingToken};
use tenure_etcd::{EtcdConfig, EtcdDriver};
use tenure_memory::MemoryDriver;
use tenure_mysql::MysqlDriver;
use tenure_postgres::PostgresDriver;
use tenure_redis::{Fences, RedisConfig, RedisDriver, RedisSettings};
use tenure_redlock::Redlock;
use tenure_testkit::{
    EtcdCluster, EtcdOptions, MariaDbOptions, MariaDbServer, PostgresOptions, PostgresServer, RedisOptions, RedisServer,
};

const HOUR: u64 = 3_600_000_000;

/// `UPDATE stock SET fence = $1 WHERE id = $2 AND fence <= $1`, and the column is a `bigint`.
#[derive(Default)]
struct Rows(BTreeMap<String, i64>);

impl Rows {
    /// Whether the row was claimed.
    fn claim(&mut self, id: &str, fence: FencingToken) -> bool {
        let (fence, seen) = (i64::try_from(fence).unwrap(), self.0.entry(id.to_owned()).or_default());
        let claimed = *seen <= fence;
        *seen = fence.max(*seen);
        claimed
    }

    /// `SELECT max(fence) FROM stock`.
    fn greatest(&self) -> FenceFloor {
        FenceFloor::new(self.0.values().copied().max().unwrap_or_default().unsigned_abs()).unwrap()
    }
}

/// Takes the locks of some rows, twice each, and claims them; which of them were stale.
async fn serve(backend: impl Into<Backend>, rows: &mut Rows) -> Vec<String> {
    let client = Client::new(backend);
    let mut stale = Vec::new();
    for id in ["1", "2", "3", "1", "2", "3"] {
        let guard = client.lock(format!("stock/{id}")).acquire().await.unwrap();
        let fence = guard.fence();
        if !rows.claim(id, fence) {
            stale.push(format!("row {id}: fence {fence} is stale"));
        }
        guard.release().await.unwrap();
    }
    client.close(std::time::Duration::from_secs(5)).await.unwrap();
    stale
}

struct Servers {
    redis: Vec<RedisServer>,
    etcd: EtcdCluster,
}

impl Servers {
    fn start() -> Self {
        let redis = (0..4).map(|_| RedisServer::start(RedisOptions::new()).unwrap()).collect();
        Self { redis, etcd: EtcdCluster::single(EtcdOptions::new()).unwrap() }
    }

    async fn redis(&self, settings: RedisSettings) -> RedisDriver {
        let config = RedisConfig::from_url(&self.redis[0].unix_url()).unwrap().settings(settings);
        RedisDriver::connect(config).await.unwrap()
    }

    fn etcd(&self, floor: FenceFloor) -> EtcdDriver {
        EtcdDriver::new(self.etcd.url().parse::<EtcdConfig>().unwrap().fence_floor(floor))
    }

    /// The nodes vote at once: no client believes in a lease of theirs.
    async fn redlock(&self, floor: FenceFloor) -> Redlock {
        let mut quorum = Redlock::builder().fence_floor(floor).restarts(tenure_redlock::Restarts::Durable);
        for (number, server) in self.redis[1..].iter().enumerate() {
            let config = RedisConfig::from_url(&server.unix_url()).unwrap();
            quorum = quorum.node(format!("n{number}"), RedisDriver::connect(config).await.unwrap().node());
        }
        quorum.build().unwrap()
    }
}

struct Databases(PostgresServer, MariaDbServer);

impl Databases {
    fn start() -> Self {
        let postgres = PostgresServer::start(PostgresOptions::new()).unwrap();
        let mariadb = MariaDbServer::start(MariaDbOptions::new()).unwrap();
        mariadb.create_database("moved").unwrap();
        Self(postgres, mariadb)
    }

    async fn postgres(&self, more: &str) -> PostgresDriver {
        let url = format!("{}?migrate=true{more}", self.0.url("postgres"));
        PostgresDriver::connect(&url).await.unwrap()
    }

    async fn mysql(&self, more: &str) -> MysqlDriver {
        let url = format!("{}?migrate=true{more}", self.1.url("moved"));
        MysqlDriver::connect(&url).await.unwrap()
    }
}

#[tokio::test]
async fn by_default_no_change_of_the_backend_makes_a_row_stale() {
    let (servers, databases, mut rows) = (Servers::start(), Databases::start(), Rows::default());
    let none = Vec::<String>::new();
    for round in 0..2 {
        assert_eq!(serve(servers.redis(RedisSettings::default()).await, &mut rows).await, none, "{round}: on Redis");
        // As the page says: leases of the old backend end first. On etcd, fences may lag by a tenth of a second.
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
        assert_eq!(serve(servers.etcd(FenceFloor::NONE), &mut rows).await, none, "{round}: from Redis to etcd");
        assert_eq!(serve(MemoryDriver::new(), &mut rows).await, none, "{round}: from etcd to memory");
        assert_eq!(serve(databases.postgres("").await, &mut rows).await, none, "{round}: from memory to PostgreSQL");
        assert_eq!(serve(databases.mysql("").await, &mut rows).await, none, "{round}: from PostgreSQL to MariaDB");
        assert_eq!(serve(servers.redis(RedisSettings::default()).await, &mut rows).await, none, "{round}: to Redis");
        assert_eq!(serve(servers.redlock(FenceFloor::NONE).await, &mut rows).await, none, "{round}: to a quorum");
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
        assert_eq!(serve(servers.etcd(FenceFloor::NONE), &mut rows).await, none, "{round}: and back to etcd");
    }
}

/// The clock of one client was an hour ahead once, and its fences are in the rows.
#[tokio::test]
async fn with_a_floor_every_backend_continues_from_there_and_keeps_going() {
    let (servers, databases, mut rows) = (Servers::start(), Databases::start(), Rows::default());
    let (none, clock) = (Vec::<String>::new(), RedisSettings::default);
    for id in ["1", "2", "3"] {
        rows.claim(id, FenceFloor::new(FenceFloor::now().get() + HOUR).unwrap().first());
    }
    let floor = |rows: &Rows| format!("&fence_floor={}", rows.greatest().get());
    let memory = |floor| MemoryDriver::builder().fence_floor(floor).build().unwrap();

    assert_eq!(serve(servers.redis(clock()).await, &mut rows).await.len(), 6, "without one: stale for an hour");
    assert_eq!(serve(servers.redis(clock().fence_floor(rows.greatest())).await, &mut rows).await, none);
    assert_eq!(serve(servers.redis(clock()).await, &mut rows).await, none, "the counter is beyond it from then on");

    assert_eq!(serve(servers.etcd(FenceFloor::NONE), &mut rows).await.len(), 6);
    assert_eq!(serve(servers.etcd(rows.greatest()), &mut rows).await, none);
    assert_eq!(serve(servers.etcd(FenceFloor::NONE), &mut rows).await, none, "so is the base");

    assert_eq!(serve(MemoryDriver::new(), &mut rows).await.len(), 6);
    assert_eq!(serve(memory(rows.greatest()), &mut rows).await, none);

    assert_eq!(serve(databases.postgres("").await, &mut rows).await.len(), 6);
    assert_eq!(serve(databases.postgres(&floor(&rows)).await, &mut rows).await, none);
    assert_eq!(serve(databases.postgres("").await, &mut rows).await, none, "and the rows of its locks");

    assert_eq!(serve(databases.mysql("").await, &mut rows).await.len(), 6);
    assert_eq!(serve(databases.mysql(&floor(&rows)).await, &mut rows).await, none);
    assert_eq!(serve(databases.mysql("").await, &mut rows).await, none, "and the rows of its locks");

    assert_eq!(serve(servers.redlock(FenceFloor::NONE).await, &mut rows).await.len(), 6);
    assert_eq!(serve(servers.redlock(rows.greatest()).await, &mut rows).await, none);
    assert_eq!(serve(servers.redlock(FenceFloor::NONE).await, &mut rows).await, none, "and the nodes' counters");
}

/// Small numbers are comparable with nothing else.
#[tokio::test]
async fn counted_fences_need_the_floor() {
    let (servers, mut rows) = (Servers::start(), Rows::default());
    let counted = || RedisSettings::default().fences(Fences::Counter);
    assert!(serve(MemoryDriver::new(), &mut rows).await.is_empty());
    assert_eq!(serve(servers.redis(counted()).await, &mut rows).await.len(), 6);
    assert!(serve(servers.redis(counted().fence_floor(rows.greatest())).await, &mut rows).await.is_empty());
    assert!(serve(servers.redis(counted()).await, &mut rows).await.is_empty());
}
