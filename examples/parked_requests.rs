//! Requests that lose the race for a lock: none waits, none is lost. Those that find the lock taken are parked in a
//! queue, and come back when it is free.
//!
//! ```sh
//! cargo run --example parked_requests
//! cargo run --example parked_requests --features redis -- redis://127.0.0.1/
//! ```

#![allow(clippy::print_stdout, reason = "this is a program that tells a story")]

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenure::queue::{Job, OrPark, Queue};
use tenure::{Client, Result};
use tokio::time::{Instant, sleep};

#[derive(Clone, Serialize, Deserialize)]
struct Booking {
    seat: String,
    who: String,
}

#[derive(Clone)]
struct Desk {
    client: Client,
    queue: Queue<Booking>,
    start: Instant,
}

impl Desk {
    fn tell(&self, what: &str) {
        println!("{:>5} ms  {what}", self.start.elapsed().as_millis());
    }

    /// What a request handler does: it answers at once, whether the seat's lock is free or not.
    async fn request(&self, booking: Booking) -> Result<&'static str> {
        let lock = self.client.lock(format!("seat/{}", booking.seat));
        match lock.or_park(&self.queue, &booking).await? {
            OrPark::Acquired(guard) => {
                guard.run(self.book(&booking)).await?;
                guard.release().await?;
                Ok("200 done")
            }
            OrPark::Parked(_) => Ok("202 accepted, will be done"),
        }
    }

    async fn book(&self, booking: &Booking) {
        self.tell(&format!("{} is booking seat {}", booking.who, booking.seat));
        sleep(Duration::from_millis(400)).await;
        self.tell(&format!(
            "{} is done with seat {}",
            booking.who, booking.seat
        ));
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let url =
        std::env::args().nth(1).unwrap_or_else(|| String::from("memory:"));
    let client = tenure::connect(&url).await?;
    let queue = client.queue("example/bookings")?;
    let desk = Desk {
        client: client.clone(),
        queue: queue.clone(),
        start: Instant::now(),
    };

    let worker = queue.worker().start({
        let desk = desk.clone();
        move |job: Job<Booking>| {
            let desk = desk.clone();
            async move { desk.book(&job.value).await }
        }
    })?;

    let requests = ["anna", "bert", "carl", "dora"].map(|who| {
        let (desk, booking) = (
            desk.clone(),
            Booking { seat: String::from("12A"), who: who.to_owned() },
        );
        tokio::spawn(async move {
            let answer = desk.request(booking.clone()).await;
            desk.tell(&format!(
                "{} is answered: {}",
                booking.who,
                answer.as_deref().unwrap_or("500")
            ));
            answer.map(drop)
        })
    });
    for request in requests {
        request.await.expect("no request panics")?;
    }
    loop {
        let stats = queue.admin().stats().await?;
        if stats.scheduled + stats.ready + stats.in_flight == 0 {
            break;
        }
        sleep(Duration::from_millis(50)).await;
    }
    desk.tell(&format!(
        "all bookings are done; the worker: {:?}",
        worker.shutdown(Duration::from_secs(1)).await
    ));
    client.close(Duration::from_secs(5)).await
}
