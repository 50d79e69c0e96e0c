//! Holds whose nodes come and go: what a release, an operator's look and another process make of them.

use crate::common::{Nodes, attempt, busy, grant, hold, name, quiet};
use tenure_core::Label;
use tenure_core::driver::{
    AcquireRequest, Ballot, DistributedLock as _, Electorate, QuorumNode as _, Released, Renewed,
};
use tenure_memory::{MemoryDriver, Operation};
use tenure_redlock::Redlock;

async fn renew(driver: &Redlock, request: &AcquireRequest) {
    let renewed = driver.renew(request.ttl, &[hold(request)]).await.remove(0).unwrap();
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
async fn who_took_over_a_hold_takes_nodes_back_that_lost_it() {
    let nodes = Nodes::new(3);
    let (first, _) = nodes.client();
    let (second, links) = nodes.client();
    let request = attempt("a");
    let fence = grant(&first, &request).await.fence;
    quiet(&first).await;
    renew(&second, &request).await;
    nodes.0[2].faults().expire("a").unwrap();
    renew(&second, &request).await;
    assert_eq!(nodes.held("a").await, 3);
    links[0].faults().outage();
    renew(&second, &request).await;
    links[0].faults().heal();
    assert_eq!(second.release(&hold(&request)).await.unwrap(), Released::Released);
    quiet(&second).await;
    assert_eq!(nodes.held("a").await, 0);
    assert!(grant(&first, &attempt("a")).await.fence > fence);
}

#[tokio::test(start_paused = true)]
async fn a_hold_whose_nodes_know_it_by_fences_of_their_own_is_still_seen() {
    let nodes = Nodes::new(3);
    let (driver, _) = nodes.client();
    let request = attempt("a").with_label(Some(Label::new("me").unwrap()));
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

/// Elections that were lost before leave tokens of their own at the nodes which granted; who takes over knows none of them.
#[tokio::test(start_paused = true)]
async fn a_hold_whose_nodes_know_it_by_other_tokens_cannot_be_taken_over_and_continues_where_it_was_won() {
    let nodes = Nodes::new(3);
    let (first, _) = nodes.client();
    let (second, _) = nodes.client();
    let request = attempt("a");
    for free in [0, 1] {
        let others: Vec<_> = (0..3).filter(|node| *node != free).map(|node| (node, attempt("a"))).collect();
        for (node, other) in &others {
            let electorate = Electorate::of(["n0", "n1", "n2"]);
            let ballot = Ballot::new(other.clone(), electorate);
            nodes.0[*node].vote(&ballot).await.unwrap();
        }
        busy(&first, &request).await;
        quiet(&first).await;
        for (node, other) in &others {
            nodes.0[*node].release(&hold(other)).await.unwrap();
        }
    }
    grant(&first, &request).await;
    quiet(&first).await;
    let taken_over = second.renew(request.ttl, &[hold(&request)]).await.remove(0).unwrap();
    assert_eq!(taken_over, Renewed::Lost);
    quiet(&second).await;
    busy(&second, &attempt("a")).await;
    renew(&first, &request).await;
    assert_eq!(first.release(&hold(&request)).await.unwrap(), Released::Released);
}
