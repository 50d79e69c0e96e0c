//! What is known of a server's memory: its persistence, where the quorum relies on it, and its age, where it does not.

use std::time::Duration;

use crate::common::{attempt, busy, grant, hold, quiet, refused};
use tenure_core::ErrorKind;
use tenure_core::driver::{DistributedLock as _, Released, Renewed};
use tenure_redis::{RedisConfig, RedisDriver};
use tenure_redlock::{Redlock, Restarts};
use tenure_testkit::{RedisOptions, RedisServer};

fn servers(options: &RedisOptions) -> Vec<RedisServer> {
    (0..3).map(|_| RedisServer::start(options.clone()).unwrap()).collect()
}

async fn driver(servers: &[RedisServer], login: &str, restarts: Restarts) -> Redlock {
    let hosts: Vec<_> = servers.iter().map(|server| format!("127.0.0.1:{}", server.port())).collect();
    let url = format!("redis://{login}{}?connect_timeout_ms=5000", hosts.join(","));
    let nodes = RedisDriver::connect_nodes(&RedisConfig::nodes_from_url(&url).unwrap()).await.unwrap();
    let builder = Redlock::builder().nodes(nodes).restarts(restarts);
    builder.node_timeout(Duration::from_secs(2)).build().unwrap()
}

/// With an append-only file that is synced at every command, all servers may be killed at once: the lease is there
/// again, its fence counts on, and nobody has to wait for anything.
#[tokio::test]
async fn servers_that_keep_what_they_acknowledged_keep_the_lease_over_a_kill_of_all_and_vote_at_once() {
    let mut servers = servers(&RedisOptions::new().append_only());
    let (one, other) = (driver(&servers, "", Restarts::Durable).await, driver(&servers, "", Restarts::Durable).await);
    let request = attempt("a");
    let first = grant(&one, &request).await;
    quiet(&one).await;
    servers.iter_mut().for_each(|server| server.kill().unwrap());
    servers.iter_mut().for_each(|server| server.restart().unwrap());
    let deadline = tokio::time::Instant::now() + Duration::from_secs(5);
    let renewed = loop {
        match one.renew(request.ttl, &[hold(&request)]).await.remove(0) {
            Err(error) if error.is_transient() && tokio::time::Instant::now() < deadline => {
                tokio::time::sleep(Duration::from_millis(20)).await; // its links come back
            }
            answer => break answer.unwrap(),
        }
    };
    assert!(matches!(renewed, Renewed::Extended { .. }), "{renewed:?}");
    let deadline = tokio::time::Instant::now() + Duration::from_secs(5);
    while let Err(error) = other.acquire(&attempt("b")).await {
        assert!(error.is_transient() && tokio::time::Instant::now() < deadline, "{error}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    busy(&other, &attempt("a")).await;
    assert_eq!(one.release(&hold(&request)).await.unwrap(), Released::Released);
    quiet(&one).await;
    assert!(grant(&other, &attempt("a")).await.fence > first.fence);
}

/// A server's age is read with `INFO`, in the same step as the vote.
#[tokio::test]
async fn the_right_to_look_at_a_servers_age_is_named_where_it_is_needed_and_missing() {
    let rules = ["on", ">password", "~*", "&*", "+@all", "-info"];
    let servers = servers(&RedisOptions::new().user("locks", &rules));
    let login = "locks:password@";
    let error = refused(&driver(&servers, login, Restarts::MayForget).await, &attempt("a")).await;
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    let text = error.to_string();
    let named = servers.iter().filter(|server| text.contains(&server.port().to_string())).count();
    assert!(text.contains("+info") && named >= 2, "a majority refuses, by name: {text}");
    grant(&driver(&servers, login, Restarts::Durable).await, &attempt("a")).await;
}
