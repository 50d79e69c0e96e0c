//! Nodes of a quorum over servers in memory: how many have to be there, which faults an operator has to mend, and what each
//! votes.

use std::sync::Mutex;

use tenure_core::driver::{AcquireRequest, Ballot, Electorate, Hold, Raised, Ttl, Vote};
use tenure_core::{FencingToken, LockName, OwnerToken};
use tokio::time::{Instant, sleep};

use super::*;
use crate::config::Address;
use crate::error::ExecError;
use crate::link::fake_server::{Called, Mood, Scene, called, fit, server};
use crate::script::Reply;

type Nodes = Vec<(String, Arc<dyn QuorumNode>)>;

const fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// Fit servers, each with a run id of its own but for those that are one; they vote, and raise.
fn tell(fake_server: &Scene, one: &'static [&'static str]) {
    fake_server.answers(move |at, command| match (command, called(command).map(|call| call.script)) {
        ("INFO", _) => {
            let name = at.to_string();
            let run = if one.contains(&name.as_str()) { "same" } else { &name };
            Ok(Reply::Bytes(format!("redis_version:7.0.15\r\nrun_id:{run}\r\n").into()))
        }
        (_, Some("vote")) => Ok(Reply::Int(7)),
        (_, Some("raise")) => Ok(Reply::Array(vec![Reply::Int(1)])),
        (_, Some("enroll")) => Ok(Reply::Nil),
        _ => Ok(fit(command).unwrap_or_else(|| panic!("{command}"))),
    });
}

async fn connect(fake_server: &Scene, names: &[&str]) -> Result<Nodes> {
    let configs: Vec<RedisConfig> = names.iter().map(|name| RedisConfig::tcp(*name, 1)).collect();
    connect_nodes(fake_server.clone(), &configs).await
}

fn ballot() -> Ballot {
    let request = AcquireRequest::new(LockName::new("n").unwrap(), OwnerToken::random(), Ttl::DEFAULT);
    Ballot::new(request, Electorate::of(["a:1", "b:1", "c:1"]))
}

#[tokio::test(start_paused = true)]
async fn a_majority_has_to_be_there_and_all_are_returned() {
    let fake_server = Scene::new();
    tell(&fake_server, &[]);
    let away = |names: &[&str]| names.iter().for_each(|name| fake_server.is(&server(name), Mood::Refusing));
    for (names, few, many) in [
        (&["a", "b", "c"][..], &["c"][..], &["b", "c"][..]),
        (&["a", "b", "c", "d"], &["c"], &["c", "d"]),
        (&["a"], &[], &["a"]),
    ] {
        names.iter().for_each(|name| fake_server.is(&server(name), Mood::Well));
        away(few);
        let nodes = connect(&fake_server, names).await.unwrap();
        let found: Vec<String> = nodes.into_iter().map(|(name, _)| name).collect();
        assert_eq!(found, names.iter().map(|name| format!("{name}:1")).collect::<Vec<_>>());
        away(many);
        let error = connect(&fake_server, names).await.unwrap_err();
        let needed = names.len() / 2 + 1;
        let reported = format!("no quorum can be reached ({needed} of {} nodes are needed): ", names.len());
        assert!(error.kind() == ErrorKind::Unavailable && error.message().starts_with(&reported), "{error}");
        let missing = many.iter().map(|name| format!("{name}:1: cannot connect to {name}:1: refused"));
        assert!(error.message().ends_with(&missing.collect::<Vec<_>>().join("; ")), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn each_is_one_server_by_itself_and_called_by_its_address_and_database() {
    let fake_server = Scene::new();
    tell(&fake_server, &[]);
    let config = |name: &str| RedisConfig::tcp(name, 1);
    let nodes =
        connect_nodes(fake_server.clone(), &[config("a"), config("a").database(3).name("app")]).await.unwrap_err();
    assert!(nodes.message().contains("the node a:1/3") && nodes.message().contains("a:1/3 and a:1"), "{nodes}");
    let nodes = connect_nodes(fake_server.clone(), &[config("a").database(3), config("b")]).await.unwrap();
    assert_eq!(nodes.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["a:1/3", "b:1"]);
    let identities: Vec<String> = nodes.iter().map(|(_, node)| node.identity().unwrap()).collect();
    assert!(identities[0] != identities[1] && identities[0].ends_with(" 3 tenure"), "{identities:?}");
    assert!(nodes.iter().all(|(_, node)| node.doctor().is_some()));
    let cluster = RedisConfig::new(Topology::Cluster(vec![server("a")]));
    let error = connect_nodes(fake_server, &[config("a"), cluster]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
}

#[tokio::test(start_paused = true)]
async fn a_lasting_fault_of_a_node_is_reported_in_spite_of_a_majority() {
    let fake_server = Scene::new();
    for (answer, kind) in [
        (Ok(Reply::Bytes(b"role:slave\r\n".to_vec())), ErrorKind::Misconfigured),
        (Err(ExecError::refused("NOAUTH log in")), ErrorKind::Denied),
    ] {
        fake_server.answers(move |at, command| match command {
            "INFO" if *at == server("c") => answer.clone(),
            _ => Ok(fit(command).unwrap()),
        });
        let error = connect(&fake_server, &["a", "b", "c"]).await.unwrap_err();
        assert!(error.kind() == kind && error.message().contains("the node c:1"), "{error}");
    }
    fake_server.answers(move |at, command| match command {
        "INFO" if *at == server("c") => Err(ExecError::SentUnknown { message: "cut".into(), source: None }),
        _ => Ok(fit(command).unwrap()),
    });
    assert_eq!(connect(&fake_server, &["a", "b", "c"]).await.unwrap().len(), 3, "one that does not answer is away");
}

#[tokio::test(start_paused = true)]
async fn one_that_was_away_is_looked_at_before_it_votes_and_no_server_has_two_votes() {
    let (fake_server, c) = (Scene::new(), server("c"));
    tell(&fake_server, &["b:1", "c:1"]);
    let error = connect(&fake_server, &["a", "b", "c"]).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Misconfigured && error.message().contains("are the same server"), "{error}");

    fake_server.is(&c, Mood::Refusing);
    let nodes = connect(&fake_server, &["a", "b", "c"]).await.unwrap();
    let [(_, a), _, (_, late)] = &nodes[..] else { panic!() };
    sleep(ms(1_000)).await;
    let start = Instant::now();
    let error = late.vote(&ballot()).await.unwrap_err();
    assert_eq!((error.kind(), start.elapsed()), (ErrorKind::Unavailable, Duration::ZERO), "nobody waits for it");
    fake_server.is(&c, Mood::Well);
    sleep(ms(1_500)).await;
    let error = late.vote(&ballot()).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Misconfigured && fake_server.calls("vote").is_empty(), "{error}");
    tell(&fake_server, &[]);
    assert!(matches!(late.vote(&ballot()).await.unwrap(), Vote::Cast(_)), "it was replaced");
    assert!(matches!(a.vote(&ballot()).await.unwrap(), Vote::Cast(_)));
    let voted: Vec<Address> = fake_server.calls("vote").into_iter().map(|(at, _)| at).collect();
    assert_eq!(voted, [c, server("a")]);
}

#[tokio::test(start_paused = true)]
async fn a_node_votes_raises_and_enrolls_by_one_script_each() {
    let fake_server = Scene::new();
    tell(&fake_server, &[]);
    let nodes = connect(&fake_server, &["a"]).await.unwrap();
    let (_, node) = &nodes[0];
    let (ballot, fence) = (ballot(), FencingToken::new(9).unwrap());
    let Vote::Cast(tenure_core::driver::Acquisition::Granted(grant)) = node.vote(&ballot).await.unwrap() else {
        panic!()
    };
    assert_eq!((grant.fence.get(), grant.ttl), (7, Ttl::DEFAULT.get()));
    let hold = Hold::new(ballot.request.name.clone(), ballot.request.token);
    assert_eq!(node.raise(&hold, fence).await.unwrap(), Raised::Acknowledged);
    node.enroll(&ballot.electorate).await.unwrap();
    for (script, end) in [("vote", "0"), ("raise", "9 86400000"), ("enroll", &ballot.electorate.to_string())] {
        let calls = fake_server.calls(script);
        assert!(calls.len() == 1 && calls[0].1.ends_with(&format!(" {end}")), "{script}: {calls:?}");
    }
    let refused = Arc::new(Mutex::new(ExecError::refused("LOADING x")));
    fake_server.answers(move |_, command| match called(command) {
        Some(Called { script: "vote" | "raise" | "enroll", .. }) => Err(refused.lock().unwrap().clone()),
        _ => Ok(fit(command).unwrap()),
    });
    let reported = [
        node.vote(&ballot).await.map(drop),
        node.raise(&hold, fence).await.map(drop),
        node.enroll(&ballot.electorate).await,
    ];
    for (error, operation) in reported.into_iter().map(Result::unwrap_err).zip(["vote", "raise", "enroll"]) {
        assert!(error.kind() == ErrorKind::Unavailable && format!("{error:?}").contains(operation), "{error:?}");
    }
}
