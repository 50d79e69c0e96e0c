//! Re-entry: the owners that may enter, the depth, and the instant at which the lock is free again.

use tenure_core::driver::ForceReleased;
use tenure_core::{Client, ErrorKind, LockName, OwnerId, Reentrant, ReentrantGuard};

use super::support::{clean, free_within, is_free, keep, lock, must, must_fail, take};
use crate::case::{Case, CaseResult, Context, Failure, Need, case};

pub(super) const CASES: &[Case] = &[
    case!(
        "reentrant/same-owner-enters-again",
        "The owner that holds the lock enters again without waiting, and each guard returns its depth.",
        ["P31"],
        [Need::Reentrant],
        same_owner_enters_again
    ),
    case!(
        "reentrant/another-owner-is-busy",
        "Another owner is refused while the lock is held, on the same client and on another.",
        ["P31"],
        [Need::Reentrant],
        another_owner_is_busy
    ),
    case!(
        "reentrant/plain-and-re-entrant-exclude-each-other",
        "A name held as a plain lock is busy for every owner, and the other way round.",
        ["P31"],
        [Need::Reentrant],
        plain_and_re_entrant_exclude_each_other
    ),
    case!(
        "reentrant/owner-is-a-value-not-a-client",
        "The same owner id on another client is the same owner: it enters, and either may exit last.",
        ["P31"],
        [Need::Reentrant],
        owner_is_a_value_not_a_client
    ),
    case!(
        "reentrant/n-entries-need-n-exits",
        "The lock is held until the last of its entries is undone, and free at once after it.",
        ["P32"],
        [Need::Reentrant],
        n_entries_need_n_exits
    ),
    case!(
        "reentrant/exits-in-any-order",
        "Entries may be undone in any order: the outer one first leaves the lock held.",
        ["P32"],
        [Need::Reentrant],
        exits_in_any_order
    ),
    case!(
        "reentrant/dropped-entries-free-it",
        "Dropped guards undo their entries, and the last one frees the lock.",
        ["P13", "P32"],
        [Need::Reentrant],
        dropped_entries_free_it
    ),
    case!(
        "reentrant/entries-share-the-fence",
        "Every entry of one hold has the fence of the first; the next hold has a greater one.",
        ["P35", "P36"],
        [Need::Reentrant],
        entries_share_the_fence
    ),
    case!(
        "reentrant/fences-grow-across-both-kinds",
        "Grants of one name have growing fences, whether it is taken as a plain or a re-entrant lock.",
        ["P19", "P35"],
        [Need::Reentrant],
        fences_grow_across_both_kinds
    ),
    case!(
        "reentrant/depth-is-limited",
        "One entry more than the greatest depth is refused as a limit, and changes nothing.",
        ["P37"],
        [Need::Reentrant, Need::ReachableDepth],
        depth_is_limited
    ),
    case!(
        "reentrant/waits-for-another-owner",
        "Another owner waits until the last entry is undone, and is granted then, not sooner.",
        ["P31", "P18"],
        [Need::Reentrant],
        waits_for_another_owner
    ),
    case!(
        "reentrant/passes-the-queue",
        "An owner that enters again does not queue: it does not wait behind its own lock.",
        ["P31"],
        [Need::Reentrant],
        passes_the_queue
    ),
    case!(
        "reentrant/inspection-shows-the-depth",
        "An operator sees the depth, the fence and the label of a re-entrant hold.",
        ["P32"],
        [Need::Reentrant, Need::Introspection],
        inspection_tells_the_depth
    ),
    case!(
        "reentrant/inspection-shows-the-owner",
        "An inspection shows the owner of a re-entrant lock, and none for a plain one; `held` answers for that owner alone.",
        ["P32"],
        [Need::Reentrant, Need::Introspection],
        inspection_tells_the_owner
    ),
    case!(
        "reentrant/force-ends-every-entry",
        "A forced release of an owner's hold, by its fence and no other, ends all entries together; none can be undone afterwards.",
        ["P36"],
        [Need::Reentrant, Need::Revocation],
        force_ends_every_entry
    ),
];

pub(super) fn reentrant(client: &Client, name: &LockName, owner: &OwnerId) -> Reentrant {
    client.reentrant(name.as_bytes(), owner)
}

/// Enters a lock that must be free or the owner's.
pub(super) async fn enter(client: &Client, name: &LockName, owner: &OwnerId) -> CaseResult<ReentrantGuard> {
    must(reentrant(client, name, owner).try_acquire().await?, name)
}

async fn same_owner_enters_again(context: &mut Context) -> CaseResult {
    let (client, name, me) = (context.client().await?, context.name("again"), OwnerId::new());
    let mut guards = Vec::new();
    for depth in 1..=5 {
        let guard = match depth % 2 {
            0 => reentrant(&client, &name, &me).acquire_within(context.soon()).await?,
            _ => enter(&client, &name, &me).await?,
        };
        assert_eq!((guard.depth(), guard.owner(), guard.name()), (depth, &me, &name));
        guards.push(guard);
    }
    assert!(guards.iter().all(ReentrantGuard::is_held));
    while let Some(guard) = guards.pop() {
        guard.release().await?;
    }
    clean(context, &client, &name, &[&client]).await
}

async fn another_owner_is_busy(context: &mut Context) -> CaseResult {
    let (client, other) = (context.client().await?, context.client().await?);
    let (name, me, you) = (context.name("another"), OwnerId::new(), OwnerId::new());
    let guard = enter(&client, &name, &me).await?;
    for client in [&client, &other] {
        let refused = reentrant(client, &name, &you).try_acquire().await?;
        assert!(refused.is_none(), "two owners are inside");
    }
    assert_eq!(guard.release().await?, 0);
    let yours = enter(&other, &name, &you).await?;
    assert!(reentrant(&client, &name, &me).try_acquire().await?.is_none());
    assert_eq!(yours.release().await?, 0);
    Ok(())
}

async fn plain_and_re_entrant_exclude_each_other(context: &mut Context) -> CaseResult {
    let (client, name, me) = (context.client().await?, context.name("both"), OwnerId::new());
    let plain = keep(&client, &name, context.ttl(20_000)).await?;
    assert!(reentrant(&client, &name, &me).try_acquire().await?.is_none(), "entered a name that is held");
    plain.release().await?;
    let entry = enter(&client, &name, &me).await?;
    assert!(!is_free(&client, &name).await?, "a plain lock was granted on a name that is entered");
    assert_eq!(entry.release().await?, 0);
    assert!(is_free(&client, &name).await?);
    Ok(())
}

async fn owner_is_a_value_not_a_client(context: &mut Context) -> CaseResult {
    let (client, other) = (context.client().await?, context.client().await?);
    let (name, me) = (context.name("value"), OwnerId::new());
    let copy: OwnerId = me.to_string().parse()?;
    let here = enter(&client, &name, &me).await?;
    let there = enter(&other, &name, &copy).await?;
    assert_eq!((there.depth(), there.fence()), (2, here.fence()));
    assert_eq!(here.release().await?, 1);
    assert!(!is_free(&client, &name).await? && there.is_held());
    assert_eq!(there.release().await?, 0);
    clean(context, &client, &name, &[&client, &other]).await
}

async fn n_entries_need_n_exits(context: &mut Context) -> CaseResult {
    let (client, other) = (context.client().await?, context.client().await?);
    let (name, me) = (context.name("count"), OwnerId::new());
    for entries in [1_u32, 2, 7] {
        let mut guards = Vec::new();
        for _ in 0..entries {
            guards.push(enter(&client, &name, &me).await?);
        }
        for left in (0..entries).rev() {
            assert!(!is_free(&other, &name).await?, "free with {} of {entries} entries", left + 1);
            let guard = guards.pop().ok_or_else(|| Failure::new("fewer guards than entries"))?;
            assert_eq!(guard.release().await?, left);
        }
        assert!(is_free(&other, &name).await?, "held after the last of {entries} exits");
    }
    Ok(())
}

async fn exits_in_any_order(context: &mut Context) -> CaseResult {
    let (client, other) = (context.client().await?, context.client().await?);
    let (name, me) = (context.name("order"), OwnerId::new());
    let (outer, middle, inner) =
        (enter(&client, &name, &me).await?, enter(&client, &name, &me).await?, enter(&client, &name, &me).await?);
    assert_eq!(outer.release().await?, 2);
    assert_eq!(inner.release().await?, 1);
    assert!(middle.is_held() && !is_free(&other, &name).await?);
    let again = enter(&client, &name, &me).await?;
    assert_eq!((again.depth(), again.fence()), (2, middle.fence()));
    assert_eq!(middle.release().await?, 1);
    assert!(!is_free(&other, &name).await?);
    assert_eq!(again.release().await?, 0);
    clean(context, &other, &name, &[&client]).await
}

async fn dropped_entries_free_it(context: &mut Context) -> CaseResult {
    let (client, other) = (context.client().await?, context.client().await?);
    let (name, me) = (context.name("dropped"), OwnerId::new());
    let (outer, inner) = (enter(&client, &name, &me).await?, enter(&client, &name, &me).await?);
    drop(inner);
    context.eventually(context.soon(), "the drop is undone", async || client.stats().cleanups == 0).await?;
    assert!(outer.is_held() && !is_free(&other, &name).await?, "dropping one entry freed the lock");
    drop(outer);
    free_within(context, &other, &name, context.soon()).await?;
    clean(context, &other, &name, &[&client]).await
}

async fn entries_share_the_fence(context: &mut Context) -> CaseResult {
    let (client, name, me) = (context.client().await?, context.name("fence"), OwnerId::new());
    let mut last = None;
    for _ in 0..4 {
        let (outer, inner) = (enter(&client, &name, &me).await?, enter(&client, &name, &me).await?);
        assert_eq!(outer.fence(), inner.fence(), "two entries of one hold");
        assert_ne!(outer.token(), inner.token(), "entries share a token");
        assert!(last.is_none_or(|last| outer.fence() > last), "a new hold of the same owner");
        last = Some(outer.fence());
        inner.release().await?;
        assert_eq!(outer.release().await?, 0);
    }
    Ok(())
}

async fn fences_grow_across_both_kinds(context: &mut Context) -> CaseResult {
    let (client, name, me) = (context.client().await?, context.name("kinds"), OwnerId::new());
    let mut last = None;
    for turn in 0..8 {
        let fence = if turn % 2 == 0 {
            let guard = enter(&client, &name, &me).await?;
            let fence = guard.fence();
            guard.release().await?;
            fence
        } else {
            let guard = keep(&client, &name, context.ttl(5_000)).await?;
            let fence = guard.fence();
            guard.release().await?;
            fence
        };
        assert!(last.is_none_or(|last| fence > last), "fence {fence} after {last:?}");
        last = Some(fence);
    }
    Ok(())
}

async fn depth_is_limited(context: &mut Context) -> CaseResult {
    let (client, name, me) = (context.client().await?, context.name("deep"), OwnerId::new());
    let deepest = context.declared().reentrant.map(|declared| declared.max_depth).unwrap_or_default();
    let mut guards = Vec::new();
    for depth in 1..=deepest {
        let guard = enter(&client, &name, &me).await?;
        assert_eq!(guard.depth(), depth);
        guards.push(guard);
    }
    must_fail(reentrant(&client, &name, &me).try_acquire().await, ErrorKind::LimitReached)?;
    let guard = guards.pop().ok_or_else(|| Failure::new("the greatest depth is 0"))?;
    assert_eq!(guard.release().await?, deepest - 1, "the refused entry was counted");
    guards.push(enter(&client, &name, &me).await?);
    for left in (0..deepest).rev() {
        let guard = guards.pop().ok_or_else(|| Failure::new("fewer guards than entries"))?;
        assert_eq!(guard.release().await?, left);
    }
    clean(context, &client, &name, &[&client]).await
}

async fn waits_for_another_owner(context: &mut Context) -> CaseResult {
    let (client, other) = (context.client().await?, context.client().await?);
    let (name, me, you) = (context.name("waits"), OwnerId::new(), OwnerId::new());
    let (outer, inner) = (enter(&client, &name, &me).await?, enter(&client, &name, &me).await?);
    let waiter = reentrant(&other, &name, &you);
    let waiting = tokio::spawn(async move { waiter.acquire().await });
    context.pass(context.ms(200)).await;
    assert_eq!(inner.release().await?, 1);
    context.pass(context.ms(200)).await;
    assert!(!waiting.is_finished(), "granted while the first owner is inside");
    assert_eq!(outer.release().await?, 0);
    let guard = context.within(context.soon(), "granted after the last exit", waiting).await???;
    assert_eq!((guard.depth(), guard.owner()), (1, &you));
    assert_eq!(guard.release().await?, 0);
    clean(context, &client, &name, &[&client, &other]).await
}

async fn passes_the_queue(context: &mut Context) -> CaseResult {
    let (client, other) = (context.client().await?, context.client().await?);
    let (name, me) = (context.name("passes"), OwnerId::new());
    let outer = enter(&client, &name, &me).await?;
    let waiter = lock(&other, &name);
    let waiting = tokio::spawn(async move { waiter.acquire().await });
    context.eventually(context.soon(), "a waiter waits", async || other.stats().waiters == 1).await?;
    context.pass(context.ms(200)).await;
    let inner = reentrant(&client, &name, &me).acquire_within(context.ms(1_000)).await?;
    assert_eq!(inner.depth(), 2);
    assert_eq!(outer.release().await?, 1);
    assert_eq!(inner.release().await?, 0);
    let guard = context.within(context.soon(), "the waiter is granted after the last exit", waiting).await???;
    guard.release().await?;
    clean(context, &client, &name, &[&client, &other]).await
}

async fn inspection_tells_the_depth(context: &mut Context) -> CaseResult {
    let (client, name, me) = (context.client().await?, context.name("seen"), OwnerId::new());
    let handle = reentrant(&client, &name, &me).ttl(context.ttl(20_000)).label("ledger");
    let mut guards = Vec::new();
    for depth in 1..=4 {
        guards.push(must(handle.try_acquire().await?, &name)?);
        let seen = lock(&client, &name).inspect().await?.holder;
        let holder = seen.ok_or_else(|| Failure::new("an entered lock has no holder"))?;
        assert_eq!((holder.depth, holder.fence), (depth, Some(guards[0].fence())));
        assert_eq!(holder.label.as_ref().map(|label| label.as_str()), Some("ledger"));
    }
    while let Some(guard) = guards.pop() {
        guard.release().await?;
        let seen = lock(&client, &name).inspect().await?.holder;
        assert_eq!(seen.map_or(0, |holder| holder.depth) as usize, guards.len());
    }
    Ok(())
}

async fn inspection_tells_the_owner(context: &mut Context) -> CaseResult {
    let (client, operator) = (context.client().await?, context.client().await?);
    let (name, me, you) = (context.name("whose"), OwnerId::new(), OwnerId::new());
    let (mine, yours) = (reentrant(&operator, &name, &me), reentrant(&operator, &name, &you));
    assert_eq!((mine.held().await?, yours.held().await?), (None, None), "no owner is inside");
    let outer = enter(&client, &name, &me).await?;
    let inner = enter(&client, &name, &me).await?;
    let seen = lock(&operator, &name).inspect().await?.holder;
    assert_eq!(seen.and_then(|holder| holder.owner), Some(me));
    let held = mine.held().await?.ok_or_else(|| Failure::new("the owner is inside, and `held` denies it"))?;
    assert_eq!((held.depth, held.fence), (2, Some(outer.fence())));
    assert_eq!(yours.held().await?, None, "another owner's hold");
    inner.release().await?;
    outer.release().await?;
    assert_eq!(mine.held().await?, None, "it left");
    let plain = take(&client, &name, context.ttl(20_000)).await?;
    let seen = lock(&operator, &name).inspect().await?.holder;
    assert_eq!(seen.map(|holder| holder.owner), Some(None), "a plain lock has no owner");
    assert_eq!(mine.held().await?, None, "a plain holder");
    plain.release().await?;
    clean(context, &client, &name, &[&client, &operator]).await
}

async fn force_ends_every_entry(context: &mut Context) -> CaseResult {
    let (client, operator) = (context.client().await?, context.client().await?);
    let (name, me, ttl) = (context.name("forced"), OwnerId::new(), context.ttl(1_200));
    let handle = reentrant(&client, &name, &me).ttl(ttl);
    let before = must(handle.try_acquire().await?, &name)?;
    let gone = before.fence();
    before.release().await?;
    let (outer, inner) = (must(handle.try_acquire().await?, &name)?, must(handle.try_acquire().await?, &name)?);
    assert_eq!(lock(&operator, &name).force_release_if(gone).await?, ForceReleased::Changed);
    assert!(!is_free(&operator, &name).await?, "an earlier hold's fence freed the owner's lock");
    assert_eq!(lock(&operator, &name).force_release_if(outer.fence()).await?, ForceReleased::Released);
    let next = keep(&operator, &name, context.ttl(20_000)).await?;
    context.within(ttl, "the outer guard is notified", outer.lost()).await?;
    context.within(ttl, "the inner guard is notified", inner.lost()).await?;
    must_fail(inner.release().await, ErrorKind::Lost)?;
    must_fail(outer.release().await, ErrorKind::Lost)?;
    assert!(next.is_held() && !is_free(&client, &name).await?, "an old entry's exit freed the next holder's lock");
    next.release().await?;
    clean(context, &operator, &name, &[&client, &operator]).await
}
