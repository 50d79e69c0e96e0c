//! What it costs to pass a lock from hand to hand: 100 waiters on one key, beside the floor, which is a bare write and
//! deletion of one key. Both in turn on one server of its own, so that the ratio holds on a busy machine as well.
//!
//! ```sh
//! cargo run --release --package tenure-etcd --example hand_over [rounds]
//! ```

#![allow(clippy::print_stdout, reason = "this is a program that measures")]

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tenure_core::Client;
use tenure_etcd::EtcdDriver;
use tenure_testkit::{EtcdCluster, EtcdOptions};

const WAITERS: usize = 100;
const CLIENTS: usize = 4;

#[tokio::main(worker_threads = 2)]
async fn main() {
    let rounds = std::env::args().nth(1).and_then(|rounds| rounds.parse().ok()).unwrap_or(5);
    let server = EtcdCluster::single(EtcdOptions::new().on_disk()).expect("etcd starts");
    let waiting = || {
        let driver = EtcdDriver::new(server.url().parse().expect("a good URL"));
        Client::builder(driver).presence(Duration::from_secs(300)).build().expect("good settings")
    };
    let clients: Vec<Client> = (0..CLIENTS).map(|_| waiting()).collect();
    println!(
        "round   floor p50/p99 ms   pair p50/p99 ms   hand-over p50/p99 ms   ratio of p50s   requests per hand-over"
    );
    for round in 1..=rounds {
        let floor = floor(&server).await;
        let pair = pairs(&clients[0]).await;
        let (gaps, sent) = gaps(&clients, &server).await;
        let ratio = median(&gaps) / median(&floor);
        println!(
            "{round:>5}   {}      {}      {}          {ratio:.2}            {:.2}",
            both(&floor),
            both(&pair),
            both(&gaps),
            sent / WAITERS as f64
        );
    }
}

/// A key written and deleted, by one client, one after the other.
async fn floor(server: &EtcdCluster) -> Vec<Duration> {
    let endpoint = format!("127.0.0.1:{}", server.ports()[0]);
    let mut etcd = etcd_client::Client::connect([endpoint], None).await.expect("etcd answers");
    let mut times = Vec::new();
    for _ in 0..WAITERS {
        let begun = Instant::now();
        etcd.put("floor", "x", None).await.expect("written");
        etcd.delete("floor", None).await.expect("deleted");
        times.push(begun.elapsed());
    }
    sorted(times)
}

/// A free lock taken and released.
async fn pairs(client: &Client) -> Vec<Duration> {
    let lock = client.lock("pair");
    let mut times = Vec::new();
    for _ in 0..WAITERS {
        let begun = Instant::now();
        lock.acquire().await.expect("granted").release().await.expect("released");
        times.push(begun.elapsed());
    }
    sorted(times)
}

/// From the call of each release to the next grant, through the whole queue; and how many requests that took.
async fn gaps(clients: &[Client], server: &EtcdCluster) -> (Vec<Duration>, f64) {
    let held = clients[0].lock("hot").acquire().await.expect("granted");
    let released = Arc::new(Mutex::new(Instant::now()));
    let waiters: Vec<_> = (0..WAITERS)
        .map(|number| {
            let lock = clients[number % clients.len()].lock("hot");
            let released = Arc::clone(&released);
            tokio::spawn(async move {
                let guard = lock.acquire().await.expect("granted");
                let gap = released.lock().expect("not poisoned").elapsed();
                tokio::time::sleep(Duration::from_millis(2)).await;
                *released.lock().expect("not poisoned") = Instant::now();
                guard.release().await.expect("released");
                gap
            })
        })
        .collect();
    let queue = clients[0].lock("hot");
    while queue.inspect().await.expect("etcd answers").waiters as usize != WAITERS {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let before = requests(server);
    *released.lock().expect("not poisoned") = Instant::now();
    held.release().await.expect("released");
    let mut gaps = Vec::new();
    for waiter in waiters {
        gaps.push(waiter.await.expect("no panic"));
    }
    (sorted(gaps), requests(server) - before)
}

fn requests(server: &EtcdCluster) -> f64 {
    server.metric(0, "grpc_server_started_total{").expect("etcd tells its metrics")
}

fn sorted(mut times: Vec<Duration>) -> Vec<Duration> {
    times.sort_unstable();
    times
}

fn median(times: &[Duration]) -> f64 {
    times[times.len() / 2].as_secs_f64()
}

fn both(times: &[Duration]) -> String {
    let millis = |at: usize| times[times.len() * at / 100].as_secs_f64() * 1e3;
    format!("{:6.2} / {:6.2}", millis(50), millis(99))
}
