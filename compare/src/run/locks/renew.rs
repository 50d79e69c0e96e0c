//! Very many locks, held.

use super::super::bench::Bench;
use super::super::child::Worker;
use super::super::counters::Counted;
use super::super::language::Language;
use super::super::redis::Redis;
use super::super::report::{Section, sample};
use crate::failure::Outcome;
use crate::job::Job;

const LOCKS: usize = 100_000;
/// One period of renewal, so that each lock is renewed once.
const WINDOW_MS: u64 = 10_000;

pub(super) fn run(bench: &mut Bench) -> Outcome {
    let (shared, other) = (bench.pins.shared.clone(), bench.pins.other.clone());
    let note = "100,000 locks with a ttl of 30 s in one client, watched for the 10 s in which each is renewed once.";
    let mut section = Section::new(
        "renew",
        "Renewal of 100,000 locks",
        note,
        &[
            ("client_core", "client, share of a core"),
            ("server_core", "server, share of a core"),
            ("client_bytes", "client bytes per lock"),
            ("server_bytes", "server bytes per lock"),
            ("longest_script_ms", "longest script ms"),
        ],
    );
    for _ in 0..5 {
        let server = Redis::start(other.as_deref())?;
        let empty = server.used_memory()?;
        server.watch_scripts(200)?;
        let job = Job {
            what: "renew".into(),
            subject: "tenure-redis".into(),
            ports: vec![server.port()],
            name: "compare/many".into(),
            count: LOCKS,
            millis: WINDOW_MS,
            ..Job::default()
        };
        let mut worker = Worker::start(&Language::Rust, shared.as_deref())?;
        worker.prepare(&job)?;
        let bytes = (server.used_memory()? - empty) / LOCKS as f64;
        let before = server.counters()?;
        worker.go()?;
        // Read in the middle of its sleep, so that the releases at the end are not counted.
        std::thread::sleep(std::time::Duration::from_millis(WINDOW_MS - 500));
        let spent = server.counters()?.since(&before);
        let longest = server.longest_script()?;
        let mut figures = sample(&worker.answer()?);
        figures.insert("server_core".into(), spent.cpu_us / ((WINDOW_MS - 500) as f64 * 1e3));
        figures.insert("server_bytes".into(), bytes);
        figures.insert("longest_script_ms".into(), longest);
        section.add("tenure-redis", figures);
    }
    let report = &mut bench.report;
    report.ratio("renew_100k_client_core", section.figure("tenure-redis", "client_core"));
    report.ratio("renew_100k_server_core", section.figure("tenure-redis", "server_core"));
    report.ratio("client_bytes_per_lock", section.figure("tenure-redis", "client_bytes"));
    report.ratio("server_bytes_per_lock", section.figure("tenure-redis", "server_bytes"));
    report.sections.push(section);
    Ok(())
}
