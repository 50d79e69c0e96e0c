//! Several processes: killed, stopped, contending.

use std::time::Duration;

use tenure_core::OwnerId;
use tokio::time::Instant;

use super::reentry::{enter, reentrant};
use super::support::{clean, is_free, keep, lock};
use crate::case::{Case, CaseResult, Context, Failure, Need, case};
use crate::history::{Assumption, Grant, check};
use crate::layer::{Answer, Op};
use crate::witness::{FencedRegister, UnfencedRegister};
use crate::worker::{Worker, hex};

pub(super) const CASES: &[Case] = &[
    case!(
        "process/killed-holder-is-outlasted",
        "When the process that holds a lock is killed, a waiter of another process is granted soon after the ttl.",
        ["P17", "P20"],
        [Need::Processes],
        killed_holder_is_outlasted
    ),
    case!(
        "process/killed-waiter-lapses",
        "When a process that waits is killed, those behind it wait for its presence at most.",
        ["P17", "P24"],
        [Need::Processes],
        killed_waiter_lapses
    ),
    case!(
        "process/killed-waiter-is-passed-over",
        "When a process that waits is killed, the next grant comes as soon as the backend declares, whatever its presence.",
        ["P17", "P24"],
        [Need::Processes, Need::PastKilledWaiters],
        killed_waiter_is_passed_over
    ),
    case!(
        "process/stopped-holder-is-fenced-off",
        "A process that was stopped past its lease knows of its loss when it wakes, and its fence refuses its writes.",
        ["P4", "P19", "P20", "P21"],
        [Need::Processes],
        stopped_holder_is_fenced_off
    ),
    case!(
        "process/contending-history-is-clean",
        "Several processes that contend for one name never hold it at the same time, and their fences are in order.",
        ["P1", "P2", "P3", "P19", "P20", "P21"],
        [Need::Processes],
        contending_history_is_clean
    ),
    case!(
        "process/owner-spans-processes",
        "The same owner id in another process is the same owner: it enters the lock and shares its count.",
        ["P31", "P35"],
        [Need::Processes, Need::Reentrant, Need::BackendWideOwners],
        owner_spans_processes
    ),
];

async fn worker(context: &Context) -> CaseResult<Worker> {
    Worker::start(context.worker_command()?, context.ms(20_000)).await
}

fn number(words: &[String], at: usize) -> CaseResult<u64> {
    Ok(words.get(at).ok_or_else(|| Failure::new("a short answer"))?.parse()?)
}

async fn killed_holder_is_outlasted(context: &mut Context) -> CaseResult {
    let (client, name, ttl) = (context.client().await?, context.name("killed"), context.ttl(1_000));
    let mut holder = worker(context).await?;
    let fence = number(&holder.ask(&format!("keep {} {}", hex(&name), ttl.as_millis()), "took").await?, 0)?;
    let waiter = lock(&client, &name);
    let waiting = tokio::spawn(async move { waiter.acquire().await });
    context.pass(ttl * 2).await;
    assert!(!waiting.is_finished(), "granted while the other process holds and renews");
    holder.kill()?;
    let killed = Instant::now();
    let guard = context.within(ttl + context.ms(2_000), "granted soon after the ttl", waiting).await???;
    assert!(guard.fence().get() > fence);
    assert!(killed.elapsed() <= ttl + context.ms(2_000));
    guard.release().await?;
    clean(context, &client, &name, &[&client]).await
}

async fn killed_waiter_lapses(context: &mut Context) -> CaseResult {
    let (holder, name, presence) = (context.client().await?, context.name("waiter"), context.ms(1_200));
    let (client, layer) = context.layered_with(|builder| builder.presence(presence)).await?;
    let held = keep(&holder, &name, context.ttl(60_000)).await?;
    let mut dead = worker(context).await?;
    let command = format!("wait {} {} {}", hex(&name), context.ttl(60_000).as_millis(), presence.as_millis());
    dead.ask(&command, "waiting").await?;
    let waiter = lock(&client, &name);
    let waiting = tokio::spawn(async move { waiter.acquire().await });
    let waits = async || layer.frames_of(Op::Acquire, &name).iter().any(|frame| frame.answer == Answer::Busy);
    context.eventually(context.soon(), "the second waiter waits", waits).await?;
    dead.kill()?;
    held.release().await?;
    let limit = presence + presence / 3 + context.ms(2_500);
    let guard = context.within(limit, "the killed waiter lapses", waiting).await???;
    guard.release().await?;
    clean(context, &holder, &name, &[&holder, &client]).await
}

/// The bound may be shorter than what a busy machine takes now and then: it is kept once in a few rounds. A waiter that dies in the
/// instant of the release may be handed the lock all the same, which the next one notices at its heartbeat. Its own heartbeats are far
/// apart: one that is on its way when it dies would take the lock for the whole ttl.
async fn killed_waiter_is_passed_over(context: &mut Context) -> CaseResult {
    const ROUNDS: usize = 3;
    const PRESENCE: Duration = Duration::from_secs(12);
    const OF_THE_DEAD: Duration = Duration::from_secs(120);
    let limit = context.declared().past_killed_waiters.ok_or_else(|| Failure::new("no bound is declared"))?;
    let limit = context.ms(u64::try_from(limit.as_millis())?);
    let holder = context.client().await?;
    let (client, layer) = context.layered_with(|builder| builder.presence(PRESENCE)).await?;
    let mut took = Vec::new();
    while took.len() < ROUNDS {
        let name = context.name(format!("killed/{}", took.len()));
        let held = keep(&holder, &name, context.ttl(60_000)).await?;
        let mut dead = worker(context).await?;
        let command = format!("wait {} {} {}", hex(&name), context.ttl(60_000).as_millis(), OF_THE_DEAD.as_millis());
        dead.ask(&command, "waiting").await?;
        let waiter = lock(&client, &name);
        let waiting = tokio::spawn(async move { waiter.acquire().await });
        let waits = async || layer.frames_of(Op::Acquire, &name).iter().any(|frame| frame.answer == Answer::Busy);
        context.eventually(context.soon(), "the second waiter waits", waits).await?;
        dead.kill()?;
        let killed = Instant::now();
        held.release().await?;
        let patience = limit + PRESENCE / 3 + context.soon();
        let guard = context.within(patience, "the killed waiter is passed over", waiting).await???;
        took.push(killed.elapsed());
        guard.release().await?;
        clean(context, &holder, &name, &[&holder, &client]).await?;
        if took.iter().any(|took| *took <= limit) {
            return Ok(());
        }
    }
    Err(Failure::new(format!("passed over after {took:?}, not once within {limit:?}")))
}

async fn stopped_holder_is_fenced_off(context: &mut Context) -> CaseResult {
    let (client, name, ttl) = (context.client().await?, context.name("stopped"), context.ttl(1_000));
    let (fenced, unfenced) = (FencedRegister::default(), UnfencedRegister::default());
    let mut paused = worker(context).await?;
    let stale = number(&paused.ask(&format!("keep {} {}", hex(&name), ttl.as_millis()), "took").await?, 0)?;
    let stale = tenure_core::FencingToken::new(stale).ok_or_else(|| Failure::new("a fence of 0"))?;
    assert!(fenced.write(stale).is_ok());
    unfenced.write(stale);
    assert_eq!(paused.ask("held", "held").await?, ["yes"]);
    paused.stop()?;
    let waiter = lock(&client, &name);
    let next = context.within(ttl + context.ms(2_500), "granted after the ttl", waiter.acquire()).await??;
    assert!(fenced.write(next.fence()).is_ok());
    unfenced.write(next.fence());
    paused.go_on()?;
    assert_eq!(paused.ask("held", "held").await?, ["no"], "on waking the process believes to hold the lock");
    let refused = fenced.write(stale);
    unfenced.write(stale);
    assert!(refused.is_err() && fenced.is_in_order() && unfenced.is_corrupt());
    assert_eq!(paused.ask("release", "not-held").await?, Vec::<String>::new());
    assert!(next.is_held() && !is_free(&client, &name).await?, "the woken process freed the next holder's lock");
    next.release().await?;
    clean(context, &client, &name, &[&client]).await
}

async fn contending_history_is_clean(context: &mut Context) -> CaseResult {
    let (name, ttl) = (context.name("contend"), context.ttl(3_000));
    let mut workers = [worker(context).await?, worker(context).await?, worker(context).await?];
    for worker in &mut workers {
        worker.send(&format!("turns {} 12 {}", hex(&name), ttl.as_millis()))?;
    }
    let mut grants = Vec::new();
    for (client, worker) in workers.iter_mut().enumerate() {
        loop {
            let line = worker.answer().await?;
            if line == "done" {
                break;
            }
            let words: Vec<String> = line.split(' ').skip(1).map(str::to_owned).collect();
            let at = |index| number(&words, index).map(Duration::from_nanos);
            let (asked_at, granted_at, valid_until, ended_at) = (at(1)?, at(2)?, at(3)?, at(4)?);
            grants.push(Grant { client, fence: number(&words, 0)?, asked_at, granted_at, valid_until, ended_at });
        }
    }
    assert_eq!(grants.len(), 36);
    let found = check(&grants, Some(ttl), Assumption::Timed);
    assert!(found.is_empty(), "{}", found[0]);
    Ok(())
}

async fn owner_spans_processes(context: &mut Context) -> CaseResult {
    let (client, name, me) = (context.client().await?, context.name("owner"), OwnerId::new());
    let mut other = worker(context).await?;
    let outer = enter(&client, &name, &me).await?;
    let command = format!("enter {} {me} {}", hex(&name), context.ttl(20_000).as_millis());
    let words = other.ask(&command, "entered").await?;
    assert_eq!((number(&words, 0)?, number(&words, 1)?), (outer.fence().get(), 2));
    assert!(reentrant(&client, &name, &OwnerId::new()).try_acquire().await?.is_none());
    assert_eq!(outer.release().await?, 1);
    assert!(!is_free(&client, &name).await?, "free while the other process is inside");
    other.ask("release", "released").await?;
    clean(context, &client, &name, &[&client]).await
}
