//! Lists of messages and letters, page by page, where the order of their times does not tell them apart.

use std::collections::BTreeSet;

use crate::common::queue::{message, queue, up_to};
use crate::common::{Client, server};
use tenure_core::driver::{DelayQueueExt as _, Listed, QueueAdmin, Rest, Settle, Settlement};
use tenure_core::queue::{MessageId, QueueName};
use tenure_testkit::RedisServer;

/// How many there are: more than one script looks at of one time.
const MANY: usize = 1300;

async fn fill(q: &dyn QueueAdmin, jobs: &QueueName) {
    for _ in 0..MANY / 100 {
        q.push(jobs, &vec![message("waits", 0); 100]).await.unwrap();
    }
}

/// Gives all of a set the same score.
fn level(server: &RedisServer, set: &str, score: u64) {
    let key = format!("{{tenure:dq:jobs}}:{set}");
    let members = server.cli(&["ZRANGE", &key, "0", "-1"]).unwrap();
    let score = score.to_string();
    let mut words = vec!["ZADD".to_owned(), key];
    words.extend(members.items().iter().flat_map(|member| [score.clone(), member.text()]));
    server.connect().unwrap().call(&words).unwrap();
}

async fn listed(q: &dyn QueueAdmin, jobs: &QueueName, which: Listed, max: usize) -> Vec<MessageId> {
    let (mut all, mut from) = (Vec::new(), None);
    for _ in 0..=MANY {
        let page = q.list(jobs, which, from, max).await.unwrap();
        all.extend(page.messages.into_iter().map(|info| info.id));
        from = page.next;
        if from.is_none() {
            return all;
        }
    }
    panic!("the list has no end; {} are listed", all.len());
}

#[tokio::test]
async fn many_messages_of_one_time_are_listed_once_each() {
    let server = server();
    let q = Client::of(&server).await.queues;
    let jobs = queue("jobs");
    fill(&*q, &jobs).await;
    level(&server, "t", 2);
    for max in [90, 256] {
        let all = listed(&*q, &jobs, Listed::Waiting, max).await;
        assert_eq!((all.len(), BTreeSet::from_iter(&all).len()), (MANY, MANY));
    }
    // The place that a page goes on behind may be gone.
    let first = q.list(&jobs, Listed::Waiting, None, 90).await.unwrap();
    for info in &first.messages[60..] {
        q.cancel(&jobs, &info.id).await.unwrap();
    }
    let next = q.list(&jobs, Listed::Waiting, first.next, 256).await.unwrap();
    assert!(next.messages[0].id > first.messages[89].id && next.messages.len() == 256);
    let rest = listed(&*q, &jobs, Listed::Waiting, 256).await;
    assert_eq!(rest[60], next.messages[0].id);
}

#[tokio::test]
async fn many_letters_of_one_time_are_listed_once_each() {
    let server = server();
    let q = Client::of(&server).await.queues;
    let jobs = queue("jobs");
    fill(&*q, &jobs).await;
    for _ in 0..MANY / 100 {
        let deliveries = q.receive(&up_to(&jobs, 100)).await.unwrap().deliveries;
        let how = Settlement::Dead { reason: None };
        let settles = deliveries.iter().map(|one| Settle::new(one.receipt, how.clone()));
        q.settle(&jobs, &settles.collect::<Vec<_>>()).await.unwrap();
    }
    level(&server, "d", 7);
    let (mut all, mut after) = (BTreeSet::new(), None);
    for _ in 0..MANY / 100 {
        let page = q.dead_list(&jobs, after, 100).await.unwrap();
        after = page.letters.last().map(|letter| letter.place);
        all.extend(page.letters.into_iter().map(|letter| letter.id));
        assert_eq!(page.rest == Rest::None, all.len() == MANY);
    }
    assert_eq!(all.len(), MANY);
}

/// More of what is no message than one page looks at, before what is.
#[tokio::test]
async fn foreign_members_hide_no_message_from_a_list() {
    let server = server();
    let q = Client::of(&server).await.queues;
    let jobs = queue("jobs");
    q.push(&jobs, &[message("early", 0), message("late", 0)]).await.unwrap();
    for score in ["1.5", "4"] {
        let mut words = vec!["ZADD".to_owned(), "{tenure:dq:jobs}:t".to_owned()];
        words.extend((0..4100).flat_map(|number| [score.to_owned(), format!("foreign {score} {number}")]));
        server.connect().unwrap().call(&words).unwrap();
    }
    let all = listed(&*q, &jobs, Listed::Waiting, 100).await;
    assert_eq!(all.len(), 2);
}

#[tokio::test]
async fn a_page_may_have_one_message() {
    let server = server();
    let q = Client::of(&server).await.queues;
    let jobs = queue("jobs");
    q.push(&jobs, &[message("early", 0), message("late", 60_000)]).await.unwrap();
    let first = q.list(&jobs, Listed::Waiting, None, 1).await.unwrap();
    let second = q.list(&jobs, Listed::Waiting, first.next, 1).await.unwrap();
    let payloads =
        [&first, &second].map(|page| page.messages.iter().map(|info| info.payload.as_bytes()).collect::<Vec<_>>());
    assert_eq!(payloads, [[b"early".as_slice()], [b"late"]]);
    assert_eq!(listed(&*q, &jobs, Listed::Waiting, 1).await.len(), 2);
}
