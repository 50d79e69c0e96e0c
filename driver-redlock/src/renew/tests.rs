//! Keeping leases over stores in memory: which nodes count, which are taken back, what is remembered.

use tenure_core::driver::{DistributedLock as _, LeaseInstant};
use tenure_core::{FencingToken, LockName, OwnerToken};
use tenure_memory::Operation;
use tokio::time::{Instant, sleep};

use super::*;
use crate::release::release;
use crate::world::{TTL, World, all, millis};

fn ttl(seconds: u64) -> Ttl {
    Ttl::new(Duration::from_secs(seconds)).unwrap()
}

/// A lock that every node has.
async fn taken(world: &World) -> (Hold, Arc<Slot>) {
    let request = world.attempt();
    world.grant(&request).await;
    world.quiet().await;
    (Hold::new(world.name.clone(), request.token), world.slot(&request))
}

async fn one(world: &World, hold: &Hold, ttl: Ttl) -> Result<Renewed> {
    renew(&world.shared, ttl, std::slice::from_ref(hold)).await.remove(0)
}

async fn extended(world: &World, hold: &Hold) {
    assert_eq!(one(world, hold, ttl(10)).await.unwrap(), Renewed::Extended { ttl: TTL });
}

fn votes(world: &World, node: usize) -> u64 {
    world.links[node].faults().calls(Operation::Acquire)
}

#[tokio::test(start_paused = true)]
async fn each_lease_of_a_batch_is_decided_for_itself() {
    let world = World::new();
    let (one, _) = taken(&world).await;
    let mut names = (1000..).map(|number| LockName::new(format!("lock {number}")).unwrap());
    let other = AcquireRequest::new(names.next().unwrap(), OwnerToken::random(), ttl(10));
    world.grant(&other).await;
    world.quiet().await;
    let lost = Hold::new(names.next().unwrap(), OwnerToken::random());
    world.links.iter().for_each(|link| link.faults().delay(Operation::Renew, millis(1)));
    world.links[2].faults().delay(Operation::Renew, millis(5));
    world.stores[1].faults().expire(&other.name).unwrap();
    let holds = [one, lost, Hold::new(other.name.clone(), other.token)];
    let start = Instant::now();
    let answers: Vec<_> = renew(&world.shared, ttl(10), &holds).await.into_iter().map(Result::unwrap).collect();
    let extended = Renewed::Extended { ttl: TTL };
    assert_eq!(answers, [extended, Renewed::Lost, extended]);
    assert_eq!(start.elapsed(), millis(5), "the third needs the slow node");
    world.quiet().await;
    assert!(world.stores[1].inspect(&other.name).await.unwrap().holder.is_some(), "taken back");
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_all_answered_leaves_no_work_behind() {
    let world = World::over(vec![tenure_memory::MemoryDriver::new()]);
    let (hold, _) = taken(&world).await;
    extended(&world, &hold).await;
    assert_eq!(world.shared.background.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_longest_lease_that_was_asked_for_is_remembered_anew_by_each_renewal() {
    let world = World::new();
    let (hold, slot) = taken(&world).await;
    let until = || slot.undo_until(Duration::ZERO);
    let kept = |slot: &Slot| slot.state().kept_until;
    sleep(Duration::from_secs(1)).await;
    extended(&world, &hold).await;
    assert_eq!(kept(&slot), LeaseInstant::now().after(Duration::from_secs(120)));
    one(&world, &hold, ttl(30)).await.unwrap();
    assert_eq!(until(), LeaseInstant::now().after(Duration::from_secs(30)));
    one(&world, &hold, ttl(5)).await.unwrap();
    assert_eq!(until(), LeaseInstant::now().after(Duration::from_secs(30)), "an earlier one may last");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_known_to_keep_it_counts_and_one_that_lost_it_does_not() {
    let world = World::new();
    let (hold, slot) = taken(&world).await;
    let granted = || slot.state().attempt_state.granted();
    slot.state().attempt_state.settle_gone(2); // as if its vote had not been heard
    extended(&world, &hold).await;
    world.quiet().await;
    assert_eq!(granted(), NodeSet::first(3));
    assert_eq!(votes(&world, 2), 1, "it has it, and is not asked to grant it");
    world.stores[2].faults().expire(&world.name).unwrap();
    world.links[2].faults().delay(Operation::Acquire, millis(50));
    world.links[0].faults().delay(Operation::Renew, millis(5));
    extended(&world, &hold).await;
    assert_eq!(granted(), all(&[0, 1]));
    extended(&world, &hold).await;
    world.quiet().await;
    assert_eq!((granted(), votes(&world, 2)), (NodeSet::first(3), 2), "it was asked once at a time");
}

#[tokio::test(start_paused = true)]
async fn a_loss_that_is_heard_of_late_is_mended_at_once() {
    let world = World::new();
    let (hold, slot) = taken(&world).await;
    world.stores[2].faults().expire(&world.name).unwrap();
    world.links[2].faults().delay(Operation::Renew, millis(20));
    extended(&world, &hold).await;
    assert_eq!(votes(&world, 2), 1, "it is not known yet");
    world.quiet().await;
    assert_eq!((slot.state().attempt_state.granted(), votes(&world, 2)), (NodeSet::first(3), 2));
    assert!(world.is_held_at(2).await);
}

#[tokio::test(start_paused = true)]
async fn a_lost_hold_is_forgotten_and_its_rest_given_back() {
    let world = World::new();
    let (hold, slot) = taken(&world).await;
    (0..2).for_each(|node| world.stores[node].faults().expire(&world.name).map(drop).unwrap());
    assert_eq!(one(&world, &hold, ttl(10)).await.unwrap(), Renewed::Lost);
    assert!(world.shared.slots.get(&hold.token).is_none());
    let (is_held, wins) = {
        let mut state = slot.state();
        (state.attempt_state.is_held(), state.attempt_state.win(FencingToken::new(1).unwrap(), all(&[0, 1])))
    };
    assert_eq!((is_held, wins), (false, false), "it is over");
    world.quiet().await;
    assert!(!world.is_held_at(2).await);
}

#[tokio::test(start_paused = true)]
async fn a_release_that_overtakes_a_renewal_ends_the_hold() {
    let world = World::new();
    let (hold, slot) = taken(&world).await;
    world.links.iter().for_each(|link| link.faults().delay_reply(Operation::Renew, millis(5)));
    let (renewed, released) = tokio::join!(one(&world, &hold, ttl(10)), release(&world.shared, &hold));
    assert!(renewed.is_ok() && released.is_ok());
    world.quiet().await;
    assert!(world.shared.slots.get(&hold.token).is_none(), "nobody asks for it any more");
    for node in 0..3 {
        assert!(!world.is_held_at(node).await);
    }
    drop(slot);
}

/// The known state of a node that was asked to grant again decides how the ended hold is undone there.
#[tokio::test(start_paused = true)]
async fn what_a_vote_that_takes_a_node_back_came_to_is_known() {
    let heard = async |fault: &dyn Fn(&World)| {
        let world = World::new();
        let (hold, slot) = taken(&world).await;
        world.stores[2].faults().expire(&world.name).unwrap();
        fault(&world);
        world.links[0].faults().delay(Operation::Renew, millis(1));
        extended(&world, &hold).await;
        world.quiet().await;
        let attempt_state = slot.state().attempt_state;
        (attempt_state.granted().contains(2), attempt_state.unknown().contains(2))
    };
    let link = |world: &World| world.links[2].faults();
    assert_eq!(heard(&|_| ()).await, (true, false));
    assert_eq!(heard(&|world| link(world).lose_reply_next(Operation::Acquire)).await, (false, true));
    let away = ErrorKind::Unavailable;
    assert_eq!(heard(&|world| link(world).fail_next(Operation::Acquire, away)).await, (false, false));
    let elsewhere = |world: &World| {
        let (store, another) = (world.stores[2].clone(), tenure_core::driver::Electorate::of(["other"]));
        futures_util::FutureExt::now_or_never(async move {
            tenure_core::driver::QuorumNode::enroll(&store, &another).await.unwrap();
        })
        .expect("a store in memory answers at once");
    };
    assert_eq!(heard(&elsewhere).await, (false, false));
}

#[tokio::test(start_paused = true)]
async fn a_node_is_not_taken_back_for_a_hold_that_ended_or_a_token_that_was_given_up() {
    let world = World::new();
    let (_, slot) = taken(&world).await;
    slot.state().attempt_state.settle_gone(2);
    let ballot = |token| Ballot::new(AcquireRequest::new(world.name.clone(), token, ttl(10)), world.shared.electorate);
    let healing = || {
        assert!(slot.state().attempt_state.begin_healing(2));
        Healing { slot: Arc::clone(&slot), node: 2, healed: Healed::NotSent }
    };
    let unknown = || slot.state().attempt_state.unknown().contains(2);
    assert!(!healing().send(&ballot(OwnerToken::random())) && !unknown(), "another token by now");
    assert!(healing().send(&ballot(slot.token)) && unknown(), "its runtime ended before it was answered");
    let mut ending = healing();
    slot.state().attempt_state.end();
    assert!(!ending.send(&ballot(slot.token)));
}

#[tokio::test(start_paused = true)]
async fn a_vote_that_has_yet_to_be_sent_is_not_when_the_hold_is_released_before() {
    let world = World::new();
    let (hold, _) = taken(&world).await;
    world.stores[2].faults().expire(&world.name).unwrap();
    world.links[0].faults().delay(Operation::Renew, millis(1));
    extended(&world, &hold).await;
    release(&world.shared, &hold).await.unwrap();
    world.quiet().await;
    assert_eq!(votes(&world, 2), 1);
    assert!(!world.is_held_at(2).await);
}
