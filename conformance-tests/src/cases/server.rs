//! Faults of the server.

use std::time::Duration;

use tenure_core::{Client, ErrorKind, HoldState};
use tokio::time::Instant;

use super::support::{clean, free_within, is_free, keep, lock, must_fail, take};
use crate::case::{Case, CaseResult, Context, Need, case};
use crate::harness::{ClockStep, Data, Fault, FaultKind};

pub(super) const CASES: &[Case] = &[
    case!(
        "server/pause-within-the-ttl-is-survived",
        "A server that pauses for less than the ttl makes a hold suspect at most, and the hold continues after it.",
        ["P6", "P26"],
        [Need::Fault(FaultKind::PauseServer)],
        pause_within_the_ttl_is_survived
    ),
    case!(
        "server/pause-beyond-the-ttl-is-a-loss",
        "A holder whose server pauses for longer than its ttl is notified of the loss during the pause.",
        ["P4"],
        [Need::Fault(FaultKind::PauseServer)],
        pause_beyond_the_ttl_is_a_loss
    ),
    case!(
        "server/waiter-survives-a-pause",
        "A waiter waits through a pause of the server and is granted after it.",
        ["P18"],
        [Need::Fault(FaultKind::PauseServer)],
        waiter_survives_a_pause
    ),
    case!(
        "server/cut-connections-are-replaced",
        "After every connection was cut, holds continue, waiters are granted, and new locks are taken.",
        ["P18", "P26"],
        [Need::Fault(FaultKind::CutConnections)],
        cut_connections_are_replaced
    ),
    case!(
        "server/silent-connections-are-replaced",
        "Connections that fall silent, with neither an answer nor a close, are given up within the declared time: holds continue, \
         waiters are granted, and new locks are taken.",
        ["P18", "P26"],
        [Need::Fault(FaultKind::SilenceConnections)],
        silent_connections_are_replaced
    ),
    case!(
        "server/idle-connection-cut-costs-no-error",
        "After connections were cut while nothing used them, the first request of each name succeeds.",
        ["P26"],
        [Need::Fault(FaultKind::CutConnections)],
        idle_connection_cut_costs_no_error
    ),
    case!(
        "server/few-connections-serve-every-name",
        "A client of a server that admits only two connections takes locks of any name, and is granted a lock that it waits for.",
        ["P18", "P26"],
        [Need::Fault(FaultKind::FewConnections)],
        few_connections_serve_every_name
    ),
    case!(
        "server/demoted-server-is-left",
        "A server that refuses writes is left for the one that new connections lead to: new locks are taken there, waiters are \
         granted and woken, and a hold of the old server is lost.",
        ["P4", "P18", "P26"],
        [Need::Fault(FaultKind::DemoteServer)],
        demoted_server_is_left
    ),
    case!(
        "server/cut-notifications-only-delay",
        "A waiter whose notification link is cut is granted within its fallback after the release.",
        ["P18"],
        [Need::Fault(FaultKind::CutNotifications)],
        cut_notifications_only_delay
    ),
    case!(
        "server/muted-notifications-only-delay",
        "With every notification thrown away by the server, a waiter is granted within its fallback after the release.",
        ["P18"],
        [Need::Fault(FaultKind::MuteNotifications)],
        muted_notifications_only_delay
    ),
    case!(
        "server/restart-with-data-keeps-the-hold",
        "A hold survives a restart that keeps the data, and no other client is granted the lock meanwhile.",
        ["P1", "P6"],
        [Need::Fault(FaultKind::RestartKeepingData)],
        restart_with_data_keeps_the_hold
    ),
    case!(
        "server/restart-without-data-is-a-loss",
        "A holder learns at its next renewal that a restart lost its lock, and its release affects no other holder.",
        ["P4", "P9"],
        [Need::Fault(FaultKind::RestartLosingData)],
        restart_without_data_is_a_loss
    ),
    case!(
        "server/waiter-survives-a-restart",
        "A waiter waits through a restart that loses the data, and is granted after it.",
        ["P17", "P18"],
        [Need::Fault(FaultKind::RestartLosingData)],
        waiter_survives_a_restart
    ),
    case!(
        "server/forgotten-scripts-are-sent-again",
        "After the server forgot its scripts, every operation works as before.",
        ["P26"],
        [Need::Fault(FaultKind::ForgetScripts)],
        forgotten_scripts_are_sent_again
    ),
    case!(
        "server/clock-step-forward-keeps-fences",
        "A server whose clock jumps ahead may end leases early, but fences keep growing, also after it jumped back.",
        ["P19", "P20"],
        [Need::Fault(FaultKind::JumpServerClock)],
        clock_step_forward_keeps_fences
    ),
    case!(
        "server/clock-step-back-keeps-fences",
        "A server whose clock jumps back keeps excluding, and fences keep growing.",
        ["P1", "P19", "P20"],
        [Need::Fault(FaultKind::JumpServerClock)],
        clock_step_back_keeps_fences
    ),
];

async fn pause_within_the_ttl_is_survived(context: &mut Context) -> CaseResult {
    let (client, name, ttl) = (context.client().await?, context.name("pause"), context.ttl(3_000));
    let guard = keep(&client, &name, ttl).await?;
    let healer = context.inject(Fault::PauseServer).await?;
    context.pass(ttl / 3 + ttl / 4).await;
    assert!(guard.is_held(), "{:?} before the ttl has passed", guard.state());
    healer.heal().await?;
    context.pass(ttl).await;
    assert!(guard.is_held(), "{:?} after the pause", guard.state());
    guard.release().await?;
    Ok(())
}

async fn pause_beyond_the_ttl_is_a_loss(context: &mut Context) -> CaseResult {
    let (client, name, ttl) = (context.client().await?, context.name("long"), context.ttl(800));
    let guard = keep(&client, &name, ttl).await?;
    let healer = context.inject(Fault::PauseServer).await?;
    context.within(ttl, "the holder is notified during the pause", guard.lost()).await?;
    assert!(matches!(guard.state(), HoldState::Lost(_)));
    context.pass(ttl / 4).await;
    healer.heal().await?;
    context.pass(context.ms(300)).await;
    assert!(guard.check().is_err(), "a lost hold came back");
    drop(guard);
    let probe = context.client().await?;
    clean(context, &probe, &name, &[&client]).await
}

async fn granted_after(context: &mut Context, fault: Fault, released_during: bool) -> CaseResult {
    let (client, layer) = context.layered_with(|builder| builder.presence(Duration::from_millis(3_000))).await?;
    let (holder, name) = (context.client().await?, context.name("waiter"));
    let held = keep(&holder, &name, context.ttl(20_000)).await?;
    let waiter = lock(&client, &name);
    let waiting = tokio::spawn(async move { waiter.acquire().await });
    let waits = async || layer.frames().iter().any(|frame| frame.answer == crate::layer::Answer::Busy);
    context.eventually(context.soon(), "the waiter waits", waits).await?;
    let healer = context.inject(fault).await?;
    context.pass(context.ms(700)).await;
    assert!(!waiting.is_finished(), "the bad day ended the wait");
    if released_during {
        drop(held);
        context.pass(context.ms(300)).await;
        healer.heal().await?;
    } else {
        healer.heal().await?;
        drop(held);
    }
    let guard = context.within(context.ms(12_000), "granted after the bad day", waiting).await???;
    assert!(guard.is_held());
    guard.release().await?;
    clean(context, &holder, &name, &[&client, &holder]).await
}

async fn waiter_survives_a_pause(context: &mut Context) -> CaseResult {
    granted_after(context, Fault::PauseServer, true).await
}

async fn cut_connections_are_replaced(context: &mut Context) -> CaseResult {
    let (client, name, ttl) = (context.client().await?, context.name("cut"), context.ttl(3_000));
    let guard = keep(&client, &name, ttl).await?;
    granted_after(context, Fault::CutConnections, false).await?;
    context.pass(ttl).await;
    assert!(guard.is_held(), "{:?} after the cut", guard.state());
    let other = context.name("new");
    let handle = lock(&client, &other);
    let taken = async || handle.try_acquire().await.ok().flatten().is_some();
    context.eventually(context.soon(), "the same client takes new locks", taken).await?;
    guard.release().await?;
    Ok(())
}

async fn silent_connections_are_replaced(context: &mut Context) -> CaseResult {
    let (client, holder) = (context.client().await?, context.client().await?);
    let (name, wanted) = (context.name("kept"), context.name("wanted"));
    // A renewal that was due when the silence began is made up for in time.
    let ttl = context.declared().silence * 2 + context.ttl(4_000);
    let kept = keep(&client, &name, ttl).await?;
    let held = keep(&holder, &wanted, ttl).await?;
    let waiter = lock(&client, &wanted);
    let waiting = tokio::spawn(async move { waiter.acquire().await });
    context.eventually(context.soon(), "the waiter waits", async || client.stats().waiters == 1).await?;
    context.pass(context.ms(200)).await;
    context.inject(Fault::SilenceConnections).await?.heal().await?;
    // An answer may take 1 s, and a connection a moment to open.
    let recovered = context.declared().silence + context.ms(1_000 + 500);
    for number in 0..8 {
        // Names of different connections.
        let other = lock(&client, &context.name(format!("new/{number}")));
        let taken = async || other.try_acquire().await.ok().flatten().is_some();
        context.eventually(recovered, "the client takes a new lock", taken).await?;
    }
    drop(held);
    let guard = context.within(recovered * 2, "the waiter is granted", waiting).await???;
    guard.release().await?;
    context.pass(ttl / 2).await;
    assert!(kept.is_held(), "{:?} after its connection was replaced", kept.state());
    kept.release().await?;
    clean(context, &client, &name, &[&client, &holder]).await
}

async fn idle_connection_cut_costs_no_error(context: &mut Context) -> CaseResult {
    let client = context.client().await?;
    for round in 0..3 {
        // Longer than a driver trusts a connection without a look at it.
        context.pass(context.ms(1_500)).await;
        context.inject(Fault::CutConnections).await?.heal().await?;
        context.pass(context.ms(1_500)).await;
        for number in 0..8 {
            let name = context.name(format!("idle/{round}/{number}"));
            take(&client, &name, context.ttl(20_000)).await?.release().await?;
        }
    }
    Ok(())
}

async fn few_connections_serve_every_name(context: &mut Context) -> CaseResult {
    let healer = context.inject(Fault::FewConnections).await?;
    let client = context.client().await?;
    let ttl = context.ttl(20_000);
    for number in 0..16 {
        take(&client, &context.name(format!("few/{number:b}")), ttl).await?.release().await?;
    }
    let name = context.name("wanted");
    let held = keep(&client, &name, ttl).await?;
    let waiter = lock(&client, &name);
    let waiting = tokio::spawn(async move { waiter.acquire().await });
    context.eventually(context.soon(), "the waiter waits", async || client.stats().waiters == 1).await?;
    held.release().await?;
    context.within(context.soon(), "the waiter is granted", waiting).await???.release().await?;
    Ok(healer.heal().await?)
}

async fn demoted_server_is_left(context: &mut Context) -> CaseResult {
    let (client, holder) = (context.client().await?, context.client().await?);
    let (wanted, ttl) = (context.name("wanted"), context.ttl(6_000));
    let held = keep(&holder, &wanted, ttl).await?;
    let waiter = lock(&client, &wanted);
    let waiting = tokio::spawn(async move { waiter.acquire().await });
    context.eventually(context.soon(), "the waiter waits", async || client.stats().waiters == 1).await?;
    context.inject(Fault::DemoteServer).await?.heal().await?;
    for number in 0..8 {
        // Names of different connections.
        let other = lock(&client, &context.name(format!("new/{number}")));
        let taken = async || other.try_acquire().await.ok().flatten().is_some();
        context.eventually(context.soon(), "the client takes a new lock", taken).await?;
    }
    context.within(ttl + context.soon(), "the holder is notified", held.lost()).await?;
    context.within(ttl + context.soon(), "the waiter is granted", waiting).await???.release().await?;
    let woken = async || handed_over(context, &holder, &client).await.is_ok_and(|took| took < context.ms(2_000));
    context.eventually(context.ms(20_000), "a waiter is woken by the release", woken).await.map(drop)
}

/// How long after its release a lock is granted to a waiter of another client.
async fn handed_over(context: &Context, holder: &Client, client: &Client) -> CaseResult<Duration> {
    let name = context.name("handed");
    let held = keep(holder, &name, context.ttl(20_000)).await?;
    let waiter = lock(client, &name);
    let waiting = tokio::spawn(async move { waiter.acquire().await });
    context.eventually(context.soon(), "the waiter waits", async || client.stats().waiters == 1).await?;
    context.pass(context.ms(200)).await;
    held.release().await?;
    let released = Instant::now();
    context.within(context.soon(), "the waiter is granted", waiting).await???.release().await?;
    Ok(released.elapsed())
}

async fn cut_notifications_only_delay(context: &mut Context) -> CaseResult {
    granted_after(context, Fault::CutNotifications, false).await
}

async fn muted_notifications_only_delay(context: &mut Context) -> CaseResult {
    let (client, layer) = context.layered_with(|builder| builder.presence(Duration::from_millis(2_400))).await?;
    let (holder, name) = (context.client().await?, context.name("muted"));
    let held = keep(&holder, &name, context.ttl(60_000)).await?;
    let healer = context.inject(Fault::MuteNotifications).await?;
    let waiter = lock(&client, &name);
    let waiting = tokio::spawn(async move { waiter.acquire().await });
    let waits = async || layer.frames().iter().any(|frame| frame.answer == crate::layer::Answer::Busy);
    context.eventually(context.soon(), "the waiter waits", waits).await?;
    held.release().await?;
    let guard = context.within(context.ms(2_500), "granted after the release", waiting).await???;
    healer.heal().await?;
    guard.release().await?;
    clean(context, &holder, &name, &[&client, &holder]).await
}

async fn restart_with_data_keeps_the_hold(context: &mut Context) -> CaseResult {
    let (client, name, ttl) = (context.client().await?, context.name("kept"), context.ttl(8_000));
    let guard = keep(&client, &name, ttl).await?;
    let healer = context.inject(Fault::KillServer(Data::Kept)).await?;
    context.pass(context.ms(200)).await;
    healer.heal().await?;
    let probe = context.client().await?;
    let busy = async || matches!(is_free(&probe, &name).await, Ok(false));
    context.eventually(context.soon(), "the server answers that the lock is held", busy).await?;
    context.pass(ttl).await;
    assert!(guard.is_held(), "{:?} after the restart", guard.state());
    assert!(!is_free(&probe, &name).await?);
    guard.release().await?;
    Ok(())
}

async fn restart_without_data_is_a_loss(context: &mut Context) -> CaseResult {
    let (client, name, ttl) = (context.client().await?, context.name("lost"), context.ttl(6_000));
    let guard = keep(&client, &name, ttl).await?;
    context.inject(Fault::KillServer(Data::Lost)).await?.heal().await?;
    context.within(ttl, "the holder is notified", guard.lost()).await?;
    let probe = context.client().await?;
    free_within(context, &probe, &name, ttl + context.soon()).await?;
    let next = keep(&probe, &name, context.ttl(20_000)).await?;
    must_fail(guard.release().await, ErrorKind::Lost)?;
    assert!(!is_free(&client, &name).await?, "the old holder freed the next one's lock");
    next.release().await?;
    Ok(())
}

async fn waiter_survives_a_restart(context: &mut Context) -> CaseResult {
    granted_after(context, Fault::KillServer(Data::Lost), true).await
}

async fn forgotten_scripts_are_sent_again(context: &mut Context) -> CaseResult {
    let (client, other) = (context.client().await?, context.client().await?);
    let ttl = context.ttl(1_200);
    for turn in 0..3 {
        let name = context.name(format!("scripts/{turn}"));
        context.inject(Fault::ForgetScripts).await?.heal().await?;
        let guard = keep(&client, &name, ttl).await?;
        context.inject(Fault::ForgetScripts).await?.heal().await?;
        assert!(lock(&other, &name).acquire_within(context.ms(50)).await.is_err_and(|error| error.is_timed_out()));
        context.inject(Fault::ForgetScripts).await?.heal().await?;
        context.pass(ttl).await;
        assert!(guard.is_held(), "not renewed after scripts were forgotten");
        context.inject(Fault::ForgetScripts).await?.heal().await?;
        guard.release().await?;
        clean(context, &other, &name, &[&client, &other]).await?;
    }
    Ok(())
}

async fn clock_step_forward_keeps_fences(context: &mut Context) -> CaseResult {
    clock_step(context, ClockStep::Forward(Duration::from_secs(120))).await
}

async fn clock_step_back_keeps_fences(context: &mut Context) -> CaseResult {
    clock_step(context, ClockStep::Back(Duration::from_secs(120))).await
}

async fn clock_step(context: &mut Context, step: ClockStep) -> CaseResult {
    let (client, other) = (context.client().await?, context.client().await?);
    let (name, another, ttl) = (context.name("clock"), context.name("held"), context.ttl(60_000));
    let first = take(&client, &name, ttl).await?.fence();
    let held = take(&client, &another, context.ttl(600_000)).await?;
    free_within(context, &other, &name, context.soon()).await?;
    let healer = context.inject(Fault::JumpServerClock(step)).await?;
    // A server may answer one more request with the time that it read before the step.
    is_free(&other, &another).await?;
    let second = take(&other, &name, ttl).await?;
    assert!(second.fence() > first, "fence {} after {first}", second.fence());
    if matches!(step, ClockStep::Back(_)) {
        assert!(!is_free(&other, &another).await?, "a step back ended a lease");
    }
    second.release().await?;
    let (second, third) = (first, take(&client, &name, ttl).await?);
    assert!(third.fence() > second);
    let last = third.fence();
    third.release().await?;
    healer.heal().await?;
    let after = take(&other, &name, ttl).await?;
    assert!(after.fence() > last, "fence {} after {last}, the clock being set back", after.fence());
    drop(held);
    Ok(())
}
