//! Plays one schedule of queues.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::driver::Backend;
use tenure_core::queue::QueueName;
use tenure_core::{Client, DriftBound};
use tenure_memory::MemoryDriver;
use tokio::task::AbortHandle;
use tokio::time::{Instant, advance, sleep, sleep_until, timeout};

use super::end::QueueEnd;
use super::ledger::Ledger;
use super::live::{Life, QUEUE};
use super::plan::QueuePlan;
use super::store::{Flaw, QueueStore};
use crate::link::{Link, Observer};
use crate::live::millis;
use crate::plan::{Fault, Weather};
use crate::play::{Played, in_virtual_time};
use crate::rng::Rng;

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
}

struct World {
    store: QueueStore,
    ledger: Arc<Ledger>,
    queue: QueueName,
    links: Vec<Arc<Link>>,
    clients: Vec<Client>,
    rng: Rng,
    mistakes: QueueMistakes,
}

pub(crate) fn play(plan: &QueuePlan, mistakes: QueueMistakes, traces: bool) -> Played {
    in_virtual_time(plan.seed, async {
        let world = World::new(plan, mistakes, traces);
        let ledger = Arc::clone(&world.ledger);
        tokio::select! {
            biased;
            () = ledger.wronged() => {}
            () = world.pass(plan) => {}
        }
        ledger.outcome()
    })
}

impl World {
    fn new(plan: &QueuePlan, mistakes: QueueMistakes, traces: bool) -> Self {
        let (memory, queue) = (MemoryDriver::new(), QueueName::new(QUEUE).unwrap());
        let ledger = Ledger::new(plan, &memory, &queue, traces);
        let store = QueueStore::new(memory, &ledger, plan.fast, mistakes.flaw);
        let rng = Rng::new(plan.seed);
        let mut world = Self { store, ledger, queue, links: Vec::new(), clients: Vec::new(), rng, mistakes };
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
        let end = QueueEnd::new(&link, self.store.another_client());
        let backend = Backend::new(Arc::new(self.store.memory().another_client())).with_queue(Arc::new(end));
        let none = DriftBound::new(0.0, Duration::ZERO).unwrap();
        let drift = if self.mistakes.no_drift { none } else { DriftBound::DEFAULT };
        let client = Client::builder(backend).op_timeout(millis(300)).drift(drift).build().unwrap();
        (link, client)
    }

    async fn pass(self, plan: &QueuePlan) {
        let (mut tasks, mut alive, serials) = (Vec::new(), Vec::new(), Arc::default());
        for (number, steps) in plan.clients.iter().enumerate() {
            let life = || Life {
                number,
                calm: plan.is_calm(),
                lease: plan.lease,
                ledger: Arc::clone(&self.ledger),
                client: self.clients[number].clone(),
                link: Arc::clone(&self.links[number]),
                serials: Arc::clone(&serials),
            };
            let started: Vec<_> = steps.iter().map(|steps| tokio::spawn(life().live(steps.clone()))).collect();
            alive.push(started.iter().map(tokio::task::JoinHandle::abort_handle).collect::<Vec<_>>());
            tasks.extend(started);
        }
        let gone = self.torment(plan, &alive).await;
        let all_done = async {
            for task in tasks {
                if task.await.is_err_and(|error| error.is_panic()) {
                    self.ledger.wrong("a task panicked".into());
                }
            }
        };
        let limit = self.ledger.storm_until().saturating_duration_since(Instant::now()) + PATIENCE;
        if timeout(limit, all_done).await.is_err() {
            return self.ledger.wrong("somebody waits for ever".into());
        }
        self.end(plan, &gone).await;
    }

    /// Returns which clients are gone.
    async fn torment(&self, plan: &QueuePlan, alive: &[Vec<AbortHandle>]) -> Vec<usize> {
        let (started, mut gone) = (Instant::now(), Vec::new());
        for blow in &plan.blows {
            sleep_until(started + millis(blow.at)).await;
            self.ledger.note(|| format!("--- {:?}", blow.what));
            self.ledger.count(|tally| tally.blows += 1);
            match blow.what {
                Fault::Silence(client, span) => {
                    let link = Arc::clone(&self.links[client]);
                    tokio::spawn(async move { link.silence(millis(span)).await });
                }
                Fault::Deaf(client, span) => self.links[client].deafen(millis(span)),
                Fault::Paused(client, span) => self.links[client].pause(millis(span)),
                Fault::Stall(span) => advance(millis(span)).await,
                Fault::Killed(client) => {
                    self.links[client].kill();
                    alive[client].iter().for_each(AbortHandle::abort);
                    gone.push(client);
                }
                Fault::Forgets(_) => {}
                Fault::Closed(client) => {
                    gone.push(client);
                    let client = self.clients[client].clone();
                    tokio::spawn(async move { client.close(millis(500)).await });
                }
            }
            self.ledger.look();
        }
        gone
    }

    /// Everything is delivered in the end, and nothing is left behind.
    async fn end(mut self, plan: &QueuePlan, gone: &[usize]) {
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
                    if let Err(error) = delivery.ack().await {
                        self.ledger.wrong(format!("settling in the end: {error}"));
                    }
                }
                Err(error) => return self.ledger.wrong(format!("receiving in the end: {error}")),
            }
        }
    }
}
