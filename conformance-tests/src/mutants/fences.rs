//! Mutants of fencing tokens.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tenure_core::driver::{
    AcquireRequest, Acquisition, Begun, ForceReleased, Grant, Hold, Released, Renewed, Ttl, Watch,
};
use tenure_core::{FencingToken, LockName, OwnerToken, Result};
use tokio::time::Instant;

use super::maker::{Mutant, mutant};
use super::turns::reported;
use super::twist::{Inner, Shared, Twist, flaw, regranted};

#[rustfmt::skip]
pub(super) const MUTANTS: &[Mutant] = &[
    mutant!("fence/constant", "every grant has the same fence",
        Fences::new(Resets::Always), ["fence/grows-after-force", "fence/stale-writer-is-refused"]),
    mutant!("fence/resets-after-release", "a release forgets the counter",
        Fences::new(Resets::Released),
        ["all/each-has-its-fence", "fence/outlives-a-restart", "lock/duplicated-requests-change-nothing"]),
    mutant!("fence/resets-after-expiry", "the counter ends with the lease",
        Fences::new(Resets::Expired), ["fence/stale-writer-is-refused", "reentrant/fences-grow-across-both-kinds"]),
    mutant!("fence/resets-after-force", "a forced release forgets the counter",
        Fences::new(Resets::Forced), ["fence/grows-after-force", "reentrant/fences-grow-across-both-kinds"]),
    mutant!("fence/resets-after-an-hour", "an idle counter is forgotten",
        Fences::new(Resets::Idle), ["fence/outlives-idleness", "reentrant/fences-grow-across-both-kinds"]),
    mutant!("fence/grows-with-renewals", "a renewal takes a new fence",
        Fences::new(Resets::Renewed), ["fence/renewal-keeps-it", "reentrant/fences-grow-across-both-kinds"]),
    mutant!("fence/sinks", "later grants have smaller fences",
        flaw!(
            acquire(inner, request) => inner.locks().acquire(request).await.map(sunk),
            enter(inner, owner, request) => inner.reentrant()?.enter(owner, request).await.map(sunk),
        ), ["fence/grows-after-force", "fence/stale-writer-is-refused"]),
    mutant!("fence/no-floor", "fences count on from the first one, whatever floor there is",
        flaw!(counters: Shared<HashMap<LockName, u64>>; acquire(inner, request) => {
            Ok(match inner.locks().acquire(request).await? {
                Acquisition::Granted(grant) if grant.begun == Begun::Now => {
                    let mut names = counters.lock();
                    let next = names.entry(request.name.clone()).or_insert(grant.fence.get());
                    let fence = FencingToken::new(*next).unwrap_or(grant.fence);
                    *next += u64::from(grant.fences);
                    Acquisition::Granted(grant.with_fence(fence))
                }
                answer => answer,
            })
        }), ["fence/beyond-a-floor"]),
    mutant!("fence/per-client", "each connection counts for itself",
        PerClient::default(),
        ["fence/grows-after-expiry", "fence/grows-with-every-grant", "fence/is-a-constant-of-the-guard",
         "lock/contended-history-is-clean"]),
];

/// When the counter of a name goes wrong.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Resets {
    Always,
    Released,
    Expired,
    Forced,
    Idle,
    Renewed,
}

/// A counter for each name, kept here.
struct Fences {
    resets: Resets,
    names: Shared<HashMap<LockName, Counter>>,
}

struct Counter {
    last: u64,
    granted_at: Instant,
    open: bool,
    /// The fence that each token received.
    reported: HashMap<OwnerToken, u64>,
}

impl Fences {
    fn new(resets: Resets) -> Self {
        Self { resets, names: Shared::default() }
    }

    fn fence(&self, name: &LockName, token: OwnerToken, grant: Grant) -> Grant {
        let mut names = self.names.lock();
        let fresh = || Counter { last: 0, granted_at: Instant::now(), open: false, reported: HashMap::new() };
        let counter = names.entry(name.clone()).or_insert_with(fresh);
        if grant.begun == Begun::Now && grant.depth == 1 {
            let forget = match self.resets {
                Resets::Always => true,
                Resets::Expired => counter.open,
                Resets::Idle => counter.granted_at.elapsed() > Duration::from_secs(3_600),
                Resets::Released | Resets::Forced | Resets::Renewed => false,
            };
            counter.last = if forget { 1 } else { counter.last + 1 };
            counter.open = true;
            counter.granted_at = Instant::now();
        }
        let known = counter.reported.get(&token).copied().filter(|_| self.resets != Resets::Renewed);
        let number = known.unwrap_or(counter.last);
        counter.reported.insert(token, number);
        grant.with_fence(FencingToken::new(number.max(1)).expect("at least 1"))
    }

    fn ended(&self, name: &LockName, forget: bool) {
        if let Some(counter) = self.names.lock().get_mut(name) {
            counter.open = false;
            if forget {
                counter.last = 0;
            }
        }
    }
}

#[async_trait]
impl Twist for Fences {
    async fn acquire(&self, inner: &Inner, request: &AcquireRequest) -> Result<Acquisition> {
        let answer = inner.locks().acquire(request).await?;
        Ok(regranted(answer, |grant| self.fence(&request.name, request.token, grant)))
    }

    async fn release(&self, inner: &Inner, hold: &Hold) -> Result<Released> {
        let released = inner.locks().release(hold).await?;
        if released == Released::Released {
            self.ended(&hold.name, self.resets == Resets::Released);
        }
        Ok(released)
    }

    async fn renew(&self, inner: &Inner, ttl: Ttl, holds: &[Hold]) -> Vec<Result<Renewed>> {
        if self.resets == Resets::Renewed {
            for hold in holds {
                if let Some(counter) = self.names.lock().get_mut(&hold.name) {
                    counter.last += 1;
                }
            }
        }
        inner.locks().renew(ttl, holds).await
    }

    async fn force_release(
        &self,
        inner: &Inner,
        name: &LockName,
        expected: Option<FencingToken>,
    ) -> Result<ForceReleased> {
        self.ended(name, self.resets == Resets::Forced);
        inner.locks().force_release(name, expected).await
    }
}

fn sunk(answer: Acquisition) -> Acquisition {
    regranted(answer, |grant| grant.with_fence(FencingToken::new((1 << 62) - grant.fence.get()).unwrap_or(grant.fence)))
}

#[derive(Default)]
struct PerClient(Arc<Shared<HashMap<(usize, LockName), u64>>>);

impl PerClient {
    fn next(&self, client: usize, name: &LockName) -> Option<FencingToken> {
        let mut counters = self.0.lock();
        let counter = counters.entry((client, name.clone())).or_default();
        *counter += 1;
        FencingToken::new(*counter)
    }
}

#[async_trait]
impl Twist for PerClient {
    async fn acquire(&self, inner: &Inner, request: &AcquireRequest) -> Result<Acquisition> {
        Ok(match inner.locks().acquire(request).await? {
            Acquisition::Granted(grant) if grant.begun == Begun::Now => {
                let fence = self.next(inner.client(), &request.name).unwrap_or(grant.fence);
                Acquisition::Granted(grant.with_fence(fence))
            }
            answer => answer,
        })
    }

    async fn watch(&self, inner: &Inner, name: &LockName, token: &OwnerToken) -> Result<Watch> {
        let (counters, client, of) = (Self(Arc::clone(&self.0)), inner.client(), name.clone());
        Ok(reported(inner.locks().watch(name, token).await?, move |handed| {
            handed.with_fence(counters.next(client, &of).unwrap_or(handed.fence))
        }))
    }
}
