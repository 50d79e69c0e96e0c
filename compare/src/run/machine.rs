//! Where it is measured: what a report says of the machine, and the processors that servers and workers are pinned to.

use std::fs::read_to_string;
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::{Value, json};

use crate::job::Outcome;

/// The processor that servers and clients share, and another one. A wake-up across processors costs many times one
/// within, and the scheduler's choice would decide the ratios; on one processor they are the same from run to run.
pub(super) struct Pins {
    pub(super) shared: Option<String>,
    pub(super) other: Option<String>,
}

impl Pins {
    pub(super) fn of_this_machine() -> Outcome<Self> {
        let processors = std::thread::available_parallelism()?.get();
        let pinning = on_path("taskset");
        let pin = |index: usize| (pinning && index < processors).then(|| index.to_string());
        Ok(Self { shared: pin(processors - 1), other: pin(processors.wrapping_sub(2)) })
    }
}

/// A command on the processors `pin`, if there are any to name.
pub(super) fn pinned(program: impl AsRef<std::ffi::OsStr>, pin: Option<&str>) -> Command {
    match pin {
        Some(cpus) => {
            let mut command = Command::new("taskset");
            command.args(["-c", cpus]).arg(program);
            command
        }
        None => Command::new(program),
    }
}

/// Moves all threads of a process to the processors `pin`.
pub(super) fn pin_process(pid: Option<u32>, pin: Option<&str>) -> Outcome {
    let (Some(cpus), Some(pid)) = (pin, pid) else { return Ok(()) };
    let mut command = Command::new("taskset");
    let status = command.args(["-acp", cpus, &pid.to_string()]).stdout(Stdio::null()).status()?;
    if status.success() { Ok(()) } else { Err(format!("cannot pin the server: {status}").into()) }
}

/// Whether a program is on the PATH.
pub(super) fn on_path(program: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&paths).any(|folder| folder.join(program).is_file())
}

/// What a report begins with.
pub(super) fn about(comparison: &str, extent: &str, pins: &Pins) -> Outcome<Value> {
    let info = read_to_string("/proc/cpuinfo").unwrap_or_default();
    let of_processor = |key: &str| info.lines().find_map(|line| line.strip_prefix(key)?.split_once(':'));
    let memory = read_to_string("/proc/meminfo").unwrap_or_default();
    let memory = memory.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kilobytes = memory.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    // A hypervisor says that it is there.
    let machine = match of_processor("flags") {
        Some((_, flags)) if flags.split_whitespace().any(|flag| flag == "hypervisor") => "virtual",
        Some(_) => "physical",
        None => "unknown",
    };
    Ok(json!({
        "comparison": comparison,
        "extent": extent,
        "machine": machine,
        "memory_gb": kilobytes.map_or(f64::NAN, |kilobytes| (kilobytes / 1e6).round()),
        "processors": std::thread::available_parallelism()?.get(),
        "processor": of_processor("model name").map_or("unknown", |(_, name)| name.trim()),
        "kernel": read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim(),
        "a_system_call_takes_ns": system_call(),
        "load_at_start": read_to_string("/proc/loadavg").unwrap_or_default().trim(),
        "pinned": pins.shared.is_some(),
    }))
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
