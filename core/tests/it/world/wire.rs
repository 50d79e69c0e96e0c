//! A client's way to the locks of the store, and what the link sees of their tokens.

use std::collections::HashSet;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard};

use tenure_core::driver::{AcquireRequest, Acquisition, Hold, Signal, WakeHandle, Watch};
use tenure_core::{Error, LockName, OwnerId, OwnerToken, Result};

use crate::world::judge::Judge;
use crate::world::link::{Link, Observer, pass};
use crate::world::plan::Plan;
use crate::world::rng::Rng;
use crate::world::store::Store;

/// The label of locks that are left standing when they are given back: they may be renewed for that.
pub(crate) const STANDS: &str = "stands";

#[derive(Debug)]
pub(crate) struct Wire {
    link: Arc<Link>,
    store: Store,
    judge: Arc<Judge>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Tokens that were given back, as far as this link knows: a request to do so has left.
    given_back: HashSet<OwnerToken>,
    standing: HashSet<OwnerToken>,
    /// Tokens of which a request to take a lock was not answered, until they are abandoned.
    unanswered: HashSet<OwnerToken>,
}

impl Wire {
    pub(crate) fn new(client: usize, store: Store, judge: &Arc<Judge>, rng: Rng, plan: &Plan) -> Arc<Self> {
        let observer = Arc::clone(judge) as Arc<dyn Observer>;
        let link = Link::new(client, observer, rng, (plan.weather, plan.trouble), judge.storm_until());
        Arc::new(Self { link: Arc::new(link), store, judge: Arc::clone(judge), state: Mutex::default() })
    }

    pub(crate) fn link(&self) -> &Arc<Link> {
        &self.link
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

    /// Carries a request.
    pub(crate) async fn carry<T: Send + 'static, F>(
        &self,
        what: &'static str,
        call: impl Fn(Store) -> F + Send + Sync + 'static,
    ) -> Result<T>
    where
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let store = self.store.clone();
        self.link.carry(what, move || call(store.clone())).await
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
            self.judge.wrong(format!("client {} sent {what} for a token that it had given back", self.link.client()));
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
        let number = self.link.hears(ear.clone());
        let leading = tokio::spawn(Arc::clone(&self).lead((name, token), there, ear));
        Ok(here.on_drop(move || {
            leading.abort();
            self.link.hears_no_more(number);
        }))
    }

    /// Leads signals from the store to the waiter, until that one drops its end.
    async fn lead(self: Arc<Self>, (name, token): (LockName, OwnerToken), mut watch: Watch, ear: WakeHandle) {
        loop {
            let Some(signal) = self.store.says(watch.next().await) else { continue };
            let Some(late) = self.link.signal() else {
                self.judge.note(|| format!("{}: a signal is lost", self.link.client()));
                continue;
            };
            pass(late).await;
            self.link.scheduled().await;
            self.judge.note(|| format!("{}: receives {signal:?}", self.link.client()));
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
