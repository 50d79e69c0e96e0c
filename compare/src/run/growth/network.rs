//! A longer and longer way to the server.

use std::time::Duration;

use super::super::bench::Bench;
use super::super::locks::{Crowd, contend, ours, ping};
use super::super::proxy;
use super::super::redis::Redis;
use super::super::report::{Chart, Sample, Section};
use super::point::{Places, Point, job, label};
use crate::failure::Outcome;
use crate::job::Job;

const CHARTS: &[Chart] = &[Chart {
    id: "network",
    title: "Work over the round trip",
    x: "round trip in ms",
    y: "per second",
    curves: &[
        ("pairs_per_s", "pairs of 64 tasks"),
        ("messages_per_s", "messages, ten in a request"),
        ("passed_per_s", "grants, passed on in each client"),
        ("asks_per_s", "grants, each asks"),
        ("pair_per_s", "pairs of one task"),
    ],
}];

pub(super) fn run(bench: &mut Bench) -> Outcome {
    let places = Places::of(bench);
    let server = Redis::start(places.servers())?;
    let columns = &[
        ("x", "round trip ms"),
        ("pair_per_s", "one task: pairs/s"),
        ("pairs_per_s", "64 tasks: pairs/s"),
        ("asks_per_s", "each asks: grants/s"),
        ("passed_per_s", "passed on: grants/s"),
        ("messages_per_s", "messages/s"),
    ];
    let note = "Redis behind a proxy that holds every byte back for half of the time in the first column, both ways; the second column \
                is what a `PING` took through it. Grants: 16 waiters in two processes of two threads. Messages: 100 bytes, eight tasks \
                of one client.";
    let mut section = Section::new("network", "Round trips", note, columns);
    section.charts = CHARTS;
    let delays: &[f64] = bench.pick(&[0.0, 1.0, 10.0], &[0.0, 0.2, 1.0, 5.0, 20.0, 50.0]);
    let millis = bench.pick(700, 1_000);
    let mut ports = Vec::new();
    for &delay in delays {
        ports.push(match delay > 0.0 {
            true => proxy::start(server.port(), Duration::from_secs_f64(delay / 2e3))?,
            false => server.port(),
        });
    }
    for _ in 0..bench.pick(1, 2) {
        for (&delay, &port) in delays.iter().zip(&ports) {
            let trip = ping(port, 20, places.clients())?["p50_us"] / 1e3;
            let mut point = Point::new(trip);
            server.flush()?;
            for (curve, workers) in [("pair", 1), ("pairs", 64)] {
                let job = Job { workers, millis, ..job("pair", "tenure-redis", port) };
                point.keep(bench, curve, places.measure(job, &server), &["per_s"]);
            }
            for (curve, subject) in [("asks", "tenure-redis-each-asks"), ("passed", "tenure-redis")] {
                let crowd = Crowd { processes: 2, waiters: 16, threads: 2, port, millis };
                let figures = contend(&ours(subject), crowd, &[&server], places.clients());
                point.keep(bench, curve, figures, &["per_s"]);
            }
            let count = ((8_000.0 / delay.max(1.0)) as usize).next_multiple_of(10);
            let messages = Job { workers: 8, batch: 10, count, ..job("throughput", "tenure-redis", port) };
            point.keep(bench, "messages", places.measure(messages, &server).map(total), &["per_s"]);
            section.add(&label(delay), point.figures);
        }
    }
    bench.report.sections.push(section);
    Ok(())
}

fn total(mut figures: Sample) -> Sample {
    figures.insert("per_s".into(), figures["total_per_s"]);
    figures
}
