//! Long queues: scripts stay short, memory stays small. The figures are printed; the limits are those of a slow machine.

#![allow(clippy::print_stdout, reason = "measurements")]

use std::time::Duration;

use crate::common::queue::{delay, key, message, queue, up_to};
use crate::common::{Client, calls, server};
use tenure_core::ErrorKind;
use tenure_core::driver::{
    Attempts, DeadSelection, Delay, DelayQueueExt as _, Due, Exchanged, NewMessage, Next, Payload, QueueAdmin, Rest,
    Settle, Settlement,
};
use tenure_core::queue::{QueueLimits, QueueName};
use tenure_testkit::RedisServer;

const MANY: usize = 100_000;
const PAYLOAD: usize = 100;

/// What a call may cost the server, on a machine that is slow and has other things to do.
const MEDIAN: Duration = Duration::from_millis(15);
const MOST: Duration = Duration::from_millis(60);

fn small() -> NewMessage {
    message("", 0).with_payload(Payload::new(vec![b'x'; PAYLOAD]).unwrap())
}

async fn fill(q: &dyn QueueAdmin, jobs: &QueueName, count: usize, message: &NewMessage) {
    for start in (0..count).step_by(256) {
        let batch = vec![message.clone(); 256.min(count - start)];
        q.push(jobs, &batch).await.unwrap();
    }
}

/// What the server computed for each call of a kind. Its processor time, which other programs hardly change.
struct Costs<'a> {
    server: &'a RedisServer,
    all: Vec<(&'static str, Vec<Duration>)>,
}

impl<'a> Costs<'a> {
    fn of(server: &'a RedisServer) -> Self {
        Self { server, all: Vec::new() }
    }

    fn cpu(&self) -> Duration {
        let info = self.server.cli(&["INFO", "cpu"]).unwrap().text();
        let part = |name: &str| {
            let line = info.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            Duration::from_secs_f64(line.trim().parse().unwrap())
        };
        part("used_cpu_user:") + part("used_cpu_sys:")
    }

    async fn of_call<T>(&mut self, what: &'static str, call: impl Future<Output = tenure_core::Result<T>>) -> T {
        let before = self.cpu();
        let answer = call.await.unwrap();
        let cost = self.cpu() - before;
        match self.all.iter_mut().find(|(known, _)| *known == what) {
            Some((_, costs)) => costs.push(cost),
            None => self.all.push((what, vec![cost])),
        }
        answer
    }

    fn judge(mut self) {
        for (what, costs) in &mut self.all {
            costs.sort_unstable();
            let (median, most) = (costs[costs.len() / 2], costs[costs.len() - 1]);
            println!("{what}: {median:?} of processor time, {most:?} at most, {} calls", costs.len());
            assert!(median < MEDIAN && most < MOST, "{what}: {median:?}, {most:?}");
        }
    }
}

fn memory(server: &RedisServer) -> u64 {
    let info = server.cli(&["INFO", "memory"]).unwrap().text();
    let line = info.lines().find_map(|line| line.strip_prefix("used_memory:")).unwrap();
    line.trim().parse().unwrap()
}

fn acks(deliveries: &[tenure_core::driver::RawDelivery]) -> Vec<Settle> {
    deliveries.iter().map(|delivery| Settle::new(delivery.receipt, Settlement::Ack)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_burst_of_due_messages_is_worked_off_in_short_scripts() {
    let server = server();
    let q = Client::of(&server).await.queues;
    let jobs = queue("jobs");
    let mut costs = Costs::of(&server);
    fill(&*q, &jobs, MANY - 2_560, &small()).await;
    for _ in 0..10 {
        costs.of_call("push of 256", q.push(&jobs, &vec![small(); 256])).await;
    }
    for _ in 0..5 {
        assert_eq!(costs.of_call("stats, all due", q.stats(&jobs)).await.ready, MANY as u64);
    }
    let (mut settles, mut got) = (Vec::new(), 0);
    loop {
        let request = up_to(&jobs, 256);
        let call = q.exchange(&settles, &request);
        let Exchanged { settled, received, .. } =
            costs.of_call("settlement and receive of what one script hands out", call).await;
        assert_eq!(settled.len(), settles.len());
        got += received.deliveries.len();
        settles = acks(&received.deliveries);
        if received.deliveries.is_empty() && received.next == Next::Never {
            break;
        }
    }
    assert_eq!(got, MANY);
    costs.judge();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn exhausted_and_held_messages_and_operators_cost_short_scripts_too() {
    let server = server();
    let q = Client::of(&server).await.queues;
    let (keyed, doomed) = (queue("keyed"), queue("doomed"));
    let once = small().with_attempts(Attempts::new(1).unwrap());
    fill(&*q, &doomed, 10_000, &once).await;
    fill(&*q, &keyed, 10_000, &small().with_key(key("one"))).await;
    let mut costs = Costs::of(&server);
    let request = up_to(&doomed, 256).with_lease(crate::common::queue::lease(10));
    loop {
        let received = costs.of_call("receive of messages, of exhausted ones at last", q.receive(&request)).await;
        match received.next {
            Next::Never => break,
            Next::In(span) => tokio::time::sleep(span).await,
            _ => {}
        }
    }
    let stats = q.stats(&doomed).await.unwrap();
    assert_eq!((stats.dead, stats.ready, stats.in_flight), (10_000, 0, 0));
    while costs.of_call("holding messages of one key", q.receive(&up_to(&keyed, 256))).await.next == Next::Now {}
    let stats = costs.of_call("stats", q.stats(&keyed)).await;
    assert_eq!((stats.ready, stats.in_flight), (9_999, 1));
    let page = costs.of_call("page of dead letters", q.dead_list(&doomed, None, 256)).await;
    assert_eq!((page.letters.len(), page.rest), (256, Rest::More));
    let oldest = DeadSelection::Oldest(5_000);
    let redriven = costs.of_call("redrive of 256", q.dead_redrive(&doomed, &oldest, Delay::ZERO)).await;
    assert_eq!((redriven.moved, redriven.rest), (256, Rest::More));
    let purged = costs.of_call("purge of 256 dead letters", q.dead_purge(&doomed, &oldest)).await;
    assert_eq!((purged.removed, purged.rest), (256, Rest::More));
    for _ in 0..10 {
        assert_eq!(costs.of_call("purge of 256", q.purge(&keyed, 256, None)).await.removed, 256);
    }
    let (mut removed, mut from) = (2_560, None);
    loop {
        let step = costs.of_call("further steps of a purge", q.purge(&keyed, 256, from)).await;
        removed += step.removed;
        from = step.next;
        if from.is_none() {
            break;
        }
    }
    assert_eq!(removed, 9_999);
    costs.judge();
}

/// The first limit of the messages in flight counts those that are.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_limit_costs_a_short_script_also_with_many_in_flight() {
    let server = server();
    let q = Client::of(&server).await.queues;
    let flying = queue("flying");
    fill(&*q, &flying, 10_000, &small()).await;
    let mut got = 0;
    while got < 10_000 {
        got += q.receive(&up_to(&flying, 256)).await.unwrap().deliveries.len();
    }
    let (costs, before) = (Costs::of(&server), calls(&server, "evalsha"));
    let start = costs.cpu();
    q.limit(&flying, &QueueLimits::none().in_flight(10_000).unwrap()).await.unwrap();
    let (spent, scripts) = (costs.cpu() - start, calls(&server, "evalsha") - before);
    println!("limit with 10,000 in flight: {spent:?} of processor time, {scripts} scripts");
    assert!(scripts >= 10, "each counts 1,000 messages, or a few more");
    assert!(spent / u32::try_from(scripts).unwrap() < MEDIAN, "{spent:?} for {scripts} scripts");
    fill(&*q, &flying, 1, &small()).await;
    assert!(q.receive(&up_to(&flying, 1)).await.unwrap().deliveries.is_empty(), "all were counted");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_message_costs_little_memory() {
    let server = server();
    let q = Client::of(&server).await.queues;
    let jobs = queue("jobs");
    let before = memory(&server);
    let later = small().with_due(Due::After(delay(3_600_000)));
    fill(&*q, &jobs, MANY / 2, &later).await;
    fill(&*q, &jobs, MANY / 2, &small()).await;
    let per_message = (memory(&server) - before) / MANY as u64;
    println!("a message of {PAYLOAD} bytes takes {per_message}: {} over its payload", per_message - PAYLOAD as u64);
    assert!(per_message <= 220 + PAYLOAD as u64);
    let mut received = 0;
    while received < MANY / 2 {
        received += q.receive(&up_to(&jobs, 256)).await.unwrap().deliveries.len();
    }
    let in_flight = (memory(&server) - before - per_message * MANY as u64) * 2 / MANY as u64;
    println!("one in flight takes {in_flight} more");
    assert!(in_flight <= 200);
}

/// All or none of a batch means one script; so its bytes are bounded.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_most_bytes_of_a_push_cost_a_short_script_and_more_are_refused() {
    let server = server();
    let q = Client::of(&server).await.queues;
    let jobs = queue("jobs");
    let large = message("", 0).with_payload(Payload::new(vec![b'x'; Payload::DEFAULT_CAP]).unwrap());
    let mut costs = Costs::of(&server);
    for _ in 0..20 {
        costs.of_call("push of a megabyte", q.push(&jobs, &vec![large.clone(); 4])).await;
    }
    costs.judge();
    for count in [5, 256] {
        let error = q.push(&jobs, &vec![large.clone(); count]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.message().contains("push fewer messages"), "{error}");
    }
    assert_eq!(q.stats(&jobs).await.unwrap().ready, 80, "nothing of what was refused");
}

/// One worker's share: pushes and receives by turns, and settles with the next request.
async fn live(q: std::sync::Arc<dyn QueueAdmin>, jobs: QueueName, batch: usize, turns: usize) -> usize {
    let (messages, request) = (vec![small(); batch], up_to(&jobs, batch));
    let (mut settles, mut lives) = (Vec::new(), 0);
    for _ in 0..turns {
        q.push(&jobs, &messages).await.unwrap();
        let Exchanged { settled, received, .. } = q.exchange(&settles, &request).await.unwrap();
        assert_eq!(settled.len(), settles.len());
        settles = acks(&received.deliveries);
        lives += settles.len();
    }
    lives
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_life_costs_the_server_little() {
    let server = server();
    let q = Client::of(&server).await.queues;
    for (batch, turns) in [(1, 1_000), (16, 250), (128, 60)] {
        let jobs = queue(format!("jobs of {batch}"));
        fill(&*q, &jobs, 1_000, &small().with_due(Due::After(delay(3_600_000)))).await;
        let (costs, before) = (Costs::of(&server), Costs::of(&server).cpu());
        let workers = (0..8).map(|_| tokio::spawn(live(q.clone(), jobs.clone(), batch, turns)));
        let mut lives = 0;
        for worker in workers.collect::<Vec<_>>() {
            lives += worker.await.unwrap();
        }
        assert_eq!(lives, 8 * batch * turns);
        let each = (costs.cpu() - before) / lives as u32;
        println!("{batch} at once: {each:?} of processor time for a message's life");
        assert!(each < Duration::from_micros(400));
    }
}
