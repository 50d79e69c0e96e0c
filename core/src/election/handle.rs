//! Handles: an election, and a candidate in it.

use std::time::Duration;

use crate::driver::Introspection;
use crate::election::leadership::Leadership;
use crate::election::observer::{Leader, Observer, View, seen};
use crate::lock::{Lock, unless_lost};
use crate::value::error::{Error, ErrorKind, LockName, Result};

/// A handle on one election; made by [`Client::election`](crate::Client::election). Cheap to make and to clone; holds nothing.
#[derive(Clone, Debug)]
pub struct Election {
    lock: Lock,
}

impl Election {
    pub(crate) fn new(lock: Lock) -> Self {
        Self { lock: lock.in_a_line_of_its_own() }
    }

    /// The name of the election, and of the lock that decides it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] when the handle was made with a name that is empty or too long. Every other call on it fails
    /// with the same error.
    pub fn name(&self) -> Result<&LockName> {
        self.lock.name()
    }

    /// How long a term lasts after the last sign of life of its leader: after that, the next candidate leads. A living leader
    /// renews its lease at a third of it. Observers look as often by default. Default: the client's ttl; limits as for
    /// [`Lock::ttl`].
    #[must_use]
    pub fn ttl(self, ttl: Duration) -> Self {
        Self { lock: self.lock.ttl(ttl) }
    }

    /// The longest that one leader may lead, renewed or not; then its term is over
    /// ([`LostReason::MaxHold`](crate::LostReason::MaxHold)). Default: as long as it lives.
    ///
    /// Without it, a leader whose task hangs leads as long as its process lives.
    #[must_use]
    pub fn max_term(self, most: Duration) -> Self {
        Self { lock: self.lock.max_hold(most) }
    }

    /// A candidate. `label` is what others see of it when it leads, an address for example; at most
    /// [`Label::MAX_LEN`](crate::Label::MAX_LEN) bytes, checked by the campaign. It identifies nobody: each campaign has a secret
    /// token of its own, so two candidates with one label are two.
    pub fn candidate(&self, label: impl Into<String>) -> Candidate {
        Candidate { lock: self.lock.clone().label(label) }
    }

    /// Who leads at this moment; `None` for nobody. One look; changes nothing.
    ///
    /// # Errors
    ///
    /// As [`Lock::inspect`]; [`ErrorKind::Protocol`] when the lock is held by a foreign client, whose holds have no fence.
    ///
    /// # Cancel safety
    ///
    /// Safe: nothing is changed.
    pub async fn leader(&self) -> Result<Option<Leader>> {
        match seen(self.lock.inspect().await) {
            View::Leader(leader) => Ok(Some(leader)),
            View::Nobody => Ok(None),
            View::Unknown(error) => Err(error),
        }
    }

    /// Observes who leads: at once, and at each change. Needs no candidate, joins no queue, and does nothing unless
    /// [`next`](Observer::next) is awaited. Does no I/O.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] for a name or a ttl that is none; [`ErrorKind::Unsupported`] when the driver cannot look at
    /// locks.
    pub fn observe(&self) -> Result<Observer> {
        let told = |error: Error| match self.lock.name() {
            Ok(name) => error.during(self.lock.shared().driver(), "observe", name),
            Err(unnamed) => unnamed,
        };
        self.lock.name()?;
        if self.lock.shared().backend.locks().capabilities().introspection == Introspection::None {
            return Err(told(Error::new(ErrorKind::Unsupported, "this driver cannot look at locks")));
        }
        let ttl = self.lock.checked_ttl().map_err(told)?;
        Ok(Observer::new(self.lock.clone(), ttl.get() / 3))
    }
}

/// A candidate in an election; made by [`Election::candidate`]. Cheap to clone; holds nothing until it
/// [campaigns](Self::campaign).
///
/// One that leads and campaigns again waits for its own term to end. Candidates of one client are in nobody's stead: each has a
/// place of its own in the backend's queue, and no term is passed on within the client.
#[derive(Clone, Debug)]
pub struct Candidate {
    lock: Lock,
}

impl Candidate {
    /// Waits until it is this candidate's turn to lead, as long as it takes: in order of arrival where the driver keeps one.
    ///
    /// An outage at the start fails the call after five times the client's `op_timeout`. Once the backend has answered, outages
    /// of any length are waited out; a place in the queue that lapsed meanwhile is taken again, at the end. Whatever happened
    /// before, it returns only on a grant by the backend that lasts at this moment.
    ///
    /// # Errors
    ///
    /// As [`Lock::acquire`]; [`ErrorKind::Closed`] when the client is closed meanwhile.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up the place in the queue, and leaves no term behind.
    pub async fn campaign(&self) -> Result<Leadership> {
        self.lock.acquire().await.map(Leadership::new)
    }

    /// As [`campaign`](Self::campaign), waiting for at most `most`.
    ///
    /// # Errors
    ///
    /// As [`Lock::acquire_within`]; [`ErrorKind::TimedOut`] when somebody else led until then. The candidate is then out of the
    /// queue.
    ///
    /// # Cancel safety
    ///
    /// As [`campaign`](Self::campaign).
    pub async fn campaign_within(&self, most: Duration) -> Result<Leadership> {
        self.lock.acquire_within(most).await.map(Leadership::new)
    }

    /// Leads if nobody does; `None` if somebody leads, or waits to. Never waits.
    ///
    /// # Errors
    ///
    /// As [`Lock::try_acquire`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves no term behind.
    pub async fn try_campaign(&self) -> Result<Option<Leadership>> {
        Ok(self.lock.try_acquire().await?.map(Leadership::new))
    }

    /// Leads for one term: [`campaign`](Self::campaign), [`run`](Leadership::run) and [`resign`](Leadership::resign) in one.
    /// Returns what the work returned; to go on as a candidate, call it again.
    ///
    /// # Errors
    ///
    /// As [`campaign`](Self::campaign), before the work begins; [`ErrorKind::Lost`] when the term was over before the work, which
    /// is dropped where it stands, or when the resignation finds that it had been. A resignation that fails otherwise goes on in
    /// the background and is no error.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up the place in the queue, or drops the work and resigns in the background.
    pub async fn lead<T>(&self, work: impl AsyncFnOnce(&Leadership) -> T) -> Result<T> {
        let leadership = self.campaign().await?;
        let output = leadership.run(work(&leadership)).await?;
        unless_lost(leadership.resign().await, output)
    }
}
