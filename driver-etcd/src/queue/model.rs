//! Random operations on a delay queue, in etcd and in memory: the test compares every answer, and every fourth time the
//! figures of the queue as well.
//!
//! Only the script advances the two clocks, so a failing seed fails again, and is shown shortened.
//!
//! | variable | meaning |
//! |---|---|
//! | `TENURE_MODEL_STEPS` | the number of steps, default 4,000 |
//! | `TENURE_MODEL_SEED` | the first seed, default 0 |

use std::sync::Arc;
use std::time::Duration;

use tenure_core::driver::{Attempts, Backend, Next};
use tenure_core::queue::{QueueLimits, QueueName};
use tenure_models::queue::{InMemory, Move, Op, Side, Source, Wrong, apply_fully, difference};
use tenure_models::{number, shortened};
use tenure_testkit::{EtcdCluster, EtcdOptions};
use tokio::runtime::{Builder, Runtime};

use super::clock::Micros;
use crate::EtcdDriver;

/// Room for all that die: which of two that die at one time is postponed is not the same.
const DEAD_LETTERS: u64 = 100_000;

/// A server, and the two queues. The one in memory has a runtime with a paused clock.
struct Bench {
    cluster: EtcdCluster,
    real: Runtime,
    paused: Runtime,
    scripts: u32,
}

impl Bench {
    fn new() -> Self {
        let runtime = |paused| Builder::new_current_thread().enable_all().start_paused(paused).build().unwrap();
        let cluster = EtcdCluster::single(EtcdOptions::new()).unwrap();
        Self { cluster, real: runtime(false), paused: runtime(true), scripts: 0 }
    }

    /// Runs a script on its own queue. Returns how many steps were compared.
    fn run(&mut self, mut source: Source<'_>, with_limits: bool) -> Result<usize, Wrong> {
        self.scripts += 1;
        let (Self { real, paused, .. }, url) = (&*self, self.cluster.url());
        let config = format!("{url}?prefix=script-{}&clock_error_ms=0&max_dead_letters={DEAD_LETTERS}", self.scripts);
        let driver = EtcdDriver::new(config.parse().unwrap());
        let clock = Arc::clone(&driver.inner.clock);
        let mut now: Micros = clock.now() + 3_600_000_000; // beyond the real one
        let jobs = QueueName::new("jobs").unwrap();
        let mut pass = |span: Duration| {
            now += span.as_micros() as Micros;
            clock.at_least(now);
            paused.block_on(tokio::time::advance(span));
        };
        pass(Duration::from_secs(1));
        let store = paused.block_on(InMemory::new(DEAD_LETTERS));
        let (mut etcd, mut memory) = (Side::new(Arc::clone(Backend::from(driver).queue().unwrap())), store.side());
        let (mut moves, mut limited) = (Vec::new(), false);
        while let Some(one) = source.next(moves.len(), &memory).map(|one| fitting(one, with_limits)) {
            moves.push(one.clone());
            pass(one.after);
            match &one.op {
                Op::Pass(span) => {
                    pass(*span);
                    paused.block_on(store.renew());
                }
                Op::Flush => continue,
                Op::Limit(limits) => limited = !limits.is_none(),
                _ => {}
            }
            let ops = [&one.op, &Op::Stats];
            let ops = if moves.len().is_multiple_of(4) { &ops[..] } else { &ops[..1] };
            for op in ops {
                let (answer, next) = real.block_on(apply_fully(&mut etcd, &jobs, op));
                let (expected, when) = paused.block_on(apply_fully(&mut memory, &jobs, op));
                let asks = if is_asked_in_time(next, when, limited) { answer } else { format!("{answer} {next:?}") };
                if let Some(what) = difference(op, &asks, &expected) {
                    return Err(Wrong { moves, what: format!("{what} {when:?}") });
                }
            }
        }
        Ok(moves.len())
    }
}

/// Leaves out operations that etcd and memory do alike, but not at the same time. Of the messages that a key holds
/// back, etcd buries the expired ones when it looks, and memory when their turn comes: no message has both a key and an
/// end. When a limit is reached, etcd still buries the messages that it has seen, and memory looks no further: where
/// there are limits, messages die only on request.
fn fitting(mut one: Move, with_limits: bool) -> Move {
    match &mut one.op {
        Op::Push(messages) => messages.iter_mut().for_each(|message| {
            if with_limits || message.key.is_some() {
                message.ttl = None;
            }
            if with_limits {
                message.attempts = Attempts::new(Attempts::MAX).unwrap();
            }
        }),
        Op::Limit(limits) if !with_limits => *limits = QueueLimits::none(),
        _ => {}
    }
    one
}

/// Whether a client that asks then asks when memory would have it ask. Sooner where a limit is reached: etcd returns
/// when a message is due, which may be before there is room for it.
fn is_asked_in_time(next: Option<Next>, expected: Option<Next>, limited: bool) -> bool {
    match (next, expected) {
        (Some(Next::Now), Some(Next::In(_) | Next::Never)) | (Some(Next::In(_)), Some(Next::Never)) => limited,
        (Some(Next::In(span)), Some(Next::In(expected))) if limited => span <= expected,
        (next, expected) => next == expected,
    }
}

#[test]
fn random_operations_answer_as_in_memory() {
    let mut bench = Bench::new();
    let (first, steps) = (number("TENURE_MODEL_SEED", 0), number("TENURE_MODEL_STEPS", 4_000));
    let mut done = 0;
    for seed in first.. {
        let with_limits = seed % 2 == 1;
        match bench.run(Source::drawn(seed), with_limits) {
            Ok(compared) => done += compared as u64,
            Err(wrong) => {
                let moves = shortened(&wrong.moves, |moves| bench.run(Source::given(moves), with_limits).is_err());
                let last = bench.run(Source::given(&moves), with_limits).expect_err("it failed before");
                let shown: Vec<String> =
                    moves.iter().map(|Move { after, op }| format!("  {after:?} {op:?}\n")).collect();
                panic!("seed {seed}, at step {}: {}\n{}", wrong.moves.len(), last.what, shown.concat());
            }
        }
        if done >= steps {
            break;
        }
    }
}
