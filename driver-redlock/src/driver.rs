//! The driver type: implements the core's traits over the quorum.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use tenure_core::driver::{
    AcquireRequest, Acquisition, Backend, CountedReentry, DistributedLock, Exclusion, Fencing, ForceReleased, Hold,
    Inspection, Introspection, LockCapabilities, Released, Renewed, Revocation, Ttl, TtlRange, Waiting, Watch,
};
use tenure_core::{FencingToken, LockName, OwnerToken, Result};

use crate::elections::Elections;
use crate::shared::Shared;
use crate::{acquire, inspect, release, renew};

/// The driver's short name.
const DRIVER: &str = "redlock";

/// How long [`DistributedLock::close`] lets work in the background continue.
const CLOSE_WITHIN: Duration = Duration::from_secs(1);

/// A driver for locks over a quorum of independent nodes. Clones share all state.
///
/// Made by [`Redlock::builder`]; the [crate's documentation](crate) lists its promises.
#[derive(Clone, Debug)]
pub struct Redlock(pub(crate) Arc<Shared>);

impl Redlock {
    /// The names of the nodes that are known to keep this hold, in order; `None` if the driver does not know the hold.
    ///
    /// `token` is the one of the guard. Fewer than all of them are enough as long as they are a majority. If a hold
    /// lacks nodes for several renewals, those nodes are down, or have granted the lock to another token. Answers from
    /// memory, without a request.
    #[must_use]
    pub fn healthy_nodes(&self, token: &OwnerToken) -> Option<Vec<&str>> {
        let slot = self.0.slots.get(token)?;
        let (held, granted) = {
            let state = slot.state();
            (state.attempt_state.is_held(), state.attempt_state.granted())
        };
        held.then(|| granted.iter().map(|index| self.0.nodes[index].name.as_str()).collect())
    }

    /// The number of tasks in the background: late answers, and the undoing of votes that won nothing. Each ends by
    /// itself; zero when nothing is left behind.
    #[must_use]
    pub fn background_work(&self) -> usize {
        self.0.background.len()
    }

    /// The results of all attempts to take a lock so far.
    #[must_use]
    pub fn elections(&self) -> Elections {
        self.0.elections.read()
    }

    /// Makes all nodes vote in this quorum from now on, whatever list of nodes they have seen before.
    ///
    /// Use it after a change of the list. Call it while no client uses the old list, and not before the last lease
    /// taken with it has ended: two lists in use at once are two quorums that may not exclude each other.
    ///
    /// # Errors
    ///
    /// The first error of a node; the other nodes may have been enrolled.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may leave only some nodes enrolled; call it again.
    pub async fn enroll_nodes(&self) -> Result<()> {
        let reported = self.0.nodes.iter().map(|node| node.bounded(node.api.enroll(&self.0.electorate)));
        join_all(reported).await.into_iter().collect()
    }

    fn of_nodes(&self) -> impl Iterator<Item = LockCapabilities> {
        self.0.nodes.iter().map(|node| node.api.capabilities())
    }
}

impl From<Redlock> for Backend {
    fn from(driver: Redlock) -> Self {
        let driver = Arc::new(driver);
        let reentrant = CountedReentry::new(Arc::clone(&driver) as _, Arc::clone(&driver.0.owners));
        Self::new(Arc::clone(&driver) as _).with_reentrant(Arc::new(reentrant)).with_doctor(driver)
    }
}

#[async_trait]
impl DistributedLock for Redlock {
    fn driver(&self) -> &'static str {
        DRIVER
    }

    fn capabilities(&self) -> LockCapabilities {
        let all = |holds: fn(&LockCapabilities) -> bool| self.of_nodes().all(|node| holds(&node));
        let ttl = |of: fn(&TtlRange) -> Duration| self.of_nodes().map(move |node| of(&node.ttl));
        LockCapabilities::new(
            Exclusion::Quorum { nodes: u8::try_from(self.0.n()).unwrap_or(u8::MAX) },
            if all(|node| node.fencing == Fencing::Strict) { Fencing::Strict } else { Fencing::ClockSeeded },
            if all(|node| node.waiting == Waiting::Poll) { Waiting::Poll } else { Waiting::Notified },
            TtlRange {
                min: ttl(|range| range.min).max().unwrap_or(Ttl::MIN),
                max: ttl(|range| range.max).chain([self.0.max_ttl]).min().unwrap_or(Ttl::MAX),
                granularity: ttl(|range| range.granularity).max().unwrap_or(Duration::from_millis(1)),
            },
        )
        .with_introspection(match all(|node| node.introspection == Introspection::Full) {
            true => Introspection::Full,
            false => Introspection::None,
        })
        .with_revocation(match all(|node| node.revocation == Revocation::Forced) {
            true => Revocation::Forced,
            false => Revocation::None,
        })
        .with_max_waiters(self.of_nodes().filter_map(|node| node.max_waiters).min())
        .with_renew_batch(self.of_nodes().map(|node| node.renew_batch).min().unwrap_or(1))
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Acquisition> {
        let answer = acquire::acquire(&self.0, request).await;
        answer.map_err(|error| error.during(DRIVER, "acquire", &request.name))
    }

    async fn renew(&self, ttl: Ttl, holds: &[Hold]) -> Vec<Result<Renewed>> {
        let names = holds.iter().map(|hold| &hold.name);
        named(renew::renew(&self.0, ttl, holds).await, names)
    }

    async fn release(&self, hold: &Hold) -> Result<Released> {
        release::release(&self.0, hold).await.map_err(|error| error.during(DRIVER, "release", &hold.name))
    }

    async fn abandon(&self, hold: &Hold) -> Result<()> {
        release::abandon(&self.0, hold).await.map_err(|error| error.during(DRIVER, "abandon", &hold.name))
    }

    async fn watch(&self, name: &LockName, token: &OwnerToken) -> Result<Watch> {
        self.0.ensure_open()?;
        let slot = self.0.slots.open(name, *token, self.0.n());
        slot.map(|slot| acquire::watch(&slot)).map_err(|error| error.during(DRIVER, "watch", name))
    }

    async fn inspect(&self, name: &LockName) -> Result<Inspection> {
        inspect::inspect(&self.0, name).await.map_err(|error| error.during(DRIVER, "inspect", name))
    }

    async fn force_release(&self, name: &LockName, expected: Option<FencingToken>) -> Result<ForceReleased> {
        release::force_release(&self.0, name, expected)
            .await
            .map_err(|error| error.during(DRIVER, "force_release", name))
    }

    async fn close(&self) {
        self.0.closed.store(true, Ordering::Release);
        self.0.background.drain(CLOSE_WITHIN).await;
        join_all(self.0.nodes.iter().map(|node| node.api.close())).await;
    }
}

fn named<'a>(answers: Vec<Result<Renewed>>, names: impl Iterator<Item = &'a LockName>) -> Vec<Result<Renewed>> {
    let with_name = |(answer, name): (Result<Renewed>, _)| answer.map_err(|error| error.during(DRIVER, "renew", name));
    answers.into_iter().zip(names).map(with_name).collect()
}
