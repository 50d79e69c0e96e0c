//! Servers that take each other's place while locks are held and waited for, through both client libraries.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tenure_core::driver::{Exclusion, Released};
use tenure_core::{Client, FencingToken, LockGuard};
use tenure_testkit::{RedisCluster, RedisOptions, RedisSentinels, RedisServer, eventually};

/// Longer than anything takes that does happen.
const LONG: Duration = Duration::from_secs(40);
/// How long a server is silent before its successor takes over.
const SILENCE: Duration = Duration::from_millis(1500);
/// Quick enough to see renewals, and longer than a failover.
const TTL: Duration = Duration::from_secs(10);

const LIBRARIES: [&str; 2] = ["", "fred+"];

async fn client(library: &str, url: &str) -> Client {
    let backend = tenure_backends::connect(&format!("{library}{url}")).await.unwrap();
    Client::builder(backend).ttl(TTL).build().unwrap()
}

async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LONG, future).await.unwrap_or_else(|_| panic!("{what}: not within {LONG:?}"))
}

/// Tries until an outage is over.
async fn eventually_granted(client: &Client, name: &str) -> LockGuard {
    within("a grant", async {
        loop {
            match client.lock(name).unwrap().acquire().await {
                Ok(guard) => return guard,
                Err(error) => assert!(error.is_transient(), "{error}"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
}

/// Starts a waiter, and returns when it is in the queue.
async fn waiter(client: &Client, name: &str) -> tokio::task::JoinHandle<LockGuard> {
    let lock = client.lock(name).unwrap();
    let waiting = tokio::spawn({
        let lock = lock.clone();
        async move { lock.acquire().await.unwrap() }
    });
    within("a place in the queue", async {
        while lock.inspect().await.unwrap().waiters == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    waiting
}

/// Moves a slot, with everything in it, as a resharding does; calls `half_way` when some keys have moved.
async fn reshard(cluster: &RedisCluster, key: &[u8], half_way: impl AsyncFnOnce()) {
    let from = cluster.owner(key).unwrap();
    let to = (from + 1) % 3;
    let (source, target) = (&cluster.nodes()[from], &cluster.nodes()[to]);
    let slot = cluster.slot(key).unwrap().to_string();
    let id = |node: &RedisServer| node.cli(&["CLUSTER", "MYID"]).unwrap().text();
    let (source_id, target_id) = (id(source), id(target));
    target.cli(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &source_id]).unwrap();
    source.cli(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target_id]).unwrap();
    let port = target.port().to_string();
    let move_one = || {
        let keys = source.cli(&["CLUSTER", "GETKEYSINSLOT", &slot, "1"]).unwrap();
        let key = keys.items().first()?.text();
        source.cli(&["MIGRATE", "127.0.0.1", &port, &key, "0", "5000"]).unwrap();
        Some(())
    };
    move_one();
    half_way().await;
    while move_one().is_some() {}
    for node in [target, source].into_iter().chain(cluster.nodes()) {
        // Replicas refuse, and hear of it from the others.
        let _ = node.cli(&["CLUSTER", "SETSLOT", &slot, "NODE", &target_id]);
    }
    eventually("the slot to have moved", || (cluster.owner(key).ok()? == to).then_some(())).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "starts clusters and sentinels; cargo xtask test --full"]
async fn a_slot_moves_while_its_lock_is_held_and_waited_for() {
    let cluster = RedisCluster::start(&RedisOptions::new(), Duration::from_secs(60)).unwrap();
    for library in LIBRARIES {
        let (holder, other) = (client(library, &cluster.url()).await, client(library, &cluster.url()).await);
        let name = format!("moving-{library}");
        let key = format!("tenure:{name}");
        let guard = holder.lock(&name).unwrap().ttl(Duration::from_secs(3)).acquire().await.unwrap();
        let fence = guard.fence();
        let waiting = waiter(&other, &name).await;
        let rest = holder.lock("elsewhere").unwrap();
        reshard(&cluster, key.as_bytes(), async || {
            assert!(rest.acquire().await.is_ok(), "other slots are served meanwhile");
        })
        .await;
        tokio::time::sleep(Duration::from_secs(4)).await; // longer than the lease: it must have been renewed
        guard.check().unwrap();
        assert!(!waiting.is_finished());
        assert_eq!(within("the release", guard.release()).await.unwrap(), Released::Released);
        let next = within("the hand-over", waiting).await.unwrap();
        assert!(next.fence() > fence);
        next.release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "starts clusters and sentinels; cargo xtask test --full"]
async fn a_name_with_braces_keeps_to_one_slot() {
    let cluster = RedisCluster::start(&RedisOptions::new(), Duration::from_secs(60)).unwrap();
    for library in LIBRARIES {
        let client = client(library, &cluster.url()).await;
        assert_eq!(client.capabilities().exclusion, Exclusion::LossyFailover);
        for name in ["{a}b", "a{b", "}{", "{}", "%7B", "ordinary", "\u{e9}"] {
            let guard = client.lock(name).unwrap().acquire().await.unwrap();
            let waiting = waiter(&client, name).await;
            guard.release().await.unwrap();
            within("the hand-over", waiting).await.unwrap().release().await.unwrap();
        }
        let names: Vec<String> = (0..60).map(|number| format!("many-{number}")).collect();
        let all = client.lock_all(&names).unwrap().acquire().await.unwrap();
        all.check().unwrap();
        all.release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "starts clusters and sentinels; cargo xtask test --full"]
async fn sentinels_are_followed_within_a_second_of_their_announcement() {
    for library in LIBRARIES {
        let group = RedisSentinels::start(&RedisOptions::new(), Duration::from_secs(60)).unwrap();
        let client = client(library, &group.url()).await;
        assert_eq!(client.capabilities().exclusion, Exclusion::LossyFailover);
        let guard = client.lock("held").unwrap().ttl(TTL).acquire().await.unwrap();
        let before = group.primary_port().unwrap();
        group.fail_over().unwrap();
        eventually("another primary", || (group.primary_port().ok()? != before).then_some(())).unwrap();
        let (announced, successor) = (Instant::now(), &group.servers()[group.primary().unwrap()]);
        // The key of a fresh name tells which server was asked.
        let mut number = 0;
        let followed = loop {
            number += 1;
            let name = format!("fresh-{number}");
            let granted = client.lock(&name).unwrap().ttl(LONG).try_acquire().await.is_ok_and(|guard| guard.is_some());
            let seen =
                || successor.cli(&["EXISTS", &format!("tenure:{name}")]).is_ok_and(|reply| reply.int() == Some(1));
            if granted && seen() {
                break announced.elapsed();
            }
            assert!(announced.elapsed() < LONG, "never followed");
        };
        assert!(followed < Duration::from_secs(2), "{library}: followed after {followed:?}"); // twice that of an idle machine
        tokio::time::sleep(TTL / 2).await;
        guard.check().unwrap(); // the hold had been replicated, and is renewed at the new primary
        assert_eq!(guard.release().await.unwrap(), Released::Released);
    }
}

/// The servers of a topology in which one of two takes over from the other.
enum Pair {
    Cluster(RedisCluster),
    Sentinels(RedisSentinels),
}

impl Pair {
    fn all() -> [fn() -> Self; 2] {
        [
            || Self::Cluster(RedisCluster::start(&RedisOptions::new(), SILENCE).unwrap()),
            || Self::Sentinels(RedisSentinels::start(&RedisOptions::new(), SILENCE).unwrap()),
        ]
    }

    fn url(&self) -> String {
        match self {
            Self::Cluster(cluster) => cluster.url(),
            Self::Sentinels(group) => group.url(),
        }
    }

    /// The primary of a key and its replica.
    fn places(&self, key: &str) -> (usize, usize) {
        match self {
            Self::Cluster(cluster) => {
                let at = cluster.owner(key.as_bytes()).unwrap();
                (at, (at + 3) % 6)
            }
            Self::Sentinels(group) => {
                let at = group.primary().unwrap();
                (at, 1 - at)
            }
        }
    }

    fn server(&mut self, at: usize) -> &mut RedisServer {
        match self {
            Self::Cluster(cluster) => &mut cluster.nodes_mut()[at],
            Self::Sentinels(group) => &mut group.servers_mut()[at],
        }
    }
}

/// The negative control: what `LossyFailover` says is true. The lock is granted twice; its fences tell the two apart.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "starts clusters and sentinels; cargo xtask test --full"]
async fn a_failover_that_loses_a_lock_breaks_exclusion_and_not_the_order_of_fences() {
    for start in Pair::all() {
        for library in LIBRARIES {
            let mut pair = start();
            let (first, second) = (client(library, &pair.url()).await, client(library, &pair.url()).await);
            let (primary, replica) = pair.places("tenure:lost");
            pair.server(replica).pause().unwrap();
            // What was on its way would still arrive after the pause.
            pair.server(primary).cli(&["CLIENT", "KILL", "TYPE", "replica"]).unwrap();
            let guard = first.lock("lost").unwrap().ttl(LONG).acquire().await.unwrap();
            pair.server(primary).kill().unwrap();
            pair.server(replica).resume().unwrap();
            let other = eventually_granted(&second, "lost").await;
            assert!(other.fence() > guard.fence());
            assert!(other.is_held());
            // The first one is told as soon as it asks: by a renewal, or by its release.
            assert_eq!(within("the release", guard.release()).await.unwrap(), Released::NotHeld);
            other.check().unwrap();
        }
    }
}

#[derive(Default)]
struct Ledger {
    fences: Vec<FencingToken>,
    lost: usize,
}

/// Takes and gives back the lock until told to stop; notes every fence while it holds it.
async fn contend(client: Client, ledger: Arc<Mutex<Ledger>>, until: Instant) {
    while Instant::now() < until {
        let guard = match client.lock("contended").unwrap().acquire_within(LONG).await {
            Ok(guard) => guard,
            Err(error) => {
                assert!(error.is_transient(), "{error}");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        ledger.lock().unwrap().fences.push(guard.fence());
        tokio::time::sleep(Duration::from_millis(5)).await;
        match guard.release().await {
            Ok(Released::Released) => {}
            Ok(Released::NotHeld) | Err(_) => ledger.lock().unwrap().lost += 1,
        }
    }
}

/// `TENURE_FAILOVER_SECS` makes it longer than the default 12.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "starts clusters and sentinels; cargo xtask test --full"]
async fn sixteen_contenders_outlive_a_failover() {
    let seconds = std::env::var("TENURE_FAILOVER_SECS").ok().and_then(|text| text.parse().ok()).unwrap_or(12);
    for start in Pair::all() {
        let mut pair = start();
        let ledger = Arc::<Mutex<Ledger>>::default();
        let until = Instant::now() + Duration::from_secs(seconds);
        let mut contenders = tokio::task::JoinSet::new();
        for number in 0..16 {
            let client = client(LIBRARIES[number % 2], &pair.url()).await;
            contenders.spawn(contend(client, Arc::clone(&ledger), until));
        }
        tokio::time::sleep(Duration::from_secs(seconds / 4)).await;
        let (primary, _) = pair.places("tenure:contended");
        let before = ledger.lock().unwrap().fences.len();
        pair.server(primary).kill().unwrap();
        within("every contender ends", async {
            while let Some(ended) = contenders.join_next().await {
                ended.unwrap();
            }
        })
        .await;
        let ledger = ledger.lock().unwrap();
        assert!(before > 0 && ledger.fences.len() > before + 16, "{before}, then {}", ledger.fences.len());
        for pair in ledger.fences.windows(2) {
            assert!(pair[0] < pair[1], "fences fell from {} to {}", pair[0], pair[1]);
        }
        assert!(ledger.lost <= 16, "only holds of the moment of the failover are lost: {}", ledger.lost);
    }
}
