//! Elections: one leader among candidates, in numbered terms, and observers of who leads.
//!
//! | you want | take |
//! |---|---|
//! | to lead when it is your turn | [`Client::election`](crate::Client::election), [`Election::candidate`], [`Candidate::campaign`] |
//! | to know who leads, and of each change | [`Election::observe`] |
//! | to know who leads at this moment | [`Election::leader`] |
//!
//! An election is decided by the lock of the same name, on every driver: what an operator sees and
//! [forces](crate::Lock::force_release) is that lock, and who takes it without being a candidate keeps all candidates waiting. A
//! *term* is one hold of it, and its number is the fence of that hold: each term has a greater number than all before it. A leader
//! that was paused goes on as if it led, as every holder of a lease does; show the number of the term to whatever the leader
//! changes, and let it refuse smaller ones ([`FenceGate`](crate::FenceGate)).
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> tenure_core::Result<()> {
//! # let client = tenure_core::Client::new(tenure_memory::MemoryDriver::new());
//! use tenure_core::election::View;
//!
//! let election = client.election("scheduler");
//! let mut observer = election.observe()?;
//! assert!(matches!(observer.next().await, Some(View::Nobody)));
//!
//! let leadership = election.candidate("node-7:8080").campaign().await?; // waits for its turn
//! if let Some(View::Leader(leader)) = observer.next().await {
//!     println!("{:?} leads in term {}", leader.label, leader.term);
//! }
//! leadership.run(async { /* stops when the term is over */ }).await?;
//! leadership.resign().await?; // or drop it
//! # Ok(())
//! # }
//! ```

use std::time::Duration;

use futures_util::Stream;
use tokio::time::{Instant, sleep_until};

use crate::client::Client;
use crate::driver::{Holder, Inspection, Introspection};
use crate::engine::hold::Loss;
use crate::engine::wait::Pause;
use crate::lock::{Lock, LockGuard, unless_lost};
use crate::value::error::{Error, ErrorKind, Label, LockName, Result};
use crate::value::time::{HoldState, LostReason};
use crate::value::token::FencingToken;

/// A handle on one election; made by [`Client::election`](crate::Client::election). Cheap to make and to clone; holds nothing.
#[derive(Clone, Debug)]
pub struct Election {
    lock: Lock,
}

impl Client {
    /// A handle on the election of this name, which the lock of that name decides. Cheap; does no I/O.
    ///
    /// A bad name is refused as by [`Client::lock`].
    pub fn election(&self, name: impl AsRef<[u8]>) -> Election {
        Election { lock: self.lock(name).in_a_line_of_its_own() }
    }
}

impl Election {
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
    /// ([`LostReason::MaxHold`]). Default: as long as it lives.
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

/// A term of this candidate: it leads until it [resigns](Self::resign), is dropped, or the term is [lost](Self::lost). It is a
/// *lease*, as a [`LockGuard`] is.
///
/// **Dropping it resigns, but not at once**: the client's reaper calls the backend until it is acknowledged.
#[derive(Debug)]
#[must_use = "dropping the leadership resigns"]
pub struct Leadership {
    guard: LockGuard,
}

impl Leadership {
    fn new(guard: LockGuard) -> Self {
        Self { guard }
    }

    /// The name of the election.
    #[must_use]
    pub fn name(&self) -> &LockName {
        self.guard.name()
    }

    /// The number of the term: the fence of its lock, greater than that of every earlier term, and what observers are told.
    /// Constant; no I/O. Show it to whatever the leader changes.
    #[must_use]
    pub fn term(&self) -> FencingToken {
        self.guard.fence()
    }

    /// How long the term surely lasts from now if no renewal succeeds any more; zero once it is over.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.guard.remaining()
    }

    /// What is known of the term now. Reads the clock; no I/O, no task needed.
    #[must_use]
    pub fn state(&self) -> HoldState {
        self.guard.state()
    }

    /// Whether the term lasts at this moment. Reads the clock; no I/O, no task needed.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.guard.is_held()
    }

    /// As [`is_leader`](Self::is_leader), for use with `?`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Lost`], with the reason.
    pub fn check(&self) -> Result<()> {
        self.guard.check()
    }

    /// Resolves when the term is over without a resignation, no later than its deadline, and without an answer from anywhere:
    /// before any other candidate leads.
    ///
    /// # Cancel safety
    ///
    /// Safe.
    pub async fn lost(&self) -> LostReason {
        self.guard.lost().await
    }

    /// Tells the loss of the term to others: it can be cloned, sent to a task, and watched while the leader resigns.
    #[must_use]
    pub fn loss(&self) -> Loss {
        self.guard.loss()
    }

    /// Runs `work` for as long as the term lasts: when it is lost, the work is dropped where it stands, as by
    /// [`LockGuard::run`].
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Lost`] when the term was over before the work.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the work. The leadership stays.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output> {
        self.guard.run(work).await
    }

    /// Ends the term and waits for the backend's word. The next candidate is woken.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Lost`], with the reason, when the term had ended before, so that somebody else may
    /// have led since; nobody else's term was touched. Otherwise whatever the driver reports: the resignation goes on in the
    /// background with the same token until it is acknowledged, and the lease is no longer renewed.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future is like dropping the leadership: the resignation goes on in the background.
    pub async fn resign(self) -> Result<()> {
        self.guard.release().await
    }
}

// Who leads, as somebody sees it who need not be a candidate.

/// The least time between two looks.
const SHORTEST: Duration = Duration::from_millis(10);

/// What an observer sees of an election.
#[derive(Clone, Debug)]
pub enum View {
    /// This candidate led when the backend was asked.
    Leader(Leader),
    /// Nobody led when the backend was asked: the term before was over, and the next one had not begun.
    Nobody,
    /// Who leads is not known: the backend did not answer; or it told a term that had been over before, which is not repeated; or
    /// the lock is held by a foreign client, whose holds are not numbered.
    Unknown(Error),
}

/// Who leads.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leader {
    /// What the candidate is called; `None` for who took the lock without being one, and without a label.
    pub label: Option<Label>,
    /// The number of the term, greater than that of every earlier one.
    pub term: FencingToken,
    /// How long the lease lasted without a renewal, when the backend was asked; `None` if that is not known. A living leader
    /// renews it.
    pub rest: Option<Duration>,
}

impl View {
    /// The leader, if there is one and it is known.
    #[must_use]
    pub fn leader(&self) -> Option<&Leader> {
        match self {
            Self::Leader(leader) => Some(leader),
            Self::Nobody | Self::Unknown(_) => None,
        }
    }

    /// Whether an observer is to be told of `self` who was told of `other` last.
    fn differs_from(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Leader(this), Self::Leader(that)) => (this.term, &this.label) != (that.term, &that.label),
            (Self::Nobody, Self::Nobody) => false,
            (Self::Unknown(this), Self::Unknown(that)) => this.kind() != that.kind(),
            _ => true,
        }
    }
}

/// What a look at the lock says of the election.
fn seen(looked: Result<Inspection>) -> View {
    match looked.map(|inspection| inspection.holder) {
        Ok(None) => View::Nobody,
        Ok(Some(Holder { fence: Some(term), label, remaining, .. })) => {
            View::Leader(Leader { label, term, rest: remaining })
        }
        Ok(Some(_)) => {
            let text = "the lock of this election is held by a foreign client, whose holds have no fence";
            View::Unknown(Error::new(ErrorKind::Protocol, text))
        }
        Err(error) => View::Unknown(error),
    }
}

/// Observes one election; made by [`Election::observe`](Election::observe).
///
/// It looks when it is asked for the [next](Self::next) change: at a third of the ttl, at the end of the lease that was seen if
/// that is sooner, and more often while nobody leads or the backend does not answer (after 50 ms, and at intervals that double).
/// So it hears of a leader that died when its lease ends, and of a resignation within a third of the ttl;
/// [`every`](Self::every) makes that sooner. One look is an [`inspect`](Lock::inspect). There is no background task, and an observer
/// that nobody asks costs nothing.
///
/// A leader is told once for each term, not again when its lease is renewed. Terms that are over between two looks are not told.
#[derive(Debug)]
#[must_use = "an observer does nothing until it is asked for the next view"]
pub struct Observer {
    lock: Lock,
    every: Duration,
    /// When to look again.
    due: Option<Instant>,
    told: Option<View>,
    /// The newest term that was seen.
    newest: Option<FencingToken>,
    pause: Pause,
}

impl Observer {
    fn new(lock: Lock, every: Duration) -> Self {
        let observer = Self { lock, every, due: None, told: None, newest: None, pause: Pause::default() };
        observer.every(every)
    }

    /// The longest time between two looks. Default: a third of the election's ttl; at least 10 ms.
    pub fn every(mut self, span: Duration) -> Self {
        self.every = span.max(SHORTEST);
        self
    }

    /// The first view at once, and then the next one that differs; `None` once the client is closed. The term of a leader is never
    /// smaller than that of one before.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing: the next call goes on where this one was.
    pub async fn next(&mut self) -> Option<View> {
        let shared = std::sync::Arc::clone(self.lock.shared());
        tokio::select! {
            biased;
            () = shared.closed() => None,
            view = self.changed() => view,
        }
    }

    /// The same as a stream, which ends when the client is closed.
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
            let news = self.told.as_ref().is_none_or(|told| view.differs_from(told));
            if news {
                self.pause.reset();
            }
            self.due = Some(Instant::now() + self.until_the_next(&view));
            if news {
                self.told = Some(view.clone());
                return Some(view);
            }
        }
    }

    /// Does not believe in a term that was over before.
    fn credible(&mut self, view: View) -> View {
        let View::Leader(leader) = &view else { return view };
        match self.newest {
            Some(newest) if leader.term < newest => {
                let text = format!("the backend tells of term {}, and term {newest} was seen before", leader.term);
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
