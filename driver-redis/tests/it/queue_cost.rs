//! What a message costs the server: the time of its scripts, and all of its processor time.
//!
//! A measurement, not a test. Alone it prints the figures of this program; with another program of this test, built from
//! other sources, it sets one against the other, round by round at one server, and prints medians of their ratios:
//!
//! ```text
//! cargo test -p tenure-redis --test it --no-run       # in both trees
//! COST_AGAINST=/other/target/debug/deps/it-… cargo test -p tenure-redis --test it -- queue_cost:: --ignored --nocapture
//! ```

#![allow(clippy::print_stdout, reason = "measurements")]

use std::collections::BTreeMap;
use std::process::Command;

use crate::common::queue::{key, message, queue, up_to};
use crate::common::{Client, server};
use futures_util::future::join_all;
use tenure_core::driver::{DelayQueueExt as _, Exchanged, NewMessage, Payload, Settle, Settlement};
use tenure_core::queue::QueueName;
use tenure_testkit::{RedisServer, RespClient};

const ROUNDS: usize = 15;
/// Requests that are on their way at once.
const DEEP: usize = 8;

/// Microseconds, by what they were spent on.
type Figures = BTreeMap<String, f64>;

/// Where a program that another one started finds the server.
const AT: &str = "COST_AT";
/// The other program.
const AGAINST: &str = "COST_AGAINST";
/// What is added to the address: `?fences=counter`, for one.
const OPTIONS: &str = "COST_OPTIONS";

fn env(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

#[test]
#[ignore = "a measurement"]
fn what_a_message_costs_the_server() {
    if let Some(port) = env(AT) {
        return print(&measured(port.parse().unwrap()));
    }
    let server = server();
    let me = std::env::current_exe().unwrap().to_str().unwrap().to_owned();
    let programs: Vec<String> = [Some(me), env(AGAINST)].into_iter().flatten().collect();
    let mut rounds: Vec<Vec<Figures>> = Vec::new();
    for round in 0..ROUNDS {
        let mut figures = vec![Figures::new(); programs.len()];
        for i in 0..programs.len() {
            let i = (i + round) % programs.len(); // each is first as often as the other
            figures[i] = run(&programs[i], &server);
        }
        rounds.push(figures);
    }
    for what in rounds[0][0].keys() {
        let median = |figure: &dyn Fn(&[Figures]) -> f64| {
            let mut all: Vec<f64> = rounds.iter().map(|round| figure(round)).collect();
            all.sort_by(f64::total_cmp);
            all[all.len() / 2]
        };
        let mine = median(&|round| round[0][what]);
        match programs.len() {
            1 => println!("{what}: {mine:.1} us"),
            _ => {
                let (theirs, ratio) =
                    (median(&|round| round[1][what]), median(&|round| round[0][what] / round[1][what]));
                println!("{what}: {mine:.1} us, the other {theirs:.1}, ratio {ratio:.3}");
            }
        }
    }
}

fn run(program: &str, server: &RedisServer) -> Figures {
    server.cli(&["FLUSHALL"]).unwrap();
    let port = server.port().to_string();
    let output = Command::new(program)
        .args(["--exact", "queue_cost::what_a_message_costs_the_server", "--ignored", "--nocapture"])
        .env(AT, port)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let line = |line: &str| {
        line.strip_prefix("cost ")?.split_once('=').map(|(what, us)| (what.to_owned(), us.parse().unwrap()))
    };
    text.lines().filter_map(line).collect()
}

fn print(figures: &Figures) {
    println!();
    figures.iter().for_each(|(what, us)| println!("cost {what}={us}"));
}

/// Reads the server's account.
struct Account(RespClient);

impl Account {
    /// Microseconds in scripts, and of processor time, so far.
    fn spent(&mut self) -> (f64, f64) {
        let stats = self.0.call(&["INFO", "commandstats", "cpu"]).unwrap().text();
        let script = |line: &str| {
            let (command, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
            let us = rest.split("usec=").nth(1)?.split(',').next()?.parse::<f64>().ok()?;
            ["evalsha", "eval"].contains(&command).then_some(us)
        };
        let cpu = |line: &str| {
            let seconds = line.strip_prefix("used_cpu_user:").or(line.strip_prefix("used_cpu_sys:"))?;
            seconds.parse::<f64>().ok()
        };
        (stats.lines().filter_map(script).sum(), stats.lines().filter_map(cpu).sum::<f64>() * 1e6)
    }

    async fn of(&mut self, figures: &mut Figures, what: &str, count: usize, work: impl Future<Output = ()>) {
        let before = self.spent();
        work.await;
        let after = self.spent();
        figures.insert(format!("{what}, script"), (after.0 - before.0) / count as f64);
        figures.insert(format!("{what}, cpu"), (after.1 - before.1) / count as f64);
    }
}

fn small() -> NewMessage {
    message("", 0).with_payload(Payload::new(vec![b'x'; 100]).unwrap())
}

async fn pushes(client: &Client, jobs: &QueueName, batch: usize, times: usize) {
    let messages = vec![small(); batch];
    for _ in 0..times {
        client.queues.push(jobs, &messages).await.unwrap();
    }
}

/// Each settles what the one before received.
async fn turns(client: &Client, jobs: &QueueName, batch: usize, times: usize) {
    let (request, mut settles) = (up_to(jobs, batch), Vec::new());
    for _ in 0..times {
        let Exchanged { received, .. } = client.queues.exchange(&settles, &request).await.unwrap();
        assert_eq!(received.deliveries.len(), batch);
        let ack = |receipt| Settle::new(receipt, Settlement::Ack);
        settles = received.deliveries.iter().map(|delivery| ack(delivery.receipt)).collect();
    }
}

/// One receive while thousands of messages wait behind one of their key.
async fn hot_key(client: &Client, account: &mut Account, figures: &mut Figures) {
    const WAITING: usize = 4_000;
    let jobs = queue("hot");
    let messages = vec![small().with_key(key("hot")); 250];
    for _ in 0..WAITING / 250 {
        client.queues.push(&jobs, &messages).await.unwrap();
    }
    let receives = WAITING / 300;
    let receive = async {
        for i in 0..receives {
            let received = client.queues.receive(&up_to(&jobs, 1)).await.unwrap();
            assert_eq!(received.deliveries.len(), usize::from(i == 0));
        }
    };
    account.of(figures, "receive beside a hot key", receives, receive).await;
}

#[tokio::main(flavor = "current_thread")]
async fn measured(port: u16) -> Figures {
    let url = format!("redis://127.0.0.1:{port}{}", env(OPTIONS).unwrap_or_default());
    let client = Client::at(&url).await;
    let mut account = Account(RespClient::tcp(port).unwrap());
    let mut figures = Figures::new();
    for (batch, count) in [(1, 4_000), (10, 20_000)] {
        let (client, jobs, each) = (&client, &queue(format!("jobs of {batch}")), count / batch / DEEP);
        pushes(client, jobs, batch, 1).await; // now the server knows the scripts
        turns(client, jobs, batch, 1).await;
        let work = async { drop(join_all((0..DEEP).map(|_| pushes(client, jobs, batch, each))).await) };
        account.of(&mut figures, &format!("push, {batch} at a time"), count, work).await;
        let work = async { drop(join_all((0..DEEP).map(|_| turns(client, jobs, batch, each))).await) };
        account.of(&mut figures, &format!("turn, {batch} at a time"), count, work).await;
    }
    hot_key(&client, &mut account, &mut figures).await;
    figures
}
