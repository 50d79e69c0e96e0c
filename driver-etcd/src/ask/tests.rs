//! What a request leaves behind: leases, places and tickets, against a server.

use std::pin::Pin;
use std::task::Poll;

use etcd_client::Txn;
use tenure_core::LockName;
use tenure_core::driver::{DistributedLock as _, Handing, Ttl};

use super::*;
use crate::test_support::served;

fn name() -> LockName {
    LockName::new("name").unwrap()
}

fn joining(token: OwnerToken) -> AcquireRequest {
    let queue = Queueing::Join { presence: Duration::from_secs(60), accepts: Handing::Asked };
    AcquireRequest::new(name(), token, Ttl::new(Duration::from_secs(60)).unwrap()).with_queue(queue)
}

/// Polls the request until `reached` holds after a poll, and not once more: a pause measured in time may be long enough
/// for the answer to the next step.
async fn polled_until(mut asking: Pin<&mut impl Future>, reached: impl Fn() -> bool) {
    std::future::poll_fn(|context| {
        assert!(asking.as_mut().poll(context).is_pending(), "it has no answer yet");
        if reached() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

async fn position(inner: &Inner, token: OwnerToken) -> Option<u32> {
    match inner.ask(None, &joining(token)).await.unwrap() {
        Acquisition::Busy(busy) => busy.position,
        other => panic!("not busy: {other:?}"),
    }
}

/// The lock is held, and a token asks for a place; returns the request for the place, which is still on its way.
async fn asked(inner: &Inner, token: OwnerToken) -> Txn {
    let held = inner.ask(None, &joining(OwnerToken::random())).await.unwrap();
    assert!(matches!(held, Acquisition::Granted(_)), "{held:?}");
    let live = inner.session.ensure().await.unwrap();
    let spot = Spot { arrival: 1, token };
    inner.tickets.set_waiting(Waiting { spot, lease: live.lease, revision: None }).unwrap();
    txn::enqueue(&inner.keys(&name()), &spot, &inner.session.key(&live))
}

#[tokio::test]
async fn a_place_that_was_made_without_an_answer_is_its_tokens() {
    let (_cluster, driver) = served();
    let token = OwnerToken::random();
    let late = asked(&driver.inner, token).await;
    assert!(driver.inner.txn(late.clone()).await.unwrap().succeeded());
    let again = driver.inner.txn(late).await.unwrap();
    let again = answer::enqueued(&again, &driver.inner.keys(&name())).unwrap();
    assert!(again.others.is_none() && again.session.is_some());
    assert_eq!(again.seen.place.map(|place| place.spot.token), Some(token), "the refusal says why");
    assert_eq!(position(&driver.inner, OwnerToken::random()).await, Some(1));
    assert_eq!(position(&driver.inner, token).await, Some(0), "it came first");
    assert_eq!(driver.inspect(&name()).await.unwrap().waiters, 2);
}

#[tokio::test]
async fn a_request_for_a_place_that_comes_late_makes_no_second_one() {
    let (_cluster, driver) = served();
    let token = OwnerToken::random();
    let late = asked(&driver.inner, token).await;
    assert_eq!(position(&driver.inner, token).await, Some(0));
    assert!(!driver.inner.txn(late).await.unwrap().succeeded());
    assert_eq!(driver.inspect(&name()).await.unwrap().waiters, 1);
}

fn plain(token: OwnerToken) -> AcquireRequest {
    joining(token).with_queue(Queueing::None).with_fences(20)
}

fn granted(answer: Acquisition) -> Grant {
    match answer {
        Acquisition::Granted(grant) => grant,
        other => panic!("not granted: {other:?}"),
    }
}

impl Inner {
    async fn taken(&self) -> OwnerToken {
        let token = OwnerToken::random();
        granted(self.ask(None, &plain(token)).await.unwrap());
        token
    }

    async fn lease_of(&self) -> i64 {
        self.hold(&self.keys(&name())).await.unwrap().unwrap().lease
    }

    async fn is_free(&self) {
        let seen = self.hold(&self.keys(&name())).await.unwrap().unwrap();
        self.change(txn::delete(&self.keys(&name()), &seen)).await.unwrap();
    }

    async fn place_of(&self, token: &OwnerToken) -> Option<Place> {
        self.find_place(&self.keys(&name()), token).await.unwrap()
    }
}

#[tokio::test]
async fn a_request_that_reached_nobody_has_left_nothing() {
    let driver = crate::test_support::unserved();
    let (inner, token) = (&driver.inner, OwnerToken::random());
    let refused = inner.ask(None, &plain(token)).await.unwrap_err();
    assert!(refused.kind() == ErrorKind::Unavailable && refused.was_not_applied());
    inner.tickets.begin(&token, 7, 30).unwrap();
    assert_eq!(inner.grant(&token, 7, 30).await.unwrap_err().kind(), ErrorKind::Unavailable);
    assert!(!inner.tickets.know(&token));
    inner.tickets.begin(&token, 7, 30).unwrap();
    let refused = inner.ask(None, &plain(token)).await.unwrap_err();
    assert!(
        refused.kind() == ErrorKind::Unavailable && !refused.was_not_applied(),
        "an earlier one may have left something"
    );
}

#[tokio::test]
async fn acquire_with_a_token_that_holds_returns_held_and_keeps_one_lease() {
    let (_cluster, driver) = served();
    let inner = &driver.inner;
    let token = OwnerToken::random();
    let first = granted(inner.ask(None, &plain(token)).await.unwrap());
    assert_eq!((first.begun, first.fences, first.depth), (Begun::Now, fences::OF_A_GRANT, 1));
    let lease = inner.lease_of().await;
    inner.tickets.forget(&token);
    let live = inner.session.ensure().await.unwrap();
    let spot = Spot { arrival: 1, token };
    inner.tickets.set_waiting(Waiting { spot, lease: live.lease, revision: None }).unwrap();
    let again = granted(inner.ask(None, &plain(token)).await.unwrap());
    assert_eq!((again.begun, again.fences, again.fence), (Begun::Earlier, 1, first.fence));
    assert_eq!(again.ttl, Duration::from_secs(59), "a second of it may have passed when it served before");
    assert_eq!(inner.tickets.hold(&token).map(|on| on.lease), Some(lease));
    assert!(inner.tickets.leases(&token).is_empty() && inner.tickets.waiting(&token).is_none());
    assert!(inner.lives(lease).await);
    let mut other = plain(OwnerToken::random());
    other.name = LockName::new("other").unwrap();
    let entered = granted(inner.ask(Some(OwnerId::new()), &other).await.unwrap());
    assert_eq!((entered.begun, entered.fences), (Begun::Now, 1));
}

#[tokio::test]
async fn a_busy_lock_that_nobody_waits_for_leaves_nothing_of_the_request() {
    let (_cluster, driver) = served();
    let inner = &driver.inner;
    inner.taken().await;
    let token = OwnerToken::random();
    let answer = inner.ask(None, &plain(token)).await.unwrap();
    assert!(matches!(answer, Acquisition::Busy(busy) if busy.position.is_none()));
    assert!(!inner.tickets.know(&token) && inner.place_of(&token).await.is_none());
    assert_eq!(position(inner, token).await, Some(0));
    assert!(inner.tickets.place(&token).is_some() && inner.tickets.leases(&token).is_empty());
    let answer = inner.ask(None, &plain(token)).await.unwrap();
    assert!(matches!(answer, Acquisition::Busy(busy) if busy.position.is_none()), "it did not ask for it");
    assert_eq!(inner.tickets.place(&token), inner.place_of(&token).await);
}

#[tokio::test]
async fn the_first_in_line_takes_a_free_lock_and_its_place_goes_with_it() {
    let (_cluster, driver) = served();
    let inner = &driver.inner;
    let (holder, known, unknown) = (inner.taken().await, OwnerToken::random(), OwnerToken::random());
    assert_eq!(position(inner, known).await, Some(0));
    assert_eq!(position(inner, unknown).await, Some(1));
    for (token, forgets) in [(known, false), (unknown, true)] {
        let place = inner.tickets.place(&token).unwrap();
        if forgets {
            // As where the answer to the request for the place was lost.
            inner.tickets.set_waiting(Waiting { revision: None, ..place.into() }).unwrap();
        }
        inner.is_free().await;
        granted(inner.ask(None, &joining(token)).await.unwrap());
        assert!(inner.place_of(&token).await.is_none() && inner.tickets.waiting(&token).is_none());
        assert_eq!(inner.tickets.leases(&token), [inner.lease_of().await]);
    }
    assert!(inner.tickets.know(&holder));
}

#[tokio::test]
async fn a_waiter_whose_place_was_taken_away_gets_another_one() {
    let (_cluster, driver) = served();
    let (inner, token) = (&driver.inner, OwnerToken::random());
    inner.taken().await;
    assert_eq!(position(inner, token).await, Some(0));
    let first = inner.place_of(&token).await.unwrap();
    let ended = txn::end_place(inner.keys(&name()).place(&first.spot), first.revision);
    assert!(inner.txn(ended).await.unwrap().succeeded());
    assert_eq!(position(inner, token).await, Some(0));
    let second = inner.place_of(&token).await.unwrap();
    assert!(second != first && inner.tickets.place(&token) == Some(second));
}

/// Its lease has ended, or its key was written by another request for a place.
#[tokio::test]
async fn a_place_is_asked_for_again_where_the_session_was_not_as_thought() {
    let (_cluster, driver) = served();
    let inner = &driver.inner;
    inner.taken().await;
    let live = inner.session.ensure().await.unwrap();
    inner.leases.revoke(live.lease).await.unwrap();
    let first = OwnerToken::random();
    assert_eq!(position(inner, first).await, Some(0));
    let live = inner.session.ensure().await.unwrap();
    let options = etcd_client::PutOptions::new().with_lease(live.lease);
    let put = etcd_client::TxnOp::put(inner.session.key(&live).key, "", Some(options));
    inner.txn(Txn::new().and_then([put])).await.unwrap();
    let second = OwnerToken::random();
    assert_eq!(position(inner, second).await, Some(1));
    for token in [first, second] {
        assert!(inner.tickets.place(&token).is_some() && inner.tickets.leases(&token).is_empty());
    }
}

#[tokio::test]
async fn who_finds_the_queue_full_has_no_place_in_it() {
    let (_cluster, mut driver) = served();
    let inner = std::sync::Arc::get_mut(&mut driver.inner).unwrap();
    inner.config.max_waiters = 1;
    inner.taken().await;
    let (first, second) = (OwnerToken::random(), OwnerToken::random());
    assert_eq!(position(inner, first).await, Some(0));
    assert_eq!(inner.ask(None, &joining(second)).await.unwrap_err().kind(), ErrorKind::LimitReached);
    assert!(inner.place_of(&second).await.is_none() && !inner.tickets.know(&second));
    assert_eq!(position(inner, first).await, Some(0));
}

#[tokio::test]
async fn a_waiter_is_present_for_as_long_as_it_said_after_it_has_asked() {
    let (_cluster, driver) = served();
    let (inner, token) = (&driver.inner, OwnerToken::random());
    inner.taken().await;
    let queue = Queueing::Join { presence: Duration::from_secs(1), accepts: Handing::Asked };
    let request = joining(token).with_queue(queue);
    inner.ask(None, &request).await.unwrap();
    let first = inner.place_of(&token).await.unwrap();
    for _ in 0..5 {
        tokio::time::sleep(Duration::from_millis(400)).await;
        inner.ask(None, &request).await.unwrap();
    }
    assert_eq!(inner.place_of(&token).await, Some(first), "it has kept its place");
    let gone = async {
        while inner.place_of(&token).await.is_some() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), gone).await.expect("it asks no more");
}

/// Whatever it has made by then is undone.
#[tokio::test]
async fn a_token_that_is_abandoned_while_it_is_asked_for_gets_nothing() {
    let (_cluster, driver) = served();
    let (inner, token) = (&driver.inner, OwnerToken::random());
    let request = plain(token);
    let mut asking = Box::pin(inner.ask(None, &request));
    polled_until(asking.as_mut(), || inner.tickets.know(&token)).await;
    let leases = inner.tickets.bury(&token).unwrap().leases;
    assert_eq!(asking.await.unwrap_err().kind(), ErrorKind::NotHeld);
    assert!(inner.hold(&inner.keys(&name())).await.unwrap().is_none());
    assert!(leases.len() == 1 && !inner.lives(leases[0]).await);
    assert_eq!(inner.ask(None, &request).await.unwrap_err().kind(), ErrorKind::NotHeld);
}

#[tokio::test]
async fn a_lease_for_later_serves_plain_locks_alone_and_is_parted_with_once() {
    let (_cluster, driver) = served();
    let (inner, keys) = (&driver.inner, driver.inner.keys(&name()));
    let [first, second, buried] = [(); 3].map(|()| plain(OwnerToken::random()));
    let (ask, entry) =
        (Ask::new(inner, &keys, None, &first).unwrap(), Ask::new(inner, &keys, Some(OwnerId::new()), &second).unwrap());
    let [one, other] = [ask.lease(60).await.unwrap(), ask.lease(60).await.unwrap()];
    assert_eq!(*ask.made(), [one.id, other.id]);
    ask.give_back(one).await.unwrap();
    assert_eq!((ask.made().clone(), inner.tickets.leases(&first.token)), (vec![other.id], vec![other.id]));
    assert!(inner.lives(one.id).await, "it is kept");
    let own = entry.lease(60).await.unwrap();
    assert!(own.id != one.id);
    entry.give_back(own).await.unwrap();
    assert!(!inner.lives(own.id).await && inner.tickets.leases(&second.token).is_empty());
    inner.tickets.bury(&buried.token);
    let late = Ask::new(inner, &keys, None, &buried).unwrap();
    assert_eq!(late.lease(60).await.unwrap_err().kind(), ErrorKind::NotHeld);
    let next = ask.lease(60).await.unwrap();
    assert_eq!(next.id, one.id, "it was put back");
}

#[tokio::test]
async fn a_lease_that_served_before_and_has_ended_is_no_error_and_any_other_failure_is() {
    let (_cluster, driver) = served();
    let (inner, keys, request) = (&driver.inner, driver.inner.keys(&name()), plain(OwnerToken::random()));
    let before = inner.leases.grant(new_id(), 60).await.unwrap();
    let spared = inner.leases.grant(new_id(), 60).await.unwrap();
    inner.idle.put(spared, &inner.leases);
    tokio::time::sleep(Duration::from_millis(20)).await;
    let ask = Ask::new(inner, &keys, None, &request).unwrap();
    let put = async |lease: i64| {
        let options = etcd_client::PutOptions::new().with_lease(lease);
        inner.txn(Txn::new().and_then([etcd_client::TxnOp::put("key", "", Some(options))])).await
    };
    let lease = ask.lease(30).await.unwrap();
    assert!(ask.on(before, put(before.id)).await.unwrap().is_some());
    let refused = async { Err::<(), _>(Error::new(ErrorKind::Denied, "no")) };
    assert_eq!(ask.on(before, refused).await.unwrap_err().kind(), ErrorKind::Denied);
    assert!(ask.on(lease, put(new_id())).await.is_err(), "it did not serve before");
    inner.tickets.begin(&request.token, before.id, 60).unwrap();
    assert!(ask.on(before, put(new_id())).await.unwrap().is_none());
    assert_eq!(inner.tickets.leases(&request.token), [lease.id]);
    assert!(inner.idle.take(60, LeaseInstant::now()).is_none(), "the others may be no better");
}

/// Whether it was made is not known from then on.
#[tokio::test]
async fn a_place_is_noted_before_it_is_asked_for() {
    let (_cluster, driver) = served();
    let (inner, token) = (&driver.inner, OwnerToken::random());
    inner.taken().await;
    let request = joining(token);
    let mut asking = Box::pin(inner.ask(None, &request));
    polled_until(asking.as_mut(), || inner.tickets.waiting(&token).is_some()).await;
    assert!(inner.tickets.place(&token).is_none());
    drop(asking);
    inner.abandon(None, &name(), &token).await.unwrap();
    assert!(inner.place_of(&token).await.is_none());
    assert_eq!(position(inner, OwnerToken::random()).await, Some(0));
}
