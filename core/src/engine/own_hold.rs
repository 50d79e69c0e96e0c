//! A warning when a wait is for a hold of the same client. That may be another task's, which is still at work; or the waiter's own,
//! and then nobody can release it.

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;

use tokio::time::sleep;

use super::attempt::Ask;
use super::shared::Shared;
use crate::telemetry;

/// Waits, and warns once if one hold of the client is in the way for long.
pub(super) async fn watched<F: Future>(shared: &Shared, ask: &Ask, wait: F) -> F::Output {
    if !telemetry::REPORTS {
        return wait.await;
    }
    tokio::select! {
        biased;
        ended = wait => ended,
        never = warn(shared, ask) => match never {},
    }
}

/// Looks half a ttl after the wait began, so that short waits cost nothing, and again after a whole one: a lock that goes from task
/// to task has another holder by then.
async fn warn(shared: &Shared, ask: &Ask) -> Infallible {
    let half = ask.ttl.get() / 2;
    sleep(half).await;
    let of_this_name = shared.keeper.leases().into_iter().filter(|lease| *lease.name() == ask.name);
    let found = of_this_name.filter_map(|lease| Some((lease.holder()?, Arc::downgrade(&lease)))).next();
    if let Some((holder, lease)) = found {
        sleep(half).await;
        if lease.upgrade().is_some_and(|lease| lease.holder() == Some(holder)) {
            telemetry::waits_for_own_client(&ask.name, half * 2);
        }
    }
    pending().await
}
