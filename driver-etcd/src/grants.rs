//! Leases: granted, kept alive and revoked; and leases whose grant was not confirmed.
//!
//! The driver chooses the id of a lease, so that it can revoke a lease whose answer never arrived. A revocation may
//! overtake the request that it should undo, though, and would then find no lease. So a request that is dropped
//! half-way is not forgotten but set aside, and a revocation of the lease also waits for the request's answer.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use etcd_client::LeaseGrantOptions;
use futures_util::future::BoxFuture;
use tenure_core::driver::LeaseInstant;
use tenure_core::{Error, ErrorKind, Result};

use crate::error::is_lease_gone;
use crate::link::Link;

/// The most requests that are put aside; beyond it the lease of a new one is left to its ttl.
const MOST_UNANSWERED: usize = 10_000;

/// A lease as etcd granted it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lease {
    pub(crate) id: i64,
    /// Its real ttl in seconds.
    pub(crate) secs: i64,
    /// When the request for it left, or an earlier instant.
    pub(crate) since: LeaseInstant,
    /// The raft term that it was granted in, or an earlier one; `None` where that is not known.
    pub(crate) term: Option<u64>,
}

impl Lease {
    /// How long it lasts at least, counted from `now`, without a keep-alive.
    pub(crate) fn left_at(&self, now: LeaseInstant) -> Duration {
        seconds(self.secs).saturating_sub(now.since(self.since))
    }
}

pub(crate) fn seconds(secs: i64) -> Duration {
    Duration::from_secs(u64::try_from(secs).unwrap_or_default())
}

/// What a revocation found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Revoked {
    Revoked,
    Absent,
}

type Grant = BoxFuture<'static, Result<Granted>>;

/// What etcd said of a new lease.
struct Granted {
    secs: i64,
    term: u64,
}

pub(crate) struct Leases {
    link: Arc<Link>,
    unanswered: Mutex<HashMap<i64, Grant>>,
}

/// 63 random bits: the id of a lease that does not exist yet.
pub(crate) fn new_id() -> i64 {
    loop {
        let bits = getrandom::u64().expect("the operating system gives random bytes");
        let id = (bits >> 1) as i64;
        if id != 0 {
            return id;
        }
    }
}

async fn request(link: Arc<Link>, id: i64, secs: i64) -> Result<Granted> {
    let options = || LeaseGrantOptions::new().with_id(id);
    let answer = link.call(|stubs| async move { stubs.lease().grant(secs, Some(options())).await }).await?;
    Ok(Granted { secs: answer.ttl(), term: link.note(answer.header()) })
}

impl Leases {
    pub(crate) fn new(link: Arc<Link>) -> Self {
        Self { link, unanswered: Mutex::default() }
    }

    /// Makes the lease. Dropped half-way, the request is put aside for the task that revokes the lease.
    pub(crate) async fn grant(&self, id: i64, secs: i64) -> Result<Lease> {
        let request: Grant = Box::pin(request(Arc::clone(&self.link), id, secs));
        self.made(id, Kept { leases: self, id, request: Some(request) }.answer()).await
    }

    /// Makes a lease that is not revoked if this is dropped half-way: it ends by itself.
    pub(crate) async fn grant_loosely(&self, id: i64, secs: i64) -> Result<Lease> {
        self.made(id, request(Arc::clone(&self.link), id, secs)).await
    }

    async fn made(&self, id: i64, request: impl Future<Output = Result<Granted>>) -> Result<Lease> {
        let (since, before) = (LeaseInstant::before_send(), self.link.term());
        let Granted { secs, term } = request.await?;
        if secs <= 0 {
            return Err(Error::new(ErrorKind::Protocol, format!("etcd granted a lease of {secs} s")));
        }
        // An answer carries the term in which it was given, and the lease may be of an earlier one. Not of one that
        // ended before it was asked for, though.
        Ok(Lease { id, secs, since, term: (term == before && term > 0).then_some(term) })
    }

    /// Revokes the lease, with everything on it, and outlasts a request for it that is still on its way.
    pub(crate) async fn revoke(&self, id: i64) -> Result<Revoked> {
        let aside = self.aside().remove(&id);
        let Some(request) = aside else { return self.revoke_once(id).await };
        let mut kept = Kept { leases: self, id, request: Some(request) };
        // An existing lease is freed at once, even if the other answer never comes.
        match futures_util::future::join(self.revoke_once(id), kept.answer_in_place()).await {
            // The request was answered by now; the first revocation may have overtaken it.
            (Ok(_), Ok(_)) => self.revoke_once(id).await,
            (first, _) => first,
        }
    }

    async fn revoke_once(&self, id: i64) -> Result<Revoked> {
        self.link
            .call(|stubs| async move {
                match stubs.lease().revoke(id).await {
                    Ok(_) => Ok(Revoked::Revoked),
                    Err(error) if is_lease_gone(&error) => Ok(Revoked::Absent),
                    Err(error) => Err(error),
                }
            })
            .await
    }

    /// Sets the lease to its full ttl; `false` if there is no such lease. A stream for one answer, so that a stream
    /// that stalls holds up nothing else.
    pub(crate) async fn keep_alive(&self, id: i64) -> Result<bool> {
        self.link
            .call(|stubs| async move {
                match stubs.lease().keep_alive(id).await {
                    Ok(_) => Ok(true),
                    Err(error) if is_lease_gone(&error) => Ok(false),
                    Err(error) => Err(error),
                }
            })
            .await
    }

    /// How many seconds the lease still lasts; `None` if it has ended.
    pub(crate) async fn remaining(&self, id: i64) -> Result<Option<u64>> {
        let secs = self
            .link
            .call(|stubs| async move { stubs.lease().time_to_live(id, None).await.map(|answer| answer.ttl()) })
            .await?;
        Ok(u64::try_from(secs).ok())
    }

    /// This lease will not be revoked: a request for it that is still on its way is dropped.
    pub(crate) fn let_go(&self, id: i64) {
        self.aside().remove(&id);
    }

    fn aside(&self) -> MutexGuard<'_, HashMap<i64, Grant>> {
        self.unanswered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request for a lease; put aside if it is dropped before its answer.
struct Kept<'a> {
    leases: &'a Leases,
    id: i64,
    request: Option<Grant>,
}

impl Kept<'_> {
    async fn answer(mut self) -> Result<Granted> {
        self.answer_in_place().await
    }

    async fn answer_in_place(&mut self) -> Result<Granted> {
        let Some(request) = &mut self.request else {
            return Err(Error::new(ErrorKind::Protocol, "a request was awaited twice"));
        };
        let answer = request.await;
        self.request = None;
        answer
    }
}

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        if let Some(request) = self.request.take() {
            let mut aside = self.leases.aside();
            if aside.len() < MOST_UNANSWERED {
                aside.insert(self.id, request);
            }
        }
    }
}

impl fmt::Debug for Leases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leases").field("unanswered", &self.aside().len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;
    use crate::link::reads;
    use crate::test_support::{served, unserved};

    #[tokio::test]
    async fn so_many_requests_without_an_answer_are_put_aside_and_what_nobody_revokes_is_dropped() {
        let leases = &unserved().inner.leases;
        let give_up = |id: usize| {
            let request: Grant = Box::pin(std::future::pending());
            drop(Kept { leases, id: id as i64, request: Some(request) });
            leases.aside().len()
        };
        (0..MOST_UNANSWERED).for_each(|id| assert_eq!(give_up(id), id + 1));
        assert_eq!(give_up(MOST_UNANSWERED), MOST_UNANSWERED, "that one is left to its ttl");
        leases.let_go(7);
        assert!(!leases.aside().contains_key(&7));
        assert_eq!(give_up(MOST_UNANSWERED), MOST_UNANSWERED, "there is room again");
        drop(Kept { leases, id: 7, request: None });
        assert!(!leases.aside().contains_key(&7), "it was answered");
    }

    /// A leader that was elected since it was asked for knows nothing of leases that an earlier one took for ended.
    #[tokio::test]
    async fn a_lease_is_of_a_term_that_was_known_before_it_was_asked_for() {
        let (_cluster, driver) = served();
        let leases = &driver.inner.leases;
        let term_of = async |term| {
            let granted = async { Ok(Granted { secs: 5, term }) };
            leases.made(7, granted).await.unwrap().term
        };
        assert_eq!((term_of(0).await, term_of(1).await), (None, None), "none was known");
        assert_eq!(leases.grant(new_id(), 5).await.unwrap().term, None);
        let (now, lease) = (leases.link.term(), leases.grant(new_id(), 5).await.unwrap());
        assert!(now > 1 && lease.term == Some(now), "term {now}, {lease:?}");
        assert_eq!((term_of(now).await, term_of(now + 1).await), (Some(now), None));
        let answer = leases.link.txn(etcd_client::Txn::new()).await.unwrap();
        assert_eq!((leases.link.term(), crate::link::term(&answer).unwrap()), (now, now));
        assert!(crate::link::revision(&answer).unwrap() > 0 && reads(&answer).is_empty());
    }

    #[test]
    fn a_lease_that_lasts_for_no_time_is_none() {
        let leases = &unserved().inner.leases;
        let made = |secs| leases.made(7, async move { Ok(Granted { secs, term: 1 }) }).now_or_never().unwrap();
        assert_eq!(made(1).unwrap().secs, 1);
        for secs in [0, -1] {
            assert_eq!(made(secs).unwrap_err().kind(), ErrorKind::Protocol);
        }
    }
}
