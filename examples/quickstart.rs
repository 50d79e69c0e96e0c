//! A tour in four scenes, on the in-process driver or on a Redis of your own:
//!
//! ```sh
//! cargo run --example quickstart
//! cargo run --example quickstart --features redis -- redis://127.0.0.1/
//! ```

#![allow(clippy::print_stdout, reason = "this is a program that tells a story")]

use std::time::Duration;

use tenure::{Client, FenceGate, FencingToken, LockGuard, OwnerId, Result};
use tokio::time::{Instant, sleep};

const PAUSE: Duration = Duration::from_millis(300);

#[tokio::main]
async fn main() {
    // "memory:" alone would be two stores; a named one is where two clients meet.
    let url = std::env::args().nth(1).filter(|url| url != "memory:");
    let url = url.unwrap_or_else(|| String::from("memory:quickstart"));
    if let Err(error) = tour(&url).await {
        // `Debug` prints the causes as well.
        eprintln!("the tour ended early: {error:?}");
        std::process::exit(1);
    }
}

async fn tour(url: &str) -> Result<()> {
    // Two clients, as two processes would have. They meet in the backend.
    let (anna, bert) =
        (tenure::connect(url).await?, tenure::connect(url).await?);
    println!(
        "Two clients, Anna and Bert, over the driver \"{}\".",
        anna.driver()
    );

    hand_over(&anna, &bert).await?;
    loss(&anna).await?;
    re_entry(&anna, &bert).await?;
    stale_write(&anna, &bert).await?;

    // Whatever was dropped on the way is given back by now.
    anna.close(Duration::from_secs(5)).await?;
    bert.close(Duration::from_secs(5)).await?;
    println!("\nBoth clients are closed; nothing is left behind.");
    Ok(())
}

async fn hand_over(anna: &Client, bert: &Client) -> Result<()> {
    let clock = Clock::start("1. Two workers want the same order");
    let lock = bert.lock("quickstart/order");
    let held = anna.lock("quickstart/order").acquire().await?;
    clock.tell(&format!("Anna holds it, fence {}", held.fence()));
    match lock.try_acquire().await? {
        Some(_) => clock.tell("Bert has it too, which must never happen"),
        None => {
            clock.tell("Bert tries once: busy. That is an answer, not an error")
        }
    }

    let waiting = async {
        clock.tell("Bert waits in line, without polling");
        let guard = lock.acquire().await?;
        clock.tell(&format!("Bert holds it, fence {}", guard.fence()));
        Ok(guard)
    };
    let working = async {
        sleep(PAUSE).await;
        clock.tell("Anna is done and releases");
        held.release().await
    };
    let (guard, ()): (LockGuard, ()) = tokio::try_join!(waiting, working)?;
    guard.release().await?;
    Ok(())
}

async fn loss(anna: &Client) -> Result<()> {
    let clock = Clock::start("2. A lease that is not renewed ends");
    let guard =
        anna.lock("quickstart/report").fixed_ttl(PAUSE).acquire().await?;
    let sure = guard.remaining().as_millis();
    clock.tell(&format!("Anna holds a lease of {PAUSE:?}; clocks differ, so she may count on {sure} ms of it"));
    guard.check()?;
    let reason = guard.lost().await;
    clock.tell(&format!("lost() tells: {reason}"));
    if let Err(error) = guard.check() {
        clock.tell(&format!("check() says: {error}"));
    }

    let guard =
        anna.lock("quickstart/report").fixed_ttl(PAUSE).acquire().await?;
    if let Err(error) = guard.run(sleep(10 * PAUSE)).await {
        clock.tell(&format!("run() dropped work that took too long: {error}"));
    }
    Ok(())
}

async fn re_entry(anna: &Client, bert: &Client) -> Result<()> {
    let clock = Clock::start("3. The same owner may enter again");
    let me = OwnerId::new(); // a value to be passed along, not a thread
    let outer = anna.reentrant("quickstart/ledger", &me).acquire().await?;
    let inner = anna.reentrant("quickstart/ledger", &me).acquire().await?;
    clock.tell(&format!(
        "depth {} with fence {}",
        outer.depth(),
        outer.fence()
    ));
    clock.tell(&format!(
        "depth {} with fence {}: the same hold",
        inner.depth(),
        inner.fence()
    ));
    if bert.lock("quickstart/ledger").try_acquire().await?.is_none() {
        clock.tell("for all other owners it is busy");
    }
    let left = inner.release().await?;
    clock.tell(&format!("one exit: {left} entry is left"));
    let left = outer.release().await?;
    clock.tell(&format!("the last exit leaves {left}: it is free"));
    Ok(())
}

async fn stale_write(anna: &Client, bert: &Client) -> Result<()> {
    let clock =
        Clock::start("4. A fence stops a holder that slept past its lease");
    let store = Store::default();
    let slow = anna.lock("quickstart/stock").fixed_ttl(PAUSE).acquire().await?;
    clock.tell(&format!(
        "Anna holds it, fence {}, and falls asleep",
        slow.fence()
    ));
    let quick = bert.lock("quickstart/stock").acquire().await?;
    clock.tell(&format!(
        "her lease ended; Bert holds it, fence {}",
        quick.fence()
    ));
    clock.tell(&store.write("Bert's stock", quick.fence()));
    clock.tell("Anna wakes up and writes without looking");
    clock.tell(&store.write("Anna's stock", slow.fence()));
    quick.release().await?;
    Ok(())
}

/// A resource that remembers the greatest fence it has seen. A database does this with a column.
#[derive(Default)]
struct Store {
    gate: FenceGate,
}

impl Store {
    fn write(&self, what: &str, fence: FencingToken) -> String {
        match self.gate.admit(fence) {
            Ok(()) => format!("the store takes \"{what}\" with fence {fence}"),
            Err(stale) => format!("the store refuses \"{what}\": {stale}"),
        }
    }
}

/// Prints lines with the time since the scene began.
struct Clock(Instant);

impl Clock {
    fn start(title: &str) -> Self {
        println!("\n{title}");
        Self(Instant::now())
    }

    fn tell(&self, line: &str) {
        println!("  {:>5} ms  {line}", self.0.elapsed().as_millis());
    }
}
