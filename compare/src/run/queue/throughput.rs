//! Messages that are due at once: stored, received, settled.

use super::super::beanstalkd::Beanstalkd;
use super::super::bench::{Bench, take};
use super::super::language::{Language, on_path};
use super::super::redis::Redis;
use super::super::report::Section;
use super::job::{THROUGHPUT, job};
use crate::failure::Outcome;
use crate::job::Job;

#[derive(Clone)]
struct Case {
    row: &'static str,
    subject: &'static str,
    language: Language,
    batch: usize,
    workers: usize,
    count: usize,
}

fn case(row: &'static str, subject: &'static str, batch: usize, workers: usize, count: usize) -> Case {
    Case { row, subject, language: Language::Rust, batch, workers, count }
}

pub(super) fn run(bench: &mut Bench) -> Outcome {
    let pin = bench.pins.shared.clone();
    let server = Redis::start(pin.as_deref())?;
    bench.about("redis", server.version()?);
    let scale = bench.pick(1, 3);
    let mut cases = vec![
        case("tenure-redis, 1 × 8", "tenure-redis", 1, 8, 4_000 * scale),
        case("tenure-redis, 10 × 8", "tenure-redis", 10, 8, 16_000 * scale),
        case("tenure-redis, 16 × 8", "tenure-redis", 16, 8, 16_000 * scale),
        case("tenure-redis, 100 × 1", "tenure-redis", 100, 1, 20_000 * scale),
        case("tenure-fred, 1 × 8", "tenure-fred", 1, 8, 4_000 * scale),
        case("apalis-redis, 1", "apalis", 1, 1, 2_000 * scale),
        case("apalis-redis, 10", "apalis", 10, 1, 2_000 * scale), // more at once wedge it: its script unpacks all
        case("rsmq_async, 1 × 8", "rsmq", 1, 8, 4_000 * scale),
        case("rsmq_async, 10 × 8", "rsmq", 10, 8, 8_000 * scale),
    ];
    match Language::node("bullmq") {
        Ok(language) => cases.push(Case { language, ..case("BullMQ, 1 × 8", "bullmq", 1, 8, 2_000 * scale) }),
        Err(why) => {
            bench.report.unmeasured("total_vs_bullmq", why.to_string());
            bench.report.left_out("BullMQ", why);
        }
    }
    let beanstalkd = match on_path("beanstalkd") {
        true => Some(Beanstalkd::start(pin.as_deref())?),
        false => None,
    };
    match &beanstalkd {
        Some(_) => cases.extend([
            case("beanstalkd, 1", "beanstalkd", 1, 1, 4_000 * scale),
            case("beanstalkd, 100", "beanstalkd", 100, 1, 20_000 * scale),
        ]),
        None => bench.report.unmeasured("total_vs_beanstalkd_b100", "beanstalkd is not installed"),
    }
    let note = "100 bytes each; \"10 × 8\" is ten in a request, eight tasks. Server and client on one processor.";
    let mut section = Section::new("throughput", "Push, receive, settle", note, THROUGHPUT);
    for round in 0..bench.rounds() {
        for case in bench.shuffled(&cases) {
            server.flush()?;
            let Case { row, subject, language, batch, workers, count } = case;
            let name = format!("compare-throughput-{round}");
            let mut job = Job { batch, workers, count, name, ..job("throughput", subject, &server) };
            if let Some(beanstalkd) = beanstalkd.as_ref().filter(|_| subject == "beanstalkd") {
                job.ports = vec![beanstalkd.port];
            }
            match take(&language, pin.as_deref(), &[job], &[&server]) {
                Ok(taken) => section.add(row, taken.per_thing(&[])),
                Err(error) => bench.report.left_out(row, error),
            }
        }
    }
    let report = &mut bench.report;
    let total = |one, other| section.ratio(one, other, "total_per_s");
    report.ratio("total_vs_apalis_b1", total("tenure-redis, 1 × 8", "apalis-redis, 1"));
    report.ratio("total_vs_apalis_b10", total("tenure-redis, 10 × 8", "apalis-redis, 10"));
    report.ratio("total_vs_bullmq", total("tenure-redis, 1 × 8", "BullMQ, 1 × 8"));
    report.ratio("redis_cpu_us_b1", section.figure("tenure-redis, 1 × 8", "server_us"));
    report.ratio("redis_cpu_us_b16", section.figure("tenure-redis, 16 × 8", "server_us"));
    if beanstalkd.is_some() {
        report.ratio("total_vs_beanstalkd_b100", total("tenure-redis, 100 × 1", "beanstalkd, 100"));
    }
    report.sections.push(section);
    Ok(())
}
