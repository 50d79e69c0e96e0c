//! The etcd driver's queue.

use super::super::bench::Bench;
use crate::failure::Outcome;

const KEY: &str = "etcd_b32_per_s";

#[cfg(not(feature = "etcd"))]
pub(super) fn run(bench: &mut Bench) -> Outcome {
    bench.report.unmeasured(KEY, "built without the feature etcd, which needs protoc");
    Ok(())
}

#[cfg(feature = "etcd")]
pub(super) fn run(bench: &mut Bench) -> Outcome {
    use tenure_testkit::{EtcdCluster, EtcdOptions};

    use super::super::bench::take;
    use super::super::language::Language;
    use super::super::report::Section;
    use super::job::THROUGHPUT;
    use crate::job::Job;

    let cluster = match EtcdCluster::single(EtcdOptions::new()) {
        Ok(cluster) => cluster,
        Err(error) => {
            bench.report.unmeasured(KEY, format!("etcd does not run here: {error}"));
            return Ok(());
        }
    };
    let mut section = Section::new("etcd", "etcd, 32 × 4", "Nothing pinned.", &THROUGHPUT[..3]);
    for round in 0..bench.rounds() {
        let job = Job {
            what: "throughput".into(),
            subject: "tenure-etcd".into(),
            ports: cluster.ports(),
            name: format!("compare/etcd{round}"),
            workers: 4,
            batch: 32,
            count: bench.pick(3_200, 9_600),
            ..Job::default()
        };
        match take(&Language::Rust, None, &[job], &[]) {
            Ok(taken) => section.add("tenure-etcd", taken.per_thing(&[])),
            Err(error) => {
                bench.report.unmeasured(KEY, error.to_string());
                return Ok(());
            }
        }
    }
    bench.report.ratio(KEY, section.median("tenure-etcd", "total_per_s"));
    bench.report.sections.push(section);
    Ok(())
}
