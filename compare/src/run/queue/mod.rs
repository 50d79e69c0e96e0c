//! The comparison of delay queues.

mod cost;
mod etcd;
mod late;
mod memory;
mod throughput;

use super::bench::Section;
use super::redis::Redis;
use crate::job::Job;

pub(super) const SECTIONS: &[(&str, Section)] = &[
    ("throughput", throughput::run),
    ("late", late::run),
    ("backlog", cost::backlog),
    ("idle", cost::idle),
    ("burst", cost::burst),
    ("etcd", etcd::run),
    ("memory", memory::run),
];

/// A job on a queue that is used by nobody else.
fn job(what: &str, subject: &str, server: &Redis) -> Job {
    let (ports, name) = (vec![server.port()], format!("compare/{what}"));
    Job { what: what.into(), subject: subject.into(), ports, name, workers: 1, batch: 1, ..Job::default() }
}

const THROUGHPUT: &[(&str, &str)] = &[
    ("total_per_s", "messages per second"),
    ("push_per_s", "pushed per second"),
    ("drain_per_s", "received and settled per second"),
    ("server_us", "server CPU µs"),
    ("client_us", "client CPU µs"),
];
