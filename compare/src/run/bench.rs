//! What every section needs: how much to measure, where to run it, and one measurement with the servers' share.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::child::Worker;
use super::counters::{Counted, Counters};
use super::language::Language;
use super::report::{Report, Sample, sample};
use crate::failure::Outcome;
use crate::job::Job;

/// One way of the network that the proxy pretends to be.
pub(super) const ONE_WAY: Duration = Duration::from_millis(1);

/// A part of a comparison.
pub(super) type Section = fn(&mut Bench) -> Outcome;

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    Quick,
    Full,
}

/// The processor that servers and clients share, and another one. A wake-up across processors costs many times one
/// within, and the scheduler's choice would decide the ratios; on one processor they are the same from run to run.
pub(super) struct Pins {
    pub(super) shared: Option<String>,
    pub(super) other: Option<String>,
}

pub(super) struct Bench {
    pub(super) extent: Extent,
    pub(super) pins: Pins,
    pub(super) report: Report,
}

impl Bench {
    pub(super) fn new(what: &str, extent: Extent) -> Outcome<Self> {
        let processors = std::thread::available_parallelism()?.get();
        let pinning = super::language::on_path("taskset");
        let pin = |index: usize| (pinning && index < processors).then(|| index.to_string());
        let pins = Pins { shared: pin(processors - 1), other: pin(processors.wrapping_sub(2)) };
        let about = json!({
            "comparison": what,
            "extent": if extent == Extent::Quick { "quick" } else { "full" },
            "machine": machine(),
            "memory_gb": memory_gb(),
            "processors": processors,
            "processor": processor(),
            "kernel": std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim(),
            "a_system_call_takes_ns": system_call(),
            "load_at_start": std::fs::read_to_string("/proc/loadavg").unwrap_or_default().trim(),
            "pinned": pins.shared.is_some(),
        });
        Ok(Self { extent, pins, report: Report::new(about) })
    }

    /// Of two amounts, the one for this extent.
    pub(super) fn pick<T>(&self, quick: T, full: T) -> T {
        if self.extent == Extent::Quick { quick } else { full }
    }

    /// How often everything is measured.
    pub(super) fn rounds(&self) -> usize {
        self.pick(5, 7)
    }

    /// The same things in another order for each round.
    pub(super) fn shuffled<T: Clone>(&self, things: &[T]) -> Vec<T> {
        let mut things = things.to_vec();
        fastrand::shuffle(&mut things);
        things
    }

    /// Notes what server is measured.
    pub(super) fn about(&mut self, key: &str, value: impl Into<Value>) {
        if let Some(about) = self.report.about.as_object_mut() {
            about.insert(key.to_owned(), value.into());
        }
    }
}

/// What came of one measurement.
pub(super) struct Taken {
    pub(super) answers: Vec<Value>,
    pub(super) counters: Counters,
    /// Processor time that neither the workers nor the servers used, per second, on the processor in question.
    pub(super) foreign: f64,
}

impl Taken {
    /// The numbers of the only answer, with the servers' share per thing done.
    pub(super) fn per_thing(&self, sent: &[&str]) -> Sample {
        let mut figures = sample(&self.answers[0]);
        let count = figures.get("n").copied().unwrap_or(1.0);
        figures.insert("server_us".into(), self.counters.cpu_us / count);
        figures.insert("round_trips".into(), self.counters.reads / count);
        figures.insert("commands".into(), self.counters.calls(sent) / count);
        figures.insert("foreign".into(), self.foreign);
        figures
    }
}

/// One process for each job: all prepare, all begin together; in between and at the end the servers' counters are read.
pub(super) fn take(language: &Language, pin: Option<&str>, jobs: &[Job], servers: &[&dyn Counted]) -> Outcome<Taken> {
    take_after(language, pin, jobs, servers, || Ok(()))
}

/// The same, with an action on the servers once all workers are prepared.
pub(super) fn take_after(
    language: &Language,
    pin: Option<&str>,
    jobs: &[Job],
    servers: &[&dyn Counted],
    then: impl FnOnce() -> Outcome,
) -> Outcome<Taken> {
    let mut workers = Vec::new();
    for job in jobs {
        let mut worker = Worker::start(language, pin)?;
        worker.prepare(job)?;
        workers.push(worker);
    }
    then()?;
    let before = servers.iter().map(|server| server.counters()).collect::<Outcome<Vec<_>>>()?;
    let (busy_before, begun) = (busy(pin), Instant::now());
    for worker in &mut workers {
        worker.go()?;
    }
    let answers = workers.iter_mut().map(Worker::answer).collect::<Outcome<Vec<_>>>()?;
    let (busy_after, wall) = (busy(pin), begun.elapsed().as_secs_f64());
    let mut counters = Counters::default();
    for (server, before) in servers.iter().zip(&before) {
        counters += server.counters()?.since(before);
    }
    let own: f64 = answers.iter().filter_map(|answer| answer["cpu_s"].as_f64()).sum();
    let foreign = ((busy_after - busy_before - own - counters.cpu_us / 1e6) / wall).max(0.0);
    Ok(Taken { answers, counters, foreign })
}

/// Seconds that a processor was busy so far; of all of them, without a pin.
fn busy(pin: Option<&str>) -> f64 {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let name = format!("cpu{}", pin.unwrap_or(""));
    let line = stat.lines().find_map(|line| line.strip_prefix(&name)?.strip_prefix(' ')).unwrap_or("");
    let ticks: Vec<f64> = line.split_whitespace().filter_map(|tick| tick.parse().ok()).collect();
    let all: f64 = ticks.iter().take(8).sum();
    let idle: f64 = ticks.iter().skip(3).take(2).sum();
    (all - idle) / 100.0
}

fn processor() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    model.map_or("unknown", |(_, name)| name.trim()).to_owned()
}

/// A hypervisor says that it is there.
fn machine() -> &'static str {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    match info.lines().find(|line| line.starts_with("flags")) {
        Some(flags) if flags.split_whitespace().any(|flag| flag == "hypervisor") => "virtual",
        Some(_) => "physical",
        None => "unknown",
    }
}

fn memory_gb() -> f64 {
    let info = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = info.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    kilobytes.map_or(f64::NAN, |kilobytes| (kilobytes / 1e6).round())
}

/// Nanoseconds of one that does nothing: the least of several attempts. It says more about round trips than the processor does.
fn system_call() -> f64 {
    const CALLS: u32 = 10_000;
    let attempt = |_| {
        let begun = Instant::now();
        for _ in 0..CALLS {
            std::hint::black_box(rustix::process::getppid());
        }
        begun.elapsed().as_nanos() as f64 / f64::from(CALLS)
    };
    (0..10).map(attempt).fold(f64::INFINITY, f64::min).round()
}
