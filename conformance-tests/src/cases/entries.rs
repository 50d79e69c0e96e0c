//! Entries of re-entrant locks under faults: duplicated, late, lost, cancelled; and their common lease.

use futures_util::FutureExt;
use tenure_core::driver::{
    AcquireRequest, Begun, Exited, Grant, ReentrantEntry, ReentrantHold, ReentrantLock, Renewed,
};
use tenure_core::{ErrorKind, LockName, OwnerId, OwnerToken};

use super::cancel::at_every_poll;
use super::reentry::{enter, reentrant};
use super::support::{clean, free_within, granted, is_free, is_free_raw, must, must_fail, request, ttl_of};
use crate::case::{Case, CaseResult, Context, Failure, Need, case};
use crate::layer::{Action, Op, Rule};
use crate::poll;

pub(super) const CASES: &[Case] = &[
    case!(
        "reentrant/duplicated-frames-do-not-count",
        "Entries and exits whose frames arrive twice count once: n entries still need n exits.",
        ["P29", "P32"],
        [Need::Reentrant],
        duplicated_frames_do_not_count
    ),
    case!(
        "reentrant/asking-again-is-the-same-entry",
        "An entry that is asked for again is the same entry at the same depth; one exit undoes it.",
        ["P29", "P32"],
        [Need::Reentrant],
        asking_again_is_the_same_entry
    ),
    case!(
        "reentrant/exit-of-no-entry-changes-nothing",
        "An exit by a stranger, by another owner, or of an entry that is undone says not held and changes nothing.",
        ["P32", "P34"],
        [Need::Reentrant],
        exit_of_no_entry_changes_nothing
    ),
    case!(
        "reentrant/renewal-by-a-stranger-changes-nothing",
        "A renewal by another owner, or for another hold of the same owner, answers lost and lengthens nothing.",
        ["P7", "P34"],
        [Need::Reentrant],
        renewal_by_a_stranger_changes_nothing
    ),
    case!(
        "reentrant/entry-never-shortens",
        "An entry with a shorter ttl leaves what remains of the lease as it is.",
        ["P33"],
        [Need::Reentrant],
        entry_never_shortens
    ),
    case!(
        "reentrant/entry-may-lengthen",
        "An entry with a longer ttl lengthens the lease for all entries.",
        ["P33"],
        [Need::Reentrant],
        entry_may_lengthen
    ),
    case!(
        "reentrant/renewed-as-a-whole",
        "A re-entrant hold is renewed for as long as one entry lives, also by an entry that came later.",
        ["P6", "P36"],
        [Need::Reentrant],
        renewed_as_a_whole
    ),
    case!(
        "reentrant/lost-as-a-whole",
        "When the lease ends, every entry is notified, and the next entry of the same owner is a new hold with a new fence.",
        ["P36"],
        [Need::Reentrant],
        lost_as_a_whole
    ),
    case!(
        "reentrant/stale-entry-cannot-exit-a-new-hold",
        "An entry of a lost hold cannot undo one of the same owner's next hold.",
        ["P9", "P36"],
        [Need::Reentrant],
        stale_entry_cannot_exit_a_new_hold
    ),
    case!(
        "reentrant/abandoned-entry-is-refused",
        "Abandoning an entry undoes that one alone, and a request for it that arrives later is refused.",
        ["P11", "P29"],
        [Need::Reentrant],
        abandoned_entry_is_refused
    ),
    case!(
        "reentrant/lost-reply-is-undone",
        "An entry whose reply is lost is undone; the entries around it stay, and the count is exact.",
        ["P11", "P32"],
        [Need::Reentrant],
        lost_reply_is_undone
    ),
    case!(
        "reentrant/late-entry-takes-nothing",
        "A request to enter that arrives after the client gave up and cleaned up does not enter.",
        ["P11", "R12"],
        [Need::Reentrant],
        late_entry_takes_nothing
    ),
    case!(
        "reentrant/enter-at-every-poll",
        "An entry that is dropped at any await point leaves the outer entry and nothing else.",
        ["P12"],
        [Need::Reentrant],
        enter_at_every_poll
    ),
    case!(
        "reentrant/exit-at-every-poll",
        "An exit that is dropped at any await point is carried on: the lock becomes free.",
        ["P12", "P13"],
        [Need::Reentrant],
        exit_at_every_poll
    ),
];

fn entry(name: &LockName, owner: OwnerId, token: OwnerToken) -> ReentrantEntry {
    ReentrantEntry::new(name.clone(), owner, token)
}

async fn ask(driver: &dyn ReentrantLock, owner: &OwnerId, request: &AcquireRequest) -> CaseResult<Grant> {
    granted(driver.enter(owner, request).await?)
}

macro_rules! raw {
    ($context:ident, $backend:ident, $driver:ident) => {
        let $backend = $context.backend().await?;
        let $driver = $backend.reentrant().ok_or_else(|| Failure::new("declared, and not there"))?;
        let $driver: &dyn ReentrantLock = &**$driver;
    };
}

async fn duplicated_frames_do_not_count(context: &mut Context) -> CaseResult {
    let (client, layer) = context.layered().await?;
    let (probe, name, me) = (context.client().await?, context.name("duplicated"), OwnerId::new());
    layer.rule(Rule::on(Op::Enter, Action::Duplicate));
    layer.rule(Rule::on(Op::Exit, Action::Duplicate));
    let mut guards = Vec::new();
    for depth in 1..=4 {
        let guard = enter(&client, &name, &me).await?;
        assert_eq!(guard.depth(), depth, "a frame was counted twice");
        guards.push(guard);
    }
    while let Some(guard) = guards.pop() {
        assert!(!is_free(&probe, &name).await?, "free with {} entries", guards.len() + 1);
        guard.release().await?;
    }
    assert!(is_free(&probe, &name).await?, "held after the last exit");
    Ok(())
}

async fn asking_again_is_the_same_entry(context: &mut Context) -> CaseResult {
    raw!(context, backend, driver);
    let (name, me, ttl) = (context.name("again"), OwnerId::new(), context.ttl(20_000));
    let (outer, inner) = (OwnerToken::random(), OwnerToken::random());
    let first = ask(driver, &me, &request(&name, outer, ttl)?).await?;
    assert_eq!((first.begun, first.depth), (Begun::Now, 1));
    assert_eq!(ask(driver, &me, &request(&name, inner, ttl)?).await?.depth, 2);
    for token in [inner, outer, inner] {
        let again = ask(driver, &me, &request(&name, token, ttl)?).await?;
        assert_eq!((again.fence, again.begun), (first.fence, Begun::Earlier));
    }
    assert_eq!(driver.exit(&entry(&name, me, inner)).await?, Exited::Inside { depth: 1 });
    assert_eq!(driver.exit(&entry(&name, me, outer)).await?, Exited::Released);
    assert!(is_free_raw(&**backend.locks(), &name).await?);
    Ok(())
}

async fn exit_of_no_entry_changes_nothing(context: &mut Context) -> CaseResult {
    raw!(context, backend, driver);
    let (name, me, you, ttl) = (context.name("no-entry"), OwnerId::new(), OwnerId::new(), context.ttl(20_000));
    let (outer, inner) = (OwnerToken::random(), OwnerToken::random());
    assert_eq!(driver.exit(&entry(&name, me, outer)).await?, Exited::NotHeld, "of a free lock");
    ask(driver, &me, &request(&name, outer, ttl)?).await?;
    ask(driver, &me, &request(&name, inner, ttl)?).await?;
    assert_eq!(driver.exit(&entry(&name, you, outer)).await?, Exited::NotHeld, "by another owner");
    assert_eq!(driver.exit(&entry(&name, me, OwnerToken::random())).await?, Exited::NotHeld, "of no entry");
    assert_eq!(driver.exit(&entry(&name, me, inner)).await?, Exited::Inside { depth: 1 });
    assert_eq!(driver.exit(&entry(&name, me, inner)).await?, Exited::NotHeld, "of an entry that is undone");
    assert!(!is_free_raw(&**backend.locks(), &name).await?, "one of these exits counted");
    assert_eq!(driver.exit(&entry(&name, me, outer)).await?, Exited::Released);
    assert_eq!(driver.exit(&entry(&name, me, outer)).await?, Exited::NotHeld);
    Ok(())
}

async fn renewal_by_a_stranger_changes_nothing(context: &mut Context) -> CaseResult {
    raw!(context, backend, driver);
    let (name, me, you, ttl) = (context.name("stranger"), OwnerId::new(), OwnerId::new(), context.ttl(500));
    let first = ask(driver, &me, &request(&name, OwnerToken::random(), ttl)?).await?;
    let long = ttl_of(ttl * 20)?;
    let other = tenure_core::FencingToken::new(first.fence.get() + 1).unwrap_or(first.fence);
    for (owner, fence) in [(you, first.fence), (me, other)] {
        let hold = ReentrantHold::new(name.clone(), owner, fence);
        assert_eq!(driver.renew(long, &[hold]).await.remove(0)?, Renewed::Lost);
    }
    let own = ReentrantHold::new(name.clone(), me, first.fence);
    assert!(
        matches!(driver.renew(ttl_of(ttl)?, &[own]).await.remove(0)?, Renewed::Extended { .. }),
        "the hold was taken away"
    );
    let free = async || is_free_raw(&**backend.locks(), &name).await;
    context.eventually(ttl + context.ms(1_500), "the lease ends when it would have", free).await?;
    Ok(())
}

async fn entry_never_shortens(context: &mut Context) -> CaseResult {
    let (client, other) = (context.client().await?, context.client().await?);
    let (name, me, short) = (context.name("shorter"), OwnerId::new(), context.ttl(300));
    let handle = reentrant(&client, &name, &me);
    let outer = must(handle.clone().fixed_ttl(short * 40).try_acquire().await?, &name)?;
    let inner = must(handle.fixed_ttl(short).try_acquire().await?, &name)?;
    context.pass(short * 3).await;
    assert!(outer.is_held() && inner.is_held(), "the shorter entry shortened the view");
    assert!(!is_free(&other, &name).await?, "the shorter entry shortened the lease");
    assert_eq!(inner.release().await?, 1);
    assert_eq!(outer.release().await?, 0);
    Ok(())
}

async fn entry_may_lengthen(context: &mut Context) -> CaseResult {
    let (client, other) = (context.client().await?, context.client().await?);
    let (name, me, short) = (context.name("longer"), OwnerId::new(), context.ttl(400));
    let handle = reentrant(&client, &name, &me);
    let outer = must(handle.clone().fixed_ttl(short).try_acquire().await?, &name)?;
    let inner = must(handle.fixed_ttl(short * 40).try_acquire().await?, &name)?;
    context.pass(short * 3).await;
    assert!(outer.is_held() && inner.is_held(), "the longer entry did not lengthen the view");
    assert!(!is_free(&other, &name).await?, "the longer entry did not lengthen the lease");
    inner.release().await?;
    assert_eq!(outer.release().await?, 0);
    Ok(())
}

async fn renewed_as_a_whole(context: &mut Context) -> CaseResult {
    let (client, other) = (context.client().await?, context.client().await?);
    let (name, me, ttl) = (context.name("renewed"), OwnerId::new(), context.ttl(600));
    let handle = reentrant(&client, &name, &me).ttl(ttl);
    let outer = must(handle.try_acquire().await?, &name)?;
    context.pass(ttl * 2).await;
    let inner = must(handle.try_acquire().await?, &name)?;
    assert_eq!((inner.depth(), inner.fence()), (2, outer.fence()));
    assert_eq!(outer.release().await?, 1);
    context.pass(ttl * 3).await;
    assert!(inner.is_held() && !is_free(&other, &name).await?, "the hold was not renewed for its later entry");
    assert_eq!(inner.release().await?, 0);
    assert!(is_free(&other, &name).await?);
    Ok(())
}

async fn lost_as_a_whole(context: &mut Context) -> CaseResult {
    let (client, layer) = context.layered().await?;
    let (probe, name, me, ttl) = (context.client().await?, context.name("lost"), OwnerId::new(), context.ttl(600));
    let handle = reentrant(&client, &name, &me).ttl(ttl);
    layer.rule(Rule::on(Op::RenewEntry, Action::FailBeforeSend));
    let (outer, inner) = (must(handle.try_acquire().await?, &name)?, must(handle.try_acquire().await?, &name)?);
    let both = async { tokio::join!(outer.lost(), inner.lost()) };
    let reasons = context.within(ttl, "both entries are notified", both).await?;
    assert_eq!(reasons.0, reasons.1);
    assert!(outer.check().is_err() && inner.check().is_err());
    layer.heal();
    let next = handle.acquire_within(ttl + context.soon()).await?;
    assert!(next.fence() > outer.fence(), "the count continued after the loss");
    assert_eq!(next.depth(), 1, "the count continued after the loss");
    assert!(!outer.is_held() && !inner.is_held(), "a lost entry came back");
    drop((outer, inner));
    assert_eq!(next.release().await?, 0);
    clean(context, &probe, &name, &[&client]).await
}

async fn stale_entry_cannot_exit_a_new_hold(context: &mut Context) -> CaseResult {
    raw!(context, backend, driver);
    let (name, me, ttl) = (context.name("stale"), OwnerId::new(), context.ttl(300));
    let (stale, fresh) = (OwnerToken::random(), OwnerToken::random());
    let before = ask(driver, &me, &request(&name, stale, ttl)?).await?;
    context.pass(ttl + context.ms(200)).await;
    let after = ask(driver, &me, &request(&name, fresh, context.ttl(20_000))?).await?;
    assert!(after.fence > before.fence && after.depth == 1 && after.begun == Begun::Now, "{before:?} then {after:?}");
    assert_eq!(driver.exit(&entry(&name, me, stale)).await?, Exited::NotHeld);
    assert!(!is_free_raw(&**backend.locks(), &name).await?, "the stale entry's exit freed the new hold");
    assert_eq!(driver.exit(&entry(&name, me, fresh)).await?, Exited::Released);
    Ok(())
}

async fn abandoned_entry_is_refused(context: &mut Context) -> CaseResult {
    raw!(context, backend, driver);
    let (name, me, ttl) = (context.name("abandoned"), OwnerId::new(), context.ttl(20_000));
    let (outer, inner) = (OwnerToken::random(), OwnerToken::random());
    ask(driver, &me, &request(&name, outer, ttl)?).await?;
    ask(driver, &me, &request(&name, inner, ttl)?).await?;
    for _ in 0..2 {
        driver.abandon(&entry(&name, me, inner)).await?;
        must_fail(driver.enter(&me, &request(&name, inner, ttl)?).await, ErrorKind::NotHeld)?;
    }
    assert!(!is_free_raw(&**backend.locks(), &name).await?, "abandoning one entry freed the lock");
    assert_eq!(driver.exit(&entry(&name, me, inner)).await?, Exited::NotHeld);
    driver.abandon(&entry(&name, me, outer)).await?;
    assert!(is_free_raw(&**backend.locks(), &name).await?, "abandoning the last entry did not free the lock");
    must_fail(driver.enter(&me, &request(&name, outer, ttl)?).await, ErrorKind::NotHeld)?;
    Ok(())
}

async fn lost_reply_is_undone(context: &mut Context) -> CaseResult {
    let (client, layer) = context.layered().await?;
    let (probe, name, me) = (context.client().await?, context.name("lost-reply"), OwnerId::new());
    let outer = enter(&client, &name, &me).await?;
    for _ in 0..3 {
        layer.rule(Rule::on(Op::Enter, Action::LoseReply).once());
        must_fail(reentrant(&client, &name, &me).try_acquire().await, ErrorKind::Indeterminate)?;
    }
    context.eventually(context.soon(), "the entries are undone", async || client.stats().cleanups == 0).await?;
    let inner = enter(&client, &name, &me).await?;
    assert_eq!(inner.depth(), 2, "an entry without a guard was counted");
    assert_eq!(inner.release().await?, 1);
    assert!(outer.is_held());
    assert_eq!(outer.release().await?, 0);
    clean(context, &probe, &name, &[&client]).await
}

async fn late_entry_takes_nothing(context: &mut Context) -> CaseResult {
    let (client, layer) = context.layered().await?;
    let (probe, name, me) = (context.client().await?, context.name("late"), OwnerId::new());
    layer.rule(Rule::on(Op::Enter, Action::Hang));
    must_fail(reentrant(&client, &name, &me).try_acquire().await, ErrorKind::Indeterminate)?;
    context.eventually(context.soon(), "the clean-up is acknowledged", async || client.stats().cleanups == 0).await?;
    layer.heal();
    context.pass(context.ms(100)).await;
    free_within(context, &probe, &name, context.ms(200)).await?;
    clean(context, &probe, &name, &[&client]).await
}

async fn enter_at_every_poll(context: &mut Context) -> CaseResult {
    let soon = context.soon();
    at_every_poll(context, Op::Enter, |client, probe, name, polls| {
        async move {
            let me = OwnerId::new();
            let outer = enter(client, name, &me).await?;
            let inner = reentrant(client, name, &me);
            let done = poll::at_most(polls, inner.try_acquire()).await.transpose()?.is_some();
            let start = tokio::time::Instant::now();
            while client.stats().cleanups > 0 {
                assert!(start.elapsed() < soon, "the entry is not undone");
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
            assert!(outer.is_held() && !is_free(probe, name).await?, "the dropped entry took the outer one along");
            assert_eq!(outer.release().await?, 0);
            Ok(done)
        }
        .boxed_local()
    })
    .await
}

async fn exit_at_every_poll(context: &mut Context) -> CaseResult {
    at_every_poll(context, Op::Exit, |client, _, name, polls| {
        async move {
            let me = OwnerId::new();
            let (outer, inner) = (enter(client, name, &me).await?, enter(client, name, &me).await?);
            let first = poll::at_most(polls, inner.release()).await.transpose()?.is_some();
            let second = poll::at_most(polls, outer.release()).await.transpose()?.is_some();
            Ok(first && second)
        }
        .boxed_local()
    })
    .await
}
