//! A token that asks again: what its earlier requests left at the nodes.

use std::time::Duration;

use crate::common::{Nodes, attempt, busy, grant, hold, quiet, waiter};
use tenure_core::ErrorKind;
use tenure_core::driver::{AcquireRequest, Acquisition, Ballot, DistributedLock as _, Electorate, QuorumNode, Vote};
use tenure_memory::Operation;

fn ballot(request: AcquireRequest) -> Ballot {
    let electorate = Electorate::of(["n0", "n1", "n2"]);
    Ballot::new(request, electorate)
}

/// What undoes the first attempt comes late, and would undo the second.
#[tokio::test(start_paused = true)]
async fn what_undoes_a_lost_attempt_does_not_reach_the_next_one_of_the_token() {
    let nodes = Nodes::new(3);
    let (driver, links) = nodes.client();
    let others = [attempt("a"), attempt("a")];
    for (node, other) in nodes.0[1..].iter().zip(&others) {
        assert!(matches!(node.vote(&ballot(other.clone())).await.unwrap(), Vote::Cast(Acquisition::Granted(_))));
    }
    let request = attempt("a");
    links[0].faults().fail_next(Operation::Release, ErrorKind::Unavailable);
    busy(&driver, &request).await;
    for (node, other) in nodes.0[1..].iter().zip(&others) {
        node.release(&hold(other)).await.unwrap();
    }
    // As soon as the two nodes are free, whatever the first says.
    grant(&driver, &request).await;
    quiet(&driver).await;
    let held = nodes.held("a").await;
    let healthy = driver.healthy_nodes(&request.token).unwrap().len();
    assert_eq!(held, healthy, "each node that is counted serves it");
    assert!(held >= 2, "{held} of 3 nodes serve it");
}

/// A place in a queue is something that stands.
#[tokio::test(start_paused = true)]
async fn an_error_after_a_place_in_a_queue_was_taken_does_not_say_that_nothing_was_done() {
    let mut places = 0;
    for elsewhere in 0..3 {
        let nodes = Nodes::new(3);
        let (other, _) = nodes.client();
        grant(&other, &attempt("a")).await;
        quiet(&other).await;
        nodes.0[elsewhere].enroll(&Electorate::of(["n0", "n1"])).await.unwrap();
        let (driver, links) = nodes.client();
        links[elsewhere].faults().delay_reply(Operation::Acquire, Duration::from_millis(10));
        links[(elsewhere + 1) % 3].faults().delay_reply(Operation::Acquire, Duration::from_millis(20));
        let up = &nodes.0[(elsewhere + 2) % 3];
        let request = waiter("a");
        let answer = driver.acquire(&request).await;
        quiet(&driver).await;
        let waiters = up.inspect(&request.name).await.unwrap().waiters;
        if let Err(error) = answer {
            assert_eq!(error.was_not_applied(), waiters == 0, "n{elsewhere}: {error}");
            places += waiters;
        }
    }
    assert!(places > 0, "one of them is where the waiter queues");
}

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
