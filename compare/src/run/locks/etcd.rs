//! etcd, beside the writes that any lock needs, its own lock API, and the locks of Go's package `concurrency`.

use super::super::bench::{Bench, take};
use super::super::etcd::Etcd;
use super::super::language::Language;
use super::super::report::Section;
use super::handover::{self, Crowd};
use super::peers::{Peer, ours};
use crate::failure::Outcome;
use crate::job::Job;

const KEYS: [&str; 4] =
    ["etcd_pair_vs_put_del", "etcd_handovers_vs_lock_api", "etcd_handovers_vs_go", "etcd_gap_p99_ms"];
const GO: &str = "go-concurrency";

pub(super) fn run(bench: &mut Bench) -> Outcome {
    let server = match Etcd::start() {
        Ok(server) => server,
        Err(error) => {
            for key in KEYS {
                bench.report.unmeasured(key, error.to_string());
            }
            return Ok(());
        }
    };
    bench.about("etcd", Etcd::version()?);
    let columns = &[
        ("p50_us", "p50 µs"),
        ("p99_us", "p99 µs"),
        ("client_us", "client CPU µs"),
        ("server_us", "server CPU µs"),
        ("allocations", "allocations"),
    ];
    let note = "One member, whose data is in memory where the machine has room for that; nothing pinned. Go's locks and etcd's lock API \
                have no fence of their own: the revision at which Go got the lock is looked at in its place.";
    let mut pairs = Section::new("etcd-pair", "etcd: uncontended pair, one task", note, columns);
    let mut hot = Section::new("etcd-handover", "etcd: hand-over, 16 waiters in 2 processes", note, handover::COLUMNS);
    let millis = bench.pick(1_500, 3_000);
    let crowd = Crowd { processes: 2, waiters: 16, threads: 0, port: server.port(), millis };
    let mut waiting: Vec<Peer> = ["etcd-lock-api", "tenure-etcd"].map(ours).to_vec();
    match Language::go_etcd() {
        Ok(language) => waiting.push(Peer { name: GO, language, sends: &[] }),
        Err(why) => bench.report.left_out(GO, why),
    }
    let mut alone = vec![ours("etcd-put-del")];
    alone.extend(waiting.clone());
    for round in 0..bench.rounds() {
        for peer in bench.shuffled(&alone) {
            let job = Job {
                what: "pair".into(),
                subject: peer.name.into(),
                ports: vec![server.port()],
                name: format!("compare/pair{round}"),
                workers: 1,
                millis: bench.pick(800, 2_000),
                ..Job::default()
            };
            match take(&peer.language, None, &[job], &[&server]) {
                Ok(taken) => pairs.add(peer.name, taken.per_thing(&[])),
                Err(error) => bench.report.left_out(peer.name, error),
            }
        }
        for peer in bench.shuffled(&waiting) {
            match handover::counted_run(&peer, crowd, &[&server], None) {
                Ok(figures) => hot.add(peer.name, figures),
                Err(error) => bench.report.left_out(format!("{} with 16 waiters", peer.name), error),
            }
        }
    }
    let report = &mut bench.report;
    report.ratio(KEYS[0], pairs.ratio("tenure-etcd", "etcd-put-del", "p50_us"));
    report.ratio(KEYS[1], hot.ratio("tenure-etcd", "etcd-lock-api", "per_s"));
    report.ratio(KEYS[2], hot.ratio("tenure-etcd", GO, "per_s"));
    report.ratio(KEYS[3], hot.figure("tenure-etcd", "gap_p99_us").map(|micros| micros / 1e3));
    report.sections.extend([pairs, hot]);
    Ok(())
}
