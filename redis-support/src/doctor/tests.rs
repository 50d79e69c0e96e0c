//! The findings for an operator about each server, about those that do not answer, and about their clocks.

use super::*;
use crate::config::{RedisConfig, Topology};
use crate::error::ExecError;
use crate::link::fake_server::{Mood, Scene, called, fit, server, slot_map};
use crate::settings::{Eviction, RedisSettings};
use tenure_core::ErrorKind;

fn looked(info: &str, placement: Placement) -> Checkup {
    let mut checkup = Checkup::default();
    look(&mut checkup, "a:1", info, placement);
    checkup
}

fn concern(checkup: &Checkup, topic: Topic) -> Concern {
    checkup.findings().iter().find(|finding| finding.topic == topic).unwrap().concern
}

#[test]
fn each_finding_has_its_concern() {
    let good = "redis_version:7.0.15\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\naof_enabled:1\r\n";
    let checkup = looked(good, Placement::OneServer);
    assert_eq!(checkup.concern(), Concern::Fine, "{checkup}");
    let valkey = format!("{good}valkey_version:9.1.2\r\n");
    assert!(looked(&valkey, Placement::OneServer).to_string().contains("Valkey 9.1.2"));
    let bad = "maxmemory:9\r\nmaxmemory_policy:allkeys-lru\r\naof_enabled:0\r\nconnected_slaves:1\r\n";
    let checkup = looked(bad, Placement::OneServer);
    assert_eq!(concern(&checkup, Topic::Eviction), Concern::Danger);
    assert_eq!(concern(&checkup, Topic::Persistence), Concern::Note);
    assert_eq!(concern(&checkup, Topic::Replicas), Concern::Note);
    assert_eq!(concern(&looked(good, Placement::Slots), Topic::Replicas), Concern::Danger);
}

#[test]
fn memory_and_replicas_are_judged_by_what_they_mean_for_locks() {
    use {Concern as C, Placement as P};
    let found = |info: &str, placement, topic| concern(&looked(info, placement), topic);
    for (info, concern) in [
        ("maxmemory:0\r\nmaxmemory_policy:noeviction\r\n", C::Fine),
        ("maxmemory:9\r\nmaxmemory_policy:noeviction\r\n", C::Note),
        ("maxmemory:9\r\nmaxmemory_policy:volatile-lru\r\n", C::Danger),
        ("maxmemory:0\r\nmaxmemory_policy:volatile-lru\r\n", C::Danger),
        ("", C::Danger),
    ] {
        assert_eq!(found(info, P::OneServer, Topic::Eviction), concern, "{info}");
    }
    for (placement, replicas, concern) in [
        (P::OneServer, 0, C::Fine),
        (P::OneServer, 1, C::Note),
        (P::OnePrimary, 0, C::Danger),
        (P::OnePrimary, 2, C::Note),
        (P::Slots, 0, C::Danger),
        (P::Slots, 1, C::Note),
    ] {
        let info = format!("connected_slaves:{replicas}\r\n");
        assert_eq!(found(&info, placement, Topic::Replicas), concern, "{placement:?} {replicas}");
        let seen = format!("{replicas} replicas attached");
        assert!(looked(&info, placement).findings().iter().any(|finding| finding.seen == seen));
    }
    assert_eq!(found("aof_enabled:1\r\n", P::OneServer, Topic::Persistence), C::Fine);
    assert_eq!(found("aof_enabled:0\r\n", P::OneServer, Topic::Persistence), C::Note);
    assert!(looked("", P::OneServer).findings().iter().all(|finding| finding.topic != Topic::Version));
}

#[test]
fn a_time_is_seconds_and_microseconds() {
    let text = |text: &str| Reply::Bytes(text.as_bytes().to_vec());
    let read = |parts: &[&str]| time(&Reply::Array(parts.iter().map(|part| text(part)).collect()));
    assert_eq!(read(&["5", "7"]), Some(UNIX_EPOCH + Duration::new(5, 7_000)));
    for other in [&["5"][..], &["-5", "7"], &["5", "x"], &["18446744073709551615", "0"], &[]] {
        assert_eq!(read(other), None, "{other:?}");
    }
    assert_eq!(time(&Reply::Nil), None);
}

// Over servers in memory.

type Driver = crate::lock::Driver<Scene>;
type Answer = std::result::Result<Reply, ExecError>;

/// A cluster of `a` and `b`, both fit; from then on `b` answers so, by the first word of the command.
async fn cluster(answer: impl Fn(&str) -> Option<Answer> + Send + Sync + 'static) -> (Scene, Driver) {
    let (fake_server, [a, b]) = (Scene::new(), ["a", "b"].map(server));
    let map = slot_map(&[(&a, 8_000), (&b, 8_384)]);
    let fine = move |command: &str| match command {
        "CLUSTER SLOTS" => map.clone(),
        "TIME" => at(SystemTime::now()),
        _ => fit(command).unwrap_or_else(|| panic!("{command}")),
    };
    let config = RedisConfig::new(Topology::Cluster(vec![a]));
    let before = fine.clone();
    fake_server.answers(move |_, command| Ok(before(command)));
    let locks = Driver::connect_on(fake_server.clone(), config).await.unwrap();
    fake_server.answers(move |at, command| {
        let by_name = called(command).map_or(command, |call| call.script);
        let odd = (*at == b).then(|| answer(by_name.split(' ').next().unwrap())).flatten();
        odd.unwrap_or_else(|| Ok(fine(command)))
    });
    (fake_server, locks)
}

fn at(time: SystemTime) -> Reply {
    let since = time.duration_since(UNIX_EPOCH).unwrap();
    let text = |number: u64| Reply::Bytes(number.to_string().into());
    Reply::Array(vec![text(since.as_secs()), text(since.subsec_micros().into())])
}

/// The findings about this server on this topic.
fn of(checkup: &Checkup, server: &str, topic: Topic) -> Vec<(Concern, String)> {
    let all = checkup.findings().iter().filter(|finding| finding.server == server && finding.topic == topic);
    all.map(|finding| (finding.concern, format!("{} {}", finding.seen, finding.meaning))).collect()
}

#[tokio::test(start_paused = true)]
async fn every_server_is_looked_at_and_all_rights_are_tried_anew() {
    let (fake_server, locks) = cluster(|_| None).await;
    let tried = fake_server.calls("rights").len();
    let checkup = locks.examine().await.unwrap();
    for server in ["a:1", "b:1"] {
        for topic in [Topic::Version, Topic::Eviction, Topic::Persistence, Topic::Replicas, Topic::Clock] {
            assert_eq!(of(&checkup, server, topic).len(), 1, "{server} {topic:?}");
        }
        assert_eq!(of(&checkup, server, Topic::Clock)[0].0, Concern::Fine);
        assert!(of(&checkup, server, Topic::Reach).is_empty());
    }
    assert_eq!(of(&checkup, "the nodes", Topic::Rights)[0].0, Concern::Fine);
    assert_eq!(fake_server.calls("rights").len(), 2 * tried);
}

#[tokio::test(start_paused = true)]
async fn one_that_does_not_answer_is_a_danger_and_none_that_answers_is_an_error() {
    let (fake_server, locks) = cluster(|_| None).await;
    fake_server.is(&server("b"), Mood::Refusing);
    fake_server.cut(&server("b"), false);
    tokio::time::sleep(Duration::from_millis(100)).await;
    let checkup = locks.examine().await.unwrap();
    assert_eq!(of(&checkup, "b:1", Topic::Reach)[0].0, Concern::Danger);
    assert!(of(&checkup, "b:1", Topic::Clock).is_empty() && of(&checkup, "a:1", Topic::Reach).is_empty());
    assert_eq!(of(&checkup, "a:1", Topic::Clock).len(), 1);
    let rights = of(&checkup, "the nodes", Topic::Rights);
    assert!(
        rights[0].0 == Concern::Danger && rights[0].1.ends_with("a client that connects now is refused"),
        "{rights:?}"
    );
    fake_server.is(&server("a"), Mood::Refusing);
    fake_server.cut(&server("a"), false);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(locks.examine().await.unwrap_err().kind(), ErrorKind::Unavailable);
}

#[tokio::test(start_paused = true)]
async fn what_is_kept_from_the_user_is_a_note() {
    let info = |name: &str| {
        (name == "INFO").then(|| Err(ExecError::refused("NOPERM no permissions to run the 'info' command")))
    };
    let (_, locks) = cluster(info).await;
    let checkup = locks.examine().await.unwrap();
    assert_eq!(of(&checkup, "b:1", Topic::Rights)[0].0, Concern::Note);
    assert!(of(&checkup, "b:1", Topic::Reach).is_empty() && of(&checkup, "b:1", Topic::Version).is_empty());

    let (fake_server, denied) =
        (Scene::new(), Err(ExecError::refused("NOPERM no permissions to run the 'delifeq' command")));
    fake_server.answers(move |_, command| match command.split(' ').next() {
        Some("INFO") => {
            Ok(Reply::Bytes(b"redis_version:7.2.4\r\nvalkey_version:9.0.0\r\nmaxmemory_policy:lru\r\n".to_vec()))
        }
        Some("DELIFEQ") => denied.clone(),
        Some("TIME") => Ok(Reply::Nil),
        _ => Ok(fit(command).unwrap()),
    });
    let settings = RedisSettings::default().eviction(Eviction::Allow);
    let locks = Driver::connect_on(fake_server, RedisConfig::tcp("a", 1).settings(settings)).await.unwrap();
    let checkup = locks.examine().await.unwrap();
    let rights = of(&checkup, "the server", Topic::Rights);
    assert!(rights[0].0 == Concern::Note && rights[0].1.contains("the rule +delifeq"), "{rights:?}");
    let clock = of(&checkup, "a:1", Topic::Clock);
    assert_eq!(clock, [(Concern::Note, "Nil the reply is not a time; clocks were not compared".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_far_off_is_a_note_whichever_way() {
    let off = Duration::from_secs(3_600);
    for ahead in [true, false] {
        let answer = move |name: &str| {
            let now = SystemTime::now();
            (name == "TIME").then(|| Ok(at(if ahead { now + off } else { now - off })))
        };
        let (_, locks) = cluster(answer).await;
        let reported = of(&locks.examine().await.unwrap(), "b:1", Topic::Clock);
        assert!(reported[0].0 == Concern::Note && reported[0].1.contains("grant smaller fences"), "{reported:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_time_that_is_none_is_noted() {
    let numbers = ["-9223372036854775808", "-1", "9223372036854775807", "18446744073709551615", "noon", ""];
    let texts = numbers.map(|text| Reply::Bytes(text.into()));
    let parts: Vec<Reply> = texts.into_iter().chain([Reply::Nil, Reply::Int(i64::MIN), Reply::Int(i64::MAX)]).collect();
    let pairs =
        parts.iter().flat_map(|a| [vec![a.clone(), Reply::Int(0)], vec![Reply::Int(0), a.clone()], vec![a.clone()]]);
    for time in pairs.map(Reply::Array).chain([Reply::Nil, Reply::Array(vec![])]) {
        let reported = time.clone();
        let (_, locks) = cluster(move |name| (name == "TIME").then(|| Ok(reported.clone()))).await;
        let clock = of(&locks.examine().await.unwrap(), "b:1", Topic::Clock);
        assert_eq!(clock[0].0, Concern::Note, "{time:?}");
    }
}
