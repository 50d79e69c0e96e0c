//! Random traces of a node: a real server and its scripts (`vote.lua`, `raise.lua` and what plain locks use) must give
//! the answers that a store in memory gives, and keep the same state. The model of the quorum rests on what both do.
//!
//! `TENURE_TRACE_STEPS` sets how many steps are played, `TENURE_SEED` the first seed; a failure names its seed, and
//! with `TENURE_TRACE_STEPS=1` that trace alone is played again.

#![allow(clippy::print_stdout, reason = "tells how much was compared")]

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::common::name;
use crate::simulation::rng::Rng;
use tenure_core::driver::{
    AcquireRequest, Acquisition, Ballot, Electorate, Handing, Hold, Queueing, QuorumNode, Renewed, Ttl, Vote,
};
use tenure_core::{FencingToken, Label, LockName, OwnerToken, Result};
use tenure_memory::MemoryDriver;
use tenure_redis::{RedisConfig, RedisDriver};
use tenure_testkit::{RedisOptions, RedisServer, RespClient};

const STEPS: u64 = 100_000;
const STEPS_OF_A_TRACE: u64 = 40;
const TOKENS: u64 = 4;
/// Each with a prefix, a connection and a store of its own.
const WORKERS: u64 = 8;
/// A trace that took longer is not judged: a waiter that was woken has two seconds to ask.
const IN_TIME: Duration = Duration::from_millis(1_500);
/// How far the two clocks may be apart when they are read.
const CLOCKS: Duration = Duration::from_secs(2);
/// A day and an hour in microseconds: further ahead of the clock than is credible.
const TOO_FAR: u64 = 25 * 3_600_000_000;

#[derive(Clone, Debug)]
enum Step {
    Vote {
        token: usize,
        ttl: u64,
        proposal: Option<u64>,
        presence: Option<u64>,
        electorate: usize,
        label: bool,
    },
    Raise {
        token: usize,
        fence: u64,
    },
    Renew {
        token: usize,
        ttl: u64,
    },
    Release {
        token: usize,
    },
    Abandon {
        token: usize,
    },
    Force {
        expected: Option<u64>,
    },
    /// The lease runs out.
    Expire,
    Enroll {
        electorate: usize,
    },
}

/// A node, with a way to let a lease run out.
struct Node {
    api: Arc<dyn QuorumNode>,
    end: Box<dyn FnMut(&LockName) + Send>,
}

/// What a step came to: in words, and the spans of time, which need not be quite the same.
type Said = (String, Vec<Option<Duration>>);

fn said(what: impl Debug) -> Said {
    (format!("{what:?}"), Vec::new())
}

fn said_or_refused<T: Debug>(answer: Result<T>) -> Said {
    said(answer.map_err(|error| error.kind()))
}

struct Trace {
    name: LockName,
    tokens: Vec<OwnerToken>,
    electorates: [Electorate; 2],
    /// The greatest fence so far: what is proposed and raised is near it.
    fence: u64,
    now: u64,
}

impl Trace {
    fn new(seed: u64) -> Self {
        let tokens = (0..TOKENS).map(|_| OwnerToken::random()).collect();
        let electorates = [Electorate::of(["a", "b", "c"]), Electorate::of(["a", "b", "d"])];
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        let now = u64::try_from(now.as_micros()).unwrap();
        Self { name: name(&format!("trace/{seed}")), tokens, electorates, fence: 0, now }
    }

    fn hold(&self, token: usize) -> Hold {
        Hold::new(self.name.clone(), self.tokens[token])
    }

    fn next(&self, rng: &mut Rng) -> Step {
        let token = rng.below(TOKENS) as usize;
        let ttl = 60_000 << token; // an acquisition asks for one and the same
        let near = |rng: &mut Rng| match rng.below(24) {
            0 => self.now + TOO_FAR,
            1 => (1 << 53) + rng.below(3),
            2 => self.now.max(self.fence) + rng.below(1_000),
            _ => (self.fence + rng.below(12)).saturating_sub(4),
        };
        match rng.below(20) {
            0..=7 => Step::Vote {
                token,
                ttl,
                proposal: (rng.below(3) > 0).then(|| near(rng)).filter(|proposal| *proposal > 0),
                presence: (rng.below(2) == 0).then(|| 60_000 + rng.below(2) * 60_000),
                electorate: usize::from(rng.below(40) == 0),
                label: rng.below(3) == 0,
            },
            8..=11 => Step::Raise { token, fence: near(rng).max(1) },
            12 | 13 => Step::Renew { token, ttl },
            14 | 15 => Step::Release { token },
            16 if rng.below(3) == 0 => Step::Abandon { token },
            17 => Step::Force { expected: (rng.below(2) == 0).then_some(self.fence.max(1)) },
            18 => Step::Expire,
            19 if rng.below(8) == 0 => Step::Enroll { electorate: rng.below(8) as usize / 7 },
            _ => Step::Raise { token, fence: self.fence.max(1) },
        }
    }

    fn request(&self, token: usize, ttl: u64, presence: Option<u64>, label: bool) -> AcquireRequest {
        let join = |ms| Queueing::Join { presence: Duration::from_millis(ms), accepts: Handing::Asked };
        AcquireRequest::new(self.name.clone(), self.tokens[token], Ttl::new(Duration::from_millis(ttl)).unwrap())
            .with_queue(presence.map_or(Queueing::None, join))
            .with_label(label.then(|| Label::new(format!("held by {token}; again")).unwrap()))
    }

    async fn play(&self, node: &mut Node, step: &Step) -> Said {
        match *step {
            Step::Vote { token, ttl, proposal, presence, electorate, label } => {
                let request = self.request(token, ttl, presence, label);
                let proposal = proposal.and_then(FencingToken::new);
                let electorate = self.electorates[electorate];
                said_to_vote(node.api.vote(&Ballot::new(request, electorate).with_proposal(proposal)).await)
            }
            Step::Raise { token, fence } => {
                said_or_refused(node.api.raise(&self.hold(token), FencingToken::new(fence).unwrap()).await)
            }
            Step::Renew { token, ttl } => {
                let ttl = Ttl::new(Duration::from_millis(ttl)).unwrap();
                match node.api.renew(ttl, &[self.hold(token)]).await.remove(0) {
                    Ok(Renewed::Extended { ttl }) => ("extended".to_owned(), vec![Some(ttl)]),
                    other => said_or_refused(other),
                }
            }
            Step::Release { token } => said_or_refused(node.api.release(&self.hold(token)).await),
            Step::Abandon { token } => said_or_refused(node.api.abandon(&self.hold(token)).await),
            Step::Force { expected } => {
                said_or_refused(node.api.force_release(&self.name, expected.and_then(FencingToken::new)).await)
            }
            Step::Expire => {
                (node.end)(&self.name);
                said(())
            }
            Step::Enroll { electorate } => said_or_refused(node.api.enroll(&self.electorates[electorate]).await),
        }
    }

    /// What an operator sees.
    async fn look(&self, node: &dyn QuorumNode) -> Said {
        let seen = node.inspect(&self.name).await.unwrap();
        let holder = seen.holder.as_ref().map(|holder| (holder.fence, holder.depth, holder.label.clone()));
        (format!("{holder:?} {}", seen.waiters), vec![seen.holder.and_then(|holder| holder.remaining)])
    }

    /// Plays one trace at both; returns what differs.
    async fn run(&mut self, rng: &mut Rng, nodes: &mut [Node; 2], tally: &AtomicU64) -> Option<String> {
        let apis = [Arc::clone(&nodes[0].api), Arc::clone(&nodes[1].api)];
        let mut steps: Vec<String> = Vec::new();
        for _ in 0..STEPS_OF_A_TRACE {
            let step = self.next(rng);
            let (one, other) = (self.play(&mut nodes[0], &step).await, self.play(&mut nodes[1], &step).await);
            self.note(&one.0);
            let (seen, seen_there) = (self.look(&*apis[0]).await, self.look(&*apis[1]).await);
            tally.fetch_add(1, Ordering::Relaxed);
            steps.push(format!("{step:?}: {one:?} / {other:?}; then {seen:?} / {seen_there:?}"));
            if !alike(&one, &other) || !alike(&seen, &seen_there) {
                return Some(steps.join("\n"));
            }
        }
        None
    }

    /// The fence in an answer, if there is one.
    fn note(&mut self, said: &str) {
        let number = said.split("fence: ").nth(1).and_then(|rest| rest.split(|c: char| !c.is_ascii_digit()).next());
        if let Some(fence) = number.and_then(|digits| digits.parse().ok()) {
            self.fence = fence;
        }
    }
}

fn said_to_vote(vote: Result<Vote>) -> Said {
    match vote {
        Ok(Vote::Cast(Acquisition::Granted(grant))) => {
            // How many fences it carries is of no use to a quorum.
            let what = format!("granted, fence: {}, {:?}, {}", grant.fence, grant.begun, grant.depth);
            (what, vec![Some(grant.ttl)])
        }
        Ok(Vote::Cast(Acquisition::Busy(busy))) => {
            // When to look again is a hint, and drivers differ for who is not the first.
            let recheck = busy.recheck_after.filter(|_| busy.position.unwrap_or_default() == 0);
            (format!("busy {:?}", busy.position), vec![recheck])
        }
        other => said_or_refused(other),
    }
}

fn alike(one: &Said, other: &Said) -> bool {
    let near = |pair: (&Option<Duration>, &Option<Duration>)| match pair {
        (Some(one), Some(other)) => one.abs_diff(*other) < CLOCKS,
        (None, None) => true,
        _ => false,
    };
    one.0 == other.0 && one.1.len() == other.1.len() && one.1.iter().zip(&other.1).all(near)
}

async fn nodes(server: &RedisServer, worker: u64) -> [Node; 2] {
    let url = format!("{}?prefix=t{worker}&response_timeout_ms=20000", server.unix_url());
    let server_node = RedisDriver::connect_with(RedisConfig::from_url(&url).unwrap()).await.unwrap().node();
    let mut direct: RespClient = server.connect().unwrap();
    let expire = move |name: &LockName| {
        let key = format!("t{worker}:{name}");
        direct.call(&["DEL", key.as_str()]).unwrap();
    };
    let store = MemoryDriver::new();
    let in_memory = Arc::new(store.clone()) as Arc<dyn QuorumNode>;
    let forget = move |name: &LockName| {
        store.faults().expire(name.as_bytes()).unwrap();
    };
    [Node { api: server_node, end: Box::new(expire) }, Node { api: in_memory, end: Box::new(forget) }]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_and_memory_vote_and_raise_alike_on_random_traces() {
    let number = |variable: &str, default: u64| {
        std::env::var(variable).ok().map_or(default, |text| text.parse().expect("a number"))
    };
    let (steps, first) = (number("TENURE_TRACE_STEPS", STEPS), number("TENURE_SEED", 1));
    let server = RedisServer::start(RedisOptions::new()).unwrap();
    let (tally, slow, seeds) =
        (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default(), Arc::new(AtomicU64::new(first)));
    let since = Instant::now();
    let mut workers = tokio::task::JoinSet::new();
    for worker in 0..WORKERS.min(steps) {
        let mut nodes = nodes(&server, worker).await;
        let (tally, slow, seeds) = (Arc::clone(&tally), Arc::clone(&slow), Arc::clone(&seeds));
        workers.spawn(async move {
            while tally.load(Ordering::Relaxed) < steps {
                let seed = seeds.fetch_add(1, Ordering::Relaxed);
                let (mut trace, began) = (Trace::new(seed), Instant::now());
                for api in [Arc::clone(&nodes[0].api), Arc::clone(&nodes[1].api)] {
                    api.enroll(&trace.electorates[0]).await.unwrap();
                }
                let differs = trace.run(&mut Rng::new(seed), &mut nodes, &tally).await;
                if began.elapsed() > IN_TIME {
                    slow.fetch_add(1, Ordering::Relaxed);
                } else if let Some(differs) = differs {
                    panic!("TENURE_SEED={seed}, the server / memory:\n{differs}");
                }
            }
        });
    }
    while let Some(ended) = workers.join_next().await {
        ended.unwrap();
    }
    let (steps, slow) = (tally.load(Ordering::Relaxed), slow.load(Ordering::Relaxed));
    println!("{steps} steps alike in {:.1} s; {slow} traces were too slow to be judged", since.elapsed().as_secs_f64());
    assert!(slow * STEPS_OF_A_TRACE * 10 < steps, "too few traces were judged: {slow} were too slow");
}
