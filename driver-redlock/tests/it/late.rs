//! What comes late: votes after their undoing, and grants of requests that nobody waits for any more.

use std::time::Duration;

use crate::common::{Nodes, TTL, attempt, busy, grant, hold, quiet, refused, waiter};
use tenure_core::driver::{
    AcquireRequest, Acquisition, Ballot, DistributedLock, Electorate, Queueing, QuorumNode, Released, Vote,
};
use tenure_core::{ErrorKind, FencingToken, Result};
use tenure_memory::Operation;
use tenure_redlock::Redlock;
use tokio::task::JoinHandle;
use tokio::time::{advance, sleep};

/// Asks in a task of its own.
fn asking(driver: &Redlock, request: &AcquireRequest) -> JoinHandle<Result<Acquisition>> {
    let (driver, request) = (driver.clone(), request.clone());
    tokio::spawn(async move { driver.acquire(&request).await })
}

/// A waiter for a lock that another client has given back meanwhile.
async fn first_in_line(nodes: &Nodes, driver: &Redlock) -> AcquireRequest {
    let ((other, _), held, request) = (nodes.client(), attempt("a"), waiter("a"));
    grant(&other, &held).await;
    busy(driver, &request).await;
    assert_eq!(other.release(&hold(&held)).await.unwrap(), Released::Released);
    quiet(&other).await;
    request
}

/// A counter that is ahead at one node: the others have to be raised to it.
async fn ahead_at(nodes: &Nodes, node: usize) {
    let ballot = Ballot::new(attempt("a"), Electorate::of(["n0", "n1", "n2"])).with_proposal(FencingToken::new(50));
    nodes.0[node].vote(&ballot).await.unwrap();
    nodes.0[node].release(&hold(&ballot.request)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_vote_that_arrives_after_its_election_was_lost_is_refused() {
    let nodes = Nodes::new(3);
    let (driver, links) = nodes.client();
    links[0].faults().hang_next(Operation::Acquire);
    links[1].faults().fail_next(Operation::Acquire, ErrorKind::Unavailable);
    links[2].faults().fail_next(Operation::Acquire, ErrorKind::Unavailable);
    refused(&driver, &attempt("a")).await;
    quiet(&driver).await;
    links[0].faults().heal(); // now the vote arrives
    assert_eq!(nodes.held("a").await, 0);
    grant(&driver, &attempt("a")).await;
}

#[tokio::test(start_paused = true)]
async fn a_vote_that_arrives_after_the_release_is_refused() {
    let nodes = Nodes::new(3);
    let (driver, links) = nodes.client();
    links[0].faults().hang_next(Operation::Acquire);
    let request = attempt("a");
    grant(&driver, &request).await;
    assert_eq!(driver.release(&hold(&request)).await.unwrap(), Released::Released);
    quiet(&driver).await;
    links[0].faults().heal();
    assert_eq!(nodes.held("a").await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_token_that_is_abandoned_while_it_is_asked_for_is_not_reported_won() {
    let nodes = Nodes::new(3);
    let (driver, links) = nodes.client();
    links.iter().for_each(|link| link.faults().delay_reply(Operation::Acquire, Duration::from_millis(50)));
    let request = attempt("a");
    let asking = asking(&driver, &request);
    sleep(Duration::from_millis(20)).await;
    driver.abandon(&hold(&request)).await.unwrap();
    let answer = asking.await.unwrap();
    assert_eq!(answer.unwrap_err().kind(), ErrorKind::NotHeld);
    quiet(&driver).await;
    assert_eq!(nodes.held("a").await, 0);
}

/// A frame that was answered with a refusal comes a second time, and takes the lock unheard. When the same token asks
/// again, the lease that the nodes tell of has almost run out.
#[tokio::test(start_paused = true)]
async fn a_lease_that_an_earlier_request_took_at_an_unknown_time_is_not_counted_as_new() {
    let nodes = Nodes::new(3);
    let (driver, _) = nodes.client();
    let request = first_in_line(&nodes, &driver).await;
    let mut taken = 0;
    for node in &nodes.0 {
        let again = request.clone().with_queue(Queueing::None);
        let electorate = Electorate::of(["n0", "n1", "n2"]);
        let ballot = Ballot::new(again, electorate);
        // The node that was not heard of before the election was lost refuses the token.
        taken += usize::from(matches!(node.vote(&ballot).await, Ok(Vote::Cast(Acquisition::Granted(_)))));
    }
    assert_eq!(taken, 2, "a majority");
    advance(TTL - Duration::from_secs(1)).await;
    let answer = driver.acquire(&request).await;
    assert!(!matches!(answer, Ok(Acquisition::Granted(_))), "a second is left of it: {answer:?}");
}

#[tokio::test(start_paused = true)]
async fn a_raise_that_finds_the_node_gone_is_no_acknowledgement() {
    let nodes = Nodes::new(3);
    let (driver, links) = nodes.client_with(|builder| builder.proposals(|| None));
    links[2].faults().outage();
    ahead_at(&nodes, 1).await;
    links[0].faults().delay(Operation::Raise, Duration::from_millis(50));
    let asking = asking(&driver, &attempt("a"));
    sleep(Duration::from_millis(20)).await;
    nodes.0[0].faults().expire("a").unwrap();
    let answer = asking.await.unwrap();
    assert!(!matches!(answer, Ok(Acquisition::Granted(_))), "one node of three has it: {answer:?}");
    quiet(&driver).await;
    let released = [0, 1].map(|node: usize| links[node].faults().calls(Operation::Release));
    assert_eq!(released, [0, 1], "it is given back where it was");
}

#[tokio::test(start_paused = true)]
async fn a_grant_for_which_nodes_were_raised_took_more_than_one_round() {
    let nodes = Nodes::new(3);
    let (driver, _) = nodes.client_with(|builder| builder.proposals(|| None));
    ahead_at(&nodes, 1).await;
    grant(&driver, &attempt("a")).await;
    assert_eq!((driver.elections().won, driver.elections().won_in_one_round), (1, 0));
    grant(&driver, &attempt("b")).await;
    assert_eq!((driver.elections().won, driver.elections().won_in_one_round), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn nodes_that_cannot_be_raised_are_named() {
    let nodes = Nodes::new(3);
    let (driver, links) = nodes.client_with(|builder| builder.proposals(|| None));
    ahead_at(&nodes, 1).await;
    [0, 2].into_iter().for_each(|node: usize| links[node].faults().fail_next(Operation::Raise, ErrorKind::Unavailable));
    let error = refused(&driver, &attempt("a")).await;
    assert!(error.to_string().contains("n0: ") && error.to_string().contains("n2: "), "{error}");
    quiet(&driver).await;
    assert_eq!(nodes.held("a").await, 0);
}

/// The waiter asks one node first. While that answers, its token is released; what the others grant it then goes back.
#[tokio::test(start_paused = true)]
async fn what_is_granted_to_a_token_that_was_released_meanwhile_is_given_back() {
    let nodes = Nodes::new(3);
    let (driver, links) = nodes.client();
    let request = first_in_line(&nodes, &driver).await;
    links.iter().for_each(|link| link.faults().delay_reply(Operation::Acquire, Duration::from_millis(50)));
    let asking = asking(&driver, &request);
    sleep(Duration::from_millis(20)).await;
    driver.release(&hold(&request)).await.unwrap();
    assert_eq!(nodes.held("a").await, 0);
    assert_eq!(asking.await.unwrap().unwrap_err().kind(), ErrorKind::NotHeld);
    quiet(&driver).await;
    assert_eq!(nodes.held("a").await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_of_a_quorum_of_one_has_it_by_the_one_vote() {
    let nodes = Nodes::new(1);
    let (driver, _) = nodes.client();
    let request = first_in_line(&nodes, &driver).await;
    grant(&driver, &request).await;
}
