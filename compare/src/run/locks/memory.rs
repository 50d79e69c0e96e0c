//! Locks within one process.

use super::super::bench::{Bench, take};
use super::super::report::Section;
use super::peers::ours;
use crate::failure::Outcome;
use crate::job::Job;

/// So many pairs are timed as one: reading the clock costs a fifth of a pair.
const AT_ONCE: usize = 100;

pub(super) fn run(bench: &mut Bench) -> Outcome {
    let pin = bench.pins.shared.clone();
    let note = "A client's pair has what locks on a network have: a lease with a deadline, renewal, a loss that is reported, \
                clean-up after cancellation. The driver alone has leases and fences.";
    let columns = &[("p50_us", "p50 µs"), ("client_us", "CPU µs"), ("allocations", "allocations")];
    let mut section = Section::new("memory", "In memory: uncontended pair, one task", note, columns);
    for _ in 0..bench.rounds() {
        for name in bench.shuffled(&["dashmap", "memory-driver", "tenure-memory"]) {
            let job = Job {
                what: "pair".into(),
                subject: name.into(),
                name: "compare/pair".into(),
                workers: 1,
                millis: bench.pick(200, 500),
                batch: AT_ONCE,
                ..Job::default()
            };
            section.add(name, take(&ours(name).language, pin.as_deref(), &[job], &[])?.per_thing(&[]));
        }
    }
    bench.report.ratio("memory_pair_vs_dashmap_tokio", section.ratio("tenure-memory", "dashmap", "p50_us"));
    bench.report.sections.push(section);
    Ok(())
}
