//! Connecting: what goes wrong, and how that is said.

mod common;

use std::time::Duration;

use common::*;
use tenure_core::{Client, ErrorKind, OwnerId};
use tenure_etcd::{EtcdConfig, EtcdDriver};

#[tokio::test]
async fn nobody_there_is_said_at_once() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let error = EtcdDriver::connect(&format!("etcd://127.0.0.1:{port}")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().to_lowercase().contains("refused"), "{error}");
    let client = Client::new(EtcdDriver::new(format!("etcd://127.0.0.1:{port}").parse().unwrap()));
    let error = client.lock("x").unwrap().try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "nothing was sent: {error}");
    let error = client.lock("x").unwrap().acquire_within(Duration::from_secs(5)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}

#[tokio::test]
async fn somebody_who_does_not_answer_runs_into_the_timeout() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("etcd://127.0.0.1:{}", silent.local_addr().unwrap().port());
    let client =
        Client::builder(EtcdDriver::new(url.parse().unwrap())).op_timeout(Duration::from_millis(300)).build().unwrap();
    let error = client.lock("x").unwrap().try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Indeterminate, "{error}");
}

#[tokio::test]
async fn a_member_that_is_gone_is_passed_over() {
    let cluster = server();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url = format!("etcd://127.0.0.1:{port},127.0.0.1:{}", cluster.ports()[0]);
    let client = Client::new(EtcdDriver::connect(&url).await.unwrap());
    for _ in 0..3 {
        client.lock("x").unwrap().try_acquire().await.unwrap().unwrap().release().await.unwrap();
    }
}

#[tokio::test]
async fn prefixes_do_not_meet() {
    let cluster = server();
    let at = |prefix: &str| {
        let config = cluster.url().parse::<EtcdConfig>().unwrap().prefix(prefix).unwrap();
        Client::new(EtcdDriver::new(config))
    };
    let (one, two) = (at("one"), at("one/two"));
    let _one = one.lock("x").unwrap().try_acquire().await.unwrap().unwrap();
    let _two = two.lock("x").unwrap().try_acquire().await.unwrap().unwrap();
    assert!(at("one").lock("x").unwrap().try_acquire().await.unwrap().is_none());
}

#[tokio::test]
async fn no_prefix_reaches_into_the_names_of_another() {
    let cluster = server();
    let at = |prefix: &str| {
        let config = cluster.url().parse::<EtcdConfig>().unwrap().prefix(prefix).unwrap();
        Client::new(EtcdDriver::new(config))
    };
    let (outer, inner, me) = (at("shop"), at("shop/orders"), OwnerId::new());
    let mut held = Vec::new();
    // Keys of the one that look like parts of the other's locks, and the other way round.
    for name in ["wait", "hold", "orders"] {
        held.push(inner.lock(name).unwrap().try_acquire().await.unwrap().expect(name));
    }
    for name in ["orders", "orders/wait", "orders/hold", "orders:queue"] {
        held.push(outer.lock(name).unwrap().try_acquire().await.unwrap().expect(name));
    }
    let _entered = inner.reentrant("wait/re", &me).unwrap().try_acquire().await.unwrap().unwrap();
    assert_eq!(outer.lock("orders").unwrap().inspect().await.unwrap().waiters, 0);
    // A waiter of each, and a queue whose root begins as a lock of the outer prefix does.
    let waiting = [inner.lock("wait").unwrap(), outer.lock("orders").unwrap()];
    let waiting = waiting.map(|lock| tokio::spawn(async move { lock.acquire_within(PATIENCE).await }));
    let queue = inner.queue_of_bytes("x").unwrap();
    queue.push(&b"message".to_vec()).await.unwrap();
    assert_eq!(queue.stats().await.unwrap().ready, 1);
    for (client, name) in [(&inner, "wait"), (&outer, "orders")] {
        let lock = client.lock(name).unwrap();
        until("it waits", async || lock.inspect().await.unwrap().waiters == 1).await;
    }
    for guard in held {
        guard.release().await.unwrap();
    }
    for waiting in waiting {
        waiting.await.unwrap().unwrap().release().await.unwrap();
    }
    assert_eq!(queue.stats().await.unwrap().ready, 1);
}

#[tokio::test]
async fn credentials_are_used_and_their_refusal_is_said() {
    use etcd_client::Permission;
    let cluster = server();
    let mut etcd = raw(&cluster).await;
    etcd.user_add("root", "rootpw", None).await.unwrap();
    etcd.user_grant_role("root", "root").await.unwrap();
    etcd.role_add("app").await.unwrap();
    let range = Permission::read_write("tenure/").with_prefix();
    etcd.role_grant_permission("app", range).await.unwrap();
    etcd.user_add("app", "s3cret", None).await.unwrap();
    etcd.user_grant_role("app", "app").await.unwrap();
    etcd.auth_enable().await.unwrap();
    let at =
        |user: &str, query: &str| format!("{}/{query}", cluster.url()).replace("etcd://", &format!("etcd://{user}"));
    let client = Client::new(EtcdDriver::connect(&at("app:s3cret@", "")).await.unwrap());
    let held = client.lock("x").unwrap().acquire().await.unwrap();
    let waiting = client.lock("x").unwrap();
    let waiter = tokio::spawn(async move { waiting.acquire().await });
    until("it waits", async || client.lock("x").unwrap().inspect().await.unwrap().waiters == 1).await;
    held.release().await.unwrap();
    waiter.await.unwrap().unwrap().release().await.unwrap();
    for url in [at("app:wrong@", ""), at("nobody:x@", ""), at("", ""), at("app:s3cret@", "?prefix=other")] {
        let error = EtcdDriver::connect(&url).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
        assert!(!format!("{error} {error:?}").contains("s3cret"), "{error}");
    }
}

#[test]
fn a_driver_outlives_the_runtime_that_it_was_first_used_on() {
    let cluster = server();
    let client = client(&cluster);
    for _ in 0..3 {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        runtime.block_on(async {
            let held = client.lock("x").unwrap().acquire().await.unwrap();
            let waiting = client.lock("x").unwrap();
            let waiter = tokio::spawn(async move { waiting.acquire().await });
            until("it waits", async || client.lock("x").unwrap().inspect().await.unwrap().waiters == 1).await;
            held.release().await.unwrap();
            waiter.await.unwrap().unwrap().release().await.unwrap();
        });
    }
}
