//! The service on a port of this machine, beside another instance, over a Redis that is killed.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tenure::{Client, FencingToken};
use tenure_testkit::{RedisOptions, RedisServer};
use tokio::net::TcpListener;
use tokio::time::sleep;
use web_example::{Orders, PATIENCE, printer, router};

use crate::http::ask;

struct World {
    server: RedisServer,
    at: SocketAddr,
    orders: Arc<Orders>,
    /// Another instance.
    other: Client,
}

impl World {
    async fn new() -> Self {
        let server = RedisServer::start(RedisOptions::new()).unwrap();
        let url = format!("{}?op_timeout_ms=400", server.url());
        let (client, other) = (
            tenure::connect(&url).await.unwrap(),
            tenure::connect(&url).await.unwrap(),
        );
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (at, orders) =
            (listener.local_addr().unwrap(), Arc::<Orders>::default());
        let labels = client.queue("labels").unwrap();
        let worker = printer(&labels).unwrap();
        let routes = router(client, Arc::clone(&orders), labels);
        tokio::spawn(async {
            let _worker = worker;
            axum::serve(listener, routes).await
        });
        Self { server, at, orders, other }
    }

    async fn put(&self, path: &str, body: &str) -> u16 {
        ask(self.at, "PUT", path, body).await.0
    }

    async fn ship(&self) -> u16 {
        ask(self.at, "POST", "/orders/42/shipment", "").await.0
    }

    async fn get(&self, path: &str) -> (u16, String) {
        ask(self.at, "GET", path, "").await
    }

    /// Waits until this path is answered so.
    async fn until(&self, path: &str, status: u16) {
        let start = Instant::now();
        while self.get(path).await.0 != status {
            assert!(
                start.elapsed() < Duration::from_secs(30),
                "{path} is not answered by {status}"
            );
            sleep(Duration::from_millis(50)).await;
        }
    }
}

#[tokio::test]
async fn an_order_that_another_instance_changes_is_refused_at_once_or_after_a_moment()
 {
    let world = World::new().await;
    assert_eq!(world.put("/orders/42", "paid").await, 200);
    assert_eq!(world.orders.read("42").as_deref(), Some("paid"));
    assert_eq!(
        world.put("/orders/42", "packed").await,
        200,
        "its own lock is not in its way"
    );

    let guard = world.other.lock("orders/42").acquire().await.unwrap();
    let start = Instant::now();
    assert_eq!(world.put("/orders/42", "lost").await, 409);
    assert_eq!(world.put("/orders/4%32", "lost").await, 409, "the same order");
    assert_eq!(world.put("/orders/43", "paid").await, 200, "another one");
    assert_eq!(world.ship().await, 423);
    assert!(start.elapsed() >= PATIENCE);
    let (shipped, ()) = tokio::join!(world.ship(), async {
        sleep(PATIENCE / 10).await;
        guard.release().await.unwrap();
    });
    assert_eq!(shipped, 200, "in the middle of its wait the order was free");
    assert_eq!(world.orders.read("42").as_deref(), Some("shipped"));
    assert_eq!(
        world.put(&format!("/orders/{}", "x".repeat(600)), "").await,
        400,
        "too long for a name"
    );
}

#[tokio::test]
async fn a_holder_that_was_overtaken_writes_nothing() {
    let world = World::new().await;
    let later = FencingToken::new(i64::MAX as u64).unwrap();
    world.orders.write("42", later, String::from("of a later holder")).unwrap();
    assert_eq!(world.put("/orders/42", "late").await, 412);
    assert_eq!(world.orders.read("42").as_deref(), Some("of a later holder"));
}

#[tokio::test]
async fn health_is_that_of_the_backend_and_an_outage_is_no_conflict() {
    let mut world = World::new().await;
    assert_eq!(world.get("/health").await.0, 200);
    assert_eq!(world.put("/orders/42", "paid").await, 200);
    world.server.kill().unwrap();
    let start = Instant::now();
    assert_eq!(world.get("/health").await.0, 503);
    assert!(
        start.elapsed() < Duration::from_secs(2),
        "within its limit: {:?}",
        start.elapsed()
    );
    assert_eq!(world.put("/orders/42", "lost").await, 503);
    assert_eq!(world.ship().await, 503);
    assert_eq!(world.get("/ready").await.0, 503);
    world.server.restart().unwrap();
    world.until("/health", 200).await;
    world.server.pause().unwrap(); // connected, and nobody answers
    assert_eq!(world.get("/health").await.0, 503);
    world.server.resume().unwrap();
    world.until("/health", 200).await;
    world.until("/ready", 200).await;
}

#[tokio::test]
async fn servers_that_lose_locks_get_no_requests() {
    let world = World::new().await;
    assert_eq!(world.get("/ready").await.0, 200);
    for setting in [["maxmemory-policy", "allkeys-lru"], ["maxmemory", "100mb"]]
    {
        world.server.cli(&["CONFIG", "SET", setting[0], setting[1]]).unwrap();
    }
    let (status, text) = world.get("/ready").await;
    assert_eq!(status, 503, "{text}");
    assert!(text.contains("allkeys-lru"), "{text}");
    assert_eq!(world.get("/health").await.0, 200, "it answers");
}
