//! The list of held locks as the client reads it, over the driver in memory.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use tenure_core::driver::{Backend, Census, CensusCapabilities, CensusOrder, CensusPlace, HeldPage};
use tenure_core::{Client, ErrorKind, LockGuard, Result};
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
    let listless = Client::new(Backend::new(Arc::new(driver)));
    assert_eq!(listless.census_capabilities(), None);
    assert_eq!(listless.held_locks("").next_page().await.unwrap_err().kind(), ErrorKind::Unsupported);
    client.close(TTL).await.unwrap();
    assert_eq!(client.held_locks("").next().await.unwrap_err().kind(), ErrorKind::Closed);
}

/// A list of small pages that goes on where it is, for ever.
#[derive(Debug, Default)]
struct Circling {
    /// How many locks each request asked for at most.
    asked: Mutex<Vec<usize>>,
}

#[async_trait]
impl Census for Circling {
    fn capabilities(&self) -> CensusCapabilities {
        CensusCapabilities::new(CensusOrder::Sorted).with_max_page(7)
    }

    async fn held(&self, _prefix: &[u8], _from: Option<&CensusPlace>, max: usize) -> Result<HeldPage> {
        self.asked.lock().unwrap().push(max);
        Ok(HeldPage::new(Vec::new(), Some(CensusPlace::new(b"here".to_vec()))))
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_that_does_not_continue_ends_and_a_closed_client_asks_for_none() {
    let census = Arc::new(Circling::default());
    let backend = Backend::from(MemoryDriver::new()).with_census(Arc::clone(&census) as _);
    let client = Client::new(backend);
    let mut held = client.held_locks("");
    assert_eq!(held.next_page().await.unwrap(), Some(Vec::new()));
    let error = held.next_page().await.unwrap_err();
    assert!(error.kind() == ErrorKind::Protocol && error.message().contains("same page token"), "{error}");
    client.close(TTL).await.unwrap();
    assert_eq!(held.next_page().await.unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(*census.asked.lock().unwrap(), [7, 7], "no more than the driver lists at once");
}
