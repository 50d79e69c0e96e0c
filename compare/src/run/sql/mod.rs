//! The comparison of databases. Without the feature `sql` there is nothing to be measured.

#[cfg(feature = "sql")]
mod files;
#[cfg(feature = "sql")]
mod postgres;
#[cfg(feature = "sql")]
mod queue;
#[cfg(feature = "sql")]
mod server;

use super::bench::Section;

#[cfg(not(feature = "sql"))]
pub(super) const SECTIONS: &[(&str, Section)] = &[];

#[cfg(feature = "sql")]
pub(super) const SECTIONS: &[(&str, Section)] = &[
    ("pg-pair", postgres::pair),
    ("pg-pair-disk", postgres::pair_on_disk),
    ("pg-pairs", postgres::pairs),
    ("pg-handover", postgres::handover),
    ("pg-queue", queue::postgres),
    ("sqlite-pair", files::pair),
    ("sqlite-handover", files::handover),
    ("sqlite-queue", queue::sqlite),
];

/// What is measured of locks that nobody else wants.
#[cfg(feature = "sql")]
const PAIR: &[(&str, &str)] = &[
    ("p50_us", "p50 µs"),
    ("p99_us", "p99 µs"),
    ("per_s", "pairs per second"),
    ("client_us", "client CPU µs"),
    ("server_us", "server CPU µs"),
];

/// What is measured of one that everybody wants.
#[cfg(feature = "sql")]
const HANDOVER: &[(&str, &str)] = &[
    ("per_s", "hand-overs per second"),
    ("gap_p50_us", "gap p50 µs"),
    ("gap_p99_us", "gap p99 µs"),
    ("jain", "Jain"),
    ("max_over_mean", "longest wait / mean"),
    ("server_us", "server CPU µs"),
    ("client_us", "client CPU µs"),
    ("overlaps", "overlaps"),
    ("fences_back", "fences that fell"),
];
