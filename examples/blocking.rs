//! Locks and queues in a program of plain threads: no async runtime in sight.
//!
//! ```sh
//! cargo run --example blocking --features blocking
//! cargo run --example blocking --features blocking,redis -- redis://127.0.0.1/
//! ```

#![allow(clippy::print_stdout, reason = "this is a program that tells a story")]

use std::thread;
use std::time::Duration;

use tenure::blocking::{self, Client, Queue};
use tenure::queue::Message;
use tenure::{ErrorKind, OwnerId, Result};

fn main() -> Result<()> {
    let url =
        std::env::args().nth(1).unwrap_or_else(|| String::from("memory:"));
    let client = blocking::connect(&url)?;
    one_after_the_other(&client)?;
    deeper_down(&client, &OwnerId::new())?;
    later(&client)?;
    client.close(Duration::from_secs(5)) // waits until what was dropped is given back
}

/// The lease is renewed while the thread computes; `check` reads the clock.
fn one_after_the_other(client: &Client) -> Result<()> {
    let lock = client.lock("example/report").ttl(Duration::from_secs(2));
    thread::scope(|threads| {
        for name in ["anna", "bert"] {
            let lock = &lock;
            threads.spawn(move || {
                let written = lock.with(|guard| {
                    for _page in 0..5 {
                        thread::sleep(Duration::from_millis(100)); // a hard page
                        guard.check()?;
                    }
                    Ok(guard.fence())
                });
                match written {
                    Ok(Ok(fence)) => {
                        println!("{name} wrote with fence {fence}")
                    }
                    Ok(Err(lost)) | Err(lost) => {
                        println!("{name} did not: {lost}")
                    }
                }
            });
        }
    });
    let held = lock.acquire()?;
    match lock.acquire_within(Duration::from_millis(200)) {
        Err(error) if error.kind() == ErrorKind::TimedOut => {
            println!("busy for 200 ms, so we gave up")
        }
        other => println!("nobody expected {other:?}"),
    }
    held.release()?;
    Ok(())
}

fn deeper_down(client: &Client, me: &OwnerId) -> Result<()> {
    let account = client.reentrant("example/account", me);
    let depth = account.with(|_| account.with(|inner| inner.depth()))??;
    println!("entered {depth} deep");
    Ok(())
}

fn later(client: &Client) -> Result<()> {
    let reminders: Queue<String> = client.queue("example/reminders")?;
    reminders
        .push(Message::new(&"cake".into()).delay(Duration::from_millis(300)))?;
    reminders.push(&"tea".into())?;
    while let Some(delivery) =
        reminders.receive_within(Duration::from_secs(1))?
    {
        match delivery.value() {
            Ok(what) => println!(
                "reminded of {what}, {:?} late",
                delivery.as_async().late()
            ),
            Err(error) => println!("unreadable: {error}"),
        }
        delivery.ack()?;
    }
    Ok(())
}
