//! Messages that are due later: pushed, moved, cancelled, failed, and printed in the order in which they arrive.
//!
//! ```sh
//! cargo run --example delay_queue
//! cargo run --example delay_queue --features redis -- redis://127.0.0.1/
//! ```

#![allow(clippy::print_stdout, reason = "this is a program that tells a story")]

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenure::Result;
use tenure::queue::{Pushed, Queue, Settled};
use tokio::time::Instant;

#[derive(Serialize, Deserialize)]
struct Reminder {
    to: String,
    about: String,
}

fn reminder(to: &str, about: &str) -> Reminder {
    Reminder { to: to.to_owned(), about: about.to_owned() }
}

#[tokio::main]
async fn main() -> Result<()> {
    let url =
        std::env::args().nth(1).unwrap_or_else(|| String::from("memory:"));
    let client = tenure::connect(&url).await?;
    let queue: Queue<Reminder> = client.queue("example/reminders")?;
    let start = Instant::now();
    let tell =
        |what: &str| println!("{:>5} ms  {what}", start.elapsed().as_millis());

    queue
        .push(&reminder("anna", "tea"))
        .delay(Duration::from_millis(900))
        .await?;
    queue
        .push(&reminder("bert", "cake"))
        .delay(Duration::from_millis(300))
        .await?;
    let Pushed::Stored(later) = queue
        .push(&reminder("carl", "bill"))
        .delay(Duration::from_secs(3600))
        .await?
    else {
        unreachable!("only a message with an id can be a duplicate")
    };
    tell("three reminders are stored: in 900 ms, in 300 ms, in an hour");

    let order = queue.push(&reminder("dora", "order 7")).id("order/7").await?;
    let again = queue.push(&reminder("dora", "order 7")).id("order/7").await?;
    tell(&format!("the same id twice: {order:?}, then {again:?}"));

    queue.reschedule(&later, Duration::from_millis(600)).await?;
    tell("the hour became 600 ms");

    while let Some(delivery) =
        queue.receive_within(Duration::from_millis(1_500)).await?
    {
        let late = delivery.late();
        let Ok(Reminder { to, about }) = delivery.value() else {
            delivery.bury(None).await?;
            continue;
        };
        tell(&format!(
            "{to}: {about} (attempt {}, fence {}, {late:?} late)",
            delivery.attempt(),
            delivery.fence()
        ));
        if to == "bert" && delivery.attempt() == 1 {
            tell("      bert is not at home; again in 500 ms");
            delivery.nack(Duration::from_millis(500)).await?;
            continue;
        }
        assert_eq!(delivery.ack().await?, Settled::Done);
    }
    tell(&format!(
        "nothing more for 1.5 s: {:?}",
        queue.admin().stats().await?
    ));
    client.close(Duration::from_secs(5)).await
}
