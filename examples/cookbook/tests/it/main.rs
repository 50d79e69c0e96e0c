//! The tests of the recipes: each pauses in the worst place.

mod any_backend;
mod checkup;
mod configuration;
mod cron;
mod documented_sql;
mod faults;
mod file;
mod health;
mod leader;
mod lease;
mod once;
mod payment;
mod payment_sqlx;
mod reminders;
mod shipment;
mod sql_page;
mod worker;
