//! The driver over real servers: dead, silent and restarted nodes, and the trace that breaks the tempting write-back.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::{attempt, busy, grant, hold, name, quiet, refused};
use tenure_core::driver::{
    Acquisition, Ballot, Checkup, Concern, DistributedLock, Electorate, Hold, QuorumNode, Raised, Released, Renewed,
    Topic, Vote,
};
use tenure_core::{Client, ErrorKind, FencingToken, OwnerToken};
use tenure_redis::{RedisConfig, RedisDriver};
use tenure_redlock::{Redlock, RedlockBuilder, Restarts};
use tenure_testkit::{RedisOptions, RedisServer};

fn servers(n: usize) -> Vec<RedisServer> {
    (0..n).map(|_| RedisServer::start(RedisOptions::new()).unwrap()).collect()
}

async fn nodes(servers: &[RedisServer]) -> Vec<Arc<dyn QuorumNode>> {
    let mut nodes = Vec::new();
    for server in servers {
        let config = RedisConfig::from_url(&server.unix_url()).unwrap();
        nodes.push(RedisDriver::connect_with(config).await.unwrap().node());
    }
    nodes
}

async fn driver_with(servers: &[RedisServer], settings: impl FnOnce(RedlockBuilder) -> RedlockBuilder) -> Redlock {
    let named = nodes(servers).await.into_iter().enumerate();
    let builder = named.fold(Redlock::builder(), |builder, (i, node)| builder.node(format!("n{i}"), node));
    settings(builder).build().unwrap()
}

/// The servers of a test have just started, and nobody has used them before.
async fn driver(servers: &[RedisServer]) -> Redlock {
    driver_with(servers, |builder| builder.restarts(Restarts::Durable)).await
}

#[tokio::test]
async fn locks_of_two_clients_exclude_each_other_and_fences_grow() {
    for n in [3, 5] {
        let servers = servers(n);
        let (one, other) = (driver(&servers).await, driver(&servers).await);
        let mut last = 0;
        for turn in 0..20 {
            let (holder, refused) = if turn % 2 == 0 { (&one, &other) } else { (&other, &one) };
            let request = attempt("orders/{42}");
            let fence = grant(holder, &request).await.fence.get();
            assert!(fence > last);
            last = fence;
            busy(refused, &attempt("orders/{42}")).await;
            assert!(matches!(holder.renew(request.ttl, &[hold(&request)]).await[0], Ok(Renewed::Extended { .. })));
            let seen = refused.inspect(&request.name).await.unwrap().holder.unwrap();
            assert_eq!(seen.fence.map(FencingToken::get), Some(fence));
            assert_eq!(holder.release(&hold(&request)).await.unwrap(), Released::Released);
            quiet(holder).await;
        }
    }
}

#[tokio::test]
async fn a_dead_and_a_silent_minority_cost_nothing_and_leave_nothing() {
    let mut servers = servers(5);
    let driver = driver(&servers).await;
    servers[0].kill().unwrap();
    servers[1].pause().unwrap();
    let start = Instant::now();
    let request = attempt("a");
    grant(&driver, &request).await;
    assert!(start.elapsed() < Duration::from_millis(200), "nobody waited for the silent node: {:?}", start.elapsed());
    busy(&driver, &attempt("a")).await;
    assert_eq!(driver.release(&hold(&request)).await.unwrap(), Released::Released);
    servers[1].resume().unwrap();
    quiet_or(&driver, Duration::from_secs(20)).await;
    for server in &servers[1..] {
        let keys = server.cli(&["EXISTS", "tenure:a"]).unwrap();
        assert_eq!(format!("{keys:?}"), "Int(0)", "nothing is held anywhere");
    }
    servers[2].kill().unwrap();
    servers[3].kill().unwrap();
    let error = refused(&driver, &attempt("b")).await;
    assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Indeterminate), "{error}");
    assert!(error.to_string().contains("n2: "), "{error}");
}

/// Waits for everything in the background except what chases the dead server.
async fn quiet_or(driver: &Redlock, limit: Duration) {
    let end = Instant::now() + limit;
    while driver.background_work() > 1 && Instant::now() < end {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_server_that_restarted_empty_does_not_vote_until_what_it_forgot_has_ended() {
    let mut servers = servers(3);
    let max_ttl = Duration::from_secs(6);
    let patient = driver_with(&servers, |builder| builder.max_ttl(max_ttl)).await;
    let request = || {
        let request = attempt("a");
        request.with_ttl(tenure_core::driver::Ttl::new(max_ttl).unwrap())
    };
    let started = Instant::now();
    let (first, believed_until) = loop {
        let (asked, end) = (request(), Instant::now() + max_ttl.mul_f64(0.98));
        match patient.acquire(&asked).await {
            Ok(Acquisition::Granted(_)) => break (asked, end),
            Ok(Acquisition::Busy(_)) => {} // the vote of the round before is on its way back
            Err(error) => assert!(error.to_string().contains("votes again in"), "{error}"),
        }
        assert!(started.elapsed() < Duration::from_secs(40), "young servers come of age");
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    quiet(&patient).await;
    for server in &mut servers[..2] {
        server.kill().unwrap();
        server.restart().unwrap();
    }
    // Two of three have forgotten the lease; without the wait, somebody else would get it now.
    let mut refusals = 0;
    while Instant::now() < believed_until {
        let answer = patient.acquire(&request()).await;
        if Instant::now() >= believed_until {
            break;
        }
        let granted = matches!(answer, Ok(Acquisition::Granted(_)));
        assert!(!granted, "granted on nodes that have just forgotten a lease: {answer:?}");
        refusals += 1;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(refusals > 0, "the servers took longer to restart than the lease to end");
    let _ = patient.release(&hold(&first)).await;
}

#[tokio::test]
async fn waiters_are_woken_across_processes_worth_of_clients() {
    let servers = servers(3);
    let (one, other) = (Client::new(driver(&servers).await), Client::new(driver(&servers).await));
    let held = one.lock("a").acquire().await.unwrap();
    let waiting = tokio::spawn(async move {
        let guard = other.lock("a").acquire_within(Duration::from_secs(20)).await.unwrap();
        (guard.fence(), Instant::now())
    });
    tokio::time::sleep(Duration::from_millis(300)).await;
    let (fence, released) = (held.fence(), Instant::now());
    held.release().await.unwrap();
    let (next, at) = waiting.await.unwrap();
    assert!(next > fence);
    assert!(at - released < Duration::from_secs(3), "sooner than any fallback: {:?}", at - released);
}

struct Replay {
    nodes: Vec<Arc<dyn QuorumNode>>,
}

impl Replay {
    async fn vote(&self, node: usize, token: OwnerToken) -> u64 {
        let request = attempt("k").with_token(token);
        let electorate = Electorate::of(["a", "b", "c"]);
        let ballot = Ballot::new(request, electorate);
        match self.nodes[node].vote(&ballot).await.unwrap() {
            Vote::Cast(Acquisition::Granted(grant)) => grant.fence.get(),
            vote => panic!("{vote:?}"),
        }
    }

    async fn raise(&self, node: usize, token: OwnerToken, fence: u64) -> Raised {
        let hold = Hold::new(name("k"), token);
        self.nodes[node].raise(&hold, FencingToken::new(fence).unwrap()).await.unwrap()
    }
}

/// The shortest trace that breaks the unconditional write-back, frame by frame: counters 0, 0, 1; the first client
/// gets A and C, the second gets B, and the first one's write-back arrives at B.
#[tokio::test]
async fn the_trace_that_breaks_the_unconditional_write_back_does_not_break_the_conditional_raise() {
    for unconditional in [true, false] {
        let servers = servers(3);
        let replay = Replay { nodes: nodes(&servers).await };
        servers[2].cli(&["SET", "{tenure:k}:f", "1"]).unwrap();
        let (first, second) = (OwnerToken::random(), OwnerToken::random());
        assert_eq!((replay.vote(0, first).await, replay.vote(2, first).await), (1, 2));
        assert_eq!(replay.raise(2, first, 2).await, Raised::Acknowledged);
        assert_eq!(replay.vote(1, second).await, 1);
        if unconditional {
            servers[1].cli(&["SET", "{tenure:k}:f", "2"]).unwrap(); // "acknowledged": the first has fence 2
        } else {
            assert_eq!(replay.raise(1, first, 2).await, Raised::NotOwner);
            assert_eq!(replay.raise(0, first, 2).await, Raised::Acknowledged); // the first has fence 2
        }
        let released = replay.nodes[0].release(&Hold::new(name("k"), first)).await.unwrap();
        assert_eq!(released, Released::Released);
        let fence = replay.vote(0, second).await;
        let agreed = (replay.raise(0, second, fence).await, replay.raise(1, second, fence).await);
        assert_eq!(agreed, (Raised::Acknowledged, Raised::Acknowledged));
        assert_eq!(fence, if unconditional { 2 } else { 3 }, "the second's fence; the first's was 2");
    }
}

#[tokio::test]
async fn a_raise_beyond_which_the_counter_is_tells_the_counter() {
    let servers = servers(1);
    let replay = Replay { nodes: nodes(&servers).await };
    let token = OwnerToken::random();
    replay.vote(0, token).await;
    servers[0].cli(&["SET", "{tenure:k}:f", "9"]).unwrap();
    assert_eq!(replay.raise(0, token, 4).await, Raised::Beyond { counter: FencingToken::new(9).unwrap() });
    assert_eq!(replay.raise(0, token, 9).await, Raised::Acknowledged);
    let holder = replay.nodes[0].inspect(&name("k")).await.unwrap().holder.unwrap();
    assert_eq!(holder.fence, FencingToken::new(9));
    assert_eq!(replay.raise(0, OwnerToken::random(), 20).await, Raised::NotOwner);
}

/// Each name costs a node one key, for as long as clocks may be apart; voted for or raised.
#[tokio::test]
async fn a_counter_outlives_its_last_grant_by_a_day_or_as_the_url_says() {
    for (setting, life) in [("", 86_400_000), ("&counter_life_ms=3600000", 3_600_000)] {
        let servers = servers(3);
        let hosts: Vec<_> = servers.iter().map(|server| format!("127.0.0.1:{}", server.port())).collect();
        let url = format!("redis://{}?connect_timeout_ms=5000{setting}", hosts.join(","));
        let nodes = RedisDriver::connect_nodes(&RedisConfig::nodes_from_url(&url).unwrap()).await.unwrap();
        let builder = Redlock::builder().nodes(nodes).restarts(Restarts::Durable);
        let driver = builder.node_timeout(Duration::from_secs(2)).proposals(|| None).build().unwrap();
        servers[0].cli(&["SET", "{tenure:a}:f", "7"]).unwrap(); // the others are raised
        servers[1].cli(&["SET", "{tenure:a}:f", "3"]).unwrap();
        let request = attempt("a");
        grant(&driver, &request).await;
        driver.release(&hold(&request)).await.unwrap();
        quiet(&driver).await;
        for server in &servers {
            let left = server.cli(&["PTTL", "{tenure:a}:f"]).unwrap().int().unwrap();
            assert!((life - 60_000..=life).contains(&left), "{left} ms of {life}");
        }
    }
}

#[tokio::test]
async fn the_doctor_asks_every_node_and_names_it() {
    let mut servers = servers(3);
    let client = Client::new(driver(&servers).await);
    let about = |checkup: &Checkup, node: &str, topic| {
        checkup.findings().iter().find(|one| one.server.starts_with(node) && one.topic == topic).cloned()
    };
    let checkup = client.doctor().await.unwrap();
    for node in ["n0", "n1", "n2"] {
        assert_eq!(about(&checkup, node, Topic::Persistence).unwrap().concern, Concern::Note, "{checkup}");
    }
    for (dead, concern) in [(0, Concern::Note), (2, Concern::Danger)] {
        servers[dead].kill().unwrap();
        let checkup = client.doctor().await.unwrap();
        assert_eq!(about(&checkup, &format!("n{dead}"), Topic::Reach).unwrap().concern, concern, "{checkup}");
        assert!(about(&checkup, "n1", Topic::Clock).is_some(), "{checkup}");
    }
}

/// A server tells its age in whole seconds, and begins to count in the middle of one.
#[tokio::test]
async fn no_server_is_taken_for_older_than_it_is() {
    let second = Duration::from_secs(1);
    for _ in 0..3 {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        let to_late_in_a_second = (1_600 - u64::from(since.subsec_millis())) % 1_000;
        tokio::time::sleep(Duration::from_millis(to_late_in_a_second)).await;
        let born = Instant::now();
        let servers = servers(1);
        let node = nodes(&servers).await.remove(0);
        loop {
            let electorate = Electorate::of(["a"]);
            let vote = node.vote(&Ballot::new(attempt("k"), electorate).with_seniority(second)).await;
            if born.elapsed() >= second {
                break;
            }
            assert_eq!(vote.unwrap_err().kind(), ErrorKind::Unavailable, "{:?} after its start", born.elapsed());
        }
    }
}

/// A majority has to answer.
#[tokio::test]
async fn a_ping_asks_every_node_and_a_minority_may_be_away() {
    let mut servers = servers(3);
    let client = Client::new(driver(&servers).await);
    client.ping().await.unwrap();
    servers[0].kill().unwrap();
    client.ping().await.unwrap();
    servers[2].kill().unwrap();
    assert_eq!(client.ping().await.unwrap_err().kind(), ErrorKind::Unavailable);
    servers[2].restart().unwrap();
    let began = Instant::now();
    while client.ping().await.is_err() {
        assert!(began.elapsed() < Duration::from_secs(20), "a majority is back");
    }
    let asked = |server: &RedisServer| {
        let stats = server.cli(&["INFO", "commandstats"]).unwrap().text();
        stats.lines().any(|line| line.starts_with("cmdstat_evalsha:"))
    };
    assert!(asked(&servers[1]) && asked(&servers[2]));
    assert_eq!(servers[1].cli(&["DBSIZE"]).unwrap().int(), Some(0), "it changes nothing");
}
