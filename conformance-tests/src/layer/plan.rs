//! The layer itself: rules, chaos, the log of frames.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_core::driver::Backend;
use tenure_core::{Error, ErrorKind, LockName, OwnerToken, Result};
use tokio::sync::watch;
use tokio::time::Instant;

use super::{Action, Answer, Chaos, Frame, Op, Rule};
use crate::rng::Rng;

/// A seeded, scriptable layer of faults over any backend. Clones are the same layer.
#[derive(Clone)]
pub struct FaultLayer(Arc<Shared>);

struct Shared {
    inner: Backend,
    state: Mutex<State>,
    healed: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    rules: Vec<Rule>,
    chaos: Option<(Chaos, Rng)>,
    muted: bool,
    frames: Vec<Frame>,
    wakes: u64,
}

impl FaultLayer {
    /// A layer over `inner` that lets everything through.
    #[must_use]
    pub fn over(inner: Backend) -> Self {
        Self(Arc::new(Shared { inner, state: Mutex::default(), healed: watch::channel(0).0 }))
    }

    /// The backend under the layer.
    #[must_use]
    pub fn inner(&self) -> &Backend {
        &self.0.inner
    }

    /// Adds a rule. The first rule that fires decides.
    pub fn rule(&self, rule: Rule) {
        self.state().rules.push(rule);
    }

    /// Injects random faults from now on.
    pub fn chaos(&self, chaos: Chaos, seed: u64) {
        self.state().chaos = Some((chaos, Rng::new(seed)));
    }

    /// Drops every wake-up from now on.
    pub fn mute(&self) {
        self.state().muted = true;
    }

    /// Removes all rules and chaos, delivers wake-ups again, and releases hanging requests.
    pub fn heal(&self) {
        let mut state = self.state();
        state.rules.clear();
        state.chaos = None;
        state.muted = false;
        drop(state);
        self.0.healed.send_modify(|count| *count += 1);
    }

    /// All requests through the layer so far.
    #[must_use]
    pub fn frames(&self) -> Vec<Frame> {
        self.state().frames.clone()
    }

    /// The requests of one kind on one name.
    #[must_use]
    pub fn frames_of(&self, op: Op, name: &LockName) -> Vec<Frame> {
        self.state().frames.iter().filter(|frame| frame.op == op && frame.name == *name).cloned().collect()
    }

    /// The number of requests of any kind through the layer so far.
    #[must_use]
    pub fn count(&self) -> usize {
        self.state().frames.len()
    }

    /// The number of wake-ups that the driver sent.
    #[must_use]
    pub fn wakes(&self) -> u64 {
        self.state().wakes
    }

    /// Counts a wake-up; returns whether it is to be delivered.
    pub(super) fn wake(&self) -> bool {
        let mut state = self.state();
        state.wakes += 1;
        !state.muted
    }

    pub(super) fn begin(&self, op: Op, name: &LockName, token: Option<OwnerToken>) -> usize {
        let mut state = self.state();
        let frame =
            Frame { op, name: name.clone(), token, sent_at: Instant::now(), answered_at: None, answer: Answer::None };
        state.frames.push(frame);
        state.frames.len() - 1
    }

    pub(super) fn end(&self, frame: usize, answer: Answer) {
        let mut state = self.state();
        state.frames[frame].answered_at = Some(Instant::now());
        state.frames[frame].answer = answer;
    }

    fn decide(&self, op: Op) -> Option<Action> {
        let mut state = self.state();
        if let Some(action) = state.rules.iter_mut().find_map(|rule| rule.fires(op).then_some(rule.action)) {
            return Some(action);
        }
        let (chaos, rng) = state.chaos.as_mut()?;
        let roll = u32::try_from(rng.below(1_000)).unwrap_or(0);
        let delay = Duration::from_micros(rng.below(chaos.longest.as_micros().max(1) as u64));
        let steps = [
            (chaos.fail, Action::FailBeforeSend),
            (chaos.lose, Action::LoseReply),
            (chaos.late, Action::DelayRequest(delay)),
            (chaos.slow, Action::DelayReply(delay)),
            (chaos.duplicate, Action::Duplicate),
        ];
        let mut sum = 0;
        steps.into_iter().find_map(|(share, action)| {
            sum += share;
            (roll < sum).then_some(action)
        })
    }

    /// Sends one request, or applies the action that is due for it.
    pub(super) async fn send<T, F>(&self, op: Op, call: impl Fn() -> F + Send + 'static) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        match self.decide(op) {
            None => call().await,
            Some(Action::FailBeforeSend) => Err(not_sent()),
            Some(Action::LoseReply) => {
                let _lost = call().await;
                Err(Error::new(ErrorKind::Indeterminate, "the reply was lost by the fault layer"))
            }
            Some(Action::DelayRequest(delay)) => detached(tokio::time::sleep(delay), call()).await,
            Some(Action::DelayReply(delay)) => {
                let answer = call().await;
                tokio::time::sleep(delay).await;
                answer
            }
            Some(Action::Duplicate) => {
                let answer = call().await;
                let _second = call().await;
                answer
            }
            Some(Action::Retry) => {
                let _first = call().await;
                call().await
            }
            Some(Action::Hang) => detached(self.healed(), call()).await,
            Some(Action::Swallow) => {
                self.healed().await;
                Err(not_sent())
            }
        }
    }

    /// Returns at the next healing.
    fn healed(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut healed = self.0.healed.subscribe();
        async move {
            let _gone = healed.changed().await;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs `call` after `wait`, even if the caller no longer waits for the result.
async fn detached<T: Send + 'static>(
    wait: impl Future<Output = ()> + Send + 'static,
    call: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    let task = tokio::spawn(async move {
        wait.await;
        call.await
    });
    task.await.unwrap_or_else(|_| Err(Error::new(ErrorKind::Indeterminate, "the runtime ended")))
}

fn not_sent() -> Error {
    Error::new(ErrorKind::Unavailable, "not sent by the fault layer")
}

impl fmt::Debug for FaultLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FaultLayer")
    }
}
