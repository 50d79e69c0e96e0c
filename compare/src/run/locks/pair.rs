//! Locks without contention.

use super::super::bench::{Bench, take};
use super::super::redis::Redis;
use super::super::report::Section;
use super::peers::{Peer, foreign, ours, rust};
use crate::failure::Outcome;
use crate::job::Job;

fn job(peer: &Peer, server: &Redis, workers: usize, millis: u64) -> Job {
    Job {
        what: "pair".into(),
        subject: peer.name.into(),
        ports: vec![server.port()],
        name: "compare/pair".into(),
        workers,
        millis,
        ..Job::default()
    }
}

/// One task, everything on one processor.
pub(super) fn one(bench: &mut Bench) -> Outcome {
    let pin = bench.pins.shared.clone();
    let server = Redis::start(pin.as_deref())?;
    bench.about("redis", server.version()?);
    let mut peers: Vec<Peer> = ["bare", "redis", "fred", "rslock", "distributed-lock"].map(rust).to_vec();
    peers.extend(["tenure-redis", "tenure-fred"].map(ours));
    peers.extend(foreign(bench));
    let mut section = Section::new(
        "pair",
        "Uncontended pair, one task",
        "Acquire and release; server and client on one processor. Only tenure's locks are fenced.",
        &[
            ("p50_us", "p50 µs"),
            ("p99_us", "p99 µs"),
            ("client_us", "client CPU µs"),
            ("server_us", "server CPU µs"),
            ("commands", "commands"),
            ("round_trips", "round trips"),
            ("allocations", "allocations"),
        ],
    );
    let millis = bench.pick(400, 1_500);
    for _ in 0..bench.rounds() {
        for peer in bench.shuffled(&peers) {
            server.flush()?;
            match take(&peer.language, pin.as_deref(), &[job(&peer, &server, 1, millis)], &[&server]) {
                Ok(taken) => section.add(peer.name, taken.per_thing(peer.sends)),
                Err(error) => bench.report.left_out(peer.name, error),
            }
        }
    }
    let report = &mut bench.report;
    report.ratio("pair_1_vs_bare_tokio", section.ratio("tenure-redis", "bare", "p50_us"));
    report.ratio("pair_1_vs_redis_unfenced", section.ratio("tenure-redis", "redis", "p50_us"));
    report.ratio("pair_1_speed_vs_rslock", section.ratio("rslock", "tenure-redis", "p50_us"));
    report.ratio("round_trips_per_pair", section.figure("tenure-redis", "round_trips"));
    report.ratio("allocations_per_pair", section.figure("tenure-redis", "allocations"));
    report.sections.push(section);
    Ok(())
}

/// 64 tasks: on one processor, with the server on another, and on several threads that the scheduler places.
pub(super) fn many(bench: &mut Bench) -> Outcome {
    let (shared, other) = (bench.pins.shared.clone(), bench.pins.other.clone());
    let mut peers: Vec<Peer> = ["bare", "redis", "fred", "rslock", "distributed-lock"].map(rust).to_vec();
    peers.extend(["tenure-redis", "tenure-fred"].map(ours));
    peers.extend(foreign(bench).into_iter().filter(|peer| peer.name == "node-redlock"));
    let columns = &[
        ("per_s", "pairs per second"),
        ("p50_us", "p50 µs"),
        ("client_us", "client CPU µs"),
        ("server_us", "server CPU µs"),
        ("round_trips", "reads per pair"),
    ];
    let mut together = Section::new("pairs", "64 tasks, names of their own, one processor", "", columns);
    let mut apart = Section::new("pairs-apart", "64 tasks, the server on another processor", "", columns);
    let about = "A runtime of two threads, as programs have; nothing pinned.";
    let mut threads = Section::new("pairs-threads", "64 tasks on two threads", about, columns);
    let (here, there) = (Redis::start(shared.as_deref())?, Redis::start(other.as_deref())?);
    let anywhere = Redis::start(None)?;
    let millis = bench.pick(300, 1_000);
    for _ in 0..bench.rounds() {
        for peer in bench.shuffled(&peers) {
            let pin = shared.as_deref();
            let places =
                [(&here, pin, 0, &mut together), (&there, pin, 0, &mut apart), (&anywhere, None, 2, &mut threads)];
            for (server, pin, count, section) in places {
                server.flush()?;
                let job = Job { threads: count, ..job(&peer, server, 64, millis) };
                match take(&peer.language, pin, &[job], &[server]) {
                    Ok(taken) => section.add(peer.name, taken.per_thing(peer.sends)),
                    Err(error) => bench.report.left_out(format!("{} with 64 tasks", peer.name), error),
                }
            }
        }
    }
    bench.report.ratio("pairs_64_vs_rslock", together.ratio("tenure-redis", "rslock", "per_s"));
    bench.report.sections.extend([together, apart, threads]);
    Ok(())
}
