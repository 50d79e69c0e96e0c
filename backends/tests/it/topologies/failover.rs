//! Failovers: how soon they are followed, and what becomes of holds and waiters.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tenure_core::driver::Exclusion;
use tenure_core::{Client, Error, ErrorKind, FencingToken};
use tenure_testkit::{RedisOptions, RedisSentinels};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::topologies::support::{LIBRARIES, LONG, NEVER, Pair, TTL, client, eventually_granted, within};

/// A number from the environment.
fn setting(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// `TENURE_FAILOVERS` makes it more than one for each library.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "starts clusters and sentinels; cargo xtask test"]
async fn sentinels_are_followed_when_they_announce_another_primary() {
    for library in LIBRARIES {
        let group = RedisSentinels::start(&RedisOptions::new(), NEVER).unwrap();
        let client = client(library, &group.url()).await;
        assert_eq!(client.capabilities().exclusion, Exclusion::LossyFailover);
        let guard = client.lock("held").ttl(TTL).acquire().await.unwrap();
        let mut all = Vec::new();
        for round in 0..setting("TENURE_FAILOVERS", 1) {
            all.push(followed(&group, &client, round).await);
            // A plain client that only looks now and then takes ten seconds.
            assert!(all.iter().all(|took| *took < Duration::from_secs(5)), "{library}: {all:?}");
            group.settled().unwrap();
        }
        println!("{library}redis+sentinel: followed after {all:?}");
        sleep(TTL / 2).await;
        guard.check().unwrap(); // the hold had been replicated, and is renewed at the new primary
        guard.release().await.unwrap();
    }
}

/// Fails over; returns how long after the announcement a lock was granted by the new primary.
async fn followed(group: &RedisSentinels, client: &Client, round: u64) -> Duration {
    let mut news = group.announcements().unwrap();
    group.fail_over().unwrap();
    let port = news.next_primary().unwrap();
    let announced = Instant::now();
    let successor = group.servers().iter().find(|server| server.port() == port).unwrap();
    // The key of a fresh name shows which server was asked.
    for number in 0.. {
        let name = format!("fresh-{round}-{number}");
        let granted = client.lock(&name).ttl(LONG).try_acquire().await.is_ok_and(|guard| guard.is_some());
        let there = || successor.cli(&["EXISTS", &format!("tenure:{name}")]).is_ok_and(|reply| reply.int() == Some(1));
        if granted && there() {
            break;
        }
        assert!(announced.elapsed() < LONG, "never followed");
    }
    announced.elapsed()
}

/// The negative control: `LossyFailover` is right. The lock is granted twice; its fences distinguish the two grants.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "starts clusters and sentinels; cargo xtask test"]
async fn a_failover_that_loses_a_lock_breaks_exclusion_and_not_the_order_of_fences() {
    for start in Pair::all() {
        for library in LIBRARIES {
            let mut pair = start();
            let (first, second) = (client(library, &pair.url()).await, client(library, &pair.url()).await);
            let (primary, replica) = pair.places("tenure:lost");
            pair.server(replica).pause().unwrap();
            // Data on its way would still arrive after the pause.
            pair.server(primary).cli(&["CLIENT", "KILL", "TYPE", "replica"]).unwrap();
            // Not renewed: a renewal could report the loss before the second one gets the lock.
            let guard = first.lock("lost").fixed_ttl(LONG).acquire().await.unwrap();
            pair.server(primary).kill().unwrap();
            pair.server(replica).resume().unwrap();
            let other = eventually_granted(&second, "lost").await;
            assert!(guard.is_held() && other.is_held(), "both hold the lock");
            assert!(other.fence() > guard.fence());
            // The first one learns of it when it is done, once the new primary answers it.
            let asked = first.lock("lost");
            within("an answer", async {
                while asked.try_acquire().await.is_err() {
                    sleep(Duration::from_millis(20)).await;
                }
            })
            .await;
            assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
            other.check().unwrap();
        }
    }
}

/// A new connection has all servers looked at again, while one of them leaves the cluster for good.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "starts clusters and sentinels; cargo xtask test"]
async fn servers_are_looked_at_while_one_of_them_leaves_the_cluster() {
    for library in LIBRARIES {
        let mut cluster = Pair::all()[0]();
        let client = client(library, &cluster.url()).await;
        let (leaves, successor) = cluster.places("tenure:lost");
        let stays = |name: &String| cluster.places(&format!("tenure:{name}")).0 != leaves;
        let name = (0..).map(|number| format!("stays-{number}")).find(stays).unwrap();
        let (home, _) = cluster.places(&format!("tenure:{name}"));
        cluster.server(leaves).kill().unwrap();
        within("a failover", async {
            let lock = client.lock(&name);
            while cluster.server(successor).cli(&["EXISTS", "tenure:lost"]).is_err() {
                cluster.server(home).cli(&["CLIENT", "KILL", "TYPE", "normal"]).unwrap();
                let outage = match lock.try_acquire().await {
                    Ok(Some(guard)) => guard.release().await.err(),
                    Ok(None) => None, // the release before has had no answer yet
                    Err(error) => Some(error),
                };
                assert!(outage.iter().all(Error::is_transient), "{outage:?}");
            }
        })
        .await;
        eventually_granted(&client, "lost").await.release().await.unwrap();
    }
}

const CONTENDERS: usize = 16;
/// The shorter ends during a failover, the longer outlasts it.
const TTLS: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(6)];

/// What contenders do with what they have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// They give it back soon.
    Work,
    /// They hold it until the next order: a failover is under way.
    Hold,
    /// They give it back, and end.
    End,
}

/// What became of the holds.
#[derive(Debug, Default)]
struct Ledger {
    /// In the order of the grants.
    fences: Vec<FencingToken>,
    grants: [usize; CONTENDERS],
    /// Ended by a release that was acknowledged.
    released: usize,
    /// Reported by `lost()`.
    reported: usize,
    /// Ended by a release without an answer, which is carried on.
    unknown: usize,
    /// Requests without a grant: answered by an error of the outage.
    refused: usize,
}

/// Takes the lock, holds it as ordered, and gives it back, unless a loss is reported before.
async fn contend(place: usize, client: Client, mut order: watch::Receiver<Order>, ledger: Arc<Mutex<Ledger>>) {
    let lock = client.lock("contended").ttl(TTLS[place / 2 % 2]);
    while *order.borrow() != Order::End {
        let guard = match lock.acquire_within(LONG).await {
            Ok(guard) => guard,
            Err(error) => {
                assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Indeterminate), "{error}");
                ledger.lock().unwrap().refused += 1;
                sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        {
            let mut ledger = ledger.lock().unwrap();
            ledger.fences.push(guard.fence());
            ledger.grants[place] += 1;
        }
        let done = async {
            sleep(Duration::from_millis(5)).await;
            order.wait_for(|order| *order != Order::Hold).await.unwrap();
        };
        let reported = tokio::select! {
            _ = guard.lost() => true,
            () = done => false,
        };
        let released = within("an answer to the release", guard.release()).await;
        let mut ledger = ledger.lock().unwrap();
        match released {
            _ if reported => ledger.reported += 1,
            Ok(()) => ledger.released += 1,
            Err(error) if error.is_lost() => panic!("a hold was lost, and no loss was reported: {error}"),
            Err(_) => ledger.unknown += 1,
        }
    }
}

/// Returns when every contender has had the lock once more.
async fn everybody_was_granted(ledger: &Mutex<Ledger>) {
    let before = ledger.lock().unwrap().grants;
    within("a grant for everybody", async {
        while ledger.lock().unwrap().grants.iter().zip(before).any(|(now, before)| *now == before) {
            sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

/// `TENURE_FAILOVER_SECS` makes it longer than one failover of each topology.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "starts clusters and sentinels; cargo xtask test"]
async fn sixteen_contenders_outlive_failovers() {
    let span = Duration::from_secs(setting("TENURE_FAILOVER_SECS", 1));
    for start in Pair::all() {
        let mut pair = start();
        let (order, orders) = watch::channel(Order::Work);
        let ledger = Arc::<Mutex<Ledger>>::default();
        let mut contenders = tokio::task::JoinSet::new();
        for place in 0..CONTENDERS {
            let client = client(LIBRARIES[place % 2], &pair.url()).await;
            contenders.spawn(contend(place, client, orders.clone(), Arc::clone(&ledger)));
        }
        let (started, mut failovers) = (Instant::now(), 0);
        while failovers == 0 || started.elapsed() < span {
            everybody_was_granted(&ledger).await;
            order.send_replace(Order::Hold);
            pair.fail_over();
            failovers += 1;
            sleep(TTLS[1]).await; // whoever lost the lock has renewed by now, or its lease has ended
            order.send_replace(Order::Work);
        }
        everybody_was_granted(&ledger).await;
        order.send_replace(Order::End);
        within("every contender ends", contenders.join_all()).await;
        let Ledger { fences, released, reported, unknown, refused, .. } = &*ledger.lock().unwrap();
        println!(
            "{}: {failovers} failovers in {:?}: {} grants: {released} released, {reported} reported of their loss, {unknown} \
             releases unanswered; {refused} requests refused",
            pair.url(),
            started.elapsed(),
            fences.len()
        );
        for pair in fences.windows(2) {
            assert!(pair[0] < pair[1], "fences fell from {} to {}", pair[0], pair[1]);
        }
    }
}
