//! Elections: one leader among candidates, in numbered terms, with observers of the leader.
//!
//! | you want | take |
//! |---|---|
//! | to lead when it is your turn | [`Client::election`](crate::Client::election), [`Election::candidate`], [`Candidate::campaign`] |
//! | to follow the leader, and each change | [`Election::observe`] |
//! | to get the current leader | [`Election::leader`] |
//!
//! An election is decided by the lock of the same name, on every driver. Operators see that lock and
//! [force](crate::Lock::force_release) its release; a client that takes it without being a candidate keeps all
//! candidates waiting. A *term* is one hold of the lock, and its number is the fence of that hold: greater than the
//! number of every earlier term. A paused leader continues as if it led, as every holder of a lease does. Pass the
//! number of the term to each store that the leader changes, and let the store refuse smaller numbers
//! ([`FenceGate`](crate::FenceGate)).
//!
//! ```
//! # use tenure_core as tenure;
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> tenure::Result<()> {
//! # let client = tenure::Client::new(tenure_memory::MemoryDriver::new());
//! use tenure::election::View;
//!
//! let election = client.election("scheduler");
//! let mut observer = election.observe()?;
//! assert!(matches!(observer.next().await, Some(View::Nobody)));
//!
//! // Waits for its turn.
//! let leadership = election.candidate("node-7:8080").campaign().await?;
//! if let Some(View::Leader(leader)) = observer.next().await {
//!     println!("{:?} leads in term {}", leader.label, leader.term);
//! }
//! leadership.run(async { /* stops when the term ends */ }).await?;
//! // Or drop it.
//! leadership.resign().await?;
//! # Ok(())
//! # }
//! ```

use std::time::Duration;

use futures_util::Stream;
use tokio::time::{Instant, sleep_until};

use crate::client::Client;
use crate::driver::{ErrorExt as _, Holder, Inspection, Introspection};
use crate::engine::hold::Loss;
use crate::engine::wait::Pause;
use crate::lock::{Lock, LockGuard, unless_lost};
use crate::meters::Only;
use crate::meters::locks::Leading;
use crate::value::error::{Error, ErrorKind, Label, LockName, Result};
use crate::value::time::{HoldState, LostReason};
use crate::value::token::FencingToken;

/// A handle on one election; made by [`Client::election`](crate::Client::election). Cheap to make and to clone; holds nothing.
#[derive(Clone, Debug)]
pub struct Election {
    lock: Lock,
}

impl Client {
    /// Returns a handle on the election of this name, which the lock of that name decides. Cheap; does no I/O.
    ///
    /// An invalid name is refused as by [`Client::lock`].
    pub fn election(&self, name: impl AsRef<[u8]>) -> Election {
        Election { lock: self.lock(name).in_a_line_of_its_own() }
    }
}

impl Election {
    /// Returns the name of the election, and of the lock that decides it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] when the handle was made with a name that is empty or too long. Every other call on it fails
    /// with the same error.
    pub fn name(&self) -> Result<&LockName> {
        self.lock.name()
    }

    /// Sets the length of a term after the last renewal by its leader: after that, the next candidate leads. A living
    /// leader renews its lease at a third of it. Observers poll as often by default. Default: the client's ttl; limits
    /// as for [`Lock::ttl`].
    #[must_use]
    pub fn ttl(self, ttl: Duration) -> Self {
        Self { lock: self.lock.ttl(ttl) }
    }

    /// Sets the longest time that one leader may lead, renewed or not; then its term ends ([`LostReason::MaxHold`]).
    /// Default: as long as it lives.
    ///
    /// Without it, a leader whose task hangs leads as long as its process lives.
    #[must_use]
    pub fn max_term(self, most: Duration) -> Self {
        Self { lock: self.lock.max_hold(most) }
    }

    /// Returns a candidate. Observers see `label` when it leads, an address for example; at most
    /// [`Label::MAX_LEN`](crate::Label::MAX_LEN) bytes, checked by the campaign. It is not an identity: each campaign
    /// has its own secret token, so two candidates with one label are two.
    pub fn candidate(&self, label: impl Into<String>) -> Candidate {
        Candidate { lock: self.lock.clone().label(label) }
    }

    /// Returns the current leader; `None` if there is none. One request; changes nothing.
    ///
    /// # Errors
    ///
    /// As [`Lock::inspect`]; [`ErrorKind::Protocol`] when the lock is held by a foreign client, whose hold has no fence.
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

    /// Returns an observer, which reports the current leader and each change. Needs no candidate, joins no queue, and
    /// does nothing unless [`next`](Observer::next) is awaited. Does no I/O.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] for an invalid name or ttl; [`ErrorKind::Unsupported`] when the driver does not
    /// support `inspect`.
    pub fn observe(&self) -> Result<Observer> {
        let during = |error: Error| match self.lock.name() {
            Ok(name) => error.during(self.lock.shared().driver(), "observe", name),
            Err(unnamed) => unnamed,
        };
        self.lock.name()?;
        if self.lock.shared().backend.locks().capabilities().introspection == Introspection::None {
            return Err(during(Error::new(ErrorKind::Unsupported, "this driver does not support `inspect`")));
        }
        let ttl = self.lock.checked_ttl().map_err(during)?;
        Ok(Observer::new(self.lock.clone(), ttl.get() / 3))
    }
}

/// A candidate in an election; made by [`Election::candidate`]. Cheap to clone; holds nothing until it
/// [campaigns](Self::campaign).
///
/// A candidate that leads and campaigns again waits for its own term to end. Candidates of the same client queue
/// separately in the backend; a term is never handed over within a client.
#[derive(Clone, Debug)]
pub struct Candidate {
    lock: Lock,
}

impl Candidate {
    /// Waits without a limit until this candidate leads: in order of arrival where the driver keeps one.
    ///
    /// An outage at the start fails the call after five times the client's `op_timeout`, counted as in
    /// [`Lock::acquire`]. After the first answer to this call, it waits through outages of any length; a place in the queue that expired meanwhile is taken
    /// again, at the end. In every case it returns only on a grant by the backend that is still valid.
    ///
    /// # Errors
    ///
    /// As [`Lock::acquire`]; [`ErrorKind::Closed`] when the client is closed meanwhile.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up the place in the queue, and leaves no term behind.
    pub async fn campaign(&self) -> Result<Leadership> {
        self.begin();
        self.lock.acquire().await.map(|guard| self.leads(guard))
    }

    /// As [`campaign`](Self::campaign), waiting for at most `most`.
    ///
    /// # Errors
    ///
    /// As [`Lock::acquire_within`]; [`ErrorKind::TimedOut`] when another candidate led until then. The candidate is
    /// then out of the queue.
    ///
    /// # Cancel safety
    ///
    /// As [`campaign`](Self::campaign).
    pub async fn campaign_within(&self, most: Duration) -> Result<Leadership> {
        self.begin();
        self.lock.acquire_within(most).await.map(|guard| self.leads(guard))
    }

    /// Leads if there is no leader; returns `None` if there is one, or if another candidate waits. Never waits.
    ///
    /// # Errors
    ///
    /// As [`Lock::try_acquire`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves no term behind.
    pub async fn try_campaign(&self) -> Result<Option<Leadership>> {
        self.begin();
        Ok(self.lock.try_acquire().await?.map(|guard| self.leads(guard)))
    }

    /// Counts the campaign from its beginning, with no term yet.
    fn begin(&self) {
        if let Ok(name) = self.lock.name() {
            self.lock.shared().meters.campaigning(name);
        }
    }

    fn leads(&self, guard: LockGuard) -> Leadership {
        let loss = guard.loss();
        let counted = self.lock.shared().meters.leading(guard.name(), async move { loss.lost().await });
        Leadership { guard, counted }
    }

    /// Leads for one term: [`campaign`](Self::campaign), [`run`](Leadership::run) and [`resign`](Leadership::resign) in
    /// one. Returns the output of the work; to remain a candidate, call it again.
    ///
    /// # Errors
    ///
    /// As [`campaign`](Self::campaign), before the work begins; [`ErrorKind::Lost`] when the term ended before the
    /// work, which is then dropped unfinished, or when the resignation finds that it had ended. A resignation that
    /// fails otherwise continues in the background and is no error.
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

/// A term of this candidate: it leads until it [resigns](Self::resign), is dropped, or the term is [lost](Self::lost). It is a
/// *lease*, as a [`LockGuard`] is.
///
/// **Dropping it resigns, but not at once**: the client's reaper calls the backend until it acknowledges.
#[derive(Debug)]
#[must_use = "dropping the leadership resigns"]
pub struct Leadership {
    counted: Only<Leading>,
    guard: LockGuard,
}

impl Leadership {
    /// Returns the name of the election.
    #[must_use]
    pub fn name(&self) -> &LockName {
        self.guard.name()
    }

    /// Returns the number of the term: the fence of its lock, greater than that of every earlier term. Observers see
    /// the same number. Constant; no I/O. Pass it to each store that the leader changes.
    #[must_use]
    pub fn term(&self) -> FencingToken {
        self.guard.fence()
    }

    /// Returns the time that the term surely lasts from now if no further renewal succeeds; zero once it has ended.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.guard.remaining()
    }

    /// Returns the known state of the term. Reads the clock; no I/O, no task needed.
    #[must_use]
    pub fn state(&self) -> HoldState {
        self.guard.state()
    }

    /// Returns true if the term is valid now. Reads the clock; no I/O, no task needed.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.guard.is_held()
    }

    /// Fails if the term is lost: [`is_leader`](Self::is_leader) for use with `?`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Lost`], with the reason.
    pub fn check(&self) -> Result<()> {
        self.guard.check()
    }

    /// Resolves when the term ends without a resignation: no later than its deadline, even if the backend does not
    /// answer, and before any other candidate leads.
    ///
    /// # Cancel safety
    ///
    /// Safe.
    pub async fn lost(&self) -> LostReason {
        self.guard.lost().await
    }

    /// Returns a handle that reports the loss of the term: it can be cloned, sent to a task, and watched while the
    /// leader resigns.
    #[must_use]
    pub fn loss(&self) -> Loss {
        self.guard.loss()
    }

    /// Runs `work` for as long as the term lasts: when the term is lost, the work is dropped unfinished, as by
    /// [`LockGuard::run`].
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Lost`] when the term ended before the work.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the work. The leadership remains.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output> {
        self.guard.run(work).await
    }

    /// Ends the term and waits for the backend's acknowledgement. The next candidate is woken.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Lost`], with the reason, when the term had ended before, so that another candidate may have led
    /// since; no other term was touched. Otherwise the driver's error: the resignation continues in the background with
    /// the same token until it is acknowledged, and the lease is no longer renewed.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future is like dropping the leadership: the resignation continues in the background.
    pub async fn resign(self) -> Result<()> {
        self.uncounted().release().await
    }

    /// Returns the lock of a leadership that no longer counts as one.
    fn uncounted(self) -> LockGuard {
        let Self { counted: _counted, guard } = self;
        guard
    }
}

// Who leads, as somebody sees it who need not be a candidate.

/// The least time between two polls.
const SHORTEST: Duration = Duration::from_millis(10);

/// An observer's view of an election.
#[derive(Clone, Debug)]
pub enum View {
    /// This candidate led when the backend was asked.
    Leader(Leader),
    /// No candidate led when the backend was asked: the term before had ended, and the next one had not begun.
    Nobody,
    /// The leader is not known: the backend did not answer; or it returned an earlier term that had already ended,
    /// which is not repeated; or the lock is held by a foreign client, whose holds are not numbered.
    Unknown(Error),
}

/// The leader of an election.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leader {
    /// The candidate's label; `None` for a client that took the lock without being a candidate, and without a label.
    pub label: Option<Label>,
    /// The number of the term, greater than that of every earlier one.
    pub term: FencingToken,
    /// The time that the lease lasted without a renewal, when the backend was asked; `None` if that is not known. A
    /// living leader renews it.
    pub rest: Option<Duration>,
}

impl View {
    /// Returns the leader, if there is one and it is known.
    #[must_use]
    pub fn leader(&self) -> Option<&Leader> {
        match self {
            Self::Leader(leader) => Some(leader),
            Self::Nobody | Self::Unknown(_) => None,
        }
    }

    /// Returns true if an observer that reported `other` last has to report `self`.
    fn differs_from(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Leader(this), Self::Leader(that)) => (this.term, &this.label) != (that.term, &that.label),
            (Self::Nobody, Self::Nobody) => false,
            (Self::Unknown(this), Self::Unknown(that)) => this.kind() != that.kind(),
            _ => true,
        }
    }
}

/// Converts an inspection of the lock to a view of the election.
fn seen(looked: Result<Inspection>) -> View {
    match looked.map(|inspection| inspection.holder) {
        Ok(None) => View::Nobody,
        Ok(Some(Holder { fence: Some(term), label, remaining, .. })) => {
            View::Leader(Leader { label, term, rest: remaining })
        }
        Ok(Some(_)) => {
            let text = "the lock of this election is held by a foreign client, whose hold has no fence";
            View::Unknown(Error::new(ErrorKind::Protocol, text))
        }
        Err(error) => View::Unknown(error),
    }
}

/// Observes one election; made by [`Election::observe`](Election::observe).
///
/// It polls while [`next`](Self::next) is awaited: at a third of the ttl, at the end of the observed lease if that is
/// sooner, and more often while there is no leader or the backend does not answer (after 50 ms, and at intervals that
/// double). So it reports the death of a leader when its lease ends, and a resignation within a third of the ttl;
/// [`every`](Self::every) makes that sooner. One poll is an [`inspect`](Lock::inspect). There is no background task,
/// and an observer that is not awaited costs nothing.
///
/// A leader is reported once for each term, not again when its lease is renewed. Terms that begin and end between two
/// polls are not reported.
#[derive(Debug)]
#[must_use = "an observer does nothing until it is asked for the next view"]
pub struct Observer {
    lock: Lock,
    every: Duration,
    /// The time of the next poll.
    due: Option<Instant>,
    reported: Option<View>,
    /// The newest term seen.
    newest: Option<FencingToken>,
    pause: Pause,
}

impl Observer {
    fn new(lock: Lock, every: Duration) -> Self {
        let observer = Self { lock, every, due: None, reported: None, newest: None, pause: Pause::default() };
        observer.every(every)
    }

    /// Sets the longest time between two polls. Default: a third of the election's ttl; at least 10 ms.
    pub fn every(mut self, span: Duration) -> Self {
        self.every = span.max(SHORTEST);
        self
    }

    /// Returns the first view at once, and then the next one that differs; `None` once the client is closed. The term
    /// of a leader is never smaller than that of an earlier one.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing: the next call continues from there.
    pub async fn next(&mut self) -> Option<View> {
        let shared = std::sync::Arc::clone(self.lock.shared());
        tokio::select! {
            biased;
            () = shared.closed() => None,
            view = self.changed() => view,
        }
    }

    /// Returns the views as a stream, which ends when the client is closed.
    pub fn stream(self) -> impl Stream<Item = View> {
        futures_util::stream::unfold(self, async |mut observer| Some((observer.next().await?, observer)))
    }

    async fn changed(&mut self) -> Option<View> {
        loop {
            if let Some(due) = self.due {
                sleep_until(due).await;
            }
            let view = self.credible(seen(self.lock.inspect().await));
            if matches!(&view, View::Unknown(error) if error.kind() == ErrorKind::Closed) {
                return None;
            }
            let news = self.reported.as_ref().is_none_or(|reported| view.differs_from(reported));
            if news {
                self.pause.reset();
            }
            self.due = Some(Instant::now() + self.until_the_next(&view));
            if news {
                self.reported = Some(view.clone());
                return Some(view);
            }
        }
    }

    /// Replaces a view of a term that had already ended.
    fn credible(&mut self, view: View) -> View {
        let View::Leader(leader) = &view else { return view };
        match self.newest {
            Some(newest) if leader.term < newest => {
                let text = format!("the backend returned term {}, after term {newest}", leader.term);
                View::Unknown(Error::new(ErrorKind::Protocol, text))
            }
            _ => {
                self.newest = Some(leader.term);
                view
            }
        }
    }

    fn until_the_next(&mut self, view: &View) -> Duration {
        let pause = match view {
            // A millisecond on top: the end of a lease is noticed after it, not before.
            View::Leader(leader) => {
                leader.rest.map_or(Duration::MAX, |rest| rest.saturating_add(Duration::from_millis(1)))
            }
            View::Nobody => self.pause.up_to(self.every),
            View::Unknown(_) => self.pause.outage(),
        };
        pause.min(self.every).max(SHORTEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(holder: Holder) -> Result<Inspection> {
        Ok(Inspection::default().with_holder(Some(holder)))
    }

    fn term(number: u64) -> Holder {
        Holder::default().with_fence(FencingToken::new(number))
    }

    #[test]
    fn what_cannot_be_told_is_unknown() {
        assert!(matches!(seen(Ok(Inspection::default())), View::Nobody));
        let leader = seen(held(term(7).with_remaining(Some(Duration::ZERO))));
        assert_eq!(leader.leader().map(|leader| (leader.term.get(), leader.rest)), Some((7, Some(Duration::ZERO))));
        let foreign = seen(held(Holder::default()));
        assert!(matches!(&foreign, View::Unknown(error) if error.kind() == ErrorKind::Protocol), "{foreign:?}");
        let away = seen(Err(Error::new(ErrorKind::Unavailable, "away")));
        assert!(matches!(&away, View::Unknown(error) if error.kind() == ErrorKind::Unavailable), "{away:?}");
    }

    #[test]
    fn a_renewal_is_no_news_and_another_term_label_or_kind_is() {
        let views = || {
            let label = |text| Label::new(text).ok();
            let error = |kind| View::Unknown(Error::new(kind, "x"));
            [
                seen(held(term(1).with_label(label("a")))),
                seen(held(term(2).with_label(label("a")))),
                seen(held(term(1).with_label(label("b")))),
                View::Nobody,
                error(ErrorKind::Unavailable),
                error(ErrorKind::Denied),
            ]
        };
        for (here, this) in views().iter().enumerate() {
            for (there, that) in views().iter().enumerate() {
                assert_eq!(this.differs_from(that), here != there, "{this:?} after {that:?}");
            }
        }
        let renewed = seen(held(term(1).with_remaining(Some(Duration::from_secs(9)))));
        assert!(!renewed.differs_from(&seen(held(term(1).with_remaining(Some(Duration::from_secs(1)))))));
    }
}
