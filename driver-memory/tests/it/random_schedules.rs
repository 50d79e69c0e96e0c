//! Random schedules against a model that is too simple to be wrong: one list of holders, one list of waiters, times in
//! milliseconds. Every answer of the driver is compared with the model's.

#![allow(clippy::print_stdout, reason = "the schedule is shown when a test fails")]

use std::time::Duration;

use tenure_core::driver::{
    AcquireRequest, Acquisition, Begun, Busy, DistributedLock, Exited, ForceReleased, Handing, Hold, Queueing,
    ReentrantEntry, ReentrantLock, Released, Renewed, Ttl, Watch,
};
use tenure_core::{ErrorKind, LockName, OwnerId, OwnerToken};
use tenure_memory::{MemoryDriver, Residue};
use tokio::time::advance;

const CAP: usize = 3;
const DEPTH: usize = 3;
const PRESENCE: u64 = 5_000;
const CLAIM: u64 = 2_000;
const GRAVE: u64 = 60_000;

/// What a driver may say to an acquire, in comparable form.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    Granted { begun: Begun, depth: usize, ttl: u64 },
    Busy { position: Option<usize>, recheck: Option<u64> },
    Failed(ErrorKind),
}

/// Owner (`None` for a plain lock), entries with the ttl that each was told, end of the lease.
type Lease = (Option<usize>, Vec<(usize, u64)>, u64);

#[derive(Default)]
struct Model {
    now: u64,
    holder: Option<Lease>,
    line: Vec<(usize, u64)>,
    graves: Vec<(usize, u64)>,
}

impl Model {
    fn settle(&mut self) {
        let now = self.now;
        self.holder.take_if(|(.., until)| *until <= now);
        self.line.retain(|(_, until)| *until > now);
        self.graves.retain(|(_, until)| *until > now);
    }

    fn call_head(&mut self) {
        if let (None, Some((_, until))) = (&self.holder, self.line.first_mut()) {
            *until = (*until).min(self.now + CLAIM);
        }
    }

    fn acquire(&mut self, who: Option<usize>, token: usize, ttl: u64, joins: bool) -> Said {
        self.settle();
        if self.graves.iter().any(|(dead, _)| *dead == token) {
            return Said::Failed(ErrorKind::NotHeld);
        }
        if let Some((owner, entries, until)) = &mut self.holder {
            let reported = entries.iter().find(|(entry, _)| *entry == token);
            if let (true, Some((_, ttl))) = (*owner == who, reported) {
                return Said::Granted { begun: Begun::Earlier, depth: entries.len(), ttl: *ttl };
            }
            if who.is_some() && *owner == who {
                if entries.len() == DEPTH {
                    return Said::Failed(ErrorKind::LimitReached);
                }
                *until = (*until).max(self.now + ttl);
                entries.push((token, *until - self.now));
                self.line.retain(|(waiter, _)| *waiter != token);
                return Said::Granted { begun: Begun::Now, depth: entries.len(), ttl: *until - self.now };
            }
        } else if self.line.first().is_none_or(|(head, _)| *head == token) {
            self.line.retain(|(waiter, _)| *waiter != token);
            self.holder = Some((who, vec![(token, ttl)], self.now + ttl));
            return Said::Granted { begun: Begun::Now, depth: 1, ttl };
        }
        self.call_head();
        self.busy(token, joins)
    }

    fn busy(&mut self, token: usize, joins: bool) -> Said {
        let mut position = None;
        if joins {
            position = self.line.iter().position(|(waiter, _)| *waiter == token);
            if position.is_none() {
                if self.line.len() == CAP {
                    return Said::Failed(ErrorKind::LimitReached);
                }
                position = Some(self.line.len());
                self.line.push((token, 0));
            }
            self.line[position.unwrap()].1 = self.now + PRESENCE;
        }
        let recheck = match &self.holder {
            Some((.., until)) => (position.unwrap_or(0) == 0).then_some(*until - self.now),
            None => Some(self.line[0].1 - self.now),
        };
        Said::Busy { position, recheck }
    }

    fn exit(&mut self, who: Option<usize>, token: usize) -> Exited {
        self.settle();
        let Some((owner, entries, _)) = &mut self.holder else { return Exited::NotHeld };
        let before = entries.len();
        if *owner == who {
            entries.retain(|(entry, _)| *entry != token);
        }
        match entries.len() {
            left if left == before => Exited::NotHeld,
            0 => {
                self.holder = None;
                self.call_head();
                Exited::Released
            }
            left => Exited::Inside { depth: u32::try_from(left).unwrap() },
        }
    }

    fn abandon(&mut self, who: Option<usize>, token: usize) {
        let freed = self.exit(who, token) == Exited::Released;
        let was_head = self.line.first().is_some_and(|(head, _)| *head == token);
        self.line.retain(|(waiter, _)| *waiter != token);
        self.graves.retain(|(dead, _)| *dead != token);
        self.graves.push((token, self.now + GRAVE));
        if was_head && !freed {
            self.call_head();
        }
    }

    fn renew(&mut self, token: usize, ttl: u64) -> Renewed {
        self.settle();
        match &mut self.holder {
            Some((None, entries, until)) if entries[0].0 == token => {
                *until = (*until).max(self.now + ttl);
                Renewed::Extended { ttl: Duration::from_millis(*until - self.now) }
            }
            _ => Renewed::Lost,
        }
    }
}

struct World {
    driver: MemoryDriver,
    model: Model,
    name: LockName,
    owners: Vec<OwnerId>,
    tokens: Vec<OwnerToken>,
    /// Everybody listens, also for tokens that were given up.
    watches: Vec<Watch>,
    last_fence: u64,
}

impl World {
    async fn listen(&mut self, token: usize) {
        self.watches.push(self.driver.watch(&self.name, &self.tokens[token]).await.unwrap());
    }

    async fn step(&mut self, dice: &mut fastrand::Rng) -> String {
        // Half of the tokens are plain, the others belong to one of two owners.
        let token = usize::try_from(dice.u64(..10)).unwrap();
        let who = (token >= 5).then_some(token % 2);
        match dice.u64(..20) {
            0..=8 => self.acquire(who, token, 1_000 + dice.u64(..9) * 1_000, dice.u64(..3) > 0).await,
            9..=11 => self.exit(who, token).await,
            12 => self.abandon(who, token).await,
            13 => self.renew(token, 1_000 + dice.u64(..9) * 1_000).await,
            14 if dice.u64(..4) == 0 => self.force().await,
            15 => {
                self.tokens[token] = OwnerToken::random(); // a new attempt
                self.listen(token).await;
                self.model.forget(token);
                format!("{token} is new")
            }
            _ => {
                let time = dice.u64(..2_500);
                advance(Duration::from_millis(time)).await;
                self.model.now += time;
                format!("{time} ms pass")
            }
        }
    }

    async fn acquire(&mut self, who: Option<usize>, token: usize, ttl: u64, joins: bool) -> String {
        let expected = self.model.acquire(who, token, ttl, joins);
        let queue = if joins {
            Queueing::Join { presence: Duration::from_millis(PRESENCE), accepts: Handing::Asked }
        } else {
            Queueing::None
        };
        let request =
            AcquireRequest::new(self.name.clone(), self.tokens[token], Ttl::new(Duration::from_millis(ttl)).unwrap())
                .with_queue(queue);
        let answer = match who {
            None => self.driver.acquire(&request).await,
            Some(owner) => self.driver.enter(&self.owners[owner], &request).await,
        };
        let said = match answer {
            Ok(Acquisition::Granted(grant)) => {
                if grant.begun == Begun::Now && grant.depth == 1 {
                    assert!(grant.fence.get() > self.last_fence);
                    self.last_fence = grant.fence.get();
                }
                assert_eq!(grant.fence.get(), self.last_fence, "one hold, one fence");
                let ttl = u64::try_from(grant.ttl.as_millis()).unwrap();
                Said::Granted { begun: grant.begun, depth: grant.depth as usize, ttl }
            }
            Ok(Acquisition::Busy(Busy { position, recheck_after, .. })) => Said::Busy {
                position: position.map(|position| position as usize),
                recheck: recheck_after.map(|after| u64::try_from(after.as_millis()).unwrap()),
            },
            Err(error) => Said::Failed(error.kind()),
        };
        assert_eq!(said, expected);
        format!("{token} of {who:?} asks, joins: {joins}: {said:?}")
    }

    async fn exit(&mut self, who: Option<usize>, token: usize) -> String {
        let expected = self.model.exit(who, token);
        let (name, secret) = (self.name.clone(), self.tokens[token]);
        let said = match who {
            None => match self.driver.release(&Hold::new(name, secret)).await.unwrap() {
                Released::Released => Exited::Released,
                Released::NotHeld => Exited::NotHeld,
            },
            Some(owner) => self.driver.exit(&ReentrantEntry::new(name, self.owners[owner], secret)).await.unwrap(),
        };
        assert_eq!(said, expected);
        format!("{token} of {who:?} leaves: {said:?}")
    }

    async fn abandon(&mut self, who: Option<usize>, token: usize) -> String {
        self.model.abandon(who, token);
        let (name, secret) = (self.name.clone(), self.tokens[token]);
        match who {
            None => DistributedLock::abandon(&self.driver, &Hold::new(name, secret)).await.unwrap(),
            Some(owner) => {
                let hold = ReentrantEntry::new(name, self.owners[owner], secret);
                ReentrantLock::abandon(&self.driver, &hold).await.unwrap();
            }
        }
        format!("{token} of {who:?} is abandoned")
    }

    async fn renew(&mut self, token: usize, ttl: u64) -> String {
        let expected = self.model.renew(token, ttl);
        let hold = Hold::new(self.name.clone(), self.tokens[token]);
        let ttl = Ttl::new(Duration::from_millis(ttl)).unwrap();
        let said = DistributedLock::renew(&self.driver, ttl, &[hold]).await.remove(0).unwrap();
        assert_eq!(said, expected);
        format!("{token} renews: {said:?}")
    }

    async fn force(&mut self) -> String {
        self.model.settle();
        let expected = match self.model.holder.take() {
            Some(_) => ForceReleased::Released,
            None => ForceReleased::NotHeld,
        };
        if expected == ForceReleased::Released {
            self.model.call_head();
        }
        assert_eq!(self.driver.force_release(&self.name, None).await.unwrap(), expected);
        format!("forced: {expected:?}")
    }

    async fn compare(&mut self) {
        self.model.settle();
        let seen = self.driver.inspect(&self.name).await.unwrap();
        assert_eq!(seen.waiters as usize, self.model.line.len());
        let held = seen.holder.map(|holder| (holder.depth as usize, holder.remaining.unwrap()));
        let left = |until| Duration::from_millis(until - self.model.now);
        assert_eq!(held, self.model.holder.as_ref().map(|(_, entries, until)| (entries.len(), left(*until))));
    }
}

impl Model {
    /// The token's number stands for another token from now on; whatever the old one has stays under a dead number.
    fn forget(&mut self, token: usize) {
        let dead = usize::MAX - usize::try_from(self.now).unwrap() * 10 - token;
        let holder = self.holder.iter_mut().flat_map(|(_, entries, _)| entries).map(|(entry, _)| entry);
        let line = self.line.iter_mut().map(|(waiter, _)| waiter);
        let graves = self.graves.iter_mut().map(|(grave, _)| grave);
        holder.chain(line).chain(graves).filter(|known| **known == token).for_each(|known| *known = dead);
    }
}

async fn schedule(seed: u64) {
    let mut dice = fastrand::Rng::with_seed(seed);
    let mut world = World {
        driver: MemoryDriver::builder().max_waiters(3).max_depth(3).build().unwrap(),
        model: Model::default(),
        name: LockName::new("name").unwrap(),
        owners: vec![OwnerId::new(), OwnerId::new()],
        tokens: (0..10).map(|_| OwnerToken::random()).collect(),
        watches: Vec::new(),
        last_fence: 0,
    };
    for token in 0..10 {
        world.listen(token).await;
    }
    for step in 0..300 {
        let what = world.step(&mut dice).await;
        println!("seed {seed}, step {step}: {what}"); // shown when the test fails
        world.compare().await;
    }
    advance(Duration::from_millis(GRAVE)).await;
    world.watches.clear();
    assert_eq!(world.driver.residue(), Residue::default());
}

#[tokio::test(start_paused = true)]
async fn the_driver_and_the_model_agree() {
    for seed in 0..300 {
        schedule(seed).await;
    }
}
