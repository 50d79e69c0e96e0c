//! One holder at a time.

use std::sync::{Arc, Mutex};

use tokio::time::Instant;

use super::support::{clean, free_within, is_free, keep, lock, take};
use crate::case::{Case, CaseResult, Context, case};
use crate::history::{Assumption, Grant, check};
use crate::witness::{Counter, FencedRegister};

pub(super) const CASES: &[Case] = &[
    case!(
        "lock/held-is-busy-for-another-client",
        "While one client holds a name, another client's attempt is answered with busy, not with an error.",
        ["P1", "P26"],
        [],
        held_is_busy_for_another_client
    ),
    case!(
        "lock/held-is-busy-for-the-same-client",
        "A plain lock is not re-entrant: the client that holds it is refused like any other.",
        ["P1", "P14"],
        [],
        held_is_busy_for_the_same_client
    ),
    case!(
        "lock/released-is-free",
        "A released name can be taken at once, by the same client and by another.",
        ["P10"],
        [],
        released_is_free
    ),
    case!(
        "lock/dropped-guard-frees",
        "Dropping a guard releases its lock at once, not only after its ttl.",
        ["R2", "P13"],
        [],
        dropped_guard_frees
    ),
    case!(
        "lock/names-are-independent",
        "Holding one name does not make another busy, and releasing one does not free another.",
        ["P27"],
        [],
        names_are_independent
    ),
    case!(
        "lock/contended-history-is-clean",
        "Under contention of several clients no two holds overlap, fences are unique and in order, no grant is stillborn.",
        ["P1", "P2", "P3", "P4", "P19", "P20", "P21"],
        [],
        contended_history_is_clean
    ),
    case!(
        "lock/contended-counter-loses-nothing",
        "A counter that is read, paused over and written under the lock loses no increment.",
        ["P1"],
        [],
        contended_counter_loses_nothing
    ),
];

async fn held_is_busy_for_another_client(context: &mut Context) -> CaseResult {
    let (one, other) = (context.client().await?, context.client().await?);
    let name = context.name("held");
    let guard = keep(&one, &name, context.ttl(5_000)).await?;
    for _ in 0..3 {
        assert!(lock(&other, &name).try_acquire().await?.is_none(), "two clients hold the same name");
    }
    assert!(guard.is_held(), "an attempt of another took the lock away");
    guard.release().await?;
    Ok(())
}

async fn held_is_busy_for_the_same_client(context: &mut Context) -> CaseResult {
    let client = context.client().await?;
    let name = context.name("held");
    let handle = lock(&client, &name).ttl(context.ttl(5_000));
    let guard = super::support::must(handle.try_acquire().await?, &name)?;
    assert!(handle.try_acquire().await?.is_none(), "the same handle was granted twice");
    assert!(lock(&client, &name).try_acquire().await?.is_none(), "another handle of the client was granted");
    guard.release().await?;
    Ok(())
}

async fn released_is_free(context: &mut Context) -> CaseResult {
    let (one, other) = (context.client().await?, context.client().await?);
    let name = context.name("released");
    for client in [&one, &other, &one] {
        let guard = keep(client, &name, context.ttl(20_000)).await?;
        guard.release().await?;
    }
    assert!(is_free(&other, &name).await?);
    Ok(())
}

async fn dropped_guard_frees(context: &mut Context) -> CaseResult {
    let (one, other) = (context.client().await?, context.client().await?);
    let name = context.name("dropped");
    drop(keep(&one, &name, context.ttl(600_000)).await?);
    free_within(context, &other, &name, context.soon()).await?;
    clean(context, &other, &name, &[&one]).await
}

async fn names_are_independent(context: &mut Context) -> CaseResult {
    let (one, other) = (context.client().await?, context.client().await?);
    let (a, b) = (context.name("a"), context.name("b"));
    let of_a = keep(&one, &a, context.ttl(5_000)).await?;
    let of_b = keep(&other, &b, context.ttl(5_000)).await?;
    of_a.release().await?;
    assert!(!is_free(&one, &b).await?, "releasing one name freed another");
    assert!(is_free(&other, &a).await?);
    of_b.release().await?;
    Ok(())
}

async fn contended_history_is_clean(context: &mut Context) -> CaseResult {
    let (name, ttl, start) = (context.name("history"), context.ttl(2_000), Instant::now());
    let history: Arc<Mutex<Vec<Grant>>> = Arc::default();
    let witness = Arc::new(FencedRegister::default());
    let mut tasks = Vec::new();
    for number in 0..4 {
        let (client, name) = (context.client().await?, name.clone());
        let (history, witness) = (Arc::clone(&history), Arc::clone(&witness));
        tasks.push(tokio::spawn(async move {
            for _ in 0..8 {
                let asked_at = start.elapsed();
                let guard = lock(&client, &name).fixed_ttl(ttl).acquire().await?;
                let granted_at = start.elapsed();
                let mut grant = Grant {
                    client: number,
                    fence: guard.fence().get(),
                    asked_at,
                    granted_at,
                    valid_until: granted_at + guard.remaining(),
                    ended_at: granted_at,
                };
                assert!(witness.write(guard.fence()).is_ok(), "the holder's fence was stale: {grant:?}");
                tokio::time::sleep(std::time::Duration::from_millis(2)).await;
                grant.ended_at = start.elapsed();
                let kept = grant.ended_at < grant.valid_until;
                guard.release().await?;
                if kept {
                    history.lock().expect("no panic under it").push(grant);
                }
            }
            CaseResult::Ok(())
        }));
    }
    for task in tasks {
        context.within(context.ms(50_000), "every client had its turns", task).await???;
    }
    let grants = history.lock().expect("no panic under it").clone();
    assert!(grants.len() >= 24, "most of 32 holds ended in time, not {}", grants.len());
    let found = check(&grants, Some(ttl), Assumption::Timed);
    assert!(found.is_empty(), "{}", found[0]);
    assert!(witness.is_in_order());
    Ok(())
}

async fn contended_counter_loses_nothing(context: &mut Context) -> CaseResult {
    let name = context.name("counter");
    let counter = Arc::new(Counter::default());
    let mut tasks = Vec::new();
    for _ in 0..4 {
        let (client, name, counter) = (context.client().await?, name.clone(), Arc::clone(&counter));
        tasks.push(tokio::spawn(async move {
            for _ in 0..6 {
                let guard = lock(&client, &name).acquire().await?;
                counter.increment().await;
                guard.release().await?;
            }
            CaseResult::Ok(())
        }));
    }
    for task in tasks {
        context.within(context.ms(30_000), "every client had its turns", task).await???;
    }
    assert_eq!(counter.value(), 24, "increments were lost");
    let client = context.client().await?;
    let guard = take(&client, &name, context.ttl(5_000)).await?;
    guard.release().await?;
    Ok(())
}
