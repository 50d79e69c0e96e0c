//! Giving back over stores in memory: who is told, how often, and how long anybody waits for that.

use tenure_core::ErrorKind;
use tenure_core::driver::{LeaseInstant, Ttl};
use tenure_memory::{MemoryDriver, Operation};
use tokio::time::Instant;

use super::*;
use crate::acquire::watch;
use crate::world::{TTL, World, all, millis, place};

fn world(nodes: usize) -> World {
    World::over((0..nodes).map(|_| MemoryDriver::new()).collect())
}

/// A lock that every node has.
async fn taken(world: &World) -> Hold {
    let request = world.attempt();
    world.grant(&request).await;
    world.quiet().await;
    Hold::new(world.name.clone(), request.token)
}

fn reported(world: &World, operation: Operation) -> Vec<u64> {
    world.links.iter().map(|link| link.faults().calls(operation)).collect()
}

#[tokio::test(start_paused = true)]
async fn a_release_is_sent_to_every_node_once() {
    let world = world(5);
    let hold = taken(&world).await;
    let slot = world.shared.slots.get(&hold.token).unwrap();
    world.links.iter().for_each(|link| link.faults().delay(Operation::Release, millis(1)));
    (3..5).for_each(|node| world.links[node].faults().delay(Operation::Release, millis(5)));
    let start = Instant::now();
    assert_eq!(release(&world.shared, &hold).await.unwrap(), Released::Released);
    assert_eq!(start.elapsed(), millis(1), "a majority is enough");
    assert!(world.shared.slots.get(&hold.token).is_none());
    let fence = FencingToken::new(1).unwrap();
    assert!(!slot.state().attempt_state.win(fence, all(&[0, 1, 2])), "nothing is won for it any more");
    world.quiet().await;
    assert_eq!(reported(&world, Operation::Release), [1; 5]);
    for node in 0..5 {
        assert!(!world.is_held_at(node).await);
    }
    assert_eq!(release(&world.shared, &hold).await.unwrap(), Released::NotHeld);
}

#[tokio::test(start_paused = true)]
async fn a_release_is_repeated_at_the_failed_node_only() {
    for failing in [3, 4] {
        let world = world(5);
        let hold = taken(&world).await;
        world.links.iter().for_each(|link| link.faults().delay(Operation::Release, millis(1)));
        (3..5).for_each(|node| world.links[node].faults().delay(Operation::Release, millis(5)));
        world.links[failing].faults().fail_next(Operation::Release, ErrorKind::Unavailable);
        assert_eq!(release(&world.shared, &hold).await.unwrap(), Released::Released);
        world.quiet().await;
        let mut expected = [1; 5];
        expected[failing] = 2;
        assert_eq!(reported(&world, Operation::Release), expected);
        assert!(!world.is_held_at(failing).await);
    }
}

#[tokio::test(start_paused = true)]
async fn no_work_is_left_once_all_nodes_have_answered() {
    let world = world(1);
    let hold = taken(&world).await;
    assert_eq!(release(&world.shared, &hold).await.unwrap(), Released::Released);
    assert_eq!(world.shared.background.len(), 0);
    assert_eq!(release(&world.shared, &hold).await.unwrap(), Released::NotHeld);
    abandon(&world.shared, &hold).await.unwrap();
    assert_eq!(world.shared.background.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_attempt_is_abandoned_when_a_majority_has_heard_of_it() {
    let world = world(3);
    let _taken = world.taken_at(&[0, 1, 2]).await;
    let request = world.waiter();
    let slot = world.slot(&request);
    let _heard = watch(&slot);
    world.busy(&request).await;
    world.quiet().await;
    assert!(slot.state().queue.listener.is_some());
    let before = reported(&world, Operation::Abandon);
    world.links[2].faults().delay(Operation::Abandon, millis(20));
    let hold = Hold::new(request.name.clone(), request.token);
    let start = Instant::now();
    abandon(&world.shared, &hold).await.unwrap();
    assert_eq!(start.elapsed(), Duration::ZERO, "nobody waits for the last one");
    assert!(slot.state().queue.listener.is_none(), "nobody listens any more");
    assert!(!slot.state().attempt_state.win(FencingToken::new(1).unwrap(), all(&[0, 1])), "nothing is won for it");
    assert!(world.shared.slots.get(&request.token).is_none());
    world.quiet().await;
    let calls: Vec<_> =
        reported(&world, Operation::Abandon).iter().zip(before).map(|(now, before)| now - before).collect();
    assert_eq!((calls, world.waiters(0)), (vec![1, 1, 1], 0));
    assert_eq!(crate::acquire::acquire(&world.shared, &request).await.unwrap_err().kind(), ErrorKind::NotHeld);
}

#[tokio::test(start_paused = true)]
async fn an_abandoned_attempt_is_sent_to_a_node_for_a_minute_after_its_lease() {
    let world = world(3);
    let hold = taken(&world).await;
    world.links[2].faults().outage();
    abandon(&world.shared, &hold).await.unwrap();
    let start = LeaseInstant::now();
    world.quiet().await;
    let took = LeaseInstant::now().since(start);
    let longest = TTL + Duration::from_secs(60);
    assert!(took >= longest && took <= longest + Duration::from_secs(2), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_forced_release_that_freed_some_nodes_says_so() {
    let world = world(3);
    taken(&world).await;
    world.links[1].faults().outage();
    world.links[2].faults().outage();
    let error = force_release(&world.shared, &world.name, None).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Unavailable && !error.was_not_applied(), "{error}");
    let error = force_release(&world.shared, &world.name, None).await.unwrap_err();
    assert!(error.was_not_applied(), "it was free already: {error}");
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_was_closed_tells_nobody() {
    let world = world(3);
    let hold = taken(&world).await;
    world.shared.closed.store(true, std::sync::atomic::Ordering::Release);
    let shared = &world.shared;
    let errors = [
        release(shared, &hold).await.map(drop).unwrap_err(),
        abandon(shared, &hold).await.unwrap_err(),
        force_release(shared, &world.name, None).await.map(drop).unwrap_err(),
        crate::inspect::inspect(shared, &world.name).await.map(drop).unwrap_err(),
        crate::acquire::acquire(shared, &world.attempt()).await.map(drop).unwrap_err(),
        crate::renew::renew(shared, Ttl::new(TTL).unwrap(), &[hold]).await.remove(0).map(drop).unwrap_err(),
    ];
    assert!(errors.iter().all(|error| error.kind() == ErrorKind::Closed), "{errors:?}");
    for operation in [Operation::Release, Operation::Abandon, Operation::ForceRelease, Operation::Renew] {
        assert_eq!(reported(&world, operation), [0, 0, 0], "{operation:?}");
    }
    assert_eq!(world.asked(), [1, 1, 1]);
    assert_eq!(place(&world.slot(&world.attempt())), (None, false, 0));
}

#[test]
fn a_forced_release_tells_what_a_majority_had() {
    let verdict = |released, changed, not_held| {
        let forced = Forced { released, changed, not_held };
        forced.verdict(5 - released - changed - not_held, 3)
    };
    assert_eq!(verdict(3, 2, 0), Some(ForceReleased::Released), "two nodes know it by a greater fence");
    assert_eq!(verdict(2, 0, 2), Some(ForceReleased::Released), "it may have had the node that is away");
    assert_eq!(verdict(1, 3, 1), Some(ForceReleased::Changed));
    assert_eq!(verdict(0, 2, 1), Some(ForceReleased::Changed));
    assert_eq!(verdict(2, 2, 0), None, "either may have the node that is away");
    assert_eq!(verdict(1, 1, 3), Some(ForceReleased::NotHeld), "neither had a majority");
    assert_eq!(verdict(0, 0, 3), Some(ForceReleased::NotHeld));
    assert_eq!(verdict(2, 0, 0), None);
    // Of four nodes two are no majority, and are not taken for one by what the others might have said.
    let forced = Forced { released: 2, changed: 0, not_held: 0 };
    assert_eq!(forced.verdict(2, 3), None);
}
