//! What servers have done so far.

use std::collections::BTreeMap;
use std::ops::AddAssign;

use crate::failure::Outcome;

/// A server with counters of its work.
pub(super) trait Counted {
    fn counters(&self) -> Outcome<Counters>;
}

/// What a server has done since its start, or between two looks.
#[derive(Clone, Debug, Default)]
pub(super) struct Counters {
    pub(super) cpu_us: f64,
    /// How often it read from a socket: the round trips, where one task works.
    pub(super) reads: f64,
    calls: BTreeMap<String, f64>,
}

/// What one look at the counters of a Redis server reads from its own sockets: three connections, one command each.
const OWN_READS: f64 = 3.0;

impl Counters {
    /// Of a server that reports nothing else.
    pub(super) fn of_cpu(cpu_us: f64) -> Self {
        Self { cpu_us, ..Self::default() }
    }

    /// And how often it read, and which commands.
    pub(super) fn with_commands(self, reads: f64, calls: BTreeMap<String, f64>) -> Self {
        Self { reads, calls, ..self }
    }

    pub(super) fn since(&self, before: &Self) -> Self {
        let calls = self.calls.iter().map(|(name, count)| {
            let earlier = before.calls.get(name).copied().unwrap_or(0.0);
            (name.clone(), count - earlier)
        });
        Self {
            cpu_us: self.cpu_us - before.cpu_us,
            reads: (self.reads - before.reads - OWN_READS).max(0.0),
            calls: calls.collect(),
        }
    }

    /// The calls of these commands.
    pub(super) fn calls(&self, names: &[&str]) -> f64 {
        names.iter().filter_map(|name| self.calls.get(*name)).fold(0.0, |sum, calls| sum + calls)
    }
}

impl AddAssign for Counters {
    fn add_assign(&mut self, other: Self) {
        self.cpu_us += other.cpu_us;
        self.reads += other.reads;
        for (name, count) in other.calls {
            *self.calls.entry(name).or_default() += count;
        }
    }
}
