//! What the tests beside this one show on SQLite, over servers: waiting, ends, stops, losses. And servers that stop answering: the
//! program is dead before the lock ends, and the next holder begins after that.

use std::cell::RefCell;

#[cfg(feature = "postgres")]
use tenure_testkit::{PostgresOptions, PostgresServer};
#[cfg(feature = "redis")]
use tenure_testkit::{RedisOptions, RedisServer};

use crate::loss::outage;
use crate::support::{World, millis};
use crate::{end, operate, terminal, waiting};

/// The complaints of users of other commands, as far as the backend has a part in them. Each has a folder of its own.
fn complaints(url: &str) {
    waiting::handed_over(&World::on(url));
    waiting::given_up(&World::on(url));
    waiting::placed(&World::on(url));
    operate::inspected(&World::on(url));
    operate::freed_by_force(&World::on(url), "4s");
    end::daemons(&World::on(url));
    end::killed(&World::on(url), millis(2000));
    terminal::stopped_and_continued(&World::on(url));
    terminal::stopped_for_too_long(&World::on(url), "2s");
}

#[cfg(feature = "redis")]
#[test]
fn redis_has_no_complaints() {
    let server = RedisServer::start(RedisOptions::new()).unwrap();
    complaints(&server.url());
}

#[cfg(feature = "postgres")]
#[test]
fn postgres_has_no_complaints() {
    let server = PostgresServer::start(PostgresOptions::new()).unwrap();
    complaints(&format!("{}?migrate=true", server.url("postgres")));
}

#[cfg(feature = "etcd")]
#[test]
fn etcd_has_no_complaints() {
    let cluster = tenure_testkit::EtcdCluster::single(tenure_testkit::EtcdOptions::new()).unwrap();
    complaints(&cluster.url());
}

#[cfg(feature = "redis")]
#[test]
fn redis_that_stops_answering() {
    let server = RedisServer::start(RedisOptions::new()).unwrap();
    let world = World::on(server.url());
    let server = RefCell::new(server);
    outage(&world, || server.borrow_mut().pause().unwrap(), || server.borrow_mut().resume().unwrap());
}

#[cfg(feature = "postgres")]
#[test]
fn postgres_that_stops_answering() {
    let server = PostgresServer::start(PostgresOptions::new()).unwrap();
    let world = World::on(format!("{}?migrate=true", server.url("postgres")));
    let server = RefCell::new(server);
    outage(&world, || server.borrow_mut().pause().unwrap(), || server.borrow_mut().resume().unwrap());
}

#[cfg(feature = "etcd")]
#[test]
fn etcd_that_stops_answering() {
    let cluster = tenure_testkit::EtcdCluster::single(tenure_testkit::EtcdOptions::new()).unwrap();
    let world = World::on(cluster.url());
    let cluster = RefCell::new(cluster);
    outage(&world, || cluster.borrow_mut().pause(0).unwrap(), || cluster.borrow_mut().resume(0).unwrap());
}

/// An outage is no busy lock, whatever a busy lock means to the caller.
#[cfg(feature = "redis")]
#[test]
fn an_outage_during_a_wait_is_69() {
    let mut server = RedisServer::start(RedisOptions::new()).unwrap();
    let world = World::on(server.url());
    for (name, kills) in [("first", false), ("second", true)] {
        let holder = world.start(&["run", "--ttl", "5s", name, "--", "sh", "-c", "echo holds; exec sleep 60"]);
        holder.says("holds");
        let words = ["--format", "json", "run", "--wait", "6s", "--busy-exit", "0", name, "--", "true"];
        let (waiter, begun) = (world.start(&words), std::time::Instant::now());
        waiter.says("waiting");
        if kills { server.kill() } else { server.pause() }.unwrap();
        waiter.says("the backend does not answer");
        let ended = waiter.ended();
        assert_eq!((ended.code, ended.json()["outcome"].as_str()), (Some(69), Some("failed")), "{ended:?}");
        assert!(begun.elapsed() < crate::support::patience(millis(6_500)), "{:?}", begun.elapsed());
        if !kills {
            server.resume().unwrap();
        }
    }
    // Connecting is a part of the wait.
    let waiter = world.start(&["run", "--wait", "20s", "job", "--", "true"]);
    waiter.says("waiting for the backend");
    server.restart().unwrap();
    waiter.says("the backend answers");
    assert_eq!(waiter.ended().code, Some(0));
    let refused = world.run(&["run", "--no-wait", "job", "--", "true"]);
    assert_eq!(refused.code, Some(0), "{refused:?}");
}

/// The program has ended, and its lock cannot be given back: that is said, and takes as long as was said.
#[cfg(feature = "redis")]
#[test]
fn a_lock_that_cannot_be_given_back_holds_up_the_end_for_as_long_as_was_said() {
    let server = RefCell::new(RedisServer::start(RedisOptions::new()).unwrap());
    let world = World::on(server.borrow().url());
    let holder = world.start_script(&["--release-within", "2s"], "echo ready; while ! [ -e go ]; do sleep 0.02; done");
    holder.says("ready");
    server.borrow_mut().pause().unwrap();
    std::fs::write(world.file("go"), "").unwrap();
    let begun = std::time::Instant::now();
    holder.says("cannot be released at the moment");
    assert_eq!(holder.ended().code, Some(0));
    assert!(begun.elapsed() < crate::support::patience(millis(4_000)), "{:?}", begun.elapsed());
}

/// A wait that is shorter than the way to the server is one attempt, and no outage.
#[cfg(feature = "redis")]
#[test]
fn a_short_wait_lets_a_distant_server_answer() {
    let server = RedisServer::start(RedisOptions::new()).unwrap();
    let link = tenure_testkit::TcpProxy::start(server.port()).unwrap();
    link.set_delay(millis(80));
    let world = World::on(format!("redis://127.0.0.1:{}/", link.port()));
    for wait in ["0s", "10ms"] {
        let ended = world.run(&["run", "--wait", wait, "job", "--", "true"]);
        assert_eq!(ended.code, Some(0), "{wait}: {ended:?}");
    }
    let holder = World::on(server.url());
    let holder = holder.start_script(&[], "echo holds; exec sleep 60");
    holder.says("holds");
    assert_eq!(world.run(&["run", "--wait", "10ms", "job", "--", "true"]).code, Some(75));
}

/// However long an outage is: one line at its beginning, one at its end.
#[cfg(feature = "redis")]
#[test]
fn an_outage_of_a_worker_is_two_lines() {
    let mut server = RedisServer::start(RedisOptions::new()).unwrap();
    let world = World::on(server.url());
    let worker = world.start(&["queue", "run", "mails", "--", "sh", "-c", "cat; echo"]);
    assert_eq!(world.run(&["queue", "push", "mails", "first"]).code, Some(0));
    worker.says("first");
    server.kill().unwrap();
    worker.says("no message can be received at the moment");
    std::thread::sleep(millis(4_000)); // several attempts
    server.restart().unwrap();
    let pushed = || (world.run(&["queue", "push", "mails", "second"]).code == Some(0)).then_some(());
    tenure_testkit::eventually("a push", pushed).unwrap();
    worker.says("second").says("messages can be received again");
    worker.signal(rustix::process::Signal::TERM);
    let ended = worker.ended();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(ended.err.matches("no message can be received at the moment").count(), 1, "{ended:?}");
}
