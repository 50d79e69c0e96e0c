//! One plain lock: the handle, the guard, and the methods of all guards.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use crate::client::Client;
use crate::driver::{ErrorExt as _, ForceReleased, Hold, Inspection, Introspection, LockTurn, Released, Revocation};
use crate::engine::ask::{Ask, Line, WaitProgress, Wanted};
use crate::engine::hold::{Adopted, HeldEntry, LooseHold, Watched, adopt};
use crate::engine::lease::Kind;
use crate::engine::local_handover::LocalQueues;
use crate::engine::reaper::outlast;
use crate::engine::shared::Shared;
use crate::engine::wait::{Patience, Pause, acquire, watched};
use crate::lock::{Options, option_setters};
use crate::runtime::bounded;
use crate::value::error::{Error, ErrorKind, LockName, Result};
use crate::value::time::{LeaseInstant, LostReason, Ttl};
use crate::value::token::{FencingToken, OwnerToken};

/// A handle on one lock, with the options of its acquisitions. Cheap to make and to clone; holds nothing.
///
/// Not re-entrant: a task that holds the lock and acquires it again waits for itself. [`Reentrant`](crate::Reentrant)
/// is re-entrant.
#[derive(Clone, Debug)]
pub struct Lock {
    local_queues: Arc<LocalQueues>,
    /// The name, or the error of every call if the name is invalid.
    name: Result<LockName>,
    options: Options,
}

impl Client {
    /// Returns a handle on the lock of this name. Cheap; does no I/O.
    ///
    /// A name that is empty or too long does not fail here: every call on the handle fails with
    /// [`ErrorKind::InvalidArgument`] before anything is sent, and so does [`Lock::name`].
    pub fn lock(&self, name: impl AsRef<[u8]>) -> Lock {
        Lock::new(Arc::clone(&self.local_queues), LockName::new(name))
    }

    /// Continues a hold that was [detached](crate::LockGuard::detach), as [`Lock::adopt`] does, with the client's ttl.
    ///
    /// # Errors
    ///
    /// As [`Lock::adopt`].
    ///
    /// # Cancel safety
    ///
    /// As for [`Lock::adopt`].
    pub async fn adopt(&self, name: impl AsRef<[u8]>, token: OwnerToken, fence: FencingToken) -> Result<LockGuard> {
        self.lock(name).adopt(token, fence).await
    }
}

impl Lock {
    pub(crate) fn new(local_queues: Arc<LocalQueues>, name: Result<LockName>) -> Self {
        Self { local_queues, name, options: Options::default() }
    }

    /// Returns the name of the lock.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] when the handle was made with a name that is empty or too long. Every other call
    /// on it fails with the same error.
    pub fn name(&self) -> Result<&LockName> {
        self.name.as_ref().map_err(Error::clone)
    }

    /// Returns the same lock without local hand-over: the backend grants it to each holder.
    pub(crate) fn in_a_line_of_its_own(mut self) -> Self {
        self.options.line = Line::OfItsOwn;
        self
    }

    /// Returns the ttl of its leases, if it is valid.
    pub(crate) fn checked_ttl(&self) -> Result<Ttl> {
        self.options.lease(self.shared().config.ttl).map(|(ttl, _)| ttl)
    }

    option_setters!();

    /// Keeps the lock taken for at least this long after the grant, even if it is released earlier. For jobs that
    /// several instances start at about the same time and only one should run: choose a span longer than the difference
    /// between their clocks, so that a late instance finds the lock taken although the work is done. Default: zero.
    ///
    /// A release or a drop before the end of the span keeps the lease: it is renewed once, to the rest of the span, and
    /// no more; after a drop not even that if the lease already lasts so long. The client releases it at the end of the
    /// span. If the client is closed or its process ends before that, the lease ends by itself, up to a ttl later.
    /// Other tasks of the same client do not get the lock sooner either.
    ///
    /// The span does not protect against a holder that dies during the work: as always, the lock is free after the ttl,
    /// and another client may start the work again. If every occurrence has to be done, even when instances fail or
    /// none runs at the time, use a [recurring message](crate::queue::Queue::recurring).
    ///
    /// Checked when the lock is requested: the span is no longer than [`max_hold`](Self::max_hold) and
    /// [`fixed_ttl`](Self::fixed_ttl), and a lease of this length plus the drift bound is in the driver's range. Such a
    /// lease is not handed over within the client ([`holders_per_grant`](crate::ClientBuilder::holders_per_grant)).
    #[must_use]
    pub fn at_least(mut self, least: Duration) -> Self {
        self.options.at_least = Some(least);
        self
    }

    /// Shows the number of waiters ahead while this handle waits for the lock; see [`WaitProgress`]. Use one for one
    /// wait at a time: two waits at once would overwrite each other's values. Default: none.
    #[must_use]
    pub fn progress(mut self, progress: &WaitProgress) -> Self {
        self.options.progress = Some(progress.clone());
        self
    }

    /// Takes the lock if it is free now; returns `None` if it is not. Never waits for it, and leaves no trace when it
    /// is busy.
    ///
    /// Returns within the client's `op_timeout`, counted from when the request leaves: a client sends at most 128 lock
    /// requests at a time, and further ones wait until those are answered.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`], [`ErrorKind::Closed`], [`ErrorKind::LimitReached`] before anything is sent;
    /// otherwise the driver's error; [`ErrorKind::Lost`] when the grant arrived too late to be of use.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves no lock behind: the client undoes the sent request with the same token.
    pub async fn try_acquire(&self) -> Result<Option<LockGuard>> {
        self.take(Patience::None).await
    }

    /// Takes the lock, waiting without a limit.
    ///
    /// A task that already holds the lock waits for itself, forever: only it can release the lock. With the feature
    /// `tracing`, a wait that outlasts its ttl while a single hold of the same client blocks it logs a warning once,
    /// the event `tenure.waits_for_own_client`. That hold may also belong to another task that is still at work.
    ///
    /// An outage at the start fails the call after five times the client's `op_timeout`, counted from the backend's
    /// latest answer to a request of this client for a lock. After the first answer to this call, it waits through
    /// outages of any length.
    ///
    /// While other tasks of this client wait for the same lock with the same options, the call shares their place in
    /// the queue: see [`holders_per_grant`](crate::ClientBuilder::holders_per_grant). If one of them was answered
    /// already, the call waits through outages from the start.
    ///
    /// # Errors
    ///
    /// As [`Lock::try_acquire`]; [`ErrorKind::LimitReached`] also when the queue is full.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up the place in the queue and leaves no lock behind.
    pub async fn acquire(&self) -> Result<LockGuard> {
        self.take(Patience::Unlimited).await.map(LockGuard::certain)
    }

    /// Takes the lock, waiting for at most `most`; zero is one attempt. Waits through outages as well.
    ///
    /// After `TimedOut` the waiter is no longer in the backend's queue: to ensure that, the call may take up to half of
    /// the client's `op_timeout` longer.
    ///
    /// # Errors
    ///
    /// As [`Lock::acquire`]; [`ErrorKind::TimedOut`] when `most` has passed and the lock was busy. If the backend has
    /// not answered until then, it is an outage: [`ErrorKind::Unavailable`] or [`ErrorKind::Indeterminate`]. If `most`
    /// is less than the client's `op_timeout`, the backend may have had no time to answer; that is also `TimedOut`.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up the place in the queue and leaves no lock behind.
    pub async fn acquire_within(&self, most: Duration) -> Result<LockGuard> {
        self.take(Patience::Within(most)).await.map(LockGuard::certain)
    }

    /// Waits for the lock without a limit, runs `work` for as long as the lease lasts, and releases the lock:
    /// [`acquire`](Self::acquire), [`run`](LockGuard::run) and [`release`](LockGuard::release) in one.
    ///
    /// ```
    /// # use tenure_core as tenure;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> tenure::Result<()> {
    /// # let client = tenure::Client::new(tenure_memory::MemoryDriver::new());
    /// # async fn rebuild(_: tenure::FencingToken) -> u32 { 3 }
    /// // Pass the fence to every store that the work writes to.
    /// let lock = client.lock("report");
    /// let pages = lock.with(async |guard| rebuild(guard.fence()).await).await?;
    /// assert_eq!(pages, 3);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), before the work begins; [`ErrorKind::Lost`] when the lease ended before the work,
    /// which is then dropped unfinished, or when the release finds that it had ended. A release that fails otherwise
    /// continues in the background and is no error: the work was done under the lock.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up the place in the queue, or drops the work and releases the lock in the background.
    pub async fn with<T>(&self, work: impl AsyncFnOnce(&LockGuard) -> T) -> Result<T> {
        let guard = self.acquire().await?;
        let output = guard.run(work(&guard)).await?;
        unless_lost(guard.release().await, output)
    }

    async fn take(&self, patience: Patience) -> Result<Option<LockGuard>> {
        Ok(self.hold(patience).await?.inspect(LockGuard::begins))
    }

    /// Acquires a guard that has not begun.
    pub(super) async fn hold(&self, patience: Patience) -> Result<Option<LockGuard>> {
        let ask = self.ask("acquire")?;
        Ok(acquire(&self.local_queues, &ask, patience).await?.map(LockGuard::new))
    }

    /// Continues a hold that was [detached](LockGuard::detach), here or in another process: one renewal, with the
    /// options of this handle, proves that the token still has the lock. `fence` is not checked: pass the fence of the
    /// hold.
    ///
    /// Adopt only the token of a [`Detached`](crate::Detached) hold or of a parked message, and only once. Two guards
    /// of one token, or one in addition to the guard that the token was read from, both count as holders.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Lost`] when the hold has ended, or when the answer came too late to be of use: then the lock is
    /// released. Otherwise the driver's error. After another error the hold is unchanged, and may be adopted again.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the hold as it was, without a guard, with a lease that may be longer.
    pub async fn adopt(&self, token: OwnerToken, fence: FencingToken) -> Result<LockGuard> {
        let ask = self.ask("adopt")?;
        let during = |error: Error| error.during(self.shared().driver(), "adopt", &ask.name);
        let turn = LockTurn { lock: ask.name.clone(), token, fence };
        match adopt(self.shared(), turn, &ask).await.map_err(during)? {
            Adopted::Held(held) => {
                held.begins();
                Ok(LockGuard::new(held))
            }
            Adopted::Over => Err(during(Error::new(ErrorKind::Lost, LostReason::Gone.to_string()))),
            Adopted::Late => {
                Err(during(Error::new(ErrorKind::Lost, "the reply came after the lease may have expired")))
            }
        }
    }

    /// Continues a hold of this client that came with a message. Returns `None` when it has ended.
    pub(crate) async fn take_up(&self, hold: LooseHold) -> Result<Option<LockGuard>> {
        let ask = self.ask("adopt")?;
        let during = |error: Error| error.during(self.shared().driver(), "adopt", &ask.name);
        Ok(hold.adopt(&ask).await.map_err(during)?.map(LockGuard::new).inspect(LockGuard::begins))
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        self.local_queues.shared()
    }

    /// Returns the lock's holder and the number of waiters. Changes nothing.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`] when the driver does not support it; otherwise the driver's error.
    ///
    /// # Cancel safety
    ///
    /// Safe: nothing is changed.
    pub async fn inspect(&self) -> Result<Inspection> {
        let (name, locks) = (self.name()?, self.shared().backend.locks());
        let call = async {
            if locks.capabilities().introspection == Introspection::None {
                return Err(Error::new(ErrorKind::Unsupported, "this driver does not support `inspect`"));
            }
            locks.inspect(name).await
        };
        self.bounded("inspect", name, call).await
    }

    /// Takes the lock from its holder, plain or re-entrant. An operator's tool: the holder may still be at work, and
    /// notices the loss at its next renewal. Fencing tokens keep growing.
    ///
    /// The lock may have changed hands since it was inspected; [`force_release_if`](Self::force_release_if) does
    /// nothing then.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`] when the driver does not support it; otherwise the driver's error.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the lock may or may not be released.
    pub async fn force_release(&self) -> Result<ForceReleased> {
        self.force(None).await
    }

    /// Takes the lock from the hold with this fence only, as [`force_release`](Self::force_release) does; returns
    /// [`ForceReleased::Changed`] when another hold has it by now.
    ///
    /// `fence` is that of [`Holder::fence`](crate::Holder::fence), as [`inspect`](Self::inspect) returns it. Tasks of
    /// one client that hand a grant over to each other ([`holders_per_grant`](crate::ClientBuilder::holders_per_grant))
    /// are one hold, with the fence of the first.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> tenure_core::Result<()> {
    /// # let client = tenure_core::Client::new(tenure_memory::MemoryDriver::new());
    /// # let _guard = client.lock("ledger").acquire().await?;
    /// let lock = client.lock("ledger");
    /// let holder = lock.inspect().await?.holder;
    /// if let Some(fence) = holder.and_then(|holder| holder.fence) {
    ///     // … an operator decides that this holder is stuck …
    ///     println!("{:?}", lock.force_release_if(fence).await?);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`force_release`](Self::force_release).
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the lock may or may not be released.
    pub async fn force_release_if(&self, fence: FencingToken) -> Result<ForceReleased> {
        self.force(Some(fence)).await
    }

    async fn force(&self, expected: Option<FencingToken>) -> Result<ForceReleased> {
        let (name, locks) = (self.name()?, self.shared().backend.locks());
        let call = async {
            if locks.capabilities().revocation == Revocation::None {
                return Err(Error::new(ErrorKind::Unsupported, "this driver does not support `force_release`"));
            }
            locks.force_release(name, expected).await
        };
        self.bounded("force_release", name, call).await
    }

    /// Builds the engine's request, once the name and the options are valid.
    fn ask(&self, operation: &'static str) -> Result<Ask> {
        let name = self.name()?;
        let ask = self.options.ask(name, Wanted::Lock, self.shared().config.ttl);
        ask.map_err(|error| error.during(self.shared().driver(), operation, name))
    }

    async fn bounded<T>(
        &self,
        operation: &'static str,
        name: &LockName,
        call: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let answered = async {
            self.shared().ensure_open()?;
            bounded(self.shared().config.op_timeout, call).await
        };
        answered.await.map_err(|error| error.during(self.shared().driver(), operation, name))
    }
}

// Waiting for a lock to be free, without wanting it.

/// The least time between two polls.
const SHORTEST: Duration = Duration::from_millis(50);

impl Lock {
    /// Resolves when the lock is free. It makes no claim to the lock: by the time the caller acts, another client may
    /// hold it. Joins no queue, takes nothing, and delays no other client.
    ///
    /// Drivers notify queued waiters only, so this polls: immediately, after 50 ms, and at intervals that double to one
    /// second, each shortened by up to half at random; also when the observed lease could end, if that is sooner, but
    /// never within 50 ms of the poll before. One poll is an [`inspect`](Self::inspect): a round trip, two on etcd, one
    /// to each node on redlock. So it resolves up to a second after the release, and misses a lock that is free for a
    /// shorter time. To take the lock, use [`acquire`](Self::acquire): it is woken at once and costs less.
    ///
    /// [`Election::observe`](crate::election::Election::observe) reports the holder, by similar polls.
    ///
    /// A task that holds the lock itself waits forever; with the feature `tracing`, the same warning as that of
    /// [`acquire`](Self::acquire) is logged, by the client's ttl.
    ///
    /// After the first answer of the backend, the call waits through outages of any length.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> tenure_core::Result<()> {
    /// # let client = tenure_core::Client::new(tenure_memory::MemoryDriver::new());
    /// // Start up once no migration is under way.
    /// client.lock("migration").until_free().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`inspect`](Self::inspect).
    ///
    /// # Cancel safety
    ///
    /// Safe: nothing is changed.
    pub async fn until_free(&self) -> Result<()> {
        watched(self.shared(), self.name()?, Kind::Plain, self.shared().config.ttl, async || self.seen_free().await)
            .await
    }

    async fn seen_free(&self) -> Result<()> {
        let mut pause = Pause::default();
        let mut answered = false;
        loop {
            let wait = match self.inspect().await {
                Ok(seen) => {
                    let Some(holder) = seen.holder else { return Ok(()) };
                    answered = true;
                    let ends =
                        holder.remaining.map_or(Duration::MAX, |left| left.saturating_add(Duration::from_millis(1)));
                    pause.looking().min(ends).max(SHORTEST)
                }
                Err(error) if answered && error.is_transient() => pause.outage().max(SHORTEST),
                Err(error) => return Err(error),
            };
            sleep(wait).await;
        }
    }
}

// The guard.

/// A held lock. It is a *lease*: it protects from concurrent work while this process is scheduled and clocks run at
/// about the same rate. If the resource checks [`fence`](LockGuard::fence), a paused process does no harm either.
///
/// **Dropping the guard releases the lock, but not at once**: its token goes to the client's reaper, which calls the
/// backend until it acknowledges. Dropping never blocks, and works outside a runtime. [`release`](LockGuard::release)
/// is the form to await. With [`Lock::at_least`](crate::Lock::at_least) the lock is released at the end of that span.
///
/// **A forgotten guard** (`std::mem::forget`) is renewed as long as the process lives, unless the lock has a
/// [`max_hold`](crate::Lock::max_hold).
///
/// ```
/// # use tenure_core as tenure;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> tenure::Result<()> {
/// # let client = tenure::Client::new(tenure_memory::MemoryDriver::new());
/// # async fn download() -> u64 { 7 }
/// # let store = tenure::FenceGate::new();
/// let lock = client.lock("orders/42");
/// let guard = lock.acquire().await?;
///
/// // Stops when the lease is lost.
/// let data = guard.run(download()).await?;
/// // The store refuses the fences of earlier holders.
/// assert!(store.admit(guard.fence()).is_ok());
///
/// // Or drop it.
/// guard.release().await?;
/// assert!(lock.try_acquire().await?.is_some());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "dropping the guard gives the lock back"]
pub struct LockGuard {
    held: HeldEntry,
}

/// A hold without a guard, made by [`LockGuard::detach`]: the data that another process needs to adopt it.
#[derive(Clone, Debug)]
#[must_use = "no task renews the lease; adopt it, or it ends by itself"]
#[non_exhaustive]
pub struct Detached {
    /// The name of the lock.
    pub name: LockName,
    /// The token of the hold. A secret: any process that has it can renew and release the lock. [`OwnerToken::expose`]
    /// to send it, [`OwnerToken::parse`] to read it.
    pub token: OwnerToken,
    /// The fence of the hold.
    pub fence: FencingToken,
    /// The time that the lease surely lasted when it was detached.
    pub remaining: Duration,
}

impl LockGuard {
    /// Makes a guard under which no work has begun: if it is dropped before it [begins](Self::begins), the lock is
    /// released at once, whatever [span](crate::Lock::at_least) was requested.
    pub(super) fn new(held: HeldEntry) -> Self {
        Self { held }
    }

    /// Marks the guard as handed to the caller.
    pub(super) fn begins(&self) {
        self.held.begins();
    }

    /// For patience that always ends in a guard or an error.
    pub(crate) fn certain(guard: Option<Self>) -> Self {
        guard.expect("waiting ends with a lock or an error")
    }

    pub(crate) fn let_loose(self) -> Option<LooseHold> {
        self.held.let_loose()
    }

    /// Ends the guard and keeps the lock taken, without renewals, for [`Lock::adopt`](crate::Lock::adopt) in this
    /// process or another. [`extend`](Self::extend) the lease first if that may take long. The span of
    /// [`at_least`](crate::Lock::at_least) ends here; the adopting handle may set its own, counted from then on.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Lost`](crate::ErrorKind::Lost) when the lease has ended;
    /// [`ErrorKind::Indeterminate`](crate::ErrorKind::Indeterminate) when a request of the token is still without an
    /// answer, which could take the lock again after a release: the lock is then released.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future releases the lock, as dropping the guard does.
    pub async fn detach(self) -> Result<Detached> {
        let lease = Arc::clone(self.held.lease());
        let LockTurn { lock: name, token, fence } = self.held.detach().await?;
        Ok(Detached { name, token, fence, remaining: lease.deadline().remaining() })
    }

    pub(super) fn watched(&self) -> Watched {
        self.held.watched()
    }

    guard_methods!();

    /// Releases the lock and waits for the backend's acknowledgement; or hands it over to the client's next waiter, see
    /// [`holders_per_grant`](crate::ClientBuilder::holders_per_grant); or keeps the lease for the rest of its span, see
    /// [`Lock::at_least`](crate::Lock::at_least).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Lost`](crate::ErrorKind::Lost), with the reason, when the lease had ended before, so that another
    /// client may have worked since; no other hold was touched. Otherwise the driver's error: the release continues in
    /// the background with the same token, and the lease is no longer renewed.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future is like dropping the guard: the release continues in the background.
    pub async fn release(mut self) -> Result<()> {
        if self.held.pass_on() {
            return Ok(());
        }
        let (name, lease) = (self.name().clone(), Arc::clone(self.held.lease()));
        let call = |shared: Arc<Shared>, token, stands_until: Option<LeaseInstant>| async move {
            if let Some(until) = stands_until
                && outlast(&shared.backend, shared.config.drift, &lease, until).await?
            {
                return Ok(Some(()));
            }
            let released = shared.backend.locks().release(&Hold { name, token }).await?;
            Ok((released == Released::Released).then_some(()))
        };
        self.held.give_back(call).await
    }
}

/// The methods of every guard with a field `held`.
macro_rules! guard_methods {
    () => {
        /// Returns the name of the lock.
        #[must_use]
        pub fn name(&self) -> &$crate::LockName {
            self.held.lease().name()
        }

        /// Returns the fencing token of this hold: greater than that of every earlier grant of the name. Constant; no
        /// I/O.
        #[must_use]
        pub fn fence(&self) -> $crate::FencingToken {
            self.held.fence()
        }

        /// Returns the secret token of this hold, for resources that compare instead of order. Do not adopt it: the
        /// lease may have been handed over within the client by then, or be kept by `at_least`. Adopt only the token of
        /// a [`Detached`](crate::Detached) hold.
        #[must_use]
        pub fn token(&self) -> &$crate::OwnerToken {
            self.held.token()
        }

        /// Returns the time that the lease surely lasts from now if no further renewal succeeds; zero once it is lost.
        #[must_use]
        pub fn remaining(&self) -> std::time::Duration {
            self.held.lease().remaining()
        }

        /// Returns the known state of the lease. Reads the clock; no I/O, no task needed.
        #[must_use]
        pub fn state(&self) -> $crate::HoldState {
            self.held.lease().state()
        }

        /// Returns true if the lease is valid now. Reads the clock; no I/O, no task needed.
        #[must_use]
        pub fn is_held(&self) -> bool {
            self.check().is_ok()
        }

        /// Fails if the lease is lost: [`is_held`](Self::is_held) for use with `?`.
        ///
        /// # Errors
        ///
        /// [`ErrorKind::Lost`](crate::ErrorKind::Lost), with the reason.
        pub fn check(&self) -> $crate::Result<()> {
            self.held.check()
        }

        /// Resolves when the lease is lost: no later than its deadline, even if the backend does not answer. Never
        /// resolves for a lock that is released.
        ///
        /// Timers pause while the machine is suspended: a lease that ended then is reported within a second of the
        /// resume. [`is_held`](Self::is_held) and [`run`](Self::run) read the clock and need no timer.
        ///
        /// # Cancel safety
        ///
        /// Safe.
        pub async fn lost(&self) -> $crate::LostReason {
            self.held.lease().lost().await
        }

        /// Renews the lease to `ttl` from now: a further time for a fixed lease, or ahead of work that blocks the
        /// runtime for one that is renewed anyway. [`remaining`](Self::remaining) is then `ttl` less the time of the
        /// request and the [drift bound](crate::DriftBound), or as long as before: it is never shortened. A
        /// [`max_hold`](crate::Lock::max_hold) does not change.
        ///
        /// # Errors
        ///
        /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) for a ttl out of range, or one that the
        /// drift bound uses up, before anything is sent; [`ErrorKind::Lost`](crate::ErrorKind::Lost) when the lease has
        /// ended; otherwise the driver's error: the lease then lasts as long as was known before.
        ///
        /// # Cancel safety
        ///
        /// If the future is dropped, the lease may or may not be extended. A future that is kept but no longer polled
        /// gives up at its limit for an answer: the client's `op_timeout`, the ttl or a quarter of the rest of the
        /// lease, whichever is least. Until then the lease is not renewed, and a release waits. Polled again after
        /// that, it sends nothing and fails.
        pub async fn extend(&self, ttl: std::time::Duration) -> $crate::Result<()> {
            self.held.extend(ttl).await
        }

        /// Returns a handle that reports the loss of this hold: it can be cloned, sent to a task, and watched while the
        /// guard is released.
        #[must_use]
        pub fn loss(&self) -> $crate::Loss {
            $crate::Loss::of([self.held.watched()])
        }

        /// Runs `work` for as long as the lease lasts: when the lease is lost, the work is dropped unfinished. After
        /// the end of the lease, by the clock, it is not polled any more.
        ///
        /// Work that blocks its thread cannot be dropped; check [`is_held`](Self::is_held) in it.
        ///
        /// # Errors
        ///
        /// [`ErrorKind::Lost`](crate::ErrorKind::Lost) when the lease ended before the work, also if the work finished
        /// before the loss was noticed.
        ///
        /// # Cancel safety
        ///
        /// Dropping the future drops the work. The guard remains.
        pub async fn run<F: Future>(&self, work: F) -> $crate::Result<F::Output> {
            self.held.run(work).await
        }
    };
}
pub(crate) use guard_methods;

/// Returns the output of work that was done under a lock, unless the release finds that the lock had been lost. A
/// release that fails otherwise continues in the background.
pub(crate) fn unless_lost<R, T>(released: Result<R>, output: T) -> Result<T> {
    match released {
        Err(error) if error.is_lost() => Err(error),
        Ok(_) | Err(_) => Ok(output),
    }
}
