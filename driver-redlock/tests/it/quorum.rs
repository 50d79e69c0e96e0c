//! The driver over stores in memory, under a paused clock: majorities, faults, fences, renewal, release.

use std::time::Duration;

use crate::common::liar::Liar;
use crate::common::{Nodes, TTL, attempt, busy, grant, hold, name, quiet, refused, waiter};
use tenure_core::driver::{
    Begun, DistributedLock, Exclusion, Fencing, ForceReleased, Introspection, LockCapabilities, QuorumNode, Released,
    Renewed, Revocation, TtlRange, Waiting,
};
use tenure_core::{ErrorKind, FencingToken};
use tenure_memory::Operation;
use tenure_redlock::Redlock;
use tokio::time::{Instant, advance};

#[tokio::test(start_paused = true)]
async fn a_majority_holds_and_one_dead_node_does_not_matter() {
    for n in 1..=7 {
        let nodes = Nodes::new(n);
        let (driver, links) = nodes.client();
        let dead = n - (n / 2 + 1);
        links[..dead].iter().for_each(|link| link.faults().outage());
        let request = attempt("a");
        let first = grant(&driver, &request).await;
        assert_eq!((first.begun, first.ttl, first.depth), (Begun::Now, TTL, 1), "{n} nodes");
        assert_eq!(nodes.held("a").await, n - dead, "{n} nodes");
        assert_eq!(driver.healthy_nodes(&request.token).unwrap().len(), n - dead);
        busy(&driver, &attempt("a")).await;
        assert_eq!(driver.release(&hold(&request)).await.unwrap(), Released::Released);
        assert_eq!(driver.release(&hold(&request)).await.unwrap(), Released::NotHeld);
        assert!(grant(&driver, &attempt("a")).await.fence > first.fence, "{n} nodes");
    }
}

#[tokio::test(start_paused = true)]
async fn a_silent_node_costs_no_time() {
    let nodes = Nodes::new(3);
    let (driver, links) = nodes.client();
    links[1].faults().silence();
    let start = Instant::now();
    let request = attempt("a");
    grant(&driver, &request).await;
    assert!(matches!(driver.renew(request.ttl, &[hold(&request)]).await[0], Ok(Renewed::Extended { .. })));
    assert_eq!(driver.release(&hold(&request)).await.unwrap(), Released::Released);
    assert_eq!(start.elapsed(), Duration::ZERO, "nobody waited for it");
}

#[tokio::test(start_paused = true)]
async fn a_failed_attempt_leaves_nothing_behind_not_even_late() {
    let nodes = Nodes::new(3);
    let (driver, links) = nodes.client();
    links[0].faults().outage();
    links[1].faults().silence();
    let request = attempt("a");
    let error = refused(&driver, &request).await;
    assert_eq!(error.kind(), ErrorKind::Indeterminate);
    let text = error.to_string();
    assert!(text.contains("n0: ") && text.contains("n1: ") && text.contains("2 of 3"), "{text}");
    assert_eq!(driver.abandon(&hold(&request)).await.unwrap_err().kind(), ErrorKind::Indeterminate);
    links.iter().for_each(|link| link.faults().heal());
    driver.abandon(&hold(&request)).await.unwrap();
    quiet(&driver).await;
    assert_eq!(nodes.held("a").await, 0);
    assert_eq!(refused(&driver, &request).await.kind(), ErrorKind::NotHeld, "the token is spent");
}

#[tokio::test(start_paused = true)]
async fn no_majority_reachable_is_unavailable_and_a_held_lock_is_busy() {
    let nodes = Nodes::new(5);
    let (driver, links) = nodes.client();
    let (other, _) = nodes.client();
    grant(&other, &attempt("held")).await;
    links[..2].iter().for_each(|link| link.faults().outage());
    busy(&driver, &attempt("held")).await;
    links[2].faults().outage();
    let error = refused(&driver, &attempt("free")).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    quiet(&driver).await;
    assert_eq!(nodes.held("free").await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_attempt_is_undone_wherever_it_got_to() {
    for after in 0..60 {
        let nodes = Nodes::new(3);
        let (driver, links) = nodes.client();
        for (i, link) in links.iter().enumerate() {
            link.faults().delay(Operation::Acquire, Duration::from_millis(5 + 10 * i as u64));
            link.faults().delay_reply(Operation::Acquire, Duration::from_millis(7));
            link.faults().delay(Operation::Raise, Duration::from_millis(3));
        }
        let request = attempt("a");
        let asked = tokio::time::timeout(Duration::from_millis(after), driver.acquire(&request)).await;
        if asked.is_ok() {
            continue;
        }
        driver.abandon(&hold(&request)).await.unwrap();
        advance(Duration::from_millis(100)).await;
        quiet(&driver).await;
        assert_eq!(nodes.held("a").await, 0, "dropped after {after} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn fences_grow_although_nodes_disagree() {
    let nodes = Nodes::new(3);
    let (none, _) = nodes.client_with(|builder| builder.proposals(|| None));
    let (wild, links) = nodes.client_with(|builder| builder.proposals(|| FencingToken::new(1_000)));
    let mut last = 0;
    for turn in 0..30_usize {
        let down = &links[turn % 3];
        let request = attempt("a");
        let driver = if turn % 4 == 0 {
            down.faults().outage();
            &wild
        } else {
            &none
        };
        let fence = grant(driver, &request).await.fence.get();
        assert!(fence > last, "turn {turn}: {fence} after {last}");
        last = fence;
        assert_eq!(driver.release(&hold(&request)).await.unwrap(), Released::Released);
        down.faults().heal();
        quiet(driver).await;
    }
}

#[tokio::test(start_paused = true)]
async fn one_round_trip_in_the_steady_state_also_where_counters_differ() {
    let nodes = Nodes::new(3);
    let (driver, links) = nodes.client();
    for _ in 0..10 {
        let request = attempt("a");
        grant(&driver, &request).await;
        driver.release(&hold(&request)).await.unwrap();
        quiet(&driver).await;
    }
    let raises: u64 = links.iter().map(|link| link.faults().calls(Operation::Raise)).sum();
    assert_eq!(raises, 0);
}

#[tokio::test(start_paused = true)]
async fn a_token_that_asks_again_gets_the_same_answer() {
    let nodes = Nodes::new(3);
    let (driver, _) = nodes.client();
    let request = attempt("a");
    let first = grant(&driver, &request).await;
    let again = grant(&driver, &request).await;
    assert_eq!((again.fence, again.begun), (first.fence, Begun::Earlier));
}

#[tokio::test(start_paused = true)]
async fn a_renewal_needs_a_majority_and_heals_the_rest() {
    let nodes = Nodes::new(3);
    let (driver, links) = nodes.client();
    let request = attempt("a");
    links[2].faults().outage();
    let first = grant(&driver, &request).await;
    assert_eq!(driver.healthy_nodes(&request.token).unwrap(), ["n0", "n1"]);
    links[2].faults().heal();
    assert!(
        matches!(driver.renew(request.ttl, &[hold(&request)]).await[0], Ok(Renewed::Extended { ttl }) if ttl == TTL)
    );
    quiet(&driver).await;
    assert_eq!(driver.healthy_nodes(&request.token).unwrap().len(), 3, "taken back");
    assert_eq!(nodes.held("a").await, 3);

    nodes.0[0].faults().restart_empty();
    assert!(matches!(driver.renew(request.ttl, &[hold(&request)]).await[0], Ok(Renewed::Extended { .. })));
    quiet(&driver).await;
    assert_eq!(nodes.held("a").await, 3, "taken back although it restarted");
    assert_eq!(driver.release(&hold(&request)).await.unwrap(), Released::Released);
    quiet(&driver).await;
    assert_eq!(nodes.held("a").await, 0);
    assert!(grant(&driver, &attempt("a")).await.fence > first.fence);
}

#[tokio::test(start_paused = true)]
async fn a_lost_majority_is_reported_at_once_and_its_rest_given_back() {
    let nodes = Nodes::new(3);
    let (driver, _) = nodes.client();
    let request = attempt("a");
    grant(&driver, &request).await;
    nodes.0[0].faults().restart_empty();
    nodes.0[1].faults().restart_empty();
    assert_eq!(driver.renew(request.ttl, &[hold(&request)]).await.remove(0).unwrap(), Renewed::Lost);
    quiet(&driver).await;
    assert_eq!(nodes.held("a").await, 0);
    let error = refused(&driver, &attempt("a")).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable, "two nodes may have forgotten leases: {error}");
    assert!(error.to_string().contains("votes again in"), "{error}");
    advance(Duration::from_secs(61)).await;
    let error = refused(&driver, &attempt("a")).await;
    assert!(error.to_string().contains("votes again in"), "its clock may be faster than its clients': {error}");
    advance(Duration::from_secs(1)).await;
    grant(&driver, &attempt("a")).await;
}

#[tokio::test(start_paused = true)]
async fn an_unclear_renewal_is_an_error_and_not_a_loss() {
    let nodes = Nodes::new(3);
    let (driver, links) = nodes.client();
    let request = attempt("a");
    grant(&driver, &request).await;
    links[0].faults().outage();
    links[1].faults().silence();
    let error = driver.renew(request.ttl, &[hold(&request)]).await.remove(0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Indeterminate, "{error}");
    links.iter().for_each(|link| link.faults().heal());
    assert!(matches!(driver.renew(request.ttl, &[hold(&request)]).await[0], Ok(Renewed::Extended { .. })));
}

#[tokio::test(start_paused = true)]
async fn a_release_that_could_not_be_heard_succeeds_at_the_second_try() {
    let nodes = Nodes::new(3);
    let (driver, links) = nodes.client();
    let request = attempt("a");
    grant(&driver, &request).await;
    quiet(&driver).await;
    links[0].faults().lose_reply_next(Operation::Release);
    links[1].faults().fail_next(Operation::Release, ErrorKind::Unavailable);
    links[2].faults().lose_reply_next(Operation::Release);
    assert_eq!(driver.release(&hold(&request)).await.unwrap_err().kind(), ErrorKind::Indeterminate);
    assert_eq!(driver.release(&hold(&request)).await.unwrap(), Released::Released);
}

#[tokio::test(start_paused = true)]
async fn clients_with_different_lists_of_nodes_notice() {
    let nodes = Nodes::new(5);
    let list = |which: &[usize]| {
        let node = |builder: tenure_redlock::RedlockBuilder, i: &usize| {
            builder.node(format!("n{i}"), std::sync::Arc::new(nodes.0[*i].clone()) as std::sync::Arc<dyn QuorumNode>)
        };
        which.iter().fold(Redlock::builder(), node).build().unwrap()
    };
    let (three, five) = (list(&[0, 1, 2]), list(&[0, 1, 2, 3, 4]));
    let request = attempt("a");
    grant(&three, &request).await;
    quiet(&three).await;
    let error = refused(&five, &attempt("b")).await;
    assert_eq!(error.kind(), ErrorKind::Misconfigured);
    assert!(error.to_string().contains("3-") && error.to_string().contains("5-"), "{error}");
    assert!(error.to_string().contains("clients disagree about which nodes"), "{error}");
    assert_eq!((five.elections().won, five.elections().lost), (0, 1));
    three.release(&hold(&request)).await.unwrap();
    five.enroll_nodes().await.unwrap();
    grant(&five, &attempt("a")).await;
    assert_eq!(refused(&three, &attempt("c")).await.kind(), ErrorKind::Misconfigured);
}

#[tokio::test(start_paused = true)]
async fn an_operator_sees_and_frees_what_a_majority_holds() {
    let nodes = Nodes::new(3);
    let (driver, links) = nodes.client_with(|builder| builder.proposals(|| None));
    links[0].faults().outage();
    grant(&driver, &attempt("other")).await;
    let request = attempt("a");
    let fence = grant(&driver, &request).await.fence;
    let holder = driver.inspect(&name("a")).await.unwrap().holder.unwrap();
    assert_eq!((holder.fence, holder.depth), (Some(fence), 1));
    assert_eq!(driver.inspect(&name("nobody's")).await.unwrap().holder, None);
    let other = FencingToken::new(fence.get() + 1).unwrap();
    assert_eq!(driver.force_release(&name("a"), Some(other)).await.unwrap(), ForceReleased::Changed);
    assert_eq!(driver.force_release(&name("a"), Some(fence)).await.unwrap(), ForceReleased::Released);
    assert_eq!(driver.force_release(&name("a"), None).await.unwrap(), ForceReleased::NotHeld);
    links[0].faults().heal();
    assert_eq!(driver.renew(request.ttl, &[hold(&request)]).await.remove(0).unwrap(), Renewed::Lost);
    links[1].faults().outage();
    links[2].faults().outage();
    assert_eq!(driver.force_release(&name("a"), None).await.unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(driver.inspect(&name("a")).await.unwrap_err().kind(), ErrorKind::Unavailable);
}

#[tokio::test(start_paused = true)]
async fn what_is_declared_is_what_all_nodes_can_keep() {
    let nodes = Nodes::new(3);
    let (driver, _) = nodes.client();
    let declared = DistributedLock::capabilities(&driver);
    assert_eq!(declared.exclusion, Exclusion::Quorum { nodes: 3 });
    assert_eq!((declared.fencing, declared.waiting), (Fencing::Strict, Waiting::Notified));
    assert_eq!((declared.introspection, declared.revocation), (Introspection::Full, Revocation::Forced));
    assert_eq!(declared.ttl.max, Duration::from_secs(60), "a longer lease could be forgotten by a node that restarts");
    driver.close().await;
    assert_eq!(refused(&driver, &attempt("a")).await.kind(), ErrorKind::Closed);
}

#[tokio::test(start_paused = true)]
async fn one_node_that_can_keep_less_is_what_all_can_keep() {
    let nodes = Nodes::new(3);
    let of_nodes = DistributedLock::capabilities(&nodes.0[0]).with_max_waiters(Some(100)).with_renew_batch(64);
    let declared = |less: LockCapabilities| {
        let with_node = |builder: tenure_redlock::RedlockBuilder, i: usize| {
            let declared = if i == 1 { less } else { of_nodes };
            builder.node(format!("n{i}"), Liar::declaring(&nodes.0[i], declared))
        };
        DistributedLock::capabilities(&(0..3).fold(Redlock::builder(), with_node).build().unwrap())
    };
    let all = declared(of_nodes);
    assert_eq!((all.max_waiters, all.renew_batch), (Some(100), 64));
    let second = Duration::from_secs(1);
    let less = of_nodes
        .with_fencing(Fencing::ClockSeeded)
        .with_waiting(Waiting::Poll)
        .with_introspection(Introspection::None)
        .with_revocation(Revocation::None)
        .with_max_waiters(Some(7))
        .with_renew_batch(3)
        .with_ttl(TtlRange { min: second, max: second * 30, granularity: second / 2 });
    let seen = declared(less);
    assert_eq!((seen.fencing, seen.waiting), (Fencing::ClockSeeded, Waiting::Notified), "the others wake");
    assert_eq!((seen.introspection, seen.revocation), (Introspection::None, Revocation::None));
    assert_eq!((seen.max_waiters, seen.renew_batch), (Some(7), 3));
    assert_eq!((seen.ttl.min, seen.ttl.max, seen.ttl.granularity), (second, second * 30, second / 2));
    assert_eq!(declared(of_nodes.with_max_waiters(None)).max_waiters, Some(100));
}

/// A waiter asks such nodes by itself.
#[tokio::test(start_paused = true)]
async fn nobody_listens_to_nodes_that_wake_nobody() {
    let nodes = Nodes::new(3);
    let polled = DistributedLock::capabilities(&nodes.0[0]).with_waiting(Waiting::Poll);
    let with_node = |builder: tenure_redlock::RedlockBuilder, i: usize| {
        builder.node(format!("n{i}"), Liar::declaring(&nodes.0[i], polled))
    };
    let driver = (0..3).fold(Redlock::builder(), with_node).build().unwrap();
    assert_eq!(DistributedLock::capabilities(&driver).waiting, Waiting::Poll);
    grant(&driver, &attempt("a")).await;
    let request = waiter("a");
    let _heard = driver.watch(&request.name, &request.token).await.unwrap();
    busy(&driver, &request).await;
    assert!(nodes.0.iter().all(|node| node.faults().calls(Operation::Watch) == 0));
}

#[tokio::test]
async fn a_list_of_nodes_is_checked() {
    let nodes = Nodes::new(1);
    let node = || std::sync::Arc::new(nodes.0[0].clone()) as std::sync::Arc<dyn QuorumNode>;
    let bad = [
        (Redlock::builder(), "at least one"),
        (Redlock::builder().node("a", node()).node("a", node()), "\"a\""),
        (Redlock::builder().node("", node()), "a name"),
        (Redlock::builder().node("a", node()).node_timeout(Duration::ZERO), "node_timeout"),
        (Redlock::builder().node("a", node()).max_ttl(Duration::ZERO), "ttl"),
        ((0..32).fold(Redlock::builder(), |all, i| all.node(i.to_string(), node())), "31"),
    ];
    for (builder, words) in bad {
        let error = builder.build().unwrap_err();
        assert!(error.kind() == ErrorKind::InvalidArgument && error.to_string().contains(words), "{error}");
    }
    assert!(Redlock::builder().node("a", node()).node("b", node()).build().is_ok(), "even numbers are allowed");
}

#[tokio::test(start_paused = true)]
async fn a_renewal_does_not_bring_a_lost_hold_back_to_life() {
    for slow in 0..3 {
        let nodes = Nodes::new(3);
        let (driver, links) = nodes.client();
        let request = attempt("a");
        grant(&driver, &request).await;
        links[slow].faults().delay(Operation::Renew, Duration::from_millis(50));
        links[(slow + 1) % 3].faults().delay(Operation::Renew, Duration::from_millis(20));
        advance(TTL).await;
        assert_eq!(driver.renew(request.ttl, &[hold(&request)]).await.remove(0).unwrap(), Renewed::Lost);
        advance(Duration::from_millis(100)).await;
        quiet(&driver).await;
        let votes: u64 = links.iter().map(|link| link.faults().calls(Operation::Acquire)).sum();
        assert_eq!((nodes.held("a").await, votes), (0, 3), "no node was asked to grant it again");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_over_is_not_remembered_and_what_is_taken_over_is() {
    let nodes = Nodes::new(3);
    let ((one, _), (other, _)) = (nodes.client(), nodes.client());
    let (held, lost) = (attempt("a"), attempt("a"));
    grant(&one, &held).await;
    busy(&other, &lost).await;
    assert_eq!(other.healthy_nodes(&lost.token), None, "it won nothing, and left nothing");
    assert_eq!(other.healthy_nodes(&held.token), None);
    assert!(matches!(other.renew(held.ttl, &[hold(&held)]).await[0], Ok(Renewed::Extended { .. })));
    assert!(other.healthy_nodes(&held.token).is_some(), "it was won by another client");
    one.abandon(&hold(&held)).await.unwrap();
    assert_eq!(one.healthy_nodes(&held.token), None);
}

#[tokio::test(start_paused = true)]
async fn undoing_ends_with_the_lease_that_it_undoes() {
    let nodes = Nodes::new(3);
    let (driver, links) = nodes.client();
    let request = attempt("a");
    grant(&driver, &request).await;
    links[0].faults().outage();
    assert_eq!(driver.release(&hold(&request)).await.unwrap(), Released::Released);
    advance(TTL / 2).await;
    assert_eq!(driver.background_work(), 1, "one node has not heard of it");
    tokio::time::sleep(TTL).await;
    assert_eq!(driver.background_work(), 0, "its lease has ended by itself");
}
