//! The engine over a scripted driver, under a paused clock: what leaves, when, and what is concluded from it.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use tenure_core::driver::{
    AcquireRequest, Acquisition, Backend, Begun, Busy, DistributedLock, Exclusion, Fencing, ForceReleased, Grant, Hold,
    Inspection, Introspection, LockCapabilities, Released, Renewed, Revocation, Ttl, TtlRange, Waiting, WakeRouter,
    Watch,
};
use tenure_core::{Client, Error, ErrorKind, FencingToken, HoldState, LockName, LostReason, OwnerToken, Result};
use tokio::time::{Instant, sleep};

const TTL: Duration = Duration::from_secs(30);

/// What the next call of a kind does.
#[derive(Clone, Copy, Debug)]
enum Step {
    Grant,
    GrantEarlier,
    Busy,
    Fail(ErrorKind),
    /// The answer takes this long.
    Slow(Duration),
    Lost,
}

/// Plays back steps and notes what was sent, with the time since the start.
#[derive(Debug)]
struct Script {
    start: Instant,
    acquire: Mutex<Vec<Step>>,
    renew: Mutex<Vec<Step>>,
    frames: Mutex<Vec<(&'static str, OwnerToken, Duration)>>,
    wakes: WakeRouter,
}

impl Script {
    fn client(acquire: &[Step], renew: &[Step]) -> (Arc<Self>, Client) {
        let back = |steps: &[Step]| Mutex::new(steps.iter().rev().copied().collect());
        let script = Arc::new(Self {
            start: Instant::now(),
            acquire: back(acquire),
            renew: back(renew),
            frames: Mutex::default(),
            wakes: WakeRouter::default(),
        });
        let client = Client::new(Backend::new(Arc::clone(&script) as Arc<dyn DistributedLock>));
        (script, client)
    }

    fn note(&self, what: &'static str, token: &OwnerToken) {
        self.frames.lock().unwrap().push((what, *token, self.start.elapsed()));
    }

    fn sent(&self, what: &str) -> Vec<(OwnerToken, Duration)> {
        let frames = self.frames.lock().unwrap();
        frames.iter().filter(|frame| frame.0 == what).map(|frame| (frame.1, frame.2)).collect()
    }

    async fn play(&self, steps: &Mutex<Vec<Step>>) -> Step {
        let step = steps.lock().unwrap().pop().unwrap_or(Step::Grant);
        match step {
            Step::Slow(delay) => {
                sleep(delay).await;
                Step::Grant
            }
            step => step,
        }
    }
}

#[async_trait]
impl DistributedLock for Script {
    fn driver(&self) -> &'static str {
        "script"
    }

    fn capabilities(&self) -> LockCapabilities {
        LockCapabilities::new(
            Exclusion::Process,
            Fencing::Strict,
            Waiting::Fifo,
            TtlRange {
                min: Duration::from_millis(10),
                max: Duration::from_secs(60),
                granularity: Duration::from_millis(1),
            },
        )
        .with_introspection(Introspection::None)
        .with_revocation(Revocation::None)
        .with_renew_batch(2)
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Acquisition> {
        self.note("acquire", &request.token);
        let grant = |begun| {
            let fence = FencingToken::new(7).unwrap();
            Ok(Acquisition::Granted(Grant::new(fence, request.ttl.get()).with_begun(begun)))
        };
        match self.play(&self.acquire).await {
            Step::Grant => grant(Begun::Now),
            Step::GrantEarlier => grant(Begun::Earlier),
            Step::Fail(kind) => Err(Error::new(kind, "scripted")),
            _ => Ok(Acquisition::Busy(Busy::default().with_position(Some(0)))),
        }
    }

    async fn renew(&self, ttl: Ttl, holds: &[Hold]) -> Vec<Result<Renewed>> {
        assert!(holds.len() <= 2, "no more than renew_batch");
        holds.iter().for_each(|hold| self.note("renew", &hold.token));
        let step = self.play(&self.renew).await;
        let answer = |_| match step {
            Step::Fail(kind) => Err(Error::new(kind, "scripted")),
            Step::Lost => Ok(Renewed::Lost),
            _ => Ok(Renewed::Extended { ttl: ttl.get() }),
        };
        holds.iter().map(answer).collect()
    }

    async fn release(&self, hold: &Hold) -> Result<Released> {
        self.note("release", &hold.token);
        Ok(Released::Released)
    }

    async fn abandon(&self, hold: &Hold) -> Result<()> {
        self.note("abandon", &hold.token);
        Ok(())
    }

    async fn watch(&self, _name: &LockName, token: &OwnerToken) -> Result<Watch> {
        Ok(self.wakes.register(*token))
    }

    async fn inspect(&self, _name: &LockName) -> Result<Inspection> {
        Err(Error::new(ErrorKind::Unsupported, "scripted"))
    }

    async fn force_release(&self, _: &LockName, _: Option<FencingToken>) -> Result<ForceReleased> {
        Err(Error::new(ErrorKind::Unsupported, "scripted"))
    }

    async fn close(&self) {}
}

#[tokio::test(start_paused = true)]
async fn the_window_counts_from_before_the_send() {
    let (_, client) = Script::client(&[Step::Slow(Duration::from_millis(600))], &[]);
    let guard = client.lock("a").ttl(TTL).try_acquire().await.unwrap().unwrap();
    let most = TTL - TTL / 100 - Duration::from_millis(2) - TTL / 1000 - Duration::from_millis(600);
    assert!(
        guard.remaining() <= most && guard.remaining() > most - Duration::from_millis(5),
        "{:?}",
        guard.remaining()
    );
}

#[tokio::test(start_paused = true)]
async fn an_earlier_grant_counts_from_the_unanswered_request() {
    let steps = [Step::Busy, Step::Fail(ErrorKind::Indeterminate), Step::GrantEarlier];
    let (script, client) = Script::client(&steps, &[]);
    let guard = client.lock("a").ttl(TTL).acquire().await.unwrap();
    let asked = script.sent("acquire");
    assert_eq!(asked.len(), 3);
    assert!(asked.iter().all(|frame| frame.0 == asked[0].0), "one acquisition asks with one token");
    let age = script.start.elapsed() - asked[1].1;
    let window = guard.remaining() + age;
    assert!(window <= TTL && window > TTL * 95 / 100, "it begins with the request whose answer was lost: {window:?}");
}

#[tokio::test(start_paused = true)]
async fn a_token_with_an_unanswered_request_is_abandoned_in_the_end() {
    let steps = [Step::Busy, Step::Fail(ErrorKind::Indeterminate), Step::Grant, Step::Grant];
    let (script, client) = Script::client(&steps, &[]);
    client.lock("a").acquire().await.unwrap().release().await.unwrap();
    drop(client.lock("a").acquire().await.unwrap());
    client.close(TTL).await.unwrap();
    let token = script.sent("acquire")[1].0;
    let abandoned: Vec<_> = script.sent("abandon").into_iter().map(|frame| frame.0).collect();
    assert_eq!(abandoned, [token], "its lost request could still take the lock; the other token's cannot");
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_comes_too_late_is_given_back() {
    let (script, client) = Script::client(&[Step::Slow(Duration::from_millis(99))], &[]);
    let error = client.lock("a").ttl(Duration::from_millis(100)).try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost);
    client.close(TTL).await.unwrap();
    assert_eq!(script.sent("abandon").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_asks_again_after_a_grant_that_came_too_late() {
    let (script, client) = Script::client(&[Step::Slow(Duration::from_millis(99))], &[]);
    let guard = client.lock("a").ttl(Duration::from_millis(100)).acquire().await.unwrap();
    let asked: Vec<_> = script.sent("acquire").into_iter().map(|(token, _)| token).collect();
    assert!(asked.len() == 2 && asked[0] != asked[1], "with a fresh token: {asked:?}");
    assert_eq!(guard.token(), &asked[1]);
    client.close(TTL).await.unwrap();
    assert_eq!(script.sent("abandon").iter().map(|(token, _)| token).collect::<Vec<_>>(), [&asked[0]]);
}

#[tokio::test(start_paused = true)]
async fn renewal_comes_at_a_third_and_moves_the_window() {
    let (script, client) = Script::client(&[], &[]);
    let guard = client.lock("a").ttl(TTL).acquire().await.unwrap();
    sleep(TTL * 10).await;
    assert!(guard.is_held());
    let times: Vec<_> = script.sent("renew").into_iter().map(|frame| frame.1).collect();
    assert!((30..=34).contains(&times.len()), "{} renewals in ten ttls", times.len());
    assert!(times[0] <= TTL / 3 + Duration::from_millis(10) && times[0] >= TTL / 4, "{:?}", times[0]);
    guard.release().await.unwrap();
    let renewed = script.sent("renew").len();
    sleep(TTL * 2).await;
    assert_eq!(script.sent("renew").len(), renewed, "a released lease is not renewed");
}

#[tokio::test(start_paused = true)]
async fn a_dropped_guard_is_renewed_no_more() {
    let (script, client) = Script::client(&[], &[]);
    let guard = client.lock("a").ttl(TTL).acquire().await.unwrap();
    sleep(TTL).await;
    drop(guard);
    let renewed = script.sent("renew").len();
    assert!(renewed > 0, "it was held for long enough");
    sleep(TTL * 2).await;
    assert_eq!((script.sent("renew").len(), script.sent("release").len()), (renewed, 1));
}

#[tokio::test(start_paused = true)]
async fn each_attempt_has_a_token_of_its_own() {
    let lost = [Step::Grant, Step::Fail(ErrorKind::Indeterminate), Step::Busy];
    let (script, client) = Script::client(&lost.repeat(4), &[]);
    let lock = client.lock("a").ttl(TTL);
    for _ in 0..12 {
        match lock.try_acquire().await {
            Ok(Some(guard)) => guard.release().await.unwrap(),
            Ok(None) => {}
            Err(error) => assert_eq!(error.kind(), ErrorKind::Indeterminate),
        }
    }
    client.close(TTL).await.unwrap();
    let tokens: HashSet<_> = script.sent("acquire").into_iter().map(|(token, _)| token).collect();
    assert_eq!(tokens.len(), 12);
}

#[tokio::test(start_paused = true)]
async fn a_silent_backend_ends_a_try_and_a_wait_in_time() {
    let silence = Step::Slow(Duration::from_secs(3_600));
    let (script, client) = Script::client(&[silence; 100], &[]);
    let lock = client.lock("a").ttl(TTL);
    let took = async |attempt: Result<()>, began: Duration| {
        assert!(attempt.unwrap_err().is_transient());
        script.start.elapsed() - began
    };
    let timeout = Duration::from_secs(1); // of each request, unless set
    let tried = took(lock.try_acquire().await.map(|_| ()), Duration::ZERO).await;
    assert!(tried >= timeout && tried < timeout + Duration::from_millis(100), "{tried:?}");
    for (most, limit) in [(Some(2), 2), (Some(12), 12), (None, 6)] {
        let began = script.start.elapsed();
        let attempt = match most {
            Some(most) => lock.acquire_within(Duration::from_secs(most)).await,
            None => lock.acquire().await,
        };
        let waited = took(attempt.map(|_| ()), began).await;
        assert!(waited < Duration::from_secs(limit) + Duration::from_millis(1_500), "{waited:?} of {most:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn failed_renewals_make_it_suspect_and_then_the_deadline_ends_it() {
    let (script, client) = Script::client(&[], &[Step::Fail(ErrorKind::Unavailable); 100]);
    let guard = client.lock("a").ttl(TTL).acquire().await.unwrap();
    sleep(TTL / 2).await;
    assert_eq!(guard.state(), HoldState::Suspect);
    assert!(guard.check().is_ok());
    assert_eq!(guard.lost().await, LostReason::Expired);
    let lived = script.start.elapsed();
    assert!(lived < TTL && lived > TTL * 95 / 100, "{lived:?}");
    assert!(script.sent("renew").len() > 10, "it was retried until the end");
    sleep(Duration::from_millis(50)).await;
    assert_eq!(script.sent("release").len(), 1, "what may be left of it is given back");
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
}

#[tokio::test(start_paused = true)]
async fn a_proved_loss_ends_it_at_once() {
    let (script, client) = Script::client(&[], &[Step::Lost]);
    let guard = client.lock("a").ttl(TTL).acquire().await.unwrap();
    assert_eq!(guard.lost().await, LostReason::Gone);
    assert!(script.start.elapsed() < TTL / 2);
    assert_eq!(guard.run(async { 1 }).await.unwrap_err().kind(), ErrorKind::Lost);
}

#[tokio::test(start_paused = true)]
async fn max_hold_ends_a_renewed_lease() {
    let (script, client) = Script::client(&[], &[]);
    let cap = TTL * 3;
    let guard = client.lock("a").ttl(TTL).max_hold(cap).acquire().await.unwrap();
    assert_eq!(guard.lost().await, LostReason::MaxHold);
    let lived = script.start.elapsed();
    assert!(lived <= cap + Duration::from_millis(10) && lived >= cap - Duration::from_millis(10), "{lived:?}");
    drop(guard);
    client.close(TTL).await.unwrap();
    assert_eq!(script.sent("release").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn renewals_leave_in_batches() {
    let (script, client) = Script::client(&[], &[]);
    let mut guards = Vec::new();
    for i in 0..10 {
        guards.push(client.lock(format!("lock {i}")).ttl(TTL).acquire().await.unwrap());
    }
    sleep(TTL * 2).await;
    assert!(guards.iter().all(tenure_core::LockGuard::is_held));
    assert!(script.sent("renew").len() >= 50);
    drop(guards);
    client.close(TTL).await.unwrap();
    assert_eq!(client.stats().cleanups, 0);
}

#[tokio::test(start_paused = true)]
async fn a_wait_survives_an_outage_that_begins_after_the_first_answer() {
    let mut steps = vec![Step::Busy];
    steps.extend([Step::Fail(ErrorKind::Unavailable); 200]);
    let (script, client) = Script::client(&steps, &[]);
    let guard = client.lock("a").acquire().await.unwrap();
    assert!(guard.is_held());
    assert!(script.start.elapsed() > Duration::from_secs(60), "back-off slows it down");
}

#[tokio::test(start_paused = true)]
async fn the_callers_patience_covers_the_first_answer() {
    let outage = [Step::Fail(ErrorKind::Unavailable), Step::Fail(ErrorKind::Indeterminate)].repeat(3);
    let (script, client) = Script::client(&outage, &[]);
    let guard = client.lock("a").acquire_within(Duration::from_secs(10)).await.unwrap();
    assert_eq!((guard.fence().get(), script.sent("acquire").len()), (7, 7));

    let (script, client) = Script::client(&[Step::Fail(ErrorKind::Unavailable); 100], &[]);
    let most = Duration::from_secs(10);
    let error = client.lock("a").acquire_within(most).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "an outage does not look like contention");
    let waited = script.start.elapsed();
    assert!(waited >= most && waited < most + Duration::from_millis(10), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn an_outage_at_the_start_is_reported() {
    let (script, client) = Script::client(&[Step::Fail(ErrorKind::Unavailable); 100], &[]);
    let error = client.lock("a").acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(script.start.elapsed() < Duration::from_secs(7), "{:?}", script.start.elapsed());
    client.close(TTL).await.unwrap();
    assert!(script.sent("abandon").is_empty(), "what was not applied needs no undoing");
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_in_time_and_leaves_the_queue() {
    let (script, client) = Script::client(&[Step::Busy; 100], &[]);
    let most = Duration::from_secs(7);
    let error = client.lock("a").acquire_within(most).await.unwrap_err();
    assert!(error.is_timed_out(), "{error}");
    let waited = script.start.elapsed();
    assert!(waited >= most && waited < most + Duration::from_millis(10), "{waited:?}");
    assert_eq!(script.sent("acquire").len(), 2, "asked at 0 s and at 5 s");
    assert_eq!(script.sent("abandon").len(), 1, "already");
    client.close(TTL).await.unwrap();
    assert_eq!(script.sent("abandon").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_wake_up_is_asked_after_at_once() {
    let (script, client) = Script::client(&[Step::Busy], &[]);
    let lock = client.lock("a");
    let waiting = tokio::spawn(async move { lock.acquire().await });
    sleep(Duration::from_secs(1)).await;
    assert_eq!(client.stats().waiters, 1);
    script.wakes.wake_all();
    let _guard = waiting.await.unwrap().unwrap();
    assert_eq!(script.start.elapsed(), Duration::from_secs(1));
    assert!(script.wakes.is_empty(), "nobody listens any more");
}

#[tokio::test(start_paused = true)]
async fn close_ends_waits_and_holds() {
    let (script, client) = Script::client(&[Step::Grant, Step::Busy], &[]);
    let guard = client.lock("a").acquire().await.unwrap();
    let lock = client.lock("b");
    let waiting = tokio::spawn(async move { lock.acquire().await });
    sleep(Duration::from_secs(1)).await;
    client.close(TTL).await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(guard.state(), HoldState::Lost(LostReason::Closed));
    assert_eq!(script.sent("release").len(), 1);
    let refused = client.lock("c").try_acquire().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Closed);
}

#[test]
fn a_guard_may_be_dropped_outside_a_runtime_and_outlive_one() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let (script, client) = runtime.block_on(async { Script::client(&[], &[]) });
    let guard = runtime.block_on(async { client.lock("a").ttl(TTL).acquire().await.unwrap() });
    drop(runtime);
    assert!(guard.is_held(), "the view needs no runtime");
    drop(guard);
    assert_eq!(client.stats().cleanups, 1, "handed over");
    let next = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    next.block_on(async { client.close(TTL).await.unwrap() });
    assert_eq!(script.sent("release").len(), 1, "the next runtime carries on");
}
