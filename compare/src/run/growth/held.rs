//! Locks that are held, more and more: what their renewal costs, and a pair beside them.

use std::thread;
use std::time::Duration;

use super::super::bench::Bench;
use super::super::child::Worker;
use super::super::counters::Counted;
use super::super::etcd::Etcd;
use super::super::language::Language;
use super::super::redis::Redis;
use super::super::report::{Chart, Sample, Section, sample};
use super::point::{Places, Point, job};
use crate::failure::Outcome;
use crate::job::Job;

/// One period of renewal, so that each lock is renewed once.
const WINDOW: Duration = Duration::from_secs(10);
/// The counters are read before the holder's process ends.
const SEEN: Duration = Duration::from_millis(9_500);
/// With fewer locks the share of one is less than what servers and clients use by themselves.
const ENOUGH: usize = 1_000;

const CHARTS: &[Chart] = &[
    Chart {
        id: "held",
        title: "Renewal over held locks",
        x: "locks held",
        y: "% of a processor",
        curves: &[
            ("redis_server_percent", "Redis, the server"),
            ("redis_client_percent", "Redis, the client"),
            ("etcd_server_percent", "etcd, the server"),
            ("etcd_client_percent", "etcd, the client"),
        ],
    },
    Chart {
        id: "held-pair",
        title: "A pair beside held locks",
        x: "locks held",
        y: "µs for a pair, median",
        curves: &[("redis_p50_us", "Redis"), ("etcd_p50_us", "etcd")],
    },
];

const METRICS: &[&str] =
    &["p50_us", "server_percent", "client_percent", "renewal_us", "server_bytes", "client_bytes", "longest_script_ms"];

pub(super) fn run(bench: &mut Bench) -> Outcome {
    let places = Places::of(bench);
    let columns = &[
        ("redis_p50_us", "Redis: pair p50 µs"),
        ("redis_server_percent", "server %"),
        ("redis_client_percent", "client %"),
        ("redis_renewal_us", "server µs for a renewal"),
        ("redis_longest_script_ms", "longest script ms"),
        ("redis_server_bytes", "server bytes for a lock"),
        ("redis_client_bytes", "client bytes for a lock"),
        ("etcd_p50_us", "etcd: pair p50 µs"),
        ("etcd_server_percent", "server %"),
        ("etcd_client_percent", "client %"),
        ("etcd_renewal_us", "server µs for a renewal"),
        ("etcd_server_bytes", "server bytes for a lock"),
    ];
    let note = "Locks with a ttl of 30 s in one client, watched while each is renewed once, which takes 10 s; % of one processor. \
                The pair is another client's.";
    let mut section = Section::new("held", "Held locks", note, columns);
    section.charts = CHARTS;
    let counts: &[usize] = bench.pick(&[1, 1_000, 100_000], &[1, 10, 100, 1_000, 10_000, 100_000, 1_000_000]);
    let of_etcd: &[usize] = bench.pick(&[1_000], &[1, 1_000, 10_000]);
    for &locks in counts {
        let mut point = Point::new(locks as f64);
        let figures = on_redis(&places, locks);
        point.keep(bench, "redis", figures, METRICS);
        if of_etcd.contains(&locks) {
            let figures = on_etcd(&places, locks);
            point.keep(bench, "etcd", figures, METRICS);
        }
        point.add_to(&mut section);
    }
    bench.report.sections.push(section);
    Ok(())
}

fn on_redis(places: &Places, locks: usize) -> Outcome<Sample> {
    let server = Redis::start(places.servers())?;
    let empty = server.used_memory()?;
    server.watch_scripts(200)?;
    let held = Held::by(places, "tenure-redis", server.port(), locks, 1)?;
    let bytes = (server.used_memory()? - empty) / locks as f64;
    let mut figures = pair(places, "tenure-redis", server.port(), &server)?;
    figures.extend(held.renewals(&server)?);
    figures.insert("longest_script_ms".into(), server.longest_script()?);
    figures.extend((locks >= ENOUGH).then(|| ("server_bytes".to_owned(), bytes)));
    Ok(figures)
}

fn on_etcd(places: &Places, locks: usize) -> Outcome<Sample> {
    let server = Etcd::start()?;
    let empty = server.memory()?;
    let held = Held::by(places, "tenure-etcd", server.port(), locks, 1)?;
    let mut figures = pair(places, "tenure-etcd", server.port(), &server)?;
    figures.extend(held.renewals(&server)?);
    let bytes = (server.memory()? - empty) / locks as f64;
    figures.extend((locks >= ENOUGH).then(|| ("server_bytes".to_owned(), bytes)));
    Ok(figures)
}

fn pair(places: &Places, subject: &str, port: u16, server: &dyn Counted) -> Outcome<Sample> {
    places.measure(Job { workers: 1, millis: 500, ..job("pair", subject, port) }, server)
}

/// Locks that are held by clients of one process.
pub(super) struct Held {
    worker: Worker,
    locks: usize,
}

impl Held {
    pub(super) fn by(places: &Places, subject: &str, port: u16, locks: usize, clients: usize) -> Outcome<Self> {
        let millis = u64::try_from(WINDOW.as_millis())?;
        let mut worker = Worker::start(&Language::Rust, places.clients())?;
        worker.prepare(&Job { count: locks, workers: clients, millis, ..job("renew", subject, port) })?;
        Ok(Self { worker, locks })
    }

    /// Renews each once; then they are left to their ttl.
    pub(super) fn renewals(mut self, server: &dyn Counted) -> Outcome<Sample> {
        let before = server.counters()?;
        self.worker.go()?;
        thread::sleep(SEEN);
        let spent = server.counters()?.since(&before);
        let mut figures = sample(&self.worker.answer()?);
        let renewals = self.locks as f64 * SEEN.as_secs_f64() / WINDOW.as_secs_f64();
        figures.insert("server_percent".into(), spent.cpu_us / SEEN.as_secs_f64() / 1e4);
        let client_percent = figures.get("client_core").map_or(f64::NAN, |share| share * 100.0);
        figures.insert("client_percent".into(), client_percent);
        if self.locks >= ENOUGH {
            figures.insert("renewal_us".into(), spent.cpu_us / renewals);
            figures.insert(
                "renewal_client_us".into(),
                client_percent / 100.0 * WINDOW.as_secs_f64() * 1e6 / self.locks as f64,
            );
            figures.insert("per_request".into(), renewals / spent.calls(&["eval", "evalsha"]).max(1.0));
        } else {
            figures.remove("client_bytes");
        }
        Ok(figures)
    }
}
