//! Workers that hold a lock whose name depends on the message.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tenure_core::LockName;
use tenure_core::queue::{Job, Reason, RetryPolicy};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::support::{attempts, bench, lease, message, span};
use crate::case::{Case, CaseResult, Context, Need, case};
use crate::cases::support::{free_within, is_free, must};
use crate::layer::{Action, Rule};

pub(in crate::cases) const CASES: &[Case] = &[
    case!(
        "queue/lock-by-value",
        "A worker with a lock for each value holds it while it handles a message: messages of one account are never handled at once.",
        ["P1", "P56"],
        [Need::Queue],
        lock_by_value
    ),
    case!(
        "queue/lock-by-value-fails",
        "If the lock for a value cannot be named, the message fails with the reason, also with a panic's text, and the worker continues.",
        ["P58"],
        [Need::Queue],
        lock_by_value_fails
    ),
    case!(
        "queue/lock-follows-the-lease",
        "When a worker dies, the lock of its message ends with the lease of the message, not later, and can be taken.",
        ["P1", "P56"],
        [Need::Queue],
        lock_follows_the_lease
    ),
];

/// The lock of an account, which is the first byte of a message.
fn account(base: &LockName, value: &[u8]) -> Vec<u8> {
    [base.as_bytes(), b"/", &value[..1]].concat()
}

async fn lock_by_value(context: &mut Context) -> CaseResult {
    let other = bench(context).await?;
    let base = context.name("account");
    let inside: Arc<[AtomicUsize; 2]> = Arc::default();
    let (tell, mut seen) = mpsc::unbounded_channel();
    let mut workers = Vec::new();
    for _ in 0..2 {
        let bench = bench(context).await?;
        let (inside, tell, looker, named) = (Arc::clone(&inside), tell.clone(), other.client.clone(), base.clone());
        let (takes, back_off, by) = (span(context, 30), span(context, 60), base.clone());
        let worker = bench.queue.worker().lock_back_off(back_off);
        let worker = worker.lock_by(move |value: &Vec<u8>| Some(account(&by, value)));
        workers.push(worker.start(move |job: Job<Vec<u8>>| {
            let (inside, tell, looker) = (Arc::clone(&inside), tell.clone(), looker.clone());
            let lock = looker.lock(account(&named, &job.value));
            async move {
                let inside = &inside[usize::from(job.value[0] - b'a')];
                let before = inside.fetch_add(1, Ordering::SeqCst);
                let taken = lock.try_acquire().await?.is_none();
                tokio::time::sleep(takes).await;
                inside.fetch_sub(1, Ordering::SeqCst);
                let _sent = tell.send((job.value[0], job.lock_fence, job.attempt, before, taken));
                Ok::<_, tenure_core::Error>(())
            }
        })?);
    }
    let batch: Vec<_> = (0..12).map(|number| message([b'a' + number % 2, number])).collect();
    other.raw.push(&batch).await?;
    let mut fences: BTreeMap<u8, Vec<_>> = BTreeMap::new();
    for _ in 0..12 {
        let handled = context.within(context.soon() * 3, "handled", seen.recv()).await?.expect("handled");
        let (account, fence, attempt, before, taken) = handled;
        assert_eq!((before, attempt), (0, 1), "two handlers of one account at once");
        assert!(taken, "the lock was free while a message was handled");
        fences.entry(account).or_default().push(fence.expect("the lock is held"));
    }
    for fences in fences.values_mut() {
        fences.dedup();
        assert!(fences.len() == 6 && fences.is_sorted(), "{fences:?}");
    }
    for worker in workers {
        worker.shutdown(context.soon()).await;
    }
    assert_eq!(other.raw.counts().await?, (0, 0, 0, 0));
    for account in [b"a", b"b"] {
        let name = LockName::new([base.as_bytes(), b"/", account].concat())?;
        free_within(context, &other.client, &name, context.soon()).await?; // an attendant may look once more
    }
    Ok(())
}

async fn lock_by_value_fails(context: &mut Context) -> CaseResult {
    let (bench, other) = (bench(context).await?, bench(context).await?);
    let (tell, mut seen) = mpsc::unbounded_channel();
    let worker = bench.queue.worker().retry(RetryPolicy::fixed(Duration::ZERO));
    let worker = worker.lock_by(|value: &Vec<u8>| match value.as_slice() {
        b"panics" => std::panic::resume_unwind(Box::new("no such account")), // without a message on the screen
        b"nameless" => Some(""),
        _ => None,
    });
    let worker = worker.start(move |job: Job<Vec<u8>>| {
        let _sent = tell.send((job.value, job.lock_fence));
        async {}
    })?;
    for text in ["panics", "nameless", "none"] {
        other.raw.store(attempts(message(text), 2)).await?;
    }
    let handled = context.within(context.soon(), "handled", seen.recv()).await?;
    assert_eq!(handled, Some((b"none".to_vec(), None)), "the worker continues, without a lock");
    let dead = async || other.raw.counts().await.map(|counts| counts == (0, 0, 0, 2));
    context.eventually(context.soon(), "dead after two attempts", dead).await?;
    let letters = other.queue.dead_letters().list(None, 2).await?.letters;
    let reason = |text: &[u8]| {
        let letter = letters.iter().find(|letter| letter.payload.as_bytes() == text);
        letter.and_then(|letter| letter.reason.as_ref()).map(Reason::as_str).unwrap_or_default()
    };
    assert_eq!(reason(b"panics"), "lock_by panicked: no such account");
    assert!(reason(b"nameless").starts_with("lock_by: "), "{}", reason(b"nameless"));
    assert!(letters.iter().all(|letter| letter.attempt == 2), "{letters:?}");
    worker.shutdown(context.soon()).await;
    Ok(())
}

async fn lock_follows_the_lease(context: &mut Context) -> CaseResult {
    let (layer, other) = (context.layer().await?, bench(context).await?);
    let client = context.client_over(layer.backend()).build()?;
    let length = context.ttl(600) * 2;
    let queue = client.queue_of_bytes(other.raw.name.as_bytes())?.lease(length);
    let name = context.name("account");
    other.queue.push(&b"x".to_vec()).lock(name.as_bytes()).await?;
    let (tell, mut begun) = mpsc::unbounded_channel();
    let dying = queue.worker().start(move |job: Job<Vec<u8>>| {
        let _sent = tell.send(job.lock_fence);
        std::future::pending::<()>()
    })?;
    let first = context.within(context.soon(), "begun", begun.recv()).await?.flatten();
    context.pass(length * 2).await; // so that lease and lock are extended
    assert!(!is_free(&other.client, &name).await?, "the lock is renewed");
    layer.rule(Rule::always(Action::FailBeforeSend)); // as good as killed
    let start = Instant::now();
    let back = async || {
        let found = other.raw.take(1, lease(context, 30_000)).await.unwrap_or_default();
        found.first().is_some_and(|delivery| delivery.attempt == 2)
    };
    context.eventually(length + context.soon(), "the message is back", back).await?;
    // A lease that ends by itself may take its backend a moment.
    free_within(context, &other.client, &name, context.ms(2_000)).await?;
    let guard = must(other.client.lock(name.as_bytes()).try_acquire().await?, &name)?;
    assert!(first.is_some_and(|first| guard.fence() > first), "{:?} after {first:?}", guard.fence());
    assert!(start.elapsed() < length + context.soon(), "{:?}", start.elapsed());
    layer.heal();
    dying.abort().await;
    assert!(guard.is_held());
    Ok(guard.release().await.map(drop)?)
}
