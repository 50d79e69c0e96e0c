//! The store as one client's link reaches it: a clock that may run faster than the clients', and, to see that the world
//! notices, mistakes.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure_core::driver::{
    AcquireRequest, Acquisition, Begun, Busy, DistributedLock, Exited, ForceReleased, Hold, ReentrantEntry,
    ReentrantHold, ReentrantLock, Released, Renewed, Signal, Ttl, Watch,
};
use tenure_core::{FenceFloor, FencingToken, LockName, OwnerId, OwnerToken, Result};
use tenure_memory::MemoryDriver;

/// A mistake of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    EndsLeasesATenthTooSoon,
    ReleasesForAnybody,
    GivesFencesTwice,
    RevivesByRenewal,
    RenewsInWordsOnly,
    ForgetsToAbandon,
    ForgetsWhatWasAbandoned,
    TellsNobody,
    GrantsWhatIsHeld,
    LeavesWithTheFirstExit,
    CallsAnEarlierGrantNew,
    HandsOverWithALaterBegin,
    BeginsFencesAnew,
}

impl Flaw {
    pub(crate) const ALL: [Self; 13] = [
        Self::EndsLeasesATenthTooSoon,
        Self::ReleasesForAnybody,
        Self::GivesFencesTwice,
        Self::RevivesByRenewal,
        Self::RenewsInWordsOnly,
        Self::ForgetsToAbandon,
        Self::ForgetsWhatWasAbandoned,
        Self::TellsNobody,
        Self::GrantsWhatIsHeld,
        Self::LeavesWithTheFirstExit,
        Self::CallsAnEarlierGrantNew,
        Self::HandsOverWithALaterBegin,
        Self::BeginsFencesAnew,
    ];
}

#[derive(Clone, Debug)]
pub(crate) struct Store {
    driver: MemoryDriver,
    /// In thousandths.
    fast: i32,
    flaw: Option<Flaw>,
    /// What a store that forgets abandoned tokens knows them by.
    aliases: Arc<Mutex<HashMap<OwnerToken, OwnerToken>>>,
    flushes: Arc<AtomicU64>,
}

/// How far fences go ahead when the store forgets their counter: further than any schedule grants.
const FLUSHED_BY: u64 = 10_000_000;

impl Store {
    pub(crate) fn new(fast: i32, flaw: Option<Flaw>) -> Self {
        let fast = if flaw == Some(Flaw::EndsLeasesATenthTooSoon) { 100 } else { fast };
        Self { driver: MemoryDriver::new(), fast, flaw, aliases: Arc::default(), flushes: Arc::default() }
    }

    /// The same store over another link.
    pub(crate) fn another_client(&self) -> Self {
        Self { driver: self.driver.another_client(), ..self.clone() }
    }

    /// The store itself.
    pub(crate) fn memory(&self) -> &MemoryDriver {
        &self.driver
    }

    fn has(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    /// What the store keeps of a span, by the clients' clock.
    fn kept(&self, ttl: Ttl) -> Ttl {
        let millis = (ttl.as_millis() * 1000).div_ceil(self.rate());
        Ttl::new(Duration::from_millis(millis)).unwrap_or(ttl)
    }

    /// What the store's clock says of a span, never more than it keeps.
    fn reported(&self, span: Duration) -> Duration {
        match self.fast {
            0 => span,
            _ => Duration::from_millis(u64::try_from(span.as_millis()).expect("short") * self.rate() / 1000),
        }
    }

    fn rate(&self) -> u64 {
        u64::try_from(1000 + self.fast).expect("it goes forward")
    }

    /// The fence that the store tells.
    pub(crate) fn fence(&self, fence: FencingToken) -> FencingToken {
        let number = if self.has(Flaw::GivesFencesTwice) { fence.get() / 16 * 16 } else { fence.get() };
        FencingToken::new(number).unwrap_or(fence)
    }

    /// Forgets everything, its counter of fences as well: that begins at a clock, and so goes on beyond all that was granted.
    pub(crate) fn flush(&self) {
        self.driver.faults().restart_empty();
        if !self.has(Flaw::BeginsFencesAnew) {
            let ahead = FLUSHED_BY * (self.flushes.fetch_add(1, Ordering::Relaxed) + 1);
            self.driver.raise_fences(FenceFloor::new(FenceFloor::now().get() + ahead).expect("seconds ahead"));
        }
    }

    fn alias(&self, token: OwnerToken) -> OwnerToken {
        if !self.has(Flaw::ForgetsWhatWasAbandoned) {
            return token;
        }
        *self.aliases.lock().unwrap().entry(token).or_insert_with(OwnerToken::random)
    }

    pub(crate) async fn acquire(&self, owner: Option<OwnerId>, request: AcquireRequest) -> Result<Acquisition> {
        let (token, ttl) = (self.alias(request.token), self.kept(request.ttl));
        let request = request.with_token(token).with_ttl(ttl);
        let mut answer = self.ask(owner, &request).await?;
        if self.has(Flaw::GrantsWhatIsHeld) && matches!(answer, Acquisition::Busy(_)) {
            self.driver.force_release(&request.name, None).await?;
            answer = self.ask(owner, &request).await?;
        }
        Ok(match answer {
            Acquisition::Granted(grant) => {
                let begun = if self.has(Flaw::CallsAnEarlierGrantNew) { Begun::Now } else { grant.begun };
                let (fence, ttl) = (self.fence(grant.fence), self.reported(grant.ttl));
                Acquisition::Granted(grant.with_fence(fence).with_ttl(ttl).with_begun(begun))
            }
            Acquisition::Busy(Busy { position, recheck_after, answered_at, .. }) => {
                let (recheck_after, answered_at) =
                    (recheck_after.map(|span| self.reported(span)), answered_at.map(|at| self.clock(at)));
                Acquisition::Busy(
                    Busy::default()
                        .with_position(position)
                        .with_recheck_after(recheck_after)
                        .with_answered_at(answered_at),
                )
            }
        })
    }

    async fn ask(&self, owner: Option<OwnerId>, request: &AcquireRequest) -> Result<Acquisition> {
        match owner {
            None => self.driver.acquire(request).await,
            Some(owner) => self.driver.enter(&owner, request).await,
        }
    }

    /// A reading of the store's clock, to the nanosecond.
    fn clock(&self, at: Duration) -> Duration {
        at * u32::try_from(1000 + self.fast).expect("it goes forward") / 1000
    }

    pub(crate) async fn renew(&self, ttl: Ttl, hold: Hold) -> Result<Renewed> {
        let token = self.alias(hold.token);
        let hold = hold.with_token(token);
        if self.has(Flaw::RenewsInWordsOnly) {
            return Ok(Renewed::Extended { ttl: ttl.get() });
        }
        let answer = DistributedLock::renew(&self.driver, self.kept(ttl), &[hold]).await;
        self.renewed(answer, ttl)
    }

    pub(crate) async fn renew_hold(&self, ttl: Ttl, hold: ReentrantHold) -> Result<Renewed> {
        let answer = ReentrantLock::renew(&self.driver, self.kept(ttl), &[hold]).await;
        self.renewed(answer, ttl)
    }

    fn renewed(&self, mut answers: Vec<Result<Renewed>>, asked: Ttl) -> Result<Renewed> {
        Ok(match answers.remove(0)? {
            Renewed::Extended { ttl } => Renewed::Extended { ttl: self.reported(ttl) },
            Renewed::Lost if self.has(Flaw::RevivesByRenewal) => Renewed::Extended { ttl: asked.get() },
            Renewed::Lost => Renewed::Lost,
        })
    }

    pub(crate) async fn release(&self, hold: Hold) -> Result<Released> {
        if self.has(Flaw::ReleasesForAnybody) {
            self.driver.force_release(&hold.name, None).await?;
            return Ok(Released::Released);
        }
        let token = self.alias(hold.token);
        self.driver.release(&hold.with_token(token)).await
    }

    pub(crate) async fn exit(&self, hold: ReentrantEntry) -> Result<Exited> {
        let token = self.alias(hold.token);
        let hold = hold.with_token(token);
        let exited = self.driver.exit(&hold).await?;
        if self.has(Flaw::LeavesWithTheFirstExit) && matches!(exited, Exited::Inside { .. }) {
            self.driver.force_release(&hold.name, None).await?;
        }
        Ok(exited)
    }

    pub(crate) async fn abandon(&self, owner: Option<OwnerId>, hold: Hold) -> Result<()> {
        if self.has(Flaw::ForgetsToAbandon) {
            return Ok(());
        }
        let Hold { name, token, .. } = hold;
        let known = self.alias(token);
        self.aliases.lock().unwrap().remove(&token);
        match owner {
            None => DistributedLock::abandon(&self.driver, &Hold::new(name, known)).await,
            Some(owner) => ReentrantLock::abandon(&self.driver, &ReentrantEntry::new(name, owner, known)).await,
        }
    }

    pub(crate) async fn force(&self, name: &LockName, expected: Option<FencingToken>) -> Result<ForceReleased> {
        self.driver.force_release(name, expected).await
    }

    pub(crate) async fn watch(&self, name: &LockName, token: OwnerToken) -> Result<Watch> {
        self.driver.watch(name, &self.alias(token)).await
    }

    /// What the store says to a waiter; `None` if it says nothing.
    pub(crate) fn says(&self, signal: Signal) -> Option<Signal> {
        match signal {
            _ if self.has(Flaw::TellsNobody) => None,
            Signal::Handed(handed) => {
                let late = if self.has(Flaw::HandsOverWithALaterBegin) { 400 } else { 0 };
                let began_at = self.clock(handed.began_at) + Duration::from_millis(late);
                let (fence, ttl) = (self.fence(handed.fence), self.reported(handed.ttl));
                Some(Signal::Handed(handed.with_fence(fence).with_ttl(ttl).with_began_at(began_at)))
            }
            other => Some(other),
        }
    }
}
