//! Metrics, with the feature `metrics`: counted and measured through the crate of that name, for any recorder that the
//! program has installed. `docs/metrics.md` lists them all.
//!
//! Here are counters, gauges and histograms, as the rest of the crate uses them; only this module knows the feature.
//! Without it they are values of no size: no field, no reading of a clock and no call remains. [`locks`] has the
//! measurements of the engine, [`queues`] those of queues and workers. Handles are registered once, when a client is
//! built: an acquisition needs no look-up.

pub(crate) mod locks;
pub(crate) mod queues;

use std::collections::HashMap;
use std::fmt::Display;
use std::hash::Hash;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::Duration;

pub(crate) use backing::{Counter, Gauge, Histogram, Labels, Only};

use crate::value::error::ErrorKind;
use crate::value::time::LeaseInstant;

/// A metric: its name, its unit, and its description.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(feature = "metrics"), expect(dead_code, reason = "nothing records the count"))]
pub(crate) struct Meter {
    pub(crate) name: &'static str,
    pub(crate) unit: Unit,
    pub(crate) text: &'static str,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Unit {
    Count,
    Seconds,
}

#[cfg(feature = "metrics")]
mod backing {
    //! The crate `metrics`.

    use std::time::Duration;

    use super::{Meter, Unit};

    impl From<Unit> for metrics::Unit {
        fn from(unit: Unit) -> Self {
            match unit {
                Unit::Count => Self::Count,
                Unit::Seconds => Self::Seconds,
            }
        }
    }

    /// A value that exists with the feature only.
    #[derive(Clone, Debug)]
    pub(crate) struct Only<T>(T);

    impl<T> Only<T> {
        pub(crate) fn new(make: impl FnOnce() -> T) -> Self {
            Self(make())
        }

        pub(crate) fn get(&self) -> Option<&T> {
            Some(&self.0)
        }

        pub(crate) fn get_mut(&mut self) -> Option<&mut T> {
            Some(&mut self.0)
        }

        pub(crate) fn map<'a, U>(&'a self, make: impl FnOnce(&'a T) -> U) -> Only<U> {
            Only(make(&self.0))
        }
    }

    /// The labels that distinguish a series from others of the same name.
    #[derive(Clone, Debug)]
    pub(crate) struct Labels(Vec<metrics::Label>);

    impl Labels {
        pub(crate) fn of(key: &'static str, value: &'static str) -> Self {
            Self(vec![metrics::Label::from_static_parts(key, value)])
        }

        pub(crate) fn with(&self, key: &'static str, value: &'static str) -> Self {
            let more = metrics::Label::from_static_parts(key, value);
            Self(self.0.iter().cloned().chain([more]).collect())
        }

        pub(crate) fn named(&self, key: &'static str, value: String) -> Self {
            Self(self.0.iter().cloned().chain([metrics::Label::new(key, value)]).collect())
        }
    }

    #[derive(Clone, Debug)]
    pub(crate) struct Counter(metrics::Counter);

    impl Counter {
        pub(crate) fn new(meter: Meter, labels: Labels) -> Self {
            metrics::describe_counter!(meter.name, meter.unit.into(), meter.text);
            Self(metrics::counter!(meter.name, labels.0))
        }

        pub(crate) fn add(&self, count: u64) {
            self.0.increment(count);
        }
    }

    #[derive(Clone, Debug)]
    pub(crate) struct Gauge(metrics::Gauge);

    impl Gauge {
        pub(crate) fn new(meter: Meter, labels: Labels) -> Self {
            metrics::describe_gauge!(meter.name, meter.unit.into(), meter.text);
            Self(metrics::gauge!(meter.name, labels.0))
        }

        /// Makes a handle that is not read.
        pub(crate) fn noop() -> Self {
            Self(metrics::Gauge::noop())
        }

        pub(crate) fn add(&self, difference: f64) {
            self.0.increment(difference);
        }
    }

    #[derive(Clone, Debug)]
    pub(crate) struct Histogram(metrics::Histogram);

    impl Histogram {
        pub(crate) fn new(meter: Meter, labels: Labels) -> Self {
            metrics::describe_histogram!(meter.name, meter.unit.into(), meter.text);
            Self(metrics::histogram!(meter.name, labels.0))
        }

        pub(crate) fn record(&self, span: Duration) {
            self.0.record(span.as_secs_f64());
        }
    }
}

#[cfg(not(feature = "metrics"))]
mod backing {
    //! Nothing.

    use std::marker::PhantomData;
    use std::time::Duration;

    use super::Meter;

    #[derive(Clone, Debug)]
    pub(crate) struct Only<T>(PhantomData<fn() -> T>);

    impl<T> Only<T> {
        pub(crate) fn new(_make: impl FnOnce() -> T) -> Self {
            Self(PhantomData)
        }

        pub(crate) fn get(&self) -> Option<&T> {
            None
        }

        pub(crate) fn get_mut(&mut self) -> Option<&mut T> {
            None
        }

        pub(crate) fn map<'a, U>(&'a self, _make: impl FnOnce(&'a T) -> U) -> Only<U> {
            Only(PhantomData)
        }
    }

    #[derive(Clone, Debug)]
    pub(crate) struct Labels;

    impl Labels {
        pub(crate) fn of(_key: &'static str, _value: &'static str) -> Self {
            Self
        }

        pub(crate) fn with(&self, _key: &'static str, _value: &'static str) -> Self {
            Self
        }

        pub(crate) fn named(&self, _key: &'static str, _value: String) -> Self {
            Self
        }
    }

    #[derive(Clone, Debug)]
    pub(crate) struct Counter;

    impl Counter {
        pub(crate) fn new(_meter: Meter, _labels: Labels) -> Self {
            Self
        }

        pub(crate) fn add(&self, _count: u64) {}
    }

    #[derive(Clone, Debug)]
    pub(crate) struct Gauge;

    impl Gauge {
        pub(crate) fn new(_meter: Meter, _labels: Labels) -> Self {
            Self
        }

        pub(crate) fn noop() -> Self {
            Self
        }

        pub(crate) fn add(&self, _difference: f64) {}
    }

    #[derive(Clone, Debug)]
    pub(crate) struct Histogram;

    impl Histogram {
        pub(crate) fn new(_meter: Meter, _labels: Labels) -> Self {
            Self
        }

        pub(crate) fn record(&self, _span: Duration) {}
    }
}

// What is made of them.

/// The beginning of a span, if it has begun. The engine passes a clock reading that it has anyway.
#[derive(Debug)]
pub(crate) struct Since(Only<Option<LeaseInstant>>);

impl Since {
    pub(crate) fn never() -> Self {
        Self(Only::new(|| None))
    }

    pub(crate) fn at(began: LeaseInstant) -> Self {
        Self(Only::new(|| Some(began)))
    }

    /// Begins now, unless it has begun.
    pub(crate) fn begin(&mut self) {
        if let Some(began) = self.0.get_mut() {
            began.get_or_insert_with(LeaseInstant::now);
        }
    }

    /// Returns the span between the two.
    pub(crate) fn until(&self, later: &Self) -> Option<Duration> {
        Some((*later.0.get()?)?.since((*self.0.get()?)?))
    }

    /// Returns the time since then, at `now` if the clock was read. Returned once.
    pub(crate) fn end(&mut self, now: Option<LeaseInstant>) -> Option<Duration> {
        self.0.get_mut()?.take().map(|began| now.unwrap_or_else(LeaseInstant::now).since(began))
    }
}

/// A count of existing things, over all clients together: the rest of it ends with its owner.
#[derive(Debug)]
pub(crate) struct Level(Only<Counted>);

#[derive(Debug)]
pub(crate) struct Counted {
    gauge: Gauge,
    own: AtomicUsize,
}

/// One of them, until it is dropped.
pub(crate) struct OneOf<'a>(&'a Counted);

impl Level {
    pub(super) fn of(gauge: &Only<Gauge>) -> Self {
        Self(gauge.map(|gauge| Counted { gauge: gauge.clone(), own: AtomicUsize::new(0) }))
    }

    pub(crate) fn up(&self) {
        if let Some(counted) = self.0.get() {
            counted.own.fetch_add(1, Ordering::Relaxed);
            counted.gauge.add(1.0);
        }
    }

    pub(crate) fn down(&self) {
        if let Some(counted) = self.0.get() {
            counted.own.fetch_sub(1, Ordering::Relaxed);
            counted.gauge.add(-1.0);
        }
    }

    /// Counts one more, until the result is dropped.
    pub(crate) fn one_more(&self) -> Only<OneOf<'_>> {
        self.up();
        self.0.map(OneOf)
    }
}

impl Default for Level {
    /// Makes a level that is not read.
    fn default() -> Self {
        Self::of(&Only::new(Gauge::noop))
    }
}

impl Drop for OneOf<'_> {
    fn drop(&mut self) {
        self.0.own.fetch_sub(1, Ordering::Relaxed);
        self.0.gauge.add(-1.0);
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.gauge.add(-(*self.own.get_mut() as f64));
    }
}

/// A counter for each kind of error. Each is registered at its first use: most never are.
#[derive(Debug)]
pub(crate) struct ByKind {
    meter: Meter,
    labels: Labels,
    counters: [OnceLock<Counter>; KINDS],
}

const KINDS: usize = ErrorKind::Damaged as usize + 1;

impl ByKind {
    pub(crate) fn new(meter: Meter, labels: Labels) -> Self {
        Self { meter, labels, counters: [const { OnceLock::new() }; KINDS] }
    }

    pub(crate) fn add(&self, kind: ErrorKind, count: u64) {
        if let Some(counter) = self.counters.get(kind as usize) {
            let new = || Counter::new(self.meter, self.labels.with("error.type", label(kind)));
            counter.get_or_init(new).add(count);
        }
    }
}

/// Returns the label value of an error kind.
pub(super) fn label(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::TimedOut => "timed_out",
        ErrorKind::Lost => "lost",
        ErrorKind::NotHeld => "not_held",
        ErrorKind::Unavailable => "unavailable",
        ErrorKind::Indeterminate => "indeterminate",
        ErrorKind::Unsupported => "unsupported",
        ErrorKind::InvalidArgument => "invalid_argument",
        ErrorKind::LimitReached => "limit_reached",
        ErrorKind::Misconfigured => "misconfigured",
        ErrorKind::Denied => "denied",
        ErrorKind::Closed => "closed",
        ErrorKind::Protocol => "protocol",
        ErrorKind::Damaged => "damaged",
    }
}

/// The label value of names beyond the limit.
const OTHERS: &str = "_other";

/// The series of all names: one set for all, or one for each of the first so many.
#[derive(Debug)]
pub(crate) struct ByName<N, T, L = Labels> {
    most: usize,
    labels: L,
    make: fn(Option<&str>, &L) -> T,
    /// The series of all names, or of those beyond the limit.
    all: T,
    named: RwLock<HashMap<N, Arc<T>>>,
}

impl<N: Clone + Display + Eq + Hash, T, L> ByName<N, T, L> {
    /// Makes the series; `make` gets the name for the labels, if there is one.
    pub(crate) fn new(most: usize, labels: L, make: fn(Option<&str>, &L) -> T) -> Self {
        let all = make((most > 0).then_some(OTHERS), &labels);
        Self { most, labels, make, all, named: RwLock::default() }
    }

    /// Uses the series of this name.
    pub(crate) fn of<R>(&self, name: &N, use_it: impl FnOnce(&T) -> R) -> R {
        if self.most == 0 {
            return use_it(&self.all);
        }
        let known = |named: &HashMap<N, Arc<T>>| (named.get(name).cloned(), named.len() < self.most);
        match known(&self.named.read().unwrap_or_else(PoisonError::into_inner)) {
            (Some(known), _) => return use_it(&known),
            (None, false) => return use_it(&self.all),
            (None, true) => {}
        }
        let mut named = self.named.write().unwrap_or_else(PoisonError::into_inner);
        match known(&named) {
            (Some(known), _) => use_it(&known),
            (None, false) => use_it(&self.all),
            (None, true) => {
                let new = Arc::new((self.make)(Some(&name.to_string()), &self.labels));
                use_it(named.entry(name.clone()).or_insert(new))
            }
        }
    }
}

// What drivers tell.

const RECONNECTS: Meter = Meter {
    name: "tenure.reconnects",
    unit: Unit::Count,
    text: "Connections to a server that were opened again after they had ended.",
};

/// Counts a connection of this driver that was made again after it had ended: for drivers, which call it once for each.
/// With the feature `metrics` it counts in `tenure.reconnects`; without it, nothing happens.
pub fn reconnected(driver: &'static str) {
    let counter = Only::new(|| Counter::new(RECONNECTS, Labels::of("driver", driver)));
    if let Some(counter) = counter.get() {
        counter.add(1);
    }
}
