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
    operate::freed_by_force(&World::on(url), "2s");
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
