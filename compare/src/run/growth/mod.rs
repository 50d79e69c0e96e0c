//! How cost grows: the same work over more waiters, locks, names, clients, bytes and longer ways. Every section is a table
//! whose rows are points of curves.

mod clients;
mod held;
mod names;
mod network;
mod payload;
mod point;
mod waiters;

use super::bench::Section;

pub(super) const SECTIONS: &[(&str, Section)] = &[
    ("waiters", waiters::run),
    ("held", held::run),
    ("names", names::run),
    ("clients", clients::run),
    ("payload", payload::run),
    ("network", network::run),
];
