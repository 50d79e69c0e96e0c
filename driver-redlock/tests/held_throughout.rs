//! Holds whose nodes come and go: what a release, an operator's look and another process make of them.

mod common;

use common::{Nodes, attempt, busy, grant, hold, name, quiet, renewal};
use tenure_core::Label;
use tenure_core::driver::{AcquireRequest, DistributedLock as _, Released, Renewed};
use tenure_memory::{MemoryDriver, Operation};
use tenure_redlock::Redlock;

async fn renew(driver: &Redlock, request: &AcquireRequest) {
    let renewed = driver.renew(&[renewal(request)]).await.remove(0).unwrap();
    assert!(matches!(renewed, Renewed::Extended { .. }), "{renewed:?}");
    quiet(driver).await;
}

/// The node loses the lock and is taken back, and nobody hears of it.
async fn take_back_unheard(driver: &Redlock, request: &AcquireRequest, node: &MemoryDriver, link: &MemoryDriver) {
    node.faults().expire("a").unwrap();
    link.faults().lose_reply_next(Operation::Acquire);
    renew(driver, request).await;
    renew(driver, request).await;
}

#[tokio::test(start_paused = true)]
async fn a_hold_of_nodes_that_were_taken_back_unheard_is_released_and_not_lost() {
    let nodes = Nodes::new(3);
    let (driver, links) = nodes.client();
    let request = attempt("a");
    grant(&driver, &request).await;
    quiet(&driver).await;
    take_back_unheard(&driver, &request, &nodes.0[1], &links[1]).await;
    take_back_unheard(&driver, &request, &nodes.0[2], &links[2]).await;
    assert_eq!(nodes.held("a").await, 3);
    assert_eq!(driver.release(&hold(&request)).await.unwrap(), Released::Released);
    quiet(&driver).await;
    assert_eq!(nodes.held("a").await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_hold_with_a_node_that_was_unheard_at_the_grant_is_released_and_not_lost() {
    let nodes = Nodes::new(3);
    let (driver, links) = nodes.client();
    links[2].faults().lose_reply_next(Operation::Acquire);
    let request = attempt("a");
    grant(&driver, &request).await;
    quiet(&driver).await;
    nodes.0[2].faults().expire("a").unwrap();
    renew(&driver, &request).await;
    renew(&driver, &request).await;
    nodes.0[0].faults().restart_empty();
    renew(&driver, &request).await;
    nodes.0[0].faults().restart_empty();
    assert_eq!(driver.release(&hold(&request)).await.unwrap(), Released::Released);
    quiet(&driver).await;
    assert_eq!(nodes.held("a").await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_hold_of_nodes_that_were_taken_back_unheard_and_lost_it_again_is_lost() {
    let nodes = Nodes::new(3);
    let (driver, links) = nodes.client();
    let request = attempt("a");
    grant(&driver, &request).await;
    quiet(&driver).await;
    for node in [1, 2] {
        take_back_unheard(&driver, &request, &nodes.0[node], &links[node]).await;
    }
    for node in &nodes.0[1..] {
        node.faults().expire("a").unwrap();
    }
    assert_eq!(driver.release(&hold(&request)).await.unwrap(), Released::NotHeld);
    quiet(&driver).await;
    assert_eq!(nodes.held("a").await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_hold_whose_nodes_know_it_by_fences_of_their_own_is_still_seen() {
    let nodes = Nodes::new(3);
    let (driver, _) = nodes.client();
    let request = AcquireRequest { label: Some(Label::new("me").unwrap()), ..attempt("a") };
    let fence = grant(&driver, &request).await.fence;
    quiet(&driver).await;
    for (node, times) in [(1, 2), (2, 1)] {
        for _ in 0..times {
            nodes.0[node].faults().expire("a").unwrap();
            renew(&driver, &request).await;
        }
    }
    let holder = driver.inspect(&name("a")).await.unwrap().holder.expect("all three nodes serve it");
    assert_eq!((holder.fence, holder.label), (Some(fence), request.label));
    busy(&driver, &attempt("a")).await;
}
