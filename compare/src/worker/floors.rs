//! What the machine itself costs: a round trip, and a message from one connection to another.

use serde_json::{Value, json};

use super::bare::{Socket, frame};
use super::gate::gate;
use crate::failure::Outcome;
use crate::job::Job;
use crate::measure::{now, percentile};

/// Round trips of a PING.
pub(super) async fn ping(job: &Job) -> Outcome<Value> {
    let mut socket = Socket::connect(job.ports[0]).await?;
    let ping = frame(&["PING"]);
    socket.send(&ping).await?;
    gate()?;
    let mut times = Vec::new();
    for _ in 0..job.count {
        let sent = now();
        socket.send(&ping).await?;
        times.push((now() - sent) as f64 / 1e3);
    }
    Ok(json!({ "p50_us": percentile(&mut times, 0.5) }))
}

/// From a PUBLISH that is sent to its arrival at a subscriber: the least that a hand-over can take.
pub(super) async fn publish(job: &Job) -> Outcome<Value> {
    let mut publisher = Socket::connect(job.ports[0]).await?;
    let mut subscriber = Socket::connect(job.ports[0]).await?;
    subscriber.call(&["SUBSCRIBE", &job.name]).await?;
    let publish = frame(&["PUBLISH", &job.name, "0123456789abcdef 1"]);
    gate()?;
    let mut times = Vec::new();
    let until = now() + job.millis * 1_000_000;
    while now() < until {
        let sent = now();
        publisher.write(&publish).await?;
        subscriber.read().await?;
        times.push((now() - sent) as f64 / 1e3);
        publisher.read().await?;
    }
    Ok(json!({ "p50_us": percentile(&mut times, 0.5), "p99_us": percentile(&mut times, 0.99) }))
}
