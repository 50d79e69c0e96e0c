//! A quorum of five servers.

use super::super::bench::{Bench, ONE_WAY, take, take_after};
use super::super::counters::Counted;
use super::super::proxy;
use super::super::redis::Redis;
use super::super::report::Section;
use super::peers::{ours, rust};
use crate::failure::Outcome;
use crate::job::Job;

const NODES: usize = 5;
const ONE_DEAD: &str = "tenure-redlock, one of five killed";

pub(super) fn run(bench: &mut Bench) -> Outcome {
    let pin = bench.pins.shared.clone();
    let mut servers = (0..NODES).map(|_| Redis::start(pin.as_deref())).collect::<Outcome<Vec<_>>>()?;
    let far = servers.iter().map(|server| proxy::start(server.port(), ONE_WAY)).collect::<Outcome<Vec<_>>>()?;
    let near: Vec<u16> = servers.iter().map(Redis::port).collect();
    let job = |subject: &str, ports: &[u16], millis| Job {
        what: "pair".into(),
        subject: subject.into(),
        ports: ports.to_vec(),
        name: "compare/pair".into(),
        workers: 1,
        millis,
        ..Job::default()
    };
    let columns = &[("p50_us", "p50 µs"), ("p99_us", "p99 µs"), ("cpu_us", "CPU µs, client and servers")];
    let mut network =
        Section::new("redlock-network", "Five servers on a network, one task", "Through the proxy.", columns);
    let mut local = Section::new("redlock", "Five servers and the client on one processor", "", columns);
    let millis = bench.pick(600, 1_500);
    let subjects = [
        ("one server", ours("tenure-redis"), 1),
        ("tenure-redlock", ours("tenure-redlock"), NODES),
        ("rslock", rust("rslock"), NODES),
    ];
    for _ in 0..bench.rounds() {
        for (name, peer, nodes) in bench.shuffled(&subjects) {
            for (ports, section) in [(&far, &mut network), (&near, &mut local)] {
                servers.iter().try_for_each(Redis::flush)?;
                let counted: Vec<&dyn Counted> = servers.iter().map(|server| server as &dyn Counted).collect();
                let job = job(peer.name, &ports[..nodes], millis);
                let taken = take(&peer.language, pin.as_deref(), &[job], &counted)?;
                let mut figures = taken.per_thing(peer.sends);
                figures.insert("cpu_us".into(), figures["client_us"] + figures["server_us"]);
                section.add(name, figures);
            }
        }
    }
    let (alive, mortal) = servers.split_at_mut(NODES - 1);
    let counted: Vec<&dyn Counted> = alive.iter().map(|server| server as &dyn Counted).collect();
    for _ in 0..bench.rounds() {
        alive.iter().try_for_each(Redis::flush)?;
        let jobs = [job("tenure-redlock", &far, millis)];
        let language = &ours("tenure-redlock").language;
        let killed = || -> Outcome { Ok(mortal[0].server.kill()?) };
        match take_after(language, pin.as_deref(), &jobs, &counted, killed) {
            Ok(taken) => network.add(ONE_DEAD, taken.per_thing(&[])),
            Err(error) => bench.report.left_out(ONE_DEAD, error),
        }
        mortal[0].server.restart()?;
        mortal[0].pin(pin.as_deref())?;
    }
    let report = &mut bench.report;
    report.ratio("redlock5_p50_vs_single", network.ratio("tenure-redlock", "one server", "p50_us"));
    report.ratio("redlock5_one_dead_vs_alive", network.ratio(ONE_DEAD, "tenure-redlock", "p50_us"));
    report.ratio("redlock5_cpu_vs_rslock", local.ratio("tenure-redlock", "rslock", "cpu_us"));
    report.sections.extend([network, local]);
    Ok(())
}
