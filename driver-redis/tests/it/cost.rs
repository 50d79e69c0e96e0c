//! What operations cost, in commands: those that the client sends, and those that run inside the scripts.

use std::time::Duration;

use crate::common::{Client, all_calls, attempt, hold, server, ttl, waiter};
use tenure_core::driver::{Handing, Queueing, Released, Renewed};
use tenure_redis::RedisDriver;
use tenure_testkit::RedisServer;

fn counted(server: &RedisServer, expected: &[(&str, u64)]) {
    let expected = expected.iter().map(|(command, count)| ((*command).to_owned(), *count)).collect();
    assert_eq!(all_calls(server), expected);
}

/// Where `PEXPIRE` does not compare.
fn is_before_7(server: &RedisServer) -> bool {
    server.cli(&["INFO", "server"]).unwrap().text().contains("redis_version:6.")
}

/// Where a release that nobody waits for is one command.
fn deletes_equal(server: &RedisServer) -> bool {
    let info = server.cli(&["INFO", "server"]).unwrap().text();
    info.lines().any(|line| line.starts_with("valkey_version:9."))
}

#[tokio::test]
async fn a_pair_that_nobody_disturbs_is_two_requests() {
    const PAIRS: u64 = 20;
    let server = server();
    let client = tenure_core::Client::new(RedisDriver::connect(&server.url()).await.unwrap());
    let lock = client.lock("free");
    lock.acquire().await.unwrap().release().await.unwrap(); // now the server knows the scripts
    server.cli(&["CONFIG", "RESETSTAT"]).unwrap();
    for _ in 0..PAIRS {
        lock.acquire().await.unwrap().release().await.unwrap();
    }
    let acquired = [("exists", PAIRS), ("time", PAIRS), ("set", 2 * PAIRS)];
    let released: &[_] = match deletes_equal(&server) {
        true => &[("evalsha", PAIRS), ("delifeq", PAIRS)],
        false => &[("evalsha", 2 * PAIRS), ("get", PAIRS), ("del", PAIRS)],
    };
    counted(&server, &[&acquired, released].concat());
}

#[tokio::test]
async fn a_renewal_is_one_command_for_each_lease_and_one_script_for_all() {
    const LEASES: u64 = 60;
    let server = server();
    let client = Client::of(&server).await;
    let mut holds = Vec::new();
    for i in 0..LEASES {
        let request = attempt(&format!("lock-{i}"));
        client.grant(&request).await;
        holds.push(hold(&request));
    }
    client.locks.renew(ttl(60_000), &holds[..1]).await.remove(0).unwrap(); // now the server knows the script
    server.cli(&["CONFIG", "RESETSTAT"]).unwrap();
    let shorter = ttl(40_000); // than what is left of the first: that is to be looked at
    let (pexpire, pttl) = if is_before_7(&server) { (LEASES - 1, LEASES) } else { (LEASES, 1) };
    for renewed in client.locks.renew(shorter, &holds).await {
        let Renewed::Extended { ttl } = renewed.unwrap() else { panic!("lost") };
        assert!(ttl >= shorter.get());
    }
    counted(&server, &[("evalsha", 1), ("mget", 1), ("pexpire", pexpire), ("pttl", pttl)]);
}

#[tokio::test]
async fn a_release_of_what_is_gone_touches_nothing() {
    let server = server();
    let client = Client::of(&server).await;
    let request = attempt("gone");
    assert_eq!(client.locks.release(&hold(&request)).await.unwrap(), Released::NotHeld);
    server.cli(&["CONFIG", "RESETSTAT"]).unwrap();
    assert_eq!(client.locks.release(&hold(&request)).await.unwrap(), Released::NotHeld);
    counted(&server, &[("evalsha", 1), ("get", 1)]);
}

/// The three requests of a hand-over between clients of one thread: to join the line, to release, to make the handed lease last.
#[tokio::test]
async fn a_hand_over_in_a_long_line_is_so_many_commands() {
    let server = server();
    let client = Client::of(&server).await;
    let taker = || {
        let queue = Queueing::Join { presence: Duration::from_secs(10), accepts: Handing::Direct };
        waiter("hot").with_queue(queue)
    };
    let reset = || server.cli(&["CONFIG", "RESETSTAT"]).unwrap();
    let (first, second, third, last) = (attempt("hot"), taker(), taker(), taker());
    client.grant(&first).await;
    client.busy(&second).await;
    client.busy(&third).await;
    client.locks.release(&hold(&first)).await.unwrap(); // now the server knows the scripts

    reset();
    client.busy(&last).await;
    counted(
        &server,
        &[
            ("evalsha", 1),
            ("exists", 1),
            ("time", 1),
            ("get", 1),
            ("zcard", 1),
            ("zrange", 1), // those that are dead
            ("pttl", 2),
            ("zadd", 2),
            ("zrank", 1),
            ("hset", 1),
        ],
    );

    reset();
    client.grant(&second).await;
    let mut made_to_last =
        vec![("evalsha", 1), ("exists", 1), ("time", 1), ("get", 1), ("pexpire", 1), ("setrange", 1)];
    made_to_last.extend(is_before_7(&server).then_some(("pttl", 1)));
    counted(&server, &made_to_last);

    reset();
    client.locks.release(&hold(&second)).await.unwrap();
    counted(
        &server,
        &[
            ("evalsha", 1),
            ("get", 1),
            ("del", 1),
            ("time", 1),
            ("zrange", 1),
            ("zscore", 1),
            ("hget", 1),
            ("set", 2),
            ("publish", 1),
            ("zrem", 2),
            ("hdel", 1),
        ],
    );
}
