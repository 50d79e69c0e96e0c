//! An application and its tests, on any backend: `TENURE_URL=redis://127.0.0.1/ cargo test --test it application::
//! --features redis`, or a `sqlite:`, `postgres://`, `mysql://` or `etcd://` URL. Without it, `memory:`. Neither the shop nor its tests know which, and
//! `cargo xtask test` runs them on SQLite, Redis and etcd as well.

use std::sync::Arc;
use std::time::Duration;

use crate::shop::{Database, Shipped, Shop, Sold};
use tenure::{Client, ErrorKind, OwnerId};
use tokio::sync::Notify;
use tokio::time::sleep;

/// The shortest lease that every backend keeps.
const SHORT: Duration = Duration::from_secs(2);

/// As many clients of one backend as there would be processes. Names begin with the test's, so that tests that share
/// a server do not meet, and end with something random, so that runs do not.
async fn shops<const N: usize>(test: &str) -> [(Client, Shop); N] {
    let run = OwnerId::new();
    let url = match std::env::var("TENURE_URL") {
        Ok(url) if url != "memory:" => url,
        _ => format!("memory:{run}"), // where several clients meet
    };
    let database = Arc::new(Database::default());
    let mut shops = Vec::new();
    for _ in 0..N {
        let client = tenure::connect(&url).await.expect("the backend of TENURE_URL is there");
        shops.push((client.clone(), Shop::new(client, format!("{test}-{run}"), Arc::clone(&database))));
    }
    shops.try_into().ok().expect("as many as were asked for")
}

/// Everything is given back within a bounded time, and nobody waits.
async fn close(client: &Client) {
    client.close(Duration::from_secs(10)).await.expect("everything is given back");
    let stats = client.stats();
    assert_eq!((stats.holds, stats.waiters, stats.cleanups), (0, 0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_never_sell_more_than_there_is() {
    let [(one, a), (other, b)] = shops("stock").await;
    a.database().put("lamp", 10);
    let (a, b) = (Arc::new(a), Arc::new(b));
    let orders: Vec<_> = (0..24)
        .map(|number| {
            let shop = Arc::clone(if number % 2 == 0 { &a } else { &b });
            tokio::spawn(async move { shop.sell(&["lamp"]).await.expect("a place in line and a turn") })
        })
        .collect();
    let mut sold = 0;
    for order in orders {
        sold += u32::from(order.await.unwrap() == Sold::Yes);
    }
    assert_eq!((sold, a.database().left("lamp")), (10, 0));
    close(&one).await;
    close(&other).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orders_that_overlap_do_not_wait_for_each_other_in_a_circle() {
    let [(one, a), (other, b)] = shops("circle").await;
    for item in ["bolt", "nut", "washer"] {
        a.database().put(item, 100);
    }
    let both = async {
        for _ in 0..10 {
            let (left, right) = tokio::join!(a.sell(&["bolt", "nut", "washer"]), b.sell(&["washer", "nut", "bolt"]));
            assert_eq!((left.unwrap(), right.unwrap()), (Sold::Yes, Sold::Yes));
        }
    };
    tokio::time::timeout(Duration::from_secs(60), both).await.expect("no circle");
    assert_eq!(a.database().left("nut"), 80);
    close(&one).await;
    close(&other).await;
}

#[tokio::test]
async fn a_report_that_somebody_is_at_is_not_made_twice() {
    let [(one, a), (other, b)] = shops("report").await;
    let (begun, done) = (Notify::new(), Notify::new());
    let reading = async {
        begun.notify_one();
        done.notified().await;
    };
    let (first, second) = tokio::join!(a.report(reading), async {
        begun.notified().await;
        let second = b.report(async {}).await;
        done.notify_one();
        second
    });
    assert_eq!((first.unwrap(), second.unwrap()), (Some(1), None));
    assert_eq!(b.report(async {}).await.unwrap(), Some(2), "when it is done, the next one may");
    close(&one).await;
    close(&other).await;
}

#[tokio::test]
async fn a_settlement_enters_the_account_again_and_keeps_others_out() {
    let [(one, a), (other, b)] = shops("account").await;
    let (me, another) = (OwnerId::new(), OwnerId::new());
    assert_eq!(a.settle("carol", 250, &me).await.unwrap(), 240, "the payment less the fee");
    let (mine, theirs) = (a.settle("carol", 100, &me), b.settle("carol", 100, &another));
    let (mine, theirs) = tokio::join!(mine, theirs);
    let mut seen = [mine.unwrap(), theirs.unwrap()];
    seen.sort_unstable();
    assert_eq!(seen, [330, 420], "one after the other");
    close(&one).await;
    close(&other).await;
}

#[tokio::test]
async fn a_shipment_that_outlives_its_lease_is_interrupted_and_can_be_done_again() {
    let [(one, a), (other, b)] = shops("shipment").await;
    let stuck = a.ship("order-1", SHORT, std::future::pending::<()>()).await.unwrap();
    assert_eq!(stuck, Shipped::Interrupted);
    assert_eq!(b.ship("order-1", Duration::from_secs(30), async {}).await.unwrap(), Shipped::Yes);
    assert_eq!(a.ship("order-1", Duration::from_secs(30), async {}).await.unwrap(), Shipped::Before);
    close(&one).await;
    close(&other).await;
}

#[tokio::test]
async fn a_write_from_a_lost_lease_is_refused_by_the_database() {
    let [(one, a), (other, b)] = shops("fence").await;
    a.database().put("chair", 5);
    let slow = one.lock(a.name_of("chair")).fixed_ttl(SHORT).acquire().await.unwrap();
    slow.lost().await; // and the application did not look
    assert_eq!(b.sell(&["chair"]).await.unwrap(), Sold::Yes);
    let refused = a.database().take("chair", slow.fence()).unwrap_err();
    assert_eq!(refused.offered, slow.fence());
    assert_eq!(a.database().left("chair"), 4);
    assert_eq!(slow.check().unwrap_err().kind(), ErrorKind::Lost);
    drop(slow);
    close(&one).await;
    close(&other).await;
}

#[tokio::test]
async fn a_customer_who_leaves_gives_up_the_place_in_line() {
    let [(one, a), (other, b)] = shops("leave").await;
    a.database().put("vase", 2);
    let held = one.lock(a.name_of("vase")).acquire().await.unwrap();
    tokio::select! {
        _ = b.sell(&["vase"]) => panic!("it is held"),
        () = sleep(Duration::from_millis(200)) => {} // the customer leaves: the future is dropped
    }
    assert_eq!(b.sell_within(&["vase"], Duration::ZERO).await.unwrap_err().kind(), ErrorKind::TimedOut);
    held.release().await.unwrap();
    assert_eq!(a.sell(&["vase"]).await.unwrap(), Sold::Yes);
    close(&other).await;
    assert_eq!(a.database().left("vase"), 1, "who left bought nothing");
    close(&one).await;
}
