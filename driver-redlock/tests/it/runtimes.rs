//! Work in the background outlives the runtime that it was begun on.

use std::time::Duration;

use crate::common::{Nodes, attempt, grant, hold, quiet};
use tenure_core::driver::{DistributedLock as _, Released, Renewed};
use tenure_memory::Operation;
use tokio::runtime::Runtime;
use tokio::time::timeout;

const SHORT: Duration = Duration::from_millis(30);

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap()
}

/// A task whose runtime ends is dropped with it, after the nodes voted.
#[test]
fn what_a_dropped_attempt_won_is_undone_by_the_next_runtime() {
    let nodes = Nodes::new(3);
    let (driver, links) = nodes.client();
    links.iter().for_each(|link| link.faults().delay_reply(Operation::Acquire, Duration::from_secs(60)));
    let first = runtime();
    first.spawn({
        let driver = driver.clone();
        async move { driver.acquire(&attempt("a")).await }
    });
    first.block_on(async { tokio::time::sleep(SHORT).await });
    assert_eq!(first.block_on(nodes.held("a")), 3);
    drop(first);
    links.iter().for_each(|link| link.faults().delay_reply(Operation::Acquire, Duration::ZERO));
    runtime().block_on(async {
        assert!(driver.background_work() > 0, "it is not forgotten");
        driver.acquire(&attempt("b")).await.unwrap();
        quiet(&driver).await;
        assert_eq!(nodes.held("a").await, 0);
    });
}

/// Three nodes are told, two have answered, and the third is being told in the background when the runtime ends.
#[test]
fn a_node_that_has_yet_to_hear_of_a_release_hears_of_it_from_the_next_runtime() {
    let nodes = Nodes::new(3);
    let (driver, links) = nodes.client();
    let request = attempt("a");
    let first = runtime();
    first.block_on(async {
        grant(&driver, &request).await;
        quiet(&driver).await;
        links[2].faults().delay(Operation::Release, Duration::from_secs(60));
        assert_eq!(driver.release(&hold(&request)).await.unwrap(), Released::Released);
    });
    drop(first);
    links[2].faults().delay(Operation::Release, Duration::ZERO);
    runtime().block_on(async {
        grant(&driver, &attempt("b")).await;
        quiet(&driver).await;
        assert_eq!(nodes.held("a").await, 0);
    });
}

#[test]
fn a_node_whose_taking_back_ended_with_its_runtime_is_taken_back_by_the_next_one() {
    for sent in [false, true] {
        let nodes = Nodes::new(3);
        let (driver, links) = nodes.client();
        let request = attempt("a");
        let first = runtime();
        first.block_on(async {
            grant(&driver, &request).await;
            quiet(&driver).await;
            nodes.0[2].faults().expire("a").unwrap();
            links[2].faults().delay(Operation::Acquire, Duration::from_secs(60));
            links[0].faults().delay(Operation::Renew, SHORT); // the loss is heard of before the verdict
            assert!(matches!(driver.renew(request.ttl, &[hold(&request)]).await[0], Ok(Renewed::Extended { .. })));
            if sent {
                assert!(timeout(SHORT, quiet(&driver)).await.is_err());
            }
        });
        drop(first);
        links[2].faults().delay(Operation::Acquire, Duration::ZERO);
        runtime().block_on(async {
            assert_eq!(nodes.held("a").await, 2);
            assert!(matches!(driver.renew(request.ttl, &[hold(&request)]).await[0], Ok(Renewed::Extended { .. })));
            quiet(&driver).await;
            assert_eq!(nodes.held("a").await, 3, "sent: {sent}");
            assert_eq!(driver.release(&hold(&request)).await.unwrap(), Released::Released);
        });
    }
}
