//! Writers and upgradable readers that become readers.

use tenure_core::driver::Family;

use crate::case::{Case, CaseResult, Context, Need, case};
use crate::cases::permits::support::{LONG, clean, must, rw_lock, waiting};
use crate::layer::{Action, Op, Rule};

pub(in crate::cases) const CASES: &[Case] = &[
    case!(
        "rw/downgrade-keeps-the-fence",
        "A writer that becomes an upgradable reader and then a reader keeps its fence and its lease.",
        ["P22", "P69"],
        [Need::ReadWrite],
        downgrade_keeps_the_fence
    ),
    case!(
        "rw/downgrade-serves-in-the-same-step",
        "A writer that becomes a reader lets the waiting readers in at once, and no writer.",
        ["P67", "P69"],
        [Need::PermitWakeups, Need::ReadWrite],
        downgrade_serves_in_the_same_step
    ),
    case!(
        "rw/lost-answer-of-a-downgrade",
        "A downgrade whose request or answer is lost succeeds, and is repeated until readers are let in.",
        ["P10", "P69"],
        [Need::ReadWrite],
        lost_answer_of_a_downgrade
    ),
];

async fn downgrade_keeps_the_fence(context: &mut Context) -> CaseResult {
    let (client, other) = (context.client().await?, context.client().await?);
    let (name, ttl) = (context.name("keeps"), context.ttl(900));
    let writer = must(rw_lock(&client, &name).ttl(ttl).try_write().await?)?;
    let fence = writer.fence();
    let upgradable = writer.downgrade_to_upgradable().await?;
    assert_eq!(upgradable.fence(), fence);
    must(rw_lock(&other, &name).try_read().await?)?.release().await?;
    assert!(rw_lock(&other, &name).try_upgradable().await?.is_none());
    let reader = upgradable.downgrade().await?;
    assert_eq!(reader.fence(), fence);
    context.pass(ttl * 2).await;
    assert!(reader.is_held(), "a hold is renewed after its changes");
    must(rw_lock(&other, &name).try_upgradable().await?)?.release().await?;
    assert!(rw_lock(&other, &name).try_write().await?.is_none());
    reader.release().await?;
    clean(context, &other, Family::RwLock, &name, &[&client, &other]).await
}

async fn downgrade_serves_in_the_same_step(context: &mut Context) -> CaseResult {
    let (holder, name) = (context.client().await?, context.name("serves"));
    let (client, layer) = context.layered_with(|builder| builder.presence(LONG)).await?;
    let held = must(rw_lock(&holder, &name).ttl(LONG).try_write().await?)?;
    let mut readers = Vec::new();
    for _ in 0..2 {
        let lock = rw_lock(&client, &name).ttl(LONG);
        readers.push(waiting(context, &layer, &name, async move { lock.read().await }).await?);
    }
    let lock = rw_lock(&client, &name).ttl(LONG);
    let writer = waiting(context, &layer, &name, async move { lock.write().await }).await?;
    let held = held.downgrade().await?;
    for reader in readers {
        let reader = context.within(context.soon(), "each waiting reader is let in", reader).await???;
        assert!(reader.fence() > held.fence() && held.is_held());
        reader.release().await?;
    }
    assert!(!writer.is_finished(), "a writer beside a reader");
    held.release().await?;
    context.within(context.soon(), "the writer is granted", writer).await???.release().await?;
    clean(context, &holder, Family::RwLock, &name, &[&holder, &client]).await
}

async fn lost_answer_of_a_downgrade(context: &mut Context) -> CaseResult {
    let (client, layer) = context.layered().await?;
    let (probe, name) = (context.client().await?, context.name("lost"));
    for action in [Action::LoseReply, Action::FailBeforeSend, Action::Swallow] {
        let writer = must(rw_lock(&client, &name).ttl(LONG).try_write().await?)?;
        let fence = writer.fence();
        layer.rule(Rule::on(Op::Resize, action).once());
        let reader = writer.downgrade().await?;
        assert_eq!(reader.fence(), fence);
        let enters = async || -> CaseResult<bool> {
            match rw_lock(&probe, &name).try_read().await? {
                Some(reader) => reader.release().await.map(|()| true).map_err(Into::into),
                None => Ok(false),
            }
        };
        context.eventually(context.soon(), "readers are let in", enters).await?;
        let acknowledged = async || client.stats().cleanups == 0;
        context.eventually(context.soon(), "the downgrade is acknowledged", acknowledged).await?;
        assert!(reader.is_held() && rw_lock(&probe, &name).try_write().await?.is_none());
        layer.heal();
        reader.release().await?;
        clean(context, &probe, Family::RwLock, &name, &[&client]).await?;
    }
    Ok(())
}
