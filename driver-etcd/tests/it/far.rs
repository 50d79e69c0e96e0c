//! Clients that are far from the cluster: a first in line that takes its time is not one that died.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use crate::common::*;
use tenure_core::Client;
use tenure_etcd::EtcdDriver;
use tenure_testkit::TcpProxy;
use tokio::task::JoinSet;

/// One way.
const FAR: Duration = Duration::from_millis(300);
const CROWD: usize = 60;
const TURNS: u64 = 5;

fn through(port: u16) -> Client {
    let driver = EtcdDriver::new(format!("etcd://127.0.0.1:{port}").parse().unwrap());
    Client::builder(driver).op_timeout(10 * SECOND).build().unwrap()
}

/// How many transactions the server was asked for since its start.
fn transactions(port: u16) -> u64 {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let line = text.lines().find(|line| line.starts_with("grpc_server_started_total") && line.contains("\"Txn\""));
    line.unwrap().rsplit(' ').next().unwrap().parse().unwrap()
}

/// Each turn is the news of the release, a lease, and a transaction: longer than those behind leave a free lock alone. If all of
/// them asked then what has become of it, again and again, a slow server would be slower yet, and every turn longer.
#[tokio::test]
async fn a_crowd_far_away_does_not_ask_more_the_longer_its_turns_take() {
    let cluster = server();
    let proxy = TcpProxy::start(cluster.ports()[0]).unwrap();
    proxy.set_delay(FAR);
    let lock = |client: &Client| client.lock("far").ttl(60 * SECOND);
    let holder = through(proxy.port());
    let first = lock(&holder).acquire().await.unwrap();
    let crowd: Vec<_> = (0..CROWD).map(|_| through(proxy.port())).collect();
    let mut served: JoinSet<_> = crowd
        .iter()
        .map(|client| {
            let lock = lock(client);
            async move { lock.acquire().await.unwrap().release().await.unwrap() }
        })
        .collect();
    until("all wait", async || lock(&holder).inspect().await.unwrap().waiters as usize == CROWD).await;
    let before = transactions(cluster.ports()[0]);
    first.release().await.unwrap();
    for _ in 0..TURNS {
        tokio::time::timeout(PATIENCE, served.join_next()).await.expect("the next is served").unwrap().unwrap();
    }
    let each = (transactions(cluster.ports()[0]) - before) / TURNS;
    served.shutdown().await;
    eprintln!("{each} transactions a turn");
    assert!(each <= 75, "{each} transactions a turn of {CROWD} clients that wait");
}
