//! The queue at a server and in memory, with clocks that only the script moves.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tenure_core::queue::QueueName;
use tenure_models::Grow;
use tenure_models::queue::{InMemory, Move, Op, Side, Source, Wrong, apply, difference};
use tenure_redis::RedisSettings;
use tenure_redis_support::Driver;
use tenure_testkit::{RedisServer, RespClient};
use tokio::runtime::{Builder, Runtime};

use super::state;
use crate::common::queue::queue;
use crate::common::wire::{Edit, Wire};

const DEAD_LETTERS: u64 = 6;

pub(crate) struct Bench<'a> {
    runtime: Runtime,
    server: &'a RedisServer,
    control: RespClient,
    redis: Arc<Driver<Wire>>,
    now: i64,
}

impl<'a> Bench<'a> {
    pub(crate) fn at(server: &'a RedisServer, edit: Option<&Edit>) -> Self {
        let runtime = Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let settings = RedisSettings::default().max_dead_letters(DEAD_LETTERS);
        let redis = runtime.block_on(Wire::with(server, edit.cloned()).driver(settings));
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros() as i64;
        server.stop_clock_at(now).unwrap();
        Self { runtime, server, control: server.connect().unwrap(), redis: Arc::new(redis), now }
    }

    /// Runs the script of a seed. Tells how many steps were compared.
    pub(crate) fn draw(&mut self, seed: u64) -> Result<usize, Wrong> {
        self.run(Source::drawn(seed))
    }

    /// Runs these operations.
    pub(crate) fn repeat(&mut self, moves: &[Move]) -> Result<usize, Wrong> {
        self.run(Source::given(moves))
    }

    fn run(&mut self, mut source: Source<'_>) -> Result<usize, Wrong> {
        let Self { runtime, server, control, redis, now } = self;
        control.call(&["FLUSHALL"]).unwrap();
        let mut pass = |span: Duration| {
            *now += span.as_micros() as i64;
            server.stop_clock_at(*now).unwrap();
            tokio::time::advance(span)
        };
        runtime.block_on(async {
            pass(Duration::from_secs(1)).await;
            let (jobs, held) = (queue("jobs"), InMemory::new(DEAD_LETTERS).await);
            let (mut real, mut model) = (Side::new(Arc::clone(redis) as _), held.side());
            let (mut moves, mut counters) = (Vec::new(), [0; 2]);
            while let Some(one) = source.next(moves.len(), &model) {
                moves.push(one.clone());
                pass(one.after).await;
                match one.op {
                    Op::Pass(span) => {
                        pass(span).await;
                        held.renew().await;
                    }
                    Op::Flush => {
                        control.call(&["FLUSHALL"]).unwrap();
                        held.forget().await;
                        real.forget(Grow::On);
                        model.forget(Grow::Anew);
                        counters = [0; 2];
                    }
                    _ => {}
                }
                let ops = [&one.op, &Op::Stats];
                let ops = if moves.len().is_multiple_of(4) { &ops[..] } else { &ops[..1] };
                if let Some(what) = compare(&mut real, &mut model, &jobs, ops).await {
                    return Err(Wrong { moves, what });
                }
                if let Some(what) = state::wrong(control, &mut counters) {
                    return Err(Wrong { moves, what });
                }
            }
            Ok(moves.len())
        })
    }
}

/// How the two answers differ, if they do.
async fn compare(real: &mut Side, model: &mut Side, jobs: &QueueName, ops: &[&Op]) -> Option<String> {
    for op in ops {
        let (answer, expected) = (apply(real, jobs, op).await, apply(model, jobs, op).await);
        if let Some(what) = difference(op, &answer, &expected) {
            return Some(what);
        }
    }
    None
}
