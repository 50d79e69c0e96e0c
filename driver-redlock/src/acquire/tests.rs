//! One acquisition over three stores: where it waits, when it asks again, what it leaves behind.

use tenure_core::driver::LeaseInstant;
use tenure_core::{ErrorKind, FencingToken};
use tenure_memory::{MemoryDriver, Operation};
use tokio::time::{Instant, timeout};

use super::*;
use crate::world::{PRESENCE, TTL, World, all, millis, place, stand};

fn refusal(node: usize, after: Option<Duration>) -> (usize, Busy) {
    (node, Busy::default().with_recheck_after(after))
}

#[tokio::test(start_paused = true)]
async fn a_pause_is_drawn_out_by_at_most_half_and_ten_milliseconds() {
    let world = World::new();
    let drawn = |pause| {
        let all = (0..200).map(|_| jittered(pause, &world.attempt()) - pause).collect::<Vec<_>>();
        (all.iter().min().copied().unwrap(), all.iter().max().copied().unwrap())
    };
    let (least, most) = drawn(millis(8));
    assert!(least < millis(1) && most > millis(3) && most <= millis(4), "{least:?} to {most:?}");
    let (least, most) = drawn(millis(40));
    assert!(least < millis(5) && most == millis(10), "{least:?} to {most:?}");
}

#[tokio::test(start_paused = true)]
async fn the_first_that_may_be_free_says_when_to_ask_again() {
    let world = World::new();
    let soonest = |all: &[(usize, Busy)]| soonest(all, &world.shared);
    assert_eq!(soonest(&[]), None);
    assert_eq!(soonest(&[refusal(0, None)]), None);
    let some = [refusal(0, None), refusal(1, Some(millis(30))), refusal(2, Some(millis(20)))];
    assert_eq!(soonest(&some), Some(millis(20)));
    assert_eq!(soonest(&[refusal(0, Some(TTL * 100))]), Some(Duration::from_secs(60)), "no lease is longer");
}

#[tokio::test(start_paused = true)]
async fn who_has_a_place_where_it_was_refused_waits_there() {
    let world = World::new();
    let request = world.waiter();
    let slot = world.slot(&request);
    stand(&slot, 2, true);
    slot.state().queue.losses = 4;
    let refusals = [refusal(0, Some(millis(1))), refusal(2, Some(millis(100)))];
    let busy = wait_on(&world.shared, &slot, &request, &refusals, NodeSet::EMPTY);
    let after = busy.recheck_after.unwrap();
    assert!(after >= millis(100) && after <= millis(110), "{after:?}");
    assert_eq!(place(&slot), (Some(2), true, 0));
    let busy = wait_on(&world.shared, &slot, &request, &[refusal(2, None)], NodeSet::EMPTY);
    assert_eq!(busy.recheck_after, None, "it is called");
}

#[tokio::test(start_paused = true)]
async fn who_was_refused_elsewhere_moves_to_the_first_that_refused() {
    let world = World::new();
    let request = world.waiter();
    let slot = world.slot(&request);
    let moved = |at, joined, refused: &[usize], granted: &[usize]| {
        stand(&slot, at, joined);
        let refusals: Vec<_> = refused.iter().map(|node| refusal(*node, Some(TTL))).collect();
        let busy = wait_on(&world.shared, &slot, &request, &refusals, all(granted));
        assert!(busy.recheck_after.unwrap() < TTL, "it asks there soon");
        assert_eq!(slot.line().at(), place(&slot).0, "so do the others of its line");
        (place(&slot).0, place(&slot).1)
    };
    assert_eq!(moved(0, true, &[1, 2], &[0]), (Some(1), false), "the place at the other is given up");
    assert_eq!(moved(0, false, &[1, 2], &[]), (Some(1), false));
    assert_eq!(moved(0, true, &[2], &[1]), (Some(1), false), "the vote was split: the first that works");
    assert_eq!(moved(1, true, &[2], &[]), (Some(2), false));
    assert_eq!(moved(0, false, &[0, 2], &[1]), (Some(0), false));
    assert_eq!(moved(2, true, &[1, 0], &[]), (Some(0), false), "the first by the order of all clients");
    assert_eq!(moved(2, true, &[], &[]), (Some(2), true), "nobody is known to work");
}

#[tokio::test(start_paused = true)]
async fn pauses_double_with_each_lost_election_up_to_a_quarter_of_a_second() {
    let world = World::new();
    let request = world.waiter();
    let slot = world.slot(&request);
    for lost in 0..10 {
        assert_eq!(place(&slot).2, lost);
        let after = wait_on(&world.shared, &slot, &request, &[refusal(1, None)], NodeSet::EMPTY).recheck_after.unwrap();
        let least = millis(2 << lost.min(7));
        assert!(after >= least && after <= least * 3 / 2, "{after:?} after {lost}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiter_queues_at_the_first_node_that_did_not_just_fail() {
    let world = World::new();
    let slot = || world.slot(&world.waiter());
    let first = slot();
    assert_eq!(choose_place(&world.shared, &first), Some(0));
    assert_eq!((place(&first).0, first.line().at()), (Some(0), Some(0)));
    let fail = async |node: usize| {
        world.links[node].faults().fail_next(Operation::Inspect, ErrorKind::Unavailable);
        let node = &world.shared.nodes[node];
        let _ = node.bounded(node.api.inspect(&world.name)).await;
        assert!(node.is_out_of_favour());
    };
    fail(0).await;
    assert_eq!(choose_place(&world.shared, &first), Some(0), "it has a place there");
    assert_eq!(choose_place(&world.shared, &slot()), Some(1));
    fail(1).await;
    fail(2).await;
    assert_eq!(choose_place(&world.shared, &slot()), Some(0), "any is better than none");
}

#[tokio::test(start_paused = true)]
async fn one_of_a_line_asks_all_nodes_each_quarter_of_its_presence() {
    let world = World::new();
    let first = || {
        let slot = world.slot(&world.waiter());
        let at = place_to_ask_first(&world.shared, &slot, PRESENCE);
        (at, place(&slot).0)
    };
    assert_eq!(first(), (None, None), "nobody waits anywhere");
    let _other = world.slot(&world.waiter());
    _other.line().wait_at(Some(2));
    assert_eq!(first(), (Some(2), Some(2)));
    tokio::time::advance(PRESENCE / 4).await;
    assert_eq!(first(), (None, Some(2)), "it asks all, and its place is there");
    assert_eq!(first(), (Some(2), Some(2)), "one of them is enough");
}

#[tokio::test(start_paused = true)]
async fn a_waiter_hears_the_node_that_it_listens_to_and_asks_for_that_once() {
    let world = World::new();
    let request = world.waiter();
    let slot = world.slot(&request);
    let watched = || world.links.iter().map(|link| link.faults().calls(Operation::Watch)).collect::<Vec<_>>();
    listen(&world.shared, &slot, 0).await;
    assert_eq!(watched(), [0, 0, 0], "nobody would hear it");
    let mut heard = watch(&slot);
    for _ in 0..2 {
        listen(&world.shared, &slot, 0).await;
        assert_eq!(watched(), [1, 0, 0]);
    }
    assert!(timeout(TTL, heard.next()).await.is_err(), "nothing happened");
    world.links[0].faults().heal(); // wakes all who wait there
    timeout(TTL, heard.next()).await.expect("it is woken");
    listen(&world.shared, &slot, 1).await;
    assert_eq!(watched(), [1, 1, 0]);
    world.links[0].faults().heal();
    assert!(timeout(TTL, heard.next()).await.is_err(), "it does not listen there any more");
    slot.spoil(NodeSet::of(1), &world.shared.nodes);
    listen(&world.shared, &slot, 1).await;
    assert_eq!(watched(), [1, 2, 0], "its token there is another one");
    slot.state().queue.listener.as_ref().unwrap().task.abort();
    tokio::task::yield_now().await;
    listen(&world.shared, &slot, 1).await;
    assert_eq!(watched(), [1, 3, 0], "as after the end of a runtime");
    world.links[1].faults().heal();
    timeout(TTL, heard.next()).await.expect("it is woken again");
    drop(heard);
    let state = slot.state();
    assert!(state.wake.is_none() && state.queue.listener.is_none(), "nobody listens any more");
}

#[tokio::test(start_paused = true)]
async fn a_waiter_asks_its_node_alone_while_that_refuses() {
    let world = World::new();
    let holder = World::over(world.stores.clone());
    let held = world.attempt();
    holder.grant(&held).await;
    holder.quiet().await;
    let request = world.waiter();
    let _heard = watch(&world.slot(&request));
    let busy = world.busy(&request).await;
    world.quiet().await;
    assert_eq!(world.asked(), [1, 1, 1]);
    assert_eq!(place(&world.slot(&request)), (Some(0), true, 0));
    assert_eq!((world.waiters(0), world.waiters(1), world.waiters(2)), (1, 0, 0));
    let after = busy.recheck_after.unwrap();
    assert!(after > TTL - millis(100) && after <= TTL + millis(10), "{after:?}");
    world.slot(&request).line().is_to_ask_all(Duration::ZERO);
    world.slot(&request).state().queue.losses = 3;
    let busy = world.busy(&request).await;
    assert_eq!(world.asked(), [2, 1, 1], "its place is in the first node's queue");
    assert!(busy.recheck_after.unwrap() > TTL - millis(100), "{busy:?}");
    assert_eq!(place(&world.slot(&request)), (Some(0), true, 0));
    assert!(world.slot(&request).line().is_needed(usize::MAX), "the name is contended");
    tokio::time::advance(PRESENCE / 4).await;
    world.busy(&request).await;
    assert_eq!(world.asked(), [3, 2, 2], "now and then all are asked");
}

/// A waiter that is the first at the first node, and asks all of them the next time; what it hears; and who has the lock.
async fn first_in_line(world: &World) -> (AcquireRequest, Watch, Vec<AcquireRequest>) {
    let taken = world.taken_at(&[0, 1, 2]).await;
    let request = world.waiter();
    let heard = watch(&world.slot(&request));
    world.busy(&request).await;
    world.quiet().await;
    world.slot(&request).line().is_to_ask_all(Duration::ZERO);
    (request, heard, taken)
}

#[tokio::test(start_paused = true)]
async fn who_is_first_in_the_queue_asks_those_again_that_hear_of_the_release_later() {
    let world = World::new();
    let (request, _heard, taken) = first_in_line(&world).await;
    world.free(0, &taken[0]).await;
    let (start, before) = (Instant::now(), world.asked());
    let later = async {
        sleep(millis(20)).await;
        world.free(1, &taken[1]).await;
    };
    let (granted, ()) = tokio::join!(world.grant(&request), later);
    assert_eq!(granted.ttl, TTL);
    assert!(start.elapsed() >= millis(20) && start.elapsed() <= millis(35), "{:?}", start.elapsed());
    let asked: Vec<_> = world.asked().iter().zip(before).map(|(now, before)| now - before).collect();
    assert_eq!(asked, [1, 3, 3], "each that refused was asked twice more");
    world.quiet().await;
    assert_eq!(world.waiters(0), 0);
    assert_eq!(world.shared.elections.read().won_in_one_round, 0, "it took several");
}

#[tokio::test(start_paused = true)]
async fn who_is_first_in_the_queue_gives_up_after_two_more_tries_and_leaves_nothing() {
    let world = World::new();
    let (request, _heard, taken) = first_in_line(&world).await;
    world.free(0, &taken[0]).await;
    let (start, before) = (Instant::now(), world.asked());
    let busy = world.busy(&request).await;
    assert!(start.elapsed() >= millis(20) && start.elapsed() <= millis(35), "{:?}", start.elapsed());
    let asked: Vec<_> = world.asked().iter().zip(before).map(|(now, before)| now - before).collect();
    assert_eq!(asked, [1, 3, 3]);
    assert!(busy.recheck_after.unwrap() <= millis(3), "{busy:?}");
    assert_eq!(place(&world.slot(&request)), (Some(1), false, 1), "where the holder is");
    world.quiet().await;
    assert!(!world.is_held_at(0).await, "its vote was given back");
    let undone = |operation| world.links[0].faults().calls(operation);
    assert_eq!((undone(Operation::Release), undone(Operation::Abandon)), (1, 0), "which is known to have been cast");
}

#[tokio::test(start_paused = true)]
async fn a_waiter_whose_node_fails_takes_another_one() {
    let world = World::new();
    let (request, _heard, _taken) = first_in_line(&world).await;
    world.links[0].faults().outage();
    world.busy(&request).await;
    assert_eq!(place(&world.slot(&request)), (Some(1), true, 0));
    assert_eq!(world.slot(&request).line().at(), Some(1));
    assert_eq!(world.waiters(1), 1);
    world.links[1].faults().outage();
    world.slot(&request).line().is_to_ask_all(Duration::ZERO);
    let error = acquire(&world.shared, &request).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_left_something_is_remembered_for_a_while_and_any_other_is_not() {
    let world = World::new();
    let others = world.taken_at(&[0, 1, 2]).await;
    let request = world.attempt();
    let after = world.busy(&request).await.recheck_after.unwrap();
    assert!(after <= TTL, "{after:?}");
    assert!(!world.slot(&world.attempt()).line().is_needed(usize::MAX), "nobody waits");
    world.free(0, &others[0]).await;
    world.quiet().await;
    let request = world.attempt();
    world.links[2].faults().delay(Operation::Acquire, millis(5));
    world.busy(&request).await;
    let slot = world.shared.slots.get(&request.token).expect("its token at the first node is spent");
    assert_eq!(slot.state().kept_until, LeaseInstant::now().after(ASKED_AGAIN_WITHIN));
    world.free(1, &others[1]).await;
    world.quiet().await;
    world.grant(&request).await;
    assert_eq!(slot.state().kept_until, LeaseInstant::now().after(Duration::from_secs(120)));
    assert!(Arc::ptr_eq(&slot, &world.shared.slots.get(&request.token).unwrap()));
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_was_refused_by_all_is_forgotten() {
    let world = World::new();
    let _taken = world.taken_at(&[0, 1, 2]).await;
    world.links.iter().for_each(|link| link.faults().delay(Operation::Acquire, millis(5)));
    world.links[2].faults().delay(Operation::Acquire, millis(4));
    let request = world.attempt();
    world.busy(&request).await;
    if let Some(slot) = world.shared.slots.get(&request.token) {
        assert!(slot.has_spoiled(), "one was not heard any more");
    }
    let refused = world.waiter();
    world.busy(&refused).await;
    assert!(world.shared.slots.get(&refused.token).is_some(), "a waiter comes again");
}

#[tokio::test(start_paused = true)]
async fn a_hold_that_a_minority_has_is_given_back_and_taken_anew() {
    let world = World::new();
    let request = world.attempt();
    let first = world.grant(&request).await;
    world.quiet().await;
    let again = world.grant(&request).await;
    assert_eq!((again.fence, again.begun, again.ttl), (first.fence, Begun::Earlier, TTL));
    for node in 0..2 {
        world.stores[node].faults().expire(&world.name).unwrap();
    }
    let _taken = world.taken_at(&[0, 1]).await;
    world.busy(&request).await;
    world.quiet().await;
    assert!(!world.is_held_at(2).await);
    assert!(!world.slot(&request).state().attempt_state.is_held());
}

#[tokio::test(start_paused = true)]
async fn a_hold_whose_nodes_do_not_answer_is_taken_anew_when_they_do() {
    let world = World::new();
    let request = world.attempt().with_label(None);
    let first = world.grant(&request).await;
    world.quiet().await;
    world.links.iter().for_each(|link| link.faults().outage());
    assert_eq!(acquire(&world.shared, &request).await.unwrap_err().kind(), ErrorKind::Unavailable);
    world.links.iter().for_each(|link| link.faults().heal());
    world.quiet().await;
    assert!(world.grant(&request).await.fence > first.fence);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_wins_at_once_keeps_no_place_and_hears_nothing_more() {
    let world = World::new();
    let request = world.waiter();
    let slot = world.slot(&request);
    let _heard = watch(&slot);
    slot.state().queue.losses = 5;
    world.grant(&request).await;
    assert_eq!(slot.state().kept_until, LeaseInstant::now().after(Duration::from_secs(120)));
    world.quiet().await;
    assert_eq!(place(&slot), (Some(0), false, 0));
    assert!(slot.state().queue.listener.is_none());
    assert!((0..3).all(|node| world.waiters(node) == 0));
    assert_eq!(slot.state().attempt_state.granted(), NodeSet::first(3));
    let elections = world.shared.elections.read();
    assert_eq!((elections.won, elections.won_in_one_round, elections.lost), (1, 1, 0));
    let proposed = FencingToken::new(1).unwrap();
    assert!(slot.state().attempt_state.fence().unwrap() > proposed);
}

/// A vote that comes when the election is won with the others has a place in a queue, which is given up.
#[tokio::test(start_paused = true)]
async fn a_place_reported_after_the_grant_is_given_up() {
    let world = World::new();
    let other = world.taken_at(&[0]).await;
    world.links[0].faults().delay_reply(Operation::Acquire, millis(50));
    let request = world.waiter();
    let slot = world.slot(&request);
    let _heard = watch(&slot);
    world.grant(&request).await;
    assert_eq!(world.waiters(0), 1);
    world.quiet().await;
    assert_eq!(world.waiters(0), 0);
    assert_eq!(slot.state().attempt_state.granted(), all(&[1, 2]));
    assert_eq!(slot.state().attempt_state.unknown(), NodeSet::EMPTY);
    drop(other);
}

#[tokio::test(start_paused = true)]
async fn a_late_report_of_a_node_that_granted_or_has_no_place_changes_nothing() {
    let world = World::over((0..5).map(|_| MemoryDriver::new()).collect());
    let _other = world.taken_at(&[1]).await;
    [0, 1].into_iter().for_each(|node: usize| world.links[node].faults().delay_reply(Operation::Acquire, millis(50)));
    let request = world.waiter();
    let slot = world.slot(&request);
    world.grant(&request).await;
    world.quiet().await;
    assert_eq!(slot.state().attempt_state.granted(), all(&[0, 2, 3, 4]));
    assert!(world.is_held_at(0).await);
    assert!((0..5).all(|node| slot.hold_at(node).token == request.token), "it may be taken back and renewed there");
    assert!(world.links.iter().all(|link| link.faults().calls(Operation::Abandon) == 0));
}

#[tokio::test(start_paused = true)]
async fn only_the_refusals_of_the_last_try_count() {
    let world = World::new();
    let _taken = world.taken_at(&[1, 2]).await;
    let request = world.attempt();
    let slot = world.slot(&request);
    let mut round = Round::new(&world.shared, &slot, &request);
    round.ask(NodeSet::first(3), None);
    for _ in 0..2 {
        assert_eq!(round.decide().await, Decision::Lost(Defeat::Busy));
        assert_eq!(round.refusals.len(), 2);
        round.ask_again();
    }
}

/// Its reply is lost: whether it has a place there is not known.
#[tokio::test(start_paused = true)]
async fn a_place_that_is_never_told_of_is_given_up_after_the_grant() {
    let world = World::new();
    let _other = world.taken_at(&[0]).await;
    world.links[0].faults().delay(Operation::Acquire, millis(5));
    world.links[0].faults().lose_reply_next(Operation::Acquire);
    let request = world.waiter();
    let slot = world.slot(&request);
    let _heard = watch(&slot);
    world.grant(&request).await;
    world.quiet().await;
    assert_eq!(world.waiters(0), 0);
    assert!(slot.hold_at(0).token != request.token, "what was sent there is refused from now on");
}

#[tokio::test(start_paused = true)]
async fn a_place_that_was_refused_before_the_grant_is_given_up() {
    let world = World::new();
    let _other = world.taken_at(&[0]).await;
    (1..3).for_each(|node| world.links[node].faults().delay(Operation::Acquire, millis(5)));
    let request = world.waiter();
    let slot = world.slot(&request);
    let _heard = watch(&slot);
    world.grant(&request).await;
    world.quiet().await;
    assert_eq!(world.waiters(0), 0, "nobody comes when it is called");
    assert_eq!(place(&slot), (Some(0), false, 0));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_surely_did_nothing_has_nothing_to_undo() {
    let world = World::new();
    world.links[0].faults().fail_next(Operation::Acquire, ErrorKind::Unavailable);
    (1..3).for_each(|node| world.links[node].faults().delay(Operation::Acquire, millis(5)));
    let request = world.waiter();
    let slot = world.slot(&request);
    world.grant(&request).await;
    world.quiet().await;
    let undone = |operation| world.links[0].faults().calls(operation);
    assert_eq!((undone(Operation::Abandon), undone(Operation::Release)), (0, 0));
    assert!(!slot.has_spoiled());
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_no_node_heard_of_says_so() {
    let world = World::new();
    world.links.iter().for_each(|link| link.faults().outage());
    for request in [world.attempt(), world.waiter()] {
        let slot = world.slot(&request);
        let error = acquire(&world.shared, &request).await.unwrap_err();
        assert!(error.kind() == ErrorKind::Unavailable && error.was_not_applied(), "{error}");
        assert!(!place(&slot).1, "it has no place anywhere");
        let error = acquire(&world.shared, &request).await.unwrap_err();
        assert!(error.was_not_applied() && !place(&slot).1, "{error}");
    }
}

/// All are asked, and the one with its place does not answer.
#[tokio::test(start_paused = true)]
async fn a_place_at_a_node_that_failed_is_given_up_by_who_moves_on() {
    let world = World::new();
    let _taken = world.taken_at(&[0, 1, 2]).await;
    let request = world.waiter();
    let slot = world.slot(&request);
    let _heard = watch(&slot);
    (1..3).for_each(|node| world.links[node].faults().delay(Operation::Acquire, millis(5)));
    world.busy(&request).await;
    world.quiet().await;
    assert_eq!(world.waiters(0), 1);
    tokio::time::advance(PRESENCE / 4).await;
    world.links[0].faults().fail_next(Operation::Acquire, ErrorKind::Unavailable);
    world.busy(&request).await;
    assert_eq!(place(&slot), (Some(1), false, 1));
    world.quiet().await;
    assert_eq!(world.waiters(0), 0, "nobody listens there any more");
}

#[tokio::test(start_paused = true)]
async fn a_vote_that_another_node_cast_for_a_waiter_costs_it_no_place() {
    let world = World::new();
    let _taken = world.taken_at(&[0, 2]).await;
    world.links[2].faults().delay(Operation::Acquire, millis(5));
    let request = world.waiter();
    let slot = world.slot(&request);
    let _heard = watch(&slot);
    world.busy(&request).await;
    assert_eq!((place(&slot), world.waiters(0)), ((Some(0), true, 0), 1));
    world.quiet().await;
    assert!(!world.is_held_at(1).await, "it won nothing");
    assert!(!slot.hold_at(1).token.eq(&request.token) && slot.hold_at(0).token == request.token);
}

#[tokio::test(start_paused = true)]
async fn a_quorum_is_not_believed_in_while_a_node_that_votes_elsewhere_is_not_heard() {
    use tenure_core::driver::{Electorate, QuorumNode as _};
    let world = World::over((0..5).map(|_| MemoryDriver::new()).collect());
    let elsewhere = Electorate::of(["other"]);
    for node in [3, 4] {
        world.stores[node].enroll(&elsewhere).await.unwrap();
    }
    let request = world.attempt();
    for node in [3, 4] {
        let ballot = Ballot::new(request.clone(), world.shared.electorate);
        assert!(matches!(world.shared.nodes[node].vote(&ballot).await, Ok(Vote::Elsewhere { .. })));
    }
    world.links[3].faults().delay(Operation::Acquire, millis(50));
    world.links[4].faults().delay(Operation::Acquire, millis(100));
    let start = Instant::now();
    let error = acquire(&world.shared, &request).await.unwrap_err();
    assert_eq!((error.kind(), start.elapsed()), (ErrorKind::Misconfigured, millis(50)), "the fifth does not matter");
    world.quiet().await;
    for node in [3, 4] {
        world.stores[node].enroll(&world.shared.electorate).await.unwrap();
    }
    let start = Instant::now();
    let grant = world.grant(&request).await;
    assert_eq!((start.elapsed(), world.shared.background.len()), (millis(100), 0), "both vote here");
    assert_eq!(world.slot(&request).state().attempt_state.granted(), NodeSet::first(5));
    let start = Instant::now();
    assert_eq!(world.grant(&request).await.fence, grant.fence);
    (0..5).for_each(|node| world.stores[node].faults().expire(&world.name).map(drop).unwrap());
    world.grant(&world.attempt()).await;
    assert!(start.elapsed() < millis(200), "nobody waits for them any more");
}

#[tokio::test(start_paused = true)]
async fn a_quorum_of_one_leaves_no_work_behind() {
    let world = World::over(vec![MemoryDriver::new()]);
    world.grant(&world.waiter()).await;
    assert_eq!(world.shared.background.len(), 0, "everybody was heard");
    let elections = world.shared.elections.read();
    assert_eq!((elections.won, elections.won_in_one_round), (1, 1));
    world.busy(&world.attempt()).await;
    assert_eq!(world.shared.elections.read().lost, 1);
}
