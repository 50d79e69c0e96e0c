//! The tests of this driver.

mod bad_days;
mod cost;
mod odd_input;
mod queues;
