//! One lock that more and more want.

use super::super::bench::Bench;
use super::super::counters::Counted;
use super::super::etcd::Etcd;
use super::super::locks::{Crowd, contend, ours};
use super::super::redis::Redis;
use super::super::report::{Chart, Sample, Section};
use super::point::{Places, Point, job, rounds};
use crate::failure::Outcome;
use crate::job::Job;

const CHARTS: &[Chart] = &[
    Chart {
        id: "waiters",
        title: "Grants per second over waiters",
        x: "waiters for one lock",
        y: "grants per second",
        curves: &[
            ("passed_per_s", "Redis, passed on in each client"),
            ("asks_per_s", "Redis, each asks"),
            ("etcd_per_s", "etcd, passed on in each client"),
        ],
    },
    Chart {
        id: "waiters-cost",
        title: "What a grant costs the server, over waiters",
        x: "waiters for one lock",
        y: "µs of the server for a grant",
        curves: &[
            ("passed_server_us", "Redis, passed on in each client"),
            ("asks_server_us", "Redis, each asks"),
            ("etcd_server_us", "etcd, passed on in each client"),
        ],
    },
];

const METRICS: &[&str] = &["per_s", "server_us", "client_us", "wait_p99_ms"];

pub(super) fn run(bench: &mut Bench) -> Outcome {
    let places = Places::of(bench);
    let server = Redis::start(places.servers())?;
    bench.about("redis", server.version()?);
    let etcd = Etcd::start();
    if etcd.is_ok() {
        bench.about("etcd", Etcd::version()?);
    }
    let columns = &[
        ("passed_per_s", "passed on: grants/s"),
        ("passed_server_us", "server µs"),
        ("passed_client_us", "client µs"),
        ("passed_wait_p99_ms", "wait p99 ms"),
        ("asks_per_s", "each asks: grants/s"),
        ("asks_server_us", "server µs"),
        ("asks_client_us", "client µs"),
        ("asks_wait_p99_ms", "wait p99 ms"),
        ("longest_script_ms", "longest script ms"),
        ("etcd_per_s", "etcd: grants/s"),
        ("etcd_server_us", "server µs"),
    ];
    let note = "Two processes; nothing is done while holding. Passed on: a client passes a lease on among its own waiters \
                (`holders_per_grant`); each asks: it does not. One waiter has the lock to itself. A longest script of 0 is one \
                below 0.2 ms.";
    let mut section = Section::new("waiters", "Waiters", note, columns);
    section.charts = CHARTS;
    let counts: &[usize] = bench.pick(&[1, 10, 100, 1_000, 10_000], &[1, 2, 10, 30, 100, 1_000, 10_000]);
    for (_, &waiters) in (0..rounds(bench)).flat_map(|round| counts.iter().map(move |count| (round, count))) {
        let mut point = Point::new(waiters as f64);
        // Long enough for all of them to come in line.
        let millis = bench.pick(700, 1_000).max(waiters as u64 / 4);
        for (curve, subject) in [("passed", "tenure-redis"), ("asks", "tenure-redis-each-asks")] {
            server.flush()?;
            server.watch_scripts(200)?;
            let figures = grants(&places, subject, waiters, server.port(), millis, &server);
            point.keep(bench, curve, figures, METRICS);
            point.figures.insert("longest_script_ms".into(), server.longest_script()?);
        }
        match &etcd {
            Ok(etcd) if waiters <= 1_000 => {
                let figures = grants(&places, "tenure-etcd", waiters, etcd.port(), millis, etcd);
                point.keep(bench, "etcd", figures, METRICS);
            }
            Ok(_) => {}
            Err(error) => bench.report.left_out("etcd", error),
        }
        point.add_to(&mut section);
    }
    bench.report.sections.push(section);
    Ok(())
}

fn grants(
    places: &Places,
    subject: &'static str,
    waiters: usize,
    port: u16,
    millis: u64,
    server: &dyn Counted,
) -> Outcome<Sample> {
    if waiters == 1 {
        return places.measure(Job { workers: 1, millis, ..job("pair", subject, port) }, server);
    }
    let crowd = Crowd { processes: 2, waiters, threads: 0, port, millis };
    let mut figures = contend(&ours(subject), crowd, &[server], places.clients())?;
    figures.insert("per_s".into(), figures["acquisitions_per_s"]);
    Ok(figures)
}
