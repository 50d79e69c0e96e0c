//! Lock requests: the options as given and after checks, the terms on which a lease is handed over locally, and the
//! position in line shown to the caller.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::driver::{Family, Share};
use crate::engine::lease::{Kind, Upkeep};
use crate::value::error::{Error, ErrorKind, Label, LockName, Result};
use crate::value::time::{LeaseInstant, Ttl};
use crate::value::token::OwnerId;

/// Options as they were given; checked when the lock is requested.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    pub(crate) ttl: Option<(Duration, Upkeep)>,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) at_least: Option<Duration>,
    pub(crate) label: Option<String>,
    pub(crate) line: Line,
    pub(crate) progress: Option<WaitProgress>,
}

impl Options {
    /// Makes options of requests that share no place with other tasks.
    pub(crate) fn alone() -> Self {
        Self { line: Line::OfItsOwn, ..Self::default() }
    }

    /// Checks the options and makes the request, with the client's ttl unless the options have their own.
    pub(crate) fn ask(&self, name: &LockName, wanted: Wanted, default: Ttl) -> Result<Ask> {
        let (ttl, upkeep) = self.lease(default)?;
        if self.max_hold.is_some_and(|most| most.is_zero()) {
            return Err(Error::new(ErrorKind::InvalidArgument, "max_hold must not be zero"));
        }
        // Zero asks for nothing, and as `Some` it would keep the lease from being handed over.
        let at_least = self.at_least.filter(|least| !least.is_zero());
        // At such an end the hold is lost, and a lost hold is not kept for the rest of a span.
        for (what, end) in [("max_hold", self.max_hold), ("fixed ttl", self.fixed_ttl())] {
            if let (Some(least), Some(end)) = (at_least, end)
                && least > end
            {
                let text = format!("at_least of {least:?} is longer than the {what} of {end:?}");
                return Err(Error::new(ErrorKind::InvalidArgument, text));
            }
        }
        let label = self.label.as_deref().map(Label::new).transpose()?;
        let (name, max_hold, line, progress) = (name.clone(), self.max_hold, self.line, self.progress.clone());
        Ok(Ask { name, wanted, ttl, upkeep, max_hold, at_least, label, line, progress })
    }

    pub(crate) fn lease(&self, default: Ttl) -> Result<(Ttl, Upkeep)> {
        Ok(match self.ttl {
            Some((ttl, upkeep)) => (Ttl::new(ttl)?, upkeep),
            None => (default, Upkeep::Renewed),
        })
    }

    fn fixed_ttl(&self) -> Option<Duration> {
        self.ttl.filter(|(_, upkeep)| *upkeep == Upkeep::Fixed).map(|(ttl, _)| ttl)
    }
}

/// The object of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// A lock.
    Lock,
    /// One more entry of its owner into a lock.
    Entry(OwnerId),
    /// A share of a semaphore or of a read-write lock.
    Permits(Family, Share),
}

impl From<Wanted> for Kind {
    fn from(wanted: Wanted) -> Self {
        match wanted {
            Wanted::Lock => Self::Plain,
            Wanted::Entry(owner) => Self::Reentrant(owner),
            Wanted::Permits(family, _) => Self::Permits(family),
        }
    }
}

/// A checked request that has not been sent.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) name: LockName,
    pub(crate) wanted: Wanted,
    pub(crate) ttl: Ttl,
    pub(crate) upkeep: Upkeep,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) at_least: Option<Duration>,
    pub(crate) label: Option<Label>,
    pub(crate) line: Line,
    /// The caller's handle for its position in line.
    pub(crate) progress: Option<WaitProgress>,
}

impl Ask {
    /// Shows the caller the number of waiters ahead of it.
    pub(crate) fn report(&self, ahead: Option<u32>) {
        if let Some(progress) = &self.progress {
            progress.report(ahead);
        }
    }

    /// Returns true if the grant may serve other tasks of the client as well.
    pub(crate) fn may_be_passed_on(&self) -> bool {
        // A lease that is left standing is passed on to nobody.
        self.line == Line::OfTheClient && self.at_least.is_none()
    }
}

/// The queue of a waiter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Line {
    /// With other tasks of the client on the same terms.
    #[default]
    OfTheClient,
    /// Its own place at the backend, for its own grant.
    OfItsOwn,
}

/// The time after its grant in which a lease may be handed over: other clients wait as long.
const PASSING: Duration = Duration::from_millis(10);
/// The time that the next holder has to take a lease before it ends: as long as a waiter has for a lease that the
/// backend handed over.
pub(crate) const CLAIM: Duration = Duration::from_secs(2);

/// The terms of a request. A lease is handed over only among requests with the same terms.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Terms {
    pub(crate) ttl: Ttl,
    pub(crate) upkeep: Upkeep,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) at_least: Option<Duration>,
    pub(crate) label: Option<Label>,
}

impl Terms {
    /// Returns the terms of a request, if others may share them: a lease that joins others of its owner may not be
    /// shared.
    pub(crate) fn of(ask: &Ask) -> Option<Self> {
        let Ask { ttl, upkeep, max_hold, at_least, line, .. } = *ask;
        (ask.wanted == Wanted::Lock && line == Line::OfTheClient).then(|| Self {
            ttl,
            upkeep,
            max_hold,
            at_least,
            label: ask.label.clone(),
        })
    }

    pub(crate) fn ask(&self, name: &LockName) -> Ask {
        let Self { ttl, upkeep, max_hold, at_least, label } = self.clone();
        let (name, line) = (name.clone(), Line::OfTheClient);
        Ask { name, wanted: Wanted::Lock, ttl, upkeep, max_hold, at_least, label, line, progress: None }
    }

    /// Returns a compact mark of the terms: every hold carries a budget, and the terms are many times as large. The
    /// usual terms are encoded as they are, below 2³³; those with options by their hash, above.
    pub(crate) fn mark(&self) -> u64 {
        if let Self { max_hold: None, at_least: None, label: None, .. } = self {
            return (self.ttl.as_millis() << 1) | u64::from(self.upkeep == Upkeep::Fixed);
        }
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish() | (1 << 63)
    }

    /// Returns the time that a lease must still last without renewal to be handed over.
    pub(crate) fn least(&self) -> Duration {
        self.ttl.get().min(CLAIM) / 2
    }
}

/// The budget of a lease that may be handed over: the remaining fences of its grant, and the time limit.
#[derive(Debug)]
#[repr(Rust, packed(4))] // it is a part of every hold, beside fields of a few bytes
pub(crate) struct HandoverBudget {
    until: LeaseInstant,
    terms: u64,
    left: u32,
}

impl HandoverBudget {
    /// Makes the budget of a grant that was received at `now` and carries `fences` fences, the first holder's included.
    pub(crate) fn new(fences: u32, now: LeaseInstant, terms: &Terms) -> Self {
        // A quarter at most: the next holder of a short lease needs the rest of it.
        let until = now.after(PASSING.min(terms.ttl.get() / 4));
        Self { until, terms: terms.mark(), left: fences.saturating_sub(1) }
    }

    /// Returns the time until which the lease may be handed over; `None` if it may not.
    pub(crate) fn lasts_until(&self) -> Option<LeaseInstant> {
        let Self { until, left, .. } = *self;
        (left > 0 && LeaseInstant::now() < until).then_some(until)
    }

    /// Returns true if the lease may be handed over among requests with these terms.
    pub(crate) fn is_for(&self, terms: &Terms) -> bool {
        self.terms == terms.mark()
    }

    /// Returns the budget of the next holder.
    pub(crate) fn passed_on(self) -> Self {
        Self { left: self.left - 1, ..self }
    }
}

// A waiter's place in line, for whoever shows it.

/// The number of waiters ahead of a wait for a lock, for progress displays. Pass it to
/// [`Lock::progress`](crate::Lock::progress) before the lock is requested, and read it meanwhile, from any task or
/// thread. A clone shows the same wait.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> tenure_core::Result<()> {
/// use tenure_core::WaitProgress;
///
/// # let client = tenure_core::Client::new(tenure_memory::MemoryDriver::new());
/// let mut progress = WaitProgress::new();
/// let lock = client.lock("ledger").progress(&progress);
/// let shown = async {
///     loop {
///         match progress.changed().await {
///             Some(0) => println!("next"),
///             Some(ahead) => println!("{ahead} are ahead"),
///             None => println!("waiting"),
///         }
///     }
/// };
/// tokio::select! {
///     guard = lock.acquire() => guard?.release().await?,
///     () = shown => {}
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct WaitProgress {
    reported: Arc<watch::Sender<Option<u32>>>,
    /// The last value that this handle returned.
    seen: Option<u32>,
}

impl Default for WaitProgress {
    fn default() -> Self {
        Self::new()
    }
}

impl WaitProgress {
    /// Makes a handle that is not attached to a wait yet.
    #[must_use]
    pub fn new() -> Self {
        Self { reported: Arc::new(watch::Sender::new(None)), seen: None }
    }

    /// Returns the number of waiters ahead, by the latest answer of the backend: 0 means that this one is next, after
    /// the current holder. It can rise as well as fall: a waiter that keeps silent for too long loses its place.
    ///
    /// `None` before the first answer, if the lock was free, and if the driver does not know: it keeps no line
    /// (Redlock, MySQL), or none that counts this waiter. After the end of the wait, it returns the last known value.
    ///
    /// Tasks of one client that share a place ([`holders_per_grant`](crate::ClientBuilder::holders_per_grant)) count
    /// those before them as well. A task that joins such a place counts from the next answer on, so for a moment the
    /// number is an estimate.
    ///
    /// Reads a value; no I/O.
    #[must_use]
    pub fn ahead(&self) -> Option<u32> {
        *self.reported.borrow()
    }

    /// Waits until [`ahead`](Self::ahead) differs from the last value that this handle returned, and returns it. The
    /// first call of a handle returns as soon as a number is known. Never returns while nothing changes, so select it
    /// together with the wait.
    ///
    /// # Cancel safety
    ///
    /// Safe: the next call returns the change.
    pub async fn changed(&mut self) -> Option<u32> {
        let seen = self.seen;
        if let Ok(now) = self.reported.subscribe().wait_for(|now| *now != seen).await {
            self.seen = *now; // there is always an answer: the sender is here
        }
        self.seen
    }

    pub(crate) fn report(&self, ahead: Option<u32>) {
        // Each heartbeat brings a number, mostly the same one; only another one wakes readers.
        self.reported.send_if_modified(|reported| {
            let changes = *reported != ahead;
            *reported = ahead;
            changes
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms(ttl: u64) -> Terms {
        let ttl = Ttl::new(Duration::from_millis(ttl)).unwrap();
        Terms { ttl, upkeep: Upkeep::Renewed, max_hold: None, at_least: None, label: None }
    }

    #[test]
    fn terms_that_differ_are_known_by_other_marks() {
        let (second, usual) = (Some(Duration::from_secs(1)), terms(1_000));
        let all = [
            usual.clone(),
            terms(2_000),
            Terms { upkeep: Upkeep::Fixed, ..usual.clone() },
            Terms { max_hold: second, ..usual.clone() },
            Terms { at_least: second, ..usual.clone() },
            Terms { label: Some(Label::new("x").unwrap()), ..usual.clone() },
            Terms { label: Some(Label::new("y").unwrap()), ..usual },
        ];
        let marks: std::collections::HashSet<u64> = all.iter().map(Terms::mark).collect();
        assert_eq!(marks.len(), all.len());
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_waits_for_news_is_woken_by_news_alone() {
        let progress = WaitProgress::new();
        let mut waits = progress.reported.subscribe();
        for (ahead, is_news) in [(Some(2), true), (Some(2), false), (Some(1), true), (None, true)] {
            progress.report(ahead);
            assert_eq!((waits.has_changed().unwrap(), *waits.borrow_and_update()), (is_news, ahead));
        }
    }

    /// A grant may serve other tasks of the client if they share the place.
    #[test]
    fn a_lease_of_a_line_of_its_own_is_for_one() {
        let options = |line, least| Options { line, at_least: least, ..Options::default() };
        let name = LockName::new("a").unwrap();
        let may = |line, least| {
            let ask = options(line, least).ask(&name, Wanted::Lock, Ttl::new(Duration::from_secs(1)).unwrap()).unwrap();
            ask.may_be_passed_on()
        };
        let least = Some(Duration::from_millis(1));
        assert!(may(Line::OfTheClient, None) && !may(Line::OfTheClient, least) && !may(Line::OfItsOwn, None));
    }

    /// Half of the time that the next holder has to take it.
    #[test]
    fn a_lease_that_is_passed_on_lasts_for_a_while_still() {
        let least = |ttl| terms(ttl).least();
        assert_eq!([500, 2_000, 30_000].map(least), [250, 1_000, 1_000].map(Duration::from_millis));
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_is_passed_on_while_there_are_fences_and_for_a_quarter_of_its_ttl_at_most() {
        let now = LeaseInstant::now();
        for (ttl, span) in [(20, 5), (30_000, 10)] {
            let budget = HandoverBudget::new(3, now, &terms(ttl));
            assert_eq!(budget.lasts_until(), Some(now.after(Duration::from_millis(span))));
            let next = budget.passed_on();
            assert!(next.lasts_until().is_some() && next.passed_on().lasts_until().is_none());
        }
        tokio::time::advance(Duration::from_millis(10)).await;
        assert_eq!(HandoverBudget::new(3, now, &terms(30_000)).lasts_until(), None, "its time is over");
    }
}
