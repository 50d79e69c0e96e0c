//! The etcd driver's queue.

use super::super::bench::{Bench, take};
use super::super::etcd::Etcd;
use super::super::language::Language;
use super::super::report::Section;
use super::job::THROUGHPUT;
use crate::failure::Outcome;
use crate::job::Job;

const KEY: &str = "etcd_b32_per_s";

pub(super) fn run(bench: &mut Bench) -> Outcome {
    let server = match Etcd::start() {
        Ok(server) => server,
        Err(error) => {
            bench.report.unmeasured(KEY, error.to_string());
            return Ok(());
        }
    };
    bench.about("etcd", Etcd::version()?);
    let mut section = Section::new("etcd", "etcd, 32 × 4", "Nothing pinned.", THROUGHPUT);
    for round in 0..bench.rounds() {
        let job = Job {
            what: "throughput".into(),
            subject: "tenure-etcd".into(),
            ports: vec![server.port()],
            name: format!("compare/etcd{round}"),
            workers: 4,
            batch: 32,
            count: bench.pick(3_200, 9_600),
            ..Job::default()
        };
        match take(&Language::Rust, None, &[job], &[&server]) {
            Ok(taken) => section.add("tenure-etcd", taken.per_thing(&[])),
            Err(error) => {
                bench.report.unmeasured(KEY, error.to_string());
                return Ok(());
            }
        }
    }
    bench.report.ratio(KEY, section.figure("tenure-etcd", "total_per_s"));
    bench.report.sections.push(section);
    Ok(())
}
