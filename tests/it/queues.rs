//! Queues with the names of the facade alone.

#![cfg(all(feature = "memory", feature = "json"))]

use std::time::Duration;

use tenure::queue::{DeadPage, Listed, MessagePage, Queue, Rest};

#[tokio::test]
async fn waiting_messages_are_listed_page_by_page() {
    let client = tenure::connect("memory:").await.unwrap();
    let queue: Queue<String> = client.queue("jobs").unwrap();
    for job in ["one", "two", "three"] {
        queue.push(&job.to_owned()).delay(Duration::from_secs(3600)).await.unwrap();
    }
    let first: MessagePage = queue.admin().list_page(Listed::Waiting, None, 2).await.unwrap();
    let second = queue.admin().list_page(Listed::Waiting, first.next, 2).await.unwrap();
    assert_eq!((first.messages.len(), second.messages.len()), (2, 1));
    assert!(first.next.is_some() && second.next.is_none());
}

#[tokio::test]
async fn dead_letters_are_listed_page_by_page() {
    let client = tenure::connect("memory:").await.unwrap();
    let queue: Queue<String> = client.queue("jobs").unwrap();
    for job in ["one", "two", "three"] {
        queue.push(&job.to_owned()).await.unwrap();
        queue.receive().await.unwrap().bury(None).await.unwrap();
    }
    let dead = queue.admin().dead_letters();
    let first: DeadPage = dead.list(None, 2).await.unwrap();
    let second = dead.list(first.letters.last().map(|letter| letter.place), 2).await.unwrap();
    assert_eq!((first.letters.len(), first.rest), (2, Rest::More));
    assert_eq!((second.letters.len(), second.rest), (1, Rest::None));
}
