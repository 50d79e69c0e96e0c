//! Mutants of names, of what operators see and do, and of the driver as a whole.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tenure_core::driver::{
    AcquireRequest, Acquisition, ForceReleased, Hold, Inspection, LockCapabilities, Released, Renewal, Renewed,
    TtlRange, Watch,
};
use tenure_core::{ErrorKind, LockName, OwnerToken, Result};

use super::leases::made_up;
use super::maker::{Mutant, mutant};
use super::twist::{Inner, Twist};

pub(super) const MUTANTS: &[Mutant] = &[
    mutant!("name/case-folded", "names are compared without their case", || Arc::new(Names(fold)), []),
    mutant!("name/truncated", "names are cut at 64 bytes", || Arc::new(Names(|n| n[..n.len().min(64)].to_vec())), []),
    mutant!("name/c-string", "names end at a NUL", || Arc::new(Names(c_string)), []),
    mutant!("name/lossy-text", "names are turned into text and lose bytes", || Arc::new(Names(lossy)), []),
    mutant!("name/trimmed", "white space at the end of a name is lost", || Arc::new(Names(trimmed)), []),
    mutant!("name/hash-tagged", "only what stands between braces counts", || Arc::new(Names(tagged)), []),
    mutant!("name/decoded", "names are percent-decoded", || Arc::new(Names(decoded)), []),
    mutant!("name/one-for-all", "all names are one lock", || Arc::new(Names(|_| b"one".to_vec())), []),
    mutant!("client/apart", "every connection has a store of its own", || Arc::new(Apart), []),
    mutant!("inspect/sees-nothing", "a held lock looks free", || Arc::new(Looks(|_| Inspection::default())), []),
    mutant!("inspect/no-label", "the label is lost", || Arc::new(Looks(no_label)), []),
    mutant!("inspect/wrong-unit", "what remains is told in the wrong unit", || Arc::new(Looks(wrong_unit)), []),
    mutant!("inspect/no-waiters", "waiters are not counted", || Arc::new(Looks(no_waiters)), []),
    mutant!("inspect/depth-of-one", "the depth is not told", || Arc::new(Looks(depth_of_one)), []),
    mutant!("inspect/stale-holder", "whoever held last is shown", || Arc::new(StaleHolder::default()), []),
    mutant!("inspect/takes-the-lease", "looking ends the lease", || Arc::new(LookingForces), []),
    mutant!("inspect/never-answers", "looking gets no answer", || Arc::new(LookingHangs), []),
    mutant!("force/does-nothing", "a forced release is confirmed and not done", || Arc::new(ForceNothing), []),
    mutant!("force/says-released", "a forced release says that it freed something", || Arc::new(ForceSays), []),
    mutant!(
        "force/spares-the-token",
        "the old holder may take it back by renewing",
        || Arc::new(Spares::default()),
        []
    ),
    mutant!("close/does-nothing", "a closed driver goes on", || Arc::new(NotClosed), []),
    mutant!("close/closes-all", "closing one connection closes every one", || Arc::new(ClosesAll::default()), []),
    mutant!("close/never-ends", "closing does not end", || Arc::new(CloseHangs), []),
    mutant!("caps/wider-ttl", "the driver declares more ttls than its maker", || Arc::new(WiderTtl), []),
    mutant!("caps/change", "the capabilities change with use", || Arc::new(Changing::default()), []),
    mutant!("link/dies-for-good", "after one failure every request fails", || Arc::new(Dies::default()), []),
    mutant!(reduced "refusal/watches-all-the-same", "undeclared wake-ups are given", || Arc::new(Allows), [
        "refusal/watch"
    ]),
    mutant!(reduced "refusal/inspects-all-the-same", "undeclared introspection is given", || Arc::new(Allows), [
        "refusal/inspect"
    ]),
    mutant!(reduced "refusal/forces-all-the-same", "undeclared revocation is given", || Arc::new(Allows), [
        "refusal/force"
    ]),
    mutant!(reduced "refusal/declares-wider-ttl", "ttls that are not kept are declared", || Arc::new(WiderTtl), [
        "refusal/ttl"
    ]),
    mutant!(reduced "refusal/has-entries", "undeclared re-entrancy is there", || Arc::new(super::entries::Appears), [
        "refusal/re-entrant"
    ]),
];

/// Names as a careless driver stores them.
struct Names(fn(&[u8]) -> Vec<u8>);

impl Names {
    fn name(&self, name: &LockName) -> LockName {
        LockName::new((self.0)(name.as_bytes())).unwrap_or_else(|_| name.clone())
    }

    fn hold(&self, hold: &Hold) -> Hold {
        Hold { name: self.name(&hold.name), token: hold.token }
    }
}

fn fold(name: &[u8]) -> Vec<u8> {
    name.to_ascii_lowercase()
}

fn c_string(name: &[u8]) -> Vec<u8> {
    name.split(|byte| *byte == 0).next().unwrap_or_default().to_vec()
}

fn lossy(name: &[u8]) -> Vec<u8> {
    name.iter().map(|byte| if byte.is_ascii() { *byte } else { b'?' }).collect()
}

fn trimmed(name: &[u8]) -> Vec<u8> {
    name.trim_ascii_end().to_vec()
}

fn tagged(name: &[u8]) -> Vec<u8> {
    let open = name.iter().position(|byte| *byte == b'{');
    let close = name.iter().position(|byte| *byte == b'}');
    match (open, close) {
        (Some(open), Some(close)) if open + 1 < close => [b"tag/", &name[open + 1..close]].concat(),
        _ => name.to_vec(),
    }
}

fn decoded(name: &[u8]) -> Vec<u8> {
    String::from_utf8_lossy(name).replace("%25", "%").replace("%7B", "{").into_bytes()
}

#[async_trait]
impl Twist for Names {
    async fn acquire(&self, inner: &Inner, request: &AcquireRequest) -> Result<Acquisition> {
        inner.locks().acquire(&AcquireRequest { name: self.name(&request.name), ..request.clone() }).await
    }

    async fn renew(&self, inner: &Inner, renewals: &[Renewal]) -> Vec<Result<Renewed>> {
        let all: Vec<Renewal> = renewals.iter().map(|r| Renewal { hold: self.hold(&r.hold), ttl: r.ttl }).collect();
        inner.locks().renew(&all).await
    }

    async fn release(&self, inner: &Inner, hold: &Hold) -> Result<Released> {
        inner.locks().release(&self.hold(hold)).await
    }

    async fn abandon(&self, inner: &Inner, hold: &Hold) -> Result<()> {
        inner.locks().abandon(&self.hold(hold)).await
    }

    async fn watch(&self, inner: &Inner, name: &LockName, token: &OwnerToken) -> Result<Watch> {
        inner.locks().watch(&self.name(name), token).await
    }

    async fn force_release(&self, inner: &Inner, name: &LockName) -> Result<ForceReleased> {
        inner.locks().force_release(&self.name(name)).await
    }
}

struct Apart;

#[async_trait]
impl Twist for Apart {
    async fn acquire(&self, inner: &Inner, request: &AcquireRequest) -> Result<Acquisition> {
        inner.locks().acquire(&AcquireRequest { name: own(inner, &request.name), ..request.clone() }).await
    }

    async fn release(&self, inner: &Inner, hold: &Hold) -> Result<Released> {
        inner.locks().release(&Hold { name: own(inner, &hold.name), token: hold.token }).await
    }

    async fn abandon(&self, inner: &Inner, hold: &Hold) -> Result<()> {
        inner.locks().abandon(&Hold { name: own(inner, &hold.name), token: hold.token }).await
    }
}

fn own(inner: &Inner, name: &LockName) -> LockName {
    let mut bytes = name.as_bytes().to_vec();
    bytes.extend_from_slice(format!("@{:x}", inner.client()).as_bytes());
    LockName::new(bytes).unwrap_or_else(|_| name.clone())
}

struct Looks(fn(Inspection) -> Inspection);

fn no_label(mut seen: Inspection) -> Inspection {
    if let Some(holder) = &mut seen.holder {
        holder.label = None;
    }
    seen
}

fn wrong_unit(mut seen: Inspection) -> Inspection {
    if let Some(holder) = &mut seen.holder {
        holder.remaining = holder.remaining.map(|left| left * 1_000);
    }
    seen
}

fn no_waiters(seen: Inspection) -> Inspection {
    Inspection { waiters: 0, ..seen }
}

fn depth_of_one(mut seen: Inspection) -> Inspection {
    if let Some(holder) = &mut seen.holder {
        holder.depth = 1;
    }
    seen
}

#[async_trait]
impl Twist for Looks {
    async fn inspect(&self, inner: &Inner, name: &LockName) -> Result<Inspection> {
        inner.locks().inspect(name).await.map(self.0)
    }
}

#[derive(Default)]
struct StaleHolder(std::sync::Mutex<Option<Inspection>>);

#[async_trait]
impl Twist for StaleHolder {
    async fn inspect(&self, inner: &Inner, name: &LockName) -> Result<Inspection> {
        let seen = inner.locks().inspect(name).await?;
        let mut last = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if seen.holder.is_some() || last.is_none() {
            *last = Some(seen);
        }
        Ok(last.clone().unwrap_or_default())
    }
}

struct LookingForces;

#[async_trait]
impl Twist for LookingForces {
    async fn inspect(&self, inner: &Inner, name: &LockName) -> Result<Inspection> {
        let seen = inner.locks().inspect(name).await;
        inner.locks().force_release(name).await?;
        seen
    }
}

struct LookingHangs;

#[async_trait]
impl Twist for LookingHangs {
    async fn inspect(&self, _inner: &Inner, _name: &LockName) -> Result<Inspection> {
        std::future::pending().await
    }
}

struct ForceNothing;

#[async_trait]
impl Twist for ForceNothing {
    async fn force_release(&self, _inner: &Inner, _name: &LockName) -> Result<ForceReleased> {
        Ok(ForceReleased::Released)
    }
}

struct ForceSays;

#[async_trait]
impl Twist for ForceSays {
    async fn force_release(&self, inner: &Inner, name: &LockName) -> Result<ForceReleased> {
        inner.locks().force_release(name).await.map(|_| ForceReleased::Released)
    }
}

/// After a forced release, whoever renews has the lock.
#[derive(Default)]
struct Spares(AtomicBool);

#[async_trait]
impl Twist for Spares {
    async fn force_release(&self, inner: &Inner, name: &LockName) -> Result<ForceReleased> {
        self.0.store(true, Ordering::SeqCst);
        inner.locks().force_release(name).await
    }

    async fn renew(&self, inner: &Inner, renewals: &[Renewal]) -> Vec<Result<Renewed>> {
        let answers = inner.locks().renew(renewals).await;
        let spared = self.0.load(Ordering::SeqCst);
        let lie = |(answer, renewal): (Result<Renewed>, &Renewal)| match answer {
            Ok(Renewed::Lost) if spared => Ok(Renewed::Extended { ttl: renewal.ttl.get() }),
            answer => answer,
        };
        answers.into_iter().zip(renewals).map(lie).collect()
    }
}

struct NotClosed;

#[async_trait]
impl Twist for NotClosed {
    async fn close(&self, _inner: &Inner) {}
}

#[derive(Default)]
struct ClosesAll(AtomicBool);

#[async_trait]
impl Twist for ClosesAll {
    async fn close(&self, inner: &Inner) {
        self.0.store(true, Ordering::SeqCst);
        inner.locks().close().await;
    }

    async fn renew(&self, inner: &Inner, renewals: &[Renewal]) -> Vec<Result<Renewed>> {
        if self.0.load(Ordering::SeqCst) {
            return renewals.iter().map(|_| Err(made_up(ErrorKind::Closed))).collect();
        }
        inner.locks().renew(renewals).await
    }
}

struct CloseHangs;

#[async_trait]
impl Twist for CloseHangs {
    async fn close(&self, _inner: &Inner) {
        std::future::pending().await
    }
}

struct WiderTtl;

impl Twist for WiderTtl {
    fn capabilities(&self, inner: &Inner) -> LockCapabilities {
        let locks = inner.locks().capabilities();
        let widest = TtlRange { min: tenure_core::Ttl::MIN, max: tenure_core::Ttl::MAX, granularity: ms(1) };
        // One wider still where there is nothing to widen: a range that no ttl reaches.
        let ttl = if locks.ttl == widest { TtlRange { max: widest.max + ms(1), ..widest } } else { widest };
        LockCapabilities { ttl, ..locks }
    }
}

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[derive(Default)]
struct Changing(AtomicU32);

#[async_trait]
impl Twist for Changing {
    fn capabilities(&self, inner: &Inner) -> LockCapabilities {
        let locks = inner.locks().capabilities();
        LockCapabilities { renew_batch: locks.renew_batch + self.0.load(Ordering::SeqCst) as usize, ..locks }
    }

    async fn release(&self, inner: &Inner, hold: &Hold) -> Result<Released> {
        self.0.fetch_add(1, Ordering::SeqCst);
        inner.locks().release(hold).await
    }
}

#[derive(Default)]
struct Dies(AtomicBool);

#[async_trait]
impl Twist for Dies {
    async fn acquire(&self, inner: &Inner, request: &AcquireRequest) -> Result<Acquisition> {
        if self.0.load(Ordering::SeqCst) {
            return Err(made_up(ErrorKind::Unavailable));
        }
        let limit = Duration::from_millis(500);
        let answer = tokio::time::timeout(limit, inner.locks().acquire(request)).await;
        let answer = answer.unwrap_or_else(|_| Err(made_up(ErrorKind::Indeterminate)));
        let broken = answer.as_ref().is_err_and(|error| error.is_transient());
        self.0.fetch_or(broken, Ordering::SeqCst);
        answer
    }

    async fn renew(&self, inner: &Inner, renewals: &[Renewal]) -> Vec<Result<Renewed>> {
        let dead = || renewals.iter().map(|_| Err(made_up(ErrorKind::Unavailable))).collect();
        if self.0.load(Ordering::SeqCst) {
            return dead();
        }
        let answers = tokio::time::timeout(Duration::from_millis(500), inner.locks().renew(renewals)).await;
        let answers = answers.unwrap_or_else(|_| dead());
        let broken = answers.iter().any(|answer| answer.as_ref().is_err_and(|error| error.is_transient()));
        self.0.fetch_or(broken, Ordering::SeqCst);
        answers
    }
}

/// Gives what the driver below refuses.
struct Allows;

#[async_trait]
impl Twist for Allows {
    async fn watch(&self, _inner: &Inner, _name: &LockName, _token: &OwnerToken) -> Result<Watch> {
        Ok(Watch::channel().1)
    }

    async fn inspect(&self, _inner: &Inner, _name: &LockName) -> Result<Inspection> {
        Ok(Inspection::default())
    }

    async fn force_release(&self, _inner: &Inner, _name: &LockName) -> Result<ForceReleased> {
        Ok(ForceReleased::Released)
    }
}
