//! What each method costs: one statement of the client, and so many inside.

use std::time::Duration;

use crate::common::{DATABASE, backend, granted, hold, message, receive, request, start};
use tenure_core::driver::{DelayQueueExt as _, Settle, Settlement, Ttl};
use tenure_core::queue::QueueName;
use tenure_testkit::{MariaDbOptions, MariaDbServer};

const MINUTE: Duration = Duration::from_secs(60);

/// What the server has counted: statements that clients sent, statements that they prepared, reads, writes.
fn counted(server: &MariaDbServer) -> [i64; 4] {
    let status = server.sql(DATABASE, "SHOW GLOBAL STATUS").unwrap();
    let sum = |names: &[&str]| -> i64 {
        let lines = status.lines().filter_map(|line| line.split_once('\t'));
        lines.filter(|(name, _)| names.contains(name)).map(|(_, count)| count.parse::<i64>().unwrap()).sum()
    };
    [
        sum(&["Com_stmt_execute"]),
        sum(&["Com_stmt_prepare"]),
        sum(&["Com_select"]),
        sum(&["Com_insert", "Com_update", "Com_delete"]),
    ]
}

/// What one request costs: statements sent, prepared, reads (that of the answer included), writes.
async fn cost<T>(server: &MariaDbServer, asked: impl Future<Output = T>) -> ([i64; 4], T) {
    let before = counted(server);
    let answer = asked.await;
    let after = counted(server);
    (std::array::from_fn(|at| after[at] - before[at]), answer)
}

#[tokio::test]
async fn every_method_is_one_statement_that_is_prepared_once() {
    let server = start(MariaDbOptions::new());
    let backend = backend(&server).await;
    let (locks, queue, jobs) = (backend.locks(), backend.queue().unwrap(), QueueName::new("jobs").unwrap());
    let (ttl, census) = (Ttl::new(MINUTE).unwrap(), backend.census().unwrap());
    // Once for all, so that names are there and statements prepared.
    for last in [false, true] {
        let (first, other) = (request("a", MINUTE), request("a", MINUTE));
        let mut costs = vec![("acquire", cost(&server, granted(locks, &first)).await.0, [3, 1])];
        costs.push(("acquire that is busy", cost(&server, locks.acquire(&other)).await.0, [2, 0]));
        costs.push(("renew", cost(&server, locks.renew(ttl, &[hold(&first)])).await.0, [3, 1]));
        costs.push(("inspect", cost(&server, locks.inspect(&first.name)).await.0, [2, 0]));
        costs.push(("held", cost(&server, census.held(b"", None, 500)).await.0, [1, 0]));
        costs.push(("release", cost(&server, locks.release(&hold(&first))).await.0, [3, 1]));
        costs.push(("abandon", cost(&server, locks.abandon(&hold(&other))).await.0, [3, 1]));
        costs.push(("receive of nothing", cost(&server, queue.receive(&receive(&jobs, 5))).await.0, [4, 0]));
        costs.push(("push", cost(&server, queue.push(&jobs, &[message("x")])).await.0, [3, 1]));
        let (received, answer) = cost(&server, queue.receive(&receive(&jobs, 5))).await;
        costs.push(("receive", received, [10, 3]));
        let settles = [Settle::new(answer.unwrap().deliveries[0].receipt, Settlement::Ack)];
        costs.push(("settle", cost(&server, queue.settle(&jobs, &settles)).await.0, [6, 1]));
        if last {
            let reported: Vec<_> =
                costs.iter().map(|(method, [sent, prepared, ..], _)| (*method, *sent, *prepared)).collect();
            assert!(reported.iter().all(|(_, sent, prepared)| (*sent, *prepared) == (1, 0)), "{reported:?}");
            let inside: Vec<_> =
                costs.iter().map(|(method, [_, _, reads, writes], _)| (*method, [*reads, *writes])).collect();
            let expected: Vec<_> = costs.iter().map(|(method, _, expected)| (*method, *expected)).collect();
            assert_eq!(inside, expected);
        }
    }
}
