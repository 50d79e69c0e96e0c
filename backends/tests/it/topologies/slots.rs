//! Clusters: slots that move, and names that have braces.

use std::time::Duration;

use tenure_core::driver::Exclusion;
use tenure_testkit::{RedisCluster, RedisOptions, RedisServer, eventually};

use crate::topologies::support::{LIBRARIES, NEVER, client, waiter, within};

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
#[ignore = "starts clusters and sentinels; cargo xtask test"]
async fn a_slot_moves_while_its_lock_is_held_and_waited_for() {
    let cluster = RedisCluster::start(&RedisOptions::new(), NEVER).unwrap();
    for library in LIBRARIES {
        let (holder, other) = (client(library, &cluster.url()).await, client(library, &cluster.url()).await);
        let name = format!("moving-{library}");
        let key = format!("tenure:{name}");
        let guard = holder.lock(&name).ttl(Duration::from_secs(3)).acquire().await.unwrap();
        let fence = guard.fence();
        let waiting = waiter(&other, &name).await;
        let rest = holder.lock("elsewhere");
        reshard(&cluster, key.as_bytes(), async || {
            assert!(rest.acquire().await.is_ok(), "other slots are served meanwhile");
        })
        .await;
        tokio::time::sleep(Duration::from_secs(4)).await; // longer than the lease: it must have been renewed
        guard.check().unwrap();
        assert!(!waiting.is_finished());
        within("the release", guard.release()).await.unwrap();
        let next = within("the hand-over", waiting).await.unwrap();
        assert!(next.fence() > fence);
        next.release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "starts clusters and sentinels; cargo xtask test"]
async fn a_name_with_braces_keeps_to_one_slot() {
    let cluster = RedisCluster::start(&RedisOptions::new(), NEVER).unwrap();
    for library in LIBRARIES {
        let client = client(library, &cluster.url()).await;
        assert_eq!(client.capabilities().exclusion, Exclusion::LossyFailover);
        for name in ["{a}b", "a{b", "}{", "{}", "%7B", "ordinary", "\u{e9}"] {
            let guard = client.lock(name).acquire().await.unwrap();
            let waiting = waiter(&client, name).await;
            guard.release().await.unwrap();
            within("the hand-over", waiting).await.unwrap().release().await.unwrap();
        }
        let names: Vec<String> = (0..60).map(|number| format!("many-{number}")).collect();
        let all = client.lock_all(&names).acquire().await.unwrap();
        all.check().unwrap();
        all.release().await.unwrap();
    }
}

/// The node that keeps the lock finds no subscriber on the first waiter's channel, and the others pass the message on.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "starts clusters and sentinels; cargo xtask test"]
async fn a_waiter_that_its_node_cannot_reach_is_not_granted_beside_the_next() {
    let cluster = RedisCluster::start(&RedisOptions::new(), NEVER).unwrap();
    for library in LIBRARIES {
        let (holder, next) = (client(library, &cluster.url()).await, client(library, &cluster.url()).await);
        let first = client(library, &format!("{}/?name=first{}", cluster.url(), library.len())).await;
        for round in 0..20 {
            let name = format!("unheard/{library}{round}");
            let node = &cluster.nodes()[cluster.owner(format!("tenure:{name}").as_bytes()).unwrap()];
            let guard = holder.lock(&name).acquire().await.unwrap();
            let mut waiting = tokio::task::JoinSet::new();
            for (place, client) in [&first, &next].into_iter().enumerate() {
                let lock = client.lock(&name);
                waiting.spawn(async move { lock.acquire().await.unwrap() });
                within("a place in the queue", async {
                    while holder.lock(&name).inspect().await.unwrap().waiters as usize <= place {
                        tokio::time::sleep(Duration::from_millis(2)).await;
                    }
                })
                .await;
            }
            cut(node, &format!("name=first{} ", library.len()));
            guard.release().await.unwrap();
            let one = within("a grant", waiting.join_next()).await.unwrap().unwrap();
            let both = tokio::time::timeout(Duration::from_millis(100), waiting.join_next()).await;
            assert!(both.is_err(), "round {round}: both hold the lock");
            one.release().await.unwrap();
            within("the other's grant", waiting.join_next()).await.unwrap().unwrap().release().await.unwrap();
        }
    }
}

/// Ends the connections whose description contains the text.
fn cut(node: &RedisServer, text: &str) {
    let list = node.cli(&["CLIENT", "LIST"]).unwrap().text();
    for line in list.lines().filter(|line| line.contains(text)) {
        let id = line.split([' ', '=']).nth(1).unwrap();
        node.cli(&["CLIENT", "KILL", "ID", id]).unwrap();
    }
}
