//! A token that asks again: what its earlier requests left at the nodes.

mod common;

use common::{Nodes, attempt, grant, hold, quiet};
use tenure_core::driver::{Acquisition, DistributedLock as _};

/// Somebody else had the lock in between: the old fence is not worth anything any more.
#[tokio::test(start_paused = true)]
async fn a_hold_that_most_nodes_lost_is_not_confirmed_by_granting_it_anew() {
    let nodes = Nodes::new(3);
    let (driver, _) = nodes.client();
    let (other, _) = nodes.client();
    let request = attempt("a");
    grant(&driver, &request).await;
    quiet(&driver).await;
    for node in &nodes.0[..2] {
        node.faults().expire("a").unwrap();
    }
    let between = attempt("a");
    let fence = grant(&other, &between).await.fence;
    quiet(&other).await;
    other.release(&hold(&between)).await.unwrap();
    quiet(&other).await;
    if let Acquisition::Granted(grant) = driver.acquire(&request).await.unwrap() {
        assert!(grant.fence > fence, "{} after {fence}", grant.fence);
    }
    quiet(&driver).await;
    assert!(grant(&driver, &request).await.fence > fence);
}
