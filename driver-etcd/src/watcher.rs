//! The watch of the locks of one client, and the waiters that it wakes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use etcd_client::{Event, EventType};
use tenure_core::driver::Watch;
use tenure_core::{OwnerToken, Result};

use crate::keys::{Keyspace, Parsed};
use crate::lasting_watch::{Audience, LastingWatch};
use crate::link::Link;
use crate::view::{Change, View};

#[derive(Clone, Debug)]
pub(crate) struct Watcher(Arc<LastingWatch<Places>>);

/// The view of the queues that this client waits in, and the keys that it is made of.
pub(crate) struct Places {
    keyspace: Keyspace,
    view: Mutex<View>,
}

/// A request on its way, for the view.
pub(crate) struct Asking<'a> {
    watcher: &'a Watcher,
    name: &'a [u8],
    epoch: AtomicU64,
}

impl Watcher {
    pub(crate) fn new(link: Arc<Link>, keyspace: Keyspace) -> Self {
        Self(LastingWatch::new(link, Places { keyspace, view: Mutex::default() }))
    }

    pub(crate) fn view(&self) -> MutexGuard<'_, View> {
        self.0.audience.view()
    }

    pub(crate) fn asking<'a>(&'a self, name: &'a [u8]) -> Asking<'a> {
        Asking { watcher: self, name, epoch: AtomicU64::new(self.view().asks(name)) }
    }

    /// Returns when the watch is open.
    pub(crate) async fn ensure_live(&self) -> Result<()> {
        self.0.ensure_live().await
    }

    /// Listens for a token. It receives events once the watch is open, see [`Asking::is_to_wait`].
    pub(crate) fn listen(&self, name: &[u8], token: OwnerToken) -> Watch {
        let (handle, watch) = Watch::channel();
        let (lasting_watch, name) = (Arc::clone(&self.0), name.to_vec());
        self.view().listen(&name, token, handle);
        watch.on_drop(move || lasting_watch.audience.view().unlisten(&name, &token))
    }

    pub(crate) async fn close(&self) {
        self.0.close().await;
    }

    pub(crate) fn abort(&self) {
        self.0.abort();
    }
}

impl Asking<'_> {
    /// What the request reads from now on is of this epoch.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Relaxed)
    }

    /// Returns when the watch is open. A client that takes a place in a queue waits for it; one that gets a free lock
    /// does not need it, and is spared the events of all other locks.
    pub(crate) async fn is_to_wait(&self) -> Result<()> {
        self.watcher.ensure_live().await?;
        self.epoch.store(self.watcher.view().epoch(), Ordering::Relaxed);
        Ok(())
    }
}

impl Places {
    fn view(&self) -> MutexGuard<'_, View> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, view: &mut View, event: &Event) {
        let Some(key) = event.kv() else { return };
        let put = event.event_type() == EventType::Put;
        match self.keyspace.parse(key.key()) {
            Parsed::Hold(name) => {
                view.change(name, key.mod_revision(), if put { Change::Held } else { Change::Freed });
            }
            Parsed::Wait(name, spot) => {
                let change = if put { Change::Joined(spot) } else { Change::Left(spot) };
                view.change(name, key.mod_revision(), change);
            }
            Parsed::Foreign => {}
        }
    }
}

impl Audience for Places {
    fn root(&self) -> &[u8] {
        self.keyspace.root()
    }

    fn take_in(&self, events: &[Event]) {
        let mut view = self.view();
        events.iter().for_each(|event| self.change(&mut view, event));
    }

    fn begin(&self) {
        self.view().begin();
    }

    /// All waiters ask again.
    fn gap(&self) {
        self.view().gap();
    }

    fn is_empty(&self) -> bool {
        self.view().is_empty()
    }

    /// The session's keeper looks after those who wait.
    async fn attend(&self) {
        std::future::pending().await
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.watcher.view().asked(self.name);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use etcd_client::{Txn, TxnOp};
    use tenure_core::LockName;

    use super::*;
    use crate::keys::Spot;
    use crate::test_support::served;
    use crate::{answer, txn};

    /// An answer read before the watch began says nothing of what happens from now on.
    #[test]
    fn the_view_learns_of_what_becomes_of_the_watch() {
        let places = Places { keyspace: Keyspace::new("prefix"), view: Mutex::default() };
        let heard = |watch: &mut Watch| futures_util::FutureExt::now_or_never(watch.next()).is_some();
        assert!(places.is_empty() && places.root().starts_with(b"prefix"));
        let (handle, mut watch) = Watch::channel();
        places.view().listen(b"name", OwnerToken::random(), handle);
        assert!(!places.is_empty());
        let before = places.view().epoch();
        places.begin();
        assert!(places.view().epoch() > before && !heard(&mut watch));
        let before = places.view().epoch();
        places.gap();
        assert!(places.view().epoch() > before && heard(&mut watch));
    }

    /// Who listens hears of it, and asks.
    #[tokio::test]
    async fn a_watch_that_is_ended_is_a_gap_for_who_listens() {
        let (_cluster, driver) = served();
        let watcher = driver.inner.watcher.clone();
        let mut watch = watcher.listen(b"name", OwnerToken::random());
        for end in [false, true] {
            watcher.ensure_live().await.unwrap();
            let heard = tokio::time::timeout(Duration::from_millis(100), watch.next()).await;
            assert!(heard.is_err(), "nothing happened");
            match end {
                false => watcher.abort(),
                true => watcher.close().await,
            }
            tokio::time::timeout(Duration::from_secs(10), watch.next()).await.expect("it is cut off");
        }
    }

    /// A waiter knows its place from the answer to its own request, and what becomes of it from the watch.
    #[tokio::test]
    async fn a_client_that_waits_is_kept_up_to_date_by_the_watch() {
        let (_cluster, driver) = served();
        let (inner, name) = (&driver.inner, LockName::new("name").unwrap());
        let keys = inner.keys(&name);
        let encoded = inner.keyspace.encoded(&keys);
        let spot = |arrival| Spot { arrival, token: OwnerToken::random() };
        let (first, own) = (spot(2), spot(3));
        let put = async |key: Vec<u8>| drop(inner.txn(Txn::new().and_then([TxnOp::put(key, "", None)])).await.unwrap());
        let delete =
            async |key: Vec<u8>| drop(inner.txn(Txn::new().and_then([TxnOp::delete(key, None)])).await.unwrap());
        put(keys.place(&first)).await;
        put(keys.place(&own)).await;
        let _watch = inner.watcher.listen(encoded, own.token);
        let asking = inner.watcher.asking(encoded);
        asking.is_to_wait().await.unwrap();
        let answer = inner.txn(txn::just_look(&keys, Some(&own))).await.unwrap();
        let seen = answer::seen(&answer, &keys).unwrap();
        inner.watcher.view().read(encoded, asking.epoch(), &own.token, &seen);
        let seems_free = async |free: bool, when: &str| {
            let until = tokio::time::Instant::now() + Duration::from_secs(10);
            while inner.watcher.view().seems_free_for(encoded, &own.token) != free {
                assert!(tokio::time::Instant::now() < until, "{when}");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        seems_free(false, "one is before it").await;
        delete(keys.place(&first)).await;
        seems_free(true, "nobody is before it any more").await;
        put(keys.hold()).await;
        seems_free(false, "it is held").await;
        delete(keys.hold()).await;
        seems_free(true, "it is free").await;
        put(keys.place(&spot(1))).await;
        seems_free(false, "another one came before it").await;
    }

    /// For as long as a request is on its way, what it may read is remembered.
    #[tokio::test]
    async fn a_name_is_forgotten_when_nobody_listens_or_asks() {
        let driver = crate::test_support::unserved();
        let watcher = &driver.inner.watcher;
        let watch = watcher.listen(b"name", OwnerToken::random());
        let asking = watcher.asking(b"name");
        drop(watch);
        assert!(!watcher.view().is_empty());
        drop(asking);
        assert!(watcher.view().is_empty());
        drop(watcher.listen(b"name", OwnerToken::random()));
        assert!(watcher.view().is_empty());
    }
}
