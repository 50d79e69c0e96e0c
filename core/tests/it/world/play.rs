//! Plays one schedule.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use tenure_core::driver::Backend;
use tenure_core::{Client, Confirmation, DriftBound};
use tenure_memory::Residue;
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::{Instant, advance, sleep, sleep_until, timeout};

use crate::world::end::End;
use crate::world::judge::{Judge, Tally};
use crate::world::live::{Life, millis};
use crate::world::plan::{ClientPlan, Fault, NAMES, Plan};
use crate::world::rng::Rng;
use crate::world::runtimes::Runtimes;
use crate::world::store::{Flaw, Store};
use crate::world::wire::Wire;

/// How long everybody may take to come to an end when all faults are over.
const PATIENCE: Duration = Duration::from_secs(600);
/// For how long abandoned tokens are remembered, and the latest frame is on its way.
const MEMORY: Duration = Duration::from_secs(63);

/// What is wrong with the world on purpose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mistakes {
    pub(crate) flaw: Option<Flaw>,
    /// Clients that take clocks for equal.
    pub(crate) no_drift: bool,
    /// What a runtime carried that has ended is neither dropped nor run on.
    pub(crate) frozen_runtimes: bool,
}

/// What came of a schedule.
pub(crate) struct Played {
    pub(crate) tally: Tally,
    pub(crate) wrong: Option<String>,
    pub(crate) trace: Vec<String>,
}

struct World {
    store: Store,
    judge: Arc<Judge>,
    wires: Vec<Arc<Wire>>,
    clients: Arc<[Client]>,
    started: Instant,
    /// The next step of each task of each client, and the next blow.
    next_steps: Vec<Vec<Arc<AtomicUsize>>>,
    next_blow: usize,
    gone: Gone,
}

/// Clients that did not see the end.
#[derive(Default)]
struct Gone {
    killed: Vec<usize>,
    closed: Vec<usize>,
}

impl Played {
    pub(crate) fn new((tally, wrong, trace): (Tally, Option<String>, Vec<String>)) -> Self {
        Self { tally: Tally { schedules: 1, ..tally }, wrong, trace }
    }
}

pub(crate) fn play(plan: &Plan, mistakes: Mistakes, traces: bool) -> Played {
    let mut runtimes = Runtimes::new(plan.seed, mistakes.frozen_runtimes);
    let mut world = runtimes.block_on(async { World::new(plan, mistakes, traces) });
    let judge = Arc::clone(&world.judge);
    for end in &plan.ends {
        let passed = runtimes.block_on(async {
            tokio::select! {
                biased;
                () = judge.wronged() => false,
                () = sleep_until(world.started + millis(end.at)) => true,
                () = world.pass_and_wait(plan) => unreachable!("it waits"),
            }
        });
        if !passed {
            return Played::new(judge.outcome());
        }
        judge.note(|| format!("--- {end:?}"));
        judge.count(|tally| tally.blows += 1);
        runtimes.end(millis(end.pause));
    }
    runtimes.block_on(async {
        judge.look();
        tokio::select! {
            biased;
            () = judge.wronged() => {}
            () = world.pass_to_the_end(plan) => {}
        }
    });
    Played::new(judge.outcome())
}

impl World {
    fn new(plan: &Plan, mistakes: Mistakes, traces: bool) -> Self {
        let mut rng = Rng::new(plan.seed);
        let store = Store::new(plan.fast, mistakes.flaw);
        let judge = Judge::new(plan, &store, traces);
        let wire = |client| Wire::new(client, store.another_client(), &judge, rng.fork(), plan);
        let wires: Vec<_> = (0..plan.clients.len()).map(wire).collect();
        let clients = std::iter::zip(&plan.clients, &wires).map(|(client, wire)| build(plan, client, wire, mistakes));
        let clients = clients.collect();
        let next_steps = plan.clients.iter().map(|client| client.tasks.iter().map(|_| Arc::default()).collect());
        let (next_steps, started) = (next_steps.collect(), Instant::now());
        Self { store, judge, wires, clients, started, next_steps, next_blow: 0, gone: Gone::default() }
    }

    /// Goes on until the runtime ends.
    async fn pass_and_wait(&mut self, plan: &Plan) {
        self.pass(plan).await;
        pending().await
    }

    async fn pass_to_the_end(mut self, plan: &Plan) {
        if self.pass(plan).await {
            self.end(plan).await;
        }
    }

    /// Goes on with what is left of the tasks and of the blows. Returns whether that came to its end.
    async fn pass(&mut self, plan: &Plan) -> bool {
        let (tasks, alive) = self.spawn(plan);
        self.torment(plan, &alive).await;
        let all_done = async {
            for task in tasks {
                if let Err(error) = task.await
                    && error.is_panic()
                {
                    self.judge.wrong("a task panicked".into());
                }
            }
        };
        let limit = self.judge.storm_until().saturating_duration_since(Instant::now()) + PATIENCE;
        let done = timeout(limit, all_done).await.is_ok();
        if !done {
            self.judge.look();
            self.judge.wrong("somebody waits for ever".into());
        }
        done
    }

    fn spawn(&self, plan: &Plan) -> (Vec<JoinHandle<()>>, Vec<Vec<AbortHandle>>) {
        let mut tasks = Vec::new();
        let mut alive = Vec::new();
        for (number, client) in plan.clients.iter().enumerate() {
            alive.push(Vec::<AbortHandle>::new());
            let killed = self.gone.killed.contains(&number);
            for (steps, next) in client.tasks.iter().zip(&self.next_steps[number]).filter(|_| !killed) {
                let (judge, clients, wire) =
                    (Arc::clone(&self.judge), Arc::clone(&self.clients), Arc::clone(&self.wires[number]));
                let life = Life { number, calm: plan.is_calm(), judge, clients, wire };
                let task = tokio::spawn(life.live(steps.clone(), Arc::clone(next)));
                alive[number].push(task.abort_handle());
                tasks.push(task);
            }
        }
        (tasks, alive)
    }

    async fn torment(&mut self, plan: &Plan, alive: &[Vec<AbortHandle>]) {
        while let Some(blow) = plan.blows.get(self.next_blow) {
            sleep_until(self.started + millis(blow.at)).await;
            self.next_blow += 1;
            self.judge.note(|| format!("--- {:?}", blow.what));
            self.judge.count(|tally| tally.blows += 1);
            match blow.what {
                Fault::Silence(client, span) => self.wires[client].link().silence(millis(span)),
                Fault::Deaf(client, span) => self.wires[client].link().deafen(millis(span)),
                Fault::Paused(client, span) => self.wires[client].link().pause(millis(span)),
                Fault::Stall(span) => advance(millis(span)).await,
                Fault::Killed(client) => {
                    self.wires[client].link().kill();
                    alive[client].iter().for_each(AbortHandle::abort);
                    self.gone.killed.push(client);
                }
                Fault::Forgets(name) => {
                    self.judge.revokes(&self.judge.names()[name]);
                    self.store.memory().faults().expire(NAMES[name]).unwrap();
                }
                Fault::Flushed => {
                    self.judge.names().iter().for_each(|name| self.judge.revokes(name));
                    self.store.flush();
                }
                Fault::Closed(client) => {
                    self.gone.closed.push(client);
                    let client = self.clients[client].clone();
                    tokio::spawn(async move { client.close(millis(500)).await });
                }
            }
            self.judge.look();
        }
    }

    /// Everything is given back in the end.
    async fn end(self, plan: &Plan) {
        let Self { store, judge, wires, clients, gone: Gone { killed, closed }, .. } = self;
        sleep_until(judge.storm_until()).await;
        for (number, client) in clients.iter().enumerate() {
            if killed.contains(&number) || closed.contains(&number) {
                continue;
            }
            if let Err(error) = client.close(Duration::from_secs(20)).await {
                judge.wrong(format!("client {number} was not closed: {error}"));
            }
        }
        let sound = killed.is_empty() && closed.is_empty();
        let unanswered: usize = wires.iter().map(|wire| wire.left_unanswered()).sum();
        if sound && unanswered > 0 {
            judge.wrong(format!("{unanswered} tokens were not abandoned of which a request was not answered"));
        }
        // What is left standing ends by itself, and frames that are on their way arrive.
        sleep(if plan.is_calm() { millis(plan.ttl * 3) } else { MEMORY }).await;
        let Residue { names, waiters, watches, .. } = store.memory().residue();
        if killed.is_empty() && (names, waiters, watches) != (0, 0, 0) {
            judge.wrong(format!("left behind: {names} names, {waiters} waiters, {watches} watches"));
        }
        drop((clients, wires));
        sleep(MEMORY).await;
        let Residue { names, waiters, tombstones, watches, .. } = store.memory().residue();
        let heard_by_the_dead = if killed.is_empty() { 0 } else { watches };
        if (names, waiters, tombstones, watches) != (0, 0, 0, heard_by_the_dead) {
            let text = format!("{names} names, {waiters} waiters, {tombstones} tombstones, {watches} watches");
            judge.wrong(format!("left behind in the end: {text}"));
        }
        let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks();
        if killed.is_empty() && tasks > 0 {
            judge.wrong(format!("{tasks} tasks go on though all clients are gone"));
        }
    }
}

fn build(plan: &Plan, client: &ClientPlan, wire: &Arc<Wire>, mistakes: Mistakes) -> Client {
    let end = Arc::new(End(Arc::clone(wire)));
    let backend = Backend::new(Arc::clone(&end) as _).with_reentrant(end);
    let confirmation = if client.confirms_behind { Confirmation::Behind } else { Confirmation::First };
    let drift = if mistakes.no_drift { DriftBound::new(0.0, Duration::ZERO).unwrap() } else { DriftBound::DEFAULT };
    Client::builder(backend)
        .ttl(millis(plan.ttl))
        .op_timeout(millis(300))
        .presence(millis(plan.presence))
        .holders_per_grant(client.holders_per_grant)
        .confirmation(confirmation)
        .drift(drift)
        .build()
        .unwrap()
}
