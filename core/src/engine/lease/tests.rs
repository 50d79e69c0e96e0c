//! Tests of a lease: its end, its holder, and its due actions.

use super::*;
use crate::driver::Hold;
use crate::value::token::OwnerId;

const TTL: Duration = Duration::from_secs(30);

fn entry(ttl: Duration) -> Entry {
    let (token, ttl) = (OwnerToken::random(), Ttl::new(ttl).unwrap());
    Entry { token, ttl, upkeep: Upkeep::Renewed, cap: None, past: Past::Answered }
}

fn of(key: impl FnOnce(LockName, OwnerToken) -> LeaseKey, ttl: Duration) -> Arc<Lease> {
    let (entry, now) = (entry(ttl), LeaseInstant::now());
    let key = key(LockName::new("a").unwrap(), entry.token);
    Arc::new(Lease::new(key, FencingToken::new(1).unwrap(), (now, now.after(ttl)), entry, now))
}

pub(in crate::engine) fn lease(ttl: Duration) -> Arc<Lease> {
    of(|name, token| LeaseKey::Plain(Hold { name, token }), ttl)
}

fn reentrant() -> Arc<Lease> {
    let hold = |name, _| ReentrantHold::new(name, OwnerId::new(), FencingToken::new(1).unwrap());
    of(|name, token| LeaseKey::Reentrant(Box::new(hold(name, token))), TTL)
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

async fn pass(count: u64) -> LeaseInstant {
    tokio::time::advance(seconds(count)).await;
    LeaseInstant::now()
}

#[test]
fn a_lease_is_small() {
    assert!(size_of::<Lease>() <= 144, "{} bytes", size_of::<Lease>());
}

#[tokio::test(start_paused = true)]
async fn an_entry_that_joins_lengthens_the_lease_and_its_renewals_and_shortens_nothing() {
    let (lease, start) = (reentrant(), LeaseInstant::now());
    let now = pass(9).await;
    assert!(lease.join(entry(TTL), now, now.after(TTL)));
    assert_eq!((lease.deadline().since(start), lease.remaining()), (seconds(39), TTL));
    assert!(lease.next_look().unwrap() >= now.after(seconds(9)), "it was just as good as renewed");
    assert!(lease.join(entry(seconds(3)), now, now.after(seconds(3))));
    assert_eq!((lease.remaining(), lease.lock().renewal_ttl().map(|ttl| ttl.get())), (TTL, Some(TTL)));
    lease.lengthen(now.after(seconds(1)));
    assert_eq!(lease.remaining(), TTL);
    lease.lengthen(now.after(seconds(40)));
    assert_eq!(lease.remaining(), seconds(40));
    let ended = pass(40).await;
    assert!(!lease.join(entry(TTL), ended, ended.after(TTL)), "it has ended");
    assert_eq!((lease.state(), lease.take_entries().len()), (HoldState::Lost(LostReason::Expired), 3));
}

#[tokio::test(start_paused = true)]
async fn entries_leave_one_by_one_and_the_last_one_ends_the_lease() {
    let (lease, now) = (reentrant(), LeaseInstant::now());
    let [first, second, third] = [lease.holder().unwrap(), entry(TTL).token, entry(TTL).token];
    for token in [second, third] {
        assert!(lease.join(Entry { token, ..entry(TTL) }, now, now.after(TTL)));
    }
    let over = lease.watch(&second);
    assert!(Arc::ptr_eq(&over, &lease.watch(&second)) && !Arc::ptr_eq(&over, &lease.watch(&third)));
    for (token, state) in [(first, HoldState::Held), (second, HoldState::Held), (third, HoldState::Released)] {
        assert!(lease.leave(&token, now).is_some_and(|(entry, _)| entry.token == token));
        assert!(lease.leave(&token, now).is_none(), "it has left");
        assert_eq!((lease.state(), lease.state_of(&over) == HoldState::Released), (state, token != first));
    }
    assert!(lease.is_empty() && lease.holder().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_passed_on_by_its_holder_while_it_is_sound_and_lasts_for_long_enough() {
    let (lease, now) = (lease(TTL), LeaseInstant::now());
    let [holder, next, other] = [lease.holder().unwrap(), OwnerToken::random(), OwnerToken::random()];
    let pass_on = |from, least| lease.pass(from, next, least, now.after(seconds(2)));
    assert!(!pass_on(&other, TTL), "by nobody else");
    assert!(!pass_on(&holder, TTL + seconds(1)), "it does not last that long");
    lease.lock().phase = HoldState::Suspect;
    assert!(!pass_on(&holder, TTL), "nobody knows whether it is still there");
    lease.lock().phase = HoldState::Held;
    let over = lease.watch(&holder);
    assert!(pass_on(&holder, TTL) && over.is_set());
    assert_eq!((lease.holder(), lease.remaining()), (Some(next), seconds(2)), "until it is claimed");
    assert!(!lease.claim(&holder, None) && lease.claim(&next, Some(now.after(seconds(9)))));
    assert_eq!(lease.remaining(), seconds(9));
    pass(9).await;
    assert!(!lease.claim(&next, None), "it has ended");
    assert_eq!(lease.state(), HoldState::Lost(LostReason::MaxHold));
}

#[tokio::test(start_paused = true)]
async fn an_unanswered_renewal_may_keep_a_lease_for_twice_the_longest_ttl() {
    let (lease, now) = (lease(TTL), LeaseInstant::now());
    let possible = || lease.possible_end(now).since(now);
    assert_eq!(possible(), 2 * TTL);
    for (ttl, end) in [(Some(4 * TTL), 8 * TTL), (Some(TTL / 2), 8 * TTL), (None, 8 * TTL)] {
        lease.lock().begin_renewal(now.after(TTL), ttl.map(|ttl| Ttl::new(ttl).unwrap()));
        assert_eq!(possible(), end);
    }
    lease.lengthen(now.after(9 * TTL));
    assert_eq!(possible(), 9 * TTL, "it surely lasts that long");
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_was_given_up_ends_none_that_took_its_place() {
    let (lease, now) = (lease(TTL), LeaseInstant::now());
    let [first, second] = [now.after(seconds(1)), now.after(seconds(2))];
    let mut state = lease.lock();
    state.begin_renewal(first, None);
    state.begin_renewal(second, None);
    assert!(!state.end_renewal(first) && state.on_its_way(now) == Some(second));
    assert_eq!(state.on_its_way(second), None, "nobody waits for it any longer");
    assert!(state.end_renewal(second) && state.on_its_way(now).is_none());
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_looked_at_when_its_renewal_is_due_and_the_last_one_is_over_and_at_its_end() {
    let (lease, now) = (lease(TTL), LeaseInstant::now());
    let look = || lease.next_look().unwrap().since(now);
    let due = look();
    assert!(due <= TTL / 3 && due >= TTL / 4, "{due:?}");
    for (until, next) in [(seconds(1), due), (seconds(20), seconds(20)), (seconds(40), TTL)] {
        lease.lock().begin_renewal(now.after(until), None);
        assert_eq!(look(), next);
    }
    let token = lease.holder().unwrap();
    lease.claim(&token, Some(now.after(seconds(5))));
    assert_eq!(look(), seconds(5), "holding ends before that");
}

#[tokio::test(start_paused = true)]
async fn a_lost_hold_is_undone_when_its_last_clean_up_is_over() {
    let (lease, start) = (reentrant(), LeaseInstant::now());
    let over = |sent| lease.undoing(|progress| progress.was_over_at(sent));
    assert!(over(start), "nothing was to undo");
    let (one, other) = (UndoMark::of(&lease), UndoMark::of(&lease));
    drop(one);
    let between = pass(1).await;
    assert!(!over(between), "one is left");
    drop(other);
    let later = pass(1).await;
    assert_eq!([start, between, later].map(over), [false, false, true]);
}

#[tokio::test(start_paused = true)]
async fn a_lease_ends_once_and_for_the_first_reason() {
    let (lost, released) = (lease(TTL), lease(TTL));
    assert!(lost.lose(LostReason::Gone) && !lost.lose(LostReason::Closed));
    released.leave(&released.holder().unwrap(), LeaseInstant::now()).unwrap();
    pass(31).await;
    assert_eq!((lost.state(), released.state()), (HoldState::Lost(LostReason::Gone), HoldState::Released));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_watches_a_lease_learns_of_its_end_at_once() {
    let (lost, passed) = (lease(TTL), reentrant());
    let (second, now) = (entry(TTL), LeaseInstant::now());
    let over = passed.watch(&second.token);
    let token = second.token;
    assert!(passed.join(second, now, now.after(TTL)));
    let ends = async {
        tokio::task::yield_now().await;
        lost.lose(LostReason::Gone);
        passed.leave(&token, LeaseInstant::now()).unwrap();
    };
    let (loss, one_of_two, ()) = tokio::join!(lost.lost(), passed.ended(Some(&over)), ends);
    assert_eq!((loss, one_of_two, LeaseInstant::now().since(now)), (LostReason::Gone, None, Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn an_answer_for_one_entry_changes_no_other() {
    let (lease, now) = (reentrant(), LeaseInstant::now());
    let (first, second, stranger) = (lease.holder().unwrap(), entry(TTL), OwnerToken::random());
    let token = second.token;
    assert!(lease.join(second, now, now.after(TTL)));
    assert!(!lease.claim(&stranger, Some(now)), "it is no entry of this lease");
    lease.stand(&stranger, now.after(seconds(9)));
    assert_eq!((lease.state(), lease.least()), (HoldState::Held, None));
    assert!(lease.claim(&token, Some(now.after(seconds(5)))) && lease.claim(&first, Some(now.after(seconds(7)))));
    assert_eq!(lease.remaining(), seconds(5), "the first end of both");
    lease.leave(&token, now).unwrap();
    assert_eq!(lease.remaining(), seconds(7));
}

#[tokio::test(start_paused = true)]
async fn a_hold_that_is_not_passed_on_is_not_over() {
    let (lease, now) = (lease(TTL), LeaseInstant::now());
    let token = lease.holder().unwrap();
    let over = lease.watch(&token);
    assert!(!lease.pass(&token, OwnerToken::random(), TTL * 2, now.after(seconds(2))));
    assert!(!over.is_set());
    assert!(lease.pass(&token, OwnerToken::random(), Duration::ZERO, now.after(seconds(2))));
    assert!(over.is_set());
}
