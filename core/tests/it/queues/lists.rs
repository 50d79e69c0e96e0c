//! Looking through what is stored, and choosing among dead letters.

use std::collections::HashSet;
use std::pin::pin;

use futures_util::{StreamExt as _, TryStreamExt as _};
use tenure_core::driver::{
    DeadLetter, Listed, MessageInfo, MessagePage, PurgePlace, PurgeStep, Purged, QueuePage, Redriven, Rest,
};
use tenure_core::queue::{Queue, QueueLimits, QueueName, Rate, Reason};
use tenure_memory::Operation;

use crate::queues::stage::{ms, plan, staged, staged_with};

fn texts(messages: &[MessageInfo]) -> Vec<String> {
    messages.iter().map(|info| String::from_utf8(info.payload.as_bytes().to_vec()).unwrap()).collect()
}

async fn dead(queue: &Queue<String>, reasons: &[&str]) {
    for reason in reasons {
        queue.push(&(*reason).to_owned()).await.unwrap();
        queue.receive().await.unwrap().bury(Some(Reason::new(reason).unwrap())).await.unwrap();
    }
}

fn because(reason: &'static str) -> impl FnMut(&DeadLetter) -> bool {
    move |letter| letter.reason.as_ref().is_some_and(|reported| reported.as_str() == reason)
}

#[tokio::test(start_paused = true)]
async fn a_list_goes_through_all_pages_and_changes_nothing() {
    let (_, _, _, queue) = staged();
    for number in 0..250_u64 {
        queue.push(&number.to_string()).delay(ms(1_000 - number)).await.unwrap();
    }
    let before = queue.stats().await.unwrap();
    let all: Vec<_> = queue.list(Listed::Waiting).try_collect().await.unwrap();
    let soonest_first: Vec<_> = (0..250).rev().map(|number: u64| number.to_string()).collect();
    assert_eq!(texts(&all), soonest_first);
    assert_eq!(queue.peek().await.unwrap().map(|info| info.due_in), Some(ms(751)));
    assert!(pin!(queue.list(Listed::InFlight)).next().await.is_none());
    assert_eq!(queue.stats().await.unwrap(), before);
    tokio::time::advance(ms(900)).await;
    let deliveries = queue.receive_many(10).await.unwrap();
    let in_flight: Vec<_> = queue.list(Listed::InFlight).try_collect().await.unwrap();
    assert_eq!(in_flight.len(), deliveries.len());
    assert!(queue.list_page(Listed::Waiting, None, 0).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn dead_letters_are_chosen_by_what_they_say() {
    let (_, _, _, queue) = staged();
    dead(&queue, &["outage", "poison", "outage", "poison", "poison"]).await;
    let letters = queue.dead_letters();
    assert_eq!(letters.purge_where(because("poison")).await.unwrap(), 3);
    assert_eq!(letters.redrive_where(ms(0), because("no such thing")).await.unwrap(), 0);
    assert_eq!(letters.redrive_where(ms(0), because("outage")).await.unwrap(), 2);
    let stats = queue.stats().await.unwrap();
    assert_eq!((stats.ready, stats.dead), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn every_dead_letter_is_looked_at_once_on_whichever_page_it_is() {
    let (_, _, _, queue) = staged();
    dead(&queue, &["outage"; 600]).await;
    let mut seen = HashSet::new();
    let looked = |letter: &DeadLetter| {
        assert!(seen.insert(letter.id.clone()), "{} was shown twice", letter.id);
        false
    };
    assert_eq!(queue.dead_letters().purge_where(looked).await.unwrap(), 0);
    assert_eq!(seen.len(), 600);
    assert_eq!(queue.dead_letters().redrive_all(ms(0)).await.unwrap(), 600);
}

#[tokio::test(start_paused = true)]
async fn limits_hold_for_all_receivers_until_they_are_taken_away() {
    let (_, _, _, queue) = staged();
    let limits = QueueLimits::none().in_flight(2).unwrap().rate(Rate::new(3, ms(3_000)).unwrap());
    queue.limit(limits).await.unwrap();
    assert_eq!(queue.stats().await.unwrap().limits, limits);
    for number in 0..5 {
        queue.push(&number.to_string()).await.unwrap();
    }
    let two = queue.try_receive_many(5).await.unwrap();
    assert_eq!(two.len(), 2, "two in flight");
    queue.ack_many(two).await.unwrap();
    let one = queue.try_receive_many(5).await.unwrap();
    assert_eq!(one.len(), 1, "three tokens were in the bucket");
    queue.ack_many(one).await.unwrap();
    assert!(queue.try_receive().await.unwrap().is_none());
    let start = tokio::time::Instant::now();
    queue.receive().await.unwrap().ack().await.unwrap();
    let waited = start.elapsed();
    assert!(waited >= ms(999) && waited < ms(1_100), "a token a second: {waited:?}");
    queue.limit(QueueLimits::none()).await.unwrap();
    assert!(queue.try_receive().await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn dead_letters_are_looked_at_and_moved_in_steps_that_fit_the_backend() {
    let (stage, _, _, queue) = staged_with(|caps| caps.batch = 10);
    let dead_asked = || std::mem::take(&mut *stage.dead.lock().unwrap());
    dead(&queue, &["outage"; 25]).await;
    assert_eq!(queue.dead_letters().purge_where(because("poison")).await.unwrap(), 0);
    assert_eq!(dead_asked(), [10, 10, 5]);
    assert_eq!(queue.dead_letters().redrive_all(ms(0)).await.unwrap(), 25);
    assert_eq!(dead_asked(), [10, 10, 5]);
}

#[tokio::test(start_paused = true)]
async fn more_dead_letters_than_the_backend_takes_at_once_are_refused_unsent() {
    let (stage, _, _, queue) = staged_with(|caps| caps.batch = 2);
    dead(&queue, &["outage"; 3]).await;
    let letters = queue.dead_letters();
    let ids: Vec<_> = letters.list(None, 2).await.unwrap().letters.into_iter().map(|letter| letter.id).collect();
    stage.dead.lock().unwrap().clear();
    let three = || ids.iter().chain(&ids[..1]).cloned();
    let refused = [
        letters.list(None, 0).await.map(drop),
        letters.list(None, 3).await.map(drop),
        letters.redrive(three()).await.map(drop),
        letters.redrive([]).await.map(drop),
        letters.purge(three()).await.map(drop),
    ];
    assert_eq!(refused.map(|answer| answer.unwrap_err().kind()), [tenure_core::ErrorKind::InvalidArgument; 5]);
    assert_eq!(letters.redrive_where(ms(0), because("poison")).await.unwrap(), 0);
    assert_eq!(*stage.dead.lock().unwrap(), [2, 1], "only looked at");
    assert_eq!(letters.redrive(ids).await.unwrap(), 2);
}

#[tokio::test(start_paused = true)]
async fn letters_that_die_while_others_are_looked_at_are_left_for_the_next_time() {
    let (stage, memory, _, queue) = staged_with(|caps| caps.batch = 10);
    dead(&queue, &["outage"; 25]).await;
    memory.faults().delay(Operation::Operate, ms(20));
    let mut seen = 0;
    let looking = queue.dead_letters();
    let looked = looking.purge_where(|_| {
        seen += 1;
        false
    });
    let later = async {
        tokio::time::sleep(ms(30)).await;
        dead(&queue, &["late"; 25]).await;
    };
    let (purged, ()) = tokio::join!(looked, later);
    assert_eq!((purged.unwrap(), seen), (0, 25));
    assert_eq!(*stage.dead.lock().unwrap(), [10, 10, 5]);
}

#[tokio::test(start_paused = true)]
async fn the_first_in_line_is_found_behind_what_is_damaged() {
    let (stage, _, _, queue) = staged();
    assert_eq!(queue.peek().await.unwrap(), None);
    for text in ["a", "b"] {
        queue.push(&text.to_owned()).await.unwrap();
    }
    let first = queue.list_page(Listed::Waiting, None, 1).await.unwrap();
    assert_eq!(texts(&first.messages), ["a"]);
    stage.pages.lock().unwrap().push_back(MessagePage::new(Vec::new(), first.next));
    let found = queue.peek().await.unwrap().unwrap();
    assert_eq!(texts(&[found]), ["b"], "the first was damaged");
    stage.pages.lock().unwrap().push_back(MessagePage::new(Vec::new(), None));
    assert_eq!(queue.peek().await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn each_step_continues_where_the_one_before_ended_and_the_last_one_ends_it() {
    let (stage, _, client, queue) = staged();
    let places = || std::mem::take(&mut *stage.places.lock().unwrap());
    let at = |at| Some(PurgePlace { newest: 9, at });
    plan(&stage.purges, [PurgeStep::new(3, at(1)), PurgeStep::new(0, at(2)), PurgeStep::new(2, None)]);
    assert_eq!(queue.purge().await.unwrap(), 5);
    assert_eq!(places(), [None, at(1), at(2)].map(|place| format!("{place:?}")));
    let [a, b, c] = ["a", "b", "c"].map(|name| QueueName::new(name).unwrap());
    let pages = [QueuePage::new(vec![a.clone(), b.clone()], Rest::More), QueuePage::new(vec![c.clone()], Rest::None)];
    plan(&stage.queues, pages);
    assert_eq!(client.list_queues().await.unwrap(), [a, b.clone(), c]);
    assert_eq!(places(), [None, Some(b)].map(|place| format!("{place:?}")));
}

/// A backend that says without end that there is more keeps nobody for ever.
#[tokio::test(start_paused = true)]
async fn a_step_that_does_nothing_is_the_last_one_whatever_is_left() {
    let (stage, _, client, queue) = staged();
    let (letters, asked) = (queue.dead_letters(), || std::mem::take(&mut *stage.dead.lock().unwrap()).len());
    dead(&queue, &["outage"; 5]).await;
    for (last, rest) in [(0, Rest::More), (1, Rest::None)] {
        plan(&stage.redrives, [Redriven::new(2, Rest::More), Redriven::new(last, rest)]);
        assert_eq!((letters.redrive_all(ms(0)).await.unwrap(), asked()), (2 + last, 2));
        plan(&stage.dead_purges, [Purged::new(2, Rest::More), Purged::new(last, rest)]);
        assert_eq!((letters.purge_all().await.unwrap(), queue.stats().await.unwrap().dead), (2 + last, 5));
    }
    plan(&stage.redrives, [Redriven::new(5, Rest::More)]);
    assert_eq!((letters.redrive_all(ms(0)).await.unwrap(), asked()), (5, 1), "those that died meanwhile are left");
    let a = QueueName::new("a").unwrap();
    plan(&stage.queues, [QueuePage::new(vec![a.clone()], Rest::More), QueuePage::new(Vec::new(), Rest::More)]);
    assert_eq!(client.list_queues().await.unwrap(), [a]);
}
