//! Nothing is left behind, wherever guards end up.

use std::time::Duration;

use tenure_core::Client;

use super::support::{clean, free_within, keep, lock, must};
use crate::case::{Case, CaseResult, Context, Failure, Need, case};
use crate::harness::{Fault, FaultKind, Inspector, Time};
use crate::layer::Op;

pub(super) const CASES: &[Case] = &[
    case!(
        "hygiene/many-names-leave-nothing",
        "After many names were taken and released in every way, client and store hold nothing.",
        ["P30"],
        [],
        many_names_leave_nothing
    ),
    case!(
        "hygiene/guard-dropped-outside-a-runtime",
        "A guard dropped on a thread without a runtime neither panics nor blocks, and its lock becomes free.",
        ["P13", "R2"],
        [],
        guard_dropped_outside_a_runtime
    ),
    case!(
        "hygiene/runtime-gone-with-guards-alive",
        "When the runtime that a lock was taken on is gone, the guard can be dropped, and the lock is free after its ttl.",
        ["P13", "P17"],
        [],
        runtime_gone_with_guards_alive
    ),
    case!(
        "hygiene/client-dropped-with-guards-alive",
        "Guards outlive the client's last handle: they renew, and give back their locks.",
        ["P13"],
        [],
        client_dropped_with_guards_alive
    ),
    case!(
        "hygiene/no-lease-without-an-end",
        "Whatever a client does, no lease or entry in the store is without an end.",
        ["P28", "P30"],
        [Need::Leftovers],
        no_lease_without_an_end
    ),
    case!(
        "hygiene/idle-names-are-removed",
        "Names that were not used for a day are removed as new ones are used, in whatever order they sort.",
        ["P30"],
        [Need::Leftovers, Need::Fault(FaultKind::PassDays)],
        idle_names_are_removed
    ),
];

async fn many_names_leave_nothing(context: &mut Context) -> CaseResult {
    let (client, layer) = context.layered().await?;
    let probe = context.client().await?;
    let names: Vec<_> = (0..60).map(|number| context.name(format!("many/{number}"))).collect();
    for (number, name) in names.iter().enumerate() {
        let guard = keep(&client, name, Duration::from_secs(600)).await?;
        match number % 3 {
            0 => guard.release().await?,
            1 => drop(guard),
            _ => {
                assert!(lock(&client, name).try_acquire().await?.is_none());
                tokio::spawn(async move { drop(guard) });
            }
        }
    }
    for name in &names {
        clean(context, &probe, name, &[&client]).await?;
    }
    assert!(layer.count() < names.len() * 8, "{} requests for {} names", layer.count(), names.len());
    Ok(())
}

async fn idle_names_are_removed(context: &mut Context) -> CaseResult {
    const NAMES: u32 = 120;
    let client = context.client().await?;
    let inspector = context.inspector().ok_or_else(|| Failure::new("the harness gives no inspector"))?;
    // Names with a number in them that grows, then one that falls.
    let growing = (0..3 * NAMES).map(|number| format!("idle/{number:06}"));
    let falling = (0..2 * NAMES).map(|number| format!("idle/{:06}", 900_000 - number));
    let mut days = growing.chain(falling).peekable();
    while days.peek().is_some() {
        for name in days.by_ref().take(NAMES as usize) {
            keep(&client, &context.name(name), context.ttl(20_000)).await?.release().await?;
        }
        let kept = inspector.names().await?;
        assert!(kept <= NAMES as usize * 3 / 2, "{kept} names are kept, of which {NAMES} were used within a day");
        context.inject(Fault::PassDays).await?.heal().await?;
    }
    Ok(())
}

async fn guard_dropped_outside_a_runtime(context: &mut Context) -> CaseResult {
    let (client, probe) = (context.client().await?, context.client().await?);
    let name = context.name("outside");
    let guard = keep(&client, &name, Duration::from_secs(600)).await?;
    let thread = std::thread::spawn(move || drop(guard));
    thread.join().map_err(|_| Failure::new("dropping a guard outside a runtime panicked"))?;
    clean(context, &probe, &name, &[&client]).await
}

async fn runtime_gone_with_guards_alive(context: &mut Context) -> CaseResult {
    let (name, ttl, probe) = (context.name("gone"), context.ttl(600), context.client().await?);
    let (backend, paused) = (context.backend().await?, context.declared().time == Time::Virtual);
    let inside = name.clone();
    let thread = std::thread::spawn(move || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all();
        if paused {
            builder.start_paused(true);
        }
        let runtime = builder.build().expect("a runtime can be built");
        let client = Client::new(backend);
        let guard = runtime.block_on(async { lock(&client, &inside).ttl(ttl).try_acquire().await.map_err(Into::into) });
        drop(runtime);
        guard.and_then(|guard| must(guard, &inside)).map(|guard| {
            assert!(guard.remaining() < ttl, "the clock can be read without a runtime");
            drop(guard);
        })
    });
    // Not joined here: a driver may need this runtime to get its answer.
    let ended = tokio::task::spawn_blocking(move || thread.join()).await?;
    ended.map_err(|_| Failure::new("a guard that outlives its runtime panicked"))??;
    free_within(context, &probe, &name, ttl + context.ms(2_000)).await?;
    Ok(())
}

async fn client_dropped_with_guards_alive(context: &mut Context) -> CaseResult {
    let (client, layer) = context.layered().await?;
    let (probe, ttl) = (context.client().await?, context.ttl(600));
    let names = [context.name("released"), context.name("dropped")];
    let (released, dropped) = (keep(&client, &names[0], ttl).await?, keep(&client, &names[1], ttl).await?);
    drop(client);
    context.pass(ttl * 3).await;
    assert!(released.is_held() && dropped.is_held(), "the holds were not renewed");
    assert!(!layer.frames_of(Op::Renew, &names[0]).is_empty());
    released.release().await?;
    drop(dropped);
    for name in &names {
        free_within(context, &probe, name, context.soon()).await?;
    }
    Ok(())
}

async fn no_lease_without_an_end(context: &mut Context) -> CaseResult {
    let (client, layer) = context.layered().await?;
    let (probe, name, ttl) = (context.client().await?, context.name("endless"), context.ttl(600));
    let look = context.inspector().ok_or_else(|| Failure::new("an inspector is declared and not given"))?;
    let endless =
        async |inspector: &dyn Inspector| -> CaseResult<usize> { Ok(inspector.residue(&name).await?.endless) };
    for _ in 0..3 {
        let guard = lock(&client, &name).ttl(ttl).acquire_within(context.soon()).await?;
        assert_eq!((endless(&*look).await?, look.residue(&name).await?.leases), (0, 1), "while it is held");
        assert!(lock(&probe, &name).acquire_within(ttl * 2).await.is_err());
        assert_eq!(endless(&*look).await?, 0, "after it was renewed and waited for");
        guard.release().await?;
        assert_eq!(endless(&*look).await?, 0, "after it was released");
    }
    assert!(!layer.frames_of(Op::Renew, &name).is_empty(), "the lease was held long enough to be renewed");
    clean(context, &probe, &name, &[&client, &probe]).await
}
