//! Queues over servers in memory: which requests are sent, how often, and how refusals are reported.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure_core::driver::{Lease, Payload, Receipt, Settled, Settlement};

use super::*;
use crate::config::{RedisConfig, Topology};
use crate::error::ExecError;
use crate::keyspace::{ClientId, Keyspace};
use crate::link::fake_server::{Called, Scene, called, fit, server, slot_map};
use crate::settings::RedisSettings;

type Driver = crate::lock::Driver<Scene>;
type Answer = std::result::Result<Reply, ExecError>;

fn queue() -> QueueName {
    QueueName::new("q").unwrap()
}

fn text(text: impl Into<Vec<u8>>) -> Reply {
    Reply::Bytes(text.into())
}

fn ints(numbers: &[i64]) -> Reply {
    Reply::Array(numbers.iter().copied().map(Reply::Int).collect())
}

/// A driver over one server, whose scripts answer so.
async fn connected(answer: impl Fn(Called<'_>) -> Answer + Send + Sync + 'static) -> (Scene, Driver) {
    let fake_server = Scene::new();
    fake_server.answers(move |_, command| match fit(command) {
        Some(reply) => Ok(reply),
        None => answer(called(command).unwrap_or_else(|| panic!("{command}"))),
    });
    let settings = RedisSettings::default().max_backlog(8).unwrap();
    let driver = Driver::connect_on(fake_server.clone(), RedisConfig::tcp("a", 1).settings(settings)).await.unwrap();
    (fake_server, driver)
}

fn message() -> NewMessage {
    NewMessage::new(Payload::new(*b"x").unwrap())
}

fn settle() -> Settle {
    Settle::new(Receipt::new([0x2a, 7, 0]), Settlement::Ack)
}

fn up_to(max: usize) -> ReceiveRequest {
    ReceiveRequest::new(queue(), max, Lease::DEFAULT)
}

/// A turn in which one message was settled and nothing was handed out.
fn turn() -> Reply {
    Reply::Array(vec![ints(&[1]), ints(&[5, -1, 0, 0, 0, 0])])
}

/// How many messages each turn asked for.
fn asked(fake_server: &Scene) -> Vec<String> {
    let max = |(_, words): (_, String)| {
        let (_, args) = words.split_once(" | ").unwrap();
        args.split(' ').nth(6).unwrap().to_owned()
    };
    fake_server.calls("queue_turn").into_iter().map(max).collect()
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_where_there_is_nothing_to_say() {
    let (fake_server, driver) = connected(|call| panic!("{}", call.script)).await;
    assert!(driver.push(&queue(), &[]).await.unwrap().is_empty());
    assert!(driver.extend(&queue(), &[]).await.unwrap().is_empty());
    let nothing = driver.exchange(&[], &up_to(0)).await.unwrap();
    assert!(nothing.settled.is_empty() && nothing.received.deliveries.is_empty());
    assert!(asked(&fake_server).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_says_how_much_it_holds_and_an_unfit_server_takes_nothing() {
    let (fake_server, driver) = connected(|_| Ok(Reply::Int(-1))).await;
    let error = driver.push(&queue(), &[message()]).await.unwrap_err();
    assert!(error.kind() == ErrorKind::LimitReached && error.message().contains("up to 8 messages"), "{error}");
    unfit(&fake_server, text("maxmemory_policy:allkeys-lru\r\n")).await;
    let error = driver.push(&queue(), &[message()]).await.unwrap_err();
    assert_eq!((error.kind(), fake_server.calls("queue_push").len()), (ErrorKind::Misconfigured, 1));
}

/// From now on the server answers `INFO` with this, on a new connection; turns are answered.
async fn unfit(fake_server: &Scene, info: Reply) {
    tokio::time::sleep(Duration::from_millis(1_500)).await; // what was connected for so long is replaced at once
    let info = Arc::new(info);
    fake_server.answers(move |_, command| match (command, called(command)) {
        ("INFO", _) if *info == Reply::Nil => Err(ExecError::refused("LOADING x")),
        ("INFO", _) => Ok((*info).clone()),
        (_, Some(Called { script: "queue_turn", .. })) => Ok(turn()),
        _ => Ok(fit(command).unwrap_or_else(|| panic!("{command}"))),
    });
    fake_server.cut(&server("a"), false);
    tokio::time::sleep(Duration::from_millis(100)).await;
}

#[tokio::test(start_paused = true)]
async fn what_was_handled_is_settled_also_where_nothing_can_be_handed_out() {
    let (fake_server, driver) = connected(|_| Ok(turn())).await;
    let exchanged = driver.exchange(&[settle()], &up_to(0)).await.unwrap();
    assert_eq!((exchanged.settled, exchanged.received.next), (vec![Settled::Done], Next::Now));
    let exchanged = driver.exchange(&[settle()], &up_to(5)).await.unwrap();
    assert_eq!((exchanged.settled, exchanged.received.next), (vec![Settled::Done], Next::Never));
    assert_eq!(asked(&fake_server), ["0", "5"]);

    // A server that is unfit by now; one that does not answer settles nothing either.
    unfit(&fake_server, text("maxmemory_policy:allkeys-lru\r\n")).await;
    assert_eq!(driver.exchange(&[settle()], &up_to(5)).await.unwrap().settled, [Settled::Done]);
    let error = driver.exchange(&[], &up_to(5)).await.unwrap_err();
    assert_eq!((error.kind(), asked(&fake_server)[2..].to_vec()), (ErrorKind::Misconfigured, vec!["0".to_owned()]));
    unfit(&fake_server, Reply::Nil).await;
    let error = driver.exchange(&[settle()], &up_to(5)).await.unwrap_err();
    assert_eq!((error.kind(), asked(&fake_server).len()), (ErrorKind::Unavailable, 3));
}

#[tokio::test(start_paused = true)]
async fn a_receive_that_an_operator_has_to_mend_leaves_the_settlements_alone() {
    const DAMAGED: &str = "ERR DAMAGED {tenure:dq:q}:n|x| script";
    for (refusal, kind, asked_with) in [
        (DAMAGED, ErrorKind::Damaged, &["5", "0"][..]),
        ("NOSCRIPT No matching script.", ErrorKind::Unavailable, &["5", "5"]),
        ("OOM x", ErrorKind::Unavailable, &["5"]),
        ("ERR Error running script: @user_script:9: WRONGTYPE Operation", ErrorKind::Damaged, &["5"]),
    ] {
        let (fake_server, driver) = connected(move |call| match (call.script, call.args.get(6)) {
            ("queue_turn", Some(&"0")) => Ok(turn()),
            ("queue_turn", _) => Err(ExecError::refused(refusal)),
            _ => Ok(Reply::Array(Vec::new())),
        })
        .await;
        let settled = driver.exchange(&[settle()], &up_to(5)).await;
        match refusal {
            DAMAGED => assert_eq!(settled.unwrap().settled, [Settled::Done]),
            _ => assert_eq!(settled.unwrap_err().kind(), kind),
        }
        assert_eq!(asked(&fake_server), asked_with, "{refusal}");
        let error = driver.exchange(&[], &up_to(5)).await.unwrap_err();
        assert!(error.kind() == kind && format!("{error:?}").contains("receive"), "{error:?}");
    }
    let (_, driver) = connected(|_| Err(ExecError::refused("OOM x"))).await;
    let error = driver.exchange(&[settle()], &up_to(5)).await.unwrap_err();
    assert!(format!("{error:?}").contains("exchange"), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_is_buried_and_the_rest_is_handed_out() {
    let delivery =
        |number: &str, record: &str| [text(number), Reply::Int(3), text("0001000aF--0000000000002a"), text(record)];
    let head = [5, -1, 0, 0, 0, 0].map(Reply::Int);
    let received = [&head[..], &delivery("1", "000a-x"), &delivery("2", "zzzz")].concat();
    let answer = Reply::Array(vec![ints(&[]), Reply::Array(received)]);
    let (fake_server, driver) = connected(move |call| {
        let buries = call.args.last().unwrap().contains("x=damaged:");
        if buries { Err(ExecError::refused("OOM x")) } else { Ok(answer.clone()) }
    })
    .await;
    let exchanged = driver.exchange(&[], &up_to(5)).await.unwrap();
    assert_eq!(exchanged.received.deliveries.len(), 1);
    let turns = fake_server.calls("queue_turn");
    assert!(turns.len() == 2 && turns[1].1.contains(" 000000000000020000000000002ax=damaged:"), "{turns:?}");
    let (fake_server, driver) = connected(|_| Ok(turn())).await;
    driver.exchange(&[settle()], &up_to(5)).await.unwrap();
    assert_eq!(asked(&fake_server).len(), 1, "nothing is buried where nothing is damaged");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_watches_a_queue_says_so_with_every_receive() {
    let (fake_server, driver) = connected(|call| match call.script {
        "queue_listen" => Ok(Reply::Int(1)),
        _ => Ok(Reply::Array(vec![ints(&[]), ints(&[5, -1, 0, 0, 0, 0])])),
    })
    .await;
    let listening = || {
        let (_, words) = fake_server.calls("queue_turn").pop().unwrap();
        words.split_once(" | ").unwrap().1.split(' ').nth(5).unwrap() == driver.calls().keys.client()
    };
    driver.exchange(&[], &up_to(5)).await.unwrap();
    assert!(!listening());
    let watch = DelayQueue::watch(&driver, &queue()).await.unwrap();
    assert_eq!(fake_server.calls("queue_listen").len(), 1);
    driver.exchange(&[], &up_to(5)).await.unwrap();
    assert!(listening());
    drop(watch);
    driver.exchange(&[], &up_to(5)).await.unwrap();
    assert!(!listening());
    let (_, driver) = connected(|_| Err(ExecError::refused("OOM x"))).await;
    assert!(DelayQueue::watch(&driver, &queue()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_limit_is_set_step_by_step_until_all_in_flight_are_counted() {
    let steps = Mutex::new(vec![0, 9, 5]);
    let (fake_server, driver) = connected(move |_| Ok(Reply::Int(steps.lock().unwrap().pop().unwrap()))).await;
    driver.limit(&queue(), &QueueLimits::none()).await.unwrap();
    let from: Vec<String> = fake_server.calls("queue_limit").into_iter().map(|(_, words)| words).collect();
    let last: Vec<&str> = from.iter().filter_map(|words| words.rsplit(' ').next()).collect();
    assert_eq!(last, ["0", "5", "9"]);
}

#[tokio::test(start_paused = true)]
async fn the_queues_of_a_cluster_are_reported_in_order_over_all_their_groups() {
    let keys = Keyspace::of(&RedisSettings::default(), ClientId::random()).over_slots();
    let all: BTreeSet<String> = (0..600).map(|number| format!("q{number:03}")).collect();
    let is_living = |name: &str| !name.ends_with('3');
    let living: Vec<String> = all.iter().filter(|name| is_living(name)).cloned().collect();
    let mut groups: BTreeMap<u16, BTreeSet<String>> = BTreeMap::new();
    for name in &all {
        groups.entry(keys.group(&QueueName::new(name).unwrap())).or_default().insert(name.clone());
    }
    groups.entry(7).or_default().insert("q1".repeat(200)); // longer than a name is
    let (fake_server, a) = (Scene::new(), server("a"));
    let map = slot_map(&[(&a, 16_384)]);
    fake_server.answers(move |_, command| match (command, called(command)) {
        ("CLUSTER SLOTS", _) => Ok(map.clone()),
        (_, Some(Called { script: "queue_list", keys: index, args })) => {
            let count: usize = args[1].parse().unwrap();
            assert!(count <= BATCH, "{count} names in one script");
            let group = u16::from_str_radix(index[0].split_once("%-").unwrap().1.trim_end_matches('}'), 16).unwrap();
            let names = groups.get(&group).into_iter().flatten();
            let behind = names.filter(|name| args[0].strip_prefix('(').is_none_or(|after| name.as_str() > after));
            Ok(Reply::Array(behind.take(count).map(|name| text(name.as_str())).collect()))
        }
        (_, Some(Called { script: "queue_living", args, .. })) => {
            Ok(ints(&args.iter().map(|name| i64::from(is_living(name))).collect::<Vec<_>>()))
        }
        _ => Ok(fit(command).unwrap_or_else(|| panic!("{command}"))),
    });
    let config = RedisConfig::new(Topology::Cluster(vec![a]));
    let driver = Driver::connect_on(fake_server.clone(), config).await.unwrap();
    let count = living.len();
    for (max, whole) in [(1_000, true), (count, true), (count - 1, false), (37, false)] {
        let page = driver.list_queues(None, max).await.unwrap();
        let reported: Vec<String> = page.queues.iter().map(ToString::to_string).collect();
        assert_eq!(reported, living[..max.min(count)], "{max}");
        assert_eq!(page.rest, if whole { Rest::None } else { Rest::More }, "{max}");
    }
    let (mut after, mut reported) = (None, Vec::new());
    loop {
        let page = driver.list_queues(after.take(), 100).await.unwrap();
        reported.extend(page.queues.iter().map(ToString::to_string));
        after = page.queues.last().cloned();
        if page.rest == Rest::None {
            break;
        }
    }
    assert_eq!(reported, living);
}
