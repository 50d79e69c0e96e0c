//! A step that makes room notifies all waiters that fit now, and keeps their room for a while.

use std::time::Duration;

use tenure_core::OwnerToken;
use tenure_core::driver::Family;

use super::support::{LONG, Raw, clean, is_idle, must, semaphore, share, waiting};
use crate::case::{Case, CaseResult, Context, Need, case};
use crate::cases::support::{busy, granted};

pub(in crate::cases) const CASES: &[Case] = &[
    case!(
        "permits/one-release-serves-several",
        "A release serves every waiter that fits now, not only the first.",
        ["P67"],
        [Need::PermitWakeups],
        one_release_serves_several
    ),
    case!(
        "permits/notified-waiter-keeps-its-room",
        "Until a notified waiter asks, its room is granted to no other request, of any weight or capacity.",
        ["P65", "P68"],
        [Need::PermitsFifo],
        notified_waiter_keeps_its_room
    ),
    case!(
        "permits/unpolled-waiter-delays-by-the-claim",
        "A waiter that is notified and does not ask delays the next one by the claim window, not by its presence.",
        ["P68"],
        [Need::PermitsFifo],
        unpolled_waiter_delays_by_the_claim
    ),
    case!(
        "permits/raised-limit-serves-in-the-same-step",
        "A waiter under a greater capacity is notified in the step that grants the waiter with the smaller one before it.",
        ["P63", "P67"],
        [Need::PermitsFifo],
        raised_limit_serves_in_the_same_step
    ),
    case!(
        "permits/lost-wake-ups-only-delay",
        "A waiter whose wake-ups are all lost is granted the permits within its presence.",
        ["P18"],
        [Need::PermitWakeups],
        lost_wake_ups_only_delay
    ),
];

/// The time for which a notified waiter's room is reserved.
const CLAIM: Duration = Duration::from_secs(2);

async fn one_release_serves_several(context: &mut Context) -> CaseResult {
    let (holder, name) = (context.client().await?, context.name("several"));
    let (client, layer) = context.layered_with(|builder| builder.presence(LONG)).await?;
    let (other, other_layer) = context.layered_with(|builder| builder.presence(LONG)).await?;
    // A renewed lease may be handed over, a fixed one is for the waiter to ask for.
    for fixed in [false, true] {
        let held = must(semaphore(&holder, &name, 5).weight(5).ttl(LONG).try_acquire().await?)?;
        let mut tasks = Vec::new();
        for (client, layer, weight) in [(&client, &layer, 1), (&other, &other_layer, 2), (&client, &layer, 1)] {
            let waiter = semaphore(client, &name, 5).weight(weight);
            let waiter = if fixed { waiter.fixed_ttl(LONG) } else { waiter.ttl(LONG) };
            tasks.push(waiting(context, layer, &name, async move { waiter.acquire().await }).await?);
        }
        held.release().await?;
        let mut permits = Vec::new();
        for task in tasks {
            permits.push(context.within(context.soon(), "each waiter is served by the one release", task).await???);
        }
        assert!(semaphore(&holder, &name, 5).weight(2).try_acquire().await?.is_none(), "five of five and two");
        for permit in permits {
            permit.release().await?;
        }
        clean(context, &holder, Family::Semaphore, &name, &[&holder, &client, &other]).await?;
    }
    Ok(())
}

async fn notified_waiter_keeps_its_room(context: &mut Context) -> CaseResult {
    let raw = Raw::new(context, "room", context.ttl(60_000)).await?;
    let (token, _) = raw.take(share(3, 3)).await?;
    let waiter = OwnerToken::random();
    let mut watch = raw.watch(waiter).await?;
    busy(raw.join(waiter, share(2, 3), LONG).await?)?;
    raw.release(token).await?;
    context.within(context.soon(), "the waiter is notified", watch.next()).await?;
    for other in [share(2, 3), share(3, 3), share(2, 4), share(3, 4)] {
        let fits = raw.fits(other).await?;
        assert!(!fits, "{other:?} was granted in the room of the notified waiter");
    }
    granted(raw.join(waiter, share(2, 3), LONG).await?)?;
    raw.release(waiter).await?;
    assert!(raw.fits(share(3, 3)).await?);
    Ok(())
}

async fn unpolled_waiter_delays_by_the_claim(context: &mut Context) -> CaseResult {
    let presence = context.ttl(900);
    let (client, layer) = context.layered_with(|builder| builder.presence(presence)).await?;
    let raw = Raw::new(context, "unpolled", context.ttl(60_000)).await?;
    let (token, _) = raw.take(share(3, 3)).await?;
    let unpolled = OwnerToken::random();
    let watch = raw.watch(unpolled).await?;
    busy(raw.join(unpolled, share(2, 3), LONG).await?)?;
    let waiter = semaphore(&client, &raw.name, 3).weight(2).ttl(LONG);
    let next = waiting(context, &layer, &raw.name, async move { waiter.acquire().await }).await?;
    raw.release(token).await?;
    let limit = CLAIM + presence / 3 + context.declared().locks.ttl.granularity + context.ms(900);
    context.within(limit, "the turn of the unpolled waiter lapses", next).await???.release().await?;
    drop(watch);
    clean(context, &client, Family::Semaphore, &raw.name, &[&client]).await
}

async fn raised_limit_serves_in_the_same_step(context: &mut Context) -> CaseResult {
    let raw = Raw::new(context, "raised", context.ttl(60_000)).await?;
    let (token, _) = raw.take(share(1, 1)).await?;
    let (old, new) = (OwnerToken::random(), OwnerToken::random());
    let (mut of_old, mut of_new) = (raw.watch(old).await?, raw.watch(new).await?);
    busy(raw.join(old, share(1, 1), LONG).await?)?;
    busy(raw.join(new, share(1, 2), LONG).await?)?;
    raw.release(token).await?;
    context.within(context.soon(), "the first waiter is notified", of_old.next()).await?;
    busy(raw.join(new, share(1, 2), LONG).await?)?;
    granted(raw.join(old, share(1, 1), LONG).await?)?;
    context.within(context.soon(), "the waiter under the greater capacity is notified", of_new.next()).await?;
    granted(raw.join(new, share(1, 2), LONG).await?)?;
    assert!(!raw.fits(share(1, 2)).await? && raw.fits(share(1, 3)).await?);
    for token in [old, new] {
        raw.release(token).await?;
    }
    Ok(())
}

async fn lost_wake_ups_only_delay(context: &mut Context) -> CaseResult {
    let (holder, name, presence) = (context.client().await?, context.name("muted"), context.ttl(900));
    let (client, layer) = context.layered_with(|builder| builder.presence(presence)).await?;
    layer.mute();
    for fixed in [false, true] {
        let held = must(semaphore(&holder, &name, 2).weight(2).ttl(LONG).try_acquire().await?)?;
        let waiter = semaphore(&client, &name, 2);
        let waiter = if fixed { waiter.fixed_ttl(LONG) } else { waiter.ttl(LONG) };
        let next = waiting(context, &layer, &name, async move { waiter.acquire().await }).await?;
        held.release().await?;
        let permit = context.within(presence + context.ms(1_500), "granted all the same", next).await???;
        assert!(permit.is_held() && !is_idle(&holder, Family::Semaphore, &name).await?);
        permit.release().await?;
        clean(context, &holder, Family::Semaphore, &name, &[&holder, &client]).await?;
    }
    Ok(())
}
