//! Mutants of the list of held locks.

use std::collections::BTreeMap;

use async_trait::async_trait;
use tenure_core::driver::{
    AcquireRequest, Acquisition, CensusCapabilities, CensusOrder, CensusPlace, HeldLock, HeldPage, Hold, Holder,
    Queueing, Released, Ttl,
};
use tenure_core::{LockName, OwnerToken, Result};

use super::maker::{Mutant, mutant};
use super::twist::{Inner, Shared, Twist};

#[rustfmt::skip]
pub(super) const MUTANTS: &[Mutant] = &[
    mutant!("census/lists-nothing", "no lock is ever listed",
        Bent(|page| page.locks.clear()),
        ["census/counts-the-waiters", "census/lists-what-is-held", "census/waited-for-is-not-held"]),
    mutant!("census/no-label", "the label is lost",
        Bent(|page| each(page, |holder| holder.label = None)), ["census/lists-what-is-held", "census/re-entrant-hold"]),
    mutant!("census/wrong-unit", "the rest of the lease has the wrong unit",
        Bent(|page| each(page, |holder| holder.remaining = holder.remaining.map(|left| left / 1_000))),
        ["census/lists-what-is-held"]),
    mutant!("census/one-entry", "the number of entries is missing",
        Bent(|page| each(page, |holder| holder.depth = 1)), ["census/re-entrant-hold"]),
    mutant!("census/no-owner", "the owner is missing",
        Bent(|page| each(page, |holder| holder.owner = None)), ["census/re-entrant-hold"]),
    mutant!("census/no-waiters", "waiters are not counted",
        Bent(|page| page.locks.iter_mut().for_each(|lock| lock.waiters = Some(0))), ["census/counts-the-waiters"]),
    mutant!("census/drops-the-last", "the last lock of a page that another one follows is lost",
        Bent(drop_the_last), ["census/held-throughout-is-listed", "census/pages-tell-each-name"]),
    mutant!("census/repeats-the-last", "the last lock of a page is there twice",
        Bent(|page| page.locks.extend(page.locks.last().cloned())), ["census/pages-tell-each-name"]),
    mutant!("census/first-page-only", "the list ends after a page",
        Bent(|page| page.next = None), ["census/held-throughout-is-listed", "census/pages-tell-each-name"]),
    mutant!("census/prefix-is-a-pattern", "a prefix ends where a pattern begins",
        Prefix(|prefix| cut(prefix, b"%*?[_\\")), ["census/prefix-is-literal"]),
    mutant!("census/prefix-is-a-c-string", "a prefix ends at a NUL",
        Prefix(|prefix| cut(prefix, b"\0")), ["census/prefix-is-literal"]),
    mutant!("census/prefix-is-a-folder", "a prefix ends with its last slash",
        Prefix(
            |prefix| prefix[..prefix.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1)].to_vec()
        ), ["census/prefix-is-literal"]),
    mutant!("census/continues-by-position", "a page skips as many locks as were listed before it",
        ByPosition, ["census/held-throughout-is-listed"]),
    mutant!("census/lists-what-was-held", "a lock stays on the list when it is released",
        Remembers { what: Kept::Granted, ..Remembers::default() },
        ["census/leaves-out-what-is-free", "census/re-entrant-hold", "census/waited-for-is-not-held"]),
    mutant!("census/lists-what-has-expired", "a lock stays on the list when its lease ends",
        Remembers { what: Kept::UntilReleased, ..Remembers::default() }, ["census/leaves-out-what-is-free"]),
    mutant!("census/lists-what-is-waited-for", "a lock that is waited for is listed as held",
        Remembers { what: Kept::Joined, ..Remembers::default() }, ["census/waited-for-is-not-held"]),
    mutant!("census/renews", "a lease that is listed is renewed",
        Renews::default(), ["census/changes-nothing"]),
    mutant!(Reduced "refusal/lists-all-the-same", "an undeclared list of held locks is there",
        Appears, ["meta/declared-matches-driver", "refusal/held-locks"]),
];

/// Pages that are changed on their way.
struct Bent(fn(&mut HeldPage));

#[async_trait]
impl Twist for Bent {
    async fn held(&self, inner: &Inner, prefix: &[u8], from: Option<&CensusPlace>, max: usize) -> Result<HeldPage> {
        let mut page = inner.census()?.held(prefix, from, max).await?;
        (self.0)(&mut page);
        Ok(page)
    }
}

fn each(page: &mut HeldPage, change: impl Fn(&mut Holder)) {
    page.locks.iter_mut().for_each(|lock| change(&mut lock.holder));
}

fn drop_the_last(page: &mut HeldPage) {
    if page.next.is_some() {
        page.locks.pop();
    }
}

/// Prefixes as a careless driver asks for them.
struct Prefix(fn(&[u8]) -> Vec<u8>);

#[async_trait]
impl Twist for Prefix {
    async fn held(&self, inner: &Inner, prefix: &[u8], from: Option<&CensusPlace>, max: usize) -> Result<HeldPage> {
        inner.census()?.held(&(self.0)(prefix), from, max).await
    }
}

/// Up to the first of these bytes that is not in what the suite puts in front.
fn cut(prefix: &[u8], ends: &[u8]) -> Vec<u8> {
    prefix.split(|byte| ends.contains(byte)).next().unwrap_or_default().to_vec()
}

/// A place is the number of locks that were listed.
struct ByPosition;

#[async_trait]
impl Twist for ByPosition {
    async fn held(&self, inner: &Inner, prefix: &[u8], from: Option<&CensusPlace>, max: usize) -> Result<HeldPage> {
        let (mut all, mut next) = (Vec::new(), None);
        loop {
            let page = inner.census()?.held(prefix, next.as_ref(), max).await?;
            all.extend(page.locks);
            next = page.next;
            if next.is_none() {
                break;
            }
        }
        let skipped = from.and_then(|place| std::str::from_utf8(place.as_bytes()).ok()?.parse().ok()).unwrap_or(0);
        let reported: usize = max.min(all.len().saturating_sub(skipped));
        let next =
            (skipped + reported < all.len()).then(|| CensusPlace::new((skipped + reported).to_string().into_bytes()));
        Ok(HeldPage::new(all.into_iter().skip(skipped).take(reported).collect(), next))
    }
}

/// Which ended locks are remembered, and still listed.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Kept {
    #[default]
    Granted,
    UntilReleased,
    Joined,
}

#[derive(Default)]
struct Remembers {
    what: Kept,
    names: Shared<BTreeMap<Vec<u8>, LockName>>,
}

impl Remembers {
    fn saw(&self, request: &AcquireRequest, answer: &Acquisition) {
        let joined = matches!((request.queue, answer), (Queueing::Join { .. }, Acquisition::Busy(_)));
        let granted = matches!(answer, Acquisition::Granted(_));
        if (self.what == Kept::Joined && joined) || (self.what != Kept::Joined && granted) {
            let mut names = self.names.lock();
            names.insert(request.name.as_bytes().to_vec(), request.name.clone());
        }
    }
}

#[async_trait]
impl Twist for Remembers {
    async fn acquire(&self, inner: &Inner, request: &AcquireRequest) -> Result<Acquisition> {
        let answer = inner.locks().acquire(request).await?;
        self.saw(request, &answer);
        Ok(answer)
    }

    async fn enter(
        &self,
        inner: &Inner,
        owner: &tenure_core::OwnerId,
        request: &AcquireRequest,
    ) -> Result<Acquisition> {
        let answer = inner.reentrant()?.enter(owner, request).await?;
        self.saw(request, &answer);
        Ok(answer)
    }

    async fn release(&self, inner: &Inner, hold: &Hold) -> Result<Released> {
        let answer = inner.locks().release(hold).await?;
        if self.what == Kept::UntilReleased {
            self.names.lock().remove(hold.name.as_bytes());
        }
        Ok(answer)
    }

    async fn held(&self, inner: &Inner, prefix: &[u8], from: Option<&CensusPlace>, max: usize) -> Result<HeldPage> {
        let mut page = inner.census()?.held(prefix, from, max).await?;
        let names = self.names.lock();
        for name in names.values().filter(|name| name.as_bytes().starts_with(prefix)) {
            if page.locks.iter().all(|lock| lock.name != *name) {
                page.locks.push(HeldLock::new(name.clone(), Holder::default()));
            }
        }
        Ok(page)
    }
}

/// Granted holds; listing them renews them.
#[derive(Default)]
struct Renews(Shared<BTreeMap<Vec<u8>, (OwnerToken, Ttl)>>);

#[async_trait]
impl Twist for Renews {
    async fn acquire(&self, inner: &Inner, request: &AcquireRequest) -> Result<Acquisition> {
        let answer = inner.locks().acquire(request).await?;
        if matches!(answer, Acquisition::Granted(_)) {
            let mut granted = self.0.lock();
            granted.insert(request.name.as_bytes().to_vec(), (request.token, request.ttl));
        }
        Ok(answer)
    }

    async fn held(&self, inner: &Inner, prefix: &[u8], from: Option<&CensusPlace>, max: usize) -> Result<HeldPage> {
        let page = inner.census()?.held(prefix, from, max).await?;
        for lock in &page.locks {
            let known = self.0.lock().get(lock.name.as_bytes()).copied();
            if let Some((token, ttl)) = known {
                inner.locks().renew(ttl, &[Hold::new(lock.name.clone(), token)]).await;
            }
        }
        Ok(page)
    }
}

/// A list that was not declared.
struct Appears;

impl Twist for Appears {
    fn census_capabilities(&self, _inner: &Inner) -> Option<CensusCapabilities> {
        Some(CensusCapabilities::new(CensusOrder::None))
    }
}
