//! The comparison of locks, most telling sections first.

mod dead;
mod etcd;
mod floors;
mod handover;
mod history;
mod memory;
mod pair;
mod peers;
mod redlock;
mod renew;

use super::bench::Section;
pub(super) use floors::ping;
#[cfg(feature = "sql")]
pub(super) use handover::figures;
pub(super) use handover::{Crowd, counted_run as contend};
pub(super) use peers::ours;

pub(super) const SECTIONS: &[(&str, Section)] = &[
    ("pair", pair::one),
    ("pairs", pair::many),
    ("handover", handover::sixteen),
    ("network", handover::network),
    ("crowd", handover::crowd),
    ("dead", dead::run),
    ("renew", renew::run),
    ("redlock", redlock::run),
    ("etcd", etcd::run),
    ("memory", memory::run),
];
