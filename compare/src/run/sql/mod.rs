//! The comparison of databases. Without the feature `sql` there is nothing to be measured.

#[cfg(feature = "sql")]
mod columns;
#[cfg(feature = "sql")]
mod files;
#[cfg(feature = "sql")]
mod mysql;
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
    ("mysql-pair", mysql::pair),
    ("mysql-handover", mysql::handover),
    ("sqlite-pair", files::pair),
    ("sqlite-handover", files::handover),
    ("sqlite-queue", queue::sqlite),
];
