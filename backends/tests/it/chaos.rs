//! Processes over servers that are stopped, killed and cut off, briefly; `cargo xtask chaos` runs it for longer and on
//! more backends. And drivers with something wrong, which the judge has to find.

use std::time::Duration;

use tenure_backends::chaos::{Data, Harm, Options, Report, Subject, run};

const ALL: Harm = Harm { clients: true, servers: true, links: true };

fn options(backend: &str, seconds: u64) -> Options {
    let mut options = Options::new(env!("CARGO_BIN_EXE_chaos").into(), backend).unwrap();
    options.span = Duration::from_secs(seconds);
    options.seed = std::env::var("TENURE_SEED").map_or(1, |text| text.parse().expect("TENURE_SEED is a number"));
    options
}

/// A run that has to be clean, and that had something to be broken.
async fn clean(options: &Options) -> Report {
    let report = run(options).await.unwrap();
    println!("{report}");
    assert!(report.is_clean(), "{}", report.broken_rules().join(", "));
    let (clients, servers) = report.faults();
    assert!(servers > 0 && (clients > 0 || !options.harm.clients), "the faults do not bite");
    assert!(report.grants() > 4 * options.processes, "{} grants prove too little", report.grants());
    report
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_seconds_of_faults_on_a_quorum_break_no_promise() {
    clean(&options("redlock/3-live", 10)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_seconds_of_faults_on_fred_break_no_promise() {
    clean(&options("fred/single", 10)).await;
}

/// One name, one task in each process, and faults of servers only: what the figure about rounds is said of.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes three minutes; cargo xtask test --full runs it"]
async fn three_minutes_of_faults_on_a_quorum_break_no_promise() {
    let mut options = options("redlock/5-live", 60);
    (options.tasks, options.names, options.steady) = (1, 1, 0);
    options.harm = Harm { clients: false, links: false, ..ALL };
    let mut lost = 0;
    for data in [Data::Lost, Data::Kept, Data::Lost] {
        options.data = data;
        let report = clean(&options).await;
        let (won, at_once) = report.elections();
        assert!(at_once * 10 >= won * 9, "seed {}: {at_once} of {won} grants in one round", options.seed);
        lost += report.lost();
        options.seed += 1;
    }
    assert!(lost > 0, "no client lost a lock: the report of a loss was not tested");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_loses_its_data_makes_no_fence_repeat_or_fall() {
    let mut options = options("redis/single", 8);
    options.data = Data::Lost;
    clean(&options).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_seconds_of_faults_on_a_queue_break_no_promise() {
    let mut options = options("fred/single", 10);
    options.subject = Subject::Queue;
    let report = run(&options).await.unwrap();
    println!("{report}");
    assert!(report.is_clean(), "{}", report.broken_rules().join(", "));
    let (clients, servers) = report.faults();
    assert!(clients > 0 && servers > 0, "the faults do not bite");
    assert!(report.deliveries() > 50, "{} deliveries prove too little", report.deliveries());
}

/// The judge finds the faults of these drivers; a run that cannot fail would prove nothing.
async fn caught(mutant: &str, rule: &str) {
    caught_with(Subject::Locks, mutant, rule).await;
}

async fn caught_with(subject: Subject, mutant: &str, rule: &str) {
    let mut options = options("redis/single", 6);
    options.subject = subject;
    options.broken = Some(mutant.into());
    // The fault shows only where the machine is fast enough: late messages cannot be early ones. So more than one try.
    let mut seen = Vec::new();
    for _ in 0..3 {
        let report = run(&options).await.unwrap();
        let found = report.broken_rules();
        if found.iter().any(|found| found == rule) {
            return;
        }
        seen.push(format!("{found:?}\n{report}"));
        options.seed += 1;
    }
    panic!("{mutant} was not caught: {}", seen.join("\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_driver_that_frees_the_locks_of_others_is_caught() {
    caught("release/anyones-lock", "two holders at once").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_driver_whose_clients_count_fences_for_themselves_is_caught() {
    caught("fence/per-client", "two grants with one fence").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_driver_whose_leases_have_no_end_is_caught() {
    caught("lease/never-expires", "a task that did not come to an end").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn consumers_that_lie_are_caught() {
    caught_with(Subject::Queue, "consumer/loses-its-work", "a message that was lost").await;
    caught_with(Subject::Queue, "consumer/settles-twice", "a message that was settled twice").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queues_with_something_wrong_are_caught() {
    caught_with(Subject::Queue, "key/ignored", "two messages of a concurrency key at once").await;
    caught_with(Subject::Queue, "delay/ignored", "a delivery that came too early").await;
    caught_with(Subject::Queue, "dead/dropped", "a message that was lost").await;
}
