//! A cluster over servers in memory: what is followed, remembered and looked at, and when.

use super::*;
use crate::link::fake_server::{Mood, Scene, listener, server, slot_map};

#[test]
fn a_map_is_read() {
    let bytes = |text: &str| Reply::Bytes(text.as_bytes().to_vec());
    let node = |host, port| Reply::Array(vec![bytes(host), Reply::Int(port), bytes("id")]);
    let range = |from, to, primary| Reply::Array(vec![Reply::Int(from), Reply::Int(to), primary]);
    let reply = Reply::Array(vec![range(0, 99, node("a", 1)), range(100, 16383, node("", 2))]);
    let mut map = SlotMap::read(&reply, &Address::tcp("seed", 9)).unwrap();
    assert_eq!(map.node(99), Some(&Address::tcp("a", 1)));
    assert_eq!(map.node(100), Some(&Address::tcp("seed", 2)));
    assert_eq!(map.homes(), [(&Address::tcp("a", 1), 0..=99), (&Address::tcp("seed", 2), 100..=16383)]);
    let both = Reply::Array(vec![range(0, 9, node("a", 1)), range(20, 29, node("a", 1)), range(10, 19, node("b", 1))]);
    let both = SlotMap::read(&both, &Address::tcp("seed", 9)).unwrap();
    assert_eq!(both.homes(), [(&Address::tcp("a", 1), 0..=9), (&Address::tcp("b", 1), 10..=19)], "each node once");
    assert_eq!(both.nodes(), [Address::tcp("a", 1), Address::tcp("b", 1)]);
    assert_eq!((both.node(25), both.node(30)), (Some(&Address::tcp("a", 1)), None));
    map.moved(100, Address::tcp("b", 3));
    assert_eq!(map.node(100), Some(&Address::tcp("b", 3)));
    assert_eq!(map.nodes().len(), 3);
    assert!(SlotMap::read(&Reply::Nil, &Address::tcp("seed", 9)).is_err());
    assert!(SlotMap::read(&Reply::Array(vec![]), &Address::tcp("seed", 9)).is_err());
    // A key would be looked for that lies in the slots, for ever.
    for (from, to) in [(9, 8), (16384, 16384), (0, 16384)] {
        let reply = Reply::Array(vec![range(from, to, node("a", 1))]);
        assert!(SlotMap::read(&reply, &Address::tcp("seed", 9)).is_err(), "{from} {to}");
    }
}

#[test]
fn a_redirection_is_read() {
    let asked = Address::tcp("h", 1);
    assert_eq!(redirection("3999 127.0.0.1:6381", &asked), Some((3999, Address::tcp("127.0.0.1", 6381))));
    assert_eq!(redirection("3999 :6381", &asked), Some((3999, Address::tcp("h", 6381))));
    assert_eq!(redirection("3999 ::1:6381", &asked), Some((3999, Address::tcp("::1", 6381))));
    for text in ["x", "16384 h:1", "1 h:0", "1 a\nb:1", "1 a b:1", "1 :1:"] {
        assert_eq!(redirection(text, &asked), None, "{text}");
    }
}

// What is kept up.

const fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

const GET: Request<'_> = Request::words(&["GET", "a"]);

/// Servers that return this map, and their own name to any other command.
fn tell(fake_server: &Scene, map: Reply) {
    fake_server.answers(move |at, command| match command {
        "CLUSTER SLOTS" => Ok(map.clone()),
        _ => Ok(Reply::Bytes(at.to_string().into())),
    });
}

/// Servers that refuse commands in this way, but for the map.
fn refuse(fake_server: &Scene, map: Reply, text: &'static str) {
    fake_server.answers(move |_, command| match command {
        "CLUSTER SLOTS" => Ok(map.clone()),
        _ => Err(ExecError::refused(text)),
    });
}

async fn connected(fake_server: &Scene, seeds: &[Address]) -> Result<Cluster<Scene>, ExecError> {
    Cluster::connect(Arc::new(fake_server.clone()), &RedisConfig::default(), seeds, listener().0).await
}

/// Who answered.
async fn served(cluster: &Cluster<Scene>, slot: u16) -> String {
    match cluster.request(slot, &GET).await {
        Ok(Reply::Bytes(bytes)) => String::from_utf8(bytes).unwrap(),
        other => panic!("{other:?}"),
    }
}

/// How often the map was looked at.
fn looks(fake_server: &Scene) -> usize {
    fake_server.sent("CLUSTER SLOTS").len()
}

fn half_each(a: &Address, b: &Address) -> Reply {
    slot_map(&[(a, 8_000), (b, 8_384)])
}

#[tokio::test(start_paused = true)]
async fn the_map_is_found_through_any_seed_and_every_primary_is_connected_to() {
    let (fake_server, [a, b, c]) = (Scene::new(), ["a", "b", "c"].map(server));
    tell(&fake_server, half_each(&a, &b));
    fake_server.is(&c, Mood::Refusing);
    let error = connected(&fake_server, std::slice::from_ref(&c)).await.unwrap_err();
    assert!(error.to_string().contains("refused"), "{error}");
    fake_server.is(&c, Mood::Silent);
    let error = connected(&fake_server, std::slice::from_ref(&c)).await.unwrap_err();
    assert_eq!((error.to_string().as_str(), fake_server.time()), ("no answer from c:1 within 1s", ms(1_000)));
    let cluster = connected(&fake_server, &[c, a.clone()]).await.unwrap();
    assert_eq!([&a, &b].map(|node| fake_server.connections(node)), [1, 1]);
    assert_eq!((served(&cluster, 7_999).await, served(&cluster, 8_000).await), ("a:1".into(), "b:1".into()));
    let mut homes = cluster.homes();
    homes.sort_by(|one, other| one.0.cmp(&other.0));
    assert_eq!(homes, [("a:1".into(), 0..=7_999), ("b:1".into(), 8_000..=16_383)]);
    let mut everywhere = cluster.everywhere(&GET).await;
    everywhere.sort_by(|one, other| one.0.cmp(&other.0));
    assert!(everywhere.iter().all(|(at, answer)| *answer.as_ref().unwrap() == Reply::Bytes(at.clone().into())));
    assert_eq!(everywhere.len(), 2);
    fake_server.is(&b, Mood::Refusing);
    let start = Instant::now();
    assert!(connected(&fake_server, &[a]).await.is_err(), "every primary is needed at the start");
    assert_eq!(start.elapsed(), ms(1_000), "so long it is waited for");
}

#[tokio::test(start_paused = true)]
async fn the_map_is_looked_at_twice_a_minute_and_often_while_something_is_wrong() {
    let (fake_server, [a, b]) = (Scene::new(), ["a", "b"].map(server));
    tell(&fake_server, half_each(&a, &b));
    let cluster = connected(&fake_server, std::slice::from_ref(&a)).await.unwrap();
    sleep(ms(1_000)).await; // it hears that the links have come up
    let during = async |span| {
        let before = looks(&fake_server);
        sleep(ms(span)).await;
        looks(&fake_server) - before
    };
    assert!(matches!(during(120_000).await, 3..=4), "twice a minute");
    fake_server.is(&b, Mood::Refusing);
    fake_server.cut(&b, false);
    let often = during(3_000).await;
    assert!((8..=30).contains(&often), "{often} looks in 3 s");
    let often = during(3_000).await;
    assert!((8..=14).contains(&often), "{often} looks in 3 s, though it is tried once a second by then");
    assert_eq!(served(&cluster, 0).await, "a:1", "the other half is there");
    fake_server.is(&b, Mood::Well);
    sleep(ms(3_000)).await;
    assert!(during(60_000).await <= 2, "nothing is wrong any more");
    assert_eq!(served(&cluster, 9_000).await, "b:1");

    // Through the seeds, when no link is open.
    let seeds = fake_server.dialled(&a).len();
    for node in [&a, &b] {
        fake_server.is(node, Mood::Silent);
        fake_server.cut(node, false);
    }
    sleep(ms(20_000)).await;
    assert!(fake_server.dialled(&a).len() > seeds + 3);
    tell(&fake_server, slot_map(&[(&b, 16_384)]));
    [&a, &b].into_iter().for_each(|node| fake_server.is(node, Mood::Well));
    sleep(ms(5_000)).await;
    assert_eq!(served(&cluster, 0).await, "b:1");
}

#[tokio::test(start_paused = true)]
async fn a_primary_that_leaves_is_left_and_one_that_comes_is_connected_to() {
    let (fake_server, [a, b, c]) = (Scene::new(), ["a", "b", "c"].map(server));
    tell(&fake_server, half_each(&a, &b));
    let cluster = connected(&fake_server, std::slice::from_ref(&a)).await.unwrap();
    tell(&fake_server, half_each(&a, &c));
    sleep(ms(31_000)).await;
    assert_eq!([&a, &b, &c].map(|node| fake_server.connections(node)), [1, 0, 1]);
    assert_eq!(served(&cluster, 9_000).await, "c:1");
    sleep(ms(60_000)).await;
    assert_eq!([&a, &b, &c].map(|node| fake_server.connections(node)), [1, 0, 1]);
}

#[tokio::test(start_paused = true)]
async fn a_slot_that_moved_is_followed_and_remembered() {
    let (fake_server, a) = (Scene::new(), server("a"));
    let at_a = slot_map(&[(&a, 16_384)]);
    tell(&fake_server, at_a);
    let cluster = connected(&fake_server, std::slice::from_ref(&a)).await.unwrap();
    sleep(ms(1_000)).await;
    let (before, old) = (looks(&fake_server), a.clone());
    fake_server.answers(move |at, command| match command {
        "CLUSTER SLOTS" => Err(ExecError::refused("ERR no map now")),
        _ if *at == old => Err(ExecError::refused("MOVED 7 b:1")),
        _ => Ok(Reply::Bytes(at.to_string().into())),
    });
    assert_eq!(served(&cluster, 7).await, "b:1");
    let asked = fake_server.sent("GET a").len();
    assert_eq!(served(&cluster, 7).await, "b:1");
    assert_eq!(fake_server.sent("GET a").len(), asked + 1, "it goes there at once");
    sleep(ms(150)).await;
    assert!(looks(&fake_server) > before, "the map is looked at: other slots may have moved");

    // Nodes that send to each other.
    let (one, other) = (a.clone(), slot_map(&[(&a, 16_384)]));
    fake_server.answers(move |at, command| match command {
        "CLUSTER SLOTS" => Ok(other.clone()),
        _ if *at == one => Err(ExecError::refused("MOVED 7 b:1")),
        _ => Err(ExecError::refused("MOVED 7 a:1")),
    });
    let asked = fake_server.sent("GET a").len();
    let error = cluster.request(7, &GET).await.unwrap_err();
    assert!(matches!(&error, ExecError::NotSent { message, .. } if message.contains("disagree")), "{error}");
    assert_eq!(fake_server.sent("GET a").len(), asked + 4);
}

#[tokio::test(start_paused = true)]
async fn a_slot_that_is_moving_is_asked_for_at_the_other_node_this_once() {
    let (fake_server, [a, b]) = (Scene::new(), ["a", "b"].map(server));
    let at_a = slot_map(&[(&a, 16_384)]);
    tell(&fake_server, at_a.clone());
    let cluster = connected(&fake_server, std::slice::from_ref(&a)).await.unwrap();
    let old = a.clone();
    fake_server.answers(move |at, command| match command {
        "CLUSTER SLOTS" => Ok(at_a.clone()),
        _ if *at == old => Err(ExecError::refused("ASK 7 b:1")),
        _ => Ok(Reply::Bytes(at.to_string().into())),
    });
    for turn in 1..=2 {
        assert_eq!(served(&cluster, 7).await, "b:1");
        assert_eq!((fake_server.sent("ASKING").len(), fake_server.sent("GET a").len()), (turn, 2 * turn), "at both");
    }
    sleep(ms(20)).await;
    assert_eq!(fake_server.connections(&b), 1, "the link that hears wake-ups is left, and none of the others");
    fake_server.is(&b, Mood::Refusing);
    let error = cluster.request(7, &GET).await.unwrap_err();
    assert!(matches!(&error, ExecError::NotSent { message, .. } if message == "cannot ask b:1: refused"), "{error}");
    fake_server.is(&b, Mood::Silent);
    let (start, error) = (Instant::now(), cluster.request(7, &GET).await.unwrap_err());
    assert!(matches!(error, ExecError::NotSent { .. }) && start.elapsed() == ms(1_000), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_refusal_that_may_mean_an_old_map_has_it_looked_at_soon() {
    let (fake_server, a) = (Scene::new(), server("a"));
    let at_a = slot_map(&[(&a, 16_384)]);
    tell(&fake_server, at_a.clone());
    let cluster = connected(&fake_server, std::slice::from_ref(&a)).await.unwrap();
    sleep(ms(1_000)).await;
    for (refusal, soon) in [
        ("CLUSTERDOWN x", true),
        ("READONLY x", true),
        ("MASTERDOWN x", true),
        ("LOADING x", true),
        ("ERR x", false),
        ("MOVED x", false),
    ] {
        refuse(&fake_server, at_a.clone(), refusal);
        let before = looks(&fake_server);
        let error = cluster.request(7, &GET).await.unwrap_err();
        assert!(matches!(error, ExecError::Server { .. }), "{refusal}: {error}");
        sleep(ms(150)).await;
        assert_eq!(looks(&fake_server) > before, soon, "{refusal}");
        sleep(ms(1_000)).await;
    }
    tell(&fake_server, slot_map(&[(&a, 100)]));
    sleep(ms(31_000)).await;
    let before = looks(&fake_server);
    let error = cluster.request(100, &GET).await.unwrap_err();
    assert!(matches!(&error, ExecError::NotSent { message, .. } if message.contains("slot 100")), "{error}");
    sleep(ms(150)).await;
    assert!(looks(&fake_server) > before, "it may be served by now");
}

#[tokio::test(start_paused = true)]
async fn who_asks_a_node_that_leaves_meanwhile_is_served_by_the_next_and_counts_it_no_more() {
    let (fake_server, [a, b]) = (Scene::new(), ["a", "b"].map(server));
    tell(&fake_server, half_each(&a, &b));
    let cluster = connected(&fake_server, std::slice::from_ref(&a)).await.unwrap();
    sleep(ms(1_000)).await;
    fake_server.is(&b, Mood::Refusing);
    fake_server.cut(&b, false);
    sleep(ms(10)).await;
    tell(&fake_server, slot_map(&[(&a, 16_384)]));
    let start = Instant::now();
    let (one, all) = tokio::join!(served(&cluster, 9_000), cluster.everywhere(&GET));
    assert!(one == "a:1" && start.elapsed() < ms(500), "{one} after {:?}", start.elapsed());
    assert!(matches!(&all[..], [(place, Ok(_))] if place == "a:1"), "{all:?}");
}

#[tokio::test(start_paused = true)]
async fn the_map_is_asked_of_those_that_are_there_and_once_for_a_crowd() {
    let (fake_server, [a, b, c]) = (Scene::new(), ["a", "b", "c"].map(server));
    tell(&fake_server, half_each(&a, &b));
    let cluster = connected(&fake_server, std::slice::from_ref(&c)).await.unwrap();
    sleep(ms(1_000)).await;
    refuse(&fake_server, half_each(&a, &b), "CLUSTERDOWN x");
    let before = looks(&fake_server);
    for _ in 0..20 {
        cluster.request(0, &GET).await.unwrap_err();
        sleep(ms(4)).await;
    }
    assert_eq!(looks(&fake_server), before + 1);
    sleep(ms(1_000)).await;
    assert_eq!(looks(&fake_server), before + 2, "a later report may be about another map");
    for node in [&a, &b] {
        fake_server.is(node, Mood::Refusing);
        fake_server.cut(node, false);
    }
    sleep(ms(10)).await;
    let start = Instant::now();
    cluster.0.refresh().await.unwrap();
    assert!(start.elapsed().is_zero(), "no link that is down is waited for");
}

#[tokio::test(start_paused = true)]
async fn closed_or_dropped_it_ends_what_it_has_and_looks_at_nothing() {
    let (fake_server, [a, b]) = (Scene::new(), ["a", "b"].map(server));
    tell(&fake_server, half_each(&a, &b));
    let cluster = connected(&fake_server, std::slice::from_ref(&a)).await.unwrap();
    cluster.close().await;
    assert_eq!([&a, &b].map(|node| fake_server.connections(node)), [0, 0]);
    for slot in [0, 9_000] {
        assert!(matches!(cluster.request(slot, &GET).await, Err(ExecError::Closed)));
    }
    let reported: Vec<_> = cluster.everywhere(&GET).await.into_iter().map(|(_, answer)| answer).collect();
    assert!(matches!(reported[..], [Err(ExecError::Closed), Err(ExecError::Closed)]), "{reported:?}");
    let before = looks(&fake_server);
    sleep(ms(100_000)).await;
    assert_eq!(looks(&fake_server), before);
    // A redirection or a map that came while it was closed.
    let map = SlotMap::read(&half_each(&a, &b), &a).unwrap();
    assert!(matches!(cluster.0.adopt(map).await, Err(ExecError::Closed)));
    assert!(matches!(cluster.0.link_to(&server("c")), Err(ExecError::Closed)));
    assert_eq!(cluster.0.links().len(), 2);

    let cluster = connected(&fake_server, std::slice::from_ref(&a)).await.unwrap();
    sleep(ms(1_000)).await;
    cluster.0.stale.notify_one();
    sleep(ms(20)).await; // it has looked, and rests
    drop(cluster);
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
    assert_eq!([&a, &b].map(|node| fake_server.connections(node)), [0, 0], "at once");
    sleep(ms(200)).await;
    assert_eq!(tokio::runtime::Handle::current().metrics().num_alive_tasks(), 0);
    let before = looks(&fake_server);
    sleep(ms(100_000)).await;
    assert_eq!((looks(&fake_server), [&a, &b].map(|node| fake_server.connections(node))), (before, [0, 0]));
}

#[test]
fn the_map_is_kept_up_in_the_next_runtime_when_its_own_has_ended() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let (fake_server, [a, b]) = (Scene::new(), ["a", "b"].map(server));
    tell(&fake_server, slot_map(&[(&a, 16_384)]));
    let first = runtime();
    let cluster = first.block_on(connected(&fake_server, std::slice::from_ref(&a))).unwrap();
    drop(first);
    refuse(&fake_server, slot_map(&[(&b, 16_384)]), "CLUSTERDOWN x");
    runtime().block_on(async {
        cluster.request(7, &GET).await.unwrap_err();
        tell(&fake_server, slot_map(&[(&b, 16_384)]));
        let connected = async {
            while fake_server.connections(&b) == 0 {
                sleep(ms(5)).await;
            }
        };
        timeout(ms(10_000), connected).await.expect("the map is looked at");
        assert_eq!(served(&cluster, 7).await, "b:1");
    });
}
