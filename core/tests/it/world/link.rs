//! A client's link to the store: every frame is on its own, and may be late, lost, repeated, or go unanswered.

use std::fmt::Debug;
use std::future::{Future, pending, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Poll;
use std::time::Duration;

use tenure_core::driver::WakeHandle;
use tenure_core::{Error, ErrorKind, Result};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, sleep_until};

use crate::world::plan::Weather;
use crate::world::rng::Rng;

/// Looks on when something was carried out at the store.
pub(crate) trait Observer: Debug + Send + Sync {
    /// Keeps a line of the trace, if there is one.
    fn note(&self, what: &dyn Fn() -> String);
    /// Compares what is believed with what is.
    fn look(&self);
}

#[derive(Debug)]
pub(crate) struct Link {
    client: usize,
    observer: Arc<dyn Observer>,
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
    /// Who waits to be woken.
    ears: Vec<(u64, WakeHandle)>,
    next_ear: u64,
}

/// What a frame meets on its way.
struct Journey {
    there: Duration,
    back: Duration,
    lost: bool,
    unheard: bool,
    repeat: Option<Duration>,
}

impl Link {
    /// With so many of a thousand frames in trouble.
    pub(crate) fn new(
        client: usize,
        observer: Arc<dyn Observer>,
        rng: Rng,
        (weather, trouble): (Weather, u64),
        storm_until: Instant,
    ) -> Self {
        let now = Instant::now();
        let state = Mutex::new(State {
            rng,
            trouble,
            weather,
            storm_until,
            silent_until: now,
            deaf_until: now,
            paused_until: now,
            dead: false,
            ears: Vec::new(),
            next_ear: 0,
        });
        Self { client, observer, state }
    }

    pub(crate) fn client(&self) -> usize {
        self.client
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Loses everything for a while, from this call on; at its end waiters are woken, as after a reconnect.
    pub(crate) fn silence(self: &Arc<Self>, span: Duration) {
        let (link, until) = (Arc::clone(self), Instant::now() + span);
        self.state().silent_until = until;
        tokio::spawn(async move {
            sleep_until(until).await;
            link.state().ears.iter().for_each(|(_, ear)| ear.wake());
        });
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

    /// Adds somebody who is woken when a silence ends; the number takes them away again.
    pub(crate) fn hears(&self, ear: WakeHandle) -> u64 {
        let mut state = self.state();
        state.next_ear += 1;
        let number = state.next_ear;
        state.ears.push((number, ear));
        number
    }

    pub(crate) fn hears_no_more(&self, number: u64) {
        self.state().ears.retain(|(known, _)| *known != number);
    }

    /// When all faults are over.
    pub(crate) fn sound_from(&self) -> Instant {
        let state = self.state();
        state.storm_until.max(state.silent_until).max(state.deaf_until).max(state.paused_until)
    }

    /// Waits until the client is scheduled; for ever if it is dead.
    pub(crate) async fn scheduled(&self) {
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

    /// Polls the work of a task while the client is scheduled.
    pub(crate) async fn while_scheduled(&self, work: impl Future<Output = ()>) {
        let mut work = pin!(work);
        loop {
            let mut paused_until = self.state().paused_until;
            let scheduled = poll_fn(|cx| {
                paused_until = self.state().paused_until;
                match paused_until > Instant::now() {
                    true => Poll::Ready(false),
                    false => work.as_mut().poll(cx).map(|()| true),
                }
            });
            if scheduled.await {
                return;
            }
            sleep_until(paused_until).await;
        }
    }

    /// Carries a request. What was sent arrives even if nobody waits for the answer any more.
    pub(crate) async fn carry<T: Send + 'static, F>(
        &self,
        what: &'static str,
        call: impl Fn() -> F + Send + Sync + 'static,
    ) -> Result<T>
    where
        F: Future<Output = Result<T>> + Send + 'static,
    {
        self.scheduled().await;
        self.carried(what, self.journey()?, call).await
    }

    /// As [`carry`](Self::carry), for a request that arrives once at most: a second answer to it would not be that of the first.
    pub(crate) async fn carry_once<T: Send + 'static, F>(
        &self,
        what: &'static str,
        call: impl Fn() -> F + Send + Sync + 'static,
    ) -> Result<T>
    where
        F: Future<Output = Result<T>> + Send + 'static,
    {
        self.scheduled().await;
        self.carried(what, Journey { repeat: None, ..self.journey()? }, call).await
    }

    async fn carried<T: Send + 'static, F>(
        &self,
        what: &'static str,
        journey: Journey,
        call: impl Fn() -> F + Send + Sync + 'static,
    ) -> Result<T>
    where
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let Journey { there, back, lost, unheard, repeat } = journey;
        let client = self.client;
        if lost {
            self.observer.note(&|| format!("{client}: {what} is lost"));
            return pending().await;
        }
        let (observer, (tell, reported)) = (Arc::clone(&self.observer), oneshot::channel());
        tokio::spawn(async move {
            pass(there).await;
            let mut answer = call().await;
            observer.note(&|| {
                format!("{client}: {what} is carried out{}", if unheard { ", its answer is lost" } else { "" })
            });
            observer.look();
            // It is repeated for want of an answer, and the last one is heard: what was answered is not on its way any more.
            if let Some(after) = repeat {
                pass(after).await;
                answer = call().await;
                observer.note(&|| format!("{client}: {what} is repeated"));
                observer.look();
            }
            pass(back).await;
            let _ = tell.send(answer);
        });
        let answer = reported.await;
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
    pub(crate) fn signal(&self) -> Option<Duration> {
        let now = Instant::now();
        let mut state = self.state();
        let stormy = now < state.storm_until && state.weather == Weather::Storm;
        let trouble = if stormy { state.trouble } else { 0 };
        let lost = state.dead || state.silent_until > now || state.deaf_until > now || state.rng.in_thousand(trouble);
        let late = late(&mut state.rng, trouble);
        (!lost).then_some(late)
    }
}

fn late(rng: &mut Rng, trouble: u64) -> Duration {
    match rng.below(2) {
        _ if rng.in_thousand(trouble) => rng.millis(900),
        0 => Duration::ZERO,
        _ => rng.millis(4),
    }
}

pub(crate) async fn pass(time: Duration) {
    if !time.is_zero() {
        sleep(time).await;
    }
}
