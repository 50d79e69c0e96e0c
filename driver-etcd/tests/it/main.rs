//! The tests of this driver: against servers that each test starts.

mod common;
mod contention;
mod damage;
mod damaged_keys;
mod doctor;
mod driver;
mod far;
mod fences;
mod given;
mod killed;
mod leaders;
mod lease_reuse;
mod queue_costs;
mod queue_herd;
mod queue_limits;
mod queue_lists;
mod queue_races;
mod queue_repairs;
mod queues;
mod reentrant;
mod setup;
mod tls;
mod traps;
