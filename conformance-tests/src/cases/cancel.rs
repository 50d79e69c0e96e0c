//! Futures that are dropped half-way, at every await point.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{LocalBoxFuture, join_all};
use tenure_core::{Client, LockName};

use super::support::{clean, is_free, keep, lock};
use crate::case::{Case, CaseResult, Context, Failure, Need, case};
use crate::harness::{Fault, FaultKind};
use crate::layer::{Action, FaultLayer, Op, Rule};
use crate::poll;

pub(super) const CASES: &[Case] = &[
    case!(
        "cancel/try-acquire-at-every-poll",
        "A try_acquire that is dropped at any await point leaves no lock, no waiter and no clean-up behind.",
        ["P12", "R12"],
        [],
        try_acquire_at_every_poll
    ),
    case!(
        "cancel/waiting-acquire-at-every-poll",
        "An acquire that waits and is dropped at any await point leaves no lock and no place in the queue behind.",
        ["P12", "R12"],
        [],
        waiting_acquire_at_every_poll
    ),
    case!(
        "cancel/acquire-within-at-every-poll",
        "An acquire with a time limit that is dropped at any await point leaves nothing behind.",
        ["P12", "R12"],
        [],
        acquire_within_at_every_poll
    ),
    case!(
        "cancel/release-at-every-poll",
        "A release that is dropped at any await point is carried on: the lock becomes free without its ttl passing.",
        ["P10", "P12", "P13"],
        [],
        release_at_every_poll
    ),
    case!(
        "cancel/run-at-every-poll",
        "Dropping a guarded piece of work at any await point leaves the lock held and releasable.",
        ["P12"],
        [],
        run_at_every_poll
    ),
    case!(
        "cancel/a-thousand-against-a-silent-backend",
        "A thousand acquisitions that are cancelled while the backend is silent leave nothing behind once it answers.",
        ["P11", "P12", "P13", "R12"],
        [],
        a_thousand_against_a_silent_backend
    ),
    case!(
        "cancel/a-thousand-against-a-paused-server",
        "A thousand acquisitions that are cancelled around pauses of the server leave nothing behind after the last.",
        ["P11", "P12", "P13", "R12"],
        [Need::Fault(FaultKind::PauseServer)],
        a_thousand_against_a_paused_server
    ),
];

/// How the driver's calls are slowed down, so that they have await points before and after they are applied.
pub(super) const PACES: [Option<Action>; 3] =
    [None, Some(Action::DelayReply(Duration::from_millis(2))), Some(Action::DelayRequest(Duration::from_millis(2)))];

/// More polls than anything needs.
pub(super) const ENOUGH: usize = 200;

/// Runs `scenario` with 1, 2, 3, … polls until it completes, for each pace; checks that nothing is left each time.
pub(super) async fn at_every_poll<S>(context: &mut Context, op: Op, mut scenario: S) -> CaseResult
where
    S: for<'a> FnMut(&'a Client, &'a Client, &'a LockName, usize) -> LocalBoxFuture<'a, CaseResult<bool>>,
{
    let probe = context.client().await?;
    for (index, pace) in PACES.into_iter().enumerate() {
        let (client, layer): (Client, FaultLayer) = context.layered().await?;
        if let Some(action) = pace {
            layer.rule(Rule::on(op, action));
        }
        let mut completed = false;
        for polls in 1..=ENOUGH {
            let name = context.name(format!("{index}/{polls}"));
            completed = scenario(&client, &probe, &name, polls).await?;
            clean(context, &probe, &name, &[&client]).await?;
            if completed {
                break;
            }
        }
        if !completed {
            return Err(Failure::new(format!("not completed after {ENOUGH} polls")));
        }
    }
    Ok(())
}

async fn try_acquire_at_every_poll(context: &mut Context) -> CaseResult {
    let ttl = context.ttl(60_000);
    at_every_poll(context, Op::Acquire, |client, _, name, polls| {
        async move {
            let handle = lock(client, name).ttl(ttl);
            let outcome = poll::at_most(polls, handle.try_acquire()).await.transpose()?;
            Ok(outcome.map(|won| assert!(won.is_some(), "a free lock was busy")).is_some())
        }
        .boxed_local()
    })
    .await
}

/// A lock that is held by `probe` and released a little later, so that a waiter may be granted.
async fn waiting<'a, F, T>(client: &'a Client, probe: &'a Client, name: &'a LockName, wait: F) -> CaseResult<bool>
where
    F: FnOnce(tenure_core::Lock) -> LocalBoxFuture<'a, Option<tenure_core::Result<T>>>,
{
    let holder = keep(probe, name, Duration::from_secs(60)).await?;
    let release = async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        holder.release().await
    };
    let handle = lock(client, name).ttl(Duration::from_secs(60));
    let (won, released) = tokio::join!(wait(handle), release);
    released?;
    Ok(won.transpose()?.is_some())
}

async fn waiting_acquire_at_every_poll(context: &mut Context) -> CaseResult {
    at_every_poll(context, Op::Acquire, |client, probe, name, polls| {
        let wait =
            move |handle: tenure_core::Lock| async move { poll::at_most(polls, handle.acquire()).await }.boxed_local();
        waiting(client, probe, name, wait).boxed_local()
    })
    .await
}

async fn acquire_within_at_every_poll(context: &mut Context) -> CaseResult {
    let limit = context.soon();
    at_every_poll(context, Op::Acquire, |client, probe, name, polls| {
        let wait = move |handle: tenure_core::Lock| {
            async move { poll::at_most(polls, handle.acquire_within(limit)).await }.boxed_local()
        };
        waiting(client, probe, name, wait).boxed_local()
    })
    .await
}

async fn release_at_every_poll(context: &mut Context) -> CaseResult {
    let ttl = context.ttl(60_000);
    at_every_poll(context, Op::Release, |client, _, name, polls| {
        async move {
            let guard = keep(client, name, ttl).await?;
            Ok(poll::at_most(polls, guard.release()).await.transpose()?.is_some())
        }
        .boxed_local()
    })
    .await
}

async fn run_at_every_poll(context: &mut Context) -> CaseResult {
    let ttl = context.ttl(60_000);
    at_every_poll(context, Op::Renew, |client, probe, name, polls| {
        async move {
            let guard = keep(client, name, ttl).await?;
            let work = guard.run(async {
                for _ in 0..3 {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            });
            let done = poll::at_most(polls, work).await.transpose()?.is_some();
            assert!(guard.is_held() && !is_free(probe, name).await?, "the dropped work took the lock along");
            guard.release().await?;
            Ok(done)
        }
        .boxed_local()
    })
    .await
}

async fn a_thousand_against_a_silent_backend(context: &mut Context) -> CaseResult {
    let probe = context.client().await?;
    let (client, layer) = context.layered().await?;
    for wave in 0..10 {
        layer.rule(Rule::always(Action::Hang));
        cancel_a_hundred(context, &client, wave).await?;
        layer.heal();
    }
    nothing_left(context, &probe, &client).await
}

async fn a_thousand_against_a_paused_server(context: &mut Context) -> CaseResult {
    let probe = context.client().await?;
    let client = context.client().await?;
    for wave in 0..10 {
        let healer = context.inject(Fault::PauseServer).await?;
        cancel_a_hundred(context, &client, wave).await?;
        healer.heal().await?;
    }
    nothing_left(context, &probe, &client).await
}

const NAMES: usize = 10;

/// A hundred acquisitions on ten names, each dropped at a random instant within a tenth of a second.
async fn cancel_a_hundred(context: &mut Context, client: &Client, wave: u64) -> CaseResult {
    let mut attempts = Vec::new();
    for index in 0..100 {
        let name = context.name(format!("name/{}", index % NAMES));
        let handle = lock(client, &name).ttl(Duration::from_secs(600));
        let span = Duration::from_micros(context.rng().below(100_000));
        let waits = (index as u64 + wave).is_multiple_of(2);
        attempts.push(async move {
            let attempt = async {
                match waits {
                    true => handle.acquire().await.map(Some),
                    false => handle.try_acquire().await,
                }
            };
            // Granted, refused or given up: whatever it was is dropped here.
            drop(tokio::time::timeout(span, attempt).await);
        });
    }
    join_all(attempts).await;
    Ok(())
}

async fn nothing_left(context: &Context, probe: &Client, client: &Client) -> CaseResult {
    let undone = async || client.stats().cleanups == 0;
    context.eventually(context.soon() * 6, "all that was given up is undone", undone).await?;
    for index in 0..NAMES {
        clean(context, probe, &context.name(format!("name/{index}")), &[client]).await?;
    }
    // Nothing that was on its way may take a lock later, either.
    context.pass(context.ms(300)).await;
    for index in 0..NAMES {
        let name = context.name(format!("name/{index}"));
        assert!(is_free(probe, &name).await?, "\"{name}\" was taken by a request that had been given up");
    }
    Ok(())
}
