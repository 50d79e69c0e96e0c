//! Repeated, late, lost and cancelled requests.

use std::time::Duration;

use tenure_core::driver::{Begun, Family, Released};
use tenure_core::{Client, ErrorKind, OwnerToken};

use super::support::{LONG, Raw, clean, is_idle, must, not_held, semaphore, share};
use crate::case::{Case, CaseResult, Context, Failure, Need, case};
use crate::cases::cancel::{ENOUGH, PACES};
use crate::cases::support::{granted, must_fail};
use crate::layer::{Action, FaultLayer, Op, Rule};
use crate::poll;

pub(in crate::cases) const CASES: &[Case] = &[
    case!(
        "permits/asking-again-is-the-same-grant",
        "A token that holds permits and asks again gets the same fence, counts once, and its lease is not lengthened.",
        ["P29"],
        [Need::Permits],
        asking_again_is_the_same_grant
    ),
    case!(
        "permits/late-acquire-takes-nothing",
        "A request for permits that arrives after the client gave up and cleaned up takes nothing.",
        ["P11", "P29"],
        [Need::Permits],
        late_acquire_takes_nothing
    ),
    case!(
        "permits/abandoned-token-is-refused",
        "A request that arrives after its token was abandoned is refused, and the permits of that token are free.",
        ["P11", "P29"],
        [Need::Permits],
        abandoned_token_is_refused
    ),
    case!(
        "permits/lost-grant-is-undone",
        "A grant of permits whose reply is lost is reported as unknown and undone without waiting for the ttl.",
        ["P11", "P26"],
        [Need::Permits],
        lost_grant_is_undone
    ),
    case!(
        "permits/duplicated-requests-change-nothing",
        "A client whose every frame arrives twice takes, shrinks, renews and releases permits like any other.",
        ["P29", "P69"],
        [Need::Permits],
        duplicated_requests_change_nothing
    ),
    case!(
        "permits/cancel-at-every-poll",
        "An acquisition, a wait and a release that are dropped at any await point leave no permits and no place behind.",
        ["P12", "P13"],
        [Need::Permits],
        cancel_at_every_poll
    ),
];

async fn asking_again_is_the_same_grant(context: &mut Context) -> CaseResult {
    let ttl = context.ttl(900);
    let raw = Raw::new(context, "again", ttl).await?;
    let (token, grant) = raw.take(share(2, 3)).await?;
    assert_eq!(grant.begun, Begun::Now);
    assert!(grant.ttl >= ttl);
    context.pass(ttl / 2).await;
    for _ in 0..3 {
        let again = granted(raw.ask(token, share(2, 3)).await?)?;
        assert_eq!((again.fence, again.begun), (grant.fence, Begun::Earlier));
    }
    assert!(raw.fits(share(1, 3)).await?, "the repeated request counts twice");
    let ended = async || raw.fits(share(3, 3)).await;
    context.eventually(ttl / 2 + context.ms(1_500), "the lease ends when it would have", ended).await?;
    let (token, _) = raw.take(share(2, 3)).await?;
    granted(raw.ask(token, share(2, 3)).await?)?;
    assert_eq!(raw.release(token).await?, Released::Released);
    assert!(raw.fits(share(3, 3)).await?, "one release did not free it");
    Ok(())
}

async fn late_acquire_takes_nothing(context: &mut Context) -> CaseResult {
    let (client, layer) = context.layered().await?;
    let (probe, name) = (context.client().await?, context.name("late"));
    layer.rule(Rule::on(Op::Acquire, Action::Hang));
    must_fail(semaphore(&client, &name, 1).ttl(LONG).try_acquire().await, ErrorKind::Indeterminate)?;
    let done = async || client.stats().cleanups == 0;
    context.eventually(context.soon(), "the clean-up is acknowledged", done).await?;
    // Now the request arrives that the clean-up has overtaken.
    layer.heal();
    context.pass(context.ms(100)).await;
    assert!(is_idle(&probe, Family::Semaphore, &name).await?, "the late request took a permit");
    clean(context, &probe, Family::Semaphore, &name, &[&client]).await
}

async fn abandoned_token_is_refused(context: &mut Context) -> CaseResult {
    let raw = Raw::new(context, "abandoned", context.ttl(20_000)).await?;
    let (held, _) = raw.take(share(2, 3)).await?;
    let (other, grant) = raw.take(share(1, 3)).await?;
    let never_granted = OwnerToken::random();
    for token in [held, never_granted, never_granted] {
        raw.abandon(token).await?;
    }
    for pause in [0, 100, 1_500] {
        context.pass(context.ms(pause)).await;
        for token in [held, never_granted] {
            not_held(raw.ask(token, share(1, 3)).await)?;
            not_held(raw.join(token, share(1, 3), LONG).await)?;
        }
        assert!(raw.fits(share(2, 3)).await? && !raw.fits(share(3, 3)).await?);
    }
    assert_eq!(granted(raw.ask(other, share(1, 3)).await?)?.fence, grant.fence, "another hold was undone");
    raw.release(other).await?;
    Ok(())
}

async fn lost_grant_is_undone(context: &mut Context) -> CaseResult {
    let (client, layer) = context.layered().await?;
    let (probe, name) = (context.client().await?, context.name("lost-grant"));
    layer.rule(Rule::on(Op::Acquire, Action::LoseReply).once());
    let handle = semaphore(&client, &name, 2).weight(2).ttl(LONG);
    must_fail(handle.try_acquire().await, ErrorKind::Indeterminate)?;
    clean(context, &probe, Family::Semaphore, &name, &[&client]).await
}

async fn duplicated_requests_change_nothing(context: &mut Context) -> CaseResult {
    let (client, layer) = context.layered().await?;
    let (probe, name, ttl) = (context.client().await?, context.name("duplicated"), context.ttl(600));
    layer.rule(Rule::always(Action::Duplicate));
    let mut last = None;
    for _ in 0..3 {
        let mut permit = must(semaphore(&client, &name, 3).weight(2).ttl(ttl).try_acquire().await?)?;
        must(semaphore(&probe, &name, 3).try_acquire().await?)?.release().await?;
        assert!(last.is_none_or(|last| permit.fence() > last));
        last = Some(permit.fence());
        context.pass(ttl * 2).await;
        assert!(permit.is_held() && semaphore(&probe, &name, 3).weight(2).try_acquire().await?.is_none());
        permit.shrink(1).await?;
        let beside = must(semaphore(&probe, &name, 3).weight(2).try_acquire().await?)?;
        assert!(semaphore(&probe, &name, 3).try_acquire().await?.is_none());
        beside.release().await?;
        permit.release().await?;
    }
    layer.heal();
    clean(context, &probe, Family::Semaphore, &name, &[&client]).await
}

async fn cancel_at_every_poll(context: &mut Context) -> CaseResult {
    let probe = context.client().await?;
    for (op, part) in [(Op::Acquire, Part::Try), (Op::Acquire, Part::Waiting), (Op::Release, Part::Release)] {
        for (index, pace) in PACES.into_iter().enumerate() {
            let (client, layer): (Client, FaultLayer) = context.layered().await?;
            pace.into_iter().for_each(|action| layer.rule(Rule::on(op, action)));
            let mut completed = false;
            for polls in 1..=ENOUGH {
                let name = context.name(format!("{part:?}/{index}/{polls}"));
                let handle = semaphore(&client, &name, 3).weight(2).ttl(LONG);
                completed = match part {
                    Part::Try => poll::at_most(polls, handle.try_acquire()).await.transpose()?.is_some(),
                    Part::Release => {
                        let permit = must(handle.try_acquire().await?)?;
                        poll::at_most(polls, permit.release()).await.transpose()?.is_some()
                    }
                    Part::Waiting => {
                        let held = must(semaphore(&probe, &name, 3).weight(2).ttl(LONG).try_acquire().await?)?;
                        let release = async {
                            tokio::time::sleep(Duration::from_millis(20)).await;
                            held.release().await
                        };
                        let (won, released) = tokio::join!(poll::at_most(polls, handle.acquire()), release);
                        released?;
                        won.transpose()?.is_some()
                    }
                };
                clean(context, &probe, Family::Semaphore, &name, &[&client]).await?;
                if completed {
                    break;
                }
            }
            if !completed {
                return Err(Failure::new(format!("not completed after {ENOUGH} polls")));
            }
        }
    }
    Ok(())
}

#[derive(Clone, Copy, Debug)]
enum Part {
    Try,
    Waiting,
    Release,
}
