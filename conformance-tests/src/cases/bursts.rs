//! Many clients that begin at the same moment.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tenure_core::{Client, LockName, OwnerId};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::support::{clean, keep, lock};
use crate::case::{Case, CaseResult, Context, case};

pub(super) const CASES: &[Case] = &[
    case!(
        "burst/thousand-locks-at-once",
        "A client takes a thousand locks at once, and gives them back at once, without an error.",
        ["P16", "P30"],
        [],
        thousand_locks_at_once
    ),
    case!(
        "burst/thousand-waiters-of-one-lock",
        "A thousand tasks that begin to wait for one lock at once, of every kind, wait without an error and are served.",
        ["P16", "P17", "P30"],
        [],
        thousand_waiters_of_one_lock
    ),
    case!(
        "burst/hundred-clients",
        "A hundred clients that want one lock at once wait without an error, and are served one after the other.",
        ["P16", "P17"],
        [],
        hundred_clients
    ),
];

const MANY: usize = 1_000;

/// A client that gives each request some more time: here one thread carries them all, and other suites may run beside this
/// one. A burst that is not held back takes many times as long.
async fn client(context: &mut Context) -> CaseResult<Client> {
    let backend = context.backend().await?;
    Ok(context.client_over(backend).op_timeout(context.ms(3_000)).build()?)
}

async fn thousand_locks_at_once(context: &mut Context) -> CaseResult {
    let (client, ttl) = (client(context).await?, context.ttl(60_000));
    let mut tasks = JoinSet::new();
    for number in 0..MANY {
        let lock = lock(&client, &context.name(format!("burst/{number}"))).ttl(ttl);
        tasks.spawn(async move { lock.acquire().await });
    }
    let mut guards = Vec::new();
    while let Some(taken) = context.within(context.ms(30_000), "all locks are taken", tasks.join_next()).await? {
        guards.push(taken??);
    }
    assert_eq!(guards.len(), MANY);
    for guard in guards {
        tasks.spawn(async move {
            guard.release().await?;
            Err(tenure_core::Error::new(tenure_core::ErrorKind::Closed, "given back"))
        });
    }
    while let Some(ended) = context.within(context.ms(30_000), "all locks are given back", tasks.join_next()).await? {
        let reported = ended?;
        assert!(reported.as_ref().is_err_and(|error| error.kind() == tenure_core::ErrorKind::Closed), "{reported:?}");
    }
    assert_eq!((client.stats().holds, client.stats().waiters), (0, 0));
    Ok(())
}

/// A task that waits, counts itself when it is served, and gives the lock back.
fn wait_for(
    tasks: &mut JoinSet<tenure_core::Result<()>>,
    client: &Client,
    name: &LockName,
    number: usize,
    context: &Context,
    served: &Arc<AtomicUsize>,
) -> CaseResult {
    let (ttl, served) = (context.ttl(60_000), Arc::clone(served));
    let reentrant = context.declared().reentrant.is_some();
    match number % 4 {
        0 if reentrant => {
            let lock = client.reentrant(name.as_bytes(), &OwnerId::new()).ttl(ttl);
            tasks.spawn(async move {
                let guard = lock.acquire().await?;
                served.fetch_add(1, Ordering::AcqRel);
                guard.release().await.map(drop)
            });
        }
        kind => {
            let lock = lock(client, name);
            let lock = if kind == 1 { lock.fixed_ttl(ttl) } else { lock.ttl(ttl) };
            tasks.spawn(async move {
                let guard = lock.acquire().await?;
                served.fetch_add(1, Ordering::AcqRel);
                guard.release().await.map(drop)
            });
        }
    }
    Ok(())
}

async fn thousand_waiters_of_one_lock(context: &mut Context) -> CaseResult {
    let (holder, client) = (context.client().await?, client(context).await?);
    let (name, served) = (context.name("crowd"), Arc::<AtomicUsize>::default());
    let held = keep(&holder, &name, context.ttl(60_000)).await?;
    let mut tasks = JoinSet::new();
    let waiters = MANY.min(context.declared().locks.max_waiters.map_or(MANY, |most| most as usize));
    for number in 0..waiters {
        wait_for(&mut tasks, &client, &name, number, context, &served)?;
    }
    context.pass(context.ms(3_000)).await;
    assert_eq!(served.load(Ordering::Acquire), 0);
    assert!(tasks.try_join_next().is_none(), "a waiter failed");
    assert_eq!(client.stats().waiters, waiters);
    held.release().await?;
    for _ in 0..waiters.min(50) {
        let ended = context.within(context.ms(10_000), "the next is served", tasks.join_next()).await?;
        ended.ok_or("all have ended")???;
    }
    tasks.shutdown().await;
    clean(context, &holder, &name, &[&holder, &client]).await
}

async fn hundred_clients(context: &mut Context) -> CaseResult {
    let (name, served) = (context.name("clients"), Arc::<AtomicUsize>::default());
    let mut clients = Vec::new();
    let began = Instant::now();
    // Where connecting takes a second each, because nodes are slow, it is fewer of them.
    while clients.len() < 20 || clients.len() < 100 && began.elapsed() < context.ms(10_000) {
        clients.push(client(context).await?);
    }
    let mut tasks = JoinSet::new();
    for client in &clients {
        wait_for(&mut tasks, client, &name, 2, context, &served)?;
    }
    for _ in 0..clients.len().min(40) {
        let ended = context.within(context.ms(10_000), "the next is served", tasks.join_next()).await?;
        ended.ok_or("all have ended")???;
    }
    tasks.shutdown().await;
    assert!(served.load(Ordering::Acquire) >= clients.len().min(40));
    clean(context, &clients[0], &name, &clients.iter().collect::<Vec<_>>()).await
}
