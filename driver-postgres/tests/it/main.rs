//! The tests of this driver: against servers that each test starts.

mod bad_days;
mod bloat;
mod common;
mod cost;
mod doctor;
mod guard;
mod odd_input;
mod permit_model;
mod permits;
mod pooler;
mod queue;
mod restart;
mod rights;
mod sql;
mod tls;
