//! The tests of this driver.

mod delay_queue;
mod driver;
mod faults;
mod fences;
mod handing;
mod random_schedules;
mod worker_settings;
