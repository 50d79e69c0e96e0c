//! Messages that are larger and larger.

use super::super::bench::Bench;
use super::super::redis::Redis;
use super::super::report::{Chart, Section};
use super::point::{Places, Point, job, rounds};
use crate::failure::Outcome;
use crate::job::Job;

const CHARTS: &[Chart] = &[
    Chart {
        id: "payload",
        title: "Messages over their size",
        x: "bytes of a payload",
        y: "messages per second",
        curves: &[("ten_per_s", "ten in a request"), ("one_per_s", "one in a request")],
    },
    Chart {
        id: "payload-bytes",
        title: "Bytes over the size of messages",
        x: "bytes of a payload",
        y: "MB per second",
        curves: &[("ten_mb_per_s", "ten in a request"), ("one_mb_per_s", "one in a request")],
    },
];

/// Nearly what a queue on Redis takes: 256 KiB.
const LARGEST: usize = 250_000;
/// Bytes of all messages of a measurement, if they are large.
const ALL: usize = 40_000_000;

pub(super) fn run(bench: &mut Bench) -> Outcome {
    let places = Places::of(bench);
    let server = Redis::start(places.servers())?;
    let columns = &[
        ("one_per_s", "one: messages/s"),
        ("one_mb_per_s", "MB/s"),
        ("one_server_us", "server µs"),
        ("one_client_us", "client µs"),
        ("ten_per_s", "ten: messages/s"),
        ("ten_mb_per_s", "MB/s"),
        ("ten_server_us", "server µs"),
        ("ten_client_us", "client µs"),
    ];
    let note = "Pushed, received and settled by eight tasks of one client on Redis, one and ten in a request.";
    let mut section = Section::new("payload", "Payloads", note, columns);
    section.charts = CHARTS;
    for _ in 0..rounds(bench) {
        for bytes in [10, 100, 1_000, 10_000, 100_000, LARGEST] {
            let mut point = Point::new(bytes as f64);
            for (curve, batch) in [("one", 1), ("ten", 10)] {
                server.flush()?;
                let count = (ALL / bytes).clamp(40, bench.pick(8_000, 16_000));
                let job = Job { workers: 8, batch, bytes, count, ..job("throughput", "tenure-redis", server.port()) };
                let figures = places.measure(job, &server).map(|mut figures| {
                    let per_s = figures["total_per_s"];
                    figures.insert("per_s".into(), per_s);
                    figures.insert("mb_per_s".into(), per_s * bytes as f64 / 1e6);
                    figures
                });
                point.keep(bench, curve, figures, &["per_s", "mb_per_s", "server_us", "client_us"]);
            }
            point.add_to(&mut section);
        }
    }
    bench.report.sections.push(section);
    Ok(())
}
