//! Several locks at once: all or none.

use std::time::Duration;

use futures_util::FutureExt;
use tenure_core::{Client, ErrorKind, LockAll, LockName};

use super::cancel::at_every_poll;
use super::support::{clean, free_within, is_free, keep, must_fail, take};
use crate::case::{Case, CaseResult, Context, Failure, case};
use crate::layer::{Action, Op, Rule};
use crate::poll;

pub(super) const CASES: &[Case] = &[
    case!(
        "all/sorted-and-once-each",
        "Locks that are asked for together are taken in the order of their names, each once, however they are given.",
        ["P49", "P52"],
        [],
        sorted_and_once_each
    ),
    case!(
        "all/busy-one-takes-none",
        "If one of them is busy, none of the others stays taken.",
        ["P50"],
        [],
        busy_one_takes_none
    ),
    case!(
        "all/unknown-one-takes-none",
        "If the outcome of one request is unknown, all locks are released, that one as well.",
        ["P50", "P11"],
        [],
        unknown_one_takes_none
    ),
    case!(
        "all/opposite-orders-do-not-deadlock",
        "Clients that ask for overlapping sets in opposite orders all get their turns.",
        ["P51"],
        [],
        opposite_orders_do_not_deadlock
    ),
    case!(
        "all/window-is-the-shortest",
        "The view of several leases ends with the first of them, and one that is lost makes all count as lost.",
        ["P52"],
        [],
        window_is_the_shortest
    ),
    case!(
        "all/each-has-its-fence",
        "Each lock has a fence of its own, which grows from one common grant to the next.",
        ["P19", "P52"],
        [],
        each_has_its_fence
    ),
    case!(
        "all/cancelled-at-every-poll",
        "Taking several locks, dropped at any await point, leaves none of them taken.",
        ["P12", "P50"],
        [],
        cancelled_at_every_poll
    ),
    case!(
        "all/dropped-frees-each",
        "Dropping the common guard frees every lock.",
        ["P13", "P50"],
        [],
        dropped_frees_each
    ),
];

fn all(client: &Client, names: &[LockName]) -> LockAll {
    client.lock_all(names.iter().map(LockName::as_bytes))
}

fn names(context: &Context) -> [LockName; 3] {
    [context.name("a"), context.name("b"), context.name("c")]
}

async fn sorted_and_once_each(context: &mut Context) -> CaseResult {
    let (client, layer) = context.layered().await?;
    let (probe, [a, b, c]) = (context.client().await?, names(context));
    let given = [c.clone(), a.clone(), b.clone(), a.clone(), c.clone()];
    let guard = all(&client, &given).try_acquire().await?.ok_or_else(|| Failure::new("free locks are busy"))?;
    let taken: Vec<LockName> = layer.frames().into_iter().filter(|f| f.op == Op::Acquire).map(|f| f.name).collect();
    assert_eq!(taken, [a.clone(), b.clone(), c.clone()], "taken in this order");
    assert_eq!(guard.guards().len(), 3);
    for name in [&a, &b, &c] {
        assert!(!is_free(&probe, name).await?);
    }
    guard.release().await?;
    for name in [&a, &b, &c] {
        clean(context, &probe, name, &[&client]).await?;
    }
    Ok(())
}

async fn busy_one_takes_none(context: &mut Context) -> CaseResult {
    let (client, other) = (context.client().await?, context.client().await?);
    let names = names(context);
    for busy in &names {
        let holder = keep(&other, busy, context.ttl(20_000)).await?;
        assert!(all(&client, &names).try_acquire().await?.is_none(), "granted although \"{busy}\" is held");
        must_fail(all(&client, &names).acquire_within(context.ms(50)).await, ErrorKind::TimedOut)?;
        for name in names.iter().filter(|name| *name != busy) {
            free_within(context, &other, name, context.soon()).await?;
        }
        holder.release().await?;
        clean(context, &other, busy, &[&client, &other]).await?;
    }
    Ok(())
}

async fn unknown_one_takes_none(context: &mut Context) -> CaseResult {
    let (client, layer) = context.layered().await?;
    let (probe, names) = (context.client().await?, names(context));
    for skip in 0..3 {
        layer.rule(Rule::on(Op::Acquire, Action::LoseReply).after(skip).once());
        must_fail(all(&client, &names).ttl(Duration::from_secs(600)).try_acquire().await, ErrorKind::Indeterminate)?;
        layer.heal();
        for name in &names {
            clean(context, &probe, name, &[&client]).await?;
        }
    }
    Ok(())
}

async fn opposite_orders_do_not_deadlock(context: &mut Context) -> CaseResult {
    let [a, b, c] = names(context);
    let sets = [[a.clone(), b.clone()], [b.clone(), a.clone()], [c.clone(), b.clone()], [c.clone(), a.clone()]];
    let mut tasks = Vec::new();
    for set in sets {
        let client = context.client().await?;
        tasks.push(tokio::spawn(async move {
            for _ in 0..5 {
                let guard = all(&client, &set).acquire().await?;
                tokio::time::sleep(Duration::from_millis(2)).await;
                assert!(guard.is_held());
                guard.release().await?;
            }
            CaseResult::Ok(())
        }));
    }
    for task in tasks {
        context.within(context.ms(30_000), "every client has its turns", task).await???;
    }
    let probe = context.client().await?;
    for name in [&a, &b, &c] {
        clean(context, &probe, name, &[&probe]).await?;
    }
    Ok(())
}

async fn window_is_the_shortest(context: &mut Context) -> CaseResult {
    let (client, layer) = context.layered_with(|builder| builder.op_timeout(Duration::from_secs(60))).await?;
    let (probe, names, ttl) = (context.client().await?, names(context), context.ttl(1_500));
    let pause = ttl / 6;
    layer.rule(Rule::on(Op::Acquire, Action::DelayReply(pause)));
    let guard = all(&client, &names).fixed_ttl(ttl).acquire_within(context.soon()).await?;
    let each: Vec<Duration> = guard.guards().iter().map(|guard| guard.remaining()).collect();
    // Two readings of the clock differ by microseconds, either way.
    let tolerance = Duration::from_millis(3);
    assert!(guard.remaining() <= each[0] + tolerance, "{:?} of {each:?}", guard.remaining());
    assert!(each[0] + pause < each[2] + tolerance, "each was taken after the other: {each:?}");
    assert!(guard.remaining() <= ttl - pause * 3, "{:?} of {ttl:?}", guard.remaining());
    context.within(ttl, "the first loss is everybody's", guard.lost()).await?;
    let error = must_fail(guard.check(), ErrorKind::Lost)?;
    assert_eq!(error.name(), Some(&names[0]), "the error names the lock that was lost");
    layer.heal();
    drop(guard);
    for name in &names {
        clean(context, &probe, name, &[&client]).await?;
    }
    Ok(())
}

async fn each_has_its_fence(context: &mut Context) -> CaseResult {
    let (client, names) = (context.client().await?, names(context));
    let mut last = Vec::new();
    for _ in 0..4 {
        let guard = all(&client, &names).acquire_within(context.soon()).await?;
        let fences: Vec<_> = names.iter().filter_map(|name| guard.fence(name.as_bytes())).collect();
        assert_eq!(fences.len(), 3);
        assert!(last.iter().zip(&fences).all(|(before, now)| before < now), "{last:?} then {fences:?}");
        assert_eq!(guard.fence(context.name("z").as_bytes()), None);
        last = fences;
        guard.release().await?;
    }
    Ok(())
}

async fn cancelled_at_every_poll(context: &mut Context) -> CaseResult {
    at_every_poll(context, Op::Acquire, |client, probe, name, polls| {
        async move {
            let mut other = name.as_bytes().to_vec();
            other.extend_from_slice(b"/2");
            let set = client.lock_all([name.as_bytes(), &other]).ttl(Duration::from_secs(60));
            let done = poll::at_most(polls, set.acquire()).await.transpose()?.is_some();
            let (other, start) = (LockName::new(&other)?, tokio::time::Instant::now());
            while !is_free(probe, &other).await? {
                assert!(start.elapsed() < Duration::from_secs(20), "the second lock stays taken");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            Ok(done)
        }
        .boxed_local()
    })
    .await
}

async fn dropped_frees_each(context: &mut Context) -> CaseResult {
    let (client, probe) = (context.client().await?, context.client().await?);
    let names = names(context);
    let guard = all(&client, &names).ttl(Duration::from_secs(600)).acquire_within(context.soon()).await?;
    assert!(guard.is_held() && client.stats().holds == 3);
    drop(guard);
    for name in &names {
        clean(context, &probe, name, &[&client]).await?;
    }
    let other = take(&probe, &names[1], context.ttl(5_000)).await?;
    other.release().await?;
    Ok(())
}
