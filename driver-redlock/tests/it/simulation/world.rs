//! One schedule: clients that contend for one lock, what goes wrong meanwhile, and what must hold all the same.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure_core::driver::QuorumNode;
use tenure_core::{Client, FencingToken, LockGuard};
use tenure_memory::MemoryDriver;
use tenure_redlock::{Redlock, Restarts};
use tokio::time::{Instant, sleep};

use crate::simulation::node::Way;
use crate::simulation::rng::Rng;

/// Leases in the simulation, and the longest there may be.
const TTL: Duration = Duration::from_millis(600);
/// For how long clients go on taking the lock.
const SPAN: Duration = Duration::from_secs(3);

/// What kind of world a schedule plays in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) nodes: usize,
    pub(crate) clients: usize,
    /// Requests in a thousand that meet each of the link's faults.
    pub(crate) trouble: u64,
    /// Nodes restart empty. Proposals then come from clocks that agree; otherwise from none, or from wild ones.
    pub(crate) restarts: bool,
    pub(crate) wait_after_restart: bool,
}

impl Plan {
    pub(crate) fn of_seed(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0xb10c);
        Self {
            nodes: [3, 3, 3, 5, 2, 4][rng.below(6) as usize],
            clients: 2 + rng.below(2) as usize,
            trouble: [0, 10, 40, 90][rng.below(4) as usize],
            restarts: rng.below(2) == 0,
            wait_after_restart: true,
        }
    }
}

/// What happened in schedules.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) schedules: u64,
    pub(crate) grants: u64,
    pub(crate) failed: u64,
    pub(crate) lost: u64,
    pub(crate) restarts: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, other: &Self) {
        self.schedules += other.schedules;
        self.grants += other.grants;
        self.failed += other.failed;
        self.lost += other.lost;
        self.restarts += other.restarts;
    }
}

/// What everybody in the world can see.
#[derive(Default)]
struct Ledger {
    tally: Tally,
    held: Vec<Arc<LockGuard>>,
    fences: HashSet<FencingToken>,
    greatest: Option<FencingToken>,
    violation: Option<String>,
}

impl Ledger {
    fn granted(&mut self, guard: &Arc<LockGuard>) {
        let fence = guard.fence();
        self.tally.grants += 1;
        if !guard.is_held() {
            return; // it ended on its way to us: it protects nothing
        }
        if let Some(other) = self.held.iter().find(|other| other.is_held()) {
            self.wrong(format!("{} was granted while {} is held", fence, other.fence()));
        }
        if !self.fences.insert(fence) {
            self.wrong(format!("{fence} was granted twice"));
        }
        if self.greatest.is_some_and(|greatest| greatest >= fence) {
            self.wrong(format!("{fence} was granted after {:?}", self.greatest));
        }
        self.greatest = self.greatest.max(Some(fence));
        self.held.push(Arc::clone(guard));
    }

    fn wrong(&mut self, what: String) {
        self.violation.get_or_insert(what);
    }
}

struct World {
    plan: Plan,
    stores: Vec<MemoryDriver>,
    ways: Vec<Vec<Arc<Way>>>,
    ledger: Mutex<Ledger>,
    clock: Arc<AtomicU64>,
}

/// Plays one schedule.
pub(crate) fn run(seed: u64, plan: Plan) -> (Tally, Option<String>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let mut rng = Rng::new(seed);
        let stores: Vec<MemoryDriver> = (0..plan.nodes).map(|_| MemoryDriver::new()).collect();
        let mut ways_of = || stores.iter().map(|store| Way::new(store, rng.fork(), plan.trouble)).collect();
        let ways: Vec<Vec<Arc<Way>>> = (0..plan.clients).map(|_| ways_of()).collect();
        let clock = Arc::new(AtomicU64::new(1_000));
        let world = Arc::new(World { plan, stores, ways, ledger: Mutex::default(), clock });
        let mut tasks = tokio::task::JoinSet::new();
        for client in 0..plan.clients {
            tasks.spawn(live(Arc::clone(&world), client, rng.fork()));
        }
        let nemesis = tokio::spawn(torment(Arc::clone(&world), rng.fork()));
        while let Some(ended) = tasks.join_next().await {
            ended.expect("a client does not panic");
        }
        nemesis.abort();
        let mut ledger = world.ledger.lock().unwrap();
        ledger.tally.schedules = 1;
        (ledger.tally, ledger.violation.take())
    })
}

fn client_of(world: &World, index: usize, rng: &mut Rng) -> Client {
    let named = |(i, way): (usize, &Arc<Way>)| (format!("n{i}"), Arc::clone(way) as Arc<dyn QuorumNode>);
    let nodes = world.ways[index].iter().enumerate().map(named);
    let builder = nodes.fold(Redlock::builder(), |builder, (name, node)| builder.node(name, node));
    let restarts = if world.plan.wait_after_restart { Restarts::MayForget } else { Restarts::Durable };
    let (clock, clocks_agree, wild) = (Arc::clone(&world.clock), world.plan.restarts, Mutex::new(rng.fork()));
    let propose = move || {
        let mut wild = wild.lock().unwrap();
        match (clocks_agree, wild.below(3)) {
            (true, _) => FencingToken::new(clock.fetch_add(10, Ordering::Relaxed)),
            (false, 0) => None,
            (false, _) => FencingToken::new(1 + wild.below(200)),
        }
    };
    let builder = builder.node_timeout(Duration::from_millis(100)).max_ttl(TTL).restarts(restarts).proposals(propose);
    let driver = builder.build().unwrap();
    Client::builder(driver).ttl(TTL).op_timeout(Duration::from_millis(500)).presence(TTL).build().unwrap()
}

/// Takes the lock, works, gives it back or forgets it, and again.
async fn live(world: Arc<World>, index: usize, mut rng: Rng) {
    let client = client_of(&world, index, &mut rng);
    let end = Instant::now() + SPAN;
    while Instant::now() < end {
        let lock = client.lock("the lock");
        let lock = if rng.below(3) == 0 { lock.fixed_ttl(TTL) } else { lock };
        let guard = match rng.below(4) {
            0 => lock.try_acquire().await,
            _ => lock.acquire_within(Duration::from_millis(200 + rng.below(2000))).await.map(Some),
        };
        match guard {
            Ok(Some(guard)) => work(&world, guard, &mut rng).await,
            Ok(None) => {}
            Err(_) => world.ledger.lock().unwrap().tally.failed += 1,
        }
        sleep(Duration::from_millis(rng.below(60))).await;
    }
}

async fn work(world: &World, guard: LockGuard, rng: &mut Rng) {
    let guard = Arc::new(guard);
    world.ledger.lock().unwrap().granted(&guard);
    let most = if rng.below(5) == 0 { 1_500 } else { 120 };
    sleep(Duration::from_millis(rng.below(most))).await;
    let lost = !guard.is_held();
    {
        let mut ledger = world.ledger.lock().unwrap();
        ledger.tally.lost += u64::from(lost);
        ledger.held.retain(|held| !Arc::ptr_eq(held, &guard));
    }
    let guard = Arc::into_inner(guard).expect("the ledger has let it go");
    if rng.below(3) == 0 {
        drop(guard);
    } else {
        let _ = guard.release().await; // whatever the links make of it
    }
}

/// Makes clients silent and nodes forgetful.
async fn torment(world: Arc<World>, mut rng: Rng) {
    if world.plan.trouble == 0 && !world.plan.restarts {
        return;
    }
    loop {
        sleep(Duration::from_millis(30 + rng.below(500))).await;
        let span = Duration::from_millis(rng.below(1_200));
        let (client, node) =
            (rng.below(world.plan.clients as u64) as usize, rng.below(world.plan.nodes as u64) as usize);
        match rng.below(4) {
            0 => world.ways[client].iter().for_each(|way| way.silence(span)),
            1 => world.ways[client][node].silence(span),
            2 => world.ways.iter().for_each(|ways| ways[node].silence(span)),
            _ if world.plan.restarts => {
                world.stores[node].faults().restart_empty();
                world.ledger.lock().unwrap().tally.restarts += 1;
            }
            _ => {}
        }
    }
}
