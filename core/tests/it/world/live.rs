//! What the tasks of a client do.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use tenure_core::{Client, Error, ErrorKind, Lock, OwnerId, Result};
use tokio::time::{sleep, timeout};

use crate::world::guard::Guard;
use crate::world::judge::{For, Judge};
use crate::world::plan::{End, NAMES, OWNERS, Patience, Step, Terms, Until, What, Work};
use crate::world::wire::{STANDS, Wire};

/// A task's view of the world.
pub(crate) struct Life {
    pub(crate) number: usize,
    pub(crate) calm: bool,
    pub(crate) judge: Arc<Judge>,
    pub(crate) clients: Arc<[Client]>,
    pub(crate) wire: Arc<Wire>,
}

type Taking<'a> = Pin<Box<dyn Future<Output = Result<Option<Guard>>> + Send + 'a>>;

pub(crate) fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// The owners are the same in every client.
fn owner(number: usize) -> OwnerId {
    OwnerId::from_bytes([u8::try_from(number % OWNERS).expect("few"); 16])
}

impl Life {
    /// Goes through the steps from the next one on, when the client is scheduled.
    pub(crate) async fn live(self, steps: Vec<Step>, next: Arc<AtomicUsize>) {
        let work = async {
            while let Some(step) = steps.get(next.fetch_add(1, Ordering::Relaxed)) {
                sleep(millis(step.pause)).await;
                self.step(step).await;
            }
        };
        self.wire.link().while_scheduled(work).await;
    }

    fn client(&self) -> &Client {
        &self.clients[self.number]
    }

    async fn step(&self, step: &Step) {
        if let What::Force(name) = step.what {
            let forced = self.client().lock(NAMES[name]).force_release().await;
            self.judge.note(|| format!("{}: forced {}: {forced:?}", self.number, NAMES[name]));
            return;
        }
        let Some(guard) = self.take(step).await else { return };
        let mut guards = vec![guard];
        if let What::Entry(name, number, depth) = step.what {
            for _ in 1..depth {
                guards.extend(self.enter_again(NAMES[name], owner(number), &guards[0]).await);
            }
        }
        self.work(step, &guards[0]).await;
        while let Some(guard) = guards.pop() {
            self.end(step, guard).await;
        }
        self.judge.look();
    }

    async fn take(&self, step: &Step) -> Option<Arc<Guard>> {
        let (waits_for, taking) = self.taking(step);
        let asking = self.judge.asks(waits_for);
        self.judge.note(|| format!("{}: {:?}, {:?}, until {:?}", self.number, step.what, step.patience, step.taking));
        let taken = until(step.taking, taking).await;
        let floors = *asking.floors();
        drop(asking);
        match taken {
            None => self.judge.count(|tally| tally.dropped += 1),
            Some(Ok(Some(guard))) => {
                let guard = Arc::new(guard);
                self.judge.granted(self.number, &guard, &floors);
                return Some(guard);
            }
            Some(Ok(None)) => {}
            Some(Err(error)) => {
                let in_time = error.kind() == ErrorKind::TimedOut && matches!(step.patience, Patience::Within(_));
                self.failed("taking", &error, in_time);
            }
        }
        self.judge.note(|| format!("{}: {:?} came to nothing", self.number, step.what));
        None
    }

    fn taking(&self, step: &Step) -> (For, Taking<'static>) {
        let patience = step.patience;
        let waits_for = |name| if patience == Patience::Try { For::Nothing } else { For::One(name) };
        match step.what {
            What::Plain(name, terms) => (waits_for(name), Box::pin(plain(self.lock(name, terms), patience))),
            What::Entry(name, number, _) => {
                let lock = self.client().reentrant(NAMES[name], &owner(number));
                let taking = async move {
                    Ok(match patience {
                        Patience::Try => lock.try_acquire().await?,
                        Patience::Within(most) => Some(lock.acquire_within(millis(most)).await?),
                        Patience::Unlimited => Some(lock.acquire().await?),
                    }
                    .map(Guard::Entry))
                };
                (waits_for(name), Box::pin(taking))
            }
            What::All | What::Force(_) => {
                let locks = self.client().lock_all(NAMES);
                let taking = async move {
                    Ok(match patience {
                        Patience::Try => locks.try_acquire().await?,
                        Patience::Within(most) => Some(locks.acquire_within(millis(most)).await?),
                        Patience::Unlimited => Some(locks.acquire().await?),
                    }
                    .map(Guard::All))
                };
                (For::All, Box::pin(taking))
            }
        }
    }

    fn lock(&self, name: usize, terms: Terms) -> Lock {
        let lock = self.client().lock(NAMES[name]);
        match terms {
            Terms::Renewed => lock,
            Terms::Fixed(ttl) => lock.fixed_ttl(millis(ttl)),
            Terms::MaxHold(most) => lock.max_hold(millis(most)),
            Terms::AtLeast(least) => lock.at_least(millis(least)).label(STANDS),
        }
    }

    /// Enters a lock that its owner has.
    async fn enter_again(&self, name: &str, owner: OwnerId, outer: &Arc<Guard>) -> Option<Arc<Guard>> {
        let lock = self.client().reentrant(name, &owner);
        let asking = self.judge.asks(For::Nothing);
        match lock.try_acquire().await {
            Ok(Some(guard)) => {
                let guard = Arc::new(Guard::Entry(guard));
                self.judge.granted(self.number, &guard, asking.floors());
                self.judge.same_hold(outer, &guard);
                Some(guard)
            }
            Ok(None) => {
                if self.calm && outer.is_held() {
                    self.judge.wrong("an owner was refused what it has".into());
                }
                None
            }
            Err(error) => {
                self.failed("entering again", &error, false);
                None
            }
        }
    }

    async fn work(&self, step: &Step, guard: &Arc<Guard>) {
        let work = async {
            match step.work {
                Work::For(time) => sleep(millis(time)).await,
                Work::UntilLost(most) => sleep(millis(most)).await,
                Work::Extending(time, ttl) => {
                    sleep(millis(time / 2)).await;
                    let extended = guard.extend(millis(ttl)).await;
                    self.judge.note(|| format!("{}: extended: {extended:?}", self.number));
                    self.judge.look();
                    sleep(millis(time / 2)).await;
                }
            }
        };
        let lost = tokio::select! {
            biased;
            () = guard.lost() => true,
            () = work => false,
        };
        if !lost {
            return;
        }
        self.judge.note(|| format!("{}: lost it", self.number));
        self.judge.count(|tally| tally.lost += 1);
        let ends = matches!(step.what, What::Plain(_, Terms::Fixed(_) | Terms::MaxHold(_)));
        if self.calm && !ends {
            self.judge.wrong(format!("client {} lost a lock in calm weather", self.number));
        }
        for pause in [0, 50] {
            sleep(millis(pause)).await;
            if guard.is_held() {
                self.judge.wrong(format!("client {} holds what it had lost", self.number));
            }
        }
    }

    async fn end(&self, step: &Step, guard: Arc<Guard>) {
        let held = guard.is_held();
        self.judge.note(|| format!("{}: {:?}, held: {held}", self.number, step.end));
        let guard = Arc::into_inner(guard).expect("the judge looks, and does not keep");
        match (step.end, guard) {
            (End::Detach(to), Guard::Plain(guard)) => match guard.detach().await {
                Ok(hold) => self.adopt(to, step, hold).await,
                Err(error) => self.failed("detaching", &error, !held || self.lapses(step)),
            },
            (End::Drop | End::Detach(_), guard) => drop(guard),
            (End::Release(limit), guard) => match until(limit, guard.release()).await {
                Some(Ok(())) if !held => self.judge.wrong("a lost hold was released".into()),
                Some(Ok(())) | None => {}
                Some(Err(error)) => self.failed("releasing", &error, !held || self.lapses(step)),
            },
        }
    }

    /// Whether the hold may end while it is given back.
    fn lapses(&self, step: &Step) -> bool {
        matches!(step.what, What::Plain(_, Terms::Fixed(_) | Terms::MaxHold(_)))
    }

    async fn adopt(&self, to: usize, step: &Step, hold: tenure_core::Detached) {
        match self.clients[to].adopt(&hold.name, hold.token, hold.fence).await {
            Ok(guard) => {
                if guard.fence() != hold.fence {
                    self.judge.wrong("an adopted hold has another fence".into());
                }
                let guard = Arc::new(Guard::Plain(guard));
                self.judge.follow(to, &guard);
                sleep(millis(3)).await;
                drop(guard);
            }
            Err(error) => self.failed("adopting", &error, self.lapses(step)),
        }
    }

    fn failed(&self, what: &str, error: &Error, expected: bool) {
        self.judge.note(|| format!("{}: {what} failed: {error}", self.number));
        self.judge.count(|tally| tally.failed += 1);
        let passing = matches!(
            error.kind(),
            ErrorKind::Unavailable
                | ErrorKind::Indeterminate
                | ErrorKind::TimedOut
                | ErrorKind::Lost
                | ErrorKind::Closed
        );
        if !expected && (self.calm || !passing) {
            self.judge.wrong(format!("client {}, {what}: {error}", self.number));
        }
    }
}

async fn plain(lock: Lock, patience: Patience) -> Result<Option<Guard>> {
    Ok(match patience {
        Patience::Try => lock.try_acquire().await?,
        Patience::Within(most) => Some(lock.acquire_within(millis(most)).await?),
        Patience::Unlimited => Some(lock.acquire().await?),
    }
    .map(Guard::Plain))
}

/// Drops the future when its time has come.
pub(crate) async fn until<F: Future>(limit: Until, future: F) -> Option<F::Output> {
    match limit {
        Until::Done => Some(future.await),
        Until::Millis(most) => timeout(millis(most), future).await.ok(),
        Until::Polls(polls) => {
            let mut future = pin!(future);
            let mut left = polls;
            poll_fn(|cx| {
                left = match left.checked_sub(1) {
                    Some(left) => left,
                    None => return Poll::Ready(None),
                };
                match future.as_mut().poll(cx) {
                    Poll::Ready(output) => Poll::Ready(Some(output)),
                    Poll::Pending if left == 0 => Poll::Ready(None),
                    Poll::Pending => Poll::Pending,
                }
            })
            .await
        }
    }
}
