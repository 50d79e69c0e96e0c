//! Operators look at permits and take them away; nothing stays in the store; undeclared permits are refused.

use tenure_core::driver::{Family, ForceReleased};
use tenure_core::{ErrorKind, Label};

use super::support::{LONG, clean, must, rw_lock, semaphore, waiting};
use crate::case::{Case, CaseResult, Context, Failure, Need, case};
use crate::cases::support::must_fail;

pub(in crate::cases) const CASES: &[Case] = &[
    case!(
        "permits/inspect-lists-holders",
        "An inspection has the weight of all holds, each holder with its share, label and fence in order, and the number of waiters.",
        ["P29"],
        [Need::PermitIntrospection],
        inspect_lists_holders
    ),
    case!(
        "permits/evict-hits-one-and-spares-the-next",
        "An eviction by fence ends that hold alone, serves the waiter that fits, and finds nothing the second time.",
        ["P9", "P67"],
        [Need::PermitRevocation],
        evict_hits_one_and_spares_the_next
    ),
    case!(
        "permits/hygiene-leaves-no-key-without-an-end",
        "While permits are held, waited for, changed and given back, every entry in the store has an end, and none is left.",
        ["P28", "P30"],
        [Need::Permits, Need::Leftovers],
        hygiene_leaves_no_key_without_an_end
    ),
    case!(
        "refusal/permits",
        "Without declared permits every request for a semaphore or a read-write lock is refused as unsupported, and nothing is sent.",
        ["P26"],
        [Need::NoPermits],
        refused
    ),
];

async fn inspect_lists_holders(context: &mut Context) -> CaseResult {
    let (client, name) = (context.client().await?, context.name("inspect"));
    let (other, layer) = context.layered().await?;
    let one = semaphore(&client, &name, 7).weight(2).ttl(LONG).label("one");
    let (one, two) =
        (must(one.try_acquire().await?)?, must(semaphore(&other, &name, 5).ttl(LONG).try_acquire().await?)?);
    let waiter = semaphore(&other, &name, 5).weight(5);
    let waiter = waiting(context, &layer, &name, async move { waiter.acquire().await }).await?;
    let line = context.declared().permits.is_some_and(|permits| permits.max_waiters.is_some());
    for _ in 0..3 {
        let seen = semaphore(&client, &name, 1).inspect().await?;
        assert_eq!((seen.used, seen.waiters), (3, u32::from(line)));
        let shares: Vec<_> = seen.holders.iter().map(|held| (held.share.weight, held.share.capacity)).collect();
        assert_eq!(shares, [(2, 7), (1, 5)]);
        let fences: Vec<_> = seen.holders.iter().filter_map(|held| held.holder.fence).collect();
        assert_eq!(fences, [one.fence(), two.fence()]);
        let labels: Vec<_> = seen.holders.iter().map(|held| held.holder.label.as_ref().map(Label::as_str)).collect();
        assert_eq!(labels, [Some("one"), None]);
        let remaining = seen.holders.iter().filter_map(|held| held.holder.remaining);
        assert!(remaining.clone().count() == 2 && remaining.clone().all(|left| !left.is_zero() && left <= LONG));
    }
    one.release().await?;
    two.release().await?;
    context.within(context.soon() * 4, "the waiter is served", waiter).await???.release().await?;
    clean(context, &client, Family::Semaphore, &name, &[&client, &other]).await
}

async fn evict_hits_one_and_spares_the_next(context: &mut Context) -> CaseResult {
    let (client, name, ttl) = (context.client().await?, context.name("evict"), context.ttl(900));
    let (other, layer) = context.layered_with(|builder| builder.presence(ttl)).await?;
    let handle = semaphore(&client, &name, 3).ttl(ttl);
    let [first, middle, last] =
        [must(handle.try_acquire().await?)?, must(handle.try_acquire().await?)?, must(handle.try_acquire().await?)?];
    let waiter = semaphore(&other, &name, 3).ttl(LONG);
    let next = waiting(context, &layer, &name, async move { waiter.acquire().await }).await?;
    assert_eq!(handle.evict(middle.fence()).await?, ForceReleased::Released);
    let next = context.within(context.soon(), "the waiter has the evicted holder's permit", next).await???;
    context.within(ttl * 2, "the evicted holder learns of it", middle.lost()).await?;
    for _ in 0..2 {
        assert_eq!(handle.evict(middle.fence()).await?, ForceReleased::NotHeld);
    }
    must_fail(middle.release().await, ErrorKind::Lost)?;
    context.pass(ttl * 2).await;
    assert!(first.is_held() && last.is_held() && next.is_held(), "an eviction ended another hold");
    assert!(handle.try_acquire().await?.is_none());
    for permit in [first, last, next] {
        permit.release().await?;
    }
    clean(context, &client, Family::Semaphore, &name, &[&client, &other]).await
}

async fn hygiene_leaves_no_key_without_an_end(context: &mut Context) -> CaseResult {
    let (client, name, ttl) = (context.client().await?, context.name("endless"), context.ttl(600));
    let (other, layer) = context.layered().await?;
    let look = context.inspector().ok_or_else(|| Failure::new("an inspector is declared and not given"))?;
    let check = async |when: &str| -> CaseResult {
        let residue = look.residue(&name).await?;
        assert_eq!(residue.endless, 0, "{when}: {residue:?}");
        Ok(())
    };
    for _ in 0..2 {
        let handle = semaphore(&client, &name, 3).ttl(ttl);
        let (one, mut two) = (must(handle.try_acquire().await?)?, must(handle.clone().weight(2).try_acquire().await?)?);
        check("while two hold").await?;
        let waiter = semaphore(&other, &name, 3).weight(2);
        let waiter = waiting(context, &layer, &name, async move { waiter.acquire().await }).await?;
        context.pass(ttl * 2).await;
        check("after they were renewed and waited for").await?;
        two.shrink(1).await?;
        waiter.abort();
        drop(waiter.await);
        context.eventually(context.soon(), "the waiter is undone", async || other.stats().cleanups == 0).await?;
        one.release().await?;
        drop(two);
        clean(context, &client, Family::Semaphore, &name, &[&client, &other]).await?;
        check("after all was given back").await?;
    }
    Ok(())
}

async fn refused(context: &mut Context) -> CaseResult {
    let (client, layer) = context.layered().await?;
    let name = context.name("permits");
    let (semaphore, lock) = (semaphore(&client, &name, 3), rw_lock(&client, &name));
    let within = context.ms(50);
    must_fail(semaphore.try_acquire().await, ErrorKind::Unsupported)?;
    must_fail(semaphore.acquire().await, ErrorKind::Unsupported)?;
    must_fail(semaphore.acquire_within(within).await, ErrorKind::Unsupported)?;
    must_fail(semaphore.inspect().await, ErrorKind::Unsupported)?;
    must_fail(lock.try_read().await, ErrorKind::Unsupported)?;
    must_fail(lock.write_within(within).await, ErrorKind::Unsupported)?;
    must_fail(lock.upgradable().await, ErrorKind::Unsupported)?;
    must_fail(lock.inspect().await, ErrorKind::Unsupported)?;
    must_fail(lock.evict(tenure_core::FencingToken::new(1).ok_or("not zero")?).await, ErrorKind::Unsupported)?;
    assert_eq!(client.permit_capabilities(), None);
    assert_eq!(layer.count(), 0, "something was sent");
    Ok(())
}
