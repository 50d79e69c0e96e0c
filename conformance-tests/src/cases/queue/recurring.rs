//! Recurring messages, as users see them.

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use tenure_core::driver::MessageState;
use tenure_core::queue::{Ensured, Job, MessageId, Outcome, RetryPolicy, Worker};

use super::support::{Bench, bench, lease, span};
use crate::case::{Case, CaseResult, Context, Need, case};

pub(in crate::cases) const CASES: &[Case] = &[
    case!(
        "queue/recurring-on-many-instances",
        "Instances that all ensure a recurring message handle each of its occurrences once, whichever it is, also one that failed before; the schedule stays in step.",
        ["P54", "P56", "P58"],
        [Need::Queue, Need::QueueAdmin],
        on_many
    ),
    case!(
        "queue/recurring-outlives-failures",
        "An occurrence that is rejected or crashed too often is no dead letter: the next one is scheduled, and the reason can be seen.",
        ["P57", "P58"],
        [Need::Queue, Need::QueueAdmin],
        outlives
    ),
];

const NAME: &str = "nightly";

fn interval(context: &Context) -> Duration {
    span(context, 1_000).max(Duration::from_secs(1))
}

/// The occurrences that were handled.
type Handled = Arc<Mutex<Vec<SystemTime>>>;

/// An instance of a program with a nightly job, which fails at the first attempt.
async fn instance(bench: &Bench, interval: Duration, handled: &Handled) -> CaseResult<(Ensured, Worker)> {
    let ensured = bench.queue.recurring(NAME).every(interval).max_attempts(3).ensure(&b"x".to_vec()).await?;
    let handled = Arc::clone(handled);
    let work = move |job: Job<Vec<u8>>| {
        let outcome = if job.attempt == 1 { Outcome::Retry(None) } else { Outcome::Done };
        if outcome == Outcome::Done {
            handled.lock().expect("not poisoned").extend(job.occurrence);
        }
        async { outcome }
    };
    let retry = RetryPolicy::fixed(Duration::from_millis(20));
    Ok((ensured, bench.queue.worker().retry(retry).start(work)?))
}

async fn on_many(context: &mut Context) -> CaseResult {
    let (interval, handled, mut workers) = (interval(context), Handled::default(), Vec::new());
    let benches = [bench(context).await?, bench(context).await?, bench(context).await?];
    for (number, bench) in benches.iter().enumerate() {
        let (ensured, worker) = instance(bench, interval, &handled).await?;
        assert_eq!(ensured, if number == 0 { Ensured::Created } else { Ensured::Unchanged });
        workers.push(worker);
    }
    let error = benches[0].raw.driver.capabilities().clock_error;
    context.pass(interval * 4 + interval / 2 + error).await;
    for worker in workers {
        let stats = worker.shutdown(interval).await;
        assert_eq!((stats.occurrences_failed, stats.dead), (0, 0));
    }
    let handled = handled.lock().expect("not poisoned").clone();
    assert!((2..=4).contains(&handled.len()), "{handled:?}");
    for pair in handled.windows(2) {
        let apart = pair[1].duration_since(pair[0]).expect("in order").as_millis();
        assert!(apart > 0 && apart % interval.as_millis() == 0, "{handled:?}");
    }
    let (scheduled, ready, in_flight, dead) = benches[0].raw.counts().await?;
    assert_eq!((scheduled + ready, in_flight, dead), (1, 0, 0));
    Ok(())
}

async fn outlives(context: &mut Context) -> CaseResult {
    let (bench, interval, id) = (bench(context).await?, interval(context), MessageId::named(NAME)?);
    let (short, error) = (lease(context, 300).get(), bench.raw.driver.capabilities().clock_error);
    let queue = bench.queue.clone().lease(short);
    queue.recurring(NAME).every(interval).max_attempts(1).ensure(&b"x".to_vec()).await?;
    let rejected = queue.receive().await?;
    let time = rejected.occurrence().expect("it recurs");
    rejected.bury(Some(tenure_core::queue::Reason::new("no paper")?)).await?;
    let info = queue.admin().get(&id).await?.expect("it comes again");
    assert_eq!(
        (info.state, info.attempt, info.reason.expect("why").as_str()),
        (MessageState::Scheduled, 0, "no paper")
    );
    let crashed = queue.receive().await?;
    assert!(crashed.occurrence().expect("it recurs") > time);
    let time = crashed.occurrence().expect("it recurs");
    std::mem::forget(crashed);
    context.pass(short * 2 + error).await;
    let next = queue.receive().await?;
    assert!(next.occurrence().expect("it recurs") > time, "the crashed one is not handled once more");
    assert_eq!((next.attempt(), next.last_failure()), (1, Some(&tenure_core::queue::Reason::lease_ended())));
    next.end_recurrence().await?;
    assert_eq!(bench.raw.counts().await?, (0, 0, 0, 0));
    Ok(())
}
