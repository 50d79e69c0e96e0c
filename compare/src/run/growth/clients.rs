//! More and more clients, each with connections of its own: what they get done together, and what each costs.

use super::super::bench::Bench;
use super::super::locks::{Crowd, contend, ours};
use super::super::redis::Redis;
use super::super::report::{Chart, Sample, Section};
use super::held::Held;
use super::point::{Places, Point, job, rounds};
use crate::failure::Outcome;
use crate::job::Job;

/// How many locks each client holds while their renewal is measured.
const LOCKS: usize = 100;
const SUBJECT: &str = "tenure-redis-apart";

const CHARTS: &[Chart] = &[
    Chart {
        id: "clients",
        title: "Work over clients",
        x: "clients",
        y: "per second",
        curves: &[
            ("pairs_per_s", "pairs, each on its own lock"),
            ("grants_per_s", "grants of one lock"),
            ("messages_per_s", "messages of one queue"),
        ],
    },
    Chart {
        id: "clients-renewal",
        title: "A renewal over clients with 100 locks each",
        x: "clients",
        y: "µs for a renewal",
        curves: &[("renewal_renewal_us", "the server"), ("renewal_renewal_client_us", "the client")],
    },
];

pub(super) fn run(bench: &mut Bench) -> Outcome {
    let places = Places::of(bench);
    let server = Redis::start(places.servers())?;
    let columns = &[
        ("pairs_per_s", "pairs/s"),
        ("pairs_server_us", "server µs"),
        ("pairs_client_us", "client µs"),
        ("grants_per_s", "grants/s"),
        ("grants_server_us", "server µs"),
        ("messages_per_s", "messages/s"),
        ("messages_server_us", "server µs"),
        ("renewal_renewal_us", "server µs for a renewal"),
        ("renewal_renewal_client_us", "client µs for a renewal"),
        ("renewal_per_request", "renewals in a request"),
        ("renewal_connections", "connections of a client"),
        ("renewal_connection_bytes", "server bytes for a client"),
        ("renewal_client_overhead", "client bytes for a client"),
    ];
    let note = "Clients of one process on Redis, each with connections and a task of its own. Messages: 100 bytes, pushed, received \
                and settled, ten in a request. Renewal: each client holds 100 locks with a ttl of 30 s, each acquired at a time of its \
                own.";
    let mut section = Section::new("clients", "Clients", note, columns);
    section.charts = CHARTS;
    let counts: &[usize] = bench.pick(&[1, 10, 100, 1_000], &[1, 10, 100, 300, 1_000]);
    let of_renewal: &[usize] = bench.pick(&[1_000], &[10, 100, 1_000]);
    let millis = bench.pick(500, 1_000);
    for (round, &clients) in (0..rounds(bench)).flat_map(|round| counts.iter().map(move |count| (round, count))) {
        let mut point = Point::new(clients as f64);
        let metrics = &["per_s", "server_us", "client_us"];
        server.flush()?;
        let pairs = Job { workers: clients, millis, ..job("pair", SUBJECT, server.port()) };
        point.keep(bench, "pairs", places.measure(pairs, &server), metrics);
        if clients > 1 {
            server.flush()?;
            let crowd = Crowd { processes: 1, waiters: clients, threads: 0, port: server.port(), millis };
            let figures = contend(&ours(SUBJECT), crowd, &[&server], places.clients());
            point.keep(bench, "grants", figures, metrics);
        }
        server.flush()?;
        let (workers, batch, count) = (clients, 10, 20_000);
        let messages = Job { workers, batch, count, ..job("throughput", SUBJECT, server.port()) };
        let figures = places.measure(messages, &server).map(|mut figures| {
            figures.insert("per_s".into(), figures["total_per_s"]);
            figures
        });
        point.keep(bench, "messages", figures, metrics);
        if round == 0 && of_renewal.contains(&clients) {
            let metrics = &[
                "renewal_us",
                "renewal_client_us",
                "per_request",
                "connections",
                "connection_bytes",
                "client_overhead",
            ];
            point.keep(bench, "renewal", renewal(&places, clients), metrics);
        }
        point.add_to(&mut section);
    }
    bench.report.sections.push(section);
    Ok(())
}

fn renewal(places: &Places, clients: usize) -> Outcome<Sample> {
    let server = Redis::start(places.servers())?;
    let held = Held::by(places, "tenure-redis", server.port(), clients * LOCKS, clients)?;
    let (open, bytes) = server.clients()?;
    let mut figures = held.renewals(&server)?;
    figures.insert("connections".into(), ((open - 1.0) / clients as f64).round());
    // The server looks at each client once a second, and few are through with their locks before that.
    figures.extend((clients >= 1_000).then(|| ("connection_bytes".to_owned(), bytes / clients as f64)));
    Ok(figures)
}
