//! The list of held locks as the client reads it, over the driver in memory.

use std::time::Duration;

use tenure_core::driver::Backend;
use tenure_core::{Client, ErrorKind, LockGuard};
use tenure_memory::{MemoryDriver, Operation};

const TTL: Duration = Duration::from_secs(3600);

async fn hold(client: &Client, count: usize) -> Vec<LockGuard> {
    let mut guards = Vec::new();
    for number in 0..count {
        let lock = client.lock(format!("many/{number:04}")).fixed_ttl(TTL);
        guards.push(lock.try_acquire().await.unwrap().unwrap());
    }
    guards
}

#[tokio::test(start_paused = true)]
async fn pages_follow_one_another_and_a_failed_one_is_asked_for_again() {
    let driver = MemoryDriver::new();
    let client = Client::new(driver.clone());
    let _guards = hold(&client, 1_200).await;
    let (mut held, mut names) = (client.held_locks("many/"), Vec::new());
    while names.len() < 700 {
        names.push(held.next().await.unwrap().unwrap().name);
    }
    driver.faults().fail_next(Operation::Inspect, ErrorKind::Unavailable);
    let failure = loop {
        match held.next().await {
            Ok(lock) => names.push(lock.unwrap().name),
            Err(error) => break error,
        }
    };
    assert_eq!((failure.kind(), names.len()), (ErrorKind::Unavailable, 1_000), "{failure}");
    assert!(failure.to_string().contains("many/"), "{failure}");
    while let Some(lock) = held.next().await.unwrap() {
        names.push(lock.name);
    }
    let expected: Vec<String> = (0..1_200).map(|number| format!("many/{number:04}")).collect();
    assert_eq!(names.iter().map(ToString::to_string).collect::<Vec<_>>(), expected);
    assert!(held.next().await.unwrap().is_none() && held.next_page().await.unwrap().is_none(), "behind the end");
}

#[tokio::test(start_paused = true)]
async fn a_page_begins_with_what_was_not_read() {
    let client = Client::new(MemoryDriver::new());
    let _guards = hold(&client, 501).await;
    let mut held = client.held_locks("");
    held.next().await.unwrap().unwrap();
    assert_eq!(held.next_page().await.unwrap().map(|page| page.len()), Some(499));
    assert_eq!(held.next_page().await.unwrap().map(|page| page.len()), Some(1));
    assert_eq!(held.next_page().await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_listed_is_refused() {
    let driver = MemoryDriver::new();
    let client = Client::new(driver.clone());
    let long = client.held_locks([b'x'; 513]).next().await.unwrap_err();
    assert_eq!(long.kind(), ErrorKind::InvalidArgument, "{long}");
    assert!(long.to_string().contains("513 bytes"), "{long}");
    client.held_locks([b'x'; 512]).next().await.unwrap();
    let listless = Client::new(Backend::new(std::sync::Arc::new(driver)));
    assert_eq!(listless.census_capabilities(), None);
    assert_eq!(listless.held_locks("").next_page().await.unwrap_err().kind(), ErrorKind::Unsupported);
    client.close(TTL).await.unwrap();
    assert_eq!(client.held_locks("").next().await.unwrap_err().kind(), ErrorKind::Closed);
}
