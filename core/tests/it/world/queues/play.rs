//! Plays one schedule of queues.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::time::Duration;

use tenure_core::driver::Backend;
use tenure_core::queue::QueueName;
use tenure_core::{Client, DriftBound};
use tenure_memory::MemoryDriver;
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::{Instant, advance, sleep, sleep_until, timeout};

use super::end::QueueEnd;
use super::ledger::Ledger;
use super::live::{Life, QUEUE};
use super::plan::QueuePlan;
use super::store::{Flaw, QueueStore};
use crate::world::link::{Link, Observer};
use crate::world::live::millis;
use crate::world::plan::{Fault, Weather};
use crate::world::play::Played;
use crate::world::rng::Rng;
use crate::world::runtimes::Runtimes;

/// How long everybody may take to come to an end when all faults are over.
const PATIENCE: Duration = Duration::from_secs(600);
/// The latest frame is on its way for less, and every lease and delay ends within it.
const REST: Duration = Duration::from_secs(30);

/// What is wrong with the world on purpose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct QueueMistakes {
    pub(crate) flaw: Option<Flaw>,
    /// Clients that take clocks for equal.
    pub(crate) no_drift: bool,
    /// What a runtime carried that has ended is neither dropped nor run on.
    pub(crate) frozen_runtimes: bool,
}

struct World {
    store: QueueStore,
    ledger: Arc<Ledger>,
    queue: QueueName,
    links: Vec<Arc<Link>>,
    clients: Vec<Client>,
    rng: Rng,
    mistakes: QueueMistakes,
    started: Instant,
    serials: Arc<AtomicU64>,
    /// The next step of each task of each client, and the next blow.
    next_steps: Vec<Vec<Arc<AtomicUsize>>>,
    next_blow: usize,
    killed: Vec<usize>,
    closed: Vec<usize>,
}

pub(crate) fn play(plan: &QueuePlan, mistakes: QueueMistakes, traces: bool) -> Played {
    let mut runtimes = Runtimes::new(plan.seed, mistakes.frozen_runtimes);
    let mut world = runtimes.block_on(async {
        let world = World::new(plan, mistakes, traces);
        world.store.limit(&world.queue, plan.limits).await.expect("the limits are within bounds");
        world
    });
    let ledger = Arc::clone(&world.ledger);
    for end in &plan.ends {
        let passed = runtimes.block_on(async {
            tokio::select! {
                biased;
                () = ledger.wronged() => false,
                () = sleep_until(world.started + millis(end.at)) => true,
                () = world.pass_and_wait(plan) => unreachable!("it waits"),
            }
        });
        if !passed {
            return Played::new(ledger.outcome());
        }
        ledger.note(|| format!("--- {end:?}"));
        ledger.count(|tally| tally.blows += 1);
        runtimes.end(millis(end.pause));
    }
    runtimes.block_on(async {
        ledger.look();
        tokio::select! {
            biased;
            () = ledger.wronged() => {}
            () = world.pass_to_the_end(plan) => {}
        }
    });
    Played::new(ledger.outcome())
}

impl World {
    fn new(plan: &QueuePlan, mistakes: QueueMistakes, traces: bool) -> Self {
        let (memory, queue) = (MemoryDriver::new(), QueueName::new(QUEUE).unwrap());
        let ledger = Ledger::new(plan, &memory, &queue, traces);
        let store = QueueStore::new(memory, &ledger, plan.fast, mistakes.flaw);
        let rng = Rng::new(plan.seed);
        let next_steps = plan.clients.iter().map(|tasks| tasks.iter().map(|_| Arc::default()).collect()).collect();
        let mut world = Self {
            store,
            ledger,
            queue,
            links: Vec::new(),
            clients: Vec::new(),
            rng,
            mistakes,
            started: Instant::now(),
            serials: Arc::default(),
            next_steps,
            next_blow: 0,
            killed: Vec::new(),
            closed: Vec::new(),
        };
        for number in 0..plan.clients.len() {
            let (link, client) = world.client(number, (plan.weather, plan.trouble));
            world.links.push(link);
            world.clients.push(client);
        }
        world
    }

    /// A client over a link of its own.
    fn client(&mut self, number: usize, weather: (Weather, u64)) -> (Arc<Link>, Client) {
        let observer = Arc::clone(&self.ledger) as Arc<dyn Observer>;
        let link = Arc::new(Link::new(number, observer, self.rng.fork(), weather, self.ledger.storm_until()));
        let end = Arc::new(QueueEnd::new(&link, self.store.another_client()));
        let backend = Backend::new(Arc::new(self.store.locks())).with_queue(end.clone()).with_queue_admin(end);
        let none = DriftBound::new(0.0, Duration::ZERO).unwrap();
        let drift = if self.mistakes.no_drift { none } else { DriftBound::DEFAULT };
        let client = Client::builder(backend).op_timeout(millis(300)).drift(drift).build().unwrap();
        (link, client)
    }

    /// Goes on until the runtime ends.
    async fn pass_and_wait(&mut self, plan: &QueuePlan) {
        self.pass(plan).await;
        pending().await
    }

    async fn pass_to_the_end(mut self, plan: &QueuePlan) {
        if self.pass(plan).await {
            self.end(plan).await;
        }
    }

    /// Goes on with what is left of the tasks and of the blows. Returns whether that came to its end.
    async fn pass(&mut self, plan: &QueuePlan) -> bool {
        let (tasks, alive) = self.spawn(plan);
        self.torment(plan, &alive).await;
        let all_done = async {
            for task in tasks {
                if task.await.is_err_and(|error| error.is_panic()) {
                    self.ledger.wrong("a task panicked".into());
                }
            }
        };
        let limit = self.ledger.storm_until().saturating_duration_since(Instant::now()) + PATIENCE;
        let done = timeout(limit, all_done).await.is_ok();
        if !done {
            self.ledger.wrong("somebody waits for ever".into());
        }
        done
    }

    fn spawn(&self, plan: &QueuePlan) -> (Vec<JoinHandle<()>>, Vec<Vec<AbortHandle>>) {
        let (mut tasks, mut alive) = (Vec::new(), Vec::new());
        for (number, all_steps) in plan.clients.iter().enumerate() {
            let life = || Life {
                number,
                calm: plan.is_calm(),
                lease: plan.lease,
                ledger: Arc::clone(&self.ledger),
                client: self.clients[number].clone(),
                link: Arc::clone(&self.links[number]),
                serials: Arc::clone(&self.serials),
            };
            let killed = self.killed.contains(&number);
            let living = all_steps.iter().zip(&self.next_steps[number]).filter(|_| !killed);
            let started: Vec<_> =
                living.map(|(steps, next)| tokio::spawn(life().live(steps.clone(), Arc::clone(next)))).collect();
            alive.push(started.iter().map(JoinHandle::abort_handle).collect::<Vec<_>>());
            tasks.extend(started);
        }
        (tasks, alive)
    }

    async fn torment(&mut self, plan: &QueuePlan, alive: &[Vec<AbortHandle>]) {
        while let Some(blow) = plan.blows.get(self.next_blow) {
            sleep_until(self.started + millis(blow.at)).await;
            self.next_blow += 1;
            self.ledger.note(|| format!("--- {:?}", blow.what));
            self.ledger.count(|tally| tally.blows += 1);
            match blow.what {
                Fault::Silence(client, span) => self.links[client].silence(millis(span)),
                Fault::Deaf(client, span) => self.links[client].deafen(millis(span)),
                Fault::Paused(client, span) => self.links[client].pause(millis(span)),
                Fault::Stall(span) => advance(millis(span)).await,
                Fault::Killed(client) => {
                    self.links[client].kill();
                    alive[client].iter().for_each(AbortHandle::abort);
                    self.killed.push(client);
                }
                Fault::Forgets(_) | Fault::Flushed => {}
                Fault::Closed(client) => {
                    self.closed.push(client);
                    let client = self.clients[client].clone();
                    tokio::spawn(async move { client.close(millis(500)).await });
                }
            }
            self.ledger.look();
        }
    }

    /// Everything is delivered in the end, and nothing is left behind.
    async fn end(mut self, plan: &QueuePlan) {
        let gone = [self.killed.as_slice(), &self.closed].concat();
        sleep_until(self.ledger.storm_until()).await;
        for link in &self.links {
            sleep_until(link.sound_from()).await; // a blow that came late reaches further
        }
        let survivor = self.clients.iter().enumerate().find(|(number, _)| !gone.contains(number));
        let survivor = survivor.map(|(_, client)| client.clone()).filter(|_| !plan.is_calm());
        if let Some(survivor) = &survivor {
            self.drain(survivor).await;
        }
        for (number, client) in self.clients.iter().enumerate().filter(|(number, _)| !gone.contains(number)) {
            if let Err(error) = client.close(Duration::from_secs(20)).await {
                self.ledger.wrong(format!("client {number} was not closed: {error}"));
            }
        }
        if plan.is_calm() {
            self.ledger.nothing_is_in_hand();
        }
        sleep(REST).await;
        let (_link, last) = self.client(plan.clients.len(), (Weather::Calm, 0));
        self.drain(&last).await;
        self.ledger.nothing_is_lost();
        let closed = last.close(Duration::from_secs(20)).await;
        if let Err(error) = closed {
            self.ledger.wrong(format!("the last client was not closed: {error}"));
        }
        let Self { store, ledger, links, clients, .. } = self;
        drop((clients, links, last, survivor));
        sleep(REST).await;
        let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks();
        let killed = plan.blows.iter().any(|blow| matches!(blow.what, Fault::Killed(_)));
        if !killed && tasks > 0 {
            ledger.wrong(format!("{tasks} tasks go on though all clients are gone"));
        }
        drop(store);
    }

    /// Receives until nothing comes any more.
    async fn drain(&self, client: &Client) {
        let queue = client.queue_of_bytes(self.queue.as_bytes()).unwrap().lease(Duration::from_secs(5));
        for id in self.ledger.recurring() {
            let _ = self.store.cancel(&self.queue, &id).await; // what is in flight ends below
        }
        loop {
            let waits = self.ledger.receives();
            let received = queue.receive_within(REST).await;
            drop(waits);
            match received {
                Ok(None) => return,
                Ok(Some(delivery)) => {
                    let delivery = Arc::new(delivery);
                    self.ledger.received(self.links.len(), &delivery);
                    let delivery = Arc::into_inner(delivery).expect("the ledger looks, and does not keep");
                    let settled = match delivery.occurrence() {
                        Some(_) => delivery.end_recurrence().await,
                        None => delivery.ack().await,
                    };
                    if let Err(error) = settled {
                        self.ledger.wrong(format!("settling in the end: {error}"));
                    }
                }
                Err(error) => return self.ledger.wrong(format!("receiving in the end: {error}")),
            }
        }
    }
}
