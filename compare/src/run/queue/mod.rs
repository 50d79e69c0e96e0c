//! The comparison of delay queues.

mod cost;
mod etcd;
mod job;
mod late;
mod memory;
mod throughput;

use super::bench::Section;
#[cfg(feature = "sql")]
pub(super) use job::THROUGHPUT;

pub(super) const SECTIONS: &[(&str, Section)] = &[
    ("throughput", throughput::run),
    ("late", late::run),
    ("backlog", cost::backlog),
    ("idle", cost::idle),
    ("burst", cost::burst),
    ("etcd", etcd::run),
    ("memory", memory::run),
];
