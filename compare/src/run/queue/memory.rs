//! The memory driver's queue.

use super::super::bench::{Bench, take};
use super::super::language::Language;
use super::super::report::Section;
use super::job::THROUGHPUT;
use crate::failure::Outcome;
use crate::job::Job;

pub(super) fn run(bench: &mut Bench) -> Outcome {
    let pin = bench.pins.shared.clone();
    let mut section = Section::new("memory", "In memory, 100 × 1", "", &THROUGHPUT[..3]);
    for _ in 0..bench.rounds() {
        let job = Job {
            what: "throughput".into(),
            subject: "tenure-memory".into(),
            name: "compare/memory".into(),
            workers: 1,
            batch: 100,
            count: 100_000,
            ..Job::default()
        };
        let taken = take(&Language::Rust, pin.as_deref(), &[job], &[])?;
        section.add("tenure-memory", taken.per_thing(&[]));
    }
    bench.report.ratio("memory_life_cycles_per_s", section.figure("tenure-memory", "total_per_s"));
    bench.report.sections.push(section);
    Ok(())
}
