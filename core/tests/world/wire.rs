//! A client's way to the store: every frame is on its own, and may be late, lost, repeated, or go unanswered.

use std::collections::HashSet;
use std::future::{Future, pending};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tenure_core::driver::{AcquireRequest, Acquisition, Hold, Signal, WakeHandle, Watch};
use tenure_core::{Error, ErrorKind, LockName, OwnerId, OwnerToken, Result};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, sleep_until};

use crate::judge::Judge;
use crate::plan::{Plan, Weather};
use crate::rng::Rng;
use crate::store::Store;

/// The label of locks that are left standing when they are given back: they may be renewed for that.
pub(crate) const STANDS: &str = "stands";

#[derive(Debug)]
pub(crate) struct Wire {
    client: usize,
    store: Store,
    judge: Arc<Judge>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    rng: Rng,
    /// How many frames in a thousand meet each fault, which, and until when.
    trouble: u64,
    weather: Weather,
    storm_until: Instant,
    silent_until: Instant,
    deaf_until: Instant,
    paused_until: Instant,
    dead: bool,
    /// Tokens that were given back, as far as this link knows: a request to do so has left.
    given_back: HashSet<OwnerToken>,
    standing: HashSet<OwnerToken>,
    /// Tokens of which a request to take a lock was not answered, until they are abandoned.
    unanswered: HashSet<OwnerToken>,
    /// Who waits to be woken.
    ears: Vec<(OwnerToken, WakeHandle)>,
}

/// What a frame meets on its way.
struct Journey {
    there: Duration,
    back: Duration,
    lost: bool,
    unheard: bool,
    repeat: Option<Duration>,
}

impl Wire {
    pub(crate) fn new(client: usize, store: Store, judge: &Arc<Judge>, rng: Rng, plan: &Plan) -> Arc<Self> {
        let now = Instant::now();
        let state = Mutex::new(State {
            rng,
            trouble: plan.trouble,
            weather: plan.weather,
            storm_until: judge.storm_until(),
            silent_until: now,
            deaf_until: now,
            paused_until: now,
            dead: false,
            given_back: HashSet::new(),
            standing: HashSet::new(),
            unanswered: HashSet::new(),
            ears: Vec::new(),
        });
        Arc::new(Self { client, store, judge: Arc::clone(judge), state })
    }

    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    pub(crate) fn judge(&self) -> &Arc<Judge> {
        &self.judge
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Loses everything for a while; at its end waiters are woken, as after a reconnect.
    pub(crate) async fn silence(&self, span: Duration) {
        let until = Instant::now() + span;
        self.state().silent_until = until;
        sleep_until(until).await;
        self.state().ears.iter().for_each(|(_, ear)| ear.wake());
    }

    /// Loses wake-ups for a while.
    pub(crate) fn deafen(&self, span: Duration) {
        self.state().deaf_until = Instant::now() + span;
    }

    /// The client is not scheduled for a while.
    pub(crate) fn pause(&self, span: Duration) {
        self.state().paused_until = Instant::now() + span;
    }

    /// The client's process is gone. What it sent may still arrive.
    pub(crate) fn kill(&self) {
        self.state().dead = true;
    }

    pub(crate) fn paused_until(&self) -> Instant {
        self.state().paused_until
    }

    /// Waits until the client is scheduled; for ever if it is dead.
    async fn scheduled(&self) {
        loop {
            let (dead, paused_until) = {
                let state = self.state();
                (state.dead, state.paused_until)
            };
            match paused_until > Instant::now() {
                _ if dead => pending().await,
                true => sleep_until(paused_until).await,
                false => return,
            }
        }
    }

    /// Carries a request. What was sent arrives even if nobody waits for the answer any more.
    pub(crate) async fn carry<T: Send + 'static, F>(
        &self,
        what: &'static str,
        call: impl Fn(Store) -> F + Send + Sync + 'static,
    ) -> Result<T>
    where
        F: Future<Output = Result<T>> + Send + 'static,
    {
        self.scheduled().await;
        let Journey { there, back, lost, unheard, repeat } = self.journey()?;
        let client = self.client;
        if lost {
            self.judge.note(|| format!("{client}: {what} is lost"));
            return pending().await;
        }
        let (store, judge, (tell, told)) = (self.store.clone(), Arc::clone(&self.judge), oneshot::channel());
        tokio::spawn(async move {
            pass(there).await;
            let mut answer = call(store.clone()).await;
            judge.note(|| {
                format!("{client}: {what} is carried out{}", if unheard { ", its answer is lost" } else { "" })
            });
            judge.look();
            // It is repeated for want of an answer, and the last one is heard: what was answered is not on its way any more.
            if let Some(after) = repeat {
                pass(after).await;
                answer = call(store).await;
                judge.note(|| format!("{client}: {what} is repeated"));
                judge.look();
            }
            pass(back).await;
            let _ = tell.send(answer);
        });
        let answer = told.await;
        self.scheduled().await;
        match answer {
            Ok(answer) if !unheard => answer,
            _ => Err(Error::new(ErrorKind::Indeterminate, "the answer was lost")),
        }
    }

    fn journey(&self) -> Result<Journey> {
        let now = Instant::now();
        let mut state = self.state();
        let mut trouble = if now < state.storm_until { state.trouble } else { 0 };
        if state.rng.in_thousand(trouble / 2) {
            return Err(Error::new(ErrorKind::Unavailable, "refused"));
        }
        if state.weather == Weather::Breeze {
            trouble = 0;
        }
        let silent = state.silent_until > now;
        let rng = &mut state.rng;
        Ok(Journey {
            there: late(rng, trouble),
            back: late(rng, trouble),
            lost: silent || rng.in_thousand(trouble),
            unheard: rng.in_thousand(trouble),
            repeat: rng.in_thousand(trouble).then(|| rng.millis(1_500)),
        })
    }

    /// What becomes of a wake-up: how late it is, if it is not lost.
    fn signal(&self) -> Option<Duration> {
        let now = Instant::now();
        let mut state = self.state();
        let stormy = now < state.storm_until && state.weather == Weather::Storm;
        let trouble = if stormy { state.trouble } else { 0 };
        let lost = state.dead || state.silent_until > now || state.deaf_until > now || state.rng.in_thousand(trouble);
        let late = late(&mut state.rng, trouble);
        (!lost).then_some(late)
    }

    /// Notes that a request leaves which gives a token back.
    pub(crate) fn gives_back(&self, token: OwnerToken) {
        self.state().given_back.insert(token);
    }

    /// What was given back is neither asked for again nor renewed, unless it is to be left standing.
    pub(crate) fn uses(&self, token: &OwnerToken, what: &str) {
        let used = {
            let state = self.state();
            state.given_back.contains(token) && !state.standing.contains(token)
        };
        if used {
            self.judge.wrong(format!("client {} sent {what} for a token that it had given back", self.client));
        }
    }

    pub(crate) async fn ask(&self, owner: Option<OwnerId>, request: &AcquireRequest) -> Result<Acquisition> {
        self.uses(&request.token, "a request");
        if request.label.as_ref().is_some_and(|label| label.as_str() == STANDS) {
            self.state().standing.insert(request.token);
        }
        let (token, request, judge) = (request.token, request.clone(), Arc::clone(&self.judge));
        let mut asked = Asked { wire: self, token, answered: false };
        let answer = self.carry("acquire", move |store| {
            let (request, judge) = (request.clone(), Arc::clone(&judge));
            async move {
                let (name, token) = (request.name.clone(), request.token);
                let answer = store.acquire(owner, request).await;
                if let Ok(Acquisition::Granted(_)) = answer {
                    judge.taken(&name, token);
                }
                answer
            }
        });
        let answer = answer.await;
        asked.answered = answer.as_ref().err().is_none_or(Error::was_not_applied);
        answer
    }

    /// What was not answered was abandoned.
    pub(crate) fn left_unanswered(&self) -> usize {
        self.state().unanswered.len()
    }

    pub(crate) async fn give_up(&self, owner: Option<OwnerId>, hold: Hold) -> Result<()> {
        let token = hold.token;
        self.gives_back(token);
        self.carry("abandon", move |store| {
            let hold = hold.clone();
            async move { store.abandon(owner, hold).await }
        })
        .await
        .inspect(|()| {
            self.state().unanswered.remove(&token);
        })
    }

    pub(crate) async fn listen(self: Arc<Self>, name: &LockName, token: &OwnerToken) -> Result<Watch> {
        let (name, token) = (name.clone(), *token);
        let asked = name.clone();
        let watch = self.carry("watch", move |store| {
            let name = asked.clone();
            async move { store.watch(&name, token).await }
        });
        let (there, (ear, here)) = (watch.await?, Watch::channel());
        self.state().ears.push((token, ear.clone()));
        let leading = tokio::spawn(Arc::clone(&self).lead((name, token), there, ear));
        Ok(here.on_drop(move || {
            leading.abort();
            self.state().ears.retain(|(known, _)| *known != token);
        }))
    }

    /// Leads signals from the store to the waiter, until that one drops its end.
    async fn lead(self: Arc<Self>, (name, token): (LockName, OwnerToken), mut watch: Watch, ear: WakeHandle) {
        loop {
            let Some(signal) = self.store.says(watch.next().await) else { continue };
            let Some(late) = self.signal() else {
                self.judge.note(|| format!("{}: a signal is lost", self.client));
                continue;
            };
            pass(late).await;
            self.scheduled().await;
            self.judge.note(|| format!("{}: is told {signal:?}", self.client));
            match signal {
                Signal::Handed(handed) => {
                    self.judge.taken(&name, token);
                    ear.hand(handed);
                }
                _ => ear.wake(),
            }
        }
    }
}

/// A request to take a lock that is on its way.
struct Asked<'a> {
    wire: &'a Wire,
    token: OwnerToken,
    answered: bool,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        if !self.answered {
            let mut state = self.wire.state();
            if !state.standing.contains(&self.token) {
                state.unanswered.insert(self.token);
            }
        }
    }
}

fn late(rng: &mut Rng, trouble: u64) -> Duration {
    match rng.below(2) {
        _ if rng.in_thousand(trouble) => rng.millis(900),
        0 => Duration::ZERO,
        _ => rng.millis(4),
    }
}

async fn pass(time: Duration) {
    if !time.is_zero() {
        sleep(time).await;
    }
}
