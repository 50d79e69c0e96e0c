//! One lock that all workers want.

use super::super::bench::{Bench, ONE_WAY, Taken, take};
use super::super::counters::Counted;
use super::super::proxy;
use super::super::redis::Redis;
use super::super::report::{Sample, Section};
use super::peers::{Peer, foreign, ours, rust};
use super::{floors, history};
use crate::failure::Outcome;
use crate::job::Job;

pub(super) const COLUMNS: &[(&str, &str)] = &[
    ("per_s", "hand-overs per second"),
    ("gap_p50_us", "gap p50 µs"),
    ("gap_p99_us", "gap p99 µs"),
    ("commands", "commands per hand-over"),
    ("jain", "Jain"),
    ("max_over_mean", "longest wait / mean"),
    ("server_us", "server CPU µs"),
    ("client_us", "client CPU µs"),
    ("overlaps", "overlaps"),
    ("fences_back", "fences that fell"),
];

/// How many waiters there are, in how many processes, on runtimes of how many threads, and through which port.
#[derive(Clone, Copy)]
pub(in crate::run) struct Crowd {
    pub(in crate::run) processes: usize,
    pub(in crate::run) waiters: usize,
    /// 0 for a runtime that runs on the thread that waits for it.
    pub(in crate::run) threads: usize,
    pub(in crate::run) port: u16,
    pub(in crate::run) millis: u64,
}

/// On a runtime with one worker a lease that was handed over is confirmed before it is returned.
const ON_THREADS: &str = "tenure-redis-each-asks, 2 threads";

/// The same runtime, where it is not: as `tenure-redis` did before it was.
const BEHIND: &str = "tenure-redis-behind";

/// One run; an overlap or a fence that fell is a finding in the table, and on the terminal.
pub(super) fn run(peer: &Peer, crowd: Crowd, servers: &[&Redis], pin: Option<&str>) -> Outcome<Sample> {
    for server in servers {
        server.flush()?;
    }
    let counted: Vec<&dyn Counted> = servers.iter().map(|server| *server as &dyn Counted).collect();
    counted_run(peer, crowd, &counted, pin)
}

/// The same at any servers, which are left as they are.
pub(in crate::run) fn counted_run(
    peer: &Peer,
    crowd: Crowd,
    counted: &[&dyn Counted],
    pin: Option<&str>,
) -> Outcome<Sample> {
    let job = Job {
        what: "contend".into(),
        subject: peer.name.into(),
        ports: vec![crowd.port],
        name: "compare/hot".into(),
        workers: crowd.waiters / crowd.processes,
        millis: crowd.millis,
        threads: crowd.threads,
        ..Job::default()
    };
    let taken = take(&peer.language, pin, &vec![job; crowd.processes], counted)?;
    let mut figures = figures(peer.name, &taken, crowd.waiters)?;
    figures.insert("commands".into(), taken.counters.calls(peer.sends) / figures["handovers"].max(1.0));
    Ok(figures)
}

/// The figures from the logs of these waiters, with the share of each hand-over in the used resources.
pub(in crate::run) fn figures(name: &str, taken: &Taken, waiters: usize) -> Outcome<Sample> {
    let mut figures = history::figures(&taken.answers, waiters)?;
    let count = figures["handovers"].max(1.0);
    let client: f64 = taken.answers.iter().filter_map(|answer| answer["cpu_s"].as_f64()).sum();
    figures.insert("server_us".into(), taken.counters.cpu_us / count);
    figures.insert("client_us".into(), client * 1e6 / count);
    figures.insert("foreign".into(), taken.foreign);
    if figures["overlaps"] + figures["fences_back"] > 0.0 {
        eprintln!(" {name}: {} overlaps, {} fences that fell;", figures["overlaps"], figures["fences_back"]);
    }
    Ok(figures)
}

/// 16 waiters in two processes beside the peers, and in one process.
pub(super) fn sixteen(bench: &mut Bench) -> Outcome {
    let pin = bench.pins.shared.clone();
    let server = Redis::start(pin.as_deref())?;
    let crowd = Crowd { processes: 2, waiters: 16, threads: 0, port: server.port(), millis: bench.pick(700, 2_000) };
    let mut peers: Vec<Peer> = ["rslock", "rslock-tuned"].map(rust).to_vec();
    peers.extend(["tenure-redis", BEHIND, "tenure-redis-each-asks", "tenure-fred"].map(ours));
    peers.extend(foreign(bench));
    let note = "Two processes of eight waiters, nothing done while holding; one processor. The floor is the way of a \
                PUBLISH to its subscriber. Tuned and foreign peers ask every 5 ms where that can be set. A row *each asks* \
                passes no lease on within a process: that is the way from one process to another. On a runtime with one worker \
                a lease that was handed over is confirmed before it is returned, which costs a round trip; not so with \
                `Confirmation::Behind`.";
    let mut section = Section::new("handover-16", "Hand-over, 16 waiters in 2 processes", note, COLUMNS);
    let note = "One client, whose waiters pass a lease on among themselves (see `holders_per_grant`), and one whose \
                waiters each ask for themselves.";
    let mut local = Section::new("handover-local", "Hand-over, 16 waiters in 1 process", note, COLUMNS);
    for _ in 0..bench.rounds() {
        let floor = floors::publish(&server, pin.as_deref())?;
        section.add("publish floor", renamed(&floor));
        local.add("publish floor", renamed(&floor));
        for peer in bench.shuffled(&peers) {
            match run(&peer, crowd, &[&server], pin.as_deref()) {
                Ok(figures) => section.add(peer.name, figures),
                Err(error) => bench.report.left_out(format!("{} with 16 waiters", peer.name), error),
            }
        }
        match run(&ours("tenure-redis-each-asks"), Crowd { threads: 2, ..crowd }, &[&server], pin.as_deref()) {
            Ok(figures) => section.add(ON_THREADS, figures),
            Err(error) => bench.report.left_out(ON_THREADS, error),
        }
        let alone = Crowd { processes: 1, ..crowd };
        for peer in bench.shuffled(&["tenure-redis", "tenure-redis-each-asks", "tenure-fred"].map(ours)) {
            local.add(peer.name, run(&peer, alone, &[&server], pin.as_deref())?);
        }
    }
    let report = &mut bench.report;
    let remote = |subject| section.ratio(subject, "publish floor", "gap_p50_us");
    report.ratio("handover_remote_vs_publish_floor", remote(ON_THREADS));
    report.ratio("handover_remote_one_thread_vs_publish_floor", remote("tenure-redis-each-asks"));
    report.ratio("handover_local_vs_publish_floor", local.ratio("tenure-redis", "publish floor", "gap_p50_us"));
    report.ratio("handovers_vs_rslock_default", section.ratio("tenure-redis", "rslock", "per_s"));
    let others = peers.iter().filter(|peer| !peer.name.starts_with("tenure"));
    let best = others.filter_map(|peer| Some((section.median(peer.name, "per_s")?, peer.name)));
    let best = best.max_by(|one, other| one.0.total_cmp(&other.0));
    for (subject, handovers, commands) in [
        ("tenure-redis", "handovers_vs_best_peer", "commands_per_handover_16"),
        (BEHIND, "handovers_behind_vs_best_peer", "commands_per_handover_behind_16"),
    ] {
        let best = best.map(|(_, peer)| section.ratio(subject, peer, "per_s"));
        report.ratio(handovers, best.unwrap_or_default());
        report.ratio(commands, section.figure(subject, "commands"));
    }
    report.ratio("commands_per_handover_local", local.figure("tenure-redis", "commands"));
    report.ratio("max_over_mean_wait", section.figure("tenure-redis", "max_over_mean"));
    report.ratio("range_vs_local", local.ratio("tenure-redis", "tenure-redis-each-asks", "per_s"));
    report.sections.extend([section, local]);
    Ok(())
}

fn renamed(floor: &Sample) -> Sample {
    let names = [("p50_us", "gap_p50_us"), ("p99_us", "gap_p99_us")];
    names.iter().filter_map(|(from, to)| Some(((*to).to_owned(), *floor.get(*from)?))).collect()
}

/// 128 and 1000 waiters in four processes.
pub(super) fn crowd(bench: &mut Bench) -> Outcome {
    let pin = bench.pins.shared.clone();
    let server = Redis::start(pin.as_deref())?;
    let crowd = Crowd { processes: 4, waiters: 128, threads: 0, port: server.port(), millis: bench.pick(1_000, 2_000) };
    let mut section = Section::new("handover-128", "Hand-over, 128 waiters in 4 processes", "", COLUMNS);
    let mut thousand = Section::new("handover-1000", "Hand-over, 1000 waiters in 4 processes", "", COLUMNS);
    let peers = [rust("rslock-tuned"), ours("tenure-redis"), ours("tenure-fred")];
    for _ in 0..bench.rounds() {
        for peer in bench.shuffled(&peers) {
            match run(&peer, crowd, &[&server], pin.as_deref()) {
                Ok(figures) => section.add(peer.name, figures),
                Err(error) => bench.report.left_out(format!("{} with 128 waiters", peer.name), error),
            }
        }
        let many = Crowd { waiters: 1_000, ..crowd };
        match run(&ours("tenure-redis"), many, &[&server], pin.as_deref()) {
            Ok(figures) => thousand.add("tenure-redis", figures),
            Err(error) => bench.report.left_out("tenure-redis with 1000 waiters", error),
        }
    }
    let report = &mut bench.report;
    report.ratio("handovers_128_vs_rslock_tuned", section.ratio("tenure-redis", "rslock-tuned", "per_s"));
    report.ratio("commands_per_handover_128", section.figure("tenure-redis", "commands"));
    report.ratio("commands_per_handover_1000", thousand.figure("tenure-redis", "commands"));
    report.ratio("jain_128", section.figure("tenure-redis", "jain"));
    report.sections.extend([section, thousand]);
    Ok(())
}

/// Through the proxy: what users see on a network, in round trips.
pub(super) fn network(bench: &mut Bench) -> Outcome {
    let pin = bench.pins.shared.clone();
    let server = Redis::start(pin.as_deref())?;
    let port = proxy::start(server.port(), ONE_WAY)?;
    let note = "Every byte is held back for the same time, both ways.";
    let pair_columns = &[("p50_us", "p50 µs"), ("in_rtt", "p50 in round trips"), ("per_s", "pairs per second")];
    let mut pairs = Section::new("network-pairs", "64 tasks on a network", note, pair_columns);
    let gap_columns =
        &[("gap_p50_us", "gap p50 µs"), ("in_rtt", "gap p50 in round trips"), ("per_s", "hand-overs per second")];
    let mut gaps =
        Section::new("network-handover", "Hand-over on a network, 16 waiters in 2 processes", note, gap_columns);
    let millis = bench.pick(700, 1_500);
    let mut waiting = vec![rust("rslock-tuned")];
    waiting.extend(["tenure-redis", "tenure-redis-each-asks", "tenure-fred"].map(ours));
    for _ in 0..bench.rounds() {
        let rtt = floors::ping(port, 100, pin.as_deref())?;
        let trip = rtt["p50_us"];
        for peer in bench.shuffled(&[rust("redis"), rust("rslock"), ours("tenure-redis"), ours("tenure-fred")]) {
            server.flush()?;
            let job = Job {
                what: "pair".into(),
                subject: peer.name.into(),
                ports: vec![port],
                name: "compare/pair".into(),
                workers: 64,
                millis,
                ..Job::default()
            };
            let taken = take(&peer.language, pin.as_deref(), &[job], &[&server])?;
            pairs.add(peer.name, with_trips(taken.per_thing(peer.sends), "p50_us", trip));
        }
        for peer in bench.shuffled(&waiting) {
            let crowd = Crowd { processes: 2, waiters: 16, threads: 0, port, millis };
            let figures = run(&peer, crowd, &[&server], pin.as_deref())?;
            gaps.add(peer.name, with_trips(figures, "gap_p50_us", trip));
        }
        let threads = Crowd { processes: 2, waiters: 16, threads: 2, port, millis };
        let figures = run(&ours("tenure-redis-each-asks"), threads, &[&server], pin.as_deref())?;
        gaps.add(ON_THREADS, with_trips(figures, "gap_p50_us", trip));
        pairs.add("round trip", rtt);
    }
    bench.report.ratio("pairs_64_p50_in_rtt", pairs.figure("tenure-redis", "in_rtt"));
    bench.report.ratio("handover_gap_in_rtt", gaps.figure(ON_THREADS, "in_rtt"));
    bench.report.ratio("handover_gap_one_thread_in_rtt", gaps.figure("tenure-redis-each-asks", "in_rtt"));
    bench.report.sections.extend([pairs, gaps]);
    Ok(())
}

fn with_trips(mut figures: Sample, metric: &str, trip: f64) -> Sample {
    figures.insert("in_rtt".into(), figures[metric] / trip);
    figures
}
