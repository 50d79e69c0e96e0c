//! Abilities that are not declared are refused, before anything is sent, and change nothing.

use std::time::Duration;

use tenure_core::driver::Ttl;
use tenure_core::{ErrorKind, OwnerId, OwnerToken};

use super::support::{clean, free_within, is_free, keep, lock, must_fail};
use crate::case::{Case, CaseResult, Context, Need, case};
use crate::layer::Op;

pub(super) const CASES: &[Case] = &[
    case!(
        "refusal/re-entrant",
        "Without declared re-entrancy a re-entrant lock is refused as unsupported, and nothing is sent.",
        ["P26", "P31"],
        [Need::NoReentrant],
        re_entrant
    ),
    case!(
        "refusal/inspect",
        "Without declared introspection looking is refused as unsupported by client and driver, and nothing is changed.",
        ["P26"],
        [Need::NoIntrospection],
        inspect
    ),
    case!(
        "refusal/force",
        "Without declared revocation a forced release is refused as unsupported, and the holder keeps its lock.",
        ["P26"],
        [Need::NoRevocation],
        force
    ),
    case!(
        "refusal/held-locks",
        "Without a declared list of held locks reading one is refused as unsupported, and nothing is sent.",
        ["P26"],
        [Need::NoCensus],
        held_locks
    ),
    case!(
        "refusal/watch",
        "Without declared wake-ups the driver refuses to listen, and waiting works by asking again, with pauses.",
        ["P18", "P26"],
        [Need::NoWakeups],
        watch
    ),
    case!(
        "refusal/ttl",
        "A ttl outside the range that the driver keeps, or off its steps, is refused as an argument, and nothing is sent.",
        ["P26", "P28"],
        [Need::NarrowTtl],
        ttl
    ),
];

async fn re_entrant(context: &mut Context) -> CaseResult {
    let (client, layer) = context.layered().await?;
    let name = context.name("re-entrant");
    let lock = client.reentrant(name.as_bytes(), &OwnerId::new());
    must_fail(lock.try_acquire().await, ErrorKind::Unsupported)?;
    must_fail(lock.acquire_within(Duration::from_millis(50)).await, ErrorKind::Unsupported)?;
    must_fail(lock.held().await, ErrorKind::Unsupported)?;
    assert_eq!(client.reentrant_capabilities(), None);
    assert_eq!(layer.count(), 0, "something was sent");
    assert!(is_free(&client, &name).await?);
    Ok(())
}

async fn inspect(context: &mut Context) -> CaseResult {
    let (client, layer) = context.layered().await?;
    let (backend, name) = (context.backend().await?, context.name("inspect"));
    let guard = keep(&client, &name, context.ttl(20_000)).await?;
    must_fail(lock(&client, &name).inspect().await, ErrorKind::Unsupported)?;
    assert!(layer.frames_of(Op::Inspect, &name).is_empty(), "something was sent");
    must_fail(backend.locks().inspect(&name).await, ErrorKind::Unsupported)?;
    assert!(guard.is_held() && !is_free(&client, &name).await?);
    guard.release().await?;
    Ok(())
}

async fn force(context: &mut Context) -> CaseResult {
    let (client, layer) = context.layered().await?;
    let (backend, name, ttl) = (context.backend().await?, context.name("force"), context.ttl(600));
    let guard = keep(&client, &name, ttl).await?;
    must_fail(lock(&client, &name).force_release().await, ErrorKind::Unsupported)?;
    assert!(layer.frames_of(Op::ForceRelease, &name).is_empty(), "something was sent");
    must_fail(backend.locks().force_release(&name, None).await, ErrorKind::Unsupported)?;
    context.pass(ttl * 2).await;
    assert!(guard.is_held() && !is_free(&client, &name).await?, "the refused force took the lock away");
    guard.release().await?;
    Ok(())
}

async fn held_locks(context: &mut Context) -> CaseResult {
    let (client, layer) = context.layered().await?;
    must_fail(client.held_locks("").next().await, ErrorKind::Unsupported)?;
    must_fail(client.held_locks("").next_page().await, ErrorKind::Unsupported)?;
    assert_eq!(client.census_capabilities(), None);
    assert_eq!(layer.count(), 0, "something was sent");
    Ok(())
}

async fn watch(context: &mut Context) -> CaseResult {
    let (client, layer) = context.layered().await?;
    let (backend, other, name) = (context.backend().await?, context.client().await?, context.name("watch"));
    must_fail(backend.locks().watch(&name, &OwnerToken::random()).await, ErrorKind::Unsupported)?;
    let holder = keep(&other, &name, context.ttl(20_000)).await?;
    let waiter = lock(&client, &name);
    let waiting = tokio::spawn(async move { waiter.acquire().await });
    let span = context.ms(3_000);
    context.pass(span).await;
    let asked = layer.frames_of(Op::Acquire, &name).len();
    assert!((5..400).contains(&asked), "asked {asked} times within {span:?}");
    assert!(layer.frames_of(Op::Watch, &name).is_empty(), "the driver was asked to listen");
    holder.release().await?;
    let guard = context.within(context.ms(1_500), "granted after the release", waiting).await???;
    guard.release().await?;
    clean(context, &other, &name, &[&client, &other]).await
}

async fn ttl(context: &mut Context) -> CaseResult {
    let (client, layer) = context.layered().await?;
    let (name, range, tick) = (context.name("ttl"), context.declared().locks.ttl, Duration::from_millis(1));
    let mut bad = Vec::new();
    if range.min > Ttl::MIN {
        bad.push(range.min - tick.max(range.granularity));
    }
    if range.max < Ttl::MAX {
        bad.push(range.max + tick.max(range.granularity));
    }
    if range.granularity > tick {
        bad.push(range.min + tick);
    }
    for length in bad {
        must_fail(lock(&client, &name).ttl(length).try_acquire().await, ErrorKind::InvalidArgument)?;
        must_fail(lock(&client, &name).fixed_ttl(length).acquire().await, ErrorKind::InvalidArgument)?;
    }
    assert_eq!(layer.count(), 0, "something was sent");
    let guard = keep(&client, &name, range.min.max(context.ttl(2_000))).await?;
    guard.release().await?;
    free_within(context, &client, &name, context.soon()).await?;
    Ok(())
}
