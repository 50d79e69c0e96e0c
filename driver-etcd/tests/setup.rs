//! Connecting: what goes wrong, and how that is said.

mod common;

use std::time::Duration;

use common::*;
use tenure_core::{Client, ErrorKind};
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
