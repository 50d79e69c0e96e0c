//! Work that outlives its call, its runtime and its driver, and how long a node is told to forget a token.

use std::sync::atomic::{AtomicUsize, Ordering};

use tenure_core::driver::{AcquireRequest, Acquisition, DistributedLock as _, QuorumNode, Ttl};
use tenure_core::{LockName, OwnerToken};
use tenure_memory::{MemoryDriver, Operation};
use tokio::runtime::Runtime;
use tokio::time::{Instant, sleep, timeout};

use super::*;

const LONG: Duration = Duration::from_secs(3600);

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap()
}

/// A store behind a link, and a token to be undone there.
fn chore(undo: Undo) -> (MemoryDriver, Chore) {
    let link = MemoryDriver::new();
    let api = Arc::new(link.clone()) as Arc<dyn QuorumNode>;
    let node = Arc::new(Node::new("n0".into(), api, Duration::from_secs(10), Duration::ZERO));
    let hold = Hold::new(LockName::new("a").unwrap(), OwnerToken::random());
    (link, Chore { node, hold, undo })
}

fn soon(after: Duration) -> LeaseInstant {
    LeaseInstant::now().after(after)
}

/// How many calls of `release` and of `abandon` the node received.
fn reported(link: &MemoryDriver) -> (u64, u64) {
    (link.faults().calls(Operation::Release), link.faults().calls(Operation::Abandon))
}

async fn idle(background: &Background) {
    while background.len() > 0 {
        sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_token_is_undone_as_its_node_may_know_it() {
    for (undo, calls, tells) in [
        (Undo::Release, (1, 0), Some(Released::NotHeld)),
        (Undo::Abandon, (0, 1), None),
        (Undo::ReleaseOrAbandon, (1, 1), Some(Released::NotHeld)),
        (Undo::ReleaseAndAbandon, (1, 1), Some(Released::NotHeld)),
    ] {
        let (link, chore) = chore(undo);
        assert_eq!(chore.once().await.unwrap(), tells);
        assert_eq!(reported(&link), calls, "{undo:?}");
    }
}

#[tokio::test]
async fn a_vote_that_a_release_undid_is_not_abandoned_as_well() {
    for (undo, calls) in [(Undo::Release, (1, 0)), (Undo::ReleaseOrAbandon, (1, 0)), (Undo::ReleaseAndAbandon, (1, 1))]
    {
        let (link, chore) = chore(undo);
        let request = AcquireRequest::new(chore.hold.name.clone(), chore.hold.token, Ttl::new(LONG).unwrap());
        assert!(matches!(link.acquire(&request).await.unwrap(), Acquisition::Granted(_)));
        assert_eq!(chore.once().await.unwrap(), Some(Released::Released));
        assert_eq!(reported(&link), calls, "{undo:?}");
    }
}

/// At 0, 20, 60, 140, 300, 620 and 1,260 ms, and then once a second.
#[tokio::test(start_paused = true)]
async fn a_release_is_repeated_ever_more_seldom_until_the_lease_has_ended() {
    let (link, chore) = chore(Undo::Abandon);
    link.faults().outage();
    let (background, start) = (Background::default(), Instant::now());
    background.push(background.undoer().undo(vec![chore], soon(Duration::from_secs(10))));
    idle(&background).await;
    assert_eq!(reported(&link), (0, 16));
    assert!(start.elapsed() > Duration::from_secs(10) && start.elapsed() < Duration::from_secs(11));
}

#[tokio::test(start_paused = true)]
async fn a_release_is_repeated_until_the_node_answers_and_no_more() {
    let (link, chore) = chore(Undo::Release);
    (0..3).for_each(|_| link.faults().fail_next(Operation::Release, ErrorKind::Unavailable));
    let background = Background::default();
    background.push(background.undoer().undo(vec![chore], soon(LONG)));
    timeout(Duration::from_secs(1), idle(&background)).await.unwrap();
    assert_eq!(reported(&link), (4, 0));
}

#[tokio::test(start_paused = true)]
async fn a_node_whose_answer_cannot_change_is_not_asked_again() {
    for kind in [ErrorKind::NotHeld, ErrorKind::Closed] {
        let (link, chore) = chore(Undo::Release);
        link.faults().fail_next(Operation::Release, kind);
        undo_all(vec![Background::default().undoer().undoing(chore, soon(LONG))]).await;
        assert_eq!(reported(&link), (1, 0), "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_is_sent_to_all_nodes_at_once() {
    let all: Vec<_> = (0..3).map(|_| chore(Undo::Abandon)).collect();
    all.iter().for_each(|(link, _)| link.faults().delay(Operation::Abandon, Duration::from_millis(50)));
    let start = Instant::now();
    Background::default().undoer().undo(all.iter().map(|(_, chore)| chore.clone()).collect(), soon(LONG)).await;
    assert_eq!(start.elapsed(), Duration::from_millis(50));
    assert!(all.iter().all(|(link, _)| reported(link) == (0, 1)));
}

#[test]
fn what_is_begun_outside_a_runtime_waits_for_one() {
    let (background, done) = (Background::default(), Arc::new(AtomicUsize::new(0)));
    for _ in 0..2 {
        let done = Arc::clone(&done);
        background.push(async move {
            let _ = done.fetch_add(1, Ordering::Relaxed);
        });
    }
    background.resume();
    assert_eq!((background.len(), done.load(Ordering::Relaxed)), (2, 0));
    runtime().block_on(async {
        background.resume();
        idle(&background).await;
    });
    assert_eq!((background.len(), done.load(Ordering::Relaxed)), (0, 2));
}

#[test]
fn an_undoing_whose_runtime_ended_waits_for_the_next_one_while_it_can_matter() {
    let (link, chore) = chore(Undo::Abandon);
    link.faults().outage();
    let background = Background::default();
    let first = runtime();
    first.block_on(async {
        background.push(background.undoer().undo(vec![chore.clone(), chore.clone()], soon(LONG)));
        background.push(std::future::pending());
        background.undoer().undoing(chore.clone(), soon(LONG)).done();
        sleep(Duration::from_millis(1)).await;
        assert_eq!(background.len(), 2, "pieces of work");
    });
    drop(first);
    assert_eq!(background.len(), 2, "tokens; what is no undoing cannot be begun anew");
    link.faults().heal();
    let calls = reported(&link).1;
    runtime().block_on(async {
        background.resume();
        timeout(LONG, idle(&background)).await.unwrap();
    });
    assert_eq!(reported(&link).1, calls + 2);
}

#[test]
fn what_cannot_matter_any_more_does_not_wait() {
    let (_link, chore) = chore(Undo::Abandon);
    let background = Background::default();
    drop(background.undoer().undoing(chore.clone(), soon(Duration::ZERO)));
    assert_eq!(background.len(), 0);
    background.undoer().undoing(chore.clone(), soon(LONG)).done();
    assert_eq!(background.len(), 0, "it is undone");
    drop(background.undoer().undoing(chore, soon(LONG)));
    assert_eq!(background.len(), 1);
}

#[test]
fn there_is_room_for_so_much_and_no_more() {
    let (_link, chore) = chore(Undo::Abandon);
    let background = Background::default();
    (0..MOST).for_each(|_| drop(background.undoer().undoing(chore.clone(), soon(LONG))));
    assert_eq!(background.len(), MOST);
    drop(background.undoer().undoing(chore, soon(LONG)));
    background.push(std::future::pending());
    assert_eq!(background.len(), MOST, "leases end by themselves");
}

#[tokio::test(start_paused = true)]
async fn a_drain_waits_for_all_and_drops_what_takes_too_long() {
    let (quick, slow) = (Arc::new(()), Arc::new(()));
    let work = |kept: &Arc<()>, takes: u64| {
        let kept = Arc::clone(kept);
        async move {
            sleep(Duration::from_secs(takes)).await;
            drop(kept);
        }
    };
    let background = Background::default();
    background.push(work(&quick, 1));
    std::thread::scope(|scope| scope.spawn(|| background.push(work(&quick, 1))).join().unwrap());
    let start = Instant::now();
    background.drain(LONG).await;
    assert_eq!((start.elapsed(), Arc::strong_count(&quick)), (Duration::from_secs(1), 1), "also what had waited");
    background.push(work(&quick, 1));
    assert_eq!(background.len(), 0, "no more is accepted");
    let (_link, chore) = chore(Undo::Abandon);
    drop(background.undoer().undoing(chore, soon(LONG)));
    assert_eq!(background.len(), 0);

    let background = Background::default();
    background.push(work(&slow, 3600));
    let start = Instant::now();
    background.drain(Duration::from_secs(2)).await;
    tokio::task::yield_now().await;
    assert_eq!((start.elapsed(), Arc::strong_count(&slow)), (Duration::from_secs(2), 1));
}

#[tokio::test(start_paused = true)]
async fn what_runs_continues_without_the_driver() {
    let (link, chore) = chore(Undo::Release);
    link.faults().delay(Operation::Release, Duration::from_secs(1));
    let background = Background::default();
    background.push(background.undoer().undo(vec![chore], soon(LONG)));
    sleep(Duration::from_millis(1)).await;
    drop(background);
    sleep(Duration::from_secs(2)).await;
    assert_eq!(reported(&link), (1, 0));
}
