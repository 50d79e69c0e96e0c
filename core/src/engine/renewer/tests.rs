//! Tests of the renewer: the leases it checks, the times of checks, and the answers of renewals.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::*;
use crate::engine::lease::tests::lease;
use crate::value::time::HoldState;
use crate::value::token::OwnerToken;

#[tokio::test(start_paused = true)]
async fn a_lease_in_hand_is_still_looked_after() {
    let (renewer, lease) = (Renewer::default(), lease(Duration::from_secs(30)));
    renewer.watch_over(&lease);
    tokio::time::advance(Duration::from_secs(20)).await;
    let now = LeaseInstant::now();
    assert_eq!(renewer.plan().timers.take(now, now).len(), 1);
    assert_eq!(renewer.leases().len(), 1, "whoever ends all leases must not miss one");
    assert_eq!(renewer.plan().sleep(&renewer.bell), None);
    renewer.forget(&lease);
    assert!(renewer.leases().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_answer_behind_the_deadline_revives_nothing() {
    let ttl = Duration::from_secs(30);
    let (renewer, lease) = (Renewer::default(), lease(ttl));
    let sent_at = LeaseInstant::before_send();
    renewer.watch_over(&lease);
    tokio::time::advance(ttl).await;
    let late = Renewing::due(Arc::clone(&lease), sent_at.after(ttl));
    assert!(late.answered(Verdict::Confirmed { sent_at, believable: ttl * 2 }).is_none());
    assert_eq!(lease.state(), HoldState::Lost(LostReason::Expired), "although nobody had looked before");
}

/// Its time had passed before, and by now another one is on its way, or was answered.
#[tokio::test(start_paused = true)]
async fn an_answer_that_comes_after_its_time_plans_nothing_and_raises_no_suspicion() {
    let (lease, limit) = (lease(Duration::from_secs(30)), Duration::from_secs(1));
    let begin = async || Renewing::begin(&lease, None, limit).await;
    let early = begin().await;
    tokio::time::advance(limit * 2).await;
    let (current, planned) = (begin().await, lease.next_look());
    early.answered(Verdict::Unknown);
    assert_eq!((lease.state(), lease.next_look()), (HoldState::Held, planned));
    current.answered(Verdict::Unknown);
    assert_eq!(lease.state(), HoldState::Suspect);
    tokio::time::advance(limit).await;
    let (early, suspect) = (begin().await, LeaseInstant::before_send());
    tokio::time::advance(limit * 2).await;
    let current = begin().await;
    early.answered(Verdict::Confirmed { sent_at: suspect, believable: Duration::from_secs(60) });
    assert_eq!(lease.state(), HoldState::Suspect, "it lasts longer, and the last renewal is not answered");
    assert!(lease.deadline() >= suspect.after(Duration::from_secs(60)));
    current.answered(Verdict::Unknown);
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_of_one_ttl() {
    let ttl = |seconds| Ttl::new(Duration::from_secs(seconds)).unwrap();
    let all = [3, 1, 3, 3, 1, 3, 2].map(|seconds| (ttl(seconds), (), seconds)).to_vec();
    let batches: Vec<_> = batches(all, 3).into_iter().map(|batch| (batch.ttl, batch.holds)).collect();
    let expected = [(ttl(1), vec![1; 2]), (ttl(2), vec![2]), (ttl(3), vec![3; 3]), (ttl(3), vec![3])];
    assert_eq!(batches, expected);
}

#[tokio::test(start_paused = true)]
async fn the_clock_is_looked_at_every_second() {
    let (renewer, lease) = (Renewer::default(), lease(Duration::from_secs(30)));
    renewer.watch_over(&lease);
    assert_eq!(renewer.plan().sleep(&renewer.bell), Some(LeaseInstant::now().after(LONGEST_SLEEP)));
}

fn after(base: LeaseInstant, ms: u64) -> LeaseInstant {
    base.after(Duration::from_millis(ms))
}

fn due(timers: &mut TimerQueue, at: LeaseInstant) -> usize {
    timers.take(at, at).len()
}

#[tokio::test(start_paused = true)]
async fn leases_are_taken_when_they_are_due_and_not_before() {
    let (mut timers, base) = (TimerQueue::default(), LeaseInstant::now());
    let leases: Vec<_> = (0..100).map(|_| lease(Duration::from_secs(30))).collect();
    for (i, lease) in leases.iter().enumerate() {
        assert!(timers.plan(lease, after(base, 10 * (i as u64 / 10)), base));
    }
    assert_eq!(timers.first(), Some(LeaseInstant::at_millis(base.millis() + 1)));
    assert_eq!(due(&mut timers, base), 0);
    assert_eq!(due(&mut timers, after(base, 11)), 20);
    assert_eq!(timers.leases().len(), 100, "those in hand are still looked after");
    for lease in &leases[20..25] {
        timers.remove(lease);
    }
    assert_eq!(due(&mut timers, after(base, 21)), 5);
    assert_eq!(timers.leases().len(), 95);
    assert_eq!(due(&mut timers, after(base, 1000)), 70);
    assert!(timers.looks.is_empty());
}

#[tokio::test(start_paused = true)]
async fn only_a_sooner_look_changes_the_plan() {
    let (mut timers, base) = (TimerQueue::default(), LeaseInstant::now());
    let (one, other) = (lease(Duration::from_secs(30)), lease(Duration::from_secs(30)));
    assert!(timers.plan(&other, after(base, 5), base));
    assert!(timers.plan(&one, after(base, 5), base));
    assert!(!timers.plan(&one, after(base, 6), base));
    assert!(timers.plan(&one, after(base, 2), base));
    assert_eq!(due(&mut timers, after(base, 4)), 1);
    assert!(timers.plan(&one, after(base, 6), base), "nothing is planned for one in hand");
    assert_eq!(due(&mut timers, after(base, 10)), 2);
}

#[tokio::test(start_paused = true)]
async fn far_looks_come_together_and_at_most_a_little_early() {
    let (mut timers, base) = (TimerQueue::default(), LeaseInstant::now());
    let leases: Vec<_> = (0..100).map(|_| lease(Duration::from_secs(30))).collect();
    for (i, lease) in leases.iter().enumerate() {
        timers.plan(lease, after(base, 10_000 + i as u64), base);
    }
    assert!(timers.looks.len() <= 5, "{}", timers.looks.len());
    assert_eq!(due(&mut timers, after(base, 10_000 - 40)), 0);
    assert_eq!(due(&mut timers, after(base, 10_100)), 100);
}

#[tokio::test(start_paused = true)]
async fn a_near_look_is_not_early_however_long_nobody_looked() {
    let (mut timers, base) = (TimerQueue::default(), LeaseInstant::now());
    assert_eq!(due(&mut timers, base), 0);
    let later = after(base, 60_000);
    timers.plan(&lease(Duration::from_secs(30)), after(later, 2), later);
    assert!(timers.first() >= Some(after(later, 2)));
}

#[tokio::test(start_paused = true)]
async fn entries_are_used_again() {
    let (mut timers, base) = (TimerQueue::default(), LeaseInstant::now());
    for round in 0..1000 {
        let (kept, gone) = (lease(Duration::from_secs(30)), lease(Duration::from_secs(30)));
        timers.plan(&kept, after(base, round), base);
        timers.plan(&gone, after(base, round), base);
        timers.remove(&kept);
        drop(gone); // forgotten by nobody
        assert_eq!(due(&mut timers, after(base, round + 1)), 0);
    }
    assert!(timers.entries.len() <= 2, "{}", timers.entries.len());
}

/// The moments at which leases are checked, by their index.
type Looks = BTreeMap<usize, u64>;

#[tokio::test(start_paused = true)]
async fn random_plans_are_kept_to_the_millisecond() {
    for seed in 0..40_u64 {
        let (mut timers, mut now) = (TimerQueue::default(), LeaseInstant::now());
        let leases: Vec<_> = (0..6).map(|_| lease(Duration::from_secs(30))).collect();
        let (mut looks, mut known) = (Looks::new(), BTreeSet::new());
        let mut state = seed;
        let mut draw = |n: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % n
        };
        for _ in 0..200 {
            let which = draw(6) as usize;
            match draw(5) {
                0..=1 => {
                    let at = after(now, draw(20));
                    let sooner = looks.get(&which).is_none_or(|planned| at.millis() + 1 < *planned);
                    assert_eq!(timers.plan(&leases[which], at, now), sooner);
                    if sooner {
                        looks.insert(which, at.millis() + 1);
                    }
                    known.insert(which);
                }
                2 => {
                    timers.remove(&leases[which]);
                    looks.remove(&which);
                    known.remove(&which);
                }
                _ => {
                    now = after(now, draw(4));
                    let horizon = after(now, draw(3));
                    let due = looks.values().any(|at| *at <= now.millis());
                    let mut taken: Vec<_> = timers.take(now, horizon).iter().map(|lease| lease.place.get()).collect();
                    let mut expected: Vec<_> = Vec::new();
                    looks.retain(|which, at| {
                        let taken = due && *at <= horizon.millis();
                        expected.extend(taken.then(|| leases[*which].place.get()));
                        !taken
                    });
                    taken.sort_unstable();
                    expected.sort_unstable();
                    assert_eq!(taken, expected, "seed {seed}");
                }
            }
            assert_eq!(timers.first().map(LeaseInstant::millis), looks.values().min().copied(), "seed {seed}");
            assert_eq!(timers.leases().len(), known.len());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn leases_that_were_taken_together_are_looked_at_apart() {
    let leases: Vec<_> = (0..50).map(|_| lease(Duration::from_secs(30))).collect();
    let looks: BTreeSet<_> = leases.iter().map(|lease| lease.next_look().unwrap().millis()).collect();
    assert!(looks.len() > 20, "{looks:?}");
    assert!(looks.iter().all(|at| (8_900..=10_001).contains(&(at - LeaseInstant::now().millis()))), "{looks:?}");
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_due_from_a_hundredth_of_its_ttl_before_its_time() {
    let (ttl, whole) = (Duration::from_secs(30), |_: Ttl| Duration::from_secs(30));
    let lease = lease(ttl);
    let look = lease.next_look().unwrap();
    tokio::time::advance(Duration::from_secs(5)).await;
    let early = look.millis() - LeaseInstant::now().millis() - 320;
    tokio::time::advance(Duration::from_millis(early)).await;
    assert!(matches!(lease.due(LeaseInstant::now(), whole), Due::Later));
    tokio::time::advance(Duration::from_millis(30)).await;
    assert!(matches!(lease.due(LeaseInstant::now(), whole), Due::Renew { .. }));
    assert!(matches!(lease.due(LeaseInstant::now(), whole), Due::Later), "it is on its way");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_ended_is_looked_at_until_it_is_cleaned_up() {
    let (ttl, whole) = (Duration::from_secs(30), |_: Ttl| Duration::from_secs(30));
    let (lost, left) = (lease(ttl), lease(ttl));
    assert!(left.leave(&OwnerToken::random(), LeaseInstant::now()).is_none());
    left.leave(&left.holder().unwrap(), LeaseInstant::now()).unwrap();
    assert_eq!((left.state(), left.next_look()), (HoldState::Released, None));
    tokio::time::advance(ttl).await;
    assert_eq!(lost.state(), HoldState::Lost(LostReason::Expired));
    assert!(lost.next_look().is_some(), "there is something to undo");
    let ended = lost.due(LeaseInstant::now(), whole);
    assert!(matches!(ended, Due::Ended(LostReason::Expired, entries) if entries.len() == 1));
    assert_eq!(lost.next_look(), None);
    assert!(matches!(lost.due(LeaseInstant::now(), whole), Due::Nothing));
    assert!(matches!(left.due(LeaseInstant::now(), whole), Due::Nothing));
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_failed_is_tried_again_sooner_as_the_end_comes_nearer() {
    let (lease, start) = (lease(Duration::from_secs(6)), LeaseInstant::now());
    let pause = |left: u64| {
        let now = start.after(Duration::from_millis(6_000 - left));
        let mut state = lease.lock();
        state.plan_retry(now);
        state.renew_at.since(now)
    };
    // At most a twelfth of the ttl, or a quarter of what is left, and up to a quarter less.
    for (left, most) in [(5_000, 500_u64), (1_000, 250), (400, 100), (0, 5)] {
        let (pause, most) = (pause(left), Duration::from_millis(most));
        assert!(pause <= most && pause >= most * 7 / 10, "{pause:?} of {most:?}");
    }
}

#[test]
fn a_grant_is_confirmed_first_where_one_worker_does_everything() {
    let builders = [tokio::runtime::Builder::new_current_thread, || {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(2);
        builder
    }];
    let first = builders.map(|builder| {
        let runtime = builder().build().unwrap();
        let _inside = runtime.enter();
        [Confirmation::ByRuntime, Confirmation::First, Confirmation::Behind].map(Confirmation::comes_first)
    });
    assert_eq!(first, [[true, true, false], [false, true, false]]);
    assert!(!Confirmation::ByRuntime.comes_first(), "nobody is blocked outside a runtime");
}
