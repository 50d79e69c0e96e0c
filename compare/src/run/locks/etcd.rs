//! etcd, beside the writes that any lock needs and its own lock API.

use super::super::bench::Bench;
use crate::failure::Outcome;

const KEYS: [&str; 3] = ["etcd_pair_vs_put_del", "etcd_handovers_vs_lock_api", "etcd_gap_p99_ms"];

#[cfg(not(feature = "etcd"))]
pub(super) fn run(bench: &mut Bench) -> Outcome {
    for key in KEYS {
        bench.report.unmeasured(key, "built without the feature etcd, which needs protoc");
    }
    Ok(())
}

#[cfg(feature = "etcd")]
pub(super) fn run(bench: &mut Bench) -> Outcome {
    use tenure_testkit::{EtcdCluster, EtcdOptions};

    use super::super::bench::take;
    use super::super::report::Section;
    use super::handover::{self, Crowd};
    use super::peers::ours;
    use crate::job::Job;

    let cluster = match EtcdCluster::single(EtcdOptions::new()) {
        Ok(cluster) => cluster,
        Err(error) => {
            for key in KEYS {
                bench.report.unmeasured(key, format!("etcd does not run here: {error}"));
            }
            return Ok(());
        }
    };
    let port = cluster.ports()[0];
    let columns =
        &[("p50_us", "p50 µs"), ("p99_us", "p99 µs"), ("client_us", "client CPU µs"), ("allocations", "allocations")];
    let note = "One member that writes to this machine's disk; nothing pinned.";
    let mut pairs = Section::new("etcd-pair", "etcd: uncontended pair, one task", note, columns);
    let mut hot = Section::new("etcd-handover", "etcd: hand-over, 16 waiters in 2 processes", note, handover::COLUMNS);
    let crowd = Crowd { processes: 2, waiters: 16, threads: 0, port, millis: bench.pick(1_500, 3_000) };
    for round in 0..bench.rounds() {
        for name in bench.shuffled(&["etcd-put-del", "etcd-lock-api", "tenure-etcd"]) {
            let job = Job {
                what: "pair".into(),
                subject: name.into(),
                ports: vec![port],
                name: format!("compare/pair{round}"),
                workers: 1,
                millis: bench.pick(800, 2_000),
                ..Job::default()
            };
            pairs.add(name, take(&ours(name).language, None, &[job], &[])?.per_thing(&[]));
        }
        for name in bench.shuffled(&["etcd-lock-api", "tenure-etcd"]) {
            hot.add(name, handover::run(&ours(name), crowd, &[], None)?);
        }
    }
    let report = &mut bench.report;
    report.ratio(KEYS[0], pairs.ratio("tenure-etcd", "etcd-put-del", "p50_us"));
    report.ratio(KEYS[1], hot.ratio("tenure-etcd", "etcd-lock-api", "per_s"));
    report.ratio(KEYS[2], hot.median("tenure-etcd", "gap_p99_us").map(|micros| micros / 1e3));
    report.sections.extend([pairs, hot]);
    Ok(())
}
