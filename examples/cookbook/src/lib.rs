//! The recipes of `docs/cookbook.md`: the page shows these files, and `cargo xtask tidy` checks that it does. What each
//! does about a pause in its worst place stands in `tests/`.

pub mod cron;
pub mod file;
pub mod health;
pub mod leader;
pub mod once;
pub mod payment;
pub mod worker;
