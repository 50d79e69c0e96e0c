//! The same tasks on more and more names.

use super::super::bench::Bench;
use super::super::redis::Redis;
use super::super::report::{Chart, Section};
use super::point::{Places, Point, job, rounds};
use crate::failure::Outcome;
use crate::job::Job;

const CHARTS: &[Chart] = &[Chart {
    id: "names",
    title: "64 tasks over names",
    x: "names to choose from",
    y: "per second",
    curves: &[("redis_per_s", "pairs of acquire and release")],
}];

pub(super) fn run(bench: &mut Bench) -> Outcome {
    let places = Places::of(bench);
    let server = Redis::start(places.servers())?;
    let columns = &[
        ("redis_per_s", "pairs/s"),
        ("redis_p50_us", "p50 µs"),
        ("redis_p99_us", "p99 µs"),
        ("redis_server_us", "server µs"),
        ("redis_client_us", "client µs"),
    ];
    let note = "64 tasks of one client on Redis; each takes a lock of a name by chance and releases it.";
    let mut section = Section::new("names", "Names", note, columns);
    section.charts = CHARTS;
    let millis = bench.pick(500, 1_000);
    for _ in 0..rounds(bench) {
        for names in [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000] {
            server.flush()?;
            let mut point = Point::new(names as f64);
            let job = Job { workers: 64, count: names, millis, ..job("spread", "tenure-redis", server.port()) };
            let figures = places.measure(job, &server);
            point.keep(bench, "redis", figures, &["per_s", "p50_us", "p99_us", "server_us", "client_us"]);
            point.add_to(&mut section);
        }
    }
    bench.report.sections.push(section);
    Ok(())
}
