//! Never more than the capacity, and all of a request or nothing.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure_core::ErrorKind;
use tenure_core::driver::{Families, Family};
use tokio::time::Instant;

use super::support::{LONG, Raw, clean, must, rw_lock, semaphore, share};
use crate::case::{Case, CaseResult, Context, Need, case};
use crate::cases::support::{busy, granted, keep, must_fail};
use crate::history::{Grant, Window, check_shares};
use crate::rng::Rng;

pub(in crate::cases) const CASES: &[Case] = &[
    case!(
        "permits/never-more-than-the-capacity",
        "In random schedules of several clients the holds never weigh more than the capacity, and fences are unique and in order.",
        ["P2", "P3", "P19", "P20", "P63"],
        [Need::Permits],
        never_more_than_the_capacity
    ),
    case!(
        "permits/all-or-nothing",
        "A request for more permits than are free takes none of them, whether it waits or not.",
        ["P64"],
        [Need::Permits],
        all_or_nothing
    ),
    case!(
        "permits/more-than-the-capacity-is-refused-unsent",
        "A weight of zero or above the capacity is refused as an argument and nothing is sent; the whole capacity is granted.",
        ["P26", "P64"],
        [Need::Permits],
        more_than_the_capacity_is_refused_unsent
    ),
    case!(
        "permits/two-capacities-side-by-side",
        "While clients name different capacities, each grant is judged by its own, and no holder loses its permits.",
        ["P63"],
        [Need::Permits],
        two_capacities_side_by_side
    ),
    case!(
        "permits/names-of-families-are-apart",
        "The lock, the semaphore and the read-write lock of one name are held independently of each other.",
        ["P27"],
        [Need::Permits],
        names_of_families_are_apart
    ),
];

const CAPACITY: u32 = 4;

async fn never_more_than_the_capacity(context: &mut Context) -> CaseResult {
    let (name, ttl, start) = (context.name("history"), context.ttl(3_000), Instant::now());
    let history: Arc<Mutex<(Vec<Grant>, Vec<Window>)>> = Arc::default();
    let (limit, mut tasks) = (context.ms(50_000), Vec::new());
    for number in 0..6 {
        let (client, history) = (context.client().await?, Arc::clone(&history));
        let mut rng = Rng::new(context.rng().bits());
        let name = name.clone();
        tasks.push(tokio::spawn(async move {
            for _ in 0..10 {
                let weight = 1 + u32::try_from(rng.below(3))?;
                let handle = semaphore(&client, &name, CAPACITY).weight(weight);
                let handle = if rng.below(2) == 0 { handle.fixed_ttl(ttl) } else { handle.ttl(ttl) };
                let asked_at = start.elapsed();
                let taken = match rng.below(4) {
                    0 => handle.try_acquire().await?,
                    _ => Some(handle.acquire_within(limit).await?),
                };
                let granted_at = start.elapsed();
                let pause = Duration::from_micros(rng.below(6_000));
                tokio::time::sleep(pause).await;
                let Some(permit) = taken else { continue };
                let (valid_until, ended_at) = (start.elapsed() + permit.remaining(), start.elapsed());
                if permit.is_held() {
                    let fence = permit.fence().get();
                    let grant = Grant { client: number, fence, asked_at, granted_at, valid_until, ended_at };
                    let window = Window { share: share(weight, CAPACITY), from: granted_at, until: ended_at };
                    let mut history = history.lock().expect("no panic under it");
                    history.0.push(grant);
                    history.1.push(window);
                }
                permit.release().await?;
            }
            CaseResult::Ok(())
        }));
    }
    for task in tasks {
        context.within(limit, "every client had its turns", task).await???;
    }
    let (grants, windows) = history.lock().expect("no panic under it").clone();
    assert!(grants.len() >= 24, "most holds ended in time, not {}", grants.len());
    let found = check_shares(&grants, &windows);
    assert!(found.is_empty(), "{}", found[0]);
    let probe = context.client().await?;
    clean(context, &probe, Family::Semaphore, &name, &[]).await
}

async fn all_or_nothing(context: &mut Context) -> CaseResult {
    let raw = Raw::new(context, "all", context.ttl(20_000)).await?;
    let (held, _) = raw.take(share(3, 5)).await?;
    assert!(!raw.fits(share(3, 5)).await?, "three beside three of five");
    assert!(raw.fits(share(2, 5)).await?, "the refused request took a part");
    let waiter = tenure_core::OwnerToken::random();
    busy(raw.join(waiter, share(5, 5), LONG).await?)?;
    raw.abandon(waiter).await?;
    let (rest, _) = raw.take(share(2, 5)).await?;
    assert!(!raw.fits(share(1, 5)).await?);
    for token in [held, rest] {
        raw.release(token).await?;
    }
    assert!(raw.fits(share(5, 5)).await?, "a release did not give all of it back");
    Ok(())
}

async fn more_than_the_capacity_is_refused_unsent(context: &mut Context) -> CaseResult {
    let (client, layer) = context.layered().await?;
    let (name, declared) = (context.name("impossible"), context.declared().permits);
    let (most, heaviest) = declared.map(|permits| (permits.max_capacity, permits.max_weight)).unwrap_or_default();
    let above = |most: u32| most.checked_add(1).map(|more| (more, more));
    let bad = [Some((0, 3)), Some((4, 3)), Some((1, 0)), above(most), above(heaviest)];
    for (weight, capacity) in bad.into_iter().flatten() {
        let handle = semaphore(&client, &name, capacity).weight(weight);
        must_fail(handle.try_acquire().await, ErrorKind::InvalidArgument)?;
        must_fail(handle.acquire().await, ErrorKind::InvalidArgument)?;
    }
    assert_eq!(layer.count(), 0, "something was sent");
    let whole = must(semaphore(&client, &name, 3).weight(3).try_acquire().await?)?;
    whole.release().await?;
    clean(context, &client, Family::Semaphore, &name, &[&client]).await
}

async fn two_capacities_side_by_side(context: &mut Context) -> CaseResult {
    let (old, new, name) = (context.client().await?, context.client().await?, context.name("limits"));
    let (of_old, of_new) = (semaphore(&old, &name, 1).ttl(LONG), semaphore(&new, &name, 3).ttl(LONG));
    let first = must(of_old.try_acquire().await?)?;
    assert!(of_old.try_acquire().await?.is_none());
    let (second, third) = (must(of_new.try_acquire().await?)?, must(of_new.try_acquire().await?)?);
    assert!(of_new.try_acquire().await?.is_none() && of_old.try_acquire().await?.is_none());
    assert!(first.is_held() && second.is_held() && third.is_held());
    first.release().await?;
    second.release().await?;
    assert!(of_old.try_acquire().await?.is_none(), "the permit under the greater capacity does not count");
    third.release().await?;
    must(of_old.try_acquire().await?)?.release().await?;
    clean(context, &new, Family::Semaphore, &name, &[&old, &new]).await
}

async fn names_of_families_are_apart(context: &mut Context) -> CaseResult {
    let (client, name) = (context.client().await?, context.name("families"));
    let lock = keep(&client, &name, context.ttl(20_000)).await?;
    let permit = must(semaphore(&client, &name, 1).try_acquire().await?)?;
    if context.declared().permits.is_some_and(|permits| permits.families == Families::Both) {
        let writer = must(rw_lock(&client, &name).try_write().await?)?;
        assert!(permit.fence() != writer.fence() || lock.fence() != writer.fence(), "three holds with one fence");
        writer.release().await?;
    }
    permit.release().await?;
    let raw = Raw::new(context, "families", context.ttl(20_000)).await?;
    let (token, _) = raw.take(share(1, 1)).await?;
    assert!(lock.is_held() && client.lock(name.as_bytes()).try_acquire().await?.is_none());
    granted(raw.ask(token, share(1, 1)).await?)?;
    lock.release().await?;
    raw.release(token).await?;
    clean(context, &client, Family::Semaphore, &name, &[&client]).await
}
