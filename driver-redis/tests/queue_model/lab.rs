//! The queue at a server and in memory, with clocks that only the script moves.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tenure_core::driver::{AcquireRequest, Acquisition, Backend, DistributedLock, Hold, Ttl};
use tenure_core::queue::QueueName;
use tenure_core::{LockName, OwnerToken};
use tenure_memory::MemoryDriver;
use tenure_redis::RedisSettings;
use tenure_redis_support::{ClientId, Keyspace, RedisLocks, WakeLink};
use tenure_testkit::{RedisServer, RespClient};
use tokio::runtime::{Builder, Runtime};

use crate::common::model::{Grow, Rng};
use crate::common::queue::queue;
use crate::common::wire::{Edit, Wire};
use crate::draw::{Draw, Op};
use crate::side::{Side, apply};
use crate::state;

const DEAD_LETTERS: u64 = 6;
/// How long one script is.
const STEPS: usize = 400;

/// An operation, and how much time passes before. It is never none: what is put at a time is put there later than what an
/// earlier operation put there, so that the orders agree.
#[derive(Clone, Debug)]
pub(crate) struct Move {
    pub(crate) after: Duration,
    pub(crate) op: Op,
}

/// What went wrong, and the operations until then.
#[derive(Debug)]
pub(crate) struct Wrong {
    pub(crate) moves: Vec<Move>,
    pub(crate) what: String,
}

/// Where the operations come from.
enum Source<'a> {
    Drawn(Draw),
    Given(std::slice::Iter<'a, Move>),
}

impl Source<'_> {
    fn next(&mut self, done: usize, model: &Side) -> Option<Move> {
        match self {
            Self::Drawn(_) if done == STEPS => None,
            Self::Drawn(draw) => {
                let after = Duration::from_micros(draw.rng.one_of(&[1, 7, 100, 1_000]));
                Some(Move { after, op: draw.op(model) })
            }
            Self::Given(moves) => moves.next().cloned(),
        }
    }
}

pub(crate) struct Bench<'a> {
    runtime: Runtime,
    server: &'a RedisServer,
    control: RespClient,
    redis: Arc<RedisLocks<Wire>>,
    now: i64,
}

impl<'a> Bench<'a> {
    pub(crate) fn at(server: &'a RedisServer, edit: Option<&Edit>) -> Self {
        let runtime = Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let settings = RedisSettings::default().max_dead_letters(DEAD_LETTERS);
        let keys = Keyspace::of(&settings, ClientId::random());
        let wire = Wire::with(server, edit.cloned());
        let redis = runtime.block_on(RedisLocks::checked(wire, keys, settings, WakeLink::default())).unwrap();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros() as i64;
        server.stop_clock_at(now).unwrap();
        Self { runtime, server, control: server.connect().unwrap(), redis: Arc::new(redis), now }
    }

    /// Runs the script of a seed. Tells how many steps were compared.
    pub(crate) fn draw(&mut self, seed: u64) -> Result<usize, Wrong> {
        let draw = Draw { rng: Rng::new(seed), lock: lock(), pushed: 0, known: (false, false) };
        self.run(Source::Drawn(draw))
    }

    /// Runs these operations.
    pub(crate) fn repeat(&mut self, moves: &[Move]) -> Result<usize, Wrong> {
        self.run(Source::Given(moves.iter()))
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
            let (jobs, held) = (queue("jobs"), Held::new().await);
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
        if answer != expected {
            return Some(format!("{op:?}\n  is answered {answer}\n  in memory   {expected}"));
        }
    }
    None
}

fn lock() -> LockName {
    LockName::new("lock").unwrap()
}

/// The store in memory, and a lock there that nobody gives back: what is parked behind it waits as long as it may.
struct Held {
    store: MemoryDriver,
    token: OwnerToken,
}

impl Held {
    async fn new() -> Self {
        let store = MemoryDriver::builder().max_dead_letters(DEAD_LETTERS).build().unwrap();
        let held = Self { store, token: OwnerToken::random() };
        held.take().await;
        held
    }

    async fn take(&self) {
        let (token, ttl) = (self.token, Ttl::new(Ttl::MAX).unwrap());
        let request = AcquireRequest::new(lock(), token, ttl);
        assert!(matches!(self.store.acquire(&request).await, Ok(Acquisition::Granted(_))));
    }

    async fn renew(&self) {
        let hold = Hold::new(lock(), self.token);
        DistributedLock::renew(&self.store, Ttl::new(Ttl::MAX).unwrap(), &[hold]).await.remove(0).unwrap();
    }

    async fn forget(&self) {
        self.store.faults().restart_empty();
        self.take().await;
    }

    fn side(&self) -> Side {
        Side::new(Arc::clone(Backend::from(self.store.clone()).queue().unwrap()))
    }
}
