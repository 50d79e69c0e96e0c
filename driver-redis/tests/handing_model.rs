//! Random scripts of three clients, of which one does not hear, against a model that is too simple to be wrong: one
//! holder and one list of waiters. Every answer is compared, and after every step the server's own state.

#![allow(clippy::print_stdout, reason = "the steps are shown when the test fails")]

mod common;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use common::wire::Wire;
use common::{attempt, entry, hold, name, server, unending};
use tenure_core::driver::{
    AcquireRequest, Acquisition, Begun, DistributedLock, Exited, ForceReleased, Handing, Queueing, ReentrantLock,
    Released,
};
use tenure_core::{OwnerId, OwnerToken};
use tenure_redis::RedisSettings;
use tenure_redis_support::{ClientId, Keyspace, RedisLocks, WakeLink};
use tenure_testkit::{RedisServer, RespClient};

const SCRIPTS: u64 = 400;
const STEPS: u64 = 20;
const CLIENTS: usize = 3;
/// The client that does not hear what it is told.
const DEAF: usize = 2;
const ASKERS: usize = 7;
/// A script that took longer is not judged: a waiter that was told has two seconds to ask.
const IN_TIME: Duration = Duration::from_secs(1);

/// SplitMix64.
struct Rng(u64);

impl Rng {
    fn below(&mut self, end: u64) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % end) as usize
    }
}

/// How somebody wants the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    /// It takes it without asking when its turn comes.
    Direct,
    /// It asks when its turn comes.
    Asked,
    /// Re-entrantly, for one of two owners.
    For(usize),
}

/// Somebody who wants the lock, with a token of its own.
#[derive(Clone, Debug)]
struct Asker {
    client: usize,
    manner: Manner,
    request: AcquireRequest,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Ask(usize),
    Release(usize),
    Abandon(usize),
    Force,
    Expire,
}

/// What a step came to, as the caller sees it.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    Granted(Begun, u32),
    Busy(Option<u32>),
    Freed,
    Inside(u32),
    NotHeld,
    Nothing,
}

struct Holder {
    owner: Option<usize>,
    askers: Vec<usize>,
    /// It was given the lock, and has not asked since.
    handed: bool,
}

#[derive(Default)]
struct Model {
    holder: Option<Holder>,
    /// The waiters, and whether each was told that it is its turn.
    line: Vec<(usize, bool)>,
}

impl Model {
    fn step(&mut self, step: Step, askers: &[Asker]) -> Said {
        match step {
            Step::Ask(who) => self.ask(who, askers),
            Step::Release(who) => match self.leave(who) {
                None => Said::NotHeld,
                Some(0) => {
                    self.pass_on(askers);
                    Said::Freed
                }
                Some(depth) => Said::Inside(depth),
            },
            Step::Abandon(who) => {
                let was_first = self.line.first().is_some_and(|(first, _)| *first == who);
                let freed = self.leave(who) == Some(0);
                self.line.retain(|(waiter, _)| *waiter != who);
                if (freed || was_first) && self.holder.is_none() {
                    self.pass_on(askers);
                }
                Said::Nothing
            }
            Step::Force if self.holder.take().is_some() => {
                self.pass_on(askers);
                Said::Freed
            }
            Step::Force => Said::NotHeld,
            Step::Expire => {
                self.holder = None;
                Said::Nothing
            }
        }
    }

    fn ask(&mut self, who: usize, askers: &[Asker]) -> Said {
        let owner = owner_of(&askers[who]);
        if let Some(holder) = &mut self.holder {
            if holder.askers.contains(&who) {
                let begun = if std::mem::take(&mut holder.handed) { Begun::Now } else { Begun::Earlier };
                return Said::Granted(begun, holder.askers.len() as u32);
            }
            if owner.is_some() && holder.owner == owner {
                holder.askers.push(who);
                let depth = holder.askers.len() as u32;
                self.line.retain(|(waiter, _)| *waiter != who);
                return Said::Granted(Begun::Now, depth);
            }
        } else {
            while let Some(&(first, told)) = self.line.first()
                && first != who
                && !told
                && !self.tell(first, askers)
            {
                self.line.remove(0);
            }
            if self.holder.is_none() && self.line.first().is_none_or(|(first, _)| *first == who) {
                self.line.retain(|(waiter, _)| *waiter != who);
                self.holder = Some(Holder { owner, askers: vec![who], handed: false });
                return Said::Granted(Begun::Now, 1);
            }
        }
        if !self.line.iter().any(|(waiter, _)| *waiter == who) {
            self.line.push((who, false));
        }
        Said::Busy(self.line.iter().position(|(waiter, _)| *waiter == who).map(|place| place as u32))
    }

    /// How many entries remain; `None` when it has none.
    fn leave(&mut self, who: usize) -> Option<u32> {
        let holder = self.holder.as_mut().filter(|holder| holder.askers.contains(&who))?;
        holder.askers.retain(|asker| *asker != who);
        let rest = holder.askers.len() as u32;
        if rest == 0 {
            self.holder = None;
        }
        Some(rest)
    }

    fn pass_on(&mut self, askers: &[Asker]) {
        while let Some(&(first, _)) = self.line.first()
            && !self.tell(first, askers)
        {
            self.line.remove(0);
        }
    }

    /// Gives the first waiter its turn; whether it heard.
    fn tell(&mut self, first: usize, askers: &[Asker]) -> bool {
        if askers[first].client == DEAF {
            return false;
        }
        if askers[first].manner == Manner::Direct {
            self.line.remove(0);
            self.holder = Some(Holder { owner: None, askers: vec![first], handed: true });
        } else {
            self.line[0].1 = true;
        }
        true
    }
}

fn owner_of(asker: &Asker) -> Option<usize> {
    if let Manner::For(owner) = asker.manner { Some(owner) } else { None }
}

/// The server and its three clients.
struct Real {
    server: RespClient,
    clients: Vec<RedisLocks<Wire>>,
    owners: [OwnerId; 2],
    _ears: Vec<RespClient>,
    last_fence: i64,
}

impl Real {
    async fn at(server: &RedisServer) -> Self {
        let (mut clients, mut ears) = (Vec::new(), Vec::new());
        for client in 0..CLIENTS {
            let settings = RedisSettings::default().functions(false);
            let keys = Keyspace::of(&settings, ClientId::random());
            if client != DEAF {
                let mut ear = server.connect().unwrap();
                ear.call(&["SUBSCRIBE", &keys.wake_channel()]).unwrap();
                ears.push(ear);
            }
            clients.push(RedisLocks::checked(Wire::to(server), keys, settings, WakeLink::default()).await.unwrap());
        }
        let owners = [OwnerId::new(), OwnerId::new()];
        Self { server: server.connect().unwrap(), clients, owners, _ears: ears, last_fence: 0 }
    }

    async fn step(&mut self, step: Step, askers: &[Asker]) -> Said {
        match step {
            Step::Ask(who) => {
                let Asker { client, request, .. } = &askers[who];
                let answer = match owner_of(&askers[who]) {
                    None => self.clients[*client].acquire(request).await,
                    Some(owner) => self.clients[*client].enter(&self.owners[owner], request).await,
                };
                match answer.unwrap() {
                    Acquisition::Granted(grant) => Said::Granted(grant.begun, grant.depth),
                    Acquisition::Busy(busy) => Said::Busy(busy.position),
                }
            }
            Step::Release(who) => {
                let Asker { client, request, .. } = &askers[who];
                match owner_of(&askers[who]) {
                    None => match self.clients[*client].release(&hold(request)).await.unwrap() {
                        Released::Released => Said::Freed,
                        Released::NotHeld => Said::NotHeld,
                    },
                    Some(owner) => {
                        match self.clients[*client].exit(&entry(&self.owners[owner], request)).await.unwrap() {
                            Exited::Released => Said::Freed,
                            Exited::Inside { depth } => Said::Inside(depth),
                            Exited::NotHeld => Said::NotHeld,
                        }
                    }
                }
            }
            Step::Abandon(who) => {
                let Asker { client, request, .. } = &askers[who];
                let client = &self.clients[*client];
                match owner_of(&askers[who]) {
                    None => DistributedLock::abandon(client, &hold(request)).await.unwrap(),
                    Some(owner) => {
                        let entry = entry(&self.owners[owner], request);
                        ReentrantLock::abandon(client, &entry).await.unwrap();
                    }
                }
                Said::Nothing
            }
            Step::Force => match self.clients[0].force_release(&name("m"), None).await.unwrap() {
                ForceReleased::Released => Said::Freed,
                ForceReleased::NotHeld | ForceReleased::Changed => Said::NotHeld,
            },
            Step::Expire => {
                self.server.call(&["DEL", "tenure:m"]).unwrap();
                Said::Nothing
            }
        }
    }

    fn texts(&mut self, words: &[&str]) -> Vec<String> {
        self.server.call(words).unwrap().items().iter().map(tenure_testkit::Reply::text).collect()
    }

    /// Compares the state of the server with the model's.
    fn compare(&mut self, model: &Model, askers: &[Asker]) {
        let token = |who: &usize| askers[*who].request.token.expose().as_str().to_owned();
        let line = self.texts(&["ZRANGE", "{tenure:m}:q", "0", "-1"]);
        let line: Vec<String> = line.into_iter().map(|member| member[..22].to_owned()).collect();
        let held: BTreeSet<String> = match self.server.call(&["TYPE", "tenure:m"]).unwrap().text().as_str() {
            "none" => BTreeSet::new(),
            "hash" => {
                let fields = self.texts(&["HKEYS", "tenure:m"]);
                fields.iter().filter_map(|field| field.strip_prefix('#').map(str::to_owned)).collect()
            }
            _ => [self.server.call(&["GET", "tenure:m"]).unwrap().text()[..22].to_owned()].into(),
        };
        assert!(line.iter().all(|waiter| !held.contains(waiter)), "a token that holds is not in the queue");
        assert_eq!(line, model.line.iter().map(|(who, _)| token(who)).collect::<Vec<_>>(), "the queue");
        let holders = model.holder.iter().flat_map(|holder| &holder.askers);
        assert_eq!(held, holders.map(token).collect(), "the holders");
        let members: BTreeSet<String> = self.texts(&["ZRANGE", "{tenure:m}:q", "0", "-1"]).into_iter().collect();
        let present: BTreeSet<String> = self.texts(&["ZRANGE", "{tenure:m}:w", "0", "-1"]).into_iter().collect();
        assert_eq!(present, members, "who is present");
        let direct = self.texts(&["HKEYS", "{tenure:m}:a"]);
        let takes = |(who, _): &&(usize, bool)| askers[*who].manner == Manner::Direct;
        let expected: BTreeSet<String> = model.line.iter().filter(takes).map(|(who, _)| token(who)).collect();
        let direct: BTreeSet<String> = direct.into_iter().map(|member| member[..22].to_owned()).collect();
        assert_eq!(direct, expected, "who takes the lock without asking");
        assert_eq!(unending(&mut self.server), ["tenure:{fence}"; 1][..self.counters()], "keys without an end");
    }

    /// How many counters there are: none before the first grant of a script. It never falls.
    fn counters(&mut self) -> usize {
        let counter = self.server.call(&["GET", "tenure:{fence}"]).unwrap().int();
        let Some(fence) = counter else { return 0 };
        assert!(fence >= self.last_fence, "fences grow");
        self.last_fence = fence;
        1
    }
}

fn asker(rng: &mut Rng, client: usize) -> Asker {
    let manner = [Manner::Direct, Manner::Direct, Manner::Asked, Manner::For(0), Manner::For(1)][rng.below(5)];
    let accepts = if manner == Manner::Direct { Handing::Direct } else { Handing::Asked };
    // With presences that differ, no key may depend on the end of another.
    let presence = Duration::from_secs(if rng.below(2) == 0 { 10 } else { 30 });
    let queue = Queueing::Join { presence, accepts };
    Asker { client, manner, request: AcquireRequest { queue, ..attempt("m") } }
}

fn random_step(rng: &mut Rng) -> Step {
    let who = rng.below(ASKERS as u64);
    match rng.below(20) {
        0..=10 => Step::Ask(who),
        11..=14 => Step::Release(who),
        15..=16 => Step::Abandon(who),
        17 => Step::Force,
        _ => Step::Expire,
    }
}

#[tokio::test]
async fn no_script_leads_anywhere_else_than_the_model() {
    let server = server();
    let mut real = Real::at(&server).await;
    let mut judged = 0;
    for seed in 0..SCRIPTS {
        let mut rng = Rng(seed);
        let mut askers: Vec<Asker> = (0..ASKERS).map(|i| asker(&mut rng, i % CLIENTS)).collect();
        let mut model = Model::default();
        let (mut done, started) = (Vec::new(), Instant::now());
        real.server.call(&["FLUSHDB"]).unwrap();
        for _ in 0..STEPS {
            // Whoever holds the lock is about to release it more often than not: few scripts would get far otherwise.
            let step = match (rng.below(3), &model.holder) {
                (0, Some(holder)) => Step::Release(holder.askers[0]),
                _ => random_step(&mut rng),
            };
            done.push((step, format!("{:?}", step_of(step, &askers))));
            let said = real.step(step, &askers).await;
            if started.elapsed() > IN_TIME {
                break;
            }
            let expected = model.step(step, &askers);
            let shown = || format!("script {seed}: {done:#?}");
            assert_eq!(said, expected, "{}", shown());
            let judge = std::panic::AssertUnwindSafe(|| real.compare(&model, &askers));
            if let Err(panic) = std::panic::catch_unwind(judge) {
                println!("{}", shown());
                std::panic::resume_unwind(panic);
            }
            judged += 1;
            // A token that was given back is not used again.
            if let (Step::Release(who), Said::Freed | Said::Inside(_)) | (Step::Abandon(who), _) = (step, said) {
                askers[who].request.token = OwnerToken::random();
            }
        }
    }
    assert!(judged > SCRIPTS * STEPS / 2, "only {judged} steps were in time");
}

/// Who does it, for the report of a failure.
fn step_of(step: Step, askers: &[Asker]) -> Option<(usize, Manner)> {
    match step {
        Step::Ask(who) | Step::Release(who) | Step::Abandon(who) => Some((askers[who].client, askers[who].manner)),
        Step::Force | Step::Expire => None,
    }
}
