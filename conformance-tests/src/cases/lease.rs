//! Leases: their length, and their extension.

use std::time::Duration;

use tenure_core::driver::{Released, Renewed};
use tenure_core::{HoldState, LostReason, OwnerToken};
use tokio::time::Instant;

use super::support::{
    clean, free_within, granted, hold, is_free, is_free_raw, keep, lock, must, request, take, take_raw, ttl_of,
};
use crate::case::{Case, CaseResult, Context, case};

pub(super) const CASES: &[Case] = &[
    case!(
        "lease/ends-by-itself",
        "A lease whose holder does nothing ends after its ttl, and the name is free soon after.",
        ["P17", "P28", "R11"],
        [],
        ends_by_itself
    ),
    case!(
        "lease/not-granted-again-before-its-end",
        "No other client is granted the name before the ttl of an unreleased lease has passed.",
        ["P1", "P28"],
        [],
        not_granted_again_before_its_end
    ),
    case!(
        "lease/belief-ends-before-the-next-grant",
        "The holder's own view of its lease has ended when the next client is granted the name.",
        ["P2", "P4"],
        [],
        belief_ends_before_the_next_grant
    ),
    case!(
        "lease/renewed-outlives-its-ttl",
        "A lease with the default upkeep is still held after several ttls, and busy for others all the while.",
        ["P6", "R10"],
        [],
        renewed_outlives_its_ttl
    ),
    case!(
        "lease/fixed-is-not-renewed",
        "A lease with a fixed ttl is not renewed: its guard reports the loss as expiry.",
        ["P4"],
        [],
        fixed_is_not_renewed
    ),
    case!(
        "lease/max-hold-ends-it",
        "A renewed lease ends at its cap, and its name becomes free.",
        ["P30"],
        [],
        max_hold_ends_it
    ),
    case!(
        "lease/over-for-who-never-looked",
        "The first request of a new driver is granted a lock whose lease ended before that driver connected.",
        ["P17"],
        [],
        over_for_who_never_looked
    ),
    case!(
        "driver/renewal-lengthens",
        "A renewed lease outlives the ttl that it was granted with.",
        ["P6"],
        [],
        renewal_lengthens
    ),
    case!(
        "driver/renewal-never-shortens",
        "A renewal with a shorter ttl leaves what remains of the lease as it is.",
        ["P6"],
        [],
        renewal_never_shortens
    ),
    case!(
        "driver/renewal-never-revives",
        "A renewal of a lease that has ended answers that it is lost, and the name stays free.",
        ["P7"],
        [],
        renewal_never_revives
    ),
    case!(
        "driver/renewal-by-another-token-changes-nothing",
        "A renewal with a token that does not hold the lock answers lost, and the holder's lease ends when it would have.",
        ["P7", "P9"],
        [],
        renewal_by_another_token_changes_nothing
    ),
    case!(
        "driver/renewals-are-answered-in-order",
        "A batch of renewals gets one answer for each, in its order, and a lost one does not spoil the others.",
        ["P6", "P7"],
        [],
        renewals_are_answered_in_order
    ),
];

async fn over_for_who_never_looked(context: &mut Context) -> CaseResult {
    let gone = context.backend().await?;
    let (name, ttl) = (context.name("over"), context.ttl(500));
    take_raw(&**gone.locks(), &name, ttl).await?;
    context.pass(ttl + context.ms(1_500)).await;
    let late = context.backend().await?;
    take_raw(&**late.locks(), &name, ttl).await?;
    Ok(())
}

async fn ends_by_itself(context: &mut Context) -> CaseResult {
    let backend = context.backend().await?;
    let (name, ttl) = (context.name("ends"), context.ttl(500));
    let probe = context.client().await?;
    take_raw(&**backend.locks(), &name, ttl).await?;
    let took = free_within(context, &probe, &name, ttl + context.ms(1_500)).await?;
    assert!(took >= ttl / 2, "free after {took:?} of {ttl:?}");
    Ok(())
}

async fn not_granted_again_before_its_end(context: &mut Context) -> CaseResult {
    let backend = context.backend().await?;
    let (name, ttl) = (context.name("early"), context.ttl(500));
    let other = context.backend().await?;
    let asked = Instant::now();
    take_raw(&**backend.locks(), &name, ttl).await?;
    // The lease began after `asked`: a grant may not come before `asked + ttl`, but for the clocks' drift.
    let free = async || is_free_raw(&**other.locks(), &name).await;
    context.eventually(ttl + context.ms(1_500), "the lease ends", free).await?;
    let passed = asked.elapsed();
    assert!(passed >= ttl.mul_f64(0.99) - Duration::from_millis(2), "granted again after {passed:?} of {ttl:?}");
    Ok(())
}

async fn belief_ends_before_the_next_grant(context: &mut Context) -> CaseResult {
    let (one, other) = (context.client().await?, context.client().await?);
    let (name, ttl) = (context.name("belief"), context.ttl(500));
    let guard = take(&one, &name, ttl).await?;
    assert!(guard.remaining() < ttl, "{:?} remain of {ttl:?}", guard.remaining());
    let next = async || {
        let won = lock(&other, &name).try_acquire().await.ok().flatten();
        // The clock is read after the grant: a holder that still believes now believed then.
        won.is_some_and(|_won| {
            assert!(guard.check().is_err(), "both believe to hold the lock; {:?} remain", guard.remaining());
            true
        })
    };
    context.eventually(ttl + context.ms(1_500), "the lease ends", next).await?;
    assert_eq!(guard.state(), HoldState::Lost(LostReason::Expired));
    Ok(())
}

async fn renewed_outlives_its_ttl(context: &mut Context) -> CaseResult {
    let (one, other) = (context.client().await?, context.client().await?);
    let (name, ttl) = (context.name("renewed"), context.ttl(600));
    let guard = keep(&one, &name, ttl).await?;
    let until = Instant::now() + ttl * 3;
    while Instant::now() < until {
        assert!(!is_free(&other, &name).await?, "free while it is renewed");
        assert!(guard.is_held(), "lost while it is renewed: {:?}", guard.state());
        context.pass(ttl / 10).await;
    }
    guard.release().await?;
    Ok(())
}

async fn fixed_is_not_renewed(context: &mut Context) -> CaseResult {
    let (one, other) = (context.client().await?, context.client().await?);
    let (name, ttl) = (context.name("fixed"), context.ttl(400));
    let guard = take(&one, &name, ttl).await?;
    let reason = context.within(ttl, "the loss is reported by the end of the ttl", guard.lost()).await?;
    assert_eq!(reason, LostReason::Expired);
    assert!(!guard.is_held() && guard.remaining().is_zero());
    free_within(context, &other, &name, context.ms(1_500)).await?;
    Ok(())
}

async fn max_hold_ends_it(context: &mut Context) -> CaseResult {
    let (one, other) = (context.client().await?, context.client().await?);
    let (name, ttl) = (context.name("capped"), context.ttl(600));
    let cap = ttl * 2;
    let guard = must(lock(&one, &name).ttl(ttl).max_hold(cap).try_acquire().await?, &name)?;
    let began = Instant::now();
    let reason = context.within(cap + context.ms(500), "the cap ends the hold", guard.lost()).await?;
    assert_eq!(reason, LostReason::MaxHold);
    assert!(began.elapsed() > ttl, "ended after {:?}, without being renewed", began.elapsed());
    drop(guard);
    clean(context, &other, &name, &[&one]).await
}

async fn renewal_lengthens(context: &mut Context) -> CaseResult {
    let backend = context.backend().await?;
    let locks = &**backend.locks();
    let (name, ttl) = (context.name("lengthened"), context.ttl(500));
    let (token, _) = take_raw(locks, &name, ttl).await?;
    context.pass(ttl / 2).await;
    let answer = locks.renew(ttl_of(ttl * 2)?, &[hold(&name, token)]).await.remove(0)?;
    assert!(matches!(answer, Renewed::Extended { ttl: kept } if kept >= ttl * 2), "{answer:?}");
    context.pass(ttl).await;
    assert!(!is_free_raw(locks, &name).await?, "the renewed lease ended with its first ttl");
    assert_eq!(locks.release(&hold(&name, token)).await?, Released::Released);
    Ok(())
}

async fn renewal_never_shortens(context: &mut Context) -> CaseResult {
    let backend = context.backend().await?;
    let locks = &**backend.locks();
    let (name, short) = (context.name("shortened"), context.ttl(200));
    let (token, _) = take_raw(locks, &name, short * 20).await?;
    let answer = locks.renew(ttl_of(short)?, &[hold(&name, token)]).await.remove(0)?;
    assert!(matches!(answer, Renewed::Extended { ttl } if ttl >= short), "{answer:?}");
    context.pass(short * 3).await;
    assert!(!is_free_raw(locks, &name).await?, "the renewal shortened the lease");
    assert_eq!(locks.release(&hold(&name, token)).await?, Released::Released);
    Ok(())
}

async fn renewal_never_revives(context: &mut Context) -> CaseResult {
    let backend = context.backend().await?;
    let locks = &**backend.locks();
    let (name, ttl) = (context.name("revived"), context.ttl(300));
    let (token, _) = take_raw(locks, &name, ttl).await?;
    context.pass(ttl + context.ms(200)).await;
    assert_eq!(locks.renew(ttl_of(ttl * 100)?, &[hold(&name, token)]).await.remove(0)?, Renewed::Lost);
    assert!(is_free_raw(locks, &name).await?, "the renewal took the lock again");
    Ok(())
}

async fn renewal_by_another_token_changes_nothing(context: &mut Context) -> CaseResult {
    let backend = context.backend().await?;
    let locks = &**backend.locks();
    let (name, ttl) = (context.name("foreign"), context.ttl(500));
    let (token, _) = take_raw(locks, &name, ttl).await?;
    let stranger = hold(&name, OwnerToken::random());
    assert_eq!(locks.renew(ttl_of(ttl * 20)?, &[stranger]).await.remove(0)?, Renewed::Lost);
    let again = granted(locks.acquire(&request(&name, token, ttl)?).await?);
    assert!(again.is_ok(), "the renewal by a stranger took the lock away");
    let free = async || is_free_raw(locks, &name).await;
    context.eventually(ttl + context.ms(1_500), "the lease ends when it would have", free).await?;
    Ok(())
}

async fn renewals_are_answered_in_order(context: &mut Context) -> CaseResult {
    let backend = context.backend().await?;
    let locks = &**backend.locks();
    let ttl = context.ttl(5_000);
    let count = locks.capabilities().renew_batch.min(12);
    let mut holds = Vec::new();
    for index in 0..count {
        let name = context.name(format!("batch/{index}"));
        let (token, _) = take_raw(locks, &name, ttl).await?;
        // Every third of the batch names a token that holds nothing.
        let token = if index % 3 == 0 { OwnerToken::random() } else { token };
        holds.push(hold(&name, token));
    }
    let answers = locks.renew(ttl_of(ttl)?, &holds).await;
    assert_eq!(answers.len(), count, "one answer for each renewal");
    for (index, answer) in answers.into_iter().enumerate() {
        let lost = answer? == Renewed::Lost;
        assert_eq!(lost, index % 3 == 0, "renewal {index} of the batch");
    }
    assert!(locks.renew(ttl_of(ttl)?, &[]).await.is_empty(), "no renewals, no answers");
    Ok(())
}
