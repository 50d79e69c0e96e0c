//! The same over servers that stop answering: the program is dead before the lock ends, and the next holder begins after that.

use std::cell::RefCell;

#[cfg(feature = "postgres")]
use tenure_testkit::{PostgresOptions, PostgresServer};
#[cfg(feature = "redis")]
use tenure_testkit::{RedisOptions, RedisServer};

use crate::loss::outage;
use crate::support::World;

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
