//! The recipes of `docs/cookbook.md` and of other pages of the book: the pages show these files, and `cargo xtask tidy` checks
//! that they do. The tests in `tests/` show the effect of a pause in the worst place of each.

pub mod checkup;
pub mod configuration;
pub mod cron;
pub mod file;
pub mod health;
pub mod leader;
pub mod lease;
pub mod once;
pub mod payment;
pub mod payment_sqlx;
pub mod reminders;
pub mod shipment;
pub mod worker;
