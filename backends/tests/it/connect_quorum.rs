//! From a URL of a quorum to a client: what drivers of one node and of several share.

use std::time::{Duration, Instant};

use tenure::ErrorKind;
use tenure::driver::Exclusion;
use tenure_testkit::{RedisOptions, RedisServer};

const SCHEMES: &[&str] = &["redlock+redis", "redlock+fred+redis"];
const SETTINGS: &str = "restarts=durable&max_ttl_ms=30000&node_timeout_ms=1000&connect_timeout_ms=5000";

fn servers() -> Vec<RedisServer> {
    (0..3).map(|_| RedisServer::start(RedisOptions::new().password("s3cret")).unwrap()).collect()
}

fn url(scheme: &str, servers: &[RedisServer]) -> String {
    let hosts: Vec<_> = servers.iter().map(|server| format!("127.0.0.1:{}", server.port())).collect();
    format!("{scheme}://:s3cret@{}/1?prefix=app&{SETTINGS}", hosts.join(","))
}

#[tokio::test]
async fn schemes_may_be_in_capitals_and_settings_of_the_client_in_every_url() {
    let servers = servers();
    let single = |scheme: &str| format!("{scheme}://:s3cret@127.0.0.1:{}/?prefix=one", servers[0].port());
    let quorums = SCHEMES.iter().map(|scheme| url(&scheme.to_ascii_uppercase(), &servers));
    let singles = SCHEMES.iter().map(|scheme| single(&scheme["redlock+".len()..].to_ascii_uppercase()));
    for url in quorums.chain(singles) {
        let client = tenure::connect(&format!("{url}&ttl_ms=7000&op_timeout_ms=2000&presence_ms=9000")).await.unwrap();
        let guard = client.lock("a").acquire().await.unwrap();
        let left = client.lock("a").inspect().await.unwrap().holder.unwrap().remaining.unwrap();
        assert!(left <= Duration::from_secs(7), "{left:?}");
        guard.release().await.unwrap();
        let error = tenure::connect(&format!("{url}&presence_ms=1")).await.unwrap_err();
        assert!(error.message().contains("presence"), "{error}");
    }
}

#[tokio::test]
async fn clients_of_all_libraries_meet_in_one_quorum() {
    let servers = servers();
    let mut clients = Vec::new();
    for scheme in SCHEMES {
        clients.push(tenure::connect(&url(scheme, &servers)).await.unwrap());
    }
    let mut last = 0;
    for client in &clients {
        assert_eq!(client.driver(), "redlock");
        assert_eq!(client.capabilities().exclusion, Exclusion::Quorum { nodes: 3 });
        assert_eq!(client.capabilities().ttl.max, Duration::from_secs(30), "the URL's setting");
        let guard = client.lock("a").acquire().await.unwrap();
        assert!(guard.fence().get() > last);
        last = guard.fence().get();
        for other in &clients {
            assert!(other.lock("a").try_acquire().await.unwrap().is_none());
        }
        guard.release().await.unwrap();
    }
    for client in &clients {
        assert_eq!(client.queue_of_bytes("jobs").unwrap_err().kind(), ErrorKind::Unsupported);
    }
}

#[tokio::test]
async fn what_is_wrong_is_reported_at_once_with_the_node_and_without_the_password() {
    let mut servers = servers();
    for scheme in SCHEMES {
        let wrong = url(scheme, &servers).replace("s3cret", "s4cret");
        let error = tenure::connect(&wrong).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
        for (bad, word) in [("restarts=maybe", "restarts"), ("prefx=a", "prefx")] {
            let error = tenure::connect(&format!("{}&{bad}", url(scheme, &servers))).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
            assert!(error.message().contains(word) && !error.message().contains("s3cret"), "{error}");
        }
    }
    servers[0].kill().unwrap();
    servers[2].kill().unwrap();
    for scheme in SCHEMES {
        let asked = Instant::now();
        let error = tenure::connect(&url(scheme, &servers)).await.unwrap_err();
        assert!(asked.elapsed() < Duration::from_secs(20), "{:?}", asked.elapsed());
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        let text = error.to_string();
        assert!(text.contains("2 of 3") && !text.contains("s3cret"), "{text}");
        for (server, named) in [(0, true), (1, false), (2, true)] {
            assert_eq!(text.contains(&format!(":{}", servers[server].port())), named, "{text}");
        }
    }
}
