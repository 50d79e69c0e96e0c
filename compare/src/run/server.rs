//! What a row runs on, and what it has done so far.

use std::collections::BTreeMap;
use std::ops::AddAssign;

use super::table::Way;
use crate::job::Outcome;

/// What a row runs on.
pub(super) trait Server {
    /// What workers connect to.
    fn ports(&self, way: Way) -> Outcome<Vec<u16>>;

    /// Where subjects that use files have them.
    fn folder(&self) -> String {
        String::new()
    }

    /// Removes all data, before each measurement.
    fn tidy(&self) -> Outcome {
        Ok(())
    }

    /// All workers are prepared.
    fn before_it_begins(&self, _way: Way) -> Outcome {
        Ok(())
    }

    fn counters(&self) -> Outcome<Counters> {
        Ok(Counters::default())
    }

    /// Bytes in use.
    fn memory(&self) -> Outcome<f64> {
        Ok(f64::NAN)
    }

    /// A figure of the server itself, which each of its samples has.
    fn figure(&self) -> Option<(&'static str, f64)> {
        None
    }

    /// Its name and version, for the report.
    fn version(&self) -> Option<(&'static str, String)> {
        None
    }

    /// Forgets slow scripts, and remembers those over 200 µs from now on.
    fn watch_scripts(&self) -> Outcome {
        Ok(())
    }

    /// The longest script since then, in milliseconds; 0 if none was long enough to be remembered.
    fn longest_script(&self) -> Outcome<Option<f64>> {
        Ok(None)
    }

    /// How many connections are open, that of this question included, and the memory that they take.
    fn connections(&self) -> Outcome<Option<(f64, f64)>> {
        Ok(None)
    }
}

/// What a server has done since its start, or between two looks.
#[derive(Clone, Debug, Default)]
pub(super) struct Counters {
    pub(super) cpu_us: f64,
    /// How often it read from a socket: the round trips, where one task works.
    pub(super) reads: f64,
    pub(super) calls: BTreeMap<String, f64>,
}

impl Counters {
    /// Of a server that reports nothing else.
    pub(super) fn of_cpu(cpu_us: f64) -> Self {
        Self { cpu_us, ..Self::default() }
    }

    pub(super) fn since(&self, before: &Self) -> Self {
        let calls = self.calls.iter().map(|(name, count)| {
            let earlier = before.calls.get(name).copied().unwrap_or(0.0);
            (name.clone(), count - earlier)
        });
        let reads = (self.reads - before.reads).max(0.0);
        Self { cpu_us: self.cpu_us - before.cpu_us, reads, calls: calls.collect() }
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
