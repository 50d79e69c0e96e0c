//! Messages that an application pushes in its own transaction, while that transaction is open.

use std::time::Duration;

use tenure_core::driver::{Extended, Lease, Settled};
use tenure_core::queue::QueueName;

use super::support::{Raw, after, bytes, lease, message, named, raw, span};
use crate::case::{Case, CaseResult, Context, Need, case};
use crate::harness::{Fault, FaultKind, Healer, OpenPush};

pub(in crate::cases) const CASES: &[Case] = &[
    case!(
        "queue/open-transaction-holds-up-nobody",
        "While a transaction that has pushed is open, with an id or without, its queue and others work, and its message comes with \
         its commit.",
        ["P53", "P57"],
        [Need::Queue, Need::Fault(FaultKind::OpenPush)],
        open_transaction_holds_up_nobody
    ),
    case!(
        "queue/first-push-in-open-transaction",
        "While the transaction of a queue's first push is open, this queue and other new ones work.",
        ["P53"],
        [Need::Queue, Need::Fault(FaultKind::OpenPush)],
        first_push_in_open_transaction
    ),
];

async fn open_transaction_holds_up_nobody(context: &mut Context) -> CaseResult {
    let mine = raw(context).await?;
    let other = beside(context, &mine, "other")?;
    works(&mine, lease(context, 60_000), span(context, 60_000), "before").await?;
    works(&other, lease(context, 60_000), span(context, 60_000), "before").await?;
    let window = span(context, 60_000);
    mine.store(named("leased", "leased", window)).await?;
    let leased = mine.one(lease(context, 60_000)).await?;
    mine.store(after(named("waits", "waits", window), span(context, 600_000))).await?;
    for id in [None, Some("new"), Some("waits"), Some("leased")] {
        let open = push_in_transaction(context, &mine, id).await?;
        let turn = id.unwrap_or("none");
        for raw in [&mine, &other] {
            let works = works(raw, lease(context, 60_000), window, turn);
            context.within(context.soon(), "the queue works beside the transaction", works).await??;
        }
        if id == Some("leased") {
            let acked =
                context.within(context.soon(), "its duplicate is acknowledged", mine.ack(leased.receipt)).await??;
            assert_eq!(acked, Settled::Done);
        }
        mine.nothing("an uncommitted message was delivered").await?;
        open.heal().await?;
        if matches!(id, None | Some("new")) {
            let got = mine.one(lease(context, 60_000)).await?;
            assert_eq!(bytes(&got), b"open", "the message of the transaction");
            assert_eq!(mine.ack(got.receipt).await?, Settled::Done);
        }
        mine.nothing("a push of an id that is known was stored").await?;
    }
    Ok(())
}

async fn first_push_in_open_transaction(context: &mut Context) -> CaseResult {
    let mine = raw(context).await?;
    let other = beside(context, &mine, "another")?;
    let open = push_in_transaction(context, &mine, None).await?;
    for raw in [&mine, &other] {
        let works = works(raw, lease(context, 60_000), span(context, 60_000), "first");
        context.within(context.soon(), "a new queue works beside the transaction", works).await??;
    }
    open.heal().await?;
    assert_eq!(bytes(&mine.one(lease(context, 60_000)).await?), b"open", "the message of the transaction");
    Ok(())
}

async fn push_in_transaction(context: &mut Context, raw: &Raw, id: Option<&str>) -> CaseResult<Healer> {
    context.inject(Fault::OpenPush(OpenPush { queue: raw.name.clone(), id: id.map(str::to_owned) })).await
}

fn beside(context: &Context, raw: &Raw, suffix: &str) -> CaseResult<Raw> {
    Ok(raw.another(QueueName::new(context.name(suffix).as_bytes())?))
}

/// Pushes, receives, extends and settles.
async fn works(raw: &Raw, lease: Lease, window: Duration, turn: &str) -> CaseResult {
    raw.store(message("beside")).await?;
    raw.store(named("beside", &format!("beside/{turn}"), window)).await?;
    for _ in 0..2 {
        let got = raw.one(lease).await?;
        assert_eq!(bytes(&got), b"beside");
        assert_eq!(raw.extend(got.receipt, lease).await?, Extended::Extended);
        assert_eq!(raw.ack(got.receipt).await?, Settled::Done);
    }
    Ok(())
}
