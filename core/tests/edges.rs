//! The engine at its edges: blocked runtimes, long silences, clean-ups that never succeed, holds that were lost.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use tenure_core::driver::{
    AcquireRequest, Acquisition, Backend, Begun, Busy, DistributedLock, Exclusion, Exited, Fencing, ForceReleased,
    Grant, Hold, Inspection, Introspection, LockCapabilities, OwnerScope, ReentrantCapabilities, ReentrantHold,
    ReentrantLock, ReentrantRenewal, Released, Renewal, Renewed, Revocation, TtlRange, Waiting, WakeRouter, Watch,
};
use tenure_core::{Client, Error, ErrorKind, FencingToken, LockName, LostReason, OwnerId, OwnerToken, Result};
use tokio::time::sleep;

const TTL: Duration = Duration::from_secs(30);

/// What a call does. Without a step, it succeeds at once.
#[derive(Clone, Copy, Debug)]
enum Step {
    GrantEarlier,
    Busy,
    Fail(ErrorKind),
    Slow(Duration),
    Lost,
}

/// Plays back steps for each kind of call, and notes what came.
#[derive(Debug, Default)]
struct Stage {
    acquire: Mutex<VecDeque<Step>>,
    renew: Mutex<VecDeque<Step>>,
    release: Mutex<VecDeque<Step>>,
    close: Mutex<VecDeque<Step>>,
    /// Names whose releases are always refused begin with this.
    refused: Option<&'static str>,
    frames: Mutex<Vec<(&'static str, OwnerToken)>>,
    wakes: WakeRouter,
}

fn steps(steps: impl IntoIterator<Item = Step>) -> Mutex<VecDeque<Step>> {
    Mutex::new(steps.into_iter().collect())
}

impl Stage {
    fn client(self) -> (Arc<Self>, Client) {
        let stage = Arc::new(self);
        let backend = Backend::new(Arc::clone(&stage) as Arc<dyn DistributedLock>)
            .with_reentrant(Arc::clone(&stage) as Arc<dyn ReentrantLock>);
        (stage, Client::new(backend))
    }

    fn sent(&self, what: &str) -> Vec<OwnerToken> {
        self.frames.lock().unwrap().iter().filter(|frame| frame.0 == what).map(|frame| frame.1).collect()
    }

    async fn play(&self, what: &'static str, token: &OwnerToken, script: &Mutex<VecDeque<Step>>) -> Option<Step> {
        self.frames.lock().unwrap().push((what, *token));
        let step = script.lock().unwrap().pop_front();
        if let Some(Step::Slow(time)) = step {
            sleep(time).await;
        }
        step
    }

    async fn give(&self, request: &AcquireRequest) -> Result<Acquisition> {
        let step = self.play("acquire", &request.token, &self.acquire).await;
        let begun = match step {
            Some(Step::Fail(kind)) => return Err(Error::new(kind, "scripted")),
            Some(Step::Busy) => return Ok(Acquisition::Busy(Busy { position: Some(0), recheck_after: None })),
            Some(Step::GrantEarlier) => Begun::Earlier,
            _ => Begun::Now,
        };
        let fence = FencingToken::new(7).unwrap();
        Ok(Acquisition::Granted(Grant { fence, ttl: request.ttl.get(), begun, depth: 1 }))
    }

    async fn extend(&self, token: &OwnerToken, ttl: Duration) -> Result<Renewed> {
        let step = self.play("renew", token, &self.renew).await;
        self.frames.lock().unwrap().push(("renewed", *token));
        match step {
            Some(Step::Fail(kind)) => Err(Error::new(kind, "scripted")),
            Some(Step::Lost) => Ok(Renewed::Lost),
            _ => Ok(Renewed::Extended { ttl }),
        }
    }

    async fn end(&self, name: &LockName, token: &OwnerToken) -> Result<()> {
        let step = self.play("release", token, &self.release).await;
        if self.refused.is_some_and(|start| name.as_bytes().starts_with(start.as_bytes())) {
            return Err(Error::new(ErrorKind::Denied, "scripted"));
        }
        match step {
            Some(Step::Fail(kind)) => Err(Error::new(kind, "scripted")),
            _ => Ok(()),
        }
    }
}

#[async_trait]
impl DistributedLock for Stage {
    fn driver(&self) -> &'static str {
        "stage"
    }

    fn capabilities(&self) -> LockCapabilities {
        LockCapabilities {
            exclusion: Exclusion::Process,
            fencing: Fencing::Strict,
            waiting: Waiting::Fifo,
            ttl: TtlRange { min: Duration::from_millis(10), max: TTL * 2, granularity: Duration::from_millis(1) },
            introspection: Introspection::None,
            revocation: Revocation::None,
            max_waiters: None,
            renew_batch: 10,
        }
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Acquisition> {
        self.give(request).await
    }

    async fn renew(&self, renewals: &[Renewal]) -> Vec<Result<Renewed>> {
        let mut answers = Vec::new();
        for renewal in renewals {
            answers.push(self.extend(&renewal.hold.token, renewal.ttl.get()).await);
        }
        answers
    }

    async fn release(&self, hold: &Hold) -> Result<Released> {
        self.end(&hold.name, &hold.token).await.map(|()| Released::Released)
    }

    async fn abandon(&self, hold: &Hold) -> Result<()> {
        self.frames.lock().unwrap().push(("abandon", hold.token));
        Ok(())
    }

    async fn watch(&self, _name: &LockName, token: &OwnerToken) -> Result<Watch> {
        Ok(self.wakes.register(*token))
    }

    async fn inspect(&self, _name: &LockName) -> Result<Inspection> {
        Err(Error::new(ErrorKind::Unsupported, "scripted"))
    }

    async fn force_release(&self, _name: &LockName) -> Result<ForceReleased> {
        Err(Error::new(ErrorKind::Unsupported, "scripted"))
    }

    async fn close(&self) {
        self.play("close", &OwnerToken::random(), &self.close).await;
    }
}

#[async_trait]
impl ReentrantLock for Stage {
    fn capabilities(&self) -> ReentrantCapabilities {
        ReentrantCapabilities { scope: OwnerScope::Process, max_depth: 10 }
    }

    async fn enter(&self, _owner: &OwnerId, request: &AcquireRequest) -> Result<Acquisition> {
        self.give(request).await
    }

    async fn renew(&self, renewals: &[ReentrantRenewal]) -> Vec<Result<Renewed>> {
        let mut answers = Vec::new();
        for renewal in renewals {
            answers.push(self.extend(&OwnerToken::random(), renewal.ttl.get()).await);
        }
        answers
    }

    async fn exit(&self, hold: &ReentrantHold) -> Result<Exited> {
        self.end(&hold.name, &hold.token).await.map(|()| Exited::Released)
    }

    async fn abandon(&self, hold: &ReentrantHold) -> Result<()> {
        self.frames.lock().unwrap().push(("abandon", hold.token));
        Ok(())
    }
}

#[tokio::test]
async fn work_that_outlasts_the_lease_is_lost_though_no_timer_could_run() {
    let (_, client) = Stage::default().client();
    let ttl = Duration::from_millis(80);
    let block = async || std::thread::sleep(ttl); // blocks the runtime's only thread, and every timer with it
    let guard = client.lock("a").unwrap().fixed_ttl(ttl).acquire().await.unwrap();
    assert_eq!(guard.run(block()).await.unwrap_err().kind(), ErrorKind::Lost);
    let both = client.lock_all(["b", "c"]).unwrap().fixed_ttl(ttl).acquire().await.unwrap();
    assert_eq!(both.run(block()).await.unwrap_err().kind(), ErrorKind::Lost);
    let guard = client.lock("d").unwrap().fixed_ttl(ttl).acquire().await.unwrap();
    std::thread::sleep(ttl);
    let mut begun = false;
    assert_eq!(guard.run(async { begun = true }).await.unwrap_err().kind(), ErrorKind::Lost);
    assert!(!begun, "nothing is done after the lease");
}

#[tokio::test(start_paused = true)]
async fn a_wait_survives_a_silence_that_outlasts_the_lease_granted_in_it() {
    let unheard = [Step::Busy, Step::Fail(ErrorKind::Indeterminate)];
    let outage = [Step::Fail(ErrorKind::Unavailable); 100];
    let acquire = steps(unheard.into_iter().chain(outage).chain([Step::GrantEarlier]));
    let (stage, client) = Stage { acquire, ..Stage::default() }.client();
    let guard = client.lock("a").unwrap().ttl(TTL).acquire().await.unwrap();
    assert!(guard.remaining() > TTL / 2, "the grant of the fresh token counts");
    sleep(Duration::from_secs(1)).await;
    let asked = stage.sent("acquire");
    assert_eq!(stage.sent("abandon"), [asked[0]], "the token of the stale grant is undone");
    assert_ne!(guard.token(), &asked[0]);
}

#[tokio::test(start_paused = true)]
async fn a_fresh_token_in_a_wait_takes_the_place_of_the_old_one() {
    let outage = [Step::Fail(ErrorKind::Unavailable); 100];
    let script = [Step::Busy, Step::Fail(ErrorKind::Indeterminate)].into_iter().chain(outage);
    let stage = Arc::new(Stage { acquire: steps(script.chain([Step::GrantEarlier])), ..Stage::default() });
    let backend = Backend::new(Arc::clone(&stage) as Arc<dyn DistributedLock>);
    let client = Client::builder(backend).max_holds(1).build().unwrap();
    assert!(client.lock("a").unwrap().ttl(TTL).acquire().await.unwrap().is_held());
}

#[tokio::test(start_paused = true)]
async fn a_proved_loss_does_not_forget_a_request_on_its_way() {
    let acquire = steps([Step::Busy, Step::Fail(ErrorKind::Indeterminate)]);
    let (stage, client) = Stage { acquire, renew: steps([Step::Lost]), ..Stage::default() }.client();
    let guard = client.lock("a").unwrap().ttl(TTL).acquire().await.unwrap();
    assert_eq!(guard.lost().await, LostReason::Gone);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(stage.sent("abandon"), [*guard.token()], "the lost request could still take the lock");
}

#[tokio::test(start_paused = true)]
async fn a_release_waits_for_a_renewal_on_its_way() {
    let renew = steps([Step::Slow(Duration::from_millis(500)); 2]);
    let (stage, client) = Stage { renew, ..Stage::default() }.client();
    for released in [true, false] {
        stage.frames.lock().unwrap().clear();
        let guard = client.lock("a").unwrap().ttl(TTL).acquire().await.unwrap();
        while stage.sent("renew").is_empty() {
            sleep(Duration::from_millis(10)).await;
        }
        assert!(stage.sent("renewed").is_empty(), "it is on its way");
        if released {
            guard.release().await.unwrap();
        } else {
            drop(guard);
            sleep(Duration::from_secs(1)).await;
        }
        let order: Vec<_> = stage.frames.lock().unwrap().iter().map(|frame| frame.0).collect();
        assert_eq!(order, ["acquire", "renew", "renewed", "release"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_hold_is_not_entered_again_before_it_is_undone() {
    let silence = Step::Slow(Duration::from_secs(3600));
    let renew = steps([Step::Fail(ErrorKind::Unavailable); 1000]);
    let (stage, client) = Stage { renew, release: steps([silence; 3]), ..Stage::default() }.client();
    let lock = client.reentrant("a", &OwnerId::new()).unwrap().ttl(TTL);
    let (outer, inner) = (lock.acquire().await.unwrap(), lock.acquire().await.unwrap());
    outer.lost().await;
    drop((outer, inner));
    assert!(lock.try_acquire().await.unwrap().is_none(), "the backend still has the old hold");
    let again = lock.acquire().await.unwrap();
    assert!(stage.sent("release").len() > 3, "both entries were undone first");
    assert!(again.is_held());
}

#[tokio::test(start_paused = true)]
async fn clean_ups_that_never_succeed_hold_up_nobody() {
    let (stage, client) = Stage { refused: Some("bad"), ..Stage::default() }.client();
    for i in 0..200 {
        drop(client.lock(format!("bad {i}")).unwrap().ttl(TTL).acquire().await.unwrap());
    }
    sleep(Duration::from_secs(5)).await;
    let guard = client.lock("good").unwrap().ttl(TTL).acquire().await.unwrap();
    let token = *guard.token();
    drop(guard);
    sleep(Duration::from_secs(10)).await;
    assert!(stage.sent("release").contains(&token));
    sleep(TTL * 4).await;
    assert_eq!(client.stats().cleanups, 0, "they are given up when they cannot matter any more");
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_does_not_close_holds_up_nobody() {
    let close = steps([Step::Slow(Duration::from_secs(3600))]);
    let (_, client) = Stage { close, ..Stage::default() }.client();
    let closing = client.close(Duration::from_secs(1));
    tokio::time::timeout(Duration::from_secs(10), closing).await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_comes_after_max_hold_is_given_back() {
    let acquire = steps([Step::Slow(Duration::from_millis(200))]);
    let (stage, client) = Stage { acquire, ..Stage::default() }.client();
    let lock = client.lock("a").unwrap().ttl(TTL).max_hold(Duration::from_millis(100));
    assert_eq!(lock.try_acquire().await.unwrap_err().kind(), ErrorKind::Lost);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(stage.sent("abandon").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn several_locks_are_not_asked_for_beyond_the_limit() {
    let acquire = steps([Step::Slow(Duration::from_millis(250)); 10]);
    let (stage, client) = Stage { acquire, ..Stage::default() }.client();
    let names = (0..10).map(|i| format!("lock {i}"));
    let most = Duration::from_millis(500);
    let error = client.lock_all(names).unwrap().acquire_within(most).await.unwrap_err();
    assert!(error.is_timed_out(), "{error}");
    assert!(stage.sent("acquire").len() <= 2, "{}", stage.sent("acquire").len());
}
