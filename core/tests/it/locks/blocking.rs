//! Leases of a program that blocks a worker of its runtime while another one is free. The clock is the real one, and what
//! happens on the runtime is set off by its own timers: whatever wakes it from outside would hide a stall.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tenure_core::driver::{Backend, Handed};
use tenure_core::queue::{Ending, Job, Outcome, Text, WorkerEvent};
use tenure_core::{Client, Confirmation, FencingToken, LockGuard};
use tenure_memory::MemoryDriver;
use tokio::runtime::{Builder, Handle};
use tokio::sync::mpsc;
use tokio::time::sleep;

use crate::locks::stage::{Stage, Step, TTL, steps};

/// How long the leases last that begin here.
const LEASE: Duration = Duration::from_millis(900);
const BLOCKED: Duration = Duration::from_millis(1_400);
/// How soon a client whose last lease has ended stops looking at the clock.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);
/// A span in which workers without work fall asleep.
const QUIET: Duration = Duration::from_millis(50);

/// Runs `work` on a worker of a runtime, as a task.
fn on_workers(count: usize, work: impl Future<Output = ()> + Send + 'static) {
    let runtime = Builder::new_multi_thread().worker_threads(count).enable_all().build().unwrap();
    runtime.block_on(runtime.spawn(work)).unwrap();
}

/// Blocks the worker of the caller for longer than the lease lasts, if nobody renews it.
fn block_and_check(stage: &Stage, guard: &LockGuard) {
    std::thread::sleep(BLOCKED);
    let renewed = stage.sent("renewed").len();
    guard.check().unwrap_or_else(|error| panic!("{error}, {renewed} renewals were answered"));
}

/// A stage whose renewals take a while, as those do that travel.
fn distant() -> Stage {
    let travel = Duration::from_millis(5);
    Stage { renew: steps([Step::Slow(travel); 100]), ..Stage::default() }
}

/// A lease of a client whose background tasks run already, and have nothing to do.
async fn taken(client: &Client) -> LockGuard {
    client.lock("before").acquire().await.unwrap().release().await.unwrap();
    sleep(LONGEST_SLEEP + 4 * QUIET).await;
    client.lock("a").ttl(LEASE).acquire().await.unwrap()
}

#[test]
fn a_lease_is_renewed_while_its_holder_blocks_right_after_the_grant() {
    on_workers(2, async {
        let (stage, client) = distant().client();
        let guard = taken(&client).await;
        block_and_check(&stage, &guard);
    });
}

#[test]
fn a_lease_is_renewed_while_its_holder_blocks_some_time_after_the_grant() {
    on_workers(2, async {
        let (stage, client) = distant().client();
        let guard = taken(&client).await;
        sleep(QUIET).await;
        block_and_check(&stage, &guard);
    });
}

#[test]
fn a_handed_lease_is_confirmed_while_its_holder_blocks() {
    on_workers(2, async {
        let stage = Stage { acquire: steps([Step::Busy]), ..distant() };
        let (stage, client) = stage.client_with(|builder| builder.confirmation(Confirmation::Behind));
        let (backend, lock) = (Arc::clone(&stage), client.lock("a").ttl(TTL));
        tokio::spawn(async move {
            sleep(QUIET).await;
            let token = backend.sent("acquire")[0];
            let fence = FencingToken::new(9).unwrap();
            backend.wakes.hand(&token, Handed::new(fence, LEASE, backend.time()));
        });
        let guard = lock.acquire().await.unwrap();
        block_and_check(&stage, &guard);
    });
}

/// The worker that would read the answer is blocked as well, and a third one sleeps.
#[test]
fn a_renewal_whose_answer_nobody_reads_is_repeated() {
    on_workers(3, async {
        let (stage, client) = distant().client();
        let (backend, runtime) = (Arc::clone(&stage), Handle::current());
        let guard = taken(&client).await;
        let (seen, sent) = (stage.sent("renew").len(), Instant::now());
        runtime.spawn(async move {
            while backend.sent("renew").len() == seen {
                sleep(Duration::from_millis(1)).await;
            }
            std::thread::sleep(BLOCKED.saturating_sub(sent.elapsed()));
        });
        sleep(QUIET).await;
        block_and_check(&stage, &guard);
    });
}

/// The second one blocks when an extension is wanted, and has not left yet.
#[test]
fn a_message_is_extended_while_other_tasks_block() {
    on_workers(3, async {
        let client = Client::new(Backend::from(MemoryDriver::new()));
        let queue = client.queue_with("jobs", Text).unwrap().lease(LEASE);
        let (reported, mut endings) = mpsc::unbounded_channel();
        let worker = queue.worker().on_event(move |event| drop(reported.send(event.clone())));
        let worker = worker.start(async |_: Job<String>| sleep(BLOCKED).await).unwrap();
        queue.push(&"x".to_owned()).await.unwrap();
        tokio::spawn(async {
            sleep(LEASE / 4).await;
            std::thread::sleep(BLOCKED);
        });
        sleep(QUIET).await;
        std::thread::sleep(BLOCKED);
        let ending = loop {
            if let WorkerEvent::Ended { ending, .. } = endings.recv().await.unwrap() {
                break ending;
            }
        };
        assert!(matches!(ending, Ending::Said(Outcome::Done)), "{ending:?}");
        worker.abort().await;
    });
}

/// Without them it loses its place in the queue.
#[test]
fn a_waiter_gives_signs_of_life_while_other_tasks_block() {
    on_workers(2, async {
        let (stage, client) = Stage { acquire: steps([Step::Busy; 100]), ..Stage::default() }
            .client_with(|builder| builder.presence(LEASE));
        let lock = client.lock("a");
        let waiting = tokio::spawn(async move { lock.acquire().await });
        sleep(QUIET).await;
        let before = stage.sent("acquire").len();
        std::thread::sleep(BLOCKED);
        let signs = stage.sent("acquire").len() - before;
        assert!(signs >= 3, "{signs} signs of life in {BLOCKED:?}, and {LEASE:?} without one is too long");
        waiting.abort();
    });
}
