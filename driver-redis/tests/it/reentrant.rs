//! Re-entrant locks beside plain ones, their renewal, and the deepest entry.

use std::time::Duration;

use crate::common::{Client, attempt, busy, entry, hold, name, server, ttl, waiter, woken};
use tenure_core::driver::{Exited, ForceReleased, ReentrantHold, Released, Renewed};
use tenure_core::{ErrorKind, OwnerId};

#[tokio::test]
async fn plain_and_re_entrant_holds_exclude_each_other() {
    let server = server();
    let client = Client::of(&server).await;
    let owner = OwnerId::new();
    let (plain, entered) = (attempt("r"), waiter("r"));
    client.grant(&plain).await;
    let mut watch = client.watch(&entered).await;
    assert_eq!(busy(client.reentrant.enter(&owner, &entered).await.unwrap()).position, Some(0));
    assert_eq!(client.reentrant.exit(&entry(&owner, &entered)).await.unwrap(), Exited::NotHeld);
    client.locks.release(&hold(&plain)).await.unwrap();
    assert!(woken(&mut watch).await);
    client.enter(&owner, &entered).await;

    let next = waiter("r");
    let mut watch = client.watch(&next).await;
    let answer = client.busy(&next).await;
    assert_eq!(answer.position, Some(0));
    assert!(answer.recheck_after.unwrap() > Duration::from_millis(501), "our own holder wakes: {answer:?}");
    assert_eq!(client.locks.release(&hold(&entered)).await.unwrap(), Released::NotHeld);
    busy(client.reentrant.enter(&OwnerId::new(), &attempt("r")).await.unwrap());
    let inner = attempt("r");
    assert_eq!(client.enter(&owner, &inner).await.depth, 2, "a re-entry passes the waiters");
    client.reentrant.exit(&entry(&owner, &inner)).await.unwrap();
    assert_eq!(client.reentrant.exit(&entry(&owner, &entered)).await.unwrap(), Exited::Released);
    assert!(woken(&mut watch).await);
    client.grant(&next).await;
}

#[tokio::test]
async fn a_hold_is_renewed_by_owner_and_fence() {
    let server = server();
    let client = Client::of(&server).await;
    let owner = OwnerId::new();
    let mine = attempt("r");
    let grant = client.enter(&owner, &mine).await;
    let held = |owner, fence| ReentrantHold::new(name("r"), owner, fence);
    let other_fence = tenure_core::FencingToken::new(grant.fence.get() + 1).unwrap();
    let asked = [held(owner, grant.fence), held(OwnerId::new(), grant.fence), held(owner, other_fence)];
    let answers: Vec<Renewed> =
        client.reentrant.renew(ttl(60_000), &asked).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(answers, [Renewed::Extended { ttl: Duration::from_secs(60) }, Renewed::Lost, Renewed::Lost]);
    let seen = client.locks.inspect(&name("r")).await.unwrap().holder.unwrap();
    assert_eq!((seen.fence, seen.label, seen.owner), (Some(grant.fence), mine.label, Some(owner)));
    assert!(seen.remaining.unwrap() > Duration::from_secs(50));
    assert_eq!(client.locks.force_release(&name("r"), Some(other_fence)).await.unwrap(), ForceReleased::Changed);
    assert_eq!(client.locks.force_release(&name("r"), Some(grant.fence)).await.unwrap(), ForceReleased::Released);
    client.grant(&attempt("r")).await;
    let answers: Vec<Renewed> =
        client.reentrant.renew(ttl(60_000), &asked).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(answers, [Renewed::Lost; 3], "a plain holder is no reason for an error");
}

#[tokio::test]
async fn the_depth_has_a_cap() {
    let server = server();
    let client = Client::of(&server).await;
    let owner = OwnerId::new();
    let outer = attempt("r");
    client.enter(&owner, &outer).await;
    let most = client.reentrant.capabilities().max_depth;
    let fill = "for i = 2, ARGV[1] do redis.call('HSET', KEYS[1], '#' .. i, 1) end";
    server.cli(&["EVAL", fill, "1", "tenure:r", &most.to_string()]).unwrap();
    let error = client.reentrant.enter(&owner, &attempt("r")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LimitReached);
    assert!(error.message().contains(&most.to_string()), "{error}");
    assert_eq!(client.reentrant.exit(&entry(&owner, &outer)).await.unwrap(), Exited::Inside { depth: most - 1 });
}
