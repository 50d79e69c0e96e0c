//! Nodes whose fences are not to be believed: their votes do not count, and nobody takes their numbers over.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::common::liar::Liar;
use crate::common::{Nodes, attempt, grant, hold, name, quiet, refused};
use tenure_core::driver::{
    Acquisition, Ballot, CLOCKS_APART, DistributedLock as _, Electorate, QuorumNode, Released, Vote,
};
use tenure_core::{ErrorKind, FenceFloor, FencingToken};
use tenure_memory::MemoryDriver;
use tenure_redis::{RedisConfig, RedisDriver};
use tenure_redlock::{Redlock, RedlockBuilder, Restarts};
use tenure_testkit::{RedisOptions, RedisServer};

const LIMIT: u64 = 1 << 53;

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap()
}

fn now() -> u64 {
    micros(SystemTime::now().duration_since(UNIX_EPOCH).unwrap())
}

/// A client of three nodes, the first of which lies.
fn client(nodes: &Nodes, liar: &Arc<Liar>, settings: impl FnOnce(RedlockBuilder) -> RedlockBuilder) -> Redlock {
    let honest = |i: usize| Arc::new(nodes.0[i].clone()) as Arc<dyn QuorumNode>;
    let builder = Redlock::builder().node("liar", Arc::clone(liar) as Arc<dyn QuorumNode>);
    settings(builder.node("n1", honest(1)).node("n2", honest(2))).build().unwrap()
}

/// What an honest node's counter of the name says now; moves it by one.
async fn counter(node: &MemoryDriver) -> u64 {
    let ballot = Ballot::new(attempt("a"), Electorate::of(["liar", "n1", "n2"]));
    match node.vote(&ballot).await.unwrap() {
        Vote::Cast(Acquisition::Granted(grant)) => {
            assert_eq!(node.release(&hold(&ballot.request)).await.unwrap(), Released::Released);
            grant.fence.get()
        }
        vote => panic!("{vote:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_fence_that_is_not_credible_is_no_vote_and_nobody_raises_to_it() {
    let far = now() + 2 * micros(CLOCKS_APART);
    for lie in [LIMIT, LIMIT + 1, i64::MAX as u64, u64::MAX, far] {
        for proposes in [true, false] {
            let nodes = Nodes::new(3);
            let liar = Liar::new(&nodes.0[0], move |_| lie);
            let driver = client(&nodes, &liar, |builder| match proposes {
                true => builder,
                false => builder.proposals(|| None),
            });
            let mut last = 0;
            for turn in 0..6 {
                let request = attempt("a");
                let fence = grant(&driver, &request).await.fence.get();
                assert!(fence > last && fence <= now(), "{lie}, turn {turn}: {fence} after {last}");
                last = fence;
                quiet(&driver).await;
                assert_eq!(driver.healthy_nodes(&request.token).unwrap(), ["n1", "n2"]);
                assert_eq!(nodes.held("a").await, 2, "the vote that did not count is given back at once");
                assert_eq!(driver.release(&hold(&request)).await.unwrap(), Released::Released);
                quiet(&driver).await;
            }
            for node in &nodes.0[1..] {
                let counter = counter(node).await;
                assert!(counter <= now(), "{lie}: the counter of an honest node is {counter}");
            }
            assert_eq!(nodes.held("a").await, 0, "the vote that did not count was given back");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_not_credible_makes_no_majority_with_another_and_is_named() {
    let nodes = Nodes::new(3);
    let liar = Liar::new(&nodes.0[0], |_| LIMIT);
    let driver = client(&nodes, &liar, |builder| builder);
    nodes.0[1].faults().outage();
    let error = refused(&driver, &attempt("a")).await;
    assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
    let text = error.to_string();
    assert!(text.contains("liar: ") && text.contains("9007199254740992") && text.contains("2 of 3"), "{text}");
    quiet(&driver).await;
    nodes.0[1].faults().heal();
    assert_eq!(nodes.held("a").await, 0);
    grant(&driver, &attempt("a")).await;
}

/// One node of three lies now and then, in votes and in raises; two clients take turns.
#[tokio::test(start_paused = true)]
async fn with_one_lying_node_of_three_no_fence_repeats_or_falls() {
    let far = now() + 2 * micros(CLOCKS_APART);
    for seed in 1..=20_u64 {
        let nodes = Nodes::new(3);
        let mut random = fastrand::Rng::with_seed(seed);
        let liar = Liar::new(&nodes.0[0], move |fence| {
            let lies = [LIMIT, LIMIT + 2, i64::MAX as u64, u64::MAX, far];
            if random.u8(..10) < 3 { random.choice(lies).unwrap() } else { fence }
        });
        let clients =
            [client(&nodes, &liar, |builder| builder), client(&nodes, &liar, |builder| builder.proposals(|| None))];
        let mut last = 0;
        for turn in 0..100 {
            let driver = &clients[turn % 2];
            let request = attempt("a");
            let fence = grant(driver, &request).await.fence.get();
            assert!(fence > last && fence <= now() + 100, "seed {seed}, turn {turn}: {fence} after {last}");
            last = fence;
            assert_eq!(driver.release(&hold(&request)).await.unwrap(), Released::Released);
            quiet(driver).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_in_memory_takes_no_number_that_is_not_credible() {
    let node = MemoryDriver::new();
    let far = FencingToken::new(now() + 2 * micros(CLOCKS_APART)).unwrap();
    let electorate = Electorate::of(["a"]);
    let ballot = Ballot::new(attempt("a"), electorate).with_proposal(Some(far));
    match node.vote(&ballot).await.unwrap() {
        Vote::Cast(Acquisition::Granted(grant)) => assert_eq!(grant.fence.get(), 1, "such a proposal counts as none"),
        vote => panic!("{vote:?}"),
    }
    let error = node.raise(&hold(&ballot.request), far).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert_eq!(node.inspect(&name("a")).await.unwrap().holder.unwrap().fence, FencingToken::new(1));
}

/// The counter of one server is beyond what its scripts can count, by whatever accident.
#[tokio::test]
async fn a_servers_counter_that_ran_away_is_taken_over_by_nobody() {
    let servers: Vec<_> = (0..3).map(|_| RedisServer::start(RedisOptions::new()).unwrap()).collect();
    for value in [LIMIT.to_string(), i64::MAX.to_string(), u64::MAX.to_string()] {
        servers[0].cli(&["SET", "{tenure:a}:f", &value]).unwrap();
        let mut builder = Redlock::builder().restarts(Restarts::Durable);
        for (i, server) in servers.iter().enumerate() {
            let config = RedisConfig::from_url(&server.unix_url()).unwrap();
            builder = builder.node(format!("n{i}"), RedisDriver::connect_with(config).await.unwrap().node());
        }
        let driver = builder.build().unwrap();
        let mut last = 0;
        for turn in 0..6 {
            let request = attempt("a");
            let fence = grant(&driver, &request).await.fence.get();
            assert!(fence > last && fence <= now(), "{value}, turn {turn}: {fence} after {last}");
            last = fence;
            assert_eq!(driver.release(&hold(&request)).await.unwrap(), Released::Released);
            quiet(&driver).await;
        }
        for server in &servers[1..] {
            let counter = server.cli(&["GET", "{tenure:a}:f"]).unwrap().int().unwrap();
            assert!(counter.unsigned_abs() <= now(), "the counter of another server is {counter}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn every_fence_is_beyond_the_floor_whatever_is_proposed() {
    let floor = FenceFloor::new(now() + micros(CLOCKS_APART) / 24).unwrap();
    for proposes in [true, false] {
        let nodes = Nodes::new(3);
        let (plain, _) = nodes.client();
        let (floored, _) = nodes.client_with(|builder| match proposes {
            true => builder.fence_floor(floor),
            false => builder.fence_floor(floor).proposals(|| None),
        });
        let mut last = FenceFloor::NONE.get();
        for (turn, driver) in [&plain, &floored, &floored, &plain, &floored].into_iter().enumerate() {
            let request = attempt("a");
            let fence = grant(driver, &request).await.fence;
            assert!(fence.get() > last && floor.admits(fence) == (turn > 0), "turn {turn}: {fence} after {last}");
            last = fence.get();
            assert_eq!(driver.release(&hold(&request)).await.unwrap(), Released::Released);
            quiet(driver).await;
        }
    }
}

/// Whoever sets the floor goes by a clock that is a day ahead of the nodes'.
#[tokio::test]
async fn nodes_that_do_not_believe_in_the_floor_make_no_quorum_and_say_so() {
    let servers: Vec<_> = (0..3).map(|_| RedisServer::start(RedisOptions::new().movable_clock()).unwrap()).collect();
    let floor = FenceFloor::new(now() + 23 * micros(CLOCKS_APART) / 24).unwrap();
    let mut builder = Redlock::builder().restarts(Restarts::Durable).fence_floor(floor);
    for (i, server) in servers.iter().enumerate() {
        let config = RedisConfig::from_url(&server.unix_url()).unwrap();
        builder = builder.node(format!("n{i}"), RedisDriver::connect_with(config).await.unwrap().node());
    }
    let driver = builder.build().unwrap();
    let behind = -2 * i64::try_from(micros(CLOCKS_APART) / 24).unwrap();
    servers[0].set_clock_offset(behind).unwrap();
    let request = attempt("a");
    assert!(floor.admits(grant(&driver, &request).await.fence), "the others are a majority");
    quiet(&driver).await;
    assert_eq!(driver.release(&hold(&request)).await.unwrap(), Released::Released);
    quiet(&driver).await;
    for server in &servers {
        server.set_clock_offset(behind).unwrap();
        server.cli(&["FLUSHALL"]).unwrap();
    }
    let error = refused(&driver, &attempt("a")).await;
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
    assert!(error.to_string().contains(&format!("fence_floor of {floor}")), "{error}");
    quiet(&driver).await;
    for server in &servers {
        assert_eq!(server.cli(&["EXISTS", "tenure:a"]).unwrap().int(), Some(0), "no vote is left");
    }
}
