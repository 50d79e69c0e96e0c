//! How many messages a second go through a delay queue: pushed, and then received and settled, in batches of several
//! sizes, in turn on one server of its own.
//!
//! ```sh
//! cargo run --release --package tenure-etcd --example queue_rate [rounds]
//! ```

#![allow(clippy::print_stdout, reason = "this is a program that measures")]

use std::time::{Duration, Instant};

use tenure_core::driver::{
    DelayQueue, Exchanged, Lease, NewMessage, Payload, ReceiveRequest, Settle, Settled, Settlement,
};
use tenure_core::queue::QueueName;
use tenure_etcd::EtcdDriver;
use tenure_testkit::{EtcdCluster, EtcdOptions};

const PAYLOAD: usize = 100;

#[tokio::main(worker_threads = 2)]
async fn main() {
    let rounds = std::env::args().nth(1).and_then(|rounds| rounds.parse().ok()).unwrap_or(5);
    let server = EtcdCluster::single(EtcdOptions::new().on_disk()).expect("etcd starts");
    println!("round   batch   consumers   pushed/s   received and settled/s");
    for round in 1..=rounds {
        for (batch, consumers, count) in [(1, 1, 300), (32, 1, 3_200), (32, 4, 6_400), (100, 1, 5_000)] {
            let queue = QueueName::new(format!("rate-{round}-{batch}-{consumers}")).expect("a good name");
            let pushed = push(&driver(&server), &queue, batch, count).await;
            let begun = Instant::now();
            let working = (0..consumers).map(|_| tokio::spawn(consume(driver(&server), queue.clone(), batch)));
            let mut seen = 0;
            for consumer in working.collect::<Vec<_>>() {
                seen += consumer.await.expect("no panic");
            }
            assert_eq!(seen, count);
            let rate = |took: Duration| count as f64 / took.as_secs_f64();
            println!(
                "{round:>5} {batch:>7} {consumers:>11} {:>10.0} {:>24.0}",
                rate(pushed),
                rate(begun.elapsed()) //
            );
        }
    }
}

fn driver(server: &EtcdCluster) -> EtcdDriver {
    EtcdDriver::new(server.url().parse().expect("a good URL"))
}

async fn push(driver: &EtcdDriver, queue: &QueueName, batch: usize, count: usize) -> Duration {
    let message = NewMessage::new(Payload::new(vec![b'x'; PAYLOAD]).expect("small"));
    let begun = Instant::now();
    for _ in 0..count / batch {
        driver.push(queue, &vec![message.clone(); batch]).await.expect("pushed");
    }
    begun.elapsed()
}

/// Until the queue is empty; tells how many messages were settled.
async fn consume(driver: EtcdDriver, queue: QueueName, batch: usize) -> usize {
    let request = ReceiveRequest::new(queue, batch, Lease::DEFAULT);
    let (mut settles, mut seen) = (Vec::new(), 0);
    loop {
        let Exchanged { settled, received, .. } = driver.exchange(&settles, &request).await.expect("answered");
        seen += settled.iter().filter(|settled| **settled == Settled::Done).count();
        let ack = |receipt| Settle::new(receipt, Settlement::Ack);
        settles = received.deliveries.iter().map(|delivery| ack(delivery.receipt)).collect();
        if settles.is_empty() {
            return seen;
        }
    }
}
