//! What a queue costs the server: beside a backlog, in memory, while idle, and when everything is due at once.

use super::super::bench::{Bench, take};
use super::super::child::Worker;
use super::super::counters::Counted;
use super::super::language::Language;
use super::super::redis::Redis;
use super::super::report::{Sample, Section, sample};
use super::job::{THROUGHPUT, job};
use crate::failure::Outcome;
use crate::job::Job;

/// The largest request.
const BATCH: usize = 250;
const PAYLOAD: f64 = crate::worker::PAYLOAD as f64;

fn preload(bench: &Bench, server: &Redis, name: &str, count: usize) -> Outcome {
    let (name, batch) = (name.to_owned(), BATCH);
    let job = Job { count, batch, name, workers: 4, ..job("preload", "tenure-redis", server) };
    take(&Language::Rust, bench.pins.other.as_deref(), &[job], &[server]).map(drop)
}

/// The same work in one queue with a thousand messages that are not due, and in one with a million.
pub(super) fn backlog(bench: &mut Bench) -> Outcome {
    let pin = bench.pins.shared.clone();
    let (small, large) = (Redis::start(pin.as_deref())?, Redis::start(pin.as_deref())?);
    let name = "compare/backlog";
    preload(bench, &small, name, 1_000)?;
    let (many, empty) = (1_000_000, large.used_memory()?);
    preload(bench, &large, name, many)?;
    let bytes = (large.used_memory()? - empty) / many as f64 - PAYLOAD;
    let note = format!("One at a time, eight tasks. A stored message takes {bytes:.0} bytes beyond its 100.");
    let mut section = Section::new("backlog", "Beside messages that are not due", note, THROUGHPUT);
    for _ in 0..bench.rounds() {
        for (row, server) in bench.shuffled(&[("a thousand", &small), ("a million", &large)]) {
            let (name, count) = (name.to_owned(), bench.pick(4_000, 12_000));
            let job = Job { count, name, workers: 8, ..job("throughput", "tenure-redis", server) };
            let taken = take(&Language::Rust, pin.as_deref(), &[job], &[server])?;
            section.add(row, taken.per_thing(&[]));
        }
    }
    bench.report.ratio("backlog_1m_vs_1k", section.ratio("a million", "a thousand", "server_us"));
    bench.report.ratio("bytes_over_payload", Some(bytes));
    bench.report.sections.push(section);
    Ok(())
}

/// One receiver at an empty queue.
pub(super) fn idle(bench: &mut Bench) -> Outcome {
    const WINDOW_MS: u64 = 10_500;
    let server = Redis::start(bench.pins.shared.as_deref())?;
    let columns = &[("commands_per_s", "commands per second")];
    let mut section =
        Section::new("idle", "One receiver at an empty queue", "Calls inside scripts are not counted.", columns);
    for _ in 0..5 {
        server.flush()?;
        let job = Job { millis: WINDOW_MS, ..job("idle", "tenure-redis", &server) };
        let mut worker = Worker::start(&Language::Rust, bench.pins.shared.as_deref())?;
        worker.prepare(&job)?;
        let before = server.counters()?;
        worker.go()?;
        std::thread::sleep(std::time::Duration::from_millis(WINDOW_MS - 500));
        let spent = server.counters()?.since(&before);
        worker.answer()?;
        let rate = spent.calls(&["eval", "evalsha", "ping"]) / ((WINDOW_MS - 500) as f64 / 1e3);
        section.add("tenure-redis", Sample::from([("commands_per_s".to_owned(), rate)]));
    }
    bench.report.ratio("idle_commands_per_s", section.figure("tenure-redis", "commands_per_s"));
    bench.report.sections.push(section);
    Ok(())
}

/// 100,000 messages come due at the same time.
pub(super) fn burst(bench: &mut Bench) -> Outcome {
    const MESSAGES: usize = 100_000;
    let pin = bench.pins.shared.clone();
    let server = Redis::start(pin.as_deref())?;
    let columns = &[("longest_script_ms", "longest script ms"), ("drain_per_s", "received and settled per second")];
    let note = "Pushed and received 250 at a time by four tasks.";
    let mut section = Section::new("burst", "100,000 messages due at once", note, columns);
    for round in 0..5 {
        server.flush()?;
        server.watch_scripts(200)?;
        let name = format!("compare/burst{round}");
        let job = Job {
            count: MESSAGES,
            batch: BATCH,
            workers: 4,
            millis: 15_000,
            name,
            ..job("burst", "tenure-redis", &server)
        };
        match take(&Language::Rust, pin.as_deref(), &[job], &[&server]) {
            Ok(taken) => {
                let mut figures = sample(&taken.answers[0]);
                figures.insert("longest_script_ms".into(), server.longest_script()?);
                section.add("tenure-redis", figures);
            }
            Err(error) => bench.report.left_out("a round of the burst", error),
        }
    }
    bench.report.ratio("due_burst_100k_longest_script_ms", section.figure("tenure-redis", "longest_script_ms"));
    bench.report.sections.push(section);
    Ok(())
}
