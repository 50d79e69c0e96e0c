//! Queues with the names of the facade alone.

#![cfg(all(feature = "memory", feature = "json"))]

use std::time::Duration;

use tenure::queue::{Listed, MessagePage, Queue};

#[tokio::test]
async fn waiting_messages_are_listed_page_by_page() {
    let client = tenure::connect("memory:").await.unwrap();
    let queue: Queue<String> = client.queue("jobs").unwrap();
    for job in ["one", "two", "three"] {
        queue.push(&job.to_owned()).delay(Duration::from_secs(3600)).await.unwrap();
    }
    let first: MessagePage = queue.list_page(Listed::Waiting, None, 2).await.unwrap();
    let second = queue.list_page(Listed::Waiting, first.next, 2).await.unwrap();
    assert_eq!((first.messages.len(), second.messages.len()), (2, 1));
    assert!(first.next.is_some() && second.next.is_none());
}
