//! Counters and measurements of queues. Metrics that OpenTelemetry names for messaging are used with its labels.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use crate::meters::{ByKind, ByName, Counter, Gauge, Histogram, Labels, Meter, Only, Unit};
use crate::value::error::ErrorKind;
use crate::value::queue::QueueName;

const SENT: Meter =
    Meter { name: "messaging.client.sent.messages", unit: Unit::Count, text: "Messages that were pushed, by outcome." };
const CONSUMED: Meter =
    Meter { name: "messaging.client.consumed.messages", unit: Unit::Count, text: "Messages that were received." };
const PROCESS: Meter = Meter {
    name: "messaging.process.duration",
    unit: Unit::Seconds,
    text: "How long a worker handled a message, until its settlement began.",
};
const DELIVERIES: Meter =
    Meter { name: "tenure.queue.deliveries", unit: Unit::Count, text: "Deliveries that have ended, by outcome." };
const LAG: Meter = Meter {
    name: "tenure.queue.lag",
    unit: Unit::Seconds,
    text: "How long after its due time a message was received.",
};
const DEPTH: Meter = Meter {
    name: "tenure.queue.depth",
    unit: Unit::Count,
    text: "Messages in the queues by state, as of the program's last request.",
};
const DEAD_LETTERS: Meter = Meter {
    name: "tenure.queue.dead_letters",
    unit: Unit::Count,
    text: "Messages that moved to the dead letters, by reason.",
};

/// The queues of one client. Registered when the first of them is used.
#[derive(Debug)]
pub(crate) struct AllQueues(Only<Registered>);

#[derive(Debug)]
struct Registered {
    driver: &'static str,
    names: usize,
    by_name: OnceLock<ByName<QueueName, Arc<OfName>, (Labels, Labels)>>,
}

/// The measurements by name, if names are labels.
#[derive(Debug)]
struct OfName {
    stored: Counter,
    replaced: Counter,
    duplicate: Counter,
    unsent: ByKind,
    consumed: Counter,
    process: Histogram,
    acked: Counter,
    retried: Counter,
    returned: Counter,
    parked: Counter,
    dead: Counter,
    postponed: Counter,
    missed: Counter,
    occurrence_failed: Counter,
    stale: Counter,
    lost: Counter,
    unsettled: ByKind,
    lag: Histogram,
    depth: [Gauge; 4],
    buried: Counter,
    found_dead: Counter,
}

impl OfName {
    fn new(name: Option<&str>, labels: &(Labels, Labels)) -> Arc<Self> {
        let (mut own, mut messaging) = labels.clone();
        if let Some(name) = name {
            own = own.named("name", name.to_owned());
            messaging = messaging.named("messaging.destination.name", name.to_owned());
        }
        let operation = |name| messaging.with("messaging.operation.name", name);
        let push = operation("push");
        let sent = |outcome| Counter::new(SENT, push.with("outcome", outcome));
        let ended = |outcome| Counter::new(DELIVERIES, own.with("outcome", outcome));
        let dead = |reason| Counter::new(DEAD_LETTERS, own.with("reason", reason));
        Arc::new(Self {
            stored: sent("stored"),
            replaced: sent("replaced"),
            duplicate: sent("duplicate"),
            unsent: ByKind::new(SENT, push.with("outcome", "failed")),
            consumed: Counter::new(CONSUMED, operation("receive")),
            process: Histogram::new(PROCESS, operation("process")),
            acked: ended("ack"),
            retried: ended("retry"),
            returned: ended("return"),
            parked: ended("park"),
            dead: ended("dead"),
            postponed: ended("postponed"),
            missed: ended("missed"),
            occurrence_failed: ended("occurrence_failed"),
            stale: ended("stale"),
            lost: ended("lost_lease"),
            unsettled: ByKind::new(DELIVERIES, own.with("outcome", "failed")),
            lag: Histogram::new(LAG, own.clone()),
            depth: STATES.map(|state| Gauge::new(DEPTH, own.with("state", state))),
            buried: dead("settled"),
            found_dead: dead("found"),
        })
    }
}

const STATES: [&str; 4] = ["scheduled", "ready", "in_flight", "dead"];

impl AllQueues {
    /// Makes the meters of a client of this driver, with so many queue names as labels.
    pub(crate) fn new(driver: &'static str, names: &Only<usize>) -> Self {
        Self(names.map(|names| Registered { driver, names: *names, by_name: OnceLock::new() }))
    }

    pub(crate) fn of(&self, name: &QueueName) -> QueueMeters {
        QueueMeters(self.0.map(|all| {
            let labels = || (Labels::of("driver", all.driver), Labels::of("messaging.system", all.driver));
            let by_name = all.by_name.get_or_init(|| ByName::new(all.names, labels(), OfName::new));
            OfQueue { series: by_name.of(name, Arc::clone), depth: Mutex::default() }
        }))
    }
}

// What the queues say.

/// The answer to a push.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sent {
    Stored,
    Replaced,
    Duplicate,
}

/// The result of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivered {
    Acked,
    Retried,
    Returned,
    Parked,
    Dead,
    /// Dead, but the dead letters are full.
    Postponed,
    /// An occurrence that is not handled, because it was received too late.
    Missed,
    /// An occurrence that failed for good.
    OccurrenceFailed,
    /// The backend does not know the delivery any more, although its lease should last.
    Stale,
    /// The lease had ended before the settlement.
    LostLease,
    Failed(ErrorKind),
}

/// One client's measurements of one queue.
#[derive(Debug)]
pub(crate) struct QueueMeters(Only<OfQueue>);

#[derive(Debug)]
struct OfQueue {
    series: Arc<OfName>,
    /// The share of this queue in the gauges.
    depth: Mutex<[u64; 4]>,
}

impl QueueMeters {
    fn record(&self, record: impl FnOnce(&OfName)) {
        if let Some(queue) = self.0.get() {
            record(&queue.series);
        }
    }

    pub(crate) fn sent(&self, how: Sent) {
        self.record(|meters| match how {
            Sent::Stored => meters.stored.add(1),
            Sent::Replaced => meters.replaced.add(1),
            Sent::Duplicate => meters.duplicate.add(1),
        });
    }

    /// Counts messages that were not stored, as far as known.
    pub(crate) fn unsent(&self, kind: ErrorKind, count: usize) {
        self.record(|meters| meters.unsent.add(kind, count as u64));
    }

    /// Counts a message that this client received, so long after it was due.
    pub(crate) fn received(&self, late: Duration) {
        self.record(|meters| {
            meters.consumed.add(1);
            meters.lag.record(late);
        });
    }

    pub(crate) fn processed(&self, took: Duration) {
        self.record(|meters| meters.process.record(took));
    }

    pub(crate) fn ended(&self, how: Delivered) {
        self.record(|meters| match how {
            Delivered::Acked => meters.acked.add(1),
            Delivered::Retried => meters.retried.add(1),
            Delivered::Returned => meters.returned.add(1),
            Delivered::Parked => meters.parked.add(1),
            Delivered::Dead => meters.dead.add(1),
            Delivered::Postponed => meters.postponed.add(1),
            Delivered::Missed => meters.missed.add(1),
            Delivered::OccurrenceFailed => meters.occurrence_failed.add(1),
            Delivered::Stale => meters.stale.add(1),
            Delivered::LostLease => meters.lost.add(1),
            Delivered::Failed(kind) => meters.unsettled.add(kind, 1),
        });
    }

    /// Counts a message that a settlement made a dead letter.
    pub(crate) fn buried(&self) {
        self.record(|meters| meters.buried.add(1));
    }

    /// Counts messages that a request found to be undeliverable, and made dead letters.
    pub(crate) fn found_dead(&self, count: u64) {
        self.record(|meters| meters.found_dead.add(count));
    }

    /// Records the counts of scheduled, ready, in-flight and dead messages.
    pub(crate) fn depth(&self, counts: [u64; 4]) {
        if let Some(queue) = self.0.get() {
            queue.set(counts);
        }
    }
}

impl OfQueue {
    /// Several queues count in one gauge, so each adds its difference.
    fn set(&self, counts: [u64; 4]) {
        let mut before = self.depth.lock().unwrap_or_else(PoisonError::into_inner);
        for ((gauge, now), before) in self.series.depth.iter().zip(counts).zip(before.iter_mut()) {
            gauge.add(now as f64 - std::mem::replace(before, now) as f64);
        }
    }
}

impl Drop for OfQueue {
    fn drop(&mut self) {
        self.set([0; 4]);
    }
}
