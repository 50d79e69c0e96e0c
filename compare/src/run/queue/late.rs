//! How long after its time a message arrives.

use super::super::bench::{Bench, take};
use super::super::language::Language;
use super::super::redis::Redis;
use super::super::report::{Section, sample};
use super::job::job;
use crate::failure::Outcome;
use crate::job::Job;

const CASES: &[(&str, &str, &str)] = &[
    ("tenure-redis, idle", "late-idle", "tenure-redis"),
    ("tenure-redis, crowded", "late", "tenure-redis"),
    ("tenure-fred, crowded", "late", "tenure-fred"),
    ("rsmq_async asked every 10 ms, crowded", "late", "rsmq"),
    ("polled every 500 ms, crowded", "late", "poll-500ms"),
];

pub(super) fn run(bench: &mut Bench) -> Outcome {
    let pin = bench.pins.shared.clone();
    let server = Redis::start(pin.as_deref())?;
    let note = "Receipt after the time that the producer meant, so the way to the server counts. Idle: one message at a \
                time. Crowded: 200 per second, each due in 100 to 1000 ms, so most come due before the one that is waited for.";
    let columns = &[("p50_ms", "p50 ms"), ("p99_ms", "p99 ms"), ("most_ms", "most ms"), ("early", "early")];
    let mut section = Section::new("late", "Lateness", note, columns);
    for round in 0..bench.rounds() {
        for (row, what, subject) in bench.shuffled(CASES) {
            server.flush()?;
            let count = if what == "late" { bench.pick(400, 800) } else { bench.pick(40, 100) };
            let job = Job { count, name: format!("compare/{what}{round}"), ..job(what, subject, &server) };
            match take(&Language::Rust, pin.as_deref(), &[job], &[&server]) {
                Ok(taken) => section.add(row, sample(&taken.answers[0])),
                Err(error) => bench.report.left_out(row, error),
            }
        }
    }
    let worse = |metric: &str| {
        let of = |row: &str| section.median(row, metric);
        Some(of("tenure-redis, idle")?.max(of("tenure-redis, crowded")?))
    };
    bench.report.ratio("lateness_p50_ms", worse("p50_ms"));
    bench.report.ratio("lateness_p99_ms", worse("p99_ms"));
    let ours = section.rows.iter().filter(|(row, _)| row.starts_with("tenure"));
    let early: f64 = ours.flat_map(|(_, samples)| samples).filter_map(|sample| sample.get("early")).sum();
    bench.report.ratio("early", Some(early));
    bench.report.sections.push(section);
    Ok(())
}
