//! Waiting: its length, its cost, and its certain end.

use std::time::Duration;

use tenure_core::ErrorKind;
use tokio::time::Instant;

use super::support::{clean, is_free, keep, lock, must_fail, take_raw};
use crate::case::{Case, CaseResult, Context, Need, case};
use crate::layer::{Action, Answer, Op, Rule};

pub(super) const CASES: &[Case] = &[
    case!(
        "wait/try-does-not-wait",
        "A try_acquire of a held lock answers at once and asks the backend exactly once.",
        ["P15"],
        [],
        try_does_not_wait
    ),
    case!(
        "wait/try-leaves-no-waiter",
        "A busy try_acquire leaves no place in the queue behind.",
        ["P15"],
        [Need::Introspection],
        try_leaves_no_waiter
    ),
    case!(
        "wait/acquire-waits-for-the-release",
        "An acquire of a held lock waits until it is released, and is then granted.",
        ["R1"],
        [],
        acquire_waits_for_the_release
    ),
    case!(
        "wait/acquire-outlasts-a-dead-holder",
        "An acquire is granted soon after the ttl of a holder that died without a word.",
        ["P17"],
        [],
        acquire_outlasts_a_dead_holder
    ),
    case!(
        "wait/within-is-granted-in-time",
        "An acquire with a limit is granted when the lock is released within it.",
        ["R1", "P16"],
        [],
        within_is_granted_in_time
    ),
    case!(
        "wait/zero-is-one-attempt",
        "A wait of zero is one attempt: granted if free, timed out at once if busy, and never a panic.",
        ["P16", "R8"],
        [],
        zero_is_one_attempt
    ),
    case!(
        "wait/woken-by-the-release",
        "Where the backend wakes, a release is followed by the grant long before the waiter would have asked again.",
        ["P18"],
        [Need::Wakeups],
        woken_by_the_release
    ),
    case!(
        "wait/turn-lasts",
        "A lock that was handed to a waiter is kept for as long as its holder wants, and no other client gets it.",
        ["P1", "P6"],
        [],
        turn_lasts
    ),
    case!(
        "wait/idle-waiting-does-not-poll",
        "Where the backend wakes, a waiter asks nothing while nothing happens.",
        ["P18", "P30"],
        [Need::Wakeups],
        idle_waiting_does_not_poll
    ),
    case!(
        "wait/lost-wake-ups-only-delay",
        "With every wake-up lost, a waiter is granted within a third of its presence after the release.",
        ["P18"],
        [],
        lost_wake_ups_only_delay
    ),
    case!(
        "wait/survives-an-outage",
        "A waiter that has heard from the backend waits through an outage and is granted after it.",
        ["P18", "P26"],
        [],
        survives_an_outage
    ),
];

async fn try_does_not_wait(context: &mut Context) -> CaseResult {
    let (client, layer) = context.layered().await?;
    let (other, name) = (context.client().await?, context.name("try"));
    let holder = keep(&other, &name, context.ttl(20_000)).await?;
    let began = Instant::now();
    assert!(lock(&client, &name).try_acquire().await?.is_none());
    assert!(began.elapsed() < context.ms(900), "try_acquire took {:?}", began.elapsed());
    assert_eq!(layer.frames_of(Op::Acquire, &name).len(), 1, "one attempt is one request");
    holder.release().await?;
    clean(context, &other, &name, &[&client, &other]).await
}

async fn try_leaves_no_waiter(context: &mut Context) -> CaseResult {
    let (client, other) = (context.client().await?, context.client().await?);
    let name = context.name("no-waiter");
    let holder = keep(&other, &name, context.ttl(20_000)).await?;
    for _ in 0..3 {
        assert!(lock(&client, &name).try_acquire().await?.is_none());
    }
    assert_eq!(lock(&other, &name).inspect().await?.waiters, 0, "try_acquire joined the queue");
    holder.release().await?;
    assert!(is_free(&other, &name).await?, "the lock is kept for a client that only tried");
    Ok(())
}

async fn acquire_waits_for_the_release(context: &mut Context) -> CaseResult {
    let (client, other) = (context.client().await?, context.client().await?);
    let (name, span) = (context.name("waits"), context.ms(400));
    let holder = keep(&other, &name, context.ttl(20_000)).await?;
    let began = Instant::now();
    let release = async {
        tokio::time::sleep(span).await;
        holder.release().await
    };
    let waiter = lock(&client, &name);
    let acquire = async {
        let guard = context.within(span + context.soon(), "granted after the release", waiter.acquire()).await;
        (guard, began.elapsed())
    };
    let ((guard, waited), released) = tokio::join!(acquire, release);
    assert!(waited >= span, "granted after {waited:?}, before the release");
    released?;
    guard??.release().await?;
    clean(context, &other, &name, &[&client, &other]).await
}

async fn acquire_outlasts_a_dead_holder(context: &mut Context) -> CaseResult {
    let backend = context.backend().await?;
    let (client, name, ttl) = (context.client().await?, context.name("dead"), context.ttl(500));
    take_raw(&**backend.locks(), &name, ttl).await?;
    let began = Instant::now();
    let waiter = lock(&client, &name);
    let guard = context.within(ttl + context.ms(1_500), "granted after the ttl", waiter.acquire()).await??;
    assert!(began.elapsed() >= ttl / 2, "granted after {:?} of {ttl:?}", began.elapsed());
    guard.release().await?;
    Ok(())
}

async fn within_is_granted_in_time(context: &mut Context) -> CaseResult {
    let (client, other) = (context.client().await?, context.client().await?);
    let (name, span) = (context.name("granted"), context.ms(300));
    let holder = keep(&other, &name, context.ttl(20_000)).await?;
    let release = async {
        tokio::time::sleep(span).await;
        holder.release().await
    };
    let waiter = lock(&client, &name);
    let (began, limit) = (Instant::now(), context.soon() * 2);
    let acquire = async { (waiter.acquire_within(limit).await, began.elapsed()) };
    let ((guard, waited), released) = tokio::join!(acquire, release);
    assert!(waited >= span && waited < limit, "granted after {waited:?}");
    released?;
    guard?.release().await?;
    clean(context, &other, &name, &[&client, &other]).await
}

async fn zero_is_one_attempt(context: &mut Context) -> CaseResult {
    let (client, layer) = context.layered().await?;
    let (other, name) = (context.client().await?, context.name("zero"));
    let guard = lock(&client, &name).acquire_within(Duration::ZERO).await?;
    guard.release().await?;
    let holder = keep(&other, &name, context.ttl(20_000)).await?;
    let (before, began) = (layer.frames_of(Op::Acquire, &name).len(), Instant::now());
    must_fail(lock(&client, &name).acquire_within(Duration::ZERO).await, ErrorKind::TimedOut)?;
    assert!(began.elapsed() < context.ms(900), "a wait of zero took {:?}", began.elapsed());
    assert_eq!(layer.frames_of(Op::Acquire, &name).len() - before, 1, "one attempt is one request");
    holder.release().await?;
    clean(context, &other, &name, &[&client, &other]).await
}

async fn woken_by_the_release(context: &mut Context) -> CaseResult {
    let (client, layer) = context.layered_with(|builder| builder.presence(Duration::from_secs(60))).await?;
    let (other, name) = (context.client().await?, context.name("woken"));
    for _ in 0..3 {
        let holder = keep(&other, &name, context.ttl(120_000)).await?;
        let asked = layer.frames_of(Op::Acquire, &name).len();
        let waiter = lock(&client, &name);
        let waiting = tokio::spawn(async move { waiter.acquire().await });
        let waits = async || layer.frames_of(Op::Acquire, &name)[asked..].iter().any(|f| f.answer == Answer::Busy);
        context.eventually(context.soon(), "the waiter waits", waits).await?;
        holder.release().await?;
        let guard = context.within(context.ms(2_000), "granted soon after the release", waiting).await???;
        guard.release().await?;
    }
    Ok(())
}

async fn turn_lasts(context: &mut Context) -> CaseResult {
    let (client, layer) = context.layered().await?;
    let (other, name, ttl) = (context.client().await?, context.name("lasts"), context.ttl(4_000));
    let holder = keep(&other, &name, context.ttl(60_000)).await?;
    let waiter = lock(&client, &name).ttl(ttl);
    let waiting = tokio::spawn(async move { waiter.acquire().await });
    let waits = async || layer.frames_of(Op::Acquire, &name).iter().any(|frame| frame.answer == Answer::Busy);
    context.eventually(context.soon(), "the waiter waits", waits).await?;
    holder.release().await?;
    let guard = context.within(context.soon(), "its turn comes", waiting).await???;
    let until = Instant::now() + ttl + ttl / 4;
    while Instant::now() < until {
        assert!(lock(&other, &name).try_acquire().await?.is_none(), "another got it");
        assert!(guard.is_held(), "{:?}", guard.state());
        context.pass(ttl / 20).await;
    }
    guard.release().await?;
    clean(context, &other, &name, &[&client, &other]).await
}

async fn idle_waiting_does_not_poll(context: &mut Context) -> CaseResult {
    let (client, layer) = context.layered_with(|builder| builder.presence(Duration::from_secs(60))).await?;
    let (other, name) = (context.client().await?, context.name("idle"));
    let holder = keep(&other, &name, context.ttl(120_000)).await?;
    let waiter = lock(&client, &name);
    let waiting = tokio::spawn(async move { waiter.acquire().await });
    let waits = async || layer.frames_of(Op::Acquire, &name).iter().any(|frame| frame.answer == Answer::Busy);
    context.eventually(context.soon(), "the waiter waits", waits).await?;
    context.pass(context.ms(200)).await;
    let before = layer.count();
    context.pass(context.ms(2_000)).await;
    assert_eq!(layer.count(), before, "requests while nothing happens: {:?}", layer.frames().last());
    holder.release().await?;
    let guard = context.within(context.soon(), "granted after the release", waiting).await???;
    guard.release().await?;
    clean(context, &other, &name, &[&client, &other]).await
}

async fn lost_wake_ups_only_delay(context: &mut Context) -> CaseResult {
    let presence = context.ms(1_500);
    let (client, layer) = context.layered_with(|builder| builder.presence(presence)).await?;
    let (other, name) = (context.client().await?, context.name("muted"));
    layer.mute();
    let holder = keep(&other, &name, context.ttl(120_000)).await?;
    let waiter = lock(&client, &name);
    let waiting = tokio::spawn(async move { waiter.acquire().await });
    let waits = async || layer.frames_of(Op::Acquire, &name).iter().any(|frame| frame.answer == Answer::Busy);
    context.eventually(context.soon(), "the waiter waits", waits).await?;
    holder.release().await?;
    let guard = context.within(presence / 3 + context.ms(800), "granted after the release", waiting).await???;
    guard.release().await?;
    clean(context, &other, &name, &[&client, &other]).await
}

async fn survives_an_outage(context: &mut Context) -> CaseResult {
    let (client, layer) = context.layered_with(|builder| builder.presence(Duration::from_millis(1_500))).await?;
    let (other, name) = (context.client().await?, context.name("outage"));
    let holder = keep(&other, &name, context.ttl(120_000)).await?;
    let waiter = lock(&client, &name);
    let waiting = tokio::spawn(async move { waiter.acquire().await });
    let waits = async || layer.frames_of(Op::Acquire, &name).iter().any(|frame| frame.answer == Answer::Busy);
    context.eventually(context.soon(), "the waiter waits", waits).await?;
    layer.mute();
    layer.rule(Rule::always(Action::FailBeforeSend));
    let failed = |frame: &crate::layer::Frame| frame.answer == Answer::Failed(ErrorKind::Unavailable);
    let asked = async |least| {
        let outage = async || layer.frames_of(Op::Acquire, &name).iter().filter(|frame| failed(frame)).count() >= least;
        context.eventually(context.soon(), "the waiter asks again during the outage", outage).await
    };
    asked(1).await?; // none that was sent before the outage is under way any more
    holder.release().await?;
    asked(3).await?;
    assert!(!waiting.is_finished(), "the outage ended the wait");
    layer.heal();
    let guard = context.within(context.soon(), "granted after the outage", waiting).await???;
    guard.release().await?;
    clean(context, &other, &name, &[&client, &other]).await
}
