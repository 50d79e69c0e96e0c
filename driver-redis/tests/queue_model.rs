//! Random operations on two delay queues, in Redis and in memory: every answer is compared.
//!
//! Both clocks are moved by the test. All spans are about whole thousands of seconds, and the time that the test itself
//! takes is far less, so that spans are compared rounded; and whatever is put at a time is put there later than what an earlier
//! operation put there, so that the orders agree.

#![allow(clippy::print_stdout, reason = "the operations are shown when the test fails")]

mod common;
#[path = "queue_model/draw.rs"]
mod draw;

use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::queue::queue;
use common::server_with;
use draw::{Draw, Op, Rng, Target, UNIT};
use tenure_core::driver::{
    AcquireRequest, Acquisition, Backend, DeadPlace, DeadSelection, DelayQueue, DistributedLock, Extension, Hold,
    Listed, MessageInfo, Next, Pushed, Queueing, RawDelivery, Receipt, ReceiveRequest, Received, Renewal, Settle,
    Settlement,
};
use tenure_core::{LockName, MessageId, OwnerToken, QueueName, Ttl};
use tenure_memory::MemoryDriver;
use tenure_redis::{RedisConfig, RedisDriver, RedisSettings};
use tenure_testkit::{RedisOptions, RedisServer};
use tokio::runtime::{Builder, Runtime};

const DEAD_LETTERS: u64 = 6;
/// What passes in memory between two operations, at least: no two put anything at the same time.
const STEP: Duration = Duration::from_millis(1);

/// One of the two backends.
struct Side {
    runtime: Runtime,
    queues: Arc<dyn DelayQueue>,
    /// What this backend calls the messages, in the order of their pushes.
    ids: Vec<MessageId>,
    receipts: Vec<Receipt>,
    letters: Vec<DeadPlace>,
    fence: u64,
}

impl Side {
    fn new(runtime: Runtime, backend: &Backend) -> Self {
        let queues = Arc::clone(backend.queue().unwrap());
        Self { runtime, queues, ids: vec![], receipts: vec![], letters: vec![], fence: 0 }
    }

    fn index(&self, id: &MessageId) -> String {
        match id.as_name() {
            Some(name) => String::from_utf8_lossy(name).into_owned(),
            None => format!("#{}", self.ids.iter().position(|known| known == id).expect("a known number")),
        }
    }

    fn receipt(&self, index: usize) -> Receipt {
        self.receipts[index % self.receipts.len()]
    }

    fn deliveries(&mut self, received: &Received) -> String {
        let told: Vec<String> = received.deliveries.iter().map(|delivery| self.delivery(delivery)).collect();
        format!("{told:?} {} {:?}", next(received.next), received.healed)
    }

    fn delivery(&mut self, delivery: &RawDelivery) -> String {
        assert!(delivery.fence.get() > self.fence, "fences grow");
        self.fence = delivery.fence.get();
        self.receipts.push(delivery.receipt);
        let RawDelivery { attempt, attempts, cause, key, lock, payload, reason, recurrence, .. } = delivery;
        let (late, age) = (round(delivery.late), round(delivery.age));
        let id = self.index(&delivery.id);
        format!(
            "{id} {attempt}/{attempts:?} {cause:?} {late} {age} {key:?} {lock:?} {reason:?} {recurrence:?} {:?}",
            payload.as_bytes()
        )
    }
}

impl Side {
    fn info(&self, info: &MessageInfo) -> String {
        let (id, due, age) = (self.index(&info.id), round(info.due_in), round(info.age));
        let (expires, payload) = (info.expires_in.map(round), info.payload.as_bytes());
        let rest = (info.state, info.attempt, info.attempts, &info.key, &info.lock, &info.reason, &info.recurrence);
        format!("{id} {due} {age} {expires:?} {rest:?} {payload:?}")
    }
}

fn round(span: Duration) -> u64 {
    (span.as_secs() + 500) / UNIT.as_secs()
}

fn next(next: Next) -> String {
    match next {
        Next::In(span) => format!("in {}", round(span)),
        other => format!("{other:?}"),
    }
}

fn settles(side: &Side, list: &[(usize, Settlement)]) -> Vec<Settle> {
    list.iter().map(|(index, how)| Settle { receipt: side.receipt(*index), how: how.clone() }).collect()
}

fn target(side: &Side, target: &Target) -> MessageId {
    match target {
        Target::Index(index) => side.ids[index % side.ids.len()].clone(),
        Target::Named(id) => id.clone(),
    }
}

fn apply(side: &mut Side, jobs: &QueueName, op: &Op) -> String {
    let queues = Arc::clone(&side.queues);
    let request = |max, lease| ReceiveRequest { queue: jobs.clone(), max, lease };
    macro_rules! done {
        ($call:expr) => {
            side.runtime.block_on($call).unwrap()
        };
    }
    fn told(answer: impl Debug) -> String {
        format!("{answer:?}")
    }
    match op {
        Op::Push(messages) => {
            let pushed = done!(queues.push(jobs, messages));
            let tell = |answer: &Pushed| match answer {
                Pushed::Stored(id) => {
                    side.ids.push(id.clone());
                    side.index(id)
                }
                Pushed::Replaced(id) => {
                    side.ids.push(id.clone());
                    format!("{} anew", side.index(id))
                }
                known => told(known),
            };
            told(pushed.iter().map(tell).collect::<Vec<_>>())
        }
        Op::Receive(list, max, lease) if list.is_empty() => {
            let received = done!(queues.receive(&request(*max, *lease)));
            side.deliveries(&received)
        }
        Op::Receive(list, max, lease) => {
            let settles = settles(side, list);
            let (settled, received) = done!(queues.settle_and_receive(&settles, &request(*max, *lease)));
            format!("{settled:?} {}", side.deliveries(&received))
        }
        Op::Settle(list) => told(done!(queues.settle(jobs, &settles(side, list)))),
        Op::Extend(index, lease) => {
            let extension = Extension { receipt: side.receipt(*index), lease: *lease };
            told(done!(queues.extend(jobs, &[extension])))
        }
        Op::Cancel(which) => told(done!(queues.cancel(jobs, &target(side, which)))),
        Op::Reschedule(which, delay) => told(done!(queues.reschedule(jobs, &target(side, which), *delay))),
        Op::Get(which) => match done!(queues.get(jobs, &target(side, which))) {
            None => "none".into(),
            Some(info) => side.info(&info),
        },
        Op::Messages(which, max) => {
            // Messages behind their keys may come after all others.
            let (mut all, mut from) = (Vec::new(), None);
            loop {
                let page = done!(queues.list(jobs, *which, from, *max));
                assert!(page.messages.len() <= *max);
                assert!(*which == Listed::Waiting || page.messages.is_sorted_by_key(|info| info.due_in));
                all.extend(page.messages.iter().map(|info| side.info(info)));
                from = page.next;
                if from.is_none() {
                    break;
                }
            }
            all.sort();
            told(all)
        }
        Op::Limit(limits) => {
            done!(queues.limit(jobs, limits));
            String::new()
        }
        Op::Stats => {
            let stats = done!(queues.stats(jobs));
            let (lag, due) = (round(stats.lag), stats.next_due.map(round));
            told((stats.scheduled, stats.ready, stats.in_flight, stats.dead, lag, due, stats.flow, stats.limits))
        }
        Op::Pause => {
            done!(queues.pause(jobs));
            String::new()
        }
        Op::Resume => {
            done!(queues.resume(jobs));
            String::new()
        }
        Op::Purge(max) => {
            // One step. That nothing is left behind it need not be known yet, and a step more then removes nothing.
            let step = done!(queues.purge(jobs, *max, None));
            let ends = step.next.is_none() || *max == 0;
            assert!(ends || step.removed > 0, "a step that removes nothing is the last");
            told(step.removed)
        }
        Op::List => told(done!(queues.list_queues(None, 3))),
        Op::DeadList(after, max) => {
            let after = after.filter(|_| !side.letters.is_empty()).map(|i| side.letters[i % side.letters.len()]);
            let page = done!(queues.dead_list(jobs, after, *max));
            side.letters.extend(page.letters.iter().map(|letter| letter.place));
            let tell = |letter: &tenure_core::driver::DeadLetter| {
                let rest = (letter.attempt, letter.cause, &letter.reason, round(letter.died));
                format!("{} {rest:?} {:?}", side.index(&letter.id), letter.payload.as_bytes())
            };
            told((page.letters.iter().map(tell).collect::<Vec<_>>(), page.rest))
        }
        Op::Redrive(which, delay) => {
            let mut ids: Vec<MessageId> = which.iter().map(|which| target(side, which)).collect();
            ids.sort();
            ids.dedup();
            told(done!(queues.dead_redrive(jobs, &DeadSelection::Ids(ids), *delay)))
        }
        Op::RedriveOldest(count, delay) => {
            told(done!(queues.dead_redrive(jobs, &DeadSelection::Oldest(*count), *delay)))
        }
        Op::DeadPurge(count) => told(done!(queues.dead_purge(jobs, &DeadSelection::Oldest(*count)))),
    }
}

fn redis(server: &RedisServer) -> Side {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let config = RedisConfig::unix(server.socket()).settings(RedisSettings::default().max_dead_letters(DEAD_LETTERS));
    let backend = Backend::from(runtime.block_on(RedisDriver::connect(config)).unwrap());
    Side::new(runtime, &backend)
}

/// The queue in memory, and a lock there that nobody gives back: what is parked behind it waits as long as it may.
fn memory(lock: &LockName) -> (Side, Arc<dyn DistributedLock>, Hold) {
    let runtime = Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let driver = MemoryDriver::builder().max_dead_letters(DEAD_LETTERS).build().unwrap();
    let backend = Backend::from(driver);
    let token = OwnerToken::random();
    let ttl = Ttl::new(Ttl::MAX).unwrap();
    let request = AcquireRequest { name: lock.clone(), token, ttl, queue: Queueing::None, label: None, fences: 1 };
    let granted = runtime.block_on(backend.locks().acquire(&request)).unwrap();
    assert!(matches!(granted, Acquisition::Granted(_)));
    let locks = Arc::clone(backend.locks());
    (Side::new(runtime, &backend), locks, Hold { name: lock.clone(), token })
}

fn compare(seed: u64, steps: u64) {
    let server = server_with(RedisOptions::new().movable_clock());
    let (jobs, lock) = (queue("jobs"), LockName::new("lock").unwrap());
    let mut real = redis(&server);
    let (mut model, locks, hold) = memory(&lock);
    let mut draw = Draw { rng: Rng(seed), lock, pushed: 0, known: (false, false) };
    let (mut offset, mut last) = (Duration::ZERO, Instant::now());
    for step in 0..steps {
        // In memory the test takes as long as at the server, and a little longer.
        let elapsed = std::mem::replace(&mut last, Instant::now()).elapsed();
        model.runtime.block_on(tokio::time::advance(elapsed + STEP));
        if draw.rng.below(8) == 0 {
            let span = UNIT * (1 + draw.rng.below(2) as u32);
            offset += span;
            server.set_clock_offset(offset.as_micros() as i64).unwrap();
            model.runtime.block_on(tokio::time::advance(span));
            let renewal = Renewal { hold: hold.clone(), ttl: Ttl::new(Ttl::MAX).unwrap() };
            model.runtime.block_on(locks.renew(&[renewal])).remove(0).unwrap();
        }
        let op = draw.op(&model);
        let expected = apply(&mut model, &jobs, &op);
        let answer = apply(&mut real, &jobs, &op);
        println!("{step}: {op:?}\n    {answer}"); // shown when the test fails
        assert_eq!(answer, expected, "seed {seed}, step {step}: {op:?}");
        if step % 16 == 0 {
            let stats = apply(&mut model, &jobs, &Op::Stats);
            assert_eq!(apply(&mut real, &jobs, &Op::Stats), stats, "seed {seed}, after step {step}: {op:?}");
        }
    }
    assert!(model.receipts.len() as u64 > steps / 5, "only {} deliveries", model.receipts.len());
}

#[test]
fn ten_thousand_random_steps_answer_as_in_memory() {
    compare(1, 10_000);
}

#[test]
fn many_short_runs_answer_as_in_memory() {
    for seed in 2..7 {
        compare(seed, 600);
    }
}
