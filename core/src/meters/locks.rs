//! Counters and measurements of locks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::task::AbortHandle;

use crate::meters::{ByKind, ByName, Counter, Gauge, Histogram, Labels, Level, Meter, Only, Since, Unit, label};
use crate::value::error::{ErrorKind, LockName};
use crate::value::time::{LeaseInstant, LostReason};

const WAIT: Meter = Meter {
    name: "tenure.lock.acquire.wait",
    unit: Unit::Seconds,
    text: "From the call to the grant, of acquisitions that were granted.",
};
const HOLD: Meter = Meter {
    name: "tenure.lock.hold",
    unit: Unit::Seconds,
    text: "From the grant until the guard releases the lock or is dropped.",
};
const ACQUIRES: Meter =
    Meter { name: "tenure.lock.acquires", unit: Unit::Count, text: "Acquisitions that have ended, by outcome." };
const HANDOVERS: Meter = Meter {
    name: "tenure.lock.handovers",
    unit: Unit::Count,
    text: "Grants that the previous holder handed over, without a request to the backend.",
};
const LOSSES: Meter =
    Meter { name: "tenure.lock.losses", unit: Unit::Count, text: "Leases that ended before their release, by reason." };
const RENEWALS: Meter = Meter {
    name: "tenure.lock.renewals",
    unit: Unit::Count,
    text: "Renewals in the background that have ended, by outcome.",
};
const RENEWAL_DELAY: Meter = Meter {
    name: "tenure.lock.renewal.delay",
    unit: Unit::Seconds,
    text: "How long after its planned time a renewal left; zero for one that left early along with others.",
};
const REQUESTS: Meter = Meter {
    name: "tenure.lock.requests.in_flight",
    unit: Unit::Count,
    text: "Requests about locks that were sent and are not answered yet.",
};
const CLEANUPS: Meter = Meter {
    name: "tenure.lock.cleanups",
    unit: Unit::Count,
    text: "Grants, attempts and deliveries that are being undone in the background.",
};

const LEADING: Meter = Meter {
    name: "tenure.election.leading",
    unit: Unit::Count,
    text: "Terms that this process leads at this moment: 1 for a leader, 0 for a candidate.",
};

/// The measurements of a client's locks.
#[derive(Debug)]
struct Locks {
    by_name: ByName<LockName, OfName>,
    elections: ByName<LockName, Gauge>,
    taking: Gauge,
    giving: Gauge,
    renewing: Gauge,
    cleanups: Gauge,
}

/// The measurements by name, if names are labels.
#[derive(Debug)]
struct OfName {
    wait: Histogram,
    hold: Histogram,
    at_once: Counter,
    waited: Counter,
    busy: Counter,
    timed_out: Counter,
    cancelled: Counter,
    failed: ByKind,
    local: Counter,
    remote: Counter,
    expired: Counter,
    gone: Counter,
    max_hold: Counter,
    closed: Counter,
    confirmed: Counter,
    refused: Counter,
    unconfirmed: ByKind,
    delay: Histogram,
}

impl Locks {
    fn new(driver: &'static str, names: usize) -> Self {
        let labels = Labels::of("driver", driver);
        let requests = |operation| Gauge::new(REQUESTS, labels.with("operation", operation));
        Self {
            by_name: ByName::new(names, labels.clone(), OfName::new),
            elections: ByName::new(names, labels.clone(), |name, labels| Gauge::new(LEADING, of_name(name, labels))),
            taking: requests("take"),
            giving: requests("give_back"),
            renewing: requests("renew"),
            cleanups: Gauge::new(CLEANUPS, labels),
        }
    }
}

/// Returns the labels of a series, with the name if names are labels.
fn of_name(name: Option<&str>, labels: &Labels) -> Labels {
    match name {
        Some(name) => labels.named("name", name.to_owned()),
        None => labels.clone(),
    }
}

impl OfName {
    fn new(name: Option<&str>, labels: &Labels) -> Self {
        let labels = of_name(name, labels);
        let outcome = |meter, outcome| Counter::new(meter, labels.with("outcome", outcome));
        let lost = |reason| Counter::new(LOSSES, labels.with("reason", reason));
        Self {
            wait: Histogram::new(WAIT, labels.clone()),
            hold: Histogram::new(HOLD, labels.clone()),
            at_once: outcome(ACQUIRES, Acquired::AtOnce.outcome()),
            waited: outcome(ACQUIRES, Acquired::Waited.outcome()),
            busy: outcome(ACQUIRES, Acquired::Busy.outcome()),
            timed_out: outcome(ACQUIRES, "timed_out"),
            cancelled: outcome(ACQUIRES, "cancelled"),
            failed: ByKind::new(ACQUIRES, labels.with("outcome", "failed")),
            local: Counter::new(HANDOVERS, labels.with("kind", "local")),
            remote: Counter::new(HANDOVERS, labels.with("kind", "remote")),
            expired: lost("expired"),
            gone: lost("gone"),
            max_hold: lost("max_hold"),
            closed: lost("closed"),
            confirmed: outcome(RENEWALS, "confirmed"),
            refused: outcome(RENEWALS, "lost"),
            unconfirmed: ByKind::new(RENEWALS, labels.with("outcome", "failed")),
            delay: Histogram::new(RENEWAL_DELAY, labels),
        }
    }
}

// What the engine says.

/// The result of a renewal.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Renewal {
    Confirmed,
    Lost,
    Failed(ErrorKind),
}

/// The origin of a grant that came without a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Handover {
    /// Another task of the client.
    Local,
    /// Another client, through the backend.
    Remote,
}

/// The engine's measurements of locks.
#[derive(Clone, Debug)]
pub(crate) struct LockMeters(Only<Arc<Locks>>);

impl LockMeters {
    /// Makes the meters of a client of this driver, with so many lock names as labels.
    pub(crate) fn new(driver: &'static str, names: &Only<usize>) -> Self {
        Self(names.map(|names| Arc::new(Locks::new(driver, *names))))
    }

    fn of(&self, name: &LockName, record: impl FnOnce(&OfName)) {
        if let Some(locks) = self.0.get() {
            locks.by_name.of(name, record);
        }
    }

    /// Counts an acquisition that began then. Dropped before it has ended, it counts as cancelled.
    pub(crate) fn acquiring<'a>(&'a self, name: &'a LockName, began: LeaseInstant) -> Acquiring<'a> {
        Acquiring { since: Since::at(began), rest: self.0.map(|_| Some(Unended { meters: self, name })) }
    }

    /// Counts the end of a hold, at `now` if the clock was read.
    pub(crate) fn held(&self, name: &LockName, since: &mut Since, now: Option<LeaseInstant>) {
        if let Some(span) = since.end(now) {
            self.of(name, |meters| meters.hold.record(span));
        }
    }

    pub(crate) fn handed_over(&self, name: &LockName, how: Handover) {
        self.of(name, |meters| match how {
            Handover::Local => meters.local.add(1),
            Handover::Remote => meters.remote.add(1),
        });
    }

    pub(crate) fn lost(&self, name: &LockName, reason: LostReason) {
        self.of(name, |meters| match reason {
            LostReason::Expired => meters.expired.add(1),
            LostReason::Gone => meters.gone.add(1),
            LostReason::MaxHold => meters.max_hold.add(1),
            LostReason::Closed => meters.closed.add(1),
        });
    }

    pub(crate) fn renewal_left(&self, name: &LockName, delay: Duration) {
        self.of(name, |meters| meters.delay.record(delay));
    }

    pub(crate) fn renewed(&self, name: &LockName, how: Renewal) {
        self.of(name, |meters| match how {
            Renewal::Confirmed => meters.confirmed.add(1),
            Renewal::Lost => meters.refused.add(1),
            Renewal::Failed(kind) => meters.unconfirmed.add(kind, 1),
        });
    }

    /// Counts a candidate that begins to campaign in this election.
    pub(crate) fn campaigning(&self, name: &LockName) {
        if let Some(locks) = self.0.get() {
            locks.elections.of(name, |_| ());
        }
    }

    /// Counts a term of this process, until `lost` is done or the result is dropped.
    pub(crate) fn leading<F: Future + Send + 'static>(&self, name: &LockName, lost: F) -> Only<Leading> {
        self.0.map(|locks| {
            let term = Arc::new(Term::new(locks.elections.of(name, Clone::clone)));
            let counted = Arc::clone(&term);
            let watching = tokio::spawn(async move {
                lost.await;
                counted.end();
            });
            Leading { term, watching: watching.abort_handle() }
        })
    }

    /// Counts requests that take locks, on their way.
    pub(crate) fn taking(&self) -> Level {
        Level::of(&self.0.map(|locks| locks.taking.clone()))
    }

    /// Counts requests that release locks, on their way.
    pub(crate) fn giving_back(&self) -> Level {
        Level::of(&self.0.map(|locks| locks.giving.clone()))
    }

    /// Counts requests that renew leases, on their way.
    pub(crate) fn renewing(&self) -> Level {
        Level::of(&self.0.map(|locks| locks.renewing.clone()))
    }

    /// Counts the reaper's pending work.
    pub(crate) fn cleanups(&self) -> Level {
        Level::of(&self.0.map(|locks| locks.cleanups.clone()))
    }
}

/// A term that is counted until it has ended.
#[derive(Debug)]
struct Term {
    gauge: Gauge,
    lasts: AtomicBool,
}

impl Term {
    fn new(gauge: Gauge) -> Self {
        gauge.add(1.0);
        Self { gauge, lasts: AtomicBool::new(true) }
    }

    fn end(&self) {
        if self.lasts.swap(false, Ordering::Relaxed) {
            self.gauge.add(-1.0);
        }
    }
}

/// Counts the term of a leader.
#[derive(Debug)]
pub(crate) struct Leading {
    term: Arc<Term>,
    /// Ends the count when the term is lost.
    watching: AbortHandle,
}

impl Drop for Leading {
    fn drop(&mut self) {
        self.term.end();
        self.watching.abort();
    }
}

/// An acquisition under way.
pub(crate) struct Acquiring<'a> {
    since: Since,
    rest: Only<Option<Unended<'a>>>,
}

struct Unended<'a> {
    meters: &'a LockMeters,
    name: &'a LockName,
}

/// The result of an acquisition.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Acquired {
    /// The first answer was the grant.
    AtOnce,
    Waited,
    /// The lock was busy, and there was no patience.
    Busy,
    Failed(ErrorKind),
}

impl Acquired {
    /// Returns the metrics' label, with the kind of the error if there is one.
    pub(crate) fn outcome(self) -> &'static str {
        match self {
            Self::AtOnce => "at_once",
            Self::Waited => "waited",
            Self::Busy => "busy",
            Self::Failed(kind) => label(kind),
        }
    }
}

impl Acquiring<'_> {
    /// Ends it, with a lock that is held since then if it was granted.
    pub(crate) fn ends(mut self, how: Acquired, granted: Option<&Since>) {
        let Some(unended) = self.rest.get_mut().and_then(Option::take) else { return };
        unended.meters.of(unended.name, |meters| {
            match how {
                Acquired::AtOnce => meters.at_once.add(1),
                Acquired::Waited => meters.waited.add(1),
                Acquired::Busy => meters.busy.add(1),
                Acquired::Failed(ErrorKind::TimedOut) => meters.timed_out.add(1),
                Acquired::Failed(kind) => meters.failed.add(kind, 1),
            }
            if let Some(span) = granted.and_then(|granted| self.since.until(granted)) {
                meters.wait.record(span);
            }
        });
    }
}

impl Drop for Acquiring<'_> {
    fn drop(&mut self) {
        if let Some(unended) = self.rest.get_mut().and_then(Option::take) {
            unended.meters.of(unended.name, |meters| meters.cancelled.add(1));
        }
    }
}
