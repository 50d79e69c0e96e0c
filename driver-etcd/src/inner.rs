//! The state that the clones of a driver share.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use etcd_client::{Txn, TxnResponse};
use tenure_core::driver::AcquireRequest;
use tenure_core::{LockName, OwnerToken, Result};

use crate::config::EtcdConfig;
use crate::fences::Fences;
use crate::grants::{Leases, Revoked};
use crate::idle::Idle;
use crate::keys::{Keyspace, NameKeys, PermitSpace};
use crate::link::Link;
use crate::permits::Crowds;
use crate::queue::{Clock, Delivered, HeldLooks, QueueSpace, Signals};
use crate::session::Session;
use crate::tickets::Tickets;
use crate::watcher::Watcher;

/// The shortest lease of a cluster with the default election timeout.
pub(crate) const SHORTEST: Duration = Duration::from_secs(2);

pub(crate) struct Inner {
    pub(crate) config: EtcdConfig,
    pub(crate) link: Arc<Link>,
    pub(crate) leases: Arc<Leases>,
    pub(crate) idle: Arc<Idle>,
    pub(crate) keyspace: Keyspace,
    pub(crate) fences: Fences,
    pub(crate) tickets: Tickets,
    pub(crate) watcher: Watcher,
    pub(crate) session: Arc<Session>,
    pub(crate) permits: PermitSpace,
    pub(crate) crowds: Crowds,
    pub(crate) queues: QueueSpace,
    pub(crate) clock: Arc<Clock>,
    pub(crate) signals: Signals,
    pub(crate) delivered: Delivered,
    pub(crate) held_looks: HeldLooks,
    /// How many receives are still to start behind the first due message, since others took the earliest ones.
    pub(crate) crowded: AtomicU32,
}

impl Inner {
    pub(crate) fn new(config: EtcdConfig) -> Self {
        let link = Arc::new(Link::new(config.clone()));
        let keyspace = Keyspace::new(&config.prefix);
        let queues = QueueSpace::new(&config.prefix);
        let leases = Arc::new(Leases::new(Arc::clone(&link)));
        let watcher = Watcher::new(Arc::clone(&link), keyspace.clone());
        let session = Session::new(Arc::clone(&link), Arc::clone(&leases), keyspace.clone(), watcher.clone());
        let permits = PermitSpace::new(&config.prefix);
        let crowds = Crowds::new(Arc::clone(&link), permits.clone());
        let clock = Arc::new(Clock::default());
        let fences = Fences::new(Arc::clone(&link), keyspace.fences(), config.fence_floor);
        let signals = Signals::new(Arc::clone(&link), Arc::clone(&leases), queues.clone(), Arc::clone(&clock));
        Self {
            leases,
            idle: Arc::default(),
            watcher,
            session,
            signals,
            clock,
            delivered: Delivered::default(),
            held_looks: HeldLooks::default(),
            crowded: AtomicU32::new(0),
            permits,
            crowds,
            queues,
            fences,
            tickets: Tickets::default(),
            config,
            link,
            keyspace,
        }
    }

    pub(crate) fn keys(&self, name: &LockName) -> NameKeys {
        self.keyspace.of(name)
    }

    pub(crate) async fn txn(&self, txn: Txn) -> Result<TxnResponse> {
        self.link.txn(txn).await
    }

    /// Revokes a lease of this token.
    pub(crate) async fn give_up(&self, token: &OwnerToken, lease: i64) -> Result<Revoked> {
        let revoked = self.leases.revoke(lease).await?;
        self.tickets.end(token, lease);
        Ok(revoked)
    }

    /// Keeps a lease of this token for later, if nothing is on it nor can come to be on it; revokes it otherwise.
    pub(crate) async fn give_back(&self, token: &OwnerToken, lease: i64) -> Result<()> {
        if !self.keep_for_later(token, lease) {
            self.give_up(token, lease).await?;
        }
        Ok(())
    }

    /// Keeps a lease of this token, which nothing is on, for later, unless something can come to be on it.
    pub(crate) fn keep_for_later(&self, token: &OwnerToken, lease: i64) -> bool {
        let Some(free) = self.tickets.free(token, lease, |lease| self.idle.wants(lease)) else { return false };
        // Only the caller that strikes it may give it away: an abandonment may have come in between, and revokes it.
        let struck = self.tickets.end(token, lease);
        if struck {
            self.idle.put(free, &self.leases);
        }
        struck
    }

    /// The ttl in the seconds that etcd counts in.
    pub(crate) fn ttl_secs(request: &AcquireRequest) -> Result<i64> {
        let ttl = request.ttl.get();
        if ttl.subsec_nanos() != 0 || ttl < SHORTEST {
            let text = format!("etcd supports leases of whole seconds of at least {:?}, not of {ttl:?}", SHORTEST);
            return Err(crate::config::invalid(text));
        }
        Ok(i64::try_from(ttl.as_secs()).unwrap_or(i64::MAX))
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.session.abort();
        self.watcher.abort();
        self.crowds.abort();
        self.signals.abort();
    }
}

#[cfg(test)]
mod tests {
    use tenure_core::driver::Ttl;

    use super::*;
    use crate::grants::new_id;
    use crate::keys::Spot;
    use crate::test_support::{served, unserved};
    use crate::tickets::Place;

    #[test]
    fn etcd_keeps_leases_of_whole_seconds_from_the_shortest_on() {
        let secs = |millis| {
            let ttl = Ttl::new(Duration::from_millis(millis)).unwrap();
            Inner::ttl_secs(&AcquireRequest::new(LockName::new("a").unwrap(), OwnerToken::random(), ttl)).ok()
        };
        assert_eq!([1_000, 2_000, 2_500, 3_000, 60_000].map(secs), [None, Some(2), None, Some(3), Some(60)]);
    }

    #[tokio::test]
    async fn a_lease_that_is_of_no_use_is_revoked_and_forgotten() {
        let (_cluster, driver) = served();
        let (inner, token) = (&driver.inner, OwnerToken::random());
        let [unknown, made] = [new_id(), new_id()];
        for id in [unknown, made] {
            inner.tickets.begin(&token, id, 60).unwrap();
        }
        inner.leases.grant(unknown, 60).await.unwrap();
        let lease = inner.leases.grant(made, 60).await.unwrap();
        inner.tickets.made(&token, lease);
        inner.give_back(&token, unknown).await.unwrap();
        assert!(!inner.lives(unknown).await, "it is not known to exist");
        assert_eq!(inner.tickets.leases(&token), [made]);
        inner.give_back(&token, made).await.unwrap();
        assert!(inner.lives(made).await && !inner.tickets.know(&token), "it is kept for later");
        assert!(!inner.keep_for_later(&token, made), "it is not this token's any more");
    }

    #[tokio::test]
    async fn an_outage_says_nothing_of_a_lease() {
        let leases = &unserved().inner.leases;
        assert!(leases.keep_alive(7).await.is_err() && leases.revoke(7).await.is_err());
    }

    /// The driver has one listener and one waiter.
    #[tokio::test]
    async fn a_driver_that_is_dropped_ends_its_tasks() {
        let (_cluster, driver) = served();
        let (watcher, session) = (driver.inner.watcher.clone(), Arc::clone(&driver.inner.session));
        let _watch = watcher.listen(b"name", OwnerToken::random());
        watcher.ensure_live().await.unwrap();
        let live = session.ensure().await.unwrap();
        let (keys, spot) =
            (driver.inner.keys(&LockName::new("a").unwrap()), Spot { arrival: 1, token: OwnerToken::random() });
        session.present(&keys, &Place { spot, revision: 1, lease: live.lease }, Duration::from_secs(60));
        let before = watcher.view().epoch();
        drop(driver);
        let over = async {
            while watcher.view().epoch() == before || session.is_looked_after() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), over).await.expect("they end");
    }
}
