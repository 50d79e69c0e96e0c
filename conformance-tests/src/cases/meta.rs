//! The declaration, compared with the driver.

use super::support::{clean, keep};
use crate::case::{Case, CaseResult, Context, case};
use crate::harness::Administration;

pub(super) const CASES: &[Case] = &[
    case!(
        "meta/declared-matches-driver",
        "The capabilities that the maker declares are those of the live driver, so that selection rests on facts.",
        ["P26"],
        [],
        declared_matches_driver
    ),
    case!(
        "meta/clients-share-the-backend",
        "Two connections of the harness reach the same backend, so that every other case compares what it should.",
        ["P1"],
        [],
        clients_share_the_backend
    ),
    case!(
        "meta/capabilities-are-constant",
        "A driver's capabilities and name do not change while locks are taken and released.",
        ["P26"],
        [],
        capabilities_are_constant
    ),
];

async fn declared_matches_driver(context: &mut Context) -> CaseResult {
    let backend = context.backend().await?;
    assert_eq!(context.declared().locks, backend.locks().capabilities(), "of the plain locks");
    let reentrant = backend.reentrant().map(|driver| driver.capabilities());
    assert_eq!(context.declared().reentrant, reentrant, "of the re-entrant locks");
    assert_eq!(context.declared().permits, backend.permits().map(|driver| driver.capabilities()), "of the permits");
    assert_eq!(context.declared().queue, backend.queue().map(|driver| driver.capabilities()), "of the queues");
    let administration = if backend.queue_admin().is_some() { Administration::Full } else { Administration::None };
    assert_eq!(context.declared().administration, administration, "of the operations on stored messages");
    assert_eq!(context.declared().census, backend.census().map(|driver| driver.capabilities()), "of the held locks");
    let locks = context.declared().locks;
    assert!(locks.renew_batch >= 1, "a renewal must carry something");
    assert!(locks.ttl.min <= locks.ttl.max && !locks.ttl.granularity.is_zero(), "a range of ttls: {:?}", locks.ttl);
    assert!(!backend.locks().driver().is_empty(), "a driver has a name");
    Ok(())
}

async fn clients_share_the_backend(context: &mut Context) -> CaseResult {
    let (one, other) = (context.client().await?, context.client().await?);
    let name = context.name("shared");
    let guard = keep(&one, &name, context.ttl(5_000)).await?;
    let seen = other.lock(name.as_bytes()).try_acquire().await?;
    assert!(seen.is_none(), "the other connection does not see the lock");
    guard.release().await?;
    clean(context, &other, &name, &[&one, &other]).await
}

async fn capabilities_are_constant(context: &mut Context) -> CaseResult {
    let client = context.client().await?;
    let (before, name) = (client.capabilities(), context.name("constant"));
    let guard = keep(&client, &name, context.ttl(5_000)).await?;
    assert_eq!(before, client.capabilities());
    guard.release().await?;
    assert_eq!(before, client.capabilities());
    assert_eq!(client.driver(), context.backend().await?.locks().driver());
    Ok(())
}
