//! Locks through a client that somebody else made.

use std::time::Duration;

use crate::common::*;
use tenure_core::{Client, ErrorKind};
use tenure_etcd::{EtcdConfig, EtcdDriver};
use tenure_testkit::{ClosedPort, TcpProxy};

async fn through(etcd: &etcd_client::Client) -> Client {
    let driver = EtcdDriver::connect_to(EtcdConfig::through(etcd.clone())).await.unwrap();
    Client::builder(driver).op_timeout(Duration::from_secs(3)).build().unwrap()
}

#[tokio::test]
async fn a_given_client_serves_locks_and_stays_its_owners() {
    let cluster = server();
    let mut etcd = raw(&cluster).await;
    let (given, own) = (through(&etcd).await, client(&cluster));
    let guard = given.lock("a").acquire().await.unwrap();
    assert!(own.lock("a").try_acquire().await.unwrap().is_none(), "they are the same locks");
    let waiting = tokio::spawn({
        let lock = own.lock("a");
        async move { lock.acquire_within(PATIENCE).await }
    });
    tokio::time::sleep(Duration::from_millis(100)).await; // so that it waits, as a rule
    let fence = guard.fence();
    guard.release().await.unwrap();
    let next = waiting.await.unwrap().unwrap();
    assert!(next.fence() > fence);
    let woken = tokio::spawn({
        let lock = given.lock("a");
        async move { lock.acquire_within(PATIENCE).await }
    });
    tokio::time::sleep(Duration::from_millis(100)).await;
    next.release().await.unwrap();
    woken.await.unwrap().unwrap().release().await.unwrap();

    let queue = given.queue_of_bytes("letters").unwrap();
    queue.push(&b"one".to_vec()).await.unwrap();
    let delivery = queue.receive_within(PATIENCE).await.unwrap().expect("a message");
    assert_eq!(delivery.payload().as_bytes(), b"one");
    delivery.ack().await.unwrap();

    given.close(PATIENCE).await.unwrap();
    assert_eq!(given.lock("a").acquire().await.unwrap_err().kind(), ErrorKind::Closed);
    etcd.put("mine", "still", None).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_of_the_given_client_that_is_cut_is_an_outage_which_ends() {
    let cluster = server();
    let proxy = TcpProxy::start(cluster.ports()[0]).unwrap();
    let etcd = etcd_client::Client::connect([format!("127.0.0.1:{}", proxy.port())], None).await.unwrap();
    let client = through(&etcd).await;
    let guard = client.lock("a").ttl(Duration::from_secs(30)).acquire().await.unwrap();

    proxy.lead_to(1); // where nobody listens
    proxy.cut();
    let error = client.lock("b").try_acquire().await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Indeterminate), "{error}");
    assert!(error.message().contains("given client") || error.message().contains("no answer"), "{error}");
    assert!(guard.is_held(), "a lease lasts until its deadline, whatever the connection does");

    proxy.lead_to(cluster.ports()[0]);
    client.lock("b").acquire_within(PATIENCE).await.unwrap().release().await.unwrap();
    guard.release().await.unwrap();
}

#[tokio::test]
async fn on_refuses_a_connection_that_reaches_no_server() {
    let nobody = ClosedPort::new().unwrap();
    let etcd = etcd_client::Client::connect([format!("127.0.0.1:{}", nobody.number())], None).await.unwrap();
    let error = EtcdDriver::connect_to(EtcdConfig::through(etcd)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.message().contains("given client"), "{error}");
}
