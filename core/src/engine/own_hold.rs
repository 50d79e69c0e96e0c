//! A warning when a wait is for a hold of the same client. That may be another task's, which is still at work; or the waiter's own,
//! and then nobody can release it.

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;

use tokio::time::sleep;

use super::lease::Lease;
use super::shared::Shared;
use crate::telemetry;
use crate::value::name::LockName;
use crate::value::ttl::Ttl;

/// Waits, and warns once if one hold of the client is in the way for long.
pub(crate) async fn watched<F: Future>(shared: &Shared, name: &LockName, ttl: Ttl, wait: F) -> F::Output {
    if !telemetry::REPORTS {
        return wait.await;
    }
    tokio::select! {
        biased;
        ended = wait => ended,
        never = warn(shared, name, ttl) => match never {},
    }
}

/// Looks half a ttl after the wait began, so that short waits cost nothing, and again after a whole one: a lock that goes from task
/// to task has another holder by then.
async fn warn(shared: &Shared, name: &LockName, ttl: Ttl) -> Infallible {
    let half = ttl.get() / 2;
    sleep(half).await;
    let held = |lease: &Lease| if lease.name() == name { lease.holder() } else { None };
    let found = shared.keeper.find(|lease| Some((held(lease)?, Arc::downgrade(lease))));
    if let Some((holder, lease)) = found {
        sleep(half).await;
        if lease.upgrade().is_some_and(|lease| lease.holder() == Some(holder)) {
            telemetry::waits_for_own_client(name, half * 2);
        }
    }
    pending().await
}
