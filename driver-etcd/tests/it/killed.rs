//! Processes that contend and are killed, one each second: the others go on.

use std::io::Write as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::*;
use tenure_core::Client;
use tenure_etcd::EtcdDriver;
use tenure_testkit::TempDir;

const PROCESSES: usize = 8;
const TASKS: usize = 4;
const SERVER: &str = "TENURE_ETCD_COUNTED_AT";
const LEDGER: &str = "TENURE_ETCD_COUNTED_IN";

/// This test's own program, contending until it is killed.
struct Process(Child);

impl Process {
    fn start(url: &str, ledger: &std::path::Path) -> Self {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "killed::contends_until_it_is_killed", "--ignored", "--nocapture"])
            .env(SERVER, url)
            .env(LEDGER, ledger)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Self(child.unwrap())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
#[ignore = "what the processes do that the other test starts"]
fn contends_until_it_is_killed() {
    let (Ok(url), Some(ledger)) = (std::env::var(SERVER), std::env::var_os(LEDGER)) else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let client = Client::builder(EtcdDriver::new(url.parse().unwrap())).ttl(2 * SECOND).build().unwrap();
        let tasks = (0..TASKS).map(|_| {
            let (client, ledger) = (client.clone(), ledger.clone());
            tokio::spawn(async move {
                let mut ledger = std::fs::File::options().append(true).open(ledger).unwrap();
                loop {
                    let Ok(guard) = client.lock("counted").acquire().await else { continue };
                    if guard.is_held() {
                        ledger.write_all(format!("{}\n", guard.fence()).as_bytes()).unwrap();
                    }
                    let _ = guard.release().await;
                }
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            let _: Result<(), _> = task.await;
        }
    });
}

/// The fences in the order in which they were written.
fn fences(ledger: &std::path::Path) -> Vec<u64> {
    let text = std::fs::read_to_string(ledger).unwrap();
    text.lines().map(|line| line.parse().unwrap()).collect()
}

#[test]
fn processes_that_are_killed_each_second_hold_nobody_up() {
    let seconds = std::env::var("TENURE_ETCD_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(12);
    let slack: f64 = std::env::var("TENURE_SLACK").ok().and_then(|slack| slack.parse().ok()).unwrap_or(1.0);
    let cluster = server();
    let dir = TempDir::new("etcd-counted").unwrap();
    let ledger = dir.path().join("fences");
    std::fs::write(&ledger, "").unwrap();
    let mut processes: Vec<_> = (0..PROCESSES).map(|_| Process::start(&cluster.url(), &ledger)).collect();
    let started = Instant::now();
    while fences(&ledger).len() < 50 {
        assert!(started.elapsed() < PATIENCE, "they contend");
        std::thread::sleep(Duration::from_millis(20));
    }
    let (began, before) = (Instant::now(), fences(&ledger).len());
    let (mut last, mut stall) = ((began, before), Duration::ZERO);
    for second in 1..=seconds {
        while began.elapsed() < SECOND * second {
            std::thread::sleep(Duration::from_millis(20));
            let count = fences(&ledger).len();
            if count > last.1 {
                last = (Instant::now(), count);
            }
            stall = stall.max(last.0.elapsed());
        }
        let at = second as usize * 5 % PROCESSES;
        processes[at] = Process::start(&cluster.url(), &ledger);
    }
    let rate = (fences(&ledger).len() - before) as f64 / began.elapsed().as_secs_f64();
    drop(processes);
    let fences = fences(&ledger);
    eprintln!("{rate:.0} increments each second over {seconds} kills, the longest stall {stall:?}");
    assert!(fences.is_sorted_by(|earlier, later| earlier < later), "written out of order");
    assert!(rate >= 20.0 / slack, "{rate:.1} increments each second, the longest stall {stall:?}");
}
