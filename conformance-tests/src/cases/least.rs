//! Locks that stay taken after their release.

use std::time::Duration;

use tenure_core::{Client, LockGuard, LockName};
use tokio::time::Instant;

use super::support::{clean, is_free, lock, must};
use crate::case::{Case, CaseResult, Context, case};

pub(super) const CASES: &[Case] = &[
    case!(
        "least/released-lock-stays-taken",
        "A lock that is released before its least time has passed stays taken for the rest, longer than its ttl, and is free \
         then.",
        ["P1", "P10"],
        [],
        released_lock_stays_taken
    ),
    case!(
        "least/closing-leaves-it-taken",
        "A client that is closed leaves such locks taken, whether they were released before or not, and they are free in the \
         end.",
        ["P1", "P13"],
        [],
        closing_leaves_it_taken
    ),
];

/// Takes a free lock for at least three times its ttl.
async fn take(context: &Context, client: &Client, name: &LockName) -> CaseResult<(LockGuard, Duration)> {
    let ttl = context.ttl(300);
    let least = ttl * 3;
    Ok((must(lock(client, name).ttl(ttl).at_least(least).try_acquire().await?, name)?, least))
}

async fn released_lock_stays_taken(context: &mut Context) -> CaseResult {
    let (one, other, name) = (context.client().await?, context.client().await?, context.name("done"));
    let start = Instant::now();
    let (guard, least) = take(context, &one, &name).await?;
    let fence = guard.fence();
    guard.release().await?;
    assert!(!is_free(&one, &name).await?, "another task of the same client got the lock before its time");
    let next = lock(&other, &name).ttl(context.ttl(5_000)).acquire_within(least + context.soon()).await?;
    assert!(start.elapsed() >= least, "another client got the lock after {:?} of {least:?}", start.elapsed());
    assert!(next.fence() > fence);
    next.release().await?;
    assert_eq!(one.stats().standing, 0);
    clean(context, &other, &name, &[&one, &other]).await
}

async fn closing_leaves_it_taken(context: &mut Context) -> CaseResult {
    let (one, other) = (context.client().await?, context.client().await?);
    let (done, at_work) = (context.name("done"), context.name("at-work"));
    let start = Instant::now();
    let (guard, least) = take(context, &one, &done).await?;
    guard.release().await?;
    let (guard, _) = take(context, &one, &at_work).await?;
    one.close(context.soon()).await?;
    drop(guard);
    // A lease may be longer than the rest of the least time.
    let most = least * 2 + context.soon();
    for name in [&done, &at_work] {
        let next = lock(&other, name).ttl(context.ttl(5_000)).acquire_within(most).await?;
        assert!(start.elapsed() >= least, "\"{name}\" was free after {:?} of {least:?}", start.elapsed());
        next.release().await?;
        clean(context, &other, name, &[&other]).await?;
    }
    Ok(())
}
