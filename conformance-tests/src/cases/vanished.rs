//! A client that held a lock and waited for it, and disappeared without a word.

use tenure_core::LockGuard;
use tenure_core::driver::{ForceReleased, Introspection};
use tenure_core::{Client, LockName, OwnerToken};

use super::support::{busy, clean, is_free, joining, lock, take_raw};
use crate::case::{Case, CaseResult, Context, Need, case};
use crate::layer::{Answer, Op};

pub(super) const CASES: &[Case] = &[
    case!(
        "fifo/vanished-client-leaves-no-ghost",
        "When the holder and the first waiter vanish, the next one has no waiter behind it, and its release frees the lock at once.",
        ["P17", "P18", "P24"],
        [Need::Fifo],
        vanished_client_leaves_no_ghost
    ),
    case!(
        "force/frees-what-a-vanished-client-left",
        "The lock of such a waiter is free at once when it is released by force, and the waiter is notified.",
        ["P4", "P9", "P24"],
        [Need::Fifo, Need::Revocation],
        frees_what_a_vanished_client_left
    ),
];

/// A guard that came by its lock behind a holder and a waiter that vanished.
async fn granted_behind(context: &mut Context, name: &LockName) -> CaseResult<(Client, LockGuard)> {
    // The waiter that vanishes outlasts the lease by far: it is not passed over because its presence has ended.
    let (ttl, presence) = (context.ttl(1_000), context.ttl(6_000));
    let gone = context.backend().await?;
    let (client, layer) = context.layered_with(|builder| builder.presence(ttl)).await?;
    take_raw(&**gone.locks(), name, ttl).await?;
    busy(gone.locks().acquire(&joining(name, OwnerToken::random(), ttl, presence)?).await?)?;
    let waiter = lock(&client, name).ttl(context.ttl(1_500));
    let waiting = tokio::spawn(async move { waiter.acquire().await });
    let waits = async || layer.frames_of(Op::Acquire, name).iter().any(|frame| frame.answer == Answer::Busy);
    context.eventually(context.soon(), "the second waiter waits", waits).await?;
    gone.locks().close().await;
    let limit = presence + ttl + context.ms(2_500);
    let guard = context.within(limit, "the next one is granted", waiting).await???;
    Ok((client, guard))
}

async fn vanished_client_leaves_no_ghost(context: &mut Context) -> CaseResult {
    let (other, name) = (context.client().await?, context.name("vanished"));
    let (client, guard) = granted_behind(context, &name).await?;
    if context.declared().locks.introspection != Introspection::None {
        assert_eq!(lock(&other, &name).inspect().await?.waiters, 0, "a waiter is counted that is not there");
    }
    guard.release().await?;
    assert!(is_free(&other, &name).await?, "kept for a waiter that is not there");
    clean(context, &other, &name, &[&client]).await
}

async fn frees_what_a_vanished_client_left(context: &mut Context) -> CaseResult {
    let (other, name) = (context.client().await?, context.name("forced"));
    let (client, guard) = granted_behind(context, &name).await?;
    assert_eq!(lock(&other, &name).force_release().await?, ForceReleased::Released);
    assert!(is_free(&other, &name).await?, "kept for a waiter that is not there");
    context.within(context.soon(), "the holder is notified", guard.lost()).await?;
    assert!(!guard.is_held());
    drop(guard);
    clean(context, &other, &name, &[&client]).await
}
