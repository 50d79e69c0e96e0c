//! Waiters that die in the queue.

use super::super::bench::{Bench, take};
use super::super::language::Language;
use super::super::redis::Redis;
use super::super::report::{Section, sample};
use crate::failure::Outcome;
use crate::job::Job;

/// Row, waiters that die, and how long after the kill the holder releases.
const CASES: [(&str, usize, u64); 3] =
    [(AIM, 64, 20), ("24 waiters, released 20 ms after the kill", 24, 20), ("24 waiters, released at once", 24, 0)];
const AIM: &str = "64 waiters, released 20 ms after the kill";

pub(super) fn run(bench: &mut Bench) -> Outcome {
    let pin = bench.pins.shared.clone();
    let server = Redis::start(pin.as_deref())?;
    let note = "A process with many waiters is killed (SIGKILL), then the holder releases; from there until the waiter \
                behind them holds. At once: the server may read the release before it sees the closed connection.";
    let mut section = Section::new("dead", "Dead waiters", note, &[("ms", "ms to the next grant")]);
    for (case, workers, millis) in (0..bench.rounds()).flat_map(|_| CASES) {
        server.flush()?;
        let job = Job {
            what: "dead".into(),
            subject: "tenure-redis".into(),
            ports: vec![server.port()],
            name: "compare/dead".into(),
            workers,
            millis,
            ..Job::default()
        };
        let taken = take(&Language::Rust, pin.as_deref(), &[job], &[])?;
        section.add(case, sample(&taken.answers[0]));
    }
    bench.report.ratio("dead_waiters_64_ms", section.figure(AIM, "ms"));
    bench.report.sections.push(section);
    Ok(())
}
