//! Whole clients over the driver: waiting, re-entry, loss before a competitor's grant.

use std::sync::Arc;
use std::time::Duration;

use crate::common::Nodes;
use tenure_core::driver::DistributedLock as _;
use tenure_core::{Client, ErrorKind, HoldState, OwnerId};
use tenure_memory::Operation;
use tokio::time::{Instant, sleep};

const TTL: Duration = Duration::from_secs(3);

#[tokio::test(start_paused = true)]
async fn a_waiter_is_woken_by_the_release_and_costs_little_meanwhile() {
    let nodes = Nodes::new(3);
    let (holder, _) = nodes.client();
    let (driver, links) = nodes.client();
    let held = Client::new(holder).lock("a").acquire().await.unwrap();
    let waiting = tokio::spawn({
        let client = Client::new(driver);
        async move { client.lock("a").acquire().await.unwrap().fence() }
    });
    sleep(Duration::from_secs(60)).await;
    let asked: u64 = links.iter().map(|link| link.faults().calls(Operation::Acquire)).sum();
    assert!(asked <= 3 + 12 * 3 + 10, "{asked} requests in a minute of waiting");
    let (fence, released) = (held.fence(), Instant::now());
    held.release().await.unwrap();
    assert!(waiting.await.unwrap() > fence);
    assert!(released.elapsed() < Duration::from_millis(50), "{:?}", released.elapsed());
}

/// Where each waiter has a place of its own, all nodes are asked by one for all of the client; the others keep a place at one
/// node.
#[tokio::test(start_paused = true)]
async fn waiters_of_one_client_share_the_asking_of_all_nodes() {
    const WAITERS: u64 = 20;
    let nodes = Nodes::new(5);
    let (holder, _) = nodes.client();
    let (driver, links) = nodes.client();
    let asked = || links.iter().map(|link| link.faults().calls(Operation::Acquire)).collect::<Vec<_>>();
    let held = Client::new(holder.clone()).lock("a").acquire().await.unwrap();
    let client = Client::builder(driver).holders_per_grant(0).build().unwrap();
    let mut waiting = tokio::task::JoinSet::new();
    for _ in 0..WAITERS {
        let lock = client.lock("a");
        waiting.spawn(async move { lock.acquire().await.unwrap().release().await.unwrap() });
    }
    sleep(Duration::from_secs(1)).await;
    let joined = asked();
    assert!(joined.iter().sum::<u64>() <= WAITERS + 5, "{joined:?} requests to join");
    assert_eq!(
        u64::from(holder.inspect(&crate::common::name("a")).await.unwrap().waiters),
        WAITERS,
        "an operator sees all"
    );
    sleep(Duration::from_secs(60)).await;
    let mut others: Vec<u64> = asked().iter().zip(&joined).map(|(now, then)| now - then).collect();
    others.sort_unstable();
    assert!(others[3] <= 20, "{others:?} requests in a minute: four nodes are asked for all waiters at once");
    assert!(others[4] <= 15 * WAITERS, "{others:?}: one node has their places");
    let before = asked();
    held.release().await.unwrap();
    while waiting.join_next().await.is_some() {}
    let turns: u64 = asked().iter().zip(&before).map(|(now, then)| now - then).sum();
    assert!(turns <= WAITERS * 5 * 2, "{turns} requests for {WAITERS} turns");
}

#[tokio::test(start_paused = true)]
async fn many_waiters_of_several_clients_are_all_served() {
    let nodes = Nodes::new(5);
    let mut waiting = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let client = Client::new(nodes.client().0);
        for _ in 0..5 {
            let client = client.clone();
            waiting.spawn(async move {
                let guard = client.lock("a").acquire().await.unwrap();
                let fence = guard.fence();
                sleep(Duration::from_millis(5)).await;
                guard.release().await.unwrap();
                fence
            });
        }
    }
    let start = Instant::now();
    let mut fences: Vec<_> = waiting.join_all().await;
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    fences.sort_unstable();
    fences.dedup();
    assert_eq!(fences.len(), 20);
}

#[tokio::test(start_paused = true)]
async fn waiters_move_on_when_the_node_they_queue_at_goes_silent() {
    let nodes = Nodes::new(3);
    let (holder, _) = nodes.client();
    let held = Client::new(holder).lock("a").acquire().await.unwrap();
    for silent in 0..3 {
        let (driver, links) = nodes.client();
        let client = Client::new(driver);
        let lock = client.lock("a");
        let waiting = tokio::spawn(async move { lock.acquire_within(Duration::from_secs(100)).await.map(drop) });
        sleep(Duration::from_secs(1)).await;
        links[silent].faults().silence();
        sleep(Duration::from_secs(20)).await;
        assert!(!waiting.is_finished(), "it waits on");
        waiting.abort();
    }
    held.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_runs_out_wakes_the_waiter_and_was_lost_before() {
    let nodes = Nodes::new(3);
    let (holder, links) = nodes.client();
    let held = Client::new(holder).lock("a").ttl(TTL).acquire().await.unwrap();
    let lost = Arc::new(held);
    links.iter().for_each(|link| link.faults().silence());
    let start = Instant::now();
    let client = Client::new(nodes.client().0);
    let other = client.lock("a").acquire_within(Duration::from_secs(30)).await.unwrap();
    assert!(start.elapsed() < TTL + Duration::from_millis(500), "{:?}", start.elapsed());
    assert!(matches!(lost.state(), HoldState::Lost(_)), "{:?}", lost.state());
    assert!(other.fence() > lost.fence());
}

#[tokio::test(start_paused = true)]
async fn a_holder_is_renewed_through_the_loss_of_any_one_node() {
    let nodes = Nodes::new(3);
    let (driver, links) = nodes.client();
    let held = Client::new(driver.clone()).lock("a").ttl(TTL).acquire().await.unwrap();
    for link in &links {
        link.faults().silence();
        sleep(TTL * 2).await;
        assert!(held.is_held());
        assert_eq!(driver.healthy_nodes(held.token()).unwrap().len(), 3, "not yet known to be lost");
        link.faults().heal();
        sleep(TTL).await;
        assert_eq!(nodes.held("a").await, 3, "taken back");
    }
    held.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_owner_re_enters_in_its_process_and_excludes_all_others() {
    let nodes = Nodes::new(3);
    let (driver, _) = nodes.client();
    let client = Client::new(driver);
    let (me, you) = (OwnerId::new(), OwnerId::new());
    let outer = client.reentrant("a", &me).acquire().await.unwrap();
    let inner = client.reentrant("a", &me).acquire().await.unwrap();
    assert_eq!((inner.depth(), inner.fence()), (2, outer.fence()));
    assert!(client.reentrant("a", &you).try_acquire().await.unwrap().is_none());
    assert!(client.lock("a").try_acquire().await.unwrap().is_none());
    let elsewhere = Client::new(nodes.client_of_another_process());
    assert!(elsewhere.reentrant("a", &me).try_acquire().await.unwrap().is_none(), "the scope is a process");
    outer.release().await.unwrap();
    assert!(inner.is_held());
    assert!(client.lock("a").try_acquire().await.unwrap().is_none());
    inner.release().await.unwrap();
    let again = client.reentrant("a", &you).acquire().await.unwrap();
    assert_eq!(again.depth(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_owner_enters_through_every_client_of_the_process_and_each_may_end_first() {
    let (nodes, others) = (Nodes::new(3), Nodes::new(3));
    let (first, second) = (Client::new(nodes.client().0), Client::new(nodes.client().0));
    let (me, you) = (OwnerId::new(), OwnerId::new());
    let outer = first.reentrant("a", &me).ttl(TTL).acquire().await.unwrap();
    let inner = second.reentrant("a", &me).ttl(TTL).try_acquire().await.unwrap().unwrap();
    assert_eq!((inner.depth(), inner.fence()), (2, outer.fence()));
    let unrelated = Client::new(others.client().0);
    let apart = unrelated.reentrant("a", &me).acquire().await.unwrap();
    assert_eq!(apart.depth(), 1, "nodes of the same names, and other stores");
    apart.release().await.unwrap();

    first.close(Duration::from_secs(5)).await.unwrap();
    drop((first, outer));
    sleep(TTL * 3).await;
    assert!(inner.is_held(), "renewed by the client that is left");
    let third = Client::new(nodes.client().0);
    assert!(third.reentrant("a", &you).try_acquire().await.unwrap().is_none());
    let again = third.reentrant("a", &me).try_acquire().await.unwrap().unwrap();
    assert_eq!((again.depth(), again.fence()), (2, inner.fence()));
    inner.release().await.unwrap();
    again.release().await.unwrap();
    assert_eq!(third.reentrant("a", &you).acquire().await.unwrap().depth(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_re_entrant_hold_that_is_taken_away_is_lost_as_a_whole() {
    let nodes = Nodes::new(3);
    let (driver, _) = nodes.client();
    let client = Client::new(driver.clone());
    let me = OwnerId::new();
    let outer = client.reentrant("a", &me).ttl(TTL).acquire().await.unwrap();
    let inner = client.reentrant("a", &me).ttl(TTL).acquire().await.unwrap();
    driver.force_release(&crate::common::name("a"), None).await.unwrap();
    sleep(TTL).await;
    assert!(!outer.is_held() && !inner.is_held());
    let anew = client.reentrant("a", &me).acquire().await.unwrap();
    assert!(anew.depth() == 1 && anew.fence() > outer.fence());
}

#[tokio::test(start_paused = true)]
async fn closing_leaves_nothing_behind() {
    let nodes = Nodes::new(3);
    let (driver, _) = nodes.client();
    let client = Client::new(driver.clone());
    let held = client.lock("a").acquire().await.unwrap();
    client.close(Duration::from_secs(5)).await.unwrap();
    assert!(!held.is_held());
    assert_eq!((nodes.held("a").await, driver.background_work()), (0, 0));
    assert_eq!(client.lock("a").try_acquire().await.unwrap_err().kind(), ErrorKind::Closed);
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_was_closed_asks_no_node() {
    let nodes = Nodes::new(3);
    let (driver, links) = nodes.client();
    driver.close().await;
    let error = driver.acquire(&crate::common::attempt("a")).await.unwrap_err();
    assert_eq!((error.kind(), error.message()), (ErrorKind::Closed, "the driver was closed"));
    let attempt = crate::common::attempt("a");
    let error = driver.watch(&attempt.name, &attempt.token).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed, "nothing more is heard of");
    assert!(links.iter().all(|link| link.faults().calls(Operation::Acquire) == 0));
}
