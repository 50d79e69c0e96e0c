//! What the machine costs without any lock.

use super::super::bench::take;
use super::super::language::Language;
use super::super::redis::Redis;
use super::super::report::{Sample, sample};
use crate::failure::Outcome;
use crate::job::Job;

/// So many round trips of a PING to a port.
pub(in crate::run) fn ping(port: u16, count: usize, pin: Option<&str>) -> Outcome<Sample> {
    let job = Job { what: "ping".into(), subject: "bare".into(), ports: vec![port], count, ..Job::default() };
    Ok(sample(&take(&Language::Rust, pin, &[job], &[])?.answers[0]))
}

/// From a PUBLISH that is sent to its subscriber.
pub(super) fn publish(server: &Redis, pin: Option<&str>) -> Outcome<Sample> {
    let job = Job {
        what: "publish".into(),
        subject: "bare".into(),
        ports: vec![server.port()],
        name: "compare/floor".into(),
        millis: 300,
        ..Job::default()
    };
    Ok(sample(&take(&Language::Rust, pin, &[job], &[])?.answers[0]))
}
