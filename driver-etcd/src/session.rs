//! The lease that all places of one client are on.
//!
//! It is as short as etcd allows, so that the places of a killed process disappear soon. One task keeps it alive while
//! the client has waiters. That task also removes a waiter that has stopped asking when its presence ends.
//!
//! A lease of many places cannot be revoked to undo one of them. The session's key replaces the revocation: a place is
//! taken on condition that this key is unchanged, so writing it makes every such request fail that is still on its way.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use etcd_client::{Compare, CompareOp, PutOptions, Txn, TxnOp};
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

/// The ttl of the session's lease, in seconds: the shortest lease of a cluster with the default election timeout.
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
    /// Leases for sessions of which no answer arrived: the callers that needed them went away meanwhile. They end by
    /// themselves.
    unfinished: Vec<i64>,
    waiters: HashMap<OwnerToken, Presence>,
    /// When the last place went.
    idle_since: Option<LeaseInstant>,
    /// Whether a task looks after it.
    is_kept: bool,
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
    /// The revision in which the key was made.
    revision: i64,
    /// The value of a key that is not the token's alone, which is compared instead.
    value: Option<String>,
    until: LeaseInstant,
}

impl Presence {
    /// Deletes the key, if it is still the same.
    fn end(&self) -> Txn {
        let Some(value) = &self.value else { return txn::end_place(self.key.clone(), self.revision) };
        Txn::new()
            .when([Compare::value(self.key.as_slice(), CompareOp::Equal, value.as_bytes())])
            .and_then([TxnOp::delete(self.key.as_slice(), None)])
    }
}

impl Live {
    /// Whether its lease has not ended yet.
    fn lasts_at(&self, now: LeaseInstant) -> bool {
        now.since(self.kept) < seconds(self.secs)
    }

    /// Whether it is time to keep its lease alive.
    fn is_due_at(&self, now: LeaseInstant) -> bool {
        now.since(self.kept) >= seconds(self.secs) / KEEP_AT
    }

    /// How long an answer is waited for: a request without one must not keep another one from being sent in time.
    fn patience(&self) -> Duration {
        seconds(self.secs) / 3
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
        let live = self.state().live.filter(|live| live.lasts_at(LeaseInstant::now()));
        let live = match live {
            Some(live) => live,
            None => self.make().await?,
        };
        // Idle from now on, so that it does not end before the place that the caller asks for.
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
        let (key, until) = (keys.place(&place.spot), LeaseInstant::now().after(presence));
        let kept = Presence { key, revision: place.revision, value: None, until };
        self.state().waiters.insert(place.spot.token, kept);
        self.look_after();
    }

    /// The same of a token that waits with this key and value on the session's lease. Called before they are put, too:
    /// the key ends with the presence also if the answer is lost.
    pub(crate) fn present_with(self: &Arc<Self>, token: &OwnerToken, key: Vec<u8>, value: String, presence: Duration) {
        let until = LeaseInstant::now().after(presence);
        self.state().waiters.insert(*token, Presence { key, revision: 0, value: Some(value), until });
        self.look_after();
    }

    /// Deletes the key of a token that waits, if it is known.
    pub(crate) async fn withdraw(&self, token: &OwnerToken) -> Result<()> {
        let Some(end) = self.state().waiters.get(token).map(Presence::end) else { return Ok(()) };
        self.link.txn(end).await?;
        self.gone(token);
        Ok(())
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
        // One transaction for both: a request for the place that arrives before it is deleted, and one that arrives
        // after it finds the key written anew and is refused.
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
        {
            let mut state = self.state();
            if state.live.is_none() || state.is_kept {
                return;
            }
            // Marked before the task begins, so that there is one. Its end clears the mark, also on a runtime that has
            // ended.
            state.is_kept = true;
        }
        let keeper = Keeper(Arc::clone(self));
        let task = tokio::spawn(async move { keeper.0.keep().await });
        self.state().abort = Some(task.abort_handle());
    }

    async fn keep(&self) {
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            // First: the lease that is kept alive below would keep the places of waiters that have stopped asking.
            self.end_the_silent(LeaseInstant::now()).await;
            self.watcher.view().wake_behind_the_deaf(CLAIM, STAGGER);
            let Some(live) = self.state().live else { return };
            if self.retire(live, LeaseInstant::now()).await {
                return;
            }
            if live.is_due_at(LeaseInstant::now()) {
                let _ = tokio::time::timeout(live.patience(), self.keep_alive(live)).await;
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
                // Its places ended with it. The watch reports that, unless it is broken as well.
                state.live = None;
                state.waiters.clear();
                drop(state);
                self.watcher.view().wake_all();
            }
            None => {}
        }
    }

    /// Ends the places of those who have not asked for longer than they are present.
    async fn end_the_silent(&self, now: LeaseInstant) {
        let silent: Vec<_> = {
            let waiters = &mut self.state().waiters;
            waiters.extract_if(|_, waiter| waiter.until <= now).map(|(_, waiter)| waiter.end()).collect()
        };
        let ending = silent.into_iter().map(|end| self.link.txn(end));
        // Where that fails, the waiters behind them end them in their turn.
        join_all(ending).await;
    }

    /// Ends a session that nothing is on any more.
    async fn retire(&self, live: Live, now: LeaseInstant) -> bool {
        let Ok(_nobody_begins) = self.making.try_lock() else { return false };
        {
            let mut state = self.state();
            let since = *state.idle_since.get_or_insert(now);
            if !state.waiters.is_empty() || now.since(since) < IDLE {
                return false;
            }
            state.live = None;
        }
        let _ = self.leases.revoke(live.lease).await;
        true
    }

    #[cfg(test)]
    pub(crate) fn is_looked_after(&self) -> bool {
        self.state().is_kept
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The task that looks after a session. It may end with its runtime; waiters on other runtimes then ask again, and one
/// of them sees to the next.
struct Keeper(Arc<Session>);

impl Drop for Keeper {
    fn drop(&mut self) {
        self.0.state().is_kept = false;
        self.0.watcher.view().wake_all();
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("state", &*self.state()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use tenure_core::LockName;
    use tenure_core::driver::Watch;

    use super::*;
    use crate::grants::Revoked;
    use crate::inner::Inner;
    use crate::keys::Spot;
    use crate::test_support::{served, unserved};

    const PATIENCE: Duration = Duration::from_secs(20);
    const MOMENT: Duration = Duration::from_millis(1);

    fn live(lease: i64, written: i64) -> Live {
        Live { lease, written, secs: 2, kept: LeaseInstant::now() }
    }

    /// A listener that the session takes for alive until then, though no task looks after that.
    fn waits(inner: &Inner, arrival: i64, until: LeaseInstant) -> (Spot, Vec<u8>, Watch) {
        let keys = inner.keys(&LockName::new("name").unwrap());
        let spot = Spot { arrival, token: OwnerToken::random() };
        let presence = Presence { key: keys.place(&spot), revision: 0, value: None, until };
        inner.session.state().waiters.insert(spot.token, presence);
        let watch = inner.watcher.listen(inner.keyspace.encoded(&keys), spot.token);
        (spot, keys.place(&spot), watch)
    }

    #[test]
    fn a_lease_is_kept_alive_when_a_quarter_of_it_has_passed_and_there_is_time_to_try_again() {
        let live = live(7, 1);
        let at = |millis| live.kept.after(Duration::from_millis(millis));
        assert!(!live.is_due_at(at(499)) && live.is_due_at(at(500)));
        assert!(live.lasts_at(at(1_999)) && !live.lasts_at(at(2_000)));
        assert!(live.is_due_at(at(500)) && live.lasts_at(at(500).after(live.patience() * 2)));
    }

    #[tokio::test]
    async fn what_was_heard_of_the_key_later_counts_and_only_of_the_same_lease() {
        let driver = unserved();
        let session = &driver.inner.session;
        let written = || session.state().live.map(|live| live.written);
        session.state().live = Some(live(7, 10));
        for (lease, heard, then) in [
            (8, Some(20), Some(10)),
            (8, None, Some(10)),
            (7, Some(9), Some(10)),
            (7, Some(11), Some(11)),
            (7, None, None),
            (7, Some(20), None),
        ] {
            session.corrected(lease, heard);
            assert_eq!(written(), then, "lease {lease}, {heard:?}");
        }
    }

    #[tokio::test]
    async fn a_session_is_idle_from_when_the_last_place_went() {
        let driver = unserved();
        let session = &driver.inner.session;
        let until = LeaseInstant::now().after(PATIENCE);
        let (first, second) = (waits(&driver.inner, 1, until).0, waits(&driver.inner, 2, until).0);
        let is_idle_without = |token: &OwnerToken| {
            session.gone(token);
            session.state().idle_since.take().is_some()
        };
        assert!(!is_idle_without(&OwnerToken::random()), "it had no place");
        assert!(!is_idle_without(&first.token));
        assert!(is_idle_without(&second.token));
        assert!(!is_idle_without(&second.token), "it was idle already");
    }

    #[tokio::test]
    async fn of_leases_that_were_not_heard_of_so_many_are_remembered() {
        let driver = unserved();
        let session = &driver.inner.session;
        let last = MOST_UNFINISHED as i64;
        (0..last).for_each(|id| session.begin(id));
        assert_eq!(session.state().unfinished, (0..last).collect::<Vec<_>>());
        session.begin(last);
        assert_eq!(session.state().unfinished, (1..=last).collect::<Vec<_>>(), "the oldest will have ended first");
    }

    #[tokio::test]
    async fn a_session_lasts_while_its_lease_does_and_is_made_anew_after_it() {
        let (_cluster, driver) = served();
        let session = &driver.inner.session;
        session.begin(99);
        let first = session.ensure().await.unwrap();
        assert_eq!(session.state().unfinished, [99], "it was heard of, the other one was not");
        assert_eq!(session.ensure().await.unwrap().lease, first.lease);
        session.state().live = Some(Live { secs: 0, ..first });
        assert_ne!(session.ensure().await.unwrap().lease, first.lease);
    }

    #[tokio::test]
    async fn a_session_whose_task_has_ended_has_its_waiters_ask_and_is_looked_after_by_the_next() {
        let (_cluster, driver) = served();
        let session = &driver.inner.session;
        session.ensure().await.unwrap();
        let (_, _, mut watch) = waits(&driver.inner, 1, LeaseInstant::now().after(PATIENCE));
        session.abort();
        tokio::time::timeout(PATIENCE, watch.next()).await.expect("it is woken");
        assert!(!session.state().is_kept);
        session.ensure().await.unwrap();
        assert!(session.state().is_kept);
        session.abort();
        tokio::time::timeout(PATIENCE, watch.next()).await.expect("it is woken");
        let keys = driver.inner.keys(&LockName::new("name").unwrap());
        let spot = Spot { arrival: 2, token: OwnerToken::random() };
        session.present(&keys, &Place { spot, revision: 1, lease: 1 }, PATIENCE);
        assert!(session.state().is_kept && session.state().waiters.contains_key(&spot.token));
        let task = session.state().abort.clone().unwrap();
        session.ensure().await.unwrap();
        assert_eq!(session.state().abort.as_ref().map(AbortHandle::id), Some(task.id()), "one is enough");
    }

    #[tokio::test]
    async fn a_session_whose_lease_has_ended_is_none_and_its_waiters_ask() {
        let (_cluster, driver) = served();
        let session = &driver.inner.session;
        let first = session.make().await.unwrap();
        let (_, _, mut watch) = waits(&driver.inner, 1, LeaseInstant::now().after(PATIENCE));
        session.keep_alive(first).await;
        let kept = session.state().live.unwrap();
        assert!(kept.lease == first.lease && kept.kept > first.kept);
        assert!(watch.next().now_or_never().is_none());
        let second = session.make().await.unwrap();
        assert_eq!(driver.inner.leases.revoke(first.lease).await.unwrap(), Revoked::Revoked);
        session.keep_alive(first).await;
        assert_eq!(session.state().live.map(|live| live.lease), Some(second.lease), "that was the one before");
        assert_eq!(driver.inner.leases.revoke(second.lease).await.unwrap(), Revoked::Revoked);
        session.keep_alive(second).await;
        assert!(session.state().live.is_none() && session.state().waiters.is_empty());
        assert!(watch.next().now_or_never().is_some());
    }

    #[tokio::test]
    async fn a_session_that_nothing_was_on_for_a_while_ends_unless_somebody_begins() {
        let (_cluster, driver) = served();
        let session = &driver.inner.session;
        let (live, now) = (session.make().await.unwrap(), LeaseInstant::now());
        let over = now.after(IDLE);
        assert!(!session.retire(live, now).await, "it counts from here");
        assert!(!session.retire(live, now.after(IDLE - MOMENT)).await);
        let (spot, _, _) = waits(&driver.inner, 1, over);
        assert!(!session.retire(live, over).await, "somebody has a place");
        session.gone(&spot.token);
        session.state().idle_since = Some(now);
        let begins = session.making.lock().await;
        assert!(!session.retire(live, over).await);
        drop(begins);
        assert!(session.state().live.is_some());
        assert!(session.retire(live, over).await && session.state().live.is_none());
        assert_eq!(driver.inner.leases.revoke(live.lease).await.unwrap(), Revoked::Absent);
    }

    #[tokio::test]
    async fn who_does_not_ask_in_time_loses_its_place_and_nobody_else_does() {
        let (_cluster, driver) = served();
        let (inner, session, now) = (&driver.inner, &driver.inner.session, LeaseInstant::now());
        let places = [(1, now), (2, now.after(MOMENT))].map(|(arrival, until)| waits(inner, arrival, until));
        let is_there = async |key: &[u8]| {
            let found = inner.txn(Txn::new().and_then([TxnOp::get(key, None)])).await.unwrap();
            crate::link::reads(&found)[0].count() == 1
        };
        for (spot, key, _) in &places {
            let put = inner.txn(Txn::new().and_then([TxnOp::put(key.as_slice(), "", None)])).await.unwrap();
            session.state().waiters.get_mut(&spot.token).unwrap().revision = crate::link::revision(&put).unwrap();
        }
        session.end_the_silent(now).await;
        assert!(!is_there(&places[0].1).await && is_there(&places[1].1).await);
        assert!(session.state().waiters.keys().eq([&places[1].0.token]));
    }

    #[tokio::test]
    async fn a_place_that_may_still_come_is_refused_by_a_new_revision_of_the_key_or_went_with_its_lease() {
        let (_cluster, driver) = served();
        let (inner, session) = (&driver.inner, &driver.inner.session);
        let keys = inner.keys(&LockName::new("name").unwrap());
        let live = session.make().await.unwrap();
        let waiting = |lease| Waiting { spot: Spot { arrival: 1, token: OwnerToken::random() }, lease, revision: None };
        session.leave(&keys, &waiting(live.lease)).await.unwrap();
        let written = session.state().live.unwrap().written;
        assert!(written > live.written);
        let key = inner.txn(Txn::new().and_then([TxnOp::get(session.key(&live).key, None)])).await.unwrap();
        assert_eq!(crate::link::reads(&key)[0].kvs()[0].mod_revision(), written);
        let known = Waiting { revision: Some(1), ..waiting(live.lease) };
        session.leave(&keys, &known).await.unwrap();
        assert_eq!(session.state().live.unwrap().written, written, "nobody else starts over for a place that is known");
        session.leave(&keys, &waiting(new_id())).await.unwrap();
        assert_eq!(session.state().live.unwrap().written, written, "that was another one's");
        let away = unserved();
        assert!(away.inner.session.leave(&keys, &waiting(live.lease)).await.is_err());
    }

    #[tokio::test]
    async fn a_session_that_is_closed_ends_what_it_has_and_what_it_may_have() {
        let (_cluster, driver) = served();
        let (inner, session) = (&driver.inner, &driver.inner.session);
        let live = session.ensure().await.unwrap();
        assert!(session.state().idle_since.is_some(), "nobody has a place yet");
        let unheard = inner.leases.grant(new_id(), 60).await.unwrap().id;
        session.begin(unheard);
        session.close().await;
        for lease in [live.lease, unheard] {
            assert_eq!(inner.leases.revoke(lease).await.unwrap(), Revoked::Absent);
        }
        assert!(session.state().live.is_none() && session.state().unfinished.is_empty());
    }
}
