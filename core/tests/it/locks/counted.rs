//! Re-entrant locks that are counted in the process answer as the memory driver's own, whatever is asked of them.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::driver::{
    AcquireRequest, Acquisition, Begun, CountedReentry, DistributedLock, Hold, ProcessOwners, ReentrantEntry,
    ReentrantHold, ReentrantLock, Renewed, Ttl,
};
use tenure_core::{ErrorKind, FenceFloor, FencingToken, LockName, OwnerId, OwnerToken, Result};
use tenure_memory::{MemoryDriver, Operation};

use crate::locks::stage::{Stage, Step};

/// Draws the same for the same seed.
struct Draw(u64);

impl Draw {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }
}

fn name(which: usize) -> LockName {
    LockName::new(["a", "b"][which]).unwrap()
}

fn ttl(millis: u64) -> Ttl {
    Ttl::new(Duration::from_millis(millis)).unwrap()
}

/// A grant by all that it says, an error by its kind. A token that was abandoned is refused, or told that the lock is busy.
fn shown(answer: &Result<Acquisition>) -> String {
    match answer {
        Ok(Acquisition::Granted(grant)) => format!("{grant:?}"),
        Ok(Acquisition::Busy(_)) => "refused".into(),
        Err(error) if error.kind() == ErrorKind::NotHeld => "refused".into(),
        Err(error) => format!("{:?}", error.kind()),
    }
}

fn brief<T: Debug>(answer: &Result<T>) -> String {
    answer.as_ref().map_or_else(|error| format!("{:?}", error.kind()), |answer| format!("{answer:?}"))
}

/// The memory driver's own re-entrant locks, and those that are counted over its plain ones by two clients of a process.
struct Both {
    own: MemoryDriver,
    plain: Vec<Arc<MemoryDriver>>,
    counted: Vec<CountedReentry>,
    owners: Arc<ProcessOwners>,
    people: [OwnerId; 3],
    /// Tokens that were used, with their owner and name.
    tokens: Vec<(usize, usize, OwnerToken)>,
    /// The fence of the last grant of each owner and name.
    fences: Vec<(usize, usize, FencingToken)>,
}

impl Both {
    fn new() -> Self {
        let floor = FenceFloor::now();
        let [store, own] = std::array::from_fn(|_| MemoryDriver::builder().fence_floor(floor).build().unwrap());
        let owners = Arc::<ProcessOwners>::default();
        let plain = vec![Arc::new(store.another_client()), Arc::new(store)];
        let over = |driver: &Arc<MemoryDriver>| CountedReentry::new(driver.clone(), Arc::clone(&owners));
        let counted = plain.iter().map(over).collect();
        let people = std::array::from_fn(|_| OwnerId::new());
        Self { own, plain, counted, owners, people, tokens: Vec::new(), fences: Vec::new() }
    }

    async fn step(&mut self, draw: &mut Draw) {
        let (who, which) = (draw.below(3), draw.below(2));
        let counted = &self.counted[draw.below(2)];
        let known = draw.below(self.tokens.len().max(1));
        match draw.below(10) {
            0..=3 => {
                let used = self.tokens.get(known).copied().filter(|_| draw.below(4) == 0);
                let (who, which, token) = used.unwrap_or((who, which, OwnerToken::random()));
                let request = AcquireRequest::new(name(which), token, ttl(100 + draw.below(900) as u64));
                let answer = self.own.enter(&self.people[who], &request).await;
                assert_eq!(shown(&counted.enter(&self.people[who], &request).await), shown(&answer));
                self.tokens.push((who, which, token));
                if let Ok(Acquisition::Granted(grant)) = answer {
                    self.fences.push((who, which, grant.fence));
                }
            }
            4..=6 => {
                let Some((owner, which, token)) = self.tokens.get(known).copied() else { return };
                let abandons = draw.below(3) == 0; // which goes by the token, as a backend's does
                let who = if draw.below(8) == 0 && !abandons { who } else { owner };
                let entry = ReentrantEntry::new(name(which), self.people[who], token);
                if abandons {
                    let answer = ReentrantLock::abandon(&self.own, &entry).await;
                    assert_eq!(brief(&counted.abandon(&entry).await), brief(&answer));
                } else {
                    let answer = self.own.exit(&entry).await;
                    assert_eq!(brief(&counted.exit(&entry).await), brief(&answer));
                }
            }
            7 => {
                let some = self.fences.iter().rev().take(1 + draw.below(4));
                let hold = |&(who, which, fence): &_| ReentrantHold::new(name(which), self.people[who], fence);
                let (holds, ttl) = (some.map(hold).collect::<Vec<_>>(), ttl(100 + draw.below(900) as u64));
                let answers = ReentrantLock::renew(&self.own, ttl, &holds).await;
                let same = ReentrantLock::renew(counted, ttl, &holds).await;
                assert_eq!(
                    same.iter().map(brief).collect::<Vec<_>>(),
                    answers.iter().map(brief).collect::<Vec<_>>(),
                    "{holds:?}"
                );
            }
            8 => tokio::time::advance(Duration::from_millis(draw.below(400) as u64)).await,
            _ if draw.below(4) == 0 => {
                let answer = self.own.force_release(&name(which), None).await;
                assert_eq!(brief(&self.plain[0].force_release(&name(which), None).await), brief(&answer));
            }
            _ => {}
        }
        self.compare().await;
    }

    /// What is lost is known to the process when it asks; then both know the same.
    async fn compare(&self) {
        for which in 0..2 {
            let holder = self.own.inspect(&name(which)).await.unwrap().holder;
            let fence = holder.as_ref().and_then(|holder| holder.fence);
            for &(who, _, lost) in self.fences.iter().filter(|(_, of, lost)| *of == which && Some(*lost) != fence) {
                let hold = ReentrantHold::new(name(which), self.people[who], lost);
                let renewed = ReentrantLock::renew(&self.counted[0], ttl(1_000), &[hold]).await;
                assert!(matches!(renewed[..], [Ok(Renewed::Lost)]), "{renewed:?}");
                assert_eq!(self.owners.inside(&name(which), lost), None);
            }
            let seen = fence.and_then(|fence| self.owners.inside(&name(which), fence));
            assert_eq!(seen, holder.map(|holder| (holder.owner.unwrap(), holder.depth)));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn counted_entries_answer_as_the_memory_drivers_own() {
    for seed in 0..150 {
        let (mut both, mut draw) = (Both::new(), Draw(seed));
        for _ in 0..60 {
            both.step(&mut draw).await;
        }
    }
}

fn granted(answer: Result<Acquisition>) -> (Begun, u32) {
    match answer.unwrap() {
        Acquisition::Granted(grant) => (grant.begun, grant.depth),
        Acquisition::Busy(busy) => panic!("{busy:?}"),
    }
}

/// Two clients of one process, an owner, and a request of it.
fn two() -> ([Arc<MemoryDriver>; 2], [CountedReentry; 2], Arc<ProcessOwners>, OwnerId, AcquireRequest) {
    let (store, owners) = (MemoryDriver::new(), Arc::<ProcessOwners>::default());
    let plain = [store.another_client(), store].map(Arc::new);
    let over = |at: usize| CountedReentry::new(plain[at].clone(), Arc::clone(&owners));
    let counted = [over(0), over(1)];
    let request = AcquireRequest::new(name(0), OwnerToken::random(), ttl(5_000));
    (plain, counted, owners, OwnerId::new(), request)
}

/// How many requests each of the clients sent.
fn calls(plain: &[Arc<MemoryDriver>; 2], operation: Operation) -> [u64; 2] {
    [0, 1].map(|at| plain[at].faults().calls(operation))
}

#[tokio::test(start_paused = true)]
async fn a_hold_goes_by_the_driver_that_took_it_until_that_is_closed() {
    for closed in [false, true] {
        let by = |sent: u64| if closed { [0, sent] } else { [sent, 0] };
        let (plain, counted, owners, me, request) = two();
        assert_eq!(granted(counted[0].enter(&me, &request).await), (Begun::Now, 1));
        if closed {
            plain[0].close().await;
        }
        let inner = request.clone().with_token(OwnerToken::random());
        assert_eq!(granted(counted[1].enter(&me, &inner).await), (Begun::Now, 2), "closed: {closed}");
        assert_eq!(calls(&plain, Operation::Renew), by(1), "an entry renews");
        let asked = plain[0].faults().calls(Operation::Renew);
        let again = request.clone().with_token(OwnerToken::random());
        assert_eq!(granted(counted[1].enter(&me, &again).await), (Begun::Now, 3));
        assert_eq!(calls(&plain, Operation::Renew), by(2));
        assert_eq!(plain[0].faults().calls(Operation::Renew), if closed { asked } else { asked + 1 }, "not again");
        counted[1].exit(&ReentrantEntry::new(name(0), me, again.token)).await.unwrap();
        let fence = plain[1].inspect(&name(0)).await.unwrap().holder.unwrap().fence.unwrap();
        let whole = [ReentrantHold::new(name(0), me, fence), ReentrantHold::new(name(1), me, fence)];
        let answers = ReentrantLock::renew(&counted[1], ttl(9_000), &whole).await;
        assert!(matches!(answers[..], [Ok(Renewed::Extended { .. }), Ok(Renewed::Lost)]), "{answers:?}");
        assert_eq!(calls(&plain, Operation::Renew), by(3));
        let exit = |token| ReentrantEntry::new(name(0), me, token);
        counted[1].exit(&exit(inner.token)).await.unwrap();
        counted[1].exit(&exit(request.token)).await.unwrap();
        assert_eq!(calls(&plain, Operation::Release), by(1));
        assert!(plain[1].inspect(&name(0)).await.unwrap().holder.is_none());
        assert_eq!(owners.inside(&name(0), fence), None);
    }
}

#[tokio::test(start_paused = true)]
async fn the_last_entry_of_a_closed_client_ends_through_another() {
    // What ends it, after the renewal that moves the hold, or without.
    for (abandons, renews) in [(false, false), (false, true), (true, false), (true, true)] {
        let (plain, counted, _, me, request) = two();
        granted(counted[0].enter(&me, &request).await);
        plain[0].close().await;
        let fence = plain[1].inspect(&name(0)).await.unwrap().holder.unwrap().fence.unwrap();
        if renews {
            let whole = [ReentrantHold::new(name(0), me, fence)];
            let renewed = ReentrantLock::renew(&counted[1], ttl(9_000), &whole).await;
            assert!(matches!(renewed[..], [Ok(Renewed::Extended { .. })]), "{renewed:?}");
        }
        let entry = ReentrantEntry::new(name(0), me, request.token);
        if abandons {
            counted[1].abandon(&entry).await.unwrap();
            let again = counted[1].enter(&me, &request).await;
            assert_eq!(again.unwrap_err().kind(), ErrorKind::NotHeld);
        } else {
            counted[1].exit(&entry).await.unwrap();
        }
        assert!(plain[1].inspect(&name(0)).await.unwrap().holder.is_none(), "{abandons} {renews}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_of_the_driver_changes_nothing_and_names_the_lock() {
    let (plain, counted, owners, me, request) = two();
    granted(counted[0].enter(&me, &request).await);
    let fence = plain[0].inspect(&name(0)).await.unwrap().holder.unwrap().fence.unwrap();
    let entry = ReentrantEntry::new(name(0), me, request.token);
    for operation in [Operation::Renew, Operation::Release, Operation::Abandon] {
        plain[0].faults().fail_next(operation, ErrorKind::Unavailable);
        let inner = request.clone().with_token(OwnerToken::random());
        let error = match operation {
            Operation::Renew => counted[0].enter(&me, &inner).await.unwrap_err(),
            Operation::Release => counted[0].exit(&entry).await.unwrap_err(),
            _ => counted[0].abandon(&entry).await.unwrap_err(),
        };
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.to_string().contains("\"a\""), "{error}");
        assert_eq!(owners.inside(&name(0), fence), Some((me, 1)), "after {operation:?}");
    }
    let again = counted[1].enter(&me, &request).await.unwrap_err();
    assert_eq!(again.kind(), ErrorKind::NotHeld, "what was to be undone is not asked for again");
    counted[1].abandon(&entry).await.unwrap();
    assert!(plain[0].inspect(&name(0)).await.unwrap().holder.is_none());
}

#[tokio::test(start_paused = true)]
async fn the_last_exit_of_a_hold_that_was_taken_away_says_so() {
    let (plain, counted, owners, me, request) = two();
    let fence = match counted[0].enter(&me, &request).await.unwrap() {
        Acquisition::Granted(grant) => grant.fence,
        Acquisition::Busy(busy) => panic!("{busy:?}"),
    };
    plain[0].faults().lose(name(0).as_bytes()).unwrap();
    let exited = counted[0].exit(&ReentrantEntry::new(name(0), me, request.token)).await.unwrap();
    assert_eq!((exited, owners.inside(&name(0), fence)), (tenure_core::driver::Exited::NotHeld, None));
}

#[tokio::test(start_paused = true)]
async fn a_hold_outlives_the_driver_that_took_it() {
    let (store, owners) = (MemoryDriver::new(), ProcessOwners::of("a store that two clients share"));
    let (me, request) = (OwnerId::new(), AcquireRequest::new(name(0), OwnerToken::random(), ttl(5_000)));
    let first = CountedReentry::new(Arc::new(store.another_client()), Arc::clone(&owners));
    granted(first.enter(&me, &request).await);
    drop(first);
    let second = CountedReentry::new(Arc::new(store.clone()), ProcessOwners::of("a store that two clients share"));
    assert_eq!(granted(second.enter(&me, &request).await), (Begun::Earlier, 1));
    second.exit(&ReentrantEntry::new(name(0), me, request.token)).await.unwrap();
    assert!(store.inspect(&name(0)).await.unwrap().holder.is_none());
    let other = CountedReentry::new(Arc::new(store.clone()), ProcessOwners::of("another store"));
    store.acquire(&request.clone().with_token(OwnerToken::random())).await.unwrap();
    let answer = other.enter(&me, &request).await.unwrap();
    assert!(matches!(answer, Acquisition::Busy(_)), "{answer:?}");
}

#[tokio::test(start_paused = true)]
async fn who_is_outside_is_forgotten() {
    let (plain, counted, owners, me, request) = two();
    let held = Hold::new(name(0), OwnerToken::random());
    plain[1].acquire(&AcquireRequest::new(name(0), held.token, ttl(5_000))).await.unwrap();
    let answer = counted[0].enter(&me, &request).await.unwrap();
    assert!(matches!(answer, Acquisition::Busy(_)), "{answer:?}");
    assert_eq!(format!("{owners:?}").matches("Cell").count(), 0, "{owners:?}");
    let entry = ReentrantEntry::new(name(0), me, request.token);
    counted[0].exit(&entry).await.unwrap();
    assert_eq!(format!("{owners:?}").matches("Cell").count(), 0, "{owners:?}");
    plain[1].release(&held).await.unwrap();
    granted(counted[0].enter(&me, &request).await);
    assert_eq!(format!("{owners:?}").matches("Cell").count(), 1, "{owners:?}");
    counted[0].abandon(&entry).await.unwrap();
    assert_eq!(format!("{owners:?}").matches("Cell").count(), 0, "{owners:?}");
}

/// Two drivers that note what they are asked, and owners that both count by.
fn noted() -> ([Arc<Stage>; 2], [CountedReentry; 2], Arc<ProcessOwners>) {
    let (stages, owners) = ([Arc::<Stage>::default(), Arc::default()], Arc::<ProcessOwners>::default());
    let counted = [0, 1].map(|at: usize| CountedReentry::new(stages[at].clone(), Arc::clone(&owners)));
    (stages, counted, owners)
}

async fn entered(counted: &CountedReentry, me: &OwnerId, which: usize) -> (AcquireRequest, ReentrantHold) {
    let request = AcquireRequest::new(name(which), OwnerToken::random(), ttl(1_000));
    let Acquisition::Granted(grant) = counted.enter(me, &request).await.unwrap() else { panic!("busy") };
    (request, ReentrantHold::new(name(which), *me, grant.fence))
}

#[tokio::test(start_paused = true)]
async fn a_closed_driver_is_asked_once() {
    for by_entry in [false, true] {
        let (stages, counted, _owners) = noted();
        let me = OwnerId::new();
        let (_, hold) = entered(&counted[0], &me, 0).await;
        stages[0].renew.lock().unwrap().extend([Step::Fail(ErrorKind::Closed); 3]);
        for _ in 0..3 {
            if by_entry {
                entered(&counted[1], &me, 0).await;
            } else {
                ReentrantLock::renew(&counted[1], ttl(1_000), std::slice::from_ref(&hold)).await.remove(0).unwrap();
            }
        }
        assert_eq!((stages[0].sent("renew").len(), stages[1].sent("renew").len()), (1, 3), "by entry: {by_entry}");
    }
}

#[tokio::test(start_paused = true)]
async fn each_driver_is_asked_once_for_all_the_holds_that_go_by_it() {
    let (stages, counted, _owners) = noted();
    let me = OwnerId::new();
    let mut holds = Vec::new();
    for (which, by) in [(0, 0), (1, 1)] {
        holds.push(entered(&counted[by], &me, which).await.1);
        holds.push(entered(&counted[by], &OwnerId::new(), which).await.1);
    }
    let answers = ReentrantLock::renew(&counted[0], ttl(1_000), &holds).await;
    assert!(answers.iter().all(|answer| matches!(answer, Ok(Renewed::Extended { .. }))), "{answers:?}");
    for stage in stages {
        assert_eq!(*stage.batches.lock().unwrap(), [2]);
    }
}

#[tokio::test(start_paused = true)]
async fn an_inner_entry_that_is_abandoned_is_refused_by_the_backend_as_well() {
    let (stages, counted, owners) = noted();
    let me = OwnerId::new();
    let (_, hold) = entered(&counted[0], &me, 0).await;
    let (inner, _) = entered(&counted[0], &me, 0).await;
    assert_eq!((owners.inside(&name(0), hold.fence), owners.inside(&name(1), hold.fence)), (Some((me, 2)), None));
    counted[0].abandon(&ReentrantEntry::new(name(0), me, inner.token)).await.unwrap();
    assert_eq!(stages[0].sent("abandon"), [inner.token], "its request may still be on its way");
    assert_eq!(owners.inside(&name(0), hold.fence), Some((me, 1)));
}

#[tokio::test(start_paused = true)]
async fn an_owner_enters_so_often_and_no_more() {
    let (_stages, counted, owners) = noted();
    let me = OwnerId::new();
    for _ in 1..CountedReentry::MAX_DEPTH {
        entered(&counted[0], &me, 0).await;
    }
    let (_, hold) = entered(&counted[0], &me, 0).await;
    assert_eq!(owners.inside(&name(0), hold.fence), Some((me, CountedReentry::MAX_DEPTH)));
    let request = AcquireRequest::new(name(0), OwnerToken::random(), ttl(1_000));
    let error = counted[0].enter(&me, &request).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LimitReached, "{error}");
}

#[tokio::test]
async fn who_gives_the_same_name_shares_owners_for_as_long_as_one_of_them_lives() {
    let (one, other) = (ProcessOwners::of("one space"), ProcessOwners::of("another space"));
    for _ in 0..2 {
        assert!(Arc::ptr_eq(&one, &ProcessOwners::of("one space")));
        assert!(!Arc::ptr_eq(&one, &other));
    }
}
