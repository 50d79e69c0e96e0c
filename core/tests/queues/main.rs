//! Queues of the engine over drivers in memory with something wrong on their way: one program, as for the locks.

mod extensions;
mod lists;
#[path = "../locks/stage.rs"]
mod lock_stage;
mod outages;
mod panics;
mod parking;
mod push;
mod receivers;
mod recurring;
mod stage;
mod task;
mod turns;
mod worker;
