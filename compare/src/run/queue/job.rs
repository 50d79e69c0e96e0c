//! What the sections of the comparison of queues have in common.

use crate::job::Job;
use crate::run::redis::Redis;

/// A job on a queue without other users.
pub(super) fn job(what: &str, subject: &str, server: &Redis) -> Job {
    let (ports, name) = (vec![server.port()], format!("compare/{what}"));
    Job { what: what.into(), subject: subject.into(), ports, name, workers: 1, batch: 1, ..Job::default() }
}

/// The printed columns of a throughput.
pub(in crate::run) const THROUGHPUT: &[(&str, &str)] = &[
    ("total_per_s", "messages per second"),
    ("push_per_s", "pushed per second"),
    ("drain_per_s", "received and settled per second"),
    ("server_us", "server CPU µs"),
    ("client_us", "client CPU µs"),
];
