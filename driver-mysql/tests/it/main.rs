//! The tests of this driver: against servers that each test starts.

mod bad_days;
mod common;
mod guard;
mod mysql_8;
mod odd_input;
mod permits;
mod queue;
mod rights;
mod round_trips;
mod tls;
mod traps;
mod under_load;
