//! Upgradable readers that become writers.

use tenure_core::driver::Family;
use tenure_core::{ErrorKind, NotUpgraded};

use crate::case::{Case, CaseResult, Context, Failure, Need, case};
use crate::cases::permits::support::{LONG, clean, is_idle, must, rw_lock, waiting};
use crate::cases::support::must_fail;
use crate::layer::{Action, Answer, Op, Rule};

pub(in crate::cases) const CASES: &[Case] = &[
    case!(
        "rw/upgrade-before-the-line",
        "An upgrade waits for the readers alone: no reader is let in meanwhile, and a writer that waited longer comes after it.",
        ["P65", "P70"],
        [Need::PermitsFifo, Need::ReadWrite],
        upgrade_before_the_line
    ),
    case!(
        "rw/upgrade-has-a-greater-fence",
        "The writer that an upgradable reader becomes has a greater fence than all holds before it, and is alone.",
        ["P20", "P69", "P70"],
        [Need::ReadWrite],
        upgrade_has_a_greater_fence
    ),
    case!(
        "rw/upgrade-in-vain-keeps-the-hold",
        "An upgrade that times out leaves the upgradable hold as it was, and readers are let in again.",
        ["P16", "P69"],
        [Need::ReadWrite],
        upgrade_in_vain_keeps_the_hold
    ),
    case!(
        "rw/dropped-upgrade-gives-back",
        "Dropping the future of an upgrade gives the hold back and lets readers and writers in.",
        ["P12", "P13"],
        [Need::ReadWrite],
        dropped_upgrade_gives_back
    ),
    case!(
        "rw/lost-answer-of-an-upgrade",
        "An upgrade whose answer is lost asks again and has the fence of that grant.",
        ["P29", "P69"],
        [Need::ReadWrite],
        lost_answer_of_an_upgrade
    ),
    case!(
        "rw/late-upgrade-has-no-effect",
        "An upgrade that arrives after the client has withdrawn it changes nothing: readers are let in beside the hold.",
        ["P11", "P69"],
        [Need::ReadWrite],
        late_upgrade_has_no_effect
    ),
];

async fn upgrade_before_the_line(context: &mut Context) -> CaseResult {
    let (holder, probe, name) = (context.client().await?, context.client().await?, context.name("before"));
    let (client, layer) = context.layered_with(|builder| builder.presence(LONG)).await?;
    let (upgrader, upgrades) = context.layered_with(|builder| builder.presence(LONG)).await?;
    let reader = must(rw_lock(&holder, &name).ttl(LONG).try_read().await?)?;
    let upgradable = must(rw_lock(&upgrader, &name).ttl(LONG).try_upgradable().await?)?;
    let lock = rw_lock(&client, &name).ttl(LONG);
    let writer = waiting(context, &layer, &name, async move { lock.write().await }).await?;
    let upgrade = tokio::spawn(upgradable.upgrade());
    let asked = async || upgrades.frames_of(Op::Resize, &name).iter().any(|frame| frame.answer == Answer::Busy);
    context.eventually(context.soon(), "the upgrade waits", asked).await?;
    let lock = rw_lock(&client, &name).ttl(LONG);
    let behind = waiting(context, &layer, &name, async move { lock.read().await }).await?;
    assert!(rw_lock(&probe, &name).try_read().await?.is_none(), "a reader was let in during the upgrade");
    reader.release().await?;
    let upgraded = context.within(context.soon(), "the upgrade is granted", upgrade).await???;
    assert!(!writer.is_finished() && !behind.is_finished(), "granted beside the upgraded writer");
    let fence = upgraded.fence();
    upgraded.release().await?;
    let writer = context.within(context.soon(), "the writer is granted", writer).await???;
    assert!(writer.fence() > fence && !behind.is_finished());
    writer.release().await?;
    context.within(context.soon(), "the reader is granted", behind).await???.release().await?;
    clean(context, &holder, Family::RwLock, &name, &[&holder, &client, &upgrader]).await
}

async fn upgrade_has_a_greater_fence(context: &mut Context) -> CaseResult {
    let (client, other) = (context.client().await?, context.client().await?);
    let (name, ttl) = (context.name("greater"), context.ttl(900));
    let upgradable = must(rw_lock(&client, &name).ttl(ttl).try_upgradable().await?)?;
    let reader = must(rw_lock(&other, &name).ttl(LONG).try_read().await?)?;
    let (before, reading) = (upgradable.fence(), reader.fence());
    assert!(reading > before);
    let in_vain = upgradable.try_upgrade().await.err().ok_or_else(|| Failure::new("upgraded beside a reader"))?;
    assert_eq!(in_vain.error.kind(), ErrorKind::TimedOut);
    assert_eq!(in_vain.guard.fence(), before);
    reader.release().await?;
    let writer = in_vain.guard.try_upgrade().await?;
    assert!(writer.fence() > reading, "{} after {reading}", writer.fence());
    context.pass(ttl * 2).await;
    assert!(writer.is_held(), "an upgraded hold is renewed");
    assert!(rw_lock(&other, &name).try_read().await?.is_none());
    writer.release().await?;
    clean(context, &other, Family::RwLock, &name, &[&client, &other]).await
}

async fn upgrade_in_vain_keeps_the_hold(context: &mut Context) -> CaseResult {
    let (client, other) = (context.client().await?, context.client().await?);
    let (name, ttl) = (context.name("in-vain"), context.ttl(900));
    let reader = must(rw_lock(&other, &name).ttl(LONG).try_read().await?)?;
    let upgradable = must(rw_lock(&client, &name).ttl(ttl).try_upgradable().await?)?;
    let fence = upgradable.fence();
    let NotUpgraded { guard, error } = match upgradable.upgrade_within(context.ms(300)).await {
        Err(refused) => refused,
        Ok(writer) => return Err(Failure::new(format!("upgraded beside a reader: {writer:?}"))),
    };
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    context.pass(ttl * 2).await;
    assert!(guard.is_held() && guard.fence() == fence);
    let enters = async || -> CaseResult<bool> {
        match rw_lock(&other, &name).try_read().await? {
            Some(reader) => reader.release().await.map(|()| true).map_err(Into::into),
            None => Ok(false),
        }
    };
    context.eventually(context.soon(), "readers are let in again", enters).await?;
    assert!(rw_lock(&other, &name).try_upgradable().await?.is_none(), "the hold is not upgradable any more");
    reader.release().await?;
    guard.upgrade_within(context.soon()).await?.release().await?;
    clean(context, &other, Family::RwLock, &name, &[&client, &other]).await
}

async fn dropped_upgrade_gives_back(context: &mut Context) -> CaseResult {
    let (probe, name) = (context.client().await?, context.name("dropped"));
    let (client, layer) = context.layered_with(|builder| builder.presence(LONG)).await?;
    for polls in 1..=4 {
        let reader = must(rw_lock(&probe, &name).ttl(LONG).try_read().await?)?;
        let upgradable = must(rw_lock(&client, &name).ttl(LONG).try_upgradable().await?)?;
        if polls < 4 {
            drop(crate::poll::at_most(polls, upgradable.upgrade()).await);
        } else {
            let before = layer.frames_of(Op::Resize, &name).len();
            let upgrade = tokio::spawn(upgradable.upgrade());
            let asked = async || layer.frames_of(Op::Resize, &name).len() > before;
            context.eventually(context.soon(), "the upgrade waits", asked).await?;
            upgrade.abort();
            drop(upgrade.await);
        }
        let enters = async || -> CaseResult<bool> {
            match rw_lock(&probe, &name).try_upgradable().await? {
                Some(reader) => reader.release().await.map(|()| true).map_err(Into::into),
                None => Ok(false),
            }
        };
        context.eventually(context.soon(), "another upgradable reader is let in", enters).await?;
        reader.release().await?;
        clean(context, &probe, Family::RwLock, &name, &[&client, &probe]).await?;
    }
    Ok(())
}

async fn lost_answer_of_an_upgrade(context: &mut Context) -> CaseResult {
    let (client, layer) = context.layered().await?;
    let (probe, name) = (context.client().await?, context.name("lost"));
    for action in [Action::LoseReply, Action::FailBeforeSend, Action::Duplicate, Action::Retry] {
        let upgradable = must(rw_lock(&client, &name).ttl(LONG).try_upgradable().await?)?;
        let before = upgradable.fence();
        layer.rule(Rule::on(Op::Resize, action).once());
        let writer = context.within(context.soon(), "the upgrade is granted", upgradable.upgrade()).await??;
        assert!(writer.fence() > before);
        assert!(rw_lock(&probe, &name).try_read().await?.is_none());
        layer.heal();
        let reader = writer.downgrade().await?;
        let beside = must(rw_lock(&probe, &name).try_read().await?)?;
        assert!(beside.fence() > reader.fence());
        beside.release().await?;
        reader.release().await?;
        clean(context, &probe, Family::RwLock, &name, &[&client]).await?;
    }
    Ok(())
}

async fn late_upgrade_has_no_effect(context: &mut Context) -> CaseResult {
    let (client, layer) = context.layered().await?;
    let (probe, name) = (context.client().await?, context.name("late"));
    let upgradable = must(rw_lock(&client, &name).ttl(LONG).try_upgradable().await?)?;
    let before = upgradable.fence();
    layer.rule(Rule::on(Op::Resize, Action::Hang).once());
    let refused = upgradable.try_upgrade().await;
    let NotUpgraded { guard, error } = refused.err().ok_or_else(|| Failure::new("upgraded without an answer"))?;
    assert_eq!(error.kind(), ErrorKind::Indeterminate);
    let withdrawn = async || client.stats().cleanups == 0;
    context.eventually(context.soon(), "the upgrade is withdrawn", withdrawn).await?;
    // Now the request arrives that the withdrawal has overtaken.
    layer.heal();
    context.pass(context.ms(100)).await;
    assert!(guard.is_held() && guard.fence() == before);
    must(rw_lock(&probe, &name).try_read().await?)?.release().await?;
    assert!(!is_idle(&probe, Family::RwLock, &name).await?);
    must_fail(rw_lock(&probe, &name).upgradable_within(context.ms(100)).await, ErrorKind::TimedOut)?;
    guard.upgrade_within(context.soon()).await?.release().await?;
    clean(context, &probe, Family::RwLock, &name, &[&client]).await
}
