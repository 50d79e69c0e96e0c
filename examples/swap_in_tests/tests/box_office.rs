//! Tests that do not know their backend. In memory, without any server:
//!
//! ```sh
//! cargo test
//! ```
//!
//! Unchanged, on servers of your own:
//!
//! ```sh
//! TENURE_URL=redis://127.0.0.1/ cargo test --features redis
//! TENURE_URL=etcd://127.0.0.1/ cargo test --features etcd
//! ```

use std::time::Duration;

use swap_in_tests_example::{BoxOffice, Plan};
use tenure::{Client, ErrorKind, OwnerId};

/// The one place that knows of backends. Names end with something random, so that neither tests nor runs that share a
/// server meet.
struct Stage {
    url: String,
    run: OwnerId,
}

impl Stage {
    fn new() -> Self {
        let run = OwnerId::new();
        // A named store in memory, in which the clients of one test meet.
        let url = std::env::var("TENURE_URL")
            .unwrap_or_else(|_| format!("memory:{run}"));
        Self { url, run }
    }

    async fn client(&self) -> Client {
        tenure::connect(&self.url)
            .await
            .expect("the backend of TENURE_URL is there")
    }

    fn seat(&self, number: u32) -> String {
        format!("seat-{number}-{}", self.run)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_seat_is_sold_once_however_many_ask() {
    let (stage, plan) = (Stage::new(), Plan::default());
    let offices = [
        BoxOffice::new(stage.client().await, plan.clone()),
        BoxOffice::new(stage.client().await, plan),
    ];
    let seat = stage.seat(1);
    let (anna, bert) = tokio::join!(
        offices[0].sell(&seat, "Anna"),
        offices[1].sell(&seat, "Bert")
    );
    let (anna, bert) = (anna.unwrap(), bert.unwrap());
    assert!(anna != bert, "one of them gets it: {anna}, {bert}");
}

#[tokio::test]
async fn a_pause_between_reading_and_writing_sells_no_seat_twice() {
    let (stage, plan) = (Stage::new(), Plan::default());
    let (slow, other) = (
        stage.client().await,
        BoxOffice::new(stage.client().await, plan.clone()),
    );
    let seat = stage.seat(3);
    let paused = slow
        .lock(&*seat)
        .fixed_ttl(Duration::from_secs(2))
        .acquire()
        .await
        .unwrap();
    assert_eq!(
        plan.claim(&seat, paused.fence()),
        Ok(None),
        "the seat is free, and here she is paused"
    );
    // The next holder has read, and not written yet: a check of the write alone would let her through here.
    let next = stage.client().await.lock(&*seat).acquire().await.unwrap();
    assert_eq!(plan.claim(&seat, next.fence()), Ok(None));
    plan.write(&seat, "Anna", paused.fence()).unwrap_err();
    plan.write(&seat, "Bert", next.fence()).unwrap();
    next.release().await.unwrap();
    assert!(!other.sell(&seat, "Carl").await.unwrap());
    assert_eq!(plan.guest(&seat).as_deref(), Some("Bert"));
}

#[tokio::test]
async fn an_office_that_lost_its_lease_writes_nothing() {
    let (stage, plan) = (Stage::new(), Plan::default());
    let (slow, other) = (
        stage.client().await,
        BoxOffice::new(stage.client().await, plan.clone()),
    );
    let seat = stage.seat(2);
    // Two seconds: the shortest lease that every backend keeps.
    let paused = slow
        .lock(&*seat)
        .fixed_ttl(Duration::from_secs(2))
        .acquire()
        .await
        .unwrap();
    assert!(other.sell(&seat, "Bert").await.unwrap(), "once the lease is over");
    plan.write(&seat, "Anna", paused.fence()).unwrap_err();
    assert_eq!(plan.guest(&seat).as_deref(), Some("Bert"));
    assert_eq!(paused.check().unwrap_err().kind(), ErrorKind::Lost);
}
