//! The queue mode: producers and consumers of one queue, and a judge of what they saw.
//!
//! | module | what |
//! |---|---|
//! | `entries` | the log entries of a message |
//! | `plan` | the intended end of a message, from its payload |
//! | `produce`, `consume` | the tasks of a client process |
//! | `ended` | the queue after the last client: what it holds, and that it can be emptied |
//! | `story`, `judge` | what happened to each message, and the rules over that |

mod consume;
mod ended;
mod entries;
mod judge;
mod plan;
mod produce;
mod story;
#[cfg(test)]
mod tests;

use tenure::queue::Queue;
use tenure::{Client, Result};
use tenure_conformance::{BoxError, Rng};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::client::Recorder;
use consume::Consumer;
use plan::LEASE;
use produce::Producer;

pub(super) use consume::LIES;
pub(super) use ended::{Remains, empty};
pub(super) use entries::{Entry, word};
pub(super) use judge::check;
pub(super) use story::tally;

/// The queue of all clients.
const QUEUE: &str = "jobs";

/// Producers and consumers of each process.
const PRODUCERS: u32 = 2;
const CONSUMERS: u32 = 3;

/// Tasks of each process.
pub(super) const TASKS: u32 = PRODUCERS + CONSUMERS;

fn queue(client: &Client) -> Result<Queue<Vec<u8>>> {
    Ok(client.queue_of_bytes(QUEUE)?.lease(LEASE))
}

/// Starts the tasks of a client process.
pub(super) fn spawn(
    tasks: &mut JoinSet<std::result::Result<(), BoxError>>,
    client: &Client,
    recorder: &Recorder,
    calm: &watch::Receiver<bool>,
    rng: impl Fn(u32) -> Rng,
    broken: Option<&str>,
) -> Result<()> {
    let queue = queue(client)?;
    let lie = LIES.iter().find(|lie| broken == Some(**lie)).copied();
    for number in 1..=TASKS {
        let (queue, recorder, calm, rng) = (queue.clone(), recorder.clone(), calm.clone(), rng(number));
        if number <= PRODUCERS {
            tasks.spawn(Producer { queue, recorder, calm, rng, number, op: 0 }.run());
        } else {
            tasks.spawn(Consumer { queue, recorder, calm, rng, number, op: 0, lie }.run());
        }
    }
    Ok(())
}
