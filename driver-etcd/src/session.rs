//! The lease that all places of one client are on.
//!
//! It is as short as etcd keeps any, so that the places of a process that was killed are gone soon, and one task keeps it
//! alive while anybody waits. How long a waiter counts as alive that asks no more is looked after here, too.
//!
//! A lease that many places are on cannot be revoked to undo one of them. A key of the session stands in for that: a place
//! is taken on condition that the key is as it was, so writing it makes every such request fail that is still on its way.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use etcd_client::{PutOptions, Txn, TxnOp};
use futures_util::future::join_all;
use tenure_core::driver::LeaseInstant;
use tenure_core::{OwnerToken, Result};
use tokio::task::AbortHandle;

use crate::error::says_lease_gone;
use crate::grants::{Leases, new_id, seconds};
use crate::keys::{Keyspace, NameKeys};
use crate::link::Link;
use crate::tickets::{Place, Waiting};
use crate::txn::{self, SessionKey};
use crate::watcher::Watcher;

/// What is asked for, in seconds: the shortest lease of a cluster with the default election timeout.
const SECS: i64 = 2;
/// How often the session is looked after; a fraction of the shortest lease.
const TICK: Duration = Duration::from_millis(100);
/// A lease is kept alive when this part of it has passed.
const KEEP_AT: u32 = 4;
/// For how long a session outlasts the last place on it.
const IDLE: Duration = Duration::from_secs(2);
/// How many leases are remembered that may have been made in vain: they would end within seconds.
const MOST_UNFINISHED: usize = 256;
/// How long a first in line may leave a free lock alone before its place is taken away.
pub(crate) const CLAIM: Duration = Duration::from_millis(300);
/// How much longer a waiter leaves it to those before it to take that place away.
const STAGGER: Duration = Duration::from_millis(30);

pub(crate) struct Session {
    link: Arc<Link>,
    leases: Arc<Leases>,
    keyspace: Keyspace,
    watcher: Watcher,
    state: Mutex<State>,
    making: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    live: Option<Live>,
    /// Leases for sessions that were not heard of: whoever needed them went away meanwhile. They end by themselves.
    unfinished: Vec<i64>,
    waiters: HashMap<OwnerToken, Presence>,
    /// When the last place went.
    idle_since: Option<LeaseInstant>,
    /// The number of the task that looks after it.
    keeper: Option<u64>,
    keepers: u64,
    abort: Option<AbortHandle>,
}

/// A session as far as is known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Live {
    pub(crate) lease: i64,
    /// The revision in which its key was last written.
    pub(crate) written: i64,
    secs: i64,
    /// When the request left that last set the lease to its full ttl.
    kept: LeaseInstant,
}

/// A place, and until when its waiter counts as alive.
#[derive(Debug)]
struct Presence {
    key: Vec<u8>,
    revision: i64,
    until: LeaseInstant,
}

impl Live {
    fn passed(&self) -> Duration {
        LeaseInstant::now().since(self.kept)
    }
}

impl Session {
    pub(crate) fn new(link: Arc<Link>, leases: Arc<Leases>, keyspace: Keyspace, watcher: Watcher) -> Arc<Self> {
        let (state, making) = (Mutex::default(), tokio::sync::Mutex::default());
        Arc::new(Self { link, leases, keyspace, watcher, state, making })
    }

    /// The session, made if there is none that lasts.
    pub(crate) async fn ensure(self: &Arc<Self>) -> Result<Live> {
        let _one = self.making.lock().await;
        let live = self.state().live.filter(|live| live.passed() < seconds(live.secs));
        let live = match live {
            Some(live) => live,
            None => self.make().await?,
        };
        self.state().idle_since = Some(LeaseInstant::now());
        self.look_after();
        Ok(live)
    }

    async fn make(&self) -> Result<Live> {
        let id = new_id();
        self.begin(id);
        let lease = self.leases.grant(id, SECS).await?;
        let key = TxnOp::put(self.keyspace.session(lease.id), "", Some(PutOptions::new().with_lease(lease.id)));
        let written = crate::link::revision(&self.link.txn(Txn::new().and_then([key])).await?)?;
        let live = Live { lease: lease.id, written, secs: lease.secs, kept: lease.since };
        let mut state = self.state();
        state.unfinished.retain(|other| *other != id);
        state.live = Some(live);
        Ok(live)
    }

    fn begin(&self, id: i64) {
        let unfinished = &mut self.state().unfinished;
        if unfinished.len() == MOST_UNFINISHED {
            self.leases.let_go(unfinished.remove(0)); // it ends by itself
        }
        unfinished.push(id);
    }

    /// The key that a place is taken on condition of.
    pub(crate) fn key(&self, live: &Live) -> SessionKey {
        SessionKey { key: self.keyspace.session(live.lease), lease: live.lease, written: live.written }
    }

    /// Its key was found written later than was known, or not at all.
    pub(crate) fn corrected(&self, lease: i64, written: Option<i64>) {
        let mut state = self.state();
        match (state.live.as_mut().filter(|live| live.lease == lease), written) {
            (Some(live), Some(written)) => live.written = live.written.max(written),
            (Some(_), None) => state.live = None,
            (None, _) => {}
        }
    }

    /// The waiter has a place, has asked just now, and counts as alive for so long.
    pub(crate) fn present(self: &Arc<Self>, keys: &NameKeys, place: &Place, presence: Duration) {
        let until = LeaseInstant::now().after(presence);
        let kept = Presence { key: keys.place(&place.spot), revision: place.revision, until };
        self.state().waiters.insert(place.spot.token, kept);
        self.look_after();
    }

    /// The token waits no more; its place went.
    pub(crate) fn gone(&self, token: &OwnerToken) {
        let mut state = self.state();
        if state.waiters.remove(token).is_some() && state.waiters.is_empty() {
            state.idle_since = Some(LeaseInstant::now());
        }
    }

    /// Takes a place away, and refuses the request for it if that may still be on its way.
    pub(crate) async fn leave(&self, keys: &NameKeys, waiting: &Waiting) -> Result<()> {
        self.gone(&waiting.spot.token);
        let delete = TxnOp::delete(keys.place(&waiting.spot), None);
        if waiting.revision.is_some() {
            return self.link.txn(Txn::new().and_then([delete])).await.map(drop);
        }
        let options = PutOptions::new().with_lease(waiting.lease);
        let refuse = TxnOp::put(self.keyspace.session(waiting.lease), "", Some(options));
        match self.link.txn(Txn::new().and_then([refuse, delete])).await {
            Ok(answer) => {
                self.corrected(waiting.lease, Some(crate::link::revision(&answer)?));
                Ok(())
            }
            // With the lease went whatever was on it, and nothing can come to be on it.
            Err(error) if says_lease_gone(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Ends the session, and with it all places.
    pub(crate) async fn close(&self) {
        self.abort();
        let ended = {
            let mut state = self.state();
            state.waiters.clear();
            let live = state.live.take();
            let unfinished = std::mem::take(&mut state.unfinished);
            unfinished.into_iter().chain(live.map(|live| live.lease)).collect::<Vec<_>>()
        };
        // What cannot be revoked ends by itself.
        join_all(ended.into_iter().map(|lease| self.leases.revoke(lease))).await;
    }

    pub(crate) fn abort(&self) {
        let keeper = self.state().abort.take();
        keeper.inspect(AbortHandle::abort);
    }

    /// Sees to it that a task looks after the session: where the runtime of the last one has ended, on this one.
    fn look_after(self: &Arc<Self>) {
        let number = {
            let mut state = self.state();
            if state.live.is_none() || state.keeper.is_some() {
                return;
            }
            state.keepers += 1;
            state.keeper = Some(state.keepers);
            state.keepers
        };
        let keeper = Keeper { session: Arc::clone(self), number };
        let task = tokio::spawn(async move { keeper.session.keep().await });
        self.state().abort = Some(task.abort_handle());
    }

    async fn keep(&self) {
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            self.end_the_silent().await;
            self.watcher.view().wake_behind_the_deaf(CLAIM, STAGGER);
            let Some(live) = self.state().live else { return };
            if self.retire(live).await {
                return;
            }
            if live.passed() >= seconds(live.secs) / KEEP_AT {
                // A request without an answer must not keep this from sending another one.
                let _ = tokio::time::timeout(seconds(live.secs) / 3, self.keep_alive(live)).await;
            }
        }
    }

    async fn keep_alive(&self, live: Live) {
        let sent = LeaseInstant::before_send();
        let Ok(alive) = self.leases.keep_alive(live.lease).await else { return };
        let mut state = self.state();
        match state.live.as_mut().filter(|now| now.lease == live.lease) {
            Some(now) if alive => now.kept = sent,
            Some(_) => {
                // Its places went with it, which the watch tells; or does not, if that is broken as well.
                state.live = None;
                state.waiters.clear();
                drop(state);
                self.watcher.view().wake_all();
            }
            None => {}
        }
    }

    /// Ends the places of those who have not asked for longer than they are present.
    async fn end_the_silent(&self) {
        let now = LeaseInstant::now();
        let silent: Vec<_> = {
            let waiters = &mut self.state().waiters;
            waiters
                .extract_if(|_, waiter| waiter.until <= now)
                .map(|(_, waiter)| (waiter.key, waiter.revision))
                .collect()
        };
        let ending = silent.into_iter().map(|(key, revision)| self.link.txn(txn::end_place(key, revision)));
        // Where that fails, whoever is behind them ends them when it is their turn.
        join_all(ending).await;
    }

    /// Ends a session that nothing is on any more.
    async fn retire(&self, live: Live) -> bool {
        let Ok(_nobody_begins) = self.making.try_lock() else { return false };
        {
            let mut state = self.state();
            let since = *state.idle_since.get_or_insert_with(LeaseInstant::now);
            if !state.waiters.is_empty() || LeaseInstant::now().since(since) < IDLE {
                return false;
            }
            state.live = None;
        }
        let _ = self.leases.revoke(live.lease).await;
        true
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The task that looks after a session. It may end with its runtime; waiters on other runtimes then ask again, and one
/// of them sees to the next.
struct Keeper {
    session: Arc<Session>,
    number: u64,
}

impl Drop for Keeper {
    fn drop(&mut self) {
        let mut state = self.session.state();
        if state.keeper == Some(self.number) {
            state.keeper = None;
        }
        drop(state);
        self.session.watcher.view().wake_all();
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("state", &*self.state()).finish_non_exhaustive()
    }
}
