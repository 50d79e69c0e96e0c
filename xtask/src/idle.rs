//! How much of the machine is idle, by the kernel's own count of the processors that this program may use.

use std::time::{Duration, Instant};

/// Measures idle time from one moment on. Time of programs that give way (`nice`) counts as idle: they lose nothing that a limit
/// of time watches.
pub(crate) struct Gauge {
    allowed: Vec<usize>,
    since: Instant,
    /// Ticks at that moment, idle and all; `None` where the kernel does not report them.
    ticks: Option<(u64, u64)>,
}

impl Gauge {
    pub(crate) fn new() -> Self {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        let mut gauge = Self { allowed: list.map(processors).unwrap_or_default(), since: Instant::now(), ticks: None };
        gauge.restart();
        gauge
    }

    /// Measures from now on.
    pub(crate) fn restart(&mut self) {
        self.since = Instant::now();
        self.ticks = std::fs::read_to_string("/proc/stat").ok().and_then(|stat| ticks(&stat, &self.allowed));
    }

    /// How many processors were idle on average since the measurement began, once that is `least` ago; then it begins again.
    /// Where the kernel does not report it, each of the running jobs counts as one busy processor.
    pub(crate) fn idle(&mut self, least: Duration, running: usize) -> Option<f64> {
        if self.since.elapsed() < least {
            return None;
        }
        let before = self.ticks;
        self.restart();
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let (Some(before), Some(now)) = (before, self.ticks) else {
            return Some(processors.saturating_sub(running) as f64);
        };
        let share = (now.0 - before.0) as f64 / (now.1 - before.1).max(1) as f64;
        Some(share * self.allowed.len() as f64)
    }
}

/// A list such as `0-2,5`.
fn processors(list: &str) -> Vec<usize> {
    let ranges = list.trim().split(',').filter_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(first.parse().ok()?..=last.parse().ok()?)
    });
    ranges.flatten().collect()
}

/// Idle and all ticks of these processors. The fields of a line: user, nice, system, idle, waiting for a disk, and others.
fn ticks(stat: &str, processors: &[usize]) -> Option<(u64, u64)> {
    let mut sum = (0, 0);
    for processor in processors {
        let line = stat.lines().find_map(|line| line.strip_prefix(&format!("cpu{processor} ")))?;
        let fields: Vec<u64> = line.split_whitespace().filter_map(|field| field.parse().ok()).take(8).collect();
        let idle: u64 = [1, 3, 4].iter().filter_map(|index| fields.get(*index)).sum();
        sum = (sum.0 + idle, sum.1 + fields.iter().sum::<u64>());
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_ticks_are_those_of_the_allowed_processors() {
        assert_eq!(processors(" 0-2,5\n"), [0, 1, 2, 5]);
        assert!(processors("").is_empty());
        let stat = "cpu  9 9 9 9 9\ncpu0 10 2 3 50 5 1 1 0 0 0\ncpu1 1 1 1 1 1 0 0 0 0 0\ncpu10 7 7 7 7 7 0 0 0 0 0\n";
        assert_eq!(ticks(stat, &[0]), Some((57, 72)));
        assert_eq!(ticks(stat, &[0, 10]), Some((78, 107)));
        assert_eq!(ticks(stat, &[2]), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_reading_is_within_the_machine_and_needs_its_time() {
        let mut gauge = Gauge::new();
        assert_eq!(gauge.idle(Duration::from_secs(3_600), 0), None);
        std::thread::sleep(Duration::from_millis(100));
        let idle = gauge.idle(Duration::from_millis(50), 0).unwrap();
        assert!((0.0..=gauge.allowed.len() as f64).contains(&idle), "{idle}");
    }
}
