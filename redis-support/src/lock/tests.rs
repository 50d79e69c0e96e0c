//! The driver over servers in memory: which requests go where, when the servers are looked at, and how answers are read.

use std::sync::{Arc, Mutex};

use tenure_core::driver::{DelayQueue, Handing, Queueing, Signal};

use super::*;
use crate::config::{Address, RedisConfig, Topology};
use crate::link::fake_server::{Called, Mood, Scene, called, fit, server, slot_map};
use crate::settings::{Eviction, RedisSettings};
use crate::slot;

type Driver = crate::lock::Driver<Scene>;
type Answer = std::result::Result<Reply, ExecError>;

fn name(text: &str) -> LockName {
    LockName::new(text).unwrap()
}

fn text(text: impl Into<Vec<u8>>) -> Reply {
    Reply::Bytes(text.into())
}

fn attempt(text: &str) -> AcquireRequest {
    AcquireRequest::new(name(text), OwnerToken::random(), Ttl::DEFAULT)
}

fn hold(request: &AcquireRequest) -> Hold {
    Hold::new(request.name.clone(), request.token)
}

const fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

fn cluster_of(nodes: &[Address]) -> RedisConfig {
    RedisConfig::new(Topology::Cluster(nodes.to_vec()))
}

fn alone(config: RedisSettings) -> RedisConfig {
    RedisConfig::tcp("a", 1).settings(config)
}

/// Fit servers, of a cluster in two halves if that is asked, which answer other commands so.
fn fit_or(fake_server: &Scene, other: impl Fn(&Address, &str, Option<Called<'_>>) -> Answer + Send + Sync + 'static) {
    let [a, b] = ["a", "b"].map(server);
    fake_server.answers(move |at, command| match command {
        "CLUSTER SLOTS" => Ok(slot_map(&[(&a, 8_000), (&b, 8_384)])),
        _ => fit(command).map_or_else(|| other(at, command, called(command)), Ok),
    });
}

/// Where a key of the cluster in two halves is.
fn home(key: &str) -> Address {
    server(if slot::of(key.as_bytes()) < 8_000 { "a" } else { "b" })
}

#[tokio::test(start_paused = true)]
async fn what_is_promised_follows_from_where_the_keys_are() {
    use {Exclusion as X, Fencing as F};
    let [a, b, s] = ["a", "b", "s"].map(server);
    let sentinel = Topology::Sentinel { sentinels: vec![s], service: "main".into() };
    let cluster = Topology::Cluster(vec![b.clone()]);
    let half = [("a:1".to_owned(), 0..=7_999), ("b:1".to_owned(), 8_000..=16_383)];
    for (topology, exclusion, homes, fence) in [
        (Topology::Single(a), X::SingleNode, vec![("a:1".to_owned(), slot::ALL)], "tenure:{fence}"),
        (sentinel, X::LossyFailover, vec![("the primary of main".to_owned(), slot::ALL)], "tenure:{fence}"),
        (cluster, X::LossyFailover, half.to_vec(), "{tenure:n}:f"),
    ] {
        let fake_server = Scene::new();
        fit_or(&fake_server, |_, command, call| match (command, call) {
            ("SENTINEL get-master-addr-by-name main", _) => Ok(Reply::Array(vec![text("a"), text("1")])),
            ("ROLE", _) => Ok(Reply::Array(vec![text("master")])),
            (_, Some(Called { script: "acquire", .. })) => Ok(Reply::Int(7)),
            _ => panic!("{command}"),
        });
        for (fences, fencing) in [(Fences::ClockSeeded, F::ClockSeeded), (Fences::Counter, F::StrictUnlessDataLoss)] {
            let settings = RedisSettings::default().fences(fences).max_waiters(9).unwrap();
            let config = RedisConfig::new(topology.clone()).settings(settings.max_backlog(8).unwrap());
            let driver = Driver::connect_on(fake_server.clone(), config).await.unwrap();
            let locks = DistributedLock::capabilities(&driver);
            assert_eq!((locks.exclusion, locks.fencing, locks.waiting), (exclusion, fencing, Waiting::Fifo));
            assert_eq!((locks.max_waiters, locks.renew_batch, locks.max_fences), (Some(9), 100, 8));
            let queues = DelayQueue::capabilities(&driver);
            assert_eq!((queues.durability, queues.fencing, queues.backlog), (exclusion, fencing, Some(8)));
            let mut found = driver.servers().homes();
            found.sort_by_key(|(home, _)| home.clone());
            assert_eq!(found, homes);
            driver.acquire(&attempt("n")).await.unwrap();
            let (_, words) = fake_server.calls("acquire").pop().unwrap();
            assert!(words.starts_with(&format!("tenure:n {fence} ")), "{words}");
            driver.close().await;
            let error = driver.acquire(&attempt("n")).await.unwrap_err();
            assert_eq!(
                (error.kind(), ["a", "b"].map(|at| fake_server.connections(&server(at)))),
                (ErrorKind::Closed, [0, 0])
            );
        }
        // At each server twice, by its digest and by its source, with keys that are at home there.
        let rights = fake_server.calls("rights");
        assert_eq!(rights.len(), 2 * 2 * homes.len());
        for (at, words) in rights {
            let (keys, _) = words.split_once(" | ").unwrap();
            assert!(homes.len() == 1 || keys.split(' ').all(|key| home(key) == at), "{at} {keys}");
        }
        assert_eq!(fake_server.connections(&server("s")), 0, "sentinels are left as well");
    }
}

#[tokio::test(start_paused = true)]
async fn two_configurations_are_of_the_same_data_if_they_name_the_same_servers_and_database() {
    let fake_server = Scene::new();
    fit_or(&fake_server, |_, command, _| panic!("{command}"));
    let identity = async |config: RedisConfig| {
        let driver = Driver::connect_on(fake_server.clone(), config).await.unwrap();
        driver.0.identity.clone()
    };
    let one = identity(RedisConfig::tcp("a", 1)).await;
    assert_eq!(identity(RedisConfig::tcp("a", 1).name("app")).await, one);
    assert_ne!(identity(RedisConfig::tcp("a", 1).database(1)).await, one);
    assert_ne!(identity(RedisConfig::tcp("b", 1)).await, one);
    assert_ne!(identity(cluster_of(&[server("a")])).await, one);
}

#[tokio::test(start_paused = true)]
async fn a_cluster_is_asked_once_for_each_slot_and_each_name_has_its_own_answer() {
    let fake_server = Scene::new();
    // Two names that share a slot, and others; a refused answer, and one that is too short, concern no other name.
    let slot_of = |text: &str| slot::of(format!("tenure:{text}").as_bytes());
    let twin = (0..).map(|number| format!("twin{number}")).find(|twin| slot_of(twin) == slot_of("one")).unwrap();
    let names = ["one", "refused", "two", twin.as_str(), "short", "gone"];
    fit_or(&fake_server, |at, command, call| {
        let Some(call) = call.filter(|call| call.script == "renew") else { panic!("{command}") };
        assert!(
            call.keys
                .iter()
                .all(|key| home(key) == *at && slot::of(key.as_bytes()) == slot::of(call.keys[0].as_bytes()))
        );
        match call.keys[0] {
            "tenure:refused" => Err(ExecError::refused("OOM no memory")),
            "tenure:short" => Ok(Reply::Array(Vec::new())),
            "tenure:gone" => Ok(Reply::Array(vec![Reply::Int(0)])),
            _ => Ok(Reply::Array(call.keys.iter().map(|key| Reply::Int(key.len() as i64)).collect())),
        }
    });
    let driver = Driver::connect_on(fake_server.clone(), cluster_of(&[server("a")])).await.unwrap();
    let holds = names.map(|text| Hold::new(name(text), OwnerToken::random()));
    let answers = driver.renew(Ttl::DEFAULT, &holds).await;
    assert_eq!((answers.len(), fake_server.calls("renew").len()), (6, 5));
    for (text, answer) in names.into_iter().zip(answers) {
        match (text, answer) {
            ("refused", Err(error)) => assert_eq!(error.kind(), ErrorKind::Unavailable),
            ("short", Err(error)) => assert_eq!(error.kind(), ErrorKind::Protocol),
            ("gone", answer) => assert_eq!(answer.unwrap(), Renewed::Lost),
            (_, answer) => assert_eq!(answer.unwrap(), Renewed::Extended { ttl: ms(7 + text.len() as u64) }, "{text}"),
        }
    }
    assert!(driver.renew(Ttl::DEFAULT, &[]).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn one_server_renews_all_in_one_script_whose_failure_reaches_all() {
    let fake_server = Scene::new();
    let answer = Arc::new(Mutex::new(Ok(Reply::Int(1_000))));
    let answers = Arc::clone(&answer);
    fit_or(&fake_server, move |_, _, _| answers.lock().unwrap().clone());
    let driver = Driver::connect_on(fake_server.clone(), alone(RedisSettings::default())).await.unwrap();
    let holds = ["one", "two", "three"].map(|text| Hold::new(name(text), OwnerToken::random()));
    for answer in driver.renew(Ttl::DEFAULT, &holds).await {
        assert_eq!(answer.unwrap(), Renewed::Extended { ttl: ms(1_000) });
    }
    *answer.lock().unwrap() = Err(ExecError::refused("LOADING x"));
    let errors = driver.renew(Ttl::DEFAULT, &holds).await;
    let reported: Vec<String> = errors.into_iter().map(|error| format!("{:?}", error.unwrap_err())).collect();
    assert!(
        reported.len() == 3 && reported[2].contains("three") && reported.iter().all(|error| error.contains("renew")),
        "{reported:?}"
    );
    assert_eq!(fake_server.calls("renew").len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_release_that_met_only_dead_waiters_continues_until_somebody_has_the_turn() {
    let (fake_server, left) = (Scene::new(), Arc::new(Mutex::new(0)));
    let passes = Arc::clone(&left);
    fit_or(&fake_server, move |_, command, call| match call.map(|call| call.script) {
        Some("release") => Ok(Reply::Int(GO_ON)),
        Some("pass") => {
            let mut left = passes.lock().unwrap();
            *left -= 1;
            match *left {
                0 => Ok(Reply::Int(1)),
                -1 => Err(ExecError::refused("LOADING x")),
                _ => Ok(Reply::Int(GO_ON)),
            }
        }
        _ => panic!("{command}"),
    });
    let driver = Driver::connect_on(fake_server.clone(), alone(RedisSettings::default())).await.unwrap();
    *left.lock().unwrap() = 3;
    assert_eq!(driver.release(&hold(&attempt("a"))).await.unwrap(), Released::Released);
    assert_eq!(fake_server.calls("pass").len(), 3);
    *left.lock().unwrap() = 0;
    assert_eq!(driver.release(&hold(&attempt("a"))).await.unwrap(), Released::Released, "it is free all the same");
    assert_eq!(fake_server.calls("pass").len(), 4);
}

// The checks of the servers, and when they happen.

fn looks(fake_server: &Scene) -> usize {
    fake_server.sent("INFO").len()
}

/// Fit or not, as this text of `INFO` says from now on; locks are granted.
fn tell(fake_server: &Scene, info: &Arc<Mutex<Answer>>) {
    let ([a, b], info) = (["a", "b"].map(server), Arc::clone(info));
    fake_server.answers(move |_, command| match (command, called(command).map(|call| call.script)) {
        ("CLUSTER SLOTS", _) => Ok(slot_map(&[(&a, 8_000), (&b, 8_384)])),
        ("INFO", _) => info.lock().unwrap().clone(),
        (_, Some("acquire")) => Ok(Reply::Int(7)),
        _ => Ok(fit(command).unwrap_or_else(|| panic!("{command}"))),
    });
}

/// Ends the connection to this server, and waits for the next one.
async fn reconnect(fake_server: &Scene, at: &Address) {
    tokio::time::sleep(ms(1_500)).await; // what was connected for so long is replaced at once
    fake_server.cut(at, false);
    tokio::time::sleep(ms(100)).await;
    assert_eq!(fake_server.connections(at), 1);
}

const EVICTING: &str = "maxmemory_policy:allkeys-lru\r\n";

#[tokio::test(start_paused = true)]
async fn after_a_new_connection_the_server_is_looked_at_once_before_it_grants_anything() {
    let (fake_server, a) = (Scene::new(), server("a"));
    let info = Arc::new(Mutex::new(Ok(text("redis_version:7.0.15\r\n"))));
    let is = |answer: Answer| *info.lock().unwrap() = answer;
    tell(&fake_server, &info);
    let driver = Driver::connect_on(fake_server.clone(), alone(RedisSettings::default())).await.unwrap();
    assert_eq!(driver.notes().server_version(), Some("7.0.15"));
    let grant = async || driver.acquire(&attempt("n")).await.map(drop).map_err(|error| error.kind());
    let crowd = async || join_all((0..5).map(|_| grant())).await;
    assert_eq!((crowd().await, looks(&fake_server)), (vec![Ok(()); 5], 1), "that was at the start");
    reconnect(&fake_server, &a).await;
    assert_eq!((crowd().await, looks(&fake_server)), (vec![Ok(()); 5], 2), "one looks for all");
    assert_eq!((grant().await, looks(&fake_server)), (Ok(()), 2));

    is(Ok(text(EVICTING)));
    reconnect(&fake_server, &a).await;
    assert_eq!(
        (crowd().await, looks(&fake_server)),
        (vec![Err(ErrorKind::Misconfigured); 5], 3),
        "and its failure is all theirs"
    );
    assert_eq!((grant().await, looks(&fake_server)), (Err(ErrorKind::Misconfigured), 4), "the next one looks again");
    is(Err(ExecError::refused("LOADING x")));
    assert_eq!((grant().await, looks(&fake_server)), (Err(ErrorKind::Unavailable), 5));
    is(Ok(text("role:slave\r\n")));
    assert_eq!((grant().await, looks(&fake_server)), (Ok(()), 6), "a replica says so itself");
    assert_eq!((crowd().await, looks(&fake_server)), (vec![Ok(()); 5], 6));
    assert_eq!(fake_server.calls("rights").len(), 2, "rights were tried at the start");

    is(Ok(text(EVICTING)));
    let refused = Driver::connect_on(fake_server.clone(), alone(RedisSettings::default())).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Misconfigured);
    let reported = alone(RedisSettings::default().eviction(Eviction::Allow));
    let allowed = Driver::connect_on(fake_server.clone(), reported).await.unwrap();
    assert!(allowed.notes().remarks()[0].contains("allkeys-lru"));
}

#[tokio::test(start_paused = true)]
async fn a_node_of_a_cluster_that_is_away_keeps_nobody_from_the_others() {
    let (fake_server, [a, b]) = (Scene::new(), ["a", "b"].map(server));
    let info = Arc::new(Mutex::new(Ok(text("redis_mode:cluster\r\n"))));
    tell(&fake_server, &info);
    let driver = Driver::connect_on(fake_server.clone(), cluster_of(std::slice::from_ref(&a))).await.unwrap();
    let at =
        |node: &Address| (0..).map(|number| format!("n{number}")).find(|text| home(&format!("tenure:{text}")) == *node);
    let [here, there] = [&a, &b].map(|node| attempt(&at(node).unwrap()));
    fake_server.is(&b, Mood::Refusing);
    fake_server.cut(&b, false);
    tokio::time::sleep(ms(100)).await;
    let before = looks(&fake_server);
    for _ in 0..2 {
        driver.acquire(&here).await.unwrap();
        assert_eq!(looks(&fake_server), before + 1, "once, at the one that is there");
    }
    assert_eq!(driver.acquire(&there).await.unwrap_err().kind(), ErrorKind::Unavailable);
    fake_server.is(&b, Mood::Well);
    *info.lock().unwrap() = Ok(text(EVICTING));
    tokio::time::sleep(ms(1_500)).await;
    for request in [&here, &there] {
        assert_eq!(driver.acquire(request).await.unwrap_err().kind(), ErrorKind::Misconfigured, "an unfit one does");
    }
}

#[tokio::test(start_paused = true)]
async fn who_waits_when_the_driver_is_closed_asks_once_more() {
    let fake_server = Scene::new();
    fit_or(&fake_server, |_, command, _| panic!("{command}"));
    let driver = Driver::connect_on(fake_server.clone(), alone(RedisSettings::default())).await.unwrap();
    let one = attempt("a");
    let mut watch = DistributedLock::watch(&driver, &one.name, &one.token).await.unwrap();
    driver.close().await;
    assert_eq!(watch.next().await, Signal::Wake);
    driver.close().await;
}

// Releases that are one command.

/// Of Valkey, which answer so to the command that deletes a value, and to those of locks.
fn valkey(fake_server: &Scene, delete: impl Fn(&Address, &str, &str) -> Answer + Send + Sync + 'static) {
    let [a, b] = ["a", "b"].map(server);
    fake_server.answers(move |at, command| match (command, called(command)) {
        ("CLUSTER SLOTS", _) => Ok(slot_map(&[(&a, 8_000), (&b, 8_384)])),
        ("INFO", _) => Ok(text("redis_version:7.2.4\r\nvalkey_version:9.0.1\r\n")),
        (_, Some(Called { script: "acquire", args, .. })) if args[2].starts_with('0') => Ok(Reply::Int(7)),
        (_, Some(Called { script: "acquire", .. })) => Ok(Reply::Array([0, 1, 9].map(Reply::Int).to_vec())),
        (_, Some(Called { script: "release", .. })) => Ok(Reply::Int(1)),
        _ => match command.strip_prefix("DELIFEQ ").and_then(|words| words.split_once(' ')) {
            Some((key, value)) => delete(at, key, value),
            None => Ok(fit(command).unwrap_or_else(|| panic!("{command}"))),
        },
    });
}

async fn taken(driver: &Driver, text: &str) -> Hold {
    let request = attempt(text);
    assert!(matches!(driver.acquire(&request).await.unwrap(), Acquisition::Granted(_)));
    hold(&request)
}

/// How many scripts of releases this one took.
async fn scripts(fake_server: &Scene, driver: &Driver, hold: &Hold) -> usize {
    let before = fake_server.calls("release").len();
    assert_eq!(driver.release(hold).await.unwrap(), Released::Released);
    fake_server.calls("release").len() - before
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_nobody_waits_for_is_released_by_its_value_where_it_is() {
    let (fake_server, deleted) = (Scene::new(), Arc::new(Mutex::new(Vec::new())));
    let seen = Arc::clone(&deleted);
    valkey(&fake_server, move |at, key, value| {
        assert!(*at == server("c") || home(key) == *at, "{at} {key}");
        seen.lock().unwrap().push(format!("{key} {value}"));
        Ok(Reply::Int(i64::from(!value.is_empty())))
    });
    for config in [cluster_of(&[server("a")]), RedisConfig::tcp("c", 1)] {
        let probed = deleted.lock().unwrap().len();
        let driver = Driver::connect_on(fake_server.clone(), config).await.unwrap();
        let tried = deleted.lock().unwrap()[probed..].to_vec();
        assert!(tried.iter().all(|words| words.contains("%rights-") && words.ends_with(' ')), "{tried:?}");
        assert_eq!(tried.len(), driver.servers().homes().len(), "it is tried at every server");
        let held = taken(&driver, "n").await;
        assert_eq!(scripts(&fake_server, &driver, &held).await, 0);
        let value = format!("tenure:n {};-;7;;", held.token.expose().as_str());
        assert_eq!(deleted.lock().unwrap().last(), Some(&value));
        assert_eq!(scripts(&fake_server, &driver, &held).await, 1, "its value is known once");
        let waiting = attempt("n").with_queue(Queueing::Join { presence: ms(5_000), accepts: Handing::Asked });
        let held = taken(&driver, "n").await;
        assert!(matches!(driver.acquire(&waiting).await.unwrap(), Acquisition::Busy(_)));
        assert_eq!(scripts(&fake_server, &driver, &held).await, 1, "somebody is known to wait");
    }
}

#[tokio::test(start_paused = true)]
async fn a_value_that_is_another_one_by_now_is_left_to_the_script_and_so_are_the_next() {
    let (fake_server, answer) = (Scene::new(), Arc::new(Mutex::new(Ok(Reply::Int(0)))));
    let answers = Arc::clone(&answer);
    valkey(&fake_server, move |_, _, _| answers.lock().unwrap().clone());
    let is = |new: Answer| *answer.lock().unwrap() = new;
    let driver = Driver::connect_on(fake_server.clone(), RedisConfig::tcp("a", 1)).await.unwrap();
    let tries = || fake_server.sent_that_begin("DELIFEQ ");
    let held = taken(&driver, "n").await;
    assert_eq!((tries(), scripts(&fake_server, &driver, &held).await, tries()), (1, 1, 2));
    for _ in 0..8 {
        let held = taken(&driver, "n").await;
        assert_eq!((scripts(&fake_server, &driver, &held).await, tries()), (1, 2), "it counts as waited for");
    }
    is(Err(ExecError::refused("READONLY a replica")));
    let held = taken(&driver, "n").await;
    assert_eq!((scripts(&fake_server, &driver, &held).await, tries()), (1, 3), "the script says what is to be said");
    is(Err(ExecError::SentUnknown { message: "cut".into(), source: None }));
    let held = taken(&driver, "n").await;
    let error = driver.release(&held).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Indeterminate && format!("{error:?}").contains("release"), "{error:?}");
    is(Err(ExecError::refused("NOPERM no permissions to run the 'delifeq' command")));
    for turn in 0..2 {
        let held = taken(&driver, "n").await;
        assert_eq!(
            (scripts(&fake_server, &driver, &held).await, tries()),
            (1, 5),
            "turn {turn}: once refused, never again"
        );
    }
    let reported = Driver::connect_on(fake_server.clone(), RedisConfig::tcp("a", 1)).await.unwrap();
    assert_eq!(reported.notes().remarks(), [check::NO_DELIFEQ]);
    assert_eq!(scripts(&fake_server, &reported, &taken(&reported, "n").await).await, 1);
}

// Known values.

fn fence(number: u64) -> FencingToken {
    FencingToken::new(number).unwrap()
}

#[test]
fn a_value_is_reported_once_and_as_the_scripts_write_it() {
    let values = KnownValues::new(Fences::ClockSeeded);
    let one = attempt("a").with_label(Some(Label::new("with;signs").unwrap()));
    values.granted(&one, fence(7), "");
    assert_eq!(values.take(&hold(&one)), None, "not before the server is known");
    values.allow(true);
    assert_eq!(values.take(&hold(&one)), None, "what was granted then may be of another server");
    values.granted(&one, fence(7), "12");
    let value = values.take(&hold(&one)).unwrap();
    assert_eq!(value, format!("{};-;7;12;with;signs", one.token.expose().as_str()));
    assert_eq!(values.take(&hold(&one)), None);
    values.granted(&one, fence(7), "");
    values.allow(false);
    assert_eq!(values.take(&hold(&one)), None);
}

#[test]
fn values_are_not_known_where_fences_only_count() {
    let values = KnownValues::new(Fences::Counter);
    values.allow(true);
    let one = attempt("a");
    values.granted(&one, fence(1), "");
    assert_eq!(values.take(&hold(&one)), None);
}

#[test]
fn a_name_that_somebody_waited_for_is_left_alone_for_a_while() {
    let values = KnownValues::new(Fences::ClockSeeded);
    let (one, other) = (attempt("a"), attempt("b"));
    values.awaited(&other.name); // at a server without the command, nobody counts
    values.allow(true);
    values.granted(&one, fence(7), "");
    values.granted(&other, fence(8), "");
    values.awaited(&one.name);
    assert_eq!(values.take(&hold(&one)), None);
    assert!(values.take(&hold(&other)).is_some());
    for _ in 0..CONTENDED_GRANTS {
        values.granted(&one, fence(7), "");
        assert_eq!(values.take(&hold(&one)), None);
    }
    values.granted(&one, fence(7), "");
    assert!(values.take(&hold(&one)).is_some());
}

#[test]
fn grants_that_are_never_released_take_no_more_room_than_that() {
    let values = KnownValues::new(Fences::ClockSeeded);
    values.allow(true);
    let first = attempt("a");
    values.granted(&first, fence(7), "");
    let grant = |one: &AcquireRequest| {
        values.granted(one, fence(7), "");
        assert!(values.grants.lock().unwrap().len() <= MOST_GRANTS);
    };
    let last = (0..3 * MOST_GRANTS).map(|_| attempt("a")).inspect(grant).last();
    assert!(values.take(&hold(&last.unwrap())).is_some());
    assert!(values.take(&hold(&first)).is_none());
}
