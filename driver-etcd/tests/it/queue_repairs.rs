//! Queues whose state somebody has harmed: a client that ended between two steps, or a foreign hand.

use std::time::{Duration, Instant};

use crate::common::*;
use tenure_core::ErrorKind;
use tenure_core::driver::{
    Cancelled, DeadCause, DeadSelection, Delay, DelayQueue as _, DelayQueueExt as _, Due, Lease, MessageState, NamedId,
    NewMessage, Pushed, QueueAdmin as _, RawDelivery, ReceiveRequest, Settle, Settled, Settlement,
};
use tenure_core::queue::{ConcurrencyKey, MessageId};
use tenure_etcd::EtcdDriver;

fn keyed(payload: &[u8], key: &str) -> NewMessage {
    message(payload).with_key(Some(ConcurrencyKey::new(key).unwrap()))
}

async fn push(driver: &EtcdDriver, messages: &[NewMessage]) -> Vec<MessageId> {
    let stored = |pushed| match pushed {
        Pushed::Stored(id) => id,
        other => panic!("it is not stored: {other:?}"),
    };
    driver.push(&queue(), messages).await.unwrap().into_iter().map(stored).collect()
}

fn texts(deliveries: &[RawDelivery]) -> Vec<String> {
    deliveries.iter().map(|delivery| String::from_utf8_lossy(delivery.payload.as_bytes()).into_owned()).collect()
}

/// A message is held back behind "a" of its key, and "a" is gone as if its client had ended right after.
async fn strand(driver: &EtcdDriver, etcd: &mut etcd_client::Client) {
    push(driver, &[keyed(b"a", "k"), keyed(b"stranded", "k")]).await;
    let first = receive(driver, 1, 30 * SECOND).await.deliveries;
    assert!(receive(driver, 1, 30 * SECOND).await.deliveries.is_empty());
    for part in ["p", "b", "l"] {
        harm(etcd, &first[0].id, &Harm { part, value: None }).await;
    }
}

/// After how long the stranded message comes while more messages are due than are taken.
async fn comes_under_a_backlog(driver: &EtcdDriver) -> Duration {
    let begun = Instant::now();
    push(driver, &vec![message(b"backlog"); 100]).await;
    loop {
        push(driver, &vec![message(b"backlog"); 5]).await;
        let got = receive(driver, 5, 30 * SECOND).await.deliveries;
        if texts(&got).iter().any(|text| text == "stranded") {
            return begun.elapsed();
        }
        assert_eq!(got.len(), 5, "there is a backlog");
        ack(driver, &got).await;
        assert!(begun.elapsed() < 20 * SECOND, "it starves");
    }
}

#[tokio::test]
async fn a_stranded_message_comes_within_two_seconds_under_a_backlog() {
    let cluster = server();
    let (driver, mut etcd) = (driver(&cluster), raw(&cluster).await);
    strand(&driver, &mut etcd).await;
    assert_eq!(etcd.delete("tenure:queue/of/jobs/f/k", None).await.unwrap().deleted(), 1);
    let after = comes_under_a_backlog(&driver).await;
    assert!(after < 2 * SECOND, "{after:?}");
}

#[tokio::test]
async fn a_stranded_message_comes_though_other_keys_hold_back_hundreds() {
    let cluster = server();
    let (driver, mut etcd) = (driver(&cluster), raw(&cluster).await);
    push(&driver, &[keyed(b"busy", "a-busy-one")]).await;
    receive(&driver, 1, 30 * SECOND).await;
    for _ in 0..3 {
        push(&driver, &vec![keyed(b"in the way", "a-busy-one"); 100]).await;
    }
    assert!(receive(&driver, 1, 30 * SECOND).await.deliveries.is_empty());
    strand(&driver, &mut etcd).await;
    assert_eq!(etcd.delete("tenure:queue/of/jobs/f/k", None).await.unwrap().deleted(), 1);
    let after = comes_under_a_backlog(&driver).await;
    assert!(after < 2 * SECOND, "{after:?}");
}

#[tokio::test]
async fn a_key_whose_message_is_gone_is_free_again() {
    let cluster = server();
    let (driver, mut etcd) = (driver(&cluster), raw(&cluster).await);
    strand(&driver, &mut etcd).await;
    let after = comes_under_a_backlog(&driver).await;
    assert!(after < 2 * SECOND, "{after:?}");
}

/// Also beside a key whose message is in flight, and where its own mark leads to a message that is not.
#[tokio::test]
async fn a_key_is_free_unless_it_leads_to_a_message_in_flight() {
    for leads_elsewhere in [false, true] {
        let cluster = server();
        let (driver, mut etcd) = (driver(&cluster), raw(&cluster).await);
        push(&driver, &[keyed(b"busy", "a-busy-one"), keyed(b"held", "a-busy-one")]).await;
        let busy = receive(&driver, 2, 30 * SECOND).await.deliveries;
        strand(&driver, &mut etcd).await;
        if leads_elsewhere {
            let name = NamedId::new(MessageId::named("x").unwrap(), Delay::ZERO);
            let later = Due::After(Delay::new(600 * SECOND).unwrap());
            push(&driver, &[message(b"later").with_id(Some(name)).with_due(later)]).await;
            let other = etcd.get("tenure:queue/of/jobs/n/x", None).await.unwrap().kvs()[0].value().to_vec();
            etcd.put("tenure:queue/of/jobs/f/k", other, None).await.unwrap();
        }
        let after = comes_under_a_backlog(&driver).await;
        assert!(after < 2 * SECOND, "{after:?}");
        assert_eq!((texts(&busy), driver.stats(&queue()).await.unwrap().dead), (vec!["busy".to_owned()], 0));
    }
}

#[tokio::test]
async fn a_failure_behind_a_settlement_leaves_open_what_was_done() {
    let cluster = server();
    let (driver, mut etcd) = (driver(&cluster), raw(&cluster).await);
    push(&driver, &[message(b"a"), message(b"b")]).await;
    let a = receive(&driver, 1, 30 * SECOND).await.deliveries.remove(0);
    etcd.put("tenure:queue/of/jobs/limits", "foreign", None).await.unwrap();
    let request = ReceiveRequest::new(queue(), 1, Lease::DEFAULT);
    let ack = [Settle::new(a.receipt, Settlement::Ack)];
    let kind = async |settles: &[Settle]| driver.exchange(settles, &request).await.unwrap_err().kind();
    assert_eq!((kind(&[]).await, kind(&ack).await), (ErrorKind::Damaged, ErrorKind::Indeterminate));
    etcd.delete("tenure:queue/of/jobs/limits", None).await.unwrap();
    assert_eq!(driver.settle(&queue(), &ack).await.unwrap(), [Settled::Stale], "it was done");
}

#[tokio::test]
async fn a_foreign_key_in_front_of_what_a_key_holds_back_goes() {
    let cluster = server();
    let (driver, mut etcd) = (driver(&cluster), raw(&cluster).await);
    push(&driver, &[keyed(b"a", "k"), keyed(b"next", "k")]).await;
    let first = receive(&driver, 1, 30 * SECOND).await.deliveries;
    assert!(receive(&driver, 1, 30 * SECOND).await.deliveries.is_empty(), "the next one is held back");
    for stray in ["k/k/0", "k/k/00", "k/%"] {
        etcd.put(format!("tenure:queue/of/jobs/{stray}"), "", None).await.unwrap();
    }
    ack(&driver, &first).await;
    assert_eq!(texts(&receive(&driver, 1, 30 * SECOND).await.deliveries), ["next"]);
}

#[tokio::test]
async fn foreign_keys_in_front_of_ids_do_not_keep_them_from_being_forgotten() {
    let cluster = server();
    let (driver, mut etcd) = (driver(&cluster), raw(&cluster).await);
    for stray in 0..40 {
        etcd.put(format!("tenure:queue/of/jobs/s/0000{stray:02}"), "", None).await.unwrap();
    }
    let window = Delay::new(Duration::from_millis(1)).unwrap();
    let id = NamedId::new(MessageId::named("once").unwrap(), window);
    push(&driver, &[message(b"a").with_id(Some(id))]).await;
    let got = receive(&driver, 1, 30 * SECOND).await.deliveries;
    ack(&driver, &got).await;
    let remembered = || etcd_client::GetOptions::new().with_prefix().with_count_only();
    until("the id is forgotten", async || {
        receive(&driver, 1, 30 * SECOND).await;
        etcd.get("tenure:queue/of/jobs/s/", Some(remembered())).await.unwrap().count() == 0
    })
    .await;
}

/// What a foreign hand does to a message: the key that is harmed, and what is written there; nothing: it is deleted.
struct Harm {
    part: &'static str,
    value: Option<Vec<u8>>,
}

async fn harm(etcd: &mut etcd_client::Client, id: &MessageId, harm: &Harm) {
    let number = format!("{:016x}", id.as_number().unwrap());
    let all = etcd_client::GetOptions::new().with_prefix().with_keys_only();
    let found = etcd.get(format!("tenure:queue/of/jobs/{}/", harm.part), Some(all)).await.unwrap();
    let key = found.kvs().iter().map(|found| found.key().to_vec()).find(|key| key.ends_with(number.as_bytes()));
    let key = key.expect("there is such a key");
    match &harm.value {
        Some(value) => drop(etcd.put(key, value.clone(), None).await.unwrap()),
        None => drop(etcd.delete(key, None).await.unwrap()),
    }
}

fn harms() -> Vec<(Harm, &'static str)> {
    let cut = b"tenure-message/1\npushed=17".to_vec();
    vec![
        (Harm { part: "w", value: Some(Vec::new()) }, "damaged: its record is"),
        (Harm { part: "w", value: Some(cut) }, "damaged: its record is cut off"),
        (Harm { part: "w", value: Some(vec![255; 50]) }, "damaged: its record is"),
        (Harm { part: "b", value: Some(b"b".to_vec()) }, "damaged: its payload has 1 bytes, not 3"),
        (Harm { part: "b", value: Some(vec![7; 1_200_000]) }, "damaged: its payload has 1048576 bytes, not 3"),
    ]
}

#[tokio::test]
async fn a_damaged_message_dies_with_a_reason_and_its_neighbours_are_handed_out() {
    for (what, reason) in harms() {
        let cluster = server();
        let (driver, mut etcd) = (driver(&cluster), raw(&cluster).await);
        let ids = push(&driver, &[message(b"one"), message(b"bad"), message(b"two")]).await;
        harm(&mut etcd, &ids[1], &what).await;
        assert!(driver.get(&queue(), &ids[1]).await.unwrap().is_some(), "{reason}: it can be looked at");
        let received = receive(&driver, 10, 30 * SECOND).await;
        assert_eq!(
            (texts(&received.deliveries), received.healed.dead),
            (vec!["one".into(), "two".into()], 1),
            "{reason}"
        );
        assert_eq!(received.deliveries.iter().map(|one| one.attempt).collect::<Vec<_>>(), [1, 1], "{reason}");
        assert_eq!(ack(&driver, &received.deliveries).await, [Settled::Done; 2]);
        let letters = driver.dead_list(&queue(), None, 10).await.unwrap().letters;
        let [letter] = letters.as_slice() else { panic!("{reason}: {letters:?}") };
        assert_eq!((&letter.id, letter.cause), (&ids[1], DeadCause::Damaged), "{reason}");
        assert!(letter.reason.as_ref().unwrap().as_str().starts_with(reason), "{:?}", letter.reason);
        let all = DeadSelection::Oldest(10);
        assert_eq!(driver.dead_redrive(&queue(), &all, Delay::ZERO).await.unwrap().moved, 1, "{reason}");
        let back = receive(&driver, 10, 30 * SECOND).await;
        assert_eq!(back.deliveries.len(), 1, "{reason}: {:?}", texts(&back.deliveries));
        ack(&driver, &back.deliveries).await;
        driver.dead_purge(&queue(), &all).await.unwrap();
        assert!(driver.list_queues(None, 10).await.unwrap().queues.is_empty());
        assert_eq!(key_count(&mut etcd).await, 0, "{reason}");
    }
}

#[tokio::test]
async fn a_damaged_message_can_be_cancelled_and_purged() {
    for (what, reason) in harms() {
        let cluster = server();
        let (driver, mut etcd) = (driver(&cluster), raw(&cluster).await);
        let ids = push(&driver, &[message(b"one"), message(b"bad"), message(b"bad")]).await;
        harm(&mut etcd, &ids[1], &what).await;
        harm(&mut etcd, &ids[2], &what).await;
        assert_eq!(driver.cancel(&queue(), &ids[1]).await.unwrap(), Cancelled::Removed, "{reason}");
        assert_eq!(driver.purge(&queue(), 10, None).await.unwrap().removed, 2, "{reason}");
        assert!(driver.list_queues(None, 10).await.unwrap().queues.is_empty());
        assert_eq!(key_count(&mut etcd).await, 0, "{reason}");
    }
}

#[tokio::test]
async fn a_message_without_its_place_can_be_seen_and_cancelled_and_its_id_is_free_again() {
    let cluster = server();
    let (driver, mut etcd) = (driver(&cluster), raw(&cluster).await);
    let id = MessageId::named("order").unwrap();
    let named = || message(b"x").with_id(Some(NamedId::new(id.clone(), Delay::ZERO)));
    push(&driver, &[named()]).await;
    let places = etcd_client::DeleteOptions::new().with_prefix();
    assert_eq!(etcd.delete("tenure:queue/of/jobs/w/", Some(places)).await.unwrap().deleted(), 1);
    let seen = driver.get(&queue(), &id).await.unwrap().expect("its pointer is there");
    assert!(seen.reason.unwrap().as_str().starts_with("damaged: its place is missing"));
    assert_eq!(driver.cancel(&queue(), &id).await.unwrap(), Cancelled::Removed);
    push(&driver, &[named()]).await;
    // Nothing is left of it but the id, which leads nowhere.
    for part in ["w/", "p/", "b/"] {
        let all = etcd_client::DeleteOptions::new().with_prefix();
        etcd.delete(format!("tenure:queue/of/jobs/{part}"), Some(all)).await.unwrap();
    }
    push(&driver, &[named()]).await;
    assert_eq!(receive(&driver, 1, 30 * SECOND).await.deliveries.len(), 1);
}

#[tokio::test]
async fn numbers_at_their_end_stop_nothing() {
    let cluster = server();
    let (driver, mut etcd) = (driver(&cluster), raw(&cluster).await);
    let ids = push(&driver, &[message(b"bad"), message(b"bad"), message(b"one")]).await;
    let record = |attempt: u32, serial: u64| {
        let size = usize::MAX;
        let text = format!(
            "tenure-message/1\npushed={}\nsize={size}\nattempt={attempt}\nattempts=10\nserial={serial}\ncause=first\n",
            u64::MAX
        );
        Harm { part: "w", value: Some(text.into_bytes()) }
    };
    harm(&mut etcd, &ids[0], &record(u32::MAX, 0)).await;
    harm(&mut etcd, &ids[1], &record(0, u64::MAX)).await;
    let mut got = Vec::new();
    until("the good one is handed out", async || {
        got.extend(receive(&driver, 10, 30 * SECOND).await.deliveries);
        !got.is_empty()
    })
    .await;
    assert_eq!(texts(&got), ["one"]);
    let letters = driver.dead_list(&queue(), None, 10).await.unwrap().letters;
    let causes: Vec<_> = letters.iter().map(|letter| letter.cause).collect();
    assert_eq!(causes, [DeadCause::Exhausted, DeadCause::Damaged]);
}

/// A message at the end of time, and one whose number is greater than any that a purge removes.
#[tokio::test]
async fn a_purge_ends_at_the_end_of_time() {
    let cluster = server();
    let (driver, mut etcd) = (driver(&cluster), raw(&cluster).await);
    push(&driver, &[message(b"one")]).await;
    for set in ["w", "h"] {
        for number in [u64::MAX - 1, u64::MAX] {
            let key = format!("tenure:queue/of/jobs/{set}/{:016x}/{number:016x}", u64::MAX);
            etcd.put(key, "not ours", None).await.unwrap();
        }
    }
    let (mut from, mut removed) = (None, 0);
    for _ in 0..10 {
        let step = driver.purge(&queue(), 1, from).await.unwrap();
        (from, removed) = (step.next, removed + step.removed);
        if from.is_none() {
            break;
        }
    }
    assert_eq!((from, removed), (None, 1));
}

/// A foreign hand took the name away, and it was used anew.
#[tokio::test]
async fn a_name_that_leads_to_a_newer_message_stays_when_the_older_one_goes() {
    for window in [Delay::ZERO, Delay::new(30 * SECOND).unwrap()] {
        let cluster = server();
        let (driver, mut etcd) = (driver(&cluster), raw(&cluster).await);
        let id = MessageId::named("n").unwrap();
        let named = |payload| message(payload).with_id(Some(NamedId::new(id.clone(), window)));
        driver.push(&queue(), &[named(b"older")]).await.unwrap();
        assert_eq!(etcd.delete("tenure:queue/of/jobs/n/n", None).await.unwrap().deleted(), 1);
        driver.push(&queue(), &[named(b"newer")]).await.unwrap();
        let older = receive(&driver, 1, 30 * SECOND).await.deliveries;
        assert_eq!(texts(&older), ["older"]);
        ack(&driver, &older).await;
        let again = driver.push(&queue(), &[named(b"again")]).await.unwrap();
        assert_eq!(again, [Pushed::Duplicate(MessageState::Ready)]);
        assert_eq!(driver.cancel(&queue(), &id).await.unwrap(), Cancelled::Removed);
        driver.push(&queue(), &[named(b"anew")]).await.unwrap();
        ack(&driver, &receive(&driver, 1, 30 * SECOND).await.deliveries).await;
    }
}

/// No list would find it: the signal of a queue that is not listed.
#[tokio::test]
async fn a_queue_that_was_struck_off_the_list_has_no_signal() {
    let cluster = server();
    let url = format!("{}/?clock_error_ms=0", cluster.url());
    let (late, other) = (EtcdDriver::connect(&url).await.unwrap(), EtcdDriver::connect(&url).await.unwrap());
    let mut etcd = raw(&cluster).await;
    other.resume(&queue()).await.unwrap();
    assert_eq!(key_count(&mut etcd).await, 0);
    push(&other, &[message(b"a")]).await;
    let lost = receive(&late, 1, SECOND).await.deliveries;
    let mut again = Vec::new();
    until("the lease has ended", async || {
        again = receive(&other, 1, 30 * SECOND).await.deliveries;
        !again.is_empty()
    })
    .await;
    ack(&other, &again).await;
    assert!(other.list_queues(None, 10).await.unwrap().queues.is_empty());
    let retry = Settlement::Retry { after: Delay::ZERO, reason: None };
    let settle = Settle::new(lost[0].receipt, retry);
    assert_eq!(late.settle(&queue(), &[settle]).await.unwrap(), [Settled::Stale]);
    assert_eq!(key_count(&mut etcd).await, 0);
}
