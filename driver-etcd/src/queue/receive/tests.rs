//! Which messages a receive takes, and which of them it leaves, where several are at it.

use tenure_core::driver::{Attempts, Delay, NewMessage};
use tenure_core::queue::QueueLimits;
use tenure_testkit::EtcdCluster;

use super::super::test_support::{SECOND, queue};
use super::*;
use crate::EtcdDriver;
use crate::test_support::{requests, served, unserved};

fn message(text: &str) -> NewMessage {
    NewMessage::new(Payload::new(text.as_bytes()).unwrap())
}

fn key() -> ConcurrencyKey {
    ConcurrencyKey::new("k").unwrap()
}

fn request(max: usize) -> ReceiveRequest {
    ReceiveRequest::new(queue(), max, Lease::new(std::time::Duration::from_secs(30)).unwrap())
}

async fn push(driver: &EtcdDriver, text: &str, seconds: u64, key: Option<ConcurrencyKey>) {
    let delay = Delay::new(std::time::Duration::from_secs(seconds)).unwrap();
    let message = message(text).with_due(tenure_core::driver::Due::After(delay)).with_key(key);
    driver.inner.push(&queue(), &[message]).await.unwrap();
}

fn texts(deliveries: &[RawDelivery]) -> Vec<&str> {
    deliveries.iter().map(|delivery| std::str::from_utf8(delivery.payload.as_bytes()).unwrap()).collect()
}

/// Two clients of a queue.
fn pair() -> (EtcdCluster, EtcdDriver, EtcdDriver) {
    let (cluster, one) = served();
    let other = EtcdDriver::new(cluster.url().parse().unwrap());
    (cluster, one, other)
}

fn crowded(driver: &EtcdDriver) -> u32 {
    driver.inner.crowded.load(Ordering::Relaxed)
}

#[test]
fn what_becomes_of_a_message_depends_on_its_place_its_key_and_the_room_there_is() {
    let driver = unserved();
    let turn = Turn::new(&driver.inner, &queue());
    let (waiting, leased) = (Location::Waiting(turn.now), Location::Leased(turn.now));
    let (free, busy) = (Some(false), Some(true));
    // The place, whether there is a key and a message of it in the same transaction, whether all attempts were made, and
    // how many more may be delivered and die: before, and after it.
    for (place, of_key, exhausted, (left, room), then) in [
        (waiting, None, false, (2, 0), ("delivered", 1, 0)),
        (waiting, None, false, (0, 0), ("left alone", 0, 0)),
        (waiting, free, false, (2, 0), ("delivered", 1, 0)),
        (waiting, busy, false, (2, 0), ("held back", 2, 0)),
        (waiting, free, false, (0, 0), ("held back", 0, 0)),
        (leased, None, false, (2, 0), ("delivered", 1, 0)),
        (leased, free, false, (2, 0), ("delivered", 1, 0)),
        (leased, busy, false, (2, 0), ("delivered", 1, 0)),
        (leased, busy, false, (0, 0), ("left alone", 0, 0)),
        (waiting, None, true, (2, 2), ("dead", 2, 1)),
        (waiting, None, true, (0, 0), ("postponed", 0, 0)),
        (leased, free, true, (2, 1), ("dead", 2, 0)),
        (leased, busy, true, (2, 2), ("left alone", 2, 2)),
        (waiting, busy, true, (2, 2), ("left alone", 2, 2)),
    ] {
        let key = key();
        let message = message("a").with_key(of_key.map(|_| key.clone()));
        let mut entry = Entry::without_place(&turn.keys, place, 1);
        entry.record = Record::of(&message, turn.now, turn.now);
        (entry.record.life.attempt, entry.record.serial) = (3, 5);
        entry.record.life.attempts = Attempts::new(if exhausted { 3 } else { 4 }).unwrap();
        let keys = HashSet::from_iter((of_key == busy).then_some(&key));
        let mut plan = Plan { lease: request(1).lease, left, room, keys };
        let fate = match turn.decide(&entry, &mut plan) {
            None => "left alone",
            Some((Fate::Held, _)) => "held back",
            Some((Fate::Buried(Burial::Dead), _)) => "dead",
            Some((Fate::Buried(Burial::Postponed), _)) => "postponed",
            Some((Fate::Delivered(until, record), _)) => {
                assert_eq!((until, record.life.attempt, record.serial), (turn.now + 30 * SECOND, 4, 6));
                "delivered"
            }
        };
        assert_eq!((fate, plan.left, plan.room), then, "{place:?}, {of_key:?}, {exhausted}, {left}, {room}");
        let changes_key = of_key == free && (place.set() == Set::Waiting && left > 0 || exhausted);
        assert_eq!(plan.keys.len(), usize::from(changes_key || of_key == busy), "{place:?}, {exhausted}, {left}");
    }
}

#[test]
fn of_a_lease_that_has_ended_by_its_own_clock_a_client_learns_when_those_of_others_have() {
    let driver = unserved();
    let turn = Turn::new(&driver.inner, &queue());
    assert_eq!(turn.noticed(turn.now + 1), turn.now + 1);
    assert_eq!([turn.now, turn.now - 5].map(|until| turn.noticed(until)), [turn.now + SECOND, turn.now + SECOND - 5]);
}

#[tokio::test]
async fn what_is_left_to_others_is_reported_as_far_as_it_is_known() {
    let (_cluster, driver) = served();
    let turn = Turn::new(&driver.inner, &queue());
    let mut due = turn.due(1, None).await.unwrap().unwrap();
    assert!(matches!(due.next, Ahead::NotSoon) && due.count == 0 && !due.more && !due.held);
    let now = turn.now;
    for (count, next, taken, own, left) in [
        (3, Ahead::NotSoon, 1, now + 9, Some((now, 2))),
        (1, Ahead::NotSoon, 1, now + 9, None),
        (1, Ahead::Known(None), 1, now + 9, Some((now + 9, 1))),
        (1, Ahead::Known(Some(now + 5)), 1, now + 9, Some((now + 5, 1))),
        (0, Ahead::Known(Some(now + 9)), 1, now + 5, Some((now + 5, 1))),
    ] {
        (due.count, due.next) = (count, next);
        let reported = turn.left(&due, taken, own, &Limiter::default());
        assert_eq!(reported, left.map(|(due, wanted)| Soonest { due, wanted }), "{count} due, {next:?}, {taken} taken");
    }
}

#[tokio::test]
async fn a_look_tells_whether_there_is_more_and_what_is_next() {
    let (_cluster, driver) = served();
    for text in ["a", "b", "c"] {
        push(&driver, text, 0, None).await;
    }
    let turn = Turn::new(&driver.inner, &queue());
    let look = async |limit| {
        let due = turn.due(limit, None).await.unwrap().unwrap();
        (due.entries.len(), due.more, due.count)
    };
    assert_eq!((look(2).await, look(3).await, look(4).await), ((2, true, 3), (3, false, 3), (3, false, 3)));
    let got = driver.inner.receive(&request(2)).await.unwrap().deliveries;
    // By a clock that is a minute ahead, their leases have ended.
    let later = Turn { now: turn.now + 60 * SECOND, ..Turn::new(&driver.inner, &queue()) };
    let look = async |limit| {
        let due = later.due(limit, None).await.unwrap().unwrap();
        (due.entries.iter().map(|entry| entry.place.set()).collect::<Vec<_>>(), due.more, due.count)
    };
    assert_eq!(texts(&got), ["a", "b"]);
    assert_eq!(look(1).await, (vec![Set::Waiting], true, 3));
    assert_eq!(look(2).await, (vec![Set::Waiting, Set::Leased], true, 3));
    assert_eq!(look(3).await, (vec![Set::Waiting, Set::Leased, Set::Leased], false, 3));
    for (seconds, soon) in [(60, false), (2, true)] {
        push(&driver, "later", seconds, None).await;
        let turn = Turn::new(&driver.inner, &queue());
        match turn.due(9, None).await.unwrap().unwrap().next {
            Ahead::NotSoon => assert!(!soon),
            Ahead::Known(next) => assert!(soon && next.is_some_and(|next| next <= turn.now + 2 * SECOND)),
        }
    }
}

#[tokio::test]
async fn a_receive_says_when_the_next_one_is_worth_it() {
    let (_cluster, driver) = served();
    let next = async |max| driver.inner.receive(&request(max)).await.unwrap().next;
    let within = |next: Next, seconds: u64| match next {
        Next::In(span) => span.as_secs() < seconds && span.as_secs() + 10 >= seconds,
        _ => false,
    };
    assert_eq!(next(1).await, Next::Never);
    push(&driver, "far", 100, None).await;
    assert!(within(next(1).await, 100));
    push(&driver, "now", 0, None).await;
    assert!(within(next(1).await, 31), "the lease that it gave out");
    push(&driver, "soon", 2, None).await;
    push(&driver, "now", 0, None).await;
    assert!(within(next(9).await, 3), "what is soon, before the leases");
    for _ in 0..2 {
        push(&driver, "now", 0, None).await;
    }
    assert_eq!(next(1).await, Next::Now, "there is more");
    driver.inner.pause(&queue()).await.unwrap();
    assert_eq!(next(1).await, Next::Paused);
}

#[tokio::test]
async fn what_another_client_took_since_the_look_is_looked_for_once_more() {
    let (_cluster, one, other) = pair();
    push(&one, "a", 0, None).await;
    push(&one, "b", 0, None).await;
    let (turn, mut gathered) = (Turn::new(&one.inner, &queue()), Gathered::default());
    let due = turn.due(9, None).await.unwrap().unwrap();
    assert_eq!(texts(&other.inner.receive(&request(1)).await.unwrap().deliveries), ["a"]);
    assert!(!turn.take(&due, &request(9), &mut gathered, None).await.unwrap());
    assert_eq!((texts(&gathered.deliveries), gathered.passing, crowded(&one)), (vec!["b"], false, CROWDED));
}

/// The other client receives a message of the same key, which is due by its own clock as well.
#[tokio::test]
async fn what_its_key_holds_back_since_the_look_is_passed_over() {
    let (_cluster, one, other) = pair();
    push(&one, "later", 5, Some(key())).await;
    push(&one, "free", 6, None).await;
    let (mut turn, mut gathered) = (Turn::new(&one.inner, &queue()), Gathered::default());
    turn.now += 10 * SECOND;
    let due = turn.due(9, None).await.unwrap().unwrap();
    push(&one, "now", 0, Some(key())).await;
    assert_eq!(texts(&other.inner.receive(&request(1)).await.unwrap().deliveries), ["now"]);
    assert!(turn.take(&due, &request(9), &mut gathered, None).await.unwrap(), "nobody took anything");
    assert_eq!((texts(&gathered.deliveries), gathered.passing, crowded(&one)), (vec!["free"], true, 0));
}

#[tokio::test]
async fn where_others_are_faster_each_client_begins_somewhere_else_for_a_while() {
    let (_cluster, driver) = served();
    for text in ["0", "1", "2", "3", "4"] {
        push(&driver, text, 0, None).await;
    }
    let turn = Turn::new(&driver.inner, &queue());
    let numbers: Vec<u64> = turn.due(9, None).await.unwrap().unwrap().entries.iter().map(|one| one.number).collect();
    let begins = async || {
        let due = turn.due(2, None).await.unwrap().unwrap();
        let at = numbers.iter().position(|number| *number == due.entries[0].number).unwrap();
        assert!(due.entries.len() == 2 && due.entries[1].number == numbers[at + 1] && due.more);
        at
    };
    for left in (0..CROWDED).rev() {
        let _ = driver.inner.crowded.compare_exchange(0, CROWDED, Ordering::Relaxed, Ordering::Relaxed);
        begins().await;
        assert_eq!(crowded(&driver), left);
    }
    assert_eq!((begins().await, crowded(&driver)), (0, 0), "at the front, as before");
    let mut seen = HashSet::new();
    for _ in 0..200 {
        driver.inner.crowded.store(1, Ordering::Relaxed);
        seen.insert(begins().await);
    }
    assert_eq!(seen, HashSet::from([0, 1, 2, 3]));
}

#[tokio::test]
async fn what_dies_is_counted_and_so_is_what_comes_again() {
    let (cluster, _) = served();
    let driver = EtcdDriver::new(format!("{}?max_dead_letters=1", cluster.url()).parse().unwrap());
    let once = Attempts::new(1).unwrap();
    let messages = [message("a").with_attempts(once), message("b").with_attempts(once), message("c")];
    driver.inner.push(&queue(), &messages).await.unwrap();
    let healed = async || {
        let received = driver.inner.receive(&request(9)).await.unwrap();
        let healed = received.healed;
        (received.deliveries.len(), [healed.dead, healed.postponed, healed.expired, healed.orphans])
    };
    assert_eq!(healed().await, (3, [0; 4]));
    driver.inner.clock.at_least(driver.inner.clock.now() + 60 * SECOND);
    assert_eq!(healed().await, (1, [1, 1, 3, 0]));
}

#[tokio::test]
async fn a_foreign_key_among_messages_goes_and_they_do_not() {
    let (_cluster, driver) = served();
    push(&driver, "a", 0, None).await;
    push(&driver, "b", 0, None).await;
    let turn = Turn::new(&driver.inner, &queue());
    let odd = [turn.keys.range(Set::Waiting, 5, None).0, b"odd".to_vec()].concat();
    turn.write([TxnOp::put(odd.as_slice(), "", None)]).await;
    let due = turn.due(9, None).await.unwrap().unwrap();
    assert!(due.entries.len() == 2 && due.more, "somebody has to look once more");
    let count = turn.look(vec![TxnOp::get(odd, None)]).await.unwrap()[0].count();
    let due = turn.due(9, None).await.unwrap().unwrap();
    assert_eq!((count, due.entries.len(), due.more), (0, 2, false));
    assert_eq!(texts(&driver.inner.receive(&request(9)).await.unwrap().deliveries), ["a", "b"]);
    // Of leases that have ended there may be more as well, though nothing else is due.
    let later = Turn { now: turn.now + 60 * SECOND, ..Turn::new(&driver.inner, &queue()) };
    let due = later.due(1, None).await.unwrap().unwrap();
    assert_eq!((due.entries.len(), due.more), (1, true));
}

#[tokio::test]
async fn where_nothing_is_due_nobody_waits_for_a_token() {
    let (_cluster, driver) = served();
    let rate = tenure_core::queue::Rate::new(1, std::time::Duration::from_secs(100)).unwrap();
    driver.inner.limit(&queue(), &QueueLimits::none().rate(rate)).await.unwrap();
    push(&driver, "a", 0, None).await;
    let received = driver.inner.receive(&request(1)).await.unwrap();
    let ack = tenure_core::driver::Settle::new(received.deliveries[0].receipt, tenure_core::driver::Settlement::Ack);
    driver.inner.settle(&queue(), &[ack]).await.unwrap();
    assert_eq!(driver.inner.receive(&request(1)).await.unwrap().next, Next::Never);
    push(&driver, "b", 0, None).await;
    let received = driver.inner.receive(&request(1)).await.unwrap();
    assert!(received.deliveries.is_empty());
    assert!(matches!(received.next, Next::In(span) if (90..=100).contains(&span.as_secs())), "{:?}", received.next);
}

/// Else a queue whose messages die would hand out fewer than it may.
#[tokio::test]
async fn a_message_that_dies_takes_no_token() {
    let (_cluster, driver) = served();
    let rate = tenure_core::queue::Rate::new(3, std::time::Duration::from_secs(300)).unwrap();
    let once = Attempts::new(1).unwrap();
    driver.inner.push(&queue(), &[message("a").with_attempts(once)]).await.unwrap();
    driver.inner.receive(&request(1)).await.unwrap();
    driver.inner.clock.at_least(driver.inner.clock.now() + 60 * SECOND);
    driver.inner.limit(&queue(), &QueueLimits::none().rate(rate)).await.unwrap();
    push(&driver, "b", 0, None).await;
    push(&driver, "c", 0, None).await;
    let received = driver.inner.receive(&request(9)).await.unwrap();
    assert_eq!((texts(&received.deliveries), received.healed.dead), (vec!["b", "c"], 1));
    push(&driver, "d", 0, None).await;
    assert_eq!(texts(&driver.inner.receive(&request(9)).await.unwrap().deliveries), ["d"]);
}

/// Another key's messages come first, and are held back in a second look.
#[tokio::test]
async fn no_more_is_handed_out_than_was_asked_for_over_several_looks() {
    let (_cluster, driver) = served();
    for (text, keyed) in [("k1", true), ("k2", true), ("a", false), ("b", false)] {
        push(&driver, text, 0, keyed.then(key)).await;
    }
    let received = driver.inner.receive(&request(2)).await.unwrap();
    assert_eq!((texts(&received.deliveries), received.next), (vec!["k1", "a"], Next::Now));
}

/// The lease of a message whose record is damaged has ended: it is the damage that it dies of.
#[tokio::test]
async fn what_is_damaged_says_so_whatever_became_of_its_lease() {
    let (_cluster, driver) = served();
    push(&driver, "a", 0, None).await;
    driver.inner.receive(&request(1)).await.unwrap();
    let turn = Turn::new(&driver.inner, &queue());
    let (from, to) = turn.keys.range(Set::Leased, 0, None);
    let found = turn.look(vec![TxnOp::get(from, Some(GetOptions::new().with_range(to)))]).await.unwrap();
    let put = TxnOp::put(found[0].kvs()[0].key(), "?", None);
    turn.write([put]).await;
    driver.inner.clock.at_least(driver.inner.clock.now() + 60 * SECOND);
    assert!(driver.inner.receive(&request(1)).await.unwrap().deliveries.is_empty());
    let dead = driver.inner.dead_list(&queue(), None, 9).await.unwrap().letters;
    assert_eq!((dead.len(), dead[0].cause), (1, DeadCause::Damaged));
    assert!(dead[0].reason.as_ref().unwrap().as_str().starts_with("damaged: "), "{:?}", dead[0].reason);
}

#[tokio::test]
async fn what_keys_hold_back_is_not_looked_at_while_there_is_more_to_look_at() {
    let (cluster, driver) = served();
    push(&driver, "k1", 0, Some(key())).await;
    push(&driver, "k2", 0, Some(key())).await;
    assert_eq!(texts(&driver.inner.receive(&request(9)).await.unwrap().deliveries), ["k1"]);
    let turn = Turn::new(&driver.inner, &queue());
    driver.inner.held_looks.is_due(&turn.keys, turn.now);
    let odd = [turn.keys.range(Set::Waiting, 5, None).0, b"odd".to_vec()].concat();
    turn.write([TxnOp::put(odd, "", None)]).await;
    let due = turn.due(9, None).await.unwrap().unwrap();
    assert!(due.entries.is_empty() && due.more && due.held);
    let before = requests(&cluster);
    assert!(!turn.found_stranded(&due).await.unwrap());
    assert_eq!(requests(&cluster), before);
}
