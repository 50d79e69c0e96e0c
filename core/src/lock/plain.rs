//! One plain lock: the handle, the guard, and what all guards can do.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use crate::client::Client;
use crate::driver::{ForceReleased, Hold, Inspection, Introspection, LockTurn, Released, Revocation};
use crate::engine::ask::{Ask, Line, WaitProgress};
use crate::engine::hold::{Adopted, HeldEntry, LooseHold, Watched, adopt};
use crate::engine::local_handover::LocalQueues;
use crate::engine::reaper::outlast;
use crate::engine::shared::Shared;
use crate::engine::wait::{Patience, Pause, acquire, watched};
use crate::lock::{Options, option_setters};
use crate::runtime::bounded;
use crate::value::error::{Error, ErrorKind, LockName, Result};
use crate::value::time::{LeaseInstant, LostReason, Ttl};
use crate::value::token::{FencingToken, OwnerToken};

/// A handle on one lock: how it will be asked for. Cheap to make and to clone; holds nothing.
///
/// Not re-entrant: whoever holds the lock and asks again waits for itself. [`Reentrant`](crate::Reentrant) is.
#[derive(Clone, Debug)]
pub struct Lock {
    local_queues: Arc<LocalQueues>,
    /// Or why there is no such name: the error of every call.
    name: Result<LockName>,
    options: Options,
}

impl Client {
    /// A handle on the lock of this name. Cheap; does no I/O.
    ///
    /// A name that is empty or too long is refused by what the handle is used for: every call fails with
    /// [`ErrorKind::InvalidArgument`] before anything is sent, and so does [`Lock::name`].
    pub fn lock(&self, name: impl AsRef<[u8]>) -> Lock {
        Lock::new(Arc::clone(&self.local_queues), LockName::new(name))
    }

    /// Goes on with a hold that was [detached](crate::LockGuard::detach), as [`Lock::adopt`] does, with the client's ttl.
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

    /// The name of the lock.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] when the handle was made with a name that is empty or too long. Every other call on it fails
    /// with the same error.
    pub fn name(&self) -> Result<&LockName> {
        self.name.as_ref().map_err(Error::clone)
    }

    /// The same lock, with a grant of its own for each holder: none is passed on within the client.
    pub(crate) fn in_a_line_of_its_own(mut self) -> Self {
        self.options.line = Line::OfItsOwn;
        self
    }

    /// The ttl of its leases, as far as it can be one.
    pub(crate) fn checked_ttl(&self) -> Result<Ttl> {
        self.options.lease(self.shared().config.ttl).map(|(ttl, _)| ttl)
    }

    option_setters!();

    /// Nobody else gets the lock before this span is over, counted from the grant, however soon it is given back. For work that
    /// several instances begin at about the same time and that one of them shall do: the span is longer than their clocks are
    /// apart, so that whoever comes late finds the lock taken although the work is done. Default: zero.
    ///
    /// A release or a drop before that leaves the lease *standing*: it is renewed once, to the rest of the span, and no more;
    /// after a drop not even that if the lease lasts so long already. The client gives it back when the rest is over. If the
    /// client is closed by then, or its process has ended, the lease ends by itself, up to a ttl later. Other tasks of the same
    /// client do not get the lock sooner either.
    ///
    /// It is no promise of a holder that dies at work: as always, the lock is free after the ttl, and somebody else may begin the
    /// work again. If every occurrence has to be done, though instances fail or none runs at the time, use a
    /// [recurring message](crate::queue::Queue::recurring).
    ///
    /// Checked when the lock is asked for: no longer than [`max_hold`](Self::max_hold) and [`fixed_ttl`](Self::fixed_ttl), and a
    /// lease of this length (and what clocks may run apart in it) has to be in the driver's range. Such a lease is not passed on
    /// within the client ([`holders_per_grant`](crate::ClientBuilder::holders_per_grant)).
    #[must_use]
    pub fn at_least(mut self, least: Duration) -> Self {
        self.options.at_least = Some(least);
        self
    }

    /// Shows how many waiters are ahead while this handle waits for the lock; see [`WaitProgress`]. Give it to one wait at a time: two at
    /// once would write over each other. Default: none.
    #[must_use]
    pub fn progress(mut self, progress: &WaitProgress) -> Self {
        self.options.progress = Some(progress.clone());
        self
    }

    /// Takes the lock if it is free now; `None` if it is not. Never waits for it, and leaves no trace when it is busy.
    ///
    /// Returns within the client's `op_timeout`, counted from when the request leaves: a client has at most 128 requests for
    /// locks on their way, and the others wait for as long as those are answered.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`], [`ErrorKind::Closed`], [`ErrorKind::LimitReached`] before anything is sent;
    /// whatever the driver reports; [`ErrorKind::Lost`] when the grant arrived too late to be worth anything.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves no lock behind: what was sent is undone with the same token.
    pub async fn try_acquire(&self) -> Result<Option<LockGuard>> {
        self.take(Patience::None).await
    }

    /// Takes the lock, waiting as long as it takes.
    ///
    /// A task that has the lock already waits for itself, and for ever: nobody else can release it. With the feature `tracing`, a
    /// wait that outlasts its ttl while one hold of the same client stands in the way is warned of, once, by the event
    /// `tenure.waits_for_own_client`; that hold may as well be another task's, which is still at work.
    ///
    /// An outage at the start fails the call after five times the client's `op_timeout`. Once the backend has answered, outages
    /// of any length are waited out.
    ///
    /// While other tasks of this client wait for the same lock on the same terms, it waits along with them: see
    /// [`holders_per_grant`](crate::ClientBuilder::holders_per_grant). If one of them was answered already, outages are
    /// waited out from the start.
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

    /// Takes the lock, waiting for at most `most`; zero is one attempt. Outages are waited out as well.
    ///
    /// After a `TimedOut` the waiter is out of the backend's queue: the call may take up to half of the client's `op_timeout`
    /// longer to see to that.
    ///
    /// # Errors
    ///
    /// As [`Lock::acquire`]; [`ErrorKind::TimedOut`] when `most` has passed and the lock was busy. A backend that has not
    /// answered until then is an outage: [`ErrorKind::Unavailable`] or [`ErrorKind::Indeterminate`]. If `most` is less than the
    /// client's `op_timeout` it may have had no time to answer, and that is `TimedOut` as well.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up the place in the queue and leaves no lock behind.
    pub async fn acquire_within(&self, most: Duration) -> Result<LockGuard> {
        self.take(Patience::Within(most)).await.map(LockGuard::certain)
    }

    /// Takes the lock, waiting as long as it takes, does the work for as long as the lease lasts, and gives the lock back:
    /// [`acquire`](Self::acquire), [`run`](LockGuard::run) and [`release`](LockGuard::release) in one.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), before the work begins; [`ErrorKind::Lost`] when the lease ended before the work, which is
    /// dropped where it stands, or when the release finds that it had. A release that fails otherwise goes on in the background
    /// and is no error: the work was done under the lock.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up the place in the queue, or drops the work and gives the lock back in the background.
    pub async fn with<T>(&self, work: impl AsyncFnOnce(&LockGuard) -> T) -> Result<T> {
        let guard = self.acquire().await?;
        let output = guard.run(work(&guard)).await?;
        unless_lost(guard.release().await, output)
    }

    async fn take(&self, patience: Patience) -> Result<Option<LockGuard>> {
        Ok(self.hold(patience).await?.inspect(LockGuard::begins))
    }

    /// A guard that has not begun.
    pub(super) async fn hold(&self, patience: Patience) -> Result<Option<LockGuard>> {
        let ask = self.ask("acquire")?;
        Ok(acquire(&self.local_queues, &ask, patience).await?.map(LockGuard::new))
    }

    /// Goes on with a hold that was [detached](LockGuard::detach), here or in another process: one renewal, with the options of
    /// this handle, proves that the token still has the lock. The fence is taken from you as it is: pass on the one of the hold.
    ///
    /// Adopt the token of a [`Detached`](crate::Detached) hold or of a parked message, and once. Two guards of one token, or one
    /// beside the guard that it was taken from, both count as holders.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Lost`] when the hold has ended, or when the answer came too late to be worth anything: then it is given back. Otherwise whatever the driver reports. After another error the hold is what it was, and
    /// may be adopted again.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the hold as it was, in nobody's hands, with a lease that may be longer.
    pub async fn adopt(&self, token: OwnerToken, fence: FencingToken) -> Result<LockGuard> {
        let ask = self.ask("adopt")?;
        let told = |error: Error| error.during(self.shared().driver(), "adopt", &ask.name);
        let turn = LockTurn { lock: ask.name.clone(), token, fence };
        match adopt(self.shared(), turn, &ask).await.map_err(told)? {
            Adopted::Held(held) => {
                held.begins();
                Ok(LockGuard::new(held))
            }
            Adopted::Over => Err(told(Error::new(ErrorKind::Lost, LostReason::Gone.to_string()))),
            Adopted::Late => Err(told(Error::new(ErrorKind::Lost, "the answer came when the lease could have ended"))),
        }
    }

    /// Goes on with a hold of this client that came with a message. `None` when it has ended.
    pub(crate) async fn take_up(&self, hold: LooseHold) -> Result<Option<LockGuard>> {
        let ask = self.ask("adopt")?;
        let told = |error: Error| error.during(self.shared().driver(), "adopt", &ask.name);
        Ok(hold.adopt(&ask).await.map_err(told)?.map(LockGuard::new).inspect(LockGuard::begins))
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        self.local_queues.shared()
    }

    /// Looks at the lock: who holds it and how many wait. Changes nothing.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`] when the driver cannot tell; whatever the driver reports.
    ///
    /// # Cancel safety
    ///
    /// Safe: nothing is changed.
    pub async fn inspect(&self) -> Result<Inspection> {
        let (name, locks) = (self.name()?, self.shared().backend.locks());
        let call = async {
            if locks.capabilities().introspection == Introspection::None {
                return Err(Error::new(ErrorKind::Unsupported, "this driver cannot look at locks"));
            }
            locks.inspect(name).await
        };
        self.bounded("inspect", name, call).await
    }

    /// Takes the lock from whoever holds it, plain or re-entrant. An operator's tool: the holder may still be at work,
    /// and learns of it at its next renewal. Fencing tokens keep growing.
    ///
    /// Between a look at the lock and this call it may have changed hands; [`force_release_if`](Self::force_release_if)
    /// then leaves it alone.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`] when the driver cannot; whatever the driver reports.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may leave the lock released or not.
    pub async fn force_release(&self) -> Result<ForceReleased> {
        self.force(None).await
    }

    /// Takes the lock from the hold with this fence, as [`force_release`](Self::force_release) does, and from no other:
    /// [`ForceReleased::Changed`] when somebody else holds it by now.
    ///
    /// `fence` is that of [`Holder::fence`](crate::Holder::fence), as [`inspect`](Self::inspect) tells it. Tasks of
    /// one client that pass a grant on among themselves ([`holders_per_grant`](crate::ClientBuilder::holders_per_grant)) are
    /// one hold, which goes by its first fence.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> tenure_core::Result<()> {
    /// # let client = tenure_core::Client::new(tenure_memory::MemoryDriver::new());
    /// # let _guard = client.lock("ledger").acquire().await?;
    /// let lock = client.lock("ledger");
    /// if let Some(fence) = lock.inspect().await?.holder.and_then(|holder| holder.fence) {
    ///     // … somebody decides that this holder is stuck …
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
    /// Dropping the future may leave the lock released or not.
    pub async fn force_release_if(&self, fence: FencingToken) -> Result<ForceReleased> {
        self.force(Some(fence)).await
    }

    async fn force(&self, expected: Option<FencingToken>) -> Result<ForceReleased> {
        let (name, locks) = (self.name()?, self.shared().backend.locks());
        let call = async {
            if locks.capabilities().revocation == Revocation::None {
                return Err(Error::new(ErrorKind::Unsupported, "this driver cannot force locks"));
            }
            locks.force_release(name, expected).await
        };
        self.bounded("force_release", name, call).await
    }

    /// What is asked of the engine, once the name and the options are known to be good.
    fn ask(&self, operation: &'static str) -> Result<Ask> {
        let name = self.name()?;
        let ask = self.options.ask(name, None, self.shared().config.ttl);
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

/// The least time between two looks.
const SHORTEST: Duration = Duration::from_millis(50);

impl Lock {
    /// Resolves when nobody holds the lock. That is a moment's truth and no claim to the lock: by the time that the caller
    /// acts on it, somebody else may hold it. Joins no queue, takes nothing, and keeps nobody waiting.
    ///
    /// No driver tells of a release those who do not wait for the lock, so this looks: at once, then after 50 ms, and at
    /// intervals that double to one second, each shortened by up to half at random; and when the lease that was seen
    /// could end, if that is sooner, but never within 50 ms of the look before. One look is an [`inspect`](Self::inspect): a
    /// round trip, two on etcd, one to each node on redlock. So it resolves up to a second after the release, and misses a
    /// lock that is free for less. Who wants the lock is woken at once by [`acquire`](Self::acquire), and costs less.
    ///
    /// [`Election::observe`](crate::election::Election::observe) tells who holds it, by looks like these.
    ///
    /// A task that has the lock itself waits for ever; with the feature `tracing` it is warned as by [`acquire`](Self::acquire), by the
    /// client's ttl.
    ///
    /// Once the backend has answered, outages of any length are waited out.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> tenure_core::Result<()> {
    /// # let client = tenure_core::Client::new(tenure_memory::MemoryDriver::new());
    /// client.lock("migration").until_free().await?; // start up once no migration is under way
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
        watched(self.shared(), self.name()?, self.shared().config.ttl, async || self.seen_free().await).await
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
/// about the same rate. Give [`fence`](LockGuard::fence) to the resource, and a paused process does no harm either.
///
/// **Dropping the guard gives the lock back, but not at once**: its token goes to the client's reaper, which calls the
/// backend until it is acknowledged. Dropping never blocks, and works outside a runtime.
/// [`release`](LockGuard::release) is the form that can be awaited. With [`Lock::at_least`](crate::Lock::at_least) it is given
/// back when the rest of that span is over.
///
/// **A forgotten guard** (`std::mem::forget`) is renewed as long as the process lives, unless the lock has a
/// [`max_hold`](crate::Lock::max_hold).
#[derive(Debug)]
#[must_use = "dropping the guard gives the lock back"]
pub struct LockGuard {
    held: HeldEntry,
}

/// A hold without a guard: what somebody else needs to go on with it; made by [`LockGuard::detach`].
#[derive(Clone, Debug)]
#[must_use = "no task renews the lease; adopt it, or it ends by itself"]
#[non_exhaustive]
pub struct Detached {
    /// Which lock.
    pub name: LockName,
    /// Who has this, has the lock. A secret: [`OwnerToken::expose`] to send it, [`OwnerToken::parse`] to read it.
    pub token: OwnerToken,
    /// The fence of the hold.
    pub fence: FencingToken,
    /// How long the lease surely lasted when it was detached.
    pub remaining: Duration,
}

impl LockGuard {
    /// Of a hold that nobody works under yet: whatever [span](crate::Lock::at_least) it was asked to stand for, it is given back at
    /// once if the guard is dropped before it [begins](Self::begins).
    pub(super) fn new(held: HeldEntry) -> Self {
        Self { held }
    }

    /// Comes to whoever asked for it.
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

    /// Leaves the hold to whoever has its token, in this process or another one: the lock stays taken, nobody renews the lease,
    /// and [`Lock::adopt`](crate::Lock::adopt) goes on with it. [`extend`](Self::extend) the lease before if that may take long. What
    /// [`at_least`](crate::Lock::at_least) asked for ends here; whoever adopts may ask for a span of its own, from then on.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Lost`](crate::ErrorKind::Lost) when the lease has ended;
    /// [`ErrorKind::Indeterminate`](crate::ErrorKind::Indeterminate) when a request of the token is still without an answer, which
    /// could take the lock again behind a release: the lock is then given back.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives the lock back, as dropping the guard does.
    pub async fn detach(self) -> Result<Detached> {
        let lease = Arc::clone(self.held.lease());
        let LockTurn { lock: name, token, fence } = self.held.detach().await?;
        Ok(Detached { name, token, fence, remaining: lease.deadline().remaining() })
    }

    pub(super) fn watched(&self) -> Watched {
        self.held.watched()
    }

    guard_methods!();

    /// Gives the lock back and waits for the backend's word; or gives it to the client's next waiter, see
    /// [`holders_per_grant`](crate::ClientBuilder::holders_per_grant); or sees to it that the lease is left standing, see
    /// [`Lock::at_least`](crate::Lock::at_least).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Lost`](crate::ErrorKind::Lost), with the reason, when the lease had ended before, so that somebody else may
    /// have been at work since; nobody else's lock was touched. Otherwise whatever the driver reports: the release goes on in
    /// the background with the same token, and the lease is no longer renewed.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future is like dropping the guard: the release goes on in the background.
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

/// What every guard with a field `held` can do.
macro_rules! guard_methods {
    () => {
        /// The name of the lock.
        #[must_use]
        pub fn name(&self) -> &$crate::LockName {
            self.held.lease().name()
        }

        /// The fencing token of this hold: greater than that of every earlier grant of the name. Constant; no I/O.
        #[must_use]
        pub fn fence(&self) -> $crate::FencingToken {
            self.held.fence()
        }

        /// The secret token of this hold, for resources that compare instead of order. Not to be adopted: the lease may
        /// have been passed on within the client by then, or be left standing. Only the token of a
        /// [`Detached`](crate::Detached) hold is.
        #[must_use]
        pub fn token(&self) -> &$crate::OwnerToken {
            self.held.token()
        }

        /// How long the lease surely lasts from now if no renewal succeeds any more; zero once it is lost.
        #[must_use]
        pub fn remaining(&self) -> std::time::Duration {
            self.held.lease().remaining()
        }

        /// What is known of the lease now. Reads the clock; no I/O, no task needed.
        #[must_use]
        pub fn state(&self) -> $crate::HoldState {
            self.held.lease().state()
        }

        /// Whether the lease lasts at this moment. Reads the clock; no I/O, no task needed.
        #[must_use]
        pub fn is_held(&self) -> bool {
            self.check().is_ok()
        }

        /// As [`is_held`](Self::is_held), for use with `?`.
        ///
        /// # Errors
        ///
        /// [`ErrorKind::Lost`](crate::ErrorKind::Lost), with the reason.
        pub fn check(&self) -> $crate::Result<()> {
            self.held.check()
        }

        /// Resolves when the lease is lost, no later than its deadline, and without an answer from anywhere. Never
        /// resolves for a lock that is released.
        ///
        /// Timers stand still while the machine is suspended: a lease that ended then is told within a second of the
        /// resume. [`is_held`](Self::is_held) and [`run`](Self::run) read the clock and need no timer.
        ///
        /// # Cancel safety
        ///
        /// Safe.
        pub async fn lost(&self) -> $crate::LostReason {
            self.held.lease().lost().await
        }

        /// Renews the lease to `ttl` from now: one more time for a fixed lease, or ahead of work that blocks the runtime for one that is
        /// renewed anyway. [`remaining`](Self::remaining) is then `ttl` less the way there and the
        /// [drift bound](crate::DriftBound), or as long as before: it is never shortened. A [`max_hold`](crate::Lock::max_hold) stays
        /// what it is.
        ///
        /// # Errors
        ///
        /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) for a ttl out of range, or one that the drift bound
        /// eats, before anything is sent; [`ErrorKind::Lost`](crate::ErrorKind::Lost) when the lease has ended; otherwise whatever the driver reports:
        /// the lease then lasts as long as was known before.
        ///
        /// # Cancel safety
        ///
        /// Dropping the future may leave the lease extended or not.
        /// Keep it and poll it no more, and it is given up when its time for an answer is over: the client's `op_timeout`, the
        /// ttl or a quarter of what is left of the lease, whichever is least. Until then the lease is not renewed, and a release
        /// waits. Polled again after that, it sends nothing and fails.
        pub async fn extend(&self, ttl: std::time::Duration) -> $crate::Result<()> {
            self.held.extend(ttl).await
        }

        /// Tells the loss of this hold to others: it can be cloned, sent to a task, and watched while the guard is released.
        #[must_use]
        pub fn loss(&self) -> $crate::Loss {
            $crate::Loss::of([self.held.watched()])
        }

        /// Runs `work` for as long as the lease lasts: when it is lost, the work is dropped where it stands. After the
        /// end of the lease it is not polled any more, by the clock.
        ///
        /// Work that blocks its thread cannot be dropped; check [`is_held`](Self::is_held) in it.
        ///
        /// # Errors
        ///
        /// [`ErrorKind::Lost`](crate::ErrorKind::Lost) when the lease ended before the work, also if the work came to
        /// its end before anybody noticed.
        ///
        /// # Cancel safety
        ///
        /// Dropping the future drops the work. The guard stays.
        pub async fn run<F: Future>(&self, work: F) -> $crate::Result<F::Output> {
            self.held.run(work).await
        }
    };
}
pub(crate) use guard_methods;

/// What became of work that was done under a lock: its output, unless the release finds that the lock had been lost. One that
/// fails otherwise goes on in the background.
pub(crate) fn unless_lost<R, T>(released: Result<R>, output: T) -> Result<T> {
    match released {
        Err(error) if error.is_lost() => Err(error),
        Ok(_) | Err(_) => Ok(output),
    }
}
