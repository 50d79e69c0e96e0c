//! A process that takes one lock of a quorum again and again: `quorum_client <url> <name> <seed> <seconds>`.
//!
//! For each grant it prints `grant FENCE ASKED GRANTED UNTIL ENDED OUTCOME`, where instants are nanoseconds of the clock
//! that all processes share. ENDED is the last instant at which it believed to hold the lock, and OUTCOME is `kept`, or
//! `expired` or `gone` if it was told of a loss before it released. At the end it prints
//! `end WON WON_IN_ONE_ROUND FAILED`: what the driver counted, and how many acquisitions failed.

use std::process::ExitCode;
use std::time::Duration;

use tenure::redis::{RedisConfig, RedisDriver};
use tenure::redlock::Redlock;
use tenure::{Client, ErrorKind, Lock, LockGuard, LostReason};
use tenure_conformance::{BoxError, Rng, worker::monotonic};

const TTL: Duration = Duration::from_millis(1000);
/// How often it looks whether it still holds the lock.
const LOOK: Duration = Duration::from_millis(2);

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let outcome = runtime.map_err(BoxError::from).and_then(|runtime| runtime.block_on(contend(&args)));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            println!("error {why}");
            ExitCode::FAILURE
        }
    }
}

async fn contend(args: &[String]) -> Result<(), BoxError> {
    let [url, name, seed, seconds] = args else { return Err("usage: <url> <name> <seed> <seconds>".into()) };
    let (builder, servers) = Redlock::builder().settings_from_url(url)?;
    let nodes = RedisDriver::connect_nodes(&RedisConfig::nodes_from_url(&servers)?).await?;
    let driver = builder.nodes(nodes).build()?;
    let client = Client::new(driver.clone());
    let (lock, mut rng) = (client.lock(name)?.ttl(TTL), Rng::new(seed.parse()?));
    let end = monotonic() + Duration::from_secs(seconds.parse()?);
    println!("ready");
    let mut failed = 0;
    while monotonic() < end {
        let asked = monotonic();
        match lock.acquire_within(Duration::from_secs(2)).await {
            Ok(guard) => hold(asked, guard, &mut rng).await?,
            Err(error) if error.is_transient() || error.kind() == ErrorKind::Lost => failed += 1,
            Err(error) => return Err(error.into()),
        }
        tokio::time::sleep(Duration::from_millis(rng.below(4))).await;
    }
    let counted = driver.elections();
    println!("end {} {} {failed}", counted.won, counted.won_in_one_round);
    close(&client, &lock).await
}

/// Holds the lock for a moment; one time in forty for so long that it has to be renewed.
async fn hold(asked: Duration, guard: LockGuard, rng: &mut Rng) -> Result<(), BoxError> {
    let granted = monotonic();
    let most = if rng.below(40) == 0 { TTL * 3 / 2 } else { Duration::from_millis(rng.below(25)) };
    let (mut seen, mut until) = (granted, granted + guard.remaining());
    let first_until = until;
    let outcome = loop {
        let now = monotonic();
        let left = guard.remaining();
        if guard.check().is_err() {
            break Some(tokio::time::timeout(TTL, guard.lost()).await.map_err(|_| "a loss that is not told")?);
        }
        (seen, until) = (now, now + left);
        if now - granted >= most {
            break None;
        }
        tokio::select! {
            _ = guard.lost() => {}
            () = tokio::time::sleep(LOOK) => {}
        }
    };
    let (ended, outcome) = match outcome {
        None => (seen, "kept"),
        Some(LostReason::Expired) => (until, "expired"), // it held it up to the last deadline that it knew
        Some(_) => (seen, "gone"),
    };
    let stamps = [asked, granted, first_until, ended].map(|at| at.as_nanos().to_string());
    println!("grant {} {} {outcome}", guard.fence(), stamps.join(" "));
    match guard.release().await {
        Err(error) if !error.is_transient() => Err(error.into()),
        _ => Ok(()), // what a fault kept from being released is released in the background
    }
}

async fn close(client: &Client, lock: &Lock) -> Result<(), BoxError> {
    client.close(Duration::from_secs(10)).await?;
    match lock.try_acquire().await {
        Err(error) if error.kind() == ErrorKind::Closed => Ok(()),
        other => Err(format!("after its end the client answers {other:?}").into()),
    }
}
