//! What the documentation prints of the drivers is what they declare with their default settings.

use std::time::Duration;

use tenure_backends::{Defaults, connect, defaults};
use tenure_core::driver::Backend;
use tenure_testkit::{
    MariaDbOptions, MariaDbServer, PostgresOptions, PostgresServer, RedisCluster, RedisOptions, RedisSentinels,
    RedisServer,
};

/// The defaults that the documentation has for this driver.
fn documented(driver: &str) -> Defaults {
    let found = defaults().into_iter().find(|(name, _)| *name == driver);
    found.unwrap_or_else(|| panic!("{driver} is not documented")).1
}

/// What the driver at this URL, which sets nothing, declares.
async fn declared(url: &str) -> Defaults {
    let backend: Backend = connect(url).await.unwrap();
    Defaults {
        locks: backend.locks().capabilities(),
        reentrant: backend.reentrant().unwrap().capabilities(),
        permits: backend.permits().map(|permits| permits.capabilities()),
        queue: backend.queue().map(|queue| queue.capabilities()),
        census: backend.census().map(|census| census.capabilities()),
    }
}

#[tokio::test]
async fn on_a_file() {
    let folder = tenure_testkit::TempDir::new("defaults").unwrap();
    let url = format!("sqlite:{}", folder.path().join("locks.db").display());
    assert_eq!(declared(&url).await, documented("sqlite"));
}

#[tokio::test]
async fn on_postgresql() {
    for logged in [false, true] {
        let server = PostgresServer::start(PostgresOptions::new()).unwrap();
        let url = format!("{}?migrate=true&logged={logged}", server.url("postgres"));
        let kind = if logged { "postgres, logged" } else { "postgres, unlogged" };
        assert_eq!(declared(&url).await, documented(kind));
    }
}

#[tokio::test]
async fn on_mariadb() {
    let server = MariaDbServer::start(MariaDbOptions::new()).unwrap();
    server.create_database("app").unwrap();
    assert_eq!(declared(&format!("{}?migrate=true", server.url("app"))).await, documented("mysql"));
}

#[tokio::test]
async fn on_one_redis_server_and_on_a_quorum() {
    let servers: Vec<_> = (0..3).map(|_| RedisServer::start(RedisOptions::new()).unwrap()).collect();
    let hosts: Vec<_> = servers.iter().map(|server| format!("127.0.0.1:{}", server.port())).collect();
    for library in ["", "fred+"] {
        let single = declared(&format!("{library}redis://{}", hosts[0])).await;
        assert_eq!(single, documented("redis and fred, one server"));
        let quorum = declared(&format!("redlock+{library}redis://{}", hosts.join(","))).await;
        assert_eq!(quorum, documented("redlock, 3 Redis servers"));
    }
}

#[tokio::test]
async fn on_a_cluster_and_behind_sentinels() {
    let silence = Duration::from_secs(60);
    let cluster = RedisCluster::start(&RedisOptions::new(), silence).unwrap();
    let sentinels = RedisSentinels::start(&RedisOptions::new(), silence).unwrap();
    for url in [cluster.url(), sentinels.url()] {
        for library in ["", "fred+"] {
            let declared = declared(&format!("{library}{url}")).await;
            assert_eq!(declared, documented("redis and fred, cluster or sentinels"), "{library}{url}");
        }
    }
}

#[cfg(feature = "etcd")]
#[tokio::test]
async fn on_etcd() {
    let cluster = tenure_testkit::EtcdCluster::single(tenure_testkit::EtcdOptions::new()).unwrap();
    assert_eq!(declared(&cluster.url()).await, documented("etcd"));
}
