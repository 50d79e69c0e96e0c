//! The recipes of `docs/cookbook.md` and of other pages of the book: the pages show these files, and `cargo xtask tidy` checks
//! that they do. What each does about a pause in its worst place stands in `tests/`.

pub mod checkup;
pub mod configuration;
pub mod cron;
pub mod file;
pub mod health;
pub mod leader;
pub mod lease;
pub mod once;
pub mod payment;
pub mod reminders;
pub mod shipment;
pub mod worker;
