//! What the suite cannot see: requests, and keys.

use std::time::Duration;

use etcd_client::{Compare, CompareOp, GetOptions, Txn, TxnOp};
use tenure_core::driver::{
    AcquireRequest, Acquisition, Busy, Family, Grant, Handing, PermitChange, PermitHold, PermitRequest, Permits,
    Queueing, Released, Share, Ttl,
};
use tenure_core::{LockName, OwnerToken};

use super::seen::{grow_value, place_value, read_value};
use crate::EtcdDriver;
use crate::keys::{ParsedPermit, PermitSpace, Spot};
use crate::test_support::{requests, served};

const PRESENCE: Duration = Duration::from_secs(60);

fn name() -> LockName {
    LockName::new("a/name").unwrap()
}

fn hold(token: OwnerToken) -> PermitHold {
    PermitHold::new(Family::Semaphore, name(), token)
}

const fn share(weight: u32, capacity: u32) -> Share {
    Share { weight, capacity }
}

async fn ask(driver: &EtcdDriver, token: OwnerToken, share: Share, queue: Queueing) -> Acquisition {
    let lock = AcquireRequest::new(name(), token, Ttl::DEFAULT).with_queue(queue);
    Permits::acquire(driver, &PermitRequest::new(Family::Semaphore, share, lock)).await.unwrap()
}

async fn take(driver: &EtcdDriver, share: Share) -> (OwnerToken, Grant) {
    let token = OwnerToken::random();
    match ask(driver, token, share, Queueing::None).await {
        Acquisition::Granted(grant) => (token, grant),
        busy => panic!("{busy:?}"),
    }
}

async fn give_back(driver: &EtcdDriver, token: OwnerToken) {
    assert_eq!(Permits::release(driver, &hold(token)).await.unwrap(), Released::Released);
}

async fn keys_left(driver: &EtcdDriver) -> i64 {
    let all = GetOptions::new().with_prefix().with_count_only();
    let found = driver.inner.txn(Txn::new().and_then([TxnOp::get(driver.inner.permits.root(), Some(all))])).await;
    crate::link::reads(&found.unwrap())[0].count()
}

#[tokio::test]
async fn a_pair_is_two_requests_and_one_more_beside_another_holder() {
    let (cluster, driver) = served();
    let (first, _) = take(&driver, share(1, 3)).await;
    give_back(&driver, first).await;
    let before = requests(&cluster);
    let (held, _) = take(&driver, share(1, 3)).await;
    assert_eq!(requests(&cluster) - before, 1, "on the lease of the one before");
    give_back(&driver, held).await;
    assert_eq!(requests(&cluster) - before, 2);
    let (other, _) = take(&driver, share(1, 3)).await;
    let (second, _) = take(&driver, share(1, 3)).await;
    give_back(&driver, second).await;
    let before = requests(&cluster);
    let (held, _) = take(&driver, share(1, 3)).await;
    give_back(&driver, held).await;
    assert_eq!(requests(&cluster) - before, 3);
    give_back(&driver, other).await;
    assert_eq!(keys_left(&driver).await, 0);
}

/// A waiter and a hold that waits to weigh more leave nothing either.
#[tokio::test]
async fn a_name_without_holders_and_waiters_has_no_key() {
    let (_cluster, driver) = served();
    let (one, first) = take(&driver, share(2, 4)).await;
    let (other, _) = take(&driver, share(1, 4)).await;
    let change = |to, step| PermitChange::new(hold(one), to, step).with_presence(Some(PRESENCE));
    let waits = driver.inner.resize(&change(share(4, 4), 1)).await.unwrap();
    assert!(matches!(waits, Acquisition::Busy(Busy { position: Some(0), .. })), "{waits:?}");
    let waiter = OwnerToken::random();
    let queue = Queueing::Join { presence: PRESENCE, accepts: Handing::Asked };
    let busy = ask(&driver, waiter, share(1, 4), queue).await;
    assert!(matches!(busy, Acquisition::Busy(Busy { position: Some(0), .. })), "{busy:?}");
    assert_eq!(keys_left(&driver).await, 4);
    give_back(&driver, other).await;
    let Acquisition::Granted(more) = driver.inner.resize(&change(share(4, 4), 1)).await.unwrap() else {
        panic!("it fits");
    };
    assert!(more.fence > first.fence);
    assert_eq!(keys_left(&driver).await, 2);
    Permits::abandon(&driver, &hold(waiter)).await.unwrap();
    give_back(&driver, one).await;
    assert_eq!(keys_left(&driver).await, 0);
    // The wait of a hold that ends goes with it.
    let (one, _) = take(&driver, share(2, 4)).await;
    let (other, _) = take(&driver, share(1, 4)).await;
    let change = PermitChange::new(hold(one), share(4, 4), 1).with_presence(Some(PRESENCE));
    driver.inner.resize(&change).await.unwrap();
    give_back(&driver, one).await;
    give_back(&driver, other).await;
    assert_eq!(keys_left(&driver).await, 0);
}

/// A hold that was renewed and lessened after it became heavier has the fence of that change.
#[tokio::test]
async fn the_fence_of_a_heavier_hold_is_kept_by_later_writes() {
    let (_cluster, driver) = served();
    let (one, first) = take(&driver, share(1, 3)).await;
    let change = |to, step| PermitChange::new(hold(one), to, step);
    let Acquisition::Granted(more) = driver.inner.resize(&change(share(3, 3), 1)).await.unwrap() else {
        panic!("it fits");
    };
    for step in [1, 2, 3] {
        let Acquisition::Granted(now) = driver.inner.resize(&change(share(3 / step, 3), step)).await.unwrap() else {
            panic!("it fits");
        };
        assert!(now.fence == more.fence && more.fence > first.fence, "{step}");
    }
    let seen = Permits::inspect(&driver, Family::Semaphore, &name(), 9).await.unwrap();
    assert_eq!((seen.used, seen.holders[0].holder.fence), (1, Some(more.fence)));
}

/// Its weight is not known, so no share beside it is granted.
#[tokio::test]
async fn a_value_of_another_program_is_no_hold() {
    let (_cluster, driver) = served();
    let key = driver.inner.permits.of(Family::Semaphore, &name()).of(&OwnerToken::random()).hold();
    let absent = Compare::create_revision(key.as_slice(), CompareOp::Equal, 0);
    driver.inner.txn(Txn::new().when([absent]).and_then([TxnOp::put(key, "x", None)])).await.unwrap();
    let lock = AcquireRequest::new(name(), OwnerToken::random(), Ttl::DEFAULT);
    let refused = Permits::acquire(&driver, &PermitRequest::new(Family::Semaphore, share(1, 1), lock)).await;
    assert_eq!(refused.unwrap_err().kind(), tenure_core::ErrorKind::Damaged);
}

#[test]
fn keys_and_values_are_read_as_they_were_written() {
    let (space, token) = (PermitSpace::new("a/b"), OwnerToken::random());
    for family in Family::ALL {
        let keys = space.of(family, &name());
        let own = keys.of(&token);
        let spot = Spot { arrival: 77, token };
        for (key, parsed) in [
            (own.hold(), ParsedPermit::Hold(token)),
            (keys.grow(), ParsedPermit::Grow),
            (own.place(&spot), ParsedPermit::Wait(spot)),
        ] {
            assert!(key.starts_with(space.root()));
            assert_eq!(space.parse(&key), Some((keys.base(), parsed)), "{}", key.escape_ascii());
        }
        assert!(keys.grow() < own.hold() && own.hold() < keys.holds_end() && keys.holds_end() < own.queue());
    }
    assert_eq!(space.parse(b"a%2Fb:permit/s/x/other"), None);
    assert_eq!(space.parse(b"a%2Fb:permit/"), None);
    assert_eq!(read_value(place_value(share(2, 3)).as_bytes()), Some((share(2, 3), None)));
    assert_eq!(read_value(grow_value(share(2, 3), &token).as_bytes()), Some((share(2, 3), Some(token))));
    for bad in ["", "x", "tenure/1\n", "tenure/1\nshare=4/3\n", "tenure/1\nshare=0/3\n"] {
        assert_eq!(read_value(bad.as_bytes()), None, "{bad}");
    }
}
