//! The list of held locks.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use tenure_core::driver::{Backend, Census, CensusOrder, HeldLock, Introspection, WaitersCounted};
use tenure_core::{LockName, OwnerId, OwnerToken};

use super::support::{busy, free_within, hold, joining, keep, lock, must, take_raw};
use crate::case::{Case, CaseResult, Context, Failure, Need, case};

pub(super) const CASES: &[Case] = &[
    case!(
        "census/lists-what-is-held",
        "A list has each lock that is held under a prefix and no other, with the holder's label, its fence, depth 1 and what remains of \
         its ttl.",
        ["P62", "R11"],
        [Need::Census],
        lists_what_is_held
    ),
    case!(
        "census/leaves-out-what-is-free",
        "A lock that was released or has expired is not on the list.",
        ["P62"],
        [Need::Census],
        leaves_out_what_is_free
    ),
    case!(
        "census/waited-for-is-not-held",
        "A lock that is free is not on the list while its first waiter has not asked yet.",
        ["P62"],
        [Need::Census, Need::Fifo],
        waited_for_is_not_held
    ),
    case!(
        "census/prefix-is-literal",
        "A prefix is taken byte by byte: no byte in it matches other bytes, whatever patterns the backend knows.",
        ["P27", "P62"],
        [Need::Census],
        prefix_is_literal
    ),
    case!(
        "census/pages-tell-each-name",
        "The pages of a list of 1,000 locks have each of them, none too many at once, and where an order is declared in that order and once.",
        ["P62"],
        [Need::Census],
        pages_tell_each_name
    ),
    case!(
        "census/held-throughout-is-listed",
        "A lock that is held from the first page to the last is on the list, whatever is released and taken between two pages.",
        ["P62"],
        [Need::Census],
        held_throughout_is_listed
    ),
    case!(
        "census/re-entrant-hold",
        "A re-entrant hold is on the list once, with its owner and the number of its entries.",
        ["P31", "P32", "P62"],
        [Need::Census, Need::Reentrant],
        re_entrant_hold
    ),
    case!(
        "census/counts-the-waiters",
        "The list gives the number of waiters of each lock.",
        ["P24", "P62"],
        [Need::CensusOfWaiters, Need::Fifo],
        counts_the_waiters
    ),
    case!(
        "census/changes-nothing",
        "Listing a lock does not lengthen its lease.",
        ["P29"],
        [Need::Census],
        changes_nothing
    ),
];

/// More pages than any list of the suite has, on a server that other cases use as well.
const MOST_PAGES: usize = 100_000;

fn census(backend: &Backend) -> CaseResult<&dyn Census> {
    backend.census().map(|census| &**census).ok_or_else(|| Failure::new("the driver has no list of held locks"))
}

/// The pages of a list.
async fn pages(census: &dyn Census, prefix: &[u8], max: usize) -> CaseResult<Vec<Vec<HeldLock>>> {
    let (mut pages, mut from) = (Vec::new(), None);
    while pages.len() < MOST_PAGES {
        let page = census.held(prefix, from.as_ref(), max).await?;
        pages.push(page.locks);
        match page.next {
            None => return Ok(pages),
            next => from = next,
        }
    }
    Err(Failure::new("the list does not end"))
}

/// The held locks under a prefix, by name.
async fn listed(backend: &Backend, prefix: &[u8]) -> CaseResult<BTreeMap<Vec<u8>, HeldLock>> {
    let census = census(backend)?;
    let pages = pages(census, prefix, census.capabilities().max_page).await?;
    Ok(pages.into_iter().flatten().map(|lock| (lock.name.as_bytes().to_vec(), lock)).collect())
}

/// The names that are held under a prefix.
async fn names(backend: &Backend, prefix: &[u8]) -> CaseResult<Vec<Vec<u8>>> {
    Ok(listed(backend, prefix).await?.into_keys().collect())
}

fn bytes(name: &LockName) -> Vec<u8> {
    name.as_bytes().to_vec()
}

async fn lists_what_is_held(context: &mut Context) -> CaseResult {
    let (client, other, backend) = (context.client().await?, context.client().await?, context.backend().await?);
    let (prefix, ttl) = (context.name("held/"), context.ttl(20_000));
    let _beside = keep(&client, &context.name("helm/a"), ttl).await?;
    let labels = [("a", Some("worker 7 {\u{1f512}} %s\n")), ("b", Some("")), ("c", None)];
    let mut guards = BTreeMap::new();
    for (suffix, label) in labels {
        let name = context.name(format!("held/{suffix}"));
        let handle = lock(&client, &name).fixed_ttl(ttl);
        let handle = label.into_iter().fold(handle, tenure_core::Lock::label);
        guards.insert(bytes(&name), (label, must(handle.try_acquire().await?, &name)?));
    }
    context.pass(context.ms(100)).await;
    let (mut read, mut seen) = (other.held_locks(prefix.as_bytes()), BTreeMap::new());
    while let Some(lock) = read.next().await? {
        seen.insert(bytes(&lock.name), lock);
    }
    assert_eq!(seen.keys().collect::<Vec<_>>(), guards.keys().collect::<Vec<_>>());
    assert_eq!(seen.keys().collect::<Vec<_>>(), names(&backend, prefix.as_bytes()).await?.iter().collect::<Vec<_>>());
    for ((label, guard), HeldLock { holder, waiters, .. }) in guards.values().zip(seen.values()) {
        assert_eq!(holder.label.as_ref().map_or("", |text| text.as_str()), label.unwrap_or_default());
        assert_eq!((holder.fence, holder.depth, holder.owner), (Some(guard.fence()), 1, None));
        let left = holder.remaining.unwrap_or_default();
        assert!(left < ttl && left > ttl / 2, "{left:?} remain of {ttl:?}");
        let plausible = |held| held >= Duration::from_millis(50) && held < ttl / 2;
        assert!(holder.held_for.is_none_or(plausible), "held for {:?}", holder.held_for);
        if context.declared().locks.introspection == Introspection::Full {
            assert!(holder.held_for.is_some(), "the time of the grant is given where that is declared");
        }
        let counted = context.declared().census.is_some_and(|census| census.waiters == WaitersCounted::Yes);
        assert_eq!(*waiters, counted.then_some(0));
    }
    Ok(())
}

async fn leaves_out_what_is_free(context: &mut Context) -> CaseResult {
    let (client, backend) = (context.client().await?, context.backend().await?);
    let (prefix, ttl) = (context.name("free/"), context.ttl(300));
    let kept = context.name("free/kept");
    let guard = keep(&client, &kept, context.ttl(20_000)).await?;
    keep(&client, &context.name("free/released"), context.ttl(5_000)).await?.release().await?;
    assert_eq!(names(&backend, prefix.as_bytes()).await?, [bytes(&kept)], "one was released");
    take_raw(&**backend.locks(), &context.name("free/expired"), ttl).await?;
    let gone = async || names(&backend, prefix.as_bytes()).await.map(|held| held == [bytes(&kept)]);
    context.eventually(ttl + context.ms(1_500), "an expired lease is not listed", gone).await?;
    guard.release().await?;
    assert_eq!(names(&backend, prefix.as_bytes()).await?, Vec::<Vec<u8>>::new(), "nothing is held");
    Ok(())
}

async fn waited_for_is_not_held(context: &mut Context) -> CaseResult {
    let (backend, name, ttl) = (context.backend().await?, context.name("called"), context.ttl(20_000));
    let (locks, waiter) = (&**backend.locks(), OwnerToken::random());
    let _listens = locks.watch(&name, &waiter).await?;
    let (token, _) = take_raw(locks, &name, ttl).await?;
    busy(locks.acquire(&joining(&name, waiter, ttl, Duration::from_secs(60))?).await?)?;
    assert_eq!(names(&backend, name.as_bytes()).await?, [bytes(&name)]);
    locks.release(&hold(&name, token)).await?;
    assert_eq!(names(&backend, name.as_bytes()).await?, Vec::<Vec<u8>>::new(), "no client holds it");
    locks.abandon(&hold(&name, waiter)).await?;
    Ok(())
}

async fn prefix_is_literal(context: &mut Context) -> CaseResult {
    let (backend, ttl) = (context.backend().await?, context.ttl(60_000));
    let longest = vec![b'%'; LockName::MAX_LEN - context.name("p/").as_bytes().len()];
    let ends: [&[u8]; 30] = [
        b"a",
        b"ab",
        b"A",
        b"Ab",
        b"%",
        b"%a",
        b"%25",
        b"*",
        b"*a",
        b"a*",
        b"?",
        b"?a",
        b"[a]",
        b"[a]b",
        b"]",
        b"^a",
        b"\\",
        b"\\a",
        b"\\*",
        b"_",
        b"_a",
        b"{",
        b"{a}b",
        b"\0",
        b"\0a",
        b"a\0",
        b"\n ",
        b"\xff",
        b"\xff\xff",
        &longest,
    ];
    let named = |end: &[u8]| context.name([b"p/", end].concat());
    for end in ends {
        take_raw(&**backend.locks(), &named(end), ttl).await?;
    }
    for prefix in ends.into_iter().chain([&b""[..], b"\xc3", b"b"]) {
        let mut expected: Vec<_> =
            ends.iter().filter(|end| end.starts_with(prefix)).map(|end| bytes(&named(end))).collect();
        expected.sort();
        let shown = prefix.escape_ascii();
        assert_eq!(names(&backend, named(prefix).as_bytes()).await?, expected, "under \"{shown}\"");
    }
    let all = names(&backend, b"").await?;
    assert!(ends.iter().all(|end| all.contains(&bytes(&named(end)))), "the empty prefix is that of all locks");
    Ok(())
}

async fn pages_tell_each_name(context: &mut Context) -> CaseResult {
    let (backend, ttl) = (context.backend().await?, context.ttl(60_000));
    let (census, locks, prefix) = (census(&backend)?, &**backend.locks(), context.name("many/"));
    let held: Vec<LockName> = (0..1_000).map(|number| context.name(format!("many/{number:04}"))).collect();
    let mut tokens: Vec<(LockName, OwnerToken)> = stream::iter(held.clone())
        .map(|name| async move { take_raw(locks, &name, ttl).await.map(|(token, _)| (name, token)) })
        .buffer_unordered(32)
        .try_collect()
        .await?;
    let max = 64.min(census.capabilities().max_page);
    let pages = pages(census, prefix.as_bytes(), max).await?;
    let mut reported: Vec<LockName> = pages.iter().flatten().map(|lock| lock.name.clone()).collect();
    match census.capabilities().order {
        CensusOrder::Sorted => assert!(pages.iter().all(|page| page.len() <= max), "a page of more than {max}"),
        _ => {
            assert!(pages.iter().all(|page| page.len() < 500), "a page of half of all");
            reported.sort_by(|one, other| one.as_bytes().cmp(other.as_bytes()));
            reported.dedup();
        }
    }
    assert_eq!(reported, held);
    while !tokens.is_empty() {
        let some = tokens.split_off(tokens.len().saturating_sub(32));
        let freed = some.into_iter().map(|(name, token)| async move { locks.release(&hold(&name, token)).await });
        futures_util::future::try_join_all(freed).await?;
    }
    Ok(())
}

async fn held_throughout_is_listed(context: &mut Context) -> CaseResult {
    let (backend, ttl) = (context.backend().await?, context.ttl(60_000));
    let (census, locks, prefix) = (census(&backend)?, &**backend.locks(), context.name("through/"));
    let (mut stay, mut go) = (Vec::new(), Vec::new());
    for number in 0..60 {
        let name = context.name(format!("through/{number:02}"));
        let (token, _) = take_raw(locks, &name, ttl).await?;
        if number % 2 == 1 { stay.push(name) } else { go.push(hold(&name, token)) }
    }
    let (mut reported, mut from, mut steps) = (Vec::new(), None, 0..MOST_PAGES);
    loop {
        let step = steps.next().ok_or_else(|| Failure::new("the list does not end"))?;
        let page = census.held(prefix.as_bytes(), from.as_ref(), 7).await?;
        reported.extend(page.locks.into_iter().map(|lock| lock.name));
        from = page.next;
        if from.is_none() {
            break;
        }
        // Those in front are released first, so that a driver that counts by position fails.
        if let Some(gone) = (!go.is_empty()).then(|| go.remove(0)) {
            locks.release(&gone).await?;
            take_raw(locks, &context.name(format!("through/new/{step}")), ttl).await?;
        }
    }
    let missing: Vec<_> = stay.iter().filter(|name| !reported.contains(name)).collect();
    assert!(missing.is_empty(), "held all the time and not listed: {missing:?}");
    Ok(())
}

async fn re_entrant_hold(context: &mut Context) -> CaseResult {
    let (client, backend) = (context.client().await?, context.backend().await?);
    let (prefix, name, owner) = (context.name("mine/"), context.name("mine/entered"), OwnerId::new());
    let handle = client.reentrant(name.as_bytes(), &owner).ttl(context.ttl(20_000)).label("two entries");
    let outer = handle.acquire_within(context.soon()).await?;
    let inner = handle.acquire_within(context.soon()).await?;
    let seen = listed(&backend, prefix.as_bytes()).await?;
    assert_eq!(seen.keys().collect::<Vec<_>>(), [&bytes(&name)]);
    let holder = seen.into_values().next().map(|lock| lock.holder).unwrap_or_default();
    assert_eq!((holder.depth, holder.owner, holder.fence), (2, Some(owner), Some(outer.fence())));
    assert_eq!(holder.label.as_ref().map(|label| label.as_str()), Some("two entries"));
    inner.release().await?;
    outer.release().await?;
    assert_eq!(names(&backend, prefix.as_bytes()).await?, Vec::<Vec<u8>>::new());
    Ok(())
}

async fn counts_the_waiters(context: &mut Context) -> CaseResult {
    let (backend, name, ttl) = (context.backend().await?, context.name("line"), context.ttl(20_000));
    let locks = &**backend.locks();
    let count = async || -> CaseResult<Option<u32>> {
        let seen = listed(&backend, name.as_bytes()).await?;
        seen.into_values().next().map(|lock| lock.waiters).ok_or_else(|| Failure::new("a held lock is not listed"))
    };
    take_raw(locks, &name, ttl).await?;
    let tokens = [OwnerToken::random(), OwnerToken::random(), OwnerToken::random()];
    for (before, waiter) in (0..).zip(tokens) {
        assert_eq!(count().await?, Some(before));
        busy(locks.acquire(&joining(&name, waiter, ttl, Duration::from_secs(60))?).await?)?;
    }
    assert_eq!(count().await?, Some(3));
    for (gone, waiter) in (1..).zip(tokens) {
        locks.abandon(&hold(&name, waiter)).await?;
        assert_eq!(count().await?, Some(3 - gone));
    }
    Ok(())
}

async fn changes_nothing(context: &mut Context) -> CaseResult {
    let (client, backend) = (context.client().await?, context.backend().await?);
    let (name, ttl) = (context.name("looked-at"), context.ttl(4_000));
    take_raw(&**backend.locks(), &name, ttl).await?;
    for _ in 0..8 {
        context.pass(ttl / 10).await;
        assert_eq!(names(&backend, name.as_bytes()).await?, [bytes(&name)]);
    }
    free_within(context, &client, &name, ttl / 5 + context.ms(1_500)).await?;
    Ok(())
}
